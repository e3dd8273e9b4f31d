"""Source texts for functions whose code names no file that has their source.

* Texts that the user passes (`tracejit.compile(source=...)`): `use_source`.
* Texts of functions that are pickled by value: `modules_by_value`, `sources_reached`.  cloudpickle, and what is built on it
  (joblib, ray, dask), pickles a function of `__main__` as its code object, and another process has no source of that.  So the
  pickle of a compiled function also has the source texts of the function and of functions of `__main__` that it reaches.
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
_MOST: Final = 10_000  # objects that `sources_reached` looks at
_texts: WeakTable[str] = WeakTable()


def use_source(function: Any, text: str) -> None:
    """Take the source of a function, or of the methods of an object's class, from a text.

    text: contains the definition, and may contain more.  Raises ValueError if no definition in it compiles to the code of the
    function, TypeError if it is not a str."""
    if not isinstance(text, str):
        raise TypeError(f"compile(): source must be a text, got {type(text).__name__}")
    plain = _plain(function)
    functions = [plain] if isinstance(plain, FunctionType) else list(_methods(type(plain)))
    errors: list[ValueError] = []
    for candidate in functions:
        try:
            convert_with_source(candidate.__code__, text, candidate.__globals__)
        except ValueError as error:
            errors.append(error)
    if len(errors) == len(functions):
        raise ValueError(f"compile(): {errors[0] if errors else f'objects of {type(plain).__name__} have no Python code'}")


def modules_by_value() -> Collection[str]:
    """The modules whose functions the pickler that is running pickles by value: none, unless it is cloudpickle or dill."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if not _PICKLERS.isdisjoint(name.split(".")):  # also a copy inside of another package (joblib.externals.cloudpickle)
            registered = frame.f_globals.get("list_registry_pickle_by_value")
            return {"__main__", *(registered() if registered is not None else ())}
        if not is_own_frame(frame) and name not in ("pickle", "copyreg"):
            return ()
        frame = frame.f_back
    return ()


def sources_reached(function: Any, modules: Collection[str]) -> tuple[str, ...]:
    """The source texts of `function` and of the functions that it reaches through globals and free variables, as far as they are
    defined in `modules` and have a source text."""
    texts: dict[str, None] = {}
    for code, names in _reached(function, modules):
        text = _texts.get(code)
        if text is None:
            try:
                text = source_of(code, names)
            except NotConvertible:
                text = ""
            _texts[code] = text
        if text:
            texts[text] = None
    return tuple(texts)


def _plain(function: Any) -> Any:
    """The function in a bound method, a `functools.partial` or a compiled function, in any nesting; other objects as they are."""
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
    """The methods of a class and its bases, and the functions of its properties, that are user code."""
    for base in cls.__mro__:
        for value in vars(base).values():
            parts = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
            for part in map(_plain, parts):
                if isinstance(part, FunctionType) and not is_own_code(part.__code__):
                    yield part


def _reached(function: Any, modules: Collection[str]) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """The code and the globals of the functions in `modules` that a function reaches, itself included."""
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
    """The names that `code`, or a function inside it, may look up among globals."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
