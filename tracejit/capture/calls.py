"""Calls: Python functions are converted and run; everything else goes by the policies of the closed world.

`callee` hands the instrumented frame something to call itself, so that tracebacks and recursion depth stay those of the program;
`call` makes a call for another handler.
"""

from __future__ import annotations

import decimal
import enum
import functools
from types import CellType, FunctionType, GeneratorType, MethodType
from typing import Any

import numpy as np

from tracejit.capture.builtin_calls import BuiltinCallHandlers
from tracejit.capture.convert import CAPTURE, convert, is_nested
from tracejit.capture.frame import Frame
from tracejit.capture.locate import NotConvertible
from tracejit.capture.policies import (
    C_CALLABLES,
    INLINED_TYPES,
    PURE_TYPES,
    REFUSED_LIBRARY,
    builtin_base,
    is_a,
    is_heap_type,
    is_library_module,
)
from tracejit.capture.symbols import SymbolicNumber, concrete, is_symbolic
from tracejit.tensor import Tensor

__all__ = ["CallHandlers"]


class CallHandlers(BuiltinCallHandlers):
    """Dispatch by the kind of callable; Python functions, library functions, classes."""

    def __init__(self) -> None:
        super().__init__()
        self._prepared: dict[int, Any] = {}

    def callee(self, function: Any) -> Any:
        """What the instrumented frame calls for `function`."""
        if type(function) is MethodType and type(function.__func__) is FunctionType:
            converted = self._converted(function.__func__)
            return self._calling(function) if converted is None else MethodType(converted, function.__self__)
        if type(function) in INLINED_TYPES:
            return self.callee(self.inlined(function))
        converted = self._converted(function) if type(function) is FunctionType else None
        return self._calling(function) if converted is None else converted

    def _calling(self, function: Any) -> Any:
        return lambda *arguments, **keywords: self.call(function, arguments, keywords)

    def _converted(self, function: FunctionType) -> Any:
        return None if self._runs_natively(function) else self.prepare(function)

    @staticmethod
    def _runs_natively(function: FunctionType) -> bool:
        return is_library_module(function.__globals__.get("__name__")) and not hasattr(function, "__wrapped__")

    def inlined(self, compiled: Any) -> Any:
        """The function that a compiled function stands for."""
        return self.get_attribute(compiled, "__wrapped__")

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self.stopped:
            return function(*map(concrete, arguments), **{k: concrete(v) for k, v in keywords.items()})
        cls = type(function)
        if cls is FunctionType:
            if self._runs_natively(function):
                return self.call_library(function, arguments, keywords)
            return self.prepare(function)(*arguments, **keywords)
        if cls is MethodType:
            return self.call(function.__func__, (function.__self__, *arguments), keywords)
        if cls in INLINED_TYPES:
            return self.call(self.inlined(function), arguments, keywords)
        if cls is functools.partial:
            return self._call_partial(function, arguments, keywords)
        if is_a(function, type):
            return self._call_class(function, arguments, keywords)
        if is_a(function, C_CALLABLES):
            return self.call_builtin(function, arguments, keywords)
        method, _ = self.lookup(cls, "__call__")
        if type(method) is FunctionType:
            return self.call(method, (function, *arguments), keywords)
        self.stop("unknown_callable", f"{cls.__module__}.{cls.__qualname__}")
        return function(*map(concrete, arguments), **{k: concrete(v) for k, v in keywords.items()})

    def _call_partial(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self.is_outside(function):
            for name in ("func", "args", "keywords"):
                self.get_attribute(function, name)
            self.read_content(function.keywords)
        return self.call(function.func, (*function.args, *arguments), {**function.keywords, **keywords})

    # -- Python functions
    def prepare(self, function: FunctionType) -> Any:
        """The instrumented version of a function, its identity guarded if it comes from outside; itself where there is none."""
        known = self._prepared.get(id(function))
        if known is not None and known.__defaults__ is function.__defaults__ and known.__kwdefaults__ is function.__kwdefaults__:
            return known
        if self.is_outside(function) or not is_nested(function.__code__):
            self._guard_function(function)
        try:
            code = self.unwatched(lambda: convert(function.__code__, function.__globals__.get("__file__")))
        except NotConvertible as error:
            self.stop(error.code, error.detail)
            return function
        self.keep.append(function)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        frame = CellType(Frame(function.__globals__, cells))
        closure = tuple(frame if name == CAPTURE else cells[name] for name in code.co_freevars)
        converted = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
        converted.__kwdefaults__ = function.__kwdefaults__
        self._prepared[id(function)] = converted
        return converted

    def _guard_function(self, function: FunctionType) -> None:
        if not self.is_outside(function):
            self.register(function, self.constant(function))
        text = self.sources[id(function)]
        self.read(function.__code__, f"{text}.__code__")
        if function.__defaults__ is None:
            self.miss_if(f"{text}.__defaults__ is not None")
        else:
            self.read(function.__defaults__, f"{text}.__defaults__")
        if function.__kwdefaults__:
            self.read(function.__kwdefaults__, f"{text}.__kwdefaults__")
            self.read_content(function.__kwdefaults__)
        for position, cell in enumerate(function.__closure__ or ()):
            if id(cell) not in self.cells:
                self.cells[id(cell)] = f"{text}.__closure__[{position}].cell_contents"
                self.keep.append(cell)

    def guarded_callback(self, value: Any) -> Any:
        """A callable that is handed to C code: calls of it come back to the recorder."""
        value = concrete(value)
        if not callable(value) or is_a(value, Tensor) or (is_a(value, type) and not is_heap_type(value)):
            return value
        return lambda *arguments, **keywords: self.settled(self.call(value, arguments, keywords))

    # -- the library
    def call_library(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A function of the library: its tensor work passes the door, and symbolic numbers look after themselves."""
        refusal = REFUSED_LIBRARY.get(function.__name__)
        if refusal is not None:
            self.stop(refusal, f"{function.__name__}()")
        values = (*arguments, *keywords.values())
        if any(self._is_program_callable(v) for v in values) and is_a(function, FunctionType):
            return self.prepare(function)(*arguments, **keywords)
        arguments = tuple(a if is_symbolic(a) else self.settled(a) for a in arguments)
        keywords = {k: v if is_symbolic(v) else self.settled(v) for k, v in keywords.items()}
        arguments = tuple(list(a) if is_a(a, GeneratorType) else a for a in arguments)
        for value in (*arguments, *keywords.values()):
            self.read_content(value, deep=True)
        self.inspect_all((*arguments, *keywords.values()))
        return self.native(lambda: function(*arguments, **keywords))

    @staticmethod
    def _is_program_callable(value: Any) -> bool:
        if type(value) is MethodType:
            value = value.__func__
        if type(value) is FunctionType:
            return not is_library_module(value.__globals__.get("__name__"))
        return type(value) in INLINED_TYPES

    # -- classes
    def _call_class(self, cls: type, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if cls in (type, int, float) and len(arguments) == 1 and is_symbolic(arguments[0]):
            return self._symbolic_conversion(cls, arguments[0])
        if cls in PURE_TYPES:
            return self.call_pure_type(cls, arguments, keywords)
        if issubclass(cls, Tensor) or (is_library_module(cls.__module__) and is_heap_type(cls)):
            return self.call_library(cls, arguments, keywords)
        if issubclass(cls, (np.generic, decimal.Decimal)):
            return self.native(lambda: cls(*map(self.settled, arguments), **keywords))
        if not is_heap_type(cls) and not issubclass(cls, BaseException) and cls is not functools.partial:
            if cls is type and len(arguments) == 1:
                return type(arguments[0])
            self.stop("construction", f"{cls.__module__}.{cls.__qualname__}")
            return cls(*map(concrete, arguments), **{k: concrete(v) for k, v in keywords.items()})
        if cls is functools.partial:
            make: Any = cls
            return make(*arguments, **keywords)
        arguments, keywords = self._without_symbols_unless_python(cls, arguments, keywords)
        if issubclass(cls, enum.Enum) or (issubclass(cls, tuple) and hasattr(cls, "_fields") and "__new__" in cls.__dict__):
            make = cls
            return self.native(lambda: make(*arguments, **keywords))
        initialise, _ = self.lookup(cls, "__init__")
        create, _ = self.lookup(cls, "__new__")
        if issubclass(cls, BaseException) and type(initialise) is not FunctionType and not is_a(create, staticmethod):
            return cls(*arguments, **keywords)
        if self.lookup(type(cls), "__call__")[0] is not type.__call__:
            self.stop("construction", f"{cls.__module__}.{cls.__qualname__}")
            return cls(*arguments, **keywords)
        return self._construct(cls, create, initialise, arguments, keywords)

    def _construct(self, cls: Any, create: Any, initialise: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if is_a(create, staticmethod):
            instance = self.call(create.__func__, (cls, *arguments), keywords)
        elif create is object.__new__ or getattr(create, "__self__", None) is object:
            instance = object.__new__(cls)
        elif getattr(create, "__self__", None) is builtin_base(cls) and builtin_base(cls) in (list, dict, set):
            instance = create(cls)
            arguments = tuple(self.consumable(self.settled(a)) for a in arguments)
            keywords = {k: self.settled(v) for k, v in keywords.items()}
        else:
            self.stop("construction", f"{cls.__module__}.{cls.__qualname__}")
            return cls(*arguments, **keywords)
        if cls not in type(instance).__mro__:
            return instance
        if type(initialise) is FunctionType:
            if initialise.__code__.co_filename == "<string>" and hasattr(cls, "__dataclass_fields__"):
                arguments = tuple(map(concrete, arguments))
                settled = {k: concrete(v) for k, v in keywords.items()}
                self.native(lambda: initialise(instance, *arguments, **settled))
            else:
                self.call(initialise, (instance, *arguments), keywords)
        elif arguments or keywords:
            self.native(lambda: initialise(instance, *arguments, **keywords))
        return instance

    def _without_symbols_unless_python(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """C constructors get plain numbers; a Python `__init__` may follow symbolic ones."""
        if type(self.lookup(cls, "__init__")[0]) is FunctionType and not issubclass(cls, (BaseException, tuple, enum.Enum)):
            return arguments, keywords
        return tuple(map(concrete, arguments)), {k: concrete(v) for k, v in keywords.items()}

    def _symbolic_conversion(self, cls: type, number: SymbolicNumber) -> Any:
        """type(), int() or float() of a symbolic number."""
        if cls is type:
            return type(number._value)
        if type(number._value) is cls:
            return number
        if cls is float:
            return self.define_number(f"float({number._text})", float(number._value), check_type=False)
        return int(concrete(number))
