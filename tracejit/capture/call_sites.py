"""The user's line that is running, and frames as the user's code would have them without a recorder.

Loggers, `warnings.warn`, NumPy's warnings and reasons look for their caller; with these functions they see the user's line.  This
module knows frames, code objects and filters of warnings; it must not know what is recorded.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import FrameType, FunctionType
from typing import Any

from tracejit.capture.syntax.convert import INSTRUMENTED, OF_PACKAGE, is_instrumented
from tracejit.core.package_files import is_own_frame

__all__ = [
    "call_of_program",
    "called_from",
    "calling_frame",
    "frame_at",
    "instrumented_frames",
    "level_from_here",
    "may_be_error",
    "user_line",
]


_PASSING = frozenset({"_call_impl", "entry"})
"""Functions that only forward a call, so that no message should name them."""


def instrumented_frames() -> Iterator[FrameType]:
    """The frames of instrumented code, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if id(frame.f_code) in INSTRUMENTED:  # a fast test, since this runs for a dozen frames at each operation
            yield frame
        frame = frame.f_back


def calling_frame() -> FrameType:
    """The innermost frame of instrumented code.  There is none if the compiled function is a C function: then its caller's
    frame."""
    innermost = next(instrumented_frames(), None)
    if innermost is None:
        innermost = sys._getframe(1)
        while innermost.f_back is not None and is_own_frame(innermost):
            innermost = innermost.f_back
    return innermost


def user_line(fallback: str = "") -> str:
    """ "file:line" of the innermost instrumented code of the user.  If there is none: `fallback`, or the line of the innermost
    instrumented code of the library."""
    frame: FrameType | None = sys._getframe(1)
    innermost: FrameType | None = None
    while frame is not None:  # `instrumented_frames`, written out since this runs at each operation
        code = id(frame.f_code)
        if code in INSTRUMENTED:
            if code not in OF_PACKAGE and not is_own_frame(frame):
                return _line(frame)
            innermost = innermost or frame
        frame = frame.f_back
    return fallback or ("" if innermost is None else _line(innermost))


def call_of_program() -> str:
    """The name of the function that the innermost user code is calling: of the library ("LSTM.forward") or of another package
    ("numpy.vectorize.__call__").  "" if it is calling nothing but the caller of this function, or no user code is running."""
    frame: FrameType | None = sys._getframe(2)
    name = ""
    while frame is not None and not (is_instrumented(frame.f_code) and not is_own_frame(frame)):
        code = frame.f_code
        if not _is_of_capture(frame) and code.co_name not in _PASSING:
            module = str(frame.f_globals.get("__name__")).partition(".")[0]
            name = code.co_qualname if is_own_frame(frame) else f"{module}.{code.co_qualname}"
        frame = frame.f_back
    return "" if frame is None else name


def _is_of_capture(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(("tracejit.capture", "tracejit.compiled"))


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def frame_at(level: Any, innermost: FrameType | None = None) -> FrameType | None:
    """The frame that a `stacklevel` means: 1 is `innermost` (default: the innermost frame of instrumented code); frames of
    tracejit are not counted.  None if there are fewer frames, or `level` is no int."""
    frame: Any = (innermost or calling_frame()) if type(level) is int else None
    for _ in range(level - 1) if frame is not None else ():
        frame = frame.f_back
        while frame is not None and _is_library_frame(frame):
            frame = frame.f_back
        if frame is None:
            break
    return frame  # type: ignore[no-any-return]


def _is_library_frame(frame: FrameType) -> bool:
    """Whether `frame` is of tracejit's own code and not instrumented."""
    return is_own_frame(frame) and not is_instrumented(frame.f_code)


def level_from_here(level: Any) -> Any:
    """The `stacklevel` that the caller's caller has to pass to a function so that it means the frame that user code means by
    `level`.  The result is greater, since it also counts tracejit's own frames."""
    if type(level) is not int or level < 1:
        return level
    frame: FrameType | None = sys._getframe(2)
    count = 0
    while frame is not None and level:
        count += 1
        level -= not _is_library_frame(frame)
        frame = frame.f_back
    return count + level


def called_from(function: Any, frame: FrameType) -> Any:
    """A callable that calls `function` from a frame with the globals, the file and the current line of `frame`."""
    call: Any = lambda *arguments, **keywords: function(*arguments, **keywords)  # noqa: E731  its line has to be co_firstlineno
    code = frame.f_code
    of_line = call.__code__.replace(co_filename=code.co_filename, co_firstlineno=frame.f_lineno, co_name=code.co_name)
    return FunctionType(of_line, frame.f_globals, code.co_name, None, call.__closure__)


def may_be_error(category: type[Warning]) -> bool:
    """Whether the filters may turn a warning of this category into an error, which user code may handle where it warns."""
    for action, message, kind, module, line in warnings.filters:
        if issubclass(category, kind):
            if action == "error":
                return True
            if message is None and module is None and not line:
                return False
    return False
