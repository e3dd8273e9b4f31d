"""Runs one nest on arrays: as reference Python, and compiled for several widths; for the tests of the renderings."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tracejit.core import dtypes
from tracejit.llvm import driver
from tracejit.loops import numba, python
from tracejit.loops.bounds import reaching_back
from tracejit.loops.language import Nest
from tracejit.loops.target import Target
from tracejit.lowering.steps import Address, ArraySpec, NestCall, ProgramSpec, Slot, array_slot

SCALES = bool(llvm.get_host_cpu_features().get("avx512f", False))  # an instruction that only some processors have
WIDE = Target(512, masked=True, scales=SCALES)
NARROW = Target(256, masked=True)
NARROWEST = Target(128, masked=False)
ONE_BY_ONE = Target(512, masked=True, scales=SCALES, gathers=False)
TARGETS = (WIDE, NARROW, NARROWEST, ONE_BY_ONE)


def frame(program: driver.CompiledProgram, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """A frame of the program, filled with the tuple's address."""
    table = program.template.copy()
    return table


def run_compiled(
    nest: Nest, arrays: tuple[np.ndarray, ...], sizes: tuple[int, ...] = (), scalars: tuple[Any, ...] = (), target: Target = WIDE
) -> int:
    """Call the machine code of one nest on 1-D arrays; its return code."""
    specs = tuple(ArraySpec(dtypes.from_numpy_dtype(a.dtype), a.shape, a.strides) for a in arrays)
    first = 1 + len(arrays)
    slots = tuple(Slot(first + k) for k in range(len(sizes)))  # not constants: other sizes find the same program
    call = NestCall(nest, tuple(Address(array_slot(i)) for i in range(len(arrays))), slots, scalars)
    program = driver.compile_program(ProgramSpec(specs, (call,), slots=first + len(sizes)), target)
    table = frame(program, arrays)
    table[first : first + len(sizes)] = sizes
    return program.run(table.ctypes.data, id(arrays))


def run_numba(nest: Nest, arrays: tuple[np.ndarray, ...], sizes: tuple[int, ...] = (), scalars: tuple[Any, ...] = ()) -> int:
    """Call the nest as Numba compiles it; its return code."""
    shifted = reaching_back(nest, dict(zip(nest.sizes, sizes, strict=True)))
    given: list[Any] = []
    for buffer, array in zip((*nest.buffers, *nest.temporaries), arrays, strict=True):
        given.append(array.view(np.uint16) if buffer.dtype.is_reduced else array)
        given += [0] if buffer in shifted else []
    typed = [np.float32(v) if s.dtype.is_reduced else s.dtype.numpy.type(v) for s, v in zip(nest.scalars, scalars, strict=True)]
    return numba.load(numba.render(nest, shifted))(*given, *sizes, *typed)


def assert_same_bits(actual: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Equal dtype, shape and bits; any NaN equals any NaN."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, what
    integers = np.dtype(f"u{actual.dtype.itemsize}")
    same = actual.view(integers) == expected.view(integers)
    if actual.dtype.kind == "f":
        same = same | (np.isnan(actual) & np.isnan(expected))
    wrong = np.flatnonzero(~same)
    assert not wrong.size, (
        f"{what}: element {wrong[0]} is {actual[wrong[0]]!r}, expected {expected[wrong[0]]!r} ({wrong.size} differ)"
    )


def assert_renderings_agree(
    nest: Nest, arrays: tuple[np.ndarray, ...], sizes: tuple[int, ...] = (), scalars: tuple[Any, ...] = ()
) -> tuple[np.ndarray, ...]:
    """Run the reference and all targets on copies; all arrays and codes must agree bit for bit.  Returns the reference's arrays."""
    expected = tuple(a.copy() for a in arrays)
    typed = [s.dtype.numpy.type(v) for s, v in zip(nest.scalars, scalars, strict=True)]
    code = python.load(nest)(*expected, *sizes, *typed)
    for target in (*TARGETS, "numba"):
        actual = tuple(a.copy() for a in arrays)
        found = (
            run_numba(nest, actual, sizes, scalars) if target == "numba" else run_compiled(nest, actual, sizes, scalars, target)
        )
        assert found == code, f"{target}: exit code"
        if code == 0:
            for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
                assert_same_bits(a, e, f"{target}: array {i} of\n{python.render(nest)}")
    return expected
