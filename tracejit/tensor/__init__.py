"""Tensors.  `base` is the class; the other modules give it contents, operators, in-place forms and hooks.

Must not know: modules of networks, the compiler.  A recording sees a tensor's operations because they pass the door.
Start reading: base.py, then eager.py (the interpreter of eager mode), then methods.py.
"""

from tracejit.tensor import eager as _eager  # installs the eager interpreter
from tracejit.tensor.base import Size, Tensor, begin_on, fill, refresh, share, storage_of, wrap
from tracejit.tensor.construction import as_tensor, from_numpy, tensor
from tracejit.tensor.hooks import RemovableHandle
from tracejit.tensor.methods import install
from tracejit.tensor.sharing import shield
from tracejit.tensor.writing import write_into

__all__ = [
    "RemovableHandle", "Size", "Tensor", "as_tensor", "begin_on", "fill", "from_numpy", "install", "refresh", "share", "shield",
    "storage_of", "tensor", "wrap", "write_into",
]  # fmt: skip
