"""The random number generator: Philox4x32-10, and the transforms of its bits.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): a keyed function from a
128-bit counter to four 32-bit words, with no state between calls.  Element i of a draw depends on the key, the counter at which the draw
begins, and i: not on shape or on how the work is cut up.

The transforms use only operations on bits, + - * / and sqrt, in one fixed order in float64, so that a kernel gets the same bits as this
module.  The polynomials for the logarithm and for sine and cosine are those of FDLIBM (e_log.c, k_sin.c, k_cos.c, Sun Microsystems 1993).

Layout: words 0-3 belong to block 0, 4-7 to block 1 ...  Narrow elements (float32) use one word, wide ones two, low word first.  Normal
numbers come in pairs (Box-Muller): an even element is the cosine of its pair, the odd one after it the sine.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

__all__ = ["DRAWS", "blocks_for", "exponential", "normal", "positive_integers", "uniform", "words"]

Array = np.ndarray[Any, Any]
M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = 0x9E3779B9, 0xBB67AE85
MASK = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)
CHUNK = 1 << 12  # blocks computed at a time: their intermediate values fit the second-level cache
FEW = 8  # up to so many blocks, Python's own integers are faster than arrays


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """Ten rounds.  The counter's words are uint64 arrays (or scalars) below 2**32, and so are the results."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (p1 >> SHIFT) ^ c1 ^ np.uint64(k0), p1 & MASK, (p0 >> SHIFT) ^ c3 ^ np.uint64(k1), p0 & MASK
        k0, k1 = (k0 + W0) & 0xFFFFFFFF, (k1 + W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


def _one_block(counter: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """`philox` over Python's integers."""
    c0, c1, c2, c3 = counter & 0xFFFFFFFF, counter >> 32, 0, 0
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + W0) & 0xFFFFFFFF, (k1 + W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


def blocks_for(count: int, wide: bool) -> int:
    """How many counter values a draw of `count` elements uses."""
    return -(-count // numbers_in_block(wide))


def numbers_in_block(wide: bool) -> int:
    """How many elements one counter value gives."""
    return 2 if wide else 4


def words(seed: int, offset: int, blocks: int) -> Array:
    """uint64[blocks, 4]: the 32-bit words of counters offset, offset + 1, ... (64 bits, the upper 64 being 0), keyed by `seed`."""
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    if blocks <= FEW:
        first = offset & 0xFFFFFFFFFFFFFFFF
        return np.array([_one_block((first + i) & 0xFFFFFFFFFFFFFFFF, *key) for i in range(blocks)], np.uint64).reshape(blocks, 4)
    out = np.empty((blocks, 4), np.uint64)
    for start in range(0, blocks, CHUNK):
        stop = min(start + CHUNK, blocks)
        index = np.arange(start, stop, dtype=np.uint64) + np.uint64(offset & 0xFFFFFFFFFFFFFFFF)
        zero = np.zeros_like(index)
        for column, word in enumerate(philox((index & MASK, index >> SHIFT, zero, zero), key)):
            out[start:stop, column] = word
    return out


def _wide(bits: Array) -> Array:
    """Pairs of words as 64-bit numbers."""
    pairs = bits.reshape(-1, 2)
    return pairs[:, 0] | (pairs[:, 1] << SHIFT)


def uniform(seed: int, offset: int, count: int, double: bool) -> Array:
    """Multiples of 2**-24 (float32) or 2**-53 (float64) in [0, 1)."""
    bits = words(seed, offset, blocks_for(count, double))
    if double:
        return ((_wide(bits)[:count] >> np.uint64(11)).astype(np.float64)) * 2.0**-53
    return (bits.reshape(-1)[:count] >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)


def positive_integers(seed: int, offset: int, count: int) -> Array:
    """int64 numbers in [0, 2**63)."""
    return (_wide(words(seed, offset, blocks_for(count, True)))[:count] >> np.uint64(1)).astype(np.int64)


def normal(seed: int, offset: int, count: int, double: bool) -> Array:
    """Standard normal numbers, float64 or (rounded from float64) float32.

    The radius comes from a number in (0, 1], a multiple of 2**-32 (float32: at most 6.7 standard deviations) or 2**-53 (8.6)."""
    blocks = blocks_for(count, double)
    pairs = 1 if double else 2
    out = np.empty((blocks * pairs, 2), np.float64 if double else np.float32)
    for start in range(0, blocks, CHUNK):
        stop = min(start + CHUNK, blocks)
        bits = words(seed, offset + start, stop - start)
        out[start * pairs : stop * pairs] = _pairs_of_normals(
            (_wide(bits) >> np.uint64(11) if double else bits).reshape(-1, 2), 53 if double else 32
        )
    return out.reshape(-1)[:count]


def exponential(seed: int, offset: int, count: int, double: bool) -> Array:
    """Exponential numbers of rate 1, positive ones, float64 or (rounded from float64) float32: -log of a number in (0, 1), an odd
    multiple of 2**-33 (float32: at most 22.9) or 2**-53 (36.7)."""
    blocks = blocks_for(count, double)
    out = np.empty((blocks, 2 if double else 4), np.float64 if double else np.float32)
    for start in range(0, blocks, CHUNK):
        stop = min(start + CHUNK, blocks)
        bits = words(seed, offset + start, stop - start)
        whole = (_wide(bits) >> np.uint64(12)).reshape(-1, 2) if double else bits
        out[start:stop] = logarithm((whole.astype(np.float64) + 0.5) * 2.0 ** -(52 if double else 32)) * -1.0
    return out.reshape(-1)[:count]


DRAWS: Final = {
    "uniform": uniform,
    "normal": normal,
    "exponential": exponential,
    "integers": lambda seed, offset, count, double: positive_integers(seed, offset, count),
}
"""The draws by their form: functions of seed, counter, how many, and whether they are float64."""


def _pairs_of_normals(bits: Array, precision: int) -> Array:
    """Box and Muller's transform of pairs of integers below 2**precision."""
    unit = 2.0**-precision
    radius = np.sqrt(-2.0 * logarithm((bits[:, 0] + np.uint64(1)).astype(np.float64) * unit))
    cosine, sine = circle(bits[:, 1].astype(np.float64) * unit)
    out = np.empty(bits.shape, np.float64)
    np.multiply(radius, cosine, out=out[:, 0])
    np.multiply(radius, sine, out=out[:, 1])
    return out


LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
LOG = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
SIN = (
    -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04, 2.75573137070700676789e-06,
    -2.50507602534068634195e-08, 1.58969099521155010221e-10,
)  # fmt: skip
COS = (
    4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05, -2.75573143513906633035e-07,
    2.08757232129817482790e-09, -1.13596475577881948265e-11,
)  # fmt: skip


def _horner(x: Array, coefficients: tuple[float, ...]) -> Array:
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total  # type: ignore[no-any-return]


def logarithm(x: Array) -> Array:
    """log of positive normal float64 numbers, within 1 ulp: x = 2**k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), s = f / (2 + f)."""
    bits = x.view(np.int64)
    k = (bits + 0x95F6400000000) >> 52
    exponent = (k - 1023).astype(np.float64)
    f = (bits - ((k - 1023) << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    square = s * s
    half = 0.5 * f * f
    tail = square * _horner(square, LOG)
    return exponent * LN2_HIGH - ((half - (s * (half + tail) + exponent * LN2_LOW)) - f)


def circle(turns: Array) -> tuple[Array, Array]:
    """(cosine, sine) of an angle given in turns in [0, 1), within 1 ulp: the nearest eighth-turn symmetric quadrant, then polynomials."""
    quarters = turns * 4.0
    quadrant = (quarters + 0.5).astype(np.int64)
    x = (quarters - quadrant.astype(np.float64)) * 1.5707963267948966
    square = x * x
    s = x + (x * square) * _horner(square, SIN)
    c = 1.0 - (0.5 * square - square * square * _horner(square, COS))
    odd = (quadrant & 1) == 1
    cosine, sine = np.where(odd, s, c), np.where(odd, c, s)
    return np.where(((quadrant + 1) & 2) == 2, -cosine, cosine), np.where((quadrant & 2) == 2, -sine, sine)
