"""Which attention is computed in blocks of queries and keys, and of how many: the sizes alone decide.

Functions and passes ask this.  It must not know how blocks are computed (ops/composites/attention_in_blocks.py).
"""

from __future__ import annotations

from typing import Any, Final

from tracejit.core.shapes import product
from tracejit.core.symbolic import concretise_sizes

__all__ = ["rows_of_block"]

_ROWS: Final = 128
"""Queries of a block: enough for products to be fast, and few enough for scores, weights and their gradients to be in near memory."""
_LONG: Final = 1 << 22
"""Scores of all heads from which on blocks take no more time than all queries at once, though they compute weights twice ..."""
_LONG_CAUSAL: Final = 1 << 20
"""... and under a causal mask, where they leave out a good part of the scores."""


def rows_of_block(query: Any, key: Any, causal: bool) -> int:
    """How many queries are in a block; 0 where attention needs no blocks.  query, key: what has a `shape`, (..., length, size)."""
    length, source = query.shape[-2], key.shape[-2]
    if product(query.shape[:-1]) * source < (_LONG_CAUSAL if causal else _LONG):
        return 0
    length, source = concretise_sizes((length, source))
    return _ROWS if length >= 2 * _ROWS else 0
