"""What generated machine code may use of CPython and NumPy: functions of their C interfaces, and where objects keep what.

Machine code calls a C function by its symbol, which is resolved when the code is linked; the text shows no address.  Offsets are those of
the row that layouts.py has for this version.  `supported()` verifies each of them on living objects before the first use, and says no
on an interpreter whose objects look otherwise.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from types import MappingProxyType, MemberDescriptorType
from typing import Any, Final

import numpy as np

from tracejit.core.capsules import capsule_address
from tracejit.core.interrupts import is_foreign
from tracejit.cpython import layouts
from tracejit.cpython.memory_reads import CheckedMemory, Unreadable, word

__all__ = [
    "CALLED", "CELL", "DICTIONARIES", "DICTIONARY", "FLAGS", "FUNCTIONS", "ITEMS", "LAYOUT", "LISTS", "LIST_ITEMS", "MAPPING",
    "METHOD", "METHOD_SELF", "NUMBER", "REFERENT", "SIZE", "TUPLES", "TYPE", "WATCH", "address_of_new", "attributes_of",
    "declaration", "failed_checks", "mro_offset", "never_free", "new_array", "number_of_thread",
    "profiler_offset", "slot_offsets", "supported", "symbols", "tool_offset", "unsupported", "word",
]  # fmt: skip

LAYOUT: Final = layouts.layout()
TYPE: Final = LAYOUT.type
SIZE: Final = LAYOUT.size
ITEMS: Final = tuple.__basicsize__  # PyTupleObject.ob_item
LIST_ITEMS: Final = LAYOUT.list_items
NUMBER: Final = LAYOUT.number
MAPPING: Final = LAYOUT.mapping
CELL: Final = LAYOUT.cell
METHOD: Final = LAYOUT.method
METHOD_SELF: Final = LAYOUT.method_self
REFERENT: Final = LAYOUT.referent
CALLED: Final = LAYOUT.called
FLAGS: Final = LAYOUT.flags
DICTIONARY: Final = LAYOUT.dictionary
LISTS: Final = 1 << 25  # Py_TPFLAGS_LIST_SUBCLASS: list and what inherits from it
TUPLES: Final = 1 << 26
DICTIONARIES: Final = 1 << 29
WATCH: Final = "tracejit_watch"
"""`ptr tracejit_watch(ptr dictionary)`: the address of its word, null where it cannot be watched.  watchers.py has its address."""

FUNCTIONS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "PyDict_GetItemWithError": ("ptr", ("ptr", "ptr")),
    "PyDict_New": ("ptr", ()),
    "PyDict_Next": ("i32", ("ptr", "ptr", "ptr", "ptr")),
    "PyDict_SetItem": ("i32", ("ptr", "ptr", "ptr")),
    "PyErr_BadArgument": ("i32", ()),
    "PyErr_Clear": ("void", ()),
    "PyErr_ExceptionMatches": ("i32", ("ptr",)),
    "PyErr_Fetch": ("void", ("ptr", "ptr", "ptr")),
    "PyErr_NormalizeException": ("void", ("ptr", "ptr", "ptr")),
    "PyErr_Occurred": ("ptr", ()),
    "PyErr_Restore": ("void", ("ptr", "ptr", "ptr")),
    "PyErr_SetInterrupt": ("void", ()),
    "PyEval_RestoreThread": ("void", ("ptr",)),
    "PyEval_SaveThread": ("ptr", ()),
    "PyEval_SetProfile": ("void", ("ptr", "ptr")),
    "PyException_GetTraceback": ("ptr", ("ptr",)),
    "PyException_SetContext": ("void", ("ptr", "ptr")),
    "PyException_SetTraceback": ("i32", ("ptr", "ptr")),
    "PyFloat_AsDouble": ("double", ("ptr",)),
    "PyFunction_GetClosure": ("ptr", ("ptr",)),
    "PyFunction_GetCode": ("ptr", ("ptr",)),
    "PyFunction_GetDefaults": ("ptr", ("ptr",)),
    "PyFunction_GetGlobals": ("ptr", ("ptr",)),
    "PyInterpreterState_Get": ("ptr", ()),
    "PyIter_Next": ("ptr", ("ptr",)),
    "PyList_New": ("ptr", ("i64",)),
    "PyLong_AsLongLong": ("i64", ("ptr",)),
    "PyLong_FromLongLong": ("ptr", ("i64",)),
    "PyMem_RawMalloc": ("ptr", ("i64",)),
    "PyNumber_Add": ("ptr", ("ptr", "ptr")),
    "PyNumber_And": ("ptr", ("ptr", "ptr")),
    "PyNumber_FloorDivide": ("ptr", ("ptr", "ptr")),
    "PyNumber_Invert": ("ptr", ("ptr",)),
    "PyNumber_Lshift": ("ptr", ("ptr", "ptr")),
    "PyNumber_MatrixMultiply": ("ptr", ("ptr", "ptr")),
    "PyNumber_Multiply": ("ptr", ("ptr", "ptr")),
    "PyNumber_Negative": ("ptr", ("ptr",)),
    "PyNumber_Or": ("ptr", ("ptr", "ptr")),
    "PyNumber_Positive": ("ptr", ("ptr",)),
    "PyNumber_Power": ("ptr", ("ptr", "ptr", "ptr")),
    "PyNumber_Remainder": ("ptr", ("ptr", "ptr")),
    "PyNumber_Rshift": ("ptr", ("ptr", "ptr")),
    "PyNumber_Subtract": ("ptr", ("ptr", "ptr")),
    "PyNumber_TrueDivide": ("ptr", ("ptr", "ptr")),
    "PyNumber_Xor": ("ptr", ("ptr", "ptr")),
    "PyOS_InterruptOccurred": ("i32", ()),
    "PyObject_DelItem": ("i32", ("ptr", "ptr")),
    "PyObject_GenericGetDict": ("ptr", ("ptr", "ptr")),
    "PyObject_GetAttr": ("ptr", ("ptr", "ptr")),
    "PyObject_GetItem": ("ptr", ("ptr", "ptr")),
    "PyObject_IsTrue": ("i32", ("ptr",)),
    "PyObject_RichCompare": ("ptr", ("ptr", "ptr", "i32")),
    "PyObject_SetAttr": ("i32", ("ptr", "ptr", "ptr")),
    "PyObject_SetItem": ("i32", ("ptr", "ptr", "ptr")),
    "PyObject_Size": ("i64", ("ptr",)),
    "PyObject_Vectorcall": ("ptr", ("ptr", "ptr", "i64", "ptr")),
    "PyObject_VectorcallMethod": ("ptr", ("ptr", "ptr", "i64", "ptr")),
    "PySequence_Contains": ("i32", ("ptr", "ptr")),
    "PySlice_New": ("ptr", ("ptr", "ptr", "ptr")),
    "PyThreadState_Get": ("ptr", ()),
    "PyTuple_New": ("ptr", ("i64",)),
    "PyType_IsSubtype": ("i32", ("ptr", "ptr")),
    "Py_DecRef": ("void", ("ptr",)),
    "Py_IncRef": ("void", ("ptr",)),
    "_PyInterpreterState_GetEvalFrameFunc": ("ptr", ("ptr",)),
    "_PyInterpreterState_SetEvalFrameFunc": ("void", ("ptr", "ptr")),
    "_Py_Dealloc": ("void", ("ptr",)),
    "tracejit_new_array": ("ptr", ("ptr", "ptr", "i32", "ptr", "ptr", "ptr", "i32", "ptr")),  # PyArray_NewFromDescr
    "tracejit_new_object": ("ptr", ("ptr", "ptr", "ptr")),  # object.__new__
    WATCH: ("ptr", ("ptr",)),
}
if hasattr(getattr(ctypes, "pythonapi", None), "PyDict_Watch"):
    FUNCTIONS.update({"PyDict_Unwatch": ("i32", ("i32", "ptr")), "PyDict_Watch": ("i32", ("i32", "ptr"))})
"""C function -> (type of the result, types of the arguments)."""

_THREAD_SIZE: Final = 256  # PyThreadState: bytes to search
_TYPE_SIZE: Final = 408  # PyTypeObject: bytes to search for a field
_TP_NEW: Final = 65  # Py_tp_new of PyType_GetSlot
_NEW_FROM_DESCR: Final = 94  # PyArray_NewFromDescr in NumPy's table of C functions
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


def declaration(symbol: str) -> str:
    """The LLVM declaration of one of FUNCTIONS."""
    result, arguments = FUNCTIONS[symbol]
    return f"declare {result} @{symbol}({', '.join(arguments)})"


@cache
def address_of_new() -> int:
    """The C function behind object.__new__."""
    slot = ctypes.pythonapi.PyType_GetSlot
    slot.restype, slot.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    return int(slot(object, _TP_NEW))


def never_free(value: Any) -> None:
    """Keep an object until the process has ended, also while the interpreter takes modules apart at its end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


@cache
def new_array() -> int:
    """The C function PyArray_NewFromDescr."""
    return word(capsule_address(sys.modules["numpy._core._multiarray_umath"]._ARRAY_API) + 8 * _NEW_FROM_DESCR)


def symbols(names: Iterable[str] = tuple(FUNCTIONS)) -> dict[str, int]:
    """Addresses of FUNCTIONS, or of some of them.  Raises AttributeError where the interpreter has no such function."""
    return {name: _address(name) for name in names if name != WATCH}


@cache
def _address(name: str) -> int:
    if name in _OWN:
        return _OWN[name]()
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


_OWN: Final = {"tracejit_new_array": new_array, "tracejit_new_object": address_of_new}


@cache
def mro_offset() -> int:
    """Where a type object keeps its method resolution order.  Raises RuntimeError where no offset holds it for several types."""
    samples: list[Any] = [int, _Probe, MappingProxyType]
    offsets = [i for i in range(0, _TYPE_SIZE, 8) if all(word(id(t) + i) == id(t.__mro__) for t in samples)]
    if len(offsets) != 1:
        raise RuntimeError(f"type.__mro__: found at offsets {offsets}, expected one offset")
    return offsets[0]


class _Probe:
    pass


class _Slotted:
    __slots__ = ("first", "second")

    second: Any


@cache
def profiler_offset() -> int:
    """Where the state of a thread keeps what sys.getprofile() says.  Raises RuntimeError where no offset, or more than one, does."""
    address, present = _thread_state(), sys.getprofile()

    def profile(*_: object) -> None:
        pass

    try:
        if present is None:
            sys.setprofile(profile)
        looked_for = id(profile if present is None else present)
        offsets = [i for i in range(0, _THREAD_SIZE, 8) if word(address + i) == looked_for]
    finally:
        if present is None:
            sys.setprofile(None)
    if present is not None and present is sys.gettrace():  # the same object for both: that of the trace function comes after it
        offsets = offsets[:1]
    if len(offsets) != 1:
        raise RuntimeError(f"the profile function of a thread: found at offsets {offsets}, expected one offset")
    return offsets[0]


@cache
def tool_offset() -> int | None:
    """Where the state of a thread has a 32-bit number that is not 0 while a trace or profile function runs, or what sys.monitoring calls.
    None where no offset, or more than one, is like that, or a trace function is on now."""
    if sys.gettrace() is not None:
        return None
    address, inside = _thread_state(), []

    def numbers() -> list[int]:
        return list((ctypes.c_int32 * (_THREAD_SIZE // 4)).from_buffer_copy(ctypes.string_at(address, _THREAD_SIZE)))

    def trace(*_: object) -> Any:
        inside.append(numbers())
        return trace

    def traced() -> None:
        pass

    before = numbers()
    try:
        sys.settrace(trace)
        traced()
    finally:
        sys.settrace(None)
    after = numbers()
    offsets = [4 * i for i in range(len(before)) if before[i] == after[i] == 0 and all(found[i] == 1 for found in inside)]
    return offsets[0] if inside and len(offsets) == 1 else None


def number_of_thread(offset: int) -> int:
    """The 32-bit number at an offset of the state of this thread."""
    return ctypes.c_int32.from_address(_thread_state() + offset).value


def _thread_state() -> int:
    """The address of the state of this thread."""
    state = ctypes.pythonapi.PyThreadState_Get
    state.restype, state.argtypes = ctypes.c_void_p, ()
    return int(state())


def failed_checks(checks: dict[str, Callable[[CheckedMemory], bool]]) -> str:
    """Which facts about this interpreter's objects are not so, for a sentence; empty if all are.  Each check may read anywhere."""
    with CheckedMemory() as peek:
        if not peek.is_safe and layouts.build().version not in layouts.TESTED:
            return "that they are where they are expected cannot be tried without risk on this system"
        wrong = []
        for name, check in checks.items():
            try:
                holds = check(peek)
            except Unreadable:
                holds = False
            if not holds:
                wrong.append(name)
    return f"they have {', '.join(wrong)} elsewhere" if wrong else ""


@cache
def unsupported() -> str:
    """What speaks against machine code that looks at this interpreter's objects; empty if nothing does."""
    if layouts.obstacle():
        return layouts.obstacle()
    version = layouts.build().text
    try:
        mro_offset()
        is_complete = all(symbols().values())
    except (RuntimeError, AttributeError, KeyError) as error:  # no such field, function or module of NumPy
        if is_foreign(error):
            raise
        is_complete = False
    if not is_complete:
        return f"objects of this build of {version}, or of NumPy {np.__version__}: they have other fields"
    wrong = failed_checks(_CHECKS)
    return f"objects of this build of {version}: {wrong}" if wrong else ""


def supported() -> bool:
    """Whether this interpreter's objects look as this module says."""
    return not unsupported()


# --- the self-test


def _counts_references(peek: CheckedMemory) -> bool:
    """Whether the first word of an object counts its references, and does so in as many bits; and what is immortal does not."""
    bits = (1 << LAYOUT.count_bits) - 1

    def counts(value: Any) -> tuple[int, int, int]:
        held: list[Any] = []
        before = peek.word(id(value))
        held += [value] * 1000
        within = peek.word(id(value))
        del held
        return before, within, peek.word(id(value))

    plain, none = counts(object()), counts(None)
    before, within, _ = [count & bits for count in plain]
    grows = plain[1] - plain[0] == within - before == 1000 and plain[2] == plain[0] and 0 < before < 1000
    if not LAYOUT.immortal:
        return grows and none[1] - none[0] == 1000
    return grows and len(set(none)) == 1 and none[0] >> 31 & 1 == 1


def _types(peek: CheckedMemory) -> bool:
    values: list[Any] = [2.5, "a", [], _Probe(), _Probe]
    named = [[bool(cls.__flags__ & bit) for bit in (LISTS, TUPLES, DICTIONARIES)] for cls in (list, tuple, dict, _Probe)]
    return (
        all(peek.word(id(value) + TYPE) == id(type(value)) for value in values)
        and all(peek.word(id(cls) + FLAGS) == cls.__flags__ for cls in (list, dict, _Probe))
        and all(peek.word(id(cls) + DICTIONARY) == cls.__dictoffset__ for cls in (list, type, _Probe, _Slotted))
        and [peek.word(id(cls) + CALLED) != 0 for cls in (list, type, type(len), _Probe)] == [False, True, True, False]
        and named == [[True, False, False], [False, True, False], [False, False, True], [False] * 3]
    )


def _items(peek: CheckedMemory) -> bool:
    items, pair = ["a", 2.5], (object(), 1)
    return (
        peek.word(id(items) + SIZE) == 2 == peek.word(id(pair) + SIZE)
        and [peek.word(peek.word(id(items) + LIST_ITEMS) + 8 * i) for i in range(2)] == [id(item) for item in items]
        and [peek.word(id(pair) + ITEMS + 8 * i) for i in range(2)] == [id(item) for item in pair]
    )


def _numbers(peek: CheckedMemory) -> bool:
    return all(
        peek.word(id(number) + NUMBER) == ctypes.c_int64.from_buffer(ctypes.c_double(number)).value for number in (2.5, 7.25)
    )


def _slots(peek: CheckedMemory) -> bool:
    slotted, marker = _Slotted(), object()
    slotted.second = marker
    offsets = _slot_offsets(_Slotted, peek.word)
    return sorted(offsets) == ["first", "second"] and [peek.word(id(slotted) + offsets[name]) for name in sorted(offsets)] == [
        0, id(marker),
    ]  # fmt: skip


def _weak_references(peek: CheckedMemory) -> bool:
    referred = _Probe()
    reference = weakref.ref(referred)
    alive = peek.word(id(reference) + REFERENT) == id(referred)
    del referred
    return alive and peek.word(id(reference) + REFERENT) == id(None)


def _methods(peek: CheckedMemory) -> bool:
    items: list[Any] = []
    append, other = items.append, ["a"].append
    name = peek.word(peek.word(id(len) + METHOD))
    function = peek.word(peek.word(id(append) + METHOD) + 8)
    return (
        peek.word(id(append) + METHOD_SELF) == id(items)
        and peek.bytes(name, 4) == b"len\0"
        and function == peek.word(peek.word(id(other) + METHOD) + 8) != peek.word(peek.word(id(len) + METHOD) + 8)
    )


def _cells(peek: CheckedMemory) -> bool:
    """Whether the word follows what a cell is given: the one behind it is padding, which may still hold what was there before."""
    cell, found = _cell(_Probe), []
    for content in (_Probe, _Slotted):
        cell.cell_contents = content
        found.append(peek.word(id(cell) + CELL) == id(content))
    return all(found)


def _namespaces(peek: CheckedMemory) -> bool:
    """Whether the dictionary of a class is behind its proxy."""
    proxy = _Probe.__dict__
    if peek.word(peek.word(id(proxy) + MAPPING) + TYPE) != id(dict):
        return False
    found: Any = ctypes.py_object.from_address(id(proxy) + MAPPING).value
    return bool(found == dict(proxy))


_CHECKS: Final[dict[str, Callable[[CheckedMemory], bool]]] = {
    "reference counts": _counts_references,
    "types": _types,
    "items": _items,
    "numbers": _numbers,
    "cells": _cells,
    "slots": _slots,
    "weak references": _weak_references,
    "functions": _methods,
    "dictionaries of classes": _namespaces,
    "new arrays": lambda peek: _makes_arrays(),
}
"""What this module relies on: name for a reader -> whether it is so."""


def attributes_of(instance: Any) -> dict[str, Any]:
    """The dictionary of attributes of an object that has one, past whatever its class makes of the name `__dict__`."""
    try:
        found: dict[str, Any] = _generic_dictionary()(instance, None)
    except ctypes.ArgumentError:  # which ctypes makes of any error that comes up meanwhile; any object will do as an argument
        raise RecursionError("maximum recursion depth exceeded") from None
    return found


@cache
def _generic_dictionary() -> Any:
    function = ctypes.pythonapi.PyObject_GenericGetDict
    function.restype, function.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_void_p)
    return function


def slot_offsets(cls: type) -> dict[str, int]:
    """Byte offsets of the slots that a class and its bases declare, and that nothing hides."""
    return _slot_offsets(cls, word)


def _slot_offsets(cls: type, read: Callable[[int], int]) -> dict[str, int]:
    found = {}
    for base in reversed(cls.__mro__):
        for name, descriptor in vars(base).items():
            if type(descriptor) is MemberDescriptorType and base.__flags__ & _HEAP_TYPE:
                found[name] = read(read(id(descriptor) + LAYOUT.member) + LAYOUT.member_offset)
            else:
                found.pop(name, None)
    return found


def _cell(content: Any) -> Any:
    closure = (lambda: content).__closure__
    assert closure is not None
    return closure[0]


def _makes_arrays() -> bool:
    """Whether `new_array` makes what PyArray_NewFromDescr makes."""
    make = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
        ctypes.c_int, ctypes.c_void_p,
    )(new_array())  # fmt: skip
    dtype = np.dtype(np.float32)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))  # the function takes a reference of its own
    made = make(np.ndarray, dtype, 2, (ctypes.c_int64 * 2)(3, 4), None, None, 0, None)
    return (
        type(made) is np.ndarray
        and made.dtype is dtype
        and made.shape == (3, 4)
        and made.flags.c_contiguous
        and made.flags.owndata
    )
