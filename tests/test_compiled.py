"""Gradients through programs: the compiled node of the tape against eager's nodes.

Every check asserts that programs really ran (`compiled_calls`) or that their gradients are eager's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tracejit as T


def leaf(*values: float) -> T.Tensor:
    return T.tensor([float(v) for v in values], requires_grad=True)


def polynomial(x: T.Tensor) -> T.Tensor:
    return (x * x * 3.0 + x.sin()).sum()


def test_gradients_reach_arguments_closed_over_tensors_and_attributes() -> None:
    class Holder:
        def __init__(self) -> None:
            self.weight = leaf(2, 3)

    holder, closed = Holder(), leaf(5, 7)

    def function(x: T.Tensor) -> T.Tensor:
        return (x * holder.weight * closed).sum()

    compiled = T.compile(function)
    for _ in range(3):
        x = leaf(1, 1)
        holder.weight.grad = closed.grad = None
        out = compiled(x)
        assert out.requires_grad
        out.backward()
        assert x.grad is not None and x.grad.tolist() == [10, 21]
        assert holder.weight.grad is not None and holder.weight.grad.tolist() == [5, 7]
        assert closed.grad is not None and closed.grad.tolist() == [2, 3]
    assert compiled.stats.compiled_calls == 2
    assert compiled.stats.machine_calls == 4


def test_two_forwards_may_precede_their_backwards_in_any_order() -> None:
    compiled = T.compile(lambda x: (x.exp() * x).sum())
    compiled(leaf(1.0))
    a, b = leaf(1.0), leaf(2.0)
    out_a, out_b = compiled(a), compiled(b)
    out_a.backward()
    out_b.backward()
    assert a.grad is not None and b.grad is not None
    assert a.grad.item() == pytest.approx(2 * np.e, rel=1e-5)
    assert b.grad.item() == pytest.approx(3 * np.exp(2), rel=1e-5)
    assert compiled.stats.compiled_calls == 2


def test_a_second_backward_needs_retain_graph_as_in_eager() -> None:
    compiled = T.compile(polynomial)
    compiled(leaf(1.0))
    x = leaf(1.0)
    out = compiled(x)
    out.backward(retain_graph=True)
    out.backward()
    assert x.grad is not None and x.grad.item() == pytest.approx(2 * (6 + np.cos(1)), rel=1e-5)
    with pytest.raises(RuntimeError, match="retain_graph"):
        out.backward()
    assert compiled.stats.compiled_calls == 1


def test_outputs_that_get_no_cotangent_play_no_part() -> None:
    def function(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        return (x * 2).sum(), (1 / (x - 1)).sum()

    compiled = T.compile(function)
    for _ in range(3):
        x = leaf(1, 2)
        first, _ = compiled(x)
        first.backward()
        assert x.grad is not None and x.grad.tolist() == [2, 2]
    x = leaf(3.0, 5.0)
    compiled(leaf(3.0, 5.0))[1].backward()
    first, second = compiled(x)
    (first + second).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [2 - 1 / 4, 2 - 1 / 16], rtol=1e-6)


def test_double_backward_through_a_program() -> None:
    compiled = T.compile(lambda x: (x.sin() * x).sum())
    compiled(leaf(0.3, 1.1))
    x = leaf(0.3, 1.1)
    (g,) = T.autograd.grad(compiled(x), x, create_graph=True)
    (h,) = T.autograd.grad(g.sum(), x)
    a = x.detach().numpy().astype(np.float64)
    np.testing.assert_allclose(h.numpy(), 2 * np.cos(a) - a * np.sin(a), rtol=1e-5)
    assert compiled.stats.compiled_calls == 1


def test_an_input_changed_before_backward_is_an_error_exactly_where_eager_raises() -> None:
    w = leaf(2.0)

    def saves(x: T.Tensor) -> T.Tensor:
        return (x * w).sum()

    def does_not(x: T.Tensor) -> T.Tensor:
        return (x + w).sum()

    for function, raises in ((saves, True), (does_not, False)):
        compiled = T.compile(function)
        compiled(leaf(1.0))
        for call in (function, compiled):
            out = call(leaf(1.0))
            with T.no_grad():
                w.add_(1)
            if raises:
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    out.backward()
            else:
                out.backward()
        assert compiled.stats.compiled_calls == 1


def test_an_output_changed_in_place_before_backward_is_an_error_where_eager_saved_it() -> None:
    compiled = T.compile(lambda x: x.exp())
    compiled(leaf(1.0))
    for call in (lambda x: x.exp(), compiled):
        out = call(leaf(1.0))
        out.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_a_graph_used_up_inside_stays_used_up() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        loss = (x * x).sum()
        loss.backward()
        return loss

    compiled = T.compile(function)
    for call in (function, compiled, compiled):
        loss = call(leaf(1.0))
        assert loss.requires_grad
        with pytest.raises(RuntimeError, match="retain_graph"):
            loss.backward()
    assert compiled.stats.compiled_calls == 1


def test_what_a_write_through_a_view_covers_gets_a_zero_gradient_as_in_eager() -> None:
    def through_reshape(x: T.Tensor) -> T.Tensor:
        y = x * 2
        y.view(-1).fill_(3.0)
        return y

    def the_view_itself(x: T.Tensor) -> T.Tensor:
        y = (x * 2)[:1]
        y.fill_(3.0)
        return y

    for function in (through_reshape, the_view_itself):
        compiled = T.compile(function)
        for call in (function, compiled, compiled):
            x = T.ones(2, 2, requires_grad=True)
            call(x).sum().backward()
            assert x.grad is not None and x.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]
        assert compiled.stats.compiled_calls == 1


def test_what_the_program_overwrote_matters_only_on_the_way_of_the_gradient() -> None:
    def function(w: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        saved = w.exp()
        spoilt = saved * 2
        with T.no_grad():
            saved.mul_(3)
        return spoilt, w * 5

    compiled = T.compile(function)
    for call in (function, compiled, compiled):
        w = leaf(1.0, 2.0)
        sound = call(w)[1]
        sound.sum().backward()
        assert w.grad is not None and w.grad.tolist() == [5.0, 5.0]
        spoilt = call(w)[0]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            spoilt.sum().backward()
    assert compiled.stats.compiled_calls == 3


@pytest.mark.parametrize(
    "view", [lambda n: n[0], lambda n: n[:, 1], lambda n: n[1:, ::2], lambda n: n.t()[1], lambda n: n.diagonal()]
)
def test_a_saved_part_of_a_value_takes_the_room_of_a_part(view: Callable[[T.Tensor], T.Tensor]) -> None:
    """The whole is computed, too, since it is written to an argument."""

    def function(x: T.Tensor, n: T.Tensor) -> T.Tensor:
        n.mul_(2)
        y = x.sigmoid()
        return (view(n) / (y * y + 1)[: view(n).shape[0], : view(n).shape[-1]]).sum()

    compiled = T.compile(function)
    for _ in range(3):
        results = []
        for call in (function, compiled):
            x = T.tensor(np.linspace(-1, 1, 12).reshape(3, 4), requires_grad=True)
            n = T.tensor(np.linspace(2, 5, 12).reshape(3, 4))
            call(x, n).backward()
            assert x.grad is not None
            results.append(x.grad.numpy())
        np.testing.assert_allclose(results[1], results[0], rtol=1e-5)
    assert compiled.stats.compiled_calls == 2
