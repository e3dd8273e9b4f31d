"""`DataLoader`: batches of a dataset, and the samplers that say which items come when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from tracejit.data.dataset import TensorDataset
from tracejit.ops.public.movement import stack
from tracejit.ops.public.random import randperm
from tracejit.tensor import Tensor, tensor

__all__ = ["BatchSampler", "DataLoader", "RandomSampler", "Sampler", "SequentialSampler", "default_collate"]


class Sampler:
    """Base class: subclasses define __iter__ over positions, and __len__."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__}.__iter__()")


class SequentialSampler(Sampler):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """A new random order every time; drawn from `generator`, or from the default one."""

    def __init__(self, data_source: Sized, generator: Any = None) -> None:
        self.data_source = data_source
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        return iter(randperm(len(self.data_source), generator=self.generator).tolist())

    def __len__(self) -> int:
        return len(self.data_source)


class BatchSampler(Sampler):
    """Lists of batch_size positions; the last one may be shorter, and is left out with drop_last."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
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


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples as one: tensors and arrays stacked, numbers as a tensor, tuples, lists and mappings member by member, strings as a list.

    Raises TypeError for other types, RuntimeError for members of different lengths."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch))
    if isinstance(first, np.ndarray):
        return tensor(np.stack(batch))
    if isinstance(first, bool | int | float | np.generic):
        return tensor(np.asarray(batch))  # Python floats become float64, as in PyTorch
    if isinstance(first, str | bytes):
        return list(batch)
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(members) for members in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("default_collate(): each element in list of batch should be of equal size")
        return [default_collate(members) for members in zip(*batch, strict=True)]
    raise TypeError(
        f"default_collate(): batch must contain tensors, arrays, numbers, dicts or lists; found {type(first).__name__}"
    )


class DataLoader:
    """Iterating over it gives the batches of a dataset, in a new order each time with shuffle=True.

    batch_size None gives single items.  A sampler, or a batch_sampler, replaces shuffle.  collate_fn makes a batch of a list of items."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        generator: Any = None,
    ) -> None:
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: the sampler option excludes shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("DataLoader: the batch_sampler option excludes batch_size, shuffle, sampler and drop_last")
        if batch_size is None and drop_last:
            raise ValueError("DataLoader: batch_size=None leaves nothing to batch, so it excludes drop_last")
        self.dataset = dataset
        self.batch_size = None if batch_sampler is not None else batch_size
        self.drop_last = drop_last
        self.generator = generator
        self.collate_fn = collate_fn
        self.sampler: Any = sampler
        if sampler is None:
            self.sampler = RandomSampler(dataset, generator) if shuffle else SequentialSampler(dataset)
        self.batch_sampler: Any = batch_sampler
        if batch_sampler is None and batch_size is not None:
            self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)

    def __iter__(self) -> Iterator[Any]:
        if self.batch_sampler is None:
            for position in self.sampler:
                item = self.dataset[position]
                yield item if self.collate_fn is None else self.collate_fn(item)
            return
        collate = self.collate_fn or default_collate
        # stacking the slices of tensors is indexing them with the whole batch
        at_once = self.collate_fn is None and type(self.dataset) is TensorDataset
        for positions in self.batch_sampler:
            if at_once:
                yield list(self.dataset[list(positions)])
            else:
                yield collate([self.dataset[i] for i in positions])

    def __len__(self) -> int:
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
