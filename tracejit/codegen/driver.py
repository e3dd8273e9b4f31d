"""Compiles a `ProgramSpec` into one machine-code function of a frame address.

`compile_program(spec) -> CompiledProgram`: `run(address)` returns OK (0), MISMATCH (-1: some array is not what the program was made
for, nothing was written) or the exit code k >= 1 of a nest.  `template` is the int64 table that a frame starts from: the runtime
copies it, fills slot 0 (id of the tuple of arrays) and its own slots, and passes the copy's address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracejit.codegen.steps import ProgramSpec

__all__ = ["MISMATCH", "OK", "CompiledProgram", "compile_program"]

OK: Final = 0
MISMATCH: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class CompiledProgram:
    """Machine code of a program.  Keeps everything alive that the code refers to."""

    run: Callable[[int], int]
    template: np.ndarray[Any, Any]
    key: str
    seconds: float


def compile_program(spec: ProgramSpec) -> CompiledProgram:
    """Compile, or find by content an identical program of this process."""
    raise NotImplementedError(spec)
