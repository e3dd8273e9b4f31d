"""Objects of classes, in the terms in which `copyreg` and pickle speak of them: what makes one, with which arguments, and its state.

Only names are written of functions and classes.  Making objects of what a file names runs its code, so `load` does it only where it is
told to (weights_only=False).
"""

from __future__ import annotations

import importlib
import sys
from types import BuiltinFunctionType, FunctionType
from typing import Any

from tracejit.serialization.files import FileFormatError

__all__ = ["found", "is_named", "name_of", "reduced", "set_state"]

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
        return f"{module}:{name}" if _looked_up(module, name) is value else None
    except (ImportError, AttributeError):
        return None


def found(name: Any) -> Any:
    """The function or class of a name.  Raises FileFormatError where there is none."""
    if not isinstance(name, str) or name.count(":") != 1:
        raise FileFormatError(f"load(): the structure of the file has the name {name!r}, which is none of a class")
    try:
        return _looked_up(*name.split(":"))
    except (ImportError, AttributeError) as error:
        raise FileFormatError(f"load(): the file holds a {name.replace(':', '.')}, which is not found: {error}") from error


def _looked_up(module: str, name: str) -> Any:
    value: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


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
