"""The journal of a recording: an append-only list of what the run did, in its order.

There are three kinds of events, all immutable: operations on tensors, the `nodes` of the raw graph; `statements` of the prologue, which
read and guard what is outside; and changes of what is known besides: something was stored, called, drawn.  Changes are of *tables*, the
dictionaries, sets, lists and attributes in which handlers keep what they know.  Each handler makes its own (`journal.dictionary(...)`,
`Variable`), and says of which `Topic` it is; from then on it uses them as any other, and what it does to them stands in the journal.

What follows from others is an index, and no table: of the nodes, which value a tensor has, and its shape (`StateRecorder.truncate`); of
the statements, what has been read and guarded already.

A `Mark` is a place in the journal.  Loops at recording rest on three questions: has anything but operations happened since a mark
(`has_read`, `changes`), what operations have (`nodes`), and can these be taken back (`truncate`)?  A table that is set to what it was
has not changed: what counts is the difference between the mark and now.

It knows nothing of what tables are of.
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
"""Stands for what a table had where it had nothing."""


class Topic(Flag):
    """What a table tells of."""

    READS = auto()
    """What is known of the outside besides the statements that read and guard it."""
    NUMBERS = auto()
    """Numbers that the program computes.  Of those that nothing holds, a run may make any number."""
    EFFECTS = auto()
    """Everything else: changes outside, calls, draws, locks, arrays."""
    INDEX = auto()
    """What follows from other tables: a change of it is none of its own."""


NOTHING: Final = Topic(0)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the journal: how many events of each kind come before it."""

    nodes: int
    statements: int
    changes: int


class _Table(Protocol):
    topic: Topic

    def at(self, key: Any) -> Any:
        """What is at `key` now, `_ABSENT` where nothing is."""

    def restore(self, key: Any, before: Any) -> None:
        """Have `before` at `key` again; no event."""


Change = tuple[_Table, Any, Any]
"""A table has got another value at a key: (table, key, the value that it had there).  It is a bare tuple: a class with names would run code
that the watch of a recording takes for the program's."""


class Journal:
    """See the module.  nodes: the operations so far; statements: those of the prologue."""

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
        """Something has happened that is in no table."""
        self._changes.append((_Happened(topic), None, False))

    def release(self) -> None:
        """Nothing is asked of the journal any more: what tables have had may go."""
        self._changes.clear()

    # -- slices
    def mark(self) -> Mark:
        """This place."""
        return Mark(len(self.nodes), len(self.statements), len(self._changes))

    def has_read(self, since: Mark) -> bool:
        """Whether the prologue has more statements than at a mark."""
        return len(self.statements) > since.statements

    def changes(self, since: Mark, ignored: Topic = NOTHING) -> Iterator[tuple[_Table, Any]]:
        """The tables that differ from what they were at a mark, and where, but for those of the topics `ignored`."""
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
        """Take back everything since a mark but what was read: guards on that have been made, and hold.  Indexes of the nodes are their
        owner's to truncate."""
        del self.nodes[mark.nodes :]
        since = self._changes[mark.changes :]
        for table, key, before in reversed(since):
            if table.topic is not Topic.READS:
                table.restore(key, before)
        self._changes[mark.changes :] = [change for change in since if change[0].topic is Topic.READS]


def is_same(now: Any, before: Any) -> bool:
    """Whether two values of a table say the same: an object, equal plain values, tuples of such, and what says so itself by `is_like`."""
    if now is before:
        return True
    cls = type(now)
    if cls is not type(before):
        return False
    if cls in PRIMITIVE_TYPES:
        return repr(now) == repr(before)  # which tells 0.0 from -0.0, and NaN from nothing
    if cls is tuple:
        return len(now) == len(before) and all(map(is_same, now, before))
    is_like = getattr(cls, "is_like", None)
    return is_like is not None and bool(is_like(now, before))


class LoggedDict(dict[K, V]):
    """A dictionary whose changes are events.  After `truncate` keys may be in another order."""

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
    """A set whose changes are events."""

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
    """A list whose changes are events: items are appended, and put in the place of others."""

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

    def __setitem__(self, place: int, item: V) -> None:  # type: ignore[override]
        self._changes.append((self, place, self[place]))
        list.__setitem__(self, place, item)

    def clear(self) -> None:
        self._changes += [(self, place, self[place]) for place in reversed(range(len(self)))]
        list.clear(self)

    pop = remove = insert = sort = reverse = __delitem__ = __imul__ = None  # type: ignore[assignment]


class _Happened:
    """What is in no table: it has changed, whatever comes after it."""

    __slots__ = ("topic",)

    def __init__(self, topic: Topic) -> None:
        self.topic = topic

    def at(self, key: Any) -> bool:
        return True

    def restore(self, key: Any, before: Any) -> None:
        """Nothing is to be done."""


class Variable(Generic[V]):
    """An attribute whose assignments are events, of objects that have a `journal`, and a place for the value in `__dict__` or a slot
    named `_<name>`."""

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
