"""tracejit.multiprocessing: Python's multiprocessing under the name that PyTorch gives it, and `spawn`.

Tensors are sent as copies: no two processes share the memory of one.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from typing import Any

from tracejit.core.missing import missing_names

__all__ = [
    "ProcessExitedException", "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn",
    *multiprocessing.__all__,
]  # fmt: skip


class ProcessExitedException(RuntimeError):
    """A process that spawn() started did not end well."""


def get_all_sharing_strategies() -> set[str]:
    """{"copy"}: what is sent is copied."""
    return {"copy"}


def get_sharing_strategy() -> str:
    """How tensors are sent."""
    return "copy"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepts PyTorch's strategies of sharing memory, for none is shared.  Raises AssertionError for any other name."""
    if new_strategy not in ("copy", "file_descriptor", "file_system"):
        raise AssertionError(f"set_sharing_strategy(): unknown strategy {new_strategy!r}")


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """Run fn(number, *args) in `nprocs` new processes; returns them unless `join`, which waits for all.

    Raises ProcessExitedException if one of them ended with an error; the others are ended then."""
    context: Any = multiprocessing.get_context(start_method)
    processes = [context.Process(target=fn, args=(number, *args), daemon=daemon) for number in range(nprocs)]
    for process in processes:
        process.start()
    if not join:
        return processes
    try:
        for number, process in enumerate(processes):
            process.join()
            if process.exitcode:
                raise ProcessExitedException(f"process {number} terminated with exit code {process.exitcode}")
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
                process.join()
    return None


__getattr__ = missing_names(__name__)
