"""Eager with other roundings: what docs/equality.md allows a compiled program to differ by, put into eager itself.

Inside `rounding_noise(seed)` every primitive whose results need not have equal bits returns them changed at random by as much as its class
may differ: elementary functions by units in the last place, sums and products by the bound of their kind.  All else stays exact, so a
program of exact operations does not change at all, and the spread of a few such runs is what any compiled run may be off by: propagated
through the program by the program.

The classes are found, not listed: by kind, and for elementwise primitives by what their lowering is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from tracejit.codegen.expr import ELEMENTARY, Apply, Var, builder, topological
from tracejit.core.dtypes import from_numpy_dtype
from tracejit.core.op import REGISTRY, Kind, Op

__all__ = ["inexact", "rounding_noise"]

ULP = 4.0  # units in the last place: 2.5 on each side of the exact value, less what is never reached on both
SUM = 8.0  # times eps times the sum of absolute values
PRODUCT = 4.0
Bound = Callable[..., Any]


def _relative(op: Op, evaluate: Any, result: Any, operands: Any, attributes: Any) -> Any:
    return ULP * np.abs(result)


def _of_absolute_values(factor: float) -> Bound:
    def bound(op: Op, evaluate: Any, result: Any, operands: Any, attributes: Any) -> Any:
        return factor * evaluate(*(np.abs(x) if isinstance(x, np.ndarray) else x for x in operands), **attributes)

    return bound


def _per_factor(op: Op, evaluate: Any, result: Any, operands: Any, attributes: Any) -> Any:
    return np.abs(result) * max(operands[0].shape, default=1)


@cache
def inexact() -> dict[str, Bound]:
    """Name of a primitive -> how far its results may be off, in multiples of eps; only those that may."""
    found: dict[str, Bound] = {}
    for name, op in REGISTRY.items():
        if op.kind is Kind.ELEMENTWISE and _is_elementary(op):
            found[name] = _relative
        elif (op.kind is Kind.REDUCTION and op.reducer == "sum") or name in ("cumsum", "fold"):
            found[name] = _of_absolute_values(SUM)
        elif op.kind is Kind.CONTRACTION:
            found[name] = _of_absolute_values(PRODUCT)
        elif (op.kind is Kind.REDUCTION and op.reducer == "prod") or op.kind is Kind.SCAN:
            found[name] = _per_factor
    return found


def _is_elementary(op: Op) -> bool:
    """Whether the scalar meaning of a primitive contains anything but correctly rounded operations."""
    if op.lowering is None or op.samples is None:
        return True
    for operands, attributes in op.samples():
        arguments = [Var(f"x{i}", from_numpy_dtype(x.dtype)) if isinstance(x, np.ndarray) else x for i, x in enumerate(operands)]
        expression = op.lowering(builder, *arguments, **attributes)
        names = {e.operation for e in topological([expression]) if isinstance(e, Apply)}
        return bool(names.intersection(ELEMENTARY)) or any(n.startswith(("libm", "fma")) for n in names)
    return True


@contextmanager
def rounding_noise(seed: int) -> Iterator[None]:
    """Eager with roundings drawn by a seed."""
    generator = np.random.default_rng(seed)
    before = {name: REGISTRY[name].evaluate for name in inexact()}

    def noisy(op: Op, evaluate: Any, bound: Bound) -> Any:
        def changed(*operands: Any, **attributes: Any) -> Any:
            result = evaluate(*operands, **attributes)
            if not isinstance(result, np.ndarray | np.generic) or result.dtype.kind != "f":
                return result
            size = bound(op, evaluate, result, operands, attributes) * np.finfo(result.dtype).eps
            factors = generator.uniform(-1, 1, result.shape)
            moved = np.array(result, order="K")  # the layout is no rounding
            with np.errstate(all="ignore"):
                moved[...] = result + np.where(np.isfinite(size), size, 0) * factors
            return moved

        return changed

    try:
        for name, bound in inexact().items():
            REGISTRY[name].evaluate = noisy(REGISTRY[name], before[name], bound)
        yield
    finally:
        for name, evaluate in before.items():
            REGISTRY[name].evaluate = evaluate
