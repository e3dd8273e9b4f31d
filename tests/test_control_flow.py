"""tracejit.control_flow: loops and branches as functions, eager and compiled, with gradients of any order."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as tj
from tracejit.autograd.gradcheck import gradcheck, gradgradcheck
from tracejit.core.tree import flatten


def parameter(*shape: int, seed: int = 0) -> Any:
    return tj.tensor(np.random.default_rng(seed).normal(0, 0.5, shape), requires_grad=True)


def cell(w: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    def combine(carry: Any, x: Any) -> tuple[Any, Any]:
        carry = (carry @ w + x).tanh()
        return carry, carry * 2

    return combine


def same_when_compiled(function: Callable[..., Any], *args: Any) -> None:
    """Compiled calls give what eager ones do (docs/equality.md), and all but the first are served by programs."""
    compiled, expected = tj.compile(function), flatten(function(*args))[0]
    for _ in range(3):
        for a, b in zip(flatten(compiled(*args))[0], expected, strict=True):
            if isinstance(b, tj.Tensor):
                np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)
            else:
                assert a == b
    assert compiled.stats.compiled_calls == 2, compiled.explain()


# -- scan
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(-3, 2), st.booleans(), st.one_of(st.none(), st.integers(1, 9)))
def test_a_scan_is_the_loop_written_out(length: int, dim: int, reverse: bool, every: int | None) -> None:
    w, h, start = parameter(3, 3), parameter(2, 3, seed=1), [2, 3]
    start.insert(dim if dim >= 0 else 3 + dim, length)
    xs = parameter(*start, seed=2)
    carry, ys = tj.scan(cell(w), h, xs, dim=dim, reverse=reverse, checkpoint_every=every)
    expected, rows, steps = h, [], list(xs.unbind(dim))
    for x in reversed(steps) if reverse else steps:
        expected, y = cell(w)(expected, x)
        rows.append(y)
    stacked = tj.stack(rows[::-1] if reverse else rows)
    assert carry.equal(expected) and ys.equal(stacked)
    found = tj.autograd.grad((carry * 3).sum() + (ys**2).sum(), (w, h, xs))
    wanted = tj.autograd.grad((expected * 3).sum() + (stacked**2).sum(), (w, h, xs))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-12)  # checkpoints add up segment by segment


def test_carries_slices_and_results_may_be_nested() -> None:
    def combine(carry: dict[str, Any], x: tuple[Any, Any]) -> tuple[dict[str, Any], list[Any]]:
        total = carry["total"] + x[0] * x[1]
        return {"total": total, "steps": carry["steps"] + 1}, [total, (x[0], carry["steps"])]

    a, b = tj.arange(4.0), tj.arange(4.0) + 1
    carry, ys = tj.scan(combine, {"total": tj.tensor(0.0), "steps": tj.tensor(0)}, (a, b))
    assert carry["total"].item() == 20.0 and carry["steps"].item() == 4
    assert ys[0].tolist() == [0.0, 2.0, 8.0, 20.0] and ys[1][1].tolist() == [0, 1, 2, 3]


def test_a_scan_without_slices_or_results_takes_so_many_steps() -> None:
    carry, ys = tj.scan(lambda c, x: (c * 2, x), tj.tensor(1.0), length=10)
    assert carry.item() == 1024.0 and ys is None


@pytest.mark.parametrize("every", [None, 2])
def test_a_scan_has_derivatives_of_any_order(every: int | None) -> None:
    def function(w: Any, h: Any, xs: Any) -> Any:
        carry, ys = tj.scan(cell(w), h, xs, checkpoint_every=every)
        return carry.sum() + ys.sum()

    inputs = (parameter(2, 2), parameter(2, seed=1), parameter(3, 2, seed=2))
    assert gradcheck(function, inputs) and gradgradcheck(function, inputs)


def test_a_scan_with_checkpoints_keeps_nothing_of_the_steps_between_them() -> None:
    def kept(every: int | None) -> int:
        made: list[Any] = []

        def combine(carry: Any, x: Any) -> tuple[Any, None]:
            inner = (carry + x).exp()
            made.append(weakref.ref(inner._array))
            return inner * 0.1, None

        carry, _ = tj.scan(combine, parameter(3), tj.ones(60, 3, dtype=tj.float64), checkpoint_every=every)
        gc.collect()
        alive = sum(array() is not None for array in made)
        carry.sum().backward()
        return alive

    assert kept(None) == 60 and kept(10) == 0


def test_a_scan_is_compiled_with_its_gradients() -> None:
    w = parameter(3, 3)

    def value(xs: Any) -> Any:
        return tj.scan(cell(w), tj.zeros(3, dtype=tj.float64), xs)

    def gradient(xs: Any) -> Any:
        carry, ys = tj.scan(cell(w), tj.zeros(3, dtype=tj.float64), xs, reverse=True, checkpoint_every=2)
        return tj.autograd.grad(carry.sum() + ys.sum(), w)

    xs = parameter(5, 3, seed=1).detach()
    same_when_compiled(value, xs)
    same_when_compiled(gradient, xs)


# -- while_loop, cond, map
def test_a_while_loop_goes_on_while_its_condition_holds() -> None:
    def newton(x: Any) -> Any:
        steps, root = tj.while_loop(
            lambda n, y: ((y * y - x).abs() > 1e-9).any(), lambda n, y: (n + 1, (y + x / y) / 2), (0, tj.ones_like(x))
        )
        return steps, root

    x = tj.tensor([2.0, 9.0], dtype=tj.float64, requires_grad=True)
    steps, root = newton(x)
    assert steps == 6 and np.allclose(root.detach().numpy(), [2**0.5, 3.0])
    (slope,) = tj.autograd.grad(root.sum(), x)
    assert np.allclose(slope.numpy(), 0.5 / root.detach().numpy())
    same_when_compiled(newton, x.detach())
    assert tj.while_loop(lambda n: False, lambda n: (n + 1,), [3]) == [3]


def test_a_condition_calls_one_branch_alone_and_its_gradient_is_that_branch_s() -> None:
    def function(x: Any) -> Any:
        return tj.cond(x.sum() > 0, lambda x, y: (x * y).sin(), lambda x, y: x.exp() - y, (x, x * 2))

    for value in (1.5, -1.5):
        x = tj.tensor([value], dtype=tj.float64, requires_grad=True)
        y = function(x)
        assert y.item() == pytest.approx(np.sin(2 * value**2) if value > 0 else np.exp(value) - 2 * value, rel=1e-15)
        assert gradcheck(function, (x,)) and gradgradcheck(function, (x,))
        same_when_compiled(function, x.detach())
    assert tj.cond(True, lambda: 1, lambda: 1 // 0) == 1


def test_a_map_stacks_what_each_slice_gives() -> None:
    def function(xs: Any, k: Any) -> Any:
        return tj.map(lambda x, k: (x @ x * k, {"first": x[0]}), xs, k)

    xs, k = parameter(4, 3), parameter(seed=1)
    found = function(xs, k)
    assert np.allclose(found[0].detach().numpy(), ((xs * xs).sum(1) * k).detach().numpy()) and found[1]["first"].equal(xs[:, 0])
    assert gradcheck(lambda xs, k: function(xs, k)[0], (xs, k))
    same_when_compiled(function, xs.detach(), k.detach())


def test_what_does_not_fit_is_said_with_what_was_expected() -> None:
    x = tj.ones(3)
    for error, message, call in [
        (TypeError, r"cond\(\): operands must be a tuple or list, got Tensor", lambda: tj.cond(True, abs, abs, x)),
        (TypeError, r"cond\(\): true_fn must be a function, got int", lambda: tj.cond(True, 1, abs)),
        (TypeError, r"cond\(\): pred must be a bool or a tensor of one element, got str", lambda: tj.cond("yes", abs, abs)),
        (RuntimeError, "ambiguous", lambda: tj.cond(x > 0, abs, abs)),
        (
            TypeError,
            r"body_fn must return a tuple or list .* got Tensor",
            lambda: tj.while_loop(lambda x: True, lambda x: x, (x,)),
        ),
        (
            RuntimeError,
            r"while_loop\(\): what body_fn returns must keep shape and dtype, expected \[3\] of .*float32, got \[6\]",
            lambda: tj.while_loop(lambda x: True, lambda x: (tj.cat([x, x]),), (x,)),
        ),
        (
            TypeError,
            r"must have the structure \(Tensor,\), got \(Tensor, Tensor\)",
            lambda: tj.while_loop(lambda x: True, lambda x: (x, x), (x,)),
        ),
        (
            TypeError,
            r"scan\(\): combine_fn must return a tuple \(carry, y\), got Tensor",
            lambda: tj.scan(lambda c, v: c, x[0], x),
        ),
        (
            RuntimeError,
            r"scan\(\): the carry .* expected \[\] of .*, got \[1\]",
            lambda: tj.scan(lambda c, v: (c[None], v), x[0], x),
        ),
        (TypeError, r"scan\(\): expected xs, or a length", lambda: tj.scan(lambda c, v: (c, v), x)),
        (
            ValueError,
            r"scan\(\): length is 2, and xs have 3 slices along dimension 0",
            lambda: tj.scan(lambda c, v: (c, v), x, x, 2),
        ),
        (
            ValueError,
            r"scan\(\): all of xs must have one size along dimension 0, got \[3, 4\]",
            lambda: tj.scan(min, x, (x, tj.ones(4))),
        ),
        (ValueError, r"scan\(\): xs have no slices along dimension 0", lambda: tj.scan(lambda c, v: (c, v), x, tj.ones(0, 2))),
        (
            ValueError,
            r"checkpoint_every must be an integer of at least 1, or None, got 0",
            lambda: tj.scan(min, x, x, checkpoint_every=0),
        ),
        (TypeError, r"map\(\): xs must be tensors, .* got float", lambda: tj.map(lambda v: v, [1.0])),
        (TypeError, r"map\(\): what f returns must be tensors, .* got int", lambda: tj.map(lambda v: 1, x)),
        (
            TypeError,
            r"map\(\): what f returns in a later step must have",
            lambda: tj.map(lambda v: v if v > 1 else (v,), tj.arange(3.0)),
        ),
    ]:
        with pytest.raises(error, match=message):
            call()
