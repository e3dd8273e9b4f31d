"""What a post-program number is: how a value is computed that is known only when the program has run.  extracted_numbers.py says what
becomes of them.

Invariant: a definition only uses numbers defined before."""

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
"""How many elements of a tensor, or rows of an array, are values of their own."""

_HELD = 63
"""Bits of an integer that a tensor holds, and a sign."""

Access = Callable[[Expr], Expr]
"""From the expression of a tensor to that of what Python takes out of it."""


class RecordingProtocol(Protocol):
    """What is asked of the interpreter of the recording."""

    nodes: list[Any]

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
    def take(self, tensor: Any) -> Any: ...
    def demand(self, tensor: Any) -> None: ...
    def replace(self, tensor: Any, make: Callable[[], Any]) -> None: ...
    def become(self, tensor: Any, made: Any) -> None: ...
    def producer(self, value: int) -> Any: ...
    def is_written(self, value: int) -> bool: ...
    def take_number(self, tensor: Any) -> Any: ...


@dataclass(slots=True, eq=False)
class PostProgramValue:
    """How a value is computed after the program: by `expression` from `parts`, or by `access` from `source`, a tensor.

    make: the same in the program, as a tensor float64 or int64 of one element, or None where it cannot.  bits: how long an int can be.
    readings: the readings of clocks that it is made of.  of_program: whether it is made of elements of tensors.
    outside: it is an array from outside, as that is when the program has run.  placed: the prologue
    has defined it.  shared: `source` is no copy, but a tensor of the function.  position: how many nodes the graph had when NumPy computed
    it from an array, -1 for anything else.  answer: it is what a call has answered that is made after the program, or what is computed
    from that alone, so its very type is that of this run only: (code, detail) of the reason where it is asked for, else empty.
    behind: the call after which a clock is read.  warns: whether NumPy may warn of it, so each call computes it, wanted or not.
    element: the tensor and the place in its elements that it was taken from, as one of a list."""

    expression: Expr | None
    parts: tuple[Any, ...] = ()
    make: Callable[[], Any] = lambda: None
    bits: int = 0
    source: Any = None
    shared: bool = False
    position: int = -1
    access: Access | None = None
    tensor: Any = None
    made: bool = False
    readings: frozenset[PostProgramValue] = frozenset()
    of_program: bool = False
    outside: bool = False
    placed: bool = False
    answer: tuple[str, ...] = ()
    behind: Any = None
    warns: bool = False
    element: tuple[Any, int] | None = None

    @property
    def is_call_result(self) -> bool:
        """Whether it is known once a call has been made, and not by an expression."""
        return bool(self.answer) and self.expression is None

    def program_tensor(self) -> Any:
        """The tensor, made when it is first asked for."""
        if not self.made:
            self.tensor, self.made = self.make(), True
        return self.tensor

    def carried_tensor(self) -> Any:
        """The tensor, for steps of a loop that know no more of an integer in it than that it is there: they do the same, however it was
        computed."""
        tensor = self.program_tensor()
        if tensor is not None and self.bits:
            self.bits = _HELD
        return tensor


def is_post_program(value: Any) -> bool:
    """Whether `value` is a number that is known only after the program."""
    return type(value) is SymbolicNumber and value._late is not None


def is_deferred_call_result(value: Any) -> bool:
    """Whether `value` is what a call has answered that is made after the program."""
    return is_post_program(value) and bool(value._late.answer)


def definitions(
    numbers: Iterable[SymbolicNumber], needed: Iterable[SymbolicNumber], tensor: Callable[[PostProgramValue], Expr]
) -> list[tuple[PostProgramValue, Statement]]:
    """What defines the post-program numbers `needed`, and what they are made of, each with its statement; `numbers` are all, in the order
    of their definition.  Answers are defined by the calls that they are of.  tensor: the expression of the tensor that a value is taken
    from."""
    wanted = {number._name for number in needed}
    found: list[tuple[PostProgramValue, Statement]] = []
    for number in reversed(list(numbers)):
        if number._name in wanted:
            late: PostProgramValue = number._late
            wanted.update(part._name for part in late.parts if is_post_program(part))
            if late.placed or late.is_call_result:
                continue
            expression = late.expression
            if expression is None:
                expression = tensor(late) if late.access is None else late.access(tensor(late))
            found.append((late, Define(number._name.name, expression)))
    return found[::-1]
