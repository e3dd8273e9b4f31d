"""Padded sequences behind packed ones.

The data of packed sequences are as many elements as all sequences have, a number that depends on data.  So they have with them what they
were packed of: (values (T, N, ...), zeros behind the ends; lengths, int64 (N,); inside, bool (T, N), where there are elements).  Recurrent
layers, and whoever pads the sequences again, go on from that, and a recording does not compute the data unless somebody looks at them: it
holds for all lengths.
"""

from __future__ import annotations

from typing import Any, Final

from tracejit.autograd.tape import edge_of
from tracejit.core.dtypes import int64
from tracejit.core.interpreter import state
from tracejit.core.shapes import product
from tracejit.ops.creation import full
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.public.creation import arange, zeros

__all__ = ["Padded", "batch_sizes", "descending", "filled", "pack", "padded", "unpacked"]

Padded = tuple[Any, Any, Any]
_COMPARED: Final = 512
"""So many lengths are compared with each other, which the program does, unlike sorting."""


def padded(values: Any, lengths: Any) -> Padded:
    """Sequences (T, N, ...) of these lengths, int64 (N,), with what is behind their ends left out."""
    inside = arange(values.shape[0]).unsqueeze(1) < lengths
    return filled(values, inside, 0), lengths, inside


def filled(values: Any, inside: Any, value: float) -> Any:
    """The values, this number behind the ends."""
    filling = value if values.dtype.is_floating_point else full(value, shape=(), dtype=values.dtype)  # it changes no dtype
    return where.of(inside.reshape(*inside.shape, *(1,) * (values.ndim - 2)), values, filling)


def descending(lengths: Any) -> tuple[Any, Any]:
    """(where the longest are, one after the other, those of one length in their order; which position in this each has), int64 (N,)."""
    count = lengths.shape[0]
    if count > _COMPARED:
        order = lengths.neg().argsort(stable=True)
        return order, order.argsort()
    number, row = arange(count), lengths.unsqueeze(1)
    before = (lengths > row) | ((lengths == row) & (number < number.unsqueeze(1)))
    positions = before.sum(1)
    return zeros(count, dtype=int64).scatter(0, positions, number), positions


def pack(values: Any, lengths: Any, inside: Any) -> Any:
    """The elements step by step, (sum of lengths, ...)."""

    def elements() -> Any:
        steps, count, *rest = values.shape
        positions = inside.reshape(-1).nonzero().reshape(-1)
        return values.reshape(product((steps, count)), *rest).index_select(0, positions)

    data = state.top.deferred(elements)
    data._unpacked = values, lengths, inside
    return data


def batch_sizes(inside: Any) -> Any:
    """How many sequences are longer than t, for each t, int64."""

    def sizes() -> Any:
        counts = inside.sum(1)
        return counts[counts > 0]

    return state.top.deferred(sizes)


def unpacked(data: Any) -> Padded | None:
    """What `pack` was given to make these data; None where that is not known, they may have been changed since, or their own gradient is
    asked for."""
    found: Padded | None = getattr(data, "_unpacked", None)
    return None if found is None or data._version or _is_observed(data) else found


def _is_observed(data: Any) -> bool:
    """Whether somebody has the memory of these data, or waits for their gradient."""
    storage = data._storage
    if data._hooks or (storage is not None and storage.exposed):
        return True
    if not data.requires_grad:
        return False
    if data.grad_fn is None:
        return True
    node, index = edge_of(data)
    return bool((node.hooks or {}).get(index))
