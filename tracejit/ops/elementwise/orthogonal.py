"""Bessel functions of other kinds, Airy's, Hurwitz's zeta, and orthogonal polynomials: evaluated by SciPy.

As in PyTorch they have no derivatives, and say so in a backward pass; zeta has one by its second argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import scipy

from tracejit.core.op import Op
from tracejit.ops.declare import FLOAT, ON_HOST, elementwise, without_derivative
from tracejit.ops.elementwise.special import hurwitz
from tracejit.ops.samples import cases, floats, unary

__all__ = ["FUNCTIONS", "POLYNOMIALS", "zeta"]


def _number(name: str, function: Callable[[Any], Any], doc: str, lowering: Callable[..., Any] | None = ON_HOST) -> Op:
    """A primitive of one number."""

    def body(x: Any) -> Any:
        x = np.asarray(x)
        return np.asarray(function(x)).astype(x.dtype)

    body.__doc__ = doc
    return without_derivative(elementwise(lowering, name=name, promotion=FLOAT, samples=unary(0.2, 3.0))(body))


def _of_scipy(name: str, function: str, doc: str) -> Op:
    """A primitive of one number by the name of SciPy's function, which machine code calls, too."""
    return _number(name, lambda x: getattr(scipy.special, function)(x), doc, lambda b, x: b.scipy(function, x))


def _polynomial(name: str, function: Callable[[Any, Any], Any], doc: str) -> Op:
    """A primitive of a number and a degree; 0 for a degree below 0."""

    def body(x: Any, n: Any) -> Any:
        dtype = np.result_type(np.asarray(x).dtype if np.ndim(x) or isinstance(x, np.ndarray) else np.asarray(n).dtype)
        degree = np.trunc(np.asarray(n, np.float64)).astype(np.int64)
        value = function(np.maximum(degree, 0), np.asarray(x, np.float64))
        return np.where(degree < 0, 0.0, value).astype(dtype)

    body.__doc__ = doc
    samples = cases((floats(4), np.array([0.0, 1.0, 2.0, 5.0])), (floats(2, 3).T, np.array(3.0)), (floats(0, 2), np.array([2.0])))
    return without_derivative(elementwise(ON_HOST, name=name, promotion=FLOAT, samples=samples)(body))


FUNCTIONS: Final = {
    op.name: op
    for op in (
        _number("airy_ai", lambda x: scipy.special.airy(x)[0], "Elementwise Airy function Ai."),
        _of_scipy("bessel_j0", "j0", "Elementwise Bessel function of the first kind, of order 0."),
        _of_scipy("bessel_j1", "j1", "Elementwise Bessel function of the first kind, of order 1."),
        _of_scipy("bessel_y0", "y0", "Elementwise Bessel function of the second kind, of order 0."),
        _of_scipy("bessel_y1", "y1", "Elementwise Bessel function of the second kind, of order 1."),
        _of_scipy("modified_bessel_k0", "k0", "Elementwise modified Bessel function of the second kind, of order 0."),
        _of_scipy("modified_bessel_k1", "k1", "Elementwise modified Bessel function of the second kind, of order 1."),
        _of_scipy("scaled_modified_bessel_k0", "k0e", "Elementwise exp(x) * modified_bessel_k0(x)."),
        _of_scipy("scaled_modified_bessel_k1", "k1e", "Elementwise exp(x) * modified_bessel_k1(x)."),
        _number("spherical_bessel_j0", lambda x: scipy.special.spherical_jn(0, x), "Elementwise sin(x) / x, 1 at 0."),
    )
}


def _third(n: Any, x: Any) -> Any:
    return scipy.special.eval_chebyu(n, x) - np.where(n > 0, scipy.special.eval_chebyu(n - 1, x), 0.0)


def _fourth(n: Any, x: Any) -> Any:
    return scipy.special.eval_chebyu(n, x) + np.where(n > 0, scipy.special.eval_chebyu(n - 1, x), 0.0)


POLYNOMIALS: Final = {
    op.name: op
    for op in (
        _polynomial(
            "chebyshev_polynomial_t",
            lambda n, x: scipy.special.eval_chebyt(n, x),
            "Chebyshev polynomial of the first kind, of degree n.",
        ),
        _polynomial(
            "chebyshev_polynomial_u",
            lambda n, x: scipy.special.eval_chebyu(n, x),
            "Chebyshev polynomial of the second kind, of degree n.",
        ),
        _polynomial("chebyshev_polynomial_v", _third, "Chebyshev polynomial of the third kind, of degree n."),
        _polynomial("chebyshev_polynomial_w", _fourth, "Chebyshev polynomial of the fourth kind, of degree n."),
        _polynomial(
            "shifted_chebyshev_polynomial_t",
            lambda n, x: scipy.special.eval_chebyt(n, 2 * x - 1),
            "chebyshev_polynomial_t(2 * x - 1, n).",
        ),
        _polynomial(
            "shifted_chebyshev_polynomial_u",
            lambda n, x: scipy.special.eval_chebyu(n, 2 * x - 1),
            "chebyshev_polynomial_u(2 * x - 1, n).",
        ),
        _polynomial("shifted_chebyshev_polynomial_v", lambda n, x: _third(n, 2 * x - 1), "chebyshev_polynomial_v(2 * x - 1, n)."),
        _polynomial(
            "shifted_chebyshev_polynomial_w", lambda n, x: _fourth(n, 2 * x - 1), "chebyshev_polynomial_w(2 * x - 1, n)."
        ),
        _polynomial(
            "hermite_polynomial_h",
            lambda n, x: scipy.special.eval_hermite(n, x),
            "The physicists' Hermite polynomial of degree n.",
        ),
        _polynomial(
            "hermite_polynomial_he",
            lambda n, x: scipy.special.eval_hermitenorm(n, x),
            "The probabilists' Hermite polynomial of degree n.",
        ),
        _polynomial("laguerre_polynomial_l", lambda n, x: scipy.special.eval_laguerre(n, x), "Laguerre polynomial of degree n."),
        _polynomial("legendre_polynomial_p", lambda n, x: scipy.special.eval_legendre(n, x), "Legendre polynomial of degree n."),
    )
}


@elementwise(
    ON_HOST,
    promotion=FLOAT,
    traits=("no derivative",),
    samples=cases(
        (floats(4, low=1.5, high=4.0), floats(4, low=0.5, high=3.0, seed=1)), (np.array(2.0), floats(2, 3, low=0.5, high=3.0).T)
    ),
)
def zeta(x: Any, q: Any) -> Any:
    """Elementwise Hurwitz zeta function: the sum of (k + q) ** -x over k = 0, 1, ..."""
    return np.asarray(hurwitz(x, q)).astype(np.result_type(*(v.dtype for v in (x, q) if isinstance(v, np.ndarray | np.generic))))


@zeta.vjp(saves=("", "0 1"))
def _(c: Any, g: Any) -> Any:
    if c.needs[0]:
        raise NotImplementedError(
            "the derivative for 'zeta' by its first argument is not implemented; use detach() where it is not wanted"
        )
    x, q = c.inputs
    return None, g * (-x * zeta.of(x + 1.0, q))
