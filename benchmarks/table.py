"""The table in the terminal.  One line of figures for a row, one line below it that says what is inside the compiled function."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.rows import RowResult

__all__ = ["digits", "duration", "header", "line", "summary"]

_COLUMNS = (
    ("eager", 9),
    ("compiled", 9),
    ("ratio", 7),
    ("target", 14),
    ("first call", 11),
    ("difference", 11),
    ("products", 9),
    ("replayed", 9),
)
_TITLE = 41
_OTHER = 17


def duration(seconds: float | None) -> str:
    """Three digits and a unit; a dash for None."""
    if seconds is None:
        return "-"
    unit, scale = next(((u, s) for u, s in (("s", 1.0), ("ms", 1e-3)) if seconds >= s), ("us", 1e-6))
    return f"{digits(seconds / scale)} {unit}"


def digits(value: float) -> str:
    """A positive number with three digits, at most two of them after the point."""
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def header(others: Sequence[str]) -> str:
    """The names of the columns; each of `others` shows its time and, in brackets, its time over compiled's."""
    names = "".join(name.rjust(width) for name, width in _COLUMNS)
    return "row".ljust(_TITLE) + names + "".join(name.rjust(_OTHER) for name in others)


def line(row: RowResult, others: Sequence[str]) -> str:
    """The figures of a row, what is inside, and its notes."""
    target = "-" if row.target is None else f"{row.target:g}x {'met' if row.met else 'MISSED'}"
    cells = (
        duration(row.eager),
        duration(row.compiled),
        "-" if row.ratio is None else f"{row.ratio:.2f}x",
        target,
        duration(row.first_call),
        "-" if row.difference is None else f"{row.difference:.1e}",
        "-" if row.products is None else f"{row.products:.0%}",
        "-" if row.replayed is None else f"{row.replayed:.0%}",
    )
    figures = "".join(cell.rjust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
    for name in others:
        cell = f"{duration(row.others[name])} ({row.other_ratios[name]:.2f})" if name in row.others else "-"
        figures += cell.rjust(_OTHER)
    below = [f"    {text}" for text in (f"inside: {row.inside}", *row.notes)]
    return "\n".join([row.title.ljust(_TITLE) + figures, *below])


def summary(rows: Sequence[RowResult]) -> str:
    """How many rows reached their target, and which did not."""
    judged = [row for row in rows if row.met is not None]
    missed = [f"{row.name} {row.ratio:.2f}x of {row.target:g}x" for row in judged if not row.met]
    return f"targets met: {len(judged) - len(missed)} of {len(judged)}" + (f"; missed: {', '.join(missed)}" if missed else "")
