"""The process group: the processes that compute together, made by `init_process_group`, and what can be asked about it.

Recordings look into these functions as into the program's own, so a compiled function is guarded on the group, its size and its rank.

Must not know: what moves between the processes.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np

from tracejit.distributed import launch
from tracejit.distributed.exchange import Communicator
from tracejit.distributed.ledger import LEDGERS, Ledger
from tracejit.tensor import Tensor, wrap

__all__ = [
    "Group", "ProcessGroup", "current", "destroy_process_group", "get_backend", "get_global_rank", "get_rank", "get_world_size",
    "group", "init_process_group", "is_initialized",
]  # fmt: skip

_NOT_INITIALIZED: Final = "Default process group has not been initialized, please make sure to call init_process_group."


class ProcessGroup:
    """The processes that compute together.  Made by `init_process_group`, not by programs.

    number: of this group among those of the process; programs name it so.  sequence: int64[], the number of the next collective."""

    def __init__(self, communicator: Any = None, number: int = -1) -> None:
        if not isinstance(communicator, Communicator):
            raise RuntimeError("distributed.ProcessGroup(): programs do not make groups; call distributed.init_process_group()")
        self.communicator = communicator
        self.number = number
        self.world_size = communicator.size
        self.own_rank = communicator.rank
        self.sequence: Tensor = wrap(np.zeros((), np.int64))
        LEDGERS[number] = Ledger(communicator, self.sequence._array)

    def rank(self) -> int:
        """The number of this process in the group."""
        return self.own_rank

    def size(self) -> int:
        """How many processes there are."""
        return self.world_size


_next_number = itertools.count().__next__


class group:  # noqa: N801  (PyTorch's name)
    """`group.WORLD` is the group of all processes, None until `init_process_group` has made it."""

    WORLD: ProcessGroup | None = None


Group = ProcessGroup | None


def current(given: Any = None) -> ProcessGroup:
    """The group that a function was given; None stands for all processes.  Raises ValueError before init_process_group()."""
    found = group.WORLD
    if found is None:
        raise ValueError(_NOT_INITIALIZED)
    if given is not None and given is not found:
        raise ValueError(f"distributed: expected None or group.WORLD, got {given!r}: there is one group")
    return found


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Make the group of all processes that mpirun has started.

    backend: "mpi"; None is "mpi" where mpi4py is installed, else one process without MPI.  world_size, rank: what the program
    expects, if it says so.  The other arguments are PyTorch's and say nothing here: the launcher tells who belongs together.

    Each process then computes with its share of the cores of its machine, unless TRACEJIT_NUM_THREADS, OMP_NUM_THREADS or
    set_num_threads() has said with how many; and an exception that nobody catches ends all processes.

    Raises ValueError where there is a group already, or world_size or rank is not what MPI says; RuntimeError for other backends, and
    where MPI is missing or was started by the launcher of another MPI."""
    del init_method, timeout, store, group_name, pg_options, device_id
    if group.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if backend not in (None, "mpi", "cpu:mpi"):
        raise RuntimeError(
            f"init_process_group(): there is no backend {backend!r} here: use 'mpi', and start the program with mpirun"
        )
    mpi = launch.world(required=backend is not None)
    communicator = Communicator(mpi)
    for name, expected, found in (("world_size", world_size, communicator.size), ("rank", rank, communicator.rank)):
        if expected not in (-1, found):
            raise ValueError(
                f"init_process_group(): {name} is {expected}, but MPI says {found}; mpirun -n sets how many there are"
            )
    launch.share_cores(mpi)
    launch.end_together(mpi)
    group.WORLD = ProcessGroup(communicator, _next_number())


def destroy_process_group(group: Any = None) -> None:
    """Take the group apart; all processes do.  Raises ValueError where there is none."""
    found = current(group)
    _forget(found)
    found.communicator.free()
    launch.end_alone()


def _forget(found: ProcessGroup) -> None:
    group.WORLD = None
    del LEDGERS[found.number]


def is_initialized() -> bool:
    """Whether there is a process group."""
    return group.WORLD is not None


def get_rank(group: Any = None) -> int:
    """The number of this process, from 0 on.  Raises ValueError before init_process_group()."""
    return current(group).own_rank


def get_world_size(group: Any = None) -> int:
    """How many processes there are.  Raises ValueError before init_process_group()."""
    return current(group).world_size


def get_backend(group: Any = None) -> str:
    """The name of what carries tensors: "mpi".  Raises ValueError before init_process_group()."""
    current(group)
    return "mpi"


def get_global_rank(group: Any, group_rank: int) -> int:
    """The number of a process among all of them, which is the one it has in the group."""
    found = current(group)
    if not 0 <= group_rank < found.world_size:
        raise ValueError(f"get_global_rank(): expected a rank from 0 to {found.world_size - 1}, got {group_rank}")
    return group_rank
