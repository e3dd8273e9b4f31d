"""Calls of which nothing is known but what they are given: C code, functions of the standard library, objects that such code makes.

* *Functions of data* depend on what they are given alone.  Of what each call computes for itself they are computed after the program.
* All others are *put off*: made for real in each call, after the program, in the order of the run, with that call's values.  What they
  answer may be returned, stored and handed to other calls of this kind, methods of it may be called; whatever else asks for it stops the
  recording, since nobody knows it before the program has run.

What such code looks at is taken to be what it is given: numbers, texts, containers of them that the call has made, and objects of C code.
Not put off is what may see more or do more: code that is given functions, tensors, memory, containers from outside or objects of the
program; locks; and calls around which the program handles exceptions, since then it would handle what they raise.  Where one of them may
raise, tensors from outside that are changed after it would be changed all the same: then it is not put off either.
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

from tracejit.capture.defects import guarded_context
from tracejit.capture.handlers.base import Handler, Handlers
from tracejit.capture.handlers.effects import FunctionCall
from tracejit.capture.handlers.environment_reads import CONSTANTS, present
from tracejit.capture.handlers.post_program import PostProgramValue, is_deferred_call_result
from tracejit.capture.handlers.printing import FILES
from tracejit.capture.handlers.stand_ins import plain, plain_copy
from tracejit.capture.handlers.symbols import MethodOf, SymbolicNumber, concrete
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


_OF_DATA: frozenset[Any] = frozenset(
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
"""Those of them that never raise for other numbers and texts."""
_HARMLESS_OPTIONS = frozenset({"indent", "sort_keys", "separators", "ensure_ascii", "quote", "altchars"})
_KEEPING: frozenset[Any] = frozenset(present(queue.Queue, *KEEPING_NAMES))
_KEEPING_METHODS: dict[type, frozenset[str]] = {queue.SimpleQueue: KEEPING_NAMES}
"""What looks at nothing that it is given, and keeps it: it may be anything."""
_WHOLE: frozenset[Any] = frozenset(
    present(json, "dump") | present(os, "makedirs", "removedirs") | present(shutil, "copy", "copy2", "copyfile", "move", "rmtree")
)
"""Functions in Python that are made as a whole, with what they are given, as C code is."""
_APART: tuple[type, ...] = (*LOCKS, contextvars.ContextVar, contextvars.Context)
"""Types of objects that the recorder knows otherwise."""
_LEADING = frozenset(
    {"builtins", "collections", "types", "itertools", "functools", "operator", "weakref", "numpy", "mappingproxy"}
)
"""Modules whose objects lead to others."""
_QUIET: frozenset[Any] = frozenset({json.dump, gc.collect})
_INNER = frozenset(
    {"gc", "sys", "_thread", "_signal", "faulthandler", "_tracemalloc", "atexit", "_ctypes", "_weakref", "_pickle"}
)
"""Modules whose functions look into the interpreter, where a recording shows, or change how it works; or see which objects are the same."""
_HARMLESS = frozenset(present(gc, "collect") | present(threading, "Lock", "RLock") | present(sys, "getallocatedblocks"))


def _writable(value: Any) -> bool:
    """Whether others may see through it what is in memory, or change it."""
    try:
        with memoryview(value) as view:
            return not view.readonly
    except TypeError:
        return False


def _is_endless(value: Any, around: tuple[int, ...] = ()) -> bool:
    """Whether a container leads back to itself."""
    if type(value) not in (list, tuple, dict, collections.OrderedDict):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return id(value) in around or any(_is_endless(part, (*around, id(value))) for part in parts)


class OutsideCallHandlers(Handlers):
    """What the recorder does about such calls."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.given: list[tuple[Any, list[Any]]] = (
            journal.list()
        )  # containers of the call that were given to one, and what was in them then
        self.arrays_given: list[tuple[int, SymbolicNumber]] = journal.list()  # arrays, and how many nodes the graph had
        self.looking: list[tuple[int, str, str]] = (
            journal.list()
        )  # those that look at tensors: how many nodes the graph had, the reason
        self.may_raise: list[tuple[int, str, str]] = journal.list()  # calls that may: how many nodes the graph had, the reason

    # -- which there are
    def standard_call(self, function: Any) -> Handler | None:
        """The handler of a function of the standard library that is put off."""
        return self.in_table(_HANDLERS, function)

    def outside_call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], code: str, detail: str) -> Any:
        """A call of which nothing is known; code, detail: the reason where it is not put off."""
        recorder = self.recorder
        if _looks_only(function):
            arguments = tuple(
                [recorder.mark_created([*recorder.iteration.iterate(v)]) if self._is_of_the_call(v) else v for v in arguments]
            )
        keeps = getattr(function, "__name__", "") in _KEEPING_METHODS.get(type(bound_to(function)), ())
        if not self._may_be_put_off(function, arguments, keywords, keeps):
            recorder.stop(code, detail)
            recorder.program.forget()  # there may be weak references from now on
            return self._call_settled(function, arguments, keywords)
        return self._put_off(function, arguments, keywords, code, detail)

    def _call_settled(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What a function gives that gets plain numbers alone."""
        settled = self.recorder.contents.concrete_contents
        given = tuple(map(settled, arguments)), {k: settled(v) for k, v in keywords.items()}
        return self.recorder.perform(lambda: function(*given[0], **given[1]))

    def _is_of_the_call(self, value: Any) -> bool:
        """Whether it is a generator, or another iterator, that goes through what this run has."""
        return is_a(value, (GeneratorType, map, filter, zip)) and not self.recorder.is_outside(value)

    # -- functions of data
    def _of_data(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """json.dumps(metrics), struct.pack("<f", loss) ..."""
        recorder = self.recorder
        if any(map(_is_endless, (*arguments, *keywords.values()))):
            return self.outside_call(function, arguments, keywords, "unknown_call", f"{function.__name__}()")
        arguments, keywords = tuple(map(self._as_data, arguments)), {k: self._as_data(v) for k, v in keywords.items()}
        parts: list[Any] = []
        given = recorder.environment_reads.data_arguments(recorder.constant(function), arguments, keywords, parts)
        if given is None:
            if type(function) is FunctionType:
                return recorder.calls.instrumented(function, arguments, keywords)
            return self.outside_call(function, arguments, keywords, "unknown_call", function.__name__ + "()")
        values = tuple(map(plain_copy, arguments)), {k: plain_copy(v) for k, v in keywords.items()}
        quiet = (
            function in _NEVER_RAISING and keywords.keys() <= _HARMLESS_OPTIONS and not self._is_open_in(arguments[1:], keywords)
        )
        if parts and not quiet and self._may_be_put_off(None, arguments, keywords, False):
            return self._put_off(function, arguments, keywords)
        if not quiet or any(map(is_deferred_call_result, parts)) or not recorder.extracted_numbers.are_short(parts):
            for part in parts:
                concrete(part)
            parts = []
        answer = recorder.environment_reads.computed_now(lambda: function(*values[0], **values[1]), parts)
        if recorder.stopped or not parts:
            return recorder.mark_created(answer)
        return recorder.extracted_numbers.define_post_program(PostProgramValue(given, tuple(parts), bits=63), answer)

    def _is_open_in(self, options: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Whether options are other ones in each call."""
        found: list[Any] = []
        self.recorder.environment_reads.data_arguments(Name("type"), options, keywords, found)
        return bool(found)

    def _as_data(self, value: Any) -> Any:
        """A container from outside as one of this run, with the numbers that each call finds in it."""
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
        """Whether it is a container from outside, or such a one is in it."""
        if type(value) not in (list, tuple, dict):
            return False
        return self.recorder.is_outside(value) or any(map(self._has_outside, value.values() if type(value) is dict else value))

    # -- calls that are put off
    def _may_be_put_off(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], keeps: bool) -> bool:
        """Whether a call may be made after the program, with nobody the wiser."""
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
        if not (keeps or all(map(self._may_be_given, values))):
            return False
        return not is_in_try_block(self.recorder.effects.handles_in_blocks)

    def _is_known_callable(self, function: Any) -> bool:
        """Whether a callable of another type of C code, or a class, is reached again by its expression."""
        cls = function if is_a(function, type) else type(function)
        leads = module_of(type(function)).partition(".")[0] in _LEADING and not is_a(function, (type, type(np.save)))
        return self.recorder.is_outside(function) and not is_python_class(cls) and not leads

    def _is_isolated(self, value: Any) -> bool:
        """Whether an object from outside is one of C code that leads to nothing of the program's."""
        cls: Any = type(value)
        apart = (
            module_of(cls).partition(".")[0] not in _LEADING and not is_python_class(cls) and not is_a(value, (*_APART, Tensor))
        )
        leads = callable(value) or (hasattr(cls, "__next__") and not is_a(value, FILES)) or _writable(value)
        return self.recorder.is_outside(value) and apart and not leads

    def _may_be_given(self, value: Any) -> bool:
        cls = type(value)
        if cls is SymbolicNumber or cls in PRIMITIVE_TYPES or is_a(value, CONSTANTS) or id(value) in self.recorder.arrays.left:
            return True
        if cls in (list, tuple, dict, set, frozenset) and not self.recorder.is_outside(value):
            parts = [*value, *value.values()] if cls is dict else value
            return all(map(self._may_be_given, parts))
        return self._is_isolated(value)

    def _keeps(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Queue.put"""
        recorder = self.recorder
        if (
            not recorder.is_outside(arguments[0])
            or type(arguments[0]) is not queue.Queue
            or is_in_try_block(recorder.effects.handles_in_blocks)
        ):
            return recorder.calls.instrumented(function, arguments, keywords)
        return self._put_off(function, arguments, keywords)

    def _as_a_whole(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """json.dump, os.makedirs"""
        if any(map(_is_endless, (*arguments, *keywords.values()))):
            return self.outside_call(function, arguments, keywords, "impure_call", f"{function.__name__}()")
        arguments, keywords = tuple(map(self._as_data, arguments)), {k: self._as_data(v) for k, v in keywords.items()}
        if not self._may_be_put_off(None, arguments, keywords, False):
            return self.recorder.calls.instrumented(function, arguments, keywords)
        return self._put_off(function, arguments, keywords)

    def saves(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """tracejit.save(): it looks at tensors, which must hold then what they hold now."""
        recorder = self.recorder
        given = (*arguments, *keywords.values())
        if (
            any(map(_is_endless, given))
            or not all(map(self._may_be_saved, given))
            or is_in_try_block(recorder.effects.handles_in_blocks)
        ):
            recorder.stop("impure_call", f"{function.__name__}() of what cannot be made again")
        now = tuple(map(plain_copy, arguments)), {k: plain_copy(v) for k, v in keywords.items()}
        recorder.perform(lambda: recorder.unwatched(lambda: function(*now[0], **now[1])))
        if not recorder.stopped:
            self.looking.append((len(recorder.program.nodes), "impure_call", f"{function.__name__}()"))
            self.given += [found for value in given for found in self._contents(value)]
            recorder.effects.note_call(FunctionCall(recorder.mark_fixed(function), arguments, keywords), function.__name__)
        return None

    def _may_be_saved(self, value: Any) -> bool:
        if type(value) in (list, tuple, dict, collections.OrderedDict) and not self.recorder.is_outside(value):
            parts = [*value, *value.values()] if is_a(value, dict) else value
            return all(map(self._may_be_saved, parts))
        return is_a(value, Tensor) or (self._may_be_given(value) and not is_a(value, np.ndarray))

    def _put_off(
        self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], code: str = "unknown_call", detail: str = ""
    ) -> Any:
        """Call now, and in each call after the program.  Returns what stands for the answer.  code, detail: the reason where it is asked
        for."""
        recorder = self.recorder
        now = getattr(plain(function.owner), function.name) if type(function) is MethodOf else function
        name = getattr(now, "__qualname__", type(now).__qualname__)
        detail = detail or f"{name}()"
        if _looks_only(now):  # then it does not show that it is another container with the same in it
            arguments, keywords = tuple(map(self._as_it_is, arguments)), {k: self._as_it_is(v) for k, v in keywords.items()}
        before = [found for value in (*arguments, *keywords.values()) for found in self._contents(value)]
        given = tuple(map(plain_copy, arguments)), {k: plain_copy(v) for k, v in keywords.items()}
        if not _looks_only(now) and any(
            type(new) in (list, dict, set) and new is not old
            for new, old in zip((*given[0], *given[1].values()), (*arguments, *keywords.values()), strict=True)
        ):
            recorder.stop(
                code, f"{detail}, given a container with numbers of the call"
            )  # which it may keep, and so may the program
            return self._call_settled(now, arguments, keywords)
        try:
            call = (
                recorder.unwatched if function is gc.collect else recorder.containers.native
            )  # finalizers run whenever they run
            answer = call(lambda: now(*given[0], **given[1]))
        except Exception:
            recorder.stop("unknown_call", f"{name}(), which raised")
            raise
        if recorder.stopped:
            return answer
        self.given += before
        arrays = [recorder.arrays.left[id(v)] for v in (*arguments, *keywords.values()) if id(v) in recorder.arrays.left]
        self.arrays_given += [(len(recorder.program.nodes), array) for array in arrays]
        if type(function) is not MethodOf and bound_to(function) is None:
            recorder.mark_fixed(function)
        if not _is_quiet(now, arguments, keywords):
            self.may_raise.append((len(recorder.program.nodes), code, detail))
        owner = bound_to(now) if type(now) is not FunctionType else arguments[0] if function in _KEEPING else None
        if owner is not None:
            recorder.effects.changed[id(owner)] = owner
        stands = (
            None
            if answer is None and _says_nothing(now)
            else recorder.extracted_numbers.stand_in_for_result(answer, code, detail)
        )
        recorder.effects.note_call(FunctionCall(function, arguments, keywords, answer=stands), name)
        return stands

    def _as_it_is(self, value: Any) -> Any:
        """A container that this run has made, as it is now."""
        recorder = self.recorder
        if type(value) not in (list, tuple, dict, set, frozenset) or recorder.is_outside(value):
            return value
        if type(value) is dict:
            items = [
                (self._as_it_is(k), self._as_it_is(recorder.effects.stored.get((id(value), k), v))) for k, v in value.items()
            ]
            return recorder.mark_created(dict(items))
        return recorder.mark_created(type(value)(map(self._as_it_is, value)))

    def _contents(self, value: Any) -> list[tuple[Any, list[Any]]]:
        """What is in a container of this run, and in those that are in it."""
        if type(value) not in (list, tuple, dict, set, collections.OrderedDict) or self.recorder.is_outside(value):
            return []
        parts = self._items_of(value)
        return [(value, parts), *[found for part in parts for found in self._contents(part)]]

    def _items_of(self, value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [part for k, v in value.items() for part in (k, self.recorder.effects.stored.get((id(value), k), v))]
        return list(value)

    def check_given(self) -> None:
        """Containers that were given to somebody must be what they were then, when he is called after the program."""
        for container, before in self.given:
            now = self._items_of(container)
            if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
                self.recorder.stop(
                    "read_after_change", f"a {type(container).__name__} that was handed on is changed later on, and"
                )

    # -- what calls have answered
    def method_of(self, method: MethodOf, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method of a text or a moment, or of what a call has answered."""
        recorder = self.recorder
        owner, name = method.owner, method.name
        if type(plain(owner)) is str and name in OPEN_METHODS:
            return recorder.builtin_calls.call_text_method(owner, name, arguments, keywords)
        if recorder.environment_reads.is_moment(owner):
            value = recorder.environment_reads.moment_method(owner, name, arguments, keywords)
            if value is not None:
                return value
        elif self._may_be_put_off(None, arguments, keywords, False):
            return self._put_off(method, arguments, keywords, owner._late.answer[0])
        method_now = getattr(concrete(owner), name)
        return self._call_settled(method_now, arguments, keywords)

    def post_program_attribute(self, owner: Any, name: str) -> Any:
        """An attribute of something that each call has one of its own of."""
        if self.recorder.environment_reads.is_moment(owner):
            return self.recorder.environment_reads.moment_attribute(owner, name)
        value = plain(owner)
        if type(value) is str and name in OPEN_METHODS:
            return MethodOf(owner, name)
        if not is_deferred_call_result(owner) or type(value) in PRIMITIVE_TYPES or is_python_class(type(value)):
            return getattr(concrete(owner), name)
        if type(getattr(value, name, None)) not in C_CALLABLES:
            return getattr(concrete(owner), name)
        return MethodOf(owner, name)

    def entered(self, manager: Any) -> Any:
        """What enters and leaves a context manager that a call has answered; None for others."""
        known = (
            is_deferred_call_result(manager) and not is_python_class(type(plain(manager))) and hasattr(plain(manager), "__exit__")
        )
        return _EnteredAnswer(self.recorder, manager) if known else None


@guarded_context
class _EnteredAnswer:
    """A with statement about what a call has answered: a file."""

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
        recorder.caught(exception[1])
        if exception[1] is not None:  # in other calls it is left after the program, where nothing has been raised
            recorder.stop("raised", type(exception[1]).__name__)
        if recorder.stopped:
            return bool(leave(*exception))
        recorder.outside_calls.method_of(leave, exception, {})
        return False


_UNBOUND: tuple[type, ...] = tuple(kind for kind in C_CALLABLES if kind is not BuiltinFunctionType)
"""Methods that are given their object as an argument."""


def _says_nothing(function: Any) -> bool:
    """Whether a function always answers None."""
    keeps = getattr(function, "__name__", "") in _KEEPING_METHODS.get(type(bound_to(function)), ())
    return keeps or (not _is_unhashable(function) and function in (_KEEPING | {json.dump, os.makedirs}))


def _looks_only(function: Any) -> bool:
    """Whether a function keeps nothing that it is given."""
    quiet = module_of(type(bound_to(function))).partition(".")[0] in ("_io", "_csv")
    return quiet or (not _is_unhashable(function) and (function in _WHOLE or function is array.array))


def _is_quiet(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether a call raises nothing but what comes from outside: a disk that is full."""
    if module_of(type(bound_to(function))).partition(".")[0] in ("_io", "_csv"):
        return True
    waits = not keywords and (
        (function == queue.Queue.put and len(arguments) == 2) or is_a(bound_to(function), queue.SimpleQueue)
    )
    return waits or (not _is_unhashable(function) and function in _QUIET)


def _is_unhashable(function: Any) -> bool:
    return type(function).__hash__ is None


_HANDLERS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_OF_DATA, OutsideCallHandlers._of_data),
    **dict.fromkeys(_KEEPING, OutsideCallHandlers._keeps),
    **dict.fromkeys(_WHOLE, OutsideCallHandlers._as_a_whole),
}
