"""The joint backward: a pure graph split into a forward that keeps residuals and backward graphs made on demand.

What forward keeps is decided once, for all cotangents and all wanted inputs; a backward graph is made for a mask of present cotangents
and wanted inputs when it is first asked for.  Absence is part of the graph: a missing cotangent is no input.

Whether a backward pass may go on is a question about eager's tape, of which the pure graph has every node: `Partition.visit` tells which
of them a pass would enter, so which saved values it checks and frees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from time import perf_counter

from tracejit.core.aval import Aval, ScalarAval
from tracejit.ir.builder import rebuild
from tracejit.ir.graph import Graph, Node
from tracejit.passes.backward import active_values, backward_graph, visited_nodes
from tracejit.passes.dce import dce
from tracejit.passes.memory import memory_roots
from tracejit.passes.residuals import choose_residuals, direct_reads, is_recomputable

__all__ = ["Partition", "Visit", "partition"]

Mask = tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Visit:
    """What eager mode's backward pass would meet on its tape for a mask of cotangents and of wanted inputs.

    savers: positions of the entered nodes that save tensors; they check them, and are freed by the pass.
    saved_inputs: ids of the inputs whose contents they saved (they, or views of them); backward is an error if one was changed since.
    saved_outputs: likewise, positions of outputs; saved_writes: input ids, the contents that the program itself committed last.
    stale: entered nodes whose saved values the program itself overwrote: the pass is eager mode's error about in-place changes."""

    savers: frozenset[int]
    saved_inputs: frozenset[int]
    saved_outputs: frozenset[int]
    saved_writes: frozenset[int]
    stale: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A differentiable graph, split.

    forward: the original outputs, then the residuals.  residuals: ids of what is kept in the slab, in order.
    direct_inputs: ids of the inputs (tensors and numbers) that every backward graph reads itself, unless no node on its way saves
    anything: that backward graph reads neither residuals nor tensors.
    """

    graph: Graph
    wanted: Mask
    differentiable: Mask
    forward: Graph
    residuals: tuple[int, ...]
    direct_inputs: tuple[int, ...]
    _made: dict[tuple[Mask, Mask], Graph] = field(default_factory=dict, repr=False)
    _visits: dict[tuple[Mask, Mask | None], Visit] = field(default_factory=dict, repr=False)

    def visit(self, present: Mask, wanted: Mask | None = None) -> Visit:
        """The pass from the outputs in `present`, to all leaves (None) or only to the inputs in `wanted`."""
        known = self._visits.get((present, wanted))
        if known is None:
            known = self._visits[present, wanted] = _visit(self.graph, present, wanted)
        return known

    def computed_from(self, i: int) -> frozenset[int]:
        """The other outputs whose gradients pass through output `i`."""
        graph = self.graph
        through = {graph.outputs[i]}
        for node in graph.nodes:
            if not through.isdisjoint(node.operands):
                through.update(v for v in node.outputs if v in graph.requires_grad)
        return frozenset([k for k, v in enumerate(graph.outputs) if k != i and v in through])

    def reads(self, present: Mask, wanted: Mask) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(residuals, direct inputs) of the backward graph."""
        if self.visit(present, wanted).savers:
            return self.residuals, self.direct_inputs
        return (), tuple([v for v in self.direct_inputs if isinstance(self.graph.avals[v], ScalarAval)])

    def backward(self, present: Mask, wanted: Mask) -> Graph:
        """The graph whose inputs are residuals, direct inputs (`reads`) and the cotangents of the outputs in `present`, and whose outputs
        are the gradients of the inputs in `wanted` (None where no gradient reaches).

        Raises ValueError for a cotangent of an output that is not differentiable or a gradient that `partition` was not told of."""
        known = self._made.get((present, wanted))
        if known is None:
            _require_subset("present", present, self.differentiable)
            _require_subset("wanted", wanted, self.wanted)
            start = perf_counter()
            made = dce(backward_graph(self.graph, *self.reads(present, wanted), present, wanted))
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
    needed: dict[int, int] = {}  # what vjp rules may read -> set of outputs whose backward passes do, as bits
    numbers: set[int] = set()
    for node, outputs in _reaching(graph, active, differentiable):
        for v in _saved(graph, node, active):
            needed[v] = needed.get(v, 0) | outputs
        numbers.update(x for x in node.operands if type(x) is int and isinstance(graph.avals[x], ScalarAval))
    chosen = choose_residuals(graph, needed, _direct(graph, needed, differentiable))
    residuals = tuple(sorted(chosen))
    read = direct_reads(graph, needed, chosen) | numbers
    stamp = f"partition: {len(graph.nodes)} nodes, {len(residuals)} residuals, {(perf_counter() - start) * 1e3:.1f} ms"
    forward = rebuild(
        graph, graph.nodes, outputs=(*graph.outputs, *residuals), requires_grad=(), stale=(), history=(*graph.history, stamp)
    )
    return Partition(graph, wanted, differentiable, forward, residuals, tuple([v for v in graph.inputs if v in read]))


def _saved(graph: Graph, node: Node, through: AbstractSet[int]) -> list[int]:
    """The tensors that `node` saves when gradients are wanted of its operands in `through`."""
    ins, outs = node.op.saved_for(tuple([type(x) is int and x in through for x in node.operands]))
    saved = [x for i in ins if type(x := node.operands[i]) is int and isinstance(graph.avals[x], Aval)]
    return [*saved, *(node.outputs[i] for i in outs)]


def _reaching(graph: Graph, active: AbstractSet[int], present: Mask) -> list[tuple[Node, int]]:
    """The nodes whose vjp runs, latest first, each with the set of the outputs in `present` that lead to it, as bits."""
    reached: dict[int, int] = {}
    for i, (v, there) in enumerate(zip(graph.outputs, present, strict=True)):
        if there and type(v) is int and v in active:
            reached[v] = reached.get(v, 0) | 1 << i
    found: list[tuple[Node, int]] = []
    for node in reversed(graph.nodes):
        outputs = 0
        for v in node.outputs:
            outputs |= reached.get(v, 0)
        wanting = [x for x in node.operands if type(x) is int and x in active] if outputs else ()
        if wanting:
            found.append((node, outputs))
            for x in wanting:
                reached[x] = reached.get(x, 0) | outputs
    return found


def _direct(graph: Graph, needed: Mapping[int, int], differentiable: Mask) -> set[int]:
    """The inputs that the backward graphs may read: every pass that needs what is computed from such an input would notice a change of it,
    because eager's tape saved it on the way of that pass."""
    marked, roots = graph.requires_grad, memory_roots(graph)
    noticed: dict[int, int] = {}  # memory -> set of outputs whose passes check it
    for node, outputs in _reaching(graph, marked, differentiable):
        for v in _saved(graph, node, marked):
            memory = roots.get(v, v)
            noticed[memory] = noticed.get(memory, 0) | outputs
    reading = dict(needed)
    for node in reversed(graph.nodes):
        if is_recomputable(node):
            outputs = reading.get(node.outputs[0], 0)
            for x in node.operands if outputs else ():
                if type(x) is int:
                    reading[x] = reading.get(x, 0) | outputs
    written = {target for target, _ in graph.writes}
    return {
        v
        for v in graph.inputs
        if v in noticed and v not in written and isinstance(graph.avals[v], Aval) and not reading.get(v, 0) & ~noticed[v]
    }


def _visit(graph: Graph, present: Mask, wanted: Mask | None) -> Visit:
    marked = graph.requires_grad
    entered = visited_nodes(graph, set(marked) if wanted is None else active_values(graph, wanted), present)
    position = {node.outputs[0]: i for i, node in enumerate(graph.nodes) if node.outputs}
    saved = {position[node.outputs[0]]: values for node in entered if (values := _saved(graph, node, marked))}
    roots = memory_roots(graph)
    memory = {roots.get(v, v) for values in saved.values() for v in values}
    inputs = {v for v in graph.inputs if v in memory}
    return Visit(
        savers=frozenset(saved),
        saved_inputs=frozenset(inputs),
        saved_outputs=frozenset(
            i for i, v in enumerate(graph.outputs) if type(v) is int and (m := roots.get(v, v)) in memory and m not in inputs
        ),
        saved_writes=frozenset(target for target, v in graph.writes if roots.get(v, v) in memory),
        stale=tuple([node for node in entered if not graph.stale.isdisjoint(node.outputs)]) if graph.stale else (),
    )
