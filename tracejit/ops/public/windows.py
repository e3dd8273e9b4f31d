"""Windows of signal processing: weights that fall to both ends, symmetric, or one period of what repeats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracejit.core import dtypes
from tracejit.core.devices import require_cpu
from tracejit.core.shapes import integer
from tracejit.ops.elementwise.mathematics import abs_, sqrt
from tracejit.ops.elementwise.trigonometry import cos
from tracejit.ops.movement.views import slice_
from tracejit.ops.public.creation import arange, ones
from tracejit.ops.public.derive import FUNCTIONS, public

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


def _window(
    name: str, length: int, periodic: bool, dtype: Any, device: Any, requires_grad: bool, weights: Callable[[Any], Any]
) -> Any:
    """`weights` of positions from 0 to 1; a periodic window lacks the last of one more."""
    require_cpu(name, device)
    length, dtype = integer(name, "window_length", length), dtype or dtypes.default_dtype()
    if length < 0:
        raise RuntimeError(f"{name}(): requires non-negative window_length, got window_length={length}")
    if not dtype.is_floating_point:
        raise RuntimeError(f"{name}(): expects floating point dtypes, got: {dtype.name}")
    if length < 2:
        out = ones(length, dtype=dtype)
    else:
        positions = length + 1 if periodic else length
        out = weights(arange(positions, dtype=dtype) / (positions - 1))
        out = slice_(out, dim=0, start=0, stop=length, step=1)
    return out.requires_grad_() if requires_grad else out


def _cosines(*factors: float) -> Callable[[Any], Any]:
    """A sum of cosines of 0, 1, 2, ... periods, with alternating signs."""

    def weights(position: Any) -> Any:
        total: Any = factors[0]
        for k, factor in enumerate(factors[1:], 1):
            total = total + cos(position * (2 * math.pi * k)) * (factor if k % 2 == 0 else -factor)
        return total

    return weights


@public(method=False)
def hann_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """sin(pi * x) ** 2 at window_length positions x from 0 to 1; if periodic, the last one is left out.

    Raises RuntimeError for a negative length, and a dtype that is not of floating point."""
    return _window("hann_window", window_length, periodic, dtype, device, requires_grad, _cosines(0.5, 0.5))


@public(method=False)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """alpha - beta * cos(2 * pi * x) at window_length positions x from 0 to 1; if periodic, the last one is left out.

    Raises RuntimeError for a negative length, and a dtype that is not of floating point."""
    return _window("hamming_window", window_length, periodic, dtype, device, requires_grad, _cosines(alpha, beta))


@public(method=False)
def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """0.42 - 0.5 * cos(2 * pi * x) + 0.08 * cos(4 * pi * x) at window_length positions x from 0 to 1; if periodic, the last one is left
    out.

    Raises RuntimeError for a negative length, and a dtype that is not of floating point."""
    return _window("blackman_window", window_length, periodic, dtype, device, requires_grad, _cosines(0.42, 0.5, 0.08))


@public(method=False)
def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """1 - |2 * x - 1|, a triangle, at window_length positions x from 0 to 1; if periodic, the last one is left out.

    Raises RuntimeError for a negative length, and a dtype that is not of floating point."""
    return _window("bartlett_window", window_length, periodic, dtype, device, requires_grad, lambda x: 1 - abs_(2 * x - 1))


@public(method=False)
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """i0(beta * sqrt(1 - (2 * x - 1)**2)) / i0(beta) at window_length positions x from 0 to 1; if periodic, the last one is left out.

    Raises RuntimeError for a negative length, and a dtype that is not of floating point."""
    bessel = FUNCTIONS["i0"]

    def weights(x: Any) -> Any:
        return bessel(beta * sqrt(4 * x * (1 - x))) / bessel(x * 0 + beta)

    return _window("kaiser_window", window_length, periodic, dtype, device, requires_grad, weights)
