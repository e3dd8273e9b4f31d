"""Calls of built-in types: conversions, containers, iterators of `itertools`.

As with C functions, the content that they read is guarded or read through the recorder.  Special methods of user code are
called through it.
"""

from __future__ import annotations

import collections
import itertools
import operator
from types import FunctionType
from typing import Any

from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.contents import CONTAINERS
from tracejit.capture.handlers.special_method_stub import SpecialMethodStub
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import concretise, is_symbolic
from tracejit.capture.policies import CALLED_BACK, is_a, is_user_instance
from tracejit.tensor import Size, Tensor

__all__ = ["TypeCallHandlers"]

_CONVERSIONS: dict[type, tuple[str, ...]] = {
    int: ("__int__", "__index__"), float: ("__float__", "__index__"), complex: ("__complex__", "__float__", "__index__"),
    bytes: ("__bytes__",),
}  # fmt: skip
_PASSING_ON: frozenset[type] = frozenset(
    {list, tuple, enumerate, zip, reversed, collections.deque, dict, collections.OrderedDict, collections.defaultdict}
)
"""Types that only pass the elements of their arguments on, and look at nothing but keys."""
_COLLECTIONS = frozenset({list, tuple, set, frozenset, enumerate, zip, collections.deque, collections.Counter})


def _is_iterable(value: Any) -> bool:
    return hasattr(type(value), "__iter__") or (hasattr(type(value), "__getitem__") and is_user_instance(value))


_TAKEN_WHOLE: dict[type, tuple[int, ...]] = {itertools.repeat: (0,), itertools.count: (0, 1)}
"""Iterator type -> positions of the arguments that it does not iterate over."""


class TypeCallHandlers(Handlers):
    """`int(x)`, `list(xs)`, `zip(a, b)`, `str(x)` ..."""

    def call_pure_type(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """cls(*arguments, **keywords), for a type whose result depends on the arguments alone."""
        return self.recorder.mark_created(self._call_pure_type(cls, arguments, keywords))

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

    def _call_pure_type(self, cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        recorder = self.recorder
        if cls is bool and len(arguments) == 1 and not keywords:
            return recorder.operators.truth(arguments[0])
        if cls is str and len(arguments) == 1 and not keywords:
            return recorder.operators.formatted(arguments[0], ord("s"), "")
        if cls is itertools.accumulate and len(arguments) == 1 and keywords.get("func") is None:
            arguments, keywords = (*arguments, operator.add), {k: v for k, v in keywords.items() if k != "func"}
        if cls in (map, filter) or cls.__module__ == "itertools":
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
        arguments = tuple(map(concretise if cls in _PASSING_ON else recorder.contents.concretise_contents, arguments))
        if not issubclass(cls, dict):
            keywords = {k: recorder.contents.concretise_contents(v) for k, v in keywords.items()}
        if cls in _CONVERSIONS and len(arguments) == 1 and (is_user_instance(arguments[0]) or is_a(arguments[0], Tensor)):
            methods = [(name, recorder.attributes.lookup(type(arguments[0]), name)[0]) for name in _CONVERSIONS[cls]]
            name, method = next((pair for pair in methods if pair[1] is not ABSENT), ("", None))
            if type(method) is FunctionType:
                return self._converted_by(cls, name, method, arguments[0])
        if cls is reversed and len(arguments) == 1 and is_user_instance(arguments[0]):
            method = recorder.attributes.method(arguments[0], "__reversed__")
            if method is not None:
                return recorder.calls.call(method, (arguments[0],), {})
        if cls is collections.Counter and arguments and hasattr(type(arguments[0]), "keys"):
            arguments = (recorder.container_methods.pairs(arguments[0]), *arguments[1:])
        elif cls is collections.defaultdict and arguments:
            arguments = (arguments[0], *map(recorder.container_methods.pairs, arguments[1:]))
        elif issubclass(cls, dict) and cls is not collections.Counter:
            ordered = cls is collections.OrderedDict
            arguments = tuple([recorder.container_methods.pairs(a, asks_items=ordered) for a in arguments])
        elif cls is reversed and len(arguments) == 1 and type(arguments[0]) in (list, tuple, Size) and not keywords:
            return recorder.contents.backwards(arguments[0])
        elif cls in _COLLECTIONS:
            consumed = (
                recorder.container_methods.consumable if cls in _PASSING_ON else recorder.container_methods.concretised_elements
            )
            arguments = tuple(consumed(a) if _is_iterable(a) else a for a in arguments)
        else:
            if cls in (range, slice):
                arguments = tuple(map(recorder.containers.index, arguments))
            for argument in (*arguments, *keywords.values()):
                if cls in (bytes, bytearray) and is_user_instance(argument) and not self._is_read_as_it_is(argument):
                    recorder.stop("unknown_call", f"{cls.__name__}() of a {type(argument).__name__}")
                recorder.contents.read_content(argument, deep=True)
        return recorder.containers.native(lambda: cls(*arguments, **keywords))
