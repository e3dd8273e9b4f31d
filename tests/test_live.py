"""What is in the arena of a program at its exits, and programs that find values there (lowering/live.py)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph_programs import f32, op
from tests.random_graphs import random_graph
from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY
from tracejit.cpython import c_api
from tracejit.ir.builder import rebuild
from tracejit.ir.graph import Graph, Literal, Node
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.lowering.exits import exit_codes
from tracejit.lowering.live import NOTHING_LIVE, Inherited, ValueLocation, live
from tracejit.runtime.program import Program, build

machine_code = pytest.mark.skipif(not c_api.supported(), reason="entries are interpreted on this Python")


def array_at(memory: Any, location: ValueLocation, aval: Any) -> Any:
    strides = [step * aval.dtype.itemsize for step in location.strides]
    return np.ndarray(aval.shape, aval.dtype.numpy, memory, location.offset, strides)


def left_early(graph: Graph, choose: random.Random) -> Graph | None:
    """The graph with a guard that fails in the midst of its nodes; None where it has nothing to guard."""
    usual = {v: k for k, node in enumerate(graph.nodes) for v in node.outputs}
    found = [v for v in usual if isinstance(aval := graph.avals[v], Aval) and aval.size and aval.dtype.is_floating_point]
    if not found:
        return None
    v, first = choose.choice(found), max(graph.avals) + 1
    aval, avals, nodes = graph.avals[v], dict(graph.avals), list(graph.nodes)
    number, nodes_of_guard = v, []
    if aval.shape:
        number, avals[first] = first, Aval((), aval.dtype)
        attributes = (("dims", tuple(range(len(aval.shape)))), ("keepdim", False))
        nodes_of_guard.append(Node(REGISTRY["amax"], (v,), attributes, (first,)))
    nodes_of_guard.append(Node(REGISTRY["guard"], (number,), (("expected", Literal(1234.5)),), ()))
    location = choose.randint(usual[v] + 1, len(nodes))
    return rebuild(graph, [*nodes[:location], *nodes_of_guard, *nodes[location:]], avals=avals)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 20))
def test_values_that_are_live_at_an_exit_are_in_memory_then(seed: int) -> None:
    plain, inputs = random_graph(seed, steps=20)
    graph = left_early(plain, random.Random(seed))
    if graph is None:
        return
    layouts = {
        v: tuple(s // x.itemsize for s in x.strides)
        for v, x in zip(graph.inputs, inputs, strict=True)
        if isinstance(x, np.ndarray)
    }
    program = build(graph, layouts)
    if not isinstance(program, Program):
        return
    arrays = tuple([x for x in inputs if isinstance(x, np.ndarray)])
    number = program.run(arrays, tuple([x for x in inputs if not isinstance(x, np.ndarray)]))
    guard = next(node for node in graph.nodes if node.op.name == "guard")
    if number != exit_codes(graph)[id(guard)]:  # an index that is out of range comes before
        return
    (frame,) = program._code._free
    memory = frame.temporary(program.lowered.arena_bytes)
    for v, location in program.lowered.live.at(number).items():
        aval = graph.avals[v]
        (expected,) = interpret(
            replace(plain, outputs=(v,), writes=()), [x.copy() if isinstance(x, np.ndarray) else x for x in inputs]
        )
        np.testing.assert_allclose(array_at(memory, location, aval), expected, rtol=2e-5, atol=2e-5)


def test_what_was_computed_before_an_exit_is_live_there_and_what_comes_later_is_not() -> None:
    def function(x: Any, w: Any) -> Any:
        hidden = op("tanh", op("matmul", x, w))
        op("guard", op("select", op("select", hidden, 0, dim=0), 0, dim=0) > 5.0, expected=Literal(True))
        return op("exp", op("matmul", hidden, w))

    graph = trace(function, [f32(4, 16), f32(16, 16)])
    program = build(graph, {})
    assert isinstance(program, Program)
    names = {v: node.op.name for node in graph.nodes for v in node.outputs}
    found = {names[v] for v in program.lowered.live.at(1)}
    assert "tanh" in found and "exp" not in found
    later = next(v for v, name in reversed(names.items()) if name == "matmul")
    assert later not in program.lowered.live.at(1)


def test_a_program_reads_what_it_inherits_where_that_lies() -> None:
    graph = trace(lambda x, y: (op("matmul", x, y), op("add", y, 1.0)), [f32(3, 4), f32(4, 5)])
    x, y = graph.inputs
    memory = np.zeros(1024, np.uint8)
    generator = np.random.default_rng(0)
    given_x, given_y = (generator.normal(size=shape).astype(np.float32) for shape in ((3, 4), (4, 5)))
    locations = {y: ValueLocation(64, (1, 8))}  # a column after the other
    array_at(memory, locations[y], graph.avals[y])[...] = given_y
    program = build(graph, {}, inherited=[Inherited(memory.size, locations)])
    product, more = program.run((given_x, memory), ())  # type: ignore[misc]
    np.testing.assert_allclose(product, given_x @ given_y, rtol=1e-5)
    np.testing.assert_array_equal(more, given_y + 1)
    assert program.run((given_x, memory[:-1]), ()) == 0  # a memory of another size
    assert x not in locations


@pytest.mark.parametrize("backend", ["interpret", "reference", "numba"])
def test_only_machine_code_inherits_memory(backend: str) -> None:
    graph = trace(lambda x: op("exp", x), [f32(3)])
    with pytest.raises(ValueError, match=f"a program of the backend {backend} inherits no memory"):
        build(graph, {}, backend=backend, inherited=[Inherited(64, {graph.inputs[0]: ValueLocation(0, (1,))})])


Range = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda ends: (min(ends), max(ends)))


@given(st.lists(st.lists(Range, max_size=3), min_size=1, max_size=6), st.data())
def test_a_value_is_live_at_an_exit_if_its_bytes_are_those_that_its_step_wrote(written: Any, data: Any) -> None:
    made: dict[int, tuple[int, int, int]] = {}
    for k, ranges in enumerate(written):
        for start, end in ranges:
            if start < end and not any(own == k and start < stop and begin < end for own, begin, stop in made.values()):
                made[len(made)] = k, start, end
    written = [[(start, end) for own, start, end in made.values() if own == k] for k in range(len(written))]
    steps = {number: data.draw(st.integers(0, len(written) - 1)) for number in (1, 2)}
    found = live(steps, written, {v: [(v, ValueLocation(start, ()))] for v, (_, start, _) in made.items()}, made)
    for number, step in steps.items():
        expected = {
            v for v, (own, start, end) in made.items()
            if own < step and not any(a < end and start < b for later in written[own + 1 : step + 1] for a, b in later)
        }  # fmt: skip
        assert found.at(number).keys() == expected
        assert found.before(number) == {other for other, at in steps.items() if at < step}
    assert found.at(3) == {}


def test_nothing_is_live_where_there_are_no_exits() -> None:
    assert NOTHING_LIVE.at(1) == {} and NOTHING_LIVE.before(1) == frozenset()
