"""Hooks of modules and tensors during the backward pass, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import numbers

import tracejit
from tracejit.tensor.hooks import register_end_of_pass_hook


def both(program: Any) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = program(tracejit), program(torch)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if hasattr(b, "detach"):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)
        else:
            assert a == b


def layer(f: Any) -> Any:
    net = f.nn.Linear(3, 2).double()
    with f.no_grad():
        net.weight.copy_(f.tensor(numbers(2, 3)))
        net.bias.copy_(f.tensor(numbers(2, seed=1)))
    return net


def test_full_backward_hooks_see_and_replace_gradients() -> None:
    def program(f: Any) -> list[Any]:
        net, seen = layer(f), []

        def after(module: Any, grad_input: Any, grad_output: Any) -> Any:
            assert module is net
            seen.extend([*grad_input, *grad_output])
            return tuple(None if g is None else g * 2 for g in grad_input)

        handles = [
            net.register_full_backward_hook(after),
            net.register_full_backward_pre_hook(lambda module, grad_output: (grad_output[0] * 3,)),
        ]
        x = f.tensor(numbers(4, 3, seed=2), requires_grad=True)
        (net(x) ** 2).sum().backward()
        first = x.grad.clone()
        for handle in handles:
            handle.remove()
        (net(x) ** 2).sum().backward()
        return [*seen, first, x.grad, net.weight.grad]

    both(program)


def test_full_backward_hooks_run_for_inputs_without_gradients() -> None:
    def program(f: Any) -> list[Any]:
        net, seen = layer(f), []
        net.register_full_backward_hook(lambda module, gi, go: seen.extend([gi[0] is None, go[0]]))
        net(f.tensor(numbers(4, 3))).sum().backward()
        return seen

    both(program)


def test_hooks_after_accumulation_find_the_gradient_in_its_place() -> None:
    def program(f: Any) -> list[Any]:
        x, seen = f.tensor(numbers(3), requires_grad=True), []

        def step(p: Any) -> None:
            seen.append(p.grad.clone())
            with f.no_grad():
                p.sub_(p.grad * 0.1)
            p.grad = None

        handle = x.register_post_accumulate_grad_hook(step)
        x.register_hook(lambda g: g * 2)
        for _ in range(2):
            (x * x).sum().backward()
        assert x.grad is None
        (x * x).sum().backward(inputs=[x])
        handle.remove()
        (x * x).sum().backward()
        for wrong in (x * 2, x.detach()):
            with pytest.raises(RuntimeError):
                wrong.register_post_accumulate_grad_hook(step)
        return [*seen, x, x.grad]

    both(program)


def test_compiled_functions_see_hooks_that_were_registered_since() -> None:
    x = tracejit.tensor(numbers(3), requires_grad=True)

    @tracejit.compile
    def loss(x: Any) -> Any:
        return (x * x).sum()

    @tracejit.compile
    def step(x: Any) -> Any:
        y = (x * x).sum()
        y.backward()
        return y

    for function in (loss, step):
        for _ in range(3):
            x.grad = None
            y = function(x)
            if function is loss:
                y.backward()
        seen: list[Any] = []
        handle = x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
        x.grad = None
        for _ in range(2):
            y = function(x)
            if function is loss:
                y.backward()
        np.testing.assert_allclose(seen, [(2 * x).tolist(), (4 * x).tolist()])
        handle.remove()
    net = tracejit.nn.Linear(2, 2)
    compiled = tracejit.compile(lambda a: net(a).sum())
    counted: list[Any] = []
    for _ in range(3):
        compiled(tracejit.ones(1, 2)).backward()
    net.register_full_backward_hook(lambda module, gi, go: counted.append(go[0].tolist()))
    for _ in range(2):
        compiled(tracejit.ones(1, 2)).backward()
    assert counted == [[[1.0, 1.0]]] * 2


def test_the_hooks_of_a_module_are_a_mapping_that_takes_them_away() -> None:
    m, called = tracejit.nn.Linear(2, 2), []
    handles = [
        m.register_forward_hook(lambda *a: called.append("after")), m.register_forward_pre_hook(lambda *a: called.append("before")),
        m.register_full_backward_hook(lambda *a: called.append("backward")),
    ]  # fmt: skip
    m(tracejit.ones(1, 2)).sum().backward()
    assert called == ["before", "after", "backward"]
    assert [len(h) for h in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks, m._backward_pre_hooks)] == [1, 1, 1, 0]
    assert list(m._forward_hooks) == [handles[0].id] and handles[1].id not in m._forward_hooks
    m._forward_hooks.clear()
    m._backward_hooks.pop(handles[2].id)
    m._forward_pre_hooks[7] = lambda *a: called.append("set")
    called.clear()
    m(tracejit.ones(1, 2)).sum().backward()
    assert called == ["before", "set"]
    handles[0].remove()
    m._forward_pre_hooks.clear()
    assert not m._forward_pre_hooks and not m._forward_hooks


def test_leaves_with_a_hook_for_the_end_get_their_gradients_when_these_are_complete() -> None:
    leaves = [tracejit.full((2,), float(k + 1), requires_grad=True) for k in range(4)]

    def product(events: list[Any]) -> Any:
        """Leaf 3 is used by the first operation and by the last one."""
        out = leaves[3] * leaves[0]
        out.register_hook(lambda g: events.append("first product"))
        for leaf in leaves[1:]:
            out = (out * leaf).tanh()
        return out.sum()

    product([]).backward()
    expected = [leaf.grad.numpy().copy() for leaf in leaves]
    events: list[Any] = []
    for k, leaf in enumerate(leaves):
        leaf.grad = None
        leaf.register_post_accumulate_grad_hook(lambda x, k=k: events.append(k))
        register_end_of_pass_hook(leaf, lambda x: events.append(all(leaf.grad is not None for leaf in leaves)))
    product(events).backward()
    assert events[:3] == [2, 1, "first product"] and {*events[3:5]} == {0, 3} and events[5:] == [True] * 4
    for leaf, gradient in zip(leaves, expected, strict=True):
        np.testing.assert_array_equal(leaf.grad.numpy(), gradient)


@pytest.mark.parametrize("early", [False, True])
def test_a_hook_that_changes_a_gradient_changes_no_other(early: bool) -> None:
    a, b, c, d = (tracejit.full((3,), 2.0, requires_grad=True) for _ in range(4))

    def gradients() -> list[Any]:
        for leaf in (a, b, c, d):
            leaf.grad = None
        ((a * b + c + d) * tracejit.tensor([1.0, 2.0, 3.0])).sum().backward()  # `c`, `d` and the product receive one array
        return [leaf.grad.tolist() for leaf in (a, b, c, d)]

    before = gradients()
    for leaf in (c, d):
        leaf.register_post_accumulate_grad_hook(lambda x: x.grad.mul_(10))
        if early:
            register_end_of_pass_hook(leaf, lambda x: None)
    assert gradients() == [*before[:2], [10.0, 20.0, 30.0], [10.0, 20.0, 30.0]]


def test_a_hook_for_the_end_is_called_once_in_each_pass_to_one_of_its_leaves() -> None:
    a, b, other = (tracejit.ones(2, requires_grad=True) for _ in range(3))
    seen: list[Any] = []
    handles = [register_end_of_pass_hook(leaf, seen.append) for leaf in (a, b)]
    (a * b * other).sum().backward(retain_graph=True)
    (a * 2 + other).sum().backward()
    assert [leaf is a or leaf is b for leaf in seen] == [True, True] and a.grad.tolist() == [3, 3]
    (other * 2).sum().backward()
    assert len(seen) == 2
    compiled = tracejit.compile(lambda: (a.exp() * b).sum())
    for _ in range(3):
        compiled().backward()
    assert len(seen) == 5
    (a * b).sum().backward(create_graph=True)
    assert len(seen) == 6
    for handle in handles:
        handle.remove()
    (a * b).sum().backward()
    assert len(seen) == 6
