"""What is in lists, tuples, dicts and sets: the guards on whole contents and their order, keys as text, values to be kept.

Guards speak of what was there before the run changed anything.

Containers that the call makes hold stand-ins of numbers until C code looks into them (`concrete_contents`) or the recording is over.  Of an
outside container that the program goes through, the structure is guarded and the numbers are read one by one (`read_elements`); what this
run knows of them is kept by place (`effects.stored`), since the container itself holds plain numbers.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import itertools
import math
import operator
import weakref
from collections.abc import Iterable, Iterator
from types import FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.call_sites import user_line
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.effects import EffectTarget, ItemStore, MethodCall
from tracejit.capture.handlers.sequence_ends import SequenceEnds
from tracejit.capture.handlers.stand_ins import plain_value, stand_in_iterator, without_stand_ins
from tracejit.capture.handlers.symbols import ObjectIdentity, SymbolicNumber, concrete, is_symbolic
from tracejit.capture.policies import (
    DICT_VIEWS,
    IDENTITY_TYPES,
    PRIMITIVE_TYPES,
    TRANSPARENT_TYPES,
    builtin_base,
    has_plain_state,
    is_a,
    is_library_container,
    is_python_class,
    is_user_instance,
)
from tracejit.capture.recording.facts import shown
from tracejit.core.dtypes import DType
from tracejit.replay.ir import Constant, Expr, ListOf, Name, tuple_of
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = [
    "CONTAINERS",
    "DICT_TYPES",
    "ContentHandlers",
    "get_past",
    "has_stable_hash",
    "is_table",
    "item_of",
    "length_of",
    "membership",
]

DICT_TYPES: tuple[type, ...] = (dict, collections.OrderedDict, collections.defaultdict)
CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, collections.deque, array.array)
_LONG, _MOST = 8, 64
_WITHOUT_CONTENT: frozenset[type] = frozenset({*PRIMITIVE_TYPES, Tensor, ObjectIdentity})
_HOLDERS: tuple[type, ...] = (tuple, list, dict, set)
_LIMITED = 32
"""A list or deque that may be kept from growing is recorded for each of its lengths up to this one."""
_SIMPLE_KEYS: tuple[type, ...] = (str, int, bool, bytes, type(None))


def is_table(cls: type, value: Any) -> bool:
    """A longer list or tuple of values that `==` and their types tell apart: guarded in one go."""
    return (
        cls in (list, tuple)
        and len(value) > _LONG
        and all(type(v) in _SIMPLE_KEYS or (type(v) is float and v == v and v != 0.0) for v in value)
    )


def _may_change(content: Any) -> bool:
    """Whether the numbers of a longer list or tuple are of the kind that programs compute anew: its elements are read one by one."""
    return len(content) <= _MOST and any(type(v) in (int, float, bool) for v in content)


def _past(cls: type, name: str, *arguments: Any) -> Expr:
    """A method of the built-in class that a class derives from: guards run no code of the program."""
    return Name(builtin_base(cls).__name__).method(name, *arguments)


def item_of(cls: type, owner: Expr, key: Any) -> Expr:
    return _past(cls, "__getitem__", owner, key) if is_python_class(cls) else owner.at(key)


def length_of(cls: type, owner: Expr) -> Expr:
    return _past(cls, "__len__", owner) if is_python_class(cls) else owner.length()


def membership(cls: type, owner: Expr, key: Expr) -> Expr:
    """Whether a dictionary or set has a key."""
    return _past(cls, "__contains__", owner, key) if is_python_class(cls) else owner.has(key)


def get_past(container: Any, key: Any) -> Any:
    """An item, past the methods of a subclass."""
    cls = type(container)
    return builtin_base(cls).__getitem__(container, key) if is_python_class(cls) else container[key]


def elements_of(cls: type, owner: Expr) -> Expr:
    return Name("list").call(_past(cls, "__iter__", owner) if is_python_class(cls) else owner)


def _types_of(elements: Expr) -> Expr:
    return Name("list").call(Name("map").call(Name("type"), elements))


def _keys(content: Any) -> Any:
    """The keys of a dictionary in its own order, past the methods of a subclass: an OrderedDict has another than its memory."""
    return builtin_base(type(content)).__iter__(content)


def _members(cls: type) -> list[str]:
    """What exceptions of C code keep besides their arguments, and tell in their text: errno, filename, name ..."""
    found = (value for base in cls.__mro__ if not is_python_class(base) for value in vars(base).values())
    return [value.__name__ for value in found if is_a(value, MemberDescriptorType) and not value.__name__.startswith("__")]


def has_stable_hash(value: Any) -> bool:
    """Whether the hash of an object is the same in every call that its guards let through."""
    if is_a(value, (tuple, frozenset)) and not is_user_instance(value):
        return all(map(has_stable_hash, value))
    return type(value) in PRIMITIVE_TYPES or is_a(value, (enum.Enum, np.generic, type, DType, decimal.Decimal, datetime.date))


class ContentHandlers(Handlers):
    """Keys, whole contents, and values on their way into a place."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.views: dict[int, tuple[Any, Any]] = {}  # id of a view of a dictionary from outside -> the view, the dictionary
        self.reordered: set[int] = journal.set()  # lists that are put in order when the program has run
        self.limited: set[int] = journal.set()  # lists and deques whose length the program has compared with something
        self.ends: dict[int, SequenceEnds] = (
            journal.dictionary()
        )  # of lists and deques of which nothing else was looked at, or changed
        self._empty: set[int] = journal.set()  # objects from outside that have no content to guard

    # -- keys
    def key_expression(self, key: Any) -> Expr | None:
        """An expression for a key of an outside dictionary; None where there is none."""
        recorder = self.recorder
        if type(key) in _SIMPLE_KEYS:
            return recorder.number_expression(key) if type(key) is int else Constant(key)
        if (
            type(key) is float and key == key and key not in (0.0, math.inf, -math.inf)
        ):  # else equal keys are not the same, or NaN
            return recorder.number_expression(key)
        if type(key) is frozenset and all(type(part) in (str, int, bytes) for part in key):
            return recorder.constant(key)
        if is_a(key, tuple) and type(key).__hash__ is tuple.__hash__ and type(key).__eq__ is tuple.__eq__:
            parts = [self.key_expression(part) for part in tuple.__iter__(key)]
            return None if None in parts else tuple_of(*parts)
        if id(key) in recorder.sources and type(key).__hash__ is object.__hash__:
            return recorder.sources[id(key)]
        if is_a(key, type) and recorder.is_created(key):  # no container has it that was there before the call
            return Name("ABSENT")
        if is_a(key, IDENTITY_TYPES):
            return recorder.constant(key)
        if type(key) is weakref.ref and is_a(key(), IDENTITY_TYPES):  # of an object there is one reference without a callback
            return recorder.constant(key)
        return None

    # -- whole contents
    def read_content(self, value: Any, *, deep: bool = False) -> None:
        """Something may look at everything in `value`: guard it, order included; with `deep`, in nested containers too."""
        if type(value) not in _WITHOUT_CONTENT:
            self._read_content(value, deep, set())

    def read_elements(self, value: Any, *, shortened: bool = False) -> None:
        """The program goes through `value`: guard how many elements there are, and what they are but for numbers, which stay symbolic.
        shortened: it is about to take some out."""
        recorder = self.recorder
        if not recorder.stopped and recorder.is_outside(value) and id(value) not in recorder.effects.content_known:
            self._guard_content(value, type(value), symbolic=True, shortened=shortened)

    def has_varied(self, value: Any) -> bool:
        """Whether a list from outside had other items when a call was recorded before, and they were guarded."""
        recorder, facts = self.recorder, self.recorder.facts
        if not recorder.is_outside(value) or not facts.earlier:
            return False
        line = user_line()
        if is_table(type(value), value) and facts.has_varied(facts.name(value), repr(value), line):
            return True
        return any(facts.has_varied(facts.item(value, k), item, line) for k, item in enumerate(value))

    def elements(self, value: Any) -> Any:
        """What Python's own loop may consume for a list, tuple, dictionary, set or deque, or for the views of a dictionary."""
        owner = self.viewed(value)
        if is_a(owner, (set, frozenset)):
            self.read_content(owner)
            return value
        self.read_elements(owner)
        if (
            not self.recorder.effects.numbered.get(id(owner))
            or (is_a(value, dict) and owner is value)
            or is_a(value, DICT_VIEWS[0])
        ):
            return value
        return self._with_numbers(value, owner)

    def _with_numbers(self, value: Any, owner: Any) -> Iterator[Any]:
        """The elements of a container with symbolic numbers, or of a view of such a dictionary, while the program may change it."""
        items = iter(value) if is_a(value, DICT_VIEWS) else builtin_base(type(owner)).__iter__(owner)
        return stand_in_iterator(items, self._numbers_among(items, value, owner))

    def _numbers_among(self, items: Iterator[Any], value: Any, owner: Any) -> Iterator[Any]:
        recorder = self.recorder
        keys = builtin_base(type(owner)).__iter__(owner) if is_a(owner, dict) else itertools.count()
        for item in items:
            if recorder.stopped:
                yield item
                continue
            key = next(keys)
            if is_a(value, DICT_VIEWS[2]):
                yield recorder.mark_created((key, recorder.effects.stored.get((id(owner), key), item[1])))
            else:
                yield recorder.effects.stored.get((id(owner), key), item)

    def backwards(self, value: Any) -> Any:
        """An iterator over a list or tuple from its end."""
        self.read_elements(value)
        if not self.recorder.effects.numbered.get(id(value)):
            return reversed(value)
        items = reversed(value)
        return stand_in_iterator(items, self._numbers_from_the_end(items, value))

    def _numbers_from_the_end(self, items: Any, value: Any) -> Iterator[Any]:
        recorder = self.recorder
        while True:
            index = operator.length_hint(items) - 1
            try:
                item = next(items)
            except StopIteration:
                return
            yield item if recorder.stopped else recorder.effects.stored.get((id(value), index), item)

    def viewed(self, value: Any) -> Any:
        """The dictionary from outside that a view shows; anything else as it is."""
        return self.views[id(value)][1] if is_a(value, DICT_VIEWS) and id(value) in self.views else value

    def as_key(self, key: Any) -> Any:
        """A key or an index: numbers in it decide which item it is."""
        key = self.concrete_contents(key)
        self._read_key(key)
        return key

    def _read_key(self, key: Any) -> None:
        if type(key) is slice:
            key = (key.start, key.stop, key.step)
        if is_a(key, tuple):
            for part in key:
                self._read_key(part)
        if is_a(key, (tuple, np.ndarray)):
            self.read_content(key, deep=True)

    def _read_content(self, value: Any, deep: bool, seen: set[int]) -> None:
        recorder = self.recorder
        if type(value) in PRIMITIVE_TYPES or is_a(value, (Tensor, np.generic)):
            return
        value = self.viewed(value)
        if recorder.stopped or is_symbolic(value) or id(value) in seen:
            return
        cls = type(value)
        if is_a(value, np.ndarray) and not recorder.is_outside(value):
            recorder.arrays.array_is_used(value)
            return
        seen.add(id(value))
        self.concretise_places(value)
        outside = recorder.is_outside(value)
        if outside and is_library_container(value):
            recorder.stop("implicit_python", f"what C code reads of a {cls.__name__}")
        if outside and id(value) not in recorder.effects.content_known:
            self._guard_content(value, cls)
        if deep and is_a(value, dict):
            for item in self._with_content(itertools.chain.from_iterable(value.items())):
                self._read_content(item, True, seen)
        elif deep and is_a(value, (list, tuple, set, frozenset, collections.deque)):
            for item in self._with_content(value):
                self._read_content(item, True, seen)

    def _with_content(self, items: Iterable[Any]) -> list[Any]:
        """Those of which there may be something to read: sets that a program fills are looked at for each element."""
        empty, numbered = self._empty, self.recorder.effects.numbered
        return [x for x in items if type(x) not in _WITHOUT_CONTENT and (id(x) not in empty or id(x) in numbered)]

    def concretise_places(self, container: Any) -> None:
        for place in self.recorder.effects.numbered.pop(id(container), ()):
            self.concrete_contents(self.recorder.effects.stored.pop(place))

    def _read_element(
        self, value: Any, place: EffectTarget, expression: Expr, symbolic: bool, called: str, truths: bool | None = True
    ) -> None:
        """An element of a container is guarded; where it stays a symbolic number, later reads of the place find that."""
        recorder = self.recorder
        if place not in recorder.effects.written:
            found = recorder.read(value, expression, called=called, symbolic=symbolic, truths=truths)
            recorder.effects.remember(place, found)

    def _guard_content(self, value: Any, cls: type, symbolic: bool = False, shortened: bool = False) -> None:
        recorder = self.recorder
        if is_a(value, CONTAINERS):
            self.check_reordered(value)
            if not shortened:
                self._check_grown(value)
            recorder.effects.content_known.add(id(value))
            self.ends.pop(id(value), None)
            recorder.keep.append(value)
            source = recorder.sources[id(value)]
            content = recorder.effects.originals.get(id(value), value)
            if is_a(value, collections.deque):
                recorder.miss_if(source.get("maxlen").differs(value.maxlen))
            elif is_a(value, array.array):
                recorder.miss_if(source.get("typecode").differs(value.typecode))
            recorder.miss_if(length_of(cls, source).differs(len(content)))
            recorder.facts.note("value", f"len({recorder.facts.name(value)})", str(len(content)), user_line())
            if is_a(value, (list, collections.deque, array.array)) and id(value) in recorder.effects.originals:
                self._guard_moved(value, cls, content, symbolic)
            elif is_a(value, dict):
                self._guard_dict(value, content, source, symbolic)
            elif is_a(value, (set, frozenset)):
                if not all(type(k) in PRIMITIVE_TYPES and k == k for k in content):
                    recorder.stop("container", "a set of objects")
                types = recorder.constant([type(k) for k in content])
                elements = elements_of(cls, source)
                known = recorder.constant(list(content))
                recorder.identities.note_placeless(content)
                recorder.miss_if(elements.differs(known).otherwise(_types_of(elements).differs(types)))
            elif (
                is_table(cls, content)
                and not (symbolic and _may_change(content))
                and not any((id(value), i) in recorder.effects.written for i in range(len(content)))
            ):
                types = recorder.constant(list(map(type, content)))
                recorder.identities.note_placeless(content)
                recorder.miss_if(source.differs(recorder.constant(cls(content))).otherwise(_types_of(source).differs(types)))
                recorder.facts.note("value", recorder.facts.name(value), shown(repr(content)), user_line())
            else:
                for i, item in enumerate(builtin_base(type(content)).__iter__(content)):
                    called = recorder.facts.item(value, i)
                    self._read_element(item, (id(value), i), item_of(cls, source, i), symbolic, called)
        elif cls is slice:
            source = recorder.sources[id(value)]
            for name in ("start", "stop", "step"):
                recorder.read(getattr(value, name), source.get(name), called=recorder.facts.attribute(value, name))
        elif is_a(value, BaseException):
            source = recorder.sources[id(value)]
            recorder.read(value.args, source.get("args"))
            for name in _members(cls):
                if (id(value), name) not in recorder.effects.written:
                    recorder.read(getattr(value, name), source.get(name))
        elif hasattr(cls, "__next__"):
            recorder.stop("external_iterator", f"a {cls.__name__}")
        elif not (
            cls in TRANSPARENT_TYPES or is_a(value, IDENTITY_TYPES) or has_plain_state(cls)
            or is_a(value, (int, float, str, bytes, FunctionType))
        ):  # fmt: skip
            recorder.stop("container", f"a {cls.__module__}.{cls.__name__}")
        elif has_plain_state(cls):
            recorder.keep.append(value)
            self._empty.add(id(value))

    def _guard_moved(self, value: Any, cls: type, content: list[Any], symbolic: bool) -> None:
        """A list or deque that this run has changed: its items are where that has put them."""
        recorder = self.recorder
        source = recorder.sources[id(value)]
        items = [
            item
            if (id(value), i) in recorder.effects.written
            else recorder.read(
                item, item_of(cls, source, i), called=recorder.facts.item(value, i), symbolic=symbolic, truths=True
            )
            for i, item in enumerate(content)
        ]
        moved: Any = collections.deque(items, value.maxlen) if is_a(value, collections.deque) else items
        for effect in recorder.effects.in_order:
            if type(effect) is MethodCall and effect.container is value:
                getattr(moved, effect.method)(*effect.arguments)
            elif type(effect) is ItemStore and effect.container is value:
                moved[effect.key] = effect.value
        self.remember_items(value, moved)
        if not symbolic:
            self.concretise_places(value)

    def record_of(self, cls: Any, items: list[Any]) -> Any:
        """A named tuple of `items`.  It holds plain numbers, since nobody could change it later on; what stands for them is found by its
        places."""
        return self.known_record(tuple.__new__(cls, map(plain_value, items)), dict(zip(cls._fields, items, strict=False)))

    def known_record(self, made: Any, items: dict[str, Any]) -> Any:
        """A new named tuple; items: what it was given, by the names of its fields."""
        recorder = self.recorder
        recorder.effects.of_objects.add(id(made))
        for index, name in enumerate(type(made)._fields):
            if name in items:
                recorder.effects.remember((id(made), index), items[name])
                recorder.effects.remember((id(made), name), items[name])
        return recorder.mark_created(made)

    def remember_items(self, container: Any, items: Iterable[Any], first: int = 0, places: int = 0) -> None:
        """What later reads find in a list or deque, from a place on, of which it had so many `places` before."""
        effects = self.recorder.effects
        if first:
            for index in range(first, first + places):
                effects.remember((id(container), index), None)
        else:
            for place in effects.numbered.pop(id(container), ()):
                effects.stored.pop(place)
        for index, item in enumerate(items, first):
            effects.remember((id(container), index), item)

    def check_reordered(self, value: Any) -> None:
        """Stop where items of a list are looked at whose order is known only when the program has run."""
        if id(value) in self.reordered:
            self.recorder.stop("read_after_change", f"a {type(value).__name__}, as a heap,")

    def _check_grown(self, value: Any) -> None:
        """Stop where a list or deque is looked at as a whole that grows with each call: its guards would not hold for the next one."""
        before = self.recorder.effects.originals.get(id(value)) if is_a(value, (list, collections.deque, array.array)) else None
        if not before or len(before) >= builtin_base(type(value)).__len__(value):
            return
        limited = id(value) in self.limited or (is_a(value, collections.deque) and value.maxlen is not None)
        if not limited or len(before) > _LIMITED:
            self.recorder.stop("read_after_change", f"a {type(value).__name__}")

    def _guard_dict(self, value: dict[Any, Any], content: dict[Any, Any], source: Expr, symbolic: bool) -> None:
        recorder = self.recorder
        found = {key: self.key_expression(key) for key in _keys(content)}
        if None in found.values():
            found = self._object_keys(value, content, source)
        if None in found.values():
            recorder.stop("container", "a dict with unusual keys")
            return
        elements = elements_of(type(value), source)
        recorder.identities.note_placeless(found)
        if found:
            recorder.miss_if(elements.differs(ListOf(tuple([key for key in found.values() if key is not None]))))
            keys = shown(", ".join(map(shown, found)))
            recorder.facts.note("value", f"the keys of {recorder.facts.name(value)}", keys, user_line())
        if not all(type(k) is str for k in found):
            recorder.miss_if(_types_of(elements).differs(recorder.constant([type(k) for k in found])))
        for key, expression in found.items():
            item, called = dict.__getitem__(content, key), recorder.facts.item(value, key)
            found_as = item_of(type(value), source, expression)
            self._read_element(item, (id(value), key), found_as, symbolic, called, truths=None)

    def _object_keys(self, value: Any, content: dict[Any, Any], source: Expr) -> dict[Any, Expr | None]:
        """Expressions of keys that are found by their identity, and of which only their place is known."""
        recorder = self.recorder
        keys = recorder.define(elements_of(type(value), source))
        recorder.miss_if(keys.length().differs(len(content)))
        for i, key in enumerate(_keys(content)):
            if type(key).__hash__ is object.__hash__ and not recorder.is_outside(key) and not recorder.is_created(key):
                recorder.read(key, keys.at(i))
        return {key: self.key_expression(key) for key in _keys(content)}

    def check_order(self, value: Any) -> None:
        """Stop where the order of a set depends on where its elements lie in memory."""
        if is_a(value, (set, frozenset)) and len(value) > 1 and not all(map(has_stable_hash, value)):
            self.recorder.stop("object_identity", f"the order of a {type(value).__name__} of objects")

    def concrete_contents(self, value: Any) -> Any:
        """`value` for C code: symbolic numbers in it, and in containers of this run in it, replaced by guarded plain ones."""
        if is_symbolic(value):
            return concrete(value)
        return value if type(value) in _WITHOUT_CONTENT else self._concrete_contents(value, set())

    def _concrete_contents(self, value: Any, seen: set[int]) -> Any:
        cls = type(value)
        if cls is SymbolicNumber:
            return concrete(value)
        if not is_a(value, CONTAINERS) or self.recorder.is_outside(value) or id(value) in seen:
            return value
        seen.add(id(value))
        if cls is tuple:
            new = tuple([self._concrete_contents(v, seen) for v in value])
            return value if all(a is b for a, b in zip(new, value, strict=True)) else self.recorder.mark_created(new)
        if is_a(value, tuple):
            self.concretise_places(value)
        if is_a(value, (list, dict, collections.deque)):
            base = builtin_base(cls)
            for key, item in list(base.items(value)) if is_a(value, dict) else enumerate(base.__iter__(value)):
                if (other := self._concrete_contents(item, seen)) is not item:
                    base.__setitem__(value, key, other)
        return value

    def value_to_store(self, value: Any) -> Any:
        """`value`, to be stored in a place: a symbolic number stays one, also in a container that this run made."""
        if type(value) in _HOLDERS and self._holds_identity(value, set()):
            self.recorder.stop("object_identity", f"a {type(value).__name__} with an id() in it, which is kept,")
            return without_stand_ins(value, self.recorder.is_outside)
        return value

    def _holds_identity(self, value: Any, seen: set[int]) -> bool:
        """Whether there is an id() in a container that this run made."""
        if type(value) not in _HOLDERS or self.recorder.is_outside(value) or id(value) in seen:
            return False
        seen.add(id(value))
        parts = [*value, *value.values()] if type(value) is dict else value
        return any(type(part) is ObjectIdentity or self._holds_identity(part, seen) for part in parts)
