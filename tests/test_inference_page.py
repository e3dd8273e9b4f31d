"""docs/inference.md: its program runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import programs, run_program

BLOCKS = programs("inference.md")


def test_the_program_of_the_page_samples_the_eight_schools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("nutpie")
    found = run_program(BLOCKS[0], tmp_path)
    assert capsys.readouterr().out.splitlines()[0] == "<Draws of nutpie: 4 chains of 1000 draws; mu: [], tau: [], z: [8]>"
    assert found["draws"]["tau"].mean() == pytest.approx(3.6, abs=0.6)


def test_the_page_has_one_program() -> None:
    assert len(BLOCKS) == 1
