"""The examples run, compute what they say, and are compiled where they say so."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tracejit.distributed import launch

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, **settings: int) -> dict[str, Any]:
    specification = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.main(**settings)


def test_no_example_is_left_out() -> None:
    tested = {
        "first_steps", "digits_training", "conditional_net", "rnn_loop", "gradient_accumulation", "digits_cnn", "vae", "time_series_lstm",
        "characters", "gpt", "cartpole", "custom_function", "mixed_precision", "distributed_digits",
    }  # fmt: skip
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested


def test_first_steps(capsys: pytest.CaptureFixture[str]) -> None:
    facts = run("first_steps")
    assert facts["compiled"] == pytest.approx(facts["eager"], abs=1e-6)
    assert facts["slope"] == pytest.approx(1.0)  # the curve is odd: slope 1 and no curvature at 0
    assert facts["curvature"] == pytest.approx(0.0, abs=1e-6)
    assert facts["compiled_calls"] == 2
    assert "a @ b = [3.0, 7.0]" in capsys.readouterr().out


def test_digits_training_reaches_its_accuracy_with_compiled_steps() -> None:
    pytest.importorskip("sklearn")
    facts = run("digits_training")
    assert facts["accuracy"] >= 0.95  # of one split; the benchmark asks 97 % of five
    assert facts["compiled_calls"] >= 0.95 * facts["calls"]


def test_the_conditional_net_replays_both_branches() -> None:
    facts = run("conditional_net")
    assert facts["worst"] < 1e-5
    assert facts["compiled_calls"] >= 6
    assert facts["traces"] == 2


def test_the_rnn_loop_learns() -> None:
    facts = run("rnn_loop")
    assert facts["last"] < 0.05 * facts["first"]
    assert facts["compiled_calls"] >= facts["calls"] - 3


def test_gradient_accumulation_equals_the_whole_batch() -> None:
    facts = run("gradient_accumulation")
    assert facts["worst"] < 1e-5
    assert facts["compiled_calls"] >= facts["calls"] - 4


def test_mixed_precision_reaches_its_loss_with_compiled_steps() -> None:
    facts = run("mixed_precision")
    assert facts["last"] < 1e-3 < facts["first"]
    assert facts["scale"] < 2.0**24  # which was too large: updates were left out until it was not
    assert facts["compiled_calls"] >= facts["calls"] - 4


def test_one_process_trains_without_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr(launch, "has_mpi", lambda: False)
    facts = run("distributed_digits", epochs=4)
    assert facts["accuracy"] > 0.85
    assert facts["compiled_calls"] == facts["calls"] - 1


def test_the_convolutional_network_learns() -> None:
    pytest.importorskip("sklearn")
    facts = run("digits_cnn", epochs=3)
    assert facts["loss"] < 1.0 and facts["accuracy"] > 0.6


def test_the_variational_autoencoder_learns() -> None:
    pytest.importorskip("sklearn")
    facts = run("vae", epochs=4)
    assert facts["last"] < 0.9 * facts["first"]


def test_the_time_series_is_predicted() -> None:
    facts = run("time_series_lstm", steps=2, length=20, waves=4)
    assert facts["last"] < 0.5 * facts["first"]


def test_the_character_models_learn() -> None:
    for name, (first, last) in run("characters", steps=30).items():
        assert last < 0.9 * first, name


def test_the_gpt_learns_and_speaks() -> None:
    facts = run("gpt", steps=25, spoken=5)
    assert facts["last"] < 0.9 * facts["first"]
    assert facts["spoken"] == 6


def test_the_pole_is_balanced_longer_than_at_first() -> None:
    facts = run("cartpole", episodes=90, longest=100)
    assert facts["last"] > 1.5 * facts["first"]


def test_operations_of_ones_own_fit_the_sine_alike() -> None:
    facts = run("custom_function", steps=100)
    for first, last in facts.values():
        assert last < 0.9 * first
    assert facts["Function"][1] == pytest.approx(facts["custom_op"][1], rel=1e-3)
