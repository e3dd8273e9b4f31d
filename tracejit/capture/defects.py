"""Defects of the recorder: how a recorded call goes on if recording code raises an error that user code would not have raised.

Instrumented code calls *entry points*: methods of `CaptureFrame`, callables that handlers return, methods of the recording
interpreter.  An entry point does an operation for the user's code and records it.  `isolate_entry_points`, `isolated_call` and the
other functions here put a barrier around entry points; no handler needs one of its own.  A barrier handles an exception of class
Exception in three steps:

1. Decide whether it is an error of user code.  It is, if the last frame in the traceback is of user code or of the eager library,
   if a handler has raised it by a `raise` statement, as Python does (`max([])`), if an operation of user code has raised it
   (`Recorder.performed` says so), or if Python raises an error of the same class for the same operation.  Then it passes on
   unchanged.
2. Otherwise stop the recording with the reason "recording_defect", which names the error and its location.  With `config.verify`,
   raise `InternalError`.
3. Continue the call as in eager mode.  If nothing has been done yet, Python does the operation.  Operations that must not be done
   twice (a call of a user function, a call of C code, a change of a container, a write, a draw) are in `Recorder.performed` with
   their results.  If one of these is the operation that user code asked for, its result is the result of the entry point.

If only a part of the operation has been done (one of the comparisons of a sort, say), the rest is unknown, and doing all of it
would repeat that part: the entry point raises `InternalError`, which says so.  If the error is of a class that Python's own
operations raise, it is taken for an error of user code there, since nothing tells the two apart.

MemoryError is an error of user code, since any code may raise it; so is RecursionError, but where recording code has raised it though many
frames were left at the entry point: it has descended into something nested.  That is no defect; the recording stops for `recursion_limit`.

This module must not know what handlers do.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial, update_wrapper
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tracejit.capture import reasons
from tracejit.capture.call_sites import user_line
from tracejit.capture.handlers.special_method_stub import SpecialMethodStub
from tracejit.capture.handlers.stand_ins import plain_value, without_stand_ins
from tracejit.capture.handlers.symbols import RecordedCallback, SymbolicNumber
from tracejit.capture.policies import IN_PLACE, INLINED_TYPES, SPECIAL_NAMES, SWAPPED
from tracejit.capture.syntax.locate import NotConvertible
from tracejit.config import config
from tracejit.core.package_files import CAPTURE, PACKAGE, is_own_frame, own_folder
from tracejit.core.recursion import frames_left
from tracejit.ir.interpreter import StepFailed

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = [
    "BEGUN", "CONSUMED", "EAGER", "RAISED", "InternalError", "Performed", "does_as_python", "is_defect", "isolate_entry_points",
    "isolate_interpreter", "isolated_call", "isolated_context", "isolated_function", "isolated_question", "location_of",
    "note_raised", "resumed", "resumed_call", "stop_for_defect",
]  # fmt: skip


F = TypeVar("F", bound=Any)
Performed = list[tuple[Any, Any] | tuple[Any, Any, bool]]
"""The operations that an entry point has performed for user code: (operation, result), or (operation, result, True) for one that
may be repeated."""


class InternalError(Exception):
    """A defect of tracejit: recording code has raised an error.  The message names the location; the error is the cause of this one.

    It is raised if `config.verify` is on, and if the call cannot continue because only a part of an operation has been done."""


RAISED: Final = object()
"""In `Recorder.performed`, with the id of an error: an operation of user code has raised it."""
BEGUN: Final = object()
"""In `Recorder.performed`, with an action: a handler has failed in the middle of it."""
CONSUMED: Final = object()
"""In `Recorder.performed`: an element of an iterator has been consumed."""
EAGER: Final = (object(), None)
"""In `Recorder.performed`: the recording had stopped before the entry point was called, which does what Python does."""

_COMPILER_FOLDERS: Final = tuple(map(own_folder, ("capture", "compiled", "ir", "passes", "loops", "lowering", "llvm", "replay")))
_CONTROL_FLOW: Final = (StopIteration, StopAsyncIteration, StepFailed, NotConvertible, InternalError)
"""Errors that recording code raises on purpose."""
_FRAMES: Final = 128
"""If so many are left at an entry point, the operation in eager mode does not raise a RecursionError."""
_NOT_RAISED_BY_PYTHON: Final = (AssertionError, NotImplementedError, NameError)
"""Errors that no operation of Python raises which a handler does for user code."""


# -- errors of user code and errors of the recorder
def is_defect(error: BaseException, recorder: Any) -> bool:
    """Whether an error that has left an entry point may be a defect of recording code; `resumed` decides.  recorder: of the
    thread."""
    if recorder is None or not isinstance(error, Exception) or isinstance(error, (*_CONTROL_FLOW, MemoryError)):
        return False
    if isinstance(error, RecursionError) and frames_left() < _FRAMES:
        return False
    if recorder.performed and (recorder.performed[-1] is EAGER or _is_noted(recorder, error)):
        return False
    if type(error) is RuntimeError and isinstance(error.__cause__, StopIteration):  # raised inside a generator of the user
        return False
    last = _last_step(error)
    if last is None or not _is_of_compiler(error):
        return False
    return bool(error.args) or _raises(last.tb_frame.f_code, last.tb_lasti)


def _is_of_compiler(error: BaseException) -> bool:
    """Whether code that only recordings and compiled programs run has raised an error, rather than code of eager mode."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None:
        return False
    code, cls = step.tb_frame.f_code, type(error)
    if code.co_filename.startswith(CAPTURE) and cls.__module__ == "builtins" and not issubclass(cls, _NOT_RAISED_BY_PYTHON):
        return not _raises(code, step.tb_lasti)  # by a `raise` statement, handlers raise errors of user code on purpose
    return code.co_filename.startswith(_COMPILER_FOLDERS)


def note_raised(recorder: Recorder, error: Exception, action: Callable[[], Any]) -> None:
    """Note in `Recorder.performed` that `action`, an operation of user code, has raised an error; or that a handler has raised it
    in the middle of the operation."""
    if _is_noted(recorder, error):
        return
    last = _last_step(error)
    code = None if last is None else last.tb_frame.f_code
    of_handler = code is not None and code.co_filename.startswith(CAPTURE) and code not in _ENTRY_CODE
    if of_handler and not code.co_flags & inspect.CO_NESTED:  # type: ignore[union-attr]  # a nested function is the action itself
        recorder.performed.append((BEGUN, action))
    else:
        recorder.performed.append((RAISED, id(error)))


def _is_noted(recorder: Recorder, error: BaseException) -> bool:
    """Whether `Recorder.performed` ends with the note that an operation of user code has raised this error."""
    return bool(recorder.performed) and recorder.performed[-1][:2] == (RAISED, id(error))


def _last_step(error: BaseException) -> TracebackType | None:
    """The step of the traceback at which recording code raised the error, or called library code that did; None if user code
    raised it."""
    last, step = None, error.__traceback__
    while step is not None:
        if not is_own_frame(step.tb_frame):
            last = None
        elif last is None or step.tb_frame.f_code.co_filename.startswith(CAPTURE):
            last = step
        step = step.tb_next
    return last


def _raises(code: CodeType, offset: int) -> bool:
    """Whether the instruction at `offset` belongs to a `raise` statement.  An error without arguments that no `raise` has raised
    comes from C code or from another thread."""
    return dis.opname[code.co_code[offset]] in ("RAISE_VARARGS", "RERAISE")


def _is_raised_by_entry_point(error: BaseException) -> bool:
    """Whether the operation that an entry point does in eager mode has raised an error, rather than a handler that the entry
    point has called."""
    last = _last_step(error)
    code = None if last is None else last.tb_frame.f_code
    return code is None or not code.co_filename.startswith(CAPTURE) or code.co_filename == __file__ or code in _ENTRY_CODE


_ENTRY_CODE: Final[set[CodeType]] = set()
"""Code of entry points, which do what Python does if the recording has stopped."""


def does_as_python(function: F) -> F:
    """Mark a function that does an operation of user code as Python does: what is raised in it is an error of user code."""
    _ENTRY_CODE.add(function.__code__)
    return function


def location_of(error: BaseException) -> str:
    """ "tracejit/file:line" of the recording code that raised an error; "" if user code raised it."""
    last = _last_step(error)
    if last is None:
        return ""
    filename = last.tb_frame.f_code.co_filename
    return f"{filename.replace(PACKAGE, 'tracejit/').replace(chr(92), '/')}:{last.tb_lineno}"


# -- after a defect
def stop_for_defect(recorder: Recorder, error: BaseException) -> None:
    """Stop the recording for a defect.  Raises InternalError if `config.verify` is on."""
    if isinstance(error, RecursionError):
        recorder.stop("recursion_limit", f"the recording needs more than the {sys.getrecursionlimit()} frames of the limit")
        recorder.interpreter.forget()
        recorder.defect = recorder.reason
        return
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    detail += f" ({location_of(error)})"
    try:
        recorder.stop("recording_defect", detail)
        recorder.interpreter.forget()  # user code may observe when its tensors die
    except Exception as another:  # an error of code that ends recordings: ending it must not fail
        detail += f", and then {type(another).__name__}: {another} ({location_of(another)})"
        recorder.stopped = True
    recorder.defect = recorder.reason = reasons.make("recording_defect", detail, user_line())
    if config.verify:
        raise InternalError(f"a defect of tracejit: {detail}") from error


def resumed(
    recorder: Recorder,
    error: Exception,
    retry: Callable[[], Any],
    result_after: Callable[[Any, Any], Any],
    operands: Sequence[Any] = (),
) -> Any:
    """The result of an entry point whose handler has raised an error for which `is_defect` holds; or raises the error, if it is
    one of user code.

    retry: does the operation as Python does, once the recording has stopped.
    result_after: result_after(what, result) is the result of the entry point after it has performed the operation `what` with
        this result; _UNKNOWN if that was only a part of its operation; _REPEATABLE if that may be done again.
    operands: objects over which C code of the operation iterates.  If they are containers, they may hold stand-ins until the
        recording stops, so it stops before the operation is done again."""
    try:
        outcome = _UNKNOWN if any(map(_is_running_generator, operands)) else _REPEATABLE
        for what, result, *is_repeatable in reversed(recorder.performed):
            if what is RAISED:
                continue
            candidate = _result_of_entry_point(what, result, result_after)
            if candidate is not _REPEATABLE and not (is_repeatable and candidate is _UNKNOWN):
                outcome = candidate
                break
        in_containers = not isinstance(error, AttributeError) and any(isinstance(x, _CONTAINERS) for x in operands)
        if outcome is _UNKNOWN and not _is_certain(error):
            recorder.performed.append((RAISED, id(error)))
            raise error
        if outcome is _REPEATABLE:
            return _evaluate_eagerly(recorder, error, retry, in_containers)
        stop_for_defect(recorder, error)
        if outcome is not _UNKNOWN:
            return without_stand_ins(outcome, nested=False)
        raise InternalError(
            f"a defect of tracejit: {type(error).__name__}: {error} ({location_of(error)}), after a part of an operation of the program "
            f"had been done, which cannot be done again ({user_line()})"
        ) from error
    finally:
        del error  # its traceback leads to this frame


def _result_of_entry_point(what: Any, result: Any, result_after: Callable[[Any, Any], Any]) -> Any:
    """`result_after` for any element of `Recorder.performed` but RAISED."""
    if what is BEGUN:
        return _REPEATABLE if result_after(result, None) is _REPEATABLE else _UNKNOWN
    return _UNKNOWN if what is CONSUMED else result_after(what, result)


def _is_running_generator(value: Any) -> bool:
    """Whether `value` is a generator of which a part has run."""
    return type(value) is GeneratorType and inspect.getgeneratorstate(value) != inspect.GEN_CREATED


def _is_certain(error: Exception) -> bool:
    """Whether no operation of Python can have raised the error, so that it is a defect."""
    return isinstance(error, _NOT_RAISED_BY_PYTHON) and not _is_raised_by_entry_point(error)


_UNKNOWN: Final = object()
"""Outcome of an entry point: a part of its operation has been done, so that there is no result and no way to repeat it."""
_REPEATABLE: Final = object()
"""Outcome of an entry point: nothing has been done that must not be done twice."""


def _evaluate_eagerly(recorder: Recorder, error: Exception, retry: Callable[[], Any], in_containers: bool = False) -> Any:
    """The result of `retry`, which does as Python does an operation of which nothing has been done.  If it raises an error of the
    class of `error`, then `error` was one of user code: it is raised, and the recording continues unless it had to stop before
    the retry.  Otherwise `error` is a defect."""
    env, was_stopped = recorder.sizes.env, recorder.stopped
    result = eager_error = None
    is_certain = _is_certain(error)
    try:
        if is_certain:
            stop_for_defect(recorder, error)
        elif in_containers:
            recorder.stop("raised", type(error).__name__)
        if is_certain or in_containers:
            was_stopped, env = True, None
        try:
            if env is not None:
                env.pause()
            if was_stopped:
                result = retry()
            else:
                result = recorder.unwatched(lambda: _with_recording_stopped(recorder, retry))
        except Exception as raised:
            eager_error = raised
        finally:
            if env is not None:
                env.resume()
        if eager_error is not None and type(eager_error) is type(error) and _is_raised_by_entry_point(eager_error):
            recorder.performed.append((RAISED, id(error)))
            raise error
        if not is_certain:
            stop_for_defect(recorder, error)
        if eager_error is None:
            return without_stand_ins(result, nested=False)
        if _is_raised_by_entry_point(eager_error):
            raise eager_error
        raise InternalError(
            f"a defect of tracejit: {type(eager_error).__name__}: {eager_error} ({location_of(eager_error)})"
        ) from eager_error
    finally:
        del error, eager_error  # their tracebacks lead to this frame


def _with_recording_stopped(recorder: Recorder, action: Callable[[], Any]) -> Any:
    """The result of `action`, during which entry points do what Python does."""
    recorder.stopped = True
    try:
        return action()
    finally:
        recorder.stopped = recorder.reason is not None


# -- barriers
def isolate_entry_points(cls: type, current: Any, names: frozenset[str]) -> None:
    """Put barriers around the methods `names` of the class that instrumented code calls.  current: has the recorder of the
    thread."""
    for name in names:
        setattr(cls, name, _isolated_entry_point(name, vars(cls)[name], current))


def _isolated_entry_point(name: str, method: Any, current: Any) -> Any:
    result_after = _RESULTS_AFTER.get(name, _after_reading)
    does_as_python(method)

    def resume(error: Exception, *given: Any) -> Any:
        try:
            return resumed(
                current.recorder,
                error,
                lambda: method(*given),
                lambda what, result: result_after(what, result, *given[1:]),
                given if name == "compare" else (),
            )
        finally:
            del error

    def entry(*given: Any) -> Any:
        try:
            return method(*given)
        except Exception as error:
            if not is_defect(error, current.recorder):
                raise
            defect = error
        try:
            return resume(defect, *given)
        finally:
            del defect

    return update_wrapper(entry, method)


def isolated_call(recorder: Recorder, action: Callable[[], Any], retry: Callable[[], Any], function: Any) -> Any:
    """The result of `action`, a handler that calls `function` for user code, with a barrier.  retry: calls it as Python does."""
    recorder.performed = []
    try:
        return action()
    except Exception as error:
        if not is_defect(error, recorder):
            raise
        defect = error
    try:
        return resumed_call(recorder, defect, function, retry)
    finally:
        del defect


def resumed_call(
    recorder: Recorder, error: Exception, function: Any, retry: Callable[[], Any], arguments: Sequence[Any] = ()
) -> Any:
    """`resumed` for an entry point that calls `function`."""
    try:
        return resumed(recorder, error, retry, lambda what, result: _after_call(what, result, function), arguments)
    finally:
        del error


def isolate_interpreter(cls: type, names: frozenset[str]) -> None:
    """Put barriers around the methods `names` of the recording interpreter."""
    for name in names:
        owner = next(base for base in cls.__mro__ if name in vars(base))
        setattr(cls, name, _isolated_method(vars(owner)[name]))


def _isolated_method(method: Any) -> Any:
    does_as_python(method)

    def resume(error: Exception, outer: Performed, count: int, self: Any, *given: Any) -> Any:
        try:
            return _resumed_within(
                self.recorder,
                error,
                outer,
                count,
                lambda: method(self, *given),
                lambda what, result: _after_interpreter(what, result, given),
            )
        finally:
            del error

    def entry(self: Any, *given: Any) -> Any:
        recorder = self.recorder
        if recorder.stopped:
            return method(self, *given)
        outer = recorder.performed
        count = len(outer)
        try:
            return method(self, *given)
        except Exception as error:
            if not is_defect(error, recorder):
                raise
            defect = error
        try:
            return resume(defect, outer, count, self, *given)
        finally:
            del defect

    return update_wrapper(entry, method)


def _resumed_within(
    recorder: Recorder,
    error: Exception,
    outer: Performed,
    count: int,
    retry: Callable[[], Any],
    result_after: Callable[[Any, Any], Any],
) -> Any:
    """`resumed` for an entry point that another one has called.  outer: `Recorder.performed` of the outer one, which had `count`
    elements when the inner one was called."""
    recorder.performed = outer[count:] if recorder.performed is outer else recorder.performed
    try:
        return resumed(recorder, error, retry, result_after)
    finally:
        recorder.performed = outer + recorder.performed
        del error


def isolate_callbacks(cls: type) -> None:
    """Put a barrier around calls of the class of callables that C code gets in place of user functions."""
    method: Any = does_as_python(vars(cls)["__call__"])

    def entry(self: Any, *given: Any, **named: Any) -> Any:
        recorder, function = self._recorder, self.function
        if recorder.stopped:
            return method(self, *given, **named)
        outer = recorder.performed
        count = len(outer)
        try:
            return method(self, *given, **named)
        except Exception as error:
            if not is_defect(error, recorder):
                raise
            defect = error

        def retry() -> Any:
            return method(self, *given, **named)

        try:
            return _resumed_within(
                recorder, defect, outer, count, retry, lambda what, result: _after_call(what, result, function)
            )
        finally:
            del defect

    setattr(cls, "__call__", update_wrapper(entry, method))  # noqa: B010


def isolated_function(recorder: Recorder | None, function: Any, action: Callable[..., Any]) -> Callable[..., Any]:
    """`action` with a barrier, for instrumented code to call in place of `function`.  recorder: None if no recording is active."""
    if recorder is None:
        return action

    def called(*given: Any, **named: Any) -> Any:
        if recorder.stopped:
            return action(*given, **named)

        def retry() -> Any:
            plainly = {name: without_stand_ins(value, nested=False) for name, value in named.items()}
            return function(*[without_stand_ins(value, nested=False) for value in given], **plainly)

        return isolated_call(recorder, lambda: action(*given, **named), retry, function)

    return called


def isolated_question(recorder: Recorder, ask: Callable[..., Any]) -> Callable[..., Any]:
    """`ask` with a barrier, for the eager library to ask the recording something.  A defect gives None, the answer without a
    recording."""

    def asked(*given: Any) -> Any:
        try:
            return ask(*given)
        except Exception as error:
            if not is_defect(error, recorder):
                raise
            stop_for_defect(recorder, error)
            return None

    return asked


def isolated_context(cls: Any) -> Any:
    """Put barriers around `__enter__` and `__exit__` of a class that replaces context managers.  Its `manager` is the one that
    Python would enter."""
    for name in ("__enter__", "__exit__"):
        setattr(cls, name, _isolated_context(name, vars(cls)[name]))
    return cls


def _isolated_context(name: str, method: Any) -> Any:
    def entry(self: Any, *exception: Any) -> Any:
        recorder, manager = self._recorder, self.manager
        if recorder.stopped:
            return method(self, *exception)
        target = getattr(type(manager), name)

        def result_after(what: Any, result: Any) -> Any:
            return result if getattr(what, "__self__", None) is manager else _after_call(what, result, target)

        recorder.performed = []
        try:
            return method(self, *exception)
        except Exception as error:
            if not is_defect(error, recorder):
                raise
            defect = error
        try:
            return resumed(recorder, defect, lambda: target(manager, *exception), result_after)
        finally:
            del defect

    return update_wrapper(entry, method)


def isolate_numbers(cls: type) -> None:
    """Put barriers around the special methods of a class of stand-ins of numbers, which C code and the library call, too."""
    for name, method in list(vars(cls).items()):
        if type(method) is FunctionType and name.startswith("__") and name not in ("__init__", "__getattr__", "__reduce_ex__"):
            setattr(cls, name, _isolated_number(method))


def _isolated_number(method: Any) -> Any:
    does_as_python(method)

    def resume(error: Exception, self: Any, *given: Any, **named: Any) -> Any:
        try:
            return _evaluate_eagerly(self._recorder, error, lambda: method(self, *given, **named))
        finally:
            del error

    def entry(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return method(self, *given, **named)
        except Exception as error:
            if self._recorder.stopped or not is_defect(error, self._recorder):
                raise
            defect = error
        try:
            return resume(defect, self, *given, **named)
        finally:
            del defect

    return update_wrapper(entry, method)


# -- the result of an entry point after a performed operation (`result_after` of `resumed`), by the kind of entry point
def _after_call(what: Any, result: Any, function: Any) -> Any:
    """The entry point calls `function`.  That has been done by a call of it, by an action of a handler whose closure has it, or
    by a change of the container whose method it is."""
    chain = _call_chain(function)
    if any(what is f for f in chain):
        return result
    closure = list(_closure_values(what))
    if any(f is value or (type(f) in _BOUND and type(f) is type(value) and f == value) for value in closure for f in chain):
        return result
    name = _name_of(function)
    if type(function) is BuiltinFunctionType and function in _SPECIAL and _name_of(what) in _SPECIAL[function]:
        return _CONVERSIONS.get(function, lambda result: result)(result)
    owner = getattr(function, "__self__", None) if type(function) is BuiltinFunctionType else None
    if owner is None or not any(value is owner for value in closure):
        return _UNKNOWN
    if any(
        value == name if type(value) is str else _name_of(value) == name
        for value in closure
        if not isinstance(value, _CONTAINERS)
    ):
        return result
    return None if name in _CHANGING_METHODS else _UNKNOWN


def _closure_values(action: Any) -> Iterator[Any]:
    """The values in the closure of an action of a handler, and in the closures of actions among these."""
    if _is_action(action):
        for cell in action.__closure__ or ():
            yield cell.cell_contents
            yield from _closure_values(cell.cell_contents)


_SPECIAL: Final[dict[Any, tuple[str, ...]]] = {
    iter: ("__iter__",), next: ("__next__",), len: ("__len__",), hash: ("__hash__",), abs: ("__abs__",), round: ("__round__",),
    getattr: ("__getattr__", "__getattribute__", "__get__"),
}  # fmt: skip
"""Builtins that call a special method."""
_CONVERSIONS: Final[dict[Any, Callable[[Any], Any]]] = {
    len: lambda value: len(SpecialMethodStub(value)),
    hash: lambda value: hash(SpecialMethodStub(value)),
}
"""How they convert its result, if they do."""
_BOUND: Final = (MethodType, BuiltinFunctionType)
"""Types of bound methods: each read of `owner.method` creates a new object."""
_CONTAINERS: Final = (list, dict, set, tuple, deque)
_CHANGING_METHODS: Final = frozenset({"sort", "remove", "reverse", "extend", "clear", "insert", "append"})
"""Methods of lists that return None and change the list once."""


def _call_chain(function: Any) -> list[Any]:
    """`function`, then the functions that a call of it calls one after the other: inside a bound method, a partial, a compiled
    function or an object with `__call__`."""
    chain = []
    while function is not None:
        chain.append(function)
        cls = type(function)
        if cls is MethodType:
            function = function.__func__
        elif cls is partial:
            function = function.func
        elif cls in INLINED_TYPES:
            function = function.__wrapped__
        elif cls is not FunctionType and type(vars(cls).get("__call__")) is FunctionType:
            function = vars(cls)["__call__"]
        else:
            function = None
    return chain


def _name_of(what: Any) -> str:
    return getattr(what, "__name__", "") if not _is_action(what) else ""


def _is_action(what: Any) -> bool:
    """Whether `what` is an action of a handler, which runs C code.  Unless it calls or changes something for user code, it may be
    done again."""
    return type(what) is FunctionType and what.__code__.co_filename.startswith(CAPTURE)


def _after_interpreter(what: Any, result: Any, given: tuple[Any, ...]) -> Any:
    """The entry point is a method of the interpreter, with the arguments `given`.  It has been done by an operation among them,
    or by a call of the first one."""
    if any(what is value for value in given):
        return result
    if _is_action(what):
        return _REPEATABLE
    outcome = _after_call(what, result, given[0]) if given and callable(given[0]) else _UNKNOWN
    return result if outcome is _UNKNOWN and len(given) > 1 and _name_of(what) == given[1] else outcome


def _after_store(what: Any, result: Any, value: Any, owner: Any, *key: Any) -> Any:
    return _after_deletion(what, result, owner)


def _after_deletion(what: Any, result: Any, owner: Any, *key: Any) -> Any:
    return _REPEATABLE if _is_action(what) and not any(value is owner for value in _closure_values(what)) else None


def _after_binding(what: Any, result: Any, *given: Any) -> Any:
    return _REPEATABLE


def _after_attribute(what: Any, result: Any, *given: Any) -> Any:
    return _REPEATABLE if _is_action(what) else result


def _after_item(what: Any, result: Any, *given: Any) -> Any:
    if _is_action(what):
        return _REPEATABLE
    return result if _name_of(what) in ("__getitem__", "__missing__", "__class_getitem__") else _UNKNOWN


def _after_operator(what: Any, result: Any, symbol: str, *operands: Any) -> Any:
    if _is_action(what):
        return _REPEATABLE
    if symbol in ("in", "not in") and _name_of(what) == "__contains__":
        return bool(plain_value(result)) is (symbol == "in")
    name = SPECIAL_NAMES.get(symbol)
    names = (f"__{name}__", f"__r{name}__", f"__i{name}__", f"__{SPECIAL_NAMES.get(SWAPPED.get(symbol, ''))}__")
    return result if _name_of(what) in names and result is not NotImplemented else _UNKNOWN


def _after_update(what: Any, result: Any, symbol: str, left: Any, right: Any) -> Any:
    if not _is_action(what):
        return _after_operator(what, result, symbol, left, right)
    if result is NotImplemented:
        return _REPEATABLE
    closure = list(_closure_values(what))
    if isinstance(left, _CONTAINERS) and any(value is left for value in closure):
        return left
    return result if any(value is IN_PLACE[symbol] for value in closure) else _REPEATABLE


def _after_unary(what: Any, result: Any, name: str, value: Any) -> Any:
    return _REPEATABLE if _is_action(what) else result if _name_of(what) == f"__{name}__" else _UNKNOWN


def _after_truth(what: Any, result: Any, value: Any, *given: Any) -> Any:
    return _REPEATABLE if _is_action(what) else bool(plain_value(result)) if _name_of(what) == "__bool__" else _UNKNOWN


def _after_negation(what: Any, result: Any, value: Any) -> Any:
    outcome = _after_truth(what, result, value)
    return outcome if outcome is _UNKNOWN or outcome is _REPEATABLE else not outcome


def _after_iteration(what: Any, result: Any, *given: Any) -> Any:
    return _REPEATABLE if _is_action(what) else result if _name_of(what) == "__iter__" else _UNKNOWN


def _after_text(what: Any, result: Any, *given: Any) -> Any:
    return result if type(what) is partial else _after_reading(what, result, *given)  # a partial formats a value


def _after_reading(what: Any, result: Any, *given: Any) -> Any:
    return _REPEATABLE if _is_action(what) else _UNKNOWN


_RESULTS_AFTER: Final[dict[str, Callable[..., Any]]] = {
    "attribute": _after_attribute, "item": _after_item, "binary": _after_operator, "compare": _after_operator,
    "in_place": _after_update, "iterate": _after_iteration, "steps": _after_iteration, "formatted": _after_text,
    "unary": _after_unary, "truth": _after_truth, "negated": _after_negation,
    "set_attribute": _after_store, "set_item": _after_store, "delete_attribute": _after_deletion, "delete_item": _after_deletion,
    "store_global": _after_binding, "store_free": _after_binding,
}  # fmt: skip
"""The functions above, by the names of the entry points of `CaptureFrame`; others have `_after_reading`."""

isolate_numbers(SymbolicNumber)
isolate_callbacks(RecordedCallback)
