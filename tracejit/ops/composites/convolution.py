"""Convolution (cross-correlation) over any number of spatial dimensions.

It and its two gradients are sums of products of three arrays, each of which is made of the other two: so the derivatives of each are
the others.  Where the processor has kernels for them (core/convolutions.py), these compute them, in eager mode and in programs.

Without kernels programs compute windows (a view), one copy, one product.  NumPy copies runs of a few elements slowly.  So the body lays
the windows of a padded input out over the flat positions of its memory where steps are 1: each element of a kernel then is one long run.
The positions at the edges, whose windows reach into the next row, are computed and dropped; in the gradient they are zeros.  Kernels
that are nearly as large as the input have few positions and large windows: there these are copied whole.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tracejit.core import convolutions, products
from tracejit.core.aval import Aval
from tracejit.core.convolutions import Geometry
from tracejit.core.dtypes import float32
from tracejit.core.shapes import product, size_range
from tracejit.ops.declare import composite
from tracejit.ops.linalg import matmul, transpose_matrix
from tracejit.ops.movement.copies import clone, pad
from tracejit.ops.movement.views import fold, permute, reshape, slice_, unfold
from tracejit.ops.reduce import sum_
from tracejit.ops.samples import cases, floats

__all__ = ["convolution", "convolution_input", "convolution_weight"]

Shape = tuple[int, ...]


def _sizes(x: Any, weight: Any, steps: Shape, low: Shape, high: Shape, gaps: Shape) -> Shape:
    """How many windows there are along each spatial dimension."""
    return tuple(
        (size + a + b - gap * (kernel - 1) - 1) // step + 1
        for size, kernel, step, a, b, gap in zip(x.shape[2:], weight.shape[2:], steps, low, high, gaps, strict=True)
    )


def _rule(x: Aval, weight: Aval, bias: Aval | None, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int) -> Aval:
    return Aval((x.shape[0], weight.shape[0], *_sizes(x, weight, steps, low, high, gaps)), x.dtype)


# ---- with primitives ------------------------------------------------------------------------------------------------
def _columns(x: Any, kernel: Shape, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int) -> Any:
    """(batch, groups, elements of a window, positions), or without groups where there is one."""
    rank = len(kernel)
    if any(low) or any(high):
        x = pad.of(x, 0.0, low=(0, 0, *low), high=(0, 0, *high))
    batch, channels = x.shape[:2]
    if max(kernel, default=1) > 1 or max(steps, default=1) > 1:
        for i in range(rank):
            x = unfold.of(x, dim=2 + i, size=kernel[i], step=steps[i], dilation=gaps[i])
        positions = product(x.shape[2 : 2 + rank])
        x = permute.of(x, dims=(0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    else:
        positions = product(x.shape[2:])
    inner = channels // groups * product(kernel)
    shape = (batch, inner, positions) if groups == 1 else (batch, groups, inner, positions)
    return reshape.of(clone.of(x), shape=shape)


def _matrix(weight: Any, groups: int) -> Any:
    outputs, inner = weight.shape[0], product(weight.shape[1:])
    return reshape.of(clone.of(weight), shape=(outputs, inner) if groups == 1 else (groups, outputs // groups, inner))


def _expansion(x: Any, weight: Any, bias: Any, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int) -> Any:
    sizes = _sizes(x, weight, steps, low, high, gaps)
    if bias is not None and convolutions.is_direct(x.dtype, (x.shape, weight.shape, (x.shape[0], weight.shape[0], *sizes))):
        out = convolution.of(x, weight, None, steps=steps, low=low, high=high, gaps=gaps, groups=groups)
        return out + reshape.of(bias, shape=(bias.shape[0], *(1,) * len(sizes)))
    out = matmul.of(_matrix(weight, groups), _columns(x, weight.shape[2:], steps, low, high, gaps, groups))
    out = reshape.of(out, shape=(x.shape[0], weight.shape[0], *sizes))
    return out if bias is None else out + reshape.of(bias, shape=(bias.shape[0], *(1,) * len(sizes)))


def _input_expansion(g: Any, weight: Any, lengths: Shape, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int) -> Any:
    batch, outputs, sizes = g.shape[0], weight.shape[0], g.shape[2:]
    kernel, rank, channels = weight.shape[2:], len(sizes), weight.shape[1] * groups
    columns = matmul.of(transpose_matrix(_matrix(weight, groups)), _flat_positions(g, groups, outputs))
    columns = reshape.of(columns, shape=(batch, channels, *kernel, *sizes))
    columns = permute.of(columns, dims=(0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    around = tuple(a + s + b for a, s, b in zip(low, lengths, high, strict=True))
    gx = fold.of(columns, dims=tuple(range(2, 2 + rank)), lengths=around, steps=steps, dilations=gaps)
    for i in range(rank):
        if low[i] or high[i]:
            gx = slice_.of(gx, dim=2 + i, start=low[i], stop=low[i] + lengths[i], step=1)
    return clone.of(gx) if any(low) or any(high) else gx


def _weight_expansion(g: Any, x: Any, kernel: Shape, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int) -> Any:
    outputs = g.shape[1]
    columns = _columns(x, kernel, steps, low, high, gaps, groups)
    together = sum_.of(matmul.of(_flat_positions(g, groups, outputs), transpose_matrix(columns)), dims=(0,), keepdim=False)
    return reshape.of(together, shape=(outputs, x.shape[1] // groups, *kernel))


def _flat_positions(g: Any, groups: int, outputs: int) -> Any:
    batch, positions = g.shape[0], product(g.shape[2:])
    shape = (batch, outputs, positions) if groups == 1 else (batch, groups, outputs // groups, positions)
    return reshape.of(clone.of(g), shape=shape)


# ---- on arrays ------------------------------------------------------------------------------------------------------
_BLOCK = 1 << 21
"""How many bytes of windows are made before they are used: they stay in a cache, where all of them may be many times its size."""


class _Layout:
    """Where the elements of windows lie in the memory of the padded input."""

    def __init__(self, x: Any, weight: Any, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int) -> None:
        self.batch, self.channels, self.groups = x.shape[0], x.shape[1], groups
        self.outer = tuple(a + s + b for a, s, b in zip(low, x.shape[2:], high, strict=True))
        self.kernel, self.sizes = tuple(weight.shape[2:]), _sizes(x, weight, steps, low, high, gaps)
        self.inside = (slice(None), slice(None), *[slice(a, a + s) for a, s in zip(low, x.shape[2:], strict=True)])
        self.rows = self.sizes[:1] + self.outer[1:]  # the positions that are computed: whole rows
        strides = [1] * len(self.outer)
        for i in range(len(strides) - 2, -1, -1):
            strides[i] = strides[i + 1] * self.outer[i + 1]
        self.strides, self.gaps = strides, gaps
        self.positions = (
            sum((n - 1) * s for n, s in zip(self.sizes, strides, strict=True)) + 1
        )  # from the first to the last one kept
        self.inner = self.channels // groups * product(self.kernel)

    def blocks(self, itemsize: int) -> list[slice]:
        """Parts of the batch whose windows are made together."""
        if product(self.kernel) == 1:  # they are the input itself
            return [slice(0, self.batch)]
        step = max(1, _BLOCK // max(1, self.groups * self.inner * self.positions * itemsize))
        return [slice(first, min(first + step, self.batch)) for first in size_range(0, self.batch, step)]

    def columns(self, x: Any) -> Any:
        """The windows' elements in a part of the batch, (images, groups, elements of a window, positions)."""
        if self.outer == tuple(x.shape[2:]):
            padded = np.ascontiguousarray(x)
        else:
            padded = np.zeros((x.shape[0], self.channels, *self.outer), x.dtype)
            padded[self.inside] = x
        shape = (x.shape[0], self.groups, self.inner, self.positions)
        if product(self.kernel) == 1:
            return padded.reshape(shape)
        item = padded.itemsize
        strides = (*padded.strides[:2], *[s * g * item for s, g in zip(self.strides, self.gaps, strict=True)], item)
        windows = np.ndarray((x.shape[0], self.channels, *self.kernel, self.positions), x.dtype, padded, 0, strides)
        return np.ascontiguousarray(windows).reshape(shape)

    def kept(self, x: Any) -> Any:
        """Of (batch, groups, channels, whole rows) the positions that are results, as (batch, channels, *sizes)."""
        return x.reshape((self.batch, -1, *self.rows))[(slice(None), slice(None), *[slice(n) for n in self.sizes])]

    def spread(self, g: Any) -> Any:
        """The gradient of the results at all positions, zeros at those that were dropped: (batch, groups, channels, positions)."""
        if self.rows == self.sizes:
            rows = np.ascontiguousarray(g)
        else:
            rows = np.zeros((*g.shape[:2], *self.rows), g.dtype)
            self.kept(rows)[...] = g
        return rows.reshape(self.batch, self.groups, -1, product(self.rows))[..., : self.positions]

    def folded(self, matrix: Any, flat: Any) -> Any:
        """The gradient of the input: the windows' own, `matrix` times that of the results at all positions, added up where they came
        from."""
        out = np.zeros((self.batch, self.channels, product(self.outer)), flat.dtype)
        ways = [
            ((slice(None), slice(None), *at), sum(k * g * s for k, g, s in zip(at, self.gaps, self.strides, strict=True)))
            for at in np.ndindex(*self.kernel)
        ]
        for block in self.blocks(flat.itemsize):
            windows = products.matmul(matrix, flat[block]).reshape(-1, self.channels, *self.kernel, self.positions)
            images = out[block]
            for at, start in ways:
                part = images[:, :, start : start + self.positions]
                np.add(part, windows[at], out=part)
        return out.reshape(self.batch, self.channels, *self.outer)[self.inside]


class _Windows:
    """The windows of each position that is kept, one after another: for kernels that are nearly as large as the input, which have few
    positions, and whose windows are long runs of memory.

    Arrays are (groups, images, *positions, channels of a group, *kernel), and matrices of these with images and positions as rows."""

    def __init__(self, x: Any, weight: Any, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int) -> None:
        self.batch, self.channels, self.groups = x.shape[0], x.shape[1] // groups, groups
        self.outer = tuple(a + s + b for a, s, b in zip(low, x.shape[2:], high, strict=True))
        self.kernel, self.sizes, self.gaps = tuple(weight.shape[2:]), _sizes(x, weight, steps, low, high, gaps), gaps
        self.inside = (slice(None), slice(None), *[slice(a, a + s) for a, s in zip(low, x.shape[2:], strict=True)])
        self.outputs, self.inner = weight.shape[0] // groups, self.channels * product(self.kernel)

    def blocks(self, itemsize: int) -> list[slice]:
        """Parts of the batch whose windows are made together."""
        step = max(1, _BLOCK // max(1, self.groups * self.inner * product(self.sizes) * itemsize))
        return [slice(first, min(first + step, self.batch)) for first in size_range(0, self.batch, step)]

    def windows(self, x: Any) -> Any:
        """(groups, rows, elements of a window) of some images."""
        padded = x
        if self.outer != tuple(x.shape[2:]):
            padded = np.zeros((*x.shape[:2], *self.outer), x.dtype)
            padded[self.inside] = x
        image, channel, *spatial = padded.strides
        strides = (channel * self.channels, image, *spatial, channel, *[s * g for s, g in zip(spatial, self.gaps, strict=True)])
        shape = (self.groups, len(x), *self.sizes, self.channels, *self.kernel)
        windows = as_strided(padded, shape, strides, writeable=False)
        return np.ascontiguousarray(windows).reshape(self.groups, -1, self.inner)

    def rows(self, g: Any) -> Any:
        """(groups, rows, outputs of a group) of (images, outputs, *positions)."""
        parts = g.reshape(len(g), self.groups, self.outputs, -1).transpose(1, 0, 3, 2)
        return np.ascontiguousarray(parts).reshape(self.groups, -1, self.outputs)

    def images(self, rows: Any) -> Any:
        """The way back."""
        parts = rows.reshape(self.groups, -1, product(self.sizes), self.outputs).transpose(1, 0, 3, 2)
        return parts.reshape(-1, self.groups * self.outputs, *self.sizes)

    def folded(self, windows: Any) -> Any:
        """Windows of some images added up where they came from, for each element of the input in the order of the kernel's elements."""
        parts = windows.reshape(self.groups, -1, *self.sizes, self.channels, *self.kernel)
        out = np.zeros((self.groups, parts.shape[1], self.channels, *self.outer), windows.dtype)
        rank, every = len(self.sizes), slice(None)
        if product(self.sizes) <= product(self.kernel):
            for position in reversed(list(np.ndindex(*self.sizes))):
                spans = zip(position, self.kernel, self.gaps, strict=True)
                there = out[(every, every, every, *[slice(p, p + g * (k - 1) + 1, g) for p, k, g in spans])]
                there += parts[(every, every, *position)]
        else:
            for element in np.ndindex(*self.kernel):
                spans = zip(element, self.sizes, self.gaps, strict=True)
                there = out[(every, every, every, *[slice(e * g, e * g + n) for e, n, g in spans])]
                there += np.moveaxis(parts[(every, every, *(every,) * rank, every, *element)], 2 + rank, 2)
        return out.swapaxes(0, 1).reshape(-1, self.groups * self.channels, *self.outer)[self.inside]


@lru_cache(maxsize=256)
def _layout_of(
    shape: Shape, weight_shape: Shape, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int
) -> _Layout | _Windows:
    """The layout for an input and a weight of these shapes: that of few positions where the other one would compute twice as many or
    more, or have a run for each element of a kernel that has more of them than there are positions."""
    x, weight = Aval(shape, float32), Aval(weight_shape, float32)
    sizes = _sizes(x, weight, steps, low, high, gaps)
    rows = sizes[0] * product(a + s + b for a, s, b in zip(low[1:], x.shape[3:], high[1:], strict=True))
    if rows < 2 * product(sizes) and product(sizes) >= product(weight.shape[2:]):
        return _Layout(x, weight, steps, low, high, gaps, groups)
    return _Windows(x, weight, steps, low, high, gaps, groups)


def _grouped(weight: Any, groups: int) -> Any:
    return np.ascontiguousarray(weight).reshape(groups, weight.shape[0] // groups, -1)


def _is_flat(x: Any, steps: Shape) -> bool:
    return max(steps, default=1) == 1 and x.size > 0


def _geometry(steps: Shape, low: Shape, gaps: Shape, groups: int) -> Geometry:
    return Geometry(tuple(steps), tuple(low), tuple(gaps), groups)


_SAMPLES = (
    ((2, 2, 5), (3, 2, 2), {"steps": (1,), "low": (0,), "high": (0,), "gaps": (1,), "groups": 1}),
    ((2, 2, 5, 4), (4, 1, 3, 2), {"steps": (1, 1), "low": (1, 0), "high": (1, 2), "gaps": (1, 2), "groups": 2}),
    ((2, 2, 5, 4), (2, 2, 2, 3), {"steps": (2, 1), "low": (1, 1), "high": (0, 1), "gaps": (1, 1), "groups": 1}),
    ((2, 2, 6), (2, 1, 1), {"steps": (3,), "low": (0,), "high": (1,), "gaps": (1,), "groups": 2}),
)


def _results_of(shape: Shape, weight: Shape, a: Any) -> Shape:
    return _rule(Aval(shape, float32), Aval(weight, float32), None, **a).shape


def _input_rule(g: Aval, weight: Aval, lengths: Shape, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int) -> Aval:
    return Aval((g.shape[0], weight.shape[1] * groups, *lengths), g.dtype)


def _weight_rule(g: Aval, x: Aval, kernel: Shape, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int) -> Aval:
    return Aval((g.shape[1], x.shape[1] // groups, *kernel), g.dtype)


@composite(
    _input_rule,
    _input_expansion,
    routine="input",
    samples=cases(*[(floats(*_results_of(x, w, a)), floats(*w, seed=1), {**a, "lengths": x[2:]}) for x, w, a in _SAMPLES]),
)
def convolution_input(
    g: Any, weight: Any, lengths: Shape, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int
) -> Any:
    """The gradient of the input of a convolution, whose spatial sizes are `lengths`, by that of its results."""
    shapes = (g.shape[0], weight.shape[1] * groups, *lengths), weight.shape, g.shape
    found = convolutions.computed("input", shapes, g, weight, _geometry(steps, low, gaps, groups))
    if found is not None:
        return found
    if max(steps, default=1) > 1 or not g.size or not product(shapes[0]):
        return _input_expansion(g, weight, lengths, steps, low, high, gaps, groups)
    layout = _layout_of(shapes[0], weight.shape, steps, low, high, gaps, groups)
    matrix = _grouped(weight, groups)
    if isinstance(layout, _Layout):
        return layout.folded(matrix.swapaxes(-1, -2), layout.spread(g))
    gx = np.empty(shapes[0], g.dtype)
    for block in layout.blocks(g.itemsize):
        gx[block] = layout.folded(products.matmul(layout.rows(g[block]), matrix))
    return gx


@convolution_input.vjp(saves=("1", "0"))
def _(c: Any, cotangent: Any) -> Any:
    g, weight = c.inputs
    a = dict(c.attributes)
    del a["lengths"]
    return (
        convolution.of(cotangent, weight, None, **a) if c.needs[0] else None,
        convolution_weight.of(g, cotangent, kernel=c.avals[1].shape[2:], **a) if c.needs[1] else None,
    )


@composite(
    _weight_rule,
    _weight_expansion,
    routine="weight",
    samples=cases(*[(floats(*_results_of(x, w, a)), floats(*x, seed=1), {**a, "kernel": w[2:]}) for x, w, a in _SAMPLES]),
)
def convolution_weight(g: Any, x: Any, kernel: Shape, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int) -> Any:
    """The gradient of the weight of a convolution, whose spatial sizes are `kernel`, by that of its results."""
    shapes = x.shape, (g.shape[1], x.shape[1] // groups, *kernel), g.shape
    found = convolutions.computed("weight", shapes, g, x, _geometry(steps, low, gaps, groups))
    if found is not None:
        return found
    if not g.size or not _is_flat(x, steps):
        return _weight_expansion(g, x, kernel, steps, low, high, gaps, groups)
    layout = _layout_of(x.shape, shapes[1], steps, low, high, gaps, groups)
    if isinstance(layout, _Layout):
        flat = layout.spread(g)
        parts = np.empty((layout.batch, layout.groups, layout.inner, flat.shape[2]), flat.dtype)
        for block in layout.blocks(flat.itemsize):  # the faster way round: more rows than columns
            products.matmul(layout.columns(x[block]), flat[block].swapaxes(-1, -2), parts[block])
        return np.ascontiguousarray(np.add.reduce(parts, axis=0).swapaxes(-1, -2)).reshape(shapes[1])
    total = np.zeros((layout.groups, layout.outputs, layout.inner), g.dtype)
    for block in layout.blocks(g.itemsize):
        total += products.matmul(layout.rows(g[block]).swapaxes(-1, -2), layout.windows(x[block]))
    return total.reshape(shapes[1])


@convolution_weight.vjp(saves=("1", "0"))
def _(c: Any, cotangent: Any) -> Any:
    g, x = c.inputs
    a = dict(c.attributes)
    del a["kernel"]
    return (
        convolution.of(x, cotangent, None, **a) if c.needs[0] else None,
        convolution_input.of(g, cotangent, lengths=c.avals[1].shape[2:], **a) if c.needs[1] else None,
    )


@composite(
    _rule,
    _expansion,
    routine="forward",
    samples=cases(
        (floats(2, 2, 5), floats(3, 2, 2, seed=1), floats(3, seed=2), {"steps": (1,), "low": (0,), "high": (0,), "gaps": (1,)}),
        (floats(2, 2, 5, 4), floats(4, 1, 3, 2, seed=1), None,
         {"steps": (1, 1), "low": (1, 0), "high": (1, 2), "gaps": (1, 2), "groups": 2}),
        (floats(2, 2, 5, 4), floats(2, 2, 2, 3, seed=1), None, {"steps": (2, 1), "low": (1, 1), "high": (0, 1), "gaps": (1, 1)}),
        (floats(2, 3, 2, 2).T, floats(2, 2, 1, 1, seed=1), floats(2), {"steps": (1, 1), "low": (0, 0), "high": (0, 0), "gaps": (1, 1)}),
        groups=1,
    ),
)  # fmt: skip
def convolution(x: Any, weight: Any, bias: Any, steps: Shape, low: Shape, high: Shape, gaps: Shape, groups: int) -> Any:
    """Cross-correlation of (N, C, *sizes), padded with zeros, with (outputs, C / groups, *kernel); shapes that fit."""
    sizes = _sizes(x, weight, steps, low, high, gaps)
    shapes = x.shape, weight.shape, (x.shape[0], weight.shape[0], *sizes)
    found = convolutions.computed("forward", shapes, x, weight, _geometry(steps, low, gaps, groups))
    if found is not None:
        return found if bias is None else np.add(found, bias.reshape(-1, *(1,) * len(steps)), out=found)
    if not _is_flat(x, steps):
        return _expansion(x, weight, bias, steps, low, high, gaps, groups)
    layout = _layout_of(x.shape, weight.shape, steps, low, high, gaps, groups)
    if isinstance(layout, _Windows):
        few = layout
        matrix = _grouped(weight, groups).swapaxes(-1, -2)
        out = np.empty((few.batch, weight.shape[0], *few.sizes), x.dtype)
        for block in few.blocks(x.itemsize):
            out[block] = few.images(products.matmul(few.windows(x[block]), matrix))
        return out if bias is None else np.add(out, bias.reshape(-1, *(1,) * len(steps)), out=out)
    rows = np.empty((layout.batch, groups, weight.shape[0] // groups, product(layout.rows)), x.dtype)
    matrix, positions = _grouped(weight, groups), rows[..., : layout.positions]
    for block in layout.blocks(x.itemsize):
        products.matmul(matrix, layout.columns(x[block]), positions[block])
    out = layout.kept(rows)
    if bias is not None:
        return out + bias.reshape(-1, *(1,) * len(steps))
    return np.ascontiguousarray(out)


@convolution.vjp(saves=("1", "0", ""))
def _(c: Any, g: Any) -> Any:
    x, weight, _ = c.inputs
    return (
        convolution_input.of(g, weight, lengths=c.avals[0].shape[2:], **c.attributes) if c.needs[0] else None,
        convolution_weight.of(g, x, kernel=c.avals[1].shape[2:], **c.attributes) if c.needs[1] else None,
        sum_.of(g, dims=(0, *range(2, len(g.shape))), keepdim=False) if c.needs[2] else None,
    )
