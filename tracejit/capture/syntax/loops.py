"""How a loop uses its variables, from its syntax alone: which may be counters, which lists it appends to, and whether its steps
may be left out at all (capture/loop_recogniser.py).

A loop is watched whose variables are the function's own, and whose body has no `yield` and no `await`.

A *counter* is a variable that steps use in three ways only: as a position that moves by a fixed distance from step to step
(`xs[t]`, `xs[:, t + 1]`, `xs[n - 1 - t]`, `xs[t : t + 1]`); compared (`t > 0`), which has the same result from some step on; and
computed with (`t * dt`).

A *private list* is one that a function makes, appends to, hands to `stack`, `cat`, `sum`, `tensor` and `len`, and of which it otherwise
reads the first and the last item alone.  It need not hold its items one by one (capture/stacked_items.py)."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tracejit.capture.syntax.locate import SCOPES, FunctionNode
from tracejit.capture.syntax.scopes import names_stored_by
from tracejit.capture.syntax.tree_walk import children, walk

__all__ = [
    "EXTENDED_LIST",
    "JOINING",
    "OUTLINED",
    "OUTLINED_LOOP",
    "UNBOUND",
    "ListGrowth",
    "LoopNames",
    "PlainIf",
    "PlainTry",
    "ReadBeforeLoop",
    "compared",
    "integer",
    "is_reversed_slice",
    "is_unbind_call",
    "joined_list",
    "kept_counter",
    "lines_ending_while",
    "list_growth",
    "loop_names",
    "may_leave_by",
    "name_uses",
    "names_of_new_lists",
    "number_uses",
    "offset_names",
    "positions",
    "private_lists",
    "reads_end",
    "returned_lists",
    "reversed_list_name",
    "use_counts",
    "uses_as_private",
    "without_ends",
]

OUTLINED = "__outlined_"
"""How the variables begin that outlined_loops.py adds to a function."""
OUTLINED_LOOP = "__outlined_loop__"
UNBOUND = "__outlined_unbound__"
"""What the code of a function with outlined loops has in the place of a variable without a value."""
EXTENDED_LIST = "__extended_list__"
"""The names by which the syntax tree of a function with outlined loops calls entry points (outlined_loops.py)."""
JOINING = ("stack", "cat", "sum")
"""Names of what makes one value of the items of a list, in their order."""
_HANDLING = (ast.Try, ast.TryStar, ast.With, ast.AsyncWith)
_SUSPENDING = (ast.Yield, ast.YieldFrom, ast.Await)
_BRANCHES = (ast.If, ast.IfExp)
_CONDITIONS = (*_BRANCHES, ast.While, ast.Assert, ast.Compare)
_REPEATED = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_GROWING = (ast.Expr, ast.AugAssign, ast.Assign)
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.FloorDiv, ast.Mod)


class PlainIf(ast.If):
    """An `if` statement that is not rewritten."""


class PlainTry(ast.Try):
    """A `try` statement that is not rewritten."""


class ReadBeforeLoop(ast.Subscript):
    """`name[position]` of a list, before an outlined loop whose steps append to it (grown_lists.py)."""


@dataclass(frozen=True, slots=True)
class LoopNames:
    """The variables of a loop, by how its steps use them.

    targets: those of the `for`.  unpacked: whether they are parts of an element; then they are among `stored`, too.  shape: None
    of one target, else a tuple of the shapes of its parts.  stored: other variables that steps assign to.  counters: targets used
    as positions and in comparisons alone. numbers: targets and `kept` that are computed with, and counters otherwise.  kept:
    stored variables to which each step adds a number, with these numbers (`i += 1`): counters, if they are integers.  bounds:
    counters with the integers that they are compared with (`if t >= 5`).  renewed: stored variables that each step assigns to
    before it uses them, and that nothing but the body uses.  branches: whether steps may leave other things unassigned than
    the steps before.  sure: if so, the variables that each step assigns to before it may read them or end.

    appended: lists that steps append to, and do nothing else with but read the last item.  private: those that are private to the
    function.  in_front: those that get items in front of all others.  last: those of which the body reads the last item.
    ignored: private lists that the body does not name."""

    targets: tuple[str, ...]
    unpacked: bool
    stored: tuple[str, ...]
    counters: tuple[str, ...]
    appended: tuple[str, ...]
    private: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    renewed: tuple[str, ...] = ()
    sure: tuple[str, ...] = ()
    branches: bool = False
    in_front: tuple[str, ...] = ()
    shape: Any = None
    kept: tuple[tuple[str, int], ...] = ()
    bounds: tuple[tuple[str, int], ...] = ()


def loop_names(
    node: ast.For,
    local: set[str],
    captured: frozenset[str],
    shared: set[str],
    lists: frozenset[str] = frozenset(),
    everywhere: Mapping[str, int] = MappingProxyType({}),
) -> LoopNames | None:
    """The variables of a loop; None where all of its steps have to run.

    local: names of the function's own.  captured: those that nested functions read.  shared: names that it declares global or
    nonlocal.  lists: its private lists.  everywhere: how often the function names each variable."""
    parts = _leaves(node.target)
    targets = [part.id for part in parts if isinstance(part, ast.Name)]
    stored = names_stored_by(node.body)
    inside = [part for statement in node.body for part in _own_parts(statement)]
    if len(targets) < len(parts) or (stored | {*targets}) & shared or any(isinstance(part, _SUSPENDING) for part in inside):
        return None
    private = local - captured
    uses = {name: number_uses(name, node.body) for name in {*targets} & private - stored}
    counters = {name for name, found in uses.items() if found == []}
    kept = {name: found.step for name in stored & private - {*targets} if (found := kept_counter(name, node.body))}
    uses.update((name, number_uses(name, node.body)) for name in kept)
    numbers = {name for name, found in uses.items() if found}
    lengthened = {more.name for part in inside if (more := list_growth(part)) is not None}
    growing = {name: more for name in private & lengthened - {*targets} if (more := _only_grows(name, node.body)) is not None}
    assigned = {name for name in stored if name in growing and name in lists}
    stored -= assigned
    appended = {*growing} - stored
    unpacked = isinstance(node.target, ast.Tuple)
    own = Counter([part.id for part in inside if isinstance(part, ast.Name)])
    renewed = {name for name in stored & private if own[name] == everywhere.get(name) and _is_renewed(name, node.body)}
    stored = (stored | {*targets} if unpacked else stored - {*targets}) - counters
    ignored = {name for name in lists if not _uses(name, node.body)}
    last = {name for name in appended if any(reads_last(part) == name for part in inside)}
    in_front = {name for name in appended if growing[name].in_front}
    branches = any(isinstance(part, (*_BRANCHING, *_LEAVING)) for part in inside)
    sure = {*targets} | _surely_assigned(node.body) if branches else set()
    groups = {
        "stored": stored, "counters": counters, "appended": appended, "private": appended & lists, "ignored": ignored, "last": last,
        "numbers": numbers, "renewed": renewed, "in_front": in_front, "sure": sure,
    }  # fmt: skip
    known: dict[str, Any] = {name: tuple(sorted(found)) for name, found in groups.items()}
    bounds = {(name, bound) for part in inside for name in counters | numbers if (bound := _bound(name, part)) is not None}
    return LoopNames(
        tuple(targets),
        unpacked,
        **known,
        branches=branches,
        shape=_shape(node.target),
        kept=tuple(sorted(kept.items())),
        bounds=tuple(sorted(bounds)),
    )


def _leaves(target: ast.expr) -> list[ast.expr]:
    return [x for part in target.elts for x in _leaves(part)] if isinstance(target, ast.Tuple) else [target]


def _shape(target: ast.expr) -> Any:
    return tuple(map(_shape, target.elts)) if isinstance(target, ast.Tuple) else None


class KeptCounter(NamedTuple):
    """A variable to which each step of a loop adds a number, and the statement of the body that does."""

    step: int
    statement: ast.AugAssign | ast.Assign


def kept_counter(name: str, body: Sequence[ast.stmt]) -> KeptCounter | None:
    """The statement by which a body adds a number to a variable, `i += 1`, once in each step, if it uses the variable as a
    counter otherwise; None of any other variable."""
    found = None
    for k, statement in enumerate(body):
        step = _added_to(name, statement)
        if step is not None and found is None and not any(map(may_leave_by, body[:k], repeat(ast.Continue))):
            found = KeptCounter(step, statement)  # type: ignore[arg-type]
        elif name in names_stored_by([statement]):
            return None
    return found if found is not None and number_uses(name, body) is not None else None


def _added_to(name: str, node: ast.stmt) -> int | None:
    """The number that a statement adds to a variable, `i += 1`, `i = i - 1`; None where it does not, or the number is 0."""
    target: ast.expr
    if isinstance(node, ast.AugAssign):
        target, op, value = node.target, node.op, node.value
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp):
        target, op, value = node.targets[0], node.value.op, node.value.right
        if not (isinstance(node.value.left, ast.Name) and node.value.left.id == name):
            return None
    else:
        return None
    step = integer(value)
    if not (isinstance(target, ast.Name) and target.id == name and isinstance(op, ast.Add | ast.Sub)) or not step:
        return None
    return step if isinstance(op, ast.Add) else -step


def may_leave_by(node: ast.AST, how: type[ast.stmt] | tuple[type[ast.stmt], ...]) -> bool:
    """Whether a statement has a `break` or `continue`, whichever it is, of a loop around it."""
    if isinstance(node, how):
        return True
    if isinstance(node, ast.For | ast.While):
        return any(may_leave_by(part, how) for part in node.orelse)
    return any(may_leave_by(part, how) for part in children(node))


def joined_list(node: ast.Call) -> str | None:
    """The variable that a call hands to something named `stack`, `cat`, `sum`, `tensor` or `len`, or of which it joins the items
    backwards, `stack(name[::-1])`, or all but some at the ends, `stack(name[1:])`; None for any other call."""
    function = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if function not in (*JOINING, "tensor", "len") or not node.args:
        return None
    found = _sliced(node.args[0]) or node.args[0]
    return found.id if isinstance(found, ast.Name) else None


def is_reversed_slice(node: ast.expr) -> bool:
    """Whether an expression is `x[::-1]`."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)):
        return False
    bounds = node.slice
    return bounds.lower is None and bounds.upper is None and bounds.step is not None and integer(bounds.step) == -1


def without_ends(node: ast.expr) -> tuple[int, int] | None:
    """How many items an expression leaves out at the ends, `x[1:]`, `x[:-1]`; None of any other one."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)) or node.slice.step is not None:
        return None
    bounds = node.slice.lower, node.slice.upper
    first, last = [0 if bound is None else integer(bound) for bound in bounds]
    if first is None or last is None or first < 0 or last > 0 or (bounds[1] is not None and not last):
        return None
    return first, -last


def reversed_list_name(node: ast.expr) -> str | None:
    """The variable of `name.reverse()`; None of any other expression."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reverse"):
        return None
    is_plain = isinstance(node.func.value, ast.Name) and not node.args and not node.keywords
    return node.func.value.id if is_plain else None  # type: ignore[attr-defined]


def is_unbind_call(node: ast.expr) -> bool:
    """Whether an expression is, by its name, a call of what takes a tensor apart: `x.unbind(1)`, `tj.split(x, 1)`."""
    if not (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("unbind", "split", "chunk")
    ):
        return False
    return not any(isinstance(part, ast.Starred) for part in node.args) and all(part.arg for part in node.keywords)


def private_lists(node: FunctionNode) -> frozenset[str]:
    """The variables of a function that are private lists (see the module), and nothing else, wherever it names them.  It may also
    reverse them in place, and ask whether they are empty."""
    if isinstance(node, ast.Lambda):
        return frozenset()
    found = uses_as_private(node.body)
    arguments = {argument.arg for argument in walk(node.args) if isinstance(argument, ast.arg)}
    return frozenset([name for name, count in found.items() if name not in arguments and _uses(name, node.body) == count])


def returned_lists(node: FunctionNode, names: Iterable[str]) -> dict[str, list[ast.expr]]:
    """Those of `names` that are private lists but for this: the function returns them, as they are or in displays, `return xs, n`; with
    these uses.  No loop and no comprehension names them."""
    if isinstance(node, ast.Lambda):
        return {}
    found = uses_as_private(node.body)
    repeated = [part for part in walk(node) if isinstance(part, _REPEATED)]
    uses = [x for part in walk(node) if isinstance(part, ast.Return) and part.value is not None for x in _displayed(part.value)]
    result: dict[str, list[ast.expr]] = {}
    for name in names:
        own: list[ast.expr] = [x for x in uses if isinstance(x, ast.Name) and x.id == name]
        is_private = name in found and found[name] + len(own) == _uses(name, node.body)
        if own and is_private and not any(name_uses(name, part) for part in repeated):
            result[name] = own
    return result


def _displayed(node: ast.expr) -> Iterator[ast.expr]:
    """An expression, or the parts of tuples, lists and dictionaries that it displays."""
    match node:
        case ast.Tuple(parts) | ast.List(parts) | ast.Dict(_, parts):
            for part in parts:
                yield from _displayed(part)
        case _:
            yield node


def uses_as_private(body: Sequence[ast.stmt]) -> Mapping[str, int]:
    """How often statements use each name to which they assign a new list as that of a private list."""
    parts = [part for statement in body for part in walk(statement)]
    found = Counter([name for part in parts for name in names_of_new_lists(part)])
    for part in parts:
        name, more = reads_end(part), list_growth(part)
        if more is not None and more.name in found:
            found[more.name] += more.uses
        elif isinstance(part, ast.Expr) and reversed_list_name(part.value) is not None:
            name = reversed_list_name(part.value)
        elif isinstance(part, ast.Call):
            name = joined_list(part)
        elif isinstance(part, _BRANCHES):
            name = _asked_for_items(part.test)
        if name is not None and name in found:
            found[name] += 1
    return found


def _asked_for_items(test: ast.expr) -> str | None:
    """The variable of `if outs` and `if not outs`; None of any other condition."""
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    return asked.id if isinstance(asked, ast.Name) else None


def _sliced(node: ast.expr) -> ast.expr | None:
    """The `x` of `x[::-1]` and `x[1:]`; None of any other expression."""
    return node.value if is_reversed_slice(node) or without_ends(node) else None  # type: ignore[attr-defined]


def names_of_new_lists(node: ast.AST) -> Iterator[str]:
    """The names to which a statement assigns new lists."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target, value = node.target, node.value
    else:
        return
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = list(zip(target.elts, value.elts, strict=True))
    for part, made in pairs:
        if isinstance(part, ast.Name) and _is_new_list(made):
            yield part.id


def _is_new_list(node: ast.expr) -> bool:
    """Whether an expression is a list display or a list comprehension."""
    if isinstance(node, ast.ListComp):
        return True
    return isinstance(node, ast.List) and not any(isinstance(x, ast.Starred) for x in node.elts)


def positions(node: ast.Subscript) -> list[ast.expr]:
    """The parts of a subscript between its commas."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def offset_names(expression: ast.expr, names: Iterable[str], scaled: bool = False) -> set[str]:
    """Those of `names` that an expression adds to something else, or takes away from it; or that both bounds of a slice do.
    scaled: or multiplies with something that has none of them."""
    if isinstance(expression, ast.Name):
        return {expression.id} & set(names)
    if isinstance(expression, ast.Slice) and expression.lower and expression.upper and not expression.step:
        return offset_names(expression.lower, names, scaled) & offset_names(expression.upper, names, scaled)
    if not isinstance(expression, ast.BinOp):
        return set()
    left, right = offset_names(expression.left, names, scaled), offset_names(expression.right, names, scaled)
    if isinstance(expression.op, ast.Add | ast.Sub):
        return left | right
    return left | right if scaled and isinstance(expression.op, ast.Mult) and not (left and right) else set()


def _own_parts(node: ast.AST) -> list[ast.AST]:
    """A statement and its parts, each before its own ones, but for bodies of nested functions and classes."""
    found = [node]
    if not isinstance(node, SCOPES):
        for child in children(node):
            found += _own_parts(child)
    return found


def use_counts(node: FunctionNode) -> Mapping[str, int]:
    """How often a function, but for functions inside, names each variable."""
    body = node.body if isinstance(node.body, list) else [node.body]
    return Counter([part.id for x in body for part in _own_parts(x) if isinstance(part, ast.Name)])


def _uses(name: str, body: Sequence[ast.stmt]) -> int:
    return sum(len(name_uses(name, statement)) for statement in body)


def number_uses(name: str, body: Sequence[ast.stmt]) -> list[ast.Name] | None:
    """Where a body computes with a counter, `t * dt`, `xs[t % 2]`; None of a name that is no counter (see the module), or where a
    condition such as `t % 2 == 0` tells one step from the next.

    Other uses of a counter are: one position of a subscript, to which it is added once, or both bounds of a slice there; one side
    of a comparison; a statement of the body that adds a number to it; an error that ends the loop."""
    body = [statement for statement in body if _added_to(name, statement) is None]
    # Uses as a position, or compared, or of what comes last.
    counted = {id(x) for part in _ends(body) for x in name_uses(name, part)}
    inside: set[int] = set()  # of subscripts, but for positions that come again
    operands: list[ast.Name] = []
    for part in (part for statement in body for part in _own_parts(statement)):
        if isinstance(part, _CONDITIONS) and _wrapped(name, _condition(part)):
            return None
        if isinstance(part, ast.Subscript):
            inside.update(
                {*map(id, name_uses(name, part.slice))}
                - (_wrapped(name, part.slice) if isinstance(part.ctx, ast.Load) else set())
            )
            for key in positions(part) if not isinstance(part.ctx, ast.Del) else ():
                found = name_uses(name, key)
                if offset_names(key, {name}, scaled=True) and len(found) == (2 if isinstance(key, ast.Slice) else 1):
                    counted.update(map(id, found))
        elif isinstance(part, ast.Compare) and any(compared(part, {name})):
            found = name_uses(name, part)
            counted.update(map(id, found if len(found) == 1 else ()))
        else:
            operands += [x for x in _computed_with(part) if isinstance(x, ast.Name) and x.id == name]
    operands = [x for x in operands if id(x) not in counted]
    known = counted | {id(x) for x in operands if id(x) not in inside}
    uses = [x for statement in body for x in name_uses(name, statement)]
    return operands if all(id(x) in known for x in uses) else None


def _ends(body: Sequence[ast.stmt]) -> list[ast.AST]:
    """The parts of a body that are evaluated in the step that an error ends, if nothing in the body may handle the error."""
    parts = [part for statement in body for part in _own_parts(statement)]
    if any(isinstance(part, _HANDLING) for part in parts):
        return []
    raised: list[ast.AST] = [part for part in parts if isinstance(part, ast.Raise)]
    return [*raised, *[part.msg for part in parts if isinstance(part, ast.Assert) and part.msg is not None]]


def _wrapped(name: str, node: ast.expr) -> set[int]:
    """The uses of a name inside of remainders and floor divisions, `t % 2`, `t // 2`, by id."""
    wrapping = [part for part in walk(node) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod | ast.FloorDiv)]
    return {id(x) for part in wrapping for x in name_uses(name, part)}


def _condition(node: ast.If | ast.IfExp | ast.While | ast.Assert | ast.Compare) -> ast.expr:
    return node if isinstance(node, ast.Compare) else node.test


def _computed_with(node: ast.AST) -> list[ast.expr]:
    """The operands of arithmetic, `t * dt`, `-t`, and the arguments of calls."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right] if isinstance(node.op, _ARITHMETIC) else []
    if isinstance(node, ast.UnaryOp):
        return [node.operand] if isinstance(node.op, ast.USub) else []
    return [*node.args, *[part.value for part in node.keywords]] if isinstance(node, ast.Call) else []


def lines_ending_while(node: FunctionNode) -> frozenset[int]:
    """The lines of what decides whether `while` loops of a function go on: their conditions, and those of an `if` with a `break`
    in loops like `while True`."""
    found: list[ast.expr] = []
    for loop in walk(node):
        if isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant):
            parts = [part for statement in loop.body for part in _own_parts(statement)]
            found += [
                x.test for x in parts if isinstance(x, ast.If) and any(isinstance(y, ast.Break) for y in (*x.body, *x.orelse))
            ]
        elif isinstance(loop, ast.While):
            found.append(loop.test)
    return frozenset([line for test in found for line in range(test.lineno, (test.end_lineno or test.lineno) + 1)])


def name_uses(name: str, node: ast.AST) -> list[ast.Name]:
    """Where a name stands in a statement or an expression, in functions inside as well."""
    return [part for part in walk(node) if isinstance(part, ast.Name) and part.id == name]


_LEAVING: Final = (ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Assert)
_BRANCHING: Final = (ast.If, ast.IfExp, ast.BoolOp, ast.Match, ast.Try, ast.TryStar, ast.While, ast.For, ast.With)


def _surely_assigned(body: Sequence[ast.stmt]) -> set[str]:
    """The names to which a body assigns before any statement that may read them or leave the body."""
    names: set[str] = set()
    read: set[str] = set()
    for statement in body:
        parts = walk(statement)
        if any(isinstance(part, _LEAVING) for part in parts):
            break
        read.update([x.id for x in parts if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)])
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            stored = [
                x.id for target in targets for x in walk(target) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
            ]
            names.update([name for name in stored if name not in read])
    return names


def _is_renewed(name: str, body: Sequence[ast.stmt]) -> bool:
    """Whether a body assigns to a name before it uses it."""
    for statement in body:
        uses = name_uses(name, statement)
        if not uses:
            continue
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            return False
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        assigned = [x for target in targets for x in (target.elts if isinstance(target, ast.Tuple) else [target])]
        return all(any(x is target for target in assigned) for x in uses)
    return False


def compared(node: ast.Compare, names: Iterable[str]) -> tuple[set[str], set[str]]:
    """Those of `names` to which something is added that a comparison by size has on its left side, and on its right one."""
    if len(node.ops) > 1 or not isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq):
        return set(), set()
    return offset_names(node.left, names), offset_names(node.comparators[0], names)


def _bound(name: str, node: ast.AST) -> int | None:
    """The integer with which an expression compares a name."""
    if not isinstance(node, ast.Compare) or len(node.ops) > 1:
        return None
    sides = node.left, node.comparators[0]
    if not any(isinstance(x, ast.Name) and x.id == name for x in sides):
        return None
    return next((found for x in sides if (found := integer(x)) is not None), None)


def integer(node: ast.expr) -> int | None:
    """The integer that an expression writes down; None of any other one."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    value = node.operand if negative else node  # type: ignore[attr-defined]
    if not isinstance(value, ast.Constant) or type(value.value) is not int:
        return None
    return -value.value if negative else value.value


def reads_end(node: ast.AST) -> str | None:
    """The name of which an expression reads the first or the last item, `name[0]`, `name[-1]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
        return node.value.id if integer(node.slice) in (0, -1) or isinstance(node, ReadBeforeLoop) else None
    return None


def reads_last(node: ast.AST) -> str | None:
    """The name of which an expression reads the last item, `name[-1]`."""
    return reads_end(node) if isinstance(node, ast.Subscript) and integer(node.slice) == -1 else None


class ListGrowth(NamedTuple):
    """A list that a statement puts an item into, at its end or in front of all others, and how often the statement names it."""

    name: str
    item: ast.expr
    in_front: bool = False
    uses: int = 1


def list_growth(node: ast.AST) -> ListGrowth | None:
    """What a statement does that puts one item into a list, `name.append(x)`, `name += [x]`, `name = name + [x]`, `name.insert(0,
    x)`; None of any other one."""
    if not isinstance(node, _GROWING):
        return None
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [item], [])) if not isinstance(item, ast.Starred):
            return ListGrowth(name, item)
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "insert"), [key, item], [])) if integer(key) == 0:
            return None if isinstance(item, ast.Starred) else ListGrowth(name, item, in_front=True)
        case ast.Expr(ast.Call(ast.Name("__extended_list__"), [ast.Name(name), item, _], [])):
            return ListGrowth(name, item)
        case ast.AugAssign(ast.Name(name), ast.Add(), ast.List([item])) if not isinstance(item, ast.Starred):
            return ListGrowth(name, item)
        case ast.Assign([ast.Name(name)], ast.BinOp(ast.Name(same), ast.Add(), ast.List([item]))) if name == same:
            return None if isinstance(item, ast.Starred) else ListGrowth(name, item, uses=2)
    return None


def _only_grows(name: str, body: Sequence[ast.stmt]) -> ListGrowth | None:
    """How a body puts items into a list, always in one way, if each other use of its name reads the last item; None where it does
    anything else, or has no such statement."""
    parts = [part for statement in body for part in _own_parts(statement)]
    found = [x for x in map(list_growth, parts) if x is not None and x.name == name]
    read = sum(reads_last(part) == name for part in parts)
    is_alike = len({x.in_front for x in found}) == 1
    return found[0] if is_alike and sum(x.uses for x in found) + read == _uses(name, body) else None
