"""Calls of built-in types: conversions, containers, iterators of `itertools`.

As with C functions, the content that they read is guarded or read through the recorder.  Special methods of user code are
called through it.
"""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.contents import CONTAINERS
from tracejit.capture.handlers.special_method_stub import SpecialMethodStub
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import concretise, is_symbolic
from tracejit.capture.policies import CALLED_BACK, PURE_TYPES, is_a, is_user_instance
from tracejit.tensor import Size, Tensor

__all__ = ["TypeCallHandlers"]

_CONVERSIONS: dict[type, tuple[str, ...]] = {
    int: ("__int__", "__index__"), float: ("__float__", "__index__"), complex: ("__complex__", "__float__", "__index__"),
    bytes: ("__bytes__",),
}  # fmt: skip


def _is_iterable(value: Any) -> bool:
    return hasattr(type(value), "__iter__") or (hasattr(type(value), "__getitem__") and is_user_instance(value))


_TAKEN_WHOLE: dict[type, tuple[int, ...]] = {itertools.repeat: (0,), itertools.count: (0, 1)}
"""Iterator type -> positions of the arguments that it does not iterate over."""


class TypeCallHandlers(Handlers):
    """`int(x)`, `list(xs)`, `zip(a, b)`, `str(x)` ..."""

    def call_pure_type(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """cls(*arguments, **keywords), for a type whose result depends on the arguments alone."""
        call = _CALLS.get(cls, TypeCallHandlers._call_reading)
        return self.recorder.mark_created(call(self, cls, arguments, keywords))

    def _is_read_as_it_is(self, value: Any) -> bool:
        """Whether C code that iterates over `value`, of a class of user code, gets the items of its base container."""
        return is_a(value, CONTAINERS) and type(self.recorder.attributes.lookup(type(value), "__iter__")[0]) is not FunctionType

    def _converted_by(self, cls: Any, name: str, method: Any, value: Any) -> Any:
        """cls(value), by the special method `name` of user code."""
        result = self.recorder.calls.call(method, (value,), {})
        if is_symbolic(result) and type(plain(result)) is cls:
            return result
        stub = SpecialMethodStub.of(name, result, value)
        return self.recorder.perform(lambda: cls(stub))

    def _call_bool(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        is_usual = len(arguments) == 1 and not keywords
        return self.recorder.operators.truth(*arguments) if is_usual else self._call_reading(cls, arguments, keywords)

    def _call_str(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if len(arguments) == 1 and not keywords:
            return self.recorder.operators.formatted(arguments[0], ord("s"), "")
        return self._call_reading(cls, arguments, keywords)

    def _call_iterator(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Of an iterator that takes elements, and calls functions, as it is advanced."""
        recorder = self.recorder
        if cls is itertools.accumulate and len(arguments) == 1 and keywords.get("func") is None:
            arguments, keywords = (*arguments, operator.add), {k: v for k, v in keywords.items() if k != "func"}
        arguments, keywords = recorder.builtin_calls.with_callbacks(
            cls, arguments, {k: recorder.contents.concretise_contents(v) for k, v in keywords.items()}
        )
        positions = CALLED_BACK.get(cls, ()) or _TAKEN_WHOLE.get(cls, ())
        patterns = (None, ()) if cls is itertools.starmap else (None,) * len(arguments)
        arguments = tuple(
            recorder.iteration.iterate(a, pattern) if i not in positions and hasattr(type(a), "__iter__") else concretise(a)
            for i, (a, pattern) in enumerate(zip(arguments, patterns, strict=False))
        )
        if cls is itertools.compress and len(arguments) == 2 and hasattr(type(arguments[1]), "__iter__"):
            arguments = (arguments[0], recorder.iteration.converted(arguments[1], recorder.operators.truth))
        return cls(*arguments, **keywords)

    def _call_conversion(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """By the special method of an object."""
        recorder = self.recorder
        arguments, keywords = recorder.contents.concretise_arguments(arguments, keywords)
        if len(arguments) == 1 and (is_user_instance(arguments[0]) or is_a(arguments[0], Tensor)):
            methods = [(name, recorder.attributes.lookup(type(arguments[0]), name)[0]) for name in _CONVERSIONS[cls]]
            name, method = next((pair for pair in methods if pair[1] is not ABSENT), ("", None))
            if type(method) is FunctionType:
                return self._converted_by(cls, name, method, arguments[0])
        return self._call_with_content(cls, arguments, keywords)

    def _call_reversed(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        recorder = self.recorder
        arguments, keywords = self._kept_arguments(arguments, keywords)
        if len(arguments) == 1 and is_user_instance(arguments[0]):
            method = recorder.attributes.method(arguments[0], "__reversed__")
            if method is not None:
                return recorder.calls.call(method, arguments, {})
        if len(arguments) == 1 and type(arguments[0]) in (list, tuple, Size) and not keywords:
            return recorder.contents.backwards(arguments[0])
        return self._call_with_content(cls, arguments, keywords)

    def _call_dict(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Values are kept as they are, stand-ins too."""
        pairs, ordered = self.recorder.container_methods.pairs, cls is collections.OrderedDict
        arguments, first = tuple(map(concretise, arguments)), 1 if cls is collections.defaultdict else 0
        arguments = (*arguments[:first], *[pairs(a, asks_items=ordered) for a in arguments[first:]])
        return self.recorder.containers.native(lambda: cls(*arguments, **keywords))

    def _call_counter(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        methods = self.recorder.container_methods
        arguments = tuple(map(self.recorder.contents.concretise_contents, arguments))
        if arguments and hasattr(type(arguments[0]), "keys"):
            arguments = (methods.pairs(arguments[0]), *arguments[1:])
        else:
            arguments = tuple(methods.concretised_elements(a) if _is_iterable(a) else a for a in arguments)
        return self.recorder.containers.native(lambda: cls(*arguments, **keywords))

    def _call_sequence(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Elements are passed on as they are, stand-ins too."""
        arguments, keywords = self._kept_arguments(arguments, keywords)
        consumable = self.recorder.container_methods.consumable
        arguments = tuple(consumable(a) if _is_iterable(a) else a for a in arguments)
        return self.recorder.containers.native(lambda: cls(*arguments, **keywords))

    def _call_set(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Elements are compared, so they are plain values."""
        arguments, keywords = self.recorder.contents.concretise_arguments(arguments, keywords)
        concretised_elements = self.recorder.container_methods.concretised_elements
        arguments = tuple(concretised_elements(a) if _is_iterable(a) else a for a in arguments)
        return self.recorder.containers.native(lambda: cls(*arguments, **keywords))

    def _call_range(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Of range or slice."""
        arguments, keywords = self.recorder.contents.concretise_arguments(arguments, keywords)
        return self._call_with_content(cls, tuple(map(self.recorder.containers.index, arguments)), keywords)

    def _call_reading(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """With plain values."""
        return self._call_with_content(cls, *self.recorder.contents.concretise_arguments(arguments, keywords))

    def _call_with_content(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """By C code that may look at the whole content of its arguments."""
        recorder = self.recorder
        for argument in (*arguments, *keywords.values()):
            if cls in (bytes, bytearray) and is_user_instance(argument) and not self._is_read_as_it_is(argument):
                recorder.stop("unknown_call", f"{cls.__name__}() of a {type(argument).__name__}")
            recorder.contents.read_content(argument, deep=True)
        return recorder.containers.native(lambda: cls(*arguments, **keywords))

    def _kept_arguments(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a type that passes elements on: symbolic numbers become plain ones, those in containers stay."""
        return tuple(map(concretise, arguments)), {k: self.recorder.contents.concretise_contents(v) for k, v in keywords.items()}


_CALLS: dict[type, Callable[[TypeCallHandlers, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    bool: TypeCallHandlers._call_bool,
    str: TypeCallHandlers._call_str,
    **dict.fromkeys(_CONVERSIONS, TypeCallHandlers._call_conversion),
    **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict), TypeCallHandlers._call_dict),
    collections.Counter: TypeCallHandlers._call_counter,
    **dict.fromkeys((list, tuple, enumerate, zip, collections.deque), TypeCallHandlers._call_sequence),
    **dict.fromkeys((set, frozenset), TypeCallHandlers._call_set),
    **dict.fromkeys((range, slice), TypeCallHandlers._call_range),
    reversed: TypeCallHandlers._call_reversed,
    **dict.fromkeys((map, filter, *(t for t in PURE_TYPES if t.__module__ == "itertools")), TypeCallHandlers._call_iterator),
}
"""By type what calls it; that of all others is `_call_reading`."""
