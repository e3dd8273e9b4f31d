"""Nodes made ready to be run with NumPy any number of times, as those of bodies of loops are.

Nodes are evaluated one after the other, by the functions of eager mode, as in ir/interpreter.py.  After `_FIRST` runs they are one
Python function with a statement for each node, which takes half as long.

    v5 = mul(v3, v4)
    if v5.__class__ is not ndarray or v5.shape != shape_5 or v5.dtype is not dtype_5:
        v5 = checked(v5)"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tracejit.core.interrupts import is_foreign
from tracejit.core.op import Kind
from tracejit.core.symbolic import without_symbols
from tracejit.ir.graph import Graph, Literal, Node
from tracejit.ir.interpreter import NodeFailed, PreparedNode, check_guard, committed, constants

__all__ = ["NodeRun", "Runner"]

_FIRST: Final = 16

Values = dict[Any, Any]


class NodeRun:
    """Nodes in a row.

    Call it with a dictionary of values, where floating-point warnings are off: it reads operands that no node of it computes, by
    their names, and puts in the outputs.  Literals and None stand for themselves.  Raises NodeFailed."""

    def __init__(self, nodes: Sequence[Node], avals: Mapping[Any, Any]) -> None:
        self._nodes = [(PreparedNode.of(node, avals), node.operands, node.op.kind is Kind.GUARD) for node in nodes]
        self._runs = 0
        self._function: Callable[[Values], None] = self._interpret

    def __call__(self, values: Values) -> None:
        self._function(values)

    def _interpret(self, values: Values) -> None:
        self._runs += 1
        if self._runs > _FIRST:
            self._function = self._as_function()
        guards = 0
        for ready, operands, is_guard in self._nodes:
            given = [_constant(x) if x is None or isinstance(x, Literal) else values[x] for x in operands]
            if is_guard:
                check_guard(ready.node, guards, given[0])
                guards += 1
            else:
                ready.put(values, given)

    def _as_function(self) -> Callable[[Values], None]:
        """A Python function that does the same."""
        guards = 0
        names: Values = {}  # of operands: the variables
        environment: Values = {"__name__": __name__, "ndarray": np.ndarray, "asarray": np.asarray, "check_guard": check_guard}
        lines = ["def run(values):", "  try:"]
        begin: list[int] = []  # the first line of each node

        def name(operand: Any) -> str:
            if operand not in names:
                names[operand] = variable = f"k{len(names)}"
                if operand is None or isinstance(operand, Literal):
                    environment[variable] = _constant(operand)
                else:
                    environment[f"name_{variable}"] = operand
                    lines.append(f"    {variable} = values[name_{variable}]")
            return names[operand]

        for k, (ready, operands, is_guard) in enumerate(self._nodes):
            given = "".join([f"{x}, " for x in [*map(name, operands)]])
            begin.append(len(lines) + 1)
            if is_guard:
                environment[f"n{k}"], expected = ready.node, ready.node.attrs["expected"].value
                holds = f"if bool({given[:-2]}) is not {expected}: " if type(expected) is bool else ""
                lines.append(f"    {holds}check_guard(n{k}, {guards}, {given})")
                guards += 1
                continue
            given += "".join([f"{attribute}=a{k}_{attribute}, " for attribute in ready.attributes])
            environment.update({f"a{k}_{attribute}": value for attribute, value in ready.attributes.items()})
            environment[f"f{k}"], environment[f"c{k}"] = ready.evaluate, ready.checked
            left = [f"v{k}_{n}" for n in range(len(ready.outputs))]
            if ready.only is None:
                lines.append(f"    {', '.join(left)}{', = ' if left else ''}c{k}(f{k}({given}))")
            else:
                v, (environment[f"s{k}"], environment[f"d{k}"]) = left[0], ready.only
                lines.append(f"    {v} = f{k}({given})")
                if not ready.only[0]:  # functions of NumPy give numbers of NumPy's then
                    lines.append(f"    if {v}.__class__ is not ndarray: {v} = asarray({v})")
                lines.append(
                    f"    if {v}.__class__ is not ndarray or {v}.shape != s{k} or {v}.dtype is not d{k}: {v}, = c{k}({v})"
                )
            for variable, output in zip(left, ready.node.outputs, strict=True):
                names[output], environment[f"name_{variable}"] = variable, output
                lines.append(f"    values[name_{variable}] = {variable}")

        def failed(error: Exception) -> None:
            if isinstance(error, NodeFailed) or is_foreign(error):
                raise error
            assert error.__traceback__ is not None
            raise NodeFailed(self._nodes[bisect(begin, error.__traceback__.tb_lineno) - 1][0].node) from error

        environment["failed"] = failed
        lines += ["    pass", "  except Exception as error:", "    failed(error)"]
        exec(compile("\n".join(lines), __file__, "exec"), environment)
        return environment["run"]  # type: ignore[no-any-return]


class Runner:
    """A graph made ready to be run any number of times.

    Call it with inputs that fit, where floating-point warnings are off.  Raises NodeFailed.  Outputs that are constants are the same arrays
    each time."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._known, self._run = graph, constants(graph), NodeRun(graph.nodes, graph.avals)

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        graph = self._graph
        values = {**self._known, **dict(zip(graph.inputs, inputs, strict=True))}
        self._run(values)
        outputs = tuple([values[x] for x in graph.outputs])
        return committed(graph, values, outputs) if graph.writes else outputs


def _constant(operand: Any) -> Any:
    return without_symbols(operand.value) if isinstance(operand, Literal) else None
