"""Why two steps of a loop are not taken for the same, in words for a reader: what tells them apart, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracejit.capture.snapshots import Snapshot
from tracejit.capture.steps import Step

__all__ = ["between_beginnings", "between_steps"]


def between_beginnings(before: Snapshot, now: Snapshot, variables: Mapping[str, Any]) -> str:
    """What a step finds that the one before it did not."""
    name = None
    for one, other in zip(before.tokens, now.tokens, strict=False):
        if one != other:
            break
        name = one if type(one) is str and (not one or one in variables) else name
    else:
        if len(before.tokens) == len(now.tokens):
            return "a step computes with what one before the last has made, or leaves it"
    if name:
        return f"{name!r} is another value, or of another kind, in each step"
    return (
        "each step goes through something of another kind" if name is None else "each step changes something outside of the call"
    )


def between_steps(one: Step, other: Step) -> str:
    """What a step does that the one before it did not; empty where they are alike."""
    for a, b in zip(one.nodes, other.nodes, strict=False):
        if not a.is_like(b):
            return f"{b.node.op.name} at {b.node.line} is not what the step before did there"
    longer: Sequence[Any] = max(one.nodes, other.nodes, key=len)
    if len(one.nodes) != len(other.nodes):
        first = longer[min(len(one.nodes), len(other.nodes))].node
        return f"{first.op.name} at {first.line} is in some steps alone"
    if [x.symbol for x in one.asked] != [x.symbol for x in other.asked] or any(
        a.answer is not b.answer for a, b in zip(one.asked, other.asked, strict=True)
    ):
        return "a comparison with the number of the step comes out otherwise"
    return "" if one.is_like(other) else "steps leave other things in their variables or lists"
