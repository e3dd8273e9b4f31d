"""The tape's node for a compiled program: one node for everything the program did.

In its place eager's tape has many nodes, and a backward pass enters some of them: those on the way from the outputs that have cotangents
to the leaves, or to the values asked for.  The plan knows which (`Visit`): what those would check, and what the pass frees.

Where a pass does what theirs would do, the node runs the backward program for the mask of cotangents that arrived, on the residual
slab, the inputs that the program reads directly and the cotangents.  Where one program cannot do that, the node is *expanded*:
eager's nodes are made, with the saved values that are left, and the pass goes on in them.  That is so when the result must itself be
differentiable (create_graph=True, or a recording is active), when someone sees the gradient of a result from which another one was
computed inside, when a value that eager's tape would have saved was changed, and when an earlier pass has freed a part that this one
enters.  So there is no case in which the gradients, or the errors, are other ones than eager's.

Memory is kept as long as some pass could still go through without meeting what an earlier one has freed.

It must not know how programs are made: a `Program`-like plan is handed in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from tracejit.autograd.tape import FREED, Node, SelectiveNode

__all__ = ["Call", "CompiledNode", "ConsumedNode", "DifferentiablePlan", "Visit"]

Mask = tuple[bool, ...]
TapeEdge = tuple[Any, int]
Call = Callable[["CompiledNode", Sequence[Any], bool], Any]
NOTHING_FREED: Final[frozenset[int]] = frozenset()
EXPANDED: Final[frozenset[int]] = frozenset({-1})
"""`CompiledNode.freed` of a node that was expanded."""


class Visit(NamedTuple):
    """What a backward pass meets on the tape that eager mode would have made.

    savers: the entered nodes that saved something, by number.  saved: what they saved, as keys of `CompiledNode.saved`.
    overwritten: whether the program itself overwrote something that they saved.  arrival: the edges that gradients reach, in the order in
    which they first do."""

    savers: frozenset[int]
    saved: frozenset[int]
    overwritten: bool
    arrival: tuple[int, ...]


class DifferentiablePlan(Protocol):
    """What a CompiledNode asks of the program that made it."""

    name: str
    kept: Sequence[int]
    """What is in `CompiledNode.storages`: i for tensor input i, ~i for output i."""
    saved: Sequence[int]
    """The same for `CompiledNode.saved`."""

    calls: dict[int | Mask, Call]
    """What `call` has made."""
    freed_by_all_outputs: frozenset[int]
    """The savers that a pass from all outputs to everything enters."""

    def visit(self, present: Mask, wanted: Mask | None) -> Visit:
        """The pass from the outputs in `present` to everything (None), or to the tensor inputs in `wanted`."""

    def leading(self, wanted: Mask) -> frozenset[int]:
        """The outputs from which a gradient reaches one of the tensor inputs in `wanted`."""

    def computed_from(self, i: int) -> frozenset[int]:
        """The other outputs whose gradients pass through output `i`."""

    def made_at(self, i: int) -> int:
        """When output `i` was made, among the others."""

    def can_continue(self, freed: frozenset[int]) -> bool:
        """Whether some pass, from an output to an input or to another output, needs values that are kept and enters none of the savers in
        `freed`."""

    def run_backward(
        self,
        present: Mask,
        wanted: Mask | None,
        arrays: tuple[Any, ...],
        scalars: tuple[Any, ...],
        cotangents: list[Any],
        slab: Any,
    ) -> Sequence[Any]:
        """Gradients (arrays or None) per tensor input; at least those in `wanted`."""

    def call(self, node: CompiledNode, key: int | Mask) -> Call:
        """`call(node, cotangents, retain)`, which does one of two things, or nothing: then it answers False.

        key an output: a backward pass from it to all leaves, which adds to their `.grad` and releases the node unless `retain`.  key a
        mask of present cotangents: it answers with the gradients, an array of its own or None for each edge."""

    def tape(self, node: CompiledNode) -> tuple[TapeEdge | None, ...]:
        """The position of each output on the tape that eager mode would have made for the call of `node`."""


class CompiledNode(SelectiveNode):
    """One call of a differentiable program.

    tensors: all tensor inputs.  arrays: their arrays at the time of the call.  Both in parts, tuples to be chained: those of
    parameters are shared by all calls.  storages: of everything that eager would have saved, and that parameters have; all calls share
    the tuple.  saved: the other storages of what eager would have saved.  slab: residuals.  freed: the savers that earlier passes freed."""

    __slots__ = (
        "arrays", "freed", "plan", "saved", "scalars", "slab", "storages", "tensors",
    )  # fmt: skip

    arrays: tuple[tuple[Any, ...], ...]
    freed: frozenset[int]
    plan: DifferentiablePlan
    saved: tuple[Any, ...]
    scalars: tuple[Any, ...]
    slab: Any
    storages: tuple[Any, ...]
    tensors: tuple[tuple[Any, ...], ...]

    def name(self) -> str:
        return f"CompiledBackward[{self.plan.name}]"

    @property
    def expanded(self) -> bool:
        return self.freed is EXPANDED

    def output_edge(self, index: int) -> TapeEdge:
        if self.freed is not EXPANDED:
            return self, index
        return self.forwarding_edge(index)

    def leading(self, wanted: Mask, results: Iterable[int]) -> frozenset[int]:
        if self.freed is EXPANDED:
            return frozenset([index for index, there in enumerate(wanted) if there])
        return self.plan.leading(wanted).union(results, *map(self.plan.computed_from, results))

    def latest_first(self, outputs: Iterable[int]) -> Sequence[int]:
        return sorted(outputs, key=self.plan.made_at, reverse=True)

    def is_exact(self, cotangents: Sequence[Any], hooked: Sequence[int], asked: Sequence[int], wanted: Mask | None) -> bool:
        plan = self.plan
        present = tuple([g is not None for g in cotangents])
        if hooked and (wanted is not None or len({*map(plan.made_at, hooked)}) < len(hooked)):
            return False  # it takes the steps to say which of these lead to a wanted value, or what their order is
        for i in (*hooked, *asked):
            if any(present[k] for k in plan.computed_from(i)):
                return False
        visit = plan.visit(present, wanted)
        return not visit.overwritten and self.freed.isdisjoint(visit.savers) and visit.saved.isdisjoint(self.changed())

    def changed(self) -> list[int]:
        """The keys of what eager would have saved and what was changed in place since."""
        plan, made = self.plan, self.sequence
        found = [key for key, storage in zip(plan.kept, self.storages, strict=True) if storage.written > made]
        return found + [key for key, storage in zip(plan.saved, self.saved, strict=True) if storage.written > made]

    def backward_to(self, wanted: Mask | None, cotangents: Sequence[Any], retain: bool) -> Sequence[tuple[TapeEdge | None, Any]]:
        present = tuple([g is not None for g in cotangents])
        gradients, visit = self._gradients(present, wanted, cotangents), self.plan.visit(present, wanted)
        if not retain:
            self.free(visit)
        return [(self.edges[i], gradients[i]) for i in visit.arrival]

    def _gradients(self, present: Mask, wanted: Mask | None, cotangents: Sequence[Any]) -> Sequence[Any]:
        plan = self.plan
        given = [g if g.flags.c_contiguous else np.ascontiguousarray(g) for g in map(_as_array, cotangents) if g is not None]
        if self.freed is NOTHING_FREED:  # else there may be nothing left to make a call from
            answers = (plan.calls.get(present) or plan.call(self, present))(self, given, True)
            if answers is not False:
                return answers  # type: ignore[no-any-return]
        # With nothing changed and everything there, the program for all gradients serves for some of them, too.
        mask = wanted if self.slab is None or self.changed() else None
        return plan.run_backward(present, mask, _chained(self.arrays), self.scalars, given, self.slab)

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        return cotangents

    def expand(self) -> None:
        edges = self.plan.tape(self)
        for index, hooks in (self.hooks or {}).items():
            edge = edges[index]
            assert edge is not None
            node, position = edge
            node.hooks = {**(node.hooks or {}), position: hooks}
        if self.freed is not EXPANDED:  # another thread may have been faster: from here on nothing can come in between
            self.edges, self.needs, self.hooks, self.freed = (
                edges,
                tuple([edge is not None for edge in edges]),
                None,
                EXPANDED,
            )
            self.slab = None
            self.tensors = self.arrays = self.storages = self.saved = self.scalars = ()

    def free(self, visit: Visit) -> None:
        """A pass has met `visit` and does not retain the graph."""
        if not visit.savers:
            return
        freed = self.freed | visit.savers
        if self.plan.can_continue(freed):
            self.freed = freed
            return
        self.freed = self.plan.freed_by_all_outputs
        self.slab = None
        self.tensors = self.arrays = ()


def _chained(parts: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    return tuple(itertools.chain.from_iterable(parts))


def _as_array(g: Any) -> Any:
    return g if g is None or isinstance(g, np.ndarray) else np.asarray(g)


class ConsumedNode(Node):
    """The position of a tensor whose graph a backward pass inside the program has used up.  Entries make it without `__init__`, and give it
    `edges` to the inputs that this graph led to, so that passes to these enter it, `needs`, `hooks` and `sequence`."""

    __slots__ = ()
    count = 1

    def name(self) -> str:
        return "CompiledBackward[freed]"

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        raise RuntimeError(FREED)
