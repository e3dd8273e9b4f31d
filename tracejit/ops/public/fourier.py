"""Fourier transforms without complex tensors: what PyTorch's functions take or give as complex numbers is here a pair of real tensors.

Transforms give `Parts`, a named tuple (real, imag); what takes complex numbers takes such a pair, and a real tensor as a pair without
imaginary part.  Names, arguments, norms and defaults are those of torch.fft.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracejit.core import dtypes
from tracejit.core.devices import require_cpu
from tracejit.core.numbers import settled
from tracejit.core.shapes import integer, normalise_dim, root
from tracejit.ops import fourier
from tracejit.ops.creation import arange
from tracejit.ops.movement.copies import pad
from tracejit.ops.movement.views import slice_
from tracejit.ops.public.derive import FUNCTIONS
from tracejit.ops.public.elementwise import as_floating
from tracejit.ops.public.keywords import of_tensors
from tracejit.ops.public.return_types import result_type

F = FUNCTIONS
Dims = Sequence[int] | None
Parts = result_type("fft", "real", "imag")


def _refuse_complex_methods(self: Any, name: str) -> Any:
    raise AttributeError(
        f"fft: the result is a pair of real tensors, since tensors hold no complex numbers: it has .real and .imag, not {name!r}; "
        "|z| is hypot(z.real, z.imag), the angle atan2(z.imag, z.real)"
    )


def _refuse_arithmetic(self: Any, *operands: Any) -> Any:
    raise TypeError(
        "fft: the result is a pair of real tensors, since tensors hold no complex numbers: compute with .real and .imag; the product of "
        "(a, b) and (c, d) is (a * c - b * d, a * d + b * c), and |z| is hypot(z.real, z.imag)"
    )


for _name in ("abs", "add", "matmul", "mul", "neg", "pow", "radd", "rmul", "rsub", "rtruediv", "sub", "truediv"):
    setattr(Parts, f"__{_name}__", _refuse_arithmetic)
setattr(Parts, "__getattr__", _refuse_complex_methods)  # noqa: B010  (a type checker takes an assignment for a redefinition)


def _pair(name: str, input: Any) -> tuple[Any, Any]:
    """The two parts of an argument."""
    if isinstance(input, tuple | list):
        if len(input) != 2:
            raise TypeError(f"fft.{name}(): expected a tensor or a pair (real, imag) of tensors, got {len(input)} parts")
        return as_floating(input[0]), as_floating(input[1])
    real = as_floating(input)
    return real, F["zeros_like"](real)


def _require_real(name: str, input: Any) -> Any:
    if isinstance(input, tuple | list):
        raise RuntimeError(f"fft.{name}(): expects a real input tensor, but got a pair of parts")
    return as_floating(input)


def _sized(name: str, x: Any, n: int | None, dim: int) -> Any:
    """`x` cut or filled up with zeros to n positions along `dim`."""
    size = x.shape[dim]
    wanted = size if n is None else int(n)
    if wanted < 1:
        raise RuntimeError(f"fft.{name}(): invalid number of data points ({wanted}) specified")
    if wanted < size:
        return slice_(x, dim=dim, start=0, stop=wanted, step=1)
    if wanted > size:
        return pad(x, 0.0, low=(0,) * x.ndim, high=tuple((wanted - size) * (d == dim) for d in range(x.ndim)))
    return x


def _factor(name: str, norm: str | None, count: int, inverse: bool) -> float:
    if norm not in (None, "backward", "forward", "ortho"):
        raise RuntimeError(f"fft.{name}(): invalid normalization mode: {norm!r}; expected 'backward', 'forward' or 'ortho'")
    if norm == "ortho":
        return 1 / root(count)
    return 1 / count if (norm == "forward") != inverse else 1.0


def _scaled(x: Any, factor: float) -> Any:
    return x if factor == 1.0 else x * factor


def _axes(name: str, x: Any, s: Dims, dim: Any) -> tuple[list[int | None], list[int]]:
    """(sizes, dimensions) of a transform over several dimensions: by default the last ones that have a size, or all."""
    dim, s = settled(dim), settled(s)
    if dim is None:
        dims = list(range(x.ndim)) if s is None else list(range(x.ndim - len(s), x.ndim))
        if dims and dims[0] < 0:
            raise RuntimeError(f"fft.{name}(): got shape with {len(dims)} values but input tensor only has {x.ndim} dimensions")
    else:
        dims = [normalise_dim(f"fft.{name}", d, x.ndim) for d in ((dim,) if isinstance(dim, int) else dim)]
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"fft.{name}(): FFT dims must be unique, got {dims}")
    if s is not None and len(s) != len(dims):
        raise RuntimeError(f"fft.{name}(): when given, dim and shape arguments must have the same length")
    return [None if s is None or n == -1 else n for n in (dims if s is None else s)], dims


def _transform(name: str, input: Any, s: Dims, dim: Any, norm: str | None, inverse: bool) -> Any:
    real, imag = _pair(name, input)
    sizes, dims = _axes(name, real, s, dim)
    for n, d in zip(sizes, dims, strict=True):
        real, imag = _sized(name, real, n, d), _sized(name, imag, n, d)
    factor = _factor(name, norm, math.prod(real.shape[d] for d in dims), inverse)
    real, imag = fourier.dft(real, imag, dims=tuple(dims), inverse=inverse)
    return Parts(_scaled(real, factor), _scaled(imag, factor))


@of_tensors
def fft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The transform of a tensor, or of a pair (real, imag), along `dim`, cut or filled up to n positions: a pair (real, imag).

    norm: "backward" (None) without a factor, "forward" divided by n, "ortho" by its root."""
    return _transform("fft", input, None if n is None else (n,), (dim,), norm, False)


@of_tensors
def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The inverse of fft(): a pair (real, imag)."""
    return _transform("ifft", input, None if n is None else (n,), (dim,), norm, True)


@of_tensors
def fft2(input: Any, s: Dims = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """The transform over two dimensions: a pair (real, imag)."""
    return _transform("fft2", input, s, dim, norm, False)


@of_tensors
def ifft2(input: Any, s: Dims = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of fft2(): a pair (real, imag)."""
    return _transform("ifft2", input, s, dim, norm, True)


@of_tensors
def fftn(input: Any, s: Dims = None, dim: Any = None, norm: str | None = None) -> Any:
    """The transform over several dimensions, by default all: a pair (real, imag)."""
    return _transform("fftn", input, s, dim, norm, False)


@of_tensors
def ifftn(input: Any, s: Dims = None, dim: Any = None, norm: str | None = None) -> Any:
    """The inverse of fftn(): a pair (real, imag)."""
    return _transform("ifftn", input, s, dim, norm, True)


def _half(x: Any, dim: int) -> Any:
    return slice_(x, dim=dim, start=0, stop=x.shape[dim] // 2 + 1, step=1)


def _from_real(name: str, input: Any, s: Dims, dim: Any, norm: str | None, inverse: bool) -> Any:
    """The transform of real numbers, of which the last dimension's upper half follows from the lower one and is left out."""
    x = _require_real(name, input)
    if not x.ndim:
        raise RuntimeError(f"fft.{name}(): expected a tensor with dimensions, got one without")
    last = _axes(name, x, s, dim)[1][-1]
    out = _transform(name, x, s, dim, norm, inverse)
    return Parts(_half(out.real, last), _half(out.imag, last))


def _to_real(name: str, input: Any, s: Dims, dim: Any, norm: str | None, inverse: bool) -> Any:
    """The transform to real numbers of what has the lower half of the last dimension: the upper one would be its conjugate.

    So the lower half counts twice, but the first element, and the middle one of an even length, whose imaginary parts add up to 0."""
    real, imag = _pair(name, input)
    sizes, dims = _axes(name, real, s, dim)
    *others, last = dims
    n = 2 * (real.shape[last] - 1) if sizes[-1] is None else int(sizes[-1])
    if n < 1:
        raise RuntimeError(f"fft.{name}(): invalid number of data points ({n}) specified")
    for size, d in zip(sizes[:-1], others, strict=True):
        real, imag = _sized(name, real, size, d), _sized(name, imag, size, d)
    real, imag = _sized(name, real, n // 2 + 1, last), _sized(name, imag, n // 2 + 1, last)
    factor = _factor(name, norm, n * math.prod(real.shape[d] for d in others), inverse)
    if others:
        real, imag = fourier.dft(real, imag, dims=tuple(others), inverse=inverse)
    position = arange(0, 1, length=n // 2 + 1, dtype=dtypes.int64)
    once = (position == 0) | (position * 2 == n)
    weight = F["reshape"](F["where"](once, 1.0, 2.0), tuple(-1 if d == last else 1 for d in range(real.ndim))).to(real.dtype)
    real, imag = _sized(name, real * weight, n, last), _sized(name, imag * weight, n, last)
    return _scaled(fourier.dft(real, imag, dims=(last,), inverse=inverse)[0], factor)


@of_tensors
def rfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The transform of a real tensor along `dim`, of which the first n // 2 + 1 positions are given: a pair (real, imag)."""
    return _from_real("rfft", input, None if n is None else (n,), (dim,), norm, False)


@of_tensors
def rfft2(input: Any, s: Dims = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """rfft() over two dimensions: a pair (real, imag)."""
    return _from_real("rfft2", input, s, dim, norm, False)


@of_tensors
def rfftn(input: Any, s: Dims = None, dim: Any = None, norm: str | None = None) -> Any:
    """rfft() over several dimensions, by default all: a pair (real, imag)."""
    return _from_real("rfftn", input, s, dim, norm, False)


@of_tensors
def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The real tensor of which rfft() gives `input`, a pair (real, imag): n positions along `dim`, by default an even number."""
    return _to_real("irfft", input, None if n is None else (n,), (dim,), norm, True)


@of_tensors
def irfft2(input: Any, s: Dims = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of rfft2(): a real tensor."""
    return _to_real("irfft2", input, s, dim, norm, True)


@of_tensors
def irfftn(input: Any, s: Dims = None, dim: Any = None, norm: str | None = None) -> Any:
    """The inverse of rfftn(): a real tensor."""
    return _to_real("irfftn", input, s, dim, norm, True)


@of_tensors
def hfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The transform, which is real, of a signal that is its own conjugate backwards, given by a pair of its first positions."""
    return _to_real("hfft", input, None if n is None else (n,), (dim,), norm, False)


@of_tensors
def hfft2(input: Any, s: Dims = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """hfft() over two dimensions: a real tensor."""
    return _to_real("hfft2", input, s, dim, norm, False)


@of_tensors
def hfftn(input: Any, s: Dims = None, dim: Any = None, norm: str | None = None) -> Any:
    """hfft() over several dimensions, by default all: a real tensor."""
    return _to_real("hfftn", input, s, dim, norm, False)


@of_tensors
def ihfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The inverse of hfft(): a pair (real, imag)."""
    return _from_real("ihfft", input, None if n is None else (n,), (dim,), norm, True)


@of_tensors
def ihfft2(input: Any, s: Dims = None, dim: Any = (-2, -1), norm: str | None = None) -> Any:
    """The inverse of hfft2(): a pair (real, imag)."""
    return _from_real("ihfft2", input, s, dim, norm, True)


@of_tensors
def ihfftn(input: Any, s: Dims = None, dim: Any = None, norm: str | None = None) -> Any:
    """The inverse of hfftn(): a pair (real, imag)."""
    return _from_real("ihfftn", input, s, dim, norm, True)


def _frequencies(length: int, start: int, n: int, d: float, dtype: Any, device: Any) -> Any:
    require_cpu("fftfreq", device)
    chosen = dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype, "fftfreq")
    position = arange(0, 1, length=length, dtype=dtypes.int64)
    position = F["where"](position >= start, position - n, position)
    return position.to(chosen) * (1 / (n * d))


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """The frequencies of the n positions of fft(), for samples d apart: 0, 1, ... -2, -1, divided by n * d."""
    n = integer("fftfreq", "n", n)
    return _frequencies(n, (n + 1) // 2, n, d, dtype, device).requires_grad_(requires_grad)


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """The frequencies of the n // 2 + 1 positions of rfft(), for samples d apart."""
    n = integer("rfftfreq", "n", n)
    return _frequencies(n // 2 + 1, n + 1, n, d, dtype, device).requires_grad_(requires_grad)


def _rolled(name: str, input: Any, dim: Any, back: bool) -> Any:
    if isinstance(input, tuple | list):
        return Parts(*(_rolled(name, x, dim, back) for x in input))
    dims = _axes(name, input, None, dim)[1]
    return F["roll"](input, [(input._sizes[d] + back) // 2 for d in dims], dims)


@of_tensors
def fftshift(input: Any, dim: Any = None) -> Any:
    """Frequencies in order: the zero in the middle along `dim`, by default all dimensions.  Takes tensors and pairs."""
    return _rolled("fftshift", input, dim, False)


@of_tensors
def ifftshift(input: Any, dim: Any = None) -> Any:
    """The inverse of fftshift()."""
    return _rolled("ifftshift", input, dim, True)
