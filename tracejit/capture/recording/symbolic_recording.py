"""A recording for other sizes than its own: what a call with these sizes would have recorded, without the call.

A recording that was made with symbolic sizes (core/symbolic.py) holds them wherever a number was computed of sizes: shapes, strides,
attributes, literals, constants of the prologue.  `SymbolicRecording.at` puts other numbers in their places, if all relations between sizes
hold that the recorded run has relied on.

Two rules make that sound: the program's Python sees sizes only through the recorder, and the library asks the Dim API (core/shapes.py)
about them.  C code might look at a number without a note of it; so a symbolic recording is believed only after it has said what the
function has really done for another size (`explains`).

`env.relations` are guards of the recording: what was decided of sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from tracejit.capture.recording.entry import Recording
from tracejit.config import config
from tracejit.core.op import Kind
from tracejit.core.substitution import Substitution
from tracejit.core.symbolic import BINARY, LARGEST, ShapeEnv
from tracejit.ir.graph import Graph, Literal, Operand
from tracejit.ir.verifier import verify
from tracejit.passes.dce import dce
from tracejit.replay import ir

__all__ = ["SymbolicRecording", "may_vary"]

Shapes = tuple[tuple[int, ...], ...]


_HOLDERS: Final = (
    "graph", "tensor_inputs", "scalar_inputs", "outputs", "written_inputs", "exits", "guards", "epilogue", "result", "structure", "facts",
)  # fmt: skip
"""What of a recording may hold sizes: all but the objects that its names stand for."""


_NUMBERS: Final = frozenset((int, float))


def may_vary(size: Any) -> bool:
    """Whether a size may be that of a variable.  0 and 1 mean something else; beyond the largest, so do numbers that are computed of it."""
    return type(size) is int and 1 < size <= LARGEST


class SymbolicRecording:
    """A recording with symbolic sizes, and for which arguments it stands.

    plain: the recording for its own sizes, as it would be without symbolic ones.  problem: why it stands for no others, if it does not."""

    def __init__(self, recording: Recording, shapes: Shapes, dynamic: Sequence[tuple[int, int]]) -> None:
        """shapes: of the tensors among the arguments.  dynamic: those of their dimensions that are variables, in the order of these."""
        assert recording.env is not None
        self.env: ShapeEnv = recording.env
        self.dynamic = tuple(dynamic)
        self.problem = self.env.problem
        self.is_trusted = False
        self.explained: list[list[int]] = []  # other sizes for which this is what was recorded
        self._moved: set[int] = set()  # numbers computed of sizes that were others for some of these
        self._recording = replace(recording, env=None)
        self._static = _with(shapes, dynamic, None)
        self._clean: set[int] = set()
        self.own = self.sizes(shapes)
        values = self._values = self.env.values(self.own)
        changed = Substitution(self.env, values, self._clean).fields(self._recording, _HOLDERS)
        self._holders = tuple(changed)
        self._pinned = self.env.pinned()
        self.plain: Recording = replace(self._recording, **changed)

    def in_terms_of(self, env: ShapeEnv, shapes: Shapes) -> Recording:
        """The recording for these shapes, with symbolic sizes of an environment that is entered: it notes what is done with them from now
        on, and nothing of what the recording itself relies on."""
        sizes = [env.size(n, name) for n, name in zip(self.sizes(shapes), self.env.names, strict=True)]
        values = self.env.values(sizes)
        env.pause()  # putting them in their places is no question about them
        try:
            return replace(self._recording, **Substitution(self.env, values).fields(self._recording, self._holders))
        finally:
            env.resume()

    def sizes(self, shapes: Shapes) -> list[int]:
        """Those of the variables; none of other arguments."""
        if [len(s) for s in shapes] != [len(s) for s in self._static]:
            return []
        return [shapes[k][d] for k, d in self.dynamic]

    def fits(self, shapes: Shapes) -> bool:
        """Whether such arguments differ from the recorded ones in variables alone.  Sizes of 0 and 1 are never those of variables."""
        if [len(s) for s in shapes] != [len(s) for s in self._static] or _with(shapes, self.dynamic, None) != self._static:
            return False
        return all(may_vary(shapes[k][d]) for k, d in self.dynamic)

    @property
    def is_general(self) -> bool:
        """Whether it may stand for other sizes than its own."""
        return not self.problem and len(self._pinned) < len(self.dynamic)

    def confirm(self, shapes: Shapes) -> None:
        """It was what was recorded for these shapes, too: from now on it is trusted in what was another number for them."""
        self.is_trusted = True
        self.explained.append(self.sizes(shapes))
        self._moved |= self._others(self.env.values(self.sizes(shapes)))

    def _others(self, values: Sequence[Any]) -> set[int]:
        """The numbers computed of sizes that have other values than for its own sizes."""
        return {k for k, (a, b) in enumerate(zip(self._values, values, strict=True)) if a != b}

    def is_trusted_for(self, shapes: Shapes) -> bool:
        """Whether it is trusted, and was right where each number that is another one for these shapes was another one: a number that has
        lost its expression, as C code does to one that it is given, has stood out then."""
        values = self.env.evaluated(self.sizes(shapes)) if self.is_trusted and self.fits(shapes) else None
        return values is not None and self._others(values) <= self._moved

    def at(self, shapes: Shapes) -> Recording | None:
        """The recording for arguments of these shapes; None where it is not known what these would lead to."""
        if not self.fits(shapes):
            return None
        values = self.env.evaluated(self.sizes(shapes))
        if values is None or self.problem:
            return None
        made = replace(self._recording, **Substitution(self.env, values, self._clean).fields(self._recording, self._holders))
        if config.verify and made.graph is not None:
            verify(made.graph)
        return made

    def explains(self, recording: Recording, shapes: Shapes) -> bool:
        """Whether this is what it says of these shapes.  A recording without symbolic sizes has other variables in its prologue."""
        made = self.at(shapes)
        if made is None or made.graph is None or recording.graph is None:
            return False
        if not made.graph.equals(recording.graph):
            graph = _with_settled(recording, recording.graph)
            if graph is recording.graph and not any(node.op.kind is Kind.LOOP for node in graph.nodes):
                return False
            made, recording = _as_used(made, made.graph), _as_used(recording, graph)
            if not made.graph.equals(recording.graph):  # type: ignore[union-attr, arg-type]
                return False
        return (
            [_layout(x) for x in made.tensor_inputs] == [_layout(x) for x in recording.tensor_inputs]
            and made.outputs == recording.outputs
            and made.written_inputs == recording.written_inputs
            and _effects(made) == _effects(recording)
        )


def _with_settled(recording: Recording, graph: Graph) -> Graph:
    """The graph of a recording with numbers in the places of its inputs that are one number in all calls that it serves: an integer that
    decides a size and is computed with, too.  With symbolic sizes it is a size wherever it is used."""
    known = _known_numbers(recording) if recording.settled else {}
    names = [(x.value, str(x.expression)) for x in recording.scalar_inputs]
    numbers = {value: Literal(known[name]) for value, name in names if name in known}
    if not numbers:
        return graph

    def of(operand: Operand) -> Operand:
        return numbers.get(operand, operand) if type(operand) is int else operand

    return replace(
        graph,
        inputs=tuple([v for v in graph.inputs if v not in numbers]),
        avals={v: aval for v, aval in graph.avals.items() if v not in numbers},
        nodes=tuple([replace(node, operands=tuple(map(of, node.operands))) for node in graph.nodes]),
        outputs=tuple(map(of, graph.outputs)),
    )


def _known_numbers(recording: Recording) -> dict[str, int | float]:
    """The numbers of the prologue that are the same in all calls that a recording serves: of constants, and of integers that are guarded by
    their values."""
    known: dict[str, int | float] = dict(recording.settled)

    def of(expression: ir.Expr) -> Any:
        if type(expression) is ir.Constant:
            return expression.value
        if type(expression) is ir.Arithmetic:
            left, right = of(expression.left), of(expression.right)
            function = BINARY.get(expression.symbol)
            return (
                None if function is None or type(left) not in _NUMBERS or type(right) not in _NUMBERS else function(left, right)
            )
        return known.get(expression.name) if type(expression) is ir.Name else None

    for statement in recording.guards:
        if type(statement) is ir.Define:
            try:
                found = of(statement.value)
            except ArithmeticError:  # what raises is no number
                continue
            if type(found) in _NUMBERS:
                known[statement.name] = found
    return known


def _as_used(recording: Recording, graph: Graph) -> Recording:
    """The recording without what nothing uses, its values numbered in the order in which they come.  All rows of a tensor are made where a
    loop goes through so many, though one node stands for the steps that would use them; and some where it goes through any number."""
    graph = dce(graph)
    numbers = {v: k for k, v in enumerate((*graph.inputs, *graph.constants, *[v for node in graph.nodes for v in node.outputs]))}
    nodes = [
        replace(
            node,
            operands=tuple([numbers[x] if type(x) is int else x for x in node.operands]),
            outputs=tuple([numbers[v] for v in node.outputs]),
        )
        for node in graph.nodes
    ]

    def numbered(values: Iterable[int]) -> frozenset[int]:
        return frozenset([numbers[v] for v in values if v in numbers])

    def renamed(parts: Iterable[Any]) -> Any:
        return tuple([replace(x, value=numbers[x.value]) for x in parts])

    return replace(
        recording,
        graph=Graph(
            inputs=tuple([numbers[v] for v in graph.inputs]),
            avals={numbers[v]: graph.avals[v] for v in numbers},
            nodes=tuple(nodes),
            outputs=tuple([numbers[x] if type(x) is int else x for x in graph.outputs]),
            constants={numbers[v]: array for v, array in graph.constants.items()},
            writes=tuple([(numbers[a], numbers[b]) for a, b in graph.writes]),
            requires_grad=numbered(graph.requires_grad),
            stale=numbered(graph.stale),
        ),
        tensor_inputs=renamed(recording.tensor_inputs),
        outputs=renamed(recording.outputs),
        written_inputs=renamed(recording.written_inputs),
    )


def _effects(recording: Recording) -> Any:
    """What a call does after its program, and gives.  Variables are named in the order in which they come: a recording with symbolic sizes
    has others, some of which stand for constants."""
    constants = {s.name: s.value for s in recording.guards if type(s) is ir.Define and type(s.value) is ir.Constant}
    constants |= {name: ir.Constant(value) for name, value in recording.namespace.items() if type(value) in _NUMBERS}
    constants |= {name: ir.Constant(value) for name, value in _known_numbers(recording).items()}
    numbers: dict[str, int] = {}

    def named(name: str) -> Any:
        known = constants.get(name)
        own = name[:1] in ("v", "c") and name[1:].isdigit()
        return known if known is not None else numbers.setdefault(name, len(numbers)) if own else name

    def comparable(node: Any) -> Any:
        if type(node) is ir.Name:
            return named(node.name)
        if type(node) is ir.Constant:
            return node
        if type(node) is ir.Define:
            return ir.Define, named(node.name), comparable(node.value)
        return tuple(map(comparable, node)) if isinstance(node, tuple) else node

    return comparable((recording.epilogue, recording.result))


def _layout(x: Any) -> tuple[Any, ...]:
    return x.value, x.shape, x.dtype, x.strides, x.requires_grad, x.is_leaf


def _with(shapes: Shapes, dimensions: Sequence[tuple[int, int]], size: Any) -> list[list[Any]]:
    """The shapes with `size` in these dimensions."""
    found: list[list[Any]] = [list(shape) for shape in shapes]
    for k, d in dimensions:
        found[k][d] = size
    return found
