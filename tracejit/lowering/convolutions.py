"""Convolutions, and gradients of them, as calls of kernels (core/convolutions.py says which)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tracejit.core import convolutions
from tracejit.core.convolutions import Call
from tracejit.core.shapes import contiguous
from tracejit.ir.convolutions import shapes_of
from tracejit.ir.graph import Node
from tracejit.lowering.steps import Address, ConvolutionCall
from tracejit.lowering.values import Values

__all__ = ["convolution_calls", "convolution_steps"]


def convolution_calls(values: Values, node: Node) -> tuple[bool, Sequence[Call]]:
    """(whether all elements of the result are 0 before, the calls that compute a node)."""
    routine = node.op.routine
    assert routine is not None
    first, second = (values.strided[x].strides for x in node.operands[:2])  # type: ignore[index]
    strides = convolutions.arranged(routine, first, second, contiguous(values.shape(node.outputs[0])))
    return convolutions.calls(routine, shapes_of(values.avals, node), strides, convolutions.geometry_of(node.attrs))


def convolution_steps(
    values: Values, node: Node, calls: Sequence[Call], address: Callable[[int, int, int], Address]
) -> list[ConvolutionCall]:
    """The steps of these calls.  address(root, element, itemsize): of an element of a root value."""
    out = node.outputs[0]
    dtype = values.aval(out).dtype
    size = dtype.itemsize
    first, second = (values.strided[x] for x in node.operands[:2])  # type: ignore[index]
    read, source = (first, second) if node.op.routine == "weight" else (second, first)
    a, b = (address(x.root, x.offset, size) for x in (read, source))
    return [ConvolutionCall(call.kernel, dtype, a, b, address(out, call.offset, size), call.words) for call in calls]
