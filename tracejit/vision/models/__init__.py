"""Networks that classify images, with torchvision's names of parameters, so that its state_dicts can be loaded.

Weights are not downloaded: `model.load_state_dict(load(file))` takes a file that was written elsewhere.
"""

from tracejit.vision.models.alexnet import AlexNet, alexnet
from tracejit.vision.models.resnet import (
    ResNet,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
    resnext50_32x4d,
    wide_resnet50_2,
)
from tracejit.vision.models.vgg import VGG, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn

__all__ = [
    "VGG", "AlexNet", "ResNet", "alexnet", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "vgg11",
    "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "wide_resnet50_2",
]  # fmt: skip
