"""Small functions in machine code that call Python's C interface: from LLVM text to an address, by way of the disk cache."""

from __future__ import annotations

import hashlib
from typing import Any

from tracejit.codegen import machine_code, object_cache, python_api
from tracejit.core.aside import done_aside

__all__ = ["linked"]


def linked(text: str, symbol: str) -> tuple[int, tuple[Any, ...]]:
    """The address of function `symbol` of a text that shows no address, and what owns its code.  The text may call python_api.FUNCTIONS.

    Raises RuntimeError for a text that LLVM does not take."""
    key = hashlib.sha256(f"{machine_code.identity()}\n{text}".encode()).hexdigest()
    found, _ = done_aside(
        lambda: object_cache.load_or_make(
            key,
            lambda object_code: machine_code.link(object_code, python_api.symbols(), symbol),
            lambda: machine_code.assemble(text),
        )
    )
    return found
