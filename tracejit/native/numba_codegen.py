"""Object code of a module by Numba's code generator: LLVM text in, the bytes of an object file out.

This is how a program is compiled in the process that meets it first.  Of Numba only the code generator takes part (`numba.core.codegen`:
modules, passes, verification, guards against known bugs of LLVM).  What it is given is a finished module, so there is nothing for bytecode
analysis, type inference and lowering to do, and the tables of implementations that these load on first use, two thirds of Numba's start-up,
stay unloaded.

The generator here hands over what it compiles as bytes, as Numba's generator for extension modules does, but for this very processor, as
Numba's generator for functions does.  Loading is machine_code.py's business, in this process and in later ones alike: the code that
runs here is, byte for byte, the code that will run there.

No passes run over a module: explicit vectors and hoisting leave them nothing to gain, not even at the lowest level, which takes as long as
code generation for small programs.  (And each pass manager that Numba makes, two for every function, costs memory for ever: llvmlite
does not release what LLVM notes for it.)
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding

from tracejit.core.lazy import lazy_module

__all__ = ["compile_module", "identity"]

codegen = lazy_module("numba.core.codegen")
compiler_lock = lazy_module("numba.core.compiler_lock")


@cache
def identity() -> str:
    """What tells this Numba from others: the file with its version and revision.  Asking Numba itself would import it."""
    specification = importlib.util.find_spec("numba")
    if specification is None or specification.origin is None:
        raise ImportError("tracejit compiles with Numba, which cannot be found; install it: pip install numba")
    return Path(specification.origin).with_name("_version.py").read_text(encoding="utf-8")


@cache
def _generator_class() -> Any:
    """A generator whose libraries are emitted as object code, as they are, and are not put into Numba's execution engine."""

    class ObjectLibrary(codegen.AOTCodeLibrary):  # type: ignore[misc, name-defined]
        """A library that no passes run over."""

        def _optimize_functions(self, module: Any) -> None:
            module.data_layout = self._codegen._data_layout

        def _optimize_final_module(self) -> None:
            """There are no passes."""

    class ObjectCodegen(codegen.CPUCodegen):  # type: ignore[misc, name-defined]
        """A generator of such libraries."""

        _library_class = ObjectLibrary

        def __init__(self, options: Mapping[str, Any]) -> None:
            self._options = options
            super().__init__("tracejit")

        def _customize_tm_options(self, given: dict[str, Any]) -> None:
            given.update(self._options)

        def _customize_tm_features(self) -> str:
            return str(self._options["features"])

        def _add_module(self, module: Any) -> None:
            """Loading is left to the linker."""

    return ObjectCodegen


_generators: dict[tuple[tuple[str, Any], ...], Any] = {}


def _generator(options: Mapping[str, Any]) -> Any:
    """Numba's code generator with a target machine of these options (llvmlite's `create_target_machine`)."""
    key = tuple(sorted(options.items()))
    found = _generators.get(key)
    if found is None:
        found = _generators[key] = _generator_class()(options)
    return found


def compile_module(text: str, options: Mapping[str, Any]) -> bytes:
    """Object code of a module.  options: of the target machine.  Raises RuntimeError for a text that LLVM does not take."""
    with compiler_lock.global_compiler_lock:
        library = _generator(options).create_library("program")
        library.add_llvm_module(llvmlite.binding.parse_assembly(text))
        return bytes(library.emit_native_object())
