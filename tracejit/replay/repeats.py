"""Finds sequences of statements that repeat with other names and constants: equal layers have equal guards, parameters equal
results.

A rendering then has the statements once, in a loop over a table of the names and constants: Python's compiler takes far longer
for a statement than for a row of a table.  The statements and their order of execution are the same.  `rows` does so for the
elements of a tuple.

Only statements are repeated that define, compare, or set attributes of objects that the repetition itself has created.  Other
effects are left alone: signals and other threads cannot come between effects in a row without a call, which a loop would change.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, Final, NamedTuple

from tracejit.replay.ir import Attribute, Call, Constant, Define, Expr, Miss, Name, SetAttribute, Statement, TupleOf

__all__ = ["Repeat", "RepeatedExpressions", "repeats", "rows"]

_FEWEST: Final = 3  # repetitions, at least
_SAVED: Final = 16  # statements that a repetition must save, at least
_LOOKED_AT: Final = 8  # a repetition may begin where so many statements in a row look like later ones
_CANDIDATES: Final = 3  # later positions that are tried
_IN_VAIN: Final = 16  # at most so many times the number of statements are compared without success
_FEWEST_ROWS: Final = 16


class Repeat(NamedTuple):
    """Statements that are repeated.

    body: the statements of the first time, with new names for parts that differ.  each: (new name, its value each time), which
    are all known before the repetition.  made: for each time, the names of the variables that the body defines."""

    body: tuple[Statement, ...]
    each: tuple[tuple[str, tuple[Expr, ...]], ...]
    made: tuple[tuple[str, ...], ...]


class RepeatedExpressions(NamedTuple):
    """Similar expressions.  element: the first one, with new names for parts that differ.  each: as in `Repeat`."""

    element: Expr
    each: tuple[tuple[str, tuple[Expr, ...]], ...]


def rows(elements: Sequence[Expr]) -> list[Expr | RepeatedExpressions]:
    """The expressions, with each run of many similar ones that are more than names replaced by `RepeatedExpressions`."""
    result: list[Expr | RepeatedExpressions] = []
    for kind, some in groupby(elements, _kinds):
        column = tuple(some)
        merged = None if kind is Name or len(column) < _FEWEST_ROWS else _rows(column)
        result += column if merged is None else [merged]
    return result


def _rows(column: tuple[Expr, ...]) -> RepeatedExpressions | None:
    """The expressions as `RepeatedExpressions`; None if they are not similar, or all equal."""
    merging = _Merging((), "p_row")
    try:
        element = merging.part(column)
    except _NotMergeable:
        return None
    each = tuple([(name.name, values) for values, name in merging.each.items()])
    return RepeatedExpressions(element, each) if each else None


def _kinds(element: Expr) -> Any:
    """The class of an expression; for a tuple, the classes of its elements."""
    return tuple(map(type, element.elements)) if type(element) is TupleOf else type(element)


def repeats(statements: Sequence[Statement], are_guards: bool) -> list[Statement | Repeat]:
    """The statements, with repeated ones replaced by `Repeat`.  are_guards: whether they are guards."""
    if len(statements) > sys.maxunicode:
        return list(statements)
    letters: dict[Any, str] = {}
    text = "".join([letters.setdefault(look, chr(len(letters))) for look in _looks(statements, are_guards)])
    following = _following(text)
    result: list[Statement | Repeat] = []
    k, budget = 0, _IN_VAIN * len(statements)
    while k < len(statements):
        end = k + 1
        if budget > 0:
            for period, times in _candidates(text, k, following):
                repeat = _repeat(statements, k, period, times)
                if repeat is not None:
                    result.append(repeat)
                    end = k + period * times
                    break
                budget -= period * times
        if end == k + 1:
            result.append(statements[k])
        k = end
    return result


def _following(text: str) -> dict[int, int]:
    """Position of a statement -> the next position at which it and the following `_LOOKED_AT - 1` statements look the same.
    text: a letter for the look of each statement."""
    next_positions: dict[int, int] = {}
    latest: dict[str, int] = {}
    for k in range(len(text) - _LOOKED_AT + 1):
        head = text[k : k + _LOOKED_AT]
        if head in latest:
            next_positions[latest[head]] = k
        latest[head] = k
    return next_positions


def _looks(statements: Sequence[Statement], are_guards: bool) -> Iterator[Any]:
    """The look of each statement: equal for statements that may do the same with other names and constants.  A statement that
    must not be repeated has a look of its own."""
    filled: Expr | None = None  # the object that was created last
    for k, statement in enumerate(statements):
        kind = type(statement)
        if kind is Define:
            value = statement[2]
            filled = Name(statement[1]) if type(value) is Call else None
            yield (kind, type(value), value[2] if type(value) is Attribute else None) if are_guards or filled else k
        elif kind is SetAttribute and statement[1] == filled:
            yield kind, statement[2]
        elif kind is Miss and are_guards:
            yield _look(statement[1])
        else:
            yield k


def _look(condition: Expr) -> tuple[Any, ...]:
    """The classes of the outermost nodes of a condition, and the attribute that it reads."""
    look: list[Any] = []
    node: Any = condition
    while isinstance(node, Expr):
        kind = type(node)
        look.append(kind)
        if kind is Name or kind is Constant:
            break
        if kind is Attribute:
            look.append(node[2])
            break
        node = node[1]
    else:
        if type(node) is str:  # the symbol of a comparison
            look.append(node)
    return (Miss, *look)


def _candidates(text: str, first: int, following: Mapping[int, int]) -> list[tuple[int, int]]:
    """(number of statements, times) of possible repetitions that begin at position `first`, the one that saves most first."""
    candidates: list[tuple[int, int]] = []
    position = first
    for _ in range(_CANDIDATES):
        if position not in following:
            break
        position = following[position]
        period, end, window = position - first, position, text[first:position]
        while text[end : end + period] == window:
            end += period
        times = (end - first) // period
        if times >= _FEWEST and period * (times - 1) >= _SAVED:
            candidates.append((period, times))
    return sorted(candidates, key=lambda x: x[0] * (x[1] - 1), reverse=True)


def _repeat(statements: Sequence[Statement], first: int, period: int, count: int) -> Repeat | None:
    """The Repeat for `count` times `period` statements from position `first` on; None if they differ in more than names and
    constants that are known before."""
    times = [statements[k : k + period] for k in range(first, first + period * count, period)]
    made = [tuple([statement[1] for statement in statements if type(statement) is Define]) for statements in times]
    merging = _Merging(made)
    try:
        body = tuple([merging.statement(column) for column in zip(*times, strict=True)])
    except _NotMergeable:
        return None
    owners = [statement[1] for statement in body if type(statement) is SetAttribute]
    if not {owner[1] for owner in owners} <= merging.own.keys():
        return None
    return Repeat(body, tuple([(name.name, column) for column, name in merging.each.items()]), tuple(made))


class _NotMergeable(Exception):
    """Statements differ in more than names and constants."""


class _Merging:
    """Merges the statements, one for each time, that correspond to each other.  A column has a part of the statement for each
    time."""

    def __init__(self, made: Sequence[tuple[str, ...]], prefix: str = "p_each") -> None:
        """made: for each time, the names that it defines.  prefix: of the new names for parts that differ."""
        self._prefix = prefix
        self.own = {names[0]: names for names in zip(*made, strict=True)}
        self.each: dict[tuple[Expr, ...], Name] = {}
        self._everywhere = set(chain.from_iterable(made))

    def statement(self, column: tuple[Any, ...]) -> Any:
        first = column[0]
        if type(first) is Define:
            return Define(first.name, self.part(tuple([statement[2] for statement in column])))
        return self.part(column)

    def part(self, column: tuple[Any, ...]) -> Any:
        first = column[0]
        kind = type(first)
        if not isinstance(first, tuple):
            if column.count(first) == len(column) and (kind is str or len(set(map(type, column))) == 1):
                return first
            raise _NotMergeable
        if kind is Constant and column.count(first) == len(column):
            return first
        try:
            fields = list(zip(*column, strict=True))
        except (TypeError, ValueError):  # some are no tuples, or have other lengths
            raise _NotMergeable from None
        if kind is tuple:
            if len(set(map(type, column))) > 1:
                raise _NotMergeable
            return tuple(map(self.part, fields))
        if fields[0].count(kind) != len(column):
            raise _NotMergeable
        if kind is Name:
            return self._name(column, fields[1])
        return self._other(column) if kind is Constant else kind(*map(self.part, fields[1:]))

    def _name(self, column: tuple[Any, ...], names: tuple[str, ...]) -> Expr:
        first: Expr = column[0]
        own = self.own.get(names[0])
        if own is not None and names == own:
            return first
        if not self._everywhere.isdisjoint(names):
            raise _NotMergeable  # it uses a variable that another time defines
        return first if names.count(names[0]) == len(names) else self._other(column)

    def _other(self, column: tuple[Expr, ...]) -> Expr:
        """The new name for a part that differs."""
        return self.each.setdefault(column, Name(f"{self._prefix}{len(self.each)}"))
