"""Kinds of containers of C code: how to list what is in one, and how to make one of other parts.

Who walks through structures asks this table for the parts of a container, whatever it does with them.  Walks that go by places (variables,
attributes, items) and store there use nested_places.py, whose objects are those that the call has created.

Must not know: the recorder, stand-ins, guards.
"""

from __future__ import annotations

import itertools
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from tracejit.capture.policies import builtin_base

__all__ = ["CONTAINER_KINDS", "ContainerKind", "children", "children_past_methods", "rebuilt"]


class ContainerKind(NamedTuple):
    """parts: of a container, in order and past the methods of classes that derive from this one; of a dictionary each key before its value.
    rebuilt: a container of these parts that is like the given one otherwise."""

    parts: Callable[[Any], Iterable[Any]]
    rebuilt: Callable[[Any, list[Any]], Any]


def _items(mapping: Any) -> Iterable[Any]:
    return itertools.chain.from_iterable(dict.items(mapping))


def _pairs(parts: list[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(parts[::2], parts[1::2], strict=True)


def _ordered_items(mapping: Any) -> Iterable[Any]:
    for key in OrderedDict.__iter__(mapping):  # whose order is not that of its memory
        yield from (key, dict.__getitem__(mapping, key))


CONTAINER_KINDS: Final[dict[type, ContainerKind]] = {
    list: ContainerKind(list.__iter__, lambda _, parts: list(parts)),
    tuple: ContainerKind(tuple.__iter__, lambda _, parts: tuple(parts)),
    set: ContainerKind(set.__iter__, lambda _, parts: set(parts)),
    frozenset: ContainerKind(frozenset.__iter__, lambda _, parts: frozenset(parts)),
    deque: ContainerKind(deque.__iter__, lambda like, parts: deque(parts, like.maxlen)),
    dict: ContainerKind(_items, lambda _, parts: dict(_pairs(parts))),
    OrderedDict: ContainerKind(_ordered_items, lambda _, parts: OrderedDict(_pairs(parts))),
    defaultdict: ContainerKind(_items, lambda like, parts: defaultdict(like.default_factory, _pairs(parts))),
    slice: ContainerKind(lambda value: (value.start, value.stop, value.step), lambda _, parts: slice(*parts)),
}


def children(value: Any) -> Iterable[Any]:
    """What is in a container whose type is exactly one of the table; nothing for anything else."""
    kind = CONTAINER_KINDS.get(type(value))
    return () if kind is None else kind.parts(value)


def children_past_methods(value: Any) -> Iterable[Any]:
    """The same, also for classes that derive from such a type.  No code of theirs runs."""
    kind = CONTAINER_KINDS.get(type(value)) or CONTAINER_KINDS.get(builtin_base(type(value)))
    return () if kind is None else kind.parts(value)


def rebuilt(value: Any, parts: list[Any]) -> Any:
    """A container like `value`, with `parts` in the places of `children(value)`; `value` itself where these are the same objects."""
    if all(map(operator.is_, parts, children(value))):
        return value
    return CONTAINER_KINDS[type(value)].rebuilt(value, parts)
