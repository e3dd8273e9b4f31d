"""Solving and factorising a matrix by LAPACK: functions that programs call, one for each routine and dtype.

A function is given matrices of any strides, copies them to scratch memory in LAPACK's order, column by column, calls LAPACK (E. Anderson et
al., "LAPACK Users' Guide", 1999), and copies what that gives to dense memory, row by row.  It returns LAPACK's `info`: 0, or that there is
no result.  Sizes are at least 1.

It is NumPy's own LAPACK (lapack_library.py), called with the arguments that NumPy gives it, in float64 whatever the dtype; eager mode has
solve_triangular from there, too.  So bits are equal.  OpenBLAS computes on the thread that calls it (products.py), as in eager mode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from tracejit.core.dtypes import DType, float64
from tracejit.core.uninterrupted import uninterrupted_result
from tracejit.cpython import c_api
from tracejit.cpython.array_function import entry_text
from tracejit.cpython.builtin_functions import FASTCALL, builtin_function
from tracejit.cpython.linking import link
from tracejit.llvm import lapack_library, products
from tracejit.llvm.operations import Code, lane_type, libm_symbol
from tracejit.lowering.lapack import BLOCK
from tracejit.math import libm
from tracejit.native import machine_code, object_cache

__all__ = ["symbol", "symbols", "systems"]

_SMALL: Final = 32
"""Rows up to which OpenBLAS computes on one thread (from 64 on it has several for factors of Cholesky, from 200 on for others)."""


def symbol(routine: str, dtype: DType) -> str:
    """The symbol of a function."""
    return f"tracejit_{routine}_{dtype.name}"


class _Function:
    """The text of one function.  memory: the type of the numbers that it is given; number: of those that LAPACK computes with."""

    def __init__(self, memory: str, number: str, small: int) -> None:
        self.library = lapack_library.library()
        self.kind, self.memory, self.number, self.small = self.library.integer, memory, number, small
        self.code = Code()
        self.imports: dict[str, int] = {}

    def text(self, name: str, parameters: str) -> str:
        lines = [f"define i64 @{name}({parameters}) {{", "entry:", *self.code.lines, "ret i64 0", "}", ""]
        return "\n".join([*self.code.declarations.values(), _MEMSET, *lines])

    def integer(self, value: str) -> str:
        """The address of an integer."""
        code, kind = self.code, self.kind
        if kind == "i32" and value.startswith("%"):
            value = code.op(f"trunc i64 {value} to i32")
        at = code.op(f"alloca {kind}")
        code.lines.append(f"store {kind} {value}, ptr {at}")
        return at

    def times(self, x: str, y: str) -> str:
        return self.code.op(f"mul i64 {x}, {y}")

    def plus(self, x: str, y: str) -> str:
        return self.code.op(f"add i64 {x}, {y}")

    def wide(self, integer: str) -> str:
        """An instruction that gives an integer of LAPACK's as an i64."""
        return f"add i64 {integer}, 0" if self.kind == "i64" else f"sext {self.kind} {integer} to i64"

    def character(self, letter: str) -> str:
        """The address of a letter."""
        name = f"@letter_{letter}"
        self.code.declarations[name] = f"{name} = private constant i8 {ord(letter)}"
        return name

    def choice(self, flag: str, yes: str, no: str) -> str:
        """The address of a letter that a flag decides."""
        return self.code.op(f"select i1 %{flag}, ptr {self.character(yes)}, ptr {self.character(no)}")

    def store(self, value: str, output: str) -> None:
        """Store a number."""
        if self.memory != self.number:
            value = self.code.op(f"fptrunc {self.number} {value} to {self.memory}")
        self.code.lines.append(f"store {self.memory} {value}, ptr %{output}")

    def scratch(self, *counts: str) -> list[str]:
        """Parts of the scratch memory, one after the other, of so many numbers of 64 bits each but the last one."""
        found = ["%scratch"]
        for count in counts:
            found.append(self.code.op(f"getelementptr i64, ptr {found[-1]}, i64 {count}"))
        return found

    def copy_in(self, name: str, to: str, rows: str, columns: str) -> None:
        """Copy a parameter to scratch memory."""
        self._copy(
            "in", self.memory, self.number, rows, columns, (f"%{name}", f"%{name}.down", f"%{name}.across"), (to, "1", rows)
        )

    def copy_out(self, source: str, rows: str, columns: str, output: str = "out", apart: str = "") -> None:
        """Copy scratch memory, with columns that are so far apart, to an output."""
        self._copy("out", self.number, self.memory, rows, columns, (source, "1", apart or rows), (f"%{output}", columns, "1"))

    def _copy(self, name: str, source: str, target: str, rows: str, columns: str, *matrices: tuple[str, str, str]) -> None:
        convert = _CONVERSIONS.get((source, target), "bitcast")
        self.helper(_COPY.format(name=name, source=source, target=target, convert=convert))
        given = ", ".join(f"ptr {first}, i64 {down}, i64 {across}" for first, down, across in matrices)
        self.code.lines.append(f"call void @copy_{name}(i64 {rows}, i64 {columns}, {given})")

    def zero_triangle(self, at: str, rows: str, apart: str, number: str) -> None:
        """Make the first i numbers of each row i of a matrix 0: what is below its diagonal."""
        self.helper(_ZERO_TRIANGLE)
        self.code.lines.append(
            f"call void @zero_triangle(ptr {at}, i64 {rows}, i64 {apart}, i64 {4 if number == 'float' else 8})"
        )

    def helper(self, text: str) -> None:
        """A function that this one calls."""
        self.code.declarations[text] = text

    def lapack(self, name: str, *arguments: str) -> str:
        """Call a function of LAPACK, whose last argument is `info`; an i64."""
        code, symbol, info = self.code, self._imported(name), self.integer("0")
        governed = self.library.governed
        if governed:
            most = code.intrinsic("umax", "i64", 1, "%n", "%m")
            large = code.op(f"icmp ugt i64 {most}, {self.small}")
            self._where(large, products.ENTER)
        code.call(symbol, "void", *[("ptr", x) for x in (*arguments, info)])
        if governed:
            self._where(large, products.LEAVE)
        return code.op(self.wide(code.op(f"load {self.kind}, ptr {info}")))

    def asked(self, name: str, *arguments: str, work: str, rest: Sequence[str] = ()) -> str:
        """The address of the length of the workspace that a function of LAPACK asks for, at most `work`.  arguments: those before it;
        rest: those after it, but `info`."""
        code = self.code
        answer = code.op(f"alloca {self.number}")
        given = (*arguments, answer, self.integer("-1"), *rest, self.integer("0"))
        code.call(self._imported(name), "void", *[("ptr", x) for x in given])
        length = code.op(f"fptosi {self.number} {code.op(f'load {self.number}, ptr {answer}')} to i64")
        return self.integer(code.intrinsic("umin", "i64", 1, length, work))

    def _imported(self, name: str) -> str:
        name = f"{'s' if self.number == 'float' else 'd'}{name}"
        self.imports[f"tracejit_lapack_{name}"] = self.library.address(name)
        return f"tracejit_lapack_{name}"

    def _where(self, condition: str, called: str) -> None:
        code = self.code
        then, after = code.label("large"), code.label("go")
        code.lines.append(f"br i1 {condition}, label %{then}, label %{after}")
        code.begin(then)
        code.call(called, "void")
        code.lines.append(f"br label %{after}")
        code.begin(after)

    def return_unless_done(self, info: str) -> None:
        """Return `info` where it is not 0."""
        code = self.code
        failed, done = code.label("failed"), code.label("done")
        code.lines.append(f"br i1 {code.op(f'icmp eq i64 {info}, 0')}, label %{done}, label %{failed}")
        code.begin(failed)
        code.lines.append(f"ret i64 {info}")
        code.begin(done)


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


_MEMSET: Final = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
_ZERO_TRIANGLE: Final = """
define internal void @zero_triangle(ptr %matrix, i64 %rows, i64 %apart, i64 %size) {
entry:
  %step = mul i64 %apart, %size
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row ]
  %at = phi ptr [ %matrix, %entry ], [ %at.next, %row ]
  %bytes = mul i64 %i, %size
  call void @llvm.memset.p0.i64(ptr %at, i8 0, i64 %bytes, i1 false)
  %at.next = getelementptr i8, ptr %at, i64 %step
  %i.next = add i64 %i, 1
  %again = icmp slt i64 %i.next, %rows
  br i1 %again, label %row, label %done
done:
  ret void
}
"""
_IDENTITY: Final = """
define internal void @identity(i64 %n, ptr %matrix) {
entry:
  %elements = mul i64 %n, %n
  %bytes = mul i64 %elements, 8
  call void @llvm.memset.p0.i64(ptr %matrix, i8 0, i64 %bytes, i1 false)
  %step = add i64 %n, 1
  br label %column
column:
  %i = phi i64 [ 0, %entry ], [ %i.next, %column ]
  %at = getelementptr double, ptr %matrix, i64 %i
  store double 1.0, ptr %at
  %i.next = add i64 %i, %step
  %again = icmp slt i64 %i.next, %elements
  br i1 %again, label %column, label %done
done:
  ret void
}
"""
_FINITE: Final = """
define internal i64 @finite(i64 %elements, ptr %matrix) {
entry:
  br label %element
element:
  %i = phi i64 [ 0, %entry ], [ %i.next, %element ]
  %total = phi double [ 0.0, %entry ], [ %total.next, %element ]
  %at = getelementptr double, ptr %matrix, i64 %i
  %x = load double, ptr %at
  %product = fmul double %x, 0.0
  %total.next = fadd double %total, %product
  %i.next = add i64 %i, 1
  %again = icmp slt i64 %i.next, %elements
  br i1 %again, label %element, label %done
done:
  %bad = fcmp uno double %total.next, %total.next
  %info = zext i1 %bad to i64
  ret i64 %info
}
"""
_DETERMINANT: Final = """
define internal {{ double, double }} @determinant(i64 %n, ptr %matrix, ptr %pivots) {{
entry:
  %step = add i64 %n, 1
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row ]
  %total = phi double [ 0.0, %entry ], [ %total.next, %row ]
  %negative = phi i1 [ false, %entry ], [ %negative.next, %row ]
  %element = mul i64 %i, %step
  %at = getelementptr double, ptr %matrix, i64 %element
  %x = load double, ptr %at
  %below = fcmp olt double %x, 0.0
  %minus = fneg double %x
  %size = select i1 %below, double %minus, double %x
  %log = call double @{log}(double %size)
  %total.next = fadd double %total, %log
  %i.next = add i64 %i, 1
  %pivot.at = getelementptr {integer}, ptr %pivots, i64 %i
  %pivot.read = load {integer}, ptr %pivot.at
  %pivot = {wide}
  %moved = icmp ne i64 %pivot, %i.next
  %turned = xor i1 %below, %moved
  %negative.next = xor i1 %negative, %turned
  %again = icmp slt i64 %i.next, %n
  br i1 %again, label %row, label %done
done:
  %sign = select i1 %negative.next, double -1.0, double 1.0
  %one = insertvalue {{ double, double }} poison, double %sign, 0
  %both = insertvalue {{ double, double }} %one, double %total.next, 1
  ret {{ double, double }} %both
}}
"""


def _solve(f: _Function) -> None:
    pivots, matrix, columns = f.scratch("%n", f.times("%n", "%n"))
    f.copy_in("a", matrix, "%n", "%n")
    f.copy_in("b", columns, "%n", "%m")
    n, m = f.integer("%n"), f.integer("%m")
    f.return_unless_done(f.lapack("gesv", n, m, matrix, n, pivots, columns, n))
    f.copy_out(columns, "%n", "%m")


def _substitute(f: _Function) -> None:
    matrix, columns = f.scratch(f.times("%n", "%n"))
    f.copy_in("a", matrix, "%n", "%n")
    f.copy_in("b", columns, "%n", "%m")
    n, m = f.integer("%n"), f.integer("%m")
    which, diagonal, straight = f.choice("upper", "U", "L"), f.choice("unitriangular", "U", "N"), f.character("N")
    f.return_unless_done(f.lapack("trtrs", which, straight, diagonal, n, m, matrix, n, columns, n))
    f.copy_out(columns, "%n", "%m")


def _cholesky(f: _Function) -> None:
    (matrix,), n = f.scratch(), f.integer("%n")
    f.copy_in("a", matrix, "%n", "%n")
    f.return_unless_done(f.lapack("potrf", f.character("L"), n, matrix, n))
    f.zero_triangle(matrix, "%n", "%n", f.number)
    f.copy_out(matrix, "%n", "%n")


def _invert(f: _Function) -> None:
    """As NumPy: the system with the identity is solved."""
    pivots, matrix, columns = f.scratch("%n", f.times("%n", "%n"))
    f.copy_in("a", matrix, "%n", "%n")
    f.helper(_IDENTITY)
    f.code.lines.append(f"call void @identity(i64 %n, ptr {columns})")
    n = f.integer("%n")
    f.return_unless_done(f.lapack("gesv", n, n, matrix, n, pivots, columns, n))
    f.copy_out(columns, "%n", "%n")


def _logarithm(f: _Function) -> None:
    sign, logarithm = _sign_and_logarithm(f)
    f.store(sign, "sign")
    f.store(logarithm, "logarithm")


def _determinant(f: _Function) -> None:
    sign, logarithm = _sign_and_logarithm(f)
    f.store(f.code.op(f"fmul double {sign}, {f.code.libm_call('exp', float64, 1, logarithm)}"), "out")


def _sign_and_logarithm(f: _Function) -> list[str]:
    """As NumPy: the logarithms of the diagonal of U are added up."""
    code, n = f.code, f.integer("%n")
    pivots, matrix = f.scratch("%n")
    f.copy_in("a", matrix, "%n", "%n")
    info = f.lapack("getrf", n, n, matrix, n, pivots)
    code.libm_call("log", float64, 1, "0x3FF0000000000000")  # which declares it
    f.helper(_DETERMINANT.format(integer=f.kind, wide=f.wide("%pivot.read"), log=libm_symbol("log", float64)))
    found = code.op(f"call {{ double, double }} @determinant(i64 %n, ptr {matrix}, ptr {pivots})")
    fine = code.op(f"icmp eq i64 {info}, 0")
    parts = [code.op(f"extractvalue {{ double, double }} {found}, {k}") for k in (0, 1)]
    return [
        code.op(f"select i1 {fine}, double {x}, double {none}")
        for x, none in zip(parts, ("0.0", "0xFFF0000000000000"), strict=True)
    ]


def _orthogonalise(f: _Function) -> None:
    code = f.code
    count = code.intrinsic("umin", "i64", 1, "%n", "%m")
    tau, matrix, work = f.scratch(count, f.times("%n", "%m"))
    available = f.times(f.plus("%n", "%m"), str(BLOCK))
    f.copy_in("a", matrix, "%n", "%m")
    n, m, k = map(f.integer, ("%n", "%m", count))
    length = f.asked("geqrf", n, m, matrix, n, tau, work=available)
    f.return_unless_done(f.lapack("geqrf", n, m, matrix, n, tau, work, length))
    f.copy_out(matrix, count, "%m", "r", "%n")
    f.zero_triangle("%r", count, "%m", f.memory)
    length = f.asked("orgqr", n, k, k, matrix, n, tau, work=available)
    f.return_unless_done(f.lapack("orgqr", n, k, k, matrix, n, tau, work, length))
    f.copy_out(matrix, "%n", count, "q")


def _eigenvectors(f: _Function) -> None:
    n, elements, integers = f.integer("%n"), f.times("%n", "%n"), f.plus(f.times("%n", "5"), "3")
    available = f.plus(f.plus(f.times(elements, "2"), f.times("%n", str(BLOCK))), "1")
    integer_work, values, matrix, work = f.scratch(integers, "%n", elements)
    f.copy_in("a", matrix, "%n", "%n")
    given = f.character("V"), f.character("L"), n, matrix, n, values
    length = f.asked("syevd", *given, work=available, rest=(integer_work, f.integer("-1")))
    f.return_unless_done(f.lapack("syevd", *given, work, length, integer_work, f.integer(integers)))
    f.copy_out(values, "%n", "1", "values")
    f.copy_out(matrix, "%n", "%n", "vectors")


def _singular_values(f: _Function) -> None:
    code, elements = f.code, f.times("%n", "%m")
    count = code.intrinsic("umin", "i64", 1, "%n", "%m")
    available = f.plus(f.times(f.times(count, count), "5"), f.times(f.plus("%n", "%m"), str(BLOCK)))
    parts = f.times(count, "8"), count, f.times("%n", count), f.times("%m", count), elements
    integers, values, u, vh, matrix, work = f.scratch(*parts)
    f.copy_in("a", matrix, "%n", "%m")
    f.helper(_FINITE)
    f.return_unless_done(code.op(f"call i64 @finite(i64 {elements}, ptr {matrix})"))
    n, m, k = map(f.integer, ("%n", "%m", count))
    given = f.character("S"), n, m, matrix, n, values, u, n, vh, k
    length = f.asked("gesdd", *given, work=available, rest=(integers,))
    f.return_unless_done(f.lapack("gesdd", *given, work, length, integers))
    f.copy_out(u, "%n", count, "u")
    f.copy_out(values, count, "1", "values")
    f.copy_out(vh, count, "%m", "vh")


@dataclass(frozen=True, slots=True)
class _Routine:
    """write: appends what a function does.  flags, operands, outputs: its parameters.  is_wide: whether it
    computes in float64 whatever the dtype.  small: rows and columns up to which OpenBLAS computes on one thread."""

    write: Callable[[_Function], None]
    operands: tuple[str, ...] = ("a",)
    outputs: tuple[str, ...] = ("out",)
    flags: tuple[str, ...] = ()
    is_wide: bool = True
    small: int = _SMALL


_ROUTINES: Final = {
    "gesv": _Routine(_solve, ("a", "b")),
    "trtrs": _Routine(_substitute, ("a", "b"), flags=("unitriangular", "upper"), is_wide=False, small=0),
    "potrf": _Routine(_cholesky),
    "inverse": _Routine(_invert),
    "determinant": _Routine(_determinant),
    "logarithm": _Routine(_logarithm, outputs=("sign", "logarithm")),
    "geqrf": _Routine(_orthogonalise, outputs=("q", "r")),
    "syevd": _Routine(_eigenvectors, outputs=("values", "vectors")),
    "gesdd": _Routine(_singular_values, outputs=("u", "values", "vh")),
}


@cache
def _linked(routine: str, dtype: DType) -> int:
    """The address of a function, whose code is never unloaded.  Its parameters: flags (i1), the rows and columns of its last operand (i64),
    its operands, each with the elements from row to row and from column to column, its outputs, and scratch memory."""
    r, memory = _ROUTINES[routine], lane_type(dtype)
    f = _Function(memory, "double" if r.is_wide else memory, r.small)
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


# -- eager mode
_EAGER: Final = "tracejit_substitute"
_SYSTEMS: Final = """
declare i64 @{symbol}(i1, i1, i64, i64, ptr, i64, i64, ptr, i64, i64, ptr, ptr)
define internal i64 @systems(
  ptr %a, ptr %b, ptr %out, ptr %scratch, i64 %count, i64 %n, i64 %m, i64 %apart, i64 %which
) {{
entry:
  %upper = trunc i64 %which to i1
  %second = lshr i64 %which, 1
  %unit = trunc i64 %second to i1
  %elements = mul i64 %n, %m
  br label %system
system:
  %i = phi i64 [ 0, %entry ], [ %i.next, %following ]
  %a.offset = mul i64 %i, %apart
  %a.at = getelementptr {number}, ptr %a, i64 %a.offset
  %offset = mul i64 %i, %elements
  %b.at = getelementptr {number}, ptr %b, i64 %offset
  %out.at = getelementptr {number}, ptr %out, i64 %offset
  %info = call i64 @{symbol}(
    i1 %unit, i1 %upper, i64 %n, i64 %m, ptr %a.at, i64 %n, i64 1, ptr %b.at, i64 %m, i64 1, ptr %out.at, ptr %scratch
  )
  %solved = icmp eq i64 %info, 0
  br i1 %solved, label %following, label %done
following:
  %i.next = add i64 %i, 1
  %again = icmp slt i64 %i.next, %count
  br i1 %again, label %system, label %done
done:
  ret i64 %info
}}
"""


def systems(dtype: DType) -> Callable[..., int]:
    """`systems(a, b, out, scratch, count, n, m, apart, which)`, a built-in function: so many triangular systems, in contiguous arrays.

    `apart` numbers are between two matrices of `a`; `which` is 1 for upper triangles, and 2 more for those with ones on the diagonal.  The
    position, from 1, of a 0 on a diagonal is returned, or 0."""
    name = symbol("trtrs", dtype)
    text = _SYSTEMS.format(symbol=name, number=lane_type(dtype)) + entry_text(_EAGER, "systems", 4, 5, 3)
    imports = uninterrupted_result(lambda: symbols([("trtrs", dtype)]))
    address, owner = link(text, _EAGER, computes=True, imports=imports)
    call: Callable[..., int] = builtin_function("solve_triangular", address, FASTCALL, owner)
    return call
