"""Exceptions that come in the middle of recording, compiling and calling: the program gets its own, and nothing else changes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.capture.handlers.effects import EffectHandlers
from tracejit.capture.session import Session
from tracejit.capture.syntax import locate
from tracejit.config import override
from tracejit.core.interpreter import state
from tracejit.cpython import call_hook, programs
from tracejit.native import machine_code, numba_codegen

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that send signals")


class Stop(Exception):
    """What the program's handler raises."""


def stop(number: int, frame: Any) -> None:
    raise Stop


@contextmanager
def handling(handler: Any, number: int = signal.SIGALRM) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_or_left_behind_when_exceptions_come_at_random_times(seed: int) -> None:
    script = Path(__file__).with_name("stress_interrupts.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRACEJIT_CACHE": "0"}
    command = [sys.executable, "-X", "faulthandler", str(script), "--rounds", "25", "--seed", str(1000 + seed)]
    said = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert said.returncode == 0, said.stdout[-3000:] + said.stderr[-3000:]


class InTheMiddle(dict):
    """What a handler looks into; the program's signal handler runs just then."""

    def get(self, *key: Any) -> Any:
        found = super().get(*key)
        if found is not None:
            signal.raise_signal(signal.SIGALRM)
        return found


def test_a_recording_that_stops_in_the_middle_of_a_handler_keeps_what_that_handler_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    came, begin = [], EffectHandlers.__init__

    def init(self: Any, recorder: Any) -> None:
        begin(self, recorder)
        self._latest = InTheMiddle()
        call_hook.forget()
        call_hook.allow(InTheMiddle.get.__code__, lasting=True)

    @T.compile
    def f(p: T.Tensor) -> T.Tensor:
        for _ in range(3):
            p.grad = None
            (p * p).sum().backward()
        return p.grad * 2

    monkeypatch.setattr(EffectHandlers, "__init__", init)
    p = T.tensor([1.0, 2.0], requires_grad=True)
    with handling(lambda number, frame: came.append(number)):
        assert f(p).tolist() == [4.0, 8.0]
    monkeypatch.undo()
    assert came and f.stats.eager_calls == 1 and any("implicit_python" in str(reason) for reason in f.reasons)
    for _ in range(4):
        assert f(p).tolist() == [4.0, 8.0]
    assert f.stats.compiled_calls


@pytest.mark.parametrize("moment", ["before the hook", "after the hook"])
def test_a_handler_that_runs_while_the_hook_is_off_is_no_part_of_the_recording(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, times = T.zeros(2), [0]

    def work(number: int, frame: Any) -> None:
        times[0] += 1
        kept.add_(1)

    begin, unhook = call_hook.CallWatch.begin, Session.unhook

    def late(self: call_hook.CallWatch) -> None:
        signal.raise_signal(signal.SIGALRM)
        begin(self)

    def early(self: Session) -> None:
        unhook(self)
        signal.raise_signal(signal.SIGALRM)

    @T.compile
    def f(x: T.Tensor) -> list[Any]:
        return [(x * 2).tolist(), np.sin((x * 3).numpy()).tolist()]

    expected = f.__wrapped__(T.ones(2))
    if moment == "before the hook":
        monkeypatch.setattr(call_hook.CallWatch, "begin", late)
    else:
        monkeypatch.setattr(Session, "unhook", early)
        call_hook.allow(early.__code__, lasting=True)
    with handling(work):
        assert f(T.ones(2)) == expected
    monkeypatch.undo()
    assert times[0] and kept.tolist() == [times[0]] * 2
    assert not call_hook.watched_threads() and state.top is state.base
    for _ in range(3):
        assert f(T.ones(2)) == expected
    assert f.stats.compiled_calls == 3 and kept.tolist() == [times[0]] * 2


def test_an_error_of_a_handler_while_the_source_is_read_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(ValueError):
        pass

    def work(number: int, frame: Any) -> None:
        raise Own("in the middle")

    read = locate._File.read

    def interrupted(self: Any, *arguments: Any) -> Any:
        signal.raise_signal(signal.SIGALRM)
        return read(self, *arguments)

    @T.compile
    def f(x: T.Tensor) -> T.Tensor:
        return x * 2

    monkeypatch.setattr(locate._File, "read", interrupted)
    with handling(work), pytest.raises(Own):
        f(T.ones(2))
    monkeypatch.undo()
    assert [f(T.ones(2)).tolist() for _ in range(2)] == [[2.0, 2.0]] * 2 and f.stats.compiled_calls == 1


def interrupting(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """A signal comes while `module.name` works."""
    before, calls = getattr(module, name), []

    def slow(*arguments: Any, **keywords: Any) -> Any:
        calls.append(threading.get_ident())
        if len(calls) == 1:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            time.sleep(0.2)
        return before(*arguments, **keywords)

    monkeypatch.setattr(module, name, slow)
    return calls


PLACES = [(numba_codegen, "compile_module"), (programs, "load"), (machine_code, "assemble"), (machine_code, "link")]


@pytest.mark.parametrize(("module", "name"), PLACES, ids=lambda where: where if isinstance(where, str) else "")
def test_the_exception_of_a_handler_while_code_is_made_is_the_programs(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    number = 0.5 + len(name) / 100
    function = T.compile(lambda x: (x * number + number).tanh().sum())
    x = T.linspace(0, 1, 5, requires_grad=True) if name != "load" else T.linspace(0, 1, 6, requires_grad=True)
    met = 0
    with handling(stop), override(hot_calls=2):
        calls = interrupting(monkeypatch, module, name)
        for _ in range(12):
            try:
                function(x).backward()
            except Stop as error:
                met += 1
                assert error.__cause__ is error.__context__ is None
    assert met == 1 and threading.get_ident() not in calls
    expected = T.autograd.grad(function.__wrapped__(x), x)[0].tolist()
    x.grad = None
    function(x).backward()
    assert x.grad.tolist() == pytest.approx(expected, rel=1e-4) and function.stats.compiled_calls > 3
    assert not [r for r in function.reasons if r.code == "internal_error"]
    assert gc.isenabled() and not call_hook.watched_threads()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Who starts the tests in the background has Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_recorded_function_ends_the_call_and_later_ones_are_recorded() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        signal.raise_signal(signal.SIGINT)
        return y

    compiled = T.compile(function)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt) as caught:
            compiled(T.ones(2))
        names = [entry.name for entry in caught.traceback]
        assert names[-1] == "function" and not any("/capture/" in str(entry.path) for entry in caught.traceback)
    fresh = T.compile(lambda x: x * 2 + 1)
    for _ in range(3):
        assert fresh(T.ones(2)).tolist() == [3.0, 3.0]
    assert fresh.stats.compiled_calls == 2 and gc.isenabled() and not call_hook.watched_threads() and state.top is state.base


SUPPRESSING = """
class Suppress:
    def __enter__(self): return self
    def __exit__(self, *error): return True


def wait(x):
    for k in range(10**6):
        x = x + k * 0
    return x
"""
SWALLOWS = {
    "except": "try:\n        y = wait(x)\n    except BaseException:\n        y = x",
    "a bare except": "try:\n        y = wait(x)\n    except:\n        y = x",
    "finally": "for k in range(1):\n        y = x\n        try:\n            y = wait(x)\n        finally:\n            break",
    "a context manager": "y = x\n    with Suppress():\n        y = wait(x)",
}


@pytest.mark.parametrize("how", SWALLOWS)
def test_a_program_that_goes_on_after_an_interrupt_is_not_recorded(how: str, tmp_path: Path) -> None:
    """It came in the middle of anything: of the recorder, too."""
    file = tmp_path / "program.py"
    file.write_text(f"{SUPPRESSING}\n\ndef f(x):\n    {SWALLOWS[how]}\n    return y * 2\n")
    namespace: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec", dont_inherit=True), namespace)
    function = T.compile(namespace["f"])
    signal.setitimer(signal.ITIMER_REAL, 0.4)  # when the program waits, not while it is instrumented
    with handling(signal.default_int_handler):
        assert function(T.ones(2)).tolist() == [2.0, 2.0]
    assert [r.code for r in function.reasons] == ["interrupted"] and function.stats.compiled_calls == 0
    assert gc.isenabled() and not call_hook.watched_threads()


def test_the_collector_is_on_for_who_asks() -> None:
    asked: list[bool] = []

    def function(x: Any) -> Any:
        y = x * 2
        asked.append(gc.isenabled())
        return y

    function(T.ones(2))
    compiled = T.compile(function)
    for _ in range(3):
        compiled(T.ones(2))
    assert asked == [True] * 4 and gc.isenabled()


@pytest.mark.parametrize("on", [True, False])
def test_a_program_that_turns_the_collector_on_or_off_finds_it_so_afterwards(on: bool) -> None:
    compiled = T.compile(lambda x: (x * 2, gc.enable() if on else gc.disable()))
    (gc.disable if on else gc.enable)()
    try:
        compiled(T.ones(2))
        assert gc.isenabled() is on
    finally:
        gc.enable()


@pytest.mark.parametrize("way", ["recorded", "cold", "hot"])
def test_what_finalizers_do_in_the_middle_of_a_call_is_done_once_and_is_no_part_of_it(way: str) -> None:
    total = T.zeros(2)

    class Finalised:
        def __del__(self) -> None:
            total.add_(T.ones(2))

    def function(x: Any, box: list[Any]) -> Any:
        y = x * 2
        box.clear()  # the last reference goes
        return y + 1

    compiled = T.compile(function)
    with override(hot_calls=2):
        for _ in range({"recorded": 0, "cold": 1, "hot": 6}[way]):
            compiled(T.ones(2), [])
        before = total.tolist()
        for k in range(1, 4):
            assert compiled(T.ones(2), [Finalised()]).tolist() == [3.0, 3.0]
            assert total.tolist() == [before[0] + k] * 2


def test_a_handler_in_the_middle_of_a_recording_is_no_part_of_it_and_what_it_does_is_not_lost() -> None:
    seen, inner, outside = [], T.compile(lambda x: x * 5), T.zeros(2)

    def handler(number: int, frame: Any) -> None:
        seen.append(inner(T.ones(2)).tolist())
        outside.add_(1)

    def function(x: Any) -> Any:
        y = x * 2
        signal.raise_signal(signal.SIGUSR1)
        return y + 1

    compiled = T.compile(function)
    with handling(handler, signal.SIGUSR1):
        for k in range(1, 6):
            assert compiled(T.ones(2)).tolist() == [3.0, 3.0]
            assert seen == [[5.0, 5.0]] * k and outside.tolist() == [k, k]


class Odd(ValueError):
    """What guards take for one of their own."""


def odd(number: int, frame: Any) -> None:
    raise Odd


@pytest.mark.parametrize("hot_calls", [0, 2], ids=["cold", "hot"])
def test_an_error_that_guards_would_catch_is_raised_where_a_handler_raises_it(hot_calls: int) -> None:
    class Leaf:
        def __init__(self, k: int) -> None:
            self.k, self.w, self.other = k, T.ones(2), T.ones(2)

    leaves = [Leaf(k) for k in range(20)]

    def function(x: Any) -> Any:
        for leaf in leaves:
            x = x * leaf.w + leaf.k
        return x

    def repeat(leaf: Leaf) -> None:  # a function: a try block does not cover the jump back of a loop in it on every Python
        until = time.perf_counter() + 0.3
        while time.perf_counter() < until:
            leaf.w, leaf.other = leaf.other, leaf.w  # so guards are looked at one by one
            compiled(x)

    compiled, x = T.compile(function), T.ones(2)
    with override(hot_calls=hot_calls):
        for _ in range(4):
            compiled(x)
        traces, lost = compiled.stats.traces, 0
        gc.disable()  # what is raised in a callback of the collector, as other libraries have them, is lost to everyone
        with handling(odd):
            for k in range(300):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 2e-5 + 1e-6 * (k % 97))
                    repeat(leaves[k % 20])
                except Odd:
                    continue
                lost += 1
        gc.enable()
    assert lost == 0 and compiled.stats.traces == traces
