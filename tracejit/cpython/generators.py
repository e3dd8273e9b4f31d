"""Where generators of random numbers, of Python and NumPy, have their state in memory.

Their own methods make numbers of a state, 625 of a Mersenne twister; its memory is copied in a tenth of a microsecond.  Places are those of
structs of CPython and NumPy.  Before a kind of generator is used for the first time they are verified on live ones: what is copied from one
to another must give that the same state.  Where the kind is not known, or a position is not the expected one, there is no answer.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from tracejit.cpython.c_api import supported, word

__all__ = ["bit_generator", "state_memory"]

_TWISTER: Final = 4 * 624 + 4  # the words and the position among them
_PCG: Final = 32  # the state and the increment, behind a pointer
_HALF: Final = 8  # beside that pointer: half of a draw, and whether there is one


def bit_generator(generator: Any) -> Any:
    """What a generator of NumPy has its bits from; None for one of Python."""
    return None if isinstance(generator, random.Random) else generator._bit_generator


def state_memory(generator: Any) -> tuple[Any, ...] | None:
    """The memory that is the state of a generator, without `gauss_next` of Python's, which is an attribute: arrays of ctypes, whose `raw`
    are the bytes.  It is valid as long as the generator lives and has the same bit generator.  None where it is not known."""
    bits = bit_generator(generator)
    kind: Any = type(generator)
    of_bits: Any = type(bits)
    known = kind in _KINDS and (kind is random.Random or of_bits in _BITS) and supported()
    return _state_parts(generator, bits) if known and _verified(kind, of_bits) else None


def _state_parts(generator: Any, bits: Any) -> tuple[Any, ...]:
    if bits is None:
        return (_memory(id(generator) + object.__basicsize__, _TWISTER),)
    offsets = _BITS[type(bits)](bits.ctypes.state_address)
    kept = _kept_draw() if type(generator) is np.random.RandomState else None
    return offsets if kept is None else (*offsets, _memory(id(generator) + kept - 8, 16))  # with whether there is one


def _memory(address: int, size: int) -> Any:
    return (ctypes.c_char * size).from_address(address)


@cache
def _kept_draw() -> int | None:
    """Where a RandomState keeps the second of two normal draws; None where no offset holds it for several values, or several do."""
    generator = np.random.RandomState(1)
    offsets = set(range(24, np.random.RandomState.__basicsize__ - 7, 8))
    for value in (0.6180339887, -1.4142135623):
        generator.set_state({**generator.get_state(legacy=False), "has_gauss": 1, "gauss": value})
        offsets = {offset for offset in offsets if ctypes.c_double.from_address(id(generator) + offset).value == value}
    return offsets.pop() if len(offsets) == 1 else None


_BITS: Final[dict[type, Callable[[int], tuple[Any, ...]]]] = {
    np.random.MT19937: lambda address: (_memory(address, _TWISTER),),
    np.random.PCG64: lambda address: (_memory(word(address), _PCG), _memory(address + 8, _HALF)),
}
"""The addresses of the states of bit generators, from their addresses."""
_KINDS: Final[dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    random.Random: (lambda made: made.random(), lambda made: made.getstate()[1]),
    np.random.Generator: (lambda made: made.integers(9, dtype=np.int32), lambda made: str(made.bit_generator.state)),
    np.random.RandomState: (lambda made: made.standard_normal(), lambda made: str(made.get_state(legacy=False))),
}
"""What draws once from a generator, such that all parts of its state are used, and what tells the state."""


@cache
def _verified(kind: Any, of_bits: Any) -> bool:
    """Whether what is copied from one live generator to another gives that the same state, after any number of draws."""
    draw, state = _KINDS[kind]
    if kind is np.random.RandomState and _kept_draw() is None:
        return False
    for draws in range(4):
        source, target = (kind(seed) if kind is random.Random else kind(of_bits(seed)) for seed in (11 + draws, 5))
        for _ in range(draws):
            draw(source)
        draw(target)
        before = state(source)
        for to, copied in zip(
            _state_parts(target, bit_generator(target)), _state_parts(source, bit_generator(source)), strict=True
        ):
            to.raw = copied.raw
        if state(target) != before or state(source) != before or draw(target) != draw(source) or state(target) != state(source):
            return False
    return True
