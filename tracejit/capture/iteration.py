"""Iteration, unpacking and context managers.

Containers are iterated by Python itself once their content is guarded; iterators of the program are driven through the recorder;
an iterator from outside cannot be replayed and stops the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType, GeneratorType
from typing import Any

from tracejit.capture.operators import OperatorHandlers
from tracejit.capture.policies import DICT_VIEWS, is_a, is_library_module, is_user_instance
from tracejit.tensor import Tensor

__all__ = ["IterationHandlers", "RecordedContext"]

_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset)


class IterationHandlers(OperatorHandlers):
    """`for x in a`, `a, b = c`, `f(*a)`, `with a`."""

    def iterate(self, value: Any, depth: int = 0) -> Any:
        """An iterable that Python's own loop may consume; `depth`: how deep its elements are unpacked."""
        if is_a(value, (str, range, bytes)):
            return value
        if is_a(value, Tensor):
            self.inspect(value)
            return self.native(lambda: list(value)) if value.ndim else value
        if is_a(value, _CONTAINERS) and not self._has_own_iterator(value):
            self.read_content(value)
            return self._unpacked(value, depth) if depth else value
        iterator = self.iterator(value)
        if is_user_instance(iterator):
            step, _ = self.lookup(type(iterator), "__next__")
            if type(step) is FunctionType:
                iterator = self._stepped(iterator, step)
        return self._unpacked(iterator, depth) if depth else iterator

    def _unpacked(self, values: Any, depth: int) -> Iterator[Any]:
        return (self.unpack(element, depth) for element in values)

    def _has_own_iterator(self, value: Any) -> bool:
        return is_user_instance(value) and type(self.lookup(type(value), "__iter__")[0]) is FunctionType

    def _stepped(self, iterator: Any, step: Callable[[Any], Any]) -> Iterator[Any]:
        while True:
            try:
                value = self.call(step, (iterator,), {})
            except StopIteration:
                return
            yield value

    def iterator(self, value: Any) -> Any:
        """iter(value)."""
        if is_user_instance(value) and not is_a(value, (list, tuple, dict, Tensor)):
            method, _ = self.lookup(type(value), "__iter__")
            if type(method) is FunctionType:
                return self.call(method, (value,), {})
            if hasattr(type(value), "__next__") and self.is_outside(value):
                self.stop("external_iterator", f"a {type(value).__name__}")
            elif type(self.lookup(type(value), "__getitem__")[0]) is FunctionType:
                return self._by_index(value)
            return iter(value)
        if is_a(value, Tensor):
            return iter(self.iterate(value))
        if self.is_outside(value):
            if is_a(value, _CONTAINERS):
                self.read_content(value)
            elif not is_a(value, (str, range, bytes)):
                self.stop("external_iterator", f"a {type(value).__name__}")
        elif is_a(value, (*_CONTAINERS, *DICT_VIEWS)):
            self.read_content(value)
        return iter(value)

    def _by_index(self, value: Any) -> Iterator[Any]:
        """The old protocol: `__getitem__` with 0, 1, 2 ... until IndexError."""
        index = 0
        while True:
            try:
                element = self.get_item(value, index)
            except IndexError:
                return
            yield element
            index += 1

    def advance(self, iterator: Any, *default: Any) -> Any:
        """next(iterator, default)."""
        if is_user_instance(iterator):
            step, _ = self.lookup(type(iterator), "__next__")
            try:
                return self.call(step, (iterator,), {})
            except StopIteration:
                if default:
                    return default[0]
                raise
        if self.is_outside(iterator) or (not is_a(iterator, GeneratorType) and not hasattr(iterator, "__next__")):
            self.stop("external_iterator", f"a {type(iterator).__name__}")
        return next(iterator, *default)

    def unpack(self, value: Any, depth: int) -> Any:
        """Something that Python may unpack `depth` levels deep."""
        if depth <= 0 or is_a(value, (str, bytes, range)):
            return value
        if is_a(value, (list, tuple)) and not self._has_own_iterator(value):
            self.read_content(value)
            if depth > 1:
                for element in value:
                    if is_a(element, (list, tuple)):
                        self.unpack(element, depth - 1)
            return value
        return self.iterate(value, depth - 1)

    def mapping(self, value: Any) -> Any:
        """A mapping for `**value`."""
        if is_a(value, dict):
            self.read_content(value)
            return value
        keys = self.call(self.get_attribute(value, "keys"), (), {})
        return {key: self.get_item(value, key) for key in self.iterate(keys)}

    def context(self, manager: Any) -> Any:
        """A context manager for a with statement."""
        cls = type(manager)
        if is_library_module(cls.__module__):
            return manager
        if is_user_instance(manager):
            return RecordedContext(self, manager)
        self.stop("impure_call", f"with {cls.__name__}")
        return manager


class RecordedContext:
    """Enters and leaves a context manager of the program through the recorder."""

    __slots__ = ("_exit", "_manager", "_recorder")

    def __init__(self, recorder: IterationHandlers, manager: Any) -> None:
        self._recorder = recorder
        self._manager = manager

    def __enter__(self) -> Any:
        recorder, manager = self._recorder, self._manager
        enter, _ = recorder.lookup(type(manager), "__enter__")
        self._exit, _ = recorder.lookup(type(manager), "__exit__")
        if type(enter) is FunctionType:
            return recorder.call(enter, (manager,), {})
        return type(manager).__enter__(manager)

    def __exit__(self, *exception: Any) -> bool:
        recorder, manager = self._recorder, self._manager
        if type(self._exit) is FunctionType:
            return recorder.truth(recorder.call(self._exit, (manager, *exception), {}))
        return bool(type(manager).__exit__(manager, *exception))
