"""tracejit.compat: programs written for PyTorch, run with the names of PyTorch meaning this library.

`install_as_torch()` makes `import torch`, `import torch.nn.functional`, `from torch.utils.data import DataLoader` ... mean
tracejit; `python -m tracejit.compat script.py` runs a script so.  There is no second implementation of anything here, only
names.

Must not know: what the names stand for.
Start reading: importing.py, then names.py.
"""

from tracejit.compat.importing import install_as_torch, uninstall
from tracejit.compat.names import PYTORCH_VERSION

__all__ = ["PYTORCH_VERSION", "install_as_torch", "uninstall"]
