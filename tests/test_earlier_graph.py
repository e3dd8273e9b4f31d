"""A backward pass inside a call that goes on into a graph made before it: the program gives the cotangents, the tape goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T
from tracejit import nn, optim
from tracejit.autograd.earlier_graph import dependences, may_come_later
from tracejit.autograd.tape import edge_of
from tracejit.config import override

CALLS = 8


class World:
    """A model with its optimizer, a leaf, and what is computed of that before each call, or once."""

    def __init__(self, prepare: Callable[[T.Tensor], T.Tensor]) -> None:
        T.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double()
        self.optimizer = optim.Adam(self.model.parameters(), 1e-2)
        self.leaf = T.randn(6, 2).requires_grad_()
        self.prepare, self.x = prepare, prepare(self.leaf)

    def state(self) -> list[Any]:
        gradients = [p.grad for p in self.model.parameters()]
        return [*self.model.parameters(), *gradients, self.leaf.grad]


def physics(w: World, x: T.Tensor) -> Any:
    """The step of a network that obeys a differential equation."""
    w.optimizer.zero_grad()
    u = w.model(x)
    (slope,) = T.autograd.grad(u.sum(), x, create_graph=True)
    loss = ((slope[:, 0] - u[:, 0]) ** 2).mean()
    loss.backward()
    w.optimizer.step()
    return loss.item()


def two_passes(w: World, x: T.Tensor) -> Any:
    w.optimizer.zero_grad()
    u = w.model(x)
    u.sum().backward(retain_graph=True)
    (u * u).mean().backward()
    w.optimizer.step()
    return u.detach()


def gradient_is_read(w: World, x: T.Tensor) -> Any:
    (w.model(x) ** 2).mean().backward()
    return w.leaf.grad.clone()


def leaf_is_used(w: World, x: T.Tensor) -> Any:
    (w.model(x).sum() + w.leaf.sum()).backward()
    return x.detach()


def saved_value_is_written(w: World, x: T.Tensor) -> Any:
    (w.model(x) ** 2).mean().backward()
    with T.no_grad():
        w.leaf.mul_(2)
    return x.detach()


def error_is_handled(w: World, x: T.Tensor) -> Any:
    try:
        (w.model(x) ** 2).mean().backward()
    except RuntimeError as error:
        return str(error)
    return x.detach()


def differentiated_again(w: World, x: T.Tensor) -> Any:
    (w.model(x) ** 2).mean().backward(create_graph=True)
    return w.leaf.grad.detach().clone()


def cast(leaf: T.Tensor) -> T.Tensor:
    return leaf.to(T.float64)


def chain(leaf: T.Tensor) -> T.Tensor:
    return T.sin(leaf * 2).double() * leaf.double()


of_program = T.compile(chain)


def same(a: Any, b: Any) -> bool:
    if not isinstance(a, T.Tensor) or not isinstance(b, T.Tensor):
        return type(a) is type(b) and (a == b or T.allclose(T.tensor(a), T.tensor(b)))
    return a.dtype is b.dtype and bool(T.allclose(a, b))


def compared(step: Any, prepare: Any, anew: bool, between: Any = None) -> Any:
    """The compiled step, after calls that were compared with eager ones."""
    compiled, ours, theirs = T.compile(step), World(prepare), World(prepare)
    for n in range(CALLS):
        results: list[Any] = []
        for world, function in ((ours, compiled), (theirs, step)):
            if between is not None:
                between(world, n)
            if anew:
                world.x = prepare(world.leaf)
            try:
                results.append(function(world, world.x))
            except RuntimeError as error:
                results.append(str(error))
        assert same(*results), results
        for a, b in zip(ours.state(), theirs.state(), strict=True):
            assert same(a, b)
    return compiled


@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize(("prepare", "anew"), [(cast, False), (cast, True), (chain, True), (of_program, True)])
@pytest.mark.parametrize("step", [physics, two_passes])
def test_a_pass_goes_on_into_the_graph_of_an_input_and_the_step_is_compiled(
    step: Any, prepare: Any, anew: bool, hot: int
) -> None:
    with override(hot_calls=hot):
        compiled = compared(step, prepare, anew)
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == CALLS - 1, compiled.explain()


@pytest.mark.parametrize("step", [gradient_is_read, leaf_is_used, saved_value_is_written, error_is_handled, differentiated_again])
def test_a_pass_that_must_not_come_later_is_eager(step: Any) -> None:
    compiled = compared(step, chain, True)
    assert compiled.stats.compiled_calls == 0
    assert {reason.code for reason in compiled.reasons} == {"outside_graph"}


def test_a_graph_that_an_earlier_call_has_freed_raises_as_in_eager_mode() -> None:
    compiled = compared(physics, chain, False)
    assert compiled.stats.compiled_calls == 0


def hooked(w: World, n: int) -> None:
    if n == 3:
        w.leaf.register_hook(lambda g: g * 2)
    if n == 5:
        w.leaf = w.leaf.detach().requires_grad_()


def another_graph(w: World, n: int) -> None:
    w.prepare = chain if n % 2 else cast
    w.x = w.prepare(w.leaf)
    if n == 6:  # the graph leads to what the call uses
        w.x = w.x * w.model[0].weight.sum()
    if n == 7:  # there is none
        w.x = w.x.detach()


@pytest.mark.parametrize("between", [hooked, another_graph])
def test_each_call_looks_at_the_graph_that_it_finds(between: Any) -> None:
    compiled = compared(two_passes, cast, between is hooked, between)
    assert compiled.stats.compiled_calls >= 4, compiled.explain()


def test_what_a_pass_depends_on_is_known_before_it_runs() -> None:
    leaf, other = T.ones(2, requires_grad=True), T.ones(2)
    y = (leaf * other).sum()
    assert may_come_later([y], [], []) and may_come_later([y], [T.ones(2, requires_grad=True)], [T.ones(2)])
    assert not may_come_later([y], [leaf], [])
    assert not may_come_later([y], [], [other[:1]])
    found = dependences([edge_of(y)])
    assert found is not None and found.leaves == {id(leaf)}
    handle = leaf.register_hook(lambda g: g)
    assert not may_come_later([y], [], [])
    handle.remove()
    assert may_come_later([y], [], [])
    other.add_(1)
    assert not may_come_later([y], [], [])
    y = (leaf * other).sum()
    y.backward()
    assert not may_come_later([y], [], [])
    long = leaf
    for _ in range(1001):
        long = long + 1
    assert not may_come_later([long], [], [])
    assert not may_come_later([_Doubled.apply(leaf)], [], [])


class _Doubled(T.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2
