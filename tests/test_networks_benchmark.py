"""The benchmark of networks (benchmarks/networks.py) compares what it times, and its figures of memory are those of steps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit
from benchmarks import network_sides, networks, networks_child
from benchmarks.network_models import NETWORKS, Network, checked, select, step_side
from benchmarks.networks import NetworkResult
from benchmarks.workload import relative_difference, unchanged

on_linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="this system has no high-water mark to set back")


@pytest.mark.parametrize("network", select(["cnn", "unet", "gpt", "lstm"]), ids=lambda n: n.name)
def test_torch_trains_the_tiny_network_as_the_eager_engine_does(network: Network) -> None:
    torch = pytest.importorskip("torch")
    sides = [step_side(network, network.tiny, framework, unchanged) for framework in (tracejit, torch)]
    for _ in range(networks.STEPS):
        eager, peer = (side.results(side.run()) for side in sides)
        assert relative_difference(peer, eager) <= network.tolerance


@pytest.mark.parametrize("network", select(["attention", "gpt"]), ids=lambda n: n.name)
def test_jax_trains_the_tiny_network_as_the_eager_engine_does(network: Network) -> None:
    pytest.importorskip("jax")
    sides = [network_sides.make_side(column, network, network.tiny) for column in ("eager", "jax")]
    for _ in range(networks.STEPS):
        eager, peer = (side.results(side.run()) for side in sides if side is not None)
        assert relative_difference(peer, eager) <= network.tolerance


def test_the_command_line_times_and_compares_networks_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "networks.json"
    assert networks.main(["--quick", "--columns", "eager,compiled", "--json", str(path), "mlp"]) == 0
    out, progress = capsys.readouterr()
    assert "MLP 784-512-10" in out and "peak memory of a step" in out and "first call" in out
    assert "mlp: process of compiled" in progress
    (row,) = json.loads(path.read_text())["rows"]
    assert row["replayed"] == 1.0 and row["differences"]["compiled"] <= 1e-3
    assert set(row["medians"]) == set(row["first_calls"]) == {"eager", "compiled"}
    assert row["ratios"]["eager"] == pytest.approx(row["medians"]["compiled"] / row["medians"]["eager"], rel=1.0)


def test_a_column_that_computes_something_else_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make_side(column: str, network: Network, sizes: dict[str, int]) -> Any:
        side = step_side(network, sizes, tracejit, unchanged)
        if column == "eager":
            return side
        return replace(side, results=lambda loss: [1.01 * array for array in side.results(loss)])

    monkeypatch.setattr(networks, "make_side", make_side)
    monkeypatch.setattr(networks, "run_child", lambda *_: {"first_call": 1.0, "peak": 2, "kept": 1})
    assert networks.main(["--quick", "--columns", "eager,compiled", "mlp"]) == 1
    assert "mlp, step 0: losses or gradients of compiled are 1.0e-02 away from those of eager" in capsys.readouterr().out


def test_a_process_that_fails_is_named_with_its_error_and_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "run_child", lambda *_: (_ for _ in ()).throw(RuntimeError("status 1: no compiler")))
    result = networks.measure(NETWORKS[0], ["eager"], 1, True, lambda _: None)
    assert result.failures == {"eager": "status 1: no compiler"} and not result.times and not result.peaks


def test_an_error_in_the_process_of_a_column_says_what_it_was() -> None:
    with pytest.raises(RuntimeError, match="no network is called nothing"):
        networks.run_child("eager", replace(NETWORKS[0], name="nothing"), 1, True)


def test_goals_that_are_missed_are_named() -> None:
    row = NetworkResult(
        "mlp",
        "MLP",
        ratios={"torch": 0.7, "jax": 0.7},
        eager_ratio=1.2,
        peaks={"compiled": 12 << 20, "eager": 10 << 20, "torch": 13 << 20},
    )
    assert row.missed() == ["torch 0.70", "eager/torch 1.20", "memory/eager 1.20"]
    assert NetworkResult("mlp", "MLP", peaks={"compiled": 12 << 20, "eager": 10}).memory_ratio("eager") is None


def test_networks_and_columns_that_there_are_not_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert networks.main(["resnet19"]) == 2
    assert "no network is called resnet19; there are resnet18, mobilenet" in capsys.readouterr().err
    assert networks.main(["--columns", "eager,numpy"]) == 2
    assert "no column is called numpy; there are eager, compiled" in capsys.readouterr().err


def test_gradients_of_the_first_the_middle_and_the_last_parameter_are_compared() -> None:
    assert checked(list(range(7))) == [0, 3, 6]


@on_linux
def test_the_peak_of_a_step_is_what_it_allocates_and_gives_back_and_what_it_keeps() -> None:
    size = 64 << 20
    before = networks_child.settled()
    held = [np.ones(32 << 20, np.uint8)]

    def step() -> None:
        np.ones(size, np.uint8)

    peak, kept = networks_child.memory_of(step, before)
    assert held[0].nbytes - (4 << 20) <= kept <= held[0].nbytes + (4 << 20)
    assert kept + size <= peak + (4 << 20) and peak <= kept + size + (8 << 20)
    again, _ = networks_child.memory_of(lambda: None, before)
    assert again < peak - size // 2, "the high-water mark is set back before a step"


@on_linux
def test_a_process_says_the_peak_of_its_steps_and_what_they_computed() -> None:
    (network,) = select(["mlp"])
    side = step_side(network, network.tiny, tracejit, unchanged)
    losses = [float(side.results(side.run())[0]) for _ in range(networks_child.WARM)]
    said = networks.run_child("eager", network, 1, True)
    assert said["losses"] == losses
    assert said["peak"] >= said["kept"] and said["first_call"] > 0
