"""tracejit.distributed: several processes compute together, by MPI, with PyTorch's names.

`mpirun -n 4 python train.py` starts the processes; in each of them `init_process_group()` finds the others.  Needs mpi4py and an MPI
(`pip install 'tracejit[mpi]'`); without them there is one process, rank 0 of 1.

  exchange.py     how arrays move, and the order in which they are reduced
  launch.py       what the launcher has started, threads of each process, what happens if one dies
  ledger.py       the numbers of collectives, and what keeps each from being done twice
  group.py        the group
  operation.py    the primitive
  collectives.py  all_reduce and the others, on tensors
  objects.py      objects, messages, barrier

Must not know: modules, optimizers, data sets, the compiler.
Start reading: ledger.py (the invariant), exchange.py, collectives.py.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tracejit.core.missing import missing_names
from tracejit.distributed import launch
from tracejit.distributed.collectives import (
    ReduceOp,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    broadcast,
    gather,
    reduce,
    reduce_op,
    scatter,
)
from tracejit.distributed.group import (
    ProcessGroup,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_initialized,
)
from tracejit.distributed.objects import (
    all_gather_object,
    barrier,
    broadcast_object_list,
    gather_object,
    irecv,
    isend,
    recv,
    scatter_object_list,
    send,
)
from tracejit.distributed.operation import Work

__all__ = [
    "Backend", "FileStore", "HashStore", "ProcessGroup", "ReduceOp", "Store", "TCPStore", "Work", "all_gather", "all_gather_into_tensor",
    "all_gather_object", "all_reduce", "all_to_all", "barrier", "broadcast", "broadcast_object_list",
    "destroy_process_group", "gather", "gather_object", "get_backend", "get_global_rank", "get_rank", "get_world_size",
    "group", "init_process_group", "irecv", "is_available", "is_gloo_available", "is_initialized", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched", "is_xccl_available", "isend", "monitored_barrier", "new_group", "recv",
    "reduce", "reduce_op", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
]  # fmt: skip


def is_available() -> bool:
    """Whether several processes can compute together: whether mpi4py is installed."""
    return launch.has_mpi()


def is_mpi_available() -> bool:
    """Whether mpi4py is installed."""
    return launch.has_mpi()


def is_nccl_available() -> bool:
    """False."""
    return False


def is_gloo_available() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """False."""
    return False


def is_xccl_available() -> bool:
    """False."""
    return False


def _refusing(name: str, instead: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"distributed.{name}(): not in tracejit; {instead}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Raises RuntimeError: {instead}."
    return function


all_to_all = _refusing("all_to_all", "use all_gather() and take the own part")
monitored_barrier = _refusing("monitored_barrier", "use barrier()")
new_group = _refusing("new_group", "there is one group, of all processes")
reduce_scatter = _refusing("reduce_scatter", "use all_reduce() and take the own part")
reduce_scatter_tensor = _refusing("reduce_scatter_tensor", "use all_reduce() and take the own part")
_all_gather_base = all_gather_into_tensor
_reduce_scatter_base = _refusing("_reduce_scatter_base", "use all_reduce() and take the own part")


class Backend:
    """The names of what carries tensors between processes; "mpi" is the one that there is."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"


class Store:
    """Raises RuntimeError: processes find each other by MPI."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            f"distributed.{type(self).__name__}(): not in tracejit; processes that mpirun has started find each other, and "
            "share objects by broadcast_object_list()"
        )


class TCPStore(Store):
    """Raises RuntimeError: processes find each other by MPI."""


class FileStore(Store):
    """Raises RuntimeError: processes find each other by MPI."""


class HashStore(Store):
    """Raises RuntimeError: processes find each other by MPI."""


__getattr__ = missing_names(__name__)
