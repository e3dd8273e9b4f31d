"""core/collection.py: the garbage collector is held back for a while, and as it was afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tracejit.core.collection import _holds, held_back


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    assert gc.isenabled()
    yield
    assert (_holds.count, _holds.to_resume) == (0, False)
    gc.enable()


def test_it_is_off_in_the_block_and_on_after_it() -> None:
    with held_back() as hold:
        assert gc.isenabled()
        hold.begin()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with held_back() as hold:
        hold.begin()
    assert not gc.isenabled()


def test_the_last_of_several_blocks_turns_it_on() -> None:
    first, second = held_back(), held_back()
    with first:
        first.begin()
        with second:
            second.begin()
            first.end()
            assert not gc.isenabled()
        assert gc.isenabled()
        first.end()
    assert gc.isenabled()


def test_what_the_program_does_after_the_end_is_not_undone() -> None:
    with held_back() as hold:
        hold.begin()
        hold.end()
        assert gc.isenabled()
        gc.disable()
    assert not gc.isenabled()


def test_an_error_leaves_it_on() -> None:
    with pytest.raises(LookupError), held_back() as hold:
        hold.begin()
        raise LookupError
    assert gc.isenabled()
