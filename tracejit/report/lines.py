"""What happened to each line of a user's functions: what is compiled, what runs beside the program, what made calls run eagerly.

`line_accounts` collects it from recordings, programs and reasons, which name lines as "file:line".  `blocks` finds the functions in
which these lines are: the compiled one, and those that recordings have followed into.

Must not know how anything is shown.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any, Final

from tracejit.capture.reasons import make
from tracejit.capture.recording.entry import Recording
from tracejit.capture.syntax.locate import NotConvertible, locate
from tracejit.capture.syntax.sources import describe_missing, given_sources, last_line, lines_of, sources
from tracejit.core.op import Kind
from tracejit.ir.graph import Node, all_nodes
from tracejit.lowering.lowered import StepOrigin
from tracejit.lowering.peak import Peak
from tracejit.lowering.steps import ConvolutionCall, CopyCall, GemmCall, LapackCall, LoopCall, NestCall, NestRun
from tracejit.report.account import Account
from tracejit.report.guards import effect_texts
from tracejit.report.phrases import sentence
from tracejit.runtime.host import HostProgram
from tracejit.runtime.source import LoweredProgram

__all__ = ["Block", "LineAccount", "Step", "blocks", "line_accounts", "peaks_of", "programs_of", "steps_of"]

_MOST_LINES = 2000  # of one function
_MOST_GUARDS = 24  # of one line
Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a program: a loop nest, a product of matrices, a call of LAPACK, a copy, a loop, or what Python computes between.

    kind: which of these.  text: what it computes.  number: among the steps of its program."""

    number: int
    kind: str
    text: str
    origin: StepOrigin


@dataclass(slots=True)
class LineAccount:
    """What is known of a line.

    operations: recorded there, with the number of paths that have each.  steps: (path, direction, step) of the programs, see
    `programs_of`.  outside: what is done there beside the program.  eager: why calls ran eagerly there, with the number of recordings.
    guards: what has to be as it was recorded."""

    operations: Counter[str] = field(default_factory=Counter)
    steps: list[tuple[int, str, Step]] = field(default_factory=list)
    outside: dict[str, None] = field(default_factory=dict)
    eager: Counter[str] = field(default_factory=Counter)
    guards: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """A function of the user.  first: the number of its first line in the file.  lines: its text; empty where there is none, and
    `missing` says why."""

    title: str
    file: str
    first: int
    lines: Sequence[str]
    missing: str = ""


def steps_of(program: Any) -> list[Step]:
    """The steps of a program; none of one that has no steps (the backend "interpret")."""
    if isinstance(program, LoweredProgram):
        parts: Sequence[tuple[Any, Sequence[Node]]] = [(program, ())]
    elif isinstance(program, HostProgram):
        parts = [(segment.program, host) for segment, host in zip(program.segments, program.host_steps, strict=True)]
    else:
        parts = ()
    found: list[tuple[str, str, StepOrigin]] = []
    for part, host in parts:
        if part is not None:
            lowered = part.lowered
            kinds = [_KINDS[type(step)] for step in lowered.spec.steps]
            found += zip(kinds, map(str, lowered.text), lowered.origins, strict=True)
        found += [("NumPy", node.op.name, StepOrigin.of((node,), 0, 0)) for node in host]
    return [Step(k, *each) for k, each in enumerate(found)]


_KINDS: Final[dict[type, str]] = {
    NestCall: "loop nest",
    NestRun: "loop nests",
    GemmCall: "product",
    LapackCall: "LAPACK",
    ConvolutionCall: "convolution",
    CopyCall: "copy",
    LoopCall: "loop",
}


def peaks_of(program: Any) -> list[Peak]:
    """The peaks of the temporary memory of a program, of each of its parts if it has host steps."""
    if isinstance(program, LoweredProgram):
        return [program.lowered.peak]
    parts = [segment.program for segment in program.segments] if isinstance(program, HostProgram) else []
    return [part.lowered.peak for part in parts if part is not None]


def programs_of(executable: Any) -> list[tuple[str, Any]]:
    """(direction, program) of the programs of a path: "forward", "backward", and "backward-1" and so on for passes from other results."""
    backward = [program for _, (program, _) in executable.backward_programs()]
    return [("forward", executable.program), *[(f"backward-{i}" if i else "backward", p) for i, p in enumerate(backward)]]


def line_accounts(account: Account) -> dict[str, LineAccount]:
    """What is known of each line, by "file:line"."""
    lines: defaultdict[str, LineAccount] = defaultdict(LineAccount)
    for one in account.with_parts():
        for reason, count in one.reasons.items():
            if reason.where:
                lines[reason.where].eager[sentence(reason)] += count
        changed = _changed_places(definition(one.function))
        for k, path in enumerate(one.paths):
            _add_recording(lines, path.recording, one.function, changed)
            for direction, program in programs_of(path.executable):
                for step in steps_of(program):
                    for line in step.origin.lines:
                        lines[line].steps.append((k, direction, step))
    return dict(lines)


def _add_recording(
    lines: defaultdict[str, LineAccount], recording: Recording, function: Any, changed: Mapping[str, Sequence[str]]
) -> None:
    """changed: see `_changed_places`."""
    graph = recording.graph
    nodes = () if graph is None else tuple(all_nodes(graph))
    for line, name in {(node.line, node.op.name): None for node in nodes if node.line and node.op.kind is not Kind.GUARD}:
        lines[line].operations[name] += 1
    for line in _writing_lines(recording):
        lines[line].outside["writes to a tensor from outside, after the last check of the program"] = None
    for point in recording.exits:
        if point.line:
            lines[point.line].guards[f"a value that is computed decides here; recorded was {point.expected.value!r}"] = None
    for fact in recording.facts:
        if fact.where and fact.kind != "exit" and "._" not in fact.name and len(lines[fact.where].guards) < _MOST_GUARDS:
            lines[fact.where].guards[f"{fact.name} has to be {fact.value}"] = None
    for reason in recording.opaque_calls:
        if reason.where:
            lines[reason.where].outside[reason.message] = None
    for text in effect_texts(recording, function) if changed else ():
        target = text.partition(" = ")[0]
        for line in changed.get(target, ()):
            lines[line].outside[f"{target} is changed by each call, when the program has run"] = None


def _writing_lines(recording: Recording) -> Iterator[str]:
    """The user's lines that write to tensors from outside, or to views of these."""
    graph = recording.graph
    written = {recording.tensor_inputs[fact.index].value for fact in recording.written_inputs}
    if graph is None or not written:
        return
    memory = {value: value for value in graph.inputs}  # value -> the input whose memory it is in
    for node in graph.nodes:
        first = node.operands[0] if node.operands else None
        if (node.op.kind is Kind.VIEW or node.op.name == "write") and type(first) is int and first in memory:
            memory.update(dict.fromkeys(node.outputs, memory[first]))
            if node.op.name == "write" and memory[first] in written and node.line:
                yield node.line


def _changed_places(function: FunctionType | None) -> Mapping[str, Sequence[str]]:
    """The text of an attribute or item -> the lines of a function that assign to it."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    source = _source(function)
    if function is None or isinstance(source, str):
        return places
    first, text = source
    tree = _parsed("".join(text))
    for node in () if tree is None else ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        for target in targets:
            if isinstance(target, ast.Attribute | ast.Subscript):
                places[ast.unparse(target)].append(f"{function.__code__.co_filename}:{first + target.lineno - 1}")
    return places


def _parsed(text: str) -> ast.Module | None:
    """The syntax tree of a text, which may be indented as a whole; None if it has none."""
    for candidate in (text, f"if True:\n{text}"):
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.parse(candidate)
            if candidate is not text:
                ast.increment_lineno(tree, -1)
            return tree
    return None


def definition(function: Any) -> FunctionType | None:
    """The Python function that is called in the end: in bound methods, partials and wrappers, or the `forward` of a Module."""
    for _ in range(64):
        if isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, FunctionType):
            inner = function.__dict__.get("__wrapped__")
            if inner is None:
                return function
            function = inner
        else:
            cls = type(function)
            function = getattr(cls, "forward", None) or cls.__dict__.get("__call__")
    return None


def _source(function: FunctionType | None) -> tuple[int, Sequence[str]] | str:
    """(number of the first line, lines) of a function; or why there is no source, or none that is of the running code."""
    if function is None:
        return "no Python function is called"
    code, names = function.__code__, function.__globals__
    try:
        located = locate(code, names)
    except NotConvertible as error:
        if error.code in ("no_source", "source_changed"):
            return make(error.code, error.detail).message
        end = last_line(code)
    else:
        end = located.node.end_lineno or last_line(code)
    first = code.co_firstlineno
    for lines in sources(code, names):
        if len(lines) >= first:
            return first, lines[first - 1 : min(end, first - 1 + _MOST_LINES)]
    for text in given_sources(code):
        tree = _parsed(text)
        for node in () if tree is None else ast.walk(tree):
            if isinstance(node, Definition) and node.name == code.co_name:
                begin = _first_line(node)
                return first, lines_of(text)[begin - 1 : min(node.end_lineno or begin, begin - 1 + _MOST_LINES)]
    return make("no_source", describe_missing(code)).message


@functools.lru_cache(maxsize=8)
def _definitions(text: str) -> Sequence[tuple[int, int, str]]:
    """(first line, last line, name) of each function of a file."""
    tree = _parsed(text)
    found = () if tree is None else [node for node in ast.walk(tree) if isinstance(node, Definition)]
    return [(_first_line(node), node.end_lineno or node.lineno, node.name) for node in found]


def _first_line(node: Definition) -> int:
    return min([node.lineno, *[decorator.lineno for decorator in node.decorator_list]])


def blocks(account: Account, lines: Iterable[str]) -> list[Block]:
    """The compiled function first, unless it is one of the library's (a Sequential); then the others that have one of the lines.  A line
    outside of all functions is a block of its own."""
    function = definition(account.function)
    found: list[Block] = []
    if function is not None and not str(function.__module__).startswith("tracejit."):
        code, source = function.__code__, _source(function)
        if isinstance(source, str):
            found.append(Block(account.name, code.co_filename, code.co_firstlineno, (), source))
        else:
            found.append(Block(account.name, code.co_filename, source[0], source[1]))
    by_file: defaultdict[str, set[int]] = defaultdict(set)
    for where in lines:
        file, _, line = where.rpartition(":")
        if file and not any(b.file == file and (b.missing or b.first <= int(line) < b.first + len(b.lines)) for b in found):
            by_file[file].add(int(line))
    for file, numbers in by_file.items():
        found += _blocks_of_file(file, sorted(numbers))
    return found


def _blocks_of_file(file: str, numbers: Sequence[int]) -> Iterator[Block]:
    text = linecache.getlines(file)
    definitions = sorted(_definitions("".join(text)), key=lambda d: d[0] - d[1])  # the largest first
    done: set[int] = set()
    for number in numbers:
        if number in done:
            continue
        around = [d for d in definitions if d[0] <= number <= d[1]]
        begin, end, name = around[-1] if around else (number, number, f"line {number}")
        end = min(end, begin - 1 + _MOST_LINES)
        done.update(range(begin, end + 1))
        missing = "" if len(text) >= number else f"the file {file} cannot be read"
        yield Block(name, file, begin, text[begin - 1 : end], missing)
