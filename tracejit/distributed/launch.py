"""What a process finds out about the other processes that were started with it, and what becomes of them if it dies.

`world()` is the communicator of all processes that the launcher (mpirun, mpiexec) has started.  `share_cores()` sets the number
of threads so that the processes of a machine share its cores.  `end_together()`: an exception that nobody catches ends all
processes; MPI alone would let the others wait for ever.

Must not know: tensors, process groups.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import time
import traceback
from types import TracebackType
from typing import Any, Final

from tracejit.core import thread_share
from tracejit.core.lazy import lazy_module

__all__ = ["end_alone", "end_together", "has_mpi", "launched", "share_cores", "world"]

MPI: Any = lazy_module("mpi4py.MPI")
_INSTALL: Final = "install it with: pip install 'tracejit[mpi]'"
_SIZES: Final = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")
"""Variables in which launchers of MPI (MPICH, Open MPI) tell how many processes they have started."""

_PASSING_ON: Final = 0.3
"""Seconds that a launcher has to pass on what a process has written, before it ends all of them."""


def has_mpi() -> bool:
    """Whether mpi4py is installed.  It is not imported: that would start MPI."""
    return importlib.util.find_spec("mpi4py") is not None


def launched() -> int:
    """How many processes a launcher of MPI says it has started; 1 without a launcher."""
    told = [os.environ.get(name, "") for name in _SIZES]
    return max((int(text) for text in told if text.isdecimal()), default=1)


def world(required: bool) -> Any:
    """mpi4py's communicator of all processes; None for one process without MPI.

    required: whether there must be MPI.  Raises RuntimeError where there is none but is needed, and where the launcher and the MPI
    library do not know each other, so that each process would take itself for the only one."""
    count = launched()
    if not has_mpi():
        if required or count > 1:
            started = f"the launcher has started {count} processes, but " if count > 1 else ""
            raise RuntimeError(f"init_process_group(): {started}mpi4py is not installed; {_INSTALL}")
        return None
    try:
        communicator = MPI.COMM_WORLD
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(f"init_process_group(): mpi4py finds no MPI library ({error}); {_INSTALL}") from error
    size = int(communicator.Get_size())
    if size < count:
        library = MPI.Get_library_version().partition("\n")[0].strip()
        raise RuntimeError(
            f"init_process_group(): the launcher has started {count} processes, but the MPI library ({library}) knows of {size}: they "
            "belong to different MPIs; start the program with the mpirun that stands beside this Python"
        )
    told = os.environ.get("WORLD_SIZE", "")
    if told.isdecimal() and int(told) != size:
        raise RuntimeError(
            f"init_process_group(): WORLD_SIZE is {told}, but MPI has started {size} processes; start the program with "
            f"mpirun -n {told} python ..., or unset WORLD_SIZE"
        )
    return communicator


def share_cores(communicator: Any) -> int | None:
    """Set the number of threads to this process's share of the cores that it may run on (core/thread_share.py); returns it.

    The processes that share its cores are those of its machine that may run on one of them: a launcher may have given each its own."""
    if communicator is None:
        return None
    machine = communicator.Split_type(MPI.COMM_TYPE_SHARED)
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    everybody: list[set[int]] = machine.allgather(own)
    machine.Free()
    return thread_share.share(sum(not own.isdisjoint(other) for other in everybody))


_hooks: list[Any] = []  # the one for uncaught exceptions, and the one before it


def end_together(communicator: Any) -> None:
    """From now on an exception that nobody catches is reported with the rank, and ends all processes."""
    if communicator is None or _hooks:
        return
    rank, size, before = communicator.Get_rank(), communicator.Get_size(), sys.excepthook

    def end(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        try:
            before(kind, error, where)
            what = traceback.format_exception_only(kind, error)[-1].strip().partition("\n")[0]
            print(f"rank {rank} of {size} on {socket.gethostname()} ended with {what}: all ranks are ended", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            time.sleep(_PASSING_ON)
        finally:
            communicator.Abort(1)

    _hooks[:] = [end, before]
    sys.excepthook = end


def end_alone() -> None:
    """Undo `end_together`."""
    if _hooks and sys.excepthook is _hooks[0]:  # else the program has put its own in its place
        sys.excepthook = _hooks[1]
    _hooks.clear()
