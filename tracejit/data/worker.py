"""Worker processes of a DataLoader: what runs in one, and the pool that its iterator asks for batches.

Each worker has two pipes of its own, for tasks and for results, and a thread that takes tasks in, so that neither side ever waits
for the other to read.  Invariants: a worker ends when its task pipe is closed or the process that made it is gone; a worker that
ends in any other way is noticed by the sentinel of its process while somebody waits for its result; no process outlives the pool.

It must not know datasets, samplers or batches: a worker makes a function of its number once, and calls that with each task.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import random
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from tracejit.ops.public.random import manual_seed

__all__ = ["Failure", "Pool", "WorkerInfo", "get_worker_info"]

_LOOK_FOR_PARENT = 5.0  # seconds: forked siblings may hold what would tell otherwise
_PATIENCE = 5.0  # seconds that a worker gets to end by itself


@dataclass
class WorkerInfo:
    """What code in a worker process can know about it: its number of how many, its seed, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_open_ends: set[Any] = set()  # this process's ends of the pipes of all pools: what it forks must close them
_worker_info: list[WorkerInfo | None] = [None]


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a DataLoader, what is known about it; None elsewhere."""
    return _worker_info[0]


class Failure:
    """An exception of another process, with its traceback as text."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.kind: type[BaseException] = type(error)
        self.message = f"Caught {self.kind.__name__} in {where}.\nOriginal Traceback (most recent call last):\n" + "".join(
            traceback.format_exception(error)
        ).removeprefix("Traceback (most recent call last):\n")

    def __reduce__(self) -> Any:
        return _failure, (self.kind.__module__, self.kind.__qualname__, self.message)

    def reraise(self) -> None:
        """Raise an exception of the same class whose message holds the traceback; RuntimeError where the class takes no
        message."""
        if self.kind is StopIteration:
            raise RuntimeError(self.message)  # which would look like the end of the data
        if self.kind is KeyError:
            raise _ReadableKeyError(self.message)
        try:
            error = self.kind(self.message)
        except Exception:  # classes that take other arguments
            error = RuntimeError(self.message)
        raise error


class _ReadableKeyError(KeyError):
    """A KeyError prints its message, and not the repr of it."""

    def __str__(self) -> str:
        return str(self.args[0])


def _failure(module: str, name: str, message: str) -> Failure:
    """A failure whose class is looked up by name: RuntimeError for one that this process has not."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    out = Failure.__new__(Failure)
    out.kind = found if isinstance(found, type) and issubclass(found, Exception) else RuntimeError
    out.message = message
    return out


# ---- in the worker --------------------------------------------------------------------------------------------------
def _parent_is_gone(parent: int) -> bool:
    return os.getppid() != parent


def _take_tasks(tasks: Any, waiting: queue.SimpleQueue[Any], parent: int) -> None:
    """Move tasks from the pipe to a queue, and None at the end."""
    try:
        while True:
            if tasks.poll(_LOOK_FOR_PARENT):
                task = tasks.recv()
                if task is None:
                    break
                waiting.put(task)
            elif _parent_is_gone(parent):
                break
    except (EOFError, OSError):
        pass  # the pipe was closed: no more tasks
    waiting.put(None)


def _work(
    number: int,
    parent: int,
    tasks: Any,
    results: Any,
    others: list[Any],
    info: WorkerInfo,
    make: Callable[[Any], Callable[[Any], Any]],
    initialise: Callable[[int], Any] | None,
) -> None:
    """The life of a worker: answer each task with (its key, result or Failure)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the main process's, which ends its workers
    for connection in others:
        connection.close()
    _open_ends.clear()
    name = f"DataLoader worker process {number}"
    start_failure: Failure | None = None
    function: Callable[[Any], Any] | None = None
    try:
        random.seed(info.seed)
        manual_seed(info.seed)
        np.random.seed(np.random.SeedSequence(info.seed).generate_state(4))
        _worker_info[0] = info
        if initialise is not None:
            initialise(number)
        function = make(info.dataset)
    except Exception as error:
        start_failure = Failure(error, name)
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_take_tasks, args=(tasks, waiting, parent), daemon=True).start()
    while (task := waiting.get()) is not None:
        key, what = task
        answer: Any = start_failure
        if function is not None:
            try:
                answer = function(what)
            except Exception as error:
                answer = Failure(error, name)
        try:
            results.send((key, answer))
        except (BrokenPipeError, ConnectionResetError):
            break  # nobody is there any more
        except Exception as error:  # the result cannot be sent
            results.send((key, Failure(error, name)))


# ---- in the process that loads --------------------------------------------------------------------------------------
class Pool:
    """Worker processes.  send() gives one of them a task, receive() returns an answer of one of several workers."""

    def __init__(
        self,
        count: int,
        context: Any,
        seed: int,
        dataset: Any,
        make: Callable[[Any], Callable[[Any], Any]],
        initialise: Callable[[int], Any] | None,
    ) -> None:
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        forks = context.get_start_method() == "fork"
        self.processes: list[Any] = []
        self._tasks: list[Any] = []
        self._results: list[Any] = []
        self._runs = 0
        self._close = weakref.finalize(self, _stop, os.getpid(), self.processes, self._tasks, self._results)
        for number in range(count):
            task_end, tasks = context.Pipe(duplex=False)
            results, result_end = context.Pipe(duplex=False)
            # a forked child has all that is open here; what is not its own must be closed there, or nobody would ever find it closed
            _open_ends.update((tasks, results))
            others = list(_open_ends) if forks else []
            info = WorkerInfo(number, count, seed + number, dataset)
            arguments = (number, os.getpid(), task_end, result_end, others, info, make, initialise)
            process = context.Process(target=_work, args=arguments, daemon=True)
            try:
                process.start()
            finally:
                task_end.close()
                result_end.close()
                self._tasks.append(tasks)
                self._results.append(results)
            self.processes.append(process)

    def begin(self) -> int:
        """The number of a new series of tasks."""
        self._runs += 1
        return self._runs

    @property
    def closed(self) -> bool:
        """Whether the workers have been ended."""
        return not self._close.alive

    def send(self, number: int, key: Any, task: Any) -> None:
        """Give a worker a task; its answer comes with the key."""
        try:
            self._tasks[number].send((key, task))
        except (BrokenPipeError, ConnectionResetError):
            self._died(number)

    def receive(self, numbers: list[int], timeout: float) -> tuple[Any, Any]:
        """(key, answer) of the first of these workers that has one.  Raises RuntimeError for a worker that died, or after
        `timeout` seconds (0: none)."""
        sources: dict[Any, int] = {self._results[n]: n for n in numbers}
        ends: dict[Any, int] = {self.processes[n].sentinel: n for n in numbers}
        until = time.monotonic() + timeout if timeout > 0 else None
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            ready: list[Any] = wait([*sources, *ends], left)
            if not ready:
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
            for source in ready:
                if source in sources:
                    try:
                        return source.recv()  # type: ignore[no-any-return]
                    except (EOFError, OSError):
                        self._died(sources[source])
            self._died(ends[next(end for end in ready if end in ends)])

    def _died(self, number: int) -> None:
        process = self.processes[number]
        process.join(_PATIENCE)
        code, pid = process.exitcode, process.pid
        self.close()
        if code is not None and code < 0:
            raise RuntimeError(
                f"DataLoader worker (pid {pid}) is killed by signal: {signal.strsignal(-code)}. "
                "It may be possible that the dataset needs more memory than there is"
            )
        raise RuntimeError(f"DataLoader worker (pid(s) {pid}) exited unexpectedly with exit code {code}")

    def close(self) -> None:
        """End all workers; harmless when done twice."""
        self._close()


def _stop(owner: int, processes: list[Any], tasks: list[Any], results: list[Any]) -> None:
    if os.getpid() != owner:
        return  # a fork of the owner: the workers are not its children
    for connection in tasks:
        with contextlib.suppress(OSError):  # of a worker that has ended
            connection.send(None)
    for connection in (*tasks, *results):
        connection.close()
        _open_ends.discard(connection)
    until = time.monotonic() + _PATIENCE
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
    for end in ("terminate", "kill"):
        for process in processes:
            if process.exitcode is None:
                getattr(process, end)()
                process.join(_PATIENCE)
    for process in processes:
        if process.exitcode is not None:
            process.close()
