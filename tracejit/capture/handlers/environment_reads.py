"""Handlers of functions that read the environment and change nothing: the process, the file system, dates and times.

Each call reads properties of the process and the file system before the program; they are guarded, or become numbers of the
prologue.  Functions with another result each time, `datetime.now()` or `uuid4()`, are handled as clocks are
(extracted_numbers.py): an entry calls them before the program if the result decides a branch, else after it.
"""

from __future__ import annotations

import datetime
import operator
import os
import os.path
import platform
import secrets
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tracejit.capture.handlers.attempts import attempt
from tracejit.capture.handlers.base import CallHandler, Handlers
from tracejit.capture.handlers.effects import FunctionCall
from tracejit.capture.handlers.post_program import PostProgramValue, is_post_program
from tracejit.capture.handlers.stand_ins import plain, plain_copy
from tracejit.capture.handlers.symbols import MethodOf, SymbolicNumber, concretise
from tracejit.capture.policies import PRIMITIVE_TYPES, is_a
from tracejit.core.dtypes import DType
from tracejit.replay.ir import Constant, Expr, tuple_of

__all__ = ["CONSTANTS", "EnvironmentReadHandlers", "present"]


def present(module: Any, *names: str) -> set[Any]:
    """The attributes `names` of a module; those that this version or platform does not have are left out."""
    return {getattr(module, name) for name in names if hasattr(module, name)}


_OF_PROCESS: frozenset[Any] = frozenset(
    present(os, "getpid", "getppid", "cpu_count", "process_cpu_count", "getlogin", "getuid", "geteuid", "getgid")
    | present(threading, "get_ident", "get_native_id", "active_count", "current_thread", "main_thread")
    | present(platform, "node", "system", "machine", "platform", "python_version", "processor", "release", "version")
    | present(sys, "getrecursionlimit", "getdefaultencoding", "getfilesystemencoding", "getswitchinterval")
    | present(socket, "gethostname")
)
"""Functions whose results no effect of the call changes (files that are written, texts that are printed)."""
_OF_FILES: frozenset[Any] = frozenset(
    present(os, "access", "listdir", "getcwd")
    | present(os.path, "exists", "lexists", "isfile", "isdir", "islink", "ismount", "getsize", "getmtime", "getatime", "getctime")
)
"""Functions whose results effects of the call may change."""
_VOLATILE: frozenset[Any] = frozenset(
    present(time, "strftime", "ctime", "asctime", "localtime", "gmtime")
    | present(datetime.datetime, "now", "utcnow", "today")
    | present(datetime.date, "today")
    | present(uuid, "uuid1", "uuid4")
    | present(secrets, "token_hex", "token_bytes", "token_urlsafe")
    | present(os, "urandom")
)
"""Functions that have another result each time."""
_MOMENTS: tuple[type, ...] = (datetime.date, datetime.time, datetime.timedelta, time.struct_time, uuid.UUID)
"""Types of moments, results of `_VOLATILE`: they are immutable, and their methods and operators depend on nothing else."""
_CALM_METHODS = frozenset(
    {
        "isoformat", "strftime", "timestamp", "date", "time", "timetz", "weekday", "isoweekday", "isocalendar", "total_seconds",
        "ctime", "timetuple", "utctimetuple", "toordinal", "utcoffset", "tzname", "dst",
    }
)  # fmt: skip
"""Methods of moments that never raise."""
_CALM_OPERATORS = frozenset(
    {operator.sub, operator.add, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne}
)
"""Operators that do not raise for any moments that occur in practice, given that they do not raise for some of the same types."""
CONSTANTS: tuple[type, ...] = (type, ModuleType, np.dtype, np.generic, DType, *_MOMENTS)
"""Types of values that are constants of an entry."""


class EnvironmentReadHandlers(Handlers):
    """Handlers of functions that read the environment; expressions of numbers, texts and containers of them."""

    def data_arguments(self, called: Expr, arguments: tuple[Any, ...], keywords: dict[str, Any], parts: list[Any]) -> Expr | None:
        """The expression of a call of `called` with these arguments; None if one of them is no data, see `_data`.  The symbolic
        numbers and texts in them are appended to `parts`."""
        positional = [self._data(v, parts) for v in arguments]
        named = {k: self._data(v, parts) for k, v in keywords.items()}
        return None if None in (*positional, *named.values()) else called.call(*positional, **named)

    def _data(self, value: Any, parts: list[Any]) -> Expr | None:
        """The expression of a plain value, a constant, or a list, tuple or dictionary of such that this run made; else None."""
        recorder = self.recorder
        cls = type(value)
        if cls is SymbolicNumber:
            parts.append(value)
            return value._name
        if cls in (int, float, str):
            return Constant(value) if cls is str else recorder.number_expression(value)
        if cls in PRIMITIVE_TYPES or is_a(value, CONSTANTS) or cls is datetime.timezone:
            return recorder.constant(value)
        if cls not in (list, tuple, dict) or recorder.is_outside(value):
            return None
        if cls is dict:
            value = [(k, recorder.effects.stored.get((id(value), k), v)) for k, v in value.items()]
        expressions = [self._data(v, parts) for v in value]
        if None in expressions:
            return None
        elements = tuple_of(*expressions)
        return elements if cls is tuple else recorder.constant(cls).call(elements)

    def computed_now(self, compute: Callable[[], Any], parts: Sequence[Any]) -> Any:
        """The result of `compute`, which depends on the symbolic numbers `parts`.  If it raises, these are guarded by their
        values, since the program may handle the error."""
        try:
            return self.recorder.perform(lambda: self.recorder.unwatched(compute))
        except Exception:
            for part in parts:
                concretise(part)
            raise

    # -- reads
    def _read_process(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A function that reads a property of the process: `os.getpid()`."""
        recorder = self.recorder
        values = tuple(map(concretise, arguments))
        if keywords or not all(type(v) in PRIMITIVE_TYPES for v in values):
            return recorder.outside_calls.outside_call(function, arguments, keywords, "impure_call", f"{function.__name__}()")
        try:
            result = recorder.perform(lambda: recorder.unwatched(lambda: function(*values)))
        except Exception:  # the program may handle it
            recorder.stop("impure_call", f"{function.__name__}(), which has raised,")
            raise
        if recorder.stopped:
            return result
        expression = recorder.constant(attempt).call(recorder.constant(function), *values)
        return recorder.read(result, expression, called=f"{function.__name__}()", symbolic=True)

    def _read_files(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A function that reads the file system: `os.path.exists(path)`.  It is deferred after other deferred calls."""
        if any(type(effect) is FunctionCall for effect in self.recorder.effects.in_order):
            return self.recorder.outside_calls.outside_call(
                function, arguments, keywords, "impure_call", f"{function.__name__}() after other calls"
            )
        return self._read_process(function, arguments, keywords)

    def _read_volatile(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A function that has another result each time: `datetime.now()`, `time.strftime("%H:%M")`, `uuid4()`."""
        recorder = self.recorder
        arguments, keywords = recorder.contents.concretise_arguments(arguments, keywords)
        call = self.data_arguments(recorder.constant(function), arguments, keywords, [])
        result = recorder.perform(lambda: recorder.unwatched(lambda: function(*arguments, **keywords)))
        if recorder.stopped:
            return result
        if call is None:
            recorder.stop("impure_call", f"{function.__name__}() of such arguments")
            return result
        definition = PostProgramValue(call, (), max_bits=63, clock_after=recorder.effects.last_call())
        definition.deferred = frozenset([definition])
        return recorder.extracted_numbers.define_post_program(definition, result)

    # -- uses of moments
    def is_moment(self, value: Any) -> bool:
        """Whether `value` is a post-program date, time, time difference or UUID."""
        return is_post_program(value) and is_a(plain(value), _MOMENTS)

    def moment_attribute(self, owner: Any, name: str) -> Any:
        """The attribute `name` of a moment."""
        value = self.recorder.unwatched(lambda: getattr(plain(owner), name))  # which raises Python's error if it has none
        if callable(value):
            return MethodOf(owner, name)
        return self.recorder.extracted_numbers.define_post_program(
            PostProgramValue(owner._name.get(name), (owner,), max_bits=63), value
        )

    def moment_binary(self, left: Any, right: Any, compute: Callable[[Any, Any], Any]) -> Any:
        """The operator `compute` between a moment and another value.  If it may raise, both become plain values, guarded."""
        parts: list[Any] = []
        operands = self._data(left, parts), self._data(right, parts)
        value = self.computed_now(lambda: compute(plain(left), plain(right)), (left, right))
        calm = compute in _CALM_OPERATORS and all(is_a(plain(v), _MOMENTS) for v in (left, right))
        if not calm or None in operands or type(value) not in (*PRIMITIVE_TYPES, *_MOMENTS, datetime.datetime):
            concretise(left), concretise(right)
            return value
        return self.recorder.extracted_numbers.define_post_program(
            PostProgramValue(self.recorder.constant(compute).call(*operands), tuple(parts), max_bits=63), value
        )

    def moment_method(self, owner: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of a method of a moment; None if the method may raise, or has other post-program values as arguments."""
        parts: list[Any] = [owner]
        call = self.data_arguments(owner._name.get(name), arguments, keywords, parts)
        if call is None or len(parts) > 1 or name not in _CALM_METHODS:
            return None
        values = tuple(map(plain_copy, arguments)), {k: plain_copy(v) for k, v in keywords.items()}
        value = self.computed_now(lambda: getattr(plain(owner), name)(*values[0], **values[1]), parts)
        return self.recorder.extracted_numbers.define_post_program(PostProgramValue(call, tuple(parts), max_bits=63), value)

    def standard_call(self, function: Any) -> CallHandler | None:
        """The handler of a function that reads the environment; None for others."""
        return self.in_table(_HANDLERS, function)


_HANDLERS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_OF_PROCESS, EnvironmentReadHandlers._read_process),
    **dict.fromkeys(_OF_FILES, EnvironmentReadHandlers._read_files),
    **dict.fromkeys(_VOLATILE, EnvironmentReadHandlers._read_volatile),
}
