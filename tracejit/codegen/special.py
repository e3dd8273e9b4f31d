"""Nests of single nodes that are not computed element by element: joins, regions, scatters, scans, integer and tiny products.

Operands and results have memory; each builder writes whole loops over them.  An index read at run time is checked by an `Exit` in
the same iteration, and bounded where it is used (bounds.py).  Everything is written to the node's own output, never to an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from numpy import ndindex

from tracejit.codegen.bounds import bounded
from tracejit.codegen.draws import DRAWS
from tracejit.codegen.elements import Parameters
from tracejit.codegen.expr import Expr, Load, ScalarParam, SizeValue, Var, builder
from tracejit.codegen.loops import SMALL_STRIDES, Axis, Buffer, Exit, For, Index, Let, Nest, Statement, Store
from tracejit.codegen.region_sums import sum_at
from tracejit.codegen.regions import Moving
from tracejit.codegen.schedule import Argument, Scheduled
from tracejit.codegen.spaces import collapsed
from tracejit.codegen.values import Values, index_block
from tracejit.codegen.views import Strided, strided_view
from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.core.op import REGISTRY
from tracejit.core.shapes import broadcast_shapes, product
from tracejit.ir.graph import Literal, Node

__all__ = ["check_nest", "copy_nest", "fill_nest", "special"]

Shape = tuple[int, ...]
MANY_ROWS: Final = 16  # from which on a narrow table is joined row by row


class _Writer:
    """Statements of one nest, with its parameters."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.parameters = Parameters()
        self.body: list[Statement] = []
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        self.names = 0
        self.exits = False

    def axis(self) -> Axis:
        self.names += 1
        return Axis(f"i{self.names}")

    def var(self, dtype: DType) -> Var:
        self.names += 1
        return Var(f"v{self.names}", dtype)

    def index(self, layout: Strided, axes: tuple[Axis, ...]) -> Index:
        size, stride = self.parameters.size, self.parameters.stride
        steps = zip(axes, layout.strides, strict=True)
        return Index(tuple((a, stride(s) if a is axes[-1] else size(s)) for a, s in steps if s))

    def buffer(self, layout: Strided, dtype: DType, write: bool = False) -> Buffer:
        (self.writes if write else self.reads).add(layout.root)
        return self.parameters.buffer(layout.root, layout.offset, dtype)

    def loops(
        self, shape: Shape, inner: Callable[[tuple[Axis, ...]], tuple[Statement, ...]], vector: bool = True
    ) -> Statement | None:
        """Nested loops over `shape`, the last one of vectors; None for no iterations."""
        if 0 in shape:
            return None
        axes = tuple(self.axis() for _ in shape)
        body = inner(axes)
        first = True
        for axis, s in zip(reversed(axes), reversed(shape), strict=True):
            body = (For(axis, self.parameters.size(s), body, vector and first),)
            first = False
        if len(body) == 1:
            return body[0]
        return For(self.axis(), 1, body)

    def over(self, shape: Shape, inner: Callable[[tuple[Axis, ...]], tuple[Statement, ...]], vector: bool = True) -> None:
        statement = self.loops(shape, inner, vector)
        if statement is not None:
            self.body.append(statement)

    def transfer(
        self, shape: Shape, target: Strided, source: Strided | Expr, dtype: DType, moving: Sequence[Moving] = ()
    ) -> None:
        """target[...] = source[...], over as few loops as the layouts allow.  moving: further positions in the target."""
        sizes, (place, *sources) = _few_loops(shape, [target] + ([source] if isinstance(source, Strided) else []))
        to = self.buffer(target, dtype, write=True)

        def store(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
            value = source
            if isinstance(value, Strided):
                value = Load(self.buffer(value, dtype), self.index(sources[0], axes))
            return (Store(to, Index(self.index(place, axes).terms, 0, further), value),)

        further: Expr | None = None
        for step in moving:
            _, position = bounded(self.scalar(step.operand, dtypes.int64), self.number(step.size))
            part = position * self.number(step.stride)
            further = part if further is None else further + part
        self.over(sizes, store)

    def scalar(self, operand: Any, dtype: DType) -> Expr:
        if isinstance(operand, Literal):
            return builder.const(operand.value, dtype)
        return ScalarParam(self.parameters.scalar(operand, dtype))

    def number(self, n: int) -> Expr:
        """A size as an int64 value."""
        size = self.parameters.size(n)
        return builder.const(n, dtypes.int64) if isinstance(size, int) else SizeValue(size)

    def finish(self, name: str) -> Scheduled:
        p = self.parameters
        nest = Nest(name, tuple(p.buffers.values()), tuple(p.sizes.values()), tuple(p.scalars.values()), tuple(self.body))
        arguments = tuple(Argument(root, offset) for root, offset in p.buffers)
        return Scheduled(
            nest,
            arguments,
            tuple(p.sizes),
            tuple(v for v, _ in p.scalars),
            frozenset(self.reads),
            frozenset(self.writes),
            self.exits,
            {},
        )


def _few_loops(shape: Shape, layouts: Sequence[Strided]) -> tuple[Shape, list[Strided]]:
    """As few loops as the layouts allow, and the layouts over these."""
    dims = [d for d, s in enumerate(shape) if s != 1]
    extents = [shape[d] for d in dims]
    runs = collapsed(extents, {0}, [dict(enumerate(layout.strides[d] for d in dims)) for layout in layouts], set())
    sizes = tuple(product(extents[a] for a in run) for run in runs)
    return sizes, [Strided(x.root, x.offset, tuple(x.strides[dims[run[-1]]] for run in runs)) for x in layouts]


def copy_nest(
    values: Values, target: Strided, source: Strided, shape: Shape, dtype: DType, name: str, moving: Sequence[Moving] = ()
) -> Scheduled:
    """A nest that copies one layout to another.  moving: further positions in the target."""
    writer = _Writer(values)
    writer.transfer(shape, target, source, dtype, moving)
    return writer.finish(name)


def check_nest(values: Values, moving: Moving, code: int, name: str) -> Scheduled:
    """A nest that leaves by `code` where a position is none."""
    writer = _Writer(values)
    outside, _ = bounded(writer.scalar(moving.operand, dtypes.int64), writer.number(moving.size))
    writer.body.append(For(writer.axis(), 1, (Exit(outside, code),)))
    writer.exits = True
    return writer.finish(name)


def fill_nest(values: Values, out: int, value: float, name: str) -> Scheduled:
    """A nest that fills a root value with one number."""
    writer = _Writer(values)
    aval = values.aval(out)
    writer.transfer(aval.shape, values.strided[out], builder.const(value, aval.dtype), aval.dtype)
    return writer.finish(name)


def special(values: Values, number: int, exit_code: Callable[[int], int], name: str) -> Scheduled:
    """The nest of a node that is no member of groups."""
    node = values.nodes[number]
    writer = _Writer(values)
    _BUILDERS[node.op.name](writer, values, node, exit_code(number) if node.op.may_exit else 0)
    return writer.finish(name)


def _layouts(values: Values, node: Node) -> list[Strided]:
    return [values.strided[o] for o in node.operands if values.is_tensor(o)]  # type: ignore[index]


def _spread(layout: Strided, shape: Shape, target: Shape) -> Strided:
    """The layout of a value of `shape` broadcast to `target`."""
    lead = len(target) - len(shape)
    return Strided(
        layout.root, layout.offset, (*(0,) * lead, *(0 if s == 1 else t for s, t in zip(shape, layout.strides, strict=True)))
    )


def _region(layout: Strided, dim: int, start: int, step: int = 1) -> Strided:
    strides = layout.strides
    return Strided(layout.root, layout.offset + start * strides[dim], (*strides[:dim], strides[dim] * step, *strides[dim + 1 :]))


def _cat(w: _Writer, values: Values, node: Node, code: int) -> None:
    out, dim, start = values.strided[node.outputs[0]], node.attrs["dim"], 0
    shape, dtype = values.shape(node.outputs[0]), values.aval(node.outputs[0]).dtype
    if product(shape[dim:]) in SMALL_STRIDES and product(shape[:dim]) >= MANY_ROWS:
        _join_columns(w, values, node)
        return
    for o, layout in zip(node.operands, _layouts(values, node), strict=True):
        shape = values.shape(o)  # type: ignore[arg-type]
        w.transfer(shape, _region(out, dim, start), layout, dtype)
        start += shape[dim]


def _join_columns(w: _Writer, values: Values, node: Node) -> None:
    """cat where the result is a table of few columns: a loop over its rows that stores all of them."""
    out, dim = values.strided[node.outputs[0]], node.attrs["dim"]
    shape, dtype = values.shape(node.outputs[0]), values.aval(node.outputs[0]).dtype
    places = [sum(c * s for c, s in zip(at, out.strides[dim:], strict=True)) for at in ndindex(shape[dim:])]
    columns = []
    for o, layout in zip(node.operands, _layouts(values, node), strict=True):
        for coordinates in ndindex(values.shape(o)[dim:]):  # type: ignore[arg-type]
            offset = sum(c * s for c, s in zip(coordinates, layout.strides[dim:], strict=True))
            columns.append(Strided(layout.root, layout.offset + offset, layout.strides[:dim]))
    table = Strided(out.root, out.offset, out.strides[:dim])
    sizes, (target, *sources) = _few_loops(shape[:dim], [table, *columns])
    to = w.buffer(target, dtype, write=True)

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        row = w.index(target, axes).terms
        loads = [Load(w.buffer(source, dtype), w.index(source, axes)) for source in sources]
        return tuple(Store(to, Index(row, place), load) for place, load in zip(places, loads, strict=True))

    w.over(sizes, step)


def _pad(w: _Writer, values: Values, node: Node, code: int) -> None:
    out = values.strided[node.outputs[0]]
    aval = values.aval(node.outputs[0])
    w.transfer(aval.shape, out, w.scalar(node.operands[1], aval.dtype), aval.dtype)
    offset = sum(low * s for low, s in zip(node.attrs["low"], out.strides, strict=True))
    (source,) = _layouts(values, node)
    w.transfer(values.shape(node.operands[0]), Strided(out.root, offset, out.strides), source, aval.dtype)  # type: ignore[arg-type]


def _slice_scatter(w: _Writer, values: Values, node: Node, code: int) -> None:
    out, a = values.strided[node.outputs[0]], node.attrs
    aval = values.aval(node.outputs[0])
    base, value = _layouts(values, node)
    w.transfer(aval.shape, out, base, aval.dtype)
    dim = a["dim"]
    shape = (*aval.shape[:dim], max(0, -((a["start"] - a["stop"]) // a["step"])), *aval.shape[dim + 1 :])
    w.transfer(shape, _region(out, dim, a["start"], a["step"]), value, aval.dtype)


def _diagonal_scatter(w: _Writer, values: Values, node: Node, code: int) -> None:
    out = values.strided[node.outputs[0]]
    aval = values.aval(node.outputs[0])
    base, value = _layouts(values, node)
    w.transfer(aval.shape, out, base, aval.dtype)
    diagonal = REGISTRY["diagonal"]
    shape = diagonal.infer(aval, **node.attrs).shape
    region = strided_view(Node(diagonal, (), node.attributes, ()), out, aval.shape, shape)
    assert region is not None
    w.transfer(shape, region, value, aval.dtype)


def _scatter(w: _Writer, values: Values, node: Node, code: int) -> None:
    """scatter, scatter_add, index_add: one element at a time, in order."""
    out, dim, name = values.strided[node.outputs[0]], node.attrs["dim"], node.op.name
    aval = values.aval(node.outputs[0])
    base, index = _layouts(values, node)[:2]
    w.transfer(aval.shape, out, base, aval.dtype)
    shape = index_shape = values.shape(node.operands[1])  # type: ignore[arg-type]
    rank = len(index_shape)
    if name == "index_add":
        shape = (*aval.shape[:dim], *index_shape, *aval.shape[dim + 1 :])
    target, table = w.buffer(out, aval.dtype, write=True), w.buffer(index, values.aval(node.operands[1]).dtype)  # type: ignore[arg-type]
    source = values.strided[node.operands[2]] if values.is_tensor(node.operands[2]) else None  # type: ignore[index]

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        if name == "index_add":
            where, own = axes[dim : dim + rank], (*axes[:dim], *axes[dim + rank :])
            strides = (*out.strides[:dim], *out.strides[dim + 1 :])
        else:
            where, own = axes, (*axes[:dim], *axes[dim + 1 :])
            strides = (*out.strides[:dim], *out.strides[dim + 1 :])
        found = w.var(dtypes.int64)
        outside, position = bounded(found, w.number(aval.shape[dim]))
        if source is None:
            value = w.scalar(node.operands[2], aval.dtype)
        elif source.strides:
            value = Load(w.buffer(source, aval.dtype), w.index(source, axes))
        else:
            value = Load(w.buffer(source, aval.dtype), Index())
        rest = w.index(Strided(out.root, 0, strides), own)
        place = Index(rest.terms, 0, position, w.parameters.size(out.strides[dim]))
        return (
            Let(found, builder.cast(Load(table, w.index(index, where)), dtypes.int64)),
            Exit(outside, code),
            Store(target, place, value, accumulate=name != "scatter"),
        )

    w.exits = True
    w.over(shape, step, vector=False)


def _index_put(w: _Writer, values: Values, node: Node, code: int) -> None:
    """base with base[..., indices, ...] = or += value, one element at a time, in order."""
    out, dims = values.strided[node.outputs[0]], node.attrs["dims"]
    aval = values.aval(node.outputs[0])
    base = _layouts(values, node)[0]
    w.transfer(aval.shape, out, base, aval.dtype)
    tables = node.operands[2:]
    start, rank = index_block(values, node, 2)
    block = broadcast_shapes("index_put", *(values.shape(o) for o in tables))  # type: ignore[arg-type]
    kept = [d for d in range(aval.ndim) if d not in dims]
    shape = (*(aval.shape[d] for d in kept[:start]), *block, *(aval.shape[d] for d in kept[start:]))
    target = w.buffer(out, aval.dtype, write=True)

    def broadcast(v: int, axes: tuple[Axis, ...]) -> Expr:
        """The element of a value that broadcasts to the loops."""
        layout = _spread(values.strided[v], values.shape(v), (0,) * len(axes))
        return Load(w.buffer(layout, values.aval(v).dtype), w.index(layout, axes))

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        statements: list[Statement] = []
        place: Expr | None = None
        for d, o in zip(dims, tables, strict=True):
            found = w.var(dtypes.int64)
            size = w.number(aval.shape[d])
            raw = w.var(dtypes.int64)
            statements.append(Let(raw, builder.cast(broadcast(o, axes[start : start + rank]), dtypes.int64)))  # type: ignore[arg-type]
            statements.append(Let(found, builder.select(builder.lt(raw, 0), raw + size, raw)))
            outside, position = bounded(found, size)
            statements.append(Exit(outside, code))
            part = position * w.number(out.strides[d])
            place = part if place is None else place + part
        own = (*axes[:start], *axes[start + rank :])
        rest = w.index(Strided(out.root, 0, tuple(out.strides[d] for d in kept)), own)
        value = node.operands[1]
        source = broadcast(value, axes) if values.is_tensor(value) else w.scalar(value, aval.dtype)  # type: ignore[arg-type]
        statements.append(Store(target, Index(rest.terms, 0, place), source, accumulate=node.attrs["accumulate"]))
        return tuple(statements)

    w.exits = True
    w.over(shape, step, vector=False)


def _scan(w: _Writer, values: Values, node: Node, code: int) -> None:
    """out[j] = out[j - 1] (+ or *) x[j] along the dimension, the inner dimensions being independent."""
    out, dim = values.strided[node.outputs[0]], node.attrs["dim"]
    aval = values.aval(node.outputs[0])
    (source,) = _layouts(values, node)
    first = (*aval.shape[:dim], 1, *aval.shape[dim + 1 :])
    if aval.shape[dim] == 0:
        return
    w.transfer(first, out, source, aval.dtype)
    rest = (*aval.shape[:dim], aval.shape[dim] - 1, *aval.shape[dim + 1 :])
    combine = builder.add if node.op.name == "cumsum" else builder.mul
    target, origin = w.buffer(out, aval.dtype, write=True), w.buffer(source, aval.dtype)

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        before, after = w.index(out, axes), w.index(source, axes)
        here = Index(before.terms, w.parameters.size(out.strides[dim]))
        there = Index(after.terms, w.parameters.size(source.strides[dim]))
        return (Store(target, here, combine(Load(target, before), Load(origin, there))),)

    w.over(rest, step, vector=dim != aval.ndim - 1)


def _fold(w: _Writer, values: Values, node: Node, code: int) -> None:
    """Windows added up: zeros, then for each element of the window those of all places, in the order of the windows' elements.

    The dimensions before the first one with windows are the outer loops, so that what is added to stays near."""
    out, a = values.strided[node.outputs[0]], node.attrs
    aval = values.aval(node.outputs[0])
    (source,) = _layouts(values, node)
    shape, rank, first = values.shape(node.operands[0]), aval.ndim, min(a["dims"])  # type: ignore[arg-type]
    steps, gaps = dict(zip(a["dims"], a["steps"], strict=True)), dict(zip(a["dims"], a["dilations"], strict=True))
    near = Strided(out.root, out.offset, (*(out.strides[d] * gaps[d] for d in a["dims"]), *_scaled(out.strides, steps)[first:]))
    window = Strided(source.root, source.offset, (*source.strides[rank:], *source.strides[first:rank]))
    sizes, (outer, outer_source) = _few_loops(
        shape[:first], [Strided(x.root, x.offset, x.strides[:first]) for x in (out, source)]
    )
    places, (near, window) = _few_loops((*shape[rank:], *shape[first:rank]), [near, window])
    block, (whole,) = _few_loops(aval.shape[first:], [Strided(out.root, out.offset, out.strides[first:])])
    target, origin = w.buffer(out, aval.dtype, write=True), w.buffer(source, aval.dtype)

    def index(left: Strided, right: Strided, axes: tuple[Axis, ...], own: tuple[Axis, ...]) -> Index:
        return w.index(Strided(left.root, 0, (*left.strides, *right.strides)), (*axes, *own))

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        zero = builder.const(0, aval.dtype)
        fill = w.loops(block, lambda own: (Store(target, index(outer, whole, axes, own), zero),))
        add = w.loops(
            places,
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

    if 0 not in aval.shape:
        w.over(sizes, step, vector=False)


def _scaled(strides: Shape, factors: Mapping[int, int]) -> Shape:
    return tuple(s * factors.get(d, 1) for d, s in enumerate(strides))


def _matmul(w: _Writer, values: Values, node: Node, code: int) -> None:
    if values.aval(node.outputs[0]).dtype.is_floating_point:
        _tiny_matmul(w, values, node)
    else:
        _integer_matmul(w, values, node)


def _lifted(layout: Strided, shape: Shape, batch: int) -> Shape:
    """Strides of an operand of a product along the batch dimensions of the result."""
    lead = batch + 2 - len(shape)
    return tuple(0 if d < lead or shape[d - lead] == 1 else layout.strides[d - lead] for d in range(batch))


def _tiny_matmul(w: _Writer, values: Values, node: Node) -> None:
    """out[m, n] = a[m, 0] * b[0, n] + a[m, 1] * b[1, n] + ..., in this order, the few terms written out."""
    out = values.strided[node.outputs[0]]
    aval = values.aval(node.outputs[0])
    a, b = _layouts(values, node)
    shape_a, shape_b = values.shape(node.operands[0]), values.shape(node.operands[1])  # type: ignore[arg-type]
    batch = aval.ndim - 2
    left = Strided(a.root, a.offset, (*_lifted(a, shape_a, batch), a.strides[-2], 0))
    right = Strided(b.root, b.offset, (*_lifted(b, shape_b, batch), 0, b.strides[-1]))
    target = w.buffer(out, aval.dtype, write=True)

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        def element(layout: Strided, offset: int) -> Expr:
            return Load(w.buffer(layout, aval.dtype), Index(w.index(layout, axes).terms, w.parameters.size(offset)))

        total = element(left, 0) * element(right, 0)
        for k in range(1, shape_a[-1]):
            total = total + element(left, k * a.strides[-1]) * element(right, k * b.strides[-2])
        return (Store(target, w.index(out, axes), total),)

    w.over(aval.shape, step)


def _integer_matmul(w: _Writer, values: Values, node: Node) -> None:
    """out[m, n] += a[m, k] * b[k, n], n innermost; integers wrap, so the order does not matter."""
    out = values.strided[node.outputs[0]]
    aval = values.aval(node.outputs[0])
    a, b = _layouts(values, node)
    w.transfer(aval.shape, out, builder.const(0, aval.dtype), aval.dtype)
    shape_a, shape_b = values.shape(node.operands[0]), values.shape(node.operands[1])  # type: ignore[arg-type]
    batch = aval.ndim - 2

    full = (*aval.shape[:-2], aval.shape[-2], shape_a[-1], aval.shape[-1])
    target = w.buffer(out, aval.dtype, write=True)
    left = Strided(a.root, a.offset, (*_lifted(a, shape_a, batch), a.strides[-2], a.strides[-1], 0))
    right = Strided(b.root, b.offset, (*_lifted(b, shape_b, batch), 0, b.strides[-2], b.strides[-1]))
    to = Strided(out.root, 0, (*out.strides[:-2], out.strides[-2], 0, out.strides[-1]))

    def step(axes: tuple[Axis, ...]) -> tuple[Statement, ...]:
        x = Load(w.buffer(left, aval.dtype), w.index(left, axes))
        y = Load(w.buffer(right, aval.dtype), w.index(right, axes))
        return (Store(target, w.index(to, axes), x * y, accumulate=True),)

    w.over(full, step)


_BUILDERS = {
    "cat": _cat,
    "pad": _pad,
    "slice_scatter": _slice_scatter,
    "diagonal_scatter": _diagonal_scatter,
    "scatter": _scatter,
    "scatter_add": _scatter,
    "index_add": _scatter,
    "index_put": _index_put,
    "cumsum": _scan,
    "cumprod": _scan,
    "fold": _fold,
    "sum_at": sum_at,
    "matmul": _matmul,
    **DRAWS,
}
