"""`tracejit.profile()`: what compiled functions take, by function, step and line."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tracejit as T
from tracejit import nn, optim
from tracejit.autograd import api
from tracejit.autograd.compiled import CompiledNode
from tracejit.capture import branches
from tracejit.compiled.dispatch import timed
from tracejit.compiled.tier_policy import TierPolicy
from tracejit.core.interpreter import pushed_anywhere


def loss(x: T.Tensor, w: T.Tensor) -> T.Tensor:
    h = (x @ w).relu()
    return (h * h).sum()


def trained(calls: int = 3) -> tuple[Any, T.Tensor, T.Tensor]:
    """A compiled function that has been called, with arguments."""
    compiled, x, w = T.compile(loss), T.ones(16, 8), T.ones(8, 4, requires_grad=True)
    for _ in range(calls):
        compiled(x, w).backward()
    return compiled, x, w


def test_calls_and_backward_passes_are_counted_and_timed() -> None:
    compiled, x, w = trained()
    with T.profile() as p:
        for _ in range(5):
            compiled(x, w).backward()
        (gradient,) = T.autograd.grad(compiled(x, w), [w])
    rows = {row.name: row for row in p.calls}
    assert {name: row.calls for name, row in rows.items()} == {"loss, forward, path 0": 6, "loss, backward, path 0": 6}
    assert 0 < sum(row.seconds for row in rows.values()) < p.seconds
    assert T.equal(gradient, T.autograd.grad(loss(x, w), [w])[0])


def test_machine_code_is_timed_as_python_entries_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with T.config.override(hot_calls=4):
        compiled, x, w = trained(40)
        assert "machine code" in compiled.explain(True)
        with T.profile() as p:
            results = [compiled(x, w) for _ in range(7)]
            compiled(x[:5], w)
        assert [row.calls for row in p.calls if "forward" in row.name] == [7]
        assert [row.calls for row in p.calls if "recorded" in row.name] == [1]
        assert all(T.equal(result, loss(x, w)) for result in results)


def test_each_path_has_a_row_of_its_own() -> None:
    compiled = T.compile(lambda x: x * 2 if x.sum() > 0 else x - 1)
    up, down = T.ones(2), -T.ones(2)
    for x in (up, up, down, down):
        compiled(x)
    with T.profile() as p:
        for x in (up, down, down, up, down):
            compiled(x)
    assert {row.name.rpartition(", ")[2]: row.calls for row in p.calls} == {"path 0": 2, "path 1": 3}


def test_steps_and_lines_have_bytes_and_times() -> None:
    compiled, x, w = trained()
    with T.profile() as p:
        for _ in range(10):
            compiled(x, w)
    product = next(row for row in p.steps if "matmul" in row.step)
    assert product.measured and product.calls == 10 and product.nbytes == 10 * 4 * (16 * 8 + 8 * 4 + 16 * 4)
    (call,) = p.calls
    assert 0 < sum(row.seconds for row in p.steps) <= call.seconds * 1.001
    first = loss.__code__.co_firstlineno
    assert {row.line for row in p.lines} == {f"{__file__}:{first + 1}", f"{__file__}:{first + 2}"}
    assert sum(row.nbytes for row in p.lines) == pytest.approx(sum(row.nbytes for row in p.steps))


def test_a_program_that_cannot_be_run_alone_is_shared_out_by_bytes() -> None:
    compiled = T.compile(lambda x: T.sort(x * 2)[0].sum())
    for _ in range(2):
        compiled(T.ones(640))
    with T.profile() as p:
        compiled(T.ones(640))
    assert p.steps and not any(row.measured for row in p.steps)
    assert sum(row.seconds for row in p.steps) == pytest.approx(p.calls[0].seconds)
    assert " B" in p.table()


def test_the_table_has_a_row_for_each_function_line_and_step() -> None:
    compiled, x, w = trained()
    with T.profile() as p:
        for _ in range(3):
            compiled(x, w).backward()
    text = p.table()
    assert re.search(r"^loss, forward, path 0 +3 ", text, re.MULTILINE)
    assert re.search(r"^test_profile.py:\d+ +3 ", text, re.MULTILINE) and re.search(r"^product 0: matmul", text, re.MULTILINE)
    assert "... and" in p.table(rows=1) and "Times of functions are measured" in text
    assert max(map(len, text.splitlines())) <= 120


def test_the_trace_is_chromes_format_with_steps_inside_of_calls(tmp_path: Path) -> None:
    compiled, x, w = trained()
    with T.profile() as p:
        for _ in range(4):
            compiled(x, w).backward()
    p.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X"}
    for event in events:
        assert {"ph", "ts", "dur", "pid", "tid", "name", "cat", "args"} <= event.keys()
        assert event["ts"] >= 0 and event["dur"] >= 0 and isinstance(event["tid"], int) and isinstance(event["pid"], int)
    calls = [event for event in events if event["cat"] in ("forward", "backward")]
    steps = [event for event in events if event["cat"] == "step (estimated)"]
    assert len(calls) == 8 and steps
    for step in steps:
        assert any(c["ts"] <= step["ts"] and step["ts"] + step["dur"] <= c["ts"] + c["dur"] + 0.01 for c in calls)
    for before, after in itertools.pairwise(calls):
        assert before["ts"] + before["dur"] <= after["ts"] + 0.002


def test_nothing_is_left_when_no_profile_is_on() -> None:
    functions = api._to_leaves, api._gradients, CompiledNode._gradients
    asking = pushed_anywhere[0]
    with T.profile(), pytest.raises(ZeroDivisionError):
        with pytest.raises(RuntimeError, match="another profile is on"), T.profile():
            pass
        assert (api._to_leaves, timed[0]) != (functions[0], None)
        raise ZeroDivisionError
    assert (api._to_leaves, api._gradients, CompiledNode._gradients) == functions
    assert timed[0] is None and pushed_anywhere[0] == asking


def test_all_threads_are_measured(tmp_path: Path) -> None:
    compiled, x, w = trained()
    with T.profile() as p:
        barrier = threading.Barrier(3)

        def work() -> None:
            barrier.wait()
            for _ in range(20):
                compiled(x, w)
            barrier.wait()  # a thread's number is given again when it has ended

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({event.thread for event in p.events}) == 3 and len(p.events) == 60


def test_pieces_have_rows_of_their_own_and_no_time_is_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TierPolicy, "_outline", lambda *_, **__: False)  # as for loops that cannot be nodes of a program
    monkeypatch.setattr(branches, "may_be_outlined", lambda *_: False)

    def function(xs: T.Tensor) -> T.Tensor:
        total = T.zeros(())
        for x in xs:
            total = total + x if x > 0 else total - x * 2
        return total

    compiled = T.compile(function)
    generator = T.Generator().manual_seed(0)
    inputs = [T.randn(8, generator=generator) for _ in range(60)]
    for x in inputs:
        compiled(x)
    assert compiled.stats.piecewise_calls
    with T.profile() as p:
        for x in inputs[:5]:
            compiled(x)
    rows = {row.name.rpartition(">")[2].rpartition("function")[2]: row.calls for row in p.calls}
    assert rows[", in pieces"] == 5 and sum(rows.values()) == 5 + 5 * 8
    assert 0 < sum(row.seconds for row in p.calls) <= p.seconds


def test_errors_of_calls_pass_and_later_calls_are_timed() -> None:
    compiled = T.compile(lambda x, y: x @ y)
    for _ in range(2):
        compiled(T.ones(2, 3), T.ones(3, 2))
    with T.profile() as p:
        with pytest.raises(RuntimeError):
            compiled(T.ones(2, 3), T.ones(2, 2))
        compiled(T.ones(2, 3), T.ones(3, 2))
    assert [row.calls for row in p.calls] == [1]


def test_a_training_step_takes_less_than_a_twentieth_longer_while_it_is_measured() -> None:
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer, criterion = optim.SGD(model.parameters(), lr=0.01), nn.CrossEntropyLoss()
    forward = T.compile(lambda x, y: criterion(model(x), y))
    x, y = T.randn(64, 784), T.randint(0, 10, (64,))

    def seconds(steps: int = 40) -> float:
        begin = time.thread_time()
        for _ in range(steps):
            optimizer.zero_grad()
            forward(x, y).backward()
            optimizer.step()
        return time.thread_time() - begin

    seconds(30)
    on, off = float("inf"), float("inf")
    for _ in range(40):  # the fastest of many rounds, until they agree
        off = min(off, seconds())
        with T.profile():
            on = min(on, seconds())
        if on < 1.05 * off:
            break
    assert on < 1.05 * off


def test_the_names_of_pytorchs_profiler_are_there() -> None:
    with T.profiler.record_function("part"):
        pass
    with pytest.raises(NotImplementedError, match=r"tracejit.profile\(\)"):
        T.profiler.profile()


@pytest.mark.parametrize("block", [T.profile, T.explain_misses])
def test_a_block_inside_of_a_compiled_function_makes_it_eager(block: Any) -> None:
    def function(x: T.Tensor) -> T.Tensor:
        with block():
            return x * 2

    compiled = T.compile(function)
    for _ in range(3):
        compiled(T.ones(2))
    assert compiled.stats.compiled_calls == 0 and [reason.code for reason in compiled.reasons] == ["global_state"]
    assert timed[0] is None
