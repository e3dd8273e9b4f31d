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
