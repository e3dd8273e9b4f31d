"""Graphs made ready to be run with NumPy any number of times, as bodies of loops are.

A `Runner` evaluates node after node, by the functions of eager mode, as ir/interpreter.py does.  After `_FIRST` runs it is one Python
function with a statement for each node, which takes half as long.

    v5 = mul(v3, v4)
    if v5.__class__ is not ndarray or v5.shape != shape_5 or v5.dtype is not dtype_5:
        v5 = checked(2, v5)"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tracejit.core.interrupts import is_foreign
from tracejit.core.op import Kind
from tracejit.ir.graph import Graph
from tracejit.ir.interpreter import NodeFailed, PreparedNode, check_guard, committed, constants

__all__ = ["Runner"]

_FIRST: Final = 16


class Runner:
    """A graph made ready to be run any number of times.

    Call it with inputs that fit, where floating-point warnings are off.  Raises NodeFailed.  Outputs that are constants are the same arrays
    each time."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._known, self._runs = graph, constants(graph), 0
        self._nodes = [(PreparedNode.of(node, graph.avals), node.operands, node.op.kind is Kind.GUARD) for node in graph.nodes]
        self._function: Callable[[Sequence[Any]], tuple[Any, ...]] | None = None

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        if self._function is not None:
            return self._function(inputs)
        self._runs += 1
        if self._runs > _FIRST and not self._graph.writes:
            self._function = self._as_function()
        graph, guards = self._graph, 0
        values = {**self._known, **dict(zip(graph.inputs, inputs, strict=True))}
        for ready, operands, is_guard in self._nodes:
            if is_guard:
                check_guard(ready.node, guards, values[operands[0]])
                guards += 1
            else:
                ready.put(values, [values[x] for x in operands])
        outputs = tuple([values[x] for x in graph.outputs])
        return committed(graph, values, outputs) if graph.writes else outputs

    def _as_function(self) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """A Python function that does the same."""
        graph, guards = self._graph, 0
        names: dict[Any, str] = {v: f"v{v}" for v in graph.inputs}
        environment: dict[str, Any] = {
            "__name__": __name__,
            "ndarray": np.ndarray,
            "asarray": np.asarray,
            "check_guard": check_guard,
        }

        def name(operand: Any) -> str:
            if operand not in names:
                names[operand] = f"k{len(names)}"
                environment[names[operand]] = self._known[operand]
            return names[operand]

        inputs = "".join([f"v{v}, " for v in graph.inputs])
        lines = ["def run(inputs):", f"  {inputs}= inputs" if inputs else "  pass", "  try:"]
        begin: list[int] = []  # the first line of each node
        for k, (ready, operands, is_guard) in enumerate(self._nodes):
            begin.append(len(lines) + 1)
            given = "".join([f"{name(x)}, " for x in operands])
            if is_guard:
                environment[f"n{k}"], expected = ready.node, ready.node.attrs["expected"].value
                holds = f"if bool({given[:-2]}) is not {expected}: " if type(expected) is bool else ""
                lines.append(f"    {holds}check_guard(n{k}, {guards}, {given})")
                guards += 1
                continue
            given += "".join([f"{attribute}=a{k}_{attribute}, " for attribute in ready.attributes])
            environment.update({f"a{k}_{attribute}": value for attribute, value in ready.attributes.items()})
            environment[f"f{k}"], environment[f"c{k}"] = ready.evaluate, ready.checked
            names.update({v: f"v{v}" for v, _, _ in ready.outputs})
            if ready.only is None:
                left = "".join([f"v{v}, " for v, _, _ in ready.outputs])
                lines.append(f"    {left}{'= ' if left else ''}c{k}(f{k}({given}))")
            else:
                v, environment[f"s{k}"], environment[f"d{k}"] = ready.only
                lines.append(f"    v{v} = f{k}({given})")
                if not ready.only[1]:  # functions of NumPy give numbers of NumPy's then
                    lines.append(f"    if v{v}.__class__ is not ndarray: v{v} = asarray(v{v})")
                lines.append(f"    if v{v}.__class__ is not ndarray or v{v}.shape != s{k} or v{v}.dtype is not d{k}:")
                lines.append(f"      v{v}, = c{k}(v{v})")
        lines += ["    pass", "  except Exception as error:", "    failed(error)"]
        lines.append(f"  return ({''.join([f'{name(x)}, ' for x in graph.outputs])})")

        def failed(error: Exception) -> None:
            if isinstance(error, NodeFailed) or is_foreign(error):
                raise error
            assert error.__traceback__ is not None
            raise NodeFailed(self._nodes[bisect(begin, error.__traceback__.tb_lineno) - 1][0].node) from error

        environment["failed"] = failed
        exec(compile("\n".join(lines), __file__, "exec"), environment)
        return environment["run"]  # type: ignore[no-any-return]
