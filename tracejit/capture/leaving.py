"""Numbers that leave the program: `.item()`, `float(t)`, `int(t)`, `.tolist()`, and what Python computes from them.

A `SymbolicNumber` with a `Late` is known only when the program has run.  It is no guard: returned, stored or formatted it is computed
again by each call, in Python, between the program and the effects.  Where it steers Python (a comparison, a truth value, an argument
outside which a function raises) the program computes the same predicate and leaves by an exit where it turns out the other way, before
anything is committed.  Where the program cannot compute it, or something asks for the very value, the value is guarded, by an exit too.

A clock that is read is such a number as well, but no exit can ask for it.  One that is read before the program begins, or that decides
something, is read in the prologue; the others after the program.  So what lies between two readings is the tensor work of the call
as a whole, and how long that has taken decides nothing: where it would, the recording stops.

Invariants: what is computed after the program cannot raise, because exits have seen to it, but for a division by the time between two
readings; a definition only uses numbers defined before.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from tracejit.capture.policies import SPECIAL_NAMES
from tracejit.capture.recorder import Recorder
from tracejit.capture.symbols import COMPARISONS, SymbolicNumber, concrete, plain
from tracejit.core.dtypes import FROM_NUMPY, bool_, float64
from tracejit.core.op import REGISTRY
from tracejit.tensor import Tensor
from tracejit.tensor.representation import remark, shown

__all__ = ["Late", "LeavingHandlers", "definitions", "is_late"]

_OPERATIONS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_PREDICATES: dict[Any, str] = {math.isfinite: "isfinite", math.isnan: "isnan", math.isinf: "isinf"}
_DIVISIONS = frozenset(["/", "//", "%"])
_EXACT = frozenset(["+", "-", "*", "&", "|", "^"]) | _DIVISIONS
"""Operators that raise nothing but for a divisor of 0."""
_DEMANDS: dict[Any, tuple[tuple[str, float], ...]] = {
    math.sqrt: ((">=", 0.0),), math.log: ((">", 0.0),), math.log2: ((">", 0.0),), math.log10: ((">", 0.0),), math.log1p: ((">", -1.0),),
    math.exp: (("<", 700.0),), math.expm1: (("<", 700.0),), math.cos: (("<", math.inf), (">", -math.inf)),
    math.sin: (("<", math.inf), (">", -math.inf)), math.tan: (("<", math.inf), (">", -math.inf)),
    math.floor: (("<", math.inf), (">", -math.inf)), math.ceil: (("<", math.inf), (">", -math.inf)),
    builtins.int: (("<", math.inf), (">", -math.inf)), math.tanh: (), math.atan: (), math.fabs: (), builtins.abs: (), builtins.float: (),
    builtins.min: (), builtins.max: (), operator.neg: (), operator.pos: (), operator.invert: (),
}  # fmt: skip
"""What an argument must fulfil so that the function does not raise (`round` asks for more); of one that does not, the value is guarded."""
_WORD = 62
"""Integers of so many bits, and a sign, are computed by the program without overflow."""
_FLOATS = 900
"""Integers of so many bits become floating-point numbers without one."""
_LONGEST = 1100
"""An integer made of a floating-point number has at most so many."""
_CHOOSING = (builtins.min, builtins.max)
_UNARY = {builtins.abs: "abs", math.fabs: "abs", operator.neg: "neg"}


Access = Callable[[str], str]
"""From the expression of a tensor to that of what Python takes out of it."""


class Program(Protocol):
    """What is asked of the interpreter of the recording."""

    nodes: list[Any]

    def kept(self, tensor: Any) -> Any: ...

    def bind(self, op: Any, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any: ...
    def take(self, tensor: Any) -> Any: ...
    def take_number(self, tensor: Any) -> Any: ...


@dataclass(slots=True, eq=False)
class Late:
    """How a value is computed after the program: by `text` from `parts`, or by `access` from `source`, a tensor.

    make: the same in the program, as a tensor float64 or int64 of one element, or None where it cannot.  bits: how long an int can be.
    readings: the readings of clocks that it is made of.  of_program: whether it is made of elements of tensors.  placed: the prologue
    has defined it.  shared: `source` is no copy, but a tensor of the function.  position: how many nodes the graph had when NumPy computed
    it from an array, -1 for anything else."""

    text: str
    parts: tuple[Any, ...] = ()
    make: Callable[[], Any] = lambda: None
    bits: int = 0
    source: Any = None
    shared: bool = False
    position: int = -1
    access: Access | None = None
    tensor: Any = None
    made: bool = False
    readings: frozenset[Late] = frozenset()
    of_program: bool = False
    placed: bool = False

    def in_program(self) -> Any:
        """The tensor, made when it is first asked for."""
        if not self.made:
            self.tensor, self.made = self.make(), True
        return self.tensor


def is_late(value: Any) -> bool:
    """Whether `value` is a number that is known only after the program."""
    return type(value) is SymbolicNumber and value._late is not None


class LeavingHandlers(Recorder):
    """Definitions of late numbers, and what they decide."""

    program: Program
    """The interpreter of the recording: it sets itself here."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[SymbolicNumber] = []

    # -- definitions
    def define_element(self, tensor: Tensor, value: int | float) -> SymbolicNumber:
        """The number in `tensor`, of one element, float64 or int64, which belongs to the recording alone."""
        return self._taken(tensor, lambda tensor: f"{tensor}._array.item()", value, lambda: tensor)

    def define_elements(self, tensor: Tensor) -> Any:
        """The numbers in a tensor of that kind, as nested lists."""
        array = tensor._array
        elements = self._taken(tensor, lambda tensor: f"{tensor}._array.ravel().tolist()", array.ravel().tolist())
        flat: Any = np.empty(array.size, dtype=object)
        for i, value in enumerate(elements._value):
            flat[i] = self._defined(Late(f"{elements._text}[{i}]", (elements,), partial(self._element_of, tensor, i), 63), value)
        return flat.reshape(array.shape).tolist()

    def _element_of(self, tensor: Tensor, index: int) -> Tensor:
        program = self.program
        flat = program.bind(REGISTRY["reshape"], (tensor,), {"shape": (tensor._array.size,)})
        element: Tensor = program.bind(REGISTRY["select"], (flat, index), {"dim": 0})
        return element

    def _taken(self, source: Tensor, access: Access, value: Any, make: Callable[[], Any] = lambda: None) -> SymbolicNumber:
        """What Python takes out of the array of a tensor."""
        return self._defined(Late("", make=make, bits=63, source=source, access=access, of_program=True), value)

    def tensor_text(self, tensor: Tensor) -> Any:
        """repr() of a tensor, and str()."""
        kind, note = type(tensor).__name__, remark(tensor)
        text = self.native(lambda: shown(tensor._array, kind, note))
        copy = None if self.stopped else self.program.kept(tensor)
        if copy is None:
            return text
        return self._taken(copy, lambda kept: f"{self.constant(shown)}({kept}._array, {kind!r}, {note!r})", text)

    def element(self, tensor: Tensor) -> Any:
        """The number in a tensor of one element that is asked for it; None where Python has to ask."""
        if self.stopped or tensor._array.size != 1 or FROM_NUMPY[tensor._array.dtype] is bool_:
            return None
        return self.program.take_number(tensor)

    def _defined(self, late: Late, value: Any) -> SymbolicNumber:
        parts = [part._late for part in late.parts if is_late(part)]
        late.readings = late.readings.union(*(part.readings for part in parts))
        late.of_program = late.of_program or any(part.of_program for part in parts)
        number = SymbolicNumber(self, self.variable(), value, late)
        self.late.append(number)
        return number

    def late_binary(self, symbol: str, left: Any, right: Any, value: Any) -> Any:
        """left <symbol> right, of which one at least is late, and which has come to `value`."""
        bits = None if type(value) is str else self._bits_of(symbol, left, right, value)
        if symbol not in _EXACT or type(value) not in (int, float) or bits is None:
            concrete(left), concrete(right)
            return value
        if symbol in _DIVISIONS:
            self._not_zero(right)
        text = f"{self._number_text(left)} {symbol} {self._number_text(right)}"
        return self._defined(Late(text, (left, right), lambda: self._arithmetic(symbol, left, right, value, bits), bits), value)

    def late_function(self, function: Any, arguments: tuple[Any, ...], value: Any) -> Any:
        """A function of numbers of which one at least is late; None where it has to be called with their values."""
        if function is builtins.round:
            demands = self._demands_of_round(arguments)
        else:
            demands = _DEMANDS.get(function)
        kinds = {type(plain(a)) for a in arguments}
        if str in kinds:
            return None
        lengths = [self._length(a) for a in arguments]
        if demands is None or type(value) not in (int, float) or None in lengths or (function in _CHOOSING and len(kinds) > 1):
            return None
        if function not in _CHOOSING and any(type(a) is SymbolicNumber for a in arguments[1:]):
            return None
        whole = type(plain(arguments[0])) is int  # which is never infinite
        whole = whole or (is_late(arguments[0]) and not arguments[0]._late.of_program)  # nor is a time
        asked = [(symbol, bound) for symbol, bound in demands if not (whole and math.isinf(bound))]
        if not all(COMPARISONS[symbol](plain(arguments[0]), bound) for symbol, bound in asked):
            return None
        for symbol, bound in asked:
            self.late_outcome(symbol, arguments[0], bound, True)
        bits = _LONGEST if float in kinds else max(n for n in lengths if n is not None)
        text = f"{self.constant(function)}({', '.join(map(self._number_text, arguments))})"
        number = arguments[0]
        return self._defined(Late(text, arguments, lambda: self._conversion(function, number), bits), value)

    def late_sum(self, numbers: list[Any], value: Any) -> Any:
        """sum(numbers[1:], numbers[0]), which Python may compute more precisely than by additions."""
        lengths = [self._length(n) for n in numbers]
        if None in lengths or type(value) not in (int, float):
            return sum(map(concrete, numbers[1:]), concrete(numbers[0]))
        first, *texts = map(self._number_text, numbers)
        text = f"{self.constant(builtins.sum)}(({''.join(f'{t}, ' for t in texts)}), {first})"
        bits = max(n for n in lengths if n is not None) + len(numbers)
        return self._defined(Late(text, tuple(numbers), lambda: None, bits), value)

    @staticmethod
    def _demands_of_round(arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if len(arguments) == 1:
            return _DEMANDS[math.floor]
        digits = arguments[1]
        return () if type(digits) is int and 0 <= digits < 300 else None

    def _number_text(self, value: Any) -> str:
        return value._text if type(value) is SymbolicNumber else self.number_text(value)

    def are_short(self, values: Iterable[Any]) -> bool:
        """Whether the ints among numbers and texts are, in every call, short enough for what Python does with them."""
        return all(is_late(v) or self._length(v) is not None for v in values if type(plain(v)) is int)

    def _length(self, value: Any) -> int | None:
        """How many bits an int can have, 0 for a float; None for one that may be too long to become a float."""
        if type(plain(value)) is float:
            return 0
        if is_late(value):
            bits: int = value._late.bits
            return bits if bits <= _FLOATS else None
        number = plain(value)
        if type(number) not in (int, bool) or number.bit_length() > 63:
            return None
        if type(value) is SymbolicNumber:
            self.miss_if(f"not {-(2**63)} <= {value._text} < {2**63}")
            return 63
        return int(number.bit_length())

    def _bits_of(self, symbol: str, left: Any, right: Any, value: Any) -> int | None:
        a, b = self._length(left), self._length(right)
        if a is None or b is None:
            return None
        bits = a + b if symbol == "*" else max(a, b) + 1
        return bits if bits <= _FLOATS else None

    # -- readings of clocks
    def read_clock(self, clock: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A function that tells the time is called."""
        value = clock(*arguments, **keywords)  # or it raises what is to be raised
        late = Late(f"{self.constant(clock)}()", (), lambda: None, 63)
        late.readings = frozenset([late])
        number = self._defined(late, value)
        if not self.program.nodes:
            self._place(number)
        return number

    def unknown_answer(self, function: Any, answer: Any) -> Any:
        """What a function said that was called for what it does: nobody knows it before the program has run, nor is it kept."""
        late = Late("")
        late.readings = frozenset([late])
        return self._defined(late, answer)

    def _place(self, number: Any) -> None:
        """Let the prologue define a number of clocks, and what it is made of."""
        if is_late(number) and not number._late.placed:
            for part in number._late.parts:
                self._place(part)
            number._late.placed = True
            self.lines.append(f"{number._text} = {number._late.text}")

    def _decided_by_clocks(self, *numbers: Any) -> bool:
        """Whether there are readings of clocks in numbers that decide something.  If so, the prologue defines them; where it cannot, the
        recording stops."""
        lates = [number._late for number in numbers if is_late(number)]
        readings: frozenset[Late] = frozenset().union(*(late.readings for late in lates))
        if not readings:
            return False
        if any(not (late.text or late.access) for late in readings):
            self.stop("impure_call", "a call whose answer decides")
        elif any(late.of_program for late in lates):
            self.stop("clock", "a clock and results of the call decide together")
        elif len(readings) > 1:
            self.stop("clock", "the time between two readings of a clock in the call decides")
        for number in numbers:
            self._place(number)
        return True

    # -- where they steer
    def late_comparison(self, symbol: str, left: Any, right: Any, outcome: bool) -> Any:
        """left <symbol> right, of which one at least is late: known at once, or, of clocks, when somebody asks for its truth."""
        if any(is_late(number) and number._late.readings for number in (left, right)):
            text = f"{self._number_text(left)} {symbol} {self._number_text(right)}"
            return self._defined(Late(text, (left, right), lambda: None, 1), outcome)
        self.late_outcome(symbol, left, right, outcome)
        return outcome

    def late_outcome(self, symbol: str, left: Any, right: Any, outcome: bool) -> None:
        """left <symbol> right has come to `outcome`: a call where it comes to something else leaves."""
        if not (is_late(left) or is_late(right)) or self._decided_by_clocks(left, right):
            self.guard_outcome(f"{self._number_text(left)} {symbol} {self._number_text(right)}", outcome)
            return
        operands = self._comparable(left, right)
        if operands is None:
            concrete(left), concrete(right)
            return
        self._decide(REGISTRY[SPECIAL_NAMES[symbol]], operands)

    def late_predicate(self, function: Any, number: Any) -> bool | None:
        """math.isfinite and its like of a late number; None for other functions."""
        name = _PREDICATES.get(function)
        if name is None:
            return None
        value = bool(function(plain(number)))
        tensor = number._late.in_program()
        if tensor is None:
            concrete(number)
        elif type(plain(number)) is float:
            self._decide(REGISTRY[name], (tensor,))
        return value

    def guard_number(self, number: SymbolicNumber) -> None:
        if number._late is None:
            super().guard_number(number)
        elif number._late.readings:
            if all(late.text for late in number._late.readings):
                self.stop("clock", "the very time that a clock tells is asked for")
            self.stop("impure_call", "a call whose answer is asked for")
        elif self.first_time("number", number._text):
            tensor = number._late.in_program()
            if tensor is not None:
                self.program.take(tensor)
            elif number._late.source is not None:
                self.stop("tensor_contents", "what has left as a text or an array decides")
            for part in number._late.parts if tensor is None else ():
                concrete(part)

    def _not_zero(self, divisor: Any) -> None:
        if is_late(divisor) and divisor._late.readings:
            if divisor._late.of_program:
                concrete(divisor)
        elif is_late(divisor):
            self.late_outcome("!=", divisor, 0, True)
        elif type(divisor) is SymbolicNumber:
            self.miss_if(f"{divisor._text} == 0")

    def _decide(self, op: Any, operands: tuple[Any, ...]) -> None:
        """The program computes a predicate and leaves where it is not what it was."""
        self.program.take(self.program.bind(op, operands, {}))

    # -- in the program
    def _comparable(self, left: Any, right: Any) -> tuple[Any, Any] | None:
        """Operands for which a comparison in the program is Python's, which compares exact values; None where there are none."""
        kinds = type(plain(left)), type(plain(right))
        if kinds[0] is kinds[1] is float or kinds[0] is kinds[1] is int:
            a, b = self._operand(left), self._operand(right)
            if any(type(x) is int and x.bit_length() > 63 for x in (a, b)):
                return None
        elif is_late(left) and not is_late(right):
            a, b = self._operand(left), _as_like(left, right)
        elif is_late(right) and not is_late(left):
            a, b = _as_like(right, left), self._operand(right)
        else:
            return None
        return None if a is None or b is None else (a, b)

    def _operand(self, number: Any) -> Any:
        """A tensor for a late number; another one as it is."""
        return number._late.in_program() if is_late(number) else number

    def _arithmetic(self, symbol: str, left: Any, right: Any, value: Any, bits: int) -> Any:
        a, b = self._operand(left), self._operand(right)
        if symbol not in _OPERATIONS or a is None or b is None:
            return None
        if type(value) is int:
            return None if bits > _WORD or symbol == "/" else self._computed(_OPERATIONS[symbol], a, b)
        return self._computed(_OPERATIONS[symbol], self._as_float(a), self._as_float(b))

    def _conversion(self, function: Any, number: Any) -> Any:
        tensor = self._operand(number)
        if tensor is None or not isinstance(tensor, Tensor):
            return None
        if type(plain(number)) is float and function in _UNARY:
            return self._computed(_UNARY[function], tensor)
        return self._as_float(tensor) if function is builtins.float else None

    def _as_float(self, x: Any) -> Any:
        """Python makes floats of ints in arithmetic with floats, rounded once, as the program does."""
        if isinstance(x, Tensor):
            return x if FROM_NUMPY[x._array.dtype] is float64 else self.program.bind(REGISTRY["cast"], (x,), {"dtype": float64})
        return float(x) if type(x) is int else x

    def _computed(self, name: str, *operands: Any) -> Any:
        return self.program.bind(REGISTRY[name], operands, {})

    def before(self, number: Any) -> Any:
        """A late number, for tensor work: one of clocks as a number of the prologue."""
        if not self._decided_by_clocks(number):
            return number
        return SymbolicNumber(self, number._text, number._value)

    def as_operand(self, number: Any, dtype: Any) -> Any:
        """A late number as a tensor without dimensions of a floating-point dtype, rounded as NumPy rounds Python's numbers; its value,
        guarded, where the program cannot compute it."""
        tensor = number._late.in_program()
        if tensor is None:
            return concrete(number)
        tensor = self._as_float(tensor)
        if dtype is not float64:
            tensor = self.program.bind(REGISTRY["cast"], (tensor,), {"dtype": dtype})
        return tensor if tensor._array.ndim == 0 else self.program.bind(REGISTRY["reshape"], (tensor,), {"shape": ()})


def _as_like(late: Any, other: Any) -> Any:
    """A number with which a late one of another type can be compared in the program; None where there is none."""
    number = plain(other)
    if type(plain(late)) is float:
        return float(number) if type(other) is int and abs(number) <= 2**53 else None
    return int(number) if type(other) is float and number == number and abs(number) < 2.0**62 and number == int(number) else None


def definitions(numbers: Iterable[SymbolicNumber], needed: Iterable[SymbolicNumber], tensor: Callable[[Late], str]) -> list[str]:
    """The lines that define the late numbers `needed`, and what they are made of; `numbers` are all, in the order of their definition.
    tensor: the expression of the tensor that a value is taken from."""
    wanted = {number._text for number in needed}
    lines: list[str] = []
    for number in reversed(list(numbers)):
        if number._text in wanted:
            late: Late = number._late
            wanted.update(part._text for part in late.parts if is_late(part))
            if late.placed:
                continue
            lines.append(f"{number._text} = {late.text or (late.access or str)(tensor(late))}")
    return lines[::-1]
