"""Chi-squared where PyTorch has it; it is written beside the gamma distribution."""

from tracejit.distributions.gamma import Chi2

__all__ = ["Chi2"]
