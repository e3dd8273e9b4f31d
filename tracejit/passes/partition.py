"""The joint backward: a pure graph split into a forward that keeps residuals and backward graphs made on demand.

What forward keeps is decided once, for all cotangents and all wanted inputs; a backward graph is made for a mask of present cotangents
and wanted gradients when it is first asked for.  Absence is part of the graph: a missing cotangent is no input.

Whether a backward pass may go on is a question about eager's tape, of which the pure graph has every node: `Partition.visit` tells which
of them a pass would enter, so which saved values it checks and frees.

Soundness: a backward graph reads an input of the program only where eager mode would notice that it was changed.  So for each node
whose rule needs something that is computed from the input again: every pass that enters the node, and gets anywhere from there,
enters a node that saved the input, or a view of it.  Everything else is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from tracejit.core.aval import Aval, ScalarAval
from tracejit.ir.builder import rebuild
from tracejit.ir.graph import Graph, Node
from tracejit.ir.loop import leaves_by_step
from tracejit.passes.backward import (
    active_values,
    backward_graph,
    blind_ends,
    contents_graph,
    gradient_operands,
    inner_leaves,
    tape_values,
    values_made_of,
    visited_nodes,
)
from tracejit.passes.dce import dce
from tracejit.passes.memory import memory_roots
from tracejit.passes.paths import BackwardPaths
from tracejit.passes.residuals import choose_residuals, direct_reads, is_recomputable

__all__ = ["Partition", "Visit", "extracted_numbers", "partition", "read_values", "saved_values"]

Mask = tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Visit:
    """What eager mode's backward pass would meet on its tape for a mask of cotangents and of wanted inputs.

    savers: positions of the entered nodes that save tensors; they check them, and are freed by the pass.
    reads: whether a rule of an entered node reads a tensor: what is saved, or what eager mode has as a number.
    saved_inputs: ids of the inputs whose contents they saved (they, or views of them); backward is an error if one was changed since.
    saved_outputs: likewise, positions of outputs; saved_writes: input ids, the contents that the program itself committed last.
    stale: entered nodes whose saved values the program itself overwrote: the pass is eager mode's error about in-place changes.
    arrival: ids of the inputs and leaves that gradients reach, in the order in which they first do."""

    savers: frozenset[int]
    reads: bool
    saved_inputs: frozenset[int]
    saved_outputs: frozenset[int]
    saved_writes: frozenset[int]
    stale: tuple[Node, ...]
    arrival: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A differentiable graph, split.

    hidden_outputs: how many outputs at the end are no results.  forward: the other outputs, then the residuals.  residuals: ids of what is
    kept in the slab, in order. direct_inputs: ids of the inputs (tensors and numbers) that every backward graph reads itself, unless
    no node on its way saves anything: that backward graph reads neither residuals nor tensors. leaves: ids of values made inside
    where gradients end, as they do at inputs.  Masks of wanted gradients have an item for each input of the graph, then one for each
    of the leaves. tape_values: values -> those at whose position on eager mode's tape they are.  paths: the ways of passes to the wanted
    inputs, the leaves and the positions of the outputs."""

    graph: Graph
    wanted: Mask
    differentiable: Mask
    hidden_outputs: int
    forward: Graph
    residuals: tuple[int, ...]
    direct_inputs: tuple[int, ...]
    leaves: tuple[int, ...]
    tape_values: Mapping[int, int]
    paths: BackwardPaths
    _made: dict[tuple[Mask, Mask], Graph] = field(default_factory=dict, repr=False)
    _visits: dict[tuple[Mask, Mask | None], Visit] = field(default_factory=dict, repr=False)
    _continuable: dict[frozenset[int], bool] = field(default_factory=dict, repr=False)

    def substituted(self, of: Callable[[Any], Any]) -> Partition:
        """That of the graph with other sizes in the places of symbolic ones: what is kept, and which nodes passes enter, is known."""
        return replace(self, graph=of(self.graph), forward=of(self.forward), _made={})

    def targets(self, wanted: Mask) -> list[int]:
        """The ids of wanted values."""
        return [v for v, want in zip((*self.graph.inputs, *self.leaves), wanted, strict=True) if want]

    def visit(self, present: Mask, wanted: Mask | None = None) -> Visit:
        """The pass from the outputs in `present`, to everything (None) or only to what is in `wanted`."""
        known = self._visits.get((present, wanted))
        if known is None:
            graph = self.graph
            active = graph.requires_grad if wanted is None else active_values(graph, self.targets(wanted))
            known = self._visits[present, wanted] = _visit(graph, visited_nodes(graph, active, present))
        return known

    def leading(self, wanted: Mask) -> frozenset[int]:
        """The outputs from which a gradient reaches something in `wanted`."""
        active = active_values(self.graph, self.targets(wanted))
        return frozenset([i for i, v in enumerate(self.graph.outputs) if type(v) is int and v in active])

    def can_continue(self, freed: frozenset[int]) -> bool:
        """Whether some pass, from an output to a target, enters nodes whose rules read something, none of them at the positions `freed`."""
        known = self._continuable.get(freed)
        if known is None:
            paths, graph = self.paths, self.graph
            numbers = extracted_numbers(graph)
            reading = {
                i for i, s in enumerate(paths.steps) if read_values(graph, graph.nodes[s.position], graph.requires_grad, numbers)
            }
            readers, blocked = paths.meeting(reading), paths.meeting(paths.numbers(freed))
            known = self._continuable[freed] = any(readers[i] & ~blocked[i] for i in paths.ends)
        return known

    def tape_value(self, i: int) -> int | None:
        """The value at whose position on eager mode's tape output `i` is."""
        v = self.graph.outputs[i]
        return self.tape_values.get(v, v) if type(v) is int else None

    def made_at(self, i: int) -> int:
        """The position in the graph of the node at whose position output `i` is; -1 for an input."""
        tape_value = self.tape_value(i)
        return next((k for k, node in enumerate(self.graph.nodes) if tape_value in node.outputs), -1)

    def computed_from(self, i: int) -> frozenset[int]:
        """The other outputs whose gradients pass through the position of output `i`."""
        graph, tape_value = self.graph, self.tape_value(i)
        through = active_values(graph, [] if tape_value is None else [tape_value, *values_made_of(graph, tape_value)])
        return frozenset([k for k, v in enumerate(graph.outputs) if k != i and v in through])

    def reads(self, present: Mask, wanted: Mask) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(residuals, direct inputs) of the backward graph."""
        if self.visit(present, wanted).reads:
            return self.residuals, self.direct_inputs
        return (), tuple([v for v in self.direct_inputs if isinstance(self.graph.avals[v], ScalarAval)])

    def backward(self, present: Mask, wanted: Mask) -> Graph:
        """The graph whose inputs are residuals, direct inputs (`reads`) and the cotangents of the outputs in `present`, and whose outputs
        are the gradients of what is in `wanted` (None where no gradient reaches), then, if values decide which of these there are, for
        each a bool that says so (None where none decides).

        Raises ValueError for a cotangent of an output that is not differentiable or a gradient that `partition` was not told of."""
        known = self._made.get((present, wanted))
        if known is None:
            _require_subset("present", present, self.differentiable)
            _require_subset("wanted", wanted, self.wanted)
            start = perf_counter()
            made = dce(backward_graph(self.graph, *self.reads(present, wanted), present, self.targets(wanted)))
            stamp = f"backward: {len(self.graph.nodes)} -> {len(made.nodes)} nodes, {(perf_counter() - start) * 1e3:.1f} ms"
            known = self._made[present, wanted] = rebuild(made, made.nodes, history=(stamp,))
        return known

    def has_conditions(self, present: Mask, wanted: Mask) -> bool:
        """Whether values decide which of the gradients there are."""
        takes_paths = any(not leaves_by_step(node.op) for node in self.graph.nodes)
        return takes_paths and len(self.backward(present, wanted).outputs) > sum(wanted)

    def contents(self, values: Sequence[int]) -> Graph:
        """The graph from all residuals and direct inputs to `values`, which rules of the differentiable nodes read."""
        return contents_graph(self.graph, self.residuals, self.direct_inputs, values)


def _require_subset(name: str, mask: Mask, allowed: Mask) -> None:
    if len(mask) != len(allowed) or any(m and not a for m, a in zip(mask, allowed, strict=True)):
        raise ValueError(f"Partition.backward(): {name}={mask} asks for more than the partition was made for, {allowed}")


def partition(
    graph: Graph,
    wanted: Sequence[bool],
    differentiable: Sequence[bool] | None = None,
    hidden_outputs: int = 0,
    live: AbstractSet[int] = frozenset(),
) -> Partition:
    """Split a pure graph.  `wanted`: per input, whether its gradient may be asked for; `differentiable`: per output, whether a cotangent
    may arrive (by default where gradients flow through the output).  The last `hidden_outputs` outputs are no results of the forward
    graph: only cotangents arrive there.  live: contents of memory that backward graphs are to read as it is then (residuals.py)."""
    marked, leaves = graph.requires_grad, inner_leaves(graph)
    wanted = (*wanted, *[True] * len(leaves))
    if differentiable is None:
        differentiable = tuple(type(v) is int and v in marked for v in graph.outputs)
    differentiable = tuple(differentiable)
    start = perf_counter()
    targets = [v for v, want in zip((*graph.inputs, *leaves), wanted, strict=True) if want]
    active = active_values(graph, [*targets, *blind_ends(graph)])  # what eager mode's pass to everything would compute
    shared = tape_values(graph)
    watched = [shared.get(v, v) for v, there in zip(graph.outputs, differentiable, strict=True) if there and type(v) is int]
    paths = BackwardPaths(graph, active, differentiable, (*targets, *watched))
    needed: dict[int, int] = {}  # what vjp rules may read -> the steps that do, as bits
    numbers: set[int] = set()
    extracted = extracted_numbers(graph)
    for i, step in enumerate(paths.steps):
        node = graph.nodes[step.position]
        for v in read_values(graph, node, active, extracted):
            needed[v] = needed.get(v, 0) | 1 << i
        numbers.update(x for x in node.operands if type(x) is int and isinstance(graph.avals[x], ScalarAval))
    chosen = choose_residuals(graph, needed, _direct(graph, needed, paths), live)
    residuals = tuple(sorted(chosen))
    read = direct_reads(graph, needed, chosen) | numbers
    stamp = f"partition: {len(graph.nodes)} nodes, {len(residuals)} residuals, {(perf_counter() - start) * 1e3:.1f} ms"
    forward = rebuild(
        graph,
        graph.nodes,
        outputs=(*graph.outputs[: len(graph.outputs) - hidden_outputs], *residuals),
        requires_grad=(),
        stale=(),
        history=(*graph.history, stamp),
    )
    direct = tuple([v for v in graph.inputs if v in read])
    return Partition(graph, wanted, differentiable, hidden_outputs, forward, residuals, direct, leaves, shared, paths)


def extracted_numbers(graph: Graph) -> dict[int, int]:
    """The values that eager mode has as numbers of Python -> the tensors that it takes them out of."""
    return {node.outputs[0]: node.operands[0] for node in graph.nodes if "number" in node.op.traits}  # type: ignore[misc]


def read_values(graph: Graph, node: Node, through: AbstractSet[int], numbers: Mapping[int, int]) -> list[int]:
    """The tensors that the rule of `node` reads when gradients are wanted of its operands in `through`: what it saves, and what its
    `numbers` (`extracted_numbers`) are taken out of."""
    ins, outs = node.op.saved_for(tuple([type(x) is int and x in through for x in node.operands]))
    read = [numbers.get(x, x) for i in ins if type(x := node.operands[i]) is int and isinstance(graph.avals[x], Aval)]
    return [*read, *(node.outputs[i] for i in outs)]


def saved_values(graph: Graph, node: Node, through: AbstractSet[int], numbers: Mapping[int, int]) -> list[int]:
    """The tensors that `node` saves on eager mode's tape when gradients are wanted of its operands in `through`."""
    if "reads numbers alone" in node.op.traits:
        return []
    ins, outs = node.op.saved_for(tuple([type(x) is int and x in through for x in node.operands]))
    saved = [x for i in ins if type(x := node.operands[i]) is int and isinstance(graph.avals[x], Aval) and x not in numbers]
    return [*saved, *(node.outputs[i] for i in outs)]


def _direct(graph: Graph, needed: dict[int, int], paths: BackwardPaths) -> set[int]:
    """The inputs that the backward graphs may read."""
    marked, roots, numbers = graph.requires_grad, memory_roots(graph), extracted_numbers(graph)
    noticing: dict[int, int] = {}  # memory -> the steps that check it, as bits
    for i, step in enumerate(paths.steps):
        for v in saved_values(graph, graph.nodes[step.position], marked, numbers):
            memory = roots.get(v, v)
            noticing[memory] = noticing.get(memory, 0) | 1 << i
    written = {target for target, _ in graph.writes}
    candidates = [v for v in graph.inputs if v in noticing and v not in written and isinstance(graph.avals[v], Aval)]
    leading = set(candidates)  # with what can be computed again of them: steps are collected along these values alone
    again: list[Node] = []
    for node in graph.nodes:
        if any(type(x) is int and x in leading for x in node.operands) and is_recomputable(node):
            leading.update(node.outputs)
            again.append(node)
    reading = {v: needed[v] for v in leading if v in needed}
    for node in reversed(again):
        steps = reading.get(node.outputs[0], 0)
        for x in node.operands if steps else ():
            if type(x) is int and x in leading:
                reading[x] = reading.get(x, 0) | steps
    return {v for v in candidates if _is_noticed(paths, reading.get(v, 0) & ~noticing[v], noticing[v])}


def _is_noticed(paths: BackwardPaths, readers: int, noticing: int) -> bool:
    """Whether every pass that enters a step in `readers` and gets to a target enters one in `noticing`."""
    if not readers:
        return True
    met = paths.meeting(set(_bits(noticing)))
    return all(met[i] == paths.steps[i].reach for i in _bits(readers))


def _bits(number: int) -> list[int]:
    return [i for i, bit in enumerate(bin(number)[:1:-1]) if bit == "1"]  # clearing one after the other is quadratic


def _visit(graph: Graph, entered: Sequence[Node]) -> Visit:
    marked = graph.requires_grad
    ends, numbers = {*graph.inputs, *inner_leaves(graph)}, extracted_numbers(graph)
    position = {node.outputs[0]: i for i, node in enumerate(graph.nodes) if node.outputs}
    saved = {position[node.outputs[0]]: values for node in entered if (values := saved_values(graph, node, marked, numbers))}
    roots = memory_roots(graph)
    memory = {roots.get(v, v) for values in saved.values() for v in values}
    inputs = {v for v in graph.inputs if v in memory}
    return Visit(
        savers=frozenset(saved),
        reads=any(read_values(graph, node, marked, numbers) for node in entered),
        saved_inputs=frozenset(inputs),
        saved_outputs=frozenset(
            i for i, v in enumerate(graph.outputs) if type(v) is int and (m := roots.get(v, v)) in memory and m not in inputs
        ),
        saved_writes=frozenset(target for target, v in graph.writes if roots.get(v, v) in memory),
        stale=tuple([node for node in entered if not graph.stale.isdisjoint(node.outputs)]) if graph.stale else (),
        arrival=tuple(dict.fromkeys([x for node in entered for x in gradient_operands(node, marked) if x in ends])),
    )
