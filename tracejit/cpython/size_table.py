"""Which path serves arguments of these sizes, as machine code finds it: a hash table over the shapes of the arrays in a call's arguments.

A shape is looked for where NumPy's public struct has it (cpython/arrays.py), in the objects whose exact type is a given class, in a slot
of it.  These are arguments, items of lists, tuples and dictionaries that are, or attributes of objects that are: of those that have a
dictionary of attributes and cannot be called.  What can be called (functions, classes, modules of networks) is code rather than data.
A list of more than LONGEST items in another object is not looked into: it is most likely a log, which is longer in each call.
`sized_among` finds the same ones as machine code, in the same order.  Neither looks at more than some hundred objects
of a call, so large containers of other things cost nothing; and at no more than as many again that attributes lead to, so a large object
hides nothing of the arguments behind it.

Two lists of shapes with one hash are taken for the same: what is found is only who is asked first, and checks its own guards.

It must not know what serves a call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Final

from tracejit.cpython.arrays import BYTES, DIMENSIONS, ND
from tracejit.cpython.c_api import (
    CALLED,
    DICTIONARIES,
    DICTIONARY,
    FLAGS,
    ITEMS,
    LIST_ITEMS,
    LISTS,
    SIZE,
    TUPLES,
    TYPE,
    attributes_of,
    declaration,
)

__all__ = ["LONGEST", "LOOK", "Reach", "Shapes", "SizeTable", "look_text", "sized_among"]

Shapes = tuple[tuple[int, ...], ...]
LOOK: Final = "look_up"
"""`ptr look_up(ptr table, ptr type, ptr arguments, i64 count)`: an item of the table's list, or null.  It keeps no reference."""
_FACTOR: Final = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: Knuth, The Art of Computer Programming, volume 3, 6.4
_WORD: Final = (1 << 64) - 1
_FEWEST: Final = 16  # slots
_MOST: Final = 256  # objects of a call that are looked at, and of those that attributes lead to
_DEEPEST: Final = 4  # containers and objects in each other
LONGEST: Final = 64
"""The most items of a list in another object: a longer one is most likely a log, and none of its items are looked at."""
_CONTAINERS: Final = TUPLES | LISTS | DICTIONARIES


class Reach(Enum):
    """What of the arguments of a call is looked at.  ALL: what machine code looks at.  WITHOUT_LISTS: the same, but for lists in other
    objects.  ARGUMENTS: the arguments alone.  The value is the most items of a list in another object."""

    ALL = LONGEST
    WITHOUT_LISTS = 0
    ARGUMENTS = -1


def sized_among(objects: Iterable[Any], *classes: type, reach: Reach = Reach.ALL) -> list[tuple[Any, tuple[Any, ...]]]:
    """The instances of some classes among the arguments of a call, and in what they lead to, with where each is: the number of the
    argument, then the container and the index or key, or the object and the attribute's name, at each step."""
    found: list[tuple[Any, tuple[Any, ...]]] = []
    depth = 0 if reach is Reach.ARGUMENTS else _DEEPEST
    _look(found, classes, enumerate(objects), (), depth, reach.value, [_MOST], [_MOST])
    return found


def _has_attributes(value: Any) -> bool:
    """Whether the attributes of an object are looked at."""
    return bool(type(value).__dictoffset__) and not callable(value)


def _look(
    found: list[tuple[Any, tuple[Any, ...]]],
    classes: tuple[type, ...],
    items: Iterator[tuple[Any, Any]],
    path: tuple[Any, ...],
    depth: int,
    longest: int,
    left: list[int],
    in_objects: list[int],
) -> None:
    """Add what is found among `items`, of which `path` leads to the container. longest: the most items of a list in it. left: how many
    objects may still be looked at; in_objects: how many that attributes lead to. (No function in another one: it would keep what it
    has found until the next garbage collection.)"""
    for key, value in items:
        if not left[0]:
            break
        left[0] -= 1
        kind = type(value)
        if kind in classes:
            found.append((value, (*path, key)))
            continue
        flags = kind.__flags__
        inside: Iterator[tuple[Any, Any]]
        if not depth:
            continue
        more = left
        if flags & DICTIONARIES:
            inside = iter(list(dict.items(value)))
        elif flags & LISTS and path and list.__len__(value) > longest:
            continue
        elif flags & _CONTAINERS:
            inside = enumerate((tuple if flags & TUPLES else list).__iter__(value))
        elif _has_attributes(value):
            inside, more = iter(list(dict.items(attributes_of(value)))), in_objects
        else:
            continue
        _look(found, classes, inside, (*path, key, value), depth - 1, longest, more, in_objects)


def _hash(shapes: Shapes) -> int:
    found = 0
    for shape in shapes:
        for n in (*shape, len(shape)):
            found = (found + n + 1) * _FACTOR & _WORD
    return found ^ found >> 32


class SizeTable:
    """What is found for lists of shapes.  `items` is what machine code takes, (bytes, list); None while nothing can be found.

    Of threads that put at the same time one may have to put again, but what is found always belongs to the shapes."""

    __slots__ = ("_known", "items")

    def __init__(self) -> None:
        self._known: tuple[dict[Shapes, int], list[Any]] = {}, []
        self.items: tuple[bytes, list[Any]] | None = None

    def put(self, shapes: Shapes, found: Any) -> None:
        """From now on `found` is found for these shapes."""
        indices, items = self._known
        index = indices.get(shapes)
        if index is not None:
            items[index] = found
            return
        indices, items = {**indices, shapes: len(items)}, [*items, found]
        self._known, self.items = (indices, items), (_words(indices), items)


def _words(indices: dict[Shapes, int]) -> bytes:
    """One less than the number of slots, then pairs (hash, index): from its hash on, the first slot with it or with index -1."""
    count = max(_FEWEST, 1 << (2 * len(indices)).bit_length())
    table: list[tuple[int, int]] = [(0, -1)] * count
    for shapes, index in indices.items():
        at = _hash(shapes)
        while table[at % count][1] >= 0:
            at += 1
        table[at % count] = (_hash(shapes), index)
    return struct.pack(f"=q{2 * count}Q", count - 1, *[word & _WORD for pair in table for word in pair])


def look_text(slot: int) -> str:
    """The definition of LOOK, for a module that defines `decref`.  slot: offset of the array in an instance of the class."""
    return f"""
{declaration("PyDict_Next")}
{declaration("PyErr_Clear")}
{declaration("PyObject_GenericGetDict")}
define internal i64 @sizes_of(ptr %object, ptr %type, i64 %hash, ptr %left, i64 %depth, ptr %in.objects) nounwind {{
entry:
  %position = alloca i64
  %key = alloca ptr
  %value = alloca ptr
  %few = load i64, ptr %left
  %over = icmp eq i64 %few, 0
  br i1 %over, label %same, label %one
one:
  %fewer = sub i64 %few, 1
  store i64 %fewer, ptr %left
  %type.at = getelementptr i8, ptr %object, i64 {TYPE}
  %is = load ptr, ptr %type.at
  %known = icmp eq ptr %is, %type
  br i1 %known, label %inside, label %else
inside:
  %array.at = getelementptr i8, ptr %object, i64 {slot}
  %array = load ptr, ptr %array.at
  %empty = icmp eq ptr %array, null
  br i1 %empty, label %same, label %shape
shape:
  %nd.at = getelementptr i8, ptr %array, i64 {ND}
  %nd = load i32, ptr %nd.at
  %rank = sext i32 %nd to i64
  %dimensions.at = getelementptr i8, ptr %array, i64 {DIMENSIONS}
  %dimensions = load ptr, ptr %dimensions.at
  br label %dimension
dimension:
  %d = phi i64 [ 0, %shape ], [ %d1, %size ]
  %h = phi i64 [ %hash, %shape ], [ %h.size, %size ]
  %another = icmp slt i64 %d, %rank
  br i1 %another, label %size, label %end
size:
  %size.at = getelementptr i64, ptr %dimensions, i64 %d
  %n = load i64, ptr %size.at
  %n1 = add i64 %n, 1
  %h.sum = add i64 %h, %n1
  %h.size = mul i64 %h.sum, {_FACTOR - (1 << 64)}
  %d1 = add i64 %d, 1
  br label %dimension
end:
  %rank1 = add i64 %rank, 1
  %h.rank = add i64 %h, %rank1
  %h.end = mul i64 %h.rank, {_FACTOR - (1 << 64)}
  ret i64 %h.end
else:
  %deepest = icmp eq i64 %depth, 0
  br i1 %deepest, label %same, label %kind
kind:
  %depth1 = sub i64 %depth, 1
  %flags.at = getelementptr i8, ptr %is, i64 {FLAGS}
  %flags = load i64, ptr %flags.at
  %row.bits = and i64 %flags, {TUPLES | LISTS}
  %no.row = icmp eq i64 %row.bits, 0
  br i1 %no.row, label %no.items, label %row
row:
  %tuple.bit = and i64 %flags, {TUPLES}
  %is.list = icmp eq i64 %tuple.bit, 0
  %count.at = getelementptr i8, ptr %object, i64 {SIZE}
  %count = load i64, ptr %count.at
  br i1 %is.list, label %list, label %tuple
list:
  %is.in.object = icmp ne i64 %depth, {_DEEPEST}
  %is.long = icmp sgt i64 %count, {LONGEST}
  %is.log = and i1 %is.in.object, %is.long
  br i1 %is.log, label %same, label %items.of.list
items.of.list:
  %list.at = getelementptr i8, ptr %object, i64 {LIST_ITEMS}
  %list.items = load ptr, ptr %list.at
  br label %item
tuple:
  %tuple.items = getelementptr i8, ptr %object, i64 {ITEMS}
  br label %item
item:
  %items = phi ptr [ %list.items, %items.of.list ], [ %tuple.items, %tuple ], [ %items, %next.item ]
  %i = phi i64 [ 0, %items.of.list ], [ 0, %tuple ], [ %i1, %next.item ]
  %h.item = phi i64 [ %hash, %items.of.list ], [ %hash, %tuple ], [ %h.next, %next.item ]
  %item.left = load i64, ptr %left
  %some = icmp ne i64 %item.left, 0
  %rest = icmp slt i64 %i, %count
  %more = and i1 %some, %rest
  br i1 %more, label %next.item, label %items.end
next.item:
  %item.at = getelementptr ptr, ptr %items, i64 %i
  %item.object = load ptr, ptr %item.at
  %h.next = call i64 @sizes_of(ptr %item.object, ptr %type, i64 %h.item, ptr %left, i64 %depth1, ptr %in.objects)
  %i1 = add i64 %i, 1
  br label %item
items.end:
  ret i64 %h.item
no.items:
  %dictionary.bit = and i64 %flags, {DICTIONARIES}
  %no.dictionary = icmp eq i64 %dictionary.bit, 0
  br i1 %no.dictionary, label %instance, label %dictionary
instance:
  %own.at = getelementptr i8, ptr %is, i64 {DICTIONARY}
  %own = load i64, ptr %own.at
  %has.own = icmp ne i64 %own, 0
  %called.at = getelementptr i8, ptr %is, i64 {CALLED}
  %called = load ptr, ptr %called.at
  %is.data = icmp eq ptr %called, null
  %looked.into = and i1 %has.own, %is.data
  br i1 %looked.into, label %attributes, label %same
attributes:
  %attributes.of = call ptr @PyObject_GenericGetDict(ptr %object, ptr null)
  %unreadable = icmp eq ptr %attributes.of, null
  br i1 %unreadable, label %clear, label %dictionary
clear:
  call void @PyErr_Clear()
  br label %same
dictionary:
  %pairs.of = phi ptr [ %object, %no.items ], [ %attributes.of, %attributes ]
  %held = phi ptr [ null, %no.items ], [ %attributes.of, %attributes ]
  %budget = phi ptr [ %left, %no.items ], [ %in.objects, %attributes ]
  store i64 0, ptr %position
  br label %pair
pair:
  %h.pair = phi i64 [ %hash, %dictionary ], [ %h.value, %next.pair ]
  %pair.left = load i64, ptr %budget
  %pairs.over = icmp eq i64 %pair.left, 0
  br i1 %pairs.over, label %pairs.end, label %ask
ask:
  %there = call i32 @PyDict_Next(ptr %pairs.of, ptr %position, ptr %key, ptr %value)
  %no.pair = icmp eq i32 %there, 0
  br i1 %no.pair, label %pairs.end, label %next.pair
next.pair:
  %value.object = load ptr, ptr %value
  %h.value = call i64 @sizes_of(ptr %value.object, ptr %type, i64 %h.pair, ptr %budget, i64 %depth1, ptr %in.objects)
  br label %pair
pairs.end:
  %none.held = icmp eq ptr %held, null
  br i1 %none.held, label %pairs.left, label %let.go
let.go:
  call void @decref(ptr %held)
  br label %pairs.left
pairs.left:
  ret i64 %h.pair
same:
  ret i64 %hash
}}
define internal ptr @{LOOK}(ptr %table, ptr %type, ptr %arguments, i64 %count) nounwind {{
entry:
  %left = alloca i64
  %in.objects = alloca i64
  store i64 {_MOST}, ptr %left
  store i64 {_MOST}, ptr %in.objects
  br label %argument
argument:
  %i = phi i64 [ 0, %entry ], [ %i1, %look ]
  %hash = phi i64 [ 0, %entry ], [ %hash.next, %look ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %find
look:
  %at = getelementptr ptr, ptr %arguments, i64 %i
  %object = load ptr, ptr %at
  %hash.next = call i64 @sizes_of(ptr %object, ptr %type, i64 %hash, ptr %left, i64 {_DEEPEST}, ptr %in.objects)
  %i1 = add i64 %i, 1
  br label %argument
find:
  %high = lshr i64 %hash, 32
  %wanted = xor i64 %hash, %high
  %words.at = getelementptr i8, ptr %table, i64 {ITEMS}
  %words = load ptr, ptr %words.at
  %mask.at = getelementptr i8, ptr %words, i64 {BYTES}
  %mask = load i64, ptr %mask.at
  %pairs = getelementptr i8, ptr %mask.at, i64 8
  br label %probe
probe:
  %p = phi i64 [ %wanted, %find ], [ %p1, %other ]
  %slot = and i64 %p, %mask
  %offset = mul i64 %slot, 16
  %pair = getelementptr i8, ptr %pairs, i64 %offset
  %index.at = getelementptr i8, ptr %pair, i64 8
  %index = load i64, ptr %index.at
  %absent = icmp slt i64 %index, 0
  br i1 %absent, label %nothing, label %compare
compare:
  %hashed = load i64, ptr %pair
  %same = icmp eq i64 %hashed, %wanted
  br i1 %same, label %found, label %other
other:
  %p1 = add i64 %p, 1
  br label %probe
found:
  %list.at = getelementptr i8, ptr %table, i64 {ITEMS + 8}
  %list = load ptr, ptr %list.at
  %items.at = getelementptr i8, ptr %list, i64 {LIST_ITEMS}
  %items = load ptr, ptr %items.at
  %item.at = getelementptr ptr, ptr %items, i64 %index
  %item = load ptr, ptr %item.at
  ret ptr %item
nothing:
  ret ptr null
}}
"""
