"""Array-like objects: columns and tables of other packages, which NumPy reads by `__array__`.

They can change, so a recording relies on nothing that it has read of one: each call reads it again, before the program.  A model names what
it may read there: functions that change nothing, and whose results depend on the object and the arguments alone.

The packages are not imported.  A model is found by the name of its class, once the program has imported the package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

__all__ = ["ARRAY_LIKES", "ArrayLikeModel", "array_like_model"]


@dataclass(frozen=True)
class ArrayLikeModel:
    """What a recording may read of objects whose class is exactly `name` of `module`, and written in Python.

    structure: methods and properties that look at no element.  contents: those that look at elements.
    is_pure: whether one of `contents`, or `__array__`, runs no code of the program, as elements that are objects may have it.
    columns: the methods of `structure` of which this holds only where they are given a text.
    """

    module: str
    name: str
    structure: frozenset[str]
    contents: frozenset[str]
    is_pure: Callable[[Any, str], bool]
    columns: frozenset[str] = frozenset()

    def cls(self) -> Any:
        """The class; None unless the program has imported the package."""
        return getattr(sys.modules.get(self.module), "__dict__", {}).get(self.name)

    def has(self, function: FunctionType) -> bool:
        """Whether `function` is a method of the class, or gives one of its properties."""
        name = function.__name__
        attribute = next((vars(base)[name] for base in getattr(self.cls(), "__mro__", ()) if name in vars(base)), None)
        return function is attribute or (type(attribute) is property and function is attribute.fget)

    def looks_at_elements(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Whether the function `name`, given `arguments` after the object, may look at elements."""
        return name not in self.structure or (name in self.columns and not (len(arguments) == 1 and type(arguments[0]) is str))


def array_like_model(cls: type) -> ArrayLikeModel | None:
    """The model of a class; None if it has none."""
    return next((model for model in ARRAY_LIKES if model.name == cls.__name__ and model.cls() is cls), None)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pandas_is_pure(value: Any, name: str) -> bool:
    """Numbers of NumPy's dtypes or of those of pandas itself; parts of a table may hold anything but what a dtype of the program stores."""
    dtypes = list(value.dtypes) if value.ndim == 2 else [value.dtype]
    own = all(isinstance(d, np.dtype) or type(d).__module__.partition(".")[0] == "pandas" for d in dtypes)
    return own and (name == "__getitem__" or all(d.kind in "biuf" for d in dtypes))


def _polars_is_pure(value: Any, name: str) -> bool:
    """Numbers and truth values; parts of a table may hold anything."""
    dtypes = value.dtypes if hasattr(type(value), "dtypes") else [value.dtype]
    return name == "__getitem__" or all(d.is_numeric() or str(d) == "Boolean" for d in dtypes)


_READINGS = _names("to_numpy __array__ __getitem__ head tail mean std var sum min max median")
_ARITHMETIC = _names("__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __neg__")
_SIZES = _names("__len__ shape")

ARRAY_LIKES = [
    ArrayLikeModel(
        "pandas",
        "Series",
        _SIZES | _names("ndim size dtype name"),
        _READINGS | _ARITHMETIC | _names("values astype copy"),
        _pandas_is_pure,
    ),
    ArrayLikeModel(
        "pandas",
        "DataFrame",
        _SIZES | _names("ndim size __getitem__ __getattr__"),
        _READINGS | _ARITHMETIC | _names("values astype copy"),
        _pandas_is_pure,
        _names("__getitem__"),
    ),
    ArrayLikeModel("polars", "Series", _SIZES | _names("len name"), _READINGS | _ARITHMETIC, _polars_is_pure),
    ArrayLikeModel(
        "polars",
        "DataFrame",
        _SIZES | _names("height width __getitem__ get_column"),
        _names("__getitem__ to_numpy __array__"),
        _polars_is_pure,
        _names("__getitem__"),
    ),
]
