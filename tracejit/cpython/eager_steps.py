"""Elementwise operations of eager mode in machine code: from objects that hold arrays to a new one.

NumPy takes some 0.3 us to find out which of its loops computes an elementwise operation, and Python some more to take the arrays out of
their owners and to make one of the result.  For operands that need none of that - owners of row-major arrays of one dtype and one
shape, arrays of one element without dimensions, Python's numbers - a step calls the very loop that NumPy would call, on an array that it
makes, and so gives the same bits.  Where anything else is to be done it answers None, before anything has happened.

`ufunc_loops` reads the table of loops of a ufunc (PyUFuncObject, a public struct); each loop is compared with NumPy's own evaluation before
the first use.  Loops do not look at the floating-point status, so nothing is said of overflows or divisions by zero.

Must not know: the class of the owners, which `Owners` (core/kernels.py) describes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from tracejit.core.floating import quietly
from tracejit.core.kernels import Owners, Step
from tracejit.cpython import arrays, c_api
from tracejit.cpython.arrays import HEADER
from tracejit.cpython.builtin_functions import FASTCALL, builtin_function
from tracejit.cpython.eager_step_text import FLOAT32, FLOAT64, INT64, NO_NUMBERS, SYMBOL, step_text, view_text
from tracejit.cpython.linking import link
from tracejit.cpython.memory_reads import CheckedMemory, Unreadable

__all__ = ["make_choice", "make_fused_step", "make_step", "make_view", "ufunc_loops"]


# --- the loops of a ufunc

_FUNCTIONS, _PARAMETERS, _COUNT, _TYPES = HEADER + 16, HEADER + 24, HEADER + 32, HEADER + 48  # PyUFuncObject


@cache
def ufunc_loops(ufunc: Any) -> dict[str, tuple[int, int]]:
    """The loops of a ufunc: its types as `ufunc.types` has them -> (address of the function, what it is handed).  Of several of the same
    types it is the first, which NumPy calls.  Empty where the object does not look as it should."""
    with CheckedMemory() as peek:
        try:
            base = id(ufunc)
            numbers = struct.unpack("=3i", peek.bytes(base + HEADER, 12))
            count = struct.unpack("=i", peek.bytes(base + _COUNT, 4))[0]
            if numbers != (ufunc.nin, ufunc.nout, ufunc.nargs) or count != ufunc.ntypes or ufunc.signature is not None:
                return {}
            codes = peek.bytes(peek.word(base + _TYPES), count * ufunc.nargs)
            functions, parameters = peek.word(base + _FUNCTIONS), peek.word(base + _PARAMETERS)
            found = [(peek.word(functions + 8 * i), peek.word(parameters + 8 * i) if parameters else 0) for i in range(count)]
        except Unreadable:
            return {}
    given = codes.translate(_TO_CHARACTERS).decode("latin-1")
    if "".join(ufunc.types).replace("->", "") != given:
        return {}
    loops: dict[str, tuple[int, int]] = {}
    for types, loop in zip(ufunc.types, found, strict=True):
        loops.setdefault(types, loop)
    return {types: loop for types, loop in loops.items() if loop[0]}


_CHARACTERS: Final = "?bBhHiIlLqQfdgFDGOSUVMme"  # of NumPy's types, in the order of their numbers
_TO_CHARACTERS: Final = bytes.maketrans(bytes(range(len(_CHARACTERS))), _CHARACTERS.encode())


# --- steps

_KINDS: Final = {np.dtype(np.float32): FLOAT32, np.dtype(np.float64): FLOAT64, np.dtype(np.int64): INT64}
_ANY: Final = (1 << 63) - 1  # elements: no limit
_FEW: Final = 1 << 11  # elements, up to which `choose` is faster than NumPy


def make_step(owners: Owners, ufunc: Any, dtypes: Iterable[Any], takes_numbers: bool, most: int | None = None) -> Step | None:
    """`step(*operands)` of as many operands as a ufunc has, one or two: an owner of the result, of arrays of one of these dtypes of
    NumPy's, or None.  takes_numbers: a number of Python beside an array takes its dtype; but a float beside integers does not, and nothing
    beside bools.  most: of more elements the answer is None.

    None where objects do not lie in memory as expected, or the ufunc has no loop for any of the dtypes."""
    if arrays.unknown_layout() or not c_api.supported() or ufunc.nin not in (1, 2) or ufunc.nout != 1:
        return None
    found = [(dtype, row) for dtype in dtypes if (row := _row(ufunc, dtype, takes_numbers, most)) is not None]
    if not found:
        return None
    address, head, owner = _code(owners, ufunc.nin, None)
    words = [*head, len(found), *[word for _, row in found for word in row]]
    packed = struct.pack(f"={len(words)}q", *words)
    step: Step = builtin_function(ufunc.__name__, address, FASTCALL, (packed, ufunc, owner))
    return step if all(_agrees(step, owners, ufunc, dtype) for dtype, _ in found) else None


def _row(ufunc: Any, dtype: Any, takes_numbers: bool, most: int | None) -> tuple[int, ...] | None:
    """What a step knows of a dtype, in words (eager_step_text.py); None where the ufunc has no loop for it.  NumPy's own dtypes live as
    long as NumPy does."""
    for types, (function, parameters) in ufunc_loops(ufunc).items():
        given, _, result = types.partition("->")
        if all(np.dtype(c).num == dtype.num for c in given):
            made = np.dtype(result)
            kind = _KINDS.get(dtype, NO_NUMBERS) if takes_numbers else NO_NUMBERS
            return id(dtype), id(made), function, parameters, kind, made.itemsize, dtype.itemsize, 0, most or _ANY
    return None


def make_choice(owners: Owners) -> Step | None:
    """`step(condition, x, y)`, likewise: elements of x where the condition holds, of y elsewhere, if there are few."""
    if arrays.unknown_layout() or not c_api.supported():
        return None
    address, head, owner = _code(owners, 3, None)
    rows: list[tuple[int, ...]] = [
        (id(d), id(d), 0, d.itemsize, _KINDS.get(d, NO_NUMBERS), d.itemsize, d.itemsize, 0, _FEW) for d in (_BOOL, *_KINDS)
    ]
    words = [*head, len(rows), *[word for row in rows for word in row]]
    step: Step = builtin_function("where", address, FASTCALL, (struct.pack(f"={len(words)}q", *words), owner))
    return step


_BOOL: Any = np.dtype(np.bool_)


def make_fused_step(owners: Owners, tensors: int, numbers: int, kernels: Mapping[Any, Any], least: int) -> Step | None:
    """`step(*tensors, *numbers)`, likewise, of owners of arrays of one shape and of numbers, by kernels (llvm/eager_kernels.py): dtype of
    NumPy's -> one for that.  least: of fewer elements the answer is None."""
    rows = [
        (id(dtype), id(dtype), kernel(), 0, FLOAT64, dtype.itemsize, dtype.itemsize, least, _ANY)
        for dtype, kernel in kernels.items()
    ]
    address, head, owner = _code(owners, tensors, numbers)
    words = [*head, len(rows), *[word for row in rows for word in row]]
    packed = struct.pack(f"={len(words)}q", *words)
    step: Step = builtin_function("fused", address, FASTCALL, (packed, tuple(kernels.values()), owner))
    return step


@cache
def _code(owners: Owners, tensors: int, numbers: int | None) -> tuple[int, tuple[int, ...], Any]:
    """(the address of the code of a step, the words that it begins with, what must stay alive)."""
    offsets = c_api.slot_offsets(owners.kind)
    slot, kind, inner = owners.storage
    text = step_text(
        tensors,
        numbers,
        {name: offsets[name] for name in (owners.array, owners.root, owners.seen, owners.flag, slot)},
        c_api.slot_offsets(kind)[inner],
        owners,
        [(offsets[name], i) for i, (name, _) in enumerate(owners.fresh)],
    )
    values = [owners.kind, np.ndarray, None, True, False, float, int, (), *[value for _, value in owners.fresh]]
    address, owner = link(text, SYMBOL, computes=True)
    return address, tuple(map(id, values)), (owner, values)


def _agrees(step: Step, owners: Owners, ufunc: Any, dtype: Any) -> bool:
    """Whether a step gives the bits that NumPy gives: of few elements and of many, and of numbers beside arrays."""
    for size in (1, 5, 67):
        values = (np.arange(size) * 0.7391 % 7.3 - 2.1).astype(dtype)
        others = (np.arange(size) * 0.3713 % 5.1 + 1.0).astype(dtype)
        cases: list[tuple[Any, ...]] = (
            [(values,)] if ufunc.nin == 1 else [(values, others), (values, others[0]), (values[0], others)]
        )
        for case in cases:
            given = [np.asarray(x) for x in case]
            expected = np.asarray(quietly(ufunc, *given))
            numbers = [x.item() if x.ndim == 0 else owners.make(x) for x in given]
            for made in (step(*map(owners.make, given)), step(*numbers)):
                if made is None and any(x.ndim == 0 for x in given):
                    continue
                found = getattr(made, owners.array, None)
                if found is None or found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
                    return False
    return True


# --- views


def make_view(owners: Owners) -> Step | None:
    """`view(array)`: a new owner of an array, or of what np.asarray makes of something else.  `view(owner, array)` and
    `view(owner, array, step)`: one of an array that shares the memory of another owner, and so its storage; a view of its root, a step
    further, if a step is given; or None where the position of `owner` is out of date.  None instead of a function where objects do not
    lie in memory as expected."""
    if arrays.unknown_layout() or not c_api.supported():
        return None
    slots = c_api.slot_offsets(owners.kind)
    _, storage, version = owners.storage
    inside = c_api.slot_offsets(storage)
    filled = (owners.array, owners.flag, owners.root, owners.storage[0])
    fresh = [(slots[name], value) for name, value in owners.fresh if name not in filled]
    begun = [(inside[name], value) for name, value in owners.begun]
    objects = [
        owners.kind,
        storage,
        None,
        False,
        (),
        np.ndarray,
        np.asarray,
        *[value for _, value in fresh],
        *[value for _, value in begun],
    ]
    names = {name: slots[name] for name in (*filled, owners.seen, owners.chain)}
    places = [offset for offset, _ in fresh], [offset for offset, _ in begun]
    address, owner = link(view_text(owners, names, inside[version], *places), SYMBOL, computes=True)
    packed = struct.pack(f"={len(objects)}q", *map(id, objects))
    view: Step = builtin_function("view", address, FASTCALL, (packed, owner, objects))
    return view
