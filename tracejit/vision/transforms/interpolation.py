"""`InterpolationMode`: how pixels between pixels are found; PIL's numbers and plain names are taken as well."""

from __future__ import annotations

import enum
from typing import Any

__all__ = ["InterpolationMode", "interpolation_of"]


class InterpolationMode(enum.Enum):
    """The ways there are."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


_NUMBERS = {0: InterpolationMode.NEAREST, 2: InterpolationMode.BILINEAR, 3: InterpolationMode.BICUBIC}  # PIL.Image.NEAREST ...


def interpolation_of(name: str, interpolation: Any) -> str:
    """The name of a way to interpolate.  Raises ValueError for one that is none of `InterpolationMode`."""
    found = _NUMBERS.get(interpolation, interpolation) if isinstance(interpolation, int) else interpolation
    method = str(getattr(found, "value", found))
    if method not in (mode.value for mode in InterpolationMode):
        raise ValueError(f"{name}(): interpolation must be 'nearest', 'bilinear' or 'bicubic', got {interpolation!r}")
    return method
