"""Values that are one of many slices of a tensor, as loops are given them.

`x[0]`, `x[1]` ..., parts of equal lengths (`x[:, 2:4]`, chunks: slices of the windows of `unfold`), and the same view of each of them,
which is a slice of that view of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY
from tracejit.ir.builder import GraphBuilder
from tracejit.ir.graph import Literal, Node

__all__ = ["Slice", "moved_to_front", "unbound_slices"]


@dataclass(frozen=True, slots=True)
class Slice:
    """What a value is: the slice at `index` of dimension `dim` of `base`."""

    base: int
    dim: int
    index: int

    def node(self, v: int) -> Node:
        """The node that makes it."""
        return Node(REGISTRY["select"], (self.base, Literal(self.index)), (("dim", self.dim),), (v,))


def unbound_slices(builder: GraphBuilder, nodes: Sequence[Node], fewest: int) -> tuple[list[Node], dict[int, Slice]]:
    """(the other nodes, the values that are slices of tensors of which `fewest` slices or more are taken).  What they are slices of is
    among the nodes, made with `builder` where nothing was.  Slices at symbolic positions are like other nodes: to ask which they are would
    make a program of one size."""
    nodes = _one_by_one(builder, nodes, fewest)
    if not any("one position" in node.op.traits for node in nodes):
        return nodes, {}
    kinds: dict[int, tuple[Any, int]] = {}  # value -> (what it is a slice of, index)
    for node in nodes:
        x = node.operands[0] if node.operands else None
        if "one position" in node.op.traits and isinstance(index := node.operands[1], Literal) and not index.has_symbol:
            kinds[node.outputs[0]] = (x, node.attributes), index.position
        elif x in kinds and not node.op.traits.isdisjoint(("reshapes", "permutes")):
            kinds[node.outputs[0]] = (kinds[x][0], node.op, node.attributes), kinds[x][1]  # type: ignore[index]
    taken = Counter([kind for kind, _ in set(kinds.values())])
    slices: dict[int, Slice] = {}
    bases: dict[Any, int] = {}
    builder.nodes = rest = []
    for node in nodes:
        kind, index = kinds.get(node.outputs[0], (None, 0)) if node.outputs else (None, 0)
        if kind is None or taken[kind] < fewest:
            rest.append(node)
        elif "one position" in node.op.traits:
            slices[node.outputs[0]] = Slice(kind[0], node.attrs["dim"], index)
        else:
            if kind not in bases:
                bases[kind] = _view_of_all(builder, node, slices[node.operands[0]])  # type: ignore[index]
            slices[node.outputs[0]] = Slice(bases[kind], 0, index)
    return rest, slices


def moved_to_front(builder: GraphBuilder, v: int, dim: int) -> int:
    """The value with a dimension moved to the front."""
    order = (dim, *[d for d in range(len(builder.aval(v).shape)) if d != dim])
    return builder.add(REGISTRY["permute"], (v,), {"dims": order})[0] if dim else v


def _view_of_all(builder: GraphBuilder, node: Node, s: Slice) -> int:
    """What a view of a slice is a slice of, along the first dimension."""
    base = moved_to_front(builder, s.base, s.dim)
    if "reshapes" in node.op.traits:
        attributes = {"shape": (builder.aval(base).shape[0], *node.attrs["shape"])}
    else:
        attributes = {"dims": (0, *[d + 1 for d in node.attrs["dims"]])}
    return builder.add(node.op, (base,), attributes, node.line)[0]


def _one_by_one(builder: GraphBuilder, nodes: Sequence[Node], fewest: int) -> list[Node]:
    """The nodes, where parts of equal lengths of one tensor are slices of the tensor of all such parts."""

    def kind(node: Node) -> tuple[Any, ...] | None:
        aval = builder.avals[node.outputs[0]]
        if not isinstance(aval, Aval) or 0 in aval.shape:
            return None
        attributes = node.attrs
        return node.operands[0], attributes["dim"], aval.shape[attributes["dim"]], attributes["step"]

    kinds = [kind(node) if "positions" in node.op.traits else None for node in nodes]
    taken = Counter(kinds)
    windows: dict[Any, int] = {}
    builder.nodes = found = []
    for node, known in zip(nodes, kinds, strict=True):
        if known is None or taken[known] < fewest:
            found.append(node)
            continue
        base, dim, size, step = known
        if known not in windows:
            (windows[known],) = builder.add(REGISTRY["unfold"], (base,), {"dim": dim, "size": size, "step": 1, "dilation": step})
        (part,) = builder.add(REGISTRY["select"], (windows[known], Literal(node.attrs["start"])), {"dim": dim}, node.line)
        rank = len(builder.aval(part).shape)
        order = (*range(dim), rank - 1, *range(dim, rank - 1))
        found.append(Node(REGISTRY["permute"], (part,), (("dims", order),), node.outputs, node.line))
    return found
