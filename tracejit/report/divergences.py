"""Where the recordings of a function part: the guard, and the values that it took.

Two recordings are of different paths because something was found to be another value: the first fact in which they differ.  Which guard
that is, and which values it had, tells why a function has many paths, or is recorded in call after call.

It must not know how facts are found, nor what is done about it.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tracejit.capture.recording.facts import Fact
from tracejit.report.debug import parted

__all__ = ["ENOUGH", "Divergence", "Divergences"]

ENOUGH = 3
"""Recordings that part at one guard before it is named."""
_KEPT, _SHOWN = 64, 4
_ELEMENT = re.compile(r"\[\d+\]")
_COMPARED = 8
_BRANCHES = ("exit", "outcome")
_REMEDIES = {
    "value": "Pass what varies as a tensor, or leave it to the caller",
    "outcome": "Compare tensors (where), or leave the comparison to the caller",
    "type": "Pass values of one type",
    "object": "Make it once, outside, or pass its contents as tensors",
    "shape": "Pad to a few sizes, or raise TRACEJIT_MAX_SIZES and TRACEJIT_MAX_ENTRIES if there are no more than so many",
    "size": "Pass it as a tensor, pad to a few sizes, or leave to the caller what needs the number itself",
    "tensor": "Pass tensors of one dtype and layout (contiguous())",
    "mode": "Call it in one mode, by the same arguments",
    "exit": "Keep the value in tensors (where, masks, clamp), or use it outside the compiled function",
}


@dataclass(slots=True)
class Divergence:
    """A guard at which recordings parted.  values: what it found, in order; count: recordings; latest: the last of
    them found the second of these values, and the recording that it followed furthest the first."""

    kind: str
    name: str
    where: str
    values: list[str] = field(default_factory=list)
    count: int = 0
    latest: tuple[str, str] = ("", "")

    def text(self) -> str:
        """What is not the same from recording to recording, and what to do about it."""
        return f"{self.name}{self.place()} took {len(self.values)} values ({self.some()}). {self.remedy()}"

    def some(self) -> str:
        """The first of the values."""
        return ", ".join(self.values[:_SHOWN]) + (", ..." if len(self.values) > _SHOWN else "")

    def remedy(self) -> str:
        """What a user can do."""
        return _REMEDIES[self.kind]

    def place(self) -> str:
        """Where the user's program looked, with the text of the line if it can be read."""
        if not self.where:
            return ""
        file, _, line = self.where.rpartition(":")
        text = linecache.getline(file, int(line)).strip()
        return f" ({self.where}: {text})" if text else f" ({self.where})"

    def add(self, value: str) -> None:
        """One more recording, which found this."""
        self.count += 1
        if value not in self.values and len(self.values) < _KEPT:
            self.values.append(value)


def _as_types(before: Fact, fact: Fact) -> tuple[Fact, Fact] | None:
    """Facts of different kinds about one thing, as facts of its type, whichever element of a container it is: it was a tensor in one
    recording, and None in another.  None where they are of different things."""
    if before.name != fact.name or {before.kind, fact.kind} != {"type", "value"}:
        return None
    name = _ELEMENT.sub("[...]", fact.name)
    return Fact("type", name, where := before.where or fact.where, before.value), Fact("type", name, where, fact.value)


def _first_difference(facts: Sequence[Fact], others: Sequence[Sequence[Fact]]) -> tuple[Fact, Fact] | None:
    """(what another recording found, what this one did) where it parted from the one that it followed furthest; None where these are
    facts of different things."""
    depth, before = -1, None
    for other in others:
        same = next((i for i, (a, b) in enumerate(zip(facts, other, strict=False)) if a != b), -1)
        if same >= max(depth, 0):  # of several the latest
            depth, before = same, other[same]
    if before is None:
        return None
    fact = facts[depth]
    same_thing = (before.name, before.where) == (fact.name, fact.where)
    return (before, fact) if same_thing else _as_types(before, fact)


def _without_sizes(facts: Sequence[Fact]) -> list[Fact]:
    return [fact for fact in facts if fact.kind not in ("shape", "size")]


def _added(partings: dict[tuple[str, str], Divergence], before: Fact, fact: Fact) -> Divergence:
    """The parting at a fact, with one more recording."""
    parting = partings.setdefault((fact.name, fact.where), Divergence(fact.kind, fact.name, fact.where))
    if not parting.count:
        parting.add(before.value)
    parting.add(fact.value)
    parting.latest = before.value, fact.value
    return parting


class Divergences:
    """Those of one function."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Divergence] = {}
        self.latest: Divergence | None = None  # that of the last recording
        self._branches: dict[tuple[str, str], Divergence] = {}  # of recordings of whatever sizes

    def note(self, name: str, facts: Sequence[Fact], others: Iterable[Sequence[Fact]]) -> Divergence | None:
        """A recording of function `name` with these facts was made, beside others: it parted from the one that it followed furthest.
        Returns where that was, if the program went another way there."""
        compared = list(others)[-_COMPARED:]
        found = _first_difference(facts, compared)
        self.latest = None if found is None else _added(self._found, *found)
        if self.latest is not None and self.latest.count == ENOUGH:
            parted(name, self.latest.text())
        branch = _first_difference(_without_sizes(facts), list(map(_without_sizes, compared)))
        return None if branch is None or branch[1].kind not in _BRANCHES else _added(self._branches, *branch)

    def foremost(self) -> Divergence | None:
        """The guard at which most recordings parted, once they are enough."""
        found = max(self._found.values(), key=lambda parting: parting.count, default=None)
        return found if found is not None and found.count >= ENOUGH else None

    def of_branches(self) -> list[Divergence]:
        """The places where the program went one way or another, the one at which most recordings parted first: of the same sizes or not,
        since a loop of another length goes this way or that as well."""
        return sorted(self._branches.values(), key=lambda parting: -parting.count)

    def clear(self) -> None:
        """Forget them."""
        self._found.clear()
        self.latest = None
        self._branches.clear()
