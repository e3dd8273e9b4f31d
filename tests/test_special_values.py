"""Elementwise functions at the values where formulas break: compiled does what eager does, and eager what PyTorch does."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.core.op import REGISTRY, Kind

VALUES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, -2.0, 0.5, -0.5, 2.0, 3.0, 20.0, 34.0, 88.9, 171.0, 172.0, 700.0, -700.0]
VALUES += [1e-45, -1e-45, 1e-310, -1e-310, 3e38, -3e38, 1e300, -1e300]
FUNCTIONS = [n for n, op in REGISTRY.items() if op.kind is Kind.ELEMENTWISE and hasattr(T, n) and not n.startswith("bitwise")]
ARITY = {n: sum(p.default is p.empty for p in inspect.signature(REGISTRY[n].evaluate).parameters.values()) for n in FUNCTIONS}
DTYPES = ["float32", "float64"]


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
    if name == "sign":  # of NaN, torch's is 0, NumPy's is NaN
        given = [given[0][1:]]
    actual, expected = getattr(T, name)(*given).numpy(), reference(*[torch.from_numpy(x.numpy()) for x in given]).numpy()
    wrong = differing(expected, actual, 2e-4, 1e-37)
    assert not wrong.any(), [(*(x.numpy()[wrong][0] for x in given), expected[wrong][0], actual[wrong][0])]
