"""Functions of `heapq` and `statistics` of numbers that leave: heaps are put in order when the program has run."""

from __future__ import annotations

import heapq
import math
import statistics

import pytest

import tracejit as T
from tracejit.capture.handlers.standard_calls import heap_kind
from tracejit.config import override

CALLS = 12


def pushed(x, n, heap):
    heapq.heappush(heap, (x.sum().item(), n))
    return x * 2


def kept_short(x, n, heap):
    heapq.heappush(heap, (x.sum().item(), n))
    if len(heap) > 3:
        heapq.heappop(heap)
    return x * len(heap)


def numbers_and_several(x, n, heap):
    heapq.heappush(heap, -x.sum().item())
    heapq.heappush(heap, x.max().item())
    return len(heap)


def least_is_used(x, n, heap):
    heapq.heappush(heap, (x.sum().item(), n))
    return heapq.heappop(heap) if len(heap) > 2 else x


def least_is_looked_at(x, n, heap):
    heapq.heappush(heap, (x.sum().item(), n))
    return heap[0]


def least_of_several(x, n, heap):
    heapq.heappush(heap, (x.sum().item(), n))
    return heapq.nsmallest(2, heap), x


REPLAYED = {pushed: 9, kept_short: 8, numbers_and_several: 8}


def driven(f):
    heap, found = [], []
    for n in range(CALLS):
        try:
            result = f(T.tensor([1.0, 2.0]) * (n * 7 % 5), n, heap)
        except (TypeError, IndexError) as error:
            result = str(error)
        found.append((result.tolist() if isinstance(result, T.Tensor) else repr(result), repr(heap)))
        if n == 8:
            heap.append("text")  # which numbers cannot be compared with
        elif n == 9:
            heap.clear()
    return found


@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize("f", [*REPLAYED, least_is_used, least_is_looked_at, least_of_several], ids=lambda f: f.__name__)
def test_heaps_are_those_of_eager_calls(f, hot):
    expected = driven(f)
    with override(hot_calls=hot):
        compiled = T.compile(f)
        assert driven(compiled) == expected
    assert compiled.stats.compiled_calls >= REPLAYED.get(f, 0), compiled.explain()
    assert f in REPLAYED or "read_after_change" in {r.code for r in compiled.reasons} or f is least_is_used


def test_items_that_may_not_be_comparable_are_no_heap_of_numbers():
    assert heap_kind([]) is None
    assert heap_kind([1, 2.5]) is int
    assert heap_kind([(1, 2.0), (3,)]) is tuple
    assert {heap_kind(items) for items in ([1, (2,)], [("a", 1)], [True], ["a"], [0] * 2000)} == {bool}


@pytest.mark.parametrize("first", [1.0, 2e300, math.inf, math.nan])
def test_precise_sums_and_means_of_numbers_that_leave(first):
    def f(x, n):
        values = [*x.tolist(), n * 0.5]
        try:
            return math.fsum(values), statistics.fmean(values), math.fsum([0.1] * 10)
        except (OverflowError, ValueError) as error:
            return str(error)

    compiled = T.compile(f)
    for n, head in enumerate((first, 1.0, 2.0, -math.inf, 3.0, 1e308, 0.1)):
        x = T.tensor([head, 0.1, 1e308 if head == 1e308 else 1e16, -0.25], dtype=T.float64)
        assert repr(compiled(x, n)) == repr(f(x, n))
    assert compiled.stats.compiled_calls >= 2
