"""Products of matrices under the library's own threads: what programs and eager mode call instead of a BLAS that has threads.

OpenBLAS' threads spin while they wait, for each other and for work: beside another busy process a product takes ten times as long as it
does alone.  So OpenBLAS computes on the thread that calls it (its number of threads is 1 while a product of ours runs, and what it was
before from then on), and large products are cut into tiles of the result, which the pool's threads (thread_pool.py) take as they come
free.  What is below LARGE runs on the calling thread.

Tiles follow from the sizes alone, and have all terms of their elements: so results do not depend on the number of threads.

Where vectors have 512 bits, products of matrices are computed by kernels of our own (packed_products.py): OpenBLAS
has kernels of half that width for some such processors, and packs more than it needs to for products of few rows or
terms.  Their elements have the same bits in a tile and in the whole, so one thread computes the whole.  Where vectors
have 256 bits and instructions multiply and add, thin products are (thin_products.py): level with OpenBLAS for a few rows of
128 numbers, up to 4.5 times as fast for 512 and more.  Its kernels for other products are as fast as ours (Haswell, Sandy
Bridge and Nehalem forced: within 15 percent).  OpenBLAS keeps products of up to products.SMALL multiplications,
which eager mode leaves to NumPy.

`symbols()` are the functions that programs
link: those of the BLAS (`blas.symbols`) by the name of `blas.routine(letter, name)`, with the same arguments.  `core/products.py` is told
how eager mode gets to them.  A BLAS without a number of threads that can be set is called as it is.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from tracejit.core import dtypes, products
from tracejit.core.dtypes import DType
from tracejit.core.uninterrupted import uninterrupted_result
from tracejit.cpython import arrays, c_api
from tracejit.cpython.builtin_functions import FASTCALL, builtin_function
from tracejit.llvm import blas, packed_products, thin_products, thread_pool, vector_text
from tracejit.llvm.host import host_fuses, host_target
from tracejit.llvm.operations import constant, lane_type
from tracejit.llvm.thread_pool_code import FIELDS, PARALLEL, POOL
from tracejit.native import machine_code, object_cache

__all__ = ["ENTER", "LEAVE", "hold_symbols", "packs", "panel_symbols", "symbols"]

LARGE: Final = 1 << 24
"""Multiplications of a product of matrices that is cut: some 150 us of one thread."""
_TILE: Final = 1 << 23
"""Multiplications of a tile at least.  Below 7.4 million OpenBLAS has other kernels, which round in other places."""
_EDGE: Final = 256
"""Rows and columns of a tile, about.  The operands of each tile are packed, which costs a tenth of this size's time."""
_HUGE: Final = 1 << 29
"""Multiplications from which tiles of our kernels have twice as many rows and columns: there are still some for each of two threads."""
LARGE_MATRIX: Final = 1 << 20
"""Elements of a matrix whose product with a vector is cut, on one thread, too: there tiles have other bits than the whole."""
_STRIP: Final = 1 << 18
"""Elements of a part of it at least."""
_SIDE: Final = 32
"""Rows and columns that tiles are multiples of: what any kernel holds in registers."""
_TILES: Final = 128
"""Tiles at most: OpenBLAS has memory for twice as many threads as it was built for, 64 in NumPy's."""

_STATE: Final = "tracejit_blas_state"
ENTER, LEAVE = "tracejit_blas_enter", "tracejit_blas_leave"
_TABLE: Final = "tracejit_products"  # of their addresses
_GET, _SET = "tracejit_blas_get_num_threads", "tracejit_blas_set_num_threads"
_ALLOCATE, _FREE = "tracejit_allocate", "tracejit_free"
# A lock of the other two; how many products run; OpenBLAS' number of threads before them.
_words: Final = (ctypes.c_int64 * 3)()
_making = threading.Lock()

# OpenBLAS' number of threads is the process's: the first product to begin sets it, the last one to end gives it back.
_THREADS_OF_BLAS: Final = f"""
@{_STATE} = external global [3 x i64]
declare i32 @{_GET}()
declare void @{_SET}(i32)
declare i32 @sched_yield()

define internal void @lock() {{
entry:
  br label %look
look:
  %swap = cmpxchg ptr @{_STATE}, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %mine, label %done, label %wait
wait:
  %ignored = call i32 @sched_yield()
  br label %look
done:
  ret void
}}

define void @{ENTER}() {{
entry:
  call void @lock()
  %running = load i64, ptr getelementptr (i64, ptr @{_STATE}, i64 1)
  %others = icmp ne i64 %running, 0
  br i1 %others, label %count, label %first
first:
  %before = call i32 @{_GET}()
  %wide = sext i32 %before to i64
  store i64 %wide, ptr getelementptr (i64, ptr @{_STATE}, i64 2)
  %one = icmp eq i32 %before, 1
  br i1 %one, label %count, label %set
set:
  call void @{_SET}(i32 1)
  br label %count
count: ; last, so that a fork in between finds the number before
  %more = add i64 %running, 1
  store i64 %more, ptr getelementptr (i64, ptr @{_STATE}, i64 1)
  store atomic i64 0, ptr @{_STATE} release, align 8
  ret void
}}

define void @{LEAVE}() {{
entry:
  call void @lock()
  %running = load i64, ptr getelementptr (i64, ptr @{_STATE}, i64 1)
  %less = sub i64 %running, 1
  %fewer = call i64 @llvm.smax.i64(i64 %less, i64 0) ; in the child of a fork none runs
  store i64 %fewer, ptr getelementptr (i64, ptr @{_STATE}, i64 1)
  %before = load i64, ptr getelementptr (i64, ptr @{_STATE}, i64 2)
  %last = icmp eq i64 %fewer, 0
  %several = icmp ne i64 %before, 1
  %restore = and i1 %last, %several
  br i1 %restore, label %look, label %done
look:
  %now = call i32 @{_GET}()
  %ours = icmp eq i32 %now, 1
  br i1 %ours, label %set, label %done
set:
  %number = trunc i64 %before to i32
  call void @{_SET}(i32 %number)
  br label %done
done:
  store atomic i64 0, ptr @{_STATE} release, align 8
  ret void
}}
"""


@dataclass(frozen=True, slots=True)
class _Routine:
    """Text of one function: its parameters, (type, name) each, and the call of the BLAS for what is in these names."""

    letter: str
    name: str
    parameters: tuple[tuple[str, str], ...]
    result: str = "void"

    @property
    def of_blas(self) -> str:
        return f"tracejit_blas_{self.letter}{self.name}"

    def call(self, symbol: str = "", **instead: str) -> str:
        given = ", ".join(f"{kind} {instead.get(name, f'%{name}')}" for kind, name in self.parameters)
        return f"call {self.result} @{symbol or self.of_blas}({given})"

    def head(self, symbol: str = "") -> str:
        """symbol: of a function of this module alone, instead of that which programs link."""
        given = ", ".join(f"{kind} %{name}" for kind, name in self.parameters)
        return f"define {'internal ' * bool(symbol)}{self.result} @{symbol or blas.routine(self.letter, self.name)}({given})"

    def declaration(self) -> str:
        return f"declare {self.result} @{self.of_blas}({', '.join(kind for kind, _ in self.parameters)})"

    def stores(self, *more: str) -> str:
        """All parameters, and more integers, to words of %block."""
        named = [*self.parameters, *(("i64", name) for name in more)]
        return "\n".join(
            f"  %at.{name} = getelementptr i64, ptr %block, i64 {i}\n  store {kind} %{name}, ptr %at.{name}"
            for i, (kind, name) in enumerate(named)
        )

    def loads(self, *more: str) -> str:
        """The same back from there."""
        named = [*self.parameters, *(("i64", name) for name in more)]
        return "\n".join(
            f"  %at.{name} = getelementptr i64, ptr %block, i64 {i}\n  %{name} = load {kind}, ptr %at.{name}"
            for i, (kind, name) in enumerate(named)
        )


def _gemm(number: str) -> tuple[tuple[str, str], ...]:
    sizes = [("i64", name) for name in ("m", "n", "k")]
    return (
        ("i32", "order"), ("i32", "turned.a"), ("i32", "turned.b"), *sizes, (number, "alpha"), ("ptr", "a"), ("i64", "lda"),
        ("ptr", "b"), ("i64", "ldb"), (number, "beta"), ("ptr", "c"), ("i64", "ldc"),
    )  # fmt: skip


def _gemv(number: str) -> tuple[tuple[str, str], ...]:
    return (
        ("i32", "order"), ("i32", "turned"), ("i64", "rows"), ("i64", "columns"), (number, "alpha"), ("ptr", "a"), ("i64", "lda"),
        ("ptr", "x"), ("i64", "x.step"), (number, "beta"), ("ptr", "y"), ("i64", "y.step"),
    )  # fmt: skip


def _dot() -> tuple[tuple[str, str], ...]:
    return ("i64", "n"), ("ptr", "x"), ("i64", "x.step"), ("ptr", "y"), ("i64", "y.step")


def _rounded(name: str, value: str, parts: str) -> str:
    """The length of each of so many parts of a value but for the last one, a multiple of _SIDE."""
    return f"""  %{name}.beyond = add i64 %{value}, %{parts}
  %{name}.last = sub i64 %{name}.beyond, 1
  %{name}.even = udiv i64 %{name}.last, %{parts}
  %{name}.more = add i64 %{name}.even, {_SIDE - 1}
  %{name} = and i64 %{name}.more, {-_SIDE}"""


def _parts(name: str, value: str, length: str) -> str:
    return f"""  %{name}.beyond = add i64 %{value}, %{length}
  %{name}.last = sub i64 %{name}.beyond, 1
  %{name} = udiv i64 %{name}.last, %{length}"""


@dataclass(frozen=True, slots=True)
class Kernels:
    """What there is instead of the BLAS: kernels for vectors of so many bytes; thin_only: where it computes others as soon."""

    width: int
    tile: vector_text.Tile
    thin_only: bool


def _alone(r: _Routine, dtype: DType, kernels: Kernels) -> tuple[str, str, dict[str, str]]:
    """(name, text, declarations) of what computes a product by our kernels on this thread, by BLAS where there is no memory."""
    helper, text, declarations = packed_products.helper(dtype, kernels.width // dtype.itemsize, kernels.tile, kernels.thin_only)
    name = f"alone_{r.letter}gemm"
    declarations |= {_ALLOCATE: f"declare ptr @{_ALLOCATE}(i64)", _FREE: f"declare void @{_FREE}(ptr)"}
    own, thin = (r.call(symbol).removesuffix(")") + ", ptr %scratch)" for symbol in (helper, thin_products.thin(helper)))
    return (
        name,
        f"""{text}
define internal void @{name}({", ".join(f"{kind} %{name}" for kind, name in r.parameters)}, i64 %thin) {{
  %size = call i64 @{packed_products.scratch(helper)}(i64 %m, i64 %n, i64 %k)
  %scratch = call ptr @{_ALLOCATE}(i64 %size)
  %none = icmp eq ptr %scratch, null
  br i1 %none, label %blas, label %found
found:
  %few = icmp ne i64 %thin, 0
  br i1 %few, label %rows, label %tiles
rows:
  {thin}
  br label %done
tiles:
  {"" if kernels.thin_only else own}
  br label %done
done:
  call void @{_FREE}(ptr %scratch)
  ret void
blas:
  call void @{ENTER}()
  {r.call()}
  call void @{LEAVE}()
  ret void
}}
""",
        declarations,
    )


def _gemm_text(dtype: DType, kernels: Kernels | None) -> tuple[str, dict[str, str]]:
    """The text of gemm, and what it declares."""
    number, letter = lane_type(dtype), "s" if dtype is dtypes.float32 else "d"
    r = _Routine(letter, "gemm", _gemm(number))
    if kernels is None or not kernels.thin_only:
        text, declarations = _cut_text(r, dtype, kernels)
        return f"{r.declaration()}\n{text}", declarations
    thin, theirs = f"thin_{letter}gemm", f"theirs_{letter}gemm"
    ours, declarations = _cut_text(r, dtype, kernels, thin)
    others, _ = _cut_text(r, dtype, None, theirs)
    text = f"""{r.declaration()}
{ours}
{others}
{r.head()} {{
  %thin = call i1 @{thin_products.is_thin(f"packed_{letter}gemm")}(i32 %turned.a, i32 %turned.b, i64 %m, i64 %n)
  br i1 %thin, label %ours, label %theirs
ours:
  {r.call(thin)}
  ret void
theirs:
  {r.call(theirs)}
  ret void
}}
"""
    return text, declarations


def _cut_text(r: _Routine, dtype: DType, kernels: Kernels | None, symbol: str = "") -> tuple[str, dict[str, str]]:
    """The text of gemm by our kernels or by the BLAS, in tiles where it is large, and what it declares.  symbol: of another function."""
    number, letter, packs = lane_type(dtype), r.letter, kernels is not None
    words = len(r.parameters) + 4
    tile = f"tile_{symbol or f'{letter}gemm'}"
    alone, before, declarations = r.of_blas, "", dict[str, str]()
    enter, leave = f"call void @{ENTER}()", f"call void @{LEAVE}()"
    extra: tuple[str, ...] = ()

    def whole(**instead: str) -> str:
        """The call of what computes a product, or a tile, on this thread."""
        return r.call(alone, **instead).removesuffix(")") + "".join(f", i64 %{name}" for name in extra) + ")"

    first = f"""  {enter}
  br label %ours"""
    if kernels is not None:
        alone, before, declarations = _alone(r, dtype, kernels)
        extra = ("thin",)
        is_thin = thin_products.is_thin(f"packed_{letter}gemm")
        first = f"""  %small = icmp ule i64 %total, {products.SMALL}
  %is.thin = call i1 @{is_thin}(i32 %turned.a, i32 %turned.b, i64 %m, i64 %n)
  %thin = zext i1 %is.thin to i64
  br i1 %small, label %blas, label %ours
blas:
  {enter}
  {r.call()}
  {leave}
  ret void"""
        leave = ""
    text = f"""
{before}
define internal i64 @{tile}(ptr %block, i64 %tile) {{
{r.loads("tile.rows", "tile.columns", "across", *extra)}
  %i = udiv i64 %tile, %across
  %j = urem i64 %tile, %across
  %row = mul i64 %i, %tile.rows
  %column = mul i64 %j, %tile.columns
  %rows.left = sub i64 %m, %row
  %columns.left = sub i64 %n, %column
  %rows = call i64 @llvm.smin.i64(i64 %rows.left, i64 %tile.rows)
  %columns = call i64 @llvm.smin.i64(i64 %columns.left, i64 %tile.columns)
  %a.straight = icmp eq i32 %turned.a, {blas.NO_TRANSPOSE}
  %a.step = select i1 %a.straight, i64 %lda, i64 1
  %a.offset = mul i64 %row, %a.step
  %a.here = getelementptr {number}, ptr %a, i64 %a.offset
  %b.straight = icmp eq i32 %turned.b, {blas.NO_TRANSPOSE}
  %b.step = select i1 %b.straight, i64 1, i64 %ldb
  %b.offset = mul i64 %column, %b.step
  %b.here = getelementptr {number}, ptr %b, i64 %b.offset
  %c.row = mul i64 %row, %ldc
  %c.offset = add i64 %c.row, %column
  %c.here = getelementptr {number}, ptr %c, i64 %c.offset
  {whole(m="%rows", n="%columns", a="%a.here", b="%b.here", c="%c.here")}
  ret i64 0
}}

{r.head(symbol)} {{
entry:
  %elements = mul i64 %n, %k
  %total = mul i64 %elements, %m
{first}
ours:
  %large = icmp uge i64 %total, {LARGE}
  %threads = load atomic i64, ptr getelementptr (i8, ptr @{POOL}, i64 {FIELDS["threads"]}) monotonic, align 8
  %several = icmp ugt i64 %threads, {1 if packs else 0}
  %may = and i1 %large, %several
  br i1 %may, label %count, label %alone
count:
  %useful = udiv i64 %total, {_TILE}
  %most = call i64 @llvm.smin.i64(i64 %useful, i64 {_TILES})
  %huge = icmp uge i64 %total, {_HUGE if packs else -1}
  %edge = select i1 %huge, i64 {2 * _EDGE}, i64 {_EDGE}
  %edge.half = lshr i64 %edge, 1
  %m.up = add i64 %m, %edge.half
  %m.edges = udiv i64 %m.up, %edge
  %down.first = call i64 @llvm.smax.i64(i64 %m.edges, i64 1)
  %n.up = add i64 %n, %edge.half
  %n.edges = udiv i64 %n.up, %edge
  %across.first = call i64 @llvm.smax.i64(i64 %n.edges, i64 1)
  br label %look
look:
  %down.wanted = phi i64 [ %down.first, %count ], [ %down.next, %halve ]
  %across.wanted = phi i64 [ %across.first, %count ], [ %across.next, %halve ]
  %wanted = mul i64 %down.wanted, %across.wanted
  %many = icmp ugt i64 %wanted, %most
  br i1 %many, label %halve, label %cut
halve:
  %taller = icmp uge i64 %down.wanted, %across.wanted
  %down.up = add i64 %down.wanted, 1
  %down.half = lshr i64 %down.up, 1
  %across.up = add i64 %across.wanted, 1
  %across.half = lshr i64 %across.up, 1
  %down.next = select i1 %taller, i64 %down.half, i64 %down.wanted
  %across.next = select i1 %taller, i64 %across.wanted, i64 %across.half
  br label %look
cut:
{_rounded("tile.rows", "m", "down.wanted")}
{_rounded("tile.columns", "n", "across.wanted")}
{_parts("down", "m", "tile.rows")}
{_parts("across", "n", "tile.columns")}
  %tiles = mul i64 %down, %across
  %more = icmp ugt i64 %tiles, 1
  br i1 %more, label %share, label %alone
share:
  %block = alloca [{words} x i64]
{r.stores("tile.rows", "tile.columns", "across", *extra)}
  %status = call i64 @{PARALLEL}(ptr @{tile}, ptr %block, i64 %tiles)
  br label %end
alone:
  {whole()}
  br label %end
end:
  {leave}
  ret void
}}
"""
    return text, declarations


def _gemv_text(dtype: DType) -> str:
    number, letter = lane_type(dtype), "s" if dtype is dtypes.float32 else "d"
    r = _Routine(letter, "gemv", _gemv(number))
    words = len(r.parameters) + 1
    return f"""
{r.declaration()}
define internal i64 @strip_{letter}gemv(ptr %block, i64 %strip) {{
{r.loads("length")}
  %first = mul i64 %strip, %length
  %straight = icmp eq i32 %turned, {blas.NO_TRANSPOSE}
  %extent = select i1 %straight, i64 %rows, i64 %columns
  %left = sub i64 %extent, %first
  %part = call i64 @llvm.smin.i64(i64 %left, i64 %length)
  %rows.here = select i1 %straight, i64 %part, i64 %rows
  %columns.here = select i1 %straight, i64 %columns, i64 %part
  %a.step = select i1 %straight, i64 %lda, i64 1
  %a.offset = mul i64 %first, %a.step
  %a.here = getelementptr {number}, ptr %a, i64 %a.offset
  %y.offset = mul i64 %first, %y.step
  %y.here = getelementptr {number}, ptr %y, i64 %y.offset
  {r.call(rows="%rows.here", columns="%columns.here", a="%a.here", y="%y.here")}
  ret i64 0
}}

{r.head()} {{
entry:
  call void @{ENTER}()
  %total = mul i64 %rows, %columns
  %large = icmp uge i64 %total, {LARGE_MATRIX}
  br i1 %large, label %cut, label %alone
cut:
  %straight = icmp eq i32 %turned, {blas.NO_TRANSPOSE}
  %extent = select i1 %straight, i64 %rows, i64 %columns
  %useful = udiv i64 %total, {_STRIP}
  %most = call i64 @llvm.smin.i64(i64 %useful, i64 {_TILES})
{_rounded("length", "extent", "most")}
{_parts("strips", "extent", "length")}
  %some = icmp ugt i64 %strips, 1
  br i1 %some, label %share, label %alone
share:
  %block = alloca [{words} x i64]
{r.stores("length")}
  %status = call i64 @{PARALLEL}(ptr @strip_{letter}gemv, ptr %block, i64 %strips)
  br label %end
alone:
  {r.call()}
  br label %end
end:
  call void @{LEAVE}()
  ret void
}}
"""


def _dot_text(dtype: DType) -> str:
    number, letter = lane_type(dtype), "s" if dtype is dtypes.float32 else "d"
    r = _Routine(letter, "dot", _dot(), number)
    return f"""
{r.declaration()}
{r.head()} {{
  call void @{ENTER}()
  %total = {r.call()}
  call void @{LEAVE}()
  ret {number} %total
}}
"""


_ROUTINES: Final = tuple(blas.routine(letter, name) for name in ("gemm", "gemv", "dot") for letter in "sd")
_PANELS: Final = tuple(name for dtype in (dtypes.float32, dtypes.float64) for name in packed_products.panel_functions(dtype))


def text(kernels: Kernels | None) -> str:
    """All functions.  kernels: by which products of matrices are computed; None for the BLAS."""
    declarations = {
        "llvm.smin.i64": "declare i64 @llvm.smin.i64(i64, i64)",
        "llvm.smax.i64": "declare i64 @llvm.smax.i64(i64, i64)",
    }
    parts = []
    for dtype in (dtypes.float32, dtypes.float64):
        gemm, declared = _gemm_text(dtype, kernels)
        declarations |= declared
        parts += [gemm, _gemv_text(dtype), _dot_text(dtype)]
    head = f"""
@{POOL} = external global i8
declare i64 @{PARALLEL}(ptr, ptr, i64)
"""
    return "\n".join([head, *declarations.values(), _THREADS_OF_BLAS, *parts])


# --- linked


WIDE: Final = Kernels(64, vector_text.OF_32, thin_only=False)
"""For processors with vectors of 512 bits."""
FUSED: Final = Kernels(32, vector_text.OF_16, thin_only=True)
"""For those with vectors of 256 bits, and instructions that multiply and add."""


def _kernels() -> Kernels | None:
    """What this machine's processor has kernels for (on Windows nobody tells where the C library is)."""
    if sys.platform == "win32":
        return None
    bits = host_target().bits
    return WIDE if bits == 512 else FUSED if bits == 256 and host_fuses() else None


def packs() -> bool:
    """Whether this machine has products and convolutions of its own."""
    kernels = _kernels()
    return kernels is not None and not kernels.thin_only


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


@cache
def _linked() -> dict[str, int]:
    """Addresses of all functions by name; the code is never unloaded."""
    library = blas.blas()
    assert library.num_threads is not None
    named = (ENTER, LEAVE, *_ROUTINES, *(_PANELS if packs() else ()))
    table = f"@{_TABLE} = constant [{len(named)} x ptr] [{', '.join(f'ptr @{name}' for name in named)}]\n"
    kernels = _kernels()
    code = text(kernels) + table
    imports = blas.symbols(library) | thread_pool.symbols()
    imports |= {POOL: thread_pool.memory(), _STATE: ctypes.addressof(_words)}
    imports |= dict(zip((_GET, _SET), library.num_threads, strict=True))
    if kernels is not None:
        functions = ctypes.CDLL(None)  # of the C library: workers of the pool are no threads of Python's
        imports |= {_ALLOCATE: _address(functions.malloc), _FREE: _address(functions.free)}
    key = hashlib.sha256(f"{machine_code.identity()}\n{code}".encode()).hexdigest()
    (address, owner), _ = object_cache.load_or_make(
        key,
        lambda object_code: machine_code.link(object_code, imports, _TABLE),
        lambda: machine_code.assemble(code, computes=kernels is not None),
    )
    for immortal in (owner, _words):  # workers outlive what Python forgets when it ends
        c_api.never_free(immortal)
    return dict(zip(named, (ctypes.c_void_p * len(named)).from_address(address), strict=True))


def symbols() -> dict[str, int]:
    """The names under which programs call them."""
    with _making:
        return {name: address for name, address in _linked().items() if name in _ROUTINES}


def hold_symbols() -> dict[str, int]:
    """The names of the functions between whose calls OpenBLAS computes on the thread that calls it."""
    with _making:
        return {name: address for name, address in _linked().items() if name in (ENTER, LEAVE)}


def panel_symbols() -> dict[str, int]:
    """Those of packed_products.py that multiply and fill panels, for kernels that fill panels in another way."""
    with _making:
        return {name: address for name, address in _linked().items() if name in _PANELS}


def _reset_in_child() -> None:
    """The child has no other thread that was in the middle of a product."""
    global _making
    _making = threading.Lock()
    running, before = _words[1:]
    _words[:2] = [0, 0]
    functions = blas.blas().num_threads
    if running and functions is not None:
        ctypes.CFUNCTYPE(None, ctypes.c_int)(functions[1])(before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)


# --- eager mode

_CALL: Final = "tracejit_on_one_thread"
_CALL_TEXT: Final = f"""
declare void @{ENTER}()
declare void @{LEAVE}()
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
define ptr @{_CALL}(ptr %self, ptr %arguments, i64 %count) {{
  %function = load ptr, ptr %arguments
  %given = getelementptr ptr, ptr %arguments, i64 1
  %number = sub i64 %count, 1
  call void @{ENTER}()
  %result = call ptr @PyObject_Vectorcall(ptr %function, ptr %given, i64 %number, ptr null)
  call void @{LEAVE}()
  ret ptr %result
}}
"""


def _multiply_text(letter: str, dtype: DType) -> str:
    """`multiply(a, b, out)`, a built-in function of arrays of two dimensions and this dtype: 1, or 0 where gemm does not read them as they
    lie.  It runs without the GIL."""
    gemm = _Routine(letter, "gemm", _gemm(lane_type(dtype)))
    size, one, zero = dtype.itemsize, constant(1.0, dtype), constant(0.0, dtype)

    def field(of: str, name: str, offset: int, kind: str = "ptr") -> str:
        return f"""  %{of}.{name}.at = getelementptr i8, ptr %{of}, i64 {offset}
  %{of}.{name} = load {kind}, ptr %{of}.{name}.at"""

    def stored(i: int, of: str) -> str:
        """Whether it lies straight or turned, and how far apart its rows or columns are."""
        return f"""  %{of}.at = getelementptr ptr, ptr %arguments, i64 {i}
  %{of} = load ptr, ptr %{of}.at
{field(of, "data", arrays.DATA)}
{field(of, "sizes", arrays.DIMENSIONS)}
{field(of, "strides", arrays.STRIDES)}
{field(of, "flags", arrays.FLAGS, "i32")}
  %{of}.rows = load i64, ptr %{of}.sizes
  %{of}.columns.at = getelementptr i64, ptr %{of}.sizes, i64 1
  %{of}.columns = load i64, ptr %{of}.columns.at
  %{of}.down = load i64, ptr %{of}.strides
  %{of}.across.at = getelementptr i64, ptr %{of}.strides, i64 1
  %{of}.across = load i64, ptr %{of}.across.at
  %{of}.row = mul i64 %{of}.columns, {size}
  %{of}.column = mul i64 %{of}.rows, {size}
  %{of}.next = icmp eq i64 %{of}.across, {size}
  %{of}.apart = icmp sge i64 %{of}.down, %{of}.row
  %{of}.straight = and i1 %{of}.next, %{of}.apart
  %{of}.below = icmp eq i64 %{of}.down, {size}
  %{of}.beside = icmp sge i64 %{of}.across, %{of}.column
  %{of}.turned = and i1 %{of}.below, %{of}.beside
  %{of}.step = select i1 %{of}.straight, i64 %{of}.down, i64 %{of}.across
  %{of}.rest = and i64 %{of}.step, {size - 1}
  %{of}.even = icmp eq i64 %{of}.rest, 0
  %{of}.flag = and i32 %{of}.flags, {arrays.ALIGNED}
  %{of}.aligned = icmp ne i32 %{of}.flag, 0
  %{of}.sound = and i1 %{of}.even, %{of}.aligned
  %{of}.either = or i1 %{of}.straight, %{of}.turned
  %{of}.fits = and i1 %{of}.either, %{of}.sound
  %{of}.leading = ashr i64 %{of}.step, {size.bit_length() - 1}
  %{of}.order = select i1 %{of}.straight, i32 {blas.NO_TRANSPOSE}, i32 {blas.TRANSPOSE}"""

    call = gemm.call(
        blas.routine(letter, "gemm"),
        order=str(blas.ROW_MAJOR), m="%a.rows", n="%b.columns", k="%a.columns", alpha=one, beta=zero, lda="%a.leading", ldb="%b.leading",
        ldc="%c.leading", a="%a.data", b="%b.data", c="%c.data", **{"turned.a": "%a.order", "turned.b": "%b.order"},
    )  # fmt: skip
    return f"""
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare void @{blas.routine(letter, "gemm")}({", ".join(kind for kind, _ in gemm.parameters)})
define ptr @multiply_{letter}(ptr %self, ptr %arguments, i64 %count) {{
{stored(0, "a")}
{stored(1, "b")}
{stored(2, "c")}
  %both = and i1 %a.fits, %b.fits
  %result = and i1 %c.straight, %c.sound
  %all = and i1 %both, %result
  br i1 %all, label %run, label %end
run:
  %thread = call ptr @PyEval_SaveThread()
  {call}
  call void @PyEval_RestoreThread(ptr %thread)
  br label %end
end:
  %done = zext i1 %all to i64
  %answer = call ptr @PyLong_FromLongLong(i64 %done)
  ret ptr %answer
}}
"""


class _Eager(products.Policy):
    """Eager mode's way to the same functions."""

    def __init__(self, addresses: dict[str, int]) -> None:
        call = "PyObject_Vectorcall"
        imports = c_api.symbols((call,)) | {name: addresses[name] for name in (ENTER, LEAVE)}
        address, owner = machine_code.link(machine_code.assemble(_CALL_TEXT), imports, _CALL)
        self.on_one_thread = builtin_function("on_one_thread", address, FASTCALL, owner)
        kernels = _kernels()
        self.least = LARGE if kernels is None or kernels.thin_only else products.SMALL + 1
        self.thin = 0 if kernels is None else kernels.tile.thin
        self._multiply: dict[Any, Callable[..., int]] = {}
        self._gemv: dict[Any, Callable[..., None]] = {}
        for letter, dtype, number in (("s", dtypes.float32, ctypes.c_float), ("d", dtypes.float64, ctypes.c_double)):
            matrix = (ctypes.c_void_p, ctypes.c_int64)
            gemv = ctypes.CFUNCTYPE(None, *[ctypes.c_int] * 2, *[ctypes.c_int64] * 2, number, *matrix, *matrix, number, *matrix)
            self._gemv[dtype.numpy] = gemv(addresses[blas.routine(letter, "gemv")])
            if not arrays.unknown_layout():
                gemm = blas.routine(letter, "gemm")
                functions = c_api.symbols(("PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLongLong"))
                code = machine_code.assemble(_multiply_text(letter, dtype))
                address, owner = machine_code.link(code, functions | {gemm: addresses[gemm]}, f"multiply_{letter}")
                self._multiply[dtype.numpy] = builtin_function("multiply", address, FASTCALL, owner)

    def multiplier(self, dtype: Any) -> Callable[[Any, Any, Any], Any] | None:
        return self._multiply.get(dtype)

    def multiply_by_vector(self, matrix: Any, vector: Any, out: Any) -> bool:
        gemv = self._gemv.get(out.dtype)
        if gemv is None or not matrix.dtype == vector.dtype == out.dtype:
            return False
        stored, steps = _stored(matrix), [_step(x) for x in (vector, out)]
        if stored is None or 0 in steps:
            return False
        turned, leading = stored
        gemv(
            blas.ROW_MAJOR, blas.TRANSPOSE if turned else blas.NO_TRANSPOSE, *matrix.shape[:: -1 if turned else 1],
            1.0, matrix.ctypes.data, leading, vector.ctypes.data, steps[0], 0.0, out.ctypes.data, steps[1],
        )  # fmt: skip
        return True


def _step(x: Any) -> int:
    """The elements from one of a vector to the next; 0 where BLAS cannot read it."""
    (stride,) = x.strides
    return stride // x.itemsize if x.flags.aligned and stride > 0 and stride % x.itemsize == 0 else 0


def _stored(x: Any) -> tuple[bool, int] | None:
    """(whether it is stored transposed, the elements from row to row as it is stored) of a matrix that BLAS can read."""
    rows, columns = x.shape
    down, across = x.strides
    size = x.itemsize
    if not x.flags.aligned or down % size or across % size:
        return None
    if across == size and down >= columns * size:
        return False, down // size
    if down == size and across >= rows * size:
        return True, across // size
    return None


def _policy() -> products.Policy | None:
    """Eager mode's policy, made when a product first asks for it: None where the BLAS goes its own way."""
    if not blas.blas().governed:
        return None

    def make_policy() -> products.Policy:
        with _making:
            return _Eager(_linked())

    return uninterrupted_result(make_policy)


products.set_policy(_policy)
