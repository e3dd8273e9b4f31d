"""Private modules of PyTorch's that programs import nevertheless."""

from tracejit.utils.data._utils import collate

__all__ = ["collate"]
