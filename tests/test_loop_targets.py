"""Loops whose target an inner loop overwrites have names of their own, where nobody can tell."""

from __future__ import annotations

import ast
import random
from typing import Any

import pytest

import tracejit as T
from tracejit.capture.syntax.loop_targets import separate_targets

matrix = T.tensor([[0.2, -0.4], [0.7, 0.1]])


def renamed(text: str, captured: tuple[str, ...] = ()) -> set[str]:
    (node,) = ast.parse(f"def f(x, a, b):\n    {text}").body
    assert isinstance(node, ast.FunctionDef)
    return separate_targets(node, captured)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("for _ in range(a):\n        for _ in range(b): x()", {"__outer0____"}),
        ("for i in range(a):\n        for i in range(b): x(i)", {"__outer0_i__"}),
        ("for i in range(a):\n        for i in range(b):\n            for i in range(2): x(i)", {"__outer0_i__", "__outer1_i__"}),
        ("for i in range(a):\n        for i in range(b): i += 1", {"__outer0_i__"}),
        ("for i in range(a):\n        for j in range(b): x(i)", set()),
        ("for i in range(a):\n        for i in range(i): x()", set()),
        ("for i in range(a):\n        for i in range(b): x()\n        x(i)", set()),
        ("for i in range(a):\n        for i in range(b): x()\n        i += 1", set()),
        ("for i in range(a):\n        for i in range(b): x()\n        else: x(i)", set()),
        ("for i in range(a):\n        for i in range(b): x()\n    return i", set()),
        ("for i in range(a):\n        for i in range(b): x()\n    del i", set()),
        ("global i\n    for i in range(a):\n        for i in range(b): x()", set()),
        ("for i in range(a):\n        for i in range(b): x(locals())", set()),
        ("for i in range(a): x()\n    for i in range(b): x(i)", set()),
    ],
)
def test_a_target_that_nothing_reads_is_renamed_and_no_other(text: str, found: set[str]) -> None:
    assert renamed(text) == found


def test_what_nested_functions_read_keeps_its_name() -> None:
    assert renamed("for i in range(a):\n        for i in range(b): x()", ("i",)) == set()


def test_loops_with_one_counter_name_are_of_any_length() -> None:
    def program(x: Any, a: int, b: int) -> Any:
        for _ in range(a):
            for _ in range(b):
                x = (x @ matrix).tanh()
        return x

    compiled, lengths = T.compile(program, wait=True), random.Random(0)
    for _ in range(9):
        given = T.ones(2), lengths.randint(12, 20), lengths.randint(12, 20)
        assert T.allclose(compiled(*given), program(*given), rtol=1e-4, atol=1e-5)
    assert compiled.stats.traces <= 3 and compiled.stats.compiled_calls >= 6, compiled.explain()


def test_the_last_value_of_a_target_is_that_of_the_loop_that_ran_last() -> None:
    def program(x: Any, a: int, b: int) -> Any:
        i = -1
        for i in range(a):
            for i in range(10, 10 + b):
                x = x + i
        return x, i

    compiled = T.compile(program, wait=True)
    for a, b in ((2, 3), (3, 0), (0, 2), (2, 3), (4, 1)):
        (x, i), (y, j) = compiled(T.zeros(1), a, b), program(T.zeros(1), a, b)
        assert x.item() == y.item() and i == j
