"""Samplers: which items of a dataset come when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from tracejit.core import dtypes
from tracejit.distributed.group import get_rank, get_world_size, is_initialized
from tracejit.ops.public.random import Generator, randint, randperm
from tracejit.ops.public.sampling import multinomial
from tracejit.tensor import as_tensor

__all__ = [
    "BatchSampler", "DistributedSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
]  # fmt: skip

T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """Base class: subclasses define __iter__ over positions, and __len__."""

    def __init__(self, data_source: Any = None) -> None:
        del data_source

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__}.__iter__()")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


_DRAWN_AT_ONCE = 32  # as PyTorch


class RandomSampler(Sampler[int]):
    """A new random order every time; drawn from `generator`, or from the default one.

    replacement: positions are drawn independently.  num_samples: how many, the length of the dataset unless given; without
    replacement one order follows another."""

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Generator | None = None
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _require_count("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many positions are drawn."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        length = len(self.data_source)
        if self.replacement:
            for start in range(0, self.num_samples, _DRAWN_AT_ONCE):  # programs ask for more than fit memory, and break off
                count = min(_DRAWN_AT_ONCE, self.num_samples - start)
                yield from randint(length, (count,), generator=self.generator).tolist()
            return
        left = self.num_samples
        while left > 0:
            yield from randperm(length, generator=self.generator).tolist()[:left]
            left -= length

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Some positions, in a new random order every time."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """num_samples positions drawn with probabilities in proportion to `weights`, again and again or (replacement=False) each once
    at most."""

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        _require_count("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = as_tensor(weights, dtype=dtypes.float64)
        if self.weights.ndim != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        return iter(multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of batch_size positions; the last one may be shorter, and is left out with drop_last."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        _require_count("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for position in self.sampler:
            batch.append(position)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class DistributedSampler(Sampler[int]):
    """The share of process `rank` of num_replicas: every num_replicas-th position of one order, which is the same in all of them.

    Both numbers are those of the process group, unless given.  The order of shuffle=True is that of `seed` and set_epoch(), which must be
    the same in all processes.  Shares are of one length: some positions come twice, or, with drop_last, those at the end do not come.

    Raises ValueError for a rank that is none, and where there is no process group to ask."""

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if (num_replicas is None or rank is None) and not is_initialized():
            raise ValueError(
                "DistributedSampler: there is no process group to ask; call distributed.init_process_group(), or give num_replicas and rank"
            )
        num_replicas = get_world_size() if num_replicas is None else num_replicas
        rank = get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        count = len(dataset)
        self.num_samples = count // num_replicas if drop_last else -(-count // num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        order = list(range(count))
        if self.shuffle:
            order = randperm(count, generator=Generator().manual_seed(self.seed + self.epoch)).tolist()
        if len(order) < self.total_size:
            order = (order * math.ceil(self.total_size / count))[: self.total_size]
        return iter(order[: self.total_size][self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Take another order."""
        self.epoch = epoch


def _require_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")
