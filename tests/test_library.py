"""Operations of the program's own: eagerly, differentiated, and as steps of compiled programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit.autograd import gradcheck, gradgradcheck
from tracejit.library import custom_op


def cube() -> Any:
    @custom_op("tests::cube", mutates_args=())
    def op(x: tracejit.Tensor, factor: float = 1.0) -> tracejit.Tensor:
        return tracejit.from_numpy(x.numpy() ** 3 * factor)

    @op.register_fake
    def _(x: Any, factor: float = 1.0) -> Any:
        return tracejit.empty_like(x)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.factor = inputs[1] if len(inputs) > 1 else 1.0

    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        gradient = 3 * x * x * g * ctx.factor
        return (gradient, None) if len(ctx.needs_input_grad) > 1 else gradient

    op.register_autograd(backward, setup_context=setup_context)
    return op


def double(*values: float) -> Any:
    return tracejit.tensor(values, dtype=tracejit.float64, requires_grad=True)


def test_its_body_is_called_with_tensors_and_its_backward_gives_the_gradient() -> None:
    op = cube()
    x = tracejit.tensor([2.0, -1.0], requires_grad=True)
    y = op(x, 2.0)
    assert y.tolist() == [16.0, -2.0]
    assert y.grad_fn.name() == type(y.grad_fn).__name__ == "CubeBackward"
    y.sum().backward()
    assert x.grad.tolist() == [24.0, 6.0]
    assert repr(op) == "<CustomOpDef(tests::cube)>"


def test_its_derivatives_hold_to_second_order() -> None:
    op = cube()
    assert gradcheck(op, (double(0.4, -1.3),))
    assert gradgradcheck(op, (double(0.4, -1.3),))


def test_a_compiled_function_replays_it_and_its_backward() -> None:
    op = cube()

    def step(x: Any) -> Any:
        y = (op(x * 2.0, 0.5) + 1.0).sum()
        (gradient,) = tracejit.autograd.grad(y, x)
        return y.detach(), gradient

    compiled = tracejit.compile(step)
    for k in range(4):
        x = double(1.0 + k, -0.5)
        for a, b in zip(compiled(x), step(x), strict=True):
            assert a.tolist() == b.tolist()
    assert compiled.stats.compiled_calls == 3
    assert "tests_cube" in str(compiled.explain(verbose=True))


def test_the_backward_pass_of_a_compiled_result_calls_it() -> None:
    op = cube()
    compiled = tracejit.compile(lambda x: op(x * 2.0).sin())
    for k in range(3):
        x, y = double(0.3 + k, -0.5), double(0.3 + k, -0.5)
        compiled(x).sum().backward()
        op(y * 2.0).sin().sum().backward()
        assert tracejit.allclose(x.grad, y.grad, rtol=1e-14)
    assert compiled.stats.compiled_calls == 2


def test_with_a_fake_it_is_compiled_for_each_size_and_for_numbers_that_are_sizes() -> None:
    op, asked = cube(), set[type]()

    @op.register_fake
    def _(x: Any, factor: float = 1.0) -> Any:
        asked.update((type(factor), *map(type, x.shape)))
        return tracejit.empty_like(x)

    compiled = tracejit.compile(lambda x: (op(x * 2.0, x.shape[0]) + op(x, 0.5)).sum())
    for n in (2, 3, 4, 5, 4, 3):
        x = double(*np.linspace(-1, 1, n))
        assert compiled(x).item() == (op(x * 2.0, n) + op(x, 0.5)).sum().item()
    assert compiled.stats.compiled_calls == 2, compiled.explain()
    assert asked == {int, float}


def test_without_a_derivative_a_backward_pass_says_so() -> None:
    @custom_op("tests::plain")
    def plain(x: Any) -> Any:
        return x * 2

    y = plain(tracejit.ones(2, requires_grad=True))
    assert y.requires_grad
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        y.sum().backward()


def test_arguments_may_be_lists_and_results_several() -> None:
    @custom_op("tests::extremes")
    def extremes(parts: list[Any], flag: bool, *, shift: int = 0) -> tuple[Any, Any]:
        stacked = np.stack([p.numpy() for p in parts]) + shift
        return tracejit.from_numpy(stacked.max(0)), tracejit.from_numpy(stacked.argmax(0) if flag else stacked.argmin(0))

    a, b = tracejit.tensor([1.0, 5.0]), tracejit.tensor([3.0, 2.0])
    high, at = extremes([a, b], True, shift=1)
    assert high.tolist() == [4.0, 6.0] and at.tolist() == [1, 0]
    compiled = tracejit.compile(lambda x, y: extremes([x, y], False)[1] + 1)
    assert [compiled(a, b).tolist() for _ in range(3)] == [[1, 2]] * 3
    assert compiled.stats.compiled_calls == 2


def test_what_it_says_to_change_is_changed() -> None:
    @custom_op("tests::fill", mutates_args=("x",))
    def fill(x: Any, value: float) -> None:
        x.fill_(value)

    x = tracejit.zeros(3)
    assert fill(x, 2.0) is None and x.tolist() == [2.0] * 3
    compiled = tracejit.compile(lambda x: fill(x, 3.0))
    for _ in range(3):
        x.zero_()
        compiled(x)
        assert x.tolist() == [3.0] * 3
    with pytest.raises(ValueError, match="no derivative"):
        fill.register_autograd(lambda ctx, g: g)
    with pytest.raises(ValueError, match="has no arguments called y"):
        custom_op("tests::other", lambda x: x, mutates_args="y")


def test_a_kernel_for_numba_gets_arrays() -> None:
    @custom_op("tests::doubled")
    def doubled(x: Any) -> Any:
        raise AssertionError("the kernel is called")

    @doubled.register_kernel("numba")
    def _(x: Any) -> Any:
        out = np.empty_like(x)
        for i in range(x.size):
            out[i] = 2 * x[i]
        return out

    compiled = tracejit.compile(lambda x: doubled(x) + 1)
    for _ in range(3):
        assert compiled(tracejit.tensor([1.0, 2.0])).tolist() == [3.0, 5.0]


def test_results_share_no_memory_with_arguments() -> None:
    same = custom_op("tests::same", lambda x: x)
    x = tracejit.zeros(2)
    y = same(x)
    y.add_(1)
    assert x.tolist() == [0.0, 0.0] and y.tolist() == [1.0, 1.0]


def test_what_the_body_raises_is_raised() -> None:
    def body(x: Any) -> Any:
        raise ValueError("not today")

    op = custom_op("tests::raising", body)
    compiled = tracejit.compile(lambda x: op(x))
    for _ in range(3):
        with pytest.raises(ValueError, match="not today"):
            op(tracejit.ones(1))
        with pytest.raises(ValueError, match="not today"):
            compiled(tracejit.ones(1))


def test_a_fake_that_is_wrong_and_arguments_that_are_none_are_named() -> None:
    op = custom_op("tests::wrong", lambda x: x + 1)
    op.register_fake(lambda x: x.new_empty((7,)))
    with pytest.raises(RuntimeError, match="tests::wrong: its fake says"):
        op(tracejit.ones(2))
    with pytest.raises(TypeError, match="tests::wrong: expected tensors"):
        op(object())
    with pytest.raises(ValueError, match="namespace::name"):
        custom_op("nameless", lambda x: x)


def test_a_gradient_of_a_wrong_shape_or_number_is_named() -> None:
    op = custom_op("tests::odd", lambda x: x + 1)
    op.register_autograd(lambda ctx, g: g.sum())
    with pytest.raises(RuntimeError, match="a gradient of shape"):
        op(tracejit.ones(2, requires_grad=True)).sum().backward()
    op.register_autograd(lambda ctx, g: (g, g))
    with pytest.raises(RuntimeError, match="returned 2 gradients, expected 1"):
        op(tracejit.ones(2, requires_grad=True)).sum().backward()
