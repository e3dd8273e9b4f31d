"""What the figures of a run depend on: machine, versions, threads.  Two runs whose environments differ compare by ratios only."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

import tracejit

__all__ = ["describe", "limits", "one_line", "processors", "restrict"]

_PACKAGES = ("tracejit", "numpy", "numba", "llvmlite", "scipy", "scikit-learn", "torch", "jax", "jaxlib")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """The model's name where the system tells it, else the architecture."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def limits(threads: int) -> dict[str, str]:
    """Variables of a process's environment that limit the threads of tracejit and BLAS; none for 0."""
    names = ("TRACEJIT_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(threads)) if threads else {}


def processors() -> list[int]:
    """Those that this process may use, where the system tells."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def restrict(allowed: list[int]) -> None:
    """Have this process, and those that it starts, use these processors only, where the system can do so."""
    if allowed and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, allowed)


def describe(threads: int) -> dict[str, Any]:
    """For --json.  threads: what was asked for; the pools are as they are now; own_threads: of tracejit's."""
    pools = [
        {key: pool.get(key) for key in ("internal_api", "version", "num_threads", "architecture")} for pool in threadpool_info()
    ]
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "threads": threads,
        "own_threads": tracejit.get_num_threads(),
        "pools": pools,
        "versions": {package: version for package in _PACKAGES if (version := _version(package)) is not None},
    }


def one_line(environment: dict[str, Any]) -> str:
    """The head of the printed output."""
    versions = environment["versions"]
    pools = {f"{pool['internal_api']} {pool['version']} {pool['num_threads']} threads" for pool in environment["pools"]}
    return (
        f"Python {environment['python']}, NumPy {versions['numpy']}, Numba {versions['numba']}, "
        f"{environment['processors']} x {environment['processor']}; tracejit {environment['own_threads']} threads, "
        f"{', '.join(sorted(pools)) or 'no BLAS found'}"
    )
