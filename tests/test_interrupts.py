"""Exceptions of signal handlers at any point: the state of the thread is right afterwards, and so is what handlers themselves compute."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tracejit as T
from tracejit.core.interpreter import pushed, pushed_anywhere, state
from tracejit.core.interrupts import covers_its_entry, is_foreign

TIMERS = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that send signals")

PROGRAMS = """
    import random, signal, sys, time
    import numpy as np
    import tracejit as T
    from tracejit.core.interpreter import pushed_anywhere, state

    class Stop(KeyboardInterrupt):
        pass

    armed, random = [False], random.Random(int(sys.argv[1]))

    def handler(*_):
        if armed[0]:
            raise Stop

    signal.signal(signal.SIGALRM, handler)
    x = T.tensor(np.linspace(0.1, 1.0, 6).reshape(2, 3), requires_grad=True)
    w = T.tensor(np.linspace(-1.0, 1.0, 6).reshape(3, 2), requires_grad=True)
    usual, optimizer = np.geterr(), T.optim.SGD([x, w], lr=0.0)

    def loss(x, w):
        return ((x @ w).tanh() * 2).sum() + x.exp().sum()

    replayed = T.compile(loss)
    replayed(x, w)

    def modes():
        with T.no_grad():
            a = x * 2
            with T.enable_grad():
                b = x * 3
            c = x.sum()

    @T.no_grad()
    def decorated():
        return x * 2

    def second(call):
        (g,) = T.autograd.grad(call(x, w), x, create_graph=True)
        g.sum().backward()

    def hooked():
        y = x * 2
        y.register_hook(lambda g: g * 2)
        (y * y).sum().backward()

    def in_place():
        y = x * 1
        y.mul_(w.t())
        y[0].mul_(2.0)
        y.sum().backward()

    def step():
        loss(x, w).backward()
        optimizer.step()
        optimizer.zero_grad()

    programs = [
        modes, decorated, hooked, in_place, step, lambda: second(loss), lambda: second(replayed),
        lambda: loss(x, w).backward(), lambda: T.autograd.grad(loss(x, w), (x, w)),
        lambda: replayed(x, w).backward(), lambda: T.autograd.grad(replayed(x, w), (x, w)),
    ]
    expected = {}
    for i, program in enumerate(programs):
        x.grad = T.ones(2, 3, dtype=T.float64)
        w.grad = None
        program()
        expected[i] = None if x.grad is None else np.round(x.grad.numpy(), 9).tolist()
    hits, end = 0, time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end or (hits <= 100 and time.monotonic() < end + 60):  # machines may be busy
        i = random.randrange(len(programs))
        x.grad = before = T.ones(2, 3, dtype=T.float64)
        w.grad = None
        armed[0] = True
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-6, 4e-4))
                programs[i]()
            finally:
                armed[0] = False
        except Stop:
            hits += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert state.grad_enabled is True and state.top is state.base and pushed_anywhere == [0], i
        assert np.geterr() == usual, i
        if programs[i] is not step:  # whose gradient goes in between
            assert x.grad is before and np.round(before.numpy(), 9).tolist() in ([[1.0] * 3] * 2, expected[i]), (i, before)
    print("interrupted", hits)
"""


@TIMERS
@pytest.mark.parametrize("seed", [1, 2])
def test_an_interrupt_at_any_point_leaves_the_state_of_the_thread_right(seed: int) -> None:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(PROGRAMS), str(seed), "0.8"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert said.returncode == 0, said.stderr[-2000:]
    assert int(said.stdout.split()[-1]) > 100


HANDLERS = """
    import contextvars, gc, signal, sys, time, weakref
    import numpy as np
    import tracejit as T

    wrong, calls = set(), [0]
    name = contextvars.ContextVar("name")
    name.set("program")

    def check():
        try:
            calls[0] += 1
            x = T.ones(3, 3)
            y = (x * 2).sum() + x[0].exp().sum() + (x @ x).relu()[1, 1]
            kinds = {type(t) for t in (y, x.t(), T.zeros(2), T.tensor([1.0]))}
            if kinds != {T.Tensor} or not T.is_grad_enabled() or name.get() != "program":
                wrong.add((str(kinds), T.is_grad_enabled(), name.get()))
            z = T.ones(2, requires_grad=True)
            (z * z).sum().backward()
            if z.grad.tolist() != [2.0, 2.0]:
                wrong.add(str(z.grad))
        except BaseException as error:
            wrong.add(repr(error))

    inside = [False]

    def guarded(*_):
        if not inside[0]:
            inside[0] = True
            try:
                check()
            finally:
                inside[0] = False

    class Finalized:
        def __del__(self):
            guarded()

    class Referent:
        pass

    if sys.argv[1] == "gc":
        gc.callbacks.append(guarded)
        gc.set_threshold(3)
    elif sys.argv[1] == "signal":
        signal.signal(signal.SIGALRM, guarded)
        signal.setitimer(signal.ITIMER_REAL, 1e-3, 5e-4)
    w = T.ones(3, 3, requires_grad=True)
    replayed = T.compile(lambda w: ((w * 2).tanh()[0] + w.exp().sum() + (w @ w)[1]).sum())
    end = time.monotonic() + 0.6
    while time.monotonic() < end or (calls[0] <= 50 and time.monotonic() < end + 60):  # machines may be busy
        for call in (replayed.__wrapped__, replayed):
            w.grad = None
            out = call(w)
            if sys.argv[1] == "finalizer":
                cycle = [Finalized()]
                cycle.append(cycle)
                referent = Referent()
                reference = weakref.ref(referent, guarded)
                saved = w * 1.0
                saved.kept = [Finalized(), referent]  # until the pass lets go of what sin() has saved
                out = out + saved.sin().sum()
                del cycle, referent, saved
            out.backward()
            T.autograd.grad(T.autograd.grad(call(w), w, create_graph=True)[0].sum(), w)
    signal.setitimer(signal.ITIMER_REAL, 0)
    gc.callbacks.clear()
    print(calls[0], wrong)
"""


@TIMERS
@pytest.mark.parametrize("source", ["gc", "signal", "finalizer"])
def test_tensor_code_in_the_middle_of_anything_finds_the_thread_as_the_program_left_it(source: str) -> None:
    said = subprocess.run([sys.executable, "-c", textwrap.dedent(HANDLERS), source], capture_output=True, text=True, timeout=100)
    count, wrong = said.stdout.strip().split(" ", 1)
    assert wrong == "set()" and int(count) > 50, (said.stdout[-2000:], said.stderr[-2000:])


@pytest.mark.skipif(sys.platform == "win32", reason="ctypes.PyDLL(None) needs a system with dlopen()")
def test_an_interrupt_at_the_entry_of_exit_puts_back_what_the_block_changed() -> None:
    class Interrupt:
        """Negation sends a signal from a C function that does not look for signals: it is handled when the next function is entered."""

        __neg__ = staticmethod(functools.partial(ctypes.PyDLL(None)["raise"], signal.SIGINT))

    interrupt, names = Interrupt(), []
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for manager in (lambda: pushed(state.base), T.no_grad, T.enable_grad, lambda: T.set_grad_enabled(False)):
            with pytest.raises(KeyboardInterrupt) as caught, manager():
                -interrupt
            names.append(caught.traceback[-1].name)
            assert state.top is state.base and pushed_anywhere == [0] and T.is_grad_enabled()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert names == ["__exit__"] * 4


ODD = """
    import signal, sys, time
    import numpy as np
    import tracejit as T

    T.config.hot_calls = 8
    a, m, w, bools = T.ones(200, 200), T.eye(40) * 3, T.ones(300, requires_grad=True), T.ones(300, 300) > 0
    actions = [
        lambda: a * a, lambda: a.exp(), lambda: 2.0 * a, lambda: a.sum(0), lambda: a @ a, lambda: T.linalg.inv(m), lambda: a.sort(),
        lambda: T.where(bools, 1.0, 2.0), lambda: (w * w).sum().backward(), lambda: a - a, lambda: a.clone().add_(a[0]),
        lambda: T.tensor(rows), lambda: a.cumsum(0), lambda: a[bools[:200, :200]], lambda: bools & bools,
    ]
    rows, lost = a.tolist(), []

    def repeat(call):  # a function: a try block does not cover the jump back of a loop in it on every Python
        until = time.perf_counter() + 0.2
        while time.perf_counter() < until:
            call()

    for base in (RuntimeError, ValueError, IndexError, KeyError, TypeError, ArithmeticError, OSError, np.linalg.LinAlgError):
        for cls in (base, type("Program", (base,), {})):
            def handler(*_):
                raise cls("from the handler") from LookupError("why")

            signal.signal(signal.SIGALRM, handler)
            for i, action in enumerate(actions):
                compiled = T.compile(action)
                for call in (action, action, compiled):
                    found = None
                    call()
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 1.3e-3)
                        repeat(call)
                    except base as error:
                        found = error
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    if type(found) is not cls or found.args != ("from the handler",) or type(found.__cause__) is not LookupError:
                        lost.append((cls.__name__, i, call is compiled, repr(found)))
    print(lost)
"""


@TIMERS
def test_what_a_handler_raises_is_the_programs_whatever_its_class() -> None:
    said = subprocess.run([sys.executable, "-c", textwrap.dedent(ODD)], capture_output=True, text=True, timeout=200)
    assert said.stdout == "[]\n", (said.stdout[-2000:], said.stderr[-2000:])


ENDLESS = """
    import os, signal, subprocess, sys, time
    import tracejit as T

    signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts this in the background has Ctrl-C ignored

    def send(seconds, times=1):
        each = f"time.sleep({seconds}); os.kill({os.getpid()}, signal.SIGINT)"
        script = f"import os, signal, time\\nfor _ in range({times}): {each}"
        return subprocess.Popen([sys.executable, "-c", script])

    @T.compile
    def function(n, x):
        x.add_(1)
        i, total = T.while_loop(lambda i, t: i != n, lambda i, t: (i + 1, t * 0.5 + i), (T.tensor(0), T.ones(3)))
        T.while_loop(lambda i: i < 0, lambda i: (i - 1,), (i,))
        return total + x

    x = T.zeros(3)
    for _ in range(int(sys.argv[1])):
        function(T.tensor(3), x)
    before = x.clone()
    for _ in range(2):
        started, sender = time.monotonic(), send(0.3)
        try:
            function(T.tensor(-1), x)
        except KeyboardInterrupt:
            assert time.monotonic() - started < 20 and x.equal(before)
        sender.wait()

    calls = []
    signal.signal(signal.SIGINT, lambda *_: calls.append(function(T.tensor(2), T.zeros(3))))
    sender = send(0.1, 3)
    n, steps = 10_000_000, 0
    while len(calls) < 3:  # some of them while it is in machine code
        found = function(T.tensor(n), x)
        steps += 1
    sender.wait()
    assert all(y.equal(calls[0]) for y in calls) and calls[0].tolist() == [2.25] * 3, calls
    assert x.equal(before + steps), (x, before, steps)
    print(function.stats.traces, function.stats.guard_misses, function.stats.exits)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of other processes are POSIX")
@pytest.mark.parametrize("calls", [3, 1200])
def test_ctrl_c_leaves_a_loop_that_never_ends_before_anything_is_written(calls: int, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(textwrap.dedent(ENDLESS))
    environment = {**os.environ, "PYTHONPATH": str(Path(T.__file__).parents[1])}
    command = [sys.executable, str(tmp_path / "endless.py"), str(calls)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert said.stdout == "1 0 0\n", (said.stdout[-2000:], said.stderr[-2000:])


def test_errors_of_the_program_are_told_from_those_of_what_the_library_calls() -> None:
    def raised(action: Callable[[], object]) -> BaseException:
        with pytest.raises(Exception) as caught:
            action()
        return caught.value.with_traceback(caught.value.__traceback__.tb_next)  # as from where the library calls it

    class Own(ValueError):
        pass

    def fail(error: BaseException) -> None:
        raise error

    assert not is_foreign(raised(lambda: np.linalg.inv(np.zeros((2, 2)))))
    assert not is_foreign(raised(lambda: np.ones(2) + np.ones(3))) and not is_foreign(raised(lambda: T.ones(2) + T.ones(3)))
    assert is_foreign(raised(lambda: fail(ValueError("of a handler")))) and is_foreign(raised(lambda: fail(Own("of a handler"))))
    assert (
        is_foreign(ValueError()) and is_foreign(Own("of another thread")) and not is_foreign(ValueError("of a function of C's"))
    )


def test_a_function_whose_code_covers_its_entry_does_what_it_did() -> None:
    done = []

    @covers_its_entry
    def function(x: int) -> int:
        try:
            return x + 1
        finally:
            done.append(x)

    assert function(3) == 4 and done == [3]
    with pytest.raises(TypeError):
        function("a")  # type: ignore[arg-type]
    assert done == [3, "a"]
    assert covers_its_entry(len) is len


def test_errors_and_modes_are_nested_as_they_were() -> None:
    with np.errstate(all="raise"), T.no_grad():
        inside = np.geterr()
        with T.enable_grad(), T.no_grad(), T.set_grad_enabled(True):
            assert T.is_grad_enabled()
            assert (T.ones(1) / 0.0).tolist() == [float("inf")]
        assert not T.is_grad_enabled() and np.geterr() == inside
    mode = T.no_grad()
    with mode, T.enable_grad(), mode:
        assert not T.is_grad_enabled()
    assert T.is_grad_enabled()
