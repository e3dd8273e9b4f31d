"""Neural networks, the way PyTorch has them: modules, parameters, initial values, losses.

Must not know: the compiler.  A module that is compiled is recorded like any other object of a program.
Start reading: module.py (the class Module), then layers.py.
"""

from tracejit.core.missing import missing_names
from tracejit.nn import (
    activations,
    adaptive,
    attention,
    containers,
    convolutions,
    dropout,
    functional,
    init,
    layers,
    lazy,
    losses,
    modules,
    normalisation,
    padding,
    parallel,
    pooling,
    rearrangements,
    recurrent,
    transformer,
    utils,
)
from tracejit.nn.activations import *  # noqa: F403
from tracejit.nn.adaptive import *  # noqa: F403
from tracejit.nn.attention import *  # noqa: F403
from tracejit.nn.containers import *  # noqa: F403
from tracejit.nn.convolutions import *  # noqa: F403
from tracejit.nn.dropout import *  # noqa: F403
from tracejit.nn.layers import *  # noqa: F403
from tracejit.nn.lazy import *  # noqa: F403
from tracejit.nn.losses import *  # noqa: F403
from tracejit.nn.module import Module
from tracejit.nn.normalisation import *  # noqa: F403
from tracejit.nn.padding import *  # noqa: F403
from tracejit.nn.parallel import DataParallel
from tracejit.nn.parameter import Parameter, UninitializedParameter
from tracejit.nn.pooling import *  # noqa: F403
from tracejit.nn.rearrangements import *  # noqa: F403
from tracejit.nn.recurrent import *  # noqa: F403
from tracejit.nn.transformer import *  # noqa: F403

__all__ = [
    "DataParallel", "Module", "Parameter", "UninitializedParameter", "functional", "init", "modules", "parallel", "utils",
    *activations.__all__, *adaptive.__all__, *attention.__all__,
    *containers.__all__, *convolutions.__all__, *dropout.__all__, *layers.__all__, *lazy.__all__, *losses.__all__,
    *normalisation.__all__, *padding.__all__, *pooling.__all__, *rearrangements.__all__, *recurrent.__all__, *transformer.__all__,
]  # fmt: skip

__getattr__ = missing_names(__name__)
