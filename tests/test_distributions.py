"""Distributions: densities, entropies and divergences are torch's; draws have the right moments, and the right gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit import distributions

MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])
# name, arguments, values
CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("Normal", {"loc": [0.0, 1.0], "scale": [1.0, 2.5]}, [0.3, -2.0]),
    ("Uniform", {"low": [0.0, -1.0], "high": [2.0, 1.5]}, [0.3, 1.0]),
    ("Exponential", {"rate": [0.5, 3.0]}, [0.3, 2.0]),
    ("Laplace", {"loc": [0.0, 1.0], "scale": [1.0, 2.5]}, [0.3, -2.0]),
    ("Gamma", {"concentration": [0.5, 3.0], "rate": [2.0, 0.7]}, [0.3, 2.0]),
    ("Chi2", {"df": [1.5, 4.0]}, [0.3, 2.0]),
    ("Beta", {"concentration1": [0.5, 3.0], "concentration0": [2.0, 0.7]}, [0.3, 0.9]),
    ("Dirichlet", {"concentration": [0.5, 3.0, 1.0]}, [0.2, 0.5, 0.3]),
    ("Bernoulli", {"probs": [0.2, 0.9]}, [1.0, 0.0]),
    ("Bernoulli", {"logits": [-1.0, 3.0]}, [1.0, 0.0]),
    ("Categorical", {"probs": [[0.2, 0.3, 0.5], [1.0, 1.0, 2.0]]}, [2, 0]),
    ("Categorical", {"logits": [0.2, -1.0, 2.0]}, 1),
    ("OneHotCategorical", {"probs": [0.2, 0.3, 0.5]}, [0.0, 1.0, 0.0]),
    ("Poisson", {"rate": [0.5, 30.0]}, [2.0, 28.0]),
    ("Geometric", {"probs": [0.2, 0.9]}, [3.0, 0.0]),
    ("Binomial", {"total_count": [5.0, 10.0], "probs": [0.3, 0.8]}, [2.0, 9.0]),
    ("MultivariateNormal", {"loc": [1.0, -1.0], "covariance_matrix": MATRIX.tolist()}, [0.5, 0.5]),
    ("MultivariateNormal", {"loc": [1.0, -1.0], "precision_matrix": MATRIX.tolist()}, [0.5, 0.5]),
    ("MultivariateNormal", {"loc": [[1.0, -1.0], [0.0, 0.0]], "scale_tril": [[1.0, 0.0], [0.5, 2.0]]}, [0.5, 0.5]),
]
IDS = [f"{name}-{'-'.join(options)}" for name, options, _ in CASES]
MEASURES = ["mean", "variance", "stddev", "mode"]


def made(library: Any, name: str, options: dict[str, Any], requires_grad: bool = False) -> tuple[Any, list[Any]]:
    parameters = {
        key: library.tensor(np.array(value), requires_grad=requires_grad and key != "total_count")
        for key, value in options.items()
    }
    return getattr(library.distributions, name)(**parameters), list(parameters.values())


@pytest.mark.parametrize(("name", "options", "value"), CASES, ids=IDS)
def test_distributions_agree_with_torch(name: str, options: dict[str, Any], value: Any) -> None:
    torch = pytest.importorskip("torch")
    results = []
    for library in (tracejit, torch):
        distribution, parameters = made(library, name, options, requires_grad=True)
        at = library.tensor(np.array(value))
        found = [distribution.log_prob(at)]
        if name not in ("Poisson", "Binomial"):
            found.append(distribution.entropy())
        if name in ("Normal", "Uniform", "Exponential", "Laplace"):
            found.append(distribution.cdf(at))
        if name in ("Normal", "Uniform", "Exponential", "Laplace"):
            found.append(distribution.icdf(library.tensor(np.array([0.2, 0.7]))))
        sum(f.sum() for f in found).backward()
        measures = [getattr(distribution, m) for m in MEASURES if not (name == "Uniform" and m == "mode")]
        if distribution.has_enumerate_support and name in ("Bernoulli", "Categorical"):
            measures.append(distribution.enumerate_support())
        expanded = distribution.expand((3, *distribution.batch_shape))
        measures.append(expanded.log_prob(at))
        results.append((found + measures, [p.grad for p in parameters if p.requires_grad], distribution, expanded))
    (ours, our_gradients, mine, mine_expanded), (theirs, their_gradients, other, other_expanded) = results
    for a, b in zip(ours, theirs, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6, atol=1e-9)
    for a, b in zip(our_gradients, their_gradients, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-8)
    assert tuple(mine.batch_shape) == tuple(other.batch_shape)
    assert tuple(mine.event_shape) == tuple(other.event_shape)
    assert tuple(mine_expanded.batch_shape) == tuple(other_expanded.batch_shape)
    assert mine.has_rsample == other.has_rsample


@pytest.mark.parametrize(("name", "options", "value"), CASES, ids=IDS)
def test_draws_have_the_right_moments(name: str, options: dict[str, Any], value: Any) -> None:
    tracejit.manual_seed(11)
    distribution, _ = made(tracejit, name, options)
    drawn = distribution.sample((8000,))
    assert tuple(drawn.shape) == (8000, *distribution.batch_shape, *distribution.event_shape)
    assert not drawn.requires_grad
    assert distribution.log_prob(drawn).isfinite().all()
    if name == "Categorical":
        shares = np.stack([(drawn.numpy() == k).mean(0) for k in range(3)], -1)
        np.testing.assert_allclose(shares, distribution.probs.numpy(), atol=0.03)
        return
    deviation = distribution.stddev.numpy()
    np.testing.assert_allclose(drawn.numpy().mean(0), distribution.mean.numpy(), atol=5 * deviation.max() / np.sqrt(8000))
    np.testing.assert_allclose(drawn.numpy().std(0), deviation, rtol=0.12)


REPARAMETERISED = [case for case in CASES if case[0] in (
    "Normal", "Uniform", "Exponential", "Laplace", "Gamma", "Chi2", "Beta", "Dirichlet", "MultivariateNormal"
)]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "value"), REPARAMETERISED, ids=[f"{c[0]}-{'-'.join(c[1])}" for c in REPARAMETERISED])
def test_gradients_pass_through_draws(name: str, options: dict[str, Any], value: Any) -> None:
    """The same seed with parameters moved a little gives the derivative of each draw."""

    def drawn(moved: dict[str, np.ndarray]) -> Any:
        tracejit.manual_seed(3)
        parameters = {key: tracejit.tensor(v, requires_grad=True) for key, v in moved.items()}
        return getattr(distributions, name)(**parameters, validate_args=False).rsample((5,)), parameters

    base = {key: np.array(v) for key, v in options.items()}
    weights = np.random.default_rng(0).normal(size=tuple(drawn(base)[0].shape))
    sample, parameters = drawn(base)
    (sample * tracejit.tensor(weights)).sum().backward()
    for key, array in base.items():
        if key in ("covariance_matrix", "precision_matrix"):
            continue  # symmetric: one element cannot be moved alone
        gradient = parameters[key].grad.numpy()
        for place in np.ndindex(array.shape):
            if key == "scale_tril" and place[0] < place[1]:
                continue
            step = 1e-5
            ends = []
            for sign in (1, -1):
                moved = {k: v.copy() for k, v in base.items()}
                moved[key][place] += sign * step
                ends.append((drawn(moved)[0].detach().numpy() * weights).sum())
            assert gradient[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=2e-4, abs=1e-6)


def test_draws_follow_the_seed_and_the_dtype() -> None:
    for dtype in (tracejit.float32, tracejit.float64):
        tracejit.manual_seed(0)
        first = distributions.Gamma(tracejit.tensor(2.0, dtype=dtype), 1.0).sample((3,))
        tracejit.manual_seed(0)
        again = distributions.Gamma(tracejit.tensor(2.0, dtype=dtype), 1.0).sample((3,))
        assert first.tolist() == again.tolist()
        assert first.dtype is dtype


PAIRS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Normal", {"loc": [0.0, 1.0], "scale": [1.0, 2.5]}, {"loc": [1.0, 1.0], "scale": [2.0, 0.5]}),
    ("Bernoulli", {"probs": [0.2, 0.0]}, {"probs": [0.5, 0.7]}),
    ("Categorical", {"probs": [0.2, 0.3, 0.5]}, {"logits": [0.1, 0.5, -1.0]}),
    ("OneHotCategorical", {"probs": [0.2, 0.3, 0.5]}, {"logits": [0.1, 0.5, -1.0]}),
    ("Uniform", {"low": [0.0, 0.5], "high": [1.0, 2.0]}, {"low": [-1.0, 1.0], "high": [3.0, 3.0]}),
    ("Exponential", {"rate": [0.5, 2.0]}, {"rate": [1.5, 1.0]}),
    ("Laplace", {"loc": [0.0, 1.0], "scale": [1.0, 2.5]}, {"loc": [1.0, 1.0], "scale": [2.0, 0.5]}),
    ("Gamma", {"concentration": [0.5, 2.0], "rate": [1.0, 3.0]}, {"concentration": [1.5, 1.0], "rate": [2.0, 0.5]}),
    ("Beta", {"concentration1": [0.5, 2.0], "concentration0": [1.0, 3.0]}, {"concentration1": [1.5, 1.0], "concentration0": [2.0, 0.5]}),
    ("Dirichlet", {"concentration": [0.5, 2.0, 1.0]}, {"concentration": [1.5, 1.0, 3.0]}),
    ("Poisson", {"rate": [0.5, 2.0]}, {"rate": [1.5, 1.0]}),
    ("Geometric", {"probs": [0.2, 0.4]}, {"probs": [0.5, 0.7]}),
    ("MultivariateNormal", {"loc": [1.0, -1.0], "covariance_matrix": MATRIX.tolist()},
     {"loc": [0.0, 0.5], "scale_tril": [[1.0, 0.0], [0.3, 2.0]]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "first", "second"), PAIRS, ids=[p[0] for p in PAIRS])
def test_divergences_agree_with_torch(name: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for library in (tracejit, torch):
        p, q = made(library, name, first)[0], made(library, name, second)[0]
        found.append(library.distributions.kl_divergence(p, q))
    np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), rtol=1e-6, atol=1e-9)
    assert tuple(found[0].shape) == tuple(found[1].shape)


def test_independent_dimensions_are_one_event() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for library in (tracejit, torch):
        d = library.distributions
        base = d.Normal(library.zeros(3, 4), library.ones(3, 4) * 2)
        p = d.Independent(base, 1)
        q = d.Independent(d.Normal(library.ones(3, 4), library.ones(3, 4)), 1)
        x = library.arange(12.0).reshape(3, 4)
        found.append([p.log_prob(x), p.entropy(), d.kl_divergence(p, q), p.mean, p.expand((2, 3)).log_prob(x)])
        assert (tuple(p.batch_shape), tuple(p.event_shape)) == ((3,), (4,))
        assert p.rsample((5,)).shape == (5, 3, 4)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


def test_wrong_parameters_and_values_are_errors() -> None:
    with pytest.raises(ValueError, match="Expected parameter scale"):
        distributions.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match="not defined when low>= high"):
        distributions.Uniform(1.0, 1.0)
    with pytest.raises(ValueError, match="either `probs` or `logits`"):
        distributions.Bernoulli()
    with pytest.raises(ValueError, match="within the support"):
        distributions.Exponential(1.0).log_prob(tracejit.tensor(-1.0))
    with pytest.raises(ValueError, match="within the support"):
        distributions.Categorical(tracejit.ones(3)).log_prob(tracejit.tensor(3))
    with pytest.raises(ValueError, match="positive_definite"):
        distributions.MultivariateNormal(tracejit.zeros(2), tracejit.tensor([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(NotImplementedError, match=r"No KL\(p \|\| q\)"):
        distributions.kl_divergence(distributions.Normal(0.0, 1.0), distributions.Exponential(1.0))
    with pytest.raises(NotImplementedError, match="no derivative"):
        distributions.Bernoulli(0.5).rsample()
    assert distributions.Normal(0.0, -1.0, validate_args=False).loc.item() == 0.0


def test_a_policy_gradient_reaches_the_logits() -> None:
    tracejit.manual_seed(0)
    logits = tracejit.zeros(4, 3, requires_grad=True)
    choice = distributions.Categorical(logits=logits)
    action = choice.sample()
    assert action.shape == (4,)
    (-choice.log_prob(action)).sum().backward()
    expected = np.full((4, 3), 1 / 3)
    expected[np.arange(4), action.numpy()] -= 1
    np.testing.assert_allclose(logits.grad.numpy(), expected, atol=1e-6)


def test_distributions_stand_where_torch_has_them_and_print() -> None:
    from tracejit.distributions.categorical import Categorical
    from tracejit.distributions.normal import Normal

    assert Categorical is distributions.Categorical
    assert repr(Normal(0.0, tracejit.ones(2))) == "Normal(loc: tracejit.Size([2]), scale: tracejit.Size([2]))"
