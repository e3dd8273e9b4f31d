"""Rows on several interpreters: what cannot be measured is refused before anything is, and what ran eagerly has no figures."""

from __future__ import annotations

import json
import os
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from benchmarks import pythons, rows
from benchmarks.__main__ import main


def script(file: Path, text: str) -> str:
    """An executable of this text."""
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def environment(directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Another environment of this interpreter, with the same packages."""
    venv.create(directory, symlinks=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    return str(directory / "bin" / "python")


class Answers:
    """An interpreter that is not there: what it would answer to each request, and samples in turn."""

    def __init__(self, label: str, samples: list[float], *, minor: int = 11, **answers: Any) -> None:
        self.label, self.is_3_11, self._samples = label, minor == 11, iter(samples)
        self._answers = {"prepare": {"difference": 0.0}, **answers}

    def ask(self, request: str, *arguments: Any) -> Any:
        return self._answers[request]

    def sample(self) -> float:
        return next(self._samples)


def finished(calls: int, compiled: int, *entries: str) -> dict[str, Any]:
    return {"calls": calls, "compiled": compiled, "entries": list(entries), "explanation": "why"}


def test_interpreters_stand_side_by_side_with_ratios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    arguments = ["--pythons", sys.executable, environment(tmp_path / "other", monkeypatch), "--quick", "--json", str(file)]
    assert main([*arguments, "--rows", "a*b+1,parameters_2,parameters_200,object_state"]) == 0
    printed = capsys.readouterr().out.splitlines()
    version = ".".join(map(str, sys.version_info[:3])) + sys.abiflags
    (heading,) = [line for line in printed if line.startswith("row, us a call")]
    assert heading.split()[4:] == [version, "(1)", version, "(2)", "ratio"]
    document = json.loads(file.read_text())
    assert document["problems"] == [] and len(document["pythons"]) == 2
    assert [row["name"] for row in document["rows"]] == ["a*b+1", "parameters_2", "parameters_200", "object_state"]
    for row in document["rows"]:
        assert row["notes"] == [], "the calls that are timed enter the program from machine code"
        assert [len(samples) for samples in row["samples"].values()] == [20, 20]
        assert all(0 < figure < 1 for samples in row["samples"].values() for figure in samples)
        (line,) = [line for line in printed if line.startswith(row["title"])]
        assert 0.2 < float(line.split()[-1]) < 5
    parameters = [line for line in printed if "a call with 200 parameters / with 2: " in line]
    assert [line.partition(": ")[0] for line in parameters] == [f"{version} (1)", f"{version} (2)"]


def test_calls_that_run_eagerly_have_no_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TRACEJIT_DISABLE", "1")
    assert main(["--pythons", sys.executable, "--quick", "--rows", "a*b+1"]) == 1
    said = capsys.readouterr()
    assert "a*b+1, n=3: FAILED" in said.out
    assert "timed calls 0 were served by a program" in said.err


def test_wrong_results_have_no_figures_and_are_not_timed() -> None:
    right, wrong = Answers("3.12", []), Answers("3.13", [], prepare={"wrong": "call 1 of compiled differs from eager"})
    row, problems = pythons.measure(rows.ROWS[0], [right, wrong], 3)  # type: ignore[list-item]
    assert row is None and problems == ["3.13: call 1 of compiled differs from eager"]


def test_one_eager_call_is_a_problem() -> None:
    one = Answers("3.12", [1.0, 1.0, 1.0], finish=finished(3, 3, "from machine code"))
    other = Answers("3.13", [1.0, 1.0, 1.0], finish=finished(3, 2, "from machine code"))
    row, problems = pythons.measure(rows.ROWS[0], [one, other], 3)  # type: ignore[list-item]
    assert row is None and problems == ["3.13: a*b+1: of 3 timed calls 2 were served by a program: why"]


def test_ratios_are_taken_round_by_round_and_judged_against_3_11() -> None:
    first = Answers("3.13.0", [1.1e-6, 2.6e-6, 1.3e-6], minor=13, finish=finished(3, 3, "from Python"))
    second = Answers("3.11.7", [1e-6, 2e-6, 1e-6], finish=finished(3, 3, "from machine code"))
    started: list[Any] = [first, second]
    row, problems = pythons.measure(rows.ROWS[0], started, 3)
    assert row is not None and not problems and row.notes == ("3.13.0: calls from Python",)
    assert row.seconds() == {"3.13.0": 1.3e-6, "3.11.7": 1e-6} and row.ratio("3.13.0", "3.11.7") == pytest.approx(1.3)
    assert pythons.summary([row], started) == "3.13.0 / 3.11.7: 0 of 1 goals met; missed: a*b+1 1.30 of 1.2"
    second.is_3_11 = False
    assert pythons.summary([row], started) == ""


def test_rows_of_the_eager_engine_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--pythons", sys.executable, "--rows", "eager_chain"]) == 2
    assert "--pythons: nothing is compiled in eager_chain" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--pythons", sys.executable, "--first-call"])
    assert "not with --peers, --first-call or --plot" in capsys.readouterr().err


def test_rows_that_are_measured_by_default_are_those_whose_cost_is_calls() -> None:
    names = [workload.name for workload in pythons.workloads([])]
    assert {"a*b+1", "mlp_adam_1", "rnn_3", "everyday_tiny_clipped", "parameters_20", "sgd_200", "object_state"} <= set(names)
    assert len(names) == 16


@pytest.mark.skipif(os.name != "posix", reason="scripts of the shell")
def test_what_cannot_be_measured_is_refused_before_anything_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing, data = tmp_path / "nothing", tmp_path / "data"
    data.write_text("no program")
    silent = script(tmp_path / "silent", "exit 0")
    bare = script(tmp_path / "bare", f'exec "{sys.executable}" -I -S "$@"')  # without packages, and without the checkout
    other = script(tmp_path / "other", f'exec "{sys.executable}" "$@"')
    for paths, message in (
        ([nothing], f"{nothing}: there is no such program"),
        ([data], f"{data}: there is no such program"),
        ([silent], f"{silent}: it is no Python that can run the rows: it wrote ''"),
        ([bare, sys.executable], f"{bare}: "),
        ([sys.executable, other], f"{sys.executable} and {other} are the same interpreter ("),
    ):
        assert main(["--pythons", *map(str, paths)]) == 2
        said = capsys.readouterr()
        assert said.err.startswith(f"error: {message}") and said.out == ""


@pytest.mark.skipif(os.name != "posix", reason="scripts of the shell")
def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    bare = script(tmp_path / "bare", f'exec "{sys.executable}" -S "$@"')
    with pytest.raises(pythons.InterpreterError, match=r"bare: ModuleNotFoundError: No module named 'num(ba|py)'"), \
            pythons.interpreters([bare], 1):  # fmt: skip
        pass


@pytest.mark.skipif(os.name != "posix", reason="scripts of the shell")
def test_an_interpreter_that_ends_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    description = json.dumps({"version": "3.12.1"})
    dying = script(tmp_path / "dying", f"echo '{description}'; read request; echo 'out of memory' >&2; exit 1")
    with (
        pythons.interpreters([dying], 1) as (interpreter,),
        pytest.raises(pythons.InterpreterError, match="dying: out of memory"),
    ):
        interpreter.sample()
