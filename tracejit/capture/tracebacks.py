"""Tracebacks as the program would see them without the compiler: none of its frames between the program's own."""

from __future__ import annotations

from types import TracebackType

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
"""Where code stands that an eager call does not run."""


def without_dispatch(error: BaseException) -> None:
    """Take what stands between a call of a compiled function and the frames of the function out of the traceback of `error`.  One that the
    compiler has raised, outside of recordings, keeps its traceback."""
    last, traceback = None, error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(COMPILER):
        last, traceback = traceback, traceback.tb_next
    is_own = traceback is None and last is not None and not last.tb_frame.f_code.co_filename.startswith(CAPTURE)
    if not (is_own and isinstance(error, Exception)):
        error.__traceback__ = traceback


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
        if step.tb_frame.f_code.co_filename.startswith(CAPTURE):
            continue
        if step.tb_next is not kept:
            step.tb_next = kept
        kept = step
    return kept
