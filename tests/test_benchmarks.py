"""The benchmark measures what it says: implementations agree, wrong results are refused, ratios are paired."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import tracejit
from benchmarks import (
    branching,
    busy,
    compare,
    depth,
    distributed,
    first_call,
    goals,
    numba_calls,
    numba_functions,
    numba_rows,
    plot,
    rows,
    table,
)
from benchmarks import eager as eager_operations
from benchmarks.__main__ import main
from benchmarks.branching_programs import PROGRAMS, Program, select
from benchmarks.measure import interleaved, paired_ratio
from benchmarks.workload import Side, Workload, as_arrays, relative_difference, unchanged
from tracejit.ops.public import FUNCTIONS

SMALL = [w for w in rows.ROWS if w.name not in ("gelu_100000", "gelu_4000000", "black_scholes_1000000")]


@pytest.mark.parametrize("workload", [w for w in SMALL if w.numpy is not None], ids=lambda w: w.name)
def test_numpy_by_hand_computes_what_the_eager_engine_computes(workload: Workload) -> None:
    eager, by_hand = workload.build(tracejit, unchanged), workload.numpy()
    for _ in range(3):
        expected = eager.results(eager.run())
        assert relative_difference(by_hand.results(by_hand.run()), expected) <= workload.peer_tolerance


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_torch_computes_what_the_eager_engine_computes(workload: Workload) -> None:
    torch = pytest.importorskip("torch")
    eager, peer = workload.build(tracejit, unchanged), workload.build(torch, unchanged)
    for _ in range(3):
        expected = eager.results(eager.run())
        assert relative_difference(peer.results(peer.run()), expected) <= workload.peer_tolerance


@pytest.mark.parametrize("workload", [w for w in SMALL if w.name in numba_rows.SIDES], ids=lambda w: w.name)
def test_kernels_by_hand_compute_what_the_eager_engine_computes(workload: Workload) -> None:
    eager, by_hand = workload.build(tracejit, unchanged), numba_rows.SIDES[workload.name]()
    for _ in range(3):
        expected = eager.results(eager.run())
        assert relative_difference(by_hand.results(by_hand.run()), expected) <= workload.peer_tolerance


def test_everyday_steps_are_timed_beside_the_bare_one_which_has_a_row_of_its_own() -> None:
    named = {w.name: w for w in rows.ROWS if w.name.startswith("everyday_")}
    assert not named.pop("everyday_bare").beside and not named.pop("everyday_tiny_bare").beside
    assert len(named) == 12 and all(set(w.beside) == {"bare"} for w in named.values())
    result = rows.run_row(named["everyday_tiny_dropout"], {}, 0.01)
    assert result.others["bare"] > 0 and result.other_ratios["bare"] > 0 and result.replayed == 1.0
    assert result.difference is not None and result.difference < 1e-4, "both sides draw the same masks"
    assert "compiled / bare: " in goals.summary([result])
    assert goals.against("everyday_dropout", "bare") == 1.15


def test_every_kernel_by_hand_belongs_to_a_row() -> None:
    assert set(numba_rows.SIDES) <= {w.name for w in rows.ROWS}


@pytest.mark.parametrize(
    ("function", "expected", "tolerance"),
    [
        (numba_functions.exp, np.exp, 3e-7),
        (numba_functions.tanh, np.tanh, 4e-7),
        (
            lambda x: numba_functions.log(abs(x) + np.float32(1e-3)),
            lambda x: np.log(np.abs(x) + np.float64(np.float32(1e-3))),
            1e-6,
        ),
        (lambda x: numba_functions.normal_cdf(x)[0], lambda x: ndtr(x), 2e-6),
    ],
    ids=["exp", "tanh", "log", "normal_cdf"],
)
def test_elementary_functions_by_hand_are_those_of_numpy(function: Any, expected: Any, tolerance: float) -> None:
    x = np.linspace(-4, 4, 1001, dtype=np.float32)
    actual = np.array([function(value) for value in x])
    reference = expected(x.astype(np.float64))
    assert np.abs(actual - reference).max() <= tolerance * np.abs(reference).max()


def test_rows_have_distinct_names_and_say_what_is_inside() -> None:
    assert len({w.name for w in rows.ROWS}) == len(rows.ROWS)
    assert all(w.inside and w.title for w in rows.ROWS)


def latency_row(transform: Any) -> Workload:
    """The first row with a compiler of the test's own in place of tracejit.compile."""
    first = rows.ROWS[0]
    return replace(first, build=lambda framework, chosen: first.build(framework, chosen if chosen is unchanged else transform))


def test_a_compiler_with_wrong_results_gets_no_row() -> None:
    with pytest.raises(rows.WrongResults, match=r"a\*b\+1: call 1 of compiled differs from eager"):
        rows.run_row(latency_row(lambda function: lambda a, b: function(a, b) + 1e-3), {}, 0.01)


def test_nan_in_place_of_a_number_is_an_infinite_difference() -> None:
    good, bad = np.ones(3, np.float32), np.array([1, np.nan, 1], np.float32)
    assert relative_difference([bad], [good]) == np.inf
    assert relative_difference([bad], [bad]) == 0.0
    assert relative_difference([good, good], [good]) == np.inf
    assert relative_difference([np.ones((3, 1))], [good]) == np.inf


def test_one_wrong_element_in_a_million_is_beyond_the_tolerance() -> None:
    expected = np.ones(1_000_000, np.float32)
    actual = expected.copy()
    actual[17] = 0.0
    assert relative_difference([actual], [expected]) > 1e-5


def test_ratios_are_those_of_the_work() -> None:
    figures = interleaved({"slow": lambda: time.sleep(0.004), "fast": lambda: time.sleep(0.001)}, 0.05)
    assert len(figures["slow"]) == len(figures["fast"]) >= 5
    assert 2.0 < paired_ratio(figures["slow"], figures["fast"]) < 5.0


def test_a_row_reports_calls_that_ran_eagerly() -> None:
    class NeverReplays:
        def __init__(self, function: Any) -> None:
            self.function, self.stats = function, type("Stats", (), {"calls": 0, "compiled_calls": 0})()

        def __call__(self, *arguments: Any) -> Any:
            self.stats.calls += 1
            return self.function(*arguments)

        def explain(self, verbose: bool = False) -> str:
            return "because"

    result = rows.run_row(latency_row(NeverReplays), {}, 0.01)
    assert result.replayed == 0.0
    assert "ran eagerly: because" in result.notes[-1]
    assert "MISSED" in table.line(result, ["numpy"])


def test_unknown_rows_are_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match="no row is called 'nonsense'; rows: a\\*b\\+1"):
        rows.select(["nonsense"])
    assert [w.name for w in rows.select(["mlp_sgd*"])] == ["mlp_sgd_64", "mlp_sgd_1", "mlp_sgd_512"]


def test_durations_have_three_digits() -> None:
    assert [table.duration(s) for s in (1.5e-7, 1.234e-5, 0.123456, 12.3456, None)] == [
        "0.15 us",
        "12.3 us",
        "123 ms",
        "12.3 s",
        "-",
    ]


def test_results_are_copies() -> None:
    x = tracejit.zeros(2)
    (before,) = as_arrays(x)
    x += 1
    assert before.tolist() == [0, 0]


def test_a_side_needs_no_compiled_function() -> None:
    assert Side(lambda: None, lambda result: []).function is None


def test_the_command_line_prints_a_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert main(["--rows", "a*b+1,eager_chain", "--quick", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "a*b+1, n=3" in printed and "inside: a*b + 1, forward" in printed
    first, second = json.loads(file.read_text())["rows"]
    assert first["difference"] <= 1e-6 and first["replayed"] == 1.0
    assert second["compiled"] is None
    assert len(first["samples"]["eager"]) == len(first["samples"]["compiled"]) == first["rounds"]
    environment = json.loads(file.read_text())["environment"]
    assert environment["threads"] == 1 and environment["versions"]["numpy"] == np.__version__


def document(**factors: float) -> dict[str, Any]:
    """A run in which compiled takes eager's time * factor, with one per cent of noise, on a machine that drifts."""
    random = np.random.default_rng(0)
    found = []
    for name, factor in factors.items():
        eager = 1e-3 * random.uniform(1, 2, 40)
        found.append(
            {"name": name, "samples": {"eager": list(eager), "compiled": list(eager * factor * random.normal(1, 0.01, 40))}}
        )
    return {"environment": {}, "rows": found, "problems": []}


def verdicts(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    return {change.name: change.verdict for change in compare.compare(before, after, 1.1, "eager")}


def test_compare_names_what_moved_beyond_the_threshold() -> None:
    before, after = document(a=0.5, b=0.5, c=0.5), document(a=0.6, b=0.5, c=0.3)
    assert verdicts(before, after) == {"a": "slower", "b": "same", "c": "faster"}


def test_compare_calls_a_change_within_the_spread_of_the_samples_noise() -> None:
    wide = np.exp(np.random.default_rng(1).normal(0, 1, 9))
    rows_of = [{"name": "a", "samples": {"eager": [1.0] * 9, "compiled": list(factor * wide)}} for factor in (1.0, 1.2)]
    assert verdicts({"rows": rows_of[:1]}, {"rows": rows_of[1:]}) == {"a": "noise"}


@pytest.mark.parametrize(
    ("after", "status", "said"),
    [
        (document(a=0.5, b=0.5), 0, "2 rows: 0 slower, 0 faster"),
        (document(a=0.5, b=0.6), 1, "slower: b"),
        (document(a=0.5), 1, "gone: b"),
        ({**document(a=0.5, b=0.5), "problems": ["b: wrong"]}, 1, "wrong results: b: wrong"),
        ({"rows": [{"name": "a"}]}, 2, "has no rows with samples"),
        ([], 2, "has no rows with samples"),
        ({"rows": []}, 2, "no row has a compiled side and 'eager'"),
    ],
)
def test_compare_exits_with_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], after: Any, status: int, said: str
) -> None:
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for file, content in zip(files, (document(a=0.5, b=0.5), after), strict=True):
        file.write_text(json.dumps(content))
    assert compare.main([str(file) for file in files]) == status
    assert said in "".join(capsys.readouterr())


def test_compare_refuses_files_that_are_not_there_and_thresholds_that_are_no_factors(tmp_path: Path) -> None:
    file = tmp_path / "before.json"
    assert compare.main([str(file), str(file)]) == 2
    file.write_text(json.dumps(document(a=0.5)))
    assert compare.main([str(file), str(file), "--threshold", "0.9"]) == 2
    assert compare.main([str(file), str(file)]) == 0


def test_compare_says_what_makes_the_runs_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    files[0].write_text(json.dumps({**document(a=0.5), "peers": ["jax"], "quick": True}))
    files[1].write_text(json.dumps({**document(a=0.5), "environment": {"threads": 2}}))
    assert compare.main([str(file) for file in files]) == 0
    printed = capsys.readouterr().out
    assert "threads differs: None before, 2 after" in printed and "different peers" in printed and "--quick" in printed


def test_compare_runs_as_a_script(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(document(a=0.5)))
    done = subprocess.run([sys.executable, compare.__file__, file, file], capture_output=True, text=True, check=True)
    assert "1 rows: 0 slower" in done.stdout


def test_goals_say_which_rows_miss_them() -> None:
    result = replace(rows.run_row(rows.ROWS[0], {}, 0.01), ratio=1.0, other_ratios={"jax": 2.0, "numba": 1.0})
    said = goals.summary([result])
    assert "compiled / eager: 1 of 1 goals met" in said
    assert "compiled / jax: 0 of 1 goals met; missed: a*b+1 0.50 of 0.3" in said
    assert "compiled / numba: 1 of 1" in said
    assert goals.against("rnn_3", "jax") == 0.6 and goals.against("mlp_sgd_64", "jax") == 1.0


def test_the_plot_is_svg_with_bars_on_a_log_scale_from_the_line_at_one() -> None:
    measured = rows.run_row(rows.ROWS[0], {}, 0.01)
    result = replace(measured, title="a < b & c", ratio=10.0, other_ratios={"numba": 0.1})
    root = ElementTree.fromstring(plot.svg([result], "here"))
    space = "{http://www.w3.org/2000/svg}"
    bars = {bar.get("fill"): bar for bar in root.iter(f"{space}rect") if bar.get("height") == "10" and bar.get("y") != "44"}
    faster, slower = (float(bars[colour].get("width", "0")) for colour in ("#4e79a7", "#9c6ade"))
    assert faster == pytest.approx(slower, abs=0.2) and faster > 100
    assert float(bars["#9c6ade"].get("x", "0")) + slower == pytest.approx(float(bars["#4e79a7"].get("x", "0")), abs=0.2)
    assert "a < b & c" in [text.text for text in root.iter(f"{space}text")]
    with pytest.raises(ValueError, match="nothing to plot"):
        plot.svg([replace(measured, compiled=None)], "here")


def test_starts_are_timed_in_processes_of_their_own_and_their_results_compared() -> None:
    (start,), problems = first_call.measure(["mlp_sgd_64"], ["tracejit"], 1, 1)
    assert not problems and len(start.cold) == len(start.warm) == 1
    assert 0.05 < start.as_dict()["warm_median"] < 60
    assert 0.05 < start.as_dict()["warm_cpu_median"] < 60
    said = first_call.report([start, replace(start, contender="jax", cold=[2 * start.cold[0]], cold_cpu=[3 * start.cold_cpu[0]])])
    assert "(2.00)" in said and "(3.00)" in said and "(1.00)" in said


def test_a_process_that_fails_is_an_error_with_what_it_said() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)process of tracejit for nonsense ended with status 1.*KeyError: 'nonsense'"):
        first_call.measure(["nonsense"], ["tracejit"], 1, 1)


def test_starts_with_different_results_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [7.0, 7.0, 2.0, 2.0, 2.0, 2.1]  # the first start of each is not looked at
    outcomes = iter([first_call.Outcome(1.0, 1.0, value) for value in values])
    monkeypatch.setattr(first_call, "_timed", lambda *_: next(outcomes))
    _, problems = first_call.measure(["mlp_sgd_64"], ["tracejit", "jax"], 1, 1)
    assert problems == ["first call of mlp_sgd_64: results of jax differ by 1.00e-01"]


@pytest.mark.parametrize("computation", ["gradients", "SGD", "Adam"])
def test_the_stages_of_a_first_call_make_up_most_of_it(computation: str) -> None:
    figures = depth.measure(1, computation)
    first, others = figures.pop("first"), [figures.pop(name) for name in ("second", "later")]
    assert set(figures) >= {"recording", "passes", "lowering", "text", "entry"} and min(figures.values()) > 0
    assert 0.8 * first < sum(figures.values()) <= first and max(others) < first


def test_a_later_call_of_a_deep_model_is_not_part_of_its_stages() -> None:
    stages = depth._Stages()
    compiled = tracejit.compile(lambda x: x * 2.0)
    with stages.timed():
        compiled(tracejit.ones(3))
    counted = dict(stages.seconds)
    compiled(tracejit.ones(3))
    assert counted and dict(stages.seconds) == counted


def test_steps_are_timed_alone_and_beside_a_process_that_is_ended_afterwards(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    states: list[bool] = []

    def popen(*given: Any, **options: Any) -> Any:
        process = real(*given, **options)
        if given[0][0] == sys.executable:
            started.append(process)
        return process

    def note() -> None:
        states.append(any(process.poll() is None for process in started))
        time.sleep(0.001)

    real = subprocess.Popen
    monkeypatch.setattr(busy.subprocess, "Popen", popen)
    monkeypatch.setattr(busy, "_SECONDS", 0.01)
    monkeypatch.setattr(busy, "_sides", lambda: {"a step": note})
    busy.main(["--rounds", "2"])
    assert len(started) == 2 and all(process.poll() is not None for process in started)
    assert [state for i, state in enumerate(states) if i == 0 or state != states[i - 1]] == [False, True, False, True]
    assert "a step" in capsys.readouterr().out


LOOPS = [p for p in PROGRAMS if p.name not in ("hmc_1000", "heun_500", "dopri_500")]  # those are others with more steps
PLAUSIBLE: dict[str, Callable[[Any], bool]] = {
    "metropolis": lambda result: 400 < result[1] < 650,
    "hmc_50": lambda result: 40 < result[1] <= 50 and np.asarray(result[0]).shape == (50, 4),
    "hmc_calls": lambda result: 85 < result[1] <= 100 and np.asarray(result[0]).shape == (100, 4),
    "hmc_jittered": lambda result: 40 < result[1] <= 50 and bool(abs(np.asarray(result[0]) < 1).all()),
    "nuts": lambda result: 50 < result[1] < 110 and 0.2 < np.asarray(result[0]).std() < 1.5,
    "rejection": lambda result: 0.8 < np.asarray(result).std() < 1.2,
    "queue": lambda result: 220 < result[0] < 380 and 3 < result[1] < 60,
}


def called(side: Callable[[int], Callable[[], Any]], call: int) -> Any:
    return side(call)()


@pytest.mark.parametrize("program", LOOPS, ids=lambda p: p.name)
def test_branching_loops_give_the_same_compiled(program: Program) -> None:
    eager, compiled = (branching.prepared(tracejit, program.build(tracejit, f), program) for f in (unchanged, tracejit.compile))
    for call in range(2):
        expected = called(eager, call)
        branching.check_equal(program.name, expected, called(compiled, call))
        assert not program.draws or PLAUSIBLE[program.name](expected)


@pytest.mark.parametrize("peer", branching.PEERS)
@pytest.mark.parametrize("program", LOOPS, ids=lambda p: p.name)
def test_branching_loops_give_the_same_by_other_libraries(program: Program, peer: str) -> None:
    pytest.importorskip(peer)
    side = branching.side_of(peer, program)
    assert side is not None
    eager = branching.prepared(tracejit, program.build(tracejit, unchanged), program)
    for call in (1, 2):
        given = called(side, call)
        branching.check_alike(program.name, called(eager, call), given, program.draws)
        assert not program.draws or PLAUSIBLE[program.name](given)


def test_branching_loops_are_timed_with_the_peers_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("torch", "jax") else find(name))
    (ball,) = select(["ball"])
    found = branching.measure(ball, seconds=0.0)
    assert found.calls == branching.FIRST + branching.BLOCK and found.recordings >= 1
    assert min(found.eager, found.compiled, found.first, found.third, found.peers["numba"]) > 0 and set(found.peers) == {"numba"}
    assert set(found.met) == {"first", "eager", "numba"} and found.against("jax") is None


def test_a_branching_loop_whose_results_differ_is_no_figure() -> None:
    calls = iter(range(100))
    drifting = Program("drifting", "", lambda library, transform: lambda: next(calls), lambda call: ())
    with pytest.raises(AssertionError, match="drifting, call 0: 0 eagerly, 1 compiled"):
        branching.measure(drifting, peers=())


def test_a_peer_of_branching_loops_that_goes_wrong_is_no_figure() -> None:
    branching.check_alike("steps", (tracejit.ones(2), 10), (np.full(2, 1.001), 11))
    branching.check_alike("draws", (tracejit.ones(2), 10), (np.full(2, 3.0), 17), draws=True)
    for given in ((np.full(2, 1.1), 10), (np.ones(2), 15), (np.ones(3), 10), (np.full(2, np.nan), 10)):
        with pytest.raises(AssertionError, match="wrong: array"):
            branching.check_alike("wrong", (tracejit.ones(2), 10), given)


def test_goals_of_branching_loops_are_counted_and_failures_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = branching.Measured(1e-2, 1e-4, 1.5, 30.0, 8, 7, 0, 1, {"numba": 1e-4, "jax": 2e-4})
    slow = replace(good, first=3.1, compiled=1e-3, peers={"jax": 1e-3})

    def measured(program: Program, seconds: float) -> Any:
        if program.name == "queue":
            raise AssertionError("queue, call 0: 1 eagerly, 2 compiled")
        return good if program.name == "ball" else slow

    monkeypatch.setattr(branching, "measure", measured)
    monkeypatch.setattr(branching, "PEERS", ("numba", "no_such_peer"))
    assert branching.main(["--quick", "ball", "beam"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "no_such_peer is not installed: pip install no_such_peer"
    assert lines[1].endswith("7/8       0  none") and lines[2].endswith("  first, eager, jax") and "     -" in lines[2]
    assert [line.split()[:4] for line in lines[4:9]] == [
        ["first", "1", "of", "2"],
        ["eager", "1", "of", "2"],
        ["numba", "1", "of", "1"],
        ["jax", "1", "of", "2"],
        ["all", "1", "of", "2"],
    ]
    assert branching.main(["queue", "ball"]) == 1
    assert not replace(good, third=19.0).met["eager"] and not replace(good, peers={"numba": 4e-5}).met["numba"]
    assert "failed: AssertionError: queue, call 0: 1 eagerly, 2 compiled" in capsys.readouterr().out


def test_branching_loops_that_there_are_not_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        branching.main(["nonsense"])
    assert "no program is called 'nonsense'; programs: metropolis, hmc_50" in capsys.readouterr().err


def test_every_public_function_is_timed_in_eager_mode_or_named_as_not_timed() -> None:
    timed, others = eager_operations.expressions([tracejit])
    assert set(FUNCTIONS) <= {*timed, *others, *eager_operations.UNTIMED}
    assert len(others) < 0.1 * len(timed), others
    assert {"topk", "randn", "clamp", "stack", "getitem slice", "conv2d as wide as its input"} <= set(timed)


def test_eager_operations_are_timed_by_size_and_slow_ones_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["topk", "exp", "argmax", "--sizes", "10,100", "--rounds", "2"]
    assert eager_operations.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    timed = [line[:30].strip() for line in lines[1:6]]
    assert timed == ["argmax", "exp", "topk", "grad exp", "grad topk"] and "t.topk(x, 5)" in lines[3]
    if importlib.util.find_spec("torch") is not None:
        assert lines[6].startswith("median") and lines[7].startswith("above 2, of 5")
        assert lines[8].startswith("worst at 10: ") and lines[9].startswith("worst at 100: ")
        assert eager_operations.main([*arguments, "--pass", "forward", "--most", "0.0001"]) == 1
        assert "above 0.0001: argmax, exp, topk" in capsys.readouterr().out


def test_eager_operations_that_give_something_else_than_their_peer_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(tracejit, "exp", lambda x: tracejit.exp2(x))
    arguments = ["exp", "sin", "--sizes", "10", "--rounds", "1"]
    assert eager_operations.main(arguments) == 1
    said = capsys.readouterr().out
    assert "results differ: exp 0." in said and "grad exp 0." in said and "sin" not in said.split("results differ: ")[1]
    monkeypatch.setattr(eager_operations, "UNCHECKED", {"exp"})
    assert eager_operations.main(arguments) == 0


def test_a_backward_row_has_the_gradients_of_all_results_by_all_operands() -> None:
    world = eager_operations.names(10, tracejit, True)
    call = eager_operations.gradients("(t.sort(x)[0] * y, i)", world)
    assert call is not None
    gradients = call()
    assert [g.shape for g in gradients] == [world["x"].shape, world["y"].shape]
    assert eager_operations.gradients("t.argmax(x)", world) is None


def test_numbas_code_gets_the_same_from_a_compiled_gradient_as_from_one_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert numba_calls.main(["--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["hmc", "runge_kutta", "chain"]


def test_an_exchange_is_fitted_to_what_it_took() -> None:
    exchange = distributed.Exchange(latency=2e-5, bandwidth=1e9)
    sizes = [4, 4_000, 400_000, 40_000_000]
    fitted = distributed.Exchange.of_two(sizes, [exchange.seconds(2, size) for size in sizes])
    assert fitted.latency == pytest.approx(2e-5) and fitted.bandwidth == pytest.approx(1e9)
    assert exchange.seconds(1, 1e9) == 0
    assert exchange.seconds(64, 1e9) == pytest.approx(2 * (63 * 2e-5 + 63 / 64))


def test_a_compiled_gradient_that_computes_something_else_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(numba_calls, "_outcomes", 1 - numba_calls._outcomes)
    assert numba_calls.main(["--quick"]) == 1
    assert "hmc: the result of njit differs from that by hand" in capsys.readouterr().out
