"""Worker processes of a DataLoader: order, errors, reproducibility, and that none is left behind."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit import data


class Numbers(data.Dataset):
    """Item i is (i, random numbers of three libraries, the worker's number)."""

    def __init__(self, length: int = 23) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index % 5 == 0:
            time.sleep(0.01)  # so that batches are not ready in their order
        info = data.get_worker_info()
        return index, random.random(), float(np.random.rand()), tracejit.rand(2), info.id if info else -1


class Failing(data.Dataset):
    """Item `bad` calls what it is told to call."""

    def __init__(self, bad: int, what: Any) -> None:
        self.bad, self.what = bad, what

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            self.what()
        return index


class Share(data.IterableDataset):
    """The numbers below 20, each worker its share."""

    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        return iter(range(info.id, 20, info.num_workers) if info else range(20))


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def plain(batches: Any) -> list[Any]:
    return [[member.tolist() for member in batch] for batch in batches]


def seeded() -> tracejit.Generator:
    return tracejit.Generator().manual_seed(5)


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_come_in_order_and_the_same_every_time(workers: int) -> None:
    runs = [plain(data.DataLoader(Numbers(), 4, num_workers=workers, generator=seeded())) for _ in range(2)]
    assert runs[0] == runs[1]
    assert [batch[0] for batch in runs[0]] == [list(range(i, min(i + 4, 23))) for i in range(0, 23, 4)]
    assert [set(batch[4]) for batch in runs[0]] == [{i % workers} for i in range(6)]
    drawn = [x for batch in runs[0] for x in batch[1]]
    assert len(set(drawn)) == 23  # each worker has a seed of its own


def test_processes_can_be_spawned() -> None:
    loader = data.DataLoader(Numbers(6), 3, num_workers=1, generator=seeded(), multiprocessing_context="spawn")
    assert plain(loader) == plain(data.DataLoader(Numbers(6), 3, num_workers=1, generator=seeded()))


def test_shuffled_batches_are_those_without_workers() -> None:
    orders = [
        [batch[0].tolist() for batch in data.DataLoader(Numbers(), 4, shuffle=True, num_workers=n, generator=seeded())]
        for n in (0, 2)
    ]
    assert orders[0] == orders[1]


def fail() -> None:
    raise ValueError("this item is bad")


class Odd(Exception):
    """An exception that takes more than a message."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)


def fail_oddly() -> None:
    raise Odd("odd", 3)


def test_an_error_is_raised_here_with_the_traceback_there() -> None:
    with pytest.raises(ValueError, match="Caught ValueError in DataLoader worker process 1") as caught:
        list(data.DataLoader(Failing(7, fail), 4, num_workers=2))
    assert "in fail" in str(caught.value)
    assert "this item is bad" in str(caught.value)
    with pytest.raises(KeyError) as missing:
        list(data.DataLoader(Failing(3, lambda: {}["no such key"]), 4, num_workers=1))
    assert "Original Traceback" in str(missing.value)
    assert "\\n" not in str(missing.value)
    with pytest.raises(RuntimeError, match="Caught Odd in DataLoader worker"):
        list(data.DataLoader(Failing(3, fail_oddly), 4, num_workers=1))
    with pytest.raises(RuntimeError, match="Caught StopIteration"):
        list(data.DataLoader(Failing(3, lambda: next(iter(()))), 4, num_workers=1))


def test_batches_before_the_error_are_given() -> None:
    iterator = iter(data.DataLoader(Failing(9, fail), 4, num_workers=2))
    assert next(iterator).tolist() == [0, 1, 2, 3]
    assert next(iterator).tolist() == [4, 5, 6, 7]
    with pytest.raises(ValueError, match="this item is bad"):
        next(iterator)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_is_noticed(persistent: bool) -> None:
    loader = data.DataLoader(
        Failing(9, lambda: os.kill(os.getpid(), signal.SIGKILL)), 4, num_workers=2, persistent_workers=persistent
    )
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid \d+\) is killed by signal: Killed"):
        list(loader)
    with pytest.raises(RuntimeError, match="exited unexpectedly with exit code 3"):
        list(data.DataLoader(Failing(0, lambda: os._exit(3)), 4, num_workers=1))


def test_a_worker_that_takes_too_long_is_noticed() -> None:
    with pytest.raises(RuntimeError, match=r"timed out after 0\.05 seconds"):
        list(data.DataLoader(Failing(0, lambda: time.sleep(1)), 4, num_workers=1, timeout=0.05))


def test_an_iteration_that_is_left_ends_its_workers() -> None:
    iterator = iter(data.DataLoader(Numbers(), 2, num_workers=2))
    next(iterator)
    assert len(multiprocessing.active_children()) == 2
    del iterator
    assert multiprocessing.active_children() == []


def test_persistent_workers_serve_all_iterations() -> None:
    loader = data.DataLoader(Numbers(8), 2, num_workers=2, persistent_workers=True)
    for batch in loader:
        assert batch[0].tolist() == [0, 1]
        break
    before = {process.pid for process in multiprocessing.active_children()}
    for _ in range(2):
        assert [batch[0].tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert {process.pid for process in multiprocessing.active_children()} == before
    del loader


@pytest.mark.parametrize("drop_last", [False, True])
def test_workers_share_an_iterable_dataset(drop_last: bool) -> None:
    batches = [b.tolist() for b in data.DataLoader(Share(), 3, num_workers=2, drop_last=drop_last)]
    whole = [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11], [12, 14, 16], [13, 15, 17]]
    assert batches == (whole if drop_last else [*whole, [18], [19]])
    assert list(data.DataLoader(Share(), None, num_workers=1)) == list(range(20))


def test_order_can_be_given_up() -> None:
    found = [batch.tolist() for batch in data.DataLoader(Failing(99, fail), 5, num_workers=3, in_order=False)]
    assert sorted(found) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]


def test_workers_are_initialised() -> None:
    def initialise(number: int) -> None:
        info = data.get_worker_info()
        assert info is not None
        assert (info.id, info.num_workers) == (number, 2)
        info.dataset.length = 10 + number

    class Length(Numbers):
        def __getitem__(self, index: int) -> int:
            return self.length

    batches = list(data.DataLoader(Length(), 2, num_workers=2, worker_init_fn=initialise))
    assert [b.tolist() for b in batches[:2]] == [[10, 10], [11, 11]]
    with pytest.raises(ZeroDivisionError):
        list(data.DataLoader(Length(), 2, num_workers=1, worker_init_fn=lambda number: 1 / 0))
    assert data.get_worker_info() is None


def test_large_batches_and_many_positions_do_not_block() -> None:
    class Large(Numbers):
        def __getitem__(self, index: int) -> Any:
            return np.full(3000, index)

    batches = list(data.DataLoader(Large(600), 200, num_workers=2))
    assert [batch.shape for batch in batches] == [(200, 3000)] * 3
    many = [[i % 20 for i in range(40000)] for _ in range(6)]
    assert [batch.numel() for batch in data.DataLoader(Failing(-1, fail), batch_sampler=many, num_workers=2)] == [40000] * 6


def test_two_loaders_at_once() -> None:
    first, second = (data.DataLoader(Numbers(8), 2, num_workers=2) for _ in range(2))
    pairs = [(a[0].tolist(), b[0].tolist()) for a, b in zip(first, second, strict=True)]
    assert pairs == [([i, i + 1], [i, i + 1]) for i in range(0, 8, 2)]


def test_wrong_options_are_errors() -> None:
    with pytest.raises(ValueError, match="num_workers option should be non-negative"):
        data.DataLoader(Numbers(), num_workers=-1)
    with pytest.raises(ValueError, match="prefetch_factor"):
        data.DataLoader(Numbers(), prefetch_factor=2)
    with pytest.raises(ValueError, match="persistent_workers"):
        data.DataLoader(Numbers(), persistent_workers=True)
    with pytest.raises(ValueError, match="timeout"):
        data.DataLoader(Numbers(), timeout=-1)
    with pytest.raises(ValueError, match="IterableDataset: expected unspecified shuffle"):
        data.DataLoader(Share(), shuffle=True)
    assert data.DataLoader(Numbers(), 4, pin_memory=True).pin_memory
