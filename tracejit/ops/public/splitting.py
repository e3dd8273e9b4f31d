"""Splits along the dimensions that rows, columns and depths lie in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.core.numbers import settled
from tracejit.ops.public.arrangement import tensor_split
from tracejit.ops.public.derive import public
from tracejit.ops.public.movement import split


@public(aliases=("unsafe_split_with_sizes",))
def split_with_sizes(input: Any, split_sizes: Sequence[int], dim: int = 0) -> tuple[Any, ...]:
    """Views of consecutive pieces along `dim`, of the sizes listed."""
    return split(input, list(split_sizes), dim)


def _pieces(name: str, input: Any, indices_or_sections: Any, rank: int, dim: int) -> tuple[Any, ...]:
    if input.ndim < rank:
        raise RuntimeError(f"{name}(): expected at least {rank} dimension{'s' * (rank > 1)}, got {input.ndim}")
    parts = settled(indices_or_sections)
    if isinstance(parts, int) and (parts <= 0 or input._sizes[dim] % parts):
        raise RuntimeError(f"{name}(): dimension {dim} of size {input._sizes[dim]} cannot be divided into {parts} equal pieces")
    return tensor_split(input, parts, dim)


@public()
def hsplit(input: Any, indices_or_sections: Any) -> tuple[Any, ...]:
    """Views of equal pieces, or of pieces that end at the indices given, of the columns; of a vector's elements."""
    return _pieces("hsplit", input, indices_or_sections, 1, 0 if input.ndim == 1 else 1)


@public()
def vsplit(input: Any, indices_or_sections: Any) -> tuple[Any, ...]:
    """Views of equal pieces, or of pieces that end at the indices given, of the rows."""
    return _pieces("vsplit", input, indices_or_sections, 2, 0)


@public()
def dsplit(input: Any, indices_or_sections: Any) -> tuple[Any, ...]:
    """Views of equal pieces, or of pieces that end at the indices given, along the third dimension."""
    return _pieces("dsplit", input, indices_or_sections, 3, 2)
