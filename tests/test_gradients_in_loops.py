"""Gradients that steps of a loop take of what they make: one recording stands for all numbers of steps, as without gradients.

Each program gives what it gives eagerly, for lengths in no order; a gradient of what it gives, where that requires grad, as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit import nn

LENGTHS = (12, 7, 20, 9, 25, 1, 18)


def energy(q: Any) -> Any:
    return 0.5 * (q * q).sum() + 0.05 * (q**4).sum()


def force(q: Any) -> Any:
    q = q.detach().requires_grad_()
    return T.autograd.grad(energy(q), q)[0]


def leapfrog(q: Any, p: Any, rate: float, steps: int) -> Any:
    p = p - 0.5 * rate * force(q)
    for _ in range(steps):
        q = q + rate * p
        p = p - rate * force(q)
    return q, p


def written_out(q: Any, p: Any, rate: float, steps: int) -> Any:
    for _ in range(steps):
        q = q + rate * p
        x = q.detach().requires_grad_()
        u = energy(x)
        slope = T.autograd.grad(u, x)[0]
        p = p - rate * slope
    return q, p


def by_backward(q: Any, p: Any, rate: float, steps: int) -> Any:
    for _ in range(steps):
        x = (q + rate * p).detach().requires_grad_()
        energy(x).backward()
        q, p = x.detach() + 0.0, p - rate * x.grad
    return q, p


def by_func(q: Any, p: Any, rate: float, steps: int) -> Any:
    for _ in range(steps):
        q = q + rate * p
        p = p - rate * T.func.grad(energy)(q)
    return q, p


T.manual_seed(0)
_net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def of_a_network(q: Any, p: Any, rate: float, steps: int) -> Any:
    for _ in range(steps):
        q = q + rate * p
        x = q.detach().requires_grad_()
        p = p - rate * T.autograd.grad(_net(x).sum(), x)[0]
    return q, p


def counted(q: Any, p: Any, rate: float, steps: int) -> Any:
    done = 0
    while done < steps:
        q = q + rate * p
        p = p - rate * force(q)
        done += 1
    return q, p


def langevin(q: Any, p: Any, rate: float, steps: int) -> Any:
    for _ in range(steps):
        q = q - rate * force(q) + 0.1 * T.randn(4)
    return q, p


def curvature(q: Any, p: Any, rate: float, steps: int) -> Any:
    for _ in range(steps):
        x = q.detach().requires_grad_()
        slope = T.autograd.grad(energy(x), x, create_graph=True)[0]
        product = T.autograd.grad((slope * p).sum(), x)[0]
        q = q - rate * slope.detach() - 0.01 * rate * product
    return q, p


def descent(q: Any, p: Any, rate: float, steps: int) -> Any:
    x = q.clone().requires_grad_()
    for _ in range(steps):
        (slope,) = T.autograd.grad(energy(x - p), x)
        x = (x - rate * slope).detach().requires_grad_()
    return x * 2, T.autograd.grad(energy(x), x)[0]


def momentum(q: Any, p: Any, rate: float, steps: int) -> Any:
    x, m = q.clone().requires_grad_(), T.zeros(4)
    for _ in range(steps):
        (slope,) = T.autograd.grad(energy(x - p), x)
        m = 0.9 * m + slope
        with T.no_grad():
            x -= rate * m
    return x, m


def kept(q: Any, p: Any, rate: float, steps: int) -> Any:
    seen = []
    for _ in range(steps):
        x = q.detach().requires_grad_()
        u = energy(x)
        q = q - rate * T.autograd.grad(u, x)[0]
        seen.append(u.detach())
    return T.stack(seen), q


def scanned(q: Any, p: Any, rate: float, steps: int) -> Any:
    def step(carried: Any, x: Any) -> Any:
        q, p = carried
        q = q + rate * p
        return (q, p - rate * force(q) + x), q

    (q, p), seen = T.scan(step, (q, p), T.zeros(steps))
    return q, p, seen


def asked(q: Any, p: Any, rate: float, steps: int) -> Any:
    last = T.tensor(steps)

    def step(q: Any, p: Any, k: Any) -> Any:
        q = q + rate * p
        return q, p - rate * force(q), k + 1

    return T.while_loop(lambda q, p, k: k < last, step, (q, p, T.tensor(0)))


ROLLED: dict[Callable[..., Any], int] = {
    leapfrog: 3,
    written_out: 3,
    by_backward: 3,
    by_func: 3,
    of_a_network: 3,
    counted: 4,
    langevin: 3,
    curvature: 3,
    descent: 3,
    momentum: 3,
    kept: 4,
    scanned: 3,
    asked: 2,
}
"""Programs, and how many recordings they may need: of a first length, of a symbolic one, and of one step."""


def called(function: Callable[..., Any], lengths: Sequence[int], wrt: Any = None) -> Any:
    compiled = T.compile(function, wait=True)
    random = np.random.default_rng(0)
    for k, steps in enumerate(lengths):
        q, p = [T.tensor(random.normal(size=4).astype(np.float32)) for _ in range(2)]
        results = []
        for f in (function, compiled):
            T.manual_seed(k)
            found = f(q, p, 0.1, steps)
            drawn = T.rand(()).item()
            gradients = [T.autograd.grad(x.sum(), wrt)[0] for x in found if wrt is not None and x.requires_grad and not x.is_leaf]
            results.append(([*found, *gradients], drawn))
        (expected, a), (given, b) = results
        assert a == b and len(expected) == len(given)
        for x, y in zip(expected, given, strict=True):
            assert (x.requires_grad, x.is_leaf) == (y.requires_grad, y.is_leaf)
            np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy(), rtol=2e-4, atol=1e-5, err_msg=f"{steps} steps")
    return compiled


@pytest.mark.parametrize("function", ROLLED, ids=lambda f: f.__name__)
def test_a_loop_whose_steps_take_gradients_is_recorded_once_for_all_lengths(function: Callable[..., Any]) -> None:
    compiled = called(function, LENGTHS)
    assert compiled.stats.traces <= ROLLED[function], compiled.explain()
    assert compiled.stats.compiled_calls == len(LENGTHS) - compiled.stats.traces
    assert not compiled.reasons


# -- steps that leave more than numbers
_w = T.tensor([1.0, 2.0, 3.0, 4.0]).requires_grad_()


def adds_up_outside(q: Any, p: Any, rate: float, steps: int) -> Any:
    for _ in range(steps):
        x = q.detach().requires_grad_()
        (energy(x) * _w.sum()).backward()
        q = q - rate * x.grad
    found, _w.grad = _w.grad.clone(), None
    return q, found


def adds_up_in_the_call(q: Any, p: Any, rate: float, steps: int) -> Any:
    x = p.detach().requires_grad_()
    for _ in range(steps):
        ((x * q).sum() ** 2).backward()
        q = q + rate * x.grad.tanh()
    return q, x.grad + 0.0


def stays_on_the_tape(q: Any, p: Any, rate: float, steps: int) -> Any:
    for _ in range(steps):
        x = q.detach().requires_grad_()
        slope = T.autograd.grad(energy(x) * _w.sum(), x, create_graph=True)[0]
        q = q.detach() - rate * slope
    return (q,)


def beside_what_requires_grad(q: Any, p: Any, rate: float, steps: int) -> Any:
    h = _w * 1.0
    for _ in range(steps):
        x = q.detach().requires_grad_()
        q = q - rate * T.autograd.grad(energy(x), x)[0]
        h = h * q.cos()
    return h, q


def looks_at_the_last(q: Any, p: Any, rate: float, steps: int) -> Any:
    for _ in range(steps):
        x = q.detach().requires_grad_()
        u = energy(x)
        q = q - rate * T.autograd.grad(u, x, retain_graph=True)[0]
    return q, T.autograd.grad(u, x)[0]


def changes_gradients(q: Any, p: Any, rate: float, steps: int) -> Any:
    for _ in range(steps):
        x = q.detach().requires_grad_()
        x.register_hook(lambda slope: slope * 2)
        q = q - rate * T.autograd.grad(energy(x), x)[0]
    return q, p


@pytest.mark.parametrize(
    "function",
    [
        stays_on_the_tape,
        beside_what_requires_grad,
        looks_at_the_last,
        changes_gradients,
    ],
)
def test_steps_whose_gradients_leave_more_than_numbers_all_run(function: Callable[..., Any]) -> None:
    compiled = called(function, (12, 7, 15, 9), _w)
    assert compiled.stats.traces == 4, compiled.explain()
    assert "has a recording for each number of steps" in compiled.explain(verbose=True)


@pytest.mark.parametrize("function", [adds_up_outside, adds_up_in_the_call])
def test_steps_that_leave_gradients_in_leaves_are_a_node_of_another_kind(function: Callable[..., Any]) -> None:
    compiled = called(function, (12, 7, 15, 9, 11, 14), _w)
    assert compiled.stats.traces <= 3 and compiled.stats.compiled_calls >= 3, compiled.explain()
    assert not compiled.reasons, compiled.explain()


def test_a_chain_of_jittered_steps_is_recorded_as_often_as_one_without_gradients() -> None:
    @T.compile(wait=True)
    def transition(q: Any, steps: int) -> Any:
        p = T.randn(4)
        before = energy(q) + 0.5 * (p * p).sum()
        moved, p = leapfrog(q, p, 0.3, steps)
        after = energy(moved) + 0.5 * (p * p).sum()
        return T.where(T.rand(()) < (before - after).exp(), moved, q)

    random = np.random.default_rng(0)
    q = T.ones(4)
    for _ in range(300):
        q = transition(q, int(random.integers(8, 40)))
    assert transition.stats.traces <= 3, transition.explain()
    assert transition.stats.calls == 300 and q.isfinite().all()


def sets_gradients_in_scan(q: Any, p: Any, rate: float, steps: int) -> Any:
    z = (q * 2).detach().requires_grad_()

    def step(q: Any, x: Any) -> Any:
        z.grad = None
        ((z * q).sum() ** 2).backward()
        return q * 0.9 + rate * z.grad.tanh() + x, q

    q, seen = T.scan(step, q, T.zeros(steps))
    return q, seen, z.grad + 0.0


def sets_gradients_in_while_loop(q: Any, p: Any, rate: float, steps: int) -> Any:
    z, last = (q * 2).detach().requires_grad_(), T.tensor(steps)

    def step(q: Any, k: Any) -> Any:
        z.grad = None
        ((z * q).sum() ** 2).backward()
        return q * 0.9 + rate * z.grad.tanh(), k + 1

    q, _ = T.while_loop(lambda q, k: k < last, step, (q, T.tensor(0)))
    return q, z.grad + 0.0


@pytest.mark.parametrize("function", [sets_gradients_in_scan, sets_gradients_in_while_loop])
def test_what_steps_leave_in_a_leaf_from_before_is_that_of_the_last_one(function: Callable[..., Any]) -> None:
    assert called(function, (12, 7, 15)).stats.traces == 3
