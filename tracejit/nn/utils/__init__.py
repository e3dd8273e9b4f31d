"""Helpers on modules and parameters: gradients as a whole, sequences of different lengths."""

from tracejit.nn.utils import gradients, rnn
from tracejit.nn.utils.gradients import *  # noqa: F403

__all__ = ["rnn", *gradients.__all__]
