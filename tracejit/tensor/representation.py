"""How a tensor prints: PyTorch's form, with NumPy's layout of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import dtypes

__all__ = ["representation"]


def representation(tensor: Any, array: np.ndarray[Any, Any]) -> str:
    """`tensor([...], dtype=..., requires_grad=True)`: the dtype only where it is not the default one of its kind."""
    body = np.array2string(array, separator=", ", prefix="tensor(", precision=4, threshold=1000, suppress_small=False)
    extra = []
    if array.size == 0 and array.shape != (0,):
        extra.append(f"size={tuple(array.shape)}")
    if tensor.dtype not in (dtypes.default_dtype(), dtypes.int64, dtypes.bool_):
        extra.append(f"dtype={tensor.dtype!r}")
    if tensor.grad_fn is not None:
        extra.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        extra.append("requires_grad=True")
    name = "Parameter containing:\n" if type(tensor).__name__ == "Parameter" else ""
    return f"{name}tensor({', '.join([body, *extra])})"
