"""capture/carried_structures.py: branching loops whose steps make lists, dictionaries, named tuples and objects anew, against eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest

import tracejit as T
from tests.branching_programs import CALLS, assert_equal, loops_of_paths, normal, outcome, outlined
from tests.test_branching_loops import messages


class Pair(NamedTuple):
    x: Any
    n: int


@dataclass
class State:
    x: Any
    n: int

    def moved(self) -> State:
        return State(halved(self.x), self.n + 1)


@dataclass(frozen=True)
class Frozen:
    x: Any
    n: int


class Plain:
    def __init__(self, x: Any, n: int) -> None:
        self.x, self.n = x, n


class Slots:
    __slots__ = ("n", "x")

    def __init__(self, x: Any, n: int) -> None:
        self.x, self.n = x, n


def halved(x: Any) -> Any:
    return x * 0.5 if x.sum() > 1 else x + 1


# -- programs: given a tensor and a number of steps
def dictionaries(x: Any, steps: int) -> Any:
    state = {"x": x, "n": 0}
    for _ in range(steps):
        state = {"x": halved(state["x"]), "n": state["n"] + 1}
    return state


def lists(x: Any, steps: int) -> Any:
    state = [x, 0]
    for _ in range(steps):
        state = [halved(state[0]), state[1] + 1]
    state.append(3)
    return state


def named_tuples(x: Any, steps: int) -> Any:
    state = Pair(x, 0)
    for _ in range(steps):
        state = state._replace(x=halved(state.x), n=state.n + 1)
    return state.x, state.n, type(state).__name__


def dataclasses(x: Any, steps: int) -> Any:
    state = State(x, 0)
    for _ in range(steps):
        state = state.moved()
    state.n += 1
    return vars(state), type(state).__name__


def frozen_dataclasses(x: Any, steps: int) -> Any:
    state = Frozen(x, 0)
    for _ in range(steps):
        state = replace(state, x=halved(state.x), n=state.n + 1)
    return vars(state)


def objects(x: Any, steps: int) -> Any:
    state = Plain(x, 0)
    for _ in range(steps):
        state = Plain(halved(state.x), state.n + 1)
    return vars(state)


def objects_with_slots(x: Any, steps: int) -> Any:
    state = Slots(x, 0)
    for _ in range(steps):
        state = Slots(halved(state.x), state.n + 1)
    return state.x, state.n


def nested(x: Any, steps: int) -> Any:
    state: Any = {"a": [x, 0], "b": Pair(x, 1)}
    for _ in range(steps):
        state = {"a": [halved(state["a"][0]), state["a"][1] + 1], "b": Pair(state["a"][0], state["b"].n * -1)}
    return state["a"], tuple(state["b"])


def lists_in_tuples(x: Any, steps: int) -> Any:
    states = [(0.5, [1], x), (1.5, [2], x * 2)]
    for _ in range(steps):
        states = [(score * 0.9, [last + 1], halved(y)) for score, (last,), y in states]
        states.sort(key=lambda state: state[0])
    return states


def the_best_so_far(x: Any, steps: int) -> Any:
    best, least = None, 1e9
    for k in range(steps):
        x = halved(x)
        if x.sum().item() < least:
            least, best = x.sum().item(), {"x": x.clone(), "step": k}
    return best, least


def the_one_before(x: Any, steps: int) -> Any:
    state = before = {"x": x}
    for _ in range(steps):
        before = state
        state = {"x": halved(before["x"])}
    return before, state, before is state


def one_tensor_in_two_places(x: Any, steps: int) -> Any:
    state, y = {"x": x}, x * 2
    for _ in range(steps):
        y = halved(y)
        state = {"x": y}
    return state["x"] is y, state, y


def returned(x: Any, steps: int) -> Any:
    state = State(x, 0)
    for _ in range(steps):
        state = State(halved(state.x), state.n + 1)
        if state.x.sum() > 2.5:
            return Pair(state.x, state.n)
    return state.x, state.n


def another_kind_at_first(x: Any, steps: int) -> Any:
    state, total, y = {"x": x}, 0, x * 3
    for _ in range(steps):
        state = {"x": y}
        y, total = halved(y), total + 0.5
    return state["x"] is y, state, y, total


CARRIED = [
    dictionaries, lists, named_tuples, dataclasses, frozen_dataclasses, objects, objects_with_slots, nested, lists_in_tuples,
    the_best_so_far,
    the_one_before, one_tensor_in_two_places, returned, another_kind_at_first,
]  # fmt: skip


@pytest.mark.parametrize("program", CARRIED, ids=lambda f: f.__name__)
def test_structures_that_steps_make_anew_are_carried_on(program: Callable[..., Any]) -> None:
    compiled = outlined(program)
    for k in range(CALLS):
        given = normal(k, 2), 12 + k % 3
        assert_equal(outcome(program, given, k), outcome(compiled, given, k))
    assert not compiled.reasons, messages(compiled)
    assert compiled.stats.compiled_calls >= CALLS - 4 and all(loops_of_paths(compiled)), compiled.explain()


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("program", CARRIED, ids=lambda f: f.__name__)
def test_loops_of_few_steps_give_what_eager_mode_gives(program: Callable[..., Any], steps: int) -> None:
    compiled = outlined(program)
    for k in range(5):
        assert_equal(outcome(program, (normal(k, 2), steps), k), outcome(compiled, (normal(k, 2), steps), k))


# -- what may not be a copy
KEPT: list[Any] = []


def changes_one_of_before(x: Any, steps: int) -> Any:
    state = first = {"x": x, "n": 0}
    for _ in range(steps):
        state["n"] += 1
        state = {"x": halved(state["x"]), "n": state["n"]}
    return state, first


def leaves_one_outside(x: Any, steps: int) -> Any:
    state = {"x": x}
    for _ in range(steps):
        state = {"x": halved(state["x"])}
        KEPT[:] = [state]
    return state, KEPT[0] is state


def in_two_variables(x: Any, steps: int) -> Any:
    state = other = [x]
    for _ in range(steps):
        state = other = [halved(state[0])]
    state.append(1)
    return state, other


def in_a_list_too(x: Any, steps: int) -> Any:
    state, seen = {"x": x}, []
    for _ in range(steps):
        state = {"x": halved(state["x"])}
        seen.append(state)
    state["y"] = 1
    return state, seen


@pytest.mark.parametrize("program", [changes_one_of_before, leaves_one_outside, in_two_variables, in_a_list_too])
def test_a_structure_that_something_else_refers_to_is_not_carried(program: Callable[..., Any]) -> None:
    compiled = outlined(program)
    for k in range(6):
        found = []
        for function in (program, compiled):
            KEPT.clear()
            found.append(outcome(function, (normal(k, 2), 12), k))
        assert_equal(*found)
    assert {reason.code for reason in compiled.reasons} >= {"outlined_loop"}, compiled.explain()


def test_a_structure_from_before_the_loop_stays_the_object_that_it_is_where_no_step_makes_another() -> None:
    def larger(state: Any, xs: Any) -> Any:
        for x in xs:
            if x.sum() > state["x"].sum():
                state = {"x": x * 1}
        return state

    compiled = outlined(larger)
    for k in range(CALLS):
        xs = normal(k, 20, 2)
        state = {"x": normal(k, 2) + (100 if k % 2 else 0)}
        expected, found = larger(state, xs), compiled(state, xs)
        assert (expected is state) is (found is state) is bool(k % 2)
        assert_equal(outcome(lambda y: y, (expected,), 0), outcome(lambda y: y, (found,), 0))
    assert not compiled.reasons and compiled.stats.compiled_calls >= CALLS - 4, compiled.explain()


# -- tuples, of which a copy is no other value, but another object
def falls_behind(x: Any, steps: int) -> Any:
    best = before = None
    for k in range(steps):
        current = Pair(x * (1 + k % 4), k)
        if best is None or current.x.sum() > best.x.sum():
            best = current
        elif before is best:
            return "behind", k
        before = current
    return "end", steps


def counts_the_same(x: Any, steps: int) -> Any:
    best = current = (0.0, "none")
    same = 0
    for k in range(steps):
        if best is current:
            same += 1
        current = (x[0].item() * (k % 3), "some")
        if current > best:
            best = current
    return same, best is current


def one_before_the_loop(x: Any, steps: int) -> Any:
    state = first = (x, 0)
    for _ in range(steps):
        if state[0].sum() > 1:
            state = (state[0] * 0.8, state[1] + 1)
    return state is first, state[1]


def twice_in_the_result(x: Any, steps: int) -> Any:
    best = last = (x, -1)
    for k in range(steps):
        x = halved(x)
        last = (x, k)
        if last[0].sum() > best[0].sum():
            best = last
    return best, last


@pytest.mark.parametrize("program", [falls_behind, counts_the_same, one_before_the_loop, twice_in_the_result])
@pytest.mark.parametrize("make", [outlined, lambda f: T.compile(f, wait=True)], ids=["outlined", "found"])
def test_tuples_are_the_objects_that_eager_mode_has(make: Any, program: Callable[..., Any]) -> None:
    compiled = make(program)
    for k in range(12):
        found = []
        for function in (program, compiled):
            result = function(abs(normal(k, 2)) * (0.2 if k % 2 else 1), 5 + 3 * k % 11)
            found.append((str(result), result[0] is result[1]))
        assert found[0] == found[1], (k, compiled.explain())


def test_a_tuple_that_no_step_replaces_is_the_one_that_was_given() -> None:
    def counted(x: Any, given: Any, steps: int) -> Any:
        state = given
        for _ in range(steps):
            x, same = halved(x), state
            state = same
        return state, x

    compiled = outlined(counted)
    for k in range(CALLS):
        given = (normal(k, 2), 3)
        assert counted(normal(k, 2), given, 12)[0] is given
        assert compiled(normal(k, 2), given, 12)[0] is given
    assert compiled.stats.compiled_calls >= CALLS - 3, compiled.explain()


def test_gradients_go_through_structures() -> None:
    def decayed(weight: Any, steps: int) -> Any:
        state = {"x": weight * 1, "n": 0}
        for _ in range(steps):
            x = state["x"] * weight if state["x"].sum() > 1 else state["x"] + weight
            state = {"x": x, "n": state["n"] + 1}
        return state["x"].sum()

    compiled = outlined(decayed)
    for k in range(CALLS):
        gradients = []
        for function in (decayed, compiled):
            weight = (T.ones(2, dtype=T.float64) * (0.4 + 0.05 * k)).requires_grad_()
            function(weight, 10 + k % 2).backward()
            gradients.append(weight.grad)
        assert T.allclose(*gradients), (k, gradients)
    assert compiled.stats.compiled_calls >= CALLS - 4 and not compiled.reasons, compiled.explain()
