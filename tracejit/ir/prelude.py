"""The names that a printed graph uses: `from tracejit.ir.prelude import *` in front of it makes it run.

They are every registered primitive, the dtypes, `Literal`, `array` and `commit`.  A printed graph runs through the door like any
other code: on Tensors it computes, on tracers it builds a graph again.  Names are looked up when asked for, because primitives may
be declared after this module is imported.
"""

from __future__ import annotations

import keyword
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.array_constant import ArrayConstant
from tracejit.core.op import REGISTRY
from tracejit.ir import graph

__all__: list[str]  # made on demand by __getattr__

DTYPES = {("bool_" if d is dtypes.bool_ else d.name): d for d in dtypes.ALL}


def array(values: Any, shape: tuple[int, ...], dtype: dtypes.DType) -> Any:
    """A constant of the graph.  `values` is a flat list, or the elements' bytes in hexadecimal (little-endian)."""
    return REGISTRY["constant"](array=ArrayConstant(array_of(values, shape, dtype)))


def array_of(values: Any, shape: tuple[int, ...], dtype: dtypes.DType) -> np.ndarray[Any, Any]:
    """The NumPy array that `array` describes."""
    if isinstance(values, str):
        return np.frombuffer(bytes.fromhex(values), dtype.numpy).reshape(shape).copy()
    return np.array(values, dtype.numpy).reshape(shape)


def commit(*writes: tuple[Any, Any]) -> None:
    """The end of a functional graph: the contents of each first become each second, all at once."""
    clone, write = REGISTRY["clone"], REGISTRY["write"]
    for target, contents in [(target, clone(value)) for target, value in writes]:
        write(target, contents)


def primitive_name(name: str) -> str:
    """The Python name of a primitive in printed graphs."""
    return name + "_" if keyword.iskeyword(name) else name


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [*map(primitive_name, REGISTRY), *DTYPES, "ArrayConstant", "Literal", "array", "array_of", "commit"]
    op = REGISTRY.get(name) or REGISTRY.get(name.removesuffix("_"))
    if op is not None and primitive_name(op.name) == name:
        return op
    if name in DTYPES:
        return DTYPES[name]
    if name == "Literal":
        return graph.Literal
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}: there is no such primitive")
