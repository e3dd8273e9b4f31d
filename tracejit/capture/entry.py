"""The finished recording, and the straight-line Python function that replays it.

An entry guards, computes the scalars, calls the program with tensors and scalars, runs the effects and returns the result.  It holds
what it compares by identity (functions, classes, modules, dictionaries of globals), never a tensor: those are reached by their path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tracejit.capture.reasons import Reason
from tracejit.core.dtypes import DType
from tracejit.core.op import Op
from tracejit.ir.graph import Graph, Literal, Operand

__all__ = ["Alias", "ExitPoint", "Recording", "ScalarInput", "TensorInput", "TensorOutput", "WrittenInput"]

Entry = Callable[[tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor from outside: graph input `value`, the prologue's variable, and what it was like when recorded.

    strides: in elements.  storage: inputs with the same number shared a storage."""

    value: int
    expression: str
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool
    storage: int


@dataclass(frozen=True, slots=True)
class ScalarInput:
    """A number from outside: graph input `value` with a ScalarAval, and the prologue's variable."""

    value: int
    expression: str


@dataclass(frozen=True, slots=True)
class Alias:
    """An output that shares memory: `kind` is "input" or "output", `index` its position, `views` the (op, operands after the first,
    attributes) that lead from it to this output; empty where the memory is the same."""

    kind: str
    index: int
    views: tuple[tuple[Op, tuple[Operand, ...], dict[str, Any]], ...]


@dataclass(frozen=True, slots=True)
class TensorOutput:
    """A new tensor object that the result or an effect needs; facts of the eager run.  strides: in elements.  consumed: a backward pass
    inside the run used its graph up."""

    value: int
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool
    alias: Alias | None
    consumed: bool = False


@dataclass(frozen=True, slots=True)
class WrittenInput:
    """Tensor input number `index` was written in place; `value` is its last version, the flags its state afterwards."""

    index: int
    value: int
    requires_grad: bool
    is_leaf: bool


@dataclass(frozen=True, slots=True)
class ExitPoint:
    """A guard node of the graph: position among the nodes, the user's line, the value seen."""

    node: int
    line: str
    expected: Literal


@dataclass(frozen=True, slots=True)
class Recording:
    """What one recorded call came to: a program, or the reason why there is none.

    text: the entry's source.  namespace: the constants it refers to."""

    reason: Reason | None
    graph: Graph | None = None
    tensor_inputs: tuple[TensorInput, ...] = ()
    scalar_inputs: tuple[ScalarInput, ...] = ()
    outputs: tuple[TensorOutput, ...] = ()
    written_inputs: tuple[WrittenInput, ...] = ()
    exits: tuple[ExitPoint, ...] = ()
    text: str = ""
    namespace: dict[str, Any] = field(default_factory=dict, repr=False)

    def build_entry(self, call: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> Entry:
        """entry(args, kwargs) -> the result, MISS where a guard fails, or whatever `call` returned that is not a tuple.

        call(tensors, scalars) gets the tensors and numbers in the order of `tensor_inputs` and `scalar_inputs`, and returns the
        tuple of output tensors in the order of `outputs`.  Raises ValueError for a recording that has a reason."""
        if self.reason is not None:
            raise ValueError(f"this call was not recorded: {self.reason}")
        namespace = {**self.namespace, "call": call}
        exec(compile(self.text, "<tracejit entry>", "exec"), namespace)
        entry: Entry = namespace["entry"]
        return entry


def entry_text(guards: list[str], tensors: list[str], scalars: list[str], epilogue: list[str], result: str) -> str:
    """The source of an entry."""
    lines = ["def entry(args, kwargs):", "    try:"]
    lines += [f"        {line}" for line in guards or ["pass"]]
    lines += [
        "    except (LookupError, AttributeError, ValueError, ArithmeticError):",
        "        return MISS",
        f"    result = call(({_tuple(tensors)}), ({_tuple(scalars)}))",
        "    if type(result) is not tuple:",
        "        return result",
    ]
    lines += [f"    {line}" for line in epilogue]
    lines.append(f"    return {result}")
    return "\n".join(lines) + "\n"


def _tuple(texts: list[str]) -> str:
    return ", ".join(texts) + ("," if len(texts) == 1 else "")
