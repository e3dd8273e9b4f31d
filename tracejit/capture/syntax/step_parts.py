"""Divides the step of an outlined loop (outlined_loops.py) where its paths join: after each statement that branches.

    for t in range(n):                                part 0: x = x + v
        x = x + v                                             if x < 0: x = -x; v = -v
        if x < 0: x = -x; v = -v              ->      part 1: if x > 1: x = 2 - x; v = -v
        if x > 1: x = 2 - x; v = -v                   part 2: hits.append(x)
        hits.append(x)

A step that branches k times, one time after another, has 2 ** k paths; its parts have 2 * k.  A statement counts as branching if both
sides of a condition in it go on to the next statement, or if it calls a function of the program, which may branch: one of the module,
or a method of `self`.  Branches that are not found so (`model(x)`) stay in the part where they are."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from types import FunctionType
from typing import Final

from tracejit.capture.syntax.locate import SCOPES
from tracejit.capture.syntax.scopes import names_stored_by
from tracejit.capture.syntax.tree_walk import walk
from tracejit.core.package_files import is_own_code

__all__ = ["divided", "with_element"]

_LEAVING: Final = (ast.Return, ast.Break, ast.Continue, ast.Raise)
_WITH_BLOCKS: Final = (ast.For, ast.While, ast.Try, ast.TryStar, ast.With, *SCOPES)
_CHOOSING: Final = (ast.IfExp, ast.BoolOp, ast.Match)


def divided(body: Sequence[ast.stmt], names: Collection[str]) -> list[list[ast.stmt]]:
    """The statements of a step in parts; one part if it branches once at most.  names: the globals of the function."""
    parts: list[list[ast.stmt]] = [[]]
    for statement in body:
        parts[-1].append(statement)
        if _branches(statement, names):
            parts.append([])
    return [part for part in parts if part] if len(parts) > 2 else [[*body]]


def with_element(parts: Sequence[list[ast.stmt]], element: Sequence[ast.stmt]) -> list[list[ast.stmt]]:
    """The parts with the assignment of the element, if the loop has elements.

    The first part assigns the variables of the element.  Later parts that read them assign them again, which gives tensors and numbers of
    the same values (LoopRun refuses parts that leave more in such a tensor), unless some part assigns to them; then they are passed on
    as other variables are."""
    variables = names_stored_by(element)
    is_fixed = variables.isdisjoint(names_stored_by([x for part in parts for x in part]))
    is_fixed = is_fixed and not any(isinstance(x, ast.Starred) for statement in element for x in walk(statement))  # makes a list
    return [
        [*(element if k == 0 or (is_fixed and not _names_read(part).isdisjoint(variables)) else []), *part]
        for k, part in enumerate(parts)
    ]


def _names_read(statements: Sequence[ast.stmt]) -> set[str]:
    found: set[str] = set()
    for part in [x for statement in statements for x in walk(statement)]:
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            found.add(part.id)
        elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            found.add(part.target.id)
    return found


def _branches(statement: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement may go on to the next one by several paths."""
    if isinstance(statement, ast.If):
        ends = [_goes_on(statement.body), _goes_on(statement.orelse)]
        return all(ends) or any(_branches(x, names) for x in (*statement.body, *statement.orelse))
    if isinstance(statement, _WITH_BLOCKS):
        return any(isinstance(x, ast.If | ast.For | ast.While) for x in walk(statement) if x is not statement)
    return any(isinstance(x, _CHOOSING) or (isinstance(x, ast.Call) and _is_own(x.func, names)) for x in walk(statement))


def _goes_on(block: Sequence[ast.stmt]) -> bool:
    """Whether the statement after a block may follow it."""
    return not block or not isinstance(block[-1], _LEAVING)


def _is_own(function: ast.expr, names: Collection[str]) -> bool:
    """Whether a function that is called is one of the program, as its name says."""
    if isinstance(function, ast.Attribute):
        return isinstance(function.value, ast.Name) and function.value.id == "self"
    found = names.get(function.id) if isinstance(function, ast.Name) and isinstance(names, Mapping) else None
    return type(found) is FunctionType and not is_own_code(found.__code__)
