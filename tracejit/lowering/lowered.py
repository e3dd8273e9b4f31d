"""A lowered program: what its machine code is made of, what its tuple of arrays and its frame hold, where its outputs come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from tracejit.core.aval import Aval
from tracejit.core.op import Kind
from tracejit.ir.graph import Node, all_nodes
from tracejit.lowering.live import NOTHING_LIVE, LiveValues
from tracejit.lowering.peak import NO_MEMORY, Peak
from tracejit.lowering.steps import ProgramSpec

__all__ = ["Lowered", "Output", "StepOrigin", "Traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that all steps of a program read and write, and the least it needs: every input that is used read once, every output and
    written input written once.  A view counts whole for every step that reads it; registers and scratch rows of a nest do not count."""

    read: int = 0
    written: int = 0
    least: int = 0

    @property
    def ratio(self) -> float:
        """Bytes moved over the least; 1 for a program that needs none."""
        return (self.read + self.written) / self.least if self.least else 1.0


@dataclass(frozen=True, slots=True)
class Output:
    """Where an output of the program comes from: "fresh" (array number in the tuple), "input" (number among `arrays`), "scalar" (number
    among `scalars`), or "literal" (the value itself)."""

    source: str
    number: int = 0
    value: Any = None


@dataclass(frozen=True, slots=True)
class StepOrigin:
    """What a step computes, for reports: the names of its operations, the user's lines ("file:line") that they came from, each once, in
    order, the values that they give in the program's graph, and the bytes that it reads and writes."""

    operations: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    values: tuple[int, ...] = ()
    read: int = 0
    written: int = 0

    @classmethod
    def of(cls, nodes: Iterable[Node], read: int, written: int) -> StepOrigin:
        """That of a step that computes these nodes; a loop's lines are those of its body, too."""
        nodes = tuple(nodes)
        inside = [
            n for node in nodes for n in (node, *(all_nodes(node.attrs["body"].graph) if node.op.kind is Kind.LOOP else ()))
        ]
        lines = tuple(dict.fromkeys(n.line for n in inside if n.line))
        return cls(tuple([n.op.name for n in nodes]), lines, tuple([v for n in nodes for v in n.outputs]), read, written)


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """Everything about a program but its machine code.

    The tuple of arrays is: tensor inputs, the slab (if there is one), the memories of programs that have left, fresh outputs (`fresh`:
    their avals), the residual slab (if `slab_size` is not None).  Frame slots: `arena_slot` holds the address of `arena_bytes` bytes,
    `constants` the data pointers of arrays that never change, `scalars` (slot, Python type) the numbers of a call.  live: what is in the
    arena at each exit.  text, origins: of each step.  peak: what makes the arena as large as it is.
    """

    spec: ProgramSpec
    arrays: int
    fresh: tuple[Aval, ...]
    slab_size: int | None
    arena_slot: int
    arena_bytes: int
    constants: tuple[tuple[int, Any], ...]
    scalars: tuple[tuple[int, type], ...]
    outputs: tuple[Output, ...]
    text: tuple[str, ...] = ()
    traffic: Traffic = Traffic()
    live: LiveValues = NOTHING_LIVE
    origins: tuple[StepOrigin, ...] = ()
    peak: Peak = NO_MEMORY

    def for_calls(self, of: Callable[[Any], Any]) -> Lowered:
        """With other numbers in the places of symbolic ones in what calls of the program need, and whoever accounts for them.

        The rest is as it was, its steps above all: there is far more of that, and hardly anybody asks for it."""
        return replace(self, **{name: of(getattr(self, name)) for name in _OF_CALLS})


_OF_CALLS: Final = ("fresh", "slab_size", "arena_slot", "arena_bytes", "constants", "scalars", "outputs", "traffic")
