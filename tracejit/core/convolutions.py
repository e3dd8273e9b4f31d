"""Convolutions and their gradients as calls of kernels: which calls, and what sizes and strides they are told.

Of an input (images, channels, *sizes), a weight (outputs, channels of a group, *kernel) and results (images, outputs, *positions), one
is made of the other two: results by "forward", the input's gradient by "input", the weight's gradient by "weight".  `calls` says which
kernels do that, with all that they are told in a block of words; both eager mode and programs go by it, so the two have equal bits.

The kernels themselves are installed from above (`set_kernels`), where the processor has some.  Without them convolutions are what
their expansions say.  This module knows integers and arrays only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product as tuples
from typing import Any, Final, NamedTuple

import numpy as np

from tracejit.core.dtypes import float32, float64
from tracejit.core.shapes import contiguous, element_strides, product
from tracejit.core.symbolic import without_symbols

__all__ = [
    "KERNELS", "TAP", "WORDS", "Call", "Geometry", "Kernels", "are_installed", "arranged", "calls", "computed", "geometry_of", "is_direct",
    "is_readable", "places", "set_kernels",
]  # fmt: skip

Shape = tuple[int, ...]

WORDS: Final = (
    "groups", "rows", "channels", "taps", "images", "positions",
    "count.z", "count.y", "count.x",  # columns of an image along each dimension
    "step.z", "step.y", "step.x",  # from column to column, in positions of the source
    "size.z", "size.y", "size.x",  # of an image of the source
    "source.group", "source.image", "source.channel", "source.z", "source.y", "source.x",
    "left.group", "left.row", "left.channel",
    "target.group", "target.image", "target.row", "target.z", "target.y", "target.x",
)  # fmt: skip
"""What a kernel is told: sizes, then strides in elements.

"product" adds left[row, channel, tap] * source[channel, column + tap] up over channels and taps, for each row and column of the target.
"weight" adds target[row, column] * source[channel, column + tap] up over columns, for each row, channel and tap of the left operand."""
TAP: Final = ("left", "z", "y", "x")
"""Of each tap, behind these: elements from the first one in the left operand, and where it leads, in positions of the source."""
KERNELS: Final = ("product", "weight", "depthwise", "depthwise_weight")
"""The last two are the same for groups of one row and one channel."""
_MOST_TAPS: Final = 1024
_TOGETHER: Final = 514
"""Images at most that a kernel looks at together: offsets from the first one are integers of 32 bits."""
_FARTHEST: Final = 1 << 31
_PLACES: Final = {"forward": (0, 1, 2), "input": (2, 1, 0), "weight": (2, 0, 1)}


class Geometry(NamedTuple):
    """What a convolution is besides its shapes; low: positions before the first one that windows may begin at."""

    steps: Shape
    low: Shape
    gaps: Shape
    groups: int


def geometry_of(attributes: Mapping[str, Any]) -> Geometry:
    """That of a primitive with these attributes."""
    steps, low, gaps = (tuple(attributes[key]) for key in ("steps", "low", "gaps"))
    return Geometry(steps, low, gaps, attributes["groups"])


class Call(NamedTuple):
    """One call of a kernel: its name, the first element of the target that it computes, and its words."""

    kernel: str
    offset: int
    words: tuple[int, ...]


class Kernels(ABC):
    """Where the kernels are."""

    @abstractmethod
    def run(self, kernel: str, dtype: Any, a: int, b: int, c: int, words: int) -> None:
        """Call the kernel of that name for a dtype of NumPy's; all else are addresses: of what is read, of what is made, of the words."""


_install: list[Callable[[], Kernels | None]] = []
_kernels: Kernels | None = None


def set_kernels(make: Callable[[], Kernels | None]) -> None:
    """Have convolutions computed by what `make()` gives, once one asks for it; None where the processor has no kernels."""
    _install[:] = [make]


def _kernels_of_process() -> Kernels | None:
    global _kernels
    if _kernels is None and _install:
        _kernels = _install[0]()
        _install.clear()
    return _kernels


def are_installed() -> bool:
    """Whether there are kernels."""
    return _kernels_of_process() is not None


def is_direct(dtype: Any, shapes: Sequence[Shape]) -> bool:
    """Whether kernels compute a convolution of input, weight and results of these shapes.  Symbolic sizes are none of those that matter."""
    sizes = [without_symbols(n) for shape in shapes for n in shape]
    return (dtype is float32 or dtype is float64) and 0 not in sizes and _fits(shapes) and are_installed()


def _fits(shapes: Sequence[Shape]) -> bool:
    """Whether a kernel's numbers hold what there is to count."""
    images, *others = map(without_symbols, shapes[0])
    results = [without_symbols(n) for n in shapes[2][1:]]
    near = max(product(others), product(results)) * min(images, _TOGETHER) < _FARTHEST
    return near and product(map(without_symbols, shapes[1][2:])) <= _MOST_TAPS


def places(routine: str) -> tuple[int, int, int]:
    """Which of input, weight and results (0, 1, 2) the operands of a routine are, and what it makes."""
    return _PLACES[routine]


def arranged(routine: str, first: Any, second: Any, made: Any) -> tuple[Any, Any, Any]:
    """What belongs to input, weight and results, of what belongs to the operands and the result of a routine."""
    found = [None, None, None]
    for place, x in zip(_PLACES[routine], (first, second, made), strict=True):
        found[place] = x
    return tuple(found)  # type: ignore[return-value]


def _three(sizes: Sequence[int], filled: int) -> Shape:
    """Numbers for z, y and x."""
    return (*(filled,) * (3 - len(sizes)), *sizes)


def calls(
    routine: str, shapes: tuple[Shape, Shape, Shape], strides: tuple[Shape, Shape, Shape], geometry: Geometry
) -> tuple[bool, list[Call]]:
    """(whether all elements of what is made are 0 before, the calls).

    shapes: of input, weight and results; strides, in elements, likewise, those of the weight being row-major."""
    steps, low, gaps, groups = geometry
    (_, _, *sizes), (outputs, channels, *kernel), (images, _, *positions) = shapes
    own, result = strides[0], strides[2]
    taps, rows = product(kernel), outputs // groups
    elements = list(enumerate(tuples(*map(range, kernel))))
    is_single = rows == 1 and channels == 1
    left = rows * channels * taps

    def words(count: Sequence[int], step: Shape, size: Sequence[int], source: Shape, of: Sequence[int], target: Shape,
              turned: bool, own_taps: Sequence[Sequence[int]]) -> tuple[int, ...]:  # fmt: skip
        """turned: rows are channels of the input; of: strides of the target's columns."""
        m, k, row, channel = (channels, rows, taps, channels * taps) if turned else (rows, channels, channels * taps, taps)
        return (
            groups, m, k, len(own_taps), images, product(tuple(count)), *_three(count, 1), *_three(step, 1), *_three(size, 1),
            k * source[1], source[0], source[1], *_three(source[2:], 0), left, row, channel,
            m * target[1], target[0], target[1], *_three(of, product(tuple(count))), *[n for tap in own_taps for n in tap],
        )  # fmt: skip

    if routine != "input":
        moves = [(k, *_three([t * gap - a for t, gap, a in zip(at, gaps, low, strict=True)], 0)) for k, at in elements]
        kernel_name = ("weight" if routine == "weight" else "product") if not is_single else (
            "depthwise_weight" if routine == "weight" else "depthwise"
        )  # fmt: skip
        return False, [Call(kernel_name, 0, words(positions, steps, sizes, own, result[2:], result, False, moves))]
    found: list[Call] = []
    for phase in tuples(*map(range, steps)):  # positions whose remainders by the steps are these: windows with every so many taps
        moves = []
        for k, at in elements:
            apart = [r + a - t * gap for r, a, t, gap in zip(phase, low, at, gaps, strict=True)]
            if all(d % s == 0 for d, s in zip(apart, steps, strict=True)):
                moves.append((k, *_three([d // s for d, s in zip(apart, steps, strict=True)], 0)))
        if moves:
            count = [(n - r + s - 1) // s for n, r, s in zip(sizes, phase, steps, strict=True)]
            apart_there = [x * s for x, s in zip(own[2:], steps, strict=True)]
            offset = sum(r * x for r, x in zip(phase, own[2:], strict=True))
            ones = (1,) * len(steps)
            found.append(
                Call(
                    "depthwise" if is_single else "product",
                    offset,
                    words(count, ones, positions, result, apart_there, own, True, moves),
                )
            )
    return len(found) < product(steps), found


class _Plan(NamedTuple):
    """Calls with the addresses of their words, which `words` owns; clears: whether all of what is made is 0 before."""

    clears: bool
    calls: list[tuple[str, int, int]]
    words: list[Any]


@lru_cache(maxsize=1024)
def _plan(
    routine: str, shapes: tuple[Shape, Shape, Shape], strides: tuple[Shape, Shape, Shape], geometry: Geometry
) -> _Plan | None:
    """The calls that compute a routine of arrays of these shapes and strides; None where kernels do not."""
    if any(0 in shape for shape in shapes) or not _fits(shapes):
        return None
    clears, found = calls(routine, shapes, strides, geometry)
    words = [np.array(call.words, np.int64) for call in found]
    return _Plan(clears, [(call.kernel, call.offset, own.ctypes.data) for call, own in zip(found, words, strict=True)], words)


def is_readable(shape: Shape, strides: Shape) -> bool:
    """Whether kernels read images that lie so, strides in elements: their positions are in order, side by side, and images near."""
    near = abs(without_symbols(strides[0])) * min(without_symbols(shape[0]), _TOGETHER) < _FARTHEST
    return near and strides[2:] == contiguous(shape[2:])


def _readable(x: Any) -> Any:
    """An array, or a copy of it that kernels read."""
    size = x.itemsize
    if x.flags.c_contiguous and x.flags.aligned:
        return x
    even = x.flags.aligned and not any(stride % size for stride in x.strides)
    return x if even and is_readable(x.shape, tuple([s // size for s in x.strides])) else np.ascontiguousarray(x)


def computed(routine: str, shapes: tuple[Shape, Shape, Shape], first: Any, second: Any, geometry: Geometry) -> Any:
    """The array that a routine makes of two others, of one dtype: of (input, weight) by "forward", of (gradient of the results, weight) by
    "input", of (gradient of the results, input) by "weight"; None where there are no kernels for it."""
    kernels, dtype = _kernels_of_process(), first.dtype
    if kernels is None or dtype.char not in "fd" or second.dtype != dtype:
        return None
    first = _readable(first)
    second = np.ascontiguousarray(second) if _PLACES[routine][1] == 1 else _readable(second)
    made = shapes[_PLACES[routine][2]]
    strides = arranged(routine, element_strides(first), element_strides(second), contiguous(made))
    plan = _plan(routine, shapes, strides, geometry)
    if plan is None:
        return None
    out = (np.zeros if plan.clears else np.empty)(made, dtype)
    left, source = (first, second) if routine == "weight" else (second, first)
    a, b, c = left.ctypes.data, source.ctypes.data, out.ctypes.data
    for kernel, offset, words in plan.calls:
        kernels.run(kernel, dtype, a, b, c + offset * dtype.itemsize, words)
    return out
