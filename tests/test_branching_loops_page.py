"""docs/branching-loops.md: the examples are one node each, and what the page says of other loops happens."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import agrees, assert_equal, normal, of, outcome
from tests.test_branching_loops import messages
from tests.test_outlined_loops import defined

PAGE = (Path(__file__).parents[1] / "docs" / "branching-loops.md").read_text()
BLOCK = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = BLOCK[1] if BLOCK else ""
ROWS = re.findall(r"^\| `([^|`]+)`[^|`]* \| ([^|]+) \| `([^|]+)` \|$", PAGE, re.MULTILINE)
SURROUNDINGS = """\
import numpy as np
import tracejit
from tracejit import autograd, cat, exp, linalg, optim, rand, randn, stack, zeros

class Box: pass

box, m = Box(), tracejit.tensor(np.eye(2) * 2)
weight = tracejit.ones(2, dtype=tracejit.float64, requires_grad=True)

def density(x):
    return exp(-0.5 * (x * x).sum())

"""
GIVEN: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "metropolis": lambda k: (T.ones(3) * 0.1 * k, 700),
    "euler": lambda k: (of(1 + 0.1 * k, 2.0), 12.0),
    "ball": lambda k: (of(1 + 0.1 * k).sum(), of(0.0).sum(), 700),
    "rejection": lambda k: (T.ones(3) * 0.1 * k, 300),
    "first_above": lambda k: (normal(k, 700), 300.0),
    "largest": lambda k: (normal(k, 700, 2),),
    "langevin": lambda k: (T.ones(3) * 0.1 * k, 400),
    "descent": lambda k: (of(0.5 + 0.1 * k, 1.0), 400),
    "trained": lambda k: (normal(k, 20, 2), normal(k, 20, 2) @ of(1.0, -0.5), 40),
    "bisected": lambda k: (0.0, 2.0 + k, of(3.0).sum()),
    "accepted": lambda k: (200,),
    "chains": lambda k: (T.ones(3) * 0.1 * k, 700),
    "decay": lambda k: (of(1 + 0.01 * k, 2.0), 12.0, of(1 + 0.01 * k).sum()),
}
"""The arguments of the examples in each call."""


@pytest.mark.parametrize("name", re.findall(r"^def (\w+)", EXAMPLES, re.MULTILINE))
def test_an_example_of_the_page_is_one_node(name: str) -> None:
    defined(SURROUNDINGS + EXAMPLES + f"f = {name}\n")
    function = defined(SURROUNDINGS + EXAMPLES + f"f = {name}\n")
    compiled = T.compile(function, wait=True)
    agrees(function, GIVEN[name], compiled=compiled, recordings=5, calls=14)
    lines = re.findall(r"^ +loop (?:of \d+ steps|while a condition holds)", compiled.explain(verbose=True), re.MULTILINE)
    assert lines and compiled.stats.piecewise_calls == 0 and not compiled.reasons


def test_the_page_has_thirteen_examples_and_is_short() -> None:
    assert [*GIVEN] == re.findall(r"^def (\w+)", EXAMPLES, re.MULTILINE)
    assert len(PAGE.splitlines()) <= 137 and max(map(len, PAGE.splitlines())) <= 120
    files = re.findall(r"^(\S+\.py) ", PAGE, re.MULTILINE) + re.findall(r"-> (\S+\.py)", PAGE)
    package = Path(T.__file__).parent
    assert len(files) == 9 and all((package / file).exists() or (package / "capture" / file).exists() for file in files)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_the_page_says_of_other_loops_happens(row: tuple[str, str, str]) -> None:
    step, _, reason = row
    known = {"outs": "[]", "last": "None"}
    names = [name for name in known if re.search(rf"\b{name}\b", step)]
    lines = [*[f"{name} = {known[name]}" for name in names], "for t in range(n):", f"    {step}"]
    lines += ["    h = h * 0.5 if h.sum() > 1 else h + rand(())", f"return {', '.join(['h', *names])}"]
    function = defined(SURROUNDINGS + "def f(xs, h, n):\n" + "".join(f"    {line}\n" for line in lines))
    compiled = T.compile(function, wait=True)
    for k in range(5):
        given = normal(k, 2, 2), normal(k, 2), 600
        assert_equal(outcome(function, given, k), outcome(compiled, given, k))
    stats = compiled.stats
    assert reason in messages(compiled), compiled.explain()
    assert {x.code for x in compiled.reasons} == {"outlined_loop"} and stats.piecewise_calls == 5 - stats.traces, (
        compiled.explain()
    )


AROUND = {
    "a generator": "def steps(h):\n        {loop}\n            yield h\n    for h in steps(h):\n        pass\n    return h",
    "a finally": "try:\n        {loop}\n            if h.sum() > 99: return h\n    finally:\n        box.h = h\n    return h",
    "a nested function": "def grow():\n        nonlocal h\n        h = h + rand(())\n    {loop}\n    return h",
}


@pytest.mark.parametrize("around", AROUND)
def test_where_the_page_says_that_calls_are_eager_they_are(around: str) -> None:
    deep = " " * (4 if around == "a nested function" else 8)
    step = "h = h * 0.5 if h.sum() > 1 else h + rand(())"
    if around == "a nested function":
        step = f"if h.sum() > 1: h = h * 0.5\n{deep}    else: grow()"
    text = AROUND[around].format(loop=f"for t in range(n):\n{deep}    {step}")
    function = defined(SURROUNDINGS + f"def f(h, n):\n    {text}\n")
    compiled = T.compile(function, wait=True)
    for k in range(4):
        assert_equal(outcome(function, (normal(k, 2), 600), k), outcome(compiled, (normal(k, 2), 600), k))
    assert {x.code for x in compiled.reasons} == {"branching_loop"} and not compiled.stats.compiled_calls, compiled.explain()


def test_the_page_is_found() -> None:
    assert "(branching-loops.md)" in (Path(__file__).parents[1] / "docs" / "loops.md").read_text()
