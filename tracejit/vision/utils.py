"""Pictures of tensors: many images as one, and files."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tracejit.autograd.grad_mode import no_grad
from tracejit.functions import cat, stack
from tracejit.tensor import Tensor

__all__ = ["make_grid", "save_image"]


@no_grad()
def make_grid(
    tensor: Tensor | Sequence[Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Any:
    """Images [N, C, H, W] (or a list of them) side by side, `nrow` in a row, as one image [3, H, W].  normalize: scaled to [0,
    1]."""
    images = stack(list(tensor)) if not isinstance(tensor, Tensor) else tensor
    if images.ndim == 2:
        images = images[None]
    if images.ndim == 3:
        images = images[None] if images.shape[0] in (1, 3) else images[:, None]
    if images.shape[1] == 1:
        images = cat([images] * 3, 1)
    if normalize:
        images = stack([_scaled(image, value_range) for image in images]) if scale_each else _scaled(images, value_range)
    count, channels, height, width = images.shape
    if count == 1:
        return images[0]
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    grid = images.new_full((channels, (height + padding) * rows + padding, (width + padding) * columns + padding), pad_value)
    for i in range(count):
        top, left = (i // columns) * (height + padding) + padding, (i % columns) * (width + padding) + padding
        grid[:, top : top + height, left : left + width] = images[i]
    return grid


def _scaled(image: Any, value_range: tuple[float, float] | None) -> Any:
    low, high = (image.min().item(), image.max().item()) if value_range is None else value_range
    return (image.clamp(low, high) - low) / max(high - low, 1e-5)


@no_grad()
def save_image(tensor: Tensor | Sequence[Tensor], fp: str | Path, **options: Any) -> None:
    """Write images, arranged as make_grid() arranges them, to a PNG file."""
    grid = make_grid(tensor, **options)
    pixels = (grid * 255 + 0.5).clamp(0, 255).permute(1, 2, 0).numpy().astype(np.uint8)
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    Path(fp).write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    )
