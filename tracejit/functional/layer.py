"""Linear maps and embeddings."""

from __future__ import annotations

from typing import Any

from tracejit.autograd.grad_mode import no_grad
from tracejit.core.dtypes import int64
from tracejit.core.interpreter import state
from tracejit.core.interrupts import is_foreign
from tracejit.core.precision import lowered, rounds_once
from tracejit.core.shapes import integer, product
from tracejit.functional.support import renamed
from tracejit.ops import indexing
from tracejit.ops import reduce as primitives
from tracejit.ops.composites.products import addmm
from tracejit.ops.creation import arange, full
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.linalg import matmul
from tracejit.ops.movement.views import detach, permute, reshape, slice_
from tracejit.ops.public.keywords import of_tensors, require_tensors
from tracejit.ops.public.norms import vector_norm

__all__ = ["bilinear", "embedding", "embedding_bag", "linear", "one_hot"]


@of_tensors
@lowered
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """input @ weight.T + bias for input (*, in), weight (out, in) or (in,), bias (out,) or ().

    Raises RuntimeError where sizes or dtypes differ, TypeError for what is no tensor."""
    try:
        ranks = input.ndim, weight.ndim
    except AttributeError as error:
        if is_foreign(error):
            raise
        require_tensors("linear", input=input, weight=weight)
        raise
    if ranks[0] == 0 or ranks[1] not in (1, 2):
        raise RuntimeError(
            f"linear(): expected input with 1 or more and weight with 1 or 2 dimensions, got {list(input._sizes)} and {list(weight.shape)}"
        )
    inside = weight._sizes[-1]
    if input._sizes[-1] != inside:
        raise RuntimeError(
            f"linear(): expected the last dimension of input to be {inside} (weight is {list(weight.shape)}), got {list(input._sizes)}"
        )
    if input.dtype is not weight.dtype:
        raise RuntimeError(
            f"linear(): expected input and weight to have one dtype, got {input.dtype.name} and {weight.dtype.name}; convert one, e.g. "
            f"input.to({weight.dtype.name}) or module.to({input.dtype.name})"
        )
    lead = input._sizes[:-1]
    outside = weight._sizes[:-1]
    columns = state.top.bind(permute, (weight,), {"dims": (1, 0)}) if outside else reshape(weight, shape=(inside, 1))
    rows = input if input.ndim == 2 else input.reshape(product(lead), inside)  # one product of matrices, also for a batch of them
    dtype = input.dtype
    alike = bias is not None and bias.dtype is dtype and weight.dtype is dtype and dtype.is_floating_point
    added = alike and outside and bias._sizes in ((), outside)
    out = addmm(bias, rows, columns) if added else state.top.bind(matmul, (rows, columns), {})
    if input.ndim != 2 or not outside:
        out = reshape(out, shape=lead + outside)
    return out if bias is None or added else out + bias


@of_tensors
@rounds_once
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """sum_ij input1_i * weight_kij * input2_j + bias_k for inputs (*, in1) and (*, in2), weight (out, in1, in2)."""
    lead = tuple(input1.shape[:-1])
    if weight.ndim != 3 or tuple(input2.shape[:-1]) != lead or (input1.shape[-1], input2.shape[-1]) != tuple(weight.shape[1:]):
        raise RuntimeError(
            f"bilinear(): expected inputs (*, in1) and (*, in2) with weight (out, in1, in2), "
            f"got {list(input1.shape)}, {list(input2.shape)} and {list(weight.shape)}"
        )
    outside, in1, in2 = weight.shape
    count = product(lead)
    first, second = input1.reshape(count, in1), input2.reshape(count, 1, in2)
    half = reshape(matmul(first, permute(weight, dims=(1, 0, 2)).reshape(in1, outside * in2)), shape=(count, outside, in2))
    out = primitives.sum_(half * second, dims=(2,), keepdim=False)
    out = reshape(out, shape=(*lead, outside))
    return out if bias is None else out + bias


@of_tensors
def embedding(
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """The rows of `weight` (V, D) at the indices `input` (int64 or int32, any shape).

    padding_idx: that row gets no gradient.  max_norm: rows looked up whose norm is larger are first scaled to it, in place.
    scale_grad_by_freq: gradients are divided by how often their row occurs.  Gradients are dense, whatever
    `sparse` says.  Raises IndexError for indices outside [0, V)."""
    require_tensors("embedding", input=input, weight=weight)
    if input.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"embedding(): expected input to be int64 or int32, got {input.dtype.name}")
    if weight.ndim != 2:
        raise RuntimeError(f"embedding(): expected weight to have 2 dimensions, got shape {list(weight.shape)}")
    rows = weight.shape[0]
    if padding_idx is not None:
        padding_idx = integer("embedding", "padding_idx", padding_idx)
        if not -rows <= padding_idx < rows:
            raise AssertionError(f"embedding(): padding_idx must be within [{-rows}, {rows}), got {padding_idx}")
        padding_idx %= rows
    if max_norm is not None:
        _limit_norms(input, weight, max_norm, norm_type)
    try:
        out = indexing.index_select(weight, input, dim=0)
    except IndexError as error:
        if is_foreign(error):
            raise
        raise renamed(error, "embedding", "index") from None
    if scale_grad_by_freq:
        share = 1.0 / indexing.index_select(_occurrences(input, weight), input, dim=0)
        scaled = out * reshape(share, shape=(*input._sizes, 1))
        out = detach(out) + (scaled - detach(scaled))
    if padding_idx is not None:
        out = where(reshape(input == padding_idx, shape=(*input._sizes, 1)), detach(out), out)
    return out


@of_tensors
def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sums, means or maxima of bags of rows of `weight` (V, D).

    input: (B, N), bags of equal length, or (N,) with `offsets` (B,), the positions where the bags begin.  per_sample_weights: factors of
    the rows, for mode "sum".  padding_idx: indices that count for nothing.  An empty bag gives zeros.  Gradients are dense, whatever
    `sparse`. Raises ValueError for arguments that do not fit together."""
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(f"embedding_bag: per_sample_weights is supported for mode='sum' only, got mode={mode!r}")
    if per_sample_weights is not None and per_sample_weights._sizes != input._sizes:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({list(per_sample_weights.shape)}) is not None, then it must have the same shape as the "
            f"input ({list(input._sizes)})"
        )
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences."
            )
        bags, length = input._sizes
        bag = reshape(arange(0, 1, length=bags, dtype=int64), shape=(bags, 1)).expand(bags, length).reshape(bags * length)
    elif input.ndim == 1:
        if offsets is None or offsets.ndim != 1:
            raise ValueError("offsets has to be a 1D Tensor for an input of one dimension")
        bags = offsets.shape[0] - bool(include_last_offset)
        positions = reshape(arange(0, 1, length=input._sizes[0], dtype=int64), shape=(input._sizes[0], 1))
        started = cast(positions >= slice_(offsets, dim=0, start=0, stop=bags, step=1), dtype=int64)
        bag = primitives.sum_(started, dims=(1,), keepdim=False) - 1
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    flat = input.reshape(product(input._sizes))
    rows = embedding(flat, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    if per_sample_weights is not None:
        rows = rows * reshape(per_sample_weights, shape=(flat.shape[0], 1))
    counted = full(1, shape=flat._sizes, dtype=weight.dtype)
    if padding_idx is not None:
        kept = flat != padding_idx % weight.shape[0]
        counted = cast(kept, dtype=weight.dtype)
        rows = where(reshape(kept, shape=(flat.shape[0], 1)), rows, 0.0)
    sizes = reshape(indexing.index_add(full(0, shape=(bags,), dtype=weight.dtype), bag, counted, dim=0), shape=(bags, 1))
    if mode == "max":
        return _largest_of_bags(rows, bag, counted, sizes, bags)
    total = indexing.index_add(full(0, shape=(bags, weight.shape[1]), dtype=weight.dtype), bag, rows, dim=0)
    return total if mode == "sum" else total / where(sizes == 0, 1.0, sizes)


def _largest_of_bags(rows: Any, bag: Any, counted: Any, sizes: Any, bags: int) -> Any:
    """The largest of the rows in each bag, the first of equals getting the gradient."""
    own = reshape(bag, shape=(1, rows.shape[0])) == reshape(arange(0, 1, length=bags, dtype=int64), shape=(bags, 1))
    inside = reshape(own & (reshape(counted, shape=(1, rows.shape[0])) > 0), shape=(bags, rows.shape[0], 1))
    candidates = where(inside, reshape(detach(rows), shape=(1, *rows.shape)), float("-inf"))
    best = primitives.argmax(candidates, dim=1, keepdim=False)
    return where(sizes == 0, 0.0, indexing.gather(rows, best, dim=0))


def _occurrences(input: Any, weight: Any) -> Any:
    """How often each row is looked up."""
    count = product(input._sizes)
    ones = full(1, shape=(count,), dtype=weight.dtype)
    return indexing.index_add(full(0, shape=(weight.shape[0],), dtype=weight.dtype), input.reshape(count), ones, dim=0)


def _limit_norms(input: Any, weight: Any, max_norm: float, norm_type: float) -> None:
    with no_grad():
        norm = vector_norm(weight, norm_type, (1,), True)
        used = reshape(_occurrences(input, weight) > 0, shape=(weight.shape[0], 1))
        weight.copy_(weight * where((norm > max_norm) & used, max_norm / (norm + 1e-7), 1.0))


@of_tensors
def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """int64 vectors of length num_classes with 1 at the given class; num_classes -1 means the largest class + 1.

    Raises RuntimeError unless `tensor` is int64, and for classes outside [0, num_classes)."""
    if tensor.dtype is not int64:
        raise RuntimeError(f"one_hot(): expected an int64 tensor of classes, got {tensor.dtype.name}; convert it with .long()")
    if num_classes == -1:
        if not tensor.numel():
            raise RuntimeError("one_hot(): cannot infer the number of classes from an empty tensor; pass num_classes")
        num_classes = int(primitives.amax(tensor, dims=tuple(range(tensor.ndim)), keepdim=False).item()) + 1
    shape = tensor._sizes
    zeros = full(0, shape=(*shape, num_classes), dtype=int64)
    ones = full(1, shape=(*shape, 1), dtype=int64)
    try:
        return indexing.scatter(zeros, reshape(tensor, shape=(*shape, 1)), ones, dim=len(shape))
    except IndexError as error:
        if is_foreign(error):
            raise
        raise RuntimeError(
            f"one_hot(): Class values must be non-negative and smaller than num_classes ({num_classes}): {error}"
        ) from None
