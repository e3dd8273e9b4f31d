"""Stand-ins back into plain values: the one place where that is done, for whatever escapes from a recorded call.

During a recording there are stand-ins: symbolic numbers, iterators that the recorder drives, functions that it hands to C code
(symbols.py).  Results, stored objects, errors, and arguments of C code lead to plain values.  None of these functions adds a guard;
who needs a number in order to decide something asks `concrete` (symbols.py) or `contents.concrete_contents`.

| function | gives | for |
| --- | --- | --- |
| `plain(x)` | what the stand-in `x` stands for | looking at a value |
| `plain_value(x)` | the same, and new tuples where they held stand-ins | storing: containers that change are cleaned later |
| `plain_copy(x)` | a copy of containers and slices that held stand-ins | C code, while the program goes on with `x` |
| `without_stand_ins(x)` | `x` itself, with all that it leads to changed in place | the end of a recording |

The last one walks through objects as the garbage collector sees them: items of lists, dictionaries and sets, attributes, variables of
closures, and what tuples, iterators and other objects of C code hold.  All of these stay the objects that they are, so whoever has one of
them elsewhere finds the same.  Not walked through are objects from outside, which never get a stand-in, modules, classes, frames, and
objects of the library below nn.  Generators of instrumented code keep their variables: that code takes stand-ins for what they stand for
when it goes on.  Of any other object whose memory cannot be changed so the caller is told: the recording stops.
"""

from __future__ import annotations

import gc
import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from types import (
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    ModuleType,
    TracebackType,
)
from typing import Any

import numpy as np

from tracejit.capture.container_kinds import CONTAINER_KINDS, children, rebuilt
from tracejit.capture.policies import is_library_module, is_python_class, module_of, slots_of
from tracejit.capture.syntax.convert import is_instrumented
from tracejit.core.interrupts import is_foreign
from tracejit.core.symbolic import SYMBOLIC, without_symbols
from tracejit.core.weak_table import WeakTable
from tracejit.cpython.referents import replace_referent
from tracejit.tensor import Tensor

__all__ = ["STANDS_FOR", "may_hold_stand_ins", "plain", "plain_copy", "plain_value", "stand_in_iterator", "without_stand_ins"]

_PLAIN = frozenset((int, float, bool, str, bytes, complex, type(None), range))
"""Types of values that lead to nothing."""
_CLOSED: tuple[type, ...] = (type, ModuleType, FrameType, TracebackType, CodeType, np.ndarray, np.generic)
"""Types of objects that are not walked through."""
_CONTAINERS = frozenset((list, deque, dict, set, tuple))
_ITERATED = frozenset((list, deque, set, frozenset))
_ORIGINALS: WeakTable[Iterator[Any]] = WeakTable()

STANDS_FOR: dict[type, Callable[[Any], Any]] = {GeneratorType: lambda steps: _ORIGINALS.get(steps) or steps}
"""Type of a stand-in -> what one stands for.  A module that defines a kind of stand-in enters it here.  Of generators, those that
`stand_in_iterator` was given are stand-ins."""
STANDS_FOR.update(dict.fromkeys(SYMBOLIC, without_symbols))


def stand_in_iterator(original: Iterator[Any], steps: Iterator[Any]) -> Iterator[Any]:
    """`steps`, a generator that goes through `original`, and gives what the recording has for its elements."""
    _ORIGINALS[steps] = plain(original)
    return steps


def plain(value: Any) -> Any:
    """What a stand-in stands for, without a guard: the number behind a symbolic one, or behind an `id()`, the iterator that a generator
    goes through, the function behind a callback.  Anything else as it is."""
    behind = STANDS_FOR.get(type(value))
    return value if behind is None else behind(value)


def may_hold_stand_ins(value: Any) -> bool:
    """Whether `plain_value` may be something else than `value`: a quick test of its type."""
    return type(value) is tuple or type(value) in STANDS_FOR


def plain_value(value: Any) -> Any:
    """What a place outside gets for `value`: a plain value, or a tuple of such.  The same object where there is no stand-in."""
    return _new_tuple(value) if type(value) is tuple else plain(value)


def _new_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    new = tuple(map(plain_value, value))
    return value if all(map(operator.is_, new, value)) else new


def plain_copy(value: Any, kept: Callable[[Any], bool] = lambda value: False, around: tuple[Any, ...] = ()) -> Any:
    """`value` as C code gets it now: containers and slices that hold stand-ins, at any depth, are copied without them.
    kept: of which it is known that they have none.  around: the containers that it is in, which stay as they are inside themselves."""
    cls = type(value)
    if cls not in CONTAINER_KINDS or kept(value):
        return plain(value)
    if any(value is container for container in around):
        return value
    around = (*around, value)
    return rebuilt(value, [plain_copy(part, kept, around) for part in children(value)])


def without_stand_ins(
    value: Any,
    is_outside: Callable[[Any], bool] | None = None,
    refused: Callable[[Any], None] | None = None,
    *,
    nested: bool = True,
) -> Any:
    """What `value` stands for, or itself, with no stand-ins in what it leads to.  is_outside: which objects are from outside; where it
    is not given, containers and functions alone are looked into.  refused: called with each object that still refers to a stand-in.
    nested: False for what has just been made of parts that are clean, but for stand-ins themselves and tuples of them."""
    if nested or type(value) is FunctionType:
        return _StandInRemoval(is_outside, refused).run(value)
    cls = type(value)
    if cls in _ITERATED and any(map(may_hold_stand_ins, value)):
        if cls is set or cls is frozenset:
            return cls(map(plain_value, value))
        for index, item in enumerate(value):
            value[index] = plain_value(item)
    elif cls is dict and any(may_hold_stand_ins(part) for pair in value.items() for part in pair):
        items = [(plain_value(key), plain_value(item)) for key, item in value.items()]
        value.clear()
        value.update(items)
    return plain_value(value)


class _StandInRemoval:
    """One walk: objects in turn, whatever their number, so that no depth of nesting is too much."""

    def __init__(self, is_outside: Callable[[Any], bool] | None, refused: Callable[[Any], None] | None) -> None:
        self._is_outside = is_outside
        self._refused = refused
        self._seen: dict[int, Any] = {}
        self._waiting: list[Any] = []

    def run(self, value: Any) -> Any:
        result = self._clean(value)
        while self._waiting:
            self._enter(self._waiting.pop())
        return result

    def _clean(self, value: Any) -> Any:
        """What stands in the place of a value; what may have stand-ins in it is looked into later."""
        cls = type(value)
        if cls in _PLAIN or id(value) in self._seen:
            return value
        if cls in STANDS_FOR and (other := plain(value)) is not value:
            return self._clean(other)
        if issubclass(cls, _CLOSED) or (self._is_outside is not None and self._is_outside(value)):
            return value
        self._seen[id(value)] = value
        self._waiting.append(value)
        return value

    def _enter(self, value: Any) -> None:
        cls = type(value)
        if issubclass(cls, (list, deque)):
            base: Any = list if issubclass(cls, list) else deque
            for index, item in enumerate(base.__iter__(value)):
                if (other := self._clean(item)) is not item:
                    base.__setitem__(value, index, other)
        elif issubclass(cls, dict):
            self._enter_dictionary(value, OrderedDict if issubclass(cls, OrderedDict) else dict)
        elif issubclass(cls, set):
            members = list(set.__iter__(value))
            plainly = list(map(self._clean, members))
            if any(a is not b for a, b in zip(members, plainly, strict=True)):
                set.clear(value)
                set.update(value, plainly)
        elif issubclass(cls, tuple):
            for item in tuple.__iter__(value):
                if (other := self._clean(item)) is not item:
                    self._replace(value, item, other)
        elif cls is FunctionType:
            self._enter_function(value)
            return
        if self._is_outside is None or cls in _CONTAINERS:
            return
        if issubclass(cls, Tensor):
            if vars(value):
                self._clean(vars(value))
            return
        of_program = is_python_class(cls)
        if of_program and is_library_module(module_of(cls)):
            return
        for part in gc.get_referents(value):
            if (other := self._clean(part)) is not part:
                if of_program:
                    self._replace_attribute(value, part, other)
                self._replace(value, part, other)

    def _replace(self, owner: Any, old: Any, new: Any) -> None:
        """Have an object of C code refer to `new`."""
        if replace_referent(owner, old, new) or self._refused is None or all(x is not old for x in gc.get_referents(owner)):
            return
        if not (type(owner) is GeneratorType and is_instrumented(owner.gi_code)):
            self._refused(owner)

    def _enter_dictionary(self, value: Any, base: Any) -> None:
        for key, item in dict.items(value):
            if (other := self._clean(item)) is not item:
                base.__setitem__(value, key, other)
        if any(self._clean(key) is not key for key in dict.__iter__(value)):
            keys = list(base.__iter__(value))
            plainly, items = map(self._clean, keys), [base.__getitem__(value, key) for key in keys]
            base.clear(value)
            for key, item in zip(plainly, items, strict=True):
                base.__setitem__(value, key, item)

    def _enter_function(self, function: FunctionType) -> None:
        defaults, keywords = function.__defaults__, function.__kwdefaults__
        if defaults is not None:
            self._clean(defaults)
        if keywords is not None:
            self._clean(keywords)
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError as error:  # an empty cell
                if is_foreign(error):
                    raise
                continue
            if (other := self._clean(value)) is not value:
                cell.cell_contents = other
        if self._is_outside is not None and function.__dict__:
            self._clean(function.__dict__)

    def _replace_attribute(self, owner: Any, old: Any, new: Any) -> None:
        """Put another value where an object of the program has one, past any method of it."""
        try:
            instance = object.__getattribute__(owner, "__dict__")
        except AttributeError:
            instance = None
        for name, value in list(dict.items(instance)) if isinstance(instance, dict) else ():
            if value is old:
                dict.__setitem__(instance, name, new)
        for _, slot in slots_of(type(owner)):
            try:
                value = slot.__get__(owner)
            except AttributeError:  # nothing is in it
                continue
            if value is old:
                slot.__set__(owner, new)
