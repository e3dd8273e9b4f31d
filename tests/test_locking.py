"""Locks that a compiled function takes: nobody comes between what it reads and what it stores, and none stays taken."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import tracejit as T
from tracejit.config import override

CALLS = 6


def state(kind: Any = threading.Lock) -> SimpleNamespace:
    return SimpleNamespace(lock=kind(), other=kind(), total=0.0, count=0, limit=3)


def with_statement(x: T.Tensor, s: SimpleNamespace) -> T.Tensor:
    with s.lock:
        s.total += x.sum().item()
        s.count += 1
    return x * s.count


def methods(x: T.Tensor, s: SimpleNamespace) -> T.Tensor:
    s.lock.acquire()
    try:
        s.total += x.mean().item()
    finally:
        s.lock.release()
    return x + 1


def one_in_another(x: T.Tensor, s: SimpleNamespace) -> T.Tensor:
    with s.lock, s.other:
        s.total = s.total + 1
    return x + s.total


def read_before_and_under_it(x: T.Tensor, s: SimpleNamespace) -> T.Tensor:
    before = s.count
    with s.lock:
        s.count = s.count + 1
    return x * before + s.count


def decided_under_it(x: T.Tensor, s: SimpleNamespace) -> T.Tensor:
    with s.lock:
        if x.sum() > 2 and s.count < s.limit:
            s.count += 1
            return x * 2
    return -x


def made_inside(x: T.Tensor, s: SimpleNamespace) -> T.Tensor:
    with threading.Lock():
        s.count += 1
    return x * 2


COMPILED = [with_statement, methods, one_in_another, read_before_and_under_it, decided_under_it, made_inside]


@pytest.mark.parametrize("function", COMPILED)
@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
@pytest.mark.parametrize("hot", [0, 1])
def test_a_function_that_takes_locks_is_replayed_and_gives_them_back(function: Any, kind: Any, hot: int) -> None:
    def run(call: Any) -> list[Any]:
        s, found = state(kind), []
        for i in range(CALLS):
            found.append(call(T.tensor([float(i), 1.0]), s).tolist())
            assert all(lock.acquire(blocking=False) for lock in (s.lock, s.other))
            s.lock.release(), s.other.release()
        return [found, s.total, s.count]

    with override(hot_calls=hot):
        compiled = T.compile(function)
        assert run(compiled) == run(function)
    recordings = 3 if function is decided_under_it else 1
    assert compiled.stats.traces <= recordings and compiled.stats.compiled_calls >= CALLS - recordings, compiled.explain()


@pytest.mark.parametrize("function", [with_statement, methods, one_in_another, read_before_and_under_it])
def test_no_update_is_lost_between_threads(function: Any) -> None:
    s, x = state(), T.tensor([0.5, 0.5])
    compiled = T.compile(function)
    compiled(x, s)
    each = 300

    def work() -> None:
        for _ in range(each):
            compiled(x, s)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = 1 + 4 * each
    expected = state()
    for _ in range(calls):
        function(x, expected)
    assert (s.total, s.count) == (expected.total, expected.count)
    assert compiled.stats.compiled_calls > calls // 2


def test_a_call_that_is_not_served_has_let_go() -> None:
    def function(x: T.Tensor, s: SimpleNamespace) -> T.Tensor:
        with s.lock:
            if s.total > 5:
                return x * 3
            s.total += x.sum().item()
        return x * 2

    s = state()
    compiled = T.compile(function)
    found = [compiled(T.ones(2), s).tolist() for _ in range(6)]
    assert found == [[2.0, 2.0]] * 3 + [[3.0, 3.0]] * 3
    assert s.lock.acquire(blocking=False)


def test_what_is_raised_under_a_lock_lets_go_of_it() -> None:
    s = state()

    def function(x: T.Tensor) -> float:
        with s.lock:
            s.total = 1 / x.sum().item()
        return s.total

    compiled = T.compile(function)
    for value in (1.0, 2.0, 4.0):
        assert compiled(T.tensor([value])) == 1 / value
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            compiled(T.tensor([0.0]))
        assert not s.lock.locked()
    assert compiled(T.tensor([8.0])) == 0.125 and not s.lock.locked()


def one_after_another(x: T.Tensor, s: SimpleNamespace) -> T.Tensor:
    with s.lock:
        s.count += 1
    with s.other:
        s.total += 1
    return x * 2


def not_waiting(x: T.Tensor, s: SimpleNamespace) -> T.Tensor:
    if s.lock.acquire(blocking=False):
        s.lock.release()
    return x * 2


def kept(x: T.Tensor, s: SimpleNamespace) -> T.Tensor:
    s.lock.acquire()
    return x * 2


@pytest.mark.parametrize("function", [one_after_another, not_waiting, kept])
def test_locks_that_an_entry_would_hold_otherwise_make_a_function_eager(function: Any) -> None:
    s = state(threading.RLock)
    compiled = T.compile(function)
    for _ in range(4):
        assert compiled(T.ones(2), s).tolist() == [2.0, 2.0]
    assert compiled.stats.compiled_calls == 0
    assert {reason.code for reason in compiled.reasons} <= {"impure_call", "construction", "unknown_call"}
