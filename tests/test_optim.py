"""Optimizers and schedules."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from against_torch import numbers

import tracejit
from tracejit import nn, optim
from tracejit.optim import lr_scheduler

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.05}), ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "lr": 0.1}),
    ("Adam", {"lr": 0.05, "maximize": True}), ("Adam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.05}), ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True}),
]  # fmt: skip


def descend(library: Any, optimizer: Any, parameters: list[Any], steps: int, first: int = 0) -> None:
    """Steps on a quadratic whose centre moves; the second parameter gets no gradient at every third step."""
    tensor = library.tensor
    for i in range(first, first + steps):
        optimizer.zero_grad()
        loss = ((parameters[0] - tensor(numbers(3, seed=i))) ** 2).sum()
        if i % 3:
            loss = loss + (parameters[1] ** 3 * tensor(numbers(2, 2, seed=i))).sum()
        loss.backward()
        optimizer.step()


def starts(library: Any) -> list[Any]:
    return [
        library.nn.Parameter(library.tensor(numbers(3, seed=50))),
        library.nn.Parameter(library.tensor(numbers(2, 2, seed=51))),
    ]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=[f"{o[0]}-{i}" for i, o in enumerate(OPTIMIZERS)])
def test_optimizers_agree_with_torch(name: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = starts(tracejit), starts(torch)
    descend(tracejit, getattr(optim, name)(ours, **options), ours, 8)
    descend(torch, getattr(torch.optim, name)(theirs, **options), theirs, 8)
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=[f"{o[0]}-{i}" for i, o in enumerate(OPTIMIZERS)])
def test_training_goes_on_from_a_saved_state(name: str, options: dict[str, Any]) -> None:
    whole = starts(tracejit)
    descend(tracejit, getattr(optim, name)(whole, **options), whole, 7)
    part = starts(tracejit)
    first = getattr(optim, name)(part, **options)
    descend(tracejit, first, part, 4)
    saved = pickle.loads(pickle.dumps(first.state_dict()))
    resumed = copy.deepcopy(part)
    second = getattr(optim, name)(resumed, lr=123.0)
    second.load_state_dict(saved)
    descend(tracejit, second, resumed, 3, first=4)
    for p, q in zip(whole, resumed, strict=True):
        assert p.tolist() == q.tolist()


def test_sgd_has_known_values() -> None:
    p = nn.Parameter(tracejit.tensor([1.0, 2.0]))
    optimizer = optim.SGD([p], lr=0.5, momentum=0.5)
    for expected in ([0.5, 1.5], [-0.25, 0.75]):
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.step()
        assert p.tolist() == expected
    assert p.requires_grad
    assert p.is_leaf


def test_loaded_state_is_a_copy_of_its_parameters_dtype() -> None:
    p, q = nn.Parameter(tracejit.ones(2)), nn.Parameter(tracejit.ones(2, dtype=tracejit.float64))
    first, second = optim.Adam([p]), optim.Adam([q])
    p.sum().backward()
    first.step()
    second.load_state_dict(first.state_dict())
    assert second.state[q]["exp_avg"].dtype is tracejit.float64
    assert second.state[q]["step"] == 1
    before = first.state[p]["exp_avg"].tolist()
    q.sum().backward()
    second.step()
    assert first.state[p]["exp_avg"].tolist() == before
    with pytest.raises(ValueError, match="parameter groups"):
        second.load_state_dict(optim.Adam([{"params": [p]}, {"params": [nn.Parameter(tracejit.ones(1))]}]).state_dict())
    with pytest.raises(ValueError, match="doesn't match the size"):
        second.load_state_dict(optim.Adam([p, nn.Parameter(tracejit.ones(1))]).state_dict())


def test_groups_have_options_of_their_own() -> None:
    p, q = nn.Parameter(tracejit.ones(1)), nn.Parameter(tracejit.ones(1))
    optimizer = optim.SGD([{"params": [p]}, {"params": q, "lr": 1.0}], lr=0.5)
    optimizer.add_param_group({"params": [nn.Parameter(tracejit.ones(1))], "lr": 0.0})
    (p + q).sum().backward()
    optimizer.step()
    assert (p.item(), q.item()) == (0.5, 0.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 1.0, 0.0]


def test_rates_are_read_at_every_step() -> None:
    p = nn.Parameter(tracejit.zeros(1))
    optimizer = optim.SGD([p], lr=1.0)
    for rate in (1.0, 0.25):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.step()
    assert p.item() == -1.25


def test_parameters_without_gradient_stay_and_their_steps_do_not_count() -> None:
    p, q = nn.Parameter(tracejit.ones(1)), nn.Parameter(tracejit.ones(1))
    optimizer = optim.AdamW([p, q])
    p.sum().backward()
    optimizer.step()
    assert q.item() == 1.0
    assert (optimizer.state[p]["step"], optimizer.state[q]["step"]) == (1, 0)


def test_a_frozen_parameter_has_no_state_until_it_is_thawed() -> None:
    p = nn.Parameter(tracejit.ones(1), requires_grad=False)
    optimizer = optim.Adam([p], lr=0.5)
    assert p not in optimizer.state
    p.requires_grad_()
    p.sum().backward()
    optimizer.step()
    assert p.item() == pytest.approx(0.5)


def test_zero_grad_clears_or_zeroes() -> None:
    p = nn.Parameter(tracejit.ones(1))
    optimizer = optim.SGD([p])
    p.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.item() == 0.0
    optimizer.zero_grad()
    assert p.grad is None


def test_a_closure_is_evaluated_with_gradients() -> None:
    p = nn.Parameter(tracejit.ones(1))
    optimizer = optim.SGD([p], lr=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with tracejit.no_grad():
        assert optimizer.step(closure).item() == 1.0
    assert p.item() == 0.0


def test_a_model_converted_after_its_optimizer_was_made_is_an_error() -> None:
    model = nn.Linear(1, 1)
    optimizer = optim.Adam(model.parameters())
    model.double()
    model(tracejit.ones(1, 1, dtype=tracejit.float64)).sum().backward()
    with pytest.raises(RuntimeError, match="construct the optimizer after converting"):
        optimizer.step()


def test_what_cannot_be_optimized_is_an_error() -> None:
    p = nn.Parameter(tracejit.ones(1))
    with pytest.raises(TypeError, match="iterable of Tensors"):
        optim.SGD(p)
    with pytest.raises(ValueError, match="empty parameter list"):
        optim.SGD([])
    with pytest.raises(ValueError, match="non-leaf"):
        optim.SGD([p * 2])
    with pytest.raises(ValueError, match="more than one parameter group"):
        optim.SGD([p, p])
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        optim.SGD([1.0])
    with pytest.raises(ValueError, match="Invalid learning rate"):
        optim.Adam([p], lr=-1.0)
    with pytest.raises(ValueError, match="beta parameter at index 1"):
        optim.Adam([p], betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="Nesterov"):
        optim.SGD([p], nesterov=True)


def test_an_optimizer_prints_its_groups() -> None:
    text = repr(optim.SGD([nn.Parameter(tracejit.ones(1))], lr=0.5))
    assert text.startswith("SGD (\nParameter Group 0\n")
    assert "    lr: 0.5\n" in text


SCHEDULES = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}), ("MultiStepLR", {"milestones": [2, 5]}), ("ExponentialLR", {"gamma": 0.9}),
    ("LambdaLR", {"lr_lambda": lambda epoch: 1 / (1 + epoch)}), ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
    ("LinearLR", {"start_factor": 0.25, "total_iters": 4}), ("ConstantLR", {"factor": 0.5, "total_iters": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), SCHEDULES, ids=[s[0] for s in SCHEDULES])
def test_schedules_agree_with_torch(name: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")

    def rates(library: Any) -> list[list[float]]:
        groups = [{"params": [library.nn.Parameter(library.ones(1))], "lr": lr} for lr in (1.0, 0.1)]
        optimizer = library.optim.SGD(groups, lr=0.1)
        schedule = getattr(library.optim.lr_scheduler, name)(optimizer, **options)
        seen = []
        for _ in range(12):
            seen.append([group["lr"] for group in optimizer.param_groups])
            assert schedule.get_last_lr() == seen[-1]
            optimizer.step()
            schedule.step()
        return seen

    np.testing.assert_allclose(rates(tracejit), rates(torch), rtol=1e-12)


def test_a_schedule_resumes_from_its_state() -> None:
    def schedule() -> Any:
        return lr_scheduler.CosineAnnealingLR(optim.SGD([nn.Parameter(tracejit.ones(1))], lr=1.0), T_max=10)

    first, second = schedule(), schedule()
    for _ in range(4):
        first.step()
    second.load_state_dict(first.state_dict())
    first.step()
    second.step()
    assert second.get_last_lr() == first.get_last_lr()
