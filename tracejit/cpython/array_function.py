"""A function of machine code over pointers and integers as a built-in function of NumPy's arrays and Python's integers.

It reads the address of an array's contents from the array object, and looks at nothing else of it: dtype, shape and layout are up to the
caller.  While there is much to do it gives the GIL away."""

from __future__ import annotations

from typing import Final

from tracejit.cpython import arrays, c_api

__all__ = ["entry_text"]

_MUCH: Final = 1 << 14  # iterations: with fewer, other threads wait for less time than a switch takes
_CALLED: Final = (
    "PyErr_BadArgument", "PyErr_Occurred", "PyEval_RestoreThread", "PyEval_SaveThread", "PyLong_AsLongLong", "PyLong_FromLongLong",
)  # fmt: skip


def entry_text(symbol: str, function: str, pointers: int, integers: int, loops: int) -> str:
    """LLVM text of `symbol`, in CPython's fast calling convention: it calls `i64 @function(ptr, ..., i64, ...)` of as many pointers and
    integers, of which the first `loops` multiply to the iterations that it does, and returns what that returns.  Called without
    arguments it returns the address of the same function of elements as a loop of NumPy's: see `_loop_text`."""
    count = pointers + integers
    lines = [
        "%asks = icmp eq i64 %count, 0",
        "br i1 %asks, label %tell, label %look",
        "tell:",
        "%address = call ptr @PyLong_FromLongLong(i64 ptrtoint (ptr @loop to i64))",
        "ret ptr %address",
        "look:",
        f"%few = icmp ne i64 %count, {count}",
        "br i1 %few, label %bad, label %convert",
        "convert:",
    ]
    for i in range(count):
        lines += [f"%offset{i} = getelementptr ptr, ptr %arguments, i64 {i}", f"%object{i} = load ptr, ptr %offset{i}"]
    for i in range(pointers):
        lines += [f"%field{i} = getelementptr i8, ptr %object{i}, i64 {arrays.DATA}", f"%a{i} = load ptr, ptr %field{i}"]
    doubt = "false"
    for i in range(pointers, count):
        lines += [f"%a{i} = call i64 @PyLong_AsLongLong(ptr %object{i})", f"%failed{i} = icmp eq i64 %a{i}, -1"]
        lines.append(f"%doubt{i} = or i1 {doubt}, %failed{i}")
        doubt = f"%doubt{i}"
    work = f"%a{pointers}"
    products = []
    for i in range(pointers + 1, pointers + loops):
        products.append(f"%work{i} = mul i64 {work}, %a{i}")
        work = f"%work{i}"
    operands = [f"{'ptr' if i < pointers else 'i64'} %a{i}" for i in range(count)]
    call = f"call i64 @{function}({', '.join(operands)})"
    lines += [
        f"br i1 {doubt}, label %ask, label %run",
        "ask:",
        "%error = call ptr @PyErr_Occurred()",
        "%fine = icmp eq ptr %error, null",
        "br i1 %fine, label %run, label %raise",
        "run:",
        *products,
        f"%much = icmp sgt i64 {work}, {_MUCH}",
        "br i1 %much, label %alone, label %quick",
        "alone:",
        "%thread = call ptr @PyEval_SaveThread()",
        f"%status = {call}",
        "call void @PyEval_RestoreThread(ptr %thread)",
        "br label %done",
        "quick:",
        f"%status2 = {call}",
        "br label %done",
        "done:",
        "%code = phi i64 [ %status, %alone ], [ %status2, %quick ]",
        "%result = call ptr @PyLong_FromLongLong(i64 %code)",
        "ret ptr %result",
        "bad:",
        "%refused = call i32 @PyErr_BadArgument()",
        "br label %raise",
        "raise:",
        "ret ptr null",
    ]
    return "\n".join(
        [
            *map(c_api.declaration, _CALLED),
            _loop_text(function, pointers, integers),
            f"define ptr @{symbol}(ptr %self, ptr %arguments, i64 %count) nounwind {{",
            "entry:",
            *lines,
            "}",
        ]
    )


def _loop_text(function: str, pointers: int, integers: int) -> str:
    """LLVM text of `loop`, which is called as NumPy calls a loop of a ufunc, with arrays that are contiguous: the operands, then the
    result, which is the first pointer of the function; each integer is how many elements there are."""
    lines = []
    for i in range(pointers):
        place = pointers - 1 if i == 0 else i - 1
        lines += [f"%at{i} = getelementptr ptr, ptr %places, i64 {place}", f"%a{i} = load ptr, ptr %at{i}"]
    operands = ", ".join([*(f"ptr %a{i}" for i in range(pointers)), *["i64 %n"] * integers])
    return "\n".join(
        [
            "define internal void @loop(ptr %places, ptr %sizes, ptr %strides, ptr %parameters) nounwind {",
            "entry:",
            "%n = load i64, ptr %sizes",
            *lines,
            f"%status = call i64 @{function}({operands})",
            "ret void",
            "}",
        ]
    )
