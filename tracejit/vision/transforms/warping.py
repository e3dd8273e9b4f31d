"""Images rotated, sheared, moved: each pixel of the result is looked up where an affine map says that it was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.functional import grid_sample
from tracejit.functions import where
from tracejit.tensor import Tensor, tensor
from tracejit.vision.transforms.colour import on_tensors
from tracejit.vision.transforms.framing import get_dimensions
from tracejit.vision.transforms.interpolation import InterpolationMode, interpolation_of

__all__ = ["affine", "rotate"]


@on_tensors
def rotate(
    img: Any,
    angle: float,
    interpolation: Any = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = None,
) -> Any:
    """An image turned counter-clockwise by an angle in degrees, about its middle or `center` (x, y).

    expand: the result is as large as the turned image.  What was outside is `fill`, by default 0."""
    _, height, width = get_dimensions(img)
    middle = [0.0, 0.0] if center is None else [center[0] - width * 0.5, center[1] - height * 0.5]
    inverse = _inverse(middle, -angle, (0.0, 0.0), 1.0, (0.0, 0.0))
    size = _size_of(inverse, height, width) if expand else (height, width)
    return _looked_up(img, inverse, size, interpolation_of("rotate", interpolation), fill)


@on_tensors
def affine(
    img: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Any,
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = None,
    center: Sequence[float] | None = None,
) -> Any:
    """An image turned clockwise by an angle in degrees, scaled and sheared by angles (x, y) about its middle or `center`, and moved by
    translate (x, y) pixels."""
    _, height, width = get_dimensions(img)
    if scale <= 0.0:
        raise ValueError("Argument scale should be positive")
    sheared = (
        (float(shear), 0.0) if isinstance(shear, int | float) else (float(shear[0]), float(shear[1] if len(shear) > 1 else 0.0))
    )
    middle = [0.0, 0.0] if center is None else [center[0] - width * 0.5, center[1] - height * 0.5]
    inverse = _inverse(middle, angle, (float(translate[0]), float(translate[1])), scale, sheared)
    return _looked_up(img, inverse, (height, width), interpolation_of("affine", interpolation), fill)


def _inverse(
    center: Sequence[float], angle: float, translate: tuple[float, float], scale: float, shear: tuple[float, float]
) -> np.ndarray:
    """2 x 3: from positions in the result to those in the image, both counted from the middle.

    The map is move(translate + center) @ turn(angle) @ shear @ scale @ move(-center)."""
    turn, across, down = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    rows = [
        [math.cos(turn - down) / math.cos(down), -math.cos(turn - down) * math.tan(across) / math.cos(down) - math.sin(turn)],
        [math.sin(turn - down) / math.cos(down), -math.sin(turn - down) * math.tan(across) / math.cos(down) + math.cos(turn)],
    ]
    linear = np.linalg.inv(np.array(rows) * scale)
    moved = np.array(center) - linear @ (np.array(center) + np.array(translate))
    return np.concatenate([linear, moved[:, None]], axis=1)


def _size_of(inverse: np.ndarray, height: int, width: int) -> tuple[int, int]:
    """(height, width) of what a turned image takes."""
    corners = np.array([[x * width / 2, y * height / 2] for x in (-1, 1) for y in (-1, 1)])
    positions = np.trunc((corners @ np.linalg.inv(inverse[:, :2]).T) / 1e-4) * 1e-4
    across, down = np.ceil(positions.max(0)) - np.floor(positions.min(0))
    return int(down), int(across)


def _looked_up(img: Tensor, inverse: np.ndarray, size: tuple[int, int], mode: str, fill: Any) -> Tensor:
    channels, height, width = get_dimensions(img)
    rows, columns = np.meshgrid(np.arange(size[0]) + 0.5 - size[0] / 2, np.arange(size[1]) + 0.5 - size[1] / 2, indexing="ij")
    positions = np.stack([columns, rows, np.ones_like(rows)], -1) @ inverse.T / np.array([width / 2, height / 2])
    floating = img if img.is_floating_point() else img.to(dtypes.float32)
    batch = floating.reshape(-1, channels, height, width)
    grid = tensor(positions).to(floating.dtype).expand(batch.shape[0], *size, 2)
    out = grid_sample(batch, grid, mode=mode, padding_mode="zeros", align_corners=False)
    if fill is not None:
        inside = grid_sample(batch.new_ones(batch.shape), grid, mode=mode, padding_mode="zeros", align_corners=False)
        colour = tensor(fill).to(floating.dtype).reshape(-1, 1, 1)
        out = where(inside < 0.5, colour, out) if mode == "nearest" else out * inside + (1.0 - inside) * colour
    out = out.reshape(*img.shape[:-2], *size)
    return out if img.is_floating_point() else out.round().to(img.dtype)
