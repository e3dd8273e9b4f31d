"""Writes through views, on the tape.

Writing `value` into a view of a root gives the root a new position on the tape: `ViewWriteNode`.  Its backward hands the part of
the cotangent that lies under the view to `value`, and the rest, with zeros there, to the root's previous position.
`put_back` is the functional inverse of a chain of view operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracejit.autograd.tape import Node
from tracejit.core.op import Op
from tracejit.core.unbroadcast import sum_to
from tracejit.ops.creation import ArrayConstant, constant, full
from tracejit.ops.elementwise.comparison import where

__all__ = ["Chain", "ViewWriteNode", "apply_chain", "is_undone_by_operations", "put_back", "without"]

Chain = tuple[tuple[Op, tuple[Any, ...], Mapping[str, Any]], ...]


def apply_chain(root: Any, chain: Chain) -> Any:
    """The view of `root` that `chain` describes."""
    for op, operands, attributes in chain:
        root = op.of(root, *operands, **attributes)
    return root


def without(root: Any, chain: Chain) -> Any:
    """`root` with zeros under the view described by `chain`."""
    if not is_undone_by_operations(chain):  # of elements that share memory
        outside = np.ones(tuple(root.shape), np.bool_)
        hole = outside
        for op, operands, attributes in chain:
            hole = op.evaluate(hole, *operands, **attributes)
        hole[...] = False
        return where.of(constant.beside(root, array=ArrayConstant(outside)), root, 0.0)
    under = apply_chain(root, chain)
    return put_back(root, chain, full.beside(root, 0.0, shape=tuple(under.shape), dtype=under.dtype))


def is_undone_by_operations(chain: Chain) -> bool:
    """Whether there are operations that put the elements of a view back, all of which are different ones."""
    return all(op.scatter is not None or (op.undone is not None and "broadcasts" not in op.traits) for op, _, _ in chain)


def put_back(root: Any, chain: Chain, value: Any) -> Any:
    """A copy of `root` in which the view described by `chain`, of elements that are all different ones, has the contents of `value`."""
    if not chain:
        return value
    op, operands, attributes = chain[0]
    inner = put_back(op.of(root, *operands, **attributes), chain[1:], value)
    if op.scatter is not None:
        return op.scatter.of(root, inner, *operands, **attributes)
    back = op.undone_for(tuple(root.shape), attributes)
    assert back is not None, op.name
    return op.of(inner, **back)


class ViewWriteNode(Node):
    """The root of a storage after a write through one of its views."""

    __slots__ = ("chain", "value_shape")

    def __init__(
        self,
        root_edge: tuple[Any, int] | None,
        value_edge: tuple[Any, int] | None,
        chain: Chain,
        value_shape: tuple[int, ...],
    ) -> None:
        super().__init__((root_edge, value_edge))
        self.chain = chain
        self.value_shape = value_shape

    def name(self) -> str:
        return "CopySlices"

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        (g,) = cotangents
        under = apply_chain(g, self.chain)
        root = value = None
        if self.needs[1]:
            value = sum_to(under if tensors else np.array(under), self.value_shape)
        if self.needs[0]:
            if tensors:
                root = without(g, self.chain)
            else:
                root = np.array(g, order="C")
                hole = apply_chain(root, self.chain)
                hole[...] = 0
        return root, value
