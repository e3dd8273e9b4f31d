"""Nests of groups: phases, hoisting, what crosses phases through memory, accumulation, collapsed loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.graph_programs import f32, gelu_chain, i64, op, softmax, total
from tests.nest_programs import value_and_gradients
from tracejit.ir.graph import Graph
from tracejit.ir.tracer import trace
from tracejit.loops.expressions import Load
from tracejit.loops.language import Exit, For, Let, Nest, Reduce, Store, flatten
from tracejit.lowering.lower import lower
from tracejit.lowering.lowered import Lowered
from tracejit.lowering.steps import NestCall, NestRun
from tracejit.passes.pipeline import optimise


def lowered(graph: Graph, layouts: Mapping[int, tuple[int, ...]] | None = None) -> Lowered:
    return lower(graph, layouts or {})


def only_nest(function: Callable[..., Any], *avals: Any, layouts: Mapping[int, tuple[int, ...]] | None = None) -> Nest:
    (step,) = lowered(optimise(trace(function, avals)), layouts).spec.steps
    assert isinstance(step, NestCall)
    return step.nest


def kinds(nest: Nest, *wanted: type) -> list[Any]:
    return [s for s in flatten(nest.body) if isinstance(s, wanted)]


def operations(nest: Nest) -> list[str]:
    return [s.value.operation for s in kinds(nest, Let) if hasattr(s.value, "operation")]


def test_contiguous_dimensions_become_one_loop() -> None:
    nest = only_nest(lambda x, y: x * y, f32(3, 4, 5), f32(3, 4, 5))
    (loop,) = kinds(nest, For)
    assert loop.vector


def test_a_broadcast_row_keeps_two_loops_and_a_broadcast_number_is_loaded_outside() -> None:
    nest = only_nest(lambda x, row, number: x * row + number, f32(8, 9, 10), f32(10), f32())
    assert len(kinds(nest, For)) == 2
    assert isinstance(nest.body[0], Let)
    assert isinstance(nest.body[0].value, Load)


@pytest.mark.parametrize(
    ("strides", "loops"), [((12, 4, 1), 1), ((24, 4, 1), 2), ((24, 8, 1), 2), ((1, 2, 6), 3), ((24, 8, 2), 1)]
)
def test_inputs_are_read_through_their_strides(strides: tuple[int, ...], loops: int) -> None:
    nest = only_nest(lambda x: x + 1.0, f32(2, 3, 4), layouts={0: strides})
    assert len(kinds(nest, For)) == loops


def test_the_gelu_chain_and_its_gradient_are_one_loop() -> None:
    (step,) = lowered(value_and_gradients(gelu_chain, [f32(1000)], [0])).spec.steps
    assert isinstance(step, NestCall)
    (loop,) = kinds(step.nest, For, Reduce)
    assert isinstance(loop, Reduce)
    assert operations(step.nest).count("tanh") == operations(step.nest).count("exp") == 1


def test_a_softmax_computes_each_exponential_once() -> None:
    nest = only_nest(softmax, f32(64, 32))
    assert [s.items[0][1] for s in kinds(nest, Reduce)] == ["max", "sum"]
    assert operations(nest).count("exp") == 1
    (scratch,) = nest.temporaries
    assert scratch.dtype is f32().dtype


def test_cheap_values_are_computed_again_rather_than_kept() -> None:
    nest = only_nest(lambda x: (y := x * 2.0) - op("sum", y, dims=(1,), keepdim=True), f32(64, 32))
    assert not nest.temporaries
    assert operations(nest).count("mul") == 2


@pytest.mark.parametrize(("row", "kept"), [(32, False), (64, True), (1 << 15, False)])
def test_a_long_chain_is_kept_where_a_row_is_long_but_fits_into_near_memory(row: int, kept: bool) -> None:
    nest = only_nest(
        lambda x, y, z: (v := x * y + z - x * z) - op("amax", v, dims=(1,), keepdim=True), f32(8, row), f32(8, row), f32(8, row)
    )
    assert bool(nest.temporaries) == kept
    assert operations(nest).count("mul") == (2 if kept else 4)


def test_reductions_of_one_pass_share_a_loop_and_its_loads() -> None:
    nest = only_nest(lambda x: tuple(op(r, x, dims=(1,), keepdim=False) for r in ("sum", "amax", "amin")), f32(64, 32))
    (loop,) = kinds(nest, Reduce)
    assert len(loop.items) == 3
    assert sum(isinstance(s, Let) and isinstance(s.value, Load) for s in loop.body) == 1


def test_column_sums_accumulate_over_the_inner_dimension() -> None:
    nest = only_nest(lambda x: op("sum", x * 2.0, dims=(0,), keepdim=False), f32(64, 32))
    clear, run = nest.body
    assert isinstance(clear, For) and isinstance(run, For)
    (store,) = [s for s in flatten(run.body) if isinstance(s, Store)]
    assert store.accumulate
    assert kinds(nest, For)[-1].vector


@pytest.mark.parametrize(
    ("shape", "scratch"),
    [((64, 64), True), ((4, 64), True), ((3, 64), False), ((8, 4096), False), ((64, 32), False)],
)
def test_many_rows_are_added_up_in_aligned_scratch(shape: tuple[int, int], scratch: bool) -> None:
    nest = only_nest(lambda x: (op("sum", x * 2.0, dims=(0,), keepdim=False), op("exp", x)), f32(*shape))
    (store,) = [s for s in kinds(nest, Store) if s.accumulate]
    assert (store.buffer in nest.temporaries) == scratch
    assert all(t.dtype.name == "float32" for t in nest.temporaries)


def test_a_total_over_rows_is_collected_in_float64() -> None:
    nest = only_nest(lambda x: total(op("amax", x, dims=(1,), keepdim=False)), f32(64, 32))
    (scratch,) = nest.temporaries
    assert scratch.dtype.name == "float64"


def test_an_index_is_checked_before_it_is_used() -> None:
    nest = only_nest(lambda x, i: op("gather", x, i, dim=0) * 2.0, f32(9), i64(5))
    body = kinds(nest, For)[0].body
    (check,) = [k for k, s in enumerate(body) if isinstance(s, Exit)]
    uses = [
        k for k, s in enumerate(body) if isinstance(s, Let) and isinstance(s.value, Load) and s.value.index.dynamic is not None
    ]
    assert uses and check < min(uses)


def test_nothing_is_read_before_a_loop_without_iterations() -> None:
    nest = only_nest(lambda x, y: x + y, f32(3, 0), f32(3, 1))
    assert not [s for s in nest.body if isinstance(s, Let)]


def test_nests_of_one_form_are_equal_whatever_their_sizes() -> None:
    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a - b * 0.1, c - d * 0.1

    (run,) = lowered(trace(function, [f32(7), f32(7), f32(300), f32(300)])).spec.steps
    assert isinstance(run, NestRun)
    first, second = run.calls
    assert (first.sizes, second.sizes) == ((7,), (300,))
    assert first.nest is second.nest


def test_all_loads_of_an_iteration_come_before_its_stores() -> None:
    nest = only_nest(lambda x, y: (op("exp", x), op("exp", x) * y, y * 2.0), f32(64), f32(64))
    (loop,) = kinds(nest, For)
    stores = [k for k, s in enumerate(loop.body) if isinstance(s, Store)]
    loads = [k for k, s in enumerate(loop.body) if isinstance(s, Let) and isinstance(s.value, Load)]
    assert max(loads) < min(stores)


def test_a_copy_backwards_says_so_in_its_form() -> None:
    nest = only_nest(lambda x: op("flip", x, dims=(1,)), f32(8, 9))
    (load,) = [s.value for s in kinds(nest, Let) if isinstance(s.value, Load)]
    assert load.index.terms[-1][1] == -1


def test_rows_chosen_by_an_index_are_read_as_rows() -> None:
    nest = only_nest(lambda x, i: op("index_select", x, i, dim=0), f32(50, 40), i64(30))
    inner = next(s for s in kinds(nest, For) if s.vector)
    (load,) = [s.value for s in inner.body if isinstance(s, Let)]
    assert isinstance(load, Load)
    assert load.index.terms == ((inner.axis, 1),)
    assert not any(isinstance(s, Exit) for s in inner.body)


def test_elements_chosen_one_by_one_add_their_own_coordinate_to_the_index() -> None:
    nest = only_nest(lambda x, i: op("gather", x, i, dim=0), f32(50, 40), i64(30, 40))
    (load,) = [s.value for s in kinds(nest, Let) if isinstance(s.value, Load) and s.value.index.dynamic is not None]
    assert load.index.terms == ()


@pytest.mark.parametrize(("rows", "loops"), [(40, 1), (3, 2)])
def test_a_narrow_table_is_joined_row_by_row(rows: int, loops: int) -> None:
    nest = only_nest(lambda x, y: op("cat", x, y, dim=1), f32(rows, 1), f32(rows, 1))
    assert len(kinds(nest, For)) == loops
    assert len(kinds(nest, Store)) == 2


@pytest.mark.parametrize(("dim", "reductions"), [(0, 1), (1, 0)])
def test_a_transposed_input_is_summed_in_the_order_of_its_memory(dim: int, reductions: int) -> None:
    nest = only_nest(lambda x: op("sum", x, dims=(dim,), keepdim=False), f32(50, 60), layouts={0: (1, 50)})
    assert len(kinds(nest, Reduce)) == reductions  # else late, in vectors
    loop = next(s for s in kinds(nest, For, Reduce) if any(isinstance(s, Let) and isinstance(s.value, Load) for s in s.body))
    (load,) = [s.value for s in loop.body if isinstance(s, Let) and isinstance(s.value, Load)]
    assert dict(load.index.terms)[loop.axis] == 1


def test_transposed_inputs_whose_result_is_transposed_too_are_one_contiguous_loop() -> None:
    def combined(x: Any, y: Any) -> Any:
        x, y = (op("permute", v, dims=(1, 0)) for v in (x, y))
        return op("permute", op("exp", x * 2.0 + y), dims=(1, 0))

    nest = only_nest(combined, f32(50, 60), f32(50, 60))
    (loop,) = kinds(nest, For)
    assert loop.vector


def test_what_is_only_reduced_is_computed_in_the_order_of_memory() -> None:
    nest = only_nest(lambda x: op("sum", x * x, dims=(1,), keepdim=False), f32(50, 60), layouts={0: (1, 50)})
    assert not kinds(nest, Reduce)
    loop = next(s for s in kinds(nest, For) if any(isinstance(s, Let) and isinstance(s.value, Load) for s in s.body))
    (load,) = [s.value for s in loop.body if isinstance(s, Let) and isinstance(s.value, Load)]
    assert dict(load.index.terms)[loop.axis] == 1
