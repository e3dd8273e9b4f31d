"""Restores the generators of random numbers of Python and NumPy when an entry that has drawn from them does not serve the
call."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tracejit.cpython.generators import bit_generator, state_memory
from tracejit.replay.ir import Define, Expr, Function, If, Name, ReturnIf, RunProgram, Statement

__all__ = ["reference", "restore_states", "saved_states", "with_generators_restored"]

State = tuple[Callable[..., None], Any, tuple[Any, ...]]
"""(restore, generator, arguments): `restore(generator, *arguments)` puts the generator back."""


def with_generators_restored(function: Function) -> Function:
    """An entry that draws, changed so that it restores the generators wherever it returns without serving the call.  Its
    namespace needs `kept_states`, the result of `saved_states` for its generators, and `put_back`, which is `restore_states`."""

    def back(value: Expr) -> Expr:
        return Name("put_back").call(Name("states"), value)

    def leaving(statement: Statement) -> Statement:
        match statement:
            case ReturnIf(condition, value):
                return ReturnIf(condition, back(value))
            case RunProgram(program, fresh, arrays, numbers, leave, refused, state, marks):
                return RunProgram(program, fresh, arrays, numbers, back(leave), refused, state, marks)
            case If(condition, body):
                return If(condition, tuple(map(leaving, body)))
        return statement

    first = (*function.first, Define("states", Name("kept_states").call()))
    return replace(function, first=first, body=tuple(map(leaving, function.body)), missed=back(function.missed))


def saved_states(references: Sequence[Callable[[], Any]]) -> Callable[[], list[State]]:
    """A function that gives the current states of the referenced generators that are alive."""
    memories = [(reference, *_memory(generator)) for reference in references if (generator := reference()) is not None]

    def states() -> list[State]:
        current: list[State] = []
        for reference, bits, memory in memories:
            generator = reference()
            if generator is None:
                continue
            if memory is None or bit_generator(generator) is not bits:
                current.append((_set_state, generator, (_state(generator),)))
            elif bits is None:
                current.append((_write_python, generator, (memory[0], memory[0].raw, generator.gauss_next)))
            else:
                current.append((_write, generator, (memory, [part.raw for part in memory])))
        return current

    return states


def restore_states(states: list[State], answer: Any) -> Any:
    """Restore the generators; returns `answer`, the result of the entry."""
    for put, generator, state in states:
        put(generator, *state)
    return answer


def reference(generator: Any) -> Callable[[], Any]:
    """A reference to a generator for an entry: a weak one, if the generator allows that."""
    return weakref.ref(generator) if type(generator).__weakrefoffset__ else partial(_itself, generator)


def _itself(generator: Any) -> Any:
    return generator


def _memory(generator: Any) -> tuple[Any, tuple[Any, ...] | None]:
    return bit_generator(generator), state_memory(generator)


def _write(generator: Any, memory: tuple[Any, ...], contents: list[bytes]) -> None:
    for part, bytes_of_part in zip(memory, contents, strict=True):
        part.raw = bytes_of_part


def _write_python(generator: Any, memory: Any, contents: bytes, second: float | None) -> None:
    memory.raw, generator.gauss_next = contents, second


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.bit_generator.state if isinstance(generator, np.random.Generator) else generator.get_state(legacy=False)


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)
