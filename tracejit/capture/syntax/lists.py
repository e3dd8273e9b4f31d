"""Lists that are joined under their own name: `outs = []`, `outs.append(h)` in a loop, `outs = stack(outs)`.

The variable is a list first, and then a tensor.  Whatever happens to the tensor, the list is private to the function
(syntax/loops.py): so it gets a variable of its own, from where it is written down to where it is joined, if nothing else can come to it
there, or see the variable when only part of that has run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tracejit.capture.syntax.locate import FunctionNode
from tracejit.capture.syntax.loops import joined_list, may_leave_by, name_uses, names_of_new_lists, uses_as_private
from tracejit.capture.syntax.tree_walk import walk

__all__ = ["separate_lists"]

_SWITCHES = ("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast")
"""Context managers that let errors pass, by their names."""
_LEAVING = (ast.Break, ast.Continue)


def separate_lists(node: FunctionNode) -> set[str]:
    """Give such lists names of their own in a function, which is changed.  Returns these."""
    if isinstance(node, ast.Lambda):
        return set()
    shared = {name for part in walk(node) if isinstance(part, ast.Global | ast.Nonlocal) for name in part.names}
    inner = [part for part in walk(node) if isinstance(part, FunctionNode | ast.ClassDef) and part is not node]
    shared |= {part.id for function in inner for part in walk(function) if isinstance(part, ast.Name)}
    made: set[str] = set()
    for block in _blocks(node.body):
        for end, statement in enumerate(block):
            name = _joined_under_its_name(statement)
            if name is None or name in shared:
                continue
            begin = max([k for k, earlier in enumerate(block[:end]) if name in names_of_new_lists(earlier)], default=None)
            uses = None if begin is None else _private_uses(name, block[begin : end + 1])
            if uses is None:
                continue
            own = f"__list_{len(made)}_{name}__"
            for use in uses:
                use.id = own
            made.add(own)
    return made


def _joined_under_its_name(statement: ast.stmt) -> str | None:
    """The name of `name = stack(name)`; None of any other statement."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.value, ast.Call)):
        return None
    target, name = statement.targets[0], joined_list(statement.value)
    return name if isinstance(target, ast.Name) and target.id == name else None


def _private_uses(name: str, statements: Sequence[ast.stmt]) -> list[ast.Name] | None:
    """The uses of a name but for what the last statement assigns to, if all of these are uses of the list that the first one writes down,
    as of a private one, and the statements run from the first to the last, or never come to an end; else None."""
    first, *_, last = statements
    assert isinstance(last, ast.Assign)
    uses = [use for statement in statements for use in name_uses(name, statement) if use is not last.targets[0]]
    is_new = len(name_uses(name, first)) == 1  # else it reads what the variable was before
    is_private = (
        is_new and uses_as_private(statements)[name] == len(uses) and not any(may_leave_by(x, _LEAVING) for x in statements)
    )
    return uses if is_private else None


def _blocks(body: list[ast.stmt], before: Sequence[ast.stmt] = ()) -> Iterator[list[ast.stmt]]:
    """Statements that follow each other, where nothing goes on after an error among them.  before: those that come before the body."""
    yield [*before, *body]
    for k, statement in enumerate(body):
        if isinstance(statement, ast.Try | ast.TryStar | ast.Match | FunctionNode | ast.ClassDef):
            continue
        if isinstance(statement, ast.With):
            managers = [item.context_expr for item in statement.items if item.optional_vars is None]
            if all(_lets_pass(item.context_expr) for item in statement.items):
                entered = [*before, *body[:k], *map(ast.Expr, managers)]
                yield from _blocks(statement.body, entered if len(managers) == len(statement.items) else ())
            continue
        for field in ("body", "orelse"):
            yield from _blocks(found) if (found := getattr(statement, field, None)) else ()


def _lets_pass(manager: ast.expr) -> bool:
    function = manager.func if isinstance(manager, ast.Call) else manager
    return isinstance(function, ast.Attribute) and function.attr in _SWITCHES
