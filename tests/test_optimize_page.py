"""docs/optimize.md: its programs run and compute what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracejit as T
from tests.pages import programs, run_program

BLOCKS = programs("optimize.md")


def test_the_regression_of_the_page_is_minimized_within_bounds(tmp_path: Path) -> None:
    result = run_program(BLOCKS[0], tmp_path)["result"]
    inner = (result.x["weight"] > 0).tolist()
    assert result.success and (result.x["weight"] >= 0).all() and any(inner)
    slopes = result.jac["weight"].tolist()
    assert all(abs(s) < 0.1 if free else s > -0.1 for s, free in zip(slopes, inner, strict=True))


def test_the_curve_of_the_page_is_fitted_and_its_root_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_program(BLOCKS[1], tmp_path)
    assert "{'scale': 2.5, 'rate': 1.3, 'floor': 0.5}" in capsys.readouterr().out
    assert T.allclose(found["solution"].x, T.cos(found["solution"].x))


def test_the_penalty_of_the_page_is_the_best_one_nearby(tmp_path: Path) -> None:
    found = run_program(BLOCKS[2], tmp_path)
    best, error = found["best"], found["error_elsewhere"]
    assert best.success and best.fun < error(T.zeros((), dtype=T.float64)).item()
    assert all(error(best.x + step).item() >= best.fun for step in (-0.1, 0.1))


def test_the_grid_of_the_page_finds_the_larger_rate(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", minversion="1.6")
    search = run_program(BLOCKS[3], tmp_path)["search"]
    assert search.best_params_["classifier__lr"] == 0.03 and search.best_score_ > 0.9


def test_the_page_has_no_program_that_is_not_run_here() -> None:
    assert len(BLOCKS) == 4
