"""Rows of tensors from before a branching loop in variables that are read after it: `best = row`, `state = table[state]`.

In eager mode such a variable holds a view.  Steps carry on a copy of the row, which they compute with, and the positions that they have
read it at; after the loop the view is made of the tensor, at the positions in the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracejit.core.aval import Aval
from tracejit.core.dtypes import FROM_NUMPY, int64
from tracejit.core.op import Kind, Op
from tracejit.ir.graph import Literal
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun

__all__ = ["RowView", "row_view"]


@dataclass(frozen=True, slots=True)
class RowView:
    """The form of a variable that holds a view.  op, attributes: of the view; operands: those after the tensor, None of a position that
    steps carry on.  root: the tensor.  Forms are compared by their texts (`is_equal`), tensors as objects."""

    op: Op
    attributes: tuple[tuple[str, Any], ...]
    operands: tuple[Any, ...]
    root: Tensor

    def __repr__(self) -> str:
        return f"{self.op.name} {self.attributes} {self.operands} {id(self.root)}"

    def view(self, positions: Iterator[Any]) -> Tensor:
        """The view at these positions."""
        operands = [next(positions) if x is None else x.value for x in self.operands]
        made: Tensor = self.op.of(self.root, *operands, **dict(self.attributes))
        return made


def row_view(run: LoopRun, x: Any, begin: int) -> tuple[RowView, list[Any]] | None:
    """(the form of a view that a step leaves, and what slots hold of it: the row, then its positions); None if it is none of a tensor
    from before the loop.  begin: the number of values before the step."""
    interpreter = run.interpreter
    if not isinstance(x, Tensor) or x._base is None or x.requires_grad:
        return None
    value = interpreter.value_of(x)
    node = None if value is None or value < begin else interpreter.producer(value)  # a view from before is an object of its own
    if node is None or node.op.kind is not Kind.VIEW or type(node.operands[0]) is not int:
        return None
    root = interpreter.defined.get(node.operands[0])
    if root is None or not _is_from_before(run, root, node.operands[0], begin):
        return None
    operands: list[Any] = []
    positions: list[Tensor] = []
    for operand in node.operands[1:]:
        if isinstance(operand, Literal):
            operands.append(operand)
            continue
        position = interpreter.defined.get(operand) if type(operand) is int else None
        if position is None or Aval(position._array.shape, FROM_NUMPY[position._array.dtype]) != Aval((), int64):
            return None
        operands.append(None)
        positions.append(position)
    return RowView(node.op, node.attributes, tuple(operands), root), [x, *positions]


def _is_from_before(run: LoopRun, root: Tensor, value: int, begin: int) -> bool:
    """Whether a tensor is from before the loop, and no steps write to it."""
    recorder = run.recorder
    if not (value < begin or id(root) in recorder.tensors) or id(root) in recorder.loop_stand_ins:
        return False
    if root.requires_grad:  # it depends on the mode of the step whether a view of it does
        return False
    return not run.gathered.is_row(root) and not any(root is x for x in run.states.values())
