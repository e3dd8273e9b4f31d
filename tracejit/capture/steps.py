"""A step of a Python loop, as it was recorded: which nodes it has appended, of operands from which places, and what it has left; and what
many of them have left in a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tracejit.ir.graph import Node
from tracejit.tensor import Tensor

__all__ = ["Applied", "Asked", "Place", "Stacked", "Step"]

Place = tuple[str, int]
"""Where a step finds a tensor: "given", by its place in the snapshot, "made", by its number in the step, or "shared", by its value."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A node of a step.  operands: places of tensors and numbers; anything else as it is in the node.  attributes: those of the node.
    kind: of its outputs.  position: which slice it is a view of, if it is one; neither compared nor among operands and attributes."""

    node: Node
    operands: tuple[Any, ...]
    attributes: tuple[tuple[str, Any], ...]
    with_grad: bool
    kind: tuple[Any, ...]
    position: int | None

    def is_like(self, other: Applied) -> bool:
        return (
            self.node.op is other.node.op
            and self.operands == other.operands
            and self.attributes == other.attributes
            and (self.with_grad, self.kind) == (other.with_grad, other.kind)
        )


class Asked(NamedTuple):
    """A comparison of a counter with a number, and how it came out."""

    symbol: str
    counter: Any
    other: Any
    answer: bool

    def is_like(self, other: Asked) -> bool:
        return (self.symbol, self.answer) == (other.symbol, other.answer) and bool(self.other == other.other)


@dataclass(frozen=True, slots=True)
class Step:
    """What a step does: its nodes, where it leaves the tensors of the next snapshot, those that it appends to lists, and what it asks of
    counters."""

    nodes: list[Applied]
    left: list[Place]
    appended: list[list[Place]]
    asked: Sequence[Asked] = ()

    def is_like(self, other: Step) -> bool:
        return (
            (len(self.nodes), len(self.asked)) == (len(other.nodes), len(other.asked))
            and (self.left, self.appended) == (other.left, other.appended)
            and all(a.is_like(b) for a, b in zip(self.nodes, other.nodes, strict=True))
            and all(a.is_like(b) for a, b in zip(self.asked, other.asked, strict=True))
        )


@dataclass(frozen=True, slots=True, eq=False)
class Stacked:
    """So many items, which are the rows of a tensor."""

    rows: Tensor
    count: Any
