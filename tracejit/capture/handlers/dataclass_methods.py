"""Handlers of the methods that `dataclasses` generates.  They have no source file, but the fields determine what they do.

Each method is done step by step through the recorder, as its code would be: `__init__` stores the fields and calls
`__post_init__`, comparisons compare the fields.  Other functions that were compiled from a string have no source and are not
recorded.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from tracejit.core.interrupts import is_foreign

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["dataclass_method"]

Method = Callable[["Recorder", FunctionType, tuple[Any, ...], dict[str, Any]], Any]
_SYMBOLS = {"__eq__": "==", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
_ASSIGNING = frozenset({"object", "__setattr__", "__dataclass_builtins_object__", "__post_init__"})
_GENERATED = "__create_fn__.<locals>."  # prefix of the qualified names of generated methods
_FIELD_BY_FIELD = sys.version_info >= (3, 13)  # before, __eq__ compared tuples of the fields


def dataclass_method(function: FunctionType, arguments: tuple[Any, ...]) -> Method | None:
    """The handler of a call of `function` with these arguments; None if it is not a generated method of a dataclass."""
    code, name = function.__code__, function.__name__
    if (
        not code.co_qualname.startswith(_GENERATED)
        or not arguments
        or (name not in ("__init__", "__hash__") and name not in _SYMBOLS)
    ):
        return None
    cls = next((cls for cls in type(arguments[0]).__mro__ if vars(cls).get(name) is function), None)
    if cls is None or "__dataclass_fields__" not in vars(cls):
        return None
    names = {field.name for field in _fields(cls)}
    expected = names | {"__init__": _ASSIGNING, "__hash__": {"hash"}}.get(name, {"__class__", "NotImplemented"})
    if not expected.issuperset(code.co_names):
        return None
    if name == "__hash__":
        return _HashHandler(cls)
    return _InitHandler(cls) if name == "__init__" else _CompareHandler(cls, _SYMBOLS[name])


def _fields(cls: Any) -> list[Any]:
    """The fields of a dataclass, and its `InitVar` pseudo-fields."""
    return [f for f in cls.__dataclass_fields__.values() if f._field_type is not dataclasses._FIELD_CLASSVAR]  # type: ignore[attr-defined]


def _bound(function: FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """The values of the parameters of a call, by name.  Raises TypeError if the arguments do not fit."""
    bound = inspect.Signature.from_callable(function, follow_wrapped=False).bind(*arguments, **keywords)
    bound.apply_defaults()
    return bound.arguments


class _InitHandler:
    """Handler of `__init__`."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __call__(self, recorder: Recorder, function: FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        try:
            bound = recorder.unwatched(lambda: _bound(function, arguments, keywords))
        except TypeError as error:
            if is_foreign(error):
                raise
            return recorder.perform(lambda: function(*arguments, **keywords))  # which raises Python's error
        instance = arguments[0]
        init_vars = []
        for field in _fields(self._cls):
            variables = function.__code__.co_freevars
            if not field.init and field.default_factory is dataclasses.MISSING:
                if not {f"_dflt_{field.name}", f"__dataclass_dflt_{field.name}__"} & {*variables}:
                    continue
                value = recorder.mark_fixed(field.default)
            elif not field.init or type(bound[field.name]) is dataclasses._HAS_DEFAULT_FACTORY_CLASS:  # type: ignore[attr-defined]
                value = recorder.calls.call(recorder.mark_fixed(field.default_factory), (), {})
            else:
                value = bound[field.name]
            if field._field_type is dataclasses._FIELD_INITVAR:  # type: ignore[attr-defined]
                init_vars.append(value)
            elif self._cls.__dataclass_params__.frozen:
                recorder.attributes.object_set_attribute(value, instance, field.name)
            else:
                recorder.attributes.set_attribute(value, instance, field.name)
        if "__post_init__" in function.__code__.co_names:
            recorder.calls.call(recorder.attributes.get_attribute(instance, "__post_init__"), tuple(init_vars), {})
        return None


class _CompareHandler:
    """Handler of a comparison of all fields."""

    def __init__(self, cls: Any, symbol: str) -> None:
        self._names = [field.name for field in _fields(cls) if field.compare and field._field_type is dataclasses._FIELD]  # type: ignore[attr-defined]
        self._symbol = symbol

    def __call__(self, recorder: Recorder, function: FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if len(arguments) != 2 or keywords:
            return recorder.perform(lambda: function(*arguments, **keywords))  # which raises Python's error
        left, right = arguments
        if self._symbol == "==" and _FIELD_BY_FIELD and left is right:
            return True
        if recorder.attributes.get_attribute(right, "__class__") is not recorder.attributes.get_attribute(left, "__class__"):
            return NotImplemented
        if self._symbol == "==" and _FIELD_BY_FIELD:
            result: Any = True
            for name in self._names:
                result = recorder.operators.binary(
                    "==", recorder.attributes.get_attribute(left, name), recorder.attributes.get_attribute(right, name)
                )
                if not recorder.operators.truth(result):
                    break
            return result
        sides = [
            recorder.mark_created(tuple([recorder.attributes.get_attribute(side, name) for name in self._names]))
            for side in arguments
        ]
        return recorder.operators.binary(self._symbol, *sides)


class _HashHandler:
    """Handler of `__hash__`: the hash of the fields that have `hash=True`, or `compare=True` and no `hash`."""

    def __init__(self, cls: Any) -> None:
        fields = [field for field in _fields(cls) if field._field_type is dataclasses._FIELD]  # type: ignore[attr-defined]
        self._names = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]

    def __call__(self, recorder: Recorder, function: FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if len(arguments) != 1 or keywords:
            return recorder.perform(lambda: function(*arguments, **keywords))  # which raises Python's error
        parts = recorder.mark_created(tuple([recorder.attributes.get_attribute(arguments[0], name) for name in self._names]))
        return recorder.calls.call(hash, (parts,), {})
