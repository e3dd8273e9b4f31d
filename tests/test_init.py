"""nn.init: distributions, gains, shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit import nn
from tracejit.nn import init


def filled(function: Any, *shape: int, **options: Any) -> np.ndarray:
    tracejit.manual_seed(1)
    tensor = nn.Parameter(tracejit.empty(*shape))
    assert function(tensor, **options) is tensor
    assert tensor.requires_grad
    assert tensor.is_leaf
    return tensor.detach().numpy()


def test_uniform_and_normal_numbers_are_where_they_should_be() -> None:
    x = filled(init.uniform_, 100, 100, a=-3.0, b=1.0)
    assert -3 <= x.min() < -2.95
    assert 0.95 < x.max() < 1
    assert x.mean() == pytest.approx(-1, abs=0.05)
    x = filled(init.normal_, 100, 100, mean=2.0, std=0.5)
    assert x.mean() == pytest.approx(2.0, abs=0.02)
    assert x.std() == pytest.approx(0.5, abs=0.02)
    x = filled(init.trunc_normal_, 100, 100, std=1.0, a=-1.0, b=0.5)
    assert -1 <= x.min() < -0.95
    assert 0.45 < x.max() <= 0.5


def test_constants() -> None:
    assert (filled(init.constant_, 2, 3, val=0.5) == 0.5).all()
    assert (filled(init.zeros_, 2) == 0).all()
    assert (filled(init.ones_, 2) == 1).all()
    assert (filled(init.eye_, 2, 3) == np.eye(2, 3)).all()


@pytest.mark.parametrize(
    ("function", "options", "spread"),
    [
        (init.xavier_uniform_, {"gain": 2.0}, 2 * math.sqrt(2 / (300 + 150))), (init.xavier_normal_, {}, math.sqrt(2 / (300 + 150))),
        (init.kaiming_uniform_, {"nonlinearity": "relu"}, math.sqrt(2 / 150)),
        (init.kaiming_normal_, {"mode": "fan_out", "nonlinearity": "relu"}, math.sqrt(2 / 300)),
        (init.kaiming_uniform_, {"a": math.sqrt(5)}, math.sqrt(1 / (3 * 150))),
    ],
)  # fmt: skip
def test_spread_follows_the_fans(function: Any, options: dict[str, Any], spread: float) -> None:
    x = filled(function, 300, 150, **options)
    assert x.std() == pytest.approx(spread, rel=0.02)
    assert x.mean() == pytest.approx(0, abs=0.01 * spread * 3)


def test_gains_agree_with_torch() -> None:
    torch = pytest.importorskip("torch")
    for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)
    with pytest.raises(ValueError, match="Unsupported nonlinearity"):
        init.calculate_gain("softmax")


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (3, 2, 2)])
def test_orthogonal_rows_or_columns(shape: tuple[int, ...]) -> None:
    x = filled(init.orthogonal_, *shape, gain=2.0).reshape(shape[0], -1)
    product = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_sparse_and_dirac() -> None:
    x = filled(init.sparse_, 10, 5, sparsity=0.3)
    assert ((x == 0).sum(0) == 3).all()
    x = filled(init.dirac_, 4, 2, 3, groups=2)
    assert x.sum() == 4
    assert (x[:, :, 1].reshape(2, 2, 2) == np.eye(2)).all()


def test_shapes_without_fans_are_errors() -> None:
    for function in (init.xavier_uniform_, init.kaiming_normal_):
        with pytest.raises(ValueError, match="fewer than 2 dimensions"):
            function(tracejit.zeros(3))
    with pytest.raises(ValueError, match="2 or more dimensions"):
        init.orthogonal_(tracejit.zeros(3))
    with pytest.raises(ValueError, match="Mode fan_average not supported"):
        init.kaiming_normal_(tracejit.zeros(3, 3), mode="fan_average")


def test_a_generator_of_ones_own_decides_the_numbers() -> None:
    def draw(seed: int) -> list[float]:
        return init.normal_(tracejit.empty(3), generator=tracejit.Generator().manual_seed(seed)).tolist()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
