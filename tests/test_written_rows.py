"""passes/written_rows.py: rows that are written one after the other are put together at once, and reads find what was written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as tj
from tests.graph_programs import arrays_for, f32, names, op
from tracejit.core.dtypes import float32
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes.memory import verify_memory
from tracejit.passes.written_rows import FEWEST, written_rows

SIZE, WIDTH = 12, 3


def checked(graph: Graph) -> Graph:
    """The graph after the pass, which gives the same bits, in memory that is shared with nothing more."""
    found = verify(written_rows(graph), functional=True)
    verify_memory(graph, found)
    inputs = arrays_for(graph)
    copies = [x.copy() if isinstance(x, np.ndarray) else x for x in inputs]
    for a, b in zip(interpret(found, inputs), interpret(graph, copies), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return found


def put(table: Any, row: Any, position: int, dim: int = 0) -> Any:
    return op("select_scatter", table, row, position, dim=dim)


def put_part(table: Any, part: Any, start: int, stop: int, dim: int = 0) -> Any:
    return op("slice_scatter", table, part, dim=dim, start=start, stop=stop, step=1)


def empty_table(*shape: int) -> Any:
    return op("full", 0.0, shape=shape, dtype=float32)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_rows_written_one_after_the_other_are_joined_at_once(backwards: bool, dim: int) -> None:
    def function(x: Any) -> Any:
        table = empty_table(*((SIZE, WIDTH) if dim == 0 else (WIDTH, SIZE)))
        for t in reversed(range(SIZE)) if backwards else range(SIZE):
            x = op("sin", x)
            table = put(table, x, t, dim)
        return table

    found = checked(trace(function, [f32(WIDTH)]))
    assert names(found).count("cat") == 1 and "select_scatter" not in names(found)


def test_a_row_that_is_read_again_is_what_was_written() -> None:
    def function(x: Any) -> Any:
        table = put(empty_table(SIZE, WIDTH), x, 0)
        for t in range(1, SIZE):
            table = put(table, op("sin", op("select", table, t - 1, dim=0)), t)
        return op("select", table, SIZE - 1, dim=0)

    found = checked(trace(function, [f32(WIDTH)]))
    assert set(names(found)) == {"sin", "reshape", "clone"}


def test_the_last_of_several_writes_counts_and_reads_find_the_one_before_them() -> None:
    def function(x: Any) -> Any:
        table, seen = empty_table(SIZE, WIDTH), []
        for t in range(2 * SIZE):
            seen.append(op("select", table, t % SIZE, dim=0))
            x = op("sin", x)
            table = put(table, op("add", x, seen[-1]), t % SIZE)
        return table, *seen

    assert "select_scatter" not in names(checked(trace(function, [f32(WIDTH)])))


def test_what_is_looked_at_as_a_whole_in_between_is_there() -> None:
    def function(x: Any) -> Any:
        table = empty_table(SIZE, WIDTH)
        for t in range(SIZE):
            table = put(table, op("sin", op("add", x, op("sum", table, dims=(0,), keepdim=False))), t)
        return table

    graph = trace(function, [f32(WIDTH)])
    assert written_rows(graph) is graph


def test_what_is_read_before_it_is_written_was_there_before() -> None:
    def function(x: Any) -> Any:
        table = empty_table(SIZE, WIDTH)
        for t in reversed(range(SIZE)):
            rest = op("sum", op("slice", table, dim=0, start=0, stop=t, step=1), dims=(0,), keepdim=False)
            x = op("add", op("sin", x), rest)
            table = put(table, x, t)
        return table

    checked(trace(function, [f32(WIDTH)]))


def test_parts_that_overlap_others_are_written_as_they_come() -> None:
    def function(x: Any) -> Any:
        table = empty_table(SIZE, WIDTH)
        for t in range(SIZE - 1):
            x = op("sin", x)
            table = put_part(table, x, t, t + 2)
        return table

    graph = trace(function, [f32(2, WIDTH)])
    assert written_rows(graph) is graph


def test_few_rows_of_an_input_are_written_where_they_lie() -> None:
    def writes(rows: int) -> Graph:
        def function(table: Any, x: Any) -> Any:
            for t in range(FEWEST):
                x = op("sin", x)
                table = put(table, x, t)
            return table

        graph = trace(function, [f32(rows, WIDTH), f32(WIDTH)])
        (new,) = graph.outputs
        assert isinstance(new, int)
        return Graph(graph.inputs, graph.avals, graph.nodes, (), graph.constants, ((graph.inputs[0], new),))

    few, most = writes(100 * FEWEST), writes(FEWEST + 1)
    assert written_rows(few) is few
    assert "cat" in names(written_rows(most))


Steps = st.lists(
    st.tuples(st.sampled_from(["row", "part", "read row", "read part"]), st.integers(0, SIZE - 1), st.integers(1, 3)), max_size=40
)


@settings(max_examples=150, deadline=None)
@given(Steps, st.booleans(), st.integers(0, 1))
def test_random_writes_and_reads_keep_their_bits(steps: list[tuple[str, int, int]], is_row_grid: bool, dim: int) -> None:
    def function(table: Any, x: Any) -> Any:
        found = []
        for what, position, length in steps:
            start = position if is_row_grid else position // length * length
            stop = min(start + (1 if is_row_grid else length), SIZE)
            part = {"dim": dim, "start": start, "stop": stop, "step": 1}
            if what == "row":
                x = op("sin", x)
                table = put(table, x, position, dim)
            elif what == "part":
                shape = (stop - start, WIDTH) if dim == 0 else (WIDTH, stop - start)
                row = op("reshape", x, shape=(1, WIDTH) if dim == 0 else (WIDTH, 1))
                table = op("slice_scatter", table, op("expand", row, shape=shape), **part)
            elif what == "read row":
                found.append(op("select", table, position, dim=dim))
                x = op("add", x, found[-1])
            else:
                read = op("slice", table, **part)
                found.append(op("permute", read, dims=(1, 0)))
        return table, x, *found

    checked(trace(function, [f32(SIZE, WIDTH) if dim == 0 else f32(WIDTH, SIZE), f32(WIDTH)]))


# -- programs
def path(x: Any) -> Any:
    out = tj.zeros(SIZE, WIDTH)
    for t in range(SIZE):
        x = (x * 0.9).sin() + 0.1
        out[t] = x
    return out.pow(2).sum()


def columns(x: Any) -> Any:
    out = tj.zeros(WIDTH, SIZE)
    for t in range(SIZE):
        x = x.cos()
        out[:, t] = x
    return out[:, 2:].sum() + out[0, 3]


def heat(x: Any) -> Any:
    u = tj.zeros(SIZE, 8)
    u[0, 2:5] = x
    for t in range(1, SIZE):
        u[t, 1:-1] = u[t - 1, 1:-1] + 0.1 * (u[t - 1, 2:] - 2 * u[t - 1, 1:-1] + u[t - 1, :-2])
    return (u * u).sum()


def pairs(x: Any) -> Any:
    out = tj.zeros(2 * SIZE, WIDTH)
    for t in range(SIZE):
        x = x.sin() + 0.3
        out[2 * t : 2 * t + 2] = x
    return out.mean()


def counted(x: Any) -> Any:
    out = tj.zeros(SIZE)
    for t in range(SIZE):
        x = x.sin()
        out[t] = x.sum()
        out[t] += 1.0
    return out.prod()


@pytest.mark.parametrize("function", [path, columns, heat, pairs, counted])
def test_programs_that_fill_a_tensor_have_eagers_values_and_gradients(function: Any) -> None:
    compiled = tj.compile(function)
    for seed in range(4):
        x = tj.tensor(np.random.default_rng(seed).normal(size=WIDTH).astype(np.float32), requires_grad=True)
        found = []
        for run in (function, compiled):
            x.grad = None
            value = run(x)
            value.backward()
            found.append((value.item(), x.grad.numpy().copy()))
        np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5)
        np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-4, atol=1e-6)
    assert compiled.stats.compiled_calls == 3, compiled.explain()


def test_hundreds_of_rows_written_at_positions_that_are_computed_are_compiled() -> None:
    positions = tj.arange(300)

    def function(x: Any) -> Any:
        out = tj.zeros(300, 2)
        for t in range(300):
            x = x * 0.99
            out[positions[t]] = x
        return out.sum()

    compiled = tj.compile(function)
    for k in range(4):
        x = tj.tensor([1.0, float(k)])
        np.testing.assert_allclose(compiled(x).item(), function(x).item(), rtol=1e-5)
    assert compiled.stats.compiled_calls == 2, compiled.explain()
