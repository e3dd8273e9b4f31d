"""`python -m tracejit`: the report and the self-test."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tracejit.config import override
from tracejit.cpython import c_api, layouts
from tracejit.report.system import facts, text

command = SimpleNamespace(**runpy.run_module("tracejit", run_name="command"))
"""The module under the name of a program, as it has it where it is run: functions of the library's own modules are not compiled."""


def test_the_command_reports_versions_and_passes_its_own_test() -> None:
    root = str(Path(__file__).resolve().parent.parent)
    environment = {**os.environ, "PYTHONPATH": root}
    result = subprocess.run(
        [sys.executable, "-m", "tracejit"], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for part in ("Python ", "numpy ", "processor ", "threads ", "cache ", "interpreter ", "self-test "):
        assert part in result.stdout
    assert "FAILED" not in result.stdout and result.stdout.count(": passed (") == 3


def test_json_holds_the_same_for_bug_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(test["passed"] for test in found["self-test"].values())
    assert found["packages"]["numpy"] and found["settings"]["backend"] and "interpreter" in found


def test_a_test_that_fails_is_shown_and_gives_exit_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ArithmeticError("1 is not 2")

    monkeypatch.setitem(command.main.__globals__, "_TESTS", {"sums": broken})
    assert command.main([]) == 1
    out = capsys.readouterr().out
    assert "sums: FAILED" in out and "ArithmeticError: 1 is not 2" in out


def test_the_self_test_fails_where_nothing_is_compiled() -> None:
    with override(enabled=False):
        results = command.self_test()
    assert not any(result["passed"] for result in results.values())


def test_an_interpreter_that_was_not_verified_is_named_and_passes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "LAYOUTS", {(2, 7): layouts.Layout()})
    c_api.unsupported.cache_clear()
    try:
        assert command.main([]) == 0
    finally:
        monkeypatch.undo()
        c_api.unsupported.cache_clear()
    assert "enter programs from machine code: objects of CPython" in capsys.readouterr().out


def test_a_cache_that_is_off_is_said_to_be() -> None:
    with override(cache=False):
        assert "off (TRACEJIT_CACHE=0)" in text(facts())
