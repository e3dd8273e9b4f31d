"""A low recursion limit, and calls deep in recursion: what eager calls can do compiled ones can, and nothing is left half imported."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tracejit as T
from tracejit.core.recursion import frames_left, room

PROGRAM = """
import sys, warnings
warnings.simplefilter("error")
import tracejit as T

@T.compile(wait=True)
def step(x):
    return (x * 2).tanh().sum()

x, before = T.ones(3), sys.getrecursionlimit()
sys.setrecursionlimit({limit})
first = step(x).item()
assert sys.getrecursionlimit() == {limit}
sys.setrecursionlimit(before)
assert [step(x).item() for _ in range(5)] == [first] * 5
print(step.stats.compiled_calls >= 4, [reason.code for reason in step.reasons])
"""


@pytest.mark.parametrize(("limit", "reasons"), [(40, ["recursion_limit"]), (120, [])])
def test_a_first_call_at_a_low_limit_leaves_nothing_half_imported(limit: int, reasons: list[str], tmp_path: Path) -> None:
    script = tmp_path / "low.py"
    script.write_text(PROGRAM.format(limit=limit))
    paths = {
        "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path]),
        "TRACEJIT_CACHE_DIR": str(tmp_path),
    }  # no machine code is there yet
    done = subprocess.run([sys.executable, script], env={**os.environ, **paths}, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"True {reasons}\n", "")


def called_at(depth: int, function: Any, x: T.Tensor) -> Any:
    return called_at(depth - 1, function, x) if depth else function(x)


def test_calls_deep_in_recursion_do_what_eager_ones_do() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        return (x * 3).exp().sum()

    x, limit = T.ones(3), sys.getrecursionlimit()
    for left in range(20, 120, 7):
        outcomes = []
        for called in (function, compiled := T.compile(function, wait=True)):
            depth = frames_left() - left
            try:
                outcomes.append(called_at(depth, called, x).item())
            except RecursionError:
                outcomes.append(None)
        assert outcomes[0] == pytest.approx(outcomes[1]) and sys.getrecursionlimit() == limit, left
        for _ in range(3):
            compiled(x)
        assert compiled.stats.compiled_calls >= 2 and {reason.code for reason in compiled.reasons} <= {
            "recursion_limit",
            "raised",
        }


def test_a_function_that_recurses_for_ever_raises_as_ever() -> None:
    def endless(x: T.Tensor) -> T.Tensor:
        return endless(x * 2)

    limit, compiled = sys.getrecursionlimit(), T.compile(endless)
    for function in (endless, compiled, compiled):
        with pytest.raises(RecursionError):
            function(T.ones(1))
        assert sys.getrecursionlimit() == limit


def nested(depth: int, value: Any) -> Any:
    for k in range(depth):
        value = (value, k)
    return value


def depth_of(value: Any) -> int:
    depth = 0
    while isinstance(value, tuple):
        value, depth = value[0], depth + 1
    return depth


@pytest.mark.parametrize("depth", [50, 190, 250, 700])
def test_tuples_may_be_nested_as_deeply_as_eager_calls_allow(depth: int) -> None:
    def given(value: Any, x: T.Tensor) -> T.Tensor:
        return x * depth_of(value)

    def in_a_dict(table: dict[str, Any], x: T.Tensor) -> T.Tensor:
        return x * depth_of(table["value"])

    def gives(x: T.Tensor) -> Any:
        return nested(depth, x * 2)

    def keeps(table: dict[str, Any], x: T.Tensor) -> T.Tensor:
        table["other"] = table["value"], nested(depth, x)
        return x + 1

    x = T.ones(2)
    for function in (given, in_a_dict, gives, keeps):
        compiled = T.compile(function, wait=True)
        for _ in range(3):
            table = {"value": nested(depth, x)}
            arguments = (x,) if function is gives else (nested(depth, x) if function is given else table, x)
            result = compiled(*arguments)
            if function is gives:
                assert depth_of(result) == depth
            else:
                assert result.tolist() == ([2, 2] if function is keeps else [depth, depth])
            assert function is not keeps or [depth_of(part) for part in table["other"]] == [depth, depth]
        assert {reason.code for reason in compiled.reasons} <= {"recursion_limit"}
        assert compiled.reasons or compiled.stats.compiled_calls == 2


def test_rooms_of_several_threads_end_with_the_limit_that_was() -> None:
    limit, inside, over = sys.getrecursionlimit(), threading.Event(), threading.Event()

    def other() -> None:
        with room(limit + 500):
            inside.set()
            over.wait(30)

    thread = threading.Thread(target=other)
    with room(limit):
        assert frames_left() >= limit
        thread.start()
        assert inside.wait(30)
    assert sys.getrecursionlimit() > limit + 400
    over.set()
    thread.join()
    assert sys.getrecursionlimit() == limit


def test_a_limit_that_the_program_sets_meanwhile_stays() -> None:
    limit = sys.getrecursionlimit()
    try:
        with room(limit):
            sys.setrecursionlimit(limit + 1234)
        assert sys.getrecursionlimit() == limit + 1234
    finally:
        sys.setrecursionlimit(limit)
