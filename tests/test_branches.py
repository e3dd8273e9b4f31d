"""capture/branches.py: loops whose steps go different ways are recorded once at most, and left to Python, with their steps compiled.

What is counted: recordings, nodes, calls of pieces.  Each program gives what it gives eagerly, from the same seeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.branching_programs import ball, density, heun, metropolis, trades
from tracejit import nn
from tracejit.capture import branches, record
from tracejit.compiled.tier_policy import TierPolicy

STEPS = 300
CALLS = 5


@pytest.fixture(autouse=True)
def no_outlined_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows where loops cannot be nodes of the program as a whole (tests/test_branching_loops.py has those that can)."""
    monkeypatch.setattr(TierPolicy, "_outline", lambda *_, **__: False)
    monkeypatch.setattr(branches, "may_be_outlined", lambda *_: False)


def equal(expected: Any, given: Any) -> bool:
    if isinstance(expected, tuple | list):
        return len(expected) == len(given) and all(map(equal, expected, given))
    if isinstance(expected, T.Tensor):
        return bool(np.allclose(expected.detach().numpy(), given.detach().numpy(), rtol=1e-4, atol=1e-5))
    return type(expected) is type(given) and (expected == given or bool(np.isclose(expected, given)))


def called(function: Any, given: Callable[[int], tuple[Any, ...]], calls: int = CALLS, compiled: Any = None) -> Any:
    """The function, compiled, after calls that gave what eager ones give, and left the generators where these leave them."""
    compiled = compiled or T.compile(function, wait=True)
    for k in range(calls):
        results = []
        for f in (function, compiled):
            random.seed(k)
            T.manual_seed(k)
            results.append((f(*given(k)), random.random(), T.rand(()).item()))
        assert equal(*results), (k, results)
    return compiled


def is_in_pieces(compiled: Any, calls: int = CALLS, recordings: int = 1) -> bool:
    stats = compiled.stats
    return (stats.traces, stats.piecewise_calls) == (recordings, calls - recordings)


def paths_of_pieces(compiled: Any) -> list[int]:
    return [part.stats.traces for part in compiled._table.pieces.parts]


# -- programs
def rejection(count: int) -> Any:
    found = []
    for _ in range(count):
        while True:
            x = 6 * T.rand(()) - 3
            if T.rand(()) < T.exp(-0.5 * x * x):
                break
        found.append(x)
    return T.stack(found)


def newton(starts: Any) -> Any:
    ends, halved = [], 0
    for x in starts:
        while x.cos().abs() > 1e-4:
            step = x.cos() / (x.sin() + 0.1)
            while (x + step).cos().abs() > x.cos().abs() and step.abs() > 1e-6:
                step = 0.5 * step
                halved += 1
            x = x + step
        ends.append(x)
    return T.stack(ends), halved


def over_helper(x: Any, steps: int) -> Any:
    return metropolis(x, steps)[0] * 2


def over_comprehension(x: Any, steps: int) -> Any:
    return T.stack(
        [
            metropolis(x * k, steps)[0]
            for k in range(1, 3)
        ]
    )  # fmt: skip


class Sampler:
    def __init__(self) -> None:
        self.scale, self.accepted = 0.7, 0

    def step(self, x: Any) -> Any:
        proposed = x + self.scale * T.randn(3)
        if T.rand(()) < density(proposed) / density(x):
            self.accepted += 1
            return proposed
        return x

    def run(self, x: Any, steps: int) -> Any:
        for _ in range(steps):
            x = self.step(x)
        return x

    def run_twice(self, x: Any, steps: int) -> Any:
        return self.run(self.run(x, steps), steps)


class Halting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(3, 3)

    def forward(self, x: Any, steps: int) -> Any:
        for _ in range(steps):
            x = self.cell(x).tanh() + 0.3 * T.randn(3)
            if x.sum() > 0.2:
                x = x - 0.5
        return x


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.halting = Halting()

    def forward(self, x: Any, steps: int) -> Any:
        return self.halting(2 * x, steps) + 1


def from_ones(steps: int) -> Callable[[int], tuple[Any, ...]]:
    return lambda k: (T.ones(3) * (1 + 0.1 * k), steps)


T.manual_seed(0)  # weights decide which way steps go
PROGRAMS: dict[str, tuple[Any, Callable[[int], tuple[Any, ...]]]] = {
    "accepted or rejected": (metropolis, from_ones(STEPS)),
    "steps of a size that a tolerance decides": (heun, lambda k: (T.tensor([1.0 + 0.1 * k, 0.5]), 6.0, 1e-4)),
    "events": (ball, lambda k: (T.tensor(1 + 0.01 * k), T.tensor(0.0), 600)),
    "a loop that values end in a loop": (rejection, lambda k: (120,)),
    "loops that values end in each other": (newton, lambda k: (T.linspace(0.3, 6, 40) + 0.01 * k,)),
    "a loop in a function that is called": (over_helper, from_ones(STEPS)),
    "a loop in a function that a comprehension calls": (over_comprehension, from_ones(STEPS)),
    "a loop over calls of a method": (Sampler().run, from_ones(STEPS)),
    "a method that calls another one twice": (Sampler().run_twice, from_ones(STEPS)),
    "a module": (Halting(), from_ones(STEPS)),
    "a module in a module": (Around(), from_ones(STEPS)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_whose_steps_go_different_ways_is_in_pieces_after_one_recording(name: str) -> None:
    function, given = PROGRAMS[name]
    T.manual_seed(0)
    compiled = called(function, given)
    assert is_in_pieces(compiled), compiled.explain()
    assert all(0 < count <= 5 for count in paths_of_pieces(compiled)), compiled.explain()
    assert "runs in pieces, since a value (" in " ".join(compiled.explain().split())


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recording_of_such_a_loop_is_given_up_before_it_is_long(name: str) -> None:
    function, given = PROGRAMS[name]
    T.manual_seed(0)
    nodes: dict[Any, Any] = {}
    recording, _ = record(function, given(0), {}, nodes.setdefault, may_give_up=True)
    assert recording.reason is not None and recording.reason.code == "branching_loop"
    assert 600 <= len(nodes) < 2600  # the watch is not shown guards


def test_such_a_loop_is_recorded_to_its_end_where_one_program_is_asked_for() -> None:
    compiled = T.compile(ball, fullgraph=True, wait=True)
    given = T.tensor(1.0), T.tensor(0.0), 400
    assert equal(ball(*given), compiled(*given)) and equal(ball(*given), compiled(*given))
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (1, 1)


# -- what is compiled already
def test_a_compiled_function_is_called_in_such_a_loop_and_not_recorded_again() -> None:
    @T.compile(wait=True)
    def transition(q: Any) -> Any:
        p = T.randn(4)
        moved = q + 0.7 * p
        for _ in range(3):
            moved = moved - 0.1 * moved
        if T.rand(()) < T.exp((q * q).sum() - (moved * moved).sum()):
            return moved, True
        return q, False

    def chain(q: Any, transitions: int) -> Any:
        kept, accepted = [], 0
        for _ in range(transitions):
            q, moved = transition(q)
            accepted += moved
            kept.append(q)
        return T.stack(kept), accepted

    for _ in range(20):
        transition(T.ones(4))
    traces, served = transition.stats.traces, transition.stats.compiled_calls
    compiled = T.compile(chain, wait=True)
    for k in range(CALLS):
        T.manual_seed(k)
        compiled(T.ones(4), 200)
    assert is_in_pieces(compiled) and not paths_of_pieces(compiled), compiled.explain()
    assert transition.stats.traces == traces == 2
    assert transition.stats.compiled_calls - served >= 200 * (CALLS - 1)
    T.manual_seed(1)
    expected = chain(T.ones(4), 50)
    T.manual_seed(1)
    assert equal(expected, compiled(T.ones(4), 50))


def test_a_compiled_function_that_is_in_pieces_is_called_by_a_compiled_one() -> None:
    inner = T.compile(metropolis, wait=True)

    def outer(x: Any, steps: int) -> Any:
        return inner(inner(x, steps)[0], steps)[0] * 2

    compiled = called(outer, from_ones(STEPS))
    assert is_in_pieces(compiled), compiled.explain()
    assert inner.stats.traces == 1 and inner.stats.piecewise_calls >= 2 * (2 * CALLS - 2)


# -- recordings that part
def test_a_short_loop_is_in_pieces_once_a_recording_has_parted_from_another_in_it() -> None:
    compiled = called(metropolis, from_ones(20), 10)
    assert is_in_pieces(compiled, 10, 2), compiled.explain()


def test_a_loop_that_ends_by_a_value_is_in_pieces_once_two_recordings_have_parted() -> None:
    def root(x: Any) -> Any:
        y = x
        while (y * y - x).abs() > 1e-3:
            y = y - 0.1 * (y * y - x) / y
        return y

    compiled = called(root, lambda k: (T.tensor(2.0 + 3 * k),), 10)
    assert is_in_pieces(compiled, 10, 2), compiled.explain()
    assert 2 <= paths_of_pieces(compiled)[0] <= 3  # the condition is asked in the piece; at first one tensor has two names


# -- what stays
def test_few_branches_in_a_loop_stay_in_one_program_with_all_their_paths() -> None:
    T.manual_seed(0)
    layers = [(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(3)]

    def forward(x: Any) -> Any:
        for one, other in layers:
            x = (one if x.sum() > 0 else other)(x).tanh()
        return x

    def given(k: int) -> tuple[Any, ...]:
        return (T.tensor(np.random.default_rng(k).normal(size=4).astype(np.float32)),)

    compiled = called(forward, given, 60)
    assert compiled.stats.piecewise_calls == 0 and compiled.stats.traces <= 8
    assert compiled.stats.compiled_calls >= 50


def test_a_long_loop_whose_steps_all_go_one_way_is_one_program() -> None:
    def stepped(x: Any, steps: int) -> Any:
        seen = []
        for k in range(steps):
            x = T.sin(x) + 0.1 * x
            seen.append(float(k))
            if x.isnan().any():
                break
        return x, sum(seen)

    compiled = called(stepped, lambda k: (T.ones(2) + k, 400), 4)
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (1, 3), compiled.explain()


# -- where there are no pieces
def shared_variable(x: Any, steps: int) -> Any:
    def accept() -> None:
        nonlocal x
        x = proposed

    for _ in range(steps):
        proposed = x + 0.8 * T.randn(3)
        if T.rand(()) < density(proposed) / density(x):
            accept()
    return x


def handled(x: Any, steps: int) -> Any:
    try:
        for _ in range(steps):
            proposed = x + 0.8 * T.randn(3)
            if T.rand(()) < density(proposed) / density(x):
                x = proposed
    except ValueError:
        return x, "failed"
    return x, "done"


def suppressed(x: Any, steps: int) -> Any:
    with suppress(ValueError):
        for _ in range(steps):
            proposed = x + 0.8 * T.randn(3)
            if T.rand(()) < density(proposed) / density(x):
                x = proposed
    return x


def proposals(x: Any, steps: int) -> Iterator[Any]:
    for _ in range(steps):
        proposed = x + 0.8 * T.randn(3)
        if T.rand(()) < density(proposed) / density(x):
            x = proposed
        yield x


def over_generator(x: Any, steps: int) -> Any:
    return T.stack(list(proposals(x, steps)))


def over_scan(x: Any, steps: int) -> Any:
    def step(x: Any, _: Any) -> tuple[Any, Any]:
        proposed = x + 0.8 * T.randn(3)
        x = proposed if T.rand(()) < density(proposed) / density(x) else x
        return x, x

    return T.scan(step, x, T.zeros(steps))


@pytest.mark.parametrize("function", [shared_variable, handled, suppressed, over_generator, over_scan])
def test_where_steps_are_no_functions_the_call_is_eager_after_one_short_recording(function: Any) -> None:
    compiled = called(function, from_ones(200), 12)
    assert (compiled.stats.traces, compiled.stats.direct_calls) == (1, 11), compiled.explain()
    (reason,) = compiled.reasons
    assert reason.code == "branching_loop" and "test_branches.py:" in reason.where
    assert "(True, False)" in str(reason) or "(False, True)" in str(reason)
    assert "compile the function of one step" in compiled.explain()


def test_a_recording_that_parts_in_a_loop_which_cannot_be_cut_is_the_last_one_for_a_while() -> None:
    compiled = called(handled, from_ones(20), 40)
    assert compiled.stats.traces == 2 and compiled.stats.piecewise_calls == 0, compiled.explain()
    assert [reason.code for reason in compiled.reasons] == ["branching_loop"]


def test_a_function_whose_pieces_do_not_pay_is_left_to_python() -> None:
    def in_floats(height: Any, steps: int) -> Any:
        h, v, bounces = height.item(), 0.0, 0
        for _ in range(steps):
            v = v - 0.0981
            h = h + 0.01 * v
            if h < 0:
                h, v = -h, -0.9 * v
                bounces += 1
        return h, bounces

    compiled = called(in_floats, lambda k: (T.tensor(1 + 0.01 * k), 1000), 20)
    assert compiled.stats.traces == 1 and compiled.stats.piecewise_calls <= 3, compiled.explain()
    assert compiled.stats.direct_calls >= 16


def test_what_is_called_is_looked_up_in_each_call_of_a_function_in_pieces() -> None:
    def walked(x: Any, steps: int, scale: float = 0.8) -> Any:
        for _ in range(steps):
            proposed = x + scale * T.randn(3)
            if T.rand(()) < density(proposed) / density(x):
                x = proposed
        return x

    def shifted(x: Any, steps: int) -> Any:
        return x + steps

    walk: Any = walked

    def outer(x: Any, steps: int) -> Any:
        return walk(walk(x, steps=steps), steps) * 2

    compiled = called(outer, from_ones(STEPS))
    assert is_in_pieces(compiled), compiled.explain()
    walk = shifted
    called(outer, from_ones(STEPS), 2, compiled)
    walk = walked
    walked.__defaults__ = (0.5,)
    called(outer, from_ones(STEPS), 2, compiled)
    walked.__code__ = shifted.__code__
    called(outer, from_ones(STEPS), 2, compiled)
    walk = walked.__get__(T.ones(3))
    with pytest.raises(TypeError):
        compiled(T.ones(3), 3)


def test_functions_that_each_call_makes_anew_are_called_as_they_are_after_a_few() -> None:
    def outer(x: Any, steps: int) -> Any:
        def walk(x: Any) -> Any:
            for _ in range(steps):
                proposed = x + 0.8 * T.randn(3)
                if T.rand(()) < density(proposed) / density(x):
                    x = proposed
            return x

        return walk(x) * 2

    compiled = called(outer, from_ones(100), 12)
    assert is_in_pieces(compiled, 12) and len(paths_of_pieces(compiled)) <= 4, compiled.explain()


def test_layers_that_are_told_apart_by_their_attributes_are_one_program() -> None:
    class Block(nn.Module):
        def __init__(self, shift: int) -> None:
            super().__init__()
            self.shift, self.layer = shift, nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            if self.shift > 0:
                x = x.roll(self.shift, 0)
            for _ in range(6):
                x = (self.layer(x).tanh() * 0.9 + x * 0.1).sin() - 0.01 * x
            return x

    T.manual_seed(0)
    blocks = nn.ModuleList([Block(k % 2) for k in range(24)])

    def model(x: Any) -> Any:
        for block in blocks:
            x = block(x)
        return x

    compiled = called(model, lambda k: (T.ones(4) * k,), 4)
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (1, 3), compiled.explain()
    assert len(record(model, (T.ones(4),), {})[0].graph.nodes) > 1000  # type: ignore[union-attr]


def test_a_step_whose_paths_serve_few_of_many_calls_is_left_to_python() -> None:
    compiled = T.compile(trades, wait=True)
    for k in range(60):
        T.manual_seed(k)
        prices = 1 + 0.01 * T.randn(200).cumsum(0)
        (cash, done), found = trades(prices, 10), compiled(prices, 10)
        assert found[0] == pytest.approx(cash) and found[1] == done
    assert compiled.stats.piecewise_calls < 30 and compiled.stats.traces <= 3, compiled.explain()
