"""Statements that repeat themselves on other names and constants: equal layers have equal guards, parameters equal results.

`repeats` finds them, so that a rendering has them once and goes through the rest as data: Python's compiler takes far longer for a
statement than for a row of a table.  What is done, and in which order, is the same.  `rows` does so for the elements of a tuple.

Only what defines, compares, and fills objects that the repetition itself has made is repeated.  Effects that stand next to each other
without a call between them are one step for signals and threads; they stay as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, Final, NamedTuple

from tracejit.replay.ir import Attribute, Call, Constant, Define, Expr, Miss, Name, SetAttribute, Statement, TupleOf

__all__ = ["Repeat", "RepeatedExpressions", "repeats", "rows"]

_FEWEST: Final = 3  # times
_SAVED: Final = 16  # statements, at least
_LOOKED_AT: Final = 8  # statements in a row that look the same where a repetition may begin
_CANDIDATES: Final = 3  # of places where they come again
_IN_VAIN: Final = 16  # times as many statements as there are may be compared and found to differ
_FEWEST_ROWS: Final = 16


class Repeat(NamedTuple):
    """Some statements, done again and again.

    body: the statements of the first time.  each: names in it that stand for something else each time, with what they are, in order;
    all of it is known before.  made: what the body defines, by the names that it has after each time."""

    body: tuple[Statement, ...]
    each: tuple[tuple[str, tuple[Expr, ...]], ...]
    made: tuple[tuple[str, ...], ...]


class RepeatedExpressions(NamedTuple):
    """Expressions that are alike: the first of them, and names in it that stand for something else each time, as in `Repeat`."""

    element: Expr
    each: tuple[tuple[str, tuple[Expr, ...]], ...]


def rows(elements: Sequence[Expr]) -> list[Expr | RepeatedExpressions]:
    """The expressions, with `RepeatedExpressions` in the place of many that follow each other and are alike, and more than names."""
    found: list[Expr | RepeatedExpressions] = []
    for kind, some in groupby(elements, _kinds):
        column = tuple(some)
        alike = None if kind is Name or len(column) < _FEWEST_ROWS else _rows(column)
        found += column if alike is None else [alike]
    return found


def _rows(column: tuple[Expr, ...]) -> RepeatedExpressions | None:
    """The expressions as one; None where they are not alike, or all the same."""
    merging = _Merging((), "p_row")
    try:
        element = merging.part(column)
    except _Unlike:
        return None
    each = tuple([(name.name, values) for values, name in merging.each.items()])
    return RepeatedExpressions(element, each) if each else None


def _kinds(element: Expr) -> Any:
    """The kind of an expression; of a tuple those of its elements."""
    return tuple(map(type, element.elements)) if type(element) is TupleOf else type(element)


def repeats(statements: Sequence[Statement], are_guards: bool) -> list[Statement | Repeat]:
    """The statements, with `Repeat` in the place of those that repeat themselves."""
    if len(statements) > sys.maxunicode:
        return list(statements)
    letters: dict[Any, str] = {}
    text = "".join([letters.setdefault(look, chr(len(letters))) for look in _looks(statements, are_guards)])
    following = _following(text)
    found: list[Statement | Repeat] = []
    k, left = 0, _IN_VAIN * len(statements)
    while k < len(statements):
        end = k + 1
        if left > 0:
            for period, times in _candidates(text, k, following):
                made = _repeat(statements, k, period, times)
                if made is not None:
                    found.append(made)
                    end = k + period * times
                    break
                left -= period * times
        if end == k + 1:
            found.append(statements[k])
        k = end
    return found


def _following(text: str) -> dict[int, int]:
    """Place of a statement -> the next one where it, and those after it, come again.  text: a letter for what each looks like."""
    found: dict[int, int] = {}
    latest: dict[str, int] = {}
    for k in range(len(text) - _LOOKED_AT + 1):
        head = text[k : k + _LOOKED_AT]
        if head in latest:
            found[latest[head]] = k
        latest[head] = k
    return found


def _looks(statements: Sequence[Statement], are_guards: bool) -> Iterator[Any]:
    """What each statement looks like, equal for those that do the same to other things; one that must not be repeated is like none."""
    filled: Expr | None = None  # the object that was made last
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
    """The kinds of the outermost nodes of a condition, and the attribute that it asks for."""
    found: list[Any] = []
    node: Any = condition
    while isinstance(node, Expr):
        kind = type(node)
        found.append(kind)
        if kind is Name or kind is Constant:
            break
        if kind is Attribute:
            found.append(node[2])
            break
        node = node[1]
    else:
        if type(node) is str:  # of a comparison
            found.append(node)
    return (Miss, *found)


def _candidates(text: str, first: int, following: Mapping[int, int]) -> list[tuple[int, int]]:
    """(statements, times) of what may repeat itself from here on, what saves most first."""
    found: list[tuple[int, int]] = []
    place = first
    for _ in range(_CANDIDATES):
        if place not in following:
            break
        place = following[place]
        period, end, window = place - first, place, text[first:place]
        while text[end : end + period] == window:
            end += period
        times = (end - first) // period
        if times >= _FEWEST and period * (times - 1) >= _SAVED:
            found.append((period, times))
    return sorted(found, key=lambda x: x[0] * (x[1] - 1), reverse=True)


def _repeat(statements: Sequence[Statement], first: int, period: int, count: int) -> Repeat | None:
    """What does the same as so many statements, so many times; None where they are not the same but for names and constants that are
    known before."""
    times = [statements[k : k + period] for k in range(first, first + period * count, period)]
    made = [tuple([statement[1] for statement in statements if type(statement) is Define]) for statements in times]
    merging = _Merging(made)
    try:
        body = tuple([merging.statement(column) for column in zip(*times, strict=True)])
    except _Unlike:
        return None
    owners = [statement[1] for statement in body if type(statement) is SetAttribute]
    if not {owner[1] for owner in owners} <= merging.own.keys():
        return None
    return Repeat(body, tuple([(name.name, column) for column, name in merging.each.items()]), tuple(made))


class _Unlike(Exception):
    """Statements do not repeat themselves."""


class _Merging:
    """Makes one statement of those that stand for it each time.  All columns here have an entry for each time."""

    def __init__(self, made: Sequence[tuple[str, ...]], prefix: str = "p_each") -> None:
        """made: the names that are defined each time.  prefix: of the names that stand for something else each time."""
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
            raise _Unlike
        if kind is Constant and column.count(first) == len(column):
            return first
        try:
            fields = list(zip(*column, strict=True))
        except (TypeError, ValueError):  # something else than tuples, or tuples of other lengths
            raise _Unlike from None
        if kind is tuple:
            if len(set(map(type, column))) > 1:
                raise _Unlike
            return tuple(map(self.part, fields))
        if fields[0].count(kind) != len(column):
            raise _Unlike
        if kind is Name:
            return self._name(column, fields[1])
        return self._other(column) if kind is Constant else kind(*map(self.part, fields[1:]))

    def _name(self, column: tuple[Any, ...], names: tuple[str, ...]) -> Expr:
        first: Expr = column[0]
        own = self.own.get(names[0])
        if own is not None and names == own:
            return first
        if not self._everywhere.isdisjoint(names):
            raise _Unlike  # it goes on with what another time has made
        return first if names.count(names[0]) == len(names) else self._other(column)

    def _other(self, column: tuple[Expr, ...]) -> Expr:
        """What is something else each time."""
        return self.each.setdefault(column, Name(f"{self._prefix}{len(self.each)}"))
