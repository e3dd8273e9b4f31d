"""docs/numba.md: its programs run and compute what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "numba.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(block: str, folder: Path) -> dict[str, Any]:
    """The globals of a program of the page; functions are recorded from files."""
    script = folder / "page.py"
    script.write_text(block)
    return runpy.run_path(str(script))


def test_the_sampler_of_the_page_samples_its_density(tmp_path: Path) -> None:
    found = run(BLOCKS[0], tmp_path)
    draws, scales = found["draws"][200:], found["scales"].numpy()
    assert len(np.unique(draws[:, 0])) > 400
    assert np.all(np.abs(draws.std(0) / scales - 1) < 0.35)


def test_the_integral_of_the_page_is_that_of_a_bell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(BLOCKS[1], tmp_path)
    signature, result = capsys.readouterr().out.splitlines()
    assert signature == "double (double x)"
    assert float(result.strip("()").split(",")[0]) == pytest.approx(0.746824132812427, abs=1e-12)


def test_the_page_has_no_program_that_is_not_run_here() -> None:
    assert len(BLOCKS) == 2
