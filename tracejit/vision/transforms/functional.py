"""The functions that transforms are made of, under one name: `framing.py`, `colour.py`, `warping.py`."""

from tracejit.vision.transforms.colour import (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    gaussian_blur,
    invert,
)
from tracejit.vision.transforms.framing import (
    center_crop,
    convert_image_dtype,
    crop,
    erase,
    five_crop,
    get_dimensions,
    get_image_size,
    hflip,
    normalize,
    pad,
    pil_to_tensor,
    resize,
    resized_crop,
    rgb_to_grayscale,
    ten_crop,
    to_pil_image,
    to_tensor,
    vflip,
)
from tracejit.vision.transforms.interpolation import InterpolationMode
from tracejit.vision.transforms.warping import affine, rotate

to_grayscale = rgb_to_grayscale

__all__ = [
    "InterpolationMode", "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue", "adjust_saturation",
    "affine", "center_crop", "convert_image_dtype", "crop", "erase", "five_crop", "gaussian_blur", "get_dimensions",
    "get_image_size", "hflip", "invert", "normalize", "pad", "pil_to_tensor", "resize", "resized_crop",
    "rgb_to_grayscale", "rotate", "ten_crop", "to_grayscale", "to_pil_image", "to_tensor", "vflip",
]  # fmt: skip
