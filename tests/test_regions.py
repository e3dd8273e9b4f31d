"""Writes to a part of an input: which ones leave the rest alone, and that all of them do what the whole contents would."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.graph_programs import f32, op
from tracejit.config import override
from tracejit.core.aval import ScalarAval
from tracejit.ir.builder import rebuild
from tracejit.ir.graph import Graph
from tracejit.ir.tracer import trace
from tracejit.lowering.regions import partial_writes
from tracejit.runtime.program import build

ROWS = 6


def row(x: Any, y: Any, i: Any) -> Any:
    return op("select_scatter", x, y * 2.0, i, dim=0)


def two_rows(x: Any, y: Any, i: Any) -> Any:
    return op("select_scatter", op("select_scatter", x, y, i, dim=0), y + 1.0, 2, dim=0)


def part_of_a_row(x: Any, y: Any, i: Any) -> Any:
    line = op("select", x, i, dim=0)
    part = op("slice", y, dim=0, start=0, stop=2, step=1)
    return op("select_scatter", x, op("slice_scatter", line, part, dim=0, start=1, stop=3, step=1), i, dim=0)


def a_row_of_what_was_there(x: Any, y: Any, i: Any) -> Any:
    return op("select_scatter", x, op("select", x, i, dim=0) + y, i, dim=0)


def a_row_of_another_row(x: Any, y: Any, i: Any) -> Any:
    return op("select_scatter", x, op("select", x, 1, dim=0), i, dim=0)


def the_diagonal_of_columns(x: Any, y: Any, i: Any) -> Any:
    square = op("slice", x, dim=0, start=0, stop=3, step=1)
    return op("slice_scatter", x, op("diagonal_scatter", square, y, offset=0, dim1=0, dim2=1), dim=0, start=0, stop=3, step=1)


def rows_that_are_read_in_between(x: Any, y: Any, i: Any) -> Any:
    first = op("select_scatter", x, y, i, dim=0)
    return op("select_scatter", first, op("select", first, 1, dim=0) * 2.0, 2, dim=0)


PARTIAL = [row, two_rows, part_of_a_row, a_row_of_what_was_there, a_row_of_another_row, the_diagonal_of_columns]


def written(function: Any) -> Graph:
    graph = trace(function, [f32(ROWS, 3), f32(3), ScalarAval(int)])
    (value,) = graph.outputs
    assert isinstance(value, int)
    return rebuild(graph, graph.nodes, outputs=(), writes=((graph.inputs[0], value),))


@pytest.mark.parametrize("function", PARTIAL, ids=lambda f: f.__name__)
def test_what_is_scattered_to_an_input_goes_there_alone(function: Any) -> None:
    graph, regions = partial_writes(written(function))
    assert all(region is not None for region in regions) and len(regions) == len(graph.writes)
    assert not any(node.op.name.endswith("_scatter") for node in graph.nodes)


@pytest.mark.parametrize("backend", ["llvm", "reference", "interpret"])
@pytest.mark.parametrize("strides", [(3, 1), (1, ROWS), (8, 2)])
@pytest.mark.parametrize("function", [*PARTIAL, rows_that_are_read_in_between], ids=lambda f: f.__name__)
def test_an_input_holds_what_its_whole_contents_would_be(function: Any, strides: tuple[int, int], backend: str) -> None:
    graph = written(function)
    program = build(graph, {graph.inputs[0]: strides}, backend=backend)
    for index in (0, 4, ROWS - 1):
        memory = np.arange(64, dtype=np.float32)
        x = np.ndarray((ROWS, 3), np.float32, memory, 0, tuple(4 * s for s in strides))
        y, rest = np.array([10.0, 20.0, 30.0], np.float32), memory.copy()
        expected = np.array(_eager(function, x.copy(), y, index))
        inside = np.ndarray(x.shape, np.float32, rest, 0, x.strides)
        inside[...] = expected
        assert program.run((x, y), (index,)) == ()
        assert (memory == rest).all()


def _eager(function: Any, x: Any, y: Any, i: int) -> Any:
    return function(T.tensor(x), T.tensor(y), i).numpy()


@pytest.mark.parametrize("backend", ["llvm", "reference"])
@pytest.mark.parametrize("function", [row, two_rows, part_of_a_row], ids=lambda f: f.__name__)
def test_a_position_out_of_range_is_an_exit_before_anything_is_written(function: Any, backend: str) -> None:
    program = build(written(function), {}, backend=backend)
    for index in (-1, ROWS, 2**62, -(2**62)):
        x = np.zeros((ROWS, 3), np.float32)
        assert type(program.run((x, np.ones(3, np.float32)), (index,))) is int
        assert not x.any()


def test_a_row_of_a_large_buffer_costs_a_row() -> None:
    buffer = T.zeros(20000, 8)

    def put(i: int, y: T.Tensor) -> None:
        buffer[i] += y
        buffer[i - 1, 2] = 5.0

    compiled = T.compile(put)
    for i in range(1, 5):
        compiled(i, T.ones(8))
    assert compiled.stats.compiled_calls == 3 and compiled.stats.traces == 1
    found = re.search(r"reads (\d+) bytes, writes (\d+)", compiled.explain(verbose=True))
    assert found is not None and int(found[2]) < 1000
    assert buffer[:6, 2].tolist() == [5.0, 5.0, 5.0, 5.0, 1.0, 0.0] and buffer[1:5, 3].tolist() == [1.0] * 4


class Ring:
    """Where experience is kept."""

    def __init__(self) -> None:
        self.states = T.zeros(5, 2)
        self.rewards, self.done = T.zeros(5), T.zeros(5, dtype=T.bool)
        self.position, self.full = 0, False

    def push(self, state: T.Tensor, reward: float, done: bool) -> None:
        self.states[self.position] = state
        self.rewards[self.position] = reward
        self.done[self.position] = done
        self.full = self.full or self.position + 1 == 5
        self.position = (self.position + 1) % 5


@pytest.mark.parametrize("hot_calls", [0, 1])
def test_a_ring_buffer_is_one_path_and_one_for_each_way_through_its_program(hot_calls: int) -> None:
    def run(compiling: Any) -> tuple[list[Any], Any]:
        ring = Ring()
        push = compiling(lambda *row: ring.push(*row))
        seen = []
        for i in range(18):
            push(T.ones(2) * i, i * 0.5, i % 3 == 0)
            seen.append((ring.states.tolist(), ring.rewards.tolist(), ring.done.tolist(), ring.position, ring.full))
        return seen, push

    with override(hot_calls=hot_calls):
        expected, _ = run(lambda function: function)
        actual, compiled = run(T.compile)
    assert actual == expected and compiled.stats.traces == 5  # done or not, full or not, and the last place


def test_positions_that_move_are_read_and_written_from_either_end() -> None:
    buffer = T.arange(12.0).reshape(4, 3)

    def change(i: int, j: int, y: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        before = buffer[i, j] * 2
        buffer[:, j] += y
        buffer[i][j] = -1.0
        return before, buffer[i]

    def run(function: Any) -> list[Any]:
        buffer.copy_(T.arange(12.0).reshape(4, 3))
        seen = []
        for i, j in [(0, 1), (3, 2), (1, 0), (-1, 2), (-3, 1), (2, -1), (2, 1)]:
            before, view = function(i, j, T.ones(4) * i)
            view.mul_(1.5)  # it is a view of the buffer
            seen.append((before.item(), view.tolist(), buffer.tolist()))
        return seen

    compiled, expected = T.compile(change), run(change)
    assert run(compiled) == expected == run(compiled)
    assert compiled.stats.traces == 3  # both from the start, one of them from the end


def test_an_index_that_is_out_of_range_raises_what_eager_raises() -> None:
    buffer = T.zeros(4)

    def put(i: int) -> None:
        buffer[i] = i + 1.0

    compiled = T.compile(put)
    for i in range(4):
        compiled(i)
    for i in (4, -5, 2**40):
        with pytest.raises(IndexError, match=f"index {i} is out of bounds"):
            compiled(i)
    compiled(2)
    assert buffer.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_gradients_flow_through_positions_that_move() -> None:
    w = T.tensor(np.arange(12.0).reshape(4, 3), requires_grad=True)

    def inside(i: int, x: T.Tensor) -> Any:
        table = T.zeros(4, 3, dtype=T.float64)
        table[i] = w[i - 1] * x
        table[i].mul_(2)
        (table * table).sum().backward()
        return table

    def outside(i: int, x: T.Tensor) -> Any:
        table = T.zeros(4, 3, dtype=T.float64)
        table[i] = w[i - 1] * x
        table[i].mul_(2)
        return (table * table).sum() + table[i - 2].sum()

    def run(function: Any, own: bool) -> list[Any]:
        seen = []
        for i in (2, 3, 2, 3, 1, 2):
            w.grad = None
            out = function(i, T.tensor([1.0, 2.0, 3.0], dtype=T.float64))
            if not own:
                out.backward()
            assert w.grad is not None
            seen += [out.detach().sum().item(), *w.grad.flatten().tolist()]
        return seen

    for function, own in ((inside, True), (outside, False)):
        compiled = T.compile(function)
        np.testing.assert_allclose(run(compiled, own), run(function, own))
        assert compiled.stats.compiled_calls >= 2
