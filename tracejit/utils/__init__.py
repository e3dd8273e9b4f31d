"""What PyTorch keeps under utils."""

from tracejit.utils import _pytree, checkpoint, data, dlpack, hooks, tensorboard

__all__ = ["_pytree", "checkpoint", "data", "dlpack", "hooks", "tensorboard"]
