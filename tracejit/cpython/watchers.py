"""Words that move when a dictionary changes, from CPython 3.12 on (`words.py` compares them).

`watch(dictionary)` gives the address of a word that holds a number no other word has had, until the dictionary is changed or
deallocated, whoever does it and however; then the word becomes 0.  This is CPython's public interface of dictionary watchers
(PyDict_AddWatcher, PyDict_Watch; docs.python.org/3/c-api/dict.html) with a callback in machine code, which runs before the change, under
the GIL, and allocates nothing.

A watch ends with the first change.  So a dictionary that changes a million times between two calls costs one callback, and whoever needs
to know of the next change calls `watch` again.  The words are slots of a table in machine code, found by the dictionary's address in
buckets; the slot of a watch that has ended is used again.  So the table holds no reference, and has as many slots as dictionaries were
watched at one time.

Watchers belong to an interpreter, which has eight; others in the process have theirs.  A process that forks takes the table with it.  The
callback must be there until the last dictionary of the interpreter is gone, so what owns the code is never freed.

From 3.13 on attributes lie in the instance itself, also where it has a dictionary.  CPython 3.13.0 tells no watcher of a change that is
made by the attribute (`x.a = 1`), only of those made by the dictionary; such a dictionary gets its contents out of the instance first
(`_Interface.separate_first`), which `dict.popitem` does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tracejit.core.interrupts import is_foreign
from tracejit.cpython import c_api
from tracejit.cpython.c_api import ITEMS, LAYOUT, MAPPING, WATCH, failed_checks, never_free
from tracejit.cpython.linking import link
from tracejit.cpython.memory_reads import CheckedMemory, word
from tracejit.cpython.reference_counts import counting

__all__ = ["WATCH", "needed", "supported", "symbols", "unsupported", "watch"]

_DEALLOCATED: Final = 5  # PyDict_EVENT_DEALLOCATED
_BITS: Final = 14  # buckets: a power of two
_SLOT: Final = 24  # bytes: number, dictionary, next slot of the bucket or of those that are free
_SLAB: Final = 256  # slots that are allocated at once
_SPREAD: Final = 0x9E3779B97F4A7C15 - (1 << 64)  # 2**64 over the golden ratio (Knuth, The Art of Computer Programming 3, 6.4)
_WARM: Final = 40  # runs after which CPython has specialised instructions
_SYMBOL: Final = "tracejit_watchers"
_TEXT: Final = f"""
declare i32 @PyDict_Watch(i32, ptr)
declare i32 @PyDict_Unwatch(i32, ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)
declare ptr @PyMem_RawMalloc(i64)
declare void @_Py_Dealloc(ptr)
{counting()}
@buckets = internal global [{1 << _BITS} x ptr] zeroinitializer
@free = internal global ptr null
@number = internal global i64 0
@settings = internal global [2 x i32] [i32 -1, i32 0] ; the watcher; whether dictionaries that share their keys cannot be watched
define internal ptr @bucket(ptr %dictionary) nounwind {{
  %address = ptrtoint ptr %dictionary to i64
  %spread = mul i64 %address, {_SPREAD}
  %index = lshr i64 %spread, {64 - _BITS}
  %found = getelementptr [{1 << _BITS} x ptr], ptr @buckets, i64 0, i64 %index
  ret ptr %found
}}
; The address of the pointer to the slot of a dictionary, or that holds null where there is none.
define internal ptr @link_of(ptr %dictionary) nounwind {{
entry:
  %first = call ptr @bucket(ptr %dictionary)
  br label %look
look:
  %at = phi ptr [ %first, %entry ], [ %next.at, %other ]
  %slot = load ptr, ptr %at
  %none = icmp eq ptr %slot, null
  br i1 %none, label %end, label %compare
compare:
  %whose.at = getelementptr i8, ptr %slot, i64 8
  %whose = load ptr, ptr %whose.at
  %found = icmp eq ptr %whose, %dictionary
  br i1 %found, label %end, label %other
other:
  %next.at = getelementptr i8, ptr %slot, i64 16
  br label %look
end:
  ret ptr %at
}}
define internal void @release(ptr %slot) nounwind {{
  %next = load ptr, ptr @free
  %next.at = getelementptr i8, ptr %slot, i64 16
  store i64 0, ptr %slot
  store ptr %next, ptr %next.at
  store ptr %slot, ptr @free
  ret void
}}
define i32 @tracejit_dictionary_changes(i32 %event, ptr %dictionary, ptr %key, ptr %value) nounwind {{
entry:
  %at = call ptr @link_of(ptr %dictionary)
  %slot = load ptr, ptr %at
  %none = icmp eq ptr %slot, null
  br i1 %none, label %end, label %found
found:
  %next.at = getelementptr i8, ptr %slot, i64 16
  %next = load ptr, ptr %next.at
  store ptr %next, ptr %at
  call void @release(ptr %slot)
  %dies = icmp eq i32 %event, {_DEALLOCATED}
  br i1 %dies, label %end, label %unwatch
unwatch:
  %watcher = load i32, ptr @settings
  %done = call i32 @PyDict_Unwatch(i32 %watcher, ptr %dictionary)
  br label %end
end:
  ret i32 0
}}
; The address of the word of a dictionary; null where it cannot be watched, or for lack of memory.
define ptr @{WATCH}(ptr %dictionary) nounwind {{
entry:
  %shares.at = getelementptr i8, ptr %dictionary, i64 {LAYOUT.values}
  %values = load ptr, ptr %shares.at
  %shares = icmp ne ptr %values, null
  %second = getelementptr i32, ptr @settings, i64 1
  %setting = load i32, ptr %second
  %refuses = icmp ne i32 %setting, 0
  %refused = and i1 %shares, %refuses
  br i1 %refused, label %nothing, label %look
look:
  %at = call ptr @link_of(ptr %dictionary)
  %known = load ptr, ptr %at
  %is.known = icmp ne ptr %known, null
  br i1 %is.known, label %give, label %watch
watch:
  %spare = load ptr, ptr @free
  %is.empty = icmp eq ptr %spare, null
  br i1 %is.empty, label %more, label %take
more:
  %slab = call ptr @PyMem_RawMalloc(i64 {_SLOT * _SLAB})
  %no.memory = icmp eq ptr %slab, null
  br i1 %no.memory, label %nothing, label %fill
fill:
  %i = phi i64 [ 0, %more ], [ %i1, %fill ]
  %byte = mul i64 %i, {_SLOT}
  %fresh = getelementptr i8, ptr %slab, i64 %byte
  call void @release(ptr %fresh)
  %i1 = add i64 %i, 1
  %filled = icmp eq i64 %i1, {_SLAB}
  br i1 %filled, label %take, label %fill
take:
  %slot = load ptr, ptr @free
  %whose.at = getelementptr i8, ptr %slot, i64 8
  %next.at = getelementptr i8, ptr %slot, i64 16
  %rest = load ptr, ptr %next.at
  store ptr %rest, ptr @free
  %last = load i64, ptr @number
  %number = add i64 %last, 1
  store i64 %number, ptr @number
  store i64 %number, ptr %slot
  store ptr %dictionary, ptr %whose.at
  store ptr null, ptr %next.at
  store ptr %slot, ptr %at
  %watcher = load i32, ptr @settings
  %status = call i32 @PyDict_Watch(i32 %watcher, ptr %dictionary)
  br label %give
give:
  %given = phi ptr [ %known, %look ], [ %slot, %take ]
  ret ptr %given
nothing:
  ret ptr null
}}
; Take the last item out of a dictionary with `popitem`, whose name is given, and put it in again.
define i32 @tracejit_separate(ptr %dictionary, ptr %popitem) nounwind {{
entry:
  %arguments = alloca ptr
  store ptr %dictionary, ptr %arguments
  %item = call ptr @PyObject_VectorcallMethod(ptr %popitem, ptr %arguments, i64 1, ptr null)
  %failed = icmp eq ptr %item, null
  br i1 %failed, label %error, label %put
put:
  %key.at = getelementptr i8, ptr %item, i64 {ITEMS}
  %value.at = getelementptr i8, ptr %item, i64 {ITEMS + 8}
  %key = load ptr, ptr %key.at
  %value = load ptr, ptr %value.at
  %status = call i32 @PyDict_SetItem(ptr %dictionary, ptr %key, ptr %value)
  call void @decref(ptr %item)
  ret i32 %status
error:
  ret i32 -1
}}
define void @{_SYMBOL}(ptr %addresses) nounwind {{
  %second = getelementptr ptr, ptr %addresses, i64 1
  %third = getelementptr ptr, ptr %addresses, i64 2
  %fourth = getelementptr ptr, ptr %addresses, i64 3
  store ptr @tracejit_dictionary_changes, ptr %addresses
  store ptr @{WATCH}, ptr %second
  store ptr @tracejit_separate, ptr %third
  store ptr @settings, ptr %fourth
  ret void
}}
"""


class _Interface:
    """The functions in machine code, and a watcher of this interpreter."""

    def __init__(self) -> None:
        """Raises RuntimeError where the interpreter has no watcher to give."""
        begin, owner = link(_TEXT, _SYMBOL)
        addresses = (ctypes.c_int64 * 4)()
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(begin)(ctypes.addressof(addresses))
        changes, self.address, separate, settings = addresses
        add = ctypes.pythonapi.PyDict_AddWatcher
        add.restype, add.argtypes = ctypes.c_int, (ctypes.c_void_p,)
        self._settings = (ctypes.c_int32 * 2).from_address(settings)
        self._settings[0] = add(changes)
        never_free(owner)
        self._watch = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(self.address)
        self._separate = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object)(separate)

    def separate_first(self) -> None:
        """From now on separate dictionaries from instances that their contents lie in, and then watch them."""
        self._settings[1] = 1

    def watch(self, address: int) -> int:
        if self._settings[1] and word(address + LAYOUT.values):
            if not word(address + LAYOUT.used):
                return 0
            self._separate(address, "popitem")
        return self._watch(address) or 0


def watch(address: int) -> int:
    """The address of the word that moves when the dictionary at an address, an exact dict, is changed or deallocated; 0 where it cannot be
    watched.  The caller holds the dictionary.  Only where `supported()`."""
    return _interface().watch(address)


def symbols() -> dict[str, int]:
    """The address of WATCH, where it is supported."""
    return {WATCH: _interface().address} if supported() else {}


def needed() -> bool:
    """Whether nothing else tells that a dictionary has changed: it has no version."""
    return LAYOUT.version is None


def supported() -> bool:
    """Whether dictionaries can be watched."""
    return not unsupported()


@cache
def _interface() -> _Interface:
    return _Interface()


class _Probe:
    """An object with attributes, to try watches on."""


@cache
def unsupported() -> str:
    """What speaks against watching dictionaries; empty if nothing does."""
    if c_api.unsupported():
        return c_api.unsupported()
    if not hasattr(ctypes.pythonapi, "PyDict_AddWatcher"):
        return "CPython has watchers of dictionaries from 3.12 on"
    if wrong := failed_checks({"what dictionaries share": _values_are_known}):
        return f"dictionaries of this build: {wrong}"
    try:
        interface = _interface()
    except RuntimeError as error:
        if is_foreign(error):
            raise
        return f"no watcher of dictionaries: {error}"
    if not _instances_are_watched(interface):
        interface.separate_first()
        if not _instances_are_watched(interface):
            return "changes of attributes are told to no watcher of dictionaries"
    return "" if _others_are_watched(interface) else "changes are told to no watcher of dictionaries"


def _values_are_known(peek: CheckedMemory) -> bool:
    """Whether a dictionary says where it is expected how many items it has, and whether it shares its keys with others."""
    probe = _Probe()
    probe.first = probe.second = 1  # type: ignore[attr-defined]
    own = vars(probe)
    shares = peek.word(id(own) + LAYOUT.values) != 0
    used = [peek.word(id(dictionary) + LAYOUT.used) for dictionary in (own, {}, {"a": 1})]
    own.update(zip(map(str, range(40)), range(40), strict=True))
    return shares and used == [2, 0, 1] and peek.word(id(own) + LAYOUT.values) == peek.word(id({"a": 1}) + LAYOUT.values) == 0


def _instances_are_watched(interface: _Interface) -> bool:
    """Whether every change of an instance's attributes moves the word, from where instructions are specialised, too."""
    changes: list[Callable[[Any], Any]] = [
        lambda x: setattr(x, "first", 2), lambda x: setattr(x, "third", 1), lambda x: delattr(x, "first"), _assign, _add,
        lambda x: vars(x).update(first=3), lambda x: object.__setattr__(x, "first", 4), lambda x: vars(x).clear(),
        lambda x: vars(x).pop("second"), lambda x: vars(x).setdefault("fourth"), lambda x: vars(x).popitem(),
    ]  # fmt: skip
    for is_separate in (False, True):
        for change in changes:
            for _ in range(_WARM):
                probe = _Probe()
                probe.first = probe.second = 1  # type: ignore[attr-defined]
                if is_separate:
                    vars(probe).update(zip(map(str, range(40)), range(40), strict=True))
                word_at = interface.watch(id(vars(probe)))
                before = word(word_at) if word_at else 0
                if not before or before != word(word_at):
                    return False
                change(probe)
                if word(word_at) == before:
                    return False
    return True


def _assign(x: Any) -> None:
    x.first = 2


def _add(x: Any) -> None:
    x.third = 2


def _others_are_watched(interface: _Interface) -> bool:
    """The same of the namespace of a class, of a dictionary that dies, and of one that is changed again."""

    def address_and_word(address: int) -> tuple[int, int]:
        word_at = interface.watch(address)
        return word_at, word(word_at)

    proxy = _Probe.__dict__
    namespace = word(id(proxy) + MAPPING)
    for name in ("mark", "mark", "other"):
        word_at, before = address_and_word(namespace)
        setattr(_Probe, name, object())
        if word(word_at) == before:
            return False
    dictionary = {"a": 1}
    for i in range(_WARM):
        word_at, before = address_and_word(id(dictionary))
        dictionary["a"] = i
        if word(word_at) == before:
            return False
    word_at, before = address_and_word(id(dictionary))
    if before != word(word_at):
        return False
    del dictionary
    return word(word_at) != before
