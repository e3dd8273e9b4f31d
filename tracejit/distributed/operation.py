"""`collective`: the primitive that all collectives on tensors are, in eager mode and in programs; and `collective_begun` with
`collective_awaited`, the two halves of a reduction beside which a program goes on.

It is evaluated on the host, between pieces of a program.  Its second operand is the number of the collective (ledger.py), its
second result the next number: that keeps the order.  Its effect is that of an operation whose result nobody can compute again,
so passes neither merge nor repeat it and no loop takes it up; it may raise, so none leaves it out; and a program does it after
all exits that come before it (runtime/host.py).

A reduction that is begun has its number in the order in which it is begun.  A program begins it as soon as its operand is there, and
computes what nobody needs before it after that (runtime/host.py, trait "begins").

Must not know: what a process group is for.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracejit.autograd.grad_mode import no_grad
from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.core.op import Effect, Kind
from tracejit.distributed.exchange import Reduction
from tracejit.distributed.ledger import LEDGERS, Ledger
from tracejit.ops.declare import custom
from tracejit.ops.movement.copies import write
from tracejit.tensor import Tensor, wrap

__all__ = ["Work", "awaited", "begun", "exchanged", "progress", "started"]

_STACKING: Final = ("all_gather", "gather")


def _ledger(what: str, group: int) -> Ledger:
    found = LEDGERS.get(group)
    if found is None:
        raise RuntimeError(f"distributed.{what}(): its process group is gone")
    return found


def _rule(
    x: Aval, sequence: Aval, what: str, reduction: str, root: int, group: int, size: int, is_root: bool
) -> tuple[Aval, Aval]:
    count = size if what == "all_gather" or is_root else 0
    shape = (count, *x.shape) if what in _STACKING else x.shape[1:] if what == "scatter" else x.shape
    return Aval(shape, x.dtype), Aval((), dtypes.int64)


@custom(Kind.OPAQUE, _rule, multiple=True, effect=Effect.RANDOM, traits=("raises", "moves", "not differentiable"))
def collective(x: Any, sequence: Any, what: str, reduction: str, root: int, group: int, size: int, is_root: bool) -> Any:
    """What the processes of a group make of an array of each, and the number of the next collective."""
    found = _ledger(what, group)
    number, do = int(sequence), getattr(found.communicator, what)
    arguments = {"all_reduce": (reduction,), "reduce": (reduction, root), "all_gather": ()}.get(what, (root,))
    result = found.once(number, (what, reduction, root, x.shape, x.dtype), lambda: do(x, *arguments))
    return result.wait() if isinstance(result, Reduction) else result, np.array(number + 1, np.int64)


def _number_rule(x: Aval, sequence: Aval, reduction: str, group: int) -> Aval:
    return Aval((), dtypes.int64)


@custom(Kind.OPAQUE, _number_rule, effect=Effect.RANDOM, traits=("raises", "begins", "not differentiable"))
def collective_begun(x: Any, sequence: Any, reduction: str, group: int) -> Any:
    """Begin to reduce an array of each process; the number of the next collective."""
    found = _ledger("all_reduce", group)
    number, own = int(sequence), np.array(x)  # the program may use the memory again before the reduction has ended
    found.once(number, ("all_reduce", reduction, 0, x.shape, x.dtype), lambda: found.communicator.start(own, reduction))
    found.communicator.progress()  # those that were begun before
    return np.array(number + 1, np.int64)


def _awaited_rule(x: Aval, following: Aval, group: int) -> Aval:
    return x


@custom(Kind.OPAQUE, _awaited_rule, traits=("raises", "moves", "not differentiable"))
def collective_awaited(x: Any, following: Any, group: int) -> Any:
    """The result of a reduction of arrays like `x`, when it is there.  following: the number of the collective after it."""
    return _ledger("all_reduce", group).result(int(following) - 1).wait()


def exchanged(
    x: Tensor, sequence: Tensor, what: str, reduction: str, root: int, group: int, size: int, is_root: bool
) -> tuple[Tensor, Tensor]:
    """(what comes of `x`, the number of the next collective).  what: the method of Communicator that does it.  group: its number."""
    return collective(x, sequence, what=what, reduction=reduction, root=root, group=group, size=size, is_root=is_root)


def begun(x: Tensor, sequence: Tensor, reduction: str, group: int) -> Tensor:
    """Begin to reduce a tensor; the number of the next collective.  group: its number."""
    return collective_begun(x, sequence, reduction=reduction, group=group)


def awaited(x: Tensor, following: Tensor, group: int) -> Tensor:
    """What comes of the tensor `x` with which begun() was called, and which gave `following`."""
    return collective_awaited(x, following, group=group)


class Work:
    """What goes on while the process computes.  `wait()` waits for it and puts its result in its place."""

    def __init__(self, tensor: Tensor | None = None, result: Any = None) -> None:
        self._tensor, self._result = tensor, result

    def is_completed(self) -> bool:
        """Whether wait() would return at once."""
        return self._tensor is None or not isinstance(self._result, Reduction) or self._result.is_complete()

    def wait(self, timeout: Any = None) -> bool:
        """Wait for the result, which then is in the tensor; True.  timeout: PyTorch's; it says nothing here."""
        del timeout
        tensor, result = self._tensor, self._result
        if tensor is not None:
            array = result.wait() if isinstance(result, Reduction) else result
            self._tensor = self._result = None
            with no_grad():
                write(tensor, wrap(array))
        return True


def started(tensor: Tensor, group: int, reduction: str) -> Work:
    """The reduction of a tensor, begun.  The tensor must not be changed before its wait()."""
    array, ledger = tensor._array, LEDGERS[group]
    what = ("all_reduce", reduction, 0, array.shape, array.dtype)
    kept = ledger.once(int(ledger.sequence), what, lambda: ledger.communicator.start(array, reduction))
    ledger.sequence += 1
    return Work(tensor, kept)


def progress(group: int) -> None:
    """Let what has been started go on, without waiting."""
    if (ledger := LEDGERS.get(group)) is not None:
        ledger.communicator.progress()
