"""ir/loop.py: a body that is applied so many times means the same to the interpreter, to all renderings, and written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph_programs import f32, f64, i64, names, op
from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY
from tracejit.ir.builder import rebuild
from tracejit.ir.graph import Body, Graph, Literal
from tracejit.ir.interpreter import GuardFailed, interpret
from tracejit.ir.loop import loop
from tracejit.ir.printer import parse, to_text
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import VerificationError, verify
from tracejit.lowering.exits import exit_codes, node_code, of_step
from tracejit.passes.dce import dce
from tracejit.passes.loops import loops
from tracejit.passes.pipeline import OF_BODIES, optimise
from tracejit.runtime.program import BACKENDS, build

COUNT = 5


def looped(
    step: Callable[..., Any],
    avals: list[Aval],
    carried: int,
    sliced: int,
    kept: bool = False,
    reverse: bool = False,
    count: int = COUNT,
) -> Graph:
    """A graph of one loop.  avals: of the step's operands."""
    body = Body(trace(step, avals))
    given = [
        Aval((count, *a.shape), a.dtype) if carried <= k < carried + sliced else a for k, a in enumerate(avals)
    ]  # its slices, stacked

    def function(*operands: Any) -> Any:
        attributes = {"body": body, "carried": carried, "sliced": sliced, "count": count, "reverse": reverse}
        return loop(carried if kept else 0).of(*operands, **attributes)

    return trace(function, given)


def arrays(graph: Graph, seed: int = 0) -> list[Any]:
    """Contents for its inputs; float inputs of three dimensions lie in memory otherwise than they are read."""
    generator, found = np.random.default_rng(seed), []
    for v in graph.inputs:
        aval: Any = graph.avals[v]
        array = generator.normal(size=aval.shape) if aval.dtype.is_floating_point else generator.integers(-9, 9, aval.shape)
        found.append(array.astype(aval.dtype.numpy))
    return found


def run_everywhere(
    graph: Graph, layouts: dict[int, tuple[int, ...]] | None = None, given: list[Any] | None = None
) -> tuple[Any, ...]:
    """The interpreter's outputs, after all backends have given the same."""
    inputs = arrays(graph) if given is None else given
    expected = interpret(verify(graph, functional=True), inputs)
    for backend in BACKENDS:
        found = build(optimise(graph), layouts or {}, backend=backend).run(tuple(inputs), ())
        assert not isinstance(found, int), (backend, found)
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=backend)
    return expected


def cell(h: Any, x: Any, w: Any) -> tuple[Any, Any]:
    h = op("tanh", op("add", op("matmul", h, w), x))
    return h, op("mul", h, 2.0)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_a_loop_is_its_steps_one_after_the_other(kept: bool, reverse: bool) -> None:
    graph = looped(cell, [f64(1, 3), f64(1, 3), f64(3, 3)], 1, 1, kept, reverse)
    h, xs, w = arrays(graph)
    *history, end, collected = run_everywhere(graph)
    for i in reversed(range(COUNT)) if reverse else range(COUNT):
        if kept:
            assert np.array_equal(history[0][i], h)
        h = np.tanh(h @ w + xs[i])
        assert np.allclose(collected[i], 2 * h)
    assert np.allclose(end, h)


def test_what_is_carried_may_go_elsewhere_stay_or_be_collected_as_it_is() -> None:
    def step(a: Any, b: Any, k: Any, n: Any, x: Any, s: Any) -> tuple[Any, ...]:
        turned = op("permute", x, dims=(1, 0))
        return b, op("add", a, x), k, op("add", n, 1), a, x, s, k, turned, turned, op("select", x, 0, dim=0)

    avals = [f32(2, 2), f32(2, 2), f32(3), i64(), f32(2, 2), f32(4)]
    for kept in (False, True):
        for reverse in (False, True):
            run_everywhere(looped(step, avals, 4, 1, kept, reverse))


def test_slices_and_shared_operands_are_read_where_they_lie() -> None:
    graph = looped(cell, [f32(2, 3), f32(2, 3), f32(3, 3)], 1, 1, True)
    h, xs, w = arrays(graph)
    strided = np.zeros((2, 2 * COUNT, 3), np.float32)[:, ::2].transpose(1, 0, 2)
    strided[...] = xs
    layouts = {graph.inputs[1]: tuple(s // 4 for s in strided.strides), graph.inputs[2]: (1, 3)}
    run_everywhere(graph, layouts, [h, strided, np.asfortranarray(w)])


def test_a_loop_in_a_loop_and_two_after_one_another() -> None:
    inner = Body(trace(cell, [f32(1, 3), f32(1, 3), f32(3, 3)]))
    attributes = {"body": inner, "carried": 1, "sliced": 1, "count": 4}

    def step(h: Any, xs: Any, w: Any) -> tuple[Any, Any]:
        h, ys = loop(0).of(h, xs, w, reverse=False, **attributes)
        return h, op("sum", ys, dims=(0,), keepdim=False)

    body = Body(trace(step, [f32(1, 3), f32(4, 1, 3), f32(3, 3)]))

    def twice(h: Any, xs: Any, w: Any) -> Any:
        h, first = loop(0).of(h, xs, w, body=body, carried=1, sliced=1, count=COUNT, reverse=False)
        return *loop(1).of(h, xs, w, body=body, carried=1, sliced=1, count=COUNT, reverse=True), first

    run_everywhere(trace(twice, [f32(1, 3), f32(COUNT, 4, 1, 3), f32(3, 3)]))


def test_constants_temporaries_and_reductions_of_a_body_have_memory_of_the_program() -> None:
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        rows = op("sum", op("exp", op("mul", x, 0.1)), dims=(1,), keepdim=True)
        order = op("add", REGISTRY["arange"].beside(h, 0.0, 1.0, length=4, dtype=f32().dtype), rows)
        return op("add", op("matmul", h, op("matmul", x, h)), order), op("amax", order, dims=(0,), keepdim=False)

    run_everywhere(looped(step, [f32(4, 4), f32(4, 4)], 1, 1, True))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_random_bodies_mean_the_same_everywhere(data: st.DataObject) -> None:
    shape = (2, 3)

    def step(*operands: Any) -> tuple[Any, ...]:
        pool = list(operands)
        for _ in range(data.draw(st.integers(1, 6))):
            x, y = (pool[data.draw(st.integers(0, len(pool) - 1))] for _ in range(2))
            pool.append(
                {
                    0: lambda x, y: op("add", x, y), 1: lambda x, y: op("mul", op("tanh", x), y), 2: lambda x, y: op("neg", x),
                    3: lambda x, y: op("add", x, op("sum", y, dims=(1,), keepdim=True)), 4: lambda x, y: op("flip", x, dims=(1,)),
                    5: lambda x, y: op("permute", op("permute", op("sin", x), dims=(1, 0)), dims=(1, 0)),
                }[data.draw(st.integers(0, 5))](x, y)
            )  # fmt: skip
        return tuple(
            [pool[data.draw(st.integers(0, len(pool) - 1))] for _ in range(data.draw(st.integers(carried, carried + 2)))]
        )

    carried, sliced, shared = (data.draw(st.integers(0, 2)) for _ in range(3))
    if carried + sliced + shared == 0:
        shared = 1
    kept, reverse = data.draw(st.booleans()), data.draw(st.booleans())
    graph = looped(
        step, [f64(*shape)] * (carried + sliced + shared), carried, sliced, kept, reverse, data.draw(st.integers(1, 4))
    )
    inputs = arrays(graph)
    expected = interpret(verify(graph, functional=True), inputs)
    found = build(optimise(graph), {}).run(tuple(inputs), ())
    assert not isinstance(found, int)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-300)


def test_a_printed_loop_is_read_back() -> None:
    graph = looped(cell, [f32(1, 3), f32(1, 3), f32(3, 3)], 1, 1, True)
    assert parse(to_text(graph)).equals(graph)


def test_a_loop_whose_operands_do_not_fit_its_body_is_refused() -> None:
    def refused(h: Aval, xs: Aval, w: Aval, step: Any = cell) -> None:
        body = Body(trace(step, [f32(1, 3), f32(1, 3), f32(3, 3)]))
        trace(lambda *x: loop(0).of(*x, body=body, carried=1, sliced=1, count=COUNT, reverse=False), [h, xs, w])

    with pytest.raises(ValueError, match=r"loop: the body takes .*, got"):
        refused(f32(1, 3), f32(COUNT + 1, 1, 3), f32(3, 3))
    with pytest.raises(ValueError, match="loop: the body takes"):
        refused(f32(1, 3), f32(COUNT, 1, 3), f64(3, 3))
    with pytest.raises(ValueError, match="loop: the body carries on"):
        refused(f32(1, 3), f32(COUNT, 1, 3), f32(3, 3), lambda h, x, w: (w, h))
    broken = trace(cell, [f32(1, 3), f32(1, 3), f32(3, 3)])
    broken = Graph(broken.inputs, broken.avals, broken.nodes[1:], broken.outputs)
    graph = looped(cell, [f32(1, 3), f32(1, 3), f32(3, 3)], 1, 1)
    (node,) = graph.nodes
    attributes = tuple([(name, Body(broken) if name == "body" else value) for name, value in node.attributes])
    with pytest.raises(VerificationError):
        verify(Graph(graph.inputs, graph.avals, (type(node)(node.op, node.operands, attributes, node.outputs),), graph.outputs))


def test_what_nothing_reads_is_neither_kept_nor_collected() -> None:
    def step(h: Any, x: Any) -> tuple[Any, ...]:
        return op("add", h, x), op("exp", x), op("sin", h)

    def function(h: Any, xs: Any) -> Any:
        body = Body(trace(step, [f32(3), f32(3)]))
        _, end, _, sines = loop(1).of(h, xs, body=body, carried=1, sliced=1, count=COUNT, reverse=False)
        return op("add", end, op("sum", sines, dims=(0,), keepdim=False))

    graph = trace(function, [f32(3), f32(COUNT, 3)])
    reduced = loops(graph, OF_BODIES)
    node = next(node for node in reduced.nodes if "body" in node.attrs)
    assert node.op is loop(0) and len(node.outputs) == 2 and names(node.attrs["body"].graph) == ["add", "sin"]
    inputs = arrays(graph)
    assert np.array_equal(interpret(graph, inputs)[0], interpret(verify(reduced, functional=True), inputs)[0])
    assert names(optimise(graph)) == ["loop0", "sum", "add"]


def test_loops_of_any_length_are_the_same_machine_code_but_for_their_length() -> None:
    def text(count: int) -> str:
        program: Any = build(looped(cell, [f32(1, 3), f32(1, 3), f32(3, 3)], 1, 1, count=count), {})
        return str(program.llvm())

    short, long = text(7), text(1000)
    assert len(short.splitlines()) == len(long.splitlines())
    differing = [pair for pair in zip(short.splitlines(), long.splitlines(), strict=True) if pair[0] != pair[1]]
    assert len(differing) == 1 and "icmp slt" in differing[0][0]


# -- steps that may leave
def below(limit: float) -> Callable[[Any, Any], Any]:
    """A step of a running sum that is guarded."""

    def step(h: Any, x: Any) -> Any:
        h = op("add", h, x)
        op("guard", op("lt", h, limit), expected=Literal(True))
        return h

    return step


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_guard_of_a_step_leaves_the_program_with_the_number_of_the_step(backend: str, reverse: bool) -> None:
    plain = looped(below(10.0), [f32(), f32()], 1, 1, reverse=reverse)
    (end,) = plain.outputs
    graph = rebuild(plain, plain.nodes, outputs=(), writes=((plain.inputs[0], end),))  # type: ignore[arg-type]
    (node,) = graph.nodes
    program, code = build(graph, {}, backend=backend), exit_codes(graph)[id(node)]
    for step in range(COUNT):
        h, xs = np.zeros((), np.float32), np.ones(COUNT, np.float32)
        xs[COUNT - 1 - step if reverse else step] = 20.0
        number = program.run((h, xs), ())
        assert number == of_step(code, step) and node_code(number) == code  # type: ignore[arg-type]
        assert h == 0.0
        with pytest.raises(GuardFailed):
            interpret(graph, [h, xs])
    h = np.zeros((), np.float32)
    assert program.run((h, np.ones(COUNT, np.float32)), ()) == () and h == COUNT


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_loops_of_loops_the_number_is_that_of_the_inner_step(backend: str) -> None:
    body = Body(trace(below(10.0), [f32(), f32()]))

    def outer(h: Any, xs: Any) -> Any:
        return loop(0).of(h, xs, body=body, carried=1, sliced=1, count=3, reverse=False)

    graph = looped(outer, [f32(), f32(3)], 1, 1)
    program, code = build(graph, {}, backend=backend), exit_codes(graph)[id(graph.nodes[0])]
    xs = np.zeros((COUNT, 3), np.float32)
    xs[2, 1] = 20.0
    assert program.run((np.zeros((), np.float32), xs), ()) == of_step(code, 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_index_out_of_range_leaves_the_loop_although_nothing_reads_the_element(backend: str) -> None:
    def step(h: Any, k: Any, table: Any) -> Any:
        op("gather", table, op("reshape", k, shape=(1,)), dim=0)
        return op("sin", h)

    graph = looped(step, [f32(), i64(), f32(4)], 1, 1)
    unread = rebuild(graph, graph.nodes, outputs=())
    assert dce(unread) is unread
    program, code = build(unread, {}, backend=backend), exit_codes(unread)[id(unread.nodes[0])]
    places = np.array([0, 1, 2, 7, 3])
    arguments = np.zeros((), np.float32), places, np.zeros(4, np.float32)
    assert program.run(arguments, ()) == of_step(code, 3)
    places[3] = 3
    assert program.run(arguments, ()) == ()


def test_the_numbers_of_sizes_are_those_of_no_node() -> None:
    assert node_code(7) == 7 and node_code(of_step(7, 3)) == 7 and node_code(7 + 9 * ((1 << 48) + 5)) == 0
