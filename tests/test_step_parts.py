"""capture/syntax/step_parts.py: steps that branch several times, in parts: what is divided, and the loops, compiled against eager."""

from __future__ import annotations

import re
from types import FunctionType
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tracejit as T
from tests.branching_programs import agrees, assert_equal, loops_of_paths, normal, outcome, outlined
from tests.test_branching_loops import messages
from tests.test_outlined_loops import loops_of
from tracejit.capture import branching_loops
from tracejit.capture.syntax.loops import UNBOUND


# -- what is divided
def parts_of(body: str) -> int:
    """How many parts the step of a loop with this body has."""
    lines = "".join(f"        {line}\n" for line in body.split("\n"))
    (loop,) = loops_of(f"def f(x, v, n):\n    for t in range(n):\n{lines}    return x, v\n")
    return len(loop.parts)


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ("x = x + 1", 0),
        ("if x > 0: x = -x", 0),
        ("if x > 0: x = -x\nif v > 0: v = -v", 2),
        ("if x > 0: x = -x\nif v > 0: v = -v\nx = x + v", 3),
        ("x = x + v\nv = v if x > 0 else -v\nif v > 1: v = v - 1", 2),
        ("if x > 0: continue\nif v > 0: v = -v\nx = x + v", 0),
        ("if x > 0: break\nif v > 0: return x\nx = x + v", 0),
        ("if x > 0:\n    if v > 0: v = -v\n    break\nif v > 1: v = v - 1\nx = x + v", 3),
        ("for k in range(3):\n    if x > k: x = x - v\nif v > 1: v = v - 1\nx = x + v", 3),
        ("x = min(x, 1)\nv = max(v, 0)\nx = x + v", 0),
    ],
)
def test_a_step_is_divided_after_each_statement_that_may_go_on_by_several_paths(body: str, parts: int) -> None:
    assert parts_of(body) == parts


def test_parts_take_what_they_read_and_leave_what_is_read_later() -> None:
    text = "def f(x, n):\n    for t in range(n):\n        y = x * t\n        if y > 0: x = y\n        z = x + t\n        if z > 1: x = z\n"
    first, second = loops_of(text + "        s = 1\n    return x, s\n")[0].parts[:2]
    assert (first.live_ins, first.live_outs) == (("x",), ("x",))
    assert (second.live_ins, second.live_outs) == (("x",), ("x",))
    passing = loops_of(text.replace("z = x + t", "z = y") + "    return x\n")[0]
    assert passing.parts[0].live_outs == ("x", "y") and passing.parts[1].live_ins == ("x", "y") and passing.passed == {"y"}


STATEMENTS = [
    "x = x + 1", "y = x * 2", "if x % 3 == 0: x = x + y", "if y > t: y = y - 1", "if x > 9: x = x - 7", "if t == 3: continue",
    "if x > 30: break", "if y > 25: return x, y, -1", "z = y if x % 2 else x", "x, y = y, x", "if z > 5: z = 0",
    "if t % 2:\n            z = z + 1\n            if z > 2: continue", "while y > 9: y = y - 4", "x += t",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(STATEMENTS), min_size=2, max_size=7), st.integers(0, 6), st.integers(0, 6))
def test_the_parts_one_after_another_do_what_the_step_does(body: list[str], x: int, y: int) -> None:
    text = "def f(x, y, n):\n    z = 0\n    for t in range(n):\n"
    text += "".join(f"        {line}\n" for line in body) + "    return x, y, z\n"
    (loop,) = [loop for loop in loops_of(text) if loop.line == 3]
    assume(loop.parts)
    step = _function(loop.code)
    parts = [_function(part.code) for part in loop.parts]
    whole = dict.fromkeys(loop.live_ins, UNBOUND) | {"x": x, "y": y, "z": 0}
    divided = dict.fromkeys(loop.passed, UNBOUND) | whole
    for t in range(5):
        way, values = step(t, *[whole[name] for name in loop.live_ins])
        end, left = "proceeds", ()
        for part, function in zip(loop.parts, parts, strict=True):
            end, left = function(t, *[divided[name] for name in part.live_ins])
            if end == "returns":
                break
            divided.update(zip(part.live_outs, left, strict=True))
            if end != "proceeds":
                break
        assert end == way
        if way == "returns":
            assert left == values
            return
        whole.update(zip(loop.live_outs, values, strict=True))
        assert {name: divided[name] for name in loop.live_outs} == {name: whole[name] for name in loop.live_outs}


def _function(code: Any) -> Any:
    return FunctionType(code, {})


# -- compiled against eager
def walls(x: Any, n: int) -> Any:
    x, v = x.clone(), T.tensor([0.7, 0.4, 0.3])
    hits = 0
    for _ in range(n):
        x = x + 0.3 * v
        if x[0] < -1:
            x, v, hits = x + 0.1, -v, hits + 1
        if x[0] > 1:
            x, v, hits = x - 0.1, -v, hits + 1
        if x[1] < -1:
            v = v * T.tensor([1.0, -1.0, 1.0])
        if x[1] > 1:
            v = v * T.tensor([1.0, -1.0, 1.0])
        if T.rand(()) < 0.2:
            v = v + 0.1 * T.randn(3)
    return x, v, hits


def found_between(x: Any, n: int) -> Any:
    """Tensors, numbers, flags, texts and None that one part finds and another one looks at."""
    kept, word, best = [x * 1], "none", None
    for t in range(n):
        y = x + T.randn(3)
        is_low = y.sum() < 0
        if is_low:
            y, size = y * 0.5, 1
        else:
            size = 2
        word = "low" if is_low else "high"
        if y.max() > 1:
            x, flag = y, True
        else:
            flag = False
        if flag and (best is None or y.sum() > best.sum()):
            best = y
        if word == "high":
            kept.append(x * size)
        x = x * 0.9 if t % 2 else x
    return x, best, T.stack(kept)


def left_in_the_middle(x: Any, n: int) -> Any:
    total = 0
    for t in range(n):
        x = x + T.randn(3)
        if x[0] > 0:
            x = x * 0.5
            if x[1] > 1:
                continue
        if x[1] > 0:
            total += t
        if x[2] > 2.5:
            break
        if x.sum() < -9:
            return x * 0, total
        total += 1
    else:
        return x, -total
    return x, total


def until(x: Any, n: int) -> Any:
    t = dt = 0.1
    rejected = 0
    while t < n:
        error = float((x.sin() * dt).abs().max())
        if error < 0.2:
            t, x = t + dt, x - dt * x.sin()
        else:
            rejected += 1
        if error < 0.05:
            dt *= 1.5
        if error > 0.3:
            dt *= 0.5
        if T.rand(()) < 0.1:
            x = x + 1
    return x, t, rejected


def rows(xs: Any, n: int) -> Any:
    low, high, sums = xs[0], xs[0], xs[0] * 0
    for k, row in enumerate(xs):
        if row.sum() < low.sum():
            low = row + 0
        if row.sum() > high.sum():
            high = row + k
        if row[0] > 0:
            sums = sums + row
    return low, high, sums


def items(xs: list[Any], n: int) -> Any:
    total, count = xs[0][0] * 0, 0
    for x, weight in xs:
        if x.sum() > 0:
            total = total + weight * x
        if x[0] > 0.5:
            count += 1
        if weight > 1:
            total = total * 0.9 + x
    return total, count


def written(x: Any, n: int) -> Any:
    out = T.zeros(n, 3)
    for t in range(n):
        x = x + T.randn(3)
        if x[0] > 0:
            x = -x
        if x[1] > 0:
            out[t] = x
        if x[2] > 0:
            x = x * 0.5
    return x, out


def in_a_loop(x: Any, n: int) -> Any:
    hits = 0
    for _ in range(n):
        y = x
        while y.abs().max() < 4:
            y = y + T.randn(3)
            if y[0] > 1:
                y = y - 0.5
            if y[1] > 1:
                y, hits = y * 1.5, hits + 1
            if y[2] > 1:
                y = y + 0.25
        x = 0.1 * y
    return x, hits


def _reflected(x: Any) -> Any:
    if x.sum() > 1:
        return x - 1
    return x


def calls_of_the_program(x: Any, n: int) -> Any:
    for _ in range(n):
        x = x + T.randn(3)
        x = _reflected(x)
        y = _reflected(-x)
        x = _reflected(y) + 0.1
    return x


class Walker:
    def __init__(self) -> None:
        self.x, self.steps, self.state = T.zeros(3), 0, "idle"

    def walk(self, x: Any, n: int) -> Any:
        for _ in range(n):
            self.x = self.x + x * T.randn(3)
            if self.x[0] > 1:
                self.x = self.x - 1
            if self.x[1] > 1:
                self.steps += 1
            if self.x[2] > 1:
                self.x, self.steps = -self.x, self.steps + 2
        return self.x * 1, self.steps


PROGRAMS = {
    "walls": (walls, lambda k: (normal(k, 3), 40)),
    "what parts hand on": (found_between, lambda k: (normal(k, 3), 40)),
    "steps that end in the middle": (left_in_the_middle, lambda k: (normal(k, 3), 40)),
    "a while loop": (until, lambda k: (normal(k, 3), 12)),
    "rows": (rows, lambda k: (normal(k, 60, 3), 0)),
    "items": (items, lambda k: ([(normal(100 * k + j, 3), 0.5 * (j % 4)) for j in range(40)], 0)),
    "tensors that steps write to": (written, lambda k: (normal(k, 3), 40)),
    "a loop in a loop": (in_a_loop, lambda k: (normal(k, 3) * 0.1, 12)),
    "calls": (calls_of_the_program, lambda k: (normal(k, 3), 40)),
}


def counts_of_paths(compiled: Any) -> list[list[int]]:
    """For each recording whose steps ran in parts, how many paths each part has."""
    remarks = [text for path in compiled._table.paths for text in path.recording.remarks]
    return [[*map(int, re.findall(r"(\d+) paths?, taken", text))] for text in remarks if " parts, each by " in text]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_that_branches_several_times_runs_in_parts(name: str) -> None:
    function, arguments = PROGRAMS[name]
    others = (_reflected,) if function is calls_of_the_program else ()
    compiled = agrees(function, arguments, *others, calls=14, recordings=8)
    assert not compiled.reasons, compiled.explain()
    if function is in_a_loop:  # the steps of the inner one run in parts, of which nothing is said
        assert True in (branching_loops._divided.get(in_a_loop.__code__) or {}).values()
    else:
        assert counts_of_paths(compiled), compiled.explain(verbose=True)


def test_attributes_that_parts_store_are_those_of_eager_mode() -> None:
    plain, stepped = Walker(), Walker()
    compiled = outlined(stepped.walk)
    for k in range(10):
        x = normal(k, 3)
        assert_equal(outcome(plain.walk, (x, 30), k), outcome(compiled, (x, 30), k))
        assert (plain.steps, plain.x.tolist()) == (stepped.steps, pytest.approx(stepped.x.tolist()))
    assert compiled.stats.compiled_calls >= 5 and counts_of_paths(compiled), compiled.explain()


def rare(bits: int) -> Any:
    def program(x: Any, n: int) -> Any:
        count = 0
        for _ in range(n):
            x = 0.9 * x + 0.1 * T.randn(3)
            if T.rand(()) < 0.05:
                x, count = x + 1, count + 1
            if T.rand(()) < 0.05:
                x, count = x - 2, count + 1
            if T.rand(()) < 0.05:
                x, count = x * 2, count + 1
            if T.rand(()) < 0.05:
                x, count = -x, count + 1
            if T.rand(()) < 0.05:
                x, count = x + 3, count + 1
        return x, count

    return program


def test_k_branches_in_a_row_have_two_paths_each_and_no_recording_for_each_combination() -> None:
    compiled = agrees(rare(5), lambda k: (normal(k, 3), 120), calls=30, recordings=2)
    assert counts_of_paths(compiled)[-1] == [2, 2, 2, 2, 2], compiled.explain()
    assert compiled.stats.compiled_calls == 30 - compiled.stats.traces


def test_the_steps_so_far_are_made_again_when_a_step_is_divided() -> None:
    def program(x: Any, n: int) -> Any:
        seen = []
        for t in range(n):
            if t == 0:
                x = x + 10  # a path of the first step alone
            if T.rand(()) < 0.5:
                x = x + T.randn(3)
            if x.sum() > 9:
                x = x * 0.5
            seen.append(x.sum().item())
        return x, T.tensor(seen), len(seen)

    compiled = agrees(program, lambda k: (normal(k, 3), 25), recordings=3)
    assert counts_of_paths(compiled), compiled.explain()


# -- what cannot be divided
def test_where_parts_cannot_be_carried_on_the_next_call_is_recorded_with_whole_steps() -> None:
    def pair(x: Any, n: int) -> Any:
        for _ in range(n):
            if x.sum() > 0:
                found = (x, 1)
            else:
                found = (x + 1, 2)
            if x.max() > 1:
                x = x - found[0] * 0.5
            if x.min() < -1:
                x = x * 0.5
            x = x + found[1] * T.randn(3)
        return x

    compiled = agrees(pair, lambda k: (normal(k, 3), 60), calls=14, recordings=8)
    assert [reason.code for reason in compiled.reasons] == ["divided_step"], compiled.explain()
    assert not counts_of_paths(compiled) and "'found' is a tuple after a step" in messages(compiled)


def test_several_parts_append_to_one_list_in_the_order_of_eager_mode() -> None:
    def program(x: Any, n: int) -> Any:
        kept = [x]
        for _ in range(n):
            x = x + T.randn(3)
            if x[0] > 0:
                kept.append(x * 1)
            if x[1] > 0:
                kept.append(x * 2)
            if x[2] > 0:
                x = -x
        return T.stack(kept)

    compiled = agrees(program, lambda k: (normal(k, 3), 50), calls=14, recordings=3)
    assert counts_of_paths(compiled) and not compiled.reasons, compiled.explain()


def test_a_step_that_stops_the_recording_in_its_middle_goes_on_with_its_next_part() -> None:
    def program(x: Any, n: int) -> Any:
        log: Any = []
        count = 0
        for t in range(n):
            x = x + T.randn(3)
            if x[0] > 0:
                x, count = x * 0.5, count + 1
            if x[1] > 0:
                count += 2
                if t > 20:
                    log = {t}  # a set: that is not carried on
            if x[2] > 0:
                x, count = -x, count + 1
        return x, count, len(log)

    compiled = outlined(program)
    for k in range(6):
        assert_equal(outcome(program, (normal(k, 3), 40), k), outcome(compiled, (normal(k, 3), 40), k))
    assert "outlined_loop" in messages(compiled)


def test_an_error_in_the_middle_of_a_divided_step_leaves_what_eager_mode_leaves() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def run(self, x: Any, n: int) -> Any:
            for _ in range(n):
                x = x + T.randn(3)
                if x[0] > 0:
                    self.count += 1
                if x[1] > 0:
                    x = x * 0.5
                if x[2] > 2:
                    raise ValueError(f"after {self.count}")
            return x

    plain, stepped = Counter(), Counter()
    compiled = outlined(stepped.run)
    for k in range(10):
        x = normal(k, 3)
        expected, found = outcome(plain.run, (x, 30), k), outcome(compiled, (x, 30), k)
        assert_equal(expected, found)
        assert plain.count == stepped.count


def test_gradients_through_a_loop_of_several_branches_are_those_of_eager_mode() -> None:
    def program(x: Any, w: Any, n: int) -> Any:
        for _ in range(n):
            x = (x * w + 0.1 * T.randn(3)).tanh()
            if x[0] > 0:
                x = x * 0.9
            if x[1] > 0:
                x = -x
            if x[2] > 0:
                x = x + 0.1 * w
        return T.autograd.grad(x.sum(), w)[0], x.detach()

    compiled = agrees(program, lambda k: (normal(k, 3), normal(k + 50, 3).requires_grad_(), 30), calls=14, recordings=3)
    assert counts_of_paths(compiled) and not compiled.reasons, compiled.explain()


def test_a_recording_that_stops_in_the_middle_of_a_step_goes_on_with_the_tape_of_the_parts_before() -> None:
    def program(x: Any, w: Any, n: int) -> Any:
        kept = []
        for t in range(n):
            y = (x * w + 0.1 * T.randn(3)).tanh()
            if y[0] > 0:
                y = y * w
            if y[1] > 0:
                x = y - 0.1 * x
                kept.append(y.sum())
            if t == 25:
                T.autograd.grad(y.sum(), w, retain_graph=True)
                last = [y * w]
            if y[2] > 0:
                x = x + 0.1 * w * y
        return T.autograd.grad((x.sum() + last[0].sum() + T.stack(kept).sum()), w)[0], len(kept)

    compiled = outlined(program)
    for k in range(6):
        given = normal(k, 3), normal(k + 50, 3).requires_grad_(), 30
        assert_equal(outcome(program, given, k), outcome(compiled, given, k))
    assert compiled.reasons


def test_a_loop_that_was_divided_once_is_divided_from_its_first_steps_in_later_recordings() -> None:
    function = rare(5)
    compiled = outlined(function)
    for k, shape in enumerate([(3,), (3,), (1, 3), (1, 3)]):
        assert_equal(outcome(function, (normal(k, *shape), 50), k), outcome(compiled, (normal(k, *shape), 50), k))
    assert len(counts_of_paths(compiled)) == 2 and all(loops_of_paths(compiled)), compiled.explain()


def test_an_inner_loop_of_a_part_reads_what_another_part_has_left() -> None:
    def program(x: Any, n: int) -> Any:
        for _ in range(n):
            x = x + T.randn(3)
            y = x * 0.1
            if x[0] > 1:
                x = x - 1
            if x[1] > 1:
                x = x * 0.5
            if x[2] > 1:
                x = -x
            while y.abs().max() < 4:
                y = y * 1.1 + 0.5 * T.randn(3)
            x = 0.1 * y
        return x

    compiled = agrees(program, lambda k: (normal(k, 3), 25), calls=14, recordings=2)
    assert counts_of_paths(compiled), compiled.explain()


def test_a_loop_in_a_loop_that_branches_late_is_divided_in_the_next_recording() -> None:
    def program(x: Any, zs: Any, n: int) -> Any:
        kept = []
        for t in range(n):
            y, z = x, zs[t]
            for k in range(6):
                y = y * 0.5 + z * (k - 2.5)
                if y[0] > 0.3:
                    y = y * 0.9
                if y[1] > 0.3:
                    y = -y
                if y[2] > 0.3:
                    y = y + 0.1
            x = 0.1 * y
            if y.sum() > 0:
                kept.append(x)
            else:
                kept.append(-x)
        return T.stack(kept), x

    def arguments(k: int) -> tuple[Any, ...]:
        z = normal(k, 12, 3)
        z[:3] = -1e-3  # steps of the inner loop take one path at first
        return -normal(k, 3).abs(), z, 12

    compiled = agrees(program, arguments, calls=12, recordings=4)
    assert not compiled.reasons, compiled.explain()


def test_writes_after_the_loop_to_what_may_be_an_item_of_another_part_stop_the_recording() -> None:
    def program(x: Any, n: int) -> Any:
        kept = []
        for _ in range(n):
            x = x + T.randn(3)
            a = x * 2
            b = a
            if x[0] > 1:
                x = x - 1
            if x[1] > 1:
                x = x * 0.5
            if x[2] > 1:
                x = -x
            kept.append(a)
        b.add_(100)
        return T.stack(kept)

    compiled = outlined(program)
    for k in range(8):
        assert_equal(outcome(program, (normal(k, 3), 20), k), outcome(compiled, (normal(k, 3), 20), k))
    assert "an item of a list" in messages(compiled)


def test_a_text_that_some_steps_alone_assign_is_no_constant() -> None:
    def program(x: Any, n: int) -> Any:
        count = 0
        for _ in range(n):
            x = x + T.randn(3)
            if x[0] > 1.5:
                word = "high"
            if x[1] > 0:
                count += 1
            if x[2] > 0 and word == "high":
                count += 2
        return count

    compiled = outlined(program)
    for k in range(20):
        assert_equal(outcome(program, (normal(k, 3), 6), k), outcome(compiled, (normal(k, 3), 6), k))


def test_which_objects_parts_leave_is_known_to_the_next_part_and_after_the_loop() -> None:
    def program(x: Any, n: int) -> Any:
        y = before = x
        for _ in range(n):
            if T.rand(()) < 0.5:
                y = x
            if T.rand(()) < 0.2:
                x = x + T.randn(3)
            if T.rand(()) < 0.1:
                before = y
        return x, y, before, x is y, y is before

    compiled = outlined(program)
    for k in range(24):
        assert_equal(outcome(program, (normal(k, 3), 12), k), outcome(compiled, (normal(k, 3), 12), k))
    assert counts_of_paths(compiled) and compiled.stats.compiled_calls > 5, compiled.explain()


def test_a_variable_of_a_part_may_hold_an_object_from_outside() -> None:
    class Agent:
        def __init__(self) -> None:
            self.weights, self.seen = {"w": T.ones(3), "b": 0.5}, 0

        def run(self, x: Any, n: int) -> Any:
            for _ in range(n):
                own = self.weights
                if x.sum() > 1:
                    x = x - own["w"]
                if x[0] < 0:
                    self.seen += 1
                if x[1] < 0:
                    x = x * own["b"]
                x = x + T.randn(3) * own["w"]
            return x, self.seen

    plain, stepped = Agent(), Agent()
    compiled = outlined(stepped.run)
    for k in range(10):
        assert_equal(outcome(plain.run, (normal(k, 3), 30), k), outcome(compiled, (normal(k, 3), 30), k))
    assert counts_of_paths(compiled) and compiled.stats.compiled_calls >= 6, compiled.explain()


def test_a_part_whose_path_goes_with_no_body_leaves_the_tape_of_the_steps_before() -> None:
    def program(w: Any, n: int) -> Any:
        h, count = w * 1.0, 0
        for _ in range(n):
            y = h * w + 0.1 * T.randn(3)
            if y[0] > 0:
                count += 1
            if y[1] > 0.2:
                h = y  # two variables hold one tensor that requires grad
            else:
                h = y * 0.5 + 0.1
            if y[2] > 0:
                count += 2
        return T.autograd.grad(h.sum(), w)[0], count

    compiled = outlined(program)
    for k in range(8):
        given = normal(k, 3).requires_grad_(), 12
        assert_equal(outcome(program, given, k), outcome(compiled, given, k))
    assert "divided_step" in {reason.code for reason in compiled.reasons}


def tagged(xs: Any) -> Any:
    count = 0
    for x in xs:
        if x > 0:
            x.tag = 2
        if x > 1:
            count += 1
        count += getattr(x, "tag", 0)
    return count


def with_a_list(xs: Any) -> Any:
    count, h = 0, xs[0] * 0
    for a, *b in zip(xs, xs * 2, strict=True):
        if a > 0:
            count += 1
        if a < -1:
            b[0] = h
        h = h * 0.5 + b[0]
    return count, h


LOG: list[int] = []


def refused_with_a_row(xs: Any) -> Any:
    h, count = xs[0] * 0, 0
    for x in xs:
        q = x
        if x > 0:
            h = h + 1
        if x > 1:
            count += 1
        if x < -1.8:
            LOG.append(count)
    return h, count, q


@pytest.mark.parametrize("function", [tagged, with_a_list, refused_with_a_row], ids=lambda f: f.__name__)
def test_what_parts_do_to_an_element_is_found_by_later_parts(function: Any) -> None:
    compiled = outlined(function)
    for k in range(8):
        xs, logs = normal(k, 60), []
        outcomes = []
        for called in (function, compiled):
            LOG.clear()
            outcomes.append(outcome(called, (xs,), k))
            logs.append([*LOG])
        assert_equal(*outcomes)
        assert logs[0] == logs[1]
