"""Tensors of steps of a branching loop whose graph a backward pass in the step has freed: the loss, after `loss.backward()`.

Such a tensor requires grad, and a backward pass from it raises an error.  Where no later step reads it, the loop carries on its contents,
and the tensor that follows the loop gets a position on the tape like that of the last step's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracejit.autograd.tape import edge_of, edges_behind_freed
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun

__all__ = ["FreedGraphs"]


class FreedGraphs:
    """The tensors of one run."""

    def __init__(self, run: LoopRun) -> None:
        self._run = run
        self._positions: dict[tuple[Any, ...], tuple[Any, int]] = {}  # by keys of slots

    def edges_behind(self, key: tuple[Any, ...], x: Any) -> frozenset[Any]:
        """Where the graph of a tensor has led to, if a backward pass in the step has freed it, and that was to leaves, or outside of the
        call; else empty.  key: of the slot that the tensor is left in."""
        run = self._run
        is_read = key[0] == "variable" and key[1] not in run.loop.assigned_first
        if run.is_divided or is_read or not isinstance(x, Tensor) or not x.requires_grad:
            return frozenset()
        edges = edges_behind_freed(x, run.interpreter.first_sequence)
        own = [edge_of(y) for y in run.interpreter.defined.values() if y._requires_grad and y.is_leaf]
        outside = {(id(target), index) for target, index in own}
        outside |= {(id(y.edge[0]), y.edge[1]) for y in run.recorder.tensors.values() if y.requires_grad}
        if not edges or not edges <= outside:
            return frozenset()
        self._positions[key] = x._node, x._index
        return frozenset(edges)

    def with_position(self, k: int, x: Tensor) -> Tensor:
        """A tensor with the contents of a slot, with its position on the tape if that is freed."""
        slot = self._run.tree.slots[k]
        if slot.freed:
            x._requires_grad, (x._node, x._index) = True, self._positions[slot.key]
        return x
