"""What generated machine code may use of CPython and NumPy: functions of their C interfaces, and where public structs keep what.

Machine code calls a C function by its symbol, which is resolved when the code is linked; the text shows no address.  Offsets are
those of structs that the headers of CPython and NumPy publish; `supported()` verifies each of them on live objects before
the first use, and says no on an interpreter whose objects look otherwise (another implementation, a debug or a free-threaded build).
"""

from __future__ import annotations

import ctypes
import platform
import sys
import sysconfig
import weakref
from collections.abc import Iterable
from functools import cache
from types import MappingProxyType, MemberDescriptorType
from typing import Any, Final

import numpy as np

from tracejit.core.interrupts import is_foreign

__all__ = [
    "CALLED", "CELL", "DICTIONARIES", "DICTIONARY", "FLAGS", "FRAME_CODE", "FRAME_GLOBALS", "FUNCTIONS", "ITEMS", "LISTS",
    "LIST_ITEMS", "MAPPING", "METHOD", "METHOD_SELF", "NUMBER", "REFERENT", "SIZE", "TUPLES", "TYPE", "VERIFIED",
    "address_of_new", "attributes_of", "declaration", "dictionary_version", "hides_frames", "immortal_objects", "mro_offset",
    "new_array", "profiler_offset", "slot_offsets", "supported", "symbols", "tool_offset", "unsupported", "word",
]  # fmt: skip

VERIFIED: Final = ((3, 11), (3, 12), (3, 13))
"""Versions of CPython on which the tests of what is made of this module have run; `.ci/run` runs them on those that it finds."""
TYPE: Final = 8  # PyObject.ob_type; ob_refcnt comes first
SIZE: Final = 16  # PyVarObject.ob_size
ITEMS: Final = tuple.__basicsize__  # PyTupleObject.ob_item
LIST_ITEMS: Final = 24  # PyListObject.ob_item: a pointer to the items
NUMBER: Final = 16  # PyFloatObject.ob_fval
MAPPING: Final = 16  # mappingproxyobject.mapping
CELL: Final = 16  # PyCellObject.ob_ref
METHOD: Final = 16  # PyCFunctionObject.m_ml: its second word is the C function
METHOD_SELF: Final = 24  # PyCFunctionObject.m_self
REFERENT: Final = 16  # PyWeakReference.wr_object: None when it is gone
FRAME: Final = 24  # PyFrameObject.f_frame: a pointer to _PyInterpreterFrame
FRAME_CODE: Final = 32 if sys.version_info < (3, 12) else 0  # _PyInterpreterFrame.f_code, which 3.13 calls f_executable
FRAME_GLOBALS: Final = 8 if sys.version_info < (3, 12) else 24  # _PyInterpreterFrame.f_globals
CALLED: Final = 128  # PyTypeObject.tp_call: null where instances cannot be called
FLAGS: Final = 168  # PyTypeObject.tp_flags
DICTIONARY: Final = 288  # PyTypeObject.tp_dictoffset: 0 where instances have no dictionary of attributes
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
    "Py_DecRef": ("void", ("ptr",)),
    "Py_IncRef": ("void", ("ptr",)),
    "_PyInterpreterState_GetEvalFrameFunc": ("ptr", ("ptr",)),
    "_PyInterpreterState_SetEvalFrameFunc": ("void", ("ptr", "ptr")),
    "_Py_Dealloc": ("void", ("ptr",)),
    "tracejit_new_array": ("ptr", ("ptr", "ptr", "i32", "ptr", "ptr", "ptr", "i32", "ptr")),  # PyArray_NewFromDescr
    "tracejit_new_object": ("ptr", ("ptr", "ptr", "ptr")),  # object.__new__
    WATCH: ("ptr", ("ptr",)),
}
if sys.version_info >= (3, 12):
    FUNCTIONS |= {"PyDict_Unwatch": ("i32", ("i32", "ptr")), "PyDict_Watch": ("i32", ("i32", "ptr"))}
"""C function -> (type of the result, types of the arguments)."""

_THREAD_SIZE: Final = 256  # PyThreadState: bytes to search
_TYPE_SIZE: Final = 408  # PyTypeObject: bytes to search for a field
_TP_NEW: Final = 65  # Py_tp_new of PyType_GetSlot
_NEW_FROM_DESCR: Final = 94  # PyArray_NewFromDescr in NumPy's table of C functions
_MEMBER: Final = 40  # PyMemberDescrObject.d_member
_MEMBER_OFFSET: Final = 16  # PyMemberDef.offset
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement
_GIL: Final = "Py_GIL_DISABLED"


def word(address: int) -> int:
    """The int64 at an address."""
    return ctypes.c_int64.from_address(address).value


def declaration(symbol: str) -> str:
    """The LLVM declaration of one of FUNCTIONS."""
    result, arguments = FUNCTIONS[symbol]
    return f"declare {result} @{symbol}({', '.join(arguments)})"


def immortal_objects() -> bool:
    """Whether some objects are not counted."""
    return sys.version_info >= (3, 12)


@cache
def address_of_new() -> int:
    """The C function behind object.__new__."""
    slot = ctypes.pythonapi.PyType_GetSlot
    slot.restype, slot.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    return int(slot(object, _TP_NEW))


@cache
def new_array() -> int:
    """The C function PyArray_NewFromDescr."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = int(pointer(sys.modules["numpy._core._multiarray_umath"]._ARRAY_API, None))
    return word(table + 8 * _NEW_FROM_DESCR)


def symbols(names: Iterable[str] = tuple(FUNCTIONS)) -> dict[str, int]:
    """Addresses of FUNCTIONS, or of some of them.  Raises AttributeError where the interpreter has no such function."""
    return {name: _address(name) for name in names if name != WATCH}


@cache
def _address(name: str) -> int:
    if name in _OWN:
        return _OWN[name]()
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


_OWN: Final = {"tracejit_new_array": new_array, "tracejit_new_object": address_of_new}


def hides_frames() -> bool:
    """Whether a specialised instruction evaluates frames past the function that evaluates them: BINARY_SUBSCR_GETITEM of 3.11 those of
    `__getitem__`, CALL_ALLOC_AND_ENTER_INIT of 3.13 those of `__init__`."""
    return sys.version_info[:2] != (3, 12)


@cache
def mro_offset() -> int:
    """Where a type object keeps its method resolution order.  Raises RuntimeError where no place holds it for several types."""
    samples: list[Any] = [int, _Probe, MappingProxyType]
    places = [i for i in range(0, _TYPE_SIZE, 8) if all(word(id(t) + i) == id(t.__mro__) for t in samples)]
    if len(places) != 1:
        raise RuntimeError(f"type.__mro__: found at offsets {places}, expected one place")
    return places[0]


class _Probe:
    pass


class _Slotted:
    __slots__ = ("first", "second")

    second: Any


@cache
def profiler_offset() -> int:
    """Where the state of a thread keeps what sys.getprofile() says.  Raises RuntimeError where no place, or more than one, does."""
    address, present = _thread_state(), sys.getprofile()

    def profile(*_: object) -> None:
        pass

    try:
        if present is None:
            sys.setprofile(profile)
        looked_for = id(profile if present is None else present)
        places = [i for i in range(0, _THREAD_SIZE, 8) if word(address + i) == looked_for]
    finally:
        if present is None:
            sys.setprofile(None)
    if present is not None and present is sys.gettrace():  # the same object for both: that of the trace function comes after it
        places = places[:1]
    if len(places) != 1:
        raise RuntimeError(f"the profile function of a thread: found at offsets {places}, expected one place")
    return places[0]


@cache
def tool_offset() -> int | None:
    """Where the state of a thread has a 32-bit number that is not 0 while a trace or profile function runs, or what sys.monitoring calls.
    None where no place, or more than one, is like that, or a trace function is on now."""
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
    places = [4 * i for i in range(len(before)) if before[i] == after[i] == 0 and all(found[i] == 1 for found in inside)]
    return places[0] if inside and len(places) == 1 else None


def _thread_state() -> int:
    """The address of the state of this thread."""
    state = ctypes.pythonapi.PyThreadState_Get
    state.restype, state.argtypes = ctypes.c_void_p, ()
    return int(state())


@cache
def unsupported() -> str:
    """What speaks against machine code that looks at this interpreter's objects; empty if nothing does."""
    version = f"{sys.implementation.name} {platform.python_version()}"
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in VERIFIED:
        verified = ", ".join(f"{major}.{minor}" for major, minor in VERIFIED)
        return f"objects of {version}: it was tested on CPython {verified}"
    if hasattr(sys, "gettotalrefcount") or sysconfig.get_config_var(_GIL) or object.__basicsize__ != 16:
        return f"objects of a debug, free-threaded or 32-bit build of {version}"
    try:
        mro_offset()
        found = symbols()
    except (RuntimeError, AttributeError, KeyError) as error:  # no such field, function or module of NumPy
        if is_foreign(error):
            raise
        return f"objects of this build of {version}, or of NumPy {np.__version__}: they have other fields"
    return (
        "" if all(found.values()) and _is_as_expected() else f"objects of this build of {version}: they lie otherwise in memory"
    )


def supported() -> bool:
    """Whether this interpreter's objects look as this module says."""
    return not unsupported()


def _is_as_expected() -> bool:
    """The same, asked of living objects."""
    items, marker = ["a", 2.5], object()
    pair, append = (marker, 1), items.append
    cell = _cell(marker)
    proxy = _Probe.__dict__
    slotted = _Slotted()
    slotted.second = marker
    referred = _Probe()
    reference = weakref.ref(referred)
    alive = word(id(reference) + REFERENT) == id(referred)
    del referred
    before = word(id(marker))
    other = marker
    counted = word(id(marker)) == before + 1 and word(id(slotted) + slot_offsets(_Slotted)["second"]) == id(marker)
    del other
    frame = sys._getframe()
    evaluated = word(id(frame) + FRAME)
    return (
        word(evaluated + FRAME_CODE) == id(frame.f_code) and word(evaluated + FRAME_GLOBALS) == id(frame.f_globals)
        and counted and alive and word(id(reference) + REFERENT) == id(None)
        and _makes_arrays() and word(id(items[1]) + TYPE) == id(float)
        and word(id(items) + SIZE) == 2 and word(word(id(items) + LIST_ITEMS) + 8) == id(items[1])
        and ctypes.c_double.from_address(id(items[1]) + NUMBER).value == 2.5
        and word(id(cell) + CELL) == id(marker) and word(id(pair) + ITEMS) == id(marker)
        and word(id(append) + METHOD_SELF) == id(items) and ctypes.string_at(word(word(id(len) + METHOD))) == b"len"
        and ctypes.py_object.from_address(id(proxy) + MAPPING).value == dict(proxy)
        and all(word(id(cls) + FLAGS) == cls.__flags__ for cls in (list, dict, _Probe))
        and all(word(id(cls) + DICTIONARY) == cls.__dictoffset__ for cls in (list, type, _Probe, _Slotted))
        and [word(id(cls) + CALLED) != 0 for cls in (list, type, type(len), _Probe)] == [False, True, True, False]
        and [[bool(cls.__flags__ & bit) for bit in (LISTS, TUPLES, DICTIONARIES)] for cls in (list, tuple, dict, _Probe)]
        == [[True, False, False], [False, True, False], [False, False, True], [False] * 3]
    )  # fmt: skip


@cache
def dictionary_version() -> int | None:
    """Where a dict keeps its version (PEP 509), a number that no other state of any dict of the process has; None where it keeps none."""
    return 24 if sys.version_info[:2] == (3, 11) else None  # PyDictObject.ma_version_tag


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
    found = {}
    for base in reversed(cls.__mro__):
        for name, descriptor in vars(base).items():
            if type(descriptor) is MemberDescriptorType and base.__flags__ & _HEAP_TYPE:
                found[name] = word(word(id(descriptor) + _MEMBER) + _MEMBER_OFFSET)
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
