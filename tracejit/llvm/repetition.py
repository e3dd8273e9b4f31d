"""Steps of a program that do again what steps before them did, on other memory.

Equal layers have equal steps.  `with_repetitions(steps)` finds stretches of them that repeat themselves and makes a `Repetition` of each:
the steps of one period, and a row of a table for each time with where the memory is.  So the text of a program does not grow with its
layers, nor does the time to compile it.

Steps are alike if all but their addresses is the same; what else could be data, sizes for instance, stays a constant.  Knows steps, and
nothing of how they are written.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tracejit.lowering.steps import (
    Address,
    ConvolutionCall,
    CopyCall,
    GemmCall,
    LapackCall,
    LoopCall,
    NestCall,
    NestRun,
    NumberSlot,
    ProgramStep,
)
from tracejit.passes.periods import stretches

__all__ = ["Repetition", "with_repetitions"]

LEAST_SAVED: Final = 16  # steps: each address costs a few instructions more in a repetition
LONGEST_RUN: Final = 8  # calls of a NestRun whose addresses are part of the row
LONGEST_PERIOD: Final = 200  # steps: a function of more takes LLVM more than proportionally long
_NOWHERE = Address(0)

Simple = NestCall | GemmCall | ConvolutionCall | CopyCall
"""Steps that repetitions are made of."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """`steps` are done once for each of `rows`.  Their addresses in slot `first + k` are those of column k: a row has for each column the
    offset of a slot in the frame and that of the address, in bytes."""

    steps: tuple[Simple, ...]
    first: int
    rows: tuple[tuple[int, ...], ...]


def with_repetitions(steps: Sequence[ProgramStep], slots: int) -> list[ProgramStep | Repetition]:
    """The steps, with repetitions in the place of those that repeat themselves.  slots: how many the program has."""
    if len(steps) < 2 * LEAST_SAVED:
        return list(steps)
    numbers: dict[Hashable, int] = {}
    labels = np.array([numbers.setdefault(_label(step), len(numbers)) for step in steps])
    found = [
        (period, begin, (end - begin) // period)
        for period, merged in stretches(labels, 2)
        for begin, end in merged
        if period <= LONGEST_PERIOD
    ]
    saving = sorted([(-(count - 1) * period, period, begin, count) for period, begin, count in found])
    taken = np.zeros(len(steps), bool)
    made: dict[int, tuple[int, int]] = {}  # where a repetition begins -> its period, its count
    for saved, period, begin, count in saving:
        if -saved >= LEAST_SAVED and not taken[begin : begin + count * period].any():
            taken[begin : begin + count * period] = True
            made[begin] = period, count
    result: list[ProgramStep | Repetition] = []
    at = 0
    while at < len(steps):
        period, count = made.get(at, (1, 1))
        if count > 1:
            result.append(_repetition([steps[at + k * period : at + (k + 1) * period] for k in range(count)], slots))
        else:
            result.append(steps[at])
        at += period * count
    return result


def _label(step: ProgramStep) -> Hashable:
    """Equal for steps that differ in nothing but addresses; for those that nothing repeats, themselves."""
    match step:
        case NestCall() if all(type(address.offset) is int for address in step.buffers):
            scalars = tuple([n if isinstance(n, NumberSlot) else repr(n) for n in step.scalars])
            return id(step.nest), step.sizes, scalars, step.division
        case NestRun() if len(step.calls) <= LONGEST_RUN:
            return tuple(map(_label, step.calls))
        case GemmCall() if all(type(address.offset) is int for address in (step.a, step.b, step.c)):
            return replace(step, a=_NOWHERE, b=_NOWHERE, c=_NOWHERE), step.alpha.hex(), step.beta.hex()
        case ConvolutionCall() if all(type(n) is int for n in (step.a.offset, step.b.offset, step.c.offset, *step.words)):
            return replace(step, a=_NOWHERE, b=_NOWHERE, c=_NOWHERE)
        case CopyCall() if type(step.destination.offset) is type(step.source.offset) is int:
            return "copy", step.nbytes
    return "step", id(step)


def _simple(step: ProgramStep) -> Sequence[Simple]:
    """The step, or the calls of a run."""
    assert not isinstance(step, LapackCall | LoopCall), step  # they are like no others
    return step.calls if isinstance(step, NestRun) else (step,)


def _repetition(periods: Sequence[Sequence[ProgramStep]], first: int) -> Repetition:
    """One of stretches of steps that are alike."""
    times = [[each for step in period for each in _simple(step)] for period in periods]
    columns: dict[tuple[Address, ...], int] = {}
    steps = []
    for alike in zip(*times, strict=True):
        merged = []
        for addresses in zip(*[_addresses(step) for step in alike], strict=True):
            same = all(address == addresses[0] for address in addresses)
            merged.append(addresses[0] if same else Address(first + columns.setdefault(addresses, len(columns))))
        steps.append(_at(alike[0], merged))
    # Where all is in the same memory each time, a row is a word that nothing reads: the loop ends with the table.
    rows = [tuple([word for column in columns for word in _words(column[k])]) or (0,) for k in range(len(times))]
    return Repetition(tuple(steps), first, tuple(rows))


def _words(address: Address) -> tuple[int, int]:
    assert isinstance(address.offset, int), address  # as `_label` has seen
    return 8 * address.slot, address.offset


def _addresses(step: Simple) -> tuple[Address, ...]:
    match step:
        case NestCall():
            return step.buffers
        case GemmCall() | ConvolutionCall():
            return step.a, step.b, step.c
    return step.destination, step.source


def _at(step: Simple, merged: Sequence[Address]) -> Simple:
    """The step on other memory."""
    match step:
        case NestCall():
            return replace(step, buffers=tuple(merged))
        case GemmCall() | ConvolutionCall():
            return replace(step, a=merged[0], b=merged[1], c=merged[2])
    return replace(step, destination=merged[0], source=merged[1])
