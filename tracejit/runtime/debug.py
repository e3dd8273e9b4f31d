"""What a program is made of, and where its time goes: for TRACEJIT_DEBUG and for people.

`step_times` runs the steps of a program one by one, each compiled on its own over the same memory, so the times are those of machine code
without the others' caches being colder than usual.  `plan` prints the memory plan.  Nothing here is used by a normal call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from tracejit.cpython.frame_check import NO_KEY
from tracejit.llvm.arena import Arena
from tracejit.llvm.driver import compile_program
from tracejit.lowering.lowered import Lowered
from tracejit.lowering.steps import addresses
from tracejit.runtime.frame import Frame

__all__ = ["plan", "step_times"]


def plan(lowered: Lowered) -> str:
    """The slots that steps refer to, the arena, the constants."""
    lines = [f"arena: slot {lowered.arena_slot}, {lowered.arena_bytes} bytes"]
    for k, spec in enumerate(lowered.spec.arrays):
        role = "input" if k < lowered.arrays else "output"
        lines.append(
            f"slot {1 + k}: {role} {spec.dtype.name}{list(spec.shape)}{' written' if spec.written and role == 'input' else ''}"
        )
    lines.extend(f"slot {slot}: constant {array.dtype}{list(np.shape(array))}" for slot, array in lowered.constants)
    for text, step in zip(lowered.text, lowered.spec.steps, strict=True):
        lines.append(f"{text} at {' '.join(f'{a.slot}+{a.offset}' for a in addresses(step))}")
    return "\n".join(lines)


def step_times(lowered: Lowered, arrays: Sequence[Any], scalars: Sequence[Any], rounds: int = 5) -> list[tuple[str, float]]:
    """(description, best of `rounds` runs in microseconds) of every step.  Writes what the program writes, `rounds` times.

    Raises RuntimeError if the arrays are not what the program was made for, or an exit is taken."""
    programs = [compile_program(replace(lowered.spec, steps=(step,))) for step in lowered.spec.steps]
    if not programs:
        return []
    arena = Arena()
    frames = [Frame(p.template, arena, lowered.arena_slot, lowered.arena_bytes, lowered.constants) for p in programs]
    made: list[Any] = [np.empty(a.shape, a.dtype.numpy) for a in lowered.fresh]
    if lowered.slab_size is not None:
        made.append(np.empty(lowered.slab_size, np.uint8))
    bound = tuple(lowered.spec.in_call([*arrays, *made], NO_KEY, tuple))
    for frame in frames:  # each has the data table of its step
        for (slot, python_type), value in zip(lowered.scalars, scalars, strict=True):
            try:
                (frame.floats if python_type is float else frame.integers)[slot] = value
            except ValueError:
                raise RuntimeError(
                    f"step_times(): the number {value} has no 64 bits; give one that the program can take"
                ) from None
    best = [float("inf")] * len(programs)
    for _ in range(rounds):
        for k, (program, frame) in enumerate(zip(programs, frames, strict=True)):
            start = perf_counter()
            code = program.run(frame.address, id(bound))
            best[k] = min(best[k], perf_counter() - start)
            if code:
                raise RuntimeError(f"step_times(): step {k} ({lowered.text[k]}) returned {code}; give arrays that take no exit")
    return [(text, 1e6 * seconds) for text, seconds in zip(lowered.text, best, strict=True)]
