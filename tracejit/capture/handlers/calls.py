"""Calls: Python functions are converted and run; everything else goes by the policies of the closed world.

`callee` hands the instrumented frame something to call itself, so that tracebacks and recursion depth stay those of the program;
`call` makes a call for another handler.
"""

from __future__ import annotations

import collections
import decimal
import enum
import functools
import operator
import sys
import weakref
from collections.abc import Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, GeneratorType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.defects import RAISED, does_as_python, is_defect, resumed_call
from tracejit.capture.frame import CaptureFrame
from tracejit.capture.handlers.arrays import KINDS, of_numpy
from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.caches import CACHED, cache_of, key_expression, key_of
from tracejit.capture.handlers.classes import DESCRIPTORS
from tracejit.capture.handlers.constructions import construction
from tracejit.capture.handlers.dataclass_methods import dataclass_method
from tracejit.capture.handlers.effects import FunctionCall
from tracejit.capture.handlers.generators import draws
from tracejit.capture.handlers.keywords import as_given
from tracejit.capture.handlers.post_program import is_deferred_call_result, is_post_program
from tracejit.capture.handlers.printing import as_called_by_program
from tracejit.capture.handlers.stand_ins import plain, plain_value, without_stand_ins
from tracejit.capture.handlers.standard_calls import GETTERS
from tracejit.capture.handlers.symbols import (
    MethodOf,
    RecordedCallback,
    SuperProxy,
    SymbolicNumber,
    concrete,
    is_symbolic,
    is_symbolic_bool,
)
from tracejit.capture.handlers.texts import as_text
from tracejit.capture.policies import (
    C_CALLABLES,
    FRAME_FUNCTIONS,
    INDIFFERENT_LIBRARY,
    INLINED_TYPES,
    ITERATING_LIBRARY,
    KEEPING_LIBRARY,
    PRIMITIVE_TYPES,
    PURE_TYPES,
    REFUSED_LIBRARY,
    SAVING,
    builtin_base,
    is_a,
    is_heap_type,
    is_library_module,
    is_python_class,
    is_user_instance,
    makes_records,
)
from tracejit.capture.syntax.convert import CAPTURE, convert, is_instrumented
from tracejit.capture.syntax.locate import NotConvertible
from tracejit.core.compiler import disabled_name, is_disabled
from tracejit.core.dtypes import DType, default_dtype
from tracejit.replay.ir import Name
from tracejit.tensor import Tensor, fill
from tracejit.tensor.construction import as_tensor
from tracejit.tensor.legacy import LegacyType

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["CallHandlers"]


def _class_arguments(cls: type, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments for `cls`: a new class belongs to the module of the program, which Python takes from the frame that calls."""
    if not issubclass(cls, type) or len(arguments) != 3 or not is_a(arguments[2], dict):
        return arguments
    frame = sys._getframe(1)
    while frame.f_back is not None and not is_instrumented(frame.f_code):
        frame = frame.f_back
    return (*arguments[:2], {**arguments[2], "__module__": arguments[2].get("__module__", frame.f_globals.get("__name__"))})


_KEEPING: tuple[type, ...] = (functools.partial, *GETTERS, *DESCRIPTORS)
"""Types whose constructors keep what they are given, and look at nothing in it."""
_OF_ITEMS: tuple[type, ...] = (list, dict, set, collections.OrderedDict)
"""What classes of containers that are made empty, and filled by `__init__`, have as their base."""


class CallHandlers(Handlers):
    """Dispatch by the kind of callable; Python functions, library functions, classes."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self._followed: dict[int, FunctionType] = {}  # by id: those that are called as instrumented code
        self._native: dict[int, FunctionType] = {}  # by id: those of the library, which run natively
        self._prepared: dict[int, tuple[Any, ...]] = {}  # id of a function -> it, what it consisted of, the instrumented one

    def release(self) -> None:
        """No function is called any more."""
        self._followed.clear()
        self._native.clear()
        self._prepared.clear()

    def callee(self, function: Any) -> Any:
        """What the instrumented frame calls for `function`."""
        if type(function) is MethodType and type(function.__func__) is FunctionType:
            unbound, owner = self._parts(function)
            converted = self._converted(unbound)
            return self._calling(unbound, owner) if converted is None else MethodType(converted, owner)
        if type(function) in INLINED_TYPES:
            return self.callee(self.inlined(function))
        if function in FRAME_FUNCTIONS if type(function) is BuiltinFunctionType else False:
            self.recorder.stop("frame_access", function.__name__)
            return function  # called from the instrumented frame, which is what it looks at
        converted = self._converted(function) if type(function) is FunctionType else None
        return self._calling(function) if converted is None else converted

    def callee_of_any_keywords(self, function: Any) -> Any:
        """The same for C code, which may take keywords that are no texts (keywords.py)."""

        return lambda *arguments, **keywords: self._called(function, arguments, as_given(keywords))

    def _calling(self, function: Any, *first: Any) -> Any:
        return lambda *arguments, **keywords: self._called(function, (*first, *arguments), keywords)

    def _called(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What an instrumented frame gets that calls a function."""
        recorder = self.recorder
        if recorder.stopped:
            return self.call(function, arguments, keywords)
        recorder.performed = []
        try:
            return recorder.require_known(self.call(function, arguments, keywords))
        except Exception as error:
            if not is_defect(error, recorder):
                raise
            defect = error
        try:
            return resumed_call(recorder, defect, function, lambda: self._call_eagerly(function, arguments, keywords), arguments)
        finally:
            del defect

    @staticmethod
    @does_as_python
    def _call_eagerly(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        now = tuple(map(plain_value, arguments)), {k: plain_value(v) for k, v in keywords.items()}
        arguments, keywords = as_called_by_program(function, *now)
        return function(*arguments, **keywords)

    def _parts(self, method: MethodType) -> tuple[Any, Any]:
        """The function of a bound method, and what it is bound to."""
        part = self.recorder.attributes.part
        return part(method, "__func__", method.__func__), part(method, "__self__", method.__self__)

    def _converted(self, function: FunctionType) -> Any:
        if id(function) in self._native:
            return None
        if id(function) not in self._followed:
            if self._runs_natively(function) or of_numpy(function) or draws(function) or self.recorder.standard_call(function):
                return None
            if function.__code__.co_filename == "<string>":
                return None
            self._followed[id(function)] = function
        return self.prepare(function)

    @staticmethod
    def _runs_natively(function: FunctionType) -> bool:
        """Whether it is the library's, and where it wraps another one, so is that."""
        while is_library_module(function.__globals__.get("__name__")):
            wrapped = function.__dict__.get("__wrapped__")
            if wrapped is None:
                return True
            if type(wrapped) is not FunctionType:
                return False
            function = wrapped
        return False

    def inlined(self, compiled: Any) -> Any:
        """The function that a compiled function stands for."""
        function = self.recorder.attributes.get_attribute(compiled, "__wrapped__")
        self.recorder.branches.follow(function)
        return function

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        recorder = self.recorder
        if recorder.stopped:
            return self._call_eagerly(function, arguments, keywords)
        cls = type(function)
        if cls is not FunctionType and cls is not MethodType and of_numpy(function):
            return recorder.arrays.array_call(function, arguments, keywords)
        if cls is FunctionType:
            if id(function) in self._native:
                return self.call_library(function, arguments, keywords)
            if id(function) in self._followed and not makes_records(function):
                return self.instrumented(function, arguments, keywords)
            if of_numpy(function):
                return recorder.arrays.array_call(function, arguments, keywords)
            drawn = recorder.generators.drawn_by(function, arguments, keywords)
            if drawn is not ABSENT:
                return drawn
            if self._runs_natively(function):
                self._native[id(function)] = function
                return self.call_library(function, arguments, keywords)
            standard = recorder.standard_call(function)
            if standard is not None:
                return standard(function, arguments, keywords)
            method = dataclass_method(function, arguments)
            if method is not None:
                if not recorder.is_created(function):
                    self._guard_function(function)
                return method(recorder, function, arguments, keywords)
            if makes_records(function) and arguments:
                return self._record(function, arguments[0], arguments[1:], keywords)
            if function.__code__.co_filename != "<string>" and not draws(function):  # as it may in another call
                self._followed[id(function)] = function
            return self.instrumented(function, arguments, keywords)
        if cls is MethodType:
            unbound, owner = self._parts(function)
            return self.call(unbound, (owner, *arguments), keywords)
        if cls in INLINED_TYPES:
            return self.call(self.inlined(function), arguments, keywords)
        if cls is functools.partial:
            return self._call_partial(function, arguments, keywords)
        if is_a(function, type):
            dtype = _dtype_of_data(function, arguments, keywords)
            if dtype is not None:
                return self.call(as_tensor, arguments, {"dtype": dtype})
            return self._call_class(function, arguments, keywords)
        if is_a(function, C_CALLABLES):
            return recorder.builtin_calls.call_builtin(function, arguments, keywords)
        if cls is CACHED:
            return self._call_cached(function, arguments, keywords)
        if cls in GETTERS:
            return recorder.standard_calls.call_getter(function, arguments, keywords)
        if is_symbolic(function):
            return concrete(function)()
        if cls is MethodOf:
            return recorder.outside_calls.method_of(function, arguments, keywords)
        method, _ = recorder.attributes.lookup(cls, "__call__")
        if type(method) is FunctionType:
            return self.call(method, (function, *arguments), keywords)
        drawn = recorder.generators.drawn_by(function, arguments, keywords)
        if drawn is not ABSENT:
            return drawn
        if is_a(function, weakref.ref) and not (arguments or keywords):
            return recorder.attributes.referent(function)
        return recorder.outside_calls.outside_call(
            function, arguments, keywords, "unknown_callable", f"{cls.__module__}.{cls.__qualname__}"
        )

    def _call_cached(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A function from outside with an lru_cache.  The recorded call may run the function, which is then no part of the recording: later
        calls find what it has left in the cache, and count as hits when the program has run, or they miss."""
        recorder = self.recorder
        arguments, keywords = tuple(map(self._as_key_part, arguments)), {k: self._as_key_part(v) for k, v in keywords.items()}
        given, named = tuple(map(_unshared, arguments)), {k: _unshared(v) for k, v in keywords.items()}
        places = [a._name if is_symbolic(a) else recorder.contents.key_expression(a) for a in (*arguments, *keywords.values())]
        known = recorder.unwatched(lambda: cache_of(function))
        of_call = any(is_a(a, type) and recorder.is_created(a) for a in (*arguments, *keywords.values()))
        if known is None or None in places or of_call or not recorder.is_outside(function):
            recorder.stop("unknown_callable", f"{CACHED.__name__} (given what has no key, or without room)")
            return recorder.run(function, given, keywords)
        cache, most, typed = known
        try:
            value = recorder.perform(lambda: recorder.unwatched(lambda: function(*given, **named)))
        except Exception:
            recorder.stop("unknown_callable", f"{CACHED.__name__} (that raise)")
            raise
        found = [place for place in places if place is not None]
        holder, key = recorder.constant(cache), key_expression(given, named, found, typed, recorder.constant)
        recorder.effects.note_hit(FunctionCall(function, arguments, keywords))
        called = f"{function.__name__}()"
        if most is None:
            recorder.miss_if(holder.lacks(key))
            return recorder.read(value, holder.at(key), called=called, symbolic=True)
        other = holder.method("get", key).is_not(recorder.constant(cache[key_of(given, named, typed)]))
        recorder.miss_if(other.otherwise(holder.length().compared(">=", most)))
        return recorder.read(value, recorder.constant(value), called=called, symbolic=True)

    def _as_key_part(self, value: Any) -> Any:
        """An argument that is part of a key: a number from outside stays symbolic; sizes, and what tuples hold, decide."""
        if is_symbolic(value) and not is_post_program(value) and not self.recorder.sizes.is_size(value):
            return value
        return self.recorder.contents.as_key(value)

    def _parts_of_partial(self, function: Any) -> None:
        recorder = self.recorder
        for name in ("func", "args", "keywords"):
            recorder.require_known(recorder.attributes.get_attribute(function, name))
        recorder.contents.read_content(function.args)
        recorder.contents.read_content(function.keywords)

    def _call_partial(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        self._parts_of_partial(function)
        return self.call(function.func, (*function.args, *arguments), {**function.keywords, **keywords})

    # -- Python functions
    def codes(self) -> Iterator[CodeType]:
        """The code of the functions that have been called as instrumented ones."""
        return (function.__code__ for function, _, _ in self._prepared.values())

    def instrumented(self, function: FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What the instrumented version of a function returns."""
        converted = self.prepare(function)
        if self.recorder.stopped:  # it may be the function itself
            now = tuple(map(without_stand_ins, arguments)), {k: without_stand_ins(v) for k, v in keywords.items()}
            arguments, keywords = as_called_by_program(converted, *now)
        recorder = self.recorder
        before, recorder.line = recorder.line, None
        try:
            result = converted(*arguments, **keywords)
        except Exception as error:
            recorder.performed.append((RAISED, id(error)))
            raise
        finally:
            recorder.line = before
        recorder.performed.append((function, result))
        return result

    def prepare(self, function: FunctionType) -> Any:
        """The instrumented version of a function, its identity guarded if it comes from outside; itself where there is none."""
        recorder = self.recorder
        parts = function.__code__, function.__defaults__, function.__kwdefaults__
        known = self._prepared.get(id(function))
        if known is not None and all(map(operator.is_, known[1], parts)):
            return known[2]
        if not recorder.is_created(function):
            self._guard_function(function)
        if is_disabled(function):
            recorder.stop("disabled", disabled_name(function))
            return function
        try:
            code = recorder.unwatched(lambda: convert(function.__code__, function.__globals__))
        except NotConvertible as error:
            recorder.stop(error.code, error.detail)
            return function
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        frame = CellType(CaptureFrame(function.__globals__, cells))
        closure = tuple(frame if name == CAPTURE else cells[name] for name in code.co_freevars)
        converted = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
        converted.__kwdefaults__ = function.__kwdefaults__
        converted.__qualname__ = function.__qualname__
        self._prepared[id(function)] = function, parts, converted
        return converted

    def _guard_function(self, function: FunctionType) -> None:
        recorder = self.recorder
        source = recorder.sources.get(id(function))
        if source is None:
            recorder.stop("unknown_origin", f"the function {function.__qualname__}")
            return
        recorder.read(function.__code__, source.get("__code__"))
        if function.__defaults__ is None:
            recorder.miss_if(source.get("__defaults__").is_not(None))
        else:
            recorder.read(function.__defaults__, source.get("__defaults__"))
        if function.__kwdefaults__:
            recorder.read(function.__kwdefaults__, source.get("__kwdefaults__"))
            recorder.contents.read_content(function.__kwdefaults__)
        for position, cell in enumerate(function.__closure__ or ()):
            if id(cell) not in recorder.effects.cells:
                recorder.effects.cells[id(cell)] = source.get("__closure__").at(position)
                recorder.facts.call(cell, function.__code__.co_freevars[position])
                recorder.keep.append(cell)

    def guarded_callback(self, value: Any) -> Any:
        """A callable that is handed to C code: calls of it come back to the recorder."""
        value = concrete(value)
        if not callable(value) or is_a(value, Tensor):
            return value
        settled = self.recorder.contents.concrete_contents
        return RecordedCallback(self.recorder, value, lambda *given, **named: settled(self.call(value, given, named)))

    def passed_on(self, value: Any) -> Any:
        """The same for C code that looks at no results, and only passes them on."""
        value = concrete(value)
        if not callable(value) or is_a(value, Tensor):
            return value
        return RecordedCallback(self.recorder, value, lambda *arguments: self.call(value, arguments, {}))

    # -- the library
    def call_library(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A function of the library: its tensor work passes the door, and symbolic numbers look after themselves."""
        recorder = self.recorder
        refusal = REFUSED_LIBRARY.get(function.__name__)
        if refusal is not None:
            recorder.stop(refusal, f"{function.__name__}()")
        if function.__qualname__ in INDIFFERENT_LIBRARY:
            return self._call_indifferent(function, *arguments)
        if (result := recorder.ragged.call(function, arguments, keywords)) is not ABSENT:
            return result
        if (function.__module__, function.__name__) in SAVING:
            return recorder.outside_calls.saves(function, arguments, keywords)
        made = construction(function, arguments, keywords)
        if made is not None:
            recorder.inspect_all(arguments)  # new_tensor() looks at a dtype
            maker, data, options = made
            result = recorder.arrays.tensor_of_arrays(maker, data, **options)
            if result is None:
                result = recorder.number_calls.tensor_of_numbers(maker, data, **options)
            if result is not None:
                return result
        if function.__qualname__ in ITERATING_LIBRARY:
            arguments, keywords = tuple(map(self._listed, arguments)), {k: self._listed(v) for k, v in keywords.items()}
        values = (*arguments, *keywords.values())
        keeps = function.__qualname__ in KEEPING_LIBRARY
        if not keeps and is_a(function, FunctionType) and any(map(self._is_program_callable, values)):
            return self.prepare(function)(*arguments, **keywords)
        hands_on = function.__qualname__ == "Function.apply"  # to code of the program, which may have a number of NumPy's
        arguments = tuple([x if hands_on and is_symbolic(x) else self.for_library(x) for x in arguments])
        if not keeps:  # which pass them on to the program's functions
            arguments = tuple([list(a) if is_a(a, GeneratorType) else a for a in arguments])
        keywords = {k: self.for_library(v) for k, v in keywords.items()} if keywords else keywords
        values = (*arguments, *keywords.values())
        for value in values:
            if type(value) not in PRIMITIVE_TYPES:
                recorder.contents.read_content(value, deep=True)
                recorder.require_known(value)
        recorder.inspect_all(values)
        result = recorder.containers.native(lambda: function(*arguments, **keywords))
        return recorder.mark_created(result) if keeps or is_a(function, type) or is_a(result, (tuple, list, dict)) else result

    def _listed(self, value: Any) -> Any:
        """The elements of an object of the program's, or of nn's, that has an iterator of Python's; another argument as it is."""
        recorder = self.recorder
        if is_a(value, Tensor) or type(value) in PRIMITIVE_TYPES or not is_user_instance(value):
            return value
        method, _ = recorder.attributes.lookup(type(value), "__iter__")
        return recorder.mark_created([*recorder.iteration.iterate(value)]) if type(method) is FunctionType else value

    def _call_indifferent(self, function: Any, tensor: Any) -> Any:
        """A function that tells what goes with a tensor: of one from outside, each call finds it."""
        recorder, source = self.recorder, self.recorder.tensors.get(id(tensor))
        answer = recorder.unwatched(lambda: function(tensor))
        if source is None:
            return recorder.mark_created(answer)
        expression = recorder.constant(function).call(source.variable)
        return recorder.read(answer, expression, called=f"{function.__name__}()", symbolic=True)

    def for_library(self, value: Any) -> Any:
        """An argument: a symbolic number as it is, but for one that stands for an array."""
        if type(value) is Tensor or type(value) in PRIMITIVE_TYPES:
            return value
        recorder = self.recorder
        value = recorder.sizes.for_library(as_text(value))
        is_number = is_symbolic(value) and not is_symbolic_bool(value) and not recorder.arrays.is_array(value)
        return value if is_number else recorder.contents.concrete_contents(value)

    @staticmethod
    def _is_program_callable(value: Any) -> bool:
        if type(value) is MethodType:
            value = value.__func__
        if type(value) is FunctionType:
            return not is_library_module(value.__globals__.get("__name__"))
        return type(value) in INLINED_TYPES

    # -- classes
    def _call_class(self, cls: type, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        recorder = self.recorder
        if cls in (type, int, float) and len(arguments) == 1 and not keywords and is_symbolic(arguments[0]):
            return self._symbolic_conversion(cls, arguments[0])
        if cls in (int, float) and len(arguments) == 1 and not keywords and type(arguments[0]) is Tensor:
            number = recorder.extracted_numbers.element(arguments[0])
            if number is not None:
                return self._symbolic_conversion(cls, number)
        begun = recorder.generators.drawn_by(cls, arguments, keywords)
        if begun is not ABSENT:
            return begun
        if cls in PURE_TYPES:
            return recorder.type_calls.call_pure_type(cls, arguments, keywords)
        of_tensors = issubclass(cls, Tensor) and is_library_module(recorder.attributes.lookup(cls, "__init__")[0].__module__)
        if of_tensors or (is_library_module(cls.__module__) and is_heap_type(cls)):
            return self.call_library(cls, arguments, keywords)
        if issubclass(cls, np.generic) and any(is_symbolic(v) or is_a(v, (Tensor, np.ndarray)) for v in arguments):
            return recorder.arrays.array_call(cls, arguments, keywords)
        if issubclass(cls, (np.generic, decimal.Decimal)):
            arguments = tuple(map(recorder.contents.concrete_contents, arguments))
            for value in (*arguments, *keywords.values()):
                recorder.contents.read_content(value, deep=True)
            return recorder.containers.native(lambda: cls(*arguments, **keywords))
        if cls is super and len(arguments) == 2 and not keywords and is_a(arguments[0], type):
            super(*arguments)  # it raises what is to be raised
            return SuperProxy(*arguments)
        if cls in _KEEPING or (issubclass(cls, BaseException) and not is_python_class(cls)):
            return self._call_constructor(cls, *self._plain_arguments(arguments, keywords))
        if not is_python_class(cls):
            if cls is type and len(arguments) == 1 and not keywords:
                return recorder.mark_fixed(type(arguments[0]))
            if cls is MethodType or (cls is weakref.ref and len(arguments) == 1 and not recorder.is_created(arguments[0])):
                return recorder.mark_created(cls(*map(concrete, arguments), **keywords))
            if not issubclass(cls, type):
                return recorder.outside_calls.outside_call(
                    cls, arguments, keywords, "construction", f"{cls.__module__}.{cls.__qualname__}"
                )
            recorder.stop("construction", f"{cls.__module__}.{cls.__qualname__}")
            arguments, keywords = self._plain_arguments(arguments, keywords)
            return recorder.perform(lambda: cls(*_class_arguments(cls, arguments), **keywords))
        finalizer, _ = recorder.attributes.lookup(cls, "__del__")
        if finalizer is not ABSENT:  # it would not run when a program takes the object's place
            recorder.stop("construction", f"{cls.__module__}.{cls.__qualname__}, which has a finalizer")
            return recorder.run(cls, arguments, keywords)
        initialise, _ = recorder.attributes.lookup(cls, "__init__")
        create, _ = recorder.attributes.lookup(cls, "__new__")
        if type(initialise) is not FunctionType and is_a(create, staticmethod) and makes_records(create.__func__):
            return self._record(create.__func__, cls, arguments, keywords)
        if type(initialise) is not FunctionType or issubclass(cls, (BaseException, tuple, enum.Enum)):
            arguments, keywords = self._plain_arguments(arguments, keywords)
        if issubclass(cls, enum.Enum):
            return recorder.mark_fixed(recorder.containers.native(lambda: cls(*arguments, **keywords)))
        if issubclass(cls, BaseException) and type(initialise) is not FunctionType and not is_a(create, staticmethod):
            return self._call_constructor(cls, arguments, keywords)
        if recorder.attributes.lookup(type(cls), "__call__")[0] is not type.__call__:
            recorder.stop("construction", f"{cls.__module__}.{cls.__qualname__}")
            return recorder.run(cls, arguments, keywords)
        return self._construct(cls, create, initialise, arguments, keywords)

    def _call_constructor(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A constructor that only keeps what it is given."""
        recorder = self.recorder
        if cls is functools.partial and arguments and type(arguments[0]) is functools.partial:  # it keeps the parts of that one
            self._parts_of_partial(arguments[0])
        made = recorder.mark_created(recorder.containers.native(lambda: cls(*arguments, **keywords)))
        if cls is functools.partial:
            recorder.mark_created(made.args)
            recorder.mark_created(made.keywords)
        return made

    def _record(self, create: Any, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A named tuple holds plain numbers, since nobody could change it later on; what stands for them is found by its places."""
        plainly = {name: plain_value(value) for name, value in keywords.items()}
        made = self.recorder.containers.native(lambda: create(cls, *map(plain_value, arguments), **plainly))
        given = {**dict(zip(cls._fields, arguments, strict=False)), **keywords}
        return self.recorder.contents.known_record(made, given)

    def _plain_arguments(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """For C code: no symbolic numbers, but in lists and dictionaries."""

        def plain_or_tuple(value: Any) -> Any:
            return self.recorder.contents.concrete_contents(value) if type(value) is tuple else concrete(value)

        return tuple(map(plain_or_tuple, arguments)), {k: plain_or_tuple(v) for k, v in keywords.items()}

    def _construct(self, cls: Any, create: Any, initialise: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        recorder = self.recorder
        base = builtin_base(cls)
        if is_a(create, staticmethod):
            instance = self.call(recorder.mark_fixed(create.__func__), (cls, *arguments), keywords)
        elif create is object.__new__ or getattr(create, "__self__", None) is object:
            if (arguments or keywords) and type(initialise) is not FunctionType:
                return self.recorder.perform(lambda: cls(*arguments, **keywords))  # it raises what is to be raised
            instance = recorder.mark_created(object.__new__(cls))
            if is_a(instance, Tensor):
                recorder.created[id(instance)] = fill(
                    instance, np.empty(0)
                )  # handlers look at it before it has contents of its own
        elif issubclass(base, BaseException) and type(create) is BuiltinFunctionType:
            arguments, keywords = self._plain_arguments(arguments, keywords)
            instance = create(cls, *arguments, **keywords)
        elif base in _OF_ITEMS and getattr(create, "__self__", None) in (base, dict):
            instance = recorder.mark_created(create(cls))
            if type(initialise) is not FunctionType:
                arguments = tuple(
                    map(
                        recorder.container_methods.pairs if issubclass(base, dict) else recorder.container_methods.consumable,
                        arguments,
                    )
                )
                keywords = {k: recorder.contents.value_to_store(v) for k, v in keywords.items()}
        elif getattr(create, "__self__", None) is base and base in (tuple, frozenset, str, bytes, int, float, complex):
            arguments, keywords = self._plain_arguments(arguments, keywords)
            given = tuple(recorder.container_methods.settled_elements(a) if base in (tuple, frozenset) else a for a in arguments)
            for value in given:
                recorder.contents.read_content(value, deep=True)
            instance = recorder.mark_created(recorder.containers.native(lambda: create(cls, *given, **keywords)))
        else:
            recorder.stop("construction", f"{cls.__module__}.{cls.__qualname__}")
            return recorder.run(cls, _class_arguments(cls, arguments), keywords)
        if cls not in type(instance).__mro__:
            return instance
        if type(initialise) is FunctionType:
            result = self.call(initialise, (instance, *arguments), keywords)
            if result is not None:
                raise recorder.of_program(TypeError(f"__init__() should return None, not {type(plain(result)).__name__!r}"))
        elif base in _OF_ITEMS and (arguments or keywords):
            recorder.containers.native(lambda: base.__init__(instance, *arguments, **keywords))
        recorder.performed.append((cls, instance))
        return instance

    def _symbolic_conversion(self, cls: type, number: SymbolicNumber) -> Any:
        """type(), int() or float() of a symbolic number."""
        recorder = self.recorder
        if cls is type:
            return type(concrete(number) if is_deferred_call_result(number) else number._value)
        if type(number._value) is cls:
            return number
        try:
            result = cls(number._value)
        except (ArithmeticError, ValueError) as error:  # the program may catch it: the number has decided where it goes on
            if not recorder.extracted_numbers.raises_again(cls, (number,), error):
                concrete(number)
            raise
        if is_post_program(number):
            late = recorder.extracted_numbers.post_program_function(cls, (number,), result)
            return cls(concrete(number)) if late is None else late
        sized = recorder.sizes.computed_by(cls, (number,))
        return recorder.define_number(Name(cls.__name__).call(number._name), result, check_type=False) if sized is None else sized


def _unshared(value: Any) -> Any:
    """An argument that a cache may keep, and hand out in later calls: not the tuple that this run has made."""
    return tuple.__new__(type(value), map(_unshared, tuple.__iter__(value))) if is_a(value, tuple) else plain(value)


def _dtype_of_data(cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> DType | None:
    """The dtype to which an older constructor, `FloatTensor(data)`, `Tensor(data)`, converts a list, a tuple or an array, as `as_tensor`
    does; None for other calls."""
    if keywords or len(arguments) != 1 or type(arguments[0]) not in (list, tuple, *KINDS):
        return None
    if cls is Tensor:
        return default_dtype()
    return cls.dtype if type(cls) is LegacyType else None
