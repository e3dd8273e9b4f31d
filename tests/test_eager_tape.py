"""Passes that a compiled function's one program cannot make: the tape that eager mode would have made takes its place.

Every test does the same with the function itself, with a compiled call, and with one that is machine code, and compares."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.autograd import gradcheck, gradgradcheck
from tracejit.autograd.compiled import CompiledNode
from tracejit.config import override

HOT = 3
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def hot_calls() -> Iterator[None]:
    with override(hot_calls=HOT):
        yield


def leaf(*values: float) -> T.Tensor:
    return T.tensor([float(v) for v in values], dtype=T.float64, requires_grad=True)


def ways(function: Function, *examples: Any) -> list[Function]:
    """The function, and two compiled ones that replay `examples`."""
    cold, hot = T.compile(function), T.compile(function)
    cold(*examples)
    for _ in range(HOT + 2):
        hot(*examples)
    assert hot.stats.compiled_calls == HOT + 1, hot.explain()
    return [function, cold, hot]


def same(function: Function, steps: Callable[[Function], Any], *examples: Any) -> list[Any]:
    """What `steps(call)` returns, which is the same whatever the call."""
    found = [steps(call) for call in ways(function, *examples)]
    for other in found[1:]:
        np.testing.assert_equal(_plain(other), _plain(found[0]))
    return found


def _plain(x: Any) -> Any:
    if isinstance(x, T.Tensor):
        return np.round(np.array(x.detach().tolist()), 9)
    return [_plain(y) for y in x] if isinstance(x, tuple | list) else x


def raised(action: Callable[[], Any]) -> str:
    """What kind of error it is, or "no"."""
    try:
        action()
    except RuntimeError as error:
        return next(
            words for words in ("freed", "inplace operation", "changed the size", "changed the type", "") if words in str(error)
        )
    return "no"


# -- several results
def shared_trunk(x: T.Tensor, w: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
    h = (x * w).exp()
    return (h * h).sum(), (h.sin() + w).sum()


def test_a_pass_that_avoids_what_another_one_freed_goes_on() -> None:
    def steps(call: Function) -> Any:
        x, w = leaf(0.1, 0.2), leaf(0.3, 0.4)
        first, second = call(x, w)
        first.backward()
        kinds = [raised(lambda: T.autograd.grad(second, x, retain_graph=True)), raised(second.backward)]
        return kinds, x.grad, w.grad

    assert same(shared_trunk, steps, leaf(0.1, 0.2), leaf(0.3, 0.4))[0][0] == ["freed", "freed"]

    def apart(x: T.Tensor, w: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        h = x.exp()
        return (h * h).sum(), (h + w * w).sum()

    def around(call: Function) -> Any:
        x, w = leaf(0.1, 0.2), leaf(0.3, 0.4)
        first, second = call(x, w)
        first.backward()
        found = T.autograd.grad(second, w, retain_graph=True)  # which does not pass h
        return found, raised(lambda: T.autograd.grad(second, x)), x.grad, w.grad

    assert same(apart, around, leaf(0.1, 0.2), leaf(0.3, 0.4))[0][1] == "freed"


def test_the_gradient_of_a_result_is_that_from_outside_and_from_inside() -> None:
    def steps(call: Function) -> Any:
        x, w = leaf(0.1, 0.2), leaf(0.3, 0.4)
        h, total = call(x, w)
        seen: list[Any] = []
        h.register_hook(lambda g: seen.append(g.tolist()))
        h.retain_grad()
        ((h * h).sum() + total).backward(retain_graph=True)
        return seen, h.grad, T.autograd.grad(total, h, retain_graph=True), T.autograd.grad(total, (h, x)), x.grad, w.grad

    def function(x: T.Tensor, w: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        h = (x * w).exp()
        return h, (h.sin() + w).sum()

    same(function, steps, leaf(0.1, 0.2), leaf(0.3, 0.4))


def test_a_hook_on_a_result_changes_what_flows_on_inside() -> None:
    def function(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        h = x * x
        return h, (h * h).sum()

    def steps(call: Function) -> Any:
        x = leaf(1.0, 2.0)
        h, total = call(x)
        handle = h.register_hook(lambda g: g * 10)
        total.backward(retain_graph=True)
        first = x.grad.tolist()
        handle.remove()
        total.backward()
        return first, x.grad

    assert same(function, steps, leaf(1.0, 2.0))[0][0] == [40.0, 320.0]


@pytest.mark.parametrize("under_no_grad", [True, False])
@pytest.mark.parametrize(
    "view", [lambda h: h[1:], lambda h: h.reshape(2, 2).t(), lambda h: h.view(2, 2).diagonal(), lambda h: h[:]]
)
def test_a_view_that_was_written_to_has_a_new_node_behind_its_base(view: Function, under_no_grad: bool) -> None:
    """So what was computed from either of them before is no part of its gradient, nor what is computed from the base afterwards."""

    def function(x: T.Tensor) -> tuple[T.Tensor, ...]:
        h = x * 2.0
        v = view(h)
        before = (v * 3.0).sum()
        with T.set_grad_enabled(not under_no_grad):
            v.mul_(2.0)
        return v, before, (h * 5.0).sum(), (v * 7.0).sum()

    def steps(call: Function) -> Any:
        x = leaf(1.0, 2.0, 3.0, 4.0)
        v, *totals = call(x)
        seen: list[Any] = []
        v.register_hook(lambda g: (seen.append(g.tolist()), g * 10.0)[1])
        found = [T.autograd.grad(t, (v, x), retain_graph=True, allow_unused=True) for t in (*totals, v.sum(), sum(totals))]
        T.autograd.backward([v.sum(), *totals], create_graph=True)
        return seen, found, x.grad, v

    same(function, steps, leaf(1.0, 2.0, 3.0, 4.0))


def test_hooks_of_several_results_run_in_the_order_of_the_steps_that_made_them() -> None:
    """The latest one first, whatever the order of the results; so one that raises finds done what comes before it."""

    def function(x: T.Tensor) -> tuple[T.Tensor, ...]:
        a = x * 2.0
        b = x.sin()
        c = x.exp()
        return b, c, a

    def steps(call: Function) -> Any:
        x, seen = leaf(1.0, 2.0), []
        results = call(x)
        for name, result in zip("bca", results, strict=True):
            result.register_hook(lambda g, name=name: seen.append(name))
            result.retain_grad()
        sum(r.sum() for r in results).backward(retain_graph=True)

        def refuse(g: T.Tensor) -> None:
            raise KeyError("b")

        results[0].register_hook(refuse)
        with pytest.raises(KeyError):
            sum(r.sum() for r in results).backward()
        return seen, [r.grad for r in results], x.grad

    assert same(function, steps, leaf(1.0, 2.0))[0][0] == ["c", "b", "a", "c", "b"]


def test_a_result_that_is_a_view_of_another_value_has_its_position_among_the_nodes_inside() -> None:
    def of_an_input(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        v = x.reshape(2, 2).t()
        return v, (v * v).sum()

    def of_a_result(x: T.Tensor) -> tuple[T.Tensor, T.Tensor, T.Tensor]:
        y = x * 2
        v = y.reshape(2, 2).t()
        return y, v, (v * v).sum()

    def of_a_view(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        v = x.reshape(2, 2)
        return v, v[0]

    def steps(call: Function) -> Any:
        x = leaf(1.0, 2.0, 3.0, 4.0)
        *_, v, total = call(x)
        v.retain_grad()
        (total.sum() * 3).backward(retain_graph=True)
        return v.grad, x.grad, T.autograd.grad(total.sum(), v), v.is_leaf, v._base is None

    for function in (of_an_input, of_a_result, of_a_view):
        same(function, steps, leaf(1.0, 2.0, 3.0, 4.0))


def test_a_result_whose_contents_were_replaced_under_no_grad_has_the_place_that_it_had_before() -> None:
    """So what was computed from the earlier contents adds to its gradient."""

    def as_a_whole(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        h = x * 2.0
        total = (h * x.detach()).sum()
        with T.no_grad():
            h.mul_(0.5)
        return h, total

    def twice_and_in_part(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        h = x * 2.0
        total = (h * 3.0).sum()
        with T.no_grad():
            h.mul_(0.5)
            h[0] = 7.0
        return h, total

    def between_uses(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        h = x * 2.0
        total = (h * 3.0).sum()
        with T.no_grad():
            h.zero_()
        return h, total + (h * 5.0).sum()

    def steps(call: Function) -> Any:
        x = leaf(1.0, 2.0)
        h, total = call(x)
        seen: list[Any] = []
        h.register_hook(lambda g: (seen.append(g.tolist()), g * 10)[1])
        h.retain_grad()
        first = T.autograd.grad(total, (x, h), retain_graph=True)
        second = T.autograd.grad(total * h.sum(), (h, x), retain_graph=True, create_graph=True)
        (h.sum() + total).backward(retain_graph=True)
        T.autograd.backward(total, inputs=[h])
        return seen, first, second, h, h.grad, x.grad

    for function in (as_a_whole, twice_and_in_part, between_uses):
        same(function, steps, leaf(1.0, 2.0))


def test_leaves_that_are_made_inside_get_their_gradients() -> None:
    def made(w: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        x = T.ones(2, dtype=T.float64, requires_grad=True)
        return (x * w * w).sum(), x

    def cut_off(w: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        with T.no_grad():
            x = w * 2
        x.requires_grad_()
        return (x * x * w).sum(), x

    def detached(w: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        x = (w * 2).detach().requires_grad_()
        y = (x * x * w).sum()
        with T.no_grad():
            x.add_(0.0)
        return y, x

    def kept_inside(w: T.Tensor) -> T.Tensor:
        x = (w * 2).detach().clone().requires_grad_()
        return (x * x * w).sum()

    def steps(call: Function) -> Any:
        w = leaf(2.0, 3.0)
        out = call(w)
        y, x = out if isinstance(out, tuple) else (out, None)
        error = raised(lambda: y.backward(retain_graph=True))
        first = x is None or x.grad
        again = raised(lambda: T.autograd.grad(y, [t for t in (w, x) if t is not None], create_graph=True))
        return error, first, w.grad, x is None or (x.is_leaf, x.requires_grad), again

    for function in (made, cut_off, kept_inside, detached):
        same(function, steps, leaf(2.0, 3.0))


# -- what was changed
def test_what_a_pass_needs_is_there_although_an_input_was_changed_that_eager_did_not_save_for_it() -> None:
    def function(x: T.Tensor, y: T.Tensor, c: T.Tensor) -> T.Tensor:
        z = x * y  # saves both, which a pass to c alone does not notice
        return (z * (x + c).exp()).sum()

    def steps(call: Function) -> Any:
        x, y, c = leaf(0.1, 0.2), leaf(0.3, 0.4), leaf(0.5, 0.6)
        out = call(x, y, c)
        with T.no_grad():
            y.fill_(9.0)
        found = T.autograd.grad(out, c, retain_graph=True)
        second = T.autograd.grad(T.autograd.grad(out, c, create_graph=True)[0].sum(), c, retain_graph=True)
        return found, second, raised(lambda: T.autograd.grad(out, x))

    assert same(function, steps, leaf(0.1, 0.2), leaf(0.3, 0.4), leaf(0.5, 0.6))[0][2] == "inplace operation"


def test_changes_of_results_and_of_inputs_are_noticed_node_by_node() -> None:
    def function(x: T.Tensor, w: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        h = x.exp()
        return h, (h + w * x).sum()

    def steps(call: Function) -> Any:
        kinds = []
        for change in ("h", "w", "x", "nothing"):
            x, w = leaf(0.1, 0.2), leaf(0.3, 0.4)
            h, total = call(x, w)
            with T.no_grad():
                {"h": h, "w": w, "x": x, "nothing": T.ones(1)}[change].mul_(2.0)
            for wanted in (x, w):
                for create in (False, True):
                    kinds.append(raised(lambda w=wanted, c=create: T.autograd.grad(total, w, retain_graph=True, create_graph=c)))
        return kinds

    found = same(function, steps, leaf(0.1, 0.2), leaf(0.3, 0.4))[0]
    assert found.count("inplace operation") == 10 and found.count("no") == 6


def test_what_the_second_derivative_saved_is_checked_too() -> None:
    def function(x: T.Tensor, w: T.Tensor) -> T.Tensor:
        return (x * x * w).sum()

    def steps(call: Function) -> Any:
        x, w = leaf(0.1, 0.2), leaf(0.3, 0.4)
        (g,) = T.autograd.grad(call(x, w), x, create_graph=True)
        with T.no_grad():
            x.mul_(2.0)
        return raised(lambda: T.autograd.grad(g.sum(), x))

    assert same(function, steps, leaf(0.1, 0.2), leaf(0.3, 0.4))[0] == "inplace operation"


# -- derivatives of any order
def smooth(x: T.Tensor, w: T.Tensor) -> T.Tensor:
    h = T.tanh(x @ w)
    return (h * x.sum(1, keepdim=True)).exp().sum(0)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradcheck_and_gradgradcheck_hold(compiled: bool) -> None:
    x = T.tensor(np.linspace(-0.5, 0.5, 6).reshape(2, 3), requires_grad=True)
    w = T.tensor(np.linspace(0.2, -0.4, 6).reshape(3, 2), requires_grad=True)
    call = T.compile(smooth) if compiled else smooth
    for _ in range(HOT + 2):
        call(x, w)
    assert gradcheck(call, (x, w)) and gradgradcheck(call, (x, w))


def test_derivatives_up_to_the_fourth_order_are_eagers() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        return (x.sin() * x.exp() / (x * x + 1.0)).sum()

    def steps(call: Function) -> Any:
        x = leaf(0.3, -0.7)
        out, found = call(x), []
        for _ in range(4):
            (g,) = T.autograd.grad(out, x, create_graph=True)
            found.append(g)
            out = g.sum()
        return found

    same(function, steps, leaf(0.3, -0.7))


def test_a_gradient_penalty_may_stand_inside_or_outside() -> None:
    w = leaf(0.4, -0.3)

    def critic(x: T.Tensor) -> T.Tensor:
        return ((x * w).tanh() * x).sum()

    def inside(x: T.Tensor) -> T.Tensor:
        x = x.detach().clone().requires_grad_()
        (g,) = T.autograd.grad(critic(x), x, create_graph=True)
        return critic(x) + ((g * g).sum() - 1.0) ** 2

    def steps(call: Function) -> Any:
        w.grad = None
        x = leaf(0.2, 0.9)
        call(x).backward()
        return w.grad, x.grad

    def around(call: Function) -> Any:
        w.grad = None
        x = leaf(0.2, 0.9)
        (g,) = T.autograd.grad(call(x), x, create_graph=True)
        (call(x) + ((g * g).sum() - 1.0) ** 2).backward()
        return w.grad, x.grad

    first = same(inside, steps, leaf(0.2, 0.9))[0]
    second = same(critic, around, leaf(0.2, 0.9))[0]
    np.testing.assert_allclose(first[0].numpy(), second[0].numpy(), rtol=1e-12)


def test_a_gradient_inside_may_be_asked_of_what_depends_on_a_graph_outside() -> None:
    """The pass ends there, so the graph outside is none of its business."""

    def of_the_argument(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        (g,) = T.autograd.grad((x * y).sin().sum(), y, create_graph=True)
        return g.sum() + (x * y).sum()

    def of_a_value_inside(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        v = x * y
        (g,) = T.autograd.grad((v * v).sin().sum(), v, create_graph=True)
        return (g * y).sum()

    def of_both(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        v = x * y.exp()
        g, h = T.autograd.grad((v * v * y).sum(), (v, y), retain_graph=True)
        return (g * v).sum() + (h * y).sum()

    def outer(w: T.Tensor) -> T.Tensor:
        return w * 1.5

    def steps(call: Function) -> Any:
        x, w = leaf(0.3, -0.4), leaf(0.8, 0.1)
        call(x, outer(w)).backward()
        seen: list[Any] = []
        y = outer(w)
        y.register_hook(lambda g: (seen.append(g.tolist()), g * 3.0)[1])
        call(x, y).backward()
        y = T.compile(outer)(w)
        call(x, y).backward()
        return x.grad, w.grad, seen

    for function in (of_the_argument, of_a_value_inside, of_both):
        same(function, steps, leaf(0.3, -0.4), outer(leaf(0.8, 0.1)))


@pytest.mark.parametrize("of_leaf", [True, False])
def test_a_hook_outside_that_a_gradient_inside_meets_is_called(of_leaf: bool) -> None:
    """So such calls run eagerly and say so, or are recorded: each tensor has hooks of its own here."""
    seen: list[Any] = []

    def function(y: T.Tensor) -> T.Tensor:
        (g,) = T.autograd.grad((y * y).sum(), y)
        return g

    def argument(hook: bool) -> T.Tensor:
        y = leaf(1.0, 2.0) if of_leaf else leaf(1.0, 2.0) * 1.0
        if hook:
            y.register_hook(lambda g: (seen.append(g.tolist()), g * 10.0)[1])
        return y

    hooked = T.compile(function)
    for _ in range(6):
        assert hooked(argument(True)).tolist() == function(argument(True)).tolist()
    assert ("changes from call to call" if of_leaf else "ran eagerly") in str(hooked.explain(verbose=True))
    assert hooked.stats.compiled_calls == 0
    later = T.compile(function)
    for hook in (False, False, False, False, True, False):
        assert later(argument(hook)).tolist() == function(argument(hook)).tolist()
    assert later.stats.compiled_calls == 4
    assert seen == [[2.0, 4.0]] * 14


def test_create_graph_of_backward_leaves_gradients_that_can_be_differentiated() -> None:
    def steps(call: Function) -> Any:
        x, w = leaf(0.1, 0.2), leaf(0.3, 0.4)
        call(x, w)[0].backward(create_graph=True)
        return x.grad, T.autograd.grad(x.grad.sum(), (x, w)), x.grad.requires_grad

    same(shared_trunk, steps, leaf(0.1, 0.2), leaf(0.3, 0.4))


def test_products_with_numbers_that_change_between_calls() -> None:
    def function(x: T.Tensor, k: float) -> T.Tensor:
        return (x**k * k).sum()

    def steps(call: Function) -> Any:
        found = []
        for k in (2.0, 3.0, 2.5):
            x = leaf(1.5, 2.5)
            (g,) = T.autograd.grad(call(x, k), x, create_graph=True)
            found += [g, *T.autograd.grad(g.sum(), x)]
        return found

    same(function, steps, leaf(1.0, 2.0), 2.0)


# -- hooks
def triple(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
    h = x * x
    return h, (h * 3).sum()


@pytest.mark.parametrize("where", ["leaf", "input", "result"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_hook_that_raises_stops_the_pass_and_one_that_changes_the_kind_is_an_error(where: str, create_graph: bool) -> None:
    def stop(g: T.Tensor) -> None:
        raise KeyError("stop")

    def steps(call: Function) -> Any:
        found = []
        for hook in (stop, lambda g: g.float(), lambda g: g[:1], lambda g: g.tolist(), lambda g: None, lambda g: g * 2):
            x = leaf(1.0, 2.0)
            given = x if where != "input" else x * 1.0
            h, total = call(given)
            {"leaf": x, "input": given, "result": h}[where].register_hook(hook)
            try:
                total.backward(create_graph=create_graph)
            except (KeyError, TypeError, RuntimeError) as error:
                words = [w for w in ("changed the size", "changed the type", "expected a Tensor") if w in str(error)]
                found.append((type(error).__name__, words, T.is_grad_enabled(), x.grad))
            else:
                found.append(("no", [], T.is_grad_enabled(), x.grad))
        return found

    kinds = [(name, words) for name, words, _, _ in same(triple, steps, leaf(1.0, 2.0))[0]]
    assert kinds == [
        ("KeyError", []), ("RuntimeError", ["changed the type"]), ("RuntimeError", ["changed the size"]),
        ("TypeError", ["expected a Tensor"]), ("no", []), ("no", []),
    ]  # fmt: skip


def test_hooks_removed_and_added_during_a_pass_count_from_the_next_one_on() -> None:
    def steps(call: Function) -> Any:
        x, seen, handles = leaf(1.0, 2.0), [], []
        h, total = call(x)

        def first(g: T.Tensor) -> None:
            seen.append("first")
            for handle in handles:
                handle.remove()
            if len(seen) == 1:
                h.register_hook(lambda g: seen.append("later"))

        handles += [h.register_hook(first), h.register_hook(lambda g: seen.append("second"))]
        total.backward(retain_graph=True)
        total.backward()
        return seen, x.grad

    assert same(triple, steps, leaf(1.0, 2.0))[0][0] == ["first", "second", "later"]


@pytest.mark.parametrize("retain", [False, True])
def test_a_hook_may_go_backward_through_the_same_graph(retain: bool) -> None:
    def steps(call: Function) -> Any:
        x, depth = leaf(1.0, 2.0), [0]
        h, total = call(x)

        def again(g: T.Tensor) -> None:
            depth[0] += 1
            if depth[0] == 1:
                total.backward(retain_graph=retain)

        h.register_hook(again)
        return raised(lambda: total.backward(retain_graph=retain)), depth, x.grad

    assert same(triple, steps, leaf(1.0, 2.0))[0][0] == ("no" if retain else "freed")


def test_a_hook_on_a_result_that_nothing_was_computed_from_may_free_the_graph_it_is_in() -> None:
    def function(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        return (x * x).sum(), (x.exp() * x).sum()

    def steps(call: Function) -> Any:
        x, calls = leaf(1.0, 2.0), []
        first, second = call(x)

        def inner(g: T.Tensor) -> T.Tensor:
            calls.append(1)
            if len(calls) == 1:
                first.backward(retain_graph=True)
                second.backward()
            return g * 2

        first.register_hook(inner)
        return raised(first.backward), raised(second.backward), calls, x.grad

    same(function, steps, leaf(1.0, 2.0))


def test_hooks_of_values_that_a_pass_to_others_does_not_need_are_not_called() -> None:
    def function(x: T.Tensor, w: T.Tensor) -> tuple[T.Tensor, T.Tensor, T.Tensor]:
        a, b = x * 2, w * 3
        return a, b, (a * b).sum()

    def steps(call: Function) -> Any:
        x, w, seen = leaf(1.0, 2.0), leaf(3.0, 4.0), []
        a, b, total = call(x, w)
        for name, t in (("a", a), ("b", b), ("x", x), ("w", w)):
            t.register_hook(lambda g, name=name: seen.append(name))
        T.autograd.grad(total, x, retain_graph=True)
        T.autograd.grad(total, a, retain_graph=True)
        total.backward(inputs=[w], retain_graph=True)
        return seen

    assert same(function, steps, leaf(1.0, 2.0), leaf(3.0, 4.0))[0] == ["a", "x", "a", "b", "w"]


def test_grad_mode_inside_hooks_is_that_of_the_pass() -> None:
    def steps(call: Function) -> Any:
        found = []
        for create in (False, True):
            x = leaf(1.0, 2.0)
            h, total = call(x)
            h.register_hook(lambda g: found.append((T.is_grad_enabled(), g.requires_grad)))
            with T.no_grad():
                total.backward(create_graph=create)
        return found

    assert same(triple, steps, leaf(1.0, 2.0))[0] == [(False, False), (True, False)]


# -- memory
def test_memory_is_kept_as_long_as_some_pass_could_go_on() -> None:
    def function(x: T.Tensor, w: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        return (x * x).sum(), (w.exp() * w).sum()

    call = ways(function, leaf(1.0), leaf(2.0))[1]
    first, second = call(leaf(1.0), leaf(2.0))
    node = first.grad_fn
    assert isinstance(node, CompiledNode)
    first.backward()
    assert node.slab is not None and node.arrays
    second.backward()
    assert node.slab is None and not node.arrays


def test_a_pass_to_one_input_keeps_what_a_pass_to_another_needs() -> None:
    def function(x: T.Tensor, w: T.Tensor) -> T.Tensor:
        return (x.exp() + w.exp()).sum()

    def steps(call: Function) -> Any:
        x, w = leaf(1.0), leaf(2.0)
        out = call(x, w)
        found = T.autograd.grad(out, x)
        return found, T.autograd.grad(out, w), raised(lambda: T.autograd.grad(out, w))

    assert same(function, steps, leaf(1.0), leaf(2.0))[0][2] == "freed"


@pytest.mark.parametrize("create_graph", [False, True])
def test_an_expanded_node_keeps_nothing_alive_after_its_graph_is_gone(create_graph: bool) -> None:
    call = ways(triple, leaf(1.0))[1]
    x = leaf(1.0)
    h, total = call(x)
    gone = [weakref.ref(x), weakref.ref(total.grad_fn)]
    h.retain_grad()
    total.backward(create_graph=create_graph)
    x.grad = None
    h.grad = None
    del x, h, total
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_nodes_are_numbered_between_those_made_before_and_after_the_call() -> None:
    call = ways(triple, leaf(1.0) * 2)[1]
    x = leaf(1.0)
    before = x * 2
    h, _ = call(before)
    after = h * 2
    h.register_hook(lambda g: None)
    T.autograd.grad(after.sum(), x, create_graph=True)
    output_edge = h.grad_fn.output_edge(0)[0]
    assert before.grad_fn.sequence < output_edge.sequence < h.grad_fn.sequence < after.grad_fn.sequence
    assert h.grad_fn.next_functions[0][0] is output_edge


def test_a_pass_to_chosen_values_does_not_enter_a_call_by_a_result_that_leads_elsewhere() -> None:
    def run(function: Any) -> list[Any]:
        x, z = T.ones(3, requires_grad=True), T.ones(3, requires_grad=True)
        seen: list[Any] = []
        first, inner = function(x, z)
        inner.register_hook(lambda g: seen.append(g.tolist()))
        second, outer = function(x, inner)
        (g,) = T.autograd.grad((first.sum() + second.sum() + outer.sum()), x)  # neither hooks on the way to z, nor its part freed
        seen.append(g.tolist())
        outer.sum().backward()
        assert z.grad is not None and x.grad is None
        with pytest.raises(RuntimeError, match="freed"):
            outer.sum().backward()
        return [*seen, z.grad.tolist()]

    def step(x: Any, z: Any) -> Any:
        return x.exp(), z.sin()

    compiled, expected = T.compile(step), run(step)
    for _ in range(3):
        np.testing.assert_allclose(np.ravel(run(compiled)), np.ravel(expected), 1e-6)
    assert compiled.stats.compiled_calls >= 4
