"""Neural networks, the way PyTorch has them: modules, parameters, initial values, losses."""

from tracejit.core.missing import missing_names
from tracejit.nn import activations, containers, convolutions, functional, init, layers, losses, utils
from tracejit.nn.activations import *  # noqa: F403
from tracejit.nn.containers import *  # noqa: F403
from tracejit.nn.convolutions import *  # noqa: F403
from tracejit.nn.layers import *  # noqa: F403
from tracejit.nn.losses import *  # noqa: F403
from tracejit.nn.module import Module
from tracejit.nn.parameter import Parameter

__all__ = [
    "Module", "Parameter", "functional", "init", "utils", *activations.__all__, *containers.__all__, *convolutions.__all__, *layers.__all__,
    *losses.__all__,
]  # fmt: skip

__getattr__ = missing_names(__name__)
