"""Tests of which stores are interleaved, and that the nest does what it did before, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_runner import TARGETS, WIDE, assert_same_bits

from tracejit.core import dtypes
from tracejit.loops import python
from tracejit.loops.expressions import AxisValue, Expr, Load, Var, builder
from tracejit.loops.language import Axis, Buffer, For, Index, Interleaved, Nest, Reduce, Statement, Store
from tracejit.loops.rewrites.pipeline import rewritten
from tracejit.loops.target import Target

F32 = dtypes.float32
X, Y, OUT, ROW = Buffer("x", F32), Buffer("y", F32), Buffer("out", F32), Axis("i")
x = Load(X, Index(((ROW, 1),)))


FROM_MEMORY = builder.cast(x, dtypes.int64)


def column(k: int, value: Expr = x, width: int = 3, accumulate: bool = False, buffer: Buffer = OUT) -> Store:
    return Store(buffer, Index(((ROW, width),), k), value, accumulate)


def body(*statements: Statement, vector: bool = True) -> tuple[Statement, ...]:
    (made,) = rewritten(Nest("kernel", (X, Y, OUT), (), (), (For(ROW, 20, statements, vector),)), WIDE).body
    assert isinstance(made, For)
    return made.body


@pytest.mark.parametrize("width", [2, 3, 4])
def test_stores_to_all_columns_are_one(width: int) -> None:
    columns = tuple(column(k, width=width) for k in range(width))
    other = Store(Y, Index(((ROW, 1),)), x)
    assert body(other, *columns, other, *columns) == (other, Interleaved(columns), other, Interleaved(columns))


def test_columns_of_a_reduction_are_one() -> None:
    total, columns = Var("t", F32), tuple(column(k) for k in range(3))
    nest = Nest("kernel", (X, OUT), (), (), (Reduce(ROW, 20, ((total, "sum", x),), columns),))
    (made,) = rewritten(nest, WIDE).body
    assert isinstance(made, Reduce) and made.body == (Interleaved(columns),)


WRONG: dict[str, tuple[Statement, ...]] = {
    "one missing": (column(0), column(1)),
    "another order": (column(1), column(0), column(2)),
    "another buffer": (column(0), column(1, buffer=Y), column(2)),
    "positions from memory": tuple(Store(OUT, Index(((ROW, 3),), k, FROM_MEMORY), x) for k in range(3)),
    "sums": (column(0), column(1, accumulate=True), column(2)),
    "one that reads": (column(0), column(1, Load(OUT, Index(((ROW, 3),)))), column(2)),
    "a wide table": tuple(column(k, width=5) for k in range(5)),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_stores_stay_single(name: str) -> None:
    assert body(*WRONG[name]) == WRONG[name]


def test_a_loop_without_lanes_keeps_its_stores() -> None:
    columns = tuple(column(k) for k in range(3))
    assert body(*columns, vector=False) == columns


@given(st.integers(2, 4), st.integers(1, 40), st.lists(st.integers(0, 3), min_size=4, max_size=4), st.sampled_from(TARGETS))
@settings(max_examples=30, deadline=None)
def test_a_nest_with_interleaved_stores_does_what_it_did_without(width: int, rows: int, which: list[int], target: Target) -> None:
    values: list[Expr] = [x, Load(Y, Index(((ROW, -1),), rows - 1)), builder.cast(AxisValue(ROW), F32), builder.const(2, F32)]
    columns = tuple(column(k, values[which[k]] * x, width) for k in range(width))
    nest = Nest("kernel", (X, Y, OUT), (), (), (For(ROW, rows, columns, vector=True),))
    made = rewritten(nest, target)
    assert made != nest
    data = np.random.default_rng(rows).normal(size=(2, rows)).astype(np.float32)
    results = []
    for n in (nest, made):
        results.append(np.zeros(rows * width, np.float32))
        assert python.load(n)(data[0], data[1], results[-1]) == 0
    assert_same_bits(results[1], results[0], python.render(made))
