"""Where compiled/compile.py leaves `compile` for the layers, which import nothing of the compiler.

It must not know what a compiled function is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["calling_with", "installed"]

installed: list[Callable[..., Any]] = []
"""`compile`, once the package has been imported."""

calling_with: dict[Any, Callable[..., Any]] = {}
"""`__call__` of modules -> what makes such a call with something in the place of the `forward`: (module, forward, args, kwargs)."""
