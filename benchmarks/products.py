"""Products of matrices in GFLOP/s: tracejit eager and compiled, NumPy, and torch and JAX where they are installed.

Run as `python -m benchmarks.products [--sizes 64,128] [--sides eager,numpy] [--threads 1,2] [--dtypes float32,float64] [--seconds S]`.
Rows: squares; one square with each operand stored as it is or transposed; products of a matrix of 512 x 512 with 1, 3, 8 and 64 rows,
by it and by its transpose, and with as many columns.  Each number of threads has a process of its own, in which NumPy's OpenBLAS takes
its kernels for the widest vectors of the processor (by itself it takes narrower ones on some).

All sides of a row are timed in turn, by the clock on the wall; the figures are those of the fastest round.  Results are compared with
ones of a wider type first: every element must be within the bound of its sum, else the exit code is 1.  The last column is compiled over
the best of NumPy, torch and JAX.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tracejit
from benchmarks import environment
from benchmarks.measure import interleaved
from tracejit.core.lazy import lazy_module
from tracejit.llvm.host import host_target

torch = lazy_module("torch")
jax = lazy_module("jax")

__all__ = ["GOAL", "SIDES", "Case", "cases", "main", "measure", "surroundings", "within_bound"]

GOAL = 0.95
"""Of the best other side's speed."""
SIDES = ("eager", "compiled", "numpy", "torch", "jax")
SQUARES = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
_OTHERS = ("numpy", "torch", "jax")
_TURNED = 512  # rows and columns of the squares that are stored in each way
_SIDE, _SKINNY = 512, (1, 3, 8, 64)
_CORES = {512: "SkylakeX", 256: "Haswell"}
"""What OpenBLAS calls processors whose vectors have so many bits."""
_HERE = "BENCHMARK_PRODUCTS_HERE"
"""The variable that tells a process to measure by itself."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A product of m x k by k x n; turned: whether each operand is the transpose of what is stored."""

    m: int
    n: int
    k: int
    turned: tuple[bool, bool] = (False, False)

    def __str__(self) -> str:
        left, right = ("'" if t else "" for t in self.turned)
        return f"{self.m} x {self.k}{left}, {self.k} x {self.n}{right}"

    @property
    def operations(self) -> int:
        """Additions and multiplications."""
        return 2 * self.m * self.n * self.k

    def operands(self, dtype: str) -> tuple[Array, Array]:
        """Random ones, as they are stored."""
        random = np.random.default_rng(self.m + self.n + self.k)
        shapes = (self.m, self.k), (self.k, self.n)
        first, second = (
            random.standard_normal(s[:: -1 if t else 1]).astype(dtype) for s, t in zip(shapes, self.turned, strict=True)
        )
        return first, second


def cases(squares: Sequence[int]) -> list[Case]:
    """All rows; without squares none."""
    found = [Case(n, n, n) for n in squares]
    if _TURNED in squares:
        found += [Case(_TURNED, _TURNED, _TURNED, turned) for turned in ((False, True), (True, False), (True, True))]
    if _SIDE in squares:
        for few in _SKINNY:
            found += [Case(few, _SIDE, _SIDE), Case(few, _SIDE, _SIDE, (False, True)), Case(_SIDE, few, _SIDE)]
    return found


def _product(turned: tuple[bool, bool]) -> Callable[[Any, Any], Any]:
    """The same expression for all libraries."""
    left, right = turned
    return lambda a, b: (a.T if left else a) @ (b.T if right else b)


def _sides(case: Case, dtype: str, wanted: Sequence[str]) -> dict[str, Callable[[], Any]]:
    a, b = case.operands(dtype)
    multiply = _product(case.turned)
    found: dict[str, Callable[[], Any]] = {}
    for side in wanted:
        if side == "numpy":
            found[side] = lambda: multiply(a, b)
        elif side in ("eager", "compiled"):
            run: Any = multiply if side == "eager" else tracejit.compile(multiply)
            x, y = tracejit.tensor(a), tracejit.tensor(b)
            run(x, y)
            found[side] = lambda run=run, x=x, y=y: run(x, y)  # type: ignore[misc]
        elif side == "torch":
            s, t = torch.from_numpy(a), torch.from_numpy(b)
            found[side] = lambda s=s, t=t: multiply(s, t)  # type: ignore[misc]
        else:
            compiled, u, v = jax.jit(multiply), jax.numpy.asarray(a), jax.numpy.asarray(b)
            found[side] = lambda compiled=compiled, u=u, v=v: compiled(u, v).block_until_ready()  # type: ignore[misc]
    return found


def within_bound(case: Case, result: Array) -> bool:
    """Whether each element is as near to the exact one as a sum in any order has to be (Higham: Accuracy and Stability of Numerical
    Algorithms, 2002, section 3.1)."""
    wide: Any = np.float64 if result.dtype == np.float32 else np.longdouble
    a, b = case.operands(result.dtype.name)
    left, right = (a.T if case.turned[0] else a), (b.T if case.turned[1] else b)
    some = np.unique(np.linspace(0, case.m - 1, 64, dtype=np.int64))  # rows; NumPy takes long for products of long doubles
    exact = left[some].astype(wide) @ right.astype(wide)
    bound = case.k * np.finfo(result.dtype).eps * (np.abs(left[some]) @ np.abs(right)) + 1e-300
    return bool((np.abs(result[some] - exact) <= bound).all())


def measure(case: Case, dtype: str, wanted: Sequence[str], seconds: float) -> tuple[dict[str, float], list[str]]:
    """(GFLOP/s by side, the sides whose result is wrong)."""
    sides = _sides(case, dtype, wanted)
    wrong = [side for side, call in sides.items() if not within_bound(case, np.asarray(call()))]
    times = interleaved(sides, seconds)
    return {side: case.operations / min(taken) / 1e9 for side, taken in times.items()}, wrong


def surroundings(threads: int) -> dict[str, str]:
    """Variables of the environment of a process that is limited to so many threads."""
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1" if threads == 1 else ""
    found = {**os.environ, **environment.limits(threads), "XLA_FLAGS": flags, "JAX_ENABLE_X64": "1", _HERE: "1"}
    core = _CORES.get(host_target().bits)
    if core is not None:
        found.setdefault("OPENBLAS_CORETYPE", core)
    return found


def _installed(sides: Sequence[str]) -> list[str]:
    return [side for side in sides if side not in ("torch", "jax") or importlib.util.find_spec(side) is not None]


def _line(name: str, dtype: str, figures: Mapping[str, float], sides: Sequence[str]) -> str:
    best = max((figures[side] for side in sides if side in _OTHERS), default=0.0)
    ratio = f"{figures['compiled'] / best:>9.2f}" if best and "compiled" in figures else ""
    return f"{name:<28}{dtype:<9}" + "".join(f"{figures[side]:>10.1f}" for side in sides) + ratio


def _run(arguments: argparse.Namespace) -> int:
    sides, threads = _installed(arguments.sides), arguments.threads[-1]
    print(environment.one_line(environment.describe(threads)))
    print(f"{'GFLOP/s':<28}{'':<9}" + "".join(f"{side:>10}" for side in sides) + "  / best")
    failed, missed = [], []
    for dtype in arguments.dtypes:
        for case in cases(arguments.sizes):
            figures, wrong = measure(case, dtype, sides, arguments.seconds)
            print(_line(str(case), dtype, figures, sides), flush=True)
            failed += [f"{case} {dtype} by {side}" for side in wrong]
            best = max((figures[side] for side in sides if side in _OTHERS), default=0.0)
            if case.m == case.n == case.k and figures.get("compiled", best) < GOAL * best:
                missed.append(f"{case.m} {dtype}")
    if missed:
        print(f"squares below {GOAL} of the best: {', '.join(dict.fromkeys(missed))}")
    if failed:
        print(f"wrong results: {', '.join(failed)}")
    return int(bool(failed))


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each product and dtype, on each number of threads.  Returns 1 where a result is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.products", description="products of matrices; see docs/benchmarks.md"
    )
    parser.add_argument("--sizes", default=SQUARES, type=lambda text: [int(n) for n in text.split(",")], help="of squares")
    parser.add_argument("--sides", default=SIDES, type=lambda text: text.split(","), help=f"of {', '.join(SIDES)}")
    parser.add_argument(
        "--threads", default=[1, 2], type=lambda text: [int(n) for n in text.split(",")], help="numbers of threads"
    )
    parser.add_argument("--dtypes", default=["float32", "float64"], type=lambda text: text.split(","))
    parser.add_argument("--seconds", default=0.5, type=float, help="about so many for each side of a row")
    given = sys.argv[1:] if argv is None else list(argv)
    arguments = parser.parse_args(given)
    unknown = set(arguments.sides) - set(SIDES)
    if unknown:
        parser.error(f"--sides: expected some of {', '.join(SIDES)}, got {', '.join(sorted(unknown))}")
    if os.environ.get(_HERE):
        return _run(arguments)
    code, allowed = 0, environment.processors()
    for threads in arguments.threads:
        print(f"{threads} thread{'s' * (threads > 1)}", flush=True)
        environment.restrict(allowed[:threads])  # JAX takes more threads than it is told to, if there are processors for them
        command = [sys.executable, "-m", "benchmarks.products", *given, "--threads", str(threads)]
        code |= subprocess.run(command, env=surroundings(threads), check=False).returncode
    environment.restrict(allowed)
    return code


if __name__ == "__main__":
    sys.exit(main())
