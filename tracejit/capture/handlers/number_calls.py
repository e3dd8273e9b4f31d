"""Functions of symbolic numbers: `math`, `sum`, `max`, `divmod`, and tensors made of such numbers.

No value is guarded: the result of such a function is another symbolic number.  If the result is a bool, it is guarded.
"""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from typing import Any

import numpy as np

from tracejit.capture.handlers.attempts import attempt
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.contents import is_table
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain, plain_copy
from tracejit.capture.handlers.symbols import concretise, is_symbolic, is_symbolic_bool
from tracejit.capture.policies import COMPUTED_NUMBERS, PRIMITIVE_TYPES, is_a
from tracejit.core.dtypes import FROM_NUMPY, as_dtype, bool_, default_dtype, int64
from tracejit.core.interrupts import is_foreign
from tracejit.core.op import REGISTRY
from tracejit.replay.ir import Expr, ListOf, Name, TupleOf, tuple_of
from tracejit.tensor.construction import tensor

__all__ = ["NumberCallHandlers"]

_AS_OPERATORS: dict[Any, tuple[str, ...]] = {builtins.pow: ("**",), operator.pow: ("**",), builtins.divmod: ("//", "%")}
"""Function of two numbers -> the operators that compute its results."""
_LARGE = 1e300
"""The sum of _MOST floats below this is finite."""
_MOST = 64
"""The program builds a tensor of at most so many numbers one by one; one of more numbers is built in the prologue."""


def tensor_of_kind(kind: type, numbers: Any, **options: Any) -> Any:
    """tensor(numbers, **options), for numbers of type `kind`; raises TypeError if one has another type."""
    if any(type(number) is not kind for number in numbers):
        raise TypeError(f"a number that is no {kind.__name__}")
    return tensor(numbers, **options)


def _is_number(value: Any) -> bool:
    return is_symbolic(value) or type(value) in (int, float, bool)


def _of_numbers(values: Any) -> Any:
    """The elements of an iterator: a list if all are numbers, else an iterator that is lazy after the first other element.

    Comparisons of numbers call no user code, so exhausting the iterator before them makes no difference."""
    numbers: list[Any] = []
    for value in (iterator := iter(values)):
        numbers.append(value)
        if not _is_number(value):
            return itertools.chain(numbers, iterator)
    return numbers


class NumberCallHandlers(Handlers):
    """`math.cos(t)`, `divmod(t, 3)`, `sum(xs)`, `max(xs)`, `tensor([a, b])`."""

    def computed_number(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """function(*arguments), for a function in COMPUTED_NUMBERS of numbers: a symbolic number, or a guarded bool.  None if the
        function has to be called with plain values."""
        recorder = self.recorder
        if function is operator.index and len(arguments) == 1 and type(plain(arguments[0])) is int:
            return arguments[0]
        try:
            is_listed = function in COMPUTED_NUMBERS
            if (
                len(arguments) == 1
                and is_post_program(arguments[0])
                and (outcome := recorder.extracted_numbers.post_program_predicate(function, arguments[0])) is not None
            ):
                return outcome
        except TypeError as error:
            if is_foreign(error):
                raise
            return None
        if not is_listed or not all(is_symbolic(a) or type(a) in (int, float) for a in arguments):
            return None
        try:
            result = function(*map(plain, arguments))
        except (ArithmeticError, ValueError, TypeError) as error:  # user code may catch it: then numbers have decided a branch
            if not recorder.extracted_numbers.raises_again(function, arguments, error):
                for argument in arguments:
                    concretise(argument)
            raise
        if function in _AS_OPERATORS and len(arguments) == 2:
            results = tuple([recorder.operators.binary(symbol, *arguments) for symbol in _AS_OPERATORS[function]])
            return results[0] if len(results) == 1 else recorder.mark_created(results)
        if any(map(is_post_program, arguments)):
            return recorder.extracted_numbers.post_program_function(function, arguments, result)
        if (sized := recorder.sizes.computed_by(function, arguments)) is not None:
            return sized
        expression = recorder.constant(function).call(
            *[a._name if is_symbolic(a) else recorder.number_expression(a) for a in arguments]
        )
        if type(result) is bool:
            recorder.guard_outcome(expression, result)
            return result
        if type(result) not in (int, float) or result != result:
            return None
        return recorder.define_number(expression, result, check_type=True)

    def extreme(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """max(*arguments, **keywords) or min().  Keys and comparisons are called in Python's order."""
        recorder = self.recorder
        if len(arguments) > 1 and "default" in keywords:
            return recorder.perform(lambda: function(*arguments, **keywords))  # raises Python's error
        values = arguments if len(arguments) > 1 else recorder.iteration.iterate(arguments[0])
        key = keywords.get("key")
        if key is None and not is_a(values, (list, tuple, set, frozenset, dict)):
            values = _of_numbers(values)
        if key is None and is_a(values, (list, tuple, set, frozenset, dict)) and all(type(v) in PRIMITIVE_TYPES for v in values):
            return recorder.perform(lambda: function(values, **keywords))
        several = key is None and is_a(values, (list, tuple)) and len(values) > 1  # a single element is the result itself
        if several and any(map(is_post_program, values)) and all(map(_is_number, values)):
            number = recorder.extracted_numbers.post_program_function(function, tuple(values), function(map(plain, values)))
            if number is not None:
                return number
        if several and all(map(_is_number, values)) and (sized := recorder.sizes.computed_by(function, values)) is not None:
            return sized
        symbol = ">" if function is builtins.max else "<"
        is_empty = True
        best = best_key = None
        for value in values:
            value_key = value if key is None else recorder.calls.call(key, (value,), {})
            if is_empty or recorder.operators.truth(recorder.operators.binary(symbol, value_key, best_key)):
                is_empty, best, best_key = False, value, value_key
        if is_empty:
            # Raises Python's error.
            return keywords["default"] if "default" in keywords else recorder.perform(lambda: function(()))
        return best

    def total(self, values: Any, start: Any = 0) -> Any:
        """sum(values, start)."""
        if is_a(start, (str, bytes, bytearray)):
            return self.recorder.perform(lambda: sum(values, start))  # raises Python's error
        elements = iter(self.recorder.iteration.iterate(values))
        numbers, rest = [], []
        if _is_number(start):
            for value in elements:
                if not _is_number(value):
                    rest.append(value)
                    break
                numbers.append(value)
        total = self._sum_of_numbers(numbers, start) if numbers else start
        for value in itertools.chain(rest, elements):
            total = self.recorder.operators.binary("+", total, value)
        return total

    def _sum_of_numbers(self, numbers: list[Any], start: Any) -> Any:
        """sum(numbers, start), by one call of sum: Python may carry the rounding errors of floating-point additions along."""
        recorder = self.recorder
        result = sum(map(plain, numbers), plain(start))
        if not any(map(is_symbolic, (start, *numbers))):
            return result
        if any(map(is_post_program, (start, *numbers))):
            return recorder.extracted_numbers.post_program_sum([start, *numbers], result)
        if type(result) not in (int, float) or result != result:
            return sum(map(concretise, numbers), concretise(start))
        first, *others = [n._name if is_symbolic(n) else recorder.number_expression(n) for n in (start, *numbers)]
        return recorder.define_number(Name("sum").call(tuple_of(*others), first), result, check_type=True)

    def product(self, values: Any, start: Any = 1) -> Any:
        """math.prod(values, start=start), by one multiplication after the other."""
        result = start
        for value in self.recorder.iteration.iterate(values):
            result = self.recorder.operators.binary("*", result, value)
        return result

    def precise_total(self, values: Any) -> Any:
        """math.fsum(values).  For symbolic floats, guards ensure that they are small enough for it not to raise."""
        recorder = self.recorder
        numbers = list(recorder.iteration.iterate(values))
        usual = 0 < len(numbers) <= _MOST and any(map(is_symbolic, numbers)) and all(type(plain(n)) is float for n in numbers)
        if not usual or not all(abs(plain(n)) < _LARGE for n in numbers):
            plain_numbers = list(map(concretise, numbers))
            recorder.contents.read_content(plain_numbers, deep=True)
            return recorder.containers.native(lambda: math.fsum(plain_numbers))
        for number in filter(is_symbolic, numbers):
            recorder.extracted_numbers.guard_comparison("<", number, _LARGE, True)
            recorder.extracted_numbers.guard_comparison(">", number, -_LARGE, True)
        return recorder.extracted_numbers.post_program_fsum(numbers, math.fsum(map(plain, numbers)))

    # -- tensors
    def tensor_of_numbers(self, function: Any, data: Any, dtype: Any = None, requires_grad: Any = False) -> Any:
        """tensor(data) or as_tensor(data), for a number or nested lists or tuples of numbers, some of them symbolic: operations
        of the program build the tensor.  None for other data."""
        recorder = self.recorder
        scalar: Any = plain(data) if is_post_program(data) and not data._post_program.depends_on_tensors else None
        if is_a(scalar, np.generic) and scalar.dtype in FROM_NUMPY:  # the tensor gets the dtype of the scalar
            dtype = dtype or FROM_NUMPY[scalar.dtype]
            data = recorder.extracted_numbers.for_tensor_work(data)
        is_unread = self._is_unread(data)
        numbers: list[Any] = [*data] if is_unread else []
        shape = (len(numbers),) if is_unread else self._shape_of(data, numbers)
        if shape is None or not (is_unread or any(map(is_symbolic, numbers))):
            return None
        kinds = {type(plain(n)) for n in numbers}
        numbers = list(map(self._as_integer, numbers))
        whole = recorder.in_program.elements_as_tensor(numbers)
        are_many = whole is None and len(numbers) > _MOST
        if any(type(plain(n)) is int and not -(2**63) <= plain(n) < 2**63 for n in numbers):
            return None  # Python raises its error
        dtype = dtype or (default_dtype() if float in kinds else int64 if int in kinds else bool_)
        dtype = as_dtype(dtype, function.__name__)
        if not (dtype.is_floating_point or kinds == {bool} or (dtype is int64 and float not in kinds)):
            return None
        if are_many:
            return self._tensor_before(data, is_unread, dtype, recorder.operators.truth(requires_grad))
        bind, full = recorder.interpreter.bind, REGISTRY["full"]
        if whole is not None:
            out = bind(REGISTRY["cast"], (whole,), {"dtype": dtype})
            out = out if len(shape) == 1 else bind(REGISTRY["reshape"], (out,), {"shape": shape})
        else:
            filled = int64 if kinds == {bool} else dtype
            parts = [bind(full, (n,), {"shape": (1,) if shape else (), "dtype": filled}) for n in numbers]
            out = bind(REGISTRY["cat"], tuple(parts), {"dim": 0}) if shape else parts[0]
            out = out if filled is dtype else bind(REGISTRY["cast"], (out,), {"dtype": dtype})
            out = out if len(shape) <= 1 else bind(REGISTRY["reshape"], (out,), {"shape": shape})
        return out.requires_grad_() if recorder.operators.truth(requires_grad) else out

    def _tensor_before(self, data: Any, is_unread: bool, dtype: Any, requires_grad: bool) -> Any:
        """A tensor of many numbers that the prologue of each call creates; None if the program computes some of the numbers."""
        recorder = self.recorder
        nested = recorder.sources[id(data)] if is_unread else self._nested(data)
        if nested is None:
            return None
        result = recorder.unwatched(lambda: tensor(plain_copy(data), dtype=dtype))
        function = (tensor_of_kind, type(data[0])) if is_unread else (tensor,)
        call = recorder.constant(attempt).call(*map(recorder.constant, function), nested, dtype=recorder.constant(dtype))
        recorder.outside_tensor(result, call)
        return recorder.interpreter.bind(REGISTRY["clone"], (result,), {}).requires_grad_() if requires_grad else result

    def _is_unread(self, value: Any) -> bool:
        """Whether `value` is a long list from outside of numbers of one type, which need not be the same in each call, and this
        call has neither read nor changed it so far."""
        recorder, effects = self.recorder, self.recorder.effects
        if type(value) is not list or len(value) <= _MOST or not recorder.is_outside(value):
            return False
        if type(value[0]) not in (int, float, bool) or any(type(v) is not type(value[0]) for v in value):
            return False
        if id(value) in effects.content_guarded or effects.changes(value):
            return False
        return not is_table(list, value) or recorder.contents.has_varied(value)

    def _nested(self, value: Any) -> Expr | None:
        """The expression of a number or of nested lists and tuples of numbers; None if the program computes one of them."""
        recorder = self.recorder
        if is_post_program(value):
            needs_program = (
                value._post_program.depends_on_tensors or value._post_program.deferred or value._post_program.stop_reason
            )
            value = None if needs_program else recorder.extracted_numbers.in_prologue(value)
        if is_symbolic(value):
            return value._name  # type: ignore[no-any-return]
        if type(value) not in (list, tuple):
            return None if value is None else recorder.number_expression(value)
        parts = [self._nested(item) for item in recorder.contents.elements(value)]
        items = tuple([part for part in parts if part is not None])
        if len(items) < len(parts):
            return None
        return ListOf(items) if type(value) is list else TupleOf(items)

    def index_of(self, key: Any) -> Any:
        """`key`, the key of `tensor[key]`, with symbolic numbers for those of a tuple from outside, and with index tensors for
        lists of positions that may have other numbers in later calls."""
        if type(key) is not tuple:
            return self._positions(key)
        parts = tuple(map(self._positions, self.recorder.contents.elements(key)))
        return key if len(parts) == len(key) and all(map(operator.is_, parts, key)) else self.recorder.mark_created(parts)

    def _positions(self, key: Any) -> Any:
        recorder = self.recorder
        if type(key) is not list or any(type(plain(n)) is not int for n in key):
            return key
        if recorder.is_outside(key) and not (
            recorder.effects.stored_by_container.get(id(key)) or recorder.contents.has_varied(key)
        ):
            return key
        index = self.tensor_of_numbers(tensor, key)
        return key if index is None else index

    def _as_integer(self, number: Any) -> Any:
        """A bool as 0 or 1; any other number unchanged."""
        if is_symbolic_bool(number):
            return self.recorder.define_number(Name("int").call(number._name), int(number._value), check_type=False)
        return int(number) if type(number) is bool else number

    def _shape_of(self, value: Any, numbers: list[Any]) -> tuple[int, ...] | None:
        """The shape of nested lists and tuples, whose numbers are appended to `numbers`; None if it is not regular."""
        if type(plain(value)) in (int, float) or type(value) is bool or is_symbolic_bool(value):
            numbers.append(value)
            return ()
        if type(value) not in (list, tuple) or not value:
            return None
        if self.recorder.is_outside(value) and len(value) > _MOST:
            return None
        shapes = [self._shape_of(item, numbers) for item in self.recorder.contents.elements(value)]
        first = shapes[0]
        return None if first is None or any(shape != first for shape in shapes) else (len(shapes), *first)
