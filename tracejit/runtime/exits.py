"""The exit that a program takes where a node of it, evaluated by NumPy, does not go on as it was recorded.

A guard and an error have the number of their node (lowering/exits.py).  A size that depends on data has a number for each value that
is found, so that whoever remembers where an exit led finds the path for this very size.  So has a loop for each of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from tracejit.ir.interpreter import GuardFailed, NodeFailed, SizeChanged, StepFailed
from tracejit.ir.loop import leaves_by_step
from tracejit.lowering.exits import of_step

__all__ = ["exit_number"]


def exit_number(codes: Mapping[int, int], failure: NodeFailed, raises: bool = False) -> int:
    """The exit of a failure.  codes: the number of every node, by its id.  raises: what an evaluation has raised is raised, for nobody
    would run it again eagerly."""
    code, cause = codes[id(failure.node)], failure.__cause__
    if isinstance(cause, StepFailed):
        code = of_step(code, cause.step) if leaves_by_step(failure.node.op) else code
        cause = cause.__cause__
    if raises and cause is not None and not isinstance(cause, GuardFailed | SizeChanged | AssertionError):
        raise cause from None
    if not isinstance(cause, SizeChanged):
        return code
    number = 1
    for size in cause.found:
        number = (number << 48) + size
    return code + len(codes) * number
