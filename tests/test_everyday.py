"""The programs of everyday_programs.py under `tracejit.compile`: results, texts and state are eager's, recordings as many as stated."""

from __future__ import annotations

import sys
from functools import cache

import programs_everyday_autograd
import programs_everyday_containers
import programs_everyday_control
import programs_everyday_models
import programs_everyday_networks
import programs_everyday_objects
import programs_everyday_python
import programs_everyday_science
import programs_everyday_training
import programs_everyday_updates
import pytest
from everyday_programs import EVERYDAY, run
from fakes import always_eager, garbage_replays

import tracejit as T
from tracejit.capture.session import record
from tracejit.config import override

MODULES = (  # which have filled the registry
    programs_everyday_autograd,
    programs_everyday_containers,
    programs_everyday_control,
    programs_everyday_models,
    programs_everyday_networks,
    programs_everyday_objects,
    programs_everyday_python,
    programs_everyday_science,
    programs_everyday_training,
    programs_everyday_updates,
)
WAYS = {"cold": 0, "hot": 1}  # hot_calls


@cache
def without_compiler(name):
    """What a program comes to eagerly."""
    return run(EVERYDAY[name][0], lambda function: function)[0]


def compared(name, compiler):
    """Raises AssertionError where a compiler's calls are not eager's, or not replayed as the table says."""
    maker, recordings, eager, again = EVERYDAY[name]
    expected = without_compiler(name)
    found, function, once_more = run(maker, compiler)
    if found != expected:  # pytest would take minutes to say where long texts differ
        raise AssertionError(f"eager {expected!r:.2000}\ncompiled {found!r:.2000}")
    stats = function.stats
    if eager is not None:
        assert stats.compiled_calls == 0 and eager in {reason.code for reason in function.reasons}, function.explain()
    elif again is not None:
        assert stats.traces == again > recordings, function.explain()
    else:
        assert stats.traces <= recordings and stats.compiled_calls == stats.calls - stats.traces > 0, function.explain()
        if recordings == 1:  # then the last call is like any other
            assert not ran_as_python(function.__wrapped__, once_more), function.explain()


def ran_as_python(function, call):
    """Whether a call enters the code of a function, or a recording of it: statistics are not believed."""
    code = getattr(function, "__code__", None) or getattr(function, "__wrapped__", function.forward).__code__
    entered = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: entered.append(frame) if frame.f_code in (code, record.__code__) else None)
    try:
        call()
    finally:
        sys.setprofile(before)
    return bool(entered)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", EVERYDAY)
def test_an_everyday_program_is_the_eager_one_and_is_replayed(name, way):
    with override(hot_calls=WAYS[way]):
        compared(name, T.compile)


@pytest.mark.parametrize("fake", [always_eager, garbage_replays])
def test_compilers_that_do_not_compile_are_told_apart(fake):
    for name, (_, recordings, eager, again) in EVERYDAY.items():
        if recordings == 1 and eager is None and again is None:
            with pytest.raises((AssertionError, TypeError)):  # the latter where a Module is asked for
                compared(name, fake)
