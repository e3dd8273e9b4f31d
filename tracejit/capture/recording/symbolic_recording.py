"""A recording for other sizes than its own: what a call with these sizes would have recorded, without the call.

A recording that was made with symbolic sizes (core/symbolic.py) holds them wherever a number was computed of sizes: shapes,
strides, attributes, literals, constants of the prologue.  `SymbolicRecording.at` puts other numbers in their places, if all
relations between sizes hold that the recorded run has relied on.

That is sound by construction.  The program's Python sees sizes only through the recorder, the library asks the Dim API
(core/shapes.py) about them, and a symbolic number is no int: C code that needs its value calls `__index__`, which notes the value
as a relation.

`env.relations` are guards of the recording: what was decided of sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tracejit.capture.recording.entry import Recording
from tracejit.config import config
from tracejit.core.substitution import Substitution
from tracejit.core.symbolic import LARGEST, ShapeEnv
from tracejit.ir.verifier import verify

__all__ = ["SymbolicRecording", "may_vary"]

Shapes = tuple[tuple[int, ...], ...]


_HOLDERS: Final = (
    "graph", "tensor_inputs", "scalar_inputs", "outputs", "written_inputs", "exits", "guards", "epilogue", "result", "structure", "facts",
)  # fmt: skip
"""What of a recording may hold sizes: all but the objects that its names stand for."""


_NUMBERS: Final = frozenset((int, float))


def may_vary(size: Any) -> bool:
    """Whether a size may be that of a variable.  0 and 1 mean something else; beyond the largest, so do numbers that are computed
    of it."""
    return type(size) is int and 1 < size <= LARGEST


class SymbolicRecording:
    """A recording with symbolic sizes, and for which arguments it stands.

    plain: the recording for its own sizes, as it would be without symbolic ones.  problem: why it stands for no others, if it
    does not."""

    def __init__(self, recording: Recording, shapes: Shapes, dynamic: Sequence[tuple[int, int]]) -> None:
        """shapes: of the tensors among the arguments.  dynamic: those of their dimensions that are variables, in the order of
        these."""
        assert recording.env is not None
        self.env: ShapeEnv = recording.env
        self.dynamic = tuple(dynamic)
        self.problem = self.env.problem
        self._recording = replace(recording, env=None)
        self._static = _with(shapes, dynamic, None)
        self._clean: set[int] = set()
        self.own = self.sizes(shapes)
        changed = Substitution(self.env, self.env.values(self.own), self._clean).fields(self._recording, _HOLDERS)
        self._holders = tuple(changed)
        self._pinned = self.env.pinned()
        self.plain: Recording = replace(self._recording, **changed)

    def in_terms_of(self, env: ShapeEnv, shapes: Shapes) -> Recording:
        """The recording for these shapes, with symbolic sizes of an environment that is entered: it notes what is done with them
        from now on, and nothing of what the recording itself relies on."""
        sizes = [env.size(n, name) for n, name in zip(self.sizes(shapes), self.env.names, strict=True)]
        values = self.env.values(sizes)
        with env.paused():  # putting them in their places is no question about them
            return replace(self._recording, **Substitution(self.env, values).fields(self._recording, self._holders))

    def sizes(self, shapes: Shapes) -> list[int]:
        """Those of the variables; none of other arguments."""
        if [len(s) for s in shapes] != [len(s) for s in self._static]:
            return []
        return [shapes[k][d] for k, d in self.dynamic]

    def fits(self, shapes: Shapes) -> bool:
        """Whether such arguments differ from the recorded ones in variables alone.  Sizes of 0 and 1 are never those of
        variables."""
        if [len(s) for s in shapes] != [len(s) for s in self._static] or _with(shapes, self.dynamic, None) != self._static:
            return False
        return all(may_vary(shapes[k][d]) for k, d in self.dynamic)

    @property
    def is_general(self) -> bool:
        """Whether it may stand for other sizes than its own."""
        return not self.problem and len(self._pinned) < len(self.dynamic)

    def serves(self, shapes: Shapes) -> bool:
        """Whether `at` has a recording for arguments of these shapes."""
        return self._values(shapes) is not None

    def _values(self, shapes: Shapes) -> list[Any] | None:
        """The value of each expression for arguments of these shapes; None where a relation does not hold for them."""
        return None if self.problem or not self.fits(shapes) else self.env.evaluated(self.sizes(shapes))

    def at(self, shapes: Shapes) -> Recording | None:
        """The recording for arguments of these shapes; None where it is not known what these would lead to."""
        values = self._values(shapes)
        if values is None:
            return None
        made = replace(self._recording, **Substitution(self.env, values, self._clean).fields(self._recording, self._holders))
        if config.verify and made.graph is not None:
            verify(made.graph)
        return made


def _with(shapes: Shapes, dimensions: Sequence[tuple[int, int]], size: Any) -> list[list[Any]]:
    """The shapes with `size` in these dimensions."""
    found: list[list[Any]] = [list(shape) for shape in shapes]
    for k, d in dimensions:
        found[k][d] = size
    return found
