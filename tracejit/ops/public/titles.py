"""What a composition is called on the tape: its last node has the name of the public function, as PyTorch's one node has."""

from __future__ import annotations

from typing import Any

__all__ = ["titled"]


def titled(name: str, out: Any) -> Any:
    """`out`, whose node was made just now and stands for the function `name`."""
    node = getattr(out, "_node", None)
    if node is not None:
        node.title = name
    return out
