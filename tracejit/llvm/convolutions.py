"""The kernels of convolutions (convolution_tasks.py), linked once for each dtype: what programs and eager mode call.

`symbols(names)` are the functions that programs link.  core/convolutions.py is told how eager mode gets to them.  They are there where
products have kernels of the library's own, since they fill panels for these.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Collection
from functools import cache
from typing import Any, Final

from tracejit.core import convolutions, dtypes
from tracejit.core.convolutions import KERNELS
from tracejit.core.dtypes import DType
from tracejit.core.locks import lock_held_over_forks
from tracejit.core.uninterrupted import uninterrupted_result
from tracejit.cpython import c_api
from tracejit.llvm import blas, convolution_tasks, products, thread_pool, window_text
from tracejit.llvm.thread_pool_code import PARALLEL, POOL
from tracejit.native import machine_code, object_cache

__all__ = ["linked", "symbols"]

_ALLOCATE, _FREE, _SPARE, _LOCK = "tracejit_allocate", "tracejit_free", "tracejit_spare", "tracejit_spare_lock"
_TABLE: Final = "tracejit_convolutions"  # of the kernels' addresses
_DTYPES: Final = (dtypes.float32, dtypes.float64)
_spare: Final = (ctypes.c_char * max(map(window_text.scratch, _DTYPES)))()
_lock_of_spare: Final = ctypes.c_int64()
_making = lock_held_over_forks()

# A task has memory of its own, and where there is none left the spare one, one task after the other.
_MEMORY: Final = f"""
@{_SPARE} = external global i8
@{_LOCK} = external global i64
@{POOL} = external global i8
declare i64 @{PARALLEL}(ptr, ptr, i64)
declare i32 @sched_yield()
declare ptr @{_ALLOCATE}(i64)
declare void @{_FREE}(ptr)

define internal ptr @{convolution_tasks.MEMORY}(i64 %size) {{
entry:
  %own = call ptr @{_ALLOCATE}(i64 %size)
  %none = icmp eq ptr %own, null
  br i1 %none, label %look, label %done
look:
  %swap = cmpxchg ptr @{_LOCK}, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %mine, label %done, label %wait
wait:
  %ignored = call i32 @sched_yield()
  br label %look
done:
  %found = phi ptr [ %own, %entry ], [ @{_SPARE}, %look ]
  ret ptr %found
}}

define internal void @{convolution_tasks.FORGET}(ptr %memory) {{
entry:
  %spare = icmp eq ptr %memory, @{_SPARE}
  br i1 %spare, label %release, label %free
release:
  store atomic i64 0, ptr @{_LOCK} release, align 8
  ret void
free:
  call void @{_FREE}(ptr %memory)
  ret void
}}
"""


def text(dtype: DType, lanes: int) -> str:
    """All functions for a dtype, and a table of the addresses of its kernels."""
    helpers, declarations = convolution_tasks.helpers(dtype, lanes, products.LARGE)
    names = ", ".join(f"ptr @{convolution_tasks.symbol(dtype, kernel)}" for kernel in KERNELS)
    table = f"@{_TABLE} = constant [{len(KERNELS)} x ptr] [{names}]\n"
    return "\n".join([_MEMORY, *declarations.values(), helpers, table])


@cache
def linked(dtype: DType, allocate: int | None = None) -> dict[str, int]:
    """Addresses of the kernels for a dtype by name; the code is never unloaded.  allocate: what is called instead of malloc."""
    code = text(dtype, window_text.VECTOR // dtype.itemsize)
    functions = ctypes.CDLL(None)  # of the C library: workers of the pool are no threads of Python's
    imports = products.panel_symbols() | thread_pool.symbols() | {POOL: thread_pool.memory()}
    imports |= {_ALLOCATE: allocate or _address(functions.malloc), _FREE: _address(functions.free)}
    imports |= {_SPARE: ctypes.addressof(_spare), _LOCK: ctypes.addressof(_lock_of_spare)}
    key = hashlib.sha256(f"{machine_code.identity()}\n{code}".encode()).hexdigest()
    (address, owner), _ = object_cache.load_or_make(
        key,
        lambda object_code: machine_code.link(object_code, imports, _TABLE),
        lambda: machine_code.assemble(code, computes=True),
    )
    for immortal in (owner, _spare, _lock_of_spare):  # workers outlive what Python forgets when it ends
        c_api.never_free(immortal)
    names = [convolution_tasks.symbol(dtype, kernel) for kernel in KERNELS]
    return dict(zip(names, (ctypes.c_void_p * len(names)).from_address(address), strict=True))


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def symbols(names: Collection[str]) -> dict[str, int]:
    """Those of these names that are kernels, with their addresses."""
    found: dict[str, int] = {}
    for dtype in _DTYPES:
        own = [name for name in names if name in {convolution_tasks.symbol(dtype, kernel) for kernel in KERNELS}]
        if own:
            with _making:
                found |= {name: linked(dtype)[name] for name in own}
    return found


class _Kernels(convolutions.Kernels):
    """Eager mode's way to them."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, Any], Any] = {}

    def run(self, kernel: str, dtype: Any, a: int, b: int, c: int, words: int) -> None:
        function = self._functions.get((kernel, dtype)) or self._linked(kernel, dtype)
        function(a, b, c, words)

    def _linked(self, kernel: str, dtype: Any) -> Any:
        name = convolution_tasks.symbol(dtypes.from_numpy_dtype(dtype), kernel)
        address = uninterrupted_result(lambda: symbols([name])[name])
        function = self._functions[kernel, dtype] = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(address)
        return function


def _kernels() -> convolutions.Kernels | None:
    """Those that this processor has."""
    return _Kernels() if blas.blas().governed and products.packs() else None


def _reset_in_child() -> None:
    """The child has no other thread that has the spare memory."""
    _lock_of_spare.value = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)

convolutions.set_kernels(_kernels)
