"""Products of few rows or few terms, in pieces that OpenBLAS computes where the matrices lie.

OpenBLAS packs both operands of a product before it multiplies, which for a product of few rows or terms (a step of a recurrent network,
the gradients of a small batch) takes as long as the multiplication, and it wakes its threads for it.  Its kernels for processors with
512-bit vectors have another way, without packing or threads, for products of up to a million multiplications.  So a larger product whose
second operand is stored as it is used, and near enough to be read again and again, is computed in blocks of columns that take that way:
in a third to nine tenths of the time, the sooner the fewer rows.

The bits are those of the whole product: OpenBLAS adds along the inner dimension in stretches, and a block is cut there where it would
have been.  For that blocks begin and end with whole vectors.  `helper` is LLVM text of a function with the arguments of gemm, since
numbers of rows may be data of a program.
"""

from __future__ import annotations

from typing import Final

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.llvm.operations import constant, lane_type

__all__ = ["PROCESSORS", "SMALL", "helper"]

PROCESSORS: Final = frozenset(("SkylakeX", "Cooperlake", "SapphireRapids"))
"""What OpenBLAS calls the processors for which it has such kernels."""
SMALL: Final = 1_000_000
"""Multiplications (m * n * k) up to which it uses them."""
_NARROWEST: Final = 64
"""Columns of a block; with fewer of them packing is cheaper."""
_NEAR: Final = 1 << 22
"""Bytes of a second operand that is read from near memory."""
_VECTOR: Final = 16
"""Columns and terms that blocks and stretches are multiples of."""
_STRETCH: Final = {dtypes.float32: 448, dtypes.float64: 384}
"""Terms that OpenBLAS adds up before it adds to the result; of what is more than one and less than two of these, half."""


def helper(dtype: DType, gemm: str) -> tuple[str, str]:
    """(name, definition) of a function that computes what the CBLAS routine `gemm` does, for row-major matrices of which the second is not
    transposed."""
    number, name = lane_type(dtype), f"tracejit_thin_{gemm}"
    stretch, one = _STRETCH[dtype], constant(1.0, dtype)

    def call(n: str, k: str, a: str, b: str, beta: str, c: str) -> str:
        flags = "i32 %order, i32 %turned, i32 %straight"
        sizes = f"i64 %m, i64 {n}, i64 {k}"
        operands = f"{number} %alpha, ptr {a}, i64 %lda, ptr {b}, i64 %ldb, {number} {beta}, ptr {c}, i64 %ldc"
        return f"call void @{gemm}({flags}, {sizes}, {operands})"

    def terms(of: str, to: str) -> str:
        """How many terms of so many OpenBLAS adds up first."""
        return f"""  {to}.half = lshr i64 {of}, 1
  {to}.up = add i64 {to}.half, {_VECTOR - 1}
  {to}.even = and i64 {to}.up, {-_VECTOR}
  {to}.many = icmp uge i64 {of}, {2 * stretch}
  {to}.some = icmp ugt i64 {of}, {stretch}
  {to}.cut = select i1 {to}.many, i64 {stretch}, i64 {to}.even
  {to} = select i1 {to}.some, i64 {to}.cut, i64 {of}"""

    parameters = (
        "i32 %order, i32 %turned, i32 %straight, i64 %m, i64 %n, i64 %k, "
        f"{number} %alpha, ptr %a, i64 %lda, ptr %b, i64 %ldb, {number} %beta, ptr %c, i64 %ldc"
    )
    text = f"""define internal void @{name}({parameters}) noinline nounwind {{
entry:
  %elements = mul i64 %n, %k
  %total = mul i64 %elements, %m
  %small = icmp ule i64 %total, {SMALL}
  %far = icmp ugt i64 %elements, {_NEAR // dtype.itemsize}
  %rest = and i64 %n, {_VECTOR - 1}
  %ragged = icmp ne i64 %rest, 0
  %no = or i1 %small, %far
  %never = or i1 %no, %ragged
  br i1 %never, label %whole, label %thin
thin:
{terms("%k", "%longest")}
  %one = mul i64 %m, %longest
  %most = udiv i64 {SMALL}, %one
  %widest = and i64 %most, {-_VECTOR}
  %narrow = icmp ult i64 %widest, {_NARROWEST}
  br i1 %narrow, label %whole, label %cut
cut:
  %n.up = add i64 %n, %widest
  %n.last = sub i64 %n.up, 1
  %blocks = udiv i64 %n.last, %widest
  %even.up = add i64 %n, %blocks
  %even.last = sub i64 %even.up, 1
  %even = udiv i64 %even.last, %blocks
  %even.vectors = add i64 %even, {_VECTOR - 1}
  %width = and i64 %even.vectors, {-_VECTOR}
  br label %block
block:
  %first = phi i64 [ 0, %cut ], [ %next, %done ]
  %left = sub i64 %n, %first
  %wide = icmp ugt i64 %left, %width
  %columns = select i1 %wide, i64 %width, i64 %left
  %c.block = getelementptr {number}, ptr %c, i64 %first
  %b.block = getelementptr {number}, ptr %b, i64 %first
  br label %stretch
stretch:
  %from = phi i64 [ 0, %block ], [ %to, %stretch ]
  %remaining = sub i64 %k, %from
{terms("%remaining", "%length")}
  %begins = icmp eq i64 %from, 0
  %add = select i1 %begins, {number} %beta, {number} {one}
  %is.turned = icmp eq i32 %turned, 112
  %a.step = select i1 %is.turned, i64 %lda, i64 1
  %a.from = mul i64 %from, %a.step
  %a.here = getelementptr {number}, ptr %a, i64 %a.from
  %b.from = mul i64 %from, %ldb
  %b.here = getelementptr {number}, ptr %b.block, i64 %b.from
  {call("%columns", "%length", "%a.here", "%b.here", "%add", "%c.block")}
  %to = add i64 %from, %length
  %more = icmp ult i64 %to, %k
  br i1 %more, label %stretch, label %done
done:
  %next = add i64 %first, %width
  %go.on = icmp ult i64 %next, %n
  br i1 %go.on, label %block, label %end
whole:
  {call("%n", "%k", "%a", "%b", "%beta", "%c")}
  br label %end
end:
  ret void
}}"""
    return name, text
