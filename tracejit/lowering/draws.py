"""Nests of random draws: the generator of core/philox.py over the loop language, bit for bit.

The loop runs over blocks of four words, each a function of the seed and of the counter at which it stands, so lanes are independent; it
stores what one block gives next to each other.  The block that a draw uses in part is a loop of its own.  Reading the counter, drawing
and moving it on are one call of machine code, which no other thread comes between.

A backward pass does not draw again what dropout has drawn (passes/residuals.py), though it could, by the counter of the forward pass: ten
rounds cost 0.5 ns an element on one thread, loading the byte that a mask has for it 0.01 ns from a cache and 0.14 from memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tracejit.core import philox
from tracejit.core.dtypes import DType, float16, float32, float64, int64
from tracejit.core.shapes import product
from tracejit.ir.graph import Node
from tracejit.loops.expressions import AxisValue, Expr, Load, SizeValue, Var, builder
from tracejit.loops.language import Axis, Buffer, For, Index, Let, Nest, Size, Statement, Store
from tracejit.lowering.values import Values
from tracejit.lowering.writer import Writer, builds

__all__ = ["DRAWS", "draw_nest", "random_advance"]

_MASK = 0xFFFFFFFF
_ROUNDS = 10


@dataclass(slots=True)
class _Names:
    """Statements that name values, so that what is used more than once is computed once."""

    _var: Callable[[DType], Var]
    lines: list[Statement] = field(default_factory=list)

    def __call__(self, value: Expr) -> Expr:
        var = self._var(value.dtype)
        self.lines.append(Let(var, value))
        return var


def _whole(n: int) -> Expr:
    return builder.const(n, int64)


def _words(name: _Names, counter: Expr, seed: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """`philox.philox` of the counter (64 bits, the upper ones being 0) under a key: four words, in int64."""
    mask, shift = _whole(_MASK), _whole(32)
    k0, k1 = name(seed & mask), name((seed >> shift) & mask)
    c0, c1, c2, c3 = name(counter & mask), name((counter >> shift) & mask), _whole(0), _whole(0)
    for number in range(_ROUNDS):
        p0, p1 = name(_whole(int(philox.M0)) * c0), name(_whole(int(philox.M1)) * c2)
        key0 = (k0 + _whole(number * philox.W0 & _MASK)) & mask
        key1 = (k1 + _whole(number * philox.W1 & _MASK)) & mask
        c0, c1, c2, c3 = (
            name(((p1 >> shift) & mask) ^ c1 ^ key0), name(p1 & mask), name(((p0 >> shift) & mask) ^ c3 ^ key1), name(p0 & mask),
        )  # fmt: skip
    return c0, c1, c2, c3


def _uniform(name: _Names, words: Sequence[Expr], dtype: DType) -> list[Expr]:
    if dtype is float64:
        high = [(words[2 * i + 1] << _whole(21)) | (words[2 * i] >> _whole(11)) for i in range(2)]
        return [builder.cast(x, float64) * 2.0**-53 for x in high]
    numbers = [builder.cast(x >> _whole(8), float32) * 2.0**-24 for x in words]
    if dtype is float32:
        return numbers
    digits = 2.0**11 if dtype is float16 else 2.0**8
    return [builder.cast(builder.floor(x * digits) / digits, dtype) for x in numbers]


def _integers(name: _Names, words: Sequence[Expr], dtype: DType) -> list[Expr]:
    return [(words[2 * i + 1] << _whole(31)) | (words[2 * i] >> _whole(1)) for i in range(2)]


def _normal(name: _Names, words: Sequence[Expr], dtype: DType) -> list[Expr]:
    """Box and Muller's transform, as `philox._pairs_of_normals`."""
    out: list[Expr] = []
    if dtype is float64:
        wide = [name((words[2 * i + 1] << _whole(21)) | (words[2 * i] >> _whole(11))) for i in range(2)]
        pairs, unit = [(wide[0], wide[1])], 2.0**-53
    else:
        pairs, unit = [(words[0], words[1]), (words[2], words[3])], 2.0**-32
    for first, second in pairs:
        radius = name(builder.sqrt(_logarithm(name, builder.cast(first + _whole(1), float64) * unit) * -2.0))
        cosine, sine = _circle(name, builder.cast(second, float64) * unit)
        out += [radius * cosine, radius * sine]
    if dtype is not float64:
        out = [builder.cast(x, float32) for x in out]
    return out if dtype in (float32, float64) else [builder.cast(x, dtype) for x in out]


def _exponential(name: _Names, words: Sequence[Expr], dtype: DType) -> list[Expr]:
    """As `philox.exponential`."""
    wide = [(words[2 * i + 1] << _whole(20)) | (words[2 * i] >> _whole(12)) for i in range(2)]
    whole, unit = (wide, 2.0**-52) if dtype is float64 else (words, 2.0**-32)
    out = [_logarithm(name, name((builder.cast(x, float64) + 0.5) * unit)) * -1.0 for x in whole]
    if dtype is not float64:
        out = [builder.cast(x, float32) for x in out]
    return out if dtype in (float32, float64) else [builder.cast(x, dtype) for x in out]


def _horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    total: Expr = builder.const(coefficients[-1], float64)
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def _logarithm(name: _Names, x: Expr) -> Expr:
    """`philox.logarithm`."""
    bits = name(builder.bitcast(x, int64))
    k = name((bits + _whole(0x95F6400000000)) >> _whole(52))
    exponent = name(builder.cast(k - _whole(1023), float64))
    f = name(builder.bitcast(bits - ((k - _whole(1023)) << _whole(52)), float64) - 1.0)
    s = name(f / (f + 2.0))
    square = name(s * s)
    half = name(f * 0.5 * f)
    tail = square * _horner(square, philox.LOG)
    return exponent * philox.LN2_HIGH - ((half - (s * (half + tail) + exponent * philox.LN2_LOW)) - f)


def _circle(name: _Names, turns: Expr) -> tuple[Expr, Expr]:
    """`philox.circle`."""
    quarters = name(turns * 4.0)
    quadrant = name(builder.cast(quarters + 0.5, int64))
    x = name((quarters - builder.cast(quadrant, float64)) * 1.5707963267948966)
    square = name(x * x)
    s = name(x + (x * square) * _horner(square, philox.SIN))
    c = name(builder.const(1.0, float64) - (square * 0.5 - square * square * _horner(square, philox.COS)))
    odd = name(builder.eq(quadrant & _whole(1), 1))
    cosine, sine = name(builder.select(odd, s, c)), name(builder.select(odd, c, s))
    return (
        builder.select(builder.eq((quadrant + _whole(1)) & _whole(2), 2), -cosine, cosine),
        builder.select(builder.eq(quadrant & _whole(2), 2), -sine, sine),
    )


def _draw(numbers: Callable[[_Names, Sequence[Expr], DType], list[Expr]]) -> Callable[[Writer, Values, Node, int], None]:
    def build(w: Writer, values: Values, node: Node, code: int) -> None:
        (state,) = node.operands
        assert isinstance(state, int)
        out, dtype = node.outputs[0], values.aval(node.outputs[0]).dtype
        count = product(values.aval(out).shape)
        each = philox.numbers_in_block(dtype.itemsize > 4)
        layout = values.strided[state]
        target, source = w.buffer(values.strided[out], dtype, write=True), w.buffer(layout, int64)

        def block(axis: Axis, first: int, stored: int) -> tuple[Statement, ...]:
            name = _Names(w.var)
            seed, counter = (name(Load(source, Index((), i * layout.strides[0]))) for i in range(2))
            here = name(counter + AxisValue(axis) + w.parameters.number(first))
            made = numbers(name, _words(name, here, seed), dtype)
            begin = first * each
            at = [w.parameters.size(begin + i) if begin else i for i in range(stored)]
            stores = [Store(target, Index(((axis, each),), offset), x) for offset, x in zip(at, made, strict=False)]
            return (*name.lines, *stores)

        full, rest = count // each, int(count % each)  # a symbolic one settles: so many stores are written out
        for first, extent, stored in ((0, full, each), (full, 1, rest)):
            if extent and stored:
                axis = w.axis()
                w.body.append(For(axis, w.parameters.size(extent), block(axis, first, stored), extent > 1))

    return build


@builds("advance")
def random_advance(w: Writer, values: Values, node: Node, code: int) -> None:
    """The state after so many counter values were used."""
    (state,) = node.operands
    assert isinstance(state, int)
    layout = values.strided[state]
    target, source = w.buffer(values.strided[node.outputs[0]], int64, write=True), w.buffer(layout, int64)
    seed, counter = (Load(source, Index((), i * layout.strides[0])) for i in range(2))
    stores = (Store(target, Index((), 0), seed), Store(target, Index((), 1), counter + w.parameters.number(node.attrs["count"])))
    w.body.append(For(w.axis(), 1, stores))


DRAWS: Final = {"uniform": _uniform, "normal": _normal, "exponential": _exponential, "integers": _integers}
"""What makes numbers of the words of a block, by the form of the draw."""
for form, numbers in DRAWS.items():
    builds(form)(_draw(numbers))


def draw_nest(form: str, dtype: DType) -> Nest:
    """A draw of whole blocks that is a function of its own: buffer out; sizes: how many blocks, the seed, the counter."""
    out, (blocks, seed, counter), axis = Buffer("out", dtype), map(Size, ("blocks", "seed", "counter")), Axis("i")
    names, each = itertools.count(), philox.numbers_in_block(dtype.itemsize > 4)
    name = _Names(lambda dtype: Var(f"v{next(names)}", dtype))
    made = DRAWS[form](name, _words(name, name(SizeValue(counter) + AxisValue(axis)), SizeValue(seed)), dtype)
    stores = [Store(out, Index(((axis, each),), i), x) for i, x in enumerate(made)]
    return Nest(form, (out,), (blocks, seed, counter), (), (For(axis, blocks, (*name.lines, *stores), vector=True),))
