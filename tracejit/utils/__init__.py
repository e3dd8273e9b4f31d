"""What PyTorch keeps under utils."""

from tracejit.utils import data

__all__ = ["data"]
