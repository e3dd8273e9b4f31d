"""Elementwise functions at the values where formulas break: compiled does what eager does, and eager what PyTorch does."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.core.op import REGISTRY, Kind

VALUES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, -2.0, 0.5, -0.5, 2.0, 3.0, 20.0, 34.0, 88.9, 171.0, 172.0, 700.0, -700.0]
VALUES += [1e-45, -1e-45, 1e-310, -1e-310, 3e38, -3e38, 1e300, -1e300]
ELEMENTWISE = [n for n, op in REGISTRY.items() if op.kind is Kind.ELEMENTWISE and hasattr(T, n)]
OF_INTEGERS = [n for n in ELEMENTWISE if n.startswith("bitwise") or n in ("gcd", "lcm")]
FUNCTIONS = [n for n in ELEMENTWISE if n not in OF_INTEGERS]
ARITY = {n: sum(p.default is p.empty for p in inspect.signature(REGISTRY[n].evaluate).parameters.values()) for n in ELEMENTWISE}
DTYPES = ["float32", "float64"]
INTEGER_DTYPES = ["uint8", "int8", "int16", "int32", "int64"]


def operands(name: str, dtype: str) -> list[T.Tensor]:
    if ARITY[name] > 2 or name == "polygamma":
        pytest.skip("it has three operands or attributes")
    with np.errstate(all="ignore"):
        values = np.array(VALUES, dtype)
    columns = [values] if ARITY[name] == 1 else [np.repeat(values, len(values)), np.tile(values, len(values))]
    return [T.from_numpy(column) for column in columns]


def differing(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], relative: float, subnormal: float) -> np.ndarray[Any, Any]:
    if a.dtype.kind != "f":
        return a != b
    with np.errstate(all="ignore"):
        near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= relative * np.abs(a) + subnormal)
    return ~((a == b) | np.isnan(a) & np.isnan(b) | near)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_compiled_function_does_at_special_values_what_eager_does(name: str, dtype: str) -> None:
    function, given = getattr(T, name), operands(name, dtype)

    @T.compile
    def called(*arguments: Any) -> Any:
        return function(*arguments)

    expected = function(*given).numpy()
    called(*given)
    actual = called(*given).numpy()
    assert called.stats.compiled_calls == 1, called.explain()
    wrong = differing(expected, actual, 2e-6 if dtype == "float32" else 1e-14, 1e-44)
    assert not wrong.any(), [(*(x.numpy()[wrong][0] for x in given), expected[wrong][0], actual[wrong][0])]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_eager_does_at_special_values_what_torch_does(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    reference = getattr(torch, name, None) or getattr(torch.special, name, None)
    if reference is None:
        pytest.skip("torch has no such function")
    given = operands(name, dtype)
    if name in ("remainder", "fmod"):  # torch's are inexact for large quotients
        with np.errstate(all="ignore"):
            keep = ~(np.abs(given[0].numpy() / given[1].numpy()) > 1e6) | (given[1].numpy() == 0)
        given = [T.from_numpy(x.numpy()[keep]) for x in given]
    if name == "i0":  # torch's overflows sooner
        given = [T.from_numpy(given[0].numpy()[~(np.abs(given[0].numpy()) > 80)])]
    if name in ("sinh", "cosh"):  # torch's overflow sooner where the vectors of the processor are AVX2's
        given = [T.from_numpy(given[0].numpy()[~(np.abs(given[0].numpy()) == np.array(88.9, dtype))])]
    if name == "sign":  # of NaN, torch's is 0, NumPy's is NaN
        given = [given[0][1:]]
    actual, expected = getattr(T, name)(*given).numpy(), reference(*[torch.from_numpy(x.numpy()) for x in given]).numpy()
    wrong = differing(expected, actual, 2e-4, 1e-37)
    assert not wrong.any(), [(*(x.numpy()[wrong][0] for x in given), expected[wrong][0], actual[wrong][0])]


def integer_operands(name: str, dtype: str) -> list[T.Tensor]:
    """Small and the largest integers; the least one, whose absolute value is none, is left out: of it torch's gcd is negative."""
    most = np.iinfo(dtype).max
    values = np.array([0, 1, 2, 3, 6, 7, most, most - 1, *(() if dtype == "uint8" else (-1, -2, -6, -most))], dtype)
    if ARITY[name] == 1:
        return [T.from_numpy(values)]
    other = values[:6] if "shift" in name else values
    columns = [np.repeat(values, len(other)), np.tile(other, len(values))]
    if name == "lcm":  # a multiple that does not fit has any sign in torch
        fits = np.array([math.lcm(int(x), int(y)) <= most for x, y in zip(*columns, strict=True)])
        columns = [column[fits] for column in columns]
    return [T.from_numpy(column) for column in columns]


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_functions_of_integers_do_at_the_largest_ones_what_torch_does_compiled_as_well(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    given = integer_operands(name, dtype)
    expected = getattr(torch, name)(*[torch.from_numpy(x.numpy()) for x in given]).numpy()
    function = getattr(T, name)
    called = T.compile(lambda *arguments: function(*arguments))
    for actual in (function(*given), called(*given), called(*given)):
        assert actual.numpy().dtype == expected.dtype
        assert np.array_equal(actual.numpy(), expected)
    assert called.stats.compiled_calls == 1, called.explain()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bool"])
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_functions_of_integers_refuse_other_numbers_as_torch_does(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")

    def raised(library: Any, wrap: Any) -> type[BaseException] | None:
        given = [library.tensor([1.0, 0.0]).to(getattr(library, dtype)) for _ in range(ARITY[name])]
        try:
            wrap(getattr(library, name))(*given)
        except (RuntimeError, TypeError) as error:
            return type(error)
        return None

    expected = raised(torch, lambda function: function)
    assert raised(T, lambda function: function) is expected
    assert raised(T, lambda function: T.compile(lambda *arguments: function(*arguments))) is expected
