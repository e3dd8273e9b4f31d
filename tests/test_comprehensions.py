"""capture/syntax/comprehensions.py: comprehensions whose list nothing else sees, which a loop may make."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.loop_programs import U, W, cell, parameter, zeros
from tracejit.capture.syntax.comprehensions import expression_at, find_collecting_comprehension
from tracejit.core.tree import flatten

KEPT = frozenset({"ys"})


def found(source: str) -> Any:
    (node,) = ast.parse(textwrap.dedent(source)).body
    if isinstance(node, ast.FunctionDef):
        (node,) = node.body
    return find_collecting_comprehension(node, KEPT)


@pytest.mark.parametrize(
    ("source", "before"),
    [
        ("ys = [f(x) for x in xs]", []), ("ys: list = [f(x) for x in xs]", []), ("y = stack([f(x) for x in xs])", ["stack"]),
        ("y = tj.cat([x for x in xs], 1)", ["tj.cat"]), ("sum([f(x, y) for x, y in zip(xs, ys)]) / len(xs)", ["sum"]),
        ("y = stack([f(x) for x in xs]).mean() * 2 + g()", ["stack"]), ("loss += sum([f(xs[t]) for t in range(n)])", ["loss", "sum"]),
        ("y = F.mse_loss(stack([f(x) for x in xs]), z)", ["F.mse_loss", "stack"]), ("y = -stack([x for x in xs])[0]", ["stack"]),
        ("def f(): return self.head(x, stack([x for x in xs]))", ["self.head", "x", "stack"]),
        ("y = z + 2 * sum([x for x in xs])", ["z", "2", "sum"]), ("def f(): return x, 1, stack([x for x in xs])", ["x", "1", "stack"]),
        ("y = f(x, 2.0, y=stack([f(x) for x in xs])) > z", ["f", "x", "2.0", "stack"]), ("y = sum(f(x) for x in xs)", ["sum"]),
        ("loss += sum((f(x) for x in xs), start=0.5) / n", ["loss", "sum"]), ("def f(): return sum((x for x in xs), 1)", ["sum"]),
    ],
)  # fmt: skip
def test_what_a_statement_evaluates_first_may_be_done_before_it(source: str, before: list[str]) -> None:
    position = found(source)
    assert position is not None and [ast.unparse(expression_at(x)) for x in position.before] == before


@pytest.mark.parametrize(
    "source",
    [
        "zs = [f(x) for x in xs]", "ys = zs = [f(x) for x in xs]", "ys = [f(x) for x in xs if x]", "ys = [f(x) for x in xs for y in x]",
        "ys = [lambda: x for x in xs]", "ys = [[f(y) for y in x] for x in xs]", "ys = [(y := x) for x in xs]", "ys = [super() for x in y]",
        "ys = [f(x) for x, *y in xs]", "ys = [f(x) for x.y in xs]", "ys = {f(x) for x in xs}", "y = f([f(x) for x in xs])",
        "y = stack(f(x) for x in xs)", "y = max(f(x) for x in xs)", "y = g() + stack([f(x) for x in xs])", "y = a.b.c(sum([x for x in y]))",
        "y = g(h.x, stack([f(x) for x in xs]))", "y = g(h)[stack([f(x) for x in xs])]", "y = g(*h, stack([f(x) for x in xs]))",
        "y = x[0] + stack([x for x in xs])", "y = g()(stack([f(x) for x in xs]))", "y = stack(tensors=[f(x) for x in xs])",
        "a[i] += sum([f(x) for x in xs])", "if stack([f(x) for x in xs]): pass", "y = sum((f(x) for x in xs), z)",
        "y = sum((x for x in xs), begin=0)", "y = sum((x for x in xs), '')", "y = sum((x for x in xs), 0, 1)", "y = h.sum(x for x in xs)",
        "y = sum(f(x) for x in xs if x)", "y = sum((x for x in xs), **z)", "y = sum((x for x in xs), *z)",
        "y = sum(sum(y for y in x) for x in xs)", "y = vars(stack([x for x in xs]))", "y = eval(stack([x for x in xs]))",
    ],
)  # fmt: skip
def test_others_stay_where_they_are(source: str) -> None:
    assert found(source) is None


TOTAL = tj.zeros(2)


class Joining:
    """Whose function elements may change."""

    stack = staticmethod(tj.stack)


def with_what_elements_change(xs: Any) -> Any:
    global TOTAL
    TOTAL, total, joining = tj.zeros(2), tj.zeros(2), Joining()

    def step(x: Any) -> Any:
        global TOTAL
        nonlocal total
        TOTAL, total, joining.stack = TOTAL + 1, total + x[0, :2], tj.cat
        return x.sum() + total.sum()

    first = total + sum([step(x) for x in xs])
    total += sum([step(x) for x in xs])
    joining.stack = tj.stack
    return first, total, (TOTAL, tj.stack([step(x) for x in xs])), joining.stack([step(x).reshape(1) for x in xs]).shape


@pytest.mark.filterwarnings("ignore")
def test_names_and_functions_are_looked_up_before_the_elements_are_made() -> None:
    compiled = tj.compile(with_what_elements_change)
    for length in (20, 14, 33, 9):
        xs = parameter(length, 2, 4).detach()
        results, expected = flatten(compiled(xs))[0], flatten(with_what_elements_change(xs))[0]
        for x, y in zip(results, expected, strict=True):
            assert np.allclose(x.numpy(), y.numpy()) if isinstance(y, tj.Tensor) else x == y
    with pytest.raises(NameError):
        tj.compile(lambda xs: missing + sum([x * 1 for x in xs]))(tj.ones(12))  # type: ignore[name-defined]  # noqa: F821


def by_turns(xs: Any) -> Any:
    total = tj.zeros(4)
    return sum(total.add_(x[0].float()) for x in xs)


def test_a_generator_runs_by_turns_with_the_sum() -> None:
    compiled = tj.compile(by_turns)
    for length in (12, 15, 18):
        xs = parameter(length, 2, 4).detach()
        assert np.allclose(compiled(xs).numpy(), by_turns(xs).numpy())


def with_names_of_its_own(xs: Any) -> Any:
    x, t = "x", 3
    ys = [cell(zeros(), x) for x in xs]
    pairs = tj.stack([x * 2 + xs[t] for t, x in enumerate(xs)]).sum(0)
    return x, t, tj.stack(ys).mean(0) + pairs


class Model:
    """Whose names are mangled."""

    def __init__(self) -> None:
        self.__scale = 2.0
        self.__steps = 0

    def __call__(self, xs: Any) -> Any:
        __ys = [(x @ W).tanh() * self.__scale for x in xs]
        self.__steps += 1
        return tj.stack(__ys).sum(0), self.__steps


def of_nothing_else(xs: Any) -> Any:
    names = [name.upper() for name in ("a", "b")]
    sizes = sum(x * 2 for x in range(len(names)))
    ys = [y * 3.0 for y in (1.0, 2.0)]
    return len(ys), sizes + len(names), tj.stack([x @ U for x in [xs[0], xs[1]]]).sum() + sum(ys)


@pytest.mark.parametrize("make", [lambda: with_names_of_its_own, Model, lambda: of_nothing_else])
def test_a_compiled_comprehension_gives_what_python_does_for_any_number_of_elements(make: Callable[[], Any]) -> None:
    compiled, function = tj.compile(make()), make()
    for k, length in enumerate((20, 14, 33, 9, 27, 41)):
        xs = parameter(length, 2, 4, seed=k).detach()
        results, expected = compiled(xs), function(xs)
        for x, y in zip(results, expected, strict=True):
            if isinstance(y, tj.Tensor):
                np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
            else:
                assert x == y
    assert compiled.stats.traces <= 3


def failing(xs: Any) -> Any:
    ys: Any = "before"
    try:
        ys = [x @ xs for x in xs]  # whose shapes do not fit
    except RuntimeError:
        return ys
    return tj.stack(ys)


def test_what_fails_leaves_the_variable_as_it_was() -> None:
    compiled = tj.compile(failing)
    for length in (12, 15, 18, 22):
        xs = parameter(length, 2, 4).detach()
        assert compiled(xs) == failing(xs) == "before"


def test_a_generator_stays_one_where_no_loop_stands_for_it() -> None:
    log: list[Any] = []

    def noted(x: Any) -> Any:
        log.append(x)
        return x

    def added(values: Any) -> Any:
        return sum(noted(x) for x in values)

    compiled = tj.compile(added)
    for values in ([1, 2, 3], [1, "a", 3], [2, 2]):
        found = []
        for call in (added, compiled):
            log.clear()
            try:
                result = call(values)
            except TypeError as error:
                result = str(error)
            found.append((result, list(log)))
        assert found[0] == found[1]


def endless(xs: Any) -> Any:
    return sum([f(x) for x in xs])


def f(x: Any) -> Any:
    return (x @ W).tanh().sum()


def test_errors_are_those_of_python() -> None:
    compiled = tj.compile(endless)
    for length in (10, 14, 12):
        xs = parameter(length, 2, 4).detach()
        assert np.allclose(compiled(xs).item(), endless(xs).item())
    for wrong in (3, None, tj.ones(())):
        with pytest.raises(TypeError) as expected:
            endless(wrong)
        with pytest.raises(TypeError, match=str(expected.value).replace("(", r"\\(").replace(")", r"\\)")):
            compiled(wrong)
