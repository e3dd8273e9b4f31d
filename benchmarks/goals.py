"""What compiled code should reach against each implementation, as the greatest compiled / other; and how a run did.

Against JAX: far ahead where the cost is calls, at least equal where it is products or memory.  Against a kernel written by hand: close.
Against the step without the line that a row is about: hardly more.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.rows import RowResult

__all__ = ["against", "summary"]

_EAGER, _BY_HAND, _OVERHEAD, _BARE = 1.03, 1.3, 1.3, 1.15
_PREFIXES = (
    (("a*b+1", "gelu_10", "gelu_1000", "mlp_sgd_1", "mlp_adam_1", "logistic"), (), 0.3),
    ((), ("loop_rnn_",), 0.4),
    (("loop_lstm",), (), 0.5),
    (("softmax_layer_norm",), ("rnn_", "black_scholes_"), 0.6),
)


def against(row: str, other: str) -> float | None:
    """The greatest compiled / `other` that is good enough; None where there is no goal."""
    if other == "eager":
        return _EAGER
    if other == "numba":
        return _BY_HAND
    if other == "bare":
        return _BARE
    if other != "jax":
        return None
    for names, prefixes, goal in _PREFIXES:
        if row in names or row.startswith(prefixes or "\0"):
            return goal
    return 1.0


def summary(rows: Sequence[RowResult]) -> str:
    """A line for each implementation with goals, with the rows that miss theirs, and one about the cost of parameters."""
    lines = []
    judged = [row for row in rows if row.compiled is not None]
    for other in ("eager", "bare", "jax", "numba"):
        figures = [
            (row.name, 1 / ratio, against(row.name, other)) for row in judged if (ratio := row.ratio_of(other)) is not None
        ]
        missed = [f"{name} {factor:.2f} of {goal:g}" for name, factor, goal in figures if goal is not None and factor > goal]
        if figures:
            lines.append(
                f"compiled / {other}: {len(figures) - len(missed)} of {len(figures)} goals met"
                + (f"; missed: {', '.join(missed)}" if missed else "")
            )
    calls = {row.name: row.compiled for row in judged}
    few, many = calls.get("parameters_2"), calls.get("parameters_200")
    if few is not None and many is not None:
        lines.append(f"a call with 200 parameters / with 2: {many / few:.2f} (goal {_OVERHEAD:g})")
    return "\n".join(lines)
