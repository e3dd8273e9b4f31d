"""Geometric where PyTorch has it; it is written in tracejit.distributions.discrete."""

from tracejit.distributions.discrete import Geometric

__all__ = ["Geometric"]
