"""PyTorch's older constructors: `FloatTensor(2, 3)`, `LongTensor([1, 2])`, and `isinstance(t, FloatTensor)`.

None of them is a class that tensors have: the dtype decides which one a tensor is an instance of.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracejit.core import dtypes
from tracejit.core.devices import require_cpu
from tracejit.core.dtypes import DType
from tracejit.core.naming import package_name
from tracejit.ops.public.creation import zeros
from tracejit.tensor.base import Tensor
from tracejit.tensor.construction import from_numpy, tensor
from tracejit.tensor.contents import contents

__all__ = [
    "LEGACY",
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LegacyType",
    "LongTensor",
    "ShortTensor",
    "legacy_name",
]  # fmt: skip


class LegacyType(type):
    """A constructor of tensors of one dtype."""

    dtype: DType

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype

    def __call__(cls, *data: Any, device: Any = None) -> Any:
        """A tensor of zeros of the sizes given, or of the data of a sequence; it shares the memory of a tensor or array of its dtype."""
        name, dtype = cls.__name__, cls.dtype
        require_cpu(name, device)
        if len(data) != 1:
            return zeros(*data, dtype=dtype) if data else zeros(0, dtype=dtype)
        (source,) = data
        if isinstance(source, Tensor):
            if source.dtype is not dtype:
                raise TypeError(f"{name}(): expected a tensor of {dtype.name}, got {source.dtype.name}; convert it with .to()")
            return source.detach()
        array = contents(name, data, dtype)
        return from_numpy(source) if isinstance(source, np.ndarray) and np.may_share_memory(array, source) else tensor(array)

    def __repr__(cls) -> str:
        return f"<class '{package_name()}.{cls.__name__}'>"


def _legacy(name: str, dtype: DType) -> LegacyType:
    kind = LegacyType(f"{name}Tensor", (), {"dtype": dtype, "__module__": "tracejit", "__doc__": f"Tensors of {dtype.name}."})
    return kind


FloatTensor, DoubleTensor = _legacy("Float", dtypes.float32), _legacy("Double", dtypes.float64)
LongTensor, IntTensor = _legacy("Long", dtypes.int64), _legacy("Int", dtypes.int32)
ShortTensor, CharTensor = _legacy("Short", dtypes.int16), _legacy("Char", dtypes.int8)
ByteTensor, BoolTensor = _legacy("Byte", dtypes.uint8), _legacy("Bool", dtypes.bool_)
HalfTensor, BFloat16Tensor = _legacy("Half", dtypes.float16), _legacy("BFloat16", dtypes.bfloat16)

LEGACY: Final[dict[str, LegacyType]] = {
    kind.__name__: kind
    for kind in (
        FloatTensor,
        DoubleTensor,
        LongTensor,
        IntTensor,
        ShortTensor,
        CharTensor,
        ByteTensor,
        BoolTensor,
        HalfTensor,
        BFloat16Tensor,
    )
}
"""The constructors by name."""

_NAMES: Final = {kind.dtype: name for name, kind in LEGACY.items()}


def legacy_name(dtype: DType) -> str:
    """The name of the constructor of a dtype: "FloatTensor"."""
    return _NAMES[dtype]
