"""Optimizers and schedules of the learning rate.

Must not know: the compiler: `step` is recorded like any function; modules, but for swa_utils.py: an optimizer is given
parameters.
Start reading: optimizer.py (the base class), then sgd.py.
"""

from tracejit.core.missing import missing_names
from tracejit.optim import lr_scheduler, swa_utils
from tracejit.optim.adadelta import Adadelta
from tracejit.optim.adafactor import Adafactor
from tracejit.optim.adagrad import Adagrad
from tracejit.optim.adam import Adam, AdamW
from tracejit.optim.adamax import Adamax
from tracejit.optim.asgd import ASGD
from tracejit.optim.lbfgs import LBFGS
from tracejit.optim.muon import Muon
from tracejit.optim.nadam import NAdam
from tracejit.optim.optimizer import Optimizer
from tracejit.optim.radam import RAdam
from tracejit.optim.rmsprop import RMSprop
from tracejit.optim.rprop import Rprop
from tracejit.optim.sgd import SGD

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop",
    "Rprop", "lr_scheduler", "swa_utils",
]  # fmt: skip

__getattr__ = missing_names(__name__)
