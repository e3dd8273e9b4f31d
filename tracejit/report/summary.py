"""`explain()`: what happened to a compiled function, for users who do not know how it works: a sentence (opening.py), what to do, and at
most a screen of the most important facts.  `explain(verbose=True)` has the rest (explain.py).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tracejit.capture.reasons import Reason
from tracejit.report.account import Account
from tracejit.report.lines import peaks_of, programs_of
from tracejit.report.opening import advice, advice_for, opening, varies_too_much
from tracejit.report.phrases import counted, line_named
from tracejit.report.system import slower

__all__ = ["facts", "first_lines", "summary"]

_COLUMNS: Final = 120
_LINES: Final = 40
_ADVICE, _PATHS, _REASONS, _SIZES, _PIECES = 5, 6, 4, 3, 6  # at most so many of each are shown
_SHORT: Final = 360  # characters of one item: three lines


def _wrapped(text: str, indent: str = "") -> list[str]:
    """The text wrapped to the width of a screen, shortened to about three lines."""
    short = textwrap.shorten(text, _SHORT, placeholder=" ...") if len(text) > _SHORT else text
    return textwrap.wrap(
        short, _COLUMNS, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    )


def _some(items: Sequence[str], most: int, what: str, indent: str = "  ") -> list[str]:
    lines = [line for item in items[:most] for line in _wrapped(item, indent)]
    return [*lines, f"{indent}... and {counted(len(items) - most, what)} more"] if len(items) > most else lines


def _path(k: int, path: Any, paths: Sequence[Any]) -> str:
    """A line about a path: the calls that it served, its size, and how often it was left by an exit."""
    served, *_ = path.executable.counter
    text = f"path {k}: served {counted(served, 'call')}, {counted(len(path.executable.graph.nodes), 'operation')}"
    exits = sum(path.executable.exits_taken.values())
    if exits:
        bridges = sorted({paths.index(bridge) for bridge in path.bridges.values() if bridge in paths})
        onward = f", then on to path{'s' if len(bridges) > 1 else ''} {', '.join(map(str, bridges))}" if bridges else ""
        text += f"; left {counted(exits, 'time')} where a value decided otherwise{onward}"
    return text


def first_lines(account: Account) -> list[str]:
    """The sentence, then, if there is something, what to do."""
    todo, lines = advice(account), [opening(account)]
    if len(todo) == 1:
        return [*lines, *_wrapped(f"What to do: {todo[0]}")]
    return [*lines, "What to do:", *_some(todo, _ADVICE, "item")] if todo else lines


def facts(account: Account) -> list[str]:
    """What else is worth knowing about the function as a whole."""
    divergence, found = account.divergence, [slower()]
    if account.pieces:
        found.append(f"runs in pieces, since {account.pieces}")
    if account.compiling and account.paths:
        found.append("one more path is being compiled in the background")
    if divergence is not None and not varies_too_much(account):  # else it is told above
        found.append(f"paths differ at {divergence.name}{divergence.location()}: {divergence.values_text()}")
    for k, path in enumerate(account.paths):
        for direction, program in programs_of(path.executable):
            found += [
                f"the {direction} program of path {k} needs {peak.nbytes} bytes of memory, {peak.beyond} more than memory_limit allows: "
                f"{peak.largest[0]}"
                for peak in peaks_of(program)
                if peak.beyond
            ]
    return [fact for fact in found if fact]


def summary(account: Account) -> str:
    """A screen: the sentence, what to do, what made calls run as Python, the paths that served most calls."""
    lines = first_lines(account)
    if not account.stats.calls:
        return "\n".join(lines)
    for fact in facts(account):
        lines += _wrapped(fact, "  ")
    paths, reasons = account.paths, account.reasons
    often = sorted(reasons, key=lambda reason: -reasons[reason])
    lines += _some([f"eager ({counted(reasons[reason], 'time')}): {_reason(reason)}" for reason in often], _REASONS, "reason")
    lines += _some(account.fixed_sizes, _SIZES, "line")
    used = [k for k, path in enumerate(paths) if path.executable.counter[0] or path.executable.exits_taken]
    used.sort(key=lambda k: -paths[k].executable.counter[0])
    lines += _some([_path(k, paths[k], paths) for k in used], _PATHS, "path")
    if unused := len(paths) - len(used):
        lines.append(f"  {counted(unused, 'path')} served no call so far")
    lines += _some([opening(part) for part in account.parts], _PIECES, "piece")
    return "\n".join([*_cut(lines), "explain(verbose=True) has counts, guards, programs and passes."])


def _reason(reason: Reason) -> str:
    """A reason in full, but for what is advised above."""
    location = line_named(reason.where)
    text = f"[{reason.code}] {reason.message}{f' ({location})' if location else ''}"
    return text if advice_for(reason) else f"{text}. {reason.remedy}"


def _cut(lines: Iterable[str]) -> list[str]:
    screen = list(lines)
    return screen if len(screen) < _LINES else [*screen[: _LINES - 2], f"  ... ({len(screen) - _LINES + 2} lines more)"]
