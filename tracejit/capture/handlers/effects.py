"""Changes that the run makes outside, remembered so that the epilogue of the entry can make them again.

The run itself makes every change for real.  A *place* is an entry of an outside dictionary (instance dictionaries and module globals
included), a slot, a closure cell or a gradient; what counts is the last value stored in it.  Other changes of containers are
method calls, repeated in order.  A symbolic number is stored as a plain one, and `stored` remembers what later reads of the place
in this run must see.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from types import CellType
from typing import TYPE_CHECKING, Any, Protocol

from tracejit.capture.call_sites import user_line
from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.lifetimes import deletion_is_visible, keeps_alive, may_be_referred_to
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain_value, without_stand_ins
from tracejit.capture.handlers.symbols import MethodOf
from tracejit.capture.policies import builtin_base, instance_dictionary, is_a, is_name, is_python_class, slots_of, storing_base
from tracejit.capture.reasons import Reason, make
from tracejit.capture.recording.journal import Topic, Variable, is_same
from tracejit.replay.ir import Define, DeleteItem, Evaluate, Expr, Name, SetAttribute, SetItem, Statement
from tracejit.tensor import Size

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = [
    "AttributeStore",
    "CellStore",
    "DataStore",
    "Effect",
    "EffectHandlers",
    "EffectTarget",
    "EpilogueExpressions",
    "FunctionCall",
    "GradStore",
    "ItemStore",
    "MethodCall",
]

EffectTarget = tuple[int, Hashable]
_EMPTY_CELL = CellType()


class EpilogueExpressions(Protocol):
    """How the epilogue gets at values (recipes.Recipes)."""

    def expression(self, value: Any) -> Expr: ...
    def source(self, value: Any) -> Expr: ...


class Effect(Protocol):
    """One statement of the epilogue."""

    value: Any

    def statement(self, values: EpilogueExpressions) -> Statement: ...


@dataclass(slots=True)
class AttributeStore:
    """owner.name = value, or del owner.name for ABSENT, past any `__setattr__`: that one's code has been recorded itself.  Classes, whose
    attributes are not deleted, have none but type's."""

    owner: Any
    name: str
    value: Any

    def is_like(self, other: AttributeStore) -> bool:
        """Whether it does the same."""
        return self.owner is other.owner and self.name == other.name and is_same(self.value, other.value)

    def statement(self, values: EpilogueExpressions) -> Statement:
        owner = values.source(self.owner)
        base = type if is_a(self.owner, type) else storing_base(self.owner)
        kind = Name("object") if base is object else values.expression(base)
        if self.value is ABSENT:
            return Evaluate(kind.method("__delattr__", owner, self.name))
        value = values.expression(self.value)
        if type(self.owner).__setattr__ is base.__setattr__ and is_name(self.name):
            return SetAttribute(owner, self.name, value)
        return Evaluate(kind.method("__setattr__", owner, self.name, value))


@dataclass(slots=True)
class ItemStore:
    """container[key] = value, or del container[key] for ABSENT."""

    container: Any
    key: Any
    value: Any

    def is_like(self, other: ItemStore) -> bool:
        """Whether it does the same."""
        return self.container is other.container and is_same(self.key, other.key) and is_same(self.value, other.value)

    def statement(self, values: EpilogueExpressions) -> Statement:
        owner, key = values.source(self.container), values.expression(self.key)
        cls = type(self.container)
        stored = [] if self.value is ABSENT else [values.expression(self.value)]
        if is_python_class(cls):  # past the methods of a subclass: their code has been recorded itself
            method = "__setitem__" if stored else "__delitem__"
            return Evaluate(Name(builtin_base(cls).__name__).method(method, owner, key, *stored))
        return SetItem(owner, key, *stored) if stored else DeleteItem(owner, key)


@dataclass(slots=True)
class CellStore:
    """A nonlocal variable gets a value."""

    cell: Expr
    value: Any

    def statement(self, values: EpilogueExpressions) -> Statement:
        return SetAttribute(self.cell, "cell_contents", values.expression(self.value))


@dataclass(slots=True)
class GradStore:
    """tensor.grad gets its final state."""

    tensor: Any
    value: Any

    def statement(self, values: EpilogueExpressions) -> Statement:
        return SetAttribute(values.source(self.tensor), "_grad", values.expression(self.value))


@dataclass(slots=True)
class DataStore:
    """tensor.data is assigned: it is bound to the memory of another tensor."""

    tensor: Any
    value: Any

    def statement(self, values: EpilogueExpressions) -> Statement:
        return Evaluate(Name("share").call(values.source(self.tensor), values.expression(self.value)))


@dataclass(slots=True)
class MethodCall:
    """A container method that changes its container."""

    container: Any
    method: str
    arguments: tuple[Any, ...]
    value: Any = None

    def statement(self, values: EpilogueExpressions) -> Statement:
        owner = values.source(self.container)
        arguments = [values.expression(a) for a in self.arguments]
        cls = type(self.container)
        if is_python_class(cls):  # past the methods of a subclass: their code has been recorded itself
            return Evaluate(Name(builtin_base(cls).__name__).method(self.method, owner, *arguments))
        return Evaluate(owner.method(self.method, *arguments))


@dataclass(slots=True)
class FunctionCall:
    """A function is called for what it does outside.  answer: stands for what it says."""

    function: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    value: Any = None
    answer: Any = None

    def statement(self, values: EpilogueExpressions) -> Statement:
        arguments = [values.expression(a) for a in self.arguments]
        keywords = {name: values.expression(value) for name, value in self.keywords.items()}
        method = self.function if type(self.function) is MethodOf else None
        function = values.expression(self.function) if method is None else values.expression(method.owner).get(method.name)
        call = function.call(*arguments, **keywords)
        return Evaluate(call) if self.answer is None else Define(self.answer._name.name, call)


def _value_at(store: AttributeStore | ItemStore) -> Any:
    """What is in the place of a store, if that is in a plain dictionary or a slot; else ABSENT."""
    if isinstance(store, ItemStore):
        return store.container.get(store.key, ABSENT) if type(store.container) is dict else ABSENT
    names = instance_dictionary(store.owner)
    if names is not None and dict.__contains__(names, store.name):
        return names[store.name] if type(names) is dict else ABSENT
    slots = [slot for name, slot in slots_of(type(store.owner)) if name == store.name]
    return slots[0].__get__(store.owner) if len(slots) == 1 else ABSENT


def _store_at(store: AttributeStore | ItemStore) -> None:
    """Have its value in the place of a store, where `_value_at` finds it: a plain one, as Python code finds it."""
    if isinstance(store, ItemStore):
        store.container[store.key] = plain_value(store.value)
        return
    names = instance_dictionary(store.owner)
    if names is not None and store.name in names:
        names[store.name] = plain_value(store.value)
    else:
        dict(slots_of(type(store.owner)))[store.name].__set__(store.owner, plain_value(store.value))


class EffectHandlers(Handlers):
    """Notes stores; reads and writes of globals and closure cells.

    handles_in_blocks: whether a context manager of the program has been entered.  dropped: whether something that weak references may
    refer to has lost a place."""

    handles_in_blocks = Variable(False)
    dropped = Variable(False)

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.in_order: list[Effect] = journal.list()
        self.outside: list[Reason] = journal.list()  # calls that are made when the program has run
        self.written: set[EffectTarget] = journal.set()
        self.stored: dict[EffectTarget, Any] = journal.dictionary()
        self.numbered: dict[int, dict[EffectTarget, None]] = journal.dictionary(
            Topic.INDEX
        )  # the places in `stored`, by what they are in
        # ids of named tuples and instances that the call has made, and of their dictionaries, which have places of numbers
        self.of_objects: set[int] = set()
        self.opened: set[int] = set()  # ids of dictionaries of such instances that the program has
        self.content_known: set[int] = journal.set()  # containers whose whole content is guarded
        self.originals: dict[int, Any] = (
            journal.dictionary()
        )  # what was in containers that were changed while their content was not: lists or dictionaries
        self.cells: dict[int, Expr] = journal.dictionary()  # outside closure cells
        self._latest: dict[EffectTarget, int] = journal.dictionary(Topic.INDEX)
        self.changed: dict[int, Any] = journal.dictionary()  # objects of C code, and queues, that calls which are put off change

    # -- what is asked of the handlers of calls that are put off (outside_calls.py)

    # -- changes
    def note_store(self, place: EffectTarget, effect: Effect) -> None:
        """`effect` stores its value in `place`: only the last store counts, at the position of the first (dictionary order)."""
        self.written.add(place)
        self.remember(place, effect.value)
        if self.recorder.stopped:
            return
        position = self._latest.get(place)
        if position is not None and self.in_order[position].value is not ABSENT and effect.value is not ABSENT:
            self.in_order[position] = effect
        else:
            self._latest[place] = len(self.in_order)
            self.in_order.append(effect)
        self.recorder.keep.append(effect)

    def stores(self) -> dict[int, AttributeStore | ItemStore]:
        """Stores in attributes of instances and items of plain dictionaries that still have what was put there, by their positions in
        `in_order`.  Each is the last one of its place, and later ones take its turn."""
        effects = {k: self.in_order[k] for k in self._latest.values()}
        return {
            k: effect
            for k, effect in effects.items()
            if isinstance(effect, AttributeStore | ItemStore) and _value_at(effect) is plain_value(effect.value)
        }

    def store_again(self, position: int, value: Any) -> None:
        """Have another value in the place of one of `stores`."""
        effect: Any = replace(self.in_order[position], value=value)  # type: ignore[type-var]
        _store_at(effect)
        (place,) = self.places_of((position,))
        self.note_store(place, effect)

    def places_of(self, positions: Collection[int]) -> set[EffectTarget]:
        """The places of some of `stores`."""
        return {place for place, k in self._latest.items() if k in positions}

    def note_method(self, effect: MethodCall) -> None:
        """A method changed an outside container: stores before it stay before it."""
        if self.recorder.stopped:
            return
        self.in_order.append(effect)
        self.recorder.keep.append(effect)
        for place in [p for p in self._latest if p[0] == id(effect.container)]:
            del self._latest[place]

    def release_stored_objects(self) -> None:
        """What this run has made and put outside is for anybody from now on."""
        given: list[Any] = []
        for effect in self.in_order:
            given += effect.arguments if isinstance(effect, MethodCall | FunctionCall) else (effect.value,)
        without_stand_ins(given, self.recorder.is_outside)

    def release(self) -> None:
        """Nothing is recorded any more."""
        self.release_stored_objects()
        for held in (self.in_order, self.originals, self.stored, self.numbered):
            held.clear()

    def note_call(self, effect: Effect, name: str) -> None:
        """A function was called for what it does: stores before it stay before it.  name: what the program called."""
        if not self.recorder.stopped:
            self.outside.append(make("outside_call", f"{name}()", user_line()))
            self.in_order.append(effect)
            self.recorder.keep.append(effect)
            self._latest.clear()

    def last_call(self) -> Any:
        return next((effect for effect in reversed(self.in_order) if type(effect) is FunctionCall), None)

    def note_hit(self, effect: FunctionCall) -> None:
        """A function is called when the program has run that changes nothing which has to be looked up again: it counts a hit of a cache,
        or puts a list in order."""
        if not self.recorder.stopped:
            self.in_order.append(effect)
            self.recorder.keep.append(effect)

    def given_to_calls(self, array: Any) -> bool:
        calls = [effect for effect in self.in_order if isinstance(effect, FunctionCall)]
        return any(keeps_alive([call.function, call.arguments, call.keywords], array) for call in calls)

    def changes(self, container: Any) -> bool:
        """Whether the call has changed an outside container so far."""
        changed = any(isinstance(effect, ItemStore | MethodCall) and effect.container is container for effect in self.in_order)
        return changed or id(container) in self.originals or self.given_to_calls(container)

    def note_change(self, container: Any) -> None:
        """An outside container is about to be changed: guards look at what is in it now."""
        if not (self.recorder.stopped or id(container) in self.content_known or id(container) in self.originals):
            base = builtin_base(type(container))
            self.originals[id(container)] = (
                dict(base.items(container)) if issubclass(base, dict) else list(base.__iter__(container))
            )
            self.recorder.keep.append(container)

    def check_dropped(self, *values: Any) -> None:
        """Values are about to lose a place outside.  Where their end shows, or a weak reference is asked later on, it matters that the
        recording would keep them alive."""
        self.dropped = self.dropped or any(map(may_be_referred_to, values))
        for value in () if self.recorder.stopped else values:
            if deletion_is_visible(value):
                self.recorder.stop("implicit_python", f"the end of a {type(value).__name__}")

    def tells_steps_apart(self, owner: int) -> bool:
        """Whether numbers in the container of this id are more than snapshots know: they look at what is in objects that the call has made,
        and each step that looks at a shape has sizes of its own."""
        if owner in self.of_objects:
            return False
        is_shape = type(self.recorder.created.get(owner)) is Size
        return not is_shape or any(is_post_program(x) for (other, _), x in self.stored.items() if other == owner)

    def remember(self, place: EffectTarget, value: Any) -> None:
        if plain_value(value) is not value:
            self.stored[place] = value
            self.numbered.setdefault(place[0], self.journal.dictionary(Topic.INDEX))[place] = None
        elif place in self.stored:
            del self.stored[place], self.numbered[place[0]][place]

    # -- attributes
    def note_attribute(self, owner: Any, name: str, value: Any) -> None:
        instance = None if is_a(owner, threading.local) else instance_dictionary(owner)
        slot = instance is None or (not dict.__contains__(instance, name) and value is not ABSENT)
        place: EffectTarget = (id(owner) if slot else id(instance), name)
        if self.recorder.is_outside(owner):
            self.note_store(place, AttributeStore(owner, name, value))
        elif place[0] in self.opened or type(instance) not in (dict, type(None)):
            if value is not ABSENT:
                dict.__setitem__(instance, name, value)  # type: ignore[index]
        else:
            self.remember(place, value)
            self.of_objects.add(place[0])
            self.recorder.keep.append(owner)

    def open(self, instance: dict[str, Any]) -> None:
        """The program has the dictionary of an instance that the call has made: from here on it holds symbolic numbers itself, as any other
        container of the call's."""
        for place in self.numbered.pop(id(instance), ()):
            instance[place[1]] = self.stored.pop(place)  # type: ignore[index]
        self.opened.add(id(instance))

    # -- globals and cells
    def read_global(self, names: dict[str, Any], name: str, value: Any) -> Any:
        """A module's global was read."""
        place: EffectTarget = (id(names), name)
        if place in self.stored:
            return self.stored[place]
        return (
            value
            if place in self.written
            else self.recorder.read(value, self.recorder.constant(names).at(name), called=name, symbolic=True)
        )

    def read_builtin(self, names: dict[str, Any], name: str, value: Any) -> Any:
        """A name was not found among the globals, but among the builtins."""
        recorder = self.recorder
        if recorder.first_time("builtin", id(names), name):
            if not recorder.is_outside(value):
                recorder.register(value, recorder.constant(value))
            other = Name("builtin_names").at(name).is_not(recorder.constant(value))
            recorder.miss_if(recorder.constant(names).has(name).otherwise(other))
        return value

    def read_missing_global(self, names: dict[str, Any], name: str) -> None:
        """A name was found neither among the globals nor among the builtins."""
        if (id(names), name) not in self.written:
            self.recorder.miss_if(self.recorder.constant(names).has(name).otherwise(Name("builtin_names").has(name)))

    def write_global(self, names: dict[str, Any], name: str, value: Any) -> Any:
        """A global is about to be stored; returns what to store."""
        recorder = self.recorder
        if not recorder.is_outside(names):
            recorder.register(names, recorder.constant(names))
        value = recorder.contents.value_to_store(value)
        self.check_dropped(names.get(name))
        self.note_store((id(names), name), ItemStore(names, name, value))
        return plain_value(value)

    def read_cell(self, cell: Any, value: Any) -> Any:
        expression = self.cells.get(id(cell))
        place: EffectTarget = (id(cell), "cell")
        if place in self.stored:
            return self.stored[place]
        if expression is None or place in self.written:
            return value
        return self.recorder.read(value, expression.get("cell_contents"), called=self.recorder.facts.name(cell), symbolic=True)

    def is_untouched(self, cell: Any) -> bool:
        """Whether a variable around the function is as it was before the call."""
        place = id(cell), "cell"
        return id(cell) in self.cells and place not in self.written and place not in self.stored

    def read_empty_cell(self, cell: Any) -> None:
        """A closure cell was found empty.  Comparing a cell with an empty one runs no code."""
        expression = self.cells.get(id(cell))
        if expression is not None and (id(cell), "cell") not in self.written:
            self.recorder.miss_if(expression.differs(self.recorder.constant(_EMPTY_CELL)))

    def write_cell(self, cell: Any, value: Any) -> Any:
        expression = self.cells.get(id(cell))
        if expression is None:
            return value
        value = self.recorder.contents.value_to_store(value)
        self.check_dropped(*([] if cell == _EMPTY_CELL else [cell.cell_contents]))
        self.note_store((id(cell), "cell"), CellStore(expression, value))
        return plain_value(value)
