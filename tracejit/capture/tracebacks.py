"""Tracebacks as the program would see them without capture: no frames of it between the program's own."""

from __future__ import annotations

from types import TracebackType

__all__ = ["without_handlers"]

_OWN_DIRECTORY = __file__.removesuffix("tracebacks.py")


def without_handlers(error: BaseException | None) -> None:
    """Take the frames of this package out of the traceback of `error`, and out of those of the errors behind it."""
    seen: set[int] = set()
    pending = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _without_own(current.__traceback__)
        pending += (current.__cause__, current.__context__)


def _without_own(traceback: TracebackType | None) -> TracebackType | None:
    steps: list[TracebackType] = []
    while traceback is not None:
        steps.append(traceback)
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for step in reversed(steps):
        if step.tb_frame.f_code.co_filename.startswith(_OWN_DIRECTORY):
            continue
        if step.tb_next is not kept:
            step.tb_next = kept
        kept = step
    return kept
