"""How arrays move between processes, by MPI (mpi4py), and how they are reduced.

Arrays move as bytes, so every dtype does.  Reductions are computed here, never by MPI, in the order of the ranks:
((x0 + x1) + x2) + ..., element by element.  So the bits of a result depend on the number of ranks and on nothing else: not on
the MPI library, the network, the size of the array, or the time of day.  float16 and bfloat16 move in 16 bits, are added in
float32, and are rounded once.

A reduction of at most SMALL bytes gathers the arrays of all ranks in every rank: one exchange.  A larger one is in two halves
(reduce-scatter and all-gather; Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH,
2005): each rank receives one part of all arrays and reduces it, then all ranks gather the parts.  Each rank sends and receives
2 (n - 1) / n times the bytes of the array, whatever the number n of ranks.

MPI matches collectives by their order on a communicator.  First halves are started in the order of the calls, and second halves
are too, on a communicator of their own, as soon as their turn comes.  So all ranks start both in the same order, though they
may come to it at different times; and processes may wait for them in any order, since none waits for anything else before it has
started its second halves.

Must not know: tensors, process groups.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np

from tracejit.core.dtypes import converted, from_numpy_dtype
from tracejit.core.lazy import lazy_module

__all__ = ["REDUCTIONS", "SMALL", "Communicator", "Reduction", "reduced"]

MPI: Any = lazy_module("mpi4py.MPI")
Array = np.ndarray[Any, Any]

SMALL: Final = 8192
"""Bytes up to which all ranks gather whole arrays: there the time of an exchange is its latency, and one is half of two."""

REDUCTIONS: Final[dict[str, Any]] = {
    "SUM": np.add, "AVG": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum, "BAND": np.bitwise_and,
    "BOR": np.bitwise_or, "BXOR": np.bitwise_xor,
}  # fmt: skip
"""What combines two arrays, by the name of the reduction; AVG then divides by the number of ranks."""


def reduced(rows: Array, reduction: str) -> Array:
    """The rows, one from each rank, combined in order.  Floating-point numbers of 16 bits are computed with in float32."""
    dtype = from_numpy_dtype(rows.dtype)
    if len(rows) == 1:
        return rows[0].copy()
    combine, wide = REDUCTIONS[reduction], np.dtype(np.float32) if dtype.is_reduced else rows.dtype
    total = combine(rows[0].astype(wide, copy=False), rows[1].astype(wide, copy=False))
    for row in rows[2:]:
        combine(total, row.astype(wide, copy=False), out=total)
    if reduction == "AVG":
        total /= len(rows)
    return converted(total, dtype) if dtype.is_reduced else total


def _bytes(array: Array) -> list[Any]:
    """A row-major array as mpi4py takes it."""
    return [array.reshape(-1).view(np.uint8), MPI.BYTE]


class Communicator:
    """The processes of a group, numbered from 0, and what they do together.  Each function is called by all of them, in the
    same order, with arrays of the same shape and dtype.

    mpi: a communicator of mpi4py, which this one copies; None: this process alone, without MPI."""

    __slots__ = ("_first", "_running", "_second", "_started", "rank", "size")

    def __init__(self, mpi: Any) -> None:
        self._first = None if mpi is None else mpi.Dup()
        self._second = None if mpi is None else mpi.Dup()
        self.rank: int = 0 if mpi is None else mpi.Get_rank()
        self.size: int = 1 if mpi is None else mpi.Get_size()
        self._started: deque[Reduction] = deque()  # whose second halves have not been started
        self._running: list[Reduction] = []  # whose second halves have: MPI writes to their memory, whether anyone waits or not

    def free(self) -> None:
        """Wait for what was started, and give the communicators back to MPI."""
        for work in (*self._started, *self._running):
            work.wait()
        for communicator in (self._first, self._second):
            if communicator is not None:
                communicator.Free()

    # -- reductions
    def start(self, array: Array, reduction: str) -> Reduction:
        """Begin to reduce the arrays of all ranks.  The array must be left alone until that has ended."""
        work = Reduction(self, array, reduction)
        self._started.append(work)
        return work

    def progress(self) -> None:
        """Start the second halves whose turn has come.  Does not wait."""
        while self._started and self._started[0].advance(wait=False):
            self._running.append(self._started.popleft())
        self._running = [work for work in self._running if not work.has_ended()]

    def advance_to(self, work: Reduction) -> None:
        """Start all second halves up to that of `work`."""
        while work in self._started:
            self._started[0].advance(wait=True)
            self._running.append(self._started.popleft())

    def settle(self) -> None:
        """Start all second halves.  Called before this process waits for anything else: another one may wait for a reduction first."""
        if self._started:
            self.advance_to(self._started[-1])

    def forget(self, work: Reduction) -> None:
        """`work` has ended."""
        if work in self._running:
            self._running.remove(work)

    def all_reduce(self, array: Array, reduction: str) -> Array:
        """The arrays of all ranks, reduced, in each of them."""
        return self.start(array, reduction).wait()

    def reduce(self, array: Array, reduction: str, root: int) -> Array:
        """The same in rank `root`; in the others their own array."""
        rows = self.gather(array.reshape(-1), root)
        return reduced(rows, reduction).reshape(array.shape) if self.rank == root else array.copy()

    # -- moves
    def broadcast(self, array: Array, root: int) -> Array:
        """The array of rank `root`."""
        self.settle()
        result = np.array(array, order="C")
        if self._first is not None:
            self._first.Bcast(_bytes(result), root)
        return result

    def all_gather(self, array: Array) -> Array:
        """The arrays of all ranks, stacked."""
        self.settle()
        result = np.empty((self.size, *array.shape), array.dtype)
        if self._first is None:
            result[0] = array
        else:
            self._first.Allgather(_bytes(np.ascontiguousarray(array)), _bytes(result))
        return result

    def gather(self, array: Array, root: int) -> Array:
        """The same in rank `root`; in the others an array without elements."""
        self.settle()
        result = np.empty((self.size if self.rank == root else 0, *array.shape), array.dtype)
        if self._first is None:
            result[0] = array
        else:
            self._first.Gather(_bytes(np.ascontiguousarray(array)), _bytes(result) if self.rank == root else None, root)
        return result

    def scatter(self, rows: Array, root: int) -> Array:
        """Row number `rank` of what rank `root` gives; the others give an array of the same shape, whose contents do not matter."""
        self.settle()
        result = np.empty(rows.shape[1:], rows.dtype)
        if self._first is None:
            result[...] = rows[0]
        else:
            sent = _bytes(np.ascontiguousarray(rows)) if self.rank == root else None
            self._first.Scatter(sent, _bytes(result), root)
        return result

    # -- from one rank to another
    def send(self, array: Array, to: int, tag: int) -> Any:
        """Begin to send; returns mpi4py's request, which keeps the bytes."""
        assert self._first is not None
        return self._first.Isend(_bytes(np.array(array, order="C")), to, tag)

    def receive(self, array: Array, source: int | None, tag: int) -> int:
        """Fill a row-major array with what a rank, or any, sends; returns which."""
        self.settle()
        assert self._first is not None
        status = MPI.Status()
        self._first.Recv(_bytes(array), MPI.ANY_SOURCE if source is None else source, tag, status)
        return int(status.Get_source())

    # -- objects, pickled
    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.settle()
        if self._first is not None:
            self._first.Barrier()

    def broadcast_object(self, value: Any, root: int) -> Any:
        """What rank `root` gives."""
        self.settle()
        return value if self._first is None else self._first.bcast(value, root)

    def all_gather_object(self, value: Any) -> list[Any]:
        """What all ranks give."""
        self.settle()
        return [value] if self._first is None else self._first.allgather(value)

    def gather_object(self, value: Any, root: int) -> list[Any] | None:
        """The same in rank `root`; None in the others."""
        self.settle()
        return [value] if self._first is None else self._first.gather(value, root)

    def scatter_object(self, values: list[Any] | None, root: int) -> Any:
        """Element number `rank` of what rank `root` gives."""
        self.settle()
        if self._first is None:
            assert values is not None
            return values[0]
        return self._first.scatter(values, root)

    # -- of Reduction
    def begin_first(self, sent: Array, received: Array, whole: bool) -> Any:
        """whole: each rank gets all that is sent; else one row of it."""
        assert self._first is not None
        exchange = self._first.Iallgather if whole else self._first.Ialltoall
        return exchange(_bytes(sent), _bytes(received))

    def begin_second(self, sent: Array, received: Array) -> Any:
        """Each rank gets all that is sent."""
        assert self._second is not None
        return self._second.Iallgather(_bytes(sent), _bytes(received))


class Reduction:
    """A reduction that goes on while the process computes.  `wait()` gives the result."""

    __slots__ = (
        "_communicator", "_count", "_kept", "_received", "_reduction", "_request", "_result", "_shape", "_whole", "was_awaited",
    )  # fmt: skip

    def __init__(self, communicator: Communicator, array: Array, reduction: str) -> None:
        size = communicator.size
        self.was_awaited = False
        self._communicator, self._reduction = communicator, reduction
        self._shape, self._count, self._whole = array.shape, array.size, array.nbytes <= SMALL
        self._result: Array | None = None
        self._received: Array | None = None
        self._kept: Array | None = None  # what MPI reads until the request is complete
        self._request: Any = None
        if size == 1:
            self._result = reduced(array.reshape(1, -1), reduction)
            return
        length = array.size if self._whole else -(-array.size // size)
        sent = np.ascontiguousarray(array).reshape(-1)
        if not self._whole and length * size > array.size:  # the last part is longer than what there is
            sent = np.concatenate([sent, np.zeros(length * size - array.size, array.dtype)])
        received: Array = np.empty((size, length), array.dtype)
        self._received, self._kept = received, sent
        self._request = communicator.begin_first(sent, received, self._whole)

    def advance(self, wait: bool) -> bool:
        """Begin the second half, if the first one is complete, or after waiting for it.  Whether it has begun."""
        if self._request is None:
            return True
        if not wait and not self._request.Test():
            return False
        self._request.Wait()
        assert self._received is not None
        part = reduced(self._received, self._reduction)
        self._received = self._request = None
        if self._whole:
            self._result = part
        else:
            self._kept, self._result = part, np.empty(part.size * self._communicator.size, part.dtype)
            self._request = self._communicator.begin_second(part, self._result)
        return True

    def has_ended(self) -> bool:
        """Whether the result is there."""
        if self._result is not None and self._request is not None and self._request.Test():
            self._request = self._kept = None
        return self._result is not None and self._request is None

    def is_complete(self) -> bool:
        """Whether wait() would return at once."""
        self._communicator.progress()
        return self.has_ended()

    def wait(self) -> Array:
        """The reduced array, which is the caller's own."""
        self._communicator.advance_to(self)
        if self._request is not None:
            self._request.Wait()
            self._request = self._kept = None
        self._communicator.forget(self)
        self.was_awaited = True
        assert self._result is not None
        return self._result[: self._count].reshape(self._shape)
