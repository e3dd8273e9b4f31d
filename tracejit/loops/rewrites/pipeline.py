"""The rewrites on a nest's way to a machine with vectors, in order; each is verified where the library verifies itself."""

from __future__ import annotations

from typing import Final

from tracejit.config import config
from tracejit.loops.language import Nest
from tracejit.loops.rewrites.strides import interleave
from tracejit.loops.rewrites.tile import tile
from tracejit.loops.rewrites.vectorise import vectorise
from tracejit.loops.target import Target
from tracejit.loops.verify import verify

__all__ = ["rewritten"]

REWRITES: Final = (vectorise, tile, interleave)


def rewritten(nest: Nest, target: Target) -> Nest:
    """A plain nest, made fit for the target's vectors."""
    for rewrite in REWRITES:
        nest = rewrite(nest, target)
        if config.verify:
            verify(nest)
    return nest
