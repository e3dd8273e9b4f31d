"""Handlers of the methods of lists, dicts, sets and deques: `xs.append(x)`, `d.get(k)`, `s.update(other)`."""

from __future__ import annotations

import array
import collections
import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.containers import MOVING
from tracejit.capture.handlers.contents import DICT_TYPES
from tracejit.capture.handlers.symbols import concretise, is_symbolic
from tracejit.capture.policies import (
    APPENDING,
    CHANGING_METHODS,
    PRIMITIVE_TYPES,
    READING_METHODS,
    builtin_base,
    is_a,
    is_user_instance,
)

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["IN_PLACE_METHODS", "ContainerMethodHandlers"]

IN_PLACE_METHODS = frozenset({"__iadd__", "__imul__", "__ior__", "__iand__", "__isub__", "__ixor__"})
"""Methods of operators in place, `+=` and the like.  They return the container, or NotImplemented."""
_SET_UPDATES = {
    "__ior__": "update", "__iand__": "intersection_update", "__isub__": "difference_update",
    "__ixor__": "symmetric_difference_update",
}  # fmt: skip

_COMPARING_METHODS = frozenset(
    {
        "index", "count", "remove", "__contains__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "discard", "pop",
        "setdefault",
    }
)  # fmt: skip
"""Methods that compare elements or arguments."""
_CONSUMING_METHODS = frozenset(
    {
        "extend", "update", "difference_update", "intersection_update", "symmetric_difference_update", "__iadd__", "__ior__", "__iand__",
        "__isub__", "__ixor__", "extendleft",
    }
)  # fmt: skip


_OF_ARRAYS = frozenset({"pop", "__getitem__", "__len__", "__iter__", "index", "count"})
"""Methods of an outside `array.array` that are handled as those of a list."""
_OF_ENDS = frozenset({"pop", "popleft", "insert"})
"""Methods of lists and deques that may affect an end only."""
_AT_PLACES = frozenset({"__getitem__", "__setitem__", "__delitem__", "pop", "insert", "rotate"})
"""Methods whose first argument is a position or a key."""


class _Ordered:
    """A sort key whose comparisons go through the recorder."""

    __slots__ = ("_key", "_recorder")

    def __init__(self, recorder: Recorder, key: Any) -> None:
        self._recorder = recorder
        self._key = key

    def __lt__(self, other: _Ordered) -> bool:
        return self._recorder.operators.truth(self._recorder.operators.binary("<", self._key, other._key))


class ContainerMethodHandlers(Handlers):
    """Handlers of methods of containers, and of `sorted`.

    orders: by ids of sets that the run has made, the number of the last change: the order in which `pop` removes elements does not show in
    the contents of a set."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.orders: dict[int, int] = recorder.journal.dictionary()
        self._changes_of_orders = itertools.count()

    def container_method(self, function: Any, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of a C method of a list, dict, set, deque or array.  function: the bound method."""
        recorder = self.recorder
        name = function.__name__
        if not keywords and (reached := recorder.reached.get(id(owner))) is not None and reached.add(name, arguments):
            return None
        if name in _AT_PLACES and arguments and is_a(arguments[0], (np.ndarray, slice)):
            arguments = (recorder.contents.as_key(recorder.containers.position_in(owner, arguments[0])), *arguments[1:])
        if recorder.loop_stand_ins and arguments and (name in _COMPARING_METHODS or is_a(owner, (set, frozenset, dict))):
            arguments = (recorder.real_object(arguments[0]), *arguments[1:])
        outside = recorder.is_outside(owner)
        if name in APPENDING and type(owner) is list:
            recorder.appended.append(owner)
        stores = name in ("append", "insert") and outside and recorder.sequences.stores_as_it_is(owner, arguments[-1:])
        if is_a(owner, array.array) and outside and name == "tolist" and not arguments:
            return recorder.mark_created(list(recorder.contents.elements(owner)))
        if is_a(owner, array.array) and not (outside and (stores or name in _OF_ARRAYS)):
            recorder.stop("container", f"array.array.{name}")
        elif outside and builtin_base(type(owner)) not in (list, set, collections.deque, array.array, *DICT_TYPES):
            recorder.stop("container", f"a {type(owner).__name__}")
        elif name == "__init__" and not outside and builtin_base(type(owner)) in (list, set, *DICT_TYPES):
            return self._initialise(function, owner, arguments, keywords)
        elif name in READING_METHODS:
            return recorder.mark_created(self._reading_method(function, name, owner, outside, arguments, keywords))
        elif name in CHANGING_METHODS:
            if not outside:
                return recorder.mark_created(self._change_created(function, name, owner, arguments, keywords))
            return recorder.mark_created(self._change_outside(function, name, owner, arguments, keywords))
        else:
            recorder.stop("container", f"{type(owner).__name__}.{name}")
        return recorder.run(getattr(builtin_base(type(owner)), name), (owner, *arguments), keywords)

    def _initialise(self, function: Any, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`super().__init__(...)` in a subclass of a container, for an instance that this run has created."""
        values = arguments
        if arguments and not (builtin_base(type(owner)) is collections.defaultdict and len(arguments) == 1):
            last = (self._pairs_for(owner) if is_a(owner, dict) else self.consumable)(arguments[-1])
            values = (*arguments[:-1], last)
        self.recorder.containers.native(lambda: function(*values, **keywords))

    def consumable(self, value: Any) -> Any:
        """An iterable of the elements of `value` that C code may consume."""
        recorder = self.recorder
        value = concretise(value)
        if is_a(value, (list, tuple, dict, set, frozenset)) and not is_user_instance(value):
            recorder.contents.check_order(value)
            return recorder.contents.elements(value)
        return recorder.iteration.iterate(value)

    def concretised_elements(self, value: Any) -> Any:
        """Like `consumable`, with plain values: for C code that looks at elements, or puts them into an immutable object."""
        values = self.consumable(value)
        is_container = is_a(values, (list, tuple, dict, set, frozenset)) or not hasattr(type(values), "__iter__")
        return values if is_container else self.recorder.iteration.converted(values, self.recorder.contents.concretise_contents)

    def pairs(self, value: Any, *, asks_items: bool = False) -> Any:
        """A mapping or an iterable of pairs, for C code that fills a dictionary from it.  asks_items: see
        IterationHandlers.mapping."""
        value = concretise(value)
        if is_a(value, dict) or hasattr(type(value), "keys"):
            return self.recorder.iteration.mapping(value, asks_items=asks_items)
        return self.recorder.iteration.iterate(value, ()) if hasattr(type(value), "__iter__") else value

    def _pairs_for(self, owner: Any) -> Callable[[Any], Any]:
        """`pairs` for methods of the dictionary `owner`."""
        return partial(self.pairs, asks_items=is_a(owner, collections.OrderedDict))

    def in_order(self, elements: list[Any], key: Any = None, reverse: Any = False) -> list[Any]:
        """sorted(elements, key=key, reverse=reverse).  Comparisons of keys that are not plain values are recorded."""
        keys = elements if key is None else [self.recorder.calls.call(key, (element,), {}) for element in elements]
        sort_keys = [k if is_symbolic(k) else self.recorder.contents.concretise_contents(k) for k in keys]
        if not all(type(k) in PRIMITIVE_TYPES for k in sort_keys):
            sort_keys = [_Ordered(self.recorder, k) for k in sort_keys]
        backwards = concretise(reverse)
        order = self.recorder.perform(
            lambda: sorted(range(len(elements)), key=sort_keys.__getitem__, reverse=backwards), is_repeatable=True
        )
        return [elements[i] for i in order]

    def _reading_method(
        self, function: Any, name: str, owner: Any, outside: bool, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """A method that does not change its container."""
        recorder = self.recorder
        if name == "get" and outside and is_a(owner, dict) and len(arguments) in (1, 2) and not keywords:
            key = arguments[0]
            if is_symbolic(key) and not recorder.containers.can_guard_membership(owner, key):
                key = concretise(key)
            if not recorder.containers.base_contains(key, owner):
                return arguments[1] if len(arguments) > 1 else None
            item = recorder.containers.numbered_item(owner, key)
            return recorder.containers.base_item(owner, concretise(key)) if item is ABSENT else item
        if outside and is_a(owner, dict) and name in ("keys", "values", "items") and not (arguments or keywords):
            recorder.contents.read_elements(owner)
            view = function()
            recorder.contents.views[id(view)] = view, owner
            return view
        if name == "copy" and outside and type(owner) in (list, dict) and not (arguments or keywords):
            return list(recorder.contents.elements(owner)) if type(owner) is list else dict(recorder.iteration.mapping(owner))
        if name == "__getitem__" and len(arguments) == 1 and not keywords:
            return recorder.containers.base_item(owner, arguments[0])
        if name == "__contains__" and len(arguments) == 1:
            return recorder.containers.base_contains(arguments[0], owner)
        if name in _COMPARING_METHODS:
            recorder.contents.read_content(owner, deep=True)
            if is_a(owner, (list, tuple, collections.deque)) and recorder.containers.has_objects(owner, *arguments):
                if name == "count" and len(arguments) == 1:
                    return sum(
                        recorder.containers.equal(item, arguments[0]) for item in builtin_base(type(owner)).__iter__(owner)
                    )
                if name == "index" and arguments and (position := recorder.containers.position_of(owner, *arguments)) is not None:
                    return position
        recorder.contents.read_content(owner)
        for argument in arguments:
            recorder.contents.read_content(argument, deep=True)
        return recorder.containers.native(lambda: function(*arguments, **keywords))

    def _change_created(self, function: Any, name: str, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method that changes a container that this run has created."""
        recorder = self.recorder
        if name == "sort" and is_a(owner, list) and not arguments and keywords.keys() <= {"key", "reverse"}:
            items = self.in_order(list(list.__iter__(owner)), **keywords)
            return recorder.perform(lambda: list.__setitem__(owner, slice(None), items))
        if name == "remove" and is_a(owner, list) and len(arguments) == 1:
            recorder.contents.read_content(owner, deep=True)
            if (
                recorder.containers.has_objects(owner, *arguments)
                and (position := recorder.containers.position_of(owner, arguments[0])) is not None
            ):
                return recorder.perform(lambda: list.__delitem__(owner, position))
        if name == "__setitem__" and len(arguments) == 2 and type(arguments[0]) is slice:
            return recorder.containers.set_base_item(arguments[1], owner, arguments[0])
        unbound = getattr(builtin_base(type(owner)), name)  # its errors have the class in their texts, as Python's have
        if name in _CONSUMING_METHODS:
            arguments = tuple(map(self._pairs_for(owner) if is_a(owner, dict) else self.consumable, arguments))
        elif name in _COMPARING_METHODS:
            for argument in arguments:
                recorder.contents.read_content(argument, deep=True)
        if not is_a(owner, set):
            return recorder.containers.native(lambda: unbound(owner, *arguments, **keywords))
        length = set.__len__(owner)
        result = recorder.containers.native(lambda: unbound(owner, *arguments, **keywords))
        if set.__len__(owner) != length or name == "symmetric_difference_update":
            self.orders[id(owner)] = next(self._changes_of_orders)
        return result

    def _change_outside(self, function: Any, name: str, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method that changes an outside container."""
        recorder = self.recorder
        count = len(arguments)
        if name in IN_PLACE_METHODS and count == 1 and not keywords:
            return self.change_in_place(function, owner, *arguments)
        if name == "sort" and not arguments and keywords.keys() <= {"key", "reverse"}:
            recorder.contents.read_content(owner)
            return recorder.containers.change(
                owner, "__setitem__", slice(None), recorder.mark_created(self.in_order(list(list.__iter__(owner)), **keywords))
            )
        if name == "update" and is_a(owner, dict) and count < 2:
            ordered = is_a(owner, collections.OrderedDict)  # its C code calls methods of subclasses
            changes = (collections.OrderedDict if ordered else dict)(*map(self._pairs_for(owner), arguments), **keywords)
            set_item = recorder.containers.set_item if ordered else recorder.containers.set_base_item
            for key, value in changes.items():
                set_item(value, owner, key)
            return None
        if name in ("popitem", "move_to_end") and is_a(owner, collections.OrderedDict) and list(keywords) == ["last"]:
            arguments, keywords = (*arguments, keywords["last"]), {}
        if keywords:
            recorder.stop("container", f"{type(owner).__name__}.{name} with keywords")
            return recorder.run(getattr(builtin_base(type(owner)), name), (owner, *arguments), keywords)
        if name == "__setitem__" and count == 2:
            return recorder.containers.set_base_item(arguments[1], owner, arguments[0])
        if name == "__delitem__" and count == 1:
            return recorder.containers.delete_base_item(owner, arguments[0])
        if (
            is_a(owner, dict)
            and name in ("setdefault", "pop")
            and count in (1, 2)
            and recorder.contents.key_expression(arguments[0]) is not None
        ):
            return self._dict_method(function, name, owner, *arguments)
        if name in ("append", "appendleft", "add"):
            if name == "appendleft" and recorder.sequences.is_written(owner):
                recorder.contents.read_elements(owner)
            recorder.effects.note_change(owner)
        elif name in ("extend", "update") and count == 1:
            arguments = (recorder.mark_created(list(self.consumable(arguments[0]))),)
            recorder.effects.note_change(owner)
        elif name in _OF_ENDS and is_a(owner, (list, collections.deque, array.array)):
            arguments = (recorder.contents.as_key(arguments[0]), *arguments[1:]) if arguments else arguments
            return recorder.containers.record_removal(owner, name, *arguments)
        elif name == "clear" and is_a(owner, (list, collections.deque)) and not arguments:
            pass  # its content does not matter
        elif is_a(owner, (list, collections.deque)) and name in MOVING:
            recorder.contents.read_elements(owner)
        else:
            recorder.contents.read_content(owner)
            for argument in arguments:
                recorder.contents.read_content(argument, deep=True)
            if name == "remove" and is_a(owner, list) and recorder.containers.has_objects(owner, *arguments):
                position = recorder.containers.position_of(owner, *arguments)
                if position is not None:
                    return recorder.containers.change(owner, "__delitem__", position)
        return recorder.containers.change(owner, name, *arguments)

    def change_in_place(self, function: Any, owner: Any, other: Any) -> Any:
        """The result of one of IN_PLACE_METHODS of the builtin base, bypassing a subclass.  function: the bound
        method."""
        recorder = self.recorder
        base, name = builtin_base(type(owner)), function.__name__
        if not recorder.is_outside(owner):
            other = recorder.contents.concretise_contents(other) if is_a(owner, set) or name == "__imul__" else other
            return self._change_created(function, name, owner, (other,), {})
        if name == "__imul__":
            times = recorder.containers.index(other)
            if type(times) is not int:
                return function(times)  # which returns NotImplemented, or raises Python's error
            recorder.contents.limited.add(id(owner))  # a list that grows by a factor is soon too long to be read as a whole
            recorder.contents.read_elements(owner)
            recorder.containers.change(owner, name, times)
            return owner
        if is_a(owner, set) and not is_a(other, (set, frozenset)):
            return NotImplemented
        method = _SET_UPDATES[name] if is_a(owner, set) else "extend" if name == "__iadd__" else "update"
        self.container_method(getattr(base, method).__get__(owner), owner, (other,), {})
        return owner

    def _dict_method(self, function: Any, name: str, owner: dict[Any, Any], key: Any, *default: Any) -> Any:
        """`setdefault` or `pop` of an outside dictionary."""
        recorder = self.recorder
        is_present = recorder.containers.base_contains(key, owner)
        if name == "setdefault":
            if not is_present:
                recorder.containers.set_base_item(default[0] if default else None, owner, key)
            return recorder.containers.base_item(owner, key)
        if not is_present:
            return recorder.perform(lambda: function(key, *default))
        value = recorder.containers.base_item(owner, key)
        recorder.containers.delete_base_item(owner, key)
        return value
