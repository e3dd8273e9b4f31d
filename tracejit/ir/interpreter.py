"""The oracle: a graph executed node by node with NumPy.

Every op is evaluated by the same body that eager mode uses, on the same operands, so what this module computes is by definition
what the program means.  It is slow and simple on purpose: no caching, no fusion.  In a raw graph views share memory and
writes reach it, in program order; in a functional graph `Graph.writes` are committed at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.core.aval import ScalarAval
from tracejit.core.floating import quietly
from tracejit.core.op import Kind
from tracejit.ir.graph import Graph, Literal, Node, Operand

__all__ = ["GuardFailed", "interpret"]


class GuardFailed(Exception):
    """Guard number `index` of the graph (in program order) found `actual` instead of what was recorded.  Nothing was committed."""

    def __init__(self, index: int, actual: Any, expected: Any) -> None:
        super().__init__(f"guard {index} found {actual!r}, recorded was {expected!r}")
        self.index = index
        self.actual = actual


def interpret(graph: Graph, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of `graph` for NumPy arrays (tensor inputs) and Python numbers (scalar inputs).

    Writes change the input arrays, as the program would.  Raises GuardFailed, whatever an op's evaluation raises, TypeError or
    ValueError for inputs that are not what the graph was made for, and AssertionError where an op contradicts its shape rule."""
    if len(inputs) != len(graph.inputs):
        raise TypeError(f"interpret(): the graph has {len(graph.inputs)} inputs, got {len(inputs)}")
    outputs: tuple[Any, ...] = quietly(_interpret, graph, inputs)
    return outputs


def _interpret(graph: Graph, inputs: Sequence[Any]) -> tuple[Any, ...]:
    values: dict[int, Any] = {v: np.array(a) for v, a in graph.constants.items()}
    for v, given in zip(graph.inputs, inputs, strict=True):
        _check_input(v, graph.avals[v], given)
        values[v] = given

    def read(operand: Operand) -> Any:
        if type(operand) is int:
            return values[operand]
        return operand.value if isinstance(operand, Literal) else None

    guards = 0
    for node in graph.nodes:
        operands = [read(x) for x in node.operands]
        if node.op.kind is Kind.GUARD:
            _check_guard(guards, operands[0], node.attrs["expected"])
            guards += 1
            continue
        result = node.op.evaluate(*operands, **node.attrs)
        for v, array in zip(node.outputs, result if node.op.multiple else (result,), strict=True):
            values[v] = _checked(node, array, graph.avals[v])

    outputs = tuple(map(read, graph.outputs))
    if graph.writes:  # the new contents are those from before any commit; outputs are values, not memory
        final = [(values[target], np.array(values[v])) for target, v in graph.writes]
        written = [target for target, _ in final]
        outputs = tuple(
            np.array(x) if isinstance(x, np.ndarray) and any(np.may_share_memory(x, w) for w in written) else x for x in outputs
        )
        for target, contents in final:
            np.copyto(target, contents)
    return outputs


def _check_input(v: int, aval: Any, given: Any) -> None:
    if isinstance(aval, ScalarAval):
        if type(given) is not aval.python_type:
            raise TypeError(f"interpret(): input v{v} is a Python {aval}, got {type(given).__name__}")
    elif not isinstance(given, np.ndarray):
        raise TypeError(f"interpret(): input v{v} is a tensor {aval}, got {type(given).__name__}; pass a numpy.ndarray")
    elif given.shape != aval.shape or given.dtype != aval.dtype.numpy:
        raise ValueError(f"interpret(): input v{v} is {aval}, got an array of shape {list(given.shape)} and dtype {given.dtype}")


def _check_guard(index: int, value: Any, expected: Literal) -> None:
    """A recorded bool stands for the truth value of the element; a number is compared by type and bits."""
    actual = value.item() if isinstance(value, np.ndarray) else value
    if type(expected.value) is bool:
        actual = bool(actual)
    if Literal(actual) != expected:
        raise GuardFailed(index, actual, expected.value)


def _checked(node: Node, result: Any, aval: Any) -> Any:
    """The result as an array.  Raises AssertionError where evaluation and shape rule of the op disagree."""
    array = np.asarray(result)
    if array.shape != aval.shape or array.dtype != aval.dtype.numpy:
        raise AssertionError(
            f"{node.op.name} {node.line}: evaluated to {array.dtype}{list(array.shape)}, its shape rule says {aval}"
        )
    return array
