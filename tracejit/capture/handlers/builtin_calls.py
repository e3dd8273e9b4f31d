"""Handlers of calls of C functions: builtins, `math`, `operator`, methods of containers, strings and numbers.

What a C function reads is guarded before it runs.  Callables that are passed to it record their calls.  A function without a
policy stops the recording, and runs.
"""

from __future__ import annotations

import _abc
import abc
import array
import builtins
import collections
import functools
import itertools
import math
import operator
import re
import string
import sys
import weakref
from types import FunctionType, GeneratorType, MethodDescriptorType, MethodType, MethodWrapperType, WrapperDescriptorType
from typing import Any

import numpy as np

from tracejit.capture.handlers.arrays import is_pure_array_function, of_numpy
from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.contents import has_stable_hash
from tracejit.capture.handlers.post_program import is_deferred_call_result
from tracejit.capture.handlers.special_method_stub import SpecialMethodStub
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import ObjectIdentity, RecordedCallback, concretise, is_symbolic
from tracejit.capture.handlers.texts import is_open
from tracejit.capture.policies import (
    BINARY,
    BUILTIN_CONTAINERS,
    CALLED_BACK,
    CALLED_BY_NAME,
    IMPURE,
    IN_PLACE,
    PASSING_ON,
    PREDICATES,
    PRIMITIVE_TYPES,
    PURE_FUNCTIONS,
    UNARY,
    bound_to,
    builtin_base,
    is_a,
    is_heap_type,
    is_shareable,
    is_user_instance,
)
from tracejit.capture.values import MODELS
from tracejit.core.interrupts import is_foreign
from tracejit.replay.ir import Name
from tracejit.tensor import Size, Tensor

__all__ = ["BuiltinCallHandlers"]

_OPERATORS = {function: (symbol, False) for symbol, function in BINARY.items()}
_OPERATORS.update({function: (symbol, True) for symbol, function in IN_PLACE.items()})
_UNARY_OPERATORS = {function: name for name, function in UNARY.items()}
_CONTAINER_TYPES: tuple[type, ...] = (list, dict, set, collections.deque, array.array)
_VALUE_TYPES: tuple[type, ...] = (*PRIMITIVE_TYPES, tuple, frozenset, slice, np.generic, *MODELS)
_WITH_METHODS: tuple[type, ...] = (list, dict, set, tuple, str, int, float, frozenset, bytes, collections.OrderedDict)
_OF_EXCEPTIONS = frozenset({"__init__", "add_note", "with_traceback", "__str__", "__repr__"})
"""Methods of exceptions that may run as they are."""
_KEPT_BY_DICTIONARIES: dict[str, tuple[int, ...]] = {
    "setdefault": (1,), "__setitem__": (1,), "update": (0,), "get": (1,), "pop": (1,), "__ior__": (0,), "__init__": (0,),
}  # fmt: skip
_KEPT_BY_SEQUENCES: dict[str, tuple[int, ...]] = {
    "append": (0,), "appendleft": (0,), "extend": (0,), "extendleft": (0,), "insert": (1,), "__setitem__": (1,), "__iadd__": (0,),
    "index": (0,), "count": (0,), "remove": (0,), "__contains__": (0,), "__init__": (0,),
}  # fmt: skip
"""Methods, with the positions of arguments that they only store or compare with their items (`update`: its keywords, too)."""
_STATIC_OWNERS: tuple[type, ...] = (str, dict, bytes, int, float, tuple)


def _is_static(owner: Any) -> bool:
    """Whether `owner` is a class whose static and class methods have a policy."""
    return type(owner) is type and owner in (*_STATIC_OWNERS, object, list, set, frozenset)


def _is_pure_method(owner: Any, name: str) -> bool:
    """Whether a method of C code depends on what it is given alone."""
    return is_a(owner, _VALUE_TYPES) and not any(
        name in model.impure_methods for kind, model in MODELS.items() if is_a(owner, kind)
    )


def _is_record(cls: Any) -> bool:
    """Whether `cls` is a class of named tuples."""
    return is_a(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


class BuiltinCallHandlers(Handlers):
    """Handlers of C functions."""

    def call_builtin(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """function(*arguments, **keywords), for a function or method of C code."""
        recorder = self.recorder
        owner = bound_to(function)
        if owner is not None:
            recorder.require_known(recorder.attributes.part(function, "__self__", owner))
        if type(function) is MethodWrapperType:  # a bound special method of a C class: `x.__add__`
            if function.__name__ == "__call__" and type(owner).__call__ is function.__objclass__.__call__:
                return recorder.calls.call(owner, arguments, keywords)
            return self._call_descriptor(getattr(function.__objclass__, function.__name__), (owner, *arguments), keywords)
        if getattr(function, "__module__", None) == math.__name__:
            arguments = tuple(map(recorder.extracted_numbers.as_python_number, arguments))
        if not keywords and arguments and any(map(is_symbolic, arguments)) and not any(map(recorder.arrays.is_array, arguments)):
            computed = recorder.number_calls.computed_number(function, arguments)
            if computed is not None:
                return computed
        if of_numpy(function) or (
            recorder.arrays.asks_array(arguments) and (is_a(function, MethodDescriptorType) or is_pure_array_function(function))
        ):
            return recorder.arrays.array_call(function, arguments, keywords)
        if is_a(function, (MethodDescriptorType, WrapperDescriptorType)) and arguments:
            return self._call_descriptor(function, arguments, keywords)
        if is_a(owner, Tensor):
            recorder.inspect_all((owner, *arguments))
            return recorder.mark_created(recorder.containers.native(lambda: function(*arguments, **keywords)))
        if is_a(owner, _CONTAINER_TYPES):  # the tables below have no bound methods of containers
            return self._container_method(function, owner, arguments, keywords)
        drawn = recorder.generators.drawn_by(function, arguments, keywords)
        if drawn is not ABSENT:
            return drawn
        standard = recorder.standard_call(function)
        if standard is not None:
            return standard(function, arguments, keywords)
        handler, fewest, most = _SPECIAL.get(function, (None, 0, 0))
        if handler is not None and not keywords and fewest <= len(arguments) <= most:
            return handler(self, *arguments)
        call = self._call_unbound if owner is None else self._call_bound
        return call(function, owner, arguments, keywords)

    def _call_bound(self, function: Any, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method of a value that cannot change, of an iterator or an error of this run; of others those with a handler."""
        recorder, name, text = self.recorder, function.__name__, None
        if type(owner) is str and name in ("format", "join"):
            text = recorder.printing.post_program_text_method(name, owner, arguments, keywords)
        elif type(owner) is str and not keywords and any(map(is_open, arguments)):
            text = recorder.texts.text_method(owner, name, arguments)
        if text is not None:
            return text
        if type(owner) is tuple and name in ("count", "index") and not recorder.is_outside(owner):
            return recorder.container_methods.container_method(function, owner, arguments, keywords)
        if _is_pure_method(owner, name):
            return self._value_method(function, *recorder.contents.concretise_arguments(arguments, keywords))
        is_created = is_a(owner, (GeneratorType, BaseException)) and not recorder.is_outside(owner)
        standard = None if is_created else recorder.standard_calls.standard_method(owner, name)
        if not is_created and standard is None:
            return self._call_unknown(function, arguments, keywords)
        arguments, keywords = recorder.contents.concretise_arguments(arguments, keywords)
        if is_a(owner, GeneratorType):
            return recorder.perform(lambda: function(*arguments, **keywords))
        if is_a(owner, BaseException):
            return self._call_descriptor(getattr(builtin_base(type(owner)), name), (owner, *arguments), keywords)
        return standard(owner, *arguments)  # type: ignore[misc]

    def _call_unbound(self, function: Any, owner: None, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A function of a module, or a static or class method: by its policy."""
        recorder, count = self.recorder, 0 if keywords else len(arguments)
        if function in _COMPARING:
            return self._call_pure(function, arguments, keywords)
        if function == tuple.__new__ and count == 2 and _is_record(arguments[0]):
            return recorder.contents.record_of(arguments[0], list(recorder.container_methods.consumable(arguments[1])))
        if function in _OPERATORS and count == 2:
            symbol, in_place = _OPERATORS[function]
            return recorder.operators.binary(symbol, *arguments, in_place=in_place)
        if function in _UNARY_OPERATORS and count == 1:
            return recorder.operators.unary(_UNARY_OPERATORS[function], *arguments)
        if function in PURE_FUNCTIONS:
            return self._call_pure(function, *recorder.contents.concretise_arguments(arguments, keywords))
        owner_class = getattr(function, "__self__", None)
        if _is_static(owner_class):
            return self._static_method(function, owner_class, *recorder.contents.concretise_arguments(arguments, keywords))
        if function not in _OPERATORS and function not in _UNARY_OPERATORS:
            return self._call_unknown(function, arguments, keywords)
        arguments, keywords = recorder.contents.concretise_arguments(arguments, keywords)  # with which the operator raises
        recorder.stop("unknown_call", f"{function.__name__}(), with {len(arguments)} arguments and {len(keywords)} by name")
        return recorder.perform(lambda: function(*arguments, **keywords))

    def _call_unknown(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A C function that has neither a handler nor a policy."""
        name, module = getattr(function, "__name__", repr(function)), getattr(function, "__module__", None)
        reason = "unknown_call", f"{f'{module}.{name}' if module else getattr(function, '__qualname__', name)}()"
        return self.recorder.outside_calls.outside_call(
            function, arguments, keywords, *(("impure_call", f"{name}()") if name in IMPURE else reason)
        )

    def _container_method(self, function: Any, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A bound method of a list, dict, set, deque or array."""
        recorder = self.recorder
        if (method := recorder.standard_calls.standard_method(owner, function.__name__)) is not None:
            return method(owner, *arguments)
        return recorder.container_methods.container_method(
            function, owner, *self._for_container(function.__name__, owner, arguments, keywords)
        )

    def _call_descriptor(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """An unbound method of a C class: `list.append(xs, x)`, `object.__setattr__(o, name, v)`."""
        recorder = self.recorder
        owner = arguments[0]
        name, cls, count = function.__name__, function.__objclass__, len(arguments)
        if cls is object and not keywords:
            if name == "__getattribute__" and count == 2:
                return recorder.attributes.instance_attribute(owner, arguments[1], fallback=False)
            if name == "__setattr__" and count == 3:
                return recorder.attributes.object_set_attribute(arguments[2], owner, arguments[1])
            if name == "__delattr__" and count == 2:
                return recorder.attributes.object_delete_attribute(owner, arguments[1])
            if name in ("__init__", "__init_subclass__") and count == 1:
                return None
            if name in ("__eq__", "__ne__") and count == 2:
                return function(*map(concretise, arguments))
        if (
            name in ("__next__", "__iter__")
            and count == 1
            and is_a(owner, cls)
            and hasattr(cls, "__next__")
            and not (keywords or recorder.is_outside(owner))
        ):
            return recorder.iteration.advance(owner) if name == "__next__" else owner
        if name == "__get__" and cls is FunctionType and count in (2, 3) and arguments[1] is not None and not keywords:
            return recorder.mark_created(MethodType(owner, arguments[1]))
        if (
            issubclass(cls, BaseException)
            and is_a(owner, BaseException)
            and not recorder.is_outside(owner)
            and name in _OF_EXCEPTIONS
        ):
            arguments, keywords = recorder.contents.concretise_arguments(arguments, keywords)
            return recorder.containers.native(lambda: function(*arguments, **keywords))
        if is_a(owner, collections.OrderedDict) and getattr(collections.OrderedDict, name, None) != function:
            recorder.stop("container", f"{cls.__name__}.{name} of a {type(owner).__name__}")  # it corrupts the order
        elif (cls in _WITH_METHODS or (cls in MODELS and _is_pure_method(owner, name))) and isinstance(plain(owner), cls):
            try:
                return self._call_method(function.__get__(concretise(owner)), arguments[1:], keywords)
            except TypeError as error:
                message, prefix = str(error), f"{type(owner).__qualname__}.{name}() "
                if is_foreign(error) or cls is type(owner) or not message.startswith(prefix):
                    raise
            # As Python words it for an unbound method.
            raise TypeError(f"{cls.__qualname__}.{name}() {message.removeprefix(prefix)}")
        elif cls is weakref.ref and name == "__call__" and count == 1 and not keywords:
            return recorder.attributes.referent(owner)
        else:
            recorder.stop("unknown_call", f"{cls.__name__}.{name}()")
        return recorder.run(function, arguments, keywords)

    def _call_method(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A bound C method of a container or a plain value."""
        owner = function.__self__
        if is_a(owner, _CONTAINER_TYPES):
            return self._container_method(function, owner, arguments, keywords)
        return self._value_method(function, *self.recorder.contents.concretise_arguments(arguments, keywords))

    def call_text_method(self, owner: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method of a text that each call computes.  If no handler knows the method, `owner` becomes a plain text, guarded."""
        recorder = self.recorder
        if name == "join":
            text = None
            if len(arguments) == 1 and not keywords:
                parts = list(recorder.iteration.iterate(arguments[0]))
                if all(type(plain(part)) is str for part in parts):
                    separated = [part for item in parts for part in (owner, item)][1:]
                    return recorder.texts.joined(tuple(separated))
                arguments = (parts,)
        else:
            text = None if keywords else recorder.texts.text_method(owner, name, arguments)
        return recorder.calls.call(getattr(concretise(owner), name), arguments, keywords) if text is None else text

    def _for_container(self, name: str, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments of a method of a container.  A number that it only stores, or compares with its items, stays symbolic;
        others become plain ones, guarded by their values."""
        recorder = self.recorder
        if is_a(owner, set):
            positions: Any = ()
        elif is_a(owner, dict):
            positions = (0, 1) if name == "get" and recorder.is_outside(owner) else _KEPT_BY_DICTIONARIES.get(name, ())
        else:
            positions = _KEPT_BY_SEQUENCES.get(name, ())
        arguments = tuple(
            [
                recorder.contents.value_to_store(a) if i in positions else recorder.contents.concretise_contents(a)
                for i, a in enumerate(arguments)
            ]
        )
        convert = (
            recorder.contents.value_to_store
            if name in ("update", "__init__") and positions
            else recorder.contents.concretise_contents
        )
        return arguments, {k: convert(v) for k, v in keywords.items()}

    def _value_method(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method of a string, number or tuple."""
        recorder = self.recorder
        owner = function.__self__
        recorder.contents.read_content(owner, deep=True)
        if is_a(owner, re.Pattern):  # the replacement may be a function
            arguments = tuple(map(recorder.calls.recorded_callback, arguments))
        arguments = tuple(recorder.iteration.iterate(a) if is_a(a, GeneratorType) else a for a in arguments)
        if function.__name__ == "join":
            arguments = tuple(map(self._as_list, arguments))
        values = (*arguments, *keywords.values())
        if function.__name__ == "__format__" and len(arguments) == 1 and type(arguments[0]) is str:
            recorder.plain_values.check_format(owner, arguments[0])
        if function.__name__ in ("format", "format_map") and is_a(owner, str):
            for value in values:
                recorder.operators.check_text(value)
            parts = recorder.unwatched(lambda: list(string.Formatter().parse(owner)))
            for value, specification in itertools.product(values, {part[2] for part in parts if part[2]}):
                recorder.plain_values.check_format(value, specification)
            looks_into = any("." in name or "[" in name for _, name, _, _ in parts if name)
            if looks_into and not all(type(value) in (*PRIMITIVE_TYPES, *BUILTIN_CONTAINERS) for value in values):
                recorder.stop("object_text", "what str.format() finds in an object")
        for value in values:
            recorder.contents.read_content(value, deep=True)
        return recorder.mark_created(recorder.plain_values.computed(lambda: function(*arguments, **keywords), (owner, *values)))

    def _static_method(self, function: Any, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A static or class method of a builtin class: `tuple.__new__`, `dict.fromkeys`, `str.maketrans`."""
        recorder = self.recorder
        if function.__name__ == "__new__":
            if not arguments or not is_a(arguments[0], type):
                return self.recorder.perform(lambda: function(*arguments, **keywords))  # which raises Python's error
            arguments = (
                arguments[0],
                *(recorder.container_methods.concretised_elements(a) if cls in (tuple, frozenset) else a for a in arguments[1:]),
            )
            if cls is object or cls in (list, dict, set):
                return recorder.mark_created(function(*arguments, **keywords))
        if function.__name__ == "fromkeys":
            arguments = (*map(self._as_list, arguments[:1]), *arguments[1:])
        for value in (*arguments, *keywords.values()):
            recorder.contents.read_content(value, deep=True)
        return recorder.mark_created(recorder.containers.native(lambda: function(*arguments, **keywords)))

    def _as_list(self, value: Any) -> Any:
        """The elements, as a list, of an iterable object of the program, for C code that iterates over it; else `value`."""
        if not is_user_instance(value) or self.recorder.attributes.lookup(type(value), "__iter__")[0] is ABSENT:
            return value
        return self.recorder.mark_created(list(self.recorder.iteration.iterate(value)))

    def with_callbacks(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments of a C function, with stand-ins for the callables that it calls, which record their calls."""
        wrap = self.recorded_predicate if function in PREDICATES else self.recorder.calls.recorded_callback
        wrap = self.recorder.calls.recorded_callback_with_stand_ins if function in PASSING_ON else wrap
        positions = CALLED_BACK.get(function, ())
        arguments = tuple(wrap(a) if i in positions else a for i, a in enumerate(arguments))
        return arguments, {k: wrap(v) if k in CALLED_BY_NAME else v for k, v in keywords.items()}

    def recorded_predicate(self, value: Any) -> Any:
        """Like `CallHandlers.recorded_callback`, for a predicate (None: the truth of its argument), whose results C code tests."""
        recorder = self.recorder
        if value is None:
            return RecordedCallback(recorder, None, recorder.operators.truth)
        call = recorder.calls.recorded_callback(value)
        if type(call) is not RecordedCallback:
            return call
        return RecordedCallback(recorder, call.function, lambda *arguments: recorder.operators.truth(call(*arguments)))

    def _call_pure(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A C function that depends on its arguments alone, and on the results of callables among them."""
        recorder = self.recorder
        if function in (builtins.max, builtins.min) and arguments and keywords.keys() <= {"key", "default"}:
            return recorder.number_calls.extreme(function, arguments, keywords)
        if function is builtins.sorted and len(arguments) == 1 and keywords.keys() <= {"key", "reverse"}:
            elements = list(recorder.iteration.iterate(arguments[0]))
            return recorder.mark_created(recorder.container_methods.in_order(elements, **keywords))
        if function is functools.reduce and len(arguments) in (2, 3) and not keywords:
            return self._reduced(*arguments)
        arguments, keywords = self.with_callbacks(function, arguments, keywords)
        if function in (builtins.abs, builtins.round) and arguments and is_a(arguments[0], Tensor):
            method, _ = recorder.attributes.lookup(type(arguments[0]), _UNARY_METHODS[function])
            if method is not ABSENT:
                return recorder.calls.call(method, arguments, keywords)
        if function in _UNARY_METHODS and arguments and is_user_instance(arguments[0]):
            method = recorder.attributes.method(arguments[0], _UNARY_METHODS[function])
            if method is not None:
                return recorder.calls.call(method, arguments, keywords)
        if function in _PROTOCOLS and any(is_user_instance(a) for a in arguments if type(a) is not Size):
            recorder.stop("unknown_call", f"{function.__name__}() of an object")
        if any(type(a) is ObjectIdentity for a in arguments):
            recorder.stop("object_identity", f"{function.__name__}() of an id()")
        if function in (builtins.format, builtins.repr, builtins.ascii):
            for value in arguments:
                recorder.operators.check_text(value)
        for value in arguments:
            recorder.contents.read_content(value, deep=True)
        recorder.inspect_all(arguments)
        if any(is_a(value, np.generic) for value in arguments):
            return recorder.arrays.numpy_computes(function, arguments, keywords)
        return recorder.mark_created(recorder.plain_values.computed(lambda: function(*arguments, **keywords), arguments))

    def _reduced(self, function: Any, values: Any, *initial: Any) -> Any:
        """functools.reduce.  The value that is passed from call to call may be symbolic."""
        elements = self.recorder.iteration.iterate(values)
        try:
            rest = iter(elements)
        except TypeError as error:
            if is_foreign(error):
                raise
            return self.recorder.perform(lambda: functools.reduce(function, elements))  # which raises Python's error
        result = next(iter(initial), ABSENT)
        result = next(rest, ABSENT) if result is ABSENT else result
        if result is ABSENT:
            return self.recorder.perform(lambda: functools.reduce(function, ()))  # which raises Python's error
        for element in rest:
            result = self.recorder.calls.call(function, (result, element), {})
        return result

    # -- builtins with a handler of their own
    def _any(self, values: Any) -> bool:
        return any(self.recorder.operators.truth(value) for value in self.recorder.iteration.iterate(values))

    def _all(self, values: Any) -> bool:
        return all(self.recorder.operators.truth(value) for value in self.recorder.iteration.iterate(values))

    def _getattr(self, owner: Any, name: str, *default: Any) -> Any:
        name = concretise(name)
        try:
            return self.recorder.attributes.get_attribute(owner, name)
        except AttributeError:
            if default:
                return default[0]
            raise

    def _hasattr(self, owner: Any, name: str) -> bool:
        if type(name) is not str:
            return hasattr(owner, concretise(name))  # which raises Python's error
        try:
            self.recorder.attributes.get_attribute(owner, name)
        except AttributeError:
            return False
        return True

    def _setattr(self, owner: Any, name: str, value: Any) -> None:
        self.recorder.attributes.set_attribute(value, owner, concretise(name))

    def _identity(self, value: Any) -> int:
        """id(value), as a stand-in that may only be compared.  A value that guards compare by equality stops the recording."""
        value = self.recorder.real_object(value)
        if is_a(value, np.ndarray) or type(value) in MODELS:
            if self.recorder.is_outside(value):  # guard that those whose ids are compared are distinct
                self.recorder.distinct_objects.append(self.recorder.sources[id(value)])
            return ObjectIdentity(value, self.recorder)
        if is_symbolic(value) or is_a(value, PRIMITIVE_TYPES) or is_shareable(value):  # guards do not imply identity
            self.recorder.stop("object_identity", f"id() of a {type(plain(value)).__name__}")
            return id(plain(value))
        return ObjectIdentity(value, self.recorder)

    def _hash(self, value: Any) -> int:
        recorder = self.recorder
        value = recorder.contents.as_key(value)
        if type(value) not in PRIMITIVE_TYPES:
            method = recorder.attributes.method(value, "__hash__") if is_user_instance(value) else None
            if method is not None:
                result = SpecialMethodStub(recorder.calls.call(method, (value,), {}))
                return recorder.perform(lambda: hash(result))  # type: ignore[no-any-return]
            recorder.contents.read_content(value, deep=True)
            if not has_stable_hash(value):
                recorder.stop("object_identity", "hash()")
        return hash(value)

    def _isinstance(self, value: Any, classes: Any) -> bool:
        return self._class_test(builtins.isinstance, value, classes)

    def _issubclass(self, value: Any, classes: Any) -> bool:
        return self._class_test(builtins.issubclass, value, classes)

    def _class_test(self, function: Any, value: Any, classes: Any) -> bool:
        """function(value, classes), where `function` is isinstance or issubclass."""
        recorder = self.recorder
        if is_a(classes, tuple):
            recorder.contents.read_content(classes)
            return any(self._class_test(function, value, candidate) for candidate in classes)
        value = concretise(value) if is_deferred_call_result(value) else plain(value)
        kind = type(classes)
        if kind is type:
            recorder.attributes.read_mro(type(value))
            if is_a(value, type):
                recorder.attributes.read_mro(value)
        elif not (function is builtins.isinstance and type(value) is classes):
            name = f"__{'instance' if function is builtins.isinstance else 'subclass'}check__"
            check = recorder.attributes.lookup(kind, name)[0]
            if getattr(classes, "_is_protocol", False):  # its check looks at the calling frame
                recorder.stop("frame_access", function.__name__)
                return recorder.perform(lambda: function(value, classes))
            if type(check) is FunctionType and check is not vars(abc.ABCMeta)[name]:
                return recorder.operators.truth(recorder.calls.call(check, (classes, value), {}))
            self._guard_registrations()
        return bool(recorder.containers.native(lambda: function(value, classes)))

    def _guard_registrations(self) -> None:
        """Guard that no class has been registered with an abstract class since (`abc.get_cache_token`)."""
        self.recorder.namespace["abstract_token"] = _abc.get_cache_token
        self.recorder.miss_if(Name("abstract_token").call().differs(_abc.get_cache_token()))

    def has_flag(self, value: Any, flag: int) -> bool:
        """Whether the type of `value` has `flag`, one that a registration with an abstract class may set
        (`Py_TPFLAGS_SEQUENCE`)."""
        if is_heap_type(type(value)):
            self._guard_registrations()
        return bool(type(value).__flags__ & flag)

    def _callable(self, value: Any) -> bool:
        return self.recorder.attributes.lookup(type(plain(value)), "__call__")[0] is not ABSENT

    def _repr(self, value: Any) -> str:
        return self.recorder.operators.formatted(value, ord("r"), "")

    def _format(self, value: Any, specification: str = "") -> str:
        return self.recorder.operators.formatted(value, -1, specification)

    def _iter(self, value: Any, *sentinel: Any) -> Any:
        if sentinel:
            return iter(self.recorder.calls.recorded_callback(value), *map(concretise, sentinel))
        return self.recorder.iteration.iterator(value)

    def _next(self, iterator: Any, *default: Any) -> Any:
        return self.recorder.iteration.advance(iterator, *default)

    def _handled(self) -> Any:
        """sys.exception()"""
        self.recorder.read_handled()
        return sys.exception()

    def _handled_parts(self) -> Any:
        """sys.exc_info()"""
        self.recorder.read_handled()
        return self.recorder.mark_created(sys.exc_info())

    def _set_item(self, owner: Any, key: Any, value: Any) -> None:
        self.recorder.containers.set_item(value, owner, key)

    def _not(self, value: Any) -> bool:
        return not self.recorder.operators.truth(value)


_PROTOCOLS = frozenset(
    {
        builtins.abs, builtins.round, builtins.divmod, builtins.pow, builtins.format, builtins.ascii, builtins.bin, builtins.hex,
        builtins.oct, operator.index, operator.concat, operator.countOf, operator.indexOf,
        *(f for f in PURE_FUNCTIONS if f.__module__ in ("math", "cmath")),
    }
)  # fmt: skip
"""Functions that call special methods of their arguments."""
_COMPARING = frozenset({builtins.sorted, builtins.max, builtins.min, functools.reduce})
"""Functions that only compare elements or pass them to callables, so that numbers in their arguments may stay symbolic."""
_UNARY_METHODS = {
    builtins.abs: "__abs__", builtins.round: "__round__", math.floor: "__floor__", math.ceil: "__ceil__", math.trunc: "__trunc__",
}  # fmt: skip
_SPECIAL: dict[Any, tuple[Any, int, int]] = {  # function -> handler, least and most arguments
    sys.exception: (BuiltinCallHandlers._handled, 0, 0),
    sys.exc_info: (BuiltinCallHandlers._handled_parts, 0, 0),
    builtins.sum: (lambda self, *terms: self.recorder.number_calls.total(*terms), 1, 2),
    math.fsum: (lambda self, terms: self.recorder.number_calls.precise_total(terms), 1, 1),
    math.prod: (lambda self, values: self.recorder.number_calls.product(values), 1, 1),
    builtins.any: (BuiltinCallHandlers._any, 1, 1),
    builtins.all: (BuiltinCallHandlers._all, 1, 1),
    builtins.getattr: (BuiltinCallHandlers._getattr, 2, 3),
    builtins.hasattr: (BuiltinCallHandlers._hasattr, 2, 2),
    builtins.setattr: (BuiltinCallHandlers._setattr, 3, 3),
    builtins.delattr: (lambda self, owner, name: self.recorder.attributes.delete_attribute(owner, name), 2, 2),
    builtins.iter: (BuiltinCallHandlers._iter, 1, 2),
    builtins.next: (BuiltinCallHandlers._next, 1, 2),
    builtins.len: (lambda self, value: self.recorder.containers.length(value), 1, 1),
    builtins.id: (BuiltinCallHandlers._identity, 1, 1),
    builtins.hash: (BuiltinCallHandlers._hash, 1, 1),
    builtins.isinstance: (BuiltinCallHandlers._isinstance, 2, 2),
    builtins.issubclass: (BuiltinCallHandlers._issubclass, 2, 2),
    builtins.callable: (BuiltinCallHandlers._callable, 1, 1),
    builtins.repr: (BuiltinCallHandlers._repr, 1, 1),
    builtins.format: (BuiltinCallHandlers._format, 1, 2),
    operator.setitem: (BuiltinCallHandlers._set_item, 3, 3),
    operator.getitem: (lambda self, owner, key: self.recorder.containers.get_item(owner, key), 2, 2),
    operator.delitem: (lambda self, owner, key: self.recorder.containers.delete_item(owner, key), 2, 2),
    operator.contains: (lambda self, container, element: self.recorder.containers.contains(element, container), 2, 2),
    operator.truth: (lambda self, value: self.recorder.operators.truth(value), 1, 1),
    operator.not_: (BuiltinCallHandlers._not, 1, 1),
}
