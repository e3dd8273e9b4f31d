"""func: transformations of functions beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from against_torch import numbers

import tracejit


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [x for v in value.values() for x in leaves(v)]
    return [x for v in value for x in leaves(v)] if isinstance(value, tuple | list) else [value]


def both(program: Any, *arrays: Any, requires_grad: bool = False) -> None:
    """program(framework, *tensors) agrees: values, and no gradients where there are none."""
    torch = pytest.importorskip("torch")
    ours = leaves(program(tracejit, *[tracejit.tensor(a, requires_grad=requires_grad) for a in arrays]))
    theirs = leaves(program(torch, *[torch.tensor(a, requires_grad=requires_grad) for a in arrays]))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if not hasattr(b, "detach"):
            assert a == b
            continue
        assert tuple(a.shape) == tuple(b.shape)
        assert b.requires_grad or not a.requires_grad  # PyTorch tracks derivatives that are constants as well
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-12)


def mixed(x: Any, y: Any) -> Any:
    return (x**3).sum() * y["a"].sum() + (y["b"].exp() * x.sum()).sum()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_gradients_agree_with_torch(requires_grad: bool) -> None:
    x, y, z = numbers(3), numbers(2, seed=1), numbers(2, 2, seed=2)
    programs = [
        lambda f, x, y, z: f.func.grad(lambda a: (a**3).sum())(x),
        lambda f, x, y, z: f.func.grad(mixed)(x, {"a": y, "b": z}),
        lambda f, x, y, z: f.func.grad(mixed, argnums=1)(x, {"a": y, "b": z}),
        lambda f, x, y, z: f.func.grad(mixed, argnums=(0, 1))(x, {"a": y, "b": z}),
        lambda f, x, y, z: f.func.grad_and_value(mixed)(x, {"a": y, "b": z}),
        lambda f, x, y, z: f.func.grad(lambda a: ((a**2).sum(), a * 2), has_aux=True)(x),
        lambda f, x, y, z: f.func.grad(lambda a: f.func.grad(lambda b: (b**3).sum())(a).sum())(x),
        lambda f, x, y, z: f.func.grad(lambda a: (a * y.sum()).sum() * a.sum())(x),
        lambda f, x, y, z: f.func.vjp(lambda a, b: (a * 2, b.exp() * a.sum()), x, y)[1]((x, y)),
        lambda f, x, y, z: f.func.vjp(lambda a: a.sin(), x)[0],
        lambda f, x, y, z: f.func.jvp(lambda a, b: (a.sin(), {"k": b * a.sum()}), (x, y), (x, y)),
        lambda f, x, y, z: f.func.jacrev(lambda a: a.sin() * a.sum())(x),
        lambda f, x, y, z: f.func.jacrev(lambda a, b: (a * b.sum(), {"k": b}), argnums=(0, 1))(x, y),
        lambda f, x, y, z: f.func.jacfwd(lambda a: a.cos() * a[0])(x),
        lambda f, x, y, z: f.func.hessian(lambda a: (a**3).sum() * a[0])(x),
        lambda f, x, y, z: f.func.jacrev(f.func.grad(lambda a: (a**4).sum()))(x),
    ]
    for program in programs:
        both(program, x, y, z, requires_grad=requires_grad)


def test_vmap_agrees_with_torch() -> None:
    x, y, w = numbers(4, 3), numbers(4, seed=1), numbers(3, 2, seed=2)
    programs = [
        lambda f, x, y, w: f.func.vmap(lambda a: a * a.sum())(x),
        lambda f, x, y, w: f.func.vmap(lambda a, b: a * b)(x, y),
        lambda f, x, y, w: f.func.vmap(lambda a, b: a @ b, in_dims=(0, None))(x, w),
        lambda f, x, y, w: f.func.vmap(lambda a: (a, a.sum()), in_dims=1, out_dims=(1, 0))(x),
        lambda f, x, y, w: f.func.vmap(lambda d: d["a"] + d["b"], in_dims=({"a": 0, "b": None},))({"a": x, "b": w[:, 0]}),
        lambda f, x, y, w: f.func.vmap(f.func.grad(lambda a: (a**3).sum()))(x),
        lambda f, x, y, w: f.func.vmap(f.func.jacrev(lambda a: a.sin()))(x),
        lambda f, x, y, w: f.func.vmap(f.func.vmap(lambda a: a * 2))(x),
        lambda f, x, y, w: f.func.vmap(lambda a, weight: a @ weight)(x, weight=w),
    ]
    for program in programs:
        both(program, x, y, w)


def test_gradients_of_each_sample_are_those_of_single_passes() -> None:
    def program(f: Any, x: Any, w: Any, b: Any) -> Any:
        net = f.nn.Linear(3, 2).double()
        parameters = {"weight": w, "bias": b}

        def loss(parameters: Any, sample: Any) -> Any:
            return (f.func.functional_call(net, parameters, (sample.unsqueeze(0),)) ** 2).sum()

        return f.func.vmap(f.func.grad(loss), in_dims=(None, 0))(parameters, x)

    both(program, numbers(4, 3), numbers(2, 3, seed=1), numbers(2, seed=2))


def test_functional_call_leaves_the_module_as_it_was() -> None:
    net = tracejit.nn.Sequential(tracejit.nn.Linear(3, 3), tracejit.nn.BatchNorm1d(3))
    net.append(net[0])  # tied
    before = dict(net.named_parameters())
    x = tracejit.tensor(numbers(4, 3, dtype="float32"))
    replaced = {"0.weight": tracejit.zeros(3, 3), "0.bias": tracejit.ones(3)}
    assert tracejit.func.functional_call(net, replaced, x).tolist() == [[1.0] * 3] * 4
    assert all(p is before[key] for key, p in net.named_parameters())
    gradient = tracejit.func.grad(lambda p: (tracejit.func.functional_call(net, p, x) ** 2).sum())({"0.weight": net[0].weight})
    assert gradient["0.weight"].shape == (3, 3)
    with pytest.raises(ValueError, match="multiple dictionaries"):
        tracejit.func.functional_call(net, (replaced, replaced), x)
    with pytest.raises(RuntimeError, match="missing key"):
        tracejit.func.functional_call(net, replaced, x, strict=True)
    with pytest.raises(ZeroDivisionError):
        tracejit.func.functional_call(net, replaced, 1 // 0)


def test_ensembles_are_stacked_and_mapped_over() -> None:
    models = [tracejit.nn.Linear(3, 2) for _ in range(3)]
    parameters, buffers = tracejit.func.stack_module_state(models)
    x = tracejit.tensor(numbers(4, 3, dtype="float32"))
    out = tracejit.func.vmap(lambda p, b: tracejit.func.functional_call(models[0], (p, b), (x,)))(parameters, buffers)
    for i, model in enumerate(models):
        np.testing.assert_allclose(out[i].detach().numpy(), model(x).detach().numpy(), rtol=1e-6)


def test_wrong_arguments_are_named() -> None:
    x = tracejit.tensor(numbers(3))
    with pytest.raises(RuntimeError, match="return a scalar tensor"):
        tracejit.func.grad(lambda a: a * 2)(x)
    with pytest.raises(RuntimeError, match="only 1 positional inputs"):
        tracejit.func.grad(lambda a: a.sum(), argnums=1)(x)
    with pytest.raises(ValueError, match="same size in the mapped dimension"):
        tracejit.func.vmap(lambda a, b: a + b)(x, x[:2])
    with pytest.raises(ValueError, match="must only return Tensors"):
        tracejit.func.vmap(lambda a: 1)(x)


def test_compiled_functions_with_transformations_are_the_eager_ones() -> None:
    net = tracejit.nn.Linear(3, 1).double()
    functions = [
        lambda x: tracejit.func.grad(lambda a: (a**3).sum())(x),
        lambda x: tracejit.func.vmap(lambda a: a * a.sum())(x.reshape(1, 3)),
        lambda x: tracejit.func.jacrev(lambda a: a.sin())(x),
        lambda x: tracejit.func.functional_call(net, {"weight": x.reshape(1, 3)}, x.reshape(1, 3)),
    ]
    for function in functions:
        compiled = tracejit.compile(function)
        for wanted in (False, True):
            for seed in range(3):
                found = []
                for run in (function, compiled):
                    x = tracejit.tensor(numbers(3, seed=seed), requires_grad=wanted)
                    out = run(x)
                    found.append([out.detach().numpy(), out.requires_grad])
                    if out.requires_grad:
                        net.zero_grad()
                        (out**2).sum().backward()
                        found[-1] += [x.grad.numpy() if wanted else None, net.bias.grad is None]
                for ours, expected in zip(*found, strict=True):
                    if isinstance(expected, np.ndarray):
                        np.testing.assert_allclose(ours, expected, rtol=1e-10)
                    else:
                        assert ours == expected
        assert compiled.stats.compiled_calls >= 2, compiled.explain()
