"""What is known of objects, for as long as they live.

A `WeakTable` is a dictionary whose keys are objects, compared by identity, that it does not keep alive: what is known of an object is
forgotten in the moment it dies, so that an object made later at the same address is a new one.  Forgetting runs no Python code:
there is nothing in it that a signal could interrupt, and nothing whose exception would be lost.

Invariant: a value must not lead to its key, else neither ever dies.
"""

from __future__ import annotations

import weakref
from collections.abc import Container
from functools import partial
from typing import Any, Generic, TypeVar

__all__ = ["WeakTable"]

Known = TypeVar("Known")


class WeakTable(Generic[Known]):
    """Values by the identity of objects that can be referred to weakly."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Known]] = {}

    def __setitem__(self, key: Any, value: Known) -> None:
        known = self._known
        known[id(key)] = weakref.ref(key, partial(known.pop, id(key))), value

    def get(self, key: Any) -> Known | None:
        """The value of an object, None where there is none."""
        found = self._known.get(id(key))
        return None if found is None else found[1]

    def clear(self) -> None:
        """Forget all objects."""
        self._known.clear()

    def keys(self) -> list[Any]:
        """The objects that live."""
        return [key for reference, _ in list(self._known.values()) if (key := reference()) is not None]

    def ids(self) -> Container[int]:
        """The ids of the objects, for who looks at many."""
        return self._known

    def __contains__(self, key: Any) -> bool:
        return id(key) in self._known

    def __len__(self) -> int:
        return len(self._known)
