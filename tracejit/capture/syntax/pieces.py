"""Outlines bodies of loops: the body becomes a function of its own, a *piece*, which can be compiled by itself.

    for t in range(n):                      for t in range(n):
        if u[t] < ratio(x):                     way, x = __piece_1__(t, u, x)      # the live-in variables of the body
            x = propose(x)              ->      if way == 1:
            if x.isnan().any():                     break
                break

n steps of a body with one branch have 2**n paths; the body as a function has two.

The function with pieces does the same as the original under three conditions: nested functions share none of the body's
variables; all live-in variables of the body have a value where the piece is called; all live-out variables are returned.  This is
decided from the syntax alone, by an analysis of definite assignment (Aho, Lam, Sethi and Ullman, "Compilers", 2nd ed., section
9.2).  A body for which it cannot be shown is not outlined.  A number before the returned values says whether the body has ended
by `continue`, `break` or `return`.  The condition of a `while` loop that values end becomes a part of its body: `while True: if
not condition: break`.

These bodies are not outlined: in a generator; in `try`, or in a `with` that may swallow exceptions, since code after an exception
would read variables as they were in the middle of a step; with `global`, `nonlocal`, `del`, `locals()`, `eval` or `super()`; with
a `finally` that assigns to live-out variables.

The differences that remain visible: frames (one more, with other `f_locals`), and objects that only the step refers to, which die
at its end.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, TypeGuard

from tracejit.capture.syntax.convert import compiled_as
from tracejit.capture.syntax.locate import FunctionNode, Located, NotConvertible, declare, locate
from tracejit.capture.syntax.loops import PlainIf
from tracejit.capture.syntax.scopes import (
    COMPREHENSIONS,
    LOOKING_AT_VARIABLES,
    bound_names,
    declared_names,
    names_read_by,
    names_stored_by,
)
from tracejit.capture.syntax.tree_walk import children, walk

__all__ = [
    "BREAKS", "CONTINUES", "RETURNS", "ExitRewriter", "NoPiece", "OutlinedFunction", "Outliner", "Piece", "Position", "calls_at",
    "function_in_pieces", "has_loop_around", "is_in", "loops_around", "may_have_pieces", "outermost_loops", "outline_loop_bodies",
    "own_statements", "set_location",
]  # fmt: skip

Position = tuple[int | None, int | None, int | None, int | None]
"""Of an expression: its first and last line, first and last column; as far as they are known (`CodeType.co_positions`)."""
CONTINUES, BREAKS, RETURNS = range(3)
"""How a body has ended."""
_CALLS: Final = "__calls__"
_HOW: Final = "__how__"
_GIVEN: Final = "__given__"
_PIECE: Final = "__piece__"
_LOOKING: Final = LOOKING_AT_VARIABLES | {"super", "__class__", "_getframe", "currentframe", "inspect", "traceback", "stacklevel"}
"""Names that are used to read the variables or the frames of a caller, or (`super`) depend on the function that contains them."""
_OF_VARIABLES: Final = frozenset({"locals", "eval", "exec", "_getframe"})
"""Those of them that may read all variables of the function, wherever in it they are called."""
_CONSUMING: Final = frozenset({"all", "any", "dict", "list", "max", "min", "set", "sorted", "sum", "tuple"})
"""Builtins that have finished with a generator when they return, if their names are not rebound."""
_PASSING: Final = frozenset(
    {"autocast", "enable_grad", "errstate", "inference_mode", "no_grad", "nullcontext", "set_grad_enabled"}
)
"""Names of context managers that swallow no exceptions."""
_TYPE_ALIAS: Any = getattr(ast, "TypeAlias", ast.ClassDef)  # `type A = x`, which is evaluated later; from Python 3.12 on
_SUSPENDING: Final = (ast.Yield, ast.YieldFrom, ast.Await)


@dataclass(frozen=True, slots=True)
class Piece:
    """The body of a loop, or a block of statements, as a function.

    name: the free variable by which the outer function calls it.  line: of the loop or the block.  caller: the code of a function that
    calls the piece, which is its first argument, with the others; None if the function has no free variables.  So one compiled
    function serves pieces of all functions of this code, whose free variables differ."""

    name: str
    code: CodeType
    line: int
    caller: CodeType | None


class NoPiece(Exception):
    """A body cannot be outlined."""


@dataclass(frozen=True, slots=True)
class OutlinedFunction:
    """A function in pieces.  code: has free variables for the pieces after its own.  calls: a further free variable, or None: a
    function that is called with the callee of certain calls, and returns the callee to call instead."""

    code: CodeType
    pieces: list[Piece]
    calls: str | None


def has_loop_around(code: CodeType, line: int, names: dict[str, Any] | None = None) -> bool:
    """Whether a line of a function is in a loop that is not in a nested function.  names: the globals of the function.  Raises
    NotConvertible as `locate` does."""
    node = locate(code, names).node
    return isinstance(node, ast.FunctionDef) and any(loops_around(loop, line) for loop in outermost_loops(node.body))


def outline_loop_bodies(
    code: CodeType,
    lines: Sequence[int | None],
    names: dict[str, Any] | None = None,
    calls: Collection[int] = (),
) -> OutlinedFunction | None:
    """A function in pieces; None if no body can be outlined and there are no `calls`.  Raises NotConvertible as `locate` does.

    lines: lines at which calls or steps differ.  The innermost loops around them are outlined; all outermost loops, if one of the
        lines is None or in another function.
    names: the globals of the function.
    calls: lines outside of these loops with calls of functions that may be in pieces, too."""
    located = locate(code, names)
    node = located.node
    if not may_have_pieces(node):
        return None
    loops = list(outermost_loops(node.body))
    chosen = [chain[-1] for line in lines for loop in loops if (chain := loops_around(loop, line))]
    if any(line is None or _is_elsewhere(node, line) for line in lines):
        chosen += [loop for loop in loops if not any(x is loop for x in chosen)]
    inside = [x for loop in chosen for statement in loop.body for x in walk(statement)]
    outliner = Outliner(code, located, names or ())
    pieces: list[Piece] = []
    for k, loop in enumerate(chosen):
        if not any(x is loop for x in (*chosen[:k], *inside)):
            decides = isinstance(loop, ast.While) and any(line is not None and is_in(loop.test, line) for line in lines)
            piece = outliner.piece(loop, f"__piece_{len(pieces) + 1}__", decides)
            pieces += [] if piece is None else [piece]
    routed = [x for x in calls_at(node, calls) if not any(x is y for y in inside)]
    if not pieces and not routed:
        return None
    return function_in_pieces(code, located, pieces, routed)


def may_have_pieces(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    """Whether this is the definition of a function that may be in pieces."""
    parts = walk(node)
    return (
        isinstance(node, ast.FunctionDef)
        and not any(isinstance(part, _SUSPENDING) for part in parts)
        and _named(parts).isdisjoint(_OF_VARIABLES)
    )


def function_in_pieces(code: CodeType, located: Located, pieces: Sequence[Piece], routed: Sequence[ast.Call]) -> OutlinedFunction:
    """The function of a definition in which calls of these pieces stand.  routed: the calls whose callees are replaced.  Raises
    NotConvertible."""
    for call in routed:
        call.func = ast.copy_location(ast.Call(ast.copy_location(ast.Name(_CALLS, ast.Load()), call), [call.func], []), call)
    located.node.lineno = code.co_firstlineno  # of the first decorator, from which the lines of a code object are counted
    free = [*[piece.name for piece in pieces], *([_CALLS] if routed else [])]
    return OutlinedFunction(compiled_as(code, located, free), [*pieces], _CALLS if routed else None)


def calls_at(node: ast.FunctionDef, lines: Collection[int]) -> list[ast.Call]:
    """The calls at these lines, without those in nested functions and calls of functions that read the frames of their caller."""
    calls: list[ast.Call] = []
    pending: list[ast.AST] = list(node.body)
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Call) and any(is_in(part, line) for line in lines) and _named([part.func]).isdisjoint(_LOOKING):
            calls.append(part)
        if not isinstance(part, FunctionNode | ast.ClassDef):
            pending += children(part)
    return calls


def _is_elsewhere(node: ast.FunctionDef, line: int) -> bool:
    """Whether a line is not in the function itself: in another function, or in a nested one."""
    inside = [part for part in walk(node) if isinstance(part, FunctionNode) and part is not node]
    return not is_in(node, line) or any(is_in(part, line) for part in inside)


def is_in(node: FunctionNode | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)


def outermost_loops(body: Iterable[ast.AST]) -> Iterator[ast.For | ast.While]:
    """The loops that are neither in another loop nor in a nested definition."""
    for part in body:
        if isinstance(part, ast.For | ast.While):
            yield part
        elif not isinstance(part, FunctionNode | ast.ClassDef):
            yield from outermost_loops(children(part))


def loops_around(loop: ast.For | ast.While, line: int | None) -> list[ast.For | ast.While]:
    """The loops around a line, from this one inwards; empty if the line is not in this loop.  The condition of a `while` is in
    the loop."""
    first = loop.test.lineno if isinstance(loop, ast.While) else loop.body[0].lineno
    last = loop.body[-1].end_lineno or 0
    if line is None or not first <= line <= last:
        return []
    return [loop, *next((chain for inner in outermost_loops(loop.body) if (chain := loops_around(inner, line))), [])]


class Outliner:
    """Outlines bodies of loops of one function, whose syntax tree it changes."""

    def __init__(self, code: CodeType, located: Located, names: Container[str]) -> None:
        """names: the names of the function's globals."""
        node = located.node
        assert isinstance(node, ast.FunctionDef)
        self.code = code
        self.located = located
        self.node = node
        shared = declared_names(node)
        self.shared = shared[0] | shared[1]
        self.local = bound_names(node) - self.shared
        self.consuming = {x for x in _CONSUMING if x not in self.local and x not in code.co_freevars and x not in names}
        self.captured = set(_captured(node.body, self.consuming)) & self.local
        self.assigned_inside = {name for x in walk(node) if isinstance(x, ast.Nonlocal) for name in x.names} & self.local
        # A step of an outlined loop deletes what has no value yet (outlined_loops.py): that is no variable that the function deletes.
        own = {id(x) for part in walk(node) if isinstance(part, PlainIf) for x in walk(part)}
        deleted = {x.id for x in walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Del) and id(x) not in own}
        self.deleted = deleted | {x.name for x in walk(node) if isinstance(x, ast.ExceptHandler) and x.name}

    def piece(self, loop: ast.For | ast.While, name: str, decides: bool = False) -> Piece | None:
        """Outline the body of a loop, which is replaced by a call.  Returns None, and changes nothing, if that is not possible.
        decides: whether the condition of a `while` loop becomes a part of the body (not if the loop has an `else`)."""
        if not decides or not isinstance(loop, ast.While) or loop.orelse:
            return self._piece_of(loop, name)
        test, body = loop.test, loop.body
        ends = ast.If(ast.copy_location(ast.UnaryOp(ast.Not(), test), test), [ast.copy_location(ast.Break(), test)], [])
        loop.body = [ast.copy_location(ends, test), *body]
        loop.test = ast.copy_location(ast.Constant(True), test)
        piece = self._piece_of(loop, name)
        if piece is None:
            loop.test, loop.body = test, body
        return piece

    def _piece_of(self, loop: ast.For | ast.While, name: str) -> Piece | None:
        try:
            given, kept = self.live_names(loop)
            piece, loop.body = self.outlined(loop.body, name, given, kept, loop.lineno)
        except (NoPiece, NotConvertible):
            return None
        return piece

    def block(self, body: Sequence[ast.stmt], name: str) -> tuple[Piece, list[ast.stmt]]:
        """(statements in a row as a piece, the statements that replace them).  Raises NoPiece, and NotConvertible."""
        if any(isinstance(part, ast.Break | ast.Continue) for statement in body for part in own_statements(statement)):
            raise NoPiece
        given, kept, unbound = self._live_names(body, None)
        if unbound:
            raise NoPiece
        return self.outlined(body, name, given, kept, body[0].lineno)

    def outlined(
        self, body: Sequence[ast.stmt], name: str, given: Sequence[str], kept: Sequence[str], line: int
    ) -> tuple[Piece, list[ast.stmt]]:
        """(a body as a piece, the statements that replace it).  given, kept: its live-in and live-out variables.  Raises
        NotConvertible."""
        first = body[0]
        ends = ExitRewriter(ast.Tuple([ast.Name(x, ast.Load()) for x in kept], ast.Load()))
        ended = [*ends.body(copy.deepcopy([*body])), *ends.exit(CONTINUES)]
        code = self._function(given, ended, first)
        statements = self._calls(name, given, kept, ends.ways)
        for statement in statements:
            set_location(statement, first)
        called = ast.Call(ast.Name(_PIECE, ast.Load()), [ast.Name(x, ast.Load()) for x in given], [])
        caller = self._function([_PIECE, *given], [ast.Return(called)], first) if self.code.co_freevars else None
        return Piece(name, code, line, caller), statements

    def _function(self, given: Sequence[str], body: list[ast.stmt], like: ast.stmt) -> CodeType:
        """The code of a function of these arguments, with the name and the free variables of the function.  like: a statement whose
        position new nodes get.  Raises NotConvertible."""
        arguments = ast.arguments([], [ast.arg(x) for x in given], None, [], [], None, [])
        function = ast.FunctionDef(self.node.name, arguments, body, [], None)
        set_location(function, like)
        located = Located(function, self.located.class_name, self.located.flags)
        code = compiled_as(self.code, copy.deepcopy(located))
        declare(code, located)
        return code

    def _calls(self, name: str, given: Sequence[str], kept: Sequence[str], ways: set[int]) -> list[ast.stmt]:
        """The statements that replace the body.  given, kept: its live-in and live-out variables.  ways: how the body may end."""
        call = ast.Call(ast.Name(name, ast.Load()), [ast.Name(x, ast.Load()) for x in given], [])
        result: list[ast.stmt] = [ast.Assign([ast.Tuple([ast.Name(x, ast.Store()) for x in (_HOW, _GIVEN)], ast.Store())], call)]

        def if_ended(way: int, statement: ast.stmt) -> ast.stmt:
            test = ast.Compare(ast.Name(_HOW, ast.Load()), [ast.Eq()], [ast.Constant(way)])
            return ast.If(test, [statement], [])

        if RETURNS in ways:
            result.append(if_ended(RETURNS, ast.Return(ast.Name(_GIVEN, ast.Load()))))
        if kept:
            target = ast.Tuple([ast.Name(x, ast.Store()) for x in kept], ast.Store())
            result.append(ast.Assign([target], ast.Name(_GIVEN, ast.Load())))
        result.append(ast.Delete([ast.Name(_GIVEN, ast.Del())]))  # so that it keeps nothing alive
        if BREAKS in ways:
            result.append(if_ended(BREAKS, ast.Break()))
        return result

    def stable_before(self, statement: ast.stmt) -> set[str]:
        """The variables of the function that have a value where a statement begins, and to which only the function itself assigns."""
        before = _before(self.node, statement, self.local) or frozenset()
        return (self.local & before) - self.captured - self.deleted

    def live_names(self, loop: ast.For | ast.While) -> tuple[list[str], list[str]]:
        """(live-in variables of the body, live-out variables), where all of the former have values.  Raises NoPiece."""
        given, kept, unbound = self.live_names_of_loop(loop)
        if unbound:
            raise NoPiece
        return given, kept

    def is_watched(self, loop: ast.For | ast.While) -> bool:
        """Whether code of the function may go on after an error of a step, and find what that has left in variables."""
        return bool(names_stored_by(loop.body) or isinstance(loop, ast.For)) and _is_watched(self.node.body, loop)

    def live_names_of_loop(
        self, loop: ast.For | ast.While, read_later: set[str] | None = None, passes_errors: bool = False
    ) -> tuple[list[str], list[str], list[str]]:
        """(live-in variables of the body, live-out variables, those of the former that may have no value).  read_later: the names that
        code outside of the body may read after it; by default all that such code names.  passes_errors: whether the body gives its
        live-out variables where it raises, too.  Raises NoPiece."""
        return self._live_names(loop.body, read_later, passes_errors)

    def _live_names(
        self, body: Sequence[ast.stmt], read_later: set[str] | None, passes_errors: bool = False
    ) -> tuple[list[str], list[str], list[str]]:
        """`live_names_of_loop` of any statements in a row."""
        parts = [part for statement in body for part in walk(statement)]
        if any(isinstance(part, ast.Global | ast.Nonlocal | ast.Delete | ast.ClassDef | _TYPE_ALIAS) for part in parts):
            raise NoPiece
        named = _named(parts)
        if not named.isdisjoint(_LOOKING) or not named.isdisjoint(self.assigned_inside):
            raise NoPiece
        stored = names_stored_by(body)
        is_watched = bool(stored) and not passes_errors and _is_watched(self.node.body, body[0])
        if stored & self.shared or stored & self.captured or is_watched:
            raise NoPiece
        if {*_captured(body, self.consuming)} & names_stored_by(self.node.body):  # a nested function would see another variable
            raise NoPiece
        exposed, surely = self.exposed_and_assigned(body)
        elsewhere = self._read_elsewhere(body) if read_later is None else read_later
        kept = sorted(name for name in stored & self.local if name in elsewhere or name in exposed)
        given = sorted(exposed | {name for name in kept if name not in surely})
        before = _before(self.node, body[0], self.local)
        if before is None or not self.deleted.isdisjoint((*given, *kept)):
            raise NoPiece
        if any(not names_stored_by(part.finalbody).isdisjoint(kept) for part in parts if _is_left_through_finally(part)):
            raise NoPiece  # `continue` and `break` become `return values`, which is evaluated before `finally`
        read = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
        if not (read & self.local).issubset(stored | {*given}):
            raise NoPiece  # in the piece it would be a global name
        return given, kept, [name for name in given if name not in before]

    def exposed_and_assigned(self, body: Sequence[ast.stmt]) -> tuple[set[str], frozenset[str]]:
        """(local names that statements in a row may read before they assign to them, those to which they assign wherever they end)."""
        flow = _DefiniteAssignment(self.local)
        end = flow.after(body, frozenset())
        ends = [*flow.exits, *([end] if end is not None else [])]
        return flow.exposed, frozenset.intersection(*ends) if ends else frozenset(names_stored_by(body))

    def _read_elsewhere(self, body: Sequence[ast.stmt]) -> set[str]:
        """The names that code of the function outside of these statements may read."""
        names: set[str] = set()
        inside = {id(statement) for statement in body}
        pending: list[ast.AST] = list(self.node.body)
        while pending:
            part = pending.pop()
            if id(part) in inside:
                continue
            if isinstance(part, COMPREHENSIONS):  # whose own variables are others
                names |= names_read_by(part)
                continue
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load | ast.Del):
                names.add(part.id)
            elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
                names.add(part.target.id)
            pending += children(part)
        return names


def set_location(node: ast.AST, like: ast.stmt | ast.expr) -> None:
    """Give new nodes the position of another one."""
    for part in walk(node):
        if isinstance(part, ast.stmt | ast.expr | ast.arg) and not hasattr(part, "lineno"):
            part.lineno = part.end_lineno = like.lineno
            part.col_offset = part.end_col_offset = like.col_offset


def _named(parts: Collection[ast.AST]) -> set[str]:
    """The names, names of attributes, and names of arguments in these nodes; but not `eval` of `model.eval()`, which has no arguments."""
    methods = [x.func for x in parts if isinstance(x, ast.Call) and not x.args and not x.keywords]
    unlike = {id(x) for x in methods if isinstance(x, ast.Attribute) and x.attr == "eval"}
    fields = [(x, field) for x in parts if id(x) not in unlike for field in ("id", "attr", "arg")]
    return {name for x, field in fields if isinstance(name := getattr(x, field, None), str)}


def _is_left_through_finally(part: ast.AST) -> TypeGuard[ast.Try]:
    """Whether a node is a `try` with a `finally` that has `break` or `continue` in it."""
    return (
        isinstance(part, ast.Try | ast.TryStar)
        and bool(part.finalbody)
        and any(isinstance(x, ast.Break | ast.Continue) for x in walk(part))
    )


def own_statements(statement: ast.AST) -> list[ast.AST]:
    """A statement and the statements in it, but for those of nested definitions, and `break` and `continue` of nested loops."""
    found: list[ast.AST] = []
    waiting: list[tuple[ast.AST, bool]] = [(statement, False)]
    while waiting:
        part, is_in_loop = waiting.pop()
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if not (is_in_loop and isinstance(part, ast.Break | ast.Continue)):
            found.append(part)
        inside = is_in_loop or isinstance(part, ast.For | ast.While)
        waiting += [(child, inside) for child in ast.iter_child_nodes(part)]
    return found


class ExitRewriter(ast.NodeTransformer):
    """Replaces `continue`, `break` and `return` of a body by `return way, values`.  ways: how the body may end."""

    def __init__(self, values: ast.expr, before: Sequence[ast.stmt] = (), ways: Sequence[Any] = (0, 1, 2)) -> None:
        """values: the tuple of the live-out variables.  before: statements that come before it is returned.  ways: what is returned
        for CONTINUES, BREAKS and RETURNS."""
        self.ways: set[int] = set()
        self._values, self._before, self._named = values, before, ways
        self._depth = 0  # of nested loops

    def exit(self, way: int, value: ast.expr | None = None, at: ast.stmt | None = None) -> list[ast.stmt]:
        """`return way, value`; default: the live-out variables.  at: the statement that it replaces."""
        self.ways.add(way)
        before = [] if value else copy.deepcopy([*self._before])
        returned = ast.Return(ast.Tuple([ast.Constant(self._named[way]), value or copy.deepcopy(self._values)], ast.Load()))
        return [statement if at is None else ast.copy_location(statement, at) for statement in (*before, returned)]

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        return self.exit(RETURNS, node.value or ast.Constant(None), node)

    def visit_Break(self, node: ast.Break) -> ast.stmt | list[ast.stmt]:
        return node if self._depth else self.exit(BREAKS, at=node)

    def visit_Continue(self, node: ast.Continue) -> ast.stmt | list[ast.stmt]:
        return node if self._depth else self.exit(CONTINUES, at=node)

    def visit_For(self, node: ast.For) -> ast.stmt:
        return self._loop(node)

    def visit_While(self, node: ast.While) -> ast.stmt:
        return self._loop(node)

    def _loop(self, node: ast.For | ast.While) -> ast.stmt:
        self._depth += 1
        node.body = self.body(node.body)
        self._depth -= 1
        node.orelse = self.body(node.orelse)
        return node

    def body(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        """The statements, with others for those that leave the body."""
        visited = [self.visit(statement) for statement in statements]
        return [x for part in visited for x in (part if isinstance(part, list) else [part])]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node


def _captured(body: Iterable[ast.AST], consuming: Container[str]) -> Iterator[str]:
    """The names in nested functions, classes and generators.  Comprehensions, and generators that a builtin consumes, have
    finished when the expression has been evaluated, so they do not count.  consuming: names of such builtins."""
    pending = list(body)
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in consuming and len(part.args) == 1:
            only = part.args[0]
            if isinstance(only, ast.GeneratorExp):
                pending += [*children(only), *part.keywords]
                continue
        if isinstance(part, FunctionNode):
            yield from _free_names(part)
            continue
        if isinstance(part, ast.ClassDef | ast.GeneratorExp):
            yield from (x.id for x in walk(part) if isinstance(x, ast.Name))
        pending += children(part)


def _free_names(function: FunctionNode) -> set[str]:
    """The names in a function, and in those in it, but for its own variables."""
    own = bound_names(function) - set().union(*declared_names(function))
    used: set[str] = set()
    pending = list(children(function))
    while pending:
        part = pending.pop()
        if isinstance(part, FunctionNode):
            used |= _free_names(part)
            continue
        if isinstance(part, ast.Name):
            used.add(part.id)
        pending += children(part)
    return used - own


def _before(node: ast.FunctionDef, statement: ast.stmt, local: set[str]) -> frozenset[str] | None:
    """The names that are definitely assigned where a statement begins for the first time; None if it is not reached."""
    arguments = [x.arg for x in walk(node.args) if isinstance(x, ast.arg)]
    flow = _DefiniteAssignment(local, statement)
    flow.after(node.body, frozenset(arguments))
    return flow.at_sought


class _DefiniteAssignment:
    """The analysis of definite assignment: walks statements in order, with the set of names that are assigned on all paths
    (`assigned`).

    exposed: local names that may be read before they are assigned.  exits: the set at each `continue` and `break` that leaves the
    statements, before `finally` blocks and ends of handlers on the way.  at_sought: the set where the statement `sought` begins for
    the first time."""

    def __init__(self, local: set[str], sought: ast.AST | None = None) -> None:
        self.exposed: set[str] = set()
        self.exits: list[frozenset[str]] = []
        self.at_sought: frozenset[str] | None = None
        self._local = local
        self._sought = sought
        self._depth = 0
        self._breaks: list[list[frozenset[str]]] = []  # the sets at the `break` statements of each loop around

    def after(self, body: Sequence[ast.stmt], assigned: frozenset[str]) -> frozenset[str] | None:
        """The set after statements; None if their end is not reached.  assigned: the set before them."""
        now: frozenset[str] | None = assigned
        for statement in body:
            if now is None:
                break
            now = self._statement(statement, now)
        return now

    def _reads(self, parts: Iterable[ast.AST | None], assigned: frozenset[str]) -> frozenset[str]:
        """Note names that expressions may read before they are assigned.  Returns the set after the expressions."""
        for part in parts:
            if part is not None:
                self.exposed |= (names_read_by(part) & self._local) - assigned
        return assigned.union(*[_assigned_in(part) for part in parts if part is not None])

    def _target(self, target: ast.expr, assigned: frozenset[str]) -> frozenset[str]:
        """The set after an assignment to `target`."""
        if isinstance(target, ast.Name):
            return assigned | {target.id}
        if isinstance(target, ast.Starred):
            return self._target(target.value, assigned)
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                assigned = self._target(part, assigned)
            return assigned
        return self._reads([target], assigned)

    def _statement(self, node: ast.stmt, assigned: frozenset[str]) -> frozenset[str] | None:
        if node is self._sought and self.at_sought is None:
            self.at_sought = assigned
        match node:
            case ast.Assign(targets=targets, value=value):
                assigned = self._reads([value], assigned)
                for target in targets:
                    assigned = self._target(target, assigned)
                return assigned
            case ast.AnnAssign(target=target, value=value):
                assigned = self._reads([value], assigned)
                if value is None:
                    return assigned if isinstance(target, ast.Name) else self._reads([target], assigned)
                return self._target(target, assigned)
            case ast.AugAssign(target=target, value=value):
                if isinstance(target, ast.Name) and target.id in self._local and target.id not in assigned:
                    self.exposed.add(target.id)
                return self._target(target, self._reads([value], assigned))
            case ast.Delete(targets=targets):
                return self._reads(targets, assigned) - {x.id for x in targets if isinstance(x, ast.Name)}
            case ast.If(test=test, body=body, orelse=orelse):
                assigned = self._reads([test], assigned)
                return _either([self.after(body, assigned), self.after(orelse, assigned)])
            case ast.For() | ast.While():
                return self._loop(node, assigned)
            case ast.With(items=items, body=body):
                begun = assigned
                for item in items:
                    begun = self._reads([item.context_expr], begun)
                    begun = begun if item.optional_vars is None else self._target(item.optional_vars, begun)
                ended = self.after(body, begun)
                return ended if all(map(_passes_on, items)) else _either([ended, assigned])
            case ast.Try() | ast.TryStar():
                return self._try(node, assigned)
            case ast.Match():
                return self._match(node, assigned)
            case ast.Return(value=value):
                self._reads([value], assigned)
                return None
            case ast.Raise(exc=error, cause=cause):
                self._reads([error, cause], assigned)
                return None
            case ast.Break() | ast.Continue():
                if not self._depth:
                    self.exits.append(assigned)
                elif isinstance(node, ast.Break):
                    self._breaks[-1].append(assigned)
                return None
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                return assigned | {(x.asname or x.name).partition(".")[0] for x in names}
            case ast.FunctionDef(name=name):
                self._reads([node], assigned)
                return assigned | {name}
            case ast.Expr(value=value):
                return self._reads([value], assigned)
            case _:  # other statements assign nothing definitely
                self._reads([node], assigned)
                return assigned

    def _loop(self, node: ast.For | ast.While, assigned: frozenset[str]) -> frozenset[str] | None:
        assigned = self._reads([node.iter if isinstance(node, ast.For) else node.test], assigned)
        begun = self._target(node.target, assigned) if isinstance(node, ast.For) else assigned
        self._depth += 1
        self._breaks.append([])
        self.after(node.body, begun)
        self._depth -= 1
        breaks = self._breaks.pop()
        self.after(node.orelse, assigned)
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
            return _either(breaks)  # nothing else ends the loop
        return assigned  # the loop may have had no step

    def _try(self, node: ast.Try | ast.TryStar, assigned: frozenset[str]) -> frozenset[str] | None:
        tried = self.after(node.body, assigned)
        ends = [None if tried is None else self.after(node.orelse, tried)]
        for handler in node.handlers:
            self._reads([handler.type], assigned)
            named = frozenset([handler.name]) if handler.name else frozenset()
            ended = self.after(handler.body, assigned | named)
            ends.append(None if ended is None else ended - named)
        ended = _either(ends)
        final = self.after(node.finalbody, assigned)
        return None if ended is None or final is None else ended | (final - assigned)

    def _match(self, node: ast.Match, assigned: frozenset[str]) -> frozenset[str] | None:
        assigned = self._reads([node.subject], assigned)
        ends: list[frozenset[str] | None] = []
        for case in node.cases:
            begun = assigned | names_stored_by([case.pattern])
            self._reads([case.pattern, case.guard], begun)
            ends.append(self.after(case.body, begun))
        fits_all = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None
        return _either(ends if fits_all else [*ends, assigned])


def _assigned_in(node: ast.AST) -> frozenset[str]:
    """The names that an expression assigns on all paths."""
    match node:
        case ast.NamedExpr(target=target, value=value):
            return _assigned_in(value) | {target.id}
        case ast.BoolOp(values=[first, *_]) | ast.IfExp(test=first):
            return _assigned_in(first)
        case ast.Compare(left=left, comparators=[first, *_]):
            return _assigned_in(left) | _assigned_in(first)
        case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp() | ast.stmt():
            return frozenset()
    return frozenset().union(*map(_assigned_in, children(node)))


def _is_watched(body: Iterable[ast.AST], statement: ast.AST, watched: bool = False) -> bool:
    """Whether the function may continue after an exception has left a statement: it would then read variables of an incomplete
    body."""
    for part in body:
        if part is statement:
            return watched
        catches = isinstance(part, ast.Try | ast.TryStar) or (isinstance(part, ast.With) and not all(map(_passes_on, part.items)))
        if _is_watched(children(part), statement, watched or catches):
            return True
    return False


def _either(ends: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    """The set where several paths join; None for a path that does not reach the end."""
    reached = [end for end in ends if end is not None]
    return frozenset.intersection(*reached) if reached else None


def _passes_on(item: ast.withitem) -> bool:
    """Whether a context manager, by its name, swallows no exceptions."""
    manager = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
    name = manager.attr if isinstance(manager, ast.Attribute) else manager.id if isinstance(manager, ast.Name) else ""
    return name in _PASSING
