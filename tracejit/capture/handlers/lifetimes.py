"""Whether the deletion of an object is visible to user code, through a finalizer or a weak reference.

A recording keeps the objects that it has seen alive until it ends.  So a call is not recorded if finalizers or callbacks of weak
references of user code would run earlier, in the middle of it.  Callbacks of the library's own tables do not count.
"""

from __future__ import annotations

import functools
import weakref
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from tracejit.capture.container_kinds import children_past_methods
from tracejit.capture.policies import IDENTITY_TYPES, PRIMITIVE_TYPES, instance_dictionary, is_a, is_library_module

__all__ = ["deletion_is_visible", "keeps_alive", "may_be_referred_to"]

_LASTING: tuple[type, ...] = (*PRIMITIVE_TYPES, *IDENTITY_TYPES, FunctionType, ModuleType)
"""Types of values whose deletion is not looked for, and that are not searched for objects that they keep alive."""


def may_be_referred_to(value: object) -> bool:
    """Whether a weak reference to `value`, which user code keeps as its state, is possible."""
    return not is_a(value, _LASTING) and type(value).__weakrefoffset__ != 0


def deletion_is_visible(value: object) -> bool:
    """Whether the deletion of `value`, or of an object that it keeps alive, runs code that is not the library's."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or is_a(value, _LASTING):
            continue
        seen.add(id(value))
        if hasattr(type(value), "__del__") or any(map(_has_user_callback, weakref.getweakrefs(value))):
            return True
        waiting += _parts(value)
    return False


def keeps_alive(value: object, target: object) -> bool:
    """Whether `target` is `value`, or `value` keeps it alive through attributes, containers and bound methods."""
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


def _has_user_callback(reference: Any) -> bool:
    """Whether a weak reference has a callback that is not the library's."""
    callback = reference.__callback__
    if is_a(callback, functools.partial):
        callback = callback.func
        if type(callback) is BuiltinFunctionType and callback.__name__ == "pop":  # that of a WeakTable
            return False
    if type(callback) is MethodType:
        callback = callback.__func__
    if type(callback) is FunctionType:
        return not is_library_module(callback.__globals__.get("__name__"))
    return callback is not None


def _parts(value: Any) -> list[Any]:
    """The objects that `value` keeps alive: attributes, elements, keys and values, the owner of a bound method."""
    instance = instance_dictionary(value)
    parts = [] if instance is None else list(dict.values(instance))
    if type(value) is MethodType:
        parts.append(value.__self__)
    return [*parts, *children_past_methods(value)]
