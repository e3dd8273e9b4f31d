"""The closed world: which callables that are not plain Python functions the recorder knows, and how they behave.

Pure functions of the standard library may be called with guarded arguments and their result used as a constant.  Methods of
containers either read or change them.  Functions of the library itself run natively: their tensor work passes the door.  What
is not listed here is unknown, and a reason to run eagerly.
"""

from __future__ import annotations

import builtins
import cmath
import collections
import datetime
import decimal
import enum
import functools
import itertools
import keyword
import math
import operator
import os
import re
import sys
import threading
import types
import unicodedata
import weakref
from typing import Any

import numpy as np

from tracejit.core.dtypes import DType
from tracejit.core.interrupts import is_foreign

__all__ = [
    "BINARY",
    "BUILTIN_CONTAINERS",
    "CALLED_BACK",
    "CALLED_BY_NAME",
    "CHANGING_METHODS",
    "COMPUTED_NUMBERS",
    "C_CALLABLES",
    "C_METHODS",
    "DICT_VIEWS",
    "FRAME_FUNCTIONS",
    "IDENTITY_TYPES",
    "IMPURE",
    "INDIFFERENT_LIBRARY",
    "INLINED_TYPES",
    "IN_PLACE",
    "ITERATING_LIBRARY",
    "KEEPING_LIBRARY",
    "KEEPING_NAMES",
    "LOCKS",
    "PASSING_ON",
    "PREDICATES",
    "PRIMITIVE_TYPES",
    "PURE_FUNCTIONS",
    "PURE_TYPES",
    "READING_METHODS",
    "REFUSED_LIBRARY",
    "SAVING",
    "SPECIAL_NAMES",
    "SWAPPED",
    "TRANSPARENT_TYPES",
    "UNARY",
    "bound_to",
    "builtin_base",
    "has_plain_state",
    "instance_dictionary",
    "is_a",
    "is_changeable",
    "is_empty",
    "is_heap_type",
    "is_library_module",
    "is_name",
    "is_python_class",
    "is_shareable",
    "is_user_instance",
    "makes_records",
    "module_of",
    "slots_of",
    "storing_base",
]  # fmt: skip

PRIMITIVE_TYPES: tuple[type, ...] = (int, float, bool, str, bytes, complex, type(None), type(Ellipsis), type(NotImplemented))
C_CALLABLES: tuple[type, ...] = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    type(re.compile("").search),  # another type, for C functions that know the class they belong to
)
IDENTITY_TYPES: tuple[type, ...] = (
    *C_CALLABLES, type, types.ModuleType, types.CodeType, DType, enum.Enum, property, staticmethod, classmethod, np.dtype,
)  # fmt: skip
_SHAREABLE: tuple[type, ...] = (tuple, frozenset, slice, np.ndarray, types.MethodType, functools.partial, *C_CALLABLES)
BUILTIN_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset)
DICT_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
TRANSPARENT_TYPES: frozenset[type] = frozenset(
    {
        *PRIMITIVE_TYPES, *BUILTIN_CONTAINERS, collections.OrderedDict, collections.defaultdict, range, slice,
        decimal.Decimal, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone, re.Pattern, re.Match,
    }
)  # fmt: skip
"""Types whose whole state the recorder guards, or that cannot change."""

_PURE_MODULES = (math, cmath, unicodedata)
PURE_FUNCTIONS: frozenset[Any] = frozenset(
    {
        builtins.abs, builtins.all, builtins.any, builtins.ascii, builtins.bin, builtins.callable, builtins.chr, builtins.divmod,
        builtins.format, builtins.hex, builtins.oct, builtins.ord, builtins.pow, builtins.repr, builtins.round, builtins.sorted,
        builtins.sum, builtins.max, builtins.min, builtins.len, builtins.isinstance, builtins.issubclass, functools.reduce,
        operator.index, operator.concat, operator.countOf, operator.indexOf, os.fspath,
        str.maketrans, bytes.maketrans,
        *(f for module in _PURE_MODULES for f in vars(module).values() if type(f) is types.BuiltinFunctionType),
    }
)  # fmt: skip
"""Functions whose result depends on nothing but their arguments, and that change nothing."""
CALLED_BACK: dict[Any, tuple[int, ...]] = {functools.reduce: (0,), builtins.map: (0,), builtins.filter: (0,)}
CALLED_BACK |= {itertools.starmap: (0,), itertools.takewhile: (0,), itertools.dropwhile: (0,), itertools.filterfalse: (0,)}
CALLED_BACK |= {itertools.accumulate: (1,), itertools.groupby: (1,)}
"""C functions and types that call what they are given at these positions; everything else that is callable they only pass on."""
PREDICATES: frozenset[Any] = frozenset({builtins.filter, itertools.filterfalse, itertools.takewhile, itertools.dropwhile})
"""Those of them that ask for the truth of what they get back."""
PASSING_ON: frozenset[Any] = frozenset({functools.reduce, builtins.map, itertools.starmap, itertools.accumulate})
"""Those that ask for nothing of what they get back."""
CALLED_BY_NAME: frozenset[str] = frozenset({"key", "func"})
"""The keywords of such arguments."""
PURE_TYPES: frozenset[type] = frozenset(
    {
        int, float, bool, str, bytes, complex, list, tuple, set, frozenset, dict, range, slice, enumerate, zip, map, filter,
        reversed, object, bytearray, collections.OrderedDict, collections.defaultdict, collections.deque, collections.Counter,
        types.SimpleNamespace, *(t for t in vars(itertools).values() if isinstance(t, type)),
    }
)  # fmt: skip
COMPUTED_NUMBERS: frozenset[Any] = frozenset(
    {
        builtins.abs, builtins.min, builtins.max, builtins.round, builtins.pow, builtins.divmod, operator.pow,
        *(f for f in vars(math).values() if type(f) is types.BuiltinFunctionType and f not in (math.fsum, math.prod, math.dist)),
    }
)  # fmt: skip
"""Functions of numbers that the prologue can compute again, or whose answer it can ask for again."""

FRAME_FUNCTIONS: frozenset[Any] = frozenset(
    {
        builtins.locals, builtins.globals, builtins.vars, builtins.dir, builtins.eval, builtins.exec, builtins.__import__,
        builtins.breakpoint, sys._getframe, *filter(None, [getattr(sys, "_getframemodulename", None)]),
    }
)  # fmt: skip
"""Functions that look at the frame that calls them."""
IMPURE: frozenset[str] = frozenset({"open", "input", "random", "getenv"})
KEEPING_LIBRARY: frozenset[str] = frozenset(
    {"register_hook", "register_post_accumulate_grad_hook", "Function.apply", "scan", "map", "while_loop"}
)
"""Functions of the library that keep functions of the program, or call them by way of the interpreter."""
INDIFFERENT_LIBRARY: frozenset[str] = frozenset({"unpacked"})
"""Functions of the library that look at no element and at no size of tensors that they are given."""
ITERATING_LIBRARY: frozenset[str] = frozenset({"grad", "backward"})
"""Functions of the library that go through an iterable of tensors, whichever it is."""
REFUSED_LIBRARY: dict[str, str] = {
    "seed": "global_state",
    "add_safe_globals": "global_state",
    "clear_safe_globals": "global_state",
    "register_kl": "global_state",
    "set_default_dtype": "global_state",
    "set_num_threads": "global_state",
    "set_printoptions": "global_state",
    "set_sharing_strategy": "global_state",
    "get_num_threads": "impure_call",
    "load": "impure_call",
}
LOCKS: tuple[type, ...] = (type(threading.Lock()), type(threading.RLock()))
"""What a `with` of the program may take and give back (locking.py)."""
KEEPING_NAMES: frozenset[str] = frozenset({"put", "put_nowait"})
"""Methods of queues that look at nothing that they are given, and keep it."""
SAVING: frozenset[tuple[str, str]] = frozenset(
    {
        ("tracejit.serialization", "save"),
        ("tracejit.serialization.npz", "save_npz"),
        ("tracejit.serialization.safetensors", "save_safetensors"),
    }
)
"""Functions of the library that write tensors to a file: modules and names, since they are of a layer above."""
READING_METHODS: frozenset[str] = frozenset(
    {
        "get", "keys", "values", "items", "index", "count", "copy", "__contains__", "__len__", "__getitem__", "__iter__", "union",
        "intersection", "difference", "issubset", "issuperset", "isdisjoint", "symmetric_difference", "__eq__", "__add__", "__mul__",
        "__reversed__", "__or__", "__and__", "__sub__", "__repr__", "__ne__", "__format__", "__str__",
    }
)  # fmt: skip
CHANGING_METHODS: frozenset[str] = frozenset(
    {
        "append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "sort", "reverse", "add", "discard", "popitem",
        "__setitem__", "__delitem__", "__iadd__", "__imul__", "__ior__", "__iand__", "__isub__", "__ixor__", "difference_update",
        "intersection_update", "symmetric_difference_update", "appendleft", "popleft", "extendleft", "rotate", "move_to_end",
    }
)  # fmt: skip

BINARY: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "@": operator.matmul, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "is": operator.is_, "is not": operator.is_not,
}  # fmt: skip
IN_PLACE: dict[str, Any] = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv, "//": operator.ifloordiv, "%": operator.imod,
    "**": operator.ipow, "@": operator.imatmul, "<<": operator.ilshift, ">>": operator.irshift, "&": operator.iand, "|": operator.ior,
    "^": operator.ixor,
}  # fmt: skip
UNARY: dict[str, Any] = {"pos": operator.pos, "neg": operator.neg, "invert": operator.invert}
SPECIAL_NAMES: dict[str, str] = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul", "<<": "lshift",
    ">>": "rshift", "&": "and", "|": "or", "^": "xor", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}  # fmt: skip
SWAPPED: dict[str, str] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

INLINED_TYPES: set[type] = set()
"""Callables that stand for the function in their `__wrapped__`: compiled/compile.py registers its CompiledFunction here."""

_CONVERTED_PACKAGES = (
    "tracejit.amp.custom.",
    "tracejit.amp.grad_scaler.",
    "tracejit.autograd.functional.",
    "tracejit.core.settings.",
    "tracejit.nn.",
    "tracejit.optim.",
    "tracejit.data.",
    "tracejit.distributions.",
    "tracejit.utils.",
    "tracejit.func.",
    "tracejit.vision.",
)
_HEAP_TYPE = 1 << 9
_IMMUTABLE_TYPE = 1 << 8
C_METHODS: tuple[type, ...] = (types.MethodDescriptorType, types.WrapperDescriptorType)
"""What C code gives a class to be called with an instance; a class of the program may have it under another name."""


@functools.cache
def is_library_module(name: str | None) -> bool:
    """Whether functions of this module run natively: the eager library without the layers from nn upwards,
    GradScaler, custom_fwd and derivatives of functions, which are ordinary Python."""
    if name is None:
        return False
    dotted = name + "."
    return dotted.startswith("tracejit.") and not dotted.startswith(_CONVERTED_PACKAGES)


def makes_records(function: Any) -> bool:
    """Whether it is the `__new__` that collections.namedtuple has made for a class."""
    named = type(function) is types.FunctionType and function.__name__ == "__new__"
    return named and function.__globals__.get("__name__", "").startswith("namedtuple_")


def is_heap_type(cls: type) -> bool:
    """Whether a class was made while the program ran: by a class statement, or by an extension module."""
    return bool(cls.__flags__ & _HEAP_TYPE)


def is_changeable(cls: type) -> bool:
    """Whether attributes of a class may be set."""
    return is_heap_type(cls) and not cls.__flags__ & _IMMUTABLE_TYPE


_written_in_python: dict[
    int, tuple[weakref.ref[type], bool]
] = {}  # by id; a class that dies is dropped, without running Python code


def is_python_class(cls: type) -> bool:
    """Whether a class was made by a class statement: it has no methods, no constructor and no memory that C code knows of."""
    if not cls.__flags__ & _HEAP_TYPE:
        return False
    known = _written_in_python.get(id(cls))
    if known is None or known[0]() is not cls:
        found = not any(map(_of_c, vars(cls).values(), itertools.repeat(cls)))
        gone: Any = functools.partial(dict.pop, _written_in_python, id(cls))  # the reference, its argument, is the default
        known = _written_in_python[id(cls)] = weakref.ref(cls, gone), found
    return known[1]


def _of_c(value: Any, cls: type) -> bool:
    """Whether this attribute of `cls` is one that C code gave it."""
    kind = type(value)
    if kind in C_METHODS:
        return value.__objclass__ is cls
    if kind is types.BuiltinFunctionType:  # __new__ and static methods
        return value.__self__ is cls
    return kind is types.GetSetDescriptorType and value.__objclass__ is cls and value.__name__ not in ("__dict__", "__weakref__")


def module_of(cls: type) -> str:
    """The name of the module of a class; empty where a class of C code has something else in that place."""
    name = cls.__module__
    return name if type(name) is str else ""


def is_a(value: object, classes: type | tuple[type, ...]) -> bool:
    """isinstance by the type alone: it asks no `__class__`, which may be code of the program."""
    return issubclass(type(value), classes)


def is_shareable(value: object) -> bool:
    """Whether guards do not tell an outside object from others of its type."""
    return is_a(value, _SHAREABLE) and type(value) not in INLINED_TYPES


def instance_dictionary(value: object) -> dict[str, Any] | None:
    """`value.__dict__` past any `__getattribute__`; None where there is none.  It may be of a class of the program, or `value` itself, as
    for `self.__dict__ = self`: Python goes past its methods, and so must whoever looks into it."""
    try:
        found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError as error:
        if is_foreign(error):
            raise
        return None
    return found if is_a(found, dict) else None


def storing_base(value: object) -> Any:
    """The class of C code whose `__setattr__` and `__delattr__` store the attributes of `value`."""
    return threading.local if is_a(value, threading.local) else object


def is_empty(slot: Any, owner: object) -> bool:
    """Whether a slot, a descriptor of C code, has no value for `owner`."""
    try:
        slot.__get__(owner)
    except AttributeError as error:
        if is_foreign(error):
            raise
        return True
    return False


@functools.lru_cache(4096)
def is_name(text: str) -> bool:
    """Whether an attribute of this name can be written with a dot, and is then the one that is meant."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def builtin_base(cls: Any) -> Any:
    """The first class of the MRO that is written in C: what the memory of an instance looks like."""
    if not cls.__flags__ & _HEAP_TYPE:
        return cls
    for base in cls.__mro__:
        if not is_python_class(base):
            return base
    raise AssertionError(cls)  # object is the last one


def has_plain_state(cls: Any) -> bool:
    """Whether instances keep all their state in `__dict__` and slots."""
    return cls is not object and builtin_base(cls) is object


def slots_of(cls: Any) -> list[tuple[str, Any]]:
    """Names and descriptors of the slots of instances."""
    classes = [base for base in cls.__mro__ if is_python_class(base)]
    found = [(base, v) for base in classes for v in vars(base).values() if is_a(v, types.MemberDescriptorType)]
    return [(v.__name__, v) for base, v in found if v.__objclass__ is base]


_CONTAINER_PROTOCOL = ("__iter__", "__getitem__", "__len__", "__contains__", "keys")


def is_user_instance(value: object) -> bool:
    """Whether special methods of `value` may be Python code of the program."""
    cls = type(value)
    return is_python_class(cls) and not issubclass(cls, (np.generic, DType, enum.Enum))


@functools.cache
def _library_protocol(cls: type) -> bool:
    found = [next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None) for name in _CONTAINER_PROTOCOL]
    return any(
        type(method) is types.FunctionType and method.__module__.partition(".")[0] in sys.stdlib_module_names for method in found
    )


def is_library_container(value: object) -> bool:
    """Whether `value` is a container whose methods the standard library has in Python (UserDict, ChainMap): C code that goes through it
    runs them, and what they read is nothing that the recorder sees."""
    if not is_user_instance(value):
        return False
    bases = type(value).__mro__
    methods = [next((vars(base)[name] for base in bases if name in vars(base)), None) for name in _CONTAINER_PROTOCOL]
    return any(
        type(method) is types.FunctionType and method.__module__.partition(".")[0] in sys.stdlib_module_names
        for method in methods
    )


def bound_to(function: Any) -> Any:
    """What a C function is bound to: the object that it reads or changes.  None for a function of a module, or of a class."""
    owner = getattr(function, "__self__", None) if type(function) in C_CALLABLES else None
    return None if is_a(owner, (types.ModuleType, type)) else owner
