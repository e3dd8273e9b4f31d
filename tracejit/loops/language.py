"""The loop language: what a scheduled nest is made of, below graphs and above renderings.

A `Nest` is a function over buffers, sizes and scalars.  Its body is a tree of statements whose expressions are `Expr`
(loops/expressions.py): scalar arithmetic with one meaning.  All three renderings (plain Python, Numba, LLVM IR) walk the same tree, and the
reduction tree is written in it (`Reduce`), so they agree bit for bit whatever the host's vector width.

Indices are affine in the loop variables: sum of stride * axis + offset, in elements, strides and offsets being ints or
`Size` parameters; or dynamic: an int64 Expr that is bounded where it is used (bounds.py), after an `Exit` where it had to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tracejit.core.dtypes import DType

__all__ = [
    "Axis",
    "Buffer",
    "Exit",
    "For",
    "Index",
    "Interleaved",
    "Let",
    "Nest",
    "Reduce",
    "Scalar",
    "Size",
    "Statement",
    "Store",
    "Tiles",
    "chain",
    "flatten",
]


@dataclass(frozen=True, slots=True)
class Size:
    """An int64 parameter of a nest."""

    name: str


@dataclass(frozen=True, slots=True)
class Buffer:
    """A pointer parameter of a nest: memory of elements of one dtype, aligned to the element only."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number parameter of a nest (Python scalar operand), read once before the loops."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """A loop variable.  Compare by identity."""

    name: str


Extent = int | Size


@dataclass(frozen=True, slots=True)
class Index:
    """offset + sum(stride * axis), in elements.  `dynamic` adds an int64 Expr (in range, see bounds.py) times `dynamic_stride`."""

    terms: tuple[tuple[Axis, Extent], ...] = ()
    offset: Extent = 0
    dynamic: Any = None
    dynamic_stride: Extent = 1


@dataclass(frozen=True, slots=True)
class Let:
    """Name the value of an expression; `var` is an `expr.Var`.  Evaluated once per iteration of the enclosing loop."""

    var: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[index] = value, or with `accumulate` buffer[index] += value (iterations in order: no vector lane conflicts allowed
    unless the index has unit stride in the vector axis)."""

    buffer: Buffer
    index: Index
    value: Any
    accumulate: bool = False


@dataclass(frozen=True, slots=True)
class Interleaved:
    """Stores to all columns of a table, in order (made by rewrites/strides.py): together they fill the accesses between their elements."""

    stores: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class Exit:
    """Leave the whole program with exit number `code` if `condition` (bool Expr) holds in any iteration.  In a vector loop the
    lanes are or-ed; the program leaves before any later statement of the enclosing nest commits anything."""

    condition: Any
    code: int | Scalar


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a loop runs in tiles: their edge, and the accesses read in the loops that are worth transposing, a tile at a time."""

    edge: int
    accesses: tuple[tuple[Buffer, Index], ...]


@dataclass(frozen=True, slots=True)
class For:
    """for axis in range(extent).  `vector`: innermost, worth to run as explicit vectors where its iterations are independent.

    With `lanes` (given by rewrites/vectorise.py, on the way to a machine) so many iterations run at a time, each statement for all of them
    before the next one, and what is left over at the end as a shorter group or one by one, which is the same.

    With `tiles` (rewrites/tile.py) this loop and the innermost one of its `chain` run in tiles: groups of this one's iterations, in each
    the loops between, in these groups of the innermost one's, in each row by row all Lets and the innermost body."""

    axis: Axis
    extent: Extent
    body: tuple[Statement, ...]
    vector: bool = False
    lanes: int = 1
    tiles: Tiles | None = None


@dataclass(frozen=True, slots=True)
class Reduce:
    """A vector loop that combines one or more values over `axis`; results are named by `Var`s visible afterwards.

    items: (result Var, combination, value Expr); the combination is one of `combinations.COMBINATIONS`, by name.
    body: statements executed before the values are combined (Let, Store, Exit), per iteration.
    The order of combination is fixed by the nest: element i belongs to logical lane i % LANES.  Sums of floats: each lane adds its elements
    of the full groups of LANES in the value's dtype within blocks of BLOCK elements; at the end of a block the lane's sum is added to its
    float64 total (for float64 values with the error of the addition carried along); elements after the last full group are added to the
    totals directly.  Products of floats are kept in float64.  At the end lane k is combined with lane k + half until one is left, and the
    result is rounded once to the Var's dtype.  An empty sum is 0, product 1; max and min propagate NaN as NumPy does (an empty max is
    the least value); argmax and argmin give the first position (NaN counts as extreme, first NaN wins) as int64, or as int32 if their
    Var is one and the extent is less than the greatest int32.
    """

    axis: Axis
    extent: Extent
    items: tuple[tuple[Any, str, Any], ...]
    body: tuple[Statement, ...] = ()


SMALL_STRIDES = range(2, 5)  # that are worth telling apart in the innermost loop
LANES = 16
BLOCK = 256

Statement = Let | Store | Interleaved | Exit | For | Reduce


@dataclass(frozen=True, slots=True)
class Nest:
    """One function: parameters in order, then the body.  Two nests with equal text (`loops/python.py`) are one function.

    `temporaries` are pointer parameters too, after `buffers`: scratch memory whose contents are undefined on entry and unread after.
    Buffers that the nest stores to must not overlap its other buffers unless every statement reads and writes them at the same index.
    """

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[Size, ...]
    scalars: tuple[Scalar, ...]
    body: tuple[Statement, ...]
    temporaries: tuple[Buffer, ...] = field(default=())


def chain(outer: For) -> tuple[tuple[For, ...], tuple[Let, ...]]:
    """The loops from `outer` down to one with lanes, where each but that consists of Lets and the next one; and these Lets.  No loops where
    something else stands between."""
    loops, lets = [outer], list[Let]()
    while loops[-1].lanes == 1:
        *first, last = loops[-1].body or (None,)
        if not isinstance(last, For) or not all(isinstance(s, Let) for s in first):
            return (), ()
        lets += [s for s in first if isinstance(s, Let)]
        loops.append(last)
    return tuple(loops), tuple(lets)


def flatten(statements: Sequence[Statement]) -> list[Statement]:
    """All statements of a tree, outer first."""
    out: list[Statement] = []
    for s in statements:
        out.append(s)
        if isinstance(s, For | Reduce | Interleaved):
            out.extend(s.stores if isinstance(s, Interleaved) else flatten(s.body))
    return out
