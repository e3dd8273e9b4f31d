"""Comprehensions whose elements become a list that is private to the function: `ys = [f(x) for x in xs]`, `stack([f(x) for x in xs])`.

They do what a `for` loop does that appends to such a list (loops.py), so where there may be any number of elements, that loop is what runs:
as a statement before the one that has the comprehension, where that evaluates nothing before it but names, and functions that it calls.
What an element might give another value is put into variables first.  So it is with the elements that Python's `sum` adds up as a generator
gives them, `sum(f(x) for x in xs)`: each is added by the step that makes it.  Any other generator stays one, which runs by turns with who
goes through it.

Elements may come from all that a loop of any length goes through (capture/loop_headers.py), and `sum` may have a number to begin with.
"""

from __future__ import annotations

import ast
from copy import deepcopy
from typing import Any, NamedTuple

from tracejit.capture.syntax.locate import FunctionNode
from tracejit.capture.syntax.loops import JOINING
from tracejit.capture.syntax.scopes import LOOKING_AT_VARIABLES
from tracejit.capture.syntax.tree_walk import walk

__all__ = ["CollectingComprehension", "Where", "expression_at", "find_collecting_comprehension", "replace_expression_at"]

_NESTED = (FunctionNode, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDING = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
_LOOKING_AT_FRAMES = LOOKING_AT_VARIABLES | {"super", "globals"}
_OF_CLASS_BODIES = frozenset({"super", "__class__"})


Where = tuple[Any, str, int | None]
"""A node, a field of it, and a position there, if it is a list."""


class CollectingComprehension(NamedTuple):
    """A comprehension, and where it is: the value of a statement, or the first argument of a call; or a generator whose elements `sum` adds
    up, and where that call is.  before: the places of what its statement evaluates before it, in this order.  added: the call of `sum`."""

    comprehension: ast.ListComp | ast.GeneratorExp
    place: Where
    before: tuple[Where, ...] = ()
    added: ast.Call | None = None

    def loop(self, name: str, prefix: str) -> ast.For:
        """The loop that appends what is collected to the list `name`, or adds it to the variable of this name.  prefix: of the names of its
        targets."""
        (generator,) = self.comprehension.generators
        names = {part.id for part in walk(generator.target) if isinstance(part, ast.Name)}
        renamed = _Renamed({name: f"{prefix}_{name}__" for name in names})
        element, target = (renamed.visit(deepcopy(part)) for part in (self.comprehension.elt, generator.target))
        statement: ast.stmt
        if self.added is None:
            append = ast.Attribute(ast.Name(name, ast.Load()), "append", ast.Load())
            statement = ast.Expr(ast.Call(append, [element], []))
        else:
            total = ast.BinOp(ast.Name(name, ast.Load()), ast.Add(), element)
            statement = ast.Assign([ast.Name(name, ast.Store())], total)
        return ast.For(target, deepcopy(generator.iter), [statement], [], None)


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self._names.get(node.id, node.id), node.ctx), node)


def expression_at(place: Where) -> ast.expr:
    """The expression at a place."""
    node, field, position = place
    found = getattr(node, field)
    return found if position is None else found[position]  # type: ignore[no-any-return]


def replace_expression_at(place: Where, expression: ast.expr) -> None:
    """Have an expression there."""
    node, field, position = place
    if position is None:
        setattr(node, field, expression)
    else:
        getattr(node, field)[position] = expression


def find_collecting_comprehension(node: ast.stmt, lists: frozenset[str]) -> CollectingComprehension | None:
    """The comprehension that a statement evaluates first, but for names and functions, if it makes a list that nothing else sees, or sums.
    lists: names of private lists."""
    found = None
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr) and node.value is not None:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.ListComp):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            is_kept = not (isinstance(node, ast.Assign) and len(node.targets) > 1)
            if is_kept and isinstance(target, ast.Name) and target.id in lists:
                found = CollectingComprehension(node.value, (node, "value", None))
        elif not isinstance(node, ast.AugAssign):
            found = _joined_first((node, "value", None))
        elif isinstance(node.target, ast.Name):
            found = _joined_first((node, "value", None), ((node, "target", None),))
    return found if found is not None and _is_plain(found.comprehension) else None


def _joined_first(place: Where, before: tuple[Where, ...] = ()) -> CollectingComprehension | None:
    """The comprehension that the expression at a place begins with evaluating, to hand it to `stack` and the like."""
    while True:
        node = expression_at(place)
        if isinstance(node, ast.Call) and _is_simple(node.func):
            before = (*before, (node, "func", None))
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr  # type: ignore[attr-defined]
            if name in _LOOKING_AT_FRAMES:
                return None
            first = node.args[0] if node.args else None
            if isinstance(first, ast.ListComp) and name in JOINING:
                return CollectingComprehension(first, (node, "args", 0), before)
            if isinstance(first, ast.GeneratorExp):
                return CollectingComprehension(first, place, before, node) if _sums(node) else None
        for inner in _evaluated(node):
            if not isinstance(expression_at(inner), ast.Name | ast.Constant):
                place = inner
                break
            before = (*before, inner)
        else:
            return None


def _sums(node: ast.Call) -> bool:
    """Whether a call is, by its name, one of Python's `sum`, which begins with nothing, or a number that is written down."""
    begins = [*node.args[1:], *[part.value for part in node.keywords if part.arg == "start"]]
    if not isinstance(node.func, ast.Name) or node.func.id != "sum" or len(begins) < len(node.args) + len(node.keywords) - 1:
        return False
    return len(begins) < 2 and all(isinstance(x, ast.Constant) and type(x.value) in (int, float) for x in begins)


def _evaluated(node: ast.expr) -> list[Where]:
    """The places of what an expression evaluates first, in this order, but for what `_is_simple`."""
    match node:
        case ast.Call():
            if not _is_simple(node.func):
                return [(node, "func", None)]
            return [*[(node, "args", k) for k in range(len(node.args))], *[(k, "value", None) for k in node.keywords]]
        case ast.Attribute() | ast.Subscript():
            return [(node, "value", None)]
        case ast.BinOp():
            return [(node, "left", None), (node, "right", None)]
        case ast.Compare():
            return [(node, "left", None), (node, "comparators", 0)]
        case ast.UnaryOp():
            return [(node, "operand", None)]
        case ast.Tuple():
            return [(node, "elts", k) for k in range(len(node.elts))]
    return []


def _is_simple(node: ast.expr) -> bool:
    """A name, or an attribute of what has one."""
    return isinstance(node.value if isinstance(node, ast.Attribute) else node, ast.Name)


def _is_plain(node: ast.ListComp | ast.GeneratorExp) -> bool:
    """Whether a loop with another name for each target does the same."""
    if len(node.generators) > 1:
        return False
    (generator,) = node.generators
    parts = [*walk(node.elt), *walk(generator.iter)]
    targets = generator.target.elts if isinstance(generator.target, ast.Tuple) else [generator.target]
    return (
        not (generator.ifs or generator.is_async)
        and all(isinstance(part, ast.Name) for part in targets)
        and not any(isinstance(part, _NESTED) for part in walk(node.elt))
        and not any(isinstance(part, _BINDING) for part in parts)
        and not any(isinstance(part, ast.Name) and part.id in _OF_CLASS_BODIES for part in parts)
    )
