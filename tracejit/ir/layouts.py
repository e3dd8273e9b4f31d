"""Where the elements of a value lie: positions within a nest, and strided layouts in memory.

A `Position` says which coordinate of one dimension is meant, as an affine function of the axes of an iteration space (plus an
optional dynamic part).  `through_view` turns positions in the output of a VIEW primitive into positions in its operand, so that a
view of a value that has no memory (it lives in a nest) is a matter of indices.  `Strided` is the other half: a view of a value that
has memory is an offset and strides over it, and costs nothing.

Both work on exact sizes, in elements, and follow from the primitive's own rule (`Op.element`).  This module knows no primitive, and
neither groups nor statements.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracejit.core.aval import Aval
from tracejit.core.op import Kind, Op
from tracejit.core.shapes import contiguous, product
from tracejit.core.symbolic import cached
from tracejit.ir.graph import Graph, Literal, Node, Operand

__all__ = [
    "ZERO",
    "Position",
    "Positions",
    "Source",
    "Strided",
    "beyond_view",
    "given_layouts",
    "is_constant",
    "is_fixed_view",
    "is_whole",
    "linear",
    "moving_view",
    "positions_in",
    "strided_view",
    "through_view",
]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """offset + sum(coefficient * axis) + sum(coefficient * dynamic); axes are numbers of an iteration space, no coefficient is 0.

    `dynamic` holds (coefficient, token) pairs, tokens being compared by identity of what they stand for."""

    terms: tuple[tuple[int, int], ...] = ()
    offset: int = 0
    dynamic: tuple[tuple[int, Any], ...] = ()

    def __add__(self, other: Position | int) -> Position:
        if isinstance(other, int):
            return Position(self.terms, self.offset + other, self.dynamic) if other else self
        if not self.terms:
            terms = other.terms
        elif not other.terms:
            terms = self.terms
        else:
            coefficients = dict(self.terms)
            for axis, c in other.terms:
                coefficients[axis] = coefficients.get(axis, 0) + c
            terms = tuple(sorted((a, c) for a, c in coefficients.items() if c))
        return Position(terms, self.offset + other.offset, self.dynamic + other.dynamic)

    __radd__ = __add__

    def __mul__(self, by: int) -> Position:
        if by == 1:
            return self
        if by == 0:
            return ZERO
        return Position(tuple((a, c * by) for a, c in self.terms), self.offset * by, tuple((c * by, d) for c, d in self.dynamic))

    def __rsub__(self, other: int) -> Position:
        return self * -1 + other

    def divide(self, size: int, extents: Sequence[int]) -> tuple[Position, Position] | None:
        """(quotient, remainder) by `size`, where both are affine in axes of these extents; None where they are not."""
        if self.dynamic or self.offset < 0:
            return None
        quotient, remainder, reach = [], [], self.offset % size
        for axis, c in self.terms:
            if c % size == 0:
                quotient.append((axis, c // size))
            else:
                if c < 0:
                    return None
                remainder.append((axis, c))
                reach += c * max(extents[axis] - 1, 0)
        if reach >= size:
            return None
        return Position(tuple(quotient), self.offset // size), Position(tuple(remainder), self.offset % size)


ZERO = Position()
Positions = tuple[Position, ...]


class Strided(NamedTuple):
    """Elements of the memory of value `root`: offset + sum(stride * coordinate)."""

    root: int
    offset: int
    strides: Shape

    def extent(self, shape: Shape) -> tuple[int, int]:
        """The first position of the elements of a value of `shape`, and the one after the last."""
        if 0 in shape:
            return self.offset, self.offset
        ends = [(n - 1) * s for n, s in zip(shape, self.strides, strict=True)]
        return self.offset + sum(min(0, e) for e in ends), self.offset + sum(max(0, e) for e in ends) + 1


def linear(positions: Positions, strides: Sequence[int]) -> Position:
    """The memory position of an element."""
    total = ZERO
    for p, s in zip(positions, strides, strict=True):
        if s and p is not ZERO:
            total = p * s if total is ZERO else total + p * s
    return total


def positions_in(at: Sequence[Position | int], shape: Shape) -> Positions:
    """Coordinates as positions; those along dimensions of one element are 0."""
    return tuple([ZERO if s == 1 else Position((), p) if isinstance(p, int) else p for p, s in zip(at, shape, strict=True)])


class NotAffine(Exception):
    """Places in an operand are no affine function of those in the output, or an index is not known before the program runs."""


@dataclass(slots=True)
class Source:
    """A tensor that `Op.element` takes elements of: x[at] is what `read` makes of the positions, if not these themselves."""

    shape: Shape
    read: Callable[[Positions], Any] = lambda at: at

    def __getitem__(self, at: Sequence[Position | int]) -> Any:
        return self.read(positions_in(at, self.shape))


@dataclass(slots=True)
class Affine:
    """What `Op.element` is given to find positions with: see core/op.py."""

    extents: Sequence[int]

    def divmod(self, p: Position | int, size: int) -> tuple[Position | int, Position | int]:
        found = divmod(p, size) if isinstance(p, int) else p.divide(size, self.extents)
        if found is None:
            raise NotAffine
        return found

    def position(self, index: Any, size: int) -> int:
        if not isinstance(index, Literal):
            raise NotAffine
        return index.position


@dataclass(slots=True)
class _WithDynamicIndices(Affine):
    """The same with indices that are not known before the program runs as dynamic parts of positions.  positions: (operand, how many
    positions there are) of each."""

    positions: list[tuple[int, int]] = field(default_factory=list)

    def position(self, index: Any, size: int) -> Position | int:  # type: ignore[override]
        if isinstance(index, Literal):
            return index.position
        self.positions.append((index, size))
        return Position(dynamic=((1, len(self.positions) - 1),))


def through_view(node: Node, out: Positions, shape: Shape, extents: Sequence[int]) -> Positions | None:
    """Positions in operand 0 (of `shape`) of the element at `out` in the output of a VIEW node.

    None where they are not affine in the axes (a reshape that needs a division), or the view's index is no constant."""
    return _moved(node.op, out, shape, node.operands[1:], node.attrs, extents)


def beyond_view(node: Node, at: Positions, shape: Shape, result: Shape, extents: Sequence[int]) -> Positions | None:
    """Positions in the output (of shape `result`) of a VIEW node of the element at `at` in operand 0 (of `shape`).

    None for a view that is not all of its operand, and where they are not affine."""
    attributes = node.op.undone_for(shape, node.attrs)
    return None if attributes is None else _moved(node.op, at, result, (), attributes, extents)


def _moved(
    op: Op, out: Positions, shape: Shape, numbers: Sequence[Operand], attributes: Mapping[str, Any], extents: Sequence[int]
) -> Positions | None:
    assert op.element is not None
    try:
        found: Positions = op.element(Affine(extents), out, Source(shape), *numbers, **attributes)
    except NotAffine:
        return None
    return found


def is_fixed_view(node: Node) -> bool:
    """Whether the node is a view of the same positions in every call."""
    if node.op.kind is not Kind.VIEW:
        return False
    return len(node.operands) == 1 or all(isinstance(o, Literal) for o in node.operands[1:])


def is_constant(node: Node) -> bool:
    """Whether the node is data that were known when the program was written."""
    return node.op.kind is Kind.CREATION and node.op.element is None


def given_layouts(graph: Graph, layouts: Mapping[int, Shape]) -> dict[int, Strided]:
    """Of the inputs, whose strides are given where they are not in row-major order, and of the constants."""
    avals = {v: aval for v in (*graph.inputs, *graph.constants) if isinstance(aval := graph.avals[v], Aval)}
    return {v: Strided(v, 0, layouts.get(v, contiguous(aval.shape))) for v, aval in avals.items()}


def is_whole(layout: Strided, shape: Shape, avals: Mapping[int, Any]) -> bool:
    """Whether a layout is all of its root's memory in row-major order, maybe under another shape."""
    return layout.offset == 0 and layout.strides == contiguous(shape) and product(shape) == avals[layout.root].size


def strided_view(node: Node, base: Strided, shape: Shape, result: Shape, unseen: bool = False) -> Strided | None:
    """The layout of the output of a VIEW node over a base with memory; None where it would need a copy or is not constant.  unseen: whether
    dimensions of one element have the strides that they would have with more, as slices have; else 0."""
    found = _view_layout(node.op, node.operands[1:], node.attributes, base.strides, shape, result, unseen)
    if found is None:
        return None
    offset, strides = found
    return Strided(base.root, 0 if offset is None else base.offset + offset, strides)


@cached(4096)
def _view_layout(
    op: Op,
    numbers: tuple[Operand, ...],
    attributes: tuple[tuple[str, Hashable], ...],
    base: Shape,
    shape: Shape,
    result: Shape,
    unseen: bool,
) -> tuple[int | None, Shape] | None:
    """The offset, None of no elements, and the strides of a view of a value with the strides `base`, which follow from its rule alone."""
    if product(result) == 0:
        return None, contiguous(result)
    if op.strides is not None:
        strides = op.strides(shape, base, result)
        return None if strides is None else (0, strides)
    if unseen:
        shape, result = (tuple([2 if s == 1 else s for s in sizes]) for sizes in (shape, result))
    axes = tuple(ZERO if s == 1 else Position(((d, 1),)) for d, s in enumerate(result))
    inner = _moved(op, axes, shape, numbers, dict(attributes), result)
    if inner is None:
        return None
    where = linear(inner, base)
    coefficients = dict(where.terms)
    return where.offset, tuple(coefficients.get(d, 0) for d in range(len(result)))


def moving_view(
    node: Node, base: Strided, shape: Shape, result: Shape
) -> tuple[Strided, tuple[tuple[int, int, int], ...]] | None:
    """The layout of the output of a VIEW node over a base with memory where each index that the program computes is 0, and of each of
    these indices (the operand, how many positions there are, how far apart they are); None where it would need a copy."""
    if all(isinstance(o, Literal) for o in node.operands[1:]):
        layout = strided_view(node, base, shape, result)
        return None if layout is None else (layout, ())
    affine = _WithDynamicIndices(result)
    axes = tuple(ZERO if s == 1 else Position(((d, 1),)) for d, s in enumerate(result))
    assert node.op.element is not None
    try:
        inner: Positions = node.op.element(affine, axes, Source(shape), *node.operands[1:], **node.attrs)
    except NotAffine:
        return None
    where = linear(inner, base.strides)
    terms, apart = dict(where.terms), {k: c for c, k in where.dynamic}
    layout = Strided(base.root, base.offset + where.offset, tuple([terms.get(d, 0) for d in range(len(result))]))
    return layout, tuple([(operand, size, apart.get(k, 0)) for k, (operand, size) in enumerate(affine.positions)])
