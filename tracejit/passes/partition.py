"""The joint backward: a pure graph split into a forward that keeps residuals and backward graphs made on demand.

What forward keeps is decided once, for all cotangents and all wanted inputs; a backward graph is made for a mask of present cotangents
and wanted inputs when it is first asked for.  Absence is part of the graph: a missing cotangent is no input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

from tracejit.core.aval import Aval, ScalarAval
from tracejit.ir.builder import rebuild
from tracejit.ir.graph import Graph, Node
from tracejit.passes.backward import active_values, backward_graph, visited_nodes
from tracejit.passes.dce import dce
from tracejit.passes.memory import memory_roots
from tracejit.passes.residuals import choose_residuals, direct_reads

__all__ = ["Partition", "partition"]

Mask = tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A differentiable graph, split.

    forward: the original outputs, then the residuals.  residuals: ids of what is kept in the slab, in order.
    direct_inputs: ids of the inputs (tensors and numbers) that every backward graph reads itself.
    saved_inputs: ids of the inputs whose contents the eager tape would have saved (they, or views of them); backward is an error if one
    was changed since.  saved_outputs: likewise, positions of original outputs; saved_writes: input ids, the contents that the program
    itself committed last.
    stale: nodes whose saved values the program itself overwrote: a full backward is the eager mode's error about in-place changes.
    """

    graph: Graph
    wanted: Mask
    differentiable: Mask
    forward: Graph
    residuals: tuple[int, ...]
    direct_inputs: tuple[int, ...]
    saved_inputs: frozenset[int]
    saved_outputs: frozenset[int]
    saved_writes: frozenset[int]
    stale: tuple[Node, ...]
    _made: dict[tuple[Mask, Mask], Graph] = field(default_factory=dict, repr=False)

    def stale_for(self, present: Mask) -> tuple[Node, ...]:
        """The nodes in `stale` that a backward pass from the outputs in `present` would enter."""
        return _stale_nodes(self.graph, present) if self.stale else ()

    def backward(self, present: Mask, wanted: Mask) -> Graph:
        """The graph whose inputs are residuals, direct inputs and the cotangents of the outputs in `present`, and whose outputs are the
        gradients of the inputs in `wanted` (None where no gradient reaches).

        Raises ValueError for a cotangent of an output that is not differentiable or a gradient that `partition` was not told of."""
        known = self._made.get((present, wanted))
        if known is None:
            _require_subset("present", present, self.differentiable)
            _require_subset("wanted", wanted, self.wanted)
            start = perf_counter()
            made = dce(backward_graph(self.graph, self.residuals, self.direct_inputs, present, wanted))
            stamp = f"backward: {len(self.graph.nodes)} -> {len(made.nodes)} nodes, {(perf_counter() - start) * 1e3:.1f} ms"
            known = self._made[present, wanted] = rebuild(made, made.nodes, history=(stamp,))
        return known


def _require_subset(name: str, mask: Mask, allowed: Mask) -> None:
    if len(mask) != len(allowed) or any(m and not a for m, a in zip(mask, allowed, strict=True)):
        raise ValueError(f"Partition.backward(): {name}={mask} asks for more than the partition was made for, {allowed}")


def partition(graph: Graph, wanted: Sequence[bool], differentiable: Sequence[bool] | None = None) -> Partition:
    """Split a pure graph.  `wanted`: per input, whether its gradient may be asked for; `differentiable`: per output, whether a cotangent
    may arrive (by default where gradients flow through the output)."""
    wanted = tuple(wanted)
    marked = graph.requires_grad
    if differentiable is None:
        differentiable = tuple(type(v) is int and v in marked for v in graph.outputs)
    differentiable = tuple(differentiable)
    start = perf_counter()
    active = active_values(graph, wanted)
    needed: set[int] = set()  # what vjp rules may read
    taped: set[int] = set()  # what the eager tape would save: it serves every operand that requires grad
    numbers: set[int] = set()
    for node in visited_nodes(graph, active, differentiable):
        operands = node.operands
        for values, through in ((needed, active), (taped, marked)):
            ins, outs = node.op.saved_for(tuple(type(x) is int and x in through for x in operands))
            values.update(x for i in ins if type(x := operands[i]) is int and isinstance(graph.avals[x], Aval))
            values.update(node.outputs[i] for i in outs)
        numbers.update(x for x in operands if type(x) is int and isinstance(graph.avals[x], ScalarAval))
    roots = memory_roots(graph)
    taped_memory = {roots.get(v, v) for v in taped}
    saved_inputs = taped_memory & {v for v in graph.inputs if isinstance(graph.avals[v], Aval)}
    written = {target for target, _ in graph.writes}
    chosen = choose_residuals(graph, needed, saved_inputs - written)
    residuals = tuple(sorted(chosen))
    read = direct_reads(graph, needed, chosen) | numbers
    stamp = f"partition: {len(graph.nodes)} nodes, {len(residuals)} residuals, {(perf_counter() - start) * 1e3:.1f} ms"
    forward = rebuild(
        graph, graph.nodes, outputs=(*graph.outputs, *residuals), requires_grad=(), stale=(), history=(*graph.history, stamp)
    )
    return Partition(
        graph=graph,
        wanted=wanted,
        differentiable=differentiable,
        forward=forward,
        residuals=residuals,
        direct_inputs=tuple(v for v in graph.inputs if v in read),
        saved_inputs=frozenset(saved_inputs),
        saved_outputs=frozenset(
            i
            for i, v in enumerate(graph.outputs)
            if type(v) is int and roots.get(v, v) in taped_memory and roots.get(v, v) not in saved_inputs
        ),
        saved_writes=frozenset(target for target, v in graph.writes if roots.get(v, v) in taped_memory),
        stale=_stale_nodes(graph, differentiable) if graph.stale else (),
    )


def _stale_nodes(graph: Graph, differentiable: Mask) -> tuple[Node, ...]:
    """The stale nodes that eager mode's backward would enter, whether or not they lead to an input."""
    entered = visited_nodes(graph, set(graph.requires_grad), differentiable)
    return tuple(node for node in entered if not graph.stale.isdisjoint(node.outputs))
