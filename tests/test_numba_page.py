"""docs/numba.md: its programs run and compute what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.pages import programs, run_program

BLOCKS = programs("numba.md")


def test_the_sampler_of_the_page_samples_its_density(tmp_path: Path) -> None:
    found = run_program(BLOCKS[0], tmp_path)
    draws, scales = found["draws"][200:], found["scales"].numpy()
    assert len(np.unique(draws[:, 0])) > 400
    assert np.all(np.abs(draws.std(0) / scales - 1) < 0.35)


def test_the_integral_of_the_page_is_that_of_a_bell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_program(BLOCKS[1], tmp_path)
    signature, result = capsys.readouterr().out.splitlines()
    assert signature == "double (double x)"
    assert float(result.strip("()").split(",")[0]) == pytest.approx(0.746824132812427, abs=1e-12)


def test_the_page_has_no_program_that_is_not_run_here() -> None:
    assert len(BLOCKS) == 2
