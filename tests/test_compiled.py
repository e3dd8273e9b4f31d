"""The node of a program checks and frees what the nodes in its place on eager's tape would: each test runs the same steps on the function
itself and compares what happened."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tracejit as T

Steps = Callable[[Sequence[T.Tensor], Sequence[T.Tensor]], object]


def leaves() -> list[T.Tensor]:
    return [T.tensor(v, dtype=T.float64, requires_grad=True) for v in ([1.0, 2.0, 3.0], [0.5, 0.25, 2.0])]


def rounded(g: T.Tensor | None) -> list[float] | None:
    return None if g is None else [round(v, 9) for v in g.tolist()]


def happening(function: Callable[..., Any], steps: Sequence[Steps]) -> list[object]:
    """What each step came to, and the gradients of the leaves after it."""
    inputs = leaves()
    outputs = function(*inputs)
    log: list[object] = []
    for step in steps:
        try:
            found = step(outputs, inputs)
            log.append([rounded(g) for g in found] if isinstance(found, tuple) else None)
        except RuntimeError as error:
            log.append("freed" if "freed" in str(error) else "in place" if "inplace" in str(error) else str(error))
        log.append([rounded(x.grad) for x in inputs])
    return log


def assert_like_eager(function: Callable[..., Any], *steps: Steps) -> list[object]:
    call = T.compile(function)
    call(*leaves())
    assert call.stats.programs_compiled == 1, call.explain()
    expected = happening(function, steps)
    assert happening(call, steps) == expected
    assert call.stats.compiled_calls == 1
    return expected


def back(*which: int, **options: Any) -> Steps:
    """A backward pass from the sums of these outputs; inputs: positions."""
    chosen = options.pop("to", None)

    def step(outputs: Sequence[T.Tensor], inputs: Sequence[T.Tensor]) -> None:
        only = None if chosen is None else [inputs[i] for i in chosen]
        T.autograd.backward([outputs[i].sum() for i in which], inputs=only, **options)

    return step


def gradient(which: int, to: int, **options: Any) -> Steps:
    return lambda outputs, inputs: T.autograd.grad(outputs[which].sum(), inputs[to], allow_unused=True, **options)


def change(position: int) -> Steps:
    def step(outputs: Sequence[T.Tensor], inputs: Sequence[T.Tensor]) -> None:
        with T.no_grad():
            inputs[position].mul_(2.0)

    return step


def disjoint(x: T.Tensor, y: T.Tensor) -> tuple[T.Tensor, ...]:
    return (x * x).exp(), y.sin(), y + x


def trunk(x: T.Tensor, y: T.Tensor) -> tuple[T.Tensor, ...]:
    h = (x * y).tanh()
    return h.exp(), h.sin(), h + 1


def test_outputs_with_separate_graphs_go_backward_one_after_the_other() -> None:
    log = assert_like_eager(disjoint, back(0), back(1), back(2), back(2), back(0))
    assert log[-2] == "freed" and "freed" not in log[:-2]
    assert_like_eager(disjoint, back(0, 1), back(1))
    assert_like_eager(disjoint, back(1), back(0, 1))
    assert_like_eager(disjoint, back(0, retain_graph=True), back(0), back(0))


def test_outputs_of_one_trunk_cannot_go_backward_after_each_other() -> None:
    log = assert_like_eager(trunk, back(0), back(1))
    assert log[2] == "freed"
    assert_like_eager(trunk, back(0, retain_graph=True), back(1), back(2))
    assert_like_eager(trunk, back(2), back(2))


def test_an_output_that_saved_nothing_goes_backward_even_after_everything_else_is_freed() -> None:
    assert_like_eager(disjoint, back(0, 1, 2), back(2), back(2), back(0))


def test_a_pass_to_chosen_inputs_frees_what_lies_on_its_way() -> None:
    def both(x: T.Tensor, y: T.Tensor) -> tuple[T.Tensor, ...]:
        return (x.exp() + y.sin(),)

    log = assert_like_eager(both, gradient(0, 0), gradient(0, 1), gradient(0, 0))
    assert log[4] == "freed" and "freed" not in log[:4]
    assert_like_eager(both, back(0, to=[1]), back(0, to=[0]), back(0))


def test_a_change_in_place_matters_to_the_passes_that_meet_what_was_saved_of_it() -> None:
    log = assert_like_eager(disjoint, change(1), back(0), back(2), back(1))
    assert log[-2] == "in place" and "in place" not in log[:-2]
    assert_like_eager(lambda x, y: (x.exp() + (y * y),), change(1), gradient(0, 0, retain_graph=True), gradient(0, 1))


def test_a_value_is_not_computed_again_from_an_input_that_a_pass_does_not_check() -> None:
    """exp saves its result, so eager mode does not mind a change of x or y on the way back from the first output."""

    def function(x: T.Tensor, y: T.Tensor) -> tuple[T.Tensor, ...]:
        return (x + y).exp(), x * x * y * y

    assert_like_eager(function, change(0), back(0))
    assert_like_eager(function, change(0), back(1))


def test_differentiable_passes_free_and_check_the_same() -> None:
    assert_like_eager(disjoint, gradient(0, 0, create_graph=True, retain_graph=False), gradient(1, 1, create_graph=True), back(0))


def test_what_the_program_overwrote_matters_to_the_passes_that_meet_it() -> None:
    def function(x: T.Tensor, y: T.Tensor) -> tuple[T.Tensor, ...]:
        h = x * 2
        out = h.sin()
        h.add_(1)
        return out + y.exp(), y * y

    assert_like_eager(function, gradient(0, 1, retain_graph=True), back(1), gradient(0, 0))


@pytest.mark.parametrize(("function", "steps"), [(trunk, [back(0)]), (disjoint, [back(0), back(1)]), (disjoint, [back(0, 1, 2)])])
def test_memory_goes_when_no_output_can_go_backward_any_more(function: Callable[..., Any], steps: Sequence[Steps]) -> None:
    call = T.compile(function)
    inputs = leaves()
    call(*[x * 1 for x in inputs])
    between = [x * 1 for x in inputs]  # tensors that only the node holds
    outputs = call(*between)
    assert call.stats.compiled_calls == 1
    held = [weakref.ref(x) for x in between]
    between.clear()
    for step in steps:
        assert all(ref() is not None for ref in held)
        step(outputs, inputs)
    gc.collect()
    assert all(ref() is None for ref in held) and outputs is not None


def test_a_detached_result_that_was_given_a_gradient_is_not_an_alias() -> None:
    def function(x: T.Tensor, y: T.Tensor) -> tuple[T.Tensor, ...]:
        d = x.detach()
        d.add_(y)
        return x * 1, d

    call = T.compile(function)
    for _ in range(2):
        (x, y), (u, v) = leaves(), leaves()
        assert [o.requires_grad for o in call(x, y)] == [o.requires_grad for o in function(u, v)] == [True, True]
    assert [reason.code for reason in call.reasons] == ["differentiable_write"]


def test_a_result_computed_in_place_is_not_what_was_saved() -> None:
    """As in eager mode, where sigmoid saves its own result, which is then copied into the tensor."""

    def function(x: T.Tensor, y: T.Tensor) -> tuple[T.Tensor, ...]:
        out = x + y
        out.sigmoid_()
        return (out,)

    def change_result(outputs: Sequence[T.Tensor], inputs: Sequence[T.Tensor]) -> None:
        with T.no_grad():
            outputs[0].mul_(2)

    log = assert_like_eager(function, change_result, back(0))
    assert log[2] is None


def watching(outputs: Sequence[T.Tensor], how: str) -> None:
    hidden, loss, _ = outputs
    if how == "grad":
        T.autograd.grad(loss, hidden, allow_unused=True)
        return
    if how == "hook":
        hidden.register_hook(lambda g: None)
    else:
        hidden.retain_grad()
    loss.backward()


@pytest.mark.parametrize("how", ["hook", "retain_grad", "grad"])
def test_the_gradient_of_a_result_that_reaches_it_inside_the_program_is_not_silently_less(how: str) -> None:
    def function(x: T.Tensor, y: T.Tensor) -> tuple[T.Tensor, ...]:
        hidden = x * y
        return hidden, (hidden * hidden).sum(), y.exp()

    call = T.compile(function)
    call(*leaves())
    with pytest.raises(RuntimeError, match="compute that one outside"):
        watching(call(*leaves()), how)
    outputs = call(*leaves())
    seen: list[list[float]] = []
    outputs[0].register_hook(lambda g: seen.append(g.tolist()))
    (outputs[0].sum() + outputs[2].sum()).backward()  # all that reaches it comes from outside
    assert seen == [[1.0] * 3] and call.stats.compiled_calls == 2


def test_after_everything_is_freed_a_pass_to_an_input_that_nothing_saved_on_its_way_goes_on() -> None:
    def function(x: T.Tensor, y: T.Tensor) -> tuple[T.Tensor, ...]:
        return y.exp(), x + y.sum()

    assert_like_eager(function, back(0, 1), gradient(1, 0), back(0, 1, to=[0]), back(1))
