"""The door: `bind`, and the stack of interpreters behind it.

Every operation of the library passes `bind(op, operands, attributes)`.  The innermost interpreter of the calling thread gives
it its meaning: eager evaluation with a tape (tensor/eager.py), recording on top of it (capture/), graph building with abstract
values (ir/).  Higher layers push interpreters here; this module knows none of them.

Operands are Tensors, Python scalars (weakly typed), None for an absent optional operand, or, while a plain backward pass
runs, bare NumPy arrays: rules written with ops and Python operators then run at NumPy's own speed.  Attributes are hashable.

Interpreters also see the few state changes that are no operation: gradients of leaves read and written, values taken out of
tensors, grad mode switched.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tracejit.core.floating import quiet_runner
from tracejit.core.locks import lock_held_over_forks

__all__ = ["Interpreter", "State", "bind", "pushed", "pushed_anywhere", "set_base", "state"]


class Interpreter:
    """What the door hands an operation to.  The eager interpreter is the base of each thread's stack."""

    def bind(self, op: Any, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        raise NotImplementedError(type(self).__name__)

    def read_grad(self, tensor: Any) -> Any:
        """`tensor.grad` is read."""
        return tensor._grad

    def write_grad(self, tensor: Any, value: Any) -> None:
        """`tensor.grad` is replaced by `value` (a Tensor or None)."""
        tensor._grad = value

    def take(self, tensor: Any) -> Any:
        """The Python number in a tensor of one element (item(), bool(), float(), index())."""
        return tensor._array.item()

    def take_list(self, tensor: Any) -> Any:
        """Contents of a tensor leave the world of tensors as nested lists, an array or text."""
        return tensor._array

    def note(self, event: str, *details: Any) -> None:
        """Something happened that a recording cannot hold (hook registered, seed set, graph freed ...)."""


class State(threading.local):
    """Per-thread state of the door.

    `top` is the innermost interpreter; `quietly(function, *operands)` evaluates without floating-point warnings."""

    def __init__(self) -> None:
        self.base = _BASE[0]
        self.top: Interpreter = self.base
        self.grad_enabled = True
        self.quietly = quiet_runner()


_BASE: list[Interpreter] = [Interpreter()]
state = State()


def set_base(interpreter: Interpreter) -> None:
    """Install the eager interpreter; called once, when tensor/eager.py is imported."""
    if state.top is _BASE[0]:
        state.top = interpreter
    state.base = _BASE[0] = interpreter


def bind(op: Any, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
    """Apply a primitive.  Returns its output, or a tuple for a primitive with several."""
    return state.top.bind(op, operands, attributes)


pushed_anywhere = [0]
"""How many interpreters are pushed, in all threads: where it is 0, every thread runs eagerly (cheaper to ask than `state`)."""
_pushing = lock_held_over_forks()


def _forked() -> None:
    """A child has no other threads, nor what they pushed."""
    if state.top is state.base:
        pushed_anywhere[0] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@contextmanager
def pushed(interpreter: Interpreter) -> Iterator[Interpreter]:
    """Make `interpreter` the innermost one of this thread."""
    with _pushing:
        pushed_anywhere[0] += 1
    previous, state.top = state.top, interpreter
    try:
        yield interpreter
    finally:
        state.top = previous
        with _pushing:
            pushed_anywhere[0] -= 1
