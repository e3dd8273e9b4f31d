"""One recorded path of a compiled function: what serves its calls, and the bridges from its exits to other paths.

It must not know of the other paths of the function, but for these bridges.
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

__all__ = ["FIRST_WAIT", "Entry", "PathState", "same_objects"]

_TABLE_TYPES = (list, tuple, int, float, complex, str, bytes)
_CHEAP_CHECKS = 200  # guards that machine code looks at in a few microseconds
_HOPS = range(31, 1024)  # calls along a bridge without Python before they are accounted for: more where many were already
_HOPS_PART = 16  # of all calls along a bridge
_ELEMENTS = 4096  # that a program goes through in a unit of accounts.py
_BYTES = 8  # that it reads and writes for an element
_MIN_SAVED_ELEMENTS = 2048  # elements that a side trace need not compute, or it is not made: about a microsecond
_VARIANT_COST = 512  # units that a path for other sizes costs whose programs are there, and for each operation
_VARIANT_COST_PER_OPERATION = 3
_UNSTABLE_AFTER = 4  # recordings of one path, which served no call in between
FIRST_WAIT = 64  # eager calls before what came to nothing is tried again; doubled each time


class PathState(Enum):
    """How calls reach the program of a path.  While the program itself is compiled there is no Entry but a PendingPath
    (recording_driver.py).

    ::

                                     hot_calls served                     translated
        PendingPath --installed--> RECORDED -----------> TRANSLATING ---------------> MACHINE_CODE
                                      ^                    |     |
                                      +---- lost by a fork-+     +-- cannot be --> INTERPRETED

        each of them -- dropped: it served too few calls, or clear(), or the function runs in pieces --> DROPPED
    """

    RECORDED = auto()
    """Through generated Python, which counts them."""
    TRANSLATING = auto()
    """Through generated Python, while that is translated to machine code."""
    INTERPRETED = auto()
    """Through generated Python for good; `Entry.obstacle` says why."""
    MACHINE_CODE = auto()
    """Through machine code alone."""
    DROPPED = auto()
    """By no new call: the path is in the table no more."""


class Entry:
    """One recorded path: the generated function, its executable, and the bridges from its exits."""

    __slots__ = (
        "_elements", "_operations", "_repeats", "_served_seen", "body", "bridges", "eager_exits", "executable", "is_sized", "machine",
        "obstacle", "recording", "run", "sizes", "state", "traces", "unbridged", "uses_seen",
    )  # fmt: skip

    def __init__(
        self, recording: Recording, executable: Executable, log: DebugLog | None, promote: Callable[[Entry], None]
    ) -> None:
        """promote: called with this entry when it has served `config.hot_calls` calls."""
        self.recording = recording
        self.executable = executable
        self.body = body = executable.body()

        self.run = recording.build_entry(body, config.hot_calls, lambda: promote(self))
        self.machine: Any = None
        self.state = PathState.RECORDED
        self.obstacle = ""  # why it is INTERPRETED
        root = Trace(executable, executable.program, executable.operations, body, entries=(self,))
        self.traces: tuple[Trace, ...] = (root,)  # and the side traces that lead here
        if log is not None:
            log.entry(recording.text(body))
        self.bridges: dict[int, Entry] = {}  # from an exit, and from a miss (0): the entry that served the last such call
        self.eager_exits: dict[
            int, list[int]
        ] = {}  # exits that a recorded path stands for: [eager calls since, how many to wait for]
        self.unbridged = [0, 0]  # exits without a bridge since all entries were asked in vain, how many not to ask them for
        self.sizes: Shapes = ()  # of the arguments of the recorded call
        self.is_sized = False  # whether it serves no calls of other sizes
        self.uses_seen = 0  # at the last search for unused entries
        self._repeats = 0, 0  # how often it was recorded once more, and its uses at that time
        self._operations = len(recording.graph.nodes) if recording.graph is not None else 0
        self._served_seen = 0
        self._elements: tuple[int, int] | None = None

    def begin_translation(self) -> bool:
        """RECORDED -> TRANSLATING.  Whether it was recorded."""
        if self.state is not PathState.RECORDED:
            return False
        self.state = PathState.TRANSLATING
        return True

    def translate(self) -> tuple[Recording, Body, Any, Any]:
        """(recording, body, entry, what serves calls of positional arguments in machine code).  Raises Untranslatable.

        Where objects from outside are other ones in each call (a new one as an argument), a few guards of them cost less than looking
        for what has changed."""
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
        """TRANSLATING -> MACHINE_CODE, which is what `translate` has made.  Whether it was not dropped meanwhile."""
        own = self.traces[0]
        if self.state is not PathState.TRANSLATING:
            return False
        self.recording, self.body, self.run, self.machine, self.state = recording, body, run, machine, PathState.MACHINE_CODE
        own.body, own.machine = body, machine
        return True

    def keep_interpreted(self, obstacle: str) -> None:
        """TRANSLATING -> INTERPRETED, since `obstacle` stands in the way of machine code; unless it was dropped meanwhile."""
        if self.state is PathState.TRANSLATING:
            self.obstacle, self.state = obstacle, PathState.INTERPRETED

    def lose_translation(self) -> bool:
        """TRANSLATING -> RECORDED, in a child of the process in which it was being translated.  Whether it was."""
        if self.state is not PathState.TRANSLATING:
            return False
        self.state = PathState.RECORDED
        return True

    def drop(self) -> None:
        """-> DROPPED."""
        self.state = PathState.DROPPED

    def side_trace(self, source: Trace, number: int) -> Trace | str:
        """Machine code that goes on along this path where `source` leaves at an exit, with what is in memory there; or why not."""
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
        return Trace(executable, program, len(rest.graph.nodes), body, machine, rest.known, rest.held, (*source.entries, self))

    def add_side_trace(self, side: Trace) -> None:
        """A side trace ends in this path from now on."""
        self.traces = (*self.traces, side)

    @property
    def uses(self) -> int:
        """Calls that it served or led to another entry."""
        served, exits, *_ = self.executable.counter
        return served + exits

    def is_unstable(self) -> bool:
        """It was recorded once more, since its guards had not held.  Whether that has happened several times while it served no call: after
        some calls they hold, as those of a cache do which the call has filled."""
        times, uses = self._repeats
        self._repeats = times + 1 if uses == self.uses else 1, self.uses
        return self._repeats[0] >= _UNSTABLE_AFTER

    @property
    def gain(self) -> int:
        """What it has saved so far, in the units of accounts.py: of each call the operations that eager mode would have called, two each,
        and the elements that only eager mode goes through."""
        ours, eagers = self._element_counts
        return self.executable.counter[0] * (2 * self._operations + (eagers - ours) // _ELEMENTS)

    @property
    def pays_for_variant(self) -> bool:
        """Whether eager mode goes through so much in a call that a path for other sizes, which takes its programs from where this one has
        them, pays with one call."""
        return self._element_counts[1] // _ELEMENTS >= _VARIANT_COST + _VARIANT_COST_PER_OPERATION * self._operations

    @property
    def effort(self) -> int:
        """What it costs to leave the program at an exit, in these units."""
        return 1 + self._element_counts[0] // _ELEMENTS

    @property
    def _element_counts(self) -> tuple[int, int]:
        """(elements that the program goes through, those that eager mode does): eager mode goes through all elements of each operation,
        where a program that has fused some computes on while it reads and writes memory once."""
        if self._elements is None:
            graph, program = self.executable.graph, self.executable.program
            eagers = _elements(graph, [node for node in graph.nodes if node.op.kind is not Kind.VIEW])
            ours = eagers
            if isinstance(program, Program):
                moved = program.traffic
                slow = [node for node in graph.nodes if node.op.kind is not Kind.VIEW and not _is_fast(node)]
                ours = min(ours, (moved.read + moved.written) // _BYTES + _elements(graph, slow))
            self._elements = ours, eagers
        return self._elements

    def stays_eager(self, number: int) -> bool:
        """Whether exit `number` has led to a path that is recorded, and it is too early to try again."""
        waiting = self.eager_exits.get(number)
        if waiting is None:
            return False
        waiting[0] += 1
        if waiting[0] <= waiting[1]:
            return True
        waiting[:] = 0, 2 * waiting[1]
        return False

    def link(self, number: int, bridge: Entry) -> int:
        """Calls that leave at exit `number` continue in `bridge` from now on, without Python for some of them where both are machine code.
        Answers how many have done so since the last time."""
        self.bridges[number] = bridge
        calls = 0
        for trace in self.traces:
            taken = trace.exits.get(number)
            if taken is not None:
                crossed = trace.crossed.get(number, 0)
                done = 0 if taken.bridge is None else _hops(crossed) - taken.left.value
                trace.crossed[number] = crossed + done
                taken.bridge, taken.left.value = trace.next_trace(number, bridge), _hops(crossed + done)
                calls += done
        return calls

    def missing_side_traces(self, number: int, bridge: Entry) -> list[Trace]:
        """The traces of this path that should have a side trace from exit `number` along `bridge`, and of which it was not tried yet."""
        if not config.hot_calls or self.machine is None or bridge.machine is None:
            return []
        often = [trace for trace in self.traces if trace.crossed.get(number, 0) >= config.hot_calls]
        return [trace for trace in often if (number, bridge) not in trace.sides]

    def mostly_exits(self, calls: int) -> bool:
        """Whether it has served less than half as many calls as these that left it at an exit, since this was last asked."""
        served, self._served_seen = self.executable.counter[0] - self._served_seen, self.executable.counter[0]
        return 2 * served < calls

    def unlink(self, others: Collection[Entry]) -> None:
        """Remove the bridges and side traces to dropped entries."""
        self.bridges = {number: bridge for number, bridge in self.bridges.items() if bridge not in others}
        self.traces = tuple([trace for trace in self.traces if not any(entry in others for entry in trace.entries)])
        for trace in self.traces:
            trace.unlink(others)

    def skips_search(self) -> bool:
        """Whether a call that left at an exit without a bridge runs eagerly at once: all entries were asked in vain not long ago."""
        self.unbridged[0] += 1
        if self.unbridged[0] <= self.unbridged[1]:
            return True
        self.unbridged[0] = 0
        return False

    def note_vain_search(self) -> None:
        """All entries were asked in vain after an exit without a bridge, and there is no room for another path."""
        if not self.unbridged[0]:
            self.unbridged[1] = max(FIRST_WAIT, min(2 * self.unbridged[1], FIRST_WAIT << 10))

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call, MISS or an Exit."""
        result: Any = INTERRUPTED
        while result is INTERRUPTED:
            result = self.run(args, kwargs) if self.machine is None or kwargs else self.machine(*args)
        return result

    def calls(self) -> str:
        """How calls reach the program, for a reader."""
        if self.machine is not None:
            reason = words.unsupported()
            return "from machine code" + (f", which checks objects one by one, since {reason}" if reason else "")
        if not c_api.supported():
            return f"from Python, since what cannot be translated is {c_api.unsupported()}"
        if self.state is PathState.TRANSLATING:
            return "from Python, since it is being translated in the background"
        if self.state is PathState.INTERPRETED:
            return f"from Python, since {self.obstacle}"
        return f"from Python, until {config.hot_calls} were served" if config.hot_calls and self.body.promotes else "from Python"

    def stands_for(self, recording: Recording) -> bool:
        """Whether `recording` is the same path under the same guards."""
        mine, other = self.recording.graph, recording.graph
        return (
            mine is not None
            and other is not None
            and self.recording.tensor_inputs == recording.tensor_inputs  # strides: a program is made for them
            and self.recording.outputs == recording.outputs
            and self.recording.guards == recording.guards
            and same_objects(recording.guards, self.recording.namespace, recording.namespace)
            and self.recording.epilogue == recording.epilogue
            and self.recording.result == recording.result
            and mine.equals(other)
        )


def _hops(crossed: int) -> int:
    """How many calls may go on from an exit without Python, where so many did."""
    return min(max(_HOPS.start, crossed // _HOPS_PART), _HOPS.stop - 1)


def _elements(graph: Graph, nodes: Iterable[Node]) -> int:
    """The elements that nodes compute, or reduce; 8 products added up count as one."""
    elements = 0
    for node in nodes:
        inner = 1
        if node.op.kind is Kind.CONTRACTION and type(node.operands[0]) is int:
            inner = max(1, _shape(graph, node.operands[0])[-1] // 8)
        through = node.operands[:1] if node.op.kind is Kind.REDUCTION else node.outputs
        elements += sum([math.prod(_shape(graph, value)) for value in through if type(value) is int]) * inner
    return elements


def _is_fast(node: Node) -> bool:
    """Whether an element takes no longer than to read and to write it."""
    return node.op.kind in (Kind.REDUCTION, Kind.CREATION) or "exact" in node.op.traits


def _shape(graph: Graph, value: int) -> tuple[int, ...]:
    aval = graph.avals[value]
    return aval.shape if isinstance(aval, Aval) else ()


def same_objects(guards: Sequence[Statement], some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether the same names stand for the same objects, or for equal tables of types and plain values that a recorder has written: what
    guards know by its identity, as the order of a class's bases or a number that is kept somewhere, is no such table."""
    if some.keys() != others.keys():
        return False
    tables = [name for name, value in some.items() if not _is_same(value, others[name])]
    if not all(type(x := some[k]) in _TABLE_TYPES and type(x) is type(others[k]) and x == others[k] for k in tables):
        return False
    return not tables or names(*[node for node in walk(guards) if type(node) in (Is, Distinct)]).isdisjoint(tables)


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is MappingProxyType is type(other):  # the dictionary of a class is behind another one whenever it is asked for
        one, other = gc.get_referents(one)[0], gc.get_referents(other)[0]
    return one is other
