"""nn.utils.prune: what PyTorch prunes, keeps in state_dict() and makes permanent."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit
from tests.against_torch import numbers, torch

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "a fraction by magnitude": lambda p, m: p.l1_unstructured(m, "weight", 0.3),
    "a number by magnitude": lambda p, m: p.l1_unstructured(m, name="weight", amount=5),
    "nothing": lambda p, m: p.identity(m, "bias"),
    "twice": lambda p, m: p.l1_unstructured(p.l1_unstructured(m, "weight", 0.5), "weight", 0.5),
    "two parameters": lambda p, m: p.l1_unstructured(p.l1_unstructured(m, "weight", 2), "bias", 1),
    "removed": lambda p, m: p.remove(p.l1_unstructured(m, "weight", 0.4), "weight"),
}


def model(library: Any) -> Any:
    m = library.nn.Linear(4, 3).double()
    with library.no_grad():
        m.weight.copy_(library.tensor(numbers(3, 4, seed=1)))
        m.bias.copy_(library.tensor(numbers(3, seed=2)))
    return m


@pytest.mark.parametrize("name", PROGRAMS)
def test_pruned_modules_are_those_of_pytorch(name: str) -> None:
    outcomes = []
    for library in (torch(), tracejit):
        m = model(library)
        prune = importlib.import_module(f"{library.__name__}.nn.utils.prune")
        PROGRAMS[name](prune, m)
        out = m(library.tensor(numbers(2, 4, seed=3)))
        out.sum().backward()
        state = {key: value.numpy() for key, value in m.state_dict().items()}
        gradients = {key: p.grad.numpy() for key, p in m.named_parameters()}
        outcomes.append((out.detach().numpy(), state, gradients, prune.is_pruned(m)))
    (out, state, gradients, pruned), (ours, our_state, our_gradients, our_pruned) = outcomes
    np.testing.assert_allclose(ours, out)
    assert set(state) == set(our_state) and pruned == our_pruned
    for key, value in state.items():
        np.testing.assert_array_equal(our_state[key], value)
    assert set(gradients) == set(our_gradients)
    for key, value in gradients.items():
        np.testing.assert_allclose(our_gradients[key], value)


def test_training_keeps_what_is_pruned_at_zero() -> None:
    m = model(tracejit)
    tracejit.nn.utils.prune.random_unstructured(m, "weight", 6)
    optimizer = tracejit.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        m(tracejit.ones(2, 4, dtype=tracejit.float64)).square().sum().backward()
        optimizer.step()
    m(tracejit.ones(1, 4, dtype=tracejit.float64))
    assert int((m.weight == 0).sum()) == 6


def test_modules_are_pruned_together() -> None:
    first, second = model(tracejit), model(tracejit)
    with tracejit.no_grad():
        second.weight.mul_(100)
    tracejit.nn.utils.prune.global_unstructured([(first, "weight"), (second, "weight")], amount=0.5)
    assert int((first.weight == 0).sum()) == 12 and int((second.weight == 0).sum()) == 0


@pytest.mark.parametrize(("amount", "error"), [(1.5, ValueError), (-1, ValueError), (13, ValueError), ("a", TypeError)])
def test_an_amount_that_says_nothing_is_refused(amount: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        tracejit.nn.utils.prune.l1_unstructured(model(tracejit), "weight", amount)


def test_what_was_not_pruned_cannot_be_made_permanent() -> None:
    with pytest.raises(ValueError, match="has to be pruned"):
        tracejit.nn.utils.prune.remove(model(tracejit), "weight")
