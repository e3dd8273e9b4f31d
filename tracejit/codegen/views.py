"""Where the elements of a value lie: positions within a nest, and strided layouts in memory.

A `Position` says which coordinate of one dimension is meant, as an affine function of the axes of an iteration space (plus an
optional dynamic part).  `through_view` turns positions in the output of a VIEW primitive into positions in its operand, so that a
view of a value that has no memory (it lives in a nest) is a matter of indices.  `Strided` is the other half: a view of a value that
has memory is an offset and strides over it, and costs nothing.

Both work on exact sizes, in elements.  This module knows the VIEW primitives of docs/architecture.md by name, and neither groups
nor statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tracejit.core.shapes import product
from tracejit.ir.graph import Literal, Node

__all__ = ["ZERO", "Position", "Positions", "Strided", "contiguous", "linear", "same_shape_block", "strided_view", "through_view"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """offset + sum(coefficient * axis) + sum(coefficient * dynamic); axes are numbers of an iteration space, no coefficient is 0.

    `dynamic` holds (coefficient, token) pairs, tokens being compared by identity of what they stand for."""

    terms: tuple[tuple[int, int], ...] = ()
    offset: int = 0
    dynamic: tuple[tuple[int, Any], ...] = ()

    def shifted(self, by: int) -> Position:
        return Position(self.terms, self.offset + by, self.dynamic) if by else self

    def scaled(self, by: int) -> Position:
        if by == 1:
            return self
        if by == 0:
            return ZERO
        return Position(tuple((a, c * by) for a, c in self.terms), self.offset * by, tuple((c * by, d) for c, d in self.dynamic))

    def plus(self, other: Position) -> Position:
        coefficients = dict(self.terms)
        for axis, c in other.terms:
            coefficients[axis] = coefficients.get(axis, 0) + c
        terms = tuple(sorted((a, c) for a, c in coefficients.items() if c))
        return Position(terms, self.offset + other.offset, self.dynamic + other.dynamic)

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


@dataclass(frozen=True, slots=True)
class Strided:
    """Elements of the memory of value `root`: offset + sum(stride * coordinate)."""

    root: int
    offset: int
    strides: Shape

    def extent(self, shape: Shape) -> tuple[int, int]:
        """The first place of the elements of a value of `shape`, and the one after the last."""
        if 0 in shape:
            return self.offset, self.offset
        ends = [(n - 1) * s for n, s in zip(shape, self.strides, strict=True)]
        return self.offset + sum(min(0, e) for e in ends), self.offset + sum(max(0, e) for e in ends) + 1


def contiguous(shape: Shape) -> Shape:
    """Row-major strides in elements."""
    strides, n = [], 1
    for s in reversed(shape):
        strides.append(n)
        n *= max(s, 1)
    return tuple(reversed(strides))


def linear(positions: Positions, strides: Sequence[int]) -> Position:
    """The memory position of an element."""
    total = ZERO
    for p, s in zip(positions, strides, strict=True):
        if s and p is not ZERO:
            total = p.scaled(s) if total is ZERO else total.plus(p.scaled(s))
    return total


def same_shape_block(before: Shape, after: Shape) -> list[tuple[range, range]] | None:
    """Cut a reshape into the smallest pairs of dimension ranges with equal products; None if an empty tensor has none."""
    blocks = []
    i = j = 0
    while i < len(before) or j < len(after):
        i0, j0, p, q = i, j, 1, 1
        if i < len(before):
            p, i = before[i], i + 1
        if j < len(after):
            q, j = after[j], j + 1
        while p != q:
            if p < q and i < len(before):
                p, i = p * before[i], i + 1
            elif j < len(after):
                q, j = q * after[j], j + 1
            elif i < len(before):
                p, i = p * before[i], i + 1
            else:
                return None
        blocks.append((range(i0, i), range(j0, j)))
    return blocks


def through_view(node: Node, out: Positions, shape: Shape, result: Shape, extents: Sequence[int]) -> Positions | None:
    """Positions in operand 0 (of `shape`) of the element at `out` in the output (of shape `result`) of a VIEW node.

    None where they are not affine in the axes (a reshape that needs a division), or the view's index is no constant."""
    rule = _THROUGH[node.op.name]
    found = rule(node, out, shape, result, extents)
    return None if found is None else tuple(ZERO if s == 1 else p for p, s in zip(found, shape, strict=True))


def _same(node: Node, out: Positions, shape: Shape, result: Shape, extents: Sequence[int]) -> Positions:
    return out


def _reshape(node: Node, out: Positions, shape: Shape, result: Shape, extents: Sequence[int]) -> Positions | None:
    if 0 in shape:
        return out if shape == result else tuple(ZERO for _ in shape)
    blocks = same_shape_block(shape, result)
    assert blocks is not None, f"{node.op.name}: {shape} and {result} differ in size"
    found: list[Position] = []
    for dims, new in blocks:
        whole = linear(tuple(out[d] for d in new), contiguous(tuple(result[d] for d in new)))
        split: list[Position] = []
        for d in reversed(dims):
            if d == dims[0] or all(shape[e] == 1 for e in range(dims[0], d)):
                split.append(whole)
                whole = ZERO
            elif shape[d] == 1:
                split.append(ZERO)
            else:
                parts = whole.divide(shape[d], extents)
                if parts is None:
                    return None
                whole, rest = parts
                split.append(rest)
        found.extend(reversed(split))
    return tuple(found)


def _permute(node: Node, out: Positions, shape: Shape, result: Shape, extents: Sequence[int]) -> Positions:
    found = [ZERO] * len(shape)
    for p, d in zip(out, node.attrs["dims"], strict=True):
        found[d] = p
    return tuple(found)


def _expand(node: Node, out: Positions, shape: Shape, result: Shape, extents: Sequence[int]) -> Positions:
    return out[len(result) - len(shape) :]


def _slice(node: Node, out: Positions, shape: Shape, result: Shape, extents: Sequence[int]) -> Positions:
    a = node.attrs
    dim = a["dim"]
    return (*out[:dim], out[dim].scaled(a["step"]).shifted(a["start"]), *out[dim + 1 :])


def _select(node: Node, out: Positions, shape: Shape, result: Shape, extents: Sequence[int]) -> Positions | None:
    index, dim = node.operands[1], node.attrs["dim"]
    if not isinstance(index, Literal):
        return None
    return (*out[:dim], Position(offset=int(index.value)), *out[dim:])


def _diagonal(node: Node, out: Positions, shape: Shape, result: Shape, extents: Sequence[int]) -> Positions:
    a = node.attrs
    offset, last = a["offset"], out[-1]
    rest = iter(out[:-1])
    found = []
    for d in range(len(shape)):
        if d == a["dim1"]:
            found.append(last.shifted(max(-offset, 0)))
        elif d == a["dim2"]:
            found.append(last.shifted(max(offset, 0)))
        else:
            found.append(next(rest))
    return tuple(found)


def _unfold(node: Node, out: Positions, shape: Shape, result: Shape, extents: Sequence[int]) -> Positions:
    a = node.attrs
    dim = a["dim"]
    place = out[dim].scaled(a["step"]).plus(out[-1].scaled(a["dilation"]))
    return (*out[:dim], place, *out[dim + 1 : -1])


_THROUGH = {
    "reshape": _reshape,
    "unfold": _unfold,
    "permute": _permute,
    "expand": _expand,
    "slice": _slice,
    "select": _select,
    "diagonal": _diagonal,
    "detach": _same,
}


def strided_view(node: Node, base: Strided, shape: Shape, result: Shape) -> Strided | None:
    """The layout of the output of a VIEW node over a base with memory; None where it would need a copy or is not constant."""
    if product(result) == 0:
        return Strided(base.root, 0, contiguous(result))
    if node.op.name == "reshape":
        strides = _reshaped_strides(shape, base.strides, result)
        return None if strides is None else Strided(base.root, base.offset, strides)
    axes = tuple(ZERO if s == 1 else Position(((d, 1),)) for d, s in enumerate(result))
    inner = through_view(node, axes, shape, result, result)
    if inner is None:
        return None
    where = linear(inner, base.strides)
    coefficients = dict(where.terms)
    return Strided(base.root, base.offset + where.offset, tuple(coefficients.get(d, 0) for d in range(len(result))))


def _reshaped_strides(shape: Shape, strides: Shape, result: Shape) -> Shape | None:
    """Strides of the reshaped view where the memory allows it."""
    blocks = same_shape_block(shape, result)
    assert blocks is not None
    found: list[int] = []
    for dims, new in blocks:
        kept = [d for d in dims if shape[d] != 1]
        for d, e in pairwise(kept):
            if strides[d] != strides[e] * shape[e]:
                return None
        unit = strides[kept[-1]] if kept else 1
        found.extend(s * unit for s in contiguous(tuple(result[d] for d in new)))
    return tuple(found)
