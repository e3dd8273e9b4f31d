"""What counts as a number, and which number it is.

Operations compute with exact bools, ints and floats of Python.  Whatever else stands for a number (subclasses such as the members of an
IntEnum, NumPy's scalars, of which numpy.float64 is a subclass of float) becomes one where it comes in, so nothing behind the door meets it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracejit.core.symbolic import SYMBOLIC, active, without_symbols

__all__ = ["NUMBERS", "PLAIN", "plain_number", "settled"]

PLAIN: Final = frozenset((bool, int, float))
"""The types of numbers behind the door."""
NUMBERS: Final = PLAIN | SYMBOLIC
"""The same, and of those that are computed of symbolic sizes."""


def plain_number(x: Any) -> bool | int | float | None:
    """The bool, int or float that `x` stands for; None if it is no real number.  Neither a method nor `__class__` of `x` is asked.
    Numbers computed of symbolic sizes stay what they are while notes are taken of them."""
    kind = type(x)
    if kind in PLAIN:
        return x  # type: ignore[no-any-return]
    if kind in SYMBOLIC:
        return x if active(x) else without_symbols(x)  # type: ignore[no-any-return]
    if issubclass(kind, np.generic):
        code = x.dtype.kind
        return bool(x) if code == "b" else int(x) if code in "iu" else float(x) if code == "f" else None
    if issubclass(kind, int):
        return int.__int__(x)
    return float.__float__(x) if issubclass(kind, float) else None


def settled(x: Any) -> Any:
    """The plain number for one, anything else as it is."""
    number = plain_number(x)
    return x if number is None else number
