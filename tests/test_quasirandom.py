"""quasirandom.SobolEngine: without scrambling torch's points, with it points that fill the cube as evenly."""

from __future__ import annotations

import numpy as np
import pytest

import tracejit
from tracejit.quasirandom import SobolEngine


@pytest.mark.parametrize("dimension", [1, 4, 25])
def test_the_points_are_those_of_torch(dimension: int) -> None:
    theirs, ours = pytest.importorskip("torch").quasirandom.SobolEngine(dimension), SobolEngine(dimension)
    for act in (lambda e: e.draw(5), lambda e: e.fast_forward(3).draw(9), lambda e: e.draw(), lambda e: e.reset().draw_base2(3)):
        np.testing.assert_array_equal(act(ours).numpy(), act(theirs).numpy())
        assert ours.num_generated == theirs.num_generated and repr(ours) == repr(theirs)
    out = tracejit.empty(0, dtype=tracejit.float64)
    assert ours.draw(2, out=out, dtype=tracejit.float64) is out and out.shape == (2, dimension)


def test_scrambled_points_follow_the_seed_and_fill_the_cube() -> None:
    first, again, other = (SobolEngine(3, scramble=True, seed=seed).draw(256).numpy() for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    counts = np.histogramdd(first, bins=(4, 4, 4), range=[(0, 1)] * 3)[0]
    assert (counts == 4).all()  # each of 64 boxes has its share of 256
    tracejit.manual_seed(5)
    a = SobolEngine(2, scramble=True).draw(4).numpy()
    tracejit.manual_seed(5)
    assert np.array_equal(SobolEngine(2, scramble=True).draw(4).numpy(), a)


def test_wrong_numbers_of_dimensions_and_points_are_errors() -> None:
    with pytest.raises(ValueError, match="21201"):
        SobolEngine(0)
    engine = SobolEngine(2)
    engine.draw(3)
    with pytest.raises(ValueError, match="3 points have been drawn"):
        engine.draw_base2(2)
