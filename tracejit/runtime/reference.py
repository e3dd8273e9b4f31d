"""The backend "reference": a program's steps carried out in Python, each nest by its plain-Python rendering.

It works on the same frames as machine code: `call(address)` reads the tuple of arrays and the slots from the frame's table, checks the
arrays' metadata and overlaps, and runs the steps on the same memory.  It is slow, and it is what machine code is compared with.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided

from tracejit.codegen import reference
from tracejit.codegen.driver import MISMATCH
from tracejit.codegen.lowered import Lowered
from tracejit.codegen.memory import ALIGNMENT
from tracejit.codegen.steps import Address, CopyCall, GemmCall, NestCall, NestRun, NumberSlot, Slot
from tracejit.core import dtypes
from tracejit.core.floating import quietly
from tracejit.runtime.frame import pointer
from tracejit.runtime.metadata import fits

__all__ = ["Memory", "ReferenceRunner"]


class Memory:
    """Elements of one dtype from an address on, within a region of memory: what a buffer parameter is bound to.  Indices may be negative,
    as with arrays of negative strides, and are checked against the region."""

    __slots__ = ("address", "elements", "start")

    def __init__(self, low: int, high: int, address: int, dtype: np.dtype[Any]) -> None:
        size = dtype.itemsize
        first = low + (address - low) % size
        count = max(high - first, 0) // size
        self.elements = _bytes_at(first, count * size).view(dtype)
        self.start = (address - first) // size
        self.address = address

    def place(self, i: int) -> int:
        at = self.start + int(i)
        if not 0 <= at < len(self.elements):
            raise IndexError(
                f"a nest reaches element {i} of a buffer that has {-self.start}..{len(self.elements) - self.start - 1}"
            )
        return at

    def __getitem__(self, i: int) -> Any:
        return self.elements[self.place(i)]

    def __setitem__(self, i: int, value: Any) -> None:
        self.elements[self.place(i)] = value


def _bytes_at(address: int, count: int) -> np.ndarray[Any, Any]:
    """Memory that somebody else keeps alive."""
    return np.frombuffer(memoryview((ctypes.c_uint8 * count).from_address(address)).cast("B"), np.uint8)


class ReferenceRunner:
    """Runs the steps of a lowered program.  `call` has the contract of `CompiledProgram.run`."""

    def __init__(self, lowered: Lowered, constants: Sequence[tuple[int, np.ndarray[Any, Any]]]) -> None:
        self.lowered = lowered
        self.template = np.zeros(lowered.spec.slots, np.int64)
        self.constants = dict(constants)
        self.functions: dict[int, Any] = {}

    def source(self) -> str:
        """The distinct nests of the program, in the order of their first call."""
        found: dict[str, None] = {}
        for step in self.lowered.spec.steps:
            if isinstance(step, NestCall | NestRun):
                found[reference.render(step.nest)] = None
        return "\n\n".join(found)

    def call(self, address: int, arrays: int) -> int:
        """0, MISMATCH, or the exit that was taken."""
        _bytes_at(address, 8).view(np.int64)[0] = arrays
        code: int = quietly(self._call, address)
        return code

    def _call(self, address: int) -> int:
        spec = self.lowered.spec
        table = _bytes_at(address, 8 * spec.slots).view(np.int64)
        arrays = _in_order(ctypes.cast(int(table[0]), ctypes.py_object).value, spec.resident)
        if not fits(arrays, spec.arrays, spec.disjoint):
            return MISMATCH
        regions = self._regions(table, arrays)

        def bind(where: Address, dtype: np.dtype[Any], further: int = 0) -> Memory:
            low, high, start = regions[where.slot]
            return Memory(low, high, start + _number(where.offset, table) + further, dtype)

        for step in spec.steps:
            if isinstance(step, NestCall | NestRun):
                for call in step.calls if isinstance(step, NestRun) else (step,):
                    code = self._nest(call, table, bind)
                    if code:
                        return code
            elif isinstance(step, GemmCall):
                _gemm(step, table, bind)
            else:
                _copy(step, table, bind)
        return 0

    def _regions(self, table: np.ndarray[Any, Any], arrays: Sequence[Any]) -> dict[int, tuple[int, int, int]]:
        """(lowest address, address after the last byte, base) of the memory behind each slot."""
        regions: dict[int, tuple[int, int, int]] = {}
        for k, array in enumerate(arrays):
            low, high = byte_bounds(array) if array.size else (pointer(array), pointer(array))
            regions[1 + k] = int(low), int(high), pointer(array)
        base = int(table[self.lowered.arena_slot])
        regions[self.lowered.arena_slot] = base, base + self.lowered.arena_bytes, base
        assert base % ALIGNMENT == 0
        for slot, array in self.constants.items():
            start = int(table[slot])
            regions[slot] = start, start + array.nbytes, start
        return regions

    def _nest(self, step: NestCall, table: np.ndarray[Any, Any], bind: Any) -> int:
        nest = step.nest
        function = self.functions.get(id(nest))
        if function is None:
            function = self.functions[id(nest)] = reference.load(nest)
        parameters = list(zip(step.buffers, (*nest.buffers, *nest.temporaries), strict=True))
        sizes = [_number(s, table) for s in step.sizes]
        scalars = [_scalar(value, s.dtype.numpy, table) for value, s in zip(step.scalars, nest.scalars, strict=True)]
        cut = step.division
        for k in range(1 if cut is None else cut.count):
            buffers = [bind(a, b.dtype.numpy, 0 if cut is None else k * cut.advances[i]) for i, (a, b) in enumerate(parameters)]
            if cut is not None:
                sizes[cut.many] = min(cut.length, cut.extent - k * cut.length)
                if cut.first is not None:
                    sizes[cut.first] = k * cut.length
            code = int(function(*buffers, *sizes, *scalars))
            if code:
                return code
        return 0


def _in_order(given: tuple[Any, ...], resident: Sequence[int]) -> list[Any]:
    """All arrays of a call's tuple, by number."""
    if not resident:
        return list(given)
    _, held, *others = given
    rest, found = iter(others), dict(zip(resident, held, strict=True))
    return [found[i] if i in found else next(rest) for i in range(len(found) + len(others))]


def _number(value: int | Slot, table: np.ndarray[Any, Any]) -> int:
    return int(table[value.index]) if isinstance(value, Slot) else value


def _scalar(value: Any, dtype: np.dtype[Any], table: np.ndarray[Any, Any]) -> Any:
    if isinstance(value, NumberSlot):
        slot = table[value.index : value.index + 1]
        value = (slot.view(np.float64) if value.dtype is dtypes.float64 else slot)[0]
    return np.asarray(value).astype(dtype)[()]


def _gemm(step: GemmCall, table: np.ndarray[Any, Any], bind: Any) -> None:
    m, n, k, lda, ldb, ldc = (_number(x, table) for x in (step.m, step.n, step.k, step.lda, step.ldb, step.ldc))
    extents = tuple(_number(entry[0], table) for entry in step.batch)

    def matrix(where: Address, operand: int, rows: int, columns: int, leading: int, transposed: bool) -> np.ndarray[Any, Any]:
        memory = bind(where, step.dtype.numpy)
        size = step.dtype.itemsize
        strides = tuple(_number(entry[operand], table) * size for entry in step.batch)
        inner = (size, leading * size) if transposed else (leading * size, size)
        return as_strided(memory.elements[memory.start :], (*extents, rows, columns), (*strides, *inner))

    a = matrix(step.a, 1, m, k, lda, step.transpose_a)
    b = matrix(step.b, 2, k, n, ldb, step.transpose_b)
    c = matrix(step.c, 3, m, n, ldc, False)
    result = np.matmul(a, b)
    if step.alpha != 1.0:
        result = result * step.dtype.numpy.type(step.alpha)
    summed = tuple(axis for axis, entry in enumerate(step.batch) if _number(entry[3], table) == 0)  # all of them in one matrix
    if summed:
        result = result.sum(summed, keepdims=True)
        c = c[tuple(slice(0, 1) if axis in summed else slice(None) for axis in range(len(extents)))]
    c[...] = result + step.dtype.numpy.type(step.beta) * c if step.beta else result


def _copy(step: CopyCall, table: np.ndarray[Any, Any], bind: Any) -> None:
    size = _number(step.nbytes, table)
    target, source = bind(step.destination, np.dtype(np.uint8)), bind(step.source, np.dtype(np.uint8))
    target.elements[target.start : target.start + size] = source.elements[source.start : source.start + size]
