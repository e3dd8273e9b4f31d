"""Settings: parsed from the environment, checked, overridden for a while; and each of them has an effect."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest

import tracejit as T
from tracejit.config import Config, config, from_environment, override


def test_settings_come_from_the_environment() -> None:
    names = {
        "TRACEJIT_BACKEND": "reference", "TRACEJIT_VERIFY": "1", "TRACEJIT_DEBUG": "3", "TRACEJIT_MAX_ENTRIES": "7",
        "TRACEJIT_MAX_FAILURES": "2", "PATH": "/bin",
    }  # fmt: skip
    assert from_environment(names) == Config("reference", True, 3, 7, 2)
    assert from_environment({}) == Config()
    assert from_environment({"TRACEJIT_VERIFY": "0"}).verify is False
    assert [from_environment({"TRACEJIT_COMPILE_WAIT": text}).compile_wait for text in ("0", "2.5", "inf")] == [0, 2.5, math.inf]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TRACEJIT_BACKEND", "gpu", "expected one of llvm, numba, reference, interpret, got 'gpu'"),
        ("TRACEJIT_VERIFY", "true", "expected 0 or 1, got 'true'"),
        ("TRACEJIT_DEBUG", "6", "expected 0 to 5, got 6"),
        ("TRACEJIT_DEBUG", "much", "expected an integer, got 'much'"),
        ("TRACEJIT_MAX_ENTRIES", "0", "expected a positive integer, got 0"),
        ("TRACEJIT_MAX_FAILURES", "-1", "expected a positive integer, got -1"),
        ("TRACEJIT_COMPILE_WAIT", "long", "expected a number, got 'long'"),
        ("TRACEJIT_COMPILE_WAIT", "-1", "expected seconds, 0 or more, or inf, got -1.0"),
        ("TRACEJIT_COMPILE_WAIT", "nan", "expected seconds, 0 or more, or inf, got nan"),
    ],
)
def test_a_bad_value_names_the_setting_and_what_is_expected(name: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: {message}"):
        from_environment({name: value})


def test_a_setting_that_does_not_exist_is_warned_of() -> None:
    with pytest.warns(RuntimeWarning, match="^TRACEJIT_BACKENDS: there is no such setting; there are TRACEJIT_BACKEND, "):
        assert from_environment({"TRACEJIT_BACKENDS": "interpret"}) == Config()


def test_the_environment_is_read_when_the_package_is_imported() -> None:
    code = "import tracejit; print(tracejit.config.config.backend)"
    environment = {**os.environ, "TRACEJIT_BACKEND": "interpret", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "interpret\n"


def test_an_override_ends_with_its_block_whatever_happens() -> None:
    before = config.debug, config.max_entries
    with pytest.raises(KeyError), override(debug=0, max_entries=3):
        assert config.max_entries == 3
        with override(max_entries=4):
            assert config.max_entries == 4
        assert config.max_entries == 3
        raise KeyError
    assert (config.debug, config.max_entries) == before


@pytest.mark.parametrize(
    ("settings", "error"),
    [({"max_entries": 0}, ValueError), ({"debug": "1"}, TypeError), ({"verify": 1}, TypeError), ({"colour": 1}, AttributeError)],
)
def test_a_bad_override_changes_nothing(settings: dict[str, object], error: type[Exception]) -> None:
    before = repr(config)
    with pytest.raises(error), override(backend="interpret", **settings):
        pass
    assert repr(config) == before


@pytest.mark.parametrize("backend", ["llvm", "numba", "reference", "interpret"])
def test_the_backend_is_what_runs_new_programs_and_only_those(backend: str) -> None:
    with T.config.override(backend=backend):
        function = T.compile(lambda x: x * 2)
        function(T.ones(2))
    for _ in range(2):
        assert function(T.ones(2)).tolist() == [2, 2]
    assert function.stats.compiled_calls == 2
    assert function.stats.machine_calls == (0 if backend == "interpret" else 2)
