"""Other numbers in the places of symbolic ones: all that holds some is made again, the rest is shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracejit.core.substitution import Substitution
from tracejit.core.symbolic import ShapeEnv, text_of


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any


def test_substitution_reaches_what_holds_sizes_and_leaves_the_rest_as_it_is() -> None:
    env = ShapeEnv()
    n, m = env.size(6, "n"), env.size(4, "m")
    with env:
        held = Pair((n, [m, "text"]), {"half": n // 2, "share": 1 / n, "none": None})
        text = text_of("reads ", n * 4, " bytes")
    other = Pair((1, [2]), {"a": 3})
    values, clean = env.values([10, 5]), set[int]()
    substitution = Substitution(env, values, clean)
    assert substitution.of(held) == Pair((10, [5, "text"]), {"half": 5, "share": 0.1, "none": None})
    assert substitution.of(other) is other and id(other) in clean
    assert (text, substitution.of(text)) == ("reads 24 bytes", "reads 40 bytes")
    assert Substitution(ShapeEnv(), []).of(n) is n
