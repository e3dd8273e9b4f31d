"""compiled/tier_policy.py and compiled/accounts.py: functions whose paths do not pay rest, those whose paths serve never do, and a change
for the better is noticed."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T
from tracejit import nn, optim
from tracejit.compiled.accounts import WINDOW
from tracejit.compiler import PerformanceWarning
from tracejit.config import override
from tracejit.cpython import call_hook

CALLS = 6000
"""By then a function that serves nothing has been tried five times, and is left alone for 4,096 calls and more."""


class Holder:
    def __init__(self, value: object) -> None:
        self.value = value


def changing_text(number: int) -> tuple[Any, ...]:
    return T.ones(3), f"text {number}"


def closure_of(text: str) -> Callable[[T.Tensor], Any]:
    def inner(x: T.Tensor) -> Any:
        return x * 2, text

    return inner


def raising(x: T.Tensor) -> T.Tensor:
    raise KeyError("always")


NOW = ["0"]


def reading_a_global(x: T.Tensor) -> Any:
    return x * 2, NOW[0]


def next_global(number: int) -> tuple[Any, ...]:
    NOW[0] = str(number)
    return (T.ones(2),)


HOPELESS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "a text that changes": (lambda x, text: (x * 2, text + "!"), changing_text),
    "a new shape": (lambda x: x * 2 + 1, lambda n: (T.ones(n % 499 + 1),)),
    "a new object": (lambda x, o: (x * 2, o.value), lambda n: (T.ones(2), Holder(str(n)))),
    "a new closure": (lambda f, x: f(x), lambda n: (closure_of(str(n)), T.ones(2))),
    "a global that changes": (reading_a_global, next_global),
    "other keys": (lambda x, d: (x * 2, list(d)), lambda n: (T.ones(2), {f"key {n}": 1.0})),
    "a value that steers": (lambda x: [x] * int(x.sum()), lambda n: (T.full((1,), float(n % 1000)),)),
    "a size that depends on data": (lambda x: x[x > 0] * 2, lambda n: (T.cat([T.ones(n % 300), -T.ones(2)]),)),
    "what cannot be recorded": (lambda x: (x * 2, sys._getframe(0).f_lineno), lambda n: (T.ones(2),)),
    "what cannot be returned": (lambda x: iter([x * 2]), lambda n: (T.ones(2),)),
    "errors": (raising, lambda n: (T.ones(2),)),
}


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return plain(function(*arguments))
    except KeyError as error:
        return repr(error)


def plain(value: Any) -> Any:
    if isinstance(value, T.Tensor):
        return value.tolist()
    return [plain(v) for v in value] if isinstance(value, (tuple, list)) or hasattr(value, "__next__") else value


@pytest.mark.parametrize("name", HOPELESS)
def test_what_keeps_missing_is_left_alone(name: str) -> None:
    function, arguments = HOPELESS[name]
    with override(max_entries=6, max_sizes=6):
        compiled = T.compile(function)
        for number in range(CALLS):
            outcome(compiled, arguments(number))
        stats = compiled.stats
        assert stats.calls == CALLS, "each call is counted once"
        assert stats.traces <= 32
        before = compiled._policy.accounts.direct_calls
        for number in range(CALLS, CALLS + 100):
            made = arguments(number)
            assert outcome(compiled, made) == outcome(function, made)
        assert compiled._policy.accounts.direct_calls - before == 100


def training(model: nn.Module, optimizer: optim.Optimizer) -> Callable[..., Any]:
    def step(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.parametrize("in_turn", [True, False])
def test_a_step_with_as_many_shapes_as_there_may_be_paths_is_never_left_alone(in_turn: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    compiled = T.compile(training(model, optim.SGD(model.parameters(), lr=0.01)))
    batches = [(T.ones(n, 4), T.zeros(n, dtype=T.int64)) for n in range(1, 21)]
    for k in range(15 * len(batches)):
        compiled(*batches[k % 20 if in_turn else (k * k + 7 * k) % 20])
    assert compiled.stats.eager_calls == compiled.stats.traces <= 20
    assert compiled._policy.accounts.direct_calls == 0


def test_paths_that_come_in_turn_are_found_at_the_second_try() -> None:
    compiled = T.compile(lambda x: x * 2 + 1)
    shapes = [T.ones(n) for n in range(1, 11)]
    for x in (*shapes, *shapes):
        compiled(x)
    missed = sum(path.executable.counter[2] for path in compiled._table.paths)
    for x in shapes * 5:
        compiled(x)
    assert sum(path.executable.counter[2] for path in compiled._table.paths) - missed <= 50
    assert compiled.stats.programs_compiled == 10 and compiled.stats.bridges == 0


@pytest.mark.parametrize("shapes", [6, 16, 61])
def test_more_shapes_in_turn_than_there_may_be_paths_are_not_recorded_again_and_again(shapes: int) -> None:
    """Each window sees another part of the turn: some of them gain, some lose."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    batches = [(T.ones(n + 1, 4), T.zeros(n + 1, dtype=T.int64)) for n in range(shapes)]
    with override(max_entries=4, max_sizes=4):
        compiled = T.compile(training(model, optim.SGD(model.parameters(), lr=0.01)))
        for k in range(CALLS):
            compiled(*batches[k % shapes])
    assert compiled.stats.traces <= 32, compiled.stats


def test_branches_that_flip_are_never_left_alone() -> None:
    compiled = T.compile(lambda x: x * 2 if x.sum() > 0 else x - 1)
    for x in [T.ones(2), -T.ones(2)] * 300:
        compiled(x)
    assert compiled.stats.eager_calls == 2


def steered(x: T.Tensor) -> T.Tensor:
    y = x * 2 if x.sum() > 0 else x + 1
    return (y * y - x * y).sum()


@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_branches_over_large_arrays_are_never_left_alone_where_programs_go_through_them_once(size: int) -> None:
    compiled = T.compile(steered, wait=True)
    for x in [T.ones(size), -T.ones(size)] * 200:
        compiled(x)
    assert compiled.stats.eager_calls == compiled.stats.traces == 2 and compiled._policy.accounts.direct_calls == 0
    (first, second) = compiled._table.paths
    assert first.gain > 100 * first.effort > 0 and second.gain > 100 * second.effort > 0


def test_what_a_program_computes_for_nothing_before_a_branch_counts_whole() -> None:
    """Two products that take as long as in eager mode, for one addition that the other side has besides."""
    a, b = T.ones(96, 512), T.ones(512, 96)

    def products_first(x: T.Tensor, flag: T.Tensor) -> Any:
        y = (a @ b) @ x
        return y if flag > 0 and y[0, 0] > 0 else y + 1

    compiled = T.compile(products_first, wait=True)
    x = T.ones(96, 96)
    for k in range(1000):
        compiled(x, T.tensor(float(k % 2)))
    assert compiled._policy.accounts.direct_calls > 0, compiled.explain()


@pytest.mark.parametrize("bad", [300, 3000])
def test_a_function_that_settled_finds_out_that_things_have_changed(bad: int) -> None:
    with override(max_entries=4, max_sizes=4):
        compiled = T.compile(lambda x: ((x * 2 + 1) * x - 3).sum(), dynamic=False)
        for n in range(1, bad):
            compiled(T.ones(n))
        assert compiled._policy.accounts.direct_calls
        good = [T.ones(5000), T.ones(5001), T.ones(5002)]
        for k in range(5000):
            compiled(good[k % 3])
        served = compiled.stats.compiled_calls
        for k in range(300):
            compiled(good[k % 3])
    assert compiled.stats.compiled_calls - served == 300


def test_a_loss_over_entries_that_cost_more_than_they_save_is_noticed() -> None:
    """Two operations, and ten paths to try on the way to them."""
    compiled, x = T.compile(lambda x, mode: x * 2 + len(mode)), T.ones(3)
    for k in range(3000):
        compiled(x, "m" * ((k * k * 31 + 7 * k) % 29 + 1))
    assert compiled._policy.accounts.direct_calls > 1000


def test_a_window_is_a_number_of_calls_that_the_entry_in_front_did_not_serve() -> None:
    with override(max_entries=1, max_sizes=1):
        compiled = T.compile(lambda x: x * 2)
        for _ in range(500):
            compiled(T.ones(2))
        for _ in range(2 * WINDOW - 1):
            compiled(T.ones(3))
    assert not compiled._policy.accounts.direct_calls
    assert compiled.stats.eager_calls == 1 + 2 * WINDOW - 1


def test_calls_by_keyword_are_left_alone_as_well() -> None:
    compiled = T.compile(lambda x, text: (x * 2, text))
    with override(max_entries=2, max_sizes=2):
        for n in range(CALLS):
            compiled(x=T.ones(1), text=str(n))
    before = compiled._policy.accounts.direct_calls
    assert compiled(text="t", x=T.ones(1))[1] == "t" and compiled._policy.accounts.direct_calls == before + 1


def test_a_function_left_alone_is_followed_by_recordings_of_others() -> None:
    inner = T.compile(lambda x, text: (x * 2, text)[0])
    with override(max_entries=2, max_sizes=2):
        for n in range(CALLS):
            inner(T.ones(1), str(n))
    before = inner.stats.calls
    outer = T.compile(lambda x: inner(x, "same") + 1)
    assert [outer(T.ones(1)).tolist() for _ in range(3)] == [[3.0]] * 3
    assert outer.stats.compiled_calls == 2 and inner.stats.calls == before


def test_threads_call_a_function_while_it_settles() -> None:
    compiled = T.compile(lambda x, text: (x * 2 + len(text), text))
    wrong: list[object] = []

    def work(name: int) -> None:
        for n in range(1500):
            text = f"{name} {n}"
            result, same = compiled(T.ones(2), text)
            if result.tolist() != [2.0 + len(text)] * 2 or same != text:
                wrong.append((result, same, text))

    with override(max_entries=4, max_sizes=4):
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong and compiled._policy.accounts.direct_calls > 1000
    assert compiled.stats.traces < 40


def test_a_function_compiled_anew_for_each_call_is_recorded_no_more_in_time() -> None:
    recorded = []
    for n in range(60):
        compiled = T.compile(lambda x: x * 2 - 1)
        assert compiled(T.full((2,), float(n))).tolist() == [2.0 * n - 1] * 2
        recorded.append(compiled.stats.traces)
    assert recorded[0] == 1 and sum(recorded) == 32 and recorded[-1] == 0
    for _ in range(70):  # the last one is called often
        compiled(T.ones(2))
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == 5


def test_functions_with_one_code_that_serve_calls_are_recorded_however_many_there_are() -> None:
    for _ in range(40):
        compiled = T.compile(lambda x: x * 2 - 1)
        for _ in range(3):
            compiled(T.ones(2))
        assert compiled.stats.compiled_calls == 2


def test_errors_now_and_then_do_not_stop_recordings() -> None:
    def function(x: T.Tensor, bad: bool) -> T.Tensor:
        if bad:
            raise KeyError("now and then")
        return x * 2

    compiled = T.compile(function)
    for number in range(200):
        try:
            compiled(T.ones(2), number % 2 == 0)
        except KeyError:
            continue
    assert compiled.stats.compiled_calls == 99 and compiled.stats.traces < 20


def test_a_profiler_that_is_gone_is_forgotten_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_hook, "_TOOL_OFFSET", None)  # where profilers stand in the way
    compiled = T.compile(lambda x: x * 2)
    sys.setprofile(lambda *_: None)
    try:
        with pytest.warns(PerformanceWarning, match="runs eagerly: a profiler is active"):
            for _ in range(CALLS):
                compiled(T.ones(1))
    finally:
        sys.setprofile(None)
    assert compiled.stats.traces > 50
    for _ in range(80):
        compiled(T.ones(1))
    assert compiled.stats.compiled_calls > 10


def test_clear_forgets_that_a_function_is_left_alone() -> None:
    compiled = T.compile(lambda x: iter([x]))
    for _ in range(10):
        compiled(T.ones(1))
    assert compiled._policy.accounts.direct_calls == 7
    compiled.clear()
    assert compiled.stats.calls == 0
    compiled(T.ones(1))
    assert (compiled.stats.calls, compiled.stats.traces, compiled._policy.accounts.direct_calls) == (1, 1, 0)


def test_a_call_left_alone_has_the_frames_of_an_eager_one() -> None:
    def caller_of() -> str:
        return sys._getframe(1).f_code.co_name

    compiled = T.compile(caller_of)

    def program() -> str:
        return compiled()

    assert [program() for _ in range(20)] == ["program"] * 20 and compiled._policy.accounts.direct_calls


def test_results_are_right_whether_entries_or_the_function_make_them() -> None:
    random = itertools.cycle([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4])
    with override(max_entries=3, max_sizes=3):
        compiled = T.compile(lambda x: x.cumsum(0) * 2)
        for _ in range(1500):
            n = next(random)
            assert compiled(T.ones(n)).tolist() == [2.0 * k for k in range(1, n + 1)]
    assert compiled.stats.calls == 1500 == compiled.stats.compiled_calls + compiled.stats.eager_calls


def test_paths_none_of_which_serves_a_call_are_soon_recorded_less_often() -> None:
    @T.compile
    def drawn(x: T.Tensor, seed: int) -> T.Tensor:
        return x * sum(float(f"{k}") for k in range(seed % 1009))  # a text: each number is a path

    for k in range(400):
        drawn(T.ones(2), k)
    assert drawn.stats.compiled_calls == 0
    assert drawn.stats.traces <= 20


def large(x: T.Tensor, depth: int = 7) -> T.Tensor:
    """Some 900 operations that are no loop."""
    if not depth:
        return (x * 1.5).tanh() + 0.5
    left, right = large(x, depth - 1), large(x.cos(), depth - 1)
    return (left * right - left).sin()


def test_large_recordings_none_of_which_serves_a_call_are_few_and_the_user_is_told() -> None:
    compiled = T.compile(lambda x, text: (large(x), text + "!"))
    with pytest.warns(PerformanceWarning, match="again and again: 4 recordings, 0 of 16 calls ran compiled. The guard on text"):
        for k in range(200):
            compiled(T.ones(2), str(k))
    assert compiled.stats.traces <= 6
    assert "in every call so far, because text changes from call to call" in compiled.explain()


@pytest.mark.parametrize("is_random", [False, True])
def test_eight_large_paths_that_come_back_are_all_compiled_soon(is_random: bool) -> None:
    compiled, generator = T.compile(lambda x, text: (large(x), text + "!")), random.Random(0)
    for k in range(40):
        compiled(T.ones(2), str(generator.randrange(8) if is_random else k % 8))
    assert compiled.stats.traces == 8 and compiled.stats.eager_calls <= 16


def test_calls_that_are_to_be_compiled_in_advance_are_recorded_whether_paths_have_served_calls_or_not() -> None:
    compiled = T.compile(lambda x, text: (x * 2, text))
    for k in range(20):
        compiled.warm_up(T.ones(2), str(k))
    assert compiled.stats.traces == 20


def test_a_loop_that_can_neither_be_outlined_nor_cut_is_recorded_twice_and_has_one_reason() -> None:
    def search(numbers: T.Tensor) -> Any:
        kept = [(0.0, numbers[0])]
        for number in numbers:
            made = []
            for score, x in kept:
                if score > 1.5:
                    made.append((score, x))
                    continue
                x = (x + number).sin()
                made += [(score + x.item(), x), (score - x.item(), -x)]
            made.sort(key=lambda pair: pair[0])
            kept = made[:3]
            if all(score > 1.5 for score, _ in kept):
                break
        return kept[0]

    compiled = T.compile(search)
    for k in range(30):
        compiled(T.sin(T.arange(40) * (k + 1.0)))
    assert compiled.stats.traces == 2 and {x.code: n for x, n in compiled.reasons.items()} == {"outlined_loop": 1}


def converges(x: T.Tensor) -> T.Tensor:
    while (x * x).sum() > 1:
        x = x * 0.75
    return x


def breaks(x: T.Tensor) -> T.Tensor:
    for _ in range(50):
        x = x * 0.75
        if x.sum() < 1:
            break
    return x


@pytest.mark.parametrize("function", [converges, breaks])
def test_a_loop_that_a_value_ends_is_a_node_of_the_second_recording_and_serves_any_number_of_steps(function: Any) -> None:
    compiled = T.compile(function, wait=True)
    for k in range(2, 12):
        x = T.ones(3) * 2.0**k
        assert T.equal(compiled(x), function(x))
    stats = compiled.stats
    assert (stats.traces, stats.compiled_calls, stats.programs_compiled) == (2, 8, 1), compiled.explain()


def test_a_loop_of_three_steps_is_recorded_step_by_step() -> None:
    compiled = T.compile(converges, wait=True)
    for _ in range(3):
        compiled(T.ones(3))
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (1, 2), compiled.explain()
    assert "loop" not in compiled.explain(verbose=True)


class Walker:
    def __init__(self) -> None:
        self.x = T.zeros(2)
        self.seen: list[float] = []

    def step(self) -> None:
        self.x = self.x + 0.3 * T.randn(2)
        self.seen.append(self.x.norm().item())


def test_a_loop_that_a_value_ends_and_that_cannot_be_a_node_runs_in_pieces() -> None:
    def walk() -> tuple[T.Tensor, int]:
        walker = Walker()
        while not walker.seen or walker.seen[-1] < 2:
            walker.step()
        return walker.x, len(walker.seen)

    compiled = T.compile(walk, wait=True)
    for k in range(30):
        results = []
        for f in (walk, compiled):
            T.manual_seed(k)
            results.append(f())
        assert T.equal(results[0][0], results[1][0]) and results[0][1] == results[1][1]
    assert compiled.stats.piecewise_calls > 15 and compiled.stats.traces <= 8, compiled.explain()
    assert {reason.code for reason in compiled.reasons} == {"outlined_loop"}, compiled.explain()


def test_a_loop_over_items_that_are_written_in_its_header_is_recorded_step_by_step() -> None:
    def applied(x: T.Tensor) -> T.Tensor:
        for function in (T.sin, T.cos, T.exp, T.tanh, T.sigmoid):
            x = function(x)
            if x.sum() > 2.5:
                break
        return x

    compiled = T.compile(applied, wait=True)
    for k in range(8):
        x = T.ones(3) * (k % 2)
        assert T.allclose(compiled(x), applied(x))
    assert compiled.stats.traces == 2 and not compiled.reasons, compiled.explain()


def test_paths_that_serve_as_many_calls_as_they_are_worth_are_recorded_as_they_come() -> None:
    @T.compile
    def drawn(x: T.Tensor, seed: int) -> T.Tensor:
        return x * sum(float(f"{k}") for k in range(seed))

    for k in range(40):
        for seed in (k, *[k // 2] * 8):
            assert drawn(T.ones(2), seed).tolist() == [sum(range(seed))] * 2
    assert drawn.stats.traces == 40


def test_paths_that_serve_a_call_each_are_recorded_less_often() -> None:
    @T.compile
    def drawn(x: T.Tensor, seed: int) -> T.Tensor:
        return x * sum(float(f"{k}") for k in range(seed))

    for k in range(40):
        for seed in (k, k // 2):
            assert drawn(T.ones(2), seed).tolist() == [sum(range(seed))] * 2
    assert drawn.stats.traces <= 25 and drawn.stats.compiled_calls >= 30
    before = drawn.stats.traces
    for _ in range(20):  # calls that they serve after all pay for others
        for seed in range(40):
            drawn(T.ones(2), seed)
    assert drawn.stats.traces > before


def test_paths_that_are_many_more_than_the_calls_they_serve_are_recorded_less_often() -> None:
    @T.compile
    def drawn(x: T.Tensor, seed: int) -> T.Tensor:
        return x * sum(float(f"{k}") for k in range(seed % 1009))

    for k in range(200):
        drawn(T.ones(2), k)
        if k % 4 == 0:
            assert drawn(T.ones(2), 0).tolist() == [0.0] * 2
    assert drawn.stats.compiled_calls >= 30
    assert drawn.stats.traces <= 30
