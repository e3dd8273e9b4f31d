"""Attention: scaled products, and with many heads."""

from __future__ import annotations

import math
from typing import Any

from tracejit.core.attention_blocks import rows_of_block
from tracejit.core.dtypes import bool_, float32, float64
from tracejit.core.precision import lowered
from tracejit.core.symbolic import concretise_sizes
from tracejit.functional.layer import linear
from tracejit.functional.regularisation import dropout
from tracejit.functional.support import kept_by_dropout
from tracejit.ops import reduce as primitives
from tracejit.ops.composites.attention import attention
from tracejit.ops.composites.attention_in_blocks import attention_in_blocks
from tracejit.ops.creation import full
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.linalg import matmul
from tracejit.ops.movement.copies import cat, pad
from tracejit.ops.movement.views import expand, permute, reshape, slice_
from tracejit.ops.public.keywords import of_tensors
from tracejit.ops.public.softmax import softmax

__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]


@of_tensors
@lowered
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
    of key and value.

    Long sequences are computed in blocks of queries: from 4 million scores on (L * S, times what stands before), with is_causal from one
    million.  Then memory grows with L + S, not with L * S, also in the backward pass, which computes the weights again.  Dropout takes one
    byte for each score.  Where the dimensions before the last two broadcast, all scores are in memory."""
    if query.ndim < 2 or key.ndim < 2 or value.ndim < 2:
        raise RuntimeError(
            f"scaled_dot_product_attention(): expected at least 2 dimensions, got {query.ndim}, {key.ndim} and {value.ndim}"
        )
    if is_causal and attn_mask is not None:
        raise RuntimeError("scaled_dot_product_attention(): is_causal=True excludes an explicit attn_mask")
    if attn_mask is not None and attn_mask.dtype not in (bool_, query.dtype):
        if attn_mask.dtype is not float32:
            raise RuntimeError(
                f"scaled_dot_product_attention(): expected attn_mask of dtype bool, float32 or that of query, {query.dtype.name}, "
                f"got {attn_mask.dtype.name}; convert it with .to()"
            )
        attn_mask = cast(attn_mask, dtype=query.dtype)
    if enable_gqa:
        key, value = _repeated(key, query), _repeated(value, query)
    factor = 1.0 / math.sqrt(concretise_sizes(query.shape[-1])) if scale is None else float(scale)
    if key.shape[-2] == 0:
        return full(0.0, shape=(*query.shape[:-1], value.shape[-1]), dtype=query.dtype)
    if 0.0 <= dropout_p < 1.0 and _has_blocks(query, key, value) and (rows := rows_of_block(query, key, bool(is_causal))):
        mask = _mask_in_blocks(attn_mask, query, key)
        if mask is not False:
            scores = (*query.shape[:-1], key.shape[-2])
            kept = kept_by_dropout(query, scores, dropout_p) if dropout_p > 0.0 else None
            given = {"scale": factor, "causal": bool(is_causal), "rows": rows, "rate": float(dropout_p), "strict": False}
            return attention_in_blocks(query, key, value, mask, kept, **given)[0]
    out, weights = attention(query, key, value, attn_mask, scale=factor, causal=bool(is_causal))
    return matmul(dropout(weights, dropout_p, True), value) if dropout_p > 0.0 else out


def _has_blocks(query: Any, key: Any, value: Any) -> bool:
    """Whether attention_in_blocks() takes these."""
    alike = query.shape[:-2] == key.shape[:-2] == value.shape[:-2] and query.dtype is key.dtype is value.dtype
    return alike and query.dtype in (float32, float64)


def _mask_in_blocks(mask: Any, query: Any, key: Any) -> Any:
    """A mask of the dimensions that attention_in_blocks() takes; False where it would be larger than it is by more than a row for each
    head."""
    if mask is None:
        return None
    batch, (length, source) = tuple(query.shape[:-2]), (query.shape[-2], key.shape[-2])
    if mask.ndim < 2 or mask.shape[-2] == 1:
        return expand(mask, shape=(*batch, 1, source))
    lead = (1,) * (len(batch) + 2 - mask.ndim) + tuple(mask.shape[:-2])
    if len(lead) != len(batch) or mask.shape[-2] != length or lead not in ((1,) * len(batch), batch):
        return False
    return expand(mask, shape=(*lead, length, source))


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


def additive_mask(name: str, mask: Any, dtype: Any) -> Any:
    """A mask as an addend: -inf where a bool one is True.  Raises RuntimeError for other dtypes than bool and floating-point ones."""
    if mask is None or mask.dtype.is_floating_point:
        return mask
    if mask.dtype is not bool_:
        raise RuntimeError(f"only bool and floating types of {name} are supported, got {mask.dtype.name}")
    return where(mask, full(float("-inf"), shape=(), dtype=dtype), 0.0)


@of_tensors
def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """Attention with num_heads heads of query (L, N, E), key and value (S, N, E), or all without N: (output like query, weights or None).

    attn_mask (L, S) or (N * num_heads, L, S) and key_padding_mask (N, S): bool, True where nothing is attended to, or float addends.  The
    weights are (N, L, S), or with average_attn_weights=False (N, num_heads, L, S).  is_causal says that attn_mask is the causal one.
    Raises RuntimeError and AssertionError, as PyTorch does, for shapes that do not fit."""
    batched = query.ndim == 3
    _check_ranks(query, key, value, key_padding_mask)
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method `generate_square_subsequent_mask` "
            "to create this mask."
        )
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    if width % num_heads:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    compared = slice(0, 2) if use_separate_proj_weight else slice(None)
    if tuple(key.shape[compared]) != tuple(value.shape[compared]):
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    q, k, v = _projected(query, key, value, weights, in_proj_bias)
    mask = _checked_mask(attn_mask, query.dtype, length, key.shape[0], batch * num_heads)
    padding = additive_mask("key_padding_mask", key_padding_mask, query.dtype)
    if padding is not None and padding._sizes != (batch, key.shape[0]):
        raise RuntimeError(f"key_padding_mask: expected shape {[batch, key.shape[0]]}, got {list(padding.shape)}")
    extra = 0
    if bias_k is not None and bias_v is not None:
        k = cat(k, expand(bias_k, shape=(1, batch, width)), dim=0)
        v = cat(v, expand(bias_v, shape=(1, batch, width)), dim=0)
        extra += 1
    heads, each = batch * num_heads, width // num_heads
    q, k, v = (permute(x.reshape(x.shape[0], heads, each), dims=(1, 0, 2)) for x in (q, k, v))
    k, v = k if static_k is None else static_k, v if static_v is None else static_v
    if add_zero_attn:
        nothing = full(0.0, shape=(heads, 1, each), dtype=k.dtype)
        k, v = cat(k, nothing, dim=1), cat(v, nothing, dim=1)
        extra += 1
    source = k.shape[1]
    mask = _extended(mask, extra)
    if padding is not None:
        padding = reshape(_extended(padding, extra), shape=(batch, 1, 1, source))
        padding = expand(padding, shape=(batch, num_heads, 1, source)).reshape(heads, 1, source)
        mask = padding if mask is None else mask + padding
    rate = dropout_p if training else 0.0
    if need_weights:
        out = None
        if mask is None and source:
            out, scores = attention(q, k, v, None, scale=math.sqrt(1.0 / concretise_sizes(each)), causal=False)
        else:  # where nothing may be attended to, the weights are NaN
            scores = matmul(q * math.sqrt(1.0 / concretise_sizes(each)), permute(k, dims=(0, 2, 1)))
            scores = softmax(scores if mask is None else scores + mask, -1)
        if rate > 0.0:
            scores, out = dropout(scores, rate, True), None
        if out is None:
            out = matmul(scores, v)
    else:
        scores = None
        out = scaled_dot_product_attention(q, k, v, mask, rate)
    out = linear(permute(out, dims=(1, 0, 2)).reshape(length * batch, width), out_proj_weight, out_proj_bias)
    out = reshape(out, shape=(length, batch, out.shape[1]))
    if scores is not None:
        scores = reshape(scores, shape=(batch, num_heads, length, source))
        if average_attn_weights:
            scores = primitives.sum_(scores, dims=(1,), keepdim=False) / float(num_heads)
    return (out, scores) if batched else (out.squeeze(1), None if scores is None else scores.squeeze(0))


def _check_ranks(query: Any, key: Any, value: Any, key_padding_mask: Any) -> None:
    if query.ndim not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor")
    kind = "batched (3-D)" if query.ndim == 3 else "unbatched (2-D)"
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {query.ndim}-D but found {key.ndim}-D and {value.ndim}-D tensors"
        )
    if key_padding_mask is not None and key_padding_mask.ndim != query.ndim - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {query.ndim - 1}-D but found {key_padding_mask.ndim}-D"
        )


def _projected(query: Any, key: Any, value: Any, weights: Any, bias: Any) -> list[Any]:
    """Queries, keys and values; `weights` are three, or one that holds them all: one product where all of it has the same operand."""
    width = query.shape[-1]
    if not isinstance(weights, tuple):
        if query is key and key is value:
            return _thirds(linear(query, weights, bias), query.ndim - 1, width)
        if key is value:
            kv = [None if x is None else slice_(x, dim=0, start=width, stop=3 * width, step=1) for x in (weights, bias)]
            q = [None if x is None else slice_(x, dim=0, start=0, stop=width, step=1) for x in (weights, bias)]
            both = linear(key, *kv)
            parts = [slice_(both, dim=key.ndim - 1, start=i * width, stop=(i + 1) * width, step=1) for i in range(2)]
            return [linear(query, *q), *parts]
        weights = _thirds(weights, 0, width)
    biases = (None,) * 3 if bias is None else _thirds(bias, 0, width)
    return [linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]


def _thirds(x: Any, dim: int, width: int) -> list[Any]:
    return [slice_(x, dim=dim, start=i * width, stop=(i + 1) * width, step=1) for i in range(3)]


def _checked_mask(mask: Any, dtype: Any, length: int, source: int, heads: int) -> Any:
    """attn_mask as an addend of three dimensions."""
    mask = additive_mask("attn_mask", mask, dtype)
    if mask is None:
        return None
    if mask.ndim not in (2, 3):
        raise RuntimeError(f"attn_mask's dimension {mask.ndim} is not supported")
    wanted = (length, source) if mask.ndim == 2 else (heads, length, source)
    if mask._sizes != wanted:
        raise RuntimeError(f"The shape of the {mask.ndim}D attn_mask is {mask.shape}, but should be {wanted}.")
    return reshape(mask, shape=(1, *wanted)) if mask.ndim == 2 else mask


def _extended(mask: Any, extra: int) -> Any:
    """An additive mask with `extra` more columns, in which everything is attended to."""
    if mask is None or not extra:
        return mask
    rest = (0,) * (mask.ndim - 1)
    return pad(mask, 0.0, low=(*rest, 0), high=(*rest, extra))
