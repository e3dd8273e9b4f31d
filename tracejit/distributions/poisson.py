"""Poisson where PyTorch has it; it is written in tracejit.distributions.discrete."""

from tracejit.distributions.discrete import Poisson

__all__ = ["Poisson"]
