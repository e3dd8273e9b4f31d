"""Machine code that compares words of memory: how an entry knows in nanoseconds that objects it has checked are what they were.

CPython 3.11 gives every dictionary a version (PEP 509: `ma_version_tag`), a number that no other state of any dictionary of the process
shares; from 3.12 on there is such a number for each dictionary that is watched (watchers.py).  Slots of objects lie at fixed offsets.  So
"this instance has the same attributes" and "this tensor has the same array and flags" are comparisons of a few words, whoever wrote to
them and however.  A builtin function is made here:

* `same(table, addresses, *objects)`: whether the objects are those with these addresses, bytes of int64, and then whether `table` holds:
  bytes of int64, the number of pairs, pairs (address, expected word), and blocks (address, four expected words in a row).  Stops at the
  first difference, so an address may lie in an object that is only known to be alive because of what is before it.

It runs under the GIL, allocates nothing, and runs no code of the program.  Invariant: layouts are verified on live objects before first
use; where they are not the known ones `unsupported()` says so, and entries check everything one by one.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import Any, Final

from tracejit.cpython import c_api, watchers
from tracejit.cpython.arrays import BYTES
from tracejit.cpython.builtin_functions import FASTCALL, builtin_function
from tracejit.cpython.c_api import ITEMS, LAYOUT, LIST_ITEMS, MAPPING, SIZE, TYPE, failed_checks, slot_offsets
from tracejit.cpython.linking import link
from tracejit.cpython.memory_reads import CheckedMemory, word
from tracejit.cpython.reference_counts import counting

__all__ = [
    "BLOCK",
    "NEVER",
    "SlotWords",
    "block",
    "counted",
    "instance_words",
    "item_words",
    "namespace_address",
    "namespace_words",
    "packed",
    "same",
    "supported",
    "table",
    "unsupported",
]

_MANAGED: Final = 1 << 4  # Py_TPFLAGS_MANAGED_DICT: instances have that word


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
NEVER: Final = table((id(None) + TYPE, 0))
"""A table that `same` always refuses."""


def instance_words(instance: Any, dictionary: Any) -> list[int]:
    """Pairs that hold while `instance` has its type, and `dictionary`, its own, is as it is.  Empty where its layout is another one."""
    address = id(instance)
    if not supported() or not type(instance).__flags__ & _MANAGED or word(address + LAYOUT.instance_dictionary) != id(dictionary):
        return []
    key = _version(id(dictionary))
    if not key:
        return []
    return [address + TYPE, id(type(instance)), address + LAYOUT.instance_dictionary, id(dictionary), key, word(key)]


def namespace_words(proxy: Any) -> list[int]:
    """Pairs that hold while the class dictionary behind a mappingproxy is as it is."""
    key = _version(namespace_address(proxy))
    return [key, word(key)]


def namespace_address(proxy: Any) -> int:
    """Where the class dictionary behind a mappingproxy is."""
    return word(id(proxy) + MAPPING)


def _version(address: int) -> int:
    """Where the word lies that moves when the dictionary at an address changes; 0 if nowhere."""
    return watchers.watch(address) if LAYOUT.version is None else address + LAYOUT.version


def item_words(items: Iterable[tuple[Any, Any, Any]]) -> list[int]:
    """Pairs that hold while lists and dictionaries hold what they hold: (container, key, item), where key is an index, a key,
    or None for the length.  Containers, keys and items must be kept alive meanwhile.  Empty where a key is not found."""
    words: dict[int, int] = {}
    entries: dict[int, dict[int, int]] = {}
    for container, key, item in items:
        address = id(container)
        if key is None:
            words[address + SIZE] = len(container)
        elif type(container) is list:
            words[address + SIZE] = len(container)  # a list that gets shorter leaves its items where they were
            elements = words[address + LIST_ITEMS] = word(address + LIST_ITEMS)
            words[elements + 8 * key] = id(item)
        else:
            table = words[address + LAYOUT.keys] = word(address + LAYOUT.keys)
            words[table + LAYOUT.key_sizes] = word(table + LAYOUT.key_sizes)  # and kind
            if address not in entries:
                entries[address] = _entries(container)
            entry = entries[address].get(id(_stored_key(container, key)))
            if entry is None:
                return []
            words[entry], words[entry + 8] = word(entry), id(item)
    return [number for pair in words.items() for number in pair]


class SlotWords:
    """Words that hold while slots of instances of a class keep their contents."""

    __slots__ = ("_offsets", "_starts")

    def __init__(self, cls: type, blocks: Sequence[Sequence[str]], changing: Collection[str]) -> None:
        """blocks: names of slots that one block shows, the first of which comes first in memory; `__class__` is the type.  changing: slots
        that no block may show.  Raises RuntimeError where the slots of `cls` do not lie so."""
        self._offsets = {"__class__": TYPE, **slot_offsets(cls)}
        self._starts = [self._offsets[names[0]] for names in blocks]
        for names, start in zip(blocks, self._starts, strict=True):
            shown = {name for name, offset in self._offsets.items() if 0 <= offset - start < 8 * BLOCK}
            if not shown.issuperset(names) or not shown.isdisjoint(changing):
                raise RuntimeError(
                    f"slots of {cls.__name__}: a block from {names[0]} on shows {sorted(shown)}; "
                    f"expected {', '.join(names)} and none of {', '.join(changing)}"
                )

    def blocks(self, instance: Any) -> list[int]:
        """The blocks of an instance as it is, as `table` takes them."""
        return [number for start in self._starts for number in block(id(instance) + start)]

    def pair(self, instance: Any, name: str, content: Any) -> list[int]:
        """The pair that holds while a slot has `content`."""
        return [id(instance) + self._offsets[name], id(content)]


def _stored_key(dictionary: dict[Any, Any], key: Any) -> Any:
    """The key object in a dictionary: `key` itself unless it is a string."""
    return next((k for k in dictionary if type(k) is str and k == key), key) if type(key) is str else key


def _entries(dictionary: dict[Any, Any], peek: CheckedMemory | None = None) -> dict[int, int]:
    """id of a key -> address of the word with its pointer, after which comes the value's.  Empty for a dictionary that shares its keys, and
    for one with so many deleted entries, or so odd a head, that another thread may be changing it just now."""
    read, read_bytes = (word, ctypes.string_at) if peek is None else (peek.word, peek.bytes)
    table = read(id(dictionary) + LAYOUT.keys)
    if read(id(dictionary) + LAYOUT.values):
        return {}
    head = read(
        table + LAYOUT.key_sizes
    )  # bytes: log2 of size, log2 of bytes of the index, kind: 0 if entries have a hash in front
    used, index = read(table + LAYOUT.key_entries), head >> 8 & 255
    if not 0 <= used <= 4 * len(dictionary) + 64 or not 3 <= index <= 40:
        return {}
    first, step = table + LAYOUT.key_index + (1 << index), 16 if head >> 16 & 255 else 24
    found = struct.unpack(f"={used * step // 8}q", read_bytes(first, used * step))
    offset = step // 8 - 2
    return {found[i * step // 8 + offset]: first + i * step + 8 * offset for i in range(used)}


class _Probe:
    """An object with attributes, to verify layouts on."""


def supported() -> bool:
    """Whether words show that objects are what they were."""
    return not unsupported()


@cache
def unsupported() -> str:
    """What speaks against it; empty if nothing does."""
    if c_api.unsupported():
        return c_api.unsupported()
    wrong = failed_checks(_CHECKS)
    reason = f"containers or instances of this build: {wrong}" if wrong else ""
    return reason or (watchers.unsupported() if LAYOUT.version is None else "")


def _versions(peek: CheckedMemory) -> bool:
    """Whether dictionaries have versions where they are expected, which change with whatever is done to them."""
    assert LAYOUT.version is not None
    probe = _Probe()
    probe.first = 1  # type: ignore[attr-defined]
    dictionary, proxy = vars(probe), _Probe.__dict__
    key, namespace = id(dictionary) + LAYOUT.version, word(id(proxy) + MAPPING) + LAYOUT.version
    seen = [peek.word(key)]
    changes: list[Callable[[], Any]] = [
        lambda: setattr(probe, "first", 2), lambda: setattr(probe, "second", 1), lambda: delattr(probe, "second"),
        lambda: dictionary.update(first=3), lambda: object.__setattr__(probe, "first", 4), dictionary.clear,
    ]  # fmt: skip
    for change in changes:
        change()
        if peek.word(key) in seen:
            return False
        seen.append(peek.word(key))
    before = peek.word(namespace)
    _Probe.mark = 1  # type: ignore[attr-defined]
    return peek.word(namespace) != before and peek.word(key) == seen[-1]


def _instance_dictionaries(peek: CheckedMemory) -> bool:
    """Whether instances have pointers to their dictionaries where they are expected, also when they get another one."""
    probe = _Probe()
    probe.first = 1  # type: ignore[attr-defined]
    for dictionary in (vars(probe), {"first": 2}, {}):
        probe.__dict__ = dictionary
        if peek.word(id(probe) + LAYOUT.instance_dictionary) != id(dictionary):
            return False
    return bool(_Probe.__flags__ & _MANAGED) and not list.__flags__ & _MANAGED


def _dictionary_items(peek: CheckedMemory) -> bool:
    values = [object() for _ in range(20)]
    mixed: dict[Any, Any] = dict(zip(values, values, strict=True))
    named: dict[Any, Any] = {str(i): v for i, v in enumerate(values)}
    for dictionary in (mixed, named):
        del dictionary[next(iter(dictionary))]
        entries = _entries(dictionary, peek)
        for key, value in dictionary.items():
            found = entries.get(id(key))
            if found is None or peek.word(found) != id(key) or peek.word(found + 8) != id(value):
                return False
    return peek.word(id(named) + SIZE) == 19 and peek.word(id(values) + SIZE) == 20


_CHECKS: Final[dict[str, Callable[[CheckedMemory], bool]]] = {
    "the dictionaries of instances": _instance_dictionaries,
    "items of dictionaries": _dictionary_items,
}
if LAYOUT.version is not None:
    _CHECKS["versions of dictionaries"] = _versions


_SYMBOL: Final = "tracejit_same"
_TEXT: Final = f"""
declare i64 @llvm.vector.reduce.or.v{BLOCK}i64(<{BLOCK} x i64>)
declare void @_Py_Dealloc(ptr)
{counting()}
define ptr @{_SYMBOL}(ptr %self, ptr %arguments, i64 %count) nounwind {{
entry:
  %table = load ptr, ptr %arguments
  %addresses.at = getelementptr ptr, ptr %arguments, i64 1
  %addresses = load ptr, ptr %addresses.at
  %bytes.at = getelementptr i8, ptr %addresses, i64 {SIZE}
  %bytes = load i64, ptr %bytes.at
  %given = shl i64 %count, 3
  %needed = sub i64 %given, 16
  %fits = icmp eq i64 %bytes, %needed
  br i1 %fits, label %objects, label %no
objects:
  %o = phi i64 [ 2, %entry ], [ %o1, %as.expected ]
  %another = icmp slt i64 %o, %count
  br i1 %another, label %identify, label %words
identify:
  %object.at = getelementptr ptr, ptr %arguments, i64 %o
  %object.is = load i64, ptr %object.at
  %key = mul i64 %o, 8
  %offset = add i64 %key, {BYTES - 16}
  %expected.at = getelementptr i8, ptr %addresses, i64 %offset
  %expected = load i64, ptr %expected.at
  %known = icmp eq i64 %object.is, %expected
  br i1 %known, label %as.expected, label %no
as.expected:
  %o1 = add i64 %o, 1
  br label %objects
words:
  %size.at = getelementptr i8, ptr %table, i64 {SIZE}
  %size = load i64, ptr %size.at
  %head = getelementptr i8, ptr %table, i64 {BYTES}
  %end = getelementptr i8, ptr %head, i64 %size
  %pairs = load i64, ptr %head
  %length = shl i64 %pairs, 4
  %first = getelementptr i8, ptr %head, i64 8
  %blocks = getelementptr i8, ptr %first, i64 %length
  br label %pair
pair:
  %p = phi ptr [ %first, %words ], [ %p1, %next ]
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
  %at = phi i64 [ {ITEMS}, %yes ], [ {ITEMS + 8}, %no ]
  %answer.at = getelementptr i8, ptr %self, i64 %at
  %said = load ptr, ptr %answer.at
  call void @incref(ptr %said)
  ret ptr %said
}}
"""


@cache
def same() -> Callable[..., bool]:
    """The function, where this Python is supported."""
    address, owner = link(_TEXT, _SYMBOL)
    function: Callable[..., bool] = builtin_function("same", address, FASTCALL, (True, False, *owner))
    return function
