"""What was asked of `compile` for one function: its options, and how long calls wait for machine code."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracejit.config import config

__all__ = ["CompileWait", "Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """fullgraph: whether a call that is not one program is an error.  dynamic: which sizes are symbolic (symbolic_paths.py).  backend: of
    the programs; None: the configuration's."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | None = None


class CompileWait:
    """How many seconds calls of a function, and backward passes through them, wait for a program: however long it takes, while there are
    `reasons` to.

    It has no reference to the function: tapes have one to it, and must not keep the function alive."""

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        self.reasons: list[object] = []

    def __call__(self) -> float:
        return math.inf if self.reasons else config.compile_wait
