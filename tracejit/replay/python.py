"""Renders functions of replay as Python.  This rendering serves the first calls of a function, and all calls on interpreters
whose object layouts are unknown; it is also the text that users read.

It must not know what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from types import CodeType
from typing import Any, Final

import numpy as np

from tracejit.config import config
from tracejit.replay.ir import (
    CAUGHT,
    Constant,
    Define,
    Distinct,
    Expr,
    Function,
    If,
    Miss,
    Name,
    Not,
    Or,
    RunProgram,
    Statement,
    TupleOf,
    defined,
    distinct_count,
    walk,
)  # fmt: skip
from tracejit.replay.repeats import Repeat, RepeatedExpressions, repeats, rows
from tracejit.replay.sequences import Sequences, in_parentheses
from tracejit.replay.verify import verify

__all__ = ["load", "render"]

_ERRORS: Final = f"({', '.join(error.__name__ for error in CAUGHT)})"
_MOST_GUARDS: Final = 8  # guards in one `if`; few enough to be read
_SENT: Final = "if error.__traceback__.tb_next is not None"
"""The condition that an error in a guard was raised in an inner Python function."""
_NUMBERS: Final = (int, float)
_REMEMBERED: Final = 32  # cached functions: some kilobytes for each layer of a network
_WHICHEVER: Final[Any] = None
"""Replaces a program or a dtype, on which the text does not depend."""


class _Rendering:
    """Renders a part of a function to lines: its guards, or its body.  missed: the text of `Function.missed`."""

    def __init__(self, missed: str, are_guards: bool, sequences: Sequences) -> None:
        self.missed = missed
        self.are_guards = are_guards
        self.sequences = sequences

    def folded(self, statements: Sequence[Statement]) -> list[str]:
        """The lines of statements, with loops for repeated ones (repeats.py)."""
        lines: list[str] = []
        for is_repeat, some in groupby(repeats(statements, self.are_guards), lambda x: isinstance(x, Repeat)):
            if is_repeat:
                lines += [line for x in some if isinstance(x, Repeat) for line in self._loop(x)]
            else:
                lines += self.lines([x for x in some if not isinstance(x, Repeat)])
        return lines

    def _loop(self, loop: Repeat) -> list[str]:
        head = self._head(loop.each) if loop.each else [f"for p_time in (0,) * {len(loop.made)}:"]
        body = self._block(loop.body)
        first_names, *_ = loop.made
        if not first_names:
            return [*head, *body]
        rows_list = self.sequences.variable()
        self.sequences.hold(rows_list, loop.made)
        results = f"({', '.join(map(_row, loop.made))}) = {rows_list}"
        return [f"{rows_list} = []", *head, *body, f"    {rows_list}.append({_row(first_names)})", results]

    def _head(self, each: Sequence[tuple[str, tuple[Expr, ...]]]) -> list[str]:
        """The head of a loop over columns of expressions, and the lines that must come before it.  each: see Repeat."""
        columns = [self.sequences.column(column) for _, column in each]
        texts = ", ".join([column for column, _ in columns])
        lines = [line for _, before in columns for line in before]
        return [*lines, f"for {', '.join([name for name, _ in each])} in {texts if len(each) == 1 else f'zip({texts})'}:"]

    def _block(self, statements: Sequence[Statement]) -> list[str]:
        """The indented lines of an inner block."""
        inside = _Rendering(self.missed, self.are_guards, self.sequences.inside())
        return [f"    {line}" for line in inside.lines(statements)]

    def lines(self, statements: Sequence[Statement]) -> list[str]:
        """The lines of statements.  Consecutive guards become one `if` statement, which Python compiles in less time than
        several."""
        lines: list[str] = []
        for are_guards, some in groupby(statements, _can_be_joined):
            if not are_guards:
                lines += [line for statement in some for line in self._statement(statement)]
                continue
            conditions = [statement.condition for statement in some if isinstance(statement, Miss)]
            for first in range(0, len(conditions), _MOST_GUARDS):
                part = conditions[first : first + _MOST_GUARDS]
                lines.append(f"if {part[0] if len(part) == 1 else Or(tuple(part))}: return {self.missed}")
        return lines

    def _statement(self, statement: Statement) -> list[str]:
        match statement:
            case If(condition, body):
                self.sequences.forget([name for node in walk(body) if isinstance(node, Statement) for name in defined(node)])
                return [f"if {condition}:", *self._block(body)]
            case RunProgram():
                return self._run(statement)
            case Define(name, TupleOf(elements)) if self.are_guards:
                return self._define(name, elements)
            case Miss(Not(Distinct(values))):
                return [f"if {distinct_count(self._text(TupleOf(values)))} != {len(values)}: return {self.missed}"]
        return [str(statement)]

    def _define(self, name: str, elements: Sequence[Expr]) -> list[str]:
        """The lines that define a tuple.  An element that is a tuple of many similar expressions is built before it, in a list,
        by loops, if only variables come before it (so that the order of evaluation does not change)."""
        lines: list[str] = []
        parts: dict[int, str] = {}  # id of an element that is built before the tuple -> the variable of its list
        for element in elements:
            if id(element) in parts:
                continue
            merged = rows(element.elements) if type(element) is TupleOf else []
            if any(isinstance(part, RepeatedExpressions) for part in merged):
                parts[id(element)] = variable = f"p_parts{len(parts)}"
                lines += [f"{variable} = []", *[line for part in merged for line in self._appending(variable, part)]]
            elif not _is_variable(element):
                break
        texts = self.sequences.texts(
            elements, lambda element: f"(*{variable},)" if (variable := parts.get(id(element))) else self._text(element)
        )
        return [*lines, f"{name} = {in_parentheses(texts)}"]

    def _text(self, element: Expr) -> str:
        """The text of an element of a tuple, which may be a tuple itself."""
        return in_parentheses(self.sequences.texts(element.elements)) if type(element) is TupleOf else str(element)

    def _appending(self, variable: str, part: Expr | RepeatedExpressions) -> list[str]:
        """Lines that append expressions to the list in a variable."""
        if isinstance(part, RepeatedExpressions):
            return [*self._head(part.each), f"    {variable}.append({part.element})"]
        return [f"{variable}.append({part})"]

    def _run(self, run: RunProgram) -> list[str]:
        lines = []
        if run.fresh:
            variable, names = self.sequences.variable(), [name for name, _, _ in run.fresh]
            self.sequences.hold(variable, [(name,) for name in names])
            lines.append(f"({', '.join(names)},) = {variable} = [*map(p_empty, p_shapes, p_dtypes)]")
        arrays, numbers = (
            "".join([f"{text}, " for text in self.sequences.texts(values)])
            for values in (run.arrays, [n for _, _, n in run.numbers])
        )
        code = f"{run.refused}" if run.marks else f"p_run(({arrays}), ({numbers}))"
        return [*lines, f"p_code = {code}", f"if p_code: return {run.leave}[p_code]"]


def _can_be_joined(statement: Statement) -> bool:
    """Whether a statement is a guard that may be joined with others: any but Distinct, whose text is long."""
    return type(statement) is Miss and not (type(statement[1]) is Not and type(statement[1][1]) is Distinct)


def _is_variable(element: Expr) -> bool:
    """Whether an expression is a variable, or a tuple of variables."""
    return type(element) is Name or (type(element) is TupleOf and all(type(part) is Name for part in element.elements))


def _row(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def render(function: Function, name: str) -> str:
    """The source of a function, with this name."""
    missed, sequences = str(function.missed), Sequences()
    rendering = _Rendering(missed, False, sequences)
    first = rendering.lines(function.first)
    guards, body = _Rendering(missed, True, sequences).folded(function.guards), rendering.folded(function.body)
    if function.catches and guards:
        handler = [f"except {_ERRORS} as error:", f"    {_SENT}: raise", f"    return {function.missed}"]
        guards = ["try:", *[f"    {line}" for line in guards], *handler]
    lines = [*first, *guards, *body] or ["pass"]
    if function.locks:
        release = ["finally:", "    for lock in held: lock.release()"]
        lines = ["held = []", "try:", *[f"    {line}" for line in lines], *release]
    return "\n".join([f"def {name}({', '.join(function.parameters)}):", *[f"    {line}" for line in lines]]) + "\n"


def load(function: Function, name: str, namespace: Mapping[str, Any], kind: str) -> Callable[..., Any]:
    """The Python function.  Its globals are a copy of `namespace` with the objects that the text needs besides.  kind: of the
    code, for the file name in tracebacks."""
    if config.verify:
        verify(function, namespace)
    general, objects = _generalised(function)
    global_names = {**namespace, **objects}
    exec(_compiled(general, name, kind), global_names)
    result: Callable[..., Any] = global_names[name]
    result.__code__ = result.__code__.replace()  # a copy, since CPython's inline caches in code depend on the globals
    return result


def _generalised(function: Function) -> tuple[Function, dict[str, Any]]:
    """(the function without parts that depend on sizes, the objects that its text names in their place: numbers that are assigned
    to variables, programs, shapes of arrays).  So functions that differ only in sizes share their code.  Programs are run by
    statements of the body itself, not under a condition."""
    objects: dict[str, Any] = {}

    def general(statement: Statement) -> Statement:
        kind = type(statement)
        if kind is Define and type(value := statement[2]) is Constant and type(value[1]) in _NUMBERS:
            objects[number := f"p_number{len(objects)}"] = value[1]
            return Define(statement[1], Name(number))
        if kind is RunProgram:
            program, fresh, *rest = statement[1:]
            objects.update(p_empty=np.empty, p_run=program.run)
            objects.update(p_shapes=[shape for _, shape, _ in fresh], p_dtypes=[dtype for _, _, dtype in fresh])
            return RunProgram(_WHICHEVER, tuple([(array, (), _WHICHEVER) for array, _, _ in fresh]), *rest)
        return statement

    guards, body = tuple(map(general, function.guards)), tuple(map(general, function.body))
    return replace(function, guards=guards, body=body), objects


@lru_cache(_REMEMBERED)
def _compiled(function: Function, name: str, kind: str) -> CodeType:
    """The compiled module with the function.  It is cached by the nodes: they are equal if their texts are (replay/ir.py), and
    comparing them is far faster than rendering and compiling."""
    return compile(render(function, name), f"<tracejit {kind}>", "exec")
