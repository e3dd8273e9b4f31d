"""autograd.Function beside PyTorch's: the same program in both, with everything its context offers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import numbers

import tracejit


def both(program: Any, *arrays: Any) -> None:
    """program(framework, *tensors) returns numbers, tensors or errors' texts: equal in both."""
    torch = pytest.importorskip("torch")
    found = []
    for f in (tracejit, torch):
        results = program(f, *[f.tensor(a, requires_grad=True) for a in arrays])
        found.append([r.detach().numpy() if hasattr(r, "detach") else r for r in results])
    for ours, theirs in zip(*found, strict=True):
        if isinstance(theirs, np.ndarray):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        else:
            assert ours == theirs


def error_of(action: Any, kind: type[Exception] = RuntimeError) -> str:
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value)


def test_a_function_of_two_inputs_has_the_gradients_that_it_gives() -> None:
    def program(f: Any, x: Any, y: Any) -> list[Any]:
        class Product(f.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any, factor: float) -> Any:
                ctx.save_for_backward(a, b)
                ctx.factor = factor
                return a * b * factor

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                a, b = ctx.saved_tensors
                assert ctx.needs_input_grad == (True, True, False)
                return g * b * ctx.factor * 2, g * a * ctx.factor, None

        out = Product.apply(x, y, 3.0)
        assert type(out.grad_fn).__name__ == out.grad_fn.name() == "ProductBackward"
        (out * out).sum().backward()
        return [out, x.grad, y.grad, Product.apply(x.detach(), y.detach(), 2.0).requires_grad]

    both(program, numbers(3), numbers(3, seed=1))


def test_setup_context_is_called_with_inputs_and_output() -> None:
    def program(f: Any, x: Any) -> list[Any]:
        class Exp(f.autograd.Function):
            @staticmethod
            def forward(a: Any) -> Any:
                return a.exp()

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                assert len(inputs) == 1
                ctx.save_for_backward(output)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                (out,) = ctx.saved_tensors
                return g * out

        y = Exp.apply(x)
        (g,) = f.autograd.grad(y.sum(), x, create_graph=True)
        g.sum().backward()  # through the saved output
        return [y, g, x.grad, f.autograd.gradcheck(Exp.apply, (x,)) and f.autograd.gradgradcheck(Exp.apply, (x,))]

    both(program, numbers(3))


def test_several_outputs_get_zeros_or_none_for_gradients_that_are_missing() -> None:
    def program(f: Any, x: Any) -> list[Any]:
        seen: list[Any] = []

        def make(materialize: bool) -> Any:
            class Two(f.autograd.Function):
                @staticmethod
                def forward(ctx: Any, a: Any) -> Any:
                    ctx.set_materialize_grads(materialize)
                    where = (a > 0).long()
                    ctx.mark_non_differentiable(where)
                    return a * 2, "text", where, a * 3

                @staticmethod
                def backward(ctx: Any, *gs: Any) -> Any:
                    seen.append([g if g is None else g.tolist() for g in gs])
                    return gs[0] * 2

            return Two

        for materialize in (True, False):
            double, text, where, triple = make(materialize).apply(x)
            double.sum().backward()
            seen.append([text, where.requires_grad, triple.requires_grad])
        return [str(seen), x.grad]

    both(program, numbers(3))


def test_inputs_changed_in_place_take_the_place_of_the_output() -> None:
    def program(f: Any, x: Any) -> list[Any]:
        class Halve(f.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                a.mul_(0.5)
                ctx.mark_dirty(a)
                return a

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 5

        y = x * 2
        z = Halve.apply(y)
        assert z is y
        (y * y).sum().backward()
        message = error_of(lambda: Halve.apply(x))
        return [y, x.grad, message.startswith("a leaf Variable that requires grad")]

    both(program, numbers(3))


def test_an_input_returned_as_it_is_gets_a_node_of_its_own() -> None:
    def program(f: Any, x: Any) -> list[Any]:
        class Reverse(f.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any, scale: float) -> Any:
                ctx.scale = scale
                return a.view_as(a)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return -ctx.scale * g, None

        class Same(f.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                return a

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 7

        y = Reverse.apply(x, 0.5) + Same.apply(x)
        y.sum().backward()
        return [y, x.grad, x.is_leaf, Same.apply(x) is x]

    both(program, numbers(3))


def test_saved_tensors_that_were_changed_or_freed_are_refused() -> None:
    def program(f: Any, x: Any) -> list[Any]:
        class Square(f.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                ctx.save_for_backward(a)
                return a * a

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2 * ctx.saved_tensors[0]

        a = x * 1
        y = Square.apply(a).sum()
        a.add_(1)
        changed = error_of(y.backward)
        z = Square.apply(x).sum()
        z.backward()
        freed = error_of(z.backward)
        return ["modified by an inplace operation" in changed, "retain_graph=True" in freed]

    both(program, numbers(3))


def test_wrong_backward_passes_are_named() -> None:
    def program(f: Any, x: Any) -> list[Any]:
        def make(result: Any) -> Any:
            class Wrong(f.autograd.Function):
                @staticmethod
                def forward(ctx: Any, a: Any, n: int) -> Any:
                    return a * n

                @staticmethod
                def backward(ctx: Any, g: Any) -> Any:
                    return result(g)

            return Wrong.apply(x, 2).sum().backward

        return [
            error_of(make(lambda g: g)),
            error_of(make(lambda g: (g, None, g))),
            error_of(make(lambda g: (g, g)))[:70],
            error_of(make(lambda g: (g[:2], None)))[:70],
            make(lambda g: (g.sum(), None))() if False else None,
            make(lambda g: (g, None, None))(),
        ]

    both(program, numbers(3))


def test_gradients_are_brought_to_the_shape_and_dtype_of_the_input() -> None:
    def program(f: Any, x: Any) -> list[Any]:
        class Wide(f.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                return a.float().expand(4, 3).clone()

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g

        Wide.apply(x).sum().backward()
        return [x.grad, x.grad.dtype is f.float64]

    both(program, numbers(3))


def test_a_once_differentiable_backward_cannot_be_differentiated() -> None:
    def program(f: Any, x: Any) -> list[Any]:
        class Square(f.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                ctx.save_for_backward(a)
                return a * a

            @staticmethod
            @f.autograd.function.once_differentiable
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2 * ctx.saved_tensors[0]

        (g,) = f.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
        assert not g.requires_grad
        (g,) = f.autograd.grad((Square.apply(x) * x).sum(), x, create_graph=True)
        message = error_of(g.sum().backward)
        Square.apply(x).sum().backward()
        return [g, message, x.grad]

    both(program, numbers(3))


def test_a_gradient_that_is_a_saved_tensor_is_copied_into_the_leaf() -> None:
    class Leak(tracejit.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            return a * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return ctx.saved_tensors[0]

    x = tracejit.tensor([1.0, 2.0], requires_grad=True)
    Leak.apply(x).sum().backward()
    x.grad.add_(1)
    assert x.tolist() == [1.0, 2.0]


def test_nothing_is_kept_alive_by_a_function_that_saves_its_output() -> None:
    import gc
    import weakref

    class Exp(tracejit.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            out = a.exp()
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0]

    x = tracejit.tensor([1.0], requires_grad=True)
    gc.disable()
    try:
        y = Exp.apply(x)
        gone = weakref.ref(y)
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_compiled_functions_that_apply_one_run_eagerly_and_say_why() -> None:
    class Odd(tracejit.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 100

    @tracejit.compile
    def run(x: Any) -> Any:
        return Odd.apply(x * 3).sum()

    @tracejit.compile
    def step(x: Any) -> Any:
        y = Odd.apply(x * 3).sum()
        y.backward()
        return y

    for function in (run, step):
        for _ in range(3):
            x = tracejit.tensor([1.0, 2.0], requires_grad=True)
            y = function(x)
            if function is run:
                y.backward()
            assert y.item() == 18.0
            assert x.grad.tolist() == [300.0, 300.0]
        assert function.stats.compiled_calls == 0
        assert "Odd has a backward pass" in str(function.explain(verbose=True))


def test_saved_tensor_hooks_see_what_a_function_saves() -> None:
    def program(f: Any, x: Any) -> list[Any]:
        class Square(f.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                ctx.save_for_backward(a)
                return a * a

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2 * ctx.saved_tensors[0]

        with f.autograd.graph.saved_tensors_hooks(lambda t: t.numpy() * 10, lambda a: f.tensor(a / 5)):
            y = Square.apply(x)
        y.sum().backward()
        return [x.grad]

    both(program, numbers(3))


def test_saved_tensor_hooks_see_what_operations_save() -> None:
    def program(f: Any, x: Any) -> list[Any]:
        packed: list[Any] = []

        def pack(t: Any) -> Any:
            packed.append(t)
            return t.numpy() * 3

        with f.autograd.graph.saved_tensors_hooks(pack, lambda a: f.tensor(a)):
            y = x.sin()
            z = y.exp()
            w = (x * x).sum()
        (y + z + w).sum().backward()
        return [bool(packed), x.grad]

    both(program, numbers(3))


def test_saved_tensor_hooks_that_change_nothing_change_no_gradient() -> None:
    x = tracejit.tensor(numbers(3), requires_grad=True)
    with tracejit.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x.sin() * x.exp()).softmax(0)[0]
    (g,) = tracejit.autograd.grad(y, x, create_graph=True)
    (second,) = tracejit.autograd.grad(g.sum(), x)
    z = (x.sin() * x.exp()).softmax(0)[0]
    (expected,) = tracejit.autograd.grad(z, x, create_graph=True)
    (expected_second,) = tracejit.autograd.grad(expected.sum(), x)
    assert g.tolist() == expected.tolist()
    np.testing.assert_allclose(second.numpy(), expected_second.numpy(), rtol=1e-12)

    @tracejit.compile
    def run(x: Any) -> Any:
        with tracejit.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
            return x.sin().sum()

    for _ in range(3):
        x.grad = None
        run(x).backward()
        np.testing.assert_allclose(x.grad.numpy(), np.cos(2 * x.detach().numpy()))


class Reversed(tracejit.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, strength: Any) -> Any:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g.neg() * ctx.strength, None


def test_numbers_of_numpy_and_sizes_go_through_a_function_as_numbers_of_the_call() -> None:
    def by_schedule(x: Any, share: float) -> Any:
        strength = 2.0 / (1.0 + np.exp(-10.0 * share)) - 1.0
        return tracejit.autograd.grad(Reversed.apply(x * 2, strength).sum(), x)[0]

    def by_size(x: Any, _: float) -> Any:
        return tracejit.autograd.grad(Reversed.apply(x * 2, x.shape[0] // 2).sum(), x)[0]

    for function, recordings in ((by_schedule, 1), (by_size, 3)):
        compiled = tracejit.compile(function)
        for k in range(10):
            x = tracejit.ones(3 if function is by_schedule else 4 + 3 * k, 2, requires_grad=True)
            assert compiled(x, k / 10).equal(function(x, k / 10))
        assert compiled.stats.traces <= recordings, compiled.explain()


def test_a_saved_output_and_a_backward_that_is_differentiable_once_stay_compiled() -> None:
    class Root(tracejit.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.sqrt()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        @tracejit.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            (y,) = ctx.saved_tensors
            return g / (2 * y.detach())

    def step(x: Any) -> Any:
        Root.apply(x).sum().backward()
        return x.grad

    compiled = tracejit.compile(step)
    for k in range(4):
        x = tracejit.tensor([1.0 + k, 4.0], requires_grad=True)
        assert compiled(x).equal(0.5 / x.detach().sqrt())
    assert compiled.stats.compiled_calls == 3, compiled.explain()
