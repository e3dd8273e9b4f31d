"""The tape of the steps of a loop, made of what its node has saved.

On the tape a loop is one node (autograd/tape.py, LoopNode).  Eager mode has the operations of each step in its place, and there is more
to ask for: how much of the gradient of one result comes through another one that the last step made of it, or what a hook on that sees.
Where someone asks, `expand` makes those operations: their saved values are those of the loop, so the steps are neither computed again nor
decided again; where paths join, the position is that of the path which the step has taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.autograd.tape import LoopNode, Node, OpNode, Storage, class_of, make_tensor
from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY
from tracejit.ir.graph import Literal
from tracejit.ir.graph import Node as Operation
from tracejit.ir.interpreter import interpret
from tracejit.ir.loop import SAVED
from tracejit.passes.backward import contents_graph, gradient_operands
from tracejit.passes.memory import memory_roots
from tracejit.passes.partition import extracted_numbers, read_values

__all__ = ["expand"]

TapeEdge = tuple[Any, int]


def expand(loop: LoopNode) -> tuple[TapeEdge | None, ...]:
    """The positions of the outputs of a loop on a tape of its steps.  It must not be freed."""
    return _Steps(loop).tape()


class _Steps:
    """The steps of a loop.  edges: of values of the current step, those to which their gradients go.  arrays: what they contain."""

    def __init__(self, loop: LoopNode) -> None:
        kept, saved = SAVED[loop.op]
        attributes = loop.attributes
        self.loop, self.kept, self.carried, self.count = loop, kept, attributes["carried"], attributes["count"]
        self.reverse, self.sliced = attributes["reverse"], attributes["sliced"]
        self.graph = graph = attributes["body"].graph
        self.numbers = extracted_numbers(graph)
        marked = graph.requires_grad
        self.differentiable = [
            node for node in graph.nodes if not marked.isdisjoint(node.outputs) and gradient_operands(node, marked)
        ]
        self.read = tuple(
            dict.fromkeys(v for node in self.differentiable for v in read_values(graph, node, marked, self.numbers))
        )
        residuals = slice(saved.results, saved.results + saved.residuals)
        made = [*[graph.outputs[k] for k in saved.after], *graph.outputs[residuals]]
        others = [k for k, x in enumerate(loop.inputs) if k >= self.carried and x is not None]
        self.contents = contents_graph(graph, made, [graph.inputs[k] for k in (*saved.before, *others)], self.read)  # type: ignore[arg-type]
        self.after = [(loop.outputs[k], loop.outputs[kept + k]) for k in saved.after]
        self.rows = [*loop.outputs[kept:][residuals], *[loop.outputs[k] for k in saved.before]]
        self.others = [loop.inputs[k] for k in others]
        self.roots = memory_roots(graph)
        self._note_saved()
        self.made = 0  # nodes
        most = self.count * len(self.differentiable) + kept + len(graph.outputs) + 1
        self.span = loop.span / most  # how far the sequence numbers of nodes are from each other
        self.edges: dict[int, TapeEdge | None] = {}
        self.arrays: dict[int, Any] = {}

    def _note_saved(self) -> None:
        """Note the tensors that the loop has saved of what its steps share, and what must not have changed since."""
        loop, inputs = self.loop, self.graph.inputs
        ins, outs = loop.op.saved_for(loop.needs)
        tensors = [inputs[k] for k in ins if isinstance(self.graph.avals[inputs[k]], Aval) and loop.inputs[k] is not None]
        self.saved = dict(zip(tensors, loop.saved, strict=False))
        self.unchanged = dict(zip(tensors, loop.storages[len(outs) :], strict=False))

    def tape(self) -> tuple[TapeEdge | None, ...]:
        graph, loop, carried = self.graph, self.loop, self.carried
        inputs, outputs = graph.inputs, graph.outputs
        state = [*loop.edges[:carried]]
        history: list[list[TapeEdge | None]] = [[None] * self.count for _ in range(self.kept)]
        items: list[list[TapeEdge | None]] = [[None] * self.count for _ in outputs[carried:]]
        order = range(self.count - 1, -1, -1) if self.reverse else range(self.count)
        for i in order:
            self.edges = dict(zip(inputs, (*state, *[None] * self.sliced, *loop.edges[carried + self.sliced :]), strict=True))
            values = [end if i == order[-1] else rows[i - 1 if self.reverse else i + 1, ...] for rows, end in self.after]
            given = [*values, *[x[i, ...] for x in self.rows], *self.others]
            self.arrays = dict(zip(self.read, interpret(self.contents, given), strict=True))
            for column, edge in zip(history, state, strict=False):
                column[i] = edge
            for node in self.differentiable:
                self._operation(node)
            state = [self.edges.get(v) for v in outputs[:carried]]  # type: ignore[arg-type]
            for column, v in zip(items, outputs[carried:], strict=True):
                column[i] = self.edges.get(v)  # type: ignore[arg-type]
        return (*map(self._stacked, history), *state, *map(self._stacked, items))

    def _sequence(self) -> float:
        """The sequence number of the next node: between those of the loop and of the node before it."""
        self.made += 1
        return self.loop.sequence - self.loop.span + self.span * self.made

    def _stacked(self, edges: Sequence[TapeEdge | None]) -> TapeEdge | None:
        if not any(edges):
            return None
        node = _RowsNode(tuple(edges))
        node.sequence = self._sequence()
        return node, 0

    def _operation(self, recorded: Operation) -> None:
        """Put an operation of the step on the tape, if its path was taken."""
        sequence, outputs, operands = self._sequence(), recorded.outputs, recorded.operands
        if "merges paths" in recorded.op.traits:
            path: Any = operands[1 if self.arrays[operands[0]] else 2]  # type: ignore[index]
            self.edges[outputs[0]] = self.edges.get(path)
            return
        wanted = gradient_operands(recorded, self.graph.requires_grad)
        edges = tuple([self.edges.get(x) if x in wanted else None for x in operands])  # type: ignore[arg-type]
        if not any(edges):
            return
        op = recorded.op
        node: OpNode = object.__new__(class_of(op))
        node.op, node.attributes, node.hooks, node.sequence, node.freed = op, recorded.attrs, None, sequence, False
        if isinstance(node, LoopNode):
            node.span = self.span
        node.count, node.edges, node.needs = len(outputs), edges, tuple([edge is not None for edge in edges])
        node.meta, out_meta = tuple(map(self._meta, operands)), self._meta(outputs[0])
        assert out_meta is not None
        node.out_meta = out_meta
        ins, outs = op.saved_for(node.needs)
        ins = tuple(
            [k for k in ins if type(x := operands[k]) is int and isinstance(self.graph.avals[x], Aval) and x not in self.numbers]
        )
        self.edges.update((v, (node, k)) for k, v in enumerate(outputs) if v in self.graph.requires_grad)
        saved: list[Any] = [operands[k] for k in ins]
        node.inputs = tuple([self.arrays[x] if k in ins else self._number(x) for k, x in enumerate(operands)])  # type: ignore[index]
        node.outputs = tuple([self.arrays[v] if k in outs else None for k, v in enumerate(outputs)])
        node.saved = tuple(map(self._tensor, saved))
        unchanged = [self.unchanged[root] for x in saved if (root := self.roots.get(x, x)) in self.unchanged]
        node.storages = (*[(Storage(), 0) for _ in outs], *unchanged)

    def _tensor(self, v: int) -> tuple[Any, int]:
        """The tensor that a node saves for a value, and the version that it must have."""
        tensor, version = self.saved.get(self.roots.get(v, v), (None, 0))
        if tensor is not None and v not in self.roots:
            return tensor, version
        return make_tensor(self.arrays[v], self.edges.get(v), None if tensor is None else tensor._storage), version

    def _number(self, x: Any) -> Any:
        """A number among operands; None for a tensor."""
        if x in self.numbers:
            return self.arrays[self.numbers[x]].item() if self.numbers[x] in self.arrays else None
        if x in self.graph.inputs and not isinstance(self.graph.avals[x], Aval):
            return self.loop.inputs[self.graph.inputs.index(x)]
        return x.value if isinstance(x, Literal) else None

    def _meta(self, x: Any) -> tuple[tuple[int, ...], Any] | None:
        """(shape, dtype) of a tensor as nodes of the tape store it; None for other operands."""
        aval = self.graph.avals[x] if type(x) is int and x not in self.numbers else None
        return (aval.shape, aval.dtype.numpy) if isinstance(aval, Aval) else None


class _RowsNode(Node):
    """The position of a tensor whose rows are values of steps."""

    __slots__ = ()

    def name(self) -> str:
        return "StackBackward0"

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        select = REGISTRY["select"]
        return [None if edge is None else select.of(cotangents[0], i, dim=0) for i, edge in enumerate(self.edges)]
