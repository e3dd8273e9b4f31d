"""Interrupts at random times while functions are recorded, compiled, called and differentiated.

`python tests/stress_interrupts.py [--rounds N] [--seed K] [--kind NAME]` runs N rounds and says what went wrong;
tests/test_interrupted_calls.py runs it for a short while.

A round starts something, lets an exception come in the middle of it, and then asks: is the process as it was (no hook, nothing pushed,
the collector on), does a fresh function record, compile and give what eager gives, and does the function that was interrupted?  Nothing
may be lost: each exception that was sent is seen, and none is swallowed.  Handlers that raise nothing but use tensors and compiled
functions themselves are no part of what they come into the middle of, and what they do is not lost.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import linecache
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import tracejit as T
from tracejit import nn, optim
from tracejit.capture.frame import current
from tracejit.compiled.tier_policy import recording_turn
from tracejit.config import override
from tracejit.core.garbage_collection import _holds
from tracejit.core.interpreter import pushed_anywhere, state
from tracejit.core.locks import Ticket
from tracejit.cpython import call_hook


class Stop(Exception):
    """What the program's own signal handler raises: this, or an error that is also of a class that the library catches itself."""


ALSO = (
    RuntimeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    TypeError,
    ArithmeticError,
    OSError,
    np.linalg.LinAlgError,
)
STOPS = [Stop, *[type(f"{cls.__name__}AndStop", (Stop, cls), {}) for cls in ALSO]]
raised = [Stop]


class Sent(BaseException):
    """What another thread sends."""


INTERRUPTS = (KeyboardInterrupt, Stop, Sent)
counter = iter(range(10**9))


# -- what is interrupted: each maker returns (compiled, eager, call) for functions that nobody has seen; call(function) -> arrays
TEXTS = {
    "elementwise": """
def f(x, a):
    for k in range(3):
        x = (x * {number} + k).tanh()
    return x.exp() * a
""",
    "gradients": """
def f(x, w):
    y = (x @ w).sin() * {number}
    return (y * y).sum() + w.exp().mean()
""",
    "training": """
def f(optimizer, model, x):
    optimizer.zero_grad()
    loss = (model(x) ** 2).mean() * {number}
    loss.backward()
    optimizer.step()
    return loss.detach()
""",
    "effects": """
def f(x, seen, box):
    y = x * {number}
    seen.append(y)
    box["n"] = box["n"] + 1
    x.add_(1)
    return y.sum() * box["n"]
""",
    "exits": """
def f(x):
    y = x * {number}
    if x.sum() > 0:
        return y.cos()
    return y.sin()
""",
    "host_steps": """
def f(x):
    return T.linalg.inv(x * {number}) @ x + x.sort()[0]
""",
}


def written(name: str, dice: random.Random) -> tuple[Any, Any]:
    """A function with a text of its own, compiled, and another one for eager calls."""
    made = []
    text = "import tracejit as T\n\n" + TEXTS[name].format(number=1 + dice.random())
    for _ in range(2):
        file = f"<round {next(counter)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        namespace: dict[str, Any] = {}
        exec(compile(text, file, "exec", dont_inherit=True), namespace)
        made.append(namespace["f"])
    return T.compile(made[0]), made[1]


def elementwise(dice: random.Random) -> Any:
    x = T.linspace(-1, 1, dice.randrange(1, 40))
    return *written("elementwise", dice), lambda function: [function(x, 3).numpy()]


def gradients(dice: random.Random) -> Any:
    n = dice.randrange(2, 30)

    def call(function: Any) -> Any:
        x, w = T.linspace(0, 1, n).requires_grad_(), T.linspace(1, 2, n).requires_grad_()
        function(x, w).backward()
        return [x.grad.numpy(), w.grad.numpy()]

    return *written("gradients", dice), call


def training(dice: random.Random) -> Any:
    n = dice.randrange(2, 8)

    def call(function: Any) -> Any:
        model = nn.Sequential(nn.Linear(n, 4), nn.Tanh(), nn.Linear(4, 2))
        with T.no_grad():
            for k, p in enumerate(model.parameters()):
                p.copy_(T.linspace(-1, 1, p.numel()).reshape(p.shape) * (k + 1))
        optimizer = optim.Adam(model.parameters(), lr=0.01)
        losses = [function(optimizer, model, T.ones(3, n)).numpy() for _ in range(2)]
        return [*losses, *[p.detach().numpy() for p in model.parameters()]]

    return *written("training", dice), call


def effects(dice: random.Random) -> Any:
    n = dice.randrange(2, 30)

    def call(function: Any) -> Any:
        x, seen, box = T.linspace(0, 1, n), [], {"n": 1}
        results = [function(x, seen, box).numpy() for _ in range(2)]
        return [*results, x.numpy(), *[s.numpy() for s in seen], np.array(box["n"])]

    return *written("effects", dice), call


def exits(dice: random.Random) -> Any:
    x = T.linspace(0, 1, dice.randrange(2, 30))
    return *written("exits", dice), lambda function: [function(x).numpy(), function(-x).numpy()]


def host_steps(dice: random.Random) -> Any:
    x = T.eye(dice.randrange(2, 6)) * 3 + 0.5
    return *written("host_steps", dice), lambda function: [function(x).numpy()]


MAKERS = [elementwise, gradients, training, effects, exits, host_steps]


# -- how it is interrupted: each returns after arranging for one exception in about `seconds`
def by_timer(seconds: float) -> Callable[[], None]:
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return lambda: signal.setitimer(signal.ITIMER_REAL, 0)


def by_thread(send: Callable[[], Any]) -> Callable[[float], Callable[[], None]]:
    def arrange(seconds: float) -> Callable[[], None]:
        cancelled = threading.Event()

        def wait() -> None:
            if not cancelled.wait(seconds):
                send()

        thread = threading.Thread(target=wait)
        thread.start()

        def cancel() -> None:
            cancelled.set()
            thread.join()

        return cancel

    return arrange


MAIN = threading.main_thread().ident or 0


def send_exception() -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(MAIN), ctypes.py_object(Sent))


def busy(number: int, frame: Any) -> None:
    """A handler that uses tensors, and functions that are compiled, and does not raise."""
    if WITHIN:  # signals come faster than they are handled
        return
    WITHIN.append(number)
    BUSY[0] += 1
    with T.enable_grad():  # what it comes into the middle of may have turned it off
        x = T.linspace(0, 1, 4).requires_grad_()
        y = COMPILED((x * 2).exp())
        y.sum().backward()
        BUSY.append(float((x.grad - COMPILED.__wrapped__((x * 2).exp()) * 2).abs().max()))
    KEPT.add_(1)
    WITHIN.clear()


BUSY: list[Any] = [0]
WITHIN: list[int] = []
KEPT = T.zeros(3)
COMPILED = T.compile(lambda x: x * 1)


def by_handler_that_works(seconds: float) -> Callable[[], None]:
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds / 4 + 1e-4, seconds / 4 + 1e-4)
    return lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 0)


KINDS: dict[str, Callable[[float], Callable[[], None]]] = {
    "Ctrl-C": by_thread(lambda: signal.pthread_kill(MAIN, signal.SIGINT)),
    "handler": by_timer,
    "another thread": by_thread(send_exception),
    "handler that works": by_handler_that_works,
}
RAISE = [name for name in KINDS if name != "handler that works"]


# -- rounds
class Tally:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.met: Counter[str] = Counter()


def settled(tally: Tally, where: str) -> None:
    """Whether the process is as it should be between calls."""
    found = {
        "collector off": not gc.isenabled(),
        "collector held": _holds.count != 0 or _holds.to_resume,
        "watch": sys.getprofile() is not None or call_hook.watched_threads() != 0,
        "interpreter": state.top is not state.base or pushed_anywhere[0] != 0,
        "recorder": current.recorder is not None,
        "grad mode": not state.grad_enabled,
    }
    ticket = Ticket()
    found["turn taken"] = not recording_turn.take(ticket)
    ticket.over = True
    for what, wrong in found.items():
        if wrong:
            tally.problems.append(f"{where}: {what}")
    gc.enable()


def agree(tally: Tally, where: str, compiled: Any, eager: Any, call: Any, calls: int) -> None:
    for _ in range(calls):
        expected, actual = call(eager), call(compiled)
        if len(expected) != len(actual) or not all(
            np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(expected, actual, strict=True)
        ):
            tally.problems.append(f"{where}: eager {expected}, compiled {actual}")
    if not compiled.stats.compiled_calls:
        tally.problems.append(f"{where}: nothing was compiled: {compiled.stats}, {compiled.reasons}")


def works(tally: Tally, where: str, seconds: float, compiled: Any, eager: Any, call: Any) -> None:
    """What handlers do in the middle of calls is no part of them, and not lost."""
    BUSY[:], before = [0], KEPT.tolist()
    cancel = KINDS["handler that works"](seconds)
    expected = call(eager)
    actual = [call(compiled) for _ in range(8)]
    cancel()
    for _ in range(3):
        time.sleep(0)
    for found in actual:
        if not all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(expected, found, strict=True)):
            tally.problems.append(f"{where}: eager {expected}, compiled {found}")
    if max(BUSY[1:], default=0.0) > 1e-5 or len(BUSY) != BUSY[0] + 1:
        tally.problems.append(f"{where}: the handler got {BUSY}")
    if KEPT.tolist() != [v + BUSY[0] for v in before]:
        tally.problems.append(f"{where}: the handler's changes: {before} became {KEPT.tolist()} after {BUSY[0]}")
    tally.met[f"{where}: {'some' if BUSY[0] else 'no'} signals"] += 1
    settled(tally, where)
    agree(tally, where, compiled, eager, call, 70)


def call_until(until: float, call: Callable[[Any], Any], function: Any) -> None:
    """A function: a try block does not cover the jump back of a loop in it on every Python."""
    while time.perf_counter() < until:
        call(function)


def one_round(tally: Tally, dice: random.Random, kind: str, longest: float) -> None:
    maker, raised[:] = dice.choice(MAKERS), [dice.choice(STOPS)]
    compiled, eager, call = maker(dice)
    where = f"{maker.__name__}, {kind}"
    for _ in range(dice.choice((0, 0, 1, 2, 5))):  # cold and hot entries, and functions that nobody has recorded
        call(compiled)
    seconds = dice.random() ** 2 * longest
    if kind not in RAISE:
        works(tally, where, seconds, compiled, eager, call)
        return
    met = ""
    cancel: Callable[[], None] = int
    try:
        cancel = KINDS[kind](seconds)
        call_until(time.perf_counter() + seconds + 0.5, call, compiled)
    except INTERRUPTS as error:
        met = type(error).__name__
    try:
        cancel()
        for _ in range(3):
            time.sleep(0)
    except INTERRUPTS as error:
        if met:
            tally.problems.append(f"{where}: {type(error).__name__} after {met}")
        met = type(error).__name__
    tally.met[f"{where}: {met or 'nothing'}"] += 1
    if not met:
        tally.problems.append(f"{where}: the exception was lost: {raised[0].__name__}")
    settled(tally, where)
    agree(tally, f"{where}, the same function", compiled, eager, call, 3)
    agree(tally, f"{where}, a fresh function", *dice.choice(MAKERS)(dice), 3)
    settled(tally, where)


def stop(number: int, frame: Any) -> None:
    raise raised[0]("in the middle")


def run(rounds: int, seed: int, kinds: list[str], longest: float = 0.06) -> Tally:
    tally, dice = Tally(), random.Random(seed)
    signal.signal(signal.SIGALRM, stop)
    signal.signal(signal.SIGVTALRM, busy)

    def ignored(unraisable: Any) -> None:
        tally.problems.append(f"swallowed: {unraisable.exc_value!r} in {unraisable.object!r} {unraisable.err_msg}")

    sys.unraisablehook = ignored
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", T.compiler.PerformanceWarning)
    with override(hot_calls=6, max_entries=64):
        agree(tally, "the first function", *elementwise(dice), 8)  # imports and first uses
        agree(tally, "the first gradients", *gradients(dice), 8)
        for k in range(rounds):
            one_round(tally, dice, kinds[k % len(kinds)], longest)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts this in the background has Ctrl-C ignored
    started = time.time()
    tally = run(arguments.rounds, arguments.seed, arguments.kind or list(KINDS))
    for name, count in sorted(tally.met.items()):
        print(f"{count:6} {name}")
    for problem in tally.problems[:40]:
        print("PROBLEM", problem)
    print(f"{arguments.rounds} rounds in {time.time() - started:.0f} s, {len(tally.problems)} problems")
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
