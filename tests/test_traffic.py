"""Fusion by bytes moved: how many nests, and how many times the least traffic, common functions and their gradients take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit
from tests.graph_programs import f32, gelu_chain
from tests.nest_programs import value_and_gradients
from tracejit import functional as F
from tracejit.compiled import executable
from tracejit.lowering.lower import lower

ROWS, COLUMNS = 256, 192
generator = np.random.default_rng(12)


def numbers(*shape: int) -> tracejit.Tensor:
    return tracejit.tensor(generator.standard_normal(shape).astype(np.float32))


scale, shift = numbers(COLUMNS).requires_grad_(), numbers(COLUMNS).requires_grad_()
classes = tracejit.tensor(generator.integers(0, COLUMNS, ROWS))
FUNCTIONS: dict[str, Callable[[tracejit.Tensor], tracejit.Tensor]] = {
    "gelu": lambda x: F.gelu(x),
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "cross_entropy": lambda x: F.cross_entropy(x, classes),
    "layer_norm": lambda x: F.layer_norm(x, (COLUMNS,), scale, shift),
    "rms_norm": lambda x: F.rms_norm(x, (COLUMNS,), scale),
    "softmax along the first dimension": lambda x: F.softmax(x, 0),
}


def programs_of(function: Callable[[tracejit.Tensor], tracejit.Tensor], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The forward and the backward program of a compiled function of one matrix."""
    made: list[Any] = []
    build = executable.build

    def watched(*arguments: Any, **options: Any) -> Any:
        made.append(build(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(executable, "build", watched)
    function(numbers(ROWS, COLUMNS))  # eager mode imports what it needs
    compiled = tracejit.compile(function)
    for _ in range(2):
        x = numbers(ROWS, COLUMNS).requires_grad_()
        out = compiled(x)
        out.backward(tracejit.ones_like(out))
    assert compiled.stats.compiled_calls == 1, compiled.explain()
    forward, backward = made
    return [forward, backward]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_and_backward_are_at_most_two_passes_over_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in programs_of(FUNCTIONS[name], monkeypatch):
        traffic = program.lowered.traffic
        assert traffic.least >= 2 * 4 * ROWS * COLUMNS or name == "cross_entropy", "the matrix is read and written"
        assert traffic.ratio <= 2.01, program.describe()


@pytest.mark.parametrize("name", ["gelu by tanh", "softmax", "log_softmax", "cross_entropy", "rms_norm"])
def test_functions_of_rows_read_and_write_everything_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in programs_of(FUNCTIONS[name], monkeypatch):
        assert program.lowered.traffic.ratio <= 1.05, program.describe()


def test_a_value_and_its_gradient_are_one_pass() -> None:
    lowered = lower(value_and_gradients(gelu_chain, [f32(10_000)], [0]), {})
    assert len(lowered.text) == 1 and lowered.traffic.ratio == 1.0


def test_two_passes_are_seen_as_two() -> None:
    """The account of the bytes, on a function that no nest can hold: column sums are known after the last row."""
    x = tracejit.ones(ROWS, COLUMNS)
    compiled = tracejit.compile(lambda x: x / x.sum(0))
    compiled(x)
    compiled(x)
    assert "1.50 times the least" in compiled.explain(verbose=True)
