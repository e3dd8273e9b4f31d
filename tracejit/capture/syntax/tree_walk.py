"""`ast.iter_child_nodes` and `ast.walk` as functions that return lists.  The syntax tree of a function is walked some twenty
times before it is rewritten, and generators take twice as long."""

from __future__ import annotations

import ast

__all__ = ["children", "walk"]


def children(node: ast.AST) -> list[ast.AST]:
    """The child nodes of a node, in order."""
    parts: list[ast.AST] = []
    attributes = node.__dict__
    for field in node._fields:
        value = attributes.get(field)
        if isinstance(value, ast.AST):
            parts.append(value)
        elif type(value) is list:
            parts += [part for part in value if isinstance(part, ast.AST)]
    return parts


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all its descendants, breadth first."""
    nodes = [node]
    for part in nodes:
        nodes += children(part)
    return nodes
