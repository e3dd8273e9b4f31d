"""Binomial where PyTorch has it; it is written in tracejit.distributions.discrete."""

from tracejit.distributions.discrete import Binomial

__all__ = ["Binomial"]
