"""Normalisations: of layers, groups, batches, instances, by root mean square, of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.autograd.grad_mode import no_grad
from tracejit.core.dtypes import EPSILON
from tracejit.core.op import Promotion
from tracejit.core.precision import like_first, rounds_once
from tracejit.core.promotion import common_dtype
from tracejit.core.shapes import broadcast_shapes, float_product, normalise_dim, product
from tracejit.functional.support import same_dtype, trailing_dims
from tracejit.ops import reduce as primitives
from tracejit.ops.composites.normalisation import batch_norm as normalised_batch
from tracejit.ops.composites.normalisation import layer_norm as normalised_layers
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import maximum
from tracejit.ops.elementwise.mathematics import rsqrt
from tracejit.ops.movement.copies import clone, pad
from tracejit.ops.movement.views import detach, expand, reshape, slice_
from tracejit.ops.public.keywords import of_tensors, write_out
from tracejit.ops.public.norms import pdist, vector_norm

__all__ = [
    "batch_norm", "cosine_similarity", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "pairwise_distance",
    "pdist", "rms_norm",
]  # fmt: skip


def _moments(x: Any, dims: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """(deviation from the mean, mean, biased variance) over `dims`, kept as dimensions of size 1; in two passes.

    The variance is that around a constant, less the square of the mean's distance from it (0): so its gradient does not pass through the
    mean, where it would cancel, and the gradient of the mean need not wait for it.  Right to any order of derivatives."""
    count = float_product(x.shape[d] for d in dims)
    mean = primitives.sum_(x, dims=dims, keepdim=True) / count
    constant = detach(mean)
    around, distance = x - constant, mean - constant
    return x - mean, mean, primitives.sum_(around * around, dims=dims, keepdim=True) / count - distance * distance


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


@of_tensors
@like_first()
def layer_norm(input: Any, normalized_shape: int | Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Zero mean and unit variance over the trailing dimensions `normalized_shape`; then * weight + bias (each of that shape, or None).

    Raises RuntimeError where the shapes do not fit."""
    dims = trailing_dims("layer_norm", input, normalized_shape, weight, bias)
    same_dtype("layer_norm", input, weight=weight, bias=bias)
    return normalised_layers(input, weight, bias, dims=dims, eps=float(eps))[0]


@of_tensors
@like_first()
def rms_norm(input: Any, normalized_shape: int | Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    """input / sqrt(mean(input ** 2) + eps) over the trailing dimensions; eps defaults to the machine epsilon of the dtype."""
    dims = trailing_dims("rms_norm", input, normalized_shape, weight, None)
    if eps is None:
        eps = EPSILON[input.dtype]
    square = primitives.sum_(input * input, dims=dims, keepdim=True) / float_product(input._sizes[d] for d in dims)
    out = _affine(input * rsqrt(square + eps), weight, None)
    return out if out.dtype is input.dtype else cast(out, dtype=input.dtype)


@of_tensors
@like_first()
def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Zero mean and unit variance within each of `num_groups` groups of channels of an (N, C, ...) input; weight and bias of shape (C,)."""
    if input.ndim < 2:
        raise RuntimeError(f"group_norm(): expected at least 2 dimensions, got shape {list(input._sizes)}")
    batch, channels = input._sizes[:2]
    if num_groups < 1 or channels % num_groups:
        raise RuntimeError(
            f"group_norm(): expected the number of channels, {channels}, to be divisible by num_groups, got {num_groups}"
        )
    _per_channel("group_norm", channels, weight=weight, bias=bias)
    same_dtype("group_norm", input, weight=weight, bias=bias)
    groups = input.reshape(batch, num_groups, product(input._sizes[1:]) // num_groups)
    out = normalised_layers(groups, None, None, dims=(2,), eps=float(eps))[0].reshape(input._sizes)
    return _affine(out, _channelwise(weight, input.ndim), _channelwise(bias, input.ndim))


def _per_channel(name: str, channels: int, **vectors: Any) -> None:
    for argument, value in vectors.items():
        if value is not None and value._sizes != (channels,):
            wanted = f"expected {argument} to be a vector of {channels} elements (the channels of input)"
            raise RuntimeError(f"{name}(): {wanted}, got shape {list(value.shape)}")


def _channelwise(vector: Any, ndim: int) -> Any:
    """A vector of channels as something that broadcasts along dimension 1."""
    return None if vector is None else reshape(vector, shape=(1, vector.shape[0], *(1,) * (ndim - 2)))


@of_tensors
@like_first("running_mean", "running_var")
def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Zero mean and unit variance of each channel of an (N, C, ...) input: those of the batch in training, else the running ones.

    In training, running_mean and running_var (if given) are changed in place: (1 - momentum) of the old and momentum of the batch's,
    the variance unbiased; an empty batch changes
    nothing.  Raises ValueError for a batch of one value per channel in training."""
    same_dtype("batch_norm", input, weight=weight, bias=bias)
    if 0 in input._sizes:
        return clone(input)
    if input.ndim < 2:
        raise RuntimeError(f"batch_norm(): expected at least 2 dimensions, got shape {list(input._sizes)}")
    channels = input._sizes[1]
    _per_channel("batch_norm", channels, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    dims = (0, *range(2, input.ndim))
    count = product(input._sizes[d] for d in dims)
    if training:
        if count == 1:
            raise ValueError(
                f"batch_norm(): expected more than 1 value per channel when training, got input size {list(input._sizes)}"
            )
        out, mean, variance = normalised_batch(input, weight, bias, eps=float(eps))
        with no_grad():
            _update(running_mean, mean, momentum)
            _update(running_var, variance * (count / max(count - 1, 1)), momentum)
        return out
    if running_mean is None or running_var is None:
        raise RuntimeError("batch_norm(): expected running_mean and running_var to be given when training=False")
    deviation, variance = input - _channelwise(running_mean, input.ndim), _channelwise(running_var, input.ndim)
    return _affine(deviation * rsqrt(variance + eps), _channelwise(weight, input.ndim), _channelwise(bias, input.ndim))


def _update(running: Any, batch: Any, momentum: float) -> None:
    if running is not None:
        with no_grad():
            running.copy_(running * (1.0 - momentum) + reshape(batch, shape=running._sizes) * momentum)


@of_tensors
@like_first("running_mean", "running_var")
def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Zero mean and unit variance of each channel of each sample of an (N, C, ...) input.

    With use_input_stats the running statistics (if given) move towards the mean over the batch of the samples' ones, else they are used."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.ndim < 3:
        raise RuntimeError(f"instance_norm(): expected at least 3 dimensions, got shape {list(input._sizes)}")
    batch, channels = input._sizes[:2]
    _per_channel("instance_norm", channels, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    dims = tuple(range(2, input.ndim))
    count = product(input._sizes[d] for d in dims)
    if count == 1:
        raise ValueError(
            f"instance_norm(): expected more than 1 spatial element when training, got input size {list(input._sizes)}"
        )
    out, mean, variance = normalised_layers(input, None, None, dims=dims, eps=float(eps))
    for running, statistic in ((running_mean, mean), (running_var, variance * (count / max(count - 1, 1)))):
        _update(running, primitives.sum_(statistic, dims=(0,), keepdim=True) / batch, momentum)
    return _affine(out, _channelwise(weight, input.ndim), _channelwise(bias, input.ndim))


@of_tensors
@rounds_once
def local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """input / (k + alpha * mean of squares over `size` neighbouring channels) ** beta; channels are dimension 1."""
    if input.ndim < 3:
        raise ValueError(f"local_response_norm(): expected at least 3 dimensions, got shape {list(input._sizes)}")
    rest = (0,) * (input.ndim - 2)
    square = pad(input * input, 0.0, low=(0, size // 2, *rest), high=(0, (size - 1) // 2, *rest))
    total, channels = None, input._sizes[1]
    for offset in range(size):
        part = slice_(square, dim=1, start=offset, stop=offset + channels, step=1)
        total = part if total is None else total + part
    assert total is not None
    return input / (total / float(size) * alpha + k) ** beta


@of_tensors
@rounds_once
def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:
    """input / max(its p-norm along `dim`, eps).  `out`: a tensor that gets the result, which has no gradient then."""
    if out is not None:
        return write_out("normalize", out, normalize(input, p, dim, eps))
    dims = (normalise_dim("normalize", dim, input.ndim),) if input.ndim else ()
    return input / maximum(vector_norm(input, p, dims, True), eps)


@of_tensors
@rounds_once
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """The cosine of the angle between x1 and x2 (which broadcast) along `dim`; each norm is at least eps."""
    shape = broadcast_shapes("cosine_similarity", x1._sizes, x2._sizes)
    dims = (normalise_dim("cosine_similarity", dim, len(shape)),) if shape else ()
    dtype = common_dtype((x1, x2), Promotion.FLOAT)
    first, second = (expand(x if x.dtype is dtype else cast(x, dtype=dtype), shape=shape) for x in (x1, x2))
    cosine = first / maximum(vector_norm(first, 2, dims, True), eps) * (second / maximum(vector_norm(second, 2, dims, True), eps))
    return primitives.sum_(cosine, dims=dims, keepdim=False)


@of_tensors
@rounds_once
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    difference = x1 - x2 + eps
    return vector_norm(difference, p, (difference.ndim - 1,) if difference.ndim else (), keepdim)
