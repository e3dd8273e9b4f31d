"""AlexNet, in the form of Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014)."""

from __future__ import annotations

from typing import Any

from tracejit import nn
from tracejit.functions import flatten
from tracejit.vision.models.weights import refuse_weights

__all__ = ["AlexNet", "alexnet"]


class AlexNet(nn.Module):
    """Images [N, 3, H, W], about 224 x 224, to logits of classes."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)]
        layers += [nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)]
        for inside, outside in ((192, 384), (384, 256), (256, 256)):
            layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers, nn.MaxPool2d(3, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )

    def forward(self, x: Any) -> Any:
        """The logits."""
        return self.classifier(flatten(self.avgpool(self.features(x)), 1))


def alexnet(weights: Any = None, progress: bool = True, *, pretrained: bool = False, **options: Any) -> AlexNet:
    """An AlexNet."""
    refuse_weights("alexnet", weights, pretrained)
    return AlexNet(**options)
