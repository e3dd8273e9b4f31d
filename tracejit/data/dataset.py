"""Datasets: things with items at positions and a length, or things that are iterated over."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from tracejit.ops.public.random import randperm
from tracejit.tensor import Tensor

__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset", "items_at", "random_split",
]  # fmt: skip

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Base class: subclasses define __getitem__, and __len__ where loaders are to know the length."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"Subclasses of Dataset should implement __getitem__; {type(self).__name__} does not")

    def __add__(self, other: Any) -> Any:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Base class of datasets that are iterated over: subclasses define __iter__.

    Each worker of a DataLoader iterates over its own copy: get_worker_info() says which share is its own."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"Subclasses of IterableDataset should implement __iter__; {type(self).__name__} does not")

    def __add__(self, other: Any) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Item i is the tuple of the i-th slices of tensors of one length.  Raises AssertionError for different lengths, as PyTorch
    does."""

    def __init__(self, *tensors: Tensor) -> None:
        if any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise AssertionError(f"Size mismatch between tensors: {[t.shape[0] for t in tensors]}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(t[index] for t in self.tensors)  # type: ignore[index]

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class Subset(Dataset[T_co]):
    """The items of a dataset at some positions."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return items_at(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset; use ChainDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Sequence[Any]) -> list[int]:
        """Where each dataset ends."""
        return list(accumulate(len(d) for d in sequence))

    def __getitem__(self, index: int) -> Any:
        position = index + len(self) if index < 0 else index
        if position < 0:
            raise ValueError(f"index {index} is out of range for a dataset of length {len(self)}")
        if position >= len(self):  # where a loop over the items ends
            raise IndexError(f"index {index} is out of range for a dataset of length {len(self)}")
        which = bisect_right(self.cumulative_sizes, position)
        return self.datasets[which][position - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[T_co]):
    """Iterable datasets one after the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError(f"ChainDataset only supports IterableDataset, got {type(dataset).__name__}")
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)


class StackDataset(Dataset[T_co]):
    """Item i is the tuple of the i-th items of datasets of one length, or a dict of them where they have names."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: expected datasets, either without names or all with one")
        self.datasets: Any = kwargs or args
        members = list(kwargs.values()) if kwargs else list(args)
        self._length = len(members[0])
        if any(len(member) != self._length for member in members):
            raise ValueError(f"StackDataset: Size mismatch between datasets: {[len(member) for member in members]}")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __len__(self) -> int:
        return self._length


def items_at(dataset: Any, positions: Sequence[Any]) -> list[Any]:
    """The items at several positions, at once where the dataset can (`__getitems__`)."""
    at_once = getattr(dataset, "__getitems__", None)
    if at_once is None:
        return [dataset[position] for position in positions]
    found = at_once(positions)
    if len(found) != len(positions):
        raise ValueError(f"nested dataset's output size mismatch. Expected {len(positions)}, got {len(found)}")
    return list(found)


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset[Any]]:
    """Disjoint random subsets of the given lengths, or fractions that sum to 1 (what rounding leaves goes to the first ones, one
    each).

    Raises ValueError unless the lengths sum to that of the dataset."""
    total = len(dataset)
    sizes: list[int]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        if any(not 0 <= fraction <= 1 for fraction in lengths):
            raise ValueError(f"random_split(): fractions must be between 0 and 1, got {list(lengths)}")
        sizes = [math.floor(total * fraction) for fraction in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(length) for length in lengths]
    if sum(sizes) != total:
        raise ValueError(
            f"random_split(): the sum of input lengths, {sum(sizes)}, does not equal the length of the dataset, {total}: "
            "Sum of input lengths does not equal the length of the input dataset!"
        )
    order = randperm(total, generator=generator).tolist()
    ends = list(accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
