"""How reductions make one value of many: each combination is declared once, in a block from which all else follows.

A nest names a combination (`Reduce`), as a primitive does (`Op.reducer`); the verifier, lowering and the renderings ask `COMBINATIONS` what
it is, and none of them knows a name (tests/test_operations_own_their_rules.py).  Which elements meet in what order is no matter of the
combination but fixed by `Reduce`, so a combination must be associative and commutative up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.loops.expressions import Expr, Load, Var, builder
from tracejit.loops.language import Buffer, Index, Store

__all__ = ["COMBINATIONS", "Combination", "Rule", "definition"]

Rule = Callable[[Expr, Expr], Expr]
COMBINATIONS: Final[dict[str, Combination]] = {}


@dataclass(frozen=True, slots=True)
class Combination:
    """One way to make one value of many.

    empty(dtype): the total of no values, which changes nothing in a combination.  combine(x, y): one total of two, or of a total and a
    value.  beyond(x, y), of an extreme: whether x is further out than y; of two values that are not equal one is, and NaN (whatever it
    says) further out than all others.  position: the result is the position of the first extreme instead of its value.  wide: totals of
    floats are float64.  truth: it combines truth values alone.

    Renderings have code of their own for two things.  adds: it is addition (a wide one), so stores accumulate, and floats add up in blocks
    (`Reduce`).  Extremes of floats: machine code compares by `beyond` alone, and remembers on the side that there was a NaN."""

    name: str
    empty: Callable[[DType], Any]
    combine: Rule
    beyond: Rule | None = None
    position: bool = False
    wide: bool = False
    truth: bool = False
    adds: bool = False

    def __post_init__(self) -> None:
        if self.name in COMBINATIONS:
            raise ValueError(f"the combination {self.name!r} is declared twice")
        extreme = self.beyond is not None
        if (extreme and self.wide) or (self.adds and not self.wide) or (self.position and not extreme):
            raise ValueError(
                f"the combination {self.name!r}: additions are wide, extremes are not, and positions are of extremes"
            )
        COMBINATIONS[self.name] = self

    def total(self, dtype: DType) -> DType:
        """The dtype of totals of values."""
        return dtypes.float64 if self.wide and dtype.is_floating_point else dtype

    def in_blocks(self, dtype: DType) -> bool:
        return self.adds and dtype.is_floating_point

    def into(self, buffer: Buffer, index: Index, value: Expr) -> Store:
        """The statement that makes an element of memory, a total, and a value one."""
        if self.adds and buffer.dtype is not dtypes.bool_:
            return Store(buffer, index, value, accumulate=True)
        return Store(buffer, index, self.combine(Load(buffer, index), value))


@cache
def definition(rule: Rule, dtype: DType) -> tuple[Var, Var, Expr]:
    """A rule as an expression of two variables."""
    x, y = Var("x", dtype), Var("y", dtype)
    return x, y, rule(x, y)


def _number(n: int) -> Callable[[DType], Any]:
    return lambda dtype: bool(n) if dtype is dtypes.bool_ else n


def _least(dtype: DType) -> Any:
    if dtype is dtypes.bool_:
        return False
    return -np.inf if dtype.is_floating_point else np.iinfo(dtype.numpy).min


def _greatest(dtype: DType) -> Any:
    if dtype is dtypes.bool_:
        return True
    return np.inf if dtype.is_floating_point else np.iinfo(dtype.numpy).max


Combination("sum", _number(0), builder.add, wide=True, adds=True)
Combination("prod", _number(1), builder.mul, wide=True)
Combination("max", _least, builder.maximum, beyond=builder.gt)
Combination("min", _greatest, builder.minimum, beyond=builder.lt)
Combination("argmax", _least, builder.maximum, beyond=builder.gt, position=True)
Combination("argmin", _greatest, builder.minimum, beyond=builder.lt, position=True)
Combination("any", _number(0), builder.bit_or, truth=True)
Combination("all", _number(1), builder.bit_and, truth=True)
