"""One recorded call, from start to end.

`record` makes a recorder current for this thread, pushes its interpreter, begins to watch the thread's frames
(cpython/call_hook.py) and calls the function through the recorder: a real eager run.  Threads do not see each other's recordings.

The watch catches what the instrumentation has missed: Python code that runs without being instrumented stops the recording.  So
does code that the user's code has not called (signal handlers, finalizers).  While the watch is off, tensor operations are not
recorded.

A signal handler may raise after any call.  Whatever is raised, everything that a recording has changed in its thread and in the
process is restored.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

from tracejit.autograd.anomaly import go_on
from tracejit.autograd.tape import next_sequence
from tracejit.capture import reasons
from tracejit.capture.call_sites import call_of_program
from tracejit.capture.defects import does_as_python, is_defect, isolated_call, stop_for_defect
from tracejit.capture.frame import current
from tracejit.capture.handlers.recorder import Recorder
from tracejit.capture.handlers.symbols import concretise
from tracejit.capture.policies import IDENTITY_TYPES, INLINED_TYPES, is_library_module
from tracejit.capture.recording.entry import Recording
from tracejit.capture.recording.facts import Earlier, parameters
from tracejit.capture.recording.finish import finish
from tracejit.capture.syntax.convert import convert, is_instrumented
from tracejit.capture.syntax.locate import NotConvertible
from tracejit.capture.tensors import NodeObserver, RecordingInterpreter
from tracejit.capture.tracebacks import without_handlers as _without_recorder
from tracejit.core import dtypes
from tracejit.core.compiler import disabled_name, is_disabled
from tracejit.core.garbage_collection import collection_paused
from tracejit.core.interpreter import pushed_anywhere, state
from tracejit.core.interrupts import covers_its_entry
from tracejit.core.package_files import CAPTURE, is_own_code
from tracejit.core.recursion import frames_left, room
from tracejit.cpython import call_hook
from tracejit.cpython.size_table import Reach, sized_among
from tracejit.replay.ir import Constant, Expr, ListOf, Name
from tracejit.tensor import Tensor

__all__ = [
    "declare_inlined",
    "integers_among",
    "is_recording",
    "record",
    "recording_obstacle",
    "tensors_among",
    "tensors_and_integers_among",
]

T = TypeVar("T")

_TRANSPARENT_MODULES = frozenset({"abc", "_py_abc", "enum", "importlib", "importlib._bootstrap", "importlib._bootstrap_external"})
_LEAST_FRAMES, _FRAMES = 64, 400  # frames that must be left below the recursion limit; frames that a recording makes room for
_EAGER_DEPENDENCIES = frozenset({"llvmlite", "numpy", "scipy"})  # llvmlite compiles kernels of eager mode


def is_recording() -> bool:
    """Whether a recording is active in this thread."""
    recorder = current.recorder
    return recorder is not None and not recorder.stopped


def declare_inlined(cls: type) -> None:
    """Declare that calling an instance of `cls` is calling the function in its `__wrapped__`."""
    INLINED_TYPES.add(cls)


class Session(Recorder):
    """The recorder of one call, with the watch over its frames."""

    def __init__(self, hold: collection_paused) -> None:
        """hold: pauses the garbage collector during the recording."""
        super().__init__()
        self.frames = call_hook.CallWatch(self._check)
        self.is_watching = False
        self._hold = hold
        self._release_is_pending = False
        # Imports in progress or failed, by (module, attribute) -> the condition under which they would succeed.
        self._missing: dict[tuple[str, str | None], Expr] = self.journal.dictionary()

    def stop(self, code: str, detail: str, *, in_handler: bool = False) -> None:
        """Stop the recording for a reason.  in_handler: whether code that interrupted a handler is the cause.  The handler still
        uses what the recording keeps alive, so that is released by the next `release_after_handler`."""
        if not self.stopped:
            super().stop(code, detail)
            self.unhook()
            self._release_is_pending = True
            if not in_handler:
                self.release_after_handler()
            self._hold.end()  # the program may ask whether the collector is on

    def release_after_handler(self) -> None:
        """Release what a stopped recording keeps alive, if that has been put off.  Called when no handler is running."""
        if self._release_is_pending:
            self._release_is_pending = False
            self.release()

    def empty(self) -> None:
        """Drop all references at the end, so that objects of the call die now, as they would after an eager call."""
        self.journal.release()
        vars(self).clear()
        self.stopped = True  # stand-ins of numbers that user code still has read this attribute

    def hook(self) -> None:
        """Begin to watch for Python code that runs without being instrumented."""
        self.is_watching = True
        self.frames.begin()
        if not self.is_watching:  # something stopped the recording before the watch was on
            self.frames.end()

    def unhook(self) -> None:
        """End the watch."""
        if self.is_watching:
            profiler = self.frames.profiler()
            self.frames.end()
            self.is_watching = False
            if profiler is not None:  # another thread has set one for all threads
                self.stop("profiler_active", repr(profiler))

    def release_stand_ins(self, *others: Any) -> None:
        super().release_stand_ins(*others, *_variables_of_the_program())

    @does_as_python
    def unwatched(self, action: Callable[[], Any]) -> Any:
        """The result of `action`, which is not a part of the user's code: neither watched nor recorded."""
        hooked, top = self.is_watching, state.top
        try:
            state.top = state.base  # before the watch ends, and until it is on again: unwatched code must not be recorded
            self.unhook()
            return action()
        finally:
            try:
                if hooked and not self.stopped:
                    self.hook()
            finally:
                state.top = top

    def _check(self, code: CodeType, names: dict[str, Any]) -> bool:
        """Stop the recording if `code`, which is about to run with the globals `names`, should have been instrumented.  Returns
        whether it may call user code: its frame is then evaluated without specialised instructions, so that no call is hidden
        from the watch."""
        if self.stopped or call_hook.is_allowed(code):
            return False
        try:
            return self._is_allowed(code, names)
        except Exception as error:  # user code would see it raised by the call of `code`
            if not is_defect(error, self):
                raise
            stop_for_defect(self, error)
            return False

    def _is_allowed(self, code: CodeType, names: dict[str, Any]) -> bool:
        if is_instrumented(code):
            call_hook.allow(code, lasting=False)
            return False
        name = names.get("__name__", "")
        if is_library_module(name):
            own = is_own_code(code)  # other code may run with other globals next time
            if own or names is getattr(sys.modules.get(name), "__dict__", None):  # such as methods generated by dataclasses
                call_hook.allow(code, lasting=own)
            return False
        if name in _TRANSPARENT_MODULES:
            return True
        caller = sys._getframe(2)
        if self.native_depth:
            package = name.partition(".")[0]
            if package in _EAGER_DEPENDENCIES or package in sys.stdlib_module_names or package.startswith("namedtuple_"):
                return True
            if _is_importing(caller):  # the library imports a module for the first time, through import hooks of other packages
                return True
        what, call = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})", call_of_program()
        if call:  # name the call in the user's line that led here
            what = f"{call}() calls {name}.{code.co_qualname}(), which cannot be followed"
        self.stop("implicit_python", what, in_handler=_in_handler(caller))
        return False

    # -- the start
    def root(self, function: Any) -> None:
        """Register the compiled function, and the instance of a method, as the first objects from outside; all others are reached
        from these and from the arguments."""
        if self.is_outside(function):
            return
        if not self.compiled:
            self.facts.parameters = parameters(function)
        name = self.constant(function)
        self.compiled.add(name.name)
        self.register(function, name)
        if type(function) is MethodType:
            if not isinstance(function.__self__, type):
                self.register(function.__self__, name.get("__self__"))
                self._root_instance(function.__self__, name.get("__self__"))
            self.root(function.__func__)
        elif not isinstance(function, (FunctionType, *IDENTITY_TYPES)):
            self._root_instance(function, name)

    def begin(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: Collection[tuple[int, int]], reach: Reach
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Register the function and read its arguments.  Returns the arguments that the run gets, with stand-ins for numbers."""
        self.root(function)
        integers, expressions = self.instances_among(int, args, kwargs, reach)
        self.await_integers(expressions)
        positional, named = self.arguments(args, kwargs)
        if dynamic:
            tensors, names = self.instances_among(Tensor, args, kwargs, reach)
            for tensor, called in zip(tensors, names, strict=True):
                self.facts.name_object(tensor, called)
            named_integers = list(zip(integers, expressions, strict=True))
            self.sizes.begin(tensors, list(map(self.facts.name, tensors)), named_integers, dynamic)
        return positional, named

    def _root_instance(self, instance: Any, expression: Expr) -> None:
        """Guard the class of the instance that is compiled, or whose method is.  The instance is always the same object, but its
        `__class__` may be assigned."""
        self.distinct_objects.append(expression)
        self.facts.note("type", "the instance that is called", type(instance).__qualname__)
        self.miss_if(expression.type().is_not(self.constant(type(instance))))

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Guard modes and the number and names of arguments, and read the arguments.  Returns them as the run gets them."""
        self.namespace["default_names"] = dtypes.__dict__
        given, named = Name("args"), Name("kwargs")
        other_names = Name("list").call(named).differs(ListOf(tuple(map(Constant, kwargs)))) if kwargs else named
        self.miss_if(given.length().differs(len(args)).otherwise(other_names))
        self.identities.note_placeless(kwargs)
        self.facts.note("mode", "the arguments", f"{len(args)} by position{''.join(f', {name}' for name in kwargs)}")
        self.miss_if(Name("state").get("grad_enabled").is_not(state.grad_enabled))
        self.facts.note("mode", "grad mode", str(state.grad_enabled))
        self.facts.note("mode", "autocast or the default dtype", f"{state.autocast}, {dtypes.default_dtype()}")
        default = self.constant(dtypes.default_dtype())
        if dtypes.autocast_was_made():
            self.miss_if(Name("state").get("autocast").is_not(self.constant(state.autocast)))
            self.miss_if(Name("default_names").at("_default").is_not(default))
        else:
            self.miss_if(Name("default_names").at("_without_autocast").is_not(default))

        def read(value: Any, expression: Expr, key: int | str) -> Any:
            return self.read(value, expression, called=self.facts.argument(key), symbolic=True, argument=True)

        positional = tuple(read(a, given.at(i), i) for i, a in enumerate(args))
        others = {k: read(a, named.at(k), k) for k, a in kwargs.items()}
        return positional, others

    def instances_among(
        self, cls: type[T], args: tuple[Any, ...], kwargs: dict[str, Any], reach: Reach
    ) -> tuple[list[T], list[str]]:
        """The instances of `cls` among the arguments, or in what these lead to (`Reach`), and the name of each in the function (`n`,
        `config.width`).  Does not read them: no guards are added."""
        keys: list[int | str] = [*range(len(args)), *kwargs]
        instances, names = sized_among((*args, *kwargs.values()), cls, reach=reach), []
        for _, (key, *steps) in instances:
            called = self.facts.argument(keys[key])
            for container, key in zip(steps[::2], steps[1::2], strict=True):
                self.facts.name_object(container, called)
                named = self.facts.item if isinstance(container, (tuple, list, dict)) else self.facts.attribute
                called = named(container, key)
            names.append(called)
        return [x for x, _ in instances], names

    # -- the rest of the handlers
    def importing(self, name: str, attribute: str | None) -> None:
        """An import statement is about to run.  It may fail, and user code may catch the error: then later calls are guarded by
        the absence of the module or attribute."""
        module = sys.modules.get(name)
        if module is None:
            self._missing[name, None] = self.constant(sys.modules).has(name)
        elif attribute is not None and attribute not in module.__dict__:
            self._missing[name, attribute] = self.constant(module.__dict__).has(attribute)

    def release_created(self) -> None:
        for condition in self._missing.values():
            self.miss_if(condition)
        super().release_created()

    def imported(self, module: ModuleType, name: str, attribute: str | None) -> None:
        """An import statement has bound a module, or one of its attributes, to a local name."""
        self._missing.pop((name, None), None)
        self._missing.pop((name, attribute), None)
        self.read(module, self.constant(sys.modules).at(name))
        if attribute is not None and attribute in module.__dict__:
            concretise(self.effects.read_global(module.__dict__, attribute, module.__dict__[attribute]))


def _variables_of_the_program() -> list[Any]:
    """The values of the local variables of all instrumented functions that are running in this thread."""
    values: list[Any] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_instrumented(frame.f_code):
            variables = frame.f_locals
            values += variables.values()
            if type(variables) is dict and frame.f_code.co_flags & CO_OPTIMIZED:  # a copy that the frame would keep alive
                variables.clear()
        frame = frame.f_back
    return values


def _is_importing(frame: FrameType | None) -> bool:
    """Whether an import runs in `frame` or in one that it was called from, up to the innermost instrumented function."""
    while frame is not None and not is_instrumented(frame.f_code):
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def _in_handler(frame: FrameType | None) -> bool:
    """Whether a handler or the recording interpreter is running in `frame` or in one that it was called from, up to the innermost
    instrumented function.  It may have called the code on purpose, or a signal handler or finalizer has interrupted it."""
    while frame is not None and not is_instrumented(frame.f_code):
        if frame.f_code.co_filename.startswith(CAPTURE):
            return True
        frame = frame.f_back
    return False


class _RecordingScope:
    """A `with` block that restores what a recording changes in its thread.

    CPython runs signal handlers neither between assignments in a row nor before a call that follows them.  So `__exit__` spells
    out its assignments instead of calling `pop`."""

    __slots__ = ("_interpreter", "_previous", "_pushed", "_session", "_top")

    def __init__(self, session: Session, interpreter: RecordingInterpreter) -> None:
        self._session = session
        self._interpreter = interpreter
        self._previous = current.recorder
        self._top = state.top
        self._pushed = False

    def __enter__(self) -> _RecordingScope:
        return self

    def begin(self) -> None:
        """Make the session the current recorder of the thread."""
        current.recorder = self._session

    def push(self) -> None:
        """Begin to record tensor operations."""
        self._pushed = True
        pushed_anywhere[0] += 1
        state.top = self._interpreter

    def pop(self) -> None:
        """End the recording of tensor operations."""
        if self._pushed:
            self._pushed = False
            pushed_anywhere[0] -= 1
            state.top = self._top

    @covers_its_entry
    def __exit__(self, *exception: object) -> None:
        try:
            del exception
        finally:
            session = self._session
            session.stopped = True
            session.sizes.end()
            current.recorder = self._previous
            if self._pushed:
                self._pushed = False
                pushed_anywhere[0] -= 1
                state.top = self._top
            try:
                deque(self._interpreter.restoring, 0)
            finally:
                session.is_watching = False
                session.frames.end()


class _Absorbing:
    """A `with` block around a part of a recording that runs no user code: an error in it is a defect, which stops the
    recording."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        self._session.performed = []

    def __exit__(self, cls: Any, error: Any, traceback: Any) -> bool:
        if error is None or not is_defect(error, self._session):
            return False
        stop_for_defect(self._session, error)
        return True


def recording_obstacle(function: Any) -> reasons.Reason | None:
    """The reason why `function` cannot be recorded, as far as that is known before it runs; None if nothing is known."""
    with room(_FRAMES):  # the first time, this looks at how this Python is built
        profiler = call_hook.obstacle()
    if profiler is not None:
        return reasons.make("profiler_active", repr(profiler))
    if frames_left() < _LEAST_FRAMES:
        return reasons.make("recursion_limit", f"less than {_LEAST_FRAMES} frames of {sys.getrecursionlimit()} are left")
    while type(function) is MethodType:
        function = function.__func__
    if type(function) is FunctionType and is_disabled(function):
        return reasons.make("disabled", disabled_name(function))
    if type(function) is FunctionType and function.__code__.co_filename != "<string>":
        if is_library_module(function.__globals__.get("__name__")):
            return None
        try:
            convert(function.__code__, function.__globals__)
        except NotConvertible as error:
            return reasons.make(error.code, error.detail, f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}")
    return None


def record(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    observer: NodeObserver | None = None,
    dynamic: Collection[tuple[int, int]] = (),
    earlier: Earlier | None = None,
    follows_rows: bool = False,
    may_give_up: bool = False,
    gives_up_soon: bool = False,
    may_outline: bool = False,
    reach: Reach = Reach.ALL,
    branching_lines: Mapping[CodeType, frozenset[int]] | None = None,
) -> tuple[Recording, Any]:
    """Run `function(*args, **kwargs)` eagerly and record it.  Returns (recording, result).

    observer: called with each operation.
    dynamic: which dimensions of the tensors of `tensors_among`, and which integers of `integers_among`, are symbolic sizes in the
        recording.
    earlier: values that earlier recordings of the function have read (recording/facts.py).
    follows_rows: see RaggedHandlers.
    may_give_up: whether to stop a recording whose path no later call would take (branches.py).
    gives_up_soon: whether few steps of a loop are enough for that.
    may_outline: whether the next recording may outline loops.
    reach: which tensors and integers these are.
    branching_lines: by code of functions, the lines around which loops are outlined (branching_loops.py).

    What the function raises reaches the caller as in an eager call; there is no recording then."""
    if (profiler := call_hook.obstacle()) is not None:
        return Recording(reasons.make("profiler_active", repr(profiler))), function(*args, **kwargs)
    try:
        with room(_FRAMES):
            return _recorded(
                function,
                args,
                kwargs,
                observer,
                dynamic,
                earlier,
                follows_rows,
                may_give_up,
                gives_up_soon,
                may_outline,
                reach,
                branching_lines,
            )
    except BaseException as error:
        _without_recorder(error)
        raise error  # this frame in the traceback tells without_dispatch where the error came from


def integers_among(args: tuple[Any, ...], kwargs: dict[str, Any], reach: Reach = Reach.ALL) -> list[int]:
    """The integers that are arguments, or in what these lead to (`Reach`)."""
    return [x for x, _ in sized_among((*args, *kwargs.values()), int, reach=reach)]


def tensors_and_integers_among(
    args: tuple[Any, ...], kwargs: dict[str, Any], reach: Reach = Reach.ALL
) -> tuple[list[Tensor], list[int]]:
    """The results of `tensors_among` and of `integers_among`, from one walk."""
    values = [x for x, _ in sized_among((*args, *kwargs.values()), Tensor, int, reach=reach)]
    return [x for x in values if type(x) is not int], [x for x in values if type(x) is int]


def tensors_among(args: tuple[Any, ...], kwargs: dict[str, Any], reach: Reach = Reach.ALL) -> list[Tensor]:
    """The tensors that are arguments, or in what these lead to (`Reach`)."""
    return [x for x, _ in sized_among((*args, *kwargs.values()), Tensor, reach=reach)]


def _recorded(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    observer: NodeObserver | None,
    dynamic: Collection[tuple[int, int]],
    earlier: Earlier | None,
    follows_rows: bool,
    may_give_up: bool,
    gives_up_soon: bool,
    may_outline: bool,
    reach: Reach,
    branching_lines: Mapping[CodeType, frozenset[int]] | None,
) -> tuple[Recording, Any]:
    modes = state.grad_enabled, state.autocast
    hold = collection_paused()
    session = Session(hold)
    is_settled = False
    try:
        interpreter = RecordingInterpreter(session, next_sequence(), observer)
        with hold, _RecordingScope(session, interpreter) as run:
            hold.begin()  # a collection would run finalizers and callbacks in the middle of the user's code
            call_hook.forget()
            run.begin()
            session.facts.earlier = earlier or {}
            session.ragged.follows_rows = follows_rows
            branches = session.branches
            branches.may_give_up, branches.gives_up_soon, branches.may_outline = may_give_up, gives_up_soon, may_outline
            session.calls.branching_lines = dict(branching_lines or {})
            positional, named = args, kwargs
            with _Absorbing(session):
                positional, named = session.begin(function, args, kwargs, dynamic, reach)
                session.hook()
                run.push()  # after the watch is on: unwatched code must not be recorded
            action = partial(session.calls.call, function, positional, named)
            result = isolated_call(session, action, partial(function, *args, **kwargs), function)
            run.pop()
            session.unhook()
            recording = Recording(None)
            with _Absorbing(session):
                session.release_created()
                session.sizes.end()
                recording = finish(session, interpreter, result, modes)
            call_hook.forget()
        refused: list[Any] = []
        with _Absorbing(session):
            result = session.without_stand_ins(result, refused.append)
            session.without_stand_ins(None)
            session.effects.release_stored_objects()
            is_settled = True
        if refused and recording.reason is None:
            recording = Recording(reasons.make("unbuildable", f"{type(refused[0]).__name__} that keeps what is in it"))
        return (recording if session.defect is None else Recording(session.defect)), result
    except BaseException as error:
        session.release_stand_ins(error)  # the error may lead to objects that hold stand-ins
        raise
    finally:
        go_on()
        try:
            if not is_settled:
                session.without_stand_ins(None)
                session.effects.release_stored_objects()
        finally:
            session.empty()
