"""Averages of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import numbers

import tracejit
from tracejit import nn, optim
from tracejit.optim import swa_utils


def model_of(library: Any) -> Any:
    model = library.nn.Sequential(library.nn.Linear(3, 4), library.nn.BatchNorm1d(4), library.nn.ReLU(), library.nn.Linear(4, 1))
    model.load_state_dict({
        name: library.tensor(numbers(*value.shape, seed=i, dtype="float32", low=0.1)) if value.ndim else library.tensor(0)
        for i, (name, value) in enumerate(model.state_dict().items())
    })  # fmt: skip
    return model


def averaged(library: Any, options: Any) -> list[np.ndarray]:
    model = model_of(library)
    average = library.optim.swa_utils.AveragedModel(model, **options(library.optim.swa_utils))
    stepper = library.optim.SGD(model.parameters(), lr=0.05)
    for i in range(6):
        stepper.zero_grad()
        (model(library.tensor(numbers(8, 3, seed=i, dtype="float32"))) ** 2).mean().backward()
        stepper.step()
        average.update_parameters(model)
    loader = [[library.tensor(numbers(8, 3, seed=i, dtype="float32")), 0] for i in range(3)]
    before = [t.numpy().copy() for t in average.state_dict().values()]
    library.optim.swa_utils.update_bn(loader, average)
    assert [layer.momentum for layer in average.modules() if hasattr(layer, "momentum")] == [0.1]
    return [*before, *(t.numpy() for t in average.state_dict().values())]


@pytest.mark.parametrize("options", [
    lambda u: {}, lambda u: {"avg_fn": u.get_ema_avg_fn(0.9)}, lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.8)},
    lambda u: {"use_buffers": True}, lambda u: {"avg_fn": u.get_swa_avg_fn()}, lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
])  # fmt: skip
def test_averaged_models_agree_with_torch(options: Any) -> None:
    torch = pytest.importorskip("torch")
    for ours, theirs in zip(averaged(tracejit, options), averaged(torch, options), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"anneal_strategy": "linear", "anneal_epochs": 4}, {"anneal_epochs": 0}])
def test_swalr_agrees_with_torch(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")

    def rates(library: Any) -> list[Any]:
        groups = [{"params": [library.nn.Parameter(library.ones(1))], "lr": lr} for lr in (1.0, 0.1)]
        stepper = library.optim.SGD(groups)
        schedule = library.optim.swa_utils.SWALR(stepper, swa_lr=[0.05, 0.5], **options)
        seen = []
        for i in range(14):
            seen.append(schedule.get_last_lr())
            stepper.step()
            schedule.step()
            if i == 5:
                state = schedule.state_dict()
                schedule = library.optim.swa_utils.SWALR(stepper, swa_lr=[0.05, 0.5], **options)
                schedule.load_state_dict(state)
        return seen

    np.testing.assert_allclose(rates(tracejit), rates(torch), rtol=1e-9)


def test_the_first_model_is_copied_and_the_average_is_none_of_its_memory() -> None:
    model = nn.Linear(2, 2)
    average = swa_utils.AveragedModel(model)
    with tracejit.no_grad():
        model.weight.fill_(3.0)
    average.update_parameters(model)
    with tracejit.no_grad():
        model.weight.fill_(5.0)
    assert average.module.weight.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    average.update_parameters(model)
    assert average.module.weight.tolist() == [[4.0, 4.0], [4.0, 4.0]]
    assert average.n_averaged.item() == 2
    assert average(tracejit.ones(1, 2)).shape == (1, 2)


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(AssertionError, match="Only one of"):
        swa_utils.AveragedModel(nn.Linear(1, 1), avg_fn=swa_utils.get_swa_avg_fn(), multi_avg_fn=swa_utils.get_swa_multi_avg_fn())
    with pytest.raises(ValueError, match="decay"):
        swa_utils.get_ema_avg_fn(1.5)
    with pytest.raises(ValueError, match="anneal_strategy"):
        swa_utils.SWALR(optim.SGD([nn.Parameter(tracejit.ones(1))]), 0.1, anneal_strategy="up")


def test_update_bn_stays_compiled() -> None:
    model = tracejit.nn.Sequential(tracejit.nn.Linear(3, 4), tracejit.nn.BatchNorm1d(4))
    batches = [tracejit.randn(5, 3) for _ in range(3)]

    @tracejit.compile
    def refreshed(x: tracejit.Tensor) -> tracejit.Tensor:
        tracejit.optim.swa_utils.update_bn(batches, model)
        return model(x).detach()

    results = [refreshed(tracejit.ones(2, 3)) for _ in range(3)]
    assert refreshed.stats.compiled_calls == 2, refreshed.explain()
    assert results[0].allclose(results[2])
