"""Bounds and constraints over parameters (tracejit/optimize/feasible.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint

import tracejit as T
from tracejit import nn
from tracejit.optimize import least_squares, minimize
from tracejit.optimize.feasible import limits
from tracejit.optimize.layout import Layout

PARAMS: Any = {"a": T.zeros(2, 2, dtype=T.float64), "b": [T.zeros((), dtype=T.float64), T.zeros(1, dtype=T.float32)]}
INF = np.inf

GIVEN: dict[str, tuple[Any, list[float], list[float]]] = {
    "one pair for all of a tensor": ({"a": (0, 1)}, [0, 0, 0, 0, -INF, -INF], [1, 1, 1, 1, INF, INF]),
    "a row for each row": ({"a": (T.tensor([0.0, -1.0]), None)}, [0, -1, 0, -1, -INF, -INF], [INF] * 6),
    "an array on one side": ({"a": (None, np.ones((2, 2)))}, [-INF] * 6, [1, 1, 1, 1, INF, INF]),
    "a pair for each element": (
        {"a": [(0, 1), (None, 2), (3, None), (None, None)]},
        [0, -INF, 3, -INF, -INF, -INF],
        [1, 2, INF, INF, INF, INF],
    ),
    "inner structures": ({"b": [(0, 5), None]}, [-INF] * 4 + [0, -INF], [INF] * 4 + [5, INF]),
    "the vector": (Bounds(-1, [1, 2, 3, 4, 5, 6]), [-1] * 6, [1, 2, 3, 4, 5, 6]),
}


@pytest.mark.parametrize("case", GIVEN)
def test_bounds_are_those_of_the_elements(case: str) -> None:
    bounds, low, high = GIVEN[case]
    found = limits(bounds, PARAMS, Layout(PARAMS, "test"), "test")
    assert found is not None and found[0].tolist() == low and found[1].tolist() == high


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "an unknown key": ({"c": (0, 1)}, ValueError, r"test\(\): bounds has the key 'c'.*\['a', 'b'\]"),
    "no dictionary": ([(0, 1)], TypeError, "expected bounds to be a dictionary as params are, got list"),
    "another length": ({"b": [(0, 1)]}, TypeError, r"expected bounds\['b'\] to be a list of 2 bounds"),
    "a number": ({"a": 0}, TypeError, r"expected bounds\['a'\] to be a tuple \(lower, upper\)"),
    "pairs in a tuple": ({"a": ((0, 1), (2, 3))}, TypeError, "a pair for each element is a list of tuples"),
    "too few pairs": ({"a": [(0, 1)]}, ValueError, r"bounds\['a'\] has 1 pairs for 4 elements of shape \(2, 2\)"),
    "another shape": ({"a": (np.zeros(3), None)}, ValueError, r"of shape \(3,\) in bounds\['a'\] does not fit shape \(2, 2\)"),
    "the wrong order": ({"b": [None, (2, 1)]}, ValueError, r"lower bound 2.0 for params\['b'\]\[1\] is above"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_bounds_that_do_not_fit_are_named(case: str) -> None:
    bounds, kind, message = WRONG[case]
    with pytest.raises(kind, match=message):
        limits(bounds, PARAMS, Layout(PARAMS, "test"), "test")


@pytest.mark.parametrize("method", [None, "L-BFGS-B", "TNC", "SLSQP", "trust-constr", "Nelder-Mead"])
def test_a_minimum_beyond_a_bound_lies_on_it(method: str | None) -> None:
    start = {"x": T.zeros(2, dtype=T.float64), "y": T.full((), 9.0, dtype=T.float64)}
    f = lambda p: ((p["x"] - 2) ** 2).sum() + (p["y"] - 1) ** 2
    found = minimize(f, start, method, bounds={"x": (None, T.tensor([1.0, 5.0])), "y": (3, 4)})
    assert np.allclose(found.x["x"].numpy(), [1, 2], atol=1e-3) and found.x["y"].item() == pytest.approx(3, abs=1e-3)


def test_bounds_of_a_module_are_named_as_its_parameters() -> None:
    model = nn.Linear(2, 1).double()
    minimize(lambda m: (m(T.ones(1, 2, dtype=T.float64)) - 9).square().sum(), model, bounds={"weight": (0, 1), "bias": (0, None)})
    assert (model.weight <= 1).all() and model.bias.item() == pytest.approx(9 - model.weight.sum().item(), abs=1e-4)


def test_least_squares_keeps_bounds() -> None:
    found = least_squares(lambda p: p["x"] - 2, {"x": T.zeros(2, dtype=T.float64)}, bounds={"x": [(None, 1), (None, None)]})
    assert np.allclose(found.x["x"].numpy(), [1, 2], atol=1e-6)


def distance(p: Any) -> Any:
    return ((p["x"] - 3) ** 2).sum()


ON_CIRCLE: dict[str, Any] = {
    "a dictionary": {"type": "eq", "fun": lambda p: (p["x"] ** 2).sum() - 2},
    "with arguments": [{"type": "ineq", "fun": lambda p, r: r - (p["x"] ** 2).sum(), "args": (2.0,)}],
    "nonlinear": NonlinearConstraint(lambda p: (p["x"] ** 2).sum(), -np.inf, 2),
    "linear": LinearConstraint([[1, 1]], -np.inf, 2),
}


@pytest.mark.parametrize("case", ON_CIRCLE)
@pytest.mark.parametrize("method", [None, "trust-constr"])
def test_constraints_take_parameters_in_their_structure(case: str, method: str | None) -> None:
    found = minimize(distance, {"x": T.tensor([0.5, 0.25], dtype=T.float64)}, method, constraints=ON_CIRCLE[case])
    assert found.success and np.allclose(found.x["x"].numpy(), 1, atol=1e-3)


def test_constraints_that_are_none_are_named() -> None:
    start = {"x": T.ones(2, dtype=T.float64)}
    with pytest.raises(TypeError, match=r"constraint 0: expected a scipy\.optimize\.NonlinearConstraint"):
        minimize(distance, start, constraints=[lambda p: p["x"]])
    with pytest.raises(
        ValueError, match=r"constraint 0 is not finite at the first point: 1 of 2 numbers, the first is number 0 \(nan\)"
    ):
        minimize(distance, start, constraints={"type": "ineq", "fun": lambda p: T.log(p["x"] - T.tensor([2.0, 0.0]))})
