"""tracejit.distributed: what programs ask about process groups.  There are none: every question is answered so, and none can be made."""

from __future__ import annotations

import enum
from typing import Any, NoReturn

from tracejit.core.missing import missing_names

__all__ = [
    "Backend", "FileStore", "HashStore", "ProcessGroup", "ReduceOp", "Store", "TCPStore", "all_gather", "all_gather_into_tensor",
    "all_gather_object", "all_reduce", "all_to_all", "barrier", "broadcast", "broadcast_object_list",
    "destroy_process_group", "gather", "gather_object", "get_backend", "get_global_rank", "get_rank", "get_world_size",
    "group", "init_process_group", "irecv", "is_available", "is_gloo_available", "is_initialized", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched", "is_xccl_available", "isend", "monitored_barrier", "new_group", "recv",
    "reduce", "reduce_op", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
]  # fmt: skip


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_nccl_available() -> bool:
    """False."""
    return False


def is_gloo_available() -> bool:
    """False."""
    return False


def is_mpi_available() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """False."""
    return False


def _refusing(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"distributed.{name}(): there are no process groups in tracejit; ask distributed.is_available() first")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Raises RuntimeError: there are no process groups."
    return function


init_process_group = _refusing("init_process_group")
destroy_process_group = _refusing("destroy_process_group")
get_rank = _refusing("get_rank")
get_world_size = _refusing("get_world_size")
barrier = _refusing("barrier")
broadcast = _refusing("broadcast")
all_reduce = _refusing("all_reduce")
all_gather = _refusing("all_gather")
all_gather_into_tensor = _refusing("all_gather_into_tensor")
all_gather_object = _refusing("all_gather_object")
all_to_all = _refusing("all_to_all")
broadcast_object_list = _refusing("broadcast_object_list")
gather = _refusing("gather")
gather_object = _refusing("gather_object")
get_backend = _refusing("get_backend")
get_global_rank = _refusing("get_global_rank")
irecv = _refusing("irecv")
isend = _refusing("isend")
monitored_barrier = _refusing("monitored_barrier")
new_group = _refusing("new_group")
recv = _refusing("recv")
reduce = _refusing("reduce")
reduce_scatter = _refusing("reduce_scatter")
reduce_scatter_tensor = _refusing("reduce_scatter_tensor")
scatter = _refusing("scatter")
scatter_object_list = _refusing("scatter_object_list")
send = _refusing("send")


_all_gather_base, _reduce_scatter_base = _refusing("_all_gather_base"), _refusing("_reduce_scatter_base")


class ReduceOp(enum.Enum):
    """What all_reduce() would make of the tensors of all processes."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = range(8)


reduce_op = ReduceOp  # the older name


class Backend:
    """The names of what carries tensors between processes."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"


class ProcessGroup:
    """Raises RuntimeError: there are no process groups."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"distributed.{type(self).__name__}(): there are no process groups in tracejit; use one process")


class Store(ProcessGroup):
    """Raises RuntimeError: there are no processes to share values with."""


class TCPStore(Store):
    """Raises RuntimeError: there are no processes to share values with."""


class FileStore(Store):
    """Raises RuntimeError: there are no processes to share values with."""


class HashStore(Store):
    """Raises RuntimeError: there are no processes to share values with."""


class group:  # noqa: N801  (PyTorch's name)
    """The group of all processes, which there is not."""

    WORLD = None


def is_xccl_available() -> bool:
    """False."""
    return False


__getattr__ = missing_names(__name__)
