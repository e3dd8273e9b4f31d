"""What goes on from an exit with what the trace that left has in memory (compiled/side_trace.py, runtime/frame.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit import nn, optim
from tracejit.capture.recording.entry import MISS, Exit
from tracejit.compiled import recorded_path
from tracejit.compiled.side_trace import Trace
from tracejit.config import override
from tracejit.cpython import c_api

HOT = 3
machine_code = pytest.mark.skipif(not c_api.supported(), reason="entries are interpreted on this Python")


@pytest.fixture(autouse=True)
def hot_soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(recorded_path, "_MIN_SAVED_ELEMENTS", 1)
    with override(hot_calls=HOT):
        yield


def network(branches: int) -> tuple[Callable[[Any], Any], list[Any]]:
    T.manual_seed(0)
    first, *layers = [nn.Linear(16, 16) for _ in range(2 * branches + 2)]

    def loss(x: Any) -> Any:
        hidden = first(x).tanh()
        for k in range(branches):
            hidden = (layers[2 * k] if hidden[0, k] > 0 else layers[2 * k + 1])(hidden).tanh()
        return layers[-1](hidden).pow(2).mean()

    return loss, [p for layer in (first, *layers) for p in layer.parameters()]


def inputs(count: int = 16) -> list[Any]:
    generator = np.random.default_rng(0)
    return [T.tensor(generator.normal(size=(4, 16)).astype(np.float32)) for _ in range(count)]


def sides(compiled: Any) -> list[Trace]:
    """All side traces, from those that lead on from root traces."""
    return [trace for path in compiled._table.paths for trace in path.traces[1:]]


def run_often(compiled: Any, calls: list[Any], times: int = 60) -> None:
    for _ in range(times):
        for x in calls:
            compiled(x)


@machine_code
@pytest.mark.parametrize("branches", [1, 2, 3])
def test_a_side_trace_computes_what_was_not_computed_and_gives_eagers_results(branches: int) -> None:
    loss, _ = network(branches)
    compiled, some = T.compile(loss), inputs()
    with T.no_grad():
        run_often(compiled, some)
        for x in some:
            np.testing.assert_allclose(compiled(x).item(), loss(x).item(), rtol=1e-5)
    found = sides(compiled)
    assert found, compiled.explain()
    for trace in found:
        graph = trace.executable.graph
        assert trace.size < len(graph.nodes)
        first_product = next(node for node in graph.nodes if node.op.name == "matmul")
        assert first_product.outputs[0] not in trace.program.lowered.outputs
        assert "matmul" in trace.program.describe()
        assert trace.program.describe().count("matmul") < trace.executable.program.describe().count("matmul")
    assert "a side trace computes" in compiled.explain(verbose=True)


@machine_code
def test_a_side_trace_of_a_side_trace_finds_what_both_have_left() -> None:
    loss, _ = network(2)
    compiled, some = T.compile(loss), inputs(32)
    with T.no_grad():
        run_often(compiled, some, 100)
    chained = [trace for trace in sides(compiled) if len(trace.paths) == 3]
    assert chained, compiled.explain()
    for trace in chained:
        assert trace.program.describe().count("matmul: reads") == 2  # the second branch's layer and the last one


@machine_code
def test_training_steps_along_side_traces_are_eagers() -> None:
    def trained(wrap: Callable[[Any], Any]) -> tuple[list[float], Any]:
        loss, parameters = network(2)
        optimizer = optim.Adam(parameters, lr=0.01)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            value = loss(x)
            value.backward()
            optimizer.step()
            return value.detach()

        run = wrap(step)
        return [run(x).item() for _ in range(25) for x in inputs()], run

    expected, _ = trained(lambda f: f)
    found, compiled = trained(T.compile)
    np.testing.assert_allclose(found, expected, rtol=2e-3)
    assert sides(compiled), compiled.explain()


@machine_code
def test_gradients_outside_of_the_call_are_those_of_the_path_that_ran() -> None:
    loss, parameters = network(1)
    compiled, some = T.compile(loss), inputs()
    for _ in range(60):
        for x in some:
            compiled(x).backward()
    assert all(trace.machine is not None for trace in sides(compiled))
    for x in some:
        gradients = []
        for function in (loss, compiled):
            for p in parameters:
                p.grad = None
            function(x).backward()
            gradients.append([None if p.grad is None else p.grad.numpy().copy() for p in parameters])
        for expected, found in zip(*gradients, strict=True):
            assert (expected is None) == (found is None)
            if expected is not None:
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


def metropolis(position: Any, scale: float) -> Any:
    """A step of a random walk that is accepted or not: what is proposed was computed where it is decided."""
    proposed = position + scale * T.randn(64)
    log_ratio = (position.pow(2).sum() - proposed.pow(2).sum()) / 2
    if T.rand(()).log() < log_ratio:
        return proposed, True
    return position * 1.0, False


@machine_code
def test_draws_before_an_exit_are_not_drawn_again() -> None:
    def chain(step: Callable[..., Any]) -> tuple[list[bool], Any]:
        T.manual_seed(3)
        position, accepted = T.zeros(64), []
        for _ in range(800):
            position, taken = step(position, 0.25)
            accepted.append(taken)
        return accepted, position

    compiled = T.compile(metropolis)
    expected, end = chain(metropolis)
    found, found_end = chain(compiled)
    assert found == expected and 100 < sum(expected) < 700
    np.testing.assert_allclose(found_end.numpy(), end.numpy(), rtol=1e-4, atol=1e-5)
    assert sides(compiled), compiled.explain()


def left_and_side(compiled: Any, calls: list[Any]) -> tuple[Any, Any, int]:
    """Machine code of a path, that of a side trace from it, and the exit in between."""
    with T.no_grad():
        run_often(compiled, calls, 300)
    for path in compiled._table.paths:
        for (number, _), side in path.traces[0].sides.items():
            if isinstance(side, Trace):
                return path.machine, side.machine, number
    raise AssertionError(compiled.explain())


@machine_code
def test_a_side_trace_refuses_memory_that_its_own_call_has_not_left() -> None:
    loss, _ = network(1)
    compiled, some = T.compile(loss), inputs()
    root, side, number = left_and_side(compiled, some)
    with T.no_grad():
        x = next(x for x in some if isinstance(root(x), Exit))
        other = next(y for y in some if not isinstance(root(y), Exit))
        answers = [f(x) for f in (root, side)]  # one position of one frame: the same call as far as the mark can tell
        assert answers[0].number == number
        np.testing.assert_allclose(answers[1].item(), loss(x).item(), rtol=1e-5)
        root(x)
        assert (None, None, side(x))[2] is MISS  # its arguments are elsewhere
        answers = [f(x) for f in (root, lambda x: (None, root(other)), side)]
        assert answers[2] is MISS  # another call has run there meanwhile
        np.testing.assert_allclose(compiled(x).item(), loss(x).item(), rtol=1e-5)


@machine_code
def test_a_side_trace_refuses_draws_of_a_generator_that_was_moved_on_meanwhile() -> None:
    compiled = T.compile(lambda x: metropolis(x, 0.25))
    T.manual_seed(0)
    calls = [T.zeros(64), T.full((64,), 0.1)]
    root, side, number = left_and_side(compiled, calls)
    with T.no_grad():
        for seed in range(50):
            T.manual_seed(seed)
            answers = [f(calls[0]) for f in (root, side)]
            if isinstance(answers[0], Exit):
                break
        assert answers[0].number == number and not isinstance(answers[1], Exit)
        T.manual_seed(seed)
        answers = [f(calls[0]) for f in (root, lambda x: T.rand(()), side)]
    assert isinstance(answers[0], Exit) and answers[2] is MISS


@machine_code
def test_paths_that_are_dropped_take_their_side_traces_with_them() -> None:
    loss, _ = network(2)
    compiled, some = T.compile(loss), inputs(32)
    with T.no_grad():
        run_often(compiled, some, 100)
        assert sides(compiled)
        gone = compiled._table.paths[0]
        for path in compiled._table.paths[1:]:
            path.unlink([gone])
        rest = compiled._table.paths[1:]
        for path in rest:
            for trace in path.traces:
                assert gone not in trace.paths
                assert all(bridge is not gone for _, bridge in trace.sides)
                assert all(taken.bridge is None for taken in trace.exits.values())
        for x in some:
            np.testing.assert_allclose(compiled(x).item(), loss(x).item(), rtol=1e-5)
        compiled.clear()
        assert not sides(compiled)
        np.testing.assert_allclose(compiled(some[0]).item(), loss(some[0]).item(), rtol=1e-5)


@machine_code
def test_a_side_trace_that_saves_little_is_not_made_and_explain_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_path, "_MIN_SAVED_ELEMENTS", 1 << 20)
    loss, _ = network(1)
    compiled = T.compile(loss)
    with T.no_grad():
        run_often(compiled, inputs())
    assert not sides(compiled)
    assert "no side trace: it would save" in compiled.explain(verbose=True)


@machine_code
def test_guards_about_numbers_are_asked_again_by_side_traces() -> None:
    weight = T.tensor(np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32))

    def function(x: Any) -> Any:
        hidden = (x @ weight).tanh()
        count = int((hidden > 0).sum())
        return hidden @ weight * [1.0, 2.0, 3.0][count % 3]

    compiled, some = T.compile(function), inputs(6)
    run_often(compiled, some, 200)
    for x in some:
        np.testing.assert_allclose(compiled(x).numpy(), function(x).numpy(), rtol=1e-5, atol=1e-6)
