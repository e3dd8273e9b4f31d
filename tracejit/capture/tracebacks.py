"""Removes tracejit's frames from tracebacks, so that they look as they would without the compiler."""

from __future__ import annotations

from types import TracebackType

from tracejit.capture.syntax.outlined_loops import is_step
from tracejit.core.package_files import CAPTURE, own_file, own_folder

__all__ = ["COMPILER", "without_dispatch", "without_handlers"]

_FOLDERS = (
    "capture", "compiled", "cpython", "ir", "llvm", "loops", "lowering", "math", "passes", "replay", "report", "runtime",
)  # fmt: skip
COMPILER = (
    *map(own_folder, _FOLDERS),
    *[own_file("core", f"{part}.py") for part in ("uninterrupted", "garbage_collection", "interrupts", "locks")],
    "<tracejit ",
)
"""Prefixes of file names of code that eager calls do not run."""


def without_dispatch(error: BaseException) -> None:
    """Remove the frames between the call of a compiled function and the function's own frames from the traceback of `error`.  An
    error that the compiler itself has raised outside of recordings keeps its traceback."""
    last, traceback = None, error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(COMPILER):
        last, traceback = traceback, traceback.tb_next
    is_of_compiler = traceback is None and last is not None and not last.tb_frame.f_code.co_filename.startswith(CAPTURE)
    if not (is_of_compiler and isinstance(error, Exception)):
        error.__traceback__ = traceback


def without_handlers(error: BaseException | None) -> None:
    """Remove the frames of capture/ from the tracebacks of `error` and of its causes and contexts."""
    seen: set[int] = set()
    pending = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _without_capture(current.__traceback__)
        pending += (current.__cause__, current.__context__)


def _without_capture(traceback: TracebackType | None) -> TracebackType | None:
    steps: list[TracebackType] = []
    while traceback is not None:
        steps.append(traceback)
        traceback = traceback.tb_next
    following: TracebackType | None = None
    for step in reversed(steps):
        if step.tb_frame.f_code.co_filename.startswith(CAPTURE):
            continue
        if following is not None and is_step(following.tb_frame.f_code):  # a part of this function
            continue
        if step.tb_next is not following:
            step.tb_next = following
        following = step
    return following
