"""The handle of a hook, under the name that PyTorch has in utils."""

from tracejit.tensor import RemovableHandle

__all__ = ["RemovableHandle"]
