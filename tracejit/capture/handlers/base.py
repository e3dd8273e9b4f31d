"""The base class of handlers.  Each handler class covers one concept of Python; all share one recorder.

A handler does what Python does, and records it.  The recorder (recorder.py) holds the state of the recording that several
handlers need: what the call has read, created and changed so far.  A handler holds only state that no other needs, and calls the
others through the recorder: `recorder.containers.length(value)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tracejit.autograd.tape import edge_of
from tracejit.core.interrupts import is_foreign
from tracejit.replay.ir import Name
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["ABSENT", "CallHandler", "Handlers", "TensorSource"]

CallHandler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Replaces a call of a function: `handler(function, arguments, keywords)` gives what `function(*arguments, **keywords)` would
give."""
ABSENT: Any = object()
"""Marks a missing attribute or item."""


class Handlers:
    """The handlers of one concept: base class."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.journal = recorder.journal

    def in_table(self, table: Mapping[Any, Callable[..., Any]], function: Any) -> CallHandler | None:
        """The handler that `table` has for `function`, bound to this object; None if there is none.  table: unbound methods of
        this class, by the functions that they handle."""
        try:
            method = table.get(function)
        except TypeError as error:  # a method of an object that cannot be hashed
            if is_foreign(error):
                raise
            return None
        return None if method is None else partial(method, self)


class TensorSource:
    """A tensor from outside: its variable in the prologue, and the state that later calls must find unchanged.

    used: it is an input of the program.  inspected: Python looked at its metadata.  argument: it is an argument of the call.
    edge: where on the tape its gradient goes to, as it was before the call wrote to the tensor."""

    __slots__ = ("argument", "edge", "inspected", "is_leaf", "is_view", "requires_grad", "tensor", "used", "variable")

    def __init__(self, tensor: Tensor, variable: Name, argument: bool) -> None:
        self.tensor = tensor
        self.variable = variable
        self.argument = argument
        self.used = False
        self.inspected = False
        self.is_view = tensor._base is not None
        self.requires_grad = tensor.requires_grad
        self.is_leaf = tensor.is_leaf
        self.edge = edge_of(tensor)
