"""Private modules of PyTorch's that programs import nevertheless.

Must not know: how any of it works; there are names here, and no second implementation.
Start reading: collate.py.
"""

from tracejit.utils.data._utils import collate

__all__ = ["collate"]
