"""SciPy's special functions in machine code: what SciPy's ufuncs give, bit for bit, and no step of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import tracejit as T
from tracejit.config import override
from tracejit.core import dtypes
from tracejit.math import libm, scipy_functions

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, -3.0, 30.0, -30.0, 1e-30, 1e30, -1e30, np.inf, -np.inf, np.nan]
OF_ONE = {
    "digamma": "psi", "erfcx": "erfcx", "erfinv": "erfinv", "i0": "i0", "i0e": "i0e", "i1": "i1", "i1e": "i1e", "log_ndtr": "log_ndtr",
    "ndtri": "ndtri", "bessel_j0": "j0", "bessel_y1": "y1", "modified_bessel_k0": "k0", "scaled_modified_bessel_k1": "k1e",
}  # fmt: skip
OF_TWO = {"gammainc": "gammainc", "gammaincc": "gammaincc"}


def same_bits(x: Any, y: Any) -> bool:
    x, y = np.asarray(x), np.asarray(y)
    kind = {4: np.int32, 8: np.int64}[x.dtype.itemsize]
    return x.dtype == y.dtype and bool(np.all((x.view(kind) == y.view(kind)) | (np.isnan(x) & np.isnan(y))))


@pytest.mark.parametrize("dtype", [T.float32, T.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", [*OF_ONE, *OF_TWO])
def test_a_compiled_function_has_the_bits_of_scipy_without_a_step_of_the_host(name: str, dtype: Any) -> None:
    of_scipy = getattr(scipy.special, OF_ONE.get(name) or OF_TWO[name])
    numbers = np.random.default_rng(0).normal(scale=2.0, size=50)
    given = np.concatenate([numbers, SPECIAL]).astype(dtype.numpy)
    operands = [given] if name in OF_ONE else [np.abs(given), np.abs(given[::-1])]
    compiled = T.compile(getattr(T.special, name))
    tensors = [T.from_numpy(np.ascontiguousarray(x)) for x in operands]
    for _ in range(3):
        found = compiled(*tensors).numpy()
    with np.errstate(all="ignore"):
        expected = of_scipy(*operands)
    if name == "digamma":  # an infinity at 0, where SciPy has NaN
        zero = operands[0] == 0
        expected[zero] = np.copysign(np.inf, -operands[0][zero])
    assert same_bits(found, expected)
    assert compiled.stats.compiled_calls == 2
    assert "host step" not in compiled.explain(verbose=True)


def test_gradients_of_the_gamma_family_are_machine_code_and_equal_eagers() -> None:
    def loss(a: T.Tensor, x: T.Tensor) -> T.Tensor:
        return (a.lgamma() + T.special.gammainc(a, x) + T.special.ndtri(T.special.gammaincc(a, x))).sum()

    a, x = (T.rand(6, dtype=T.float64).add(0.5).requires_grad_() for _ in range(2))
    compiled = T.compile(loss)
    for _ in range(3):
        found = T.autograd.grad(compiled(a, x), (a, x))
    for mine, expected in zip(found, T.autograd.grad(loss(a, x), (a, x)), strict=True):
        np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=1e-13)
    assert "host step" not in compiled.explain(verbose=True)


def test_the_printed_program_calls_the_functions_of_scipy_through_numba() -> None:
    compiled = T.compile(lambda x: T.erfinv(x * 0.5) + T.special.i0(x))
    x = T.linspace(-0.9, 0.9, 7)
    expected = compiled(x)
    scope: dict[str, Any] = {"__name__": "printed"}
    exec(compile(compiled.source(), "printed", "exec"), scope)
    assert same_bits(scope["run"](x.numpy())[0], expected.numpy())


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_other_backends_have_them_too(backend: str) -> None:
    x = T.linspace(0.1, 0.9, 5)
    with override(backend=backend):
        compiled = T.compile(lambda x: T.special.ndtri(x) + T.special.gammainc(x, x * 2))
        for _ in range(2):
            found = compiled(x)
    assert same_bits(found.numpy(), (T.special.ndtri(x) + T.special.gammainc(x, x * 2)).numpy())


def test_a_function_that_scipy_has_not_is_named() -> None:
    with pytest.raises(ValueError, match=r"cython_special has no function 'nosuch' of 1 numbers of float64"):
        scipy_functions.cython_function("scipy_nosuch", dtypes.float64, 1)
    with pytest.raises(ValueError, match="'psi' of 1 numbers of float32"):
        libm.address("scipy_psi", dtypes.float32, 1)
