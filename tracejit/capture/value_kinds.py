"""Kinds of values: one classification by exact type, on which handlers dispatch.

Who asks what Python does with a value (its truth, an operator, an item ...) has a table from kinds to methods.  What a value is beyond its
kind (outside or created, the class of the program, what a model says) is the question of the method.  Only `_kind_of_class` names the order
in which types are told apart, and it is asked once for each class.

Must not know: the recorder, guards.
"""

from __future__ import annotations

import collections
import enum
from enum import IntEnum, auto
from typing import Any, Final, TypeVar

import numpy as np

from tracejit.capture.handlers.symbols import ObjectIdentity, SymbolicNumber
from tracejit.capture.policies import DICT_VIEWS, PRIMITIVE_TYPES, by_class, is_python_class
from tracejit.capture.values import MODELS
from tracejit.core.dtypes import DType
from tracejit.tensor import Tensor

__all__ = ["IN_PYTHON", "STAND_INS", "Kind", "by_kind", "kind_of"]

Method = TypeVar("Method")


class Kind(IntEnum):
    """The kinds, in order of precedence: what a binary operator does is decided by its operand of the higher kind."""

    PLAIN = auto()
    """An exact number; None, Ellipsis, NotImplemented."""
    TEXT = auto()
    """An exact str or bytes."""
    SYMBOLIC = auto()
    """The stand-in of a number or a text."""
    OPAQUE = auto()
    """An object of C code of none of the other kinds."""
    MODELLED = auto()
    """A value whose exact type has a model (values/)."""
    NUMPY_SCALAR = auto()
    ENUM = auto()
    CLASS = auto()
    """A class, unless its metaclass is written in Python."""
    VIEW = auto()
    """A view of a dictionary."""
    SET = auto()
    MAPPING = auto()
    SEQUENCE = auto()
    """A list, a tuple, a deque."""
    IDENTITY = auto()
    """The result of id()."""
    INSTANCE = auto()
    """An instance of a class written in Python, whatever it derives from: special methods may be functions of the program."""
    METACLASS_INSTANCE = auto()
    """A class whose metaclass is written in Python, such as one with abstract methods."""
    ENUM_CLASS = auto()
    SYMBOLIC_OBJECT = auto()
    """The stand-in of another value: of a date, of what a deferred call returns."""
    SYMBOLIC_SCALAR = auto()
    """The stand-in of a NumPy scalar."""
    ARRAY_SUBCLASS = auto()
    """An instance of a class written in Python that derives from np.ndarray."""
    ARRAY = auto()
    TENSOR = auto()
    """Of Tensor, or a class that derives from it."""


STAND_INS: Final = (Kind.SYMBOLIC, Kind.SYMBOLIC_OBJECT, Kind.SYMBOLIC_SCALAR)
IN_PYTHON: Final = (Kind.INSTANCE, Kind.METACLASS_INSTANCE, Kind.ENUM_CLASS)
"""Kinds of values whose special methods may be functions of the program."""

_EXACT: Final[dict[type, Kind]] = {
    **dict.fromkeys(PRIMITIVE_TYPES, Kind.PLAIN),
    **dict.fromkeys((str, bytes), Kind.TEXT),
    **dict.fromkeys(MODELS, Kind.MODELLED),
    SymbolicNumber: Kind.SYMBOLIC,
    ObjectIdentity: Kind.IDENTITY,
}
_LIBRARY: Final[dict[type, Kind]] = {
    Tensor: Kind.TENSOR,
    np.generic: Kind.NUMPY_SCALAR,
    DType: Kind.OPAQUE,
    enum.Enum: Kind.ENUM,
    enum.EnumMeta: Kind.ENUM_CLASS,
}
"""Classes whose kind all that derive from them share, whether they are written in Python or in C."""
_OF_C_CODE: Final[dict[type, Kind]] = {
    **dict.fromkeys((list, tuple, collections.deque), Kind.SEQUENCE),
    dict: Kind.MAPPING,
    **dict.fromkeys((set, frozenset), Kind.SET),
    **dict.fromkeys(DICT_VIEWS, Kind.VIEW),
    type: Kind.CLASS,
    np.ndarray: Kind.ARRAY,
}
"""Classes whose kind all that derive from them in C code share."""
_OF_PYTHON: Final[dict[type, Kind]] = {np.ndarray: Kind.ARRAY_SUBCLASS, type: Kind.METACLASS_INSTANCE}
"""The same for all that derive from them in Python.  Those of other classes are instances like any other."""
_SYMBOLIC: Final[dict[Kind, Kind]] = {
    Kind.PLAIN: Kind.SYMBOLIC,
    Kind.TEXT: Kind.SYMBOLIC,
    Kind.NUMPY_SCALAR: Kind.SYMBOLIC_SCALAR,
}
"""The kind of a stand-in, by the kind of what it stands for."""


def _family(cls: type, table: dict[type, Kind]) -> Kind | None:
    return next((kind for base, kind in table.items() if issubclass(cls, base)), None)


@by_class
def _kind_of_class(cls: type) -> Kind:
    exact = (_EXACT.get(cls) if type(cls) is type else None) or _family(cls, _LIBRARY)  # a metaclass may define a hash
    if exact is not None:
        return exact
    if is_python_class(cls):
        return _family(cls, _OF_PYTHON) or Kind.INSTANCE
    return _family(cls, _OF_C_CODE) or Kind.OPAQUE


def kind_of(value: Any) -> Kind:
    """The kind of a value; no code of its class runs."""
    kind = _kind_of_class(type(value))
    return kind if kind is not Kind.SYMBOLIC else _SYMBOLIC.get(_kind_of_class(type(value._value)), Kind.SYMBOLIC_OBJECT)


def by_kind(otherwise: Method, methods: dict[Method, tuple[Kind, ...]]) -> dict[Kind, Method]:
    """A table for dispatch: each kind with its method, those that are not named with `otherwise`."""
    named = {kind: method for method, kinds in methods.items() for kind in kinds}
    return dict.fromkeys(Kind, otherwise) | named
