"""Datasets, samplers and batches where PyTorch has them; they are written in tracejit.data.

Must not know: how any of it works; there are names here, and no second implementation.
Start reading: ../../data/dataset.py.
"""

from tracejit.data import *  # noqa: F403
from tracejit.data import __all__ as _names
from tracejit.utils.data import _utils, dataloader, dataset, distributed, sampler

__all__ = [*_names, "_utils", "dataloader", "dataset", "distributed", "sampler"]
