"""core/floating.py: no floating-point warnings, whatever the program has set, which stays as it is."""

from __future__ import annotations

import contextvars
import decimal
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import tracejit as T
from tracejit.core.floating import quiet_runner, quietly, read_errors, with_errors
from tracejit.core.interpreter import state


def overflow() -> np.ndarray:
    return np.exp(np.array([1e6]))


@pytest.fixture(autouse=True)
def warnings_are_errors() -> object:
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        yield


def test_evaluation_is_silent_and_leaves_the_error_state_alone() -> None:
    before = np.geterr()
    assert quietly(overflow)[0] == np.inf and quiet_runner()(np.exp, np.array([1e6]))[0] == np.inf
    assert np.geterr() == before
    with pytest.raises(FloatingPointError):
        overflow()


def test_a_silent_call_may_stand_inside_another_one() -> None:
    def inner() -> float:
        x = T.tensor([1e30], requires_grad=True)
        y = (x * 1e30) / 0.0 - x.exp()
        y.sum().backward()
        return float(y.item())

    assert np.isnan(state.run_quietly(inner)) and np.isnan(quietly(inner))
    with pytest.raises(RuntimeError, match="cannot enter context"):
        state.run_quietly(state.run_quietly, overflow)


def test_an_exception_inside_puts_the_error_state_back() -> None:
    before = np.geterr()
    with pytest.raises(RuntimeError, match="size"):
        T.ones(2) @ T.ones(3)
    with pytest.raises(ZeroDivisionError):
        quietly(lambda: 1 // 0)
    assert np.geterr() == before


def test_a_function_of_the_programs_inside_finds_the_programs_error_state() -> None:
    errors = read_errors()

    def program() -> dict[str, str]:
        found = dict(np.geterr())
        np.seterr(all="ignore")  # is over with the function
        return found

    def silent() -> tuple[dict[str, str], float]:
        return with_errors(errors, program), float(overflow()[0])

    assert quietly(silent) == (np.geterr(), np.inf) and read_errors() is errors


def test_every_kind_of_evaluation_and_pass_is_silent() -> None:
    x = T.tensor([0.0, 1e38, -1.0], requires_grad=True)
    for value in (
        x / 0.0,
        x * x * x,
        1.0 / x,
        x.log(),
        x**0.5,
        x.sum() * 1e38,
        T.where(x > 0, x * 1e38, x),
        T.tensor([3.0, 0.0]) // 0,
        x.to(T.int32),
        x.softmax(0),
    ):
        if value.requires_grad:
            value.sum().backward()
    y = x * 2
    y.retain_grad()
    (y * 1e38 * 1e38 + y * -1e38).sum().backward()
    (y * 1e38 * 1e38).sum().backward()
    assert x.grad is not None
    x.add_(1.0) if not x.requires_grad else None
    T.tensor([1e300], dtype=T.float32)
    T.full((2,), 1e300)


def test_hooks_run_with_the_error_state_of_the_program() -> None:
    seen: list[Callable[[], object] | dict[str, str]] = []

    def hook(g: T.Tensor) -> None:
        seen.append(np.geterr())
        with pytest.raises(FloatingPointError):
            overflow()

    x = T.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(hook)
    x.register_hook(hook)
    for create in (False, True):
        (y * 1e38 * 1e38).sum().backward(create_graph=create, retain_graph=True)
    assert seen == [np.geterr()] * 4


def test_context_variables_inside_evaluation_are_the_programs() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")

    def evaluate() -> str:
        found = name.get()
        name.set("changed inside")
        return found + str(decimal.Decimal(1) / 3)

    name.set("program")
    with decimal.localcontext() as context:
        context.prec = 3
        assert quietly(evaluate) == "program0.333" and name.get() == "changed inside"


def test_context_variables_that_a_hook_or_a_failing_evaluation_sets_are_set() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")

    def fail() -> None:
        assert name.get() == "program"
        name.set("changed and failed")
        raise LookupError

    def hook(g: T.Tensor) -> None:
        seen.append(name.get())
        name.set("changed by a hook")

    seen: list[str] = []
    name.set("program")
    with pytest.raises(LookupError):
        quietly(fail)
    assert name.get() == "changed and failed"
    x = T.ones(2, requires_grad=True)
    x.register_hook(hook)
    (x * 2).sum().backward()
    assert seen == ["changed and failed"] and name.get() == "changed by a hook"


COLLECTED = """
    import gc
    import numpy as np
    import tracejit as T

    count, inside = [0], [False]

    def callback(phase, info):
        if not inside[0]:
            inside[0] = True
            x = T.ones(3, requires_grad=True)
            ((x * 2).sum() + (x @ x)).backward()
            count[0] += x.grad.tolist() == [4.0] * 3
            inside[0] = False

    gc.callbacks.append(callback)
    gc.set_threshold(1)
    for k in range(200):
        with np.errstate(divide="raise"):
            T.ones(2, 2).sum()
        assert np.geterr()["divide"] == "warn"
    gc.callbacks.clear()
    print(count[0] > 200)
"""


def test_a_collection_while_the_program_sets_its_error_state_may_use_tensors() -> None:
    said = subprocess.run([sys.executable, "-c", textwrap.dedent(COLLECTED)], capture_output=True, text=True, timeout=100)
    assert said.stdout == "True\n", (said.returncode, said.stderr[-2000:])


def test_threads_have_states_of_their_own() -> None:
    found: list[float] = []

    def work() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            overflow()  # warns, as it does in a new thread
        found.append(float((T.ones(1) / 0.0).item()))

    with np.errstate(all="ignore"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [float("inf")]
