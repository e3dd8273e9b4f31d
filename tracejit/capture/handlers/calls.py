"""Handlers of calls.  Python functions are instrumented and run; for any other callable the policies of the closed world decide.

`callee` gives the instrumented frame a function to call itself, so that tracebacks and recursion depth are those of the program.
`call` makes a call for another handler.
"""

from __future__ import annotations

import collections
import enum
import functools
import operator
import sys
import weakref
from collections.abc import Callable, Iterator
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
    concretise,
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
from tracejit.capture.syntax.outlined_loops import OutlinedLoop, convert_outlined
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
    """`arguments` for `cls`.  If they create a class, `type(name, bases, names)`, its `__module__` is added: Python takes it from
    the calling frame, which here is not the program's."""
    if not issubclass(cls, type) or len(arguments) != 3 or not is_a(arguments[2], dict):
        return arguments
    frame = sys._getframe(1)
    while frame.f_back is not None and not is_instrumented(frame.f_code):
        frame = frame.f_back
    return (*arguments[:2], {**arguments[2], "__module__": arguments[2].get("__module__", frame.f_globals.get("__name__"))})


_KEEPING: tuple[type, ...] = (functools.partial, *GETTERS, *DESCRIPTORS)
"""Types whose constructors store their arguments and do not look into them."""
_OF_ITEMS: tuple[type, ...] = (list, dict, set, collections.OrderedDict)
"""Builtin containers that `__new__` creates empty and `__init__` fills."""


class CallHandlers(Handlers):
    """Dispatches calls by the kind of callable; handles Python functions, functions of the library, and classes."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self._followed: dict[int, FunctionType] = {}  # by id: functions that are called as instrumented code
        self._native: dict[int, FunctionType] = {}  # by id: functions of the library, which run natively
        # code of functions -> lines, the loops around which branch differently from step to step
        self.branching_lines: dict[CodeType, frozenset[int]] = {}
        # id of a function -> the function, its (code, defaults, keyword defaults), the instrumented function
        self._prepared: dict[int, tuple[Any, ...]] = {}

    def release(self) -> None:
        """Release all functions.  Nothing is called after this."""
        self._followed.clear()
        self._native.clear()
        self._prepared.clear()

    def callee(self, function: Any) -> Any:
        """What the instrumented frame calls in place of `function`: its instrumented version, or a callable that handles it."""
        if type(function) is MethodType and type(function.__func__) is FunctionType:
            unbound, owner = self._parts(function)
            converted = self._instrumented_version(unbound)
            return self._handled(unbound, owner) if converted is None else MethodType(converted, owner)
        if type(function) in INLINED_TYPES:
            return self.callee(self.inlined(function))
        if function in FRAME_FUNCTIONS if type(function) is BuiltinFunctionType else False:
            self.recorder.stop("frame_access", function.__name__)
            return function  # it looks at its caller, so the instrumented frame has to call it
        converted = self._instrumented_version(function) if type(function) is FunctionType else None
        return self._handled(function) if converted is None else converted

    def callee_of_any_keywords(self, function: Any) -> Any:
        """Like `callee`, for C code that may accept keywords that are no strings (keywords.py)."""

        return lambda *arguments, **keywords: self._call_from_frame(function, arguments, as_given(keywords))

    def _handled(self, function: Any, *first: Any) -> Any:
        """A callable that handles calls of `function`, with `first` before its arguments."""
        return lambda *arguments, **keywords: self._call_from_frame(function, (*first, *arguments), keywords)

    def _call_from_frame(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of a call from an instrumented frame.  After a defect of a handler it is made eagerly (defects.py)."""
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
        """The result of a plain call, with no stand-ins among the arguments."""
        now = tuple(map(plain_value, arguments)), {k: plain_value(v) for k, v in keywords.items()}
        arguments, keywords = as_called_by_program(function, *now)
        return function(*arguments, **keywords)

    def _parts(self, method: MethodType) -> tuple[Any, Any]:
        """The function of a bound method and the object that it is bound to, both guarded."""
        part = self.recorder.attributes.part
        return part(method, "__func__", method.__func__), part(method, "__self__", method.__self__)

    def _instrumented_version(self, function: FunctionType) -> Any:
        """The instrumented version of `function`; None if a handler does its calls, or it has no source."""
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
        """Whether `function` and the functions that it wraps are the library's."""
        while is_library_module(function.__globals__.get("__name__")):
            wrapped = function.__dict__.get("__wrapped__")
            if wrapped is None:
                return True
            if type(wrapped) is not FunctionType:
                return False
            function = wrapped
        return False

    def inlined(self, compiled: Any) -> Any:
        """The function that a compiled one wraps: calls of it are recorded as a part of this recording."""
        function = self.recorder.attributes.get_attribute(compiled, "__wrapped__")
        self.recorder.branches.follow(function)
        return function

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """function(*arguments, **keywords), recorded."""
        recorder = self.recorder
        if recorder.stopped:
            return self._call_eagerly(function, arguments, keywords)
        if recorder.reached and arguments and (reached := recorder.reached.get(id(arguments[0]))) is not None:
            result = reached.join(function, arguments[1:], keywords)
            if result is not None:
                return result
        call = _CALLS.get(type(function), CallHandlers._call_object)
        return call(self, function, arguments, keywords)

    def _call_function(self, function: FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """By a handler of this very function; else what is the library's runs natively, what is the program's instrumented."""
        recorder = self.recorder
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
        if function.__code__.co_filename != "<string>" and not draws(function):  # other arguments may make it draw
            self._followed[id(function)] = function
        return self.instrumented(function, arguments, keywords)

    def _call_method(self, method: MethodType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        function, owner = self._parts(method)
        return self.call(function, (owner, *arguments), keywords)

    def _call_partial(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        self._read_partial(function)
        return self.call(function.func, (*function.args, *arguments), {**function.keywords, **keywords})

    def _call_c_function(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if of_numpy(function):
            return self.recorder.arrays.array_call(function, arguments, keywords)
        return self.recorder.builtin_calls.call_builtin(function, arguments, keywords)

    def _call_getter(self, getter: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return self.recorder.standard_calls.call_getter(getter, arguments, keywords)

    def _call_method_of(self, method: MethodOf, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return self.recorder.outside_calls.method_of(method, arguments, keywords)

    def _call_number(self, number: SymbolicNumber, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return concretise(number)()  # which raises Python's error

    def _call_object(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A call of a class, of a function of NumPy or of an instance with a `__call__`."""
        recorder, cls = self.recorder, type(function)
        if of_numpy(function):
            return recorder.arrays.array_call(function, arguments, keywords)
        if cls in INLINED_TYPES:
            return self.call(self.inlined(function), arguments, keywords)
        if is_a(function, type):
            return self._call_class(function, arguments, keywords)
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
        """The result of an outside function with an lru_cache.

        The recorded call may run the function, which is not recorded.  Later calls read the result from the cache before the
        program, and count a hit after it.  They miss if the arguments are not in the cache, or a limited cache is full."""
        recorder = self.recorder
        arguments, keywords = tuple(map(self._as_key_part, arguments)), {k: self._as_key_part(v) for k, v in keywords.items()}
        values, named = tuple(map(_unshared, arguments)), {k: _unshared(v) for k, v in keywords.items()}
        optional = [a._name if is_symbolic(a) else recorder.contents.key_expression(a) for a in (*arguments, *keywords.values())]
        properties = recorder.unwatched(lambda: cache_of(function))
        of_call = any(is_a(a, type) and recorder.is_created(a) for a in (*arguments, *keywords.values()))
        if properties is None or None in optional or of_call or not recorder.is_outside(function):
            recorder.stop("unknown_callable", f"{CACHED.__name__} (given what has no key, or without room)")
            return recorder.run(function, values, keywords)
        cache, most, typed = properties
        try:
            value = recorder.perform(lambda: recorder.unwatched(lambda: function(*values, **named)))
        except Exception:
            recorder.stop("unknown_callable", f"{CACHED.__name__} (that raise)")
            raise
        expressions = [expression for expression in optional if expression is not None]
        holder, key = recorder.constant(cache), key_expression(values, named, expressions, typed, recorder.constant)
        recorder.effects.note_hit(FunctionCall(function, arguments, keywords))
        called = f"{function.__name__}()"
        if most is None:
            recorder.miss_if(holder.lacks(key))
            return recorder.read(value, holder.at(key), called=called, symbolic=True)
        other = holder.method("get", key).is_not(recorder.constant(cache[key_of(values, named, typed)]))
        recorder.miss_if(other.otherwise(holder.length().compared(">=", most)))
        return recorder.read(value, recorder.constant(value), called=called, symbolic=True)

    def _as_key_part(self, value: Any) -> Any:
        """An argument as a part of the key in a cache.  A number of the prologue stays symbolic; sizes, and numbers in tuples,
        become plain ones, guarded by their values."""
        if is_symbolic(value) and not is_post_program(value) and not self.recorder.sizes.is_size(value):
            return value
        return self.recorder.contents.as_key(value)

    def _read_partial(self, function: Any) -> None:
        """Guard what a `functools.partial` consists of."""
        recorder = self.recorder
        for name in ("func", "args", "keywords"):
            recorder.require_known(recorder.attributes.get_attribute(function, name))
        recorder.contents.read_content(function.args)
        recorder.contents.read_content(function.keywords)

    # -- Python functions
    def codes(self) -> Iterator[CodeType]:
        """The code objects of all functions that have been instrumented."""
        return (function.__code__ for function, _, _ in self._prepared.values())

    def instrumented(self, function: FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of a call of the instrumented version of `function`."""
        converted = self.prepare(function)
        if self.recorder.stopped:  # then `converted` may be the function itself
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
        """The instrumented version of `function`, with guards on its code, defaults and closure if it is from outside.  If it has
        none, the recording stops, and `function` itself is returned."""
        recorder = self.recorder
        parts = function.__code__, function.__defaults__, function.__kwdefaults__
        cached = self._prepared.get(id(function))
        if cached is not None and all(map(operator.is_, cached[1], parts)):
            recorder.branches.note_call(cached[2].__code__)
            return cached[2]
        if not recorder.is_created(function):
            self._guard_function(function)
        if is_disabled(function):
            recorder.stop("disabled", disabled_name(function))
            return function
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        try:
            code, loops = recorder.unwatched(lambda: self._converted(function, cells))
        except NotConvertible as error:
            recorder.stop(error.code, error.detail)
            return function
        frame = CellType(CaptureFrame(function.__globals__, cells, loops))
        closure = tuple(frame if name == CAPTURE else cells[name] for name in code.co_freevars)
        converted = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
        converted.__kwdefaults__ = function.__kwdefaults__
        converted.__qualname__ = function.__qualname__
        self._prepared[id(function)] = function, parts, converted
        return converted

    def _converted(
        self, function: FunctionType, cells: dict[str, Any]
    ) -> tuple[CodeType, list[tuple[OutlinedLoop, FunctionType, list[FunctionType]]]]:
        """(the instrumented code of a function, its outlined loops, each with the function of its step, and those of its parts)."""
        code, names = function.__code__, function.__globals__
        lines = self.branching_lines.get(code)
        outlined = None if lines is None else convert_outlined(code, lines, names)
        if lines is None or outlined is None:
            return convert(code, names), []

        def function_of(part: CodeType) -> FunctionType:
            step = FunctionType(part, names, function.__name__, None, tuple([cells[x] for x in part.co_freevars]))
            step.__qualname__, step.__module__ = function.__qualname__, function.__module__
            self.branching_lines[part] = lines
            return self.recorder.mark_created(step)  # type: ignore[no-any-return]

        return outlined.code, [
            (loop, function_of(loop.code), [function_of(part.code) for part in loop.parts]) for loop in outlined.loops
        ]

    def _guard_function(self, function: FunctionType) -> None:
        """Guard the code and the defaults of an outside function; note where its closure cells are."""
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
                recorder.facts.name_object(cell, function.__code__.co_freevars[position])
                recorder.keep.append(cell)

    def recorded_callback(self, value: Any) -> Any:
        """A stand-in for a callable passed to C code: it records its calls and returns plain values.  Other values unchanged."""
        value = concretise(value)
        if not callable(value) or is_a(value, Tensor):
            return value
        concretise_contents = self.recorder.contents.concretise_contents
        return RecordedCallback(self.recorder, value, lambda *given, **named: concretise_contents(self.call(value, given, named)))

    def recorded_callback_with_stand_ins(self, value: Any) -> Any:
        """Like `recorded_callback`, for C code that only passes results on, so that these may be stand-ins."""
        value = concretise(value)
        if not callable(value) or is_a(value, Tensor):
            return value
        return RecordedCallback(self.recorder, value, lambda *arguments: self.call(value, arguments, {}))

    # -- the library
    def call_library(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of a function of the eager library.  It runs natively: its operations on tensors pass the door, and symbolic
        numbers record what is done with them."""
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
        normal_form = construction(function, arguments, keywords)
        if normal_form is not None:
            recorder.inspect_all(arguments)  # new_tensor() looks at a dtype
            constructor, data, options = normal_form
            result = recorder.arrays.tensor_of_arrays(constructor, data, **options)
            if result is None:
                result = recorder.number_calls.tensor_of_numbers(constructor, data, **options)
            if result is not None:
                return result
        if function.__qualname__ in ITERATING_LIBRARY:
            arguments, keywords = tuple(map(self._listed, arguments)), {k: self._listed(v) for k, v in keywords.items()}
        values = (*arguments, *keywords.values())
        keeps = function.__qualname__ in KEEPING_LIBRARY
        if not keeps and is_a(function, FunctionType) and any(map(self._is_program_callable, values)):
            return self.prepare(function)(*arguments, **keywords)
        passes_on = function.__qualname__ == "Function.apply"  # to code of the program, which may get symbolic NumPy scalars
        arguments = tuple([x if passes_on and is_symbolic(x) else self.for_library(x) for x in arguments])
        if not keeps:  # those that keep functions pass generators on to these
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
        """The elements, as a list, of an object that has a Python function as `__iter__`; other values unchanged."""
        recorder = self.recorder
        if is_a(value, Tensor) or type(value) in PRIMITIVE_TYPES or not is_user_instance(value):
            return value
        method, _ = recorder.attributes.lookup(type(value), "__iter__")
        return recorder.mark_created([*recorder.iteration.iterate(value)]) if type(method) is FunctionType else value

    def _call_indifferent(self, function: Any, tensor: Any) -> Any:
        """The result of a function that gives data attached to a tensor, and looks at no element or size of it (policies.py).
        For a tensor from outside each call reads it in the prologue."""
        recorder, source = self.recorder, self.recorder.tensors.get(id(tensor))
        result = recorder.unwatched(lambda: function(tensor))
        if source is None:
            return recorder.mark_created(result)
        expression = recorder.constant(function).call(source.variable)
        return recorder.read(result, expression, called=f"{function.__name__}()", symbolic=True)

    def for_library(self, value: Any) -> Any:
        """`value` as an argument of a function of the library.  Symbolic numbers are kept, NumPy's as Python's, which functions take
        for the same; symbolic truth values and containers with numbers become plain values, guarded."""
        if type(value) is Tensor or type(value) in PRIMITIVE_TYPES:
            return value
        recorder = self.recorder
        value = recorder.sizes.for_library(as_text(value))
        value = recorder.extracted_numbers.as_python_number(value)
        is_number = is_symbolic(value) and not is_symbolic_bool(value) and not recorder.arrays.is_array(value)
        return value if is_number else recorder.contents.concretise_contents(value)

    @staticmethod
    def _is_program_callable(value: Any) -> bool:
        """Whether `value` is a function, method or compiled function of the program."""
        if type(value) is MethodType:
            value = value.__func__
        if type(value) is FunctionType:
            return not is_library_module(value.__globals__.get("__name__"))
        return type(value) in INLINED_TYPES

    # -- classes
    def _call_class(self, cls: type, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """cls(*arguments, **keywords)"""
        recorder = self.recorder
        dtype = _dtype_of_data(cls, arguments, keywords)
        if dtype is not None:
            return self.call(as_tensor, arguments, {"dtype": dtype})
        if cls in (type, int, float) and len(arguments) == 1 and not keywords and is_symbolic(arguments[0]):
            return self._symbolic_conversion(cls, arguments[0])
        if cls in (int, float) and len(arguments) == 1 and not keywords and type(arguments[0]) is Tensor:
            number = recorder.extracted_numbers.element(arguments[0])
            if number is not None:
                return self._symbolic_conversion(cls, number)
        generator = recorder.generators.drawn_by(cls, arguments, keywords)
        if generator is not ABSENT:
            return generator
        if cls in PURE_TYPES:
            return recorder.type_calls.call_pure_type(cls, arguments, keywords)
        of_tensors = issubclass(cls, Tensor) and is_library_module(recorder.attributes.lookup(cls, "__init__")[0].__module__)
        if of_tensors or (is_library_module(cls.__module__) and is_heap_type(cls)):
            return self.call_library(cls, arguments, keywords)
        if issubclass(cls, np.generic) and any(is_symbolic(v) or is_a(v, (Tensor, np.ndarray)) for v in arguments):
            return recorder.arrays.array_call(cls, arguments, keywords)
        if issubclass(cls, np.generic) or recorder.plain_values.is_constructed(cls, (*arguments, *keywords.values())):
            arguments, keywords = recorder.contents.concretise_arguments(arguments, keywords)
            for value in (*arguments, *keywords.values()):
                recorder.contents.read_content(value, deep=True)
            return recorder.plain_values.computed(lambda: cls(*arguments, **keywords), (cls, *arguments, *keywords.values()))
        if cls is super and len(arguments) == 2 and not keywords and is_a(arguments[0], type):
            super(*arguments)  # which raises Python's error
            return SuperProxy(*arguments)
        if cls in _KEEPING or (issubclass(cls, BaseException) and not is_python_class(cls)):
            return self._call_constructor(cls, *self._plain_arguments(arguments, keywords))
        if not is_python_class(cls):
            if cls is type and len(arguments) == 1 and not keywords:
                return recorder.mark_fixed(type(arguments[0]))
            if cls is MethodType or (cls is weakref.ref and len(arguments) == 1 and not recorder.is_created(arguments[0])):
                return recorder.mark_created(cls(*map(concretise, arguments), **keywords))
            if not issubclass(cls, type):
                return recorder.outside_calls.outside_call(
                    cls, arguments, keywords, "construction", f"{cls.__module__}.{cls.__qualname__}"
                )
            recorder.stop("construction", f"{cls.__module__}.{cls.__qualname__}")
            arguments, keywords = self._plain_arguments(arguments, keywords)
            return recorder.perform(lambda: cls(*_class_arguments(cls, arguments), **keywords))
        finalizer, _ = recorder.attributes.lookup(cls, "__del__")
        if finalizer is not ABSENT:  # it would not run in calls that do not create the object
            recorder.stop("construction", f"{cls.__module__}.{cls.__qualname__}, which has a finalizer")
            return recorder.run(cls, arguments, keywords)
        initialise, _ = recorder.attributes.lookup(cls, "__init__")
        create, _ = recorder.attributes.lookup(cls, "__new__")
        if type(initialise) is not FunctionType and is_a(create, staticmethod) and makes_records(create.__func__):
            return self._record(create.__func__, cls, arguments, keywords)
        of_python = type(initialise) is FunctionType or is_a(create, staticmethod)
        if not of_python or issubclass(cls, (BaseException, tuple, enum.Enum)):
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
        """A new instance of a class whose constructor only stores its arguments."""
        recorder = self.recorder
        if cls is functools.partial and arguments and type(arguments[0]) is functools.partial:  # it copies the parts of that one
            self._read_partial(arguments[0])
        instance = recorder.mark_created(recorder.containers.native(lambda: cls(*arguments, **keywords)))
        if cls is functools.partial:
            recorder.mark_created(instance.args)
            recorder.mark_created(instance.keywords)
        return instance

    def _record(self, create: Any, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A new named tuple.  It holds plain numbers, since it could not be changed later; their stand-ins are noted by place.
        create: the `__new__` of its class."""
        plain_keywords = {name: plain_value(value) for name, value in keywords.items()}
        record = self.recorder.containers.native(lambda: create(cls, *map(plain_value, arguments), **plain_keywords))
        items = {**dict(zip(cls._fields, arguments, strict=False)), **keywords}
        return self.recorder.contents.note_record_items(record, items)

    def _plain_arguments(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments for C code: symbolic numbers, also in tuples, become plain ones, guarded by their values.  Lists and
        dictionaries stay as they are."""

        def plain_or_tuple(value: Any) -> Any:
            return self.recorder.contents.concretise_contents(value) if type(value) is tuple else concretise(value)

        return tuple(map(plain_or_tuple, arguments)), {k: plain_or_tuple(v) for k, v in keywords.items()}

    def _construct(self, cls: Any, create: Any, initialise: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A new instance of a Python class, by its `__new__` and `__init__` (create, initialise), as `type.__call__` does."""
        recorder = self.recorder
        base = builtin_base(cls)
        if is_a(create, staticmethod):
            instance = self.call(recorder.mark_fixed(create.__func__), (cls, *arguments), keywords)
        elif create is object.__new__ or getattr(create, "__self__", None) is object:
            if (arguments or keywords) and type(initialise) is not FunctionType:
                return self.recorder.perform(lambda: cls(*arguments, **keywords))  # which raises Python's error
            instance = recorder.mark_created(object.__new__(cls))
            if is_a(instance, Tensor):
                # Handlers look at it before `__init__` gives it contents.
                recorder.created[id(instance)] = fill(instance, np.empty(0))
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
            values = tuple(
                recorder.container_methods.concretised_elements(a) if base in (tuple, frozenset) else a for a in arguments
            )
            for value in values:
                recorder.contents.read_content(value, deep=True)
            instance = recorder.mark_created(recorder.containers.native(lambda: create(cls, *values, **keywords)))
        else:
            recorder.stop("construction", f"{cls.__module__}.{cls.__qualname__}")
            return recorder.run(cls, _class_arguments(cls, arguments), keywords)
        if cls not in type(instance).__mro__:
            return instance
        if type(initialise) is FunctionType:
            result = self.call(initialise, (instance, *arguments), keywords)
            if result is not None:
                raise recorder.error_of_program(TypeError(f"__init__() should return None, not {type(plain(result)).__name__!r}"))
        elif base in _OF_ITEMS and (arguments or keywords):
            recorder.containers.native(lambda: base.__init__(instance, *arguments, **keywords))
        recorder.performed.append((cls, instance))
        return instance

    def _symbolic_conversion(self, cls: type, number: SymbolicNumber) -> Any:
        """cls(number) for a symbolic number, where `cls` is type, int or float."""
        recorder = self.recorder
        if cls is type:
            return type(concretise(number) if is_deferred_call_result(number) else number._value)
        if type(number._value) is cls:
            return number
        try:
            result = cls(number._value)
        except (ArithmeticError, ValueError) as error:  # the program may catch it, so that the value decides a branch
            if not recorder.extracted_numbers.raises_again(cls, (number,), error):
                concretise(number)
            raise
        if is_post_program(number):
            converted = recorder.extracted_numbers.post_program_function(cls, (number,), result)
            return cls(concretise(number)) if converted is None else converted
        size = recorder.sizes.computed_by(cls, (number,))
        return recorder.define_number(Name(cls.__name__).call(number._name), result, check_type=False) if size is None else size


def _unshared(value: Any) -> Any:
    """A plain copy of an argument that a cache may keep and return in later calls: it must not be a tuple of this run."""
    return tuple.__new__(type(value), map(_unshared, tuple.__iter__(value))) if is_a(value, tuple) else plain(value)


def _dtype_of_data(cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> DType | None:
    """The dtype to which a legacy constructor, `FloatTensor(data)` or `Tensor(data)`, converts a list, tuple or array as
    `as_tensor` does; None for other calls."""
    if keywords or len(arguments) != 1 or type(arguments[0]) not in (list, tuple, *KINDS):
        return None
    if cls is Tensor:
        return default_dtype()
    return cls.dtype if type(cls) is LegacyType else None


_CALLS: dict[type, Callable[[CallHandlers, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    FunctionType: CallHandlers._call_function,
    MethodType: CallHandlers._call_method,
    functools.partial: CallHandlers._call_partial,
    CACHED: CallHandlers._call_cached,
    **dict.fromkeys(C_CALLABLES, CallHandlers._call_c_function),
    **dict.fromkeys(GETTERS, CallHandlers._call_getter),
    MethodOf: CallHandlers._call_method_of,
    SymbolicNumber: CallHandlers._call_number,
}
"""By the type of a callable what calls it; that of all others is `_call_object`."""
