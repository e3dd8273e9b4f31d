"""capture/step_places.py: loops whose steps take different paths and store in attributes and items, as one node, against eager."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import assert_equal, density, loops_of_paths, normal, outcome, outlined
from tracejit import nn
from tracejit.core.tree import flatten


class Box:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slots:
    __slots__ = ("h", "n")


class Checked(Box):
    """Attributes go through code of the class."""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def level(self) -> Any:
        return self.h * 2

    @level.setter
    def level(self, value: Any) -> None:
        self.h = value * 0.5


@dataclasses.dataclass
class State:
    h: Any
    n: int = 0
    t: float = 0.0


class Chain:
    """A Metropolis chain."""

    def __init__(self, x: Any) -> None:
        self.x, self.accepted, self.best, self.energy = x, 0, None, 0.0

    def step(self) -> None:
        proposed = self.x + 0.8 * T.randn(3)
        if T.rand(()) < density(proposed) / density(self.x):
            self.x = proposed
            self.accepted += 1
        self.note()

    def note(self) -> None:
        self.energy = (self.x * self.x).sum().item()
        if self.best is None or self.x.sum() > self.best.sum():
            self.best = self.x * 1


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.h = normal(5, 3)

    def forward(self, x: Any) -> Any:
        if (self.h * x).sum() > 0.5:
            self.h = self.h * 0.5 - x
            self.calls += 1
        else:
            self.h = self.h + x * 0.3
        return self.h


# -- what is one node
def attributes(box: Any, n: int) -> Any:
    for _ in range(n):
        if box.h.sum() > 1:
            box.h = box.h * 0.5
            box.n += 1
        else:
            box.h = box.h + T.rand(3)
    return box.h * box.n


def floats(box: Any, n: float) -> Any:
    while box.t < n:
        if box.h.sum() > 1:
            box.h, box.t = box.h * 0.5, box.t + 0.5
        else:
            box.h, box.t = box.h + T.rand(3), box.t + 0.25
    return box.t


def items(state: Any, n: int) -> Any:
    for _ in range(n):
        if state["h"].sum() > 1:
            state["h"] = state["h"] * 0.5
            state["n"] += 1
        else:
            state["h"] = state["h"] + T.rand(3)
    return state["n"], next(iter(state.values())), {**state}["n"]


def methods(chain: Any, n: int) -> Any:
    for _ in range(n):
        chain.step()
    return chain.x


def modules(cell: Any, xs: Any) -> Any:
    outs = []
    for x in xs:
        outs.append(cell(x))
    return T.stack(outs), cell.calls


def nested_objects(box: Any, n: int) -> Any:
    for _ in range(n):
        inner = box.inner
        inner["h"] = inner["h"] * 0.5 if inner["h"].sum() > 1 else inner["h"] + T.rand(3)
        box.other.h = inner["h"] if inner["h"].sum() > 0.7 else box.other.h
    return box.inner["h"]


def made_in_the_call(h: Any, n: int) -> Any:
    state, box, counts = State(h), Box(h=h, n=1), {"large": 0, "small": 0}
    for _ in range(n):
        if state.h.sum() > 1:
            state.h, state.t = state.h * 0.5, state.t + 0.5
            counts["large"] += 1
        else:
            state.h, box.n = state.h + T.rand(3), box.n + 2
            counts["small"] += 1
        if box.h.sum() < state.h.sum():
            box.h = state.h
    return state.h, state.t, box.h, box.n, counts, box.h is h


def two_names_of_one_object(box: Any, n: int) -> Any:
    other = box
    for _ in range(n):
        if box.h.sum() > 1:
            other.h = other.h * 0.5
        else:
            box.h = box.h + 0.3
            other.n += 1
    return other.h, box.n


def one_tensor_in_two_places(box: Any, x: Any, n: int) -> Any:
    h = x
    for _ in range(n):
        h = h * 0.5 if h.sum() > 1 else h + T.rand(3)
        box.h = h
        if h.sum() > 0.8:
            box.g = x
    return h, box.h is h, box.g is x


def setters(box: Any, n: int) -> Any:
    for _ in range(n):
        if box.level.sum() > 1:
            box.level = box.level * 0.4
        else:
            box.level = box.h + T.rand(3)
            box.n += 1
    return box.n


def sums_in_place(box: Any, x: Any, n: int) -> Any:
    for _ in range(n):
        x = x * 0.5 if x.sum() > 1 else x + T.rand(3)
        box.h += x
        box.n += 1
    return x


def loops_in_loops(box: Any, n: int) -> Any:
    for _ in range(n):
        box.h = box.h * 0.5 if box.h.sum() > 1 else box.h + T.rand(3)
        while box.h.sum() < 0.5:
            box.h = box.h + 0.2
            box.n += 1
    return box.n


def bools(box: Any, n: int) -> Any:
    box.up = False
    for _ in range(n):
        box.h = box.h * 0.5 if box.up else box.h + T.rand(3)
        box.up = bool(box.h.sum() > 1)
    return box.h


def gradients(box: Any, w: Any, n: int) -> Any:
    box.h = w * 0
    for _ in range(n):
        box.h = box.h * w if box.h.sum() > 1 else box.h + w
    grad = T.autograd.grad(box.h.sum(), w)[0]
    box.h = box.h.detach()
    return grad


def left_early(box: Any, xs: Any) -> Any:
    for x in xs:
        box.n += 1
        if x < -1:
            return box.n, x * 2
        box.h = box.h + x if x > 0 else box.h * 0.5
        if box.h.sum() > 4:
            break
    return box.n


def box(k: int, cls: Any = Box) -> Any:
    made = cls(h=normal(k, 3), n=k, t=0.5) if cls is not Slots else Slots()
    made.h, made.n = normal(k, 3), k
    return made


PROGRAMS: dict[str, tuple[Any, Callable[[int], tuple[Any, ...]]]] = {
    "attributes": (attributes, lambda k: (box(k), 14)),
    "slots": (attributes, lambda k: (box(k, Slots), 14)),
    "code of the class": (attributes, lambda k: (box(k, Checked), 14)),
    "a dataclass": (attributes, lambda k: (box(k, State), 14)),
    "floats": (floats, lambda k: (box(k), 5.0)),
    "items": (items, lambda k: ({"h": normal(k, 3), "n": k, "other": "text"}, 14)),
    "methods": (methods, lambda k: (Chain(normal(k, 3)), 20)),
    "modules": (modules, lambda k: (Cell(), normal(k, 12, 3))),
    "nested objects": (nested_objects, lambda k: (Box(inner={"h": normal(k, 3)}, other=box(k)), 14)),
    "made in the call": (made_in_the_call, lambda k: (normal(k, 3), 14)),
    "two names": (two_names_of_one_object, lambda k: (box(k), 14)),
    "two places": (one_tensor_in_two_places, lambda k: (Box(h=normal(k, 3), g=normal(k + 1, 3), n=1), normal(k, 3), 14)),
    "setters": (setters, lambda k: (box(k, Checked), 14)),
    "in place": (sums_in_place, lambda k: (box(k), normal(k + 1, 3), 14)),
    "loops in loops": (loops_in_loops, lambda k: (box(k), 14)),
    "bools": (bools, lambda k: (box(k), 14)),
    "gradients": (gradients, lambda k: (box(k), normal(k, 3).abs().requires_grad_(), 9)),
    "left early": (left_early, lambda k: (box(k), normal(k, 14))),
}


def contents(x: Any) -> Any:
    if isinstance(x, Slots):
        return {"h": x.h, "n": x.n}
    if isinstance(x, Box | State | Chain):
        return {name: contents(y) for name, y in vars(x).items()}
    return [x.h, x.calls] if isinstance(x, Cell) else x


def result(function: Any, given: tuple[Any, ...], k: int) -> Any:
    """What a call gives, what the objects that it is given hold then, and which tensors of them these are."""
    before = [x for x in flatten(list(map(contents, given)))[0] if isinstance(x, T.Tensor)]
    given_tensors = [x for x in given if isinstance(x, T.Tensor)]
    found = outcome(lambda *tensors: function(*given), tuple(given_tensors), k)
    after, structure = flatten(list(map(contents, given)))
    every = [x for x in (*found[0], *after) if isinstance(x, T.Tensor)]
    first: dict[int, int] = {}
    objects = [first.setdefault(id(x), n) for n, x in enumerate(every)]
    return found, (after, str(structure), objects, [[n for n, y in enumerate(before) if y is x] for x in every], [])


def compare(function: Any, compiled: Any, given: Callable[[int], tuple[Any, ...]], k: int) -> None:
    for expected, found in zip(result(function, given(k), k), result(compiled, given(k), k), strict=True):
        assert_equal(expected, found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_whose_steps_store_in_objects_is_one_node(name: str) -> None:
    function, given = PROGRAMS[name]
    compiled = outlined(function, Chain.step, Chain.note, Cell.forward)
    for k in range(24):
        compare(function, compiled, given, k)
    assert compiled.stats.compiled_calls >= 16 and compiled.stats.traces <= 6, compiled.explain()
    assert min(loops_of_paths(compiled)) >= 1 and not compiled.reasons, compiled.explain()


def test_the_policy_itself_makes_a_long_loop_of_methods_one_node() -> None:
    compiled = T.compile(methods, wait=True)
    for k in range(8):
        compare(methods, compiled, lambda k: (Chain(normal(k, 3)), 600), k)
    assert compiled.stats.compiled_calls >= 4 and not compiled.stats.piecewise_calls and not compiled.reasons, compiled.explain()


@pytest.mark.parametrize(
    "read",
    [
        "copy.copy(box).h", "getattr(box, 'h')", "dataclasses.replace(box).h", "box.h * box.n", "(state | {})['h']",
        "[*state.values()][0]", "{**state}['h']", "dict(state)['h']", "state.copy()['h']", "state.get('h')",
        "[*reversed(state.values())][-1]", "list(state.items())[0][1]", "T.stack([*state.values()][:1])[0]",
        "(lambda h, n: h)(**state)", "state['h'] * ((state | {})['n'] + 1)", "box.h * len(str(box.n))",
    ],
)  # fmt: skip
@pytest.mark.parametrize("made", ["", "box, state = State(box.h, box.n), {'h': state['h'], 'n': state['n']}"])
def test_whatever_reads_an_object_finds_what_steps_have_stored(read: str, made: str) -> None:
    from tests.test_outlined_loops import defined

    text = f"""
def f(box, state, x, n):
    {made or "pass"}
    for k in range(n):
        seen = {read}
        if state["h"].sum() > box.h.sum():
            state["h"], box.n = state["h"] * 0.5, box.n + 1
        else:
            box.h, state["n"] = box.h * 0.5 - x.abs(), state["n"] + 1
        x = x + seen * 0.01 if T.rand(()) < 0.5 else x * 0.9
    return x, box.h, box.n, state
"""
    function = defined(text, T=T, copy=copy, dataclasses=dataclasses, State=State)
    compiled = outlined(function)
    for k in range(6):
        compare(function, compiled, lambda k: (State(normal(k, 2), 1), {"h": normal(k + 1, 2), "n": 1}, normal(k + 2, 2), 12), k)


# -- where the recording stops
SEEN: list[Any] = []


def raising(box: Any, x: Any) -> Any:
    for k in range(9):
        box.n += 1
        x = x * 0.5 if x.sum() > 1 else x + 0.4
        if k == 5:
            raise ValueError(f"{box.n} steps")
        box.h = x


def stopping(box: Any, x: Any) -> Any:
    for k in range(9):
        box.h = box.h * 0.5 if box.h.sum() > 1 else box.h + 0.4
        box.n += 1
        if k == 4:
            SEEN.append(box.h)
            box.g = (box.h, x)
            box.t = 3.5
        x = box.h if x.sum() > 1 else x + 0.3
    return x, box.g


def stopping_in_the_middle(box: Any, x: Any) -> Any:
    same = 0
    for k in range(9):
        if k == 4:
            same += box.h is x
            box.g = x
        box.h = x if k % 2 else box.h * 0.5
        box.n += 1
        same += box.h is x
    return x, same


def other_kinds(box: Any, x: Any) -> Any:
    for _ in range(9):
        x = x * 0.5 if x.sum() > 1 else x + 0.4
        box.h = None if x.sum() > 1 else x
    return x


def deleted(box: Any, x: Any) -> Any:
    for k in range(9):
        x = x * 0.5 if x.sum() > 1 else x + 0.4
        box.h = x
        if k == 8:
            delattr(box, "h")
    return x


def new_attribute(box: Any, x: Any) -> Any:
    for _ in range(9):
        x = x * 0.5 if x.sum() > 1 else x + 0.4
        box.fresh = x
    return x, box.fresh is x


def new_objects(box: Any, x: Any) -> Any:
    state = State(x)
    for _ in range(9):
        state = State(state.h * 0.5 if state.h.sum() > 1 else state.h + 0.4, state.n + 1)
        box.n += 1
    return state.h, state.n


def written_in_place(box: Any, x: Any) -> Any:
    for _ in range(9):
        x = x * 0.5 if x.sum() > 1 else x + 0.4
        box.h = box.h * 0.5
        box.h.add_(x)
    return x


REFUSED: dict[Any, str] = {
    raising: "the call raised ValueError",
    stopping: "'box.g' holds other kinds of things after some steps",
    stopping_in_the_middle: "which object a variable holds",
    other_kinds: "'box.h' holds other kinds of things after some steps",
    deleted: "a step deletes an attribute or an item",
    new_attribute: "a step changes what it has not made",
}  # fmt: skip
"""Functions whose loops are no nodes, and what the reason says; the one that is not here is one."""


@pytest.mark.parametrize("function", [*REFUSED, written_in_place], ids=lambda f: f.__name__)
def test_objects_are_as_eager_mode_has_them_where_a_recording_stops(function: Any) -> None:
    def given(k: int) -> tuple[Any, ...]:
        x = normal(k, 3)
        return Box(h=x if k % 2 else normal(k + 1, 3), g=None, n=0, t=0.5), x

    compiled, messages = outlined(function), set[str]()
    for k in range(6):
        seen = []
        for f in (function, compiled):
            SEEN.clear()
            made = given(k)
            seen.append((result(f, made, k), [x is made[0].g[0] for x in SEEN if made[0].g]))
        for expected, found in zip(seen[0][0], seen[1][0], strict=True):
            assert_equal(expected, found)
        assert seen[0][1] == seen[1][1]
        messages |= {reason.message for reason in compiled.reasons}
    assert function not in REFUSED or any(REFUSED[function] in x for x in messages), messages


def test_an_object_that_a_global_or_a_cell_holds_is_found() -> None:
    def counter_program() -> tuple[Any, Any]:
        state = {"h": normal(1, 3), "n": 0}

        def stepped(n: int) -> Any:
            for _ in range(n):
                state["h"] = state["h"] * 0.5 if state["h"].sum() > 1 else state["h"] + T.rand(3)
                state["n"] += 1
            return state["h"] * 2

        return stepped, state

    (eager, expected), (function, found) = counter_program(), counter_program()
    compiled = outlined(function)
    for k in range(6):
        assert_equal(outcome(eager, (9,), k), outcome(compiled, (9,), k))
        assert_equal(outcome(lambda: expected, (), k), outcome(lambda: found, (), k))
    assert compiled.stats.compiled_calls == 5 and not compiled.reasons, compiled.explain()


def test_what_is_guarded_of_a_dictionary_after_the_loop_is_what_was_there_before() -> None:
    def stepped(state: Any, n: int) -> Any:
        for _ in range(n):
            state["n"] += 1 if state["h"].sum() > 1 else 2
            state["h"] = state["h"] * 0.5 if state["h"].sum() > 1 else state["h"] + 0.4
        return list(state.values()), len(state), "other" in state

    compiled = outlined(stepped)
    for k in range(8):
        compare(stepped, compiled, lambda k: ({"h": normal(k, 3), "n": k, "other": 1.5}, 9), k)
    assert compiled.stats.compiled_calls >= 5, compiled.explain()
