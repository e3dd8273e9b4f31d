"""What PyTorch keeps under utils."""

from tracejit.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
