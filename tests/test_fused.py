"""Functions of one element that are one kernel in eager mode, and gradients of elementwise primitives that are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit.core import dtypes, kernels
from tracejit.core.kernels import kernel
from tracejit.core.op import REGISTRY
from tracejit.ops import fused
from tracejit.ops.composites import pointwise

F = tracejit.nn.functional
FUSED = {name: getattr(pointwise, name) for name in pointwise.__all__}


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_maker", [])
    monkeypatch.setattr(kernels, "_kernels", {})


def operands(function: fused.Fused, dtype: Any, n: int) -> list[Any]:
    """Operands of a function, of n elements with zeros, NaN and infinities among them, and numbers."""
    ((sample, _), *_) = function.op.samples()  # type: ignore[misc]
    random = np.random.default_rng(0)
    given: list[Any] = []
    for x in sample:
        if not isinstance(x, np.ndarray):
            given.append(x)
            continue
        low, high = (0.1, 0.9) if function is pointwise.binary_entropy else (-4.0, 4.0)
        array = random.uniform(low, high, n).astype(dtype)
        array[:5] = [0.0, -0.0, np.nan, np.inf, -np.inf]
        given.append(tracejit.tensor(array, requires_grad=True))
    return given


def results(function: Any, given: list[Any]) -> list[np.ndarray[Any, Any]]:
    """What a function gives, and its gradients."""
    out = function(*given)
    leaves = [x for x in given if isinstance(x, tracejit.Tensor)]
    g = tracejit.from_numpy(np.random.default_rng(1).standard_normal(out.shape)).to(out.dtype)
    found = tracejit.autograd.grad(out, leaves, g, allow_unused=True)
    return [x.detach().numpy() for x in (out, *[tracejit.zeros_like(out) if d is None else d for d in found])]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUSED)
def test_a_kernel_computes_what_the_body_does_step_by_step_and_so_does_its_gradient(name: str, dtype: Any) -> None:
    function = FUSED[name]
    given = operands(function, dtype, function.least + 300)
    assert function(*given).grad_fn.name() != function.body(*given).grad_fn.name(), "it is one step of the tape"
    eps = np.finfo(dtype).eps
    for actual, expected in zip(results(function, given), results(function.body, given), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=16 * eps, atol=16 * eps, equal_nan=True)


def test_a_fused_function_of_other_operands_is_its_body() -> None:
    x = tracejit.tensor([[-1.0, 2.0], [3.0, -4.0]], requires_grad=True)
    assert pointwise.huber(x, x.detach()[0], 1.0).shape == (2, 2)  # broadcast
    assert pointwise.leaky_relu(tracejit.tensor([-1, 2]), 0.5).dtype is tracejit.float32
    assert pointwise.hardtanh(tracejit.tensor([-5, 2]), -1, 1).dtype is tracejit.int64
    assert F.silu(x.half()).dtype is tracejit.float16


def test_results_lie_in_memory_as_numpy_would_have_them() -> None:
    x = tracejit.randn(6, 8)
    for part in (x, x.T, x[:, ::2], x[1:3].T, x[0, 0], x[:0]):
        assert F.silu(part).stride() == (part * 1.0).stride()


def test_fused_functions_are_evaluated_without_kernels(without_kernels: None) -> None:
    x = tracejit.linspace(-3, 3, 7, dtype=tracejit.float64).requires_grad_()
    y = F.softplus(x)
    y.sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), np.log1p(np.exp(x.detach().numpy())))
    np.testing.assert_allclose(x.grad.numpy(), 1 / (1 + np.exp(-x.detach().numpy())))


def test_an_operand_that_changed_in_place_is_noticed_before_the_backward_pass() -> None:
    x = tracejit.ones(3, requires_grad=True)
    z = x * 1.0
    y = F.gelu(z)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_operands_that_the_gradient_does_not_depend_on_may_change_before_the_backward_pass() -> None:
    x, y, z = (tracejit.ones(5000, requires_grad=True) for _ in range(3))
    a, b = x * 1.0, y * 3.0
    total = tracejit.addcmul(a, b, z) + tracejit.lerp(a, y, 0.25) + tracejit.frac(a)
    a.add_(1)
    total.sum().backward()
    assert {*x.grad.tolist()} == {2.75} and {*y.grad.tolist()} == {3.25} and {*z.grad.tolist()} == {3.0}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid", "sqrt", "rsqrt", "atan", "log1p", "mul", "div", "hypot", "maximum"])
def test_the_gradient_of_a_primitive_has_the_same_bits_by_its_rule_and_by_a_kernel(
    name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, function = np.random.default_rng(0), getattr(tracejit, name)
    count = 2 if name in ("mul", "div", "hypot", "maximum") else 1
    arrays = [random.standard_normal(3001).astype(dtype) for _ in range(count)]
    for array in arrays:
        array[random.integers(0, 3001, 5)] = [0.0, -0.0, np.nan, np.inf, -np.inf]
    tensors = [tracejit.tensor(x, requires_grad=True) for x in arrays]
    g = tracejit.tensor(random.standard_normal(3001).astype(dtype))
    found = []
    for patience in (np.inf, -1.0):
        monkeypatch.setattr(kernels, "_PATIENCE", patience)
        monkeypatch.setattr(kernels, "_spent", {})
        monkeypatch.setattr(kernels, "_kernels", {})
        found.append([d.numpy() for d in tracejit.autograd.grad(function(*tensors), tensors, g)])
        used = any(isinstance(form, kernels.Fused) for form, _ in kernels._kernels)
        assert used is (patience < 0)
    for by_rule, by_kernel in zip(*found, strict=True):
        np.testing.assert_array_equal(by_kernel, by_rule)


def test_rules_of_functions_that_are_not_exact_stay_with_numpy() -> None:
    x = tracejit.ones(3000, requires_grad=True)
    tracejit.erf(x).sum().backward()
    forms = [form for key, form in fused._rules.items() if key[0] is REGISTRY["erf"]]
    assert forms and set(forms) == {None}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_sums_are_within_the_bound_of_those_of_programs(dtype: Any) -> None:
    x = (np.random.default_rng(0).standard_normal((40, 1000)) * 100).astype(dtype)
    exact = x.astype(np.longdouble).sum(1)
    error = np.abs(tracejit.sum(tracejit.from_numpy(x), 1).numpy() - exact)
    assert (error <= 8 * np.finfo(dtype).eps * np.abs(x).sum(1)).all(), "docs/equality.md, 4"
    x[3, 4], x[5, 6] = np.nan, np.inf
    total = tracejit.sum(tracejit.from_numpy(x), 1, keepdim=True)
    assert total.shape == (40, 1) and np.isnan(total[3].item()) and np.isinf(total[5].item())
    assert tracejit.prod(tracejit.full((5000,), 1.0)).item() == 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize(("shape", "dim"), [((5, 7), 0), ((5, 7), 1), ((3, 4, 5), 1), ((6,), 0)])
def test_kernels_move_the_elements_that_numpy_moves(shape: Any, dim: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    x = (random.standard_normal(shape) * 9).astype(dtype)
    wanted = [*shape]
    wanted[dim] = 9
    index, source = random.integers(0, shape[dim], wanted), (random.standard_normal(wanted) * 9).astype(dtype)

    def moved() -> list[bytes]:
        a, i, b = tracejit.tensor(x), tracejit.tensor(index), tracejit.tensor(source)
        return [
            y.numpy().tobytes()
            for y in (tracejit.gather(a, dim, i), tracejit.scatter(a, dim, i, b), tracejit.scatter_add(a, dim, i, b))
        ]

    monkeypatch.setattr(kernels, "_PATIENCE", np.inf)
    by_numpy = moved()
    monkeypatch.setattr(kernels, "_PATIENCE", -1.0)
    assert moved() == by_numpy
    outside = tracejit.full(tuple(wanted), shape[dim], dtype=tracejit.int64)
    with pytest.raises(IndexError, match="is out of range for a dimension of size"):
        tracejit.gather(tracejit.tensor(x), dim, outside)


def test_a_target_out_of_range_is_an_error_unless_it_is_the_ignored_one() -> None:
    x = tracejit.randn(4, 3, requires_grad=True)
    target = tracejit.tensor([0, -100, 2, 1])
    loss = F.cross_entropy(x, target)
    expected = -F.log_softmax(x.detach(), 1).numpy()[[0, 2, 3], [0, 2, 1]].mean()
    np.testing.assert_allclose(loss.item(), expected, rtol=1e-6)
    np.testing.assert_allclose(F.nll_loss(F.log_softmax(x, 1), target).item(), expected, rtol=1e-6)
    for wrong in (-1, 3):
        for function in (F.cross_entropy, F.nll_loss):
            with pytest.raises(IndexError, match="out of range"):
                function(x, tracejit.tensor([0, wrong, 2, 1]))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_kernels_of_rows_are_made_for_both_dtypes(dtype: Any) -> None:
    forms = ("entropy of rows", "likelihood of rows", "sum of rows", "prod of rows", "standardised rows, weight, bias")
    assert all(kernel(form, dtype) is not None for form in (*forms, "gradient of standardised rows, weight"))
