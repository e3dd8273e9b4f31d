"""Programs under unusual circumstances, which tests/test_surroundings.py runs in processes of their own:
`python [flags] surroundings.py NAME FIRST`.

Each circumstance prepares the process; then a part of the corpus of capture programs, models, training steps and backward passes run
eagerly and compiled (recorded, from Python, from machine code) and must do the same.  Prints "fine" at the end.
"""

from __future__ import annotations

import cProfile
import gc
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
from capture_programs import PROGRAMS, run

import tracejit as T
from tracejit import nn, optim
from tracejit.config import override

Circumstance = Callable[[ExitStack], Any]
CIRCUMSTANCES: dict[str, Circumstance] = {}
STEP = 27  # one program of the corpus in so many, others for each circumstance


def circumstance(prepare: Circumstance) -> Circumstance:
    CIRCUMSTANCES[prepare.__name__] = prepare
    return prepare


@circumstance
def nothing(stack: ExitStack) -> None:
    """What the interpreter's flags do is enough."""


@circumstance
def collections_everywhere(stack: ExitStack) -> None:
    """The collector runs at every few objects, finalizers and callbacks use tensors and compiled functions."""
    inner = T.compile(lambda x: (x * 3).exp())
    for _ in range(8):
        inner(T.zeros(2))
    seen: list[Any] = []

    def work() -> None:
        found = inner(T.zeros(2)).tolist()
        if found != [1.0, 1.0]:
            seen.append(found)

    class Finalised:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            work()

    within: list[int] = []

    def callback(phase: str, info: Any) -> None:
        if phase == "stop" and not within:
            within.append(1)
            work()
            Finalised()
            within.clear()

    before = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(60, 5, 5)

    def end() -> None:
        gc.set_threshold(*before)
        gc.callbacks.remove(callback)
        if seen:
            raise AssertionError(seen[:3])

    stack.callback(end)


@circumstance
def traced(stack: ExitStack) -> None:
    """A debugger or a measure of coverage watches each line."""
    lines: list[Any] = [0]

    def trace(frame: Any, event: str, argument: Any) -> Any:
        lines[0] += 1
        return trace

    sys.settrace(trace)
    stack.callback(sys.settrace, None)


@circumstance
def profiled(stack: ExitStack) -> None:
    """A profiler counts calls."""
    profile = cProfile.Profile()
    profile.enable()
    stack.callback(profile.disable)


@circumstance
def profiled_from_python(stack: ExitStack) -> None:
    """A profiler written in Python, in all threads."""
    calls: list[Any] = [0]

    def profile(frame: Any, event: str, argument: Any) -> None:
        calls[0] += 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    stack.callback(sys.setprofile, None)
    stack.callback(threading.setprofile, None)


@circumstance
def monitored(stack: ExitStack) -> None:
    """sys.monitoring watches lines, calls and errors."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        return
    events = monitoring.events
    monitoring.use_tool_id(monitoring.COVERAGE_ID, "coverage")
    for event in (events.LINE, events.CALL, events.PY_START, events.RAISE):
        monitoring.register_callback(monitoring.COVERAGE_ID, event, lambda *_: None)
    monitoring.set_events(monitoring.COVERAGE_ID, events.LINE | events.CALL | events.PY_START | events.RAISE)
    stack.callback(monitoring.free_tool_id, monitoring.COVERAGE_ID)
    stack.callback(monitoring.set_events, monitoring.COVERAGE_ID, 0)


@circumstance
def near_the_limit(stack: ExitStack) -> None:
    """The stack is nearly used up: what runs out of it raises RecursionError, as eager code does, and nothing is left behind."""
    deep = T.compile(lambda x: (x * 2 + 1).tanh().sum())

    def down(n: int, x: Any) -> Any:
        return deep(x) if n == 0 else down(n - 1, x)

    x = T.ones(3)
    expected = deep.__wrapped__(x).item()
    for n in range(sys.getrecursionlimit() - 120, sys.getrecursionlimit(), 7):
        deep.clear()
        for _ in range(3):
            try:
                found = down(n, x).item()
            except RecursionError:
                continue
            if not np.isclose(found, expected):
                raise AssertionError((n, found, expected))
    if sys.getprofile() is not None or not gc.isenabled():
        raise AssertionError("something was left behind")


@circumstance
def many_threads(stack: ExitStack) -> None:
    """Other threads record, call and clear functions of their own, and one that all have, all the while."""
    shared = T.compile(lambda x, k: (x * k).exp() if x.sum() > 0 else x * k)
    stop = threading.Event()
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            k = 0
            while not stop.is_set():
                k += 1
                x = T.full((1 + (k + number) % 5,), 0.1 * (-1) ** k)
                if not np.allclose(shared(x, 0.5).numpy(), shared.__wrapped__(x, 0.5).numpy()):
                    wrong.append((number, k))
                if k % 50 == 0:
                    shared.clear()
                own = T.compile(lambda x, k=k: (x + k).sum())
                y = x.requires_grad_()
                own(y).backward()
                own(y).backward()
                if x.grad is None or x.grad.tolist() != [2.0] * x.numel():
                    wrong.append((number, k, x.grad))
        except Exception as error:
            wrong.append(repr(error))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()

    def end() -> None:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)
        if wrong:
            raise AssertionError(wrong[:3])

    stack.callback(end)


# -- what runs
def corpus(first: int) -> None:
    for name, (maker, _) in list(PROGRAMS.items())[first % STEP :: STEP]:
        expected, _ = run(maker, lambda function: function)
        actual, _ = run(maker, T.compile)
        if expected != actual:
            raise AssertionError(f"{name}: eager {expected}, compiled {actual}")


def trained(wrap: Callable[[Any], Any]) -> list[Any]:
    model = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    with T.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_(T.linspace(-1, 1, p.numel()).reshape(p.shape) * (k + 1))
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    target = wrap(step)
    losses = [target(T.linspace(-1, 1, 12).reshape(4, 3)) for _ in range(8)]
    return [*losses, *model.parameters()]


def close(some: list[Any], others: list[Any]) -> None:
    for a, b in zip(some, others, strict=True):
        if not np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-3, atol=1e-4):
            raise AssertionError((a, b))


def main(name: str, first: int) -> None:
    """first: which of the programs run, and each STEP-th after it."""
    with override(hot_calls=3), ExitStack() as stack:
        CIRCUMSTANCES[name](stack)
        corpus(first)
        close(trained(T.compile), trained(lambda function: function))
        h = T.compile(lambda x: T.linalg.inv(x) @ x.sort()[0])
        for n in (2, 3, 2, 3):
            x = T.eye(n) * 2 + 0.5
            close([h(x)], [h.__wrapped__(x)])
    print("\nfine")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
