"""Datasets and batches."""

from tracejit.core.missing import missing_names
from tracejit.data.dataset import ConcatDataset, Dataset, Subset, TensorDataset, random_split
from tracejit.data.digits import digits
from tracejit.data.loader import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler, default_collate

__all__ = [
    "BatchSampler", "ConcatDataset", "DataLoader", "Dataset", "RandomSampler", "Sampler", "SequentialSampler", "Subset", "TensorDataset",
    "default_collate", "digits", "random_split",
]  # fmt: skip

__getattr__ = missing_names(__name__)
