"""Replacement of stand-ins by plain values, in all that escapes from a recorded call.  No other module does this.

Stand-ins exist during a recording: symbolic numbers, iterators that the recorder drives, callbacks for C code (symbols.py).
Results, stored objects, errors and arguments of C code must not refer to them.  None of these functions adds a guard.  A handler
that needs a number to decide something calls `concretise` (symbols.py) or `contents.concretise_contents`.

| function | result | purpose |
| --- | --- | --- |
| `plain(x)` | the value that the stand-in `x` stands for | to look at a value |
| `plain_value(x)` | the same, and new tuples for those with stand-ins | to store; mutable containers are cleaned later |
| `plain_copy(x)` | copies of containers and slices with stand-ins | for C code, while the function still uses `x` |
| `without_stand_ins(x)` | `x` itself, changed in place with all it refers to | at the end of a recording |

`without_stand_ins` follows the references that the garbage collector follows: items of lists, dictionaries and sets, attributes,
variables of closures, and references of tuples, iterators and other objects of C code.  Each object keeps its identity, so other
references to it see the change.  It does not follow objects from outside, which never get a stand-in, nor modules, classes,
frames and objects of the library below nn.  Generators of instrumented code keep stand-ins in their variables, because that code
uses their plain values after the recording.  If another object of C code cannot be changed, the caller is told and the recording
stops.
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
"""Types of values that refer to no other objects."""
_CLOSED: tuple[type, ...] = (type, ModuleType, FrameType, TracebackType, CodeType, np.ndarray, np.generic)
"""Types of objects whose references are not followed."""
_CONTAINERS = frozenset((list, deque, dict, set, tuple))
_ITERATED = frozenset((list, deque, set, frozenset))
_ORIGINALS: WeakTable[Iterator[Any]] = WeakTable()

STANDS_FOR: dict[type, Callable[[Any], Any]] = {GeneratorType: lambda steps: _ORIGINALS.get(steps) or steps}
"""Type of a stand-in -> function from it to its plain value.  A module that defines a kind of stand-in enters it here.  A
generator is a stand-in if `stand_in_iterator` has registered it."""
STANDS_FOR.update(dict.fromkeys(SYMBOLIC, without_symbols))


def stand_in_iterator(original: Iterator[Any], steps: Iterator[Any]) -> Iterator[Any]:
    """`steps`, registered as a stand-in for the iterator `original`: a generator that advances `original` and gives the elements
    as the recording has them."""
    _ORIGINALS[steps] = plain(original)
    return steps


def plain(value: Any) -> Any:
    """The plain value of a stand-in, without a guard: the number of a symbolic one or of an `id()`, the iterator that a generator
    advances, the function of a callback.  Other values unchanged."""
    convert = STANDS_FOR.get(type(value))
    return value if convert is None else convert(value)


def may_hold_stand_ins(value: Any) -> bool:
    """Whether `plain_value(value)` may be another object than `value`: a quick test of its type."""
    return type(value) is tuple or type(value) in STANDS_FOR


def plain_value(value: Any) -> Any:
    """`value` for storing outside: stand-ins in it and in nested tuples replaced.  The same object if there are none."""
    return _new_tuple(value) if type(value) is tuple else plain(value)


def _new_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """`plain_value` of a tuple.  It is iterative, so that the depth of nesting is not limited."""
    new: dict[int, tuple[Any, ...]] = {}  # by the id of the tuple in `value` that it replaces
    waiting = [value]
    while waiting:
        outer = waiting[-1]
        if inner := [part for part in outer if type(part) is tuple and id(part) not in new]:
            waiting += inner
            continue
        parts = tuple([new[id(part)] if type(part) is tuple else plain(part) for part in outer])
        new[id(outer)] = outer if all(map(operator.is_, parts, outer)) else parts
        waiting.pop()
    return new[id(value)]


def plain_copy(value: Any, kept: Callable[[Any], bool] = lambda value: False, around: tuple[Any, ...] = ()) -> Any:
    """`value` for C code: containers and slices with stand-ins, at any depth, are copied without them.

    kept: whether a container is known to have none.  around: the containers that `value` is in; a reference back to one of them
    is not followed."""
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
    """The plain value of `value`, or `value` itself, with the stand-ins in all that it refers to replaced in place.

    is_outside: whether an object is from outside; if it is None, only containers and functions are followed.  refused: called
    with each object that still refers to a stand-in.  nested: False for a new container whose items are stand-ins, tuples of
    them, or have none."""
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
    """One traversal of an object graph.  It is iterative, so that the depth of nesting is not limited."""

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
        """The value that replaces `value`.  If it may refer to stand-ins, it is put in the queue."""
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
        """Replace the stand-ins that `value` refers to."""
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
            cleaned = list(map(self._clean, members))
            if any(a is not b for a, b in zip(members, cleaned, strict=True)):
                set.clear(value)
                set.update(value, cleaned)
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
        is_user_object = is_python_class(cls)
        if is_user_object and is_library_module(module_of(cls)):
            return
        for part in gc.get_referents(value):
            if (other := self._clean(part)) is not part:
                if is_user_object:
                    self._replace_attribute(value, part, other)
                self._replace(value, part, other)

    def _replace(self, owner: Any, old: Any, new: Any) -> None:
        """Replace a reference of an object of C code.  If that is not possible, `refused` is called."""
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
            cleaned, items = map(self._clean, keys), [base.__getitem__(value, key) for key in keys]
            base.clear(value)
            for key, item in zip(cleaned, items, strict=True):
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
        """Replace a value in the attributes and slots of an object of user code, without calling its methods."""
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
            except AttributeError:  # an empty slot
                continue
            if value is old:
                slot.__set__(owner, new)
