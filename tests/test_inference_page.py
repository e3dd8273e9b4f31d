"""docs/inference.md: its program runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "inference.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_program_of_the_page_samples_the_eight_schools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("nutpie")
    script = tmp_path / "page.py"
    script.write_text(BLOCKS[0])
    found = runpy.run_path(str(script))
    assert capsys.readouterr().out.splitlines()[0] == "<Draws of nutpie: 4 chains of 1000 draws; mu: [], tau: [], z: [8]>"
    assert found["draws"]["tau"].mean() == pytest.approx(3.6, abs=0.6)


def test_the_page_has_one_program() -> None:
    assert len(BLOCKS) == 1
