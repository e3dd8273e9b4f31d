"""docs/see-what-happens.md: its programs run and show what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.pages import page, programs, run_program

BLOCKS = programs("see-what-happens.md")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a program of the page runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_report_of_the_page_is_written(folder: Path) -> None:
    found = run_program(BLOCKS[0], folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and "seen[&quot;steps&quot;] += 1" in text and "cross_entropy" in text
    assert found["seen"] == {"steps": 20}


def test_the_drawings_of_the_page_are_made(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("grandalf")
    found = run_program(BLOCKS[1], folder)
    assert "def graph(" in capsys.readouterr().out and found["dot"].startswith("digraph {")
    assert "relu" in (folder / "graph.svg").read_text(encoding="utf-8")
    assert "weight" in (folder / "tape.svg").read_text(encoding="utf-8")


def test_the_profile_of_the_page_counts_its_steps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_program(BLOCKS[2], folder)
    out = capsys.readouterr().out
    assert re.search(r"loss, forward, path 0 +50 ", out) and re.search(r"loss, backward, path 0 +50 ", out)
    assert json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]


def test_the_misses_of_the_page_are_as_it_shows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_program(BLOCKS[3], folder)
    (shown,) = re.findall(r"```text\n(.*?)```", page("see-what-happens.md"), re.DOTALL)
    assert capsys.readouterr().out == shown


def test_the_page_has_no_program_that_is_not_run_here() -> None:
    assert len(BLOCKS) == 4
