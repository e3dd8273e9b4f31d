"""Comprehensions whose elements become a list that is private to the function: `ys = [f(x) for x in xs]`, `stack([f(x) for x in xs])`.

They do what a `for` loop does that appends to such a list (loops.py), so where there may be any number of elements, that loop is what runs:
as a statement before the one that has the comprehension, where that evaluates nothing before it but names, and attributes of these that it
calls.
"""

from __future__ import annotations

import ast
from copy import deepcopy
from typing import Any, NamedTuple

from tracejit.capture.syntax.locate import FunctionNode
from tracejit.capture.syntax.loops import JOINING

__all__ = ["Collected", "collected"]

_NESTED = (FunctionNode, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDING = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
_OF_CLASS_BODIES = frozenset({"super", "__class__"})


class Collected(NamedTuple):
    """A comprehension, where it is (a field of a node, or an item of that), and whether its list is joined there."""

    comprehension: ast.ListComp | ast.GeneratorExp
    parent: Any
    field: str
    is_joined: bool

    def put(self, expression: ast.expr) -> None:
        """Have an expression in its place."""
        if self.field == "args":
            self.parent.args[0] = expression
        else:
            setattr(self.parent, self.field, expression)

    def loop(self, items: str, prefix: str) -> ast.For:
        """The loop that appends what it collects to the list `items`.  prefix: of the names of its targets."""
        (generator,) = self.comprehension.generators
        names = {part.id for part in ast.walk(generator.target) if isinstance(part, ast.Name)}
        renamed = _Renamed({name: f"{prefix}_{name}__" for name in names})
        element, target = (renamed.visit(deepcopy(part)) for part in (self.comprehension.elt, generator.target))
        append = ast.Attribute(ast.Name(items, ast.Load()), "append", ast.Load())
        return ast.For(target, deepcopy(generator.iter), [ast.Expr(ast.Call(append, [element], []))], [], None)


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self._names.get(node.id, node.id), node.ctx), node)


def collected(node: ast.stmt, lists: frozenset[str]) -> Collected | None:
    """The comprehension that a statement evaluates first, if it makes a list that nothing else sees.  lists: names of private lists."""
    found = None
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr) and node.value is not None:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.ListComp):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            is_kept = not (isinstance(node, ast.Assign) and len(node.targets) > 1)
            if is_kept and isinstance(target, ast.Name) and target.id in lists:
                found = Collected(node.value, node, "value", False)
        elif not isinstance(node, ast.AugAssign) or isinstance(node.target, ast.Name):
            found = _joined_first(node.value)
    return found if found is not None and _is_plain(found.comprehension) else None


def _joined_first(node: ast.expr | None) -> Collected | None:
    """The comprehension that an expression begins with evaluating, to hand it to `stack` and the like."""
    while node is not None:
        if isinstance(node, ast.Call) and _is_simple(node.func) and node.args:
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr  # type: ignore[attr-defined]
            first = node.args[0]
            if isinstance(first, ast.ListComp) and name in JOINING:
                return Collected(first, node, "args", True)
            if isinstance(first, ast.GeneratorExp) and name == "sum" and len(node.args) == 1 and isinstance(node.func, ast.Name):
                return Collected(first, node, "args", True)
        node = next((part for part in _evaluated(node) if not isinstance(part, ast.Name | ast.Constant)), None)
    return None


def _evaluated(node: ast.expr) -> list[ast.expr]:
    """What an expression evaluates first, in this order, but for what `_is_simple`."""
    match node:
        case ast.Call():
            return [*node.args, *[k.value for k in node.keywords]] if _is_simple(node.func) else [node.func]
        case ast.Attribute() | ast.Subscript():
            return [node.value]
        case ast.BinOp():
            return [node.left, node.right]
        case ast.Compare():
            return [node.left, node.comparators[0]]
        case ast.UnaryOp():
            return [node.operand]
        case ast.Tuple():
            return node.elts
    return []


def _is_simple(node: ast.expr) -> bool:
    """A name, or an attribute of what has one: when these are looked up makes no difference."""
    return isinstance(node.value if isinstance(node, ast.Attribute) else node, ast.Name)


def _is_plain(node: ast.ListComp | ast.GeneratorExp) -> bool:
    """Whether a loop with another name for each target does the same."""
    if len(node.generators) > 1:
        return False
    (generator,) = node.generators
    parts = [*ast.walk(node.elt), *ast.walk(generator.iter)]
    targets = generator.target.elts if isinstance(generator.target, ast.Tuple) else [generator.target]
    return (
        not (generator.ifs or generator.is_async)
        and all(isinstance(part, ast.Name) for part in targets)
        and not any(isinstance(part, _NESTED) for part in ast.walk(node.elt))
        and not any(isinstance(part, _BINDING) for part in parts)
        and not any(isinstance(part, ast.Name) and part.id in _OF_CLASS_BODIES for part in parts)
    )
