"""The tape that eager mode would have created for a call of a compiled program.

It is needed for backward passes that no backward program can do.  The pure graph has all operations; a call stores residuals, and
the inputs that its backward programs read.  `EagerTape.make` creates the tape's nodes for one call.  Their saved values are
computed from what the call has stored; their edges lead to the positions of the inputs; each checks and frees what the node of eager
mode would.  Nodes that an earlier pass has freed are freed, and nodes whose saved values were written since the call raise.

So no rule reads a value that can no longer be computed: each pass that would reach such a rule meets a node that raises first, as
in eager mode (passes/partition.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracejit.autograd.compiled import CompiledNode
from tracejit.autograd.tape import LoopNode, Node, OpNode, Storage, class_of, make_tensor
from tracejit.core.aval import Aval, ScalarAval
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.interpreter import interpret
from tracejit.passes.backward import gradient_operands
from tracejit.passes.memory import memory_roots
from tracejit.passes.partition import Partition, extracted_numbers, read_values, saved_values
from tracejit.passes.paths import BackwardStep

__all__ = ["EagerTape", "sequence_offset"]

TapeEdge = tuple[Any, int]
CHANGED = -1
"""A version that no storage has: the node that saved it raises."""


def sequence_offset(graph: Graph, position: float) -> float:
    """The difference between the sequence numbers of a node of eager's tape and of the call's node.  position: of its operation
    among the nodes of the graph, above -1 and below their number; the offset is above -1 and below 0.  So eager's nodes come
    after the nodes created before the call, in the order of the operations."""
    return (position + 1) / (len(graph.nodes) + 1) - 1


class EagerTape:
    """Creates the tapes for calls of one program.

    residuals: gives the residuals of a call, for the arrays of its inputs and its slab.  edges: for each edge of the calls'
    nodes, the value of the graph whose gradient goes there.  positions: value of a tensor input -> its position among the inputs
    of the call."""

    def __init__(
        self,
        split: Partition,
        residuals: Callable[[Sequence[Any], Any], list[Any]],
        edges: Sequence[int],
        positions: Mapping[int, int],
    ) -> None:
        self.split = split
        self.residuals = residuals
        self.graph = split.graph
        self.edges = edges
        self.positions = positions
        self.roots = roots = memory_roots(split.graph)
        self.extracted = extracted_numbers(split.graph)
        # Values that own memory which code outside can write -> the key of the storage, as in `DifferentiablePlan.saved`.
        results = split.graph.outputs[: len(split.graph.outputs) - split.hidden_outputs]
        self.keys = {roots.get(v, v): ~i for i, v in enumerate(results) if type(v) is int}
        self.keys.update((roots.get(v, v), positions[target]) for target, v in split.graph.writes)
        self.keys.update(positions)
        self._contents: dict[frozenset[int], tuple[tuple[int, ...], Graph]] = {}

    def make(self, call: CompiledNode) -> tuple[TapeEdge | None, ...]:
        """The positions of the outputs on the tape of a call."""
        return _TapeBuilder(self, call).run()

    def contents(self, freed: frozenset[int]) -> tuple[tuple[int, ...], Graph]:
        """(the values that rules may read if the nodes at the positions `freed` are freed, the graph that computes these)."""
        cached = self._contents.get(freed)
        if cached is None:
            marked, stale = self.graph.requires_grad, self.graph.stale
            values: dict[int, None] = {}
            for step in self.split.paths.steps:
                node = self.graph.nodes[step.position]
                if step.position not in freed and stale.isdisjoint(node.outputs):
                    values.update(dict.fromkeys(read_values(self.graph, node, marked, self.extracted)))
            cached = self._contents[freed] = tuple(values), self.split.contents(tuple(values))
        return cached


class _TapeBuilder:
    """Creates the tape of one call.

    arrays: the contents of values.  edges: those to which the gradients of values go.  tensors: values as nodes save
    them."""

    def __init__(self, tape: EagerTape, call: CompiledNode) -> None:
        self.tape, self.call, self.graph = tape, call, tape.graph
        self.inputs = tuple(itertools.chain.from_iterable(call.tensors))
        numbers = [v for v in self.graph.inputs if isinstance(self.graph.avals[v], ScalarAval)]
        self.numbers = dict(zip(numbers, call.scalars, strict=True))
        keys = (*call.plan.kept, *call.plan.saved)
        self.storages = dict(zip(keys, (*call.storages, *call.saved), strict=True))
        self.edges: dict[int, TapeEdge] = {v: edge for v, edge in zip(tape.edges, call.edges, strict=True) if edge is not None}
        self.tensors: dict[int, Any] = {}
        self.arrays = self._contents()

    def run(self) -> tuple[TapeEdge | None, ...]:
        graph = self.graph
        for step in self.tape.split.paths.steps:
            outputs = graph.nodes[step.position].outputs
            same = self.tape.split.tape_values.get(outputs[0])
            if same is not None:  # no node of its own: a new version of a tensor that keeps its position
                self.edges[outputs[0]] = self._edge(same)
                continue
            node = self._node(step, self.call.sequence + sequence_offset(graph, step.position))
            self.edges.update((x, (node, k)) for k, x in enumerate(outputs) if x in graph.requires_grad)
        differentiable = self.tape.split.differentiable
        return tuple([self._edge(v) if d else None for v, d in zip(graph.outputs, differentiable, strict=True)])

    def _contents(self) -> dict[int, Any]:
        """The contents of the values that rules of nodes which are not freed may read."""
        call, split = self.call, self.tape.split
        if call.slab is None:
            return {}
        values, wanted = self.tape.contents(call.freed)
        arrays = tuple(itertools.chain.from_iterable(call.arrays))
        residuals = self.tape.residuals(arrays, call.slab) if split.residuals else []
        direct = [self.numbers[v] if v in self.numbers else arrays[self.tape.positions[v]] for v in split.direct_inputs]
        contents = dict(zip(values, interpret(wanted, [*residuals, *direct]), strict=True))
        for v, position in self.tape.positions.items():
            if v in contents and self._storage(v)[1] != CHANGED:  # the input's own array: eager's nodes save the tensor itself
                contents[v] = arrays[position]
        return contents

    def _storage(self, v: int) -> tuple[Storage, int]:
        """The storage of a value, and the version that it must have for a rule to read it."""
        key = self.tape.keys.get(self.tape.roots.get(v, v))
        storage = None if key is None else self.storages.get(key)
        if storage is None:
            return Storage(), 0
        return storage, CHANGED if storage.written > self.call.sequence else storage.version

    def _tensor(self, v: int) -> Any:
        """The tensor that a node saves for a value."""
        tensor = self.tensors.get(v)
        if tensor is None:
            position, edge = self.tape.positions.get(v), self.edges.get(v)
            if position is not None:
                tensor = self.inputs[position]
            elif edge is not None and not isinstance(edge[0], Node):
                tensor = edge[0]
            else:
                tensor = make_tensor(self.arrays[v], edge, self._storage(v)[0])
            self.tensors[v] = tensor
        return tensor

    def _node(self, step: BackwardStep, sequence: float) -> OpNode:
        graph, call = self.graph, self.call
        recorded = graph.nodes[step.position]
        op = recorded.op
        node: OpNode = object.__new__(class_of(op))
        node.op, node.attributes, node.hooks, node.sequence = op, recorded.attrs, None, sequence
        if isinstance(node, LoopNode):
            node.span = 1 / (len(graph.nodes) + 1)
        node.count = len(recorded.outputs)
        operands = gradient_operands(recorded, graph.requires_grad)
        node.needs = tuple([type(x) is int and x in operands for x in recorded.operands])
        node.edges = tuple([self._edge(x) if need else None for x, need in zip(recorded.operands, node.needs, strict=True)])
        extracted = self.tape.extracted.keys()
        node.meta = tuple([None if x in extracted else _meta(graph, x) for x in recorded.operands])
        out_meta = _meta(graph, recorded.outputs[0])
        assert out_meta is not None
        node.out_meta = out_meta
        node.inputs = tuple([self._number(x) for x in recorded.operands])
        node.outputs, node.saved, node.storages = (None,) * node.count, (), ()
        ins, outs = op.saved_for(node.needs)
        ins = tuple([i for i in ins if type(x := recorded.operands[i]) is int and isinstance(graph.avals[x], Aval)])
        reads_numbers = "reads numbers alone" in op.traits or any(recorded.operands[i] in extracted for i in ins)
        ins = tuple([i for i in ins if recorded.operands[i] not in extracted])
        node.freed = step.position in call.freed and bool(ins or outs)
        if call.slab is None and reads_numbers and not saved_values(graph, recorded, graph.requires_grad, self.tape.extracted):
            node.freed = True  # each pass that enters it comes to a freed node
        if node.freed or not (ins or outs):
            return node
        if call.slab is None or not graph.stale.isdisjoint(recorded.outputs):  # the saved values no longer exist
            node.storages = ((Storage(), CHANGED),)
            return node
        node.inputs = tuple([self.arrays[x] if i in ins else self._number(x) for i, x in enumerate(recorded.operands)])  # type: ignore[index]
        tensors = [self._tensor(recorded.operands[i]) for i in ins]  # type: ignore[arg-type]
        node.saved = tuple([(t, 0 if t._storage is None else t._storage.version) for t in tensors])
        node.outputs = tuple([self.arrays[v] if i in outs else None for i, v in enumerate(recorded.outputs)])
        # Also the storages of operands, since a tensor may have got other memory since.
        memory = [*[recorded.outputs[i] for i in outs], *[recorded.operands[i] for i in ins]]
        node.storages = tuple([self._storage(v) for v in memory])  # type: ignore[arg-type]
        return node

    def _edge(self, x: Any) -> TapeEdge:
        """The edge to which the gradient of a value goes."""
        edge = self.edges.get(x)
        if edge is None:  # a leaf that did not escape, or the target of a write of a number
            edge = self.edges[x] = _LeafEdge(), 0
        return edge

    def _number(self, x: Any) -> Any:
        """A number among operands; None for a tensor, or a number that no rule reads."""
        source = self.tape.extracted.get(x)
        if source is not None:
            return self.arrays[source].item() if source in self.arrays else None
        return x.value if isinstance(x, Literal) else self.numbers.get(x)


class _LeafEdge(Node):
    """The target of edges to a value that requires grad but depends on no input that does: gradients end there."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(())

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        return ()


def _meta(graph: Graph, x: Any) -> tuple[tuple[int, ...], Any] | None:
    """(shape, dtype) of a tensor as nodes of the tape store it; None for other operands."""
    aval = graph.avals[x] if type(x) is int else None
    return (aval.shape, aval.dtype.numpy) if isinstance(aval, Aval) else None
