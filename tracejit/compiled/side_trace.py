"""Side traces: what goes on from an exit of another trace with what that has left in memory, so that nothing is computed twice.

A *trace* is machine code of a recorded path.  The root trace of an entry computes all of its path.  A side trace leads from one exit of a
trace to a path that begins alike: it has the guards, the results and the effects of that path, and of its program what the other one has
not done.  Values are known by their value numbers (passes/value_numbers.py), inputs by where guards found them, so nothing depends on how
two recordings came about; what lies whole in the arena at the exit says lowering/live.py.  Guards that held on the way, and the one that
failed, where it is about a bool, are not asked again.  The idea is that of trace trees (Gal et al., "Trace-based Just-in-Time Type
Specialization for Dynamic Languages", 2009).

Only machine code inherits memory, in the same call and with nothing in between that has run in that memory: the mark behind the frame
tells (runtime/frame.py).  Where it does not, the side trace answers as where a guard fails, and the call goes on as it would without.

Relies on: pure graphs (equal nodes make equal values), exits before anything is committed (nothing that the first program read has been
changed by it).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tracejit.capture.recording.entry import Body, Exit, Recording
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.graph import Graph, Literal, Node
from tracejit.lowering.exits import exit_codes, node_code
from tracejit.lowering.live import Inherited, ValueLocation
from tracejit.passes.value_numbers import ValueNumbers
from tracejit.replay.ir import Define, Expr, If, Name, Unpack, defined, renamed, walk
from tracejit.runtime.program import Program, Remains

if TYPE_CHECKING:
    from tracejit.compiled.executable import Executable

__all__ = ["Remainder", "Trace", "remainder"]

Where = tuple[Remains, ValueLocation]


class Trace:
    """Machine code of a recorded path, or of what a side trace has of it.

    inherited: values of the path's graph that it found made, and where; held: nodes of that, by id(), that need not be asked.
    sides: by exit and the path that goes on there, the side trace, or None while it is made, or why there is none.  crossed: how often
    machine code went on from each exit.  entries: of the traces that lead here, and its own."""

    __slots__ = ("body", "crossed", "entries", "executable", "held", "inherited", "machine", "program", "sides", "size")

    def __init__(
        self,
        executable: Executable,
        program: Any,
        size: int,
        body: Body,
        machine: Any = None,
        inherited: Mapping[int, Where] | None = None,
        held: frozenset[int] = frozenset(),
        entries: tuple[Any, ...] = (),
    ) -> None:
        self.executable = executable
        self.program = program
        self.size = size  # nodes that it computes
        self.body = body
        self.machine = machine
        self.inherited = inherited or {}
        self.held = held
        self.entries = entries
        self.sides: dict[tuple[int, Any], Trace | str | None] = {}
        self.crossed: dict[int, int] = {}

    @property
    def exits(self) -> dict[int, Exit]:
        """Those that were taken so far, by number."""
        leave = self.body.environment.get("leave")
        return {} if leave is None else leave.exits

    def next_trace(self, number: int, bridge: Any) -> Any:
        """The machine code that goes on from an exit along `bridge`, an entry."""
        side = self.sides.get((number, bridge))
        return side.machine if isinstance(side, Trace) else bridge.machine

    def forget(self, key: tuple[int, Any]) -> None:
        """The side trace that was being made will not be: a fork has given it up."""
        self.sides.pop(key, None)

    def unlink(self, others: Collection[Any]) -> None:
        """Remove the ways to dropped entries."""
        self.sides = {key: side for key, side in self.sides.items() if key[1] not in others}
        for taken in self.exits.values():
            taken.bridge = None


@dataclass(frozen=True, slots=True)
class Remainder:
    """What a side trace computes: `graph`, whose last inputs are found in `memories`, with the numbers of the exits.  known, held: what is
    known of the path's graph where it begins.  saved: nodes of the path that it has not got."""

    graph: Graph
    codes: Mapping[int, int]
    memories: tuple[Remains, ...]
    inherited: tuple[Inherited, ...]
    known: Mapping[int, Where]
    held: frozenset[int]
    saved: tuple[Node, ...]


def remainder(source: Trace, number: int, target: Executable) -> Remainder | str:
    """What is left to do of the path of `target` where `source` leaves at an exit; or why a side trace is of no use."""
    first, graph = source.executable.graph, target.graph
    if not isinstance(source.program, Program) or not isinstance(target.program, Program):
        return "a program is not one call of machine code"
    remains = source.program.remains()
    if remains is None:
        return "the program left is not machine code"
    live = source.program.lowered.live
    values: dict[int, Where] = dict(source.inherited)
    values.update({v: (remains, place) for v, place in live.at(node_code(number)).items()})
    codes = exit_codes(first)
    passed = live.before(node_code(number))
    held = [node for node in first.nodes if codes[id(node)] in passed or id(node) in source.held]

    table = ValueNumbers()
    theirs, their_nodes = table.of(first, _places(source.executable.recording, table))
    ours, our_nodes = table.of(graph, _places(target.recording, table))
    if not _draw_alike(source.executable, target, theirs, ours):
        return "random numbers come from more than one generator"
    known_numbers = {theirs[v]: where for v, where in values.items() if v in theirs}
    known_nodes = {their_nodes[id(node)] for node in held}
    for node in first.nodes:
        if codes[id(node)] == number and (other := _opposite(node)) is not None:
            known_nodes.add(table.node(other, theirs))
    made = {v for node in graph.nodes for v in node.outputs}
    known = {v: known_numbers[n] for v, n in ours.items() if n in known_numbers and v in made}
    known_held = frozenset([id(node) for node in graph.nodes if our_nodes[id(node)] in known_nodes])
    kept, used = _needed(graph, known, known_held)
    saved = tuple([node for node in graph.nodes if id(node) not in kept])
    if not used:
        return "nothing that it needs was left"
    memories = tuple({id(known[v][0]): known[v][0] for v in used}.values())
    inherited = tuple(
        [Inherited(memory.memory.size, {v: known[v][1] for v in used if known[v][0] is memory}) for memory in memories]
    )
    rest = _cut(graph, [node for node in graph.nodes if id(node) in kept], used)
    return Remainder(rest, exit_codes(graph), memories, inherited, known, known_held, saved)


def _places(recording: Recording, table: ValueNumbers) -> dict[int, Hashable]:
    """What the inputs of a recording's graph are: where its guards find them, with numbers for what variables stand for."""
    known: dict[str, Name] = {}
    doubtful = {name for guard in recording.guards if isinstance(guard, If) for node in walk(guard) for name in defined(node)}
    for name in {name for node in walk(recording.guards) for name in defined(node)}:
        known[name] = Name(f"#{table.unique()}")  # until it is known better

    def place(name: Name) -> Expr:
        found = known.get(name.name)
        if found is None and name.name in recording.namespace:
            found = known[name.name] = Name(f"@{id(recording.namespace[name.name])}")
        return found or name

    for statement in recording.guards:
        made: dict[str, Expr] = {}
        if isinstance(statement, Define):
            made[statement.name] = renamed(statement.value, place)
        elif isinstance(statement, Unpack):
            value = renamed(statement.value, place)
            made.update({name: value.at(k) for k, name in enumerate(statement.names) if isinstance(name, str)})
        known.update({name: Name(f"#{table.number(value)}") for name, value in made.items() if name not in doubtful})
    found: dict[int, Hashable] = {
        facts.value: ("tensor", place(facts.expression), facts.shape, facts.dtype) for facts in recording.tensor_inputs
    }
    found.update({facts.value: ("number", renamed(facts.expression, place)) for facts in recording.scalar_inputs})
    return found


def _draw_alike(source: Executable, target: Executable, theirs: Mapping[int, int], ours: Mapping[int, int]) -> bool:
    """Whether the values of both are of one state of one generator, as far as they are of any."""
    some, others = ([numbers[v] for v in path.drawn_from] for path, numbers in ((source, theirs), (target, ours)))
    return max(len(some), len(others)) <= 1 and (not some or not others or some == others)


def _opposite(node: Node) -> Node | None:
    """The guard that holds where this one, about a bool, fails."""
    expected = node.attrs.get("expected") if node.op.kind is Kind.GUARD else None
    if not isinstance(expected, Literal) or type(expected.value) is not bool:
        return None
    return replace(node, attributes=(("expected", Literal(not expected.value)),))


def _needed(graph: Graph, known: Mapping[int, Where], held: Collection[int]) -> tuple[set[int], list[int]]:
    """(nodes that are still to be done, by id(); values of `known` that they, or who wants the results, read)."""
    wanted = {x for x in graph.outputs if type(x) is int} | {v for _, v in graph.writes}
    kept: set[int] = set()
    for node in reversed(graph.nodes):
        if (node.may_exit and id(node) not in held) or any(v in wanted and v not in known for v in node.outputs):
            kept.add(id(node))
            wanted.update(x for x in node.operands if type(x) is int)
    inside = {v for node in graph.nodes if id(node) in kept for v in node.outputs}
    return kept, [v for v in known if v in wanted and v not in inside]


def _cut(graph: Graph, nodes: Sequence[Node], used: Sequence[int]) -> Graph:
    """The graph with these nodes alone, and the values in `used` as its last inputs.  Results that are among them are copies."""
    avals, rest, copies = dict(graph.avals), list(nodes), dict[Any, int]()
    for v in dict.fromkeys(x for x in graph.outputs if x in used and type(x) is int):
        copies[v] = fresh = max(avals) + 1
        avals[fresh] = avals[v]
        rest.append(Node(REGISTRY["clone"], (v,), (), (fresh,)))
    return replace(
        graph,
        inputs=(*graph.inputs, *used),
        nodes=tuple(rest),
        avals=avals,
        outputs=tuple([copies.get(x, x) for x in graph.outputs]),
    )
