"""Linear maps, embeddings, attention."""

from __future__ import annotations

import math
from typing import Any

from tracejit.autograd.grad_mode import no_grad
from tracejit.core.dtypes import bool_, int64
from tracejit.core.shapes import product
from tracejit.functional.regularisation import dropout
from tracejit.ops import indexing
from tracejit.ops import reduce as primitives
from tracejit.ops.creation import arange, full
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import exp
from tracejit.ops.linalg import matmul
from tracejit.ops.movement.views import detach, expand, permute, reshape
from tracejit.ops.public.norms import vector_norm

__all__ = ["bilinear", "embedding", "linear", "one_hot", "scaled_dot_product_attention"]


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """input @ weight.T + bias for input (*, in), weight (out, in) or (in,), bias (out,) or ().  Raises RuntimeError where sizes differ."""
    if input.ndim == 0 or weight.ndim not in (1, 2):
        raise RuntimeError(
            f"linear(): expected input with 1 or more and weight with 1 or 2 dimensions, got {list(input.shape)} and {list(weight.shape)}"
        )
    inside = weight.shape[-1]
    if input.shape[-1] != inside:
        raise RuntimeError(
            f"linear(): expected the last dimension of input to be {inside} (weight is {list(weight.shape)}), got {list(input.shape)}"
        )
    lead = tuple(input.shape[:-1])
    outside = tuple(weight.shape[:-1])
    columns = permute(weight, dims=(1, 0)) if outside else reshape(weight, shape=(inside, 1))
    if input.ndim == 2:
        out = matmul(input, columns)
        if not outside:
            out = reshape(out, shape=lead)
    else:  # one product of matrices, also for a batch of them
        out = reshape(matmul(input.reshape(product(lead), inside), columns), shape=lead + outside)
    return out if bias is None else out + bias


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


def embedding(
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
) -> Any:
    """The rows of `weight` (V, D) at the indices `input` (int64 or int32, any shape).

    padding_idx: that row gets no gradient.  max_norm: rows looked up whose norm is larger are first scaled to it, in place.
    scale_grad_by_freq: gradients are divided by how often their row occurs.  Raises IndexError for indices outside [0, V)."""
    if input.dtype.name not in ("int64", "int32"):
        raise RuntimeError(f"embedding(): expected input to be int64 or int32, got {input.dtype.name}")
    if weight.ndim != 2:
        raise RuntimeError(f"embedding(): expected weight to have 2 dimensions, got shape {list(weight.shape)}")
    rows = weight.shape[0]
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise AssertionError(f"embedding(): padding_idx must be within [{-rows}, {rows}), got {padding_idx}")
        padding_idx %= rows
    if max_norm is not None:
        _limit_norms(input, weight, max_norm, norm_type)
    out = indexing.index_select(weight, input, dim=0)
    if scale_grad_by_freq:
        share = 1.0 / indexing.index_select(_occurrences(input, weight), input, dim=0)
        scaled = out * reshape(share, shape=(*input.shape, 1))
        out = detach(out) + (scaled - detach(scaled))
    if padding_idx is not None:
        out = where(reshape(input == padding_idx, shape=(*input.shape, 1)), detach(out), out)
    return out


def _occurrences(input: Any, weight: Any) -> Any:
    """How often each row is looked up."""
    count = product(input.shape)
    ones = full(1, shape=(count,), dtype=weight.dtype)
    return indexing.index_add(full(0, shape=(weight.shape[0],), dtype=weight.dtype), input.reshape(count), ones, dim=0)


def _limit_norms(input: Any, weight: Any, max_norm: float, norm_type: float) -> None:
    with no_grad():
        norm = vector_norm(weight, norm_type, (1,), True)
        used = reshape(_occurrences(input, weight) > 0, shape=(weight.shape[0], 1))
        weight.copy_(weight * where((norm > max_norm) & used, max_norm / (norm + 1e-7), 1.0))


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """int64 vectors of length num_classes with 1 at the given class; num_classes -1 means the largest class + 1.

    Raises RuntimeError unless `tensor` is int64, IndexError for classes outside [0, num_classes)."""
    if tensor.dtype is not int64:
        raise RuntimeError(f"one_hot(): expected an int64 tensor of classes, got {tensor.dtype.name}; convert it with .long()")
    if num_classes == -1:
        if not tensor.numel():
            raise RuntimeError("one_hot(): cannot infer the number of classes from an empty tensor; pass num_classes")
        num_classes = int(primitives.amax(tensor, dims=tuple(range(tensor.ndim)), keepdim=False).item()) + 1
    shape = tuple(tensor.shape)
    zeros = full(0, shape=(*shape, num_classes), dtype=int64)
    ones = full(1, shape=(*shape, 1), dtype=int64)
    return indexing.scatter(zeros, reshape(tensor, shape=(*shape, 1)), ones, dim=len(shape))


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(query @ key.mT * scale + mask) @ value for query (..., L, E), key (..., S, E), value (..., S, F).

    attn_mask: bool (True takes part) or a float addend, broadcast to (..., L, S).  is_causal: position i sees positions up to i.  scale
    defaults to 1 / sqrt(E).  A query that sees nothing gives zeros.  enable_gqa: the heads, dimension -3, of query are a multiple of those
    of key and value."""
    if query.ndim < 2 or key.ndim < 2 or value.ndim < 2:
        raise RuntimeError(
            f"scaled_dot_product_attention(): expected at least 2 dimensions, got {query.ndim}, {key.ndim} and {value.ndim}"
        )
    if is_causal and attn_mask is not None:
        raise RuntimeError("scaled_dot_product_attention(): is_causal=True excludes an explicit attn_mask")
    if enable_gqa:
        key, value = _repeated(key, query), _repeated(value, query)
    length, source = query.shape[-2], key.shape[-2]
    # half of the scale on each side, as PyTorch does, so that large products do not overflow
    factor = math.sqrt(1.0 / math.sqrt(query.shape[-1]) if scale is None else abs(scale))
    sign = -1.0 if scale is not None and scale < 0 else 1.0
    order = (*range(key.ndim - 2), key.ndim - 1, key.ndim - 2)
    scores = matmul(query * (factor * sign), permute(key * factor, dims=order))
    if is_causal:
        row = reshape(arange(0, 1, length=length, dtype=int64), shape=(length, 1))
        attn_mask = row >= arange(0, 1, length=source, dtype=int64)
    if attn_mask is not None:
        scores = where(attn_mask, scores, float("-inf")) if attn_mask.dtype is bool_ else scores + attn_mask
    weights = _attention_weights(scores)
    if dropout_p > 0.0:
        weights = dropout(weights, dropout_p, True)
    return matmul(weights, value)


def _attention_weights(scores: Any) -> Any:
    """softmax along the last dimension; zeros where every score is -inf."""
    last = (scores.ndim - 1,)
    high = detach(primitives.amax(scores, dims=last, keepdim=True))
    weights = exp(scores - where(high == float("-inf"), 0.0, high))
    total = primitives.sum_(weights, dims=last, keepdim=True)
    return weights / where(total == 0.0, 1.0, total)


def _repeated(x: Any, query: Any) -> Any:
    """The heads (dimension -3) of `x`, each repeated so that there are as many as in `query`."""
    if x.ndim < 3 or query.ndim < 3 or query.shape[-3] % x.shape[-3]:
        raise RuntimeError(
            f"scaled_dot_product_attention(): enable_gqa expects the heads of query, {list(query.shape)}, "
            f"to be a multiple of those of key and value, {list(x.shape)}"
        )
    times = query.shape[-3] // x.shape[-3]
    lead, tail = tuple(x.shape[:-2]), tuple(x.shape[-2:])
    wide = expand(reshape(x, shape=(*lead, 1, *tail)), shape=(*lead, times, *tail))
    return wide.reshape(*lead[:-1], lead[-1] * times, *tail)
