"""Programs with `for` loops whose steps repeat each other, and what is asked of recordings of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tracejit import nn, optim
from tracejit.capture import loop_recogniser
from tracejit.capture.session import record
from tracejit.core.op import Kind
from tracejit.core.tree import flatten
from tracejit.tensor import Tensor

COUNT, WIDTH = 40, 4
RUN = 5
"""Steps that run: the first, two that do the same, and the last two."""


def parameter(*shape: int, seed: int = 0) -> Any:
    return tj.tensor(np.random.default_rng(seed).normal(0, 0.4, shape), requires_grad=True)


W, U, B = parameter(WIDTH, WIDTH), parameter(WIDTH, WIDTH, seed=1), parameter(WIDTH, seed=2)
LSTM = nn.LSTMCell(WIDTH, WIDTH).double()
GRU = nn.GRUCell(WIDTH, WIDTH).double()
LINEAR = nn.Linear(WIDTH, WIDTH).double()
OPTIMIZER = optim.SGD(LINEAR.parameters(), lr=0.0)
BUFFER = tj.zeros(2)
SETTINGS = SimpleNamespace(rate=0.1, times=3)


def inputs(seed: int = 10) -> Any:
    return parameter(COUNT, 2, WIDTH, seed=seed).detach()


def zeros() -> Any:
    return tj.zeros(2, WIDTH, dtype=tj.float64)


def cell(h: Any, x: Any) -> Any:
    return (h @ W + x @ U + B).tanh()


LENGTHS = (40, 25, 60, 2, 0, 3, 1, 17)


def agree(compiled: Callable[..., Any], function: Callable[..., Any], lengths: Sequence[int] = LENGTHS) -> None:
    """Both give the same of sequences of each length, gradients too, or raise the same."""

    def outcome(called: Callable[..., Any], length: int) -> Any:
        xs = parameter(length, 2, WIDTH, seed=length).detach().requires_grad_()
        tj.manual_seed(length)
        try:
            found = flatten(called(xs))[0]
        except (IndexError, NameError, RuntimeError, TypeError, AttributeError, ValueError) as error:
            return type(error), str(error)
        total = sum([(y * y).sum() for y in found if isinstance(y, Tensor) and y.requires_grad], start=tj.zeros(()))
        of = (xs, W, U)
        slopes = tj.autograd.grad(total, of, allow_unused=True) if total.requires_grad else ()
        return found, slopes, tj.get_rng_state().tolist()

    for length in lengths:
        mine, expected = outcome(compiled, length), outcome(function, length)
        if len(expected) == 2:
            assert mine == expected
            continue
        assert len(mine[0]) == len(expected[0])
        for x, y in zip(mine[0], expected[0], strict=True):
            if not isinstance(y, Tensor):
                assert type(x) is type(y)
                assert x == (pytest.approx(y, rel=1e-12) if isinstance(y, float) else y)
                continue
            assert (x.shape, x.dtype, x.requires_grad, x.stride()) == (y.shape, y.dtype, y.requires_grad, y.stride())
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-12, atol=1e-13)
        for x, y in zip(mine[1], expected[1], strict=True):
            assert (x is None) == (y is None)
            if y is not None:
                np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-9, atol=1e-12)
        assert mine[2] == expected[2]


def of_any_length(
    function: Callable[..., Any], lengths: Sequence[int] = LENGTHS, others: Sequence[int] = (27, 66)
) -> tj.CompiledFunction[..., Any]:
    """The function compiled, after calls with sequences of these lengths, and of others that no call has recorded."""
    compiled = tj.compile(function)
    agree(compiled, function, lengths)
    before = compiled.stats.traces
    agree(compiled, function, others)
    assert compiled.stats.traces == before, compiled.explain()
    return compiled


def same(a: Any, b: Any) -> None:
    """Equal bits, and what else there is to tensors."""
    found, expected = flatten(a)[0], flatten(b)[0]
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        if not isinstance(y, Tensor):
            assert x == y
            continue
        assert (x.shape, x.dtype, x.requires_grad, x.is_leaf, x.stride()) == (
            y.shape,
            y.dtype,
            y.requires_grad,
            y.is_leaf,
            y.stride(),
        )
        assert x.detach().numpy().tobytes() == y.detach().numpy().tobytes()
        assert type(x.grad_fn).__name__ == type(y.grad_fn).__name__


def tape(x: Any) -> list[str]:
    """The names of the operations behind a tensor."""
    names: list[str] = []
    waiting, seen = [x.grad_fn], {}
    while waiting:
        node = waiting.pop()
        if node is not None and id(node) not in seen:
            seen[id(node)] = node
            names.append(node.name())
            waiting += [before for before, _ in node.next_functions]
    return names


def loops(recording: Any) -> list[int]:
    """The steps of the loops in a graph."""
    nodes = () if recording.graph is None else recording.graph.nodes
    return [node.attrs["count"] for node in nodes if node.op.kind is Kind.LOOP]


def steps_left_out(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many steps a recorded call leaves out.  It has to be the same call as one that leaves out none, and as an eager one, and replays
    have to give what eager calls do."""
    recording, result = record(function, (inputs(),), {})
    same(result, function(inputs()))
    with monkeypatch.context() as patched:
        patched.setattr(loop_recogniser, "_TRIES", 0)
        complete, expected = record(function, (inputs(),), {})
    assert complete.left_out == 0
    same(result, expected)
    assert (recording.reason and recording.reason.code) == (complete.reason and complete.reason.code)
    if recording.graph is not None and complete.graph is not None and not loops(recording):
        assert recording.graph == complete.graph
        assert [node.line for node in recording.graph.nodes] == [node.line for node in complete.graph.nodes]
    for x, y in zip(flatten(result)[0], flatten(expected)[0], strict=True):
        if isinstance(y, Tensor) and not loops(recording):
            assert tape(x) == tape(y)
    compiled = tj.compile(function)
    for k in range(4):
        for x, y in zip(flatten(compiled(inputs(k % 2)))[0], flatten(function(inputs(k % 2)))[0], strict=True):
            if isinstance(y, Tensor):
                assert (x.shape, x.dtype, x.requires_grad) == (y.shape, y.dtype, y.requires_grad)
                np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
            else:
                assert x == y
    return recording.left_out


def gradients(value: Any, *of: Any) -> Any:
    return tj.autograd.grad(value, of or (W, U, B))


# -- programs whose steps repeat


def recurrent(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
    return h


def gradients_of_weights(xs: Any) -> Any:
    return gradients((recurrent(xs) ** 2).sum())


def gradients_of_slices(xs: Any) -> Any:
    xs = xs.clone().requires_grad_()
    return gradients((recurrent(xs) ** 2).sum(), xs)


def second_derivatives(xs: Any) -> Any:
    (slope,) = tj.autograd.grad((recurrent(xs) ** 2).sum(), W, create_graph=True)
    return gradients((slope * slope).sum())


def by_position(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t])
    return h, t


def by_second_position(xs: Any) -> Any:
    xs = xs.transpose(0, 1)
    h = zeros()
    for t in range(xs.shape[1]):
        h = cell(h, xs[:, t])
    return h, gradients(h.sum())


def backwards(xs: Any) -> Any:
    h, n = zeros(), len(xs)
    for t in range(n):
        h = cell(h, xs[n - 1 - t]) + xs[-1 - t]
    return h


def with_neighbours(xs: Any) -> Any:
    h = zeros()
    for t in range(1, len(xs) - 1):
        h = cell(h, xs[t - 1]) * xs[t + 1] + xs[0]
    return h, t


def numbers_downwards(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs) - 1, -1, -1):
        h = cell(h, xs[t])
    return h, t


def solver(xs: Any) -> Any:
    y = xs[0]
    for _ in range(COUNT):
        k = (y @ W).sin() - y
        y = y + 0.05 * ((y + 0.05 * k).sin() + k)
    return y, k, gradients(y.sum(), W)


def lstm(xs: Any) -> Any:
    h = c = zeros()
    for x in xs:
        h, c = LSTM(x, (h, c))
    return h, c, gradients((h + c).sum(), *LSTM.parameters())


def state_in_a_tuple(xs: Any) -> Any:
    state = (zeros(), zeros())
    for x in xs:
        state = LSTM(x, state)
        h, c = state
    return state, h, c, h is state[0]


def states_in_a_list(xs: Any) -> Any:
    states = [zeros(), zeros()]
    named = {"h": zeros()}
    for x in xs:
        for k in range(2):
            x = states[k] = cell(states[k], x)
        named["h"] = named["h"] * 0.5 + x
    return states, named, gradients(named["h"].sum())


def gru_with_outputs(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = GRU(x, h)
        outs.append(h)
    return tj.stack(outs), outs[3], outs[-1] is h, len(outs), gradients(tj.stack(outs).sum(), *GRU.parameters())


def outputs_of_two_lists(xs: Any) -> Any:
    h, outs, others = zeros(), [xs[0]], []
    for x in xs:
        h = cell(h, x)
        outs.append(h * 2)
        others.append(h.detach())
        outs.append(x)
    return outs, others


def loss_in_each_step(xs: Any) -> Any:
    h, loss = zeros(), 0.0
    for x in xs:
        h = cell(h, x)
        loss = loss + ((h - x) ** 2).mean()
    return loss, gradients(loss)


def one_before_the_last(xs: Any) -> Any:
    a, b = zeros(), zeros() + 1
    for x in xs:
        a, b = b, cell(a, x) + b
    return a, b


def training(xs: Any) -> Any:
    OPTIMIZER.zero_grad()
    h, total = zeros(), zeros().sum()
    for x in xs:
        h = LINEAR(h + x).tanh()
        total = total + (h * h).sum()
    total.backward()
    OPTIMIZER.step()
    return total.detach(), LINEAR.weight.grad.clone()


def some_detached(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        with tj.no_grad():
            scale = (h @ W).abs().mean()
        h = cell(h, x) * scale + h.detach()
    return h, gradients(h.sum())


def with_numbers(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        step = SETTINGS.rate / 2
        h = h + step * (x @ W).sin() * SETTINGS.times
    return h


def unpacked_rows(xs: Any) -> Any:
    h = zeros()
    for a, b in zip(xs, xs * 2, strict=False):
        h = cell(h, a) + b
    for t, x in enumerate(xs):
        h = cell(h, x) + xs[t]
    return h, t, a, b


def numbers_in_rows(xs: Any) -> Any:
    h = zeros()
    for t, x in enumerate(xs[4:], 4):
        h = cell(h, x) * xs[t - 4]
    for t, _ in enumerate(xs):
        h = cell(h, xs[t])
    for s, t, x in zip(range(2 * COUNT, 0, -2), range(COUNT), xs, strict=False):
        h = cell(h, x) + xs[t] + tj.cat([xs, xs])[s - 1]
    return h, s, t


def numbers_in_the_program(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        size = h.sum().item()
        h = cell(h, x) * (1.0 - 0.1 * size)
    return h


def in_branches(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        if SETTINGS.times == 3:
            h = cell(h, x)
        else:
            break
        if h.shape[0] > 5:
            continue
        h = h * 0.5
    else:
        h = h + 1
    return h


def used_afterwards(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        before, y = h, x @ U
        h = cell(h, y)
    return h, y, x, before


def in_a_loop(xs: Any) -> Any:
    h = zeros()
    for _ in range(3):
        for x in xs:
            h = cell(h, x)
        h = h * 0.5
    return h


def views_of_parts(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        a, b = (h @ W + x).chunk(2, 1)
        h = tj.cat([a.sigmoid(), b.tanh()], 1)
    return h, a, b, gradients(h.sum(), W)


def writing(xs: Any) -> Any:
    h, total = zeros(), zeros()
    for x in xs:
        h = cell(h, x)
        total += h * x
    return h, total


def positions_updated(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(COUNT, 2, WIDTH, dtype=tj.float64)
    for t in range(COUNT):
        h = cell(h, xs[t])
        out[t] += h
    return out


def writing_rows(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(COUNT, 2, WIDTH, dtype=tj.float64)
    for t, x in enumerate(xs):
        h = cell(h, x)
        out[t] = h
    return out


def losses_added_in_place(xs: Any) -> Any:
    h, loss = zeros(), 0
    for x in xs:
        h = cell(h, x)
        loss += (h * x).sum()
    return loss, gradients(loss)


def state_changed_in_place(xs: Any) -> Any:
    h, parts = zeros(), tj.zeros(2, 2 * WIDTH, dtype=tj.float64)
    first = parts[:, :WIDTH]
    for x in xs:
        h = cell(h, x)
        with tj.no_grad():
            first.mul_(0.5).add_(h)
            parts[:, WIDTH:] += x
    return h, parts, first


def from_the_end(xs: Any) -> Any:
    h, n = zeros(), xs.shape[0]
    out = tj.zeros_like(xs)
    for t in range(n - 1, -1, -1):
        h = cell(h, xs[t])
        out[t] = h + 1
    return h, out, h.sum() * t


def in_a_list_from_the_end(xs: Any) -> Any:
    h, states, squares = zeros(), [], []
    for t in reversed(range(1, len(xs))):
        h = cell(h, xs[t]) + xs[t - 1] * 0.1
        states.append(h)
        squares.append(h * h)
    return tj.stack(states).flip(0), tj.stack(squares)


def from_the_last_item(xs: Any) -> Any:
    states, others = [zeros()], [xs[0] * 0.5]
    for x in xs:
        states.append(cell(states[-1], x) + others[-1])
        others.append(states[-1] * others[-1] * 0.5)
    return tj.stack(states), tj.cat(others), states[-1]
