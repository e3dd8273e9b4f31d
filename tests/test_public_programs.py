"""Public programs written for PyTorch run unchanged: those named in public_programs.txt, each in a process of its own.

They are read from a directory of checkouts, owner/name/path, that the environment variable TRACEJIT_PROGRAMS names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import tracejit
from tests.program_runner import FINISHED, write_data

CHECKOUTS: Final = os.environ.get("TRACEJIT_PROGRAMS", "")
STEPS: Final = 10


def programs() -> list[str]:
    lines = Path(__file__).with_name("public_programs.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_at_least_fifty_programs_are_named_each_with_its_commit() -> None:
    named = programs()
    assert len(named) == len(set(named)) >= 50
    for line in named:
        repository, commit, path = line.split(" | ")[0].split(" ", 2)
        assert repository.count("/") == 1 and len(commit) == 40 and path.endswith(".py"), line


@pytest.mark.skipif(not CHECKOUTS, reason="TRACEJIT_PROGRAMS names no directory with checkouts of public programs")
@pytest.mark.parametrize("line", programs())
def test_a_public_program_runs_unchanged(line: str, tmp_path: Path) -> None:
    where, arguments, files = (*line.split(" | "), "", "")[:3]
    repository, _, path = where.split(" ", 2)
    checkout = Path(CHECKOUTS) / repository
    if not (checkout / path).is_file():
        pytest.skip(f"{checkout / path} is not there")
    shutil.copytree(checkout, tmp_path / "program", ignore=shutil.ignore_patterns(".git"))
    for name in files.split():
        write_data(tmp_path / "program" / name)
    root = Path(tracejit.__file__).parent.parent
    done = subprocess.run(
        [
            sys.executable,
            str(root / "tests" / "program_runner.py"),
            str(STEPS),
            str(tmp_path / "program" / path),
            str(tmp_path / "program"),
        ]
        + arguments.split(),
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )
    assert done.returncode == 0 and FINISHED in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]
