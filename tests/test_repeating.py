"""capture/repeating.py: steps of Python's own loops that do not run, since those before show what they do; and steps that all run."""

from __future__ import annotations

import pickle
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tracejit import nn, optim
from tracejit.capture import repeating
from tracejit.capture.session import record
from tracejit.core.op import Kind
from tracejit.core.tree import flatten
from tracejit.tensor import Tensor

COUNT, WIDTH = 40, 4
RUN = 4
"""Steps that run: the first, two that do the same, and the last."""


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
        patched.setattr(repeating, "_TRIES", 0)
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


@pytest.mark.parametrize(
    ("function", "left_out"),
    [
        (function, COUNT - RUN)
        for function in (
            recurrent, gradients_of_weights, gradients_of_slices, second_derivatives, by_position, by_second_position, backwards,
            numbers_downwards, solver, lstm, state_in_a_tuple, states_in_a_list, gru_with_outputs, outputs_of_two_lists, loss_in_each_step,
            training, some_detached, with_numbers, in_branches, views_of_parts, writing, writing_rows,
            state_changed_in_place,
        )
    ]
    + [(function, COUNT - RUN - 1) for function in (one_before_the_last, used_afterwards, losses_added_in_place)]
    + [(with_neighbours, COUNT - 2 - RUN), (unpacked_rows, 2 * (COUNT - RUN)), (in_a_loop, 3 * (COUNT - RUN))]
    + [(numbers_in_rows, 3 * (COUNT - RUN) - 4)],
)  # fmt: skip
def test_steps_that_do_the_same_run_four_times(
    function: Callable[..., Any], left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps_left_out(function, monkeypatch) == left_out


# -- steps that are one node


def two_layers(xs: Any) -> Any:
    h, k, loss = zeros(), zeros(), 0.0
    for x in xs:
        h = cell(h, x)
        k = (k @ U + h).tanh()
        loss = loss + (k @ W - x).square().mean()
    return h, k, loss


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (recurrent, 1), (gradients_of_weights, 2), (gradients_of_slices, 2), (second_derivatives, 4), (by_position, 1),
        (by_second_position, 2), (backwards, 1), (solver, 2), (lstm, 2), (state_in_a_tuple, 1), (loss_in_each_step, 2), (training, 2),
        (some_detached, 2), (in_branches, 1), (two_layers, 1), (gru_with_outputs, 0), (writing, 1), (losses_added_in_place, 2),
        (writing_rows, 1),
    ],
)  # fmt: skip
def test_steps_that_carry_tensors_on_and_leave_nothing_else_are_one_node(function: Callable[..., Any], expected: int) -> None:
    recording, _ = record(function, (inputs(),), {})
    count = COUNT - RUN - 1 - (function is losses_added_in_place)  # whose first step makes what the others write to
    assert loops(recording) == [count] * expected


def chains(xs: Any) -> Any:
    h, k = zeros(), zeros()
    for x in xs:
        h = cell(h, x)
        k = (k @ U + x).sin()
    return h, k


def by_turns(xs: Any) -> Any:
    a, b, h = zeros() @ W, zeros() @ W + 1, zeros() @ W
    for x in xs:
        a, b = b * 0.5 + x @ W, a
        h = h * 0.5 + a
    return a, h


def slices_that_are_shared(xs: Any) -> Any:
    xs, h = xs @ W, zeros()
    for t in range(COUNT):
        h = cell(h, xs[t]) + xs.mean()
    return h


def views_carried_on(xs: Any) -> Any:
    h, before, last = zeros(), xs[0], xs[0]
    for x in xs:
        h, before, last = cell(h, last), last, x
    return h, before


def columns(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = (h @ W + x).tanh().mT.contiguous().mT
    return h


def saved_and_written(xs: Any) -> Any:
    h, k = zeros() @ W, zeros()
    for x in xs:
        h = cell(h, x)
        k = h.exp()
        h *= 2.0
    return k


def rows_read_again(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(COUNT, 2, WIDTH, dtype=tj.float64)
    for t in range(1, COUNT):
        h = cell(h, xs[t]) + out[t - 1]
        out[t] = h
    return out


def rows_that_are_viewed(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(COUNT, 2, WIDTH, dtype=tj.float64)
    first = out[:, 0]
    for t, x in enumerate(xs):
        h = cell(h, x)
        out[t] = h
    return out, first


def rows_of_numbers(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(COUNT, 2, WIDTH, dtype=tj.float64)
    for t, x in enumerate(xs):
        h = cell(h, x)
        out[t] = 2.0
    return out + h


def written_and_viewed(xs: Any) -> Any:
    h, total = zeros(), zeros()
    first = total[0]
    for x in xs:
        h = cell(h, x)
        total += h
    return h, total, first


def one_without_anything_saved(xs: Any) -> Any:
    h, k = zeros(), zeros()
    for x in xs:
        k = k * 0.9 + B
        h = cell(h, x) + k
    return h, k


@pytest.mark.parametrize(
    "function",
    [
        saved_and_written, written_and_viewed, rows_read_again, rows_that_are_viewed, rows_of_numbers, chains, by_turns,
        slices_that_are_shared, views_carried_on, columns, one_without_anything_saved,
    ],
)  # fmt: skip
def test_a_node_would_not_be_as_good_as_these_steps(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_left_out(function, monkeypatch) >= COUNT - RUN - 1
    recording, _ = record(function, (inputs(),), {})
    assert not loops(recording)


@pytest.mark.parametrize(("function", "of"), [(chains, (U, U)), (one_without_anything_saved, (W, B))])
def test_passes_that_meet_nothing_of_each_other_need_no_retained_graph(function: Callable[..., Any], of: tuple[Any, Any]) -> None:
    compiled = tj.compile(function)
    for _ in range(3):
        for order in (1, -1):
            results = compiled(inputs()), function(inputs())
            for k, operand in [*enumerate(of)][::order]:
                slopes = [tj.autograd.grad(found[k].sum(), operand)[0].numpy() for found in results]
                np.testing.assert_allclose(*slopes, rtol=1e-9)


def neighbours(xs: Any) -> Any:
    h, loss = xs[0], 0.0
    for t in range(1, COUNT - 1):
        h = cell(h, xs[t]) + xs[t - 1] * 0.1 + xs[t + 1] * xs[t]
        loss = loss + (h - W[0]).square().mean()
    return loss * h


def read_as_a_whole_at_first(xs: Any) -> Any:
    h, before = zeros(), None
    for x in xs:
        if before is None:
            h = h + xs.mean(0) + xs[-1] * xs.sum(0)
        before = h = cell(h, x)
    return h


def written_to_at_first(xs: Any) -> Any:
    xs, h, before = xs * 2, zeros(), None
    for x in xs:
        if before is None:
            xs.mul_(0.5)
        before = h = cell(h, x)
    return h


@pytest.mark.parametrize(
    "function",
    [
        recurrent, state_in_a_tuple, backwards, by_position, neighbours, read_as_a_whole_at_first, written_to_at_first, writing,
        writing_rows,
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_a_recorded_call_have_the_bits_of_eager_ones(function: Callable[..., Any], seed: int) -> None:
    def slopes(call: Callable[..., Any], earlier: bool) -> Any:
        xs = inputs(seed).requires_grad_()
        result = flatten(call(xs))[0][0]
        loss = (result * result).sum() + ((result @ W).sin() * xs[20] @ U * earlier).sum()
        return tj.autograd.grad(loss, (W, U, B, xs, *LSTM.parameters()), allow_unused=True)

    for earlier in (False, True):
        for x, y in zip(slopes(tj.compile(function), earlier), slopes(function, earlier), strict=True):
            assert (x is None) == (y is None)
            if x is not None:
                assert x.numpy().tobytes() == y.numpy().tobytes()


@pytest.mark.parametrize("what", ["weight", "bias", "inputs"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_loop_has_saved_what_its_steps_would_and_nothing_else(what: str, times: int) -> None:
    def function(xs: Any, weight: Any, bias: Any) -> Any:
        h = zeros()
        for x in xs:
            h = (h @ weight + x + bias).tanh()
        return h.sum()

    compiled = tj.compile(function)
    for call in (compiled, function):
        given = {"weight": parameter(WIDTH, WIDTH), "bias": parameter(WIDTH), "inputs": inputs()}
        for _ in range(times):
            loss = call(given["inputs"], given["weight"], given["bias"])
        with tj.no_grad():
            given[what].mul_(2.0)
        if what == "weight":
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            loss.backward()
    assert compiled.stats.traces == 1


# -- other numbers of steps


def by_length(xs: Any) -> Any:
    h = zeros()
    for t in range(xs.shape[0]):
        h = cell(h, xs[t])
    return h, h.sum() * t


def from_the_second_on(xs: Any) -> Any:
    h, n = xs[0], len(xs)
    for t in range(1, n):
        h = cell(h, xs[t]) + xs[t - 1] * 0.1
    return h / n


def loss_of_the_next_row(xs: Any) -> Any:
    h, loss = zeros(), 0.0
    for t in range(len(xs) - 1):
        h = cell(h, xs[t])
        loss = loss + (h - xs[t + 1]).square().mean()
    return loss


def along_the_second_dimension(xs: Any) -> Any:
    xs, h = xs.transpose(0, 1), zeros()
    for t in range(xs.size(1)):
        h = cell(h, xs[:, t])
    return h


def with_both(xs: Any) -> Any:
    h, total = zeros(), zeros()
    for t, x in enumerate(xs):
        h = cell(h, x) + xs[t] * 0.1
        total += h
    for x, y in zip(xs, xs * 2, strict=True):
        h = cell(h, x) * y
    for t, x in enumerate(xs * 3, 1):
        h = cell(h, x) * xs[t - 1]
    return h, total, total.sum() * t


def rows_of_two(xs: Any) -> Any:
    h, out, other = zeros(), xs.new_zeros(len(xs) + 2, 2, WIDTH), tj.zeros(2, len(xs), 3, dtype=tj.float64)
    for t in range(len(xs)):
        h = cell(h, xs[t])
        out[t + 1] = h
        other[:, t] = h[:, :3]
        h = h + h * h
    return out, other, h


def mapped(xs: Any) -> Any:
    out = tj.zeros_like(xs)
    for t, x in enumerate(xs):
        out[t] = (x @ W).tanh() + xs[t]
    return out * 2


def until_the_end(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
    else:
        h = h * 2
    return h, x


@pytest.mark.parametrize(
    "function",
    [
        recurrent, gradients_of_weights, second_derivatives, lstm, loss_in_each_step, some_detached, by_length, from_the_second_on,
        loss_of_the_next_row, along_the_second_dimension, until_the_end, writing, losses_added_in_place, with_both, rows_of_two, mapped,
    ],
)  # fmt: skip
def test_another_number_of_steps_is_no_other_recording(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function)
    for k, length in enumerate((40, 25, 60, 13, 31, 80, 12, 55)):
        xs = parameter(length, 2, WIDTH, seed=k).detach().requires_grad_()
        for x, y in zip(flatten(compiled(xs))[0], flatten(function(xs))[0], strict=True):
            assert (x.shape, x.dtype, x.requires_grad, x.stride()) == (y.shape, y.dtype, y.requires_grad, y.stride())
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
            if x.requires_grad and function not in (lstm, loss_in_each_step, some_detached, losses_added_in_place):
                slopes = [tj.autograd.grad((v * v).sum(), xs, retain_graph=True)[0].numpy() for v in (x, y)]
                np.testing.assert_allclose(*slopes, rtol=1e-9, atol=1e-12)
    assert compiled.stats.traces <= 3
    assert compiled.stats.instances >= 5


@pytest.mark.parametrize("function", [gru_with_outputs, outputs_of_two_lists])
def test_steps_that_are_no_node_are_those_of_one_number(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function)
    for k, length in enumerate((40, 25, 60, 13, 25)):
        xs = parameter(length, 2, WIDTH, seed=k).detach()
        for x, y in zip(flatten(compiled(xs))[0], flatten(function(xs))[0], strict=True):
            if isinstance(y, Tensor):
                np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert not compiled.stats.instances


# -- programs whose steps do more, or are other ones


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        self.count += 1
        return self.count


OUTSIDE = Counter()
NUMBERS = (1.0,) * 20 + (2.0,) * COUNT


def counting_in(kind: str) -> Callable[[Any], Any]:
    """A function whose steps do the same twenty times, and then something else."""

    def function(xs: Any) -> Any:
        listed: list[int] = []
        named: dict[str, int] = {}
        counted: set[int] = set()
        queue, iterator, counter = deque(NUMBERS), iter(NUMBERS), Counter()
        generated = (number for number in NUMBERS)
        weight, number, text = W.detach().clone(), 0, ""
        alias = holder = outs = [xs[0]]
        OUTSIDE.count = 0
        h = zeros()

        def stepped() -> int:
            nonlocal number
            number += 1
            return number

        def growing(default: Any = listed) -> int:
            default.append(1)
            return len(default)

        for x in xs:
            count = 0
            if kind == "list":
                listed.append(1)
                count = len(listed)
            elif kind == "alias":
                outs.append(h)
                count = len(alias)
            elif kind == "default":
                count = growing()
            elif kind == "dict":
                count = named["n"] = named.get("n", 0) + 1
            elif kind == "set":
                counted.add(len(counted))
                count = len(counted)
            elif kind == "deque":
                count = 30 * (queue.popleft() - 1)
            elif kind == "iterator":
                count = 30 * (next(iterator) - 1)
            elif kind == "generator":
                count = 30 * (next(generated) - 1)
            elif kind == "instance":
                count = counter.next()
            elif kind == "outside":
                count = OUTSIDE.next()
            elif kind == "function":
                stepped.__dict__["count"] = count = stepped.__dict__.get("count", 0) + 1
            elif kind == "tensor":
                weight.count = count = getattr(weight, "count", 0) + 1
            elif kind == "variable":
                number += 1
                count = number
            elif kind == "variable around":
                count = stepped()
            elif kind == "text":
                text = text + "."
                count = len(text)
            elif kind == "nested":
                holder[0] = (holder[0], x)
                count = 0
            elif kind == "grad mode":
                tj.set_grad_enabled(not tj.is_grad_enabled())
                count = 30 * tj.is_grad_enabled()
            h = cell(h, x) * (1.0 if count <= 20 else 2.0)
        tj.set_grad_enabled(True)
        return h

    return function


@pytest.mark.parametrize(
    "kind",
    [
        "list", "alias", "default", "dict", "set", "deque", "iterator", "generator", "instance", "outside", "function", "tensor",
        "variable", "variable around", "text", "nested", "grad mode",
    ],
)  # fmt: skip
def test_a_step_that_may_be_another_one_runs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_left_out(counting_in(kind), monkeypatch) == 0


def branching(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = h + x if x[0, 0] > 0 else h - x * 2
    return h


def leaving(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x) * h.sum().item()
    return h


def numbers_in_a_list(xs: Any) -> Any:
    h, losses = zeros(), []
    for x in xs:
        h = cell(h, x)
        losses.append(h.sum().item())
    return h, len(losses)


def writing_outside(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
        BUFFER.add_(1)
    return h, BUFFER.clone().fill_(0)


def drawing(xs: Any) -> Any:
    tj.manual_seed(3)
    h = zeros()
    for x in xs:
        h = nn.functional.dropout(cell(h, x), 0.5)
    return h


def number_as_an_operand(xs: Any) -> Any:
    h = zeros()
    for t in range(COUNT):
        h = cell(h, xs[t]) * t
    return h


def number_that_decides(xs: Any) -> Any:
    h = zeros()
    for t, x in enumerate(xs):
        h = cell(h, x)
        if t == 30:
            h = h * 2
    return h


def number_that_ends(xs: Any) -> Any:
    h = zeros()
    for t in range(COUNT):
        h = cell(h, xs[t])
        if t == 30:
            break
    else:
        h = h * 2
    return h, t


def number_passed_on(xs: Any) -> Any:
    def scaled(h: Any, t: int) -> Any:
        return h * 2 if t == 30 else h

    h = zeros()
    for t in range(COUNT):
        h = scaled(cell(h, xs[t]), t)
    return h


def positions_of_a_list(xs: Any) -> Any:
    h, factors = zeros(), [*[1.0] * 20, *[2.0] * 20]
    for t in range(COUNT):
        h = cell(h, xs[t]) * factors[t]
    return h


def positions_at_odds(xs: Any) -> Any:
    h, places = zeros(), (*range(20), *range(20))
    for t, x in zip(places, xs, strict=False):
        h = cell(h, x) * xs[t]
    return h


class Wrapping:
    def __sub__(self, other: int) -> int:
        return 0 if other < 20 else 1

    __rsub__ = __sub__


def positions_of_its_own(xs: Any) -> Any:
    h, far = zeros(), Wrapping()
    for t in range(COUNT):
        h = cell(h, xs[t]) + xs[far - t]
    return h


def positions_around_the_end(xs: Any) -> Any:
    h = zeros()
    for t in range(COUNT):
        h = cell(h, xs[t - 20]) + xs[20 - t]
    return h


def positions_updated(xs: Any) -> Any:
    h, out = zeros(), tj.zeros(COUNT, 2, WIDTH, dtype=tj.float64)
    for t in range(COUNT):
        h = cell(h, xs[t])
        out[t] += h
    return out


def stored_in_a_dictionary(xs: Any) -> Any:
    h, found = zeros(), {}
    for t in range(COUNT):
        h = cell(h, xs[t])
        found[t] = h
    return found


def positions_multiplied(xs: Any) -> Any:
    h = zeros()
    for t in range(COUNT):
        h = cell(h, xs[t]) + xs[(t * t) % COUNT]
    return h


def list_that_is_read(xs: Any) -> Any:
    outs = [zeros()]
    for x in xs:
        outs.append(cell(outs[-1], x))
    return outs


def list_that_a_function_has(xs: Any) -> Any:
    h, outs = zeros(), [zeros()]

    def last() -> Any:
        return outs[len(outs) // 2]

    for x in xs:
        h = cell(h, x) + last()
        outs.append(h)
    return h


def functions_made(xs: Any) -> Any:
    h, functions = zeros(), []
    for x in xs:
        functions.append(lambda h, x=x: cell(h, x))
        h = functions[-1](h)
    return h, functions[3](h)


def variable_of_a_function(xs: Any) -> Any:
    h = zeros()

    def stepped(x: Any) -> Any:
        return cell(h, x)

    for x in xs:
        h = stepped(x)
    return h


def lists_made(xs: Any) -> Any:
    states = [zeros(), zeros()]
    for x in xs:
        states = [cell(h, x) for h in states]
    return states


def the_first_one(xs: Any) -> Any:
    first = h = zeros()
    for x in xs:
        h = first if h is first else h
        first, h = h, cell(h, x) if first is not h else cell(x, h)
    return h


def elements_that_are_known(xs: Any) -> Any:
    h, parts = zeros(), xs.unbind(0)
    for x in parts:
        h = cell(h, x)
        if x is parts[30]:
            h = h * 2
    return h


def elements_in_a_list(xs: Any) -> Any:
    h, parts = zeros(), list(xs)
    for x in parts:
        h = cell(h, x)
        if len(parts) < COUNT + 5:
            parts.append(x * 2)
    return h


def growing(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = tj.cat([h[-3:], cell(h[-2:], x)])
    return h


def longer_and_longer(xs: Any) -> Any:
    h = xs[0]
    for x in xs:
        h = tj.cat([h, x])
    return h


def number_that_changes(xs: Any) -> Any:
    h, rate = zeros(), SETTINGS.rate
    for x in xs:
        h = cell(h, x) * rate
        rate = rate * 0.9
    return h


class Doubled(tj.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.5

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def own_gradient(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = Doubled.apply(cell(h, x)).tanh()
    return gradients(h.sum())


def hooked(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        y = h @ W + x
        y.register_hook(lambda g: g * 2)
        h = y.tanh()
    return gradients(h.sum(), W)


def inner_gradient(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        point = h.detach().requires_grad_()
        (slope,) = tj.autograd.grad(((point @ W - x) ** 2).sum(), point)
        h = h - 0.01 * slope
    return h.detach()


def told(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
        print("step", end=" ")
    return h


def in_few_steps(xs: Any) -> Any:
    h = zeros()
    for x in xs[:8]:
        h = cell(h, x)
    return h


def suspended(xs: Any) -> Any:
    def states() -> Any:
        h = zeros()
        for x in xs:
            h = cell(h, x)
            yield h

    total = zeros()
    for h in states():
        total = total + h
    return total


def without_a_value(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        if SETTINGS.times > 5:
            h = extra = x * 2
            assert extra is h
        h = cell(h, x)
        y = h * 2
        del y
    return h


@pytest.mark.parametrize(
    "function",
    [
        branching, leaving, numbers_in_a_list, writing_outside, drawing, number_as_an_operand, number_that_decides, number_that_ends,
        number_passed_on, positions_of_a_list, positions_at_odds, positions_of_its_own, positions_around_the_end, positions_updated,
        stored_in_a_dictionary, positions_multiplied, list_that_is_read, list_that_a_function_has, functions_made, variable_of_a_function,
        lists_made, elements_that_are_known, elements_in_a_list, longer_and_longer, number_that_changes, own_gradient, hooked,
        inner_gradient, told, in_few_steps, suspended, without_a_value,
    ],
)  # fmt: skip
def test_steps_that_differ_or_do_more_than_compute_run(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_left_out(function, monkeypatch) == 0


def swapped(xs: Any) -> Any:
    a, b, h = zeros() + 1, zeros() + 2, zeros()
    for x in xs:
        a, b = b, a
        h = cell(h, x) * a + b
    return h, a, b


def in_the_third_step(xs: Any) -> Any:
    h, flag = zeros(), None
    for x in xs:
        h = cell(h, x) if flag is None else cell(h, x) * 2
        flag = flag + 1 if flag is not None and flag < 2 else flag or 0
    return h


@pytest.mark.parametrize(("function", "later"), [(swapped, 0), (in_the_third_step, 2), (growing, 1), (the_first_one, 1)])
def test_steps_that_begin_otherwise_may_go_on_alike(
    function: Callable[..., Any], later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps_left_out(function, monkeypatch) == COUNT - RUN - later


def test_a_step_that_raises_runs_and_raises_where_it_stands() -> None:
    singular = tj.stack([tj.eye(WIDTH) * (k != 25) for k in range(COUNT)])

    def function(matrices: Any, lines: list[int]) -> Any:
        h, seen = tj.zeros(WIDTH), []
        for matrix in matrices:
            try:
                h = (tj.linalg.solve(matrix, h + 1) + h.sin() * h.cos()).tanh() + h.sin()
                seen.append(h)
            except RuntimeError as error:
                assert error.__traceback__ is not None
                lines.append(error.__traceback__.tb_lineno)
                break
        return h, len(seen)

    places: list[int] = []
    result, count = tj.compile(function)(singular, places)
    assert count == 25 and len(places) == 1
    assert result.equal(function(singular, places)[0])
    assert places[0] == places[1]


def test_what_steps_leave_in_memory_is_changed_once_each() -> None:
    totals = tj.zeros(2)

    def function(xs: Any) -> Any:
        view = totals[:1]
        for x in xs:
            view.add_(x.sum().sigmoid() * 0 + 1)
        return view.clone()

    compiled = tj.compile(function)
    for k in range(1, 4):
        assert compiled(inputs()).item() == k * COUNT
        assert totals.tolist() == [k * COUNT, 0]


def test_explain_tells_how_many_steps_did_not_run() -> None:
    compiled = tj.compile(recurrent)
    compiled(inputs())
    assert f"{COUNT - RUN} steps of loops were recorded without running" in compiled.explain()


def test_recording_a_long_loop_runs_no_more_of_the_program_than_a_short_one() -> None:
    calls = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name == "cell"

    def ran(length: int) -> int:
        nonlocal calls
        calls = 0
        sys.settrace(counted)
        try:
            record(recurrent, (parameter(length, 2, WIDTH).detach(),), {})
        finally:
            sys.settrace(None)
        return calls

    assert ran(COUNT) == ran(5 * COUNT) == RUN


# -- programs by chance


class Author:
    """Writes a function with a loop whose steps may do anything: mostly the same, now and then something else."""

    HEADERS = (
        "for x in xs:", "for t in range(COUNT):", "for t, x in enumerate(xs):", "for x, z in zip(xs, xs * 2):",
        "for t in range(1, COUNT - 1):", "for t, x in zip(places, xs):", "for t, x in enumerate(xs[3:], 3):",
        "for t in range(0, COUNT, 2):", "for t, x in zip(range(COUNT - 1, -1, -1), xs):",
    )  # fmt: skip
    STATEMENTS = (
        "h = cell(h, {v})", "k = ({v} @ U + k).sin()", "h, k = k, h", "before = h", "h = ({v} + {v}).tanh()", "y = {v} * 0.5",
        "pair = (h, {v})", "h, k = pair", "states[0] = ({v} + states[1]).tanh()", "states = [states[1], states[0]]",
        "named['a'] = named['a'] * 0.5 + {v}", "total += {v}.sum()", "total = total + h.sum() * n", "outs.append({v})", "others.append(h)",
        "k = outs[-1].tanh()", "n = n + 1", "n = (n + 1) % 2", "h = h.clone()\n{i}h.mul_(0.5)", "buffer[0] = {v}.detach()",
        "buffer[t] = {v}.detach()", "k = (k + xs[t]).tanh()", "k = (k + xs[COUNT - 1 - t]).tanh()", "k = (k + xs[t - 3]).tanh()",
        "k = k * 0.5 + factors[t]", "h = scaled(h)", "h = h * (1.0 if h is k else 0.5)", "k = k.detach()", "rate = rate * 0.5",
        "h = h * SETTINGS.rate", "first = xs[0]", "y, z = h.chunk(2, 1)", "h = tj.cat([h[1:], k[:1]])", "k = buffer[1] + k",
        "k = k * rate", "alias = outs", "k = k + buffer.sum()",
    )  # fmt: skip
    CONDITIONS = (
        "n < 20",
        "n == 1",
        "len(outs) < 15",
        "h is before",
        "SETTINGS.times == 3",
        "h.requires_grad",
        "t == 30",
        "k is first",
    )

    def __init__(self, seed: int) -> None:
        self.choose = np.random.default_rng(seed)

    def one(self, of: tuple[str, ...]) -> str:
        return of[int(self.choose.integers(len(of)))]

    def statement(self, depth: int) -> str:
        indent, kind = "    " * depth, self.choose.random()
        if kind < 0.08 and depth < 4:
            return f"{indent}if {self.one(self.CONDITIONS)}:\n{self.statement(depth + 1)}"
        if kind < 0.12 and depth < 4:
            return f"{indent}for j in range(2):\n{self.statement(depth + 1)}"
        if kind < 0.15 and depth < 4:
            return f"{indent}with tj.no_grad():\n{self.statement(depth + 1)}"
        if kind < 0.16:
            return f"{indent}if n > 25:\n{indent}    {self.one(('break', 'continue'))}"
        value = self.one(("x", "h", "k", "y", "before", "states[0]", "named['a']", "z", "W.sum() * h", "h.exp()"))
        return indent + self.one(self.STATEMENTS).replace("{v}", value).replace("{i}", indent)

    def program(self) -> str:
        lines = [
            "def function(xs):",
            "    h, k, n, rate, t, total = zeros(), zeros() + 1, 0, 1.0, 0, 0",
            "    x = y = z = before = first = xs[0] * 0.5",
            "    pair, states, named, outs, others = (h, k), [h, k], {'a': h}, [h], []",
            "    alias, buffer, factors = others, tj.zeros(COUNT, 2, WIDTH, dtype=tj.float64), [0.1] * 20 + [0.2] * COUNT",
            "    places = (*range(20), *range(20))",
            "    def scaled(v):",
            f"        return v * {self.one(('0.5', 'rate', 'SETTINGS.rate', 'first', 'len(outs)'))}",
            f"    {self.one(self.HEADERS)}",
            *[self.statement(2) for _ in range(int(self.choose.integers(3, 9)))],
            "    return h, k, n, rate, t, total, x, y, z, before, pair, states, named, outs[:40], others[:40], len(alias), buffer",
        ]
        return "\n".join(lines) + "\n"


def written(seed: int, folder: Path) -> Callable[..., Any]:
    """A function by chance, whose source stands in a file."""
    path = folder / f"loop_by_chance_{seed}.py"
    path.write_text(Author(seed).program())
    names: dict[str, Any] = {**globals(), "__name__": path.stem, "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    function: Callable[..., Any] = names["function"]
    return function


def agrees_by_chance(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many steps a recording of a function by chance leaves out, if it is what a recording that leaves out none is."""
    function = written(seed, folder)
    try:
        expected = function(inputs())
    except Exception as error:  # the function makes no sense; it has to fail alike
        with pytest.raises(type(error)):
            record(function, (inputs(),), {})
        return 0
    recording, result = record(function, (inputs(),), {})
    with monkeypatch.context() as patched:
        patched.setattr(repeating, "_TRIES", 0)
        complete, other = record(function, (inputs(),), {})
    assert recording.reason == complete.reason
    assert loops(recording) or recording.graph == complete.graph
    found, wanted, eager = (flatten(x)[0] for x in (result, other, expected))
    assert [flatten(x)[1] for x in (result, other)] == [flatten(expected)[1]] * 2
    for a, b, c in zip(found, wanted, eager, strict=True):
        if isinstance(c, Tensor):
            same((a, b), (c, c))
            assert tape(b) == tape(c)
            assert loops(recording) or tape(a) == tape(b)
        else:
            assert a == b == c
    aliases = [
        [i for i, x in enumerate(values) for y in values[:i] if x is y and isinstance(x, Tensor)]
        for values in (found, wanted, eager)
    ]
    assert aliases[0] == aliases[1] == aliases[2]
    return recording.left_out


def test_loops_by_chance_are_recorded_as_if_all_steps_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_out = [agrees_by_chance(seed, tmp_path, monkeypatch) for seed in range(60)]
    assert sum(count > 0 for count in left_out) >= 5


# -- loops of any length, all steps of which run after all


def stopping_rows(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
        if SETTINGS.stops:
            pickle.dumps(h.detach())
    return h


def stopping_numbered_rows(xs: Any) -> Any:
    h, kinds = zeros(), []
    for k, x in enumerate(xs, 2):
        h = cell(h, x)
        if SETTINGS.stops:
            kinds.append(type(k))
            pickle.dumps(h.detach())
    return h, k, kinds


def stopping_positions(xs: Any) -> Any:
    h = zeros()
    for t in range(len(xs)):
        h = cell(h, xs[t])
        if SETTINGS.stops:
            pickle.dumps(h.detach())
    return h, t


@pytest.mark.parametrize("function", [stopping_rows, stopping_numbered_rows, stopping_positions])
def test_a_recording_may_stop_within_a_loop_of_any_length(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SETTINGS, "stops", False, raising=False)
    compiled = tj.compile(function, wait=True)
    for length, stops in ((40, False), (25, False), (13, True), (30, True), (50, False)):
        SETTINGS.stops = stops
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        found, expected = flatten(compiled(xs))[0], flatten(function(xs))[0]
        np.testing.assert_allclose(found[0].detach().numpy(), expected[0].detach().numpy(), rtol=1e-9, atol=1e-12)
        assert found[1:] == expected[1:]
    assert "unknown_call" in compiled.explain() and compiled.stats.traces > 2


def changing_grad_mode(xs: Any) -> Any:
    h, rows = zeros(), []
    for x in xs * W.sum():
        h = cell(h, x)
        rows.append(x)
        if SETTINGS.stops:
            tj.set_grad_enabled(False)
    tj.set_grad_enabled(True)
    return h, [row.requires_grad for row in rows]


def test_elements_of_a_loop_require_grad_as_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SETTINGS, "stops", False, raising=False)
    compiled = tj.compile(changing_grad_mode, wait=True)
    for length, stops in ((40, False), (25, False), (13, True), (30, True)):
        SETTINGS.stops = stops
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        (h, found), (other, expected) = compiled(xs), changing_grad_mode(xs)
        assert found == expected == [True] * length
        np.testing.assert_allclose(h.detach().numpy(), other.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.traces > 2


def divided_by_the_length(xs: Any) -> Any:
    h, loss = zeros(), 0
    for x in xs:
        h = cell(h, x)
        loss = loss + h.sum() / len(xs)
    return loss


def test_steps_that_ask_for_a_length_again_repeat_each_other() -> None:
    compiled = tj.compile(divided_by_the_length, wait=True)
    for length in (40, 25, 13, 60, 31):
        xs = parameter(length, 2, WIDTH, seed=length).detach()
        np.testing.assert_allclose(compiled(xs).item(), divided_by_the_length(xs).item(), rtol=1e-9)
    assert compiled.stats.traces <= 3 and compiled.stats.instances >= 2
