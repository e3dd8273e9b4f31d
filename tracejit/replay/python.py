"""Replay as Python: the rendering that serves the first calls of a function, and all calls where CPython's objects are not known.

It is also what people read.  It must not know what is computed.
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
_MOST_GUARDS: Final = 8  # in one statement, which people read, too
_SENT: Final = "if error.__traceback__.tb_next is not None"
"""The condition under which `error`, which came up in a guard, was raised in a Python function."""
_NUMBERS: Final = (int, float)
_REMEMBERED: Final = 32  # functions, with their statements: some kilobytes for each layer of a network
_WHICHEVER: Final[Any] = None
"""A program, or a dtype, that the text does not depend on."""


class _Rendering:
    """Lines of a part of a function: of its guards, or of what has effects."""

    def __init__(self, missed: str, are_guards: bool, sequences: Sequences) -> None:
        self.missed = missed
        self.are_guards = are_guards
        self.sequences = sequences

    def folded(self, statements: Sequence[Statement]) -> list[str]:
        """The lines, with loops for what repeats itself."""
        made: list[str] = []
        for is_repeat, some in groupby(repeats(statements, self.are_guards), lambda x: isinstance(x, Repeat)):
            if is_repeat:
                made += [line for x in some if isinstance(x, Repeat) for line in self._loop(x)]
            else:
                made += self.lines([x for x in some if not isinstance(x, Repeat)])
        return made

    def _loop(self, loop: Repeat) -> list[str]:
        head = self._head(loop.each) if loop.each else [f"for p_time in (0,) * {len(loop.made)}:"]
        body = self._block(loop.body)
        one, *_ = loop.made
        if not one:
            return [*head, *body]
        made = self.sequences.variable()
        self.sequences.hold(made, loop.made)
        results = f"({', '.join(map(_row, loop.made))}) = {made}"
        return [f"{made} = []", *head, *body, f"    {made}.append({_row(one)})", results]

    def _head(self, each: Sequence[tuple[str, tuple[Expr, ...]]]) -> list[str]:
        """That of a loop in which names stand for something else each time, and what comes before it."""
        columns = [self.sequences.column(column) for _, column in each]
        given = ", ".join([column for column, _ in columns])
        lines = [line for _, before in columns for line in before]
        return [*lines, f"for {', '.join([name for name, _ in each])} in {given if len(each) == 1 else f'zip({given})'}:"]

    def _block(self, statements: Sequence[Statement]) -> list[str]:
        """Lines of a block inside."""
        inside = _Rendering(self.missed, self.are_guards, self.sequences.inside())
        return [f"    {line}" for line in inside.lines(statements)]

    def lines(self, statements: Sequence[Statement]) -> list[str]:
        """Guards that follow each other are one statement: Python compiles it in less time than several."""
        made: list[str] = []
        for are_guards, some in groupby(statements, _stands_with_others):
            if not are_guards:
                made += [line for statement in some for line in self._statement(statement)]
                continue
            conditions = [statement.condition for statement in some if isinstance(statement, Miss)]
            for first in range(0, len(conditions), _MOST_GUARDS):
                part = conditions[first : first + _MOST_GUARDS]
                made.append(f"if {part[0] if len(part) == 1 else Or(tuple(part))}: return {self.missed}")
        return made

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
        """A tuple.  Elements of it that are tuples of much that is alike are made before it, in loops, as long as nothing but variables
        comes before them."""
        lines: list[str] = []
        parts: dict[int, str] = {}  # ids of elements that are made before it
        for element in elements:
            if id(element) in parts:
                continue
            found = rows(element.elements) if type(element) is TupleOf else []
            if any(isinstance(part, RepeatedExpressions) for part in found):
                parts[id(element)] = made = f"p_parts{len(parts)}"
                lines += [f"{made} = []", *[line for part in found for line in self._appending(made, part)]]
            elif not _is_variable(element):
                break
        texts = self.sequences.texts(
            elements, lambda element: f"(*{made},)" if (made := parts.get(id(element))) else self._text(element)
        )
        return [*lines, f"{name} = {in_parentheses(texts)}"]

    def _text(self, element: Expr) -> str:
        """An element of a tuple, which may be one itself."""
        return in_parentheses(self.sequences.texts(element.elements)) if type(element) is TupleOf else str(element)

    def _appending(self, made: str, part: Expr | RepeatedExpressions) -> list[str]:
        """Lines that append to a list."""
        if isinstance(part, RepeatedExpressions):
            return [*self._head(part.each), f"    {made}.append({part.element})"]
        return [f"{made}.append({part})"]

    def _run(self, run: RunProgram) -> list[str]:
        lines = []
        if run.fresh:
            made, names = self.sequences.variable(), [name for name, _, _ in run.fresh]
            self.sequences.hold(made, [(name,) for name in names])
            lines.append(f"({', '.join(names)},) = {made} = [*map(p_empty, p_shapes, p_dtypes)]")
        arrays, numbers = (
            "".join([f"{text}, " for text in self.sequences.texts(values)])
            for values in (run.arrays, [n for _, _, n in run.numbers])
        )
        code = f"{run.refused}" if run.marks else f"p_run(({arrays}), ({numbers}))"
        return [*lines, f"p_code = {code}", f"if p_code: return {run.leave}[p_code]"]


def _stands_with_others(statement: Statement) -> bool:
    """Whether this is a guard that is short."""
    return type(statement) is Miss and not (type(statement[1]) is Not and type(statement[1][1]) is Distinct)


def _is_variable(element: Expr) -> bool:
    """Whether this is a variable, or a tuple of variables."""
    return type(element) is Name or (type(element) is TupleOf and all(type(part) is Name for part in element.elements))


def _row(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def render(function: Function, name: str) -> str:
    """The source of `function` under a name."""
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
    """The function, whose globals are a copy of `namespace` and what else it names; kind: of code, in tracebacks."""
    if config.verify:
        verify(function, namespace)
    general, objects = _generalised(function)
    found = {**namespace, **objects}
    exec(_compiled(general, name, kind), found)
    made: Callable[..., Any] = found[name]
    made.__code__ = made.__code__.replace()  # what CPython notes in code about globals is of this function alone
    return made


def _generalised(function: Function) -> tuple[Function, dict[str, Any]]:
    """The function that stands for those of other sizes, too, and the objects that it names besides those of its namespace: numbers that
    variables are, programs, the shapes of arrays.  Programs are run by statements of the body itself, under no condition."""
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
            return RunProgram(_WHICHEVER, tuple([(made, (), _WHICHEVER) for made, _, _ in fresh]), *rest)
        return statement

    guards, body = tuple(map(general, function.guards)), tuple(map(general, function.body))
    return replace(function, guards=guards, body=body), objects


@lru_cache(_REMEMBERED)
def _compiled(function: Function, name: str, kind: str) -> CodeType:
    """Nodes are equal where their text is (replay/ir.py), and far sooner compared than written and compiled."""
    return compile(render(function, name), f"<tracejit {kind}>", "exec")
