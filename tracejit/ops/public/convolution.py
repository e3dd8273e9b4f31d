"""Convolutions in one to three dimensions.

The transposed convolution is the primitive that gives the gradient of a convolution's input.  Where that has no convolution (more
output padding than steps, integers) it is a composition: a matrix product whose columns are added up by `fold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.core import dtypes
from tracejit.core.precision import lowered
from tracejit.core.shapes import integer, product
from tracejit.ops import linalg
from tracejit.ops.composites.convolution import convolution as correlation
from tracejit.ops.composites.convolution import convolution_input
from tracejit.ops.movement import copies, views
from tracejit.ops.public.derive import public

Sizes = int | Sequence[int]


def per_dimension(name: str, what: str, value: Sizes, rank: int) -> tuple[int, ...]:
    """One number per spatial dimension.  Raises RuntimeError for another count."""
    if not isinstance(value, tuple | list):
        return (integer(name, what, value),) * rank
    out = tuple([integer(name, what, v) for v in value])
    if len(out) == 1:
        return out * rank
    if len(out) != rank:
        raise RuntimeError(f"{name}(): expected {what} to be a number or {rank} numbers, got {list(out)}")
    return out


def windows(x: Any, rank: int, size: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Any:
    """All windows over the last `rank` dimensions: their positions stay where the dimensions were, their elements are new last ones."""
    first = x.ndim - rank
    for i in range(rank):
        x = windows_of(x, first + i, size[i], stride[i], dilation[i])
    return x


def windows_of(x: Any, dim: int, size: int, stride: int, dilation: int) -> Any:
    """All windows over one dimension (a view).  Windows that tile it are a reshape, whose derivative is one too."""
    if size != stride or dilation != 1:
        return views.unfold(x, dim=dim, size=size, step=stride, dilation=dilation)
    count = x.shape[dim] // size
    if count * size != x.shape[dim]:
        x = views.slice_(x, dim=dim, start=0, stop=count * size, step=1)
    split = views.reshape(x, shape=(*x.shape[:dim], count, size, *x.shape[dim + 1 :]))
    return views.permute(split, dims=(*range(dim + 1), *range(dim + 2, split.ndim), dim + 1))


def padded(x: Any, low: tuple[int, ...], high: tuple[int, ...], value: float) -> Any:
    """The last dimensions extended by a constant; the tensor itself where there is nothing to add."""
    if not any(low) and not any(high):
        return x
    lead = (0,) * (x.ndim - len(low))
    return copies.pad(x, value, low=lead + low, high=lead + high)


def _check(name: str, rank: int, x: Any, weight: Any, bias: Any, channels: int, outputs: int, groups: int) -> None:
    if x.ndim not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"{name}(): expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input, but got input of size {list(x.shape)}"
        )
    if weight.ndim != rank + 2:
        raise RuntimeError(f"{name}(): expected a weight of {rank + 2} dimensions, got shape {list(weight.shape)}")
    if any(size < 1 for size in weight.shape[2:]):
        raise RuntimeError(f"{name}(): kernel size should be greater than zero, got a weight of shape {list(weight.shape)}")
    if x.dtype is not weight.dtype or (bias is not None and bias.dtype is not x.dtype):
        raise RuntimeError(
            f"{name}(): input, weight and bias must have one dtype, got {x.dtype.name} and {weight.dtype.name}; convert one with .to()"
        )
    if groups <= 0:
        raise RuntimeError(f"{name}(): groups must be positive, got {groups}")
    if x.shape[-rank - 1] != channels:
        raise RuntimeError(
            f"{name}(): given groups={groups} and weight of size {list(weight.shape)}, expected {channels} input channels, "
            f"got input of size {list(x.shape)}"
        )
    if any(size == 0 for size in x.shape[-rank:]) and all(size != 0 for size in x.shape[:-rank]):
        raise RuntimeError(f"{name}(): only zero batch or zero channel inputs are supported, got input of size {list(x.shape)}")
    if outputs % groups or channels % groups:
        raise RuntimeError(f"{name}(): channels must be divisible by groups={groups}, got {channels} in and {outputs} out")
    if bias is not None and bias._sizes != (outputs,):
        raise RuntimeError(f"{name}(): expected a bias of shape [{outputs}], got {list(bias.shape)}")


def _with_bias(out: Any, bias: Any, rank: int) -> Any:
    return out if bias is None else out + views.reshape(bias, shape=(bias.shape[0], *(1,) * rank))


def _padding(name: str, padding: Any, rank: int, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    if not isinstance(padding, str):
        both = per_dimension(name, "padding", padding, rank)
        if min(both) < 0:
            raise RuntimeError(f"{name}(): negative padding is not supported, got {list(both)}")
        return both, both
    if padding not in ("same", "valid"):
        raise RuntimeError(f"{name}(): padding must be 'same', 'valid' or numbers, got {padding!r}")
    if padding == "valid":
        return (0,) * rank, (0,) * rank
    if any(s != 1 for s in stride):
        raise RuntimeError(f"{name}(): padding='same' is not supported for strided convolutions, got stride {list(stride)}")
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)


def convolution(
    name: str, rank: int, x: Any, weight: Any, bias: Any, stride: Sizes, padding: Any, dilation: Sizes, groups: int
) -> Any:
    """Cross-correlation of (N, C, *sizes) with (outputs, C / groups, *kernel).  Raises RuntimeError for shapes that do not fit."""
    outputs, channels, *sizes = weight.shape
    kernel = tuple(sizes)
    _check(name, rank, x, weight, bias, channels * groups, outputs, groups)
    steps = per_dimension(name, "stride", stride, rank)
    gaps = per_dimension(name, "dilation", dilation, rank)
    if min(steps) < 1 or min(gaps) < 1:
        raise RuntimeError(f"{name}(): stride and dilation must be positive, got {list(steps)} and {list(gaps)}")
    low, high = _padding(name, padding, rank, kernel, steps, gaps)
    if x.ndim == rank + 1:
        return views.select(
            convolution(name, rank, views.reshape(x, shape=(1, *x.shape)), weight, bias, stride, padding, dilation, groups),
            0,
            dim=0,
        )
    inside = [a + s + b for a, s, b in zip(low, x._sizes[2:], high, strict=True)]
    for s, g, k in zip(inside, gaps, kernel, strict=True):
        if s < g * (k - 1) + 1:
            raise RuntimeError(
                f"{name}(): kernel size {list(kernel)} (dilation {list(gaps)}) can't be greater than the padded input size {inside}"
            )
    if x.dtype is dtypes.bool_:
        raise RuntimeError(f"{name}(): is not implemented for bool; convert the operands, e.g. with .float()")
    correlate: Any = correlation if x.dtype.is_floating_point else correlation.expansion
    return correlate(x, weight, bias, steps=steps, low=low, high=high, gaps=gaps, groups=groups)


def _flat(x: Any, shape: tuple[int, ...]) -> Any:
    return views.reshape(x if x.is_viewable(shape) else copies.clone(x), shape=shape)


def transposed_convolution(
    name: str,
    rank: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    groups: int,
    dilation: Sizes,
) -> Any:
    """The adjoint of `convolution` with weight (C, outputs / groups, *kernel).  Raises RuntimeError for shapes that do not fit."""
    _check(name, rank, x, weight, bias, weight.shape[0], weight.shape[1] * groups, groups)
    if x.ndim == rank + 1:
        single = views.reshape(x, shape=(1, *x.shape))
        return views.select(
            transposed_convolution(name, rank, single, weight, bias, stride, padding, output_padding, groups, dilation), 0, dim=0
        )
    steps, gaps = per_dimension(name, "stride", stride, rank), per_dimension(name, "dilation", dilation, rank)
    crop, extra = per_dimension(name, "padding", padding, rank), per_dimension(name, "output_padding", output_padding, rank)
    if any(e >= max(s, g) for e, s, g in zip(extra, steps, gaps, strict=True)):
        raise RuntimeError(f"{name}(): output padding must be smaller than either stride or dilation, got {list(extra)}")
    batch, channels, sizes, kernel = x.shape[0], x.shape[1], tuple(x.shape[2:]), tuple(weight.shape[2:])
    outputs = weight.shape[1] * groups
    lengths = tuple((sizes[i] - 1) * steps[i] + gaps[i] * (kernel[i] - 1) + 1 + extra[i] for i in range(rank))
    for i in range(rank):
        if lengths[i] - 2 * crop[i] <= 0:
            raise RuntimeError(
                f"{name}(): padding {crop[i]} leaves nothing of the {lengths[i]} elements of spatial dimension {i}"
            )
    if x.dtype.is_floating_point and all(e < s for e, s in zip(extra, steps, strict=True)):
        inside = tuple(n - 2 * c for n, c in zip(lengths, crop, strict=True))
        out = convolution_input(x, weight, lengths=inside, steps=steps, low=crop, high=crop, gaps=gaps, groups=groups)
        return _with_bias(out, bias, rank)
    inner, positions = weight.shape[1] * product(kernel), product(sizes)
    matrix = linalg.transpose_matrix(_flat(weight, (groups, channels // groups, inner)))
    columns = linalg.matmul(matrix, _flat(x, (batch, groups, channels // groups, positions)))
    out = views.reshape(columns, shape=(batch, outputs, *kernel, *sizes))
    out = views.permute(out, dims=(0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    out = views.fold(out, dims=tuple(range(2, 2 + rank)), lengths=lengths, steps=steps, dilations=gaps)
    for i in range(rank):
        if crop[i]:
            out = views.slice_(out, dim=2 + i, start=crop[i], stop=out.shape[2 + i] - crop[i], step=1)
    if any(crop):
        out = copies.clone(out)  # the result has memory of its own, and no more of it than it needs
    return _with_bias(out, bias, rank)


def _make(rank: int) -> None:
    name, adjoint = f"conv{rank}d", f"conv_transpose{rank}d"

    @lowered
    def conv(
        input: Any, weight: Any, bias: Any = None, stride: Sizes = 1, padding: Any = 0, dilation: Sizes = 1, groups: int = 1
    ) -> Any:
        return convolution(name, rank, input, weight, bias, stride, padding, dilation, groups)

    @lowered
    def conv_transpose(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Any:
        return transposed_convolution(adjoint, rank, input, weight, bias, stride, padding, output_padding, groups, dilation)

    conv.__name__, conv_transpose.__name__ = name, adjoint
    conv.__doc__ = (
        f"Cross-correlation over {rank} spatial dimension(s); input (N, C, ...) or (C, ...), weight (outputs, C / groups, ...)."
    )
    conv_transpose.__doc__ = f"The adjoint of conv{rank}d with respect to its input; weight (C, outputs / groups, ...)."
    public(method=False)(conv)
    public(method=False)(conv_transpose)


for _rank in (1, 2, 3):
    _make(_rank)
