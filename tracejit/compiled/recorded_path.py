"""One recorded path of a compiled function: its entry in Python or machine code, and the bridges from its exits to other paths.

It must not know of the other paths of the function, except through these bridges.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

from tracejit.capture.recording.entry import INTERRUPTED, Body, Recording, cell_of
from tracejit.compiled.executable import Executable
from tracejit.compiled.hot_entry import machine_entry
from tracejit.compiled.side_trace import Trace, remainder
from tracejit.config import config
from tracejit.core.aval import Aval
from tracejit.core.op import Kind
from tracejit.cpython import c_api, words
from tracejit.cpython.functions import Untranslatable
from tracejit.cpython.size_table import Shapes
from tracejit.ir.graph import Graph, Node
from tracejit.replay.ir import Distinct, Is, Statement, names, walk
from tracejit.report.debug import DebugLog
from tracejit.runtime.program import Program

__all__ = ["FIRST_WAIT", "PathState", "RecordedPath", "same_objects"]

_TABLE_TYPES = (list, tuple, int, float, complex, str, bytes)
_FEWEST_HOT_CALLS = 100  # of a path of many
_CHEAP_CHECKS = 200  # machine code checks so many guards in a few microseconds
_HOPS = range(31, 1024)  # calls that may follow a bridge without Python before they are accounted for; grows with `crossed`
_HOPS_PART = 16  # ... to this part of the calls that have crossed the bridge
_ELEMENTS = 4096  # elements that a program processes in a unit of accounts.py
_BYTES = 8  # memory traffic that counts as one element
_MIN_SAVED_ELEMENTS = 2048  # a side trace has to save at least so many elements, about a microsecond
_VARIANT_COST = 512  # units of accounts.py: cost of a path for other sizes whose programs are compiled already
_VARIANT_COST_PER_OPERATION = 3
_UNSTABLE_AFTER = 4  # recordings of the same path without a call served in between
FIRST_WAIT = 64  # eager calls before a failed attempt is repeated; doubled each time


class PathState(Enum):
    """How calls reach the program of a path.  While the program itself is being compiled, there is a PendingPath and no RecordedPath
    (recording_driver.py).

    ::

                                     hot_calls served                     translated
        PendingPath --installed--> RECORDED -----------> TRANSLATING ---------------> MACHINE_CODE
                                      ^                    |     |
                                      +---- lost by a fork-+     +-- cannot be --> INTERPRETED

        each of them -- dropped: it served too few calls, or clear(), or the function runs in pieces --> DROPPED
    """

    RECORDED = auto()
    """Through the generated Python function, which counts calls."""
    TRANSLATING = auto()
    """Through the generated Python function, while it is translated to machine code in the background."""
    INTERPRETED = auto()
    """Through the generated Python function for good; `RecordedPath.obstacle` says why."""
    MACHINE_CODE = auto()
    """Through machine code alone."""
    DROPPED = auto()
    """Not at all: the path is no longer in the table."""


class RecordedPath:
    """One recorded path: the generated function (`run`, and `machine` as machine code), its executable, its traces, and the
    bridges from its exits."""

    __slots__ = (
        "_elements", "_repeats", "_served_seen", "body", "bridges", "eager_exits", "executable", "hot_calls", "is_sized",
        "machine", "obstacle", "operations", "recording", "run", "sizes", "state", "traces", "unbridged", "uses_seen",
    )  # fmt: skip

    def __init__(
        self,
        recording: Recording,
        executable: Executable,
        log: DebugLog | None,
        promote: Callable[[RecordedPath], None],
        others: int = 0,
    ) -> None:
        """promote: called with this entry when it has served `hot_calls` calls.  others: how many paths the function has besides:
        the more there are, the longer Python looks for the one that serves a call, and the sooner it pays to leave that to machine
        code."""
        self.recording = recording
        self.executable = executable
        self.body = body = executable.body()

        self.hot_calls = min(config.hot_calls, max(config.hot_calls // (1 + others), _FEWEST_HOT_CALLS))
        self.run = recording.build_entry(body, self.hot_calls, lambda: promote(self))
        self.machine: Any = None
        self.state = PathState.RECORDED
        self.obstacle = ""  # why the state is INTERPRETED
        root = Trace(executable, executable.program, executable.operations, body, paths=(self,))
        self.traces: tuple[Trace, ...] = (root,)  # the root trace, and the side traces that end in this path
        if log is not None:
            log.entry(recording.text(body))
        self.bridges: dict[int, RecordedPath] = {}  # number of an exit, 0 for a miss -> the entry that served the last such call
        # Exits after which eager mode takes a path that is recorded already: [eager calls since, how many to wait for].
        self.eager_exits: dict[int, list[int]] = {}
        self.unbridged = [0, 0]  # exits without a bridge since the last vain search of all entries, how many skip the next search
        self.sizes: Shapes = ()  # of the arguments of the recorded call
        self.is_sized = False  # whether it serves only calls of these sizes
        self.uses_seen = 0  # `uses` at the last search for unused entries
        self._repeats = 0, 0  # how often the path was recorded again, and `uses` at the last of these times
        self.operations = len(recording.graph.nodes) if recording.graph is not None else 0
        self._served_seen = 0
        self._elements: tuple[int, int] | None = None

    def begin_translation(self) -> bool:
        """RECORDED -> TRANSLATING.  Returns False if the state is another one."""
        if self.state is not PathState.RECORDED:
            return False
        self.state = PathState.TRANSLATING
        return True

    def translate(self) -> tuple[Recording, Body, Any, Any]:
        """Translate the entry: (recording, body, entry in Python, built-in function for calls with positional arguments).  Raises
        Untranslatable.

        If objects from outside differ from call to call (a new object as an argument), and there are few guards, the result
        checks the guards one by one instead of comparing words of memory."""
        recording, body, run = self.recording, self.body, self.run
        cell = cell_of(run)
        if (
            cell is not None
            and cell.hardly_pays
            and recording.structure is not None
            and len(recording.structure.checks) <= _CHEAP_CHECKS
        ):
            recording, body = replace(recording, structure=None), self.executable.body(structured=False)
            run = recording.build_entry(body)
        return recording, body, run, machine_entry(recording, body, run)

    def become(self, recording: Recording, body: Body, run: Any, machine: Any) -> bool:
        """TRANSLATING -> MACHINE_CODE, with the results of `translate`.  Returns False if the entry was dropped meanwhile."""
        root = self.traces[0]
        if self.state is not PathState.TRANSLATING:
            return False
        self.recording, self.body, self.run, self.machine, self.state = recording, body, run, machine, PathState.MACHINE_CODE
        root.body, root.machine = body, machine
        return True

    def keep_interpreted(self, obstacle: str) -> None:
        """TRANSLATING -> INTERPRETED, unless the entry was dropped meanwhile.  obstacle: why it cannot be machine code."""
        if self.state is PathState.TRANSLATING:
            self.obstacle, self.state = obstacle, PathState.INTERPRETED

    def lose_translation(self) -> bool:
        """TRANSLATING -> RECORDED, in a forked child, which does not have the thread that translates.  Returns False if the state
        is another one."""
        if self.state is not PathState.TRANSLATING:
            return False
        self.state = PathState.RECORDED
        return True

    def drop(self) -> None:
        """Any state -> DROPPED."""
        self.state = PathState.DROPPED

    def side_trace(self, source: Trace, number: int) -> Trace | str:
        """Compile a side trace, which goes on in this path where `source` leaves by exit `number`; or a text that says why there
        is none."""
        executable, recording = self.executable, self.recording
        if recording.generators or source.executable.recording.generators:
            return "a generator of Python or NumPy is drawn from, and put back at the exit"
        rest = remainder(source, number, executable)
        if isinstance(rest, str):
            return rest
        if (saved := _elements(executable.graph, rest.saved)) < _MIN_SAVED_ELEMENTS:
            return f"it would save {saved} elements (at least {_MIN_SAVED_ELEMENTS})"
        program = executable.side_program(rest)
        body = executable.body(recording.structure is not None, program, rest.memories)
        try:
            machine = machine_entry(recording, body, recording.build_entry(body))
        except Untranslatable as error:
            return f"what cannot be translated is {error}"
        return Trace(executable, program, len(rest.graph.nodes), body, machine, rest.known, rest.held, (*source.paths, self))

    def add_side_trace(self, side: Trace) -> None:
        """Add a side trace that ends in this path."""
        self.traces = (*self.traces, side)

    @property
    def uses(self) -> int:
        """Number of calls that it has served or left by an exit."""
        served, exits, *_ = self.executable.counter
        return served + exits

    def is_unstable(self) -> bool:
        """Note that the path was recorded again, since its guards had not held; returns whether that has happened several times
        without a call served.  A few times are normal: the guards on a cache that calls fill hold only after some calls."""
        times, uses = self._repeats
        self._repeats = times + 1 if uses == self.uses else 1, self.uses
        return self._repeats[0] >= _UNSTABLE_AFTER

    @property
    def gain(self) -> int:
        """What it has saved so far, in the units of accounts.py: for each call, two units for each operation that eager mode
        would have called, and the elements that only eager mode would have processed."""
        compiled, eager = self._element_counts
        return self.executable.counter[0] * (2 * self.operations + (eager - compiled) // _ELEMENTS)

    @property
    def pays_for_variant(self) -> bool:
        """Whether an eager call processes so many elements that a path for other sizes, whose programs are compiled already, pays
        with one call."""
        return self._element_counts[1] // _ELEMENTS >= _VARIANT_COST + _VARIANT_COST_PER_OPERATION * self.operations

    @property
    def effort(self) -> int:
        """The cost of a call that leaves by an exit, in the units of accounts.py."""
        return 1 + self._element_counts[0] // _ELEMENTS

    @property
    def _element_counts(self) -> tuple[int, int]:
        """(elements that the program processes, elements that eager mode processes).  Eager mode processes all elements of each
        operation; a program reads and writes memory once for fused operations."""
        if self._elements is None:
            graph, program = self.executable.graph, self.executable.program
            eager = _elements(graph, [node for node in graph.nodes if node.op.kind is not Kind.VIEW])
            compiled = eager
            if isinstance(program, Program):
                traffic = program.traffic
                slow = [node for node in graph.nodes if node.op.kind is not Kind.VIEW and not _is_fast(node)]
                compiled = min(compiled, (traffic.read + traffic.written) // _BYTES + _elements(graph, slow))
            self._elements = compiled, eager
        return self._elements

    def stays_eager(self, number: int) -> bool:
        """Whether a call that leaves by exit `number` runs eagerly without being recorded: eager mode took a path that is
        recorded already when it was tried, and it is too early to try again.  Counts the call."""
        wait = self.eager_exits.get(number)
        if wait is None:
            return False
        wait[0] += 1
        if wait[0] <= wait[1]:
            return True
        wait[:] = 0, 2 * wait[1]
        return False

    def link(self, number: int, bridge: RecordedPath) -> int:
        """Let calls that leave by exit `number` continue in `bridge`; a number of them without Python, if both are machine code.
        Returns how many have done so since the last time."""
        self.bridges[number] = bridge
        calls = 0
        for trace in self.traces:
            exit_ = trace.exits.get(number)
            if exit_ is not None:
                crossed = trace.crossed.get(number, 0)
                hops = 0 if exit_.bridge is None else _hops(crossed) - exit_.remaining_hops.value
                trace.crossed[number] = crossed + hops
                exit_.bridge, exit_.remaining_hops.value = trace.next_trace(number, bridge), _hops(crossed + hops)
                calls += hops
        return calls

    def missing_side_traces(self, number: int, bridge: RecordedPath) -> list[Trace]:
        """The traces of this path from whose exit `number` enough calls go on in `bridge` for a side trace, which has not been
        tried yet."""
        if not config.hot_calls or self.machine is None or bridge.machine is None:
            return []
        hot = [trace for trace in self.traces if trace.crossed.get(number, 0) >= config.hot_calls]
        return [trace for trace in hot if (number, bridge) not in trace.sides]

    def mostly_exits(self, calls: int) -> bool:
        """Whether it has served less than half as many calls since this was last asked as `calls`, the number that left by an
        exit."""
        served, self._served_seen = self.executable.counter[0] - self._served_seen, self.executable.counter[0]
        return 2 * served < calls

    def unlink(self, others: Collection[RecordedPath]) -> None:
        """Remove the bridges and side traces to dropped entries."""
        self.bridges = {number: bridge for number, bridge in self.bridges.items() if bridge not in others}
        self.traces = tuple([trace for trace in self.traces if not any(path in others for path in trace.paths)])
        for trace in self.traces:
            trace.unlink(others)

    def skips_search(self) -> bool:
        """Whether a call that has left by an exit without a bridge tries no other entries, since all were tried in vain not long
        ago.  Counts the call."""
        self.unbridged[0] += 1
        if self.unbridged[0] <= self.unbridged[1]:
            return True
        self.unbridged[0] = 0
        return False

    def note_vain_search(self) -> None:
        """Note that all entries were tried in vain after an exit without a bridge, and that there is no room for another path."""
        if not self.unbridged[0]:
            self.unbridged[1] = max(FIRST_WAIT, min(2 * self.unbridged[1], FIRST_WAIT << 10))

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call, MISS or an Exit."""
        result: Any = INTERRUPTED
        while result is INTERRUPTED:
            result = self.run(args, kwargs) if self.machine is None or kwargs else self.machine(*args)
        return result

    def calls(self) -> str:
        """How calls reach the program, as a text for the user."""
        if self.machine is not None:
            reason = words.unsupported()
            return "from machine code" + (f", which checks objects one by one, since {reason}" if reason else "")
        if not c_api.supported():
            return f"from Python, since what cannot be translated is {c_api.unsupported()}"
        if self.state is PathState.TRANSLATING:
            return "from Python, since it is being translated in the background"
        if self.state is PathState.INTERPRETED:
            return f"from Python, since {self.obstacle}"
        return f"from Python, until {self.hot_calls} were served" if self.hot_calls and self.body.promotes else "from Python"

    def stands_for(self, recording: Recording) -> bool:
        """Whether `recording` is of the same path with the same guards."""
        mine, other = self.recording.graph, recording.graph
        return (
            mine is not None
            and other is not None
            and self.recording.tensor_inputs == recording.tensor_inputs  # including strides, for which programs are compiled
            and self.recording.outputs == recording.outputs
            and self.recording.guards == recording.guards
            and same_objects(recording.guards, self.recording.namespace, recording.namespace)
            and self.recording.epilogue == recording.epilogue
            and self.recording.result == recording.result
            and mine.equals(other)
        )


def _hops(crossed: int) -> int:
    """How many calls may follow a bridge without Python before they are accounted for.  crossed: how many have followed it so
    far."""
    return min(max(_HOPS.start, crossed // _HOPS_PART), _HOPS.stop - 1)


def _elements(graph: Graph, nodes: Iterable[Node]) -> int:
    """The number of elements that nodes compute or reduce.  For contractions 8 products count as one element."""
    elements = 0
    for node in nodes:
        inner = 1
        if node.op.kind is Kind.CONTRACTION and type(node.operands[0]) is int:
            inner = max(1, _shape(graph, node.operands[0])[-1] // 8)
        counted = node.operands[:1] if node.op.kind is Kind.REDUCTION else node.outputs
        elements += sum([math.prod(_shape(graph, value)) for value in counted if type(value) is int]) * inner
    return elements


def _is_fast(node: Node) -> bool:
    """Whether computing an element takes no longer than its memory traffic."""
    return node.op.kind in (Kind.REDUCTION, Kind.CREATION) or "exact" in node.op.traits


def _shape(graph: Graph, value: int) -> tuple[int, ...]:
    aval = graph.avals[value]
    return aval.shape if isinstance(aval, Aval) else ()


def same_objects(guards: Sequence[Statement], some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether two namespaces have the same names, for the same objects.  Equal tables of plain values that a recorder has created
    count as the same, unless guards compare them by identity (the tuple of a class's bases)."""
    if some.keys() != others.keys():
        return False
    tables = [name for name, value in some.items() if not _is_same(value, others[name])]
    if not all(type(x := some[k]) in _TABLE_TYPES and type(x) is type(others[k]) and x == others[k] for k in tables):
        return False
    return not tables or names(*[node for node in walk(guards) if type(node) in (Is, Distinct)]).isdisjoint(tables)


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is MappingProxyType is type(other):  # each read of `cls.__dict__` creates a new proxy
        one, other = gc.get_referents(one)[0], gc.get_referents(other)[0]
    return one is other
