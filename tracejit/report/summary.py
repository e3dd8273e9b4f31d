"""`explain()`: what happened to a compiled function, for users who do not know how it works: a headline, and at most a screen of
the most important facts.  `explain(verbose=True)` has the rest (explain.py).
"""

from __future__ import annotations

import linecache
import os.path
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tracejit.capture.reasons import Reason
from tracejit.config import config
from tracejit.report.divergences import Divergence
from tracejit.report.system import slower

__all__ = ["headline", "line_named", "sentence", "summary"]

_COLUMNS: Final = 120
_LINES: Final = 40
_PATHS, _REASONS, _SIZES, _PIECES = 6, 4, 3, 6  # at most so many of each are shown
_SHORT: Final = 360  # characters of one item: three lines


def counted(count: int, what: str) -> str:
    """A number with its noun: "1 path", "1,000 paths"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def line_named(where: str) -> str:
    """The user's "file:line" in words, with the text of the line if it can be read; "" for ""."""
    file, _, line = where.rpartition(":")
    if not file:
        return ""
    text = linecache.getline(file, int(line)).strip()
    return f"line {line} of {os.path.basename(file)}" + (f", `{text}`" if text else "")


def sentence(reason: Reason) -> str:
    """A reason as a sentence: why a call runs eagerly, where, and what to do."""
    location = line_named(reason.where)
    return f"{reason.message}{f' ({location})' if location else ''}. {reason.remedy}."


def headline(
    stats: Any, paths: int, reasons: Mapping[Reason, int], divergence: Divergence | None, full: bool, compiling: bool, pieces: Any
) -> str:
    """The headline: one sentence.  paths: number of recorded paths.  For the other arguments see `explain_function`."""
    calls, served, recordings = stats.calls, stats.compiled_calls, counted(stats.traces, "recording")
    if not config.enabled:
        return "compilation is turned off (TRACEJIT_DISABLE=1, or config.enabled is False): calls run eagerly."
    if not calls:
        return "not called yet"
    if pieces is not None:
        return f"runs in pieces, since {pieces.text}."
    if compiling and not paths:
        return "is compiled in the background; calls run eagerly meanwhile."
    ran = f"{served:,} of {counted(calls, 'call')} ran compiled"
    if compiling:
        return f"{ran}; {recordings}; one more path is compiled in the background."
    if divergence is not None and not served and not full:
        often = "recorded on each call" if stats.traces == calls else f"recorded {stats.traces} times for nothing"
        what = f"{divergence.name}{divergence.location()} changes ({divergence.values_text()})"
        return f"{ran}: {often} because {what}. {divergence.remedy()}."
    if divergence is not None and (full or 2 * served < calls):
        return f"{ran}; {counted(paths, 'path')}: {divergence.text()}."
    if not paths and reasons:
        return f"runs eagerly: {sentence(max(reasons, key=lambda reason: reasons[reason]))}"
    if paths and 2 * stats.direct_calls > calls:
        return f"{ran}; it is left to Python, since trying its {counted(paths, 'path')} cost more than they saved."
    if served or not paths:
        return f"{ran}; {recordings}."
    others = stats.eager_calls - stats.early_calls - paths  # eager calls that neither became a path nor waited for one
    if others > 0:
        why = f": {sentence(max(reasons, key=lambda reason: reasons[reason]))}" if reasons else "."
        fitting = "the one recorded path" if paths == 1 else f"any of the {paths} recorded paths"
        return f"{ran}: {counted(others, 'call')} did not fit {fitting} and ran eagerly{why}"
    return f"no call has run compiled yet; {recordings}, and calls like those that were recorded will."


def _wrapped(text: str, indent: str = "") -> list[str]:
    """The text wrapped to the width of a screen, shortened to about three lines."""
    short = textwrap.shorten(text, _SHORT, placeholder=" ...") if len(text) > _SHORT else text
    return textwrap.wrap(
        short, _COLUMNS, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    )


def _some(items: Sequence[str], most: int, what: str, indent: str = "  ") -> list[str]:
    lines = [line for item in items[:most] for line in _wrapped(item, indent)]
    return [*lines, f"{indent}... and {counted(len(items) - most, what)} more"] if len(items) > most else lines


def _counts(stats: Any) -> str:
    """The counts of calls, by how they ran."""
    parts = [f"{stats.compiled_calls:,} compiled"]
    parts += [f"{stats.piecewise_calls:,} in pieces"] if stats.piecewise_calls else []
    eager = [f"{stats.traces:,} recorded"]
    eager += [f"{stats.early_calls:,} while a program was compiled in the background"] if stats.early_calls else []
    eager += [f"{stats.direct_calls:,} left to Python because trying had not paid"] if stats.direct_calls else []
    parts.append(f"{stats.eager_calls:,} eager ({', '.join(eager)})")
    return f"{counted(stats.calls, 'call')}: {', '.join(parts)}"


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


def summary(
    name: str,
    stats: Any,
    paths: Sequence[Any],
    reasons: Mapping[Reason, int],
    divergence: Divergence | None,
    full: bool,
    compiling: bool,
    symbolic: Sequence[str],
    pieces: Any,
) -> str:
    """A screen: headline, counts, reasons, sizes, the paths that served most calls.  For the arguments see `explain_function`."""
    title = headline(stats, len(paths), reasons, divergence, full, compiling, pieces)
    lines = _wrapped(f"{name}: {title}")
    if not stats.calls:
        return "\n".join(lines)
    lines += _wrapped(_counts(stats), "  ")
    lines += _wrapped(slower(), "  ")
    if divergence is not None and divergence.name not in title:
        lines += _wrapped(f"paths differ at {divergence.name}{divergence.location()}: {divergence.values_text()}", "  ")
    often = sorted(reasons, key=lambda reason: -reasons[reason])
    lines += _some([f"eager ({counted(reasons[reason], 'time')}): {reason}" for reason in often], _REASONS, "reason")
    lines += _some(symbolic, _SIZES, "line")
    order = sorted(range(len(paths)), key=lambda k: -paths[k].executable.counter[0])
    lines += _some([_path(k, paths[k], paths) for k in order], _PATHS, "path")
    if pieces is not None:
        lines += _some([part.explain().partition("\n")[0] for part in pieces.parts], _PIECES, "piece")
    return "\n".join([*_cut(lines), "explain(verbose=True) tells guards, exits, programs and passes."])


def _cut(lines: Iterable[str]) -> list[str]:
    screen = list(lines)
    return screen if len(screen) < _LINES else [*screen[: _LINES - 2], f"  ... ({len(screen) - _LINES + 2} lines more)"]
