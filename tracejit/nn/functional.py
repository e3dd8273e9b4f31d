"""tracejit.functional under PyTorch's name."""

from tracejit.core.missing import missing_names
from tracejit.functional import *  # noqa: F403
from tracejit.functional import __all__ as __all__

__getattr__ = missing_names(__name__)
