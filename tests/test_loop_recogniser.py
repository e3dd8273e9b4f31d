"""capture/loop_recogniser.py: steps of Python's own loops that do not run, since those before show what they do; and steps that all run."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests import loop_programs
from tests.loop_programs import (
    BUFFER,
    COUNT,
    RUN,
    SETTINGS,
    WIDTH,
    W,
    backwards,
    by_position,
    by_second_position,
    cell,
    gradients,
    gradients_of_slices,
    gradients_of_weights,
    gru_with_outputs,
    in_a_loop,
    in_branches,
    inputs,
    loops,
    loss_in_each_step,
    losses_added_in_place,
    lstm,
    numbers_downwards,
    numbers_in_rows,
    numbers_in_the_program,
    one_before_the_last,
    outputs_of_two_lists,
    parameter,
    positions_updated,
    recurrent,
    same,
    second_derivatives,
    solver,
    some_detached,
    state_changed_in_place,
    state_in_a_tuple,
    states_in_a_list,
    steps_left_out,
    tape,
    training,
    unpacked_rows,
    used_afterwards,
    views_of_parts,
    with_neighbours,
    with_numbers,
    writing,
    writing_rows,
    zeros,
)
from tracejit import nn
from tracejit.capture import loop_recogniser
from tracejit.capture.session import record
from tracejit.core.tree import flatten
from tracejit.tensor import Tensor


def lists_made(xs: Any) -> Any:
    states = [zeros(), zeros()]
    for x in xs:
        states = [cell(h, x) for h in states]
    return states


@pytest.mark.parametrize(
    ("function", "left_out"),
    [
        (function, COUNT - RUN)
        for function in (
            recurrent, gradients_of_weights, gradients_of_slices, second_derivatives, by_position, by_second_position, backwards,
            numbers_downwards, solver, lstm, state_in_a_tuple, states_in_a_list, loss_in_each_step,
            training, some_detached, with_numbers, in_branches, views_of_parts, writing, writing_rows, numbers_in_the_program,
        )
    ]
    + [(function, COUNT - RUN - 1) for function in (one_before_the_last, used_afterwards, losses_added_in_place)]
    + [(with_neighbours, COUNT - 2 - RUN), (unpacked_rows, 2 * (COUNT - RUN)), (in_a_loop, 3 * (COUNT - RUN))]
    + [(numbers_in_rows, 2 * (COUNT - RUN) - 4)]
    + [(function, 0) for function in (gru_with_outputs, outputs_of_two_lists, positions_updated, state_changed_in_place, lists_made)],
)  # fmt: skip
def test_steps_that_a_node_stands_for_do_not_run(
    function: Callable[..., Any], left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps_left_out(function, monkeypatch) == left_out


# -- programs whose steps do more, or are other ones


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        self.count += 1
        return self.count


OUTSIDE = Counter()
NUMBERS = (1.0,) * 20 + (2.0,) * COUNT


def counting_in(kind: str) -> Callable[[Any], Any]:
    """A function whose steps do the same twenty times, and then something else."""

    def function(xs: Any) -> Any:
        listed: list[int] = []
        named: dict[str, int] = {}
        counted: set[int] = set()
        queue, iterator, counter = deque(NUMBERS), iter(NUMBERS), Counter()
        generated = (number for number in NUMBERS)
        weight, number, text = W.detach().clone(), 0, ""
        alias = holder = outs = [xs[0]]
        OUTSIDE.count = 0
        h = zeros()

        def stepped() -> int:
            nonlocal number
            number += 1
            return number

        def growing(default: Any = listed) -> int:
            default.append(1)
            return len(default)

        for x in xs:
            count = 0
            if kind == "list":
                listed.append(1)
                count = len(listed)
            elif kind == "alias":
                outs.append(h)
                count = len(alias)
            elif kind == "default":
                count = growing()
            elif kind == "dict":
                count = named["n"] = named.get("n", 0) + 1
            elif kind == "set":
                counted.add(len(counted))
                count = len(counted)
            elif kind == "deque":
                count = 30 * (queue.popleft() - 1)
            elif kind == "iterator":
                count = 30 * (next(iterator) - 1)
            elif kind == "generator":
                count = 30 * (next(generated) - 1)
            elif kind == "instance":
                count = counter.next()
            elif kind == "outside":
                count = OUTSIDE.next()
            elif kind == "function":
                stepped.__dict__["count"] = count = stepped.__dict__.get("count", 0) + 1
            elif kind == "tensor":
                weight.count = count = getattr(weight, "count", 0) + 1
            elif kind == "variable":
                number += 1
                count = number
            elif kind == "variable around":
                count = stepped()
            elif kind == "text":
                text = text + "."
                count = len(text)
            elif kind == "nested":
                holder[0] = (holder[0], x)
                count = 0
            elif kind == "grad mode":
                tj.set_grad_enabled(not tj.is_grad_enabled())
                count = 30 * tj.is_grad_enabled()
            h = cell(h, x) * (1.0 if count <= 20 else 2.0)
        tj.set_grad_enabled(True)
        return h

    return function


@pytest.mark.parametrize(
    "kind",
    [
        "list", "alias", "default", "dict", "set", "deque", "iterator", "generator", "instance", "outside", "function", "tensor",
        "variable", "variable around", "text", "nested", "grad mode",
    ],
)  # fmt: skip
def test_a_step_that_may_be_another_one_runs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_left_out(counting_in(kind), monkeypatch) == 0


def branching(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = h + x if x[0, 0] > 0 else h - x * 2
    return h


def numbers_carried_on(xs: Any) -> Any:
    h, most = zeros(), 0.0
    for x in xs:
        h = cell(h, x)
        most = max(most, h.sum().item())
    return h * most


def numbers_in_a_list(xs: Any) -> Any:
    h, losses = zeros(), []
    for x in xs:
        h = cell(h, x)
        losses.append(h.sum().item())
    return h, len(losses)


def test_numbers_of_a_list_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_left_out(numbers_in_a_list, monkeypatch) == COUNT - RUN


def writing_outside(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
        BUFFER.add_(1)
    return h, BUFFER.clone().fill_(0)


def drawing(xs: Any) -> Any:
    tj.manual_seed(3)
    h = zeros()
    for x in xs:
        h = nn.functional.dropout(cell(h, x), 0.5)
    return h


def number_as_an_operand(xs: Any) -> Any:
    h = zeros()
    for t in range(COUNT):
        h = cell(h, xs[t]) * t
    return h


def number_that_decides(xs: Any) -> Any:
    h = zeros()
    for t, x in enumerate(xs):
        h = cell(h, x)
        if t == 30:
            h = h * 2
    return h


def number_that_ends(xs: Any) -> Any:
    h = zeros()
    for t in range(COUNT):
        h = cell(h, xs[t])
        if t == 30:
            break
    else:
        h = h * 2
    return h, t


def number_passed_on(xs: Any) -> Any:
    def scaled(h: Any, t: int) -> Any:
        return h * 2 if t == 30 else h

    h = zeros()
    for t in range(COUNT):
        h = scaled(cell(h, xs[t]), t)
    return h


def positions_of_a_list(xs: Any) -> Any:
    h, factors = zeros(), [*[1.0] * 20, *[2.0] * 20]
    for t in range(COUNT):
        h = cell(h, xs[t]) * factors[t]
    return h


def positions_of_a_list_updated(xs: Any) -> Any:
    h, totals = zeros(), [0.0] * COUNT
    for t in range(COUNT):
        h = cell(h, xs[t])
        totals[t] += h
    return totals[-1], totals[3]


def positions_at_odds(xs: Any) -> Any:
    h, places = zeros(), (*range(20), *range(20))
    for t, x in zip(places, xs, strict=False):
        h = cell(h, x) * xs[t]
    return h


class Wrapping:
    def __sub__(self, other: int) -> int:
        return 0 if other < 20 else 1

    __rsub__ = __sub__


def positions_of_its_own(xs: Any) -> Any:
    h, far = zeros(), Wrapping()
    for t in range(COUNT):
        h = cell(h, xs[t]) + xs[far - t]
    return h


def positions_around_the_end(xs: Any) -> Any:
    h = zeros()
    for t in range(COUNT):
        h = cell(h, xs[t - 20]) + xs[20 - t]
    return h


def stored_in_a_dictionary(xs: Any) -> Any:
    h, found = zeros(), {}
    for t in range(COUNT):
        h = cell(h, xs[t])
        found[t] = h
    return found


def positions_multiplied(xs: Any) -> Any:
    h = zeros()
    for t in range(COUNT):
        h = cell(h, xs[t]) + xs[(t * t) % COUNT]
    return h


def list_that_is_read(xs: Any) -> Any:
    outs = [zeros(), zeros()]
    for x in xs:
        outs.append(cell(outs[-2], x))
    return outs


def list_that_a_function_has(xs: Any) -> Any:
    h, outs = zeros(), [zeros()]

    def last() -> Any:
        return outs[len(outs) // 2]

    for x in xs:
        h = cell(h, x) + last()
        outs.append(h)
    return h


def functions_made(xs: Any) -> Any:
    h, functions = zeros(), []
    for x in xs:
        functions.append(lambda h, x=x: cell(h, x))
        h = functions[-1](h)
    return h, functions[3](h)


def variable_of_a_function(xs: Any) -> Any:
    h = zeros()

    def stepped(x: Any) -> Any:
        return cell(h, x)

    for x in xs:
        h = stepped(x)
    return h


def the_first_one(xs: Any) -> Any:
    first = h = zeros()
    for x in xs:
        h = first if h is first else h
        first, h = h, cell(h, x) if first is not h else cell(x, h)
    return h


def elements_that_are_known(xs: Any) -> Any:
    h, parts = zeros(), xs.unbind(0)
    for x in parts:
        h = cell(h, x)
        if x is parts[30]:
            h = h * 2
    return h


def elements_in_a_list(xs: Any) -> Any:
    h, parts = zeros(), list(xs)
    for x in parts:
        h = cell(h, x)
        if len(parts) < COUNT + 5:
            parts.append(x * 2)
    return h


def growing(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = tj.cat([h[-3:], cell(h[-2:], x)])
    return h


def longer_and_longer(xs: Any) -> Any:
    h = xs[0]
    for x in xs:
        h = tj.cat([h, x])
    return h


def number_that_changes(xs: Any) -> Any:
    h, rate = zeros(), SETTINGS.rate
    for x in xs:
        h = cell(h, x) * rate
        rate = rate * 0.9
    return h


class Doubled(tj.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.5

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def own_gradient(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = Doubled.apply(cell(h, x)).tanh()
    return gradients(h.sum())


def hooked(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        y = h @ W + x
        y.register_hook(lambda g: g * 2)
        h = y.tanh()
    return gradients(h.sum(), W)


def inner_gradient(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        point = h.detach().requires_grad_()
        (slope,) = tj.autograd.grad(((point @ W - x) ** 2).sum(), point)
        h = h - 0.01 * slope
    return h.detach()


def told(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        h = cell(h, x)
        print("step", end=" ")
    return h


def in_few_steps(xs: Any) -> Any:
    h = zeros()
    for x in xs[:8]:
        h = cell(h, x)
    return h


def suspended(xs: Any) -> Any:
    def states() -> Any:
        h = zeros()
        for x in xs:
            h = cell(h, x)
            yield h

    total = zeros()
    for h in states():
        total = total + h
    return total


def without_a_value(xs: Any) -> Any:
    h = zeros()
    for x in xs:
        if SETTINGS.times > 5:
            h = extra = x * 2
            assert extra is h
        h = cell(h, x)
        y = h * 2
        del y
    return h


@pytest.mark.parametrize(
    "function",
    [
        branching, numbers_carried_on, writing_outside, number_as_an_operand, number_that_decides,
        number_that_ends, number_passed_on, positions_of_a_list, positions_of_a_list_updated, positions_at_odds,
        positions_of_its_own, positions_around_the_end, stored_in_a_dictionary, positions_multiplied, list_that_is_read,
        list_that_a_function_has, functions_made, variable_of_a_function, elements_that_are_known, elements_in_a_list,
        longer_and_longer, number_that_changes, own_gradient, hooked, told, in_few_steps, suspended,
        without_a_value,
    ],
)  # fmt: skip
def test_steps_that_differ_or_do_more_than_compute_run(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_left_out(function, monkeypatch) == 0


def test_steps_that_take_gradients_of_what_they_have_made_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_left_out(inner_gradient, monkeypatch) > 0


def swapped(xs: Any) -> Any:
    a, b, h = zeros() + 1, zeros() + 2, zeros()
    for x in xs:
        a, b = b, a
        h = cell(h, x) * a + b
    return h, a, b


def in_the_third_step(xs: Any) -> Any:
    h, flag = zeros(), None
    for x in xs:
        h = cell(h, x) if flag is None else cell(h, x) * 2
        flag = flag + 1 if flag is not None and flag < 2 else flag or 0
    return h


@pytest.mark.parametrize(("function", "later"), [(swapped, 0), (in_the_third_step, 2), (growing, 1), (the_first_one, 1)])
def test_steps_that_begin_otherwise_may_go_on_alike(
    function: Callable[..., Any], later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps_left_out(function, monkeypatch) == COUNT - RUN - later


def test_a_step_that_raises_runs_and_raises_where_it_stands() -> None:
    singular = tj.stack([tj.eye(WIDTH) * (k != 25) for k in range(COUNT)])

    def function(matrices: Any, lines: list[int]) -> Any:
        h, seen = tj.zeros(WIDTH), []
        for matrix in matrices:
            try:
                h = (tj.linalg.solve(matrix, h + 1) + h.sin() * h.cos()).tanh() + h.sin()
                seen.append(h)
            except RuntimeError as error:
                assert error.__traceback__ is not None
                lines.append(error.__traceback__.tb_lineno)
                break
        return h, len(seen)

    places: list[int] = []
    result, count = tj.compile(function)(singular, places)
    assert count == 25 and len(places) == 1
    assert result.equal(function(singular, places)[0])
    assert places[0] == places[1]


def test_what_steps_leave_in_memory_is_changed_once_each() -> None:
    totals = tj.zeros(2)

    def function(xs: Any) -> Any:
        view = totals[:1]
        for x in xs:
            view.add_(x.sum().sigmoid() * 0 + 1)
        return view.clone()

    compiled = tj.compile(function)
    for k in range(1, 4):
        assert compiled(inputs()).item() == k * COUNT
        assert totals.tolist() == [k * COUNT, 0]


def test_explain_tells_how_many_steps_did_not_run() -> None:
    compiled = tj.compile(recurrent)
    compiled(inputs())
    assert f"{COUNT - RUN} steps of loops were recorded without running" in compiled.explain(verbose=True)


def test_recording_a_long_loop_runs_no_more_of_the_program_than_a_short_one() -> None:
    calls = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name == "cell"

    def ran(length: int) -> int:
        nonlocal calls
        calls = 0
        sys.settrace(counted)
        try:
            record(recurrent, (parameter(length, 2, WIDTH).detach(),), {})
        finally:
            sys.settrace(None)
        return calls

    assert ran(COUNT) == ran(5 * COUNT) == RUN


# -- programs by chance


class Author:
    """Writes a function with a loop whose steps may do anything: mostly the same, now and then something else."""

    HEADERS = (
        "for x in xs:", "for t in range(COUNT):", "for t, x in enumerate(xs):", "for x, z in zip(xs, xs * 2):",
        "for t in range(1, COUNT - 1):", "for t, x in zip(places, xs):", "for t, x in enumerate(xs[3:], 3):",
        "for t in range(0, COUNT, 2):", "for t, x in zip(range(COUNT - 1, -1, -1), xs):",
    )  # fmt: skip
    STATEMENTS = (
        "h = cell(h, {v})", "k = ({v} @ U + k).sin()", "h, k = k, h", "before = h", "h = ({v} + {v}).tanh()", "y = {v} * 0.5",
        "pair = (h, {v})", "h, k = pair", "states[0] = ({v} + states[1]).tanh()", "states = [states[1], states[0]]",
        "named['a'] = named['a'] * 0.5 + {v}", "total += {v}.sum()", "total = total + h.sum() * n", "outs.append({v})", "others.append(h)",
        "k = outs[-1].tanh()", "n = n + 1", "n = (n + 1) % 2", "h = h.clone()\n{i}h.mul_(0.5)", "buffer[0] = {v}.detach()",
        "buffer[t] = {v}.detach()", "k = (k + xs[t]).tanh()", "k = (k + xs[COUNT - 1 - t]).tanh()", "k = (k + xs[t - 3]).tanh()",
        "k = k * 0.5 + factors[t]", "h = scaled(h)", "h = h * (1.0 if h is k else 0.5)", "k = k.detach()", "rate = rate * 0.5",
        "h = h * SETTINGS.rate", "first = xs[0]", "y, z = h.chunk(2, 1)", "h = tj.cat([h[1:], k[:1]])", "k = buffer[1] + k",
        "k = k * rate", "alias = outs", "k = k + buffer.sum()",
    )  # fmt: skip
    CONDITIONS = (
        "n < 20",
        "n == 1",
        "len(outs) < 15",
        "h is before",
        "SETTINGS.times == 3",
        "h.requires_grad",
        "t == 30",
        "k is first",
    )

    def __init__(self, seed: int) -> None:
        self.choose = np.random.default_rng(seed)

    def one(self, of: tuple[str, ...]) -> str:
        return of[int(self.choose.integers(len(of)))]

    def statement(self, depth: int) -> str:
        indent, kind = "    " * depth, self.choose.random()
        if kind < 0.08 and depth < 4:
            return f"{indent}if {self.one(self.CONDITIONS)}:\n{self.statement(depth + 1)}"
        if kind < 0.12 and depth < 4:
            return f"{indent}for j in range(2):\n{self.statement(depth + 1)}"
        if kind < 0.15 and depth < 4:
            return f"{indent}with tj.no_grad():\n{self.statement(depth + 1)}"
        if kind < 0.16:
            return f"{indent}if n > 25:\n{indent}    {self.one(('break', 'continue'))}"
        value = self.one(("x", "h", "k", "y", "before", "states[0]", "named['a']", "z", "W.sum() * h", "h.exp()"))
        return indent + self.one(self.STATEMENTS).replace("{v}", value).replace("{i}", indent)

    def program(self) -> str:
        lines = [
            "def function(xs):",
            "    h, k, n, rate, t, total = zeros(), zeros() + 1, 0, 1.0, 0, 0",
            "    x = y = z = before = first = xs[0] * 0.5",
            "    pair, states, named, outs, others = (h, k), [h, k], {'a': h}, [h], []",
            "    alias, buffer, factors = others, tj.zeros(COUNT, 2, WIDTH, dtype=tj.float64), [0.1] * 20 + [0.2] * COUNT",
            "    places = (*range(20), *range(20))",
            "    def scaled(v):",
            f"        return v * {self.one(('0.5', 'rate', 'SETTINGS.rate', 'first', 'len(outs)'))}",
            f"    {self.one(self.HEADERS)}",
            *[self.statement(2) for _ in range(int(self.choose.integers(3, 9)))],
            "    return h, k, n, rate, t, total, x, y, z, before, pair, states, named, outs[:40], others[:40], len(alias), buffer",
        ]
        return "\n".join(lines) + "\n"


def written(seed: int, folder: Path) -> Callable[..., Any]:
    """A function by chance, whose source stands in a file."""
    path = folder / f"loop_by_chance_{seed}.py"
    path.write_text(Author(seed).program())
    names: dict[str, Any] = {**vars(loop_programs), "__name__": path.stem, "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    function: Callable[..., Any] = names["function"]
    return function


def agrees_by_chance(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many steps a recording of a function by chance leaves out, if it is what a recording that leaves out none is."""
    function = written(seed, folder)
    try:
        expected = function(inputs())
    except Exception as error:  # the function makes no sense; it has to fail alike
        with pytest.raises(type(error)):
            record(function, (inputs(),), {})
        return 0
    recording, result = record(function, (inputs(),), {})
    with monkeypatch.context() as patched:
        patched.setattr(loop_recogniser, "_TRIES", 0)
        complete, other = record(function, (inputs(),), {})
    assert recording.reason == complete.reason
    assert loops(recording) or recording.graph == complete.graph
    found, wanted, eager = (flatten(x)[0] for x in (result, other, expected))
    assert [flatten(x)[1] for x in (result, other)] == [flatten(expected)[1]] * 2
    for a, b, c in zip(found, wanted, eager, strict=True):
        if isinstance(c, Tensor):
            same((a, b), (c, c))
            assert tape(b) == tape(c)
            assert loops(recording) or tape(a) == tape(b)
        else:
            assert a == b == c
    aliases = [
        [i for i, x in enumerate(values) for y in values[:i] if x is y and isinstance(x, Tensor)]
        for values in (found, wanted, eager)
    ]
    assert aliases[0] == aliases[1] == aliases[2]
    return recording.left_out


def test_loops_by_chance_are_recorded_as_if_all_steps_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_out = [agrees_by_chance(seed, tmp_path, monkeypatch) for seed in range(60)]
    assert sum(count > 0 for count in left_out) >= 5


def over_a_range_without_a_length(x):
    for i in range(10**20):
        x = x + i
        if i > 12:
            break
    return x


def with_numbers_of_a_range_without_a_length(x):
    for i, n in enumerate(range(-(10**20), 10**20)):
        x = x + i if n < 0 else x
        if i > 12:
            break
    return x


def with_numbers_of_a_long_range(x):
    for i, n in enumerate(range(10**9)):
        x = x + n
        if i > 12:
            break
    return x


def beside_a_long_range(x):
    for i, n in zip(range(10**20), range(14), strict=False):
        x = x * i + n
    return x


@pytest.mark.parametrize(
    "function",
    [
        over_a_range_without_a_length,
        with_numbers_of_a_range_without_a_length,
        with_numbers_of_a_long_range,
        beside_a_long_range,
    ],
)
def test_a_loop_over_more_than_can_be_counted_runs_until_it_is_left(function):
    compiled = tj.compile(function)
    for k in range(3):
        x = tj.tensor([1.0, k])
        assert compiled(x).tolist() == function(x).tolist()
    assert compiled.stats.compiled_calls == 2


@pytest.mark.parametrize("left_at", range(2, 25))
def test_a_loop_that_is_left_before_a_variable_is_assigned_has_what_the_step_before_has_left(left_at: int) -> None:
    def program(xs: Any, goes_on: bool) -> Any:
        before = found = first = total = xs[0]
        held = {"x": xs[0]}
        for x in xs:
            if x > 1 and not goes_on:
                break
            if x > 1:
                found = before
            before, first = x * 1, before
            held["x"] = x + total
            total = total * 0.5 + x
        return before, first, found, held["x"], total

    xs = tj.tensor([0.01 * k for k in range(24)])
    if left_at < 24:
        xs[left_at] = 2.0
    for goes_on in (False, True):
        compiled = tj.compile(program)
        for _ in range(3):
            for expected, found in zip(program(xs, goes_on), compiled(xs, goes_on), strict=True):
                np.testing.assert_allclose(expected.numpy(), found.numpy(), rtol=1e-6)
