"""Public functions that are compositions: values and gradients are PyTorch's, and compiled calls give what eager calls give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit
from tests.against_torch import numbers, torch

Case = tuple[Callable[..., Any], tuple[Any, ...]]
POSITIONS = [[0, 2, 1, 0], [2, 2, 0, 1], [1, 0, 2, 2]]
EQUALS = np.array([[1.0, 2.0, 2.0, 0.0], [0.0, 0.0, -1.0, 2.0], [3.0, 3.0, 1.0, 3.0]])
A, B = numbers(3, 4), numbers(3, 4, seed=1)
CASES: dict[str, Case] = {
    "cummax": (lambda t, a: t.cummax(a, 1).values, (EQUALS,)),
    "cummin": (lambda t, a: a.cummin(0).values, (EQUALS,)),
    "positions of cummax": (lambda t, a: t.cummax(a, -1).indices, (EQUALS,)),
    "positions of cummin with NaN": (
        lambda t, a: t.cummin(a, 1).indices,
        (np.array([[1.0, np.nan, 0.0, np.nan], [2.0, 1.0, 1.0, 3.0]]),),
    ),
    "logcumsumexp": (lambda t, a: t.logcumsumexp(a, 1), (A * 300,)),
    "logcumsumexp of minus infinity": (lambda t, a: t.logcumsumexp(a.detach(), 0), (np.array([-np.inf, -np.inf, 1.5, -np.inf]),)),
    "quantile": (lambda t, a: t.quantile(a, 0.3, dim=1), (A,)),
    "quantile of everything": (lambda t, a: a.quantile(0.75), (A,)),
    "several quantiles": (
        lambda t, a: t.quantile(a, t.tensor([0.1, 0.5, 1.0], dtype=t.float64), dim=0, keepdim=True, interpolation="midpoint"),
        (A,),
    ),
    "nanquantile": (lambda t, a: t.nanquantile(a, 0.5, dim=1), (np.where(A > 1, np.nan, A),)),
    "mode": (lambda t, a: t.mode(a, 1).values, (EQUALS,)),
    "mode's positions": (lambda t, a: t.mode(a, 1, keepdim=True).indices, (EQUALS,)),
    **{
        f"scatter_reduce {way}{'' if own else ' of the source alone'}": (
            lambda t, a, b, way=way, own=own: t.scatter_reduce(a, 0, t.tensor(POSITIONS), b, way, include_self=own),
            (A, B),
        )
        for way in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    },
    "scatter_reduce among equals": (lambda t, a, b: a.scatter_reduce(1, t.tensor(POSITIONS), b, "amax"), (EQUALS, EQUALS[::-1].copy())),
    "scatter_reduce of zeros": (lambda t, a, b: a.scatter_reduce(1, t.tensor(POSITIONS), b, "prod"), (EQUALS, EQUALS[::-1].copy())),
    "index_reduce": (lambda t, a, b: t.index_reduce(a, 0, t.tensor([1, 1, 0]), b, "mean"), (A, B)),
    "put": (lambda t, a: t.put(a, t.tensor([3, 7, -1]), a[:, 0] * 2), (A,)),
    "put that adds": (lambda t, a: a.put(t.tensor([3, 7, 3]), a[0, :3] * 2, accumulate=True), (A,)),
    "float_power": (lambda t, a: t.float_power(a.abs(), 1.5), (A.astype(np.float32),)),
    "logaddexp2": (lambda t, a, b: t.logaddexp2(a, b), (A, B)),
    "ldexp": (lambda t, a: t.ldexp(a, t.tensor([1, 2, 3, 0])), (A,)),
    "mantissas": (lambda t, a: t.frexp(a).mantissa, (A * 100,)),
    "exponents": (lambda t, a: t.frexp(a).exponent, (A * 1e-300,)),
    "isin": (lambda t, a: t.isin(a, t.tensor([2.0, 0.0], dtype=t.float64)), (EQUALS,)),
    "isin, inverted": (lambda t, a: t.isin(a, 3, invert=True), (EQUALS,)),
    "gcd": (lambda t, a: t.gcd(a.long(), t.tensor([4, 6, 9, -3])), (EQUALS * 6,)),
    "lcm": (lambda t, a: a.long().lcm(t.tensor(4)), (EQUALS * 6,)),
    "nextafter": (lambda t, a, b: t.nextafter(a.detach(), b.detach()), (A, B)),
    "pdist": (lambda t, a: t.nn.functional.pdist(a, 3.0), (numbers(4, 3),)),
    "hsplit": (lambda t, a: t.hsplit(a, 2)[1], (A,)),
    "vsplit": (lambda t, a: a.vsplit([1, 2])[2], (A,)),
    "dsplit": (lambda t, a: t.dsplit(a, 2)[0], (numbers(2, 3, 4),)),
    "split_with_sizes": (lambda t, a: a.split_with_sizes([1, 3], 1)[1], (A,)),
    "cholesky_solve": (
        lambda t, a, b: t.cholesky_solve(b, t.linalg.cholesky(a @ a.mT + 2 * t.eye(3, dtype=t.float64))), (numbers(2, 3, 4), B),
    ),
    "cholesky_solve by the upper factor": (
        lambda t, a, b: b.cholesky_solve((a[:, :3] @ a[:, :3].T + 2 * t.eye(3, dtype=t.float64)).triu(), upper=True), (A, B),
    ),
    "cholesky_inverse": (lambda t, a: t.cholesky_inverse((a[:, :3] + 3 * t.eye(3, dtype=t.float64)).tril()), (A,)),
    "cholesky_inverse of a batch": (
        lambda t, a: (a + 3 * t.eye(3, dtype=t.float64)).triu().cholesky_inverse(upper=True), (numbers(2, 3, 3),),
    ),
    "slogdet beyond what floats hold": (lambda t, a: t.linalg.slogdet((a[:, :3] + 3 * t.eye(3, dtype=t.float64)) * 1e200)[1], (A,)),
    "logdet of a batch, one negative": (lambda t, a: t.logdet(a * t.eye(3, dtype=t.float64)), (numbers(2, 3, 1) * [[[1]], [[2]]],)),
    "renorm": (lambda t, a: t.renorm(a, 2, 1, 1.2), (A,)),
    "renorm of slices, some zero": (lambda t, a: t.renorm(a * t.tensor([[[1.0]], [[0.0]]]), 1, -3, 2.0), (numbers(2, 3, 2),)),
    "renorm by the largest": (lambda t, a: (a * 1).renorm_(float("inf"), 0, 0.5), (A,)),
    "tril_indices": (lambda t, a: t.tril_indices(3, 4, 1, dtype=t.int32), (A,)),
    "triu_indices": (lambda t, a: a[tuple(t.triu_indices(*a.shape, offset=-1))], (A,)),
    "combinations": (lambda t, a: t.combinations(a[0]), (A,)),
    "combinations with replacement": (lambda t, a: t.combinations(a[0], with_replacement=True), (A,)),
    "logspace": (lambda t, a: t.logspace(-1, 2.5, 7, base=2, dtype=t.float64) * a[0, 0], (A,)),
    "logspace of integers": (lambda t, a: t.logspace(0, 3, 4, dtype=t.int64), (A,)),
    "logspace of one and of nothing": (lambda t, a: t.cat([t.logspace(1, 2, 1), t.logspace(1, 2, 0)]), (A,)),
    "sum_to_size": (lambda t, a: a.reshape(2, 3, 2).sum_to_size(3, 1) + a.reshape(2, 3, 2).sum_to_size((1, 3, 1))[0], (A,)),
    "addr": (lambda t, a, b: t.addr(a, b[:, 0], b[0], beta=0.5, alpha=2), (A, B)),
    "addbmm": (lambda t, a, b: t.addbmm(a, b.reshape(3, 2, 2)[:, :1], b.reshape(3, 2, 2), alpha=3), (numbers(1, 2), B)),
    "addmm_": (lambda t, a, b: (a * 1).addmm_(b, b.T @ a), (A, B)),
    "angle": (lambda t, a: t.angle(a), (A,)),
    "cov of one row": (lambda t, a: t.cov(a[:1]), (A,)),
    "diff of order 0": (lambda t, a: t.diff(a, 0, 1, a, a), (A,)),
    "unique of no rows": (lambda t, a: t.unique(a[:0].detach(), dim=0), (A,)),
    "searchsorted without rows": (lambda t, a: t.searchsorted(a[:0], a[:0]), (A,)),
    **{
        f"{name}({arguments})": (lambda t, a, name=name, arguments=arguments: getattr(t, name)(*arguments, dtype=t.float64) * a[0, 0], (A,))
        for name in ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window")
        for arguments in ((8,), (7, False), (1,), (0,), (2, True))
    },
    "windows with parameters": (lambda t, a: t.hamming_window(4, True, 0.6, 0.3) * t.kaiser_window(4, False, 5.0) + a.sum(), (A,)),
    "gradient": (lambda t, a: t.stack(t.gradient(a)), (A,)),
    "gradient along one dimension": (lambda t, a: t.gradient(a, spacing=0.5, dim=-1, edge_order=2)[0], (A,)),
    "gradient of two positions": (lambda t, a: t.gradient(a[:2], dim=0)[0], (A,)),
    "gradient with spacings": (lambda t, a: t.stack(t.gradient(a, spacing=[2.0, 0.25], dim=(1, 0), edge_order=2)), (A,)),
    "gradient of integers": (lambda t, a: t.gradient(t.tensor([1, 4, 9, 16]))[0] + a.sum(), (A,)),
    **{
        f"gradient at positions, edge_order {order}": (
            lambda t, a, order=order: t.stack(
                t.gradient(a, spacing=[t.tensor(x, dtype=t.float64) for x in ([0, 1, 3], [0, 0.5, 2, 7])], edge_order=order)
            ), (A,),
        )
        for order in (1, 2)
    },
    "cosine_similarity": (lambda t, a, b: t.cosine_similarity(a, b), (A, B)),
    "pairwise_distance": (lambda t, a, b: t.pairwise_distance(a, b, 3.0, 1e-6, True), (A, B)),
    "dropout without training": (lambda t, a: t.dropout(a, 0.5, False), (A,)),
    "dropout of everything": (lambda t, a: t.dropout_(a * 1, 1.0, train=True), (A,)),
    "alpha_dropout without training": (lambda t, a: t.alpha_dropout(a, 0.5, False) + t.feature_alpha_dropout(a, 0.5, False), (A,)),
    "batch_norm": (lambda t, a, w, b: t.batch_norm(a, w, b, None, None, True, 0.1, 1e-5, True), (A, B[0], B[1])),
    "batch_norm by running averages": (
        lambda t, a, m, v: t.batch_norm(a, None, None, m.detach(), v.detach().abs(), False, 0.1, 1e-5, True), (A, B[0], B[1]),
    ),
    "instance_norm": (lambda t, a, w: t.instance_norm(a, w, None, None, None, True, 0.1, 1e-5, True), (numbers(2, 3, 4), B[:, 0])),
    "layer_norm": (lambda t, a, w, b: t.layer_norm(a, (4,), w, b, 1e-4), (A, B[0], B[1])),
    "group_norm": (lambda t, a, w: t.group_norm(a, 2, w), (A, B[0])),
    "rms_norm": (lambda t, a, w: t.rms_norm(a, (4,), w, 1e-4), (A, B[0])),
    "embedding": (lambda t, a: t.embedding(a, t.tensor(POSITIONS)), (A,)),
    "embedding with padding": (lambda t, a: t.embedding(a, t.tensor(POSITIONS), 2), (A,)),
    "bilinear": (lambda t, a, b, w: t.bilinear(a, b, w), (A, B, numbers(2, 4, 4))),
    **{
        f"{name}, reduction {way}": (loss, (A, B))
        for way in (0, 1, 2)
        for name, loss in {
            "kl_div": lambda t, a, b, way=way: t.kl_div(a, b.exp(), way) + t.kl_div(a, b, reduction=way, log_target=True),
            "binary_cross_entropy_with_logits": lambda t, a, b, way=way: t.binary_cross_entropy_with_logits(
                a, b.sigmoid(), None, b[0].detach(), way
            ),
            "margin_ranking_loss": lambda t, a, b, way=way: (
                t.margin_ranking_loss(a, b, t.sign(b.detach()), 0.1, way) * t.margin_ranking_loss(a, b, b.detach())
            ),
            "hinge_embedding_loss": lambda t, a, b, way=way: t.hinge_embedding_loss(a + b, t.sign(b.detach()), 0.5, way),
            "cosine_embedding_loss": lambda t, a, b, way=way: t.cosine_embedding_loss(a, b, t.tensor([1, -1, 1]), 0.1, way),
            "poisson_nll_loss": lambda t, a, b, way=way: t.poisson_nll_loss(a, b.detach().abs(), True, False, 1e-8, way),
            "triplet_margin_loss": lambda t, a, b, way=way: t.triplet_margin_loss(a, b, a * 0.5, 1.0, 2.0, 1e-6, True, way),
        }.items()
    },
    **{
        f"ctc_loss, reduction {way}": (
            lambda t, a, way=way: t.ctc_loss(a.log_softmax(2), t.tensor([[1, 2], [2, 2]]), [5, 5], [2, 1], 0, way), (numbers(5, 2, 3),),
        )
        for way in (0, 1, 2)
    },
    "activations": (lambda t, a: t.selu(a) + t.celu(a, 0.5) + t.threshold(a, 0.1, 2.0) + t.rrelu(a) + t.hardshrink(a, 0.3), (A,)),
    "activations in place": (
        lambda t, a: t.selu_(a * 1) + t.celu_(a * 1, 0.5) + t.threshold_(a * 1, 0.1, 2.0) + t.rrelu_(a * 1) + t.relu_(a * 1), (A,),
    ),
    "prelu": (lambda t, a, w: t.prelu(a, w) + a.prelu(w[:1]) + a.hardshrink(), (A, B[0])),
    "max_pool1d": (lambda t, a: t.max_pool1d(a, 2, 1), (A,)),
    "max_pool1d_with_indices": (lambda t, a: t.max_pool1d_with_indices(a, [2])[1], (A,)),
    "adaptive_max_pool1d": (lambda t, a: t.adaptive_max_pool1d(a, 2)[0] + t.adaptive_avg_pool1d(a, 2) + t.avg_pool1d(a, 2), (A,)),
    "max_pool2d": (lambda t, a: t.max_pool2d(a, 2, 1, 1), (numbers(2, 3, 4),)),
    "max_pool3d": (lambda t, a: t.max_pool3d(a, 2), (numbers(1, 2, 4, 4),)),
    "pixel_shuffle": (lambda t, a: t.pixel_unshuffle(t.pixel_shuffle(a, 2) * 2, 2), (numbers(4, 2, 2),)),
    "channel_shuffle": (lambda t, a: t.channel_shuffle(a, 2), (numbers(1, 4, 2, 2),)),
    "constant_pad_nd": (lambda t, a: t.constant_pad_nd(a, [1, -1, 0, 2], 0.5), (A,)),
    **{
        f"grid_sampler, mode {mode} and padding {outside}": (
            lambda t, a, theta, mode=mode, outside=outside: t.grid_sampler(
                a, t.affine_grid_generator(theta, (1, 2, 3, 4), False), mode, outside, False
            ),
            (numbers(1, 2, 3, 4), numbers(1, 2, 3)),
        )
        for mode, outside in ((0, 0), (1, 1), (0, 2))
    },
    "lstm_cell": (
        lambda t, x, h, c, w, u, b: t.cat(t.lstm_cell(x, (h, c), w, u, b, b)) + t.cat(t.lstm_cell(x, [h, c], w, u)),
        (A, numbers(3, 2), numbers(3, 2, seed=1), numbers(8, 4), numbers(8, 2), numbers(8)),
    ),
    "gru_cell": (lambda t, x, h, w, u, b: t.gru_cell(x, h, w, u, b, b), (A, numbers(3, 2), numbers(6, 4), numbers(6, 2), numbers(6))),
    "rnn cells": (
        lambda t, x, h, w, u, b: t.rnn_tanh_cell(x, h, w, u, b, b) + t.rnn_relu_cell(x, h, w, u),
        (A, numbers(3, 2), numbers(2, 4), numbers(2, 2), numbers(2)),
    ),
}  # fmt: skip


def values_and_gradients(library: Any, function: Callable[..., Any], arrays: tuple[Any, ...]) -> list[Any]:
    """What the function gives, and the gradients of its elements weighed by their positions."""
    given = [library.tensor(a, requires_grad=True) for a in arrays]
    out = function(library, *given)
    found = [out.detach().numpy().copy()]
    if out.requires_grad:
        weights = library.arange(1, out.numel() + 1, dtype=out.dtype).reshape(out.shape)
        (out * weights).sum().backward()
        found += [np.zeros_like(a) if x.grad is None else x.grad.numpy().copy() for x, a in zip(given, arrays, strict=True)]
    return found


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_pytorch(name: str) -> None:
    function, arrays = CASES[name]
    ours, theirs = values_and_gradients(tracejit, function, arrays), values_and_gradients(torch(), function, arrays)
    assert len(ours) == len(theirs)
    for a, w in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(a, w, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_a_compiled_call_gives_what_an_eager_call_gives(name: str) -> None:
    function, arrays = CASES[name]
    compiled = tracejit.compile(lambda *given: function(tracejit, *given))
    expected = values_and_gradients(tracejit, function, arrays)
    for _ in range(3):
        actual = values_and_gradients(tracejit, lambda _, *given: compiled(*given), arrays)
        assert len(actual) == len(expected)
        for a, w in zip(actual, expected, strict=True):
            assert (a.dtype, a.shape) == (w.dtype, w.shape)
            np.testing.assert_allclose(a, w, rtol=1e-12, atol=1e-12)
    assert compiled.stats.compiled_calls > 0, compiled.explain()


@pytest.mark.parametrize("number", [3, -1])
def test_reductions_and_modes_are_numbers_that_have_a_meaning(number: int) -> None:
    x = tracejit.ones(2, 2)
    with pytest.raises(ValueError, match="expected reduction to be one of 0"):
        tracejit.kl_div(x, x, number)
    with pytest.raises(ValueError, match="expected padding_mode to be one of 0"):
        tracejit.grid_sampler(x.reshape(1, 1, 2, 2), tracejit.zeros(1, 1, 1, 2), 0, number, True)


def test_windows_and_grids_that_there_are_not_are_refused() -> None:
    with pytest.raises(RuntimeError, match="non-negative"):
        tracejit.hann_window(-1)
    with pytest.raises(RuntimeError, match="floating point"):
        tracejit.kaiser_window(3, dtype=tracejit.int64)
    with pytest.raises(RuntimeError, match="edge_order"):
        tracejit.gradient(tracejit.ones(3), edge_order=3)
    with pytest.raises(RuntimeError, match="at least 3"):
        tracejit.gradient(tracejit.ones(2), edge_order=2)
    with pytest.raises(RuntimeError, match="expected spacing"):
        tracejit.gradient(tracejit.ones(3, 3), spacing=[1.0])
    with pytest.raises(RuntimeError, match="expected 3 positions"):
        tracejit.gradient(tracejit.ones(3), spacing=[tracejit.ones(2)])
    assert tracejit.hann_window(4, requires_grad=True).requires_grad


def test_quantiles_outside_of_0_and_1_are_refused() -> None:
    with pytest.raises(RuntimeError, match="range"):
        tracejit.quantile(tracejit.ones(3), 1.5)


def test_a_position_outside_the_tensor_is_refused_by_scatter_reduce() -> None:
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        tracejit.zeros(3).scatter_reduce(0, tracejit.tensor([3]), tracejit.ones(1), "amax")


def test_a_split_into_unequal_pieces_is_refused() -> None:
    with pytest.raises(RuntimeError, match="equal pieces"):
        tracejit.ones(3, 5).hsplit(2)


def test_gradients_of_logcumsumexp_are_finite_where_it_is_not() -> None:
    x = tracejit.tensor([-float("inf"), 0.5, 1.5, -float("inf")], dtype=tracejit.float64, requires_grad=True)
    tracejit.logcumsumexp(x, 0)[1:].sum().backward()
    share = 1 / (1 + np.exp(1.0))
    np.testing.assert_allclose(x.grad.numpy(), [0.0, 1 + 2 * share, 2 * (1 - share), 0.0])


SPECIAL = (
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 "
    "scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0"
)
POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h "
    "hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t "
    "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w zeta"
)


@pytest.mark.parametrize("name", (SPECIAL + " " + POLYNOMIALS).split())
def test_special_functions_have_the_values_of_pytorch_and_are_compiled(name: str) -> None:
    x = numbers(3, 4, low=0.3, high=0.9)
    arguments: tuple[Any, ...] = ()
    if name == "zeta":
        x, arguments = x + 1.5, (2.5,)
    elif name in POLYNOMIALS.split():
        arguments = (3,)
    function = getattr(tracejit.special, name)
    wanted = getattr(torch().special, name)(torch().tensor(x), *arguments).numpy()
    compiled = tracejit.compile(lambda t: function(t, *arguments))
    for call in (lambda t: function(t, *arguments), compiled, compiled):
        for dtype, tolerance in ((np.float64, 1e-7), (np.float32, 1e-5)):
            found = call(tracejit.tensor(x.astype(dtype))).numpy()
            assert found.dtype == dtype
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_the_gradient_of_zeta_by_its_second_argument_is_that_of_pytorch() -> None:
    results = []
    for library in (tracejit, torch()):
        q = library.tensor([0.5, 1.5, 3.0], dtype=library.float64, requires_grad=True)
        library.special.zeta(library.tensor(2.5, dtype=library.float64), q).sum().backward()
        results.append(q.grad.numpy())
    np.testing.assert_allclose(*results, rtol=1e-10)


@pytest.mark.filterwarnings("error")
def test_zeta_and_polygamma_far_below_zero_are_the_sums_that_define_them_and_return_at_once() -> None:
    q, terms = -20000.3, np.arange(400000.0)
    for s in (2, 3, 6):
        wanted = ((terms + q) ** -float(s)).sum() + (400000.0 + q - 0.5) ** (1.0 - s) / (
            s - 1
        )  # and the rest by Euler and Maclaurin
        assert tracejit.special.zeta(float(s), tracejit.tensor(q, dtype=tracejit.float64)).item() == pytest.approx(
            wanted, rel=1e-10
        )
    x = tracejit.tensor([q, -1e12 - 0.25, -5.0, 2.0, -np.inf], dtype=tracejit.float64)
    found = tracejit.polygamma(1, x).numpy()
    assert found == pytest.approx(
        [np.pi**2 / np.sin(np.pi * 0.3) ** 2 - 1 / 20000.8, 2 * np.pi**2, np.inf, np.pi**2 / 6 - 1, np.inf]
    )


@pytest.mark.parametrize("name", ["bessel_j0", "legendre_polynomial_p", "zeta"])
def test_a_derivative_that_nobody_wrote_is_refused_and_not_lost(name: str) -> None:
    function = getattr(tracejit.special, name)
    arguments = () if name == "bessel_j0" else (2,)

    def loss(x: Any) -> Any:
        return (x + function(x, *arguments)).sum()

    for call in (loss, *[tracejit.compile(loss)] * 3):
        x = tracejit.tensor([1.5, 2.5], requires_grad=True)
        with pytest.raises(NotImplementedError, match="derivative"):
            call(x).backward()


@pytest.mark.parametrize(
    "join", [tracejit.cat, tracejit.hstack, tracejit.stack, lambda xs: tracejit.stack(xs, -1), lambda xs: tracejit.cat(xs, 1)]
)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_what_is_joined_is_row_major_whatever_the_parts_are(join: Any, shape: tuple[int, ...]) -> None:
    part = tracejit.randn(*shape).transpose(-1, -2)
    compiled = tracejit.compile(join)
    for result in (join([part, part]), *[compiled([part, part]) for _ in range(2)]):
        assert result.is_contiguous() and result.equal(join([part.contiguous(), part.contiguous()]))


def test_tensors_of_one_number_make_a_tensor_without_leaving_the_program() -> None:
    def function(x: Any) -> Any:
        total = x.sum()
        parts = tracejit.tensor([x[0], total.reshape(1), total * 2])
        return parts, tracejit.tensor((total,), dtype=tracejit.float64), tracejit.tensor([total > 1]), tracejit.as_tensor([x[1]])

    compiled = tracejit.compile(function)
    for k in range(4):
        x = tracejit.tensor(numbers(3, seed=k), requires_grad=True)
        for found, expected in zip(compiled(x), function(x), strict=True):
            assert found.equal(expected) and found.dtype is expected.dtype and not found.requires_grad and found.is_leaf
    assert compiled.stats.compiled_calls == 3, compiled.explain()
    mixed = tracejit.tensor([tracejit.tensor(1), tracejit.tensor(2.5)])
    assert mixed.tolist() == [1.0, 2.5]
    with pytest.raises(ValueError, match="only one element tensors"):
        tracejit.tensor([tracejit.ones(2), tracejit.ones(2)])


def test_bounds_of_draws_and_counts_that_suffice_are_asked_by_no_call() -> None:
    class Memory:
        size = 0

    def drawn() -> Any:
        Memory.size += 1
        return tracejit.randint(0, Memory.size, (8,)), tracejit.randint(-Memory.size, 3, (2,))

    def counted(x: Any) -> Any:
        return tracejit.bincount(x, minlength=9)

    compiled = tracejit.compile(drawn), tracejit.compile(counted)
    for k in range(12):
        results = []
        for draw, count in (compiled, (drawn, counted)):
            Memory.size = k
            tracejit.manual_seed(k)
            results.append((*draw(), count(tracejit.arange(5) + min(k, 7) % 8)))
        assert all(a.equal(b) for a, b in zip(*results, strict=True))
    assert compiled[0].stats.traces == 1 and compiled[1].stats.traces <= 5, compiled[1].explain()
    Memory.size = -1
    for draw in (drawn, compiled[0]):
        Memory.size = -1
        with pytest.raises(RuntimeError, match="from=0 >= to=0"):
            draw()
    for count in (counted, compiled[1]):
        with pytest.raises(RuntimeError, match="non-negative"):
            count(tracejit.tensor([1, -1]))
