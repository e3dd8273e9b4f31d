"""Reductions: many elements to one.  `dims` is a sorted tuple of non-negative dimensions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.core.floating import called_quietly
from tracejit.core.interpreter import state
from tracejit.core.kernels import reduced_rows
from tracejit.core.op import Kind
from tracejit.core.shapes import float_product, product
from tracejit.ops.declare import composite, custom, reduced_shape, reduction
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.movement.copies import clone, flip
from tracejit.ops.movement.views import expand, permute, reshape
from tracejit.ops.samples import Samples, bools, cases, floats
from tracejit.ops.scan import cumprod, exclusive

__all__ = ["all_", "amax", "amin", "any_", "argmax", "argmin", "mean", "prod", "sum_"]

Dims = tuple[int, ...]
_MAXIMUM: Any = np.maximum.reduce  # Any: NumPy's signatures want keepdims as a literal
_SUM: Any = np.add.reduce
_MINIMUM: Any = np.minimum.reduce
_ANY: Any = np.logical_or.reduce
_ALL: Any = np.logical_and.reduce


def _spread(g: Any, shape: tuple[int, ...], dims: Dims, keepdim: bool) -> Any:
    """A reduced value laid out again over the shape it was reduced from (a view)."""
    if not keepdim and dims and len(g.shape):  # a lone number spreads over any shape as it is
        g = reshape.of(g, shape=reduced_shape(shape, dims, True))
    return expand.of(g, shape=shape)


def _samples() -> Samples:
    return cases(
        (floats(5), {"dims": (0,), "keepdim": False}), (floats(2, 3).T, {"dims": (1,), "keepdim": True}),
        (floats(2, 3, 2), {"dims": (0, 2), "keepdim": False}), (floats(), {"dims": (), "keepdim": False}),
        (floats(0, 2), {"dims": (1,), "keepdim": False}),
    )  # fmt: skip


def _truth_samples() -> Samples:
    return cases(
        (bools(5), {"dims": (0,), "keepdim": False}),
        (bools(2, 3).T, {"dims": (0, 1), "keepdim": True}),
        (bools(0, 2), {"dims": (0,), "keepdim": False}),
    )


def _position_samples() -> Samples:
    return cases(
        (floats(5), {"dim": 0, "keepdim": False}),
        (floats(2, 3).T, {"dim": 1, "keepdim": True}),
        (floats(), {"dim": 0, "keepdim": False}),
    )


@reduction("sum", name="sum", traits=("adds",), samples=_samples(), ufunc=np.add.reduce, rows="sum of rows")
def sum_(x: Any, dims: Dims, keepdim: bool) -> Any:
    """Sum of the elements along `dims`; of the input's dtype (the public sum() widens integers to int64)."""


def _over_all(name: str) -> Callable[[Any], str]:
    """The name of a reduction's nodes: 0 for one of all dimensions, 1 for one of some."""
    return lambda node: f"{name}Backward{int(node.out_meta[0] != ())}"


sum_.named(_over_all("Sum"))


@sum_.vjp()
def _(c: Any, g: Any) -> Any:
    return _spread(g, c.avals[0].shape, c.attributes["dims"], c.attributes["keepdim"])


def _mean_rule(x: Aval, dims: Dims, keepdim: bool) -> Aval:
    return Aval(reduced_shape(x.shape, dims, keepdim), x.dtype)


def _count(shape: Any, dims: Dims) -> float:
    return float_product(shape[d] for d in dims)


@composite(
    _mean_rule,
    lambda x, dims, keepdim: sum_.of(x, dims=dims, keepdim=keepdim) / _count(x.shape, dims),
    traits=("quiet",),
    samples=_samples(),
)
def mean(x: Any, dims: Dims, keepdim: bool) -> Any:
    """The sum along `dims` divided by the number of its terms."""
    total = reduced_rows("sum of rows", x, dims, keepdim)
    if total is None:
        total = called_quietly(state.run_quietly, _SUM, x, dims, x.dtype, None, keepdim)
    return called_quietly(state.run_quietly, np.true_divide, total, _count(x.shape, dims))


mean.named(_over_all("Mean"))


@mean.vjp()
def _(c: Any, g: Any) -> Any:
    shape, dims = c.avals[0].shape, c.attributes["dims"]
    return _spread(g / _count(shape, dims), shape, dims, c.attributes["keepdim"])


@reduction("prod", samples=_samples(), ufunc=np.multiply.reduce, rows="prod of rows")
def prod(x: Any, dims: Dims, keepdim: bool) -> Any:
    """Product of the elements along `dims`."""


prod.named(_over_all("Prod"))


@prod.vjp(saves="0")
def _(c: Any, g: Any) -> Any:
    # the product of the others, which exists where an element is 0 too: of those before it times of those after it
    (x,), dims, shape = c.inputs, c.attributes["dims"], c.avals[0].shape
    order = tuple(i for i in range(len(shape)) if i not in dims) + dims
    moved = permute.of(x, dims=order)
    rest = tuple(shape[d] for d in order[: len(order) - len(dims)])
    flat = reshape.of(clone.of(moved), shape=(*rest, product(shape[d] for d in dims)))
    last = len(rest)
    before = exclusive(cumprod.of(flat, dim=last), last, 1.0)
    after = flip.of(exclusive(cumprod.of(flip.of(flat, dims=(last,)), dim=last), last, 1.0), dims=(last,))
    others = permute.of(
        reshape.of(before * after, shape=tuple(shape[d] for d in order)), dims=tuple(order.index(i) for i in range(len(order)))
    )
    return _spread(g, shape, dims, c.attributes["keepdim"]) * others


def _share_of_extreme(c: Any, g: Any) -> Any:
    """The gradient is divided evenly among the elements that equal the extreme, as PyTorch's amax does."""
    shape, dims, keepdim = c.avals[0].shape, c.attributes["dims"], c.attributes["keepdim"]
    (x,), (out,) = c.inputs, c.outputs
    mask = cast.of(x == _spread(out, shape, dims, keepdim), dtype=c.avals[0].dtype)
    count = sum_.of(mask, dims=dims, keepdim=True)
    return mask * (_spread(g, shape, dims, keepdim) / count)


def _require_elements(name: str, x: Any, dims: Dims) -> None:
    if not x.size and any(x.shape[d] == 0 for d in dims):
        raise IndexError(
            f"{name}(): expected reduction dimensions {dims} to have elements, got a tensor of shape {list(x.shape)}"
        )


@reduction("max", samples=_samples(), ufunc=_MAXIMUM, evaluates=True)
def amax(x: Any, dims: Dims, keepdim: bool) -> Any:
    """Largest element along `dims`; NaN where there is one."""
    _require_elements("amax", x, dims)
    return _MAXIMUM(x, axis=dims, keepdims=keepdim)


amax.named(lambda node: "AmaxBackward0" if node.out_meta[0] else "MaxBackward1")
amax.vjp(saves="0 out")(_share_of_extreme)


@reduction("min", samples=_samples(), ufunc=_MINIMUM, evaluates=True)
def amin(x: Any, dims: Dims, keepdim: bool) -> Any:
    """Smallest element along `dims`; NaN where there is one."""
    _require_elements("amin", x, dims)
    return _MINIMUM(x, axis=dims, keepdims=keepdim)


amin.named(lambda node: "AminBackward0" if node.out_meta[0] else "MinBackward1")
amin.vjp(saves="0 out")(_share_of_extreme)


@reduction("any", result=dtypes.bool_, name="any", traits=("quiet",), samples=_truth_samples())
def any_(x: Any, dims: Dims, keepdim: bool) -> Any:
    """Whether any element along `dims` is nonzero."""
    return _ANY(x, axis=dims, keepdims=keepdim)


@reduction("all", result=dtypes.bool_, name="all", traits=("quiet",), samples=_truth_samples())
def all_(x: Any, dims: Dims, keepdim: bool) -> Any:
    """Whether all elements along `dims` are nonzero."""
    return _ALL(x, axis=dims, keepdims=keepdim)


def _position_rule(x: Aval, dim: int, keepdim: bool) -> Aval:
    return Aval(reduced_shape(x.shape, (dim,) if x.shape else (), keepdim), dtypes.int64)


def _position(find: Any) -> Any:
    def evaluate(x: Any, dim: int, keepdim: bool) -> Any:
        if x.ndim == 0:
            return np.zeros((), np.int64)
        _require_elements(find.__name__, x, (dim,))
        return find(x, axis=dim, keepdims=keepdim)

    extreme = "largest" if find is np.argmax else "smallest"
    evaluate.__doc__ = f"Position of the {extreme} element along `dim`: the first of equals, or the first NaN."
    return evaluate


_positions = partial(custom, Kind.REDUCTION, _position_rule, samples=_position_samples(), traits=("not differentiable", "quiet"))
argmax = _positions(name="argmax", reducer="argmax")(_position(np.argmax))
argmin = _positions(name="argmin", reducer="argmin")(_position(np.argmin))
