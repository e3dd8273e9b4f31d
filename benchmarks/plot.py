"""The ratios of a run as a bar chart, written as SVG by hand: a group of bars for each row, a bar for each implementation, log scale.

A bar is the implementation's time / compiled's; it grows from the line at 1 to the right where compiled is faster, to the left where it is
slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.rows import RowResult

__all__ = ["svg"]

_COLOURS = {
    "eager": "#4e79a7",
    "numpy": "#a0a0a0",
    "torch": "#f28e2b",
    "torch.compile": "#e15759",
    "jax": "#59a14f",
    "numba": "#9c6ade",
}
_BAR, _GAP, _LABELS, _PLOT, _RIGHT, _TOP, _BOTTOM = 11, 9, 250, 640, 60, 62, 34


def _text(x: float, y: float, content: str, anchor: str = "start", size: int = 11, colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(content)}</text>'


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def svg(rows: Sequence[RowResult], caption: str) -> str:
    """The chart of the rows with a compiled side.  Raises ValueError where there is none.

    caption: a line below the title (what was measured, and on what)."""
    groups = [
        (row.title, [(side, ratio) for side in _COLOURS if (ratio := row.ratio_of(side)) is not None])
        for row in rows
        if row.compiled is not None
    ]
    if not groups:
        raise ValueError("no row with a compiled side was measured: there is nothing to plot")
    sides = [side for side in _COLOURS if any(side == name for _, bars in groups for name, _ in bars)]
    values = [ratio for _, bars in groups for _, ratio in bars]
    lowest, highest = min(0.0, math.log10(min(values)) - 0.05), max(1.0, math.log10(max(values)) + 0.05)
    height = _TOP + sum(len(bars) * _BAR + _GAP for _, bars in groups) + _BOTTOM
    width = _LABELS + _PLOT + _RIGHT

    def across(value: float) -> float:
        return _LABELS + _PLOT * (math.log10(value) - lowest) / (highest - lowest)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(12, 20, "Time of each implementation / time of compiled (log scale; right of 1: compiled is faster)", size=14),
        _text(12, 36, caption, size=10, colour="#666"),
    ]
    for number, side in enumerate(sides):
        legend = _LABELS + number * 104
        parts.append(f'<rect x="{legend}" y="44" width="10" height="10" fill="{_COLOURS[side]}"/>')
        parts.append(
            _text(
                legend + 14, 53, "by hand, Numba" if side == "numba" else "by hand, NumPy" if side == "numpy" else side, size=10
            )
        )
    base = height - _BOTTOM
    for power in range(math.floor(lowest), math.floor(highest) + 1):
        for digit in range(1, 10):
            value = digit * 10.0**power
            if lowest <= math.log10(value) <= highest:
                colour = "#bbb" if digit == 1 else "#eee"
                parts.append(
                    f'<line x1="{across(value):.1f}" y1="{_TOP}" x2="{across(value):.1f}" y2="{base}" stroke="{colour}"/>'
                )
                if digit in (1, 2, 5):
                    parts.append(_text(across(value), base + 15, f"{value:g}x", "middle", size=10))
    y: float = _TOP + _GAP / 2
    for title, bars in groups:
        parts.append(_text(_LABELS - 8, y + len(bars) * _BAR / 2 + 4, title, "end"))
        for side, ratio in bars:
            left, right = sorted((across(1.0), across(ratio)))
            length = max(right - left, 1.0)
            parts.append(f'<rect x="{left:.1f}" y="{y:.1f}" width="{length:.1f}" height="{_BAR - 1}" fill="{_COLOURS[side]}"/>')
            parts.append(_text(right + 3, y + _BAR - 2, _factor(ratio), size=9, colour="#444"))
            y += _BAR
        y += _GAP
    parts.append(
        f'<line x1="{across(1.0):.1f}" y1="{_TOP}" x2="{across(1.0):.1f}" y2="{base}" stroke="#222" stroke-width="1.5"/>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"
