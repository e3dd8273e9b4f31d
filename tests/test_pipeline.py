"""The driver of the passes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter, process_time
from typing import Any

import pytest
from graph_programs import MLP_AVALS, f64, mlp, op

from tracejit.config import override
from tracejit.core.op import Kind
from tracejit.ir.graph import Graph
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import VerificationError
from tracejit.lowering.lower import lower
from tracejit.passes.partition import partition
from tracejit.passes.pipeline import FINAL, PREPARE, optimise, prepare, run_passes


def test_each_pass_stamps_the_history() -> None:
    graph = prepare(trace(lambda x: op("write", x, x * 1.0 + x * 1.0), (f64(3),)))
    done = optimise(graph)
    assert [line.partition(":")[0] for line in done.history] == [p.__name__ for p in (*PREPARE, *FINAL)]
    assert done.history[0].startswith("functionalise: 4 -> 3 nodes, ") and done.history[0].endswith(" ms")


def spoil(graph: Graph) -> Graph:
    return replace(graph, nodes=graph.nodes[::-1])


def test_verification_names_the_pass_that_broke_the_graph() -> None:
    graph = trace(mlp, MLP_AVALS)
    with pytest.raises(VerificationError) as caught:
        run_passes(graph, (spoil,), check=True)
    assert caught.value.__notes__ == ["after the pass spoil"]
    with override(verify=True), pytest.raises(VerificationError):
        run_passes(graph, (spoil,))
    with override(verify=False):
        run_passes(graph, (spoil,))


def test_outputs_that_come_to_share_memory_are_an_error_that_names_the_pass() -> None:
    graph = trace(
        lambda x: (y := x * 2.0, x * 2.0, op("reshape", y, shape=(4,)), op("reshape", x, shape=(4,)), op("clone", x)),
        (f64(2, 2),),
    )
    first, second, part, seen, copy = graph.outputs
    (x,) = graph.inputs

    def with_outputs(*outputs: object) -> Graph:
        def merge(graph: Graph) -> Graph:
            return replace(graph, outputs=outputs)  # type: ignore[arg-type]

        return run_passes(graph, (merge,), check=True)

    for outputs in ((first, first, part, seen, copy), (first, second, part, seen, x), (x, second, part, seen, copy)):
        with pytest.raises(VerificationError, match="come to share memory") as caught:
            with_outputs(*outputs)
        assert caught.value.__notes__ == ["after the pass merge"]
    with_outputs(first, second, part, seen, copy)
    with_outputs(first, second, first, x, copy)  # these did before


def test_optimising_drops_the_marks_of_gradients_and_keeps_inputs_and_outputs() -> None:
    graph = trace(lambda x, y: (x * 1.0 + y, y), (f64(3), f64(3)), (True, True))
    done = optimise(graph, check=True)
    assert not done.requires_grad
    assert done.inputs == graph.inputs
    assert [done.avals[v] for v in done.outputs] == [f64(3), f64(3)]


def test_passes_cost_microseconds_a_node() -> None:
    def program(x):  # type: ignore[no-untyped-def]
        for _ in range(200):
            x = op("tanh", x * 1.0 + x * 2.0)
        return op("write", x, x + 1.0)

    raw = trace(program, (f64(8),), (True,))
    start = perf_counter()
    split = partition(prepare(raw), (True,))
    optimise(split.forward)
    optimise(split.backward((True,), (True,)))
    assert (perf_counter() - start) / len(raw.nodes) < 2e-3  # a bound against quadratic passes, not a benchmark


KINDS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: op("tanh", a),
    lambda a, b: -a,
    lambda a, b: a + op("sum", a, dims=(1,), keepdim=True),
    lambda a, b: op("clone", op("permute", a, dims=(1, 0))),
    lambda a, b: a + b,
    lambda a, b: op("maximum", a, b),
    lambda a, b: op("matmul", a, b),
)


def aperiodic(steps: int) -> Graph:
    """A graph in which nothing repeats: dice choose the kind of each step, and the values that it reads."""
    dice = random.Random(steps)

    def program(x: Any) -> Any:
        live = [x] * 5
        for _ in range(steps):
            a, b = live.pop(dice.randrange(5)), dice.choice(live)
            live.append(dice.choice(KINDS)(a, b))
        return tuple(live)

    return trace(program, (f64(8, 8),))


def test_a_large_graph_in_which_nothing_repeats_is_searched_for_loops_in_no_time() -> None:
    graph = aperiodic(8_000)
    with override(verify=False):
        start = process_time()
        done = optimise(graph)
        seconds = process_time() - start
    assert len(graph.nodes) > 10_000 and not any(node.op.kind is Kind.LOOP for node in done.nodes)
    assert seconds < 1.0


def test_lowering_takes_as_long_for_each_node_of_a_large_graph_as_for_those_of_a_small_one() -> None:
    def seconds(graph: Graph) -> float:
        start = process_time()
        lower(graph, {})
        return (process_time() - start) / len(graph.nodes)

    with override(verify=False):
        small, large = (optimise(aperiodic(steps)) for steps in (500, 4_000))
        assert seconds(large) < 2.5 * min(seconds(small) for _ in range(3))  # a bound against quadratic parts, not a benchmark


def test_what_was_recorded_is_verified_always() -> None:
    graph = trace(lambda x: x * 2.0, (f64(3),))
    wrong = replace(graph, avals={**graph.avals, graph.outputs[0]: f64(4)})
    with override(verify=False), pytest.raises(VerificationError, match="its shape rule says"):
        prepare(wrong)
