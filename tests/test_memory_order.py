"""`config.memory_limit`: more of a program is done twice until its temporary memory fits, with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit.config import config, override
from tracejit.lowering.peak import Peak

ROWS, NARROW, WIDE, LAYERS = 64, 64, 1024, 4


def gradients(limit: int | None) -> tuple[Peak, list[bytes], Any]:
    """The peak of a step of some layers, its results, and the compiled function."""
    rng = np.random.default_rng(0)
    x = tracejit.tensor(rng.normal(size=(ROWS, NARROW)).astype(np.float32))
    shapes = [(NARROW, WIDE), (WIDE, NARROW)] * LAYERS
    weights = [tracejit.tensor(rng.normal(size=s).astype(np.float32) / s[0] ** 0.5, requires_grad=True) for s in shapes]

    @tracejit.compile
    def step(x: Any, *weights: Any) -> Any:
        for widen, narrow in zip(weights[::2], weights[1::2], strict=True):
            x = x + tracejit.tanh(x @ widen) @ narrow
        return tracejit.autograd.grad(x.square().sum(), weights)

    with override(memory_limit=limit):
        for _ in range(2):
            results = step(x, *weights)
    (executable,) = step.stats.executables
    return executable.program.lowered.peak, [r.numpy().tobytes() for r in results], step


@pytest.fixture(scope="module")
def without_limit() -> tuple[Peak, list[bytes], Any]:
    return gradients(None)


def test_a_program_keeps_to_a_limit_that_is_possible(without_limit: tuple[Peak, list[bytes], Any]) -> None:
    usual, expected, _ = without_limit
    limit = usual.nbytes * 3 // 4
    peak, results, step = gradients(limit)
    assert peak.nbytes <= limit and peak.beyond == 0
    assert results == expected
    assert any(" again" in text for text in step.stats.executables[0].program.lowered.text)
    text = step.explain(verbose=True)
    assert f"memory_limit of {limit} bytes is kept" in text and "more than memory_limit" not in text


def test_a_limit_that_is_not_possible_is_told_and_no_error(without_limit: tuple[Peak, list[bytes], Any]) -> None:
    usual, expected, _ = without_limit
    peak, results, step = gradients(1000)
    assert peak.nbytes < usual.nbytes and peak.beyond == peak.nbytes - 1000
    assert results == expected
    assert any("matmul again" in text for text in step.stats.executables[0].program.lowered.text)
    assert f"memory_limit of 1000 bytes is not kept: the program needs {peak.beyond} bytes more" in step.explain(verbose=True)
    assert f"{peak.beyond} more than memory_limit allows" in " ".join(step.explain().split())


def test_a_limit_that_is_large_enough_changes_nothing(without_limit: tuple[Peak, list[bytes], Any]) -> None:
    usual, expected, step = without_limit
    peak, results, limited = gradients(usual.nbytes)
    assert peak.nbytes == usual.nbytes and results == expected
    texts = [s.stats.executables[0].program.lowered.text for s in (step, limited)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("limit", [0, -5])
def test_a_limit_is_a_positive_number(limit: int) -> None:
    with (
        pytest.raises(ValueError, match=f"expected a positive number of bytes, or None, got {limit}"),
        override(memory_limit=limit),
    ):
        pass
    assert config.memory_limit is None


def test_a_limit_is_an_integer() -> None:
    with pytest.raises(TypeError, match=r"expected int \| None, got 1.5"), override(memory_limit=1.5):
        pass
