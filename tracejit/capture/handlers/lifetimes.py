"""Whether the program can tell when an object goes.

A recording keeps what it has seen alive until it ends; a program whose finalizers and callbacks of weak references would run earlier, in
the middle of the call, is not recorded.  Callbacks of the library's own tables tell nobody anything.
"""

from __future__ import annotations

import functools
import weakref
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from tracejit.capture.policies import IDENTITY_TYPES, PRIMITIVE_TYPES, builtin_base, instance_dictionary, is_a, is_library_module

__all__ = ["deletion_is_visible", "keeps_alive", "may_be_referred_to"]

_LASTING: tuple[type, ...] = (*PRIMITIVE_TYPES, *IDENTITY_TYPES, FunctionType, ModuleType)
"""Types of values whose end nobody waits for, and that keep nothing alive which is the program's alone."""


def may_be_referred_to(value: object) -> bool:
    """Whether there may be a weak reference to a value that a program keeps as its state."""
    return not is_a(value, _LASTING) and type(value).__weakrefoffset__ != 0


def deletion_is_visible(value: object) -> bool:
    """Whether the end of `value`, or of what it leads to, runs code that is not the library's."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or is_a(value, _LASTING):
            continue
        seen.add(id(value))
        if hasattr(type(value), "__del__") or any(map(_is_of_the_program, weakref.getweakrefs(value))):
            return True
        waiting += _parts(value)
    return False


def keeps_alive(value: object, target: object) -> bool:
    """Whether `target` is `value`, or is kept alive by it as programs usually build their state."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if value is target:
            return True
        if id(value) not in seen and not is_a(value, _LASTING):
            seen.add(id(value))
            waiting += _parts(value)
    return False


def _is_of_the_program(reference: Any) -> bool:
    """Whether a weak reference has a callback that is not the library's."""
    callback = reference.__callback__
    if is_a(callback, functools.partial):
        callback = callback.func
        if type(callback) is BuiltinFunctionType and callback.__name__ == "pop":  # WeakTable
            return False
    if type(callback) is MethodType:
        callback = callback.__func__
    if type(callback) is FunctionType:
        return not is_library_module(callback.__globals__.get("__name__"))
    return callback is not None


def _parts(value: Any) -> list[Any]:
    """What an object keeps alive, as far as programs usually build their state."""
    base = builtin_base(type(value))
    instance = instance_dictionary(value)
    parts = [] if instance is None else list(dict.values(instance))
    if issubclass(base, dict):
        parts += [*dict.keys(value), *dict.values(value)]
    elif issubclass(base, (list, tuple, set, frozenset)):
        parts += list(base.__iter__(value))
    elif type(value) is MethodType:
        parts.append(value.__self__)
    return parts
