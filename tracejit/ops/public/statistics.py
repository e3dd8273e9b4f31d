"""What is counted or compared between elements: unique elements, counts, histograms, differences and their sums, covariances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.core import dtypes
from tracejit.core.interpreter import is_recording
from tracejit.core.shapes import integer, normalise_dim, size_range
from tracejit.ops import indexing, sorting
from tracejit.ops.elementwise import arithmetic
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach
from tracejit.ops.public.derive import FUNCTIONS, public
from tracejit.ops.public.return_types import result_type

F = FUNCTIONS

Histogram = result_type("histogram", "hist", "bin_edges")


def _starts_of_runs(slices: Any) -> Any:
    """Of slices [n, width], whether each differs from the one before it; the first one does."""
    n = slices.shape[0]
    first = F["ones"](min(n, 1), dtype=dtypes.bool_)
    return F["cat"]([first, F["any"](F["ne"](slices[1:], slices[:-1]), 1)]) if n else first


def _results(slices: Any, starts: Any, inverse: Any, return_inverse: bool, return_counts: bool) -> Any:
    """(the slices that start a run, where each slice has gone, how long the runs are), as far as wanted."""
    positions = F["nonzero"](starts)[:, 0]
    found = F["index_select"](slices, 0, positions)
    ends = F["cat"]([positions[1:], F["full"]((min(slices.shape[0], 1),), slices.shape[0], dtype=dtypes.int64)])
    wanted = [found, *([inverse] if return_inverse else []), *([ends - positions] if return_counts else [])]
    return tuple(wanted)


def _wanted(results: tuple[Any, ...], return_inverse: bool, return_counts: bool) -> Any:
    """Of (elements, positions, counts) those that are wanted."""
    found, inverse, counts = results
    if not (return_inverse or return_counts):
        return found
    return (found, *([inverse] if return_inverse else []), *([counts] if return_counts else []))


def _shaped(results: tuple[Any, ...], restore: Any) -> Any:
    out = (restore(results[0]), *results[1:])
    return out if len(out) > 1 else out[0]


@public()
def unique(
    input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The different elements of `input` in order, or its different slices along `dim`.

    return_inverse: also the position of each element among them; return_counts: also how often each occurs.  They are always
    sorted."""
    del sorted
    source = detach(input)
    if dim is None and not return_inverse and not return_counts:
        return sorting.distinct(source)
    if dim is None:
        return _wanted(sorting.distinct_positions(source), return_inverse, return_counts)
    at = normalise_dim("unique", dim, input.ndim)
    moved = F["movedim"](source, at, 0)
    slices = F["flatten"](F["unsqueeze"](moved, -1), 1)
    n = slices.shape[0]
    order = F["arange"](n)
    for column in size_range(slices.shape[1] - 1, -1, -1):  # stable, so the first column decides in the end
        order = order[F["argsort"](slices[:, column][order], stable=True)]
    ordered = slices[order]
    starts = _starts_of_runs(ordered)
    inverse = F["zeros"](n, dtype=dtypes.int64)
    if return_inverse:
        inverse = F["scatter"](inverse, 0, order, F["cumsum"](starts, 0) - 1)
    results = _results(ordered, starts, inverse, return_inverse, return_counts)
    return _shaped(results, lambda found: F["movedim"](F["reshape"](found, (-1, *moved.shape[1:])), 0, at))


@public()
def unique_consecutive(input: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """`input` with one of each run of equal elements, or of equal slices along `dim`."""
    source = detach(input)
    if dim is None:
        return _wanted(sorting.runs(source), return_inverse, return_counts)
    at = normalise_dim("unique_consecutive", dim, input.ndim)
    moved = F["movedim"](source, at, 0)
    slices = F["flatten"](F["unsqueeze"](moved, -1), 1)
    starts = _starts_of_runs(slices)
    inverse = F["cumsum"](starts, 0) - 1 if return_inverse else None
    results = _results(slices, starts, inverse, return_inverse, return_counts)
    return _shaped(results, lambda found: F["movedim"](F["reshape"](found, (-1, *moved.shape[1:])), 0, at))


@public()
def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along `dim`, taken n times, after `prepend` and `append` were put at the ends."""
    if input.ndim == 0:
        raise RuntimeError("diff(): expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"diff(): order must be non-negative but got {n}")
    at = normalise_dim("diff", dim, input.ndim)
    if n == 0:
        return F["clone"](input)
    parts = [part for part in (prepend, input, append) if part is not None]
    out = F["cat"](parts, at) if len(parts) > 1 else input
    for _ in size_range(0, min(n, out.shape[at])):
        length = out.shape[at]
        after, before = F["narrow"](out, at, 1, length - 1), F["narrow"](out, at, 0, length - 1)
        out = F["logical_xor"](after, before) if out.dtype is dtypes.bool_ else after - before
    return out


@public(method=False, aliases=("trapz",))
def trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Any:
    """The integral of `y` along `dim` by the trapezoidal rule, at the positions `x` or at distances `dx` (1)."""
    return F["sum"](_areas("trapezoid", y, x, dx, dim), dim)


@public(method=False)
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Any:
    """The integrals of `y` along `dim` up to each position by the trapezoidal rule."""
    return F["cumsum"](_areas("cumulative_trapezoid", y, x, dx, dim), dim)


def _areas(name: str, y: Any, x: Any, dx: Any, dim: int) -> Any:
    if x is not None and dx is not None:
        raise RuntimeError(f"{name}(): received both x and dx; give one")
    at = normalise_dim(name, dim, y.ndim)
    length = max(y.shape[at] - 1, 0)
    means = (F["narrow"](y, at, y.shape[at] - length, length) + F["narrow"](y, at, 0, length)) / 2
    if x is None:
        return means * (1 if dx is None else dx)
    widths = diff(x, dim=at if x.ndim > 1 else 0)
    return means * (widths if x.ndim > 1 else F["reshape"](widths, (-1, *([1] * (y.ndim - 1 - at)))))


@public()
def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Covariances between the rows of `input`, whose columns are observations; counted fweights times, weighed by aweights."""
    correction = integer("cov", "correction", correction)
    if input.ndim > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions")
    rows = F["reshape"](input, (1, -1)) if input.ndim < 2 else input
    rows = rows if rows.dtype.is_floating_point else arithmetic.cast(rows, dtype=dtypes.default_dtype())
    count: Any = rows.shape[1]
    weights = None
    if fweights is not None:
        weights = arithmetic.cast(fweights, dtype=rows.dtype)
        count = F["sum"](fweights)
    if aweights is not None:
        weights = aweights if weights is None else weights * aweights
    total: Any = count if weights is None else F["sum"](weights)
    mean = (F["sum"](rows if weights is None else rows * weights, 1, keepdim=True)) / total
    centred = rows - mean
    freedom: Any = total - correction
    if aweights is not None and correction != 0:
        counted = aweights if fweights is None else aweights * fweights
        freedom = (
            total - correction * F["sum"](weights * aweights) / total
            if fweights is not None
            else total - (correction * F["sum"](counted * aweights) / total)
        )
    weighed = centred if weights is None else centred * weights
    if isinstance(freedom, int):
        freedom = max(freedom, 0)
    products = F["matmul"](weighed, F["t"](centred)) / freedom
    return F["squeeze"](products)


@public()
def corrcoef(input: Any) -> Any:
    """Correlation coefficients between the rows of `input`, whose columns are observations."""
    products = cov(input)
    if products.ndim == 0:
        return products / products
    scale = F["sqrt"](F["diagonal"](products))
    return F["clamp"](products / F["unsqueeze"](scale, 1) / scale, -1, 1)


@public()
def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each of 0, 1, ... occurs in a vector of integers, or the sums of the `weights` of each; at least minlength
    numbers."""
    if input.ndim != 1 or input.dtype.is_floating_point or input.dtype is dtypes.bool_:
        raise RuntimeError("bincount(): only supports 1-d non-negative integral inputs")
    if minlength < 0:
        raise RuntimeError("bincount(): minlength should be >= 0")
    if weights is not None and weights._sizes != input._sizes:
        raise RuntimeError("bincount(): weights should be 1-d and have the same length as input")
    if weights is None and not (minlength and is_recording()):  # programs may know how many there are
        return indexing.occurrences(input, minlength=minlength)
    length = minlength
    if input._sizes[0]:
        if F["amin"](input) < 0:
            raise RuntimeError("bincount(): only supports 1-d non-negative integral inputs")
        largest = F["amax"](input)
        if not largest < minlength:  # else no call asks which it is
            length = int(largest) + 1
    if weights is None:
        values = F["ones"](input._sizes[0], dtype=dtypes.int64)
    else:
        values = detach(weights)
        if values.dtype is not dtypes.float32:
            values = arithmetic.cast(values, dtype=dtypes.float64)
    counts = F["zeros"](length, dtype=values.dtype)
    return F["index_add"](counts, 0, arithmetic.cast(input, dtype=dtypes.int64), values)


def _range(name: str, input: Any, low: Any, high: Any, apart: float) -> tuple[float, float]:
    """The ends of a histogram: those of the data where they are equal, and `apart` from these where they are equal too."""
    if low == high and input.numel():
        low, high = F["amin"](input).item(), F["amax"](input).item()
    if low == high:
        low, high = low - apart, high + apart
    if not (low < high and abs(low) != float("inf") and abs(high) != float("inf")):
        raise RuntimeError(f"{name}(): range of [{low}, {high}] is not finite, or max must be larger than min")
    return low, high


@public()
def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """How many elements lie in each of `bins` equal parts from `min` to `max`, or, where they are equal, from the least to the
    greatest element."""
    if bins <= 0:
        raise RuntimeError(f"histc(): bins must be > 0, but got {bins}")
    flat = F["reshape"](detach(input), (-1,))
    low, high = _range("histc", flat, min, max, 1)
    inside = F["logical_and"](F["ge"](flat, low), F["le"](flat, high))
    positions = F["clamp"]((F["where"](inside, flat, low) - low) * bins / (high - low), 0, bins - 1)
    counts = F["zeros"](bins, dtype=input.dtype)
    ones = arithmetic.cast(inside, dtype=input.dtype)
    return F["index_add"](counts, 0, arithmetic.cast(positions, dtype=dtypes.int64), ones)


@public()
def histogram(input: Any, bins: Any, *, range: Sequence[float] | None = None, weight: Any = None, density: bool = False) -> Any:
    """(hist: how many elements lie in each bin, bin_edges: the edges of the bins): `bins` is how many equal ones, or a vector of edges.

    weight: what each element counts; density: divided so that the integral is 1."""
    flat = F["reshape"](detach(input), (-1,))
    if isinstance(bins, int):
        low, high = (0, 0) if range is None else (range[0], range[1])
        low, high = _range("histogram", flat, low, high, 0.5)
        edges = F["linspace"](low, high, bins + 1, dtype=input.dtype)
    else:
        edges = clone(bins)
    count = edges.shape[0] - 1
    position = F["searchsorted"](edges, flat, right=True) - 1
    position = F["where"](F["eq"](flat, edges[-1]), count - 1, position)
    inside = F["logical_and"](F["ge"](position, 0), F["lt"](position, count))
    values = arithmetic.cast(inside, dtype=input.dtype)
    if weight is not None:
        values = values * F["reshape"](weight, (-1,))
    counts = F["index_add"](F["zeros"](count, dtype=input.dtype), 0, F["clamp"](position, 0, count - 1), values)
    if density:
        counts = counts / F["sum"](counts) / diff(edges)
    return Histogram(counts, edges)
