"""float16 and bfloat16 in machine code: stored as 16-bit integers, computed with as float32.

Conversions are integer operations and one product or sum that is exact or rounds to nearest even, on vectors of any length: the same
bits on every machine, and no symbol of a compiler's run-time library (which programs that are loaded from a cache could not call).
This module knows how one operation is written and nothing of loops.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType, converted

__all__ = ["narrow", "reduced_constant", "widen"]

_HALF_INFINITY: Final = 143 << 23  # 65536.0: from here on float16 has infinities
_HALF_NORMAL: Final = 113 << 23  # 2**-14, the least normal number of float16
_SUBNORMAL: Final = 126 << 23  # 0.5, whose unit in the last place is that of subnormal float16


def reduced_constant(value: Any, dtype: DType) -> str:
    """The bits of a number as a reduced dtype."""
    return str(int(converted(np.asarray(value, np.float32), dtype).view(np.int16)))


class _Lanes:
    """Emission on vectors of one length."""

    def __init__(self, code: Any, lanes: int) -> None:
        self.code = code
        self.lanes = lanes
        self.i16, self.i32, self.f32, self.i1 = (self.vector(element) for element in ("i16", "i32", "float", "i1"))

    def vector(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def op(self, text: str) -> str:
        name: str = self.code.op(text)
        return name

    def number(self, value: int) -> str:
        return str(value) if self.lanes == 1 else f"splat (i32 {value})"

    def real(self, value: str) -> str:
        return value if self.lanes == 1 else f"splat (float {value})"

    def i(self, operation: str, x: str, y: int | str) -> str:
        """An integer operation with a number or a value."""
        return self.op(f"{operation} {self.i32} {x}, {self.number(y) if isinstance(y, int) else y}")

    def select(self, condition: str, x: str, y: int | str) -> str:
        text = self.number(y) if isinstance(y, int) else y
        return self.op(f"select {self.i1} {condition}, {self.i32} {x}, {self.i32} {text}")

    def bits(self, x: str) -> str:
        return self.op(f"bitcast {self.f32} {x} to {self.i32}")

    def value(self, x: str) -> str:
        return self.op(f"bitcast {self.i32} {x} to {self.f32}")


def widen(code: Any, source: DType, lanes: int, x: str) -> str:
    """The float32 that has the value of `x`."""
    n = _Lanes(code, lanes)
    wide = n.op(f"zext {n.i16} {x} to {n.i32}")
    if source is dtypes.bfloat16:
        return n.value(n.i("shl", wide, 16))
    sign = n.i("shl", n.i("and", wide, 0x8000), 16)
    magnitude = n.i("and", wide, 0x7FFF)
    # exponent and mantissa in their places: a product with 2**112 makes up for the other bias, of subnormal numbers as well
    scaled = n.bits(n.op(f"fmul {n.f32} {n.value(n.i('shl', magnitude, 13))}, {n.real('0x46F0000000000000')}"))
    special = n.op(f"icmp uge {n.i32} {magnitude}, {n.number(0x7C00)}")  # infinities and NaN have the greatest exponent here too
    return n.value(n.i("or", n.select(special, n.i("or", scaled, 0x7F800000), scaled), sign))


def narrow(code: Any, target: DType, lanes: int, x: str) -> str:
    """The float32 `x` rounded to nearest, ties to even."""
    n = _Lanes(code, lanes)
    bits = n.bits(x)
    if target is dtypes.bfloat16:
        odd = n.i("and", n.i("lshr", bits, 16), 1)
        rounded = n.i("lshr", n.i("add", n.i("add", bits, 0x7FFF), odd), 16)
        quiet = n.i("or", n.i("lshr", bits, 16), 0x40)
        result = n.select(n.op(f"fcmp uno {n.f32} {x}, {x}"), quiet, rounded)
        return n.op(f"trunc {n.i32} {result} to {n.i16}")
    magnitude = n.i("and", bits, 0x7FFFFFFF)
    sign = n.i("and", n.i("lshr", bits, 16), 0x8000)
    odd = n.i("and", n.i("lshr", magnitude, 13), 1)
    normal = n.i("lshr", n.i("add", n.i("add", magnitude, 0xFFF - (112 << 23)), odd), 13)
    # a sum with 0.5 rounds where the last bit of a subnormal float16 is
    sum_ = n.bits(n.op(f"fadd {n.f32} {n.value(magnitude)}, {n.real('0x3FE0000000000000')}"))
    result = n.select(n.op(f"icmp ult {n.i32} {magnitude}, {n.number(_HALF_NORMAL)}"), n.i("sub", sum_, _SUBNORMAL), normal)
    result = n.select(n.op(f"icmp uge {n.i32} {magnitude}, {n.number(_HALF_INFINITY)}"), n.number(0x7C00), result)
    result = n.select(n.op(f"icmp ugt {n.i32} {magnitude}, {n.number(0x7F800000)}"), n.number(0x7E00), result)
    return n.op(f"trunc {n.i32} {n.i('or', result, sign)} to {n.i16}")
