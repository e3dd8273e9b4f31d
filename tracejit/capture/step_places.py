"""The attributes and items outside of a step that steps of an outlined loop store in: `self.h = h`, `state["x"] = x`, `box.count += 1`;
and the lists that they append to: `self.history.append(x)`.

A step that stores in such a *place* carries it on as it does a variable: the place has slots, is stored to once after the loop, and is
as eager mode would have it wherever the recording stops.  Which places there are is read from the source of the step, and of the
methods and functions that it calls, before the loop: a store in any other place is refused, as every other change that a step makes
outside.  Looking for places runs no code of the program.

While a step runs in Python, its places hold stand-ins, as its variables do."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType, MemberDescriptorType, MethodType
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.handlers.base import ABSENT
from tracejit.capture.handlers.effects import AttributeStore, EffectTarget, ItemStore
from tracejit.capture.handlers.stand_ins import plain_value
from tracejit.capture.policies import instance_dictionary, is_a, is_library_module, is_user_instance, module_of, slots_of
from tracejit.capture.syntax.locate import NotConvertible, locate
from tracejit.capture.syntax.tree_walk import walk
from tracejit.core.weak_table import WeakTable
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["StepPlace", "places_of_step"]

_DEEPEST: Final = 6
"""Calls in calls whose source is looked at."""

Part = tuple[bool, Any]
"""One step of a chain: (whether it is an item, its key or name)."""
_ADDING: Final[tuple[tuple[Part, ...], ...]] = (((False, "append"),), ((False, "extend"),))
"""The ends of chains that are methods which add items to a list."""
Chain = tuple[str, tuple[Part, ...]]
"""A variable and the attributes and items that lead from it, as a source has them: `self.state["x"]`."""


@dataclass(frozen=True, slots=True)
class StepPlace:
    """owner, key: the object, and the name of the attribute or the key of the item.  only_in_place: whether all stores are augmented
    assignments, `box.total += x`, which keep the object if that is a tensor."""

    owner: Any
    key: Any
    is_item: bool
    only_in_place: bool

    @property
    def target(self) -> EffectTarget:
        """The place, as effects know it."""
        instance = None if self.is_item else instance_dictionary(self.owner)
        return id(self.owner) if instance is None or self.key not in instance else id(instance), self.key

    def current_value(self) -> Any:
        """What it holds in Python; ABSENT if nothing."""
        if self.is_item:
            return self.owner.get(self.key, ABSENT)
        instance = instance_dictionary(self.owner)
        if instance is not None and self.key in instance:
            return instance[self.key]
        slot = dict(slots_of(type(self.owner))).get(self.key)
        try:
            return ABSENT if slot is None else slot.__get__(self.owner)
        except AttributeError:
            return ABSENT

    def put(self, value: Any) -> None:
        """Have it hold a value in Python, which is no effect."""
        instance = None if self.is_item else instance_dictionary(self.owner)
        if self.is_item:
            self.owner[self.key] = value
        elif instance is not None and self.key in instance:
            instance[self.key] = value
        else:
            dict(slots_of(type(self.owner)))[self.key].__set__(self.owner, value)

    def value(self, recorder: Recorder) -> Any:
        """What it holds for the recorder; ABSENT if nothing.  It was read before."""
        return recorder.effects.stored.get(self.target, self.current_value())

    def read(self, recorder: Recorder) -> Any:
        """The same, guarded."""
        if self.is_item:
            return recorder.containers.get_item(self.owner, self.key)
        return recorder.attributes.get_attribute(self.owner, self.key)

    def store(self, recorder: Recorder, value: Any) -> None:
        """Store a value in it, as code of the program does."""
        if self.is_item:
            recorder.containers.set_base_item(value, self.owner, self.key)
        else:
            recorder.attributes.object_set_attribute(value, self.owner, self.key)

    def enter(self, recorder: Recorder, value: Any) -> None:
        """Have a step find `value` in it, with stand-ins."""
        effects = recorder.effects
        if recorder.is_outside(self.owner):
            effects.check_dropped(self.current_value())
            if (container := self.owner if self.is_item else instance_dictionary(self.owner)) is not None:
                effects.note_change(container)
            store = ItemStore(self.owner, self.key, value) if self.is_item else AttributeStore(self.owner, self.key, value)
            effects.note_store(self.target, store)
            self.put(plain_value(value))
        elif self.is_item:
            self.put(value)
        else:
            self.put(plain_value(value))
            effects.note_attribute(self.owner, self.key, value)


def places_of_step(
    recorder: Recorder, step: FunctionType, variables: Mapping[str, Any]
) -> tuple[dict[str, StepPlace], list[list[Any]]]:
    """The places that a step may store in, as the source has them, and the lists that it may append to.  variables: those that it is
    given."""
    search = _Search(recorder)
    search.visit(step, {name: (name, x, partial(variables.__getitem__, name)) for name, x in variables.items()}, 0)
    found: dict[EffectTarget, tuple[str, StepPlace, Callable[[], Any]]] = {}
    for text, place, read in search.found:
        known = found.get(place.target)
        in_place = place.only_in_place and (known is None or known[1].only_in_place)
        found[place.target] = text, StepPlace(place.owner, place.key, place.is_item, in_place), read
    result = {}
    for text, place, read in found.values():
        owner = read()
        if owner is place.owner and (id(owner) in recorder.created or id(owner) in recorder.sources):
            result[text] = place
    lists = {id(x): (x, read) for x, read in search.lists}
    return result, [x for x, read in lists.values() if read() is x and recorder.knows_origin(x)]


# -- sources
@dataclass(slots=True)
class _Source:
    """What the source of a function says.

    parameters: in their order.  aliases: variables to which chains are assigned.  stores: chains, and whether the store is an augmented
    assignment.  calls: the chain that is called, and those of the arguments, by position and name."""

    parameters: list[str] = field(default_factory=list)
    aliases: dict[str, Chain] = field(default_factory=dict)
    stores: list[tuple[Chain, bool]] = field(default_factory=list)
    calls: list[tuple[Chain, list[Chain | None], dict[str, Chain | None]]] = field(default_factory=list)


_sources: WeakTable[_Source] = WeakTable()


def _source_of(code: CodeType, names: dict[str, Any]) -> _Source:
    known = _sources.get(code)
    if known is None:
        known = _sources[code] = _Source()
        try:
            node = locate(code, names).node
        except NotConvertible:
            return known
        arguments = node.args
        known.parameters += [x.arg for x in (*arguments.posonlyargs, *arguments.args)]
        parts = [*walk(node)]
        augmented = [part.target for part in parts if isinstance(part, ast.AugAssign)]
        for part in parts:
            if isinstance(part, ast.Attribute | ast.Subscript) and isinstance(part.ctx, ast.Store):
                known.stores += [] if (chain := _chain(part)) is None else [(chain, any(part is x for x in augmented))]
            if isinstance(part, ast.Assign) and (chain := _chain(part.value)) is not None and chain[1]:
                known.aliases.update(dict.fromkeys([x.id for x in part.targets if isinstance(x, ast.Name)], chain))
            if isinstance(part, ast.Call) and (chain := _chain(part.func)) is not None:
                named = {x.arg: _chain(x.value) for x in part.keywords if x.arg is not None}
                known.calls.append((chain, list(map(_chain, part.args)), named))
    return known


def _chain(node: ast.expr) -> Chain | None:
    """The chain that an expression is; None if it is none."""
    parts: list[Part] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            parts.append((False, node.attr))
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and type(node.slice.value) in (str, int):
            parts.append((True, node.slice.value))
        else:
            return None
        node = node.value
    return node.id, tuple(reversed(parts))


# -- objects
Known = tuple[str, Any, Callable[[], Any]]
"""An object that a chain leads to: (its text, the object, reads it as code of the program does)."""


class _Search:
    """Looks for the places of a step.  found: (text, place, reads the owner).  lists: those that get items, each with what reads it."""

    def __init__(self, recorder: Recorder) -> None:
        self.found: list[tuple[str, StepPlace, Callable[[], Any]]] = []
        self.lists: list[tuple[list[Any], Callable[[], Any]]] = []
        self._recorder = recorder
        self._seen: list[tuple[Any, ...]] = []

    def visit(self, function: FunctionType, given: Mapping[str, Known], depth: int) -> None:
        """Look at a function.  given: what its variables hold."""
        key = (function, *[x for _, x, _ in given.values()])
        if depth > _DEEPEST or any(len(key) == len(x) and all(map(_is, key, x)) for x in self._seen):
            return
        self._seen.append(key)
        source = _source_of(function.__code__, function.__globals__)
        for (root, parts), in_place in source.stores:
            owner = self._resolved(function, given, (root, parts[:-1])) if parts else None
            if owner is not None:
                self._note(owner, parts[-1], in_place, depth)
        for chain, arguments, named in source.calls:
            if chain[1][-1:] in _ADDING and (owner := self._resolved(function, given, (chain[0], chain[1][:-1]))) is not None:
                self.lists += [(owner[1], owner[2])] if type(owner[1]) is list else []
            callee = self._resolved(function, given, chain, is_called=True)
            if callee is not None and type(callee[1]) in (FunctionType, MethodType):
                self._call(function, given, callee, arguments, named, depth)

    def _call(
        self,
        function: FunctionType,
        given: Mapping[str, Known],
        callee: Known,
        arguments: list[Chain | None],
        named: dict[str, Chain | None],
        depth: int,
    ) -> None:
        text, called, read = callee
        known = [None if x is None else self._resolved(function, given, x) for x in arguments]
        if type(called) is MethodType:
            known.insert(0, (text, called.__self__, read))
            called = called.__func__
        if type(called) is not FunctionType:
            return
        parameters = _source_of(called.__code__, called.__globals__).parameters
        passed = {**dict(zip(parameters, known, strict=False))}
        passed.update({name: None if x is None else self._resolved(function, given, x) for name, x in named.items()})
        self.visit(called, {name: x for name, x in passed.items() if x is not None}, depth + 1)

    def _note(self, owner: Known, part: Part, in_place: bool, depth: int) -> None:
        text, value, read = owner
        is_item, key = part
        if is_item != (type(value) is dict) or (not is_item and not _has_places(value)):
            return
        setter = None if is_item else _of_class(type(value), key)
        if type(setter) is property and type(setter.fset) is FunctionType:
            parameters = _source_of(setter.fset.__code__, setter.fset.__globals__).parameters
            self.visit(setter.fset, dict(zip(parameters[:1], [owner], strict=False)), depth + 1)
            return
        if setter is not None and hasattr(type(setter), "__set__") and type(setter) is not MemberDescriptorType:
            return
        place = StepPlace(value, key, is_item, in_place)
        if place.current_value() is not ABSENT:
            self.found.append((f"{text}[{key!r}]" if is_item else f"{text}.{key}", place, read))

    def _resolved(
        self, function: FunctionType, given: Mapping[str, Known], chain: Chain, is_called: bool = False
    ) -> Known | None:
        """What a chain leads to now.  is_called: whether a method of a class, or what an instance calls, may be at its end."""
        root, parts = chain
        aliases = _source_of(function.__code__, function.__globals__).aliases
        for _ in range(_DEEPEST):
            if root not in given and root in aliases:
                root, parts = aliases[root][0], (*aliases[root][1], *parts)
        known = given.get(root) or self._around(function, root)
        for k, part in enumerate(parts):
            if known is None:
                return None
            text, value, read = known
            if (
                is_called
                and k == len(parts) - 1
                and type(method := _of_class(type(value), part[1])) is FunctionType
                and not part[0]
            ):
                return text, MethodType(method, value), read
            known = self._part(known, part)
        if is_called and known is not None and _has_places(known[1]):
            for name in ("forward", "__call__"):
                if type(method := _of_class(type(known[1]), name)) is FunctionType:
                    return known[0], MethodType(method, known[1]), known[2]
        return known

    def _part(self, known: Known, part: Part) -> Known | None:
        text, value, read = known
        is_item, key = part
        if is_item != (type(value) is dict) or (not is_item and (not _has_places(value) or _is_descriptor(type(value), key))):
            return None
        held = StepPlace(value, key, is_item, False).current_value()
        recorder = self._recorder
        if is_item:
            return f"{text}[{key!r}]", held, lambda: recorder.containers.get_item(read(), key)
        return f"{text}.{key}", held, lambda: recorder.attributes.get_attribute(read(), key)

    def _around(self, function: FunctionType, name: str) -> Known | None:
        """A variable around a function, or a global."""
        recorder, code, names = self._recorder, function.__code__, function.__globals__
        if name in code.co_freevars:
            cell = (function.__closure__ or ())[code.co_freevars.index(name)]
            try:
                value = cell.cell_contents
            except ValueError:
                return None
            return name, value, lambda: recorder.effects.read_cell(cell, value)
        if name in code.co_varnames or name not in names:
            return None
        value = names[name]
        return name, value, lambda: recorder.effects.read_global(names, name, value)


def _has_places(x: Any) -> bool:
    """Whether attributes of an object are places: its class is one in Python, and nothing else looks into its dictionary."""
    if not is_user_instance(x) or is_a(x, (type, Tensor)) or is_library_module(module_of(type(x))):
        return False
    return type(instance_dictionary(x)) in (dict, type(None))


def _of_class(cls: type, name: Any) -> Any:
    """An attribute of a class or of a base, without asking its metaclass."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _is_descriptor(cls: type, name: Any) -> bool:
    found = _of_class(cls, name)
    return hasattr(type(found), "__set__") and type(found) is not MemberDescriptorType


def _is(x: Any, y: Any) -> bool:
    return x is y
