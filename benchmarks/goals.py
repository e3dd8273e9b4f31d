"""What compiled code should reach against each implementation, as the greatest compiled / other; and how a run did.

Against JAX: far ahead where the cost is calls, at least equal where it is products or memory.  Against a kernel written by hand: close.
Against the step without the line that a row is about: hardly more.  On a newer Python: hardly more than on 3.11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.rows import RowResult

__all__ = ["against", "of_another_python", "of_parameters", "of_parameters_on_any_python", "summary"]

_EAGER, _BY_HAND, _BARE = 1.03, 1.3, 1.15
_PARAMETERS, _PARAMETERS_ON_ANY_PYTHON, _ANOTHER_PYTHON = 1.3, 1.5, 1.2
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
        if figures:
            lines.append(_met(f"compiled / {other}", figures))
    lines += of_parameters({row.name: row.compiled for row in judged if row.compiled is not None})
    return "\n".join(lines)


def _met(what: str, figures: Sequence[tuple[str, float, float | None]]) -> str:
    """How many of the goals are met, and which are not.  figures: (row, factor, greatest factor that is good enough)."""
    missed = [f"{name} {factor:.2f} of {goal:g}" for name, factor, goal in figures if goal is not None and factor > goal]
    return f"{what}: {len(figures) - len(missed)} of {len(figures)} goals met" + (
        f"; missed: {', '.join(missed)}" if missed else ""
    )


def of_parameters(seconds: Mapping[str, float], goal: float = _PARAMETERS) -> list[str]:
    """A line about what a call costs by number of parameters, where both of its rows were measured.  seconds: of a call, by rows."""
    few, many = seconds.get("parameters_2"), seconds.get("parameters_200")
    return [] if few is None or many is None else [f"a call with 200 parameters / with 2: {many / few:.2f} (goal {goal:g})"]


def of_parameters_on_any_python(python: str, seconds: Mapping[str, float]) -> list[str]:
    """The same for one of several interpreters."""
    return [f"{python}: {line}" for line in of_parameters(seconds, _PARAMETERS_ON_ANY_PYTHON)]


def of_another_python(python: str, base: str, ratios: Mapping[str, float]) -> str:
    """How an interpreter did against Python 3.11, which is called `base`.  ratios: its time / that one's, by rows."""
    return _met(f"{python} / {base}", [(name, ratio, _ANOTHER_PYTHON) for name, ratio in ratios.items()])
