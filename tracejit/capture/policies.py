"""The closed world: tables of the callables that the recorder can replay without following their source.

* Pure functions of the standard library are called with guarded arguments; their result is a constant of the recording.
* Methods of containers either read or change their container.
* Functions of tracejit's eager library run natively: their tensor operations pass the door.

A callable that is neither listed here nor written in Python that can be instrumented stops the recording.
"""

from __future__ import annotations

import builtins
import cmath
import collections
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
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tracejit.capture.values import MODELS
from tracejit.core.dtypes import DType
from tracejit.core.interrupts import is_foreign

__all__ = [
    "APPENDING",
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
    "NUMPY_NUMBERS",
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
    "by_class",
    "has_method",
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
NUMPY_NUMBERS: frozenset[type] = frozenset(
    (np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
)
C_CALLABLES: tuple[type, ...] = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    type(re.compile("").search),  # the type of C functions that are passed the class that defines them
)
IDENTITY_TYPES: tuple[type, ...] = (
    *C_CALLABLES, type, types.ModuleType, types.CodeType, DType, enum.Enum, property, staticmethod, classmethod, np.dtype,
)  # fmt: skip
_SHAREABLE: tuple[type, ...] = (
    tuple, frozenset, slice, np.ndarray, types.MethodType, functools.partial, *C_CALLABLES,
    *(model.type for model in MODELS.values() if model.key is not None),
)  # fmt: skip
BUILTIN_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset)
DICT_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
TRANSPARENT_TYPES: frozenset[type] = frozenset(
    {
        *PRIMITIVE_TYPES, *BUILTIN_CONTAINERS, *MODELS, collections.OrderedDict, collections.defaultdict, slice,
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
"""C functions and types that call their arguments at these positions.  Other callable arguments are values to them: not
called."""
PREDICATES: frozenset[Any] = frozenset({builtins.filter, itertools.filterfalse, itertools.takewhile, itertools.dropwhile})
"""Those of CALLED_BACK that take the truth value of what the called function returns."""
PASSING_ON: frozenset[Any] = frozenset({functools.reduce, builtins.map, itertools.starmap, itertools.accumulate})
"""Those of CALLED_BACK that pass on what the called function returns without looking at it."""
CALLED_BY_NAME: frozenset[str] = frozenset({"key", "func"})
"""Keywords by which C functions are given functions that they call."""
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
"""Functions of numbers that an entry evaluates again, so that their arguments need not be guarded: a number that they return is a
symbolic number, a bool is guarded."""

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
"""Functions of the library that store functions of the user, or call them through the interpreter."""
INDIFFERENT_LIBRARY: frozenset[str] = frozenset({"unpacked"})
"""Functions of the library that read neither elements nor sizes of the tensors that they are given."""
ITERATING_LIBRARY: frozenset[str] = frozenset({"grad", "backward"})
"""Functions of the library that take any iterable of tensors."""
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
    "all_gather_object": "impure_call",
    "barrier": "impure_call",
    "broadcast_object_list": "impure_call",
    "destroy_process_group": "global_state",
    "gather_object": "impure_call",
    "init_process_group": "global_state",
    "irecv": "impure_call",
    "isend": "impure_call",
    "recv": "impure_call",
    "save_by_rank_0": "impure_call",
    "scatter_object_list": "impure_call",
    "send": "impure_call",
}
LOCKS: tuple[type, ...] = (type(threading.Lock()), type(threading.RLock()))
"""Types of locks that user code may hold in a `with` block (handlers/locking.py)."""
KEEPING_NAMES: frozenset[str] = frozenset({"put", "put_nowait"})
"""Methods of queues that store their argument without looking at it."""
SAVING: frozenset[tuple[str, str]] = frozenset(
    {
        ("tracejit.serialization", "save"),
        ("tracejit.serialization.npz", "save_npz"),
        ("tracejit.serialization.safetensors", "save_safetensors"),
    }
)
"""Functions of the library that write tensors to a file, by module and name, since this layer must not import them."""
READING_METHODS: frozenset[str] = frozenset(
    {
        "get", "keys", "values", "items", "index", "count", "copy", "__contains__", "__len__", "__getitem__", "__iter__", "union",
        "intersection", "difference", "issubset", "issuperset", "isdisjoint", "symmetric_difference", "__eq__", "__add__", "__mul__",
        "__reversed__", "__or__", "__and__", "__sub__", "__repr__", "__ne__", "__format__", "__str__",
    }
)  # fmt: skip
APPENDING: frozenset[str] = frozenset({"append", "extend"})
"""Methods that add items at the end of a list."""
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
    "tracejit.distributed.collectives.",
    "tracejit.distributed.group.",
    "tracejit.nn.",
    "tracejit.optim.",
    "tracejit.optimize.",
    "tracejit.sklearn.",
    "tracejit.data.",
    "tracejit.distributions.",
    "tracejit.inference.",
    "tracejit.utils.",
    "tracejit.func.",
    "tracejit.vision.",
)
_HEAP_TYPE = 1 << 9
_IMMUTABLE_TYPE = 1 << 8
Known = TypeVar("Known")
C_METHODS: tuple[type, ...] = (types.MethodDescriptorType, types.WrapperDescriptorType)
"""Types of methods of classes written in C.  A class of the user may have such a method under another name."""


@functools.cache
def is_library_module(name: str | None) -> bool:
    """Whether functions of the module `name` run natively.  Those of the eager library do, except for the layers from nn upwards,
    GradScaler, custom_fwd, collectives and derivatives of functions: these are instrumented like user code."""
    if name is None:
        return False
    dotted = name + "."
    return dotted.startswith("tracejit.") and not dotted.startswith(_CONVERTED_PACKAGES)


def makes_records(function: Any) -> bool:
    """Whether `function` is the `__new__` of a class of collections.namedtuple."""
    named = type(function) is types.FunctionType and function.__name__ == "__new__"
    return named and function.__globals__.get("__name__", "").startswith("namedtuple_")


def is_heap_type(cls: type) -> bool:
    """Whether a class was created at run time: by a class statement, or by an extension module."""
    return bool(cls.__flags__ & _HEAP_TYPE)


def is_changeable(cls: type) -> bool:
    """Whether attributes of a class can be set."""
    return is_heap_type(cls) and not cls.__flags__ & _IMMUTABLE_TYPE


def by_class(compute: Callable[[type], Known]) -> Callable[[type], Known]:
    """`compute`, whose result for a class is known for as long as the class lives."""
    table: dict[int, tuple[weakref.ref[type], Known]] = {}  # by id, since a metaclass may define what equal classes are

    @functools.wraps(compute)
    def known(cls: type) -> Known:
        cached = table.get(id(cls))
        if cached is None or cached[0]() is not cls:
            # The callback, which runs no Python code, is called with the reference: the default of `pop`.
            forget: Any = functools.partial(dict.pop, table, id(cls))
            cached = table[id(cls)] = weakref.ref(cls, forget), compute(cls)
        return cached[1]

    return known


@by_class
def is_python_class(cls: type) -> bool:
    """Whether a class was created by a class statement: C code has given it neither methods nor a constructor nor members."""
    return is_heap_type(cls) and not any(map(_of_c, vars(cls).values(), itertools.repeat(cls)))


def _of_c(value: Any, cls: type) -> bool:
    """Whether `value`, an attribute in the dictionary of `cls`, was put there by C code that defines the class."""
    kind = type(value)
    if kind in C_METHODS:
        return value.__objclass__ is cls
    if kind is types.BuiltinFunctionType:  # __new__ and static methods
        return value.__self__ is cls
    return kind is types.GetSetDescriptorType and value.__objclass__ is cls and value.__name__ not in ("__dict__", "__weakref__")


def module_of(cls: type) -> str:
    """The name of the module of a class; "" if its `__module__` is no text, as in some classes written in C."""
    name = cls.__module__
    return name if type(name) is str else ""


def is_a(value: object, classes: type | tuple[type, ...]) -> bool:
    """`isinstance` by the type alone.  It does not read `value.__class__`, which may run user code."""
    return issubclass(type(value), classes)


def is_shareable(value: object) -> bool:
    """Whether guards accept another object of the same type and contents in the place of an outside object."""
    return is_a(value, _SHAREABLE) and type(value) not in INLINED_TYPES


def instance_dictionary(value: object) -> dict[str, Any] | None:
    """`value.__dict__`, without calling a user-defined `__getattribute__`; None if there is none.

    The dictionary may be an instance of a user-defined subclass of dict, or `value` itself (`self.__dict__ = self`).  Python does
    not call overridden methods of it; callers must not either."""
    try:
        namespace: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError as error:
        if is_foreign(error):
            raise
        return None
    return namespace if is_a(namespace, dict) else None


def storing_base(value: object) -> Any:
    """The class, written in C, whose `__setattr__` and `__delattr__` store the attributes of `value`."""
    return threading.local if is_a(value, threading.local) else object


def is_empty(slot: Any, owner: object) -> bool:
    """Whether `owner` has no value in a slot.  slot: the descriptor, which is C code."""
    try:
        slot.__get__(owner)
    except AttributeError as error:
        if is_foreign(error):
            raise
        return True
    return False


@functools.lru_cache(4096)
def is_name(text: str) -> bool:
    """Whether `owner.text` is valid source for the attribute `text`."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def builtin_base(cls: Any) -> Any:
    """The first class of the MRO that is written in C; it decides the layout of instances in memory."""
    if not cls.__flags__ & _HEAP_TYPE:
        return cls
    for base in cls.__mro__:
        if not is_python_class(base):
            return base
    raise AssertionError(cls)  # object is the last one


def has_plain_state(cls: Any) -> bool:
    """Whether instances keep all their state in `__dict__` and slots."""
    return cls is not object and builtin_base(cls) is object


def has_method(cls: type, name: str) -> bool:
    """Whether instances have a special method.  It runs no code of the metaclass, as `hasattr(cls, name)` does."""
    return any(name in vars(base) for base in cls.__mro__)


def slots_of(cls: Any) -> list[tuple[str, Any]]:
    """Names and descriptors of the slots of instances."""
    classes = [base for base in cls.__mro__ if is_python_class(base)]
    descriptors = [(base, v) for base in classes for v in vars(base).values() if is_a(v, types.MemberDescriptorType)]
    return [(v.__name__, v) for base, v in descriptors if v.__objclass__ is base]


_CONTAINER_PROTOCOL = ("__iter__", "__getitem__", "__len__", "__contains__", "keys")


def is_user_instance(value: object) -> bool:
    """Whether special methods of `value` may be Python code of the user."""
    cls = type(value)
    return is_python_class(cls) and not issubclass(cls, (np.generic, DType, enum.Enum))


def is_library_container(value: object) -> bool:
    """Whether `value` is a container whose methods are Python code of the standard library (UserDict, ChainMap).  C code that
    iterates over it runs them, and the recorder does not see what they read."""
    if not is_user_instance(value):
        return False
    bases = type(value).__mro__
    methods = [next((vars(base)[name] for base in bases if name in vars(base)), None) for name in _CONTAINER_PROTOCOL]
    return any(
        type(method) is types.FunctionType and method.__module__.partition(".")[0] in sys.stdlib_module_names
        for method in methods
    )


def bound_to(function: Any) -> Any:
    """The object to which a C function is bound (`items` for `items.append`); None for functions of modules and for class
    methods."""
    owner = getattr(function, "__self__", None) if type(function) in C_CALLABLES else None
    return None if is_a(owner, (types.ModuleType, type)) else owner
