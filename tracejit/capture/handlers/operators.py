"""Operators, truth values and texts of objects: Python's protocols of special methods.

Python itself does operators between numbers, strings and tensors.  If an operand is an object of user code, the special methods
are looked up, with guards, and called through the recorder, in Python's order.
"""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from tracejit.capture.defects import does_as_python
from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.container_methods import IN_PLACE_METHODS
from tracejit.capture.handlers.identities import is_text
from tracejit.capture.handlers.post_program import is_deferred_call_result
from tracejit.capture.handlers.special_method_stub import SpecialMethodStub
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import ObjectIdentity, concretise, is_symbolic, is_symbolic_bool
from tracejit.capture.handlers.texts import as_text, is_open
from tracejit.capture.policies import (
    BINARY,
    C_CALLABLES,
    DICT_VIEWS,
    IN_PLACE,
    PRIMITIVE_TYPES,
    SPECIAL_NAMES,
    SWAPPED,
    TRANSPARENT_TYPES,
    UNARY,
    is_a,
    is_library_module,
    is_python_class,
    is_shareable,
    is_user_instance,
)
from tracejit.capture.value_kinds import IN_PYTHON, STAND_INS, Kind, by_kind, kind_of
from tracejit.capture.values import MODELS
from tracejit.capture.values.model import ALL_OPERATORS
from tracejit.core.dtypes import DType
from tracejit.core.interrupts import is_foreign
from tracejit.replay.ir import Conditional, Constant
from tracejit.tensor import Size, Tensor

__all__ = ["OperatorHandlers"]

_OPERANDS: tuple[type, ...] = (
    *PRIMITIVE_TYPES, list, tuple, dict, set, frozenset, slice, collections.deque, *DICT_VIEWS, type, types.UnionType,
    enum.Enum, DType, np.dtype, np.generic,
    types.FunctionType, types.MethodType, types.ModuleType, *C_CALLABLES,
)  # fmt: skip
"""Types whose operators in C depend on their operands alone."""
_OF_VALUES: dict[str, tuple[type, ...]] = {
    symbol: tuple([model.type for model in MODELS.values() if symbol in model.operators]) for symbol in ALL_OPERATORS
}
"""Operator -> the types with a model (../values/) whose operator depends on the operands and the environment of the model
alone."""
_CHANGEABLE: tuple[type, ...] = (list, dict, set, collections.deque)
"""Types of containers that operators change in place."""
_METHODS = {
    symbol: (f"__{name}__", f"__i{name}__", f"__{SPECIAL_NAMES[SWAPPED[symbol]] if symbol in SWAPPED else f'r{name}'}__")
    for symbol, name in SPECIAL_NAMES.items()
}
"""By the symbol of an operator: its special method, that in place, and that of the right operand."""
_CONVERSIONS: dict[int, Any] = {-1: lambda value: value, ord("s"): str, ord("r"): repr, ord("a"): ascii}


class OperatorHandlers(Handlers):
    """`a + b`, `a += b`, `-a`, `a < b`, `a in b`, `bool(a)`, f"{a}"."""

    # -- binary
    def binary(self, symbol: str, left: Any, right: Any, *, in_place: bool = False) -> Any:
        """left <symbol> right, for operators, comparisons and `is`.  in_place: left <symbol>= right.

        The operand of the higher kind decides, but for `is`, a store in an array from outside, and `%` of a text."""
        if symbol in ("is", "is not"):
            return self._identity_test(symbol, left, right)
        if in_place and is_a(left, np.ndarray) and self.recorder.arrays.is_written_to(left):
            return self.recorder.arrays.update_array(BINARY[symbol], IN_PLACE[symbol], left, right)
        if symbol == "%":
            if is_a(right, tuple) and self.recorder.effects.stored_by_container.get(id(right)):
                right = tuple(self.recorder.contents.elements(right))
            if type(left) is str:
                return self._binary_of_template(left, right, in_place)
        return _BINARY[max(kind_of(left), kind_of(right))](self, symbol, left, right, in_place)

    def _binary_of_template(self, left: str, right: Any, in_place: bool) -> Any:
        """left % right.  The text is a post-program value if one in `right` is."""
        texts = self.recorder.texts
        left, right = texts.with_texts(left, right)
        if any(map(_has_open_text, right if type(right) is tuple else (right,))):
            text = texts.post_program_percent(left, right)
            if text is not None:
                return text
        return _BINARY[kind_of(right)](self, "%", left, right, in_place)

    def _binary_of_plain(self, symbol: str, left: Any, right: Any, in_place: bool) -> Any:
        """By Python itself."""
        try:
            return _function(symbol, in_place)(left, right)
        except (ArithmeticError, TypeError, ValueError) as error:
            self.recorder.error_of_program(error)
            raise

    def _binary_of_stand_ins(self, symbol: str, left: Any, right: Any, in_place: bool) -> Any:
        """Of symbolic numbers and texts, and plain values beside them."""
        recorder, text = self.recorder, None
        if symbol == "*":
            text = recorder.texts.repeated(left, right)
        elif symbol == "+":
            text = recorder.texts.post_program_concatenation(left, right)
        if text is not None:
            return text
        try:
            return self._symbolic_binary(symbol, left, right, _function(symbol, in_place))
        except (ArithmeticError, TypeError, ValueError) as error:
            recorder.error_of_program(error)
            raise

    def _binary_of_moments(self, symbol: str, left: Any, right: Any, in_place: bool) -> Any:
        """Of a date, a time ..., or the result of a deferred call."""
        moments, arrays = self.recorder.environment_reads, self.recorder.arrays
        if (moments.is_moment(left) or moments.is_moment(right)) and not arrays.is_of_arrays(left, right):
            return moments.moment_binary(left, right, _function(symbol, in_place))
        return self._binary_of_arrays(symbol, left, right, in_place)

    def _binary_of_arrays(self, symbol: str, left: Any, right: Any, in_place: bool) -> Any:
        """By NumPy, except where a text is on the left, or there is no array."""
        if self.recorder.arrays.is_of_arrays(left, right):
            compute = _function(symbol, in_place and is_a(left, np.ndarray))
            return self.recorder.arrays.array_call(compute, (left, right))
        of_others = self._binary_of_stand_ins if _is_simple(left) and _is_simple(right) else self._binary_of_objects
        return of_others(symbol, left, right, in_place)

    def _binary_of_tensors(self, symbol: str, left: Any, right: Any, in_place: bool) -> Any:
        """By the methods of Tensor, unless methods of the program take part."""
        left, right = map(self.recorder.extracted_numbers.as_python_number, (left, right))
        has_array = is_a(right, np.ndarray) or (is_a(left, np.ndarray) and not in_place)
        if has_array and not (symbol == "@" and _differ(left, right)):  # NumPy's `@` promotes dtypes, the library's does not
            arrays = self.recorder.arrays
            left, right, in_place = arrays.as_operand(left), arrays.as_operand(right), False
        result = self._tensor_binary(symbol, left, right, in_place)
        return self._binary_of_objects(symbol, left, right, in_place) if result is ABSENT else result

    def _binary_of_objects(self, symbol: str, left: Any, right: Any, in_place: bool) -> Any:
        """By special methods, if an operand is of a class of the program."""
        recorder = self.recorder
        if ObjectIdentity in (type(left), type(right)) and symbol not in ("==", "!="):
            recorder.stop("object_identity", f"operator {symbol} on an id()")
        if symbol in ("==", "!=") and is_a(left, tuple) and is_a(right, tuple):
            same = recorder.sizes.same(left, right)
            if same is not None:
                return same is (symbol == "==")
        if is_user_instance(plain(left)) or is_user_instance(plain(right)):
            left, right = _as_operand(left), _as_operand(right)
            result = self._special_methods(symbol, left, right, in_place)
            if result is not ABSENT:
                return result
        return self._binary_of_containers(symbol, left, right, in_place)

    def _binary_of_containers(self, symbol: str, left: Any, right: Any, in_place: bool) -> Any:
        """Of a list or tuple, which may hold stand-ins, or in place of a container from outside; else by C code."""
        recorder = self.recorder
        if in_place and is_a(left, _CHANGEABLE) and recorder.is_outside(left):
            method = getattr(type(left), f"__i{SPECIAL_NAMES[symbol]}__", None)
            result = NotImplemented if method is None else self._special_method(method, left, right)
            if result is not NotImplemented:
                return result
        is_sequence = type(left) in (list, tuple)
        if is_sequence and type(right) is type(left) and symbol == "+":
            if in_place and type(left) is list:
                added = list(recorder.contents.elements(right))
                recorder.perform(lambda: left.extend(added))
                return left
            return recorder.mark_created(type(left)([*recorder.contents.elements(left), *recorder.contents.elements(right)]))
        if is_sequence and type(right) is type(left) and symbol in SWAPPED and recorder.containers.has_objects(left, right):
            return self._compare_sequences(symbol, left, right)
        if symbol == "*" and (is_sequence or type(right) in (list, tuple)):
            items, times = (left, concretise(right)) if is_sequence else (right, concretise(left))
            if type(times) is int and in_place and type(left) is list:
                return recorder.perform(lambda: operator.imul(left, times))
            if type(times) is int:
                return recorder.mark_created(type(items)(recorder.contents.elements(items)) * times)
        return self._binary_of_c_code(symbol, left, right, in_place)

    def _binary_of_c_code(self, symbol: str, left: Any, right: Any, in_place: bool) -> Any:
        """By C code that depends on the operands alone; it gets plain numbers."""
        recorder, compute = self.recorder, _function(symbol, in_place)
        left, right = recorder.contents.concretise_contents(left), recorder.contents.concretise_contents(right)
        if symbol == "%" and is_a(left, (str, bytes)):
            self.check_text(right)
        if symbol in SWAPPED and is_a(left, (list, tuple)) and recorder.containers.has_objects(left, right):
            for kind in (list, tuple):
                if is_a(left, kind) and is_a(right, kind):
                    return self._compare_sequences(symbol, left, right)
        for operand in (left, right):
            if not is_a(operand, _OPERANDS + _OF_VALUES.get(symbol, ())) and not (
                symbol in ("==", "!=") and type(operand).__eq__ is object.__eq__
            ):
                recorder.stop("unknown_call", f"operator {symbol} of a {type(operand).__name__}")
            recorder.contents.read_content(operand, deep=True)
        if is_a(left, np.generic) or is_a(right, np.generic):
            return recorder.arrays.numpy_computes(compute, (left, right))
        return recorder.mark_created(recorder.plain_values.computed(lambda: compute(left, right), (left, right)))

    def _compare_sequences(self, symbol: str, left: Any, right: Any) -> Any:
        """left <symbol> right, for two lists or tuples with objects of user code: the first elements that differ decide."""
        recorder = self.recorder
        if is_a(left, list) and recorder.containers.length(left) != recorder.containers.length(right) and symbol in ("==", "!="):
            return symbol == "!="
        for a, b in zip(recorder.contents.elements(left), recorder.contents.elements(right), strict=False):
            if not recorder.containers.equal(a, b):
                return symbol == "!=" if symbol in ("==", "!=") else self.binary(symbol, a, b)
        return BINARY[symbol](len(left), len(right))

    def _identity_test(self, symbol: str, left: Any, right: Any) -> bool:
        """`left is right` or `left is not right`, guarded where guards may hold for another object."""
        recorder = self.recorder
        if right is None and not is_symbolic(left):  # most common
            return (left is None) is (symbol == "is")
        if recorder.loop_stand_ins and type(left) is type(right):
            left, right = recorder.real_object(left), recorder.real_object(right)
        if any(is_deferred_call_result(x) or is_symbolic_bool(x) for x in (left, right)):
            left, right = concretise(left), concretise(right)
        if is_symbolic(left) or is_symbolic(right):
            if left is not right and type(plain(left)) is type(plain(right)):
                recorder.stop("object_identity", f"operator {symbol} on numbers")
            left, right = (left, right) if left is right else (plain(left), plain(right))
        are_equal = type(left) is type(right) and (is_text(left) or _may_be_copied(left)) and left == right
        if are_equal and (not is_text(left) or recorder.identities.is_same(left, right) is None):
            recorder.stop("object_identity", f"operator {symbol} on equal objects of type {type(left).__name__}")
        same = left is right
        source, other = recorder.sources.get(id(left)), recorder.sources.get(id(right))
        shareable = is_shareable(left) or is_shareable(right)  # for other objects, guards imply which are the same
        if source is not None and other is not None and shareable:
            recorder.miss_if(source.is_not(other) if same else source.is_same(other))
        return same is (symbol == "is")

    @staticmethod
    @does_as_python
    def _symbolic_binary(symbol: str, left: Any, right: Any, compute: Callable[[Any, Any], Any]) -> Any:
        """An operator of simple values of which at least one is symbolic."""
        for operand in (left, right):
            if not is_symbolic(operand) and type(operand) not in (int, float, bool):
                # Values of different types are unequal (`n == "all"`), whatever their values: that needs no guard.
                are_unequal = symbol in ("==", "!=") and not is_a(plain(left if operand is right else right), type(operand))
                return compute(*map(plain if are_unequal else concretise, (left, right)))
        try:
            return BINARY[symbol](left, right)
        except TypeError as error:  # its message may name the type of the stand-in
            if is_foreign(error):
                raise
            left, right = concretise(left), concretise(right)
        return compute(left, right)

    def _tensor_binary(self, symbol: str, left: Any, right: Any, in_place: bool) -> Any:
        """left <symbol> right by a method of Tensor; ABSENT if user code may take part."""
        recorder = self.recorder
        method, in_place_method, reflected = _METHODS[symbol]
        ragged = recorder.ragged
        result = ragged.in_place(method, left, right) if in_place else ragged.operator(method, reflected, left, right)
        if result is not ABSENT:
            return result
        for operand, methods in (
            (left, (in_place_method, method) if in_place else (method,)),
            (right, () if type(left) is type(right) else (reflected,)),
        ):
            if is_a(operand, Tensor):
                recorder.inspect(operand)
                for name in methods:
                    special, _ = recorder.attributes.lookup(type(operand), name)
                    if type(special) is FunctionType and not is_library_module(special.__globals__.get("__name__")):
                        return ABSENT
            elif not (_is_simple(operand) or is_a(operand, (list, tuple, np.generic))):
                return ABSENT
            elif is_a(operand, (list, tuple)):
                recorder.contents.read_content(operand, deep=True)
        compute = _function(symbol, in_place)
        return recorder.containers.native(lambda: compute(as_text(left), as_text(right)))

    def _special_methods(self, symbol: str, left: Any, right: Any, in_place: bool) -> Any:
        """left <symbol> right by special methods, tried in Python's order; ABSENT if one of them cannot be recorded."""
        recorder = self.recorder
        name = SPECIAL_NAMES[symbol]
        comparison = symbol in SWAPPED
        reflected = SPECIAL_NAMES[SWAPPED[symbol]] if comparison else f"r{name}"
        cls, other_cls = type(plain(left)), type(plain(right))
        forward: tuple[Any, Any, Any] = (recorder.attributes.lookup(cls, f"__{name}__")[0], left, right)
        backward = (recorder.attributes.lookup(other_cls, f"__{reflected}__")[0], right, left)
        candidates = [forward, backward]
        if cls is other_cls:
            candidates = candidates[: 2 if comparison else 1]
        elif issubclass(other_cls, cls) and (comparison or self._has_own(cls, reflected, backward[0])):
            candidates.reverse()
        if in_place:
            candidates.insert(0, (recorder.attributes.lookup(cls, f"__i{name}__")[0], left, right))
        concatenated = symbol in ("+", "*") and [(m, o, other) for m, o, other in candidates if _is_of_sequences(m)]
        for method, owner, other in candidates:
            if method is ABSENT or method is None or (concatenated and _is_of_sequences(method)):
                continue
            result = self._special_method(method, owner, other)
            if result is ABSENT:
                return ABSENT
            if result is not NotImplemented:
                return recorder.mark_created(result)
        if symbol in ("==", "!="):
            return (left is right) is (symbol == "==")
        if concatenated:  # Python tries the methods of sequences after those of numbers
            return self._concatenated(symbol, *concatenated[0])
        raise recorder.error_of_program(TypeError(_unsupported(symbol, plain(left), plain(right), in_place)))

    def _special_method(self, method: Any, owner: Any, other: Any) -> Any:
        """method(owner, other), for a special method; ABSENT, with a reason, if it cannot be recorded."""
        recorder = self.recorder
        if type(method) is FunctionType:
            return recorder.calls.call(method, (owner, other), {})
        if is_symbolic(owner) and not is_a(other, (int, float)):
            return NotImplemented  # numbers know nothing but numbers, whatever their values
        if method is object.__ne__:
            equal = recorder.attributes.lookup(type(owner), "__eq__")[0]
            result = NotImplemented if equal is None else self._special_method(equal, owner, other)
            return result if result is NotImplemented or result is ABSENT else not self.truth(result)
        owner, other = concretise(owner), concretise(other)
        if type(method) in C_CALLABLES and is_a(owner, _CHANGEABLE) and method.__name__ in IN_PLACE_METHODS:
            return recorder.container_methods.change_in_place(method.__get__(owner), owner, other)
        if type(method) in C_CALLABLES and (
            method.__objclass__ is object or is_a(owner, (list, tuple, dict, set, frozenset, str, bytes, int, float))
        ):
            recorder.contents.read_content(owner, deep=True)
            if not is_a(owner, (int, float)):  # methods of numbers look into no containers
                recorder.contents.read_content(other, deep=True)
            return recorder.containers.native(lambda: method(owner, other), (owner, other))
        recorder.stop("unknown_callable", type(method).__name__)
        return ABSENT

    def _concatenated(self, symbol: str, method: Any, owner: Any, other: Any) -> Any:
        """sequence + other, or sequence * other, in place or not, by a method of C code."""
        recorder = self.recorder
        if method.__name__ in IN_PLACE_METHODS:
            return recorder.container_methods.change_in_place(method.__get__(owner), owner, other)
        if symbol == "*":
            if recorder.attributes.lookup(type(other), "__index__")[0] is ABSENT:
                raise recorder.error_of_program(TypeError(f"can't multiply sequence by non-int of type {_type_name(other)!r}"))
            other = recorder.containers.index(other)
        recorder.contents.read_content(owner)
        recorder.contents.read_content(other)
        return recorder.mark_created(recorder.containers.native(lambda: method(owner, other)))

    def _has_own(self, base: type, name: str, method: Any) -> bool:
        """Whether `method`, of a subclass, overrides that of `base`: then Python tries it first."""
        return self.recorder.attributes.lookup(base, f"__{name}__")[0] is not method

    # -- unary, comparison, truth
    def unary(self, name: str, value: Any) -> Any:
        """`-value`, `+value` or `~value`; name: neg, pos or invert."""
        return _UNARY[kind_of(value)](self, name, value)

    def _unary_of_plain(self, name: str, value: Any) -> Any:
        """By Python itself, or by the methods of a stand-in."""
        return UNARY[name](value)

    def _unary_of_stand_in(self, name: str, value: Any) -> Any:
        """Of a date, a time ..., or the result of a deferred call, which has to be known."""
        is_moment = self.recorder.environment_reads.is_moment(value)
        return UNARY[name](value) if is_moment else self.unary(name, concretise(value))

    def _unary_of_array(self, name: str, value: Any) -> Any:
        return self.recorder.arrays.array_call(UNARY[name], (value,))

    def _unary_of_model(self, name: str, value: Any) -> Any:
        if name not in MODELS[type(value)].operators:
            return self._unary_of_opaque(name, value)
        return self.recorder.plain_values.computed(lambda: UNARY[name](value), (value,))

    def _unary_of_instance(self, name: str, value: Any) -> Any:
        """By the special method.  One of C code may be that of a value with a model, from which the class derives."""
        recorder = self.recorder
        method, _ = recorder.attributes.lookup(type(value), f"__{name}__")
        if type(method) is FunctionType:
            return recorder.calls.call(method, (value,), {})
        if is_a(value, tuple(MODELS)):
            return recorder.plain_values.computed(lambda: UNARY[name](value), (value,))
        return UNARY[name](value)

    def _unary_of_opaque(self, name: str, value: Any) -> Any:
        self.recorder.stop("unknown_call", f"the unary operator {name} of a {type(value).__name__}")
        return UNARY[name](value)

    def compare(self, symbol: str, left: Any, right: Any) -> Any:
        if symbol == "in":
            return self.recorder.containers.contains(left, right)
        if symbol == "not in":
            return not self.recorder.containers.contains(left, right)
        return self.binary(symbol, left, right)

    def truth(self, value: Any) -> bool:
        """bool(value), guarded."""
        return _TRUTH[kind_of(value)](self, value)

    def _truth_of_plain(self, value: Any) -> bool:
        """By Python itself, or by the methods of a stand-in."""
        return bool(value)

    def _truth_of_tensor(self, value: Any) -> bool:
        recorder = self.recorder
        recorder.inspect(value)
        number = recorder.extracted_numbers.element(value) if type(value) is Tensor else None
        return recorder.containers.native(lambda: bool(value)) if number is None else bool(number)

    def _truth_of_array(self, value: Any) -> bool:
        self.recorder.arrays.array_is_used(value)
        return self._truth_of_c_code(value)

    def _truth_of_container(self, value: Any) -> bool:
        return bool(self.recorder.containers.length(value) > 0)

    def _truth_of_value(self, value: Any) -> bool:
        """Of a value that nothing can change, or of a view: its content decides."""
        self.recorder.contents.read_content(value)
        return self._truth_of_c_code(value)

    def _truth_of_model(self, value: Any) -> bool:
        is_pure = "bool" in MODELS[type(value)].operators
        return self._truth_of_value(value) if is_pure else self._truth_of_opaque(value)

    def _truth_of_instance(self, value: Any) -> bool:
        """By `__bool__` or `__len__` of the program; without them, as of what its class derives from."""
        recorder = self.recorder
        method = recorder.attributes.method(value, "__bool__")
        if method is not None:
            result = recorder.calls.call(method, (value,), {})
            if type(plain(result)) is not bool:
                wrong = f"__bool__ should return bool, returned {type(plain(result)).__name__}"
                raise recorder.error_of_program(TypeError(wrong))
            return bool(result)
        if recorder.attributes.method(value, "__len__") is not None:
            return bool(recorder.containers.length(value))
        if is_a(value, np.ndarray):
            return self._truth_of_array(value)
        if is_a(value, (list, tuple, dict, set, frozenset, collections.deque)):
            return self._truth_of_container(value)
        return self._truth_of_value(value) if is_a(value, _OF_VALUES["bool"]) else self._truth_of_opaque(value)

    def _truth_of_opaque(self, value: Any) -> bool:
        """It is true if its type says nothing else."""
        if hasattr(type(value), "__bool__") or hasattr(type(value), "__len__"):
            self.recorder.stop("unknown_call", f"the truth value of a {type(value).__name__}")
            self.recorder.contents.read_content(value)
        return self._truth_of_c_code(value)

    def _truth_of_c_code(self, value: Any) -> bool:
        return self.recorder.containers.native(lambda: bool(value))  # type: ignore[no-any-return]

    def negated(self, value: Any) -> Any:
        """`not value`.  For a symbolic bool of the prologue it is one as well."""
        if not is_symbolic_bool(value) or self.recorder.stopped:
            return not self.truth(value)
        choice = Conditional(value._name, Constant(False), Constant(True))
        return self.recorder.define_number(choice, not value._value, check_type=False)

    def chosen(self, value: Any, yes: float, no: float) -> Any:
        """`yes if value else no`, for two numbers.  A number of the prologue, without a guard, if `value` is a symbolic bool and
        they have one type."""
        recorder = self.recorder
        if not is_symbolic_bool(value) or recorder.stopped or type(yes) is not type(no):
            return yes if self.truth(value) else no
        choice = Conditional(value._name, recorder.number_expression(yes), recorder.number_expression(no))
        return recorder.define_number(choice, yes if value._value else no, check_type=False)

    # -- text
    def check_text(self, value: Any) -> None:
        """Stop the recording if the text of `value` may hold an address."""
        if not _has_stable_text(value):
            self.recorder.stop("object_text", f"a {type(value).__name__}")

    def formatted(self, value: Any, conversion: int, specification: str) -> str:
        """The text of a field of an f-string: f"{value!r:specification}".  conversion: -1, or the code of `s`, `r` or `a`.  The
        text is a post-program value if `value` is."""
        return _FORMATTED[kind_of(value)](self, value, conversion, concretise(specification))

    def _text_of_stand_in(self, value: Any, conversion: int, specification: str) -> str:
        return self.recorder.texts.post_program_format(value, conversion, specification)  # type: ignore[no-any-return]

    def _text_of_tensor(self, value: Any, conversion: int, specification: str) -> str:
        """As its number, if that is all it has."""
        recorder = self.recorder
        if type(value) is Tensor and value._array.ndim == 0 and conversion == -1:
            number = recorder.extracted_numbers.element(value)
            number = recorder.containers.native(value.item) if number is None else number
            return self.formatted(number, conversion, specification)
        is_usual = not specification and self._prints_as_usual(type(value))
        recorder.inspect(value)
        if is_usual:
            return recorder.extracted_numbers.tensor_text(value)  # type: ignore[no-any-return]
        return self._text_by_c_code(value, conversion, specification)

    def _text_of_array(self, value: Any, conversion: int, specification: str) -> str:
        """By NumPy, after the program if the array is read there."""
        recorder, arrays = self.recorder, self.recorder.arrays
        if type(value) is np.ndarray and value.ndim == 0 and conversion == -1:
            return self.formatted(arrays.array_call(np.ndarray.item, (value,)), conversion, specification)
        if (conversion != -1 or not specification) and (
            id(value) in arrays.epilogue_arrays or (recorder.is_outside(value) and arrays.read_after_program(value))
        ):
            text = arrays.array_call(repr if conversion in (ord("r"), ord("a")) else str, (value,))
            if conversion == ord("a") or not is_open(text):
                return format(concretise(text), specification)
            return recorder.texts.post_program_format(text, -1, specification) if specification else text  # type: ignore[no-any-return]
        return self._text_of_instance(value, conversion, specification)

    def _text_of_container(self, value: Any, conversion: int, specification: str) -> str:
        texts = self.recorder.texts
        is_whole = type(value) in (list, tuple, dict) and not specification and conversion != ord("a")
        if is_whole and texts.holds_open(value):
            return texts.text_of_container(value)  # type: ignore[no-any-return]
        return self._text_of_opaque(value, conversion, specification)

    def _text_of_instance(self, value: Any, conversion: int, specification: str) -> str:
        """By the special methods of the program; without one, by C code."""
        recorder = self.recorder
        if type(value) is Size and not specification and recorder.effects.stored_by_container.get(id(value)):
            return recorder.texts.text_of_shape(value)  # type: ignore[no-any-return]
        if self._refuses_formats(value, conversion, specification):
            return format(value, specification)  # raises Python's error
        asked = 0 if conversion == -1 else 1 if conversion == ord("s") else 2
        for name in ("__format__", "__str__", "__repr__")[asked:]:
            method = recorder.attributes.method(value, name)
            if method is not None:
                text = recorder.calls.call(method, (value, specification)[: 1 + (name == "__format__")], {})
                if is_open(text) and type(plain(text)) is str and conversion != ord("a"):
                    is_done = name == "__format__" or not specification
                    return text if is_done else recorder.texts.post_program_format(text, -1, specification)  # type: ignore[no-any-return]
                function = "ascii" if conversion == ord("a") else name
                return recorder.perform(functools.partial(self._text_result, function, text, specification))
        return self._text_by_c_code(value, conversion, specification)

    def _text_of_opaque(self, value: Any, conversion: int, specification: str) -> str:
        if self._refuses_formats(value, conversion, specification):
            return format(value, specification)  # raises Python's error
        return self._text_by_c_code(value, conversion, specification)

    def _text_by_c_code(self, value: Any, conversion: int, specification: str) -> str:
        """By C code that depends on the content alone."""
        recorder = self.recorder
        self.check_text(value)
        if specification.endswith("n"):
            recorder.stop("impure_call", "a format that depends on the locale")
        recorder.plain_values.check_format(value, specification)
        recorder.contents.read_content(value, deep=True)
        return recorder.plain_values.computed(lambda: format(_CONVERSIONS[conversion](value), specification), (value,))

    def _refuses_formats(self, value: Any, conversion: int, specification: str) -> bool:
        """Whether `value` has but the `__format__` of object, which takes no specification."""
        asks = conversion == -1 and bool(specification)
        return asks and self.recorder.attributes.lookup(type(value), "__format__")[0] is vars(object)["__format__"]

    def _prints_as_usual(self, cls: type) -> bool:
        """Whether a subclass of Tensor overrides none of the methods that make its text."""
        methods = [self.recorder.attributes.lookup(cls, name)[0] for name in ("__format__", "__str__", "__repr__")]
        return methods == [vars(Tensor)["__format__"], vars(object)["__str__"], vars(Tensor)["__repr__"]]

    @staticmethod
    @does_as_python
    def _text_result(name: str, text: Any, specification: str) -> str:
        """The formatted result `text` of a special method `name`, or of the `__repr__` that `ascii` calls."""
        stub = SpecialMethodStub(text)
        if name == "__format__":
            return format(stub, "")
        if name == "ascii":
            return format(ascii(stub), specification)
        return format(repr(stub) if name == "__repr__" else str(stub), specification)


_BINARY = by_kind(
    OperatorHandlers._binary_of_objects,
    {
        OperatorHandlers._binary_of_plain: (Kind.PLAIN, Kind.TEXT),
        OperatorHandlers._binary_of_stand_ins: (Kind.SYMBOLIC,),
        OperatorHandlers._binary_of_moments: (Kind.SYMBOLIC_OBJECT,),
        OperatorHandlers._binary_of_arrays: (Kind.NUMPY_SCALAR, Kind.SYMBOLIC_SCALAR, Kind.ARRAY_SUBCLASS, Kind.ARRAY),
        OperatorHandlers._binary_of_tensors: (Kind.TENSOR,),
    },
)
_UNARY = by_kind(
    OperatorHandlers._unary_of_opaque,
    {
        OperatorHandlers._unary_of_plain: (Kind.PLAIN, Kind.TEXT, Kind.SYMBOLIC, Kind.NUMPY_SCALAR),
        OperatorHandlers._unary_of_stand_in: (Kind.SYMBOLIC_OBJECT,),
        OperatorHandlers._unary_of_model: (Kind.MODELLED,),
        OperatorHandlers._unary_of_instance: (*IN_PYTHON, Kind.ARRAY_SUBCLASS, Kind.TENSOR),
        OperatorHandlers._unary_of_array: (Kind.SYMBOLIC_SCALAR, Kind.ARRAY),
    },
)
_TRUTH = by_kind(
    OperatorHandlers._truth_of_opaque,
    {
        OperatorHandlers._truth_of_plain: (Kind.PLAIN, Kind.TEXT, *STAND_INS, Kind.IDENTITY),
        OperatorHandlers._truth_of_model: (Kind.MODELLED,),
        OperatorHandlers._truth_of_value: (Kind.NUMPY_SCALAR, Kind.ENUM, Kind.VIEW),
        OperatorHandlers._truth_of_container: (Kind.SET, Kind.MAPPING, Kind.SEQUENCE),
        OperatorHandlers._truth_of_instance: (*IN_PYTHON, Kind.ARRAY_SUBCLASS),
        OperatorHandlers._truth_of_array: (Kind.ARRAY,),
        OperatorHandlers._truth_of_tensor: (Kind.TENSOR,),
    },
)
_FORMATTED = by_kind(
    OperatorHandlers._text_of_opaque,
    {
        OperatorHandlers._text_of_stand_in: STAND_INS,
        OperatorHandlers._text_of_container: (Kind.SEQUENCE, Kind.MAPPING),
        OperatorHandlers._text_of_instance: (Kind.IDENTITY, *IN_PYTHON),
        OperatorHandlers._text_of_array: (Kind.ARRAY_SUBCLASS, Kind.ARRAY),
        OperatorHandlers._text_of_tensor: (Kind.TENSOR,),
    },
)


def _function(symbol: str, in_place: bool) -> Callable[[Any, Any], Any]:
    return (IN_PLACE if in_place else BINARY)[symbol]  # type: ignore[no-any-return]


def _has_open_text(value: Any) -> bool:
    """Whether the text of `value` may differ from call to call."""
    return is_open(value) or is_a(value, (Tensor, np.ndarray))


def _is_of_sequences(method: Any) -> bool:
    """Whether `method` is C code that concatenates or repeats sequences."""
    return getattr(method, "__objclass__", None) in (list, tuple, str, bytes, collections.deque)


def _type_name(value: Any) -> str:
    """The name of the type of a value in messages of C code."""
    cls = type(value)
    return cls.__name__ if is_python_class(cls) or cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def _unsupported(symbol: str, left: Any, right: Any, in_place: bool) -> str:
    """Python's message for operands that do not support the operator."""
    if symbol in SWAPPED:
        return f"{symbol!r} not supported between instances of {_type_name(left)!r} and {_type_name(right)!r}"
    operator = f"{symbol}=" if in_place else "** or pow()" if symbol == "**" else symbol
    return f"unsupported operand type(s) for {operator}: {_type_name(left)!r} and {_type_name(right)!r}"


def _may_be_copied(value: Any) -> bool:
    """Whether there may be other objects equal to `value`, a plain number, which a guard on its value does not exclude."""
    return not -5 <= value <= 256 if type(value) is int else type(value) in (float, complex)


def _has_stable_text(value: Any) -> bool:
    """Whether the text of a value depends on its guarded content alone: no addresses, no user code."""
    if type(value) in TRANSPARENT_TYPES and not is_a(value, (list, tuple, dict, set, frozenset)):
        return True
    if is_a(value, dict):
        return all(_has_stable_text(k) and _has_stable_text(v) for k, v in value.items())
    if is_a(value, (list, tuple, set, frozenset)):
        usual = type(value) is Size or not is_user_instance(value)
        return (usual and all(map(_has_stable_text, value))) or _is_record(value)
    if is_a(value, BaseException):
        return all(map(_has_stable_text, value.args))
    return is_a(value, (Tensor, np.generic, np.dtype, DType, enum.Enum, type, types.ModuleType)) or is_symbolic(value)


def _is_record(value: Any) -> bool:
    """Whether `value` is a named tuple whose fields have stable texts."""
    return is_a(value, tuple) and hasattr(type(value), "_fields") and all(map(_has_stable_text, value))


def _as_operand(value: Any) -> Any:
    """An operand of a special method: an int or float may stay symbolic; other stand-ins become plain values."""
    is_number = is_symbolic(value) and type(value._value) in (int, float) and not is_deferred_call_result(value)
    return value if is_number else concretise(value)


def _is_simple(value: Any) -> bool:
    return type(value) in PRIMITIVE_TYPES or is_symbolic(value)


def _differ(left: Any, right: Any) -> bool:
    """Whether a tensor and an array, in either order, have different dtypes."""
    first, second = (x._array if is_a(x, Tensor) else x for x in (left, right))
    return bool(first.dtype != second.dtype)
