"""tracejit.functional under PyTorch's name."""

from tracejit.functional import *  # noqa: F403
from tracejit.functional import __all__ as __all__
