"""capture/reached_lists.py: steps of branching loops that append to lists in objects, compiled against eager."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import assert_equal, normal, outcome, outlined
from tests.test_branching_loops import messages
from tests.test_outlined_loops import defined


class Walk:
    """A state that steps change, and what they note of it."""

    def __init__(self) -> None:
        self.history: list[Any] = []
        self.energies: list[float] = []
        self.steps = 0

    def __repr__(self) -> str:
        return f"Walk({vars(self)})"

    def note(self, x: Any) -> None:
        self.energies.append((x * x).sum().item())


def moved(x: Any) -> Any:
    proposed = x + 0.3 * T.randn(3)
    return proposed if proposed.sum() > -1 else x * 0.5


# -- programs: given a tensor, a number of steps, and an object or a list
def in_an_attribute(x: Any, n: int, walk: Any) -> Any:
    for _ in range(n):
        x = moved(x)
        walk.history.append(x)
    return x


def by_a_method(x: Any, n: int, walk: Any) -> Any:
    for _ in range(n):
        x = moved(x)
        walk.steps += 1
        walk.note(x)
    return x


def in_some_steps(x: Any, n: int, walk: Any) -> Any:
    for t in range(n):
        x = moved(x)
        if x[0] > 0.5:
            walk.history.append((t, x[0].item()))
            if x[1] > 0:
                walk.energies.append(x[1].item())
    return x, n


def as_dictionaries(x: Any, n: int, walk: Any) -> Any:
    for t in range(n):
        x = moved(x)
        kind = "high" if x.sum() > 0 else "low"
        walk.history.append({"t": t, "x": x.clone(), "kind": kind, "none": None})
    return x


def texts(x: Any, n: int, walk: Any) -> Any:
    for _ in range(n):
        if x.sum() > 0.4:
            x = x * 0.5
            walk.history.append("down")
        else:
            x = x + 0.3 * T.rand(3)
            walk.history.extend(["up", "again"] if x[0] > 0 else ["up"])
    return x


def until_far(x: Any, n: int, walk: Any) -> Any:
    while True:
        x = moved(x)
        walk.energies.append(x.abs().max().item())
        if x.abs().max() > 0.2 * n:
            walk.history.append("far")
            return x * 2
        if x.abs().max() > 100:
            break
    return x


def one_object_again(x: Any, n: int, walk: Any) -> Any:
    first = x
    for t in range(n):
        proposed = moved(x)
        x = proposed if proposed[0] > x[0] - 0.3 else x
        walk.history.extend([x, first] if t % 4 == 3 else [x])
        walk.energies.append(x)
    return x


def with_output(x: Any, n: int, walk: Any) -> Any:
    for t in range(n):
        x = moved(x)
        if x.sum() > 0:
            print(t, "up")
        walk.energies.append(x.sum().item())
    return x


def in_two_loops(x: Any, n: int, walk: Any) -> Any:
    for _ in range(n):
        x = moved(x)
        walk.energies.append(x.sum().item())
    walk.energies.append(-1.0)
    for _ in range(n):
        x = moved(x) * 0.9
        walk.energies.append(x.sum().item())
    return x


def in_a_dictionary(x: Any, n: int, walk: Any) -> Any:
    log: dict[str, list[Any]] = {"x": [], "t": [], "kept": [x.sum().item()]}
    for t in range(n):
        x = moved(x)
        log["x"].append(x.sum().item())
        if x[0] > 0:
            log["t"].append(t)
            log["kept"].append(x[0].item())
    return x, log


def in_a_new_attribute(x: Any, n: int, walk: Any) -> Any:
    walk.history = []
    for _ in range(n):
        x = moved(x)
        walk.history.append(x * 2)
    return T.stack(walk.history).sum(0)


@dataclass
class Trajectory:
    xs: list[Any] = field(default_factory=list)
    ups: int = 0


def in_a_new_object(x: Any, n: int, walk: Any) -> Any:
    trajectory = Trajectory()
    for _ in range(n):
        y = moved(x)
        trajectory.ups += 1 if y.sum() > x.sum() else 0
        x = y
        trajectory.xs.append(x)
    return trajectory.ups, trajectory.xs


def in_two_loops_of_its_own(x: Any, n: int, walk: Any) -> Any:
    chain: dict[str, list[Any]] = {"x": [], "phase": []}
    for _ in range(n):
        x = moved(x)
        chain["x"].append(x.sum().item())
        chain["phase"].append("burn")
    for _ in range(n):
        x = moved(x) * 0.9
        chain["x"].append(x.sum().item())
        chain["phase"].append("keep")
    return x, chain, len(chain["x"]), chain["phase"][-1]


def by_a_function(x: Any, n: int, walk: Any) -> Any:
    kept: list[Any] = []

    def keep(y: Any) -> None:
        kept.append(y[0].item())

    for _ in range(n):
        x = moved(x)
        keep(x)
    return x, kept


def looked_at_afterwards(x: Any, n: int, walk: Any) -> Any:
    log: dict[str, list[Any]] = {"x": []}
    for _ in range(n):
        x = moved(x)
        log["x"].append(x.sum().item())
    xs = log["x"]
    return sum(xs) / len(xs), xs[0], xs[-1], xs[2:4], [y * 2 for y in xs], len(log), [*xs], xs.copy(), xs * 2, f"{len(xs)}"


PROGRAMS = [
    in_an_attribute, by_a_method, in_some_steps, as_dictionaries, texts, until_far, with_output, in_two_loops, in_a_dictionary,
    one_object_again, in_a_new_attribute, in_a_new_object, in_two_loops_of_its_own, by_a_function, looked_at_afterwards,
]  # fmt: skip


def given(k: int, n: int = 9) -> tuple[Any, ...]:
    walk = Walk()
    walk.energies += [0.5] * (k % 3)
    return normal(k, 3), n, walk


def seen(function: Callable[..., Any], arguments: tuple[Any, ...], seed: int) -> Any:
    """The outcome of a call, and what is in the object that it was given."""
    walk = arguments[2]
    found = outcome(lambda *_: (function(*arguments), walk.history, walk.energies, walk.steps), arguments[:2], seed)
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_items_go_to_lists_in_objects(program: Any, capsys: Any) -> None:
    compiled = outlined(program)
    served = 0
    for k in range(10):
        n = 9 if k < 8 else 4 + k
        expected, text = seen(program, given(k, n), k), capsys.readouterr().out
        served = compiled.stats.compiled_calls if k == 6 else served
        assert_equal(expected, seen(compiled, given(k, n), k))
        assert capsys.readouterr().out == text
    assert compiled.stats.compiled_calls - served >= 2, compiled.explain()
    assert "loop of" in compiled.explain(verbose=True) or "loop while" in compiled.explain(verbose=True)


# -- what looks at a list while steps append to it, or afterwards
LOOKS = [
    "len(log)", "log[-1]", "log[0]", "1.0 if log else 2.0", "1.0 if 0.5 in log else 2.0", "sum(log)", "max(log)", "len([*log])",
    "sum(y for y in log)", "sorted(log)[0]", "len(str(log)) * 0", "float(log == [0.5])", "len(log + [1.0])", "log.index(log[0])",
    "sum(log[-2:])", "largest(*log)", "next(reversed(log))", "T.tensor(log, dtype=T.float64).sum().item()", "last_of(log)",
    "len(copy.deepcopy(box).log)", "log.pop()", "log.insert(0, 1.0) or 1", "log.sort() or 1", "log.clear() or 1", "matched(log)",
    "log.append(log[-1]) or 1", "len(vars(box)['log'])", "len(list.__add__(log, [2.0]))", "math.fsum(log)", "float(log is box.log)",
]  # fmt: skip
NAMES = "import copy, math\nimport tracejit as T\nfrom tests.test_reached_lists import Box, largest, last_of, matched, moved\n"


class Box:
    def __init__(self) -> None:
        self.log: list[Any] = []


def largest(*values: float) -> float:
    return max(values)


def last_of(values: Any) -> Any:
    *_, last = values
    return last


def matched(values: Any) -> Any:
    match values:
        case [first, *_]:
            return first
    return 0.0


def assert_same_logs(program: Any, compiled: Any, is_new: bool, calls: list[tuple[Any, ...]]) -> None:
    """Calls of both functions, each with a box of its own that has a log, have the same outcomes."""
    boxes = Box(), Box()
    for box in boxes:
        box.log.append(0.5)
    for k, given in enumerate(calls):
        expected, found = [
            outcome(lambda *given, f=f, box=box: (f(*given, box, is_new), box.log), given, k)
            for f, box in zip((program, compiled), boxes, strict=True)
        ]
        assert_equal(expected, found)


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "outside"])
@pytest.mark.parametrize("look", LOOKS)
def test_whatever_looks_at_a_list_finds_what_eager_mode_has(look: str, is_new: bool) -> None:
    begin = "    box, total = Box() if is_new else box, 0.0\n    log = box.log\n    for t in range(n):\n        x = moved(x)\n"
    append = "        box.log.append(x.sum().item())\n"
    steps = [
        f"{append}    total = float({look})\n",
        f"{append}        if t % 3 == 2: total = total + float({look})\n",
        f"        if t: total = total + float({look})\n{append}",
        f"        if t == n - 1: total = total + float({look})\n        elif x.sum() > -3: box.log.append(t)\n",
    ]
    number = LOOKS.index(look)
    for step in {steps[number % 4], steps[0 if is_new else 1 + number % 3]}:
        program = defined(f"{NAMES}def f(x, n, box, is_new):\n{begin}{step}    return x, total, box.log\n")
        assert_same_logs(program, outlined(program), is_new, [(normal(k, 3), 7) for k in range(3)])


def program_in(name: str) -> Any:
    """A program whose steps append to a list in an object and do something else."""
    return defined(
        "from tests.test_reached_lists import moved\n"
        f"def f(x, n, walk):\n    for t in range(n):\n        x = moved(x)\n{OTHERS[name][0]}    return x\n"
    )


OTHERS = {
    "while it is gone over": ("        for y in walk.energies: x = x + y\n        walk.energies.append(0.1)\n", "a step reads, or changes"),
    "an item from outside": ("        walk.history.append(moved)\n", "a step appends a function to a list"),
    "items of two kinds": ("        walk.history.append((1, 2.0) if t % 2 else [x])\n", "a step appends a list to a list"),
    "other parts": ("        walk.history.append((1, 2.0) if t % 2 else (1, 'a'))\n", "items of a list differ in their parts"),
    "one dictionary twice": (
        "        kept = {'t': t}\n        walk.history.extend([kept, kept])\n", "a dictionary that something else holds, too",
    ),
    "one dictionary again": ("        walk.history.append(KEPT)\n", "a dictionary that something else holds, too"),
    "with gradients": ("        y = x.detach().requires_grad_()\n        walk.history.append(y * 2)\n", "requires grad"),
    "in a loop in it": (
        "        while x.sum() > 0.1:\n            x = x * 0.5 - 0.1\n            walk.energies.append(0.1)\n", "a list in an object",
    ),
}  # fmt: skip
KEPT: dict[str, float] = {"t": 1.0}


@pytest.mark.parametrize("name", OTHERS)
def test_steps_that_do_more_with_lists_in_objects_run_in_python(name: str) -> None:
    program = program_in(name)
    program.__globals__["KEPT"] = KEPT
    compiled = outlined(program)
    for k in range(4):
        assert_equal(seen(program, given(k), k), seen(compiled, given(k), k))
    assert OTHERS[name][1] in messages(compiled), compiled.explain()


def raising(x: Any, n: int, walk: Any) -> Any:
    try:
        for t in range(n):
            x = moved(x)
            walk.history.append(x)
            walk.energies.append(x.sum().item())
            if t == 6:
                raise ValueError(len(walk.energies))
    except ValueError as error:
        return x, error.args
    return x


def handed_over(x: Any, n: int, walk: Any) -> Any:
    last = x
    for t in range(n):
        last = x
        x = moved(x)
        walk.history.append(last)
        walk.history.append({"t": t, "x": x * 2})
        if t == 5:
            walk.kept = [last, x, walk.history[-2], len(walk.history)]
    return x, last


def made_as_they_are_needed(x: Any, n: int, walk: Any) -> Any:
    log, kept = defaultdict(list), [[], walk.history]
    for t in range(n):
        x = moved(x)
        log["t"].append(t)
        kept[1].append(x)
    return x, dict(log)


def taken_from_a_queue(x: Any, n: int, walk: Any) -> Any:
    waiting, kept = deque(range(20)), [[], walk.history]
    for _ in range(n):
        x = moved(x) + waiting.popleft()
        kept[1].append(x)
    return x, list(waiting)


def counted_outside(x: Any, n: int, walk: Any) -> Any:
    kept = [[], walk.energies]
    for t in range(n):
        x = moved(x)
        kept[1].append(x.sum().item())
        COUNTED.append(t)
        COUNTED.pop(0)
        SEEN.add(len(SEEN))
    return x, [*COUNTED], len(SEEN)


COUNTED, SEEN = [0, 1, 2], set[int]()


@pytest.mark.parametrize("program", [made_as_they_are_needed, taken_from_a_queue, counted_outside], ids=lambda f: f.__name__)
def test_a_step_that_changes_something_else_is_not_made_again(program: Any) -> None:
    compiled = outlined(program)
    for k in range(4):
        sides = []
        for function in (program, compiled):
            COUNTED[:], _ = [0, 1, 2], SEEN.clear()
            sides.append(seen(function, given(k), k))
        assert_equal(*sides)


def looked_at_in_a_part(x: Any, n: int, walk: Any) -> Any:
    y = x
    for t in range(n):
        x = x * 0.5 + T.randn(3)
        if x.sum() > 0:
            if t == n - 1:
                walk.steps += len(walk.history)
            x = x * 0.9
        if T.rand(()) < 0.4:
            x = y
            walk.history.append((t, x * 2))
        else:
            x = y
        walk.history.append((t, x))
        y = x + 1
    return x


@pytest.mark.parametrize("program", [raising, handed_over, looked_at_in_a_part], ids=lambda f: f.__name__)
def test_lists_have_all_items_where_the_recording_stops(program: Any) -> None:
    compiled = outlined(program)
    for k in range(4):
        expected, found = given(k), given(k)
        assert_equal(seen(program, expected, k), seen(compiled, found, k))
        kept = [getattr(x[2], "kept", None) for x in (expected, found)]
        if kept[0] is not None:
            assert [y is x[2].history[10] for x, ys in zip((expected, found), kept, strict=True) for y in ys[:3]] == [
                True,
                False,
                True,
            ] * 2


# -- loops whose steps all do the same (loop_recogniser.py): given rows, as many as differ from call to call, and an object
def settle(h: Any, y: Any) -> Any:
    return (h * 0.5 + y).tanh()


def states_in_an_attribute(ys: Any, walk: Any) -> Any:
    h = T.zeros(3, dtype=T.float64)
    for t in range(len(ys)):
        h = settle(h, ys[t])
        walk.history.append(h)
    return h


def states_in_a_new_attribute(ys: Any, walk: Any) -> Any:
    h, walk.history = T.zeros(3, dtype=T.float64), []
    for y in ys:
        walk.history.append(h)
        h = settle(h, y)
    return T.stack(walk.history).mean(0), len(walk.history)


def numbers_in_an_attribute(ys: Any, walk: Any) -> Any:
    h, total = T.zeros(3, dtype=T.float64), 0.0
    for y in ys:
        h = settle(h, y)
        walk.note(h)
        total += h[0].item()
        walk.history.append(total)
    return h


def lists_in_a_dictionary(ys: Any, walk: Any) -> Any:
    log: dict[str, list[Any]] = {"h": [], "sum": []}
    h = T.zeros(3, dtype=T.float64)
    for y in ys:
        h = settle(h, y)
        log["h"].append(h)
        log["sum"].append(h.sum())
    return {k: T.stack(v) for k, v in log.items()}, log


def lists_as_they_are_needed(ys: Any, walk: Any) -> Any:
    log: Any = defaultdict(list)
    h = T.zeros(3, dtype=T.float64)
    for y in ys:
        h = settle(h, y)
        log["h"].append(h * 2)
        log["e"].append((h * h).sum().item())
    return T.stack(log["h"]), T.tensor(log["e"], dtype=T.float64), dict(log)


def lists_in_a_list(ys: Any, walk: Any) -> Any:
    out: list[list[Any]] = [[], []]
    h = T.zeros(3, dtype=T.float64)
    for y in ys:
        h = settle(h, y)
        out[0].append(h)
        out[1].append(h + 1)
    return T.stack(out[0]), T.cat(out[1]), sum(out[0])


def joined_by_a_function(ys: Any, walk: Any) -> Any:
    out = []
    h = T.zeros(3, dtype=T.float64)
    for y in ys:
        h = settle(h, y)
        out.append(h)
    return joined(out), out


def joined(items: list[Any]) -> Any:
    return T.stack(items).sum(), len(items)


def by_a_function_of_a_step(ys: Any, walk: Any) -> Any:
    kept: list[Any] = []

    def keep(y: Any) -> None:
        kept.append(y * 2)

    h = T.zeros(3, dtype=T.float64)
    for y in ys:
        h = settle(h, y)
        keep(h)
    return T.stack(kept)


def stored_twice(ys: Any, walk: Any) -> Any:
    h = T.zeros(3, dtype=T.float64)
    for y in ys:
        h = settle(h, y)
        walk.last = h
        walk.history.append(h)
    walk.history.append(h)
    return walk.last is walk.history[-1], walk.last is walk.history[-2]


def handed_from_variable_to_variable(ys: Any, walk: Any) -> Any:
    before = h = T.zeros(3, dtype=T.float64)
    for y in ys:
        before = h
        h = settle(h, y)
        walk.history.append(h)
    return h, before


def in_an_attribute_of_an_argument(ys: Any, walk: Any) -> Any:
    h, walk.history = T.zeros(3, dtype=T.float64), []
    for y in ys:
        h = h + y if y.sum() > 0 else h * 0.5
        walk.history.append(h)
    return T.stack(walk.history).mean(0)


STEADY = [
    states_in_an_attribute, states_in_a_new_attribute, numbers_in_an_attribute, lists_in_a_dictionary, lists_as_they_are_needed,
    lists_in_a_list, joined_by_a_function, by_a_function_of_a_step, handed_from_variable_to_variable,
]  # fmt: skip


def rows_of(k: int, count: int) -> Any:
    return normal(k, 3 * count).reshape(count, 3)


def seen_in(function: Any, ys: Any, walk: Any) -> Any:
    return outcome(lambda ys: (function(ys, walk), vars(walk)), (ys,), 1)


@pytest.mark.parametrize("program", STEADY, ids=lambda f: f.__name__)
def test_one_recording_serves_all_lengths(program: Any) -> None:
    compiled = T.compile(program, wait=True)
    for k in range(8):
        assert_equal(seen_in(program, rows_of(k, 12 + k % 5), Walk()), seen_in(compiled, rows_of(k, 12 + k % 5), Walk()))
    assert compiled.stats.compiled_calls >= 6 and compiled.stats.traces == 2, compiled.explain(verbose=True)


@pytest.mark.parametrize("program", [states_in_a_new_attribute, in_an_attribute_of_an_argument], ids=lambda f: f.__name__)
def test_a_list_that_calls_replace_is_none_of_their_sizes(program: Any) -> None:
    compiled, expected, found = T.compile(program, wait=True), Walk(), Walk()
    for k in range(30):
        n = 10 + k * 7 % 19
        assert_equal(seen_in(program, rows_of(k, n), expected), seen_in(compiled, rows_of(k, n), found))
    assert compiled.stats.compiled_calls >= 23 and compiled.stats.traces <= 7, compiled.explain()


def test_a_log_that_is_longer_in_each_call_may_be_in_an_argument() -> None:
    compiled, expected, found = T.compile(states_in_an_attribute, wait=True), Walk(), Walk()
    for k in range(16):
        served = compiled.stats.compiled_calls
        assert_equal(seen_in(states_in_an_attribute, rows_of(k, 20 + k), expected), seen_in(compiled, rows_of(k, 20 + k), found))
        assert k < 8 or compiled.stats.compiled_calls > served, compiled.explain(verbose=True)


def test_items_that_require_grad_are_those_that_later_steps_computed_with() -> None:
    compiled = T.compile(states_in_an_attribute, wait=True)
    for k in range(5):
        slopes = []
        for function in (states_in_an_attribute, compiled):
            walk = Walk()
            h = function(rows_of(k, 12 + k).requires_grad_(), walk)
            slopes.append(T.autograd.grad(h.sum(), walk.history[3:12:4]))
        assert all(T.allclose(x, y, rtol=1e-9) for x, y in zip(*slopes, strict=True))


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "outside"])
@pytest.mark.parametrize("look", LOOKS)
def test_whatever_looks_at_a_list_that_all_steps_append_to_finds_what_eager_mode_has(look: str, is_new: bool) -> None:
    begin = "    box, total = Box() if is_new else box, 0.0\n    log = box.log\n    for x in xs:\n        y = y * 0.5 + x\n"
    append = "        box.log.append(y.sum().item())\n"
    after = [
        f"{append}    total = float({look})\n    box.log.append(2.0)\n    box.log.append(float({look}))\n",
        f"{append}        total = total + float({look})\n",
        f"        total = total + (float({look}) if log else 0.0)\n{append}",
        f"{append}    for x in xs:\n        y = y * 0.5 + x\n{append}    total = float({look})\n",
    ]
    number = LOOKS.index(look)
    for rest in {after[number % 4], after[0], after[1 if is_new else 3]}:
        program = defined(f"{NAMES}def f(xs, y, box, is_new):\n{begin}{rest}    return y, total, box.log\n")
        assert_same_logs(
            program, T.compile(program, wait=True), is_new, [(rows_of(k, 12 + k % 2), normal(k, 3)) for k in range(4)]
        )


def cleared_before(ys: Any, walk: Any) -> Any:
    walk.history.clear()
    walk.energies.clear()
    h = T.zeros(3, dtype=T.float64)
    for y in ys:
        h = settle(h, y)
        walk.history.append(h)
        if h.sum() > 0:
            walk.energies.append(h[0].item())
    return T.stack(walk.history), len(walk.energies), T.tensor(walk.energies, dtype=T.float64) if len(walk.energies) else h


def cleared_and_read(ys: Any, walk: Any) -> Any:
    walk.history.clear()
    walk.history.append(1.5)
    h = T.zeros(3, dtype=T.float64)
    for y in ys:
        h = settle(h, y)
        walk.history.append(h.sum().item())
    return walk.history[0], walk.history[-1], sum(walk.history), [x * 2 for x in walk.history]


class Lengths(logging.Handler):
    """Notes how long a list is whenever something is logged."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__()
        self.items, self.found = items, list[int]()

    def emit(self, record: Any) -> None:
        self.found.append(len(self.items))


LOG = logging.getLogger("tests.reached_lists")
LOG.propagate, LOG.level = False, logging.INFO


def logged_in_each_step(ys: Any, walk: Any) -> Any:
    h = T.zeros(3, dtype=T.float64)
    for y in ys:
        h = settle(h, y)
        walk.history.append(h)
        LOG.info("a step")
    return h


def logged_between_loops(ys: Any, walk: Any) -> Any:
    h = T.zeros(3, dtype=T.float64)
    for y in ys:
        h = settle(h, y)
        walk.history.append(h)
    LOG.info("half of it")
    walk.history.append(h * 2)
    for y in ys:
        h = settle(h, y) if y.sum() > 0 else h * 0.5
        walk.history.append(h)
    LOG.info("all")
    return h


@pytest.mark.parametrize("program", [logged_in_each_step, logged_between_loops], ids=lambda f: f.__name__)
def test_what_is_called_after_the_program_finds_the_items_so_far(program: Any) -> None:
    compiled = T.compile(program, wait=True)
    for k in range(6):
        lengths = []
        for function in (program, compiled):
            walk = Walk()
            handler = Lengths(walk.history)
            LOG.addHandler(handler)
            try:
                function(rows_of(k, 12 + k % 3), walk)
            finally:
                LOG.removeHandler(handler)
            lengths.append((handler.found, len(walk.history)))
        assert lengths[0] == lengths[1]


def changed_otherwise(how: str) -> Any:
    return defined(
        f"{NAMES}def f(x, n, walk):\n    kept = [[], walk.history]\n    for t in range(n):\n        x = moved(x)\n"
        f"        kept[1].append(1.5)\n        kept[1].append(t)\n        kept[1].{how}\n    return x\n"
    )


@pytest.mark.parametrize("how", ["pop(0)", "insert(0, 2.5)", "extend([3.5])", "reverse()", "remove(1.5)"])
def test_steps_that_change_a_list_otherwise_leave_what_eager_mode_leaves(how: str) -> None:
    program = changed_otherwise(how)
    compiled = outlined(program)
    for k in range(4):
        assert_equal(seen(program, given(k, 5), k), seen(compiled, given(k, 5), k))


def joined_twice(ys: Any, walk: Any) -> Any:
    some, log = [], {"y": []}
    for y in ys:
        if y[0] > 0:
            some.append(y)
            log["y"].append(y * 2)
    return sum(some) / len(some), sum(log["y"]), len(log["y"]), sum(log["y"]), T.stack(log["y"]).mean(0)


def plain_loop_then_one_that_branches(ys: Any, walk: Any) -> Any:
    kept: list[list[Any]] = [[], []]
    h = T.zeros(3, dtype=T.float64)
    for y in ys:
        h = settle(h, y)
        kept[1].append(h)
    for y in ys:
        h = settle(h, y) if y.sum() > 0 else h * 0.5
        kept[1].append(h)
    return T.stack(kept[1])


@pytest.mark.parametrize("program", [joined_twice, plain_loop_then_one_that_branches], ids=lambda f: f.__name__)
def test_lists_of_several_loops_are_joined(program: Any) -> None:
    compiled = outlined(program)
    for k in range(12):
        ys = rows_of(k, 14 + k % 3)
        assert_equal(seen_in(program, ys, Walk()), seen_in(compiled, ys, Walk()))
    assert not compiled.reasons and compiled.stats.compiled_calls >= 2, compiled.explain(verbose=True)


class Equal:
    """A function that compares with anything."""

    def __call__(self, items: list[Any]) -> int:
        return len(items)

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    __hash__ = None  # type: ignore[assignment]


def test_a_function_that_gets_a_list_is_not_compared() -> None:
    equal = Equal()

    def program(ys: Any, walk: Any) -> Any:
        walk.history, h = [], T.zeros(3, dtype=T.float64)
        for y in ys:
            h = settle(h, y)
            walk.history.append(h)
        return h, equal(walk.history)

    compiled = T.compile(program, wait=True)
    for k in range(4):
        assert_equal(seen_in(program, rows_of(k, 12), Walk()), seen_in(compiled, rows_of(k, 12), Walk()))
    assert compiled.stats.compiled_calls >= 2 and not compiled.reasons, compiled.explain()


@pytest.mark.parametrize("how", [outlined, lambda f: T.compile(f, wait=True)], ids=["outlined", "compiled"])
@pytest.mark.parametrize("program", [cleared_before, cleared_and_read], ids=lambda f: f.__name__)
def test_a_list_from_outside_that_is_cleared_is_known(program: Any, how: Any) -> None:
    compiled, expected, found = how(program), Walk(), Walk()
    for k in range(10):
        ys = rows_of(k, 20 + k % 3)
        assert_equal(seen_in(program, ys, expected), seen_in(compiled, ys, found))
    assert compiled.stats.compiled_calls >= 4, compiled.explain(verbose=True)


def test_joining_a_list_without_items_raises_what_eager_mode_raises() -> None:
    def program(ys: Any, walk: Any) -> Any:
        walk.history = []
        for y in ys:
            if y.sum() > 0:
                walk.history.append(y * 2)
        return T.stack(walk.history).sum(0)

    compiled = outlined(program)
    for k in range(12):
        ys = rows_of(k, 12 + k % 3) - (10 if k % 4 == 3 else 0)
        assert_equal(seen_in(program, ys, Walk()), seen_in(compiled, ys, Walk()))
    assert compiled.stats.compiled_calls >= 4, compiled.explain(verbose=True)


@pytest.mark.parametrize("program", [stored_twice], ids=lambda f: f.__name__)
def test_an_item_is_the_object_that_eager_mode_has(program: Any) -> None:
    compiled = T.compile(program, wait=True)
    for k in range(5):
        expected, found = Walk(), Walk()
        assert_equal(seen_in(program, rows_of(k, 12 + k), expected), seen_in(compiled, rows_of(k, 12 + k), found))
        assert [x is expected.last for x in expected.history] == [x is found.last for x in found.history]
