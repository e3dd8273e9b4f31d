"""capture/carried_leaves.py: branching loops whose steps take gradients at a leaf that the step before has made, against eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import agrees, assert_equal, loops_of_paths, normal, outcome, outlined
from tracejit.autograd import grad


def bowl(x: Any) -> Any:
    return (x**4).sum() + (1.5 * x).sin().sum()


def start(k: int) -> Any:
    return normal(k, 3).tanh()


@dataclass
class State:
    x: Any
    steps: int = 0


# -- programs that are one node
def descent(x: Any, n: int) -> Any:
    x = x.clone().requires_grad_()
    rate, before = 0.05, None
    for k in range(n):
        loss = bowl(x)
        (slope,) = grad(loss, x)
        if before is not None and loss.item() > before:
            rate = rate * 0.5
        before = loss.item()
        x = (x - rate * slope).detach().requires_grad_()
        if slope.norm() < 1e-2:
            return x, loss.item(), k
    return x, loss.item(), n


def armijo(x: Any, n: int) -> Any:
    x = x.clone().requires_grad_(True)
    for _ in range(n):
        loss = bowl(x)
        (slope,) = grad(loss, x)
        if slope.norm() < 1e-3:
            break
        step = 1.0
        with T.no_grad():
            while bowl(x - step * slope) > loss - 1e-4 * step * (slope @ slope):
                step *= 0.5
        x = (x - step * slope).detach().requires_grad_(True)
    return x.detach(), float(loss)


def best_seen(x: Any, n: int) -> Any:
    x = x.clone().requires_grad_()
    best, lowest = None, float("inf")
    for _ in range(n):
        loss = bowl(x)
        if loss.item() < lowest:
            best, lowest = x.detach(), loss.item()
        (slope,) = grad(loss, x)
        x = (x - 0.05 * slope + 0.1 * T.randn(3)).detach().requires_grad_()
    return best, lowest, x


def kept_at_times(x: Any, n: int) -> Any:  # some steps leave the leaf as it was
    x = x.clone().requires_grad_()
    for _ in range(n):
        proposed = x - 0.1 * grad(bowl(x), x)[0] + 0.5 * T.randn(3)
        if bowl(proposed) < bowl(x):
            x = proposed.detach().requires_grad_()
    return x


def returned(x: Any, n: int) -> Any:
    x = x.clone().requires_grad_()
    for k in range(n):
        slope = grad(bowl(x), x)[0]
        if slope.norm() < 0.2:
            return x, k
        x = (x - 0.05 * slope).detach().requires_grad_()
    return x, n


def changed_in_place(x: Any, n: int) -> Any:
    x = x.clone().requires_grad_()
    for _ in range(n):
        slope = grad(bowl(x), x)[0]
        x = x.detach().clone()
        x -= 0.05 * slope
        if slope.sum() > 0:
            x *= 0.9
        x.requires_grad_()
    return x


def in_an_attribute(x: Any, n: int) -> Any:
    state = State(x.clone().requires_grad_())
    for _ in range(n):
        slope = grad(bowl(state.x), state.x)[0]
        if slope.sum() > 0:
            state.steps += 1
        state.x = (state.x - 0.05 * slope).detach().requires_grad_()
    return state.x, state.steps


def trajectory(x: Any, n: int) -> Any:
    x, seen = x.clone().requires_grad_(), []
    for _ in range(n):
        slope = grad(bowl(x), x)[0]
        if slope.norm() > 0.5:
            seen.append(x.detach())
        x = (x - 0.05 * slope).detach().requires_grad_()
    return T.stack(seen), x


def in_a_loop(x: Any, n: int) -> Any:
    total = T.zeros(3, dtype=T.float64)
    for k in range(n):
        y = (x * (1 + k)).detach().requires_grad_()
        while (slope := grad(bowl(y), y)[0]).norm() > 0.5:
            y = (y - 0.05 * slope).detach().requires_grad_()
        total = total + y.detach() if slope.sum() > 0 else total - y.detach()
    return total


ONE_NODE: dict[Any, Callable[[int], tuple[Any, ...]]] = {
    descent: lambda k: (start(k), 30),
    armijo: lambda k: (start(k), 20),
    best_seen: lambda k: (start(k), 20),
    kept_at_times: lambda k: (start(k), 20),
    returned: lambda k: (start(k), 30),
    changed_in_place: lambda k: (start(k), 20),
    in_an_attribute: lambda k: (start(k), 20),
    trajectory: lambda k: (start(k), 20),
    in_a_loop: lambda k: (start(k), 6),
}


@pytest.mark.parametrize("function", ONE_NODE, ids=lambda f: f.__name__)
def test_a_loop_whose_steps_make_a_leaf_for_the_next_one_is_one_node(function: Any) -> None:
    agrees(function, ONE_NODE[function], recordings=5, calls=12)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_it_may_have_few_steps(n: int) -> None:
    for k in range(4):
        compiled = outlined(kept_at_times)
        for _ in range(3):
            assert_equal(outcome(kept_at_times, (start(k), n), k), outcome(compiled, (start(k), n), k))


def test_gradients_arrive_at_the_leaf_after_the_loop() -> None:
    compiled = outlined(descent)
    for k in range(6):
        expected, found = descent(start(k), 9)[0], compiled(start(k), 9)[0]
        for x in (expected, found):
            assert x.is_leaf
            (x * x).sum().backward()
        assert T.allclose(expected.grad, found.grad, rtol=1e-9)
    assert compiled.stats.compiled_calls, compiled.explain()


def test_a_function_that_descends_until_it_converges_is_compiled_after_few_calls() -> None:
    compiled = T.compile(descent, wait=True)
    agrees(descent, ONE_NODE[descent], compiled=compiled, recordings=5, calls=12)


def test_a_leaf_that_the_function_is_given_stays_as_it_was() -> None:
    def descended(x: Any, n: int) -> Any:
        for _ in range(n):
            slope = grad(bowl(x), x)[0]
            x = (x - 0.05 * slope).detach().requires_grad_() if slope.norm() > 0.2 else x
        return x

    compiled = outlined(descended)
    for k in range(8):
        for n in (6, 0):
            for function in (descended, compiled):
                given = start(k).requires_grad_()
                result = function(given, n)
                assert (result is given) == (n == 0 or bool(T.equal(result, given)))
                assert given.grad is None
            assert_equal(
                outcome(descended, (start(k).requires_grad_(), n), k),
                outcome(compiled, (start(k).requires_grad_(), n), k),
            )


# -- programs that are none, with what eager mode gives
def loss_with_its_graph(x: Any, n: int) -> Any:
    x = x.clone().requires_grad_()
    for _ in range(n):
        loss = bowl(x)
        slope = grad(loss, x, retain_graph=True)[0]
        if slope.norm() < 0.2:
            break
        x = (x - 0.05 * slope).detach().requires_grad_()
    loss.backward(retain_graph=True)
    return loss, x


def all_leaves(x: Any, n: int) -> Any:
    x = x.clone().requires_grad_()
    leaves = [x]
    for _ in range(n):
        slope = grad(bowl(x), x)[0]
        x = (x - (0.05 if slope.sum() > 0 else 0.1) * slope).detach().requires_grad_()
        leaves.append(x)
    return leaves


def best_leaf(x: Any, n: int) -> Any:  # two variables hold one leaf
    x = x.clone().requires_grad_()
    best = x
    for _ in range(n):
        x = (x - 0.1 * grad(bowl(x), x)[0] + 0.3 * T.randn(3)).detach().requires_grad_()
        best = x if bowl(x) < bowl(best) else best
    return best, x


def with_its_memory(x: Any, n: int) -> Any:
    x = x.clone().requires_grad_()
    for _ in range(n):
        y = x.detach() - 0.1 * grad(bowl(x), x)[0] + 0.3 * T.randn(3)
        x = y.detach().requires_grad_() if bowl(y) < bowl(x) else x
    y += 1
    return x, y


def with_a_gradient(x: Any, n: int) -> Any:
    x = x.clone().requires_grad_()
    for _ in range(n):
        x.grad = None
        bowl(x).backward()
        x = (x - (0.05 if x.grad.sum() > 0 else 0.1) * x.grad).detach().requires_grad_()
    return x, x.grad


def of_the_leaf_before(x: Any, n: int) -> Any:
    x = x.clone().requires_grad_()
    total = x.sum()
    for _ in range(n):
        slope = grad(bowl(x), x)[0]
        x = (x - (0.05 if slope.sum() > 0 else 0.1) * slope).detach().requires_grad_()
        total = total + x.sum()
    return total, x


def with_another_name(x: Any, n: int) -> Any:  # what comes through `first` is a part of the gradient of the first step
    x = x.clone().requires_grad_()
    first, total = x, T.zeros(3, dtype=T.float64)
    for _ in range(n):
        slope = grad((x * first).sum(), x)[0]
        total = total + slope if slope.sum() > 0 else total - slope
        x = (x * 0.9).detach().requires_grad_()
    return total, x


EAGER: list[Any] = [
    loss_with_its_graph,
    all_leaves,
    best_leaf,
    with_its_memory,
    with_a_gradient,
    of_the_leaf_before,
    with_another_name,
]


@pytest.mark.parametrize("function", EAGER, ids=lambda f: f.__name__)
def test_what_refers_to_a_leaf_as_well_is_as_in_eager_mode(function: Any) -> None:
    compiled = outlined(function)
    for k in range(8):
        assert_equal(outcome(function, (start(k), 12), k), outcome(compiled, (start(k), 12), k))


@pytest.mark.parametrize("function", [best_leaf, all_leaves], ids=lambda f: f.__name__)
def test_objects_of_leaves_are_those_of_eager_mode(function: Any) -> None:
    compiled = outlined(function)
    for k in range(8):
        results = []
        for f in (function, compiled):
            T.manual_seed(k)
            result = f(start(k), 8)
            result[-1].detach().add_(1.0)
            bowl(result[-1]).backward()
            results.append([(x.detach().clone(), x.grad) for x in result])
        for (x, of_x), (y, of_y) in zip(*results, strict=True):
            assert T.allclose(x, y, rtol=1e-9)
            assert (of_x is None) == (of_y is None)


def test_the_contents_of_a_loss_may_be_read_after_the_loop_but_not_its_graph() -> None:
    contents = outlined(descent)
    graph = outlined(loss_with_its_graph)
    for k in range(4):
        contents(start(k), 20)
        graph(start(k), 20)
    assert min(loops_of_paths(contents)) == 1
    assert not graph._table.paths or not any(loops_of_paths(graph))
