"""Small functions in machine code that call Python's C interface: from LLVM text to an address, by way of the disk cache."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tracejit.core.uninterrupted import uninterrupted_result
from tracejit.cpython import c_api
from tracejit.native import machine_code, object_cache

__all__ = ["link"]


def link(
    text: str, symbol: str, computes: bool = False, imports: Mapping[str, int] = MappingProxyType({})
) -> tuple[int, tuple[Any, ...]]:
    """The address of function `symbol` of a text that shows no address, and what owns its code.  The text may declare c_api.FUNCTIONS.
    computes: whether it is worth the time that good code takes to make.  imports: other symbols that it may call -> addresses.

    Raises RuntimeError for a text that LLVM does not take."""
    functions = {name for name in re.findall(r"(?m)^declare .*?@([\w.$]+)\(", text) if name in c_api.FUNCTIONS}
    key = hashlib.sha256(f"{machine_code.identity()}\n{text}".encode()).hexdigest()
    found, _ = uninterrupted_result(
        lambda: object_cache.load_or_make(
            key,
            lambda object_code: machine_code.link(object_code, {**c_api.symbols(functions), **imports}, symbol),
            lambda: machine_code.assemble(text, computes),
        )
    )
    return found
