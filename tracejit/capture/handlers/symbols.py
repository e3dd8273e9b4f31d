"""Stand-ins for Python's values during a recording: symbolic numbers, identities, methods, callbacks, `super()`.

A `SymbolicNumber` stands for a number that each call computes again in the prologue of the entry.  Arithmetic with it gives
another symbolic number and adds a statement to the prologue.  Comparing it, or using its value, gives a plain value and adds a
guard.  It is no subclass of int or float, so that C code cannot read the value without a guard: it has to call `__float__`,
`__index__` ..., which add one.  `isinstance` takes it for a number, because of `__class__`.  After the recording has ended it
behaves as a plain number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tracejit.capture.handlers.stand_ins import STANDS_FOR, plain, plain_value
from tracejit.core.recorded_number import ARITHMETIC, COMPARISONS, RecordedNumber, with_operators
from tracejit.core.symbolic import SYMBOLIC
from tracejit.replay.ir import Arithmetic, Compare, Expr, Name, Unary

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = [
    "MethodOf", "ObjectIdentity", "RecordedCallback", "SuperProxy", "SymbolicNumber", "concretise", "is_symbolic",
    "is_symbolic_bool",
]  # fmt: skip


def is_symbolic(value: object) -> bool:
    """Whether `value` is a symbolic number."""
    return type(value) is SymbolicNumber


def is_symbolic_bool(value: object) -> bool:
    """Whether `value` is a symbolic bool that the prologue computes."""
    return type(value) is SymbolicNumber and value._post_program is None and type(value._value) is bool


def _binary(symbol: str, swapped: bool) -> Callable[..., Any]:
    """The special method of an arithmetic operator; swapped: that of the right operand."""
    compute = ARITHMETIC[symbol]

    def method(self: SymbolicNumber, other: Any, *modulus: Any) -> Any:
        if modulus:
            left, right = (other, self) if swapped else (self, other)
            return pow(*map(concretise, (left, right, *modulus)))
        other = self._recorder.sizes.from_library(other) if type(other) in SYMBOLIC else other
        if type(other) is not SymbolicNumber and type(other) not in (int, float, bool):
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        try:
            result = compute(plain(left), plain(right))
        except (ArithmeticError, ValueError) as error:  # user code may catch it: then the numbers have decided a branch
            if self._recorder.stopped or not self._recorder.extracted_numbers.raises_again(symbol, (left, right), error):
                concretise(left), concretise(right)
            raise
        recorder = self._recorder
        if recorder.stopped:
            return result
        if _is_post_program(left) or _is_post_program(right):
            return recorder.extracted_numbers.post_program_binary(symbol, left, right, result)
        if type(result) not in (int, float) or result != result:
            left, right = concretise(left), concretise(right)
            return result
        computed = Arithmetic(symbol, _expression(recorder, left), _expression(recorder, right))
        number = recorder.define_number(computed, result, check_type=symbol == "**")
        recorder.sizes.note_computed(number, symbol, left, right)
        return number

    return method


def _comparison(symbol: str) -> Callable[[Any, Any], Any]:
    """The special method of a comparison."""
    compute = COMPARISONS[symbol]

    def method(self: SymbolicNumber, other: Any) -> Any:
        other = self._recorder.sizes.from_library(other) if type(other) in SYMBOLIC else other
        if type(other) is not SymbolicNumber and type(other) not in (int, float, bool):
            return NotImplemented
        result = compute(self._value, plain(other))
        recorder = self._recorder
        if recorder.stopped:
            return result
        if _is_post_program(self) or _is_post_program(other):
            return recorder.extracted_numbers.post_program_comparison(symbol, self, other, result)
        recorder.guard_outcome(Compare(symbol, self._name, _expression(recorder, other)), result)
        return result

    return method


def _unary(symbol: str) -> Callable[[Any], Any]:
    """The special method of a unary operator, or of abs()."""
    compute = _UNARY[symbol]

    def method(self: SymbolicNumber) -> Any:
        result = compute(self._value)
        if self._recorder.stopped:
            return result
        if self._post_program is not None:
            number = self._recorder.extracted_numbers.post_program_function(compute, (self,), result)
            if number is None:
                concretise(self)
            return result if number is None else number
        expression = Name("abs").call(self._name) if symbol == "abs" else Unary(symbol, self._name)
        return self._recorder.define_number(expression, result, check_type=False)

    return method


def _is_post_program(value: Any) -> bool:
    return type(value) is SymbolicNumber and value._post_program is not None


def concretise(value: Any) -> Any:
    """The value of a symbolic number, guarded; any other `value` unchanged."""
    return value.concretise() if type(value) is SymbolicNumber else value


def _expression(recorder: Recorder, value: Any) -> Expr:
    return value._name if type(value) is SymbolicNumber else recorder.number_expression(value)


_UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert, "abs": abs}


@with_operators(_binary, _comparison, _unary)
class SymbolicNumber(RecordedNumber):
    """A number that each call computes again.

    _name: its variable in the entry.  _value: its value in this run.  _post_program: the `PostProgramValue` that says how it is computed
    after the program (post_program.py), None if the prologue computes it.  A post-program value may also be a text (texts.py)."""

    __slots__ = ("_name", "_post_program", "_recorder", "_value")

    def __init__(self, recorder: Recorder, name: Name, value: Any, post_program: Any = None) -> None:
        self._post_program = post_program
        self._recorder = recorder
        self._name = name
        self._value = value

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._value)

    def concretise(self) -> Any:
        if not self._recorder.stopped:
            self._recorder.guard_number(self)
        return self._value

    def is_computed(self) -> bool:
        return self._post_program is not None and bool(self._post_program.depends_on_tensors)

    def as_size(self) -> Any:
        return None if self._recorder.stopped else self._recorder.sizes.symbol(self, concretise_others=True)

    def __bool__(self) -> bool:
        result = bool(self._value)
        if self._post_program is not None and not self._recorder.stopped:
            self._recorder.extracted_numbers.guard_comparison("!=", self, 0, result)
        elif not self._recorder.stopped:
            self._recorder.guard_outcome(self._name, result)
        return result


def _of_identities(name: str) -> Callable[..., Any]:
    """The method `name` of `ObjectIdentity`.  It stops the recording, because its result depends on an address."""
    compute = getattr(int, name)

    def method(self: ObjectIdentity, *arguments: Any) -> Any:
        self._recorder.stop("object_identity", "a number computed from an id()")
        return compute(int(self), *map(plain, arguments))

    return method


class ObjectIdentity(int):
    """id(owner) during a recording.  It may be hashed and compared with other identities, because guards imply which objects are
    the same.  Any other use stops the recording."""

    owner: Any
    _recorder: Recorder

    def __new__(cls, owner: Any, recorder: Recorder) -> ObjectIdentity:
        self = super().__new__(cls, id(owner))
        self.owner = owner
        self._recorder = recorder
        return self

    def __eq__(self, other: object) -> bool:
        if type(other) is not ObjectIdentity and isinstance(other, (int, float)):
            self._recorder.stop("object_identity", "the comparison of an id() with a number")
        return int(self) == plain(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__


for _name in set(vars(int)) & {
    *(f"__{name}__" for name in ("lt", "le", "gt", "ge", "neg", "pos", "invert", "abs", "bool", "float", "repr", "str", "format")),
    *(f"__{side}{name}__" for side in ("", "r") for name in (
        "add", "sub", "mul", "mod", "floordiv", "truediv", "divmod", "pow", "and", "or", "xor", "lshift", "rshift",
    )),
}:  # fmt: skip
    setattr(ObjectIdentity, _name, _of_identities(_name))


class MethodOf:
    """A bound method of a post-program value: of a text, a moment, or the result of a deferred call.  Calling it guards the value
    of its owner."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: SymbolicNumber, name: str) -> None:
        self.owner = owner
        self.name = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return getattr(concretise(self.owner), self.name)(*arguments, **keywords)


class RecordedCallback:
    """The callable that C code gets in place of `function`: its calls go to `call`, which records them.  function: None if C code
    tests the truth of its elements, as in `filter(None, items)`."""

    __slots__ = ("_call", "_recorder", "function")

    def __init__(self, recorder: Recorder, function: Any, call: Callable[..., Any]) -> None:
        self._recorder = recorder
        self._call = call
        self.function = function

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if not self._recorder.stopped:
            return self._call(*arguments, **keywords)
        arguments = tuple(map(plain_value, arguments))
        if self.function is None:
            return bool(*arguments)
        return self.function(*arguments, **{name: plain_value(value) for name, value in keywords.items()})


STANDS_FOR.update({SymbolicNumber: attrgetter("_value"), ObjectIdentity: int, RecordedCallback: attrgetter("function")})
STANDS_FOR[MethodOf] = lambda method: getattr(method.owner._value, method.name)


class SuperProxy:
    """`super(cls, instance)` during a recording."""

    __slots__ = ("cls", "instance")

    def __init__(self, cls: type, instance: Any) -> None:
        self.cls = cls
        self.instance = instance
