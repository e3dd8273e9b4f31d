"""Batches of samples: `default_collate` makes one of a list, `default_convert` turns arrays into tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracejit.core.dtypes import FROM_NUMPY
from tracejit.ops.public.movement import stack
from tracejit.tensor import Tensor, as_tensor, tensor

__all__ = ["default_collate", "default_convert"]


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples as one: tensors and arrays stacked, numbers as a tensor, tuples, lists and mappings member by member, strings as
    they are.

    Raises TypeError for other types, RuntimeError for members of different lengths or shapes."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch))
    if isinstance(first, np.ndarray):
        if first.dtype.kind not in "biuf" and first.dtype not in FROM_NUMPY:
            raise TypeError(f"default_collate(): batch must contain arrays of numbers; found dtype {first.dtype}")
        return stack([as_tensor(array) for array in batch])
    if isinstance(first, bool | int | float | np.generic):
        return tensor(np.asarray(batch))  # Python floats become float64, as in PyTorch
    if isinstance(first, str | bytes):
        return batch
    if isinstance(first, Mapping):
        collated = {key: default_collate([sample[key] for sample in batch]) for key in first}
        try:
            return type(first)(collated)  # type: ignore[call-arg]
        except TypeError:  # mappings that are made in another way
            return collated
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(members) for members in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("default_collate(): each element in list of batch should be of equal size")
        return [default_collate(members) for members in zip(*batch, strict=True)]
    raise TypeError(
        f"default_collate(): batch must contain tensors, arrays, numbers, dicts or lists; found {type(first).__name__}"
    )


def default_convert(data: Any) -> Any:
    """A sample whose arrays have become tensors; all else as it is."""
    if isinstance(data, np.ndarray | np.generic):
        return as_tensor(data) if data.dtype.kind in "biuf" or data.dtype in FROM_NUMPY else data
    if isinstance(data, Mapping):
        return {key: default_convert(member) for key, member in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(member) for member in data))
    if isinstance(data, tuple | list):
        return [default_convert(member) for member in data]
    return data
