"""Scaled products of queries, keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import products
from tracejit.core.aval import Aval
from tracejit.core.dtypes import bool_, int64
from tracejit.core.shapes import broadcast_shapes, equal
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.composites.rows import summed
from tracejit.ops.composites.softmax import softmax_gradient
from tracejit.ops.creation import arange
from tracejit.ops.declare import composite
from tracejit.ops.elementwise.comparison import replace, where
from tracejit.ops.elementwise.mathematics import exp
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.views import reshape
from tracejit.ops.reduce import amax, sum_
from tracejit.ops.samples import bools, cases, floats

__all__ = ["attention"]

_MINUS_INFINITY = float("-inf")


def _rule(query: Aval, key: Aval, value: Aval, mask: Aval | None, scale: float, causal: bool) -> tuple[Aval, Aval]:
    if not equal(query.shape[-1], key.shape[-1]) or not equal(key.shape[-2], value.shape[-2]):
        raise RuntimeError(
            f"scaled_dot_product_attention(): shapes {list(query.shape)}, {list(key.shape)} and {list(value.shape)} do not fit: query and "
            "key need the same last size, key and value the same second-to-last one"
        )
    name = "scaled_dot_product_attention"
    scores = (*broadcast_shapes(name, query.shape[:-2], key.shape[:-2]), query.shape[-2], key.shape[-2])
    if mask is not None:
        scores = broadcast_shapes(name, scores, mask.shape)
    out = (*broadcast_shapes(name, scores[:-2], value.shape[:-2]), scores[-2], value.shape[-1])
    return Aval(out, query.dtype), Aval(scores, query.dtype)


def _expansion(query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool) -> tuple[Any, Any]:
    scores = matmul.of(query * scale, transpose_matrix(key))
    if causal:
        length, source = scores.shape[-2:]
        row = reshape.of(arange.beside(query, 0, 1, length=length, dtype=int64), shape=(length, 1))
        mask = row >= arange.beside(query, 0, 1, length=source, dtype=int64)
    if mask is not None:
        scores = where.of(mask, scores, _MINUS_INFINITY) if mask.dtype == bool_ else scores + mask
    last = (len(scores.shape) - 1,)
    high = amax.of(scores, dims=last, keepdim=True)
    weights = exp.of(scores - where.of(high == _MINUS_INFINITY, 0.0, high))
    total = sum_.of(weights, dims=last, keepdim=True)
    weights = weights / where.of(total == 0.0, 1.0, total)
    return matmul.of(weights, value), weights


def _turned(x: Any) -> Any:
    """x with its last two dimensions swapped; arrays in order, which products of small matrices read faster."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)) if isinstance(x, np.ndarray) else transpose_matrix(x)


def _masked(scores: Any, mask: Any) -> Any:
    """The scores that a mask leaves: those given, changed, unless the mask broadcasts them."""
    shape = np.broadcast_shapes(scores.shape, mask.shape)
    if shape != scores.shape:
        scores = np.array(np.broadcast_to(scores, shape))
    if mask.dtype == np.bool_:
        replace(scores, mask, _MINUS_INFINITY)
    else:
        scores += mask
    return scores


@composite(
    _rule,
    _expansion,
    name="scaled_dot_product_attention",
    multiple=True,
    traits=("checked",),
    other=3,
    samples=cases(
        (floats(3, 2), floats(4, 2, seed=1), floats(4, 3, seed=2), None),
        (floats(2, 3, 2), floats(2, 3, 2, seed=1), floats(2, 3, 2, seed=2), None, {"causal": True}),
        (floats(2, 1, 3, 2), floats(2, 4, 2, seed=1), floats(1, 1, 4, 3, seed=2), floats(3, 4, seed=3)),
        (floats(2, 3, 2), floats(2, 4, 2, seed=1), floats(2, 4, 2, seed=2), bools(3, 4, seed=1), {"scale": -0.7}),
        scale=0.7, causal=False,
    ),
)  # fmt: skip
def attention(query: Any, key: Any, value: Any, mask: Any, scale: float, causal: bool) -> tuple[Any, Any]:
    """(weights @ value, weights), with weights = softmax(query @ key.mT * scale + mask); of keys of at least one element.

    mask: None, bools (True takes part) or addends, as broadcast.  causal: position i sees positions up to i.  What sees nothing has
    weights 0."""
    weights = products.matmul(query * scale, _turned(key))
    if causal:
        mask = np.tri(weights.shape[-2], weights.shape[-1], dtype=np.bool_)
    if mask is not None:
        weights = _masked(weights, mask)
    high = np.maximum.reduce(weights, axis=-1, keepdims=True)
    high[high == _MINUS_INFINITY] = 0
    weights -= high
    np.exp(weights, out=weights)
    total = summed(weights, (weights.ndim - 1,))
    total[total == 0] = 1
    weights /= total
    return products.matmul(weights, value), weights


@attention.vjp(saves=("1 2 out1", "0 2 out1", "out1", "2 out1"))
def _(c: Any, g: Any, g_weights: Any) -> Any:
    query, key, value, _ = c.inputs
    weights, scale = c.outputs[1], c.attributes["scale"]
    q_aval, k_aval, v_aval, mask = c.avals
    g_query = g_key = g_value = g_mask = None
    if g is not None and c.needs[2]:
        g_value = sum_to(matmul.of(transpose_matrix(weights), g), v_aval.shape)
    if c.needs[0] or c.needs[1] or c.needs[3]:
        inner = g_weights
        if g is not None:
            through = sum_to(matmul.of(g, _turned(value)), weights.shape)
            inner = through if inner is None else inner + through
        scores = softmax_gradient(weights, inner, len(weights.shape) - 1)
        if c.needs[3]:
            g_mask = sum_to(scores, mask.shape)
        if c.needs[0] or c.needs[1]:
            product = (*broadcast_shapes("attention", q_aval.shape[:-2], k_aval.shape[:-2]), *weights.shape[-2:])
            scores = sum_to(scores, product)
            if c.needs[0]:
                g_query = sum_to(matmul.of(scores, key), q_aval.shape) * scale
            if c.needs[1]:
                g_key = sum_to(matmul.of(transpose_matrix(scores), query * scale), k_aval.shape)
    return g_query, g_key, g_value, g_mask
