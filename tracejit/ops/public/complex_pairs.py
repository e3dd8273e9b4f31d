"""Complex numbers as pairs (real, imag) of tensors, which the functions of fft take and give: making them, and taking them apart."""

from __future__ import annotations

from typing import Any

from tracejit.ops.public.derive import FUNCTIONS, public
from tracejit.ops.public.fourier import Parts

__all__ = ["complex_", "imag", "polar", "view_as_complex", "view_as_real"]


def _is_pair(input: Any) -> bool:
    return isinstance(input, tuple) and len(input) == 2


@public(method=False)
def complex_(real: Any, imag: Any) -> Any:
    """The pair (real, imag) of two tensors of one dtype, of the shape of the two together.

    Raises RuntimeError for other dtypes than those of floating point, and for two of them."""
    if real.dtype is not imag.dtype or not real.dtype.is_floating_point:
        raise RuntimeError(
            f"complex(): expected both parts to have one floating-point dtype, got {real.dtype!r} for real and {imag.dtype!r} for imag"
        )
    return Parts(*FUNCTIONS["broadcast_tensors"](real, imag))


@public(method=False)
def polar(abs: Any, angle: Any) -> Any:
    """The pair of parts of numbers with these absolute values and angles, in radians."""
    return complex_(abs * FUNCTIONS["cos"](angle), abs * FUNCTIONS["sin"](angle))


@public(method=False)
def view_as_complex(input: Any) -> Any:
    """The pair of views of the real and the imaginary parts, which a tensor (*, 2) holds in its last dimension.

    Raises RuntimeError for another size of that."""
    if not input.ndim or input._sizes[-1] != 2:
        raise RuntimeError(f"Tensor must have a last dimension of size 2, got shape {list(input._sizes)}")
    return Parts(input[..., 0], input[..., 1])


@public(method=False)
def view_as_real(input: Any) -> Any:
    """The tensor (*, 2) of a pair (real, imag): not a view of the two, which lie apart.  Raises RuntimeError for a real tensor."""
    if not _is_pair(input):
        raise RuntimeError("view_as_real is only supported for complex tensors, which are pairs (real, imag) here")
    return FUNCTIONS["stack"](tuple(input), -1)


@public(method=False)
def imag(input: Any) -> Any:
    """The imaginary part of a pair.  Raises RuntimeError for a tensor, which is real."""
    if not _is_pair(input):
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return input[1]
