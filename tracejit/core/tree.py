"""Nested tuples, lists and dictionaries as flat lists of what is in them, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["flatten", "map_leaves", "unflatten"]


def flatten(value: Any) -> tuple[list[Any], Any]:
    """(leaves in order, structure).  Everything but tuples, lists and dictionaries is a leaf; named tuples are tuples."""
    leaves: list[Any] = []

    def walk(x: Any) -> Any:
        if isinstance(x, dict):
            return (type(x), [(key, walk(inner)) for key, inner in x.items()])
        if isinstance(x, tuple | list) and not hasattr(x, "numel"):
            return (type(x), [walk(inner) for inner in x])
        leaves.append(x)
        return None

    return leaves, walk(value)


def unflatten(structure: Any, leaves: Sequence[Any]) -> Any:
    """The value of this structure with these leaves."""
    rest = iter(leaves)

    def build(shape: Any) -> Any:
        if shape is None:
            return next(rest)
        kind, inner = shape
        if issubclass(kind, dict):
            return kind((key, build(part)) for key, part in inner)
        parts = [build(part) for part in inner]
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)

    return build(structure)


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """`value` with function(leaf) for each leaf."""
    leaves, structure = flatten(value)
    return unflatten(structure, [function(leaf) for leaf in leaves])
