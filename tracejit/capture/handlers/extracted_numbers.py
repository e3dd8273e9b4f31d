"""Numbers that leave the program: `.item()`, `float(t)`, `int(t)`, `.tolist()`, and what Python computes from them.

A `SymbolicNumber` with a `PostProgramValue` (post_program.py) is known only when the program has run.  To return, store or format
it adds no guard: each call computes it again, in Python, between the program and the effects.  Where it decides something (a
comparison, a truth value, whether a function raises), the program computes the same predicate and leaves by an exit if the
outcome differs, before anything is committed.  Where the program cannot compute the predicate, or the value itself is needed, an
exit guards the value.

A clock reading is a post-program number too, but no exit can test it.  A clock is read in the prologue if the function reads it
before its first tensor operation, or if the reading decides something; else after the program.  So the time between two readings
covers the tensor work of the whole call.  It cannot decide anything: where it would, the recording stops.

Invariant: what is computed after the program cannot raise, because exits exclude the arguments that raise.  The exception is a
division by the time between two readings.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.autograd.tape import edge_of
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.in_program import CHOOSING, TO_INTEGERS, WORD
from tracejit.capture.handlers.post_program import Access, PostProgramValue, is_deferred_call_result, is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import SymbolicNumber, concretise, is_symbolic
from tracejit.capture.policies import NUMPY_NUMBERS, SPECIAL_NAMES
from tracejit.capture.recording.journal import Topic
from tracejit.core.dtypes import FROM_NUMPY, bool_
from tracejit.core.numbers import plain_number
from tracejit.core.op import REGISTRY
from tracejit.core.recorded_number import COMPARISONS
from tracejit.replay.ir import And, Arithmetic, Compare, Define, Expr, Not, tuple_of
from tracejit.tensor import Tensor
from tracejit.tensor.representation import remark, shown

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["ExtractedNumberHandlers"]

_PREDICATES: dict[Any, str] = {math.isfinite: "isfinite", math.isnan: "isnan", math.isinf: "isinf"}
_DIVISIONS = frozenset(["/", "//", "%"])
_SHIFTS = frozenset(["<<", ">>"])
_EXACT = frozenset(["+", "-", "*", "&", "|", "^"]) | _DIVISIONS | _SHIFTS
"""Operators that raise only for a divisor of 0 and for a negative shift."""
_DEMANDS: dict[Any, tuple[tuple[str, float], ...]] = {
    math.sqrt: ((">=", 0.0),), math.log: ((">", 0.0),), math.log2: ((">", 0.0),), math.log10: ((">", 0.0),), math.log1p: ((">", -1.0),),
    math.exp: (("<", 700.0),), math.expm1: (("<", 700.0),), math.cos: (("<", math.inf), (">", -math.inf)),
    math.sin: (("<", math.inf), (">", -math.inf)), math.tan: (("<", math.inf), (">", -math.inf)),
    math.floor: (("<", math.inf), (">", -math.inf)), math.ceil: (("<", math.inf), (">", -math.inf)),
    builtins.int: (("<", math.inf), (">", -math.inf)), math.trunc: (("<", math.inf), (">", -math.inf)),
    math.sinh: (("<", 700.0), (">", -700.0)), math.cosh: (("<", 700.0), (">", -700.0)), math.exp2: (("<", 1000.0),),
    math.asin: (("<=", 1.0), (">=", -1.0)), math.acos: (("<=", 1.0), (">=", -1.0)), math.asinh: (), math.erf: (), math.erfc: (),
    math.degrees: (("<", 1e300), (">", -1e300)), math.radians: (), math.cbrt: (), math.tanh: (), math.atan: (), math.fabs: (),
    builtins.abs: (), builtins.float: (),
    builtins.min: (), builtins.max: (), operator.neg: (), operator.pos: (), operator.invert: (),
}  # fmt: skip
"""Function -> conditions on its argument under which it does not raise.  If they do not hold, the value is guarded.  `round` has
conditions of its own."""
_INFINITE: tuple[tuple[tuple[str, float], ...], ...] = ((("==", math.inf),), (("==", -math.inf),))
_RAISING: dict[Any, tuple[tuple[tuple[str, float], ...], ...]] = {
    math.sqrt: ((("<", 0.0),),), **dict.fromkeys((math.log, math.log2, math.log10), ((("<=", 0.0),),)), math.log1p: ((("<=", -1.0),),),
    **dict.fromkeys((math.exp, math.expm1, math.cosh), (((">", 711.0), ("<", math.inf)),)),
    **dict.fromkeys((math.asin, math.acos), (((">", 1.0),), (("<", -1.0),))),
    **dict.fromkeys((math.sin, math.cos, math.tan, math.floor, math.ceil, math.trunc, builtins.int, builtins.round), _INFINITE),
}  # fmt: skip
"""Function -> alternatives; it raises for each argument that fulfils all conditions of one alternative."""
_FLOATS = 900
"""Integers of at most so many bits are converted to float without OverflowError."""
_LENGTHS = (63, 200, 400)
"""The bit length of an integer from outside is guarded to be at most the first of these that it fits in."""
_LONGEST = 1100
"""An integer computed from a float has at most so many bits."""


class ExtractedNumberHandlers(Handlers):
    """Defines post-program numbers and guards what they decide.  post_program_numbers: all of them, in the order of their definition."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.post_program_numbers: list[SymbolicNumber] = journal.list(Topic.NUMBERS)

    # -- definitions
    def define_element(self, tensor: Tensor, value: int | float) -> SymbolicNumber:
        """The number in `tensor`, a private copy of one element in float64 or int64."""
        return self._extracted(tensor, lambda tensor: tensor.get("_array").method("item"), value, lambda: tensor)

    def define_elements(self, tensor: Tensor) -> Any:
        """The numbers in `tensor`, a private copy in float64 or int64, as nested lists."""
        array = tensor._array
        elements = self._extracted(
            tensor, lambda tensor: tensor.get("_array").method("ravel").method("tolist"), array.ravel().tolist()
        )
        flat: Any = np.empty(array.size, dtype=object)
        for i, value in enumerate(elements._value):
            definition = PostProgramValue(
                elements._name.at(i),
                (elements,),
                partial(self.recorder.in_program.element_in_program, tensor, i),
                63,
                tensor_element=(tensor, i),
            )
            flat[i] = self.define_post_program(definition, value)
        return flat.reshape(array.shape).tolist()

    def forget_lost_tensors(self) -> None:
        """Where the nodes that made the tensor of a number have been taken back, it is made again when it is asked for."""
        values = self.recorder.interpreter.values
        for number in self.post_program_numbers:
            definition: PostProgramValue = number._post_program
            if definition.is_made and isinstance(definition.made_tensor, Tensor) and id(definition.made_tensor) not in values:
                definition.made_tensor, definition.is_made = None, False

    def _extracted(self, source: Tensor, access: Access, value: Any, make: Callable[[], Any] = lambda: None) -> SymbolicNumber:
        """The value that `access` reads from the array of a tensor."""
        return self.define_post_program(
            PostProgramValue(None, make_tensor=make, max_bits=63, source=source, access=access, depends_on_tensors=True), value
        )

    def tensor_text(self, tensor: Tensor) -> Any:
        """repr(tensor), which is also str(tensor): a text that each call makes of the contents."""
        recorder = self.recorder
        kind, note = type(tensor).__name__, remark(tensor)
        text = recorder.containers.native(lambda: shown(tensor._array, kind, note))
        copy = None if recorder.stopped else recorder.interpreter.copy_of_contents(tensor)
        if copy is None:
            return text
        outside = recorder.tensors.get(id(tensor))
        if outside is not None and not outside.is_leaf and edge_of(tensor) == outside.edge:  # the text names its grad_fn
            recorder.miss_if(recorder.constant(remark).call(outside.variable).differs(note))
        return self._extracted(copy, lambda copied: recorder.constant(shown).call(copied.get("_array"), kind, note), text)

    def element(self, tensor: Tensor) -> Any:
        """The number in a tensor of one element.  None if it has more or is a bool, or the recording has stopped: Python then
        converts the tensor itself."""
        if self.recorder.stopped or tensor._array.size != 1 or FROM_NUMPY[tensor._array.dtype] is bool_:
            return None
        return self.recorder.interpreter.take_number(tensor)

    def define_post_program(self, definition: PostProgramValue, value: Any) -> SymbolicNumber:
        """A new post-program number.  value: its value in this run."""
        parts = [part._post_program for part in definition.parts if is_post_program(part)]
        definition.deferred = definition.deferred.union(*(part.deferred for part in parts))
        definition.depends_on_tensors = definition.depends_on_tensors or any(part.depends_on_tensors for part in parts)
        number = SymbolicNumber(self.recorder, self.recorder.variable(), value, definition)
        self.post_program_numbers.append(number)
        return number

    def post_program_binary(self, symbol: str, left: Any, right: Any, value: Any) -> Any:
        """left <symbol> right, of which at least one is a post-program number.  value: the result in this run."""
        if symbol == "**":
            return self._post_program_power(left, right, value)
        bits = None if type(value) is str else self._bits_of(symbol, left, right, value)
        if symbol not in _EXACT or type(value) not in (int, float) or bits is None:
            concretise(left), concretise(right)
            return value
        if symbol in _DIVISIONS:
            self._not_zero(right)
        expression = Arithmetic(symbol, self._expression(left), self._expression(right))
        return self.define_post_program(
            PostProgramValue(
                expression,
                (left, right),
                lambda: self.recorder.in_program.arithmetic_in_program(symbol, left, right, value, bits),
                bits,
            ),
            value,
        )

    def _post_program_power(self, left: Any, right: Any, value: Any) -> Any:
        """left ** right, where guards can ensure that it does not raise and has the type of `value`; else `value`, guarded."""
        base, exponent = plain(left), plain(right)
        conditions: list[tuple[Any, str, float]] | None = None
        bits = 0
        if type(value) not in (int, float):
            pass
        elif type(right) in (int, float) and type(base) is float:
            if abs(exponent) <= 900:
                most = 10.0 ** (300.0 / max(abs(exponent), 1.0))
                low = 0.0 if type(exponent) is float else -most
                if exponent < 0:
                    conditions = [(left, ">", 1 / most)] if base > 0 else [(left, "<", -1 / most)]
                    low = max(low, -most)
                else:
                    conditions = [(left, "<", most), (left, ">", low)]
        elif type(right) is int and 0 <= right <= _FLOATS and type(base) is int:
            length = self.bits_of(left)
            bits = _LONGEST if length is None else length * max(right, 1)
            conditions = [] if bits <= _FLOATS else None
        elif type(left) in (int, float) and left > 0 and (type(left) is float or type(exponent) is float):
            most = 900.0 // max(abs(math.log2(left)), 1.0)
            conditions = [(right, "<", most), (right, ">", -most)]
        elif is_symbolic(left) and not is_post_program(left) and type(base) is type(value) is float and 0 < base < math.inf:
            magnitude = max(1, math.ceil(abs(math.log2(base))))
            if magnitude <= 300:
                within = left._name.compared(">=", 2.0**-magnitude), left._name.compared("<=", 2.0**magnitude)
                self.recorder.miss_if(Not(And(within)))
                conditions = [(right, "<", 900.0 // magnitude), (right, ">", -(900.0 // magnitude))]
        if conditions is None or not all(COMPARISONS[symbol](plain(number), bound) for number, symbol, bound in conditions):
            concretise(left), concretise(right)
            return value
        for number, symbol, bound in conditions:
            self.guard_comparison(symbol, number, bound, True)
        expression = Arithmetic("**", self._expression(left), self._expression(right))
        return self.define_post_program(
            PostProgramValue(
                expression, (left, right), lambda: self.recorder.in_program.power_in_program(left, right, value), bits
            ),
            value,
        )

    def post_program_function(self, function: Any, arguments: tuple[Any, ...], value: Any) -> Any:
        """function(*arguments), of which at least one is a post-program number; None if it has to be called with guarded values.
        value: the result in this run."""
        if function is builtins.round:
            demands = self._demands_of_round(arguments)
        else:
            demands = _DEMANDS.get(function)
        kinds = {type(plain(a)) for a in arguments}
        if str in kinds:
            return None
        lengths = [self.bits_of(a) for a in arguments]
        if demands is None or type(value) not in (int, float) or None in lengths or (function in CHOOSING and len(kinds) > 1):
            return None
        if function not in CHOOSING and any(type(a) is SymbolicNumber for a in arguments[1:]):
            return None
        of_numpy = isinstance(plain(arguments[0]), np.integer)
        finite = of_numpy or type(plain(arguments[0])) is int
        finite = finite or (is_post_program(arguments[0]) and not arguments[0]._post_program.depends_on_tensors)  # a time
        conditions = [(symbol, bound) for symbol, bound in demands if not (finite and math.isinf(bound))]
        shortened = function in TO_INTEGERS and not finite and len(arguments) == 1 and abs(plain(arguments[0])) < 2.0**WORD
        if shortened:
            conditions = [("<", 2.0**WORD), (">", -(2.0**WORD))]
        if not all(COMPARISONS[symbol](plain(arguments[0]), bound) for symbol, bound in conditions):
            return None
        for symbol, bound in conditions:
            self.guard_comparison(symbol, arguments[0], bound, True)
        bits = WORD if shortened else _LONGEST if float in kinds else 64 if of_numpy else max(n for n in lengths if n is not None)
        expression = self.recorder.constant(function).call(*map(self._expression, arguments))
        return self.define_post_program(
            PostProgramValue(
                expression, arguments, lambda: self.recorder.in_program.function_in_program(function, arguments), bits
            ),
            value,
        )

    def post_program_item(self, items: tuple[Any, ...], position: SymbolicNumber) -> SymbolicNumber:
        """items[position], for a `position` that is guarded to be in range."""
        bits = max([self.bits_of(item) or 0 for item in items if type(item) is int], default=0)
        definition = PostProgramValue(
            self.recorder.constant(items).at(position._name),
            (position,),
            lambda: self.recorder.in_program.item_in_program(items, position),
            bits,
        )
        return self.define_post_program(definition, items[position._value])

    def post_program_sum(self, numbers: list[Any], value: Any) -> Any:
        """sum(numbers[1:], numbers[0]).  It is a call of `sum`, because Python may add floats more precisely than `+` does."""
        lengths = [self.bits_of(n) for n in numbers]
        if None in lengths or type(value) not in (int, float):
            return sum(map(concretise, numbers[1:]), concretise(numbers[0]))
        first, *others = map(self._expression, numbers)
        expression = self.recorder.constant(builtins.sum).call(tuple_of(*others), first)
        bits = max(n for n in lengths if n is not None) + len(numbers)
        return self.define_post_program(
            PostProgramValue(expression, tuple(numbers), lambda: self.recorder.in_program.total_in_program(numbers, bits), bits),
            value,
        )

    def post_program_fsum(self, numbers: list[Any], value: float) -> Any:
        """math.fsum(numbers), for numbers with which it cannot raise."""
        expression = self.recorder.constant(math.fsum).call(tuple_of(*map(self._expression, numbers)))
        if not any(map(is_post_program, numbers)):
            return self.recorder.define_number(expression, value, check_type=False)
        return self.define_post_program(PostProgramValue(expression, tuple(numbers)), value)

    @staticmethod
    def _demands_of_round(arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if len(arguments) == 1:
            return _DEMANDS[math.floor]
        digits = arguments[1]
        return () if type(digits) is int and 0 <= digits < 300 else None

    def _expression(self, value: Any) -> Expr:
        return value._name if type(value) is SymbolicNumber else self.recorder.number_expression(value)

    def are_short(self, values: Iterable[Any]) -> bool:
        """Whether each int in `values` is a post-program number or has a bounded length in every call, so that formatting it
        cannot raise."""
        return all(is_post_program(v) or self.bits_of(v) is not None for v in values if type(plain(v)) is int)

    def bits_of(self, value: Any) -> int | None:
        """The most bits of an int in any call, 0 for a float.  None if it may be too long for a float, or no number."""
        if is_deferred_call_result(value):
            return None
        if type(plain(value)) is float:
            return 0
        if is_post_program(value):
            bits: int = value._post_program.max_bits
            return bits if bits <= _FLOATS else None
        number = plain(value)
        if type(number) not in (int, bool):
            return None
        length = int(number.bit_length())
        if type(value) is not SymbolicNumber:
            return length if length <= _FLOATS else None
        most = next((most for most in _LENGTHS if length <= most), None)
        if most is not None:
            self.recorder.miss_if(Not(And((value._name.compared(">=", -(2**most)), value._name.compared("<", 2**most)))))
        return most

    def _bits_of(self, symbol: str, left: Any, right: Any, value: Any) -> int | None:
        """The most bits that left <symbol> right can have; None if that is not bounded."""
        a, b = self.bits_of(left), self.bits_of(right)
        if a is None or b is None:
            return None
        if symbol in _SHIFTS:
            if type(right) is not int or not 0 <= right <= _FLOATS:
                return None
            a, b = (a + right, 0) if symbol == "<<" else (a, 0)
        bits = a + b if symbol == "*" else max(a, b) + 1
        return bits if bits <= _FLOATS else None

    # -- errors
    def raises_again(self, function: Any, arguments: tuple[Any, ...], error: Exception) -> bool:
        """Guard the condition under which a function or operator of numbers has raised `error`, which user code may handle.
        False if the values have to be guarded instead: no condition is listed, or the message contains a number."""
        if any(str(plain(a)) in str(error) for a in arguments if is_symbolic(a)):
            return False
        if function in _DIVISIONS:
            left, divisor = arguments
            if type(error) is not ZeroDivisionError or plain(divisor) != 0 or self.bits_of(left) is None:
                return False
            if is_symbolic(divisor):
                self.guard_comparison("!=", divisor, 0, False)
            return True
        value = plain(arguments[0])
        for conditions in _RAISING.get(function, ()) if len(arguments) == 1 and type(value) in (int, float) else ():
            if all(COMPARISONS[symbol](value, bound) for symbol, bound in conditions):
                self._guard_demands(function, arguments[0])
                for symbol, bound in conditions:
                    self.guard_comparison(symbol, arguments[0], bound, True)
                return True
        return False

    def _guard_demands(self, function: Any, number: Any) -> None:
        """Guard which is the first condition that the function demands of a number and that does not hold: calls with which the function
        does not raise have guarded the same comparisons, with other outcomes, so a loop may have both."""
        for symbol, bound in _DEMANDS.get(function, ()):
            holds = COMPARISONS[symbol](plain(number), bound)
            if not (math.isinf(bound) and type(plain(number)) is int):
                self.guard_comparison(symbol, number, bound, holds)
            if not holds:
                return

    # -- readings of clocks
    def read_clock(self, clock: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of a function that reads a clock."""
        recorder = self.recorder
        value = clock(*arguments, **keywords)  # raises Python's error for wrong arguments
        definition = PostProgramValue(
            recorder.constant(clock).call(), (), lambda: None, 63, clock_after=recorder.effects.last_call()
        )
        definition.deferred = frozenset([definition])
        number = self.define_post_program(definition, value)
        if not recorder.interpreter.nodes and definition.clock_after is None:
            self.define_clock(number)
        return number

    def stand_in_for_result(
        self, answer: Any, code: str, detail: str, expression: Expr | None = None, parts: tuple[Any, ...] = ()
    ) -> SymbolicNumber:
        """A stand-in for the result of a deferred call, which is made when the program has run.  answer: the result in this run.

        code, detail: the reason with which the recording stops when the result is needed earlier.  expression: computes the
        result from `parts`; None if an effect makes the call."""
        definition = PostProgramValue(expression, parts, stop_reason=(code, detail))
        definition.deferred = frozenset([definition])
        return self.define_post_program(definition, answer)

    def _stop_for_deferred(self, readings: Iterable[PostProgramValue]) -> bool:
        """Stop the recording if there is a result of a deferred call among `readings`; whether there is."""
        answer = next((reading.stop_reason for reading in readings if reading.stop_reason), None)
        if answer is not None:
            self.recorder.stop(answer[0], f"{answer[1]}, whose answer is asked for before it is called,")
        return answer is not None

    def define_clock(self, number: Any) -> None:
        """Define a post-program number, and all that it depends on, in the prologue."""
        if is_post_program(number) and not number._post_program.is_in_prologue:
            for part in number._post_program.parts:
                self.define_clock(part)
            number._post_program.is_in_prologue = True
            self.recorder.prologue.append(Define(number._name.name, number._post_program.expression))

    def _decided_by_clocks(self, *numbers: Any) -> bool:
        """Whether `numbers`, which decide something, depend on readings.  If so, they are defined in the prologue; if it cannot
        compute them, the recording stops."""
        recorder = self.recorder
        definitions = [number._post_program for number in numbers if is_post_program(number)]
        readings: frozenset[PostProgramValue] = frozenset().union(*(definition.deferred for definition in definitions))
        if not readings:
            return False
        if self._stop_for_deferred(readings):
            pass
        elif any(reading.clock_after is not None for reading in readings):
            recorder.stop("clock", "a clock that is read after a call of something outside decides")
        elif any(definition.depends_on_tensors for definition in definitions):
            recorder.stop("clock", "a clock and results of the call decide together")
        elif len(readings) > 1:
            recorder.stop("clock", "the time between two readings of a clock in the call decides")
        for number in numbers:
            self.define_clock(number)
        return True

    # -- decisions
    def post_program_comparison(self, symbol: str, left: Any, right: Any, outcome: bool) -> Any:
        """left <symbol> right, of which at least one is a post-program number: the outcome, guarded.  For readings it is a
        post-program number itself, which is guarded when its truth decides something."""
        if any(is_post_program(number) and number._post_program.deferred for number in (left, right)):
            compare = self.recorder.constant(COMPARISONS[symbol])
            comparison = compare.call(self._expression(left), self._expression(right))
            return self.define_post_program(PostProgramValue(comparison, (left, right), lambda: None, 1), outcome)
        self.guard_comparison(symbol, left, right, outcome)
        return outcome

    def guard_comparison(self, symbol: str, left: Any, right: Any, outcome: bool) -> None:
        """Guard that left <symbol> right has this outcome, by an exit if one of them is a post-program number."""
        recorder = self.recorder
        if not (is_post_program(left) or is_post_program(right)) or self._decided_by_clocks(left, right):
            recorder.guard_outcome(Compare(symbol, self._expression(left), self._expression(right)), outcome)
            return
        operands = recorder.in_program.comparable(left, right)
        if operands is None:  # the program cannot compare them; the prologue can, with parts of the program guarded by value
            left, right = self.in_prologue(left), self.in_prologue(right)
            if is_symbolic(left) or is_symbolic(right):
                recorder.guard_outcome(Compare(symbol, self._expression(left), self._expression(right)), outcome)
            return
        self._decide(REGISTRY[SPECIAL_NAMES[symbol]], operands)

    def in_prologue(self, number: Any) -> Any:
        """A symbolic number of the prologue for a post-program number: the parts of it that the program computes are guarded by
        their values.  The plain value, guarded, if nothing else is in it."""
        recorder = self.recorder
        if not is_post_program(number):
            return number
        definition: PostProgramValue = number._post_program
        if not definition.is_in_prologue:
            parts = [self.in_prologue(part) for part in definition.parts]
            if not _is_number(number._value) or not any(map(is_symbolic, parts)):
                return concretise(number)
            for part, early in zip(definition.parts, parts, strict=True):
                if is_post_program(part) and not is_symbolic(early):
                    part._post_program.is_in_prologue = True
                    recorder.prologue.append(Define(part._name.name, recorder.constant(early)))
            self.define_clock(number)
            recorder.miss_if(number._name.type().is_not(recorder.constant(type(number._value))))
        return SymbolicNumber(self.recorder, number._name, number._value)

    def post_program_predicate(self, function: Any, number: Any) -> bool | None:
        """math.isfinite, isnan or isinf of a post-program number, guarded; None for other functions."""
        name = _PREDICATES.get(function)
        if name is None:
            return None
        value = bool(function(plain(number)))
        tensor = number._post_program.program_tensor()
        if tensor is None:
            concretise(number)
        elif type(plain(number)) is float:
            self._decide(REGISTRY[name], (tensor,))
        return value

    def guard_post_program(self, number: SymbolicNumber) -> None:
        """Guard the value of a post-program number, by an exit or through its parts; stop the recording if that is impossible."""
        recorder = self.recorder
        if number._post_program.deferred:
            if not self._stop_for_deferred(number._post_program.deferred):
                recorder.stop("clock", "the very time that a clock tells is asked for")
        elif number._post_program.is_in_prologue:
            if recorder.first_time("number", number._name):
                recorder.guard_value(number._value, number._name)
        elif recorder.first_time("number", number._name):
            tensor = number._post_program.program_tensor()
            if tensor is not None:
                recorder.interpreter.take(tensor)
            elif number._post_program.source is not None or number._post_program.is_outside_array:
                what = (
                    "is in an ndarray from outside" if number._post_program.is_outside_array else "has left as a text or an array"
                )
                recorder.stop("tensor_contents", f"what {what} decides")
            for part in number._post_program.parts if tensor is None else ():
                concretise(part)

    def _not_zero(self, divisor: Any) -> None:
        """Guard that a divisor is not 0.  For a time between two readings that cannot be guarded."""
        if is_post_program(divisor) and divisor._post_program.deferred:
            if divisor._post_program.depends_on_tensors:
                concretise(divisor)
        elif is_post_program(divisor):
            self.guard_comparison("!=", divisor, 0, True)
        elif type(divisor) is SymbolicNumber:
            self.recorder.miss_if(divisor._name.compared("==", 0))

    def _decide(self, op: Any, operands: tuple[Any, ...]) -> None:
        """Add a predicate to the program, and an exit for the case that it has another outcome than in this run."""
        self.recorder.interpreter.take(self.recorder.interpreter.bind(op, operands, {}))

    def as_python_number(self, value: Any) -> Any:
        """A number of NumPy's as one of Python's, for functions that take them for the same; other values unchanged."""
        return self.for_tensor_work(value) if is_post_program(value) and type(value._value) in NUMPY_NUMBERS else value

    def for_tensor_work(self, number: Any) -> Any:
        """A post-program number as an operand of a tensor operation.  If it depends on clocks, or on numbers from outside alone,
        it becomes a number of the prologue."""
        definition: PostProgramValue = number._post_program
        if definition.deferred or definition.depends_on_tensors or definition.source is not None:
            return SymbolicNumber(self.recorder, number._name, number._value) if self._decided_by_clocks(number) else number
        early = self.in_prologue(number)
        if not is_symbolic(early) or type(early._value) in (int, float):
            return early
        value: Any = plain_number(early._value)
        if type(value) not in (int, float):
            return concretise(number)
        return self.recorder.define_number(self.recorder.constant(type(value)).call(early._name), value, check_type=False)


def _is_number(value: Any) -> bool:
    """Whether `value` is a number of Python or NumPy."""
    return type(value) in (int, float) or isinstance(value, np.generic)
