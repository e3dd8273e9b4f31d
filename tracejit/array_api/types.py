"""The standard's questions about dtypes and about the namespace itself."""

from __future__ import annotations

import sys
from typing import Any, Final, NamedTuple

from tracejit.core import dtypes, number_info
from tracejit.core.devices import device as Device
from tracejit.core.devices import require_cpu
from tracejit.core.dtypes import DType
from tracejit.tensor import Tensor

__all__ = ["__array_namespace_info__", "astype", "can_cast", "finfo", "iinfo", "install", "isdtype", "result_type"]

_DTYPES: Final = {
    d.name: d
    for d in (
        dtypes.bool_, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.float32, dtypes.float64,
    )
}  # fmt: skip


class FloatLimits(NamedTuple):
    """What finfo() gives."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerLimits(NamedTuple):
    """What iinfo() gives."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatLimits:
    """Limits of a floating-point dtype, or of that of an array."""
    dtype = type.dtype if isinstance(type, Tensor) else type
    found = number_info.finfo(dtype)
    return FloatLimits(found.bits, found.eps, found.max, found.min, found.smallest_normal, dtype)


def iinfo(type: Any, /) -> IntegerLimits:
    """Limits of an integer dtype, or of that of an array."""
    dtype = type.dtype if isinstance(type, Tensor) else type
    found = number_info.iinfo(dtype)
    return IntegerLimits(found.bits, found.max, found.min, dtype)


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """The array in another dtype; a copy even where nothing changes, unless copy is false."""
    require_cpu("astype", device)
    return x.to(dtype, copy=copy)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion of the dtype (or array) `from_` with `to` gives `to`."""
    source = from_.dtype if isinstance(from_, Tensor) else from_
    return dtypes.promote_types(source, to) is to


def _is_kind(dtype: Any, kind: Any) -> bool:
    if isinstance(kind, DType):
        return dtype is kind
    integer = dtype.category == dtypes.INTEGER
    answers = {
        "bool": dtype is dtypes.bool_,
        "signed integer": integer and dtype.is_signed,
        "unsigned integer": integer and not dtype.is_signed,
        "integral": integer,
        "real floating": dtype.is_floating_point,
        "complex floating": False,
        "numeric": integer or dtype.is_floating_point,
    }
    if kind not in answers:
        raise ValueError(f"isdtype(): kind must be a dtype or one of {', '.join(answers)}, got {kind!r}")
    return bool(answers[kind])


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, a name such as "integral" or "real floating", or one of a tuple of these."""
    return any(_is_kind(dtype, k) for k in (kind if isinstance(kind, tuple) else (kind,)))


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype of what is computed from arrays, dtypes and numbers."""
    found = None
    for x in arrays_and_dtypes:
        own = x.dtype if isinstance(x, Tensor) else x if isinstance(x, DType) else None
        if own is not None:
            found = own if found is None else dtypes.promote_types(found, own)
    if found is None:
        raise ValueError("result_type(): expected at least one array or dtype")
    for x in arrays_and_dtypes:
        if isinstance(x, bool | int | float) and dtypes.of_scalar(x).category > found.category:
            found = dtypes.of_scalar(x)
    return found


class _Info:
    """What the namespace can do."""

    def capabilities(self) -> dict[str, Any]:
        """Indexing by masks and results whose shapes depend on data are there; arrays have up to 64 axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """The device of new arrays."""
        return Device("cpu")

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of new arrays by kind."""
        require_cpu("default_dtypes", device)
        return {"real floating": dtypes.default_dtype(), "integral": dtypes.int64, "indexing": dtypes.int64}

    def devices(self) -> list[Any]:
        """The devices that there are."""
        return [Device("cpu")]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The dtypes of a kind, by default all, by name."""
        require_cpu("dtypes", device)
        return {name: dtype for name, dtype in _DTYPES.items() if kind is None or isdtype(dtype, kind)}


def __array_namespace_info__() -> _Info:  # noqa: N807  (the standard's name)
    """What the namespace can do: capabilities, devices, dtypes."""
    return _Info()


def install(namespace: str) -> None:
    """Give Tensor what the standard asks of arrays beyond PyTorch's."""

    def array_namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
        """The namespace of the array API standard for tensors.  Raises ValueError for a version that is not supported."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"__array_namespace__(): version {api_version!r} is not supported; use '2024.12'")
        return sys.modules[namespace]

    def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
        """The tensor itself, on the CPU.  Raises for another device."""
        if stream is not None:
            raise ValueError("to_device(): stream must be None on the CPU")
        require_cpu("to_device", device)
        return self

    setattr(Tensor, "__array_namespace__", array_namespace)  # noqa: B010  (a type checker takes an assignment for a redefinition)
    setattr(Tensor, "to_device", to_device)  # noqa: B010
