"""What is read long after it was made, and made of one value by few operations, is computed again where it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_programs import f64, names, op

import tracejit
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.lowering import read_again as module
from tracejit.lowering.read_again import read_again

SIZE = 96  # 72 KB: large enough
SQUARE = f64(SIZE, SIZE)


def derivatives(h: Any) -> list[Any]:
    """Some values made of one."""
    t = op("tanh", h)
    square = op("mul", t, t)
    return [t, square, op("sub", 1.0, square), op("mul", square, h), op("add", square, t)]


def read_late(x: Any, w: Any) -> Any:
    h = op("matmul", x, w)
    made = derivatives(h)
    late = op("matmul", op("add", made[0], made[1]), w)
    for each in made:
        late = op("mul", late, each)
    return late


def read_at_once(x: Any, w: Any) -> Any:
    made = derivatives(op("matmul", x, w))
    return op("matmul", op("mul", made[0], op("mul", made[1], op("mul", made[2], op("mul", made[3], made[4])))), w)


def one_read_late(x: Any, w: Any) -> Any:
    """To keep the product for it would be no less."""
    t = op("tanh", op("matmul", x, w))
    return op("mul", op("matmul", op("mul", t, 2.0), w), t)


def computed(function: Callable[..., Any], size: int = SIZE) -> tuple[list[str], list[str]]:
    """The names of nodes before and after; the results are the same bits, and the graph is in order."""
    graph = trace(function, [f64(size, size)] * 2)
    result = read_again(graph)
    verify(result, functional=True)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((size, size)) for _ in range(2)]
    given[0][0, :4] = np.nan, np.inf, -0.0, 1e300
    before, after = (interpret(g, given) for g in (graph, result))
    assert [x.tobytes() for x in before] == [x.tobytes() for x in after]
    return names(graph), names(result)


def test_values_read_beyond_a_product_are_made_again_of_what_they_are_made_of() -> None:
    before, after = computed(read_late)
    assert before.count("tanh") == 1 and after.count("tanh") == 2
    assert after.index("matmul", after.index("matmul") + 1) < len(after) - 1 - after[::-1].index("tanh"), (
        "just before they are read"
    )


@pytest.mark.parametrize("function", [read_at_once, one_read_late])
def test_what_is_read_at_once_or_would_save_little_stays(function: Callable[..., Any]) -> None:
    before, after = computed(function)
    assert before == after


def test_small_values_stay() -> None:
    before, after = computed(read_late, size=16)
    assert before == after


def test_a_compiled_step_gives_the_same_bits_and_needs_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = tracejit.tensor(rng.standard_normal((128, 32)).astype(np.float32))
    weights = [tracejit.tensor(rng.standard_normal(s).astype(np.float32), requires_grad=True) for s in ((32, 512), (512, 32))]

    def step(x: Any, *weights: Any) -> Any:
        y = tracejit.nn.functional.gelu(x @ weights[0], approximate="tanh") @ weights[1]
        return tracejit.autograd.grad(y.square().sum(), weights)

    arenas, results = [], []
    for least in (1 << 60, module.LEAST_BYTES):
        monkeypatch.setattr(module, "LEAST_BYTES", least)
        compiled = tracejit.compile(lambda *given: step(*given))
        for _ in range(2):
            given = compiled(x, *weights)
        (executable,) = compiled.stats.executables
        arenas.append(executable.program.lowered.arena_bytes)
        results.append([g.numpy().tobytes() for g in given])
    assert results[0] == results[1]
    assert arenas[1] < 0.7 * arenas[0], arenas
