"""Sequences of different lengths: padded into one tensor, or packed.

A packed sequence holds the elements of all sequences step by step, the longest sequence first: `batch_sizes[t]` of them are longer
than t.  What they were packed of goes with them (functional/packing.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tracejit.core.dtypes import int64
from tracejit.core.shapes import largest
from tracejit.functional import packing
from tracejit.ops.movement.copies import pad
from tracejit.ops.movement.views import slice_
from tracejit.ops.public.creation import full
from tracejit.ops.public.movement import cat, stack
from tracejit.tensor import Tensor, tensor

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence",
    "unpack_sequence", "unpad_sequence",
]  # fmt: skip


class _Packed(NamedTuple):
    data: Any
    batch_sizes: Any
    sorted_indices: Any
    unsorted_indices: Any


class PackedSequence(_Packed):
    """The data of sequences of different lengths.  sorted_indices lead to the order by length, unsorted_indices back (None for none)."""

    __slots__ = ()

    def __new__(
        cls, data: Any, batch_sizes: Any = None, sorted_indices: Any = None, unsorted_indices: Any = None
    ) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """With the data converted as by Tensor.to."""
        return type(self)(self.data.to(*args, **kwargs), self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def cpu(self) -> PackedSequence:
        """Itself."""
        return self

    def double(self) -> PackedSequence:
        """With the data as float64."""
        return type(self)(self.data.double(), self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def half(self) -> PackedSequence:
        """With the data as float16."""
        return type(self)(self.data.half(), self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def float(self) -> PackedSequence:
        """With the data as float32."""
        return type(self)(self.data.float(), self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    @property
    def is_cuda(self) -> bool:
        """False."""
        return False


def invert_permutation(permutation: Any) -> Any:
    """The permutation that undoes this one; None for None."""
    return None if permutation is None else permutation.argsort()


def pack_padded_sequence(input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (T, N, ...) that were padded; lengths: a tensor or numbers, descending unless enforce_sorted is false.

    Raises RuntimeError for lengths that are not sorted, not positive or too long."""
    if not isinstance(lengths, Tensor):
        lengths = tensor(list(lengths), dtype=int64)
    lengths = lengths.to(int64)
    if batch_first:
        input = input.transpose(0, 1)
    steps, batch = input.shape[:2]
    if lengths.ndim != 1 or lengths.shape[0] != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {lengths.numel()} (batch_size={batch})")
    if not batch or bool((lengths <= 0).any()):
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    order = positions = None
    if not enforce_sorted:
        order, positions = packing.descending(lengths)
        lengths, input = lengths.index_select(0, order), input.index_select(1, order)
    elif bool((lengths[1:] > lengths[:-1]).any()):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False` to "
            "pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX exportability."
        )
    if bool((lengths > steps).any()):
        raise RuntimeError(f"pack_padded_sequence(): expected lengths of at most {steps}, got {int(lengths.max())}")
    values, lengths, inside = packing.padded(input, lengths)
    return PackedSequence(packing.pack(values, lengths, inside), packing.batch_sizes(inside), order, positions)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Any, Any]:
    """The inverse of pack_padded_sequence: (padded sequences, lengths)."""
    known = packing.unpacked(sequence.data)
    if known is None:
        values, lengths = _unpacked(sequence, padding_value)
    else:
        values, lengths, inside = known
        values = packing.filled(values, inside, padding_value)
    steps = values.shape[0]
    if total_length is None:
        if not bool(lengths.max() == steps):  # else its number is not looked at
            values = values[: int(lengths.max())]
    elif total_length >= steps:
        rest = (total_length - steps, *values.shape[1:])
        values = values if total_length == steps else cat([values, full(rest, padding_value, dtype=values.dtype)])
    elif bool(lengths.max() > total_length):
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got total_length="
            f"{total_length} and max sequence length being {int(lengths.max())}"
        )
    else:
        values = values[:total_length]
    order = sequence.unsorted_indices
    if order is None:
        values, lengths = values.clone(), lengths.clone()
    else:
        values, lengths = values.index_select(1, order), lengths.index_select(0, order)
    return (values.transpose(0, 1).contiguous() if batch_first else values), lengths


def _unpacked(sequence: PackedSequence, padding_value: float) -> tuple[Any, Any]:
    """(padded sequences (T, N, ...), lengths) of data of which nothing else is known."""
    batch_sizes = sequence.batch_sizes.tolist()
    data, batch, start, steps = sequence.data, batch_sizes[0], 0, []
    rest = tuple(data.shape[1:])
    for size in batch_sizes:
        step = data[start : start + size]
        if size < batch:
            step = cat([step, full((batch - size, *rest), padding_value, dtype=data.dtype)])
        steps.append(step)
        start += size
    return stack(steps), tensor([sum(1 for size in batch_sizes if size > i) for i in range(batch)], dtype=int64)


def pad_sequence(
    sequences: Iterable[Any], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Any:
    """Sequences (length, ...) as one tensor (T, N, ...), the shorter ones filled up with padding_value."""
    items = list(sequences)
    if padding_side not in ("right", "left"):
        raise RuntimeError(f"Expected padding_side to be 'left' or 'right', but got {padding_side!r}")
    if not items:
        raise RuntimeError("received an empty list of sequences")
    longest = largest([x.shape[0] for x in items])
    filled = []
    for x in items:
        # Two elements more than are needed: a recording for many lengths does not depend on which is the longest.
        missing, none = (longest - x.shape[0] + 2, *[0] * (x.ndim - 1)), (0,) * x.ndim
        low, high = (none, missing) if padding_side == "right" else (missing, none)
        longer, start = pad.of(x, padding_value, low=low, high=high), 0 if padding_side == "right" else 2
        filled.append(slice_.of(longer, dim=0, start=start, stop=start + longest, step=1))
    return stack(filled, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """The inverse of pad_sequence: a list of sequences."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    sizes = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    return [padded_sequences[i, :size] for i, size in enumerate(sizes)]


def pack_sequence(sequences: Sequence[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences, the longest first unless enforce_sorted is false."""
    lengths = [x.shape[0] for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """The inverse of pack_sequence: a list of sequences."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)
