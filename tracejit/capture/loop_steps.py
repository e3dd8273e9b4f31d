"""A step of a Python loop, as it was recorded: which nodes it has appended, of operands from which places, and what it has left; and what
many of them have left in a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tracejit.ir.graph import Node
from tracejit.tensor import Tensor

__all__ = ["CounterComparison", "ListRead", "LoopStep", "StackedItems", "StepItems", "StepNode", "StepValue"]

StepValue = tuple[str, int]
"""Where a step finds a tensor: "given", by its place in the snapshot, "read", by its number among the items of lists that it reads, "made",
by its number in the step, or "shared", by its value."""


@dataclass(frozen=True, slots=True)
class StepNode:
    """A node of a step.  operands: places of tensors and numbers; anything else as it is in the node.  attributes: those of the node.
    kind: of its outputs.  position: which slice it is a view of, if it is one; neither compared nor among operands and attributes.  width:
    how long that is along its dimension, None of one that has not got that dimension."""

    node: Node
    operands: tuple[Any, ...]
    attributes: tuple[tuple[str, Any], ...]
    with_grad: bool
    kind: tuple[Any, ...]
    position: int | None
    width: int | None

    @property
    def is_window(self) -> bool:
        """Whether it is a slice of several elements, of which the next one may have some."""
        return self.width is not None and self.width > 1

    def is_like(self, other: StepNode) -> bool:
        return (
            self.node.op is other.node.op
            and self.operands == other.operands
            and self.attributes == other.attributes
            and (self.with_grad, self.kind, self.width) == (other.with_grad, other.kind, other.width)
        )


class CounterComparison(NamedTuple):
    """A comparison of a counter with a number, and how it came out."""

    symbol: str
    counter: Any
    other: Any
    answer: bool

    def is_like(self, other: CounterComparison) -> bool:
        return (self.symbol, self.answer) == (other.symbol, other.answer) and bool(self.other == other.other)


class ListRead(NamedTuple):
    """An item of a private list that a step reads at a place.  kind: its aval, and whether it requires grad."""

    name: str
    place: Any
    kind: tuple[Any, bool]


@dataclass(frozen=True, slots=True)
class LoopStep:
    """What a step does: its nodes, where it leaves the tensors of the next snapshot, those that it appends to lists, what it asks of
    counters, and what it reads of lists.  takes_gradients: of what it has made, and leaves nothing on the tape: it does without one what
    it has done.  leaves: which of the tensors of the next snapshot are leaves that require grad, then."""

    nodes: list[StepNode]
    left: list[StepValue]
    appended: list[list[StepValue]]
    asked: Sequence[CounterComparison] = ()
    read: Sequence[ListRead] = ()
    takes_gradients: bool = False
    leaves: tuple[int, ...] = ()

    def with_given(self, elements: int) -> LoopStep:
        """The same where what it reads is given to it, after so many elements."""

        def found(x: Any) -> Any:
            if type(x) is not tuple or not (x[0] == "read" or (x[0] == "given" and x[1] >= elements)):
                return x
            return "given", x[1] + (elements if x[0] == "read" else len(self.read))

        nodes = [replace(a, operands=tuple(map(found, a.operands))) for a in self.nodes]
        left, appended = list(map(found, self.left)), [list(map(found, items)) for items in self.appended]
        return replace(self, nodes=nodes, left=left, appended=appended, read=())

    def is_like(self, other: LoopStep) -> bool:
        return (
            (len(self.nodes), len(self.asked)) == (len(other.nodes), len(other.asked))
            and (self.left, self.appended, self.leaves) == (other.left, other.appended, other.leaves)
            and self.takes_gradients == other.takes_gradients
            and [(x.name, x.kind) for x in self.read] == [(x.name, x.kind) for x in other.read]
            and all(a.is_like(b) for a, b in zip(self.nodes, other.nodes, strict=True))
            and all(a.is_like(b) for a, b in zip(self.asked, other.asked, strict=True))
        )

    def difference_from(self, before: LoopStep) -> str:
        """What tells it from the step before it, for a reader; empty where they are alike."""
        for a, b in zip(before.nodes, self.nodes, strict=False):
            if not a.is_like(b):
                return f"{b.node.op.name} at {b.node.line} is not what the step before did there"
        fewer, more = sorted((before.nodes, self.nodes), key=len)
        if len(fewer) < len(more):
            only = more[len(fewer)].node
            return f"{only.op.name} at {only.line} is in some steps alone"
        if [(x.symbol, x.answer) for x in before.asked] != [(x.symbol, x.answer) for x in self.asked]:
            return "a comparison with the number of the step comes out otherwise"
        return "" if before.is_like(self) else "steps leave other things in their variables or lists"


@dataclass(frozen=True, slots=True)
class StepItems:
    """Items that steps have made and a node stands for.  items: gives them, the first one first, or None; the same function of all pieces
    that have the same items.  is_turned: whether a piece has them in the other order."""

    items: Callable[[], list[Tensor] | None]
    is_turned: bool = False

    def in_order(self) -> list[Tensor] | None:
        found = self.items()
        return found[::-1] if found is not None and self.is_turned else found


@dataclass(frozen=True, slots=True, eq=False)
class StackedItems:
    """So many items, which are the rows of a tensor.  made: what they have been made by, if rows have other places on the tape and items
    may be looked at one by one (unrolled_items.py)."""

    rows: Tensor
    count: Any
    made: StepItems | None = None
