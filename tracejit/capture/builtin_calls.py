"""Calls of C functions: builtins, `math`, `operator`, methods of containers, strings and numbers.

What they read is guarded before they run; callables handed to them come back to the recorder; a function without a policy stops
the recording, and runs.
"""

from __future__ import annotations

import _abc
import builtins
import collections
import datetime
import decimal
import functools
import operator
import re
from types import FunctionType, GeneratorType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import numpy as np

from tracejit.capture.iteration import IterationHandlers
from tracejit.capture.policies import (
    BINARY,
    COMPUTED_NUMBERS,
    IMPURE,
    IN_PLACE,
    PRIMITIVE_TYPES,
    PURE_FUNCTIONS,
    PURE_MODULES,
    is_a,
    is_user_instance,
)
from tracejit.capture.symbols import ObjectIdentity, concrete, is_symbolic, plain
from tracejit.tensor import Tensor

__all__ = ["BuiltinCallHandlers"]

_OPERATORS = {function: (symbol, False) for symbol, function in BINARY.items()}
_OPERATORS.update({function: (symbol, True) for symbol, function in IN_PLACE.items()})
_CONTAINER_TYPES: tuple[type, ...] = (list, dict, set, collections.deque)
_VALUE_TYPES: tuple[type, ...] = (
    *PRIMITIVE_TYPES, tuple, frozenset, range, slice, re.Pattern, re.Match, decimal.Decimal, datetime.date, datetime.time,
    datetime.timedelta,
)  # fmt: skip
_STATIC_OWNERS: tuple[type, ...] = (str, dict, bytes, int, float, tuple)


class BuiltinCallHandlers(IterationHandlers):
    """The policies of C functions."""

    def call_builtin(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if not keywords and arguments and any(map(is_symbolic, arguments)):
            computed = self._computed_number(function, arguments)
            if computed is not None:
                return computed
        if is_a(function, (MethodDescriptorType, WrapperDescriptorType)) and arguments:
            return self._call_descriptor(function, arguments, keywords)
        handler = _SPECIAL.get(function)
        if handler is not None and not keywords:
            return handler(self, *arguments)
        owner = getattr(function, "__self__", None)
        if is_a(owner, Tensor):
            self.inspect_all((owner, *arguments))
            return self.native(lambda: function(*arguments, **keywords))
        arguments = tuple(self.settled(a) for a in arguments)
        keywords = {k: self.settled(v) for k, v in keywords.items()}
        if function in _OPERATORS and not keywords:
            symbol, in_place = _OPERATORS[function]
            return self.binary(symbol, *arguments, in_place=in_place)
        if function in PURE_FUNCTIONS or getattr(function, "__module__", None) in PURE_MODULES:
            return self._call_pure(function, arguments, keywords)
        if is_a(owner, _CONTAINER_TYPES):
            return self.container_method(function, owner, arguments, keywords)
        if is_a(owner, (*_VALUE_TYPES, np.generic)) or (type(owner) is type and owner in _STATIC_OWNERS):
            return self._value_method(function, arguments, keywords)
        if is_a(owner, GeneratorType) and not self.is_outside(owner):
            return function(*arguments, **keywords)
        name = getattr(function, "__name__", repr(function))
        if name in IMPURE:
            self.stop("impure_call", f"{name}()")
        else:
            self.stop("unknown_call", f"{getattr(function, '__module__', None) or type(owner).__name__}.{name}()")
        return function(*arguments, **keywords)

    def _computed_number(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """A function of numbers, left to the prologue; None where it is not."""
        try:
            known = function in COMPUTED_NUMBERS
        except TypeError:
            return None
        if not known or not all(is_symbolic(a) or type(a) in (int, float) for a in arguments):
            return None
        try:
            result = function(*map(plain, arguments))
        except (ArithmeticError, ValueError, TypeError):  # the program may catch it: the numbers have decided where it goes on
            for argument in arguments:
                concrete(argument)
            raise
        if type(result) not in (int, float) or result != result:
            return None
        texts = [a._text if is_symbolic(a) else self.number_text(a) for a in arguments]
        return self.define_number(f"{self.constant(function)}({', '.join(texts)})", result, check_type=True)

    def _call_descriptor(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method taken from its class: `list.append(xs, x)`, `object.__setattr__(o, name, v)`."""
        owner = arguments[0]
        name, cls = function.__name__, function.__objclass__
        if cls is object:
            if name == "__getattribute__":
                return self.instance_attribute(owner, arguments[1], fallback=False)
            if name == "__setattr__":
                return self.plain_set_attribute(arguments[2], owner, arguments[1])
            if name == "__delattr__":
                return self.plain_delete_attribute(owner, arguments[1])
            if name in ("__init__", "__init_subclass__"):
                return None
        if cls in (list, dict, set, tuple, str, int, float, frozenset, bytes):
            return self.call_builtin(function.__get__(concrete(owner)), arguments[1:], keywords)
        self.stop("unknown_call", f"{cls.__name__}.{name}()")
        return function(*map(concrete, arguments), **{k: concrete(v) for k, v in keywords.items()})

    def _value_method(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A method of a string, number or tuple."""
        arguments = tuple(self.iterate(a) if is_a(a, GeneratorType) else self.guarded_callback(a) for a in arguments)
        for value in (*arguments, *keywords.values()):
            if function.__name__ in ("format", "format_map"):
                self.check_text(value)
            self.read_content(value, deep=True)
        return function(*arguments, **keywords)

    def _call_pure(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        keywords = {k: self.guarded_callback(v) for k, v in keywords.items()}
        if function is functools.reduce or getattr(function, "__module__", None) == "itertools":
            arguments = tuple(self.guarded_callback(a) for a in arguments)
        if function in _CONSUMERS and arguments:
            if len(arguments) == 1:
                consumed = self.consumable(arguments[0])
                arguments = (consumed if is_a(consumed, (list, tuple, dict, set)) else list(consumed),)
            if any(is_a(a, Tensor) or is_user_instance(a) for a in self._elements(arguments)):
                return self._consume(function, arguments, keywords)
        if function in (builtins.abs, builtins.round) and is_a(arguments[0], Tensor):
            name = "__abs__" if function is builtins.abs else "__round__"
            return self.call(self.lookup(type(arguments[0]), name)[0], arguments, {})
        if function in (builtins.abs, builtins.round, builtins.divmod, builtins.pow) and is_user_instance(arguments[0]):
            self.stop("unknown_call", f"{function.__name__}() of an object")
        if any(type(a) is ObjectIdentity for a in arguments):
            self.stop("object_identity", f"{function.__name__}() of an id()")
        for value in arguments:
            self.read_content(value, deep=True)
        self.inspect_all(arguments)
        return self.native(lambda: function(*arguments, **keywords))

    @staticmethod
    def _elements(arguments: tuple[Any, ...]) -> Any:
        return arguments[0] if len(arguments) == 1 else arguments

    def _consume(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """all, any, max, min, sorted over objects: their comparisons and truth values go through the recorder."""
        elements = list(self._elements(arguments))
        if function is builtins.all:
            return all(self.truth(e) for e in elements)
        if function is builtins.any:
            return any(self.truth(e) for e in elements)
        if keywords or function is builtins.sorted or any(is_user_instance(e) and not is_a(e, Tensor) for e in elements):
            return self.native(lambda: function(*arguments, **keywords))
        best = elements[0]
        for element in elements[1:]:
            if self.truth(self.binary(">" if function is builtins.max else "<", element, best)):
                best = element
        return best

    # -- builtins with a handler of their own
    def _sum(self, values: Any, start: Any = 0) -> Any:
        total = start
        for value in self.iterate(values):
            total = self.binary("+", total, value)
        return total

    def _getattr(self, owner: Any, name: str, *default: Any) -> Any:
        try:
            return self.get_attribute(owner, name)
        except AttributeError:
            if default:
                return default[0]
            raise

    def _hasattr(self, owner: Any, name: str) -> bool:
        try:
            self.get_attribute(owner, name)
        except AttributeError:
            return False
        return True

    def _setattr(self, owner: Any, name: str, value: Any) -> None:
        self.set_attribute(value, owner, name)

    def _identity(self, value: Any) -> int:
        return ObjectIdentity(value)

    def _hash(self, value: Any) -> int:
        value = concrete(value)
        if type(value) not in PRIMITIVE_TYPES:
            if is_user_instance(value) and type(self.lookup(type(value), "__hash__")[0]) is FunctionType:
                return int(self.call(self.lookup(type(value), "__hash__")[0], (value,), {}))
            self.stop("object_identity", "hash()")
        return hash(value)

    def _isinstance(self, value: Any, classes: Any) -> bool:
        return self._class_test(builtins.isinstance, value, classes)

    def _issubclass(self, value: Any, classes: Any) -> bool:
        return self._class_test(builtins.issubclass, value, classes)

    def _class_test(self, function: Any, value: Any, classes: Any) -> bool:
        self.read_content(classes, deep=True)
        candidates = classes if is_a(classes, tuple) else (classes,)
        if any(type(c) is not type for c in candidates):  # abstract classes: registrations count
            self.namespace["abstract_token"] = _abc.get_cache_token
            self.miss_if(f"abstract_token() != {_abc.get_cache_token()}")
        return bool(self.native(lambda: function(plain(value), classes)))

    def _callable(self, value: Any) -> bool:
        return callable(plain(value))

    def _repr(self, value: Any) -> str:
        return self.formatted(value, ord("r"), "")

    def _format(self, value: Any, specification: str = "") -> str:
        return self.formatted(value, -1, specification)

    def _iter(self, value: Any) -> Any:
        return self.iterator(value)

    def _next(self, iterator: Any, *default: Any) -> Any:
        return self.advance(iterator, *default)

    def _set_item(self, owner: Any, key: Any, value: Any) -> None:
        self.set_item(value, owner, key)

    def _contains(self, container: Any, element: Any) -> bool:
        return self.contains(element, container)

    def _not(self, value: Any) -> bool:
        return not self.truth(value)

    # -- types of the closed world
    def call_pure_type(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """int(x), list(x), zip(a, b), str(x) ..."""
        if cls is bool and arguments:
            return self.truth(arguments[0])
        if cls in (map, filter) and arguments:
            function = self.guarded_callback(arguments[0]) if arguments[0] is not None else None
            return cls(function, *(self.iterate(a) for a in arguments[1:]))
        if cls.__module__ == "itertools":
            arguments = tuple(self.iterate(a) if hasattr(a, "__iter__") else self.guarded_callback(a) for a in arguments)
            return cls(*arguments, **{k: self.settled(v) for k, v in keywords.items()})
        if cls is str and len(arguments) == 1 and not keywords:
            return self.formatted(arguments[0], ord("s"), "")
        arguments = tuple(self.settled(a) for a in arguments)
        keywords = {k: self.settled(v) for k, v in keywords.items()}
        if cls in (int, float, complex, bytes) and arguments and (is_user_instance(arguments[0]) or is_a(arguments[0], Tensor)):
            method, _ = self.lookup(type(arguments[0]), f"__{cls.__name__}__")
            if type(method) is FunctionType:
                return self.call(method, (arguments[0],), {})
        if cls is collections.defaultdict and arguments:
            arguments = (arguments[0], *(self.consumable(a) for a in arguments[1:]))
        elif cls in (
            list,
            tuple,
            set,
            frozenset,
            enumerate,
            zip,
            dict,
            collections.OrderedDict,
            collections.deque,
            collections.Counter,
        ):
            arguments = tuple(self.consumable(a) if not is_a(a, int) else a for a in arguments)
        else:
            for argument in arguments:
                self.read_content(argument, deep=True)
        return self.native(lambda: cls(*arguments, **keywords))


_CONSUMERS = frozenset({builtins.all, builtins.any, builtins.max, builtins.min, builtins.sorted})
_SPECIAL: dict[Any, Any] = {
    builtins.sum: BuiltinCallHandlers._sum,
    builtins.getattr: BuiltinCallHandlers._getattr,
    builtins.hasattr: BuiltinCallHandlers._hasattr,
    builtins.setattr: BuiltinCallHandlers._setattr,
    builtins.delattr: BuiltinCallHandlers.delete_attribute,
    builtins.iter: BuiltinCallHandlers._iter,
    builtins.next: BuiltinCallHandlers._next,
    builtins.len: BuiltinCallHandlers.length,
    builtins.id: BuiltinCallHandlers._identity,
    builtins.hash: BuiltinCallHandlers._hash,
    builtins.isinstance: BuiltinCallHandlers._isinstance,
    builtins.issubclass: BuiltinCallHandlers._issubclass,
    builtins.callable: BuiltinCallHandlers._callable,
    builtins.repr: BuiltinCallHandlers._repr,
    builtins.format: BuiltinCallHandlers._format,
    operator.setitem: BuiltinCallHandlers._set_item,
    operator.getitem: BuiltinCallHandlers.get_item,
    operator.contains: BuiltinCallHandlers._contains,
    operator.truth: BuiltinCallHandlers.truth,
    operator.not_: BuiltinCallHandlers._not,
}
