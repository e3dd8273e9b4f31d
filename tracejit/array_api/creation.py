"""The standard's functions that make arrays."""

from __future__ import annotations

from typing import Any

from tracejit import functions as F
from tracejit.core import dtypes
from tracejit.core.devices import require_cpu
from tracejit.tensor import dlpack as sharing


def _sizes(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
    """Numbers from `start` (0) to before `stop` in steps."""
    require_cpu("arange", device)
    if stop is None:
        start, stop = 0, start
    if dtype is None and all(isinstance(x, int) for x in (start, stop, step)):
        dtype = dtypes.int64
    if (step > 0 and stop <= start) or (step < 0 and stop >= start):
        return F.zeros(0, dtype=dtype or dtypes.default_dtype())
    return F.arange(start, stop, step, dtype=dtype)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """An array of numbers, nested sequences, arrays or memory: it shares memory where that is possible and `copy` is not true."""
    return sharing.asarray(obj, dtype=dtype, device=device, copy=copy)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array with undefined contents."""
    return F.empty(*_sizes(shape), dtype=dtype, device=device)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """An array with undefined contents of the shape of another."""
    return F.empty_like(x, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Any:
    """Ones on the diagonal k, zeros elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    require_cpu("eye", device)
    k = max(-n_rows, min(k, columns))  # a diagonal further away is as empty
    row, column = F.arange(n_rows), F.arange(columns)
    on = F.eq(F.unsqueeze(row, 1) + k, column)
    return on.to(dtypes.default_dtype() if dtype is None else dtype)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array of the memory of anything that has `__dlpack__`; a copy if asked for."""
    return sharing.from_dlpack(x, device=device, copy=copy)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array filled with a number."""
    return F.full(_sizes(shape), fill_value, dtype=dtype, device=device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array filled with a number of the shape of another."""
    return F.full_like(x, fill_value, dtype=dtype, device=device)


def linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True) -> Any:
    """`num` numbers at equal distances from `start` to `stop`, or to before it."""
    if endpoint:
        return F.linspace(start, stop, num, dtype=dtype, device=device)
    return F.linspace(start, stop, num + 1, dtype=dtype, device=device)[:-1]


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    """Vectors spread over the grid that they span; "xy" swaps the first two axes."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid(): indexing must be 'xy' or 'ij', got {indexing!r}")
    return list(F.meshgrid(*arrays, indexing=indexing))


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of ones."""
    return F.ones(*_sizes(shape), dtype=dtype, device=device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of ones of the shape of another."""
    return F.ones_like(x, dtype=dtype, device=device)


def tril(x: Any, /, *, k: int = 0) -> Any:
    """The lower triangle up to the diagonal k; zeros elsewhere."""
    return F.tril(x, k)


def triu(x: Any, /, *, k: int = 0) -> Any:
    """The upper triangle from the diagonal k on; zeros elsewhere."""
    return F.triu(x, k)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of zeros."""
    return F.zeros(*_sizes(shape), dtype=dtype, device=device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """An array of zeros of the shape of another."""
    return F.zeros_like(x, dtype=dtype, device=device)
