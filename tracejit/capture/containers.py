"""Reading and changing lists, tuples, dicts and sets.

Of an outside container only what the run looks at is guarded: one item, the length, presence of a key, or the whole content with its
order.  Guards speak of what was there before the run changed anything.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import math
import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from tracejit.capture.attributes import AttributeHandlers
from tracejit.capture.effects import ItemStore, MethodCall
from tracejit.capture.policies import (
    CHANGING_METHODS,
    DICT_VIEWS,
    IDENTITY_TYPES,
    PRIMITIVE_TYPES,
    READING_METHODS,
    TRANSPARENT_TYPES,
    builtin_base,
    has_plain_state,
    is_a,
    is_heap_type,
    is_python_class,
    is_user_instance,
)
from tracejit.capture.recorder import ABSENT, Recorder, Said
from tracejit.capture.symbols import ObjectIdentity, SymbolicNumber, concrete, is_symbolic, plain, released
from tracejit.core.dtypes import DType
from tracejit.tensor import Tensor

__all__ = ["ContainerHandlers"]

_DICT_TYPES: tuple[type, ...] = (dict, collections.OrderedDict, collections.defaultdict)
_LONG = 8
_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, collections.deque)
_SIMPLE_KEYS: tuple[type, ...] = (str, int, bool, bytes, type(None))


_COMPARING_METHODS = frozenset(
    {
        "index", "count", "remove", "__contains__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "discard", "pop",
        "setdefault",
    }
)  # fmt: skip
"""Methods that look into elements or arguments."""
_CONSUMING_METHODS = frozenset(
    {
        "extend", "update", "difference_update", "intersection_update", "symmetric_difference_update", "__iadd__", "__ior__", "__iand__",
        "__isub__", "__ixor__", "extendleft",
    }
)  # fmt: skip


class _Ordered:
    """A sort key whose comparisons go through the recorder."""

    __slots__ = ("_key", "_recorder")

    def __init__(self, recorder: Recorder, key: Any) -> None:
        self._recorder = recorder
        self._key = key

    def __lt__(self, other: _Ordered) -> bool:
        return self._recorder.truth(self._recorder.binary("<", self._key, other._key))


def _is_table(cls: type, value: Any) -> bool:
    """A longer list or tuple of values that `==` and their types tell apart: guarded in one go."""
    return (
        cls in (list, tuple)
        and len(value) > _LONG
        and all(type(v) in _SIMPLE_KEYS or (type(v) is float and v == v and v != 0.0) for v in value)
    )


def _item(cls: type, text: str, key: str) -> str:
    """The expression of an item, past the methods of a subclass: guards run no code of the program."""
    return f"{builtin_base(cls).__name__}.__getitem__({text}, {key})" if is_python_class(cls) else f"{text}[{key}]"


def _length(cls: type, text: str) -> str:
    return f"{builtin_base(cls).__name__}.__len__({text})" if is_python_class(cls) else f"len({text})"


def _membership(cls: type, text: str, key: str, negation: str = "") -> str:
    """A test whether a dictionary has a key, or has not."""
    if is_python_class(cls):
        return f"{negation.strip()} {builtin_base(cls).__name__}.__contains__({text}, {key})".strip()
    return f"{key}{negation} in {text}"


def _get(container: Any, key: Any) -> Any:
    """An item, past the methods of a subclass."""
    cls = type(container)
    return builtin_base(cls).__getitem__(container, key) if is_python_class(cls) else container[key]


def _elements(cls: type, text: str) -> str:
    return f"list({builtin_base(cls).__name__}.__iter__({text}))" if is_python_class(cls) else f"list({text})"


def _has_stable_hash(value: Any) -> bool:
    """Whether the hash of an object is the same in every call that its guards let through."""
    if is_a(value, (tuple, frozenset)) and not is_user_instance(value):
        return all(map(_has_stable_hash, value))
    return type(value) in PRIMITIVE_TYPES or is_a(value, (enum.Enum, np.generic, type, DType, decimal.Decimal, datetime.date))


class ContainerHandlers(AttributeHandlers):
    """Items, membership, length, whole contents, and the methods of containers."""

    # -- keys
    def _key_text(self, key: Any) -> str | None:
        """An expression for a key of an outside dictionary; None where there is none."""
        if type(key) in _SIMPLE_KEYS:
            return self.number_text(key) if type(key) is int else repr(key)
        if (
            type(key) is float and key == key and key not in (0.0, math.inf, -math.inf)
        ):  # else equal keys are not the same, or NaN
            return self.number_text(key)
        if type(key) is frozenset and all(type(part) in (str, int, bytes) for part in key):
            return self.constant(key)
        if type(key) is tuple:
            texts = [self._key_text(part) for part in key]
            return None if None in texts else f"({''.join(f'{text}, ' for text in texts)})"
        if id(key) in self.sources and type(key).__hash__ is object.__hash__:
            return self.sources[id(key)]
        if is_a(key, IDENTITY_TYPES):
            return self.constant(key)
        return None

    # -- whole contents
    def read_content(self, value: Any, *, deep: bool = False) -> None:
        """Something may look at everything in `value`: guard it, order included; with `deep`, in nested containers too."""
        self._read_content(value, deep, set())

    def _read_content(self, value: Any, deep: bool, seen: set[int]) -> None:
        if self.stopped or is_symbolic(value) or id(value) in seen:
            return
        cls = type(value)
        if cls in PRIMITIVE_TYPES or is_a(value, (Tensor, np.generic)):
            return
        seen.add(id(value))
        self._settle_places(value)
        outside = self.is_outside(value)
        if outside and id(value) not in self.content_known:
            self._guard_content(value, cls)
        if deep and is_a(value, dict):
            for key, item in list(value.items()):
                self._read_content(key, True, seen)
                self._read_content(item, True, seen)
        elif deep and is_a(value, (list, tuple, set, frozenset, collections.deque)):
            for item in list(value):
                self._read_content(item, True, seen)

    def _settle_places(self, container: Any) -> None:
        for place in [p for p in self.stored if p[0] == id(container)]:
            concrete(self.stored.pop(place))

    def _guard_content(self, value: Any, cls: type) -> None:
        if is_a(value, _CONTAINERS):
            self._check_grown(value)
            self.content_known.add(id(value))
            self.keep.append(value)
            text = self.sources[id(value)]
            content = self.originals.get(id(value), value)
            if is_a(value, collections.deque):
                self.miss_if(f"{text}.maxlen != {value.maxlen}")
            self.miss_if(f"{_length(cls, text)} != {len(content)}")
            if is_a(value, dict):
                self._guard_dict(value, content, text)
            elif is_a(value, (set, frozenset)):
                if not all(type(k) in PRIMITIVE_TYPES and k == k for k in content):
                    self.stop("container", "a set of objects")
                types = self.constant([type(k) for k in content])
                self.miss_if(f"{_elements(cls, text)} != {list(content)!r} or list(map(type, {_elements(cls, text)})) != {types}")
            elif _is_table(cls, content) and not any((id(value), i) in self.written for i in range(len(content))):
                types = self.constant(list(map(type, content)))
                self.miss_if(f"{text} != {self.constant(cls(content))} or list(map(type, {text})) != {types}")
            else:
                for i, item in enumerate(builtin_base(type(content)).__iter__(content)):
                    if (id(value), i) not in self.written:
                        self.read(item, _item(cls, text, str(i)))
        elif cls is slice:
            text = self.sources[id(value)]
            for name in ("start", "stop", "step"):
                self.read(getattr(value, name), f"{text}.{name}")
        elif is_a(value, BaseException):
            self.read(value.args, f"{self.sources[id(value)]}.args")
        elif hasattr(cls, "__next__"):
            self.stop("external_iterator", f"a {cls.__name__}")
        elif not (
            cls in TRANSPARENT_TYPES or is_a(value, IDENTITY_TYPES) or has_plain_state(cls)
            or is_a(value, (int, float, str, bytes, FunctionType))
        ):  # fmt: skip
            self.stop("container", f"a {cls.__module__}.{cls.__name__}")

    def _check_grown(self, value: Any) -> None:
        """Stop where a list is looked at that has got new elements: its guards would not hold for the next call."""
        if id(value) not in self.originals or not is_a(value, (list, collections.deque)):
            return
        if is_a(value, list) or value.maxlen != len(self.originals[id(value)]):
            self.stop("read_after_change", f"a {type(value).__name__}")

    def _guard_dict(self, value: dict[Any, Any], content: dict[Any, Any], text: str) -> None:
        texts = {key: self._key_text(key) for key in dict.__iter__(content)}
        if None in texts.values():
            texts = self._object_keys(value, content, text)
        if None in texts.values():
            self.stop("container", "a dict with unusual keys")
            return
        if texts:
            self.miss_if(f"{_elements(type(value), text)} != [{', '.join(map(str, texts.values()))}]")
        if not all(type(k) is str for k in texts):
            self.miss_if(f"list(map(type, {_elements(type(value), text)})) != {self.constant([type(k) for k in texts])}")
        for key, key_text in texts.items():
            place = (id(value), key)
            if place not in self.written:
                self.read(dict.__getitem__(content, key), _item(type(value), text, str(key_text)))

    def _object_keys(self, value: Any, content: dict[Any, Any], text: str) -> dict[Any, str | None]:
        """Expressions of keys that are found by their identity, and of which only their place is known."""
        keys = self.variable()
        self.lines.append(f"{keys} = {_elements(type(value), text)}")
        self.miss_if(f"len({keys}) != {len(content)}")
        for i, key in enumerate(dict.__iter__(content)):
            if type(key).__hash__ is object.__hash__ and not self.is_outside(key) and not self.is_made(key):
                self.read(key, f"{keys}[{i}]")
        return {key: self._key_text(key) for key in dict.__iter__(content)}

    def settled(self, value: Any) -> Any:
        """`value` for C code, or to be kept anywhere but in a variable: symbolic numbers in it, and in local containers in it, replaced by
        guarded plain ones."""
        if is_symbolic(value):
            return concrete(value)
        return self._settled(value, set()) if type(value) in (tuple, list, dict) else value

    def _settled(self, value: Any, seen: set[int]) -> Any:
        cls = type(value)
        if cls is SymbolicNumber:
            return concrete(value)
        if cls not in (tuple, list, dict) or self.is_outside(value) or id(value) in seen:
            return value
        seen.add(id(value))
        if cls is tuple:
            new = tuple([self._settled(v, seen) for v in value])
            return value if all(a is b for a, b in zip(new, value, strict=True)) else self._known_as_made(new)
        for key, item in enumerate(value) if cls is list else value.items():
            if (other := self._settled(item, seen)) is not item:
                value[key] = other
        return value

    def for_place(self, value: Any) -> Any:
        """`value`, to be stored in a place: a symbolic number stays one."""
        if is_symbolic(value):
            return value
        if self._holds_identity(value, set()):
            self.stop("object_identity", f"a {type(value).__name__} with an id() in it, which is kept,")
            return released(value, self.is_outside)
        return self.settled(value)

    def _holds_identity(self, value: Any, seen: set[int]) -> bool:
        """Whether there is an id() in a container that this run made."""
        if type(value) not in (tuple, list, dict, set) or self.is_outside(value) or id(value) in seen:
            return False
        seen.add(id(value))
        parts = [*value, *value.values()] if type(value) is dict else value
        return any(type(part) is ObjectIdentity or self._holds_identity(part, seen) for part in parts)

    # -- items
    def get_item(self, owner: Any, key: Any) -> Any:
        if is_a(owner, Tensor):
            self.inspect(owner)
            return self.made(self.binary_native("__getitem__", owner, key))
        owner, key = concrete(owner), concrete(key)
        if is_user_instance(owner):
            method = self.method(owner, "__getitem__")
            if method is not None:
                return self.call(method, (owner, key), {})
        if isinstance(owner, enum.EnumMeta) and type(key) is str:
            return self.fixed(owner[key])
        if is_a(owner, type):
            self.stop("container", f"the class {owner.__name__}")
            return owner[key]  # type: ignore[index]
        return self.plain_item(owner, key)

    def plain_item(self, owner: Any, key: Any) -> Any:
        """The `__getitem__` of a built-in container, past that of a subclass."""
        base = builtin_base(type(owner))
        if not hasattr(base, "__getitem__"):
            return owner[key]  # it raises what is to be raised
        if is_a(owner, dict):
            missing = self.method(owner, "__missing__") if is_user_instance(owner) else None
            if missing is not None and not self.plain_contains(key, owner):
                return self.call(missing, (owner, key), {})
        elif is_user_instance(key) or type(key) is slice:
            key = self.index(key)
        if self.is_outside(owner):
            return self._outside_item(owner, key)
        if is_a(owner, dict) and (id(owner), key) in self.stored:
            return self.stored[id(owner), key]
        if not is_a(owner, (list, tuple, dict, str, range, bytes, collections.deque, np.generic)):
            self.stop("container", f"a {type(owner).__name__}")
        value = _get(owner, key)
        return self.made(value) if type(key) is slice else value

    def _outside_item(self, owner: Any, key: Any) -> Any:
        text = self.sources[id(owner)]
        cls: Any = type(owner)
        base = builtin_base(cls)
        if type(key) is ObjectIdentity:
            self.stop("object_identity", "an item at id()")
        if base in _DICT_TYPES:
            key_text = self._key_text(key)
            if key_text is not None:
                place = (id(owner), key)
                if place in self.stored:
                    return self.stored[place]
                if place in self.written:
                    return base.__getitem__(owner, key)
                if dict.__contains__(owner, key):
                    self._guard_presence(owner, text, key_text)
                    return self.read(base.__getitem__(owner, key), _item(cls, text, key_text), symbolic=True)
                self._guard_absence(owner, text, key_text)
                if base is collections.defaultdict and owner.default_factory is not None:
                    factory = self.get_attribute(owner, "default_factory")
                    self.plain_set_item(self.call(factory, (), {}), owner, key)
                return base.__getitem__(owner, key)
            if base is collections.defaultdict and not dict.__contains__(owner, key):
                self.stop("container", f"a {cls.__name__} that gets an item of its own")
        elif cls in (list, collections.deque) and type(key) is int and id(owner) not in self.originals and 0 <= key < len(owner):
            place = (id(owner), key)
            if place in self.stored:
                return self.stored[place]
            if place in self.written or id(owner) in self.content_known:
                return owner[key]
            return self.read(owner[key], f"{text}[{key}]", symbolic=True)
        self.read_content(owner)
        value = _get(owner, key)
        return self.made(value) if type(key) is slice else value

    def _guard_absence(self, owner: Any, text: str, key_text: str) -> None:
        if id(owner) not in self.content_known and self.first_time("absent", text, key_text):
            self.miss_if(_membership(type(owner), text, key_text))

    def _guard_presence(self, owner: Any, text: str, key_text: str) -> None:
        """Of an instance of a subclass: that it has the key, since its class may have a way to make up items."""
        if is_heap_type(type(owner)) and id(owner) not in self.content_known and self.first_time("present", text, key_text):
            self.miss_if(_membership(type(owner), text, key_text, " not"))

    def set_item(self, value: Any, owner: Any, key: Any) -> None:
        if is_a(owner, Tensor):
            store, _ = self.lookup(type(owner), "__setitem__")
            self.read_content((key, value), deep=True)
            self.inspect_all((owner, key, value))
            self.native(lambda: store(owner, key, value))
            return
        owner, key = concrete(owner), concrete(key)
        if is_user_instance(owner):
            method = self.method(owner, "__setitem__")
            if method is not None:
                self.call(method, (owner, key, value), {})
                return
        self.plain_set_item(value, owner, key)

    def plain_set_item(self, value: Any, owner: Any, key: Any) -> None:
        """The `__setitem__` of a built-in container, past that of a subclass."""
        cls: Any = type(owner)
        base = builtin_base(cls)
        if not is_a(owner, dict) and (is_user_instance(key) or type(key) is slice):
            key = self.index(key)
        if not self.is_outside(owner):
            if base not in (list, collections.deque, *_DICT_TYPES):
                self.stop("container", f"a {cls.__name__}")
                owner[key] = self.settled(value)
            else:
                base.__setitem__(owner, key, self.settled(value))
            return
        if not hasattr(base, "__setitem__"):
            owner[key] = value  # it raises what is to be raised
        if base in _DICT_TYPES and self._key_text(key) is not None:
            value = self.for_place(value)
            self.note_change(owner)
            base.__setitem__(owner, key, plain(value))
            self.note_store((id(owner), key), ItemStore(owner, key, value))
        elif cls in (list, collections.deque) and type(key) is int and -self.length(owner) <= key < len(owner):
            value = self.for_place(value)
            index = key % len(owner)
            owner[index] = plain(value)
            self.note_store((id(owner), index), ItemStore(owner, index, value))
        elif cls is list and type(key) in (int, slice):
            self.read_content(owner)
            value = self.settled(value)
            if type(key) is slice and hasattr(type(value), "__iter__"):
                value = self.made(list(self.iterate(value)))
            self._change(owner, "__setitem__", key, value)
        else:
            self.stop("container", f"a {cls.__name__}")
            owner[released(key)] = self.settled(value)

    def delete_item(self, owner: Any, key: Any) -> None:
        owner, key = concrete(owner), concrete(key)
        if is_user_instance(owner):
            method = self.method(owner, "__delitem__")
            if method is not None:
                self.call(method, (owner, key), {})
                return
        self.plain_delete_item(owner, key)

    def plain_delete_item(self, owner: Any, key: Any) -> None:
        """The `__delitem__` of a built-in container, past that of a subclass."""
        cls = type(owner)
        base = builtin_base(cls)
        if self.is_outside(owner):
            if base in _DICT_TYPES and self._key_text(key) is not None:
                if self.plain_contains(key, owner):
                    self.plain_item(owner, key)
                self.note_change(owner)
                base.__delitem__(owner, key)
                self.note_store((id(owner), key), ItemStore(owner, key, ABSENT))
                return
            if cls is list and type(key) in (int, slice):
                self.read_content(owner)
                self._change(owner, "__delitem__", key)
                return
        if not hasattr(base, "__delitem__"):
            del owner[key]  # it raises what is to be raised
        elif self.is_outside(owner) or base not in (list, collections.deque, *_DICT_TYPES):
            self.stop("container", f"a {cls.__name__}")
            del owner[key]
        else:
            base.__delitem__(owner, key)

    # -- membership and length
    def contains(self, element: Any, container: Any) -> bool:
        element, container = concrete(element), concrete(container)
        if is_a(container, Tensor):
            self.inspect(container)
            return element in container
        if is_user_instance(container):
            method = self.method(container, "__contains__")
            if method is not None:
                return self.truth(self.call(method, (container, element), {}))
            if not is_a(container, _CONTAINERS):
                self.stop("container", f"a {type(container).__name__} (operator in)")
                return element in container
        return self.plain_contains(element, container)

    def plain_contains(self, element: Any, container: Any) -> bool:
        """The `__contains__` of a built-in container, past that of a subclass."""
        if self.is_outside(container):
            base = builtin_base(type(container))
            key_text = self._key_text(element) if base in (set, frozenset, *_DICT_TYPES) else None
            if key_text is not None:
                if (id(container), element) not in self.written:
                    text = self.sources[id(container)]
                    if not base.__contains__(self._original(container, base), element):
                        self._guard_absence(container, text, key_text)
                    elif id(container) not in self.content_known and self.first_time("present", text, key_text):
                        self.miss_if(_membership(type(container), text, key_text, " not"))
                return bool(base.__contains__(container, element))
        elif not is_a(container, (*_CONTAINERS, *DICT_VIEWS, str, bytes, range)):
            self.stop("container", f"a {type(container).__name__} (operator in)")
        if type(element) is ObjectIdentity and self.is_outside(container):
            self.stop("object_identity", "an id() among numbers from outside")
        self.read_content(container, deep=True)
        self.read_content(element, deep=True)
        self.inspect_all((element,))
        if is_a(container, (list, tuple, collections.deque)) and self._has_objects(container, element):
            return self._place_of(container, element) is not None
        return self.native(lambda: element in container)

    def _original(self, container: Any, base: Any) -> Any:
        """A set as it was before this run changed it; the changes of a dictionary are places."""
        before = self.originals.get(id(container)) if base is set else None
        return container if before is None else set(before)

    def check_order(self, value: Any) -> None:
        """Stop where the order of a set depends on where its elements lie in memory."""
        if is_a(value, (set, frozenset)) and len(value) > 1 and not all(map(_has_stable_hash, value)):
            self.stop("object_identity", f"the order of a {type(value).__name__} of objects")

    def native(self, action: Callable[[], Any]) -> Any:
        """Do something in C that may run the standard library's own Python."""
        self.native_depth += 1
        try:
            return action()
        finally:
            self.native_depth -= 1

    def binary_native(self, method: str, left: Any, right: Any) -> Any:
        """A special method of a tensor, with a plain or nested index or operand."""
        found, _ = self.lookup(type(left), method)
        self.read_content(right, deep=True)
        self.inspect_all((right,))
        return self.native(lambda: found(left, right))

    def length(self, value: Any) -> Any:
        if is_a(value, Tensor):
            self.inspect(value)
            return len(value)
        value = concrete(value)
        if is_user_instance(value):
            method = self.method(value, "__len__")
            if method is not None:
                return len(Said(self.call(method, (value,), {})))
        if self.is_outside(value) and is_a(value, (list, dict, set, collections.deque)):
            if id(value) not in self.content_known and self.first_time("len", id(value)):
                self._check_grown(value)
                before = self.originals.get(id(value), value)
                self.miss_if(f"{_length(type(value), self.sources[id(value)])} != {len(before)}")
        else:
            self.read_content(value)
            if not is_a(value, (*_CONTAINERS, *DICT_VIEWS, str, bytes, range)) and hasattr(type(value), "__len__"):
                self.stop("container", f"a {type(value).__name__}")
        return builtin_base(type(value)).__len__(value) if is_a(value, _CONTAINERS) else len(value)

    # -- methods of containers
    def container_method(self, function: Any, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A C method of a list, dict, set or deque."""
        name = function.__name__
        outside = self.is_outside(owner)
        if outside and builtin_base(type(owner)) not in (list, set, collections.deque, *_DICT_TYPES):
            self.stop("container", f"a {type(owner).__name__}")
        elif name in READING_METHODS:
            return self.made(self._reading_method(function, name, owner, outside, arguments, keywords))
        elif name in CHANGING_METHODS:
            if not outside:
                return self.made(self._change_of_its_own(function, name, owner, arguments, keywords))
            return self.made(self._changing_method(function, name, owner, arguments, keywords))
        else:
            self.stop("container", f"{type(owner).__name__}.{name}")
        return function(*arguments, **keywords)

    def consumable(self, value: Any) -> Any:
        """An iterable for C code."""
        value = concrete(value)
        if is_a(value, (list, tuple, dict, set, frozenset, str, range)) and not is_user_instance(value):
            self.read_content(value)
            self.check_order(value)
            return value
        return self.iterate(value)

    def pairs(self, value: Any) -> Any:
        """A mapping, or an iterable of pairs, for C code that makes a dictionary of it."""
        value = concrete(value)
        if is_a(value, dict) or hasattr(type(value), "keys"):
            return self.mapping(value)
        return self.iterate(value, 2) if hasattr(type(value), "__iter__") else value

    def in_order(self, elements: list[Any], key: Any = None, reverse: Any = False) -> list[Any]:
        """sorted(elements, key=key, reverse=reverse): comparisons of anything but plain values go through the recorder."""
        keys = elements if key is None else [self.call(key, (element,), {}) for element in elements]
        plain_keys = [self.settled(k) for k in keys]
        if not all(type(k) in PRIMITIVE_TYPES for k in plain_keys):
            plain_keys = [_Ordered(self, k) for k in plain_keys]
        order = sorted(range(len(elements)), key=plain_keys.__getitem__, reverse=concrete(reverse))
        return [elements[i] for i in order]

    def _has_objects(self, *values: Any) -> bool:
        """Whether comparing these, or what is in them, may be up to methods of the program."""
        return any(
            is_user_instance(v) or (is_a(v, (list, tuple, dict)) and self._has_objects(*(v.values() if is_a(v, dict) else v)))
            for v in values
            if type(v) not in PRIMITIVE_TYPES and not is_a(v, Tensor)
        )

    def _equal(self, left: Any, right: Any) -> bool:
        """Whether a container takes two objects for the same."""
        return left is right or self.truth(self.binary("==", left, right))

    def _place_of(self, container: Any, element: Any, start: int = 0, stop: int | None = None) -> int | None:
        """The first place of something equal; None if there is none."""
        items = list(builtin_base(type(container)).__iter__(container))
        return next((i for i in range(*slice(start, stop).indices(len(items))) if self._equal(items[i], element)), None)

    def _reading_method(
        self, function: Any, name: str, owner: Any, outside: bool, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        if name == "get" and outside and is_a(owner, dict) and len(arguments) in (1, 2) and not keywords:
            if self.plain_contains(arguments[0], owner):
                return self.plain_item(owner, arguments[0])
            return arguments[1] if len(arguments) > 1 else None
        if name == "__getitem__" and len(arguments) == 1 and not keywords:
            return self.plain_item(owner, arguments[0])
        if name == "__contains__" and len(arguments) == 1:
            return self.plain_contains(arguments[0], owner)
        if name in _COMPARING_METHODS:
            self.read_content(owner, deep=True)
            if is_a(owner, (list, tuple, collections.deque)) and self._has_objects(owner, *arguments):
                if name == "count" and len(arguments) == 1:
                    return sum(self._equal(item, arguments[0]) for item in builtin_base(type(owner)).__iter__(owner))
                if name == "index" and arguments and (place := self._place_of(owner, *arguments)) is not None:
                    return place
        self.read_content(owner)
        for argument in arguments:
            self.read_content(argument, deep=True)
        return self.native(lambda: function(*arguments, **keywords))

    def _change_of_its_own(
        self, function: Any, name: str, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """A method changes a container that this run made."""
        if name == "sort" and is_a(owner, list) and not arguments and keywords.keys() <= {"key", "reverse"}:
            list.__setitem__(owner, slice(None), self.in_order(list(list.__iter__(owner)), **keywords))
            return None
        if name == "remove" and is_a(owner, list) and len(arguments) == 1:
            self.read_content(owner, deep=True)
            if self._has_objects(owner, *arguments) and (place := self._place_of(owner, arguments[0])) is not None:
                list.__delitem__(owner, place)
                return None
        if name in _CONSUMING_METHODS:
            arguments = tuple(map(self.pairs if is_a(owner, dict) else self.consumable, arguments))
        elif name in _COMPARING_METHODS:
            for argument in arguments:
                self.read_content(argument, deep=True)
        return self.native(lambda: function(*arguments, **keywords))

    def _changing_method(self, function: Any, name: str, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method changes a container from outside."""
        count = len(arguments)
        if name == "sort" and not arguments and keywords.keys() <= {"key", "reverse"}:
            self.read_content(owner)
            return self._change(
                owner, "__setitem__", slice(None), self.made(self.in_order(list(list.__iter__(owner)), **keywords))
            )
        if name == "update" and is_a(owner, dict) and count < 2:
            changes = dict(*map(self.pairs, arguments), **keywords)
            for key, value in changes.items():
                self.plain_set_item(value, owner, key)
            return None
        if keywords:
            self.stop("container", f"{type(owner).__name__}.{name} with keywords")
            return function(*arguments, **keywords)
        if name == "__setitem__" and count == 2:
            return self.plain_set_item(arguments[1], owner, arguments[0])
        if name == "__delitem__" and count == 1:
            return self.plain_delete_item(owner, arguments[0])
        if is_a(owner, dict) and name in ("setdefault", "pop") and count in (1, 2) and self._key_text(arguments[0]) is not None:
            return self._dict_method(function, name, owner, *arguments)
        if name in ("append", "appendleft", "add"):
            self.note_change(owner)
        elif name in ("extend", "update") and count == 1:
            arguments = (self.made(list(self.consumable(arguments[0]))),)
            self.note_change(owner)
        else:
            self.read_content(owner)
            for argument in arguments:
                self.read_content(argument, deep=True)
            if name == "remove" and is_a(owner, list) and self._has_objects(owner, *arguments):
                place = self._place_of(owner, *arguments)
                if place is not None:
                    return self._change(owner, "__delitem__", place)
        return self._change(owner, name, *arguments)

    def _change(self, owner: Any, name: str, *arguments: Any) -> Any:
        """Call a method of C code that changes a container from outside, and remember it."""
        place = (id(owner), len(owner))
        result = getattr(builtin_base(type(owner)), name)(owner, *map(plain, arguments))
        self.note_method(MethodCall(owner, name, arguments))
        if name == "append":
            self._remember(place, *arguments)
        return result

    def index(self, key: Any) -> Any:
        """An index or a slice as numbers: objects of the program are asked for theirs."""
        if type(key) is slice:
            return slice(*map(self.index, (key.start, key.stop, key.step)))
        key = concrete(key)
        method = self.method(key, "__index__") if is_user_instance(key) and not is_a(key, (int, Tensor)) else None
        if method is None:
            return key
        said: Any = Said.by("__index__", self.call(method, (key,), {}))
        return operator.index(said)

    def _dict_method(self, function: Any, name: str, owner: dict[Any, Any], key: Any, *default: Any) -> Any:
        present = self.plain_contains(key, owner)
        if name == "setdefault":
            if not present:
                self.plain_set_item(default[0] if default else None, owner, key)
            return self.plain_item(owner, key)
        if not present:
            return function(key, *default)
        value = self.plain_item(owner, key)
        self.plain_delete_item(owner, key)
        return value
