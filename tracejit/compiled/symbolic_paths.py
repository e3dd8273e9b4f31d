"""The recordings of a function that stand for more sizes of its arguments than their own.

The second different size of a dimension makes it symbolic: what is recorded then is recorded with symbolic sizes
(capture/recording/sized.py).  Where that says of a size that was recorded before, or is recorded later, what was really done, it is
trusted: the paths for sizes that follow are instances of it, and no Python of the function runs for them.

It must not know of entries more than for which sizes they were recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from tracejit.capture.recording.entry import Recording, calling
from tracejit.capture.recording.sized import SymbolicRecording
from tracejit.capture.session import tensors_among
from tracejit.cpython.size_table import Shapes
from tracejit.tensor.marks import marks

__all__ = ["SymbolicPaths"]

_MOST: Final = 8  # symbolic recordings of a function: branches of Python, modes
_ATTEMPTS: Final = 4  # of them that nothing confirmed, and then no more are made
_FITS: Final = object()


class Sized(Protocol):
    """A path that was recorded for some sizes."""

    recording: Recording
    sizes: Shapes


class SymbolicPaths:
    """What a function has met of sizes, and the symbolic recordings that came of it."""

    def __init__(self) -> None:
        self.recordings: tuple[SymbolicRecording, ...] = ()
        self._first: dict[tuple[int, ...], Shapes] = {}  # ranks of the arguments -> the shapes that came first
        self._varying: dict[tuple[int, ...], set[tuple[int, int]]] = {}
        self._unconfirmed = 0

    def dimensions(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[int, int]]:
        """The dimensions of the tensors among the arguments that are symbolic when this call is recorded."""
        tensors = tensors_among(args, kwargs)
        shapes = tuple([x._array.shape for x in tensors])
        ranks = tuple(map(len, shapes))
        first, varying = self._first.setdefault(ranks, shapes), self._varying.setdefault(ranks, set())
        for k, tensor in enumerate(tensors):
            varying.update([(k, d) for d, (a, b) in enumerate(zip(first[k], shapes[k], strict=True)) if a != b])
            for d, dynamic in marks(tensor).items():
                (varying.add if dynamic else varying.discard)((k, d))
        if self._unconfirmed >= _ATTEMPTS:
            return []
        return sorted((k, d) for k, d in varying if shapes[k][d] > 1)

    def noted(
        self, recording: Recording, shapes: Shapes, dynamic: list[tuple[int, int]], paths: Iterable[Sized]
    ) -> Recording:
        """A recording was made, with these dimensions symbolic.  Returns it with its own sizes alone."""
        made = None
        if recording.reason is None and recording.env is not None:
            made = SymbolicRecording(recording, shapes, dynamic)
            recording = made.plain
        if recording.reason is None:
            for known in self.recordings:
                self._confirm(known, recording, shapes)
        if made is not None and not made.problem and not any(known.at(shapes) is not None for known in self.recordings if known.is_trusted):
            self._unconfirmed += 1
            for path in paths:
                self._confirm(made, path.recording, path.sizes)
            self.recordings = (made, *self.recordings)[:_MOST]
        return recording

    def _confirm(self, symbolic: SymbolicRecording, recording: Recording, shapes: Shapes) -> None:
        """Whether a symbolic recording says what was recorded for other sizes than its own."""
        if not symbolic.is_trusted and symbolic.differs(shapes) and symbolic.explains(recording, shapes):
            symbolic.is_trusted = True
            self._unconfirmed = 0

    def instance(self, shapes: Shapes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording | None:
        """What a call of these sizes would be recorded as, if one of the symbolic recordings tells."""
        for known in self.recordings:
            if known.is_trusted and (recording := known.at(shapes)) is not None and _serves(recording, args, kwargs):
                return recording
        return None


def _serves(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the guards of a recording hold for a call.  What draws or locks before the program is not tried in vain."""
    if recording.generators or recording.locks or recording.outside:
        return False
    return recording.build_entry(calling(recording, lambda tensors, numbers: _FITS))(args, kwargs) is _FITS
