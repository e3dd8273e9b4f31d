"""Definitions of post-program values: numbers and texts that are known only when the program has run.

extracted_numbers.py creates them and guards what they decide.  Invariant: a definition only uses numbers defined before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tracejit.capture.handlers.symbols import SymbolicNumber
from tracejit.replay.ir import Define, Expr, Statement

__all__ = [
    "MOST_ELEMENTS",
    "Access",
    "PostProgramValue",
    "RecordingProtocol",
    "definitions",
    "is_deferred_call_result",
    "is_post_program",
]

MOST_ELEMENTS = 4096
"""A tensor or array with more elements or rows is not split into one value for each."""

_INT64_BITS = 63
"""Bits of an integer in a tensor, without the sign."""

Access = Callable[[Expr], Expr]
"""Maps the expression of a tensor to that of the value that Python reads from it, as `tensor` to `tensor._array.item()`."""


class RecordingProtocol(Protocol):
    """The methods of the recording's interpreter that handlers call (../tensors.py, ../tensor_state.py)."""

    nodes: list[Any]
    values: dict[int, int]
    defined: dict[int, Any]
    asked_for_grad: bool
    loops_around: list[Any]

    def writes_outside(self) -> bool: ...

    def writes_to(self, array: Any) -> bool: ...

    def value_of(self, tensor: Any) -> int | None: ...

    def copy_of_contents(self, tensor: Any) -> Any: ...

    def forget(self) -> None: ...

    def symbolic_shape(self, tensor: Any) -> tuple[int, ...] | None: ...

    def is_row_major(self, tensor: Any) -> bool: ...

    def symbolic_strides(self, tensor: Any, *, exact: bool) -> tuple[int, ...] | None: ...

    def rows(self, tensor: Any) -> list[Any]: ...

    def bind(self, op: Any, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any: ...
    def read_grad(self, tensor: Any) -> Any: ...

    def write_grad(self, tensor: Any, value: Any) -> None: ...

    def take(self, tensor: Any) -> Any: ...
    def demand(self, tensor: Any) -> None: ...
    def replace(self, tensor: Any, make: Callable[[], Any]) -> None: ...
    def become(self, tensor: Any, made: Any) -> None: ...
    def producer(self, value: int) -> Any: ...
    def is_written(self, value: int) -> bool: ...
    def take_number(self, tensor: Any) -> Any: ...


@dataclass(slots=True, eq=False)
class PostProgramValue:
    """How a value is computed after the program: by `expression` from `parts`, or by `access` from the tensor `source`.

    make_tensor: computes the same value in the program, as a tensor of one element in float64 or int64; gives None if the program
        cannot.  made_tensor, is_made: its result, and whether it has been called.
    max_bits: the largest bit length that an int may have in any call.
    deferred: the clock readings and results of deferred calls that the value depends on.
    depends_on_tensors: whether it depends on elements of tensors.
    is_outside_array: whether it is an array from outside, read when the program has run.
    is_in_prologue: whether the prologue defines it.
    shares_source: whether `source` is a tensor of the function and not a copy.
    nodes_before: the length of the graph when NumPy computed the value from an array; -1 for other values.
    stop_reason: for the result of a deferred call, and for a value computed from such results alone: (code, detail) of the reason with
        which the recording stops when the value is needed earlier.  Even its type is known for this run only.  Else empty.
    clock_after: the deferred call after which a clock is read.
    may_warn: whether NumPy may warn when it is computed; then each call computes it, even if nothing uses it.
    tensor_element: (tensor, index) for one element of `tensor.tolist()`, the index in memory order."""

    expression: Expr | None
    parts: tuple[Any, ...] = ()
    make_tensor: Callable[[], Any] = lambda: None
    max_bits: int = 0
    source: Any = None
    shares_source: bool = False
    nodes_before: int = -1
    access: Access | None = None
    made_tensor: Any = None
    is_made: bool = False
    deferred: frozenset[PostProgramValue] = frozenset()
    depends_on_tensors: bool = False
    is_outside_array: bool = False
    is_in_prologue: bool = False
    stop_reason: tuple[str, ...] = ()
    clock_after: Any = None
    may_warn: bool = False
    tensor_element: tuple[Any, int] | None = None

    @property
    def is_call_result(self) -> bool:
        """Whether it is the result of a deferred call, and not computed by an expression."""
        return bool(self.stop_reason) and self.expression is None

    def program_tensor(self) -> Any:
        """The tensor that holds the value in the program, or None.  The first call adds its nodes to the graph."""
        if not self.is_made:
            self.made_tensor, self.is_made = self.make_tensor(), True
        return self.made_tensor

    def carried_tensor(self) -> Any:
        """`program_tensor` for a loop-carried value.  Steps of a loop must do the same however an integer was computed, so from
        here on nothing but the width of the dtype limits its bits."""
        tensor = self.program_tensor()
        if tensor is not None and self.max_bits:
            self.max_bits = _INT64_BITS
        return tensor


def is_post_program(value: Any) -> bool:
    """Whether `value` is the stand-in of a value that is known only after the program."""
    return type(value) is SymbolicNumber and value._post_program is not None


def is_deferred_call_result(value: Any) -> bool:
    """Whether `value` is the result of a call that is made after the program, or computed from such results alone."""
    return is_post_program(value) and bool(value._post_program.stop_reason)


def definitions(
    numbers: Iterable[SymbolicNumber], needed: Iterable[SymbolicNumber], tensor: Callable[[PostProgramValue], Expr]
) -> list[tuple[PostProgramValue, Statement]]:
    """The definitions of the post-program numbers `needed` and of all that they depend on, each with its statement, in order.

    numbers: all post-program numbers, in the order of their definition.  tensor: gives the expression of the tensor that a value
    is read from.  Results of deferred calls are not among the definitions: the statements of the calls define them."""
    wanted = {number._name for number in needed}
    result: list[tuple[PostProgramValue, Statement]] = []
    for number in reversed(list(numbers)):
        if number._name in wanted:
            definition: PostProgramValue = number._post_program
            wanted.update(part._name for part in definition.parts if is_post_program(part))
            if definition.is_in_prologue or definition.is_call_result:
                continue
            expression = definition.expression
            if expression is None:
                expression = tensor(definition) if definition.access is None else definition.access(tensor(definition))
            result.append((definition, Define(number._name.name, expression)))
    return result[::-1]
