"""Separates lists that are joined under their own name: `outs = []`, `outs.append(h)` in a loop, `outs = stack(outs)`.

The variable is a list first, then a tensor.  The list may be private to the function (syntax/loops.py) although the tensor is
not.  So the list gets a variable of its own, from the display to the call that joins it, if no other code can reach the list
there, or read the variable when only a part of these statements has run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tracejit.capture.syntax.locate import FunctionNode
from tracejit.capture.syntax.loops import joined_list, may_leave_by, name_uses, names_of_new_lists, uses_as_private
from tracejit.capture.syntax.tree_walk import walk

__all__ = ["separate_lists"]

_SWITCHES = ("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast")
"""Names of context managers that swallow no exceptions."""
_LEAVING = (ast.Break, ast.Continue)


def separate_lists(node: FunctionNode) -> set[str]:
    """Rename the variables of such lists in a function, in place.  Returns the new names."""
    if isinstance(node, ast.Lambda):
        return set()
    shared = {name for part in walk(node) if isinstance(part, ast.Global | ast.Nonlocal) for name in part.names}
    inner = [part for part in walk(node) if isinstance(part, FunctionNode | ast.ClassDef) and part is not node]
    shared |= {part.id for function in inner for part in walk(function) if isinstance(part, ast.Name)}
    separated: set[str] = set()
    for block in _blocks(node.body):
        for end, statement in enumerate(block):
            name = _joined_under_its_name(statement)
            if name is None or name in shared:
                continue
            begin = max([k for k, earlier in enumerate(block[:end]) if name in names_of_new_lists(earlier)], default=None)
            uses = None if begin is None else _private_uses(name, block[begin : end + 1])
            if uses is None:
                continue
            own = f"__list_{len(separated)}_{name}__"
            for use in uses:
                use.id = own
            separated.add(own)
    return separated


def _joined_under_its_name(statement: ast.stmt) -> str | None:
    """The name in `name = stack(name)`; None for any other statement."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.value, ast.Call)):
        return None
    target, name = statement.targets[0], joined_list(statement.value)
    return name if isinstance(target, ast.Name) and target.id == name else None


def _private_uses(name: str, statements: Sequence[ast.stmt]) -> list[ast.Name] | None:
    """The uses of a name in statements, without the target of the last one; None if the name cannot be separated there.

    It can if all uses are of the list that the first statement creates, each as of a private list, and if the statements run from
    the first to the last unless an exception ends the function."""
    first, *_, last = statements
    assert isinstance(last, ast.Assign)
    uses = [use for statement in statements for use in name_uses(name, statement) if use is not last.targets[0]]
    is_new = len(name_uses(name, first)) == 1  # otherwise the first statement also reads the variable
    is_private = (
        is_new and uses_as_private(statements)[name] == len(uses) and not any(may_leave_by(x, _LEAVING) for x in statements)
    )
    return uses if is_private else None


def _blocks(body: list[ast.stmt], before: Sequence[ast.stmt] = ()) -> Iterator[list[ast.stmt]]:
    """Sequences of statements that run one after the other, after whose exceptions the function does not continue.  before:
    statements that run before the body."""
    yield [*before, *body]
    for k, statement in enumerate(body):
        if isinstance(statement, ast.Try | ast.TryStar | ast.Match | FunctionNode | ast.ClassDef):
            continue
        if isinstance(statement, ast.With):
            managers = [item.context_expr for item in statement.items if item.optional_vars is None]
            if all(_is_mode_switch(item.context_expr) for item in statement.items):
                entered = [*before, *body[:k], *map(ast.Expr, managers)]
                yield from _blocks(statement.body, entered if len(managers) == len(statement.items) else ())
            continue
        for field in ("body", "orelse"):
            yield from _blocks(inner_body) if (inner_body := getattr(statement, field, None)) else ()


def _is_mode_switch(manager: ast.expr) -> bool:
    function = manager.func if isinstance(manager, ast.Call) else manager
    return isinstance(function, ast.Attribute) and function.attr in _SWITCHES
