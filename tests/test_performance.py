"""A compiled function that stays slow says so once, at the user's line, with the reason or the guard and both values."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tracejit as T
from tracejit.compiler import PerformanceWarning
from tracejit.config import override

x = T.ones(2)


def given(call: Callable[[int], object], calls: int = 40) -> list[warnings.WarningMessage]:
    """The warnings of so many calls, wherever they are given."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for k in range(calls):
            call(k)
    return [warning for warning in found if warning.category is PerformanceWarning]


def line_of(function: Any, offset: int) -> int:
    return int(function.__wrapped__.__code__.co_firstlineno) + offset


def test_a_function_that_cannot_be_recorded_says_so_once_at_the_line_that_stops_it() -> None:
    @T.compile
    def eager(v: T.Tensor) -> T.Tensor:
        sys.getsizeof(print)
        return v

    (warning,) = given(lambda k: eager(x), 100)
    assert (warning.filename, warning.lineno) == (__file__, line_of(eager, 2))
    text = str(warning.message)
    assert text.startswith("tracejit: ") and "eager runs eagerly: nothing is known about the C function sys.getsizeof()" in text
    assert f"(line {warning.lineno} of test_performance.py, `sys.getsizeof(print)`). Move the call out" in text
    assert eager.stats.eager_calls == 100 and not given(lambda k: eager(x), 100)
    eager.clear()
    assert len(given(lambda k: eager(x))) == 1


def test_one_eager_call_or_a_few_say_nothing() -> None:
    @T.compile
    def seldom(v: T.Tensor, odd: bool) -> T.Tensor:
        if odd:
            sys.getsizeof(print)
        return v * 2

    assert not given(lambda k: seldom(x, k == 3))
    assert not given(lambda k: T.compile(lambda v: iter([v]))(x), 3)
    for calls, warnings_given in ((15, 0), (16, 1)):
        never = T.compile(lambda v: iter([v]))
        assert len(given(lambda k, f=never: f(x), calls)) == warnings_given  # type: ignore[misc]
    assert not given(lambda k: T.compile(lambda v: v * 2 if v.sum() > 0 else v)(x * (-1) ** k), 20)


def test_a_function_that_is_recorded_again_and_again_names_the_guard_and_both_values() -> None:
    @T.compile
    def named(v: T.Tensor, name: str) -> Any:
        return v * 2, name

    (warning,) = given(lambda k: named(x, f"name {k}"))
    text = str(warning.message)
    assert "is recorded again and again: 16 recordings, 0 of 28 calls ran compiled. The guard on name failed: " in text
    assert "expected 'name 14', found 'name 15'. Pass what varies as a tensor" in text
    assert (warning.filename, warning.lineno) == (__file__, line_of(named, 0))

    @T.compile
    def repeated(v: T.Tensor, n: int) -> Any:
        return [v] * n

    (warning,) = given(lambda k: repeated(x, k))
    line = line_of(repeated, 2)
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert f"The guard on n ({__file__}:{line}: return [v] * n) failed: expected 14, found 15." in str(warning.message)


def test_a_function_whose_recordings_serve_many_calls_says_nothing() -> None:
    @T.compile
    def named(v: T.Tensor, name: str) -> Any:
        return v * 2, name

    assert not given(lambda k: named(x, f"name {k // 20}"), 200)
    assert named.stats.traces == 10


def test_a_function_that_has_no_room_for_another_path_says_so() -> None:
    @T.compile
    def named(v: T.Tensor, name: str) -> Any:
        return v * 2, name

    with override(max_entries=3, max_sizes=3):
        assert not given(lambda k: named(x, f"name {k // 20}"), 60)
        (warning,) = given(lambda k: named(x, "another"))
    assert "has as many recorded paths as there may be (3)" in str(warning.message)
    assert "The guard on name failed" in str(warning.message) or named._diagnostics.divergences.most_frequent() is None


def test_a_function_that_raises_in_each_call_that_is_recorded_says_so() -> None:
    @T.compile
    def raising(v: T.Tensor) -> T.Tensor:
        raise KeyError("wanted")

    def call(k: int) -> None:
        with pytest.raises(KeyError, match="wanted"):
            raising(x)

    (warning,) = given(call)
    assert "runs eagerly: it raised KeyError in call after call" in str(warning.message)
    assert not given(call)


def test_functions_that_are_compiled_anew_for_each_call_say_so_once() -> None:
    (warning,) = given(lambda k: T.compile(lambda v: v + k)(x), 120)
    assert "functions of this code were compiled again and again" in str(warning.message)
    assert warning.filename == __file__


def test_a_function_whose_paths_cost_more_than_they_save_says_so() -> None:
    @T.compile
    def either(v: T.Tensor, a: str, b: str, c: str) -> Any:
        return v, a, b, c

    names = [(a, b, c) for a in "012" for b in "012" for c in "012"]
    found = given(lambda k: either(x, *names[k * 7 % len(names)]), 2000)
    assert either.stats.direct_calls > 0 and len(found) == 1


def test_an_error_in_the_place_of_the_warning_comes_before_anything_is_done() -> None:
    log: list[int] = []

    @T.compile
    def eager(v: T.Tensor) -> T.Tensor:
        log.append(sys.getsizeof(print))
        return v

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        raised = 0
        for k in range(1, 31):
            try:
                eager(x)
            except PerformanceWarning:
                raised += 1
            assert len(log) == k - raised
    assert raised == 1 and eager.stats.calls == 29


def test_the_warning_is_one_of_each_line_for_many_functions_by_default() -> None:
    class Layer(T.nn.Module):
        def forward(self, v: T.Tensor) -> T.Tensor:
            sys.getsizeof(print)
            return v

    layers = [T.compile(Layer()) for _ in range(5)]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for layer in layers * 20:
            layer(x)
    assert [(warning.category, warning.filename) for warning in found] == [(PerformanceWarning, __file__)]


def test_a_program_that_catches_the_warnings_of_each_call_gets_those_of_the_call() -> None:
    @T.compile
    def eager(v: T.Tensor) -> T.Tensor:
        warnings.warn("told", UserWarning, stacklevel=1)
        sys.getsizeof(print)
        return v

    for _ in range(300):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            eager(x)
        assert [str(warning.message) for warning in found] == ["told"]
    assert len(given(lambda k: eager(x), 300)) == 1


def test_a_function_without_a_file_or_a_module_is_warned_of_where_it_says_it_stands() -> None:
    scope: dict[str, Any] = {}
    exec("class Other:\n    def __init__(self, f): self.f = f\n    def __call__(self, v): return self.f(v)", scope)
    other = T.compile(scope["Other"](lambda v: v))  # its class has no file, nor have its globals a name
    (warning,) = given(lambda k: other(x))
    assert "runs eagerly: no source text for" in str(warning.message) and warning.filename == "<string>"


def test_fullgraph_raises_and_does_not_warn() -> None:
    @T.compile(fullgraph=True)
    def eager(v: T.Tensor) -> T.Tensor:
        sys.getsizeof(print)
        return v

    def call(k: int) -> None:
        with pytest.raises(RuntimeError, match="getsizeof"):
            eager(x)

    assert not given(call, 10)


@pytest.mark.parametrize("module", ["cProfile", "profile", "trace", None])
def test_compiled_functions_stay_compiled_under_profilers(module: str | None, tmp_path: Path) -> None:
    script = tmp_path / "profiled.py"
    script.write_text(
        "import sys\n"
        "import tracejit as T\n"
        "def inner(x):\n    return x * 2\n"
        "step = T.compile(lambda x: inner(x).tanh().sum(), wait=True)\n"
        + ("told = lambda *_: None\nsys.setprofile(told)\nsys.settrace(told)\n" if module is None else "")
        + "results = {step(T.ones(3)).item() for _ in range(20)}\n"
        "print('calls', step.stats.compiled_calls, step.stats.traces, len(results))\n"
    )
    options = {"trace": ["--count", "--coverdir", str(tmp_path)]}.get(module or "", [])
    command = [sys.executable, *(["-m", module, *options] if module else []), str(script)]
    paths = os.pathsep.join([os.getcwd(), *sys.path])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=True)
    assert "calls 19 1 1\n" in done.stdout and "Warning" not in done.stderr, done.stdout[-2000:] + done.stderr
