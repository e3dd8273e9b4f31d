"""Misses: why calls of compiled functions were recorded again, though there were recorded paths.

`note` is called before such a call runs; the latest few thousand are kept, for all functions of the process together.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tracejit.core.interpreter import state
from tracejit.report.guards import Failure
from tracejit.report.phrases import counted, line_named

__all__ = ["Miss", "explain_misses", "note"]

_KEPT: Final = 4096
_SHOWN: Final = 4  # pairs of values of one guard
_LONGEST: Final = 200
_numbers = itertools.count()
_log: deque[Miss] = deque(maxlen=_KEPT)


class Miss(NamedTuple):
    """A call that was recorded again.  function: its name.  what: the guard that failed, in words of the program: "n", "the shape of x".
    where: its line as "file:line", "" for an argument.  expected, found: the recorded value and that of the call, as texts; "" for both
    where `what` says all.  number: counts such calls in the process."""

    function: str
    what: str
    where: str
    expected: str
    found: str
    number: int


def note(function: str, failure: Failure) -> None:
    """Note that a call is recorded again.  function: the name of the compiled function."""
    what = failure.what + failure.note
    _log.append(Miss(function, what, failure.where, failure.expected, failure.found, next(_numbers)))


class explain_misses:  # noqa: N801  (named like no_grad)
    """Why calls of compiled functions were recorded again: for each, the guard that failed, with the value that it expected
    and the one that it found.  Of all functions of the process together, those in pieces and their pieces, too.

    `print(tracejit.explain_misses())` tells of all such calls so far, of the latest 4096 at most; `with
    tracejit.explain_misses() as misses:` of those inside of the block, by any thread.  `misses` is the list; `str()` of the
    object the text.  A guard is told against the path that was tried first.  First recordings of functions are no misses, nor
    are calls that ran eagerly without being recorded; `explain()` of a function tells of these."""

    def __init__(self) -> None:
        self._begin = -1
        self._end: int | None = next(_numbers)

    def __enter__(self) -> explain_misses:
        state.top.note("library state changed", "explain_misses()")
        self._begin, self._end = next(_numbers), None
        return self

    def __exit__(self, *exception: object) -> None:
        self._end = next(_numbers)

    @property
    def misses(self) -> list[Miss]:
        """The calls, in their order."""
        end = self._end
        return [miss for miss in list(_log) if miss.number > self._begin and (end is None or miss.number < end)]

    def __str__(self) -> str:
        misses = self.misses
        if not misses:
            return "no call was recorded again"
        lines = [f"{counted(len(misses), 'call')} recorded again:"]
        groups: dict[Any, list[Miss]] = {}
        for miss in misses:
            groups.setdefault((miss.function, miss.what, miss.where), []).append(miss)
        for (function, what, where), group in sorted(groups.items(), key=lambda item: -len(item[1])):
            at = f" at {line_named(where)}" if where else ""
            lines.append(_cut(f"  {function}, {counted(len(group), 'time')}: {what}{at}"))
            lines += [f"    {side}" for side in _sides(group)]
        return "\n".join(lines)

    __repr__ = __str__


def _sides(misses: Iterable[Miss]) -> list[str]:
    """The values that were expected and found, each pair once."""
    pairs = list(dict.fromkeys((miss.expected, miss.found) for miss in misses if miss.expected))
    shown = [_cut(f"expected {expected}, found {found}") for expected, found in pairs[:_SHOWN]]
    return [*shown, f"... and {len(pairs) - _SHOWN} more"] if len(pairs) > _SHOWN else shown


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
