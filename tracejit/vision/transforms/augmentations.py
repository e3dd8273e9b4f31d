"""Transforms that change images at random in their colours and positions.  What is random is drawn from the default generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tracejit.functions import rand, randint, randn, randperm
from tracejit.vision.transforms import functional as F
from tracejit.vision.transforms.interpolation import InterpolationMode
from tracejit.vision.transforms.transforms import Compose, Transform

__all__ = [
    "ColorJitter", "FiveCrop", "GaussianBlur", "RandomAffine", "RandomChoice", "RandomErasing", "RandomGrayscale", "RandomInvert",
    "RandomOrder", "RandomRotation", "TenCrop",
]  # fmt: skip


def _between(low: float, high: float) -> float:
    return low + (high - low) * float(rand(()))


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed at random, in a random order.

    brightness, contrast, saturation: factors from [max(0, 1 - x), 1 + x], or from a given pair; hue from [-x, x] within [-0.5, 0.5]."""

    shown = ("brightness", "contrast", "saturation", "hue")

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> None:
        self.brightness = _range("brightness", brightness, 1.0, (0.0, math.inf))
        self.contrast = _range("contrast", contrast, 1.0, (0.0, math.inf))
        self.saturation = _range("saturation", saturation, 1.0, (0.0, math.inf))
        self.hue = _range("hue", hue, 0.0, (-0.5, 0.5))

    def __call__(self, img: Any) -> Any:
        changes: list[tuple[Callable[..., Any], Any]] = [
            (F.adjust_brightness, self.brightness),
            (F.adjust_contrast, self.contrast),
            (F.adjust_saturation, self.saturation),
            (F.adjust_hue, self.hue),
        ]
        for i in randperm(4).tolist():
            function, limits = changes[i]
            if limits is not None:
                img = function(img, _between(*limits))
        return img


def _range(name: str, value: Any, center: float, bounds: tuple[float, float]) -> tuple[float, float] | None:
    """The limits of a factor; None where nothing changes."""
    if isinstance(value, int | float):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        low, high = center - value, center + value
        low = max(low, 0.0) if center else low
    else:
        low, high = value
    if not bounds[0] <= low <= high <= bounds[1]:
        raise ValueError(f"{name} values should be between {bounds}, but got {(low, high)}.")
    return None if low == high == center else (float(low), float(high))


class RandomRotation(Transform):
    """An image turned by a random angle from [-degrees, degrees], or from a given pair."""

    shown = ("degrees", "interpolation", "expand", "fill")

    def __init__(
        self,
        degrees: Any,
        interpolation: Any = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
    ) -> None:
        self.degrees = _angles("degrees", degrees)
        self.interpolation, self.expand, self.center, self.fill = interpolation, expand, center, fill

    def __call__(self, img: Any) -> Any:
        return F.rotate(img, _between(*self.degrees), self.interpolation, self.expand, self.center, self.fill or None)


def _angles(name: str, value: Any) -> tuple[float, float]:
    if isinstance(value, int | float):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        return -float(value), float(value)
    if len(value) != 2:
        raise ValueError(f"{name} should be a sequence of length 2.")
    return float(value[0]), float(value[1])


class RandomAffine(Transform):
    """An image turned, moved (by shares of its sides), scaled and sheared at random."""

    shown = ("degrees", "translate", "scale", "shear")

    def __init__(
        self,
        degrees: Any,
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: Any = None,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        self.degrees, self.translate, self.scale = _angles("degrees", degrees), translate, scale
        if translate is not None and not all(0.0 <= share <= 1.0 for share in translate):
            raise ValueError("translation values should be between 0 and 1")
        if scale is not None and not all(s > 0 for s in scale):
            raise ValueError("scale values should be positive")
        self.shear = None if shear is None else _angles("shear", shear) if isinstance(shear, int | float) else tuple(shear)
        self.interpolation, self.fill, self.center = interpolation, fill, center

    def __call__(self, img: Any) -> Any:
        _, height, width = F.get_dimensions(img)
        angle, moved, scale, sheared = _between(*self.degrees), [0.0, 0.0], 1.0, [0.0, 0.0]
        if self.translate is not None:
            limits = self.translate[0] * width, self.translate[1] * height
            moved = [float(round(_between(-limit, limit))) for limit in limits]
        if self.scale is not None:
            scale = _between(*self.scale)
        if self.shear is not None:
            sheared = [_between(*self.shear[i : i + 2]) for i in range(0, len(self.shear), 2)]
        return F.affine(img, angle, moved, scale, sheared, self.interpolation, self.fill or None, self.center)


class RandomGrayscale(Transform):
    """The gray image with probability p, with as many channels."""

    shown = ("p",)

    def __init__(self, p: float = 0.1) -> None:
        self.p = p

    def __call__(self, img: Any) -> Any:
        channels, _, _ = F.get_dimensions(img)
        return F.rgb_to_grayscale(img, channels) if float(rand(())) < self.p else img


class RandomInvert(Transform):
    """The negative with probability p."""

    shown = ("p",)

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, img: Any) -> Any:
        return F.invert(img) if float(rand(())) < self.p else img


class GaussianBlur(Transform):
    """An image blurred by a bell of random width from [sigma[0], sigma[1]]."""

    shown = ("kernel_size", "sigma")

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        self.kernel_size = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        self.sigma = (float(sigma), float(sigma)) if isinstance(sigma, int | float) else (float(sigma[0]), float(sigma[1]))

    def __call__(self, img: Any) -> Any:
        return F.gaussian_blur(img, self.kernel_size, _between(*self.sigma))


class RandomErasing(Transform):
    """A tensor with a random rectangle overwritten, with probability p: by `value` (a number, one for each channel) or by "random"
    numbers.  (Zhong and others, 2017.)"""

    shown = ("p", "scale", "ratio", "value", "inplace")

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
    ) -> None:
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        self.p, self.scale, self.ratio, self.value, self.inplace = p, scale, ratio, value, inplace

    def __call__(self, img: Any) -> Any:
        if float(rand(())) >= self.p:
            return img
        channels, rows, columns = F.get_dimensions(img)
        for _ in range(10):
            area = rows * columns * _between(*self.scale)
            aspect = math.exp(_between(math.log(self.ratio[0]), math.log(self.ratio[1])))
            height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if height < rows and width < columns:
                top, left = int(randint(rows - height + 1, ())), int(randint(columns - width + 1, ()))
                value = randn(channels, height, width) if self.value == "random" else self.value
                return F.erase(img, top, left, height, width, value, self.inplace)
        return img


class FiveCrop(Transform):
    """The four corners and the middle."""

    shown = ("size",)

    def __init__(self, size: Any) -> None:
        self.size = size

    def __call__(self, img: Any) -> Any:
        return F.five_crop(img, self.size)


class TenCrop(Transform):
    """The four corners and the middle, and those of the image with left and right exchanged (or top and bottom)."""

    shown = ("size", "vertical_flip")

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        self.size, self.vertical_flip = size, vertical_flip

    def __call__(self, img: Any) -> Any:
        return F.ten_crop(img, self.size, self.vertical_flip)


class RandomChoice(Compose):
    """One of some transforms."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: Sequence[float] | None = None) -> None:
        super().__init__(transforms)
        self.p = p

    def __call__(self, img: Any) -> Any:
        shares = [1.0] * len(self.transforms) if self.p is None else list(self.p)
        drawn = float(rand(())) * sum(shares)
        for transform, share in zip(self.transforms, shares, strict=True):
            drawn -= share
            if drawn < 0:
                return transform(img)
        return self.transforms[-1](img)


class RandomOrder(Compose):
    """Transforms one after the other, in a random order."""

    def __call__(self, img: Any) -> Any:
        for i in randperm(len(self.transforms)).tolist():
            img = self.transforms[i](img)
        return img
