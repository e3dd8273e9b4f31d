"""What outlives a recorded call: results, what is stored, raised or left alive leads to plain values only.

During a recording there are stand-ins: symbolic numbers, iterators that the recorder drives, functions that it hands to C code.
`without_stand_ins` walks through all that a value leads to, as the garbage collector sees it, and puts in the place of each stand-in what
it stands for: items of lists, dictionaries and sets, attributes, variables of closures, and what tuples, iterators and other objects of C
code hold. All of these stay the objects that they are, so whoever has one of them elsewhere finds the same.

Not walked through are objects from outside, which never get a stand-in, modules, classes, frames, and objects of the library below nn.
Generators of instrumented code keep their variables: that code takes stand-ins for what they stand for when it goes on.  Of any other
object whose memory cannot be changed so the caller is told: the recording stops.
"""

from __future__ import annotations

import gc
from collections import OrderedDict, deque
from collections.abc import Callable
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

from tracejit.capture.handlers.symbols import IMMUTABLE_HOLDERS, STAND_INS, RecordedCallback, plain, stored
from tracejit.capture.policies import is_library_module, is_python_class, module_of, slots_of
from tracejit.capture.syntax.convert import is_instrumented
from tracejit.core.interrupts import is_foreign
from tracejit.cpython.referents import replace_referent
from tracejit.tensor import Tensor

__all__ = ["clean_closure", "repaired_after_stop", "without_stand_ins"]

_PLAIN = frozenset((int, float, bool, str, bytes, complex, type(None), range))
"""Types of values that lead to nothing."""
_CLOSED: tuple[type, ...] = (type, ModuleType, FrameType, TracebackType, CodeType, np.ndarray, np.generic)
"""Types of objects that are not walked through."""
_LEADING = frozenset((GeneratorType, RecordedCallback))
"""Types of stand-ins for what may lead to others."""
_CONTAINERS = frozenset((list, deque, dict, set, tuple))


def without_stand_ins(
    value: Any, is_outside: Callable[[Any], bool] | None = None, refused: Callable[[Any], None] | None = None
) -> Any:
    """What `value` stands for, or itself, with no stand-ins in what it leads to.  is_outside: which objects are from outside; where it
    is not given, containers alone are looked into.  refused: called with each object that still refers to a stand-in."""
    return _StandInRemoval(is_outside, refused).run(value)


def repaired_after_stop(value: Any) -> Any:
    """`value`, which was being made when the recording stopped: of what went into it before then there may be stand-ins among its
    elements.  Containers in it were made before, and have none."""
    cls = type(value)
    if cls is list or cls is deque:
        for index, item in enumerate(value):
            if type(item) in IMMUTABLE_HOLDERS and (other := stored(item)) is not item:
                value[index] = other
    elif cls is dict:
        if any(type(part) in IMMUTABLE_HOLDERS for pair in value.items() for part in pair):
            items = [(stored(key), stored(item)) for key, item in value.items()]
            value.clear()
            value.update(items)
    elif cls is set or cls is frozenset:
        if any(type(item) in IMMUTABLE_HOLDERS for item in value):
            return cls(map(stored, value))
    elif cls in IMMUTABLE_HOLDERS:
        return stored(value)
    return value


def clean_closure(function: Any) -> None:
    """Take the stand-ins out of the variables that a function finds around it, and out of its defaults: from now on it may run as it
    is."""
    if type(function) is FunctionType:
        _StandInRemoval(None, None).enter(function)


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

    def enter(self, value: Any) -> None:
        self._enter(value)
        self.run(None)

    def _clean(self, value: Any) -> Any:
        """What stands in the place of a value; what may have stand-ins in it is looked into later."""
        cls = type(value)
        if cls in _PLAIN or id(value) in self._seen:
            return value
        if cls in STAND_INS and (other := plain(value)) is not value:
            return self._clean(other) if cls in _LEADING else other
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
