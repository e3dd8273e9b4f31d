"""Collectives on Python's objects, messages between two processes, and `barrier`.

Objects are pickled, so only take them from processes that you trust.  What these functions do is not part of a program: a
function under `compile` that calls one of them runs eagerly, with the reason `impure_call`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.distributed.collectives import member
from tracejit.distributed.exchange import Communicator
from tracejit.distributed.group import Group, ProcessGroup, current
from tracejit.distributed.operation import Work
from tracejit.ops.movement.copies import write
from tracejit.tensor import Tensor, wrap

__all__ = [
    "all_gather_object", "barrier", "broadcast_object_list", "gather_object", "irecv", "isend", "recv", "scatter_object_list", "send",
]  # fmt: skip


def barrier(group: Group = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all processes have called it."""
    del device_ids
    current(group).communicator.barrier()
    return Work() if async_op else None


def all_gather_object(object_list: list[Any], obj: Any, group: Group = None) -> None:
    """Fill `object_list` with the objects of all processes, in the order of the ranks.  Raises ValueError for a list of another length."""
    found = current(group)
    if len(object_list) != found.world_size:
        raise ValueError(f"all_gather_object(): expected a list of {found.world_size} places, got {len(object_list)}")
    object_list[:] = found.communicator.all_gather_object(obj)


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Group = None, device: Any = None) -> None:
    """Replace the objects of the list by those of process `src` (0 unless given)."""
    del device
    found = current(group)
    object_list[:] = found.communicator.broadcast_object(object_list, member("broadcast_object_list", found, src))


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Group = None) -> None:
    """Fill the list of process `dst` (0 unless given) with the objects of all processes; the others give none."""
    found = current(group)
    root = member("gather_object", found, dst)
    if (object_gather_list is not None) != (found.own_rank == root):
        raise ValueError(
            f"gather_object(): expected object_gather_list from rank {root} and from no other; this is rank {found.own_rank}"
        )
    gathered = found.communicator.gather_object(obj, root)
    if object_gather_list is not None:
        assert gathered is not None
        object_gather_list[:] = gathered


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: Group = None,
) -> None:
    """Put into the first place of the output list the object that stands for this process in the input list of process `src`.

    Raises ValueError for an empty output list, and where `src` has not one object for each process."""
    found = current(group)
    root = member("scatter_object_list", found, src)
    if not scatter_object_output_list:
        raise ValueError("scatter_object_list(): expected an output list with a place for the result, got an empty one")
    given = None
    if found.own_rank == root:
        given = list(scatter_object_input_list or ())
        if len(given) != found.world_size:
            raise ValueError(
                f"scatter_object_list(): expected {found.world_size} objects, one for each process, got {len(given)}"
            )
    scatter_object_output_list[0] = found.communicator.scatter_object(given, root)


def send(tensor: Tensor, dst: int, group: Group = None, tag: int = 0) -> None:
    """Send a tensor to process `dst`, which receives it by recv()."""
    isend(tensor, dst, group, tag).wait()


def isend(tensor: Tensor, dst: int, group: Group = None, tag: int = 0) -> Any:
    """The same; returns at once.  The tensor may be changed before wait()."""
    found = _others("isend", current(group), dst)
    return _Sent(found.communicator, found.communicator.send(tensor._array, dst, tag))


def recv(tensor: Tensor, src: int | None = None, group: Group = None, tag: int = 0) -> int:
    """Fill a tensor with what process `src` sends, or any process; returns which.  Shape and dtype are those that were sent."""
    found = _others("recv", current(group), src)
    array = np.empty(tensor._array.shape, tensor._array.dtype)
    source = found.communicator.receive(array, src, tag)
    write(tensor.detach(), wrap(array))
    return source


def irecv(tensor: Tensor, src: int | None = None, group: Group = None, tag: int = 0) -> Any:
    """The same; returns at once, and its wait() receives."""
    _others("irecv", current(group), src)
    return _ToReceive(tensor, src, group, tag)


class _Sent(Work):
    def __init__(self, communicator: Communicator, request: Any) -> None:
        super().__init__()
        self._communicator, self._request = communicator, request

    def is_completed(self) -> bool:
        return bool(self._request.Test())

    def wait(self, timeout: Any = None) -> bool:
        self._communicator.settle()
        self._request.Wait()
        return True


class _ToReceive(Work):
    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        self._arguments: tuple[Any, ...] | None = arguments

    def is_completed(self) -> bool:
        return self._arguments is None

    def wait(self, timeout: Any = None) -> bool:
        if self._arguments is not None:
            recv(*self._arguments)
            self._arguments = None
        return True


def _others(name: str, group: ProcessGroup, rank: int | None) -> ProcessGroup:
    """The group, if `rank` is another process of it."""
    if rank is not None and (rank == group.own_rank or not 0 <= rank < group.world_size):
        raise ValueError(
            f"{name}(): expected the rank of another process, from 0 to {group.world_size - 1}, got {rank}; this is {group.own_rank}"
        )
    if group.world_size == 1:
        raise ValueError(f"{name}(): there is no other process")
    return group
