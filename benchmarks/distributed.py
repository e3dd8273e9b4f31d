"""Training steps with DistributedDataParallel on one and on two ranks, and a model of more.

Run as `python -m benchmarks.distributed [--quick]`; needs the extra `mpi`.  It starts itself by mpirun, with one rank and with two,
each with one thread.  The batch is one and the same, shared out: two ranks compute half of it each (strong scaling).  Measured are
steps, eager and compiled, and all_reduce() of several sizes, in rounds that all ranks begin together; a figure is the best round, so
that it says little of what else runs on the machine.

The model: a step of n ranks takes as long as one rank takes for its share of the batch, and an all_reduce() of the gradients:

    t(n) = compute(batch / n) + 2 ((n - 1) latency + (n - 1) / n * bytes / bandwidth)

Each half of an all_reduce() is n - 1 messages of 1 / n of the bytes (tracejit/distributed/exchange.py).  Latency and bandwidth
are fitted to all_reduce() on two ranks (least squares of relative errors).  The model leaves out what overlap saves,
and what ranks of one machine lose because they share its memory; both show in the column that compares it with two measured ranks.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import tracejit
from benchmarks.environment import describe, one_line
from benchmarks.table import duration
from tracejit import distributed, nn, optim

__all__ = ["Exchange", "command", "main"]

_SIZES: Final = (1, 1_000, 10_000, 100_000, 1_000_000)
"""Elements (float32) of all_reduce()."""
_MORE: Final = (4, 8, 16, 64)
"""Ranks that are only modelled."""
_ROUNDS: Final = 150
_QUICK_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class _Work:
    """A network 784-hidden-...-10, and the batch that all ranks share."""

    name: str
    hidden: tuple[int, ...]
    batch: int


_WORKS: Final = (
    _Work("MLP 784-512-10, batch 512", (512,), 512),
    _Work("MLP 784-1024-1024-10, batch 128", (1024, 1024), 128),
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What an all_reduce() takes.  latency: seconds for a message without contents.  bandwidth: bytes a second of one rank, the reduction
    included."""

    latency: float
    bandwidth: float

    @classmethod
    def of_two(cls, sizes: Sequence[float], seconds: Sequence[float]) -> Exchange:
        """The one that fits best what all_reduce() of so many bytes took on two ranks."""
        weights = 1 / np.asarray(seconds)
        columns = np.stack([np.full(len(sizes), 2.0), np.asarray(sizes, float)], axis=1) * weights[:, None]
        (latency, per_byte), *_ = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)
        return cls(max(float(latency), 0.0), 1 / max(float(per_byte), 1e-15))

    def seconds(self, ranks: int, size: float) -> float:
        """The time of an all_reduce() of so many bytes."""
        return 2 * ((ranks - 1) * self.latency + (ranks - 1) / ranks * size / self.bandwidth)


def command(ranks: int, *arguments: str) -> list[str] | None:
    """The command that starts a program of this Python in so many processes; None without mpirun."""
    launcher = Path(sys.executable).parent / "mpirun"
    if not launcher.exists():
        return None
    told = subprocess.run([str(launcher), "--version"], capture_output=True, text=True, check=False).stdout
    more = ["--oversubscribe", "--allow-run-as-root"] if "Open MPI" in told else []
    return [str(launcher), *more, "-n", str(ranks), sys.executable, *arguments]


# --- in each rank


def _seconds(call: Callable[[], Any], rounds: int) -> float:
    """Seconds of a call that all ranks make together: the best of so many."""
    for _ in range(3):
        call()
    samples = []
    for _ in range(rounds):
        distributed.barrier()
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return min(samples)


def _step(work: _Work, batch: int, is_compiled: bool, is_shared: bool) -> tuple[Callable[[], Any], int]:
    """A step of SGD, and the bytes of its gradients."""
    tracejit.manual_seed(0)
    sizes = (784, *work.hidden, 10)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    network: Any = nn.Sequential(*layers[:-1])
    model = nn.parallel.DistributedDataParallel(network) if is_shared else network
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    x, labels = tracejit.randn(batch, 784), tracejit.randint(0, 10, (batch,))

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return (tracejit.compile(step) if is_compiled else step), sum(p.nbytes for p in network.parameters())


def _measure(rounds: int) -> dict[str, Any]:
    """What one rank finds out, together with the others."""
    ranks = distributed.get_world_size()
    found: dict[str, Any] = {"exchange": [], "steps": {}, "shares": {}, "bytes": {}}
    for count in _SIZES:
        tensor = tracejit.ones(count)
        found["exchange"].append(_seconds(lambda tensor=tensor: distributed.all_reduce(tensor, distributed.ReduceOp.AVG), rounds))  # type: ignore[misc]
    for work in _WORKS:
        for is_compiled in (False, True):
            key = f"{work.name}, {'compiled' if is_compiled else 'eager'}"
            step, size = _step(work, work.batch // ranks, is_compiled, True)
            found["steps"][key], found["bytes"][key] = _seconds(step, rounds), size
            if ranks == 1:  # the shares of more ranks, computed by one alone
                parts = [n for n in (1, 2, *_MORE) if work.batch % n == 0]
                found["shares"][key] = {n: _seconds(_step(work, work.batch // n, is_compiled, False)[0], rounds) for n in parts}
    return found


def _child(file: str, rounds: int) -> None:
    distributed.init_process_group("mpi")
    found = _measure(rounds)
    if distributed.get_rank() == 0:
        Path(file).write_text(json.dumps(found))
    distributed.destroy_process_group()


# --- the table


def _run(ranks: int, rounds: int, folder: Path) -> dict[str, Any]:
    file = folder / f"{ranks}.json"
    started = command(ranks, "-m", "benchmarks.distributed", "--child", str(file), "--rounds", str(rounds))
    assert started is not None
    environment = {**os.environ, "TRACEJIT_NUM_THREADS": "1"}
    subprocess.run(started, check=True, env=environment)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; 1 without mpirun."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed", description="training by several ranks")
    parser.add_argument("--quick", action="store_true", help="few calls: a smoke test, its figures are noisy")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    rounds = options.rounds or (_QUICK_ROUNDS if options.quick else _ROUNDS)
    if options.child:
        _child(options.child, rounds)
        return 0
    if not distributed.is_available() or command(1) is None:
        print("there is no mpi4py, or no mpirun beside this Python: pip install 'tracejit[mpi]'")
        return 1
    print(one_line(describe(1)))
    with tempfile.TemporaryDirectory() as folder:
        one, two = (_run(ranks, rounds, Path(folder)) for ranks in (1, 2))
    exchange = Exchange.of_two([4 * count for count in _SIZES], two["exchange"])
    print(f"all_reduce() on two ranks: latency {duration(exchange.latency)}, {exchange.bandwidth / 1e9:.2f} GB/s")
    for count, seconds in zip(_SIZES, two["exchange"], strict=True):
        print(f"  {4 * count:>9} bytes{duration(seconds):>12}   the model says {duration(exchange.seconds(2, 4 * count))}")
    heads = "".join(f"{f'{n} ranks':>12}" for n in _MORE)
    print(f"{'':42}{'1 rank':>10}{'2 ranks':>10}{'speedup':>9}{'model':>8} |{heads}   (modelled speedup)")
    for key, alone in one["steps"].items():
        shares = {int(n): seconds for n, seconds in one["shares"][key].items()}
        modelled = {n: alone / (shares[n] + exchange.seconds(n, one["bytes"][key])) for n in shares if n > 1}
        cells = "".join(f"{f'{modelled[n]:.1f}x' if n in modelled else '':>12}" for n in _MORE)
        both = two["steps"][key]
        print(f"{key:42}{duration(alone):>10}{duration(both):>10}{alone / both:8.2f}x{modelled[2]:7.2f}x |{cells}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
