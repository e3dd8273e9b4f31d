"""Dead code, common subexpressions, exact algebra: what goes, what must stay, and that the bits stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_programs import f32, f64, i64, names, op, total
from hypothesis import given, settings
from hypothesis import strategies as st

from tracejit.core import dtypes
from tracejit.core.aval import Aval, ScalarAval
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes.algebra import algebra
from tracejit.passes.cse import cse
from tracejit.passes.dce import dce
from tracejit.passes.pipeline import optimise

ODD = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-310])


def left_of(function: Callable[..., Any], *avals: Any) -> list[str]:
    """Names of the nodes that algebra and dead code leave of function(...) + -0.0."""
    graph = trace(lambda *xs: function(*xs) + -0.0, avals)
    simple = verify(dce(algebra(verify(graph))), functional=True)
    assert names(simple)[-1] == "add"
    return names(simple)[:-1]


def test_unused_nodes_go_and_needed_ones_stay_in_order() -> None:
    def program(x: Any) -> Any:
        op("exp", x)
        y = op("sin", x)
        op("cos", y)
        return op("tanh", y)

    assert names(dce(trace(program, (f32(3),)))) == ["sin", "tanh"]


def test_guards_writes_and_operations_that_can_raise_are_never_dead() -> None:
    def program(x: Any, i: Any) -> tuple[()]:
        op("guard", total(x), expected=Literal(1.0))
        op("index_select", x, i, dim=0)
        op("write", x, x * 2.0)
        return ()

    graph = trace(program, (f64(3), i64(2)))
    assert dce(graph) is graph


def test_the_values_of_commits_are_alive() -> None:
    graph = trace(lambda x: (op("exp", x), op("sin", x)), (f64(3),))
    committed = Graph(graph.inputs, graph.avals, graph.nodes, (), writes=((0, 2),))
    assert names(dce(committed)) == ["sin"]


def test_equal_nodes_are_computed_once() -> None:
    def program(x: Any) -> Any:
        return op("exp", x * 2.0) + op("exp", x * 2.0) * op("exp", x * 2)

    graph = cse(trace(program, (f64(3),)))
    assert names(graph) == ["mul", "exp", "mul", "exp", "mul", "add"]  # 2 and 2.0 are different literals


def test_attributes_and_signs_of_zero_distinguish_nodes() -> None:
    def program(x: Any) -> Any:
        sums = op("sum", x, dims=(0,), keepdim=True) + op("sum", x, dims=(1,), keepdim=True)
        return sums + op("maximum", x, 0.0) + op("maximum", x, -0.0)

    graph = trace(program, (f64(3, 3),))
    assert cse(graph) is graph


def test_two_outputs_stay_two_tensors() -> None:
    graph = optimise(trace(lambda x: (x * 2.0, x * 2.0, x * 1.0, op("acc", None, x)), (f64(3),)))
    assert len(set(graph.outputs)) == 4
    assert set(graph.outputs).isdisjoint(graph.inputs)


def test_outputs_that_are_views_never_come_to_share_memory() -> None:
    """reshape(x * 1) is a tensor of its own, and so are two reshapes of two equal sums."""

    def program(x: Any) -> tuple[Any, ...]:
        return tuple(op("reshape", y, shape=(4,)) for y in (x * 1.0, x + x, x + x, op("clone", x)))

    x = np.ones((2, 2))
    results = interpret(optimise(trace(program, (f64(2, 2),)), check=True), [x])
    arrays = [x, *results]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_guards_are_not_merged() -> None:
    def program(x: Any) -> tuple[()]:
        s = total(x)
        op("guard", s, expected=Literal(1.0))
        op("guard", s, expected=Literal(1.0))
        return ()

    assert names(optimise(trace(program, (f64(3),)))) == ["sum", "guard", "guard"]


def test_an_output_that_was_a_mere_accumulation_is_the_accumulated_value_itself() -> None:
    graph = optimise(trace(lambda x, y: op("acc", None, x @ y), (f64(2, 2), f64(2, 2))))
    assert names(graph) == ["matmul"]


X = f64(3, 4)
GOES: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "times one": (lambda x: x * 1 * 1.0, []),
    "one times": (lambda x: 1.0 * x, []),
    "by one": (lambda x: x / 1, []),
    "minus zero": (lambda x: x - 0.0, []),
    "double negation": (lambda x: op("neg", -x), []),
    "square": (lambda x: x**2, ["mul"]),
    "cast to the same": (lambda x: op("cast", x, dtype=dtypes.float64), []),
    "reshape back": (lambda x: op("reshape", op("reshape", x, shape=(12,)), shape=(3, 4)), []),
    "reshape twice": (lambda x: op("reshape", op("reshape", x, shape=(12,)), shape=(2, 6)), ["reshape"]),
    "transpose twice": (lambda x: op("permute", op("permute", x, dims=(1, 0)), dims=(1, 0)), []),
    "permute twice": (
        lambda x: op("permute", op("permute", op("reshape", x, shape=(2, 2, 3)), dims=(1, 2, 0)), dims=(1, 2, 0)),
        ["reshape", "permute"],
    ),
    "expand to the same": (lambda x: op("expand", x, shape=(3, 4)), []),
    "whole slice": (lambda x: op("slice", x, dim=0, start=0, stop=3, step=1), []),
    "whole slice written": (lambda x: op("slice_scatter", x * 3.0, x, dim=1, start=0, stop=4, step=1), []),
    "clone": (lambda x: op("clone", x), []),
    "detach": (lambda x: op("detach", x), []),
    "accumulate one": (lambda x: op("acc", None, x), []),
    "accumulate two": (lambda x: op("acc", op("acc", None, x), x), ["add"]),
    "sum of nothing": (lambda x: op("sum", x, dims=(), keepdim=False), []),
    "gradient detour": (lambda x: op("replace_data", x * 5.0, x), []),
    "multiply by ones": (lambda x: x * op("full", 1.0, shape=(4,), dtype=dtypes.float64), []),
    "multiply by expanded ones": (lambda x: x * op("expand", op("full", 1.0, shape=(), dtype=dtypes.float64), shape=(3, 4)), []),
    "broadcast anyway": (lambda x: x * op("expand", op("sum", x, dims=(0,), keepdim=True), shape=(3, 4)), ["sum", "mul"]),
}


@pytest.mark.parametrize("name", GOES)
def test_what_is_exact_goes(name: str) -> None:
    function, left = GOES[name]
    assert left_of(function, X) == left


def uniform(value: float, *shape: int) -> Any:
    return op("full", value, shape=shape, dtype=dtypes.float32)


def test_arithmetic_of_uniform_tensors_is_done_once_with_the_bits_of_their_dtype() -> None:
    def program(x: Any) -> Any:
        return x * (-(uniform(1.0) / 20.0) + uniform(0.1, 3)) + op("cast", uniform(1.0) > 0.5, dtype=dtypes.float32)

    graph = trace(program, (f32(3),))
    simple = dce(algebra(graph))
    assert names(simple) == ["mul", "add"]
    x = np.array([1.0, 2.0, 3.0], np.float32)
    assert interpret(graph, [x])[0].tobytes() == interpret(simple, [x])[0].tobytes()


def test_uniform_tensors_that_would_become_infinite_are_left_alone() -> None:
    graph = trace(lambda x: x + uniform(1.0) / 0.0, (f32(3),))
    assert "div" in names(algebra(graph))


STAYS: dict[str, Callable[..., Any]] = {
    "plus zero": lambda x: x + 0.0,
    "minus negative zero": lambda x: x - (-0.0),
    "times zero": lambda x: x * 0.0,
    "times minus one": lambda x: x * -1.0,
    "zero minus": lambda x: 0.0 - x,
    "cube": lambda x: x**3,
    "one by": lambda x: 1.0 / x,
    "partial slice": lambda x: op("slice", x, dim=0, start=0, stop=2, step=1),
    "every second": lambda x: op("slice", x, dim=0, start=0, stop=3, step=2),
    "widening broadcast": lambda x: op("expand", x, shape=(2, 3, 4)) * 2.0,
    "lossy cast": lambda x: op("cast", op("cast", x, dtype=dtypes.float32), dtype=dtypes.float64),
    "ones that widen": lambda x: op("sum", x, dims=(0,), keepdim=True) * op("full", 1.0, shape=(3, 4), dtype=dtypes.float64),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_is_not_exact_stays(name: str) -> None:
    graph = trace(STAYS[name], (X,))
    assert names(algebra(graph)) == names(graph)


def test_subtracting_a_value_from_itself_stays() -> None:
    assert left_of(lambda x: x - x, X) == ["sub"]


@pytest.mark.parametrize("source", dtypes.ALL)
@pytest.mark.parametrize("middle", dtypes.ALL)
@pytest.mark.parametrize("target", dtypes.ALL)
def test_casts_are_merged_only_where_every_element_survives(
    source: dtypes.DType, middle: dtypes.DType, target: dtypes.DType
) -> None:
    graph = trace(lambda x: op("clone", op("cast", op("cast", x, dtype=middle), dtype=target)), (Aval((len(ODD) + 8,), source),))
    with np.errstate(all="ignore"):
        wide = np.concatenate([ODD, [255, 256, 2**24 + 1, 2**31, 2**53 + 1, -129, 2**62, 0.1]])
        x = wide.astype(source.numpy)
    (expected,), (result,) = interpret(graph, [x]), interpret(dce(algebra(graph)), [x])
    assert result.tobytes() == expected.tobytes()


def test_casts_that_lose_nothing_are_merged() -> None:
    def back(x: Any) -> Any:
        return op("cast", op("cast", x, dtype=dtypes.float64), dtype=dtypes.float32)

    assert left_of(back, f32(3)) == []
    assert left_of(lambda x: op("cast", op("cast", x, dtype=dtypes.int32), dtype=dtypes.float32), Aval((3,), dtypes.bool_)) == [
        "cast"
    ]


_UNARY = st.sampled_from(
    ["neg", "exp", "x*1", "x/1", "x-0", "x+0", "x**2", "clone", "acc", "sum()", "cast32", "cast64", "ones", "self"]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(_UNARY, st.integers(0, 20)), min_size=1, max_size=12))
def test_optimised_programs_give_the_same_bits(steps: list[tuple[str, int]]) -> None:
    def program(x: Any) -> tuple[Any, ...]:
        values = [x]
        for name, i in steps:
            values.append(_STEPS[name](values[i % len(values)], values[-1]))
        return tuple(values[1:])

    graph = trace(program, (f64(len(ODD)),))
    simple = optimise(graph, check=True)
    for a, b in zip(interpret(graph, [ODD]), interpret(simple, [ODD]), strict=True):
        assert a.tobytes() == b.tobytes()
    assert len(simple.nodes) <= len(graph.nodes)


def _cast(name: str) -> Callable[[Any, Any], Any]:
    return lambda x, y: op("cast", x, dtype=getattr(dtypes, name))


_STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "neg": lambda x, y: -x,
    "exp": lambda x, y: op("exp", x),
    "x*1": lambda x, y: x * 1.0,
    "x/1": lambda x, y: x / 1,
    "x-0": lambda x, y: x - 0.0,
    "x+0": lambda x, y: x + 0.0,
    "x**2": lambda x, y: x**2,
    "clone": lambda x, y: op("clone", x),
    "acc": lambda x, y: op("acc", op("acc", None, x), x),
    "sum()": lambda x, y: op("sum", x, dims=(), keepdim=True),
    "cast32": _cast("float32"),
    "cast64": _cast("float64"),
    "ones": lambda x, y: x * op("full", 1.0, shape=x.shape, dtype=x.dtype),
    "self": lambda x, y: x + y,
}


def test_numbers_known_at_run_time_are_no_constants() -> None:
    graph = trace(lambda x, s: x * s * 1.0, (f64(2), ScalarAval(float)))
    assert names(optimise(graph)) == ["mul"] or names(optimise(graph)) == ["mul", "mul"]
    np.testing.assert_array_equal(interpret(optimise(graph), [np.ones(2), 3.0])[0], [3.0, 3.0])
