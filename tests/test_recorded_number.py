"""Recorded numbers are no numbers to C code: whatever needs the number asks for it."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tracejit.capture.handlers.symbols import SymbolicNumber
from tracejit.core.recorded_number import ARITHMETIC, COMPARISONS, RecordedNumber, with_operators
from tracejit.core.symbolic import SymFloat, SymInt


def noted(symbol: str, *rest: Any) -> Callable[..., Any]:
    return lambda self, *operands: (symbol, *rest, *operands)


@with_operators(lambda symbol, swapped: noted(symbol, swapped), noted, noted)
class Five(RecordedNumber):
    """Says which operator was called, and counts how often it was asked for its value."""

    __slots__ = ("asked",)
    __class__ = property(lambda self: int)  # type: ignore[assignment]

    def __init__(self) -> None:
        self.asked = 0

    def concretise(self) -> int:
        self.asked += 1
        return 5


@pytest.mark.parametrize(
    "need",
    [
        int, float, complex, str, repr, hash, round, math.floor, math.ceil, math.trunc, math.sqrt, operator.index,
        lambda n: format(n, ",d"), lambda n: divmod(n, 2), lambda n: divmod(13, n), lambda n: list(range(n)), lambda n: "abcdefg"[n],
        lambda n: n.bit_length(), lambda n: n.real, copy.deepcopy, lambda n: pickle.loads(pickle.dumps(n)),
        lambda n: np.zeros(n).shape, lambda n: np.full(2, n).dtype, lambda n: np.float32(2) * n,
        lambda n: (np.ones(2, np.float32) * n).dtype, lambda n: np.minimum(np.float32(7), n),
    ],
)  # fmt: skip
def test_whoever_needs_the_number_gets_what_a_plain_one_gives_and_is_seen(need: Callable[[Any], Any]) -> None:
    five = Five()
    assert need(five) == need(5) and five.asked


def test_operators_are_made_for_their_symbols_on_either_side() -> None:
    five = Five()
    for symbol, compute in ARITHMETIC.items():
        assert compute(five, 2) == (symbol, False, 2) and compute(2, five) == (symbol, True, 2)
    for symbol, compare in COMPARISONS.items():
        assert compare(five, 2) == (symbol, 2)
    assert (-five, +five, ~five, abs(five)) == (("-",), ("+",), ("~",), ("abs",)) and not five.asked


@pytest.mark.parametrize("kind", [SymInt, SymFloat, SymbolicNumber])
def test_no_kind_of_recorded_numbers_is_a_number_to_c_code(kind: type) -> None:
    assert issubclass(kind, RecordedNumber) and not issubclass(kind, (int, float))


def test_isinstance_takes_it_for_its_number_and_asks_nothing() -> None:
    five = Five()
    assert isinstance(five, int) and not isinstance(five, (float, str)) and not hasattr(five, "dtype") and not five.asked
