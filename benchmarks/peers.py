"""Implementations by other libraries, found by name when asked for.

torch runs the very source of the row (the rows are written against PyTorch's interface); JAX and hand-written Numba
have their own (jax_rows.py, numba_rows.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from benchmarks.workload import Side, Workload, unchanged

__all__ = ["PEERS", "load"]

PEERS = ("torch", "torch.compile", "jax", "numba")
_OWN_ROWS = {
    "jax": "jax.jit, block_until_ready on each call, its own thread pool",
    "numba": "kernels written by hand for the row, gradients included; np.dot through SciPy's BLAS",
}


def load(names: Sequence[str], threads: int) -> tuple[dict[str, Callable[[Workload], Side | None]], list[str]]:
    """Makers of the peers' sides (None for a row that a peer does not have), and a line about each for the report.

    threads: how many torch may use, 0 for its own choice; JAX always has its own choice.
    Raises ModuleNotFoundError where the library is not installed."""
    makers: dict[str, Callable[[Workload], Side | None]] = {}
    notes: list[str] = []
    for name in names:
        if name in _OWN_ROWS:
            version = importlib.import_module(name).__version__
            sides = importlib.import_module(f"benchmarks.{name}_rows").SIDES
            makers[name] = lambda workload, sides=sides: sides[workload.name]() if workload.name in sides else None  # type: ignore[misc]
            notes.append(f"{name} {version}: {_OWN_ROWS[name]}")
            continue
        torch = importlib.import_module("torch")
        if threads:
            torch.set_num_threads(threads)
        if name == "torch":
            makers[name] = lambda workload, torch=torch: workload.build(torch, unchanged)  # type: ignore[misc]
            notes.append(f"torch {torch.__version__}: eager, {torch.get_num_threads()} threads")
        else:
            makers[name] = lambda workload, torch=torch: workload.build(torch, torch.compile) if workload.compiled else None  # type: ignore[misc]
            notes.append(f"torch.compile {torch.__version__}: {torch.get_num_threads()} threads, default mode")
    return makers, notes
