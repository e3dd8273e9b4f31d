"""What PyTorch keeps under utils."""

from tracejit.utils import checkpoint, data, tensorboard

__all__ = ["checkpoint", "data", "tensorboard"]
