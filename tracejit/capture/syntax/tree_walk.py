"""The parts of a piece of syntax, as `ast.iter_child_nodes` and `ast.walk` give them, in lists: all of a function's syntax is gone through
some twenty times before it is rewritten, and generators take twice as long."""

from __future__ import annotations

import ast

__all__ = ["children", "walk"]


def children(node: ast.AST) -> list[ast.AST]:
    """The direct parts of a node, in order."""
    found: list[ast.AST] = []
    attributes = node.__dict__
    for field in node._fields:
        value = attributes.get(field)
        if isinstance(value, ast.AST):
            found.append(value)
        elif type(value) is list:
            found += [part for part in value if isinstance(part, ast.AST)]
    return found


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all its parts, those of one level before those of the next."""
    found = [node]
    for part in found:
        found += children(part)
    return found
