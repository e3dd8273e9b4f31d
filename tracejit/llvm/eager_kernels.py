"""Machine code for single operations of eager mode: nests as built-in functions of arrays and sizes.

Where an operation takes NumPy several passes, or SciPy evaluates it element by element, eager mode calls such a kernel (core/kernels.py).
Its nest (lowering/eager_kernels.py) is rendered by what renders those of programs, for the same machine, so elementary functions and draws
have the bits that they have in programs.

LLVM makes a kernel without Numba, in 20 to 200 ms; later processes find it in the cache of object code.  It is given arrays of the right
dtypes, aligned, contiguous and large enough: it does not look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tracejit.core import kernels
from tracejit.core.dtypes import DType
from tracejit.cpython import arrays, c_api
from tracejit.cpython.array_function import entry_text
from tracejit.cpython.builtin_functions import FASTCALL, builtin_function
from tracejit.cpython.linking import link
from tracejit.llvm import lapack
from tracejit.llvm.host import host_target
from tracejit.llvm.reductions import Emitter
from tracejit.loops.rewrites.pipeline import rewritten
from tracejit.lowering.eager_kernels import Kernel, kernel_of

__all__ = ["built_in", "make_kernel"]

_SYMBOL: Final = "tracejit_kernel"


def built_in(kernel: Kernel) -> Callable[..., int]:
    """A kernel as a built-in function of arrays, then integers of 64 bits: as many as its nest has buffers and sizes.  It
    returns the code of the exit that was taken, 0 for none."""
    nest, target = kernel.nest, host_target()
    emitter = Emitter(rewritten(nest, target), "nest", target)
    function = emitter.text()
    assert not emitter.code.libm and not nest.scalars, nest.name
    entry = entry_text(_SYMBOL, "nest", len(nest.buffers), len(nest.sizes), kernel.loops)
    text = "\n".join([*sorted(emitter.code.declarations.values()), function, entry])
    address, owner = link(text, _SYMBOL, computes=True)
    call: Callable[..., int] = builtin_function(nest.name, address, FASTCALL, owner)
    return call


def make_kernel(form: kernels.Form, dtype: DType) -> Callable[..., int] | None:
    """The kernel of a form for a dtype; None where the memory layout of objects is not the known one."""
    if arrays.unknown_layout() or not c_api.supported():
        return None
    return lapack.systems(dtype) if form == kernels.TRIANGULAR_SYSTEMS else built_in(kernel_of(form, dtype))
