"""docs/equality.md, class by class: machine code against eager code, NaN, infinities and signed zeros included.

`both` makes sure that what is compared with eager really came out of a program."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

import tracejit as T
from tracejit.config import override

FLOATS = [np.float32, np.float64]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8]
LENGTHS = [1, 3, 8, 16, 17, 33, 1000]  # tails, whole vectors, both


def both(function: Callable[..., T.Tensor], *arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(eager result, compiled result) on the same inputs."""
    tensors = [T.tensor(a) for a in arrays]
    with override(backend="llvm"):
        compiled = T.compile(function)
        compiled(*tensors)
        result = compiled(*tensors)
    assert compiled.stats.compiled_calls == 1, compiled.explain()
    assert compiled.stats.machine_calls >= 1, compiled.explain()
    return function(*tensors).numpy(), result.numpy()


def assert_same_bits(pair: tuple[np.ndarray, np.ndarray]) -> None:
    """Equal dtype, shape and bits; NaN for NaN, whatever its payload."""
    expected, actual = pair
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind == "f":
        nan = np.isnan(expected)
        np.testing.assert_array_equal(np.isnan(actual), nan)
        expected, actual = np.where(nan, 0, expected), np.where(nan, 0, actual)
        np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))
    np.testing.assert_array_equal(actual, expected)


def special_values(dtype: type) -> np.ndarray:
    information = np.finfo(dtype)
    tiny = [
        information.smallest_subnormal,
        information.smallest_normal,
        information.eps,
        0.5,
        1.0,
        1.5,
        2.5,
        3.0,
        information.max,
    ]
    values = np.array([0.0, *tiny, np.inf, np.nan], dtype)
    return np.concatenate([values, -values])


def pairs(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Every special value with every other, then ordinary numbers."""
    values = special_values(dtype)
    rng = np.random.default_rng(1)
    ordinary = (rng.standard_normal((2, 500)) * 10.0 ** rng.integers(-6, 7, (2, 500))).astype(dtype)
    a, b = np.meshgrid(values, values)
    return np.concatenate([a.ravel(), ordinary[0]]), np.concatenate([b.ravel(), ordinary[1]])


# -- equal bits: arithmetic

BINARY: dict[str, Callable[..., T.Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "maximum": T.maximum,
    "minimum": T.minimum,
    "less": lambda a, b: a < b,
    "less or equal": lambda a, b: a <= b,
    "equal": lambda a, b: a == b,
    "not equal": lambda a, b: a != b,
    "where": lambda a, b: T.where(a > b, a, b),
    "copysign": T.copysign,
}
UNARY: dict[str, Callable[..., T.Tensor]] = {
    "sqrt": T.sqrt,
    "neg": lambda a: -a,
    "abs": T.abs,
    "sign": T.sign,
    "floor": T.floor,
    "ceil": T.ceil,
    "trunc": T.trunc,
    "round": T.round,
    "relu": T.relu,
    "clamp": lambda a: T.clamp(a, -1.5, 1.5),
    "reciprocal": T.reciprocal,
    "isnan": T.isnan,
    "to float32": lambda a: a.to(T.float32),
    "to float64": lambda a: a.to(T.float64),
    "to bool": lambda a: a.to(T.bool),
    "plus number": lambda a: a + 0.1,
    "number minus": lambda a: 1.0 - a,
    "times number": lambda a: a * 3,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_of_two_operands_has_equal_bits(name: str, dtype: type) -> None:
    assert_same_bits(both(BINARY[name], *pairs(dtype)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_arithmetic_of_one_operand_has_equal_bits(name: str, dtype: type) -> None:
    assert_same_bits(both(UNARY[name], pairs(dtype)[0]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_products_and_sums_are_not_contracted_nor_reassociated(dtype: type) -> None:
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal(1000).astype(dtype) for _ in range(3))
    assert np.any((a.astype(np.longdouble) * b + c).astype(dtype) != a * b + c)  # a fused multiply-add would show
    for function in (
        lambda a, b, c: a * b + c,
        lambda a, b, c: c - a * b,
        lambda a, b, c: (a + b) + c,
        lambda a, b, c: a + (b + c),
        lambda a, b, c: (a - a * b) / c - c * a,
    ):
        assert_same_bits(both(function, a, b, c))


def test_identities_that_hold_for_real_numbers_only_are_not_used() -> None:
    values = special_values(np.float32)
    for function in (
        lambda a: a + 0.0,
        lambda a: a * 0.0,
        lambda a: a - a,
        lambda a: a / a,
        lambda a: 0.0 - a,
        lambda a: a * 1.0,
    ):
        assert_same_bits(both(function, values))


# -- equal bits: integers

INTEGER: dict[str, Callable[..., T.Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a, b: -a,
    "abs": lambda a, b: a.abs(),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "invert": lambda a, b: ~a,
    "square": lambda a, b: a * a,
    "compare": lambda a, b: a < b,
    "maximum": lambda a, b: T.maximum(a, b),
    "sum": lambda a, b: a.sum(),
    "prod": lambda a, b: (a | 1).prod(),
    "to float": lambda a, b: a.to(T.float32),
    "to int8": lambda a, b: a.to(T.int8),
    "to int64": lambda a, b: a.to(T.int64) * 3,
    "true division": lambda a, b: a / b,
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", INTEGER)
def test_integers_have_equal_bits_and_wrap(name: str, dtype: type) -> None:
    limits = np.iinfo(dtype)
    edges = np.array([limits.min, limits.min + 1, 0, 1, 2, limits.max - 1, limits.max], dtype)
    a, b = np.meshgrid(edges, edges)
    rng = np.random.default_rng(3)
    random = rng.integers(limits.min, limits.max, (2, 100), dtype=dtype, endpoint=True)
    pair = both(INTEGER[name], np.concatenate([a.ravel(), random[0]]), np.concatenate([b.ravel(), random[1]]))
    assert_same_bits(pair)


def test_integer_addition_wraps_around() -> None:
    _, actual = both(lambda a: a + a, np.array([100, -100], np.int8))
    assert actual.tolist() == [-56, 56]


@pytest.mark.parametrize("divide", [lambda a, b: a // b, lambda a, b: a % b])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_integer_division_rounds_as_in_eager(divide: Callable[..., T.Tensor], dtype: type) -> None:
    signed = np.arange(-20, 20) if dtype is not np.uint8 else np.arange(40)
    a, b = np.meshgrid(signed.astype(dtype), np.array([1, 2, 3, 7] if dtype is np.uint8 else [-7, -2, -1, 1, 2, 7], dtype))
    assert_same_bits(both(divide, a, b))


# -- equal bits: movement

MOVEMENT: dict[str, Callable[..., T.Tensor]] = {
    "transpose": lambda a: a.t().contiguous(),
    "slice": lambda a: a[1:, ::2].clone(),
    "flip": lambda a: a.flip(0),
    "cat": lambda a: T.cat([a, a.flip(1), a], 1),
    "stack": lambda a: T.stack([a, a * 1]),
    "roll": lambda a: a.roll(2, 1),
    "expand": lambda a: a[:1].expand(5, 6).contiguous(),
    "gather": lambda a: a.gather(1, T.tensor([[0, 5, 2], [1, 1, 1], [4, 3, 2], [5, 5, 0]])),
    "index": lambda a: a[T.tensor([3, 0, 3])],
    "scatter": lambda a: a.scatter(1, T.tensor([[0], [1], [2], [5]]), a[:, 2:3]),
    "where": lambda a: a.masked_fill(a > 0, 7.0),
    "reshape": lambda a: a.t().reshape(3, 8),
}


@pytest.mark.parametrize("name", MOVEMENT)
def test_movement_has_equal_bits(name: str) -> None:
    values = np.concatenate([special_values(np.float32)[:22], [np.float32(7), np.float32(-7)]]).astype(np.float32).reshape(4, 6)
    assert_same_bits(both(MOVEMENT[name], values))


# -- within 2.5 units in the last place: elementary functions

# name -> (function, the same in float64 or better, range of ordinary arguments)
ELEMENTARY: dict[str, tuple[Callable[..., T.Tensor], Callable[..., np.ndarray], tuple[float, float]]] = {
    "exp": (T.exp, np.exp, (-80, 80)),
    "exp2": (T.exp2, np.exp2, (-100, 100)),
    "expm1": (T.expm1, np.expm1, (-20, 80)),
    "log": (T.log, np.log, (1e-30, 1e30)),
    "log2": (T.log2, np.log2, (1e-30, 1e30)),
    "log10": (T.log10, np.log10, (1e-30, 1e30)),
    "log1p": (T.log1p, np.log1p, (-0.999, 1e6)),
    "sin": (T.sin, np.sin, (-100, 100)),
    "cos": (T.cos, np.cos, (-100, 100)),
    "tan": (T.tan, np.tan, (-1.5, 1.5)),
    "tanh": (T.tanh, np.tanh, (-10, 10)),
    "sigmoid": (T.sigmoid, special.expit, (-80, 80)),
    "erf": (T.erf, special.erf, (-4, 4)),
    "atan": (T.atan, np.arctan, (-100, 100)),
    "asin": (T.asin, np.arcsin, (-1, 1)),
    "sinh": (T.sinh, np.sinh, (-80, 80)),
    "rsqrt": (T.rsqrt, lambda x: 1 / np.sqrt(x), (1e-30, 1e30)),
}


@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_functions_are_within_two_and_a_half_units_in_the_last_place(name: str) -> None:
    function, exact, (low, high) = ELEMENTARY[name]
    arguments = np.linspace(low, high, 20011).astype(np.float32)
    _, actual = both(function, arguments)
    reference = exact(arguments.astype(np.float64))
    error = np.abs(actual.astype(np.float64) - reference) / np.spacing(np.abs(reference).astype(np.float32)).astype(np.float64)
    assert error.max() <= 2.5, arguments[error.argmax()]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_functions_of_special_values_are_those_of_eager(name: str, dtype: type) -> None:
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40], dtype)
    expected, actual = both(ELEMENTARY[name][0], np.tile(values, 3))  # whole vectors and a tail
    special_result = np.isnan(expected) | np.isinf(expected) | (expected == 0)
    assert_same_bits((expected[special_result], actual[special_result]))
    np.testing.assert_allclose(actual[~special_result], expected[~special_result], rtol=4 * np.finfo(dtype).eps)


# -- reductions


def test_the_error_of_a_sum_does_not_grow_with_its_length() -> None:
    values = np.full(10_000_000, 0.1, np.float32)  # equal terms: all roundings go the same way
    exact = float(np.float32(0.1)) * len(values)
    _, actual = both(lambda a: a.sum(), values)
    assert abs(float(actual) - exact) <= 3 * np.spacing(np.float32(exact))
    assert abs(float(values.cumsum(dtype=np.float32)[-1]) - exact) > 1000 * np.spacing(
        np.float32(exact)
    )  # what adding one by one gives


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_ordinary_numbers_are_at_least_as_accurate_as_numpys(dtype: type) -> None:
    rng = np.random.default_rng(5)
    errors = np.zeros(2)
    for n in (1000, 10_000, 100_000):
        for _ in range(5):
            values = rng.random(n).astype(dtype)
            exact = math.fsum(values.tolist())
            errors += [abs(float(result) - exact) for result in both(lambda a: a.sum(), values)]
    assert errors[1] <= errors[0]


REDUCTIONS: dict[str, tuple[Callable[..., T.Tensor], Callable[..., np.ndarray]]] = {
    "sum": (lambda a: a.sum(1), lambda a: a.sum(1)),
    "sum of columns": (lambda a: a.sum(0), lambda a: a.sum(0)),  # row after row, as in NumPy: five terms
    "mean": (lambda a: a.mean(1), lambda a: a.mean(1)),
    "sum of squares": (lambda a: (a * a).sum(1), lambda a: (a * a).sum(1)),
    "all": (lambda a: a.sum(), lambda a: a.sum()),
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_sums_are_within_the_stated_bound(name: str, length: int) -> None:
    function, exact = REDUCTIONS[name]
    rng = np.random.default_rng(length)
    values = (rng.standard_normal((5, length)) * 10.0 ** rng.integers(-3, 4, (5, length))).astype(np.float32)
    _, actual = both(function, values)
    wide = values.astype(np.float64)
    terms = exact(np.abs(wide))
    rounding = np.finfo(np.float32).eps / 2
    np.testing.assert_array_less(np.abs(actual - exact(wide)), 18 * rounding * terms + 1e-30)


@pytest.mark.parametrize("length", LENGTHS)
def test_products_of_elements_are_within_a_rounding_for_each(length: int) -> None:
    values = np.random.default_rng(length).uniform(0.9, 1.1, (3, length)).astype(np.float32)
    _, actual = both(lambda a: a.prod(1), values)
    np.testing.assert_allclose(actual, values.astype(np.float64).prod(1), rtol=length * np.finfo(np.float32).eps)


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin", "any", "all"])
@pytest.mark.parametrize("length", LENGTHS)
def test_reductions_that_choose_have_equal_bits_and_nan_wins(name: str, length: int) -> None:
    rng = np.random.default_rng(length)
    values = rng.choice(special_values(np.float32), (60, length)).astype(np.float32)
    values[30:] = np.nan_to_num(values[30:], nan=1.0)  # rows without NaN as well
    if name in ("any", "all"):
        assert_same_bits(both(lambda a: getattr(a > 0, name)(1), values))
        return
    expected, actual = both(lambda a: getattr(a, name)(1), values)
    if name in ("amax", "amin"):  # which of two zeros is the larger one is nobody's promise
        expected, actual = expected + 0.0, actual + 0.0
    assert_same_bits((expected, actual))
    if name in ("amax", "amin"):
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(values).any(1))


def test_sums_of_infinities_and_nans_are_those_of_eager() -> None:
    rows = np.ones((6, 37), np.float32)
    rows[0, 3], rows[1, 4], rows[2, [1, 30]], rows[3, 36] = np.inf, -np.inf, [np.inf, -np.inf], np.nan
    rows[4] = -0.0
    rows[5] = np.finfo(np.float32).max
    expected, actual = both(lambda a: a.sum(1), rows)
    assert_same_bits((expected[:4], actual[:4]))
    assert math.isinf(actual[5])
    assert actual[4] == 0


def test_the_variance_of_a_shifted_sample_does_not_cancel() -> None:
    values = (1e4 + np.random.default_rng(0).standard_normal(4000)).astype(np.float32)
    expected, actual = both(lambda a: a.var(), values)
    exact = values.astype(np.float64).var(ddof=1)
    assert abs(float(actual) - exact) <= max(abs(float(expected) - exact), 1e-3 * exact)


def test_softmax_of_large_and_infinite_arguments_is_that_of_eager() -> None:
    rows = np.array([[1e4, 1e4 + 1, -1e4], [0.0, -np.inf, 1.0], [3e38, 3e38, -3e38], [np.nan, 1, 2]], np.float32)
    expected, actual = both(lambda a: T.softmax(a, 1), rows)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def _units_apart(expected: np.ndarray, actual: np.ndarray) -> float:
    finite = np.isfinite(expected)
    assert_same_bits((np.where(finite, 0, expected), np.where(finite, 0, actual)))
    expected, actual = expected[finite], actual[finite]
    return float(np.max(np.abs(actual.astype(np.longdouble) - expected) / np.spacing(np.abs(expected)), initial=0))


@pytest.mark.parametrize("dtype", FLOATS)
def test_quotients_by_the_sum_of_a_long_row_are_within_two_units(dtype: type) -> None:
    information, rng = np.finfo(dtype), np.random.default_rng(3)
    rows = rng.uniform(0.5, 1, (8, 301)).astype(dtype)
    rows[1:6] = 0
    rows[1, 7] = information.smallest_subnormal  # sums whose reciprocals are infinite or subnormal
    rows[2, 7] = information.tiny * 0.75
    rows[3, :2] = information.max * 0.375
    rows[4, 7] = -information.max * 0.875
    rows[6, 7] = np.inf
    rows[7, 7] = np.nan
    weights = np.concatenate([special_values(dtype), rng.standard_normal(301).astype(dtype)])[:301]
    for numerator in (lambda a, w: a, lambda a, w: w + 0 * a, lambda a, w: w):
        expected, actual = both(lambda a, w, n=numerator: n(a, w) / a.sum(1, keepdim=True), rows, weights)
        assert _units_apart(expected, actual) <= 2.0


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [0, 1])
def test_what_cancels_in_the_gradient_of_softmax_is_below_the_bound_of_its_sum(dim: int, dtype: type) -> None:
    def gradient(x: T.Tensor, cotangents: T.Tensor) -> T.Tensor:
        out = T.softmax(x.t(), dim)
        return T.autograd.grad(out, x, cotangents)[0]

    numbers = np.random.default_rng(0)
    for scale in (0.0, 1.0):  # of what differs between the cotangents: 0 where everything cancels
        x = T.tensor((numbers.standard_normal((70, 80)) * 3).astype(dtype), requires_grad=True)
        g = T.tensor((1 + scale * numbers.integers(-1, 2, (80, 70))).astype(dtype))
        compiled = T.compile(gradient, wait=True)
        expected, actual = gradient(x, g), [compiled(x, g) for _ in range(2)][1]
        assert compiled.stats.compiled_calls == 1
        terms = T.softmax(x.t(), dim).detach().t().numpy() * (
            1 + scale
        )  # the sum of the absolute values of its row's terms is one
        bound = 64 * np.finfo(dtype).eps * terms + np.finfo(dtype).smallest_subnormal
        assert (np.abs(actual.numpy() - expected.numpy()) <= bound).all()
        assert scale or (np.abs(expected.numpy()) <= bound).all()


def test_quotients_by_anything_else_have_eagers_bits() -> None:
    rng = np.random.default_rng(4)
    x, row = rng.standard_normal((40, 301)).astype(np.float32), rng.standard_normal((40, 1)).astype(np.float32)
    for divide in (lambda a, b: a / b, lambda a, b: a / a.amax(1, keepdim=True), lambda a, b: a / 3.7):
        assert_same_bits(both(divide, x, row))
    short = rng.integers(1, 9, (40, 17)).astype(np.float32)
    assert_same_bits(both(lambda a: a / a.sum(1, keepdim=True), short))


# -- matrix products


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 5), (1, 300, 2), (17, 64, 33), (64, 1000, 8)])
def test_matrix_products_are_within_the_usual_bound(shape: tuple[int, int, int], dtype: type) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    expected, actual = both(lambda a, b: a @ b, a, b)
    bound = k * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b)) + np.finfo(dtype).tiny
    wide = a.astype(np.longdouble) @ b.astype(np.longdouble)
    assert np.all(np.abs(actual - wide) <= bound)
    assert np.all(np.abs(actual - expected) <= bound)


def test_products_of_integers_have_equal_bits() -> None:
    a = np.arange(-12, 12, dtype=np.int64).reshape(4, 6) * (1 << 60)
    assert_same_bits(both(lambda a: a @ a.t(), a))


def test_infinities_and_nans_pass_through_products() -> None:
    a, b = np.ones((3, 3), np.float32), np.ones((3, 3), np.float32)
    a[0, 0], b[1, 1], b[2, 0] = np.inf, np.nan, -np.inf
    expected, actual = both(lambda a, b: a @ b, a, b)
    assert_same_bits((expected, actual))


# -- compositions, and what does not depend on the table


def test_a_value_computed_twice_has_the_same_bits_both_times() -> None:
    values = np.linspace(-3, 3, 1003).astype(np.float32)
    _, actual = both(lambda a: T.exp(a).sum() * 0 + (T.exp(a) - a.exp()), values)
    assert not actual.any()


@pytest.mark.parametrize("n", [10, 100_000])
def test_random_looking_compositions_stay_within_a_few_units(n: int) -> None:
    values = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    expected, actual = both(lambda a: 0.5 * a * (1 + T.tanh(0.7978845608 * (a + 0.044715 * a * a * a))), values)
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=3e-7)  # 1 + tanh cancels below zero, in both


def test_neither_mode_emits_floating_point_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both(lambda a: T.log(a) + a / a + T.sqrt(a) + T.exp(a * 1e38), special_values(np.float32))


def test_a_value_on_its_threshold_takes_eagers_branch() -> None:
    def function(a: T.Tensor) -> T.Tensor:
        return a * 2 if a.sum() >= 1 else a - 1

    compiled = T.compile(function)
    below = np.nextafter(np.float32(0.5), np.float32(0))
    for _ in range(3):
        for last in (np.float32(0.5), below):
            x = T.tensor(np.array([0.5, last], np.float32))
            assert compiled(x).tolist() == function(x).tolist()
    assert compiled.stats.compiled_calls >= 3


def test_conversion_of_a_large_number_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert T.tensor(1e300).item() == math.inf
