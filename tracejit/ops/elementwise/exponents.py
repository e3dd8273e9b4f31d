"""The exponent of a number, its neighbour, and common divisors and multiples of integers: evaluated by NumPy, without gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.ops.declare import COMMON, FLOAT, NONE, ON_HOST, elementwise, without_derivative
from tracejit.ops.elementwise.bitwise import require_integers
from tracejit.ops.samples import binary, integer_binary, unary

__all__ = ["exponent", "gcd", "lcm", "nextafter"]


@elementwise(ON_HOST, promotion=NONE, rule=lambda x: Aval(x.shape, dtypes.int32), samples=unary(), traits=("not differentiable",))
def exponent(x: Any) -> Any:
    """Elementwise e with x == m * 2**e and 0.5 <= |m| < 1; 0 for 0, infinities and NaN."""
    return np.frexp(x)[1].astype(np.int32)


@without_derivative
@elementwise(ON_HOST, promotion=FLOAT, samples=binary(number=None))
def nextafter(x: Any, towards: Any) -> Any:
    """Elementwise next number after x towards another."""
    return np.nextafter(x, towards)


@elementwise(ON_HOST, promotion=COMMON, samples=integer_binary(), traits=("not differentiable",))
def gcd(x: Any, y: Any) -> Any:
    """Elementwise greatest common divisor of integers, not negative.  Raises NotImplementedError for floats and bools."""
    require_integers("gcd", x, y)
    return np.gcd(x, y)


@elementwise(ON_HOST, promotion=COMMON, samples=integer_binary(), traits=("not differentiable",))
def lcm(x: Any, y: Any) -> Any:
    """Elementwise least common multiple of integers, not negative.  Raises NotImplementedError for floats and bools."""
    require_integers("lcm", x, y)
    return np.lcm(x, y)
