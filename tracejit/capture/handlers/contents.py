"""Handlers of the contents of lists, tuples, dicts and sets: guards on whole contents and their order, expressions of keys,
stored values.

Guards check the contents that a container had before the run changed it.

Containers that the call creates hold stand-ins of numbers until C code looks into them (`concretise_contents`) or the recording
ends.  If the program iterates over an outside container, its structure is guarded, and its numbers are read one by one
(`read_elements`).  The container itself holds plain numbers, so the symbolic ones are in `effects.stored`, by place.
"""

from __future__ import annotations

import array
import collections
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
from tracejit.capture.container_kinds import CONTAINER_KINDS, children, children_past_methods
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.effects import EffectTarget, ItemStore, MethodCall
from tracejit.capture.handlers.sequence_ends import SequenceEnds
from tracejit.capture.handlers.stand_ins import plain_value, stand_in_iterator, without_stand_ins
from tracejit.capture.handlers.symbols import ObjectIdentity, SymbolicNumber, concretise, is_symbolic
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
from tracejit.capture.values import MODELS, key_of
from tracejit.core.dtypes import DType
from tracejit.replay.ir import Constant, Expr, ListOf, Name, tuple_of
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = [
    "CONTAINERS",
    "DICT_TYPES",
    "ContentHandlers",
    "builtin_item",
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
_LIMITED = 32
"""A growing list or deque whose length the program limits is recorded for each of its lengths up to this one."""
_SIMPLE_KEYS: tuple[type, ...] = (str, int, bool, bytes, type(None))


def is_table(cls: type, value: Any) -> bool:
    """Whether one guard compares `value` as a whole: a longer list or tuple, for whose elements equality and types imply equal bits."""
    return (
        cls in (list, tuple)
        and len(value) > _LONG
        and all(type(v) in _SIMPLE_KEYS or (type(v) is float and v == v and v != 0.0) for v in value)
    )


def _may_change(content: Any) -> bool:
    """Whether numbers in a longer list or tuple are likely to vary between calls, so that they are read one by one."""
    return len(content) <= _MOST and any(type(v) in (int, float, bool) for v in content)


def _base_method(cls: type, name: str, *arguments: Any) -> Expr:
    """A call of a method of the builtin base of `cls`, so that guards run no code of the program."""
    return Name(builtin_base(cls).__name__).method(name, *arguments)


def item_of(cls: type, owner: Expr, key: Any) -> Expr:
    """The expression of owner[key].  cls: the class of the owner."""
    return _base_method(cls, "__getitem__", owner, key) if is_python_class(cls) else owner.at(key)


def length_of(cls: type, owner: Expr) -> Expr:
    """The expression of len(owner).  cls: the class of the owner."""
    return _base_method(cls, "__len__", owner) if is_python_class(cls) else owner.length()


def membership(cls: type, owner: Expr, key: Expr) -> Expr:
    """The expression of `key in owner`, for a dictionary or set.  cls: the class of the owner."""
    return _base_method(cls, "__contains__", owner, key) if is_python_class(cls) else owner.has(key)


def builtin_item(container: Any, key: Any) -> Any:
    """container[key], bypassing methods of a subclass."""
    cls = type(container)
    return builtin_base(cls).__getitem__(container, key) if is_python_class(cls) else container[key]


def elements_of(cls: type, owner: Expr) -> Expr:
    """The expression of list(owner).  cls: the class of the owner."""
    return Name("list").call(_base_method(cls, "__iter__", owner) if is_python_class(cls) else owner)


def _types_of(elements: Expr) -> Expr:
    """The expression of the list of types of `elements`."""
    return Name("list").call(Name("map").call(Name("type"), elements))


def _keys(content: Any) -> Any:
    """An iterator over the keys of a dictionary, bypassing methods of a subclass.  An OrderedDict has an order of its own, which
    `dict.__iter__` does not follow."""
    return builtin_base(type(content)).__iter__(content)


def _members(cls: type) -> list[str]:
    """The names of the attributes that exceptions of C code have besides their arguments: errno, filename, name ..."""
    values = (value for base in cls.__mro__ if not is_python_class(base) for value in vars(base).values())
    return [value.__name__ for value in values if is_a(value, MemberDescriptorType) and not value.__name__.startswith("__")]


def exact_form(key: Any) -> tuple[Any, ...]:
    """What tells a key from others that equal it: (1,) from (1.0,), 0.0 from -0.0, a decimal 1.0 from 1.00; and a set from one in another
    order."""
    cls = type(key)
    if cls is tuple or cls is frozenset:
        return cls, *map(exact_form, key)
    if cls is float or cls is complex:
        return cls, repr(key)
    return cls, key_of(key) if cls in MODELS else key


def _has_exact_form(key: Any) -> bool:
    if type(key) is tuple or type(key) is frozenset:
        return all(map(_has_exact_form, key))
    return type(key) in _SIMPLE_KEYS or type(key) is float or key_of(key) is not None


def _has_model(key: Any) -> bool:
    return type(key) in MODELS or any(map(_has_model, key if type(key) is tuple else ()))


def _forms_of(recorder: Recorder, elements: Expr) -> Expr:
    """An expression for the list of the exact forms of elements."""
    return Name("list").call(Name("map").call(recorder.constant(exact_form), elements))


def has_stable_hash(value: Any) -> bool:
    """Whether the hash of `value` is the same in each call for which its guards hold."""
    if is_a(value, (tuple, frozenset)) and not is_user_instance(value):
        return all(map(has_stable_hash, value))
    if (model := MODELS.get(type(value))) is not None and model.key is not None:
        return True
    return type(value) in PRIMITIVE_TYPES or is_a(value, (enum.Enum, np.generic, type, DType))


class ContentHandlers(Handlers):
    """Handlers of keys, of whole contents, and of values that are stored."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.views: dict[int, tuple[Any, Any]] = {}  # id of a view of an outside dictionary -> the view, the dictionary
        self.reordered: set[int] = journal.set()  # ids of lists that are sorted after the program
        self.extended: set[int] = journal.set()  # ids of lists that have got rows of a node, and are read no more
        self.limited: set[int] = journal.set()  # ids of lists and deques whose length the program has compared with something
        # By id: lists and deques of which the run has read and changed the ends only.
        self.ends: dict[int, SequenceEnds] = journal.dictionary()
        self._empty: set[int] = set()  # ids of outside objects that have no content to guard, which holds once and for all

    # -- keys
    def key_expression(self, key: Any) -> Expr | None:
        """An expression that gives an equal key in each call, for a key of an outside dictionary or set; else None."""
        recorder = self.recorder
        if type(key) in _SIMPLE_KEYS:
            return recorder.number_expression(key) if type(key) is int else Constant(key)
        # 0.0 equals -0.0, NaN equals nothing, infinities have no literal.
        if type(key) is float and key == key and key not in (0.0, math.inf, -math.inf):
            return recorder.number_expression(key)
        if (type(key) is frozenset and all(type(part) in (str, int, bytes) for part in key)) or key_of(key) is not None:
            return recorder.constant(key)
        if is_a(key, tuple) and type(key).__hash__ is tuple.__hash__ and type(key).__eq__ is tuple.__eq__:
            parts = [self.key_expression(part) for part in tuple.__iter__(key)]
            return None if None in parts else tuple_of(*parts)
        if id(key) in recorder.sources and type(key).__hash__ is object.__hash__:
            return recorder.sources[id(key)]
        if is_a(key, type) and recorder.is_created(key):  # no outside container can have it
            return Name("ABSENT")
        if is_a(key, IDENTITY_TYPES):
            return recorder.constant(key)
        if type(key) is weakref.ref and is_a(key(), IDENTITY_TYPES):  # an object has one reference without a callback
            return recorder.constant(key)
        return None

    # -- whole contents
    def read_content(self, value: Any, *, deep: bool = False) -> None:
        """Guard the whole content of `value`, order included, because code that no handler sees may look at it.  deep: also in
        containers that it leads to."""
        if type(value) not in _WITHOUT_CONTENT:
            self._read_content(value, deep, set())

    def read_elements(self, value: Any, *, shortened: bool = False) -> None:
        """Guard the content of an outside container that the program iterates over: its length and its elements, except numbers,
        which become symbolic.  shortened: whether the program is about to remove elements."""
        recorder = self.recorder
        if not recorder.stopped and recorder.is_outside(value) and id(value) not in recorder.effects.content_guarded:
            self._guard_content(value, type(value), symbolic=True, shortened=shortened)

    def has_varied(self, value: Any) -> bool:
        """Whether an earlier recording has guarded other items in the outside list `value`."""
        recorder, facts = self.recorder, self.recorder.facts
        if not recorder.is_outside(value) or not facts.earlier:
            return False
        line = user_line()
        if is_table(type(value), value) and facts.has_varied(facts.name(value), repr(value), line):
            return True
        return any(facts.has_varied(facts.item(value, k), item, line) for k, item in enumerate(value))

    def elements(self, value: Any) -> Any:
        """An iterable of the elements of a list, tuple, dictionary, set, deque or view of a dictionary, for a loop of Python's.
        The content is guarded; symbolic numbers stand in their places."""
        owner = self.viewed(value)
        if is_a(owner, (set, frozenset)):
            self.read_content(owner)
            return value
        self.read_elements(owner)
        if (
            not self.recorder.effects.stored_by_container.get(id(owner))
            or (is_a(value, dict) and owner is value)
            or is_a(value, DICT_VIEWS[0])
        ):
            return value
        return self._with_numbers(value, owner)

    def _with_numbers(self, value: Any, owner: Any) -> Iterator[Any]:
        """An iterator over a container that has symbolic numbers, or over a view of such a dictionary.  As in Python, the program
        may change the container meanwhile."""
        items = iter(value) if is_a(value, DICT_VIEWS) else builtin_base(type(owner)).__iter__(owner)
        return stand_in_iterator(items, self._numbers_among(items, value, owner))

    def _numbers_among(self, items: Iterator[Any], value: Any, owner: Any) -> Iterator[Any]:
        """`items`, with symbolic numbers in their places.  value: the container or view; owner: the container."""
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
        """reversed(value), for a list or tuple."""
        self.read_elements(value)
        if not self.recorder.effects.stored_by_container.get(id(value)):
            return reversed(value)
        items = reversed(value)
        return stand_in_iterator(items, self._numbers_from_the_end(items, value))

    def _numbers_from_the_end(self, items: Any, value: Any) -> Iterator[Any]:
        """`items`, which is reversed(value), with symbolic numbers in their places."""
        recorder = self.recorder
        while True:
            index = operator.length_hint(items) - 1
            try:
                item = next(items)
            except StopIteration:
                return
            yield item if recorder.stopped else recorder.effects.stored.get((id(value), index), item)

    def viewed(self, value: Any) -> Any:
        """The outside dictionary of a view; any other value unchanged."""
        return self.views[id(value)][1] if is_a(value, DICT_VIEWS) and id(value) in self.views else value

    def as_key(self, key: Any) -> Any:
        """`key`, a key or an index, with plain numbers, guarded by their values."""
        key = self.recorder.real_object(self.concretise_contents(key))
        self._read_key(key)
        return key

    def _read_key(self, key: Any) -> None:
        """Guard the contents of tuples and arrays in a key or an index."""
        if type(key) is slice:
            key = (key.start, key.stop, key.step)
        if is_a(key, tuple):
            for part in key:
                self._read_key(part)
        if is_a(key, (tuple, np.ndarray)):
            self.read_content(key, deep=True)

    def _read_content(self, value: Any, deep: bool, seen: set[int]) -> None:
        """`read_content`; seen: ids of objects that have been visited."""
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
        if outside and id(value) not in recorder.effects.content_guarded:
            self._guard_content(value, cls)
        if deep and cls is not slice:
            for item in self._with_content(children_past_methods(value)):
                self._read_content(item, True, seen)

    def _with_content(self, items: Iterable[Any]) -> list[Any]:
        """The items that may have content to guard.  A membership test looks through all elements of a set each time."""
        empty, stored_by_container = self._empty, self.recorder.effects.stored_by_container
        return [x for x in items if type(x) not in _WITHOUT_CONTENT and (id(x) not in empty or id(x) in stored_by_container)]

    def concretise_places(self, container: Any) -> None:
        """Guard the symbolic numbers that are noted for `container` by their values; later reads get the plain numbers in it."""
        for place in self.recorder.effects.stored_by_container.pop(id(container), ()):
            self.concretise_contents(self.recorder.effects.stored.pop(place))

    def _read_element(
        self, value: Any, place: EffectTarget, expression: Expr, symbolic: bool, called: str, truths: bool | None = True
    ) -> None:
        """Guard an element of an outside container, unless this run has stored it.  If it becomes a symbolic number, later reads
        of the place get that."""
        recorder = self.recorder
        if place not in recorder.effects.written:
            element = recorder.read(value, expression, called=called, symbolic=symbolic, truths=truths)
            recorder.effects.remember(place, element)

    def _guard_content(self, value: Any, cls: type, symbolic: bool = False, shortened: bool = False) -> None:
        """Guard the content of an outside object of class `cls`.  symbolic: whether numbers become symbolic.  shortened: see
        `read_elements`."""
        recorder = self.recorder
        if is_a(value, CONTAINERS):
            self._guard_container(value, cls, symbolic, shortened)
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

    def _guard_container(self, value: Any, cls: type, symbolic: bool, shortened: bool) -> None:
        """Guard the length of an outside container, and what it had before this run changed it."""
        recorder = self.recorder
        self.check_reordered(value)
        self.check_extended(value)
        if not shortened:
            self._check_grown(value)
        recorder.effects.content_guarded.add(id(value))
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
            self._guard_set(cls, content, source)
        elif (
            is_table(cls, content)
            and not (symbolic and _may_change(content))
            and not any((id(value), i) in recorder.effects.written for i in range(len(content)))
        ):
            self._guard_table(value, cls, content, source)
        else:
            for i, item in enumerate(builtin_base(type(content)).__iter__(content)):
                called = recorder.facts.item(value, i)
                self._read_element(item, (id(value), i), item_of(cls, source, i), symbolic, called)

    def _guard_set(self, cls: type, content: Any, source: Expr) -> None:
        """Guard elements and order of an outside set."""
        recorder = self.recorder
        if not all(type(k) in PRIMITIVE_TYPES and k == k for k in content):
            recorder.stop("container", "a set of objects")
        elements = elements_of(cls, source)
        recorder.identities.note_placeless(content)
        if any(type(k) in (float, complex) for k in content):
            recorder.miss_if(_forms_of(recorder, elements).differs(recorder.constant(list(map(exact_form, content)))))
        else:
            types = recorder.constant([type(k) for k in content])
            is_other = elements.differs(recorder.constant(list(content)))
            recorder.miss_if(is_other.otherwise(_types_of(elements).differs(types)))

    def _guard_table(self, value: Any, cls: Any, content: Any, source: Expr) -> None:
        """Guard an outside list or tuple as a whole (`is_table`)."""
        recorder = self.recorder
        types = recorder.constant(list(map(type, content)))
        recorder.identities.note_placeless(content)
        recorder.miss_if(source.differs(recorder.constant(cls(content))).otherwise(_types_of(source).differs(types)))
        recorder.facts.note("value", recorder.facts.name(value), shown(repr(content)), user_line())

    def _guard_moved(self, value: Any, cls: type, content: list[Any], symbolic: bool) -> None:
        """Guard the original `content` of a list or deque that this run has changed, then repeat the changes on its symbolic
        items, so that each is noted at its present position."""
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
        """A named tuple of `items`.  It holds plain numbers, since it is immutable; their stand-ins are noted by place."""
        return self.note_record_items(tuple.__new__(cls, map(plain_value, items)), dict(zip(cls._fields, items, strict=False)))

    def note_record_items(self, record: Any, items: dict[str, Any]) -> Any:
        """Note the stand-ins in a new named tuple; returns it.  items: what it was given, by names of fields."""
        recorder = self.recorder
        recorder.effects.holders_of_stored.add(id(record))
        for index, name in enumerate(type(record)._fields):
            if name in items:
                recorder.effects.remember((id(record), index), items[name])
                recorder.effects.remember((id(record), name), items[name])
        return recorder.mark_created(record)

    def remember_items(self, container: Any, items: Iterable[Any], first: int = 0, count: int = 0) -> None:
        """Note the stand-ins in `items`, the items of a list or deque from position `first` on.  count: how many it had there."""
        effects = self.recorder.effects
        if first:
            for index in range(first, first + count):
                effects.remember((id(container), index), None)
        else:
            for place in effects.stored_by_container.pop(id(container), ()):
                effects.stored.pop(place)
        for index, item in enumerate(items, first):
            effects.remember((id(container), index), item)

    def check_reordered(self, value: Any) -> None:
        """Stop the recording if `value` is a list that is sorted after the program, so that its order is not known yet."""
        if id(value) in self.reordered:
            self.recorder.stop("read_after_change", f"a {type(value).__name__}, as a heap,")

    def check_extended(self, value: Any) -> None:
        """Stop the recording if `value` is a list from outside that steps of a loop have appended to: how many items is not known yet."""
        if id(value) in self.extended:
            self.recorder.stop("read_after_change", f"a {type(value).__name__} that steps of a loop have appended to")

    def _check_grown(self, value: Any) -> None:
        """Stop the recording if `value` is a list or deque that grows in each call: guards on its whole content would hold for no
        later call.  One whose length is limited is accepted while it is short."""
        before = self.recorder.effects.originals.get(id(value)) if is_a(value, (list, collections.deque, array.array)) else None
        if not before or len(before) >= builtin_base(type(value)).__len__(value):
            return
        limited = id(value) in self.limited or (is_a(value, collections.deque) and value.maxlen is not None)
        if not limited or len(before) > _LIMITED:
            self.recorder.stop("read_after_change", f"a {type(value).__name__}")

    def _guard_dict(self, value: dict[Any, Any], content: dict[Any, Any], source: Expr, symbolic: bool) -> None:
        """Guard keys, order and items of an outside dictionary.  content: what it had before this run changed it."""
        recorder = self.recorder
        expressions = {key: self.key_expression(key) for key in _keys(content)}
        if None in expressions.values():
            expressions = self._object_keys(value, content, source)
        if None in expressions.values():
            recorder.stop("container", "a dict with unusual keys")
            return
        elements = elements_of(type(value), source)
        recorder.identities.note_placeless(expressions)
        if expressions:
            recorder.miss_if(elements.differs(ListOf(tuple([key for key in expressions.values() if key is not None]))))
            keys = shown(", ".join(map(shown, expressions)))
            recorder.facts.note("value", f"the keys of {recorder.facts.name(value)}", keys, user_line())
        if all(map(_has_exact_form, expressions)) and any(
            type(k) in (tuple, frozenset) or type(k) in MODELS for k in expressions
        ):
            recorder.miss_if(_forms_of(recorder, elements).differs(recorder.constant(list(map(exact_form, expressions)))))
        elif not all(type(k) is str for k in expressions):
            if any(map(_has_model, expressions)):
                recorder.stop("container", "a dict with unusual keys")
            recorder.miss_if(_types_of(elements).differs(recorder.constant([type(k) for k in expressions])))
        for key, expression in expressions.items():
            item, called = dict.__getitem__(content, key), recorder.facts.item(value, key)
            self._read_element(item, (id(value), key), item_of(type(value), source, expression), symbolic, called, truths=None)

    def _object_keys(self, value: Any, content: dict[Any, Any], source: Expr) -> dict[Any, Expr | None]:
        """The expressions of all keys of an outside dictionary.  Keys that are compared by identity and have no expression yet
        are read by their position in the dictionary."""
        recorder = self.recorder
        keys = recorder.define(elements_of(type(value), source))
        recorder.miss_if(keys.length().differs(len(content)))
        for i, key in enumerate(_keys(content)):
            if type(key).__hash__ is object.__hash__ and not recorder.is_outside(key) and not recorder.is_created(key):
                recorder.read(key, keys.at(i))
        return {key: self.key_expression(key) for key in _keys(content)}

    def check_order(self, value: Any) -> None:
        """Stop the recording if the order of a set depends on the addresses of its elements."""
        if is_a(value, (set, frozenset)) and len(value) > 1 and not all(map(has_stable_hash, value)):
            self.recorder.stop("object_identity", f"the order of a {type(value).__name__} of objects")

    def concretise_contents(self, value: Any) -> Any:
        """`value` for C code: symbolic numbers in it, and in containers of this run that it leads to, become plain ones, guarded
        by their values.  Lists and dictionaries are changed in place."""
        if is_symbolic(value):
            return concretise(value)
        return value if type(value) in _WITHOUT_CONTENT else self._concretise_contents(value, set())

    def concretise_arguments(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(arguments, keywords) for C code, each by `concretise_contents`."""
        return tuple(map(self.concretise_contents, arguments)), {k: self.concretise_contents(v) for k, v in keywords.items()}

    def _concretise_contents(self, value: Any, seen: set[int]) -> Any:
        cls = type(value)
        if cls is SymbolicNumber:
            return concretise(value)
        if not is_a(value, CONTAINERS) or self.recorder.is_outside(value) or id(value) in seen:
            return value
        seen.add(id(value))
        if cls is tuple:
            new = tuple([self._concretise_contents(v, seen) for v in value])
            return value if all(a is b for a, b in zip(new, value, strict=True)) else self.recorder.mark_created(new)
        if is_a(value, tuple):
            self.concretise_places(value)
        if is_a(value, (list, dict, collections.deque)):
            base = builtin_base(cls)
            for key, item in list(base.items(value)) if is_a(value, dict) else enumerate(base.__iter__(value)):
                if (other := self._concretise_contents(item, seen)) is not item:
                    base.__setitem__(value, key, other)
        return value

    def value_to_store(self, value: Any) -> Any:
        """`value`, which is about to be stored.  It keeps symbolic numbers; an `id()` in a container stops the recording."""
        if type(value) in CONTAINER_KINDS and self._holds_identity(value, set()):
            self.recorder.stop("object_identity", f"a {type(value).__name__} with an id() in it, which is kept,")
            return without_stand_ins(value, self.recorder.is_outside)
        return value

    def _holds_identity(self, value: Any, seen: set[int]) -> bool:
        """Whether there is an `id()` in `value`, a container that this run has created."""
        if type(value) not in CONTAINER_KINDS or id(value) in self.recorder.sources or id(value) in seen:
            return False
        seen.add(id(value))
        return any(type(part) is ObjectIdentity or self._holds_identity(part, seen) for part in children(value))
