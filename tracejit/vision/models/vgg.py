"""Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition" (2014)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit import nn
from tracejit.functions import flatten
from tracejit.vision.models.weights import refuse_weights

__all__ = ["VGG", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"]

_WIDTHS = (64, 128, 256, 512, 512)
_DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def _features(depths: Sequence[int], normalised: bool) -> nn.Sequential:
    """Convolutions of 3 x 3, each stage of them followed by a pooling."""
    layers: list[nn.Module] = []
    channels = 3
    for width, depth in zip(_WIDTHS, depths, strict=True):
        for _ in range(depth):
            layers.append(nn.Conv2d(channels, width, 3, padding=1))
            layers += [nn.BatchNorm2d(width)] if normalised else []
            layers.append(nn.ReLU(inplace=True))
            channels = width
        layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(*layers)


class VGG(nn.Module):
    """Images [N, 3, H, W], about 224 x 224, to logits of classes."""

    def __init__(self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(True),
            nn.Dropout(dropout),
            nn.Linear(4096, num_classes),
        )
        if init_weights:
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                    nn.init.zeros_(module.bias)
                elif isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, 0, 0.01)
                    nn.init.zeros_(module.bias)

    def forward(self, x: Any) -> Any:
        """The logits."""
        return self.classifier(flatten(self.avgpool(self.features(x)), 1))


def _maker(layers: int, normalised: bool) -> Any:
    name = f"vgg{layers}{'_bn' if normalised else ''}"

    def make(weights: Any = None, progress: bool = True, *, pretrained: bool = False, **options: Any) -> VGG:
        refuse_weights(name, weights, pretrained)
        return VGG(_features(_DEPTHS[layers], normalised), **options)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A VGG of {layers} layers{', with batch normalisation' if normalised else ''}."
    return make


vgg11, vgg13, vgg16, vgg19 = (_maker(layers, False) for layers in (11, 13, 16, 19))
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_maker(layers, True) for layers in (11, 13, 16, 19))
