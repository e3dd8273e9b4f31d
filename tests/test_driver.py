"""Tests of whole programs: the metadata check, every kind of step, exit codes, the cache by content."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit.core import dtypes
from tracejit.cpython import arrays as array_struct
from tracejit.cpython import programs
from tracejit.llvm import driver
from tracejit.loops.expressions import Load, ScalarParam, builder
from tracejit.loops.language import Axis, Buffer, Exit, For, Index, Nest, Scalar, Size, Store
from tracejit.lowering.steps import Address, ArraySpec, CopyCall, GemmCall, NestCall, NumberSlot, ProgramSpec, Slot, array_slot
from tracejit.native import machine_code

F32 = dtypes.float32


def scale(code: int | None = None) -> Nest:
    """out[i] = x[i] * s; with a code, exits if s is negative."""
    x, out, i, n, s = Buffer("x", F32), Buffer("out", F32), Axis("i"), Size("n"), Scalar("s", F32)
    loop = For(i, n, (Store(out, Index(((i, 1),)), Load(x, Index(((i, 1),))) * ScalarParam(s)),), vector=True)
    guard = () if code is None else (Exit(builder.lt(ScalarParam(s), 0.0), code),)
    return Nest("scale", (x, out), (n,), (s,), (*guard, loop))


def spec_of(array: np.ndarray, written: bool = False) -> ArraySpec:
    return ArraySpec(dtypes.from_numpy_dtype(array.dtype), array.shape, array.strides, written)


def call(program: driver.CompiledProgram, arrays: tuple[np.ndarray, ...], **slots: Any) -> int:
    table = program.template.copy()
    for name, value in slots.items():
        (table.view(np.float64) if isinstance(value, float) else table)[int(name[1:])] = value
    return program.run(table.ctypes.data, id(arrays))


def scaling(shape: tuple[int, ...] = (20,), factor: Any = 2.0) -> tuple[driver.CompiledProgram, np.ndarray, np.ndarray]:
    x, out = np.arange(np.prod(shape), dtype=np.float32).reshape(shape), np.zeros(shape, np.float32)
    step = NestCall(scale(7), (Address(1), Address(2)), (x.size,), (factor,))
    return driver.compile_program(ProgramSpec((spec_of(x), spec_of(out, True)), (step,), slots=5, disjoint=(0, 1))), x, out


def test_a_program_runs_and_reports_ok() -> None:
    program, x, out = scaling()
    assert call(program, (x, out)) == driver.OK
    np.testing.assert_array_equal(out, x * 2)


def test_other_metadata_is_a_mismatch_and_nothing_is_written() -> None:
    program, x, out = scaling((4, 5))
    frozen, unaligned = out.copy(), np.zeros(81, np.uint8)[1:].view(np.float32).reshape(4, 5)
    frozen.flags.writeable = False
    wrong = {
        "dtype": (x.astype(np.int32), out),
        "rank": (x.ravel(), out),
        "shape": (x.reshape(5, 4), out),
        "strides": (np.zeros((5, 4), np.float32).T, out),
        "negative strides": (x[::-1], out),
        "byte order": (x.astype(">f4"), out),
        "read-only": (x, frozen),
        "alignment": (unaligned, out),
        "overlap": (x, x),
    }
    for what, arrays in wrong.items():
        assert call(program, arrays) == driver.MISMATCH, what
    assert (out == 0).all() and (frozen == 0).all()


def test_strides_of_dimensions_of_size_one_do_not_matter() -> None:
    program, _, out = scaling((1, 6))
    other = np.arange(24, dtype=np.float32).reshape(4, 6)[2:3]
    other = np.lib.stride_tricks.as_strided(other, (1, 6), (12345 * 4, 4))
    assert call(program, (other, out)) == driver.OK
    np.testing.assert_array_equal(out, other * 2)


def test_partly_overlapping_memory_is_a_mismatch_only_among_listed_arrays() -> None:
    memory = np.zeros(30, np.float32)
    program, _, _ = scaling()
    assert call(program, (memory[:20], memory[10:])) == driver.MISMATCH
    assert call(program, (memory[10:], memory[:20])) == driver.MISMATCH
    unguarded = driver.compile_program(ProgramSpec((spec_of(memory[:20]), spec_of(memory[10:], True)), (), slots=3))
    assert call(unguarded, (memory[:20], memory[10:])) == driver.OK


@pytest.mark.parametrize("seed", range(4))
def test_overlaps_among_many_arrays_are_found_in_any_order_of_addresses(seed: int) -> None:
    random = np.random.default_rng(seed)
    memory = np.zeros(400, np.float32)
    count, written, length = 7, (1, 4, 5), 9
    pairs = tuple((i, j) for i in written for j in range(count) if i != j and not (j in written and j < i))
    specs = tuple(spec_of(memory[:length], i in written) for i in range(count))
    program = driver.compile_program(ProgramSpec(specs, (), slots=1 + count, disjoint=tuple(range(count))))
    table, seen = program.template.copy(), set()
    for _ in range(300):
        spread = int(random.choice([60, 390]))
        starts = random.integers(0, spread, count)
        if random.integers(2):
            starts = random.permutation(np.arange(count) * length) + random.integers(0, 2, count) * random.integers(0, 2)
        arrays = tuple(memory[s : s + length] for s in starts)
        expected = driver.MISMATCH if any(abs(starts[i] - starts[j]) < length for i, j in pairs) else driver.OK
        assert program.run(table.ctypes.data, id(arrays)) == expected, starts
        seen.add(expected)
    assert seen == {driver.OK, driver.MISMATCH}


def test_arrays_that_are_only_read_may_overlap_beside_written_ones() -> None:
    memory = np.zeros(40, np.float32)
    specs = tuple(spec_of(memory[:10], i == 2) for i in range(3))
    program = driver.compile_program(ProgramSpec(specs, (), slots=4, disjoint=(0, 1, 2)))
    assert call(program, (memory[:10], memory[5:15], memory[20:30])) == driver.OK
    assert call(program, (memory[:10], memory[15:25], memory[20:30])) == driver.MISMATCH


def test_adjacent_memory_does_not_overlap() -> None:
    memory = np.ones(40, np.float32)
    program, _, _ = scaling()
    assert call(program, (memory[:20], memory[20:])) == driver.OK
    assert call(program, (memory[20:], memory[:20])) == driver.OK


def test_empty_and_zero_dimensional_arrays_pass() -> None:
    empty, scalar = np.zeros((0, 3), np.float32), np.array(2.0, np.float32)
    program = driver.compile_program(ProgramSpec((spec_of(empty, True), spec_of(scalar, True)), (), slots=3, disjoint=(0, 1)))
    assert call(program, (empty, scalar)) == driver.OK
    assert call(program, (np.zeros((1, 3), np.float32), scalar)) == driver.MISMATCH


def test_numbers_come_from_slots_and_are_cast() -> None:
    program, x, out = scaling(factor=NumberSlot(3, dtypes.float64))
    assert call(program, (x, out), s3=0.1) == driver.OK
    np.testing.assert_array_equal(out, x * np.float32(0.1))
    program, x, out = scaling(factor=NumberSlot(4, dtypes.int64))
    assert call(program, (x, out), s4=3) == driver.OK
    np.testing.assert_array_equal(out, x * 3)


def test_an_exit_ends_the_program_with_its_code() -> None:
    x, out, later = (np.ones(8, np.float32) for _ in range(3))
    first = NestCall(scale(7), (Address(1), Address(2)), (8,), (NumberSlot(4, dtypes.float64),))
    second = NestCall(scale(9), (Address(1), Address(3)), (8,), (NumberSlot(5, dtypes.float64),))
    spec = ProgramSpec(tuple(spec_of(a, a is not x) for a in (x, out, later)), (first, second), slots=6)
    program = driver.compile_program(spec)
    assert call(program, (x, out, later), s4=-1.0, s5=-1.0) == 7
    assert call(program, (x, out, later), s4=3.0, s5=-1.0) == 9
    assert (out == 3).all() and (later == 1).all()
    assert call(program, (x, out, later), s4=3.0, s5=4.0) == driver.OK
    assert (later == 4).all()


def test_a_long_program_is_several_functions_and_leaves_from_each_of_them() -> None:
    count = 3 * driver.PART + 7
    x, out, guard = np.ones(8, np.float32), np.zeros(8, np.float32), np.zeros(8, np.float32)

    def program(*failing: int) -> driver.CompiledProgram:
        steps = [
            NestCall(scale(k + 1), (Address(1 + (k > 0)), Address(2)), (8,), (-1.0 if k in failing else 1.0 + (k % 2),))
            if k % 5 == 0
            else NestCall(scale(), (Address(2), Address(2)), (8,), (1.5 if k % 2 else 0.75,))
            for k in range(count)
        ]
        return driver.compile_program(ProgramSpec(tuple(spec_of(a, a is not x) for a in (x, out, guard)), tuple(steps), slots=4))

    whole = program()
    assert whole.text.count("define internal i64 @part") == 4
    assert call(whole, (x, out, guard)) == driver.OK
    wanted = np.float32(1)
    for k in range(count):
        wanted *= np.float32(1.0 + (k % 2) if k % 5 == 0 else 1.5 if k % 2 else 0.75)
    np.testing.assert_array_equal(out, np.full(8, wanted))
    for failing in (5, driver.PART, 3 * driver.PART + 5):
        assert call(program(failing, count - 2), (x, out, guard)) == failing + 1


def test_sizes_and_offsets_come_from_slots() -> None:
    x, out = np.arange(20, dtype=np.float32), np.zeros(20, np.float32)
    step = NestCall(scale(), (Address(1, Slot(4)), Address(2, 8)), (Slot(3),), (1,))
    program = driver.compile_program(ProgramSpec((spec_of(x), spec_of(out, True)), (step,), slots=5))
    assert call(program, (x, out), s3=5, s4=16) == driver.OK
    np.testing.assert_array_equal(out, [0, 0, 4, 5, 6, 7, 8, *[0] * 13])


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_batched_products_walk_all_batch_dimensions(dtype: dtypes.DType) -> None:
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 3, 4, 6)).astype(dtype.numpy), generator.normal(size=(3, 5, 6)).astype(dtype.numpy)
    c = np.ones((2, 3, 4, 5), dtype.numpy)
    batch = ((2, 72, 0, 60), (3, 24, 30, 20))
    step = GemmCall(
        dtype, 4, 5, Slot(4), Address(1), 6, Address(2), 6, Address(3), 5, transpose_b=True, alpha=2.0, beta=1.0, batch=batch
    )
    program = driver.compile_program(ProgramSpec((spec_of(a), spec_of(b), spec_of(c, True)), (step,), slots=5))
    assert call(program, (a, b, c), s4=6) == driver.OK
    np.testing.assert_allclose(c, 1 + 2 * (a @ b.transpose(0, 2, 1)), rtol=1e-5, atol=1e-5)


def test_copies_move_bytes() -> None:
    x, out = np.arange(10), np.zeros(10, np.int64)
    step = CopyCall(Address(array_slot(1), 16), Address(array_slot(0)), 24)
    program = driver.compile_program(ProgramSpec((spec_of(x), spec_of(out, True)), (step,), slots=3))
    assert call(program, (x, out)) == driver.OK
    assert out.tolist() == [0, 0, 0, 1, 2, 0, 0, 0, 0, 0]


def test_equal_nests_are_one_function_whatever_their_names() -> None:
    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    steps = tuple(NestCall(scale(), (Address(1), Address(2)), (4,), (k,)) for k in range(3))
    program = driver.compile_program(ProgramSpec((spec_of(x), spec_of(out, True)), steps, slots=3))
    assert program.text.count("define internal i64 @nest") == 1


def test_an_identical_program_is_found_without_compiling() -> None:
    first, _, _ = scaling(factor=1.375)
    second, _, _ = scaling(factor=1.375)
    assert second.run is first.run and second.key == first.key and second.seconds == 0
    longer, _, _ = scaling((21,), factor=1.375)
    assert longer.key != first.key


def test_metadata_is_data_and_not_code() -> None:
    wide, narrow = np.zeros((4, 6), np.float32), np.zeros((6, 4), np.float32)
    first = driver.compile_program(ProgramSpec((spec_of(wide),), (), slots=2))
    second = driver.compile_program(ProgramSpec((spec_of(narrow),), (), slots=2))
    assert first.key == second.key
    assert call(first, (wide,)) == driver.OK and call(first, (narrow,)) == driver.MISMATCH
    assert call(second, (narrow,)) == driver.OK and call(second, (wide,)) == driver.MISMATCH


def test_loaded_machine_code_refuses_what_is_not_two_integers() -> None:
    text = f"define internal i64 @{programs.PROGRAM}(i64 %a, i64 %b) {{\n%c = sub i64 %a, %b\nret i64 %c\n}}"
    run: Any = programs.load(programs.compile_text(text), {})
    assert run(7, 9) == -2
    for wrong in ((1,), (1, 2, 3), ("1", 2), (1, None)):
        with pytest.raises(TypeError):
            run(*wrong)
    with pytest.raises(OverflowError):
        run(1, 2**64)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(run())(7, 9) == -2  # without arguments: where it is


def test_a_step_with_an_unknown_slot_is_refused() -> None:
    with pytest.raises(ValueError, match="slot 9, but the program has 3"):
        driver.compile_program(ProgramSpec((), (CopyCall(Address(9), Address(1), 8),), slots=3))


def test_where_arrays_lie_otherwise_in_memory_numba_runs_programs_and_explain_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert array_struct.unknown_layout() == ""
    monkeypatch.setattr(array_struct, "DATA", array_struct.STRIDES)
    array_struct.unknown_layout.cache_clear()
    try:
        assert "data: read" in array_struct.unknown_layout()
        compiled = tracejit.compile(lambda x: x * 2.0 + 1.0)
        assert [compiled(tracejit.ones(3)).tolist() for _ in range(3)] == [[3.0] * 3] * 3
        assert compiled.stats.compiled_calls == 2
        assert "backend numba, since the memory layout of functions, tuples, bytes or NumPy" in compiled.explain(verbose=True)
    finally:
        monkeypatch.undo()
        array_struct.unknown_layout.cache_clear()


def test_machine_code_may_go_out_of_use_while_other_code_is_unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_code._unload()
    first, later, before = machine_code._keep(), [machine_code._keep()], len(machine_code._loaded)

    def number(thing: object) -> int:  # as another thread would in between
        later.clear()
        return id(thing)

    monkeypatch.setattr(machine_code, "id", number, raising=False)
    del first
    machine_code._unload()
    assert not machine_code._unused and len(machine_code._loaded) == before - 2


def test_threads_compile_and_run_at_once() -> None:
    failures: list[BaseException] = []

    def work(k: int) -> None:
        try:
            program, x, out = scaling(factor=10.5 + k % 2)
            for _ in range(200):
                assert call(program, (x, out)) == driver.OK
            np.testing.assert_array_equal(out, x * np.float32(10.5 + k % 2))
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
