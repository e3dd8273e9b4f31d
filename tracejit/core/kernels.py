"""Machine code in the place of NumPy: where eager evaluation asks for it.

`kernel(form, dtype)` is a built-in function of arrays and sizes for an operation on elements of a dtype, or None where this
machine or this Python has none, and NumPy evaluates.  A form says what it computes: a name (lowering/eager_kernels.py), or a
function (`Fused`).  What makes kernels lies above (llvm/eager_kernels.py) and is installed by runtime/program.py; this module
knows neither LLVM nor any operation.

A step is a built-in function from objects that hold arrays to a new one (cpython/eager_steps.py): `step`, `fused_step`, `choice` and
`view` are asked for one.  It answers None for what it does not take.

The arrays that a kernel gets are contiguous, aligned and of the right dtypes: it looks at nothing but the addresses of their contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tracejit.core.dtypes import DType, float32, float64

__all__ = [
    "CHOICE", "LEAST", "MANY", "TRIANGULAR_SYSTEMS", "Form", "Fused", "Owners", "Step", "StepMakers", "choice", "elementwise", "floating",
    "fused_step", "has_dtype", "install", "kernel", "made_for", "reduced_rows", "repaying", "run_fused", "step", "view",
]  # fmt: skip

Kernel = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Fused:
    """The form of a function of one element: function(*tensors, *numbers) applies primitives to abstract values, and gives a tuple of
    so many results.  The kernel takes arrays of the results, of the tensors and of the numbers (float64, without dimensions), then how
    many elements there are.  least: of fewer elements it is not asked for."""

    name: str
    function: Callable[..., tuple[Any, ...]]
    results: int
    tensors: int
    numbers: int
    least: int = 0


Form = str | Fused
TRIANGULAR_SYSTEMS: Final = "triangular systems"
"""The form that calls LAPACK (llvm/lapack.py)."""
_maker: list[Callable[[Form, DType], Kernel | None]] = []
_kernels: dict[tuple[Form, DType], Kernel | None] = {}


Step = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """Objects that hold arrays, as far as steps know them.

    kind: their class, or a base of it; new ones are of this class.  array, root, seen, chain, flag: the names of the slots with the array,
    with the owner that it is a view of (None: no view), with the version of the root's contents that it was last compared with, with the
    steps from the root to it, and with whether an operand asks for more to be done with the result (True or False; True in a result of
    such operands).  storage: where the root's version is, as (slot, class of what is in it, slot of that).  fresh: what is in the other
    slots of a new one.  begun: what is in the slots of a new storage.  make: a new one of an array."""

    kind: type
    array: str
    root: str
    seen: str
    chain: str
    flag: str
    storage: tuple[str, type, str]
    fresh: tuple[tuple[str, Any], ...]
    begun: tuple[tuple[str, Any], ...]
    make: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class StepMakers:
    """What makes steps: cpython/eager_steps.py says what they are."""

    step: Callable[[Owners, Any, Iterable[Any], bool, int | None], Step | None]
    fused_step: Callable[[Owners, int, int, dict[Any, Kernel], int], Step | None]
    view: Callable[[Owners], Step | None]
    choice: Callable[[Owners], Step | None]


_step_makers: list[StepMakers] = []


def install(maker: Callable[[Form, DType], Kernel | None], step_makers: StepMakers) -> None:
    """Let `maker` make kernels, and the others steps; called once, when the compiler is imported."""
    _maker[:], _step_makers[:] = [maker], [step_makers]
    _kernels.clear()


def step(owners: Owners, ufunc: Any, dtypes: Iterable[Any], takes_numbers: bool, most: int | None = None) -> Step | None:
    """`step(*operands)`: what a ufunc makes of owners of arrays of one of these dtypes, and of numbers if it takes them, as a new owner;
    or None, where NumPy is to be asked, as of more than `most` elements.  None where there is no such function on this machine."""
    return _step_makers[0].step(owners, ufunc, dtypes, takes_numbers, most) if _step_makers else None


def fused_step(owners: Owners, form: Fused) -> Step | None:
    """`step(*tensors, *numbers)` of a form, likewise, for the dtypes for which it has kernels by now."""
    made = made_for(form)
    return _step_makers[0].fused_step(owners, form.tensors, form.numbers, made, form.least) if made else None


def made_for(form: Fused) -> dict[Any, Kernel]:
    """The kernels of a form that were made so far, by dtype of NumPy's."""
    return {dtype: made for dtype, own in _FLOATING.items() if (made := _kernels.get((form, own))) is not None}


CHOICE: Final = "choice"
"""In the place of a ufunc: elements of one array or another, by a condition."""


def choice(owners: Owners) -> Step | None:
    """`step(condition, x, y)`, likewise."""
    return _step_makers[0].choice(owners) if _step_makers else None


def view(owners: Owners) -> Step | None:
    """`view(array)`: an owner of an array; `view(owner, array, step)`: of one that shares the memory of another one's, likewise."""
    return _step_makers[0].view(owners) if _step_makers else None


def kernel(form: Form, dtype: DType) -> Kernel | None:
    """The kernel of a form for a dtype, made when it is first asked for."""
    key = form, dtype
    try:
        return _kernels[key]
    except KeyError:
        made = _kernels[key] = _maker[0](form, dtype) if _maker else None
        return made


_PATIENCE = 10_000.0  # microseconds
_spent: dict[tuple[Form, DType], float] = {}


def repaying(form: Form, dtype: DType, microseconds: float) -> Kernel | None:
    """The kernel of a form that gives the bits that NumPy gives, once making it pays: None until NumPy has taken about as long.
    microseconds: what NumPy takes this time."""
    key = form, dtype
    made = _kernels.get(key)
    if made is None and key not in _kernels:
        spent = _spent[key] = _spent.get(key, 0.0) + microseconds
        return kernel(form, dtype) if spent > _PATIENCE else None
    return made


_FLOATING = {np.dtype(np.float32): float32, np.dtype(np.float64): float64}
LEAST: Final = 256  # elements


def floating(form: str, x: Any) -> Kernel | None:
    """The kernel of a form for the elements of an array of float32 or float64 that is contiguous and aligned; None for any other one."""
    dtype = _FLOATING.get(x.dtype)
    return None if dtype is None or not (x.flags.c_contiguous and x.flags.aligned) else kernel(form, dtype)


def elementwise(form: str, evaluate: Callable[[Any], Any], x: Any) -> Any:
    """`evaluate(x)`, by the kernel of a form for arrays of at least 256 elements: which of them computes is decided by the size alone, so
    that equal arrays have equal results."""
    if not isinstance(x, np.ndarray) or x.size < LEAST or x.dtype not in _FLOATING:
        return evaluate(x)
    run = kernel(form, _FLOATING[x.dtype])
    if run is None:
        return evaluate(x)
    if not (x.flags.forc and x.flags.aligned):
        x = x.copy(order="K")
    out = np.empty_like(x)
    run(out, x, x.size)
    return out


MANY: Final = 1 << 12  # elements


def reduced_rows(form: str, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """What the kernel of a form makes of each row of an array of at least `MANY` elements, the last dimensions being `dims`; None for
    other arrays.  Its order of additions is that of programs (loops/language.py, `Reduce`)."""
    before = x.ndim - len(dims)
    if x.size < MANY or not isinstance(x, np.ndarray) or dims != tuple(range(before, x.ndim)):
        return None
    run = floating(form, x)
    if run is None:
        return None
    shape = x.shape[:before]
    out = np.empty((*shape, *(1,) * len(dims)) if keepdim else shape, x.dtype)
    run(out, x, out.size, x.size // out.size)
    return out


def has_dtype(x: Any) -> bool:
    """Whether an array has a dtype of which there are fused kernels."""
    return x.dtype in _FLOATING


def run_fused(form: Fused, tensors: Sequence[Any], numbers: Sequence[Any], microseconds: float | None = None) -> list[Any] | None:
    """The results of a form, arrays, of arrays of one shape and dtype and of numbers.  None where there is no kernel.  microseconds: those
    of `repaying`, where NumPy gives the same bits."""
    first = np.asarray(tensors[-1])
    dtype = _FLOATING.get(first.dtype)
    if dtype is None:
        return None
    run = kernel(form, dtype) if microseconds is None else repaying(form, dtype, microseconds)
    if run is None:
        return None
    if not (first.flags.forc and first.flags.aligned):
        first = first.copy(order="K")
    arrays = [_laid_out_like(first, x) for x in tensors[:-1]]
    out = [np.empty_like(first) for _ in range(form.results)]
    run(*out, *arrays, first, *[np.array(x, np.float64) for x in numbers], first.size)
    return out


def _laid_out_like(first: Any, x: Any) -> Any:
    """`x`, or a copy of it where it does not lie in memory as `first` does."""
    if isinstance(x, np.ndarray) and x.strides == first.strides and x.flags.aligned:
        return x
    out = np.empty_like(first)
    np.copyto(out, x)
    return out
