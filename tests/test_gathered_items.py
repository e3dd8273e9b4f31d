"""capture/gathered_items.py: loops over lists and tuples whose steps take different paths, as one node, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import agrees, assert_equal, normal, outcome, outlined


class Box:
    kept: Any = None


class Found(Exception):
    pass


BOX, SEEN = Box(), []


def tensors(k: int, count: int = 14) -> list[Any]:
    return [normal(100 * k + i, 3) for i in range(count)]


def pairs(k: int) -> list[Any]:
    return [*zip(tensors(k), tensors(k + 50), strict=True)]


# -- what is one node
def over_tensors(xs: Any, h: Any) -> Any:
    for x in xs:
        h = h * 0.5 if h.sum() > 1 else h + x
    return h


def over_pairs(data: Any, w: Any) -> Any:
    rejected = 0
    for x, y in data:
        if (w * x).sum() > y.sum():
            w, rejected = w * 0.5, rejected + 1
        else:
            w = w + y
    return w, rejected


def over_nested_pairs(data: Any, weights: Any, h: Any) -> Any:
    for (x, y), w in zip(data, weights, strict=False):
        h = h + w * x if h.sum() > 1 else h - y
    return h


def over_numbers(numbers: Any, h: Any) -> Any:
    total = numbers[0] * 0
    for n in numbers:
        if h.sum() > n:
            total = total + n
        h = h * 0.9 if h.sum() > 1 else h + n
    return h, total


def over_bools(choices: Any, h: Any) -> Any:
    for choice, x in choices:
        if choice:
            h = h - 0.1
        h = h * 0.9 if h.sum() > 1 else h + x
    return h


def counted(xs: Any, h: Any) -> Any:
    for k, x in enumerate(xs, 3):
        h = h + k if h.sum() > 1 else h - x
    return h


def backwards(xs: Any, h: Any) -> Any:
    for x in reversed(xs):
        h = h * 0.9 if h.sum() > 1 else h + x
    return h


def made_in_the_call(h: Any, n: int) -> Any:
    scales = [(h.sum() * k).item() for k in range(n)]
    xs = [h * k for k in range(n)]
    for scale, x, y in zip(scales, xs, xs[::-1], strict=True):
        h = h * 0.9 if h.sum() > scale else h + x * y
    return h


def rows_of_one_tensor(x: Any, h: Any) -> Any:
    for row in x.unbind(0):
        h = h * 0.9 if h.sum() > 1 else h + row
    return h


def epochs(data: Any, w: Any) -> Any:
    best = 1e9
    for _ in range(4):
        for x, y in data:
            error = (x * w).sum() - y.sum()
            w = w - 0.02 * error * x if error.abs() < best else w * 0.9
        if (w * w).sum() < best:
            best = (w * w).sum().item()
    return w, best


def items_of_views(xs: Any, h: Any) -> Any:
    seen = []
    for x in xs:
        h = h * 0.5 if h.sum() > 1 else h + x[:2].sum()
        seen.append(h + x)
    return T.stack(seen)


PROGRAMS: dict[str, tuple[Any, Callable[[int], tuple[Any, ...]]]] = {
    "tensors": (over_tensors, lambda k: (tensors(k), normal(k, 3))),
    "a tuple": (over_tensors, lambda k: (tuple(tensors(k)), normal(k, 3))),
    "one tensor twice": (over_tensors, lambda k: ([*tensors(k), tensors(k)[0]] * 2, normal(k, 3))),
    "pairs": (over_pairs, lambda k: (pairs(k), normal(k, 3))),
    "pairs and numbers": (over_nested_pairs, lambda k: (pairs(k), [0.1 * k * i for i in range(14)], normal(k, 3))),
    "floats": (over_numbers, lambda k: ([0.1 * k * i for i in range(20)], normal(k, 3))),
    "integers": (over_numbers, lambda k: ([k * i - 4 for i in range(20)], normal(k, 3))),
    "bools": (over_bools, lambda k: ([(i % 3 == 0, i) for i in range(20)], normal(k, 3))),
    "enumerate": (counted, lambda k: (tensors(k), normal(k, 3))),
    "reversed": (backwards, lambda k: (tensors(k), normal(k, 3))),
    "reversed tuple": (backwards, lambda k: (tuple(tensors(k)), normal(k, 3))),
    "made in the call": (made_in_the_call, lambda k: (normal(k, 3), 14)),
    "rows of one tensor": (rows_of_one_tensor, lambda k: (normal(k, 14, 3), normal(k + 1, 3))),
    "epochs": (epochs, lambda k: (pairs(k), normal(k, 3))),
    "items": (items_of_views, lambda k: (tensors(k), normal(k, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_over_items_of_one_kind_is_one_node(name: str) -> None:
    compiled = agrees(*PROGRAMS[name], calls=12, recordings=4)
    assert not compiled.reasons, compiled.explain()


@pytest.mark.parametrize("backend", ["reference", "interpret", "numba"])
def test_every_backend_goes_over_lists(backend: str) -> None:
    agrees(over_nested_pairs, PROGRAMS["pairs and numbers"][1], backend=backend)


def test_the_policy_itself_makes_a_long_loop_over_a_list_one_node() -> None:
    compiled = T.compile(over_pairs, wait=True)
    agrees(over_pairs, lambda k: ([*zip(tensors(k, 300), tensors(k + 9, 300), strict=True)], normal(k, 3)), compiled=compiled)
    assert not compiled.stats.piecewise_calls and not compiled.reasons, compiled.explain()


def test_another_length_is_another_recording() -> None:
    compiled = agrees(over_tensors, lambda k: (tensors(k, 9 + k % 2), normal(k, 3)), calls=14)
    assert compiled.stats.traces == 2
    assert_equal(outcome(over_tensors, ([], normal(0, 3)), 0), outcome(compiled, ([], normal(0, 3)), 0))


def test_gradients_go_through_a_loop_over_a_list() -> None:
    def loss(xs: Any, w: Any) -> Any:
        h = w * 0
        for x in xs:
            h = h * w if h.sum() > 1 else h + x * w
        return T.autograd.grad(h.sum(), w)[0]

    compiled = agrees(loss, lambda k: (tensors(k), normal(k, 3).requires_grad_()), calls=12)
    assert not compiled.reasons, compiled.explain()


def test_a_tensor_that_steps_write_to_may_share_memory_with_an_item() -> None:
    def added(xs: Any, h: Any) -> Any:
        for x in xs:
            if h.sum() > 1:
                h.mul_(0.5)
            h.add_(x)
        return h

    def given(k: int) -> tuple[Any, ...]:
        xs = tensors(k)
        return xs, (xs[4] if k in (3, 4, 8) else xs[4][:] if k == 6 else normal(k, 3))

    compiled = outlined(added)
    served = []
    for k in range(12):
        before = compiled.stats.compiled_calls
        assert_equal(outcome(added, given(k), k), outcome(compiled, given(k), k))
        served.append(compiled.stats.compiled_calls > before)
    assert all(served[1:3]) and served[11], compiled.explain()


# -- what is refused
def item_left(xs: Any, h: Any) -> Any:
    best = None
    for x in xs:
        if best is None or x.sum() > best.sum():
            best = x
        h = h * 0.5 if h.sum() > 1 else h + x
    return h, best


def last_item(xs: Any, h: Any) -> Any:
    for x in xs:
        h = h * 0.5 if h.sum() > 1 else h + x
    return h, x


def item_before(xs: Any, h: Any) -> Any:
    before = xs[0]
    for x in xs:
        h, before = (h * 0.5 if h.sum() > 1 else h + before), x
    return h


def tuple_of_numbers(xs: Any, h: Any) -> Any:
    best = seen = [(1.0 * k, k) for k in range(len(xs))]
    for pair in seen:
        h = h * 0.5 if h.sum() > pair[1] else h + pair[0]
        if h.sum() > 3:
            return [pair], h
    return h, best


def part_left(xs: Any, h: Any) -> Any:
    part = xs[0][:2]
    for x in xs:
        h, part = (h * 0.5 if h.sum() > 1 else h + part.sum()), x[:2]
    return h


def item_written(xs: Any, h: Any) -> Any:
    for x in xs:
        h = h * 0.5 if h.sum() > 1 else h + x
        if h.sum() > 1.2:
            x += 1
        x[0] = 5.0
    return h


def item_that_requires_grad(xs: Any, h: Any) -> Any:
    for x in xs:
        if h.sum() > 1:
            x.requires_grad_()
        h = h * 0.5 if h.sum() > 1 else h + x.detach()
    return h


def item_of_other_memory(xs: Any, h: Any) -> Any:
    for x in xs:
        h = h * 0.5 if h.sum() > 1 else h + x
        if h.sum() > 1:
            x.data = x * 2
    return h


def list_that_grows(xs: Any, h: Any) -> Any:
    for x in xs:
        h = h * 0.5 if h.sum() > 1 else h + x
        if len(xs) < 20:
            xs.append(x * 0.5)
    return h


def list_that_shrinks(xs: Any, h: Any) -> Any:
    steps = 0
    for k, (x, y) in enumerate(zip(reversed(xs), xs, strict=False)):
        h = h * 0.5 if h.sum() > 1 else h + x - y
        xs.pop()
        steps += 1
        if k == 2:
            xs.extend([x, x, x])
    return h, steps


def several_kinds(xs: Any, h: Any) -> Any:
    for x in [*xs, 1.0]:
        h = h * 0.5 if h.sum() > 1 else h + x
    return h


def several_shapes(xs: Any, h: Any) -> Any:
    for x in [*xs, xs[0][:1]]:
        h = h * 0.5 if h.sum() > 1 else h + x
    return h


def with_grad(xs: Any, h: Any) -> Any:
    for x in [x.requires_grad_() for x in xs]:
        h = h * 0.5 if h.sum() > 1 else h + x.detach()
    return h


def identity_asked(xs: Any, h: Any) -> Any:
    found = 0
    for x in xs:
        h = h * 0.5 if h.sum() > 1 else h + x
        found += x is xs[2]
    return h, found


def key_of_a_dictionary(xs: Any, h: Any) -> Any:
    numbers, total = {xs[2]: 5, h: 7}, 0
    for x in xs:
        total += numbers.get(x, 0) + numbers.get(h, 0)
        h = h * 0.5 if h.sum() > 1 else h + x
    return h, total


def stored_outside(xs: Any, h: Any) -> Any:
    for k, x in enumerate(xs):
        h = h * 0.5 if h.sum() > 1 else h + x
        if k == 3:
            SEEN.append(x)
            BOX.kept = (x, k)
    return h


def what_a_step_was_given_is_stored(xs: Any, h: Any) -> Any:
    for k in range(5):
        if k == 0:
            BOX.kept = h
            SEEN.append(h)
        h = h * 0.5 if h.sum() > 1 else h + xs[k]
    return h


def stored_after_the_end_of_the_recording(xs: Any, h: Any) -> Any:
    for k, x in enumerate(xs):
        if k == 3 and x is not h:
            BOX.kept = (x, k)
        h = h * 0.5 if h.sum() > 1 else h + x
    return h


def raised(xs: Any, h: Any) -> Any:
    for x in xs:
        h = h * 0.5 if h.sum() > 1 else h + x
        BOX.kept = x
        raise Found(x)


REFUSED: dict[Any, str] = {
    item_left: "a step leaves an item of the list that it goes over",
    last_item: "a step leaves an item of the list that it goes over",
    item_before: "a step leaves an item of the list that it goes over",
    tuple_of_numbers: "a step leaves an item of the list that it goes over",
    part_left: "a step leaves a view of what it was given",
    item_written: "a step writes to an item of the list that it goes over",
    item_that_requires_grad: "a step changes an item of the list that it goes over",
    item_of_other_memory: "a step changes an item of the list that it goes over",
    list_that_grows: "a step changes what it has not made",
    list_that_shrinks: "a step changes what it has not made",
    several_kinds: "it goes over a list of Tensor and float, not of tensors, of numbers of one type, or of tuples of such",
    several_shapes: "it goes over a list of tensors of several shapes or dtypes",
    with_grad: "it goes over a list of tensors that require grad",
    identity_asked: "which object a variable holds",
    key_of_a_dictionary: "which object a variable holds",
    stored_outside: "a step leaves an item of the list that it goes over",
    what_a_step_was_given_is_stored: "",  # a place of its own
    stored_after_the_end_of_the_recording: "which object a variable holds",
    raised: "the call raised Found",
}
"""Functions whose loops are no nodes, and what the reason says."""


def positions(given: tuple[Any, ...]) -> tuple[Any, Any]:
    """Which of the given objects stand outside."""

    def of(x: Any) -> list[int]:
        return [k for k, y in enumerate((*given[0], given[1])) if y is x]

    return [of(x) for x in SEEN], [of(x) for x in (BOX.kept if type(BOX.kept) is tuple else [BOX.kept])]


@pytest.mark.parametrize("is_aliased", [False, True])
@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_items_that_steps_do_more_with_than_read_are_those_of_the_list(function: Any, is_aliased: bool) -> None:
    compiled, messages = outlined(function), set[str]()
    for k in range(7):
        found = []
        for f in (function, compiled):
            SEEN.clear()
            BOX.kept = None
            xs = tensors(k, 8) if not is_aliased or k % 3 else [*normal(k, 8, 3)]
            given = xs, (xs[3] if is_aliased else normal(k, 3))
            was = (*xs,), given[1]
            result = outcome(f, given, k)
            grads = [x.requires_grad for x in was[0]]
            found.append((result, positions(was), grads, [[x is y for y in xs] for x in was[0]]))
        assert_equal(found[0][0], found[1][0])
        assert found[0][1:] == found[1][1:]
        messages |= {reason.message for reason in compiled.reasons}
    assert any(REFUSED[function] in x for x in messages) or (not REFUSED[function] and not messages), messages
