"""Divergences: the guards at which recordings of a function differ, with their values.

Two recordings of a function are of different paths because some guarded value differed: the first fact in which they differ
(capture/recording/facts.py).  The guard with the most such values is the reason why a function has many paths, or is recorded
again and again.

This module must not know how facts are noted, nor what follows from divergences.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tracejit.capture.recording.facts import Fact
from tracejit.report.debug import log_divergence

__all__ = ["ENOUGH", "Divergence", "Divergences"]

ENOUGH = 3
"""A guard is named to the user from this number of recordings on."""
_KEPT, _SHOWN = 64, 4  # values that are kept, and shown
_ELEMENT = re.compile(r"\[\d+\]")
_COMPARED = 8  # earlier recordings with which a new one is compared
_BRANCHES = ("exit", "outcome")  # kinds of facts that are about branches
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
    """A guard at which recordings differ.  kind, name, where: see Fact.  values: its values, in order.  count: number of
    recordings.  latest: (value in the earlier recording, value in the new one) of the last divergence."""

    kind: str
    name: str
    where: str
    values: list[str] = field(default_factory=list)
    count: int = 0
    latest: tuple[str, str] = ("", "")

    def text(self) -> str:
        """A text for the user: what differs from recording to recording, and what to do about it."""
        return f"{self.name}{self.location()} took {len(self.values)} values ({self.values_text()}). {self.remedy()}"

    def values_text(self) -> str:
        """The first values, as a text."""
        return ", ".join(self.values[:_SHOWN]) + (", ..." if len(self.values) > _SHOWN else "")

    def remedy(self) -> str:
        """What the user can do about it."""
        return _REMEDIES[self.kind]

    def location(self) -> str:
        """The user's line, with its text if that can be read; "" if there is none."""
        if not self.where:
            return ""
        file, _, line = self.where.rpartition(":")
        text = linecache.getline(file, int(line)).strip()
        return f" ({self.where}: {text})" if text else f" ({self.where})"

    def add(self, value: str) -> None:
        """Count one more recording, with this value."""
        self.count += 1
        if value not in self.values and len(self.values) < _KEPT:
            self.values.append(value)


def _as_types(before: Fact, fact: Fact) -> tuple[Fact, Fact] | None:
    """Two facts of different kinds about the same thing, as facts about its type: it was a tensor in one recording and None in
    another.  Indices of elements are left out of its name.  None if they are about different things."""
    if before.name != fact.name or {before.kind, fact.kind} != {"type", "value"}:
        return None
    name = _ELEMENT.sub("[...]", fact.name)
    return Fact("type", name, where := before.where or fact.where, before.value), Fact("type", name, where, fact.value)


def _first_difference(facts: Sequence[Fact], others: Sequence[Sequence[Fact]]) -> tuple[Fact, Fact] | None:
    """(fact of another recording, fact of this one) at the first difference from the recording with which this one has most facts
    in common.  None if there is no difference, or the two are about different things."""
    depth, before = -1, None
    for other in others:
        common = next((i for i, (a, b) in enumerate(zip(facts, other, strict=False)) if a != b), -1)
        if common >= max(depth, 0):  # of several, take the latest
            depth, before = common, other[common]
    if before is None:
        return None
    fact = facts[depth]
    same_thing = (before.name, before.where) == (fact.name, fact.where)
    return (before, fact) if same_thing else _as_types(before, fact)


def _without_sizes(facts: Sequence[Fact]) -> list[Fact]:
    return [fact for fact in facts if fact.kind not in ("shape", "size")]


def _added(divergences: dict[tuple[str, str], Divergence], before: Fact, fact: Fact) -> Divergence:
    """Count one more recording for the divergence at a fact, and return the divergence."""
    divergence = divergences.setdefault((fact.name, fact.where), Divergence(fact.kind, fact.name, fact.where))
    if not divergence.count:
        divergence.add(before.value)
    divergence.add(fact.value)
    divergence.latest = before.value, fact.value
    return divergence


class Divergences:
    """The divergences of one function."""

    def __init__(self) -> None:
        self._divergences: dict[tuple[str, str], Divergence] = {}  # by (name, line)
        self.latest: Divergence | None = None  # of the last recording
        self._branches: dict[tuple[str, str], Divergence] = {}  # at branches, with differences of sizes ignored

    def note(self, name: str, facts: Sequence[Fact], others: Iterable[Sequence[Fact]]) -> Divergence | None:
        """Note a new recording of function `name`.  facts: of it; others: of earlier recordings.  Returns the divergence from an
        earlier one, if it is at a branch."""
        compared = list(others)[-_COMPARED:]
        difference = _first_difference(facts, compared)
        self.latest = None if difference is None else _added(self._divergences, *difference)
        if self.latest is not None and self.latest.count == ENOUGH:
            log_divergence(name, self.latest.text())
        branch = _first_difference(_without_sizes(facts), list(map(_without_sizes, compared)))
        return None if branch is None or branch[1].kind not in _BRANCHES else _added(self._branches, *branch)

    def most_frequent(self) -> Divergence | None:
        """The divergence with the most recordings, if there are at least `ENOUGH`."""
        largest = max(self._divergences.values(), key=lambda divergence: divergence.count, default=None)
        return largest if largest is not None and largest.count >= ENOUGH else None

    def of_branches(self) -> list[Divergence]:
        """The divergences at branches, the one with the most recordings first.  Recordings of different sizes are compared, too,
        since the steps of a loop with another trip count branch in the same way."""
        return sorted(self._branches.values(), key=lambda divergence: -divergence.count)

    def clear(self) -> None:
        """Forget all divergences."""
        self._divergences.clear()
        self.latest = None
        self._branches.clear()
