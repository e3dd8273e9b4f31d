"""An LSTM over a whole sequence, given what its inputs contribute to the gates, and what such operations have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.interpreter import Abstract, state
from tracejit.core.op import REGISTRY
from tracejit.core.shapes import size_range
from tracejit.ops.declare import composite
from tracejit.ops.elementwise.mathematics import sigmoid
from tracejit.ops.elementwise.trigonometry import tanh
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.copies import cat
from tracejit.ops.movement.views import reshape, select, slice_
from tracejit.ops.samples import cases, floats

__all__ = ["Step", "began_with", "columns_of", "looped", "lstm", "states_before"]

Step = Callable[[list[Any], list[Any], list[Any]], tuple[list[Any], list[Any]]]
"""(carried, slices, shared) -> (carried on, collected)."""


def _rule(projected: Aval, hidden: Aval, cell: Aval, columns: Aval, backwards: bool) -> tuple[Aval, Aval, Aval]:
    length, batch, width = projected.shape
    states = Aval((length, batch, width // 4), projected.dtype)
    return states, states, projected


def columns_of(x: Any, n: int, i: int, j: int) -> Any:
    """Columns i * n to j * n of a matrix."""
    return slice_.of(x, dim=1, start=i * n, stop=j * n, step=1)


def _stack(parts: list[Any]) -> Any:
    rows = [reshape.of(x, shape=(1, *x.shape)) for x in parts]
    return cat.of(*rows, dim=0) if len(rows) > 1 else rows[0]


def looped(step: Step, carried: list[Any], sliced: list[Any], shared: list[Any], reverse: bool) -> tuple[list[Any], list[Any]]:
    """(what is carried in the end, what was collected, stacked) of a step for each slice, which is one loop where a graph is made."""
    first = sliced[0]
    interpreter = first.interpreter if isinstance(first, Abstract) else state.top
    found = interpreter.repeated(step, carried, sliced, first.shape[0], reverse, shared)
    if found is not None:
        return found  # type: ignore[no-any-return]
    rows: list[list[Any]] = []
    for t in list(size_range(0, first.shape[0]))[:: -1 if reverse else 1]:
        carried, collected = step(carried, [select.of(x, t, dim=0) for x in sliced], shared)
        rows.append(collected)
    return carried, [_stack(list(column)) for column in zip(*(rows[::-1] if reverse else rows), strict=True)]


def _forward(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
    """A step: (hidden state, cell) and what its input gives -> the next ones; these and the gates are collected."""
    hidden, cell = carried
    n = hidden.shape[1]
    x = slices[0] + matmul.of(hidden, shared[0])
    both = sigmoid.of(columns_of(x, n, 0, 2))  # input and forget gates
    new = tanh.of(columns_of(x, n, 2, 3))
    out = sigmoid.of(columns_of(x, n, 3, 4))
    cell = columns_of(both, n, 1, 2) * cell + columns_of(both, n, 0, 1) * new
    hidden = out * tanh.of(cell)
    return [hidden, cell], [hidden, cell, cat.of(both, new, out, dim=1)]


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


def states_before(states: Any, initial: Any, backwards: bool) -> Any:
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
    for k, other in enumerate((new, states_before(cells, cell, backwards), entry, bent)):
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
        began = states_before(leave * bent, hidden, backwards)
        g_columns = np.matmul(began.reshape(-1, n).T, out.reshape(-1, 4 * n))
    return out, dh, dc, g_columns


def began_with(states: Any, initial: Any, backwards: bool) -> Any:
    """`states_before` with primitives."""
    length, first = states.shape[0], reshape.of(initial, shape=(1, *initial.shape))
    if length == 1:
        return first
    start, stop = (1, length) if backwards else (0, length - 1)
    others = slice_.of(states, dim=0, start=start, stop=stop, step=1)
    return cat.of(others, first, dim=0) if backwards else cat.of(first, others, dim=0)


def _gradients(c: Any, g: Any, g_cells: Any, g_gates: Any) -> tuple[Any, Any, Any, Any]:
    """The same with primitives."""
    _, hidden, cell, columns = c.inputs
    _, cells, gates = c.outputs
    backwards = c.attributes["backwards"]
    length, batch, n = cells.shape
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

    zeros = [REGISTRY["full"].beside(cells, 0.0, shape=x.shape, dtype=x.dtype) for x in c.avals[1:3]]
    sliced = [gates, bent, began_with(cells, cell, backwards), *[x for x in received if x is not None]]
    (dh, dc), (given,) = looped(step, zeros, sliced, [transpose_matrix(columns)], not backwards)
    g_columns = None
    if c.needs[3]:
        outputs = slice_.of(gates, dim=2, start=3 * n, stop=4 * n, step=1) * bent
        began = reshape.of(began_with(outputs, hidden, backwards), shape=(length * batch, n))
        g_columns = matmul.of(transpose_matrix(began), reshape.of(given, shape=(length * batch, 4 * n)))
    return given, dh, dc, g_columns


@lstm.vjp(saves="1 2 3 out1 out2")
def _(c: Any, g: Any, g_cells: Any, g_gates: Any) -> Any:
    rule = _gradients_of_arrays if isinstance(c.outputs[1], np.ndarray) else _gradients
    return tuple([x if need else None for x, need in zip(rule(c, g, g_cells, g_gates), c.needs, strict=True)])
