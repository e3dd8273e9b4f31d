"""Networks that classify images, with torchvision's names of parameters, so that its state_dicts can be loaded.

Weights are not downloaded: `model.load_state_dict(load(file))` takes a file that was written elsewhere.

Must not know: datasets and transforms.
Start reading: resnet.py.
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
from tracejit.vision.models.weights import weights_of

__all__ = [
    "VGG",
    "AlexNet",
    "AlexNet_Weights",
    "ResNeXt50_32X4D_Weights",
    "ResNet",
    "ResNet18_Weights",
    "ResNet34_Weights",
    "ResNet50_Weights",
    "ResNet101_Weights",
    "ResNet152_Weights",
    "VGG11_BN_Weights",
    "VGG11_Weights",
    "VGG13_BN_Weights",
    "VGG13_Weights",
    "VGG16_BN_Weights",
    "VGG16_Weights",
    "VGG19_BN_Weights",
    "VGG19_Weights",
    "Wide_ResNet50_2_Weights",
    "alexnet",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "vgg11",
    "vgg11_bn",
    "vgg13",
    "vgg13_bn",
    "vgg16",
    "vgg16_bn",
    "vgg19",
    "vgg19_bn",
    "wide_resnet50_2",
]  # fmt: skip

AlexNet_Weights = weights_of("AlexNet")
ResNet18_Weights = weights_of("ResNet18")
ResNet34_Weights = weights_of("ResNet34")
ResNet50_Weights = weights_of("ResNet50")
ResNet101_Weights = weights_of("ResNet101")
ResNet152_Weights = weights_of("ResNet152")
ResNeXt50_32X4D_Weights = weights_of("ResNeXt50_32X4D")
Wide_ResNet50_2_Weights = weights_of("Wide_ResNet50_2")
VGG11_Weights = weights_of("VGG11")
VGG11_BN_Weights = weights_of("VGG11_BN")
VGG13_Weights = weights_of("VGG13")
VGG13_BN_Weights = weights_of("VGG13_BN")
VGG16_Weights = weights_of("VGG16")
VGG16_BN_Weights = weights_of("VGG16_BN")
VGG19_Weights = weights_of("VGG19")
VGG19_BN_Weights = weights_of("VGG19_BN")
