"""Defects of the recorder: what happens where an error comes out of the code that records, and is none of the program's.

Instrumented code calls *entries*: methods of `Frame`, callables that handlers return, methods of the interpreter of the recording.  An
entry does what the program asks for and takes note of it.  `guarded_entries`, `guarded_call` and their like put a guard around entries; no
handler needs one of its own.  A guard acts on an exception of class Exception in three steps:

1. Whose is it?  The program's, if the last frame in the traceback is one of the program or of the eager library, if a handler has raised
   it by a `raise` of its own, as Python does (`max([])`), if an operation of the program has raised it (`Recorder.performed` says so), or
   if Python raises one of the same class for the same operation.  Then it passes on unchanged.
2. The recording stops with the reason "recording_defect": the error and its place.  With `config.verify`, `InternalError` is raised.
3. The call goes on as in eager mode.  Where nothing was done yet, Python does the operation.  What the program cannot have done twice (a
   call of its functions, a call of C code, a change of a container, a write, a draw) is in `Recorder.performed` with its result.  Where
   that is what the program asked for, it is the result of the entry.

Where only a part has been done (one of the comparisons of a sort, say), nobody knows what is missing, and doing it all would do that
part twice: the entry raises `InternalError`, which says so.  An error of a class that Python's own operations raise is taken for the
program's there, since it cannot be told whose it is.

RecursionError and MemoryError say nothing about the code that raises them: they are the program's.

It must not know what handlers do.
"""

from __future__ import annotations

import dis
import inspect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial, update_wrapper
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tracejit.capture import reasons
from tracejit.capture.call_sites import user_line
from tracejit.capture.handlers.said import Said
from tracejit.capture.handlers.stand_ins import plain_value, without_stand_ins
from tracejit.capture.handlers.symbols import RecordedCallback, SymbolicNumber
from tracejit.capture.policies import IN_PLACE, INLINED_TYPES, SPECIAL_NAMES, SWAPPED
from tracejit.capture.syntax.locate import NotConvertible
from tracejit.config import config
from tracejit.core.package_files import CAPTURE, PACKAGE, is_own_frame, own_folder
from tracejit.ir.interpreter import StepFailed

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = [
    "BEGUN", "CONSUMED", "EAGER", "RAISED", "InternalError", "Performed", "does_as_python", "guarded_call", "guarded_context",
    "guarded_entries", "guarded_function", "guarded_interpreter", "guarded_question", "is_defect", "note_raised", "place_of",
    "resumed_call", "stop_for_defect",
]  # fmt: skip


F = TypeVar("F", bound=Any)
Performed = list[tuple[Any, Any] | tuple[Any, Any, bool]]
"""What an entry has had done of the program's: what it was, and its result; True where it may be done again."""


class InternalError(Exception):
    """A defect of tracejit: an error of its own code that records, whose place it names.  The error itself is its cause.

    It is raised where `config.verify` is on, and where the program cannot go on, since a part of an operation has been done."""


RAISED: Final = object()
"""In `Recorder.performed`, with the id of an error: an operation of the program has raised it."""
BEGUN: Final = object()
"""In `Recorder.performed`, with an action: it was begun, and a handler has failed in the middle of it."""
CONSUMED: Final = object()
"""In `Recorder.performed`: an element of an iterator has been taken."""
EAGER: Final = (object(), None)
"""In `Recorder.performed`: the entry has found that the recording had stopped, and does what Python does."""

_OF_COMPILER: Final = tuple(map(own_folder, ("capture", "compiled", "ir", "passes", "loops", "lowering", "llvm", "replay")))
_CONTROL_FLOW: Final = (StopIteration, StopAsyncIteration, StepFailed, NotConvertible, InternalError)
"""What recording code raises on purpose."""
_OF_RESOURCES: Final = (RecursionError, MemoryError)
"""What says nothing about the code that raises it."""
_NEVER_PYTHONS: Final = (AssertionError, NotImplementedError, NameError)
"""What no operation of Python itself raises that a handler does for the program."""


# -- whose an error is
def is_defect(error: BaseException, recorder: Any) -> bool:
    """Whether an error that comes out of recording code may be one of that code: `resumed` tells for sure.  recorder: of the thread."""
    if recorder is None or not isinstance(error, Exception) or isinstance(error, (*_CONTROL_FLOW, *_OF_RESOURCES)):
        return False
    if recorder.performed and (recorder.performed[-1] is EAGER or _is_noted(recorder, error)):
        return False
    if type(error) is RuntimeError and isinstance(error.__cause__, StopIteration):  # that a generator of the program has raised
        return False
    last = _last_step(error)
    if last is None or not _is_of_compiler(error):
        return False
    return bool(error.args) or _raises(last.tb_frame.f_code, last.tb_lasti)


def _is_of_compiler(error: BaseException) -> bool:
    """Whether code that only recordings and compiled programs run has raised an error, not eager mode, which the program has called."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None:
        return False
    code, cls = step.tb_frame.f_code, type(error)
    if code.co_filename.startswith(CAPTURE) and cls.__module__ == "builtins" and not issubclass(cls, _NEVER_PYTHONS):
        return not _raises(code, step.tb_lasti)  # else a handler has raised it on purpose, as Python does
    return code.co_filename.startswith(_OF_COMPILER)


def note_raised(recorder: Recorder, error: Exception, action: Callable[[], Any]) -> None:
    """Note that an operation of the program has raised an error, which `action` does; or that a handler has, in the middle of it."""
    if _is_noted(recorder, error):
        return
    last = _last_step(error)
    code = None if last is None else last.tb_frame.f_code
    of_handler = code is not None and code.co_filename.startswith(CAPTURE) and code not in _OF_ENTRIES
    if of_handler and not code.co_flags & inspect.CO_NESTED:  # type: ignore[union-attr]  # else it is the action, which calls C code
        recorder.performed.append((BEGUN, action))
    else:
        recorder.performed.append((RAISED, id(error)))


def _is_noted(recorder: Recorder, error: BaseException) -> bool:
    """Whether it is known that an operation of the program has raised an error."""
    return bool(recorder.performed) and recorder.performed[-1][:2] == (RAISED, id(error))


def _last_step(error: BaseException) -> TracebackType | None:
    """Where in the traceback recording code has raised an error, or has called library code that has; None where the program's did."""
    found, step = None, error.__traceback__
    while step is not None:
        if not is_own_frame(step.tb_frame):
            found = None
        elif found is None or step.tb_frame.f_code.co_filename.startswith(CAPTURE):
            found = step
        step = step.tb_next
    return found


def _raises(code: CodeType, offset: int) -> bool:
    """Whether an instruction is a `raise`.  An error without arguments that none has raised comes from C code, or from another thread."""
    return dis.opname[code.co_code[offset]] in ("RAISE_VARARGS", "RERAISE")


def _is_raised_by_entry(error: BaseException) -> bool:
    """Whether Python's own operation, which an entry does in eager mode, has raised an error; not a handler that the entry has called."""
    last = _last_step(error)
    code = None if last is None else last.tb_frame.f_code
    return code is None or not code.co_filename.startswith(CAPTURE) or code.co_filename == __file__ or code in _OF_ENTRIES


_OF_ENTRIES: Final[set[CodeType]] = set()
"""Code of entries, which do what Python does where the recording has stopped."""


def does_as_python(function: F) -> F:
    """Mark a function that does an operation of the program as eager mode does: what is raised there is the program's."""
    _OF_ENTRIES.add(function.__code__)
    return function


def place_of(error: BaseException) -> str:
    """The file and the line of the library in which an error was raised, from the folder of the package on."""
    last = _last_step(error)
    if last is None:
        return ""
    filename = last.tb_frame.f_code.co_filename
    return f"{filename.replace(PACKAGE, 'tracejit/').replace(chr(92), '/')}:{last.tb_lineno}"


# -- after a defect
def stop_for_defect(recorder: Recorder, error: BaseException) -> None:
    """Stop the recording for a defect.  Raises InternalError where the library verifies itself."""
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    detail += f" ({place_of(error)})"
    try:
        recorder.stop("recording_defect", detail)
        recorder.program.forget()  # there may be weak references from now on
    except Exception as another:  # of what ends a recording: that it has stopped is what counts
        detail += f", and then {type(another).__name__}: {another} ({place_of(another)})"
        recorder.stopped = True
    recorder.defect = recorder.reason = reasons.make("recording_defect", detail, user_line())
    if config.verify:
        raise InternalError(f"a defect of tracejit: {detail}") from error


def resumed(
    recorder: Recorder,
    error: Exception,
    retry: Callable[[], Any],
    answers: Callable[[Any, Any], Any],
    operands: Sequence[Any] = (),
) -> Any:
    """What an entry gives whose handler has raised an error, after `is_defect`.

    retry: does the operation as eager mode does, where the recording has stopped.  answers: what the entry gives after a performed
    operation of the program, given that and its result; _UNKNOWN where that was only a part; _REPEATABLE where it may be done again.
    operands: what C code of the operation goes through.  There are stand-ins of numbers in containers until the recording stops, so it
    stops before the operation is done again."""
    try:
        answer = _UNKNOWN if any(map(_is_under_way, operands)) else _REPEATABLE
        for what, result, *is_repeatable in reversed(recorder.performed):
            if what is RAISED:
                continue
            found = _after(what, result, answers)
            if found is not _REPEATABLE and not (is_repeatable and found is _UNKNOWN):
                answer = found
                break
        in_containers = not isinstance(error, AttributeError) and any(isinstance(x, _CONTAINERS) for x in operands)
        if answer is _UNKNOWN and not _is_certain(error):
            recorder.performed.append((RAISED, id(error)))
            raise error
        if answer is _REPEATABLE:
            return _done_eagerly(recorder, error, retry, in_containers)
        stop_for_defect(recorder, error)
        if answer is not _UNKNOWN:
            return without_stand_ins(answer, nested=False)
        raise InternalError(
            f"a defect of tracejit: {type(error).__name__}: {error} ({place_of(error)}), after a part of an operation of the program "
            f"had been done, which cannot be done again ({user_line()})"
        ) from error
    finally:
        del error  # whose traceback leads here


def _after(what: Any, result: Any, answers: Callable[[Any, Any], Any]) -> Any:
    """What an entry gives after an operation, or after one that was begun, or an element that was taken."""
    if what is BEGUN:
        return _REPEATABLE if answers(result, None) is _REPEATABLE else _UNKNOWN
    return _UNKNOWN if what is CONSUMED else answers(what, result)


def _is_under_way(value: Any) -> bool:
    """Whether it is a generator that has begun."""
    return type(value) is GeneratorType and inspect.getgeneratorstate(value) != inspect.GEN_CREATED


def _is_certain(error: Exception) -> bool:
    """Whether an error cannot be one of Python's own operations."""
    return isinstance(error, _NEVER_PYTHONS) and not _is_raised_by_entry(error)


_UNKNOWN: Final = object()
_REPEATABLE: Final = object()


def _done_eagerly(recorder: Recorder, error: Exception, retry: Callable[[], Any], in_containers: bool = False) -> Any:
    """The operation done by Python, of which nothing was done; what it raises is the program's, if the class is that of `error`: that is
    raised, and the recording goes on, if it need not stop before."""
    env, was_stopped = recorder.sizes.env, recorder.stopped
    result = own = None
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
                result = recorder.unwatched(lambda: _while_stopped(recorder, retry))
        except Exception as raised:
            own = raised
        finally:
            if env is not None:
                env.resume()
        if own is not None and type(own) is type(error) and _is_raised_by_entry(own):
            recorder.performed.append((RAISED, id(error)))
            raise error
        if not is_certain:
            stop_for_defect(recorder, error)
        if own is None:
            return without_stand_ins(result, nested=False)
        if _is_raised_by_entry(own):
            raise own
        raise InternalError(f"a defect of tracejit: {type(own).__name__}: {own} ({place_of(own)})") from own
    finally:
        del error, own  # whose tracebacks lead here


def _while_stopped(recorder: Recorder, action: Callable[[], Any]) -> Any:
    """What `action` gives where entries do what Python does."""
    recorder.stopped = True
    try:
        return action()
    finally:
        recorder.stopped = recorder.reason is not None


# -- guards
def guarded_entries(cls: type, current: Any, names: frozenset[str]) -> None:
    """Put guards around methods of the class that instrumented code talks to.  current: has the recorder of the thread."""
    for name in names:
        setattr(cls, name, _guarded_entry(name, vars(cls)[name], current))


def _guarded_entry(name: str, method: Any, current: Any) -> Any:
    answers = _ANSWERS.get(name, _of_reading)
    does_as_python(method)

    def go_on(error: Exception, *given: Any) -> Any:
        try:
            return resumed(
                current.recorder,
                error,
                lambda: method(*given),
                lambda what, result: answers(what, result, *given[1:]),
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
            return go_on(defect, *given)
        finally:
            del defect

    return update_wrapper(entry, method)


def guarded_call(recorder: Recorder, action: Callable[[], Any], retry: Callable[[], Any], function: Any) -> Any:
    """What `action` gives, which calls `function` for the program; retry: calls it as eager mode does."""
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
    """`resumed`, where the entry calls `function`."""
    try:
        return resumed(recorder, error, retry, lambda what, result: _of_call(what, result, function), arguments)
    finally:
        del error


def guarded_interpreter(cls: type, names: frozenset[str]) -> None:
    """Put guards around methods of the interpreter of a recording."""
    for name in names:
        owner = next(base for base in cls.__mro__ if name in vars(base))
        setattr(cls, name, _guarded_method(vars(owner)[name]))


def _guarded_method(method: Any) -> Any:
    does_as_python(method)

    def go_on(error: Exception, outer: Performed, count: int, self: Any, *given: Any) -> Any:
        try:
            return _resumed_within(
                self.recorder,
                error,
                outer,
                count,
                lambda: method(self, *given),
                lambda what, result: _of_interpreter(what, result, given),
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
            return go_on(defect, outer, count, self, *given)
        finally:
            del defect

    return update_wrapper(entry, method)


def _resumed_within(
    recorder: Recorder,
    error: Exception,
    outer: Performed,
    count: int,
    retry: Callable[[], Any],
    answers: Callable[[Any, Any], Any],
) -> Any:
    """`resumed`, of an entry in the middle of another one, which had performed the first `count` of `outer` before."""
    recorder.performed = outer[count:] if recorder.performed is outer else recorder.performed
    try:
        return resumed(recorder, error, retry, answers)
    finally:
        recorder.performed = outer + recorder.performed
        del error


def guarded_callback(cls: type) -> None:
    """Put a guard around calls of what C code has got in the place of a function of the program."""
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
            return _resumed_within(recorder, defect, outer, count, retry, lambda what, result: _of_call(what, result, function))
        finally:
            del defect

    setattr(cls, "__call__", update_wrapper(entry, method))  # noqa: B010


def guarded_function(recorder: Recorder | None, function: Any, action: Callable[..., Any]) -> Callable[..., Any]:
    """What instrumented code calls in the place of `function`: `action`, with a guard.  recorder: where a recording is active."""
    if recorder is None:
        return action

    def called(*given: Any, **named: Any) -> Any:
        if recorder.stopped:
            return action(*given, **named)

        def retry() -> Any:
            plainly = {name: without_stand_ins(value, nested=False) for name, value in named.items()}
            return function(*[without_stand_ins(value, nested=False) for value in given], **plainly)

        return guarded_call(recorder, lambda: action(*given, **named), retry, function)

    return called


def guarded_question(recorder: Recorder, ask: Callable[..., Any]) -> Callable[..., Any]:
    """`ask`, of which the eager library asks what only a recording knows: None is its answer without one."""

    def asked(*given: Any) -> Any:
        try:
            return ask(*given)
        except Exception as error:
            if not is_defect(error, recorder):
                raise
            stop_for_defect(recorder, error)
            return None

    return asked


def guarded_context(cls: Any) -> Any:
    """Put guards around how a stand-in of a context manager is entered and left.  Its `manager` is what Python would enter."""
    for name in ("__enter__", "__exit__"):
        setattr(cls, name, _guarded_context(name, vars(cls)[name]))
    return cls


def _guarded_context(name: str, method: Any) -> Any:
    def entry(self: Any, *exception: Any) -> Any:
        recorder, manager = self._recorder, self.manager
        if recorder.stopped:
            return method(self, *exception)
        asked = getattr(type(manager), name)

        def answers(what: Any, result: Any) -> Any:
            return result if getattr(what, "__self__", None) is manager else _of_call(what, result, asked)

        recorder.performed = []
        try:
            return method(self, *exception)
        except Exception as error:
            if not is_defect(error, recorder):
                raise
            defect = error
        try:
            return resumed(recorder, defect, lambda: asked(manager, *exception), answers)
        finally:
            del defect

    return update_wrapper(entry, method)


def guarded_numbers(cls: type) -> None:
    """Put guards around the special methods of a stand-in of numbers, which C code and the library call, too."""
    for name, method in list(vars(cls).items()):
        if type(method) is FunctionType and name.startswith("__") and name not in ("__init__", "__getattr__", "__reduce_ex__"):
            setattr(cls, name, _guarded_number(method))


def _guarded_number(method: Any) -> Any:
    does_as_python(method)

    def go_on(error: Exception, self: Any, *given: Any, **named: Any) -> Any:
        try:
            return _done_eagerly(self._recorder, error, lambda: method(self, *given, **named))
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
            return go_on(defect, self, *given, **named)
        finally:
            del defect

    return update_wrapper(entry, method)


# -- what answers an entry
def _of_call(what: Any, result: Any, function: Any) -> Any:
    """What a call of `function` gives after a performed operation: a call of its code, an action of a handler that holds it, or a change
    of the container whose method it is."""
    asked = _called_for(function)
    if any(what is f for f in asked):
        return result
    held = list(_closure_values(what))
    if any(f is value or (type(f) in _BOUND and type(f) is type(value) and f == value) for value in held for f in asked):
        return result
    name = _named(function)
    if type(function) is BuiltinFunctionType and function in _SPECIAL and _named(what) in _SPECIAL[function]:
        return _SAID.get(function, lambda said: said)(result)
    owner = getattr(function, "__self__", None) if type(function) is BuiltinFunctionType else None
    if owner is None or not any(value is owner for value in held):
        return _UNKNOWN
    if any(
        value == name if type(value) is str else _named(value) == name for value in held if not isinstance(value, _CONTAINERS)
    ):
        return result
    return None if name in _OF_CHANGES else _UNKNOWN


def _closure_values(action: Any) -> Iterator[Any]:
    """What an action of a handler has in its closure, and in those of the actions in it."""
    if _is_action(action):
        for cell in action.__closure__ or ():
            yield cell.cell_contents
            yield from _closure_values(cell.cell_contents)


_SPECIAL: Final[dict[Any, tuple[str, ...]]] = {
    iter: ("__iter__",), next: ("__next__",), len: ("__len__",), hash: ("__hash__",), abs: ("__abs__",), round: ("__round__",),
    getattr: ("__getattr__", "__getattribute__", "__get__"),
}  # fmt: skip
"""Builtins that ask a special method."""
_SAID: Final[dict[Any, Callable[[Any], Any]]] = {len: lambda said: len(Said(said)), hash: lambda said: hash(Said(said))}
"""What they make of what it says, where that is more than to pass it on."""
_BOUND: Final = (MethodType, BuiltinFunctionType)
"""Types of what is made anew each time that it is asked for."""
_CONTAINERS: Final = (list, dict, set, tuple, deque)
_OF_CHANGES: Final = frozenset({"sort", "remove", "reverse", "extend", "clear", "insert", "append"})
"""Methods of lists that give None, and are done when the list has been changed once."""


def _called_for(function: Any) -> list[Any]:
    """What a call of `function` comes to, step by step: what is bound, partial or compiled is another function."""
    found = []
    while function is not None:
        found.append(function)
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
    return found


def _named(what: Any) -> str:
    return getattr(what, "__name__", "") if not _is_action(what) else ""


def _is_action(what: Any) -> bool:
    """Whether it is C code that a handler runs: for anything but calls and updates, it may run again."""
    return type(what) is FunctionType and what.__code__.co_filename.startswith(CAPTURE)


def _of_interpreter(what: Any, result: Any, given: tuple[Any, ...]) -> Any:
    """What a method of the interpreter gives after an operation: one that it was given, or a call of what it was."""
    if any(what is value for value in given):
        return result
    if _is_action(what):
        return _REPEATABLE
    found = _of_call(what, result, given[0]) if given and callable(given[0]) else _UNKNOWN
    return result if found is _UNKNOWN and len(given) > 1 and _named(what) == given[1] else found


def _of_store(what: Any, result: Any, value: Any, owner: Any, *key: Any) -> Any:
    return _of_deletion(what, result, owner)


def _of_deletion(what: Any, result: Any, owner: Any, *key: Any) -> Any:
    return _REPEATABLE if _is_action(what) and not any(value is owner for value in _closure_values(what)) else None


def _of_binding(what: Any, result: Any, *given: Any) -> Any:
    return _REPEATABLE


def _of_attribute(what: Any, result: Any, *given: Any) -> Any:
    return _REPEATABLE if _is_action(what) else result


def _of_item(what: Any, result: Any, *given: Any) -> Any:
    if _is_action(what):
        return _REPEATABLE
    return result if _named(what) in ("__getitem__", "__missing__", "__class_getitem__") else _UNKNOWN


def _of_operator(what: Any, result: Any, symbol: str, *operands: Any) -> Any:
    if _is_action(what):
        return _REPEATABLE
    if symbol in ("in", "not in") and _named(what) == "__contains__":
        return bool(plain_value(result)) is (symbol == "in")
    name = SPECIAL_NAMES.get(symbol)
    names = (f"__{name}__", f"__r{name}__", f"__i{name}__", f"__{SPECIAL_NAMES.get(SWAPPED.get(symbol, ''))}__")
    return result if _named(what) in names and result is not NotImplemented else _UNKNOWN


def _of_update(what: Any, result: Any, symbol: str, left: Any, right: Any) -> Any:
    if not _is_action(what):
        return _of_operator(what, result, symbol, left, right)
    if result is NotImplemented:
        return _REPEATABLE
    held = list(_closure_values(what))
    if isinstance(left, _CONTAINERS) and any(value is left for value in held):
        return left
    return result if any(value is IN_PLACE[symbol] for value in held) else _REPEATABLE


def _of_unary(what: Any, result: Any, name: str, value: Any) -> Any:
    return _REPEATABLE if _is_action(what) else result if _named(what) == f"__{name}__" else _UNKNOWN


def _of_truth(what: Any, result: Any, value: Any, *given: Any) -> Any:
    return _REPEATABLE if _is_action(what) else bool(plain_value(result)) if _named(what) == "__bool__" else _UNKNOWN


def _of_negation(what: Any, result: Any, value: Any) -> Any:
    found = _of_truth(what, result, value)
    return found if found is _UNKNOWN or found is _REPEATABLE else not found


def _of_iteration(what: Any, result: Any, *given: Any) -> Any:
    return _REPEATABLE if _is_action(what) else result if _named(what) == "__iter__" else _UNKNOWN


def _of_text(what: Any, result: Any, *given: Any) -> Any:
    return result if type(what) is partial else _of_reading(what, result, *given)  # how what an object says is formatted


def _of_reading(what: Any, result: Any, *given: Any) -> Any:
    return _REPEATABLE if _is_action(what) else _UNKNOWN


_ANSWERS: Final[dict[str, Callable[..., Any]]] = {
    "attribute": _of_attribute, "item": _of_item, "binary": _of_operator, "compare": _of_operator, "in_place": _of_update,
    "iterate": _of_iteration, "steps": _of_iteration, "formatted": _of_text, "unary": _of_unary, "truth": _of_truth,
    "negated": _of_negation,
    "set_attribute": _of_store, "set_item": _of_store, "delete_attribute": _of_deletion, "delete_item": _of_deletion,
    "store_global": _of_binding, "store_free": _of_binding,
}  # fmt: skip
"""By the names of entries: what they give after a performed operation."""

guarded_numbers(SymbolicNumber)
guarded_callback(RecordedCallback)
