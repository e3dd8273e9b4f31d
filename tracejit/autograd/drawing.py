"""The tape of a tensor as textbooks draw it: leaves above, the operations that follow below them, the tensor at the bottom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tracejit.autograd.tape import Node, OpNode, edge_of
from tracejit.core.drawing import Arrow, Box, Drawing

__all__ = ["draw"]

_LEAF: Final = 0
_COMPILED: Final = 1


def draw(tensor: Any, names: Mapping[str, Any] | None = None) -> Drawing:
    """A drawing of how `tensor` was computed, as far as gradients go back: a box for each node of the tape, an ellipse for each leaf.
    A call of a compiled function is one node.

    names: name -> leaf, such as `dict(model.named_parameters())`; other leaves are told by their shapes.  Raises RuntimeError for a tensor
    that does not require grad, whose tape is empty."""
    if not tensor.requires_grad:
        raise RuntimeError("graph(): the tensor does not require grad, so there is no graph to draw; set requires_grad on a leaf")
    known = {id(leaf): name for name, leaf in (names or {}).items()}
    found: dict[int, Any] = {}
    waiting = [edge_of(tensor)[0]]
    while waiting:
        target = waiting.pop()
        if id(target) not in found:
            found[id(target)] = target
            if isinstance(target, Node):
                waiting += [edge[0] for edge in target.edges if edge is not None]
    leaves = [target for target in found.values() if not isinstance(target, Node)]
    nodes = sorted((target for target in found.values() if isinstance(target, Node)), key=lambda node: node.sequence)
    number = {id(target): k for k, target in enumerate((*leaves, *nodes))}
    boxes = [Box((known.get(id(leaf), "leaf"), _aval(leaf)), "ellipse", _LEAF) for leaf in leaves]
    arrows: list[Arrow] = []
    for node in nodes:
        boxes.append(_box(node))
        avals = node.avals if isinstance(node, OpNode) else (None,) * len(node.edges)
        pairs = {(edge[0], _shape(aval)): None for edge, aval in zip(node.edges, avals, strict=True) if edge is not None}
        arrows += [Arrow(number[id(target)], number[id(node)], shape) for target, shape in pairs]
    target, _ = edge_of(tensor)
    arrows.append(Arrow(number[id(target)], len(boxes), _shape(tensor)))
    boxes.append(Box((known.get(id(tensor), "this tensor"), _aval(tensor)), "end"))
    return Drawing(boxes, arrows)


def _box(node: Node) -> Box:
    if isinstance(node, OpNode):
        numbers = [f"{x:.6g}" if isinstance(x, float) else str(x) for x in node.inputs if isinstance(x, bool | int | float)]
        return Box((f"{node.op.name}({', '.join(numbers)})" if numbers else node.op.name,))
    return Box((node.name(),), "box", _COMPILED)


def _aval(tensor: Any) -> str:
    return f"{tensor.dtype.name}{list(tensor.shape)}"


def _shape(value: Any) -> str:
    shape = getattr(value, "shape", ())
    return str(list(shape)) if shape else ""
