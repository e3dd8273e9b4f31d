"""What PyTorch keeps under utils."""

from tracejit.utils import checkpoint

__all__ = ["checkpoint"]
