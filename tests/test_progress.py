"""The bar for long work (tracejit/core/progress.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T
from tracejit.core import progress
from tracejit.core.lazy import lazy_module
from tracejit.core.progress import Progress


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """What has come to standard error, where a bar is not waited for."""
    monkeypatch.setattr(progress, "DELAY", 0.0)
    return lambda: capsys.readouterr().err


def work(**options: Any) -> None:
    with Progress("work", total=3, **options) as bar:
        for k in range(3):
            bar.step(f"loss = {k}")


def test_a_bar_is_drawn_and_removed(screen: Callable[[], str]) -> None:
    pytest.importorskip("tqdm")
    work(unit="epoch")
    drawn = screen()
    assert "work" in drawn and "/3" in drawn and drawn.endswith("\r") and drawn.split("\r")[-2].strip() == ""


def test_nothing_is_drawn_where_it_is_not_wanted(screen: Callable[[], str]) -> None:
    work(quiet=True)
    assert screen() == ""


def test_nothing_is_drawn_for_short_work(screen: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 60.0)
    work()
    assert screen() == ""


def test_nothing_is_drawn_without_tqdm(screen: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_tqdm", lazy_module("tracejit_no_such_module"))
    work()
    assert screen() == ""


def test_minimize_shows_a_bar_unless_it_is_quiet(screen: Callable[[], str]) -> None:
    pytest.importorskip("tqdm")
    for quiet in (True, False):
        T.optimize.minimize(lambda x: (x**4).sum(), T.ones(2, dtype=T.float64), quiet=quiet)
        assert ("minimize" in screen()) is not quiet
