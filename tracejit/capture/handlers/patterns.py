"""Matching of class, sequence and mapping patterns, as the match statement does it.

`matched_class` and `matched_mapping` return the parts of the subject that have patterns of their own, in a tuple, or None if the
pattern does not match.  `Operations` read attributes, items and lengths: Python's own, or those of a recording.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Iterable
from typing import Any, Protocol

from tracejit.capture.defects import does_as_python

__all__ = ["PYTHON", "Operations", "elements_of", "has_length", "item_of", "matched_class", "matched_mapping"]

SEQUENCE, MAPPING, ITSELF = 1 << 5, 1 << 6, 1 << 22
"""Flags of types: sequence patterns match it; mapping patterns match it; its single positional pattern matches the subject
itself, as in `int(x)`."""
_INDEXED: tuple[type, ...] = (list, tuple, collections.deque)


class Operations(Protocol):
    """The operations that read parts of a subject."""

    def has_flag(self, value: Any, flag: int) -> bool: ...
    def is_instance(self, value: Any, cls: Any) -> bool: ...
    def attribute(self, value: Any, name: str) -> Any: ...
    def length(self, value: Any) -> Any: ...
    def holds(self, symbol: str, left: Any, right: Any) -> bool: ...
    def elements(self, value: Any) -> Iterable[Any]: ...
    def item(self, value: Any, index: Any) -> Any: ...
    def found(self, mapping: Any, key: Any, missing: Any) -> Any: ...
    def mapping(self, value: Any) -> Any: ...


class _Python:
    """Python's own operations."""

    attribute, length, item = staticmethod(getattr), staticmethod(len), staticmethod(operator.getitem)
    elements, is_instance = staticmethod(iter), staticmethod(isinstance)

    @staticmethod
    def mapping(value: Any) -> Any:
        return dict(value)

    @staticmethod
    def has_flag(value: Any, flag: int) -> bool:
        return bool(type(value).__flags__ & flag)

    @staticmethod
    def holds(symbol: str, left: Any, right: Any) -> bool:
        return bool(left >= right if symbol == ">=" else left == right)

    @staticmethod
    def found(mapping: Any, key: Any, missing: Any) -> Any:
        return mapping.get(key, missing)


PYTHON: Operations = _Python()


@does_as_python
def matched_class(
    operations: Operations, subject: Any, cls: Any, positional: int, names: tuple[str, ...]
) -> tuple[Any, ...] | None:
    """The attributes for which `cls(..., name=...)` has patterns, `positional` of them by `__match_args__`; None if the pattern
    does not match.  Raises Python's TypeError for a pattern that the class does not support."""
    if not isinstance(cls, type):
        match subject:
            case cls():  # raises Python's error
                pass
    if not operations.is_instance(subject, cls):
        return None
    wanted: list[Any] = []
    itself = False
    if positional:
        try:
            order = operations.attribute(cls, "__match_args__")
        except AttributeError:
            order, itself = (), bool(cls.__flags__ & ITSELF)
        if type(order) is not tuple:
            raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type(order).__name__})")
        allowed = 1 if itself else len(order)
        if allowed < positional:
            plural = "" if allowed == 1 else "s"
            raise TypeError(f"{cls.__name__}() accepts {allowed} positional sub-pattern{plural} ({positional} given)")
        wanted = list(order[:positional])
    values: list[Any] = [subject] if itself else []
    seen: set[str] = set()
    for name in (*wanted, *names):
        if type(name) is not str:
            raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
        if name in seen:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        try:
            values.append(operations.attribute(subject, name))
        except AttributeError:
            return None
    return tuple(values)


@does_as_python
def has_length(operations: Operations, subject: Any, before: int, starred: bool, after: int) -> bool:
    """Whether `subject` is a sequence of before + after elements; with a star, of at least so many."""
    if not operations.has_flag(subject, SEQUENCE):
        return False
    if starred and not before + after:
        return True
    return operations.holds(">=" if starred else "==", operations.length(subject), before + after)


@does_as_python
def elements_of(operations: Operations, subject: Any, before: int, starred: bool, after: int) -> tuple[Any, ...]:
    """The elements of a sequence for which `has_length` holds; those that the star takes are one list."""
    items = list(operations.elements(subject))
    if not starred:
        return tuple(items)
    end = len(items) - after
    return (*items[:before], items[before:end], *items[end:])


@does_as_python
def item_of(operations: Operations, subject: Any, position: int) -> Any:
    """subject[position] of a sequence; a negative `position` counts from the end, also for sequences that do not support that."""
    if position < 0 and type(subject) not in _INDEXED:
        position += operations.length(subject)
    return operations.item(subject, position)


@does_as_python
def matched_mapping(operations: Operations, subject: Any, keys: tuple[Any, ...], rest: bool) -> tuple[Any, ...] | None:
    """The values of `keys` in a mapping, and with `rest` a dictionary of the other items; None if the pattern does not match."""
    if not operations.has_flag(subject, MAPPING):
        return None
    if keys and not operations.holds(">=", operations.length(subject), len(keys)):
        return None
    values: list[Any] = []
    missing = object()
    for position, key in enumerate(keys):
        if key in keys[:position]:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        value = operations.found(subject, key, missing)
        if value is missing:
            return None
        values.append(value)
    if rest:
        others = dict(operations.mapping(subject))
        for key in keys:
            del others[key]
        values.append(others)
    return tuple(values)
