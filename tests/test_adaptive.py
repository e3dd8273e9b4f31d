"""AdaptiveLogSoftmaxWithLoss: PyTorch's values and gradients with its parameters, eager and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tests.against_torch import classes, numbers, torch


def model(library: Any) -> Any:
    return library.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0, head_bias=True).double()


def pair() -> tuple[Any, Any]:
    """The same model here and in PyTorch."""
    ours, theirs = model(tracejit), model(torch())
    ours.load_state_dict({name: tracejit.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    return ours, theirs


def test_losses_gradients_and_predictions_are_those_of_pytorch() -> None:
    ours, theirs = pair()
    x, target = numbers(12, 8), classes(12, count=20)
    found, wanted = ours(tracejit.tensor(x), tracejit.tensor(target)), theirs(torch().tensor(x), torch().tensor(target))
    np.testing.assert_allclose(found.output.detach().numpy(), wanted.output.detach().numpy(), rtol=1e-10)
    np.testing.assert_allclose(found.loss.item(), wanted.loss.item(), rtol=1e-12)
    found.loss.backward()
    wanted.loss.backward()
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(
        ours.log_prob(tracejit.tensor(x)).detach().numpy(), theirs.log_prob(torch().tensor(x)).detach().numpy(), rtol=1e-10
    )
    assert ours.predict(tracejit.tensor(x)).tolist() == theirs.predict(torch().tensor(x)).tolist()
    one = ours(tracejit.tensor(x[0]), tracejit.tensor(target[0]))
    assert one.output.shape == () and one.output.item() == pytest.approx(wanted.output[0].item())


def test_a_compiled_step_gives_the_losses_of_an_eager_one() -> None:
    ours, _ = pair()
    compiled = tracejit.compile(lambda x, target: ours(x, target).loss)
    for seed in (0, 0, 1, 2):
        x, target = tracejit.tensor(numbers(12, 8, seed=seed)), tracejit.tensor(classes(12, count=20, seed=seed))
        assert compiled(x, target).item() == pytest.approx(ours(x, target).loss.item(), rel=1e-12)


def test_targets_outside_the_classes_and_wrong_cutoffs_are_refused() -> None:
    ours = tracejit.nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2])
    with pytest.raises(RuntimeError, match="Target values"):
        ours(tracejit.ones(2, 4), tracejit.tensor([0, 6]))
    with pytest.raises(ValueError, match="cutoffs"):
        tracejit.nn.AdaptiveLogSoftmaxWithLoss(4, 6, [3, 2])
