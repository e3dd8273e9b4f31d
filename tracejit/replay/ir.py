"""The language of replay: what an entry or a backward call does, as data.

A `Function` is straight-line: `guards`, which change nothing, then `body`: a program is run (`RunProgram`), and effects follow.  A guard
that fails (`Miss`), and with `catches` an error in one, makes the function answer `missed`.  Expressions mean what Python's do; `str` of a
node is Python, and what a reader of guards sees.  Whoever looks at them matches nodes:

* capture/recording/structure.py: for which guards a few words of memory answer;
* cpython/functions.py: machine code;
* replay/python.py: Python, for the first calls and for interpreters whose objects are not known;
* replay/verify.py: what must hold of every function.

Nodes do not change and are compared by content: two recordings with equal guards stand for the same path.  A `Name` is a variable of the
function, or an object that its namespace holds under that name.  It must not know tensors.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol, dataclass_transform

import numpy as np

__all__ = [
    "CAUGHT",
    "MARK",
    "And",
    "Arithmetic",
    "Attribute",
    "Call",
    "Compare",
    "Conditional",
    "Constant",
    "Contains",
    "Define",
    "DeleteItem",
    "Dictionary",
    "Distinct",
    "Evaluate",
    "Expr",
    "Function",
    "Identity",
    "If",
    "Increment",
    "Is",
    "Item",
    "Length",
    "ListOf",
    "Machine",
    "Miss",
    "Name",
    "Not",
    "Notify",
    "Or",
    "ReplayNode",
    "Return",
    "ReturnIf",
    "RunProgram",
    "Runnable",
    "SetAttribute",
    "SetItem",
    "SliceKey",
    "Starred",
    "Statement",
    "TupleOf",
    "TypeOf",
    "Unary",
    "Unpack",
    "defined",
    "distinct_count",
    "names",
    "renamed",
    "tuple_of",
    "walk",
]  # fmt: skip

CAUGHT: Final = (LookupError, AttributeError, ValueError, ArithmeticError)
"""Errors in a guard that are a guard that fails, unless they were raised in a Python function further in: guards run no code of the
program, so such a one is a signal handler's."""

# How tightly an expression binds when it is printed: `x or y`, `x and y`, `not x`, comparisons, arithmetic, `-x`, `x.y`.
_CHOICE, _OR, _AND, _NOT, _COMPARISON, _ARITHMETIC, _UNARY, _POSTFIX = range(8)


@dataclass_transform(frozen_default=True)
class ReplayNode(tuple[Any, ...]):
    """What a function is made of.  The annotations of a subclass are its fields.

    A tuple of the class and the fields, since recordings make, hash and compare many: all that is done in C."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        kinds = inspect.get_annotations(cls)
        names = [name for name, kind in kinds.items() if not kind.startswith("ClassVar")] or list(cls.__match_args__)
        defaults = {name: cls.__dict__[name] for name in names if name in kinds and name in cls.__dict__}
        type.__setattr__(cls, "__match_args__", tuple(names))
        for position, name in enumerate(names, 1):
            setattr(cls, name, property(operator.itemgetter(position)))
        if "__new__" not in cls.__dict__:
            given = ", ".join(f"{name}=defaults[{name!r}]" if name in defaults else name for name in names)
            namespace: dict[str, Any] = {"new": tuple.__new__, "defaults": defaults, "__name__": __name__}
            text = f"def __new__(cls, {given}): return new(cls, (cls, {', '.join(names)}))"
            exec(compile(text, __file__, "exec"), namespace)  # the library's own code, for whoever watches what runs
            type.__setattr__(cls, "__new__", namespace["__new__"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(getattr(self, name)) for name in self.__match_args__)})"

    def substituted(self, of: Callable[[Any], Any]) -> ReplayNode:
        """The same with other numbers in the places of symbolic ones (core/symbolic.py)."""
        fields = self[1:] if type(self) is not Constant else self[1:2]
        parts = [of(part) for part in fields]
        return self if all(map(operator.is_, parts, fields)) else type(self)(*parts)

    __str__ = __repr__


class Expr(ReplayNode):
    """A value.  `str` is Python.  The methods make larger ones; what they are given is an expression, or the value of a Constant."""

    level: ClassVar[int] = _POSTFIX

    def get(self, name: str) -> Attribute:
        return Attribute(self, name)

    def at(self, key: Any) -> Item:
        return Item(self, _made(key))

    def call(self, /, *arguments: Any, **keywords: Any) -> Call:
        return Call(self, tuple(map(_made, arguments)), tuple([(name, _made(value)) for name, value in keywords.items()]))

    def method(self, name: str, *arguments: Any) -> Call:
        return Attribute(self, name).call(*arguments)

    def of(self, symbol: str, other: Any) -> Expr:
        return Arithmetic(symbol, self, _made(other))

    def type(self) -> Expr:
        return TypeOf(self)

    def length(self) -> Expr:
        return Length(self)

    def is_same(self, other: Any) -> Expr:
        return Is(self, _made(other))

    def is_not(self, other: Any) -> Expr:
        return Not(Is(self, _made(other)))

    def compared(self, symbol: str, other: Any) -> Expr:
        return Compare(symbol, self, _made(other))

    def differs(self, other: Any) -> Expr:
        return Compare("!=", self, _made(other))

    def has(self, element: Any) -> Expr:
        return Contains(self, _made(element))

    def lacks(self, element: Any) -> Expr:
        return Not(Contains(self, _made(element)))

    def otherwise(self, other: Any) -> Expr:
        return Or((self, _made(other)))


def _made(value: Any) -> Expr:
    return value if isinstance(value, Expr) else Constant(value)


def tuple_of(*elements: Any) -> TupleOf:
    """A tuple of expressions, or of constants' values."""
    return TupleOf(tuple(map(_made, elements)))


def _within(expression: Expr, level: int) -> str:
    """The text of an operand of something that binds so tightly."""
    return str(expression) if expression.level >= level else f"({expression})"


class Name(Expr):
    """A variable, or an object of the namespace."""

    name: str

    def __str__(self) -> str:
        return self.name


class Constant(Expr):
    """A value that Python has a literal for: None, a bool, an int, a finite float, a str, bytes, Ellipsis, NotImplemented, or a tuple of
    such.  Equal where type and bits are."""

    value: Any

    def __new__(cls, value: Any) -> Constant:
        kind = type(value)
        return tuple.__new__(cls, (cls, value, repr(value) if kind is float or kind is tuple else kind))

    @property
    def level(self) -> int:  # type: ignore[override]
        return _UNARY if str(self).startswith("-") else _POSTFIX

    def __str__(self) -> str:
        return repr(self.value)


class Attribute(Expr):
    """owner.name"""

    owner: Expr
    name: str

    def __str__(self) -> str:
        return f"{_within(self.owner, _POSTFIX)}.{self.name}"


class Item(Expr):
    """owner[key]"""

    owner: Expr
    key: Expr

    def __str__(self) -> str:
        return f"{_within(self.owner, _POSTFIX)}[{self.key}]"


class SliceKey(Expr):
    """The key start:stop:step of an item."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None = None

    def __str__(self) -> str:
        start, stop, step = ("" if end is None else str(end) for end in (self.start, self.stop, self.step))
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


class Call(Expr):
    """function(*arguments, **keywords); of an Attribute, a method."""

    function: Expr
    arguments: tuple[Expr, ...] = ()
    keywords: tuple[tuple[str, Expr], ...] = ()

    def __str__(self) -> str:
        given = [*map(str, self.arguments), *[f"{name}={value}" for name, value in self.keywords]]
        return f"{_within(self.function, _POSTFIX)}({', '.join(given)})"


class TypeOf(Expr):
    """The exact type of an object."""

    value: Expr

    def __str__(self) -> str:
        return f"type({self.value})"


class Length(Expr):
    """How many elements there are."""

    value: Expr

    def __str__(self) -> str:
        return f"len({self.value})"


class Identity(Expr):
    """What tells an object from all that live, an int."""

    value: Expr

    def __str__(self) -> str:
        return f"id({self.value})"


class Arithmetic(Expr):
    """Two numbers combined: + - * / // % ** << >> & | ^ @."""

    symbol: str
    left: Expr
    right: Expr
    level: ClassVar[int] = _ARITHMETIC

    def __str__(self) -> str:
        level = _POSTFIX if self.symbol == "**" else _UNARY  # which binds more tightly than a sign before it
        return f"{_within(self.left, level)} {self.symbol} {_within(self.right, level)}"


class Unary(Expr):
    """-x, +x or ~x"""

    symbol: str
    value: Expr
    level: ClassVar[int] = _UNARY

    def __str__(self) -> str:
        return f"{self.symbol}{_within(self.value, _POSTFIX)}"


class Starred(Expr):
    """All elements of a tuple, inside another one."""

    value: Expr
    level: ClassVar[int] = _CHOICE

    def __str__(self) -> str:
        return f"*{_within(self.value, _ARITHMETIC)}"


class TupleOf(Expr):
    elements: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))}{',' if len(self.elements) == 1 else ''})"


class ListOf(Expr):
    elements: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.elements))}]"


class Dictionary(Expr):
    """An empty one."""

    def __str__(self) -> str:
        return "{}"


# -- conditions
class Is(Expr):
    """left is right"""

    left: Expr
    right: Expr
    level: ClassVar[int] = _COMPARISON

    def __str__(self) -> str:
        return f"{_within(self.left, _ARITHMETIC)} is {_within(self.right, _ARITHMETIC)}"


class Compare(Expr):
    """== != < <= > >="""

    symbol: str
    left: Expr
    right: Expr
    level: ClassVar[int] = _COMPARISON

    def __str__(self) -> str:
        return f"{_within(self.left, _ARITHMETIC)} {self.symbol} {_within(self.right, _ARITHMETIC)}"


class Contains(Expr):
    """element in container"""

    container: Expr
    element: Expr
    level: ClassVar[int] = _COMPARISON

    def __str__(self) -> str:
        return f"{_within(self.element, _ARITHMETIC)} in {_within(self.container, _ARITHMETIC)}"


class Distinct(Expr):
    """Whether these are all different objects."""

    values: tuple[Expr, ...]
    level: ClassVar[int] = _COMPARISON

    def __str__(self) -> str:
        return f"{distinct_count(TupleOf(self.values))} == {len(self.values)}"


def distinct_count(values: object) -> str:
    """How many different objects are in a tuple."""
    return f"len({{*map(id, {values})}})"


class Not(Expr):
    value: Expr
    level: ClassVar[int] = _NOT

    def __str__(self) -> str:
        match self.value:
            case Is(left, right):
                return f"{_within(left, _ARITHMETIC)} is not {_within(right, _ARITHMETIC)}"
            case Contains(container, element):
                return f"{_within(element, _ARITHMETIC)} not in {_within(container, _ARITHMETIC)}"
            case Distinct(values):
                return f"{distinct_count(TupleOf(values))} != {len(values)}"
        return f"not {_within(self.value, _NOT)}"


class Or(Expr):
    """The first that is true, or the last: x or y."""

    values: tuple[Expr, ...]
    level: ClassVar[int] = _OR

    def __str__(self) -> str:
        return " or ".join(_within(value, _AND) for value in self.values)


class And(Expr):
    """The first that is false, or the last: x and y."""

    values: tuple[Expr, ...]
    level: ClassVar[int] = _AND

    def __str__(self) -> str:
        return " and ".join(_within(value, _NOT) for value in self.values)


class Conditional(Expr):
    """yes if condition else no"""

    condition: Expr
    yes: Expr
    no: Expr
    level: ClassVar[int] = _CHOICE

    def __str__(self) -> str:
        return f"{_within(self.yes, _OR)} if {_within(self.condition, _OR)} else {_within(self.no, _OR)}"


# -- statements
class Statement(ReplayNode):
    """What is done."""


class Define(Statement):
    """name = value"""

    name: str
    value: Expr

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


class Unpack(Statement):
    """The elements of a tuple get names, "_" where nobody asks; (a, _) = value.  Names may be nested."""

    names: tuple[Any, ...]
    value: Expr

    def __str__(self) -> str:
        return f"{_targets(self.names)} = {self.value}"


def _targets(names: tuple[Any, ...]) -> str:
    return f"({', '.join(name if isinstance(name, str) else _targets(name) for name in names)}{',' if len(names) == 1 else ''})"


class Miss(Statement):
    """A guard: the function answers `Function.missed` where `condition` holds."""

    condition: Expr

    def __str__(self) -> str:
        return f"if {self.condition}: return MISS"


class ReturnIf(Statement):
    """The function answers `value` where `condition` holds."""

    condition: Expr
    value: Expr

    def __str__(self) -> str:
        return f"if {self.condition}: return {self.value}"


class Evaluate(Statement):
    """An effect: a call."""

    value: Expr

    def __str__(self) -> str:
        return str(self.value)


class SetAttribute(Statement):
    """owner.name = value"""

    owner: Expr
    name: str
    value: Expr

    def __str__(self) -> str:
        return f"{_within(self.owner, _POSTFIX)}.{self.name} = {self.value}"


class SetItem(Statement):
    """owner[key] = value"""

    owner: Expr
    key: Expr
    value: Expr

    def __str__(self) -> str:
        return f"{_within(self.owner, _POSTFIX)}[{self.key}] = {self.value}"


class DeleteItem(Statement):
    """del owner[key]"""

    owner: Expr
    key: Expr

    def __str__(self) -> str:
        return f"del {_within(self.owner, _POSTFIX)}[{self.key}]"


class Increment(Statement):
    """place += amount; of an item of a list that the namespace holds."""

    place: Item
    amount: int

    def __str__(self) -> str:
        return f"{self.place} += {self.amount}"


class If(Statement):
    """if condition: body"""

    condition: Expr
    body: tuple[Statement, ...]

    def __str__(self) -> str:
        return f"if {self.condition}: {'; '.join(map(str, self.body))}"


class Return(Statement):
    value: Expr

    def __str__(self) -> str:
        return f"return {self.value}"


class Notify(Statement):
    """Under a condition, if there is one, the library is told of the call: nothing of the program's changes.  It stands before the program
    is run: a signal handler may run there, and raise, while nothing has been done.  In machine code it is nothing."""

    value: Expr
    condition: Expr | None = None

    def __str__(self) -> str:
        return str(self.value) if self.condition is None else f"if {self.condition}: {self.value}"


MARK: Final = 3
"""Words of the mark behind a frame that belongs to machine code: the address of the arguments of the call that ran in it last, which no
other call that is under way has, and, where that left, the two of the generator that it has drawn from."""


class Machine(NamedTuple):
    """Addresses of a program, of a frame that one caller has, and of its mark; owners: of what is there."""

    program: int
    frame: int
    mark: int
    owners: tuple[Any, ...]


class Runnable(Protocol):
    """A program that is one call of machine code."""

    def run(self, arrays: tuple[Any, ...], numbers: tuple[Any, ...]) -> int:
        """Run it in a frame of its own: 0, or what `RunProgram.leave` is asked for."""

    def machine(self) -> Machine:
        """Its machine code, with a frame for one caller."""


class RunProgram(Statement):
    """A program runs.

    fresh: (name, shape, dtype) of arrays to be made first.  arrays: of the program, in order.  numbers: (slot of the frame, int or float,
    value).  leave: what maps the program's code, where it is not 0, to what to return; refused: the code for a number that does not fit.
    state: the array of the generator that it draws from, if it does from one.  marks: of the frames that it inherits memory of, and
    whether what ran there has drawn from that: the run is refused unless the call of each was this one, and the generator is what it was;
    in Python it always is."""

    program: Runnable
    fresh: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
    arrays: tuple[Expr, ...]
    numbers: tuple[tuple[int, type, Expr], ...]
    leave: Expr
    refused: int
    state: Expr | None = None
    marks: tuple[tuple[int, bool], ...] = ()

    def __str__(self) -> str:
        return f"run(({', '.join(map(str, self.arrays))}), ({', '.join(str(value) for _, _, value in self.numbers)}))"


@dataclass(frozen=True, slots=True)
class Function:
    """parameters: of the function in Python; in machine code all are positional.  catches: whether an error in a guard is a guard that
    fails.  locks: whether the guards take some, which are let go of whatever happens.  first: what is defined before the guards, where an
    error is one, for `missed` and whatever else leaves."""

    parameters: tuple[str, ...]
    guards: tuple[Statement, ...]
    body: tuple[Statement, ...]
    missed: Expr
    catches: bool = True
    locks: bool = False
    first: tuple[Statement, ...] = ()


# -- looking through nodes
def walk(node: Any) -> list[ReplayNode]:
    """A node, and all nodes inside it, outer first; of tuples, those of the elements."""
    found, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            if isinstance(node, ReplayNode):
                found.append(node)
            waiting += node[::-1]
    return found


def names(*nodes: Any) -> set[str]:
    """The names in expressions and statements, but not those that they define."""
    found: set[str] = set()
    waiting: list[tuple[Any, ...]] = [nodes]
    while waiting:
        for part in waiting.pop():
            if isinstance(part, tuple):
                kind = type(part)
                if kind is Name:
                    found.add(part[1])
                elif kind is not Constant:
                    waiting.append(part)
    return found


def defined(statement: ReplayNode) -> list[str]:
    """The names that one statement defines, without those inside it."""
    match statement:
        case Define(name, _):
            return [name]
        case Unpack(found, _):
            return [name for name in _flat(found) if name != "_"]
        case RunProgram():
            return [name for name, _, _ in statement.fresh]
    return []


def _flat(names: tuple[Any, ...]) -> list[str]:
    return [found for name in names for found in ([name] if isinstance(name, str) else _flat(name))]


def renamed(node: Any, change: Callable[[Name], Expr]) -> Any:
    """The same with each Name in its expressions replaced; what has none is the same object."""
    if type(node) is Name:
        return change(node)
    if type(node) is tuple:
        found = tuple([renamed(part, change) for part in node])
        return node if all(map(operator.is_, found, node)) else found
    if not isinstance(node, ReplayNode) or isinstance(node, Constant):
        return node
    after = [renamed(part, change) for part in node[1:]]
    return node if all(map(operator.is_, after, node[1:])) else type(node)(*after)
