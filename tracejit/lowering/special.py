"""Nests of single nodes that are not computed element by element: joins, regions, scatters, scans, integer and tiny products.

Operands and results have memory; each builder writes whole loops over them.  An index read at run time is checked by an `Exit` in
the same iteration, and bounded where it is used (bounds.py).  Everything is written to the node's own output, never to an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from numpy import ndindex

from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType
from tracejit.core.op import Kind
from tracejit.core.shapes import product, size_range
from tracejit.ir.convolutions import is_direct
from tracejit.ir.graph import Node, operand_aval
from tracejit.ir.layouts import Position, Positions, Source, Strided, is_constant, linear, strided_view
from tracejit.loops.bounds import bounded
from tracejit.loops.expressions import AxisValue, Expr, Load, builder
from tracejit.loops.language import SMALL_STRIDES, Axis, Exit, For, Index, Let, Reduce, Statement, Store
from tracejit.lowering import draws, region_sums
from tracejit.lowering.regions import Moving
from tracejit.lowering.schedule import Scheduled
from tracejit.lowering.values import Values, combination, is_member
from tracejit.lowering.writer import BUILDERS, Writer, builds, few_loops, layouts_of, spread

__all__ = ["check_nest", "copy_nest", "draws", "fill_nest", "is_host", "region_sums", "slice_nest", "special"]

Shape = tuple[int, ...]
MANY_ROWS: Final = 16  # from which on a narrow table is joined row by row
MOST_ORDERED: Final = 128
"""Elements up to which positions in order are counted in machine code: that takes a time that grows with their square."""
MOST_ORDERED_APART: Final = 32
"""The same of elements that are not side by side in memory."""


def copy_nest(
    values: Values, target: Strided, source: Strided, shape: Shape, dtype: DType, name: str, moving: Sequence[Moving] = ()
) -> Scheduled:
    """A nest that copies one layout to another.  moving: further positions in the target."""
    writer = Writer(values)
    writer.transfer(shape, target, source, dtype, moving)
    return writer.finish(name)


def check_nest(values: Values, moving: Moving, code: int, name: str) -> Scheduled:
    """A nest that leaves by `code` where a position is none."""
    writer = Writer(values)
    outside, _ = bounded(writer.moving_position(moving), writer.parameters.number(moving.size))
    writer.body.append(For(writer.axis(), 1, (Exit(outside, code),)))
    writer.exits = True
    return writer.finish(name)


def fill_nest(values: Values, out: int, value: float, name: str) -> Scheduled:
    """A nest that fills a root value with one number."""
    writer = Writer(values)
    aval = values.aval(out)
    writer.transfer(aval.shape, values.strided[out], builder.const(value, aval.dtype), aval.dtype)
    return writer.finish(name)


def is_host(avals: Mapping[int, Any], node: Node) -> bool:
    """Whether the node must be evaluated on the host: it is no view, no member of nests, and nobody builds a nest of its form."""
    op = node.op
    kind = op.kind
    if kind is Kind.VIEW or (kind is Kind.ELEMENTWISE and op.lowering is not None and not op.may_exit) or is_constant(node):
        return False
    if is_direct(avals, node):
        return False
    if kind is Kind.ORDER:
        shape, dim = avals[node.operands[0]].shape, node.attrs["dim"]  # type: ignore[index]
        most = MOST_ORDERED if dim == len(shape) - 1 else MOST_ORDERED_APART
        return not shape or type(shape[dim]) is not int or shape[dim] > most
    if kind is Kind.LAPACK:
        return any(0 in avals[o].shape for o in node.operands)  # type: ignore[index]
    if kind is Kind.LOOP:
        body = node.attrs["body"].graph
        return any(is_host(body.avals, inner) or 0 in body.avals[v].shape for inner in body.nodes for v in inner.outputs)
    if op.may_exit and 0 in avals[node.outputs[0]].shape:  # no loop over its elements would look at the indices
        return True
    if is_member(avals, node):
        return False
    shapes = [aval.shape for o in node.operands if isinstance(aval := operand_aval(o, avals), Aval)]
    return (op.region is None and (op.nest or op.kind) not in BUILDERS) or () in shapes


def special(values: Values, number: int, exit_code: Callable[[int], int], name: str) -> Scheduled:
    """The nest of a node that is no member of groups."""
    node = values.nodes[number]
    writer = Writer(values)
    op = node.op
    build = _into_region if op.region is not None else BUILDERS[op.nest or op.kind]
    build(writer, values, node, exit_code(number) if op.may_exit else 0)
    return writer.finish(name)


def _region(layout: Strided, dim: int, start: int, step: int = 1) -> Strided:
    strides = layout.strides
    return Strided(layout.root, layout.offset + start * strides[dim], (*strides[:dim], strides[dim] * step, *strides[dim + 1 :]))


@builds("join")
def _cat(w: Writer, values: Values, node: Node, code: int) -> None:
    out, dim, start = values.strided[node.outputs[0]], node.attrs["dim"], 0
    shape, dtype = values.shape(node.outputs[0]), values.aval(node.outputs[0]).dtype
    if product(shape[dim:]) in SMALL_STRIDES and product(shape[:dim]) >= MANY_ROWS:
        _join_columns(w, values, node)
        return
    for o, layout in zip(node.operands, layouts_of(values, node), strict=True):
        shape = values.shape(o)  # type: ignore[arg-type]
        w.transfer(shape, _region(out, dim, start), layout, dtype)
        start += shape[dim]


def _join_columns(w: Writer, values: Values, node: Node) -> None:
    """cat where the result is a table of few columns: a loop over its rows that stores all of them."""
    out, dim = values.strided[node.outputs[0]], node.attrs["dim"]
    shape, dtype = values.shape(node.outputs[0]), values.aval(node.outputs[0]).dtype
    positions = [sum(c * s for c, s in zip(at, out.strides[dim:], strict=True)) for at in ndindex(shape[dim:])]
    columns = []
    for o, layout in zip(node.operands, layouts_of(values, node), strict=True):
        for coordinates in ndindex(values.shape(o)[dim:]):  # type: ignore[arg-type]
            offset = sum(c * s for c, s in zip(coordinates, layout.strides[dim:], strict=True))
            columns.append(Strided(layout.root, layout.offset + offset, layout.strides[:dim]))
    table = Strided(out.root, out.offset, out.strides[:dim])
    sizes, (target, *sources) = few_loops(shape[:dim], [table, *columns])
    to = w.buffer(target, dtype, write=True)

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        row = w.index(target, axes).terms
        loads = [Load(w.buffer(source, dtype), w.index(source, axes)) for source in sources]
        return tuple(Store(to, Index(row, position), load) for position, load in zip(positions, loads, strict=True))

    w.over(sizes, step)


@builds("frame")
def _pad(w: Writer, values: Values, node: Node, code: int) -> None:
    out = values.strided[node.outputs[0]]
    aval = values.aval(node.outputs[0])
    w.transfer(aval.shape, out, w.parameters.scalar(node.operands[1], aval.dtype), aval.dtype)
    w.parameters.begin_part()
    offset = sum(low * s for low, s in zip(node.attrs["low"], out.strides, strict=True))
    (source,) = layouts_of(values, node)
    w.transfer(values.shape(node.operands[0]), Strided(out.root, offset, out.strides), source, aval.dtype)  # type: ignore[arg-type]


def _into_region(w: Writer, values: Values, node: Node, code: int) -> None:
    """A copy of operand 0 in which the part that `Op.region` reads is another tensor, or another number, or is added to."""
    op, out, aval = node.op, values.strided[node.outputs[0]], values.aval(node.outputs[0])
    region, part, attributes = op.region, node.operands[op.source], node.attrs
    assert region is not None
    adds = attributes.pop("accumulate", "adds" in op.traits)
    others = [o for k, o in enumerate(node.operands) if k not in (0, op.source)]
    w.transfer(aval.shape, out, values.strided[node.operands[0]], aval.dtype)  # type: ignore[index]
    w.parameters.begin_part()
    shape = region.infer(aval, *[operand_aval(o, values.avals) for o in others], **attributes).shape
    if region.kind is Kind.VIEW:
        assert not adds, f"{op.name}: adds to a view"
        whole = Node(region, (node.operands[0], *others), tuple(attributes.items()), ())
        layout = strided_view(whole, out, aval.shape, shape)
        assert layout is not None, f"{op.name}: the position of the part is not known"
        w.transfer(shape, layout, values.strided[part], aval.dtype)  # type: ignore[index]
        return
    target = w.buffer(out, aval.dtype, write=True)
    source = spread(values.strided[part], values.shape(part), shape) if values.is_tensor(part) else None  # type: ignore[arg-type, index]

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        """One element, in order: positions may be equal."""
        positions = _GatherLocations(w, axes, code)
        at = tuple([Position(((k, 1),)) for k in range(len(axes))])
        tensors = [Source(values.shape(o), partial(positions.load, o)) if values.is_tensor(o) else o for o in others]  # type: ignore[arg-type]
        where = region.element(positions, at, Source(aval.shape), *tensors, **attributes)  # type: ignore[misc]
        there = linear(where, out.strides)
        if source is None:
            value = w.parameters.scalar(part, aval.dtype)
        else:
            value = Load(w.buffer(source, aval.dtype), w.index(source, axes) if source.strides else Index())
        to = w.index(Strided(out.root, 0, positions.strides(there)), axes)
        index = Index(to.terms, w.parameters.size(there.offset))
        if len(there.dynamic) == 1:
            ((scale, position),) = there.dynamic
            index = replace(index, dynamic=position, dynamic_stride=w.parameters.size(scale))
        elif there.dynamic:
            parts = [position * w.parameters.number(scale) for scale, position in there.dynamic]
            index = replace(index, dynamic=sum(parts[1:], parts[0]))
        return (*positions.statements, Store(target, index, value, accumulate=adds))

    w.exits = True
    w.over(shape, step, vector=False)


@dataclass(slots=True)
class _GatherLocations:
    """What `Op.element` of a gather is given to find where an element is, within the loops over all of them."""

    writer: Writer
    axes: tuple[Axis, ...]
    code: int
    statements: list[Statement] = field(default_factory=list)

    def strides(self, where: Position) -> Shape:
        """How far apart in memory elements are along each loop."""
        terms = dict(where.terms)
        return tuple([terms.get(k, 0) for k in range(len(self.axes))])

    def load(self, value: int, at: Positions) -> Expr:
        w, layout = self.writer, self.writer.values.strided[value]
        there = linear(at, layout.strides)
        own = Strided(layout.root, layout.offset + there.offset, self.strides(there))
        return Load(w.buffer(own, w.values.aval(value).dtype), w.index(own, self.axes))

    def position(self, index: Expr, size: int, wraps: bool = False) -> Position:
        assert self.code, "a primitive that reads positions leaves where they are none: it has the trait raises"
        w, extent = self.writer, self.writer.parameters.number(size)
        found = w.var(dtypes.int64)
        index = builder.cast(index, dtypes.int64)
        if wraps:
            raw, found = found, w.var(dtypes.int64)
            self.statements.append(Let(raw, index))
            index = builder.select(builder.lt(raw, 0), raw + extent, raw)
        outside, position = bounded(found, extent)
        self.statements += [Let(found, index), Exit(outside, self.code)]
        return Position(dynamic=((1, position),))


@builds(Kind.SCAN)
def _scan(w: Writer, values: Values, node: Node, code: int) -> None:
    """out[j] = out[j - 1] (+ or *) x[j] along the dimension, the inner dimensions being independent."""
    _along(w, values, node, layouts_of(values, node), combination(node).combine)


@builds("recurrence")
def _recurrence(w: Writer, values: Values, node: Node, code: int) -> None:
    """out[j] = b[j] + a[j] * out[j - 1] along the dimension, the inner dimensions being independent."""
    a, b = layouts_of(values, node)
    _along(w, values, node, [b, a], lambda before, b, a: b + a * before)


def _along(w: Writer, values: Values, node: Node, sources: Sequence[Strided], following: Callable[..., Expr]) -> None:
    """The first element along the dimension is that of the first source; the others follow from the one before them and their own
    elements of the sources."""
    out, dim = values.strided[node.outputs[0]], node.attrs["dim"]
    aval = values.aval(node.outputs[0])
    if aval.shape[dim] == 0:
        return
    w.transfer((*aval.shape[:dim], 1, *aval.shape[dim + 1 :]), out, sources[0], aval.dtype)
    target, origins = w.buffer(out, aval.dtype, write=True), [w.buffer(source, aval.dtype) for source in sources]

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        def next_along(layout: Strided) -> Index:
            return Index(w.index(layout, axes).terms, w.parameters.size(layout.strides[dim]))

        own = [Load(origin, next_along(source)) for origin, source in zip(origins, sources, strict=True)]
        return (Store(target, next_along(out), following(Load(target, w.index(out, axes)), *own)),)

    w.over((*aval.shape[:dim], aval.shape[dim] - 1, *aval.shape[dim + 1 :]), step, vector=dim != aval.ndim - 1)


@builds(Kind.ORDER)
def _order(w: Writer, values: Values, node: Node, code: int) -> None:
    """out[rank] = i, the rank of element i along the dimension being the number of those that come before it; ranks of `count` and more are
    not stored."""
    out, (source,), a = values.strided[node.outputs[0]], layouts_of(values, node), node.attrs
    shape, dtype, dim = values.shape(node.operands[0]), values.aval(node.operands[0]).dtype, a["dim"]  # type: ignore[arg-type]
    size, count = shape[dim], a.get("count", shape[dim])
    if 0 in shape or count == 0:
        return
    target, origin = w.buffer(out, dtypes.int64, write=True), w.buffer(source, dtype)
    computed = dtypes.float32 if dtype.is_reduced else dtypes.int32 if dtype is dtypes.bool_ else dtype
    to, x = (Strided(y.root, y.offset, (*y.strides[:dim], *y.strides[dim + 1 :], y.strides[dim])) for y in (out, source))

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        *outer, i = axes
        j, own, rank, position = w.axis(), w.var(computed), w.var(dtypes.int32), w.var(dtypes.int64)
        other = w.var(computed)
        before, equal = (builder.gt if a["descending"] else builder.lt)(other, own), builder.eq(other, own)
        if computed.is_floating_point:  # NaN is the largest
            nan, is_nan = (
                (builder.isnan(other), builder.isnan(own)) if a["descending"] else (builder.isnan(own), builder.isnan(other))
            )
            before, equal = before | (nan & ~is_nan), equal | (nan & is_nan)
        earlier = builder.lt(*[builder.cast(AxisValue(axis), dtypes.int32) for axis in (j, i)])
        counted = Reduce(
            j,
            w.parameters.size(size),
            ((rank, "sum", builder.cast(before | (equal & earlier), dtypes.int32)),),
            (Let(other, builder.cast(Load(origin, w.index(x, (*outer, j))), computed)),),
        )
        outside, place = bounded(position, w.parameters.number(count))
        index = Index(
            w.index(Strided(to.root, 0, (*to.strides[:-1], 0)), axes).terms, 0, place, w.parameters.size(to.strides[-1])
        )
        found: Expr = AxisValue(i)
        if count < size:
            found = builder.select(outside, Load(target, index), found)
        return (
            Let(own, builder.cast(Load(origin, w.index(x, axes)), computed)),
            counted,
            Let(position, builder.cast(rank, dtypes.int64)),
            Store(target, index, found),
        )

    w.over((*shape[:dim], *shape[dim + 1 :], size), step, vector=False)


@builds("windows")
def _fold(w: Writer, values: Values, node: Node, code: int) -> None:
    """Windows added up: zeros, then for each element of the window those of all positions, in the order of the windows' elements."""
    out, a = values.strided[node.outputs[0]], node.attrs
    (source,) = layouts_of(values, node)
    aval = values.aval(node.outputs[0])
    shape = values.shape(node.operands[0])  # type: ignore[arg-type]
    windows = list(zip(a["dims"], a["steps"], a["dilations"], strict=True))
    _add_windows(w, out, aval.shape, source, shape, windows, aval.dtype)


def slice_nest(values: Values, node: Node, name: str) -> Scheduled | None:
    """The nest that does for the first slice of a node's result, along its first dimension, what the node does for all of them: of a copy,
    or of windows that are added up; None for other nodes, and where windows lie along that dimension.  The slices that follow are in the
    same way further in memory, by the first strides."""
    out, operand = node.outputs[0], node.operands[0]
    aval = values.aval(out)
    if aval.ndim < 2 or not values.is_tensor(operand):
        return None
    layout, source = values.strided[out], values.strided[operand]  # type: ignore[index]
    first, origin = (Strided(x.root, x.offset, x.strides[1:]) for x in (layout, source))
    w = Writer(values)
    if "copies" in node.op.traits:
        w.transfer(aval.shape[1:], first, origin, aval.dtype)
        return w.finish(name)
    a = node.attrs
    if node.op.nest != "windows" or 0 in a["dims"]:
        return None
    windows = [(d - 1, step, gap) for d, step, gap in zip(a["dims"], a["steps"], a["dilations"], strict=True)]
    _add_windows(w, first, aval.shape[1:], origin, values.shape(operand)[1:], windows, aval.dtype)  # type: ignore[arg-type]
    return w.finish(name)


def _add_windows(
    w: Writer, out: Strided, size: Shape, source: Strided, shape: Shape, windows: Sequence[tuple[int, int, int]], dtype: DType
) -> None:
    """windows: (dimension, step, dilation).  The dimensions before the first one with windows are the outer loops, so that what is added
    to stays near."""
    rank, first = len(size), min(d for d, _, _ in windows)
    steps = {d: step for d, step, _ in windows}
    near = Strided(out.root, out.offset, (*(out.strides[d] * gap for d, _, gap in windows), *_scaled(out.strides, steps)[first:]))
    window = Strided(source.root, source.offset, (*source.strides[rank:], *source.strides[first:rank]))
    sizes, (outer, outer_source) = few_loops(shape[:first], [Strided(x.root, x.offset, x.strides[:first]) for x in (out, source)])
    positions, (near, window) = few_loops((*shape[rank:], *shape[first:rank]), [near, window])
    block, (whole,) = few_loops(size[first:], [Strided(out.root, out.offset, out.strides[first:])])
    target, origin = w.buffer(out, dtype, write=True), w.buffer(source, dtype)

    def index(left: Strided, right: Strided, axes: tuple[Axis, ...], own: tuple[Axis, ...]) -> Index:
        return w.index(Strided(left.root, 0, (*left.strides, *right.strides)), (*axes, *own))

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        zero = builder.const(0, dtype)
        fill = w.loops(block, lambda own: (Store(target, index(outer, whole, axes, own), zero),))
        add = w.loops(
            positions,
            lambda own: (
                Store(
                    target,
                    index(outer, near, axes, own),
                    Load(origin, index(outer_source, window, axes, own)),
                    accumulate=True,
                ),
            ),
        )
        return tuple(s for s in (fill, add) if s is not None)

    if 0 not in size:
        w.over(sizes, step, vector=False)


def _scaled(strides: Shape, factors: Mapping[int, int]) -> Shape:
    return tuple(s * factors.get(d, 1) for d, s in enumerate(strides))


@builds(Kind.CONTRACTION)
def _matmul(w: Writer, values: Values, node: Node, code: int) -> None:
    """out[m, n] = a[m, 0] * b[0, n] + a[m, 1] * b[1, n] + ..., in this order, the few terms written out; of integers, which wrap, so that
    the order does not matter, out[m, n] += a[m, k] * b[k, n], n innermost."""
    out, aval, (a, b) = values.strided[node.outputs[0]], values.aval(node.outputs[0]), layouts_of(values, node)
    shapes = [values.shape(o) for o in node.operands]  # type: ignore[arg-type]
    (*rows, m, k), (*columns, j, n) = (
        spread(x, s, (*aval.shape[:-2], 0, 0)).strides for x, s in zip((a, b), shapes, strict=True)
    )
    inner = shapes[0][-1]

    def load(x: Strided, strides: Shape, axes: tuple[Axis, ...], offset: int = 0) -> Expr:
        index = w.index(Strided(x.root, x.offset, strides), axes)
        return Load(w.buffer(x, aval.dtype), Index(index.terms, w.parameters.size(offset)))

    def all_terms(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        terms = [load(a, (*rows, m, 0), axes, i * k) * load(b, (*columns, 0, n), axes, i * j) for i in size_range(0, inner)]
        return (Store(target, w.index(out, axes), sum(terms[1:], terms[0])),)

    def one_term(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        term = load(a, (*rows, m, k, 0), axes) * load(b, (*columns, 0, j, n), axes)
        to = Strided(out.root, 0, (*out.strides[:-1], 0, out.strides[-1]))
        return (Store(target, w.index(to, axes), term, accumulate=True),)

    if aval.dtype.is_floating_point:
        target = w.buffer(out, aval.dtype, write=True)
        w.over(aval.shape, all_terms)
    else:
        w.transfer(aval.shape, out, builder.const(0, aval.dtype), aval.dtype)
        target = w.buffer(out, aval.dtype, write=True)
        w.over((*aval.shape[:-1], inner, aval.shape[-1]), one_term)
