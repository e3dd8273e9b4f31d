"""The function that evaluates frames, in machine code: it asks about frames of code that nobody knows, then has them evaluated as ever.

While `CallWatch(check)` is on, `check(code, globals)` is called, unwatched, for each frame of this thread that begins to run code which
nobody has passed to `allow`.  Code objects are known by address and kept alive: those of the library for ever, others until `forget`.

CPython hands each frame of Python code to a function of the interpreter's (PEP 523), which may be another one than its own.  A profile
function would learn of the same frames, and of each return and each call of a builtin besides; and while there is one, CPython 3.11 runs
all code of the thread without its specialised instructions, later versions the calls: recordings took a third longer.

Some specialised instructions evaluate a frame that is handed to nobody (layouts.Layout.hides_frames): those for a `__getitem__` written
in Python, or for the `__init__` of a new instance.  Instrumented code has neither subscripts nor calls of its own, and the library's
functions that come upon objects of the program's are instrumented as well; the others have tensors and numbers.  Frames of all other code
are evaluated without specialised instructions, as `check` says.

Frames of a trace or profile function, and of what sys.monitoring calls, are none of the program's: CPython says when one runs
(c_api.tool_offset).  So compiled functions are recorded under profilers, debuggers and measures of coverage as well.

Where frames are not known to lie in memory as expected (`unsupported`), it is a profile function in Python, as well as where a trace
function was on when this module was imported and is on now.  Then a thread that has a profile function cannot be watched (`obstacle`).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np

from tracejit.core.interrupts import covers_its_entry, is_foreign
from tracejit.cpython import c_api, exception_tables
from tracejit.cpython.c_api import LAYOUT, failed_checks
from tracejit.cpython.linking import link
from tracejit.cpython.memory_reads import CheckedMemory

__all__ = ["CallWatch", "allow", "forget", "is_allowed", "obstacle", "unsupported", "watched_threads"]

exception_tables.install()  # from here on functions get the code that they keep, which is what `allow` knows them by
Check = Callable[[CodeType, dict[str, Any]], bool]

_SYMBOL: Final = "tracejit_call_hook"
_SIZE: Final = 1 << 15  # words of the table of addresses, a power of two; half of them at most are used
_THREADS: Final = 1 << 10  # that may be watched at the same time
_SETUP, _BEGIN, _END, _FORKED, _COUNT = range(5)  # what the machine code is asked to do
_lasting: dict[int, CodeType] = {}  # allowed code, by address
_passing: dict[int, CodeType] = {}  # the same, until it is forgotten
_table = np.zeros(_SIZE, np.int64)  # their addresses: from the index that an address says on, none is empty before it
_lasting_table = np.zeros(_SIZE, np.int64)  # those of lasting ones
_changed: list[int] = []  # indices of the table that have been filled since it was the same as that of lasting ones

_CALLED: Final = (
    "PyErr_Fetch", "PyErr_Restore", "PyEval_SetProfile", "PyInterpreterState_Get", "PyObject_IsTrue", "PyObject_Vectorcall",
    "PyThreadState_Get", "Py_DecRef", "Py_IncRef", "_PyInterpreterState_GetEvalFrameFunc", "_PyInterpreterState_SetEvalFrameFunc",
)  # fmt: skip

_DATA: Final = f"""
@none = internal global ptr null
@table = internal global ptr null
@previous = internal global ptr null
@count = internal global i64 0
@watched = internal global [{_THREADS} x {{ i64, ptr }}] zeroinitializer
"""
"""None, the table of code, what evaluated frames before, and the watched threads with their checks: the address of a thread's state, whose
lowest bit is set while the check runs."""

_THREADS_TEXT: Final = """
define internal ptr @find(i64 %thread) nounwind {
entry:
  %count = load i64, ptr @count
  br label %scan
scan:
  %index = phi i64 [ 0, %entry ], [ %following, %compare ]
  %is.end = icmp eq i64 %index, %count
  br i1 %is.end, label %none, label %compare
compare:
  %at = getelementptr { i64, ptr }, ptr @watched, i64 %index
  %found = load i64, ptr %at
  %same = icmp eq i64 %found, %thread
  %following = add i64 %index, 1
  br i1 %same, label %done, label %scan
done:
  ret ptr %at
none:
  ret ptr null
}

define internal void @add(i64 %thread, ptr %check) nounwind {
  %count = load i64, ptr @count
  %at = getelementptr { i64, ptr }, ptr @watched, i64 %count
  store i64 %thread, ptr %at
  %check.at = getelementptr { i64, ptr }, ptr %at, i64 0, i32 1
  store ptr %check, ptr %check.at
  %more = add i64 %count, 1
  store i64 %more, ptr @count
  %interpreter = call ptr @PyInterpreterState_Get()
  %current = call ptr @_PyInterpreterState_GetEvalFrameFunc(ptr %interpreter)
  %is.on = icmp eq ptr %current, @evaluate
  br i1 %is.on, label %done, label %off
off:
  store ptr %current, ptr @previous
  call void @_PyInterpreterState_SetEvalFrameFunc(ptr %interpreter, ptr @evaluate)
  br label %done
done:
  ret void
}

define internal void @remove(ptr %at) nounwind {
  %count = load i64, ptr @count
  %last = sub i64 %count, 1
  %last.at = getelementptr { i64, ptr }, ptr @watched, i64 %last
  %moved = load { i64, ptr }, ptr %last.at
  store { i64, ptr } %moved, ptr %at
  store i64 %last, ptr @count
  %interpreter = call ptr @PyInterpreterState_Get()
  %current = call ptr @_PyInterpreterState_GetEvalFrameFunc(ptr %interpreter)
  %is.on = icmp eq ptr %current, @evaluate
  %is.last = icmp eq i64 %last, 0
  %is.over = and i1 %is.on, %is.last
  br i1 %is.over, label %over, label %done
over:
  %previous = load ptr, ptr @previous
  call void @_PyInterpreterState_SetEvalFrameFunc(ptr %interpreter, ptr %previous)
  br label %done
done:
  ret void
}
"""
"""Where a thread is among the watched ones; one more, one less.  Frames are evaluated by `@evaluate` while there are any."""

_SWITCH_TEXT: Final = f"""
define i64 @{_SYMBOL}(i64 %what, ptr %object, ptr %table) nounwind {{
entry:
  %state = call ptr @PyThreadState_Get()
  %thread = ptrtoint ptr %state to i64
  %idle.at = call ptr @find(i64 %thread)
  %is.idle = icmp ne ptr %idle.at, null
  %count = load i64, ptr @count
  switch i64 %what, label %say [
    i64 {_SETUP}, label %setup
    i64 {_BEGIN}, label %begin
    i64 {_END}, label %end
    i64 {_FORKED}, label %forked
  ]
setup:
  store ptr %object, ptr @none
  store ptr %table, ptr @table
  br label %say
begin:
  %is.full = icmp eq i64 %count, {_THREADS}
  br i1 %is.full, label %full, label %free
full:
  ret i64 -1
free:
  call void @add(i64 %thread, ptr %object)
  br label %say
end:
  br i1 %is.idle, label %found, label %busy
busy:
  %asking = or i64 %thread, 1
  %asking.at = call ptr @find(i64 %asking)
  %is.asking = icmp ne ptr %asking.at, null
  br i1 %is.asking, label %found, label %say
found:
  %at = phi ptr [ %idle.at, %end ], [ %asking.at, %busy ]
  call void @remove(ptr %at)
  br label %say
forked:
  br i1 %is.idle, label %keep, label %drop
keep:
  %kept = load {{ i64, ptr }}, ptr %idle.at
  store {{ i64, ptr }} %kept, ptr @watched
  store i64 1, ptr @count
  br label %say
drop:
  %is.none = icmp eq i64 %count, 0
  br i1 %is.none, label %say, label %clear
clear:
  store i64 1, ptr @count
  call void @remove(ptr @watched)
  br label %say
say:
  %now = load i64, ptr @count
  ret i64 %now
}}
"""
"""Begins or ends to watch the thread that calls it, or drops all other threads; says how many are watched, or -1 where there are too many.
Each is one call of C code, so no signal handler comes in between."""

_ASK_TEXT: Final = f"""
define internal i1 @is_known(ptr %code) nounwind {{
entry:
  %address = ptrtoint ptr %code to i64
  %table = load ptr, ptr @table
  %first = lshr i64 %address, 4
  br label %probe
probe:
  %index = phi i64 [ %first, %entry ], [ %following, %differs ]
  %within = and i64 %index, {_SIZE - 1}
  %entry.at = getelementptr i64, ptr %table, i64 %within
  %found = load i64, ptr %entry.at
  %following = add i64 %index, 1
  %same = icmp eq i64 %found, %address
  br i1 %same, label %done, label %differs
differs:
  %empty = icmp eq i64 %found, 0
  br i1 %empty, label %done, label %probe
done:
  ret i1 %same
}}

define internal i32 @ask(ptr %at, ptr %code, ptr %globals) nounwind {{
  %arguments = alloca [3 x ptr]
  %type.at = alloca ptr
  %value.at = alloca ptr
  %traceback.at = alloca ptr
  call void @PyErr_Fetch(ptr %type.at, ptr %value.at, ptr %traceback.at)
  %type = load ptr, ptr %type.at
  %value = load ptr, ptr %value.at
  %traceback = load ptr, ptr %traceback.at
  %thread = load i64, ptr %at
  %asking = or i64 %thread, 1
  store i64 %asking, ptr %at
  %check.at = getelementptr {{ i64, ptr }}, ptr %at, i64 0, i32 1
  %check = load ptr, ptr %check.at
  call void @Py_IncRef(ptr %check)
  %first.at = getelementptr ptr, ptr %arguments, i64 1
  store ptr %code, ptr %first.at
  %second.at = getelementptr ptr, ptr %arguments, i64 2
  store ptr %globals, ptr %second.at
  %answer = call ptr @PyObject_Vectorcall(ptr %check, ptr %first.at, i64 2, ptr null)
  call void @Py_DecRef(ptr %check)
  %failed = icmp eq ptr %answer, null
  %now.at = call ptr @find(i64 %asking)
  %is.over = icmp eq ptr %now.at, null
  br i1 %is.over, label %asked, label %watched
watched:
  store i64 %thread, ptr %now.at
  br i1 %failed, label %no.more, label %asked
no.more:
  call void @remove(ptr %now.at)
  br label %asked
asked:
  br i1 %failed, label %raise, label %answered
raise:
  call void @Py_DecRef(ptr %type)
  call void @Py_DecRef(ptr %value)
  call void @Py_DecRef(ptr %traceback)
  ret i32 -1
answered:
  %said = call i32 @PyObject_IsTrue(ptr %answer)
  call void @Py_DecRef(ptr %answer)
  call void @PyErr_Restore(ptr %type, ptr %value, ptr %traceback)
  ret i32 %said
}}
"""
"""Whether code is known, and what the check says of code that is not: 1 where its frame is to be run without specialised instructions, -1
with an exception.  The check is called with no exception set, and may end the watch."""

_TOOL_OFFSET: Final = c_api.tool_offset() if c_api.supported() else None

_LOAD_CODE: Final = (
    f"""%reference = load i64, ptr %code.at
  %untagged = and i64 %reference, {~LAYOUT.frame_tag}
  %code = inttoptr i64 %untagged to ptr"""
    if LAYOUT.frame_tag
    else "%code = load ptr, ptr %code.at"
)

_EVALUATE_TEXT: Final = f"""
define internal ptr @evaluate(ptr %state, ptr %frame, i32 %throw) {{
entry:
  %previous = load ptr, ptr @previous
  %thread = ptrtoint ptr %state to i64
  %at = call ptr @find(i64 %thread)
  %is.watched = icmp ne ptr %at, null
  br i1 %is.watched, label %watched, label %go
watched:
  %tool.at = getelementptr i8, ptr %state, i64 {_TOOL_OFFSET or 0}
  %tools = load i32, ptr %tool.at
  %of.tool = icmp ne i32 %tools, 0
  %is.of.tool = and i1 %of.tool, {"false" if _TOOL_OFFSET is None else "true"}
  br i1 %is.of.tool, label %go, label %look
look:
  %code.at = getelementptr i8, ptr %frame, i64 {LAYOUT.frame_code}
  {_LOAD_CODE}
  %known = call i1 @is_known(ptr %code)
  br i1 %known, label %go, label %unknown
unknown:
  %globals.at = getelementptr i8, ptr %frame, i64 {LAYOUT.frame_globals}
  %globals = load ptr, ptr %globals.at
  %said = call i32 @ask(ptr %at, ptr %code, ptr %globals)
  switch i32 %said, label %go [ i32 -1, label %raise i32 1, label %unspecialised ]
go:
  %result = tail call ptr %previous(ptr %state, ptr %frame, i32 %throw)
  ret ptr %result
raise:
  %none = tail call ptr %previous(ptr %state, ptr %frame, i32 1)
  ret ptr %none
unspecialised:
  %made = tail call ptr @evaluate_unspecialised(ptr %previous, ptr %state, ptr %frame, i32 %throw)
  ret ptr %made
}}
"""
"""Evaluates a frame.  What the check raises is raised in the frame, which is how it is given back."""


def _unspecialised_text() -> str:
    """A frame runs without specialised instructions while there is a profile function, be it one that does nothing and is called None."""
    if not LAYOUT.hides_frames:
        return """
define internal ptr @evaluate_unspecialised(ptr %previous, ptr %state, ptr %frame, i32 %throw) {
  %result = tail call ptr %previous(ptr %state, ptr %frame, i32 %throw)
  ret ptr %result
}
"""
    return f"""
define internal i32 @ignore(ptr %self, ptr %frame, i32 %what, ptr %value) nounwind {{
  ret i32 0
}}

define internal ptr @evaluate_unspecialised(ptr %previous, ptr %state, ptr %frame, i32 %throw) {{
  %profiler.at = getelementptr i8, ptr %state, i64 {c_api.profiler_offset()}
  %before = load ptr, ptr %profiler.at
  %is.free = icmp eq ptr %before, null
  br i1 %is.free, label %set, label %leave
leave:
  %as.ever = tail call ptr %previous(ptr %state, ptr %frame, i32 %throw)
  ret ptr %as.ever
set:
  %none = load ptr, ptr @none
  call void @PyEval_SetProfile(ptr @ignore, ptr %none)
  %result = call ptr %previous(ptr %state, ptr %frame, i32 %throw)
  %after = load ptr, ptr %profiler.at
  %is.own = icmp eq ptr %after, %none
  br i1 %is.own, label %reset, label %done
reset:
  call void @PyEval_SetProfile(ptr null, ptr null)
  br label %done
done:
  ret ptr %result
}}
"""


def allow(code: CodeType, lasting: bool) -> None:
    """Frames of this code need no check; if not `lasting`, until `forget` is called."""
    address = id(code)
    if address in _lasting or address in _passing:
        return
    (_lasting if lasting else _passing)[address] = code
    if 2 * (len(_lasting) + len(_passing)) <= _SIZE:  # later ones are asked about at each call
        if lasting:
            _enter(_lasting_table, address)
        _changed.append(_enter(_table, address))


def is_allowed(code: CodeType) -> bool:
    """Whether frames of this code need no check.  Those that the table has no room for are asked about all the same: so who checks asks
    here first."""
    return id(code) in _lasting or id(code) in _passing


def _enter(table: np.ndarray[Any, Any], address: int) -> int:
    """Put an address into a table; its index there."""
    index = (address >> 4) % _SIZE
    while table[index]:
        index = (index + 1) % _SIZE
    table[index] = address
    return index


def forget() -> None:
    """What was allowed for a while is to be checked again."""
    indices = _changed.copy()
    _table[indices] = _lasting_table[indices]
    del _changed[: len(indices)]
    _passing.clear()


def _machine_code() -> Callable[..., int] | None:
    """The function of `_SWITCH_TEXT`, which is called with what to do, a check or None, and 0; None where there is none."""
    return None if unsupported() else _linked()


@cache
def unsupported() -> str:
    """What speaks against machine code that evaluates frames; empty if nothing does."""
    if c_api.unsupported():
        return c_api.unsupported()
    if wrong := failed_checks({"code and globals": _frames_are_known}):
        return f"frames of this build: {wrong}"
    try:
        watched = _is_tool() or _watched_by(_linked())
    except RecursionError:
        raise
    except RuntimeError as error:  # no such field of a thread's state
        if is_foreign(error):
            raise
        return f"threads of this build: {error}"
    return "" if watched else "frames of this build: the function that evaluates them is not called for all"


def _frames_are_known(peek: CheckedMemory) -> bool:
    """Whether a frame has its code and globals where they are expected."""
    frame = sys._getframe()
    evaluated = peek.word(id(frame) + LAYOUT.frame)
    code = peek.word(evaluated + LAYOUT.frame_code) & ~LAYOUT.frame_tag
    return code == id(frame.f_code) and peek.word(evaluated + LAYOUT.frame_globals) == id(frame.f_globals)


def _is_tool() -> bool:
    """Whether a trace or profile function is what runs now: frames are none of the program's then, and nobody is asked about them."""
    return _TOOL_OFFSET is not None and c_api.number_of_thread(_TOOL_OFFSET) != 0


def _watched_by(function: Callable[..., int]) -> bool:
    """Whether machine code asks about the frame of a function that nobody knows, once, and the function does what it does."""
    asked: list[tuple[Any, Any]] = []

    def check(code: CodeType, names: dict[str, Any]) -> bool:
        asked.append((code, names))
        return False

    def probe(x: int) -> int:
        return x + 1

    count = function(_COUNT, None, 0)
    function(_BEGIN, check, 0)
    try:
        results = [probe(1), probe(2)]
    finally:
        function(_END, None, 0)
    seen = [names is globals() for code, names in asked if code is probe.__code__]
    return results == [2, 3] and seen == [True, True] and function(_COUNT, None, 0) == count


@cache
def _linked() -> Callable[..., int]:
    parts = (_DATA, _THREADS_TEXT, _SWITCH_TEXT, _ASK_TEXT, _EVALUATE_TEXT, _unspecialised_text())
    address, owner = link("\n".join((*map(c_api.declaration, _CALLED), *parts)), _SYMBOL)
    function = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.py_object, ctypes.c_void_p)(address)
    function.owner = owner  # type: ignore[attr-defined]
    function(_SETUP, None, _table.ctypes.data)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(function, _FORKED, None, 0))
    return function


def obstacle() -> Any:
    """The profile function because of which this thread cannot be watched; None where it can."""
    return sys.getprofile() if _TOOL_OFFSET is None or unsupported() else None


def watched_threads() -> int:
    """How many threads are watched by machine code."""
    function = _machine_code()
    return 0 if function is None else function(_COUNT, None, 0)


class CallWatch:
    """Asks `check` about frames of this thread: whether a frame of such code, with such globals, is to be run without specialised
    instructions.  What it raises is raised where the call was made, and it is asked no more.

    end: it is not asked any more; called in the thread of `begin`, any number of times."""

    __slots__ = ("_begin", "_check", "_profile", "end")

    def __init__(self, check: Check) -> None:
        function = None if _TOOL_OFFSET is None and sys.gettrace() is not None else _machine_code()
        self._check = check  # machine code does not hold it
        self._profile = None if function is not None else _profile_function(check)
        self._begin: Callable[[], object]
        self.end: Callable[[], object]
        if function is None:
            self._begin, self.end = partial(sys.setprofile, self._profile), self._end_profile
        else:
            self._begin, self.end = partial(function, _BEGIN, check, 0), partial(function, _END, None, 0)

    def begin(self) -> None:
        """From now on it is asked, in this thread.  Raises RuntimeError where 1,024 threads are watched already."""
        if self._begin() == -1:
            raise RuntimeError(f"{_THREADS} threads are watched, which is as many as can be: record fewer calls at the same time")

    def profiler(self) -> Any:
        """The profile function of this thread, if it has taken the place of the watch's own."""
        found = None if self._profile is None else sys.getprofile()
        return None if found is self._profile else found

    @covers_its_entry
    def _end_profile(self) -> None:
        try:
            sys.getprofile()
        finally:
            if sys.getprofile() is self._profile:
                sys.setprofile(None)


def _profile_function(check: Check) -> Callable[[FrameType, str, Any], None]:
    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and not is_allowed(frame.f_code):
            check(frame.f_code, frame.f_globals)

    return profile


allow(CallWatch._end_profile.__code__, lasting=True)
