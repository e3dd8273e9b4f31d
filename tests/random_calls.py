"""Calls of the library's functions with arguments made at random: tensors of all dtypes, ranks 0 to 4, sizes 0 and 1 among them, strided,
expanded and reversed, that broadcast to each other or do not, beside numbers, dimensions, indices and masks.

Arguments are chosen by the names of a function's parameters, so functions to come take part.  Many calls are errors: that is a result, too.
The same name and seed always give the same call; a call makes its tensors anew each time, since it may change them.
"""

from __future__ import annotations

import inspect
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tracejit as T
from tracejit.core import dtypes
from tracejit.core.dtypes import DType

Maker = Callable[[], Any]
Shape = tuple[int, ...]
DTYPES = tuple(d for d in dtypes.ALL if d in (T.bool, T.uint8, T.int32, T.int64, T.float16, T.bfloat16, T.float32, T.float64))
LAYOUTS = ("plain", "plain", "turned", "gaps", "expanded", "part", "reversed")

_FLAGS = """keepdim descending stable out_int32 right unbiased accumulate as_tuple equal_nan largest sorted ceil_mode count_include_pad"""
_SMALL_INTEGERS = """k n m chunks steps num_groups upscale_factor downscale_factor kernel_size stride num_classes size step repeats
output_size split_size_or_sections offset diagonal start length indices_or_sections shifts decimals groups dilation padding"""
_TENSORS = """other end tensor1 tensor2 mat2 vec2 mat mat1 batch1 batch2 values source src x y x1 x2 vec a b tensor target bias input2
anchor positive negative attn_mask query key running_mean running_var var sorted_sequence boundaries weight"""
FLAGS, SMALL_INTEGERS, TENSORS = (frozenset(names.split()) for names in (_FLAGS, _SMALL_INTEGERS, _TENSORS))
DIMENSIONS = frozenset({"dim", "dim0", "dim1", "dim2", "start_dim", "end_dim", "dimension"})
CHOICES: dict[str, tuple[Any, ...]] = {
    "dtype": DTYPES,
    "rounding_mode": (None, "floor", "trunc"),
    "reduction": ("mean", "sum", "none"),
    "approximate": ("none", "tanh"),
    "side": ("left", "right"),
    "indexing": ("ij", "xy"),
    "reduce": ("add",),
}
LEFT_OUT = frozenset({"device", "generator", "requires_grad", "memory_format", "compute_mode"})
NUMBERS = (0, 1, 2, 3, True, False, 0.5, 2.0, -1.5, 0.0)


def constant(value: Any) -> Maker:
    return lambda: value


class Choices:
    """A source of arguments."""

    def __init__(self, key: str) -> None:
        self.random = random.Random(key)
        self.numpy = np.random.default_rng(zlib.crc32(key.encode()))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def shape(self) -> Shape:
        rank = self.random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        return tuple(self.random.choice((0, 1, 2, 4) if self.chance(0.2) else (1, 2, 3)) for _ in range(rank))

    def values(self, shape: Shape, dtype: DType) -> np.ndarray[Any, Any]:
        if dtype is T.bool:
            return np.asarray(self.numpy.random(shape) < 0.5)
        if not dtype.is_floating_point:
            return np.asarray(self.numpy.integers(0 if dtype is T.uint8 else -4, 5, shape)).astype(dtype.numpy)
        found = np.asarray(self.numpy.standard_normal(shape) * 2).astype(dtype.numpy)
        if found.size and self.chance(0.1):
            found.flat[self.random.randrange(found.size)] = self.random.choice((np.nan, np.inf, -np.inf, -0.0))
        return np.asarray(np.round(found)) if self.chance(0.2) else found

    def tensor(self, shape: Shape, dtype: DType | None = None) -> Maker:
        dtype = dtype or self.random.choice(DTYPES)
        layout, rank = self.random.choice(LAYOUTS), len(shape)
        if layout == "turned" and rank > 1:
            order = self.random.sample(range(rank), rank)
            turned, back = self.values(tuple(shape[d] for d in order), dtype), [order.index(d) for d in range(rank)]
            return lambda: T.from_numpy(turned.copy()).permute(*back)
        if layout == "gaps" and rank:
            wide = self.values((*shape[:-1], 2 * shape[-1]), dtype)
            return lambda: T.from_numpy(wide.copy())[..., ::2]
        if layout == "expanded" and rank:
            d = self.random.randrange(rank)
            narrow = self.values((*shape[:d], 1, *shape[d + 1 :]), dtype)
            return lambda: T.from_numpy(narrow.copy()).expand(*shape)
        if layout == "part" and rank:
            large = self.values((shape[0] + 2, *shape[1:]), dtype)
            return lambda: T.from_numpy(large.copy())[1 : shape[0] + 1]
        array = self.values(shape, dtype)
        if layout == "reversed" and rank:
            return lambda: T.from_numpy(array[::-1].copy()[::-1])
        return lambda: T.from_numpy(array.copy())

    def beside(self, shape: Shape, dtype: DType) -> Maker:
        """A tensor that broadcasts with one of `shape`, for the most part."""
        other = shape
        way = self.random.random()
        if 0.35 <= way < 0.75:
            other = tuple(1 if self.chance(0.4) else s for s in shape)[
                self.random.randrange(len(shape) + 1) if self.chance(0.5) else 0 :
            ]
        elif 0.75 <= way < 0.85:
            other = ()
        elif way >= 0.93:
            other = self.shape()
        return self.tensor(other, dtype if self.chance(0.55) else None)

    def dimension(self, rank: int) -> int:
        return self.random.randrange(-max(rank, 1) - self.chance(0.04), max(rank, 1) + self.chance(0.04))

    def index(self, shape: Shape, size: int) -> Maker:
        dtype = self.random.choice((T.int64, T.int64, T.int64, T.int32, T.uint8))
        low = -1 if self.chance(0.1) and dtype is not T.uint8 else 0
        array = np.asarray(self.numpy.integers(low, max(size, 1) + self.chance(0.04), shape)).astype(dtype.numpy)
        return lambda: T.from_numpy(array.copy())

    def argument(self, name: str, parameter: inspect.Parameter, shape: Shape, dtype: DType) -> Maker | None:
        """What to pass for a parameter beside a tensor of `shape` and `dtype`; None for its default."""
        pick, rank, required = self.random.choice, len(shape), parameter.default is inspect.Parameter.empty
        if name in LEFT_OUT or (not required and self.chance(0.45)):
            return None
        if name in CHOICES:
            return constant(pick(CHOICES[name]))
        if name in FLAGS:
            return constant(self.chance(0.5))
        if name in ("index", "indices"):
            if name == "indices" and self.chance(0.5):
                makers = [self.index((2,), min(shape, default=1)) for _ in range(self.random.randrange(1, max(rank, 1) + 1))]
                return lambda: tuple(make() for make in makers)
            return self.index(pick((shape, (2,), (3,), (), (0,), tuple(pick((1, 2, s)) for s in shape))), min(shape, default=1))
        if name in DIMENSIONS:
            several = tuple(sorted({self.dimension(rank) for _ in range(self.random.randrange(3))}))
            return constant(several if self.chance(0.15) else self.dimension(rank))
        if name == "dims":
            return constant(pick((self.dimension(rank), (0,), (0, 1), tuple({self.dimension(rank), self.dimension(rank)}))))
        if name in ("mask", "condition"):
            return self.beside(shape, T.bool) if self.chance(0.9) else self.tensor(shape)
        if name == "tensors":
            makers = [
                self.tensor(shape if self.chance(0.7) else self.shape(), dtype if self.chance(0.8) else None) for _ in range(2)
            ]
            return lambda: [make() for make in makers]
        if name in ("shape", "sizes", "lengths"):
            return constant(self.shape())
        if name in SMALL_INTEGERS:
            return constant(pick((0, 1, 1, 2, 2, 3, (1, 2), (2,)) if name not in ("k", "groups", "num_groups") else (1, 1, 2, 3)))
        if name in TENSORS:
            if name == "target" and self.chance(0.5):
                return self.index(shape[:1], shape[1] if rank > 1 else 3)
            if name == "other" and self.chance(0.2):
                return constant(pick(NUMBERS))
            if name in ("other", "mat2") and rank > 1 and self.chance(0.4):
                return self.tensor((*shape[:-2], shape[-1], 2), dtype)
            return self.beside(shape, dtype)
        if name in ("min", "max", "value") and self.chance(0.35):
            return self.beside(shape, dtype)
        return constant(pick(NUMBERS)) if required or self.chance(0.5) else None


@dataclass(frozen=True)
class Call:
    """One call of a function: what makes its arguments."""

    function: Callable[..., Any]
    positional: tuple[Maker, ...]
    named: tuple[tuple[str, Maker], ...]

    def arguments(self) -> list[Any]:
        """Fresh arguments, the named ones last."""
        return [make() for make in (*self.positional, *(make for _, make in self.named))]

    def on(self, arguments: list[Any]) -> Any:
        count = len(self.positional)
        return self.function(*arguments[:count], **dict(zip([name for name, _ in self.named], arguments[count:], strict=True)))

    def __str__(self) -> str:
        parts = [
            f"{str(x.dtype).removeprefix('tracejit.')}{list(x.shape)} of strides {x.stride()}"
            if isinstance(x, T.Tensor)
            else repr(x)
            for x in self.arguments()
        ]
        names = ["" for _ in self.positional] + [f"{name}=" for name, _ in self.named]
        return ", ".join(n + p for n, p in zip(names, parts, strict=True))


def random_call(name: str, function: Callable[..., Any], seed: int) -> Call:
    """The call of `function` number `seed`."""
    choices = Choices(f"{name} {seed}")
    shape, dtype = choices.shape(), choices.random.choice(DTYPES)
    positional: list[Maker] = []
    named: list[tuple[str, Maker]] = []
    for k, (parameter_name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            if parameter_name in ("tensors", "operands"):
                positional += [choices.tensor(shape if choices.chance(0.7) else choices.shape(), dtype) for _ in range(2)]
            else:
                order = tuple(range(len(shape)))[::-1]
                positional.append(constant(choices.random.choice(((-1,), (1, 2), (2,), shape[::-1], order, (0,)))))
            continue
        if k == 0 and parameter_name not in ("tensors", "fill_value", "shape", "size", "equation", "start", "end", "n"):
            make: Maker | None = choices.tensor(shape, T.bool if parameter_name == "condition" else dtype)
        else:
            make = choices.argument(parameter_name, parameter, shape, dtype)
        if make is None:
            if parameter.default is not inspect.Parameter.empty:
                continue
            make = constant(choices.random.choice(NUMBERS))
        if parameter.kind is parameter.KEYWORD_ONLY or named or len(positional) != k:
            named.append((parameter_name, make))
        else:
            positional.append(make)
    return Call(function, tuple(positional), tuple(named))
