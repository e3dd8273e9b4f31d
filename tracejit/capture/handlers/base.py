"""What all handlers are: one concept of Python each, around the one recorder.

A handler does what Python does, and records it.  What the call has read, made and changed so far is the recorder's (recorder.py);
a handler keeps what nobody else needs, and asks others by way of the recorder: `recorder.containers.length(value)`.
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

__all__ = ["ABSENT", "Handler", "Handlers", "TensorSource"]

Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Does what a function would do, given it, its arguments and its keywords."""
ABSENT: Any = object()
"""Stands for "there is no such attribute"."""


class Handlers:
    """Handlers of one concept."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.journal = recorder.journal

    def in_table(self, table: Mapping[Any, Callable[..., Any]], function: Any) -> Handler | None:
        """What a table of methods of this class has for a function; None where there is nothing."""
        try:
            method = table.get(function)
        except TypeError as error:  # bound to something without a hash
            if is_foreign(error):
                raise
            return None
        return None if method is None else partial(method, self)


class TensorSource:
    """An outside tensor: its variable in the prologue, and what later calls must find unchanged.

    `used`: it is an input of the program; `inspected`: Python looked at its metadata; `argument`: it is an argument of the call; `place`:
    where its gradient goes, before the call writes to it."""

    __slots__ = ("argument", "inspected", "is_leaf", "is_view", "place", "requires_grad", "tensor", "used", "variable")

    def __init__(self, tensor: Tensor, variable: Name, argument: bool) -> None:
        self.tensor = tensor
        self.variable = variable
        self.argument = argument
        self.used = False
        self.inspected = False
        self.is_view = tensor._base is not None
        self.requires_grad = tensor.requires_grad
        self.is_leaf = tensor.is_leaf
        self.place = edge_of(tensor)
