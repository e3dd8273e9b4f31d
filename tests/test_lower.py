"""Lowering: products, order of steps, commits, exits, memory of a whole program."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest

from tests.graph_programs import f32, i64, op, total
from tests.nest_programs import sgd_step
from tracejit.core.dtypes import float32
from tracejit.core.shapes import contiguous
from tracejit.ir.builder import rebuild
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.tracer import trace
from tracejit.lowering.exits import exit_codes
from tracejit.lowering.lower import lower
from tracejit.lowering.products import plan_product
from tracejit.lowering.steps import CopyCall, GemmCall, NestCall, array_slot
from tracejit.ops.linalg import transpose_matrix
from tracejit.passes.products import Matrix, gemm_layout


def steps_of(graph: Graph, layouts: dict[int, tuple[int, ...]] | None = None) -> tuple[Any, ...]:
    return lower(graph, layouts or {}).spec.steps


def written(function: Any, *avals: Any, target: int = 0) -> Graph:
    """A graph whose first output becomes the contents of an input; the other outputs stay outputs."""
    graph = trace(function, avals)
    value = graph.outputs[0]
    assert isinstance(value, int)
    return rebuild(graph, graph.nodes, outputs=graph.outputs[1:], writes=((graph.inputs[target], value),))


def test_transposed_operands_are_flags_and_not_copies() -> None:
    (gemm,) = steps_of(trace(lambda x, w: x @ transpose_matrix(w), [f32(4, 5), f32(6, 5)]))
    assert (gemm.transpose_a, gemm.transpose_b, gemm.m, gemm.n, gemm.k) == (False, True, 4, 6, 5)


def test_a_product_used_transposed_only_is_computed_transposed() -> None:
    steps = steps_of(trace(lambda x, g: transpose_matrix(transpose_matrix(x) @ g) * 2.0, [f32(4, 5), f32(4, 6)]))
    gemm, nest = steps
    assert (gemm.m, gemm.n, gemm.k, gemm.transpose_a, gemm.transpose_b) == (6, 5, 4, True, False)
    assert nest.sizes == (30,)


def test_rows_with_a_stride_are_read_in_place() -> None:
    (gemm,) = steps_of(trace(lambda x, w: op("slice", x, dim=1, start=2, stop=7, step=1) @ w, [f32(4, 9), f32(5, 6)]))
    assert (gemm.lda, gemm.a.offset) == (9, 8)


def test_columns_with_a_stride_are_copied_first() -> None:
    copy, gemm = steps_of(trace(lambda x, w: op("slice", x, dim=1, start=0, stop=9, step=2) @ w, [f32(4, 9), f32(5, 6)]))
    assert isinstance(copy, NestCall) and isinstance(gemm, GemmCall)


def test_a_linear_recurrence_is_loops_of_the_program() -> None:
    steps = steps_of(trace(lambda a, b: op("linear_recurrence", a, b, dim=1), [f32(4, 5), f32(4, 5)]))
    assert all(isinstance(step, NestCall) for step in steps)


def test_a_batch_over_one_matrix_is_one_product() -> None:
    (gemm,) = steps_of(trace(lambda x, w: x @ w, [f32(2, 3, 4, 5), f32(5, 6)]))
    assert (gemm.m, gemm.n, gemm.k, gemm.batch) == (24, 6, 5, ())


def test_a_batch_of_products_walks_pointers() -> None:
    (gemm,) = steps_of(trace(lambda x, y: x @ y, [f32(2, 3, 4, 5), f32(3, 5, 6)]))
    assert gemm.batch == ((2, 60, 0, 72), (3, 20, 30, 24))
    (gemm,) = steps_of(trace(lambda x, y: x @ y, [f32(2, 3, 4, 5), f32(2, 3, 5, 6)]))
    assert gemm.batch == ((6, 20, 30, 24),)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((3, 4), (4, 1), Matrix(4, False)),
        ((3, 4), (9, 1), Matrix(9, False)),
        ((3, 4), (1, 3), Matrix(3, True)),
        ((3, 4), (0, 1), None),
        ((3, 4), (8, 2), None),
        ((3, 4), (-4, 1), None),
        ((1, 4), (0, 1), Matrix(4, False)),
        ((4, 1), (1, 0), Matrix(1, False)),
        ((1, 1), (7, 9), Matrix(1, False)),
    ],
)
def test_which_layouts_gemm_reads(shape: tuple[int, ...], strides: tuple[int, ...], expected: Matrix | None) -> None:
    assert gemm_layout(shape, strides) == expected


def test_a_strided_batch_does_not_become_rows() -> None:
    a = (100, 5, 1)
    product = plan_product((2, 4, 5), a, (5, 6), contiguous((5, 6)), (2, 4, 6))
    assert (product.m, product.batch) == (4, ((2, 100, 0, 24),))


def test_a_product_over_nothing_is_zeros() -> None:
    (nest,) = steps_of(trace(lambda x, y: x @ y, [f32(3, 0), f32(0, 4)]))
    assert isinstance(nest, NestCall)
    assert steps_of(trace(lambda x, y: x @ y, [f32(0, 3), f32(3, 4)])) == ()


def test_a_parameter_is_updated_in_place_by_the_nest_that_computes_it() -> None:
    (nest,) = steps_of(written(lambda p, g: p - g * 0.1, f32(5), f32(5)))
    assert nest.buffers[-1].slot == array_slot(0)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda p, g: (p - g * 0.1, p * 2.0), "the old contents are read later or beside"),
        (lambda p, g: p - op("flip", p, dims=(0,)), "elements are read at other positions"),
        (lambda p, g: p * total(p), "the old contents are read after a reduction"),
        (lambda p, g: (y := p - g, y), "the new contents are an output too"),
    ],
)
def test_an_update_that_is_not_safe_in_place_is_copied_at_the_end(function: Any, reason: str) -> None:
    graph = written(function, f32(5), f32(5))
    steps = steps_of(graph)
    in_place = not isinstance(steps[-1], CopyCall)
    if reason.startswith("the old contents are read later"):
        assert in_place == (len(steps) == 1)  # one nest that reads and writes each element is safe after all
        return
    assert not in_place, reason


def test_a_written_array_with_strides_is_committed_through_them() -> None:
    steps = steps_of(written(lambda p, g: p - g * 0.1, f32(4, 5), f32(4, 5)), {0: (1, 4)})
    assert len(steps) == 2
    assert steps[-1].buffers[0].slot == array_slot(0)


def test_no_step_writes_user_storage_before_the_last_exit() -> None:
    def function(p: Any, g: Any, index: Any) -> Any:
        new = p - g * 0.1
        chosen = op("gather", g, index, dim=0)
        op("guard", total(op("exp", chosen)) > 0.0, expected=Literal(True))
        return new

    graph = written(function, f32(5), f32(5), i64(2))
    lowered = lower(graph, {})
    storage = array_slot(0)
    exits = [k for k, s in enumerate(lowered.spec.steps) if isinstance(s, NestCall) and "Exit" in repr(s.nest.body)]
    writes = [
        k
        for k, s in enumerate(lowered.spec.steps)
        if (isinstance(s, CopyCall) and s.destination.slot == storage)
        or (isinstance(s, NestCall) and s.buffers and any(a.slot == storage for a in s.buffers) and "sub" in lowered.text[k])
    ]
    assert exits and writes
    assert max(exits) < min(writes)


def test_guards_are_numbered_first_then_all_other_nodes() -> None:
    def function(x: Any, index: Any) -> Any:
        y = op("gather", x, index, dim=0)
        op("guard", total(y) > 0.0, expected=Literal(True))
        op("guard", total(x) > 0.0, expected=Literal(True))
        return y

    graph = trace(function, [f32(5), i64(2)])
    codes = exit_codes(graph)
    assert [codes[id(n)] for n in graph.nodes if n.op.name == "guard"] == [1, 2]
    assert [codes[id(n)] for n in graph.nodes if n.op.name == "gather"] == [3]
    assert sorted(codes.values()) == list(range(1, 1 + len(graph.nodes)))


def test_a_training_step_fits_in_little_memory_and_ends_with_updates_in_place() -> None:
    lowered = lower(sgd_step(64, 784, 128, 10), {})
    assert not any(isinstance(s, CopyCall) for s in lowered.spec.steps)
    assert sum(isinstance(s, GemmCall) for s in lowered.spec.steps) == 5
    assert lowered.arena_bytes < 2 * (784 * 128 * 4)


@pytest.mark.parametrize("layers", [4, 24])
def test_the_arena_of_a_chain_of_layers_does_not_grow_with_its_length(layers: int) -> None:
    def function(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = op("tanh", x @ w)
        return x

    lowered = lower(trace(function, [f32(64, 64)] * (1 + layers)), {})
    assert lowered.arena_bytes == 2 * 64 * 64 * 4


def test_temporaries_of_a_training_step_share_memory() -> None:
    lowered = lower(sgd_step(64, 784, 128, 10), {})
    gradient, hidden = (
        784 * 128 * 4,
        64 * 128 * 4,
    )  # of the first weight; of the four arrays of hidden units one is left beside it
    assert gradient + hidden <= lowered.arena_bytes < gradient + 1.5 * hidden


def test_written_arrays_must_not_overlap_any_input() -> None:
    lowered = lower(written(lambda p, g, h: p - g * h, f32(5), f32(5), f32(5)), {})
    assert lowered.spec.disjoint == (0, 1, 2)
    assert [a.written for a in lowered.spec.arrays] == [True, False, False]


def test_an_opaque_node_is_refused_here() -> None:
    with pytest.raises(ValueError, match="cofactor has no nest"):
        lower(trace(lambda x: op("cofactor", x), [f32(3, 3)]), {})


def test_a_reshaped_result_is_written_straight_into_the_output() -> None:
    lowered = lower(trace(lambda x: op("reshape", x * 2.0, shape=(2, 10)), [f32(4, 5)]), {})
    assert len(lowered.spec.steps) == 1
    assert lowered.spec.arrays[1].shape == (2, 10)


def test_two_outputs_never_share_memory() -> None:
    lowered = lower(
        trace(lambda x: (y := x * 2.0, op("reshape", y, shape=(20,)), op("reshape", y, shape=(2, 10))), [f32(4, 5)]), {}
    )
    assert len(lowered.spec.steps) == 2
    assert len(lowered.fresh) == 3


def test_the_gradient_of_a_weight_that_a_batch_shares_is_one_product() -> None:
    def function(x: Any, g: Any) -> Any:
        return op("sum", transpose_matrix(x) @ g, dims=(0,), keepdim=False)

    (gemm,) = steps_of(trace(function, [f32(8, 4, 5), f32(8, 4, 6)]))
    assert (gemm.m, gemm.n, gemm.k, gemm.transpose_a, gemm.batch) == (5, 6, 32, True, ())


def test_traffic_of_one_pass_is_the_least() -> None:
    traffic = lower(trace(lambda x, y: (x * y + 1.0) * x, [f32(6, 5), f32(6, 5)]), {}).traffic
    assert (traffic.read, traffic.written, traffic.least) == (240, 120, 360) and traffic.ratio == 1.0


def test_traffic_counts_what_lies_in_memory_between_steps() -> None:
    lowered = lower(trace(lambda x, w: (x @ w) * 2.0, [f32(4, 5), f32(5, 6)]), {})
    product, nest = lowered.text
    assert product.endswith("reads 200 bytes, writes 96") and nest.endswith("reads 96 bytes, writes 96")
    assert (lowered.traffic.read, lowered.traffic.written, lowered.traffic.least) == (296, 192, 296)


def test_traffic_of_a_part_of_an_array_is_the_part() -> None:
    lowered = lower(trace(lambda x: op("select", x, 3, dim=0) * 2.0, [f32(100, 5)]), {})
    assert lowered.traffic.read == 20


def test_a_sum_of_products_accumulates_in_one_memory() -> None:
    graph = trace(lambda a, b, c, d, e: (a @ b + c @ d) + e @ d, [f32(4, 5), f32(5, 6), f32(4, 7), f32(7, 6), f32(4, 7)])
    steps = steps_of(graph)
    assert [s.beta for s in steps] == [0.0, 1.0, 1.0]
    assert len({s.c for s in steps}) == 1


def test_a_product_that_is_used_elsewhere_is_not_accumulated_upon() -> None:
    def both(a: Any, b: Any, c: Any) -> Any:
        first = a @ b
        return op("exp", first), first + a @ c

    steps = steps_of(trace(both, [f32(4, 5), f32(5, 6), f32(5, 6)]))
    assert [s.beta for s in steps if isinstance(s, GemmCall)] == [0.0, 0.0]


def test_products_of_other_shapes_or_of_nothing_are_added_outside() -> None:
    broadcast = steps_of(trace(lambda a, b, c: a @ b + c @ b, [f32(4, 5), f32(5, 6), f32(1, 5)]))
    assert [s.beta for s in broadcast if isinstance(s, GemmCall)] == [0.0, 0.0]
    nothing = steps_of(trace(lambda a, b, c, d: a @ b + c @ d, [f32(4, 5), f32(5, 6), f32(4, 0), f32(0, 6)]))
    assert sum(isinstance(s, GemmCall) for s in nothing) == 1 and nothing[0].beta == 0.0


def test_a_sum_of_products_is_not_accumulated_in_user_storage() -> None:
    steps = steps_of(written(lambda x, a, b: a @ b + b @ a, f32(5, 5), f32(5, 5), f32(5, 5)))
    assert isinstance(steps[-1], CopyCall) and all(s.c.slot != array_slot(0) for s in steps[:-1])


@pytest.mark.parametrize(
    ("shape", "nest"), [((4, 4, 4), True), ((1, 3, 2), True), ((5, 4, 4), False), ((4, 5, 4), False), ((4, 4, 5), False)]
)
def test_products_up_to_four_rows_and_columns_are_nests(shape: tuple[int, int, int], nest: bool) -> None:
    m, k, n = shape
    (step,) = steps_of(trace(lambda x, w: x @ w, [f32(m, k), f32(k, n)]))
    assert isinstance(step, NestCall if nest else GemmCall)
    (step,) = steps_of(trace(lambda x, w: x @ w, [f32(7, m, k), f32(7, k, n)]))
    assert isinstance(step, NestCall if nest else GemmCall)


def test_traffic_of_nothing_has_a_ratio() -> None:
    assert lower(trace(lambda x: x, [f32(4)]), {}).traffic.ratio == 1.0


@pytest.mark.parametrize("of_constants", [False, True])
def test_chains_of_operations_are_no_deeper_on_the_stack_than_on_the_page(of_constants: bool) -> None:
    def chain(x: Any) -> Any:
        h = op("full", 0.5, shape=(3,), dtype=float32) if of_constants else x
        for k in range(70):
            h = op("tanh", h * (k + 0.5)) + k
        return h + x

    graph = trace(chain, [f32(3)])
    room = len(inspect.stack()) + 250
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(room)
    try:
        steps = steps_of(graph)
    finally:
        sys.setrecursionlimit(before)
    assert steps


def test_each_step_tells_the_operations_values_and_bytes_that_it_came_from() -> None:
    graph = trace(lambda x, w: total(op("relu", x @ w) * 2.0), [f32(64, 32), f32(32, 16)])
    lowered = lower(graph, {})
    product, nest = lowered.origins
    assert len(lowered.origins) == len(lowered.spec.steps) == len(lowered.text)
    assert (product.operations, product.read, product.written) == (("matmul",), 4 * (64 * 32 + 32 * 16), 4 * 64 * 16)
    assert set(nest.operations) == {"relu", "mul", "sum"} and nest.read == 4 * 64 * 16
    made = {v: node.op.name for node in graph.nodes for v in node.outputs}
    assert [made[v] for v in (*product.values, *nest.values)] == [*product.operations, *nest.operations]
    assert sum(origin.read for origin in lowered.origins) == lowered.traffic.read


def test_a_run_of_equal_nests_tells_of_all_of_them() -> None:
    lowered = lower(sgd_step(4, 6, 5, 3), {})
    assert len(lowered.origins) == len(lowered.spec.steps)
    assert sum(origin.read for origin in lowered.origins) == lowered.traffic.read
    assert sum(origin.written for origin in lowered.origins) == lowered.traffic.written
