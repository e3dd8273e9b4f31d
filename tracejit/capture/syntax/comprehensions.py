"""Collecting comprehensions: those whose list is private to the function, `ys = [f(x) for x in xs]`, `stack([f(x) for x in xs])`,
and generators in `sum(f(x) for x in xs)`.

Such a comprehension does what a `for` loop does that appends to a private list (loops.py).  With a symbolic trip count,
rewrite.py runs that loop, as a statement before the one that has the comprehension.  That is possible if the statement evaluates
only names, and functions that it calls, before the comprehension; of these, values that the elements might change are assigned to
variables first.  In the same way, a generator in a call of `sum` becomes a loop that adds each element to a variable.  Other
generators are not changed, since they run in turns with their consumer.

A comprehension may iterate over everything that a loop with a symbolic trip count may (capture/loop_headers.py); `sum` may have a
start value.
"""

from __future__ import annotations

import ast
from copy import deepcopy
from typing import Any, NamedTuple

from tracejit.capture.syntax.locate import FunctionNode
from tracejit.capture.syntax.loops import JOINING
from tracejit.capture.syntax.scopes import LOOKING_AT_VARIABLES
from tracejit.capture.syntax.tree_walk import walk

__all__ = [
    "CollectingComprehension",
    "ExpressionLocation",
    "expression_at",
    "find_collecting_comprehension",
    "replace_expression_at",
]

_NESTED = (FunctionNode, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDING = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
_LOOKING_AT_FRAMES = LOOKING_AT_VARIABLES | {"super", "globals"}
_OF_CLASS_BODIES = frozenset({"super", "__class__"})


ExpressionLocation = tuple[Any, str, int | None]
"""The location of an expression: a node, one of its fields, and the position in the field if it is a list, else None."""


class CollectingComprehension(NamedTuple):
    """A comprehension that can become a loop.

    location: of the expression that the collected value replaces: the comprehension, as the value of a statement or the first
    argument of a call; for a generator, the call of `sum`.  before: the locations of what the statement evaluates before it, in
    order.  added: the call of `sum`, for a generator."""

    comprehension: ast.ListComp | ast.GeneratorExp
    location: ExpressionLocation
    before: tuple[ExpressionLocation, ...] = ()
    added: ast.Call | None = None

    def loop(self, name: str, prefix: str) -> ast.For:
        """The loop that appends the elements to the list in the variable `name`, or adds them to this variable.  prefix: for the
        names of the loop's targets."""
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


def expression_at(location: ExpressionLocation) -> ast.expr:
    """The expression at a location."""
    node, field, position = location
    value = getattr(node, field)
    return value if position is None else value[position]  # type: ignore[no-any-return]


def replace_expression_at(location: ExpressionLocation, expression: ast.expr) -> None:
    """Replace the expression at a location."""
    node, field, position = location
    if position is None:
        setattr(node, field, expression)
    else:
        getattr(node, field)[position] = expression


def find_collecting_comprehension(node: ast.stmt, lists: frozenset[str]) -> CollectingComprehension | None:
    """The collecting comprehension that a statement evaluates first, apart from names and functions; None if there is none.
    lists: names of private lists."""
    collecting = None
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr) and node.value is not None:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.ListComp):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            is_kept = not (isinstance(node, ast.Assign) and len(node.targets) > 1)
            if is_kept and isinstance(target, ast.Name) and target.id in lists:
                collecting = CollectingComprehension(node.value, (node, "value", None))
        elif not isinstance(node, ast.AugAssign):
            collecting = _joined_first((node, "value", None))
        elif isinstance(node.target, ast.Name):
            collecting = _joined_first((node, "value", None), ((node, "target", None),))
    return collecting if collecting is not None and _is_plain(collecting.comprehension) else None


def _joined_first(location: ExpressionLocation, before: tuple[ExpressionLocation, ...] = ()) -> CollectingComprehension | None:
    """The comprehension in a call of `stack`, `cat` or `sum` that the expression at a location evaluates first, apart from names and
    functions.  before: locations that the statement evaluates before the expression."""
    while True:
        node = expression_at(location)
        if isinstance(node, ast.Call) and _is_simple(node.func):
            before = (*before, (node, "func", None))
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr  # type: ignore[attr-defined]
            if name in _LOOKING_AT_FRAMES:
                return None
            first = node.args[0] if node.args else None
            if isinstance(first, ast.ListComp) and name in JOINING:
                return CollectingComprehension(first, (node, "args", 0), before)
            if isinstance(first, ast.GeneratorExp):
                return CollectingComprehension(first, location, before, node) if _sums(node) else None
        for inner in _evaluated(node):
            if not isinstance(expression_at(inner), ast.Name | ast.Constant):
                location = inner
                break
            before = (*before, inner)
        else:
            return None


def _sums(node: ast.Call) -> bool:
    """Whether a call is, by its name, one of Python's `sum`, without a start value or with a literal number as the start
    value."""
    begins = [*node.args[1:], *[part.value for part in node.keywords if part.arg == "start"]]
    if not isinstance(node.func, ast.Name) or node.func.id != "sum" or len(begins) < len(node.args) + len(node.keywords) - 1:
        return False
    return len(begins) < 2 and all(isinstance(x, ast.Constant) and type(x.value) in (int, float) for x in begins)


def _evaluated(node: ast.expr) -> list[ExpressionLocation]:
    """The locations of the operands that an expression evaluates first, in order, without functions that are `_is_simple`."""
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
    """Whether an expression is a name, or an attribute of a name."""
    return isinstance(node.value if isinstance(node, ast.Attribute) else node, ast.Name)


def _is_plain(node: ast.ListComp | ast.GeneratorExp) -> bool:
    """Whether a loop with renamed targets does the same as the comprehension."""
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
