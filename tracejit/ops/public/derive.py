"""Public functions and methods: PyTorch's names and argument orders over the primitives.

Functions of simple elementwise primitives are derived here; those that normalise arguments are written in the modules beside
this one and registered with `public`.  tensor/methods.py makes the methods and in-place forms of Tensor from these tables; `tracejit`
exports the functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from tracejit.core.interpreter import state
from tracejit.core.op import Op
from tracejit.ops.public.keywords import entry_of, write_out

__all__ = ["FUNCTIONS", "IN_PLACE", "METHODS", "binary", "derive_binary", "derive_unary", "public", "unary"]

FUNCTIONS: dict[str, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}
IN_PLACE: dict[str, Callable[..., Any]] = {}

_TRANSLATED = frozenset(("dim", "dims", "keepdim", "dtype", "device", "other", "indices_or_sections", "L"))
_NO_ATTRIBUTES: dict[str, Any] = {}
F = TypeVar("F", bound=Callable[..., Any])


def public(
    name: str | None = None, *, function: bool = True, method: bool = True, in_place: bool = False, aliases: tuple[str, ...] = ()
) -> Callable[[F], F]:
    """Register a function under PyTorch's name; as a method too, and with an in-place method `name_` if asked for.

    What it is registered as also knows the other names of arguments (keywords.py); the module that wrote it calls it directly."""

    def register(body: F) -> F:
        first = name or body.__name__.rstrip("_")
        body.__qualname__ = first
        entry = entry_of(body, first)
        code = inspect.unwrap(body).__code__
        named = not _TRANSLATED.isdisjoint(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        for public_name in (first, *aliases):
            if function:
                FUNCTIONS[public_name] = entry
            if method:
                METHODS[public_name] = entry if named else body
            if in_place:
                IN_PLACE[public_name + "_"] = entry if named else body
        return body

    return register


def derive_unary(op: Op, *names: str, in_place: bool = True) -> Callable[..., Any]:
    """function(input) of a primitive."""
    return _finish(*unary(op), op, names, in_place)


def unary(op: Op) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(function(input, out=None) of a primitive, function(input))."""

    def method(input: Any) -> Any:
        return state.top.bind(op, (input,), _NO_ATTRIBUTES)

    def function(input: Any, *, out: Any = None) -> Any:
        if out is None:
            return state.top.bind(op, (input,), _NO_ATTRIBUTES)
        return write_out(op.name, out, state.top.bind(op, (input,), _NO_ATTRIBUTES))

    for body in (function, method):
        body.__doc__ = op.doc
        body.__name__ = body.__qualname__ = op.name
    return function, method


def derive_binary(op: Op, *names: str, in_place: bool = True) -> Callable[..., Any]:
    """function(input, other) of a primitive."""
    return _finish(*binary(op), op, names, in_place)


def binary(op: Op) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(function(input, other, out=None) of a primitive, function(input, other))."""

    def method(input: Any, other: Any) -> Any:
        return state.top.bind(op, (input, other), _NO_ATTRIBUTES)

    def function(input: Any, other: Any, *, out: Any = None) -> Any:
        if out is None:
            return state.top.bind(op, (input, other), _NO_ATTRIBUTES)
        return write_out(op.name, out, state.top.bind(op, (input, other), _NO_ATTRIBUTES))

    for body in (function, method):
        body.__doc__ = op.doc
        body.__name__ = body.__qualname__ = op.name
    return function, method


def _finish(
    function: Callable[..., Any], method: Callable[..., Any], op: Op, names: tuple[str, ...], in_place: bool
) -> Callable[..., Any]:
    for body in (function, method):
        body.__name__ = body.__qualname__ = (names or (op.name,))[0]
    for name in (function.__name__, *names[1:]):
        FUNCTIONS[name], METHODS[name] = function, method
        if in_place:
            IN_PLACE[name + "_"] = method
    return function
