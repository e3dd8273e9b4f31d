"""Executable and CompiledNode: when the tape of a program may be used, what it holds, and when eager's takes its place.

Every test runs the same steps on the function itself and compares, or asserts the error that stands for a difference."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import tracejit as T
from tracejit.autograd.compiled import CompiledNode


def leaf(*values: float) -> T.Tensor:
    return T.tensor([float(v) for v in values], requires_grad=True)


def compiled(function: Callable[..., object], *examples: T.Tensor) -> Callable[..., object]:
    """A compiled function that has recorded a call with `examples`."""
    made = T.compile(function)
    made(*examples)
    assert made.stats.programs_compiled == 1, made.explain()
    return made


def test_double_backward_goes_on_where_an_input_that_eager_does_not_save_was_changed() -> None:
    w = leaf(0.5)

    def function(x: T.Tensor) -> T.Tensor:
        return (x + w).exp()  # eager saves the result of exp, and not w

    call = compiled(function, leaf(1.0))
    for run in (function, call):
        with T.no_grad():
            w.fill_(0.5)
        x = leaf(1.0)
        out = run(x)
        with T.no_grad():
            w.add_(1)
        (g,) = T.autograd.grad(out, x, create_graph=True)
        (h,) = T.autograd.grad(g, x)
        assert g.item() == h.item() == pytest.approx(np.exp(1.5), rel=1e-6)


def test_double_backward_sees_the_memory_that_was_there_where_it_was_replaced() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        return (x * x * x).sum()

    call = compiled(function, leaf(1.0))
    for run in (function, call):
        x = leaf(2.0)
        out = run(x)
        x.data = T.tensor([5.0])
        (g,) = T.autograd.grad(out, x, create_graph=True)
        (h,) = T.autograd.grad(g.sum(), x)
        assert (g.item(), h.item()) == (12.0, 12.0)


def test_double_backward_of_a_program_that_overwrote_what_it_read() -> None:
    counter = T.tensor([2.0])

    def function(x: T.Tensor) -> T.Tensor:
        y = x * counter.clone()
        counter.add_(1)
        return (y * y).sum()

    call = compiled(function, leaf(1.0))
    for run in (function, call):
        counter.fill_(2.0)
        x = leaf(1.0)
        out = run(x)
        (g,) = T.autograd.grad(out, x, create_graph=True)
        (h,) = T.autograd.grad(g.sum(), x)
        assert (g.item(), h.item(), counter.item()) == (8.0, 8.0, 3.0)


def test_a_written_buffer_that_the_result_does_not_depend_on_is_no_obstacle_to_double_backward() -> None:
    seen = T.tensor([0.0])

    def function(x: T.Tensor) -> T.Tensor:
        with T.no_grad():
            seen.add_(x.detach())
        return (x * x * x).sum()

    call = compiled(function, leaf(1.0))
    x = leaf(2.0)
    (g,) = T.autograd.grad(call(x), x, create_graph=True)
    (h,) = T.autograd.grad(g.sum(), x)
    assert (g.item(), h.item(), seen.item()) == (12, 12, 3)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("is_leaf", [False, True])
def test_hooks_of_inputs_run_once(is_leaf: bool, create_graph: bool) -> None:
    def function(x: T.Tensor) -> T.Tensor:
        return (x * x).sum()

    call = compiled(function, leaf(1.0) if is_leaf else leaf(1.0) * 2)
    for run in (function, call):
        root = leaf(3.0)
        x = root if is_leaf else root * 2
        arrived = []
        x.register_hook(lambda g, arrived=arrived: arrived.append(g.item()) or g * 10)
        run(x).backward(create_graph=create_graph)
        assert arrived == [6.0 if is_leaf else 12.0]
        assert root.grad is not None and root.grad.item() == (60.0 if is_leaf else 240.0)


def test_third_derivatives_go_through_programs() -> None:
    x = leaf(0.7)
    out = compiled(lambda x: (x.sin() * x).sum(), leaf(1.0))(x)
    for _ in range(3):
        (out,) = T.autograd.grad(out.sum(), x, create_graph=True)
    assert out.item() == pytest.approx(-3 * np.sin(0.7) - 0.7 * np.cos(0.7), rel=1e-5)


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (True, True)])
def test_every_mask_of_cotangents_gives_eagers_gradients(wanted: tuple[bool, bool]) -> None:
    w = leaf(2.0, 3.0)

    def function(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        return (x * w).sum(), (x.exp() / w).sum()

    call = compiled(function, leaf(1.0, 1.0))
    found = []
    for run in (function, call):
        x = leaf(0.5, -0.5)
        w.grad = None
        chosen = [out for out, there in zip(run(x), wanted, strict=True) if there]
        T.autograd.backward(chosen)
        assert x.grad is not None and w.grad is not None
        found.append((x.grad.numpy(), w.grad.numpy()))
    for expected, actual in zip(*found, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_a_freed_graph_before_the_call_is_no_business_of_the_recording() -> None:
    a = leaf(1.0, 2.0)
    x = a * a
    x.sum().backward()  # frees the graph of x, which the recording must not take for its own
    call = compiled(lambda x: x * 3, x)
    a = leaf(1.0, 2.0)
    call(a * a).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [6, 12]
    with pytest.raises(RuntimeError, match="retain_graph"):
        call(x).sum().backward()


def test_a_node_lets_go_of_everything_after_backward() -> None:
    call = compiled(lambda x, y: (x * y.exp()).sum(), leaf(1.0), T.ones(1))
    x, y = leaf(1.0), T.ones(1)
    out = call(x, y)
    node = out.grad_fn
    assert isinstance(node, CompiledNode)
    gone = weakref.ref(y)
    out.backward()
    del y
    gc.collect()
    assert gone() is None
    assert node.slab is None and node.arrays == node.tensors == node.scalars == ()


def test_a_result_that_nobody_kept_leaves_nothing_behind() -> None:
    call = compiled(lambda x: (x * x).sum(), leaf(1.0))
    x = leaf(1.0)
    gone = weakref.ref(call(x).grad_fn)
    gc.collect()
    assert gone() is None


def test_an_output_that_requires_no_gradient_has_no_node() -> None:
    def function(x: T.Tensor) -> tuple[T.Tensor, T.Tensor]:
        with T.no_grad():
            constant = x * 2
        return constant, x * 3

    call = compiled(function, leaf(1.0))
    for constant, grown in (function(leaf(1.0)), call(leaf(1.0))):
        assert not constant.requires_grad and constant.grad_fn is None and constant.is_leaf
        assert grown.requires_grad and not grown.is_leaf


class Noisy(T.nn.Module):
    """A linear layer with noise on its weights, which `draw` writes through `.data` in each call."""

    def __init__(self, draw: Callable[[Noisy], object]) -> None:
        super().__init__()
        self.draw = draw
        self.weight = T.nn.Parameter(T.randn(4, 4))
        self.scale = T.nn.Parameter(T.full((4, 4), 0.1))
        self.register_buffer("noise", T.zeros(4, 4))

    def forward(self, x: T.Tensor) -> T.Tensor:
        self.draw(self)
        return (x @ (self.weight + self.scale * self.noise.t())).tanh() * self.noise.exp()[:2]


def _rows(module: Noisy) -> None:
    module.noise.data[0].copy_(T.randn(4))
    module.noise.data[1:].mul_(0.5).add_(0.25)


DRAWS = {
    "drawn": lambda m: m.noise.data.normal_(),
    "copied": lambda m: m.noise.data.copy_(T.randn(4, 4)),
    "rows": _rows,
    "on the weight": lambda m: m.weight.data.add_(0.01 * T.randn(4, 4)),
    "twice": lambda m: (m.noise.data.fill_(1.0), m.noise.data.add_(T.randn(4, 4))),
}
PASSES: dict[str, Callable[[Noisy, Callable[..., T.Tensor], T.Tensor], object]] = {
    "after the call": lambda m, call, x: call(x).sum().backward(),
    "after two calls": lambda m, call, x: (call(x).sum() + call(2 * x).pow(2).sum()).backward(),
    "after a write from outside": lambda m, call, x: _backward_after_write(m, call(x).sum(), x),
    "twice, with a write between": lambda m, call, x: _backward_after_write(m, call(x).sum(), x, retain_graph=True),
    "of a gradient": lambda m, call, x: T.autograd.grad(call(x).sum(), x, create_graph=True)[0].pow(2).sum().backward(),
}


def _backward_after_write(module: Noisy, loss: T.Tensor, x: T.Tensor, retain_graph: bool = False) -> None:
    if retain_graph:
        loss.backward(retain_graph=True)
    module.noise.data.mul_(1.5)
    module.weight.data.mul_(0.75)
    loss.backward()


@pytest.mark.parametrize("then", PASSES)
@pytest.mark.parametrize("draw", DRAWS)
def test_a_backward_pass_reads_what_was_written_through_data_as_it_is_then(draw: str, then: str) -> None:
    results = []
    for is_compiled in (False, True):
        T.manual_seed(0)
        module = Noisy(DRAWS[draw])
        call = T.compile(module, wait=True) if is_compiled else module
        rounds = []
        for _ in range(4):
            module.zero_grad()
            x = T.linspace(-1, 1, 8).reshape(2, 4).requires_grad_()
            PASSES[then](module, call, x)
            rounds.append([x.grad, module.weight.grad, module.scale.grad, module.weight, module.noise])
            rounds[-1] = [t.detach().numpy().copy() for t in rounds[-1]]
        results.append(rounds)
    assert call.stats.compiled_calls >= 3, call.explain()
    for eager, found in zip(*results, strict=True):
        for expected, value in zip(eager, found, strict=True):
            np.testing.assert_allclose(value, expected, rtol=2e-5, atol=1e-6)


def test_a_graph_of_the_pass_goes_on_reading_what_was_written_through_data() -> None:
    def cube(x: T.Tensor, n: T.Tensor) -> T.Tensor:
        n.data.add_(1)
        return (x * n) ** 3

    results = []
    for call in (cube, compiled := T.compile(cube, wait=True)):
        x, n, rounds = leaf(0.1, 0.2), T.zeros(2), []
        for _ in range(4):
            y = call(x, n)
            (first,) = T.autograd.grad(y.sum(), x, create_graph=True)
            n.data.mul_(2)
            (again,) = T.autograd.grad(y.sum(), x, create_graph=True)
            (second,) = T.autograd.grad((first + again).sum(), x)
            rounds.append([t.detach().numpy().copy() for t in (first, again, second)])
        results.append(rounds)
    np.testing.assert_allclose(*results, rtol=2e-5)
    assert compiled.stats.compiled_calls >= 3, compiled.explain()


WRITES: dict[str, Callable[[T.Tensor, T.Tensor, T.Tensor], T.Tensor]] = {
    "after it was saved": lambda x, w, n: (x * n, n.data.mul_(2.0))[0],
    "and of what was written": lambda x, w, n: (n.data.copy_(noise := w.detach() * 2), x * n + x * noise)[1],
    "and of a result": lambda x, w, n: ((y := x.tanh()).data.mul_(2.0), y * n)[1],
    "of another tensor's contents": lambda x, w, n: (n.data.copy_(w.detach()), x * n)[1],
    "and in plain sight": lambda x, w, n: (n.mul_(2), n.data.mul_(2.0), x * n)[2],
    "and .data was given": lambda x, w, n: (setattr(w, "data", n.detach() * 2), n.data.add_(1.0), x * n)[2],
}


@pytest.mark.filterwarnings("ignore:.*runs eagerly")
@pytest.mark.parametrize("way", WRITES)
def test_where_a_pass_would_read_something_else_than_eager_mode_the_call_is_eager(way: str) -> None:
    results = []
    for is_compiled in (False, True):
        x, w, n = leaf(1, 2), leaf(3, 4), T.tensor([5.0, 6.0])
        call = T.compile(WRITES[way], wait=True) if is_compiled else WRITES[way]
        rounds = []
        for _ in range(3):
            x.grad = None
            first, second = call(x, w, n), call(x, w, n)
            try:
                (first.sum() + second.sum()).backward()
            except RuntimeError as error:
                rounds.append(type(error))
            else:
                rounds.append(x.grad.tolist())
        results.append(rounds)
    assert results[0] == results[1]
