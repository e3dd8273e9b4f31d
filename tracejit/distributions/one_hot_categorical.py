"""OneHotCategorical and the one with gradients where PyTorch has them; they are written beside the categorical distribution."""

from tracejit.distributions.categorical import OneHotCategorical, OneHotCategoricalStraightThrough

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]
