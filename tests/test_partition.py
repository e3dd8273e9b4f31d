"""The joint backward: gradients are right, what is kept is little and sound, absence is symbolic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from graph_programs import (
    MLP_AVALS,
    WRITE_AVALS,
    arrays_for,
    f32,
    f64,
    gelu_chain,
    i64,
    layer_norm,
    mean_last,
    mlp,
    names,
    op,
    record,
    softmax,
    total,
    write_functions,
)
from hypothesis import given, reject, settings

import tracejit
from tracejit.core import dtypes
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes.functionalise import functionalise
from tracejit.passes.mincut import Network
from tracejit.passes.partition import Partition, Visit, partition
from tracejit.passes.pipeline import optimise, prepare


def split(function: Callable[..., Any], avals: Sequence[Any], wanted: Sequence[bool] | None = None) -> Partition:
    wanted = tuple(isinstance(a, Aval) and a.dtype.is_floating_point for a in avals) if wanted is None else tuple(wanted)
    return partition(prepare(trace(function, avals, wanted), check=True), wanted)


def full(p: Partition) -> Visit:
    """What a backward pass from all outputs meets."""
    return p.visit(p.differentiable)


def run(
    p: Partition, arrays: Sequence[Any], present: Sequence[bool] | None = None, wanted: Sequence[bool] | None = None
) -> tuple[Any, ...]:
    """Gradients of the wanted inputs for cotangents 1, 2, ... of the present outputs, through optimised graphs."""
    present = p.differentiable if present is None else tuple(present)
    wanted = p.wanted if wanted is None else tuple(wanted)
    arrays = [np.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
    before = [np.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
    outputs = interpret(optimise(p.forward, check=True), arrays)
    kept = dict(zip(p.residuals, outputs[len(p.differentiable) :], strict=True))
    position = {v: i for i, v in enumerate(p.graph.inputs)}
    reads = p.reads(tuple(present), wanted)
    residuals, direct = [np.array(kept[v]) for v in reads[0]], [before[position[v]] for v in reads[1]]
    cotangents = [np.full_like(outputs[i], 1.0 + i) for i, there in enumerate(present) if there]
    backward = p.backward(present, wanted)
    verify(backward, functional=True)
    plain = interpret(backward, [*residuals, *direct, *cotangents])
    optimised = interpret(optimise(backward, check=True), [*residuals, *direct, *cotangents])
    for a, b in zip(plain, optimised, strict=True):
        np.testing.assert_array_equal(a, b)
    return plain


def numeric(p: Partition, arrays: Sequence[Any]) -> list[Any]:
    """The same gradients by central differences."""

    def value(inputs: Sequence[Any]) -> float:
        outputs = interpret(p.graph, [np.array(a) if isinstance(a, np.ndarray) else a for a in inputs])
        return float(sum((1.0 + i) * outputs[i].sum() for i, there in enumerate(p.differentiable) if there))

    gradients = []
    for i, want in enumerate(p.wanted):
        if not want:
            continue
        gradient = np.zeros_like(arrays[i])
        for index in np.ndindex(gradient.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [np.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
                moved[i][index] += step
                ends.append(value(moved))
            gradient[index] = (ends[0] - ends[1]) / 2e-6
        gradients.append(gradient)
    return gradients


def multi(x: Any, y: Any) -> tuple[Any, ...]:
    shared = op("sin", x * y)
    return shared, total(shared * x), op("permute", y, dims=(1, 0))


def written(x: Any, y: Any) -> tuple[Any, ...]:
    row = op("select", x, 0, dim=0)
    op("write", row, op("exp", y) * row)
    copy = op("clone", x)
    op("write", op("slice", copy, dim=1, start=0, stop=3, step=2), 0.0)
    return x * x, copy * y


def gathered(x: Any, i: Any) -> Any:
    return op("exp", op("index_select", x, i, dim=0)) * op("amax", x, dims=(0,), keepdim=True)


def mixed(x: Any, y: Any) -> Any:
    return op("cast", op("where", x > 1.0, x * 2.0, y), dtype=dtypes.float32) / 3.0


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gelu": (gelu_chain, (f64(5),)),
    "softmax of layer norm": (lambda x: softmax(layer_norm(x)) ** 2, (f64(2, 4),)),
    "mlp": (mlp, MLP_AVALS),
    "several outputs": (multi, (f64(2, 3), f64(2, 3))),
    "writes": (written, (f64(2, 3), f64(3))),
    "gather": (gathered, (f64(4, 2), i64(3))),
    "broadcast": (lambda x, y: x * y + y, (f64(3, 1), f64(2, 1, 4))),
    "run-time exponent": (lambda x, s: x**s * s, (f64(3), ScalarAval(float))),
    "identity": (lambda x: x, (f64(3),)),
    "powers": (lambda x, y: x**2 + x**3 + x**y, (f64(3), f64(3))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    function, avals = PROGRAMS[name]
    p = split(function, avals)
    arrays = arrays_for(p.graph)
    for gradient, expected in zip(run(p, arrays), numeric(p, arrays), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", "several outputs", "writes"])
def test_a_backward_for_fewer_inputs_or_cotangents_gives_the_same_numbers(name: str) -> None:
    function, avals = PROGRAMS[name]
    p = split(function, avals)
    arrays = arrays_for(p.graph)
    everything = run(p, arrays)
    for i in range(len(avals)):
        (one,) = run(p, arrays, wanted=[j == i for j in range(len(avals))])
        np.testing.assert_array_equal(one, everything[i])
    parts = [run(p, arrays, present=[j == i for j in range(len(p.differentiable))]) for i in range(len(p.differentiable))]
    for whole, *pieces in zip(everything, *parts, strict=True):
        np.testing.assert_allclose(sum(g for g in pieces if g is not None), whole, rtol=1e-12)


def test_an_input_that_no_gradient_reaches_gets_none_and_not_zeros() -> None:
    p = split(lambda x, y: (x * 2.0, op("detach", y) + x), (f64(3), f64(3)))
    assert p.backward((True, True), (True, True)).outputs[1] is None
    q = split(lambda x, y: (x * 2.0, y * 2.0), (f64(3), f64(3)))
    backward = q.backward((True, False), (True, True))
    assert backward.outputs[1] is None and len(backward.inputs) == 1


def test_backward_graphs_are_made_once_per_mask() -> None:
    p = split(mlp, MLP_AVALS)
    assert p.backward((True,), (True,) * 5) is p.backward((True,), (True,) * 5)
    assert p.backward((True,), (False, True, False, False, False)) is not p.backward((True,), (True,) * 5)


def test_a_mask_beyond_what_was_asked_for_is_refused() -> None:
    p = split(lambda x, y: (x * y, op("detach", x)), (f64(3), f64(3)), (True, False))
    for present, wanted in (((True, True), (True, False)), ((True, False), (True, True)), ((True,), (True, False))):
        with pytest.raises(ValueError, match="asks for more"):
            p.backward(present, wanted)


def test_a_gelu_chain_keeps_nothing_but_its_input() -> None:
    p = split(gelu_chain, (f32(1000),))
    assert p.residuals == ()
    assert p.direct_inputs == p.graph.inputs
    inner = split(lambda x: gelu_chain(x + 1.0), (f32(1000),))
    assert names_of(inner, inner.residuals) == ["add"]


def test_softmax_of_layer_norm_keeps_one_matrix_and_statistics_of_rows() -> None:
    p = split(lambda x: softmax(layer_norm(x)), (f32(512, 512),))
    sizes = sorted(p.graph.avals[v].size for v in p.residuals)  # type: ignore[union-attr]
    assert sizes == [512, 512, 512, 512 * 512]


def test_products_are_never_computed_again() -> None:
    p = split(mlp, (f32(64, 784), f32(784, 128), f32(128), f32(128, 10), f32(10)))
    assert names_of(p, p.residuals) == ["relu", "add"]
    forward_nodes = set(p.graph.nodes)
    again = [n for n in p.backward((True,), p.wanted).nodes if n in forward_nodes]
    assert all(n.op.kind is Kind.ELEMENTWISE for n in again)


def names_of(p: Partition, values: Sequence[int]) -> list[str]:
    made = {v: n.op.name for n in p.graph.nodes for v in n.outputs}
    return [made.get(v, "input") for v in values]


def test_an_input_that_the_tape_would_not_have_saved_goes_through_the_slab() -> None:
    """sub saves nothing: eager mode would not notice a change of x, so the backward must not read x."""
    p = split(lambda x: op("sin", op("cos", x - mean_last(x))), (f64(2, 3),))
    assert full(p).saved_inputs == frozenset() and p.direct_inputs == ()
    assert p.residuals
    q = split(lambda x: op("sin", x) * 2.0, (f64(2, 3),))
    assert full(q).saved_inputs == {0} and q.direct_inputs == (0,) and q.residuals == ()


def test_a_view_of_an_input_counts_as_the_input() -> None:
    p = split(lambda x, w: x @ op("permute", w, dims=(1, 0)), (f64(2, 3), f64(4, 3)))
    assert full(p).saved_inputs == {0, 1} and p.direct_inputs == (0, 1) and p.residuals == ()


def test_an_input_that_the_program_writes_to_is_not_read_afterwards() -> None:
    def program(x: Any) -> Any:
        y = op("sin", x)
        op("write", x, op("detach", y))
        return y

    graph = prepare(trace(program, (f64(3),), (True,)))
    p = partition(graph, (True,))
    assert full(p).saved_inputs == {0} and p.direct_inputs == () and p.residuals == (0,)


def test_saved_outputs_and_saved_final_contents_are_reported() -> None:
    p = split(lambda x: (op("exp", x), x * 3.0), (f64(3),))
    assert full(p).saved_outputs == {0}

    def program(x: Any, y: Any) -> Any:
        return op("sin", op("write", x, x + y))

    q = split(program, (f64(3), f64(3)), (False, True))
    assert full(q).saved_writes == {0} and full(q).saved_inputs == frozenset()


def overwriting(function: str) -> Callable[[Any], Any]:
    def program(x: Any) -> Any:
        y = x * 1.0
        z = op(function, y)
        op("write", op("select", y, 0, dim=0), 1.0)
        return z * 2.0

    return program


@pytest.mark.parametrize(("function", "names_stale"), [("sin", ["sin"]), ("neg", []), ("exp", [])])
def test_nodes_whose_saved_values_the_program_overwrote_are_reported(function: str, names_stale: list[str]) -> None:
    p = split(overwriting(function), (f64(3, 2),))
    assert [n.op.name for n in full(p).stale] == names_stale


def test_a_saved_result_that_is_overwritten_is_reported_and_a_saved_temporary_is_not() -> None:
    def result(x: Any) -> Any:
        y = op("exp", x)
        op("write", y, y + 1.0)
        return y

    def temporary(x: Any) -> Any:
        y = x * 1.0
        op("write", y, op("exp", y))
        op("write", y, y + 1.0)
        return y

    assert [n.op.name for n in full(split(result, (f64(3),))).stale] == ["exp"]
    assert full(split(temporary, (f64(3),))).stale == ()


def test_gradients_flow_around_a_write_under_no_grad() -> None:
    graph = trace(lambda p, d: op("replace_data", p * 2.0, op("detach", d)) * p, (f64(3), f64(3)), (True, False))
    p = partition(graph, (True, False))
    parameters, data = np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0])
    (gradient,) = run(p, [parameters, data])
    np.testing.assert_array_equal(gradient, data + 2.0 * parameters)


def test_accumulation_opens_with_none_and_goes_in_reverse_program_order() -> None:
    p = split(lambda x: x * 2.0 + x * 3.0, (f64(3),))
    backward = p.backward((True,), (True,))
    accumulations = [n for n in backward.nodes if n.op.name == "acc"]
    assert all(n.operands[0] is None for n in accumulations[:-1])
    first, second = (n for n in backward.nodes if n.op.name == "mul")
    assert [first.operands[1].value, second.operands[1].value] == [3.0, 2.0]  # type: ignore[union-attr]


def test_a_cotangent_of_a_narrow_operand_of_a_cast_is_cast_back() -> None:
    p = split(mixed, (f64(3), f64(3)))
    backward = p.backward((True,), (True, True))
    assert [str(backward.avals[v]) for v in backward.outputs] == ["float64[3]", "float64[3]"]  # type: ignore[index]


def test_a_primitive_without_derivative_is_named() -> None:
    graph = trace(lambda x: op("prod", x, dims=(0,), keepdim=False), (f64(3),), (True,))
    rule, REGISTRY["prod"].vjp_rule = REGISTRY["prod"].vjp_rule, None
    try:
        with pytest.raises(RuntimeError, match=r"prod .*has no derivative"):
            partition(graph, (True,)).backward((True,), (True,))
    finally:
        REGISTRY["prod"].vjp_rule = rule


def leaf(array: Any) -> Any:
    return tracejit.from_numpy(np.array(array)).requires_grad_(array.dtype.kind == "f")


EAGER = [name for name, (_, avals) in PROGRAMS.items() if name != "writes" and all(isinstance(a, Aval) for a in avals)]


@pytest.mark.parametrize("name", EAGER)
def test_gradients_are_bit_for_bit_those_of_the_eager_engine(name: str) -> None:
    function, avals = PROGRAMS[name]
    p = split(function, avals)
    arrays = arrays_for(p.graph)
    tensors = [leaf(a) for a in arrays]
    outputs = function(*tensors)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    cotangents = [tracejit.full_like(o, 1.0 + i) for i, o in enumerate(outputs)]
    wanted = [t for t in tensors if t.requires_grad]
    for mine, eager in zip(run(p, arrays), tracejit.autograd.grad(list(outputs), wanted, cotangents), strict=True):
        assert mine.tobytes() == eager.numpy().tobytes()


@settings(max_examples=200, deadline=None)
@given(write_functions())
def test_programs_of_views_writes_and_no_grad_are_differentiated_as_eager_mode_does(function: Any) -> None:
    """Values, requires_grad of outputs, gradients, and the refusal to go back through what was overwritten."""
    generator = np.random.default_rng(0)
    arrays = [generator.uniform(0.5, 2.0, a.shape) for a in WRITE_AVALS]
    tensors = [leaf(a) for a in arrays]
    try:
        raw, outputs = record(lambda x, y: function(x * 1.0, y * 1.0), tensors)
    except RuntimeError:
        reject()  # eager mode refuses to write there
    p = partition(prepare(raw, check=True), (True, True))
    assert p.differentiable == tuple(o.requires_grad for o in outputs)
    results = interpret(optimise(p.forward, check=True), [np.array(a) for a in arrays])
    for mine, eager in zip(results, outputs, strict=False):
        np.testing.assert_array_equal(mine, eager.detach().numpy())
    roots = [(o, tracejit.full_like(o, 1.0 + i)) for i, o in enumerate(outputs) if o.requires_grad]
    sources, cotangents = [o for o, _ in roots], [g for _, g in roots]
    # A node whose result was overwritten as a whole is dead in the pure graph; eager mode enters it all the same, with zeros.
    dead = functionalise(raw).stale
    try:
        expected = tracejit.autograd.grad(sources, tensors, cotangents, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        assert p.visit(p.differentiable, p.wanted).stale or dead, error
        return
    assert not p.visit(p.differentiable, p.wanted).stale
    try:
        tracejit.autograd.backward(sources, cotangents)
    except RuntimeError as error:
        assert full(p).stale or dead, error
    else:
        assert not full(p).stale
    kept, read = p.reads(p.differentiable, p.wanted)
    direct = [arrays[p.graph.inputs.index(v)] for v in read]
    backward = optimise(p.backward(p.differentiable, p.wanted), check=True)
    gradients = interpret(backward, [*(results[len(outputs) :] if kept else ()), *direct, *(g.numpy() for _, g in roots)])
    for mine, eager in zip(gradients, expected, strict=True):
        if mine is None or eager is None:  # eager mode keeps the path to a tensor that was overwritten, and sends zeros along it
            assert mine is None and (eager is None or not eager.numpy().any())
        else:
            np.testing.assert_allclose(mine, eager.numpy(), rtol=1e-12)


def test_a_minimum_cut_is_found() -> None:
    """The classic network of Cormen et al., chapter 26: maximum flow 23, cut {0, 1, 2, 4} against {3, 5}."""
    network = Network(6)
    edges = [(0, 1, 16), (0, 2, 13), (1, 3, 12), (2, 1, 4), (2, 4, 14), (3, 2, 9), (3, 5, 20), (4, 3, 7), (4, 5, 4)]
    for tail, head, capacity in edges:
        network.add_edge(tail, head, capacity)
    side = network.source_side(0, 5)
    assert side == {0, 1, 2, 4}
    assert sum(c for t, h, c in edges if t in side and h not in side) == 23


def test_history_tells_of_the_split() -> None:
    p = split(mlp, MLP_AVALS)
    assert p.forward.history[-1].startswith("partition: 7 nodes, 2 residuals")
    assert p.backward((True,), p.wanted).history[0].startswith("backward: 7 -> ")
    assert isinstance(p.forward, Graph) and "sum" in names(p.forward)
