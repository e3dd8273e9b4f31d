"""autograd.functional beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import numbers

import tracejit


def leaves(value: Any) -> list[Any]:
    return [x for v in value for x in leaves(v)] if isinstance(value, tuple) else [value]


def both(program: Any, *arrays: Any, requires_grad: bool = False) -> None:
    torch = pytest.importorskip("torch")
    ours = leaves(program(tracejit, *[tracejit.tensor(a, requires_grad=requires_grad) for a in arrays]))
    theirs = leaves(program(torch, *[torch.tensor(a, requires_grad=requires_grad) for a in arrays]))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        assert a.requires_grad == b.requires_grad
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-12)


def mixed(x: Any, y: Any) -> Any:
    return (x**3).sum() * y[0] + (y.exp() * x.sum()).sum()


@pytest.mark.parametrize("create_graph", [False, True])
def test_derivatives_agree_with_torch(create_graph: bool) -> None:
    x, y, v = numbers(2, 3), numbers(2, seed=1), numbers(2, 3, seed=2)
    options = {"create_graph": create_graph}
    for grad in (False, True):
        both(lambda f, x: f.autograd.functional.jacobian(lambda a: a.sin() * a.sum(), x, **options), x, requires_grad=grad)
        both(lambda f, x, y: f.autograd.functional.jacobian(lambda a, b: (a * 2, b * a.sum(), a.sum()), (x, y), **options), x, y,
             requires_grad=grad)  # fmt: skip
        both(lambda f, x: f.autograd.functional.hessian(lambda a: (a**3).sum(), x, **options), x, requires_grad=grad)
        both(lambda f, x, y: f.autograd.functional.hessian(mixed, (x, y), **options), x, y, requires_grad=grad)
        both(lambda f, x, v: f.autograd.functional.vjp(lambda a: a.exp(), x, v, **options), x, v, requires_grad=grad)
        both(lambda f, x, v: f.autograd.functional.jvp(lambda a: (a.exp(), a.sum(1)), x, v, **options), x, v, requires_grad=grad)
        both(lambda f, x, y, v: f.autograd.functional.hvp(mixed, (x, y), (v, y), **options), x, y, v, requires_grad=grad)
        both(lambda f, x, y, v: f.autograd.functional.vhp(mixed, (x, y), (v, y), **options), x, y, v, requires_grad=grad)


def test_outputs_that_depend_on_nothing_have_zeros_or_are_refused() -> None:
    def constant(x: Any) -> Any:
        return x.detach() * 2

    both(lambda f, x: f.autograd.functional.jacobian(constant, x), numbers(3))
    both(lambda f, x, y: f.autograd.functional.jacobian(lambda a, b: a * 2, (x, y)), numbers(3), numbers(2))
    with pytest.raises(RuntimeError, match="independent of input 1"):
        x = tracejit.tensor(numbers(3))
        tracejit.autograd.functional.jacobian(lambda a, b: a * 2, (x, x.clone()), strict=True)


def test_wrong_arguments_are_named() -> None:
    functional, x = tracejit.autograd.functional, tracejit.tensor(numbers(3))
    with pytest.raises(RuntimeError, match="can only be None"):
        functional.vjp(lambda a: a * 2, x)
    with pytest.raises(RuntimeError, match="single element"):
        functional.hessian(lambda a: a * 2, x)
    with pytest.raises(TypeError, match="must be either a Tensor or a tuple"):
        functional.jacobian(lambda a: a, 3.0)
    with pytest.raises(RuntimeError, match="invalid sizes"):
        functional.vjp(lambda a: a * 2, x, x[:2])


def test_compiled_functions_that_differentiate_are_the_eager_ones() -> None:
    def run(x: Any) -> Any:
        return tracejit.autograd.functional.jacobian(lambda a: a.sin() * a.sum(), x).sum()

    compiled = tracejit.compile(run)
    for seed in range(3):
        x = tracejit.tensor(numbers(3, seed=seed))
        np.testing.assert_allclose(compiled(x).numpy(), run(x).numpy(), rtol=1e-10)
