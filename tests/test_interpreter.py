"""The NumPy interpreter: what a graph means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_programs import MLP_AVALS, arrays_for, f32, f64, gelu_chain, i64, mlp, op, total

from tracejit.core import dtypes
from tracejit.core.aval import ScalarAval
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.interpreter import GuardFailed, interpret
from tracejit.ir.tracer import trace
from tracejit.passes.pipeline import prepare


def test_an_mlp_is_what_numpy_computes() -> None:
    graph = trace(mlp, MLP_AVALS)
    x, w1, b1, w2, b2 = arrays = arrays_for(graph)
    (result,) = interpret(graph, arrays)
    out = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    np.testing.assert_array_equal(result, (out * out).sum())


def test_python_numbers_are_weak() -> None:
    graph = trace(lambda x, s: (x * 0.1, x * s, x + 1), (f32(3), ScalarAval(float)))
    x = np.array([0.3, 1.0, 3.0], np.float32)
    for result, expected in zip(interpret(graph, [x, 0.1]), (x * 0.1, x * 0.1, x + 1), strict=True):
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, expected)


def test_integers_wrap_and_floats_do_not_warn() -> None:
    graph = trace(lambda i, x: (i * i, 1.0 / x, op("log", x - 1.0)), (i64(1), f64(1)))
    with np.errstate(all="raise"):
        square, infinite, nan = interpret(graph, [np.array([2**40]), np.zeros(1)])
    assert square[0] == 0 and infinite[0] == np.inf and np.isnan(nan[0])


def test_writes_of_a_raw_graph_reach_memory_through_views_in_program_order() -> None:
    def program(x: Any) -> tuple[Any, ...]:
        row = op("select", x, 1, dim=0)
        before = row * 1.0
        op("write", row, row + 10.0)
        op("write", op("permute", x, dims=(1, 0)), op("permute", x, dims=(1, 0)) * 2.0)
        return before, row

    x = np.arange(6.0).reshape(2, 3)
    before, row = interpret(trace(program, (f64(2, 3),)), [x])
    np.testing.assert_array_equal(before, [3.0, 4.0, 5.0])
    np.testing.assert_array_equal(x, [[0.0, 2.0, 4.0], [26.0, 28.0, 30.0]])
    assert np.shares_memory(row, x)


def test_committed_writes_happen_at_the_end_and_all_at_once() -> None:
    graph = trace(lambda x, y: (x + y, x), (f64(2), f64(2)))
    swap = Graph(graph.inputs, graph.avals, graph.nodes, graph.outputs, writes=((0, 1), (1, 0)))
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    added, old = interpret(swap, [x, y])
    np.testing.assert_array_equal(x, [3.0, 4.0])
    np.testing.assert_array_equal(y, [1.0, 2.0])
    np.testing.assert_array_equal(added, [4.0, 6.0])
    np.testing.assert_array_equal(old, [1.0, 2.0])


def guarded(x: Any) -> Any:
    op("guard", op("any", x > 0, dims=(0,), keepdim=False), expected=Literal(True))
    op("guard", total(x), expected=Literal(3.0))
    return op("write", x, x + 1.0)


@pytest.mark.parametrize(("values", "index"), [([1.0, 2.0], None), ([-1.0, -2.0], 0), ([1.0, 3.0], 1)])
def test_the_first_guard_that_fails_is_named_and_nothing_is_committed(values: list[float], index: int | None) -> None:
    graph = prepare(trace(guarded, (f64(2),)))
    x = np.array(values)
    if index is None:
        interpret(graph, [x])
        np.testing.assert_array_equal(x, [2.0, 3.0])
        return
    with pytest.raises(GuardFailed) as caught:
        interpret(graph, [x])
    assert caught.value.index == index
    np.testing.assert_array_equal(x, values)


def test_a_guard_on_a_bool_takes_the_truth_of_a_number_and_one_on_a_number_its_bits() -> None:
    def guard(expected: Any, dtype: dtypes.DType) -> Graph:
        return trace(lambda x: op("guard", op("cast", x, dtype=dtype), expected=Literal(expected)), (f64(),))

    interpret(guard(True, dtypes.float64), [np.array(7.0)])
    interpret(guard(float("nan"), dtypes.float64), [np.array(np.nan)])
    interpret(guard(7, dtypes.int64), [np.array(7.0)])
    for expected, dtype in ((0.0, dtypes.float64), (7.0, dtypes.int64), (False, dtypes.int64)):
        with pytest.raises(GuardFailed):
            interpret(guard(expected, dtype), [np.array(-0.0 if expected == 0.0 and expected is not False else 7.0)])


def test_inputs_that_do_not_fit_are_refused() -> None:
    graph = trace(lambda x, s: x * s, (f32(3), ScalarAval(float)))
    good = np.zeros(3, np.float32)
    for arguments, error in (
        ([good], TypeError),
        ([good, 1], TypeError),
        ([[0.0] * 3, 1.0], TypeError),
        ([np.zeros(4, np.float32), 1.0], ValueError),
        ([np.zeros(3), 1.0], ValueError),
    ):
        with pytest.raises(error, match="interpret"):
            interpret(graph, arguments)  # type: ignore[arg-type]


def test_errors_on_data_are_those_of_the_operation() -> None:
    graph = trace(lambda x, i: op("index_select", x, i, dim=0), (f32(3), i64(1)))
    with pytest.raises(IndexError, match="out of range"):
        interpret(graph, [np.zeros(3, np.float32), np.array([3])])


def test_an_op_that_contradicts_its_shape_rule_is_caught() -> None:
    graph = trace(gelu_chain, (f32(4),))
    lying = Graph(graph.inputs, {**graph.avals, graph.nodes[3].outputs[0]: f32(5)}, graph.nodes, graph.outputs)
    with pytest.raises(AssertionError, match="shape rule"):
        interpret(lying, [np.zeros(4, np.float32)])


def test_constants_are_not_shared_with_outputs() -> None:
    table = np.ones(3)
    graph = trace(lambda x: op("reshape", op("permute", x + table, dims=(0,)), shape=(3,)), (f64(3),))
    interpret(graph, [np.zeros(3)])
    np.testing.assert_array_equal(table, np.ones(3))
