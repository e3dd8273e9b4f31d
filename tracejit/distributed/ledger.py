"""Which collectives of a group this process has done.

Each collective on tensors has a number: 0, 1, 2, ... in the order of the program.  The number of the next one is a tensor of the
group, `sequence`.  A collective reads it and writes the next number, as a draw reads and writes the state of a generator.  So
in a compiled program collectives keep their order, none is left out, and none is done for another; and the program changes the
number, like all memory of the caller, after its last exit.

**The invariant.**  Each process does collective number k once, and as the k-th.  `once` keeps it: it does number `self.next` and
keeps the result.  Where a number comes again that was done and not committed, because a program has left at an exit behind it
and the call runs again in eager mode or in another path, it answers with the result that it has kept.  What is committed, and is
no reduction that somebody is still to wait for, is forgotten when the next collective is done.  So all processes do the same number
of collectives, though one of them may record a call that another one runs compiled, and a third leaves in the middle.

The program's part of it: each process calls the same collectives, of equal shapes and dtypes, in the same order.

Must not know: tensors, and what the collectives do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.distributed.exchange import Communicator, Reduction

__all__ = ["LEDGERS", "Ledger"]


class Ledger:
    """The collectives of one group.  sequence: int64[], the memory of the tensor with the number of the next one that is not committed."""

    __slots__ = ("communicator", "done", "next", "sequence")

    def __init__(self, communicator: Communicator, sequence: np.ndarray) -> None:
        self.communicator, self.sequence = communicator, sequence
        self.next = 0
        self.done: dict[int, tuple[Any, Any]] = {}

    def once(self, number: int, what: Any, run: Callable[[], Any]) -> Any:
        """The result of collective `number`, which run() does, unless it has been done.

        what: tells collectives apart.  Raises RuntimeError where a call that runs again does another collective than the first time, or
        one that was done and committed."""
        kept = self.done.get(number)
        if kept is not None:
            if kept[0] != what:
                raise RuntimeError(
                    f"distributed: a call that ran again does {what} as collective {number}; the first time it was {kept[0]}"
                )
            return kept[1]
        if number != self.next:
            raise RuntimeError(
                f"distributed: expected collective {self.next} of the group, got {number} ({what}), which is not its turn"
            )
        committed = int(self.sequence)
        for past in [k for k, (_, result) in self.done.items() if k < committed and not _is_awaited(result)]:
            del self.done[past]
        result = run()
        self.next = number + 1
        self.done[number] = what, result
        return result

    def result(self, number: int) -> Any:
        """The result of a collective that is not forgotten."""
        return self.done[number][1]


def _is_awaited(result: Any) -> bool:
    """Whether it is a reduction for which nobody has waited so far."""
    return isinstance(result, Reduction) and not result.was_awaited


LEDGERS: dict[int, Ledger] = {}
"""Those of the groups that there are, by the number of the group.  A program of a group that is gone finds none."""
