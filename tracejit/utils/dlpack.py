"""DLPack under the names that PyTorch has in utils."""

from typing import Any

from tracejit.tensor import Tensor
from tracejit.tensor.dlpack import from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule with the memory of a tensor."""
    return tensor.__dlpack__()
