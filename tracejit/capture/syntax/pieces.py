"""A function in pieces: the body of a loop becomes a function of its own, which can be compiled by itself.

    for t in range(n):                      for t in range(n):
        if u[t] < ratio(x):                     how, x = __piece_1__(t, u, x)      # the values of what the body reads
            x = propose(x)              ->      if how == 1:
            if x.isnan().any():                     break
                break

A body that goes one of two ways in each step goes one of 2**n in n of them.  As a function it has two paths.

They do the same if the body's variables are the function's own (no nested function shares them), each of them has a value where the piece
takes it, and what the piece gives back is what may be read later: both are decided from the syntax alone, by which names surely have been
assigned (as in Aho, Lam, Sethi and Ullman, "Compilers", 2nd ed., section 9.2), and a body is left as it is where that does not show.
`continue`, `break` and `return` of the loop are told by a number in front of the values.  The condition of a `while` loop that values end
becomes part of its body: `while True: if not condition: break`.

These bodies stay as they are: in a generator, in `try`, or in a `with` that may swallow exceptions, since code after an exception finds the
variables as they were in the middle of a step; with `global`, `nonlocal`, `del`, `locals()`, `eval` or `super()` in them; with a `finally`
that assigns to what is read later.

What is left to tell them apart: frames (one more of them, and other `f_locals`), and objects that only a step holds, which go at its end.
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
from tracejit.capture.syntax.scopes import LOOKING_AT_VARIABLES, bound_names, declared_names, names_stored_by
from tracejit.capture.syntax.tree_walk import children, walk

__all__ = ["OutlinedFunction", "Piece", "has_loop_around", "outline_loop_bodies"]

_GOES_ON, _BREAKS, _RETURNS = range(3)
_CALLS: Final = "__calls__"
_HOW: Final = "__how__"
_GIVEN: Final = "__given__"
_LOOKING: Final = LOOKING_AT_VARIABLES | {"super", "__class__", "_getframe", "currentframe", "inspect", "traceback", "stacklevel"}
"""Names of what looks at the variables or at the frames of who calls it, or (`super`) at the function itself."""
_OF_VARIABLES: Final = frozenset({"locals", "eval", "exec", "_getframe"})
"""Those that may look at all variables of the function, wherever in it they are called."""
_CONSUMING: Final = frozenset({"all", "any", "dict", "list", "max", "min", "set", "sorted", "sum", "tuple"})
"""Builtins, if their names are not bound otherwise, that are through with a generator when they return."""
_PASSING: Final = frozenset(
    {"autocast", "enable_grad", "errstate", "inference_mode", "no_grad", "nullcontext", "set_grad_enabled"}
)
"""Context managers that swallow no exception."""
_TYPE_ALIAS: Any = getattr(ast, "TypeAlias", ast.ClassDef)  # `type A = x`, which is evaluated later; from Python 3.12 on
_SUSPENDING: Final = (ast.Yield, ast.YieldFrom, ast.Await)


@dataclass(frozen=True, slots=True)
class Piece:
    """The body of a loop as a function.  name: the free variable of the function around it that is to hold it; line: of the loop."""

    name: str
    code: CodeType
    line: int


class _NoPiece(Exception):
    """A body stays as it is."""


@dataclass(frozen=True, slots=True)
class OutlinedFunction:
    """A function in pieces: its code, with free variables for them after its own, and the pieces.  calls: the free variable, if there is
    one, that is given what some calls call, and answers what they are to call instead."""

    code: CodeType
    pieces: list[Piece]
    calls: str | None


def has_loop_around(code: CodeType, line: int, names: dict[str, Any] | None = None) -> bool:
    """Whether a line of a function is in a loop, one in no nested function.  names: the globals of the function.  Raises NotConvertible as
    `locate` does."""
    node = locate(code, names).node
    return isinstance(node, ast.FunctionDef) and any(_around(loop, line) for loop in _outermost(node.body))


def outline_loop_bodies(
    code: CodeType,
    lines: Sequence[int | None],
    names: dict[str, Any] | None = None,
    calls: Collection[int] = (),
) -> OutlinedFunction | None:
    """A function in pieces.  lines: in which something differs from call to call; the innermost loops around them are taken, or all loops
    that are in no other one where one of them is None, or in another function.  names: the globals of the function.  calls: lines
    outside of these loops whose calls may be of functions that are in pieces, too.  None where all bodies have to stay as they are.  Raises
    NotConvertible as `locate` does."""
    located = locate(code, names)
    node = located.node
    if not isinstance(node, ast.FunctionDef) or any(isinstance(part, _SUSPENDING) for part in walk(node)):
        return None
    if not _named(walk(node)).isdisjoint(_OF_VARIABLES):
        return None
    loops = list(_outermost(node.body))
    chosen = [chain[-1] for line in lines for loop in loops if (chain := _around(loop, line))]
    if any(line is None or _is_elsewhere(node, line) for line in lines):
        chosen += [loop for loop in loops if not any(x is loop for x in chosen)]
    inside = [x for loop in chosen for statement in loop.body for x in walk(statement)]
    cutter = _Outliner(code, located, names or ())
    pieces: list[Piece] = []
    for k, loop in enumerate(chosen):
        if not any(x is loop for x in (*chosen[:k], *inside)):
            decides = isinstance(loop, ast.While) and any(line is not None and _is_in(loop.test, line) for line in lines)
            piece = cutter.piece(loop, f"__piece_{len(pieces) + 1}__", decides)
            pieces += [] if piece is None else [piece]
    routed = [x for x in _calls_at(node, calls) if not any(x is y for y in inside)]
    if not pieces and not routed:
        return None
    for call in routed:
        call.func = ast.copy_location(ast.Call(ast.copy_location(ast.Name(_CALLS, ast.Load()), call), [call.func], []), call)
    node.lineno = code.co_firstlineno  # of the first decorator: lines of code are counted from there
    free = [*[piece.name for piece in pieces], *([_CALLS] if routed else [])]
    return OutlinedFunction(compiled_as(code, located, free), pieces, _CALLS if routed else None)


def _calls_at(node: ast.FunctionDef, lines: Collection[int]) -> list[ast.Call]:
    """The calls of a function that stand at some lines, but for those in nested functions, and of what looks at who calls it."""
    found: list[ast.Call] = []
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Call) and any(_is_in(part, line) for line in lines) and _named([part.func]).isdisjoint(_LOOKING):
            found.append(part)
        if not isinstance(part, FunctionNode | ast.ClassDef):
            waiting += children(part)
    return found


def _is_elsewhere(node: ast.FunctionDef, line: int) -> bool:
    """Whether a line is in another function, which may be one inside."""
    inside = [part for part in walk(node) if isinstance(part, FunctionNode) and part is not node]
    return not _is_in(node, line) or any(_is_in(part, line) for part in inside)


def _is_in(node: FunctionNode | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or 0)


def _outermost(body: Iterable[ast.AST]) -> Iterator[ast.For | ast.While]:
    """The loops that are in no other one, nor in a nested definition."""
    for part in body:
        if isinstance(part, ast.For | ast.While):
            yield part
        elif not isinstance(part, FunctionNode | ast.ClassDef):
            yield from _outermost(children(part))


def _around(loop: ast.For | ast.While, line: int | None) -> list[ast.For | ast.While]:
    """The loops around a line, from this one inwards; empty where it is not around it.  Each step asks the condition of a `while`."""
    first = loop.test.lineno if isinstance(loop, ast.While) else loop.body[0].lineno
    last = loop.body[-1].end_lineno or 0
    if line is None or not first <= line <= last:
        return []
    return [loop, *next((chain for inner in _outermost(loop.body) if (chain := _around(inner, line))), [])]


class _Outliner:
    """Makes pieces of the loops of one function, which it changes."""

    def __init__(self, code: CodeType, located: Located, names: Container[str]) -> None:
        """names: of what is global to the function."""
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
        self.assigned_inside = {name for x in walk(node) if isinstance(x, ast.Nonlocal) for name in x.names}
        deleted = {x.id for x in walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Del)}
        self.deleted = deleted | {x.name for x in walk(node) if isinstance(x, ast.ExceptHandler) and x.name}

    def piece(self, loop: ast.For | ast.While, name: str, decides: bool = False) -> Piece | None:
        """The body of a loop, in whose place there is a call of it; None, and nothing has changed, where it has to stay.  decides: the
        condition of a `while` is part of the body, if nothing is done where it ends the loop."""
        if not decides or not isinstance(loop, ast.While) or loop.orelse:
            return self._piece_of(loop, name)
        test, body = loop.test, loop.body
        ends = ast.If(ast.copy_location(ast.UnaryOp(ast.Not(), test), test), [ast.copy_location(ast.Break(), test)], [])
        loop.body = [ast.copy_location(ends, test), *body]
        loop.test = ast.copy_location(ast.Constant(True), test)
        made = self._piece_of(loop, name)
        if made is None:
            loop.test, loop.body = test, body
        return made

    def _piece_of(self, loop: ast.For | ast.While, name: str) -> Piece | None:
        body = loop.body
        try:
            given, kept = self._names(loop)
        except _NoPiece:
            return None
        first = body[0]
        ends = _ExitRewriter(ast.Tuple([ast.Name(x, ast.Load()) for x in kept], ast.Load()))
        ended = [ends.visit(copy.deepcopy(statement)) for statement in body]
        ended.append(ends.answer(_GOES_ON))
        arguments = ast.arguments([], [ast.arg(x) for x in given], None, [], [], None, [])
        function = ast.FunctionDef(self.node.name, arguments, ended, [], None)
        _placed(function, first)
        located = Located(function, self.located.class_name, self.located.flags)
        try:
            code = compiled_as(self.code, copy.deepcopy(located))
        except NotConvertible:
            return None
        declare(code, located)
        loop.body = self._calls(name, given, kept, ends.ways)
        for statement in loop.body:
            _placed(statement, first)
        return Piece(name, code, loop.lineno)

    def _calls(self, name: str, given: Sequence[str], kept: Sequence[str], ways: set[int]) -> list[ast.stmt]:
        call = ast.Call(ast.Name(name, ast.Load()), [ast.Name(x, ast.Load()) for x in given], [])
        made: list[ast.stmt] = [ast.Assign([ast.Tuple([ast.Name(x, ast.Store()) for x in (_HOW, _GIVEN)], ast.Store())], call)]

        def where(answer: int, statement: ast.stmt) -> ast.stmt:
            test = ast.Compare(ast.Name(_HOW, ast.Load()), [ast.Eq()], [ast.Constant(answer)])
            return ast.If(test, [statement], [])

        if _RETURNS in ways:
            made.append(where(_RETURNS, ast.Return(ast.Name(_GIVEN, ast.Load()))))
        if kept:
            target = ast.Tuple([ast.Name(x, ast.Store()) for x in kept], ast.Store())
            made.append(ast.Assign([target], ast.Name(_GIVEN, ast.Load())))
        made.append(ast.Delete([ast.Name(_GIVEN, ast.Del())]))  # nothing lives longer than it would
        if _BREAKS in ways:
            made.append(where(_BREAKS, ast.Break()))
        return made

    def _names(self, loop: ast.For | ast.While) -> tuple[list[str], list[str]]:
        """Of the function's variables those that the body is given, and those that it gives back.  Raises _NoPiece."""
        body = loop.body
        parts = [part for statement in body for part in walk(statement)]
        if any(isinstance(part, ast.Global | ast.Nonlocal | ast.Delete | ast.ClassDef | _TYPE_ALIAS) for part in parts):
            raise _NoPiece
        named = _named(parts)
        if not named.isdisjoint(_LOOKING) or not named.isdisjoint(self.assigned_inside):
            raise _NoPiece
        stored = names_stored_by(body)
        if stored & self.shared or stored & self.captured or (stored and _is_watched(self.node.body, loop)):
            raise _NoPiece
        if {*_captured(body, self.consuming)} & names_stored_by(self.node.body):  # a nested function would see another variable
            raise _NoPiece
        flow = _DefiniteAssignment(self.local)
        end = flow.after(body, frozenset())
        ends = [*flow.exits, *([end] if end is not None else [])]
        surely = frozenset.intersection(*ends) if ends else frozenset(stored)
        elsewhere = self._read_elsewhere(loop)
        kept = sorted(name for name in stored & self.local if name in elsewhere or name in flow.exposed)
        given = sorted(flow.exposed | {name for name in kept if name not in surely})
        before = _before(self.node, loop, self.local)
        if before is None or not before.issuperset(given) or not self.deleted.isdisjoint((*given, *kept)):
            raise _NoPiece
        if any(not names_stored_by(part.finalbody).isdisjoint(kept) for part in parts if _is_left_through_finally(part)):
            raise _NoPiece  # what `continue` and `break` give is evaluated before
        read = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
        if not (read & self.local).issubset(stored | {*given}):
            raise _NoPiece  # it would be a global name there
        return given, kept

    def _read_elsewhere(self, loop: ast.For | ast.While) -> set[str]:
        """The names that code of the function which is not in the body of the loop may read."""
        found: set[str] = set()
        waiting: list[ast.AST] = list(self.node.body)
        while waiting:
            part = waiting.pop()
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load | ast.Del):
                found.add(part.id)
            elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
                found.add(part.target.id)
            waiting += [x for x in children(part) if part is not loop or x not in loop.body]
        return found


def _placed(node: ast.AST, like: ast.stmt) -> None:
    """Have what has been made stand at the first line of the body."""
    for part in walk(node):
        if isinstance(part, ast.stmt | ast.expr | ast.arg) and not hasattr(part, "lineno"):
            part.lineno = part.end_lineno = like.lineno
            part.col_offset = part.end_col_offset = like.col_offset


def _named(parts: Iterable[ast.AST]) -> set[str]:
    """Names, and names of attributes and of keyword arguments."""
    return {found for x in parts for field in ("id", "attr", "arg") if isinstance(found := getattr(x, field, None), str)}


def _is_left_through_finally(part: ast.AST) -> TypeGuard[ast.Try]:
    """Whether it is a `try` with a `finally`, and there are `break` or `continue` in it."""
    return (
        isinstance(part, ast.Try | ast.TryStar)
        and bool(part.finalbody)
        and any(isinstance(x, ast.Break | ast.Continue) for x in walk(part))
    )


class _ExitRewriter(ast.NodeTransformer):
    """Has a body return where it would end a step, its loop, or the function.  ways: in which it may do so."""

    def __init__(self, values: ast.expr) -> None:
        self.ways: set[int] = set()
        self._values = values
        self._depth = 0  # of loops inside

    def answer(self, way: int, value: ast.expr | None = None) -> ast.Return:
        """Returns the way, with what the body gives back if there is no other value."""
        self.ways.add(way)
        return ast.Return(ast.Tuple([ast.Constant(way), value or copy.deepcopy(self._values)], ast.Load()))

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        return ast.copy_location(self.answer(_RETURNS, node.value or ast.Constant(None)), node)

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        return node if self._depth else ast.copy_location(self.answer(_BREAKS), node)

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        return node if self._depth else ast.copy_location(self.answer(_GOES_ON), node)

    def visit_For(self, node: ast.For) -> ast.stmt:
        return self._loop(node)

    def visit_While(self, node: ast.While) -> ast.stmt:
        return self._loop(node)

    def _loop(self, node: ast.For | ast.While) -> ast.stmt:
        self._depth += 1
        node.body = [self.visit(part) for part in node.body]
        self._depth -= 1
        node.orelse = [self.visit(part) for part in node.orelse]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node


def _captured(body: Iterable[ast.AST], consuming: Container[str]) -> Iterator[str]:
    """Names that nested functions, classes and generators name: comprehensions are done where they stand, and so are generators that a
    builtin consumes.  consuming: names of such."""
    waiting = list(body)
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in consuming and len(part.args) == 1:
            only = part.args[0]
            if isinstance(only, ast.GeneratorExp):
                waiting += [*children(only), *part.keywords]
                continue
        if isinstance(part, FunctionNode | ast.ClassDef | ast.GeneratorExp):
            yield from (x.id for x in walk(part) if isinstance(x, ast.Name))
        waiting += children(part)


def _before(node: ast.FunctionDef, loop: ast.For | ast.While, local: set[str]) -> frozenset[str] | None:
    """The names that surely have a value where the body of the loop begins; None where it does not."""
    arguments = [x.arg for x in walk(node.args) if isinstance(x, ast.arg)]
    flow = _DefiniteAssignment(local, loop)
    flow.after(node.body, frozenset(arguments))
    return flow.found


class _DefiniteAssignment:
    """Goes through statements, with the names that surely have been assigned.

    exposed: local names that may be read before; exits: what is assigned where `continue` and `break` leave the statements, before
    `finally` and the end of handlers on their way out; found: what is assigned where the body of `sought` begins, for the first time."""

    def __init__(self, local: set[str], sought: ast.AST | None = None) -> None:
        self.exposed: set[str] = set()
        self.exits: list[frozenset[str]] = []
        self.found: frozenset[str] | None = None
        self._local = local
        self._sought = sought
        self._depth = 0

    def after(self, body: Sequence[ast.stmt], known: frozenset[str]) -> frozenset[str] | None:
        """What is assigned at their end; None where that is not reached."""
        now: frozenset[str] | None = known
        for statement in body:
            if now is None:
                break
            now = self._statement(statement, now)
        return now

    def _reads(self, parts: Iterable[ast.AST | None], known: frozenset[str]) -> frozenset[str]:
        """Note which names expressions may read before they have a value.  What is assigned after them."""
        for part in parts:
            for x in walk(part) if part is not None else ():
                if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load) and x.id in self._local and x.id not in known:
                    self.exposed.add(x.id)
        return known.union(*[_assigned_in(part) for part in parts if part is not None])

    def _target(self, target: ast.expr, known: frozenset[str]) -> frozenset[str]:
        """After an assignment."""
        if isinstance(target, ast.Name):
            return known | {target.id}
        if isinstance(target, ast.Starred):
            return self._target(target.value, known)
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                known = self._target(part, known)
            return known
        return self._reads([target], known)

    def _statement(self, node: ast.stmt, known: frozenset[str]) -> frozenset[str] | None:
        match node:
            case ast.Assign(targets=targets, value=value):
                known = self._reads([value], known)
                for target in targets:
                    known = self._target(target, known)
                return known
            case ast.AnnAssign(target=target, value=value):
                known = self._reads([value], known)
                if value is None:
                    return known if isinstance(target, ast.Name) else self._reads([target], known)
                return self._target(target, known)
            case ast.AugAssign(target=target, value=value):
                if isinstance(target, ast.Name) and target.id in self._local and target.id not in known:
                    self.exposed.add(target.id)
                return self._target(target, self._reads([value], known))
            case ast.If(test=test, body=body, orelse=orelse):
                known = self._reads([test], known)
                return _either([self.after(body, known), self.after(orelse, known)])
            case ast.For() | ast.While():
                return self._loop(node, known)
            case ast.With(items=items, body=body):
                begun = known
                for item in items:
                    begun = self._reads([item.context_expr], begun)
                    begun = begun if item.optional_vars is None else self._target(item.optional_vars, begun)
                ended = self.after(body, begun)
                return ended if all(map(_passes_on, items)) else _either([ended, known])
            case ast.Try() | ast.TryStar():
                return self._try(node, known)
            case ast.Match():
                return self._match(node, known)
            case ast.Return(value=value):
                self._reads([value], known)
                return None
            case ast.Raise(exc=error, cause=cause):
                self._reads([error, cause], known)
                return None
            case ast.Break() | ast.Continue():
                if not self._depth:
                    self.exits.append(known)
                return None
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                return known | {(x.asname or x.name).partition(".")[0] for x in names}
            case ast.FunctionDef(name=name):
                self._reads([node], known)
                return known | {name}
            case ast.Expr(value=value):
                return self._reads([value], known)
            case _:  # anything else assigns nothing for sure
                self._reads([node], known)
                return known

    def _loop(self, node: ast.For | ast.While, known: frozenset[str]) -> frozenset[str]:
        known = self._reads([node.iter if isinstance(node, ast.For) else node.test], known)
        begun = self._target(node.target, known) if isinstance(node, ast.For) else known
        if node is self._sought:
            self.found = begun
        self._depth += 1
        self.after(node.body, begun)
        self._depth -= 1
        self.after(node.orelse, known)
        return known  # there may have been no step

    def _try(self, node: ast.Try | ast.TryStar, known: frozenset[str]) -> frozenset[str] | None:
        tried = self.after(node.body, known)
        ends = [None if tried is None else self.after(node.orelse, tried)]
        for handler in node.handlers:
            self._reads([handler.type], known)
            named = frozenset([handler.name]) if handler.name else frozenset()
            ended = self.after(handler.body, known | named)
            ends.append(None if ended is None else ended - named)
        ended = _either(ends)
        final = self.after(node.finalbody, known)
        return None if ended is None or final is None else ended | (final - known)

    def _match(self, node: ast.Match, known: frozenset[str]) -> frozenset[str] | None:
        known = self._reads([node.subject], known)
        ends: list[frozenset[str] | None] = []
        for case in node.cases:
            begun = known | names_stored_by([case.pattern])
            self._reads([case.pattern, case.guard], begun)
            ends.append(self.after(case.body, begun))
        fits_all = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None
        return _either(ends if fits_all else [*ends, known])


def _assigned_in(node: ast.AST) -> frozenset[str]:
    """The names that an expression surely assigns to."""
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


def _is_watched(body: Iterable[ast.AST], loop: ast.AST, watched: bool = False) -> bool:
    """Whether the function goes on where an exception has left the loop: it finds the variables as that step had left them."""
    for part in body:
        if part is loop:
            return watched
        catches = isinstance(part, ast.Try | ast.TryStar) or (isinstance(part, ast.With) and not all(map(_passes_on, part.items)))
        if _is_watched(children(part), loop, watched or catches):
            return True
    return False


def _either(ends: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    """What is assigned after one of several ways."""
    reached = [end for end in ends if end is not None]
    return frozenset.intersection(*reached) if reached else None


def _passes_on(item: ast.withitem) -> bool:
    """Whether a context manager, by its name, swallows no exception."""
    given = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
    return (given.attr if isinstance(given, ast.Attribute) else given.id if isinstance(given, ast.Name) else "") in _PASSING
