"""Memory while functions are called, recorded and dropped, again and again.

`python tests/stress_memory.py [--scale N] [--case NAME]` runs each case in a process of its own, N times as long as
tests/test_memory_use.py does (--scale 100: 200,000 calls, thousands of recordings), and says by how much the process has grown: what the
system counts (resident memory, which has LLVM's and NumPy's in it), and what Python counts (blocks of its allocator).  The first half of a
run is warm-up: code becomes machine code, allocators find their sizes.  Caches that fill slowly are emptied before each look.
"""

from __future__ import annotations

import argparse
import gc
import linecache
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import tracejit as T
from tracejit import nn, optim
from tracejit.capture.syntax import locate
from tracejit.config import override
from tracejit.llvm import driver
from tracejit.native import machine_code

Cached = type(lru_cache(abs))
counter = iter(range(10**9))
CASES: dict[str, tuple[int, Callable[[], Callable[[], Any]]]] = {}


def case(rounds: int) -> Any:
    """make() -> what a round does; so many rounds make a run at scale 1."""

    def register(make: Any) -> Any:
        CASES[make.__name__] = (rounds, make)
        return make

    return register


@case(2000)
def calls() -> Any:
    function, x, y = T.compile(lambda x, y: (x * y + 1).tanh()), T.ones(7), T.ones(7)
    return lambda: function(x, y)


@case(2000)
def calls_from_python() -> Any:
    with override(hot_calls=0):
        function, x, y = T.compile(lambda x, y, k: (x * y + k).tanh()), T.ones(7), T.ones(7)
        function(x, y, k=1)
    return lambda: function(x, y, k=1)


@case(2000)
def backward() -> Any:
    function, w = T.compile(lambda w: (w * w).sin().sum()), T.ones(7, requires_grad=True)

    def run() -> None:
        w.grad = None
        function(w).backward()

    return run


@case(1000)
def gradients_by_the_engine() -> Any:
    function, w = T.compile(lambda w: (w * w).sin()), T.ones(7, requires_grad=True)
    return lambda: T.autograd.grad((function(w) * 2).sum(), w)


@case(1000)
def training() -> Any:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer, x = optim.Adam(model.parameters(), lr=1e-3), T.ones(3, 4)

    @T.compile
    def step() -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@case(1000)
def exits_and_misses() -> Any:
    function = T.compile(lambda x, k: x * k if x.sum() > 0 else x.exp())
    inputs = [T.ones(3), -T.ones(3), T.ones(4), -T.ones(4), T.ones(3, dtype=T.float64)]

    def run() -> None:
        for x in inputs:
            for k in (2, 3.0):
                function(x, k)

    return run


@case(2000)
def calls_that_stay_eager() -> Any:
    def function(x: Any) -> Any:
        print(end="")
        return x + 1

    compiled, x = T.compile(function), T.ones(3)
    return lambda: compiled(x)


@case(500)
def calls_that_raise() -> Any:
    def function(x: Any) -> Any:
        raise LookupError

    compiled, x = T.compile(function), T.ones(3)

    def run() -> None:
        try:
            compiled(x)
        except LookupError:
            return

    return run


@case(1000)
def models_that_come_and_go() -> Any:
    function = T.compile(lambda model, x: model(x).sum())

    def run() -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        for p in model.parameters():
            p.owner = model
        function(model, T.ones(2, 4)).backward()

    return run


def fresh(text: str) -> Any:
    """A function of a text and a file of its own."""
    name = f"<file {next(counter)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {}
    exec(compile(text, name, "exec", dont_inherit=True), namespace)
    FILES.append(name)
    for old in FILES[:-4]:
        linecache.cache.pop(old, None)
    del FILES[:-4]
    return namespace["f"]


FILES: list[str] = []


@case(24)
def functions_that_are_dropped() -> Any:
    """Recorded, compiled, called from machine code, and backward."""

    def run() -> None:
        number = 1 + next(counter)
        function = T.compile(fresh(f"import math\n\n\ndef f(x):\n    return (x * {number}.5 + 1).tanh().sum()\n"))
        x = T.ones(3, requires_grad=True)
        for _ in range(5):
            function(x).backward()
        assert function.stats.compiled_calls == 4

    return run


@case(80)
def new_shapes_of_a_function_that_is_cleared() -> Any:
    function, number = T.compile(lambda x: (x * 2).exp() + 1), [0]

    def run() -> None:
        number[0] += 1
        x = T.ones(number[0] % 400 + 1, number[0] // 400 + 1)
        function(x), function(x)
        function.clear()

    return run


@case(24)
def paths_that_make_room() -> Any:
    number = [0]

    def run() -> None:
        number[0] += 1
        with override(max_entries=2, max_sizes=2):
            function = T.compile(lambda x: x * 3)
            for n in range(1, 6):
                x = T.ones(n)
                function(x), function(x)

    return run


def resident() -> int:
    """Bytes of memory that the process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def look() -> tuple[int, int]:
    """Bytes of the process, and blocks of Python's allocator, without what waits to be freed and what caches remember."""
    for name, module in list(sys.modules.items()):
        for known in list(vars(module).values()) if name.startswith("tracejit") else ():
            if isinstance(known, Cached) and known.cache_info().maxsize is not None:
                known.cache_clear()
    gc.collect()
    machine_code._unload()
    return resident(), sys.getallocatedblocks()


def measure(name: str, scale: int) -> tuple[int, int, int]:
    """Rounds of the second half of a run, and by how many bytes and blocks it made the process grow: the smallest of the looks at its end
    against the smallest of those at its beginning."""
    rounds, make = CASES[name]
    driver.REMEMBERED = locate._CACHED = 8  # type: ignore[misc]  # what is found again by content, and by file: soon full
    with override(hot_calls=4):
        run = make()
        half = max(1, rounds * scale // 2)
        looks = []
        for k in range(2 * half):
            if k >= half and (k - half) % max(1, half // 16) == 0:
                looks.append(look())
            run()
        looks.append(look())
    quarter = max(1, len(looks) // 4)
    memory, blocks = (min(found[-quarter:]) - min(found[:quarter]) for found in zip(*looks, strict=True))
    return half, memory, blocks


def grown(names: Sequence[str], scale: int) -> dict[str, tuple[int, int, int]]:
    """For each case: rounds, and by how many bytes and how many blocks of Python's they made a process grow that runs these cases in a
    row."""
    command = [sys.executable, os.path.abspath(__file__), "--child", *names, "--scale", str(scale)]
    environment = {**os.environ, "TRACEJIT_CACHE": "0", "OPENBLAS_NUM_THREADS": "1", "TRACEJIT_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    said = subprocess.run(command, capture_output=True, text=True, env=environment)
    if said.returncode:
        raise RuntimeError(f"{names}: {said.stderr[-2000:]}")
    rows = [line.split() for line in said.stdout.splitlines() if line.startswith("case ")]
    return {name: (int(rounds), int(memory), int(blocks)) for _, name, rounds, memory, blocks in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--child", choices=CASES, nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    gc.collect()
    gc.freeze()  # modules: each look would go through them
    for name in arguments.child or ():
        print("case", name, *measure(name, arguments.scale))
    if arguments.child:
        return
    for name in arguments.case or CASES:
        started = time.time()
        rounds, memory, blocks = grown([name], arguments.scale)[name]
        print(
            f"{name:45} {rounds:8} rounds: resident memory {memory / 1024:+9.0f} KiB ({memory / rounds:+9.1f} bytes each),"
            f" Python's {blocks:+7} blocks ({blocks / rounds:+.3f} each), {time.time() - started:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
