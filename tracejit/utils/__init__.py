"""What PyTorch keeps under utils: checkpointing, DLPack, pytrees, hooks, files for TensorBoard, and `data`.

Must not know: the compiler.
Start reading: checkpoint.py.
"""

from tracejit.utils import _pytree, checkpoint, data, dlpack, hooks, tensorboard

__all__ = ["_pytree", "checkpoint", "data", "dlpack", "hooks", "tensorboard"]
