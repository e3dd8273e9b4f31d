"""Short texts for long tuples: Python's compiler takes as long for one name as an entry takes for many.

The results of loops of a rendering (repeats.py) are also in lists.  A tuple that has consecutive elements of such a list is
written as a slice of it.  So are parameters, which are in several tuples of a function in the same order, and the values that
each layer defines.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tracejit.replay.ir import Constant, Expr, Name

__all__ = ["Sequences", "in_parentheses"]

_FEWEST: Final = 8  # elements in a row that are abbreviated, at least


class Sequences:
    """The lists and tuples in a block of a rendered function, which are not changed after their definition."""

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        """numbers: gives the numbers of new variables of the function."""
        self._numbers = itertools.count() if numbers is None else numbers
        self._lists: dict[str, list[tuple[Expr, ...]]] = {}  # variable of a list -> the names in each of its rows
        self._rows: dict[str, tuple[str, int]] = {}  # name -> (list, row that has it)
        self._columns: dict[tuple[Expr, ...], str] = {}  # expressions -> variable of a tuple of them

    def inside(self) -> Sequences:
        """A new object for an inner block: names have other values there in each round, and its variables may be undefined after
        it."""
        return Sequences(self._numbers)

    def variable(self) -> str:
        """The name of a new variable."""
        return f"p_made{next(self._numbers)}"

    def forget(self, names: Iterable[str]) -> None:
        """Note that these names may have other values from here on."""
        changed = {self._rows[name][0] for name in names if name in self._rows}
        self._rows = {name: row_of for name, row_of in self._rows.items() if row_of[0] not in changed}
        self._columns.clear()

    def hold(self, made: str, rows: Sequence[tuple[str, ...]]) -> None:
        """Note that the list in the variable `made` has these rows: tuples of variables, or the variable itself in a row of
        one."""
        self._lists[made] = [tuple(map(Name, row)) for row in rows]
        self._rows.update({name: (made, k) for k, row in enumerate(rows) for name in row})

    def texts(self, elements: Sequence[Expr], text: Callable[[Expr], str] = str) -> list[str]:
        """The texts of the elements of a tuple, with `*abbreviation` for runs of elements.  text: gives the text of a single
        element."""
        if len(elements) < _FEWEST:
            return list(map(text, elements))
        texts: list[str] = []
        k = 0
        while k < len(elements):
            count, short = self._rule(elements, k)
            texts += [f"*{short}"] if short and count >= _FEWEST else map(text, elements[k : k + count])
            k += count
        return texts

    def _rule(self, elements: Sequence[Expr], first: int) -> tuple[int, str]:
        """(number of elements from position `first` on that can be abbreviated, the abbreviation; "" if there is none)."""
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
        row_of, next_row = self._rows.get(element[1]), self._rows.get(following[1])
        if row_of is None or next_row is None or row_of[0] != next_row[0]:
            return 1, ""
        variable, row = row_of
        rows = self._lists[variable]
        if len(rows[0]) > 1:
            return _of_rows(elements, first, variable, rows, row)
        return _part(elements, first, variable, rows, row, next_row[1] - row)

    def column(self, values: tuple[Expr, ...]) -> tuple[str, list[str]]:
        """(the text of an iterable over these expressions, lines that must come before it)."""
        existing = self._columns.get(values)
        if existing is not None:
            return existing, []
        texts = self.texts(values)
        if len(texts) == 1 and texts[0].startswith("*"):
            return texts[0][1:], []
        if len(texts) < _FEWEST:
            return in_parentheses(texts), []
        self._columns[values] = variable = self.variable()
        return variable, [f"{variable} = {in_parentheses(texts)}"]


def _part(
    elements: Sequence[Expr], first: int, variable: str, rows: list[tuple[Expr, ...]], start: int, step: int
) -> tuple[int, str]:
    """`_rule` for elements that are a slice of a list: rows start, start + step ..."""
    if step <= 0:
        return 1, ""
    count = _common(elements, first, (name for (name,) in itertools.islice(rows, start, None, step)))
    end = start + step * (count - 1) + 1
    return (count, f"{variable}[{start}:{end}{f':{step}' if step > 1 else ''}]") if count >= _FEWEST else (count - 1, "")


def _of_rows(elements: Sequence[Expr], first: int, variable: str, rows: list[tuple[Expr, ...]], start: int) -> tuple[int, str]:
    """`_rule` for elements that are the same columns of consecutive rows of a list."""
    chosen: list[int] = []
    for element in itertools.islice(elements, first, None):
        if element not in rows[start]:
            break
        chosen.append(rows[start].index(element))
    following = (row[row_of] for row in itertools.islice(rows, start, None) for row_of in chosen)
    times = _common(elements, first, following) // len(chosen)
    if times < 2:
        return len(chosen), ""
    row = ", ".join([f"p_row[{row_of}]" for row_of in chosen])
    return times * len(chosen), f"[p_one for p_row in {variable}[{start}:{start + times}] for p_one in ({row},)]"


def _common(elements: Sequence[Expr], first: int, others: Iterable[Expr]) -> int:
    """The number of elements from position `first` on that equal the others, in order."""
    k = first
    for other in others:
        if k == len(elements) or elements[k] != other:
            break
        k += 1
    return k - first


def in_parentheses(texts: Sequence[str]) -> str:
    """The text of a tuple with these texts of elements."""
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
