"""The discrete Fourier transform of pairs of real tensors: real and imaginary parts, since no tensor is complex."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.op import Kind
from tracejit.ops.declare import custom
from tracejit.ops.samples import cases, floats

__all__ = ["dft"]


def _rule(real: Aval, imaginary: Aval, dims: tuple[int, ...], inverse: bool) -> tuple[Aval, Aval]:
    for x in (real, imaginary):
        if not x.dtype.is_floating_point:
            raise RuntimeError(f"fft: expected floating-point tensors, got {x.dtype.name}; convert with .float()")
    if real.shape != imaginary.shape or real.dtype is not imaginary.dtype:
        raise RuntimeError(
            f"fft: expected real and imaginary parts of one shape and dtype, got {list(real.shape)} of {real.dtype.name} and "
            f"{list(imaginary.shape)} of {imaginary.dtype.name}"
        )
    return real, real


@custom(
    Kind.OPAQUE,
    _rule,
    multiple=True,
    traits=("checked",),
    samples=cases(
        (floats(5), floats(5, seed=1), {"dims": (0,), "inverse": False}),
        (floats(2, 3).T, floats(3, 2, seed=1), {"dims": (0, 1), "inverse": True}),
        (floats(2, 1, 4), floats(2, 1, 4, seed=1), {"dims": (2,), "inverse": True}),
    ),
)
def dft(real: Any, imaginary: Any, dims: tuple[int, ...], inverse: bool) -> Any:
    """(real, imaginary) part of the sum of x[k] * exp(-2 pi i j k / n) over k, along `dims`; exp(+...) for `inverse`, without a factor."""
    numbers = np.empty(real.shape, np.complex64 if real.dtype == np.float32 else np.complex128)
    numbers.real, numbers.imag = real, imaginary
    if numbers.size:
        for dim in reversed(dims):
            transform = np.fft.ifft if inverse else np.fft.fft
            numbers = transform(numbers, axis=dim, norm="forward" if inverse else "backward")
    return np.ascontiguousarray(numbers.real).astype(real.dtype), np.ascontiguousarray(numbers.imag).astype(real.dtype)


@dft.vjp()
def _(c: Any, g_real: Any, g_imaginary: Any) -> Any:
    # the adjoint of the transform is the transform with the other sign
    zeros = (g_imaginary if g_real is None else g_real) * 0.0 if g_real is None or g_imaginary is None else None
    parts = tuple(zeros if g is None else g for g in (g_real, g_imaginary))
    return dft.of(*parts, dims=c.attributes["dims"], inverse=not c.attributes["inverse"])
