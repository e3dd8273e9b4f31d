"""The options of one compiled function, and how long its calls wait for machine code."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracejit.config import config

__all__ = ["CompileWait", "Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `compile`.  fullgraph: whether a call that is not one program is an error.  dynamic: which sizes are
    symbolic (symbolic_paths.py).  backend: of the programs; None: the configured one."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | None = None


class CompileWait:
    """Called without arguments, gives how many seconds calls of a function, and backward passes through them, wait for a program:
    without limit while there are `reasons` to, else `config.compile_wait`.

    It has no reference to the function: nodes of tapes refer to this object, and must not keep the function alive."""

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        self.reasons: list[object] = []

    def __call__(self) -> float:
        return math.inf if self.reasons else config.compile_wait
