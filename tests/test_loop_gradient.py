"""passes/loop_gradient.py: the gradient of a loop has the bits of the gradient of the loop written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.graph_programs import f64, i64, op
from tracejit.autograd.gradcheck import gradcheck, gradgradcheck
from tracejit.ir.graph import Body
from tracejit.ir.loop import Saved, loop
from tracejit.ir.tracer import trace
from tracejit.passes.loop_gradient import _cotangent_pattern, differentiable_loop

COUNT, WIDTH = 4, 3


def parameters(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    generator = np.random.default_rng(0)
    return tuple([tj.tensor(generator.normal(0, 0.5, shape), requires_grad=True) for shape in shapes])


def step(h: Any, k: Any, x: Any, w: Any, b: Any) -> tuple[Any, ...]:
    y = op("tanh", op("add", op("add", op("matmul", h, w), x), op("mul", b, op("sin", b))))
    return y, op("add", k, op("mul", y, h)), op("mul", y, 2.0)


BODY = Body(trace(step, [f64(1, WIDTH), f64(1, WIDTH), f64(1, WIDTH), f64(WIDTH, WIDTH), f64(WIDTH)]))
SHAPES = ((1, WIDTH), (1, WIDTH), (COUNT, 1, WIDTH), (WIDTH, WIDTH), (WIDTH,))


def rolled(reverse: bool) -> Callable[..., tuple[Any, ...]]:
    def function(*operands: Any) -> tuple[Any, ...]:
        attributes = {"body": BODY, "carried": 2, "sliced": 1, "count": COUNT, "reverse": reverse}
        return tuple(differentiable_loop(2).of(*operands, **attributes)[2:])

    return function


def written_out(reverse: bool) -> Callable[..., tuple[Any, ...]]:
    def function(h: Any, k: Any, xs: Any, w: Any, b: Any) -> tuple[Any, ...]:
        ys: list[Any] = [None] * COUNT
        for i in reversed(range(COUNT)) if reverse else range(COUNT):
            y = ((h @ w + xs[i]) + b * b.sin()).tanh()
            k, h, ys[i] = k + y * h, y, y * 2
        return h, k, tj.stack(ys)

    return function


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_have_the_bits_of_those_of_the_steps_written_out(reverse: bool) -> None:
    inputs = parameters(*SHAPES)

    def gradients(function: Callable[..., tuple[Any, ...]]) -> tuple[Any, ...]:
        h, k, ys = function(*inputs)
        found: tuple[Any, ...] = tj.autograd.grad((h * 3).sum() + (k**2).sum() + (ys * ys).sum(), inputs)
        return found

    for a, b in zip(gradients(rolled(reverse)), gradients(written_out(reverse)), strict=True):
        assert np.array_equal(a.numpy(), b.numpy())


def saving(reverse: bool) -> Callable[..., tuple[Any, ...]]:
    """The same loop, which saves what its steps do: what each carries on, slices of nothing, and the sine's operand."""
    graph = BODY.graph
    made = [node.outputs[0] for node in graph.nodes if node.op.name == "sin"]
    body = Body(replace(graph, outputs=(*graph.outputs, *made), requires_grad=graph.requires_grad))
    saved = Saved(operands=(3, 4), before=(0,), after=(0,), results=3, residuals=len(made))

    def function(*operands: Any) -> tuple[Any, ...]:
        attributes = {"body": body, "carried": 2, "sliced": 1, "count": COUNT, "reverse": reverse}
        return tuple(differentiable_loop(1, saved).of(*operands, **attributes)[1:4])

    return function


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_that_saves_what_its_steps_do_has_the_gradients_of_one_that_computes_them_again(reverse: bool, order: int) -> None:
    inputs = parameters(*SHAPES)

    def slopes(function: Callable[..., tuple[Any, ...]]) -> Any:
        loss = sum((x * x).sum() for x in function(*inputs))
        found = tj.autograd.grad(loss, inputs, create_graph=order > 1)
        return tj.autograd.grad(sum((x * x).sum() for x in found), inputs) if order > 1 else found

    for x, y, z in zip(slopes(saving(reverse)), slopes(rolled(reverse)), slopes(written_out(reverse)), strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-12)
        np.testing.assert_allclose(x.numpy(), z.numpy(), rtol=1e-12)


def test_what_has_arrived_at_a_shared_value_comes_first_in_its_sum() -> None:
    inputs = parameters(*SHAPES)

    def slope(function: Callable[..., tuple[Any, ...]]) -> Any:
        h, _, ys = function(*inputs)
        return tj.autograd.grad((h @ inputs[3]).sum() * 1e3 + (ys * 1e-3).sum(), inputs[3:])

    for x, y, z in zip(slope(saving(False)), slope(rolled(False)), slope(written_out(False)), strict=True):
        assert x.numpy().tobytes() == y.numpy().tobytes() == z.numpy().tobytes()


def test_a_loop_refuses_values_that_it_has_saved_and_that_were_changed() -> None:
    inputs = parameters(*SHAPES)
    for changed, raises in ((2, False), (3, True), (4, True)):
        loss = saving(False)(*inputs)[0].sum()
        with tj.no_grad():
            inputs[changed].mul_(1.0)
        if raises:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            loss.backward()


@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_of_any_order_agree_with_differences(reverse: bool) -> None:
    inputs = parameters(*SHAPES)
    assert gradcheck(rolled(reverse), inputs) and gradgradcheck(rolled(reverse), inputs)

    def of_gradient(*operands: Any) -> Any:
        (slope,) = tj.autograd.grad((rolled(reverse)(*operands)[1] ** 2).sum(), operands[3], create_graph=True)
        return slope

    assert gradgradcheck(of_gradient, inputs)


def test_only_what_is_asked_for_has_a_gradient() -> None:
    h, k, xs, w, b = parameters(*SHAPES)
    found = rolled(False)(h.detach(), k, xs.detach(), w, b.detach())
    slopes = tj.autograd.grad(found[2].sum(), (w, k), allow_unused=True)
    expected = tj.autograd.grad(written_out(False)(h.detach(), k, xs.detach(), w, b.detach())[2].sum(), (w,))
    assert np.array_equal(slopes[0].numpy(), expected[0].numpy()) and slopes[1] is None


def test_integers_are_carried_without_one() -> None:
    body = Body(trace(lambda n, h, w: (op("add", n, 1), op("mul", op("mul", h, w), n), h), [i64(), f64(2), f64(2)]))
    h, w = parameters((2,), (2,))

    def function(h: Any, w: Any) -> Any:
        operands = (tj.tensor(1), h, w)
        return differentiable_loop(2).of(*operands, body=body, carried=2, sliced=0, count=COUNT, reverse=False)[3]

    assert np.allclose(function(h, w).detach().numpy(), (h * w**COUNT * 24).detach().numpy())
    assert gradcheck(function, (h, w)) and gradgradcheck(function, (h, w))


def test_a_loop_in_a_loop_has_gradients() -> None:
    inner = Body(trace(lambda h, w: (op("tanh", op("mul", h, w)), h), [f64(2), f64(2)]))

    def outer_step(h: Any, w: Any) -> tuple[Any, ...]:
        _, h, ys = differentiable_loop(1).of(h, w, body=inner, carried=1, sliced=0, count=3, reverse=False)
        return h, op("sum", ys, dims=(0,), keepdim=False)

    outer = Body(trace(outer_step, [f64(2), f64(2)]))

    def function(h: Any, w: Any) -> Any:
        return tuple(differentiable_loop(1).of(h, w, body=outer, carried=1, sliced=0, count=3, reverse=False)[1:])

    assert gradcheck(function, parameters((2,), (2,))) and gradgradcheck(function, parameters((2,), (2,)))


def test_a_map_is_a_loop_that_carries_nothing() -> None:
    body = Body(trace(lambda x, w: op("sin", op("mul", x, w)), [f64(2), f64(2)]))

    def function(xs: Any, w: Any) -> Any:
        return differentiable_loop(0).of(xs, w, body=body, carried=0, sliced=1, count=COUNT, reverse=False)[0]

    assert gradcheck(function, parameters((COUNT, 2), (2,))) and gradgradcheck(function, parameters((COUNT, 2), (2,)))


def test_a_map_of_several_results_has_gradients() -> None:
    body = Body(trace(lambda x, y, w: (op("sin", op("mul", x, w)), op("mul", x, y), x), [f64(2)] * 3))

    def function(xs: Any, ys: Any, w: Any) -> Any:
        return tuple(differentiable_loop(0).of(xs, ys, w, body=body, carried=0, sliced=2, count=COUNT, reverse=False))

    given = parameters((COUNT, 2), (COUNT, 2), (2,))
    assert gradcheck(function, given) and gradgradcheck(function, given)


def test_a_loop_that_has_kept_nothing_says_that_it_has_no_gradient() -> None:
    (h,) = parameters((2,))
    body = Body(trace(lambda h: (op("sin", h),), [f64(2)]))
    differentiable_loop(0)
    with pytest.raises(RuntimeError, match="a loop that kept nothing has no derivative"):
        loop(0).of(h, body=body, carried=1, sliced=0, count=2, reverse=False)[0].sum().backward()


def positions(state: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
    """What is carried reaches further positions step by step; steps collect what was carried before them."""
    h, k, total = state
    return (h * h * x, h + x, total * 0.5 + k * k), h


def overwritten(state: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
    """Some of what is carried is that of the last step alone."""
    h, _, _ = state
    return (h * x, h * h, x * x), h + x


def in_turns(state: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
    h, k, total = state
    return (k * x, h * h, total + 1), x * 1


def handed_on(state: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
    h, k, total = state
    return (h * x, h * h, k * x + total * 0.25), k * 2


ENDLESS = [positions, overwritten, in_turns, handed_on]
READ = [(0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 1, 2, 3)]


def planted(count: int, *at: int) -> Any:
    """Small numbers, whose products and sums are exact; of one column, infinities and NaN at these positions."""
    xs = np.random.default_rng(count).integers(-2, 3, (count, 2)) / 2
    for k, i in enumerate(at):
        xs[i, 1] = (np.inf, np.nan)[k % 2]
    return tj.tensor(xs, requires_grad=True)


def scanned(step: Callable[..., Any], read: tuple[int, ...], reverse: bool, xs: Any) -> Any:
    (h, k, total), ys = tj.scan(step, (xs[0] * 1, xs[1] * 1, xs[2] * 1), xs, reverse=reverse)
    return sum((x * 0.5).sum() for i, x in enumerate((h, k, total, ys)) if i in read)


def gone_through(step: Callable[..., Any], read: tuple[int, ...], reverse: bool, xs: Any) -> Any:
    state, ys = (xs[0] * 1, xs[1] * 1, xs[2] * 1), []
    for i in range(xs.shape[0] - 1, -1, -1) if reverse else range(xs.shape[0]):
        state, y = step(state, xs[i])
        ys.append(y)
    return sum((x * 0.5).sum() for i, x in enumerate((*state, tj.stack(ys))) if i in read)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("step", ENDLESS)
def test_what_has_no_cotangent_is_not_multiplied(step: Callable[..., Any], reverse: bool) -> None:
    def stepped(h: Any, k: Any, total: Any, x: Any) -> tuple[Any, ...]:
        state, y = step((h, k, total), x)
        return (*state, y)

    body = Body(trace(stepped, [f64(2)] * 4))

    def rolled(read: tuple[int, ...], xs: Any) -> Any:
        given = (xs[0] * 1, xs[1] * 1, xs[2] * 1, xs)
        found = differentiable_loop(3).of(*given, body=body, carried=3, sliced=1, count=xs.shape[0], reverse=reverse)[3:]
        return sum((x * 0.5).sum() for i, x in enumerate(found) if i in read)

    for count in (3, 4, 7):
        for read in READ:
            for at in range(count):
                xs = planted(count, at)
                (found,) = tj.autograd.grad(rolled(read, xs), xs)
                (expected,) = tj.autograd.grad(scanned(step, read, reverse, xs), xs)
                assert np.array_equal(found.numpy(), expected.numpy(), equal_nan=True), (count, read, at)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("loop", [scanned, gone_through])
@pytest.mark.parametrize("step", ENDLESS)
def test_compiled_loops_of_any_length_multiply_nothing_else_than_eager_ones(
    step: Callable[..., Any], loop: Callable[..., Any], reverse: bool
) -> None:
    for read in READ[::2]:
        compiled = tj.compile(lambda xs, read=read: loop(step, read, reverse, xs))
        for k, count in enumerate((10, 10, 13, 7, 15, 4)):
            at = [(), (count - 1,), (count - 2,), (0,), (count // 2,), (count - 3, 1)][k % 6]
            xs = planted(count, *at)
            (found,) = tj.autograd.grad(compiled(xs), xs)
            (expected,) = tj.autograd.grad(loop(step, read, reverse, xs), xs)
            assert np.array_equal(found.numpy(), expected.numpy(), equal_nan=True), (read, count, at)


@pytest.mark.parametrize(
    ("ends", "collected", "apart"),
    [
        ((True, True), True, 0),
        ((True, False), False, 0),
        ((True, False), True, 0),
        ((False, False), True, 0),  # what is collected is made of what is carried on
        ((False, True), False, 1),  # of the last step, only a product with what it makes counts
    ],
)
def test_a_step_is_apart_only_where_it_has_other_cotangents(ends: tuple[bool, ...], collected: bool, apart: int) -> None:
    def step(h: Any, k: Any, x: Any) -> tuple[Any, ...]:
        on = op("tanh", op("mul", h, x))
        return on, op("add", k, op("mul", h, x)), op("mul", on, 2.0)

    body = Body(trace(step, [f64(2)] * 3))
    none = (False, False), (False, False), (False,)
    assert _cotangent_pattern(body, 2, (2,), (False, False), ends, (collected,), *none).apart == apart
