"""Draws from distributions other than the uniform and the normal one: multinomial, and the in-place samplers of a tensor.

All are functions of uniform or normal draws (ops/public/random.py), so eager and compiled runs draw the same numbers.
"""

from __future__ import annotations

import math
from typing import Any

from tracejit.core import dtypes
from tracejit.core.precision import rounds_once
from tracejit.core.shapes import log1p
from tracejit.ops.elementwise import arithmetic, comparison, mathematics, rounding
from tracejit.ops.elementwise.incomplete import gammaincc
from tracejit.ops.movement.views import detach
from tracejit.ops.public.derive import FUNCTIONS, public
from tracejit.ops.public.random import Generator, exponential_of, floating, uniform_of

_tiny = {dtypes.float32: 2.0**-25, dtypes.float64: 2.0**-54}


def _open_uniform(shape: tuple[int, ...], dtype: dtypes.DType, generator: Generator | None) -> Any:
    """Uniform numbers in (0, 1): neither end."""
    return uniform_of(shape, dtype, generator) + _tiny[dtype]


@public()
def multinomial(input: Any, num_samples: int, replacement: bool = False, *, generator: Generator | None = None) -> Any:
    """Positions drawn from each row of `input` (one or two dimensions) with probabilities in proportion to its elements, int64.

    Without replacement no position comes twice, in the order in which they were drawn.  Raises RuntimeError for rows that are no
    weights: negative or not finite numbers, a sum of 0, or fewer positions than wanted."""
    if input.ndim not in (1, 2):
        raise RuntimeError(f"multinomial(): prob_dist must be 1 or 2 dim, got {input.ndim}")
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"multinomial(): multinomial only supports floating-point dtypes for input, got: {input.dtype.name}")
    categories = input._sizes[-1]
    if num_samples <= 0:
        raise RuntimeError(f"multinomial(): cannot sample n_sample <= 0 samples, got {num_samples}")
    if not replacement and num_samples > categories:
        raise RuntimeError(
            f"multinomial(): cannot sample n_sample > prob_dist.size(-1) samples without replacement, got {num_samples} of {categories}"
        )
    weights = arithmetic.cast(detach(input), dtype=dtypes.float64)
    if not bool(FUNCTIONS["all"](rounding.isfinite(weights) & comparison.ge(weights, 0))):
        raise RuntimeError("multinomial(): probability tensor contains either `inf`, `nan` or element < 0")
    if replacement:
        ends = FUNCTIONS["cumsum"](weights, -1)
        total = ends[..., -1:]
        if not bool(FUNCTIONS["all"](comparison.gt(total, 0))):
            raise RuntimeError("multinomial(): invalid multinomial distribution (sum of probabilities <= 0)")
        drawn = uniform_of((*input._sizes[:-1], num_samples), dtypes.float64, generator) * total
        return FUNCTIONS["searchsorted"](ends, drawn, right=True)
    possible = FUNCTIONS["sum"](comparison.gt(weights, 0), -1)
    if not bool(FUNCTIONS["all"](comparison.ge(possible, num_samples))):
        raise RuntimeError(
            "multinomial(): invalid multinomial distribution (with replacement=False, not enough non-negative category to sample)"
        )
    # the first of independent exponential clocks with these rates to ring, then the second ...
    clocks = exponential_of(input._sizes, dtypes.float64, generator) / weights
    if num_samples == 1:
        return FUNCTIONS["argmin"](clocks, -1, keepdim=True)
    return FUNCTIONS["argsort"](clocks, -1, stable=True)[..., :num_samples].clone()


@public(method=False)
def poisson(input: Any, generator: Generator | None = None) -> Any:
    """How many events there are in a unit of time: a draw for each rate in `input`, of its shape and dtype.  The gradient is zero.

    Raises RuntimeError for a negative rate."""
    rate = arithmetic.cast(detach(input), dtype=dtypes.float64)
    if bool(FUNCTIONS["any"](comparison.lt(rate, 0))):
        raise RuntimeError("poisson(): invalid Poisson rate, expected rate to be non-negative")
    u = uniform_of(input._sizes, dtypes.float64, generator)
    low, high = rate * 0 - 1, rate + 40 * mathematics.sqrt(rate) + 60  # P(X <= low) = 0 <= u < P(X <= high)
    for _ in range(64):  # bisection: the least k with u < P(X <= k)
        middle = rounding.floor((low + high) / 2)
        below = gammaincc(FUNCTIONS["clamp"](middle, 0) + 1, rate)
        above = u < comparison.where(rate > 0, below, 1.0) * (middle >= 0)
        high, low = comparison.where(above, middle, high), comparison.where(above, low, middle)
        if not bool(FUNCTIONS["any"](high - low > 1)):
            break
    return arithmetic.cast(rounding.ceil(high), dtype=input.dtype)


@public(method=False)
def binomial(count: Any, prob: Any, generator: Generator | None = None) -> Any:
    """How many of `count` trials succeed, each with probability `prob`: a draw for each pair, of the shape of the two together and the
    dtype of `count`.  The gradient is zero.

    Raises RuntimeError for a negative count and for a probability outside of [0, 1]."""
    n, p = (arithmetic.cast(detach(x), dtype=dtypes.float64) for x in (count, prob))
    if bool(FUNCTIONS["any"](comparison.lt(n, 0))):
        raise RuntimeError("binomial(): expected counts that are not negative")
    if bool(FUNCTIONS["any"](comparison.lt(p, 0))) or bool(FUNCTIONS["any"](comparison.gt(p, 1))):
        raise RuntimeError("binomial(): expected probabilities between 0 and 1")
    n = FUNCTIONS["floor"](n + 0 * p)
    trials = int(FUNCTIONS["amax"](n)) if n.numel() else 0
    succeeds = comparison.lt(uniform_of((trials, *n.shape), dtypes.float64, generator), p)
    counted = comparison.lt(FUNCTIONS["arange"](trials).reshape(trials, *(1,) * n.ndim), n)
    return arithmetic.cast(FUNCTIONS["sum"](succeeds & counted, 0), dtype=count.dtype)


@rounds_once
def _cauchy_in(input: Any, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Any:
    """Numbers of the Cauchy distribution around `median` of width `sigma`."""
    if sigma <= 0.0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    u = _open_uniform(input._sizes, floating("cauchy_", input.dtype), generator)
    return FUNCTIONS["tan"]((u - 0.5) * math.pi) * sigma + median


@rounds_once
def _log_normal_in(input: Any, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Any:
    """exp of normal numbers with the given mean and standard deviation."""
    if std <= 0.0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    normal = FUNCTIONS["randn"](input._sizes, dtype=floating("log_normal_", input.dtype), generator=generator)
    return mathematics.exp(normal * std + mean)


@rounds_once
def _geometric_in(input: Any, p: float, *, generator: Generator | None = None) -> Any:
    """How many trials of probability `p` it takes to the first success: 1, 2, ..."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    waiting = exponential_of(input._sizes, dtypes.float64, generator)
    return arithmetic.cast(rounding.ceil(waiting * (-1 / log1p(-p))), dtype=input.dtype)


for _name, _body in (("cauchy", _cauchy_in), ("log_normal", _log_normal_in), ("geometric", _geometric_in)):
    _body.__name__ = _name
    public(_name, function=False, method=False, in_place=True)(_body)
