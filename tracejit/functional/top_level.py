"""Functions of neural networks that PyTorch has at its top level too, called as they are called there.

Many are those of tracejit.nn.functional.  The others differ in what is asked for, and in what order: weights before running averages,
whether there is training by position, reductions of losses as numbers (0 "none", 1 "mean", 2 "sum"), "none" unless they are asked for.
tracejit exports all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.core.numbers import settled
from tracejit.functional import convolution, ctc, layer, loss, normalisation, padding, regularisation, sampling
from tracejit.functional.activation import (
    celu,
    celu_,
    hardshrink,
    prelu,
    relu_,
    rrelu,
    rrelu_,
    selu,
    selu_,
    threshold,
    threshold_,
)
from tracejit.functional.convolution import adaptive_avg_pool1d, avg_pool1d, max_pool1d, max_pool2d, max_pool3d
from tracejit.functional.layer import bilinear
from tracejit.functional.normalisation import cosine_similarity, pairwise_distance, rms_norm
from tracejit.functional.recurrent import cell
from tracejit.functional.resizing import channel_shuffle, pixel_shuffle, pixel_unshuffle
from tracejit.ops.public.keywords import of_tensors

__all__ = [
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "affine_grid_generator", "alpha_dropout", "alpha_dropout_", "avg_pool1d", "batch_norm",
    "bilinear", "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle", "constant_pad_nd", "cosine_embedding_loss",
    "cosine_similarity", "ctc_loss", "dropout", "dropout_", "embedding", "feature_alpha_dropout", "feature_alpha_dropout_", "grid_sampler",
    "group_norm", "gru_cell", "hardshrink", "hinge_embedding_loss", "instance_norm", "kl_div", "layer_norm", "lstm_cell",
    "margin_ranking_loss", "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool3d", "pairwise_distance", "pixel_shuffle",
    "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu_", "rms_norm", "rnn_relu_cell", "rnn_tanh_cell", "rrelu", "rrelu_", "selu",
    "selu_", "threshold", "threshold_", "triplet_margin_loss",
]  # fmt: skip

_REDUCTIONS = ("none", "mean", "sum")
_INTERPOLATIONS = ("bilinear", "nearest")
_PADDINGS = ("zeros", "border", "reflection")


def _named(function: str, argument: str, number: int, names: tuple[str, ...]) -> str:
    """The name that a number stands for.  Raises ValueError for others."""
    number = settled(number)
    if number not in range(len(names)):
        kinds = ", ".join(f"{i} ({name})" for i, name in enumerate(names))
        raise ValueError(f"{function}(): expected {argument} to be one of {kinds}, got {number}")
    return names[number]


@of_tensors
def adaptive_max_pool1d(input: Any, output_size: Any) -> Any:
    """The greatest elements of `output_size` windows that cover (N, C, L) or (C, L), and their positions."""
    return convolution.adaptive_max_pool1d(input, output_size, return_indices=True)


@of_tensors
def max_pool1d_with_indices(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """max_pool1d of (N, C, L) or (C, L), and the positions of what it takes."""
    return convolution.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)


@of_tensors
def batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Any:
    """Zero mean and unit variance over all dimensions of (N, C, ...) but the second; cudnn_enabled changes nothing."""
    return normalisation.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@of_tensors
def instance_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Any:
    """Zero mean and unit variance over the dimensions of (N, C, ...) after the second; cudnn_enabled changes nothing."""
    return normalisation.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@of_tensors
def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True
) -> Any:
    """Zero mean and unit variance over the trailing dimensions `normalized_shape`; cudnn_enable changes nothing."""
    return normalisation.layer_norm(input, normalized_shape, weight, bias, eps)


@of_tensors
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Any:
    """Zero mean and unit variance over each of num_groups groups of the channels of (N, C, ...); cudnn_enabled changes nothing."""
    return normalisation.group_norm(input, num_groups, weight, bias, eps)


@of_tensors
def dropout(input: Any, p: float, train: bool) -> Any:
    """In training each element is zeroed with probability p and the others scaled by 1 / (1 - p).  Raises ValueError unless 0 <= p <= 1."""
    return regularisation.dropout(input, p, train)


@of_tensors
def dropout_(input: Any, p: float, train: bool) -> Any:
    """dropout in place."""
    return regularisation.dropout(input, p, train, inplace=True)


@of_tensors
def alpha_dropout(input: Any, p: float, train: bool) -> Any:
    """Dropout that keeps mean and variance of self-normalising networks, as in nn.functional.  Raises ValueError unless 0 <= p <= 1."""
    return regularisation.alpha_dropout(input, p, train)


@of_tensors
def alpha_dropout_(input: Any, p: float, train: bool) -> Any:
    """alpha_dropout in place."""
    return regularisation.alpha_dropout(input, p, train, inplace=True)


@of_tensors
def feature_alpha_dropout(input: Any, p: float, train: bool) -> Any:
    """alpha_dropout of whole channels of an (N, C, ...) input."""
    return regularisation.feature_alpha_dropout(input, p, train)


@of_tensors
def feature_alpha_dropout_(input: Any, p: float, train: bool) -> Any:
    """feature_alpha_dropout in place."""
    return regularisation.feature_alpha_dropout(input, p, train, inplace=True)


@of_tensors
def embedding(weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    """The rows of `weight` (rows, size) at `indices`, of any shape: (*, size).

    No gradient reaches the row padding_idx; none is meant by a negative one.  Gradients are dense, whatever `sparse` says."""
    padding_idx = settled(padding_idx)
    return layer.embedding(indices, weight, padding_idx if padding_idx >= 0 else None, scale_grad_by_freq=scale_grad_by_freq)


@of_tensors
def grid_sampler(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """nn.functional.grid_sample, its modes as numbers: 0 bilinear, 1 nearest; outside 0 zeros, 1 border, 2 reflection.

    Raises ValueError for other numbers."""
    mode = _named("grid_sampler", "interpolation_mode", interpolation_mode, _INTERPOLATIONS)
    outside = _named("grid_sampler", "padding_mode", padding_mode, _PADDINGS)
    return sampling.grid_sample(input, grid, mode, outside, align_corners)


@of_tensors
def affine_grid_generator(theta: Any, size: Sequence[int], align_corners: bool) -> Any:
    """nn.functional.affine_grid: the grid (N, H, W, 2) that the matrices theta (N, 2, 3) map an image of `size` to, or of volumes."""
    return sampling.affine_grid(theta, size, align_corners)


@of_tensors
def constant_pad_nd(input: Any, pad: Sequence[int], value: float = 0) -> Any:
    """`input` with `value` around it: pad[0] in front of and pad[1] behind the last dimension, and so on."""
    return padding.pad(input, pad, "constant", value)


@of_tensors
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 0
) -> Any:
    """-log of the probability of `target` in [0, 1], where sigmoid(input) is that of 1."""
    way = _named("binary_cross_entropy_with_logits", "reduction", reduction, _REDUCTIONS)
    return loss.binary_cross_entropy_with_logits(input, target, weight, pos_weight=pos_weight, reduction=way)


@of_tensors
def kl_div(input: Any, target: Any, reduction: int = 0, *, log_target: bool = False) -> Any:
    """target * (log(target) - input) of a logarithm `input` of probabilities; `target` is one as well for log_target."""
    return loss.kl_div(input, target, reduction=_named("kl_div", "reduction", reduction, _REDUCTIONS), log_target=log_target)


@of_tensors
def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 0) -> Any:
    """1 - cosine of vectors where target is 1, and where it is -1 what the cosine is above `margin`."""
    way = _named("cosine_embedding_loss", "reduction", reduction, _REDUCTIONS)
    return loss.cosine_embedding_loss(input1, input2, target, margin=margin, reduction=way)


@of_tensors
def hinge_embedding_loss(input: Any, target: Any, margin: float = 1.0, reduction: int = 0) -> Any:
    """`input` where target is 1, and where it is -1 what it lacks to `margin`."""
    way = _named("hinge_embedding_loss", "reduction", reduction, _REDUCTIONS)
    return loss.hinge_embedding_loss(input, target, margin=margin, reduction=way)


@of_tensors
def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: int = 0) -> Any:
    """max(0, margin - target * (input1 - input2)), where target is 1 if the first is to be greater and -1 if the second."""
    way = _named("margin_ranking_loss", "reduction", reduction, _REDUCTIONS)
    return loss.margin_ranking_loss(input1, input2, target, margin=margin, reduction=way)


@of_tensors
def poisson_nll_loss(input: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: int) -> Any:
    """-log of the probability of a count `target`, up to a constant unless `full`, where the rate is `input`, or exp(input)."""
    way = _named("poisson_nll_loss", "reduction", reduction, _REDUCTIONS)
    return loss.poisson_nll_loss(input, target, log_input=log_input, full=full, eps=eps, reduction=way)


@of_tensors
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 0,
) -> Any:
    """max(0, margin + the distance of anchor and positive - that of anchor and negative), in the p-norm."""
    way = _named("triplet_margin_loss", "reduction", reduction, _REDUCTIONS)
    return loss.triplet_margin_loss(anchor, positive, negative, margin=margin, p=p, eps=eps, swap=swap, reduction=way)


@of_tensors
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Any:
    """nn.functional.ctc_loss of log_probs (T, N, C), its reduction as a number."""
    way = _named("ctc_loss", "reduction", reduction, _REDUCTIONS)
    return ctc.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, way, zero_infinity)


def _step(name: str, mode: str, input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    return cell(name, mode, input, hx, (w_ih.shape[1], w_hh.shape[1]), (w_ih, w_hh, b_ih, b_hh))


@of_tensors
def lstm_cell(input: Any, hx: Sequence[Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """(h, c), each (N, hidden), after one step of an LSTM on (N, inputs) from hx = (h, c).  Raises RuntimeError for other sizes.

    w_ih (4 * hidden, inputs) and w_hh (4 * hidden, hidden): rows of the input gate, the forget gate, the cell, the output gate."""
    return _step("lstm_cell", "LSTM", input, hx, w_ih, w_hh, b_ih, b_hh)


@of_tensors
def gru_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """h (N, hidden) after one step of a GRU on (N, inputs) from hx.  Raises RuntimeError for other sizes.

    w_ih (3 * hidden, inputs) and w_hh (3 * hidden, hidden): rows of the reset gate, the update gate, the new state."""
    return _step("gru_cell", "GRU", input, hx, w_ih, w_hh, b_ih, b_hh)


@of_tensors
def rnn_tanh_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """tanh(input @ w_ih.T + b_ih + hx @ w_hh.T + b_hh).  Raises RuntimeError where sizes do not fit."""
    return _step("rnn_tanh_cell", "RNN_TANH", input, hx, w_ih, w_hh, b_ih, b_hh)


@of_tensors
def rnn_relu_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """max(0, input @ w_ih.T + b_ih + hx @ w_hh.T + b_hh).  Raises RuntimeError where sizes do not fit."""
    return _step("rnn_relu_cell", "RNN_RELU", input, hx, w_ih, w_hh, b_ih, b_hh)
