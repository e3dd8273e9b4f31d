"""Copies that memory asks for: where there is one, and where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.graph_programs import f32, f64, names, op
from tracejit.core.op import Kind
from tracejit.ir.graph import Body, Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.layouts import Strided
from tracejit.ir.loop import loop
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes.copies import copies
from tracejit.passes.memory import verify_memory


def copied(function: Callable[..., Any], *avals: Any, layouts: Any = None, kept: int = 0, targets: tuple[int, ...] = ()) -> Graph:
    """The graph with its copies, which verify, and leave the values of all outputs as they are."""
    graph = trace(function, avals)
    done = verify(copies(graph, layouts or {}, kept, targets), functional=True)
    verify_memory(graph, done)
    generator = np.random.default_rng(3)
    arrays = [generator.standard_normal(a.shape).astype(a.dtype.numpy) for a in avals]
    for a, b in zip(interpret(graph, arrays), interpret(done, arrays), strict=True):
        np.testing.assert_array_equal(a, b)
    return done


def test_a_view_that_memory_does_not_allow_is_one_of_a_copy() -> None:
    def flat(x: Any) -> Any:
        return op("reshape", op("permute", x, dims=(1, 0)), shape=(12,)) + 1.0

    assert names(copied(flat, f64(3, 4))) == ["permute", "clone", "reshape", "add"]
    assert names(copied(flat, f64(3, 4), layouts={0: (1, 3)})) == ["permute", "reshape", "add"]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x * 2.0, ["mul"]),
        (lambda x: x, []),
        (lambda x: op("reshape", x * 2.0, shape=(12,)), ["mul", "reshape"]),
        (lambda x: op("permute", x * 2.0, dims=(1, 0)), ["mul", "permute", "clone"]),
        (lambda x: op("reshape", x, shape=(12,)), ["reshape", "clone"]),
        (lambda x: (y := x * 2.0, op("reshape", y, shape=(12,))), ["mul", "reshape", "clone"]),
        (lambda x: (y := x * 2.0, y), ["mul"]),
    ],
)
def test_a_result_has_the_whole_memory_of_a_node_of_its_own(function: Callable[..., Any], expected: list[str]) -> None:
    assert names(copied(function, f64(3, 4))) == expected


def test_a_residual_that_is_a_result_or_an_input_is_a_copy() -> None:
    def function(x: Any, y: Any) -> Any:
        z = x * y
        return z, x + y, z, y

    done = copied(function, f64(3), f64(3), kept=2)
    assert names(done) == ["mul", "add", "clone", "clone"]
    assert len(set(done.outputs)) == 4


def test_what_writes_read_of_each_other_is_copied_first() -> None:
    done = copied(lambda x, y: (y, x), f64(3), f64(3), targets=(0, 1))
    assert names(done) == ["clone", "clone"]
    assert names(copied(lambda x, y: (x, y + 1.0), f64(3), f64(3), targets=(0, 1))) == ["add"]


def test_gemm_reads_its_operands_in_place_or_copies() -> None:
    def function(x: Any, y: Any) -> Any:
        return op("matmul", x, op("slice", y, dim=1, start=0, stop=16, step=2))

    assert names(copied(function, f32(8, 8), f32(8, 16))) == ["slice", "clone", "matmul"]
    assert names(copied(lambda x, y: op("matmul", x, op("permute", y, dims=(1, 0))), f32(8, 8), f32(8, 8))) == [
        "permute",
        "matmul",
    ]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, c: op("matmul_add", x, x, c * 2.0), ["mul", "matmul_add"]),
        (lambda x, c: op("matmul_add", x, x, c), ["clone", "matmul_add"]),
        (lambda x, c: (d := c * 2.0, op("matmul_add", x, x, d)), ["mul", "clone", "matmul_add"]),
        (lambda x, c: op("matmul_add", x, x, d := c * 2.0) + d, ["mul", "clone", "matmul_add", "add"]),
        (lambda x, c: op("matmul_add", x, x, op("permute", c * 2.0, dims=(1, 0))), ["mul", "permute", "clone", "matmul_add"]),
    ],
)
def test_a_product_is_added_only_to_what_nothing_else_reads(function: Callable[..., Any], expected: list[str]) -> None:
    assert names(copied(function, f32(8, 8), f32(8, 8))) == expected


def looped(step: Callable[..., Any], avals: Any, count: int = 6) -> Callable[..., Any]:
    """A function whose loop carries its first operand and shares the others with all steps."""
    body = Body(trace(step, avals))
    return lambda *xs: loop(0).of(*xs, body=body, carried=1, sliced=0, count=count, reverse=False)[0]


def turned(x: Any) -> Any:
    return op("permute", x, dims=(1, 0))


def times_turned(h: Any, w: Any) -> Any:
    return op("tanh", op("matmul", h, turned(w)))


def times(h: Any, w: Any) -> Any:
    return op("tanh", op("matmul", h, w))


ROWS, WIDTH = 32, 48
GIVEN = (f64(ROWS, WIDTH), f64(WIDTH, WIDTH))


def strides_of_shared(graph: Graph) -> tuple[int, ...]:
    """Of the matrix that the steps of the loop of a graph share."""
    strided: dict[int, Strided] = {}
    copies(graph, {}, strided=strided)
    (loop,) = [node for node in graph.nodes if node.op.kind is Kind.LOOP]
    return strided[loop.operands[1]].strides  # type: ignore[index]


def test_a_matrix_that_steps_would_read_transposed_is_copied_once_before_the_loop() -> None:
    done = copied(looped(times_turned, GIVEN), *GIVEN)
    assert sorted(names(done)) == ["clone", "clone", "loop0", "permute", "permute"]
    assert strides_of_shared(done) == (1, WIDTH)  # so that its transpose lies row by row
    transposed_outside = copied(lambda h, w: looped(times, GIVEN)(h, turned(w)), *GIVEN)
    assert sorted(names(transposed_outside)) == ["clone", "clone", "loop0", "permute"]
    assert strides_of_shared(transposed_outside) == (WIDTH, 1)


def twice(h: Any, w: Any) -> Any:
    return op("tanh", op("matmul", op("matmul", h, w), turned(w)))


def scaled(h: Any, w: Any) -> Any:
    return op("mul", h, op("tanh", op("matmul", turned(w), h)))


@pytest.mark.parametrize(
    ("step", "given", "count"),
    [
        (times, GIVEN, 6),  # read as it lies
        (twice, GIVEN, 6),  # read both ways
        (times_turned, (f64(4, WIDTH), GIVEN[1]), 6),  # a small product
        (times_turned, GIVEN, 1),  # one step
        (scaled, (f64(WIDTH, WIDTH), GIVEN[1]), 6),  # the first operand
    ],
)
def test_other_matrices_of_loops_stay_where_they_are(step: Callable[..., Any], given: Any, count: int) -> None:
    done = copied(looped(step, given, count), *given)
    assert names(done) == ["clone", "loop0"]  # what is carried is copied, since it is an input
