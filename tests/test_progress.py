"""The bar for long work (tracejit/core/progress.py)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tracejit as T
from tracejit import nn
from tracejit.config import override
from tracejit.core import progress
from tracejit.core.lazy import lazy_module
from tracejit.core.progress import Progress
from tracejit.data import DataLoader, IterableDataset


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


def test_no_bar_is_drawn_where_a_setting_turns_them_off(screen: Callable[[], str]) -> None:
    with override(progress=False):
        work()
    assert screen() == ""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr(progress, "_on_terminal", lambda: True)


def test_a_bar_of_long_steps_is_drawn_while_a_step_runs(screen: Callable[[], str], terminal: None) -> None:
    with Progress("long work", between_steps=True) as bar:
        deadline, drawn = time.monotonic() + 30, ""
        while "long work" not in drawn and time.monotonic() < deadline:
            time.sleep(0.01)
            drawn += screen()
        assert "long work" in drawn and bar._thread is not None and bar._thread.is_alive()
    assert not bar._thread.is_alive() and screen().split("\r")[-2].strip() == ""


def test_a_bar_of_long_steps_needs_a_terminal(screen: Callable[[], str]) -> None:
    with Progress("long work", between_steps=True) as bar:
        bar.step()
    assert screen() == "" and bar._thread is None


def test_warm_up_counts_the_programs_that_it_compiles(
    screen: Callable[[], str], terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, step = [], Progress.step
    monkeypatch.setattr(Progress, "step", lambda bar: (step(bar), steps.append(bar._count)))
    function = T.compile(lambda x: (x.exp().sum(), (x * 2).sum()))
    assert function.warm_up(T.ones(3, requires_grad=True))[1].item() == 6
    drawn = screen()
    assert steps == [1, 2, 3, 4]  # forward; backward from both results, and from each
    assert "warm_up " in drawn and " programs" in drawn
    with override(progress=False):
        function.warm_up(T.ones(3, requires_grad=True))
    assert screen() == ""


def test_a_call_that_raises_ends_the_bar_of_warm_up(screen: Callable[[], str], terminal: None) -> None:
    def fails(x: T.Tensor) -> T.Tensor:
        raise ValueError("nothing")

    with pytest.raises(ValueError, match="nothing"):
        T.compile(fails).warm_up(T.ones(3))
    assert screen().rpartition("\r")[2].strip() == ""


class Endless(IterableDataset[T.Tensor]):
    """A dataset of which nobody knows how many batches it has."""

    def __iter__(self) -> Iterator[T.Tensor]:
        return (T.full((4, 2), float(k)) for k in range(3))


@pytest.mark.parametrize("quiet", [True, False])
def test_update_bn_counts_batches_unless_it_is_quiet(screen: Callable[[], str], quiet: bool) -> None:
    pytest.importorskip("tqdm")
    model = nn.Sequential(nn.BatchNorm1d(2))
    batches = [T.full((4, 2), float(k)) for k in range(3)]
    T.optim.swa_utils.update_bn(batches, model, quiet=quiet)
    T.optim.swa_utils.update_bn(DataLoader(Endless(), batch_size=None), model, quiet=quiet)  # len() raises
    drawn = screen()
    assert ("update_bn" in drawn and "/3" in drawn and "0batch" in drawn) is not quiet
    assert model[0].running_mean.tolist() == [1.0, 1.0]
