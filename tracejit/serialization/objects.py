"""Objects of classes, in the terms in which `copyreg` and pickle speak of them: what makes one, with which arguments, and its state.

Only names are written of functions and classes.  Making objects of what a file names runs its code, so `load` does it only where it is
told to (weights_only=False).
"""

from __future__ import annotations

import contextlib
import pkgutil
from collections.abc import Iterator, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

from tracejit.serialization.files import FileFormatError

__all__ = [
    "add_safe_globals", "clear_safe_globals", "found", "get_safe_globals", "is_named", "is_safe", "name_of", "reduced", "safe_globals",
    "set_state",
]  # fmt: skip

_safe: list[Any] = []
_PROTOCOL = 2  # the first that says more of an object than a call of a private function of copyreg


def is_named(value: Any) -> bool:
    """Whether a value is written as its name: a function or a class."""
    return isinstance(value, type | FunctionType | BuiltinFunctionType)


def name_of(value: Any) -> str | None:
    """ "module:name" of a function or a class; None where that name means something else (a lambda, a local class)."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    try:
        return f"{module}:{name}" if pkgutil.resolve_name(f"{module}:{name}") is value else None
    except (ImportError, AttributeError, ValueError):  # ValueError: <locals>, <lambda>
        return None


def found(name: Any) -> Any:
    """The function or class of a name.  Raises FileFormatError where there is none."""
    if not isinstance(name, str) or name.count(":") != 1:
        raise FileFormatError(f"load(): the structure of the file has the name {name!r}, which is none of a class")
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise FileFormatError(f"load(): the file holds a {name.replace(':', '.')}, which is not found: {error}") from error


def reduced(value: Any) -> tuple[Any, tuple[Any, ...], Any, list[Any], list[Any]] | None:
    """(what makes it, arguments, state, items of a list, pairs of a mapping); None for what cannot be taken apart."""
    try:
        parts = value.__reduce_ex__(_PROTOCOL)
    except TypeError:
        return None
    if not isinstance(parts, tuple):
        return None
    make, arguments, state, items, pairs = (*parts, None, None, None)[:5]
    return make, tuple(arguments), state, list(items or ()), list(pairs or ())


def set_state(value: Any, state: Any) -> None:
    """Give an object the state that `reduced` found."""
    if hasattr(value, "__setstate__"):
        value.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    value.__dict__.update(attributes or {})
    for name, content in (slots or {}).items():
        setattr(value, name, content)


# ---- what may be made without being told each time ------------------------------------------------------------------
def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Classes and functions that load() may make objects of, or call, where a file of save()'s names them; PyTorch's pairs of such a thing
    and another name are taken as the thing.

    >>> add_safe_globals([complex])"""
    _safe.extend(thing[0] if isinstance(thing, tuple) else thing for thing in safe_globals)


def get_safe_globals() -> list[Any]:
    """What add_safe_globals() was given."""
    return list(_safe)


def clear_safe_globals() -> None:
    """Forget what add_safe_globals() was given."""
    _safe.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: Sequence[Any]) -> Iterator[None]:
    """add_safe_globals() for what is loaded inside."""
    before = list(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe[:] = before


def is_safe(name: Any) -> bool:
    """Whether a name is that of something that add_safe_globals() was given.  Nothing is imported to find out."""
    return any(name_of(thing) == name for thing in _safe)
