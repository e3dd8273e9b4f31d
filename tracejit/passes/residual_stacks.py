"""What loops keep for the backward pass stays in one piece.

Where residuals are slices of what a loop has collected, the slab holds that, and backward graphs begin with the slices: as many values of
the steps are one array to those who lay out memory, and a loop of the backward graph finds its operands stacked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.builder import next_id, producers, rebuild
from tracejit.ir.graph import Graph, Literal, Node
from tracejit.passes.dce import dce

__all__ = ["SlabContents", "stack_residuals"]


@dataclass(frozen=True, slots=True)
class SlabContents:
    """What the slab holds.  avals: of the tensors in it; positions: for each residual, which of them it is, or which slice of it."""

    avals: tuple[Aval, ...]
    positions: tuple[tuple[int, int | None], ...]

    @property
    def has_stacks(self) -> bool:
        """Whether there are residuals that are slices."""
        return any(index is not None for _, index in self.positions)

    def residuals(self, tensors: Sequence[Any]) -> list[Any]:
        """The residuals, from the arrays in the slab."""
        return [tensors[k] if index is None else tensors[k][index, ...] for k, index in self.positions]

    def read_by(self, backward: Graph) -> tuple[Graph, tuple[int, ...]]:
        """(the graph, its inputs in the slab) that is given what the slab holds in the place of the residuals."""
        if not self.has_stacks:
            return backward, backward.inputs[: len(self.positions)]
        first = next_id(backward)
        inputs = list(range(first, first + len(self.avals)))
        avals = {**backward.avals, **dict(zip(inputs, self.avals, strict=True))}
        slices = []
        for v, (k, index) in zip(backward.inputs, self.positions, strict=False):
            if index is None:
                inputs[k] = v
            else:
                slices.append(Node(REGISTRY["select"], (first + k, Literal(index)), (("dim", 0),), (v,)))
        graph = replace(backward, inputs=(*inputs, *backward.inputs[len(self.positions) :]))
        return rebuild(graph, (*slices, *graph.nodes), avals=avals), tuple(inputs)


def stack_residuals(graph: Graph, results: int) -> tuple[Graph, SlabContents]:
    """(a graph that gives fewer and larger tensors after its `results`, where its residuals come from loops; what these tensors are)."""
    made = producers(graph)
    residuals = [v for v in graph.outputs[results:] if type(v) is int]
    sliced: dict[int, tuple[int, int]] = {}
    for v in residuals:
        maker = made.get(v)
        if maker is not None and "copies" in maker.op.traits:
            maker = made.get(maker.operands[0])  # type: ignore[arg-type]
        if maker is None or "one position" not in maker.op.traits or maker.attrs["dim"] != 0:
            continue
        base, index = maker.operands
        of_loop = type(base) is int and base in made and made[base].op.kind is Kind.LOOP
        if of_loop and isinstance(index, Literal) and not index.has_symbol:
            sliced[v] = base, index.position  # type: ignore[assignment]
    taken = Counter(base for base, _ in sliced.values())
    whole = {base for base, n in taken.items() if 2 * n > _length(graph, base)}
    tensors: list[int] = []
    number: dict[int, int] = {}  # of the tensors that are whole
    positions: list[tuple[int, int | None]] = []
    for v in residuals:
        base, index = sliced.get(v, (v, 0))
        if base not in whole:
            positions.append((len(tensors), None))
            tensors.append(v)
            continue
        if base not in number:
            number[base] = len(tensors)
            tensors.append(base)
        positions.append((number[base], index))
    kept = SlabContents(tuple([graph.avals[v] for v in tensors]), tuple(positions))  # type: ignore[misc]
    return dce(replace(graph, outputs=(*graph.outputs[:results], *tensors))) if whole else graph, kept


def _length(graph: Graph, v: int) -> int:
    aval = graph.avals[v]
    assert isinstance(aval, Aval)
    return aval.shape[0]
