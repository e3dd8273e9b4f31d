"""Side traces: machine code that goes on from an exit of another trace with the values in its memory, so that nothing is computed
twice.

A *trace* is machine code of a recorded path.  The root trace of an entry computes all of its path.  A side trace leads from one
exit of a trace to the end of another path with the same beginning.  It has the guards, results and effects of that path, and the
part of its program that the first trace has not computed.  Values of the two paths are matched by their value numbers
(passes/value_numbers.py), inputs by the expressions of the guards, so nothing depends on the order in which the paths were
recorded.  lowering/live.py says which values are complete in the arena at the exit.  Guards that have held are not checked again,
nor is the opposite of the one that failed, if its value is a bool.  The idea is that of trace trees (Gal et al., "Trace-based
Just-in-Time Type Specialization for Dynamic Languages", 2009).

A side trace may only read the memory within the same call, and if no other program has run in that memory since: it checks the
mark behind the frame (runtime/frame.py).  If the mark differs, the side trace returns as if a guard had failed, and the call goes
on without it.

Relies on: pure graphs (equal nodes compute equal values); exits come before any commit (the first program has not changed
anything that it has read).
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
    """Machine code of a recorded path, or of the rest of it (a side trace).

    inherited: values of the path's graph that are computed when the trace begins, with their locations in memory.  held: id() of the
    guard nodes that are known to hold then.  sides: (exit, path that goes on there) -> the side trace; None while it is compiled;
    a text that says why there is none.  crossed: number of an exit -> number of calls that went on from there without Python.
    paths: those of the traces that lead to this one, and its own."""

    __slots__ = ("body", "crossed", "executable", "held", "inherited", "machine", "paths", "program", "sides", "size")

    def __init__(
        self,
        executable: Executable,
        program: Any,
        size: int,
        body: Body,
        machine: Any = None,
        inherited: Mapping[int, Where] | None = None,
        held: frozenset[int] = frozenset(),
        paths: tuple[Any, ...] = (),
    ) -> None:
        self.executable = executable
        self.program = program
        self.size = size  # number of nodes that it computes
        self.body = body
        self.machine = machine
        self.inherited = inherited or {}
        self.held = held
        self.paths = paths
        self.sides: dict[tuple[int, Any], Trace | str | None] = {}
        self.crossed: dict[int, int] = {}

    @property
    def exits(self) -> dict[int, Exit]:
        """The exits that calls have taken so far, by number."""
        leave = self.body.environment.get("leave")
        return {} if leave is None else leave.exits

    def next_trace(self, number: int, bridge: Any) -> Any:
        """The machine code that goes on from an exit to the entry `bridge`: the side trace if there is one, else the entry's."""
        side = self.sides.get((number, bridge))
        return side.machine if isinstance(side, Trace) else bridge.machine

    def forget(self, key: tuple[int, Any]) -> None:
        """Note that a side trace that was being compiled was lost by a fork."""
        self.sides.pop(key, None)

    def unlink(self, others: Collection[Any]) -> None:
        """Remove the side traces and bridges to dropped entries."""
        self.sides = {key: side for key, side in self.sides.items() if key[1] not in others}
        for exit_ in self.exits.values():
            exit_.bridge = None


@dataclass(frozen=True, slots=True)
class Remainder:
    """The part of a path that a side trace computes.

    graph: its last inputs are the inherited values.  codes: id() of a node -> number of its exit in the path.  memories: where
    the inherited values are; inherited: the positions in each of these.  known, held: `Trace.inherited` and `Trace.held` of the side
    trace.  saved: nodes of the path that it does not compute."""

    graph: Graph
    codes: Mapping[int, int]
    memories: tuple[Remains, ...]
    inherited: tuple[Inherited, ...]
    known: Mapping[int, Where]
    held: frozenset[int]
    saved: tuple[Node, ...]


def remainder(source: Trace, number: int, target: Executable) -> Remainder | str:
    """The part of the path of `target` that remains to be computed when `source` leaves by exit `number`; or a text that says why
    a side trace is of no use."""
    first, graph = source.executable.graph, target.graph
    if not isinstance(source.program, Program) or not isinstance(target.program, Program):
        return "a program is not one call of machine code"
    remains = source.program.remains()
    if remains is None:
        return "the program left is not machine code"
    live = source.program.lowered.live
    values: dict[int, Where] = dict(source.inherited)
    values.update({v: (remains, location) for v, location in live.at(node_code(number)).items()})
    codes = exit_codes(first)
    passed = live.before(node_code(number))
    held = [node for node in first.nodes if codes[id(node)] in passed or id(node) in source.held]

    table = ValueNumbers()
    theirs, their_nodes = table.of(first, _input_keys(source.executable.recording, table))
    ours, our_nodes = table.of(graph, _input_keys(target.recording, table))
    if not _draw_alike(source.executable, target, theirs, ours):
        return "random numbers come from more than one generator"
    known_numbers = {theirs[v]: where for v, where in values.items() if v in theirs}  # value numbers that `source` has computed
    known_nodes = {their_nodes[id(node)] for node in held}
    for node in first.nodes:
        if codes[id(node)] == number and (other := _opposite(node)) is not None:
            known_nodes.add(table.node(other, theirs))
    computed = {v for node in graph.nodes for v in node.outputs}
    known = {v: known_numbers[n] for v, n in ours.items() if n in known_numbers and v in computed}
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


def _input_keys(recording: Recording, table: ValueNumbers) -> dict[int, Hashable]:
    """Keys for the inputs of a recording's graph: the expressions by which guards reach them, with value numbers in place of
    variables, so that inputs of two recordings with equal keys are the same."""
    known: dict[str, Name] = {}  # variable or constant -> a name that contains its value number
    doubtful = {name for guard in recording.guards if isinstance(guard, If) for node in walk(guard) for name in defined(node)}
    for name in {name for node in walk(recording.guards) for name in defined(node)}:
        known[name] = Name(f"#{table.unique()}")  # equal to no other, until its definition is reached below

    def source(name: Name) -> Expr:
        number = known.get(name.name)
        if number is None and name.name in recording.namespace:
            number = known[name.name] = Name(f"@{id(recording.namespace[name.name])}")
        return number or name

    for statement in recording.guards:
        definitions: dict[str, Expr] = {}
        if isinstance(statement, Define):
            definitions[statement.name] = renamed(statement.value, source)
        elif isinstance(statement, Unpack):
            value = renamed(statement.value, source)
            definitions.update({name: value.at(k) for k, name in enumerate(statement.names) if isinstance(name, str)})
        known.update({name: Name(f"#{table.number(value)}") for name, value in definitions.items() if name not in doubtful})
    keys: dict[int, Hashable] = {
        facts.value: ("tensor", source(facts.expression), facts.shape, facts.dtype) for facts in recording.tensor_inputs
    }
    keys.update({facts.value: ("number", renamed(facts.expression, source)) for facts in recording.scalar_inputs})
    return keys


def _draw_alike(source: Executable, target: Executable, theirs: Mapping[int, int], ours: Mapping[int, int]) -> bool:
    """Whether both paths draw from the same state of the same single generator, if both draw at all.  theirs, ours: the value
    numbers of `source` and of `target`."""
    some, others = ([numbers[v] for v in path.drawn_from] for path, numbers in ((source, theirs), (target, ours)))
    return max(len(some), len(others)) <= 1 and (not some or not others or some == others)


def _opposite(node: Node) -> Node | None:
    """For a guard node that expects a bool: the guard node that holds if it fails; else None."""
    expected = node.attrs.get("expected") if node.op.kind is Kind.GUARD else None
    if not isinstance(expected, Literal) or type(expected.value) is not bool:
        return None
    return replace(node, attributes=(("expected", Literal(not expected.value)),))


def _needed(graph: Graph, known: Mapping[int, Where], held: Collection[int]) -> tuple[set[int], list[int]]:
    """(id() of the nodes that remain to be computed; values of `known` that these nodes, results and writes use)."""
    wanted = {x for x in graph.outputs if type(x) is int} | {v for _, v in graph.writes}
    kept: set[int] = set()
    for node in reversed(graph.nodes):
        if (node.may_exit and id(node) not in held) or any(v in wanted and v not in known for v in node.outputs):
            kept.add(id(node))
            wanted.update(x for x in node.operands if type(x) is int)
    inside = {v for node in graph.nodes if id(node) in kept for v in node.outputs}
    return kept, [v for v in known if v in wanted and v not in inside]


def _cut(graph: Graph, nodes: Sequence[Node], used: Sequence[int]) -> Graph:
    """`graph` with these nodes only, and the values in `used` as additional inputs.  Results that are among these are copied."""
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
