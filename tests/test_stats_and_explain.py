"""What a compiled function tells about itself: `stats`, `reasons`, `explain()`, `graph()`, `source()`."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

import pytest

import tracejit as T
from tracejit import nn
from tracejit.config import override
from tracejit.cpython import c_api


def counters(stats: object) -> dict[str, int]:
    return {name: getattr(stats, name) for name in T.CompiledFunction(abs).stats.FIELDS}


def test_every_counter_counts_what_its_name_says() -> None:
    function = T.compile(lambda x: x * 2 if x.sum() > 0 else x - 1)
    up, down, other = T.ones(2), -T.ones(2), T.ones(3)
    for x in (up, up, down, down, other, other, up):
        function(x)
    assert counters(function.stats) == {
        "calls": 7,
        "compiled_calls": 4,  # the second up, the second down by its bridge, the second other, the last up
        "eager_calls": 3,
        "traces": 3,
        "programs_compiled": 3,
        "machine_calls": function.stats.machine_calls,
        "guard_misses": 1,  # `other`; the first call had no guards to miss, the first down took an exit
        "exits": 2,
        "bridges": 1,
        "early_calls": 0,
        "instances": 0,
        "piecewise_calls": 0,
    }
    assert function.stats.machine_calls >= 4 + 2


def test_forward_and_backward_are_a_machine_call_each() -> None:
    function = T.compile(lambda x: (x * x.exp()).sum())
    for _ in range(3):
        function(T.ones(4, requires_grad=True)).backward()
    assert function.stats.machine_calls == 4


def test_eager_calls_are_counted_when_nothing_can_be_recorded() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        sys.getsizeof(print)
        return x

    compiled = T.compile(function)
    for _ in range(5):
        compiled(T.ones(1))
    found = counters(compiled.stats)
    assert (found["calls"], found["eager_calls"], found["compiled_calls"], found["programs_compiled"]) == (5, 5, 0, 0)
    assert found["traces"] == 3
    assert "eager_calls=5" in repr(compiled.stats)


def test_explain_tells_of_paths_exits_passes_kernels_and_reasons() -> None:
    def function(x: T.Tensor, loud: bool) -> T.Tensor:
        if loud:
            sys.getsizeof(print)
        return (x @ x).relu() if x.sum() > 0 else x

    compiled = T.compile(function)
    assert compiled.explain() == "function has not been called yet."
    for loud in (False, False, True):
        compiled(T.ones(2, 2), loud)
    text = compiled.explain(verbose=True)
    line = function.__code__.co_firstlineno + 3
    assert "path 0: " in text and "path 1" not in text
    assert f"goes on only if the value at {__file__}:{line} is True" in text
    assert "# functionalise: " in text and "matmul" in text
    assert "ran eagerly (1 recording): [unknown_call]" in text


def test_explain_tells_how_often_a_path_was_left_where_and_for_which_other() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        y = x * 2 if x[0] > 0 else x - 1
        return y.tanh() if x[1] > 0 else y

    compiled, line = T.compile(function), function.__code__.co_firstlineno + 1
    for first, second in [(1, 1), (-1, 1), (-1, 1), (-1, -1), (1, -1), (1, -1), (1, -1)]:
        compiled(T.tensor([first, second]))
    paths = compiled.explain(verbose=True).split("\npath ")[1:]
    position = f"goes on only if the value at {__file__}:"
    assert f"{position}{line} is True: left 3 times, then on to path 1" in paths[0]
    assert f"{position}{line + 1} is True: left 3 times, then on to path 3" in paths[0]
    assert f"{position}{line + 1} is True: left 1 time, then on to path 2" in paths[1]


def test_explain_tells_in_which_sizes_paths_differ() -> None:
    compiled = T.compile(lambda x: x * 2 + x.shape[0], dynamic=False)
    for n in (3, 3, 4, 5, 5, 4, 3, 3):
        compiled(T.ones(n))
    assert "\n  paths differ at x.shape[0]" in compiled.explain(verbose=True) and ": 3, 4, 5" in compiled.explain(True)


def test_explain_tells_which_sizes_are_symbolic_and_where_the_program_asks_for_one() -> None:
    def function(x: T.Tensor) -> T.Tensor:
        if x.shape[0] > 3:
            x = x * len("a" * x.shape[1])
        return x

    compiled = T.compile(function)
    for rows, columns in ((4, 2), (5, 3), (6, 3)):
        compiled(T.ones(rows, columns))
    said = compiled.explain(verbose=True)
    assert "a recording with symbolic sizes x.shape[0], where x.shape[0] > 3" in said and "1 paths came of it" not in said
    assert f"x.shape[1] == 3 at {__file__}:{function.__code__.co_firstlineno + 2}" in said


def test_explain_says_in_plain_words_how_far_a_recording_with_symbolic_sizes_goes() -> None:
    compiled = T.compile(lambda x, n: x[:n].sum() * n + x.shape[0])
    said = []
    for n in (5, 7, 9):
        compiled(T.ones(n + 3), n)
        said += [line for line in compiled.explain(verbose=True).splitlines() if "symbolic sizes" in line]
    assert said and all("92233720" not in line for line in said)
    assert "x.shape[0], n, where x.shape[0] >= n: 2 paths came of it, machine code for 1 domain of sizes" in said[-1]
    compiled = T.compile(lambda x: x * (2 if x.shape[0] > 5 else 3), dynamic=True)
    compiled(T.ones(4))
    assert "x.shape[0], where x.shape[0] <= 5: 1 path came of it, machine code for 1 domain of sizes" in compiled.explain(True)


def test_explain_and_source_include_backward_programs_once_they_exist() -> None:
    function = T.compile(lambda x: (x.tanh() * x).sum())
    x = T.ones(3, requires_grad=True)
    function(x)
    out = function(x)
    before = function.source()
    assert "backward for" not in function.explain(verbose=True)
    out.backward()
    assert "backward for cotangents (True,)" in function.explain(verbose=True)
    assert function.source().startswith(before) and len(function.source()) > len(before)


def test_graph_and_source_choose_a_path_by_its_index() -> None:
    function = T.compile(lambda x: x.exp())
    for n in (2, 3):
        function(T.ones(n))
    assert "[2]" in function.graph(0) or "(2,)" in function.graph(0)
    assert function.graph(1) == function.graph() != function.graph(0)
    with pytest.raises(IndexError):
        function.graph(2)


def test_reasons_are_a_copy_and_clear_forgets_everything() -> None:
    with override(max_entries=1, max_sizes=1):
        function = T.compile(lambda x: x + 1)
        for n in (1, 2):
            function(T.ones(n))
    reasons = function.reasons
    assert [reason.code for reason in reasons] == ["too_many_paths"]
    reasons.clear()
    assert function.reasons
    function.clear()
    assert not function.reasons
    assert set(counters(function.stats).values()) == {0}
    assert function.explain().endswith("has not been called yet.")


def test_explain_tells_guards_that_make_calls_from_those_that_words_answer_for() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    quick = T.compile(model)
    quick(T.ones(2, 3)), quick(T.ones(2, 3))
    held = re.search(r"guards: (\d+), of which (\d+) are asked only when", quick.explain(verbose=True))
    assert held is not None and "guards that call functions" not in quick.explain(verbose=True)
    if c_api.supported():
        assert 0 < int(held[2]) < int(held[1])
    scales = logging.getLogger("tracejit.tests.explain")

    @T.compile
    def slow(x: Any) -> Any:
        return x * 2 if scales.isEnabledFor(10) else x + 1

    slow(T.ones(2)), slow(T.ones(2))
    told = r"guards that call functions in each call \(1\):\n    if Logger.isEnabledFor\(v\d+, 10\) is not False: return MISS"
    assert re.search(told, slow.explain(verbose=True))


def jittered(q: T.Tensor, steps: int, uniform: float) -> T.Tensor:
    """A transition of a Hamiltonian Monte Carlo chain whose number of steps varies."""
    start, p = q, T.ones(2) * uniform
    for _ in range(steps):
        q = q.detach().requires_grad_()
        (g,) = T.autograd.grad((q * q).sum() + (q[0] * q[1]).sin(), q)
        p = p - 0.1 * g
        q = (q + 0.1 * p).detach()
    return q if q.sum() > uniform else start


def test_explain_fits_a_screen_and_opens_with_a_sentence() -> None:
    chain, q = T.compile(jittered, wait=True), T.ones(2)
    for k in range(60):
        chain(q * (k % 3), 3 + k * 7 % 9, 0.01 * k)
    text, all_of_it = chain.explain(), chain.explain(verbose=True)
    served, calls = chain.stats.compiled_calls, chain.stats.calls
    assert text.startswith(f"jittered runs compiled: {served} of {calls} calls did, and ") or "runs in pieces" in text
    lines = text.splitlines()
    assert len(lines) <= 40 and max(map(len, lines[1:])) <= 120, text
    assert lines[-1] == "explain(verbose=True) has counts, guards, programs and passes."
    assert all_of_it.splitlines()[0] == lines[0] and len(all_of_it.splitlines()) > len(lines)
    assert "guard misses" not in text and "guard misses" in all_of_it and "machine code" in all_of_it


def test_explain_says_in_a_sentence_why_a_function_runs_eagerly_and_what_to_do() -> None:
    def step(x: T.Tensor) -> T.Tensor:
        sys.getsizeof(print)
        return x

    compiled = T.compile(step)
    for _ in range(3):
        compiled(T.ones(1))
    first, *others = compiled.explain().splitlines()
    position = f"line {step.__code__.co_firstlineno + 1} of test_stats_and_explain.py"
    because = "because nothing is known about the C function sys.getsizeof()"
    assert first == f"step has run as ordinary Python in every call so far, {because} ({position})."
    todo, _, reasons = " ".join(map(str.strip, others)).partition("eager (3 times): ")
    assert todo.strip() == f"What to do: Move the call out of the compiled function ({position}, `sys.getsizeof(print)`)."
    assert reasons.startswith(f"[unknown_call] nothing is known about the C function sys.getsizeof() ({position}, `")


@pytest.mark.filterwarnings("ignore::tracejit.compiler.PerformanceWarning")
def test_explain_promises_nothing_where_calls_keep_missing_the_recorded_path() -> None:
    def step(x: T.Tensor, n: int) -> T.Tensor:
        return x * sys.getsizeof(x) if n else x * 2

    def said() -> str:
        return compiled.explain().partition("\n")[0].rpartition("<locals>.")[2]

    compiled = T.compile(step, wait=True)
    compiled(T.ones(1), 0)
    assert said().startswith("step is compiled now: ") and "What to do" not in compiled.explain()
    for n in range(1, 21):
        compiled(T.ones(1), n)
    assert said().startswith("step has run as ordinary Python in every call so far, because ")
    assert "\n  1 path served no call so far\n" in compiled.explain()
    compiled(T.ones(1), 0)
    assert said().startswith("step runs compiled in few calls: 21 of 22 ran as ordinary Python, because ")


def test_explain_says_what_most_calls_did() -> None:
    function = T.compile(lambda x: x * 2 if x.sum() > 0 else x - 1, wait=True)
    function(T.ones(2))
    assert "<lambda> is compiled now: its calls so far ran as ordinary Python to be recorded, and " in function.explain()
    for k in range(20):
        function(T.ones(2) * (-1) ** k)
    assert "runs compiled: 19 of 21 calls did, and 2 ran as ordinary Python to be recorded.\n" in function.explain()
    onward = r"path 0: served 10 calls, \d operations; left \d+ times where a value decided otherwise, then on to path 1"
    assert re.search(onward, function.explain())
    with override(enabled=False):
        assert "compilation is turned off.\nWhat to do: Unset TRACEJIT_DISABLE, " in function.explain()
    assert len(T.compile(lambda x: x).explain().splitlines()) == 1
