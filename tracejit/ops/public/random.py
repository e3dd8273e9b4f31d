"""Public random functions, and the generator they draw from.  tracejit.random exports the generator's functions too."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.array_constant import ArrayConstant
from tracejit.core.devices import CPU, device, require_cpu
from tracejit.core.interpreter import state as thread
from tracejit.core.numbers import settled
from tracejit.core.precision import rounds_once
from tracejit.core.shapes import integer, operand
from tracejit.ops import random as primitives
from tracejit.ops.creation import constant, full
from tracejit.ops.elementwise import arithmetic, comparison
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.bitwise import bitwise_and, bitwise_left_shift, bitwise_right_shift
from tracejit.ops.movement.copies import cat, write
from tracejit.ops.movement.views import detach, reshape, select
from tracejit.ops.public.derive import public
from tracejit.ops.public.movement import shape_of
from tracejit.ops.public.reduce import all_
from tracejit.ops.reduce import sum_
from tracejit.ops.sorting import order_of_keys

Shape = tuple[int, ...]


class Generator:
    """A stream of random numbers: a seed and a counter, held in a tensor (ops/random.py).  Draws from several threads do not
    overlap."""

    __slots__ = ("__weakref__", "_state")

    def __init__(self, device: Any = "cpu") -> None:
        require_cpu("Generator", device)
        self._state: Any = None

    @property
    def device(self) -> device:
        """Where it is: the CPU."""
        return CPU

    def state(self) -> Any:
        """The tensor int64[2] of seed and counter that draws read and write.  Made at the first use."""
        if self._state is None:
            initial = ArrayConstant(np.array([_wrapped(_entropy() if self is default_generator else DEFAULT_SEED), 0], np.int64))
            self._state = thread.top.make_state(self, constant, {"array": initial})
        return self._state

    def _used_state(self) -> Any:
        """The same for code that is no draw."""
        thread.top.use_generator(self)
        return self.state()

    def manual_seed(self, seed: int) -> Generator:
        """Begin the stream of `seed` (any integer below 2**64, negative ones wrapping) anew.  Returns the generator."""
        number = seed if isinstance(seed, int) else int(seed)
        if not -_LARGEST <= number <= _LARGEST:
            if not -(1 << 63) <= number < 1 << 64:
                raise RuntimeError(f"manual_seed(): the seed must fit 64 bits, got {seed}")
            number = _wrapped(number)
        state = self._used_state()
        write(state, cat(full(number, shape=(1,), dtype=dtypes.int64), full(0, shape=(1,), dtype=dtypes.int64), dim=0))
        return self

    def seed(self) -> int:
        """Begin a stream at a seed of the system's entropy; returns the seed."""
        number = _entropy()
        self.manual_seed(number)
        return number

    def initial_seed(self) -> int:
        """The seed that the stream began with."""
        return select(self._used_state(), 0, dim=0).item() & 0xFFFFFFFFFFFFFFFF  # type: ignore[no-any-return]

    def get_state(self) -> Any:
        """Seed and counter as a uint8 tensor of 16 elements."""
        words = bitwise_right_shift(reshape(self._used_state(), shape=(2, 1)), constant(array=_BYTES))
        return reshape(cast(bitwise_and(words, 255), dtype=dtypes.uint8), shape=(16,))

    def set_state(self, new_state: Any) -> Generator:
        """Go back to where get_state() was called.  Raises RuntimeError for anything but its result."""
        raw = new_state if hasattr(new_state, "_array") else constant(array=ArrayConstant(np.array(new_state)))
        if raw._sizes != (16,):
            raise RuntimeError(f"set_state(): expected the 16 bytes of get_state(), got shape {list(raw.shape)}")
        parts = bitwise_left_shift(reshape(cast(raw, dtype=dtypes.int64), shape=(2, 8)), constant(array=_BYTES))
        write(self._used_state(), sum_(parts, dims=(1,), keepdim=False))
        return self

    def clone_state(self) -> Generator:
        """Another generator at the same position of the same stream."""
        return Generator().set_state(self.get_state())

    def draw(self, op: Any, shape: Shape, wide: bool, **attributes: Any) -> Any:
        """Draw by a RANDOM primitive and move the counter on."""
        attributes["shape"] = shape
        return thread.top.draw(self, op, attributes, primitives.advance_for(shape, wide))

    def _advance(self, count: int) -> tuple[int, int]:
        """Seed and counter, which moves on by `count`.  Both are read, and that is done, without a call in between: no other thread comes
        between that, nor does it come between what a compiled program does to them."""
        words = memoryview((self._state if self._state is not None else self.state())._array)
        seed, counter = words[0], words[1]
        words[1] = (counter + count + (1 << 63)) % (1 << 64) - (1 << 63)
        return seed, counter


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _entropy() -> int:
    """A seed from the entropy of the system."""
    return int.from_bytes(os.urandom(8), "little") >> 1


DEFAULT_SEED = 67280421310721
"""Where a new generator begins, as in PyTorch; the default one begins at a position of the system's choice."""
_LARGEST = (1 << 63) - 1
_BYTES = ArrayConstant(np.arange(0, 64, 8, dtype=np.int64))
"""Where the bytes of a word begin, in bits."""
default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Begin the default stream of random numbers anew.  Returns the default generator."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Begin the default stream at a seed of the system's entropy; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the default stream began with."""
    return default_generator.initial_seed()


def get_rng_state() -> Any:
    """The position in the default stream, as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Any) -> None:
    """Go back to a position in the default stream."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = (), enabled: bool = True, **others: Any) -> Iterator[None]:
    """`with fork_rng():` what is drawn inside leaves the default stream where it was before; not with enabled=False."""
    before = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if before is not None:
            set_rng_state(before)


for _function in (manual_seed, seed, initial_seed, get_rng_state, set_rng_state):
    public(method=False)(_function)


def floating(name: str, dtype: dtypes.DType | None) -> dtypes.DType:
    out = dtype or dtypes.default_dtype()
    if not out.is_floating_point:
        raise RuntimeError(
            f"{name}(): expected a floating-point dtype, got {out.name}; draw floats and convert, or use randint()"
        )
    return out


def _sizes(name: str, size: tuple[Any, ...]) -> Shape:
    shape = shape_of(name, size)
    for s in shape:
        if s < 0:
            raise RuntimeError(f"{name}(): sizes must not be negative, got {list(shape)}")
    return shape


def uniform_of(shape: Shape, dtype: dtypes.DType, generator: Generator | None) -> Any:
    return (generator or default_generator).draw(primitives.random_uniform, shape, dtype is dtypes.float64, dtype=dtype)


def exponential_of(shape: Shape, dtype: dtypes.DType, generator: Generator | None) -> Any:
    return (generator or default_generator).draw(primitives.random_exponential, shape, dtype is dtypes.float64, dtype=dtype)


def _normal(shape: Shape, dtype: dtypes.DType, generator: Generator | None) -> Any:
    return (generator or default_generator).draw(primitives.random_normal, shape, dtype is dtypes.float64, dtype=dtype)


def _integers(low: int, high: int, shape: Shape, generator: Generator | None) -> Any:
    if high <= low:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if high - low > 1 << 63:
        raise RuntimeError(f"random_: the range from {low} to {high} holds more than 2**63 integers; draw from a smaller one")
    out = (generator or default_generator).draw(primitives.random_integers, shape, True)
    if high - low < 1 << 63:
        out = thread.top.bind(arithmetic.remainder, (out, high - low), {})
    return out if type(low) is int and not low else out + low


def _finish(out: Any, requires_grad: bool) -> Any:
    return out.requires_grad_() if requires_grad else out


@public(method=False)
def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: dtypes.DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """Numbers drawn uniformly from [0, 1), rand(2, 3) or rand((2, 3)), from `generator` or the default one.

    `dtype` must be one of floating point, the default one unless given.  Raises RuntimeError for negative sizes."""
    require_cpu("rand", device)
    return _finish(uniform_of(_sizes("rand", size), floating("rand", dtype), generator), requires_grad)


@public(method=False)
def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: dtypes.DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """Numbers drawn from the standard normal distribution; arguments are those of rand()."""
    require_cpu("randn", device)
    return _finish(_normal(_sizes("randn", size), floating("randn", dtype), generator), requires_grad)


@public(method=False)
def randint(
    *bounds: Any,
    size: Any = None,
    generator: Generator | None = None,
    dtype: dtypes.DType | None = None,
    device: Any = None,
    **named: Any,
) -> Any:
    """randint(high, size) or randint(low, high, size): integers drawn uniformly from [low, high), int64 unless `dtype` is
    given."""
    require_cpu("randint", device)
    if named or size is not None:
        bounds = (*bounds, *[named[k] for k in ("low", "high") if k in named], *([] if size is None else [size]))
    low, high, size = bounds if len(bounds) != 2 else (0, *bounds)
    out = _integers(operand("randint", "low", low), operand("randint", "high", high), _sizes("randint", (size,)), generator)
    return out if dtype is None or dtype is dtypes.int64 else arithmetic.cast(out, dtype=dtype)


@public(method=False)
def randperm(n: int, *, generator: Generator | None = None, dtype: dtypes.DType | None = None, device: Any = None) -> Any:
    """The numbers 0 ... n - 1 in random order, int64 unless `dtype` is given.  Raises RuntimeError for a negative n."""
    require_cpu("randperm", device)
    n = integer("randperm", "n", n)
    if n < 0:
        raise RuntimeError(f"randperm(): n must be non-negative, got {n}")
    keys = (generator or default_generator).draw(primitives.random_integers, (n,), True)
    out = thread.top.bind(order_of_keys, (keys,), {})
    return out if dtype is None or dtype is dtypes.int64 else arithmetic.cast(out, dtype=dtype)


@public(method=False)
def rand_like(
    input: Any, *, generator: Generator | None = None, dtype: dtypes.DType | None = None, requires_grad: bool = False
) -> Any:
    """Numbers drawn uniformly from [0, 1), of the shape and dtype of `input`."""
    return _finish(uniform_of(input._sizes, floating("rand_like", dtype or input.dtype), generator), requires_grad)


@public(method=False)
def randn_like(
    input: Any, *, generator: Generator | None = None, dtype: dtypes.DType | None = None, requires_grad: bool = False
) -> Any:
    """Standard normal numbers of the shape and dtype of `input`."""
    return _finish(_normal(input._sizes, floating("randn_like", dtype or input.dtype), generator), requires_grad)


@public(method=False)
def randint_like(
    input: Any,
    low: int | None = None,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    dtype: dtypes.DType | None = None,
) -> Any:
    """Integers drawn uniformly from [low, high), or [0, low), of the shape and dtype of `input`.  Raises TypeError without a bound."""
    if low is None and high is None:
        raise TypeError("randint_like(): expected a bound, randint_like(input, high) or randint_like(input, low, high)")
    below, above = (0, low) if high is None else (low or 0, high)
    below, above = operand("randint_like", "low", below), operand("randint_like", "high", above)
    return arithmetic.cast(_integers(below, above, input._sizes, generator), dtype=dtype or input.dtype)


@public(method=False)
def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, dtype: dtypes.DType | None = None
) -> Any:
    """Normal numbers with the given mean and standard deviation: numbers (then with `size`) or tensors, element by element."""
    if isinstance(std := settled(std), int | float) and std < 0:
        raise RuntimeError(f"normal(): expects std >= 0.0, but found std {std}")
    if size is not None:
        mean, std = (x if isinstance(x, int | float) else float(x) for x in (settled(mean), std))
        return _normal(_sizes("normal", (size,)), floating("normal", dtype), generator) * std + mean
    like = mean + std
    return _normal(like._sizes, floating("normal", dtype or like.dtype), generator) * std + mean


@public(aliases=())
def bernoulli(input: Any, p: float | None = None, *, generator: Generator | None = None) -> Any:
    """1 with the probability that each element of `input` (or the number `p`) says, else 0, in the dtype of `input`.

    Raises RuntimeError for probabilities outside [0, 1] or NaN, and for an `input` of integers that are to be probabilities."""
    probability = input if p is None else p
    dtype = dtypes.float64 if input.dtype is dtypes.float64 else dtypes.float32
    if p is None:
        floating("bernoulli", input.dtype)
        if not all_((input >= 0) & (input <= 1)):
            raise RuntimeError("bernoulli(): expects all probabilities to be in [0, 1]; use sigmoid() or clamp() to make them so")
    elif not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli(): expects p to be in [0, 1], but got p={p}")
    drawn = comparison.lt(uniform_of(input._sizes, dtype, generator), detach(probability) if p is None else probability)
    return arithmetic.cast(drawn, dtype=input.dtype)


def _uniform_in(input: Any, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None) -> Any:
    """Uniform numbers in [from, to) of the shape and dtype of `input`."""
    if from_ > to:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={from_} > to={to}")
    return uniform_of(input._sizes, floating("uniform_", input.dtype), generator) * (to - from_) + from_


@rounds_once
def _normal_in(input: Any, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Any:
    """Normal numbers of the shape and dtype of `input`."""
    if std < 0:
        raise RuntimeError(f"normal_ expects std >= 0.0, but found std {std}")
    return _normal(input._sizes, floating("normal_", input.dtype), generator) * std + mean


def _random_in(input: Any, from_: int = 0, to: int | None = None, *, generator: Generator | None = None) -> Any:
    """Integers in [from, to) of the shape and dtype of `input`; random_(to) starts at 0; without `to`, all that the dtype can
    hold."""
    dtype = input.dtype
    if to is None and from_:
        from_, to = 0, from_
    if to is None:
        floating_point = dtype.is_floating_point
        bits = 1 - round(math.log2(dtypes.EPSILON[dtype])) if floating_point else 8 * dtype.itemsize - dtype.is_signed
        to = 2 if dtype is dtypes.bool_ else (1 << bits) + floating_point
    return arithmetic.cast(_integers(from_, to, input._sizes, generator), dtype=dtype)


@rounds_once
def _exponential_in(input: Any, lambd: float = 1.0, *, generator: Generator | None = None) -> Any:
    """Exponential numbers with the rate `lambd`."""
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return exponential_of(input._sizes, floating("exponential_", input.dtype), generator) / lambd


def _bernoulli_in(input: Any, p: Any = 0.5, *, generator: Generator | None = None) -> Any:
    """1 with probability `p` (a number or a tensor), else 0."""
    p = settled(p)
    if isinstance(p, int | float):
        return bernoulli(input, p, generator=generator)
    return arithmetic.cast(bernoulli(p.expand(input._sizes), generator=generator), dtype=input.dtype)


for _name, _body in (
    ("uniform", _uniform_in), ("normal", _normal_in), ("random", _random_in), ("exponential", _exponential_in),
    ("bernoulli", _bernoulli_in),
):  # fmt: skip
    _body.__name__ = _name
    public(_name, function=False, method=False, in_place=True)(_body)
