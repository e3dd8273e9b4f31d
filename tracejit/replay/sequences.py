"""Tuples of much that is alike, in few words: Python's compiler takes as long for each name as an entry takes for many of them.

What loops have made is in lists, too, and what goes along such a list is written as a part of it: parameters stand in several tuples of a
function, in order, and of what layers have made each the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tracejit.replay.ir import Constant, Expr, Name

__all__ = ["Sequences", "in_parentheses"]

_FEWEST: Final = 8  # elements in a row that are worth it


class Sequences:
    """The lists and tuples of a block of a function, which do not change once they are made."""

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        """numbers: of the variables of the function."""
        self._numbers = itertools.count() if numbers is None else numbers
        self._lists: dict[str, list[tuple[Expr, ...]]] = {}  # the names of what is in the rows of a list
        self._places: dict[str, tuple[str, int]] = {}  # name -> a list, the row that has it
        self._columns: dict[tuple[Expr, ...], str] = {}  # expressions -> a tuple of them

    def inside(self) -> Sequences:
        """Those of a block inside: names stand for something else there in each round, and what it makes may not be there after it."""
        return Sequences(self._numbers)

    def variable(self) -> str:
        """A name for a new one."""
        return f"p_made{next(self._numbers)}"

    def forget(self, names: Iterable[str]) -> None:
        """These names stand for something else from here on, perhaps."""
        changed = {self._places[name][0] for name in names if name in self._places}
        self._places = {name: place for name, place in self._places.items() if place[0] not in changed}
        self._columns.clear()

    def hold(self, made: str, rows: Sequence[tuple[str, ...]]) -> None:
        """From here on a list has the tuples of these names; where they are one name each, that itself."""
        self._lists[made] = [tuple(map(Name, row)) for row in rows]
        self._places.update({name: (made, k) for k, row in enumerate(rows) for name in row})

    def texts(self, elements: Sequence[Expr], text: Callable[[Expr], str] = str) -> list[str]:
        """The elements of a tuple: what follows a rule in few words, and what else there is as `text` writes it."""
        if len(elements) < _FEWEST:
            return list(map(text, elements))
        found: list[str] = []
        k = 0
        while k < len(elements):
            count, some = self._rule(elements, k)
            found += [f"*{some}"] if some and count >= _FEWEST else map(text, elements[k : k + count])
            k += count
        return found

    def _rule(self, elements: Sequence[Expr], first: int) -> tuple[int, str]:
        """How many elements from a place on follow a rule, and how to write them; nothing where there is none."""
        element, following = elements[first], elements[first + 1] if first + 1 < len(elements) else None
        kind = type(element)
        if following is None or type(following) is not kind or (kind is not Name and kind is not Constant):
            return 1, ""
        if element == following:
            count = _common(elements, first, itertools.repeat(element))
            return count, f"({element},) * {count}"
        if kind is Constant:
            start = element[1]
            count = _common(elements, first, map(Constant, itertools.count(start))) if type(start) is int else 1
            return count, f"range({start}, {start + count})" if count > 1 else ""
        place, next_place = self._places.get(element[1]), self._places.get(following[1])
        if place is None or next_place is None or place[0] != next_place[0]:
            return 1, ""
        made, row = place
        rows = self._lists[made]
        if len(rows[0]) > 1:
            return _of_rows(elements, first, made, rows, row)
        return _part(elements, first, made, rows, row, next_place[1] - row)

    def column(self, values: tuple[Expr, ...]) -> tuple[str, list[str]]:
        """What stands for a tuple of expressions, and lines that must come before it."""
        known = self._columns.get(values)
        if known is not None:
            return known, []
        texts = self.texts(values)
        if len(texts) == 1 and texts[0].startswith("*"):
            return texts[0][1:], []
        if len(texts) < _FEWEST:
            return in_parentheses(texts), []
        self._columns[values] = made = self.variable()
        return made, [f"{made} = {in_parentheses(texts)}"]


def _part(
    elements: Sequence[Expr], first: int, made: str, rows: list[tuple[Expr, ...]], start: int, step: int
) -> tuple[int, str]:
    """How many go along a list by such steps, from a row on."""
    if step <= 0:
        return 1, ""
    count = _common(elements, first, (name for (name,) in itertools.islice(rows, start, None, step)))
    end = start + step * (count - 1) + 1
    return (count, f"{made}[{start}:{end}{f':{step}' if step > 1 else ''}]") if count >= _FEWEST else (count - 1, "")


def _of_rows(elements: Sequence[Expr], first: int, made: str, rows: list[tuple[Expr, ...]], start: int) -> tuple[int, str]:
    """How many are some of each row of a list, from a row on."""
    chosen: list[int] = []
    for element in itertools.islice(elements, first, None):
        if element not in rows[start]:
            break
        chosen.append(rows[start].index(element))
    following = (row[place] for row in itertools.islice(rows, start, None) for place in chosen)
    times = _common(elements, first, following) // len(chosen)
    if times < 2:
        return len(chosen), ""
    row = ", ".join([f"p_row[{place}]" for place in chosen])
    return times * len(chosen), f"[p_one for p_row in {made}[{start}:{start + times}] for p_one in ({row},)]"


def _common(elements: Sequence[Expr], first: int, others: Iterable[Expr]) -> int:
    """How many elements from a place on are the others, in order."""
    k = first
    for other in others:
        if k == len(elements) or elements[k] != other:
            break
        k += 1
    return k - first


def in_parentheses(texts: Sequence[str]) -> str:
    """A tuple of what is written so."""
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
