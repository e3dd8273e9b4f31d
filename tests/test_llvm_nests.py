"""Tests of the LLVM rendering: every operation, loop form and reduction, bit for bit against the reference, for several vector widths."""

from __future__ import annotations

import numpy as np
import pytest
from nest_runner import TARGETS, assert_renderings_agree, assert_same_bits, run_compiled

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.llvm.reductions import Emitter
from tracejit.loops.evaluate import evaluate
from tracejit.loops.expressions import Apply, AxisValue, Expr, Load, ScalarParam, SizeValue, Var, builder
from tracejit.loops.language import Axis, Buffer, Exit, For, Index, Let, Nest, Reduce, Scalar, Size, Store
from tracejit.loops.rewrites.pipeline import rewritten
from tracejit.loops.target import Target

b = builder
FLOATS = (dtypes.float32, dtypes.float64)
INTEGERS = (dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    -2.5,
    3.0,
    np.nan,
    np.inf,
    -np.inf,
    1e-42,
    -1e-42,
    1e-310,
    3e38,
    -3e38,
    70000.5,
    -129.7,
    3e9,
    1e19,
]


def values(dtype: DType, count: int, seed: int = 0) -> np.ndarray:
    """Random values with all the awkward ones in front."""
    generator = np.random.default_rng(seed)
    if dtype.is_floating_point:
        with np.errstate(over="ignore"):
            awkward = np.array(SPECIAL).astype(dtype.numpy)
        ordinary = generator.normal(size=count).astype(dtype.numpy) * 3
    elif dtype is dtypes.bool_:
        return generator.integers(0, 2, count).astype(bool)
    else:
        limits = np.iinfo(dtype.numpy)
        awkward = np.array(
            [0, 1, 2, 3, 7, limits.max, limits.min, limits.max - 1, limits.min + 1, *([-1, -2, -7] if limits.min else [])],
            dtype.numpy,
        )
        ordinary = generator.integers(limits.min, limits.max, count, dtype=dtype.numpy, endpoint=True)
    result = np.concatenate([awkward, ordinary])[:count]
    return generator.permutation(result)


def elementwise(
    expressions: list[Expr], inputs: tuple[Buffer, ...], axis: Axis, count: int
) -> tuple[Nest, tuple[np.ndarray, ...]]:
    """A vector loop that stores every expression to an output of its own."""
    outputs = tuple(Buffer(f"out{i}", e.dtype) for i, e in enumerate(expressions))
    at = Index(((axis, 1),))
    size = Size("n")
    body = tuple(Store(o, at, e) for o, e in zip(outputs, expressions, strict=True))
    nest = Nest("elementwise", (*inputs, *outputs), (size,), (), (For(axis, size, body, vector=True),))
    return nest, tuple(np.zeros(count, o.dtype.numpy) for o in outputs)


def pairs(dtype: DType, count: int) -> tuple[np.ndarray, np.ndarray]:
    """All awkward values against each other, then random ones."""
    base = values(dtype, 24, 1)
    x, y = (g.ravel() for g in np.meshgrid(base, base))
    rest = count - x.size
    return np.concatenate([x, values(dtype, rest, 2)]), np.concatenate([y, values(dtype, rest, 3)])


FLOAT_BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "fmod",
    "maximum",
    "minimum",
    "copysign",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
]
FLOAT_UNARY = ["neg", "abs", "sqrt", "floor", "ceil", "trunc", "rint", "isnan", "isinf", "isfinite", "signbit", "rsqrt"]
INTEGER_BINARY = [
    "add",
    "sub",
    "mul",
    "floor_divide",
    "remainder",
    "fmod",
    "maximum",
    "minimum",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "bit_and",
    "bit_or",
    "bit_xor",
    "shl",
    "shr",
    "pow",
]
BOOL_BINARY = [
    "add",
    "mul",
    "maximum",
    "minimum",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "bit_and",
    "bit_or",
    "bit_xor",
    "logical_and",
    "logical_or",
    "logical_xor",
]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_operations_on_floats_have_numpys_bits(dtype: DType) -> None:
    count = 24 * 24 + 37
    x, y = pairs(dtype, count)
    inputs, i = (Buffer("x", dtype), Buffer("y", dtype)), Axis("i")
    u, v = (Load(buffer, Index(((i, 1),))) for buffer in inputs)
    expressions = [getattr(b, name)(u, v) for name in FLOAT_BINARY] + [getattr(b, name)(u) for name in FLOAT_UNARY]
    expressions += [
        b.fma(u, v, u + 1.0),
        b.select(u < v, u, 2.0),
        b.libm("sinh", u),
        b.libm("atan2", u, v),
        b.bitcast(u, dtypes.int32 if dtype.itemsize == 4 else dtypes.int64),
    ]
    nest, outputs = elementwise(expressions, inputs, i, count)
    result = assert_renderings_agree(nest, (x, y, *outputs), (count,))
    with np.errstate(all="ignore"):
        for name, array in zip(FLOAT_BINARY[:8], result[2:], strict=False):
            function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}.get(name) or getattr(np, name)
            np.testing.assert_array_equal(array, function(x, y), err_msg=name)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_operations_on_integers_wrap_and_survive_division_by_zero(dtype: DType) -> None:
    count = 24 * 24 + 37
    x, y = pairs(dtype, count)
    inputs, i = (Buffer("x", dtype), Buffer("y", dtype)), Axis("i")
    u, v = (Load(buffer, Index(((i, 1),))) for buffer in inputs)
    expressions = [getattr(b, name)(u, v) for name in INTEGER_BINARY]
    expressions += [
        b.neg(u),
        b.abs(u),
        b.bit_not(u),
        b.select(u < v, u, 2),
        b.floor_divide(u, 3),
        b.remainder(u, 7),
        b.shl(u, 3),
        b.shr(u, 2),
    ]
    if dtype.is_signed:
        expressions += [b.floor_divide(u, -1), b.remainder(u, -3), b.fmod(u, -1)]
    nest, outputs = elementwise(expressions, inputs, i, count)
    result = assert_renderings_agree(nest, (x, y, *outputs), (count,))
    with np.errstate(all="ignore"):
        for k, function in enumerate((np.add, np.subtract, np.multiply, np.floor_divide, np.remainder, np.fmod)):
            np.testing.assert_array_equal(result[2 + k], function(x, y))


def test_operations_on_bools_are_logical() -> None:
    count = 67
    x, y = values(dtypes.bool_, count, 1), values(dtypes.bool_, count, 2)
    inputs, i = (Buffer("x", dtypes.bool_), Buffer("y", dtypes.bool_)), Axis("i")
    u, v = (Load(buffer, Index(((i, 1),))) for buffer in inputs)
    nest, outputs = elementwise([*(getattr(b, n)(u, v) for n in BOOL_BINARY), b.bit_not(u), b.select(u, v, u)], inputs, i, count)
    result = assert_renderings_agree(nest, (x, y, *outputs), (count,))
    np.testing.assert_array_equal(result[2], x | y)


@pytest.mark.parametrize("source", dtypes.ALL, ids=lambda d: d.name)
def test_casts_are_numpys_astype(source: DType) -> None:
    count = 83
    x = values(source, count, 5)
    buffer, i = Buffer("x", source), Axis("i")
    u = Load(buffer, Index(((i, 1),)))
    nest, outputs = elementwise([b.cast(u, target) for target in dtypes.ALL], (buffer,), i, count)
    result = assert_renderings_agree(nest, (x, *outputs), (count,))
    with np.errstate(all="ignore"):
        for target, array in zip(dtypes.ALL, result[1:], strict=True):
            expected = x.astype(target.numpy)
            if target in (dtypes.float16, dtypes.bfloat16):  # NumPy does not know the NaN of others' dtypes
                array, expected = array.astype(np.float32), expected.astype(np.float32)
            np.testing.assert_array_equal(array, expected, err_msg=target.name)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_elementary_functions_have_the_references_bits(dtype: DType) -> None:
    x, y = pairs(dtype, 24 * 24 + 100)
    x[-5:] = [1e6, -1e5, 3e8, 1e18, 49999.0]  # sin and cos leave their usual path
    inputs, i = (Buffer("x", dtype), Buffer("y", dtype)), Axis("i")
    u, v = (Load(buffer, Index(((i, 1),))) for buffer in inputs)
    names = ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tanh", "sigmoid", "erf", "tan"]
    expressions = [*(getattr(b, n)(u) for n in names), b.pow(u, v)]
    nest, outputs = elementwise(expressions, inputs, i, x.size)
    for target in TARGETS:
        actual = tuple(o.copy() for o in outputs)
        run_compiled(nest, (x, y, *actual), (x.size,), target=target)
        for name, expression, array in zip([*names, "pow"], expressions, actual, strict=True):
            assert_same_bits(array, evaluate(expression, {u: x, v: y}), f"{name} on {target}")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 100])
@pytest.mark.parametrize("static", [False, True], ids=["sized", "exact"])
def test_remainders_of_any_length_write_exactly_their_elements(count: int, static: bool) -> None:
    x = values(dtypes.float32, 128, 3)
    buffer, out, i, n = Buffer("x", dtypes.float32), Buffer("out", dtypes.float64), Axis("i"), Size("n")
    at = Index(((i, 1),))
    store = Store(out, at, b.cast(Load(buffer, at), dtypes.float64) + b.cast(AxisValue(i), dtypes.float64))
    extent = count if static else n
    nest = Nest("tail", (buffer, out), () if static else (n,), (), (For(i, extent, (store,), vector=True),))
    result = assert_renderings_agree(nest, (x, np.full(128, 7.5)), () if static else (count,))
    assert (result[1][count:] == 7.5).all()


@pytest.mark.parametrize("target", [dtypes.bool_, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.float32], ids=lambda d: d.name)
@pytest.mark.parametrize("count", [1, 2, 3, 17, 35])
def test_narrowing_stores_do_not_touch_their_neighbours(target: DType, count: int) -> None:
    out, i, s = Buffer("out", target), Axis("i"), Scalar("s", dtypes.int64)
    value = b.cast(AxisValue(i) * ScalarParam(s) + 1, target)
    nest = Nest("narrowing", (out,), (), (s,), (For(i, count, (Store(out, Index(((i, 1),)), value),), vector=True),))
    result = assert_renderings_agree(nest, (np.zeros(64, target.numpy),), (), (2,))
    assert (result[0][:count] != 0).all() and (result[0][count:] == 0).all()


def test_strides_offsets_and_scalar_operands_reach_the_right_elements() -> None:
    rows, columns = 5, 21
    x = np.arange(400, dtype=np.float32)
    bias, out = np.arange(rows, dtype=np.float32), np.zeros(rows * columns + 3, np.float32)
    X, B, R = Buffer("x", dtypes.float32), Buffer("bias", dtypes.float32), Buffer("out", dtypes.float32)
    i, j, n, stride, s = Axis("i"), Axis("j"), Size("n"), Size("stride"), Scalar("scale", dtypes.float32)
    value = Load(X, Index(((i, columns), (j, stride)), 4)) * ScalarParam(s) + Load(B, Index(((i, 1),)))
    value = value + Load(X, Index(((j, -1),), 100)) + b.cast(SizeValue(n), dtypes.float32)
    inner = For(j, n, (Store(R, Index(((i, columns), (j, 1)), 3), value),), vector=True)
    nest = Nest("strided", (X, B, R), (n, stride), (s,), (For(i, rows, (inner,)),))
    result = assert_renderings_agree(nest, (x, bias, out), (columns, 3), (2.5,))
    row, column = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    expected = x[row * columns + column * 3 + 4] * np.float32(2.5) + bias[row] + x[100 - column] + np.float32(columns)
    np.testing.assert_array_equal(result[2][3:], expected.ravel())


@pytest.mark.parametrize("dtype", [dtypes.bool_, dtypes.uint8, dtypes.int16, dtypes.float32, dtypes.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 37])
def test_memory_is_read_and_written_backwards_in_vectors_of_reversed_lanes(dtype: DType, count: int) -> None:
    X, R, S, i, n = Buffer("x", dtype), Buffer("read", dtype), Buffer("written", dtype), Axis("i"), Size("n")
    forwards, backwards = Index(((i, 1),)), Index(((i, -1),), 39)
    body = (Store(R, forwards, Load(X, backwards)), Store(S, backwards, Load(X, forwards)))
    nest = Nest("backwards", (X, R, S), (n,), (), (For(i, n, body, vector=True),))
    for target in TARGETS:
        text = Emitter(rewritten(nest, target), "nest", target).text()
        assert "gather" not in text and "scatter" not in text
    x = values(dtype, 40)
    read, written = assert_renderings_agree(nest, (x, np.zeros_like(x), np.zeros_like(x)), (count,))[1:]
    np.testing.assert_array_equal(read, np.concatenate([x[::-1][:count], np.zeros(40 - count, x.dtype)]))
    np.testing.assert_array_equal(written[::-1], np.concatenate([x[:count], np.zeros(40 - count, x.dtype)]))


def test_gathers_and_scatters_follow_dynamic_indices() -> None:
    n = 45
    table, positions = np.arange(60, dtype=np.float64), np.random.default_rng(0).permutation(60)[:n]
    T, P, R, S = (
        Buffer("table", dtypes.float64),
        Buffer("positions", dtypes.int64),
        Buffer("out", dtypes.float64),
        Buffer("spread", dtypes.float64),
    )
    i, at = (axis := Axis("i")), Index(((axis, 1),))
    position = Load(P, at)
    gather = For(i, n, (Store(R, at, Load(T, Index((), 0, position))), Store(S, Index(((i, 2),)), Load(T, at))), vector=True)
    j = Axis("j")
    scatter = For(
        j, n, (Store(T, Index((), 0, Load(P, Index(((j, 1),)))), b.const(-1.0, dtypes.float64), accumulate=True),), vector=True
    )
    nest = Nest("positions", (T, P, R, S), (), (), (gather, scatter))
    result = assert_renderings_agree(nest, (table, positions, np.zeros(n), np.zeros(2 * n)))
    np.testing.assert_array_equal(result[2], positions.astype(np.float64))
    np.testing.assert_array_equal(result[3][::2], np.arange(n))
    np.testing.assert_array_equal(np.flatnonzero(result[0] != np.arange(60)), np.sort(positions))


def test_a_dynamic_index_may_also_move_with_the_loop() -> None:
    n, rows = 37, 3
    table, starts = np.arange(400.0), np.random.default_rng(0).integers(0, 50, n)
    T, P, R, i, j = (
        Buffer("table", dtypes.float64),
        Buffer("starts", dtypes.int64),
        Buffer("out", dtypes.float64),
        Axis("i"),
        Axis("j"),
    )
    per_lane = Load(T, Index(((i, 40), (j, 1)), 2, Load(P, Index(((j, 1),)))))
    per_row = Load(T, Index(((j, 1),), 0, Load(P, Index(((i, 1),))), 2))
    inner = For(j, n, (Store(R, Index(((i, n), (j, 1))), per_lane * 1000.0 + per_row),), vector=True)
    nest = Nest("moving", (T, P, R), (), (), (For(i, rows, (inner,)),))
    result = assert_renderings_agree(nest, (table, starts, np.zeros(n * rows)))
    row, column = np.meshgrid(np.arange(rows), np.arange(n), indexing="ij")
    expected = table[starts[column] + 40 * row + column + 2] * 1000 + table[starts[row] * 2 + column]
    np.testing.assert_array_equal(result[2], expected.ravel())


def test_scattered_additions_to_one_element_are_all_counted() -> None:
    positions = np.array([3, 1, 3, 3, 0, 1, 3] * 5)
    P, R, i = Buffer("positions", dtypes.int64), Buffer("count", dtypes.int32), Axis("i")
    store = Store(R, Index((), 0, Load(P, Index(((i, 1),)))), b.const(1, dtypes.int32), accumulate=True)
    nest = Nest("histogram", (P, R), (), (), (For(i, positions.size, (store,), vector=True),))
    result = assert_renderings_agree(nest, (positions, np.zeros(4, np.int32)))
    np.testing.assert_array_equal(result[1], np.bincount(positions))


def test_a_load_after_a_store_to_the_same_buffer_sees_the_new_value() -> None:
    n = 19
    X, R, i, at = Buffer("x", dtypes.float32), Buffer("out", dtypes.float32), (axis := Axis("i")), Index(((axis, 1),))
    load = Load(X, at)
    body = (Let(old := Var("old", dtypes.float32), load), Store(X, at, load * 2.0), Store(R, at, load + old))
    nest = Nest("update", (X, R), (), (), (For(i, n, body, vector=True),))
    x = np.arange(n, dtype=np.float32)
    result = assert_renderings_agree(nest, (x, np.zeros(n, np.float32)))
    np.testing.assert_array_equal(result[1], x * 3)


def test_a_value_stored_by_one_loop_is_read_by_the_next() -> None:
    rows, n = 4, 23
    X, T, i, j, k = Buffer("x", dtypes.float32), Buffer("t", dtypes.float32), Axis("i"), Axis("j"), Axis("k")
    total = Var("total", dtypes.float32)
    body = (
        Reduce(j, n, ((total, "sum", Load(X, Index(((i, n), (j, 1))))),)),
        Store(T, Index(), total),
        For(k, n, (Store(X, Index(((i, n), (k, 1))), Load(T, Index()) + Load(X, Index(((i, n), (k, 1))))),), vector=True),
    )
    nest = Nest("rows", (X, T), (), (), (For(i, rows, body),))
    assert_renderings_agree(nest, (np.arange(rows * n, dtype=np.float32), np.zeros(1, np.float32)))


def test_an_invariant_load_is_not_made_when_the_loop_is_empty() -> None:
    X, R, i, n, m, j = Buffer("x", dtypes.float32), Buffer("out", dtypes.float32), Axis("i"), Size("n"), Size("m"), Axis("j")
    far = Load(X, Index((), 1 << 44))  # would fault
    inner = For(j, m, (Store(R, Index(((j, 1),)), far),), vector=True)
    nest = Nest("empty", (X, R), (n, m), (), (For(i, n, (inner,)),))
    assert run_compiled(nest, (np.zeros(4, np.float32), np.zeros(4, np.float32)), (0, 5)) == 0
    assert run_compiled(nest, (np.zeros(4, np.float32), np.zeros(4, np.float32)), (5, 0)) == 0


def test_a_value_defined_in_an_empty_loop_is_not_used_after_it() -> None:
    X, R, i, j, n = Buffer("x", dtypes.float32), Buffer("out", dtypes.float32), Axis("i"), Axis("j"), Size("n")
    shared = b.exp(Load(X, Index()))
    body = (
        For(i, n, (Store(R, Index(((i, 1),)), shared),), vector=True),
        For(j, 3, (Store(R, Index(((j, 1),)), shared + 1.0),), vector=True),
    )
    nest = Nest("sharing", (X, R), (n,), (), body)
    assert_renderings_agree(nest, (np.ones(1, np.float32), np.zeros(20, np.float32)), (0,))
    assert_renderings_agree(nest, (np.ones(1, np.float32), np.zeros(20, np.float32)), (20,))


@pytest.mark.parametrize("position", [0, 15, 16, 36, None])
def test_an_exit_is_taken_if_any_element_asks_for_it(position: int | None) -> None:
    n = 37
    P, R, i, code = Buffer("p", dtypes.int64), Buffer("out", dtypes.int64), Axis("i"), Scalar("code", dtypes.int64)
    load = Load(P, Index(((i, 1),)))
    check = For(i, n, (Exit((load < 0) | (load >= 50), 3),), vector=True)
    j = Axis("j")
    second = For(
        j,
        n,
        (
            Exit(b.eq(Load(P, Index(((j, 1),))), 49), ScalarParam(code).scalar),
            Store(R, Index(((j, 1),)), Load(P, Index(((j, 1),)))),
        ),
        vector=True,
    )
    nest = Nest("checked", (P, R), (), (code,), (check, second))
    positions = np.arange(n)
    assert_renderings_agree(nest, (positions, np.zeros(n, np.int64)), (), (9,))
    if position is not None:
        positions[position] = -1
        assert run_compiled(nest, (positions, np.zeros(n, np.int64)), (), (9,)) == 3
        positions[position] = 49
        assert run_compiled(nest, (positions, np.zeros(n, np.int64)), (), (9,)) == 9


def test_an_unchecked_index_is_not_read_before_its_exit() -> None:
    T, P, R, i = Buffer("table", dtypes.float32), Buffer("position", dtypes.int64), Buffer("out", dtypes.float32), Axis("i")
    position = Load(P, Index())
    body = (Exit((position < 0) | (position >= 4), 5), Store(R, Index(((i, 1),)), Load(T, Index((), 0, position))))
    nest = Nest("unchecked", (T, P, R), (), (), (For(i, 20, body, vector=True),))
    table = np.arange(4, dtype=np.float32)
    result = assert_renderings_agree(nest, (table, np.array([3]), np.zeros(20, np.float32)))
    assert (result[2] == 3).all()
    for target in TARGETS:
        assert run_compiled(nest, (table, np.array([1 << 44]), np.zeros(20, np.float32)), target=target) == 5  # would fault


COUNTS = [0, 1, 10, 16, 17, 256, 300, 1025]


def test_a_long_chain_of_operations_needs_no_recursion() -> None:
    X, i = Buffer("x", dtypes.float64), Axis("i")
    e: Expr = Load(X, Index(((i, 1),)))
    for k in range(3000):
        e = Apply("add", (e, b.const(float(k % 3), dtypes.float64)), dtypes.float64)
    nest, outputs = elementwise([e], (X,), i, 5)
    out = outputs[0]
    run_compiled(nest, (np.zeros(5), out), (5,))
    assert (out == 3000.0).all()


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: str(t.bits))
def test_long_computations_are_made_for_two_registers_at_a_time(target: Target) -> None:
    axis, x = Axis("i"), Buffer("x", dtypes.float32)
    lanes = target.lanes(4)

    def widest(expression: Expr) -> str:
        nest, _ = elementwise([expression], (x,), axis, 0)
        return Emitter(rewritten(nest, target), "nest", target).text()

    load = Load(x, Index(((axis, 1),)))
    assert f"<{2 * lanes} x float>" not in widest(load + 1.0)
    assert f"<{2 * lanes} x float>" in widest(b.erf(b.log(b.sin(b.exp(load)))))


@pytest.mark.parametrize("count", [0, 1, 3, 17, 31, 32, 33, 64, 77])
def test_remainders_of_long_computations_are_exact(count: int) -> None:
    axis, x = Axis("i"), Buffer("x", dtypes.float32)
    load = Load(x, Index(((axis, 1),)))
    nest, outputs = elementwise([b.erf(b.log(b.sin(b.exp(load)))), load / 3.0], (x,), axis, count)
    assert_renderings_agree(nest, (values(dtypes.float32, count), *outputs), (count,))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["log", "log2", "log10", "log1p", "pow"])
def test_rare_operands_have_their_bits_whatever_the_lanes_beside_them_hold(name: str, dtype: DType) -> None:
    axis, x, y = Axis("i"), Buffer("x", dtype), Buffer("y", dtype)
    a, c = (Load(p, Index(((axis, 1),))) for p in (x, y))
    limits = np.finfo(dtype.numpy)
    rare = [0.0, -0.0, -1.0, -2.5, np.inf, -np.inf, np.nan, limits.smallest_subnormal, limits.max]
    usual = np.linspace(0.25, 7.0, 700).astype(dtype.numpy)
    mixed = usual.copy()
    mixed[40:640:24] = np.resize(rare, 25)  # some vectors have none
    exponents = np.linspace(-3, 3, 700).astype(dtype.numpy)
    results = []
    for operand in (usual, mixed):
        nest, outputs = elementwise([getattr(b, name)(a, c) if name == "pow" else getattr(b, name)(a)], (x, y), axis, 700)
        *_, result = assert_renderings_agree(nest, (operand, exponents, *outputs), (700,))
        results.append(result)
    np.testing.assert_array_equal(*(r[usual == mixed] for r in results))
    function = np.power if name == "pow" else getattr(np, name)
    with np.errstate(all="ignore"):
        expected = function(mixed, exponents) if name == "pow" else function(mixed)
    np.testing.assert_allclose(results[1], expected, rtol=4 * float(limits.eps))
