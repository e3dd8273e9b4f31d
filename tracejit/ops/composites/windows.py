"""The largest elements and the sums of windows over the last dimensions: what pooling is made of.

Eager mode goes over a window's elements, each of which is a slice with steps, where programs make an array of all windows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tracejit.core import kernels
from tracejit.core.aval import Aval
from tracejit.core.interpreter import state
from tracejit.core.op import Op
from tracejit.core.shapes import product
from tracejit.ops.creation import full
from tracejit.ops.declare import composite
from tracejit.ops.fused import gradients
from tracejit.ops.indexing import gather
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach, permute, reshape, select, slice_, unfold
from tracejit.ops.reduce import argmax, sum_
from tracejit.ops.samples import Samples, cases, floats

__all__ = ["max_of_windows", "sum_of_windows"]

Sizes = tuple[int, ...]


def _rule(x: Aval, size: Sizes, step: Sizes, gap: Sizes, outputs: Sizes) -> Aval:
    return Aval((*x.shape[: x.ndim - len(size)], *outputs), x.dtype)


def _samples() -> Samples:
    return cases(
        (floats(2, 7), {"size": (3,), "step": (2,), "gap": (1,), "outputs": (3,)}),
        (floats(2, 1, 4, 6), {"size": (2, 3), "step": (2, 3), "gap": (1, 1), "outputs": (2, 2)}),
        (floats(1, 6, 5), {"size": (2, 2), "step": (1, 2), "gap": (2, 1), "outputs": (4, 2)}),
    )


def _split(x: Any, dim: int, size: int, step: int, gap: int, outputs: int) -> Any:
    """All windows over one dimension; their elements are a new last one.  Windows that tile it are a reshape."""
    if step > 1:  # there may be a rest
        x = slice_.of(x, dim=dim, start=0, stop=(outputs - 1) * step + gap * (size - 1) + 1, step=1)
    if size != step or gap != 1:
        return unfold.of(x, dim=dim, size=size, step=step, dilation=gap)
    split = reshape.of(x, shape=(*x.shape[:dim], outputs, size, *x.shape[dim + 1 :]))
    return permute.of(split, dims=(*range(dim + 1), *range(dim + 2, len(split.shape)), dim + 1))


def _max(x: Any, size: Sizes, step: Sizes, gap: Sizes, outputs: Sizes) -> Any:
    first = len(x.shape) - len(size)
    for i, sizes in enumerate(zip(size, step, gap, outputs, strict=True)):
        x = _split(x, first + i, *sizes)
    elements = reshape.of(clone.of(x), shape=(*x.shape[: len(x.shape) - len(size)], product(size)))
    last = len(elements.shape) - 1
    best = argmax.of(detach.of(elements), dim=last, keepdim=True)
    return select.of(gather.of(elements, best, dim=last), 0, dim=last)


def _sum(x: Any, size: Sizes, step: Sizes, gap: Sizes, outputs: Sizes) -> Any:
    first = len(x.shape) - len(size)
    for i, sizes in enumerate(zip(size, step, gap, outputs, strict=True)):
        x = _split(x, first + i, *sizes)
        x = sum_.of(x, dims=(len(x.shape) - 1,), keepdim=False)
    return x


def _regions(size: Sizes, step: Sizes, gap: Sizes, outputs: Sizes) -> Iterator[tuple[Any, ...]]:
    """For each element of a window, where those of all windows are."""
    for at in itertools.product(*map(range, size)):
        yield (..., *[slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, s, n in zip(at, gap, step, outputs, strict=True)])


@composite(_rule, _max, name="max_of_windows", samples=_samples())
def _max_op(x: Any, **windows: Sizes) -> Any:
    """The largest element of each window, NaN where there is one.  The gradient goes to the first of equals."""
    parts = [x[region] for region in _regions(**windows)]
    out = np.array(parts[0], order="C")
    for part in parts[1:]:
        np.maximum(out, part, out=out)
    return out


@_max_op.vjp(saves="0 out")
def _(c: Any, g: Any) -> Any:
    x, out = c.inputs[0], c.outputs[0]
    if not isinstance(g, np.ndarray):
        return gradients(partial(_max, **c.attributes), (x,), (), (True,), g)
    gx, left = np.zeros_like(x, order="C"), np.ones(out.shape, np.bool_)
    undefined = out != out
    for region in _regions(**c.attributes):
        part = x[region]
        here = (part == out) | (undefined & (part != part))
        here &= left
        left ^= here
        gx[region] += np.where(here, g, 0)
    return gx


@composite(_rule, _sum, name="sum_of_windows", samples=_samples())
def _sum_op(x: Any, size: Sizes, step: Sizes, gap: Sizes, outputs: Sizes) -> Any:
    """The sum of each window, one dimension after the other."""
    first = x.ndim - len(size)
    for i, (k, s, d, n) in enumerate(zip(size, step, gap, outputs, strict=True)):
        before = (slice(None),) * (first + i)
        parts = [x[region] for region in ((*before, slice(j * d, j * d + (n - 1) * s + 1, s)) for j in range(k))]
        x = np.array(parts[0], order="C")
        for part in parts[1:]:
            x += part
    return x


@_sum_op.vjp()
def _(c: Any, g: Any) -> Any:
    aval = c.avals[0]
    if not isinstance(g, np.ndarray):
        zeros = full.beside(g, 0.0, shape=aval.shape, dtype=aval.dtype)
        return gradients(partial(_sum, **c.attributes), (zeros,), (), (True,), g)
    gx = np.zeros(aval.shape, g.dtype)
    for region in _regions(**c.attributes):
        gx[region] += g
    return gx


def _applied(op: Op, body: Callable[..., Any], x: Any, windows: dict[str, Sizes]) -> Any:
    array = getattr(x, "_array", None)
    if state.top is state.base and array is not None and kernels.has_dtype(array):
        return state.top.bind(op, (x,), windows)
    return body(x, **windows)


def max_of_windows(x: Any, size: Sizes, step: Sizes, gap: Sizes, outputs: Sizes) -> Any:
    """The largest element of each window of `size` elements, `gap` apart, of the last dimensions; windows begin `step` apart, and there are
    so many `outputs` of them in each dimension.  In eager mode it is one step of the tape."""
    return _applied(_max_op, _max, x, {"size": size, "step": step, "gap": gap, "outputs": outputs})


def sum_of_windows(x: Any, size: Sizes, step: Sizes, outputs: Sizes) -> Any:
    """The sum of each window; see `max_of_windows`."""
    return _applied(_sum_op, _sum, x, {"size": size, "step": step, "gap": (1,) * len(size), "outputs": outputs})
