"""How the epilogue gets the values that a call returns or stores.

Outside objects are reached by their expression again, tensors come out of the program, numbers and constants are written down, and new
tuples, lists, dicts, sets and plain objects are built anew.  What cannot be built stops the recording.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.capture.effects import Effect, EffectHandlers, FunctionCall
from tracejit.capture.late import Late, definitions, is_late
from tracejit.capture.policies import (
    IDENTITY_TYPES,
    PRIMITIVE_TYPES,
    bound_to,
    builtin_base,
    has_plain_state,
    instance_dictionary,
    is_a,
    is_empty,
    is_python_class,
)
from tracejit.capture.symbols import ObjectIdentity, SymbolicNumber, is_symbolic
from tracejit.capture.tensors import RecordingInterpreter
from tracejit.tensor import Size, Tensor

__all__ = ["Recipes"]

_OF_ITEMS: tuple[type, ...] = (list, dict, set, collections.OrderedDict)
_CONSTANT_TYPES: tuple[type, ...] = (
    range,
    decimal.Decimal,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
)


class Recipes:
    """Texts of expressions for values; `lines` must run before them, in order; `outputs` are the tensors the program returns."""

    def __init__(self, recorder: EffectHandlers, interpreter: RecordingInterpreter) -> None:
        self.recorder = recorder
        self.interpreter = interpreter
        self.lines: list[str] = []
        self.outputs: list[Tensor] = []
        self.late: list[SymbolicNumber] = []  # numbers that are computed after the program
        self.fixed: list[np.ndarray[Any, Any]] = []  # arrays of constants that leave
        self._made: dict[int, int] = {}  # effects, by their ids, and how many lines there were then
        self._answered: dict[Late, int] = {}  # what calls have answered, and how many lines there were then
        self._texts: dict[int, str] = {}

    def define_late(self) -> None:
        """Put the definitions of numbers that are computed after the program before all that uses them."""

        def tensor(late: Late) -> str:
            if late.shared and self.recorder.is_outside(late.source):
                return self.source(late.source)
            known = [i for i, output in enumerate(self.outputs) if output is late.source]
            if not known:
                known = [len(self.outputs)]
                self.outputs.append(late.source)
            return f"out{known[0]}"

        always = [number for number in self.recorder.late if number._late.warns]
        wanted = [*self.late, *always, *self.recorder.array_stores]
        places: dict[int, list[str]] = {}
        for late, line in definitions(self.recorder.late, wanted, tensor):
            after = max(map(self._place_of, late.readings), default=0)
            places.setdefault(after, []).append(line)
        for place in sorted(places, reverse=True):
            self.lines[place:place] = places[place]

    def make(self, effect: Effect) -> None:
        """Append the statement of an effect, behind the lines that build what it needs."""
        statement = effect.statement(self)
        self.lines.append(statement)
        self._made[id(effect)] = len(self.lines)
        if isinstance(effect, FunctionCall) and effect.answer is not None:
            self._answered[effect.answer._late] = len(self.lines)

    def _is_known(self, reading: Late) -> bool:
        """Whether the call has been made that answers it, or after which a clock is read."""
        if reading.awaited:
            return reading in self._answered
        return reading.placed or reading.behind is None or id(reading.behind) in self._made

    def _place_of(self, reading: Late) -> int:
        """How many lines come before an answer, or a clock that is read after a call."""
        return self._answered.get(reading, 0 if reading.behind is None else self._made.get(id(reading.behind), 0))

    def source(self, value: Any) -> str:
        """The expression of an outside object."""
        return self.recorder.sources[id(value)]

    def text(self, value: Any) -> str:
        """An expression for a value."""
        recorder = self.recorder
        if is_symbolic(value):
            if is_late(value):
                self.late.append(value)
                if not all(map(self._is_known, value._late.readings)):
                    recorder.stop("impure_call", "what a call has answered, stored in what was handed on before,")
            return str(value._text)
        if is_a(value, np.ndarray):
            return self._array(value)
        known = recorder.sources.get(id(value)) or self._texts.get(id(value))
        if known is not None:
            return known
        cls = type(value)
        if cls in (bool, str, type(None)):
            return repr(value)
        if cls is int:
            return recorder.number_text(value)
        if is_a(value, Tensor):
            return self._tensor(value)
        if cls is ObjectIdentity:
            recorder.namespace["id"] = id
            return f"id({self.text(value.owner)})"
        if cls is types.MethodType:
            return self._method(value, value.__func__)
        if bound_to(value) is not None:
            return self._define(value, f"{self.text(value.__self__)}.{value.__name__}")
        if cls is slice:
            return self._define(value, f"slice({', '.join(map(self.text, (value.start, value.stop, value.step)))})")
        if cls in PRIMITIVE_TYPES or is_a(value, (*IDENTITY_TYPES, np.generic)) or cls in _CONSTANT_TYPES:
            return recorder.constant(value)
        build = self._builder(value, cls)
        if build is None or not (recorder.is_made(value) or (cls in (tuple, frozenset) and not value)):
            recorder.stop("unknown_origin" if build else "unbuildable", cls.__name__)
            return "None"
        return build(value, cls)

    def _builder(self, value: Any, cls: Any) -> Callable[[Any, Any], str] | None:
        """What writes down how to make such a value anew; None for what cannot be."""
        if cls in (tuple, Size) or (is_a(value, tuple) and hasattr(cls, "_fields")):
            return self._tuple
        if cls in (list, dict, set, collections.OrderedDict, collections.Counter, collections.defaultdict, collections.deque):
            return self._container
        if cls is frozenset:
            return self._frozenset
        if is_python_class(cls) and builtin_base(cls) in _OF_ITEMS:
            return self._object_with_items
        return self._object if cls is types.SimpleNamespace or self._is_plain_object(value, cls) else None

    def _frozenset(self, value: frozenset[Any], cls: type) -> str:
        return self._define(value, f"{self.recorder.constant(cls)}(({''.join(self.text(v) + ', ' for v in value)}))")

    def _array(self, value: np.ndarray[Any, Any]) -> str:
        recorder = self.recorder
        known = recorder.sources.get(id(value)) or self._texts.get(id(value))
        number = recorder.left.get(id(value))
        if known is not None:
            return known
        if number is not None:
            return self.text(number)
        shared = any(np.shares_memory(value, v) for v in self.fixed)
        copy = value.copy(order="K")
        if not recorder.is_fixed(value) or not value.flags.writeable or shared or copy.strides != value.strides:
            recorder.stop("unbuildable", f"array of shape {list(value.shape)}")
        self.fixed.append(value)
        return self._define(value, f"{recorder.constant(copy)}.copy(order='K')")

    def _method(self, value: types.MethodType, function: Any) -> str:
        if not self.recorder.is_outside(function):
            self.recorder.stop("unbuildable", f"method {function.__qualname__}")
            return "None"
        make = self.recorder.constant(types.MethodType)
        return self._define(value, f"{make}({self.source(function)}, {self.text(value.__self__)})")

    def _define(self, value: Any, text: str) -> str:
        variable = self.recorder.variable()
        self.lines.append(f"{variable} = {text}")
        self._texts[id(value)] = variable
        self.recorder.keep.append(value)
        return variable

    def _tensor(self, tensor: Tensor) -> str:
        if self.interpreter.value_of(tensor) is None:
            self.recorder.stop("tensor_origin", "it is returned or stored")
            return "None"
        cls = type(tensor)
        if tensor._hooks or not (cls is Tensor or self.recorder.is_made(tensor)):
            self.recorder.stop("unbuildable", f"{cls.__name__} with hooks" if tensor._hooks else cls.__name__)
            return "None"
        self.outputs.append(tensor)
        variable = self._define(tensor, f"out{len(self.outputs) - 1}")
        if cls is not Tensor:
            self.lines.append(f"{variable}.__class__ = {self.recorder.constant(cls)}")
        for name, value in tensor.__dict__.items():
            self.lines.append(f"{variable}.__dict__[{name!r}] = {self._stored(tensor.__dict__, name, value)}")
        if tensor._grad is not None:
            self.lines.append(f"{variable}._grad = {self.text(tensor._grad)}")
        return variable

    def _stored(self, container: Any, key: Any, value: Any) -> str:
        """A value in a local container or object: a symbolic one if such was stored there."""
        return self.text(self.recorder.stored.get((id(container), key), value))

    def _tuple(self, value: tuple[Any, ...], cls: type) -> str:
        elements = [self._stored(value, index, item) for index, item in enumerate(tuple.__iter__(value))]
        if cls is tuple:
            return self._define(value, f"({', '.join(elements)}{',' if elements else ''})")
        maker = f"{self.recorder.constant(cls)}({', '.join(elements)})"
        return self._define(
            value, f"{self.recorder.constant(cls)}(({', '.join(elements)},))" if cls is Size and elements else maker
        )

    def _container(self, value: Any, cls: type) -> str:
        variable = self._define(value, self._empty(value, cls))
        if is_a(value, dict):
            for key, item in value.items():
                self.lines.append(f"{variable}[{self.text(key)}] = {self._stored(value, key, item)}")
        else:
            method = "add" if cls is set else "append"
            self.lines.extend([f"{variable}.{method}({self.text(item)})" for item in value])
        return variable

    def _empty(self, value: Any, cls: type) -> str:
        if cls in (list, dict):
            return "[]" if cls is list else "{}"
        maker = self.recorder.constant(cls)
        if cls is collections.defaultdict:
            return f"{maker}({self.text(value.default_factory)})"
        return f"{maker}(maxlen={value.maxlen})" if cls is collections.deque else f"{maker}()"

    @staticmethod
    def _is_plain_object(value: Any, cls: type) -> bool:
        return has_plain_state(cls) and cls is not object and not hasattr(cls, "__next__")

    def _object(self, value: Any, cls: type) -> str:
        self.recorder.namespace["new_object"] = object.__new__
        maker = self.recorder.constant(cls)
        variable = self._define(value, f"{maker}()" if cls is types.SimpleNamespace else f"new_object({maker})")
        self._give_attributes(variable, value, cls)
        return variable

    def _object_with_items(self, value: Any, cls: type) -> str:
        """An instance of a class of containers, past its methods: their code has been recorded itself."""
        base: Any = builtin_base(cls)
        made_by = self.recorder.constant(base)
        variable = self._define(value, f"{made_by}.__new__({self.recorder.constant(cls)})")
        self._give_attributes(variable, value, cls)
        if issubclass(base, dict):
            for key, item in base.items(value):
                self.lines.append(f"{made_by}.__setitem__({variable}, {self.text(key)}, {self._stored(value, key, item)})")
        else:
            method = "add" if base is set else "append"
            self.lines.extend([f"{made_by}.{method}({variable}, {self.text(item)})" for item in base.__iter__(value)])
        return variable

    def _give_attributes(self, variable: str, value: Any, cls: type) -> None:
        for name, slot in _slots(cls):
            if not is_empty(slot, value):
                item = self._stored(value, name, slot.__get__(value))
                self.lines.append(f"{self.recorder.constant(slot)}.__set__({variable}, {item})")
        instance = instance_dictionary(value) or {}
        for name, item in instance.items():
            self.lines.append(f"{variable}.__dict__[{name!r}] = {self._stored(instance, name, item)}")


def _slots(cls: type) -> list[tuple[str, Any]]:
    """Names and descriptors of the slots of instances."""
    classes = [base for base in cls.__mro__ if is_python_class(base)]
    return [(v.__name__, v) for base in classes for v in vars(base).values() if is_a(v, types.MemberDescriptorType)]
