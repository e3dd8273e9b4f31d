"""What a compiled program does, step by step: the seam between the scheduler and the machine-code driver.

A program works on a *frame*: a table of int64 slots at one address.  Slot 0 holds the address (`id`) of the call's tuple of NumPy arrays;
slots 1..n receive the arrays' data pointers from the driver's own check of their metadata; the slots after them belong to the
runtime, which fills them before the call (arena, fresh outputs, scalars, sizes).  Behind the last of these the driver keeps its
data table (`CompiledProgram.template`): expected metadata, and the arguments of runs of calls.

Invariants: addresses and metadata are never baked into code: they come from the table.  A step that exits leaves the program at
once with its code, so a scheduler puts the steps that write user storage last.  This module holds descriptions only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType
from tracejit.loops.language import Nest

__all__ = [
    "Address",
    "ArraySpec",
    "ConvolutionCall",
    "CopyCall",
    "Division",
    "GemmCall",
    "LapackCall",
    "LoopCall",
    "NestCall",
    "NestRun",
    "NumberSlot",
    "OperandMatrix",
    "ProgramSpec",
    "ProgramStep",
    "ResultArray",
    "Slot",
    "addresses",
    "array_slot",
    "with_slots",
]

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Metadata that array number i of the tuple must have.  `strides` in bytes.  `written`: the array must be writeable.  `exact`: also the
    strides of dimensions of size 1, and all of an empty array, are compared: no element sees them, but those of eager's results follow
    from those of the tensors that were recorded."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    written: bool = False
    exact: bool = False

    @classmethod
    def of(cls, aval: Aval, strides: Sequence[int], written: bool, exact: bool = False) -> ArraySpec:
        """That of a value.  strides: in elements."""
        return cls(aval.dtype, aval.shape, tuple([s * aval.dtype.itemsize for s in strides]), written, exact)


@dataclass(frozen=True, slots=True)
class Slot:
    """The int64 in table[index]."""

    index: int


@dataclass(frozen=True, slots=True)
class NumberSlot:
    """A Python number in table[index]: the bits of a float64 for `dtype` float64, an int64 otherwise (bool, int64).  It is
    cast to the dtype of the nest's Scalar."""

    index: int
    dtype: DType


class Address(NamedTuple):
    """The pointer table[slot] + offset bytes."""

    slot: int
    offset: int | Slot = 0


Integer = int | Slot


def array_slot(i: int) -> int:
    """The slot of the data pointer of array number i of the tuple."""
    return 1 + i


@dataclass(frozen=True, slots=True)
class Division:
    """A call of a nest for each range of `length` of `extent` iterations, in any order or at once.  The k-th call gets its number of
    iterations as size number `many`, the number of the first of them as size number `first` (unless None), and every address
    `advances` bytes times k further."""

    extent: int
    length: int
    many: int
    first: int | None
    advances: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many calls."""
        return -(-self.extent // self.length)


@dataclass(frozen=True, slots=True)
class NestCall:
    """Call a nest: an address for each of `nest.buffers + nest.temporaries`, a value for each of `nest.sizes`, `nest.scalars`.
    If the nest exits with k, the program returns k at once; of the calls of a division the first one that exits decides."""

    nest: Nest
    buffers: tuple[Address, ...]
    sizes: tuple[Integer, ...] = ()
    scalars: tuple[bool | int | float | NumberSlot, ...] = ()
    division: Division | None = None


@dataclass(frozen=True, slots=True)
class NestRun:
    """Calls of one nest, one after the other: they differ in addresses, sizes and the slots of numbers, which are data, a row of a table
    for each call.  None has a division."""

    calls: tuple[NestCall, ...]

    @property
    def nest(self) -> Nest:
        """The nest of all calls."""
        return self.calls[0].nest


@dataclass(frozen=True, slots=True)
class GemmCall:
    """C = alpha * op(A) @ op(B) + beta * C for row-major matrices of float32 or float64; op(A) is m x k, op(B) k x n, C m x n.

    Leading dimensions are row strides in elements of the matrices as stored (A is stored k x m when `transpose_a`).  `batch` lists
    (extent, stride of A, of B, of C) in elements, outermost first; where C's is 0, beta is 1.  With beta 0, C's old contents are not read.
    """

    dtype: DType
    m: Integer
    n: Integer
    k: Integer
    a: Address
    lda: Integer
    b: Address
    ldb: Integer
    c: Address
    ldc: Integer
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    beta: float = 0.0
    batch: tuple[tuple[Integer, Integer, Integer, Integer], ...] = ()


class OperandMatrix(NamedTuple):
    """Where a matrix is: `down` and `across` are the elements from row to row and from column to column."""

    address: Address
    rows: Integer
    columns: Integer
    down: Integer
    across: Integer


class ResultArray(NamedTuple):
    """Where a result for one matrix is, in dense memory."""

    address: Address
    shape: tuple[Integer, ...]


@dataclass(frozen=True, slots=True)
class LapackCall:
    """Have LAPACK solve or factorise matrices of float32 or float64 (llvm/lapack.py), all sizes being at least 1.  The results have the
    dtype of the operands.  flags: what the routine is told besides.  scratch: memory for copies.  batch: (extent, the
    stride of each operand, and of each result) in elements, outermost first.  code: the program returns it where there is no result."""

    routine: str
    dtype: DType
    operands: tuple[OperandMatrix, ...]
    results: tuple[ResultArray, ...]
    scratch: Address
    flags: tuple[bool, ...] = ()
    batch: tuple[tuple[Integer, ...], ...] = ()
    code: int = 0


@dataclass(frozen=True, slots=True)
class ConvolutionCall:
    """Call a kernel of convolutions on matrices of float32 or float64 (core/convolutions.py): a and b are read, c is made.  words: what
    the kernel is told."""

    kernel: str
    dtype: DType
    a: Address
    b: Address
    c: Address
    words: tuple[Integer, ...]


@dataclass(frozen=True, slots=True)
class CopyCall:
    """Copy bytes between regions that do not overlap."""

    destination: Address
    source: Address
    nbytes: Integer


@dataclass(frozen=True, slots=True)
class LoopCall:
    """Do some steps so many times, or, where the count is an address, as long as the byte there is not 0.  pointers: (slot, address,
    advance): the slot has that address the first time, and each time after that is `advance` bytes further.  leaves_by_step: whether
    an exit has a number of its own each time."""

    steps: tuple[ProgramStep, ...]
    count: int | Address
    pointers: tuple[tuple[int, Address, int], ...]
    leaves_by_step: bool = True


ProgramStep = NestCall | NestRun | GemmCall | LapackCall | ConvolutionCall | CopyCall | LoopCall
"""What a program does."""


def with_slots(step: ProgramStep, slot: Callable[[int], int], numbers: Mapping[int, NumberSlot | int | float]) -> ProgramStep:
    """A step that has its slots elsewhere.  numbers: what is in the place of slots with Python numbers."""

    def address(a: Address) -> Address:
        return Address(slot(a.slot), integer(a.offset))

    def integer(n: Integer) -> Integer:
        return Slot(slot(n.index)) if isinstance(n, Slot) else n

    def nest(call: NestCall) -> NestCall:
        scalars = tuple([numbers[n.index] if isinstance(n, NumberSlot) else n for n in call.scalars])
        return replace(call, buffers=tuple(map(address, call.buffers)), sizes=tuple(map(integer, call.sizes)), scalars=scalars)

    match step:
        case NestCall():
            return nest(step)
        case NestRun():
            return NestRun(tuple(map(nest, step.calls)))
        case CopyCall():
            return CopyCall(address(step.destination), address(step.source), integer(step.nbytes))
        case ConvolutionCall():
            a, b, c = map(address, (step.a, step.b, step.c))
            return replace(step, a=a, b=b, c=c, words=tuple(map(integer, step.words)))
        case LapackCall():
            operands = tuple([OperandMatrix(address(x[0]), *map(integer, x[1:])) for x in step.operands])  # type: ignore[arg-type]
            results = tuple([ResultArray(address(x.address), tuple(map(integer, x.shape))) for x in step.results])
            walked = tuple([tuple(map(integer, entry)) for entry in step.batch])
            return replace(step, operands=operands, results=results, scratch=address(step.scratch), batch=walked)
        case LoopCall():
            steps = tuple([with_slots(inner, slot, numbers) for inner in step.steps])
            count = address(step.count) if isinstance(step.count, Address) else step.count
            pointers = tuple([(slot(n), address(a), advance) for n, a, advance in step.pointers])
            return LoopCall(steps, count, pointers, step.leaves_by_step)
    m, n, k = map(integer, (step.m, step.n, step.k))
    lda, ldb, ldc = map(integer, (step.lda, step.ldb, step.ldc))
    a, b, c = map(address, (step.a, step.b, step.c))
    batch = tuple([(integer(e), integer(x), integer(y), integer(z)) for e, x, y, z in step.batch])
    return replace(step, m=m, n=n, k=k, a=a, lda=lda, b=b, ldb=ldb, c=c, ldc=ldc, batch=batch)


def addresses(step: ProgramStep) -> Sequence[Address]:
    """What a step reads and writes."""
    match step:
        case NestCall():
            return step.buffers
        case NestRun():
            return [address for call in step.calls for address in call.buffers]
        case LoopCall():
            inside = [address for inner in step.steps for address in addresses(inner)]
            return [*[address for _, address, _ in step.pointers], *inside]
        case GemmCall() | ConvolutionCall():
            return (step.a, step.b, step.c)
        case LapackCall():
            return (*[x.address for x in step.operands], *[x.address for x in step.results], step.scratch)
    return (step.source, step.destination)


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """A whole program.  `slots`: how many table slots the runtime and the arrays use (the data table follows them).  `disjoint`:
    numbers of arrays, ascending; the memory range of a written one among them must not overlap that of any other of them.

    resident: numbers of arrays, ascending, whose pointers stay in a frame from call to call.  If there are any, a call's tuple is (key,
    tuple of these arrays, *the others); key: bytes of an int64 that stands for these very arrays with this very metadata, in all the
    process and for ever, or is 0 and says nothing.  A frame that has checked them under the same key does not look at them again.

    interruptible: whether a loop that may not end leaves when Ctrl-C was pressed.  To ask that takes the GIL."""

    arrays: tuple[ArraySpec, ...]
    steps: tuple[ProgramStep, ...]
    slots: int
    disjoint: tuple[int, ...] = ()
    resident: tuple[int, ...] = ()
    interruptible: bool = True

    def in_call(self, items: Sequence[_Item], key: _Item, together: Callable[[list[_Item]], _Item]) -> list[_Item]:
        """The items of a call's tuple: what stands for the arrays, in their order; `together` makes a tuple of the resident ones."""
        if not self.resident:
            return list(items)
        resident = frozenset(self.resident)
        others = [item for i, item in enumerate(items) if i not in resident]
        return [key, together([items[i] for i in self.resident]), *others]
