"""Unique elements, counts, histograms, differences, covariances, special functions and samplers: torch's answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit

X = np.random.default_rng(0).normal(size=(3, 7))
WHOLE = np.random.default_rng(1).integers(0, 4, (3, 5))
COUNTS, WEIGHTS = np.array([1, 2, 0, 3, 1, 1, 2]), np.abs(X[0])
CALLS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "unique": (lambda lib, x: lib.unique(x, return_inverse=True, return_counts=True), (WHOLE,)),
    "unique_alone": (lambda lib, x: x.unique(), (X,)),
    "unique_rows": (lambda lib, x: lib.unique(x, dim=0, return_inverse=True, return_counts=True), (WHOLE % 2,)),
    "unique_columns": (lambda lib, x: lib.unique(x, dim=1, return_inverse=True), (WHOLE % 2,)),
    "unique_empty": (lambda lib, x: lib.unique(x, return_inverse=True, return_counts=True), (np.zeros(0),)),
    "unique_nan": (lambda lib, x: lib.unique(x, return_counts=True), (np.array([1.0, np.nan, np.nan, 1.0]),)),
    "unique_consecutive": (lambda lib, x: lib.unique_consecutive(x, return_inverse=True, return_counts=True), (WHOLE,)),
    "diff": (lambda lib, x: lib.diff(x, n=2, dim=0), (X,)),
    "diff_ends": (lambda lib, x: x.diff(prepend=x[:, :1], append=x[:, :2]), (X,)),
    "diff_bool": (lambda lib, x: lib.diff(x > 0), (X,)),
    "trapezoid": (lambda lib, x, y: lib.trapezoid(x, y), (X, X[0])),
    "trapezoid_dx": (lambda lib, x: lib.trapz(x, dx=0.5, dim=0), (X,)),
    "cumulative": (lambda lib, x, y: lib.cumulative_trapezoid(x, y), (X, X[0])),
    "cov": (lambda lib, x: lib.cov(x), (X,)),
    "cov_weighted": (lambda lib, x, f, a: lib.cov(x, fweights=f, aweights=a), (X, COUNTS, WEIGHTS)),
    "cov_uncorrected": (lambda lib, x, a: lib.cov(x, aweights=a, correction=0), (X, WEIGHTS)),
    "corrcoef": (lambda lib, x: lib.corrcoef(x), (X,)),
    "bincount": (lambda lib, x: lib.bincount(x.reshape(-1), minlength=9), (WHOLE,)),
    "bincount_weights": (lambda lib, x, w: lib.bincount(x.reshape(-1)[:7], w), (WHOLE, WEIGHTS)),
    "histc": (lambda lib, x: lib.histc(x, 10), (X,)),
    "histc_range": (lambda lib, x: x.histc(4, -1, 1), (X,)),
    "histogram": (lambda lib, x: lib.histogram(x, 5, range=(-1.0, 1.0), density=True), (X,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    call, arrays = CALLS[name]
    results = [call(library, *(library.tensor(a) for a in arrays)) for library in (tracejit, torch)]
    ours, theirs = (r if isinstance(r, tuple) else (r,) for r in results)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.numpy().shape, a.numpy().dtype) == (b.numpy().shape, b.numpy().dtype)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-12)


SPECIAL = {
    "i0": (-3, 3), "i0e": (-3, 3), "i1": (-3, 3), "i1e": (-3, 3), "erfcx": (-2, 2), "ndtri": (0.01, 0.99), "log_ndtr": (-5, 3),
    "ndtr": (-3, 3), "entr": (0.1, 3), "expit": (-2, 2), "gammaln": (0.1, 3), "psi": (0.1, 3),
    "expm1": (-1, 1), "log1p": (-0.5, 1), "sinc": (-2, 2),
    "erf": (-2, 2), "erfinv": (-0.9, 0.9), "logit": (0.1, 0.9), "exp2": (-2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_and_their_derivatives_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    array = np.random.default_rng(2).uniform(*SPECIAL[name], 9)
    found = []
    for library in (tracejit, torch):
        x = library.tensor(array, requires_grad=True)
        out = getattr(library.special, name)(x)
        out.sum().backward()
        found.append((out.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)


def test_xlogy_has_the_derivative_of_its_first_argument_at_zero() -> None:
    torch = pytest.importorskip("torch")
    for name in ("xlogy", "xlog1py"):
        found = []
        for library in (tracejit, torch):
            x = library.tensor([0.0, 0.0, 2.0, 0.0], requires_grad=True)
            y = library.tensor([0.5, 1.0, 3.0, 2.0], requires_grad=True)
            out = getattr(library.special, name)(x, y)
            out.sum().backward()
            found.append([out.tolist(), x.grad.tolist(), y.grad.tolist()])
        np.testing.assert_allclose(*found, rtol=1e-6)


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(RuntimeError, match="1-d non-negative"):
        tracejit.bincount(tracejit.tensor([-1]))
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        tracejit.histc(tracejit.ones(3), 0)
    with pytest.raises(RuntimeError, match="order must be non-negative"):
        tracejit.diff(tracejit.ones(3), n=-1)
    for weights, message in (
        ([-1.0, 1.0], "element < 0"), ([float("nan"), 1.0], "element < 0"), ([0.0, 0.0], "sum of probabilities <= 0"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=message):
            tracejit.multinomial(tracejit.tensor(weights), 1, replacement=True)
    with pytest.raises(RuntimeError, match="not enough non-negative category"):
        tracejit.multinomial(tracejit.tensor([1.0, 0.0]), 2)
    with pytest.raises(RuntimeError, match="without replacement"):
        tracejit.multinomial(tracejit.ones(2), 3)
    with pytest.raises(RuntimeError, match="p to be in"):
        tracejit.ones(2).geometric_(1.5)
    with pytest.raises(RuntimeError, match="sigma > 0"):
        tracejit.ones(2).cauchy_(0.0, -1.0)


def test_draws_have_the_right_shares() -> None:
    tracejit.manual_seed(1)
    weights = tracejit.tensor([0.0, 1.0, 2.0, 0.0, 7.0, 0.0])
    drawn = np.bincount(tracejit.multinomial(weights, 20000, True).numpy(), minlength=6) / 20000
    np.testing.assert_allclose(drawn, weights.numpy() / 10, atol=0.015)
    pairs = np.array([weights.multinomial(2).tolist() for _ in range(300)])
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert set(pairs.ravel()) == {1, 2, 4}
    rows = tracejit.multinomial(tracejit.tensor([[1.0, 2.0], [0.0, 1.0]]), 5, True)
    assert rows.shape == (2, 5)
    assert rows[1].tolist() == [1] * 5
    assert tracejit.empty(20000, dtype=tracejit.int64).geometric_(0.3).float().mean().item() == pytest.approx(1 / 0.3, rel=0.05)
    assert tracejit.empty(20000).log_normal_(0.5, 0.25).log().mean().item() == pytest.approx(0.5, abs=0.02)
    assert tracejit.empty(20000).cauchy_(2.0, 0.5).median().item() == pytest.approx(2.0, abs=0.05)


def test_draws_are_the_same_in_a_compiled_function() -> None:
    def draw(weights: Any) -> Any:
        return tracejit.multinomial(weights, 2), tracejit.multinomial(weights, 3, replacement=True), tracejit.empty(3).cauchy_()

    runs = []
    for function in (draw, tracejit.compile(draw)):
        tracejit.manual_seed(3)
        runs.append([[t.tolist() for t in function(tracejit.tensor([1.0, 2.0, 0.5]))] for _ in range(4)])
    for eager, compiled in zip(*runs, strict=True):
        assert compiled[:2] == eager[:2]
        np.testing.assert_allclose(compiled[2], eager[2], rtol=1e-5)  # tan() of a draw, of two libraries
