"""The peak of a program's temporary memory: how much it is, at which step most of it is in use, and by what.

Temporary memory is the arena of a program: what is neither argument nor result, nor kept for a backward pass.  Values that are not alive
at the same time share it (memory.py).

Must not know: how the order of steps was found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tracejit.core.symbolic import text_of, without_symbols
from tracejit.ir.graph import Node
from tracejit.lowering.memory import Request, aligned

__all__ = ["NO_MEMORY", "Peak", "peak_of"]

_LARGEST: Final = 4  # values that are named
_LONGEST: Final = 60  # characters of what a step is called


@dataclass(frozen=True, slots=True)
class Peak:
    """nbytes: of the arena.  step: what is done when most is in use.  used: bytes then; less than
    `nbytes` where there are gaps between values.  largest: texts of the largest values that are in use then.  limit:
    `config.memory_limit` when the program was made."""

    nbytes: int = 0
    used: int = 0
    step: str = ""
    largest: tuple[str, ...] = ()
    limit: int | None = None

    @property
    def beyond(self) -> int:
        """Bytes that the program needs more than the limit allows; 0 where it keeps to it, or there is none."""
        return 0 if self.limit is None else max(0, without_symbols(self.nbytes) - self.limit)

    def lines(self) -> list[str]:
        """For reports: one line, or none of a program without temporary memory, and one about the limit where there is one."""
        if not self.largest:
            return []
        parts: list[Any] = ["most memory is in use, ", self.used, " bytes, at ", self.step, "; the largest values are "]
        for k, text in enumerate(self.largest):
            parts += ["; " if k else "", text]
        found = [text_of(*parts)]
        if self.beyond:
            found.append(
                f"memory_limit of {self.limit} bytes is not kept: the program needs {self.beyond} bytes more, whatever is computed again"
            )
        elif self.limit is not None:
            found.append(f"memory_limit of {self.limit} bytes is kept")
        return found


NO_MEMORY: Final = Peak()


def peak_of(
    requests: Sequence[Request],
    nbytes: int,
    labels: Sequence[str],
    what: Callable[[Any], tuple[str, Node | None, Peak | None]],
    limit: int | None,
) -> Peak:
    """The peak of an arena of `nbytes` bytes for these requests, whose steps are called `labels`.

    what: of the key of a request, what it is called, the node that makes it, and, of the memory of a loop's steps, their peak."""
    if not requests:
        return Peak(limit=limit)
    changes = [0] * (len(labels) + 1)
    for request in requests:
        size = aligned(without_symbols(request.nbytes))
        changes[request.first] += size
        changes[request.last + 1] -= size
    used, most, at = 0, -1, 0
    for k, change in enumerate(changes[:-1]):
        used += change
        if used > most:
            most, at = used, k
    there = sorted(
        (r for r in requests if r.first <= at <= r.last and without_symbols(r.nbytes)), key=lambda r: -without_symbols(r.nbytes)
    )
    largest: list[str] = []
    for request in there[:_LARGEST]:
        name, node, inside = what(request.key)
        line = f", {node.line}" if node is not None and node.line else ""
        own = "" if inside is None or not inside.largest else text_of(" (in a step: ", "; ".join(inside.largest[:2]), ")")
        largest.append(text_of(request.nbytes, " bytes of ", name, line, own))
    step = str(labels[at])
    return Peak(
        nbytes, sum([r.nbytes for r in there]), step if len(step) <= _LONGEST else f"{step[:_LONGEST]} ...", tuple(largest), limit
    )
