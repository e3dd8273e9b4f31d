"""finfo and iinfo: the limits of dtypes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracejit.core import dtypes

__all__ = ["finfo", "iinfo"]


class finfo:  # noqa: N801  (PyTorch's name)
    """Limits of a floating-point dtype, by default of the default one.  Raises TypeError for another."""

    def __init__(self, type: Any = None) -> None:
        dtype = dtypes.default_dtype() if type is None else dtypes.as_dtype(type, "finfo")
        if not dtype.is_floating_point:
            raise TypeError(f"finfo(): expected a floating-point dtype, got {dtype.name}; use iinfo()")
        self.dtype = dtype.name
        self.bits = dtype.itemsize * 8
        self.eps, self.max, self.min = dtypes.EPSILON[dtype], dtypes.LARGEST[dtype], -dtypes.LARGEST[dtype]
        self.tiny = self.smallest_normal = 2.0 ** {"float16": -14, "float64": -1022}.get(dtype.name, -126)
        self.resolution = 10.0 ** -int(-math.log10(self.eps))

    def __repr__(self) -> str:
        numbers = ", ".join(
            f"{name}={getattr(self, name):g}" for name in ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        )
        return f"finfo({numbers}, dtype={self.dtype})"


class iinfo:  # noqa: N801
    """Limits of an integer dtype.  Raises TypeError for another."""

    def __init__(self, type: Any) -> None:
        dtype = dtypes.as_dtype(type, "iinfo")
        if dtype.category != dtypes.INTEGER:
            raise TypeError(f"iinfo(): expected an integer dtype, got {dtype.name}; use finfo()")
        limits = np.iinfo(dtype.numpy)
        self.dtype, self.bits = dtype.name, dtype.itemsize * 8
        self.min, self.max = int(limits.min), int(limits.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
