"""`DataLoader`: the batches of a dataset, made here or by worker processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from tracejit.data.collate import default_collate, default_convert
from tracejit.data.dataset import IterableDataset, TensorDataset, items_at
from tracejit.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from tracejit.data.worker import Failure, Pool
from tracejit.ops.public.random import randint

__all__ = ["DataLoader"]

T_co = TypeVar("T_co", covariant=True)


class _Exhausted:
    """A worker's answer when its iterable dataset has ended."""


class _Endless:
    """The positions of an iterable dataset: it has none."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class _Fetcher:
    """A function of positions that gives what is at them, collated.  It runs where the dataset is."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], batched: bool, at_once: bool, drop_last: bool) -> None:
        self.dataset, self.collate, self.batched, self.at_once, self.drop_last = dataset, collate, batched, at_once, drop_last
        self.iterator = iter(dataset) if isinstance(dataset, IterableDataset) else None

    def __call__(self, positions: Any) -> Any:
        if self.iterator is not None:
            if not self.batched:
                return self.collate(next(self.iterator))
            items = list(itertools.islice(self.iterator, len(positions)))
            if not items or (self.drop_last and len(items) < len(positions)):
                raise StopIteration
            return self.collate(items)
        if not self.batched:
            return self.collate(self.dataset[positions])
        if self.at_once:  # stacking the slices of tensors is indexing them with the whole batch
            return list(self.dataset[list(positions)])
        return self.collate(items_at(self.dataset, positions))


class _Answer:
    """A worker's function: tasks are positions, or None where an iterable dataset is to begin anew."""

    def __init__(self, options: tuple[Any, ...], dataset: Any) -> None:
        self.options, self.dataset = options, dataset
        self.fetch: _Fetcher | None = None

    def __call__(self, task: tuple[str, Any]) -> Any:
        what, positions = task
        if what == "begin":
            self.fetch = _Fetcher(self.dataset, *self.options)
            return None
        assert self.fetch is not None
        try:
            return self.fetch(positions)
        except StopIteration:
            if not isinstance(self.dataset, IterableDataset):
                raise
            return _Exhausted()


class _MakeAnswer:
    """Makes a worker's function (a class, for workers that are not forked must unpickle it)."""

    def __init__(self, options: tuple[Any, ...]) -> None:
        self.options = options

    def __call__(self, dataset: Any) -> _Answer:
        return _Answer(self.options, dataset)


class DataLoader(Generic[T_co]):
    """Iterating over it gives the batches of a dataset, in a new order each time with shuffle=True.

    batch_size None gives single items.  A sampler, or a batch_sampler, replaces shuffle.  collate_fn makes a batch of a list of
    items. num_workers: processes that make batches ahead of time, prefetch_factor (2) each; batches come in the order of the
    sampler, with in_order=False as they are ready.  worker_init_fn(number) is called in each first; random numbers there are
    seeded from `generator`. persistent_workers: they live as long as the loader.  timeout: seconds to wait for a batch.
    multiprocessing_context: how processes are started. pin_memory is accepted and, as there is no accelerator, changes
    nothing.  drop_last: a last batch that is shorter is left out.

    Raises ValueError for options that exclude each other (shuffle and sampler, batch_sampler and batch_size, workers' options
    without workers) and for numbers out of range; what a dataset or a worker raises is raised where its batch is asked for."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError(
                "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing, "
                f"got num_workers={num_workers}"
            )
        if timeout < 0:
            raise ValueError(f"timeout option should be non-negative, got {timeout}")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing; let num_workers > 0 to enable "
                "multiprocessing, otherwise set prefetch_factor to None"
            )
        if prefetch_factor is not None and prefetch_factor <= 0:
            raise ValueError(f"prefetch_factor option should be positive, got {prefetch_factor}")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        iterable = isinstance(dataset, IterableDataset)
        if iterable and (shuffle or sampler is not None or batch_sampler is not None):
            which = "shuffle" if shuffle else "sampler" if sampler is not None else "batch_sampler"
            raise ValueError(f"DataLoader with IterableDataset: expected unspecified {which} option, which the dataset decides")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle: DataLoader's sampler option excludes shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("DataLoader: the batch_sampler option excludes batch_size, shuffle, sampler and drop_last")
        if batch_size is None and drop_last:
            raise ValueError("DataLoader: batch_size=None leaves nothing to batch, so it excludes drop_last")
        self.dataset = dataset
        self.batch_size = None if batch_sampler is not None else batch_size
        self.drop_last = drop_last
        self.generator = generator
        self.num_workers = num_workers
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers > 0 else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self._pool: Pool | None = None
        self.sampler: Any = sampler
        if sampler is None:
            self.sampler = (
                _Endless() if iterable else RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            )
        self.batch_sampler: Any = batch_sampler
        if batch_sampler is None and batch_size is not None:
            self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        self._given_collate = collate_fn
        self.collate_fn: Callable[[Any], Any] = collate_fn or (default_convert if self.batch_sampler is None else default_collate)

    def _fetching(self) -> tuple[Any, ...]:
        """How items become batches: the arguments of _Fetcher after the dataset."""
        at_once = self.collate_fn is default_collate and type(self.dataset) is TensorDataset
        return self.collate_fn, self.batch_sampler is not None, at_once, self.drop_last

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0:
            return self._here()
        return _Ahead(self)

    def _here(self) -> Iterator[Any]:
        fetch = _Fetcher(self.dataset, *self._fetching())
        for positions in self.sampler if self.batch_sampler is None else self.batch_sampler:
            if fetch.iterator is None:
                yield fetch(positions)
                continue
            try:
                batch = fetch(positions)
            except StopIteration:
                return
            yield batch

    def _workers(self) -> Pool:
        """The worker processes for one iteration."""
        if self._pool is not None:
            return self._pool
        seed = int(randint(1 << 62, (), generator=self.generator))
        make = _MakeAnswer(self._fetching())
        pool = Pool(self.num_workers, self.multiprocessing_context, seed, self.dataset, make, self.worker_init_fn)
        if self.persistent_workers:
            self._pool = pool
        return pool

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            count = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return count
            return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)


class _Ahead:
    """One iteration over a loader with workers.

    Task i goes to the next worker in turn; answers that come before their turn wait in `_early`.  Answers to tasks of an earlier
    iteration, which was left before its end, are passed over."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        positions = iter(loader.sampler if loader.batch_sampler is None else loader.batch_sampler)
        # the order is drawn before the seed of the workers: it is the one without workers
        self._positions = itertools.chain(list(itertools.islice(positions, 1)), positions)
        self._pool: Pool | None = loader._workers()
        self._run = self._pool.begin()
        self._active = list(range(loader.num_workers))
        self._turn = self._sent = self._next = 0
        self._owner: dict[int, int] = {}  # task -> the worker that has it
        self._early: dict[int, Any] = {}
        for number in self._active:
            self._owner[-1 - number] = number
            self._pool.send(number, (self._run, -1 - number), ("begin", None))
        for _ in range(loader.num_workers * (loader.prefetch_factor or 2)):
            self._send()

    def __iter__(self) -> _Ahead:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def _send(self) -> None:
        """Give the next positions, if there are any, to the next worker that has not ended."""
        if not self._active:
            return
        try:
            positions = next(self._positions)
        except StopIteration:
            return
        assert self._pool is not None
        number = self._active[self._turn % len(self._active)]
        self._turn += 1
        self._owner[self._sent] = number
        self._pool.send(number, (self._run, self._sent), ("fetch", positions))
        self._sent += 1

    def _receive(self) -> None:
        """Wait for an answer."""
        assert self._pool is not None
        (run, task), answer = self._pool.receive(sorted(set(self._owner.values())), self._loader.timeout)
        if run != self._run:
            return
        number = self._owner.pop(task)
        if isinstance(answer, Failure):
            self._early[task] = answer
        elif isinstance(answer, _Exhausted):
            if number in self._active:
                self._active.remove(number)
            self._send()
        elif task >= 0:
            self._early[task] = answer

    def _ready(self) -> int | None:
        """A task whose batch is to come next and is there; None where it has to be waited for."""
        failed = next((task for task in self._early if task < 0), None)
        if failed is not None or not self._loader.in_order:
            return failed if failed is not None else next(iter(self._early), None)
        while self._next < self._sent and self._next not in self._owner and self._next not in self._early:
            self._next += 1  # asked of a worker whose share had ended
        return self._next if self._next in self._early else None

    def __next__(self) -> Any:
        if self._pool is None:
            raise StopIteration
        try:
            while (task := self._ready()) is None:
                if not any(task >= 0 for task in self._owner):
                    self._leave()
                    raise StopIteration
                self._receive()
            self._send()
        except BaseException:
            self._leave()
            raise
        answer = self._early.pop(task)
        self._next += self._loader.in_order
        if isinstance(answer, Failure):
            self._leave()
            answer.reraise()
        return answer

    def _leave(self) -> None:
        """The iteration is over: its workers end, unless they are the loader's."""
        pool, self._pool = self._pool, None
        if pool is not None and pool is not self._loader._pool:
            pool.close()
        elif pool is not None and pool.closed:
            self._loader._pool = None
