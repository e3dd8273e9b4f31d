"""DistributedDataParallel: one replica of a module in each process, whose gradients are averaged in the backward pass.

Gradients are averaged in buckets, which are filled with parameters in reverse order, about the order in which a backward pass
comes to them (Li et al.: PyTorch Distributed: Experiences on Accelerating Data Parallel Training, 2020).  In eager mode a bucket is
begun when its last gradient is there, while the pass goes on to the next one, and the end of the pass waits for all of them.
In a recording all buckets are begun, in the same order, with the same numbers, and then waited for: a compiled step begins each as soon
as its gradients are there, and goes on with the others (runtime/host.py).

Buckets are begun in their order in all processes, whatever the order in which gradients come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tracejit.autograd.grad_mode import is_grad_enabled, no_grad
from tracejit.core.dtypes import int64
from tracejit.core.interpreter import is_recording
from tracejit.distributed.collectives import ReduceOp, all_reduce, averaged, broadcast
from tracejit.distributed.group import current
from tracejit.distributed.operation import progress
from tracejit.functions import cat, zeros_like
from tracejit.nn.module import Module
from tracejit.tensor import Tensor, tensor
from tracejit.tensor.hooks import register_end_of_pass_hook

__all__ = ["DistributedDataParallel"]

_FIRST_BUCKET: Final = 1 << 20
"""Bytes of the first bucket, which is begun early, as PyTorch's."""


class _Bucket:
    """Parameters of one dtype whose gradients move together.  missing: those that this backward pass has not brought a gradient, by id."""

    def __init__(self, names: Sequence[str], parameters: Sequence[Tensor]) -> None:
        self.names, self.parameters = list(names), list(parameters)
        self.missing = {id(p) for p in parameters}

    def flat(self) -> Tensor:
        """All gradients in one tensor; zeros for those that there are none of."""
        return cat([(zeros_like(p) if p.grad is None else p.grad).detach().reshape(-1) for p in self.parameters])

    def put(self, flat: Tensor, used: Sequence[bool]) -> None:
        """Make parts of `flat` the gradients of those parameters that some process has used."""
        start = 0
        for parameter, is_used in zip(self.parameters, used, strict=True):
            stop = start + parameter.numel()
            part = flat[start:stop].reshape(tuple(parameter.shape))
            if parameter.grad is not None:
                parameter.grad.copy_(part)
            elif is_used:
                parameter.grad = part.clone()
            start = stop


def _buckets(named: Sequence[tuple[str, Tensor]], capacity: int) -> list[_Bucket]:
    """The parameters, the last one first, in buckets of at most `capacity` bytes, or of one parameter."""
    found: list[_Bucket] = []
    names: list[str] = []
    parameters: list[Tensor] = []
    size, most = 0, min(_FIRST_BUCKET, capacity)
    for name, parameter in reversed(named):
        if parameters and (size + parameter.nbytes > most or parameter.dtype != parameters[0].dtype):
            found.append(_Bucket(names, parameters))
            names, parameters, size, most = [], [], 0, capacity
        names.append(name)
        parameters.append(parameter)
        size += parameter.nbytes
    return [*found, _Bucket(names, parameters)] if parameters else found


class _Reducer:
    """Averages the gradients of parameters at the end of each backward pass while it is `enabled`."""

    def __init__(self, named: Sequence[tuple[str, Tensor]], group: Any, capacity: int, find_unused: bool) -> None:
        self.buckets = _buckets(named, capacity)
        self.group, self.find_unused, self.enabled = group, find_unused, True
        self.place = {id(p): bucket for bucket in self.buckets for p in bucket.parameters}
        self.begun: list[tuple[Tensor, Any]] = []
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(self.arrived)
                register_end_of_pass_hook(parameter, self.finish)

    def reset(self) -> None:
        """Begin anew, also where a backward pass did not come to its end."""
        for _, work in self.begun:
            work.wait()
        self.begun = []
        for bucket in self.buckets:
            bucket.missing = {id(p) for p in bucket.parameters}

    def arrived(self, parameter: Tensor) -> None:
        """A gradient is there: begin the buckets whose turn has come."""
        if not self.enabled or is_recording():
            return
        self.place[id(parameter)].missing.discard(id(parameter))
        while len(self.begun) < len(self.buckets) and not self.buckets[len(self.begun)].missing:
            self.begin(self.buckets[len(self.begun)])
        progress(self.group.number)

    def begin(self, bucket: _Bucket) -> None:
        """Begin to average a bucket."""
        flat = bucket.flat()
        self.begun.append((flat, all_reduce(flat, ReduceOp.AVG, self.group, async_op=True)))

    def finish(self, parameter: Tensor) -> None:
        """The pass is at its end: average what is left, wait, and put the averages in their places."""
        if not self.enabled:
            return
        recording = is_recording()
        if not self.find_unused:
            self.require_all(recording)
        if recording:
            flats = averaged([bucket.flat() for bucket in self.buckets], self.group)
        else:
            for bucket in self.buckets[len(self.begun) :]:
                self.begin(bucket)
            flats = [self.waited(flat, work) for flat, work in self.begun]
        used = [[True] * len(bucket.parameters) for bucket in self.buckets]
        if self.find_unused:
            used = self.used_anywhere()
        with no_grad():
            for bucket, flat, own in zip(self.buckets, flats, used, strict=True):
                bucket.put(flat, own)
        if not recording:
            self.reset()

    def waited(self, flat: Tensor, work: Any) -> Tensor:
        """A bucket that was begun, when it is there."""
        work.wait()
        return flat

    def require_all(self, recording: bool) -> None:
        """Raises RuntimeError where a parameter has no gradient: the other processes wait for it."""
        unused = [
            name
            for bucket in self.buckets
            for name, p in zip(bucket.names, bucket.parameters, strict=True)
            if (p.grad is None if recording else id(p) in bucket.missing)
        ]
        if unused:
            raise RuntimeError(
                f"DistributedDataParallel: the backward pass has brought no gradient to {', '.join(unused)}; leave such parameters out of "
                "the module, or pass find_unused_parameters=True"
            )

    def used_anywhere(self) -> list[list[bool]]:
        """For each parameter of each bucket, whether it has a gradient in some process."""
        own = [p.grad is not None for bucket in self.buckets for p in bucket.parameters]
        everywhere = tensor(own, dtype=int64)
        all_reduce(everywhere, ReduceOp.MAX, self.group)
        answers = iter(everywhere.tolist())
        return [[bool(next(answers)) for _ in bucket.parameters] for bucket in self.buckets]


class _NoSync:
    """The block of `no_sync()`."""

    def __init__(self, replica: DistributedDataParallel) -> None:
        self.replica, self.before = replica, replica.require_backward_grad_sync

    def __enter__(self) -> None:
        self.replica.require_backward_grad_sync = False

    def __exit__(self, *exception: object) -> None:
        self.replica.require_backward_grad_sync = self.before


class DistributedDataParallel(Module):
    """A module that is trained by several processes, each on its part of the data: each backward pass leaves in `.grad`, in all of
    them, the average of the gradients of all.

    All processes make the same module and call this after distributed.init_process_group(); they get the parameters and buffers of rank 0.
    Call it as the module.  The module itself is `.module`, and names in state_dict() begin with "module.", as PyTorch's.

    bucket_cap_mb: MB of gradients that are averaged at a time.
    broadcast_buffers: each forward pass begins with the buffers (running means) of rank 0.
    find_unused_parameters: some parameters may get no gradient in some passes, other ones in other processes; those that are used nowhere
        keep the gradient that they had, or none.  Else that is an error.
    device_ids, output_device: None or empty: there is the CPU.  The other arguments are PyTorch's; they change nothing here.

    Raises ValueError before init_process_group(), and for devices; RuntimeError for a module without a parameter that requires a
    gradient."""

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        super().__init__()
        del output_device, check_reduction, gradient_as_bucket_view, static_graph
        self.process_group = current(process_group)
        if device_ids:
            raise ValueError(f"DistributedDataParallel(): there are no devices {device_ids}: tracejit computes on the CPU only")
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient."
            )
        self.module = module
        self.dim, self.broadcast_buffers, self.find_unused_parameters = dim, broadcast_buffers, find_unused_parameters
        self.require_backward_grad_sync = True
        if init_sync:
            self._broadcast([*module.parameters(), *module.buffers()])
        capacity = int((25 if bucket_cap_mb is None else bucket_cap_mb) * (1 << 20))
        self._reducer = _Reducer(named, self.process_group, capacity, find_unused_parameters)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module makes of the inputs."""
        if is_grad_enabled():
            self._reducer.enabled = self.require_backward_grad_sync
            if not is_recording():
                self._reducer.reset()
        if self.broadcast_buffers and self.require_backward_grad_sync:
            self._broadcast(list(self.module.buffers()))
        return self.module(*inputs, **kwargs)

    def no_sync(self) -> _NoSync:
        """Gradients of what is computed (by the forward pass) in the block are not averaged; they add up, and the backward pass of what is
        computed after it averages the sums."""
        return _NoSync(self)

    def _broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Give tensors the values that they have in rank 0, those of one dtype together."""
        by_dtype: dict[str, list[Tensor]] = {}
        for x in tensors:
            by_dtype.setdefault(str(x.dtype), []).append(x)
        with no_grad():
            for same in by_dtype.values():
                flat = cat([x.detach().reshape(-1) for x in same])
                broadcast(flat, 0, self.process_group)
                start = 0
                for x in same:
                    x.copy_(flat[start : start + x.numel()].reshape(tuple(x.shape)))
                    start += x.numel()
