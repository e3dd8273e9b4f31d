"""Transforms as objects.  What is random is drawn from the default generator, so manual_seed() makes it repeatable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tracejit.core import dtypes
from tracejit.functions import rand, randint
from tracejit.vision.transforms import functional as F
from tracejit.vision.transforms.framing import area_share, pair

__all__ = [
    "CenterCrop", "Compose", "ConvertImageDtype", "Grayscale", "Lambda", "Normalize", "PILToTensor", "Pad", "RandomApply", "RandomCrop",
    "RandomHorizontalFlip", "RandomResizedCrop", "RandomVerticalFlip", "Resize", "ToPILImage", "ToTensor",
    "Transform",
]  # fmt: skip


class Transform:
    """Base class: prints as the call that makes it; `shown` are the names of its attributes."""

    shown: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in self.shown)})"


class Compose:
    """Transforms one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return "\n".join([f"{type(self).__name__}(", *(f"    {transform}" for transform in self.transforms), ")"])


class Lambda(Transform):
    """Any function."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)


class ToTensor(Transform):
    """An array H x W or H x W x C as a tensor [C, H, W]; uint8 becomes float in [0, 1]."""

    def __call__(self, pic: Any) -> Any:
        return F.to_tensor(pic)


class PILToTensor(Transform):
    """An array H x W or H x W x C as a tensor [C, H, W] of the same dtype."""

    def __call__(self, pic: Any) -> Any:
        return F.pil_to_tensor(pic)


class ToPILImage(Transform):
    """A tensor [C, H, W] as an array of uint8 H x W x C (H x W for one channel), which PIL's Image.fromarray takes."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)


class ConvertImageDtype(Transform):
    """A tensor of another dtype with its values scaled."""

    def __init__(self, dtype: Any = dtypes.float32) -> None:
        self.dtype = dtype

    def __call__(self, image: Any) -> Any:
        return F.convert_image_dtype(image, self.dtype)


class Normalize(Transform):
    """(image - mean) / std, channel by channel."""

    shown = ("mean", "std")

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean, self.std, self.inplace = mean, std, inplace

    def __call__(self, tensor: Any) -> Any:
        return F.normalize(tensor, self.mean, self.std, self.inplace)


class Resize(Transform):
    """An image of size (height, width), or with its smaller side of one given size."""

    shown = ("size", "interpolation", "max_size", "antialias")

    def __init__(self, size: Any, interpolation: Any = "bilinear", max_size: int | None = None, antialias: bool = True) -> None:
        self.size, self.interpolation, self.max_size, self.antialias = size, interpolation, max_size, antialias

    def __call__(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(Transform):
    """The middle of an image."""

    shown = ("size",)

    def __init__(self, size: Any) -> None:
        self.size = pair(size)

    def __call__(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class Pad(Transform):
    """More rows and columns around an image."""

    shown = ("padding", "fill", "padding_mode")

    def __init__(self, padding: Any, fill: float = 0, padding_mode: str = "constant") -> None:
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def __call__(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class Grayscale(Transform):
    """The luma of an image in red, green and blue."""

    shown = ("num_output_channels",)

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = num_output_channels

    def __call__(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)


class RandomCrop(Transform):
    """A part of the given size at a random position, after padding; pad_if_needed: an image that is smaller is padded to the size
    first."""

    shown = ("size", "padding")

    def __init__(
        self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: float = 0, padding_mode: str = "constant"
    ) -> None:
        self.size = pair(size)
        self.padding, self.pad_if_needed, self.fill, self.padding_mode = padding, pad_if_needed, fill, padding_mode

    def __call__(self, img: Any) -> Any:
        height, width = self.size
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, rows, columns = F.get_dimensions(img)
        if self.pad_if_needed and (columns < width or rows < height):
            sides = [max(0, width - columns), max(0, height - rows)]
            img = F.pad(img, sides, self.fill, self.padding_mode)
            _, rows, columns = F.get_dimensions(img)
        if rows < height or columns < width:
            raise ValueError(f"Required crop size {(height, width)} is larger than input image size {(rows, columns)}")
        top, left = int(randint(rows - height + 1, ())), int(randint(columns - width + 1, ()))
        return F.crop(img, top, left, height, width)


class RandomResizedCrop(Transform):
    """A part with a random share of the area and a random ratio of width to height, resized to the given size."""

    shown = ("size", "scale", "ratio", "interpolation")

    def __init__(
        self,
        size: Any,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = "bilinear",
    ) -> None:
        self.size, self.scale, self.ratio, self.interpolation = pair(size), scale, ratio, interpolation

    def __call__(self, img: Any) -> Any:
        _, rows, columns = F.get_dimensions(img)
        for _ in range(10):
            share = self.scale[0] + (self.scale[1] - self.scale[0]) * float(rand(()))
            low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
            height, width = area_share(rows, columns, share, math.exp(low + (high - low) * float(rand(()))))
            if 0 < width <= columns and 0 < height <= rows:
                top, left = int(randint(rows - height + 1, ())), int(randint(columns - width + 1, ()))
                return F.resized_crop(img, top, left, height, width, self.size, self.interpolation)
        width = min(columns, round(rows * self.ratio[1]))  # no part fits: the middle, with a ratio that does
        height = min(rows, round(columns / self.ratio[0]))
        return F.resized_crop(img, (rows - height) // 2, (columns - width) // 2, height, width, self.size, self.interpolation)


class RandomHorizontalFlip(Transform):
    """Left and right exchanged with probability p."""

    shown = ("p",)

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, img: Any) -> Any:
        return F.hflip(img) if float(rand(())) < self.p else img


class RandomVerticalFlip(Transform):
    """Top and bottom exchanged with probability p."""

    shown = ("p",)

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, img: Any) -> Any:
        return F.vflip(img) if float(rand(())) < self.p else img


class RandomApply(Compose):
    """Transforms that are all made, or none, with probability p."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: float = 0.5) -> None:
        super().__init__(transforms)
        self.p = p

    def __call__(self, img: Any) -> Any:
        return super().__call__(img) if float(rand(())) < self.p else img
