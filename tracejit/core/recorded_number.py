"""Recorded numbers: what stands for a number while a call is recorded.

Arithmetic with a `RecordedNumber` gives another one.  Comparing it gives a plain bool, and the outcome is a guard.  Whatever else
needs the number calls `concretise()`, which guards its value, and goes on with the plain one.  It is no int and no float: C code
that needs one calls `__index__` or `__float__`, so nothing reads the number without a guard.  `isinstance` takes it for the type
of its value.

There are two kinds: sizes (`SymInt` and `SymFloat` of core/symbolic.py), whose guards are relations of a `ShapeEnv`, and numbers
that the program reads or computes (`SymbolicNumber` of capture/handlers/symbols.py), whose guards are statements of an entry."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

__all__ = ["ARITHMETIC", "COMPARISONS", "RecordedNumber", "with_operators"]

C = TypeVar("C", bound="type[RecordedNumber]")

_ARITHMETIC_NAMES = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "<<": "lshift", ">>": "rshift",
    "&": "and_", "|": "or_", "^": "xor",
}  # fmt: skip
_COMPARISON_NAMES = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_UNARY_NAMES = {"-": "neg", "+": "pos", "~": "invert", "abs": "abs"}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {symbol: getattr(operator, name) for symbol, name in _ARITHMETIC_NAMES.items()}
"""The arithmetic operators, by their symbols."""
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    symbol: getattr(operator, name) for symbol, name in _COMPARISON_NAMES.items()
}


def _concretise(value: Any) -> Any:
    return value.concretise() if isinstance(value, RecordedNumber) else value


def _concretising(function: Callable[..., Any]) -> Callable[..., Any]:
    """A special method that needs the number itself."""

    def method(self: RecordedNumber, *arguments: Any) -> Any:
        return function(self.concretise(), *map(_concretise, arguments))

    return method


class RecordedNumber:
    """What stands for a number while a call is recorded.  Its `__class__` is that of the number; it may be an operand, and need
    not be one and the same number in later calls."""

    __slots__ = ()

    def concretise(self) -> Any:
        """The plain number, which later calls must find as well."""
        raise NotImplementedError

    def is_computed(self) -> bool:
        """Whether it is known only when the program has run."""
        return False

    def as_size(self) -> Any:
        """What it is to who needs an integer and can do with a symbolic size (core/symbolic.py); None where it is none."""
        return None

    # Defined by `with_operators`; named here are those that code with annotations uses.
    __add__: Callable[..., Any]
    __sub__: Callable[..., Any]
    __lt__: Callable[..., Any]
    __le__: Callable[..., Any]
    __gt__: Callable[..., Any]
    __ge__: Callable[..., Any]

    __float__, __int__, __index__ = _concretising(float), _concretising(int), _concretising(operator.index)
    __complex__, __trunc__, __round__ = _concretising(complex), _concretising(math.trunc), _concretising(round)
    __floor__, __ceil__, __hash__ = _concretising(math.floor), _concretising(math.ceil), _concretising(hash)
    __repr__, __str__, __format__ = _concretising(repr), _concretising(str), _concretising(format)
    __divmod__, __rdivmod__ = _concretising(divmod), _concretising(lambda a, b: divmod(b, a))

    def __getattr__(self, name: str) -> Any:
        """Attributes and methods of the plain number."""
        if not hasattr(self.__class__, name):  # asked of whatever there is: is it a tensor?
            raise AttributeError(f"{self.__class__.__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return getattr(self.concretise(), name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.concretise().__reduce_ex__(protocol)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.concretise(), dtype)

    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **keywords: Any) -> Any:
        """NumPy computes with the plain number, whose dtype gives way to those of arrays."""
        return getattr(function, method)(*map(_concretise, operands), **keywords)


def with_operators(
    binary: Callable[[str, bool], Callable[..., Any]],
    comparison: Callable[[str], Callable[..., Any]],
    unary: Callable[[str], Callable[..., Any]],
) -> Callable[[C], C]:
    """A decorator of a kind of recorded numbers, which defines its operators: each is what one of these functions makes for its
    symbol.

    binary(symbol, swapped): the method of an arithmetic operator; swapped: of its right operand.  comparison: of `==`, `<` and
    the like. unary: of `-`, `+`, `~` and "abs"."""

    def decorate(cls: C) -> C:
        for symbol, name in _ARITHMETIC_NAMES.items():
            setattr(cls, f"__{name.rstrip('_')}__", binary(symbol, False))
            setattr(cls, f"__r{name.rstrip('_')}__", binary(symbol, True))
        for symbol, name in _COMPARISON_NAMES.items():
            setattr(cls, f"__{name}__", comparison(symbol))
        for symbol, name in _UNARY_NAMES.items():
            setattr(cls, f"__{name}__", unary(symbol))
        return cls

    return decorate
