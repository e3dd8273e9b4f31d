"""Networks of Elman's units and of gated recurrent units over a whole sequence, given what their inputs contribute.

Gated units are those of Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, 2014, in PyTorch's form: the reset gate is
applied to the product, its bias included."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.products import dot_of
from tracejit.ops.composites.over_time import (
    began_with,
    columns_of,
    looped,
    of_columns,
    zeros_beside,
)
from tracejit.ops.declare import composite
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import relu as relu_of
from tracejit.ops.elementwise.mathematics import sigmoid
from tracejit.ops.elementwise.trigonometry import tanh
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.copies import cat
from tracejit.ops.reduce import sum_
from tracejit.ops.samples import cases, floats

__all__ = ["elman", "gru", "gru_unit"]


# -- Elman's units
def _elman_expansion(projected: Any, hidden: Any, columns: Any, backwards: bool, relu: bool) -> Any:
    activation = relu_of if relu else tanh

    def step(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        made = activation.of(slices[0] + matmul.of(carried[0], shared[0]))
        return [made], [made]

    return looped(step, [hidden], [projected], [columns], backwards)[1][0]


@composite(
    lambda projected, hidden, columns, backwards, relu: projected,
    _elman_expansion,
    samples=cases(
        (floats(3, 2, 4), floats(2, 4, seed=1), floats(4, 4, seed=2)),
        (floats(2, 1, 3), floats(1, 3, seed=1), floats(3, 3, seed=2).T, {"backwards": True}),
        (floats(1, 2, 2), floats(2, 2, seed=1), floats(2, 2, seed=2), {"relu": True}),
        backwards=False,
        relu=False,
    ),
)
def elman(projected: Any, hidden: Any, columns: Any, backwards: bool, relu: bool) -> Any:
    """The hidden states of all steps, (T, N, H): of x + hidden @ columns the tanh, or what is positive.

    projected: (T, N, H), the inputs times their weights, with all biases.  hidden: (N, H) at first; columns: (H, H).  backwards: from the
    last step to the first one."""
    states = np.array(projected, order="C")
    columns = np.ascontiguousarray(columns)
    given, dot = np.empty(hidden.shape, projected.dtype), dot_of(hidden, columns)
    for x in states[:: -1 if backwards else 1]:
        dot(hidden, columns, given)
        np.add(x, given, x)
        if relu:
            np.maximum(x, 0, out=x)
        else:
            np.tanh(x, x)
        hidden = x
    return states


def _elman_gradients_of_arrays(c: Any, g: Any) -> tuple[Any, Any, Any]:
    _, hidden, columns = c.inputs
    (states,) = c.outputs
    backwards, relu = c.attributes["backwards"], c.attributes["relu"]
    slopes = states <= 0 if relu else 1 - states * states
    out, rows = np.empty(states.shape, states.dtype), np.ascontiguousarray(columns.T)
    dh, dot = np.zeros(hidden.shape, states.dtype), dot_of(hidden, rows)
    way = slice(None, None, 1 if backwards else -1)
    for gh, slope, given in zip(g[way], slopes[way], out[way], strict=True):
        np.add(dh, gh, dh)
        if relu:
            given[...] = dh
            given[slope] = 0
        else:
            np.multiply(dh, slope, given)
        dot(given, rows, dh)
    return out, dh, of_columns(states, hidden, out, backwards) if c.needs[2] else None


def _elman_gradients(c: Any, g: Any) -> tuple[Any, Any, Any]:
    """The same with primitives."""
    _, hidden, columns = c.inputs
    (states,) = c.outputs
    backwards, relu = c.attributes["backwards"], c.attributes["relu"]

    def step(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        state, gh = slices
        dh = carried[0] + gh
        given = where.of(state <= 0, 0.0, dh) if relu else dh * (1.0 - state * state)
        return [matmul.of(given, shared[0])], [given]

    (dh,), (given,) = looped(step, [zeros_beside(states, c.avals[1])], [states, g], [transpose_matrix(columns)], not backwards)
    return given, dh, of_columns(states, hidden, given, backwards) if c.needs[2] else None


@elman.vjp(saves="1 2 out")
def _(c: Any, g: Any) -> Any:
    rule = _elman_gradients_of_arrays if isinstance(c.outputs[0], np.ndarray) else _elman_gradients
    return tuple([x if need else None for x, need in zip(rule(c, g), c.needs, strict=True)])


# -- gated units
def _gru_rule(projected: Aval, hidden: Aval, columns: Aval, offset: Aval, backwards: bool) -> tuple[Aval, Aval]:
    length, batch, width = projected.shape
    n = width // 3
    return Aval((length, batch, n), projected.dtype), Aval((length, batch, 4 * n), projected.dtype)


def gru_unit(x: Any, given: Any, hidden: Any) -> tuple[Any, list[Any]]:
    """(the next hidden state, [reset and update gates, new state, what the reset gate is multiplied with]) of what the input and the hidden
    state give."""
    n = hidden.shape[1]
    both = sigmoid.of(columns_of(x, n, 0, 2) + columns_of(given, n, 0, 2))
    inner = columns_of(given, n, 2, 3)
    new = tanh.of(columns_of(x, n, 2, 3) + columns_of(both, n, 0, 1) * inner)
    return new + columns_of(both, n, 1, 2) * (hidden - new), [both, new, inner]


def _gru_step(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
    (hidden,), (x,), (columns, offset) = carried, slices, shared
    hidden, kept = gru_unit(x, matmul.of(hidden, columns) + offset, hidden)
    return [hidden], [hidden, cat.of(*kept, dim=1)]


def _gru_expansion(projected: Any, hidden: Any, columns: Any, offset: Any, backwards: bool) -> tuple[Any, Any]:
    _, (states, kept) = looped(_gru_step, [hidden], [projected], [columns, offset], backwards)
    return states, kept


@composite(
    _gru_rule,
    _gru_expansion,
    multiple=True,
    samples=cases(
        (floats(3, 2, 6), floats(2, 2, seed=1), floats(2, 6, seed=2), floats(6, seed=3)),
        (floats(2, 1, 9), floats(1, 3, seed=1), floats(9, 3, seed=2).T, floats(9, seed=3), {"backwards": True}),
        (floats(1, 2, 3), floats(2, 1, seed=1), floats(1, 3, seed=2), floats(3, seed=3)),
        backwards=False,
    ),
)
def gru(projected: Any, hidden: Any, columns: Any, offset: Any, backwards: bool) -> tuple[Any, Any]:
    """(hidden states, what the gradient needs of steps) of all steps: (T, N, H) and (T, N, 4 H), the latter the reset and update gates, the
    new state and what the reset gate is multiplied with.

    projected: (T, N, 3 H), the inputs times their weights, with their biases.  hidden: (N, H) at first; columns: (H, 3 H), which it is
    multiplied with, and offset: (3 H), which is added then.  backwards: from the last step to the first one."""
    length, (batch, n) = len(projected), hidden.shape
    states = np.empty((length, batch, n), projected.dtype)
    kept = np.empty((length, batch, 4 * n), projected.dtype)
    columns = np.ascontiguousarray(columns)
    given, one, dot = np.empty((batch, 3 * n), projected.dtype), np.ones((), projected.dtype), dot_of(hidden, columns)
    way = slice(None, None, -1 if backwards else 1)
    both, reset, update, new, inner = (kept[way, :, i * n : j * n] for i, j in ((0, 2), (0, 1), (1, 2), (2, 3), (3, 4)))
    first, last = (projected[way, :, i * n : j * n] for i, j in ((0, 2), (2, 3)))
    for xs, x, b, r, z, m, i, out in zip(first, last, both, reset, update, new, inner, states[way], strict=True):
        dot(hidden, columns, given)
        np.add(given, offset, given)
        np.add(xs, given[:, : 2 * n], b)
        np.negative(b, b)
        np.exp(b, b)
        np.add(b, one, b)
        np.reciprocal(b, b)
        i[...] = given[:, 2 * n :]
        np.multiply(r, i, m)
        np.add(m, x, m)
        np.tanh(m, m)
        np.subtract(hidden, m, out)
        np.multiply(out, z, out)
        np.add(out, m, out)
        hidden = out
    return states, kept


def _gru_gradients_of_arrays(c: Any, g: Any) -> tuple[Any, Any, Any, Any]:
    _, hidden, columns, _ = c.inputs
    states, kept = c.outputs
    backwards, n = c.attributes["backwards"], hidden.shape[1]
    reset, update, new, inner = (kept[..., k * n : (k + 1) * n] for k in range(4))
    to_new = (1 - update) * (1 - new * new)
    to_update = (began_with(states, hidden, backwards) - new) * update * (1 - update)
    to_reset = inner * reset * (1 - reset)  # from what the new state is the tanh of
    out = np.empty((*states.shape[:2], 3 * n), states.dtype)
    turned, rows = np.empty_like(out), np.ascontiguousarray(columns.T)
    dh, keep, dot = np.zeros(hidden.shape, states.dtype), np.empty(hidden.shape, states.dtype), dot_of(hidden, rows)
    way = slice(None, None, 1 if backwards else -1)
    parts = [x[way] for x in (g, to_new, to_update, to_reset, reset, update, out, turned)]
    for gh, by_new, by_update, by_reset, r, z, o, t in zip(*parts, strict=True):
        np.add(dh, gh, dh)
        last = o[:, 2 * n :]
        np.multiply(dh, by_new, last)
        np.multiply(dh, by_update, o[:, n : 2 * n])
        np.multiply(last, by_reset, o[:, :n])
        t[:, : 2 * n] = o[:, : 2 * n]
        np.multiply(last, r, t[:, 2 * n :])
        np.multiply(dh, z, keep)
        dot(t, rows, dh)
        np.add(dh, keep, dh)
    g_columns = of_columns(states, hidden, turned, backwards) if c.needs[2] else None
    return out, dh, g_columns, turned.sum((0, 1)) if c.needs[3] else None


def _gru_gradients(c: Any, g: Any, g_kept: Any) -> tuple[Any, Any, Any, Any]:
    """The same with primitives, and with cotangents of what is kept, which gradients of gradients have."""
    _, hidden, columns, _ = c.inputs
    states, kept = c.outputs
    backwards, n = c.attributes["backwards"], hidden.shape[1]
    arrives = g is not None, g_kept is not None

    def step(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        own, before, *rest = slices
        arrived = iter(rest)
        gh, extra = [next(arrived) if there else None for there in arrives]
        reset, update, new, inner = (columns_of(own, n, k, k + 1) for k in range(4))
        dh = carried[0] if gh is None else carried[0] + gh
        of_update, of_new = dh * (before - new), dh * (1.0 - update)
        if extra is not None:
            of_update, of_new = of_update + columns_of(extra, n, 1, 2), of_new + columns_of(extra, n, 2, 3)
        last = of_new * (1.0 - new * new)
        of_reset, of_inner = last * inner, last * reset
        if extra is not None:
            of_reset, of_inner = of_reset + columns_of(extra, n, 0, 1), of_inner + columns_of(extra, n, 3, 4)
        first = cat.of(of_reset * (reset * (1.0 - reset)), of_update * (update * (1.0 - update)), dim=1)
        turned = cat.of(first, of_inner, dim=1)
        return [matmul.of(turned, shared[0]) + dh * update], [cat.of(first, last, dim=1), turned]

    sliced = [kept, began_with(states, hidden, backwards), *[x for x in (g, g_kept) if x is not None]]
    carried = [zeros_beside(states, c.avals[1])]
    (dh,), (out, turned) = looped(step, carried, sliced, [transpose_matrix(columns)], not backwards)
    g_columns = of_columns(states, hidden, turned, backwards) if c.needs[2] else None
    return out, dh, g_columns, sum_.of(turned, dims=(0, 1), keepdim=False) if c.needs[3] else None


@gru.vjp(saves="1 2 out0 out1")
def _(c: Any, g: Any, g_kept: Any) -> Any:
    is_plain = isinstance(c.outputs[0], np.ndarray) and g is not None and g_kept is None
    found = _gru_gradients_of_arrays(c, g) if is_plain else _gru_gradients(c, g, g_kept)
    return tuple([x if need else None for x, need in zip(found, c.needs, strict=True)])
