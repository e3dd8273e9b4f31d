"""Calls of which nothing is known but what they are given: C code, functions of the standard library, objects that such code makes.

* *Readings* of the world change nothing.  Those of the process and of files are made before the program, and what they tell is guarded
  or a number; those that tell something else each time are like clocks (leaving.py): before the program where they decide, else after it.
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
import datetime
import gc
import html
import json
import os
import os.path
import pickle
import platform
import queue
import secrets
import shlex
import shutil
import socket
import struct
import sys
import textwrap
import threading
import time
import urllib.parse
import uuid
import zlib
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, GeneratorType, ModuleType
from typing import Any

import numpy as np

from tracejit.capture.effects import FunctionCall
from tracejit.capture.late import Late, is_answer, is_late
from tracejit.capture.policies import C_CALLABLES, PRIMITIVE_TYPES, bound_to, is_a, is_python_class
from tracejit.capture.printing import FILES, PrintingHandlers
from tracejit.capture.protected import is_protected
from tracejit.capture.symbols import MethodOf, SymbolicNumber, bare, concrete, is_symbolic, plain
from tracejit.capture.texts import OPEN_METHODS
from tracejit.core.dtypes import DType
from tracejit.tensor import Tensor

__all__ = ["OutsideCallHandlers"]


def _present(module: Any, *names: str) -> set[Any]:
    return {getattr(module, name) for name in names if hasattr(module, name)}


_OF_PROCESS: frozenset[Any] = frozenset(
    _present(os, "getpid", "getppid", "getcwd", "cpu_count", "process_cpu_count", "getlogin", "getuid", "geteuid", "getgid")
    | _present(threading, "get_ident", "get_native_id", "active_count", "current_thread", "main_thread")
    | _present(platform, "node", "system", "machine", "platform", "python_version", "processor", "release", "version")
    | _present(sys, "getrecursionlimit", "getdefaultencoding", "getfilesystemencoding", "getswitchinterval")
    | _present(socket, "gethostname")
)
"""What they tell is not changed by files that are written and texts that are told."""
_OF_FILES: frozenset[Any] = frozenset(
    _present(os, "access", "listdir")
    | _present(
        os.path, "exists", "lexists", "isfile", "isdir", "islink", "ismount", "getsize", "getmtime", "getatime", "getctime"
    )
)
_ANEW: frozenset[Any] = frozenset(
    _present(time, "strftime", "ctime", "asctime", "localtime", "gmtime")
    | _present(datetime.datetime, "now", "utcnow", "today")
    | _present(datetime.date, "today")
    | _present(uuid, "uuid1", "uuid4")
    | _present(secrets, "token_hex", "token_bytes", "token_urlsafe")
    | _present(os, "urandom")
)
"""What they tell is another each time."""
_MOMENTS: tuple[type, ...] = (datetime.date, datetime.time, datetime.timedelta, time.struct_time, uuid.UUID)
"""Types of what those tell: nothing changes them, and their methods and operators look at nothing else."""
_OF_DATA: frozenset[Any] = frozenset(
    _present(json, "dumps", "loads")
    | _present(pickle, "dumps")
    | _present(struct, "pack", "unpack", "calcsize")
    | _present(base64, "b64encode", "b64decode", "b32encode", "b16encode", "urlsafe_b64encode", "urlsafe_b64decode")
    | _present(binascii, "hexlify", "unhexlify", "crc32", "b2a_hex", "a2b_hex")
    | _present(zlib, "crc32", "adler32", "compress", "decompress")
    | _present(textwrap, "dedent", "indent", "fill", "shorten", "wrap")
    | _present(html, "escape", "unescape")
    | _present(urllib.parse, "quote", "quote_plus", "unquote", "urlencode")
    | _present(shlex, "quote", "split")
    | _present(sys, "intern")
)
_KEEPING: frozenset[Any] = frozenset(_present(queue.Queue, "put", "put_nowait"))
_KEEPING_METHODS: dict[type, frozenset[str]] = {queue.SimpleQueue: frozenset({"put", "put_nowait"})}
"""What looks at nothing that it is given, and keeps it: it may be anything."""
_WHOLE: frozenset[Any] = frozenset(
    _present(json, "dump")
    | _present(os, "makedirs", "removedirs")
    | _present(shutil, "copy", "copy2", "copyfile", "move", "rmtree")
)
"""Functions in Python that are made as a whole, with what they are given, as C code is."""
_LOCKS: tuple[type, ...] = (type(threading.Lock()), type(threading.RLock()))
_LEADING = frozenset(
    {"builtins", "collections", "types", "itertools", "functools", "operator", "weakref", "numpy", "mappingproxy"}
)
"""Modules whose objects lead to others."""
_QUIET: frozenset[Any] = _KEEPING | _WHOLE | _present(gc, "collect") | {open}
_INNER = frozenset({"gc", "sys", "_thread", "_signal", "faulthandler", "_tracemalloc", "atexit", "_ctypes", "_weakref"})
"""Modules whose functions look into the interpreter, where a recording shows, or change how it works."""
_HARMLESS = frozenset(_present(gc, "collect") | _present(threading, "Lock", "RLock") | _present(sys, "getallocatedblocks"))
_CONSTANTS: tuple[type, ...] = (type, ModuleType, np.dtype, np.generic, DType, *_MOMENTS)


def _writable(value: Any) -> bool:
    """Whether others may see through it what is in memory, or change it."""
    try:
        with memoryview(value) as view:
            return not view.readonly
    except TypeError:
        return False


class OutsideCallHandlers(PrintingHandlers):
    """What the recorder does about such calls."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[Any, list[Any]]] = []  # containers of the call that were given to one, and what was in them then
        self.arrays_given: list[tuple[int, SymbolicNumber]] = []  # arrays, and how many nodes the graph had
        self.looking: list[tuple[int, str, str]] = []  # those that look at tensors: how many nodes the graph had, the reason
        self.may_raise: list[tuple[int, str, str]] = []  # calls that may: how many nodes the graph had, the reason

    # -- which there are
    def standard_call(self, function: Any) -> Callable[..., Any] | None:
        handler = super().standard_call(function)
        if handler is not None or type(function) not in (FunctionType, BuiltinFunctionType):
            return handler
        if (is_a(function, BuiltinFunctionType) and bound_to(function) is not None) or _is_unhashable(function):
            return None
        return _HANDLERS.get(function)

    def outside_call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], code: str, detail: str) -> Any:
        """A call of which nothing is known; code, detail: the reason where it is not put off."""
        if _looks_only(function):
            arguments = tuple([self.made([*self.iterate(v)]) if self._is_of_the_call(v) else v for v in arguments])
        keeps = getattr(function, "__name__", "") in _KEEPING_METHODS.get(type(bound_to(function)), ())
        if not self._may_be_put_off(function, arguments, keywords, keeps):
            self.stop(code, detail)
            return function(*map(concrete, arguments), **{k: concrete(v) for k, v in keywords.items()})
        return self._put_off(function, arguments, keywords, code, detail)

    def _is_of_the_call(self, value: Any) -> bool:
        """Whether it is a generator, or another iterator, that goes through what this run has."""
        return is_a(value, (GeneratorType, map, filter, zip)) and not self.is_outside(value)

    # -- readings
    def _read_process(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """os.getpid() and its like."""
        given = tuple(map(concrete, arguments))
        if keywords or not all(type(v) in PRIMITIVE_TYPES for v in given):
            return self.outside_call(function, arguments, keywords, "impure_call", f"{function.__name__}()")
        answer = self.unwatched(lambda: function(*given))
        if self.stopped:
            return answer
        return self.read(
            answer, f"{self.constant(function)}({', '.join(map(repr, given))})", called=f"{function.__name__}()", symbolic=True
        )

    def _read_files(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """os.path.exists(path) and its like: what this call has told others so far may have made the file."""
        if any(type(effect) is FunctionCall for effect in self.effects):
            return self.outside_call(function, arguments, keywords, "impure_call", f"{function.__name__}() after other calls")
        return self._read_process(function, arguments, keywords)

    def _read_anew(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """datetime.now(), time.strftime("%H:%M"), uuid4() ..."""
        parts: list[Any] = []
        texts = self._texts(arguments, keywords, parts)
        values = tuple(map(plain, arguments)), {k: plain(v) for k, v in keywords.items()}
        answer = self.unwatched(lambda: function(*values[0], **values[1]))
        if self.stopped:
            return answer
        if texts is None or any(is_late(part) and part._late.answer for part in parts):
            self.stop("impure_call", f"{function.__name__}() of such arguments")
            return answer
        late = Late(f"{self.constant(function)}({texts})", tuple(parts), bits=63)
        if all(not is_late(part) for part in parts):
            late.readings = frozenset([late])
        return self._defined(late, answer)

    # -- what is done with moments
    def is_moment(self, value: Any) -> bool:
        """Whether it is a date, a time or the like that each call has another one of."""
        return is_late(value) and is_a(plain(value), _MOMENTS)

    def moment_attribute(self, owner: Any, name: str) -> Any:
        value = self.unwatched(lambda: getattr(plain(owner), name))  # or it raises what is to be raised
        if callable(value):
            return MethodOf(owner, name)
        return self._defined(Late(f"{owner._text}.{name}", (owner,), bits=63), value)

    def moment_binary(self, left: Any, right: Any, compute: Callable[[Any, Any], Any]) -> Any:
        """An operator between a moment and something else."""
        value = self.unwatched(lambda: compute(plain(left), plain(right)))
        parts: list[Any] = []
        texts = self._data_text(left, parts), self._data_text(right, parts)
        if None in texts or type(value) not in (*PRIMITIVE_TYPES, *_MOMENTS, datetime.datetime):
            concrete(left), concrete(right)
            return value
        return self._defined(Late(f"{self.constant(compute)}({', '.join(map(str, texts))})", tuple(parts), bits=63), value)

    def method_of(self, method: MethodOf, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method of a text or a moment, or of what a call has answered."""
        owner, name = method.owner, method.name
        if type(plain(owner)) is str and name in OPEN_METHODS:
            return self.call_text_method(owner, name, arguments, keywords)
        if self.is_moment(owner):
            parts: list[Any] = [owner]
            texts = self._texts(arguments, keywords, parts)
            if texts is not None:
                values = tuple(map(bare, arguments)), {k: bare(v) for k, v in keywords.items()}
                value = self.unwatched(lambda: getattr(plain(owner), name)(*values[0], **values[1]))
                return self._defined(Late(f"{owner._text}.{name}({texts})", tuple(parts), bits=63), value)
        elif self._may_be_put_off(None, arguments, keywords, False):
            return self._put_off(method, arguments, keywords, owner._late.answer[0])
        return getattr(concrete(owner), name)(*map(concrete, arguments), **{k: concrete(v) for k, v in keywords.items()})

    # -- functions of data
    def _of_data(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """json.dumps(metrics), struct.pack("<f", loss) ..."""
        arguments, keywords = tuple(map(self._as_data, arguments)), {k: self._as_data(v) for k, v in keywords.items()}
        parts: list[Any] = []
        texts = self._texts(arguments, keywords, parts)
        if texts is None:
            if type(function) is FunctionType:
                return self.instrumented(function, arguments, keywords)
            return self.outside_call(function, arguments, keywords, "unknown_call", function.__name__ + "()")
        values = tuple(map(bare, arguments)), {k: bare(v) for k, v in keywords.items()}
        if parts and (is_protected(self.handles_in_blocks) or any(map(is_answer, parts))):
            for part in parts:
                concrete(part)
        answer = self.unwatched(lambda: function(*values[0], **values[1]))
        if self.stopped or not any(map(is_symbolic, parts)):
            return self.made(answer)
        text = f"{self.constant(function)}({texts})"
        if type(answer) not in (str, bytes, int):
            return self.answered(answer, "unknown_call", f"{function.__name__}()", text, tuple(parts))
        return self._defined(Late(text, tuple(parts), bits=63), answer)

    def _as_data(self, value: Any) -> Any:
        """A container from outside as one of this run, with the numbers that each call finds in it."""
        if type(value) in (list, tuple) and (self.is_outside(value) or any(map(self._has_outside, value))):
            return self.made(type(value)([self._as_data(v) for v in self.elements(value)]))
        if type(value) is dict and (self.is_outside(value) or any(map(self._has_outside, value.values()))):
            self.read_elements(value)
            return self.made({k: self._as_data(self.stored.get((id(value), k), v)) for k, v in value.items()})
        return value

    def _has_outside(self, value: Any) -> bool:
        if type(value) in (list, tuple):
            return self.is_outside(value) or any(map(self._has_outside, value))
        return type(value) is dict and (self.is_outside(value) or any(map(self._has_outside, value.values())))

    def _texts(self, arguments: tuple[Any, ...], keywords: dict[str, Any], parts: list[Any]) -> str | None:
        """The expressions of arguments, or None; parts: the numbers and texts in them that each call computes."""
        texts = [self._data_text(v, parts) for v in arguments]
        texts += [None if (text := self._data_text(v, parts)) is None else f"{k}={text}" for k, v in keywords.items()]
        return None if None in texts else ", ".join(map(str, texts))

    def _data_text(self, value: Any, parts: list[Any]) -> str | None:
        """The expression of a number, a text, or a container of them that this run made."""
        cls = type(value)
        if cls is SymbolicNumber:
            parts.append(value)
            return str(value._text)
        if cls in (int, float, str):
            return repr(value) if cls is str else self.number_text(value)
        if cls in PRIMITIVE_TYPES or is_a(value, _CONSTANTS) or cls is datetime.timezone:
            return self.constant(value)
        if cls not in (list, tuple, dict) or self.is_outside(value):
            return None
        if cls is dict:
            value = [(k, self.stored.get((id(value), k), v)) for k, v in value.items()]
        texts = [self._data_text(v, parts) for v in value]
        if None in texts:
            return None
        elements = f"({''.join(f'{text}, ' for text in texts)})"
        return elements if cls is tuple else f"{self.constant(cls)}({elements})"

    # -- calls that are put off
    def _may_be_put_off(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], keeps: bool) -> bool:
        """Whether a call may be made after the program, with nobody the wiser."""
        owner = None if function is None else bound_to(function)
        values = [*arguments, *keywords.values()]
        if self.stopped or (owner is not None and not self._stands_apart(owner)) or is_a(function, _UNBOUND):
            return False
        if getattr(function, "__module__", None) in _INNER and function not in _HARMLESS:
            return False
        if type(function) is not BuiltinFunctionType and function is not None and not self._is_known_callable(function):
            return False
        if not (keeps or all(map(self._may_be_given, values))):
            return False
        return not is_protected(self.handles_in_blocks)

    def _is_known_callable(self, function: Any) -> bool:
        """Whether a callable of another type of C code, or a class, is reached again by its expression."""
        cls = function if is_a(function, type) else type(function)
        leads = type(function).__module__.partition(".")[0] in _LEADING and not is_a(function, (type, type(np.save)))
        return self.is_outside(function) and not is_python_class(cls) and not leads

    def _stands_apart(self, value: Any) -> bool:
        """Whether an object from outside is one of C code that leads to nothing of the program's."""
        cls: Any = type(value)
        apart = (
            cls.__module__.partition(".")[0] not in _LEADING and not is_python_class(cls) and not is_a(value, (*_LOCKS, Tensor))
        )
        leads = callable(value) or (hasattr(cls, "__next__") and not is_a(value, FILES)) or _writable(value)
        return self.is_outside(value) and apart and not leads

    def _may_be_given(self, value: Any) -> bool:
        cls = type(value)
        if cls is SymbolicNumber or cls in PRIMITIVE_TYPES or is_a(value, _CONSTANTS) or id(value) in self.left:
            return True
        if cls in (list, tuple, dict, set, frozenset) and not self.is_outside(value):
            parts = [*value, *value.values()] if cls is dict else value
            return all(map(self._may_be_given, parts))
        return self._stands_apart(value)

    def _keeps(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Queue.put"""
        if not self.is_outside(arguments[0]) or type(arguments[0]) is not queue.Queue or is_protected(self.handles_in_blocks):
            return self.instrumented(function, arguments, keywords)
        return self._put_off(function, arguments, keywords)

    def _as_a_whole(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """json.dump, os.makedirs"""
        arguments, keywords = tuple(map(self._as_data, arguments)), {k: self._as_data(v) for k, v in keywords.items()}
        if not self._may_be_put_off(None, arguments, keywords, False):
            return self.instrumented(function, arguments, keywords)
        return self._put_off(function, arguments, keywords)

    def saves(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """tracejit.save(): it looks at tensors, which must hold then what they hold now."""
        given = (*arguments, *keywords.values())
        if not all(map(self._may_be_saved, given)) or is_protected(self.handles_in_blocks):
            self.stop("impure_call", f"{function.__name__}() of what cannot be made again")
        now = tuple(map(bare, arguments)), {k: bare(v) for k, v in keywords.items()}
        self.unwatched(lambda: function(*now[0], **now[1]))
        if not self.stopped:
            self.looking.append((len(self.program.nodes), "impure_call", f"{function.__name__}()"))
            self.note_call(FunctionCall(self.fixed(function), arguments, keywords), function.__name__)
        return None

    def _may_be_saved(self, value: Any) -> bool:
        if type(value) in (list, tuple, dict, collections.OrderedDict) and not self.is_outside(value):
            parts = [*value, *value.values()] if is_a(value, dict) else value
            return all(map(self._may_be_saved, parts))
        return is_a(value, Tensor) or (self._may_be_given(value) and not is_a(value, np.ndarray))

    def _put_off(
        self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], code: str = "unknown_call", detail: str = ""
    ) -> Any:
        """Call now, and in each call after the program.  Returns what stands for the answer.  code, detail: the reason where it is asked
        for."""
        now = getattr(plain(function.owner), function.name) if type(function) is MethodOf else function
        name = getattr(now, "__qualname__", type(now).__qualname__)
        detail = detail or f"{name}()"
        containers = [v for v in (*arguments, *keywords.values()) if type(v) in (list, tuple, dict, set)]
        before = [list(v) for v in containers]
        given = tuple(map(bare, arguments)), {k: bare(v) for k, v in keywords.items()}
        if not _looks_only(now) and any(
            type(new) in (list, dict, set) and new is not old
            for new, old in zip((*given[0], *given[1].values()), (*arguments, *keywords.values()), strict=True)
        ):
            self.stop(code, f"{detail}, given a container with numbers of the call")  # which it may keep, and so may the program
            return now(*map(self.settled, arguments), **{k: self.settled(v) for k, v in keywords.items()})
        try:
            answer = self.native(lambda: now(*given[0], **given[1]))
        except Exception:
            self.stop("unknown_call", f"{name}(), which raised")
            raise
        if self.stopped:
            return answer
        self.given += zip(containers, before, strict=True)
        arrays = [self.left[id(v)] for v in (*arguments, *keywords.values()) if id(v) in self.left]
        self.arrays_given += [(len(self.program.nodes), array) for array in arrays]
        if type(function) is not MethodOf and bound_to(function) is None:
            self.fixed(function)
        if not _is_quiet(now):
            self.may_raise.append((len(self.program.nodes), code, detail))
        stands = None if answer is None and _says_nothing(now) else self.answered(answer, code, detail)
        self.note_call(FunctionCall(function, arguments, keywords, answer=stands), name)
        return stands

    def check_given(self) -> None:
        """Containers that were given to somebody must be what they were then, when he is called after the program."""
        for container, before in self.given:
            if len(container) != len(before) or any(a is not b for a, b in zip(container, before, strict=True)):
                self.stop("read_after_change", f"a {type(container).__name__} that was handed on is changed later on, and")

    # -- what calls have answered
    def late_attribute(self, owner: Any, name: str) -> Any:
        """An attribute of something that each call has one of its own of."""
        if self.is_moment(owner):
            return self.moment_attribute(owner, name)
        value = plain(owner)
        if type(value) is str and name in OPEN_METHODS:
            return MethodOf(owner, name)
        if not is_answer(owner) or type(value) in PRIMITIVE_TYPES or is_python_class(type(value)):
            return getattr(concrete(owner), name)
        if type(getattr(value, name, None)) not in C_CALLABLES:
            return getattr(concrete(owner), name)
        return MethodOf(owner, name)

    def entered(self, manager: Any) -> Any:
        """What enters and leaves a context manager that a call has answered; None for others."""
        known = is_answer(manager) and not is_python_class(type(plain(manager))) and hasattr(plain(manager), "__exit__")
        return _EnteredAnswer(self, manager) if known else None

    def call_text_method(self, owner: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        raise NotImplementedError

    def instrumented(self, function: FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        raise NotImplementedError


class _EnteredAnswer:
    """A with statement about what a call has answered: a file."""

    __slots__ = ("_manager", "_recorder")

    def __init__(self, recorder: OutsideCallHandlers, manager: Any) -> None:
        self._recorder = recorder
        self._manager = manager

    def __enter__(self) -> Any:
        return self._recorder.method_of(MethodOf(self._manager, "__enter__"), (), {})

    def __exit__(self, *exception: Any) -> bool:
        recorder, leave = self._recorder, MethodOf(self._manager, "__exit__")
        recorder.caught(exception[1])
        if exception[1] is not None:  # in other calls it is left after the program, where nothing has been raised
            recorder.stop("raised", type(exception[1]).__name__)
        if recorder.stopped:
            return bool(leave(*exception))
        recorder.method_of(leave, exception, {})
        return False


_UNBOUND: tuple[type, ...] = tuple(kind for kind in C_CALLABLES if kind is not BuiltinFunctionType)
"""Methods that are given their object as an argument."""


def _says_nothing(function: Any) -> bool:
    """Whether a function always answers None."""
    keeps = getattr(function, "__name__", "") in _KEEPING_METHODS.get(type(bound_to(function)), ())
    return keeps or (not _is_unhashable(function) and function in (_KEEPING | {json.dump, os.makedirs}))


def _looks_only(function: Any) -> bool:
    """Whether a function keeps nothing that it is given."""
    quiet = type(bound_to(function)).__module__.partition(".")[0] in ("_io", "_csv")
    return quiet or (not _is_unhashable(function) and (function in _WHOLE or function is array.array))


def _is_quiet(function: Any) -> bool:
    """Whether a function raises nothing but what comes from outside: a disk that is full."""
    if type(bound_to(function)).__module__.partition(".")[0] in ("_io", "_csv", "_queue"):
        return True
    return not _is_unhashable(function) and function in _QUIET


def _is_unhashable(function: Any) -> bool:
    return type(function).__hash__ is None


_HANDLERS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_OF_PROCESS, OutsideCallHandlers._read_process),
    **dict.fromkeys(_OF_FILES, OutsideCallHandlers._read_files),
    **dict.fromkeys(_ANEW, OutsideCallHandlers._read_anew),
    **dict.fromkeys(_OF_DATA, OutsideCallHandlers._of_data),
    **dict.fromkeys(_KEEPING, OutsideCallHandlers._keeps),
    **dict.fromkeys(_WHOLE, OutsideCallHandlers._as_a_whole),
}
