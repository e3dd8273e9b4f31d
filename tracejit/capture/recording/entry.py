"""The finished recording, and its entry: the function in the language of replay/ir.py that serves later calls.

An entry checks the guards, computes the scalars, runs the program, does the effects and returns the result.  It keeps alive the
functions, classes, modules and dictionaries of globals whose identity it guards; other such objects it refers to weakly.  Tensors
are reached by their path.  A guard requires that outside objects which the call may change are different objects
(`distinct_guards`).  NumPy arrays need no such guard, since reads and writes of them are replayed in the order of the function.

The guards on a tensor that the call uses are on its type, and on whether it requires grad, is a leaf, is a view.  The program
checks the metadata of its own inputs (dtype, shape, strides; runtime/program.py); those of other tensors that the function
inspects are guarded here.

Guards and epilogue run no user code: special methods of subclasses are bypassed, since what they did was recorded.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tracejit.capture.branches import Branch, Recursion
from tracejit.capture.reasons import Reason
from tracejit.capture.recording.cell import StructureCell
from tracejit.capture.recording.facts import Earlier, Fact
from tracejit.capture.recording.generator_states import restore_states, saved_states, with_generators_restored
from tracejit.capture.recording.structure import Structure
from tracejit.core.dtypes import DType
from tracejit.core.op import Op
from tracejit.core.symbolic import ShapeEnv
from tracejit.cpython.distinctness import all_distinct
from tracejit.cpython.words import same
from tracejit.ir.graph import Graph, Literal, Operand
from tracejit.replay import python
from tracejit.replay.ir import (
    Constant,
    Define,
    Distinct,
    Expr,
    Function,
    If,
    Is,
    Item,
    Miss,
    Name,
    Not,
    Notify,
    Return,
    ReturnIf,
    Statement,
    TupleOf,
    Unpack,
    names,
    renamed,
)

__all__ = [
    "MISS", "PROMOTE", "Alias", "Body", "Exit", "ExitPoint", "Recording", "ScalarInput", "TensorInput", "TensorOutput",
    "ViewPosition", "WrittenInput", "calling", "cell_of", "distinct_guards",
]  # fmt: skip


class Exit:
    """What an entry returns in place of a result: the program has left by its exit `number` (from 1), a guard has failed (0,
    `MISS`), or a signal has interrupted it (-1, `INTERRUPTED`).  Nothing has been changed.

    counter: the `Executable.counter` of the program, which identifies the program.  bridge: the machine code to which machine
    code goes on from here by itself (cpython/dispatcher.py), or None.  remaining_hops: how often it still does so; each time decrements it.
    word: the address of `remaining_hops`."""

    __slots__ = ("bridge", "counter", "number", "remaining_hops", "word")

    def __init__(self, number: int, counter: list[int] | None = None) -> None:
        self.number = number
        self.counter = counter
        self.bridge: Any = None
        self.remaining_hops = ctypes.c_int64(0)
        self.word = struct.pack("=q", ctypes.addressof(self.remaining_hops))


MISS = Exit(0)
"""What an entry returns when a guard fails."""
INTERRUPTED = Exit(-1)
"""What an entry returns when a signal has interrupted its program: the call is repeated after the signal handler has run."""

PROMOTE = Notify(Name("promote").call(), Name("counter").at(0).compared("==", Name("hot")))
"""The statement of a Body that calls `promote` when the entry has served enough calls to become machine code."""
_MISSED = Name("MISS")
_NONE = Constant(None)
Entry = Callable[[tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor from outside: graph input `value`, its variable in the prologue, and its metadata in the recorded call.

    strides: in elements.  marks: whether the size is dynamic, for each dimension that the user has marked."""

    value: int
    expression: Name
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool
    marks: Mapping[int, bool] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class ScalarInput:
    """A number from outside: graph input `value`, which has a ScalarAval, and its expression in the prologue."""

    value: int
    expression: Expr


@dataclass(frozen=True, slots=True)
class ViewPosition:
    """The position of a view that the program computes: it is the value of output number `output`."""

    output: int


@dataclass(frozen=True, slots=True)
class Alias:
    """The input or output whose memory an output shares: `kind` is "input" or "output", `index` its position.  views: (op,
    operands after the first, attributes) of the views that lead from it to the output; empty if it is the same memory as a
    whole."""

    kind: str
    index: int
    views: tuple[tuple[Op, tuple[Operand | ViewPosition, ...], dict[str, Any]], ...]

    @property
    def computed_positions(self) -> list[ViewPosition]:
        """The positions that the program computes, in order."""
        return [x for _, operands, _ in self.views for x in operands if isinstance(x, ViewPosition)]


@dataclass(frozen=True, slots=True)
class TensorOutput:
    """A new tensor that the result or an effect needs, with its metadata in the recorded call.  strides: in elements.  consumed:
    if a backward pass inside the call has freed the tensor's graph on the tape, the positions of the inputs that the graph leads
    to; else None."""

    value: int
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool
    alias: Alias | None
    consumed: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class WrittenInput:
    """Tensor input number `index` was written in place.  value: its last version.  requires_grad, is_leaf: its state after the
    call.

    counted: whether the write has changed the version counter of the tensor, as all writes do but those through `.data`.  placed:
    whether a differentiable write has given the tensor a new position on the tape.  consumed: as for a TensorOutput, for this
    position."""

    index: int
    value: int
    requires_grad: bool
    is_leaf: bool
    counted: bool = True
    has_new_edge: bool = False
    consumed: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ExitPoint:
    """A guard node of the graph: its position among the nodes, the user's line, and the value in the recorded call."""

    node: int
    line: str
    expected: Literal


@dataclass(frozen=True, slots=True)
class Body:
    """The part of an entry between the guards and the effects: statements that define out0, out1 ... (the tensors of
    `Recording.outputs`), or return MISS or an Exit.  They use the variables of `tensor_inputs` and `scalar_inputs`, and the names
    in `environment`.

    cached: names that the statements use, with expressions of tuples that depend on the recording's structure alone; they are
    evaluated again only when it has changed.  calls: calls[0] counts the calls served; without it, machine code does not check
    the structure."""

    statements: tuple[Statement, ...]
    environment: dict[str, Any]
    cached: Mapping[str, Expr] = field(default_factory=dict)
    calls: Sequence[int] | None = None

    @property
    def promotes(self) -> bool:
        """Whether the entry may become machine code."""
        return PROMOTE in self.statements


@dataclass(frozen=True, slots=True)
class Recording:
    """The result of a recorded call: a graph with guards and effects, or the reason why there is none.

    guards: the statements of the prologue.  epilogue: the statements of the effects.
    namespace: the constants that both refer to.  weak: names of constants that are weak references and stand for their referents.
    structure: the same guards, with those that machine code can check separated; None if these are too few.
    asked: positions of the integers among the arguments that are guarded by their values.  settled: the variables of these, with
        the value that each has in all calls that this recording serves.
    generators: references to the generators of Python and NumPy from which the prologue draws.
    locks: whether the entry holds locks.  env: the symbolic sizes in all of this, if there are any (symbolic_recording.py).
    facts: what the guards check, for the user, the most important ones first.  varied: the numbers that are not guarded because
        earlier recordings have read other values for them (`Facts.varied`).
    opaque_calls: calls of opaque code that the entry makes besides the program.
    left_out: number of steps of loops that did not run as Python.  remarks: further remarks on loops, for the user.
    branches: the branches that values have decided more than once.  recursion: of functions that call themselves.
    follows_rows: see `RaggedHandlers`."""

    reason: Reason | None
    graph: Graph | None = None
    tensor_inputs: tuple[TensorInput, ...] = ()
    scalar_inputs: tuple[ScalarInput, ...] = ()
    outputs: tuple[TensorOutput, ...] = ()
    written_inputs: tuple[WrittenInput, ...] = ()
    exits: tuple[ExitPoint, ...] = ()
    guards: tuple[Statement, ...] = ()
    epilogue: tuple[Statement, ...] = ()
    result: Expr = _NONE
    namespace: dict[str, Any] = field(default_factory=dict, repr=False)
    weak: tuple[str, ...] = ()
    structure: Structure | None = field(default=None, repr=False)
    asked: frozenset[int] = frozenset()
    settled: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    generators: tuple[Callable[[], Any], ...] = field(default=(), repr=False)
    locks: bool = False
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    varied: Earlier = field(default_factory=dict, repr=False, compare=False)
    env: ShapeEnv | None = field(default=None, repr=False, compare=False)
    opaque_calls: tuple[Reason, ...] = field(default=(), repr=False)
    left_out: int = field(default=0, compare=False)
    remarks: tuple[str, ...] = field(default=(), compare=False)
    branches: tuple[Branch, ...] = field(default=(), repr=False, compare=False)
    recursion: Recursion = field(default_factory=Recursion, repr=False, compare=False)
    follows_rows: bool = field(default=False, repr=False, compare=False)

    def build_entry(self, body: Body, hot: int = 0, promote: Callable[[], None] | None = None) -> Entry:
        """The entry as a Python function: entry(args, kwargs) returns the result, MISS if a guard fails, or what `body` returns
        in place of a result.  promote: called when the entry is about to serve call number `hot`.

        Raises ValueError for a recording that has a reason."""
        if self.reason is not None:
            raise ValueError(f"this call was not recorded: {self.reason}")
        namespace = {**self.namespace, **body.environment, "hot": hot - 1, "promote": promote}
        function, examine = self.functions(body)
        if examine is not None and self.structure is not None and body.calls is not None:
            examining = python.load(examine, "examine", namespace, "guards")
            namespaces = [self.namespace[name] for name in self.structure.namespaces]
            cell = StructureCell(examining, MISS, namespaces, body.calls)
            namespace.update(state_of=cell.state, refresh=cell.refresh, same=same(), separate=all_distinct())
        if self.generators:
            namespace.update(kept_states=saved_states(self.generators), put_back=restore_states)
        entry: Entry = python.load(function, "entry", namespace, "entry")
        return entry

    def text(self, body: Body) -> str:
        """The source of the entry, for the user."""
        function, examine = self.functions(body)
        checks = "" if examine is None else python.render(examine, "examine")
        return checks + python.render(function, "entry")

    def functions(self, body: Body) -> tuple[Function, Function | None]:
        """The entry; and `examine(*roots)`, which runs the checks of the structure and returns MISS or what a StructureCell needs
        (None if there is no structure)."""
        structure = self.structure
        guards: Sequence[Statement] = self.guards
        examine = None
        if structure is not None and body.calls is not None:
            from_cell, definitions = self._variables_needed(structure, body)
            guards = _guards_with_cell(structure, [*body.cached, *from_cell], definitions)
            examine = self._with_referents(_examine_function(structure, [*body.cached.values(), *map(Name, from_cell)]))
        alive = [Miss(Name(name).is_same(None)) for name in self.weak]
        rest = (*body.statements, *self.epilogue, Return(self.result))
        entry = Function(("args", "kwargs"), (*alive, *guards), rest, _MISSED, locks=self.locks)
        if self.generators:
            entry = with_generators_restored(entry)
        return self._with_referents(entry), examine

    def _variables_needed(self, structure: Structure, body: Body) -> tuple[list[str], list[Statement]]:
        """The variables defined in `structure.checks` that the rest of the entry uses: names of those that the cell holds, and
        the statements that define the others."""
        used = names(structure.after, structure.others, body.statements, self.epilogue, self.result)
        definitions = []
        for variable, statement in reversed(list(structure.definitions.items())):
            if variable in used and variable not in structure.held:
                used |= names(statement)
                definitions.append(statement)
        return [variable for variable in structure.held if variable in used], definitions[::-1]

    def _with_referents(self, function: Function) -> Function:
        """`function`, with each name of a weak reference replaced by a call of the reference, which gives the object or None."""
        if not self.weak:
            return function
        weak = frozenset(self.weak)

        def referent(name: Name) -> Expr:
            return name.call() if name.name in weak else name

        return replace(function, guards=renamed(function.guards, referent), body=renamed(function.body, referent))


def cell_of(entry: Entry) -> StructureCell | None:
    """The cell of an entry of `Recording.build_entry`, if it has one."""
    refresh = getattr(entry, "__globals__", {}).get("refresh")
    return None if refresh is None else refresh.__self__


def distinct_guards(values: Sequence[Expr]) -> list[Statement]:
    """The guard that these are different objects, if there are two or more."""
    if len(values) == 2:
        return [Miss(Is(*values))]
    return [Miss(Not(Distinct(tuple(values))))] if len(values) > 2 else []


def _examine_function(structure: Structure, wanted: Sequence[Expr]) -> Function:
    """`examine(*roots)` of StructureCell.  wanted: what the entry needs besides."""
    items = [TupleOf((v, _NONE, _NONE) if key is None else (v, key, Item(v, key))) for v, key in structure.reads]
    parts = [TupleOf(tuple(map(Name, part))) for part in (structure.instances, structure.tensors, structure.apart)]
    result = Define("found", TupleOf((*parts, TupleOf(tuple(items)), *wanted)))
    guards = (*structure.checks, *distinct_guards([*map(Name, structure.apart)]), result)
    return Function(structure.roots, guards, (Return(Name("found")),), _MISSED)


def _guards_with_cell(structure: Structure, wanted: Sequence[str], definitions: Sequence[Statement]) -> list[Statement]:
    """The guards of an entry that has a cell: `structure.checks` run only if a word has changed."""
    roots = tuple(map(Name, structure.roots))
    held, table = Name("held"), Name("table")
    moved = Not(Name("same").call(table, Name("addresses"), *roots))
    statements: list[Statement] = [
        *structure.before,
        Unpack(("addresses", "table", "reference"), Name("state_of").at(0)),
        Define("held", Name("reference").call()),
        If(
            held.is_same(None).otherwise(moved),
            (Define("held", Name("refresh").call(*roots)), Miss(held.is_same(_MISSED))),
        ),
        Unpack(("apart", "key", *wanted), held.get("found")),
        *definitions,
        *structure.after,
    ]
    if structure.others and structure.apart:
        return [*statements, Miss(Not(Name("separate").call(Name("apart"), *structure.others)))]
    return [*statements, *distinct_guards(structure.others)]


def calling(recording: Recording, ask: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> Body:
    """A body that calls `ask(tensors, scalars)`, which gives the tuple of output tensors; anything else that it gives the entry
    returns."""
    given = [TupleOf(tuple([fact.expression for fact in facts])) for facts in (recording.tensor_inputs, recording.scalar_inputs)]
    result = Name("result")
    statements: list[Statement] = [
        Define("result", Name("call").call(*given)),
        ReturnIf(result.type().is_not(Name("tuple")), result),
    ]
    if recording.outputs:
        statements.append(Unpack(tuple([f"out{i}" for i in range(len(recording.outputs))]), result))
    return Body(tuple(statements), {"call": ask})
