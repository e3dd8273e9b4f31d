"""Where objects of CPython keep what, as data: one table, a row for each version.

The rows come from CPython's headers (Include/, Include/cpython/, Include/internal/).  Nothing uses a row because of its number: what
reads an object at one of these offsets first compares what it finds in living objects with what Python says of them (c_api.py,
call_hook.py, words.py, watchers.py), and is off where that differs.  TESTED lists the versions on which the tests run as well.

An interpreter with another kind of objects (`obstacle`) is not looked at: another implementation, a version without a row, a debug or a
free-threaded build, one with pointers of 32 bits.  This module imports nothing of the library and reads no memory.
"""

from __future__ import annotations

import platform
import sys
import sysconfig
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

__all__ = ["LAYOUTS", "TESTED", "Build", "Layout", "build", "layout", "obstacle"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets in objects, with the name of the C struct's field.  The reference count is the first word of an object.

    count_bits: of the reference count; what is above them in that word says other things.
    immortal: whether there are objects that are not counted, those whose count is negative as a number of 32 bits (PEP 683).
    version: PyDictObject.ma_version_tag (PEP 509); None where others use that word.
    instance_dictionary: from an instance back to the pointer to its dictionary, where its type has Py_TPFLAGS_MANAGED_DICT.
    frame_code, frame_globals: in the frame that the interpreter evaluates.
    frame_tag: the bits of frame_code that are no part of the pointer (_PyStackRef).
    hides_frames: whether a specialised instruction evaluates frames past the function that evaluates frames (PEP 523)."""

    count_bits: int = 64
    immortal: bool = False
    type: int = 8  # PyObject.ob_type
    size: int = 16  # PyVarObject.ob_size
    list_items: int = 24  # PyListObject.ob_item, a pointer to the items
    number: int = 16  # PyFloatObject.ob_fval
    mapping: int = 16  # mappingproxyobject.mapping
    cell: int = 16  # PyCellObject.ob_ref
    method: int = 16  # PyCFunctionObject.m_ml
    method_self: int = 24  # PyCFunctionObject.m_self
    referent: int = 16  # PyWeakReference.wr_object: None when it is gone
    member: int = 40  # PyMemberDescrObject.d_member
    member_offset: int = 16  # PyMemberDef.offset
    called: int = 128  # PyTypeObject.tp_call
    flags: int = 168  # PyTypeObject.tp_flags
    dictionary: int = 288  # PyTypeObject.tp_dictoffset
    used: int = 16  # PyDictObject.ma_used
    version: int | None = None
    keys: int = 32  # PyDictObject.ma_keys
    values: int = 40  # PyDictObject.ma_values: not null where the dictionary shares its keys with others
    key_sizes: int = 8  # PyDictKeysObject: bytes: log2 of the size, log2 of the bytes of the index, kind
    key_entries: int = 24  # PyDictKeysObject.dk_nentries
    key_index: int = 32  # PyDictKeysObject.dk_indices
    instance_dictionary: int = -24
    frame: int = 24  # PyFrameObject.f_frame
    frame_code: int = 0  # _PyInterpreterFrame.f_executable
    frame_globals: int = 24  # _PyInterpreterFrame.f_globals
    frame_tag: int = 0
    hides_frames: bool = True


_3_11: Final = Layout(version=24, frame_code=32, frame_globals=8)  # hides frames of `__getitem__`: BINARY_SUBSCR_GETITEM
_3_12: Final = replace(_3_11, immortal=True, version=None, frame_code=0, frame_globals=24, hides_frames=False)
_3_13: Final = replace(_3_12, hides_frames=True)  # those of `__init__`: CALL_ALLOC_AND_ENTER_INIT
_3_14: Final = replace(_3_13, count_bits=32, frame_tag=3)  # ob_flags and ob_overflow above the count; tagged references in frames

LAYOUTS: Final[dict[tuple[int, int], Layout]] = {(3, 11): _3_11, (3, 12): _3_12, (3, 13): _3_13, (3, 14): _3_14}
"""Version of CPython -> where its objects keep what, in builds with the GIL and pointers of 64 bits."""

TESTED: Final = ((3, 11), (3, 12), (3, 13))
"""Versions of CPython on which the tests of what is made with these layouts run; `.ci/run` runs them on each."""


@dataclass(frozen=True, slots=True)
class Build:
    """What kind of interpreter this is.  header: bytes of an object without contents."""

    implementation: str
    text: str
    version: tuple[int, int]
    header: int
    debug: bool
    free_threaded: bool


@cache
def build() -> Build:
    """The interpreter that runs."""
    return Build(
        sys.implementation.name,
        f"{platform.python_implementation()} {platform.python_version()}",
        sys.version_info[:2],
        object.__basicsize__,
        hasattr(sys, "gettotalrefcount"),
        bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    )


def layout() -> Layout:
    """The row of this version; the newest one where it has none, which `obstacle` then tells."""
    return LAYOUTS.get(build().version, LAYOUTS[max(LAYOUTS)])


def obstacle() -> str:
    """Why objects of this interpreter are not looked at, whatever they are like; empty where nothing speaks against trying."""
    found = build()
    if found.implementation != "cpython" or found.version not in LAYOUTS:
        known = ", ".join(f"{major}.{minor}" for major, minor in LAYOUTS)
        return f"objects of {found.text}: their layout is known for CPython {known}"
    kinds = [("debug", found.debug), ("free-threaded", found.free_threaded), ("32-bit", sys.maxsize <= 1 << 32)]
    special = [kind for kind, is_so in kinds if is_so] or (["special"] if found.header != 16 else [])
    return f"objects of a {', '.join(special)} build of {found.text}: those of other builds are known" if special else ""
