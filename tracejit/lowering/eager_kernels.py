"""Nests of single operations of eager mode, over contiguous arrays of any size.

`kernel_of(form, dtype)` is a `Kernel`: a nest of buffers and sizes.  A form is what an evaluation asks core/kernels.py for: the name of an
elementwise primitive of one operand, whose scalar meaning is its `lowering`, a kind of draw (draws.py), a function written with primitives
(`Fused`), or one of those below.  What a
form computes, and in which order it adds, stands beside it; where programs are to have equal bits, theirs is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tracejit.core import dtypes
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import DType
from tracejit.core.kernels import Form, Fused
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.builder import GraphBuilder
from tracejit.ir.graph import Graph, Literal, Node
from tracejit.ir.tracer import ScalarTracer, Tracer, TracingInterpreter
from tracejit.loops.bounds import bounded
from tracejit.loops.expressions import Expr, Load, SizeValue, Var, builder
from tracejit.loops.language import Axis, Buffer, Exit, For, Index, Let, Nest, Reduce, Size, Statement, Store
from tracejit.lowering.draws import DRAWS, draw_nest
from tracejit.passes.algebra import algebra
from tracejit.passes.cse import cse
from tracejit.passes.dce import dce

__all__ = ["Kernel", "kernel_of"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A nest, and how many of its sizes, the first ones, multiply to the work that it does."""

    nest: Nest
    loops: int


def kernel_of(form: Form, dtype: DType) -> Kernel:
    """The kernel of a form."""
    if isinstance(form, Fused):
        return _fused(form, dtype)
    if form in DRAWS:
        return Kernel(draw_nest(form, dtype), 1)
    return _FORMS[form](form, dtype) if form in _FORMS else _elementwise(form, dtype)


def _elementwise(form: str, dtype: DType) -> Kernel:
    """out[i] = f(x[i]).  Buffers: out, x; size: how many elements they have."""
    out, x, count, axis = Buffer("out", dtype), Buffer("x", dtype), Size("n"), Axis("i")
    index, lowering = Index(((axis, 1),)), REGISTRY[form].lowering
    assert lowering is not None
    store = Store(out, index, lowering(builder, Load(x, index)))
    return Kernel(Nest(form, (out, x), (count,), (), (For(axis, count, (store,), vector=True),)), 1)


_SOME: Final = 7  # elements: a size that means nothing else


def _fused(form: Fused, dtype: DType) -> Kernel:
    """out[i], ... = function(x[i], ..., numbers).  Buffers: results, tensors, numbers (float64); size: how many elements they have.  Each
    operation is a step of its own, before the loop if it is of numbers alone."""
    graph = dce(cse(algebra(_graph_of(form, dtype))))
    count, axis = Size("n"), Axis("i")
    index = Index(((axis, 1),))
    outs = [Buffer(f"out{i}", dtype) for i in range(form.results)]
    given: list[Buffer] = []
    values: dict[int, Expr] = {}
    before: list[Statement] = []
    inside: list[Statement] = []
    for v in graph.inputs:
        aval = graph.avals[v]
        is_tensor = isinstance(aval, Aval)
        given.append(Buffer(f"x{v}", dtype if is_tensor else dtypes.float64))
        values[v] = Load(given[-1], index if is_tensor else Index())
    for node in graph.nodes:
        (out,) = node.outputs
        aval = graph.avals[out]
        assert isinstance(aval, Aval), node.op.name
        values[out] = var = Var(f"v{out}", aval.dtype)
        (inside if aval.shape else before).append(Let(var, _scalar_meaning(graph, node, values)))
    for buffer, result in zip(outs, graph.outputs, strict=True):
        assert isinstance(result, int), form.name
        inside.append(Store(buffer, index, values[result]))
    loop = For(axis, count, tuple(inside), vector=True)
    return Kernel(Nest(form.name, (*outs, *given), (count,), (), (*before, loop)), 1)


def _graph_of(form: Fused, dtype: DType) -> Graph:
    """The operations of a form.  No interpreter is pushed: other code of the program may run in the middle, in finalizers."""
    graph = GraphBuilder()
    interpreter = TracingInterpreter(graph)
    tensor, number = Aval((_SOME,), dtype), ScalarAval(float)
    arguments = [Tracer(interpreter, graph.input(tensor), tensor) for _ in range(form.tensors)]
    arguments += [ScalarTracer(interpreter, graph.input(number), number) for _ in range(form.numbers)]
    return graph.build(tuple([x.id for x in form.function(*arguments)]))


def _scalar_meaning(graph: Graph, node: Node, values: Mapping[int, Expr]) -> Expr:
    """What an elementwise primitive, or one all of whose elements are a number, computes of one element.  Numbers take the dtype of the
    tensors beside them."""
    if "uniform" in node.op.traits and isinstance(node.operands[0], Literal):
        return builder.const(node.operands[0].value, node.attrs["dtype"])
    assert node.op.kind is Kind.ELEMENTWISE and node.op.lowering is not None, node.op.name
    choosing = node.operands[1 if node.op.is_choice else 0 :]
    tensors = [aval for x in choosing if type(x) is int and isinstance(aval := graph.avals[x], Aval)]
    result = graph.avals[node.outputs[0]]
    assert isinstance(result, Aval)
    dtype = tensors[0].dtype if tensors else result.dtype
    operands: list[Expr | None] = []
    for x in node.operands:
        if x is None:
            operands.append(None)
        elif isinstance(x, Literal):
            operands.append(builder.const(x.value, dtype))
        else:
            operands.append(values[x] if isinstance(graph.avals[x], Aval) else builder.cast(values[x], dtype))
    return node.op.lowering(builder, *operands, **node.attrs)  # type: ignore[no-any-return]


def _normalised_rows(form: str, dtype: DType) -> Kernel:
    """Rows of exp(x) / sum(exp(x)), or of the logarithm of that; x is first shifted by its maximum in the row.  Buffers: out, x; sizes: how
    many rows, their length.  Sums are those of programs (loops.Reduce)."""
    out, x, rows, length = Buffer("out", dtype), Buffer("x", dtype), Size("rows"), Size("length")
    row, axes = Axis("r"), [Axis(name) for name in "ijk"]
    indices = [Index(((row, length), (axis, 1))) for axis in axes]
    most, total, shift = (Var(name, dtype) for name in ("most", "total", "shift"))
    e = Var("e", dtype)
    exponential = Let(e, builder.exp(Load(x, indices[1]) - most))
    body: tuple[Statement, ...] = (Reduce(axes[0], length, ((most, "max", Load(x, indices[0])),)),)
    result: Expr
    if form == _LOGARITHMS:
        body += (Reduce(axes[1], length, ((total, "sum", e),), (exponential,)), Let(shift, builder.log(total)))
        result = Load(x, indices[2]) - most - shift
    else:
        body += (Reduce(axes[1], length, ((total, "sum", e),), (exponential, Store(out, indices[1], e))),)
        result = Load(out, indices[2]) / total
    body += (For(axes[2], length, (Store(out, indices[2], result),), vector=True),)
    return Kernel(Nest("rows", (out, x), (rows, length), (), (For(row, rows, body),)), 2)


def _entropy_rows(form: str, dtype: DType) -> Kernel:
    """loss[r] = log(sum(exp(x[r]))) - x[r, target[r]], 0 where that target is ignored, and share[r] = exp(x[r]) / sum(exp(x[r])).  Buffers:
    loss, share, x, target (int64); sizes: how many rows, their length, the target that is ignored.  It returns 1, with a part done, where
    a target is out of range."""
    loss, share, x = (Buffer(name, dtype) for name in ("loss", "share", "x"))
    target, sizes = Buffer("target", dtypes.int64), [Size(name) for name in ("rows", "length", "ignored")]
    rows, length, ignored = sizes
    row, axes = Axis("r"), [Axis(name) for name in "ijk"]
    indices = [Index(((row, length), (axis, 1))) for axis in axes]
    most, total, e = (Var(name, dtype) for name in ("most", "total", "e"))
    wanted, at, kept = Var("wanted", dtypes.int64), Var("at", dtypes.int64), Var("kept", dtypes.bool_)
    outside, position = bounded(wanted, SizeValue(length))
    picked = Load(x, Index(((row, length),), 0, at, 1)) - most
    body: tuple[Statement, ...] = (
        Let(wanted, Load(target, Index(((row, 1),)))),
        Let(kept, builder.ne(wanted, SizeValue(ignored))),
        Exit(builder.logical_and(kept, outside), 1),
        Let(at, position),
        Reduce(axes[0], length, ((most, "max", Load(x, indices[0])),)),
        Reduce(
            axes[1],
            length,
            ((total, "sum", e),),
            (Let(e, builder.exp(Load(x, indices[1]) - most)), Store(share, indices[1], e)),
        ),
        Store(loss, Index(((row, 1),)), builder.select(kept, builder.log(total) - picked, builder.const(0.0, dtype))),
        For(axes[2], length, (Store(share, indices[2], Load(share, indices[2]) / total),), vector=True),
    )
    return Kernel(Nest("entropy", (loss, share, x, target), tuple(sizes), (), (For(row, rows, body),)), 2)


def _standardised_rows(form: str, dtype: DType) -> Kernel:
    """Rows with mean 0 and variance 1, then times a weight, plus a bias, if the form has them.  Buffers: out, means, biased variances, x,
    what is added to a variance (float64), weight, bias; sizes: how many rows, their length."""
    out, means, variances, x = (Buffer(name, dtype) for name in ("out", "means", "variances", "x"))
    eps, rows, length = Buffer("eps", dtypes.float64), Size("rows"), Size("length")
    more = [Buffer(name, dtype) for name in ("weight", "bias") if name in form]
    row, axes = Axis("r"), [Axis(name) for name in "ijk"]
    indices, here = [Index(((row, length), (axis, 1))) for axis in axes], Index(((row, 1),))
    total, squares, mean, variance, factor, d = (Var(n, dtype) for n in ("total", "squares", "mean", "variance", "factor", "d"))
    count = builder.cast(SizeValue(length), dtype)
    result = (Load(x, indices[2]) - mean) * factor
    for buffer in more:
        value = Load(buffer, Index(((axes[2], 1),)))
        result = result * value if buffer.name == "weight" else result + value
    body: tuple[Statement, ...] = (
        Reduce(axes[0], length, ((total, "sum", Load(x, indices[0])),)),
        Let(mean, total / count),
        Reduce(axes[1], length, ((squares, "sum", d * d),), (Let(d, Load(x, indices[1]) - mean),)),
        Let(variance, squares / count),
        Let(factor, builder.rsqrt(variance + builder.cast(Load(eps, Index()), dtype))),
        Store(means, here, mean),
        Store(variances, here, variance),
        For(axes[2], length, (Store(out, indices[2], result),), vector=True),
    )
    return Kernel(Nest("rows", (out, means, variances, x, eps, *more), (rows, length), (), (For(row, rows, body),)), 2)


def _likelihood_rows(form: str, dtype: DType) -> Kernel:
    """loss[r] = -x[r, target[r]], 0 where that target is ignored.  Buffers: loss, x, target (int64); sizes: how many rows, their length,
    the target that is ignored.  It returns 1, with a part done, where a target is out of range."""
    loss, x, target = Buffer("loss", dtype), Buffer("x", dtype), Buffer("target", dtypes.int64)
    rows, length, ignored = sizes = tuple(map(Size, ("rows", "length", "ignored")))
    row, wanted, at, kept = Axis("r"), Var("wanted", dtypes.int64), Var("at", dtypes.int64), Var("kept", dtypes.bool_)
    outside, position = bounded(wanted, SizeValue(length))
    picked = builder.neg(Load(x, Index(((row, length),), 0, at, 1)))
    body: tuple[Statement, ...] = (
        Let(wanted, Load(target, Index(((row, 1),)))),
        Let(kept, builder.ne(wanted, SizeValue(ignored))),
        Exit(builder.logical_and(kept, outside), 1),
        Let(at, position),
        Store(loss, Index(((row, 1),)), builder.select(kept, picked, builder.const(0.0, dtype))),
    )
    return Kernel(Nest("likelihood", (loss, x, target), sizes, (), (For(row, rows, body),)), 1)


def _standardised_gradient(form: str, dtype: DType) -> Kernel:
    """The gradient of x, of which standardised rows were made, times a weight if the form has one.  Buffers: result, gradient of the rows,
    x, means, biased variances, what was added to these (float64), weight; sizes: how many rows, their length."""
    out, g, x, means, variances = (Buffer(name, dtype) for name in ("out", "g", "x", "means", "variances"))
    eps, rows, length = Buffer("eps", dtypes.float64), Size("rows"), Size("length")
    more = [Buffer("weight", dtype)] if "weight" in form else []
    row, axes = Axis("r"), (Axis("i"), Axis("j"))
    here = Index(((row, 1),))
    mean, factor, total, share = (Var(name, dtype) for name in ("mean", "factor", "total", "share"))
    count = builder.cast(SizeValue(length), dtype)

    def element(k: int) -> tuple[tuple[Statement, ...], Expr, Expr, Index]:
        index = Index(((row, length), (axes[k], 1)))
        inner, normal = Var(f"inner{k}", dtype), Var(f"normal{k}", dtype)
        value: Expr = Load(g, index)
        for buffer in more:
            value = value * Load(buffer, Index(((axes[k], 1),)))
        return (Let(inner, value), Let(normal, (Load(x, index) - mean) * factor)), inner, normal, index

    first, inner, normal, _ = element(0)
    second, again, same, index = element(1)
    result = (again - same * (share / count) - total / count) * factor
    body: tuple[Statement, ...] = (
        Let(mean, Load(means, here)),
        Let(factor, builder.rsqrt(Load(variances, here) + builder.cast(Load(eps, Index()), dtype))),
        Reduce(axes[0], length, ((total, "sum", inner), (share, "sum", inner * normal)), first),
        For(axes[1], length, (*second, Store(out, index, result)), vector=True),
    )
    return Kernel(Nest("rows", (out, g, x, means, variances, eps, *more), (rows, length), (), (For(row, rows, body),)), 2)


def _reduced_rows(form: str, dtype: DType) -> Kernel:
    """The sum, or the product, of each row of x.  Buffers: out, x; sizes: how many rows, their length.  The order is that of programs."""
    out, x, rows, length = Buffer("out", dtype), Buffer("x", dtype), Size("rows"), Size("length")
    row, column, total = Axis("r"), Axis("i"), Var("total", dtype)
    combined = Reduce(column, length, ((total, form.split()[0], Load(x, Index(((row, length), (column, 1))))),))
    body: tuple[Statement, ...] = (combined, Store(out, Index(((row, 1),)), total))
    return Kernel(Nest("rows", (out, x), (rows, length), (), (For(row, rows, body),)), 2)


def _added_slices(form: str, dtype: DType) -> Kernel:
    """out[o, index[i], j] += x[o, i, j], in the order of i.  Buffers: out, index (int64), x; sizes: of o, i and j, how many slices out has,
    and how far apart two of o are in out and in x.  It returns 1, with a part done, where a position is out of range."""
    out, index, x = Buffer("out", dtype), Buffer("index", dtypes.int64), Buffer("x", dtype)
    names = ("outer", "count", "width", "slices", "step", "source")
    outer, count, width, slices, step, source = sizes = tuple(map(Size, names))
    o, i, j = (Axis(name) for name in "oij")
    first = Var("first", dtypes.int64)
    outside, position = bounded(Load(index, Index(((i, 1),))), SizeValue(slices))
    target = Index(((o, step), (j, 1)), 0, first, width)
    value = Load(out, target) + Load(x, Index(((o, source), (i, width), (j, 1))))
    inner = (Exit(outside, 1), Let(first, position), For(j, width, (Store(out, target, value),), vector=True))
    return Kernel(Nest("slices", (out, index, x), sizes, (), (For(o, outer, (For(i, count, inner),)),)), 3)


def _moved_elements(form: str, dtype: DType) -> Kernel:
    """x[o, index[o, i, j], j] is read into, written from or added to by y[o, i, j], in the order of i.  Buffers: x, index (int64), y;
    sizes: of o, i and j, how many slices x has, and how far apart two of o are in x and in y.  It returns 1, with a part done,
    where a position is out of range."""
    x, index, y = Buffer("x", dtype), Buffer("index", dtypes.int64), Buffer("y", dtype)
    names = ("outer", "count", "width", "slices", "step", "source")
    outer, count, width, slices, step, source = sizes = tuple(map(Size, names))
    o, i, j = (Axis(name) for name in "oij")
    here = Index(((o, source), (i, width), (j, 1)))
    outside, position = bounded(Load(index, here), SizeValue(slices))
    at = Var("at", dtypes.int64)
    there = Index(((o, step), (j, 1)), 0, at, width)
    move = (
        Store(y, here, Load(x, there))
        if form == "read elements"
        else Store(x, there, Load(y, here) if form == "written elements" else Load(x, there) + Load(y, here))
    )
    inner = For(j, width, (Exit(outside, 1), Let(at, position), move))
    return Kernel(Nest("elements", (x, index, y), sizes, (), (For(o, outer, (For(i, count, (inner,)),)),)), 3)


_LOGARITHMS: Final = "logarithms of normalised rows"
_FORMS: Final[dict[str, Callable[[str, DType], Kernel]]] = {
    "normalised rows": _normalised_rows,
    _LOGARITHMS: _normalised_rows,
    "entropy of rows": _entropy_rows,
    "likelihood of rows": _likelihood_rows,
    "gradient of standardised rows": _standardised_gradient,
    "gradient of standardised rows, weight": _standardised_gradient,
    "standardised rows": _standardised_rows,
    "standardised rows, weight": _standardised_rows,
    "standardised rows, bias": _standardised_rows,
    "standardised rows, weight, bias": _standardised_rows,
    "sum of rows": _reduced_rows,
    "prod of rows": _reduced_rows,
    "added slices": _added_slices,
    "added elements": _moved_elements,
    "read elements": _moved_elements,
    "written elements": _moved_elements,
}
