"""Effects: changes that the run makes outside, noted so that the epilogue of the entry can make them again.

The run itself makes each change, too.  A *place* is an item of an outside dictionary (also of an instance's attributes or a
module's globals), a slot, a closure cell or a gradient; only the last value stored in it counts.  Other changes of containers are
method calls, which the epilogue repeats in order.  A place outside gets a plain number for a symbolic one;
`EffectHandlers.stored` has the symbolic one, which later reads of the place in this run get.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field, replace
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
    "GradUse",
    "ItemStore",
    "MethodCall",
    "StepChanges",
]

EffectTarget = tuple[int, Hashable]
_EMPTY_CELL = CellType()


class EpilogueExpressions(Protocol):
    """Gives the expressions of values in the epilogue (recipes.Recipes)."""

    def expression(self, value: Any) -> Expr: ...
    def source(self, value: Any) -> Expr: ...


class Effect(Protocol):
    """One statement of the epilogue."""

    value: Any

    def statement(self, values: EpilogueExpressions) -> Statement: ...


@dataclass(slots=True)
class AttributeStore:
    """owner.name = value, or del owner.name if the value is ABSENT.  It bypasses a `__setattr__` of the program, whose code has
    been recorded itself.  An attribute of a class is stored only if the metaclass has no `__setattr__`, and is never deleted."""

    owner: Any
    name: str
    value: Any

    def is_like(self, other: AttributeStore) -> bool:
        """Whether `other` does the same."""
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
    """container[key] = value, or del container[key] if the value is ABSENT."""

    container: Any
    key: Any
    value: Any

    def is_like(self, other: ItemStore) -> bool:
        """Whether `other` does the same."""
        return self.container is other.container and is_same(self.key, other.key) and is_same(self.value, other.value)

    def statement(self, values: EpilogueExpressions) -> Statement:
        owner, key = values.source(self.container), values.expression(self.key)
        cls = type(self.container)
        stored = [] if self.value is ABSENT else [values.expression(self.value)]
        if is_python_class(cls):  # bypasses methods of a subclass, whose code has been recorded itself
            method = "__setitem__" if stored else "__delitem__"
            return Evaluate(Name(builtin_base(cls).__name__).method(method, owner, key, *stored))
        return SetItem(owner, key, *stored) if stored else DeleteItem(owner, key)


@dataclass(slots=True)
class CellStore:
    """A store in a nonlocal variable.  cell: the expression of its closure cell."""

    cell: Expr
    value: Any

    def statement(self, values: EpilogueExpressions) -> Statement:
        return SetAttribute(self.cell, "cell_contents", values.expression(self.value))


@dataclass(slots=True)
class GradStore:
    """tensor.grad = value, the gradient at the end of the call."""

    tensor: Any
    value: Any

    def statement(self, values: EpilogueExpressions) -> Statement:
        return SetAttribute(values.source(self.tensor), "_grad", values.expression(self.value))


@dataclass(slots=True)
class GradUse:
    """What a step of a loop has done with the gradient of a leaf.  before: what that was before the step.  is_read: whether it was read
    before the step stored one; is_stored: whether that has stored one."""

    leaf: Any
    before: Any
    is_read: bool = False
    is_stored: bool = False

    def add(self, later: GradUse) -> None:
        """Note what was done after this."""
        self.is_read = self.is_read or (later.is_read and not self.is_stored)
        self.is_stored = self.is_stored or later.is_stored


@dataclass(slots=True)
class DataStore:
    """tensor.data = value: binds the tensor to the memory of another one."""

    tensor: Any
    value: Any

    def statement(self, values: EpilogueExpressions) -> Statement:
        return Evaluate(Name("share").call(values.source(self.tensor), values.expression(self.value)))


@dataclass(slots=True)
class MethodCall:
    """A call of a method that changes its container: `container.append(x)`."""

    container: Any
    method: str
    arguments: tuple[Any, ...]
    value: Any = None

    def statement(self, values: EpilogueExpressions) -> Statement:
        owner = values.source(self.container)
        arguments = [values.expression(a) for a in self.arguments]
        cls = type(self.container)
        if is_python_class(cls):  # bypasses methods of a subclass, whose code has been recorded itself
            return Evaluate(Name(builtin_base(cls).__name__).method(self.method, owner, *arguments))
        return Evaluate(owner.method(self.method, *arguments))


@dataclass(slots=True)
class FunctionCall:
    """A call of a function that changes something outside.  result: the stand-in for its result, None if that is not used."""

    function: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    value: Any = None
    result: Any = None

    def statement(self, values: EpilogueExpressions) -> Statement:
        arguments = [values.expression(a) for a in self.arguments]
        keywords = {name: values.expression(value) for name, value in self.keywords.items()}
        method = self.function if type(self.function) is MethodOf else None
        function = values.expression(self.function) if method is None else values.expression(method.owner).get(method.name)
        call = function.call(*arguments, **keywords)
        return Evaluate(call) if self.result is None else Define(self.result._name.name, call)


@dataclass(slots=True)
class StepChanges:
    """What a step of a branching loop has changed outside, while it runs.

    first_value, first_sequence: values of the graph, and nodes of the tape, with smaller numbers are from before the step.  gradients: of
    leaves, by their ids.  containers: dictionaries, by their ids, each with its contents before.  stores: the last ones, by places;
    positions: of all of them, among the effects.  replaced: by positions, effects from before the step that they have replaced.  own: by
    places, (owner, whether it is an item, key, value) of what is stored in dictionaries and instances that the call has made, which is no
    effect.  entered: nodes of the tape from before the step that backward passes have gone through."""

    first_value: int = 0
    first_sequence: float = 0
    gradients: dict[int, GradUse] = field(default_factory=dict)
    containers: dict[int, tuple[Any, dict[Any, Any]]] = field(default_factory=dict)
    stores: dict[EffectTarget, Effect] = field(default_factory=dict)
    positions: dict[EffectTarget, set[int]] = field(default_factory=dict)
    replaced: dict[int, Effect] = field(default_factory=dict)
    own: dict[EffectTarget, tuple[Any, bool, Any, Any]] = field(default_factory=dict)
    entered: set[Any] = field(default_factory=set)

    def add(self, later: StepChanges) -> None:
        """Note what was changed after this."""
        for use in later.gradients.values():
            self.note_grad(use)
        self.containers = {**later.containers, **self.containers}
        self.stores.update(later.stores)
        self.own.update(later.own)
        self.note_pass(later.entered)

    def note_pass(self, through: Iterable[Any]) -> None:
        """Note that a backward pass goes through these nodes of the tape."""
        self.entered.update(
            [node for node in through if node.sequence < self.first_sequence and not getattr(node, "freed", False)]
        )

    @property
    def has_freed(self) -> bool:
        """Whether a backward pass has freed the graph of something from before the step."""
        return any(getattr(node, "freed", False) for node in self.entered)

    def note_contents(self, container: Any) -> None:
        """Note what a container holds that is about to change, if it is a dictionary."""
        if isinstance(container, dict) and id(container) not in self.containers:
            self.containers[id(container)] = container, dict(dict.items(container))

    def note_grad(self, use: GradUse) -> None:
        """Note what was done with the gradient of a leaf."""
        self.gradients.setdefault(id(use.leaf), replace(use)).add(use)


def _value_at(store: AttributeStore | ItemStore) -> Any:
    """The value in the place of `store` if that is an item of a plain dictionary or a slot; else ABSENT."""
    if isinstance(store, ItemStore):
        return store.container.get(store.key, ABSENT) if type(store.container) is dict else ABSENT
    names = instance_dictionary(store.owner)
    if names is not None and dict.__contains__(names, store.name):
        return names[store.name] if type(names) is dict else ABSENT
    slots = [slot for name, slot in slots_of(type(store.owner)) if name == store.name]
    return slots[0].__get__(store.owner) if len(slots) == 1 else ABSENT


def _store_at(store: AttributeStore | ItemStore) -> None:
    """Put the value of `store` in its place, as a plain value.  `_value_at` must have found a value there."""
    if isinstance(store, ItemStore):
        store.container[store.key] = plain_value(store.value)
        return
    names = instance_dictionary(store.owner)
    if names is not None and store.name in names:
        names[store.name] = plain_value(store.value)
    else:
        dict(slots_of(type(store.owner)))[store.name].__set__(store.owner, plain_value(store.value))


class EffectHandlers(Handlers):
    """Notes effects; handles reads and writes of globals and closure cells.

    handles_in_blocks: whether a context manager of the program has been entered.  dropped: whether an object that weak references
    may refer to has been removed from a place.  step_changes: what the step of a branching loop that runs has changed; None outside of
    such."""

    handles_in_blocks = Variable(False)
    dropped = Variable(False)

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.step_changes: StepChanges | None = None
        self.in_order: list[Effect] = journal.list()
        self.opaque_calls: list[Reason] = journal.list()  # deferred ones, which are made after the program
        self.written: dict[EffectTarget, None] = journal.dictionary()
        # Stand-ins that this run has stored: later reads of these places get them instead of the plain values there.
        self.stored: dict[EffectTarget, Any] = journal.dictionary()
        # The places in `stored`, by the ids of their containers.
        self.stored_by_container: dict[int, dict[EffectTarget, None]] = journal.dictionary(Topic.INDEX)
        # ids of created named tuples and instances with places in `stored`, and of the dictionaries of such instances
        self.holders_of_stored: set[int] = set()
        # ids of dictionaries of created instances to which the program refers
        self.exposed_dictionaries: set[int] = journal.set(Topic.INDEX)
        self.content_guarded: set[int] = journal.set()  # ids of containers whose whole content is guarded
        # By id: the contents that other containers had before they were changed, as a list or dictionary.
        self.originals: dict[int, Any] = journal.dictionary()
        self.cells: dict[int, Expr] = journal.dictionary(Topic.READS)  # outside closure cells
        self._latest: dict[EffectTarget, int] = journal.dictionary(Topic.INDEX)  # place -> position of its store in `in_order`
        self.changed: dict[int, Any] = journal.dictionary()  # by id: objects of C code and queues that deferred calls change

    # -- changes
    def note_store(self, place: EffectTarget, effect: Effect) -> None:
        """Note that `effect` stores its value in `place`.  It replaces an earlier store there and keeps that one's position,
        which determines the order of keys in a dictionary."""
        if place not in self.written:
            self.written[place] = None
        self.remember(place, effect.value)
        if self.recorder.stopped:
            return
        position = self._latest.get(place)
        if position is not None and self.in_order[position].value is not ABSENT and effect.value is not ABSENT:
            if self.step_changes is not None and place not in self.step_changes.positions:
                self.step_changes.replaced[position] = self.in_order[position]
            self.in_order[position] = effect
        else:
            self._latest[place] = position = len(self.in_order)
            self.in_order.append(effect)
        if self.step_changes is not None:
            self.step_changes.stores[place] = effect
            self.step_changes.positions.setdefault(place, set()).add(position)
        self.recorder.keep.append(effect)

    def stores(self) -> dict[int, AttributeStore | ItemStore]:
        """The last store of each attribute of an instance and item of a plain dictionary, if the value is still there, by
        position in `in_order`.  A later store of the same place replaces it at that position."""
        effects = {k: self.in_order[k] for k in self._latest.values()}
        return {
            k: effect
            for k, effect in effects.items()
            if isinstance(effect, AttributeStore | ItemStore) and _value_at(effect) is plain_value(effect.value)
        }

    def store_again(self, position: int, value: Any) -> None:
        """Store another value in the place of the effect at `position`, one of `stores`."""
        effect: Any = replace(self.in_order[position], value=value)  # type: ignore[type-var]
        _store_at(effect)
        (place,) = self.places_of((position,))
        self.note_store(place, effect)

    def replace_stored(self, other: Callable[[Any], Any]) -> None:
        """Store `other(x)` in each attribute and item that holds what this run has stored last there, `x`, if it is another object."""
        for k in self._latest.values():
            effect = self.in_order[k]
            if not isinstance(effect, AttributeStore | ItemStore) or _value_at(effect) is ABSENT:
                continue
            if (value := other(effect.value)) is not effect.value:
                self.in_order[k] = stored = replace(effect, value=value)
                _store_at(stored)

    def positions_of(self, places: Collection[EffectTarget]) -> set[int]:
        """The positions of the last stores in these places."""
        return {self._latest[place] for place in places if place in self._latest}

    def places_of(self, positions: Collection[int]) -> set[EffectTarget]:
        """The places of the effects at `positions`, some of `stores`."""
        return {place for place, k in self._latest.items() if k in positions}

    def note_method(self, effect: MethodCall) -> None:
        """Note that a method changed an outside container.  Later stores in it do not replace those before the call."""
        if self.recorder.stopped:
            return
        self.in_order.append(effect)
        self.recorder.keep.append(effect)
        for place in [p for p in self._latest if p[0] == id(effect.container)]:
            del self._latest[place]

    def release_stored_objects(self) -> None:
        """Remove the stand-ins from all that this run has stored outside or passed to calls."""
        values: list[Any] = []
        for effect in self.in_order:
            values += effect.arguments if isinstance(effect, MethodCall | FunctionCall) else (effect.value,)
        without_stand_ins(values, self.recorder.is_outside)

    def release(self) -> None:
        """Release what the effects keep alive.  Nothing is recorded after this."""
        self.release_stored_objects()
        for table in (self.in_order, self.originals, self.stored, self.stored_by_container):
            table.clear()

    def note_call(self, effect: Effect, name: str) -> None:
        """Note a deferred call of opaque code.  Later stores do not replace those before it.  name: what the program called."""
        if not self.recorder.stopped:
            self.opaque_calls.append(make("outside_call", f"{name}()", user_line()))
            self.in_order.append(effect)
            self.recorder.keep.append(effect)
            self._latest.clear()

    def last_call(self) -> Any:
        """The last `FunctionCall` so far; None if there is none."""
        return next((effect for effect in reversed(self.in_order) if type(effect) is FunctionCall), None)

    def note_hit(self, effect: FunctionCall) -> None:
        """Note a call after the program that invalidates no earlier read: a counted hit of a cache, a sort of a list."""
        if not self.recorder.stopped:
            self.in_order.append(effect)
            self.recorder.keep.append(effect)

    def reaches_deferred_call(self, array: Any) -> bool:
        """Whether a deferred call gets `array`, itself or in what its arguments lead to."""
        calls = [effect for effect in self.in_order if isinstance(effect, FunctionCall)]
        return any(keeps_alive([call.function, call.arguments, call.keywords], array) for call in calls)

    def changes(self, container: Any) -> bool:
        """Whether the call has changed an outside container so far."""
        changed = any(isinstance(effect, ItemStore | MethodCall) and effect.container is container for effect in self.in_order)
        return changed or id(container) in self.originals or self.reaches_deferred_call(container)

    def note_own(self, owner: Any, contents: dict[Any, Any], key: Any, value: Any) -> None:
        """Note that an item of a dictionary, or an attribute of an instance, that the call has made is about to be stored.  contents: the
        dictionary, or that of the instance."""
        if self.step_changes is not None:
            self.step_changes.note_contents(contents)
            self.step_changes.own[id(contents), key] = owner, owner is contents, key, value

    def note_change(self, container: Any) -> None:
        """Note the content of an outside container that is about to change, unless it is guarded or noted already: later guards
        on the content refer to it."""
        if self.step_changes is not None:
            self.step_changes.note_contents(container)
        if not (self.recorder.stopped or id(container) in self.content_guarded or id(container) in self.originals):
            base = builtin_base(type(container))
            self.originals[id(container)] = (
                dict(base.items(container)) if issubclass(base, dict) else list(base.__iter__(container))
            )
            self.recorder.keep.append(container)

    def check_dropped(self, *values: Any) -> None:
        """Note that `values` are about to be removed from places outside.  The recording keeps them alive longer than the eager
        call would.  It stops if the program can see when one is deleted (`__del__`); weak references to them may not be read
        after this."""
        self.dropped = self.dropped or any(map(may_be_referred_to, values))
        for value in () if self.recorder.stopped else values:
            if deletion_is_visible(value):
                self.recorder.stop("implicit_python", f"the end of a {type(value).__name__}")

    def distinguishes_steps(self, owner: int) -> bool:
        """Whether the numbers in `stored` for the container of id `owner` count as a difference between two steps of a loop.  Not
        for created objects, whose contents are compared anyway, nor for shapes, unless they hold post-program numbers: each step
        that looks at a shape has new symbolic sizes."""
        if owner in self.holders_of_stored:
            return False
        is_shape = type(self.recorder.created.get(owner)) is Size
        return not is_shape or any(is_post_program(x) for (other, _), x in self.stored.items() if other == owner)

    def remember(self, place: EffectTarget, value: Any) -> None:
        """Set `stored` for a place that now holds `value`."""
        if plain_value(value) is not value:
            self.stored[place] = value
            self.stored_by_container.setdefault(place[0], self.journal.dictionary(Topic.INDEX))[place] = None
        elif place in self.stored:
            del self.stored[place], self.stored_by_container[place[0]][place]

    # -- attributes
    def note_attribute(self, owner: Any, name: str, value: Any) -> None:
        """Note that `owner.name` has been set to `value`, or deleted if that is ABSENT."""
        instance = None if is_a(owner, threading.local) else instance_dictionary(owner)
        slot = instance is None or (not dict.__contains__(instance, name) and value is not ABSENT)
        place: EffectTarget = (id(owner) if slot else id(instance), name)
        if self.recorder.is_outside(owner):
            self.note_store(place, AttributeStore(owner, name, value))
        elif place[0] in self.exposed_dictionaries or type(instance) not in (dict, type(None)):
            if value is not ABSENT:
                dict.__setitem__(instance, name, value)  # type: ignore[index]
        else:
            self.remember(place, value)
            self.holders_of_stored.add(place[0])
            self.recorder.keep.append(owner)

    def open(self, instance: dict[str, Any]) -> None:
        """Note that the program refers to the dictionary of a created instance.  From here on the dictionary holds symbolic
        numbers itself, like any other created container."""
        for place in self.stored_by_container.pop(id(instance), ()):
            instance[place[1]] = self.stored.pop(place)  # type: ignore[index]
        self.exposed_dictionaries.add(id(instance))

    # -- globals and cells
    def read_global(self, names: dict[str, Any], name: str, value: Any) -> Any:
        """The result of reading a global.  value: what the module has now."""
        place: EffectTarget = (id(names), name)
        if place in self.stored:
            return self.stored[place]
        return (
            value
            if place in self.written
            else self.recorder.read(value, self.recorder.constant(names).at(name), called=name, symbolic=True)
        )

    def read_builtin(self, names: dict[str, Any], name: str, value: Any) -> Any:
        """The result of reading a builtin: guards that no global has this name, and that the builtin is the same."""
        recorder = self.recorder
        if recorder.first_time("builtin", id(names), name):
            if not recorder.is_outside(value):
                recorder.register(value, recorder.constant(value))
            other = Name("builtin_names").at(name).is_not(recorder.constant(value))
            recorder.miss_if(recorder.constant(names).has(name).otherwise(other))
        return value

    def read_missing_global(self, names: dict[str, Any], name: str) -> None:
        """Guard that neither a global nor a builtin has this name."""
        if (id(names), name) not in self.written:
            self.recorder.miss_if(self.recorder.constant(names).has(name).otherwise(Name("builtin_names").has(name)))

    def write_global(self, names: dict[str, Any], name: str, value: Any) -> Any:
        """Note that a global is about to be stored; returns the value to store."""
        recorder = self.recorder
        if not recorder.is_outside(names):
            recorder.register(names, recorder.constant(names))
        value = recorder.contents.value_to_store(value)
        self.check_dropped(names.get(name))
        self.note_store((id(names), name), ItemStore(names, name, value))
        return plain_value(value)

    def read_cell(self, cell: Any, value: Any) -> Any:
        """The result of reading a closure cell.  value: what it holds now."""
        expression = self.cells.get(id(cell))
        place: EffectTarget = (id(cell), "cell")
        if place in self.stored:
            return self.stored[place]
        if expression is None or place in self.written:
            return value
        return self.recorder.read(value, expression.get("cell_contents"), called=self.recorder.facts.name(cell), symbolic=True)

    def is_untouched(self, cell: Any) -> bool:
        """Whether `cell` is an outside closure cell in which the call has not stored."""
        place = id(cell), "cell"
        return id(cell) in self.cells and place not in self.written and place not in self.stored

    def read_empty_cell(self, cell: Any) -> None:
        """Guard that a closure cell is empty.  The comparison with an empty cell runs no code of the program."""
        expression = self.cells.get(id(cell))
        if expression is not None and (id(cell), "cell") not in self.written:
            self.recorder.miss_if(expression.differs(self.recorder.constant(_EMPTY_CELL)))

    def write_cell(self, cell: Any, value: Any) -> Any:
        """Note that a closure cell is about to be stored; returns the value to store."""
        expression = self.cells.get(id(cell))
        if expression is None:
            return value
        value = self.recorder.contents.value_to_store(value)
        self.check_dropped(*([] if cell == _EMPTY_CELL else [cell.cell_contents]))
        self.note_store((id(cell), "cell"), CellStore(expression, value))
        return plain_value(value)
