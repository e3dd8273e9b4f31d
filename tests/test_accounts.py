"""compiled/accounts.py: what is counted, and what follows from it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracejit.compiled.accounts import WINDOW, Accounts, forget_code
from tracejit.compiled.recorded_path import FIRST_WAIT
from tracejit.config import config


def path(gain: int = 0, uses: int = 0, operations: int = 0) -> Any:
    return SimpleNamespace(gain=gain, uses=uses, operations=operations, executable=SimpleNamespace(counter=[0, 0, 0, 0]))


def losing_window(accounts: Accounts, *paths: Any) -> bool:
    accounts.charge(1, WINDOW)
    return accounts.close_window(paths)


def test_a_window_is_over_after_so_many_calls_that_the_first_entry_did_not_serve() -> None:
    accounts = Accounts(None)
    assert [accounts.charge(1) for _ in range(WINDOW)] == [False] * (WINDOW - 1) + [True]


def test_a_window_loses_where_its_entries_gain_less_than_it_costs_to_try_them() -> None:
    cost = 2 * WINDOW  # one for each call and one for what it tried
    assert losing_window(Accounts(None), path(gain=cost - 1)) and not losing_window(Accounts(None), path(gain=cost))


def test_gains_are_counted_once_and_pay_debts_of_earlier_windows() -> None:
    accounts, serves = Accounts(None), path(gain=2 * WINDOW)
    assert not losing_window(accounts, serves)
    assert losing_window(accounts, serves), "the gain belongs to the window before"
    serves.gain += 4 * WINDOW
    assert not losing_window(accounts, serves)


def test_the_gain_of_a_dropped_entry_stays() -> None:
    accounts, dropped = Accounts(None), path(gain=2 * WINDOW)
    accounts.retire(dropped)
    assert not losing_window(accounts)


def test_a_function_that_goes_on_losing_rests_longer_each_time() -> None:
    accounts, rests = Accounts(None), []
    for _ in range(5):
        assert losing_window(accounts)
        rests.append(accounts.rest_after_loss())
    assert rests == [0, FIRST_WAIT, 4 * FIRST_WAIT, 16 * FIRST_WAIT, 64 * FIRST_WAIT]


def test_as_many_windows_without_debt_as_there_were_losses_end_the_suspicion() -> None:
    accounts, serves = Accounts(None), path()
    for _ in range(2):
        losing_window(accounts, serves)
    accounts.rest_after_loss()
    for _ in range(2):
        serves.gain += 1000 * WINDOW
        assert not losing_window(accounts, serves)
    assert losing_window(accounts, serves) and accounts.rest_after_loss() == 0


@given(st.lists(st.one_of(st.integers(0, 20), st.just("call")), max_size=40))
def test_calls_that_rest_are_counted_whatever_is_granted_meanwhile(actions: list[Any]) -> None:
    accounts, taken = Accounts(None), 0
    for action in actions:
        if action == "call":
            taken += accounts.take_resting_call()
        else:
            accounts.rest(action)
            assert accounts.is_resting == (action > 0)
        assert accounts.direct_calls == taken


def test_failures_in_a_row_make_the_next_recording_wait_and_a_path_ends_that() -> None:
    accounts = Accounts(None)
    waits = [accounts.note_failure(lasting=True) for _ in range(config.max_failures + 2)]
    assert waits == [0] * (config.max_failures - 1) + [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT]
    assert [accounts.must_wait() for _ in range(waits[-1] + 1)] == [True] * waits[-1] + [False]
    accounts.note_recording(path(), 0, is_instance=False)
    assert accounts.note_failure(lasting=True) == 0


def test_recordings_of_a_piece_that_serve_nothing_wait_after_the_fourth() -> None:
    waits: dict[bool, list[int]] = {}
    for is_piece in (False, True):
        accounts, waits[is_piece] = Accounts(None, is_piece), []
        for served in (0, 0, 0, 0, 0, 1, 1, 1, 1):
            accounts.note_recording(path(), served, is_instance=False)
            waits[is_piece].append(sum(1 for _ in itertools.takewhile(lambda _: accounts.must_wait(), range(100))))
    assert waits == {False: [0] * 9, True: [0, 0, 0, 16, 32, 0, 0, 0, 16]}


def test_failures_that_are_not_the_programs_never_make_it_wait_longer() -> None:
    accounts = Accounts(None)
    assert {accounts.note_failure(lasting=False) for _ in range(config.max_failures + 5)} == {0, FIRST_WAIT}


def test_errors_in_a_row_make_the_next_recording_wait() -> None:
    accounts = Accounts(None)
    assert [accounts.note_error() for _ in range(10)] == [0] * 7 + [8, 16, 32]


@pytest.mark.parametrize(("is_instance", "paths"), [(False, 16), (True, 128)])
def test_paths_that_serve_nothing_discourage_recordings_and_served_calls_encourage_them(is_instance: bool, paths: int) -> None:
    accounts = Accounts(None)
    for k in range(paths):
        assert not accounts.is_discouraged and accounts.is_wasteful() == (2 * k >= paths)
        accounts.note_recording(path(), 0, is_instance)
    assert accounts.is_discouraged and accounts.must_wait()
    accounts.note_recording(path(), 1000, is_instance)
    assert not accounts.is_discouraged and not accounts.must_wait()


def large(recordings: int) -> tuple[Accounts, list[Any]]:
    accounts, paths = Accounts(None), [path(operations=1000) for _ in range(recordings)]
    for new in paths:
        accounts.note_recording(new, 0, is_instance=False)
    return accounts, paths


def test_four_large_recordings_in_vain_make_the_next_ones_wait_longer_each_time() -> None:
    assert not large(3)[0].must_wait()
    accounts, _ = large(4)
    for wait in (FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT):
        assert [accounts.must_wait() for _ in range(wait + 1)] == [True] * wait + [False]
        assert accounts.waited_calls == wait
        accounts.note_recording(path(operations=1000), 0, is_instance=False)
        assert not accounts.waited_calls


def test_large_paths_that_come_back_end_the_wait_at_once() -> None:
    accounts, paths = large(4)
    assert accounts.must_wait()
    for new in paths:
        new.executable.counter[0] = 1
    assert not accounts.must_wait()


def test_calls_that_other_paths_serve_pay_for_fewer_large_recordings_than_small_ones() -> None:
    counts = []
    for operations in (0, 1000):
        accounts, served = Accounts(None), 0
        while not accounts.is_discouraged:
            served += 7
            accounts.note_recording(path(operations=operations), served, is_instance=False)
        counts.append(served // 7)
    assert counts == [114, 4]


def test_a_function_is_wasteful_after_eight_small_recordings_or_one_after_the_wait_of_large_ones() -> None:
    assert [large(n)[0].is_wasteful() for n in (3, 4, 5)] == [False, False, True]


def test_nothing_is_owed_once_all_paths_are_dropped_for_others() -> None:
    accounts, _ = large(4)
    losing_window(accounts)
    accounts.note_recording(path(operations=1000), 0, is_instance=False)
    assert accounts.must_wait()
    accounts.forgive()
    assert not accounts.must_wait() and not accounts.is_discouraged


def test_in_debt_the_next_path_waits_until_the_last_one_has_served() -> None:
    accounts, last = Accounts(None), path()
    losing_window(accounts)
    accounts.note_recording(last, 0, is_instance=False)
    assert accounts.must_wait()
    last.uses = 1
    assert not accounts.must_wait()


def test_the_search_for_unused_entries_comes_later_after_each_drop() -> None:
    accounts, needed = Accounts(None), []
    for dropped in (False, True, True, False):
        calls = 1
        while accounts.is_search_early(pays=False):
            calls += 1
        assert accounts.unrecorded_calls == calls
        accounts.note_search(dropped)
        needed.append(calls)
    first = FIRST_WAIT * config.max_entries
    assert needed == [first, first, 2 * first, 4 * first]
    assert [accounts.is_search_early(pays=True) for _ in range(FIRST_WAIT)] == [True] * (FIRST_WAIT - 1) + [False]


@pytest.mark.parametrize(("operations", "functions"), [(0, 32), (1000, 8)])
def test_functions_of_one_code_that_serve_nothing_make_the_next_ones_wait_once(operations: int, functions: int) -> None:
    def function() -> None: ...

    forget_code()
    for _ in range(functions):
        accounts = Accounts(function)
        assert accounts.wait_for_code() == 0
        accounts.note_recording(path(operations=operations), 0, is_instance=False)
    accounts = Accounts(function)
    assert accounts.wait_for_code() == FIRST_WAIT and accounts.is_first_wait_for_code() and accounts.wait_for_code() == 0
    assert Accounts(function).wait_for_code() == FIRST_WAIT and not Accounts(function).is_first_wait_for_code()
    assert Accounts(lambda: None).wait_for_code() == 0
