"""The numbers of a program's exits: one for each node, the same for all backends; in a loop one for each step, the innermost's in loops of
loops, so that whoever remembers where an exit led finds the path that left the loop in that step."""

from __future__ import annotations

from typing import Final

from tracejit.core.op import Kind
from tracejit.ir.graph import Graph

__all__ = ["STEP", "exit_codes", "node_code", "of_step"]

STEP: Final = 32
"""Bits that the number of a node has."""


def exit_codes(graph: Graph) -> dict[int, int]:
    """Exit number by id() of the node: guards in order from 1, then all others in order.  What decides whether a node can leave (a range
    to check, an error or a size that the host finds) is no affair of the numbers."""
    guards = [n for n in graph.nodes if n.op.kind is Kind.GUARD]
    others = [n for n in graph.nodes if n.op.kind is not Kind.GUARD] if guards else graph.nodes
    return {id(n): k for k, n in enumerate((*guards, *others), 1)}


def of_step(code: int, step: int) -> int:
    """The number of an exit of a node in a step of a loop, `code` being that of the loop."""
    return code + (step + 1 << STEP)


def node_code(number: int) -> int:
    """The number of the node, whatever the step; 0 for the number of a size (runtime/exits.py), or of a step past the 65,534th."""
    return 0 if number >> 48 else number & ((1 << STEP) - 1)
