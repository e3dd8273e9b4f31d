"""The calls of a scheduled nest: of itself, or of the nests that it is cut into for several threads, with their memory.

What is cut, and how, is decided by loops/rewrites/divide.py; here its buffers get arguments, and the memory that chunks need is scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tracejit.loops.bounds import check_reach
from tracejit.loops.language import Nest
from tracejit.loops.rewrites.divide import divide
from tracejit.lowering.elements import Scratch
from tracejit.lowering.schedule import Argument, Scheduled
from tracejit.lowering.steps import Division

__all__ = ["NestPart", "nest_parts"]


@dataclass(frozen=True, slots=True, eq=False)
class NestPart:
    """A nest and its arguments in the order of its parameters, as in `Scheduled`; `division`: how its chunks are made, if it has some."""

    nest: Nest
    buffers: tuple[Argument, ...]
    sizes: tuple[int, ...]
    scalars: tuple[int, ...]
    division: Division | None = None

    def check_reach(self, extent: Callable[[int | Scratch], tuple[int, int]]) -> None:
        """Raises ReachError if the call, or that for a chunk, may reach outside its buffers.  extent: the elements of the memory of a root
        value or scratch."""
        buffers = (*self.nest.buffers, *self.nest.temporaries)
        cut = self.division
        # Of chunks the first, the last whole one and the last: the others begin, and so reach, in between.
        for k in (0,) if cut is None else dict.fromkeys((0, cut.count - 2, cut.count - 1)):
            sizes = list(self.sizes)
            positions = [a.offset for a in self.buffers]
            if cut is not None:
                sizes[cut.many] = min(cut.length, cut.extent - k * cut.length)
                if cut.first is not None:
                    sizes[cut.first] = k * cut.length
                positions = [p + k * n // b.dtype.itemsize for p, n, b in zip(positions, cut.advances, buffers, strict=True)]
            ends = [extent(a.root) for a in self.buffers]
            elements = {b: (low - p, high - p) for b, p, (low, high) in zip(buffers, positions, ends, strict=True)}
            check_reach(self.nest, dict(zip(self.nest.sizes, sizes, strict=True)), elements)


def nest_parts(done: Scheduled) -> tuple[NestPart, ...]:
    """The nests that do what `done` does, one after the other."""
    nest = done.nest
    arguments = dict(zip((*nest.buffers, *nest.temporaries), done.buffers, strict=True))
    scalars = dict(zip(nest.scalars, done.scalars, strict=True))
    spaces = {b: root.count for b in nest.temporaries if isinstance(root := arguments[b].root, Scratch)}
    divided = divide(nest, dict(zip(nest.sizes, done.sizes, strict=True)), spaces, done.late)
    if divided is None:
        return (NestPart(nest, done.buffers, done.sizes, done.scalars),)
    for buffer, memory in divided.memory.items():
        arguments[buffer] = Argument(Scratch(buffer.dtype, memory)) if isinstance(memory, int) else arguments[memory]
    made = []
    for part, chunks in divided.parts:
        buffers, division = (*part.buffers, *part.temporaries), None
        if chunks is not None:
            division = Division(
                chunks.extent,
                chunks.length,
                part.sizes.index(chunks.many),
                None if chunks.first is None else part.sizes.index(chunks.first),
                tuple([chunks.advances.get(b, 0) * b.dtype.itemsize for b in buffers]),
            )
        sizes = tuple([divided.sizes[s] for s in part.sizes])
        made.append(
            NestPart(part, tuple([arguments[b] for b in buffers]), sizes, tuple([scalars[s] for s in part.scalars]), division)
        )
    return tuple(made)
