"""Padded sequences behind packed ones.

The data of packed sequences are as many elements as all sequences have, a number that depends on data.  So they have with them what they
were packed of: (values (T, N, ...), zeros behind the ends; lengths, int64 (N,); inside, bool (T, N), where there are elements).  Recurrent
layers, and whoever pads the sequences again, go on from that, and a recording does not compute the data unless somebody looks at them: it
holds for all lengths.
"""

from __future__ import annotations

from typing import Any, Final

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
    """(where the longest are, one after the other, those of one length in their order; which place in this each has), int64 (N,)."""
    count = lengths.shape[0]
    if count > _COMPARED:
        order = lengths.neg().argsort(stable=True)
        return order, order.argsort()
    number, row = arange(count), lengths.unsqueeze(1)
    before = (lengths > row) | ((lengths == row) & (number < number.unsqueeze(1)))
    places = before.sum(1)
    return zeros(count, dtype=int64).scatter(0, places, number), places


def pack(values: Any, lengths: Any, inside: Any) -> Any:
    """The elements step by step, (sum of lengths, ...)."""

    def elements() -> Any:
        steps, count, *rest = values.shape
        places = inside.reshape(-1).nonzero().reshape(-1)
        return values.reshape(product((steps, count)), *rest).index_select(0, places)

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
    """What `pack` was given to make these data; None where that is not known, or they were changed since."""
    found: Padded | None = getattr(data, "_unpacked", None)
    return found if data._version == 0 else None
