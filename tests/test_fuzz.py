"""The fuzzer: its programs over a bounded run, and that it can tell: defects that are put in are found and made small, fakes fail."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes import always_eager, garbage_replays

import tracejit
from tests.fuzz.against_torch import check_torch, comparable
from tests.fuzz.arguments import call_text
from tests.fuzz.campaign import Summary, campaign
from tests.fuzz.check import Endless, check
from tests.fuzz.compare import unexplained
from tests.fuzz.generate import generate
from tests.fuzz.maker import Maker
from tests.fuzz.noise import inexact, rounding_noise
from tests.fuzz.operations import Operation, operations
from tests.fuzz.run import EAGER, WAYS, Program, run
from tests.fuzz.shrink import shrink
from tracejit.core.op import REGISTRY

PROGRAMS = 200
SHARE = 0.9  # of the calls that should be replayed, those that are
COLD = WAYS["interpret cold"]
HEAD = "def fn({}):\n    return {}\ntarget = fn\n"


@pytest.fixture(scope="module")
def summary() -> tuple[Summary, list[str]]:
    """A bounded run, and what differed, as programs to be pasted."""
    differing: list[str] = []
    found = campaign(
        range(PROGRAMS), 2, None, [], lambda r: differing.append(f"seed {r.seed}, {r.way}: {r.difference}\n{r.text}")
    )
    return found, differing


def test_random_programs_do_what_eager_does(summary: tuple[Summary, list[str]]) -> None:
    found, differing = summary
    assert not differing, "\n\n".join(differing)
    assert found.programs == PROGRAMS


def test_what_should_be_replayed_is_replayed(summary: tuple[Summary, list[str]]) -> None:
    found, _ = summary
    assert found.must > PROGRAMS // 12
    assert found.share > SHARE, str(found)
    assert found.all_replays > found.all_calls // 2


def test_programs_are_hardly_ever_explained_by_roundings_at_a_decision(summary: tuple[Summary, list[str]]) -> None:
    found, _ = summary
    assert found.unstable <= PROGRAMS // 30


# -- two compilers that do not compile
def fuzzed(compiler: Callable[[Any], Any], programs: int = 120) -> Summary:
    """A run with another compiler."""
    total = Summary()
    for seed in range(programs):
        program = generate(seed)
        if program.must_replay:
            outcome = check(program, [COLD], compiler=compiler)
            total.calls += outcome.calls
            total.replays += outcome.replays
            total.differences[outcome.difference.kind if outcome.difference else ""] += 1
    return total


def test_a_compiler_that_runs_everything_eagerly_fails() -> None:
    total = fuzzed(always_eager)
    assert total.calls and total.share < SHARE


def test_a_compiler_that_replays_garbage_fails() -> None:
    total = fuzzed(garbage_replays, 120)  # each that differs is run again and again, with noise
    assert total.differences["value"] > total.differences[""]


# -- defects that are put in
class Stale:
    """A compiler that forgets to look at what a function reads, from the second call on."""

    def __init__(self, function: Any) -> None:
        self.function, self.first = function, None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.first is None:
            self.first = self.function(*args, **kwargs)
        return self.first


def wrong_where(condition: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    """A compiler whose results are changed where a condition holds of them."""

    def compiler(function: Any) -> Any:
        def compiled(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            return change(result) if isinstance(result, tracejit.Tensor) and condition(result) else result

        return compiled

    return compiler


DEFECTS = {
    "stale results": Stale,
    "zeros lose their sign": wrong_where(
        lambda t: t.dtype.is_floating_point and bool(((t == 0) & t.signbit()).any()), lambda t: t + 0.0
    ),
    "a result without gradient": wrong_where(lambda t: t.requires_grad, lambda t: t.detach()),
    "another layout": wrong_where(lambda t: not t.is_contiguous(), lambda t: t.contiguous()),
    "float32 of float64": wrong_where(lambda t: t.dtype is tracejit.float64, lambda t: t.float().double()),
    "a copy of what should be shared": wrong_where(lambda t: t._storage is not None, lambda t: t.clone()),
}


class SmallEnough(BaseException):
    """A program that fails has few lines."""


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_and_made_small(name: str) -> None:
    compiler = DEFECTS[name]
    for seed in range(900):
        program = generate(seed)
        found = check(program, [COLD], rounds=2, compiler=compiler, witnessed=False).difference
        if found is not None:
            break
    else:
        pytest.fail("no program of 600 shows it")
    kind = found.kind

    def fails(text: str) -> bool:
        try:
            again = check(Program(text), [COLD], rounds=2, compiler=compiler, witnessed=False).difference
        except (Exception, Endless):  # as in a campaign: what is left may go on for ever
            return False
        same = again is not None and again.kind == kind
        if same and len(text.splitlines()) <= 20:
            raise SmallEnough  # the next test makes a program as small as it gets
        return same

    with pytest.raises(SmallEnough):
        pytest.fail(shrink(program.text, fails, seconds=20))


def test_what_is_made_small_stays_a_program_that_fails() -> None:
    text = generate(3).text
    small = shrink(text, lambda candidate: "call_0" in candidate and compiles(candidate))
    assert "call_0" in small
    assert len(small) < len(text) / 4


def compiles(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


# -- programs
def test_a_seed_is_a_program_in_every_process() -> None:
    command = "from tests.fuzz.generate import generate; print('----'.join(generate(s).text for s in range(20)))"
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    elsewhere = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", command],
        env={**os.environ, "PYTHONHASHSEED": other, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert elsewhere == "----".join(generate(seed).text for seed in range(20)) + "\n"


@pytest.mark.parametrize("block", range(6))
def test_every_public_function_is_reached_by_the_names_of_its_parameters(block: int) -> None:
    missing = [o.key for o in operations()[block::6] if not any(reached(o, seed) for seed in range(400))]
    assert not missing


def reached(operation: Operation, seed: int) -> bool:
    m = Maker(seed)
    m.parameter_of(m.shape(), m.dtype())
    text = call_text(m, operation)
    return text is not None and not m.fails(text)


WORDS = (
    "if ;elif;else:;for ;while ;break;continue;try:;finally:;match ;no_grad;enable_grad;lambda;yield;nonlocal;global;super();@property;"
    "dataclass;namedtuple;__slots__;*args;**kwargs;:= ; and ;print(;.backward(;autograd.grad;create_graph=True;register_hook;T.optim;T.nn.;"
    ".append(;requires_grad_;.data;.expand;'special';(0,;'bool';'uint8';'int64';'float64';op(';.grad = None;.eval();__get__"
)


def test_programs_hold_all_that_makes_recording_hard() -> None:
    missing = set(WORDS.split(";"))
    for seed in range(900):
        text = generate(seed).text
        missing -= {word for word in missing if word in text}
        if not missing:
            break
    assert not missing


# -- what explains a difference
_EXACT = "add sub mul div neg abs sqrt floor trunc maximum where eq lt cast relu argmax any cat pad gather reshape"
EXACT = frozenset(_EXACT.split())


def test_what_must_have_equal_bits_gets_no_noise() -> None:
    assert not EXACT & set(inexact())
    assert set(REGISTRY) >= EXACT
    assert {"exp", "tanh", "sum", "matmul", "prod", "cumsum", "pow"} <= set(inexact())


def numbers(text: str, noise: int | None = None) -> list[np.ndarray]:
    program = Program(HEAD.format("x", text) + "calls = [lambda f: f(made('float32', (7, 9), 5))]\ndef observe():\n    pass\n")
    if noise is None:
        return run(program, program.code(), EAGER, rounds=1).seen[0].leaves
    with rounding_noise(noise):
        return run(program, program.code(), EAGER, rounds=1).seen[0].leaves


def test_exact_programs_do_not_change_under_noise_and_others_do() -> None:
    exact, rounded = "(x * 3 - x / 7).abs().sqrt().t()", "(x * 3 - x.sum() / 7).exp()"
    assert np.array_equal(numbers(exact)[0], numbers(exact, 1)[0])
    assert not np.array_equal(numbers(rounded)[0], numbers(rounded, 1)[0])
    np.testing.assert_allclose(numbers(rounded)[0], numbers(rounded, 1)[0], rtol=1e-4)


def test_a_difference_is_explained_only_by_the_spread_of_its_own_number() -> None:
    eager = np.array([1.0, 2.0, 0.0], np.float32)
    noisy = [eager + np.array([1e-6, 0.0, 0.0], np.float32), eager - np.array([1e-6, 0.0, 0.0], np.float32)]
    assert not unexplained(eager, eager + np.array([2e-6, 0, 0], np.float32), noisy).any()
    assert unexplained(eager, eager + np.array([2e-5, 0, 0], np.float32), noisy).any()
    assert unexplained(eager, eager + np.array([0, 2e-7, 0], np.float32), noisy).any()
    assert unexplained(eager, np.array([1.0, 2.0, -0.0], np.float32), noisy).any()


# -- torch
@pytest.mark.parametrize("block", range(4))
def test_eager_programs_do_what_torch_does(block: int) -> None:
    pytest.importorskip("torch")
    tried, differing = 0, []
    for seed in range(40 * block, 40 * (block + 1)):
        program = generate(seed)
        if comparable(program):
            tried += 1
            found = check_torch(program)
            if found is not None:
                differing.append(f"seed {seed}: {found}\n{program.text}")
    assert tried > 4
    assert not differing, "\n\n".join(differing)
