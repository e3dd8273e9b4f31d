"""Collectives on tensors, with PyTorch's names: each process calls the same ones in the same order.

Recordings look into these functions as into the program's own: what they do to tensors is one operation (operation.py) and
writes.  Under `compile` they are part of the program, and asynchronous ones are done at once.

Gradients do not flow through them, as in PyTorch.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from tracejit.autograd.grad_mode import no_grad
from tracejit.core.interpreter import is_recording
from tracejit.distributed.group import Group, ProcessGroup, current
from tracejit.distributed.operation import Work, awaited, begun, exchanged, started
from tracejit.functions import stack
from tracejit.tensor import Tensor

__all__ = [
    "ReduceOp", "all_gather", "all_gather_into_tensor", "all_reduce", "broadcast", "gather", "reduce", "reduce_op", "scatter",
]  # fmt: skip


class ReduceOp(enum.Enum):
    """What all_reduce() and reduce() make of the tensors of all processes, in the order of the ranks; AVG divides the sum by their
    number."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = range(8)


reduce_op = ReduceOp  # the older name


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Group = None, async_op: bool = False) -> Work | None:
    """Replace `tensor`, in each process, by the sum (AVG, PRODUCT, MIN ...) of the tensors of all processes.

    tensor: any shape and strides, the same shape and dtype in all processes.  The bits are the same in all processes, and in all
    runs with as many of them: elements are combined in the order of the ranks; float16 and bfloat16 are computed with in float32
    and rounded once.

    async_op: return a Work at once; its wait() puts the result into `tensor`, which must be left alone until then.

    Raises RuntimeError for AVG of integers or bools, and for bitwise operations on floating-point tensors; ValueError before
    init_process_group()."""
    found, name = current(group), _reduction("all_reduce", tensor, op)
    if async_op and not is_recording():
        return started(tensor.detach(), found.number, name)
    return _done(tensor, _exchange(tensor, found, "all_reduce", name), async_op)


def reduce(
    tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Group = None, async_op: bool = False
) -> Work | None:
    """The same for process `dst` alone (0 unless given); in the others `tensor` stays what it is.

    Raises what all_reduce() raises, and ValueError for a `dst` that is no process."""
    found, name = current(group), _reduction("reduce", tensor, op)
    return _done(tensor, _exchange(tensor, found, "reduce", name, member("reduce", found, dst)), async_op)


def broadcast(tensor: Tensor, src: int | None = None, group: Group = None, async_op: bool = False) -> Work | None:
    """Replace `tensor`, in each process, by that of process `src` (0 unless given).  Shapes and dtypes must be the same in all.

    Raises ValueError for a `src` that is no process."""
    found = current(group)
    return _done(tensor, _exchange(tensor, found, "broadcast", "", member("broadcast", found, src)), async_op)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Group = None, async_op: bool = False) -> Work | None:
    """Fill `tensor_list`, in each process, with the tensors of all processes, in the order of the ranks.

    Raises ValueError where the list has not one tensor for each process, or one of another shape or dtype than `tensor`."""
    found = current(group)
    _check_list("all_gather", tensor_list, tensor, found)
    _fill(tensor_list, _exchange(tensor, found, "all_gather"))
    return Work() if async_op else None


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Fill `output_tensor` with the tensors of all processes, stacked, shape (processes, *shape), or joined, shape
    (processes * shape[0], *shape[1:]).

    Raises ValueError for another shape, or another dtype than that of `input_tensor`."""
    found = current(group)
    shape = tuple(input_tensor.shape)
    stacked = (found.world_size, *shape)
    joined = (found.world_size * shape[0], *shape[1:]) if shape else stacked
    if tuple(output_tensor.shape) not in (stacked, joined) or output_tensor.dtype != input_tensor.dtype:
        raise ValueError(
            f"all_gather_into_tensor(): expected an output of shape {list(joined)} or {list(stacked)} and dtype {input_tensor.dtype}, "
            f"got {list(output_tensor.shape)} and {output_tensor.dtype}"
        )
    result = _exchange(input_tensor, found, "all_gather")
    return _done(output_tensor, result.reshape(tuple(output_tensor.shape)), async_op)


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Fill `gather_list` of process `dst` (0 unless given) with the tensors of all processes; the others give no list.

    Raises ValueError where `dst` gives no list, another one does, or its tensors do not fit."""
    found = current(group)
    root = member("gather", found, dst)
    if (gather_list is not None and len(gather_list) > 0) != (found.own_rank == root):
        raise ValueError(f"gather(): expected gather_list from rank {root} and from no other; this is rank {found.own_rank}")
    if gather_list:
        _check_list("gather", gather_list, tensor, found)
    rows = _exchange(tensor, found, "gather", "", root)
    if gather_list:
        _fill(gather_list, rows)
    return Work() if async_op else None


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Replace `tensor`, in each process, by the one with the number of the process in the `scatter_list` of process `src` (0 unless
    given); the others give no list.

    Raises ValueError where `src` gives no list, another one does, or its tensors do not fit."""
    found = current(group)
    root = member("scatter", found, src)
    if (scatter_list is not None and len(scatter_list) > 0) != (found.own_rank == root):
        raise ValueError(f"scatter(): expected scatter_list from rank {root} and from no other; this is rank {found.own_rank}")
    if scatter_list:
        _check_list("scatter", scatter_list, tensor, found)
        rows = stack([x.detach() for x in scatter_list])
    else:
        rows = tensor.detach().expand((1, *tensor.shape))
    return _done(tensor, _exchange(rows, found, "scatter", "", root), async_op)


# --- what they are made of


def _exchange(x: Tensor, group: ProcessGroup, what: str, reduction: str = "", root: int = 0) -> Tensor:
    """What comes of a tensor; the number of the next collective moves on."""
    result, following = exchanged(
        x.detach(), group.sequence, what, reduction, root, group.number, group.world_size, group.own_rank == root
    )
    group.sequence.copy_(following)
    return result


def averaged(tensors: Sequence[Tensor], group: Group = None) -> list[Tensor]:
    """The averages over all processes: all are begun, in order, before any is waited for.  A program begins each as soon as its tensor is
    there."""
    found = current(group)
    numbers = []
    for x in tensors:
        following = begun(x.detach(), found.sequence, ReduceOp.AVG.name, found.number)
        found.sequence.copy_(following)
        numbers.append(following)
    return [awaited(x.detach(), following, found.number) for x, following in zip(tensors, numbers, strict=True)]


def _done(tensor: Tensor, result: Tensor, async_op: bool) -> Work | None:
    """Put the result in its place."""
    with no_grad():
        tensor.copy_(result)
    return Work() if async_op else None


def _fill(tensors: Sequence[Tensor], rows: Tensor) -> None:
    with no_grad():
        for number, tensor in enumerate(tensors):
            tensor.copy_(rows[number])


def _reduction(name: str, tensor: Tensor, op: Any) -> str:
    """The name of a reduction that there is for the dtype of a tensor."""
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{name}(): expected op to be a ReduceOp, got {type(op).__name__}")
    floating = tensor.dtype.is_floating_point
    if op is ReduceOp.AVG and not floating:
        raise RuntimeError(f"{name}(): ReduceOp.AVG is for floating-point tensors, got {tensor.dtype}; use SUM and divide")
    if op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR) and floating:
        raise RuntimeError(f"{name}(): ReduceOp.{op.name} is for integers and bools, got {tensor.dtype}")
    return op.name


def member(name: str, group: ProcessGroup, rank: int | None) -> int:
    """The process that is the source or the target."""
    found = 0 if rank is None else rank
    if not 0 <= found < group.world_size:
        raise ValueError(f"{name}(): expected a rank from 0 to {group.world_size - 1}, got {rank}")
    return found


def _check_list(name: str, tensors: Sequence[Tensor], tensor: Tensor, group: ProcessGroup) -> None:
    """Raises ValueError where a list has not one tensor like `tensor` for each process."""
    if len(tensors) != group.world_size:
        raise ValueError(f"{name}(): expected a list of {group.world_size} tensors, one for each process, got {len(tensors)}")
    for number, x in enumerate(tensors):
        if tuple(x.shape) != tuple(tensor.shape) or x.dtype != tensor.dtype:
            raise ValueError(
                f"{name}(): expected tensors of shape {list(tensor.shape)} and dtype {tensor.dtype} like the other argument, "
                f"got {list(x.shape)} and {x.dtype} at position {number}"
            )
