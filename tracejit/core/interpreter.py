"""The door: `bind`, and the stack of interpreters behind it.

Every operation of the library passes `bind(op, operands, attributes)`.  The innermost interpreter of the calling thread gives
it its meaning: eager evaluation with a tape (tensor/eager.py), recording on top of it (capture/).  Higher layers push interpreters here;
this module knows none of them.  Abstract values (ir/) belong to an interpreter of their own, whatever the thread does.

Operands are Tensors, abstract values, Python scalars (weakly typed) or None for an absent optional operand.  Attributes are hashable.

Interpreters also see the few state changes that are no operation: gradients of leaves read and written, values taken out of
tensors, grad mode switched.

Exceptions may come at any time: a signal handler raises them, CPython runs it when a function is entered, after a call and where a loop
goes round, and at these points only does it let another thread go on.  So assignments in a row, without a call, are one step; and those
that begin a `finally` are made.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping
from typing import Any

from tracejit.core.floating import quiet_runner
from tracejit.core.interrupts import covers_its_entry
from tracejit.core.package_files import level_of_program

__all__ = [
    "Abstract",
    "Interpreter",
    "State",
    "ask_always",
    "bind",
    "is_recording",
    "pushed",
    "pushed_anywhere",
    "set_base",
    "state",
]


class Interpreter:
    """What the door hands an operation to.  The eager interpreter is the base of each thread's stack."""

    def bind(self, op: Any, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        raise NotImplementedError(type(self).__name__)

    def stepped(self, op: Any, operands: tuple[Any, ...]) -> Any:
        """`bind` by the step of an operation without attributes (tensor/eager.py); None where that does not take these operands."""
        return None

    def read_grad(self, tensor: Any) -> Any:
        """`tensor.grad` is read."""
        return tensor._grad

    def write_grad(self, tensor: Any, value: Any) -> None:
        """`tensor.grad` is replaced by `value` (a Tensor or None)."""
        tensor._grad = value

    def take(self, tensor: Any) -> Any:
        """The Python number in a tensor of one element (item(), bool(), float(), index())."""
        return tensor._array.item()

    def take_number(self, tensor: Any) -> Any:
        """The same by item(), which leaves it open what becomes of the number."""
        return self.take(tensor)

    def take_numbers(self, tensor: Any) -> Any:
        """The elements of a tensor as nested lists of Python's numbers."""
        return tensor._array.tolist()

    def varying_slice(self, tensor: Any, dim: int, start: Any, stop: Any, length: Any = None) -> tuple[Any, Any] | None:
        """(the operand that tells where a slice begins, its length) of `start:stop` in a dimension, or of `length` elements from `start`
        on, where the start need not be the same number in later calls.  None: the ends are what `int` makes of them."""
        return None

    def take_array(self, tensor: Any) -> Any:
        """An array of NumPy that shares the memory of a tensor: a new one, whose shape is the caller's to change."""
        return tensor._array.view()

    def share_array(self, array: Any, canonical: Any) -> Any:
        """A tensor on the memory of an array, whose dtype is `canonical` but maybe for its name: the eager interpreter makes it."""
        return state.base.share_array(array, canonical)

    def take_list(self, tensor: Any) -> Any:
        """Contents of a tensor leave the world of tensors, to be copied."""
        return tensor._array

    def make_state(self, generator: Any, op: Any, attributes: Mapping[str, Any]) -> Any:
        """The tensor of seed and counter of a generator, which an operation makes."""
        return self.bind(op, (), attributes)

    def use_generator(self, generator: Any) -> None:
        """The state of a generator is read or written."""

    def draw(self, generator: Any, op: Any, attributes: Mapping[str, Any], count: int) -> Any:
        """A RANDOM primitive draws from `generator`, which moves on by `count`."""
        return state.base.draw(generator, op, attributes, count)

    def call(self, function: Any, *arguments: Any) -> Any:
        """The library calls code of the program: a hook."""
        return function(*arguments)

    def built(self, value: Any) -> Any:
        """`value`, a container that the library has made, with those in it, for code of the program."""
        return value

    def call_method(self, owner: Any, name: str, *arguments: Any) -> Any:
        """The library calls a method of the program's."""
        return getattr(owner, name)(*arguments)

    def run_scan(
        self, step: Any, carried: list[Any], sliced: list[Any], count: int, reverse: bool, shared: list[Any] | None = None
    ) -> Any:
        """(what is carried in the end, what was collected, stacked) of a loop that the library runs: (carried on, collected) =
        step(carried, slices), for slice i of each of `sliced` along its first dimension; step(carried, slices, shared) where all tensors
        that steps share are told.  None: the library is to write it out."""
        return None

    def run_while_loop(self, condition: Any, step: Any, carried: list[Any]) -> list[Any]:
        """What is carried in the end of a loop that the library runs: carried = step(carried) while condition(carried) holds, a number or
        a tensor of one element."""
        while condition(carried):
            carried = step(carried)
        return carried

    def deferred(self, make: Any) -> Any:
        """The tensor that make() makes, of others, where nobody may turn out to need it."""
        return make()

    def warn(self, message: str) -> None:
        """The library warns: see core/library_warnings.py."""
        warnings.warn(message, UserWarning, level_of_program())

    def note(self, event: str, *details: Any) -> None:
        """Something happened that a recording cannot hold (hook registered, graph freed ...)."""


class Abstract:
    """A value without contents; `interpreter` gives operations on it their meaning."""

    __slots__ = ("interpreter",)

    interpreter: Interpreter


class State(threading.local):
    """Per-thread state of the door.

    `top` is the innermost interpreter; `grad_enabled` whether operations go on the tape; `autocast` see
    core/precision.py; `run_quietly` see core/floating.py; `compilation_off` how many calls are under way within which compiled functions
    run eagerly (core/compiler.py)."""

    def __init__(self) -> None:
        self.base = _BASE[0]
        self.top: Interpreter = self.base
        self.grad_enabled = True
        self.autocast: Any = None
        self.run_quietly = quiet_runner()
        self.compilation_off = 0


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


def is_recording() -> bool:
    """Whether operations of this thread go to another interpreter than the eager one."""
    return state.top is not state.base


pushed_anywhere = [0]
"""How many interpreters are pushed, in all threads: where it is 0, every thread runs eagerly (cheaper to ask than `state`).
`ask_always` adds to it, so that compiled calls look further than that."""
_asking = [0]


def ask_always(more: int) -> None:
    """Make every compiled call ask `state` and what else there is to ask, or (-1) take that back."""
    _asking[0] += more
    pushed_anywhere[0] += more


def _forked() -> None:
    """A child has no other threads, nor what they pushed."""
    if state.top is state.base:
        pushed_anywhere[0] = _asking[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class pushed:  # noqa: N801  (a context manager)
    """`with pushed(interpreter):` makes it the innermost one of this thread.  For one use."""

    __slots__ = ("_interpreter", "_previous")

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def __enter__(self) -> Interpreter:
        interpreter = self._interpreter
        self._previous = state.top
        pushed_anywhere[0] += 1
        state.top = interpreter
        return interpreter

    def again(self) -> None:
        """Be the innermost one again, on top of what is left of those beneath."""
        self._previous, state.top = state.top, self._interpreter

    @covers_its_entry
    def __exit__(self, *exception: object) -> None:
        try:
            del exception
        finally:
            state.top = self._previous
            pushed_anywhere[0] -= 1
