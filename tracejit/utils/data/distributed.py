"""DistributedSampler where PyTorch has it; it is written in tracejit.data.sampler."""

from tracejit.data.sampler import DistributedSampler

__all__ = ["DistributedSampler"]
