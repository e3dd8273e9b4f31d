"""`Tensor.__array_namespace__()`: the array API standard's names, arguments and promotion; gradients and compilation go through it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import tracejit
from tests.against_torch import numbers

xp = tracejit.array_api
# functions of one array, and of two, that NumPy has under the same names with the same meaning
_OF_ONE = """abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log log10 log1p log2 negative
positive reciprocal round sign signbit sin sinh sqrt square tan tanh trunc max min mean sum prod std var argmax argmin sort argsort
all any matrix_transpose unique_values diff count_nonzero"""
_OF_TWO = """add atan2 copysign divide equal greater greater_equal hypot less less_equal logaddexp maximum minimum multiply nextafter
not_equal pow subtract matmul vecdot tensordot"""
UNARY, BINARY = _OF_ONE.split(), _OF_TWO.split()


def test_a_tensor_names_the_namespace_of_the_standard() -> None:
    x = tracejit.ones(2)
    assert x.__array_namespace__() is xp and x.__array_namespace__(api_version="2024.12") is xp
    assert xp.__array_api_version__ == "2024.12"
    with pytest.raises(ValueError, match=r"2030\.1"):
        x.__array_namespace__(api_version="2030.1")
    for name in xp.__all__:
        assert hasattr(xp, name), name
    info = xp.__array_namespace_info__()
    assert info.dtypes(kind="real floating") == {"float32": tracejit.float32, "float64": tracejit.float64}
    assert info.default_dtypes()["integral"] is tracejit.int64
    assert x.to_device(info.default_device()) is x


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_function_of_one_array_gives_what_numpy_gives(name: str) -> None:
    for low, high in ((0.1, 0.9), (1.1, 2.0)):
        x = numbers(3, 3, low=low, high=high)
        actual, expected = getattr(xp, name)(xp.asarray(x)).numpy(), np.asarray(getattr(np, name)(x))
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_arrays_gives_what_numpy_gives(name: str) -> None:
    x, y = numbers(3, 3, low=0.5), numbers(3, 3, seed=1, low=0.5)
    actual, expected = getattr(xp, name)(xp.asarray(x), xp.asarray(y)).numpy(), np.asarray(getattr(np, name)(x, y))
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


def test_arrays_without_dimensions_promote_like_all_others() -> None:
    narrow, wide = xp.ones(2, dtype=xp.float32), xp.asarray(1.0, dtype=xp.float64)
    assert xp.add(narrow, wide).dtype is xp.float64
    assert (narrow + wide).dtype is xp.float32  # operators are PyTorch's
    assert xp.add(narrow, 2).dtype is xp.float32
    assert xp.result_type(narrow, wide) is xp.float64
    with pytest.raises(TypeError, match="higher kind"):
        xp.add(xp.asarray([1, 2]), 0.5)


def test_what_is_unique_is_found_with_positions_and_counts() -> None:
    found = xp.unique_all(xp.asarray([[3, 1], [3, 2]]))
    assert [part.tolist() for part in found] == [[1, 2, 3], [1, 3, 0], [[2, 0], [2, 1]], [1, 1, 2]]


def test_copies_are_made_where_asked_for_and_refused_where_needed() -> None:
    x = xp.reshape(xp.arange(6), (2, 3))
    assert xp.reshape(x, (3, 2), copy=False).data_ptr() == x.data_ptr()
    assert xp.reshape(x, (3, 2), copy=True).data_ptr() != x.data_ptr()
    with pytest.raises(ValueError, match="copy"):
        xp.reshape(x.mT, (6,), copy=False)
    assert xp.astype(x, xp.int64) is not x and xp.astype(x, xp.int64, copy=False) is x


def normalised(x: Any) -> Any:
    """A function written against the standard alone."""
    namespace = x.__array_namespace__()
    centred = x - namespace.mean(x, axis=-1, keepdims=True)
    return centred / namespace.sqrt(namespace.sum(namespace.square(centred), axis=-1, keepdims=True))


def test_a_function_written_against_the_standard_has_gradients_and_is_compiled() -> None:
    a = numbers(3, 4)
    compiled = tracejit.compile(normalised)
    np.testing.assert_allclose(normalised(tracejit.tensor(a)).numpy(), normalised(a), rtol=1e-12)
    for _ in range(3):
        eager, fast = tracejit.tensor(a, requires_grad=True), tracejit.tensor(a, requires_grad=True)
        for x, out in ((eager, normalised(eager)), (fast, compiled(fast))):
            (out * tracejit.tensor(np.arange(12.0).reshape(3, 4))).sum().backward()
            assert x.grad.abs().sum() > 0
        np.testing.assert_allclose(fast.grad.numpy(), eager.grad.numpy(), rtol=1e-12)
    assert compiled.stats.compiled_calls, compiled.explain()


def test_functions_take_their_arrays_by_position() -> None:
    for name in (*UNARY, *BINARY):
        first = next(iter(inspect.signature(getattr(xp, name)).parameters.values()))
        assert first.kind is inspect.Parameter.POSITIONAL_ONLY, name


def test_corners_of_the_standard() -> None:
    empty = xp.zeros((0,), dtype=xp.int64)
    assert xp.asarray(empty, copy=False) is empty
    assert xp.eye(2, 3, k=2**70).tolist() == [[0.0] * 3] * 2 and xp.eye(2, k=-1).tolist() == [[0.0, 0.0], [1.0, 0.0]]
    with pytest.raises(ValueError, match="equal sizes"):
        xp.vecdot(xp.ones((2, 1)), xp.ones((2, 3)))
    x = xp.asarray([1.0, 2.0], dtype=xp.float64)
    assert xp.std(x, axis=()).dtype is xp.float64 and xp.var(x, axis=()).tolist() == [0.0, 0.0]
    assert np.isnan(xp.var(x, axis=(), correction=1).numpy()).all()
    assert xp.cumulative_sum(x, include_initial=True).tolist() == [0.0, 1.0, 3.0]
    assert xp.concat([x, xp.asarray([[3]])], axis=None).tolist() == [1.0, 2.0, 3.0]
    assert xp.clip(xp.asarray([1, 5]), 2, 3).tolist() == [2, 3]
    assert xp.isdtype(xp.int8, ("bool", "integral")) and not xp.can_cast(xp.float64, xp.float32)
