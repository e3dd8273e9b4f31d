"""Operations on the bits of integers; on bools, logic."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.ops.declare import elementwise
from tracejit.ops.samples import bools, cases, integer_binary, integers

__all__ = [
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "require_integers",
]


def _require_bits(name: str, *operands: Any) -> None:
    for x in operands:
        kind = np.asarray(x).dtype.kind
        if kind == "f":
            raise NotImplementedError(
                f"{name}(): expected integer or bool tensors, got {np.asarray(x).dtype}; convert with .long() first"
            )


@elementwise(lambda b, x, y: b.bit_and(x, y), samples=integer_binary(), loops=np.bitwise_and)
def bitwise_and(x: Any, y: Any) -> Any:
    """Elementwise and of bits; logical and of bools.  Raises NotImplementedError for floats."""
    _require_bits("bitwise_and", x, y)
    return np.bitwise_and(x, y)


@elementwise(lambda b, x, y: b.bit_or(x, y), samples=integer_binary(), loops=np.bitwise_or)
def bitwise_or(x: Any, y: Any) -> Any:
    """Elementwise or of bits; logical or of bools.  Raises NotImplementedError for floats."""
    _require_bits("bitwise_or", x, y)
    return np.bitwise_or(x, y)


@elementwise(lambda b, x, y: b.bit_xor(x, y), samples=integer_binary(), loops=np.bitwise_xor)
def bitwise_xor(x: Any, y: Any) -> Any:
    """Elementwise exclusive or of bits; of bools.  Raises NotImplementedError for floats."""
    _require_bits("bitwise_xor", x, y)
    return np.bitwise_xor(x, y)


@elementwise(lambda b, x: b.bit_not(x), samples=cases((integers(4),), (bools(2, 3).T,), (integers(0, 2),)), loops=np.invert)
def bitwise_not(x: Any) -> Any:
    """Elementwise complement of bits; logical not of bools.  Raises NotImplementedError for floats."""
    _require_bits("bitwise_not", x)
    return np.invert(x)


def require_integers(name: str, *operands: Any) -> None:
    """Raises NotImplementedError for operands that are floats or bools."""
    for x in operands:
        if np.asarray(x).dtype.kind not in "iu":
            raise NotImplementedError(
                f"{name}(): expected integer tensors, got {np.asarray(x).dtype}; convert with .long() first"
            )


@elementwise(lambda b, x, y: b.shl(x, y), samples=integer_binary(other_low=0))
def bitwise_left_shift(x: Any, y: Any) -> Any:
    """Elementwise x * 2**y, wrapping; 0 where y is negative or at least the number of bits."""
    require_integers("bitwise_left_shift", x, y)
    return np.left_shift(x, y)


@elementwise(lambda b, x, y: b.shr(x, y), samples=integer_binary(other_low=0))
def bitwise_right_shift(x: Any, y: Any) -> Any:
    """Elementwise x / 2**y rounded down; 0 or -1 by the sign of x where y is negative or at least the number of bits."""
    require_integers("bitwise_right_shift", x, y)
    return np.right_shift(x, y)
