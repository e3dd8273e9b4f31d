"""Where in the program a call stands: what looks for its caller - loggers, warnings, NumPy's warnings, reasons - finds the program's line.

Knows of frames, code and filters of warnings, and of nothing that is recorded.
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
"""Functions that pass a call on to the one that has been meant."""


def instrumented_frames() -> Iterator[FrameType]:
    """The frames of instrumented code, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if id(frame.f_code) in INSTRUMENTED:  # asked of a dozen frames at each operation
            yield frame
        frame = frame.f_back


def calling_frame() -> FrameType:
    """The innermost frame of instrumented code; where there is none, since the compiled function is one of C code, that which calls it."""
    found = next(instrumented_frames(), None)
    if found is None:
        found = sys._getframe(1)
        while found.f_back is not None and is_own_frame(found):
            found = found.f_back
    return found


def user_line(fallback: str = "") -> str:
    """ "file:line" of the innermost instrumented code of the user, or of the library's converted code if there is none."""
    frame: FrameType | None = sys._getframe(1)
    innermost: FrameType | None = None
    while frame is not None:  # as in `instrumented_frames`: it is asked at each operation
        code = id(frame.f_code)
        if code in INSTRUMENTED:
            if code not in OF_PACKAGE and not is_own_frame(frame):
                return _line(frame)
            innermost = innermost or frame
        frame = frame.f_back
    return fallback or ("" if innermost is None else _line(innermost))


def call_of_program() -> str:
    """What the program has called that is at work now, of the library ("LSTM.forward") or of another package ("numpy.vectorize.__call__");
    empty where that is the code that asks, or nothing."""
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
    """The frame that is meant by a `stacklevel`: 1 is the innermost of instrumented code, and the recorder has none."""
    frame: Any = (innermost or calling_frame()) if type(level) is int else None
    for _ in range(level - 1) if frame is not None else ():
        frame = frame.f_back
        while frame is not None and _is_library_frame(frame):
            frame = frame.f_back
        if frame is None:
            break
    return frame  # type: ignore[no-any-return]


def _is_library_frame(frame: FrameType) -> bool:
    """Whether it is a frame of capture's, or of the rest of the library as it runs natively: the program's are instrumented."""
    return is_own_frame(frame) and not is_instrumented(frame.f_code)


def level_from_here(level: Any) -> Any:
    """The `stacklevel` that names, to a function called by the caller's caller, the frame that is the program's `level`-th one: capture's
    own are not the program's."""
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
    """`function`, as called from the line that `frame` is at."""
    call: Any = lambda *arguments, **keywords: function(*arguments, **keywords)  # noqa: E731  the line is the code's first
    code = frame.f_code
    of_line = call.__code__.replace(co_filename=code.co_filename, co_firstlineno=frame.f_lineno, co_name=code.co_name)
    return FunctionType(of_line, frame.f_globals, code.co_name, None, call.__closure__)


def may_be_error(category: type[Warning]) -> bool:
    """Whether a warning may be an error, which the program may handle where it warns."""
    for action, message, kind, module, line in warnings.filters:
        if issubclass(category, kind):
            if action == "error":
                return True
            if message is None and module is None and not line:
                return False
    return False
