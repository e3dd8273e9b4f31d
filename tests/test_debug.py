"""TRACEJIT_DEBUG: each level adds its own account, to stderr, and none changes a result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tracejit as T
from tracejit.config import override

# What is first written at each level.
MARKS = {
    1: "compiled forward in",
    2: "times of the steps",
    3: "forward after functionalise",
    4: "LLVM of segment 0",
    5: "memory plan of segment 0",
}


def make() -> tuple[T.Tensor, Callable[[T.Tensor], T.Tensor]]:
    w = T.tensor([1.0, -2.0], requires_grad=True)

    @T.compile
    def step(x: T.Tensor) -> T.Tensor:
        w.grad = None
        loss = ((w * x).tanh() ** 2).sum()
        loss.backward()
        with T.no_grad():
            w.sub_(w.grad * 0.1)
        return loss

    return w, step


def trained() -> list[float]:
    w, step = make()
    for k in range(3):
        step(T.tensor([1.0, float(k)]))
    assert step.stats.compiled_calls == 2
    return w.tolist()


@pytest.mark.parametrize("level", range(6))
def test_each_level_includes_those_before_it_and_changes_no_result(level: int, capsys: pytest.CaptureFixture[str]) -> None:
    expected = trained()
    with override(debug=level):
        assert trained() == expected
    out, error = capsys.readouterr()
    assert out == ""
    for first, mark in MARKS.items():
        assert (mark in error) is (first <= level), (first, error)
    assert ("def entry(args, kwargs)" in error) is (level == 5)


def test_times_are_written_once_per_program_backward_included(capsys: pytest.CaptureFixture[str]) -> None:
    with override(debug=2):
        function = T.compile(lambda x: (x.exp() * x).sum())
        for _ in range(3):
            function(T.ones(4, requires_grad=True)).backward()
    error = capsys.readouterr().err
    assert error.count("forward, times of the steps") == 1
    assert error.count("backward for the cotangents [0], times of the steps") == 1


def test_reasons_are_written_when_they_arise(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: T.Tensor) -> T.Tensor:
        sys.getsizeof(print)
        return x + 1

    with override(debug=1):
        T.compile(function)(T.ones(1))
    error = capsys.readouterr().err
    assert "runs eagerly: [unknown_call]" in error and "test_debug.py:" in error


@pytest.mark.parametrize("backend", ["interpret", "reference", "numba"])
def test_all_levels_work_for_the_other_backends(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    with override(debug=5, backend=backend):
        function = T.compile(lambda x: (x * x).sum())
        for _ in range(2):
            function(T.ones(3, requires_grad=True)).backward()
    error = capsys.readouterr().err
    assert "compiled forward" in error and "LLVM" not in error


def test_a_program_with_a_host_step_is_accounted_for_segment_by_segment(capsys: pytest.CaptureFixture[str]) -> None:
    with override(debug=5):
        function = T.compile(lambda x: T.linalg.pinv(x * 2) + 1)
        for _ in range(2):
            function(T.eye(2) + 1)
    assert function.stats.compiled_calls == 1
    error = capsys.readouterr().err
    assert "host step" in error and "memory plan of segment 1" in error and "only programs" in error


def test_an_exit_on_the_first_run_leaves_the_times_for_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    with override(debug=2):
        function = T.compile(lambda x: x * 2 if x.sum() > 0 else x - 1)
        up, down = T.ones(2), -T.ones(2)
        for x in (up, down, up, up):
            function(x)
    error = capsys.readouterr().err
    assert "take no exit" in error and "times of the steps" in error
    assert function.stats.compiled_calls == 2


CORPUS = """
import contextlib, io, sys
import tracejit as T
from tracejit import nn, optim
from tracejit.config import override

sys.path.insert(0, {tests!r})
from capture_programs import PROGRAMS


def models():
    yield nn.Linear(3, 4), T.ones(2, 3)
    yield nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()), T.ones(2, 1, 8, 8)
    yield nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.GELU()), T.tensor([[0, 1, 4], [2, 2, 3]])


def steps(model, x):
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    @T.compile
    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = T.compile(lambda x: model(x))
    for _ in range(3):
        step(x)
        compiled(x).sum().backward()
    return step.stats.compiled_calls, compiled.stats.compiled_calls


def host(x):
    return T.linalg.pinv(x * 2) + T.sort(x)[0]


def applied(target, calls):
    said = []
    for call in calls:
        try:
            said.append(repr(call(target)))
        except Exception as error:
            said.append(repr(error))
    return said


for level in (1, 2, 3, 4, 5):
    with override(debug=level, hot_calls=2), contextlib.redirect_stderr(io.StringIO()) as log:
        for make, _ in list(PROGRAMS.values())[level :: 12 if level == 5 else 60]:  # the last does what all others do
            function, calls, observe = make()
            applied(T.compile(function), calls)
        for model, x in models():
            assert all(n > 0 for n in steps(model, x)), (level, model)
        compiled = T.compile(host)
        for n in (2, 2, 3, 2):
            compiled(T.eye(n))
        assert compiled.stats.compiled_calls == 2
        wide = T.compile(lambda x, k: x * k)
        for k in (2, 3, 2**70, 4):
            applied(wide, [lambda f: f(T.tensor([1]), k)])
    assert (level >= 2) == ("times of the steps" in log.getvalue()), level
    print("\\nlevel", level)
"""


def test_every_level_works_for_programs_of_all_kinds(tmp_path: Path) -> None:
    """In a process of its own: what is timed runs outside of the order that the program has, and could read memory that nobody filled."""
    script = tmp_path / "corpus.py"
    script.write_text(CORPUS.format(tests=os.path.dirname(os.path.abspath(__file__))))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script)], capture_output=True, text=True, env=environment, timeout=600
    )
    reached = [line for line in said.stdout.splitlines() if line.startswith("level")]
    assert reached == [f"level {k}" for k in range(1, 6)], (said.returncode, said.stderr[-3000:])


class Box:
    def __init__(self) -> None:
        self.mode = "plain"


box = Box()


def guarded(x: T.Tensor, n: int = 5, name: str = "first") -> T.Tensor:
    y = x * 2 if n > 3 else x
    return y.sum() if y.sum() > 0 and box.mode else y


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((T.ones(3),), {}, "the shape of x: expected [2], found [3]"),
        ((T.ones(2, dtype=T.float64),), {}, "the dtype of x: expected tracejit.float32, found tracejit.float64"),
        ((T.ones(4)[::2],), {}, "x._base: expected None, found a Tensor at "),
        ((T.ones(2, requires_grad=True),), {}, "x._requires_grad: expected False, found True"),
        ((T.ones(2), 2), {}, "n > 3: expected True, found False, since n is 2"),
        ((T.ones(2), 2.5), {}, "type(n): expected int, found float"),
        ((T.ones(2), 5, "second"), {}, "name: expected 'first', found 'second'"),
        ((-T.ones(2), 5), {}, "the value at line {line} of test_debug.py, `return y.sum() if"),
    ],
)
def test_the_guard_that_failed_is_named_with_both_values(
    args: tuple[object, ...], kwargs: dict[str, object], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = T.compile(guarded, wait=True, dynamic=False)
    compiled(T.ones(2), 5, "first")
    with override(debug=1):
        compiled(T.ones(2), 5, "first")
        assert "guard" not in capsys.readouterr().err
        compiled(*(*args, *(T.ones(2), 5, "first")[len(args) :]), **kwargs)
    error = capsys.readouterr().err
    line = guarded.__code__.co_firstlineno + 2
    assert f"guarded: no recorded path serves the call, since a guard failed: {text.format(line=line)}" in error


def test_the_guard_that_failed_is_named_where_the_call_is_not_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    compiled = T.compile(guarded, wait=True)
    with override(debug=1, max_entries=1, max_sizes=1):
        compiled(T.ones(2))
        box.mode = "other"
        try:
            compiled(T.ones(2), name="first")
            compiled(T.ones(2))
        finally:
            box.mode = "plain"
    assert compiled.stats.traces == 1
    error = capsys.readouterr().err
    assert "since a guard failed: box.mode at line " in error and "`: expected 'plain', found 'other'" in error


def test_calls_that_are_left_to_python_are_written_of(capsys: pytest.CaptureFixture[str]) -> None:
    compiled = T.compile(lambda x: iter([x]))
    with override(debug=1):
        for _ in range(20):
            compiled(T.ones(1))
    error = capsys.readouterr().err
    assert all(f"the next {calls} calls are left to Python" in error for calls in (12, 52))  # it warns in between
