"""Steps that repeat themselves are written once; what they do, and how they leave, is what the steps one by one do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit.core import dtypes
from tracejit.llvm import driver, repetition
from tracejit.llvm.repetition import LEAST_SAVED, Repetition, with_repetitions
from tracejit.loops.expressions import Load, builder
from tracejit.loops.language import Axis, Buffer, Exit, For, Index, Nest, Size, Store
from tracejit.lowering.steps import (
    Address,
    ArraySpec,
    CopyCall,
    Division,
    GemmCall,
    NestCall,
    NestRun,
    ProgramSpec,
    ProgramStep,
    Slot,
)

F32 = dtypes.float32
N = 4  # arrays are N x N
SLOTS = 8
COUNT = LEAST_SAVED


def nest(factor: float, code: int | None = None) -> Nest:
    """out[i] = x[i] * factor + 1; with a code, exits if x[0] is negative."""
    x, out, i, n = Buffer("x", F32), Buffer("out", F32), Axis("i"), Size("n")
    at = Index(((i, 1),))
    loop = For(i, n, (Store(out, at, Load(x, at) * factor + 1.0),), vector=True)
    guard = () if code is None else (Exit(builder.lt(Load(x, Index()), 0.0), code),)
    return Nest("nest", (x, out), (n,), (), (*guard, loop))


def at(row: int, slot: int = 1) -> Address:
    """Row number `row` of an array of matrices."""
    return Address(slot, row * N * N * 4)


def layers(scale: Nest, count: int = COUNT, division: Division | None = None) -> list[ProgramStep]:
    """Matrix k + 1 is that number k, times the weights of layer k, scaled, copied."""
    steps: list[ProgramStep] = []
    for k in range(count):
        steps.append(GemmCall(F32, N, N, N, at(k), N, at(k, 2), N, at(0, 3), N))
        steps.append(NestCall(scale, (at(0, 3), at(1, 3)), (N * N,), division=division))
        steps.append(CopyCall(at(k + 1), at(1, 3), N * N * 4))
    return steps


def run(steps: list[ProgramStep], count: int = COUNT) -> tuple[int, np.ndarray[Any, Any], str]:
    """The status of a program of these steps, the matrices that it leaves, and its text."""
    generator = np.random.default_rng(0)
    x = np.zeros((count + 1, N, N), np.float32)
    x[0] = generator.normal(size=(N, N))
    w, scratch = generator.normal(size=(count, N, N)).astype(np.float32), np.zeros((2, N, N), np.float32)
    arrays = x, w, scratch
    specs = tuple([ArraySpec(F32, a.shape, a.strides, a is not w) for a in arrays])
    program = driver.compile_program(ProgramSpec(specs, tuple(steps), slots=SLOTS))
    table = program.template.copy()
    return program.run(table.ctypes.data, id(arrays)), x, program.text


def one_by_one(steps: list[ProgramStep], patch: pytest.MonkeyPatch, count: int = COUNT) -> tuple[int, np.ndarray[Any, Any], str]:
    with patch.context() as m:
        m.setattr(repetition, "LEAST_SAVED", 10**9)
        return run(steps, count)


def repetitions(steps: list[ProgramStep]) -> list[tuple[int, int]]:
    """(steps of a period, times) of each repetition."""
    return [(len(r.steps), len(r.rows)) for r in with_repetitions(steps, SLOTS) if isinstance(r, Repetition)]


@pytest.mark.parametrize("division", [None, Division(N * N, 6, 0, None, (24, 24))], ids=["whole", "in parts"])
def test_a_repetition_does_what_its_steps_do(division: Division | None, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = layers(nest(0.5), division=division)
    assert repetitions(steps) == [(3, COUNT)]
    (status, found, _), (_, expected, _) = run(steps), one_by_one(steps, monkeypatch)
    assert status == driver.OK and found[-1].any()
    np.testing.assert_array_equal(found, expected)


def test_the_text_does_not_grow_with_the_number_of_times() -> None:
    short, long = run(layers(nest(0.5)))[2], run(layers(nest(0.5), 4 * COUNT), 4 * COUNT)[2]
    assert short.count("\n") == long.count("\n")


def test_an_exit_in_the_middle_leaves_the_later_times_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = layers(nest(-1.0, code=7))
    (status, found, _), (expected_status, expected, _) = run(steps), one_by_one(steps, monkeypatch)
    done = found.any(axis=(1, 2))
    assert status == expected_status == 7
    assert 0 < done.sum() < COUNT
    np.testing.assert_array_equal(found, expected)


def test_what_stands_before_and_after_is_done_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = NestCall(nest(3.0), (at(0), at(0)), (N * N,)), NestCall(nest(5.0), (at(COUNT), at(COUNT)), (N * N,))
    steps = [first, *layers(nest(0.5)), last]
    assert repetitions(steps) == [(3, COUNT)]
    np.testing.assert_array_equal(run(steps)[1], one_by_one(steps, monkeypatch)[1])


def test_a_run_of_few_calls_is_a_part_of_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = nest(0.5)
    calls = [
        NestRun((NestCall(scale, (at(k), at(0, 3)), (N * N,)), NestCall(scale, (at(0, 3), at(k + 1)), (N * N,))))
        for k in range(COUNT)
    ]
    steps = [step for pair in zip(calls, layers(nest(2.0))[2::3], strict=True) for step in pair]
    assert repetitions(steps) == [(3, COUNT)]
    np.testing.assert_array_equal(run(steps)[1], one_by_one(steps, monkeypatch)[1])


def test_few_steps_are_written_one_by_one() -> None:
    assert repetitions(layers(nest(0.5), LEAST_SAVED // 3)) == []


@pytest.mark.parametrize(
    "other",
    [
        NestCall(nest(0.5), (at(0, 3), at(1, 3)), (N,)),
        NestCall(nest(0.25), (at(0, 3), at(1, 3)), (N * N,)),
        NestCall(nest(0.5), (at(0, 3), Address(3, Slot(7))), (N * N,)),
        GemmCall(F32, N, N, N, at(0), N, at(0, 2), N, at(0, 3), N, beta=1.0),
        CopyCall(at(1), at(0), 4),
    ],
    ids=["size", "nest", "offset that is known only when it runs", "product", "bytes"],
)
def test_another_step_is_part_of_no_repetition(other: ProgramStep) -> None:
    steps = layers(nest(0.5), 2 * COUNT)
    middle = 3 * COUNT + 1
    made = with_repetitions([*steps[:middle], other, *steps[middle + 1 :]], SLOTS)
    assert other in made and sum(isinstance(step, Repetition) for step in made) == 2


def test_addresses_that_are_the_same_each_time_are_none_of_the_rows() -> None:
    (made,) = with_repetitions(layers(nest(0.5)), SLOTS)
    assert isinstance(made, Repetition)
    assert [made.steps[1].buffers, len(made.rows[0])] == [(at(0, 3), at(1, 3)), 2 * 3]  # type: ignore[union-attr]


@pytest.mark.parametrize("steps", [14, 16, 19, 22, 24, 40])
def test_steps_whose_memory_is_the_same_each_time_are_done_as_often_as_they_are(steps: int) -> None:
    matrix = tracejit.tensor(np.random.default_rng(0).normal(0, 0.5, (3, 3)))

    def settled(p: Any) -> Any:
        for _ in range(steps):
            p = (p * 0.5 @ matrix).tanh()
        return p

    def mixed(p: Any) -> Any:
        for _ in range(steps):
            p = (p * 0.85) @ matrix + 0.05
        return p

    for function in (settled, mixed):
        compiled = tracejit.compile(function)
        for seed in range(3):
            p = tracejit.tensor(np.random.default_rng(seed).normal(size=(3, 3)))
            np.testing.assert_allclose(compiled(p).numpy(), function(p).numpy(), rtol=1e-9, atol=1e-15)
        assert compiled.stats.compiled_calls == 2
