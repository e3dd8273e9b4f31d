"""Calls of opaque code: C code, functions of the standard library, methods of objects that such code creates.

* *Functions of data* depend on their arguments alone.  With post-program values as arguments they are computed after the program.
* All other calls are *deferred*: each call of the entry makes them after the program, in the order of the run, with its own
  values.  The result may be returned, stored, passed to other deferred calls, and methods of it may be called.  Any other use
  stops the recording, because the result is not known before the program has run.

It is assumed that such code reads nothing but its arguments: numbers, texts, containers of them that the call has created, and
objects of C code.  So a call is not deferred if it might read or change more: if an argument is a function, a tensor, memory, a
container from outside or an object of user code; if it is a call of a lock; or inside a `try` or `with` block of user code,
which would have handled its error.  A call that may raise is not deferred either if tensors from outside are changed after it:
they would be changed although the call raises.
"""

from __future__ import annotations

import array
import base64
import binascii
import collections
import contextvars
import gc
import html
import json
import os
import os.path
import queue
import shlex
import shutil
import struct
import sys
import textwrap
import threading
import urllib.parse
import zlib
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.container_kinds import children
from tracejit.capture.defects import isolated_context
from tracejit.capture.handlers.base import CallHandler, Handlers
from tracejit.capture.handlers.effects import FunctionCall
from tracejit.capture.handlers.environment_reads import CONSTANTS, present
from tracejit.capture.handlers.post_program import PostProgramValue, is_deferred_call_result
from tracejit.capture.handlers.printing import FILES
from tracejit.capture.handlers.stand_ins import plain, plain_copy
from tracejit.capture.handlers.symbols import MethodOf, SymbolicNumber, concretise
from tracejit.capture.handlers.texts import OPEN_METHODS
from tracejit.capture.handlers.try_blocks import is_in_try_block
from tracejit.capture.policies import (
    C_CALLABLES,
    KEEPING_NAMES,
    LOCKS,
    PRIMITIVE_TYPES,
    bound_to,
    is_a,
    is_python_class,
    module_of,
)
from tracejit.replay.ir import Name
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["OutsideCallHandlers"]


_OF_DATA: frozenset[Any] = frozenset(  # functions of data
    present(json, "dumps", "loads")
    | present(struct, "pack", "unpack", "calcsize")
    | present(base64, "b64encode", "b64decode", "b32encode", "b16encode", "urlsafe_b64encode", "urlsafe_b64decode")
    | present(binascii, "hexlify", "unhexlify", "crc32", "b2a_hex", "a2b_hex")
    | present(zlib, "crc32", "adler32", "compress", "decompress")
    | present(textwrap, "dedent", "indent", "fill", "shorten", "wrap")
    | present(html, "escape", "unescape")
    | present(urllib.parse, "quote", "quote_plus", "unquote", "urlencode")
    | present(shlex, "quote", "split")
    | present(sys, "intern")
)
_NEVER_RAISING: frozenset[Any] = frozenset(
    present(json, "dumps")
    | present(base64, "b64encode", "b32encode", "b16encode", "urlsafe_b64encode")
    | present(binascii, "hexlify", "crc32", "b2a_hex")
    | present(zlib, "crc32", "adler32", "compress")
    | present(html, "escape", "unescape")
    | present(shlex, "quote")
)
"""Functions of data that raise for no numbers and texts of the same types."""
_HARMLESS_OPTIONS = frozenset({"indent", "sort_keys", "separators", "ensure_ascii", "quote", "altchars"})
"""Keywords with which they do not raise either."""
_KEEPING: frozenset[Any] = frozenset(present(queue.Queue, *KEEPING_NAMES))
_KEEPING_METHODS: dict[type, frozenset[str]] = {queue.SimpleQueue: KEEPING_NAMES}
"""Methods that store their arguments without looking at them: any object may be an argument."""
_WHOLE: frozenset[Any] = frozenset(
    present(json, "dump") | present(os, "makedirs", "removedirs") | present(shutil, "copy", "copy2", "copyfile", "move", "rmtree")
)
"""Functions written in Python that are deferred as one call, like C code."""
_WITH_HANDLERS: tuple[type, ...] = (*LOCKS, contextvars.ContextVar, contextvars.Context)
"""Types of objects that other handlers treat."""
_REFERRING = frozenset(
    {"builtins", "collections", "types", "itertools", "functools", "operator", "weakref", "numpy", "mappingproxy"}
)
"""Modules whose objects refer to objects of user code."""
_QUIET: frozenset[Any] = frozenset({json.dump, gc.collect})
"""Functions that raise only for causes outside, such as a full disk."""
_INNER = frozenset(
    {"gc", "sys", "_thread", "_signal", "faulthandler", "_tracemalloc", "atexit", "_ctypes", "_weakref", "_pickle"}
)
"""Modules whose functions inspect the interpreter, which shows that a call is recorded, change it, or depend on identities."""
_HARMLESS = frozenset(present(gc, "collect") | present(threading, "Lock", "RLock") | present(sys, "getallocatedblocks"))
"""Functions of these modules that may be deferred all the same."""


def _writable(value: Any) -> bool:
    """Whether `value` has the buffer protocol and its memory may be written to."""
    try:
        with memoryview(value) as view:
            return not view.readonly
    except TypeError:
        return False


def _is_endless(value: Any, around: tuple[int, ...] = ()) -> bool:
    """Whether a container contains itself.  around: ids of the containers that `value` is in."""
    if type(value) not in (list, tuple, dict, collections.OrderedDict):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return id(value) in around or any(_is_endless(part, (*around, id(value))) for part in parts)


class OutsideCallHandlers(Handlers):
    """Computes functions of data and defers other opaque calls.

    passed_containers: containers of this run that were arguments of deferred calls, each with its items then.  passed_arrays: arrays that
    were, each with the length of the graph then.  reading_calls: (length of the graph, code, detail of the reason) for each deferred
    call that reads tensors; raising_calls: the same for each that may raise."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.passed_containers: list[tuple[Any, list[Any]]] = journal.list()
        self.passed_arrays: list[tuple[int, SymbolicNumber]] = journal.list()
        self.reading_calls: list[tuple[int, str, str]] = journal.list()
        self.raising_calls: list[tuple[int, str, str]] = journal.list()

    # -- dispatch
    def standard_call(self, function: Any) -> CallHandler | None:
        """The handler of a function of the standard library that is a function of data or may be deferred; else None."""
        return self.in_table(_HANDLERS, function)

    def outside_call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], code: str, detail: str) -> Any:
        """The result of a call of opaque code.  code, detail: the reason to stop with if it cannot be deferred."""
        recorder = self.recorder
        if _only_reads(function):
            arguments = tuple(
                [recorder.mark_created([*recorder.iteration.iterate(v)]) if self._is_own_iterator(v) else v for v in arguments]
            )
        keeps = getattr(function, "__name__", "") in _KEEPING_METHODS.get(type(bound_to(function)), ())
        if not self._may_be_deferred(function, arguments, keywords, keeps):
            recorder.stop(code, detail)
            recorder.interpreter.forget()  # the code may have created weak references
            return self._call_with_plain_values(function, arguments, keywords)
        return self._defer(function, arguments, keywords, code, detail)

    def _call_with_plain_values(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of a call with plain values, guarded, in place of stand-ins."""
        arguments, keywords = self.recorder.contents.concretise_arguments(arguments, keywords)
        return self.recorder.perform(lambda: function(*arguments, **keywords))

    def _is_own_iterator(self, value: Any) -> bool:
        """Whether `value` is a generator, map, filter or zip of this run."""
        return is_a(value, (GeneratorType, map, filter, zip)) and not self.recorder.is_outside(value)

    # -- functions of data
    def _of_data(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """json.dumps(metrics), struct.pack("<f", loss) ..."""
        recorder = self.recorder
        if any(map(_is_endless, (*arguments, *keywords.values()))):
            return self.outside_call(function, arguments, keywords, "unknown_call", f"{function.__name__}()")
        arguments, keywords = tuple(map(self._as_data, arguments)), {k: self._as_data(v) for k, v in keywords.items()}
        parts: list[Any] = []
        expression = recorder.environment_reads.data_arguments(recorder.constant(function), arguments, keywords, parts)
        if expression is None:
            if type(function) is FunctionType:
                return recorder.calls.instrumented(function, arguments, keywords)
            return self.outside_call(function, arguments, keywords, "unknown_call", function.__name__ + "()")
        values = tuple(map(plain_copy, arguments)), {k: plain_copy(v) for k, v in keywords.items()}
        quiet = (
            function in _NEVER_RAISING and keywords.keys() <= _HARMLESS_OPTIONS and not self._is_open_in(arguments[1:], keywords)
        )
        if parts and not quiet and self._may_be_deferred(None, arguments, keywords, False):
            return self._defer(function, arguments, keywords)
        if not quiet or any(map(is_deferred_call_result, parts)) or not recorder.extracted_numbers.are_short(parts):
            for part in parts:
                concretise(part)
            parts = []
        result = recorder.environment_reads.computed_now(lambda: function(*values[0], **values[1]), parts)
        if recorder.stopped or not parts:
            return recorder.mark_created(result)
        return recorder.extracted_numbers.define_post_program(PostProgramValue(expression, tuple(parts), max_bits=63), result)

    def _is_open_in(self, options: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Whether there are stand-ins among options, so that later calls may have other ones."""
        parts: list[Any] = []
        self.recorder.environment_reads.data_arguments(Name("type"), options, keywords, parts)
        return bool(parts)

    def _as_data(self, value: Any) -> Any:
        """`value`, a container from outside copied to one of this run, with symbolic numbers in it; other values unchanged."""
        recorder = self.recorder
        if not self._has_outside(value):
            return value
        if type(value) is dict:
            recorder.contents.read_elements(value)
            return recorder.mark_created(
                {k: self._as_data(recorder.effects.stored.get((id(value), k), v)) for k, v in value.items()}
            )
        return recorder.mark_created(type(value)([self._as_data(v) for v in recorder.contents.elements(value)]))

    def _has_outside(self, value: Any) -> bool:
        """Whether `value` is a container from outside, or such a container is in it."""
        if type(value) not in (list, tuple, dict):
            return False
        return self.recorder.is_outside(value) or any(map(self._has_outside, value.values() if type(value) is dict else value))

    # -- deferred calls
    def _may_be_deferred(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], keeps: bool) -> bool:
        """Whether a call may be made after the program without a visible difference.  function: None if it needs no check.
        keeps: whether it stores its arguments without looking at them."""
        owner = None if function is None else bound_to(function)
        values = [*arguments, *keywords.values()]
        if (
            self.recorder.stopped
            or any(map(_is_endless, values))
            or (owner is not None and not self._is_isolated(owner))
            or is_a(function, _UNBOUND)
        ):
            return False
        if getattr(function, "__module__", None) in _INNER and function not in _HARMLESS:
            return False
        if type(function) is not BuiltinFunctionType and function is not None and not self._is_known_callable(function):
            return False
        if not (keeps or all(map(self._may_be_argument, values))):
            return False
        return not is_in_try_block(self.recorder.effects.handles_in_blocks)

    def _is_known_callable(self, function: Any) -> bool:
        """Whether a class or another callable of C code is from outside and refers to no object of user code."""
        cls = function if is_a(function, type) else type(function)
        refers = module_of(type(function)).partition(".")[0] in _REFERRING and not is_a(function, (type, type(np.save)))
        return self.recorder.is_outside(function) and not is_python_class(cls) and not refers

    def _is_isolated(self, value: Any) -> bool:
        """Whether `value` is an object of C code from outside that refers to no object of user code."""
        cls: Any = type(value)
        is_opaque = (
            module_of(cls).partition(".")[0] not in _REFERRING
            and not is_python_class(cls)
            and not is_a(value, (*_WITH_HANDLERS, Tensor))
        )
        refers = callable(value) or (hasattr(cls, "__next__") and not is_a(value, FILES)) or _writable(value)
        return self.recorder.is_outside(value) and is_opaque and not refers

    def _may_be_argument(self, value: Any) -> bool:
        """Whether a deferred call may get `value`, which the call of the entry then has in the same state."""
        cls = type(value)
        if (
            cls is SymbolicNumber
            or cls in PRIMITIVE_TYPES
            or is_a(value, CONSTANTS)
            or id(value) in self.recorder.arrays.epilogue_arrays
        ):
            return True
        if cls in (list, tuple, dict, set, frozenset) and not self.recorder.is_outside(value):
            return all(map(self._may_be_argument, children(value)))
        return self._is_isolated(value)

    def _queue_method(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Queue.put ..., which store their argument."""
        recorder = self.recorder
        if (
            not recorder.is_outside(arguments[0])
            or type(arguments[0]) is not queue.Queue
            or is_in_try_block(recorder.effects.handles_in_blocks)
        ):
            return recorder.calls.instrumented(function, arguments, keywords)
        return self._defer(function, arguments, keywords)

    def _as_a_whole(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """json.dump, os.makedirs ...: deferred as one call, or instrumented if that is not possible."""
        if any(map(_is_endless, (*arguments, *keywords.values()))):
            return self.outside_call(function, arguments, keywords, "impure_call", f"{function.__name__}()")
        arguments, keywords = tuple(map(self._as_data, arguments)), {k: self._as_data(v) for k, v in keywords.items()}
        if not self._may_be_deferred(None, arguments, keywords, False):
            return self.recorder.calls.instrumented(function, arguments, keywords)
        return self._defer(function, arguments, keywords)

    def saves(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """tracejit.save(), deferred.  It reads tensors, so the recording stops if the call changes them afterwards."""
        recorder = self.recorder
        values = (*arguments, *keywords.values())
        if (
            any(map(_is_endless, values))
            or not all(map(self._may_be_saved, values))
            or is_in_try_block(recorder.effects.handles_in_blocks)
        ):
            recorder.stop("impure_call", f"{function.__name__}() of what cannot be made again")
        now = tuple(map(plain_copy, arguments)), {k: plain_copy(v) for k, v in keywords.items()}
        recorder.perform(lambda: recorder.unwatched(lambda: function(*now[0], **now[1])))
        if not recorder.stopped:
            self.reading_calls.append((len(recorder.interpreter.nodes), "impure_call", f"{function.__name__}()"))
            self.passed_containers += [entry for value in values for entry in self._contents(value)]
            recorder.effects.note_call(FunctionCall(recorder.mark_fixed(function), arguments, keywords), function.__name__)
        return None

    def _may_be_saved(self, value: Any) -> bool:
        if type(value) in (list, tuple, dict, collections.OrderedDict) and not self.recorder.is_outside(value):
            return all(map(self._may_be_saved, children(value)))
        return is_a(value, Tensor) or (self._may_be_argument(value) and not is_a(value, np.ndarray))

    def _defer(
        self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], code: str = "unknown_call", detail: str = ""
    ) -> Any:
        """Call `function` now, and let each call of the entry call it after the program.  Returns a stand-in for the result.

        code, detail: the reason with which the recording stops if the result is used earlier."""
        recorder = self.recorder
        now = getattr(plain(function.owner), function.name) if type(function) is MethodOf else function
        name = getattr(now, "__qualname__", type(now).__qualname__)
        detail = detail or f"{name}()"
        if _only_reads(now):  # then copies of containers make no difference
            arguments, keywords = tuple(map(self._copy_of, arguments)), {k: self._copy_of(v) for k, v in keywords.items()}
        before = [entry for value in (*arguments, *keywords.values()) for entry in self._contents(value)]
        plain_arguments = tuple(map(plain_copy, arguments)), {k: plain_copy(v) for k, v in keywords.items()}
        if not _only_reads(now) and any(
            type(new) in (list, dict, set) and new is not old
            for new, old in zip(
                (*plain_arguments[0], *plain_arguments[1].values()), (*arguments, *keywords.values()), strict=True
            )
        ):
            # Both the opaque code and user code may keep the container, so it must not get a copy.
            recorder.stop(code, f"{detail}, given a container with numbers of the call")
            return self._call_with_plain_values(now, arguments, keywords)
        try:
            # Finalizers may run at any time, so they need not be watched.
            call = recorder.unwatched if function is gc.collect else recorder.containers.native
            result = call(lambda: now(*plain_arguments[0], **plain_arguments[1]))
        except Exception:
            recorder.stop("unknown_call", f"{name}(), which raised")
            raise
        if recorder.stopped:
            return result
        self.passed_containers += before
        arrays = [
            recorder.arrays.epilogue_arrays[id(v)]
            for v in (*arguments, *keywords.values())
            if id(v) in recorder.arrays.epilogue_arrays
        ]
        self.passed_arrays += [(len(recorder.interpreter.nodes), array) for array in arrays]
        if type(function) is not MethodOf and bound_to(function) is None:
            recorder.mark_fixed(function)
        if not _is_quiet(now, arguments, keywords):
            self.raising_calls.append((len(recorder.interpreter.nodes), code, detail))
        owner = bound_to(now) if type(now) is not FunctionType else arguments[0] if function in _KEEPING else None
        if owner is not None:
            recorder.effects.changed[id(owner)] = owner
        stand_in = (
            None
            if result is None and _returns_none(now)
            else recorder.extracted_numbers.stand_in_for_result(result, code, detail)
        )
        recorder.effects.note_call(FunctionCall(function, arguments, keywords, result=stand_in), name)
        return stand_in

    def _copy_of(self, value: Any) -> Any:
        """A deep copy of a container of this run, which later changes do not reach; other values unchanged."""
        recorder = self.recorder
        if type(value) not in (list, tuple, dict, set, frozenset) or recorder.is_outside(value):
            return value
        if type(value) is dict:
            items = [(self._copy_of(k), self._copy_of(recorder.effects.stored.get((id(value), k), v))) for k, v in value.items()]
            return recorder.mark_created(dict(items))
        return recorder.mark_created(type(value)(map(self._copy_of, value)))

    def _contents(self, value: Any) -> list[tuple[Any, list[Any]]]:
        """The containers of this run in `value`, itself included, each with its items."""
        if type(value) not in (list, tuple, dict, set, collections.OrderedDict) or self.recorder.is_outside(value):
            return []
        parts = self._items_of(value)
        return [(value, parts), *[entry for part in parts for entry in self._contents(part)]]

    def _items_of(self, value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [part for k, v in value.items() for part in (k, self.recorder.effects.stored.get((id(value), k), v))]
        return list(value)

    def check_given(self) -> None:
        """Stop the recording if a container has changed since it was an argument of a deferred call."""
        for container, before in self.passed_containers:
            now = self._items_of(container)
            if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
                self.recorder.stop(
                    "read_after_change", f"a {type(container).__name__} that was handed on is changed later on, and"
                )

    # -- results of deferred calls
    def method_of(self, method: MethodOf, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of a method of a post-program text, a moment or the result of a deferred call."""
        recorder = self.recorder
        owner, name = method.owner, method.name
        if type(plain(owner)) is str and name in OPEN_METHODS:
            return recorder.builtin_calls.call_text_method(owner, name, arguments, keywords)
        if recorder.environment_reads.is_moment(owner):
            value = recorder.environment_reads.moment_method(owner, name, arguments, keywords)
            if value is not None:
                return value
        elif self._may_be_deferred(None, arguments, keywords, False):
            return self._defer(method, arguments, keywords, owner._post_program.stop_reason[0])
        method_now = getattr(concretise(owner), name)
        return self._call_with_plain_values(method_now, arguments, keywords)

    def post_program_attribute(self, owner: Any, name: str) -> Any:
        """The attribute `name` of a post-program value.  For methods that have a handler, a `MethodOf`."""
        if self.recorder.environment_reads.is_moment(owner):
            return self.recorder.environment_reads.moment_attribute(owner, name)
        value = plain(owner)
        if type(value) is str and name in OPEN_METHODS:
            return MethodOf(owner, name)
        if type(value) is int and name in ("numerator", "real"):
            return owner
        if type(value) is int and name in ("denominator", "imag"):
            return getattr(value, name)  # of any integer
        if not is_deferred_call_result(owner) or type(value) in PRIMITIVE_TYPES or is_python_class(type(value)):
            return getattr(concretise(owner), name)
        if type(getattr(value, name, None)) not in C_CALLABLES:
            return getattr(concretise(owner), name)
        return MethodOf(owner, name)

    def entered(self, manager: Any) -> Any:
        """The context manager to enter in place of the result of a deferred call, such as a file; None for other objects."""
        is_manager = (
            is_deferred_call_result(manager) and not is_python_class(type(plain(manager))) and hasattr(plain(manager), "__exit__")
        )
        return _EnteredResult(self.recorder, manager) if is_manager else None


@isolated_context
class _EnteredResult:
    """Enters and leaves the result of a deferred call, such as a file, by deferred calls of its methods."""

    __slots__ = ("_manager", "_recorder")

    def __init__(self, recorder: Recorder, manager: Any) -> None:
        self._recorder = recorder
        self._manager = manager

    @property
    def manager(self) -> Any:
        return plain(self._manager)

    def __enter__(self) -> Any:
        return self._recorder.outside_calls.method_of(MethodOf(self._manager, "__enter__"), (), {})

    def __exit__(self, *exception: Any) -> bool:
        recorder, leave = self._recorder, MethodOf(self._manager, "__exit__")
        recorder.note_caught(exception[1])
        if exception[1] is not None:  # the deferred `__exit__` of a later call would get no exception
            recorder.stop("raised", type(exception[1]).__name__)
        if recorder.stopped:
            return bool(leave(*exception))
        recorder.outside_calls.method_of(leave, exception, {})
        return False


_UNBOUND: tuple[type, ...] = tuple(kind for kind in C_CALLABLES if kind is not BuiltinFunctionType)
"""Types of methods of C code that get their object as an argument."""


def _returns_none(function: Any) -> bool:
    """Whether a function always returns None."""
    keeps = getattr(function, "__name__", "") in _KEEPING_METHODS.get(type(bound_to(function)), ())
    return keeps or (not _is_unhashable(function) and function in (_KEEPING | {json.dump, os.makedirs}))


def _only_reads(function: Any) -> bool:
    """Whether a function reads its arguments and keeps no reference to them."""
    quiet = module_of(type(bound_to(function))).partition(".")[0] in ("_io", "_csv")
    return quiet or (not _is_unhashable(function) and (function in _WHOLE or function is array.array))


def _is_quiet(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether a call raises only for causes outside, such as a full disk."""
    if module_of(type(bound_to(function))).partition(".")[0] in ("_io", "_csv"):
        return True
    is_put = not keywords and (
        (function == queue.Queue.put and len(arguments) == 2) or is_a(bound_to(function), queue.SimpleQueue)
    )
    return is_put or (not _is_unhashable(function) and function in _QUIET)


def _is_unhashable(function: Any) -> bool:
    return type(function).__hash__ is None


_HANDLERS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_OF_DATA, OutsideCallHandlers._of_data),
    **dict.fromkeys(_KEEPING, OutsideCallHandlers._queue_method),
    **dict.fromkeys(_WHOLE, OutsideCallHandlers._as_a_whole),
}
