"""Anomaly detection: a NaN or an error in the backward pass names the line of the forward pass."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import tracejit
from tracejit import autograd
from tracejit.core.interpreter import pushed_anywhere


def nan_at_zero(x: Any) -> Any:
    y = x.sqrt() * 0  # the line that is named
    return y.sum()


def test_a_nan_in_the_backward_pass_names_the_forward_line() -> None:
    x = tracejit.tensor([0.0, 4.0], requires_grad=True)
    with autograd.detect_anomaly():
        assert autograd.anomaly.is_anomaly_enabled()
        y = nan_at_zero(x)
        wanted = pytest.raises(RuntimeError, match="SqrtBackward0' returned nan values in its 0th output")
        with pytest.warns(UserWarning, match=r"x\.sqrt\(\) \* 0  # the line that is named"), wanted:
            y.backward()
    assert not autograd.anomaly.is_anomaly_enabled()
    nan_at_zero(x).backward()
    assert x.grad.isnan().tolist() == [True, False]


def test_nan_is_let_through_if_it_is_not_to_be_checked() -> None:
    x = tracejit.tensor([0.0, 4.0], requires_grad=True)
    with autograd.detect_anomaly(check_nan=False):
        nan_at_zero(x).backward()
    assert x.grad.isnan().tolist() == [True, False]


def test_errors_of_a_function_name_the_line_that_applied_it() -> None:
    class Fails(autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise ValueError("in backward")

    x = tracejit.ones(2, requires_grad=True)
    with autograd.detect_anomaly():
        y = Fails.apply(x).sum()
        with pytest.warns(UserWarning, match=r"y = Fails\.apply\(x\)\.sum\(\)"), pytest.raises(ValueError, match="in backward"):
            y.backward()


def test_nodes_made_before_have_no_line() -> None:
    x = tracejit.tensor([0.0], requires_grad=True)
    y = nan_at_zero(x)
    wanted = pytest.raises(RuntimeError, match="nan values")
    with autograd.set_detect_anomaly(True), pytest.warns(UserWarning, match="No forward pass information"), wanted:
        y.backward()


def test_the_switch_holds_until_it_is_turned_off() -> None:
    autograd.set_detect_anomaly(True)
    try:
        assert autograd.anomaly.is_anomaly_check_nan_enabled()
        with autograd.set_detect_anomaly(False):
            assert not autograd.anomaly.is_anomaly_enabled()
        assert autograd.anomaly.is_anomaly_enabled()
    finally:
        autograd.set_detect_anomaly(False)
    assert not autograd.anomaly.is_anomaly_enabled()


def test_results_are_the_same_ones() -> None:
    net = tracejit.nn.Sequential(tracejit.nn.Linear(3, 4), tracejit.nn.Tanh(), tracejit.nn.Linear(4, 1))
    x = tracejit.randn(5, 3)
    found = []
    for on in (False, True):
        net.zero_grad()
        with autograd.set_detect_anomaly(on):
            loss = (net(x) ** 2).mean()
            loss.backward()
            (first,) = autograd.grad((net(x) ** 2).mean(), net[0].weight, create_graph=True)
            first.sum().backward()
        found.append([loss.item(), *(p.grad.tolist() for p in net.parameters())])
    assert found[0] == found[1]


def test_compiled_functions_are_looked_into() -> None:
    compiled = tracejit.compile(nan_at_zero)
    for _ in range(3):
        compiled(tracejit.tensor([1.0], requires_grad=True)).backward()
    x = tracejit.tensor([0.0], requires_grad=True)
    with autograd.detect_anomaly():
        y = compiled(x)
        with pytest.warns(UserWarning, match="the line that is named"), pytest.raises(RuntimeError, match="nan values"):
            y.backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x).backward()

    @tracejit.compile
    def step(x: Any) -> Any:
        with autograd.detect_anomaly():
            y = nan_at_zero(x)
            y.backward()
        return y

    for _ in range(2):
        with pytest.warns(UserWarning, match="Error detected"), pytest.raises(RuntimeError, match="nan values"):
            step(x)


def test_detection_that_a_compiled_function_switches_on_stays_on() -> None:
    @tracejit.compile
    def function(x: Any) -> Any:
        autograd.set_detect_anomaly(True)
        return x * 2

    before = pushed_anywhere[0]
    try:
        for _ in range(3):
            assert function(tracejit.ones(2)).tolist() == [2.0, 2.0]
            assert autograd.anomaly.is_anomaly_enabled() and pushed_anywhere[0] == before + 1
            autograd.set_detect_anomaly(False)
            assert not autograd.anomaly.is_anomaly_enabled() and pushed_anywhere[0] == before
    finally:
        autograd.set_detect_anomaly(False)
