"""Where a sequence repeats itself: stretches of labels in which each is the one that stood a period before.

Candidates come from windows of 1, 2, 4 ... labels, numbered by what they hold (prefix doubling, as suffix arrays are made: Manber and
Myers, 1990): in a stretch of period p, windows that are as long return after p.  So it takes time n log n of the labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["stretches"]

_MOST = 8  # candidates from windows of a length


def stretches(labels: np.ndarray[Any, Any], fewest: int) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """(period, [(begin, end) ...]) of the stretches that hold `fewest` periods or more; short periods first."""
    for period in sorted(_periods(labels, fewest)):
        same = (labels[period:] == labels[:-period]).astype(np.int8)
        edges = np.flatnonzero(np.diff(same, prepend=0, append=0)).tolist()
        found = zip(edges[::2], edges[1::2], strict=True)
        long = [(begin, end + period) for begin, end in found if end - begin >= (fewest - 1) * period]
        if long:
            yield period, long


def _periods(labels: np.ndarray[Any, Any], fewest: int) -> set[int]:
    """Periods that may be there: how far apart equal windows follow each other, most often."""
    found: set[int] = set()
    windows, width = labels.astype(np.int64), 1
    while len(windows) > 1:
        order = np.argsort(windows, kind="stable")
        in_order = windows[order]
        same = in_order[1:] == in_order[:-1]
        distances = _most_common((order[1:] - order[:-1])[same])
        found.update(p for p in distances if p * fewest <= len(labels))
        if not distances or 2 * width * fewest > 2 * len(labels):
            break
        ranks = np.zeros(len(windows), np.int64)
        ranks[order[1:]] = np.cumsum(~same)
        windows = ranks[:-width] * (int(ranks.max()) + 1) + ranks[width:]
        width *= 2
    return found


def _most_common(numbers: np.ndarray[Any, Any]) -> list[int]:
    """Those that are there most often; of equally many those that come first."""
    different, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    most: list[int] = different[np.lexsort((first, -counts))[:_MOST]].tolist()
    return most
