"""Schedules of the learning rate.  Each holds an optimizer and writes the "lr" of its groups when step() is called.

Must not know: how an optimizer updates parameters.
Start reading: scheduler.py, then decay.py.
"""

from tracejit.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from tracejit.optim.lr_scheduler.cyclic import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from tracejit.optim.lr_scheduler.decay import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from tracejit.optim.lr_scheduler.plateau import ReduceLROnPlateau
from tracejit.optim.lr_scheduler.scheduler import LRScheduler

_LRScheduler = LRScheduler  # the older name, which programs derive from

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LRScheduler",
    "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip
