"""Compiled functions in interpreters that are watched, short of stack, full of threads, collected at every turn, or started with odd flags.

tests/surroundings.py says what runs; each circumstance has a process of its own.  What needs no process stands here."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from surroundings import CIRCUMSTANCES

import tracejit as T
from tracejit import nn
from tracejit.config import override
from tracejit.core.interpreter import state

HERE = Path(__file__).resolve().parent
WATCHED = [name for name in CIRCUMSTANCES if name != "nothing"]
FLAGS = [["-X", "dev", "-W", "error"], ["-OO", "-I", "-B", "-X", "frozen_modules=off"]]  # with "dev" the allocator checks, too


def said_by(flags: list[str], name: str, first: int, **more: str) -> tuple[int, str, str]:
    paths = [str(HERE), str(HERE.parent), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TRACEJIT_CACHE": "0", **more}
    start = f"import sys; sys.path[:0] = {paths!r}; import surroundings; surroundings.main({name!r}, {first})"
    said = subprocess.run([sys.executable, *flags, "-c", start], capture_output=True, text=True, env=environment, timeout=600)
    return said.returncode, said.stdout.strip().rpartition("\n")[2], said.stderr


@pytest.mark.parametrize("name", WATCHED)
def test_programs_do_the_same_when(name: str) -> None:
    status, last, errors = said_by([], name, WATCHED.index(name))
    assert (status, last) == (0, "fine"), errors[-3000:]
    assert "ignored" not in errors and "Error" not in errors, errors[-3000:]


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_programs_do_the_same_with(flags: list[str]) -> None:
    status, last, errors = said_by(flags, "nothing", len(WATCHED) + FLAGS.index(flags), PYTHONHASHSEED=str(FLAGS.index(flags)))
    assert (status, last) == (0, "fine"), errors[-3000:]


# -- tasks


def test_tasks_that_take_turns_have_the_modes_of_their_thread() -> None:
    """As eagerly: a mode is the thread's, whichever task turned it on."""
    product = T.compile(lambda w, x: (w * x).sum())

    async def work(function: Any, w: Any, log: list[Any], order: list[asyncio.Event], number: int) -> None:
        for k in range(6):
            await order[number].wait()
            order[number].clear()
            if k == 2 + number:
                with T.no_grad():
                    log.append((number, k, function(w, T.ones(2)).requires_grad))
                    order[1 - number].set()
                    await asyncio.sleep(0)
                    log.append((number, k, function(w, T.ones(2)).requires_grad))
            else:
                log.append((number, k, function(w, T.ones(2)).requires_grad))
            order[1 - number].set()

    async def both(function: Any) -> list[Any]:
        log: list[Any] = []
        w, order = T.ones(2, requires_grad=True), [asyncio.Event(), asyncio.Event()]
        order[0].set()
        await asyncio.wait_for(asyncio.gather(*[work(function, w, log, order, n) for n in range(2)]), 20)
        return log

    expected = asyncio.run(both(product.__wrapped__))
    for _ in range(4):
        assert asyncio.run(both(product)) == expected
    assert product.stats.compiled_calls > 10 and state.grad_enabled


def test_a_coroutine_may_call_compiled_functions_and_be_cancelled() -> None:
    step = T.compile(lambda x: (x * 2).exp())

    async def work(seen: list[Any]) -> None:
        x = T.zeros(2)
        try:
            while True:
                x = step(x) - 1
                seen.append(x.tolist())
                await asyncio.sleep(0)
        finally:
            seen.append(step(T.zeros(2)).tolist())

    async def main() -> list[Any]:
        seen: list[Any] = []
        task = asyncio.create_task(work(seen))
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    seen = asyncio.run(main())
    assert len(seen) > 10 and seen[-1] == [1.0, 1.0] and step.stats.compiled_calls > 10


def test_compiled_coroutine_functions_and_generators_are_what_they_are() -> None:
    @T.compile
    async def later(x: Any) -> Any:
        await asyncio.sleep(0)
        return x * 2

    @T.compile
    def several(x: Any) -> Iterator[Any]:
        with T.no_grad():
            yield x * 2
            yield x * 3

    x = T.ones(2, requires_grad=True)
    for _ in range(3):
        assert asyncio.run(later(x)).tolist() == [2.0, 2.0]
        one = several(x)
        first = next(one)
        mode = state.grad_enabled
        two = several(x)
        assert [v.tolist() for v in (first, *one, *two)] == [[2.0, 2.0], [3.0, 3.0]] * 2
        assert not mode and state.grad_enabled  # a suspended generator leaves its mode behind, as it does eagerly


def test_generators_are_suspended_across_compiled_calls() -> None:
    inner = T.compile(lambda x: x * 2 + 1)

    def feed(function: Any, x: Any) -> Iterator[Any]:
        for _ in range(6):
            x = function(x)
            yield x

    some, others = feed(inner, T.ones(2)), feed(inner, T.zeros(2))
    found = [(a.tolist(), b.tolist()) for a, b in zip(some, others, strict=True)]
    eager = zip(feed(inner.__wrapped__, T.ones(2)), feed(inner.__wrapped__, T.zeros(2)), strict=True)
    assert found == [(a.tolist(), b.tolist()) for a, b in eager]


# -- threads


def test_threads_record_call_and_clear_one_function() -> None:
    function = T.compile(lambda x, k: (x * k).tanh() if x.sum() > 0 else x - k)
    wrong: list[Any] = []
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        for k in range(150):
            x = T.full((1 + (k + number) % 4,), 1.0 if k % 3 else -1.0)
            found, expected = function(x, 2.0), function.__wrapped__(x, 2.0)
            if not np.allclose(found.numpy(), expected.numpy()):
                wrong.append((number, k))
            if number == 0 and k % 25 == 24:
                function.clear()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with override(hot_calls=3):
            threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []
    assert function(T.ones(2), 2.0).tolist() == function.__wrapped__(T.ones(2), 2.0).tolist()
    assert "calls" in function.explain(verbose=True)  # only now: the last thing a thread did may have been to clear


def test_a_deep_recursion_through_compiled_functions_is_eagers() -> None:
    @T.compile
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else power(x, n - 1) * x

    for _ in range(3):
        assert power(T.full((2,), 1.5), 40).tolist() == pytest.approx([1.5**41] * 2, rel=1e-4)


# -- other processes


def in_child(queue: Any, model: Any) -> None:
    function = T.compile(lambda x: model(x).sum())
    results = [function(T.ones(2, 3)).item() for _ in range(4)]
    queue.put((results, function.stats.compiled_calls))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_record_for_themselves(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system does not {method}")
    context = multiprocessing.get_context(method)
    model = nn.Linear(3, 2)
    parent = T.compile(lambda x: model(x).sum())
    expected = parent(T.ones(2, 3)).item()
    queue = context.Queue()
    process = context.Process(target=in_child, args=(queue, model))
    process.start()
    results, compiled = queue.get(timeout=120)
    process.join()
    assert results == pytest.approx([expected] * 4, rel=1e-5) and compiled == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_goes_on_with_its_parents_entries() -> None:
    function = T.compile(lambda x: (x * 2).exp())
    with override(hot_calls=3):
        for _ in range(6):
            expected = function(T.ones(3)).tolist()
        child = os.fork()
        if child == 0:
            try:
                fine = [function(T.ones(3)).tolist() for _ in range(5)] == [expected] * 5
                fine = fine and np.allclose(function(T.ones(4)).numpy(), expected[0])
                os._exit(0 if fine else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
