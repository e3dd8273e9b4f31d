"""Equal nests and runs of their calls: forms, the order of steps, the loop over a table; programs that do not grow, and are found again."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracejit
from tests.graph_programs import arrays_for, f32, op, total
from tracejit import nn, optim
from tracejit.core import dtypes
from tracejit.core.aval import ScalarAval
from tracejit.ir.builder import rebuild
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.llvm import driver
from tracejit.loops.expressions import Load, ScalarParam, Var, builder
from tracejit.loops.language import Axis, Buffer, Exit, For, Index, Let, Nest, Reduce, Scalar, Size, Store
from tracejit.lowering.likeness import Nests, form, group_alike_units, merge_runs
from tracejit.lowering.lower import lower
from tracejit.lowering.steps import Address, ArraySpec, Division, NestCall, NestRun, NumberSlot, ProgramSpec
from tracejit.passes.pipeline import optimise
from tracejit.runtime.program import Program, build

F32, F64 = dtypes.float32, dtypes.float64


def nest(
    name: str = "nest",
    dtype: dtypes.DType = F32,
    constant: float = 0.0,
    code: int | None = None,
    accumulate: bool = False,
    vector: bool = True,
    extent: Any = Size("n"),  # noqa: B008  (immutable)
    offset: int = 0,
    stride: int = 1,
    swapped: bool = False,
    once: bool = False,
) -> Nest:
    """out[i] = x[i] * s - constant, or one thing about it otherwise."""
    x, out, i, s = Buffer("x", dtype), Buffer("out", dtype), Axis(name), Scalar("s", dtype)
    at = Index(((i, stride),), offset)
    load, scalar = Load(x, at), ScalarParam(s)
    value = builder.sub(scalar * load if swapped else load * scalar, builder.const(constant, dtype))
    named = Var(name, dtype)
    body = (Let(named, value), Store(out, at, named, accumulate)) if once else (Store(out, at, value, accumulate),)
    guard = () if code is None else (Exit(builder.lt(scalar, 0.0), code),)
    return Nest(name, (x, out), (extent,) if isinstance(extent, Size) else (), (s,), (*guard, For(i, extent, body, vector)))


OTHERS: list[dict[str, Any]] = [
    {"dtype": F64}, {"constant": -0.0}, {"constant": 1.0}, {"code": 1}, {"accumulate": True}, {"vector": False}, {"extent": 7},
    {"offset": 1}, {"stride": 2}, {"swapped": True}, {"once": True},
]  # fmt: skip


@pytest.mark.parametrize("changed", OTHERS, ids=repr)
def test_forms_are_equal_whatever_the_names_and_differ_in_everything_else(changed: dict[str, Any]) -> None:
    assert form(nest("a", **changed)) == form(nest("b", **changed))
    assert form(nest(**changed)) != form(nest())
    for other in OTHERS:
        assert (form(nest(**changed)) == form(nest(**other))) is (other is changed)


def reduction(combine: str, wide: bool = False, exchanged: bool = False) -> Nest:
    x, out, i, n = Buffer("x", F32), Buffer("out", F32), Axis("i"), Size("n")
    first, second = Var("a", F64 if wide else F32), Var("b", F32)
    value = Load(x, Index(((i, 1),)))
    loop = Reduce(i, n, ((first, combine, value), (second, "sum", value * value)))
    result = second if exchanged else builder.cast(first, F32)
    return Nest("reduction", (x, out), (n,), (), (loop, Store(out, Index(), result)))


def test_forms_tell_reductions_and_their_results_apart() -> None:
    forms = [form(reduction(*arguments)) for arguments in (("max",), ("min",), ("max", True), ("max", False, True))]
    assert len(set(forms)) == 4 and form(reduction("max")) == forms[0]


def test_an_index_that_is_computed_is_part_of_the_form() -> None:
    def gather(step: int) -> Nest:
        x, where, out, i, n = Buffer("x", F32), Buffer("w", dtypes.int64), Buffer("out", F32), Axis("i"), Size("n")
        at = Load(where, Index(((i, 1),))) * step
        body = Store(out, Index(((i, 1),)), Load(x, Index(dynamic=at)))
        return Nest("gather", (x, where, out), (n,), (), (For(i, n, (body,)),))

    assert form(gather(1)) == form(gather(1)) != form(gather(2))


def test_equal_nests_become_one_object() -> None:
    nests, first = Nests(), nest("first")
    assert nests.known(first) is first and nests.known(nest("second")) is first
    assert nests.known(nest(constant=2.0)) is not first


def ordered(units: Sequence[str], after: dict[str, set[str]]) -> list[str]:
    """`units`, whose kinds are their capital letters (small ones are like nothing), gathered: each comes after those in `after`."""
    runs: dict[str, int] = {}
    kinds = {letter: object() for letter in string.ascii_uppercase}
    return group_alike_units(
        units,
        lambda unit: kinds.get(unit[0]),
        lambda unit: max([runs[other] for other in after.get(unit, ())], default=0),
        runs.__setitem__,
    )


def test_units_come_to_the_first_of_their_like_that_they_may_follow() -> None:
    assert ordered(["A1", "B1", "A2", "B2"], {}) == ["A1", "A2", "B1", "B2"]
    assert ordered(["A1", "B1", "A2", "B2"], {"A2": {"B1"}, "B2": {"A2"}}) == ["A1", "B1", "A2", "B2"]
    assert ordered(["c1", "B1", "c2"], {}) == ["c1", "B1", "c2"]
    recurrent = {"A-h1": {"c1"}, "c1": {"A-x1"}, "c2": {"A-x2", "A-h1"}, "A-h2": {"c2"}}
    steps = ["A-x1", "c1", "A-x2", "A-h1", "c2", "A-x3", "A-h2"]
    assert ordered(steps, recurrent) == ["A-x1", "A-x2", "A-x3", "c1", "A-h1", "c2", "A-h2"]


@given(st.lists(st.sampled_from("ABc"), max_size=12), st.data())
def test_gathered_units_keep_to_what_each_must_follow(letters: list[str], data: st.DataObject) -> None:
    units = [f"{letter}{k}" for k, letter in enumerate(letters)]
    after = {u: data.draw(st.sets(st.sampled_from(units[:k]), max_size=3)) if k else set() for k, u in enumerate(units)}
    done = ordered(units, after)
    assert sorted(done) == sorted(units)
    assert all(done.index(other) < done.index(u) for u, others in after.items() for other in others)


def test_only_calls_that_a_table_can_tell_apart_are_joined() -> None:
    same, number = nest(), NumberSlot(5, F64)

    def run(*calls: NestCall) -> list[int]:
        steps, text = merge_runs(calls, ["one"] * len(calls), lambda run: f"{len(run)} at {run[0]}")
        assert text == ["one" if isinstance(s, NestCall) else f"{len(s.calls)} at 0" for s in steps]  # type: ignore[union-attr]
        return [len(s.calls) if isinstance(s, NestRun) else 1 for s in steps]

    def call(n: Nest = same, scalar: Any = number, division: Division | None = None) -> NestCall:
        return NestCall(n, (Address(1), Address(2)), (4,), (scalar,), division)

    assert run(call(), call(scalar=NumberSlot(6, F64)), call()) == [3]
    assert run(call(), call(nest(constant=1.0))) == [1, 1]
    assert run(call(scalar=1.0), call(scalar=2.0)) == [1, 1]
    assert run(call(), call(scalar=NumberSlot(6, dtypes.int64))) == [1, 1]
    cut = Division(4, 2, 0, None, (8, 8))
    assert run(call(division=cut), call(division=cut)) == [1, 1]


def test_a_run_takes_each_row_of_its_table_and_stops_at_the_first_exit() -> None:
    x, out = np.arange(12, dtype=np.float32), np.zeros(12, np.float32)
    guarded = nest(code=7)
    calls = tuple(
        NestCall(guarded, (Address(1, 4 * k), Address(2, 16 * k)), (k + 2,), (NumberSlot(3 + k, F64),)) for k in range(3)
    )
    specs = tuple(ArraySpec(F32, a.shape, a.strides, a is out) for a in (x, out))
    program, arrays = driver.compile_program(ProgramSpec(specs, (NestRun(calls),), slots=6)), (x, out)

    def run(*numbers: float) -> int:
        out[:] = 0
        table = program.template.copy()
        table.view(np.float64)[3:6] = numbers
        return program.run(table.ctypes.data, id(arrays))

    assert run(10.0, 100.0, 1000.0) == driver.OK
    assert out.tolist() == [0, 10, 0, 0, 100, 200, 300, 0, 2000, 3000, 4000, 5000]
    assert run(10.0, -1.0, 1000.0) == 7
    assert out.tolist() == [0, 10, *[0] * 10]


def update(count: int) -> Graph:
    """Momentum for `count` parameters of several shapes, each with a rate of its own: p, v, g, then the rates."""
    shapes = [(8, 4), (4,), (3, 2, 2)]

    def function(*values: Any) -> Any:
        found = []
        for k in range(count):
            p, v, g, rate = values[3 * k], values[3 * k + 1], values[3 * k + 2], values[3 * count + k]
            velocity = v * 0.9 + g
            found += [p - velocity * rate, velocity]
        return tuple(found)

    avals = [f32(*shapes[k % 3]) for k in range(count) for _ in range(3)]
    graph = trace(function, [*avals, *[ScalarAval(float)] * count])
    targets = [graph.inputs[3 * k + i] for k in range(count) for i in (0, 1)]
    return rebuild(graph, graph.nodes, outputs=(), writes=tuple(zip(targets, graph.outputs, strict=True)))  # type: ignore[arg-type]


def test_a_program_does_not_grow_with_the_number_of_tensors() -> None:
    few, many = build(update(3), {}), build(update(60), {})
    assert isinstance(few, Program) and isinstance(many, Program)
    assert few.llvm().count("\n") == many.llvm().count("\n")
    assert "1 nests, 0 products" in many.describe() and ", 60 times: reads" in many.describe()
    assert "1.00 times the least" in many.describe()
    (run,) = many.lowered.spec.steps
    assert isinstance(run, NestRun)
    assert {c.sizes for c in run.calls} == {(32,), (4,), (12,)}  # contiguous memory of any rank is one loop


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_runs_compute_what_the_graph_says(backend: str) -> None:
    graph = update(7)
    program = build(graph, {}, backend=backend)
    actual, expected = arrays_for(graph), arrays_for(graph)
    split = [x for x in actual if isinstance(x, np.ndarray)], [x for x in actual if not isinstance(x, np.ndarray)]
    assert program.run(*split) == ()
    interpret(graph, expected)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-6)


def test_a_unit_does_not_pass_the_last_reader_of_what_it_overwrites() -> None:
    def function(p: Any, g: Any, q: Any, h: Any) -> Any:
        new_q = q - g * 2.0  # like the update of p, which would have to pass the reader of the old p
        product = p @ h
        return new_q, p - product * 2.0, total(product)

    graph = trace(function, [f32(40, 40)] * 4)
    writes = ((graph.inputs[2], graph.outputs[0]), (graph.inputs[0], graph.outputs[1]))
    lowered = lower(rebuild(graph, graph.nodes, outputs=graph.outputs[2:], writes=writes), {})  # type: ignore[arg-type]
    assert not any("commit" in line for line in lowered.text)


def test_zeroing_many_tensors_is_one_nest_that_copies_nothing() -> None:
    def function(*tensors: Any) -> Any:
        return tuple(op("full", 0.0, shape=(5,), dtype=F32) for _ in tensors)

    graph = trace(function, [f32(5)] * 9)
    pure = optimise(rebuild(graph, graph.nodes, outputs=(), writes=tuple(zip(graph.inputs, graph.outputs, strict=True))))  # type: ignore[arg-type]
    lowered = lower(pure, {})
    assert lowered.text == ("full, 9 times: reads 0 bytes, writes 180",) and lowered.arena_bytes == 0


def training_step(optimizer: Any) -> Any:
    """A compiled step of a model of its own."""
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    chosen, criterion = optimizer(model.parameters()), nn.CrossEntropyLoss()

    def step(x: Any, y: Any) -> Any:
        chosen.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        chosen.step()
        return loss.detach()

    return tracejit.compile(step)


@pytest.mark.parametrize("optimizer", [optim.SGD, optim.Adam, optim.AdamW])
def test_another_function_with_the_same_computation_compiles_nothing(optimizer: Any) -> None:
    x, y = tracejit.ones(4, 6), tracejit.tensor([0, 2, 1, 0])
    first, second = training_step(optimizer), training_step(optimizer)
    for _ in range(3):
        first(x, y)
    before = driver.compilations()
    for _ in range(3):
        second(x, y)
    assert first.stats.compiled_calls == second.stats.compiled_calls == 2
    assert driver.compilations() == before


def test_the_explanation_counts_an_update_of_all_parameters_as_one_nest() -> None:
    step = training_step(optim.Adam)
    for _ in range(2):
        step(tracejit.ones(4, 6), tracejit.tensor([0, 2, 1, 0]))
    assert ", 4 times: reads" in str(step.explain(verbose=True))
