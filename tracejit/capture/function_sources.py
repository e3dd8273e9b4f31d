"""Source texts that do not stand where code says they do: those a program gives, and those that go with functions pickled by value.

cloudpickle, and what is built on it (joblib, ray, dask), pickles a function of `__main__` as its code, of which another process has no
text.  So the texts of the function, and of functions of `__main__` that it reaches, go along.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterator
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final

from tracejit.capture.policies import INLINED_TYPES
from tracejit.capture.syntax.convert import convert_with_source
from tracejit.capture.syntax.locate import NotConvertible, source_of
from tracejit.core.package_files import is_own_code, is_own_frame
from tracejit.core.weak_table import WeakTable

__all__ = ["modules_by_value", "sources_reached", "use_source"]

_PICKLERS: Final = frozenset({"cloudpickle", "dill"})
_MOST: Final = 10_000  # objects that are looked at
_texts: WeakTable[str] = WeakTable()


def use_source(function: Any, text: str) -> None:
    """From now on the definition of a function, or of the methods of an object's class, is looked for in a text: that of the definition,
    or a longer one.  Raises ValueError where none in it compiles to the code that runs, TypeError where it is no text."""
    if not isinstance(text, str):
        raise TypeError(f"compile(): source must be a text, got {type(text).__name__}")
    plain = _plain(function)
    functions = [plain] if isinstance(plain, FunctionType) else list(_methods(type(plain)))
    errors: list[ValueError] = []
    for one in functions:
        try:
            convert_with_source(one.__code__, text, one.__globals__)
        except ValueError as error:
            errors.append(error)
    if len(errors) == len(functions):
        raise ValueError(f"compile(): {errors[0] if errors else f'objects of {type(plain).__name__} have no Python code'}")


def modules_by_value() -> Collection[str]:
    """The modules whose functions are pickled by value by who asks for a pickle now: none, unless it is cloudpickle, or dill."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if not _PICKLERS.isdisjoint(name.split(".")):  # also where another package contains it
            registered = frame.f_globals.get("list_registry_pickle_by_value")
            return {"__main__", *(registered() if registered is not None else ())}
        if not is_own_frame(frame) and name not in ("pickle", "copyreg"):
            return ()
        frame = frame.f_back
    return ()


def sources_reached(function: Any, modules: Collection[str]) -> tuple[str, ...]:
    """The texts of the functions of some modules that a function reaches by globals and free variables, its own included.  What has no
    text is left out."""
    found: dict[str, None] = {}
    for code, names in _reached(function, modules):
        text = _texts.get(code)
        if text is None:
            try:
                text = source_of(code, names)
            except NotConvertible:
                text = ""
            _texts[code] = text
        if text:
            found[text] = None
    return tuple(found)


def _plain(function: Any) -> Any:
    """The function behind methods, partial calls and compiled functions."""
    while True:
        if isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        elif type(function) in INLINED_TYPES:
            function = function.__dict__["__wrapped__"]
        else:
            return function


def _methods(cls: type) -> Iterator[FunctionType]:
    """The functions of the program that a class has."""
    for one in cls.__mro__:
        for value in vars(one).values():
            parts = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
            for part in map(_plain, parts):
                if isinstance(part, FunctionType) and not is_own_code(part.__code__):
                    yield part


def _reached(function: Any, modules: Collection[str]) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    pending, seen = [function], set[int]()
    while pending and len(seen) < _MOST:
        value = _plain(pending.pop())
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            if value.__module__ in modules:
                yield value.__code__, value.__globals__
                pending += [value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__]
                pending += [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
        elif isinstance(value, type):
            if value.__module__ in modules:
                pending += _methods(value)
        elif isinstance(value, list | tuple | set | frozenset):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
        else:
            pending += [type(value), *getattr(value, "__dict__", {}).values()] if type(value).__module__ != "builtins" else []


def _names(code: CodeType) -> Iterator[str]:
    """The names that code and the functions inside it may look up among globals."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
