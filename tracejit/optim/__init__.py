"""Optimizers and schedules of the learning rate."""

from tracejit.core.missing import missing_names
from tracejit.optim import lr_scheduler
from tracejit.optim.adam import Adam, AdamW
from tracejit.optim.optimizer import Optimizer
from tracejit.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]

__getattr__ = missing_names(__name__)
