"""Facts: what a recording relies on, in words of the user: the names, lines and values of its guards.

Code that adds a guard also notes a `Fact`: the name of the guarded thing in the user's code, the line, and the value.  Facts of
two recordings of one function are compared to say which guard makes them differ (report/divergences.py).  A recording also gets
the values of earlier ones (`Facts.earlier`).  Facts hold no objects of the user.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from tracejit.capture.values import key_of
from tracejit.replay.ir import Name

__all__ = ["Earlier", "Fact", "Facts", "earlier_values", "parameters", "shown"]

_LONGEST: Final = 60


class Fact(NamedTuple):
    """A guard requires that `name` is `value`.

    kind: "value", "outcome" (of a comparison), "type", "object", "shape", "size" (a symbolic size that is the same in all calls),
    "tensor", "mode" or "exit" (a value inside the program).  where: the user's "file:line"; "" for arguments and modes."""

    kind: str
    name: str
    where: str
    value: str


def shown(value: Any) -> str:
    """A short text for a value: its repr if it is plain; else its type and address."""
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        text = repr(value) if type(value) is not int or value.bit_length() < 2048 else f"an integer of {value.bit_length()} bits"
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters, {hash(text) & 0xFFFF:04x})"
    if key_of(value) is not None:
        return shown(repr(value))[1:-1]
    name = value.__qualname__ if type(value) in (type, FunctionType) else f"a {type(value).__qualname__}"
    return f"{name} at {id(value):#x}"


def parameters(function: Any) -> tuple[str, ...]:
    """Names of the positional parameters of a callable, as its caller counts them; empty if they are unknown."""
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
"""The values that recordings have read, as texts, by (name, line)."""


_ANYTHING_ELSE: Final = frozenset({""})  # the text of no value


def earlier_values(recordings: Iterable[tuple[Iterable[Fact], Earlier]]) -> Earlier:
    """The guarded values of recordings, from their facts; and `_ANYTHING_ELSE` for names that a recording did not guard because
    they had varied before (`Facts.varied`)."""
    values: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for facts, varied in recordings:
        for fact in facts:
            if fact.kind == "value":
                values[fact.name, fact.where].add(fact.value)
        for key in varied:
            values[key] |= _ANYTHING_ELSE
    return values


class Facts:
    """The facts of a recording, and the names of objects in the user's code.

    earlier: the values in earlier recordings of the function.  A number that had another value then may become an input in place
    of a guarded constant; nothing else may depend on this.  varied: the numbers for which it did.  A recording that gets these in
    `earlier` decides in the same way."""

    __slots__ = ("_names", "_owners", "earlier", "noted", "numbers", "parameters", "varied")

    def __init__(self) -> None:
        self.earlier: Earlier = {}
        self.varied: dict[tuple[str, str], Set[str]] = {}
        self.noted: list[Fact] = []
        self.numbers: dict[Name, str] = {}  # of variables of the prologue
        self.parameters: tuple[str, ...] = ()
        self._names: dict[int, str] = {}  # id of an object that the recording keeps alive -> its name
        self._owners: dict[int, str] = {}  # id of a dictionary of attributes -> the name of its owner

    def argument(self, key: int | str) -> str:
        """The name of an argument: of the parameter at this position, or the keyword."""
        if type(key) is str:
            return key
        assert type(key) is int
        return self.parameters[key] if key < len(self.parameters) else f"argument {key + 1}"

    def name_object(self, value: Any, name: str) -> None:
        """Note the name of an object; the first one counts."""
        self._names.setdefault(id(value), name)

    def name_dictionary(self, attributes: Any, owner: Any) -> None:
        """Note that `attributes` is the dictionary of the attributes of `owner`."""
        self._owners.setdefault(id(attributes), self.name(owner))

    def name(self, value: Any) -> str:
        """The name of an object in the user's code; if it has none, what it is."""
        name = self._names.get(id(value))
        if name is not None:
            return name
        if isinstance(value, (type, FunctionType)):
            return value.__qualname__
        return value.__name__ if type(value) is ModuleType else type(value).__name__

    def attribute(self, owner: Any, name: str) -> str:
        """The name of an attribute: `owner.name`."""
        return f"{self.name(owner)}.{name}"

    def item(self, owner: Any, key: Any) -> str:
        """The name of an item of a container: `owner[key]`."""
        if id(owner) in self._owners:
            return f"{self._owners[id(owner)]}.{key}"
        return f"{self.name(owner)}[{shown(key) if type(key) in (int, str, float, bool) else type(key).__name__}]"

    def number_has_varied(self, number: Name, value: Any, where: str) -> bool:
        """`has_varied` for a number of the prologue."""
        return self.has_varied(self.numbers.get(number, "a number"), value, where)

    def note_varied(self, name: str, where: str) -> None:
        """Note that the number of this name at this line is not guarded: it may have any value in other calls."""
        self.varied[name, where] = _ANYTHING_ELSE

    def has_varied(self, name: str, value: Any, where: str) -> bool:
        """Whether an earlier recording has guarded another value than `value` for this name at this line.  If so, notes it as
        such."""
        key = name, where
        if all(x == shown(value) for x in self.earlier.get(key, ())):
            return False
        self.note_varied(*key)
        return True

    def note(self, kind: str, name: str, value: str, where: str = "") -> None:
        """Note that a guard has been added."""
        self.noted.append(tuple.__new__(Fact, (kind, name, where, value)))  # `Fact()` runs code that the watch does not know
