"""What a user may rely on, as functions of a compiler: true of `tracejit.compile`, and false of the two fakes of fakes.py.

Each check compares with the same source run eagerly, over fresh inputs and at least one replay.  Statistics are not believed: that a
call was replayed is witnessed by the interpreter's profile hook, which sees whether any Python of the user's function ran.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import numpy as np
import pytest
from fakes import always_eager, garbage_replays

import tracejit
from tracejit import nn, optim
from tracejit.capture.session import record

Compile = Callable[[Any], Any]
Check = Callable[[Compile], None]

CHECKS: list[Check] = []
RECORD = record.__code__


def acceptance(check: Check) -> Check:
    CHECKS.append(check)
    return check


def identity(function: Any) -> Any:
    return function


# -- the means ------------------------------------------------------------------------------------------------------------------


def fresh(*shape: int, seed: int = 0, requires_grad: bool = False) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return tracejit.tensor(values).requires_grad_(requires_grad)


def arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, tuple | list):
        return [array for item in value for array in arrays(item)]
    assert isinstance(value, tracejit.Tensor), f"expected a tensor, got {value!r}"
    return [value.detach().numpy().copy()]


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    found, wanted = arrays(actual), arrays(expected)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@contextmanager
def no_python_of(*names: str) -> Iterator[None]:
    """Assert that no function of this file called one of `names` is entered: the calls inside are replays.

    A recording has a profile hook of its own, under which this one is blind; so that a recording begins is noted as well."""
    entered: list[str] = []

    def witness(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and ((code.co_filename == __file__ and code.co_name in names) or code is RECORD):
            entered.append(code.co_name)

    before = sys.getprofile()
    sys.setprofile(witness)
    try:
        yield
    finally:
        sys.setprofile(before)
    assert not entered, f"the Python of {entered[0]} ran {len(entered)} times where a replay was expected"


def warmed(call: Callable[[int], Any], count: int = 2) -> None:
    """Calls that may record."""
    for i in range(count):
        call(i)


# -- pure functions ---------------------------------------------------------------------------------------------------------------


def normalised(x: Any, scale: Any) -> Any:
    y = x - x.mean(1, keepdim=True)
    return tracejit.tanh(y / tracejit.sqrt((y * y).mean(1, keepdim=True) + 1e-5)) * scale


@acceptance
def a_pure_function_is_replayed_on_new_numbers(compile: Compile) -> None:
    compiled = compile(normalised)
    for seed in range(2):
        compiled(fresh(4, 7, seed=seed), fresh(7, seed=9))
    x, scale = fresh(4, 7, seed=5), fresh(7, seed=6)
    with no_python_of("normalised"):
        result = compiled(x, scale)
    assert_same(result, normalised(x, scale))


@acceptance
def results_of_successive_calls_do_not_share_memory(compile: Compile) -> None:
    compiled = compile(normalised)
    scale = fresh(7, seed=9)
    warmed(lambda i: compiled(fresh(4, 7, seed=i), scale))
    with no_python_of("normalised"):
        first = compiled(fresh(4, 7, seed=3), scale)
        second = compiled(fresh(4, 7, seed=4), scale)
    assert_same((first, second), (normalised(fresh(4, 7, seed=3), scale), normalised(fresh(4, 7, seed=4), scale)))


def view_of(x: Any) -> Any:
    return (x * 2 + 1).sum(0), x.reshape(-1)


@acceptance
def an_output_that_is_a_view_of_an_input_shares_its_memory(compile: Compile) -> None:
    compiled = compile(view_of)
    warmed(lambda i: compiled(fresh(3, 4, seed=i)))
    x = fresh(3, 4, seed=8)
    with no_python_of("view_of"):
        total, flat = compiled(x)
    assert_same((total, flat), view_of(x))
    x[0, 0] = 100.0
    assert flat[0].item() == 100.0


def scaled(x: Any, factor: float) -> Any:
    return tracejit.exp(-x * x) * factor


@acceptance
def a_changing_python_number_is_an_operand(compile: Compile) -> None:
    compiled = compile(scaled)
    warmed(lambda i: compiled(fresh(5), 0.5 + i))
    with no_python_of("scaled"):
        results = [compiled(fresh(5), factor) for factor in (2.5, -0.0, 1e-3)]
    assert_same(results, [scaled(fresh(5), factor) for factor in (2.5, -0.0, 1e-3)])


OFFSET = 1.0


def with_global(x: Any) -> Any:
    return x * OFFSET + 1 if OFFSET > 0 else x - OFFSET


@acceptance
def a_changed_global_is_noticed_and_its_old_value_still_replays(compile: Compile) -> None:
    def at(offset: float) -> Any:
        globals()["OFFSET"] = offset
        return compiled(fresh(5))

    compiled = compile(with_global)
    try:
        warmed(lambda i: at(1.0))
        warmed(lambda i: at(-3.0))
        with no_python_of("with_global"):
            results = [at(1.0), at(-3.0)]
        expected = []
        for offset in (1.0, -3.0):
            globals()["OFFSET"] = offset
            expected.append(with_global(fresh(5)))
    finally:
        globals()["OFFSET"] = 1.0
    assert_same(results, expected)


def recurrent(x: Any, w: Any) -> Any:
    h = tracejit.zeros(1, 3)
    for t in range(x.shape[0]):
        h = tracejit.tanh(x[t] @ w + h @ w)
    return h


@acceptance
def a_python_loop_over_time_is_replayed(compile: Compile) -> None:
    compiled = compile(recurrent)
    w = fresh(3, 3, seed=1)
    warmed(lambda i: compiled(fresh(4, 1, 3, seed=i), w))
    x = fresh(4, 1, 3, seed=7)
    with no_python_of("recurrent"):
        result = compiled(x, w)
    assert_same(result, recurrent(x, w))


# -- branches ---------------------------------------------------------------------------------------------------------------------


def branching(x: Any) -> Any:
    if x.sum() > 0:
        return x * 2
    return tracejit.exp(x) - 1


@acceptance
def both_paths_of_a_branch_on_a_tensor_are_replayed(compile: Compile) -> None:
    compiled = compile(branching)
    inputs = [tracejit.ones(4) * s for s in (1.0, -1.0)]
    for _ in range(3):
        for x in inputs:
            compiled(x)
    inputs = [tracejit.ones(4) * s for s in (3.0, -2.0, 0.5, -0.5)]
    with no_python_of("branching"):
        results = [compiled(x) for x in inputs]
    assert_same(results, [branching(x) for x in inputs])


# -- gradients --------------------------------------------------------------------------------------------------------------------


@acceptance
def gradients_reach_inputs_and_closed_over_tensors(compile: Compile) -> None:
    def run(transform: Compile, replayed: bool) -> list[Any]:
        w = fresh(3, 2, seed=4, requires_grad=True)

        @transform
        def layer(x: Any) -> Any:
            return tracejit.tanh(x @ w)

        results = []
        for seed in range(4):
            x = fresh(5, 3, seed=seed, requires_grad=True)
            w.grad = None
            with no_python_of("layer") if replayed and seed >= 2 else nullcontext():
                y = layer(x)
            (y * y).sum().backward()
            assert x.grad is not None, "no gradient reached the input"
            assert w.grad is not None, "no gradient reached the closed-over tensor"
            results += [y, x.grad, w.grad]
        return results

    assert_same(run(compile, True), run(identity, False))


@acceptance
def a_gradient_taken_inside_is_part_of_the_program(compile: Compile) -> None:
    def value_and_gradient(x: Any) -> Any:
        value = (tracejit.sin(x) * x).sum()
        (gradient,) = tracejit.autograd.grad(value, x)
        return value.detach(), gradient

    compiled = compile(value_and_gradient)
    warmed(lambda i: compiled(fresh(6, seed=i, requires_grad=True)))
    x = fresh(6, seed=5, requires_grad=True)
    with no_python_of("value_and_gradient"):
        result = compiled(x)
    assert_same(result, value_and_gradient(x))
    assert x.grad is None


def energy(x: Any, w: Any) -> Any:
    return (tracejit.tanh(x @ w) ** 2).sum()


@acceptance
def two_forwards_may_come_before_one_backward(compile: Compile) -> None:
    compiled = compile(energy)

    def gradients(function: Any, watch_forward: bool) -> list[Any]:
        w = fresh(3, 2, seed=1, requires_grad=True)
        first, second = fresh(4, 3, seed=2), fresh(4, 3, seed=3)
        with no_python_of("energy") if watch_forward else nullcontext():
            a, b = function(first, w), function(second, w)
        (a * 3 + b).backward()
        assert w.grad is not None, "a gradient is missing"
        return [a, b, w.grad]

    compiled(fresh(4, 3), fresh(3, 2, requires_grad=True)).backward()
    compiled(fresh(4, 3), fresh(3, 2, requires_grad=True)).backward()
    assert_same(gradients(compiled, True), gradients(energy, False))


# -- effects ----------------------------------------------------------------------------------------------------------------------


@acceptance
def in_place_changes_of_outside_tensors_are_committed(compile: Compile) -> None:
    def run(transform: Compile, replayed: bool) -> Any:
        running = tracejit.zeros(3)

        @transform
        def track(x: Any) -> Any:
            running.mul_(0.9).add_(x.mean(0) * 0.1)
            return x - running

        results = []
        for seed in range(5):
            with no_python_of("track") if replayed and seed >= 2 else nullcontext():
                results.append(track(fresh(4, 3, seed=seed)))
            results.append(running.clone())
        return results

    assert_same(run(compile, True), run(identity, False))


@acceptance
def gradients_accumulate_over_replays(compile: Compile) -> None:
    def run(transform: Compile, replayed: bool) -> Any:
        w = fresh(3, seed=1, requires_grad=True)

        @transform
        def micro_step(x: Any) -> Any:
            loss = tracejit.tanh(x * w).mean()
            loss.backward()
            return loss.detach()

        losses = []
        for seed in range(6):
            # The first call finds no gradient, the second finds one: two paths.
            with no_python_of("micro_step") if replayed and seed >= 3 else nullcontext():
                losses.append(micro_step(fresh(4, 3, seed=seed)))
        return [*losses, w.grad]

    assert_same(run(compile, True), run(identity, False))


# -- modules and training -----------------------------------------------------------------------------------------------------------


class Network(nn.Module):
    """Two layers; the method to compile is `forward` itself or `loss`."""

    def __init__(self) -> None:
        super().__init__()
        tracejit.manual_seed(3)
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.second(tracejit.tanh(self.first(x)))

    def mean_square(self, x: Any) -> Any:
        y = self.forward(x)
        return (y * y).mean()


@acceptance
def a_module_is_replayed_and_follows_its_parameters(compile: Compile) -> None:
    model = Network()
    compiled = compile(model)
    warmed(lambda i: compiled(fresh(2, 6, seed=i)))
    with tracejit.no_grad():
        model.first.weight.mul_(1.5)
    x = fresh(2, 6, seed=4)
    with no_python_of("forward"):
        result = compiled(x)
    assert_same(result, model(x))


@acceptance
def a_method_is_replayed(compile: Compile) -> None:
    model = Network()
    compiled = compile(model.mean_square)
    warmed(lambda i: compiled(fresh(2, 6, seed=i)))
    x = fresh(2, 6, seed=4)
    with no_python_of("mean_square", "forward"):
        result = compiled(x)
    assert_same(result, model.mean_square(x))


def trained(transform: Compile, make_optimizer: Callable[[Any], Any], rate: Callable[[int], float] | None, replayed: bool) -> Any:
    """Losses and parameters of ten steps of training; steps from the fourth on must be replays."""
    model = Network()
    optimizer = make_optimizer(model.parameters())
    criterion = nn.CrossEntropyLoss()

    @transform
    def training_step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for i in range(10):
        x, y = fresh(5, 6, seed=i), tracejit.tensor(np.random.default_rng(i).integers(0, 3, 5))
        if rate is not None:
            optimizer.param_groups[0]["lr"] = rate(i)
        with no_python_of("training_step", "forward") if replayed and i >= 4 else nullcontext():
            losses.append(training_step(x, y))
    return [*losses, *model.parameters()]


@acceptance
def a_whole_training_step_is_replayed(compile: Compile) -> None:
    def momentum(parameters: Any) -> Any:
        return optim.SGD(parameters, lr=0.1, momentum=0.9)

    assert_same(trained(compile, momentum, None, True), trained(identity, momentum, None, False), 1e-4)


@acceptance
def adam_with_a_changing_learning_rate_is_replayed(compile: Compile) -> None:
    def adam(parameters: Any) -> Any:
        return optim.Adam(parameters, lr=0.01)

    def rate(i: int) -> float:
        return 0.01 / (1 + i)

    assert_same(trained(compile, adam, rate, True), trained(identity, adam, rate, False), 1e-4)


# -- the tests --------------------------------------------------------------------------------------------------------------------

names = [check.__name__ for check in CHECKS]


@pytest.mark.parametrize("check", CHECKS, ids=names)
def test_tracejit_compile_passes(check: Check) -> None:
    check(tracejit.compile)


@pytest.mark.parametrize("check", CHECKS, ids=names)
def test_a_compiler_that_always_runs_eagerly_fails(check: Check) -> None:
    with pytest.raises(AssertionError):
        check(always_eager)


@pytest.mark.parametrize("check", CHECKS, ids=names)
def test_a_compiler_whose_replays_are_garbage_fails(check: Check) -> None:
    with pytest.raises(AssertionError):
        check(garbage_replays)


def test_the_statistics_say_what_happened() -> None:
    compiled = tracejit.compile(normalised)
    for seed in range(4):
        compiled(fresh(4, 7, seed=seed), fresh(7))
    stats = compiled.stats
    assert (stats.calls, stats.compiled_calls, stats.eager_calls) == (4, 3, 1)
    assert (stats.traces, stats.programs_compiled, stats.guard_misses, stats.exits) == (1, 1, 0, 0)
    assert stats.machine_calls == 3
    compiled.clear()
    assert compiled.stats.calls == 0
