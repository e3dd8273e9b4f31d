"""passes/periods.py: where a sequence repeats itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracejit.passes.periods import stretches


@given(st.lists(st.integers(0, 3), max_size=120), st.integers(2, 5))
def test_each_stretch_repeats_itself_and_goes_no_further(labels: list[int], fewest: int) -> None:
    before = 0
    for period, found in stretches(np.array(labels, np.int64), fewest):
        assert period > before
        before = period
        for begin, end in found:
            assert end - begin >= fewest * period
            assert all(labels[i] == labels[i - period] for i in range(begin + period, end))
            assert begin == 0 or labels[begin - 1] != labels[begin - 1 + period]
            assert end == len(labels) or labels[end] != labels[end - period]


@given(st.lists(st.integers(0, 50), max_size=30), st.lists(st.integers(0, 5), min_size=1, max_size=9), st.integers(8, 20))
def test_what_is_repeated_is_found_between_other_things(other: list[int], unit: list[int], count: int) -> None:
    labels = np.array([*[100 + x for x in other], *unit * count, *[200 + x for x in other]], np.int64)
    begin, end = len(other), len(other) + len(unit) * count
    found = [(p, a, b) for p, where in stretches(labels, 8) for a, b in where]
    assert any(len(unit) % p == 0 and a <= begin and b >= end for p, a, b in found)


def test_there_is_nothing_in_what_does_not_repeat() -> None:
    assert not list(stretches(np.arange(1000), 8)) and not list(stretches(np.array([], np.int64), 8))
