"""Tests of the lanes that loops get: how many, where none, and that a nest with lanes does what it did without, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_runner import NARROWEST, TARGETS, WIDE, assert_same_bits

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.loops import python
from tracejit.loops.expressions import AxisValue, Expr, Load, Var, builder
from tracejit.loops.language import Axis, Buffer, Exit, Extent, For, Index, Let, Nest, Reduce, Size, Statement, Store
from tracejit.loops.rewrites.vectorise import LONG, vectorise
from tracejit.loops.target import Target

F32, F64 = dtypes.float32, dtypes.float64
N, COLUMN = Size("n"), Axis("i")
AT = Index(((COLUMN, 1),))


def loop(*body: Statement, extent: Extent = N, vector: bool = True) -> For:
    return For(COLUMN, extent, body, vector)


def lanes(loop: For, target: Target) -> int:
    (made,) = vectorise(Nest("kernel", (Buffer("x", F32),), (N,), (), (loop,)), target).body
    assert isinstance(made, For)
    return made.lanes


def stored(dtype: DType, extent: Extent = N) -> Nest:
    x = Buffer("x", dtype)
    return Nest("kernel", (x,), (N,), (), (loop(Store(x, AT, Load(x, AT)), extent=extent),))


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_lanes_fill_a_register_with_the_widest_elements(dtype: DType, target: Target) -> None:
    (made,) = vectorise(stored(dtype), target).body
    assert isinstance(made, For) and made.lanes == target.bits // (8 * max(dtype.itemsize, 4))


@pytest.mark.parametrize(("extent", "masked", "unmasked"), [(1, 2, 2), (3, 4, 2), (4, 4, 4), (5, 8, 4), (9, 16, 4), (40, 16, 4)])
def test_loops_of_few_iterations_have_few_lanes(extent: int, masked: int, unmasked: int) -> None:
    for target, expected in ((WIDE, masked), (NARROWEST, unmasked)):
        (made,) = vectorise(stored(F32, extent), target).body
        assert isinstance(made, For) and made.lanes == expected


def test_long_computations_have_two_registers_of_lanes() -> None:
    x = Buffer("x", F32)
    value: Expr = Load(x, AT)
    for _ in range(LONG):
        value = value + 1.0
    assert lanes(loop(Store(x, AT, value)), WIDE) == 32


def test_only_vector_loops_with_independent_iterations_have_lanes() -> None:
    x, p = Buffer("x", F32), Buffer("p", dtypes.int64)
    value = Load(x, AT)
    for body in (Store(x, Index(), value), Store(x, Index((), 0, Load(p, AT)), value, accumulate=True)):
        nest = Nest("kernel", (x, p), (N,), (), (loop(body),))
        assert vectorise(nest, WIDE).body == nest.body
    assert lanes(loop(Store(x, AT, value), vector=False), WIDE) == 1


def test_loops_inside_loops_and_reductions_get_lanes() -> None:
    x, j, total = Buffer("x", F32), Axis("j"), Var("total", F32)
    inner = loop(Store(x, AT, Load(x, AT)))
    summed = Reduce(j, 3, ((total, "sum", Load(x, Index(((j, 1),)))),), (inner,))
    for s in vectorise(Nest("kernel", (x,), (N,), (), (For(j, 3, (inner,)), summed)), WIDE).body:
        assert isinstance(s, For | Reduce) and isinstance(s.body[0], For) and s.body[0].lanes == 16


def test_a_loop_with_lanes_reads_as_groups_of_iterations() -> None:
    assert python.render(vectorise(stored(F32), WIDE)) == (
        "def kernel(x, n):\n    # x: float32[]\n    for i in groups(n, 16):\n        x[i] = x[i]\n    return 0\n"
    )


@st.composite
def nests(draw: st.DrawFn) -> tuple[Nest, tuple[np.ndarray, ...]]:
    """Rows of a table, with values of rows, columns and positions from memory, stored and added to in several ways."""
    dtype = draw(st.sampled_from((F32, F64, dtypes.int32, dtypes.uint8)))
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    x, p, out, r = Buffer("x", dtype), Buffer("p", dtypes.int64), Buffer("out", dtype), Axis("r")
    count = rows * columns
    values: list[Expr] = [
        Load(x, Index(((r, columns), (COLUMN, 1)))),
        Load(x, Index(((r, columns), (COLUMN, -1)), columns - 1)),
        Load(x, Index(((r, 1),))),
        Load(x, Index((), 0, Load(p, Index(((r, columns), (COLUMN, 1)))))),
        builder.cast(AxisValue(COLUMN), dtype),
        builder.const(3, dtype),
    ]
    body: list[Statement] = []
    for k in range(draw(st.integers(1, 5))):
        operation = draw(st.sampled_from((builder.add, builder.mul, builder.sub, builder.maximum)))
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        condition = builder.lt(a, b)
        var = Var(f"v{k}", dtype)
        body.append(Let(var, builder.select(condition, operation(a, b), a)))
        values.append(var)
    columnwise = draw(st.sampled_from((((r, columns), (COLUMN, 1)), ((COLUMN, rows), (r, 1)), ((r, columns), (COLUMN, -1)))))
    offset = columns - 1 if columnwise[1][1] == -1 else 0
    if draw(st.booleans()):
        body.append(Exit(builder.gt(values[-1], 100), 7))
    body.append(Store(out, Index(columnwise, offset), values[-1], accumulate=draw(st.booleans())))
    nest = Nest("kernel", (x, p, out), (), (), (For(r, rows, (For(COLUMN, columns, tuple(body), vector=True),)),))
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    data = generator.integers(0, 60, count).astype(dtype.numpy)
    return nest, (data, generator.integers(0, count, count), np.ones(count, dtype.numpy))


@given(nests(), st.sampled_from(TARGETS))
@settings(max_examples=60, deadline=None)
def test_a_nest_with_lanes_does_what_it_did_without(given: tuple[Nest, tuple[np.ndarray, ...]], target: Target) -> None:
    nest, arrays = given
    made = vectorise(nest, target)
    assert "groups(" in python.render(made)
    expected, actual = [a.copy() for a in arrays], [a.copy() for a in arrays]
    code = python.load(nest)(*expected)
    assert python.load(made)(*actual) == code
    for a, e in zip(actual, expected, strict=True) if code == 0 else ():
        assert_same_bits(a, e, python.render(made))
