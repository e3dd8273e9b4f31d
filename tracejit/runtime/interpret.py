"""The backend "interpret": a program that is its graph, evaluated node by node by the oracle (ir/interpreter.py).

It keeps the contract of programs: metadata is checked first, a node that does not go on as recorded (a guard, an error, another size) is an
exit with the number that machine code would return, and nothing outside is written before the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.shapes import contiguous
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import NodeFailed, run_nodes
from tracejit.lowering.exits import exit_codes
from tracejit.lowering.steps import ArraySpec
from tracejit.runtime.exits import exit_number
from tracejit.runtime.metadata import fits
from tracejit.runtime.slab import pack, unpack
from tracejit.runtime.source import Module, Printed

__all__ = ["InterpretedProgram"]


class InterpretedProgram(Printed):
    """See runtime/program.py."""

    machine_calls = 0
    seconds = 0.0

    def __init__(
        self,
        graph: Graph,
        layouts: Mapping[int, tuple[int, ...]],
        slab_inputs: tuple[int, ...],
        slab_outputs: tuple[int, ...],
        raises: bool,
    ) -> None:
        self.graph = graph
        self.raises = raises
        self.slab_inputs = slab_inputs
        self.residuals = [graph.avals[v] for v in slab_outputs]
        self.codes = exit_codes(graph)
        tensors = {v: aval for v in graph.inputs if isinstance(aval := graph.avals[v], Aval) and v not in slab_inputs}
        written = {t for t, v in graph.writes if t != v}
        self.tensors = tuple(tensors)
        self.specs = [
            ArraySpec.of(aval, layouts.get(v, contiguous(aval.shape)), v in written, v in layouts) for v, aval in tensors.items()
        ]
        self.disjoint = range(len(tensors)) if written else ()
        self.scalars = [v for v in graph.inputs if isinstance(graph.avals[v], ScalarAval)]

    def run(self, arrays: Any, scalars: Any) -> tuple[Any, ...] | int:
        """The outputs, 0 for arrays that are not what the graph was made for, or the number of the exit taken."""
        count = len(self.tensors)
        if not fits(arrays[:count], self.specs, self.disjoint):
            return 0
        given: dict[int, Any] = dict(zip(self.tensors, arrays[:count], strict=True))
        given.update(zip(self.scalars, scalars, strict=True))
        if self.slab_inputs:
            avals = [self.graph.avals[v] for v in self.slab_inputs]
            given.update(zip(self.slab_inputs, unpack(avals, arrays[count]), strict=True))  # type: ignore[arg-type]
        try:
            outputs = run_nodes(self.graph, [given[v] for v in self.graph.inputs])
        except NodeFailed as failure:
            return exit_number(self.codes, failure, self.raises)
        count = len(outputs) - len(self.residuals)
        results = [
            given[v] if isinstance(v, int) and v in given else self._own(a)
            for v, a in zip(self.graph.outputs[:count], outputs[:count], strict=True)
        ]
        if not self.residuals:
            return tuple(results)
        return (*results, pack(self.residuals, outputs[count:]))  # type: ignore[arg-type]

    def _own(self, value: Any) -> Any:
        """A row-major array of its own."""
        return np.array(value, order="C") if isinstance(value, np.ndarray | np.generic) else value

    def print(self, module: Module, name: str) -> None:
        """The graph itself."""
        module.put(name, f"{self.graph}\n")

    def describe(self) -> str:
        """How many nodes are evaluated."""
        return f"{len(self.graph.nodes)} nodes evaluated by the interpreter"
