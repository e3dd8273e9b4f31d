"""Solving and factorising a matrix by LAPACK: functions that programs call, one for each routine and dtype.

A function is given matrices of any strides, copies them to scratch memory in LAPACK's order, column by column, calls LAPACK (E. Anderson et
al., "LAPACK Users' Guide", 1999), and copies what that gives to dense memory, row by row.  It returns LAPACK's `info`: 0, or that there is
no result.  Sizes are at least 1.

What eager mode has NumPy compute, in float64 whatever the dtype, NumPy's own LAPACK computes here, and SciPy's what eager mode has SciPy
compute: with the same arguments, so bits are equal.  Where NumPy's cannot be reached, or its names do not tell the width of its integers,
it is SciPy's.  NumPy's computes on the thread that calls it (products.py), as in eager mode.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import scipy

from tracejit.core.dtypes import DType
from tracejit.cpython import c_api
from tracejit.llvm import blas, products
from tracejit.llvm.operations import Code, lane_type, libm_symbol
from tracejit.math import libm
from tracejit.native import machine_code, object_cache

__all__ = ["symbol", "symbols"]

_LAPACK_64: Final = (
    "scipy_{}_64_",
    "{}_64_",
)  # Fortran names with 64-bit integers, as NumPy's wheels and distributions spell them
_SMALL: Final = 32
"""Rows up to which OpenBLAS computes on one thread (from 64 on it has several for factors of Cholesky, from 200 on for others)."""


def symbol(routine: str, dtype: DType) -> str:
    """The symbol of a function."""
    return f"tracejit_{routine}_{dtype.name}"


class _Library(NamedTuple):
    """integer: the type of its integers.  governed: whether `products.hold_symbols()` have its threads wait."""

    address: Callable[[str], int]
    integer: str
    governed: bool


def _of_scipy() -> _Library:
    capsules: Any = scipy.linalg.cython_lapack.__pyx_capi__
    return _Library(lambda name: c_api.capsule_address(capsules[name]), "i32", False)


@cache
def _of_numpy() -> _Library:
    path = getattr(sys.modules.get("numpy._core._multiarray_umath"), "__file__", None)
    library = None if path is None else ctypes.CDLL(path)  # already loaded; its dependencies are searched too
    found = [pattern for pattern in _LAPACK_64 if library is not None and hasattr(library, pattern.format("dgesv"))]
    if not found:
        return _of_scipy()

    def address(name: str) -> int:
        return int(ctypes.cast(getattr(library, found[0].format(name)), ctypes.c_void_p).value or 0)

    return _Library(address, "i64", blas.blas().governed)


class _Function:
    """The text of one function.  memory: the type of the numbers that it is given; number: of those that LAPACK computes with."""

    def __init__(self, library: _Library, memory: str, number: str) -> None:
        self.library, self.memory, self.number = library, memory, number
        self.code = Code()
        self.imports: dict[str, int] = {}

    def text(self, name: str, parameters: str) -> str:
        lines = [f"define i64 @{name}({parameters}) {{", "entry:", *self.code.lines, "ret i64 0", "}", ""]
        return "\n".join([*self.code.declarations.values(), *lines])

    def integer(self, value: str) -> str:
        """The address of an integer."""
        code, kind = self.code, self.library.integer
        if kind == "i32" and value.startswith("%"):
            value = code.op(f"trunc i64 {value} to i32")
        at = code.op(f"alloca {kind}")
        code.lines.append(f"store {kind} {value}, ptr {at}")
        return at

    def character(self, letter: str) -> str:
        """The address of a letter."""
        name = f"@letter_{letter}"
        self.code.declarations[name] = f"{name} = private constant i8 {ord(letter)}"
        return name

    def scratch(self, *counts: str) -> list[str]:
        """Parts of the scratch memory, of so many numbers each, behind the pivots of n rows."""
        found, size = [self.code.op("getelementptr i64, ptr %scratch, i64 %n")], self.number
        for count in counts:
            found.append(self.code.op(f"getelementptr {size}, ptr {found[-1]}, i64 {count}"))
        return found

    def copy_in(self, name: str, to: str, rows: str, columns: str) -> None:
        """Copy a parameter to scratch memory."""
        self._copy(
            "in", self.memory, self.number, rows, columns, (f"%{name}", f"%{name}.down", f"%{name}.across"), (to, "1", rows)
        )

    def copy_out(self, source: str, rows: str, columns: str) -> None:
        """Copy scratch memory to the output."""
        self._copy("out", self.number, self.memory, rows, columns, (source, "1", rows), ("%out", columns, "1"))

    def _copy(self, name: str, source: str, target: str, rows: str, columns: str, *matrices: tuple[str, str, str]) -> None:
        self.code.declarations[name] = _COPY.format(
            name=name, source=source, target=target, convert=_CONVERSIONS.get((source, target), "bitcast")
        )
        given = ", ".join(f"ptr {first}, i64 {down}, i64 {across}" for first, down, across in matrices)
        self.code.lines.append(f"call void @copy_{name}(i64 {rows}, i64 {columns}, {given})")

    def lapack(self, name: str, *arguments: str) -> str:
        """Call a function of LAPACK, whose last argument is `info`; an i64."""
        code, kind, name = self.code, self.library.integer, f"{'s' if self.number == 'float' else 'd'}{name}"
        self.imports[f"tracejit_lapack_{name}"] = self.library.address(name)
        info = self.integer("0")
        large = code.op(f"icmp sgt i64 %n, {_SMALL if self.library.governed else 1 << 62}")
        self._where(large, "hold", products.ENTER)
        code.call(f"tracejit_lapack_{name}", "void", *[("ptr", x) for x in (*arguments, info)])
        self._where(large, "release", products.LEAVE)
        found = code.op(f"load {kind}, ptr {info}")
        return found if kind == "i64" else code.op(f"sext {kind} {found} to i64")

    def _where(self, condition: str, label: str, called: str) -> None:
        if self.library.governed:
            code, after = self.code, self.code.label(f"after_{label}")
            code.lines.append(f"br i1 {condition}, label %{label}, label %{after}")
            code.begin(label)
            code.call(called, "void")
            code.lines.append(f"br label %{after}")
            code.begin(after)

    def return_unless_done(self, info: str) -> None:
        """Return `info` where it is not 0."""
        code = self.code
        code.lines.append(f"br i1 {code.op(f'icmp eq i64 {info}, 0')}, label %done, label %failed")
        code.begin("failed")
        code.lines.append(f"ret i64 {info}")
        code.begin("done")


_CONVERSIONS: Final = {("float", "double"): "fpext", ("double", "float"): "fptrunc"}
_COPY: Final = """
define internal void @copy_{name}(
  i64 %rows, i64 %columns, ptr %from, i64 %from.down, i64 %from.across, ptr %to, i64 %to.down, i64 %to.across
) {{
entry:
  br label %column
column:
  %j = phi i64 [ 0, %entry ], [ %j.next, %over ]
  %from.first = mul i64 %j, %from.across
  %to.first = mul i64 %j, %to.across
  br label %row
row:
  %i = phi i64 [ 0, %column ], [ %i.next, %row ]
  %from.i = phi i64 [ %from.first, %column ], [ %from.next, %row ]
  %to.i = phi i64 [ %to.first, %column ], [ %to.next, %row ]
  %from.at = getelementptr {source}, ptr %from, i64 %from.i
  %x = load {source}, ptr %from.at
  %y = {convert} {source} %x to {target}
  %to.at = getelementptr {target}, ptr %to, i64 %to.i
  store {target} %y, ptr %to.at
  %i.next = add i64 %i, 1
  %from.next = add i64 %from.i, %from.down
  %to.next = add i64 %to.i, %to.down
  %more = icmp slt i64 %i.next, %rows
  br i1 %more, label %row, label %over
over:
  %j.next = add i64 %j, 1
  %again = icmp slt i64 %j.next, %columns
  br i1 %again, label %column, label %done
done:
  ret void
}}
"""


def _solve(f: _Function) -> None:
    matrix, columns = f.scratch(f.code.op("mul i64 %n, %n"))
    f.copy_in("a", matrix, "%n", "%n")
    f.copy_in("b", columns, "%n", "%m")
    n, m = f.integer("%n"), f.integer("%m")
    f.return_unless_done(f.lapack("gesv", n, m, matrix, n, "%scratch", columns, n))
    f.copy_out(columns, "%n", "%m")


@dataclass(frozen=True, slots=True)
class _Routine:
    """write: appends what a function does.  flags, operands, outputs: its parameters.  by_numpy: whether eager mode calls NumPy."""

    write: Callable[[_Function], None]
    operands: tuple[str, ...] = ("a",)
    outputs: tuple[str, ...] = ("out",)
    flags: tuple[str, ...] = ()
    by_numpy: bool = True


_ROUTINES: Final = {"gesv": _Routine(_solve, ("a", "b"))}


@cache
def _linked(routine: str, dtype: DType) -> int:
    """The address of a function, whose code is never unloaded.  Its parameters: flags (i1), the rows and columns of its last operand (i64),
    its operands, each with the elements from row to row and from column to column, its outputs, and scratch memory."""
    r, memory = _ROUTINES[routine], lane_type(dtype)
    f = _Function(_of_numpy(), memory, "double") if r.by_numpy else _Function(_of_scipy(), memory, memory)
    r.write(f)
    parameters = [*[f"i1 %{flag}" for flag in r.flags], "i64 %n", "i64 %m"]
    parameters += [f"ptr %{x}, i64 %{x}.down, i64 %{x}.across" for x in r.operands]
    parameters += [f"ptr %{x}" for x in (*r.outputs, "scratch")]
    text = f.text(symbol(routine, dtype), ", ".join(parameters))
    imports = f.imports | (products.hold_symbols() if f.library.governed else {})
    imports |= {libm_symbol(name, kind): libm.address(name, kind, arity) for name, kind, arity in f.code.libm}
    key = hashlib.sha256(f"{machine_code.identity()}\n{text}".encode()).hexdigest()
    (address, owner), _ = object_cache.load_or_make(
        key,
        lambda object_code: machine_code.link(object_code, imports, symbol(routine, dtype)),
        lambda: machine_code.assemble(text, computes=True),
    )
    c_api.never_free(owner)
    return address


def symbols(called: Iterable[tuple[str, DType]]) -> dict[str, int]:
    """The names under which programs call functions, and their addresses."""
    return {symbol(routine, dtype): _linked(routine, dtype) for routine, dtype in called}
