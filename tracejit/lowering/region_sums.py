"""The nest of `sum_at`: tensors added up at positions of their own in zeros, as the gradient of a sum of slices is.

The dimensions are walked from the outermost.  One that every tensor fills is a loop; another one is cut where tensors begin and end, so
that in each piece it is known which of them there are; so is the last one, where what is there is added in registers.  What fits into
near memory (or would need many pieces) is not cut but filled with zeros and added to as a whole.

Equal bits to adding tensors padded with zeros: where a tensor is missing, the sum starts from 0.0 (so -0.0 becomes 0.0); where none
is, it starts from the first one, or, in memory, from -0.0, to which adding anything gives that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from tracejit.core.dtypes import DType
from tracejit.core.shapes import product
from tracejit.ir.graph import Node
from tracejit.ir.layouts import Strided
from tracejit.loops.expressions import Expr, Load, builder
from tracejit.loops.language import Axis, Buffer, For, Index, Statement, Store
from tracejit.lowering.values import Values
from tracejit.lowering.writer import Writer, builds

__all__ = ["sum_at"]

NEAR: Final = 4096  # elements that are filled and added to as a whole
MOST_PIECES: Final = 24  # of all cut dimensions but the last together
MOST_STRETCHES: Final = 16  # that the last dimension is cut into
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Location:
    """Elements of a buffer within the open loops: offset + sum(stride * axis), and the strides of all dimensions."""

    buffer: Buffer
    strides: Shape
    offset: int = 0
    terms: tuple[tuple[Axis, int], ...] = ()

    def moved(self, dim: int, by: int, axis: Axis | None = None, step: int = 1) -> _Location:
        """`by` elements further along a dimension, and along an axis in steps."""
        terms = self.terms if axis is None else (*self.terms, (axis, self.strides[dim] * step))
        return replace(self, offset=self.offset + self.strides[dim] * by, terms=terms)


@dataclass(frozen=True, slots=True)
class _Part:
    """One tensor: where its elements are, its sizes, and its position in the sum."""

    source: _Location
    shape: Shape
    starts: Shape
    steps: Shape

    def stop(self, dim: int) -> int:
        return self.starts[dim] + self.shape[dim]


@builds("parts")
def sum_at(w: Writer, values: Values, node: Node, code: int) -> None:
    """Write the nest of a sum_at node."""
    out, a = values.strided[node.outputs[0]], node.attrs
    aval = values.aval(node.outputs[0])
    if 0 in aval.shape:
        return
    layouts = [(values.shape(o), values.strided[o]) for o in node.operands]  # type: ignore[arg-type, index]
    shape, strides, regions = _merged(aval.shape, out.strides, layouts, a["starts"], a["steps"])
    target = _Location(w.buffer(out, aval.dtype, write=True), strides)
    parts = [
        _Part(_Location(w.buffer(layout, aval.dtype), own), sizes, starts, steps)
        for (_, layout), (sizes, own, starts, steps) in zip(layouts, regions, strict=True)
        if 0 not in sizes
    ]
    w.body.extend(_Sum(w, aval.dtype, shape, len(layouts)).pieces(0, target, parts, 1))


Regions = list[tuple[Shape, Shape, Shape, Shape]]


def _merged(
    shape: Shape, strides: Shape, layouts: list[tuple[Shape, Strided]], starts: tuple[Shape, ...], steps: tuple[Shape, ...]
) -> tuple[Shape, Shape, Regions]:
    """The last dimensions as one, as long as every tensor fills the very last one and lies in memory without gaps: (shape and
    strides of the sum; sizes, strides, starts and steps of each tensor)."""
    regions = [(sizes, layout.strides, a, b) for (sizes, layout), a, b in zip(layouts, starts, steps, strict=True)]
    while len(shape) > 1:
        last = shape[-1]
        for sizes, own, _, step in regions:
            whole = sizes[-1] == last and step[-2:] == (1, 1)
            if not whole or own[-2] != own[-1] * last:
                return shape, strides, regions
        shape, strides = (*shape[:-2], shape[-2] * last), (*strides[:-2], strides[-1])
        regions = [((*s[:-2], s[-2] * last), (*own[:-2], own[-1]), (*a[:-2], a[-2] * last), b[:-1]) for s, own, a, b in regions]
    return shape, strides, regions


@dataclass(slots=True)
class _Sum:
    """Writes pieces of one sum of `count` tensors over `shape`."""

    w: Writer
    dtype: DType
    shape: Shape
    count: int

    def pieces(self, dim: int, target: _Location, parts: list[_Part], above: int) -> list[Statement]:
        """Statements for what lies in dimensions from `dim` on; `above`: how many pieces the dimensions before were cut into."""
        if any(p.steps[dim] != 1 for p in parts):
            return self.block(dim, target, parts)
        if dim == len(self.shape) - 1:
            return self.row(dim, target, parts)
        cuts = self.cuts(dim, parts)
        if len(cuts) > 2 and (product(self.shape[dim:]) <= NEAR or above * (len(cuts) - 1) > MOST_PIECES):
            return self.block(dim, target, parts)
        found: list[Statement] = []
        for low, high in pairwise(cuts):
            axis = self.w.axis()
            here = self.within(dim, parts, low, high, axis)
            body = self.pieces(dim + 1, target.moved(dim, low, axis), here, above * (len(cuts) - 1))
            found.append(For(axis, self.w.parameters.size(high - low), tuple(body)))
        return found

    def row(self, dim: int, target: _Location, parts: list[_Part]) -> list[Statement]:
        """The last dimension: in each piece, the parts that are there are added in registers."""
        cuts = self.cuts(dim, parts)
        if len(cuts) - 1 > MOST_STRETCHES:
            return self.block(dim, target, parts)
        found: list[Statement] = []
        for low, high in pairwise(cuts):
            axis = self.w.axis()
            here = self.within(dim, parts, low, high, axis)
            total: Expr | None = None if len(here) == self.count else builder.const(0, self.dtype)
            for p in here:
                element = self.load(p.source)
                total = element if total is None else builder.add(total, element)
            location = target.moved(dim, low, axis)
            found.append(self.loops([axis], (high - low,), Store(location.buffer, self.index(location), total)))
        return found

    def cuts(self, dim: int, parts: list[_Part]) -> list[int]:
        """Where the dimension, or a part along it, begins or ends."""
        return sorted({0, self.shape[dim], *(c for p in parts for c in (p.starts[dim], p.stop(dim)))})

    def within(self, dim: int, parts: list[_Part], low: int, high: int, axis: Axis) -> list[_Part]:
        """The parts that fill a piece of the dimension, with the axis that runs through it."""
        return [
            replace(p, source=p.source.moved(dim, low - p.starts[dim], axis))
            for p in parts
            if p.starts[dim] <= low and high <= p.stop(dim)
        ]

    def block(self, dim: int, target: _Location, parts: list[_Part]) -> list[Statement]:
        """All dimensions from `dim` on in memory: zeros, then one part after the other."""
        shape, rank = self.shape[dim:], len(self.shape)
        found = [self.store(dim, target, shape, builder.const(0, self.dtype))]
        if 1 < self.count == len(parts) and self.dtype.is_floating_point:
            lows = [max(p.starts[d] for p in parts) for d in range(dim, rank)]
            sizes = tuple(min(p.stop(d) for p in parts) - low for d, low in zip(range(dim, rank), lows, strict=True))
            if min(sizes) > 0:
                start = target
                for d, low in zip(range(dim, rank), lows, strict=True):
                    start = start.moved(d, low)
                found.append(self.store(dim, start, sizes, builder.const(-0.0, self.dtype)))
        for p in parts:
            axes = [self.w.axis() for _ in shape]
            to, source = target, p.source
            for d, axis in zip(range(dim, rank), axes, strict=True):
                to, source = to.moved(d, p.starts[d], axis, p.steps[d]), source.moved(d, 0, axis)
            store = Store(to.buffer, self.index(to), self.load(source), accumulate=self.count > 1)
            found.append(self.loops(axes, p.shape[dim:], store))
        return found

    def store(self, dim: int, location: _Location, sizes: Shape, value: Expr) -> Statement:
        """One number in a region that begins at `location`."""
        axes = [self.w.axis() for _ in sizes]
        for d, axis in enumerate(axes, dim):
            location = location.moved(d, 0, axis)
        return self.loops(axes, sizes, Store(location.buffer, self.index(location), value))

    def load(self, location: _Location) -> Load:
        return Load(location.buffer, self.index(location))

    def index(self, location: _Location) -> Index:
        size, stride = self.w.parameters.size, self.w.parameters.stride
        innermost = location.terms[-1][0]
        terms = tuple((axis, stride(n) if axis is innermost else size(n)) for axis, n in location.terms if n)
        return Index(terms, size(location.offset))

    def loops(self, axes: list[Axis], sizes: Shape, store: Store) -> Statement:
        statement: Statement = store
        for axis, size in zip(reversed(axes), reversed(sizes), strict=True):
            statement = For(axis, self.w.parameters.size(size), (statement,), statement is store)
        return statement
