"""What is known of the ends of a list whose length is not."""

from __future__ import annotations

import itertools

from tracejit.capture.handlers.sequence_ends import SequenceEnds, fixed_positions


def test_a_slice_at_one_end_stands_for_the_same_positions_in_every_sequence_that_is_long_enough():
    bounds = [None, *range(-4, 5)]
    found = 0
    for start, stop, step in itertools.product(bounds, bounds, [None, 1, 2, -1, -2]):
        for length in range(8):
            fixed = fixed_positions(slice(start, stop, step), length)
            if fixed is None:
                continue
            found += 1
            least, positions = fixed
            assert least <= length
            for other in (least, length, length + 3):
                items = list(range(other))
                assert [items[position] for position in positions] == items[start:stop:step]
    assert found > 500


def test_slices_between_two_ends_and_slices_of_what_is_too_short_are_not_fixed():
    for key in (slice(None), slice(1, None), slice(None, -1), slice(None, None, -1), slice(0, -2)):
        assert fixed_positions(key, 10) is None
    assert fixed_positions(slice(-3, None), 2) is None
    assert fixed_positions(slice(None, 3), 2) is None


def test_items_that_are_put_at_an_end_are_taken_from_there_before_those_that_were_there():
    ends = SequenceEnds(2)
    ends.push("append", ["a"])
    ends.push("appendleft", ["b"])
    assert (ends.front, ends.back, ends.growth, ends.rest) == (["b"], ["a"], 2, 2)
    ends.pop(left=False)
    assert ends.back == [] and ends.takes_old(left=False)
    ends.pop(left=False)
    assert (ends.last, ends.rest, ends.growth, ends.moved) == (1, 1, 0, True)


def test_a_deque_that_is_full_pushes_items_out():
    ends = SequenceEnds(2, most=3)
    ends.push("append", [1])
    assert not ends.overflowed
    ends.push("extend", [2])
    assert ends.overflowed
