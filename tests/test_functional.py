"""tracejit.functional: activations, normalisations, linear maps, embeddings, attention, padding."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
from against_torch import agree, classes, numbers

import tracejit
from tracejit import functional as F
from tracejit.autograd import gradcheck, gradgradcheck

EDGES = np.array([-1e4, -100.0, -20.0, -3.0, -1.0, -0.5, -1e-8, 0.0, 1e-8, 0.5, 1.0, 3.0, 6.0, 20.0, 100.0, 1e4])

FLOAT64 = defaultdict(lambda: 1e-12, hardsigmoid=1e-7)  # torch divides its gradient by a float32 6

ACTIVATIONS = [
    ("celu", {}), ("celu", {"alpha": 0.5}), ("elu", {}), ("elu", {"alpha": 2.0}),
    ("gelu", {}), ("gelu", {"approximate": "tanh"}),
    ("hardshrink", {}),
    ("hardsigmoid", {}), ("hardswish", {}), ("hardtanh", {}), ("hardtanh", {"min_val": -3.0, "max_val": 0.5}),
    ("leaky_relu", {}), ("leaky_relu", {"negative_slope": 0.3}), ("logsigmoid", {}), ("mish", {}), ("relu", {}), ("relu6", {}),
    ("selu", {}),
    ("sigmoid", {}), ("silu", {}), ("softplus", {}), ("softplus", {"beta": 2.0, "threshold": 5.0}), ("softshrink", {}), ("softsign", {}),
    ("tanh", {}), ("tanhshrink", {}), ("threshold", {"threshold": 0.1, "value": -7.0}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), ACTIVATIONS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(ACTIVATIONS)])
def test_activations_agree_with_torch(name: str, options: dict[str, float]) -> None:
    agree(name, numbers(3, 5), tolerance=FLOAT64[name], **options)
    agree(name, numbers(4, 3, seed=1, dtype="float32"), tolerance=2e-6, **options)


@pytest.mark.parametrize(("name", "options"), ACTIVATIONS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(ACTIVATIONS)])
def test_activations_and_their_gradients_are_finite_and_agree_at_the_edges(name: str, options: dict[str, float]) -> None:
    x = tracejit.tensor(EDGES, requires_grad=True)
    out = getattr(F, name)(x, **options)
    out.sum().backward()
    assert np.isfinite(out.detach().numpy()).all()
    assert np.isfinite(x.grad.numpy()).all()
    agree(name, EDGES, tolerance=max(1e-11, FLOAT64[name]), **options)


@pytest.mark.parametrize(("name", "options"), ACTIVATIONS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(ACTIVATIONS)])
def test_activations_pass_nan_on(name: str, options: dict[str, float]) -> None:
    out = getattr(F, name)(tracejit.tensor([math.nan, 1.0]), **options).numpy()
    assert math.isnan(out[0])
    assert not math.isnan(out[1])


def test_gelu_has_known_values() -> None:
    x = tracejit.tensor([-1.0, 0.0, 2.0], dtype=tracejit.float64)
    exact = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in (-1.0, 0.0, 2.0)]
    np.testing.assert_allclose(F.gelu(x).numpy(), exact, rtol=1e-15)
    with pytest.raises(RuntimeError, match="approximate must be 'none' or 'tanh'"):
        F.gelu(x, approximate="fast")


def test_an_activation_in_place_overwrites_its_input_and_still_differentiates() -> None:
    leaf = tracejit.tensor([-1.0, 2.0], requires_grad=True)
    x = leaf * 1.0
    out = F.leaky_relu(x, 0.5, inplace=True)
    assert out is x
    out.sum().backward()
    assert x.tolist() == [-0.5, 2.0]
    assert leaf.grad.tolist() == [0.5, 1.0]


def test_prelu_and_glu_agree_with_torch() -> None:
    agree("prelu", numbers(2, 3, 4), numbers(3, seed=1))
    agree("prelu", numbers(2, 3), numbers(1, seed=1))
    agree("glu", numbers(3, 4), 0 + 1)
    with pytest.raises(RuntimeError, match="halving dimension must be even"):
        F.glu(tracejit.zeros(3))


def test_bad_options_of_activations_are_errors() -> None:
    x = tracejit.zeros(2)
    with pytest.raises(ValueError, match="min_val must not exceed"):
        F.hardtanh(x, 1.0, -1.0)
    with pytest.raises(RuntimeError, match="lambd must be greater"):
        F.softshrink(x, -1.0)
    with pytest.raises(RuntimeError, match="alpha must not be 0"):
        F.celu(x, 0.0)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_softmax_agrees_with_torch(name: str, dim: int) -> None:
    agree(name, numbers(3, 4, 2), dim=dim)
    agree(name, numbers(2, 5, seed=2, dtype="float32"), dim=dim, tolerance=2e-6)


def test_softmax_neither_overflows_nor_forgets_infinities() -> None:
    x = tracejit.tensor([1e4, 1e4, -math.inf], requires_grad=True)
    out = F.softmax(x, 0)
    assert out.tolist() == [0.5, 0.5, 0.0]
    F.log_softmax(tracejit.tensor([1e4, 0.0], requires_grad=True), 0)[0].backward()
    assert F.log_softmax(tracejit.tensor([1e4, 0.0]), 0).tolist() == [0.0, -1e4]


def test_softmax_is_a_function_and_a_method_and_converts_on_request() -> None:
    x = tracejit.tensor([[1, 2, 3]])
    assert tracejit.softmax(x, 1, dtype=tracejit.float64).dtype is tracejit.float64
    assert x.float().softmax(-1).sum().item() == pytest.approx(1.0)
    assert x.float().log_softmax(-1).exp().sum().item() == pytest.approx(1.0)
    assert tracejit.softmax(tracejit.tensor(3.0), 0).item() == 1.0
    assert tracejit.softmax(tracejit.zeros(0, 3), 0).shape == (0, 3)
    with pytest.raises(RuntimeError, match="floating-point input, got int64"):
        tracejit.softmax(x, 1)


def test_normalisations_agree_with_torch() -> None:
    x = numbers(4, 6, 5)
    agree("layer_norm", x, (5,), numbers(5, seed=1), numbers(5, seed=2))
    agree("layer_norm", x, (6, 5), eps=0.1)
    agree("rms_norm", x, (5,), numbers(5, seed=1))
    agree("rms_norm", numbers(2, 3, dtype="float32"), (3,), tolerance=2e-6)
    agree("group_norm", x, 3, numbers(6, seed=1), numbers(6, seed=2))
    agree("instance_norm", x, weight=numbers(6, seed=1), bias=numbers(6, seed=2))
    agree("normalize", x, p=2.0, dim=1)
    agree("normalize", x, p=3.0, dim=-1)
    agree("cosine_similarity", x, numbers(4, 6, 5, seed=3), dim=1)
    agree("cosine_similarity", numbers(4, 1, 5), numbers(6, 5, seed=3), dim=1)
    agree("pairwise_distance", numbers(4, 3), numbers(4, 3, seed=1))
    agree("pairwise_distance", numbers(4, 3), numbers(4, 3, seed=1), p=1.0, keepdim=True)
    agree("local_response_norm", numbers(2, 5, 3), 3)


@pytest.mark.parametrize(
    "normalise",
    [lambda x: F.layer_norm(x, (5,)), lambda x: F.group_norm(x, 2), lambda x: F.batch_norm(x, None, None, training=True)],
    ids=["layer_norm", "group_norm", "batch_norm"],
)
def test_normalisations_have_right_second_derivatives(normalise: Callable[[tracejit.Tensor], tracejit.Tensor]) -> None:
    x = tracejit.tensor(np.random.default_rng(9).normal(1.0, 2.0, (3, 4, 5)), requires_grad=True)
    weights = tracejit.tensor(np.random.default_rng(10).normal(size=(3, 4, 5)))
    assert gradcheck(lambda v: (normalise(v) * weights).sum(), (x,))
    assert gradgradcheck(lambda v: (normalise(v) * weights).sum(), (x,))


def test_layer_norm_is_accurate_far_from_zero() -> None:
    x = tracejit.tensor(np.array([1e4, 1e4 + 1, 1e4 + 2, 1e4 + 3], np.float32))
    np.testing.assert_allclose(F.layer_norm(x, (4,)).numpy(), [-1.3416, -0.4472, 0.4472, 1.3416], atol=1e-3)


def test_normalising_a_zero_vector_has_a_zero_gradient() -> None:
    x = tracejit.zeros(1, 3, requires_grad=True)
    F.normalize(x).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_shapes_that_do_not_fit_a_normalisation_are_errors() -> None:
    x = tracejit.zeros(2, 4)
    with pytest.raises(RuntimeError, match=r"trailing sizes \[3\]"):
        F.layer_norm(x, (3,))
    with pytest.raises(RuntimeError, match="expected weight of shape"):
        F.layer_norm(x, (4,), tracejit.ones(2))
    with pytest.raises(RuntimeError, match="divisible by num_groups"):
        F.group_norm(x, 3)
    with pytest.raises(RuntimeError, match="expected weight to be a vector of 4"):
        F.batch_norm(x, None, None, tracejit.ones(3), training=True)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        F.batch_norm(tracejit.zeros(1, 4), None, None, training=True)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_agrees_with_torch_and_moves_the_running_statistics(training: bool) -> None:
    torch = pytest.importorskip("torch")
    x, mean, var = numbers(5, 3, 2), numbers(3, seed=1), numbers(3, seed=2, low=0.5)
    ours, theirs = (tracejit.tensor(mean), tracejit.tensor(var)), (torch.tensor(mean), torch.tensor(var))
    out = F.batch_norm(tracejit.tensor(x), *ours, training=training, momentum=0.3)
    expected = torch.nn.functional.batch_norm(torch.tensor(x), *theirs, training=training, momentum=0.3)
    np.testing.assert_allclose(out.numpy(), expected.numpy(), rtol=1e-12)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-12)
    assert (ours[0].numpy() != mean).all() == training
    agree("batch_norm", x, None, None, numbers(3, seed=3), numbers(3, seed=4), True) if training else None


def test_linear_maps_agree_with_torch() -> None:
    agree("linear", numbers(4, 3), numbers(2, 3, seed=1), numbers(2, seed=2))
    agree("linear", numbers(2, 4, 3), numbers(2, 3, seed=1), numbers(2, seed=2))
    agree("linear", numbers(3), numbers(2, 3, seed=1))
    agree("linear", numbers(4, 3), numbers(3, seed=1))
    agree("linear", numbers(0, 3), numbers(2, 3, seed=1), numbers(2, seed=2))
    agree("bilinear", numbers(4, 3), numbers(4, 2, seed=1), numbers(5, 3, 2, seed=2), numbers(5, seed=3))
    with pytest.raises(RuntimeError, match="last dimension of input to be 3"):
        F.linear(tracejit.zeros(2, 4), tracejit.zeros(5, 3))


def test_embedding_agrees_with_torch() -> None:
    index, table = classes(3, 4, count=5), numbers(5, 2)
    agree("embedding", index, table)
    agree("embedding", index, table, padding_idx=int(index[0, 0]))
    agree("embedding", index, table, scale_grad_by_freq=True)


def test_embedding_renormalises_only_rows_that_are_looked_up() -> None:
    table = tracejit.tensor([[3.0, 4.0], [30.0, 40.0], [0.3, 0.4]])
    out = F.embedding(tracejit.tensor([0, 2]), table, max_norm=1.0)
    np.testing.assert_allclose(table.numpy(), [[0.6, 0.8], [30.0, 40.0], [0.3, 0.4]], rtol=1e-6)
    np.testing.assert_allclose(out.numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)


def test_embedding_outside_its_table_is_an_index_error() -> None:
    with pytest.raises(IndexError, match="5"):
        F.embedding(tracejit.tensor([0, 5]), tracejit.zeros(5, 2))
    with pytest.raises(RuntimeError, match="int64 or int32, got float32"):
        F.embedding(tracejit.zeros(2), tracejit.zeros(5, 2))


def test_one_hot_marks_the_class() -> None:
    assert F.one_hot(tracejit.tensor([0, 2])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert F.one_hot(tracejit.tensor(1), 2).tolist() == [0, 1]
    assert F.one_hot(tracejit.tensor([[1]]), 3).shape == (1, 1, 3)
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        F.one_hot(tracejit.tensor([3]), 3)


def test_attention_agrees_with_torch() -> None:
    q, k, v = numbers(2, 3, 4, 5), numbers(2, 3, 6, 5, seed=1), numbers(2, 3, 6, 7, seed=2)
    agree("scaled_dot_product_attention", q, k, v, tolerance=1e-11)
    agree("scaled_dot_product_attention", q, k, v, is_causal=True, tolerance=1e-11)
    agree("scaled_dot_product_attention", q, k, v, scale=0.3, tolerance=1e-11)
    agree("scaled_dot_product_attention", q, k, v, attn_mask=numbers(4, 6, seed=3), tolerance=1e-11)
    mask = numbers(4, 6, seed=4) > -1
    agree("scaled_dot_product_attention", q, k, v, attn_mask=mask, tolerance=1e-11)
    agree("scaled_dot_product_attention", numbers(2, 6, 4, 5), k, v, enable_gqa=True, tolerance=1e-11)


def test_a_query_that_sees_nothing_attends_to_zeros() -> None:
    q = tracejit.ones(2, 3, requires_grad=True)
    mask = tracejit.tensor([[True, True], [False, False]])
    out = F.scaled_dot_product_attention(q, tracejit.ones(2, 3), tracejit.ones(2, 3), attn_mask=mask)
    out.sum().backward()
    assert out.tolist() == [[1.0] * 3, [0.0] * 3]
    assert np.isfinite(q.grad.numpy()).all()


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((1, 2), {}), ((1, 2, 0, 3), {"value": 7.0}), ((-1, 2), {}), ((-1, -1, -2, 1), {"value": 1.5}), ((2, 3), {"mode": "reflect"}),
        ((2, 1), {"mode": "replicate"}), ((2, 3), {"mode": "circular"}),
        ((-1, 2, -1, 1), {"mode": "circular"}), ((1, 1, 2, 1), {"mode": "reflect"}),
    ],
)  # fmt: skip
def test_pad_agrees_with_torch(sizes: tuple[int, ...], options: dict[str, object]) -> None:
    shape = (2, 3, 4, 5) if len(sizes) == 4 or not options else (2, 4, 5)
    agree("pad", numbers(*shape), sizes, **options)


def test_images_are_rearranged_as_in_torch() -> None:
    agree("unfold", numbers(2, 3, 6, 5), (2, 3), dilation=2, padding=1, stride=2)
    agree("unfold", numbers(3, 4, 5), 2)
    agree("pixel_shuffle", numbers(2, 8, 3, 4), 2)
    agree("pixel_unshuffle", numbers(2, 2, 6, 4), 2)
    with pytest.raises(RuntimeError, match="divisible by 4"):
        F.pixel_shuffle(tracejit.zeros(1, 3, 2, 2), 2)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2, 3, 5), {"size": 8}), ((2, 3, 5, 4), {"scale_factor": 1.7}), ((2, 3, 5, 4), {"size": (3, 9), "mode": "nearest-exact"}),
        ((2, 3, 5), {"scale_factor": 2.5, "mode": "linear"}), ((2, 3, 5, 4), {"size": (7, 3), "mode": "bilinear"}),
        ((2, 3, 5, 4), {"size": (7, 3), "mode": "bilinear", "align_corners": True}),
        ((1, 2, 3, 4, 2), {"scale_factor": (2.0, 1.5, 0.5), "mode": "trilinear", "recompute_scale_factor": True}),
        ((2, 3, 5, 4), {"size": (7, 3), "mode": "bicubic"}), ((2, 3, 5, 4), {"scale_factor": 1.7, "mode": "bicubic"}),
        ((1, 2, 3, 2), {"size": (5, 8), "mode": "bicubic", "align_corners": True}), ((2, 3, 7), {"size": 3, "mode": "area"}),
        ((2, 3, 5, 4), {"scale_factor": 0.5, "mode": "area"}), ((1, 2, 3, 4, 2), {"size": (2, 6, 1), "mode": "area"}),
    ],
)  # fmt: skip
def test_interpolation_agrees_with_torch(shape: tuple[int, ...], options: dict[str, object]) -> None:
    agree("interpolate", numbers(*shape), **options)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_integers_are_padded_by_what_is_none_where_nothing_is_put_there(value: float) -> None:
    x = tracejit.tensor([1, 2])
    for pad in (F.pad, tracejit.compile(F.pad)):
        result = pad(x, (0, 0), value=value)
        assert result.tolist() == [1, 2] and result.data_ptr() != x.data_ptr()
        with pytest.raises((OverflowError, ValueError)):
            pad(x, (0, 1), value=value)


def test_padding_that_does_not_fit_is_an_error() -> None:
    x = tracejit.zeros(2, 3, 4)
    with pytest.raises(RuntimeError, match="even number of sizes"):
        F.pad(x, (1,))
    with pytest.raises(RuntimeError, match="too large for mode 'reflect'"):
        F.pad(x, (4, 0), mode="reflect")
    with pytest.raises(NotImplementedError, match="unknown mode"):
        F.pad(x, (1, 1), mode="mirror")


def test_dropout_keeps_the_mean_and_is_the_identity_outside_training() -> None:
    x = tracejit.ones(20000)
    out = F.dropout(x, 0.25).numpy()
    assert set(np.unique(out)) == {np.float32(0), np.float32(1 / 0.75)}
    assert out.mean() == pytest.approx(1.0, abs=0.02)
    assert F.dropout(x, 0.25, training=False) is x
    assert F.dropout(x, 0.0) is x
    assert not F.dropout(x, 1.0).numpy().any()
    with pytest.raises(ValueError, match="between 0 and 1, but got"):
        F.dropout(x, 1.5)


def test_dropout_of_channels_drops_whole_channels() -> None:
    out = F.dropout2d(tracejit.ones(50, 20, 2, 3), 0.5).numpy().reshape(1000, 6)
    assert ((out == 0).all(1) | (out == 2).all(1)).all()
    assert 0.4 < (out[:, 0] == 0).mean() < 0.6


def test_alpha_dropout_keeps_mean_and_variance_of_normal_numbers() -> None:
    x = tracejit.tensor(np.random.default_rng(0).standard_normal(40000))
    out = F.alpha_dropout(x, 0.3, training=True).numpy()
    assert out.mean() == pytest.approx(0.0, abs=0.05)
    assert out.std() == pytest.approx(1.0, abs=0.05)


def test_the_gradient_of_dropout_is_its_mask() -> None:
    x = tracejit.ones(100, requires_grad=True)
    out = F.dropout(x, 0.5)
    out.sum().backward()
    assert (x.grad.numpy() == out.detach().numpy()).all()


def test_functional_is_found_under_both_names() -> None:
    assert tracejit.nn.functional.gelu is tracejit.functional.gelu
    assert set(F.__all__) <= set(dir(tracejit.nn.functional))


def test_images_are_sampled_at_positions_as_torch_does() -> None:
    theta = numbers(2, 2, 3, seed=3)
    for align in (True, False):
        agree("affine_grid", theta, (2, 1, 3, 4), align_corners=align)
        agree("affine_grid", numbers(2, 3, 4, seed=4), (2, 1, 2, 3, 4), align_corners=align)
        for mode in ("bilinear", "nearest"):
            for padding in ("zeros", "border", "reflection"):
                options = {"mode": mode, "padding_mode": padding, "align_corners": align, "gradients": mode == "bilinear"}
                agree("grid_sample", numbers(2, 3, 4, 5), numbers(2, 3, 2, 2, seed=1, low=-1.3, high=1.3), **options)
                agree("grid_sample", numbers(1, 2, 3, 4, 3), numbers(1, 2, 2, 2, 3, seed=1, low=-1.2, high=1.2), **options)


def test_gumbel_softmax_is_a_distribution_and_hard_ones_keep_its_gradient() -> None:
    tracejit.manual_seed(0)
    logits = tracejit.tensor(numbers(2000, 3), requires_grad=True)
    soft = F.gumbel_softmax(logits, 0.5)
    np.testing.assert_allclose(soft.detach().numpy().sum(-1), 1.0)
    hard = F.gumbel_softmax(logits, hard=True)
    assert set(np.unique(hard.detach().numpy().round(12))) == {0.0, 1.0}
    (hard[:, 0] * 2).sum().backward()
    assert logits.grad.numpy().any()
    fixed = tracejit.tensor([0.0, 1.0, 2.0]).expand(20000, 3)
    counts = F.gumbel_softmax(fixed, hard=True).mean(0).numpy()
    np.testing.assert_allclose(counts, np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum(), atol=0.02)


def test_bags_of_embeddings_agree_with_torch() -> None:
    weight, index = numbers(6, 3), classes(3, 4, count=6)
    flat, offsets = classes(7, count=6, seed=1), np.array([0, 2, 2, 5])
    for mode in ("sum", "mean", "max"):
        agree("embedding_bag", index, weight, mode=mode)
        agree("embedding_bag", flat, weight, offsets, mode=mode)
        agree("embedding_bag", flat, weight, np.array([0, 3, 7]), mode=mode, include_last_offset=True)
        agree("embedding_bag", index, weight, mode=mode, padding_idx=int(index[0, 0]))
    agree("embedding_bag", index, weight, None, None, 2, False, "sum", False, numbers(3, 4, seed=5))
    with pytest.raises(NotImplementedError, match="mode='sum'"):
        F.embedding_bag(tracejit.tensor(index), tracejit.tensor(weight), per_sample_weights=tracejit.tensor(numbers(3, 4)))
    with pytest.raises(ValueError, match="offsets has to be None"):
        F.embedding_bag(tracejit.tensor(index), tracejit.tensor(weight), tracejit.tensor(offsets))


def test_max_pooling_is_undone_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    for rank, shape in ((1, (2, 3, 7)), (2, (2, 3, 6, 5)), (3, (1, 2, 4, 5, 4))):
        for options in ({}, {"stride": 2, "padding": 1}):
            found = []
            for f in (tracejit, torch):
                x = f.tensor(numbers(*shape), requires_grad=True)
                pool = getattr(f.nn, f"MaxPool{rank}d")(3 if options else 2, return_indices=True, **options)
                unpool = getattr(f.nn, f"MaxUnpool{rank}d")(3 if options else 2, **options)
                values, indices = pool(x)
                out = unpool(values, indices, output_size=x.size())
                (out**2).sum().backward()
                found.append((repr(unpool), out.detach().numpy(), x.grad.numpy()))
            assert found[0][0] == found[1][0]
            for ours, theirs in zip(found[0][1:], found[1][1:], strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_softmax_without_a_dimension_takes_the_one_of_old_programs() -> None:
    for shape in ((3,), (2, 3), (2, 3, 4), (2, 3, 4, 2)):
        agree("softmax", numbers(*shape))
        agree("log_softmax", numbers(*shape))


def test_in_place_activations_write_and_rrelu_draws_slopes_in_training() -> None:
    agree("rrelu", numbers(4, 5))
    tracejit.manual_seed(0)
    x = tracejit.tensor(-np.ones(1000))
    slopes = -F.rrelu(x, 0.2, 0.4, training=True).numpy()
    assert 0.2 <= slopes.min() < 0.22 < 0.38 < slopes.max() <= 0.4
    for name in ("relu_", "elu_", "celu_", "selu_", "leaky_relu_", "hardtanh_", "rrelu_"):
        x = tracejit.tensor(numbers(4))
        expected = getattr(F, name[:-1])(x.clone())
        assert getattr(F, name)(x) is x
        assert x.tolist() == expected.tolist()
