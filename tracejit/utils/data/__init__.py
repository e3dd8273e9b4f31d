"""Datasets, samplers and batches where PyTorch has them; they are written in tracejit.data."""

from tracejit.data import *  # noqa: F403
from tracejit.data import __all__ as _names
from tracejit.utils.data import _utils, dataloader, dataset, distributed, sampler

__all__ = [*_names, "_utils", "dataloader", "dataset", "distributed", "sampler"]
