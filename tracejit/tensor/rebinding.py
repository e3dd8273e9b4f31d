"""The rebinding counter: a word of memory that says whether any tensor of the process has become another one.

What a tensor is bound to (its array, its storage, its root if it is a view, its position on the tape, its hooks, whether it requires a
gradient, its class) hardly ever changes once it is made.  Whoever changes it on a tensor that others may know calls `rebound`
afterwards; so who has examined a thousand tensors may go on while the word is the same, and must look at them again when it is not.

Invariant: no value of the word comes twice, in whatever order threads write.  Contents are not its business (`Storage.version`), nor is
`.grad`.  A test goes through the source and finds writes that are not counted.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from functools import partial
from typing import Final

__all__ = ["ADDRESS", "rebindings", "rebound"]

_word = ctypes.c_int64(0)
ADDRESS: Final = ctypes.addressof(_word)
"""Where machine code finds the word."""


rebound: Final[Callable[[], object]] = map(partial(setattr, _word, "value"), itertools.count(1)).__next__
"""An existing tensor has been bound to something else.  No function of Python's, at whose entry an interrupt could come in between."""


def rebindings() -> int:
    """The word as it is now."""
    return _word.value
