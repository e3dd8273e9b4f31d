"""OneHotCategorical where PyTorch has it; it is written beside the categorical distribution."""

from tracejit.distributions.categorical import OneHotCategorical

__all__ = ["OneHotCategorical"]
