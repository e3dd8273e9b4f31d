"""The finished recording, and the straight-line Python function that replays it.

An entry guards, computes the scalars, runs the program, then the effects, and returns the result.  It holds the functions, classes,
modules and dictionaries of globals that it compares by identity, and refers weakly to other objects that it compares so; tensors are
reached by their path.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracejit.capture.cell import Cell
from tracejit.capture.facts import Fact
from tracejit.capture.reasons import Reason
from tracejit.capture.rewinding import rewinding
from tracejit.capture.runs import commas
from tracejit.capture.structure import Structure
from tracejit.codegen.separation import separate
from tracejit.codegen.straight_line import RUN, SENT, Run
from tracejit.codegen.words import same
from tracejit.core.dtypes import DType
from tracejit.core.op import Op
from tracejit.ir.graph import Graph, Literal, Operand

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
    "WrittenInput",
    "calling",
    "cell_of",
    "distinct_lines",
]  # fmt: skip


class Exit:
    """What an entry returns instead of a result: exit `number` (from 1) of its program was taken, or a guard failed (0, `MISS`).  Nothing
    was changed."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


MISS = Exit(0)
"""What an entry returns when a guard fails."""

PROMOTE = "p_promote"
"""The line of a Body that asks whether the entry serves so many calls that it should be machine code.  It stands before the program: a
signal handler may run there, and raise, while nothing has been done."""
_PROMOTING = ("if counter[0] == hot: promote()",)
_VARIABLE = re.compile(r"\bv\d+\b")
Entry = Callable[[tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor from outside: graph input `value`, the prologue's variable, and what it was like when recorded.

    strides: in elements."""

    value: int
    expression: str
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool


@dataclass(frozen=True, slots=True)
class ScalarInput:
    """A number from outside: graph input `value` with a ScalarAval, and the prologue's variable."""

    value: int
    expression: str


@dataclass(frozen=True, slots=True)
class Alias:
    """An output that shares memory: `kind` is "input" or "output", `index` its position, `views` the (op, operands after the first,
    attributes) that lead from it to this output; empty where the memory is the same."""

    kind: str
    index: int
    views: tuple[tuple[Op, tuple[Operand, ...], dict[str, Any]], ...]


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
    again only when it has changed.  calls: calls[0] grows with every call served; only with it is the structure checked by machine code.
    run_lines: the statements that stand for the line RUN.  run: makes what that line does in machine code; None where nothing can."""

    lines: tuple[str, ...]
    environment: dict[str, Any]
    cached: Mapping[str, str] = field(default_factory=dict)
    calls: Sequence[int] | None = None
    run_lines: tuple[str, ...] = ()
    run: Callable[[], Run] | None = None

    def written(self, interpreted: bool) -> list[str]:
        """`lines` with the statements that RUN and PROMOTE stand for if they are to be interpreted; else without PROMOTE."""
        marked = {RUN: self.run_lines, PROMOTE: _PROMOTING if self.run is not None else ()} if interpreted else {PROMOTE: ()}
        return [line for marker in self.lines for line in marked.get(marker, (marker,))]


@dataclass(frozen=True, slots=True)
class Recording:
    """What one recorded call came to: a program, or the reason why there is none.

    guards: the prologue's statements.  epilogue: the effects'.  result: an expression.  namespace: the constants they refer to.  weak:
    names of those that are weak references, and stand for what these refer to.
    structure: the same guards, with those that machine code can check for itself apart; None where there are too few.
    generators: references to those of Python and NumPy that the prologue draws from.  locks: whether it takes some.
    facts: what the guards are about, in the order in which a reader asks.  outside: calls that are made beside the program."""

    reason: Reason | None
    graph: Graph | None = None
    tensor_inputs: tuple[TensorInput, ...] = ()
    scalar_inputs: tuple[ScalarInput, ...] = ()
    outputs: tuple[TensorOutput, ...] = ()
    written_inputs: tuple[WrittenInput, ...] = ()
    exits: tuple[ExitPoint, ...] = ()
    guards: tuple[str, ...] = ()
    epilogue: tuple[str, ...] = ()
    result: str = "None"
    namespace: dict[str, Any] = field(default_factory=dict, repr=False)
    weak: tuple[str, ...] = ()
    structure: Structure | None = field(default=None, repr=False)
    generators: tuple[Callable[[], Any], ...] = field(default=(), repr=False)
    locks: bool = False
    facts: tuple[Fact, ...] = field(default=(), repr=False)
    outside: tuple[Reason, ...] = field(default=(), repr=False)

    def build_entry(self, body: Body, hot: int = 0, promote: Callable[[], None] | None = None) -> Entry:
        """entry(args, kwargs) -> the result, MISS where a guard fails, or whatever else `body` returned.  Its globals are what the names
        in `text` stand for.  promote: called when the entry is about to serve call number `hot`.

        Raises ValueError for a recording that has a reason."""
        if self.reason is not None:
            raise ValueError(f"this call was not recorded: {self.reason}")
        namespace = {**self.namespace, **body.environment, "hot": hot - 1, "promote": promote}
        exec(compile(self.text(body), "<tracejit entry>", "exec"), namespace)
        if self.structure is not None and body.calls is not None:
            namespaces = [self.namespace[name] for name in self.structure.namespaces]
            cell = Cell(namespace["examine"], MISS, namespaces, body.calls)
            namespace.update(state_of=cell.state, refresh=cell.refresh, same=same(), separate=separate())
        entry: Entry = namespace["entry"]
        return rewinding(entry, self.generators, Exit) if self.generators else entry

    def text(self, body: Body, interpreted: bool = True) -> str:
        """The source of the entry: to be interpreted, or to be translated (codegen/straight_line.py)."""
        rest = [*body.written(interpreted), *self.epilogue, f"return {self.result}"]
        lines: list[str] = []
        guards: Sequence[str] = self.guards
        if self.structure is not None and body.calls is not None:
            held, definitions = _needed(self.structure, [*body.run_lines, *rest])
            lines += _examining(self.structure, [*body.cached.values(), *held])
            guards = _guarding(self.structure, [*body.cached, *held], definitions)
        guards = [*[f"if {name} is None: return MISS" for name in self.weak], *guards]
        statements = [*_missing_on_errors(guards), *[f"    {line}" for line in rest]]
        lines += ["def entry(args, kwargs):", *(_letting_go(statements) if self.locks else statements)]
        text = "\n".join(lines) + "\n"
        return _Weak(self.weak).changed(text) if self.weak else text


def cell_of(entry: Entry) -> Cell | None:
    """The cell of what `Recording.build_entry` has made, if it has one."""
    refresh = getattr(entry, "__globals__", {}).get("refresh")
    return None if refresh is None else refresh.__self__


class _Weak(ast.NodeTransformer):
    """Names that stand for weak references: each becomes a call, which returns the object, or None."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Call(node, [], []) if node.id in self._names else node

    def changed(self, text: str) -> str:
        return ast.unparse(ast.fix_missing_locations(self.visit(ast.parse(text)))) + "\n"


def _missing_on_errors(lines: Sequence[str]) -> list[str]:
    """Guards run no code of the program: an error that comes from a function further in was raised by a signal handler."""
    body = [f"        {line}" for line in lines or ("pass",)]
    errors = "(LookupError, AttributeError, ValueError, ArithmeticError)"
    handler = [f"    except {errors} as error:", f"        {SENT}: raise", "        return MISS"]
    return ["    try:", *body, *handler]


def _letting_go(lines: Sequence[str]) -> list[str]:
    """Whatever comes of it, no lock stays taken."""
    return [
        "    held = []",
        "    try:",
        *[f"    {line}" for line in lines],
        "    finally:",
        "        for lock in held: lock.release()",
    ]


def distinct_lines(expressions: Sequence[str]) -> list[str]:
    """A guard that these expressions are different objects."""
    if len(expressions) < 2:
        return []
    if len(expressions) == 2:
        return [f"if {expressions[0]} is {expressions[1]}: return MISS"]
    return [f"if len({{{', '.join(f'id({v})' for v in expressions)}}}) != {len(expressions)}: return MISS"]


def _needed(structure: Structure, rest: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is needed of what `structure.checks` define, by statements that follow them (`rest`, and guards outside the checks): variables
    that the Cell holds, and lines that define the others."""
    used = {name for text in (*structure.after, *rest, *structure.others) for name in _VARIABLE.findall(text)}
    lines = []
    for variable, line in reversed(list(structure.definitions.items())):
        if variable in used and variable not in structure.held:
            used.update(_VARIABLE.findall(line))
            lines.append(line)
    return [variable for variable in structure.held if variable in used], lines[::-1]


def _examining(structure: Structure, wanted: Sequence[str]) -> list[str]:
    """`examine(*roots)`: runs the checks; MISS, or what a Cell needs."""
    items = [f"({v}, {place}, {v}[{place}])" if place else f"({v}, None, None)" for v, place in structure.reads]
    found = [f"({commas(part)})" for part in (structure.instances, structure.tensors, structure.apart, items)]
    lines = [*structure.checks, *distinct_lines(structure.apart), f"return {commas([*found, *wanted])}"]
    return [f"def examine({', '.join(structure.roots)}):", *_missing_on_errors(lines)]


def _guarding(structure: Structure, wanted: Sequence[str], definitions: Sequence[str]) -> list[str]:
    """The guards of an entry: while no word has moved, `structure.checks` are not among them."""
    roots = structure.roots
    lines = [
        *structure.before, "addresses, table, reference = state_of[0]", "held = reference()",
        f"if held is None or not same({', '.join(('table, addresses', *roots))}):",
        f"    held = refresh({', '.join(roots)})", "    if held is MISS: return MISS",
        f"apart, key, {commas(wanted)}= held.found",
    ]  # fmt: skip
    lines += definitions
    lines += structure.after
    if structure.others and structure.apart:
        return [*lines, f"if not separate(apart, {', '.join(structure.others)}): return MISS"]
    return [*lines, *distinct_lines(structure.others)]


def calling(recording: Recording, call: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> Body:
    """A body that asks `call(tensors, scalars)` for the tuple of output tensors, and returns anything else that it answers."""
    tensors = "".join(f"{fact.expression}, " for fact in recording.tensor_inputs)
    scalars = "".join(f"{fact.expression}, " for fact in recording.scalar_inputs)
    lines = [f"result = call(({tensors}), ({scalars}))", "if type(result) is not tuple:", "    return result"]
    if recording.outputs:
        lines.append(f"{''.join(f'out{i}, ' for i in range(len(recording.outputs)))}= result")
    return Body(tuple(lines), {"call": call})
