"""Recipes: expressions by which the epilogue gets the values that a call returns or stores.

* An object from outside: the expression by which the call has reached it.
* A tensor: an output of the program.
* A number or constant: a literal or a constant of the entry.
* A new tuple, list, dict, set or plain object: statements that build it.

A value of another kind stops the recording.
"""

from __future__ import annotations

import collections
import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.capture.handlers.contents import has_stable_hash
from tracejit.capture.handlers.effects import Effect, FunctionCall
from tracejit.capture.handlers.post_program import PostProgramValue, definitions, is_post_program
from tracejit.capture.handlers.recorder import Recorder
from tracejit.capture.handlers.symbols import ObjectIdentity, SymbolicNumber, is_symbolic
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
    makes_records,
    slots_of,
)
from tracejit.capture.recording.selected_rows import numbers_of, objects_of, records_of, selected_rows, tensors_of
from tracejit.capture.stacked_items import STACKED, ItemObjects, StackedItems, StackedRecords
from tracejit.capture.tensors import RecordingInterpreter
from tracejit.capture.values import MODELS
from tracejit.replay.ir import (
    Constant,
    Define,
    Dictionary,
    Evaluate,
    Expr,
    Identity,
    ListOf,
    Name,
    SetAttribute,
    SetItem,
    SliceKey,
    Statement,
    tuple_of,
)
from tracejit.tensor import Size, Tensor

__all__ = ["Recipes"]

_OF_ITEMS: tuple[type, ...] = (list, dict, set, collections.OrderedDict)
_FEW = 6
"""Sets of at most so many members are built in each possible order, to find the one that gives their order."""


class Recipes:
    """Makes expressions for values.  statements: must run before the expressions are evaluated, in order.  outputs: the tensors
    that the program returns."""

    def __init__(self, recorder: Recorder, interpreter: RecordingInterpreter) -> None:
        self.recorder = recorder
        self.interpreter = interpreter
        self.statements: list[Statement] = []
        self.outputs: list[Tensor] = []
        self.post_program_numbers: list[SymbolicNumber] = []  # post-program numbers that expressions use
        self.fixed: list[np.ndarray[Any, Any]] = []  # arrays of constants that escape
        self._statements_up_to: dict[int, int] = {}  # id of an effect -> number of statements up to its own
        # result of a called function -> number of statements up to the call
        self._defined_results: dict[PostProgramValue, int] = {}
        self._expressions: dict[int, Expr] = {}

    def define_post_program(self) -> None:
        """Insert the definitions of post-program numbers before the statements that use them."""

        def tensor(value: PostProgramValue) -> Expr:
            if value.shares_source and self.recorder.is_outside(value.source):
                return self.source(value.source)
            return self._output(value.source)

        always = [number for number in self.recorder.extracted_numbers.post_program_numbers if number._post_program.may_warn]
        wanted = [*self.post_program_numbers, *always, *self.recorder.arrays.array_stores]
        by_position: dict[int, list[Statement]] = {}
        for value, statement in definitions(self.recorder.extracted_numbers.post_program_numbers, wanted, tensor):
            after = max(map(self._position_of, value.deferred), default=0)
            by_position.setdefault(after, []).append(statement)
        for position in sorted(by_position, reverse=True):
            self.statements[position:position] = by_position[position]

    def make(self, effect: Effect) -> None:
        """Append the statement of an effect, after those that build the values that it needs."""
        statement = effect.statement(self)
        self.statements.append(statement)
        self._statements_up_to[id(effect)] = len(self.statements)
        if isinstance(effect, FunctionCall) and effect.result is not None:
            self._defined_results[effect.result._post_program] = len(self.statements)

    def _is_known(self, reading: PostProgramValue) -> bool:
        """Whether `reading`, the result of a called function or a clock that is read after a call, is defined by now: the call is
        among the statements."""
        if reading.is_call_result:
            return reading in self._defined_results
        return reading.is_in_prologue or reading.clock_after is None or id(reading.clock_after) in self._statements_up_to

    def _position_of(self, reading: PostProgramValue) -> int:
        """The number of statements that come before the definition of `reading` (see `_is_known`)."""
        return self._defined_results.get(
            reading, 0 if reading.clock_after is None else self._statements_up_to.get(id(reading.clock_after), 0)
        )

    def source(self, value: Any) -> Expr:
        """The expression of an outside object."""
        return self.recorder.sources[id(value)]

    def expression(self, value: Any) -> Expr:
        """The expression for a value.  A value that cannot be built stops the recording."""
        recorder = self.recorder
        if is_symbolic(value):
            if is_post_program(value):
                self.post_program_numbers.append(value)
                if not all(map(self._is_known, value._post_program.deferred)):
                    recorder.stop("impure_call", "what a call has answered, stored in what was handed on before,")
            return value._name
        if is_a(value, np.ndarray):
            return self._array(value)
        existing = recorder.sources.get(id(value)) or self._expressions.get(id(value))
        if existing is not None:
            return existing
        cls = type(value)
        if cls in (bool, str, type(None)):
            return Constant(value)
        if cls is int:
            return recorder.number_expression(value)
        if is_a(value, Tensor):
            return self._tensor(value)
        if cls is ObjectIdentity:
            return Identity(self.expression(value.owner))
        if cls is types.MethodType:
            return self._method(value, value.__func__)
        if bound_to(value) is not None:
            return self._define(value, self.expression(value.__self__).get(value.__name__))
        if cls is slice:
            return self._define(value, Name("slice").call(*map(self.expression, (value.start, value.stop, value.step))))
        if cls in PRIMITIVE_TYPES or is_a(value, (*IDENTITY_TYPES, np.generic)) or cls in MODELS:
            return recorder.constant(value)
        build = self._builder(value, cls)
        if build is None or not (recorder.is_created(value) or (cls in (tuple, frozenset) and not value)):
            recorder.stop("unknown_origin" if build else "unbuildable", cls.__name__)
            return Constant(None)
        return build(value, cls)

    def _builder(self, value: Any, cls: Any) -> Callable[[Any, Any], Expr] | None:
        """The method that makes the expression for a new value of class `cls`; None if such a value cannot be built."""
        if cls in (tuple, Size) or (is_a(value, tuple) and hasattr(cls, "_fields") and not getattr(value, "__dict__", None)):
            return self._tuple
        if cls in (list, dict, set, collections.OrderedDict, collections.Counter, collections.defaultdict, collections.deque):
            return self._container
        if cls is frozenset:
            return self._frozenset
        if is_python_class(cls) and builtin_base(cls) in _OF_ITEMS:
            return self._object_with_items
        return self._object if cls is types.SimpleNamespace or self._is_plain_object(value, cls) else None

    def _frozenset(self, value: frozenset[Any], cls: type) -> Expr:
        return self._define(value, self.recorder.constant(cls).call(tuple_of(*map(self.expression, value))))

    def _array(self, value: np.ndarray[Any, Any]) -> Expr:
        recorder = self.recorder
        existing = recorder.sources.get(id(value)) or self._expressions.get(id(value))
        number = recorder.arrays.epilogue_arrays.get(id(value))
        if existing is not None:
            return existing
        if number is not None:
            return self.expression(number)
        shared = any(np.shares_memory(value, v) for v in self.fixed)
        copy = value.copy(order="K")
        if not recorder.arrays.is_fixed(value) or not value.flags.writeable or shared or copy.strides != value.strides:
            recorder.stop("unbuildable", f"array of shape {list(value.shape)}")
        self.fixed.append(value)
        return self._define(value, recorder.constant(copy).get("copy").call(order="K"))

    def _method(self, value: types.MethodType, function: Any) -> Expr:
        if not self.recorder.is_outside(function):
            self.recorder.stop("unbuildable", f"method {function.__qualname__}")
            return Constant(None)
        make = self.recorder.constant(types.MethodType)
        return self._define(value, make.call(self.source(function), self.expression(value.__self__)))

    def _define(self, value: Any, expression: Expr) -> Name:
        variable = self.recorder.variable()
        self.statements.append(Define(variable.name, expression))
        self._expressions[id(value)] = variable
        self.recorder.keep.append(value)
        return variable

    def _output(self, tensor: Tensor) -> Expr:
        """The expression of a tensor that the program gives and nothing else holds."""
        at = next((k for k, output in enumerate(self.outputs) if output is tensor), len(self.outputs))
        if at == len(self.outputs):
            self.outputs.append(tensor)
            self.recorder.keep.append(tensor)
        return Name(f"out{at}")

    def _tensor(self, tensor: Tensor) -> Expr:
        if (rows := self.recorder.ragged.deferred_rows(tensor)) is not None:
            select = self.recorder.constant(selected_rows)
            return self._define(tensor, select.call(self._output(rows.values), self._output(rows.inside)))
        self.recorder.ragged.escape(tensor)
        if self.interpreter.value_of(tensor) is None:
            self.recorder.stop("tensor_origin", "it is returned or stored")
            return Constant(None)
        cls = type(tensor)
        if tensor._hooks or not (cls is Tensor or self.recorder.is_created(tensor)):
            self.recorder.stop("unbuildable", f"{cls.__name__} with hooks" if tensor._hooks else cls.__name__)
            return Constant(None)
        variable = self._expressions[id(tensor)] = Name(f"out{len(self.outputs)}")
        self.outputs.append(tensor)
        self.recorder.keep.append(tensor)
        if cls is not Tensor:
            self.statements.append(SetAttribute(variable, "__class__", self.recorder.constant(cls)))
        for name, value in tensor.__dict__.items():
            self._put(variable.get("__dict__"), name, self._stored(tensor.__dict__, name, value))
        if tensor._grad is not None:
            self.statements.append(SetAttribute(variable, "_grad", self.expression(tensor._grad)))
        return variable

    def _put(self, owner: Expr, key: Any, value: Expr) -> None:
        self.statements.append(SetItem(owner, key if isinstance(key, Expr) else Constant(key), value))

    def _stored(self, container: Any, key: Any, value: Any) -> Expr:
        """The expression for an item or attribute of a new container or object: if a stand-in was stored there, of the
        stand-in."""
        return self.expression(self.recorder.effects.stored.get((id(container), key), value))

    def _tuple(self, value: tuple[Any, ...], cls: Any) -> Expr:
        elements = [self._stored(value, index, item) for index, item in enumerate(tuple.__iter__(value))]
        if cls is tuple:
            return self._define(value, tuple_of(*elements))
        maker = self.recorder.constant(cls)
        if cls is Size:
            return self._define(value, maker.call(tuple_of(*elements)))
        if makes_records(cls.__new__) and type(cls.__init__) is not types.FunctionType:
            return self._define(value, maker.call(*elements))
        return self._define(value, self.recorder.constant(tuple.__new__).call(maker, tuple_of(*elements)))

    def _container(self, value: Any, cls: type) -> Expr:
        part = _part_of_elements(value) if cls is list else None
        if part is not None:
            elements, section = part
            return self._define(value, self.expression(elements).at(section))
        variable = self._define(value, self._empty(value, cls))
        self._give_attributes(variable, value, cls)
        if is_a(value, dict):
            for key, item in value.items():
                self._put(variable, self.expression(key), self._stored(value, key, item))
        else:
            method = "add" if cls is set else "append"
            for item in self._insertion_order(value) if cls is set else value:
                if type(item) in STACKED:
                    self.statements.append(Evaluate(variable.method("extend", self._items(item))))
                else:
                    self.statements.append(Evaluate(variable.method(method, self.expression(item))))
        return variable

    def _items(self, items: StackedItems | StackedRecords) -> Expr:
        """The items of a list that are rows of a tensor, or are made of such."""
        if isinstance(items, StackedRecords):
            columns = [self._container(column, list) for column in items.columns]
            form, constants = map(self.recorder.constant, (items.form, items.constants))
            return self.recorder.constant(records_of).call(form, constants, *columns)
        if items.objects is not None:
            return self._numbered_items(items, items.objects)
        make = self.recorder.constant(tensors_of if items.holds is Tensor else numbers_of)
        ends = [None if x is None else self.expression(x) for x in (items.first, items.last)]
        ends = ends if any(x is not None for x in ends) else []
        rows = self.recorder.ragged.deferred_rows(items.rows)
        if rows is not None:
            return make.call(self._output(rows.values), self._output(rows.inside), *ends)
        self.recorder.ragged.escape(items.rows)
        return make.call(self._output(items.rows), None, *ends)

    def _numbered_items(self, items: StackedItems, objects: ItemObjects) -> Expr:
        """The items of a list of which several may be one object."""
        make, ragged = self.recorder.constant(objects_of), self.recorder.ragged
        known = ListOf(tuple([self._output(n) if isinstance(n, Tensor) else Constant(n) for n, _ in objects.known]))
        rest = self.expression(objects.made), known, *[self.expression(x) for _, x in objects.known]
        if (rows := ragged.deferred_rows(items.rows)) is None:
            ragged.escape(items.rows)
            ragged.escape(objects.numbers)
            return make.call(self._output(items.rows), self._output(objects.numbers), None, *rest)
        numbers: Any = ragged.rows_of(objects.numbers)  # selected as the items are
        return make.call(self._output(rows.values), self._output(numbers.values), self._output(rows.inside), *rest)

    def _insertion_order(self, members: set[Any]) -> list[Any]:
        """The members of a set in an order of insertion that gives a set with the iteration order of this one.

        The iteration order of a set depends on what was in it before; if no insertion order gives it, the recording stops.  If
        hashes of members depend on addresses, no program can rely on the order, and any will do."""
        current = list(set.__iter__(members))
        if not all(map(has_stable_hash, current)):
            return current
        orders = itertools.chain([current], itertools.permutations(current) if len(current) <= _FEW else ())
        for order in orders:
            rebuilt: set[Any] = set()
            for member in order:
                rebuilt.add(member)
            if all(map(operator.is_, rebuilt, current)):
                return list(order)
        self.recorder.stop("unbuildable", "set whose order depends on what it has lost")
        return current

    def _empty(self, value: Any, cls: type) -> Expr:
        if cls in (list, dict):
            return ListOf() if cls is list else Dictionary()
        maker = self.recorder.constant(cls)
        if cls is collections.defaultdict:
            return maker.call(self.expression(value.default_factory))
        return maker.call(maxlen=value.maxlen) if cls is collections.deque else maker.call()

    @staticmethod
    def _is_plain_object(value: Any, cls: type) -> bool:
        return has_plain_state(cls) and cls is not object and not hasattr(cls, "__next__")

    def _object(self, value: Any, cls: type) -> Expr:
        self.recorder.namespace["new_object"] = object.__new__
        maker = self.recorder.constant(cls)
        variable = self._define(value, maker.call() if cls is types.SimpleNamespace else Name("new_object").call(maker))
        self._give_attributes(variable, value, cls)
        return variable

    def _object_with_items(self, value: Any, cls: type) -> Expr:
        """An instance of a user-defined subclass of a container.  It is built without calling overridden methods, since what they
        did was recorded."""
        base: Any = builtin_base(cls)
        maker = self.recorder.constant(base)
        variable = self._define(value, maker.method("__new__", self.recorder.constant(cls)))
        self._give_attributes(variable, value, cls)
        if issubclass(base, dict):
            for key, item in base.items(value):
                key_expression = self.expression(key)
                self.statements.append(
                    Evaluate(maker.method("__setitem__", variable, key_expression, self._stored(value, key, item)))
                )
        else:
            method = "add" if base is set else "append"
            for item in self._insertion_order(value) if base is set else base.__iter__(value):
                self.statements.append(Evaluate(maker.method(method, variable, self.expression(item))))
        return variable

    def _give_attributes(self, variable: Name, value: Any, cls: type) -> None:
        for name, slot in slots_of(cls):
            if not is_empty(slot, value):
                item = self._stored(value, name, slot.__get__(value))
                self.statements.append(Evaluate(self.recorder.constant(slot).method("__set__", variable, item)))
        instance = instance_dictionary(value)
        if type(instance) not in (dict, type(None)) or self.recorder.is_outside(instance):
            self.recorder.stop("unbuildable", f"{cls.__name__}, whose attributes are in a {type(instance).__name__}")
        for name, item in () if instance is None else dict.items(instance):
            self._put(variable.get("__dict__"), name, self._stored(instance, name, item))


def _part_of_elements(numbers: list[Any]) -> tuple[SymbolicNumber, SliceKey] | None:
    """(the list of all elements of a tensor, a slice of it) for a list of numbers that are consecutive elements of the tensor;
    None for other lists."""
    if len(numbers) < 2 or not all(
        is_post_program(number) and number._post_program.tensor_element is not None for number in numbers
    ):
        return None
    tensor, start = numbers[0]._post_program.tensor_element
    for i, number in enumerate(numbers, start):
        source, index = number._post_program.tensor_element
        if source is not tensor or index != i:
            return None
    return numbers[0]._post_program.parts[0], SliceKey(Constant(start), Constant(start + len(numbers)))
