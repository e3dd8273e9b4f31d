"""The few functions that programs use beside the library: numbers for tensors, and losses.

Values follow from a seed alone, are the same for every framework, and are no more than three decimals long, so that a literal is the
same number.  Those of different seeds differ, and hardly two are equal: comparisons are not decided by the last bit of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tracejit.core.op import REGISTRY

__all__ = ["DTYPES", "KINDS", "array", "environment", "literal"]

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")
KINDS = ("plain", "positive", "unit", "special", "wide", "whole")  # and an int n: positions below n
GOLDEN = (math.sqrt(5) - 1) / 2
SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, 3e38, 1.0, -1.0, 0.5, 2.5)


def array(dtype: str, shape: tuple[int, ...], seed: int, kind: str | int = "plain") -> np.ndarray:
    """Numbers of a kind, in no order."""
    count = math.prod(shape)
    fractions = (np.arange(count) + 29 * seed + 1) ** 2 * GOLDEN % 1.0
    if isinstance(kind, int):
        values = np.floor(fractions * kind)
    elif dtype == "bool":
        values = fractions < 0.5
    elif dtype.startswith(("int", "uint")):
        values = _integers(dtype, fractions, kind)
    else:
        values = _floats(fractions, seed, kind)
    return values.astype(dtype).reshape(shape)


def _integers(dtype: str, fractions: np.ndarray, kind: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    if kind in ("special", "wide"):
        low, high = max(limits.min, -(2**40)), min(limits.max, 2**40)
    elif kind in ("positive", "unit"):
        low, high = 1, 4
    else:
        low, high = (0, 6) if limits.min == 0 else (-3, 6)
    values = np.floor(low + fractions * (high - low + 1)).astype(np.int64)
    if kind == "special":
        values[::3] = limits.max
        values[1::4] = limits.min
    return values


def _floats(fractions: np.ndarray, seed: int, kind: str) -> np.ndarray:
    if kind == "whole":
        return np.floor(fractions * 9) - 3
    low, high = {"positive": (0.3, 3.0), "unit": (0.05, 0.95)}.get(kind, (-2.0, 2.0))
    values = np.round(low + fractions * (high - low), 3)
    if kind == "wide":
        values = values * 10.0 ** (np.floor(fractions * 1000) % 13 - 6)
    if kind == "special":
        chosen = np.floor(fractions * 1e4) % 2 == 0
        values[chosen] = np.resize(np.roll(SPECIAL, seed), int(chosen.sum()))
    return values


def literal(values: np.ndarray) -> str:
    """The text of a constructor call that makes the same tensor."""
    kind = values.dtype.name
    numbers = repr(values.astype(object).tolist() if kind != "float32" else _short(values))
    for name in ("nan", "inf"):
        numbers = numbers.replace(name, f"math.{name}")
    if not values.size and values.shape != (0,):
        return f"T.zeros({values.shape}, dtype=T.{kind})"
    plain = {"float32": np.float32, "bool": np.bool_, "int64": np.int64}.get(kind)
    return f"T.tensor({numbers})" if plain and values.size else f"T.tensor({numbers}, dtype=T.{kind})"


def _short(values: np.ndarray) -> Any:
    """Float32 numbers as the shortest decimals."""
    flat = [float(str(v)) for v in values.reshape(-1)]
    nested = np.empty(values.size, object)
    nested[:] = flat
    return nested.reshape(values.shape).tolist()


def environment(framework: Any) -> dict[str, Any]:
    """The names that programs may use, for a framework: tracejit or torch."""
    functional = framework.nn.functional

    def made(dtype: str, shape: tuple[int, ...], seed: int, kind: str | int = "plain") -> Any:
        return framework.from_numpy(array(dtype, shape, seed, kind))

    def tensors(value: Any) -> Iterator[Any]:
        if isinstance(value, framework.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            for item in value:
                yield from tensors(item)
        elif isinstance(value, dict):
            yield from tensors(list(value.values()))
        elif hasattr(value, "__dict__") and not callable(value):
            yield from tensors(list(vars(value).values()))

    def total(value: Any) -> Any:
        """A loss: every result that requires grad, weighted."""
        found = [t for t in tensors(value) if t.requires_grad]
        if not found:
            return framework.zeros((), requires_grad=True) * 1.0
        losses = [(t * made(str(t.dtype).split(".")[-1], tuple(t.shape), 3 + i)).sum() for i, t in enumerate(found)]
        loss = losses[0]
        for other in losses[1:]:
            loss = loss + other
        return loss

    helpers: dict[str, Callable[..., Any]] = {"made": made, "total": total, "op": REGISTRY.__getitem__}
    return {"T": framework, "F": functional, "math": math, "np": np, **helpers}
