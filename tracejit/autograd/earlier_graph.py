"""Backward passes of compiled calls that go on into a graph that was made before the call.

The program gives the cotangents of the tensors at which that graph begins, and the pass goes on from there when the program has run
(`propagate_from`).  So it comes later than in eager mode, after what the call writes; `may_come_later` says whether that is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tracejit.autograd.api import accumulate, new_tensor
from tracejit.autograd.compiled import CompiledNode
from tracejit.autograd.engine import GradientSink, run_backward
from tracejit.autograd.tape import Node, OpNode, edge_of

__all__ = ["Dependences", "dependences", "may_come_later", "propagate", "propagate_from"]

_MOST: Final = 1000
"""Nodes that are looked at: each call does."""

TapeEdge = tuple[Any, int]


class Dependences(NamedTuple):
    """What a backward pass adds to and reads.  leaves: ids of leaves.  memory: ids of the owners of the memory of saved values."""

    leaves: frozenset[int]
    memory: frozenset[int]

    def allow(self, leaves: Iterable[Any], written: Iterable[Any]) -> bool:
        """Whether it adds to the gradient of none of `leaves`, and reads nothing that has the memory of a tensor in `written`."""
        return self.leaves.isdisjoint(map(id, leaves)) and self.memory.isdisjoint([id(_owner(x._array)) for x in written])


def propagate_from(tensors: Iterable[Any], cotangents: Sequence[Any], retain_graph: bool) -> None:
    """One backward pass from these tensors, with these cotangents, to all leaves.  Raises what backward() raises."""
    propagate(list(map(edge_of, tensors)), cotangents, retain_graph)


def propagate(edges: Sequence[TapeEdge], cotangents: Sequence[Any], retain_graph: bool) -> None:
    """The same from edges of the tape."""
    run_backward(edges, cotangents, GradientSink(accumulate), retain_graph=retain_graph, create_graph=False, wrap=new_tensor)


def dependences(edges: Iterable[TapeEdge]) -> Dependences | None:
    """What a backward pass from these edges of the tape depends on.  None for one that would raise, or run code of the program, and for
    one through more than 1,000 nodes."""
    leaves: set[int] = set()
    memory: set[int] = set()
    seen: set[int] = set()
    stack: list[Any] = [target for target, _ in edges]
    while stack:
        target = stack.pop()
        if id(target) in seen:
            continue
        seen.add(id(target))
        if len(seen) > _MOST:
            return None
        if isinstance(target, Node):
            if target.hooks or not _is_ready(target):
                return None
            memory.update([id(_owner(array)) for array in _saved(target)])
            stack.extend([edge[0] for edge in target.edges if edge is not None])
        elif target._hooks:
            return None
        else:
            leaves.add(id(target))
    return Dependences(frozenset(leaves), frozenset(memory))


def may_come_later(tensors: Iterable[Any], leaves: Iterable[Any], written: Iterable[Any]) -> bool:
    """Whether a backward pass from `tensors` may come after what a call does that uses these leaves and writes to these tensors."""
    found = dependences(map(edge_of, tensors))
    return found is not None and found.allow(leaves, written)


def _is_ready(node: Node) -> bool:
    """Whether a node is one of the library's, and has what it has saved: as it was, and not freed."""
    if isinstance(node, CompiledNode):
        return node.expanded or not (node.freed or node.changed())
    if not isinstance(node, OpNode) or node.freed:
        return False
    of_inputs = [(tensor._storage, version) for tensor, version in node.saved]
    return all(storage is None or storage.version == version for storage, version in (*of_inputs, *node.storages))


def _saved(node: Node) -> Iterator[Any]:
    """The arrays that a node reads in a backward pass."""
    if isinstance(node, OpNode):
        yield from (x for x in (*node.inputs, *node.outputs) if isinstance(x, np.ndarray))
    elif isinstance(node, CompiledNode):
        yield from itertools.chain.from_iterable(node.arrays)


def _owner(array: Any) -> Any:
    """The object that has the memory of an array, as far as NumPy knows."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array
