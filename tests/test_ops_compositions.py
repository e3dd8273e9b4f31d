"""Public functions that are compositions: against NumPy or plain loops, so that they are tested where PyTorch is missing."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tracejit as t
import tracejit.nn.functional as F
from tracejit.autograd import gradcheck, gradgradcheck

random = np.random.default_rng(0)


def wrapped(array: Any) -> t.Tensor:
    return t.tensor(array, dtype=t.float64, requires_grad=True)


def equal(actual: t.Tensor, wanted: Any) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("bij,bjk->bik", [(2, 2, 3), (2, 3, 2)]),
        ("ii->i", [(3, 3)]), ("ii", [(3, 3)]),
        ("ij->ji", [(2, 3)]), ("i,j->ij", [(2,), (3,)]), ("ij,ij->", [(2, 3), (2, 3)]), ("...ij,...jk->...ik", [(2, 1, 2, 3), (4, 3, 2)]),
        ("i,i->", [(3,), (3,)]), ("ij,j,i->", [(2, 3), (3,), (2,)]), ("bhqd,bhkd->bhqk", [(2, 2, 3, 2), (2, 2, 4, 2)]),
        ("ijk,k->ij", [(2, 3, 4), (4,)]),
        ("ab,cd->", [(2, 2), (3, 2)]), ("a...->...", [(2, 3)]),
    ],
)  # fmt: skip
def test_einsum_agrees_with_numpy_and_with_differences(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [random.standard_normal(s) for s in shapes]
    tensors = [wrapped(a) for a in arrays]
    equal(t.einsum(equation, *tensors), np.einsum(equation, *arrays))
    assert gradcheck(lambda *xs: t.einsum(equation, *xs), tensors)


def test_einsum_takes_lists_of_subscripts() -> None:
    a, b = random.standard_normal((2, 3)), random.standard_normal((3, 4))
    equal(t.einsum(wrapped(a), [0, 1], wrapped(b), [1, 2], [2, 0]), (a @ b).T)


def convolved(x: Any, w: Any, stride: int, padding: int, dilation: int, groups: int) -> Any:
    """conv2d by loops."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    outputs, inner, kh, kw = w.shape
    rows = (x.shape[2] - dilation * (kh - 1) - 1) // stride + 1
    columns = (x.shape[3] - dilation * (kw - 1) - 1) // stride + 1
    out = np.zeros((x.shape[0], outputs, rows, columns))
    for o, i, j in itertools.product(range(outputs), range(rows), range(columns)):
        g = o // (outputs // groups)
        window = x[:, g * inner : (g + 1) * inner, i * stride :, j * stride :][
            :, :, : dilation * (kh - 1) + 1 : dilation, : dilation * (kw - 1) + 1 : dilation
        ]
        out[:, o, i, j] = (window * w[o]).sum((1, 2, 3))
    return out


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 2), (3, 1, 1, 1)])
def test_a_convolution_is_the_sum_over_its_windows(stride: int, padding: int, dilation: int, groups: int) -> None:
    x, w = random.standard_normal((2, 4, 6, 5)), random.standard_normal((4, 4 // groups, 3, 2))
    out = t.conv2d(wrapped(x), wrapped(w), None, stride, padding, dilation, groups)
    equal(out, convolved(x, w, stride, padding, dilation, groups))


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 2)])
def test_the_transposed_convolution_is_the_adjoint(stride: int, padding: int, dilation: int, groups: int) -> None:
    x, w = wrapped(random.standard_normal((2, 4, 7, 7))), wrapped(random.standard_normal((4, 4 // groups, 3, 3)))
    y = t.conv2d(x, w, None, stride, padding, dilation, groups)
    g = t.tensor(random.standard_normal(tuple(y.shape)), dtype=t.float64)
    (gx,) = t.autograd.grad(y, x, g)
    extra = 7 - ((y.shape[2] - 1) * stride - 2 * padding + dilation * 2 + 1)
    equal(t.conv_transpose2d(g, w, None, stride, padding, extra, groups, dilation), gx.numpy())


def test_convolutions_are_differentiable_twice() -> None:
    x, w, b = (
        wrapped(random.standard_normal((1, 2, 4))),
        wrapped(random.standard_normal((2, 2, 2))),
        wrapped(random.standard_normal(2)),
    )
    for function in (lambda *a: t.conv1d(*a, stride=2, padding=1), lambda *a: t.conv_transpose1d(*a, stride=2, padding=1)):
        assert gradcheck(function, (x, w, b))
        assert gradgradcheck(function, (x, w, b))


def test_same_padding_keeps_the_size() -> None:
    assert t.conv2d(t.zeros(1, 1, 5, 6), t.zeros(1, 1, 3, 4), padding="same").shape == (1, 1, 5, 6)


def test_pooling_takes_maxima_and_means_of_windows() -> None:
    x = t.arange(16, dtype=t.float64).reshape(1, 1, 4, 4)
    assert F.max_pool2d(x, 2).tolist() == [[[[5, 7], [13, 15]]]]
    assert F.avg_pool2d(x, 2).tolist() == [[[[2.5, 4.5], [10.5, 12.5]]]]
    assert F.max_pool2d(x, 3, stride=2, padding=1).tolist() == [[[[5, 7], [13, 15]]]]
    assert F.max_pool2d(x, 2, return_indices=True)[1].tolist() == [[[[5, 7], [13, 15]]]]
    assert F.avg_pool2d(x, 2, stride=1, padding=1, count_include_pad=False)[0, 0, 0].tolist() == [0, 0.5, 1.5, 2.5, 3]
    assert F.adaptive_avg_pool2d(x, (1, 2)).tolist() == [[[[6.5, 8.5]]]]
    assert F.adaptive_avg_pool1d(t.arange(5, dtype=t.float64).reshape(1, 1, 5), 2).tolist() == [[[1, 3]]]
    assert F.max_pool1d(t.arange(5, dtype=t.float64).reshape(1, 1, 5), 2, ceil_mode=True).tolist() == [[[1, 3, 4]]]


def test_the_gradient_of_a_maximum_goes_to_the_first_of_equals() -> None:
    x = t.ones(1, 1, 4, requires_grad=True)
    F.max_pool1d(x, 2).sum().backward()
    assert x.grad.tolist() == [[[1, 0, 1, 0]]]
    y = t.ones(3, requires_grad=True)
    y.max(0).values.backward()
    assert y.grad.tolist() == [1, 0, 0]
    z = t.ones(4, requires_grad=True)
    z.max().backward()
    assert z.grad.tolist() == [0.25] * 4


def test_products_of_zeros_have_the_right_gradients() -> None:
    for values in ([0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [2.0, 3.0, 4.0]):
        x = wrapped(values)
        x.prod().backward()
        assert x.grad.tolist() == [float(np.prod(np.delete(values, i))) for i in range(3)]
        assert gradgradcheck(lambda v: v.prod(), (wrapped(values),))
        assert gradcheck(lambda v: v.cumprod(0), (wrapped(values),))


@pytest.mark.parametrize("relu", [lambda x: x.relu(), lambda x: F.relu(x), lambda x: x.clone().relu_()])
def test_relu_of_bools_and_integers_keeps_their_dtype(relu: Any) -> None:
    compiled = t.compile(relu)
    for x, expected in (
        (t.tensor([True, False]), [True, False]),
        (t.tensor([-1, 2]), [0, 2]),
        (t.tensor([3], dtype=t.uint8), [3]),
    ):
        for call in (relu, compiled, compiled):
            found = call(x)
            assert (found.dtype, found.tolist()) == (x.dtype, expected)
    assert compiled.stats.compiled_calls == 3


def test_clamp_passes_gradients_at_its_limits() -> None:
    x = wrapped([-2.0, -1.0, 0.0, 1.0, 2.0])
    x.clamp(-1.0, 1.0).sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 1, 0]


def test_norms_have_zero_gradients_at_zero() -> None:
    for p in (0, 0.5, 1, 1.5, 2, 3, float("inf")):
        x = t.zeros(3, dtype=t.float64, requires_grad=True)
        value = x.norm(p)
        value.backward()
        assert value.item() == 0 and not x.grad.isnan().any()


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf")])
def test_matrix_norms_agree_with_numpy(order: Any) -> None:
    a = random.standard_normal((3, 4))
    equal(t.linalg.norm(wrapped(a), order), np.linalg.norm(a, order))
    assert gradcheck(lambda x: t.linalg.matrix_norm(x, order), (wrapped(a),))


def test_solutions_satisfy_their_equations() -> None:
    a, b = random.standard_normal((2, 3, 3)) + 3 * np.eye(3), random.standard_normal((2, 3, 2))
    equal(wrapped(a) @ t.linalg.solve(wrapped(a), wrapped(b)), b)
    equal(t.linalg.solve(wrapped(a), wrapped(b).mT, left=False) @ wrapped(a), b.swapaxes(-1, -2))
    upper = t.linalg.solve_triangular(wrapped(a), wrapped(b), upper=True)
    equal(wrapped(np.triu(a)) @ upper, b)
    q, r = t.linalg.qr(wrapped(a))
    equal(q @ r, a)
    u, s, vh = t.linalg.svd(wrapped(a))
    equal((u * s.unsqueeze(-2)) @ vh, a)


def test_the_gradient_of_a_singular_determinant_is_the_cofactor() -> None:
    x = wrapped([[1.0, 2.0], [2.0, 4.0]])
    t.linalg.det(x).backward()
    equal(x.grad, [[4.0, -2.0], [-2.0, 1.0]])


def test_sorting_is_stable_and_puts_nan_last() -> None:
    x = t.tensor([2.0, float("nan"), 1.0, 2.0])
    assert x.argsort().tolist() == [2, 0, 3, 1]
    assert x.argsort(descending=True).tolist() == [1, 0, 3, 2]
    assert t.tensor([3.0, 1.0, 2.0, 4.0]).median().item() == 2.0
    assert np.isnan(x.median().item())
    values, indices = t.tensor([[1, 5, 3]]).topk(2)
    assert values.tolist() == [[5, 3]] and indices.tolist() == [[1, 2]]


def test_in_place_forms_write_into_the_tensor() -> None:
    x = t.arange(4, dtype=t.float64)
    view = x[1:3]
    assert x.exp_() is x and view.tolist() == [np.exp(1.0), np.exp(2.0)]
    x.index_put_((t.tensor([0, 0]),), t.tensor([5.0, 7.0], dtype=t.float64), accumulate=True)
    assert x[0].item() == 13.0
    m = t.ones(2, 2)
    m.tril_()
    m.clamp_(max=0.5)
    assert m.tolist() == [[0.5, 0.0], [0.5, 0.5]]
    n = t.tensor([7, -7])
    n //= 2
    assert n.tolist() == [3, -4]


def test_division_rounds_as_asked() -> None:
    a, b = t.tensor([7, -7, 7, -7]), t.tensor([2, 2, -2, -2])
    assert t.div(a, b, rounding_mode="floor").tolist() == [3, -4, -4, 3]
    assert t.div(a, b, rounding_mode="trunc").tolist() == [3, -3, -3, 3]
    assert (a % b).tolist() == [1, 1, -1, -1]
    assert t.fmod(a, b).tolist() == [1, -1, 1, -1]
    assert t.tensor([0.5, 1.5, 2.5, -0.5]).round().tolist() == [0, 2, 2, 0]


def test_windows_see_later_changes_of_their_tensor() -> None:
    x = t.arange(5)
    w = x.unfold(0, 3, 1)
    x[2] = 9
    assert w.tolist() == [[0, 1, 9], [1, 9, 3], [9, 3, 4]]


def test_linspace_reaches_both_ends_exactly() -> None:
    for steps in (2, 3, 7, 50):
        values = t.linspace(0.1, 0.7, steps, dtype=t.float64).tolist()
        assert values[0] == 0.1 and values[-1] == 0.7


@pytest.mark.parametrize("indexing", ["ij", "xy"])
@pytest.mark.parametrize("sizes", [(3, 2), (2, 3, 4), (3,)])
def test_grids_have_the_shapes_and_values_of_numpys(sizes: tuple[int, ...], indexing: Any) -> None:
    vectors = [np.arange(float(n)) + 10 * i for i, n in enumerate(sizes)]
    for actual, wanted in zip(
        t.meshgrid(*map(wrapped, vectors), indexing=indexing), np.meshgrid(*vectors, indexing=indexing), strict=True
    ):
        equal(actual, wanted)


def test_a_range_of_integers_is_computed_with_integers() -> None:
    assert t.arange(0, 2.9, dtype=t.int64).tolist() == [0, 1]
    assert t.arange(t.tensor(1), t.tensor(4)).tolist() == [1, 2, 3]
    assert t.arange(0.5, 3.0).tolist() == [0.5, 1.5, 2.5]
    assert t.linspace(4.9, 0.9, 3, dtype=t.int64).tolist() == [4, 2, 0]


def test_a_slice_that_is_filled_twice_gives_the_value_its_gradient_once() -> None:
    x, value = wrapped(random.standard_normal((2, 3))), t.tensor(2.0, dtype=t.float64, requires_grad=True)
    out = x.index_fill(1, t.tensor([2, 0, -1]), value)
    equal(out[:, [0, 2]], np.full((2, 2), 2.0))
    (out * wrapped([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).sum().backward()
    equal(value.grad, 14.0)
    equal(x.grad, [[0.0, 2.0, 0.0], [0.0, 5.0, 0.0]])
    assert t.arange(3).index_fill(0, t.tensor([1]), 7.9).tolist() == [0, 7, 2]


def test_what_replaces_everything_hands_zeros_on() -> None:
    x = t.tensor(1.0, dtype=t.float64, requires_grad=True)
    for out in (
        x.index_fill(0, t.tensor(0), 2.0),
        x.index_copy(0, t.tensor(0), t.tensor(2.0, dtype=t.float64)),
        t.linalg.matrix_power(x * t.eye(2, dtype=t.float64), 0).sum(),
    ):
        assert out.item() == 2.0
        equal(t.autograd.grad(out, x)[0], 0.0)


@pytest.mark.parametrize("outputs", ["q", "r", "qr"])
def test_a_wide_matrix_has_a_derivative_of_its_qr_decomposition(outputs: str) -> None:
    def function(x: Any) -> Any:
        q, r = t.linalg.qr(x)
        return (q if "q" in outputs else 0.0 * q).sum() + ((r * r).sin().sum() if "r" in outputs else 0.0)

    x = wrapped(random.standard_normal((2, 4)) + 3 * np.eye(2, 4))
    assert gradcheck(function, (x,))
    assert gradgradcheck(function, (x,))


def test_bools_are_close_to_each_other_within_a_tolerance() -> None:
    a, b = t.tensor([True, False, True]), t.tensor([True, True, False])
    assert t.isclose(a, b).tolist() == [True, False, False]
    assert t.isclose(a, b, atol=2.0).tolist() == [True, True, True]
