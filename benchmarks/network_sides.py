"""The columns of networks.py: a training step by each library, found by name.

A library that is not wanted is not imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from functools import partial
from typing import Final

from threadpoolctl import threadpool_limits

import tracejit
from benchmarks.network_models import Network, Sizes, step_side
from benchmarks.workload import Side, unchanged

__all__ = ["COLUMNS", "LIBRARIES", "installed", "limit_threads", "make_side"]

COLUMNS: Final = ("eager", "compiled", "torch", "torch.compile", "jax")
LIBRARIES: Final = {"eager": "tracejit", "compiled": "tracejit", "torch": "torch", "torch.compile": "torch", "jax": "jax"}


def installed(column: str) -> bool:
    """Whether the library of a column is there."""
    return importlib.util.find_spec(LIBRARIES[column]) is not None


def limit_threads(threads: int, *columns: str) -> None:
    """Before the first step of columns: so many threads for their libraries and for BLAS, 0 for their own choice. XLA knows one thread or
    its own choice."""
    if threads == 1 and "jax" in columns and "jax" not in sys.modules:
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    for library in {LIBRARIES[column] for column in columns}:
        importlib.import_module(library)
    if threads:
        tracejit.set_num_threads(threads)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads)
        threadpool_limits(threads)  # after the libraries are loaded: they bring pools of their own


def make_side(column: str, network: Network, sizes: Sizes) -> Side | None:
    """The step of a column; None for a network that it does not have.  Raises ModuleNotFoundError where its library is not installed."""
    if column in ("eager", "compiled"):
        return step_side(network, sizes, tracejit, tracejit.compile if column == "compiled" else unchanged)
    if column == "jax":
        side: Side | None = importlib.import_module("benchmarks.network_jax").side(network, sizes)
        return side
    torch = importlib.import_module("torch")
    if column == "torch":
        return step_side(network, sizes, torch, unchanged)
    logging.getLogger("torch").setLevel(logging.ERROR)
    importlib.import_module("torch._dynamo").reset()  # else it takes sizes that other networks had for ones that vary
    return step_side(network, sizes, torch, partial(torch.compile, dynamic=False))
