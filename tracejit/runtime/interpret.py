"""The backend "interpret": a program that is its graph, evaluated node by node by the oracle (ir/interpreter.py).

It keeps the contract of programs: metadata is checked, a failed guard or an error on the data is an exit with the same number that
machine code would return, and nothing outside is written before the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracejit.codegen.lower import exit_codes
from tracejit.core.aval import Aval, ScalarAval
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import GuardFailed, interpret
from tracejit.runtime.slab import pack, unpack

__all__ = ["InterpretedProgram"]


class InterpretedProgram:
    """See runtime/program.py."""

    machine_calls = 0
    seconds = 0.0

    def __init__(
        self, graph: Graph, layouts: Mapping[int, tuple[int, ...]], slab_inputs: tuple[int, ...], slab_outputs: tuple[int, ...]
    ) -> None:
        self.graph = graph
        self.layouts = layouts
        self.slab_inputs = slab_inputs
        self.residuals = [graph.avals[v] for v in slab_outputs]
        self.codes = exit_codes(graph)
        self.tensors = [v for v in graph.inputs if isinstance(graph.avals[v], Aval) and v not in slab_inputs]
        self.scalars = [v for v in graph.inputs if isinstance(graph.avals[v], ScalarAval)]

    def run(self, arrays: Any, scalars: Any) -> tuple[Any, ...] | int:
        """The outputs, 0 for arrays that are not what the graph was made for, or the number of the exit taken."""
        given: dict[int, Any] = dict(zip(self.tensors, arrays, strict=False))
        if not all(self._fits(v, a) for v, a in given.items()) or self._overlapping(given):
            return 0
        given.update(zip(self.scalars, scalars, strict=True))
        if self.slab_inputs:
            avals = [self.graph.avals[v] for v in self.slab_inputs]
            given.update(zip(self.slab_inputs, unpack(avals, arrays[len(self.tensors)]), strict=True))  # type: ignore[arg-type]
        try:
            outputs = interpret(self.graph, [given[v] for v in self.graph.inputs])
        except GuardFailed as failure:
            return failure.index + 1
        except (IndexError, ValueError, RuntimeError, ZeroDivisionError, ArithmeticError):
            return max(self.codes.values(), default=0) + 1
        results = [
            given[v] if isinstance(v, int) and v in given else self._own(a)
            for v, a in zip(self.graph.outputs, outputs, strict=True)
        ]
        if not self.residuals:
            return tuple(results)
        count = len(results) - len(self.residuals)
        return (*results[:count], pack(self.residuals, results[count:]))  # type: ignore[arg-type]

    def _fits(self, v: int, array: Any) -> bool:
        aval = self.graph.avals[v]
        assert isinstance(aval, Aval)
        if array.shape != aval.shape or array.dtype != aval.dtype.numpy:
            return False
        strides = self.layouts.get(v)
        if strides is None or aval.size == 0:
            return True
        return all(s == 1 or t == u * aval.dtype.itemsize for s, t, u in zip(aval.shape, array.strides, strides, strict=True))

    def _overlapping(self, given: Mapping[int, Any]) -> bool:
        written = [t for t, v in self.graph.writes if t != v]
        return any(np.may_share_memory(given[t], a) for t in written for v, a in given.items() if v != t)

    def _own(self, value: Any) -> Any:
        """A row-major array of its own."""
        return np.array(value, order="C") if isinstance(value, np.ndarray | np.generic) else value

    def source(self) -> str:
        """The graph itself."""
        return str(self.graph)

    def describe(self) -> str:
        """How many nodes are evaluated."""
        return f"{len(self.graph.nodes)} nodes evaluated by the interpreter"
