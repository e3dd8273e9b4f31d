"""Loops of Python whose steps store what they carry on in objects and dictionaries from outside: simulations, modules with a state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tracejit import nn

LENGTHS = (14, 12, 19, 9, 24, 30)
tj.manual_seed(0)
W = tj.randn(4, 4, dtype=tj.float64) * 0.2
Made = tuple[Callable[[int], Any], Callable[[], list[Any]]]
"""A function of how many steps there are, and what is outside afterwards."""


def ones() -> Any:
    return tj.ones(4, dtype=tj.float64)


class Box:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slots:
    __slots__ = ("h",)


class Checked:
    """Attributes go through code of the class."""

    def __init__(self) -> None:
        self._x = ones()
        self.y = ones()

    @property
    def x(self) -> Any:
        return self._x

    @x.setter
    def x(self, value: Any) -> None:
        self._x = value * 1

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


@dataclasses.dataclass
class State:
    h: Any
    c: Any
    rate: float = 0.5


class Simulation:
    def __init__(self) -> None:
        self.x, self.v, self.time, self.steps = ones(), ones() * 0, 0.0, 0

    def step(self) -> None:
        self.v = self.v - 0.1 * (self.x @ W) * np.cos(1.0)
        self.x = self.x + 0.1 * self.v * (1 + self.time)
        self.time += 0.01
        self.steps += 1


def method_of_a_simulation() -> Made:
    simulation = Simulation()

    def run(n: int) -> Any:
        for _ in range(n):
            simulation.step()
        return simulation.x * simulation.steps

    return run, lambda: [simulation.x, simulation.v, simulation.time, simulation.steps]


def module_with_a_state() -> Made:
    tj.manual_seed(3)

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4, dtype=tj.float64)
            self.calls = 0
            self.h = ones()
            self.register_buffer("mean", ones() * 0)

        def forward(self, x: Any) -> Any:
            self.calls += 1
            self.h = (self.linear(self.h) + x).tanh()
            self.mean = self.mean * 0.9 + self.h.detach() * 0.1
            return self.h

    cell = Cell()

    def run(n: int) -> Any:
        outs = []
        cell.h = ones()
        for x in tj.linspace(0, 1, 4 * n, dtype=tj.float64).reshape(n, 4):
            outs.append(cell(x))
        cell.zero_grad()
        tj.stack(outs).square().sum().backward()
        return cell.linear.weight.grad.clone()

    return run, lambda: [cell.h.detach(), cell.mean, cell.calls]


def state_in_a_tuple() -> Made:
    box = Box(state=(ones() * 0, ones()))

    def run(n: int) -> Any:
        for _ in range(n):
            h, c = box.state
            c = c * 0.5 + (h @ W).sin()
            box.state = (c.tanh(), c)
        return box.state[0]

    return run, lambda: [*box.state]


def state_in_an_object_made_anew() -> Made:
    box = Box(state=State(ones() * 0, ones()), before=None)

    def run(n: int) -> Any:
        for _ in range(n):
            state = box.state
            c = state.c * state.rate + (state.h @ W).sin()
            box.before, box.state = state, State(c.tanh(), c)
        box.before.h = box.before.h + 1
        return box.state.h

    return run, lambda: [box.state.h, box.state.c, box.before.h, box.before.c]


def items_of_a_dictionary() -> Made:
    kept = {"h": ones(), "rate": 1.0, "count": 0}

    def run(n: int) -> Any:
        for _ in range(n):
            kept["h"] = (kept["h"] @ W).sin() * kept["rate"] + 0.1
            kept["rate"] *= 0.99
            kept["count"] += 2
        return kept["h"] * kept["count"]

    return run, lambda: [kept["h"], kept["rate"], kept["count"]]


def optimizer_written_out() -> Made:
    box = Box(p=ones(), m=ones() * 0, v=ones() * 0, t=0)

    def run(n: int) -> Any:
        for _ in range(n):
            g = box.p @ W
            box.t += 1
            box.m = 0.9 * box.m + 0.1 * g
            box.v = 0.99 * box.v + 0.01 * g * g
            box.p = box.p - 0.01 * (box.m / (1 - 0.9**box.t)) / ((box.v / (1 - 0.99**box.t)).sqrt() + 1e-8)
        return box.p

    return run, lambda: [box.p, box.m, box.v, box.t]


def slots_and_properties() -> Made:
    slots, checked = Slots(), Checked()
    slots.h = ones()

    def run(n: int) -> Any:
        for _ in range(n):
            slots.h = (slots.h @ W).sin() + checked.y * 0.1
            checked.x = checked.x * 0.5 + slots.h
            checked.y = checked.y * 0.9
        return checked.x

    return run, lambda: [slots.h, checked.x, checked.y]


def one_tensor_in_two_places() -> Made:
    one, other = Box(h=ones()), Box(h=ones())

    def run(n: int) -> Any:
        h = one.h
        for _ in range(n):
            h = (one.h @ W).sin() + 0.1
            one.h = other.h = h
        other.h.mul_(2)
        return h + 0

    return run, lambda: [one.h, other.h, one.h is other.h]


def exchanged_and_best() -> Made:
    box = Box(p=ones(), q=ones() * 0, best=tj.full((), -1e9, dtype=tj.float64))

    def run(n: int) -> Any:
        for _ in range(n):
            box.p, box.q = box.q, box.p
            box.p = box.p * 0.5 + W[1]
            box.best = tj.maximum(box.best, box.p.sum())
        return box.p

    return run, lambda: [box.p, box.q, box.best]


def number_of_a_tensor() -> Made:
    box = Box(h=ones(), loss=0.0, total=0.0, name="", done=False)

    def run(n: int) -> Any:
        for _ in range(n):
            box.h = (box.h @ W).sin() + 1
            box.loss = box.h.sum().item()
            box.total += box.loss
            box.name, box.done = "running", True
        box.name = f"{n} steps"
        return box.h

    return run, lambda: [box.h, box.loss, box.total, box.name, box.done]


def loops_in_a_loop() -> Made:
    box = Box(h=ones(), n=0)

    def run(n: int) -> Any:
        box.n = 0
        for k in range(3):
            for _ in range(n):
                box.h = (box.h @ W).sin() + 0.1 * k
                box.n += 1
        return box.h * box.n

    return run, lambda: [box.h, box.n]


def gradients_through_stores() -> Made:
    box, w = Box(h=None, before=None), W.clone().requires_grad_()

    def run(n: int) -> Any:
        box.h = ones()
        for _ in range(n):
            box.before = box.h
            box.h = (box.h @ w).sin() + box.before * 0.1
        return tj.autograd.grad(box.h.square().sum() + box.before.sum(), w)[0]

    return run, lambda: [box.h.detach(), box.before.detach(), box.h.requires_grad]


def something_else_in_a_later_step() -> Made:
    box = Box(h=ones(), peak=None)

    def run(n: int) -> Any:
        for t in range(n):
            box.h = box.h * 0.9 + W[0]
            if t == 6:
                box.peak = box.h
        return box.h

    return run, lambda: [box.h, box.peak]


def decided_by_a_counter() -> Made:
    box = Box(h=ones(), n=0)

    def run(n: int) -> Any:
        for _ in range(n):
            box.n += 1
            if box.n % 3 == 0:
                box.h = box.h * 0.5
            box.h = (box.h @ W).sin() + 1
        return box.h

    return run, lambda: [box.h, box.n]


def keys_by_a_counter() -> Made:
    box, seen = Box(h=ones(), n=0), {}

    def run(n: int) -> Any:
        for _ in range(n):
            box.n += 1
            box.h = (box.h @ W).sin() + box.n
            seen[box.n % 5] = box.h
        return box.h

    return run, lambda: [box.h, box.n, *[seen[k] for k in sorted(seen)]]


def in_turn() -> Made:
    boxes = [Box(h=ones()), Box(h=ones() * 2)]

    def run(n: int) -> Any:
        for k in range(n):
            boxes[k % 2].h = (boxes[(k + 1) % 2].h @ W).sin() + 0.1
        return boxes[0].h

    return run, lambda: [box.h for box in boxes]


def kept_in_another_place() -> Made:
    box = Box(h=ones(), before=None)

    def run(n: int) -> Any:
        for _ in range(n):
            box.before = box.h * 0.5
            box.last = box.before
            box.h = (box.h @ W).sin() + box.before
        box.last.mul_(2)
        return box.h

    return run, lambda: [box.h, box.before, box.last, box.last is box.before]


def written_in_place() -> Made:
    box = Box(h=ones(), first=ones())

    def run(n: int) -> Any:
        box.first = box.h
        for _ in range(n):
            box.h = box.h * 0.5
            box.h += W[0]
        box.first.add_(0.01)
        return box.h + 0

    return run, lambda: [box.h, box.first]


def listed_as_well() -> Made:
    box = Box(h=ones(), states=[])

    def run(n: int) -> Any:
        box.states = []
        for _ in range(n):
            box.h = (box.h @ W).sin() + 0.1
            box.states.append(box.h)
        return tj.stack(box.states)

    return run, lambda: [box.h, *box.states]


def told_by_identity() -> Made:
    box = Box(h=ones(), same=None)

    def run(n: int) -> Any:
        for _ in range(n):
            before = box.h
            box.h = (box.h @ W).sin()
            box.same = box.h is before
        return box.h

    return run, lambda: [box.h, box.same]


def an_error_in_a_step() -> Made:
    box = Box(h=ones(), n=0)

    def run(n: int) -> Any:
        try:
            for t in range(n):
                box.h = (box.h @ W).sin()
                box.n += 1
                if t == 20:
                    raise ValueError(t)
        except ValueError as error:
            return box.h, str(error)
        return box.h, ""

    return run, lambda: [box.h, box.n]


ANY_LENGTH = [
    method_of_a_simulation, module_with_a_state, state_in_a_tuple, state_in_an_object_made_anew, items_of_a_dictionary,
    optimizer_written_out, slots_and_properties, one_tensor_in_two_places, exchanged_and_best, number_of_a_tensor, loops_in_a_loop,
    gradients_through_stores, told_by_identity,
]  # fmt: skip
OTHERS = [
    something_else_in_a_later_step, decided_by_a_counter, keys_by_a_counter, in_turn, written_in_place, listed_as_well,
    an_error_in_a_step, kept_in_another_place,
]  # fmt: skip


def assert_same(actual: Any, expected: Any) -> None:
    if isinstance(expected, tj.Tensor):
        assert (actual.dtype, actual.requires_grad) == (expected.dtype, expected.requires_grad)
        np.testing.assert_allclose(actual.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    elif isinstance(expected, (list, tuple)):
        for x, y in zip(actual, expected, strict=True):
            assert_same(x, y)
    else:
        assert type(actual) is type(expected)
        assert actual == (pytest.approx(expected, rel=1e-12) if isinstance(expected, float) else expected)


def compared(make: Callable[[], Made], lengths: tuple[int, ...], fixed: bool = False) -> Any:
    """The compiled function, after calls that gave, and left outside, what eager ones did."""
    eager, outside_eagerly = make()
    function, outside = make()
    compiled = tj.compile((lambda: function(lengths[0])) if fixed else function, wait=True)
    for n in lengths:
        expected = eager(n)
        assert_same(compiled() if fixed else compiled(n), expected)
        assert_same(outside(), outside_eagerly())
    return compiled


@pytest.mark.parametrize("make", ANY_LENGTH)
def test_what_steps_store_outside_is_carried_on_for_all_lengths(make: Callable[[], Made]) -> None:
    compiled = compared(make, LENGTHS)
    assert compiled.stats.traces <= 3, compiled.explain()
    assert compiled.stats.compiled_calls >= 3, compiled.explain()


@pytest.mark.parametrize("make", OTHERS)
def test_steps_that_do_more_than_store_what_they_carry_on_do_so(make: Callable[[], Made]) -> None:
    compared(make, LENGTHS)


@pytest.mark.parametrize("make", [*ANY_LENGTH, *OTHERS])
def test_a_loop_of_a_fixed_number_of_steps_stores_what_its_last_one_does(make: Callable[[], Made]) -> None:
    compared(make, (30,) * 3, fixed=True)


def test_explain_names_the_place_outside_that_tells_steps_apart() -> None:
    box = Box(kind=None)

    def run(n: int) -> Any:
        h = ones()
        for _ in range(n):
            h = (h @ W).sin()
            box.kind = h if box.kind is None or box.kind.ndim > 1 else h.reshape(1, 4)
        return h

    compiled = tj.compile(run, wait=True)
    for n in LENGTHS[:3]:
        compiled(n)
    assert "'box.kind' is another value, or of another kind, in each step" in compiled.explain(verbose=True)
