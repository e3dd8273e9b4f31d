"""Outlines what a function does between its recursive calls: each run of statements becomes a *piece*, as bodies of loops do
(pieces.py).

    def encode(node):                               def encode(node):
        if isinstance(node, int):                       if isinstance(node, int):
            return table[node].tanh()                       return __piece_1__(node)
        left = encode(node[0])                ->        left = __calls__(encode)(node[0])
        right = encode(node[1])                         right = __calls__(encode)(node[1])
        joined = cat([left, right])                     return __piece_2__(left, right)
        return (weight @ joined).tanh()

A function that calls itself has a path for each shape of the recursion, which no later call may have.  Its pieces have as many paths
as their own branches make.

A *recursive call* leads to a call of a function that is running already.  `__calls__` is given its callee, and gives the function
to call in its place.  A recursive call inside an expression becomes a statement of its own, and so does all that comes before it in
the expression: `return f(x) + g(y)` becomes `a = f(x); b = g(y); return a + b`.  The order of evaluation is that of the original.
Where that is not possible (a comprehension), the statement remains as it is.

An `if` around recursive calls remains; unless its test only compares names and constants, the test becomes a part of the piece before
it, which gives its truth.  An `if` remains, too, that ends a recursion: its test is such a comparison, and its body returns.

The differences that remain visible are those of all pieces.  Besides, values of expressions live as long as variables of the
function."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from tracejit.capture.syntax.locate import FunctionNode, NotConvertible, locate
from tracejit.capture.syntax.pieces import (
    NoPiece,
    OutlinedFunction,
    Outliner,
    Piece,
    Position,
    calls_at,
    function_in_pieces,
    is_in,
    may_have_pieces,
    set_location,
)
from tracejit.capture.syntax.tree_walk import children, walk

__all__ = ["outline_between_calls"]

_LEAST: Final = 2
"""Operations of a piece, at least."""
_OPERATIONS: Final = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript)
_IN_PYTHON: Final = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Delete, ast.Try,
    ast.TryStar, ast.Raise, ast.Assert, ast.Pass,
)  # fmt: skip
"""Statements that are in no piece."""


def outline_between_calls(
    code: CodeType, sites: Collection[tuple[Position, str]], names: dict[str, Any] | None = None
) -> OutlinedFunction | None:
    """A function in pieces between its recursive calls; None if it has no such call.  Raises NotConvertible.

    sites: where recursive calls were seen (`Recursion.calls`).  names: the globals of the function."""
    located = locate(code, names)
    node = located.node
    if not may_have_pieces(node):
        return None
    outliner = Outliner(code, located, names or ())
    separator = _Separator(outliner, _recursive_calls(node, sites))
    node.body = separator.statements(node.body)
    pieces: list[Piece] = []
    for statements, start, end in reversed(list(separator.blocks(node.body))):  # so that those to come remain where they are
        try:
            piece, calling = outliner.block(statements[start:end], f"__piece_{len(pieces) + 1}__")
        except (NoPiece, NotConvertible):
            continue
        statements[start:end] = calling
        pieces.append(piece)
    return function_in_pieces(code, located, pieces, separator.calls) if separator.calls else None


def _recursive_calls(node: ast.FunctionDef, sites: Collection[tuple[Position, str]]) -> list[ast.Call]:
    """The calls at these positions, and others whose callees have a name like theirs, or like the called functions.  Where columns are
    not known (`python -X no_debug_ranges`): on a line without such a call, all calls."""
    every = calls_at(node, range(node.lineno, (node.end_lineno or 0) + 1))
    positions = {position for position, _ in sites}
    seen = [call for call in every if not positions.isdisjoint((_position(call), _position(call.func)))]
    names = ({name for _, name in sites} | {_name(call.func) for call in seen}) - {""}
    calls = [call for call in every if _name(call.func) in names or call in seen]
    lines = [line for line, *_, column in positions if line and column is None and not any(is_in(call, line) for call in calls)]
    return calls + calls_at(node, lines)


def _position(x: ast.expr) -> Position:
    return x.lineno, x.end_lineno, x.col_offset, x.end_col_offset


def _name(callee: ast.expr) -> str:
    """The name of what is called; that of a container, with brackets, for an item of it."""
    match callee:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=container):
            return f"{_name(container)}[]"
    return ""


class _Separator:
    """Makes recursive calls statements of their own.  calls: these."""

    def __init__(self, outliner: Outliner, calls: list[ast.Call]) -> None:
        """outliner: of the function; it is told the new variables."""
        self.calls = calls
        self._ids = {id(call) for call in calls}
        self._values = 0
        self._outliner = outliner
        self._stable: set[str] = set()  # at the statement: variables that have a value, and to which no call assigns

    def statements(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        """The statements, with the recursive calls in them as statements of their own."""
        return [part for statement in body for part in self._separated(statement)]

    def blocks(self, body: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], int, int]]:
        """The runs of statements without recursive calls that are worth a piece: a list of statements, where the run begins in it,
        and where it ends."""
        begun = 0
        for k, statement in enumerate([*body, None]):
            if statement is not None and not self._remains(statement):
                continue
            start, end = begun, k
            while start < end and not _operations(body[start : start + 1]):
                start += 1
            while start < end and not _operations(body[end - 1 : end]):
                end -= 1
            if _operations(body[start:end]) >= _LEAST:
                yield body, start, end
            begun = k + 1
            if isinstance(statement, ast.If | ast.For | ast.While):
                yield from self.blocks(statement.body)
                yield from self.blocks(statement.orelse)
            elif isinstance(statement, ast.With):
                yield from self.blocks(statement.body)

    def _count(self, part: ast.AST) -> int:
        """The number of recursive calls in a part."""
        return sum([id(x) in self._ids for x in walk(part)])

    def _remains(self, statement: ast.stmt) -> bool:
        """Whether a statement is in no piece."""
        if isinstance(statement, _IN_PYTHON) or self._count(statement):
            return True
        return isinstance(statement, ast.If) and _is_plain(statement.test) and isinstance(statement.body[-1], ast.Return)

    def _separated(self, statement: ast.stmt) -> list[ast.stmt]:
        if not self._count(statement) or isinstance(statement, FunctionNode | ast.ClassDef):
            return [statement]
        before: list[ast.stmt] = []
        self._stable = self._outliner.stable_before(statement)
        match statement:
            case ast.Assign() | ast.Expr() | ast.Return(value=ast.expr()):
                statement.value = self._evaluated(statement.value, before)  # type: ignore[arg-type]
            case ast.AugAssign(target=ast.Name(id=name)) if name in self._stable:
                statement.value = self._evaluated(statement.value, before)
            case ast.If():
                statement.test = self._evaluated(statement.test, before)
                if not _is_plain(statement.test):
                    truth = ast.IfExp(statement.test, ast.Constant(True), ast.Constant(False))
                    statement.test = self._variable(truth, before)
                statement.body, statement.orelse = self.statements(statement.body), self.statements(statement.orelse)
            case ast.For():
                statement.iter = self._evaluated(statement.iter, before)
                statement.body, statement.orelse = self.statements(statement.body), self.statements(statement.orelse)
            case ast.While() | ast.With():
                statement.body = self.statements(statement.body)
        for new in before:
            set_location(new, statement)
        return [*before, statement]

    def _evaluated(self, x: ast.expr, before: list[ast.stmt]) -> ast.expr:
        """An expression that follows statements which evaluate it up to its last recursive call; `x` as it is if that is not
        possible."""
        if not self._is_separable(x) or any(isinstance(part, ast.NamedExpr) for part in walk(x)):
            return x
        value = self._after_operands(x, before)
        return value if id(x) in self._ids else self._after_calls(value, before)

    def _is_separable(self, x: ast.expr) -> bool:
        inside = [part for child in children(x) for part in walk(child) if id(part) in self._ids]
        if not inside:
            return True
        operands = [operand.value for operand in _operands(x)]
        return sum(map(self._count, operands)) == len(inside) and all(map(self._is_separable, operands))

    def _after_calls(self, x: ast.expr, before: list[ast.stmt]) -> ast.expr:
        """An expression without recursive calls in it, which statements make before it."""
        x = self._after_operands(x, before)
        return self._variable(x, before) if id(x) in self._ids else x

    def _after_operands(self, x: ast.expr, before: list[ast.stmt]) -> ast.expr:
        """An expression without recursive calls in its operands, which statements make before it."""
        operands = _operands(x)
        last = max([k for k, operand in enumerate(operands) if self._count(operand.value)], default=-1)
        for k, operand in enumerate(operands[: last + 1]):
            value = self._after_calls(operand.value, before)
            is_stable = isinstance(value, ast.Constant) or (isinstance(value, ast.Name) and value.id in self._stable)
            operand.replace(value if k == last or is_stable else self._variable(value, before))
        return x

    def _variable(self, value: ast.expr, before: list[ast.stmt]) -> ast.expr:
        """A new variable that holds a value."""
        self._values += 1
        name = f"__value_{self._values}__"
        self._stable.add(name)
        self._outliner.local.add(name)
        before.append(ast.copy_location(ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), value)], value), value))
        return ast.copy_location(ast.Name(name, ast.Load()), value)


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of an expression: one of its fields, or an item of a list in a field."""

    owner: ast.AST
    field: str
    index: int | None = None

    @property
    def value(self) -> Any:
        value = getattr(self.owner, self.field)
        return value if self.index is None else value[self.index]

    def replace(self, value: ast.expr) -> None:
        if self.index is None:
            setattr(self.owner, self.field, value)
        else:
            getattr(self.owner, self.field)[self.index] = value


def _operands(x: ast.expr) -> list[_Operand]:
    """The operands of an expression that are always evaluated, in their order; none of an expression that cannot be evaluated part
    by part."""
    match x:
        case ast.Call(args=args, keywords=keywords):
            if any(isinstance(arg, ast.Starred) for arg in args) or any(keyword.arg is None for keyword in keywords):
                return []
            items = [_Operand(x, "args", k) for k in range(len(args))]
            return [_Operand(x, "func"), *items, *[_Operand(keyword, "value") for keyword in keywords]]
        case ast.BinOp():
            return [_Operand(x, "left"), _Operand(x, "right")]
        case ast.UnaryOp():
            return [_Operand(x, "operand")]
        case ast.Compare(comparators=[_]):
            return [_Operand(x, "left"), _Operand(x, "comparators", 0)]
        case ast.Attribute():
            return [_Operand(x, "value")]
        case ast.Subscript():
            return [_Operand(x, "value"), _Operand(x, "slice")]
        case ast.Tuple(elts=elts) | ast.List(elts=elts) if not any(isinstance(part, ast.Starred) for part in elts):
            return [_Operand(x, "elts", k) for k in range(len(elts))]
        case ast.IfExp():
            return [_Operand(x, "test")]
        case ast.BoolOp():
            return [_Operand(x, "values", 0)]
    return []


def _operations(statements: Sequence[ast.stmt]) -> int:
    return sum([isinstance(part, _OPERATIONS) for statement in statements for part in walk(statement)])


def _is_plain(test: ast.expr) -> bool:
    """Whether a test only compares names, attributes and constants, or asks for types or lengths."""
    match test:
        case ast.Name() | ast.Constant():
            return True
        case ast.Attribute(value=part) | ast.UnaryOp(op=ast.Not(), operand=part):
            return _is_plain(part)
        case ast.Call(func=ast.Name(id="isinstance" | "len" | "callable" | "hasattr"), args=args, keywords=[]):
            return all(map(_is_plain, args))
        case ast.Compare(left=left, comparators=others):
            return all(map(_is_plain, (left, *others)))
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts):
            return all(map(_is_plain, parts))
    return False
