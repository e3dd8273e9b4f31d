"""Attributes that are computed when somebody asks for them first.

functools.cached_property does that, too; on CPython 3.11 it holds a lock meanwhile, one for all instances, which a forked child may find
taken for ever.  Here two threads may compute the same value at once; so it is for pure functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["deferred"]

T = TypeVar("T")


class deferred(Generic[T]):  # noqa: N801  (a decorator)
    """A method without arguments as an attribute of an instance with a `__dict__`: assigned to, it is what was assigned."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> deferred[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> deferred[T] | T:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self._compute.__name__, self._compute(instance))  # type: ignore[no-any-return]
