"""Tests of which loops run in tiles, and that they do what they did without, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_runner import NARROWEST, TARGETS, WIDE, assert_same_bits

from tracejit.core import dtypes
from tracejit.loops import python
from tracejit.loops.expressions import AxisValue, Expr, Load, Var, builder
from tracejit.loops.language import Axis, Buffer, For, Index, Let, Nest, Reduce, Statement, Store, Tiles
from tracejit.loops.rewrites.pipeline import rewritten
from tracejit.loops.target import Target
from tracejit.loops.verify import NestError, interchangeable, verify

F32, F64 = dtypes.float32, dtypes.float64
X, D, OUT, ROW, MIDDLE, COLUMN = Buffer("x", F32), Buffer("d", F64), Buffer("out", F32), Axis("i"), Axis("k"), Axis("j")
ACROSS, PLACE = Index(((ROW, 1), (COLUMN, 40))), Index(((ROW, 40), (COLUMN, 1)))
LOAD = Load(X, ACROSS)


def tiles(*body: Statement, rows: int = 40, columns: int = 40, target: Target = WIDE) -> Tiles | None:
    loop = For(ROW, rows, (For(COLUMN, columns, body, vector=True),))
    (made,) = rewritten(Nest("kernel", (X, D, OUT), (), (), (loop,)), target).body
    assert isinstance(made, For)
    return made.tiles


def test_what_is_read_across_is_read_in_tiles_as_wide_as_the_lanes() -> None:
    store = Store(OUT, PLACE, LOAD)
    assert tiles(store) == Tiles(16, ((X, ACROSS),))
    assert tiles(store, target=NARROWEST) == Tiles(4, ((X, ACROSS),))
    assert tiles(store, columns=3) == Tiles(4, ((X, ACROSS),))
    wide = builder.cast(Load(D, ACROSS), F32)
    assert tiles(Store(OUT, PLACE, LOAD + wide)) == Tiles(8, ((X, ACROSS), (D, ACROSS)))


def test_nothing_is_cut_where_nothing_is_read_across() -> None:
    assert tiles(Store(OUT, PLACE, Load(X, PLACE))) is None
    assert tiles(Store(OUT, PLACE, Load(X, Index(((ROW, 1), (COLUMN, 3)))))) is None
    assert tiles(Store(OUT, PLACE, LOAD), rows=1) is None
    assert tiles(Store(OUT, PLACE, LOAD), columns=1) is None
    assert tiles(Store(OUT, PLACE, Load(X, Index(((ROW, 1), (COLUMN, 40)), 0, builder.const(1, dtypes.int64))))) is None


def test_loops_whose_iterations_depend_on_each_other_keep_their_order() -> None:
    assert tiles(Store(OUT, Index(((COLUMN, 1),)), LOAD, accumulate=True)) is None  # one position for all rows
    assert tiles(Store(OUT, Index(((COLUMN, 1),)), LOAD)) is None
    before = Load(OUT, Index(((ROW, 40), (COLUMN, 1)), 40))
    assert tiles(Store(OUT, PLACE, LOAD + before)) is None  # the next row's
    anywhere = Load(OUT, Index(PLACE.terms, 0, builder.const(1, dtypes.int64)))
    assert tiles(Store(OUT, PLACE, LOAD + anywhere)) is None
    assert tiles(Store(OUT, PLACE, LOAD), Store(OUT, Index(((ROW, 40), (COLUMN, 1)), 1), LOAD)) is None


def test_tiles_of_loops_that_may_not_change_places_are_refused() -> None:
    for body in ((Store(OUT, Index(((COLUMN, 1),)), LOAD),), (Store(OUT, PLACE, LOAD, accumulate=True),)):
        inner = For(COLUMN, 40, body, vector=True, lanes=4)
        loop = For(ROW, 40, (inner,), tiles=Tiles(4, ((X, ACROSS),)))
        with pytest.raises(NestError, match="may not change places"):
            verify(Nest("kernel", (X, OUT), (), (), (loop,)))
    total = Var("t", F32)
    assert not interchangeable(For(ROW, 40, (Reduce(COLUMN, 40, ((total, "sum", LOAD),)), Store(OUT, Index(((ROW, 1),)), total))))


def test_loops_in_tiles_read_in_their_order() -> None:
    nest = Nest("turned", (X, OUT), (), (), (For(ROW, 40, (For(COLUMN, 40, (Store(OUT, PLACE, LOAD),), vector=True),)),))
    assert python.render(rewritten(nest, WIDE)) == (
        "def turned(x, out):\n"
        "    # x: float32[], out: float32[]\n"
        "    for rows in groups(40, 16):\n"
        "        for columns in groups(40, 16):\n"
        "            for i in rows:\n"
        "                out[i * 40 + columns] = x[i + columns * 40]\n"
        "    return 0\n"
    )


@st.composite
def nests(draw: st.DrawFn) -> tuple[Nest, tuple[np.ndarray, ...]]:
    """Three loops, over a table of any order of dimensions, with names in each of them."""
    dtype = draw(st.sampled_from((F32, F64, dtypes.int64, dtypes.uint8)))
    rows, middle, columns = draw(st.integers(2, 20)), draw(st.integers(1, 3)), draw(st.integers(2, 40))
    x, y, out = Buffer("x", dtype), Buffer("y", dtype), Buffer("out", dtype)
    row, between = Var("row", dtype), Var("between", dtype)
    across = Load(x, Index(((ROW, 1), (MIDDLE, rows), (COLUMN, rows * middle))))
    element = Index(((ROW, middle * columns), (MIDDLE, columns), (COLUMN, 1)))
    factors: list[Expr] = [
        Load(y, element),
        row,
        between,
        builder.cast(AxisValue(ROW), dtype),
        builder.cast(AxisValue(COLUMN), dtype),
    ]
    value = across + draw(st.sampled_from(factors)) * draw(st.sampled_from(factors))
    if draw(st.booleans()):
        value = value - Load(out, element)
    inner = For(COLUMN, columns, (Store(out, element, value),), vector=True)
    named = Let(between, Load(y, Index(((MIDDLE, 1), (ROW, 1)))))
    loop = For(ROW, rows, (Let(row, Load(y, Index(((ROW, 1),)))), For(MIDDLE, middle, (named, inner))))
    count, generator = rows * middle * columns, np.random.default_rng(draw(st.integers(0, 99)))
    arrays = tuple(generator.integers(0, 60, count).astype(dtype.numpy) for _ in range(3))
    return Nest("kernel", (x, y, out), (), (), (loop,)), arrays


@given(nests(), st.sampled_from(TARGETS))
@settings(max_examples=40, deadline=None)
def test_a_nest_in_tiles_does_what_it_did_without(given: tuple[Nest, tuple[np.ndarray, ...]], target: Target) -> None:
    nest, arrays = given
    made = rewritten(nest, target)
    expected, actual = [a.copy() for a in arrays], [a.copy() for a in arrays]
    assert python.load(nest)(*expected) == python.load(made)(*actual) == 0
    for a, e in zip(actual, expected, strict=True):
        assert_same_bits(a, e, python.render(made))
