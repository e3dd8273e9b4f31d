"""What programs ask of the compiler: functions that are not compiled, compilation turned off, everything forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import tracejit as T
from tracejit import compiler, nn
from tracejit.core.interpreter import pushed_anywhere

x = T.tensor([1.0, 2.0])


@T.compile
def double(v: T.Tensor) -> T.Tensor:
    return v * 2


@compiler.disable
def by_double(v: T.Tensor) -> T.Tensor:
    return double(v) + 1


@compiler.disable(recursive=False)
def around_double(v: T.Tensor) -> T.Tensor:
    return double(v) + 1


@compiler.disable(reason="it asks a server")
def of_server(v: T.Tensor) -> T.Tensor:
    return v * 3


@pytest.fixture(autouse=True)
def forgotten() -> None:
    double.clear()


def test_a_disabled_function_turns_off_compiled_functions_that_it_calls() -> None:
    assert [by_double(x).tolist() for _ in range(4)] == [[3.0, 5.0]] * 4
    assert double.stats.calls == 0
    assert [double(x).tolist() for _ in range(3)] == [[2.0, 4.0]] * 3
    assert double.stats.compiled_calls == 2
    by_double(x)
    assert double.stats.calls == 3


def test_a_disabled_function_that_is_not_recursive_leaves_them_compiled() -> None:
    assert [around_double(x).tolist() for _ in range(4)] == [[3.0, 5.0]] * 4
    assert double.stats.compiled_calls == 3


def test_other_threads_and_later_calls_stay_compiled_whatever_a_disabled_function_raises() -> None:
    double(x)
    pushed, seen = pushed_anywhere[0], []

    @compiler.disable
    def fails() -> None:
        def call() -> None:
            double(x)
            seen.append(double.stats.compiled_calls)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        raise KeyError("wanted")

    with pytest.raises(KeyError, match="wanted"):
        fails()
    double(x)
    assert (seen, double.stats.compiled_calls, pushed_anywhere[0]) == ([1], 2, pushed)


def test_what_calls_a_disabled_function_runs_eagerly_and_says_why() -> None:
    @T.compile
    def step(v: T.Tensor) -> T.Tensor:
        return of_server(v) + double(v)

    assert [step(x).tolist() for _ in range(3)] == [[5.0, 10.0]] * 3
    assert step.stats.compiled_calls == 0
    (reason,) = step.reasons
    assert (reason.code, reason.message) == (
        "disabled",
        "of_server() (it asks a server) is never compiled, by compiler.disable()",
    )
    assert reason.where == f"{__file__}:{step.__wrapped__.__code__.co_firstlineno + 2}"


def test_a_disabled_function_is_not_compiled_itself() -> None:
    compiled = T.compile(of_server)
    assert [compiled(x).tolist() for _ in range(3)] == [[3.0, 6.0]] * 3
    assert [reason.code for reason in compiled.reasons] == ["disabled"]
    with pytest.raises(RuntimeError, match="of_server"):
        T.compile(of_server, fullgraph=True)(x)


def test_modules_and_classes_are_disabled_by_what_is_called() -> None:
    class Twice:
        def __call__(self, v: T.Tensor) -> T.Tensor:
            return double(v)

    model = nn.Linear(2, 1)
    assert compiler.disable(model) is model and compiler.disable(Twice) is Twice
    twice, outer = Twice(), T.compile(lambda v: model(v))
    for _ in range(3):
        assert twice(x).tolist() == [2.0, 4.0]
        assert outer(x).shape == (1,)
    assert double.stats.calls == 0
    assert [reason.code for reason in outer.reasons] == ["disabled"]
    with pytest.raises(TypeError, match="expected a function or a callable object, got int"):
        compiler.disable(1)  # type: ignore[type-var]


def test_compilation_is_turned_off_by_the_configuration() -> None:
    double(x)
    double(x)
    pushed = pushed_anywhere[0]
    with T.config.override(enabled=False):
        assert double(x).tolist() == [2.0, 4.0]
        assert double.stats.calls == 2
        with T.config.override(enabled=True):
            double(x)
            assert double.stats.compiled_calls == 2
        with pytest.raises(TypeError, match="TRACEJIT_ENABLED"), T.config.override(enabled="no"):
            pass
        double(x)
        assert double.stats.calls == 3
    double(x)
    assert (double.stats.compiled_calls, pushed_anywhere[0]) == (3, pushed)


PROGRAM = """
{first}
f = torch.compile(lambda x: x + 1)
print([f(torch.ones(1)).item() for _ in range(3)], f.stats.calls, torch.compiler.is_compiling(), torch._dynamo.is_compiling())
"""


@pytest.mark.parametrize(
    ("variable", "first"),
    [
        ("TRACEJIT_DISABLE", "import tracejit as torch; torch._dynamo = torch.compiler"),
        ("TORCH_COMPILE_DISABLE", "import tracejit.compat; tracejit.compat.install_as_torch(); import torch, torch._dynamo"),
        ("TORCHDYNAMO_DISABLE", "import tracejit.compat; tracejit.compat.install_as_torch(); import torch"),
    ],
)
def test_compilation_is_turned_off_by_the_environment(variable: str, first: str) -> None:
    environment = {**os.environ, variable: "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM.format(first=first)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[2.0, 2.0, 2.0] 0 False False\n"


def test_a_function_can_ask_whether_it_is_being_recorded() -> None:
    @T.compile
    def asked(v: T.Tensor) -> T.Tensor:
        return v * 2 if compiler.is_compiling() else v

    assert [asked(x).tolist() for _ in range(3)] == [[2.0, 4.0]] * 3
    assert not compiler.is_compiling() and asked.__wrapped__(x) is x
    with T.autograd.detect_anomaly():
        assert not compiler.is_compiling()


def test_reset_forgets_all_recordings() -> None:
    double(x)
    double(x)
    other = T.compile(lambda v: v + 1)
    other(x)
    compiler.reset()
    assert (double.stats.calls, other.stats.calls, double.paths()) == (0, 0, [])
    assert double(x).tolist() == [2.0, 4.0]


def test_a_stance_turns_compilation_off_for_good_in_a_context_or_in_a_function() -> None:
    double(x)
    double(x)
    calls = double.stats.calls
    with compiler.set_stance("force_eager"):
        assert double(x).tolist() == [2.0, 4.0] and double.stats.calls == calls
        with compiler.set_stance("default"):
            double(x)
            assert double.stats.calls == calls + 1

    @compiler.set_stance("force_eager")
    def eagerly() -> None:
        double(x)

    assert T.config.config.enabled
    eagerly()
    eagerly()
    assert double.stats.calls == calls + 1 and T.config.config.enabled
    compiler.set_stance("force_eager")
    double(x)
    compiler.set_stance("default")
    assert double.stats.calls == calls + 1
    double(x)
    assert double.stats.calls == calls + 2


def test_stances_that_there_are_not_are_errors_and_change_nothing() -> None:
    for arguments, error in ((("fail_on_recompile",), NotImplementedError), (("eager",), ValueError)):
        with pytest.raises(error, match="force_eager"):
            compiler.set_stance(*arguments)
    with pytest.raises(NotImplementedError, match="guards are always checked"):
        compiler.set_stance("force_eager", skip_guard_eval_unsafe=True)
    assert T.config.config.enabled
