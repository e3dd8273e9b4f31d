"""`unsqueeze_`, `squeeze_` and `transpose_` inside compiled functions: tensors of the call go on as values of their own; where anything
else has their memory, or they are from outside, the function is eager, and says so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.config import override

box = SimpleNamespace(h=None)


def added(x: Any) -> Any:
    y = x * 2
    y.unsqueeze_(0)
    return y, y.shape, y.sum(0)


def added_and_taken_away(x: Any) -> Any:
    y = x * 2
    y.unsqueeze_(0).unsqueeze_(-1)
    y.squeeze_(3)
    y[0, 1] = 4.0
    row = y[0]
    row.add_(1)
    return y, row, y.numpy()


def under_other_names(x: Any) -> Any:
    y = x.clone()
    same, items = y, [y]
    same.unsqueeze_(1)
    y.mul_(2)
    return same, items, items[0] is y, y.squeeze()


def columns_of_one_element(x: Any) -> Any:
    y = x[:, :1].clone()
    y.squeeze_()
    y.unsqueeze_(1)
    y.transpose_(0, 1)
    return y, y[0] * 2


def in_a_loop(x: Any) -> Any:
    out = []
    for row in x:
        h = row * 2
        h.unsqueeze_(0)
        out.append(h)
    return T.cat(out), out[0]


def with_gradients(x: Any) -> Any:
    w = T.ones(3, requires_grad=True)
    y = x * 2
    y.unsqueeze_(0)
    (y * w).sum().backward()
    return w.grad, y


def kept_outside(x: Any) -> Any:
    box.h = x * 2
    box.h.unsqueeze_(0)
    return box.h if box.h.sum() > 40 else box.h + 1


def with_a_view(x: Any) -> Any:
    y = x * 2
    row = y[1]
    y.unsqueeze_(0)
    row.add_(1)
    return y, row


def with_an_array(x: Any) -> Any:
    y = x * 2
    array = y.numpy()
    y.unsqueeze_(0)
    y.add_(1)
    return y, array


def in_another_order(x: Any) -> Any:
    y = x * 2
    y.t_()
    row = y[1]
    y.mul_(2)
    return row, y, y * 1


def from_outside(x: Any) -> Any:
    x.unsqueeze_(0)
    return x * 2


def out_of_range(x: Any) -> Any:
    y = x * 2
    y.unsqueeze_(5)
    return y


def seen(value: Any) -> Any:
    """What there is to see of a result: contents, and how they lie in memory."""
    tensors = [v for v in value if isinstance(v, T.Tensor)] if isinstance(value, tuple) else []
    layouts = [(t.shape, t.stride(), t.is_contiguous()) for t in tensors]
    return repr(value), layouts, [np.shares_memory(a.detach().numpy(), b.detach().numpy()) for a in tensors for b in tensors]


def outcome(function: Callable[..., Any], x: Any) -> Any:
    try:
        return seen(function(x)), repr(x), repr(box.h)
    except (IndexError, RuntimeError) as error:
        return repr(error)


@pytest.mark.parametrize("hot", [2, 1000])
@pytest.mark.parametrize(
    ("function", "paths"),
    [
        (added, 1),
        (added_and_taken_away, 1),
        (under_other_names, 1),
        (columns_of_one_element, 1),
        (in_a_loop, 1),
        (with_gradients, 1),
        (kept_outside, 2),
        (with_a_view, 0),
        (with_an_array, 0),
        (in_another_order, 0),
        (from_outside, 0),
        (out_of_range, 0),
    ],
)
def test_tensors_have_the_shape_that_they_have_eagerly(function: Callable[..., Any], paths: int, hot: int) -> None:
    with override(hot_calls=hot):
        compiled = T.compile(function, wait=True)
        for k in range(6):
            x, other = ((T.arange(6.0) + k).reshape(2, 3).clone() for _ in range(2))
            assert outcome(compiled, x) == outcome(function, other), k
    if paths:
        assert (compiled.stats.traces, compiled.stats.compiled_calls) == (paths, 6 - paths)
    else:
        assert compiled.stats.compiled_calls == 0
        assert "tensor_state" in compiled.explain(verbose=True) or "raised" in compiled.explain(verbose=True)


def multiplied_after(t: Any, x: Any) -> Any:
    y = x * 2
    y.t_()
    y.mul_(3)
    y.unsqueeze_(0)
    return y * t.arange(6.0).reshape(1, 3, 2)


def saved_result(t: Any, x: Any) -> Any:
    y = x.exp()
    y.t_()
    return y


def a_view_of_it(t: Any, x: Any) -> Any:
    return (x * 2)[:, :2].t_().unsqueeze_(0).squeeze_() * t.arange(4.0).reshape(2, 2)


def views_that_live_on(t: Any, x: Any) -> Any:
    y = x * 2
    row, part = y[1], y[:, 1:]
    y.swapdims_(0, 1)
    row.mul_(x[0])
    y.unsqueeze_(0)
    part.add_(1)
    part.t_()
    y[0, 2].mul_(5)
    return t.cat([y.flatten(), row * t.arange(3.0), part.flatten() ** 2])


def a_leaf(t: Any, x: Any) -> Any:
    return x.t_()


def a_view_of_a_leaf(t: Any, x: Any) -> Any:
    return x[:, :2].unsqueeze_(0)


def a_leaf_without_gradients(t: Any, x: Any) -> Any:
    with t.no_grad():
        x.t_()
    return x * t.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(
    "function",
    [
        multiplied_after, saved_result, a_view_of_it, views_that_live_on, a_leaf, a_view_of_a_leaf, a_leaf_without_gradients,
    ],
)  # fmt: skip
def test_tensors_with_gradients_take_another_shape_as_in_torch(function: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")

    def results(t: Any, call: Callable[..., Any]) -> Any:
        x = t.arange(6.0).reshape(2, 3).clone().requires_grad_()
        try:
            out = call(x)
            out.sum().backward()
        except RuntimeError as error:
            return str(error).removeprefix("backward(): ")[:60]
        return out.detach().numpy().tolist(), x.grad.numpy().tolist(), tuple(out.shape)

    wanted = results(torch, lambda x: function(torch, x))
    compiled = T.compile(lambda x: function(T, x), wait=True)
    for call in (lambda x: function(T, x), compiled, compiled, compiled):
        found = results(T, call)
        if isinstance(wanted, str):
            assert found == wanted
        else:
            np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
            np.testing.assert_allclose(found[1], wanted[1], rtol=1e-6)
            assert found[2] == wanted[2]


def test_what_has_saved_a_tensor_of_another_shape_has_no_second_derivative() -> None:
    x = T.arange(4.0).reshape(2, 2).clone().requires_grad_()
    y = x * 1
    z = (y * y).sum()
    y.t_()
    (first,) = T.autograd.grad(z, x, retain_graph=True)
    assert first.tolist() == [[0, 2], [4, 6]]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        T.autograd.grad(z, x, create_graph=True)
    with T.no_grad(), pytest.raises(RuntimeError, match=r"squeeze_\(\): .* under no_grad\(\)"):
        y.squeeze_()


def test_a_gradient_that_is_retained_has_the_shape_that_its_tensor_has() -> None:
    x = T.arange(6.0).reshape(2, 3).clone().requires_grad_()
    y = x * 2
    y.retain_grad()
    y.transpose_(0, 1)
    (y * T.arange(6.0).reshape(3, 2)).sum().backward()
    assert y.grad.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert x.grad.tolist() == [[0, 4, 8], [2, 6, 10]]
