"""capture/library_loops.py: steps of `scan` that do the same are one loop of the program; whatever else a step does keeps them apart."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tracejit import nn, optim
from tracejit.core.tree import flatten

COUNT, WIDTH = 12, 4


def parameter(*shape: int, seed: int = 0) -> Any:
    return tj.tensor(np.random.default_rng(seed).normal(0, 0.4, shape), requires_grad=True)


W, U, B = parameter(WIDTH, WIDTH), parameter(WIDTH, WIDTH, seed=1), parameter(WIDTH, seed=2)
CELL = nn.LSTMCell(WIDTH, WIDTH).double()
LINEAR = nn.Linear(WIDTH, WIDTH).double()


class SETTINGS:
    rate, times = 0.1, 3


def zeros() -> Any:
    return tj.zeros(2, WIDTH, dtype=tj.float64)


def cell(h: Any, x: Any) -> tuple[Any, Any]:
    h = (h @ W + x @ U + B).tanh()
    return h, h * 2


def length_of_loop(function: Callable[..., Any], *, calls: int = 4) -> int | None:
    """Steps of the loop in the program that serves calls, after compiled calls gave what eager ones do; None where there is no loop."""
    compiled = tj.compile(function)
    for k in range(calls):
        xs = parameter(COUNT, 2, WIDTH, seed=10 + k % 2).detach()
        expected, found = flatten(function(xs))[0], flatten(compiled(xs))[0]
        assert len(expected) == len(found)
        for a, b in zip(found, expected, strict=True):
            if isinstance(b, tj.Tensor):
                assert (a.shape, a.dtype, a.requires_grad) == (b.shape, b.dtype, b.requires_grad)
                np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)
            else:
                assert a == b
    assert compiled.stats.compiled_calls >= calls - 2, compiled.explain()
    words = compiled.explain(verbose=True).split("loop of ")
    return int(words[1].split()[0]) if len(words) > 1 else None


def loss(h: Any, ys: Any) -> Any:
    return (h * h).sum() + (ys * ys).sum()


def recurrent(xs: Any) -> Any:
    return tj.scan(cell, zeros(), xs)


def backwards(xs: Any) -> Any:
    return tj.scan(cell, zeros(), xs, reverse=True)


def gradients(xs: Any) -> Any:
    return tj.autograd.grad(loss(*tj.scan(cell, zeros(), xs)), (W, U, B))


def gradients_of_slices(xs: Any) -> Any:
    xs = xs.clone().requires_grad_()
    return tj.autograd.grad(loss(*tj.scan(cell, zeros(), xs, reverse=True)), xs)


def second_derivatives(xs: Any) -> Any:
    (slope,) = tj.autograd.grad(loss(*tj.scan(cell, zeros(), xs)), W, create_graph=True)
    return tj.autograd.grad((slope * slope).sum(), (W, U))


def lstm(xs: Any) -> Any:
    def step(carried: Any, x: Any) -> Any:
        h, c = CELL(x, carried)
        return (h, c), h

    (h, c), ys = tj.scan(step, (zeros(), zeros()), xs)
    return tj.autograd.grad(loss(h + c, ys), list(CELL.parameters()))


def training(xs: Any) -> Any:
    optimizer = optim.SGD(LINEAR.parameters(), lr=0.0)
    optimizer.zero_grad()
    h, ys = tj.scan(lambda h, x: (LINEAR(h + x).tanh(), h.sum(1)), zeros(), xs)
    found = (h * h).sum() + ys.sum()
    found.backward()
    optimizer.step()
    return found.detach(), LINEAR.weight.grad.clone()


def solver(xs: Any) -> Any:
    def slope(y: Any) -> Any:
        return (y @ W).sin() - y

    def step(y: Any, _: Any) -> Any:
        k1 = slope(y)
        k2 = slope(y + 0.05 * k1)
        y = y + 0.05 * (k1 + k2)
        return y, y

    y, ys = tj.scan(step, xs[0], length=COUNT)
    return (*tj.autograd.grad(loss(y, ys), W), ys)


def in_another(xs: Any) -> Any:
    def outer(h: Any, x: Any) -> Any:
        h, ys = tj.scan(cell, h, tj.stack([x] * COUNT))
        return h, ys.sum(0)

    return tj.autograd.grad(loss(*tj.scan(outer, zeros(), xs)), (W, U))


def some_detached(xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        y = (h @ W + x).tanh()
        with tj.no_grad():
            scale = (h @ W).abs().mean()
        return y * scale + h.detach(), y.detach()

    h, ys = tj.scan(step, zeros(), xs)
    return (*tj.autograd.grad((h * h).sum(), (W,)), ys)


def unchanged_and_swapped(xs: Any) -> Any:
    def step(carried: Any, x: Any) -> Any:
        return {"a": carried["b"], "b": carried["a"] + x, "k": carried["k"]}, (x, carried["k"], B)

    return tj.scan(step, {"a": zeros(), "b": zeros() + 1, "k": B * 2}, xs)


def positions(xs: Any) -> Any:
    return tj.scan(lambda n, x: (n + 1, (x * n).softmax(-1).argmax(-1)), tj.tensor(0), xs)


def mapped(xs: Any) -> Any:
    return tj.autograd.grad(tj.map(lambda x: (x @ W).relu().sum(0), xs).sum(), W)


def mapped_to_constants(xs: Any) -> Any:
    return tj.map(lambda x: tj.ones(3), xs)


def mapped_to_what_it_does_not_read(xs: Any) -> Any:
    return tj.autograd.grad(tj.map(lambda x: (W * 2).sin(), xs).sum(), W)


def counting(xs: Any) -> Any:
    n = 0

    def step(h: Any, x: Any) -> Any:
        nonlocal n
        n += 1
        return h + x, None

    return (*tj.scan(step, zeros(), xs), n)


def stepped_twice(xs: Any) -> Any:
    h, ys = tj.scan(cell, zeros(), xs)
    return tj.autograd.grad(loss(*tj.scan(cell, h, ys)), (W, U, B))


def with_numbers(xs: Any) -> Any:
    w = W.detach().clone().requires_grad_()
    h, ys = tj.scan(lambda h, x: (h + SETTINGS.rate * (x @ w).sin() * SETTINGS.times, h / SETTINGS.rate), zeros(), xs)
    return (*tj.autograd.grad(loss(h, ys), w), h.detach())


def inner_gradient(xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        point = h.detach().requires_grad_()
        (slope,) = tj.autograd.grad(((point @ W - x) ** 2).sum(), point)
        return h - 0.01 * slope, None

    return tj.scan(step, zeros(), xs)[0].detach()


def inner_gradient_of_a_leaf_around(xs: Any) -> Any:
    half = (W / 2).sin()
    slopes = tj.map(lambda x: tj.autograd.grad((x @ half).tanh().sum(), W, retain_graph=True)[0], xs)
    return slopes, *tj.autograd.grad(half.sum(), W)


def inner_second_derivatives(xs: Any) -> Any:
    def curvature(x: Any) -> Any:
        point = x.clone().requires_grad_()
        (slope,) = tj.autograd.grad((point**3).sum(), point, create_graph=True)
        return tj.autograd.grad(slope.sin().sum(), point)[0]

    return tj.map(curvature, xs)


def gradients_of_samples(xs: Any) -> Any:
    parameters = {name: x.detach() for name, x in LINEAR.named_parameters()}

    def error(parameters: Any, x: Any) -> Any:
        return (tj.func.functional_call(LINEAR, parameters, (x,)) ** 2).mean()

    return tj.func.vmap(tj.func.grad(error), in_dims=(None, 0))(parameters, xs), LINEAR(xs[0]).detach()


def jacobians(xs: Any) -> Any:
    w = W.detach()
    products = tj.vmap(lambda x, y: x * y, (0, 1), 1)(xs, xs.movedim(0, 1))
    return tj.vmap(tj.func.jacrev(lambda x: (x @ w).tanh()))(xs[:, 0]), products


def partly_used(xs: Any) -> Any:
    def step(carried: Any, x: Any) -> Any:
        return (carried[0] @ W, carried[1] + x), None

    (a, _), _ = tj.scan(step, (zeros() + B, zeros() * U.sum()), xs)
    slopes = tj.autograd.grad(a.sum(), (W, U, B), allow_unused=True)
    return [tj.zeros(1) if slope is None else slope for slope in slopes]


def carried_on_as_they_were(xs: Any) -> Any:
    h0, k0, b = zeros() + 1, zeros() + 2, B.detach().clone()

    def step(carried: Any, x: Any) -> Any:
        h, k, total, _ = carried
        return (k, h, total + x, b), None

    (h, k, total, last), _ = tj.scan(step, (h0, k0, zeros(), b), xs)
    h.add_(1)
    last.mul_(2)
    return h, k, total, h0, k0, b, h is h0, last is b


@pytest.mark.parametrize(
    "function",
    [
        recurrent, backwards, gradients, gradients_of_slices, second_derivatives, lstm, training, solver, in_another, some_detached,
        unchanged_and_swapped, positions, mapped, mapped_to_constants, mapped_to_what_it_does_not_read,
        counting, stepped_twice, with_numbers,
        partly_used, carried_on_as_they_were, inner_gradient, inner_gradient_of_a_leaf_around, inner_second_derivatives,
        gradients_of_samples, jacobians,
    ],
)  # fmt: skip
def test_steps_that_do_the_same_are_a_loop(function: Callable[..., Any]) -> None:
    assert length_of_loop(function) == COUNT - 1


def varying(xs: Any) -> Any:
    n = 0

    def step(h: Any, x: Any) -> Any:
        nonlocal n
        n += 1
        return (h + x if n < COUNT else h * n), h

    return (*tj.scan(step, zeros(), xs), n)


def branching(xs: Any) -> Any:
    return tj.scan(lambda h, x: (h + x if x[0, 0] > 0 else h - x, h), zeros(), xs)


def leaving(xs: Any) -> Any:
    return tj.scan(lambda h, x: (h + x * h.sum().item(), h), zeros(), xs)


def writing(xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        y = h.clone()
        y += x
        return y.mul_(0.5), h

    return tj.scan(step, zeros(), xs)


def drawing(xs: Any) -> Any:
    tj.manual_seed(3)
    return tj.scan(lambda h, x: (nn.functional.dropout(h + x, 0.5), h), zeros(), xs)


class Doubled(tj.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.5

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def own_gradient(xs: Any) -> Any:
    w = W.detach().clone().requires_grad_()
    h, ys = tj.scan(lambda h, x: (Doubled.apply(h @ w + x).tanh(), h), zeros(), xs)
    return tj.autograd.grad(loss(h, ys), w)


def hooked(xs: Any) -> Any:
    w = W.detach().clone().requires_grad_()

    def step(h: Any, x: Any) -> Any:
        y = h @ w + x
        y.register_hook(lambda g: g * 2)
        return y.tanh(), h

    h, ys = tj.scan(step, zeros(), xs)
    return tj.autograd.grad(loss(h, ys), w)


def inner_gradient_on_the_tape(xs: Any) -> Any:
    def slope(x: Any) -> Any:
        return tj.autograd.grad(((x @ W) ** 3).sum(), W, create_graph=True)[0]

    return tj.autograd.grad((tj.map(slope, xs) ** 2).sum(), W)


def accumulating(xs: Any) -> Any:
    w = W.detach().clone().requires_grad_()

    def step(h: Any, x: Any) -> Any:
        (x @ w).sin().sum().backward()
        return h + w.grad.sum(), None

    return tj.scan(step, zeros(), xs)[0], w.grad


def leaf_by_turns(xs: Any) -> Any:
    point = zeros()

    def step(h: Any, x: Any) -> Any:
        point.requires_grad_(not point.requires_grad)
        return h + x * (2 if point.requires_grad else 3), None

    return tj.scan(step, zeros(), xs)[0], point.requires_grad


def slice_carried_on(xs: Any) -> Any:
    xs = xs.clone()
    h, _ = tj.scan(lambda h, x: (x, h), zeros(), xs)
    h.add_(1)
    return h, xs


def view_carried_on(xs: Any) -> Any:
    h0 = tj.ones(3, 3, dtype=tj.float64) * xs[0, 0, 0]
    h, _ = tj.scan(lambda h, x: (h.t(), None), h0, xs)
    h.mul_(tj.tensor([1.0, 2.0, 3.0], dtype=tj.float64))
    return h, h0


def without_tensors(xs: Any) -> Any:
    return tj.scan(lambda h, x: ((), tj.ones(2)), (), None, length=COUNT)[1]


def few(xs: Any) -> Any:
    return tj.scan(cell, zeros(), xs[:2])


def of_the_step_before(xs: Any) -> Any:
    before = [zeros()]

    def step(h: Any, x: Any) -> Any:
        before.append(h + x)
        return h + before[-2], None

    return tj.scan(step, zeros(), xs)


@pytest.mark.parametrize(
    "function",
    [
        varying, branching, leaving, writing, drawing, few,
        without_tensors, of_the_step_before, own_gradient, hooked, inner_gradient_on_the_tape,
        accumulating, leaf_by_turns, slice_carried_on, view_carried_on,
    ],
)  # fmt: skip
def test_steps_that_differ_or_do_more_stay_written_out(function: Callable[..., Any]) -> None:
    assert length_of_loop(function, calls=6 if function is branching else 4) is None


def test_numbers_from_outside_are_those_of_each_call() -> None:
    settings = SimpleNamespace(rate=0.1)

    def function(xs: Any) -> Any:
        return tj.scan(lambda h, x: (h * settings.rate + x, h), zeros(), xs)

    compiled, xs = tj.compile(function), parameter(COUNT, 2, WIDTH).detach()
    for k in range(5):
        settings.rate = 0.1 * k + 0.05
        for a, b in zip(compiled(xs), function(xs), strict=True):
            assert np.allclose(a.numpy(), b.numpy(), rtol=1e-12)
    assert compiled.stats.traces == 1 and "loop of" in compiled.explain(verbose=True)


def test_what_a_step_adds_to_a_list_from_outside_is_added_in_each_call() -> None:
    seen: list[Any] = []

    def function(xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            seen.append(h)
            return h + x, None

        return tj.scan(step, zeros(), xs)[0]

    compiled, xs = tj.compile(function), parameter(COUNT, 2, WIDTH).detach()
    for k in range(1, 4):
        compiled(xs)
        assert (len(seen) == k * COUNT and seen[-1].equal(xs[:-1].sum(0) + 0)) or np.allclose(
            seen[-1].numpy(), xs[:-1].sum(0).numpy()
        )


def test_a_tensor_of_a_step_that_the_program_has_kept_for_later_makes_it_eager_with_a_reason() -> None:
    def function(xs: Any) -> Any:
        kept: list[Any] = []

        def step(h: Any, x: Any) -> Any:
            kept.append(h)
            return h + x, None

        h, _ = tj.scan(step, zeros(), xs)
        return h + kept[-1]

    compiled, xs = tj.compile(function), parameter(COUNT, 2, WIDTH).detach()
    for _ in range(3):
        assert compiled(xs).equal(function(xs))
    assert "[tensor_origin]" in compiled.explain(verbose=True)


def test_memory_and_machine_code_do_not_grow_with_the_length() -> None:
    def programs(length: int) -> tuple[int, int]:
        compiled = tj.compile(lambda xs: tj.scan(lambda h, x: ((h @ W + x).tanh(), None), zeros(), xs)[0].sum())
        with tj.no_grad():
            compiled(parameter(length, 2, WIDTH).detach())
        program: Any = compiled._table.paths[0].executable.program
        return program.lowered.arena_bytes, len(program.llvm().splitlines())

    assert programs(20) == programs(500)


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        self.count += 1
        return self.count


OUTSIDE = Counter()
ONES_THEN_TWOS = (1.0,) * 5 + (2.0,) * 20


def counting_in(kind: str) -> Callable[[Any], Any]:
    """A function whose steps do the same five times, and then something else."""

    def function(xs: Any) -> Any:
        listed: list[int] = []
        named: dict[str, int] = {}
        counted: set[int] = set()
        queue = deque(ONES_THEN_TWOS)
        iterator = iter(ONES_THEN_TWOS)
        counter = Counter()
        weight = W.detach().clone()
        generated = (number for number in ONES_THEN_TWOS)
        OUTSIDE.count = 0
        number = 0
        init = zeros()
        other = zeros() + 1

        def step(h: Any, x: Any, default: Any = listed) -> Any:
            nonlocal number
            if kind == "list":
                listed.append(1)
                factor = 1.0 if len(listed) < 6 else 2.0
            elif kind == "default":
                default.append(1)
                factor = 1.0 if len(default) < 6 else 2.0
            elif kind == "dict":
                named["n"] = named.get("n", 0) + 1
                factor = 1.0 if named["n"] < 6 else 2.0
            elif kind == "set":
                counted.add(len(counted))
                factor = 1.0 if len(counted) < 6 else 2.0
            elif kind == "deque":
                factor = queue.popleft()
            elif kind == "iterator":
                factor = next(iterator)
            elif kind == "generator":
                factor = next(generated)
            elif kind == "instance":
                factor = 1.0 if counter.next() < 6 else 2.0
            elif kind == "outside":
                factor = 1.0 if OUTSIDE.next() < 6 else 2.0
            elif kind == "function":
                step.__dict__["count"] = step.__dict__.get("count", 0) + 1
                factor = 1.0 if step.__dict__["count"] < 6 else 2.0
            elif kind == "tensor":
                weight.count = getattr(weight, "count", 0) + 1
                factor = 1.0 if weight.count < 6 else 2.0
            elif kind == "grad mode":
                tj.set_grad_enabled(not tj.is_grad_enabled())
                factor = 1.0 if tj.is_grad_enabled() else 2.0
            else:
                number += 1
                factor = 1.0 if number < 6 else 2.0
            return h * factor + x, h

        if kind == "swapped":
            return tj.scan(lambda c, x: ((c[1], c[0] + (x if c[0] is other else 2 * x)), None), (init, other), xs)
        if kind == "argument of map":
            return tj.map(lambda x, numbers: x * next(numbers), xs, iterator)
        if kind == "partial":
            return tj.scan(functools.partial(lambda numbers, h, x: (h * next(numbers) + x, h), iterator), init, xs)
        if kind == "bound method":
            draw = iterator.__next__
            return tj.scan(lambda h, x: (h * draw() + x, h), init, xs)
        return tj.scan(step, init, xs)

    return function


@pytest.mark.parametrize(
    "kind",
    [
        "list", "default", "dict", "set", "deque", "iterator", "generator", "instance", "outside", "function", "tensor", "grad mode",
        "variable", "swapped", "argument of map", "partial", "bound method",
    ],
)  # fmt: skip
def test_a_step_that_will_be_another_one_is_run_each_time(kind: str) -> None:
    function = counting_in(kind)
    compiled = tj.compile(function)
    for k in range(4):
        xs = parameter(COUNT, 2, WIDTH, seed=20 + k).detach()
        both = []
        for run in (function, compiled):
            with tj.set_grad_enabled(True):
                both.append([x for x in flatten(run(xs))[0] if x is not None])
        for a, b in zip(*both, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    "function", [recurrent, backwards, gradients, gradients_of_slices, lstm, mapped, with_numbers, some_detached]
)
def test_two_steps_run_of_however_many_if_they_do_the_same(function: Callable[..., Any]) -> None:
    def values_met(length: int) -> int:
        compiled, xs = tj.compile(function), parameter(length, 2, WIDTH).detach()
        for _ in range(2):
            for a, b in zip(flatten(compiled(xs))[0], flatten(function(xs))[0], strict=True):
                np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)
        assert f"loop of {length - 1} steps" in compiled.explain(verbose=True)
        return max(compiled._table.paths[0].recording.graph.avals)

    assert values_met(COUNT) == values_met(100)


@pytest.mark.parametrize("which", [0, 1])
def test_what_steps_hand_from_place_to_place_is_where_their_number_says(which: int) -> None:
    def function(xs: Any) -> Any:
        carried, ys = tj.scan(lambda c, x: ((c[1], c[0]), x * 1), (xs[0] * 1, xs[0] * 2), xs)
        return carried[which], ys

    compiled = tj.compile(function)
    for length in (6, 6, 7, 7, 8, 9, 12, 5):
        xs = parameter(length, WIDTH)
        both = [run(xs)[0] for run in (function, compiled)]
        slopes = [tj.autograd.grad((x * x).sum(), xs)[0] for x in both]
        assert np.array_equal(*[x.detach().numpy() for x in both]) and np.array_equal(*[x.numpy() for x in slopes])


def test_a_tensor_that_is_carried_on_twice_may_be_told_from_two() -> None:
    def function(xs: Any) -> Any:
        def step(carried: Any, x: Any) -> Any:
            h, c = carried
            y = h + x if h is c else h * 2 + c + x
            return (y, y), None

        return tj.scan(step, (zeros(), zeros()), xs)[0]

    assert length_of_loop(function) is None
