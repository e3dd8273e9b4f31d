"""Special functions that PyTorch keeps in torch.special; tracejit.special exports them.  Those that it has in torch as well are public."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracejit.core.op import Op
from tracejit.core.shapes import integer, size_range
from tracejit.ops.elementwise import (
    arithmetic,
    bessel,
    incomplete,
    logarithmic,
    orthogonal,
    special,
)
from tracejit.ops.public.derive import FUNCTIONS, binary, derive_unary, public, unary
from tracejit.ops.public.elementwise import as_floating
from tracejit.ops.public.keywords import of_tensors, write_out


def _polynomial(op: Op) -> Callable[..., Any]:
    """function(x, n, out=None) of a primitive: the polynomial of degree n at x."""

    def function(x: Any, n: Any, *, out: Any = None) -> Any:
        result = op(x, n)
        return result if out is None else write_out(op.name, out, result)

    function.__doc__ = op.doc
    function.__name__ = function.__qualname__ = op.name
    return function


erfcx, _ = unary(incomplete.erfcx)
ndtri, _ = unary(incomplete.ndtri)
log_ndtr, _ = unary(incomplete.log_ndtr)
i0e, _ = unary(bessel.i0e)
i1, _ = unary(bessel.i1)
i1e, _ = unary(bessel.i1e)
i0 = derive_unary(bessel.i0, "i0")
modified_bessel_i0 = i0
modified_bessel_i1 = i1
airy_ai, _ = unary(orthogonal.FUNCTIONS["airy_ai"])
bessel_j0, _ = unary(orthogonal.FUNCTIONS["bessel_j0"])
bessel_j1, _ = unary(orthogonal.FUNCTIONS["bessel_j1"])
bessel_y0, _ = unary(orthogonal.FUNCTIONS["bessel_y0"])
bessel_y1, _ = unary(orthogonal.FUNCTIONS["bessel_y1"])
modified_bessel_k0, _ = unary(orthogonal.FUNCTIONS["modified_bessel_k0"])
modified_bessel_k1, _ = unary(orthogonal.FUNCTIONS["modified_bessel_k1"])
scaled_modified_bessel_k0, _ = unary(orthogonal.FUNCTIONS["scaled_modified_bessel_k0"])
scaled_modified_bessel_k1, _ = unary(orthogonal.FUNCTIONS["scaled_modified_bessel_k1"])
spherical_bessel_j0, _ = unary(orthogonal.FUNCTIONS["spherical_bessel_j0"])
chebyshev_polynomial_t = _polynomial(orthogonal.POLYNOMIALS["chebyshev_polynomial_t"])
chebyshev_polynomial_u = _polynomial(orthogonal.POLYNOMIALS["chebyshev_polynomial_u"])
chebyshev_polynomial_v = _polynomial(orthogonal.POLYNOMIALS["chebyshev_polynomial_v"])
chebyshev_polynomial_w = _polynomial(orthogonal.POLYNOMIALS["chebyshev_polynomial_w"])
hermite_polynomial_h = _polynomial(orthogonal.POLYNOMIALS["hermite_polynomial_h"])
hermite_polynomial_he = _polynomial(orthogonal.POLYNOMIALS["hermite_polynomial_he"])
laguerre_polynomial_l = _polynomial(orthogonal.POLYNOMIALS["laguerre_polynomial_l"])
legendre_polynomial_p = _polynomial(orthogonal.POLYNOMIALS["legendre_polynomial_p"])
shifted_chebyshev_polynomial_t = _polynomial(orthogonal.POLYNOMIALS["shifted_chebyshev_polynomial_t"])
shifted_chebyshev_polynomial_u = _polynomial(orthogonal.POLYNOMIALS["shifted_chebyshev_polynomial_u"])
shifted_chebyshev_polynomial_v = _polynomial(orthogonal.POLYNOMIALS["shifted_chebyshev_polynomial_v"])
shifted_chebyshev_polynomial_w = _polynomial(orthogonal.POLYNOMIALS["shifted_chebyshev_polynomial_w"])
zeta, _ = binary(orthogonal.zeta)


def _pair(input: Any, other: Any) -> tuple[Any, Any]:
    """Two tensors, the one that is a number made like the other.  Raises TypeError where one is None."""
    if input is None or other is None:
        raise TypeError("expected tensors or numbers, got None")
    if not hasattr(input, "dtype"):
        return FUNCTIONS["full_like"](as_floating(other), input), other
    return (input, other) if hasattr(other, "dtype") else (input, FUNCTIONS["full_like"](as_floating(input), other))


@public("igamma")
@of_tensors
def gammainc(input: Any, other: Any) -> Any:
    """The regularised lower incomplete gamma function of shape `input` at `other`."""
    return incomplete.gammainc(*_pair(input, other))


@public("igammac")
@of_tensors
def gammaincc(input: Any, other: Any) -> Any:
    """The regularised upper incomplete gamma function of shape `input` at `other`."""
    return incomplete.gammaincc(*_pair(input, other))


@of_tensors
def ndtr(input: Any) -> Any:
    """The distribution function of the standard normal distribution."""
    return special.erfc(as_floating(input) * -math.sqrt(0.5)) * 0.5


@of_tensors
def entr(input: Any) -> Any:
    """-x * log(x): 0 at 0, minus infinity below."""
    return logarithmic.entr(as_floating(input))


@of_tensors
def xlog1py(input: Any, other: Any) -> Any:
    """input * log1p(other), 0 where input is 0 (NaN where other is)."""
    if not hasattr(other, "dtype"):
        return FUNCTIONS["xlogy"](input, other + 1.0)
    return logarithmic.xlog1py(*_pair(input, other))


@public(method=False)
def polygamma(n: int, input: Any) -> Any:
    """The n-th derivative of digamma."""
    n = integer("polygamma", "n", n)
    if n < 0:
        raise RuntimeError(f"polygamma(): n must not be negative, got {n}")
    return special.digamma(input) if n == 0 else special.polygamma(input, n=n)


@public("polygamma", function=False)
def polygamma_of(input: Any, n: int) -> Any:
    """The n-th derivative of digamma."""
    return polygamma(n, input)


@public("mvlgamma")
@of_tensors
def multigammaln(input: Any, p: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension p.  Its argument must be above (p - 1) / 2."""
    x, p = as_floating(input), integer("mvlgamma", "p", p)
    out = special.lgamma(x)
    for i in size_range(1, p):
        out = out + special.lgamma(x - i / 2)
    return arithmetic.add(out, p * (p - 1) / 4 * math.log(math.pi))
