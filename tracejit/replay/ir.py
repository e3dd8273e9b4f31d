"""The language of replay: what an entry or a backward call does, as data.

A `Function` is straight-line code: `guards`, which change nothing, then `body`, which runs a program (`RunProgram`) and does the
effects.  If a guard fails (`Miss`), or raises an error and `catches` is set, the function returns `missed`.  Expressions mean
what they mean in Python; `str` of a node is Python source, which users see as the text of a guard.  These modules match on nodes:

* capture/recording/structure.py: finds the guards that can be checked by comparing words of memory;
* cpython/functions.py: translates to machine code;
* replay/python.py: renders as Python, for the first calls and for interpreters whose object layouts are unknown;
* replay/verify.py: checks the rules for all functions.

Nodes are immutable and compared by content: two recordings with equal guards are of the same path.  A `Name` is a variable of the
function, or an object in its namespace.  This module must not know tensors.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol, dataclass_transform

import numpy as np

__all__ = [
    "CAUGHT", "MARK", "And", "Arithmetic", "Attribute", "Call", "Compare", "Conditional", "Constant", "Contains", "Define",
    "DeleteItem", "Dictionary", "Distinct", "Evaluate", "Expr", "Function", "Identity", "If", "Increment", "Is", "Item",
    "Length", "ListOf", "Machine", "Miss", "Name", "Not", "Notify", "Or", "ReplayNode", "Return", "ReturnIf", "RunProgram",
    "Runnable", "SetAttribute", "SetItem", "SliceKey", "Starred", "Statement", "TupleOf", "TypeOf", "Unary", "Unpack", "defined",
    "distinct_count", "names", "renamed", "tuple_of", "walk",
]  # fmt: skip

CAUGHT: Final = (LookupError, AttributeError, ValueError, ArithmeticError)
"""Errors that count as a failed guard if a guard raises them, unless they were raised in an inner Python function: guards run no
user code, so such an error is of a signal handler."""

# Precedence in printed expressions, lowest first: conditionals, `x or y`, `x and y`, `not x`, comparisons, arithmetic, `-x`, `x.y`
_CHOICE, _OR, _AND, _NOT, _COMPARISON, _ARITHMETIC, _UNARY, _POSTFIX = range(8)


@dataclass_transform(frozen_default=True)
class ReplayNode(tuple[Any, ...]):
    """The base class of expressions and statements.  The annotations of a subclass are its fields.

    A node is a tuple of its class and its fields, so that creating, hashing and comparing nodes is done in C: recordings do much
    of it."""

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
            exec(compile(text, __file__, "exec"), namespace)  # with this file's name, so that the watch of recordings allows it
            type.__setattr__(cls, "__new__", namespace["__new__"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(getattr(self, name)) for name in self.__match_args__)})"

    def substituted(self, of: Callable[[Any], Any]) -> ReplayNode:
        """The node with symbolic numbers replaced (core/symbolic.py).  of: gives the replacement of a field."""
        fields = self[1:] if type(self) is not Constant else self[1:2]
        parts = [of(part) for part in fields]
        return self if all(map(operator.is_, parts, fields)) else type(self)(*parts)

    __str__ = __repr__


_new: Callable[..., Any] = tuple.__new__
"""Makes a node of its class and a tuple of that and the fields, as each class does: without code in Python, for those of which
recordings make most."""


class Expr(ReplayNode):
    """An expression.  The methods make larger expressions; their arguments are expressions, or values of constants."""

    level: ClassVar[int] = _POSTFIX

    def get(self, name: str) -> Attribute:
        return _new(Attribute, (Attribute, self, name))

    def at(self, key: Any) -> Item:
        return _new(Item, (Item, self, _as_expression(key)))

    def call(self, /, *arguments: Any, **keywords: Any) -> Call:
        return Call(
            self,
            tuple(map(_as_expression, arguments)),
            tuple([(name, _as_expression(value)) for name, value in keywords.items()]),
        )

    def method(self, name: str, *arguments: Any) -> Call:
        return Attribute(self, name).call(*arguments)

    def of(self, symbol: str, other: Any) -> Expr:
        return Arithmetic(symbol, self, _as_expression(other))

    def type(self) -> Expr:
        return _new(TypeOf, (TypeOf, self))

    def length(self) -> Expr:
        return Length(self)

    def is_same(self, other: Any) -> Expr:
        return _new(Is, (Is, self, _as_expression(other)))

    def is_not(self, other: Any) -> Expr:
        return _new(Not, (Not, _new(Is, (Is, self, _as_expression(other)))))

    def compared(self, symbol: str, other: Any) -> Expr:
        return Compare(symbol, self, _as_expression(other))

    def differs(self, other: Any) -> Expr:
        return Compare("!=", self, _as_expression(other))

    def has(self, element: Any) -> Expr:
        return Contains(self, _as_expression(element))

    def lacks(self, element: Any) -> Expr:
        return Not(Contains(self, _as_expression(element)))

    def otherwise(self, other: Any) -> Expr:
        return Or((self, _as_expression(other)))


def _as_expression(value: Any) -> Expr:
    return value if isinstance(value, Expr) else Constant(value)


def tuple_of(*elements: Any) -> TupleOf:
    """A TupleOf of expressions and values of constants."""
    return TupleOf(tuple(map(_as_expression, elements)))


def _within(expression: Expr, level: int) -> str:
    """The text of an operand, in parentheses if its precedence is lower than `level`."""
    return str(expression) if expression.level >= level else f"({expression})"


class Name(Expr):
    """A variable, or an object of the namespace."""

    name: str

    def __str__(self) -> str:
        return self.name


class Constant(Expr):
    """A literal: None, a bool, an int, a finite float, a str, bytes, Ellipsis, NotImplemented, or a tuple of such.  Two constants
    are equal if type and bits are: 0.0 is not -0.0, 1 is not True."""

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
    """The key `start:stop:step` of an Item."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None = None

    def __str__(self) -> str:
        start, stop, step = ("" if end is None else str(end) for end in (self.start, self.stop, self.step))
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


class Call(Expr):
    """function(*arguments, **keywords).  If `function` is an Attribute, it is a call of a method."""

    function: Expr
    arguments: tuple[Expr, ...] = ()
    keywords: tuple[tuple[str, Expr], ...] = ()

    def __str__(self) -> str:
        given = [*map(str, self.arguments), *[f"{name}={value}" for name, value in self.keywords]]
        return f"{_within(self.function, _POSTFIX)}({', '.join(given)})"


class TypeOf(Expr):
    """type(value)"""

    value: Expr

    def __str__(self) -> str:
        return f"type({self.value})"


class Length(Expr):
    """len(value)"""

    value: Expr

    def __str__(self) -> str:
        return f"len({self.value})"


class Identity(Expr):
    """id(value)"""

    value: Expr

    def __str__(self) -> str:
        return f"id({self.value})"


class Arithmetic(Expr):
    """left symbol right, for + - * / // % ** << >> & | ^ @"""

    symbol: str
    left: Expr
    right: Expr
    level: ClassVar[int] = _ARITHMETIC

    def __str__(self) -> str:
        level = _POSTFIX if self.symbol == "**" else _UNARY  # `**` has a higher precedence than a sign before it
        return f"{_within(self.left, level)} {self.symbol} {_within(self.right, level)}"


class Unary(Expr):
    """-x, +x or ~x"""

    symbol: str
    value: Expr
    level: ClassVar[int] = _UNARY

    def __str__(self) -> str:
        return f"{self.symbol}{_within(self.value, _POSTFIX)}"


class Starred(Expr):
    """*value, as an element of a TupleOf."""

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
    """{}"""

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
    """left symbol right, for == != < <= > >="""

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
    """Whether the values are all different objects."""

    values: tuple[Expr, ...]
    level: ClassVar[int] = _COMPARISON

    def __str__(self) -> str:
        return f"{distinct_count(TupleOf(self.values))} == {len(self.values)}"


def distinct_count(values: object) -> str:
    """The text of the number of different objects in a tuple."""
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
    """x or y or ..."""

    values: tuple[Expr, ...]
    level: ClassVar[int] = _OR

    def __str__(self) -> str:
        return " or ".join(_within(value, _AND) for value in self.values)


class And(Expr):
    """x and y and ..."""

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
    """The base class of statements."""


class Define(Statement):
    """name = value"""

    name: str
    value: Expr

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


class Unpack(Statement):
    """(a, _) = value.  names: a tuple of names and of such tuples; "_" for an element that is not used."""

    names: tuple[Any, ...]
    value: Expr

    def __str__(self) -> str:
        return f"{_targets(self.names)} = {self.value}"


def _targets(names: tuple[Any, ...]) -> str:
    return f"({', '.join(name if isinstance(name, str) else _targets(name) for name in names)}{',' if len(names) == 1 else ''})"


class Miss(Statement):
    """A guard: the function returns `Function.missed` if `condition` holds."""

    condition: Expr

    def __str__(self) -> str:
        return f"if {self.condition}: return MISS"


class ReturnIf(Statement):
    """if condition: return value"""

    condition: Expr
    value: Expr

    def __str__(self) -> str:
        return f"if {self.condition}: return {self.value}"


class Evaluate(Statement):
    """An effect: a call, whose result is not used."""

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
    """item += amount, for an item of a list in the namespace."""

    item: Item
    amount: int

    def __str__(self) -> str:
        return f"{self.item} += {self.amount}"


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
    """A call of the library, under a condition if there is one, that changes nothing the user sees.  It comes before the program
    runs: a signal handler may run in it, and raise, before anything has been done.  Machine code leaves it out."""

    value: Expr
    condition: Expr | None = None

    def __str__(self) -> str:
        return str(self.value) if self.condition is None else f"if {self.condition}: {self.value}"


MARK: Final = 3
"""Words of the mark behind a frame of machine code: the address of the arguments of the call that ran in the frame last, which is
unique among running calls; and, if it left by an exit, the two words of the state of the generator from which it has drawn."""


class Machine(NamedTuple):
    """Addresses of a program, of a frame for one caller, and of the frame's mark.  owners: objects that keep this memory
    alive."""

    program: int
    frame: int
    mark: int
    owners: tuple[Any, ...]


class Runnable(Protocol):
    """A program that is one call of machine code."""

    def run(self, arrays: tuple[Any, ...], numbers: tuple[Any, ...]) -> int:
        """Run the program in a frame of its own.  Returns 0, or a code for `RunProgram.leave`."""

    def machine(self) -> Machine:
        """The machine code, with a frame for one caller."""


class RunProgram(Statement):
    """Runs a program; returns from the function if its code is not 0.

    fresh: (name, shape, dtype) of arrays to be created first.
    arrays: the program's array operands, in order.  numbers: (slot of the frame, int or float, value) of its scalar operands.
    leave: maps the program's code to what the function returns.  refused: the code for a number that does not fit.
    state: the array of the generator from which the program draws, if it is a single one.
    marks: (address of the mark, whether the program there has drawn from the generator) for each frame from which memory is
        inherited.  The run is refused unless the last call in each of these frames was this one and the generator's state has not
        changed.  In Python it is always refused."""

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
    """A function of replay.

    parameters: of the Python function; in machine code all are positional.
    missed: what the function returns if a guard fails.
    catches: whether errors in guards count as failed guards.
    locks: whether guards take locks, which are released whatever happens.
    first: definitions before the guards, which `missed` and other returned values may use; errors in them are raised."""

    parameters: tuple[str, ...]
    guards: tuple[Statement, ...]
    body: tuple[Statement, ...]
    missed: Expr
    catches: bool = True
    locks: bool = False
    first: tuple[Statement, ...] = ()


# -- walking nodes
def walk(node: Any) -> list[ReplayNode]:
    """All nodes in a node or in nested tuples of nodes, the node itself included, outer nodes first."""
    nodes, pending = [], [node]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            if isinstance(node, ReplayNode):
                nodes.append(node)
            pending += node[::-1]
    return nodes


def names(*nodes: Any) -> set[str]:
    """The names that expressions and statements use, without those that they define."""
    used: set[str] = set()
    pending: list[tuple[Any, ...]] = [nodes]
    while pending:
        for part in pending.pop():
            if isinstance(part, tuple):
                kind = type(part)
                if kind is Name:
                    used.add(part[1])
                elif kind is not Constant:
                    pending.append(part)
    return used


def defined(statement: ReplayNode) -> list[str]:
    """The names that one statement defines, without those of statements inside it."""
    match statement:
        case Define(name, _):
            return [name]
        case Unpack(targets, _):
            return [name for name in _flat(targets) if name != "_"]
        case RunProgram():
            return [name for name, _, _ in statement.fresh]
    return []


def _flat(names: tuple[Any, ...]) -> list[str]:
    return [inner for name in names for inner in ([name] if isinstance(name, str) else _flat(name))]


def renamed(node: Any, change: Callable[[Name], Expr]) -> Any:
    """The node with each Name in its expressions replaced by `change(name)`.  Parts that do not change remain the same
    objects."""
    if type(node) is Name:
        return change(node)
    if type(node) is tuple:
        parts = tuple([renamed(part, change) for part in node])
        return node if all(map(operator.is_, parts, node)) else parts
    if not isinstance(node, ReplayNode) or isinstance(node, Constant):
        return node
    after = [renamed(part, change) for part in node[1:]]
    return node if all(map(operator.is_, after, node[1:])) else type(node)(*after)
