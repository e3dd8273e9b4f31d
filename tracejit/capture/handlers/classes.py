"""Classes that the call makes.

A class statement runs as Python runs it, with an instrumented body; functions in it are functions that the call has made.  What is
found in such a class is the call's own: no guard is on it, and numbers in it may be others in the next call.  A replay runs no class
statement; operations that its functions have recorded are all that is left of it.  So a class that outlives the call, or an object of it,
stops the recording, as does code of the program that Python itself runs when it makes one (metaclasses, `__init_subclass__`,
`__set_name__`).  A class that nothing keeps is garbage when the call returns; until when `__subclasses__` of its bases still shows it is up
to the garbage collector.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from tracejit.capture.defects import guarded_function
from tracejit.capture.handlers.base import ABSENT, Handler, Handlers
from tracejit.capture.handlers.stand_ins import plain_value
from tracejit.capture.handlers.symbols import concrete
from tracejit.capture.policies import PRIMITIVE_TYPES, is_a, is_user_instance
from tracejit.capture.recording.journal import Variable
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    pass

__all__ = ["DESCRIPTORS", "ClassHandlers"]

DESCRIPTORS: tuple[type, ...] = (property, staticmethod, classmethod)
"""What functions of a class are put into, which keeps them and does nothing else."""
_METACLASSES: tuple[type, ...] = (type, abc.ABCMeta)
"""Those that make a class and tell nobody."""
_IGNORING_NAMES: frozenset[type] = frozenset(
    {
        *PRIMITIVE_TYPES, *DESCRIPTORS, FunctionType, Tensor, type, list, tuple, dict, set, frozenset, functools.cached_property,
        dataclasses.Field,
    }
)  # fmt: skip
"""Types of attributes that are not told their name in the class, or do no more than to keep it."""


def _has_metaclass(metaclass: Any) -> str:
    return f"whose metaclass is {getattr(metaclass, '__name__', metaclass)}"


def _defaults(cls: type) -> Iterator[Any]:
    """The values that fields of a class have, if nobody gives them others."""
    for base in cls.__mro__:
        fields = vars(base).get("__dataclass_fields__", {})
        for name in (*vars(base).get("__annotations__", ()), *fields):
            value = fields.get(name, vars(base).get(name))
            yield value.default if type(value) is dataclasses.Field else value


def _is_plain_default(value: Any) -> bool:
    """Whether the text of a value is none that code of the program says."""
    return not is_user_instance(value) or is_a(value, Tensor) or value is dataclasses.MISSING


class ClassHandlers(Handlers):
    """Class statements, and what is in the classes that they make.

    stores: how often an attribute of a class that the call has made was set."""

    stores = Variable(0)

    # -- the statement
    def check_bases(self, name: str, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        """The bases of a class, which decide who makes it, and whom Python tells."""
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
        """What makes the class in the place of its metaclass."""
        if any(metaclass is known for known in _METACLASSES):
            return guarded_function(self.recorder, metaclass, functools.partial(self._make_class, metaclass))
        self._stop(name, _has_metaclass(metaclass))
        return metaclass

    def _make_class(self, metaclass: Any, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        """The class whose body has bound these names, some of them to stand-ins of numbers, in whose place it gets plain values."""
        recorder, numbers = self.recorder, {}
        for key, value in list(namespace.items()):
            if (plainly := plain_value(value)) is not value:
                namespace[key], numbers[key] = plainly, value
        for value in namespace.values():
            is_told = (
                type(value) not in _IGNORING_NAMES and recorder.attributes.lookup(type(value), "__set_name__")[0] is not ABSENT
            )
            if is_told:
                self._stop(name, f"in which a {type(value).__name__} has a __set_name__")
        if recorder.stopped:
            return metaclass(name, bases, namespace)
        cls = recorder.mark_created(recorder.containers.native(lambda: metaclass(name, bases, namespace)))
        for key, number in numbers.items():
            recorder.effects.remember((id(cls), key), number)
        return cls

    # -- what is in a class
    def attribute(self, cls: type, name: str, value: Any) -> Any:
        """What a class that the call has made has as `name`; value: what Python finds there."""
        return self.recorder.effects.stored.get((id(cls), name), self.recorder.mark_created(value))

    def is_settable(self, cls: Any, name: str) -> bool:
        """Whether to set an attribute of such a class changes nothing but what is found there."""
        if name.startswith("__") and name.endswith("__"):
            return False
        return type(cls) in _METACLASSES and self.recorder.attributes.lookup(type(cls), name)[0] is ABSENT

    def set_attribute(self, cls: Any, name: str, value: Any) -> None:
        self.stores += 1
        type.__setattr__(cls, name, plain_value(value))
        self.recorder.effects.remember((id(cls), name), value)

    # -- dataclasses
    def standard_call(self, function: Any) -> Handler | None:
        """The handler of a function that makes something of a class."""
        return self._dataclass if function is dataclasses.dataclass else None

    def _dataclass(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """dataclasses.dataclass, which generates methods with the defaults of the fields: they are what they are in this call."""
        recorder = self.recorder
        keywords = {name: recorder.contents.concrete_contents(value) for name, value in keywords.items()}
        if not arguments or arguments[0] is None:
            return recorder.calls.call(functools.partial, (function,), keywords)
        (cls,) = arguments
        if not (is_a(cls, type) and recorder.is_created(cls)):
            return recorder.calls.instrumented(function, arguments, keywords)
        for value in (cls, *vars(cls).values()):
            self._settle(value)
        if not all(map(_is_plain_default, _defaults(cls))):  # it writes them down, in the document of the class
            self._stop(cls.__name__, "a dataclass with an object of the program as a default")
        made = recorder.perform(lambda: recorder.unwatched(lambda: function(cls, **keywords)))
        if not recorder.stopped:
            recorder.mark_created(made)
            for field in vars(made)["__dataclass_fields__"].values():
                recorder.mark_created(field)
                for value in (field.default, field.default_factory, field._field_type):
                    if type(value).__module__ == "dataclasses":  # its marks
                        recorder.mark_fixed(value)
        return made

    def _settle(self, owner: Any) -> None:
        """Numbers in the places of an object are what they are in this call."""
        effects = self.recorder.effects
        for place in effects.numbered.pop(id(owner), ()):
            concrete(effects.stored.pop(place))
