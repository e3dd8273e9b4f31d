"""TRACEJIT_DEBUG: each level adds its own account, to stderr, and none changes a result."""

from __future__ import annotations

from collections.abc import Callable

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
        print(end="")
        return x + 1

    with override(debug=1):
        T.compile(function)(T.ones(1))
    error = capsys.readouterr().err
    assert "runs eagerly: [impure_call]" in error and "test_debug.py:" in error


@pytest.mark.parametrize("backend", ["interpret", "reference"])
def test_all_levels_work_for_the_other_backends(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    with override(debug=5, backend=backend):
        function = T.compile(lambda x: (x * x).sum())
        for _ in range(2):
            function(T.ones(3, requires_grad=True)).backward()
    error = capsys.readouterr().err
    assert "compiled forward" in error and "LLVM" not in error


def test_a_program_with_a_host_step_is_accounted_for_segment_by_segment(capsys: pytest.CaptureFixture[str]) -> None:
    with override(debug=5):
        function = T.compile(lambda x: T.linalg.inv(x * 2) + 1)
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
