"""utils.checkpoint: the same results, gradients and random numbers, with less kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import numbers

import tracejit
from tracejit import nn
from tracejit.utils.checkpoint import checkpoint, checkpoint_sequential


def test_values_and_gradients_are_those_of_a_plain_call() -> None:
    tracejit.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    scale = tracejit.tensor(numbers(2), requires_grad=True)
    outer = scale * 2  # a result from outside that the function finds

    def run(x: Any, *, factor: float) -> Any:
        return net(x) * outer * factor, x.sum()

    found = []
    for plain in (True, False):
        for p in (*net.parameters(), scale):
            p.grad = None
        x = tracejit.tensor(numbers(5, 3), requires_grad=True)
        y = x * 1
        a, b = run(y, factor=2.0) if plain else checkpoint(run, y, factor=2.0, use_reentrant=False)
        ((a**2).sum() * b).backward(retain_graph=True)
        found.append([a, b, x.grad, scale.grad, *(p.grad for p in net.parameters())])
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), expected.detach().numpy(), rtol=1e-12)


def test_asking_for_gradients_touches_nothing_else() -> None:
    weight = tracejit.tensor(numbers(3), requires_grad=True)
    x = tracejit.tensor(numbers(3, seed=1), requires_grad=True)
    y = checkpoint(lambda a: (a * weight).exp(), x, use_reentrant=False).sum()
    (g,) = tracejit.autograd.grad(y, weight)
    np.testing.assert_allclose(g.numpy(), (x * (x * weight).exp()).detach().numpy())
    assert weight.grad is None
    assert x.grad is None


def test_second_derivatives_go_through() -> None:
    x = tracejit.tensor(numbers(3), requires_grad=True)
    assert tracejit.autograd.gradgradcheck(lambda a: checkpoint(lambda b: (b**3).sin(), a, use_reentrant=False), (x,))


def test_the_same_random_numbers_are_drawn_again() -> None:
    x = tracejit.ones(1000, requires_grad=True)
    drop = nn.Dropout(0.5)
    tracejit.manual_seed(3)
    y = checkpoint(drop, x, use_reentrant=False)
    after = tracejit.rand(3)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()
    tracejit.manual_seed(3)
    drop(x)
    assert tracejit.rand(3).tolist() == after.tolist()
    before = tracejit.get_rng_state().tolist()
    z = checkpoint(drop, x)
    assert tracejit.get_rng_state().tolist() != before
    now = tracejit.get_rng_state().tolist()
    z.sum().backward()
    assert tracejit.get_rng_state().tolist() == now


def test_functions_without_inputs_that_want_gradients_give_them_to_their_parameters() -> None:
    net = nn.Linear(3, 2)
    checkpoint(net, tracejit.ones(4, 3), use_reentrant=False).sum().backward()
    assert net.bias.grad.tolist() == [4.0, 4.0]
    with tracejit.no_grad():
        assert not checkpoint(net, tracejit.ones(4, 3)).requires_grad


def test_what_is_kept_is_less() -> None:
    calls = []

    def run(x: Any) -> Any:
        calls.append(x)
        return x.exp().sin().exp().sin()

    x = tracejit.tensor(numbers(3), requires_grad=True)
    y = checkpoint(run, x)
    assert y.grad_fn.name() == "CheckpointFunctionBackward"
    assert [target.variable is x for target, _ in y.grad_fn.next_functions] == [True]
    y.sum().backward()
    assert len(calls) == 2
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.sum().backward()
    y = checkpoint(run, x)
    with tracejit.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_segments_of_a_sequential_are_checkpointed() -> None:
    net = nn.Sequential(*[nn.Linear(3, 3) for _ in range(5)])
    x = tracejit.tensor(numbers(2, 3, dtype="float32"), requires_grad=True)
    checkpoint_sequential(net, 2, x, use_reentrant=False).sum().backward()
    first = x.grad.tolist()
    x.grad = None
    net(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), first, rtol=1e-6)


def test_compiled_functions_with_checkpoints_are_captured() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    compiled = tracejit.compile(lambda x: (checkpoint(net, x, use_reentrant=False) ** 2).sum())
    for seed in range(4):
        x = tracejit.tensor(numbers(5, 3, seed=seed, dtype="float32"))
        net.zero_grad()
        expected = (net(x) ** 2).sum()
        expected.backward()
        gradients = [p.grad.numpy() for p in net.parameters()]
        net.zero_grad()
        value = compiled(x)
        value.backward()
        np.testing.assert_allclose(value.item(), expected.item(), rtol=1e-5)
        for p, g in zip(net.parameters(), gradients, strict=True):
            np.testing.assert_allclose(p.grad.numpy(), g, rtol=1e-5, atol=1e-6)
    assert compiled.stats.compiled_calls >= 1, compiled.explain()
