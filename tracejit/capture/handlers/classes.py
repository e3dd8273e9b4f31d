"""Handlers of class statements, and of attributes of the classes that they create.

A class statement runs as Python runs it, with an instrumented body; functions in the body are created by the call.  Attributes of
such a class need no guards, and numbers among them may differ in the next call.  An entry does not run the class statement: only
the operations that the functions of the class have recorded are replayed.  So the recording stops if the class or an instance of
it escapes, or if Python runs code of the program to create it (metaclasses, `__init_subclass__`, `__set_name__`).  When the call
returns, the class is garbage; how long `__subclasses__` of its bases still lists it depends on the garbage collector.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from tracejit.capture.defects import isolated_function
from tracejit.capture.handlers.base import ABSENT, CallHandler, Handlers
from tracejit.capture.handlers.stand_ins import plain_value
from tracejit.capture.handlers.symbols import concretise
from tracejit.capture.policies import PRIMITIVE_TYPES, is_a, is_user_instance
from tracejit.capture.recording.journal import Variable
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    pass

__all__ = ["DESCRIPTORS", "ClassHandlers"]

DESCRIPTORS: tuple[type, ...] = (property, staticmethod, classmethod)
"""Descriptors whose constructors only store the functions that they are given."""
_METACLASSES: tuple[type, ...] = (type, abc.ABCMeta)
"""Metaclasses that run no code of the program when they create a class."""
_IGNORING_NAMES: frozenset[type] = frozenset(
    {
        *PRIMITIVE_TYPES, *DESCRIPTORS, FunctionType, Tensor, type, list, tuple, dict, set, frozenset, functools.cached_property,
        dataclasses.Field,
    }
)  # fmt: skip
"""Types of attributes that have no `__set_name__`, or one that only stores the name."""


def _has_metaclass(metaclass: Any) -> str:
    return f"whose metaclass is {getattr(metaclass, '__name__', metaclass)}"


def _defaults(cls: type) -> Iterator[Any]:
    """The default values of the annotated names and dataclass fields of `cls`."""
    for base in cls.__mro__:
        fields = vars(base).get("__dataclass_fields__", {})
        for name in (*vars(base).get("__annotations__", ()), *fields):
            value = fields.get(name, vars(base).get(name))
            yield value.default if type(value) is dataclasses.Field else value


def _is_plain_default(value: Any) -> bool:
    """Whether `repr(value)` runs no code of the program."""
    return not is_user_instance(value) or is_a(value, Tensor) or value is dataclasses.MISSING


class ClassHandlers(Handlers):
    """Handlers of class statements and of the classes that they create.

    stores: how many attributes of created classes have been set."""

    stores = Variable(0)

    # -- the statement
    def check_bases(self, name: str, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        """The bases of a class statement.  The recording stops if they have an unusual metaclass or an `__init_subclass__`."""
        recorder, usual = self.recorder, vars(object)["__init_subclass__"]
        for base in bases:
            if type(base) not in _METACLASSES:
                self._stop(name, f"whose base is a {type(base).__name__}" if not is_a(base, type) else _has_metaclass(type(base)))
            elif recorder.attributes.lookup(base, "__init_subclass__")[0] is not usual:
                self._stop(name, f"whose base {base.__name__} has an __init_subclass__")
        return bases

    def _stop(self, name: str, why: str) -> None:
        self.recorder.stop("class_statement", f"{name}, {why},")

    def class_maker(self, name: str, metaclass: Any) -> Any:
        """A callable that creates the class in place of its metaclass."""
        if any(metaclass is usual for usual in _METACLASSES):
            return isolated_function(self.recorder, metaclass, functools.partial(self._create_class, metaclass))
        self._stop(name, _has_metaclass(metaclass))
        return metaclass

    def _create_class(self, metaclass: Any, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        """The class of a class statement.  Stand-ins in `namespace` become plain values in it, and are noted as stored."""
        recorder, numbers = self.recorder, {}
        for key, value in list(namespace.items()):
            if (plain := plain_value(value)) is not value:
                namespace[key], numbers[key] = plain, value
        for value in namespace.values():
            has_set_name = (
                type(value) not in _IGNORING_NAMES and recorder.attributes.lookup(type(value), "__set_name__")[0] is not ABSENT
            )
            if has_set_name:
                self._stop(name, f"in which a {type(value).__name__} has a __set_name__")
        if recorder.stopped:
            return metaclass(name, bases, namespace)
        cls = recorder.mark_created(recorder.containers.native(lambda: metaclass(name, bases, namespace)))
        for key, number in numbers.items():
            recorder.effects.remember((id(cls), key), number)
        return cls

    # -- attributes
    def attribute(self, cls: type, name: str, value: Any) -> Any:
        """The attribute `name` of a created class: the stand-in that was stored, or `value`, which the class has."""
        return self.recorder.effects.stored.get((id(cls), name), self.recorder.mark_created(value))

    def is_settable(self, cls: Any, name: str) -> bool:
        """Whether setting the attribute `name` of a created class only replaces data: the name is not special, and the metaclass
        does not define it."""
        if name.startswith("__") and name.endswith("__"):
            return False
        return type(cls) in _METACLASSES and self.recorder.attributes.lookup(type(cls), name)[0] is ABSENT

    def set_attribute(self, cls: Any, name: str, value: Any) -> None:
        """cls.name = value, for a created class for which `is_settable` holds."""
        self.stores += 1
        type.__setattr__(cls, name, plain_value(value))
        self.recorder.effects.remember((id(cls), name), value)

    # -- dataclasses
    def standard_call(self, function: Any) -> CallHandler | None:
        """The handler of `dataclasses.dataclass`; None for other functions."""
        return self._dataclass if function is dataclasses.dataclass else None

    def _dataclass(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """dataclasses.dataclass.  The generated methods hold the defaults of fields, which are guarded by their values."""
        recorder = self.recorder
        keywords = {name: recorder.contents.concretise_contents(value) for name, value in keywords.items()}
        if not arguments or arguments[0] is None:
            return recorder.calls.call(functools.partial, (function,), keywords)
        (cls,) = arguments
        if not (is_a(cls, type) and recorder.is_created(cls)):
            return recorder.calls.instrumented(function, arguments, keywords)
        for value in (cls, *vars(cls).values()):
            self._concretise_places(value)
        if not all(map(_is_plain_default, _defaults(cls))):  # their repr goes into the docstring of the class
            self._stop(cls.__name__, "a dataclass with an object of the program as a default")
        result = recorder.perform(lambda: recorder.unwatched(lambda: function(cls, **keywords)))
        if not recorder.stopped:
            recorder.mark_created(result)
            for field in vars(result)["__dataclass_fields__"].values():
                recorder.mark_created(field)
                for value in (field.default, field.default_factory, field._field_type):
                    if type(value).__module__ == "dataclasses":  # sentinels such as MISSING
                        recorder.mark_fixed(value)
        return result

    def _concretise_places(self, owner: Any) -> None:
        """Guard the symbolic numbers that are noted for `owner` by their values."""
        effects = self.recorder.effects
        for place in effects.stored_by_container.pop(id(owner), ()):
            concretise(effects.stored.pop(place))
