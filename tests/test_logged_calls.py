"""capture/logged_calls.py: steps of branching loops that print, log, and write, against eager."""

from __future__ import annotations

import contextlib
import io
import logging
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

import tracejit as T
from tests.branching_programs import assert_equal, loops_of_paths, normal, outcome, outlined
from tests.test_branching_loops import messages
from tests.test_gradients_of_branching_loops import weight

LOG = logging.getLogger("tests.logged_calls")
FILE = io.StringIO()
SEEN: list[int] = []
LOCK = threading.Lock()


def now_and_then(x: Any, n: int) -> Any:
    for t in range(n):
        x = x * 0.7 if x.sum() > 0.5 else x + 0.3
        if t % 4 == 0:
            print(f"step {t}: {x.sum().item():.4f}", x.max().item() * 2, "of", n)
    return x


def in_some_steps(x: Any, n: int) -> Any:
    seen = []
    for t in range(n):
        if x.sum() > 1:
            print("large", x, x.sum())
            x = x * 0.5
        else:
            x = x + T.rand(3)
        seen.append(x)
        print(t, end=" ")
    print("done")
    return T.stack(seen)


def before_it_leaves(x: Any, n: int) -> Any:
    k = 0
    while x.sum() < n:
        k += 1
        if x[0] > 1.5:
            print(k, "break", sep="\t")
            break
        if x[1] > 1.5:
            print("return", k)
            return x, -k
        x = x + T.rand(3) if x.sum() < 2 else x * 1.5
    return x, k


def logged(x: Any, n: int) -> Any:
    best = 9.0
    for t in range(n):
        x = x * 0.9 if x.sum() > 0.5 else x + T.randn(3)
        value = x.abs().sum().item()
        if value < best:
            best = value
            LOG.info("step %d: best %.3f", t, best)
        elif value > 4:
            LOG.debug("step %d is large", t)
    return x, best


def written(x: Any, n: int) -> Any:
    for t in range(n):
        x = x * 0.8 if x.sum() > 0.5 else x + 0.5
        if x[0] > 0.4:
            FILE.write(f"{t} {x[0].item()!r}\n")
            print(t, file=FILE)
    return x


def rows_written(x: Any, n: int) -> Any:
    for t in range(n):
        x = x * 0.8 if x.sum() > 0.5 else x + 0.5
        if x[0] > 0.2:
            FILE.writelines([f"{t}\n", "row "])
    return x


def warned(x: Any, n: int) -> Any:
    for t in range(n):
        x = x * 0.8 if x.sum() > 0.5 else x + 0.5
        if x[0] > 0.9:
            warnings.warn(f"{x[0].item():.2f} is large at step {t}")  # noqa: B028
    return x


def differentiated(w: Any, n: int) -> Any:
    y = w * 1.0
    for t in range(n):
        y = y * 0.9 if y.sum() > 0.3 else y + w
        if y.sum() > 0.2:
            print(t, f"{y.sum().item():.4f}", y.requires_grad)
    y.sum().backward()
    return y.detach(), w.grad


class Cooling:
    def __init__(self) -> None:
        self.heat, self.steps = 9.0, 0

    def step(self, x: Any) -> Any:
        self.steps += 1
        if x.sum() > self.heat:
            print("hot", self.steps, f"{self.heat:.3f}")
            self.heat = self.heat * 1.5
            print("now", f"{self.heat:.3f}")
            return x * 0.5
        self.heat = 0.9 * self.heat
        return x + 1


def of_an_object(x: Any, n: int) -> Any:
    cooling = Cooling()
    for _ in range(n):
        x = cooling.step(x)
    return x, cooling.heat, cooling.steps


def in_a_first_step(x: Any, n: int) -> Any:
    """Which is not a step of the node, since a variable is of another kind before it."""
    first = last = None
    for t in range(n):
        if first is None:
            first = x * 1
            print("first", t, f"{x.sum().item():.3f}")
        elif x.sum() > 0.5:
            last = x * 0.5
            print("large", t)
        x = x * 0.7 if x.sum() > 0.5 else x + 0.3
    return first, last, x


GIVEN: dict[Any, Any] = {
    in_a_first_step: lambda k: (normal(k, 3), 9),
    of_an_object: lambda k: (normal(k, 3), 12),
    now_and_then: lambda k: (normal(k, 3), 9 + k % 2),
    in_some_steps: lambda k: (normal(k, 3), 8),
    before_it_leaves: lambda k: (normal(k, 3), 9),
    logged: lambda k: (normal(k, 3), 12),
    written: lambda k: (normal(k, 3), 12),
    rows_written: lambda k: (normal(k, 3), 12),
    warned: lambda k: (normal(k, 3), 12),
    differentiated: lambda k: (weight(k, 3), 9),
}


def output(function: Any, given: tuple[Any, ...], seed: int) -> tuple[Any, str, list[str], list[str], str]:
    """The outcome of a call, and what it prints, logs, warns of, and writes."""
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(f"{record.levelname} {record.lineno} {record.getMessage()}")  # type: ignore[method-assign]
    LOG.addHandler(handler)
    FILE.seek(0)
    FILE.truncate()
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = outcome(function, given, seed)
    finally:
        LOG.removeHandler(handler)
    said = [f"{x.lineno} {x.message}" for x in caught if issubclass(x.category, UserWarning)]
    return result, printed.getvalue(), records, said, FILE.getvalue()


@pytest.fixture(autouse=True)
def all_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOG, "level", logging.DEBUG)
    LOG.manager._clear_cache()  # type: ignore[attr-defined]
    assert LOG.isEnabledFor(logging.INFO) and LOG.isEnabledFor(logging.DEBUG)  # which is kept in a dictionary


@pytest.mark.parametrize("program", GIVEN, ids=lambda f: f.__name__)
def test_output_of_steps_is_made_in_order_by_one_node(program: Any) -> None:
    compiled = outlined(program)
    outputs = set()
    for k in range(16):
        expected = output(program, GIVEN[program](k), k)
        if k == 14:
            served = compiled.stats.compiled_calls
        found = output(compiled, GIVEN[program](k), k)
        assert_equal(expected[0], found[0])
        assert expected[1:] == found[1:]
        outputs.add(expected[1:4].__repr__() + expected[4])
    assert len(outputs) > 2
    assert compiled.stats.compiled_calls == served + 2 and compiled.stats.traces <= 6, compiled.explain()
    assert min(loops_of_paths(compiled)) == 1 and not compiled.reasons, compiled.explain()


@pytest.mark.parametrize("backend", ["reference", "interpret", "numba"])
def test_every_backend_makes_output(backend: str) -> None:
    compiled = outlined(in_some_steps, backend=backend)
    for k in range(8):
        expected, found = (output(f, GIVEN[in_some_steps](k), k) for f in (in_some_steps, compiled))
        assert_equal(expected[0], found[0])
        assert expected[1:] == found[1:]
    assert compiled.stats.compiled_calls > 2


def test_what_raises_in_the_middle_has_made_the_output_before() -> None:
    class Failing(io.StringIO):
        def write(self, text: str) -> int:
            if "3" in text:
                raise OSError("full")
            return super().write(text)

    def program(x: Any, n: int) -> Any:
        for t in range(n):
            x = x * 0.7 if x.sum() > 0.5 else x + 0.3
            print(t)
        return x

    compiled = outlined(program)
    for f in (program, compiled, compiled, compiled):
        with contextlib.redirect_stdout(Failing()) as printed, pytest.raises(OSError, match="full"):
            f(T.ones(3), 6)
        assert printed.getvalue() == "0\n1\n2\n"


def of_something_else(x: Any, n: int) -> Any:
    for t in range(n):
        x = x * 0.7 if x.sum() > 0.5 else x + 0.3
        print(SimpleNamespace(t=t))
    return x


def in_a_nested_loop(x: Any, n: int) -> Any:
    for t in range(n):
        while x.sum() > 0.5:
            x = x * 0.7
            print(t, f"{x.sum():.4f}")
        x = x + 1
    return x


def of_a_clock(x: Any, n: int) -> Any:
    import time

    begin = time.perf_counter()
    for t in range(n):
        x = x * 0.7 if x.sum() > 0.5 else x + 0.3
        print(t, f"{(time.perf_counter() - begin) * 0:.1f}")
    return x


def with_another_effect(x: Any, n: int) -> Any:
    for t in range(n):
        x = x * 0.7 if x.sum() > 0.5 else x + 0.3
        print(t)
        SEEN.append(t)
        SEEN.pop()
    return x


def under_a_lock(x: Any, n: int) -> Any:
    for t in range(n):
        x = x * 0.7 if x.sum() > 0.5 else x + 0.3
        with LOCK:
            print(t)
    return x


REFUSED = {
    under_a_lock: "a step changes what it has not made: something outside",
    of_something_else: "the text of a SimpleNamespace contains an address",
    with_another_effect: "a step reads, or changes otherwise, a list in an object",
    in_a_nested_loop: "a step of a loop in a loop makes output",
    of_a_clock: "output of a step needs",
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda f: f.__name__)
def test_other_output_is_made_by_steps_in_python(program: Any) -> None:
    compiled = outlined(program)
    for k in range(6):
        expected, found = (output(f, (normal(k, 3), 8), k) for f in (program, compiled))
        assert_equal(expected[0], found[0])
        assert expected[1:] == found[1:]
    assert REFUSED[program] in messages(compiled), compiled.explain()


def test_two_objects_that_output_goes_to_are_told_apart() -> None:
    files = io.StringIO(), io.StringIO()

    def program(x: Any, n: int, one: Any, other: Any) -> Any:
        for t in range(n):
            x = x * 0.7 if x.sum() > 0.5 else x + 0.3
            (one if x.sum() > 0.4 else other).write(f"{t} ")
        return x

    compiled = outlined(program)
    for k in range(10):
        texts = []
        for f in (program, compiled):
            for file in files:
                file.seek(0)
                file.truncate()
            f(normal(k, 3), 8, *(files if k % 2 else files[::-1]))
            texts.append([file.getvalue() for file in files])
        assert texts[0] == texts[1]
    assert compiled.stats.compiled_calls > 4, compiled.explain()
