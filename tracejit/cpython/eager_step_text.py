"""LLVM text of what eager mode calls in the place of Python: steps and views (eager_steps.py says what they are).

Each is a function of CPython's fast calling convention, with a tuple as its `self` that begins with a bytes object of int64: addresses
of objects, which the text must not show, then rows of `ROW` words, one for each dtype.  A row: the dtype, the result's dtype, the loop,
what it is handed, what numbers beside an array are converted to, the sizes of an element of the result and of an operand, the least and
the greatest number of elements that are served.

Everything that is read of an owner is read after the last call that may run other code of the program (a garbage collection), or held.

Must not know: the class of the owners.
"""

from __future__ import annotations

from typing import Final

from tracejit.core.kernels import Owners
from tracejit.cpython import c_api
from tracejit.cpython.arrays import ALIGNED, BYTES, DATA, DESCR, DIMENSIONS, FLAGS, ND
from tracejit.cpython.c_api import ITEMS, NUMBER, SIZE, TYPE
from tracejit.cpython.reference_counts import counting

__all__ = ["BEHIND", "FLOAT64", "INT64", "NO_NUMBERS", "OBJECTS", "ROW", "SYMBOL", "step_text", "view_text"]

SYMBOL: Final = "tracejit_step"
FLOAT32, FLOAT64, INT64, NO_NUMBERS = range(4)
"""What numbers beside an array are converted to."""
OBJECTS: Final = 8
"""Words of objects that the text of a step speaks of, before those of `Owners.fresh`."""
BEHIND: Final = 7
"""The same of a view."""
ROW: Final = 9
_MUCH: Final = 1 << 14  # elements: see array_function.py
_ROW_MAJOR: Final = 0x0001  # NPY_ARRAY_C_CONTIGUOUS
_CALLED: Final = (
    "PyErr_Clear", "PyErr_Occurred", "PyEval_RestoreThread", "PyEval_SaveThread", "PyLong_AsLongLong", "PyType_IsSubtype",
    "_Py_Dealloc", "tracejit_new_array", "tracejit_new_object",
)  # fmt: skip


def _word(i: int, name: str) -> str:
    """%name is word i."""
    return f"%{name}.at = getelementptr ptr, ptr %words, i64 {i}\n%{name} = load ptr, ptr %{name}.at"


def _field(name: str, owner: str, offset: int, kind: str = "ptr") -> str:
    """%name is what %owner has at an offset."""
    return f"%{name}.at = getelementptr i8, ptr %{owner}, i64 {offset}\n%{name} = load {kind}, ptr %{name}.at"


def _of_owner(following: str) -> str:
    """To `no` unless %x is an instance of the class %owner, or of one that derives from it; to `following`, which begins, if it is."""
    return f"""\
{_field("kind", "x", TYPE)}
  %exact = icmp eq ptr %kind, %owner
  br i1 %exact, label %{following}, label %derived
derived:
  %is = call i32 @PyType_IsSubtype(ptr %kind, ptr %owner)
  %other = icmp eq i32 %is, 0
  br i1 %other, label %no, label %{following}
{following}:"""


def view_text(owners: Owners, slots: dict[str, int], version: int, fresh: list[int], begun: list[int]) -> str:
    """LLVM text of the function that eager_steps.make_view makes.  slots: offsets by name.  version: that of a storage.

    fresh, begun: offsets of the other slots of a new owner, and of those of a new storage, whose contents are words behind the objects
    that the text speaks of."""

    def put(value: str, owner: str, offset: int, label: str) -> str:
        return (
            f"call void @incref(ptr {value})\n%{label}.slot = getelementptr i8, ptr %{owner}, i64 {offset}\n"
            f"store ptr {value}, ptr %{label}.slot"
        )

    def filled(owner: str, offsets: list[int], start: int) -> str:
        return "\n".join(
            f"{_word(start + i, f'{owner}{i}')}\n{put(f'%{owner}{i}', owner, offset, f'{owner}{i}')}"
            for i, offset in enumerate(offsets)
        )

    argument = "\n".join(
        f"%argument{i} = getelementptr ptr, ptr %arguments, i64 {i}\n%{name} = load ptr, ptr %argument{i}"
        for i, name in enumerate(("x", "array"))
    )
    array, flag, root, storage = (slots[name] for name in (owners.array, owners.flag, owners.root, owners.storage[0]))
    called = ("PyObject_Vectorcall", "PyTuple_New", "PyType_IsSubtype", "_Py_Dealloc", "tracejit_new_object")
    return "\n".join(
        [
            *map(c_api.declaration, called),
            counting(),
            f"""
define ptr @{SYMBOL}(ptr %self, ptr %arguments, i64 %count) nounwind {{
entry:
  {_field("packed", "self", ITEMS)}
  %words = getelementptr i8, ptr %packed, i64 {BYTES}
  {_word(0, "owner")}
  {_word(1, "storages")}
  {_word(2, "none")}
  {_word(4, "nothing")}
  %alone = icmp eq i64 %count, 1
  br i1 %alone, label %lone, label %several
lone:
  %given = load ptr, ptr %arguments
  {_field("class", "given", TYPE)}
  {_word(5, "ndarray")}
  %usual = icmp eq ptr %class, %ndarray
  br i1 %usual, label %keep, label %convert
convert:
  {_word(6, "asarray")}
  %converted = call ptr @PyObject_Vectorcall(ptr %asarray, ptr %arguments, i64 1, ptr null)
  %refused = icmp eq ptr %converted, null
  br i1 %refused, label %raise, label %owned
keep:
  call void @incref(ptr %given)
  br label %owned
owned:
  %taken = phi ptr [ %given, %keep ], [ %converted, %convert ]
  %only = call ptr @tracejit_new_object(ptr %owner, ptr %nothing, ptr null)
  %no.only = icmp eq ptr %only, null
  br i1 %no.only, label %untake, label %begin.only
untake:
  call void @decref(ptr %taken)
  br label %raise
begin.only:
  %only.array = getelementptr i8, ptr %only, i64 {array}
  store ptr %taken, ptr %only.array
  {_word(3, "false")}
  {put("%false", "only", flag, "only.flag")}
  {put("%none", "only", root, "only.root")}
  {put("%none", "only", storage, "only.storage")}
  {filled("only", fresh, BEHIND)}
  ret ptr %only
several:
  {argument}
  {_of_owner("start")}
  %made = call ptr @tracejit_new_object(ptr %owner, ptr %nothing, ptr null)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %raise, label %look
look:
  {_field("known", "x", storage)}
  %lacks = icmp eq ptr %known, %none
  br i1 %lacks, label %begin, label %there
begin:
  %new = call ptr @tracejit_new_object(ptr %storages, ptr %nothing, ptr null)
  %unmade = icmp eq ptr %new, null
  br i1 %unmade, label %drop, label %begun
begun:
  {filled("new", begun, BEHIND + len(fresh))}
  {_field("now", "x", storage)}
  %still = icmp eq ptr %now, %none
  br i1 %still, label %take, label %leave
leave:
  call void @decref(ptr %new)
  br label %there
take:
  store ptr %new, ptr %now.at
  call void @decref(ptr %none)
  br label %there
there:
  {_field("stored", "x", storage)}
  {_field("flag", "x", flag)}
  {_field("root", "x", root)}
  {_field("version", "stored", version)}
  %is.root = icmp eq ptr %root, %none
  br i1 %is.root, label %fill, label %compare
compare:
  {_field("seen", "x", slots[owners.seen])}
  {_field("links", "x", slots[owners.chain])}
  %current = icmp eq ptr %seen, %version
  %linked = icmp ne ptr %links, null
  %usable = and i1 %current, %linked
  br i1 %usable, label %fill, label %stale
stale:
  call void @decref(ptr %made)
  br label %no
fill:
  %previous = phi ptr [ %nothing, %there ], [ %links, %compare ]
  {put("%flag", "made", flag, "flag")}
  {put("%stored", "made", storage, "storage")}
  {put("%array", "made", array, "array")}
  {filled("made", fresh, BEHIND)}
  %root.slot = getelementptr i8, ptr %made, i64 {root}
  %chained = icmp eq i64 %count, 3
  br i1 %chained, label %chain, label %plain
plain:
  call void @incref(ptr %none)
  store ptr %none, ptr %root.slot
  ret ptr %made
chain:
  {put("%version", "made", slots[owners.seen], "seen")}
  %base = select i1 %is.root, ptr %x, ptr %root
  call void @incref(ptr %base)
  store ptr %base, ptr %root.slot
  %step.at = getelementptr ptr, ptr %arguments, i64 2
  %step = load ptr, ptr %step.at
  call void @incref(ptr %previous)
  {_field("old.size", "previous", SIZE, "i64")}
  %size = add i64 %old.size, 1
  %row = call ptr @PyTuple_New(i64 %size)
  %no.row = icmp eq ptr %row, null
  br i1 %no.row, label %forget, label %copy
forget:
  call void @decref(ptr %previous)
  br label %drop
drop:
  call void @decref(ptr %made)
  br label %raise
copy:
  %from = getelementptr i8, ptr %previous, i64 {ITEMS}
  %to = getelementptr i8, ptr %row, i64 {ITEMS}
  br label %loop
loop:
  %i = phi i64 [ 0, %copy ], [ %next, %move ]
  %more = icmp slt i64 %i, %old.size
  br i1 %more, label %move, label %last
move:
  %item.at = getelementptr ptr, ptr %from, i64 %i
  %item = load ptr, ptr %item.at
  call void @incref(ptr %item)
  %item.to = getelementptr ptr, ptr %to, i64 %i
  store ptr %item, ptr %item.to
  %next = add i64 %i, 1
  br label %loop
last:
  call void @incref(ptr %step)
  %last.to = getelementptr ptr, ptr %to, i64 %old.size
  store ptr %step, ptr %last.to
  call void @decref(ptr %previous)
  %chain.slot = getelementptr i8, ptr %made, i64 {slots[owners.chain]}
  store ptr %row, ptr %chain.slot
  ret ptr %made
no:
  call void @incref(ptr %none)
  ret ptr %none
raise:
  ret ptr null
}}""",
        ]
    )


def _helpers(array: int, root: int, seen: int, storage: int, version: int, rows: int) -> str:
    """What steps call: `array_of` an operand, null where it has none that a step takes; `row_of` a dtype, likewise; whether a number was
    `converted` for a row; whether two arrays have the `same_shape`.  rows: the word with how many rows follow."""
    row_major = _ROW_MAJOR | ALIGNED
    return f"""
define internal ptr @array_of(ptr %x, ptr %words) nounwind {{
entry:
  {_word(0, "owner")}
  {_word(1, "ndarray")}
  {_word(2, "none")}
  {_of_owner("fits")}
  {_field("root", "x", root)}
  %plain = icmp eq ptr %root, %none
  br i1 %plain, label %own, label %view
view:
  %unset = icmp eq ptr %root, null
  br i1 %unset, label %no, label %rooted
rooted:
  {_field("storage", "root", storage)}
  %lost = icmp eq ptr %storage, %none
  br i1 %lost, label %no, label %stored
stored:
  {_field("version", "storage", version)}
  {_field("seen", "x", seen)}
  %current = icmp eq ptr %version, %seen
  br i1 %current, label %own, label %no
own:
  {_field("array", "x", array)}
  %empty = icmp eq ptr %array, null
  br i1 %empty, label %no, label %full
full:
  {_field("class", "array", TYPE)}
  %usual = icmp eq ptr %class, %ndarray
  {_field("flags", "array", FLAGS, "i32")}
  %kept = and i32 %flags, {row_major}
  %neat = icmp eq i32 %kept, {row_major}
  %good = and i1 %usual, %neat
  br i1 %good, label %yes, label %no
yes:
  ret ptr %array
no:
  ret ptr null
}}
define internal ptr @row_of(ptr %words, ptr %dtype) nounwind {{
entry:
  %count.at = getelementptr i64, ptr %words, i64 {rows}
  %count = load i64, ptr %count.at
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %more ]
  %inside = icmp slt i64 %i, %count
  br i1 %inside, label %look, label %no
look:
  %step = mul i64 %i, {ROW}
  %start = add i64 %step, {rows + 1}
  %row = getelementptr i64, ptr %words, i64 %start
  %known = load ptr, ptr %row
  %same = icmp eq ptr %known, %dtype
  br i1 %same, label %yes, label %more
more:
  %next = add i64 %i, 1
  br label %loop
yes:
  ret ptr %row
no:
  ret ptr null
}}
define internal i1 @converted(ptr %x, ptr %words, ptr %row, ptr %to) nounwind {{
entry:
  {_word(5, "float")}
  {_word(6, "int")}
  %kind.word = getelementptr i64, ptr %row, i64 4
  %kind = load i64, ptr %kind.word
  %refused = icmp eq i64 %kind, {NO_NUMBERS}
  br i1 %refused, label %no, label %taken
taken:
  {_field("type", "x", TYPE)}
  %is.float = icmp eq ptr %type, %float
  br i1 %is.float, label %real, label %whole
real:
  {_field("number", "x", NUMBER, "double")}
  %to.integers = icmp eq i64 %kind, {INT64}
  br i1 %to.integers, label %no, label %round
whole:
  %is.int = icmp eq ptr %type, %int
  br i1 %is.int, label %integer, label %no
integer:
  %n = call i64 @PyLong_AsLongLong(ptr %x)
  %doubtful = icmp eq i64 %n, -1
  br i1 %doubtful, label %ask, label %fine
ask:
  %error = call ptr @PyErr_Occurred()
  %none = icmp eq ptr %error, null
  br i1 %none, label %fine, label %large
large:
  call void @PyErr_Clear()
  br label %no
fine:
  %keep = icmp eq i64 %kind, {INT64}
  br i1 %keep, label %store.integer, label %widen
store.integer:
  store i64 %n, ptr %to
  ret i1 true
widen:
  %wide = sitofp i64 %n to double
  br label %round
round:
  %value = phi double [ %number, %real ], [ %wide, %widen ]
  %single = icmp eq i64 %kind, {FLOAT32}
  br i1 %single, label %store.single, label %store.double
store.single:
  %short = fptrunc double %value to float
  store float %short, ptr %to
  ret i1 true
store.double:
  store double %value, ptr %to
  ret i1 true
no:
  ret i1 false
}}
define internal i1 @same_shape(ptr %a, ptr %b) nounwind {{
entry:
  {_field("n", "a", ND, "i32")}
  {_field("m", "b", ND, "i32")}
  %alike = icmp eq i32 %n, %m
  br i1 %alike, label %begin, label %no
begin:
  {_field("p", "a", DIMENSIONS)}
  {_field("q", "b", DIMENSIONS)}
  br label %loop
loop:
  %i = phi i32 [ 0, %begin ], [ %next, %more ]
  %inside = icmp slt i32 %i, %n
  br i1 %inside, label %look, label %yes
look:
  %x.at = getelementptr i64, ptr %p, i32 %i
  %y.at = getelementptr i64, ptr %q, i32 %i
  %x = load i64, ptr %x.at
  %y = load i64, ptr %y.at
  %same = icmp eq i64 %x, %y
  br i1 %same, label %more, label %no
more:
  %next = add i32 %i, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}}"""


def _several(tensors: int, numbers: int) -> str:
    """Tensors of one dtype and shape, then numbers."""
    parts = ["br label %tensor0"]
    for i, source in enumerate(f"a{k}" for k in range(tensors)):
        parts += [
            f"tensor{i}:",
            f"%{source} = call ptr @array_of(ptr %x{i}, ptr %words)",
            f"%absent{i} = icmp eq ptr %{source}, null",
            f"br i1 %absent{i}, label %no, label %found{i}",
            f"found{i}:",
            _field(f"dtype{i}", source, DESCR),
            _field(f"data{i}", source, DATA),
            f"%place{i} = getelementptr ptr, ptr %places, i64 {i}",
            f"store ptr %data{i}, ptr %place{i}",
        ]
        if i == 0:
            parts += [
                "%row = call ptr @row_of(ptr %words, ptr %dtype0)",
                "%unknown = icmp eq ptr %row, null",
                "br i1 %unknown, label %no, label %known",
                "known:",
            ]
        else:
            parts += [
                f"%alike{i} = icmp eq ptr %dtype0, %dtype{i}",
                f"br i1 %alike{i}, label %shape{i}, label %no",
                f"shape{i}:",
                f"%equal{i} = call i1 @same_shape(ptr %a0, ptr %{source})",
                f"br i1 %equal{i}, label %next{i}, label %no",
                f"next{i}:",
            ]
        parts.append(f"br label %{f'tensor{i + 1}' if i + 1 < tensors else 'number0'}")
    for j in range(numbers):
        parts += [
            f"number{j}:",
            f"%buffer{j} = getelementptr i64, ptr %number, i64 {j}",
            f"%fine{j} = call i1 @converted(ptr %x{tensors + j}, ptr %words, ptr %row, ptr %buffer{j})",
            f"%place{tensors + j} = getelementptr ptr, ptr %places, i64 {tensors + j}",
            f"store ptr %buffer{j}, ptr %place{tensors + j}",
            f"br i1 %fine{j}, label %number{j + 1}, label %no",
        ]
    parts += [f"number{numbers}:", "br label %run", "run:", "%shaped = select i1 true, ptr %a0, ptr %a0"]
    parts += [
        f"%spread{i}.at = getelementptr i64, ptr %spread, i64 {i}\nstore i64 {int(i < tensors)}, ptr %spread{i}.at"
        for i in range(tensors + numbers)
    ]
    return "\n".join([*parts, "br label %ready"])


def _of_one_tensor() -> str:
    """One tensor."""
    return f"""
  %a0 = call ptr @array_of(ptr %x0, ptr %words)
  %absent = icmp eq ptr %a0, null
  br i1 %absent, label %no, label %found
found:
  {_field("dtype", "a0", DESCR)}
  %row = call ptr @row_of(ptr %words, ptr %dtype)
  %unknown = icmp eq ptr %row, null
  br i1 %unknown, label %no, label %run
run:
  {_field("data", "a0", DATA)}
  store ptr %data, ptr %places
  %shaped = select i1 true, ptr %a0, ptr %a0
  store i64 1, ptr %spread
  br label %ready
"""


def _pair(first: int) -> str:
    """The operands `first` and the next one: two tensors of one dtype, of one shape or one of them without dimensions; or one and a
    number."""
    return f"""
  %a0 = call ptr @array_of(ptr %x{first}, ptr %words)
  %a1 = call ptr @array_of(ptr %x{first + 1}, ptr %words)
  %p.absent = icmp eq ptr %a0, null
  %q.absent = icmp eq ptr %a1, null
  %first = select i1 %p.absent, ptr %a1, ptr %a0
  %absent = icmp eq ptr %first, null
  br i1 %absent, label %no, label %found
found:
  {_field("dtype", "first", DESCR)}
  %row = call ptr @row_of(ptr %words, ptr %dtype)
  %unknown = icmp eq ptr %row, null
  br i1 %unknown, label %no, label %kinds
kinds:
  br i1 %p.absent, label %number.first, label %second
second:
  br i1 %q.absent, label %number.last, label %both
number.first:
  %fine0 = call i1 @converted(ptr %x{first}, ptr %words, ptr %row, ptr %number)
  {_field("q.alone", "a1", DATA)}
  store ptr %number, ptr %places
  store ptr %q.alone, ptr %places1
  store i64 0, ptr %spread
  store i64 1, ptr %spread1
  br i1 %fine0, label %run, label %no
number.last:
  %fine1 = call i1 @converted(ptr %x{first + 1}, ptr %words, ptr %row, ptr %number)
  {_field("p.alone", "a0", DATA)}
  store ptr %p.alone, ptr %places
  store ptr %number, ptr %places1
  store i64 1, ptr %spread
  store i64 0, ptr %spread1
  br i1 %fine1, label %run, label %no
both:
  {_field("q.dtype", "a1", DESCR)}
  {_field("p.data", "a0", DATA)}
  {_field("q.data", "a1", DATA)}
  store ptr %p.data, ptr %places
  store ptr %q.data, ptr %places1
  %one.dtype = icmp eq ptr %dtype, %q.dtype
  br i1 %one.dtype, label %shapes, label %no
shapes:
  %equal = call i1 @same_shape(ptr %a0, ptr %a1)
  br i1 %equal, label %even, label %uneven
even:
  store i64 1, ptr %spread
  store i64 1, ptr %spread1
  br label %run
uneven:
  {_field("p.nd", "a0", ND, "i32")}
  {_field("q.nd", "a1", ND, "i32")}
  %q.single = icmp eq i32 %q.nd, 0
  br i1 %q.single, label %one.last, label %maybe
one.last:
  store i64 1, ptr %spread
  store i64 0, ptr %spread1
  br label %run
maybe:
  %p.single = icmp eq i32 %p.nd, 0
  br i1 %p.single, label %one.first, label %no
one.first:
  store i64 0, ptr %spread
  store i64 1, ptr %spread1
  br label %run
run:
  %shaped = phi ptr [ %a1, %number.first ], [ %a0, %number.last ], [ %a0, %even ], [ %a0, %one.last ], [ %a1, %one.first ]
"""


def _condition(bools: int) -> str:
    """Operand 0: a condition of the shape of the result.  bools: the word with its dtype."""
    return f"""
  %condition = call ptr @array_of(ptr %x0, ptr %words)
  %no.condition = icmp eq ptr %condition, null
  br i1 %no.condition, label %no, label %conditional
conditional:
  {_field("condition.dtype", "condition", DESCR)}
  {_word(bools, "bools")}
  %truth = icmp eq ptr %condition.dtype, %bools
  %laid.out = call i1 @same_shape(ptr %condition, ptr %shaped)
  %decides = and i1 %truth, %laid.out
  {_field("condition.data", "condition", DATA)}
  %place2 = getelementptr ptr, ptr %places, i64 2
  store ptr %condition.data, ptr %place2
  %spread2 = getelementptr i64, ptr %spread, i64 2
  store i64 0, ptr %spread2
  br i1 %decides, label %ready, label %no
"""


def step_text(
    tensors: int, numbers: int | None, offsets: dict[str, int], version: int, owners: Owners, fresh: list[tuple[int, int]]
) -> str:
    """LLVM text of a step, in CPython's fast calling convention.  numbers: of so many tensors of one shape, then so many numbers, which are
    handed on as float64; None: of one operand or two, of which one may be a number or have one element.  Of three the first is the
    condition by which `choose` takes elements of the others.

    offsets: of slots by name.  version: the slot of a storage that has its version.  fresh: offsets of other slots, and which of the fresh
    values is in each."""
    count = tensors + (numbers or 0)
    chooses = numbers is None and tensors == 3
    first = 1 if chooses else 0  # of the operands that are computed with
    array, root, seen, flag, storage = (
        offsets[n] for n in (owners.array, owners.root, owners.seen, owners.flag, owners.storage[0])
    )

    operands = "\n".join(
        f"%x{i}.at = getelementptr ptr, ptr %arguments, i64 {i}\n%x{i} = load ptr, ptr %x{i}.at" for i in range(count)
    )
    fields = "\n".join(
        [
            f"%fresh{i}.at = getelementptr ptr, ptr %words, i64 {OBJECTS + i}\n%fresh{i} = load ptr, ptr %fresh{i}.at\n"
            f"call void @incref(ptr %fresh{i})\n%slot{i} = getelementptr i8, ptr %made, i64 {offset}\nstore ptr %fresh{i}, ptr %slot{i}"
            for offset, i in fresh
        ]
    )
    sources = [f"a{i}" for i in range(tensors - first)]
    if numbers is not None:
        chosen = _several(tensors, numbers)
    elif count == 1:
        chosen = _of_one_tensor()
    else:
        chosen = _pair(first) + (_condition(OBJECTS + len(fresh) + 1) if chooses else "br label %ready")
    kept = "\n".join(f"call void @xincref(ptr %{name})" for name in sources)
    let_go = "\n".join(f"call void @xdecref(ptr %{name})" for name in sources)
    strides = "\n".join(
        f"%s{i}.from = getelementptr i64, ptr %spread, i64 {i}\n%s{i} = load i64, ptr %s{i}.from\n%s{i}.bytes = mul i64 %s{i}, %width\n"
        f"%s{i}.to = getelementptr i64, ptr %strides, i64 {i}\nstore i64 %s{i}.bytes, ptr %s{i}.to"
        for i in range(count)
    )
    flags = "\n".join(
        f"%flagged{i} = call i1 @flagged(ptr %x{first + i}, ptr %{name}, ptr %true)" for i, name in enumerate(sources)
    )
    function = "@choose" if chooses else "%function"
    either, joined = "%flagged0", []
    for i in range(1, len(sources)):
        joined.append(f"%either{i} = or i1 {either}, %flagged{i}")
        either = f"%either{i}"
    join = "\n".join(joined)
    body = f"""
define internal i1 @flagged(ptr %x, ptr %array, ptr %true) nounwind {{
  %number = icmp eq ptr %array, null
  br i1 %number, label %no, label %owner
owner:
  {_field("flag", "x", flag)}
  %is = icmp eq ptr %flag, %true
  ret i1 %is
no:
  ret i1 false
}}
define ptr @{SYMBOL}(ptr %self, ptr %arguments, i64 %count) nounwind {{
entry:
  %places = alloca [{count + 1} x ptr]
  %places1 = getelementptr ptr, ptr %places, i64 1
  %spread = alloca [{count + 1} x i64]
  %spread1 = getelementptr i64, ptr %spread, i64 1
  %strides = alloca [{count + 1} x i64]
  %size = alloca i64
  %number = alloca [{count + 1} x i64]
  {_field("packed", "self", ITEMS)}
  %words = getelementptr i8, ptr %packed, i64 {BYTES}
  {_word(2, "none")}
  {_word(3, "true")}
  {_word(4, "false")}
  %fits = icmp eq i64 %count, {count}
  br i1 %fits, label %begin, label %no
begin:
  {operands}
  {chosen}
ready:
  {_field("nd", "shaped", ND, "i32")}
  {_field("dims", "shaped", DIMENSIONS)}
  %dtype.at.row = getelementptr ptr, ptr %row, i64 1
  %result.dtype = load ptr, ptr %dtype.at.row
  %function.at = getelementptr ptr, ptr %row, i64 2
  %function = load ptr, ptr %function.at
  %parameters.at = getelementptr ptr, ptr %row, i64 3
  %parameters = load ptr, ptr %parameters.at
  %given.at = getelementptr i64, ptr %row, i64 6
  %width = load i64, ptr %given.at
  {strides}
  %width.at = getelementptr i64, ptr %row, i64 5
  %result.width = load i64, ptr %width.at
  %last.stride = getelementptr i64, ptr %strides, i64 {count}
  store i64 %result.width, ptr %last.stride
  br label %measure
measure:
  %i = phi i32 [ 0, %ready ], [ %next, %factor ]
  %total = phi i64 [ 1, %ready ], [ %product, %factor ]
  %inside = icmp slt i32 %i, %nd
  br i1 %inside, label %factor, label %measured
factor:
  %dim.at = getelementptr i64, ptr %dims, i32 %i
  %dim = load i64, ptr %dim.at
  %product = mul i64 %total, %dim
  %next = add i32 %i, 1
  br label %measure
measured:
  %least.at = getelementptr i64, ptr %row, i64 7
  %least = load i64, ptr %least.at
  %few = icmp slt i64 %total, %least
  %most.at = getelementptr i64, ptr %row, i64 8
  %most = load i64, ptr %most.at
  %many = icmp sgt i64 %total, %most
  %outside = or i1 %few, %many
  br i1 %outside, label %no, label %enough
enough:
  call void @incref(ptr %result.dtype)
  {_word(1, "ndarray")}
  %new = call ptr @tracejit_new_array(ptr %ndarray, ptr %result.dtype, i32 %nd, ptr %dims, ptr null, ptr null, i32 0, ptr null)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %raise, label %made.array
made.array:
  {_field("new.data", "new", DATA)}
  %last.place = getelementptr ptr, ptr %places, i64 {count}
  store ptr %new.data, ptr %last.place
  store i64 %total, ptr %size
  %much = icmp sgt i64 %total, {_MUCH}
  br i1 %much, label %alone, label %quick
alone:
  {kept}
  %thread = call ptr @PyEval_SaveThread()
  call void {function}(ptr %places, ptr %size, ptr %strides, ptr %parameters)
  call void @PyEval_RestoreThread(ptr %thread)
  {let_go}
  br label %done
quick:
  call void {function}(ptr %places, ptr %size, ptr %strides, ptr %parameters)
  br label %done
done:
  %error = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %wrap, label %undo
undo:
  call void @PyErr_Clear()
  call void @decref(ptr %new)
  br label %no
wrap:
  {flags}
  {join}
  %mark = select i1 {either}, ptr %true, ptr %false
  {_word(0, "owner")}
  {_word(7, "nothing")}
  %made = call ptr @tracejit_new_object(ptr %owner, ptr %nothing, ptr null)
  %unmade = icmp eq ptr %made, null
  br i1 %unmade, label %drop, label %fill
drop:
  call void @decref(ptr %new)
  br label %raise
fill:
  %array.slot = getelementptr i8, ptr %made, i64 {array}
  store ptr %new, ptr %array.slot
  call void @incref(ptr %mark)
  %flag.slot = getelementptr i8, ptr %made, i64 {flag}
  store ptr %mark, ptr %flag.slot
  {fields}
  ret ptr %made
no:
  call void @incref(ptr %none)
  ret ptr %none
raise:
  ret ptr null
}}
"""
    helpers = _helpers(array, root, seen, storage, version, OBJECTS + len(fresh))
    return "\n".join([*map(c_api.declaration, _CALLED), counting(), helpers, *([_choose_text()] if chooses else []), body])


def _choose_text() -> str:
    """LLVM text of `choose`, a loop as those of ufuncs are, of x, y, a condition and the result; it is handed the size of an element."""
    lines = [
        "define internal void @choose(ptr %places, ptr %sizes, ptr %strides, ptr %width) nounwind {",
        "entry:",
        "%n = load i64, ptr %sizes",
        "%size = ptrtoint ptr %width to i64",
        *[f"%place{i} = getelementptr ptr, ptr %places, i64 {i}\n%p{i} = load ptr, ptr %place{i}" for i in range(4)],
        *[f"%stride{i} = getelementptr i64, ptr %strides, i64 {i}\n%s{i} = load i64, ptr %stride{i}" for i in range(2)],
        "%wide = icmp eq i64 %size, 8",
        "br i1 %wide, label %begin8, label %narrower",
        "narrower:",
        "%half = icmp eq i64 %size, 4",
        "br i1 %half, label %begin4, label %begin1",
    ]
    for size in (8, 4, 1):
        kind = f"i{8 * size}"
        lines += [
            f"begin{size}:",
            f"br label %loop{size}",
            f"loop{size}:",
            f"%i{size} = phi i64 [ 0, %begin{size} ], [ %next{size}, %one{size} ]",
            f"%more{size} = icmp slt i64 %i{size}, %n",
            f"br i1 %more{size}, label %one{size}, label %end",
            f"one{size}:",
            f"%c{size}.at = getelementptr i8, ptr %p2, i64 %i{size}",
            f"%c{size} = load i8, ptr %c{size}.at",
            f"%holds{size} = icmp ne i8 %c{size}, 0",
            f"%x{size}.offset = mul i64 %i{size}, %s0",
            f"%y{size}.offset = mul i64 %i{size}, %s1",
            f"%x{size}.at = getelementptr i8, ptr %p0, i64 %x{size}.offset",
            f"%y{size}.at = getelementptr i8, ptr %p1, i64 %y{size}.offset",
            f"%x{size} = load {kind}, ptr %x{size}.at",
            f"%y{size} = load {kind}, ptr %y{size}.at",
            f"%v{size} = select i1 %holds{size}, {kind} %x{size}, {kind} %y{size}",
            f"%out{size}.at = getelementptr {kind}, ptr %p3, i64 %i{size}",
            f"store {kind} %v{size}, ptr %out{size}.at",
            f"%next{size} = add i64 %i{size}, 1",
            f"br label %loop{size}",
        ]
    return "\n".join([*lines, "end:", "ret void", "}"])
