"""The finished recording, and the function of replay (replay/ir.py) that stands for its calls.

An entry guards, computes the scalars, runs the program, then the effects, and returns the result.  It holds the functions, classes,
modules and dictionaries of globals that it compares by identity, and refers weakly to other objects that it compares so; tensors are
reached by their path.  Outside objects that the call may change are different ones in each call (`distinct_guards`), but for NumPy's
arrays: what is done to these is done in the order of the function, whichever they are.

Of a tensor that the call uses, guards ask the type, and whether it requires grad, is a leaf, is a view.  The metadata (dtype, shape,
strides ...) of the program's inputs are checked by the program (runtime/program.py); those of other tensors at which Python has looked
are guarded.

Guards and epilogue run no code of the program: special methods of subclasses are passed over, since what they did was recorded.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tracejit.capture.branches import Branch
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
    "MISS",
    "PROMOTE",
    "Alias",
    "Body",
    "Exit",
    "ExitPoint",
    "Recording",
    "ScalarInput",
    "TensorInput",
    "TensorOutput",
    "ViewPosition",
    "WrittenInput",
    "calling",
    "cell_of",
    "distinct_guards",
]  # fmt: skip


class Exit:
    """What an entry returns instead of a result: exit `number` (from 1) of its program was taken, a guard failed (0, `MISS`), or an
    interrupt came (-1, `INTERRUPTED`).  Nothing was changed.

    counter: of the program (Executable.counter), by which it is known.  bridge: the machine code that machine code goes on to by itself
    (cpython/dispatcher.py), or None, while `left` is more than 0; each time takes one from it.  word: the address of `left`."""

    __slots__ = ("bridge", "counter", "left", "number", "word")

    def __init__(self, number: int, counter: list[int] | None = None) -> None:
        self.number = number
        self.counter = counter
        self.bridge: Any = None
        self.left = ctypes.c_int64(0)
        self.word = struct.pack("=q", ctypes.addressof(self.left))


MISS = Exit(0)
"""What an entry returns when a guard fails."""
INTERRUPTED = Exit(-1)
"""What an entry returns when its program has been left for a signal handler: the call is made once more when that has run."""

PROMOTE = Notify(Name("promote").call(), Name("counter").at(0).compared("==", Name("hot")))
"""The statement of a Body that asks whether the entry should be machine code."""
_MISSED = Name("MISS")
_NONE = Constant(None)
Entry = Callable[[tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor from outside: graph input `value`, the prologue's variable, and what it was like when recorded.

    strides: in elements.  marks: per marked dimension, whether its size is dynamic."""

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
    """A number from outside: graph input `value` with a ScalarAval, and what it is in the prologue."""

    value: int
    expression: Expr


@dataclass(frozen=True, slots=True)
class ViewPosition:
    """Where a view looks, which the program computes: what is in output number `output`."""

    output: int


@dataclass(frozen=True, slots=True)
class Alias:
    """An output that shares memory: `kind` is "input" or "output", `index` its position, `views` the (op, operands after the first,
    attributes) that lead from it to this output; empty where the memory is the same."""

    kind: str
    index: int
    views: tuple[tuple[Op, tuple[Operand | ViewPosition, ...], dict[str, Any]], ...]

    @property
    def places(self) -> list[ViewPosition]:
        """The computed places, in order."""
        return [x for _, operands, _ in self.views for x in operands if isinstance(x, ViewPosition)]


@dataclass(frozen=True, slots=True)
class TensorOutput:
    """A new tensor object that the result or an effect needs; facts of the eager run.  strides: in elements.  consumed: positions of the
    inputs that its graph leads to where a backward pass inside the run has used that up, else None."""

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
    """Tensor input number `index` was written in place; `value` is its last version, the flags its state afterwards.

    counted: whether tensors know of it; `.data` writes to memory whose versions stay as they are.  placed: whether a differentiable write
    has given the tensor a new place on the tape.  consumed: as for a TensorOutput, where that is in a graph that was used up."""

    index: int
    value: int
    requires_grad: bool
    is_leaf: bool
    counted: bool = True
    placed: bool = False
    consumed: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ExitPoint:
    """A guard node of the graph: position among the nodes, the user's line, the value seen."""

    node: int
    line: str
    expected: Literal


@dataclass(frozen=True, slots=True)
class Body:
    """What runs between the guards and the effects: statements that define out0, out1 ... (the tensors of `Recording.outputs`), or return
    MISS or an Exit.  They use the variables of `tensor_inputs` and `scalar_inputs`, and the names in `environment`.

    cached: names that the statements use, and expressions of tuples that depend on the recording's structure alone: they are made
    again only when it has changed.  calls: calls[0] grows with every call served; only with it is the structure checked by machine code."""

    statements: tuple[Statement, ...]
    environment: dict[str, Any]
    cached: Mapping[str, Expr] = field(default_factory=dict)
    calls: Sequence[int] | None = None

    @property
    def promotes(self) -> bool:
        """Whether it can be machine code."""
        return PROMOTE in self.statements


@dataclass(frozen=True, slots=True)
class Recording:
    """What one recorded call came to: a program, or the reason why there is none.

    guards: the prologue's statements.  epilogue: the effects'.  namespace: the constants they refer to.  weak:
    names of those that are weak references, and stand for what these refer to.
    structure: the same guards, with those that machine code can check for itself apart; None where there are too few.
    asked: which of the integers among the arguments are guarded by their values.  settled: their variables, and the
    number that each is in all calls that this recording serves.
    generators: references to those of Python and NumPy that the prologue draws from.  locks: whether it takes some.
    env: of the symbolic sizes in all of this, if there are any (symbolic_recording.py).
    facts: what the guards are about, in the order in which a reader asks.  moved: of which of these it was decisive that it had been
    another one.  outside: calls that are made beside the program.  left_out: how many steps of loops did not run as Python.  remarks: what
    else there is to say of them.  branches: where values decided more than once what the call does.
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
    moved: Earlier = field(default_factory=dict, repr=False, compare=False)
    env: ShapeEnv | None = field(default=None, repr=False, compare=False)
    outside: tuple[Reason, ...] = field(default=(), repr=False)
    left_out: int = field(default=0, compare=False)
    remarks: tuple[str, ...] = field(default=(), compare=False)
    branches: tuple[Branch, ...] = field(default=(), repr=False, compare=False)
    follows_rows: bool = field(default=False, repr=False, compare=False)

    def build_entry(self, body: Body, hot: int = 0, promote: Callable[[], None] | None = None) -> Entry:
        """entry(args, kwargs) -> the result, MISS where a guard fails, or whatever else `body` returned.  Its globals are what the names
        in its functions stand for.  promote: called when the entry is about to serve call number `hot`.

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
        """The source of the entry, for a reader."""
        function, examine = self.functions(body)
        checks = "" if examine is None else python.render(examine, "examine")
        return checks + python.render(function, "entry")

    def functions(self, body: Body) -> tuple[Function, Function | None]:
        """The entry, and `examine(*roots)`, which runs the checks of the structure: MISS, or what a Cell needs."""
        structure = self.structure
        guards: Sequence[Statement] = self.guards
        examine = None
        if structure is not None and body.calls is not None:
            held, definitions = self._wanted(structure, body)
            guards = _guarding(structure, [*body.cached, *held], definitions)
            examine = self._with_referents(_examining(structure, [*body.cached.values(), *map(Name, held)]))
        alive = [Miss(Name(name).is_same(None)) for name in self.weak]
        rest = (*body.statements, *self.epilogue, Return(self.result))
        entry = Function(("args", "kwargs"), (*alive, *guards), rest, _MISSED, locks=self.locks)
        if self.generators:
            entry = with_generators_restored(entry)
        return self._with_referents(entry), examine

    def _wanted(self, structure: Structure, body: Body) -> tuple[list[str], list[Statement]]:
        """What is needed of what `structure.checks` define, by statements that follow them (guards outside the checks, and the rest): the
        variables that the Cell holds, and statements that define the others."""
        used = names(structure.after, structure.others, body.statements, self.epilogue, self.result)
        definitions = []
        for variable, statement in reversed(list(structure.definitions.items())):
            if variable in used and variable not in structure.held:
                used |= names(statement)
                definitions.append(statement)
        return [variable for variable in structure.held if variable in used], definitions[::-1]

    def _with_referents(self, function: Function) -> Function:
        """Names that stand for weak references: each becomes a call, which returns the object, or None."""
        if not self.weak:
            return function
        weak = frozenset(self.weak)

        def referent(name: Name) -> Expr:
            return name.call() if name.name in weak else name

        return replace(function, guards=renamed(function.guards, referent), body=renamed(function.body, referent))


def cell_of(entry: Entry) -> StructureCell | None:
    """The cell of what `Recording.build_entry` has made, if it has one."""
    refresh = getattr(entry, "__globals__", {}).get("refresh")
    return None if refresh is None else refresh.__self__


def distinct_guards(values: Sequence[Expr]) -> list[Statement]:
    """A guard that these are different objects."""
    if len(values) == 2:
        return [Miss(Is(*values))]
    return [Miss(Not(Distinct(tuple(values))))] if len(values) > 2 else []


def _examining(structure: Structure, wanted: Sequence[Expr]) -> Function:
    items = [TupleOf((v, _NONE, _NONE) if place is None else (v, place, Item(v, place))) for v, place in structure.reads]
    found = [TupleOf(tuple(map(Name, part))) for part in (structure.instances, structure.tensors, structure.apart)]
    answer = Define("found", TupleOf((*found, TupleOf(tuple(items)), *wanted)))
    guards = (*structure.checks, *distinct_guards([*map(Name, structure.apart)]), answer)
    return Function(structure.roots, guards, (Return(Name("found")),), _MISSED)


def _guarding(structure: Structure, wanted: Sequence[str], definitions: Sequence[Statement]) -> list[Statement]:
    """The guards of an entry: while no word has moved, `structure.checks` are not among them."""
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
    """A body that asks `ask(tensors, scalars)` for the tuple of output tensors, and returns anything else that it answers."""
    given = [TupleOf(tuple([fact.expression for fact in facts])) for facts in (recording.tensor_inputs, recording.scalar_inputs)]
    result = Name("result")
    statements: list[Statement] = [
        Define("result", Name("call").call(*given)),
        ReturnIf(result.type().is_not(Name("tuple")), result),
    ]
    if recording.outputs:
        statements.append(Unpack(tuple([f"out{i}" for i in range(len(recording.outputs))]), result))
    return Body(tuple(statements), {"call": ask})
