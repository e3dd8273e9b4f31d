"""The driver of a program as a Numba function: `njit(int64(intp, intp))` around an intrinsic that is the program's LLVM text.

This is how a program is compiled in the process that first meets it.  Numba's optimisation level is a global of the process: it is held
only under Numba's own compiler lock, and put back.  The text needs no passes: explicit vectors and hoisting leave them little to gain.
The function returned is the entry point of Numba's compiled overload, which skips the dispatch on argument types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import llvmlite.binding
from llvmlite import ir

from tracejit.core.lazy import lazy_module

__all__ = ["build"]

numba = lazy_module("numba")
numba_config = lazy_module("numba.core.config")
compiler_lock = lazy_module("numba.core.compiler_lock")
registry = lazy_module("numba.core.registry")
extending = lazy_module("numba.extending")

OPTIMISATION: Final = 0


class _Function(ir.Function):  # type: ignore[misc]
    """An internal function whose definition is text."""

    def __init__(self, module: Any, name: str, text: str) -> None:
        self.text = text
        word = ir.IntType(64)
        super().__init__(module, ir.FunctionType(word, [word, word]), name)

    def __str__(self) -> str:
        return self.text


def build(name: str, text: str, imports: Mapping[str, int]) -> tuple[Callable[[int, int], int], Any]:
    """Compile a text that defines `i64 @name(i64 frame, i64 arrays)`.  imports: C symbol -> address.

    Returns the entry point and what owns its code, which must live as long as the entry point is called."""
    for symbol, address in imports.items():
        llvmlite.binding.add_symbol(symbol, address)
    signature = numba.types.int64(numba.types.intp, numba.types.intp)

    def program(typing_context: Any, frame: Any, arrays: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.call(_Function(builder.module, name, text), arguments)

        return signature, codegen

    intrinsic = extending.intrinsic(program)

    def driver(frame: int, arrays: int) -> Any:
        return intrinsic(frame, arrays)

    with compiler_lock.global_compiler_lock:
        _ = registry.cpu_target.target_context  # creates the backend at Numba's own level
        level = numba_config.OPT
        numba_config.OPT = type(level)(OPTIMISATION)
        try:
            dispatcher = numba.njit(signature, error_model="numpy", no_cfunc_wrapper=True)(driver)
        finally:
            numba_config.OPT = level
    run: Callable[[int, int], int] = dispatcher.overloads[(numba.types.intp, numba.types.intp)].entry_point
    return run, dispatcher
