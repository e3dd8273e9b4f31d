"""The names in the scope of one function, from its syntax: those it declares, those it binds, and those for which Python creates
a container."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Final

from tracejit.capture.syntax.locate import SCOPES, FunctionNode
from tracejit.capture.syntax.tree_walk import children, walk

__all__ = [
    "COMPREHENSIONS",
    "LOOKING_AT_VARIABLES",
    "bound_names",
    "declared_names",
    "gathered_names",
    "names_read_by",
    "names_stored_by",
]

COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NAMING: Final = (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
LOOKING_AT_VARIABLES: Final = frozenset({"locals", "vars", "dir", "eval", "exec"})
"""Builtins that read the variables of the function that calls them."""


def declared_names(node: FunctionNode | ast.ClassDef) -> tuple[set[str], set[str]]:
    """(names declared global, names declared nonlocal) in a function or class body itself, not in nested ones."""
    names: tuple[set[str], set[str]] = (set(), set())

    def search(parent: ast.AST) -> None:
        for child in children(parent):
            if isinstance(child, ast.Global):
                names[0].update(child.names)
            elif isinstance(child, ast.Nonlocal):
                names[1].update(child.names)
            elif not isinstance(child, SCOPES):
                search(child)

    search(node)
    return names


def bound_names(node: FunctionNode) -> set[str]:
    """Names that the function itself binds, without targets of comprehensions."""
    arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    names = {argument.arg for argument in (*arguments, node.args.vararg, node.args.kwarg) if argument}
    return names | names_stored_by(node.body if isinstance(node.body, list) else [node.body])


def names_stored_by(parts: Iterable[ast.AST]) -> set[str]:
    """Names that statements or expressions bind in the function that contains them."""
    names: set[str] = set()

    def search(part: ast.AST, inner: bool) -> None:
        """inner: whether `part` is in a comprehension, where only assignment expressions bind names of the function."""
        if isinstance(part, _DEFINITIONS):
            names.add(part.name)
        if isinstance(part, ast.Name):
            if not (inner or isinstance(part.ctx, ast.Load)):
                names.add(part.id)
            return
        if isinstance(part, ast.NamedExpr):
            names.add(part.target.id)
        elif isinstance(part, _NAMING) and part.name:
            names.add(part.name)
        elif isinstance(part, ast.MatchMapping) and part.rest:
            names.add(part.rest)
        elif isinstance(part, ast.alias):
            names.add((part.asname or part.name).partition(".")[0])
        inside = children(part)
        if isinstance(part, SCOPES):
            body = {*map(id, part.body if isinstance(part.body, list) else [part.body])}
            inside = [child for child in inside if id(child) not in body]
        inner = inner or isinstance(part, COMPREHENSIONS)
        for child in inside:
            search(child, inner)

    for part in parts:
        search(part, False)
    return names


def names_read_by(part: ast.AST) -> set[str]:
    """Names that a statement or expression reads, without the variables of comprehensions and functions in it."""
    if isinstance(part, ast.Name):
        return {part.id} if isinstance(part.ctx, ast.Load) else set()
    names = set().union(*map(names_read_by, children(part)))
    if isinstance(part, FunctionNode):
        return names - (bound_names(part) - set().union(*declared_names(part)))
    if isinstance(part, COMPREHENSIONS):
        own = {x.id for loop in part.generators for x in walk(loop.target) if isinstance(x, ast.Name)}
        return (names - own) | names_read_by(part.generators[0].iter)  # which is evaluated outside
    return names


def gathered_names(node: FunctionNode) -> set[str]:
    """Names for which Python creates a container: `*args`, `**kwargs`, starred targets, `*rest` and `**rest` in patterns."""
    names = {argument.arg for argument in (node.args.vararg, node.args.kwarg) if argument}
    for part in walk(node):
        if isinstance(part, ast.Starred) and isinstance(part.ctx, ast.Store) and isinstance(part.value, ast.Name):
            names.add(part.value.id)
        elif isinstance(part, ast.MatchStar) and part.name:
            names.add(part.name)
        elif isinstance(part, ast.MatchMapping) and part.rest:
            names.add(part.rest)
    return names
