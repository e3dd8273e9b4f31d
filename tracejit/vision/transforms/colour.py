"""Colours of images: brightness, contrast, saturation, hue; blurring.  Written on tensors [..., C, H, W]; arrays go there and back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tracejit.core import dtypes
from tracejit.functional import conv2d
from tracejit.functional import pad as padded
from tracejit.functions import arange, exp, outer, stack, where
from tracejit.tensor import Tensor
from tracejit.vision.transforms.framing import get_dimensions, image_of, pil_to_tensor, rgb_to_grayscale

__all__ = [
    "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue", "adjust_saturation", "gaussian_blur", "invert", "on_tensors",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


def on_tensors(function: F) -> F:
    """`function`, which takes a tensor [..., C, H, W], for arrays H x W (x C) as well."""

    @functools.wraps(function)
    def on_any(img: Any, *args: Any, **options: Any) -> Any:
        image = image_of(img)
        if isinstance(image, Tensor):
            return function(image, *args, **options)
        out = function(pil_to_tensor(image), *args, **options).numpy()
        return np.ascontiguousarray(out[0] if image.ndim == 2 else out.transpose(1, 2, 0))

    return on_any  # type: ignore[return-value]


def _bound(image: Tensor) -> float:
    """The largest value of a pixel."""
    return 1.0 if image.is_floating_point() else float(np.iinfo(image.dtype.numpy).max)


def _blended(image: Tensor, other: Any, factor: float) -> Tensor:
    """factor * image + (1 - factor) * other, within the bounds of pixels."""
    if factor < 0:
        raise ValueError(f"factor ({factor}) is not non-negative.")
    return (factor * image + (1.0 - factor) * other).clamp(0, _bound(image)).to(image.dtype)


@on_tensors
def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """Pixels times a factor: 0 is black, 1 the image itself."""
    return _blended(img, img.new_zeros(()), brightness_factor)


@on_tensors
def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """Away from the mean of the gray image: 0 is gray all over, 1 the image itself."""
    gray = rgb_to_grayscale(img).to(img.dtype if img.is_floating_point() else dtypes.float32)
    return _blended(img, gray.mean(dim=(-3, -2, -1), keepdim=True), contrast_factor)


@on_tensors
def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """Away from the gray image: 0 is the gray image, 1 the image itself."""
    if get_dimensions(img)[0] == 1:
        return img
    return _blended(img, rgb_to_grayscale(img), saturation_factor)


@on_tensors
def adjust_gamma(img: Any, gamma: float, gain: float = 1.0) -> Any:
    """gain * pixel ** gamma for pixels in [0, 1]."""
    if gamma < 0:
        raise ValueError("Gamma should be a non-negative real number")
    floating = img if img.is_floating_point() else img / _bound(img)
    out = (gain * floating**gamma).clamp(0, 1)
    return out if img.is_floating_point() else (out * (_bound(img) + 1.0 - 1e-3)).to(img.dtype)


@on_tensors
def invert(img: Any) -> Any:
    """The negative of an image."""
    return (_bound(img) - img).to(img.dtype)


@on_tensors
def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Hues moved around the circle by a share of it, in [-0.5, 0.5]."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if get_dimensions(img)[0] == 1:
        return img
    floating = img if img.is_floating_point() else img / _bound(img)
    hue, saturation, value = _hsv(floating)
    out = _rgb((hue + hue_factor) % 1.0, saturation, value)
    return out if img.is_floating_point() else (out * (_bound(img) + 1.0 - 1e-3)).to(img.dtype)


def _hsv(image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue, saturation and value of red, green and blue, each in [0, 1] (A. R. Smith, 1978)."""
    red, green, blue = image.unbind(-3)
    most, least = image.amax(-3), image.amin(-3)
    spread = most - least
    safe = where(spread == 0, 1.0, spread)
    saturation = where(spread == 0, 0.0, spread / where(most == 0, 1.0, most))
    hue = where(
        most == red,
        (green - blue) / safe,
        where(most == green, 2.0 + (blue - red) / safe, 4.0 + (red - green) / safe),
    )
    return (hue / 6.0 + 1.0) % 1.0, saturation, most


def _rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """The inverse of `_hsv`."""

    def channel(shift: float) -> Tensor:
        position = (hue * 6.0 + shift) % 6.0
        rise = where(position < 4.0 - position, position, 4.0 - position).clamp(0.0, 1.0)
        return value - value * saturation * rise

    return stack([channel(5.0), channel(3.0), channel(1.0)], -3)


@on_tensors
def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> Any:
    """An image with each pixel the mean of those around it, weighted by a bell of width sigma; kernel_size (x, y) is odd."""
    sizes = [int(kernel_size)] * 2 if isinstance(kernel_size, int) else [int(size) for size in kernel_size]
    if any(size <= 0 or size % 2 == 0 for size in sizes):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {kernel_size}")
    widths = [0.3 * ((size - 1) * 0.5 - 1) + 0.8 for size in sizes] if sigma is None else _two(sigma)
    floating = img if img.is_floating_point() else img.to(dtypes.float32)
    across, down = (_bell(size, width).to(floating.dtype) for size, width in zip(sizes, widths, strict=True))
    channels, height, width = get_dimensions(img)
    batch = floating.reshape(-1, channels, height, width)
    x, y = sizes[0] // 2, sizes[1] // 2
    framed = padded(batch, (x, x, y, y), mode="reflect")
    kernel = outer(down, across).expand(channels, 1, sizes[1], sizes[0])
    out = conv2d(framed, kernel, groups=channels).reshape(img.shape)
    return out if img.is_floating_point() else out.round().to(img.dtype)


def _two(sigma: Any) -> Sequence[float]:
    return [float(sigma)] * 2 if isinstance(sigma, int | float) else [float(s) for s in sigma]


def _bell(size: int, width: float) -> Tensor:
    positions = arange(size).to(dtypes.float32) - (size - 1) / 2
    weights = exp(-0.5 * (positions / width) ** 2)
    return weights / weights.sum()
