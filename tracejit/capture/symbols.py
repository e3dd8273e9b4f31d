"""What stands for Python's values during a recording: above all symbolic numbers, numbers from outside whose arithmetic is recorded.

A `SymbolicNumber` stands for a number that the prologue of the entry computes again at each call.  Arithmetic on it yields another one
and a line of the prologue; comparing it, or asking for its value, yields a plain value and a guard.  It is deliberately no subclass
of int or float: C code cannot reach the value behind its back, it has to ask (`__float__`, `__index__` ...), and asking guards.
`isinstance` sees a number nevertheless, through `__class__`.  After the recording has ended it is a plain number in all it does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

__all__ = ["COMPARISONS", "ObjectIdentity", "SuperProxy", "SymbolicNumber", "concrete", "is_symbolic", "plain"]


class Prologue(Protocol):
    """What symbolic numbers need of the recorder."""

    stopped: bool

    def define_number(self, text: str, value: int | float, *, check_type: bool) -> SymbolicNumber: ...
    def guard_outcome(self, text: str, outcome: bool) -> None: ...
    def guard_number(self, number: SymbolicNumber) -> None: ...
    def number_text(self, value: int | float) -> str: ...


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def is_symbolic(value: object) -> bool:
    """Whether `value` is a symbolic number."""
    return type(value) is SymbolicNumber


def plain(value: Any) -> Any:
    """The number behind a symbolic one, without a guard; anything else as it is."""
    return value._value if type(value) is SymbolicNumber else value


def _binary(symbol: str, swapped: bool = False) -> Callable[[Any, Any], Any]:
    compute = ARITHMETIC[symbol]

    def method(self: SymbolicNumber, other: Any) -> Any:
        if type(other) is not SymbolicNumber and type(other) not in (int, float, bool):
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        try:
            result = compute(plain(left), plain(right))
        except (ArithmeticError, ValueError):  # the program may catch it: the numbers have decided where it goes on
            concrete(left), concrete(right)
            raise
        recorder = self._recorder
        if recorder.stopped:
            return result
        if type(result) not in (int, float) or result != result:
            left, right = concrete(left), concrete(right)
            return result
        text = f"{_text(recorder, left)} {symbol} {_text(recorder, right)}"
        return recorder.define_number(text, result, check_type=symbol == "**")

    return method


def _comparison(symbol: str) -> Callable[[Any, Any], Any]:
    compute = COMPARISONS[symbol]

    def method(self: SymbolicNumber, other: Any) -> Any:
        if type(other) is not SymbolicNumber and type(other) not in (int, float, bool):
            return NotImplemented
        result = compute(self._value, plain(other))
        recorder = self._recorder
        if not recorder.stopped:
            recorder.guard_outcome(f"{self._text} {symbol} {_text(recorder, other)}", result)
        return result

    return method


def _unary(template: str, compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def method(self: SymbolicNumber) -> Any:
        result = compute(self._value)
        if self._recorder.stopped:
            return result
        return self._recorder.define_number(template.replace("{}", self._text), result, check_type=False)

    return method


def _asking(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A method that needs the value: it guards it."""

    def method(self: SymbolicNumber, *arguments: Any) -> Any:
        return compute(concrete(self), *map(concrete, arguments))

    return method


def concrete(value: Any) -> Any:
    """The number behind a symbolic one, guarded; anything else as it is."""
    if type(value) is not SymbolicNumber:
        return value
    if not value._recorder.stopped:
        value._recorder.guard_number(value)
    return value._value


def _text(recorder: Prologue, value: Any) -> str:
    return value._text if type(value) is SymbolicNumber else recorder.number_text(value)


class SymbolicNumber:
    """A number that later calls compute again.  `_text` is the prologue's variable, `_value` the number of this run."""

    __slots__ = ("_recorder", "_text", "_value")

    def __init__(self, recorder: Prologue, text: str, value: int | float) -> None:
        self._recorder = recorder
        self._text = text
        self._value = value

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._value)

    __add__, __radd__ = _binary("+"), _binary("+", True)
    __sub__, __rsub__ = _binary("-"), _binary("-", True)
    __mul__, __rmul__ = _binary("*"), _binary("*", True)
    __truediv__, __rtruediv__ = _binary("/"), _binary("/", True)
    __floordiv__, __rfloordiv__ = _binary("//"), _binary("//", True)
    __mod__, __rmod__ = _binary("%"), _binary("%", True)
    __lshift__, __rlshift__ = _binary("<<"), _binary("<<", True)
    __rshift__, __rrshift__ = _binary(">>"), _binary(">>", True)
    __and__, __rand__ = _binary("&"), _binary("&", True)
    __or__, __ror__ = _binary("|"), _binary("|", True)
    __xor__, __rxor__ = _binary("^"), _binary("^", True)
    __rpow__ = _binary("**", True)
    __eq__, __ne__ = _comparison("=="), _comparison("!=")
    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __gt__, __ge__ = _comparison(">"), _comparison(">=")
    __neg__ = _unary("-{}", operator.neg)
    __pos__ = _unary("+{}", operator.pos)
    __invert__ = _unary("~{}", operator.invert)
    __abs__ = _unary("abs({})", abs)
    __float__, __int__, __hash__ = _asking(float), _asking(int), _asking(hash)
    __complex__, __index__, __trunc__ = _asking(complex), _asking(operator.index), _asking(int)
    __round__ = _asking(round)
    __repr__, __str__, __format__ = _asking(repr), _asking(str), _asking(format)
    __divmod__, __rdivmod__ = _asking(divmod), _asking(lambda a, b: divmod(b, a))

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return pow(concrete(self), concrete(other), concrete(modulus))
        return _power(self, other)

    def __bool__(self) -> bool:
        result = bool(self._value)
        if not self._recorder.stopped:
            self._recorder.guard_outcome(f"bool({self._text})", result)
        return result

    def __getattr__(self, name: str) -> Any:
        if not hasattr(type(self._value), name):
            raise AttributeError(f"{type(self._value).__name__!r} object has no attribute {name!r}")
        return getattr(concrete(self), name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return concrete(self).__reduce_ex__(protocol)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(concrete(self), dtype)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(function, method)(*map(concrete, inputs), **options)


_power = _binary("**")


class ObjectIdentity(int):
    """id(owner) during a recording: to be compared and hashed, since the guards imply which objects are the same; nothing else."""

    owner: Any

    def __new__(cls, owner: Any) -> ObjectIdentity:
        self = super().__new__(cls, id(owner))
        self.owner = owner
        return self


class SuperProxy:
    """`super()` during a recording: whose attributes are looked for from where on."""

    __slots__ = ("cls", "instance")

    def __init__(self, cls: type, instance: Any) -> None:
        self.cls = cls
        self.instance = instance
