"""Losses.

Reductions are "mean" (the default), "sum" and "none".  Arguments have PyTorch's positions, and its old ones, size_average and reduce, are
taken as the reductions that they stand for (`support.in_positions`).
"""

from __future__ import annotations

import math
from typing import Any

from tracejit.core.dtypes import int64
from tracejit.core.library_warnings import warn
from tracejit.core.precision import in_float32, rounds_once
from tracejit.core.shapes import float_product, integer
from tracejit.functional.activation import logsigmoid
from tracejit.functional.normalisation import cosine_similarity, pairwise_distance
from tracejit.functional.support import in_positions, reduced, sum_of_all
from tracejit.ops import indexing
from tracejit.ops import reduce as primitives
from tracejit.ops.composites import pointwise
from tracejit.ops.composites.softmax import cross_entropy as entropy
from tracejit.ops.composites.softmax import nll_loss as likelihood
from tracejit.ops.creation import arange, full
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import maximum, minimum, where
from tracejit.ops.elementwise.logarithmic import xlogy
from tracejit.ops.elementwise.mathematics import abs_, exp, log
from tracejit.ops.movement.views import expand, reshape
from tracejit.ops.public.keywords import of_tensors
from tracejit.ops.public.reduce import all_
from tracejit.ops.public.softmax import log_softmax
from tracejit.ops.scan import cumsum

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "gaussian_nll_loss",
    "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
    "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip


def _warn_of_broadcasting(input: Any, target: Any) -> None:
    """Warn where the sizes differ: each element is then compared with many, which is nearly always a mistake."""
    if input._sizes != target._sizes:
        warn(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will likely lead to "
            "incorrect results due to broadcasting. Please ensure they have the same size."
        )


def _weighted(loss: Any, weight: Any) -> Any:
    return loss if weight is None else loss * weight


@in_float32
@in_positions("input", "target", "size_average", "reduce", "reduction", "weight")
def mse_loss(input: Any, target: Any, *, reduction: str = "mean", weight: Any = None) -> Any:
    """(input - target) ** 2.  Warns where the sizes differ."""
    _warn_of_broadcasting(input, target)
    return _averaged("mse_loss", pointwise.squared_difference(input, target), weight, reduction)


@in_float32
@in_positions("input", "target", "size_average", "reduce", "reduction", "weight")
def l1_loss(input: Any, target: Any, *, reduction: str = "mean", weight: Any = None) -> Any:
    """|input - target|.  Warns where the sizes differ."""
    _warn_of_broadcasting(input, target)
    return _averaged("l1_loss", abs_(input - target), weight, reduction)


def _averaged(name: str, loss: Any, weight: Any, reduction: str) -> Any:
    """As `reduced`; with a weight the mean is divided by the sum of the weights."""
    if weight is None:
        return reduced(name, loss, reduction)
    weighted = loss * weight
    if reduction != "mean":
        return reduced(name, weighted, reduction)
    return sum_of_all(weighted) / sum_of_all(expand(weight, shape=weighted._sizes))


@in_float32
@in_positions("input", "target", "size_average", "reduce", "reduction", "beta")
def smooth_l1_loss(input: Any, target: Any, *, reduction: str = "mean", beta: float = 1.0) -> Any:
    """0.5 * d ** 2 / beta where d = |input - target| < beta, d - 0.5 * beta elsewhere.  Raises RuntimeError for negative beta."""
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss(): beta must not be negative, got {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    _warn_of_broadcasting(input, target)
    return reduced("smooth_l1_loss", pointwise.smooth_l1(input, target, beta), reduction)


@in_float32
@in_positions("input", "target", "reduction", "delta", "weight")
def huber_loss(input: Any, target: Any, *, reduction: str = "mean", delta: float = 1.0, weight: Any = None) -> Any:
    """0.5 * d ** 2 where d = |input - target| <= delta, delta * (d - 0.5 * delta) elsewhere.  Raises RuntimeError for delta <= 0."""
    if delta <= 0:
        raise RuntimeError(f"huber_loss(): delta must be positive, got {delta}")
    _warn_of_broadcasting(input, target)
    return _averaged("huber_loss", pointwise.huber(input, target, delta), weight, reduction)


@in_float32
@in_positions("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """The cross entropy of logits `input`, (C,) or (N, C) or (N, C, d1, ...), and `target`.

    target: int64 class indices of shape (), (N,) or (N, d1, ...), or probabilities of the shape of `input`.  weight: (C,) or None.  Targets
    equal to ignore_index count nothing.  label_smoothing in [0, 1] mixes the target with the uniform distribution.  The mean over
    indices is weighted by the weights of the targets.  Raises IndexError for indices outside [0, C), RuntimeError for bad shapes."""
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"cross_entropy(): label_smoothing must be between 0.0 and 1.0, got {label_smoothing}")
    ignore_index = integer("cross_entropy", "ignore_index", ignore_index)
    axis = _class_axis("cross_entropy", input, target, weight)
    if (
        weight is None
        and label_smoothing == 0.0
        and target.dtype is int64
        and reduction in ("none", "sum", "mean")
        and input._sizes[axis]
    ):
        return entropy(input, target, dim=axis, ignored=ignore_index, reduction=reduction)[0]
    logp = log_softmax(input, axis)
    if target._sizes == input._sizes:
        return _against_probabilities(logp, target, weight, axis, reduction, label_smoothing)
    if label_smoothing == 0.0:
        return _negative_log_likelihood("cross_entropy", logp, target, weight, axis, ignore_index, reduction)
    return _smoothed(logp, target, weight, axis, ignore_index, reduction, label_smoothing)


def _class_axis(name: str, input: Any, target: Any, weight: Any) -> int:
    """The dimension of the classes, after checking shapes and dtypes."""
    if input.ndim == 0:
        raise RuntimeError(f"{name}(): expected input to have at least 1 dimension (the classes), got a 0-dimensional tensor")
    axis = 0 if input.ndim == 1 else 1
    shape = input._sizes
    without = shape[:axis] + shape[axis + 1 :]
    if name == "cross_entropy" and target._sizes == shape:
        if not target.dtype.is_floating_point:
            raise RuntimeError(
                f"cross_entropy(): expected floating-point target for class probabilities (same shape as input), got {target.dtype.name}"
            )
    elif axis and target._sizes[:1] != shape[:1]:
        raise ValueError(
            f"{name}(): Expected input batch_size ({shape[0]}) to match target batch_size ({target._sizes[0] if target.ndim else 0})."
        )
    elif target._sizes != without:
        raise RuntimeError(
            f"{name}(): expected target of shape {list(without)} for input of shape {list(shape)}, got {list(target._sizes)}"
        )
    elif target.dtype.name not in ("int64", "uint8"):
        raise RuntimeError(
            f"{name}(): expected target of class indices to be int64, got {target.dtype.name}; convert it with .long()"
        )
    if weight is not None and weight._sizes != (shape[axis],):
        raise RuntimeError(
            f"{name}(): expected weight to have one element for each of the {shape[axis]} classes, got shape {list(weight.shape)}"
        )
    return axis


def _pick(values: Any, target: Any, axis: int) -> Any:
    """values[..., target, ...] along `axis`: one value for each target."""
    shape = target._sizes
    picked = indexing.gather(values, reshape(target, shape=(*shape[:axis], 1, *shape[axis:])), dim=axis)
    return reshape(picked, shape=shape)


def _negative_log_likelihood(name: str, logp: Any, target: Any, weight: Any, axis: int, ignore_index: int, reduction: str) -> Any:
    if weight is None and target.dtype is int64 and reduction in ("none", "sum", "mean"):
        return likelihood(logp, target, dim=axis, ignored=ignore_index, reduction=reduction)
    kept = target != ignore_index
    safe = where(kept, target, 0)
    loss = -_pick(logp, safe, axis)
    scale = cast(kept, dtype=logp.dtype) if weight is None else where(kept, indexing.index_select(weight, safe, dim=0), 0.0)
    loss = where(kept, loss if weight is None else loss * scale, 0.0)
    return reduced(name, loss, reduction) if reduction != "mean" else sum_of_all(loss) / sum_of_all(scale)


@in_float32
@in_positions("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction")
def nll_loss(input: Any, target: Any, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """-input[target]: the negative log likelihood of class indices, for log-probabilities (C,), (N, C) or (N, C, d1, ...).

    The mean is weighted by the weights of the targets.  Raises IndexError for indices outside [0, C), RuntimeError for bad shapes."""
    ignore_index = integer("nll_loss", "ignore_index", ignore_index)
    axis = _class_axis("nll_loss", input, target, weight)
    return _negative_log_likelihood("nll_loss", input, target, weight, axis, ignore_index, reduction)


def _by_class(weight: Any, axis: int, ndim: int) -> Any:
    return reshape(weight, shape=(*(1,) * axis, weight.shape[0], *(1,) * (ndim - axis - 1)))


def _smoothed(logp: Any, target: Any, weight: Any, axis: int, ignore_index: int, reduction: str, smoothing: float) -> Any:
    kept = target != ignore_index
    chosen = _negative_log_likelihood("cross_entropy", logp, target, weight, axis, ignore_index, reduction)
    weighted = logp if weight is None else logp * _by_class(weight, axis, logp.ndim)
    uniform = where(kept, -primitives.sum_(weighted, dims=(axis,), keepdim=False), 0.0)
    if reduction == "mean":
        if weight is None:
            scale = cast(kept, dtype=logp.dtype)
        else:
            scale = where(kept, indexing.index_select(weight, where(kept, target, 0), dim=0), 0.0)
        uniform = sum_of_all(uniform) / sum_of_all(scale)
    else:
        uniform = reduced("cross_entropy", uniform, reduction)
    return chosen * (1.0 - smoothing) + uniform * (smoothing / float_product(logp.shape[axis : axis + 1]))


def _against_probabilities(logp: Any, target: Any, weight: Any, axis: int, reduction: str, smoothing: float) -> Any:
    classes = logp.shape[axis]
    if smoothing > 0.0:
        target = target * (1.0 - smoothing) + smoothing / classes
    weighted = logp * target if weight is None else logp * target * _by_class(weight, axis, logp.ndim)
    loss = -primitives.sum_(weighted, dims=(axis,), keepdim=False)
    return reduced("cross_entropy", loss, reduction)


@in_float32
@in_positions("input", "target", "weight", "size_average", "reduce", "reduction", "pos_weight")
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None
) -> Any:
    """-(target * log(sigmoid(input)) + (1 - target) * log(1 - sigmoid(input))), stable for logits of any size.

    pos_weight multiplies the first term.  Raises ValueError unless target has the shape of input."""
    _same_shape("binary_cross_entropy_with_logits", input, target)
    if pos_weight is None:
        loss = pointwise.logistic_loss(input, target)
    else:
        loss = (1.0 - target) * input - logsigmoid(input) * ((pos_weight - 1.0) * target + 1.0)
    return reduced("binary_cross_entropy_with_logits", _weighted(loss, weight), reduction)


def _same_shape(name: str, input: Any, target: Any) -> None:
    if input._sizes != target._sizes:
        raise ValueError(f"{name}(): expected target to have the shape of input, {list(input._sizes)}, got {list(target._sizes)}")


@in_float32
@in_positions("input", "target", "weight", "size_average", "reduce", "reduction")
def binary_cross_entropy(input: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    """-(target * log(input) + (1 - target) * log(1 - input)) for probabilities `input`; each logarithm is at least -100.

    Raises ValueError unless target has the shape of input, RuntimeError where they differ in dtype or an element of either is
    outside [0, 1] or NaN."""
    _same_shape("binary_cross_entropy", input, target)
    if target.dtype is not input.dtype:
        raise RuntimeError(
            f"binary_cross_entropy(): Found dtype {target.dtype.name} but expected {input.dtype.name}; convert target with .to()"
        )
    for name, x in (("input", input), ("target", target)):
        if not all_((x >= 0) & (x <= 1)):
            raise RuntimeError(f"binary_cross_entropy(): all elements of {name} should be between 0 and 1")
    return reduced("binary_cross_entropy", _weighted(pointwise.binary_entropy(input, target), weight), reduction)


@in_float32
@in_positions("input", "target", "size_average", "reduce", "reduction", "log_target")
def kl_div(input: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> Any:
    """target * (log(target) - input) for log-probabilities `input`, with 0 * log(0) = 0; `target` holds logarithms too if log_target.

    reduction may also be "batchmean": the sum over the size of dimension 0."""
    if log_target:
        loss = exp(target) * (target - input)
    else:
        loss = xlogy(target, target) - target * input
    if reduction == "batchmean":
        return sum_of_all(loss) / loss.shape[0] if loss.ndim else sum_of_all(loss)
    return reduced("kl_div", loss, reduction)


@in_float32
@in_positions("input", "target", "log_input", "full", "size_average", "eps", "reduce", "reduction")
def poisson_nll_loss(
    input: Any, target: Any, *, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Any:
    """exp(input) - target * input for a logarithmic rate, input - target * log(input + eps) otherwise; `full` adds Stirling's term."""
    loss = pointwise.poisson(input, target) if log_input else input - target * log(input + eps)
    if full:
        large = target > 1
        safe = where(large, target, 2.0)
        loss = loss + where(large, safe * log(safe) - safe + log(safe * (2.0 * math.pi)) * 0.5, 0.0)
    return reduced("poisson_nll_loss", loss, reduction)


@rounds_once
@in_positions("input", "target", "var", "full", "eps", "reduction")
def gaussian_nll_loss(
    input: Any, target: Any, var: Any, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """0.5 * (log(v) + (input - target) ** 2 / v) with v = max(var, eps); gradients flow to var as if it were not limited.

    `full` adds 0.5 * log(2 pi)."""
    if not hasattr(var, "shape"):
        raise TypeError(f"gaussian_nll_loss(): expected var to be a Tensor, got {var.__class__.__name__}")
    if var._sizes == tuple(input._sizes[:-1]) and var.ndim != input.ndim:
        var = reshape(var, shape=(*var.shape, 1))
    limited = var + (maximum(var, eps) - var).detach()
    difference = input - target
    loss = (log(limited) + difference * difference / limited) * 0.5
    if full:
        loss = loss + 0.5 * math.log(2.0 * math.pi)
    return reduced("gaussian_nll_loss", loss, reduction)


@in_float32
@in_positions("input", "target", "margin", "size_average", "reduce", "reduction")
def hinge_embedding_loss(input: Any, target: Any, *, margin: float = 1.0, reduction: str = "mean") -> Any:
    """input where target is 1, max(0, margin - input) where it is -1."""
    loss = where(target != 1, (margin - input).clamp(0), 0.0) + where(target != -1, input, 0.0)
    return reduced("hinge_embedding_loss", loss, reduction)


@in_float32
@in_positions("input", "target", "size_average", "reduce", "reduction")
def soft_margin_loss(input: Any, target: Any, *, reduction: str = "mean") -> Any:
    """log(1 + exp(-target * input)) for targets 1 and -1."""
    return reduced("soft_margin_loss", pointwise.soft_margin(input, target), reduction)


@in_float32
@in_positions("input1", "input2", "target", "margin", "size_average", "reduce", "reduction")
def margin_ranking_loss(input1: Any, input2: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean") -> Any:
    """max(0, -target * (input1 - input2) + margin) for targets 1 and -1."""
    return reduced("margin_ranking_loss", pointwise.margin_ranking(input1, input2, target, margin), reduction)


def _at_least_zero(x: Any) -> Any:
    """max(x, 0) with PyTorch's gradient of clamp_min: 1 at 0."""
    return where(x < 0, 0.0, x)


@in_float32
@in_positions("input", "target", "p", "margin", "weight", "size_average", "reduce", "reduction")
def multi_margin_loss(
    input: Any, target: Any, *, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Any:
    """The mean over the other classes i of max(0, margin - input[target] + input[i]) ** p, for scores (C,) or (N, C); p is 1 or 2."""
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss(): only p == 1 and p == 2 supported, got {p}")
    if input.ndim == 0:
        input = reshape(input, shape=(1,))
    if input.ndim == 1 and target._sizes == (1,):
        target = reshape(target, shape=())
    axis = _class_axis("multi_margin_loss", input, target, weight)
    shape = (*target._sizes, 1)
    position = reshape(target, shape=shape)
    excess = _at_least_zero(margin - indexing.gather(input, position, dim=axis) + input)
    excess = excess if p == 1 else excess * excess
    if weight is not None:
        excess = excess * reshape(indexing.index_select(weight, target, dim=0), shape=shape)
    classes = input._sizes[axis]
    others = position != arange(0, 1, length=classes, dtype=target.dtype)
    loss = primitives.sum_(where(others, excess, 0.0), dims=(axis,), keepdim=False) / float(classes)
    return reduced("multi_margin_loss", loss, reduction)


@in_float32
@in_positions("input1", "input2", "target", "margin", "size_average", "reduce", "reduction")
def cosine_embedding_loss(input1: Any, input2: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean") -> Any:
    """1 - cos(input1, input2) where target is 1, max(0, cos - margin) where it is -1; the vectors lie along the last dimension."""
    cosine = cosine_similarity(input1, input2, dim=-1)
    loss = where(target == 1, 1.0 - cosine, 0.0) + where(target == -1, _at_least_zero(cosine - margin), 0.0)
    return reduced("cosine_embedding_loss", loss, reduction)


@in_float32
@in_positions("anchor", "positive", "negative", "margin", "p", "eps", "swap", "size_average", "reduce", "reduction")
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) with the p-norm distance over the last dimension.

    swap: the distance of positive and negative is used instead of d(anchor, negative) where it is smaller."""
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced("triplet_margin_loss", _at_least_zero(near - far + margin), reduction)


@of_tensors
@rounds_once
def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """triplet_margin_loss with any distance of two tensors, pairwise_distance by default.  Raises ValueError unless margin is positive."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced("triplet_margin_with_distance_loss", _at_least_zero(margin + near - far), reduction)


@rounds_once
@in_positions("input", "target", "weight", "size_average", "reduce", "reduction")
def multilabel_soft_margin_loss(input: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    """The binary cross entropy of logits (N, C), averaged over the classes, of targets 0 and 1."""
    loss = _weighted(-(target * logsigmoid(input) + (1 - target) * logsigmoid(-input)), weight)
    classes = loss.shape[loss.ndim - 1]
    loss = primitives.sum_(loss, dims=(loss.ndim - 1,), keepdim=False) / float(classes)
    return reduced("multilabel_soft_margin_loss", loss, reduction)


@in_float32
@in_positions("input", "target", "size_average", "reduce", "reduction")
def multilabel_margin_loss(input: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The mean over classes of max(0, 1 - (input[y] - input[i])), summed over the labels y and all other classes i.

    input: (C,) or (N, C).

    target: int64 of the shape of `input`, the labels of each sample, ended by -1.  Raises
    RuntimeError for other shapes."""
    if input.ndim not in (1, 2) or target._sizes != input._sizes:
        raise RuntimeError(
            f"multilabel_margin_loss(): expected scores (C,) or (N, C) and targets of that shape, got {list(input._sizes)} and "
            f"{list(target._sizes)}"
        )
    scores, labels = (input, target) if input.ndim == 2 else (input.unsqueeze(0), target.unsqueeze(0))
    batch, classes = scores.shape
    counts = cumsum(cast(labels == -1, dtype=labels.dtype), dim=1) == 0
    positions = where(counts, labels, 0)
    marks = indexing.scatter_add(
        full(0, shape=(batch, classes), dtype=labels.dtype), positions, cast(counts, dtype=labels.dtype), dim=1
    )
    others = reshape(marks == 0, shape=(batch, 1, classes)) & reshape(counts, shape=(batch, classes, 1))
    own = reshape(indexing.gather(scores, positions, dim=1), shape=(batch, classes, 1))
    excess = _at_least_zero(1.0 - (own - reshape(scores, shape=(batch, 1, classes))))
    loss = primitives.sum_(where(others, excess, 0.0), dims=(1, 2), keepdim=False) / float(classes)
    return reduced("multilabel_margin_loss", loss if input.ndim == 2 else reshape(loss, shape=()), reduction)
