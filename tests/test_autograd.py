"""The tape: leaves, accumulation, modes, versions, hooks, views, double backward."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import tracejit as T


def leaf(*values: float) -> T.Tensor:
    return T.tensor([float(v) for v in values], requires_grad=True)


def test_gradients_accumulate_in_leaves_only() -> None:
    x = leaf(1, 2)
    y = x * 3
    y.sum().backward()
    (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5, 7]
    assert y.grad is None
    assert x.is_leaf
    assert not y.is_leaf


def test_accumulation_keeps_the_gradient_tensor_and_changes_it_in_place() -> None:
    x = leaf(1.0)
    (x * 2).sum().backward()
    kept = x.grad
    (x * 3).sum().backward()
    assert x.grad is kept
    assert kept is not None
    assert kept.tolist() == [5]


def test_nothing_is_added_to_a_gradient_whose_elements_share_memory() -> None:
    x = T.ones(2, 2).requires_grad_()
    x.grad = T.zeros(2)[None].expand(2, 2)
    with pytest.raises(RuntimeError, match="single memory location"):
        (x * T.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert x.grad.tolist() == [[0, 0], [0, 0]]


def test_two_leaves_never_share_a_gradient_array() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    seed = T.ones(2)
    (x + y).backward(seed)
    assert x.grad is not None
    assert y.grad is not None
    x.grad.zero_()
    assert y.grad.tolist() == [1, 1]
    assert seed.tolist() == [1, 1]


def test_the_graph_can_be_walked() -> None:
    x = leaf(1.0)
    y = (x * 2).sin()
    assert y.grad_fn is not None
    assert y.grad_fn.name() == "SinBackward0"
    ((mul, _),) = y.grad_fn.next_functions
    assert mul.name() == "MulBackward0"
    assert mul.next_functions[0][0].variable is x
    assert mul.next_functions[1] == (None, 0)


def test_a_second_backward_needs_retain_graph() -> None:
    x = leaf(2.0)
    y = (x**3).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [24]
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_backward_of_many_elements_needs_a_gradient_of_the_right_shape_and_dtype() -> None:
    y = leaf(1, 2) * 2
    with pytest.raises(RuntimeError, match="scalar outputs"):
        y.backward()
    with pytest.raises(RuntimeError, match="mismatch in shape"):
        y.backward(T.ones(3))
    with pytest.raises(RuntimeError, match="dtype"):
        y.backward(T.ones(2, dtype=T.float64))
    with pytest.raises(RuntimeError, match="does not require grad"):
        T.ones(1).backward()


def test_a_saved_value_changed_in_place_is_an_error_and_an_unsaved_one_is_not() -> None:
    x = leaf(1, 2)
    z = x * 1
    y = z + 1
    z.add_(1)
    y.sum().backward()
    z = x * 1
    y = z.sin()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    out = x.exp()
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_leaf_that_requires_grad_is_changed_only_without_grad() -> None:
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="view of a leaf"):
        x[0].add_(1)
    with T.no_grad():
        x.add_(1)
    assert x.tolist() == [2]


def test_an_indexed_tensor_may_be_changed_since_only_its_indices_are_saved() -> None:
    def selected(x: Any) -> Any:
        y = x * 1
        z = y[T.tensor([0, 2])]
        y.add_(1)
        return z.sum()

    def masked(x: Any) -> Any:
        y = x * 1
        y[y > 0] = y[y > 0] * 2
        return y.sum()

    def put(x: Any) -> Any:
        y = (x * 1).index_put((T.tensor([0]),), T.ones(1))
        return y.mul_(2).sum()

    for function, expected in ((selected, [1, 0, 1]), (masked, [2, 2, 2]), (put, [0, 2, 2])):
        x = T.ones(3, requires_grad=True)
        function(x).backward()
        assert x.grad is not None
        assert x.grad.tolist() == expected
    index = T.tensor([0, 1])
    y = T.ones(3, requires_grad=True)[index]
    index.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_in_place_changes_take_part_in_gradients() -> None:
    x = leaf(1, 2, 3)
    y = x * 1
    y.mul_(2)
    y[0].mul_(10)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [20, 2, 2]


def test_views_see_the_new_graph_of_their_base() -> None:
    x = leaf(2.0)
    base = T.zeros(3)
    view = base[1:]
    base[1] = x[0] * 5
    assert view.requires_grad
    view.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5]


def test_broadcast_gradients_are_summed_back() -> None:
    a, b = T.ones(3, 1, requires_grad=True), T.ones(4, requires_grad=True)
    (a * b).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert a.grad.tolist() == [[4.0]] * 3
    assert b.grad.tolist() == [3.0] * 4


def test_modes_work_as_context_and_as_decorator() -> None:
    x = leaf(1.0)
    with T.no_grad():
        a = x * 2
        with T.enable_grad():
            b = x * 2
    assert (a.requires_grad, b.requires_grad) == (False, True)

    @T.no_grad()
    def function() -> T.Tensor:
        return x * 2

    assert not function().requires_grad
    with T.set_grad_enabled(False):
        assert not T.is_grad_enabled()
    assert T.is_grad_enabled()


def test_modes_are_restored_after_an_exception_and_are_per_thread() -> None:
    seen = []
    with pytest.raises(ValueError, match="x"), T.no_grad():
        thread = threading.Thread(target=lambda: seen.append(T.is_grad_enabled()))
        thread.start()
        thread.join()
        raise ValueError("x")
    assert seen == [True]
    assert T.is_grad_enabled()


def test_hooks_see_and_replace_the_whole_gradient_once() -> None:
    x = leaf(1.0)
    calls = []

    def hook(g: T.Tensor) -> T.Tensor:
        calls.append(g.tolist())
        return g * 10

    handle = x.register_hook(hook)
    (x * 2 + x * 3).sum().backward()
    assert calls == [[5.0]]
    assert x.grad is not None
    assert x.grad.tolist() == [50]
    handle.remove()
    (x * 1).sum().backward()
    assert x.grad.tolist() == [51]


def test_retain_grad_keeps_the_gradient_of_an_intermediate() -> None:
    x = leaf(1, 2)
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == [4, 8]


@pytest.mark.parametrize("changed", ["the base", "the base under no_grad", "the view", "the view under no_grad"])
def test_a_view_retains_its_gradient_after_its_memory_was_written_to(changed: str) -> None:
    x = T.ones(2, 2, requires_grad=True)
    base = x * 1.0
    view = base.t()
    view.retain_grad()
    with T.set_grad_enabled("no_grad" not in changed):
        (base if "base" in changed else view).mul_(2.0)
    (view * 3.0).sum().backward()
    assert view.grad is not None
    assert view.grad.tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_grad_returns_gradients_without_touching_leaves() -> None:
    x, unused = leaf(1, 2), leaf(5)
    y = (x * x).sum()
    (g,) = T.autograd.grad(y, x, retain_graph=True)
    assert g.tolist() == [2, 4]
    assert x.grad is None
    with pytest.raises(RuntimeError, match="allow_unused"):
        T.autograd.grad(y, [x, unused], retain_graph=True)
    g, none = T.autograd.grad(y, [x, unused], allow_unused=True)
    assert none is None


def test_grad_of_an_intermediate() -> None:
    x = leaf(3.0)
    y = x * 2
    z = (y * y).sum()
    (g,) = T.autograd.grad(z, y)
    assert g.tolist() == [12]


def test_double_backward_of_a_composition_matches_the_closed_form() -> None:
    x = T.tensor([0.3, -1.2, 2.0], dtype=T.float64, requires_grad=True)
    y = (x.sin() * x.exp()).sum()
    (g,) = T.autograd.grad(y, x, create_graph=True)
    (h,) = T.autograd.grad(g.sum(), x)
    a = x.detach().numpy()
    np.testing.assert_allclose(h.numpy(), 2 * np.cos(a) * np.exp(a), rtol=1e-12)


def test_gradients_of_selected_inputs_only() -> None:
    x, y = leaf(1.0), leaf(2.0)
    (x * y).backward(inputs=[x])
    assert x.grad is not None
    assert x.grad.tolist() == [2]
    assert y.grad is None


def test_detach_and_requires_grad_errors() -> None:
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match="leaf"):
        (x * 2).requires_grad_(False)
    with pytest.raises(RuntimeError, match="floating-point"):
        T.tensor([1]).requires_grad_()
    y = x.detach()
    assert not y.requires_grad
    y.add_(1)
    assert x.tolist() == [2]


def test_a_graph_is_freed_with_its_tensors() -> None:
    x = leaf(1.0)
    y = (x.exp() * 2).sum()
    node = weakref.ref(y.grad_fn)
    gc.disable()
    try:
        y.backward()
        del y
        assert node() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("way", ["backward", "retained", "inputs", "grad", "hooked"])
def test_a_backward_pass_leaves_nothing_to_the_garbage_collector(way: str) -> None:
    x = T.ones(3, requires_grad=True)
    if way == "hooked":
        x.register_hook(lambda g: g * 2)

    def run() -> None:
        x.grad = None
        y = (x * 2).exp()
        if way == "grad":
            T.autograd.grad(y.sum(), x)
        else:
            y.sum().backward(retain_graph=way == "retained", inputs=[x] if way == "inputs" else None)

    run()
    gc.collect()
    gc.disable()
    try:
        run()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_gradients_of_max_are_shared_among_equals_and_relu_has_none_at_zero() -> None:
    x = leaf(3, 3, 1)
    x.amax().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.5, 0.5, 0]
    y = leaf(-1, 0, 2)
    y.relu().sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == [0, 0, 1]


def test_where_stops_a_nan_gradient_of_the_other_branch_only_as_torch_does() -> None:
    x = leaf(4, 9)
    T.where(x > 0, x.sqrt(), x * 0).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [0.25, 1 / 6], rtol=1e-6)


def test_grad_modes_decorate_functions_and_switch_nothing_else() -> None:
    def function(x: T.Tensor) -> bool:
        return (x * 2).requires_grad

    x = T.ones(1, requires_grad=True)
    for decorator, expected in (
        (T.no_grad(), False), (T.no_grad, False), (T.enable_grad(), True), (T.enable_grad, True),
        (T.set_grad_enabled(False), False), (T.set_grad_enabled(True), True),
    ):  # fmt: skip
        decorated = decorator(function)
        T.set_grad_enabled(True)
        assert decorated(x) is expected
        with T.no_grad():
            assert decorated(x) is expected
            assert not T.is_grad_enabled()

    @T.set_grad_enabled(False)
    def other() -> None: ...

    assert T.is_grad_enabled()


def test_a_write_to_distinct_elements_of_an_expanded_tensor_is_differentiated_in_every_mode():
    def gradients(create_graph):
        x = T.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
        value = T.tensor([2.0, 3.0, 4.0], requires_grad=True)
        z = x * 1
        z.expand(3, 3).diagonal().copy_(value)
        return [g.tolist() for g in T.autograd.grad((z * z).sum(), (x, value), create_graph=create_graph)]

    assert gradients(False) == gradients(True) == [[[0.0]] * 3, [4.0, 6.0, 8.0]]


def test_gradcheck_takes_torchs_arguments_and_notices_backward_passes_that_differ():
    x = T.tensor([0.5, 1.0], dtype=T.float64, requires_grad=True)
    options = {"check_batched_grad": True, "fast_mode": True, "check_grad_dtypes": True, "masked": False}
    assert T.autograd.gradcheck(lambda a: a.sin(), (x,), nondet_tol=1e-9, check_undefined_grad=False, **options)
    assert T.autograd.gradgradcheck(lambda a: a.sin(), (x,), gen_non_contig_grad_outputs=True, **options)
    with pytest.raises(NotImplementedError, match="no forward mode"):
        T.autograd.gradcheck(lambda a: a.sin(), (x,), check_forward_ad=True)

    class Random(T.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 1

        @staticmethod
        def backward(ctx, g):
            return g * (1 + 1e-6 * T.rand(2, dtype=T.float64))

    with pytest.raises(T.autograd.GradcheckError, match="not reentrant"):
        T.autograd.gradcheck(Random.apply, (x,))
    assert not T.autograd.gradcheck(Random.apply, (x,), raise_exception=False)
    assert T.autograd.gradcheck(Random.apply, (x,), nondet_tol=1e-3)
