"""Machine code that compares words of memory: how an entry knows in nanoseconds that objects it has checked are what they were.

CPython 3.11 gives every dictionary a version (PEP 509: `ma_version_tag`), a number that no other state of any dictionary of the process
shares, and slots of objects lie at fixed offsets.  So "this instance has the same attributes" and "this tensor has the same
array and flags" are comparisons of a few words, whoever wrote to them and however.  Two builtin functions are made here:

* `same(table)`: `table` is bytes of int64: the number of pairs, pairs (address, expected word), and blocks (address, four expected
  words in a row).  Stops at the first difference, so an address may lie in an object that is only known to be alive because of what is
  before it.
* `mark_written(storages)`: what the function of that name in autograd/tape.py does, for a tuple.

Both run under the GIL, and run no code of the program.  Invariant: layouts are verified on live objects before first use; where they
are not the known ones `supported()` is false, and entries check everything in Python.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import llvmlite.binding

__all__ = [
    "BLOCK",
    "NEVER",
    "Functions",
    "Marking",
    "block",
    "counted",
    "functions",
    "instance_words",
    "item_words",
    "namespace_words",
    "packed",
    "slot_offsets",
    "supported",
    "table",
    "word",
]

_METH_O: Final = 0x0008
_TYPE: Final = 8  # PyObject_HEAD: reference count, type
_MAPPING: Final = 16  # mappingproxyobject.mapping
_LENGTH: Final = 16  # ob_size of a list, ma_used of a dictionary
_ITEMS: Final = 24  # PyListObject.ob_item
_VERSION: Final = 24  # PyDictObject.ma_version_tag
_KEYS: Final = 32  # PyDictObject.ma_keys
_VALUES: Final = 40  # PyDictObject.ma_values
_USED: Final = 24  # PyDictKeysObject.dk_nentries
_INDEX: Final = 32  # PyDictKeysObject.dk_indices
_DICTIONARY: Final = -24  # where an instance keeps the pointer to its dictionary
_BYTES: Final = bytes.__basicsize__ - 1
_TUPLE: Final = tuple.__basicsize__


def word(address: int) -> int:
    """The int64 at an address."""
    return ctypes.c_int64.from_address(address).value


def table(pairs: Sequence[int], blocks: Sequence[int] = ()) -> bytes:
    """Pairs (address, word), and blocks (address, four words), each one after the other, as `same` takes them."""
    return struct.pack(f"={1 + len(pairs) + len(blocks)}q", len(pairs) // 2, *pairs, *blocks)


def counted(address: int, value: int, pairs: bytes) -> bytes:
    """A table of the pair (address, value) and other pairs, which are packed already."""
    return struct.pack("=3q", 1 + len(pairs) // 16, address, value) + pairs


def packed(pairs: Sequence[int]) -> bytes:
    """Pairs as `counted` takes them."""
    return struct.pack(f"={len(pairs)}q", *pairs)


def block(address: int) -> list[int]:
    """A block that holds while the four words from an address on are what they are."""
    return [address, *[word(address + 8 * i) for i in range(BLOCK)]]


BLOCK: Final = 4
"""Words in a block."""
NEVER: Final = table((id(None) + _TYPE, 0))
"""A table that `same` always refuses."""


def instance_words(instance: Any, dictionary: Any) -> list[int]:
    """Pairs that hold while `instance` has its type, and `dictionary`, its own, is as it is.  Empty where its layout is another one."""
    address = id(instance)
    if not supported() or word(address + _DICTIONARY) != id(dictionary):
        return []
    place = id(dictionary) + _VERSION
    return [address + _TYPE, id(type(instance)), address + _DICTIONARY, id(dictionary), place, word(place)]


def namespace_words(proxy: Any) -> list[int]:
    """Pairs that hold while the class dictionary behind a mappingproxy is as it is."""
    place = word(id(proxy) + _MAPPING) + _VERSION
    return [place, word(place)]


def item_words(items: Iterable[tuple[Any, Any, Any]]) -> list[int]:
    """Pairs that hold while lists and dictionaries hold what they hold: (container, place, item), where place is an index, a key, or None
    for the length.  Containers, keys and items must be kept alive meanwhile.  Empty where a key is not found."""
    words: dict[int, int] = {}
    places: dict[int, dict[int, int]] = {}
    for container, place, item in items:
        address = id(container)
        if place is None:
            words[address + _LENGTH] = len(container)
        elif type(container) is list:
            elements = words[address + _ITEMS] = word(address + _ITEMS)
            words[elements + 8 * place] = id(item)
        else:
            table = words[address + _KEYS] = word(address + _KEYS)
            words[table + 8] = word(table + 8)  # sizes and kind
            if address not in places:
                places[address] = _entries(container)
            entry = places[address].get(id(_stored_key(container, place)))
            if entry is None:
                return []
            words[entry], words[entry + 8] = word(entry), id(item)
    return [number for pair in words.items() for number in pair]


def _stored_key(dictionary: dict[Any, Any], key: Any) -> Any:
    """The key object in a dictionary: `key` itself unless it is a string."""
    return next((k for k in dictionary if type(k) is str and k == key), key) if type(key) is str else key


def _entries(dictionary: dict[Any, Any]) -> dict[int, int]:
    """id of a key -> address of the word with its pointer, after which comes the value's.  Empty for a dictionary that shares its keys."""
    table = word(id(dictionary) + _KEYS)
    if word(id(dictionary) + _VALUES):
        return {}
    head = word(table + 8)  # bytes: log2 of size, log2 of bytes of the index, kind: 0 if entries have a hash in front
    first, step = table + _INDEX + (1 << (head >> 8 & 255)), 16 if head >> 16 & 255 else 24
    used = word(table + _USED)
    found = struct.unpack(f"={used * step // 8}q", ctypes.string_at(first, used * step))
    offset = step // 8 - 2
    return {found[i * step // 8 + offset]: first + i * step + 8 * offset for i in range(used)}


def slot_offsets(instance: Any, names: Iterable[str]) -> dict[str, int]:
    """Byte offsets of the slots `names`, found on a live instance, whose slots are changed.  Raises RuntimeError where one is not found."""
    found = {}
    for name in names:
        marker = object()
        setattr(instance, name, marker)
        places = [i for i in range(0, type(instance).__basicsize__, 8) if word(id(instance) + i) == id(marker)]
        if len(places) != 1:
            raise RuntimeError(
                f"slot {type(instance).__name__}.{name}: found at {places}, expected one place; use another CPython"
            )
        found[name] = places[0]
    return found


class _Probe:
    """An object with attributes, to verify layouts on."""


@cache
def supported() -> bool:
    """Whether this Python is one whose dictionaries have versions where they are expected."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 11) or object.__basicsize__ != 16:
        return False
    probe = _Probe()
    probe.first = 1  # type: ignore[attr-defined]
    dictionary, proxy = probe.__dict__, _Probe.__dict__
    if word(id(probe) + _DICTIONARY) != id(dictionary):
        return False
    place, namespace = id(dictionary) + _VERSION, word(id(proxy) + _MAPPING) + _VERSION
    seen = [word(place)]
    changes: list[Callable[[], Any]] = [
        lambda: setattr(probe, "first", 2), lambda: setattr(probe, "second", 1), lambda: delattr(probe, "second"),
        lambda: dictionary.update(first=3), lambda: object.__setattr__(probe, "first", 4), dictionary.clear,
    ]  # fmt: skip
    for change in changes:
        change()
        if word(place) in seen:
            return False
        seen.append(word(place))
    before = word(namespace)
    _Probe.mark = 1  # type: ignore[attr-defined]
    return word(namespace) != before and word(place) == seen[-1] and _containers_are_known()


def _containers_are_known() -> bool:
    """Whether items of lists and dictionaries are where they are expected."""
    values = [object() for _ in range(20)]
    mixed: dict[Any, Any] = dict(zip(values, values, strict=True))
    named: dict[Any, Any] = {str(i): v for i, v in enumerate(values)}
    for dictionary in (mixed, named):
        del dictionary[next(iter(dictionary))]
        entries = _entries(dictionary)
        for key, value in dictionary.items():
            place = entries.get(id(key))
            if place is None or word(place) != id(key) or word(place + 8) != id(value):
                return False
    elements = word(id(values) + _ITEMS)
    lengths = word(id(values) + _LENGTH), word(id(named) + _LENGTH)
    return lengths == (20, 19) and [word(elements + 8 * i) for i in range(20)] == list(map(id, values))


def _text(true: int, false: int, none: int, one: int, layout: Marking, api: Mapping[str, int]) -> str:
    return f"""
declare i64 @llvm.vector.reduce.or.v{BLOCK}i64(<{BLOCK} x i64>)
define ptr @same(ptr %self, ptr %table) nounwind {{
entry:
  %size.at = getelementptr i8, ptr %table, i64 16
  %size = load i64, ptr %size.at
  %head = getelementptr i8, ptr %table, i64 {_BYTES}
  %end = getelementptr i8, ptr %head, i64 %size
  %pairs = load i64, ptr %head
  %length = shl i64 %pairs, 4
  %first = getelementptr i8, ptr %head, i64 8
  %blocks = getelementptr i8, ptr %first, i64 %length
  br label %pair
pair:
  %p = phi ptr [ %first, %entry ], [ %p1, %next ]
  %done = icmp eq ptr %p, %blocks
  br i1 %done, label %block, label %compare
compare:
  %address = load ptr, ptr %p
  %want.at = getelementptr i8, ptr %p, i64 8
  %want = load i64, ptr %want.at
  %is = load i64, ptr %address
  %equal = icmp eq i64 %is, %want
  br i1 %equal, label %next, label %no
next:
  %p1 = getelementptr i8, ptr %p, i64 16
  br label %pair
block:
  %b = phi ptr [ %p, %pair ], [ %b1, %following ]
  %through = icmp eq ptr %b, %end
  br i1 %through, label %yes, label %four
four:
  %row = load ptr, ptr %b
  %wants.at = getelementptr i8, ptr %b, i64 8
  %wants = load <{BLOCK} x i64>, ptr %wants.at, align 8
  %are = load <{BLOCK} x i64>, ptr %row, align 8
  %differences = xor <{BLOCK} x i64> %wants, %are
  %difference = call i64 @llvm.vector.reduce.or.v{BLOCK}i64(<{BLOCK} x i64> %differences)
  %equals = icmp eq i64 %difference, 0
  br i1 %equals, label %following, label %no
following:
  %b1 = getelementptr i8, ptr %b, i64 {8 * BLOCK + 8}
  br label %block
yes:
  br label %answer
no:
  br label %answer
answer:
  %number = phi i64 [ {true}, %yes ], [ {false}, %no ]
  %object = inttoptr i64 %number to ptr
  %count = load i64, ptr %object
  %more = add i64 %count, 1
  store i64 %more, ptr %object
  ret ptr %object
}}
define ptr @mark_written(ptr %self, ptr %storages) nounwind {{
entry:
  %size.at = getelementptr i8, ptr %storages, i64 16
  %size = load i64, ptr %size.at
  %one = inttoptr i64 {one} to ptr
  %counter = inttoptr i64 {layout.counter} to ptr
  %call = inttoptr i64 {api["PyObject_CallNoArgs"]} to ptr
  %add = inttoptr i64 {api["PyNumber_Add"]} to ptr
  %keep = inttoptr i64 {api["Py_IncRef"]} to ptr
  %drop = inttoptr i64 {api["Py_DecRef"]} to ptr
  %now = call ptr %call(ptr %counter)
  %failed = icmp eq ptr %now, null
  br i1 %failed, label %error, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %mark ]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %item, label %end
item:
  %offset = mul i64 %i, 8
  %place = add i64 %offset, {_TUPLE}
  %from = getelementptr i8, ptr %storages, i64 %place
  %storage = load ptr, ptr %from
  %version.at = getelementptr i8, ptr %storage, i64 {layout.version}
  %version = load ptr, ptr %version.at
  %next = call ptr %add(ptr %version, ptr %one)
  %stuck = icmp eq ptr %next, null
  br i1 %stuck, label %stop, label %mark
mark:
  store ptr %next, ptr %version.at
  call void %drop(ptr %version)
  %written.at = getelementptr i8, ptr %storage, i64 {layout.written}
  %written = load ptr, ptr %written.at
  call void %keep(ptr %now)
  store ptr %now, ptr %written.at
  call void %drop(ptr %written)
  %i1 = add i64 %i, 1
  br label %loop
stop:
  call void %drop(ptr %now)
  br label %error
error:
  ret ptr null
end:
  call void %drop(ptr %now)
  %none = inttoptr i64 {none} to ptr
  call void %keep(ptr %none)
  ret ptr %none
}}
"""


class _MethodDefinition(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


@dataclass(frozen=True, slots=True)
class Marking:
    """Offsets of `version` and `written` in a storage, and the id of the callable that numbers changes, which must live for ever."""

    version: int
    written: int
    counter: int


class Functions:
    """The two functions; owns their code."""

    def __init__(self, layout: Marking) -> None:
        names = ("PyObject_CallNoArgs", "PyNumber_Add", "Py_IncRef", "Py_DecRef")
        api = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in names}
        llvmlite.binding.initialize_native_target()
        llvmlite.binding.initialize_native_asmprinter()
        module = llvmlite.binding.parse_assembly(_text(id(True), id(False), id(None), id(1), layout, api))
        features = llvmlite.binding.get_host_cpu_features().flatten()
        target = llvmlite.binding.Target.from_default_triple()
        machine = target.create_target_machine(cpu=llvmlite.binding.get_host_cpu_name(), features=features, opt=2)
        self._engine = llvmlite.binding.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        self._definitions: list[_MethodDefinition] = []
        self.same: Callable[[bytes], bool] = self._function("same")
        self.mark_written: Callable[[tuple[Any, ...]], None] = self._function("mark_written")

    def _function(self, name: str) -> Any:
        definition = _MethodDefinition(name.encode(), self._engine.get_function_address(name), _METH_O, None)
        self._definitions.append(definition)
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        return make(ctypes.addressof(definition), None, None)


@cache
def functions(layout: Marking) -> Functions:
    """`same` and `mark_written`, for storages of this layout."""
    return Functions(layout)
