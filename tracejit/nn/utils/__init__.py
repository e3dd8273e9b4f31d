"""Helpers on modules and parameters: gradients as a whole, parametrizations, sequences of different lengths."""

from tracejit.nn.utils import gradients, parametrizations, parametrize, prune, reparametrisation, rnn, stateless
from tracejit.nn.utils.gradients import *  # noqa: F403
from tracejit.nn.utils.reparametrisation import *  # noqa: F403

__all__ = ["parametrizations", "parametrize", "prune", "rnn", "stateless", *gradients.__all__, *reparametrisation.__all__]
