"""Rows at positions that the program itself computes: `x[t]`, `x[t.item()]`, `x[scores.argmax()]` of tensors are positions of its views, so
one recording serves all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit import nn
from tracejit.core.tree import flatten

SIZE, WIDTH = 5, 4
TABLE = T.tensor(np.random.default_rng(9).normal(size=(SIZE, WIDTH)), requires_grad=True)
F = nn.functional


def arguments(k: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(k)
    return T.tensor(generator.normal(size=(SIZE, WIDTH))), T.tensor(generator.integers(0, WIDTH, 6))


def tensor_as_index(x: Any, t: Any) -> Any:
    return x[t[0]] * 2


def number_as_index(x: Any, t: Any) -> Any:
    return x[t[0].item()] * 2, x[int(t[1]), 1] + 1


def several(x: Any, t: Any) -> Any:
    return x[t[0], t[1]] - x[t[2], t[3]] * x[1, t[4]]


def with_slices(x: Any, t: Any) -> Any:
    return x[t[0], 1:3] * 2, x[1:4, t[1]] * 2, x[..., t[2]] + 1, x[None, t[3]] * 1, x[t[4]].reshape(2, 2).t() * 1


def from_the_end(x: Any, t: Any) -> Any:
    return x[t[0] - 5] * 2, x[-1 - t[1].item()] * 2


def best(x: Any, t: Any) -> Any:
    k = x[:, 0].argmax()
    return x[k].sum(), k.item(), x[x.sum(1).argmin().item()] * 1


def arithmetic(x: Any, t: Any) -> Any:
    k = (t[0] + t[1]) // 2
    return x[k] * 2, x[min(t[0].item() + 1, 4)] * 1


def rows_and_columns(x: Any, t: Any) -> Any:
    k = x.argmax().item()
    row, column = divmod(k, WIDTH)
    return x[k // WIDTH, k % WIDTH] * 1, x[row, column] + 1, x[-(k // WIDTH) - 1] * 1, x[(k - 40) % 3] * 1


def selected(x: Any, t: Any) -> Any:
    return x.select(0, t[0].item()) * 1, T.select(x, 1, int(t[1])) * 1


def narrow_integers(x: Any, t: Any) -> Any:
    return x[t[0].int()] * 2


def written(x: Any, t: Any) -> Any:
    y = x.clone()
    y[t[0]] = 1.0
    y[t[1], 2] += 5.0
    y[t[2]] *= x[t[3]]
    return y


def written_through_a_view(x: Any, t: Any) -> Any:
    y = x * 1
    row = y[t[0]]
    row += 1
    y[1:3] *= 2
    row[1:] -= row[0]
    part = y[t[1]].reshape(2, 2)
    part.zero_()
    return y, row * 1, part * 1


def changed_meanwhile(x: Any, t: Any) -> Any:
    y, k = x * 1, t.clone()
    row, position = y[k[0]], k[1]
    k.fill_(0)
    y.mul_(3)
    return row * 1, y[position] * 1, y[k[2]] * 1


def outside_written(x: Any, t: Any) -> Any:
    x[t[0]] += 1
    x[t[1].item(), t[2]] = 7.0
    return x.sum()


def a_local_view_that_leaves(x: Any, t: Any) -> Any:
    return F.log_softmax(x, -1)[0, t[0]], (x * 2)[t[1]]


def views_that_leave(x: Any, t: Any) -> Any:
    y = x * 2
    return x[t[0]], y, y[t[1]]


def gradient(x: Any, t: Any) -> Any:
    found = (TABLE[t[0]] * x[t[1]]).sum() + TABLE[t[2], t[3]] ** 2 + TABLE[t[4]].exp().sum()
    return T.autograd.grad(found, TABLE)


def second_derivative(x: Any, t: Any) -> Any:
    (slope,) = T.autograd.grad((TABLE[t[0]] ** 3).sum() * TABLE[t[1], 0], TABLE, create_graph=True)
    return T.autograd.grad((slope * slope).sum() + slope[t[2], 1], TABLE)


def gradient_of_writes(x: Any, t: Any) -> Any:
    y = TABLE * 2
    y[t[0]] = y[t[1]] * x[t[2]]
    y[t[3], 1] += TABLE[t[4], 2]
    return T.autograd.grad((y * y).sum(), TABLE)


def loss_of_a_class(x: Any, t: Any) -> Any:
    loss = -F.log_softmax(x[0] @ TABLE.t(), -1)[t[0]]
    TABLE.grad = None
    loss.backward()
    return loss.item(), TABLE.grad.clone()


def scores_of_tags(x: Any, t: Any) -> Any:
    """The score of a chain: a loop over positions."""
    total = x[0, t[0]]
    for i in range(1, 5):
        total = total + TABLE[t[i - 1], t[i]] + x[i, t[i]]
    return T.autograd.grad(total, TABLE)


def many_rows(x: Any, t: Any) -> Any:
    """Long enough to become a loop again."""
    h = x[0]
    for k in range(60):
        h = (h + x[t[k % 6]] * 0.5).tanh()
        h[t[(k + 1) % 6]] += 0.125
    return h


def learned(x: Any, t: Any) -> Any:
    """Q-learning in a table."""
    table = x * 1
    state = t[0]
    for k in range(1, 6):
        target = 0.5 + 0.9 * table[t[k]].max()
        table[state, 1] += 0.1 * (target - table[state, 1])
        state = t[k]
    return table


PROGRAMS = [
    tensor_as_index, number_as_index, several, with_slices, from_the_end, best, rows_and_columns, selected,
    narrow_integers, written, written_through_a_view, changed_meanwhile, outside_written, a_local_view_that_leaves,
    gradient, second_derivative, loss_of_a_class, scores_of_tags, many_rows, learned,
]  # fmt: skip


def differences(function: Callable[..., Any], compiled: Callable[..., Any], calls: int) -> None:
    for k in range(calls):
        (x, t), (y, u) = arguments(k), arguments(k)
        expected, found = flatten(function(x, t))[0], flatten(compiled(y, u))[0]
        for a, b in zip([*found, y], [*expected, x], strict=True):
            if isinstance(b, T.Tensor):
                assert (a.shape, a.stride(), a.dtype, a.requires_grad) == (b.shape, b.stride(), b.dtype, b.requires_grad)
                np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12, atol=1e-14)
            else:
                assert a == pytest.approx(b, rel=1e-12)


@pytest.mark.parametrize("function", PROGRAMS)
def test_one_recording_serves_all_positions(function: Callable[..., Any]) -> None:
    compiled = T.compile(function)
    differences(function, compiled, 12)
    assert compiled.stats.compiled_calls >= 10, compiled.explain()


@pytest.mark.parametrize("function", [views_that_leave, arithmetic, gradient_of_writes])
def test_views_that_leave_are_views_and_positions_of_several_kinds_are_right(function: Callable[..., Any]) -> None:
    differences(function, T.compile(function), 12)


def test_a_view_that_leaves_shares_the_memory_of_its_base() -> None:
    compiled = T.compile(views_that_leave)
    for k in range(8):
        x, t = arguments(k)
        row, y, other = compiled(x, t)
        row += 100
        other -= 100
        assert x[t[0]].equal(row) and y[t[1]].equal(other)
        assert row._base is x and other._base is y


def test_a_position_outside_raises_what_it_raises_eagerly() -> None:
    def function(x: Any, t: Any) -> Any:
        return x[t[0]] * 2

    compiled, (x, t) = T.compile(function), arguments(0)
    compiled(x, t), compiled(x, t)
    for k in (5, -6, 2, 100, -1, 4):
        t[0] = k
        outcomes = []
        for call in (function, compiled):
            try:
                outcomes.append(call(x, t).tolist())
            except IndexError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
    assert compiled(x, t).equal(function(x, t)) and compiled.stats.compiled_calls > 2


def test_the_backward_pass_of_a_compiled_call_finds_the_position_of_that_call() -> None:
    compiled = T.compile(lambda x, t: (TABLE[t[0]] * x[t[1]]).sum())
    kept = [(compiled(*arguments(k)), k) for k in range(6)]
    for found, k in reversed(kept):
        x, t = arguments(k)
        (slope,) = T.autograd.grad(found, TABLE)
        (expected,) = T.autograd.grad((TABLE[t[0]] * x[t[1]]).sum(), TABLE)
        assert slope.equal(expected)
    assert compiled.stats.traces == 1


def tables() -> dict[str, Any]:
    return {
        "buffers": [[k, float(k), [k]] for k in range(5)],
        "groups": [{"lr": 0.1 * k, "n": k} for k in range(5)],
        "rows": [[T.ones(2) * k, k] for k in range(5)],
        "nested": [[[k, k + 1], [k + 2, k + 3]] for k in range(4)],
        "step": 0,
    }


def counted_up(t: dict[str, Any], x: Any, n: int) -> Any:
    buffer = t["buffers"][n % 5]
    buffer[0] += 1
    return x * buffer[0] + buffer[1] + buffer[2][0]


def remembered(t: dict[str, Any], x: Any, n: int) -> Any:
    """A buffer of RAdam: what depends on the step alone is computed once for all parameters."""
    t["step"] += 1
    for _ in range(2):
        buffer = t["buffers"][int(t["step"] % 5)]
        if t["step"] == buffer[0]:
            size = buffer[1]
        else:
            buffer[0], size = t["step"], 1.0 / t["step"]
            buffer[1] = size
        x = x * size
    return x


def of_groups(t: dict[str, Any], x: Any, n: int) -> Any:
    t["groups"][n % 5]["n"] += 1
    return x * t["groups"][n % 5]["lr"] + t["groups"][n % 5]["n"]


def with_tensors(t: dict[str, Any], x: Any, n: int) -> Any:
    t["rows"][n % 5][0].add_(1)
    row, number = t["rows"][n % 5]
    return x * row + number


def nested(t: dict[str, Any], x: Any, n: int) -> Any:
    t["nested"][n % 4][(n // 2) % 2][n % 2] += 1
    return x * t["nested"][n % 4][(n // 2) % 2][0]


def appended(t: dict[str, Any], x: Any, n: int) -> Any:
    buffer = t["buffers"][n % 5]
    buffer.append(n)
    return x * buffer[0] + len(buffer), buffer


def moved(t: dict[str, Any], x: Any, n: int) -> Any:
    t["buffers"][0] = t["buffers"][n % 5]
    return x * t["buffers"][0][1]


def two_of_them(t: dict[str, Any], x: Any, n: int) -> Any:
    a, b = t["buffers"][n % 5], t["buffers"][n * n % 5]
    a[1] = b[1] + 1
    return x * b[1] + a[1], a is b


def looked_at_as_a_whole(t: dict[str, Any], x: Any, n: int) -> Any:
    t["buffers"][n % 5][1] = float(n)
    return x * sum(buffer[1] for buffer in t["buffers"])


def contents(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: contents(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [contents(item) for item in value]
    return value.tolist() if isinstance(value, T.Tensor) else (type(value), value)


@pytest.mark.parametrize(
    ("program", "traces"),
    [
        (counted_up, 1), (remembered, 2), (of_groups, 1), (with_tensors, 1), (nested, 2), (appended, 1), (moved, 1), (two_of_them, 2),
        (looked_at_as_a_whole, None),
    ],
)  # fmt: skip
def test_a_list_that_is_read_at_a_number_is_one_recording_whatever_the_number(program: Any, traces: int | None) -> None:
    compiled, ours, theirs = T.compile(program), tables(), tables()
    numbers = [0, 1, 2, 3, 4, 5, 6, 2, 2, 9, 11, 3, 17, 8, 20, 21, 22, 23]
    for n in numbers:
        for t in (ours, theirs):
            if n == 9:  # two positions have one list
                t["buffers"][2] = t["buffers"][1]
            if n == 17:
                t["buffers"][1] = t["buffers"][1][:]
        x = T.ones(2) * n
        assert contents(compiled(ours, x, n)) == contents(program(theirs, x, n))
        assert contents(ours) == contents(theirs)
        for a in range(5):
            assert [ours["buffers"][a] is b for b in ours["buffers"]] == [theirs["buffers"][a] is b for b in theirs["buffers"]]
    if traces is not None:
        assert compiled.stats.traces <= traces and compiled.stats.compiled_calls >= len(numbers) - traces, compiled.explain()
