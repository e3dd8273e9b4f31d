"""Loops of Python whose steps carry on what is in objects, named tuples, lists and dictionaries, which they may make anew."""

from __future__ import annotations

import dataclasses
import datetime
import math
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import tracejit as tj
from tests.loop_programs import agree, cell, of_any_length, zeros

LENGTHS, OTHERS = (40, 25, 60, 9, 2, 0), (27, 66)


class Pair(NamedTuple):
    h: Any
    c: Any
    rate: float = 0.5


class Described(Pair):
    def total(self) -> Any:
        return self.h + self.c


@dataclasses.dataclass
class State:
    h: Any
    c: Any
    rate: float = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    h: Any
    c: Any


class Network:
    def __init__(self) -> None:
        self.states = [zeros(), zeros()]
        self.last = None

    def step(self, x: Any) -> Any:
        first, second = self.states
        self.states = [cell(first, x), cell(second, first)]
        self.last = x
        return self.states[0] * self.states[1]


def named_tuples(xs: Any) -> Any:
    state = Pair(zeros(), zeros())
    for x in xs:
        c = cell(state.c, x) * state.rate
        state = Pair(cell(state.h, c), c)
    return state


def replaced_fields(xs: Any) -> Any:
    state = Described(zeros(), zeros())
    for x in xs:
        state = state._replace(c=cell(state.total(), x))
        state = state._replace(h=cell(state.h, state.c))
    return state.h, state.c, state.rate


def dataclass_made_anew(xs: Any) -> Any:
    state = State(zeros(), zeros())
    for x in xs:
        state = State(cell(state.h, state.c), cell(state.c, x) * state.rate)
    return state.h, state.c, state.rate


def dataclass_replaced(xs: Any) -> Any:
    state = State(zeros(), zeros())
    for x in xs:
        state = dataclasses.replace(state, c=cell(state.h, x))
        state = dataclasses.replace(state, h=cell(state.h, state.c))
    return state.h, state.c


def dataclass_changed(xs: Any) -> Any:
    state = State(zeros(), zeros())
    for x in xs:
        state.c = cell(state.h, x)
        state.h = cell(state.h, state.c)
    return state.h, state.c


def slots(xs: Any) -> Any:
    state = Frozen(zeros(), zeros())
    for x in xs:
        state = Frozen(cell(state.h, x), state.h + state.c)
    return state.h, state.c


def an_object_that_steps_itself(xs: Any) -> Any:
    network, y = Network(), zeros()
    for x in xs:
        y = network.step(x)
    return y, network.states, network.last


def lists_made(xs: Any) -> Any:
    states = [zeros(), zeros()]
    for x in xs:
        states = [cell(states[0], x), cell(states[1], states[0])]
    return states


def dictionaries_made(xs: Any) -> Any:
    states = {"h": zeros(), "c": [zeros()]}
    for x in xs:
        c = cell(states["c"][0], x)
        states = {"h": cell(states["h"], c), "c": [c]}
    return states["h"], states["c"][0]


def the_one_before_is_kept(xs: Any) -> Any:
    before = state = State(zeros(), zeros())
    for x in xs:
        before, state = state, State(cell(state.h, x), state.c)
    return before.h, before.c, state.h, state.c


def the_first_one_is_kept(xs: Any) -> Any:
    first = state = State(zeros(), zeros())
    for x in xs:
        state = State(cell(state.h, first.c), state.h + x)
    return state.h, state.c, first is state


def a_function_of_the_state(xs: Any) -> Any:
    def step(state: Pair, x: Any) -> Pair:
        return Pair(cell(state.h, x), state.h)

    state, out = Pair(zeros(), zeros()), []
    for x in xs:
        state = step(state, x)
        out.append(state.h)
    return tj.stack(out)


def nothing_saved(xs: Any) -> Any:
    position, speed, out = zeros(), zeros(), []
    for x in xs:
        speed = speed + 0.1 * (x - position)
        position = position + 0.1 * speed
        out.append(position)
    return tj.stack(out)


def own_generator(xs: Any) -> Any:
    generator, h = tj.Generator(), zeros()
    generator.manual_seed(1)
    for x in xs:
        h = cell(h, x + tj.randn(2, 4, dtype=tj.float64, generator=generator))
    return h


class Simulation:
    def __init__(self) -> None:
        self.h, self.time, self.steps = zeros(), 0.0, 0

    def advance(self, x: Any, dt: float) -> None:
        self.h = cell(self.h, x * self.time) / (self.steps + 1)
        self.time += dt
        self.steps += 1


def time_and_steps_in_an_object(xs: Any) -> Any:
    simulation = Simulation()
    for x in xs:
        simulation.advance(x, 0.1)
    return simulation.h, simulation.time, simulation.steps


def time_in_a_named_tuple(xs: Any) -> Any:
    state, factor = Pair(zeros(), 0.0), 1.0
    for x in xs:
        state = Pair(cell(state.h, x + math.sin(state.c)) * factor, state.c + 0.25)
        factor *= 0.99
    return state.h, state.c, factor


def numbers_in_lists_and_dictionaries(xs: Any) -> Any:
    listed, named = [zeros(), 0, (1.0,)], {"h": zeros(), "count": 100}
    for x in xs:
        listed[0] = cell(listed[0], x)
        listed[1] += 2
        listed[2] = (listed[2][0] * 0.5,)
        named = {"h": cell(named["h"], listed[0] * listed[2][0]), "count": named["count"] // 2}
    return listed[0], listed[1], listed[2], named["h"], named["count"]


def a_position_in_an_object(xs: Any) -> Any:
    state, series = State(zeros(), 0), xs.detach()
    for x in xs:
        state = State(cell(state.h, x + series[state.c]), state.c + 1)
    return state.h, state.c


def a_number_in_it_is_of_the_state(xs: Any) -> Any:
    state = Pair(zeros(), 0.5)
    for x in xs:
        state = Pair(cell(state.h, x) * state.c, state.h.sum().item())
    return state.h, state.c


RATE = 0.25


def numbers_from_outside(xs: Any) -> Any:
    state, described = State(zeros(), None, RATE), Pair(zeros(), None, RATE)
    for x in xs:
        state = State(cell(state.h, x) * state.rate, None, state.rate)
        described = Pair(cell(described.h, state.h) * described.rate, None, described.rate)
    return state.h, state.rate, described.h, described.rate


@pytest.mark.parametrize(
    "function",
    [
        named_tuples, replaced_fields, dataclass_made_anew, dataclass_replaced, dataclass_changed, slots, an_object_that_steps_itself,
        lists_made, dictionaries_made, the_one_before_is_kept, the_first_one_is_kept, a_function_of_the_state, nothing_saved,
        numbers_from_outside, time_and_steps_in_an_object, time_in_a_named_tuple, numbers_in_lists_and_dictionaries,
        a_position_in_an_object, a_number_in_it_is_of_the_state,
    ],
)  # fmt: skip
def test_there_may_be_any_number_of_steps(function: Callable[..., Any]) -> None:
    of_any_length(function, LENGTHS, OTHERS)


def test_numbers_in_objects_are_those_of_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tj.compile(numbers_from_outside)
    for length, rate in ((20, 0.25), (30, 0.5), (40, 0.125), (50, 2.0), (60, 0.1)):
        monkeypatch.setitem(globals(), "RATE", rate)
        agree(compiled, numbers_from_outside, [length])
    assert compiled.stats.traces <= 3, compiled.explain()


def helped(xs: Any) -> Any:
    """A function swaps an object that its caller has with one of its own: which one is changed last depends on the number of steps."""

    def steps(mine: State) -> None:
        other = State(zeros(), zeros())
        for x in xs:
            mine, other = other, mine
            mine.h = cell(mine.h, x)

    state = State(zeros(), zeros())
    steps(state)
    return state.h


def helped_with_lists(xs: Any) -> Any:
    def steps(mine: list[Any]) -> None:
        other = [zeros()]
        for x in xs:
            mine, other = other, mine
            mine[0] = cell(mine[0], x)

    state = [zeros()]
    steps(state)
    return state[0]


def all_are_kept(xs: Any) -> Any:
    state, states = State(zeros(), zeros()), []
    for x in xs:
        state = State(cell(state.h, x), state.h)
        states.append(state)
    return [s.h for s in states[-2:]]


def linked(xs: Any) -> Any:
    state = State(zeros(), None)
    for x in xs:
        state = State(cell(state.h, x), state)
    return state.h, None if state.c is None else state.c.h


def a_number_in_it_has_more_and_more_bits(xs: Any) -> Any:
    state = State(zeros(), 2**55)
    for x in xs:
        state = State(cell(state.h, x), state.c * 2)
    return state.h, state.c


def a_number_in_it_decides(xs: Any) -> Any:
    state = State(zeros(), 0)
    for x in xs:
        state = State(cell(state.h, x if state.c < 9 else -x), state.c + 1)
    return state.h, state.c


def a_number_in_it_is_a_key(xs: Any) -> Any:
    table, state = {k: float(k) for k in range(64)}, State(zeros(), 0)
    for x in xs:
        state = State(cell(state.h, x * table[state.c]), state.c + 1)
    return state.h


def other_objects_are_keys(xs: Any) -> Any:
    key = Frozen(1, 2)
    states = {key: zeros(), "n": 0}
    for x in xs:
        states = {key: cell(states[Frozen(1, 2)], x), "n": states["n"] + 1}
    return states[key], states["n"]


def a_function_has_it(xs: Any) -> Any:
    state = State(zeros(), zeros())

    def now() -> Any:
        return state.h

    for x in xs:
        state = State(cell(now(), x), state.h)
    return now(), state.c


def referred_to(xs: Any) -> Any:
    state = State(zeros(), zeros())
    reference = weakref.ref(state)
    for x in xs:
        reference = weakref.ref(state)
        state = State(cell(state.h, x), state.h)
    return state.h, reference() is None


def a_number_in_it_is_long(xs: Any) -> Any:
    state, listed = State(zeros(), 2**63), [14695981039346656037, zeros()]
    for x in xs:
        state = State(cell(state.h, x), state.c + 1)
        listed[0] = (listed[0] ^ 7) * 1099511628211 % 2**64
        listed[1] = cell(listed[1], state.h)
    return state.h, state.c, listed


def a_number_in_it_is_too_long_and_a_position(xs: Any) -> Any:
    state, series = State(zeros(), 1), xs.detach()
    for _ in range(xs.shape[0]):
        state.c = state.c * 3
        state.h = cell(state.h, series[state.c % 2])
    return state.h, state.c


def a_tuple_is_in_two_variables(xs: Any) -> Any:
    state = best = Pair(zeros(), 0.0)
    total = zeros()
    for x in xs:
        if best is state:
            total = total + x
        state = Pair(cell(state.h, x), state.c + 0.25)
        best = state
    return total, state.h, state.c, best is state


class Odd(Pair):
    __slots__ = ()
    days = datetime.timedelta.days

    def __len__(self) -> int:
        raise AssertionError

    __iter__ = __eq__ = __getitem__ = __len__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class OddObject:
    days = datetime.timedelta.days

    def __init__(self, h: Any) -> None:
        self.h = h


def odd_classes(xs: Any) -> Any:
    state, other = Odd(zeros(), 1), OddObject(zeros())
    for x in xs:
        state = Odd(cell(state.h, x), 1)
        other = OddObject(cell(other.h, state.h))
    return state.h, other.h


def factories_and_lengths(xs: Any) -> Any:
    h, short, long = zeros(), deque([zeros()], 1), deque([zeros()], 2)
    table = defaultdict(lambda h=h: h)
    for x in xs:
        h = cell(table["a"], x)
        table = defaultdict(lambda h=h: h)
        short, long = long, short
        short.append(h)
    return table["a"], len(short), len(long)


def keys_that_change(xs: Any) -> Any:
    h, table = zeros(), {State(1, 2): 0}
    for x in xs:
        h = cell(h, x)
        for key in table:
            key.rate += 1.0
    return h, [key.rate for key in table]


State.__hash__ = object.__hash__  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "function",
    [
        helped, helped_with_lists, all_are_kept, linked, a_number_in_it_has_more_and_more_bits,
        a_number_in_it_decides, a_number_in_it_is_a_key, other_objects_are_keys, a_function_has_it, referred_to, own_generator,
        a_number_in_it_is_long, a_number_in_it_is_too_long_and_a_position, a_tuple_is_in_two_variables, odd_classes,
        factories_and_lengths, keys_that_change,
    ],
)  # fmt: skip
def test_steps_that_tell_one_object_from_the_next_give_what_eager_ones_do(function: Callable[..., Any]) -> None:
    agree(tj.compile(function), function, (12, 13, 31, 55, 31, 3, 0))


def test_steps_that_save_nothing_may_be_gone_back_through_twice() -> None:
    compiled = tj.compile(nothing_saved)
    for length in (30, 20, 25):
        xs = tj.randn(length, 2, 4, dtype=tj.float64).requires_grad_()
        out = compiled(xs)
        first, again = (tj.autograd.grad(out.sum(), xs)[0] for _ in range(2))
        expected = tj.autograd.grad(nothing_saved(xs).sum(), xs)[0]
        assert tj.equal(first, expected) and tj.equal(again, expected)
    assert compiled.stats.traces == 2, compiled.explain()


def test_explain_tells_what_steps_hand_on() -> None:
    compiled = tj.compile(helped)
    for length in (12, 13):
        compiled(tj.ones(length, 2, 4, dtype=tj.float64))
    assert "steps hand lists or objects that were there before from one place to another" in compiled.explain(verbose=True)
