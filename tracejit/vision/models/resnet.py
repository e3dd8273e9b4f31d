"""He, Zhang, Ren and Sun, "Deep residual learning for image recognition" (2015), with the stride of a bottleneck in its 3 x 3
convolution; ResNeXt (Xie and others, 2016) and wide networks (Zagoruyko and Komodakis, 2016) are the same with other widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tracejit import nn
from tracejit.functions import flatten
from tracejit.vision.models.weights import refuse_weights

__all__ = [
    "BasicBlock", "Bottleneck", "ResNet", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d",
    "wide_resnet50_2",
]  # fmt: skip


class BasicBlock(nn.Module):
    """Two convolutions of 3 x 3, added to what comes in."""

    expansion: ClassVar[int] = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
    ) -> None:
        super().__init__()
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Any) -> Any:
        """The sum."""
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1, added to what comes in."""

    expansion: ClassVar[int] = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
    ) -> None:
        super().__init__()
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = nn.Conv2d(inplanes, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, planes * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Any) -> Any:
        """The sum."""
        out = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return self.relu(self.bn3(self.conv3(out)) + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Images [N, 3, H, W] to logits of classes, by four stages of `layers` blocks each."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        layers: Sequence[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
    ) -> None:
        super().__init__()
        self.inplanes, self.groups, self.base_width = 64, groups, width_per_group
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = self._stage(block, 64, layers[0], 1)
        self.layer2 = self._stage(block, 128, layers[1], 2)
        self.layer3 = self._stage(block, 256, layers[2], 2)
        self.layer4 = self._stage(block, 512, layers[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if zero_init_residual:
            for module in self.modules():
                if isinstance(module, BasicBlock | Bottleneck):
                    nn.init.zeros_((module.bn3 if isinstance(module, Bottleneck) else module.bn2).weight)

    def _stage(self, block: type[BasicBlock] | type[Bottleneck], planes: int, count: int, stride: int) -> nn.Sequential:
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes * block.expansion, 1, stride, bias=False),
                nn.BatchNorm2d(planes * block.expansion),
            )
        blocks = [block(self.inplanes, planes, stride, downsample, self.groups, self.base_width)]
        self.inplanes = planes * block.expansion
        blocks += [block(self.inplanes, planes, 1, None, self.groups, self.base_width) for _ in range(1, count)]
        return nn.Sequential(*blocks)

    def forward(self, x: Any) -> Any:
        """The logits."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(flatten(self.avgpool(x), 1))


def _maker(name: str, block: type[BasicBlock] | type[Bottleneck], layers: Sequence[int], **given: Any) -> Any:
    def make(weights: Any = None, progress: bool = True, *, pretrained: bool = False, **options: Any) -> ResNet:
        refuse_weights(name, weights, pretrained)
        return ResNet(block, layers, **{**given, **options})

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A residual network with stages of {', '.join(map(str, layers))} blocks ({block.__name__})."
    return make


resnet18 = _maker("resnet18", BasicBlock, (2, 2, 2, 2))
resnet34 = _maker("resnet34", BasicBlock, (3, 4, 6, 3))
resnet50 = _maker("resnet50", Bottleneck, (3, 4, 6, 3))
resnet101 = _maker("resnet101", Bottleneck, (3, 4, 23, 3))
resnet152 = _maker("resnet152", Bottleneck, (3, 8, 36, 3))
resnext50_32x4d = _maker("resnext50_32x4d", Bottleneck, (3, 4, 6, 3), groups=32, width_per_group=4)
wide_resnet50_2 = _maker("wide_resnet50_2", Bottleneck, (3, 4, 6, 3), width_per_group=128)
