"""What the loop language has and Numba has not, as functions that Numba compiles: `loops/numba.py` copies their source into its modules.

So a function here uses what every such module has imported, and others of this file, and nothing else.  It says what `loops/evaluate.py`
says, to the bit.  Integers narrower than 64 bits become wider in Numba's arithmetic, hence `type(x)(...)` around results; of int64 it
assumes that sums, differences and products do not overflow, and of uint64 it does not.  The last few prepare the memory of arrays,
or compute with whole arrays, and are plain Python.
"""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, check-untyped-defs=False

from __future__ import annotations

import numpy as np
from numpy import float32, float64, int32, int64, uint16, uint32, uint64

from tracejit.loops.language import LANES

__all__ = [
    "add", "add_block", "add_block_exactly", "beats", "convolve", "corrected_sum", "elements", "expect", "extreme_position",
    "float_floor_divide", "float_remainder", "floor_divide", "fmod", "integer_power", "ldexp_float32", "ldexp_float64", "maximum",
    "memory", "minimum", "mul", "narrow_bfloat16", "narrow_float16", "remainder", "shl", "shr", "sub", "sum_of_lanes",
    "truncated_int32", "truncated_int64", "unsigned_minimum", "widen_bfloat16", "widen_float16",
]  # fmt: skip


def add(x, y):
    return int64(uint64(x) + uint64(y))


def sub(x, y):
    return int64(uint64(x) - uint64(y))


def mul(x, y):
    return int64(uint64(x) * uint64(y))


def maximum(x, y):
    return x if x > y or x != x else y


def minimum(x, y):
    return x if x < y or x != x else y


def unsigned_minimum(x, y):
    return x if uint64(x) < uint64(y) else y


def shl(x, y, bits):
    return type(x)(x << y) if y >= 0 and y < bits else type(x)(0)


def shr(x, y, bits):
    return type(x)(x >> y) if y >= 0 and y < bits else type(x)(-1 if x < 0 else 0)


def floor_divide(x, y):
    if y == 0:
        return type(x)(0)
    return type(x)(-x if y == -1 else x // y)


def remainder(x, y):
    return type(x)(0 if y == 0 or y == -1 else x % y)


def fmod(x, y):
    """The remainder with the sign of the dividend."""
    rest = remainder(x, y)
    return type(x)(rest - y if rest != 0 and (rest < 0) != (x < 0) else rest)


def float_remainder(x, y):
    """As NumPy's npy_divmod."""
    rest = np.fmod(x, y)
    if y == 0:
        return rest
    if rest == 0:
        return np.copysign(type(x)(0), y)
    return rest + y if (y < 0) != (rest < 0) else rest


def float_floor_divide(x, y):
    """As NumPy's npy_divmod."""
    if y == 0:
        return x / y
    rest = np.fmod(x, y)
    quotient = (x - rest) / y
    if rest != 0 and (y < 0) != (rest < 0):
        quotient = quotient - type(x)(1)
    if quotient == 0:
        return np.copysign(type(x)(0), x / y)
    floor = np.floor(quotient)
    return floor + type(x)(1) if quotient - floor > 0.5 else floor


def integer_power(x, y):
    if y < 0:
        return type(x)(0 if x != 1 and x != -1 else x if y & 1 else 1)
    result, base, exponent = uint64(1), uint64(x), int64(y)
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return type(x)(result)


def ldexp_float32(x, k):
    half = k >> 1
    return x * uint32((half + 127) << 23).view(float32) * uint32((k - half + 127) << 23).view(float32)


def ldexp_float64(x, k):
    half = k >> 1
    return x * int64((half + 1023) << 52).view(float64) * int64((k - half + 1023) << 52).view(float64)


def truncated_int32(x):
    """The integer part; the least integer for what has none in 32 bits."""
    return int32(x) if x >= -2147483648.0 and x < 2147483648.0 else int32(-2147483648)


def truncated_int64(x):
    return int64(x) if x >= -9223372036854775808.0 and x < 9223372036854775808.0 else int64(-9223372036854775808)


def widen_bfloat16(x):
    """The float32 that has the value of these bits."""
    return uint32(int64(x) << 16).view(float32)


def widen_float16(x):
    magnitude = int64(x) & 0x7FFF
    scaled = uint32(magnitude << 13).view(float32) * float32(2.0**112)
    bits = int64(float32(scaled).view(uint32)) | (0x7F800000 if magnitude >= 0x7C00 else 0)
    return uint32(bits | (int64(x) & 0x8000) << 16).view(float32)


def narrow_bfloat16(x):
    """The bits of a float32 rounded to nearest, ties to even."""
    bits = int64(float32(x).view(uint32))
    return uint16(bits >> 16 | 0x40 if x != x else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def narrow_float16(x):
    bits = int64(float32(x).view(uint32))
    magnitude = bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        result = 0x7E00
    elif magnitude >= 143 << 23:
        result = 0x7C00
    elif magnitude < 113 << 23:  # a sum with 0.5 rounds where the last bit of a subnormal float16 is
        total = uint32(magnitude).view(float32) + float32(0.5)
        result = int64(float32(total).view(uint32)) - (126 << 23)
    else:
        result = (magnitude + 0xFFF - (112 << 23) + (magnitude >> 13 & 1)) >> 13
    return uint16(result | bits >> 16 & 0x8000)


def add_block(block, totals):
    """Add the sums of a block to the totals of the lanes, and begin the next one."""
    for k in range(LANES):
        totals[k] += block[k]
        block[k] = 0


def add_block_exactly(block, totals, errors):
    """The same; the errors of these additions are kept."""
    for k in range(LANES):
        total, value = totals[k], block[k]
        new = total + value
        seen = new - total
        errors[k] += (total - (new - seen)) + (value - seen)
        totals[k] = new
        block[k] = 0


def sum_of_lanes(totals):
    half = LANES // 2
    while half:
        for k in range(half):
            totals[k] += totals[k + half]
        half //= 2
    return totals[0]


def corrected_sum(totals, errors):
    for k in range(LANES):
        if errors[k] == errors[k]:  # an infinite sum has no meaningful error
            totals[k] += errors[k]
    return sum_of_lanes(totals)


def beats(new, old, beyond):
    return beyond(new, old) or (new != new and old == old)


def extreme_position(values, positions, beyond):
    """The first position of the extreme of all lanes; NaN counts as extreme."""
    half = LANES // 2
    while half:
        for k in range(half):
            new, old = values[k + half], values[k]
            equal = new == old or (new != new and old != old)
            if beats(new, old, beyond) or (equal and positions[k + half] < positions[k]):
                values[k] = new
                positions[k] = positions[k + half]
        half //= 2
    return positions[0]


# --- plain Python


def expect(array, dtype, shape, strides):
    """Raises ValueError for another array than kernels were made for: they would look for its elements outside of its memory."""
    same = array.dtype == dtype and array.shape == shape
    if not same or any(a != b for n, a, b in zip(shape, array.strides, strides, strict=True) if array.size > 0 and n > 1):
        found = f"{array.dtype} of shape {array.shape} and strides {array.strides}"
        raise ValueError(f"expected an array of {np.dtype(dtype)} of shape {shape} and strides {strides}, got {found}")


def memory(array):
    """The bytes that an array lies in, from the lowest address on."""
    if array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8)
    ascending = array[tuple([slice(None, None, -1) if step < 0 else slice(None) for step in array.strides])]
    size = array.size and array.itemsize + sum((n - 1) * step for n, step in zip(ascending.shape, ascending.strides, strict=True))
    return np.lib.stride_tricks.as_strided(ascending, (size // array.itemsize,), (array.itemsize,)).view(np.uint8)


def elements(bytes_, start, dtype):
    """Memory as elements of a dtype, from a byte on."""
    rest, size = bytes_[start:], np.dtype(dtype).itemsize
    return rest[: len(rest) // size * size].view(dtype)


def convolve(kernel, a, b, c, words):
    """What a kernel of convolutions computes, tap by tap.  words: see core/convolutions.py."""
    groups, rows, channels, taps, images, _ = words[:6]
    counts, steps, sizes = words[6:9], words[9:12], words[12:15]
    source, left, target = words[15:21], words[21:24], words[24:30]

    def places(strides, *extents):
        return sum(np.ix_(*[np.arange(n) * stride for n, stride in zip(extents, strides, strict=True)]))

    at = np.indices(counts).reshape(3, -1)
    columns = places(target[:3], groups, images, rows)[..., None] + np.dot(target[3:], at)
    total = np.zeros(columns.shape, b.dtype)
    for tap in range(taps):
        first, *moves = words[30 + 4 * tap : 34 + 4 * tap]
        there = [own * step + move for own, step, move in zip(at, steps, moves, strict=True)]
        inside = np.logical_and.reduce([(position >= 0) & (position < size) for position, size in zip(there, sizes, strict=True)])
        position = np.where(inside, sum(own * stride for own, stride in zip(there, source[3:], strict=True)), 0)
        windows = np.where(inside, b[places(source[:3], groups, images, channels)[..., None] + position], b.dtype.type(0))
        factors = places(left, groups, rows, channels) + first
        if kernel.endswith("weight"):
            c[factors] = np.matmul(a[columns], windows.swapaxes(-1, -2)).sum(1)
        else:
            total += np.matmul(a[factors][:, None], windows)
    if not kernel.endswith("weight"):
        c[columns] = total
