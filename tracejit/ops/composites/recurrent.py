"""An LSTM over a whole sequence, given what its inputs contribute to the gates."""

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
from tracejit.ops.elementwise.mathematics import sigmoid
from tracejit.ops.elementwise.trigonometry import tanh
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.copies import cat
from tracejit.ops.movement.views import slice_
from tracejit.ops.samples import cases, floats

__all__ = ["lstm", "lstm_unit"]


def _rule(projected: Aval, hidden: Aval, cell: Aval, columns: Aval, backwards: bool) -> tuple[Aval, Aval, Aval]:
    length, batch, width = projected.shape
    states = Aval((length, batch, width // 4), projected.dtype)
    return states, states, projected


def lstm_unit(gates: Any, cell: Any) -> tuple[Any, Any, list[Any]]:
    """(hidden state, cell, [input and forget gates, new, output gate]) of what the gates are given and the cell before."""
    n = cell.shape[1]
    both = sigmoid.of(columns_of(gates, n, 0, 2))
    new = tanh.of(columns_of(gates, n, 2, 3))
    out = sigmoid.of(columns_of(gates, n, 3, 4))
    cell = columns_of(both, n, 1, 2) * cell + columns_of(both, n, 0, 1) * new
    return out * tanh.of(cell), cell, [both, new, out]


def _forward(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
    """A step: (hidden state, cell) and what its input gives -> the next ones; these and the gates are collected."""
    hidden, cell = carried
    hidden, cell, gates = lstm_unit(slices[0] + matmul.of(hidden, shared[0]), cell)
    return [hidden, cell], [hidden, cell, cat.of(*gates, dim=1)]


def _expansion(projected: Any, hidden: Any, cell: Any, columns: Any, backwards: bool) -> tuple[Any, Any, Any]:
    _, (outputs, cells, gates) = looped(_forward, [hidden, cell], [projected], [columns], backwards)
    return outputs, cells, gates


@composite(
    _rule,
    _expansion,
    multiple=True,
    samples=cases(
        (floats(3, 2, 8), floats(2, 2, seed=1), floats(2, 2, seed=2), floats(2, 8, seed=3)),
        (floats(2, 1, 12), floats(1, 3, seed=1), floats(1, 3, seed=2), floats(12, 3, seed=3).T, {"backwards": True}),
        (floats(1, 2, 4), floats(2, 1, seed=1), floats(2, 1, seed=2), floats(1, 4, seed=3)),
        backwards=False,
    ),
)
def lstm(projected: Any, hidden: Any, cell: Any, columns: Any, backwards: bool) -> tuple[Any, Any, Any]:
    """(hidden states, cells, gates) of all steps: (T, N, H), (T, N, H) and (T, N, 4 H), the gates in the order input, forget, new, output.

    projected: (T, N, 4 H), the inputs times their weights, with all biases.  hidden, cell: the states (N, H) at first; columns: (H, 4 H).
    backwards: from the last step to the first one."""
    n = hidden.shape[1]
    signs = np.ones(4 * n, projected.dtype)  # sigmoids are computed from exp(-x)
    signs[: 2 * n] = signs[3 * n :] = -1
    columns = np.multiply(columns, signs, order="C")
    gates = np.multiply(_by_gate(projected), signs.reshape(4, 1, n), order="C")
    outputs = np.empty((*projected.shape[:2], n), projected.dtype)
    cells = np.empty_like(outputs)
    given, one = np.empty(projected.shape[1:], projected.dtype), np.ones((), projected.dtype)
    added = _by_gate(given)
    new, product = np.empty(hidden.shape, hidden.dtype), np.empty(hidden.shape, hidden.dtype)
    way = slice(None, None, -1 if backwards else 1)
    parts = [gates[way, k] for k in range(4)]
    # a step is a dozen passes over a few kilobytes: what is around them counts
    add, multiply, exp, tanh_, reciprocal, dot = np.add, np.multiply, np.exp, np.tanh, np.reciprocal, dot_of(hidden, columns)
    for x, entry, forget, third, leave, c, out in zip(gates[way], *parts, cells[way], outputs[way], strict=True):
        dot(hidden, columns, given)
        add(x, added, x)
        tanh_(third, new)
        exp(x, x)
        add(x, one, x)
        reciprocal(x, x)
        third[...] = new
        multiply(forget, cell, c)
        multiply(entry, new, product)
        add(c, product, c)
        tanh_(c, product)
        multiply(leave, product, out)
        hidden, cell = out, c
    return outputs, cells, np.ascontiguousarray(gates.swapaxes(1, 2)).reshape(projected.shape)


def _by_gate(x: Any) -> Any:
    """Arrays (..., N, 4 H) as (..., 4, N, H): NumPy goes over a gate in one run where that is its layout in memory."""
    return x.reshape(*x.shape[:-1], 4, x.shape[-1] // 4).swapaxes(-3, -2)


def _slopes(gates: Any) -> Any:
    """The derivatives of the gates by what their functions were given, on arrays (T, 4, N, H)."""
    slopes = 1 - gates
    slopes *= gates
    np.multiply(gates[:, 2], gates[:, 2], out=slopes[:, 2])
    np.subtract(1, slopes[:, 2], out=slopes[:, 2])
    return slopes


def _gradients_of_arrays(c: Any, g: Any, g_cells: Any, g_gates: Any) -> tuple[Any, Any, Any, Any]:
    _, hidden, cell, columns = c.inputs
    _, cells, gates = c.outputs
    length, batch, n = cells.shape
    backwards = c.attributes["backwards"]
    gates = np.ascontiguousarray(_by_gate(gates))
    entry, forget, new, leave = (gates[:, k] for k in range(4))
    factors = _slopes(gates)
    added = None if g_gates is None else _by_gate(g_gates) * factors
    bent = np.tanh(cells)
    through = bent * bent
    np.subtract(1, through, out=through)
    through *= leave  # from a hidden state to its cell
    for k, other in enumerate((new, began_with(cells, cell, backwards), entry, bent)):
        factors[:, k] *= other  # from cell or hidden state to what the gates were given
    out = np.empty((length, batch, 4 * n), cells.dtype)
    rows = np.ascontiguousarray(columns.T)
    dh, dc = np.zeros((batch, n), cells.dtype), np.zeros((batch, n), cells.dtype)
    step = np.empty((batch, n), cells.dtype)
    way = slice(None, None, 1 if backwards else -1)
    parts = [x[way] for x in (through, factors[:, :3], factors[:, 3], factors, _by_gate(out), out, forget)]
    received: list[Any] = [(None,) * length if x is None else x[way] for x in (g, g_cells, added)]
    add, multiply, dot = np.add, np.multiply, dot_of(dh, rows)  # see `lstm`
    for slope, first, last, all_four, by_gate, given, keep, gh, gc, more in zip(*parts, *received, strict=True):
        if gh is not None:
            add(dh, gh, dh)
        multiply(dh, slope, step)
        add(dc, step, dc)
        if gc is not None:
            add(dc, gc, dc)
        multiply(first, dc, first)
        multiply(last, dh, last)
        if more is not None:
            add(all_four, more, all_four)
        by_gate[...] = all_four
        multiply(dc, keep, dc)
        dot(given, rows, dh)
    g_columns = None
    if c.needs[3]:
        g_columns = of_columns(leave * bent, hidden, out, backwards)
    return out, dh, dc, g_columns


def _gradients(c: Any, g: Any, g_cells: Any, g_gates: Any) -> tuple[Any, Any, Any, Any]:
    """The same with primitives."""
    _, hidden, cell, columns = c.inputs
    _, cells, gates = c.outputs
    backwards = c.attributes["backwards"]
    n = cells.shape[2]
    bent = tanh.of(cells)
    received = (g, g_cells, g_gates)
    arrives = tuple([x is not None for x in received])

    def step(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
        dh, dc = carried
        gate, curve, previous, *rest = slices
        arrived = iter(rest)
        gh, gc, extra = [next(arrived) if there else None for there in arrives]
        entry, forget, new, leave = (columns_of(gate, n, k, k + 1) for k in range(4))
        dh = dh if gh is None else dh + gh
        dc = (dc if gc is None else dc + gc) + dh * leave * (1.0 - curve * curve)
        parts = [dc * new, dc * previous, dc * entry, dh * curve]
        if extra is not None:
            parts = [part + columns_of(extra, n, k, k + 1) for k, part in enumerate(parts)]
        slopes = (entry * (1.0 - entry), forget * (1.0 - forget), 1.0 - new * new, leave * (1.0 - leave))
        given = cat.of(*[part * slope for part, slope in zip(parts, slopes, strict=True)], dim=1)
        return [matmul.of(given, shared[0]), dc * forget], [given]

    zeros = [zeros_beside(cells, aval) for aval in c.avals[1:3]]
    sliced = [gates, bent, began_with(cells, cell, backwards), *[x for x in received if x is not None]]
    (dh, dc), (given,) = looped(step, zeros, sliced, [transpose_matrix(columns)], not backwards)
    g_columns = None
    if c.needs[3]:
        outputs = slice_.of(gates, dim=2, start=3 * n, stop=4 * n, step=1) * bent
        g_columns = of_columns(outputs, hidden, given, backwards)
    return given, dh, dc, g_columns


@lstm.vjp(saves="1 2 3 out1 out2")
def _(c: Any, g: Any, g_cells: Any, g_gates: Any) -> Any:
    rule = _gradients_of_arrays if isinstance(c.outputs[1], np.ndarray) else _gradients
    return tuple([x if need else None for x, need in zip(rule(c, g, g_cells, g_gates), c.needs, strict=True)])
