"""A unit: what becomes one step of a program, or a few, before addresses are known.

`lower.py` makes units of the groups of a graph, `memory_order.py` puts them into an order, and `lower.py` makes steps of them.  A unit
tells which values it reads and makes.  One of `nest`, `product`, `copy`, `loop`, `lapack`, `convolution` and `slices` tells what its
steps are.

Must not know: the order of units, addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tracejit.core.aval import Aval
from tracejit.core.convolutions import Call
from tracejit.ir.graph import Node
from tracejit.ir.layouts import Strided
from tracejit.lowering.divide import NestPart
from tracejit.lowering.elements import Scratch
from tracejit.lowering.lowered import Lowered
from tracejit.lowering.regions import Moving
from tracejit.lowering.schedule import Scheduled

__all__ = ["Slices", "Unit"]


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """A nest and a product, one of which makes the value that the other reads, done slice by slice of it, so that there is one at a time.

    nest: does the first slice.  comes_first: whether it makes the value.  moving: (root, bytes from slice to slice) of what the two read
    and write else.  batch: of the product for one slice."""

    count: int
    value: int
    nest: tuple[NestPart, ...]
    comes_first: bool
    moving: tuple[tuple[int, int], ...]
    product: Node
    batch: tuple[tuple[int, int, int, int], ...]


@dataclass(slots=True, eq=False)
class Unit:
    """One step before addresses are known, or a few."""

    label: str
    reads: frozenset[int]
    writes: frozenset[int]
    exits: bool = False
    codes: tuple[int, ...] = ()  # of its exits
    nest: Scheduled | None = None
    nest_parts: tuple[NestPart, ...] = ()  # of the nest
    product: Node | None = None
    copy: tuple[Strided, Strided, Aval] | None = None
    moving: tuple[Moving, ...] = ()  # in the target of the copy
    loop: tuple[Node, Lowered] | None = None  # its body
    lapack: Node | None = None
    convolution: Sequence[Call] = ()  # calls of kernels, after the nest
    base: int = 0  # of the body's slots
    scratch: list[Scratch] = field(default_factory=list)
    read_bytes: int = 0
    nodes: tuple[Node, ...] = ()  # that it computes
    slices: Slices | None = None  # if it is done slice by slice
    instead: Mapping[int, int] = field(default_factory=dict)  # a value -> the repetition's, which the unit reads or makes
