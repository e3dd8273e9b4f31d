"""docs/loops.md: each example, and what to write instead of each row of the table, is one loop of any length; rows do what they say."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit.core.tree import flatten

PAGE = (Path(__file__).parents[1] / "docs" / "loops.md").read_text()
BLOCK = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = BLOCK[1] if BLOCK else ""
NAMES = re.findall(r"^def (\w+)", EXAMPLES, re.MULTILINE)
ROWS = re.findall(r"^\| `([^|]+)` \| ([^|]+) \| `([^|]+)` \|$", PAGE, re.MULTILINE)
LENGTHS, OTHERS = (14, 12, 19), (11, 24)
"""Lengths of which some are recorded, and others that the recordings have to serve."""

SURROUNDINGS = """\
import math, random
import numpy as np
import tracejit
from tracejit import arange, autograd, linalg, nn, rand, stack, tensor, where
from tracejit.nn import functional

tracejit.manual_seed(0)
random.seed(0)
w, u, m = (tracejit.tensor(np.random.default_rng(k).normal(0, 0.4, (4, 4)) + (k == 2) * np.eye(4)) for k in range(3))
w.requires_grad_(), u.requires_grad_()
inverse = linalg.inv(m).mT
weights = stack([w.detach(), u.detach()])
layers = [nn.Linear(4, 4).double(), nn.Linear(4, 4).double()]
places = arange(100)


class Box:
    pass


class HasDel:
    def __init__(self, h):
        self.h = h

    def __del__(self):
        pass


class Square(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]


box = Box()
box.states = []


def cell(h, x):
    return (h @ w + x @ u).tanh()


"""
BEGINNINGS = {
    "rates": "rates = [0.01 * k for k in range(100)]", "outs": "outs = [h, h * 2]", "before": "before = h * 2",
    "total": "total = h", "out": "out = tracejit.zeros_like(xs)", "a": "a, b = [h + 1], [h]", "p": "p, q = h + 1, h",
    "loss": "loss = 0.0", "gates": "gates = xs * w.sum()",
}  # fmt: skip
"""What variables hold before the loop that a row of the table reads; what it assigns to is what it returns."""

OF_STEPS = ("kept", "odd", "outs", "gates", "rates")
"""Variables that functions do not return."""


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Makes a module of what names of the page stand for and of a text."""
    names = []

    def load(text: str) -> ModuleType:
        names.append(f"loops_{len(names)}")
        path = tmp_path / f"{names[-1]}.py"
        path.write_text(SURROUNDINGS + text)
        spec = importlib.util.spec_from_file_location(names[-1], path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[names[-1]] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        del sys.modules[name]


def outcome(module: ModuleType, function: Callable[..., Any], length: int, has_gradients: bool) -> list[Any]:
    """Of a call with a sequence of so many rows: results, their gradients if asked for, those of parameters, the state of the generator."""
    random = np.random.default_rng(length)
    given = {"xs": random.normal(0, 0.4, (length, 2, 4)), "h": random.normal(0, 0.4, (2, 4)), "n": length}
    given |= {"q": given["h"], "p": -given["h"]}
    tracejit.manual_seed(length)
    module.random.seed(length)
    arguments = {name: given[name] for name in inspect.signature(function).parameters}
    results = flatten(function(**{k: tracejit.tensor(v) if k != "n" else v for k, v in arguments.items()}))[0]
    sums = [x.sum() for x in results if isinstance(x, tracejit.Tensor) and x.requires_grad and has_gradients]
    slopes = tracejit.autograd.grad(sum(sums), (module.w, module.u), allow_unused=True) if sums else ()
    summed = [parameter.grad for parameter in (module.w, module.u)]
    module.w.grad = module.u.grad = None
    return [*results, *slopes, *summed, tracejit.get_rng_state()]


def assert_equal(actual: list[Any], expected: list[Any]) -> None:
    assert len(actual) == len(expected)
    for x, y in zip(actual, expected, strict=True):
        if isinstance(y, tracejit.Tensor):
            assert (x.shape, x.dtype, x.requires_grad) == (y.shape, y.dtype, y.requires_grad)
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
        else:
            assert type(x) is type(y) and x == (pytest.approx(y, rel=1e-12) if isinstance(y, float) else y)


def assert_one_loop_of_any_length(load: Callable[[str], ModuleType], text: str, name: str, has_gradients: bool = False) -> None:
    eager, module = load(text), load(text)
    compiled = tracejit.compile(getattr(module, name), wait=True)
    for length in LENGTHS:
        expected = outcome(eager, getattr(eager, name), length, has_gradients)
        assert_equal(outcome(module, compiled, length, has_gradients), expected)
    recordings, served = compiled.stats.traces, compiled.stats.compiled_calls
    for length in OTHERS:
        expected = outcome(eager, getattr(eager, name), length, has_gradients)
        assert_equal(outcome(module, compiled, length, has_gradients), expected)
    assert not compiled.reasons and compiled.stats.traces == recordings, compiled.explain()
    assert compiled.stats.compiled_calls == served + len(OTHERS), compiled.explain()
    assert "has a recording for each number of steps" not in compiled.explain(verbose=True)
    assert re.search(r"^ +loop (of \d+ steps|while a condition holds)", compiled.explain(verbose=True), re.MULTILINE)


def function_with(statements: str) -> str:
    """The text of a function: these statements are the body of its loop, and it returns what they assign to."""
    assigned = [name for target in re.findall(r"(?:^|; )([\w, ]+) = ", statements) for name in target.split(", ")]
    begun = [name for name in BEGINNINGS if re.search(rf"\b{name}\b", statements)]
    results = [name for name in dict.fromkeys(["h", *assigned, *begun]) if name not in OF_STEPS]
    if "outs" in begun:
        results.append("stack(outs[2:])" if "outs.append(h.norm())" in statements else "stack(outs)")
    lines = ["n = len(xs)", *(BEGINNINGS[name] for name in begun)]
    if "next(rates)" in statements:
        lines.append("rates = iter(rates)")
    lines += ["for t in range(2, n):", "    x = xs[t]", *(f"    {statement}" for statement in statements.split("; "))]
    return "def function(xs, h):\n" + "".join(f"    {line}\n" for line in (*lines, f"return {', '.join(results)}"))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_one_loop_of_any_length(name: str, loaded: Callable[[str], ModuleType]) -> None:
    assert_one_loop_of_any_length(loaded, EXAMPLES, name, has_gradients=True)


@pytest.mark.parametrize("statements", dict.fromkeys(row[2] for row in ROWS))
def test_what_to_write_instead_is_one_loop_of_any_length(statements: str, loaded: Callable[[str], ModuleType]) -> None:
    assert_one_loop_of_any_length(loaded, function_with(statements), "function")


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_the_table_says_happens(row: tuple[str, str, str], loaded: Callable[[str], ModuleType]) -> None:
    text = function_with(row[0])
    eager, module = loaded(text), loaded(text)
    compiled = tracejit.compile(module.function, wait=True)
    for length in (*LENGTHS, 13, 13, 13):
        assert_equal(outcome(module, compiled, length, False), outcome(eager, eager.function, length, False))
    stats = compiled.stats
    if row[1] == "each length":
        assert not compiled.reasons and (stats.traces, stats.compiled_calls) == (4, 2), compiled.explain()
    elif row[1] == "a node that branches":
        assert not compiled.reasons and stats.piecewise_calls == 0 and stats.compiled_calls >= 2, compiled.explain()
    else:
        assert {f"eager: `{reason.code}`" for reason in compiled.reasons} == {row[1]}
        assert stats.compiled_calls == stats.piecewise_calls == 0


def test_a_while_loop_that_values_end_is_a_node_once_calls_have_differed(loaded: Callable[[str], ModuleType]) -> None:
    module = loaded(EXAMPLES + "\n\ndef halved(h):\n    while h.norm() > 1:\n        h = h / 2\n    return h\n")
    newton, halved = tracejit.compile(module.newton, wait=True), tracejit.compile(module.halved, wait=True)
    for n in (3, 6, 12, 24):
        newton(tracejit.ones(2, 4, dtype=tracejit.float64), n * 1000)
        assert_equal([halved(tracejit.ones(4) * n)], [module.halved(tracejit.ones(4) * n)])
    assert (newton.stats.traces, newton.stats.compiled_calls) == (1, 3) and halved.stats.traces == 3
    assert halved.stats.compiled_calls == 1 and not halved.reasons, halved.explain()


def test_a_list_of_tensors_has_a_recording_for_each_length(loaded: Callable[[str], ModuleType]) -> None:
    compiled = tracejit.compile(loaded(EXAMPLES).recurrent_network, wait=True)
    for length in (12, 9, 14, 10, 10):
        rows = [tracejit.full((2, 4), 0.1 * k, dtype=tracejit.float64) for k in range(length)]
        compiled(rows, tracejit.zeros(2, 4, dtype=tracejit.float64))
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (4, 1), compiled.explain()


@pytest.mark.parametrize(("name", "least"), [("recurrent_network", 7), ("scan", 3)])
def test_fewer_steps_than_the_page_says_are_recorded_for_their_length(
    name: str, least: int, loaded: Callable[[str], ModuleType]
) -> None:
    module = loaded(EXAMPLES)
    compiled = tracejit.compile(getattr(module, name), wait=True)
    for length in (*LENGTHS, least, least - 1):
        recordings = compiled.stats.traces
        outcome(module, compiled, length, False)
        assert compiled.stats.traces == recordings or length in (*LENGTHS, least - 1)
    assert compiled.stats.traces == recordings + 1


def test_explain_says_what_the_page_says(loaded: Callable[[str], ModuleType]) -> None:
    printing = tracejit.compile(loaded(function_with("h = cell(h, x); print(end='')")).function, wait=True)
    for length in LENGTHS:
        printing(tracejit.ones(length, 2, 4, dtype=tracejit.float64), tracejit.ones(2, 4, dtype=tracejit.float64))
    why = "has a recording for each number of steps: each step changes something outside of the call"
    assert why in printing.explain(verbose=True) and why in " ".join(PAGE.split())


def test_the_modules_that_the_page_names_exist() -> None:
    for path in re.findall(r"`((?:capture|ir|passes)/[\w/]+\.py)`", PAGE):
        assert (Path(tracejit.__file__).parent / path).is_file(), path


def test_the_modules_that_the_drawing_names_exist() -> None:
    drawing, root = PAGE.split("```text\n")[1].split("```")[0], Path(tracejit.__file__).parent
    assert 10 < len(drawing.splitlines()) <= 25
    for line in drawing.splitlines():
        folder = root / "capture"  # a name without one is in the folder of the name before it
        for name in re.findall(r"[\w/]+\.py", line):
            base = (
                root if name.startswith(("ir/", "passes/", "lowering/", "llvm/")) else root / "capture" if "/" in name else folder
            )
            assert (base / name).is_file(), name
            folder = (base / name).parent if "/" in name and name != "recording/journal.py" else folder


def test_the_page_has_ten_examples_and_rows_of_each_kind() -> None:
    assert len(NAMES) == 10 and len(ROWS) == PAGE.count("\n| `") >= 20
    assert {"each length", "a node that branches"} < {row[1] for row in ROWS}
    lines = PAGE.splitlines()
    assert len(lines) <= 150 and max(map(len, lines)) <= 120
