"""core/garbage_collection.py: the garbage collector is held back for a while, and as it was afterwards."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from tracejit.core.garbage_collection import _holds, collection_paused


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    assert gc.isenabled()
    yield
    assert (_holds.count, _holds.to_resume) == (0, False)
    gc.enable()


def test_it_is_off_in_the_block_and_on_after_it() -> None:
    with collection_paused() as hold:
        assert gc.isenabled()
        hold.begin()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collection_paused() as hold:
        hold.begin()
    assert not gc.isenabled()


def test_the_last_of_several_blocks_turns_it_on() -> None:
    first, second = collection_paused(), collection_paused()
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
    with collection_paused() as hold:
        hold.begin()
        hold.end()
        assert gc.isenabled()
        gc.disable()
    assert not gc.isenabled()


def test_an_error_leaves_it_on() -> None:
    with pytest.raises(LookupError), collection_paused() as hold:
        hold.begin()
        raise LookupError
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("own", [False, True])
def test_a_forked_child_has_its_own_blocks_alone(own: bool) -> None:
    begun, going = threading.Event(), threading.Event()

    def other() -> None:
        with collection_paused() as hold:
            hold.begin()
            begun.set()
            going.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(30)
    with collection_paused() as hold:
        if own:
            hold.begin()
        child = os.fork()
        right = gc.isenabled() == (not own and not child)
    if not child:
        os._exit(0 if right and gc.isenabled() else 1)
    going.set()
    thread.join()
    assert right and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
