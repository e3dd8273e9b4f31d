"""Softmax, its logarithm, and the likelihood of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.core import kernels
from tracejit.core.aval import Aval
from tracejit.core.floating import quietly
from tracejit.ops.composites.rows import summed
from tracejit.ops.creation import full
from tracejit.ops.declare import composite
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.elementwise.mathematics import exp, log
from tracejit.ops.indexing import gather, scatter, scatter_add
from tracejit.ops.movement.views import expand, reshape
from tracejit.ops.reduce import amax, sum_
from tracejit.ops.samples import Samples, cases, floats, integers

__all__ = ["cross_entropy", "log_softmax", "nll_loss", "softmax"]


def _same(x: Aval, dim: int) -> Aval:
    return x


def _samples() -> Samples:
    return cases(
        (floats(5), {"dim": 0}), (floats(2, 3).T, {"dim": 0}), (floats(2, 3, 2), {"dim": 1}), (floats(0, 2), {"dim": 1}),
    )  # fmt: skip


def _shifted(x: Any, dim: int) -> Any:
    return x - amax.of(x, dims=(dim,), keepdim=True)


def _softmax_expansion(x: Any, dim: int) -> Any:
    e = exp.of(_shifted(x, dim))
    return e / sum_.of(e, dims=(dim,), keepdim=True)


@composite(_same, _softmax_expansion, traits=("quiet",), samples=_samples())
def softmax(x: Any, dim: int) -> Any:
    """exp(x) / sum(exp(x)) along `dim`, which has elements; shifted by the maximum so that it does not overflow."""
    out = _rows("normalised rows", x, dim)
    return quietly(_normalised, x, dim) if out is None else out


def _normalised(x: Any, dim: int) -> Any:
    out = x - np.maximum.reduce(x, axis=dim, keepdims=True)
    np.exp(out, out=out)
    out /= summed(out, (dim,))
    return out


def _rows(form: str, x: Any, dim: int) -> Any:
    """What a kernel makes of each row, if these are contiguous; else None."""
    run = kernels.floating(form, x) if dim == x.ndim - 1 else None
    if run is None:
        return None
    out, length = np.empty(x.shape, x.dtype), x.shape[-1]
    run(out, x, x.size // length, length)
    return out


def softmax_gradient(out: Any, g: Any, dim: int) -> Any:
    """The gradient of what softmax gave `out` for."""
    if isinstance(out, np.ndarray) and isinstance(g, np.ndarray):
        gradient = g * out
        total = np.add.reduce(gradient, axis=dim, keepdims=True)  # not by BLAS: what cancels here is sensitive to its roundings
        np.subtract(g, total, out=gradient)
        gradient *= out
        return gradient
    return (g - sum_.of(g * out, dims=(dim,), keepdim=True)) * out


@softmax.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    return softmax_gradient(c.outputs[0], g, c.attributes["dim"])


def _log_softmax_expansion(x: Any, dim: int) -> Any:
    x = _shifted(x, dim)
    return x - log.of(sum_.of(exp.of(x), dims=(dim,), keepdim=True))


@composite(_same, _log_softmax_expansion, traits=("quiet",), samples=_samples())
def log_softmax(x: Any, dim: int) -> Any:
    """The logarithm of softmax along `dim`, which has elements, without its rounding error."""
    out = _rows("logarithms of normalised rows", x, dim)
    return quietly(_log_normalised, x, dim) if out is None else out


def _log_normalised(x: Any, dim: int) -> Any:
    out = x - np.maximum.reduce(x, axis=dim, keepdims=True)
    out -= np.log(summed(np.exp(out), (dim,)))
    return out


@log_softmax.vjp(saves="out")
def _(c: Any, g: Any) -> Any:
    (out,), dim = c.outputs, c.attributes["dim"]
    total = sum_.of(g, dims=(dim,), keepdim=True)
    share = exp.of(out)
    if isinstance(share, np.ndarray):
        share *= total
        return np.subtract(g, share, out=share)
    return g - share * total


def _likelihood_rule(logp: Aval, target: Aval, dim: int, ignored: int, reduction: str) -> Aval:
    return Aval(target.shape if reduction == "none" else (), logp.dtype)


def _kept(target: Any, ignored: int) -> tuple[Any, Any]:
    """(which targets count, the targets with a valid class in place of the others)."""
    kept = target != ignored
    return kept, where.of(kept, target, 0)


def _along(x: Any, dim: int) -> Any:
    """x with a dimension of size 1 at `dim`."""
    return reshape.of(x, shape=(*x.shape[:dim], 1, *x.shape[dim:]))


def _all(x: Any) -> Any:
    return sum_.of(x, dims=tuple(range(len(x.shape))), keepdim=False)


def _likelihood(logp: Any, target: Any, dim: int, ignored: int, reduction: str) -> Any:
    kept, safe = _kept(target, ignored)
    loss = where.of(kept, -reshape.of(gather.of(logp, _along(safe, dim), dim=dim), shape=target.shape), 0.0)
    if reduction == "none":
        return loss
    total = _all(loss)
    return total if reduction == "sum" else total / _all(cast.of(kept, dtype=loss.dtype))


@composite(
    _likelihood_rule,
    _likelihood,
    traits=("raises",),
    other=1,
    samples=cases(
        (floats(4), integers(high=4), {"dim": 0, "reduction": "mean"}),
        (floats(3, 4), integers(3, high=4), {"dim": 1, "reduction": "mean"}),
        (floats(3, 4), integers(3, high=4), {"dim": 1, "reduction": "sum"}),
        (floats(2, 3, 5), integers(2, 5), {"dim": 1, "reduction": "none"}),
        ignored=1,
    ),
)
def nll_loss(logp: Any, target: Any, dim: int, ignored: int, reduction: str) -> Any:
    """The negative log likelihood of the classes `target` along `dim`; those that equal `ignored` count nothing.  reduction: "none", "sum"
    or "mean".  Raises IndexError for classes that do not exist."""
    run = kernels.floating("likelihood of rows", logp) if _are_rows(logp, target, dim, ignored) else None
    if run is not None:
        loss = np.empty(target.shape, logp.dtype)
        if not run(loss, logp, target, target.size, logp.shape[-1], ignored):
            return _together(loss, target, ignored, reduction)
    kept, safe = target != ignored, target
    if not kept.all():
        safe = np.where(kept, target, 0)
    picked = gather.evaluate(logp, safe.reshape((*target.shape[:dim], 1, *target.shape[dim:])), dim=dim).reshape(target.shape)
    loss = np.where(kept, np.negative(picked), picked.dtype.type(0))
    if reduction == "none":
        return loss
    total = np.add.reduce(loss, axis=None)
    return total if reduction == "sum" else total / loss.dtype.type(np.count_nonzero(kept))


@nll_loss.vjp(saves="1")
def _(c: Any, g: Any) -> Any:
    logp, target, dim, reduction = c.avals[0], c.inputs[1], c.attributes["dim"], c.attributes["reduction"]
    kept, safe = _kept(target, c.attributes["ignored"])
    weight = cast.of(kept, dtype=logp.dtype)
    if reduction == "mean":
        g = g / _all(weight)
    share = -g * weight
    if share.shape != target.shape:
        share = expand.of(share, shape=target.shape)
    zeros = full.beside(g, 0.0, shape=logp.shape, dtype=logp.dtype)
    return scatter.of(zeros, _along(safe, dim), _along(share, dim), dim=dim), None


def _entropy_rule(x: Aval, target: Aval, dim: int, ignored: int, reduction: str) -> tuple[Aval, Aval]:
    return _likelihood_rule(x, target, dim, ignored, reduction), x


def _entropy_expansion(x: Any, target: Any, dim: int, ignored: int, reduction: str) -> tuple[Any, Any]:
    x = _shifted(x, dim)
    e = exp.of(x)
    total = sum_.of(e, dims=(dim,), keepdim=True)
    return _likelihood(x - log.of(total), target, dim, ignored, reduction), e / total


@composite(
    _entropy_rule,
    _entropy_expansion,
    multiple=True,
    traits=("raises",),
    other=1,
    samples=cases(
        (floats(4), integers(high=4), {"dim": 0, "reduction": "mean"}),
        (floats(3, 4), integers(3, high=4), {"dim": 1, "reduction": "mean"}),
        (floats(3, 4), integers(3, high=4), {"dim": 1, "reduction": "sum"}),
        (floats(2, 3, 5), integers(2, 5), {"dim": 1, "reduction": "none"}),
        ignored=1,
    ),
)
def cross_entropy(x: Any, target: Any, dim: int, ignored: int, reduction: str) -> tuple[Any, Any]:
    """(nll_loss of log_softmax(x), softmax(x)) in one step; of at least one class."""
    found = _entropy_rows(x, target, dim, ignored, reduction)
    return _entropy(x, target, dim, ignored, reduction) if found is None else found


def _entropy_rows(x: Any, target: Any, dim: int, ignored: int, reduction: str) -> tuple[Any, Any] | None:
    """The same by a kernel, where rows are contiguous and all targets in range; else None."""
    run = kernels.floating("entropy of rows", x) if _are_rows(x, target, dim, ignored) else None
    if run is None:
        return None
    loss, share = np.empty(target.shape, x.dtype), np.empty(x.shape, x.dtype)
    if run(loss, share, x, target, target.size, x.shape[-1], ignored):
        return None
    return _together(loss, target, ignored, reduction), share


_FAR = 1 << 63


def _are_rows(x: Any, target: Any, dim: int, ignored: int) -> bool:
    """Whether the classes lie side by side in `x`, and `target` is what kernels take."""
    if dim != x.ndim - 1 or target.shape != x.shape[:-1] or not -_FAR < ignored < _FAR:
        return False
    return target.dtype == np.int64 and target.flags.c_contiguous and target.flags.aligned


def _together(loss: Any, target: Any, ignored: int, reduction: str) -> Any:
    """The losses of rows reduced."""
    if reduction == "none":
        return loss
    total = np.add.reduce(loss, axis=None)
    return total if reduction == "sum" else total / loss.dtype.type(np.count_nonzero(target != ignored))


def _entropy(x: Any, target: Any, dim: int, ignored: int, reduction: str) -> tuple[Any, Any]:
    share = x - np.maximum.reduce(x, axis=dim, keepdims=True)
    kept, safe = target != ignored, target
    if not kept.all():
        safe = np.where(kept, target, 0)
    picked = gather.evaluate(share, safe.reshape((*target.shape[:dim], 1, *target.shape[dim:])), dim=dim)
    np.exp(share, out=share)
    total = summed(share, (dim,))
    share /= total
    loss = np.where(kept, (np.log(total) - picked).reshape(target.shape), x.dtype.type(0))
    if reduction != "none":
        loss = np.add.reduce(loss, axis=None)
        if reduction == "mean":
            loss = loss / loss.dtype.type(np.count_nonzero(kept))
    return loss, share


cross_entropy.named("NllLossBackward0")


@cross_entropy.vjp(saves="1 out1")
def _(c: Any, g: Any, g_share: Any) -> Any:
    target, share, dim = c.inputs[1], c.outputs[1], c.attributes["dim"]
    gx = None if g_share is None else softmax_gradient(share, g_share, dim)
    if g is not None:
        kept, safe = _kept(target, c.attributes["ignored"])
        weight = cast.of(kept, dtype=c.avals[0].dtype)
        if c.attributes["reduction"] == "mean":
            g = g / _all(weight)
        on_arrays = isinstance(share, np.ndarray)
        if on_arrays and not g.ndim and kept.all():  # one number for all
            scale = g
        else:
            scale = _along(g * weight, dim)
        part = share * scale
        at = _along(safe, dim)
        if on_arrays:
            np.put_along_axis(part, at, np.take_along_axis(part, at, dim) - scale, dim)
        else:
            part = scatter_add.of(part, at, -scale, dim=dim)
        gx = part if gx is None else gx + part
    return gx, None
