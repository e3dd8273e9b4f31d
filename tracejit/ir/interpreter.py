"""The oracle: a graph executed node by node with NumPy.

Every op is evaluated by the same body that eager mode uses, on the same operands, so what this module computes is by definition
what the program means.  It is slow and simple on purpose: no caching, no fusion.  In a raw graph views share memory and
writes reach it, in program order; in a functional graph `Graph.writes` are committed at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracejit.core.aval import ScalarAval
from tracejit.core.floating import quietly
from tracejit.core.interrupts import is_foreign
from tracejit.core.op import Kind
from tracejit.core.symbolic import without_symbols
from tracejit.ir.graph import Graph, Literal, Node

__all__ = [
    "GuardFailed", "NodeFailed", "PreparedNode", "SizeChanged", "StepFailed", "check_guard", "committed",
    "constants", "interpret", "run_nodes",
]  # fmt: skip


class NodeFailed(Exception):
    """A node does not go on as it was recorded: a guard does not hold, its evaluation raised or gave another shape or dtype (the cause).
    Nothing was committed."""

    def __init__(self, node: Node) -> None:
        super().__init__(f"{node.op.name} {node.line}".rstrip())
        self.node = node


class StepFailed(Exception):
    """Step number `step` of a loop, in the order in which they run, does not go on as it was recorded (the cause)."""

    def __init__(self, step: int) -> None:
        super().__init__(f"step {step} of a loop")
        self.step = step


class GuardFailed(Exception):
    """Guard number `index` of the graph (in program order) found `actual` instead of what was recorded.  Nothing was committed."""

    def __init__(self, index: int, actual: Any, expected: Any) -> None:
        super().__init__(f"guard {index} found {actual!r}, recorded was {expected!r}")
        self.index = index
        self.actual = actual


class SizeChanged(Exception):
    """A size that depends on data is not the recorded one: an output has the shape `found`.  Nothing was committed."""

    def __init__(self, message: str, found: tuple[int, ...]) -> None:
        super().__init__(message)
        self.found = found


def interpret(graph: Graph, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of `graph` for NumPy arrays (tensor inputs) and Python numbers (scalar inputs).

    Writes change the input arrays, as the program would.  Raises GuardFailed, SizeChanged, whatever an op's evaluation raises, TypeError
    or ValueError for inputs that are not what the graph was made for, and AssertionError where an op contradicts its shape rule."""
    if len(inputs) != len(graph.inputs):
        raise TypeError(f"interpret(): the graph has {len(graph.inputs)} inputs, got {len(inputs)}")
    for v, given in zip(graph.inputs, inputs, strict=True):
        _check_input(v, graph.avals[v], given)
    try:
        return run_nodes(graph, inputs)
    except NodeFailed as failure:
        cause = failure.__cause__.__cause__ if isinstance(failure.__cause__, StepFailed) else failure.__cause__
        assert cause is not None
        raise cause from None


def run_nodes(graph: Graph, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What `interpret` does, on inputs that are known to fit.  Raises NodeFailed."""
    outputs: tuple[Any, ...] = quietly(_run, graph, inputs)
    return outputs


def _run(graph: Graph, inputs: Sequence[Any]) -> tuple[Any, ...]:
    values, guards = {**constants(graph), **dict(zip(graph.inputs, inputs, strict=True))}, 0
    for node in graph.nodes:
        operands = [values[x] for x in node.operands]
        if node.op.kind is Kind.GUARD:
            check_guard(node, guards, operands[0])
            guards += 1
        else:
            PreparedNode.of(node, graph.avals).put(values, operands)
    outputs = tuple([values[x] for x in graph.outputs])
    return committed(graph, values, outputs) if graph.writes else outputs


def constants(graph: Graph) -> dict[Any, Any]:
    """The values of a graph that do not depend on its inputs, by its operands: constants and literals."""
    known: dict[Any, Any] = {v: np.array(a) for v, a in graph.constants.items()}
    for operands in (*[node.operands for node in graph.nodes], graph.outputs):
        for operand in operands:
            if type(operand) is not int:  # which is a key of its own
                known[operand] = without_symbols(operand.value) if isinstance(operand, Literal) else None
    return known


_Expected = tuple[tuple[int, ...], np.dtype[Any]]  # shape, dtype


class PreparedNode(NamedTuple):
    """A node, what it calls, and what its outputs are to be."""

    node: Node
    evaluate: Callable[..., Any]
    attributes: dict[str, Any]
    outputs: list[_Expected]
    only: _Expected | None  # the output of a node that has one

    @classmethod
    def of(cls, node: Node, avals: Mapping[int, Any]) -> PreparedNode:
        outputs = [(avals[v].shape, avals[v].dtype.numpy) for v in node.outputs]
        return cls(node, node.op.evaluate, node.attrs, outputs, None if node.op.multiple or not outputs else outputs[0])

    def put(self, values: dict[Any, Any], operands: Sequence[Any]) -> None:
        """Put the outputs among the values.  Raises NodeFailed where they are not what they are to be."""
        values.update(zip(self.node.outputs, self.arrays(operands), strict=True))

    def arrays(self, operands: Sequence[Any]) -> Sequence[np.ndarray[Any, Any]]:
        """The outputs.  Raises NodeFailed where they are not what they are to be."""
        node, evaluate, attributes, _, only = self
        try:
            result = evaluate(*operands, **attributes)
        except Exception as error:
            if is_foreign(error):
                raise
            raise NodeFailed(node) from error
        if only is not None and type(result) is np.ndarray and result.shape == only[0] and result.dtype is only[1]:
            return (result,)
        return self.checked(result)

    def checked(self, result: Any) -> list[np.ndarray[Any, Any]]:
        """What the node has been evaluated to, as its outputs.  Raises NodeFailed where they are not what they are to be."""
        node, arrays = self.node, []
        for (shape, dtype), found in zip(self.outputs, result if node.op.multiple else (result,), strict=True):
            array = found if type(found) is np.ndarray else np.asarray(found)
            if array.shape != shape or array.dtype != dtype:
                told = f"{node.op.name} {node.line}: evaluated to {array.dtype}{list(array.shape)}"
                expected = f"{dtype}{list(shape)}"
                if "dynamic shape" in node.op.traits:
                    raise NodeFailed(node) from SizeChanged(f"{told}, recorded was {expected}", array.shape)
                raise NodeFailed(node) from AssertionError(f"{told}, its shape rule says {expected}")
            arrays.append(array)
        return arrays


def committed(graph: Graph, values: Mapping[Any, Any], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Write what the graph writes.  The new contents are those from before any commit; outputs are values, not memory."""
    final = [(values[target], np.array(values[v])) for target, v in graph.writes]
    written = [target for target, _ in final]
    outputs = tuple(
        [np.array(x) if isinstance(x, np.ndarray) and any(np.may_share_memory(x, w) for w in written) else x for x in outputs]
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


def check_guard(node: Node, index: int, value: Any) -> None:
    """A recorded bool stands for the truth value of the element; a number is compared by type and bits."""
    expected = node.attrs["expected"]
    actual = value.item() if isinstance(value, np.ndarray) else value
    if type(expected.value) is bool:
        actual = bool(actual)
    if Literal(actual) != expected:
        raise NodeFailed(node) from GuardFailed(index, actual, expected.value)
