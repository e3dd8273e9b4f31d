"""Datasets, samplers and batches.

Must not know: modules, optimizers, the compiler.
Start reading: dataset.py, then loader.py (worker.py has what other processes do for it).
"""

from tracejit.core.missing import missing_names
from tracejit.data.collate import default_collate, default_convert
from tracejit.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from tracejit.data.digits import digits
from tracejit.data.loader import DataLoader
from tracejit.data.sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from tracejit.data.worker import WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IterableDataset", "RandomSampler",
    "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "WorkerInfo",
    "default_collate", "default_convert", "digits", "get_worker_info", "random_split",
]  # fmt: skip

__getattr__ = missing_names(__name__)
