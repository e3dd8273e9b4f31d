"""Other numbers in the places of symbolic ones (symbolic.py): what was made once of symbolic sizes becomes what is made of others.

What holds sizes is a value: it is made again, of the same kind, where a number in it changes, and shared where none does.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tracejit.core.symbolic import SYMBOLIC, ShapeEnv

__all__ = ["Substitution"]


class Substitution:
    """Other values in the places of the symbolic numbers of an environment, in whatever holds some: tuples, lists, dictionaries, frozen
    dataclasses, and what has a method `substituted(of)`.  What holds none stays the same object.

    clean: ids of objects that are known to hold none.  Who gives this keeps them alive, and gives it again for what else is put there."""

    def __init__(self, env: ShapeEnv, values: Sequence[Any], clean: set[int] | None = None) -> None:
        self.env = env
        self.values = values
        self._clean = set[int]() if clean is None else clean
        self._known: dict[int, tuple[Any, Any]] = {}  # objects that several others share, and what stands for them

    def of(self, value: Any) -> Any:
        """`value` with the other numbers."""
        kind = type(value)
        if kind in SYMBOLIC:
            return self.values[value.number] if value.env is self.env else value
        if kind in _LEAVES or id(value) in self._clean:
            return value
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        made = self._made(value, kind)
        if made is value:
            self._clean.add(id(value))
        else:
            self._known[id(value)] = value, made
        return made

    def _made(self, value: Any, kind: type) -> Any:
        build, names = _WAYS.get(kind) or _way(kind)
        if build is _Build.PARTS:
            parts = [x if type(x) in _LEAVES else self.of(x) for x in value]
            if all(map(operator.is_, parts, value)):
                return value
            return parts if kind is list else tuple.__new__(kind, parts)
        if build is _Build.FIELDS:
            changed = self.fields(value, names)
            if not changed:
                return value
            made: Any = object.__new__(kind)
            for name in names:
                object.__setattr__(made, name, changed[name] if name in changed else getattr(value, name))
            return made
        if build is _Build.METHOD:
            return value.substituted(self.of)
        if build is _Build.ITEMS:
            items = [self.of(item) for item in value.values()]
            return value if all(map(operator.is_, items, value.values())) else dict(zip(value, items, strict=True))
        return value

    def fields(self, value: Any, names: Iterable[str]) -> dict[str, Any]:
        """Of the fields of this name those that become other ones."""
        found = {}
        for name in names:
            before = getattr(value, name)
            if type(before) not in _LEAVES and (after := self.of(before)) is not before:
                found[name] = after
        return found


_LEAVES: Final = frozenset((int, float, bool, str, bytes, type(None)))


class _Build(enum.Enum):
    """How an object is made again of other numbers: of its own method, its items, its elements, its fields; or it holds none."""

    METHOD = enum.auto()
    ITEMS = enum.auto()
    PARTS = enum.auto()
    FIELDS = enum.auto()
    NONE = enum.auto()


_WAYS: Final[dict[type, tuple[_Build, tuple[str, ...]]]] = {}  # of kinds that may hold numbers, which the library's own are


def _way(kind: type) -> tuple[_Build, tuple[str, ...]]:
    names: tuple[str, ...] = ()
    if issubclass(kind, Mapping):
        build = _Build.ITEMS
    elif hasattr(kind, "substituted"):
        build = _Build.METHOD
    elif kind is list or issubclass(kind, tuple):
        build = _Build.PARTS
    elif dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        build, names = _Build.FIELDS, tuple([field.name for field in dataclasses.fields(kind)])
    else:
        return _Build.NONE, names
    return _WAYS.setdefault(kind, (build, names))
