"""The nest of `sum_at`: tensors added up at places of their own in zeros, as the gradient of a sum of slices is.

The dimensions are walked from the outermost.  One that every tensor fills is a loop; another one is cut where tensors begin and end, so
that in each piece it is known which of them there are.  Along the last dimension the stretch that all of these share is one loop
that adds them in registers, and only what lies before and after it is filled with zeros and added to in memory.  What fits into near memory
(or would need many pieces) is not cut but filled and added to as a whole.

Equal bits to adding tensors padded with zeros: where a tensor is missing, the sum starts from 0.0 (so -0.0 becomes 0.0); where none
is, it starts from the first one, or, in memory, from -0.0, to which adding anything gives that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Protocol

from tracejit.codegen.elements import Parameters
from tracejit.codegen.expr import Expr, Load, builder
from tracejit.codegen.loops import Axis, Buffer, For, Index, Statement, Store
from tracejit.codegen.values import Values
from tracejit.codegen.views import Strided
from tracejit.core.dtypes import DType
from tracejit.core.shapes import product
from tracejit.ir.graph import Node

__all__ = ["sum_at"]

NEAR: Final = 4096  # elements that are filled and added to as a whole
MOST_PIECES: Final = 24  # of all cut dimensions together
Shape = tuple[int, ...]


class Writer(Protocol):
    """What is needed of a nest under construction."""

    parameters: Parameters
    body: list[Statement]

    def axis(self) -> Axis: ...
    def buffer(self, layout: Strided, dtype: DType, write: bool = False) -> Buffer: ...


@dataclass(frozen=True, slots=True)
class _Place:
    """Elements of a buffer within the open loops: offset + sum(stride * axis), and the strides of all dimensions."""

    buffer: Buffer
    strides: Shape
    offset: int = 0
    terms: tuple[tuple[Axis, int], ...] = ()

    def moved(self, dim: int, by: int, axis: Axis | None = None, step: int = 1) -> _Place:
        """`by` elements further along a dimension, and along an axis in steps."""
        terms = self.terms if axis is None else (*self.terms, (axis, self.strides[dim] * step))
        return replace(self, offset=self.offset + self.strides[dim] * by, terms=terms)


@dataclass(frozen=True, slots=True)
class _Part:
    """One tensor: where its elements are, its sizes, and its place in the sum."""

    source: _Place
    shape: Shape
    starts: Shape
    steps: Shape

    def stop(self, dim: int) -> int:
        return self.starts[dim] + self.shape[dim]


def sum_at(w: Writer, values: Values, node: Node, code: int) -> None:
    """Write the nest of a sum_at node."""
    out, a = values.strided[node.outputs[0]], node.attrs
    aval = values.aval(node.outputs[0])
    if 0 in aval.shape:
        return
    layouts = [(values.shape(o), values.strided[o]) for o in node.operands]  # type: ignore[arg-type, index]
    shape, strides, regions = _merged(aval.shape, out.strides, layouts, a["starts"], a["steps"])
    target = _Place(w.buffer(out, aval.dtype, write=True), strides)
    parts = [
        _Part(_Place(w.buffer(layout, aval.dtype), own), sizes, starts, steps)
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


class _Sum:
    """Writes pieces of one sum of `count` tensors over `shape`."""

    def __init__(self, w: Writer, dtype: DType, shape: Shape, count: int) -> None:
        self.w = w
        self.dtype = dtype
        self.shape = shape
        self.count = count

    def pieces(self, dim: int, target: _Place, parts: list[_Part], above: int) -> list[Statement]:
        """Statements for what lies in dimensions from `dim` on; `above`: how many pieces the dimensions before were cut into."""
        size, last = self.shape[dim], dim == len(self.shape) - 1
        if any(p.steps[dim] != 1 for p in parts):
            return self.block(dim, target, parts)
        if last:
            return self.row(dim, target, parts)
        cuts = sorted({0, size, *(c for p in parts for c in (p.starts[dim], p.stop(dim)))})
        if len(cuts) > 2 and (product(self.shape[dim:]) <= NEAR or above * (len(cuts) - 1) > MOST_PIECES):
            return self.block(dim, target, parts)
        found: list[Statement] = []
        for low, high in pairwise(cuts):
            axis = self.w.axis()
            here = [
                replace(p, source=p.source.moved(dim, low - p.starts[dim], axis))
                for p in parts
                if p.starts[dim] <= low and high <= p.stop(dim)
            ]
            body = self.pieces(dim + 1, target.moved(dim, low, axis), here, above * (len(cuts) - 1))
            found.append(For(axis, self.w.parameters.size(high - low), tuple(body)))
        return found

    def row(self, dim: int, target: _Place, parts: list[_Part]) -> list[Statement]:
        """The last dimension: what all parts share in registers, the rest in memory."""
        size = self.shape[dim]
        low, high = max((p.starts[dim] for p in parts), default=0), min((p.stop(dim) for p in parts), default=0)
        if low >= high:
            return self.block(dim, target, parts)
        found: list[Statement] = []
        for first, stop in ((0, low), (high, size)):
            if first == stop:
                continue
            found.append(self.store(dim, target, first, (stop - first,), builder.const(0, self.dtype)))
            for p in parts:
                start, end = max(first, p.starts[dim]), min(stop, p.stop(dim))
                if start < end:
                    found.append(self.add(dim, target, p, start, end, accumulate=self.count > 1))
        axis = self.w.axis()
        total: Expr | None = None if len(parts) == self.count else builder.const(0, self.dtype)
        for p in parts:
            element = self.load(p.source.moved(dim, low - p.starts[dim], axis))
            total = element if total is None else builder.add(total, element)
        place = target.moved(dim, low, axis)
        store = Store(place.buffer, self.index(place), total)
        found.append(For(axis, self.w.parameters.size(high - low), (store,), True))
        return found

    def block(self, dim: int, target: _Place, parts: list[_Part]) -> list[Statement]:
        """All dimensions from `dim` on in memory: zeros, then one part after the other."""
        shape, rank = self.shape[dim:], len(self.shape)
        found = [self.store(dim, target, 0, shape, builder.const(0, self.dtype))]
        if 1 < self.count == len(parts) and self.dtype.is_floating_point:
            lows = [max(p.starts[d] for p in parts) for d in range(dim, rank)]
            sizes = tuple(min(p.stop(d) for p in parts) - low for d, low in zip(range(dim, rank), lows, strict=True))
            if min(sizes) > 0:
                start = target
                for d, low in zip(range(dim, rank), lows, strict=True):
                    start = start.moved(d, low)
                found.append(self.store(dim, start, 0, sizes, builder.const(-0.0, self.dtype)))
        for p in parts:
            axes = [self.w.axis() for _ in shape]
            to, source = target, p.source
            for d, axis in zip(range(dim, rank), axes, strict=True):
                to, source = to.moved(d, p.starts[d], axis, p.steps[d]), source.moved(d, 0, axis)
            store = Store(to.buffer, self.index(to), self.load(source), accumulate=self.count > 1)
            found.append(self.loops(axes, p.shape[dim:], store))
        return found

    def store(self, dim: int, target: _Place, first: int, sizes: Shape, value: Expr) -> Statement:
        """One number in a region that begins at `first` along the dimension."""
        axes = [self.w.axis() for _ in sizes]
        place = target.moved(dim, first)
        for d, axis in enumerate(axes, dim):
            place = place.moved(d, 0, axis)
        return self.loops(axes, sizes, Store(place.buffer, self.index(place), value))

    def add(self, dim: int, target: _Place, p: _Part, start: int, stop: int, accumulate: bool) -> Statement:
        """A stretch of a part along the last dimension."""
        axis = self.w.axis()
        place = target.moved(dim, start, axis)
        value = self.load(p.source.moved(dim, start - p.starts[dim], axis))
        return self.loops([axis], (stop - start,), Store(place.buffer, self.index(place), value, accumulate=accumulate))

    def load(self, place: _Place) -> Load:
        return Load(place.buffer, self.index(place))

    def index(self, place: _Place) -> Index:
        size, stride = self.w.parameters.size, self.w.parameters.stride
        innermost = place.terms[-1][0]
        terms = tuple((axis, stride(n) if axis is innermost else size(n)) for axis, n in place.terms if n)
        return Index(terms, size(place.offset))

    def loops(self, axes: list[Axis], sizes: Shape, store: Store) -> Statement:
        statement: Statement = store
        for axis, size in zip(reversed(axes), reversed(sizes), strict=True):
            statement = For(axis, self.w.parameters.size(size), (statement,), statement is store)
        return statement
