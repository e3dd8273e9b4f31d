"""The corpus of capture_programs.py under `tracejit.compile`: recorded, served from Python, served from machine code.

Each program's calls are made three times over, in a world of their own for every way, so that each path is recorded, replayed, and replayed
again after whatever its calls changed.  A program without a reason must be replayed; results, errors and outside state are eager's.
"""

from __future__ import annotations

from functools import cache

import pytest
from capture_programs import PROGRAMS, run

import tracejit as T
from tracejit.config import override

WAYS = {"cold": 0, "hot": 1}  # hot_calls
pytestmark = pytest.mark.usefixtures("no_modules_are_left")


@cache
def eager(name):
    """What a program comes to without a compiler."""
    return run(PROGRAMS[name][0], lambda function: function)[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_program_is_the_eager_one_and_is_replayed(name, way):
    maker, reason = PROGRAMS[name]
    with override(hot_calls=WAYS[way]):
        compiled, function = run(maker, T.compile)
    assert compiled == eager(name)
    if reason is None:
        assert function.stats.compiled_calls > 0, function.explain()
        assert not function.reasons or {r.code for r in function.reasons} <= {"raised"}, function.explain()
    else:
        assert reason in {r.code for r in function.reasons}
