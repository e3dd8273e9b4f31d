"""Which nodes are convolutions that kernels compute, and the shapes of input, weight and results of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracejit.core import convolutions
from tracejit.core.aval import Aval
from tracejit.core.op import Kind
from tracejit.ir.graph import Node

__all__ = ["is_direct", "shapes_of"]


def shapes_of(avals: Mapping[int, Any], node: Node) -> tuple[Any, Any, Any]:
    """The shapes of input, weight and results of a convolution, or of a gradient of one."""
    assert node.op.routine is not None
    first, second, made = (avals[v].shape for v in (*node.operands[:2], node.outputs[0]))  # type: ignore[index]
    return convolutions.arranged(node.op.routine, first, second, made)


def is_direct(avals: Mapping[int, Any], node: Node) -> bool:
    """Whether kernels compute the node at once."""
    op = node.op
    if op.kind is not Kind.COMPOSITE or op.routine is None or any(o is not None for o in node.operands[2:]):
        return False
    aval = avals[node.outputs[0]]
    return isinstance(aval, Aval) and convolutions.is_direct(aval.dtype, shapes_of(avals, node))
