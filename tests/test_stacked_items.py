"""capture/stacked_items.py: what steps of a loop append to private lists stays in one piece."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.loop_programs import COUNT, GRU, RUN, B, U, W, cell, loops, parameter, zeros
from tracejit.capture.frame import CaptureFrame
from tracejit.capture.session import record
from tracejit.capture.stacked_items import StackedItems
from tracejit.core.tree import flatten

V = parameter(4, 3, seed=9)


def inputs(length: int = COUNT, seed: int = 10) -> Any:
    return parameter(length, 2, 4, seed=seed).detach()


def outputs(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    return tj.stack(outs)


def along_dimensions(xs: Any) -> Any:
    h, outs, ys = zeros(), [], []
    for t in range(len(xs)):
        h = cell(h, xs[t])
        outs.append((h @ V).tanh())
        ys.append(h)
    return tj.stack(outs, dim=1), tj.cat(ys), h, tj.cat(ys, dim=1), tj.stack(ys, -1), tj.cat(outs, -1)


def one_after_the_other(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    encoded = tj.stack(outs, 1)
    decoded: list[Any] = []
    for t, x in enumerate(xs):
        h = cell(h, x) + encoded.mean(1) * xs[t]
        decoded.append(h * 2)
    return tj.stack(decoded)


def into_the_same_list(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    for x in xs:
        h = cell(h, x * 2)
        outs.append(h)
    return tj.cat(outs)


def in_some_steps(xs: Any) -> Any:
    h, outs, total = zeros(), [], zeros()
    for k, x in enumerate(xs):
        h = cell(h, x)
        total += h
        if xs.requires_grad is False:
            outs.append(h * h)
        h = h + xs[k] * 0.1
    return tj.stack(outs), total


def means(xs: Any) -> Any:
    h, losses, others = zeros(), [], []
    for t, x in enumerate(xs):
        h = cell(h, x)
        losses.append((h - xs[t]).square().mean())
        others.append(h)
    return sum(losses) / len(losses), tj.stack(losses).mean(), len(losses) * sum(others, h)


def in_comprehensions(xs: Any) -> Any:
    states = [cell(zeros(), x) for x in xs]
    encoded = tj.stack(states).mean(0)
    loss = sum([((encoded @ W - y) * x).sum() for x, y in zip(xs, xs * 2, strict=True)]) / len(states)
    loss += sum([(xs[t] @ U).sin().mean() * encoded.sum() for t in range(len(xs))])
    return encoded, loss, tj.cat([(x @ W).tanh() + xs[t] for t, x in enumerate(xs)], dim=1).mean() * 2


def views_of_states(xs: Any) -> Any:
    h, outs, flat = zeros(), [], []
    for x in xs:
        h = cell(h, x)
        outs.append(h.unsqueeze(1))
        flat.append(h.view(-1))
    return tj.cat(outs, dim=1), tj.stack(flat), h


def both_ways(xs: Any) -> Any:
    h, k, there, back, once = zeros(), zeros(), [], [], [xs[0] * 2]
    for t in range(xs.shape[0]):
        h = cell(h, xs[t])
        there.append(h)
        once.append(h * h)
    for t in reversed(range(xs.shape[0])):
        k = cell(k, xs[t] + 1)
        back.append(k)
    once.reverse()
    once.append(h)
    return tj.cat([tj.stack(there), tj.stack(back[::-1])], dim=2), tj.stack(once, 1), once[-1] + back[-1], tj.cat(there[::-1])


def before_the_step(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        outs.append(h)
        h = cell(h, x)
    return tj.stack(outs), h


def before_and_after_the_step(xs: Any) -> Any:
    h, begins, ends = xs[0] @ W, [], []
    for x in xs:
        begins.append(h)
        h = cell(h, x)
        ends.append(h)
    begins.append(h)
    return tj.stack(begins, 1), (tj.cat(begins[1:]) - tj.cat(ends)).square().sum(), h


def states_of_two(xs: Any) -> Any:
    h, k, firsts, seconds = zeros(), zeros() + 1, [], []
    for t in range(len(xs) - 1, -1, -1):
        firsts.append(h)
        seconds.insert(0, k)
        k = k - cell(h, xs[t]) * 0.1
        h = h + k * 0.1
    return tj.stack(firsts), tj.stack(seconds), h


def slices_as_they_are(xs: Any) -> Any:
    h, seen, states, again = zeros(), [], [], []
    y = xs @ W
    for t in range(xs.shape[0]):
        h = cell(h, y[t])
        seen.append(y[t])
        states.append(h @ U)
    for x in y.transpose(0, 1).unbind(1):
        again.append(x)
    rows = tj.stack([x for x in y * 2])  # noqa: C416
    return tj.stack(seen, 1), tj.stack(states), tj.cat(again, 1), rows


def slices_of_what_changes(xs: Any) -> Any:
    y, seen = xs.detach() * 2, []
    for t in range(xs.shape[0]):
        seen.append(y[t])
    y += 1
    y[2] = 7.0
    return tj.stack(seen) @ W, tj.cat(seen) @ U, seen[-1] @ W


FUNCTIONS = [
    outputs, along_dimensions, one_after_the_other, into_the_same_list, in_some_steps, means, views_of_states, both_ways,
    before_the_step, before_and_after_the_step, states_of_two,
]  # fmt: skip


def slopes(results: Any) -> list[Any]:
    return [g.numpy() for g in tj.autograd.grad(sum((x * x).sum() for x in flatten(results)[0]), (W, U))]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_recorded_call_has_the_bits_of_an_eager_one(function: Callable[..., Any]) -> None:
    recording, result = record(function, (inputs(),), {})
    assert COUNT - RUN in set(loops(recording))
    expected = function(inputs())
    for x, y in zip(flatten(result)[0], flatten(expected)[0], strict=True):
        assert x.detach().numpy().tobytes() == y.detach().numpy().tobytes()
        assert (x.shape, x.stride(), x.requires_grad) == (y.shape, y.stride(), y.requires_grad)
    for x, y in zip(slopes(result), slopes(expected), strict=True):
        assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("function", [*FUNCTIONS, in_comprehensions, slices_as_they_are, slices_of_what_changes])
def test_another_number_of_items_is_no_other_recording(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function)
    for k, length in enumerate((40, 25, 60, 13, 80, 12)):
        results, expected = (call(inputs(length, k)) for call in (compiled, function))
        for x, y in zip(flatten(results)[0], flatten(expected)[0], strict=True):
            assert (x.shape, x.stride(), x.requires_grad) == (y.shape, y.stride(), y.requires_grad)
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
        for x, y in zip(slopes(results), slopes(expected), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    assert compiled.stats.traces <= 3
    assert compiled.stats.instances >= 3


def stack(items: Any, scale: float = 1.0) -> Any:
    """Another function of this name, which looks at items."""
    return sum(items) * scale + items[2]


def with_another_function(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    return stack(outs, 0.5)


def with_keywords(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    return tj.stack(outs, axis=-1)


def of_another_dtype_first(xs: Any) -> Any:
    h, outs = zeros(), []
    outs.append(zeros().float())
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    return tj.cat(outs).sum()


def added_to_others(xs: Any) -> Any:
    h, outs = zeros(), [1.0]
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    return sum(outs) + sum(outs, start=h)


def stopped(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    pickle.dumps(h.detach())
    return tj.stack(outs)


@pytest.mark.parametrize("function", [with_another_function, with_keywords, of_another_dtype_first, added_to_others, stopped])
def test_whoever_wants_items_gets_items(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function)
    for k, length in enumerate((40, 25, 25, 13, 40)):
        x, y = (call(inputs(length, k)) for call in (compiled, function))
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
        for a, b in zip(slopes(x), slopes(y), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert ("unknown_call" in compiled.explain(verbose=True)) == (function is stopped)


def changed_by_the_next_step(xs: Any) -> Any:
    h, last, outs, others = zeros() @ W, zeros() @ U, [], [zeros() @ W]
    for x in xs:
        h *= 0.5
        h = h + x
        outs.append(h)
        last = others[-1]
        last += 1.0
        others.append(last * 0.5 + x)
    return tj.stack(outs), tj.stack(others), last


def views_of_slices(xs: Any) -> Any:
    rows, h, outs = xs * 1, zeros(), []
    for x in rows:
        h = cell(h, x)
        outs.append(x[None])
    rows *= 2.0
    return tj.cat(outs) + h


def two_results(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(x @ W)
    return h, tj.stack(outs)


def written_after(xs: Any) -> Any:
    h, total, outs = zeros(), zeros(), []
    for x in xs:
        h = cell(h, x)
        total += h
        outs.append(total)
    return tj.stack(outs)


def kept_in_another_variable(xs: Any) -> Any:
    h, before, outs = zeros(), zeros(), []
    for x in xs:
        outs.append(h)
        before = h
        h = cell(h, x)
    return tj.stack(outs), before


def entered_and_written(xs: Any) -> Any:
    h, outs = zeros().detach(), []
    for x in xs:
        outs.append(h)
        h += x @ W.detach()
    return tj.stack(outs), h * W.sum()


def asked_for_its_gradient(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        outs.append(h)
        h = cell(h, x)
    middle = outs[len(outs) // 2]
    return (middle, h, *tj.autograd.grad(middle.square().sum(), (W, U), create_graph=True))


CHANGED = [changed_by_the_next_step, views_of_slices, two_results, written_after, kept_in_another_variable, entered_and_written]


@pytest.mark.parametrize("function", [*CHANGED, asked_for_its_gradient])
def test_what_a_loop_cannot_collect_is_appended_one_by_one(function: Callable[..., Any]) -> None:
    recording, result = record(function, (inputs(),), {})
    assert recording.left_out == 0 and not loops(recording)
    for x, y in zip(flatten(result)[0], flatten(function(inputs()))[0], strict=True):
        assert x.detach().numpy().tobytes() == y.detach().numpy().tobytes()


class Others:
    """Has a function of this name, too."""

    @staticmethod
    def stack(items: Any) -> Any:
        return sum(items)


def items_without_gradients(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(h * 2)
    with tj.no_grad():
        total = Others.stack(outs)
    return tj.stack(outs), total


def test_items_require_grad_as_they_were_appended() -> None:
    recording, result = record(items_without_gradients, (inputs(),), {})
    assert loops(recording) == [COUNT - RUN]
    expected = items_without_gradients(inputs())
    assert [x.requires_grad for x in result] == [x.requires_grad for x in expected] == [True, False]
    for x, y in zip(slopes(result), slopes(expected), strict=True):
        assert x.tobytes() == y.tobytes()


def additions_alone(xs: Any) -> Any:
    h, outs = zeros() + B, []
    for x in xs:
        h = h + x
        outs.append(h)
    return tj.stack(outs), h


def test_what_saves_nothing_is_gone_through_as_often_as_one_likes() -> None:
    compiled = tj.compile(additions_alone)
    for length in (14, 17, 11, 25):
        stacked, last = compiled(inputs(length))
        for of in (last, stacked, last):
            assert tj.autograd.grad(of.sum(), B)[0].shape == B.shape


def nothing_but_new_tensors(xs: Any) -> Any:
    outs = []
    for _ in range(len(xs)):
        outs.append(tj.ones(3))
    return tj.stack(outs), tj.stack([tj.zeros(2) for _ in xs])


def test_items_may_be_made_of_nothing() -> None:
    compiled = tj.compile(nothing_but_new_tensors)
    for length in (14, 17, 11, 25):
        assert [x.tolist() for x in compiled(inputs(length))] == [x.tolist() for x in nothing_but_new_tensors(inputs(length))]


def item_of_the_caller() -> Any:
    return sys._getframe(1).f_locals["outs"][5]


def looked_at_from_inside(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    return item_of_the_caller(), tj.stack(outs)


def looked_at_in_a_generator(xs: Any) -> Any:
    def steps() -> Any:
        h, outs = zeros(), []
        for x in xs:
            h = cell(h, x)
            outs.append(h)
        yield h
        yield tj.stack(outs)

    generator = steps()
    next(generator)
    found = generator.gi_frame.f_locals["outs"][5]
    return found, next(generator)


@pytest.mark.parametrize("function", [looked_at_from_inside, looked_at_in_a_generator])
def test_who_looks_into_a_frame_finds_items(function: Callable[..., Any]) -> None:
    recording, (item, stacked) = record(function, (inputs(),), {})
    assert recording.reason is not None
    assert item.detach().numpy().tobytes() == stacked[5].detach().numpy().tobytes()
    expected = function(inputs())
    for x, y in zip((item, stacked), expected, strict=True):
        assert x.detach().numpy().tobytes() == y.detach().numpy().tobytes()


def fails_after_its_loop(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = cell(h, x)
        outs.append(h)
    if len(xs) > 3:
        raise ValueError("found")
    return tj.stack(outs)


def test_who_looks_into_the_frames_of_an_exception_finds_items() -> None:
    with pytest.raises(ValueError, match="found") as caught:
        record(fails_after_its_loop, (inputs(),), {})
    frames = [entry.frame.f_locals for entry in caught.traceback if "outs" in entry.frame.f_locals]
    assert [len(variables["outs"]) for variables in frames] == [COUNT]
    assert all(type(x) is tj.Tensor for x in frames[0]["outs"])


def read_more_than_once(xs: Any) -> Any:
    h, outs = zeros(), []
    for x in xs:
        h = GRU(x, h)
        outs.append(h)
    return tj.stack(outs)


def read_by_the_next_step(xs: Any) -> Any:
    h, outs, ys, zs = zeros(), [], [], []
    for x in xs:
        before = h
        h = cell(h, x)
        outs.append(h)
        ys.append(h + before)
        zs.append(before * 2)
    return tj.stack(outs), tj.stack(ys), tj.cat(zs)


def kept_from_the_first_step(xs: Any) -> Any:
    h, first = zeros(), None
    for x in xs:
        h = GRU(x, h) * 0.5 + h
        first = h if first is None else first
    return h, first


@pytest.mark.parametrize("function", [read_more_than_once, read_by_the_next_step, kept_from_the_first_step])
def test_gradients_of_what_enters_a_loop_begin_with_those_that_have_arrived(function: Callable[..., Any]) -> None:

    def of_parameters(results: Any) -> list[Any]:
        found = tj.autograd.grad(sum((x * x).sum() for x in flatten(results)[0]), (W, U, *GRU.parameters()), allow_unused=True)
        return [g.numpy() for g in found if g is not None]

    for seed in range(4):
        recording, result = record(function, (inputs(seed=seed),), {})
        assert len(loops(recording)) == 1
        for x, y in zip(of_parameters(result), of_parameters(function(inputs(seed=seed))), strict=True):
            assert x.tobytes() == y.tobytes()


def test_the_last_item_is_one_even_where_it_is_a_row_of_several() -> None:
    rows = inputs(3)
    items = [rows[0], StackedItems(rows, 3)]
    found = CaptureFrame({}, {}).list_end(items, -1)
    assert found is items[-1] and len(items) == 4
    for x, row in zip(items[1:], rows, strict=True):
        assert np.array_equal(x.numpy(), row.numpy())


@pytest.mark.parametrize("grad", [True, False])
def test_a_list_that_is_turned_around_holds_its_items_backwards(grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(xs: Any) -> Any:
        h, outs = zeros(), []
        with tj.set_grad_enabled(grad):
            for x in xs:
                h = cell(h, x)
                outs.append(h)
        with tj.no_grad():
            outs.reverse()
        first = tj.stack(outs)
        outs.reverse()
        return first, tj.stack(outs), tj.cat(outs[::-1], 0), len(outs[::-1])

    compiled = tj.compile(found)
    for k, length in enumerate((40, 25, 12, 3, 31)):
        (*results, count), (*expected, number) = compiled(inputs(length, k)), found(inputs(length, k))
        assert count == number
        for x, y in zip(results, expected, strict=True):
            assert x.requires_grad is y.requires_grad is grad
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert compiled.stats.traces <= 4


def test_a_list_that_is_turned_around_when_the_recording_has_stopped_holds_items() -> None:
    def stopped(xs: Any) -> Any:
        h, outs = zeros(), []
        for x in xs:
            h = cell(h, x)
            outs.append(h)
        xs.numpy().tofile("/dev/null")
        outs.reverse()
        return tj.stack(outs[::-1])

    compiled = tj.compile(stopped)
    for k in range(3):
        np.testing.assert_array_equal(compiled(inputs(30, k)).detach().numpy(), stopped(inputs(30, k)).detach().numpy())
    assert not compiled.stats.compiled_calls


def own_slices_of_a_list(xs: Any) -> Any:
    h, outs = zeros().detach(), []
    for x in xs:
        outs.append(h)
        h = h * 0.5 + x
    inner = tj.stack(outs[3:-2])
    inner.add_(1)
    return inner, tj.stack(outs[3:-2]), outs[4]


def rows_of_an_argument(xs: Any) -> Any:
    rows = [x for x in xs]  # noqa: C416  (a list that is filled by a loop)
    inner = tj.stack(rows[3:-2])
    inner.mul_(2)
    return inner, xs.sum()


@pytest.mark.parametrize("function", [own_slices_of_a_list, rows_of_an_argument])
def test_a_stack_of_all_of_a_piece_has_memory_of_its_own(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function)
    for length in (12, 15, 9, 20, 20, 31):
        given = [inputs(length), inputs(length)]
        results, expected = compiled(given[0]), function(given[1])
        for x, y in zip((*results, given[0]), (*expected, given[1]), strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-12)


def one_item_written_with_a_gradient(xs: Any) -> Any:
    h, outs = zeros().detach(), []
    for x in xs:
        h = h * 0.9 + x
        outs.append(h)
    outs[3].mul_(W.sum())
    return outs[4].requires_grad, outs[3].requires_grad, outs[4]


def one_item_written_while_another_is_saved(xs: Any) -> Any:
    h, outs = zeros().detach(), []
    for x in xs:
        h = h * 0.9 + x
        outs.append(h)
    loss = (outs[4] @ W).sum()
    outs[3].zero_()
    return tj.autograd.grad(loss, W)[0]


@pytest.mark.parametrize("function", [one_item_written_with_a_gradient, one_item_written_while_another_is_saved])
def test_items_of_a_piece_are_tensors_of_their_own(function: Callable[..., Any]) -> None:
    compiled = tj.compile(function)
    for length in (12, 15, 9, 20, 20, 31):
        results, expected = (flatten(call(inputs(length)))[0] for call in (compiled, function))
        for x, y in zip(results, expected, strict=True):
            if isinstance(y, tj.Tensor):
                np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-12)
                assert x.requires_grad == y.requires_grad
            else:
                assert x == y
