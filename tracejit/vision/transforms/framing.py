"""Functions that convert, cut, frame and resize images.  Each gives an image of the kind that it was given: an array H x W (x C) or a
tensor [..., C, H, W]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.functions import stack
from tracejit.tensor import Tensor, as_tensor, tensor
from tracejit.vision.transforms.interpolation import interpolation_of

__all__ = [
    "area_share", "center_crop", "convert_image_dtype", "crop", "erase", "five_crop", "get_dimensions", "get_image_size", "hflip",
    "image_of", "normalize", "pad", "pair", "pil_to_tensor", "resize", "resized_crop", "rgb_to_grayscale", "ten_crop", "to_pil_image",
    "to_tensor", "vflip",
]  # fmt: skip

_LUMA = (0.2989, 0.587, 0.114)  # ITU-R BT.601, as torchvision rounds it


def image_of(image: Any) -> Any:
    """A tensor or an array; whatever else NumPy makes an array of.  Raises TypeError for what has not at least two dimensions."""
    found = image if isinstance(image, Tensor | np.ndarray) else np.asarray(image)
    if found.ndim < 2 or found.dtype == object:
        raise TypeError(
            f"expected an image (an array H x W or H x W x C, or a tensor [..., C, H, W]), got {type(image).__name__}"
        )
    return found


def get_dimensions(image: Any) -> tuple[int, int, int]:
    """(channels, height, width)."""
    image = image_of(image)
    if isinstance(image, Tensor):
        return (1 if image.ndim == 2 else image.shape[-3]), image.shape[-2], image.shape[-1]
    return (1 if image.ndim == 2 else image.shape[2]), image.shape[0], image.shape[1]


def get_image_size(image: Any) -> list[int]:
    """[width, height]."""
    _, height, width = get_dimensions(image)
    return [width, height]


def pil_to_tensor(image: Any) -> Tensor:
    """An array H x W or H x W x C as a tensor [C, H, W] of the same dtype."""
    array = image_of(image)
    if isinstance(array, Tensor):
        raise TypeError("pil_to_tensor(): expected an array or a PIL image, got a tensor")
    if array.ndim not in (2, 3):
        raise ValueError(f"an image should be 2/3 dimensional, got {array.ndim} dimensions")
    channels = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    return tensor(np.ascontiguousarray(channels))


def to_tensor(pic: Any) -> Tensor:
    """An array H x W or H x W x C as a tensor [C, H, W]: uint8 becomes float in [0, 1], bools become 0 and 1, all else keeps its
    dtype."""
    channels = pil_to_tensor(pic)
    if channels.dtype is dtypes.uint8:
        return channels.to(dtypes.default_dtype()) / 255
    return channels.to(dtypes.default_dtype()) if channels.dtype is dtypes.bool_ else channels


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """An array of uint8, H x W or H x W x C, of a tensor [C, H, W] (floats in [0, 1] are scaled) or an array."""
    del mode
    if isinstance(pic, Tensor):
        channels = pic.detach()[None] if pic.ndim == 2 else pic.detach()
        if channels.ndim != 3:
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        array = channels.permute(1, 2, 0).numpy()
    else:
        array = image_of(pic)
    if array.dtype.kind == "f" and isinstance(pic, Tensor):
        array = (array * 255).astype(np.uint8)
    return array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array


def convert_image_dtype(image: Tensor, dtype: Any = dtypes.float32) -> Tensor:
    """A tensor of another dtype with its values scaled: floats are in [0, 1], integers use their whole range."""
    if image.dtype is dtype:
        return image
    most = {d: 1 if d is dtypes.bool_ else int(np.iinfo(d.numpy).max) for d in (image.dtype, dtype) if not d.is_floating_point}
    if image.dtype.is_floating_point:
        if dtype.is_floating_point:
            return image.to(dtype)
        return (image * (most[dtype] + 1.0 - 1e-3)).to(dtype)
    if dtype.is_floating_point:
        return image.to(dtype) / most[image.dtype]
    larger, smaller = most[image.dtype], most[dtype]
    if larger > smaller:
        return (image // ((larger + 1) // (smaller + 1))).to(dtype)
    return image.to(dtype) * ((smaller + 1) // (larger + 1))


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """(image - mean) / std, channel by channel.  Raises TypeError for integers, ValueError for a std of 0."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor).__name__}; ToTensor() makes one")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype.name}.")
    if tensor.ndim < 3:
        raise ValueError(
            f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tuple(tensor.shape)}"
        )
    means, stds = (as_tensor(values, dtype=tensor.dtype).reshape(-1, 1, 1) for values in (mean, std))
    if bool((stds == 0).any()):
        raise ValueError(f"std evaluated to zero after conversion to {tensor.dtype.name}, leading to division by zero.")
    out = (tensor - means) / stds
    return tensor.copy_(out) if inplace else out


def hflip(image: Any) -> Any:
    """Left and right exchanged."""
    image = image_of(image)
    return image.flip(-1) if isinstance(image, Tensor) else np.ascontiguousarray(image[:, ::-1])


def vflip(image: Any) -> Any:
    """Top and bottom exchanged."""
    image = image_of(image)
    return image.flip(-2) if isinstance(image, Tensor) else np.ascontiguousarray(image[::-1])


def crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of an image; what lies outside is 0."""
    image = image_of(image)
    _, rows, columns = get_dimensions(image)
    outside = [max(0, -left), max(0, -top), max(0, left + width - columns), max(0, top + height - rows)]
    if any(outside):
        image, top, left = pad(image, outside), top + outside[1], left + outside[0]
    if isinstance(image, Tensor):
        return image[..., top : top + height, left : left + width]
    return image[top : top + height, left : left + width]


def pair(size: Any) -> tuple[int, int]:
    """(height, width) of a number or one or two of them."""
    if isinstance(size, int | np.integer):
        return int(size), int(size)
    sizes = [int(s) for s in size]
    if len(sizes) not in (1, 2):
        raise ValueError(f"Please provide only two dimensions (h, w) for size, got {size}")
    return sizes[0], sizes[-1]


def center_crop(image: Any, output_size: Any) -> Any:
    """The middle of an image, with zeros around an image that is smaller."""
    height, width = pair(output_size)
    _, rows, columns = get_dimensions(image)
    if width > columns or height > rows:
        left, top = max(0, (width - columns) // 2), max(0, (height - rows) // 2)
        right, bottom = max(0, (width - columns + 1) // 2), max(0, (height - rows + 1) // 2)
        image = pad(image, [left, top, right, bottom])
        _, rows, columns = get_dimensions(image)
        if (width, height) == (columns, rows):
            return image
    return crop(image, round((rows - height) / 2.0), round((columns - width) / 2.0), height, width)


def five_crop(image: Any, size: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The corners of an image (top left, top right, bottom left, bottom right) and its middle.  Raises ValueError for an image that is
    smaller."""
    height, width = pair(size)
    _, rows, columns = get_dimensions(image)
    if width > columns or height > rows:
        raise ValueError(f"Requested crop size {(height, width)} is bigger than input size {(rows, columns)}")
    bottom, right = rows - height, columns - width
    corners = [crop(image, top, left, height, width) for top in (0, bottom) for left in (0, right)]
    return (corners[0], corners[1], corners[2], corners[3], center_crop(image, (height, width)))


def ten_crop(image: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    """`five_crop` of an image and of the flipped one."""
    return five_crop(image, size) + five_crop(vflip(image) if vertical_flip else hflip(image), size)


def erase(image: Any, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Any:
    """A tensor with the rectangle at row i and column j, h high and w wide, overwritten by v: a number, one for each channel, or a
    tensor."""
    if not isinstance(image, Tensor):
        raise TypeError(f"erase(): expected a tensor, got {type(image).__name__}; ToTensor() makes one")
    out = image if inplace else image.clone()
    values = as_tensor(v, dtype=image.dtype)
    out[..., i : i + h, j : j + w] = values.reshape(-1, 1, 1) if values.ndim == 1 else values
    return out


def pad(image: Any, padding: Any, fill: float = 0, padding_mode: str = "constant") -> Any:
    """More rows and columns: a number, [left and right, top and bottom] or [left, top, right, bottom]; filled with `fill`, or by
    padding_mode "edge", "reflect" or "symmetric"."""
    image = image_of(image)
    sides = [padding] * 4 if isinstance(padding, int | np.integer) else list(padding)
    sides = sides * (4 // len(sides)) if len(sides) in (1, 2) else sides
    if len(sides) != 4:
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(sides)} element tuple")
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    left, top, right, bottom = sides
    if isinstance(image, Tensor):
        if padding_mode == "constant":
            framed = image.new_full((*image.shape[:-2], image.shape[-2] + top + bottom, image.shape[-1] + left + right), fill)
            framed[..., top : top + image.shape[-2], left : left + image.shape[-1]] = image
            return framed
        rows = np.pad(np.arange(image.shape[-2]), (top, bottom), mode=padding_mode)  # type: ignore[call-overload]
        columns = np.pad(np.arange(image.shape[-1]), (left, right), mode=padding_mode)  # type: ignore[call-overload]
        return image.index_select(-2, tensor(rows)).index_select(-1, tensor(columns))
    widths: Any = [(top, bottom), (left, right), *([(0, 0)] * (image.ndim - 2))]
    if padding_mode == "constant":
        return np.pad(image, widths, constant_values=fill)
    return np.pad(image, widths, mode=padding_mode)  # type: ignore[call-overload]


def _weights(size: int, wanted: int, interpolation: str, antialias: bool) -> np.ndarray:
    """wanted x size: which share of each sample goes into each of the new ones."""
    scale = size / wanted
    if interpolation == "nearest":
        out = np.zeros((wanted, size))
        out[np.arange(wanted), np.minimum((np.arange(wanted) * scale).astype(int), size - 1)] = 1
        return out
    reach = max(scale, 1.0) if antialias else 1.0
    centres = (np.arange(wanted) + 0.5) * scale - 0.5
    if interpolation == "bicubic":
        return _cubic_weights(size, centres, reach, -0.5 if antialias else -0.75)
    if not antialias:
        centres = np.clip(centres, 0, size - 1)
    shares = np.maximum(0.0, 1 - np.abs(np.arange(size)[None] - centres[:, None]) / reach)
    return shares / shares.sum(1, keepdims=True)


def _cubic_weights(size: int, centres: np.ndarray, reach: float, bend: float) -> np.ndarray:
    """The same by cubic convolution (Keys, 1981); antialiased, what is outside counts nothing, else it is the sample at the border."""
    beyond = 0 if bend == -0.5 else 3
    distance = np.abs(np.arange(-beyond, size + beyond)[None] - centres[:, None]) / reach
    near = ((bend + 2) * distance - (bend + 3)) * distance * distance + 1
    far = (((distance - 5) * distance + 8) * distance - 4) * bend
    shares = np.where(distance < 1, near, np.where(distance < 2, far, 0.0))
    if beyond:
        shares[:, beyond] += shares[:, :beyond].sum(1)
        shares[:, -beyond - 1] += shares[:, -beyond:].sum(1)
        shares = shares[:, beyond:-beyond]
    return shares / shares.sum(1, keepdims=True)


def resize(image: Any, size: Any, interpolation: Any = "bilinear", max_size: int | None = None, antialias: bool = True) -> Any:
    """An image of size (height, width), or with its smaller side of one given size (and the larger one at most max_size).

    interpolation: "bilinear", "bicubic" or "nearest"; antialias: each new sample takes in all those it stands for."""
    image = image_of(image)
    method = interpolation_of("resize", interpolation)
    _, rows, columns = get_dimensions(image)
    if isinstance(size, int | np.integer) or len(size) == 1:
        smaller = int(size if isinstance(size, int | np.integer) else size[0])
        short, long = min(rows, columns), max(rows, columns)
        longer = int(smaller * long / short)
        if max_size is not None and longer > max_size:
            smaller, longer = int(max_size * smaller / longer), max_size
        height, width = (smaller, longer) if rows <= columns else (longer, smaller)
    else:
        height, width = pair(size)
    if (height, width) == (rows, columns):
        return image
    if isinstance(image, Tensor):
        floating = image if image.is_floating_point() else image.to(dtypes.float32)
        vertical, horizontal = (
            tensor(_weights(have, want, method, antialias)).to(floating.dtype)
            for have, want in ((rows, height), (columns, width))
        )
        out = vertical @ floating @ horizontal.T
        return out if image.is_floating_point() else _rounded(out, image.dtype)
    vertical, horizontal = _weights(rows, height, method, antialias), _weights(columns, width, method, antialias)
    resized = np.einsum("hr,wc,rc...->hw...", vertical, horizontal, image, optimize=True)
    if image.dtype.kind not in "iub":
        return resized.astype(image.dtype)
    limits = np.iinfo(np.uint8 if image.dtype.kind == "b" else image.dtype)
    return np.clip(np.rint(resized), limits.min, limits.max).astype(image.dtype)


def _rounded(image: Any, dtype: Any) -> Any:
    """Pixels as integers: bicubic interpolation goes beyond the largest and smallest ones."""
    limits = np.iinfo(dtype.numpy)
    return image.round().clamp(int(limits.min), int(limits.max)).to(dtype)


def resized_crop(image: Any, top: int, left: int, height: int, width: int, size: Any, interpolation: Any = "bilinear") -> Any:
    """A part of an image, resized."""
    return resize(crop(image, top, left, height, width), pair(size), interpolation)


def rgb_to_grayscale(image: Any, num_output_channels: int = 1) -> Any:
    """The luma of an image in red, green and blue, in one channel or three equal ones."""
    image = image_of(image)
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    channels, _, _ = get_dimensions(image)
    if channels not in (1, 3):
        raise TypeError(f"Input image tensor permitted channel values are 1 or 3, but found {channels}")
    if isinstance(image, Tensor):
        gray = image
        if channels == 3:
            red, green, blue = image.unbind(-3)
            gray = (red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2]).to(image.dtype).unsqueeze(-3)
        return stack([gray.squeeze(-3)] * 3, -3) if num_output_channels == 3 else gray
    plain = image if image.ndim == 2 else image[..., 0] if channels == 1 else (image @ np.array(_LUMA)).astype(image.dtype)
    return np.stack([plain] * 3, -1) if num_output_channels == 3 else plain


def area_share(rows: int, columns: int, share: float, ratio: float) -> tuple[int, int]:
    """(height, width) of a rectangle with a share of an image's area, and with this ratio of width to height."""
    area = rows * columns * share
    return round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
