"""Functions of numbers that later calls compute again: `math`, `sum`, `max`, `divmod`, and tensors made of such numbers.

Nothing here looks at a value: what such a function comes to is another symbolic number, and what it answers is a guard on the answer.
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
from tracejit.capture.handlers.symbols import concrete, is_symbolic, is_symbolic_bool
from tracejit.capture.policies import COMPUTED_NUMBERS, PRIMITIVE_TYPES, is_a
from tracejit.core.dtypes import FROM_NUMPY, as_dtype, bool_, default_dtype, int64
from tracejit.core.interrupts import is_foreign
from tracejit.core.op import REGISTRY
from tracejit.replay.ir import Expr, ListOf, Name, TupleOf, tuple_of
from tracejit.tensor.construction import tensor

__all__ = ["NumberCallHandlers"]

_AS_OPERATORS: dict[Any, tuple[str, ...]] = {builtins.pow: ("**",), operator.pow: ("**",), builtins.divmod: ("//", "%")}
"""Functions of two numbers that operators compute."""
_LARGE = 1e300
_MOST = 64
"""A tensor of so many numbers is put together one by one."""


def tensor_of_kind(kind: type, numbers: Any, **options: Any) -> Any:
    """tensor() of numbers, all of which have one type; it raises where some have another."""
    if any(type(number) is not kind for number in numbers):
        raise TypeError(f"a number that is no {kind.__name__}")
    return tensor(numbers, **options)


def _is_number(value: Any) -> bool:
    return is_symbolic(value) or type(value) in (int, float, bool)


def _of_numbers(values: Any) -> Any:
    """What an iterator goes through, as a list if it is numbers alone: these are compared without a trace, so it does not matter that it is
    over before.  What else there is comes when it is asked for."""
    found: list[Any] = []
    for value in (iterator := iter(values)):
        found.append(value)
        if not _is_number(value):
            return itertools.chain(found, iterator)
    return found


class NumberCallHandlers(Handlers):
    """`math.cos(t)`, `divmod(t, 3)`, `sum(xs)`, `max(xs)`, `tensor([a, b])`."""

    def computed_number(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """A function of numbers, left to the prologue; None where it is not."""
        recorder = self.recorder
        try:
            known = function in COMPUTED_NUMBERS
            if (
                len(arguments) == 1
                and is_post_program(arguments[0])
                and (answer := recorder.extracted_numbers.post_program_predicate(function, arguments[0])) is not None
            ):
                return answer
        except TypeError as error:
            if is_foreign(error):
                raise
            return None
        if not known or not all(is_symbolic(a) or type(a) in (int, float) for a in arguments):
            return None
        try:
            result = function(*map(plain, arguments))
        except (
            ArithmeticError,
            ValueError,
            TypeError,
        ) as error:  # the program may catch it: the numbers have decided where it goes on
            if not recorder.extracted_numbers.raises_again(function, arguments, error):
                for argument in arguments:
                    concrete(argument)
            raise
        if function in _AS_OPERATORS and len(arguments) == 2:
            found = tuple([recorder.operators.binary(symbol, *arguments) for symbol in _AS_OPERATORS[function]])
            return found[0] if len(found) == 1 else recorder.mark_created(found)
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
        """max and min: keys and comparisons come in Python's order, between the elements."""
        recorder = self.recorder
        if len(arguments) > 1 and "default" in keywords:
            return recorder.perform(lambda: function(*arguments, **keywords))  # it raises what is to be raised
        values = arguments if len(arguments) > 1 else recorder.iteration.iterate(arguments[0])
        key = keywords.get("key")
        if key is None and not is_a(values, (list, tuple, set, frozenset, dict)):
            values = _of_numbers(values)
        if key is None and is_a(values, (list, tuple, set, frozenset, dict)) and all(type(v) in PRIMITIVE_TYPES for v in values):
            return recorder.perform(lambda: function(values, **keywords))
        several = key is None and is_a(values, (list, tuple)) and len(values) > 1  # of one there is nothing to compute
        if several and any(map(is_post_program, values)) and all(map(_is_number, values)):
            late = recorder.extracted_numbers.post_program_function(function, tuple(values), function(map(plain, values)))
            if late is not None:
                return late
        if several and all(map(_is_number, values)) and (sized := recorder.sizes.computed_by(function, values)) is not None:
            return sized
        symbol = ">" if function is builtins.max else "<"
        found = False
        best = best_key = None
        for value in values:
            value_key = value if key is None else recorder.calls.call(key, (value,), {})
            if not found or recorder.operators.truth(recorder.operators.binary(symbol, value_key, best_key)):
                found, best, best_key = True, value, value_key
        if not found:
            return keywords["default"] if "default" in keywords else recorder.perform(lambda: function(()))  # which raises
        return best

    def total(self, values: Any, start: Any = 0) -> Any:
        if is_a(start, (str, bytes, bytearray)):
            return self.recorder.perform(lambda: sum(values, start))  # it raises what is to be raised
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
        """Not one addition after the other: Python may carry the errors of floating-point additions along."""
        recorder = self.recorder
        result = sum(map(plain, numbers), plain(start))
        if not any(map(is_symbolic, (start, *numbers))):
            return result
        if any(map(is_post_program, (start, *numbers))):
            return recorder.extracted_numbers.post_program_sum([start, *numbers], result)
        if type(result) not in (int, float) or result != result:
            return sum(map(concrete, numbers), concrete(start))
        first, *others = [n._name if is_symbolic(n) else recorder.number_expression(n) for n in (start, *numbers)]
        return recorder.define_number(Name("sum").call(tuple_of(*others), first), result, check_type=True)

    def product(self, values: Any, start: Any = 1) -> Any:
        """math.prod: one multiplication after the other."""
        result = start
        for value in self.recorder.iteration.iterate(values):
            result = self.recorder.operators.binary("*", result, value)
        return result

    def precise_total(self, values: Any) -> Any:
        """math.fsum of numbers, none of which is so large that it raises."""
        recorder = self.recorder
        numbers = list(recorder.iteration.iterate(values))
        usual = 0 < len(numbers) <= _MOST and any(map(is_symbolic, numbers)) and all(type(plain(n)) is float for n in numbers)
        if not usual or not all(abs(plain(n)) < _LARGE for n in numbers):
            known = list(map(concrete, numbers))
            recorder.contents.read_content(known, deep=True)
            return recorder.containers.native(lambda: math.fsum(known))
        for number in filter(is_symbolic, numbers):
            recorder.extracted_numbers.guard_comparison("<", number, _LARGE, True)
            recorder.extracted_numbers.guard_comparison(">", number, -_LARGE, True)
        return recorder.extracted_numbers.post_program_fsum(numbers, math.fsum(map(plain, numbers)))

    # -- tensors
    def tensor_of_numbers(self, function: Any, given: Any, dtype: Any = None, requires_grad: Any = False) -> Any:
        """tensor() or as_tensor() of numbers of which some are symbolic, in nested lists or tuples: the program puts them together; None
        for other data."""
        recorder = self.recorder
        scalar: Any = plain(given) if is_post_program(given) and not given._late.of_program else None
        if is_a(scalar, np.generic) and scalar.dtype in FROM_NUMPY:  # it has the dtype that NumPy gave it
            dtype = dtype or FROM_NUMPY[scalar.dtype]
            given = recorder.extracted_numbers.for_tensor_work(given)
        is_unread = self._is_unread(given)
        numbers: list[Any] = [*given] if is_unread else []
        shape = (len(numbers),) if is_unread else self._shape_of(given, numbers)
        if shape is None or not (is_unread or any(map(is_symbolic, numbers))):
            return None
        kinds = {type(plain(n)) for n in numbers}
        numbers = list(map(self._as_integer, numbers))
        whole = recorder.in_program.elements_as_tensor(numbers)
        are_many = whole is None and len(numbers) > _MOST
        if any(type(plain(n)) is int and not -(2**63) <= plain(n) < 2**63 for n in numbers):
            return None  # it raises what is to be raised
        dtype = dtype or (default_dtype() if float in kinds else int64 if int in kinds else bool_)
        dtype = as_dtype(dtype, function.__name__)
        if not (dtype.is_floating_point or kinds == {bool} or (dtype is int64 and float not in kinds)):
            return None
        if are_many:
            return self._tensor_before(given, is_unread, dtype, recorder.operators.truth(requires_grad))
        bind, full = recorder.program.bind, REGISTRY["full"]
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

    def _tensor_before(self, given: Any, is_unread: bool, dtype: Any, requires_grad: bool) -> Any:
        """The tensor of many numbers of the prologue, which makes it in each call; None where some are of the program."""
        recorder = self.recorder
        nested = recorder.sources[id(given)] if is_unread else self._nested(given)
        if nested is None:
            return None
        made = recorder.unwatched(lambda: tensor(plain_copy(given), dtype=dtype))
        called = (tensor_of_kind, type(given[0])) if is_unread else (tensor,)
        make = recorder.constant(attempt).call(*map(recorder.constant, called), nested, dtype=recorder.constant(dtype))
        recorder.outside_tensor(made, make)
        return recorder.program.bind(REGISTRY["clone"], (made,), {}).requires_grad_() if requires_grad else made

    def _is_unread(self, value: Any) -> bool:
        """Whether it is a long list from outside, of numbers of one type that need not be the same in each call, which this call
        has neither read nor changed so far."""
        recorder, effects = self.recorder, self.recorder.effects
        if type(value) is not list or len(value) <= _MOST or not recorder.is_outside(value):
            return False
        if type(value[0]) not in (int, float, bool) or any(type(v) is not type(value[0]) for v in value):
            return False
        if id(value) in effects.content_known or effects.changes(value):
            return False
        return not is_table(list, value) or recorder.contents.has_varied(value)

    def _nested(self, value: Any) -> Expr | None:
        """The expression of numbers of the prologue, in nested lists and tuples; None where some are of the program."""
        recorder = self.recorder
        if is_post_program(value):
            late = value._late
            value = None if late.of_program or late.readings or late.answer else recorder.extracted_numbers.in_prologue(value)
        if is_symbolic(value):
            return value._name  # type: ignore[no-any-return]
        if type(value) not in (list, tuple):
            return None if value is None else recorder.number_expression(value)
        parts = [self._nested(item) for item in recorder.contents.elements(value)]
        known = tuple([part for part in parts if part is not None])
        if len(known) < len(parts):
            return None
        return ListOf(known) if type(value) is list else TupleOf(known)

    def index_of(self, key: Any) -> Any:
        """The key of an item of a tensor: symbolic numbers of a tuple from outside, tensors in the place of lists of positions that other
        calls may have others in."""
        if type(key) is not tuple:
            return self._positions(key)
        parts = tuple(map(self._positions, self.recorder.contents.elements(key)))
        return key if len(parts) == len(key) and all(map(operator.is_, parts, key)) else self.recorder.mark_created(parts)

    def _positions(self, key: Any) -> Any:
        recorder = self.recorder
        if type(key) is not list or any(type(plain(n)) is not int for n in key):
            return key
        if recorder.is_outside(key) and not (recorder.effects.numbered.get(id(key)) or recorder.contents.has_varied(key)):
            return key
        index = self.tensor_of_numbers(tensor, key)
        return key if index is None else index

    def _as_integer(self, number: Any) -> Any:
        """A truth value as 0 or 1; any other number as it is."""
        if is_symbolic_bool(number):
            return self.recorder.define_number(Name("int").call(number._name), int(number._value), check_type=False)
        return int(number) if type(number) is bool else number

    def _shape_of(self, value: Any, numbers: list[Any]) -> tuple[int, ...] | None:
        """The shape of nested lists and tuples, whose numbers are added to `numbers`; None where they are no regular ones."""
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
