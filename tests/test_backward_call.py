"""compiled/backward_call.py: backward passes that are one call, and what they leave to the engine, against eager."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tracejit.autograd import api
from tracejit.compiled import backward_call
from tracejit.config import override
from tracejit.cpython import c_api

HOT = 3


@pytest.fixture(params=[0, HOT], ids=["python", "machine"], autouse=True)
def hot_calls(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.param and not c_api.supported():
        pytest.skip("calls are interpreted on this Python")
    with override(hot_calls=request.param):
        yield request.param


def leaf(*values: float) -> tj.Tensor:
    return tj.tensor(list(values), requires_grad=True)


def product(x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
    return (x * y).sum()


def heated(function: Callable[..., Any], *args: Any) -> Any:
    """Compiled, and its backward passes as fast as they become."""
    call = tj.compile(function)
    for _ in range(HOT + 2):
        out = call(*args)
        out.backward()
        tj.autograd.grad(call(*args), [a for a in args if a.requires_grad])
    for a in args:
        a.grad = None
    return call


class Engine(Exception):
    """The engine was asked."""


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def refuse(*args: Any, **options: Any) -> None:
        raise Engine

    return lambda: monkeypatch.setattr(api, "run_backward", refuse)


def calls_of(out: Any) -> dict[Any, Any]:
    return out.grad_fn.plan.calls


def test_a_pass_from_a_scalar_to_leaves_asks_the_engine_nothing(no_engine: Callable[[], None], hot_calls: int) -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(product, x, y)
    no_engine()
    out = call(x, y)
    kinds = {type(c).__name__ for c in calls_of(out).values()}
    assert kinds == ({"builtin_function_or_method"} if hot_calls else {"function"})
    out.backward(retain_graph=True)
    assert x.grad.tolist() == [3.0, 4.0] and y.grad.tolist() == [1.0, 2.0]
    out.backward()
    assert x.grad.tolist() == [6.0, 8.0] and y.grad.tolist() == [2.0, 4.0]
    assert [g.tolist() for g in tj.autograd.grad(call(x, y), (y, x))] == [[1.0, 2.0], [3.0, 4.0]]
    assert [g.tolist() for g in tj.autograd.grad(call(x, y), y)] == [[1.0, 2.0]]


def test_gradients_are_memory_of_their_own() -> None:
    def function(x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
        return x + y

    for first, second in ((leaf(1.0), leaf(2.0)), (tj.tensor(1.0, requires_grad=True), tj.tensor(2.0, requires_grad=True))):
        call = heated(function, first, second)
        call(first, second).backward()
        with tj.no_grad():
            first.grad.mul_(5.0)
        assert second.grad.sum().item() == 1.0
        call(first, second).backward()
        assert first.grad.sum().item() == 6.0 and second.grad.sum().item() == 2.0
        a, b = tj.autograd.grad(call(first, second), (first, second))
        a.mul_(7.0)
        assert b.sum().item() == 1.0 and tj.autograd.grad(call(first, second), first)[0].sum().item() == 1.0


def test_a_gradient_that_is_kept_is_added_to_in_place() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(product, x, y)
    kept = x.grad = tj.ones(2)
    alias = kept[:1]
    call(x, y).backward()
    assert x.grad is kept and kept.tolist() == [4.0, 5.0] and alias.tolist() == [4.0] and kept._version == 1


def test_the_same_leaf_as_two_arguments_gets_the_sum() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(product, x, y)
    call(x, x).backward()
    assert x.grad.tolist() == [2.0, 4.0]
    assert tj.autograd.grad(call(x, x), x)[0].tolist() == [2.0, 4.0]


def test_hooks_of_leaves_and_of_results_run() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(product, x, y)
    handle = x.register_hook(lambda g: g * 10)
    call(x, y).backward()
    assert x.grad.tolist() == [30.0, 40.0] and y.grad.tolist() == [1.0, 2.0]
    assert tj.autograd.grad(call(x, y), x)[0].tolist() == [30.0, 40.0]
    handle.remove()
    out = call(x, y)
    out.register_hook(lambda g: g * 2)
    out.retain_grad()
    out.backward()
    assert out.grad.item() == 2.0 and y.grad.tolist() == [3.0, 6.0]


def test_a_hook_registered_after_the_forward_call_runs() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(product, x, y)
    out, seen = call(x, y), []
    y.register_hook(lambda g: seen.append(g.tolist()))
    out.backward()
    assert seen == [[1.0, 2.0]]


def test_a_graph_is_freed_by_a_pass_unless_it_is_retained() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(product, x, y)
    for run in (lambda out, **o: out.backward(**o), lambda out, **o: tj.autograd.grad(out, (x, y), **o)):
        out = call(x, y)
        run(out, retain_graph=True)
        run(out)
        with pytest.raises(RuntimeError, match="freed by an earlier backward pass"):
            run(out)
        with pytest.raises(RuntimeError, match="freed by an earlier backward pass"):
            tj.autograd.grad(out, x, create_graph=True)


def test_what_saved_nothing_can_go_backward_again() -> None:
    def function(x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
        return (x + y).sum()

    x, y = leaf(1.0), leaf(2.0)
    call = heated(function, x, y)
    for f in (function, call):
        out = f(x, y)
        out.backward()
        out.backward()
    assert x.grad.tolist() == [4.0]


def test_memory_is_given_back_by_a_pass() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(lambda x, y: (x.exp() * y).sum(), x, y)
    z = leaf(5.0, 6.0)
    out = call(z, y)
    array = weakref.ref(z._array)
    out.backward()
    z.data = tj.ones(2)
    gc.collect()
    assert array() is None and out.grad_fn.slab is None


def test_a_saved_value_changed_in_place_is_an_error() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(product, x, y)
    for run in (lambda out: out.backward(), lambda out: tj.autograd.grad(out, (x, y))):
        out = call(x, y)
        with tj.no_grad():
            x.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(out)
        assert x.grad is None and y.grad is None


def test_a_change_of_what_nobody_saved_is_none() -> None:
    def function(x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
        return (x.exp() + y).sum()

    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(function, x, y)
    out, expected = call(x, y), x.detach().exp().tolist()
    with tj.no_grad():
        x.mul_(0.0)
        y.mul_(0.0)
    out.backward()
    np.testing.assert_allclose(x.grad.tolist(), expected, rtol=1e-6)


def test_a_gradient_of_a_gradient_goes_through_the_graph() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(lambda x, y: (x * x * y).sum(), x, y)
    (first,) = tj.autograd.grad(call(x, y), x, create_graph=True)
    assert first.requires_grad and tj.autograd.grad(first.sum(), x)[0].tolist() == [6.0, 8.0]
    call(x, y).backward(create_graph=True)
    assert x.grad.requires_grad


def test_inputs_choose_the_leaves() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(product, x, y)
    call(x, y).backward(inputs=[y])
    assert x.grad is None and y.grad.tolist() == [1.0, 2.0]


def test_several_roots_and_given_cotangents_are_summed() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(product, x, y)
    tj.autograd.backward([call(x, y), call(x, y)])
    assert x.grad.tolist() == [6.0, 8.0]
    call(x, y).backward(tj.tensor(0.5))
    assert x.grad.tolist() == [7.5, 10.0]
    out = call(x, y)
    tj.autograd.backward([out, out], [tj.tensor(1.0), tj.tensor(2.0)])
    assert y.grad.tolist() == [5.5, 11.0]


def test_a_given_cotangent_needs_the_shape_and_dtype_of_the_result() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    heated(product, x, y)
    call = tj.compile(lambda x, y: x * y)
    for k in range(HOT + 2):
        call(x, y).backward(tj.tensor([1.0, k]))
        assert x.grad.tolist() == [3.0, 4.0 * k]
        assert tj.autograd.grad(call(x, y), y, tj.tensor([2.0, 4.0, 6.0])[::2])[0].tolist() == [2.0, 12.0]
        x.grad = None
        with pytest.raises(RuntimeError, match="mismatch in shape"):
            call(x, y).backward(tj.ones(3))
        with pytest.raises(RuntimeError, match="dtype"):
            call(x, y).backward(tj.ones(2, dtype=tj.float64))
        with pytest.raises(RuntimeError, match="scalar outputs"):
            call(x, y).backward()
        with pytest.raises(RuntimeError, match="2 gradients"):
            tj.autograd.grad(call(x, y), y, (tj.ones(2), tj.ones(2)))
        with pytest.raises(RuntimeError, match="0 gradients"):
            tj.autograd.grad(call(x, y), y, ())
    assert x.grad is None


def test_inputs_that_are_results_pass_gradients_on() -> None:
    y = leaf(3.0, 4.0)
    call = tj.compile(product)
    for _ in range(HOT + 2):
        z = leaf(1.0, 2.0)
        w = z * 2
        (call(w, y) * 3).backward()
        assert z.grad.tolist() == [18.0, 24.0]
        assert tj.autograd.grad(call(z * 2, y), y)[0].tolist() == [2.0, 4.0]
        z = leaf(1.0, 2.0)
        call(z * 2, y).backward()
        assert z.grad.tolist() == [6.0, 8.0]


def test_cotangents_of_any_layout_arrive() -> None:
    call = tj.compile(lambda x: x.exp())
    for _ in range(HOT + 2):
        x = tj.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
        weights = tj.tensor(np.arange(6.0).reshape(3, 2))
        (call(x).t() * weights).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), np.exp(x.detach().numpy()) * weights.numpy().T, rtol=1e-6)
        x.grad = None
        call(x).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), np.exp(x.detach().numpy()), rtol=1e-6)


def test_a_result_moved_to_another_shape_is_differentiated_there() -> None:
    x, y = leaf(1.0), leaf(3.0)
    call = heated(lambda x, y: x * y, x, y)
    out = call(x, y)
    out.data = tj.tensor(9.0)
    with pytest.raises(RuntimeError):
        out.sum().backward(tj.ones(2))
    call(x, y).backward()
    assert x.grad.tolist() == [3.0]


def test_one_result_of_several_frees_what_its_own_pass_enters() -> None:
    def function(x: tj.Tensor, y: tj.Tensor) -> tuple[tj.Tensor, tj.Tensor]:
        return (x * x).sum(), (y * y).sum()

    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = tj.compile(function)
    for _ in range(HOT + 2):
        x.grad = y.grad = None
        first, second = call(x, y)
        first.backward()
        assert x.grad.tolist() == [2.0, 4.0]
        second.backward()
        assert y.grad.tolist() == [6.0, 8.0]
        with pytest.raises(RuntimeError, match="freed"):
            second.backward()


def test_an_unused_input_is_an_error_unless_it_is_allowed() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    call = heated(product, x, y)
    other = leaf(1.0)
    with pytest.raises(RuntimeError, match="was not used"):
        tj.autograd.grad(call(x, y), (x, other))
    assert tj.autograd.grad(call(x, y), (x, other), allow_unused=True)[1] is None


def test_overflowing_sums_of_gradients_do_not_warn() -> None:
    x, y = leaf(1.0), leaf(3e38)
    call = heated(product, x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(x, y).backward()
        call(x, y).backward()
    assert x.grad.tolist() == [float("inf")]


def test_nan_and_infinity_flow_as_in_eager() -> None:
    x, y = leaf(float("nan"), float("inf"), 0.0), leaf(0.0, 0.0, float("inf"))
    heated(product, x, y)(x, y).backward()
    expected = tj.autograd.grad(product(x, y), (x, y))
    np.testing.assert_array_equal(x.grad.numpy(), expected[0].numpy())
    np.testing.assert_array_equal(y.grad.numpy(), expected[1].numpy())


def test_backward_inside_a_recorded_function_is_recorded() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    inner = heated(product, x, y)

    @tj.compile
    def step(x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
        x.grad = None
        loss = inner(x, y)
        loss.backward()
        return x.grad * 2

    for _ in range(HOT + 2):
        assert step(x, y).tolist() == [6.0, 8.0]
    assert step.stats.compiled_calls > 0


def test_a_pass_of_an_outer_graph_made_before_a_recording_belongs_to_the_engine() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    inner = heated(product, x, y)
    out = inner(x, y)

    @tj.compile
    def step(z: tj.Tensor) -> tj.Tensor:
        out.backward(retain_graph=True)
        return z * 2

    for k in range(3):
        assert step(tj.ones(2)).tolist() == [2.0, 2.0]
        assert x.grad.tolist() == [3.0 * (k + 1), 4.0 * (k + 1)]


def test_threads_go_backward_at_the_same_time() -> None:
    shared = leaf(3.0, 4.0)
    call = heated(product, leaf(1.0, 2.0), shared.detach().requires_grad_())
    wrong: list[Any] = []

    def work(value: float) -> None:
        for _ in range(200):
            x, y = leaf(value, value), leaf(value, 1.0)
            call(x, y).backward()
            if x.grad.tolist() != [value, 1.0] or y.grad.tolist() != [value, value]:
                wrong.append((value, x.grad.tolist()))

    threads = [threading.Thread(target=work, args=(float(k),)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_first_pass_of_a_freed_graph_teaches_nothing_about_later_ones() -> None:
    def function(x: tj.Tensor, y: tj.Tensor) -> tuple[tj.Tensor, tj.Tensor]:
        return (x * x).sum(), (y * y).sum()

    x, y = leaf(1.0), leaf(3.0)
    call = tj.compile(function)
    call(x, y)
    first, second = call(x, y)
    tj.autograd.backward([first, second])
    with pytest.raises(RuntimeError, match="freed"):
        first.backward()
    x.grad = None
    call(x, y)[0].backward()
    assert x.grad.tolist() == [2.0]


def test_subclasses_of_tensors_and_parameters_as_leaves_have_plain_gradients() -> None:
    x, y = tj.nn.Parameter(tj.tensor([1.0, 2.0])), leaf(3.0, 4.0)
    call = heated(product, x, y)
    call(x, y).backward()
    assert type(x.grad) is tj.Tensor and x.grad.is_leaf and not x.grad.requires_grad and x.grad.tolist() == [3.0, 4.0]


def test_what_stays_in_python_is_explained(hot_calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_call, "_LARGEST", 1)
    call = heated(product, leaf(1.0, 2.0), leaf(3.0, 4.0))
    assert "backward calls: from Python, since what cannot be translated is a node of 2 edges (1 at most)" in call.explain(
        verbose=True
    )
    monkeypatch.undo()
    assert "backward calls: from Python" not in heated(product, leaf(1.0, 2.0), leaf(3.0, 4.0)).explain(verbose=True)


def test_results_whose_graph_was_used_up_inside_have_a_node_each() -> None:
    w = tj.tensor([1.0, 2.0]).requires_grad_()

    def function(x: Any) -> Any:
        a, b = w * x, w * w
        (a.sum() + b.sum()).backward()
        return a, b

    compiled = tj.compile(function)
    for _ in range(3):
        w.grad = None
        results = compiled(tj.ones(2))
        assert [r.tolist() for r in results] == [[1.0, 2.0], [1.0, 4.0]] and w.grad.tolist() == [3.0, 5.0]
        for result in results:
            with pytest.raises(RuntimeError, match=r"freed|second time"):
                result.sum().backward()
    assert compiled.stats.compiled_calls == 2
