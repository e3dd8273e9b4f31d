"""An LSTM over a whole sequence, given what its inputs contribute to the gates; and the inputs of the steps of other networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY
from tracejit.core.shapes import size_range
from tracejit.ops.declare import composite
from tracejit.ops.elementwise.mathematics import sigmoid
from tracejit.ops.elementwise.trigonometry import tanh
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.copies import cat
from tracejit.ops.movement.views import reshape, select, slice_
from tracejit.ops.samples import cases, floats

__all__ = ["lstm", "steps_of"]


def _rule(projected: Aval, hidden: Aval, cell: Aval, columns: Aval, backwards: bool) -> tuple[Aval, Aval, Aval]:
    length, batch, width = projected.shape
    states = Aval((length, batch, width // 4), projected.dtype)
    return states, states, projected


def _order(length: int, backwards: bool) -> list[tuple[int, int | None]]:
    """(a step, the step before it) in the order in which they are made."""
    steps = list(size_range(0, length))[:: -1 if backwards else 1]
    return list(zip(steps, [None, *steps], strict=False))


def _columns(x: Any, n: int, i: int, j: int) -> Any:
    """Columns i * n to j * n of a matrix."""
    return slice_.of(x, dim=1, start=i * n, stop=j * n, step=1)


def _stack(parts: list[Any]) -> Any:
    rows = [reshape.of(x, shape=(1, *x.shape)) for x in parts]
    return cat.of(*rows, dim=0) if len(rows) > 1 else rows[0]


def _expansion(projected: Any, hidden: Any, cell: Any, columns: Any, backwards: bool) -> tuple[Any, Any, Any]:
    length, n = projected.shape[0], hidden.shape[1]
    outputs: list[Any] = [None] * length
    cells: list[Any] = [None] * length
    gates: list[Any] = [None] * length
    for t, _ in _order(length, backwards):
        x = select.of(projected, t, dim=0) + matmul.of(hidden, columns)
        both = sigmoid.of(_columns(x, n, 0, 2))  # input and forget gates
        new = tanh.of(_columns(x, n, 2, 3))
        out = sigmoid.of(_columns(x, n, 3, 4))
        cell = _columns(both, n, 1, 2) * cell + _columns(both, n, 0, 1) * new
        hidden = out * tanh.of(cell)
        outputs[t], cells[t], gates[t] = hidden, cell, cat.of(both, new, out, dim=1)
    return _stack(outputs), _stack(cells), _stack(gates)


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
    add, multiply, exp, tanh_, reciprocal, dot = np.add, np.multiply, np.exp, np.tanh, np.reciprocal, np.dot
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


def _before(states: Any, initial: Any, backwards: bool) -> Any:
    """The state that each step began with, given those that they ended with."""
    return np.concatenate((states[1:], initial[None]) if backwards else (initial[None], states[:-1]))


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
    for k, other in enumerate((new, _before(cells, cell, backwards), entry, bent)):
        factors[:, k] *= other  # from cell or hidden state to what the gates were given
    out = np.empty((length, batch, 4 * n), cells.dtype)
    rows = np.ascontiguousarray(columns.T)
    dh, dc = np.zeros((batch, n), cells.dtype), np.zeros((batch, n), cells.dtype)
    step = np.empty((batch, n), cells.dtype)
    way = slice(None, None, 1 if backwards else -1)
    parts = [x[way] for x in (through, factors[:, :3], factors[:, 3], factors, _by_gate(out), out, forget)]
    received: list[Any] = [(None,) * length if x is None else x[way] for x in (g, g_cells, added)]
    add, multiply, dot = np.add, np.multiply, np.dot  # see `lstm`
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
        began = _before(leave * bent, hidden, backwards)
        g_columns = np.matmul(began.reshape(-1, n).T, out.reshape(-1, 4 * n))
    return out, dh, dc, g_columns


def _gradients(c: Any, g: Any, g_cells: Any, g_gates: Any) -> tuple[Any, Any, Any, Any]:
    """The same with primitives."""
    _, hidden, cell, columns = c.inputs
    _, cells, gates = c.outputs
    length, _, n = cells.shape
    order = _order(length, c.attributes["backwards"])
    rows = transpose_matrix(columns)
    given: list[Any] = [None] * length
    starts: list[Any] = [None] * length
    dh = dc = None

    def plus(x: Any, y: Any) -> Any:
        return x if y is None else y if x is None else x + y

    def at(x: Any, t: int) -> Any:
        return None if x is None else select.of(x, t, dim=0)

    for t, before in reversed(order):
        gate = at(gates, t)
        entry, forget, new, leave = (_columns(gate, n, k, k + 1) for k in range(4))
        bent = tanh.of(at(cells, t))
        dh = plus(dh, at(g, t))
        dc = plus(plus(dc, at(g_cells, t)), None if dh is None else dh * leave * (1.0 - bent * bent))
        extra = at(g_gates, t)
        parts: list[Any] = [None] * 4 if extra is None else [_columns(extra, n, k, k + 1) for k in range(4)]
        if dc is not None:
            previous = cell if before is None else at(cells, before)
            parts[:3] = [plus(dc * new, parts[0]), plus(dc * previous, parts[1]), plus(dc * entry, parts[2])]
            dc = dc * forget
        if dh is not None:
            parts[3] = plus(dh * bent, parts[3])
        nothing = leave * 0.0
        slopes = (entry * (1.0 - entry), forget * (1.0 - forget), 1.0 - new * new, leave * (1.0 - leave))
        given[t] = cat.of(*[nothing if p is None else p * s for p, s in zip(parts, slopes, strict=True)], dim=1)
        dh = matmul.of(given[t], rows)
        if before is None:
            starts[t] = hidden
        else:
            starts[t] = _columns(at(gates, before), n, 3, 4) * tanh.of(at(cells, before))
    g_columns = None
    if c.needs[3]:
        began, gave = (cat.of(*x, dim=0) if length > 1 else x[0] for x in (starts, given))
        g_columns = matmul.of(transpose_matrix(began), gave)
    return _stack(given), dh, dc, g_columns


@lstm.vjp(saves="1 2 3 out1 out2")
def _(c: Any, g: Any, g_cells: Any, g_gates: Any) -> Any:
    rule = _gradients_of_arrays if isinstance(c.outputs[1], np.ndarray) else _gradients
    return tuple([x if need else None for x, need in zip(rule(c, g, g_cells, g_gates), c.needs, strict=True)])


@composite(
    lambda x: tuple([Aval(x.shape[1:], x.dtype) for _ in size_range(0, x.shape[0])]),
    lambda x: tuple([select.of(x, t, dim=0) for t in size_range(0, x.shape[0])]),
    multiple=True,
    samples=cases((floats(3, 2, 4),), (floats(4, 2, 3).T,), (floats(1, 2),)),
)
def steps_of(x: Any) -> Any:
    """x[0], x[1], ... in memory of their own: one place on the tape for all of them, where their gradients are put together once."""
    return tuple([row.copy() for row in x])


@steps_of.vjp()
def _(c: Any, *cotangents: Any) -> Any:
    (whole,) = c.avals
    reference = next(g for g in cotangents if g is not None)
    zeros = REGISTRY["full"].beside(reference, 0.0, shape=whole.shape[1:], dtype=whole.dtype)
    return _stack([zeros if g is None else g for g in cotangents])
