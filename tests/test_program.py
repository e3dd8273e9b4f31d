"""Programs of all backends against the oracle, and the contract of `run`: exits, commits, frames, slabs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph_programs import f32, f64, gelu_chain, i64, layer_norm, op, softmax, total
from tests.nest_programs import cross_entropy, inputs_for, sgd_step, value_and_gradients
from tests.random_graphs import random_graph
from tracejit.core import dtypes
from tracejit.core.aval import ScalarAval
from tracejit.ir.builder import rebuild
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.lowering.exits import exit_codes
from tracejit.runtime.debug import plan, step_times
from tracejit.runtime.program import BACKENDS, Program, build
from tracejit.runtime.slab import pack, unpack

MACHINE = ("llvm", "reference")


def layouts_of(graph: Graph, inputs: list[Any]) -> dict[int, tuple[int, ...]]:
    return {
        v: tuple(s // x.itemsize for s in x.strides)
        for v, x in zip(graph.inputs, inputs, strict=True)
        if isinstance(x, np.ndarray)
    }


def split(inputs: list[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    arrays = tuple(x for x in inputs if isinstance(x, np.ndarray))
    return arrays, tuple(x for x in inputs if not isinstance(x, np.ndarray))


def run(graph: Graph, inputs: list[Any], backend: str = "llvm") -> Any:
    return build(graph, layouts_of(graph, inputs), backend=backend).run(*split(inputs))


def assert_close(actual: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected)
        return
    finite = np.abs(expected[np.isfinite(expected)])
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5 * max(finite.max(initial=0.0), 1e-3))


def assert_like_oracle(graph: Graph, inputs: list[Any], backend: str = "llvm") -> None:
    """Outputs and written inputs are those of the interpreter."""
    copies = [x.copy() if isinstance(x, np.ndarray) else x for x in inputs]
    expected = interpret(graph, copies)
    found = run(graph, inputs, backend)
    assert isinstance(found, tuple), f"exit {found}"
    for actual, wanted in zip(found, expected, strict=True):
        assert_close(actual, wanted)
    for actual, wanted in zip(inputs, copies, strict=True):
        if isinstance(wanted, np.ndarray):
            assert_close(actual, wanted)


@given(st.integers(0, 1 << 40))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("backend", MACHINE)
def test_random_graphs_equal_the_oracle(backend: str, seed: int) -> None:
    with np.errstate(all="ignore"):
        assert_like_oracle(*random_graph(seed), backend)


@given(st.integers(0, 1 << 40))
@settings(max_examples=40, deadline=None)
def test_machine_code_and_reference_agree_to_the_bit(seed: int) -> None:
    assert_equal_bits(seed, MACHINE)


@given(st.integers(0, 1 << 40))
@settings(max_examples=8, deadline=None)
def test_machine_code_and_functions_of_numba_agree_to_the_bit(seed: int) -> None:
    assert_equal_bits(seed, ("llvm", "numba"))


def assert_equal_bits(seed: int, backends: tuple[str, ...]) -> None:
    graph, inputs = random_graph(seed)
    if any(node.op.name == "matmul" for node in graph.nodes):
        return  # which gemm runs is no part of the nests
    results = []
    for backend in backends:
        own = [x.copy(order="K") if isinstance(x, np.ndarray) else x for x in inputs]
        results.append((*run(graph, own, backend), *split(own)[0]))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


MODELS = {
    "gelu chain": lambda n: value_and_gradients(gelu_chain, [f32(n)], [0]),
    "softmax of layer norm": lambda n: value_and_gradients(
        lambda x, w: total(softmax(layer_norm(x)) * w), [f32(3, n), f32(3, n)], [0]
    ),
    "cross entropy": lambda n: value_and_gradients(cross_entropy, [f32(n, 3), i64(n)], [0]),
    "training step": lambda n: sgd_step(n, 7, 5, 3),
}


# It takes half a second to compile a nest by Numba, which makes the same of all sizes but 1.
@pytest.mark.parametrize(("backend", "n"), [(b, n) for b in BACKENDS for n in ((1, 17) if b == "numba" else (1, 3, 17, 40))])
@pytest.mark.parametrize("model", MODELS)
def test_models_equal_the_oracle(model: str, backend: str, n: int) -> None:
    graph = MODELS[model](n)
    assert_like_oracle(graph, inputs_for(graph), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [1, 4])
def test_sums_of_products_equal_the_oracle(backend: str, rows: int) -> None:
    def recurrence(h: Any, x: Any, w: Any, u: Any) -> Any:
        for _ in range(3):
            h = op("tanh", x @ u + h @ w)
        return total(h * h)

    graph = value_and_gradients(recurrence, [f32(rows, 5), f32(rows, 4), f32(5, 5), f32(4, 5)], [0, 2, 3])
    assert_like_oracle(graph, inputs_for(graph), backend)
    batched = trace(lambda a, b, c: (a @ b + b @ c) + c @ a, [f32(2, 3, 4, 4)] * 3)
    assert_like_oracle(batched, inputs_for(batched), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tiny_products_equal_the_oracle_in_any_layout(backend: str) -> None:
    def products(a: Any, b: Any, c: Any) -> Any:
        turned = op("permute", b, dims=(0, 2, 1))
        part = op("slice", c, dim=1, start=0, stop=6, step=2)
        return a @ b, turned @ part, (b @ a) + b @ turned, total(b @ op("select", a, 1, dim=0))

    graph = trace(products, [f64(6, 3, 3), f64(6, 3, 3), f64(6, 6, 4)])
    assert_like_oracle(graph, inputs_for(graph), backend)


def test_a_long_softmax_keeps_its_exponentials() -> None:
    graph = trace(softmax, [f32(2, 5000)])
    assert_like_oracle(graph, inputs_for(graph))


def test_a_long_sum_is_at_least_as_accurate_as_numpy() -> None:
    x = np.full(1_000_000, 0.1, np.float32)
    (found,) = run(trace(total, [f32(1_000_000)]), [x])
    assert abs(float(found) - x.sum(dtype=np.float64)) <= abs(float(x.sum()) - x.sum(dtype=np.float64)) + 1e-2


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_come_with_the_call(backend: str) -> None:
    graph = trace(lambda x, s, k: x * s + k, [f32(5), ScalarAval(float), ScalarAval(int)])
    x = np.arange(5, dtype=np.float32)
    program = build(graph, {}, backend=backend)
    for s, k in ((0.1, 2), (-3.5, -7)):
        assert_close(program.run((x,), (s, k))[0], x * np.float32(s) + np.float32(k))


def test_a_number_without_64_bits_is_refused() -> None:
    program = build(trace(lambda x, k: x + k, [i64(3), ScalarAval(int)]), {})
    assert program.run((np.zeros(3, np.int64),), (1 << 70,)) == 0
    assert isinstance(program.run((np.zeros(3, np.int64),), (1,)), tuple)


def guarded(limit: float) -> Graph:
    def function(x: Any, y: Any) -> Any:
        op("guard", total(x) > limit, expected=Literal(True))
        op("guard", total(y), expected=Literal(6.0))
        return x + y

    graph = trace(function, [f32(3), f32(3)])
    (out,) = graph.outputs
    return rebuild(graph, graph.nodes, writes=((graph.inputs[0], out),))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_guard_is_its_number_and_leaves_user_storage_untouched(backend: str) -> None:
    program = build(guarded(10.0), {}, backend=backend)
    y = np.array([1, 2, 3], np.float32)
    for x, z, expected in (
        (np.ones(3, np.float32), y, 1),
        (np.full(3, 9, np.float32), y + 1, 2),
    ):
        before = x.copy()
        assert program.run((x, z), ()) == expected
        np.testing.assert_array_equal(x, before)
    x = np.full(3, 9, np.float32)
    assert isinstance(program.run((x, y), ()), tuple)
    np.testing.assert_array_equal(x, [10, 11, 12])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("expected", "value", "passes"),
    [
        (0.0, 0.0, True),
        (0.0, -0.0, False),
        (float("nan"), np.nan, True),
        (True, 2.0, True),
        (False, np.nan, False),
        (1.5, 1.25, False),
    ],
)
def test_guards_compare_numbers_by_bits_and_bools_by_truth(backend: str, expected: Any, value: float, passes: bool) -> None:
    graph = trace(lambda x: (op("guard", x, expected=Literal(expected)), x + 1.0)[1], [f32()])
    found = build(graph, {}, backend=backend).run((np.full((), value, np.float32),), ())
    assert isinstance(found, tuple) == passes


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [-1, 4, 1 << 40])
@pytest.mark.parametrize("name", ["gather", "index_select", "index_add", "scatter_add", "scatter"])
def test_an_index_out_of_range_is_an_exit_before_anything_is_written(name: str, bad: int, backend: str) -> None:
    def function(x: Any, index: Any) -> Any:
        if name == "gather":
            return op("gather", x, index, dim=0)
        if name == "index_select":
            return op("index_select", x, index, dim=0)
        return op(name, x, index, x + 1.0, dim=0)

    graph = trace(function, [f32(4), i64(4)])
    (out,) = graph.outputs
    graph = rebuild(graph, graph.nodes, writes=((graph.inputs[0], out),))
    x, index = np.arange(4, dtype=np.float32), np.array([3, 0, bad, 1])
    found = build(graph, {}, backend=backend).run((x, index), ())
    (node,) = (n for n in graph.nodes if n.op.name == name)
    assert found == exit_codes(graph)[id(node)]
    np.testing.assert_array_equal(x, np.arange(4))


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_metadata_is_refused(backend: str) -> None:
    program = build(trace(lambda x: x + 1.0, [f32(4, 3)]), {0: (3, 1)}, backend=backend)
    x = np.zeros((4, 3), np.float32)
    assert isinstance(program.run((x,), ()), tuple)
    for other in (x.astype(np.float64), x[:3], np.asfortranarray(x), x.reshape(12), x.reshape(3, 4)):
        assert program.run((other,), ()) == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_written_array_that_overlaps_another_is_refused(backend: str) -> None:
    graph = trace(lambda x, y: x + y, [f32(4), f32(4)])
    graph = rebuild(graph, graph.nodes, outputs=(), writes=((graph.inputs[0], graph.outputs[0]),))
    memory = np.zeros(8, np.float32)
    program = build(graph, {}, backend=backend)
    assert program.run((memory[:4], memory[2:6]), ()) == 0
    assert program.run((memory[:4], memory[4:]), ()) == ()


@pytest.mark.parametrize("backend", BACKENDS)
def test_outputs_that_are_inputs_or_listed_twice_are_the_same_array(backend: str) -> None:
    graph = trace(lambda x: (x, y := x + 1.0, y), [f32(3)])
    x = np.zeros(3, np.float32)
    first, second, third = build(graph, {}, backend=backend).run((x,), ())
    assert first is x
    if backend != "interpret":
        assert second is third


@pytest.mark.parametrize("backend", MACHINE)
def test_outputs_are_fresh_and_row_major(backend: str) -> None:
    graph = trace(lambda x: (op("permute", x, dims=(1, 0)), op("full", 1.0, shape=(2,), dtype=dtypes.float32)), [f32(3, 4)])
    program = build(graph, {}, backend=backend)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    a, b = program.run((x,), ()), program.run((x,), ())
    assert a[0].flags.c_contiguous
    assert not np.shares_memory(a[0], x)
    assert not np.shares_memory(a[1], b[1])


@pytest.mark.parametrize("backend", MACHINE)
def test_two_inputs_can_swap_their_contents(backend: str) -> None:
    graph = trace(lambda x, y: (x, y), [f32(3), f32(3)])
    x, y = graph.inputs
    graph = rebuild(graph, graph.nodes, outputs=(), writes=((x, y), (y, x)))
    a, b = np.zeros(3, np.float32), np.ones(3, np.float32)
    assert build(graph, {}, backend=backend).run((a, b), ()) == ()
    assert a.tolist() == [1, 1, 1]
    assert b.tolist() == [0, 0, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_residuals_travel_in_a_slab(backend: str) -> None:
    forward = trace(lambda x: (x + 1.0, op("exp", x), op("sin", op("cast", x, dtype=dtypes.float64))), [f32(5)])
    x = np.linspace(0, 1, 5, dtype=np.float32)
    residuals = [v for v in forward.outputs[1:] if isinstance(v, int)]
    y, slab = build(forward, {}, slab_outputs=residuals, backend=backend).run((x,), ())
    e, s = unpack([f32(5), f64(5)], slab)
    assert_close(e, np.exp(x))
    assert_close(s, np.sin(x.astype(np.float64)))
    backward = trace(lambda g, e, s: g * e + op("cast", s, dtype=dtypes.float32), [f32(5), f32(5), f64(5)])
    program = build(backward, {}, slab_inputs=backward.inputs[1:], backend=backend)
    (d,) = program.run((y, pack([f32(5), f64(5)], [e, s])), ())
    assert_close(d, y * e + s.astype(np.float32))


@pytest.mark.parametrize("backend", MACHINE)
def test_a_residual_that_is_an_output_or_an_input_too_is_in_both_places(backend: str) -> None:
    graph = trace(lambda x: (y := op("exp", x), y, x), [f32(5)])
    x = np.linspace(0, 1, 5, dtype=np.float32)
    y, slab = build(graph, {}, slab_outputs=[v for v in graph.outputs[1:] if isinstance(v, int)], backend=backend).run((x,), ())
    in_slab = unpack([f32(5), f32(5)], slab)
    np.testing.assert_array_equal(in_slab[0], y)
    np.testing.assert_array_equal(in_slab[1], x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_host_steps_run_between_machine_segments(backend: str) -> None:
    def function(x: Any) -> Any:
        y = op("exp", x)
        order = op("argsort", y, dim=0, descending=False)
        return op("gather", y, order, dim=0) * 2.0, order, x + 1.0

    graph = trace(function, [f32(1000)])
    x = np.random.default_rng(0).permutation(1000).astype(np.float32) / 100
    program = build(graph, {}, backend=backend)
    doubled, order, moved = program.run((x,), ())
    assert_close(doubled, np.exp(np.sort(x)) * 2)
    assert_close(order, np.argsort(x))
    assert_close(moved, x + 1)
    assert program.machine_calls == (0 if backend == "interpret" else 2)


def test_one_call_into_machine_code_without_host_steps() -> None:
    assert build(sgd_step(4, 6, 5, 3), {}).machine_calls == 1


def test_threads_and_reentrant_calls_have_frames_of_their_own() -> None:
    graph = trace(lambda x: softmax(layer_norm(x)), [f32(40, 40)])
    program = build(graph, {})
    inputs = [np.random.default_rng(k).standard_normal((40, 40)).astype(np.float32) for k in range(4)]
    expected = [program.run((x,), ())[0] for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(200):
            if not np.array_equal(program.run((inputs[k],), ())[0], expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_an_unknown_backend_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown backend 'gpu'"):
        build(trace(lambda x: x + 1.0, [f32(3)]), {}, backend="gpu")


def test_source_and_description_tell_what_runs() -> None:
    program = build(sgd_step(4, 6, 5, 3), {})
    assert "def nest" in program.source()
    assert "matmul: reads" in program.describe() and "times the least" in program.describe()


def test_step_times_name_every_step_and_leave_the_right_results() -> None:
    graph = sgd_step(4, 6, 5, 3)
    program = build(graph, {})
    assert isinstance(program, Program)
    arrays, scalars = split(inputs_for(graph))
    times = step_times(program.lowered, arrays, scalars, rounds=1)
    assert [text for text, _ in times] == list(program.lowered.text)
    assert all(0 < t < 1e6 for _, t in times)
    expected = inputs_for(graph)
    interpret(graph, expected)
    for actual, wanted in zip(arrays, split(expected)[0], strict=True):
        assert_close(actual, wanted)
    assert "slot 1: input float32[4, 6]" in plan(program.lowered)
