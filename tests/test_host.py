"""Programs with host steps, and the sizes that those find: a size that depends on data is an exit where it is another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.graph_programs import f32, op, total
from tracejit.config import override
from tracejit.core import dtypes
from tracejit.core.aval import UNKNOWN, Aval
from tracejit.core.op import REGISTRY, Kind, Op
from tracejit.ir.builder import GraphBuilder, rebuild
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.interpreter import SizeChanged, interpret
from tracejit.ir.printer import parse, to_text
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import VerificationError, verify
from tracejit.lowering.exits import exit_codes
from tracejit.passes.dce import dce
from tracejit.runtime.program import BACKENDS, build

DYNAMIC = [op for op in REGISTRY.values() if "dynamic shape" in op.traits]
Function = Callable[..., Any]


def positions_graph(count: int, size: int = 4) -> Graph:
    """The positions of the nonzero elements of a vector, of which there were `count`; and the vector plus one, written back."""
    builder = GraphBuilder()
    x = builder.input(f32(size))
    (found,) = builder.add(REGISTRY["nonzero"], (x,), {}, "model.py:3", [Aval((count, 1), dtypes.int64)])
    (more,) = builder.add(REGISTRY["add"], (x, Literal(1.0)), {})
    return builder.build((found,), [(x, more)])


# --- in graphs


@pytest.mark.parametrize("op", DYNAMIC, ids=lambda op: op.name)
def test_a_primitive_whose_sizes_depend_on_data_runs_on_the_host_and_says_which_sizes_are_unknown(op: Op) -> None:
    assert op.kind is Kind.OPAQUE
    assert op.may_exit
    for operands, attributes in op.samples():  # type: ignore[misc]
        avals = [Aval(x.shape, T.from_numpy(x).dtype) for x in operands]
        rules = op.infer_tuple(avals, attributes)
        found = op.evaluate(*operands, **attributes)
        assert any(UNKNOWN in rule.shape for rule in rules)
        for rule, array in zip(rules, found if op.multiple else (found,), strict=True):
            assert rule.allows(Aval(array.shape, T.from_numpy(array).dtype))


def test_a_graph_holds_the_size_that_was_seen() -> None:
    graph = positions_graph(3)
    verify(graph)
    assert str(graph.avals[graph.outputs[0]]) == "int64[3, 1]"  # type: ignore[index]
    builder = GraphBuilder()
    x = builder.input(f32(4))
    with pytest.raises(RuntimeError, match=r"depends on data: it is int64\[\?, 1\].*got none"):
        builder.add(REGISTRY["nonzero"], (x,), {})
    with pytest.raises(RuntimeError, match=r"got int64\[3\]"):
        builder.add(REGISTRY["nonzero"], (x,), {}, "", [Aval((3,), dtypes.int64)])


def test_the_verifier_takes_any_size_that_the_shape_rule_leaves_open_and_no_other() -> None:
    graph = positions_graph(3)
    (out,) = graph.outputs
    for aval in (
        Aval((3, 2), dtypes.int64),
        Aval((3, 1), dtypes.int32),
        Aval((3,), dtypes.int64),
        Aval((UNKNOWN, 1), dtypes.int64),
    ):
        with pytest.raises(VerificationError, match="shape rule"):
            verify(rebuild(graph, graph.nodes, avals={**graph.avals, out: aval}))


@pytest.mark.parametrize("count", [0, 3])
def test_a_printed_graph_is_read_back_with_its_sizes(count: int) -> None:
    graph = positions_graph(count)
    assert parse(to_text(graph)).equals(graph)


def test_a_node_whose_size_was_seen_is_kept_though_nothing_reads_it() -> None:
    graph = positions_graph(3)
    graph = rebuild(graph, graph.nodes, outputs=())
    assert any(node.op.name == "nonzero" for node in dce(graph).nodes)


def test_the_oracle_says_which_size_it_found() -> None:
    with pytest.raises(SizeChanged, match=r"nonzero model.py:3: evaluated to int64\[2, 1\], recorded was int64\[3, 1\]"):
        interpret(positions_graph(3), [np.array([1, 0, 1, 0], np.float32)])


# --- in programs


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_size_is_an_exit_of_its_own_before_anything_is_written(backend: str) -> None:
    graph = positions_graph(2)
    program, nodes = build(graph, {}, backend=backend), len(graph.nodes)
    found: dict[int, int] = {}
    for values in ([0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 5, 0], [1, 1, 1, 0], [1, 1, 1, 1]):
        x = np.array(values, np.float32)
        number = program.run((x,), ())
        assert isinstance(number, int)
        assert number > nodes
        assert found.setdefault(np.count_nonzero(values), number) == number
        assert x.tolist() == values
    assert len(set(found.values())) == 4
    x = np.array([0, 3, 0, 4], np.float32)
    (positions,) = program.run((x,), ())
    assert positions.tolist() == [[1], [3]]
    assert x.tolist() == [1, 4, 1, 5]


def test_all_backends_leave_by_the_same_exits() -> None:
    graph = positions_graph(2)
    programs = [build(graph, {}, backend=backend) for backend in BACKENDS]
    for count in (0, 1, 3, 4):
        x = np.array([1.0] * count + [0.0] * (4 - count), np.float32)
        assert len({program.run((x.copy(),), ()) for program in programs}) == 1


def test_another_dtype_than_the_recorded_one_is_an_exit() -> None:
    graph = positions_graph(2)
    (out,) = graph.outputs
    graph = rebuild(graph, graph.nodes, avals={**graph.avals, out: Aval((2, 1), dtypes.int32)})
    with override(verify=False):  # which finds it in the graph
        for backend in BACKENDS:
            assert isinstance(build(graph, {}, backend=backend).run((np.array([1, 0, 1, 0], np.float32),), ()), int)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("name", "bad"), [("inv", 1.0), ("cofactor", np.nan)])
def test_a_node_that_raises_is_an_exit_before_anything_is_written(name: str, bad: float, backend: str) -> None:
    graph = trace(lambda x, y: (x + 1.0, op(name, op(name, y))), [f32(2, 2), f32(2, 2)])
    more, _ = graph.outputs
    graph = rebuild(graph, graph.nodes, outputs=(), writes=((graph.inputs[0], more),))
    x, refused = np.zeros((2, 2), np.float32), np.full((2, 2), bad, np.float32)
    first = next(n for n in graph.nodes if n.op.name == name)
    program = build(graph, {}, backend=backend)
    assert program.run((x, refused), ()) == exit_codes(graph)[id(first)]
    assert not x.any()
    assert program.run((x, np.eye(2, dtype=np.float32)), ()) == ()
    assert x.all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["svd", "eigh", "cholesky", "inv", "solve"])
def test_a_decomposition_that_nothing_reads_still_raises(name: str, backend: str) -> None:
    def function(x: Any) -> Any:
        getattr(T.linalg, name)(*(x, x)[: 1 + (name == "solve")])
        return x + 1

    bad = T.full((3, 3), float("nan") if name in ("svd", "eigh") else -1.0)
    with override(backend=backend):
        compiled = T.compile(function)
        for _ in range(2):
            compiled(T.eye(3))
        assert compiled.stats.compiled_calls == 1
        with pytest.raises(T.linalg.LinAlgError):
            function(bad)
        with pytest.raises(T.linalg.LinAlgError):
            compiled(bad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_check_that_nothing_waits_for_is_made_between_host_steps(backend: str) -> None:
    def function(x: Any, shift: Any) -> Any:
        order = op("argsort", x, dim=0, descending=False)
        op("gather", x, order + shift, dim=0)
        return x + 1.0

    graph = trace(function, [f32(1000), Aval((), dtypes.int64)])
    program = build(graph, {}, backend=backend)
    x = np.arange(1000, dtype=np.float32)
    assert isinstance(program.run((x, np.array(0)), ()), tuple)
    assert isinstance(program.run((x, np.array(1)), ()), int)


@pytest.mark.parametrize("backend", BACKENDS)
def test_constants_that_a_program_returns_are_the_callers_own(backend: str) -> None:
    builder = GraphBuilder()
    x, constant = builder.input(f32(2, 2)), builder.constant(np.zeros(3, np.float32))
    (minors,) = builder.add(REGISTRY["cofactor"], (x,), {})
    program = build(builder.build((constant, minors)), {}, backend=backend)
    for _ in range(2):
        zeros, _ = program.run((np.eye(2, dtype=np.float32),), ())
        assert not zeros.any()
        zeros += 1


# --- through compile()

VECTORS = ([1.0, -1, 2, 0], [1.0, 1, 2, 3], [-1.0, -1, -1, -1], [0.0, 0, 0, 5], [3.0, -1, 0, 2])


def doubled_where_positive(x: Any) -> Any:
    y = x.clone()
    y[y > 0] = y[y > 0] * 2
    return y


def changed_before_and_after(x: Any) -> Any:
    x.add_(1)
    y = x[x > 0.5]
    x.mul_(2)
    return y.sum(), x * 1


def changed_in_place(x: Any) -> Any:
    x[x > 0] *= 2
    return x.sum()


def mean_of_some(x: Any) -> Any:
    return x[x > 0].mean() if (x > 0).any() else x.sum()


def recording_the_count(x: Any) -> Any:
    count = len(x[x > 0])
    COUNTS.append(count)
    return x * count


COUNTS: list[int] = []
SELECTIONS: dict[str, Function] = {
    "a selection": lambda x: x[x > 0],
    "a mean": lambda x: x[x > 0].mean(),
    "two masks": lambda x: (x[x > 0], x[x <= 0]),
    "a quotient of sizes": lambda x: x[(x > 0) & (x < 3)].sum() / x[x > 0].numel(),
    "a mask of two dimensions": lambda x: x.reshape(2, 2)[x.reshape(2, 2) > 0],
    "a mask of rows": lambda x: x.reshape(2, 2)[x.reshape(2, 2).sum(1) > 0],
    "a mask beside a slice": lambda x: x.reshape(2, 2)[x.reshape(2, 2).sum(1) > 0, :1],
    "a mask before a dimension": lambda x: (x.reshape(2, 2, 1) * T.ones(2, 2, 3))[x.reshape(2, 2) > 0],
    "positions": lambda x: x.nonzero(),
    "positions as a tuple": lambda x: x.nonzero(as_tuple=True),
    "positions by where": lambda x: T.where(x > 0),
    "positions by argwhere": lambda x: T.argwhere(x > 0),
    "masked_select": lambda x: T.masked_select(x, x > 0),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, T.arange(4.0)),
    "a selection of a selection": lambda x: x[x > 0][x[x > 0] > 1],
    "a loop over the selection": lambda x: [v * 2 for v in x[x > 0]],
    "a branch on the size": lambda x: x * 2 if x[x > 0].shape[0] > 2 else x * 3,
    "a branch on the mask": mean_of_some,
    "only the length": lambda x: x * len((x > 0).nonzero()),
    "only a number": lambda x: len(x[x > 0]),
    "a join": lambda x: T.cat([x[x > 0], x]),
    "a product": lambda x: x[x > 0] @ x[x > 0],
    "an outer product": lambda x: T.outer(x[x > 0], x),
    "pieces": lambda x: x[x > 0].split(1),
    "a sorted selection": lambda x: T.sort(x[x > 0])[0],
    "assignment through a mask": doubled_where_positive,
    "writes before and after": changed_before_and_after,
    "a write through a mask": changed_in_place,
    "a count kept outside": recording_the_count,
}


def described(result: Any) -> Any:
    if isinstance(result, T.Tensor):
        return tuple(result.shape), str(result.dtype), [round(v, 4) for v in result.reshape(-1).tolist()]
    return [described(r) for r in result] if isinstance(result, tuple | list) else result


def outcome(function: Function, values: Any) -> Any:
    COUNTS.clear()
    x = T.tensor(values)
    try:
        result = described(function(x))
    except Exception as error:
        result = type(error)
    return repr((result, x.tolist(), list(COUNTS)))


# Numba takes half a second for a nest, and gets the nests that "reference" has: a third of them will do.
@pytest.mark.parametrize(
    ("name", "backend"), [(name, b) for k, name in enumerate(SELECTIONS) for b in BACKENDS if b != "numba" or k % 3 == 0]
)
def test_what_is_selected_by_data_is_what_eager_selects_and_no_size_is_recorded_twice(name: str, backend: str) -> None:
    function = SELECTIONS[name]
    with override(backend=backend, hot_calls=3):
        compiled = T.compile(function)
        for _ in range(4):
            for values in VECTORS:
                assert outcome(compiled, values) == outcome(function, values)
        assert compiled.stats.traces <= len(VECTORS), compiled.explain()
        assert compiled.stats.eager_calls == compiled.stats.traces, compiled.explain()
        assert not compiled.reasons


def gradient(function: Function, values: Any, second: bool) -> Any:
    x = T.tensor(values, dtype=T.float64, requires_grad=True)
    results = function(x)
    loss = sum((r * r).sum() for r in (results if isinstance(results, tuple | list) else (results,)))
    if not second:
        loss.backward()  # type: ignore[union-attr]
        return described(x.grad)
    (first,) = T.autograd.grad(loss, [x], create_graph=True)
    return described(T.autograd.grad((first * first).sum(), [x]))


DIFFERENTIABLE: dict[str, Function] = {
    "a selection": lambda x: x[x > 0] ** 2,
    "two masks": lambda x: (x[x > 0] * 2, x[x <= 0].exp()),
    "a mask of rows": lambda x: x.reshape(2, 2)[x.reshape(2, 2).sum(1) > 0].exp(),
    "normalised": lambda x: x[x > 0] / (x[x > 0].sum() + 1),
    "masked_select": lambda x: T.masked_select(x * x, x > 0),
    "masked_scatter": lambda x: (x * 2).masked_scatter(x > 0, T.arange(4.0, dtype=T.float64) * x),
    "sorted and weighted": lambda x: T.sort(x[x > 0])[0] * T.arange(float(len(x[x > 0])), dtype=T.float64),
    "assignment through a mask": doubled_where_positive,
    "a selection of a selection": lambda x: x[x > 0][x[x > 0] > 1] * 2,
}


@pytest.mark.parametrize("second", [False, True], ids=["first order", "second order"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_flow_through_what_was_selected(name: str, second: bool) -> None:
    function = DIFFERENTIABLE[name]
    compiled = T.compile(function)
    for _ in range(3):
        for values in VECTORS:
            np.testing.assert_equal(gradient(compiled, values, second), gradient(function, values, second))
    assert compiled.stats.traces <= len(VECTORS)


def test_a_function_of_more_sizes_than_it_may_have_paths_runs_eagerly_beyond_them_and_says_so() -> None:
    def function(x: Any) -> Any:
        return x[x > 0].sort()[0].sum() * x[x > 0].shape[0]

    compiled = T.compile(function)
    with override(max_entries=4, max_sizes=4):
        for _ in range(3):
            for count in range(12):
                x = T.tensor([1.0] * count + [-1.0] * (12 - count))
                assert compiled(x).item() == count * count
        assert compiled.stats.traces == 4
        assert compiled.stats.compiled_calls == 2 * 4
        assert any(reason.code == "too_many_paths" for reason in compiled.reasons)


def test_no_entry_is_asked_in_vain_for_ever_where_there_is_no_room_for_another_size() -> None:
    compiled = T.compile(lambda x: x[x > 0].sort()[0])
    with override(max_entries=4, max_sizes=4):
        calls = 40
        for count in range(calls):
            x = T.tensor([1.0] * (count + 1) + [-1.0] * (calls - count))
            assert compiled(x).shape == (count + 1,)
        asked = compiled.stats.exits
        assert asked < 2 * calls
        for count in range(4):  # the sizes that have a path still find it
            compiled(T.tensor([1.0] * (count + 1) + [-1.0] * (calls - count)))
        assert compiled.stats.compiled_calls == 4


def test_explain_names_the_sizes_that_a_path_stands_for() -> None:
    compiled = T.compile(lambda x: (x > 0).nonzero().sort(0)[0])
    compiled(T.tensor([1.0, -1.0, 2.0]))
    assert "goes on only if the shape that nonzero finds at" in compiled.explain(verbose=True)
    assert "is [2, 1]" in compiled.explain(verbose=True)


def test_a_total_of_a_number_is_a_program_that_knows_its_shape() -> None:
    graph = trace(total, [f32()])
    for backend in BACKENDS:
        program = build(graph, {}, backend=backend)
        assert program.run((np.ones(4, np.float32),), ()) == 0
        assert program.run((np.ones((), np.float32),), ())[0].shape == ()
