"""The journal of a recording: an append-only log of what the run did.

It has three kinds of events, all immutable:

* operations on tensors: the `nodes` of the raw graph;
* `statements` of the prologue, which read and guard values from outside;
* changes of *tables*: the dictionaries, sets, lists and attributes in which handlers keep their state (what was stored, called,
  drawn).

A handler creates its tables by `journal.dictionary(...)` and the like, or as a `Variable`, each with a `Topic`.  It uses them
like any other container; each change is logged.  Data that can be derived from the events need no table: their owners keep them
in plain containers and truncate these themselves (the value ids of tensors, `StateRecorder.truncate`; what has been read and
guarded).

A `Mark` is a position in the journal.  The recognition of loops asks three things about the events since a mark: is there
anything but operations (`has_read`, `changes`), which operations are there (`nodes`), and it rolls back (`truncate`).  A table
that was changed and set back has not changed: the state at the mark is compared with the state now.

This module must not know what tables are for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, overload

from tracejit.capture.policies import PRIMITIVE_TYPES

if TYPE_CHECKING:
    from tracejit.ir.graph import Node

__all__ = ["NOTHING", "Change", "Journal", "Mark", "Topic", "Variable", "is_same"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ABSENT: Final[Any] = object()
"""The value of a table at a key that it does not have."""


class Topic(Flag):
    """What a table is about."""

    READS = auto()
    """Values read from outside.  A rollback leaves these tables alone, since the guards on them remain."""
    NUMBERS = auto()
    """Post-program numbers.  A step of a loop may compute any number of them that nothing refers to afterwards."""
    APPENDED = auto()
    """Items appended to lists that snapshots do not walk through (reached_lists.py)."""
    EFFECTS = auto()
    """Everything else: changes outside, calls, draws, locks, arrays."""
    INDEX = auto()
    """Data derived from other tables: `changes` does not report them."""


NOTHING: Final = Topic(0)


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the journal: the number of events of each kind before it."""

    nodes: int
    statements: int
    changes: int


class _Table(Protocol):
    topic: Topic

    def at(self, key: Any) -> Any:
        """The current value at `key`; `_ABSENT` if there is none."""

    def restore(self, key: Any, before: Any) -> None:
        """Put `before` back at `key`, without an event."""


Change = tuple[_Table, Any, Any]
"""(table, key, the value before the change).  It is a bare tuple, since creating a NamedTuple or dataclass runs Python code that
the watch of the recording would take for user code."""


class Journal:
    """The journal of one recording; see the module.  nodes: the operations.  statements: the prologue."""

    __slots__ = ("_changes", "nodes", "statements")

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.statements: list[Any] = []
        self._changes: list[Change] = []

    # -- tables
    def dictionary(self, topic: Topic = Topic.EFFECTS) -> LoggedDict[Any, Any]:
        """A new dictionary."""
        return LoggedDict(self._changes, topic)

    def set(self, topic: Topic = Topic.EFFECTS) -> LoggedSet[Any]:
        """A new set."""
        return LoggedSet(self._changes, topic)

    def list(self, topic: Topic = Topic.EFFECTS) -> LoggedList[Any]:
        """A new list."""
        return LoggedList(self._changes, topic)

    def note(self, topic: Topic = Topic.EFFECTS) -> None:
        """Log a change that is in no table and cannot be undone."""
        self._changes.append((_AlwaysChanged(topic), None, False))

    def release(self) -> None:
        """Drop the log, which keeps former values of tables alive.  The journal is not used after this."""
        self._changes.clear()

    # -- slices
    def mark(self) -> Mark:
        """The current position."""
        return Mark(len(self.nodes), len(self.statements), len(self._changes))

    def has_read(self, since: Mark) -> bool:
        """Whether statements have been added to the prologue since a mark."""
        return len(self.statements) > since.statements

    def changes(self, since: Mark, ignored: Topic = NOTHING) -> Iterator[tuple[_Table, Any]]:
        """(table, key) for each difference between the tables now and at a mark, without tables of the topics `ignored`."""
        first: dict[tuple[int, Any], Change] = {}
        ignored |= Topic.INDEX
        for change in self._changes[since.changes :]:
            table, key, _ = change
            if table.topic not in ignored:
                first.setdefault((id(table), key), change)
        for table, key, before in first.values():
            if not is_same(table.at(key), before):
                yield table, key

    def truncate(self, mark: Mark) -> None:
        """Roll back to a mark, except for what was read: those guards remain.  Owners of data derived from nodes truncate these
        themselves."""
        del self.nodes[mark.nodes :]
        since = self._changes[mark.changes :]
        for table, key, before in reversed(since):
            if table.topic is not Topic.READS:
                table.restore(key, before)
        self._changes[mark.changes :] = [change for change in since if change[0].topic is Topic.READS]


def is_same(now: Any, before: Any) -> bool:
    """Whether two values of a table count as the same: the same object, equal plain values, tuples of such, or objects whose
    class says so by `is_like`."""
    if now is before:
        return True
    cls = type(now)
    if cls is not type(before):
        return False
    if cls in PRIMITIVE_TYPES:
        return repr(now) == repr(before)  # distinguishes 0.0 from -0.0, and takes NaN for equal to NaN
    if cls is tuple:
        return len(now) == len(before) and all(map(is_same, now, before))
    is_like = getattr(cls, "is_like", None)
    return is_like is not None and bool(is_like(now, before))


class LoggedDict(dict[K, V]):
    """A dictionary whose changes are logged.  A rollback may change the order of its keys."""

    __slots__ = ("_changes", "topic")

    def __init__(self, changes: list[Change], topic: Topic) -> None:
        self._changes = changes
        self.topic = topic

    def at(self, key: Any) -> Any:
        return self.get(key, _ABSENT)

    def restore(self, key: Any, before: Any) -> None:
        if before is not _ABSENT:
            dict.__setitem__(self, key, before)
        elif key in self:
            dict.__delitem__(self, key)

    def __setitem__(self, key: K, value: V) -> None:
        before = self.get(key, _ABSENT)
        if before is not value:
            self._changes.append((self, key, before))
            dict.__setitem__(self, key, value)

    def __delitem__(self, key: K) -> None:
        self._changes.append((self, key, self[key]))
        dict.__delitem__(self, key)

    def setdefault(self, key: K, default: V) -> V:  # type: ignore[override]
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: K, default: Any = _ABSENT) -> Any:  # type: ignore[override]
        if key not in self and default is not _ABSENT:
            return default
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        self._changes += [(self, key, value) for key, value in self.items()]
        dict.clear(self)

    update = popitem = __ior__ = None  # type: ignore[assignment]


class LoggedSet(set[K]):
    """A set whose changes are logged."""

    __slots__ = ("_changes", "topic")

    def __init__(self, changes: list[Change], topic: Topic) -> None:
        self._changes = changes
        self.topic = topic

    def at(self, key: Any) -> Any:
        return key in self

    def restore(self, key: Any, before: Any) -> None:
        (set.add if before else set.discard)(self, key)

    def add(self, key: K) -> None:
        if key not in self:
            self._changes.append((self, key, False))
            set.add(self, key)

    def discard(self, key: K) -> None:  # type: ignore[override]
        if key in self:
            self._changes.append((self, key, True))
            set.discard(self, key)

    def update(self, others: Iterable[K]) -> None:  # type: ignore[override]
        for key in others:
            self.add(key)

    def clear(self) -> None:
        self._changes += [(self, key, True) for key in self]
        set.clear(self)

    pop = remove = difference_update = intersection_update = symmetric_difference_update = None  # type: ignore[assignment]
    __ior__ = __iand__ = __isub__ = __ixor__ = None  # type: ignore[assignment]


class LoggedList(list[V]):
    """A list whose changes are logged.  Items can be appended and replaced."""

    __slots__ = ("_changes", "topic")

    def __init__(self, changes: list[Change], topic: Topic) -> None:
        self._changes = changes
        self.topic = topic

    def at(self, key: int) -> Any:
        return self[key] if key < len(self) else _ABSENT

    def restore(self, key: int, before: Any) -> None:
        if before is _ABSENT:
            list.__delitem__(self, slice(key, None))
        elif key < len(self):
            list.__setitem__(self, key, before)
        else:
            list.append(self, before)

    def append(self, item: V) -> None:
        self._changes.append((self, len(self), _ABSENT))
        list.append(self, item)

    def extend(self, items: Iterable[V]) -> None:
        for item in items:
            self.append(item)

    def __iadd__(self, items: Iterable[V]) -> LoggedList[V]:  # type: ignore[override, misc]
        self.extend(items)
        return self

    def __setitem__(self, index: int, item: V) -> None:  # type: ignore[override]
        self._changes.append((self, index, self[index]))
        list.__setitem__(self, index, item)

    def clear(self) -> None:
        self._changes += [(self, index, self[index]) for index in reversed(range(len(self)))]
        list.clear(self)

    pop = remove = insert = sort = reverse = __delitem__ = __imul__ = None  # type: ignore[assignment]


class _AlwaysChanged:
    """The table of a change that is in no table (`Journal.note`): it always counts as changed."""

    __slots__ = ("topic",)

    def __init__(self, topic: Topic) -> None:
        self.topic = topic

    def at(self, key: Any) -> bool:
        return True

    def restore(self, key: Any, before: Any) -> None:
        """Does nothing."""


class Variable(Generic[V]):
    """A descriptor for an attribute whose assignments are logged.  The owner needs a `journal`, and `__dict__` or a slot
    `_<name>` for the value."""

    def __init__(self, initial: V, topic: Topic = Topic.EFFECTS) -> None:
        self.topic = topic
        self._initial = initial

    def __set_name__(self, owner: type, name: str) -> None:
        self._slot = f"_{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> Variable[V]: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> V: ...
    def __get__(self, instance: Any, owner: type) -> Variable[V] | V:
        return self if instance is None else getattr(instance, self._slot, self._initial)

    def __set__(self, instance: Any, value: V) -> None:
        before = self.__get__(instance, type(instance))
        if before is not value:
            instance.journal._changes.append((self, instance, before))
            setattr(instance, self._slot, value)

    def at(self, instance: Any) -> V:
        return self.__get__(instance, type(instance))

    def restore(self, instance: Any, before: V) -> None:
        setattr(instance, self._slot, before)
