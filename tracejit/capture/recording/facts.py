"""What a recording relied on, for a reader: the names, places and values of its guards.

A `Fact` is noted where a guard is made, by whoever makes it: what the program calls the thing that was looked at, where it looked, and
what it found.  Facts of two recordings of one function are compared (report/divergences.py) to say which guard keeps calls apart, and a
recording is told what others have found (`Facts.earlier`).  They hold no object of the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from tracejit.replay.ir import Name

__all__ = ["Earlier", "Fact", "Facts", "earlier_values", "parameters", "shown"]

_LONGEST: Final = 60


class Fact(NamedTuple):
    """`name` was found to be `value`.

    kind: "value", "outcome" (of a comparison), "type", "object", "shape", "size" (a symbolic one that is one number in all calls),
    "tensor", "mode" or "exit" (a value inside the program).  where: the user's "file:line", empty for what comes with the call."""

    kind: str
    name: str
    where: str
    value: str


def shown(value: Any) -> str:
    """A plain value, or which object it is; short."""
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        text = repr(value) if type(value) is not int or value.bit_length() < 2048 else f"an integer of {value.bit_length()} bits"
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters, {hash(text) & 0xFFFF:04x})"
    name = value.__qualname__ if type(value) in (type, FunctionType) else f"a {type(value).__qualname__}"
    return f"{name} at {id(value):#x}"


def parameters(function: Any) -> tuple[str, ...]:
    """Names of the positional arguments of what is called; empty where they are not known."""
    bound = 0
    while type(function) is MethodType:
        function, bound = function.__func__, bound + 1
    if type(function) is not FunctionType:
        called = type(function).__dict__.get("forward", type(function).__dict__.get("__call__"))
        if type(called) is not FunctionType:
            return ()
        function, bound = called, bound + 1
    return tuple(function.__code__.co_varnames[bound : function.__code__.co_argcount])


Earlier = Mapping[tuple[str, str], Set[str]]
"""What recordings found to be the value of what has a name, at some line."""


_ANYTHING_ELSE: Final = frozenset({""})  # which is no value


def earlier_values(recordings: Iterable[tuple[Iterable[Fact], Earlier]]) -> Earlier:
    """The values in the facts of recordings; any other one where it was decisive in a recording that there had been others."""
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for facts, moved in recordings:
        for fact in facts:
            if fact.kind == "value":
                found[fact.name, fact.where].add(fact.value)
        for key in moved:
            found[key] |= _ANYTHING_ELSE
    return found


class Facts:
    """The facts of a recording, and what the program calls the objects that it found.  earlier: what other recordings have found; it may
    decide which of two ways that mean the same a number goes, and nothing else.  moved: where it has done so; a recording that is told
    this does so there and nowhere else."""

    __slots__ = ("_names", "_owners", "earlier", "found", "moved", "numbers", "parameters")

    def __init__(self) -> None:
        self.earlier: Earlier = {}
        self.moved: dict[tuple[str, str], Set[str]] = {}
        self.found: list[Fact] = []
        self.numbers: dict[Name, str] = {}  # of variables of the prologue
        self.parameters: tuple[str, ...] = ()
        self._names: dict[int, str] = {}  # ids of objects that the recording keeps
        self._owners: dict[int, str] = {}  # the same of dictionaries of attributes, and what their owners are called

    def argument(self, key: int | str) -> str:
        """What the function calls an argument."""
        if type(key) is str:
            return key
        assert type(key) is int
        return self.parameters[key] if key < len(self.parameters) else f"argument {key + 1}"

    def call(self, value: Any, name: str) -> None:
        """An object was found under a name."""
        self._names.setdefault(id(value), name)

    def call_dictionary(self, attributes: Any, owner: Any) -> None:
        """The dictionary of an object's attributes was found."""
        self._owners.setdefault(id(attributes), self.name(owner))

    def name(self, value: Any) -> str:
        """What the program calls an object; what it is, where that is not known."""
        known = self._names.get(id(value))
        if known is not None:
            return known
        if isinstance(value, (type, FunctionType)):
            return value.__qualname__
        return value.__name__ if type(value) is ModuleType else type(value).__name__

    def attribute(self, owner: Any, name: str) -> str:
        """What the program calls an attribute."""
        return f"{self.name(owner)}.{name}"

    def item(self, owner: Any, key: Any) -> str:
        """What the program calls an item of a container."""
        if id(owner) in self._owners:
            return f"{self._owners[id(owner)]}.{key}"
        return f"{self.name(owner)}[{shown(key) if type(key) in (int, str, float, bool) else type(key).__name__}]"

    def has_moved(self, number: Name, value: Any, where: str) -> bool:
        """Whether a number of the prologue had another value at this line when a call was recorded before."""
        return self.has_varied(self.numbers.get(number, "a number"), value, where)

    def move(self, name: str, where: str) -> None:
        """What the program calls so may have any other value in other calls: nothing is guarded."""
        self.moved[name, where] = _ANYTHING_ELSE

    def has_varied(self, name: str, value: Any, where: str) -> bool:
        """The same of what the program calls so, and whose value was guarded then."""
        key = name, where
        if all(x == shown(value) for x in self.earlier.get(key, ())):
            return False
        self.move(*key)
        return True

    def note(self, kind: str, name: str, value: str, where: str = "") -> None:
        """A guard was made."""
        self.found.append(tuple.__new__(Fact, (kind, name, where, value)))  # `Fact()` runs code that the watch does not know
