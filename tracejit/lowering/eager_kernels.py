"""Nests of single operations of eager mode, over contiguous arrays of any size.

`kernel_of(form, dtype)` is a `Kernel`: a nest of buffers and sizes.  A form is what an evaluation asks core/kernels.py for: the name of an
elementwise primitive of one operand, whose scalar meaning is its `lowering`, a kind of draw (draws.py), or one of those below.  What a
form computes, and in which order it adds, stands beside it; where programs are to have equal bits, theirs is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.core.op import REGISTRY
from tracejit.loops.bounds import bounded
from tracejit.loops.expressions import Expr, Load, SizeValue, Var, builder
from tracejit.loops.language import Axis, Buffer, Exit, For, Index, Let, Nest, Reduce, Size, Statement, Store
from tracejit.lowering.draws import DRAWS, draw_nest

__all__ = ["Kernel", "kernel_of"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A nest, and how many of its sizes, the first ones, multiply to the work that it does."""

    nest: Nest
    loops: int


def kernel_of(form: str, dtype: DType) -> Kernel:
    """The kernel of a form."""
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


_LOGARITHMS: Final = "logarithms of normalised rows"
_FORMS: Final[dict[str, Callable[[str, DType], Kernel]]] = {
    "normalised rows": _normalised_rows,
    _LOGARITHMS: _normalised_rows,
    "added slices": _added_slices,
}
