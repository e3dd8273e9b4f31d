"""Transforms of images: objects to be called with one, as torchvision has them, and the functions they are made of.

Must not know: datasets and networks.
Start reading: functional.py (the functions), then transforms.py (the objects).
"""

from tracejit.vision.transforms import functional
from tracejit.vision.transforms.augmentations import (
    ColorJitter,
    FiveCrop,
    GaussianBlur,
    RandomAffine,
    RandomChoice,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomOrder,
    RandomRotation,
    TenCrop,
)
from tracejit.vision.transforms.interpolation import InterpolationMode
from tracejit.vision.transforms.transforms import (
    CenterCrop,
    Compose,
    ConvertImageDtype,
    Grayscale,
    Lambda,
    Normalize,
    Pad,
    PILToTensor,
    RandomApply,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToPILImage,
    ToTensor,
)

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "FiveCrop", "GaussianBlur", "Grayscale", "InterpolationMode", "Lambda",
    "Normalize", "PILToTensor", "Pad", "RandomAffine", "RandomApply", "RandomChoice", "RandomCrop", "RandomErasing", "RandomGrayscale",
    "RandomHorizontalFlip", "RandomInvert", "RandomOrder", "RandomResizedCrop", "RandomRotation", "RandomVerticalFlip", "Resize", "TenCrop",
    "ToPILImage", "ToTensor", "functional",
]  # fmt: skip
