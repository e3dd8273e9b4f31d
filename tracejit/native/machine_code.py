"""LLVM text to relocatable object code, and object code to functions in this process.

`compile_text(text)` gives the bytes of object files for this machine, made by Numba's code generator (numba_codegen.py): several of a long
text, since nothing can interrupt LLVM, and a process that is about to end waits for what it is in the middle of;
`link_compiled(object_code, imports, symbol)` links them into the process.  Every process links the same way, the one that compiled too; so
what an earlier process left behind runs without Numba, whose import takes longer than most programs take to compile.  Object code holds
no address: what it calls are symbols, resolved by the linker from names.

`assemble(text)` makes one object file, by LLVM alone; `link` links it.

`identity()` names everything besides the text that the bytes depend on.  This module knows no Python objects, no programs and no files.
"""

from __future__ import annotations

import ctypes
import itertools
import platform
import re
import struct
import sys
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from tracejit.core.locks import hold_over_forks, lock_held_over_forks
from tracejit.core.uninterrupted import leave_where_the_process_ends
from tracejit.native import numba_codegen

__all__ = ["assemble", "compile_text", "identity", "link", "link_compiled"]

FORMAT: Final = 4  # of what is made from the text: the entry and the options below

_PART: Final = 24_000  # characters of a text that LLVM gets at once, unless one function has more: 0.1 s of its work
_BACKEND_LEVEL: Final = 3  # of instruction selection and scheduling; no passes run over the text, which leaves little to gain
LIBRARIES: Final = 64  # a linker takes half a millisecond to make

_names = itertools.count()
_links = itertools.count()
_linkers: list[Any] = []  # the one in use
_llvm: Any = getattr(llvm.ffi.lib, "_lock", None)  # llvmlite takes it for each call, for one that frees code, too
if hasattr(_llvm, "__enter__"):
    hold_over_forks(_llvm.__enter__, lambda: _llvm.__exit__(None, None, None))
_lock = lock_held_over_forks()  # one thread at a time in the linker and the backend


def _target_options() -> dict[str, Any]:
    """What code is generated for: this processor."""
    return {
        "cpu": llvm.get_host_cpu_name(),
        "features": llvm.get_host_cpu_features().flatten(),
        "opt": _BACKEND_LEVEL,
        "jit": True,
        "reloc": "static" if platform.machine().lower() in ("x86_64", "amd64", "i386", "i686") else "default",
        "codemodel": "jitdefault",  # large: no distance is too far, and constants that a loop uses are kept in registers
    }


@cache
def _target_machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(**_target_options())


@cache
def _fast_target_machine() -> Any:
    """Makes code in a quarter of the time."""
    _target_machine()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(**{**_target_options(), "opt": 0})


def _linker() -> Any:
    """The linker for one more library.  LLVM keeps a library's tables of symbols, some 10 KB, as long as the linker that linked it, even
    when the code is gone; so none links more than LIBRARIES, and it goes with the last of them."""
    if next(_links) % LIBRARIES == 0 or not _linkers:
        _linkers[:] = [llvm.create_lljit_compiler(_target_machine(), use_jit_link=sys.platform != "win32", suppress_errors=True)]
    return _linkers[0]


@cache
def identity() -> str:
    """All that object code depends on and its text does not show: versions, the processor and its features, the layout of data."""
    python = f"{sys.implementation.cache_tag} {platform.python_version()} {sys.byteorder} {ctypes.sizeof(ctypes.c_void_p)}"
    compiler = f"{numba_codegen.identity()} llvmlite {llvmlite.__version__} LLVM {llvm.llvm_version_info} level {_BACKEND_LEVEL}"
    machine = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    return "\n".join(
        [f"format {FORMAT}", python, f"numpy {np.__version__}", compiler, machine, str(_target_machine().target_data)]
    )


def assemble(text: str, computes: bool = False) -> bytes:
    """Object code of a module, by LLVM alone: Numba is not loaded.  computes: one that only calls functions is not worth optimising.

    Raises RuntimeError for a text that LLVM does not take."""
    with _lock:
        target_machine = _target_machine() if computes else _fast_target_machine()
        module = llvm.parse_assembly(text)
        module.triple = llvm.get_process_triple()
        module.data_layout = str(target_machine.target_data)
        return bytes(target_machine.emit_object(module))


class _Code:
    """Keeps machine code loaded while it lives."""

    __slots__ = ("__weakref__",)


class _Loaded(weakref.ref):  # type: ignore[type-arg]
    """A reference to such an object, with what owns the machine code.  When the object dies it gets into a list, and no Python code runs:
    unloading takes some, which nothing may interrupt, so it is left to the next thread that loads something."""

    __slots__ = ("owners",)

    owners: tuple[Any, ...]


_loaded: dict[int, _Loaded] = {}
_unused: list[Any] = []


def _keep(*owners: Any) -> _Code:
    """What keeps machine code loaded."""
    code = _Code()
    loaded = _Loaded(code, _unused.append)
    loaded.owners = owners
    _loaded[id(loaded)] = loaded
    return code


def _unload() -> None:
    """Unload what nobody can call any more."""
    while _unused:
        del _loaded[id(_unused.pop())]  # more may come meanwhile


def link(object_code: bytes, imports: Mapping[str, int], symbol: str) -> tuple[int, Any]:
    """The address of a function in `assemble`'s object code, and the owner of the code.  imports: C symbol -> address; C's own are known.

    Raises RuntimeError if it is no object code for this machine or a symbol is unknown."""
    return _link((object_code,), imports, symbol)


def link_compiled(object_code: bytes, imports: Mapping[str, int], symbol: str) -> tuple[int, Any]:
    """The same of `compile_text`'s object code."""
    return _link(_unpacked(object_code), imports, symbol)


def _link(files: Sequence[bytes], imports: Mapping[str, int], symbol: str) -> tuple[int, Any]:
    """The same of several object files."""
    library = llvm.JITLibraryBuilder()
    for object_code in files:
        library.add_object_img(object_code)
    library.add_current_process().export_symbol(symbol)
    for name, address in imports.items():
        library.import_symbol(name, address)
    with _lock:
        _unload()
        linker = _linker()
        tracker = library.link(linker, f"tracejit{next(_names)}")
    return tracker[symbol], (_keep(linker, tracker),)  # a tuple lets go of its last item, the code, before the linker


def compile_text(text: str) -> bytes:
    """Object code of a module of functions and declarations only, each of which begins a line.  Raises RuntimeError for a text that LLVM
    does not take."""
    files = []
    for part in _parts(text):
        leave_where_the_process_ends()
        files.append(numba_codegen.compile_module(part, _target_options()))
    return _packed(files)


def _parts(text: str) -> list[str]:
    """Texts of modules which together have the functions of this one, and none of which is long unless one function is."""
    if len(text) <= _PART:
        return [text]
    _, *functions = re.split(r"(?m)^(?=define )", text)
    declarations = {name: line for line, name in re.findall(r"(?m)^(declare .*?@([\w.$]+)\(.*)$", text)}
    groups: list[list[str]] = []
    room = 0
    for function in functions:
        function = re.sub(r"(?m)^declare .*\n?", "", function).replace("define internal ", "define ", 1)
        opening = function[: function.index("\n")]
        declarations[_defined(function)] = opening.replace("define ", "declare ", 1).rstrip(" {")
        if len(function) > room:
            groups.append([])
            room = _PART
        groups[-1].append(function)
        room -= len(function)
    parts = []
    for group in groups:
        body = "".join(group)
        defined = set(map(_defined, group))
        called = sorted(set(re.findall(r"@([\w.$]+)", body)) - defined)
        parts.append("\n".join([*(declarations[name] for name in called if name in declarations), body]))
    return parts


def _defined(function: str) -> str:
    """The name of a function in a text that begins with it."""
    found = re.match(r"define .*?@([\w.$]+)\(", function)
    assert found is not None
    return found[1]


def _packed(files: Sequence[bytes]) -> bytes:
    """Object files as one."""
    return struct.pack(f"<{len(files) + 1}Q", len(files), *map(len, files)) + b"".join(files)


def _unpacked(content: bytes) -> list[bytes]:
    """The object files again.  Raises RuntimeError where they are none."""
    (number,) = struct.unpack_from("<Q", content.ljust(8, b"\0"))
    begin = 8 * (number + 1)
    lengths = struct.unpack_from(f"<{number}Q", content, 8) if 0 < begin <= len(content) else ()
    if not lengths or begin + sum(lengths) != len(content):
        raise RuntimeError(f"these {len(content)} bytes are no object files")
    files = []
    for length in lengths:
        files.append(content[begin : begin + length])
        begin += length
    return files
