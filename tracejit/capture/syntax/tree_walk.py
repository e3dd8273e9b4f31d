"""`ast.iter_child_nodes`, `ast.walk` and `ast.fix_missing_locations` as functions that make lists.  The syntax tree of a function is
walked some twenty times before it is rewritten, and generators take twice as long.

Operators and contexts (`ast.Add`, `ast.Load`) are left out: they have neither parts nor positions, and are a third of all nodes."""

from __future__ import annotations

import ast
from typing import Final

__all__ = ["children", "fill_positions", "walk"]

_AST: Final = ast.AST
_WITHOUT_PARTS: Final = frozenset({
    "ctx", "op", "ops", "id", "attr", "arg", "kind", "type_comment", "is_async", "simple", "level", "conversion",
})  # fmt: skip
"""Fields that hold operators, contexts, texts and numbers in every class of nodes."""
_fields: Final[dict[type[ast.AST], tuple[str, ...]]] = {ast.Constant: ()}
"""By classes of nodes: the fields that may hold other nodes."""


def children(node: ast.AST) -> list[ast.AST]:
    """The child nodes of a node, in order."""
    fields = _fields.get(type(node))
    if fields is None:
        fields = _fields[type(node)] = tuple([field for field in node._fields if field not in _WITHOUT_PARTS])
    parts: list[ast.AST] = []
    attributes = node.__dict__
    for field in fields:
        value = attributes.get(field)
        if type(value) is list:
            parts += [part for part in value if isinstance(part, _AST)]
        elif isinstance(value, _AST):
            parts.append(value)
    return parts


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all its descendants, breadth first."""
    nodes = [node]
    for part in nodes:
        nodes += children(part)
    return nodes


def fill_positions(node: ast.Module) -> ast.Module:
    """Give each descendant of a node that has no position, or no end, that of the node around it.  Returns the node."""
    waiting: list[tuple[ast.AST, int, int, int, int]] = [(part, 1, 0, 1, 0) for part in children(node)]
    while waiting:
        part, line, column, end_line, end_column = waiting.pop()
        if "lineno" in part._attributes:
            position = part.__dict__
            line = position.setdefault("lineno", line)
            column = position.setdefault("col_offset", column)
            if position.get("end_lineno") is None:
                position["end_lineno"] = end_line
            if position.get("end_col_offset") is None:
                position["end_col_offset"] = end_column
            end_line, end_column = position["end_lineno"], position["end_col_offset"]
        waiting += [(child, line, column, end_line, end_column) for child in children(part)]
    return node
