"""Lists that the steps of an outlined loop (outlined_loops.py) append to, as variables of the step.

    xs = [x]                                      step(length, last):
    while len(xs) < n:                                items = ()
        if xs[-1].sum() > 0:              ->          if last.sum() > 0:
            xs.append(f(xs[-1]))                          item = f(last)
                                                          items, length, last = items + (item,), length + 1, item

The list itself is no variable of the step: all items are put into it after the loop.  Where each item is a tuple that is written so,
`xs.append((t, x))`, its parts are items of lists of their own, and the tuples are made after the loop; a part that is a text or another
constant in the source is the number of that constant.  The length of the list is a variable where steps ask for it,
`len(xs)` or `if xs`, and where they read an item that may not be there.  The items that they read, `xs[-1]`, `xs[-2]`, `xs[0]`, are
variables, too; each append moves the last ones on.

That is so for a list that the function has made before the loop, that nothing else can reach in the loop, and that steps only append to,
read so, and ask for its length.  Appends in a loop inside of the step do not count."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tracejit.capture.syntax.locate import SCOPES, FunctionNode
from tracejit.capture.syntax.loops import (
    OUTLINED,
    UNBOUND,
    ListGrowth,
    ReadBeforeLoop,
    integer,
    list_growth,
    name_uses,
    names_of_new_lists,
    reads_end,
)
from tracejit.capture.syntax.pieces import set_location
from tracejit.capture.syntax.scopes import declared_names
from tracejit.capture.syntax.tree_walk import children, walk

__all__ = ["GrownList", "assigned", "grown_lists", "since_made", "without_lists"]

_ITEM: Final = f"{OUTLINED}item__"


@dataclass(frozen=True, slots=True)
class GrownList:
    """A list that steps append to.

    columns: the variables of the tuples of what a step appends, one for each part of items that are tuples.  is_of_tuples: whether they
    are.  constants: for each column, the constants of which it has the numbers; None of one that has the parts themselves.  length: the
    variable of its length; None where steps do not need it.  is_measured: whether they ask for it.  ends: by their positions in the
    list, the variables of the items that steps read, and of those behind them.
    is_filled: whether these are there for certain when the loop begins."""

    name: str
    columns: tuple[str, ...]
    is_of_tuples: bool
    constants: tuple[tuple[Any, ...] | None, ...]
    length: str | None
    is_measured: bool
    ends: dict[int, str]
    is_filled: bool

    def read_before(self, loop: ast.stmt) -> list[ast.stmt]:
        """Statements that give the variables their values before the loop."""
        owner = ast.Name(self.name, ast.Load())
        statements = []
        if self.length is not None:
            length = ast.Call(ast.Name("len", ast.Load()), [owner], [])
            statements.append(assigned(self.length, length, loop))
        for position, variable in self.ends.items():
            item: ast.expr = ReadBeforeLoop(owner, ast.Constant(position), ast.Load())
            if not self.is_filled:
                item = ast.IfExp(_has_items(self.length), item, ast.Constant(UNBOUND))
            statements.append(assigned(variable, item, loop))
        return statements

    def appended(self, item: ast.expr, like: ast.stmt) -> list[ast.stmt]:
        """Statements of a step that stand for `name.append(item)`."""
        statements = [assigned(_ITEM, item, like)] if self.ends else []
        parts: list[ast.expr] = [ast.Name(_ITEM, ast.Load()) if self.ends else item]
        if self.is_of_tuples:  # all parts have their values before one is appended
            pairs = zip(self.constants, _parts(item), strict=True)
            parts = [x if known is None else ast.Constant(known.index(_constant(x))) for known, x in pairs]
            statements = [assigned(f"{_ITEM}{k}", part, like) for k, part in enumerate(parts)]
            parts = [ast.Name(f"{_ITEM}{k}", ast.Load()) for k in range(len(parts))]
        for column, part in zip(self.columns, parts, strict=True):
            grown = ast.BinOp(ast.Name(column, ast.Load()), ast.Add(), ast.Tuple([part], ast.Load()))
            statements.append(assigned(column, grown, like))
        if self.length is not None:
            statements.append(
                assigned(self.length, ast.BinOp(ast.Name(self.length, ast.Load()), ast.Add(), ast.Constant(1)), like)
            )
        for position in sorted([x for x in self.ends if x < 0]):
            before = self.ends[position + 1] if position < -1 else _ITEM
            statements.append(assigned(self.ends[position], ast.Name(before, ast.Load()), like))
        return statements

    def read(self, position: int) -> ast.expr:
        """An expression of a step that stands for `name[position]`."""
        item = ast.Name(self.ends[position], ast.Load())
        if self.is_filled:
            return item
        no_item = ast.Subscript(ast.List([], ast.Load()), ast.Constant(position), ast.Load())
        return ast.IfExp(_has_items(self.length), item, no_item)


def grown_lists(node: FunctionNode, loop: ast.For | ast.While, has_len: bool) -> list[GrownList]:
    """The lists that the steps of a loop append to.  node: the function.  has_len: whether `len` is the builtin function in it."""
    grown = [*_growths(loop.body)]
    asked = [*loop.body, *([loop.test] if isinstance(loop, ast.While) else [])]
    result: list[GrownList] = []
    for name in dict.fromkeys([growth.name for growth in grown]):
        uses = sum(growth.uses for growth in grown if growth.name == name)
        lengths = 0
        if has_len:
            tests = [x.test for part in asked for x in walk(part) if isinstance(x, _TESTING)]
            tests += [loop.test] if isinstance(loop, ast.While) else []
            lengths = sum(len(_lengths(name, x)) for x in asked) + sum(len(_tested(name, x)) for x in tests)
        reads = [position for part in asked for x in walk(part) if (position := _position_read(name, x)) is not None]
        if uses + lengths + len(reads) != sum(len(name_uses(name, x)) for x in asked):
            continue
        begins = _items_when_new(node, loop, name, has_len)
        if begins is None:
            continue
        is_filled = all(-begins <= position < begins for position in reads)
        if not is_filled and not (has_len and {*reads} == {-1}):
            continue
        suffix = f"{loop.lineno}_{len(result)}"
        items = [growth.item for growth in grown if growth.name == name]
        constants = None if reads else _constants_of_parts(items)
        width = 1 if constants is None else len(constants)
        positions = [*range(min(reads, default=0), 0), *sorted({x for x in reads if x >= 0})]
        result.append(
            GrownList(
                name,
                tuple([f"{OUTLINED}items_{suffix}_{k}__" for k in range(width)]),
                constants is not None,
                (None,) if constants is None else constants,
                f"{OUTLINED}length_{suffix}__" if lengths or not is_filled else None,
                lengths > 0,
                {x: f"{OUTLINED}item_{suffix}_{'last' if x < 0 else 'first'}{abs(x)}__" for x in positions},
                is_filled,
            )
        )
    return result


def _constants_of_parts(items: Sequence[ast.expr]) -> tuple[tuple[Any, ...] | None, ...] | None:
    """Of items that are tuples of one length: for each part, its constants, if it is one that is no number in each item; else None.  None
    if they are no such tuples."""
    if not all(isinstance(x, ast.Tuple) and x.elts and not any(isinstance(y, ast.Starred) for y in x.elts) for x in items):
        return None
    if len({len(_parts(x)) for x in items}) > 1:
        return None
    result: list[tuple[Any, ...] | None] = []
    for parts in zip(*map(_parts, items), strict=True):
        found = [x.value for x in parts if isinstance(x, ast.Constant) and type(x.value) in (str, bytes, type(None))]
        result.append(tuple(dict.fromkeys(found)) if len(found) == len(parts) else None)
    return tuple(result)


def _parts(item: ast.expr) -> list[ast.expr]:
    """The parts of a tuple."""
    assert isinstance(item, ast.Tuple)
    return item.elts


def _constant(part: ast.expr) -> Any:
    assert isinstance(part, ast.Constant)
    return part.value


def without_lists(body: Sequence[ast.stmt], lists: Collection[GrownList]) -> list[ast.stmt]:
    """Statements of a step with the variables in place of lists.  They are changed."""
    return _WithoutLists(lists).block(body)


def _items_when_new(node: FunctionNode, loop: ast.stmt, name: str, has_len: bool) -> int | None:
    """How many items a list has for certain that the function has made before the loop, and that nothing else can reach in the loop:
    between the two the function only appends to it, asks for its length, and reads items at its ends.  None if it is no such list."""
    between = since_made(node, loop, name, names_of_new_lists)
    if not between:
        return None
    parts = [x for part in between for x in walk(part)]
    known = sum(
        [*names_of_new_lists(x)].count(name)
        + (growth.uses if (growth := list_growth(x)) is not None and growth.name == name else 0)
        + (reads_end(x) == name)
        for x in parts
    )
    known += sum(len(_lengths(name, x)) if has_len else 0 for x in between)
    if known != sum(len(name_uses(name, x)) for x in between):
        return None
    return min([count for part in parts for x, count in _new_lists(part) if x == name])  # it may be made anew in a branch


def since_made(node: FunctionNode, loop: ast.stmt, name: str, makes: Callable[[ast.AST], Iterable[str]]) -> list[ast.AST]:
    """The statement before a loop by which a function has made a list, and what may run between the two.  makes: the names to which a
    statement assigns new lists.  Empty if it has made none, or nested functions name it."""
    around = _blocks_around(node, loop)
    made = [(k, at) for k, (block, end) in enumerate(around) for at in range(end) if name in makes(block[at])]
    inside = [x for x in walk(node) if isinstance(x, (*SCOPES, ast.GeneratorExp)) and x is not node]
    shared = set().union(*declared_names(node))
    if not made or name in shared or any(name_uses(name, x) for x in inside):
        return []
    depth, at = made[-1]
    block, end = around[depth]
    is_repeated = any(isinstance(x[k], ast.For | ast.While) and x[k] is not loop for x, k in around[depth:])
    between: list[ast.AST] = [*block[at : end + is_repeated]]
    if not is_repeated:
        between += [statement for inner, k in around[depth + 1 :] for statement in inner[:k]]
        between += [loop.iter] if isinstance(loop, ast.For) else []
    parts = [x for part in between for x in walk(part)]
    is_bound = any(name in (getattr(x, "name", None), getattr(x, "asname", None), getattr(x, "rest", None)) for x in parts)
    return [] if is_bound else between


def _new_lists(statement: ast.AST) -> Iterator[tuple[str, int]]:
    """The names to which a statement assigns new lists, each with how many items that has for certain."""
    names = [*names_of_new_lists(statement)]
    value: Any = getattr(statement, "value", None)
    is_display = isinstance(value, ast.List) and len(names) == 1
    yield from [(name, len(value.elts) if is_display else 0) for name in names]


def _growths(body: Sequence[ast.AST]) -> Iterator[ListGrowth]:
    """What statements append to lists, but for those in nested loops and definitions."""
    for part in body:
        growth = list_growth(part)
        if growth is not None and not growth.in_front:
            yield growth
        elif not isinstance(part, (ast.For, ast.While, *SCOPES)):
            yield from _growths(children(part))


def _lengths(name: str, part: ast.AST) -> list[ast.Call]:
    """The calls `len(name)` in a part of a function."""
    return [x for x in walk(part) if isinstance(x, ast.Call) and _list_measured(x) == name]


def _list_measured(node: ast.Call) -> str | None:
    """The name of which an expression is the length, `len(name)`."""
    match node:
        case ast.Call(ast.Name("len"), [ast.Name(name)], []):
            return name
    return None


def _position_read(name: str, node: ast.AST) -> int | None:
    """The position of which an expression reads the item, `name[-1]`; None of any other one."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
        return integer(node.slice) if node.value.id == name else None
    return None


_TESTING: Final = ast.If, ast.IfExp, ast.While


def _tested(name: str, test: ast.expr) -> list[ast.expr]:
    """The uses of a name in a condition that ask whether a list has items: `if name`, `not name`, `name and ...`."""
    match test:
        case ast.Name(other) if other == name:
            return [test]
        case ast.UnaryOp(ast.Not(), operand):
            return _tested(name, operand)
        case ast.BoolOp(_, operands):
            return [x for operand in operands for x in _tested(name, operand)]
    return []


class _WithoutLists(ast.NodeTransformer):
    """Replaces what statements do with lists."""

    def __init__(self, lists: Collection[GrownList]) -> None:
        self._lists = {x.name: x for x in lists}

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        visited = [self.visit(statement) for statement in statements]
        return [x for part in visited for x in (part if isinstance(part, list) else [part])]

    def _statement(self, node: ast.stmt) -> ast.stmt | list[ast.stmt]:
        growth = list_growth(node)
        if growth is None or growth.name not in self._lists:
            self.generic_visit(node)
            return node
        return self._lists[growth.name].appended(self.visit(growth.item), node)

    visit_Expr = visit_AugAssign = visit_Assign = _statement

    def visit_Call(self, node: ast.Call) -> ast.expr:
        grown = self._lists.get(_list_measured(node) or "")
        if grown is not None and grown.length is not None:
            return ast.copy_location(ast.Name(grown.length, ast.Load()), node)
        self.generic_visit(node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        grown = self._lists.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if grown is not None and (position := _position_read(grown.name, node)) is not None:
            item = grown.read(position)
            set_location(item, node)
            return item
        self.generic_visit(node)
        return node

    def _test(self, node: Any) -> Any:
        node.test = self._condition(node.test)
        self.generic_visit(node)
        return node

    def _condition(self, test: ast.expr) -> ast.expr:
        """A condition with lengths in the place of lists."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test.operand = self._condition(test.operand)
        elif isinstance(test, ast.BoolOp):
            test.values = [*map(self._condition, test.values)]
        elif isinstance(test, ast.Name) and test.id in self._lists:
            result = _has_items(self._lists[test.id].length)
            set_location(result, test)
            return result
        return test

    visit_If = visit_IfExp = visit_While = _test


def _has_items(length: str | None) -> ast.expr:
    """A condition: whether a list of this length has items."""
    assert length is not None
    return ast.Compare(ast.Name(length, ast.Load()), [ast.Gt()], [ast.Constant(0)])


def assigned(name: str, value: ast.expr, like: ast.stmt) -> ast.stmt:
    """`name = value`, at the position of another node."""
    statement = ast.Assign([ast.Name(name, ast.Store())], value)
    set_location(statement, like)
    return statement


def _blocks_around(node: ast.AST, sought: ast.stmt) -> list[tuple[list[ast.stmt], int]]:
    """The blocks around a statement of a function, from the outermost one inwards, each with the position of what has it in it."""
    for part in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        for field in ("body", "orelse", "finalbody"):
            block: Any = getattr(part, field, None)
            for at, statement in enumerate(block if isinstance(block, list) else ()):
                if statement is sought:
                    return [(block, at)]
                if inner := _blocks_around(statement, sought):
                    return [(block, at), *inner]
    return []
