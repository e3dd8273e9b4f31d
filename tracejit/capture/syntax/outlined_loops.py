"""Outlines loops whose steps take different paths: the body becomes a function, the *step*, and the loop a call of an entry point
that runs the steps (capture/branching_loops.py).

    for t in range(n):                      way, values = outlined_loop(0, "range", (range, n), (u, x))
        if u[t] < ratio(x):                 if way == NO_STEP: pass
            x = propose(x)        ->        else: x, = values
            if x.isnan().any():
                break                       # step 0
                                            def step(element, u, x):
                                                t = element
                                                if u[t] < ratio(x):
                                                    x = propose(x)
                                                    if x.isnan().any(): return BREAKS, (x,)
                                                return CONTINUES, (x,)

The loops are those around given lines, from the outermost one inwards: a step is outlined in its turn when it is called.  The
conditions are those of pieces.py, whose analysis of live variables this one uses.  The condition of a `while` loop becomes a part
of its body; where it does not hold, and the loop has an `else`, the step ends in another way than by `break`.  A list that steps
append to is no variable of the step (grown_lists.py): the step returns a tuple of the items that it appends, and all items are put into
the list after the loop.  Nor is one whose items they store to (stored_lists.py).

A step that branches several times has a path for each combination of outcomes.  So it is compiled as a sequence of *parts*, too
(step_parts.py): functions that run one after another.

A step of a loop in a `try` returns the error that it raises, and what its variables hold then, UNBOUND for those that it has not
assigned to.  The variables get these values where the loop was, and the error is raised there again.

Not outlined: what pieces.py refuses, but for loops in a `try`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from tracejit.capture.syntax.convert import compiled_as, instrument, original_of
from tracejit.capture.syntax.grown_lists import GrownList, assigned, grown_lists, without_lists
from tracejit.capture.syntax.locate import Located, NotConvertible, declare, locate
from tracejit.capture.syntax.loops import (
    EXTENDED_LIST,
    OUTLINED,
    OUTLINED_LOOP,
    UNBOUND,
    PlainIf,
    PlainTry,
)
from tracejit.capture.syntax.pieces import (
    BREAKS,
    CONTINUES,
    RETURNS,
    ExitRewriter,
    NoPiece,
    Outliner,
    loops_around,
    outermost_loops,
    own_statements,
    set_location,
)
from tracejit.capture.syntax.scopes import bound_names, names_stored_by
from tracejit.capture.syntax.step_parts import divided, with_element
from tracejit.capture.syntax.stored_lists import LOOKING, StoredList, stored_lists
from tracejit.capture.syntax.tree_walk import walk
from tracejit.core.weak_table import WeakTable

__all__ = [
    "ENDS", "NO_STEP", "PROCEEDS", "RAISES", "STRICT_ZIP", "WAYS", "WHILE", "OutlinedFunction", "OutlinedLoop", "StepPart",
    "convert_outlined", "function_of_step", "is_step", "may_be_outlined",
]  # fmt: skip

ENDS, RAISES = 3, 4
"""How a step has ended where the condition of a `while` loop does not hold, and where it has raised an error; and see pieces.py."""
NO_STEP, PROCEEDS = 5, 6
"""How a loop has ended that had no step; and how a part of a step has ended that its next part follows."""
WAYS: Final = ("continues", "breaks", "returns", "ends", "raises", "no step", "proceeds")
"""What a step returns for the ways in which it ends: texts, which are part of a path, and no numbers that it computes."""
WHILE: Final = "while"
"""The pattern of a `while` loop, which has no header."""
STRICT_ZIP: Final = "strict zip"
"""The name of `zip(..., strict=True)` in patterns."""
_PATTERNS: Final = {"range": (1, 2, 3), "enumerate": (1, 2), "zip": tuple(range(1, 9)), "reversed": (1,)}
"""The builtins whose calls in headers have a pattern (capture/step_elements.py), and how many arguments these may have."""
_ELEMENT: Final = f"{OUTLINED}element__"
_WAY: Final = f"{OUTLINED}way__"
_VALUES: Final = f"{OUTLINED}values__"
_ERROR: Final = f"{OUTLINED}error__"
_CONTENTS: Final = ("item", "tolist", "detach")
"""Methods of a tensor without arguments that do not depend on whether it requires grad."""
_TO_NUMBER: Final = ("float", "int", "bool")
_SUSPENDING: Final = (ast.Yield, ast.YieldFrom, ast.Await)


@dataclass(frozen=True, slots=True)
class StepPart:
    """A step, or a part of it.

    code: a function of the element (if the loop has elements) and of the variables `live_ins`; it returns what OutlinedLoop says, with
    `live_outs`, and PROCEEDS where the next part follows."""

    code: CodeType
    live_ins: tuple[str, ...]
    live_outs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OutlinedLoop:
    """A loop and its step.

    code: of the step, a function of the element (if the loop has elements) and of the variables `live_ins`; it returns (one of WAYS,
    (values of `live_outs`, a tuple of items for each list)), with the error behind these if it has raised one.  items: number of lists
    that steps append to.  measured: of which of these steps ask for the length.  read_after: the variables among `live_outs` that are
    read after the loop, too.  only_in_place: those that steps only change by `+=` and the like: a tensor stays the same object.
    has_elements: whether it is a `for` loop.  is_watched: whether it is in a `try`, or in a `with` that may
    swallow errors.  branches: whether it is around one of the lines; other loops in steps are outlined in case that values decide how
    many steps they have.  line: of its header.  parts: those of the step, if it branches several times.  passed: the live-in variables of
    these that are none of the step: parts assign to them before others read them.  assigned_first: those of `live_outs` that no step
    reads before it assigns to them.  detached: those among these of which nothing but the contents is read after the loop:
    `loss.item()`.  tests_identity, tests_parts: whether the function may tell one tuple from an equal one, by `is` or `id()`;
    and one that is an item of something, by `pair[0] is x`."""

    code: CodeType
    live_ins: tuple[str, ...]
    live_outs: tuple[str, ...]
    items: int
    measured: frozenset[int]
    read_after: frozenset[str]
    only_in_place: frozenset[str]
    has_elements: bool
    is_watched: bool
    branches: bool
    line: int
    parts: tuple[StepPart, ...] = ()
    passed: frozenset[str] = frozenset()
    assigned_first: frozenset[str] = frozenset()
    detached: frozenset[str] = frozenset()
    tests_identity: bool = False
    tests_parts: bool = False


@dataclass(frozen=True, slots=True)
class OutlinedFunction:
    """Instrumented code of a function, and the loops whose steps it calls by their numbers."""

    code: CodeType
    loops: tuple[OutlinedLoop, ...]


# Original code -> by lines, and the builtin functions that the module has globals instead of.
_outlined: WeakTable[dict[tuple[frozenset[int], frozenset[str]], OutlinedFunction | None]] = WeakTable()

_tests_of_identity: WeakTable[tuple[bool, bool]] = WeakTable()  # see OutlinedLoop, by codes of functions

_steps: WeakTable[CodeType] = WeakTable()  # codes of steps -> those of the functions that they are steps of


def is_step(code: CodeType) -> bool:
    """Whether code is that of the step of an outlined loop, as it is or instrumented."""
    return code in _steps or original_of(code) in _steps


def function_of_step(code: CodeType) -> CodeType:
    """The code of the function whose loop a step is of; `code` itself if it is no step."""
    while (function := _steps.get(code)) is not None:
        code = function
    return code


def may_be_outlined(code: CodeType, line: int, names: dict[str, Any] | None) -> bool:
    """Whether a line is in a loop of a function with a source, over anything but items that are written there.  names: the globals of
    the function."""
    try:
        if is_step(code) or not isinstance(node := locate(code, names).node, ast.FunctionDef):
            return False
        return any(not _is_written_out(x) for loop in outermost_loops(node.body) for x in loops_around(loop, line))
    except (NotConvertible, RecursionError):
        return False


def convert_outlined(code: CodeType, lines: frozenset[int], names: dict[str, Any]) -> OutlinedFunction | None:
    """Instrumented code for `code` in which the outermost loops around these lines are outlined; None if there is no such loop
    that can be.  names: the globals of its function.  Raises NotConvertible.  The result is cached."""
    known = _outlined.get(code)
    if known is None:
        known = _outlined[code] = {}
    key = lines, frozenset([name for name in LOOKING if name in names])
    if key not in known:
        located = locate(code, names)
        loops = outline_loops(code, located, lines, names)
        known[key] = OutlinedFunction(instrument(code, located), tuple(loops)) if loops else None
    return known[key]


def outline_loops(code: CodeType, located: Located, lines: Collection[int], names: Collection[str]) -> list[OutlinedLoop]:
    """Outline the outermost loops around these lines, in the syntax tree of a function, which is changed.  names: of its globals.
    Empty where there is no such loop, or none can be outlined."""
    node = located.node
    if not isinstance(node, ast.FunctionDef) or any(isinstance(part, _SUSPENDING) for part in walk(node)):
        return []
    outlined: list[OutlinedLoop] = []
    waiting = list(outermost_loops(node.body))
    while waiting:
        loop = waiting.pop(0)
        if _is_written_out(loop):
            waiting += outermost_loops(loop.body)
            continue
        branches = any(loops_around(loop, line) for line in lines)
        if not branches and not (is_step(code) and isinstance(loop, ast.For) and _goes_over_range(loop.iter)):
            continue
        made = _Loop(code, located, names, loop, branches).outlined(len(outlined))
        if made is not None:
            outlined.append(made)
        elif branches:  # then one inside of it may be
            waiting += outermost_loops(loop.body)
    return outlined


def _is_written_out(loop: ast.For | ast.While) -> bool:
    """Whether a loop goes over a list or tuple whose items are in its header: they are a few, and mostly of different kinds."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Tuple | ast.List):
        return False
    return not any(isinstance(item, ast.Starred) for item in loop.iter.elts)


def _goes_over_range(header: ast.expr) -> bool:
    """Whether the header of a loop is a call of `range`, by its name."""
    return type(pattern := _pattern(header)[0]) is tuple and pattern[0] == "range"


class _Loop:
    """A loop of a function that is being outlined."""

    def __init__(
        self, code: CodeType, located: Located, names: Collection[str], loop: ast.For | ast.While, branches: bool
    ) -> None:
        self.code, self.located, self.loop, self.branches = code, located, loop, branches
        self.node = located.node
        self.names = names
        self.unbound: list[str] = []  # live-in variables that may have no value
        self.is_watched = False
        self.stored: list[StoredList] = []
        self.first: list[ast.stmt] = []  # of the step, before what the body of the loop does

    def outlined(self, number: int) -> OutlinedLoop | None:
        """The loop as the `number`-th one of the function, whose statement is replaced; None, and nothing is changed, if that is
        not possible."""
        loop, tests = self.loop, self._tests_of_identity()
        self.is_watched = Outliner(self.code, self.located, self.names).is_watched(loop)
        if self.is_watched and self._returns_through_finally():
            return None
        bound = {*bound_names(self.node), *self.names, *self.code.co_freevars}
        lists = grown_lists(self.node, loop, "len" not in bound)
        items = [column for x in lists for column in x.columns]
        before = loop.body, getattr(loop, "target", None)
        self.stored = [] if self.is_watched else stored_lists(self.node, loop, bound)
        reading = [*[statement for x in lists for statement in x.read_before(loop)], *[x.read_before(loop) for x in self.stored]]
        storing = [x.stored_after(loop) for x in self.stored]
        _replace_statement(self.node, loop, [*reading, loop, *storing])
        loop.body = body = self._body(lists)
        if isinstance(loop, ast.For):
            loop.target = ast.copy_location(ast.Name(_ELEMENT, ast.Store()), loop.target)
        try:
            outliner = Outliner(self.code, self.located, self.names)
            later = self._read_after()
            given, left, self.unbound = outliner.live_names_of_loop(loop, later, passes_errors=True)
            given = [name for name in given if name != _ELEMENT]
            own = {_ELEMENT, *[x.name for x in lists], *[x.name for x in self.stored]}
            left = [name for name in left if name not in own]
            step = self._step(body, given, left, items, self.unbound)
            parts = self._parts(outliner, body, left, items, {*given})
        except (NoPiece, NotConvertible):
            loop.body = before[0]
            if isinstance(loop, ast.For):
                loop.target = before[1]  # type: ignore[assignment]
            for statement in (*reading, *storing):
                _replace_statement(self.node, statement, [])
            return None
        unread = names_stored_by(body) & outliner.local - {*left}
        lost = {name for name in unread if not name.startswith(OUTLINED)}
        assigned_first = frozenset(left) - outliner.exposed_and_assigned(body)[0]
        self._replace(number, given, left, lists, lost)
        return OutlinedLoop(
            step,
            tuple(given),
            tuple(left),
            len(items),
            frozenset([k for k, x in enumerate([x for x in lists for _ in x.columns]) if x.is_measured]),
            frozenset(later) & {*left},
            frozenset(left) - _assigned_by(body),
            isinstance(loop, ast.For),
            self.is_watched,
            self.branches,
            loop.lineno,
            parts,
            frozenset([name for part in parts for name in part.live_ins]) - {*given},
            assigned_first,
            assigned_first - self._read_with_graph(bound),
            *tests,
        )

    def _tests_of_identity(self) -> tuple[bool, bool]:
        """`tests_identity` and `tests_parts` of OutlinedLoop, for the function whose loop it is."""
        function = function_of_step(self.code)
        if (known := _tests_of_identity.get(function)) is None:
            tests = [*map(_identity_test, walk(self.node))]
            known = _tests_of_identity[function] = (False in tests, True in tests)
        return known

    def _returns_through_finally(self) -> bool:
        """Whether a step may return while a `finally` looks at variables that it has assigned to."""
        tries = [x for x in walk(self.node) if isinstance(x, ast.Try | ast.TryStar) and x.finalbody]
        returns = any(isinstance(part, ast.Return) for statement in self.loop.body for part in own_statements(statement))
        return returns and any(part is self.loop for x in tries for part in walk(x))

    def _body(self, lists: Sequence[GrownList]) -> list[ast.stmt]:
        """The body of the step.  lists: those that steps append to."""
        loop = self.loop
        first = [assigned(column, ast.Tuple([], ast.Load()), loop.body[0]) for x in lists for column in x.columns]
        first += [x.begin_step(loop.body[0]) for x in self.stored]
        self.first = first
        body = copy.deepcopy(loop.body)
        body += [x.end_step(loop.body[-1]) for x in self.stored]
        if isinstance(loop, ast.For):
            element = ast.copy_location(ast.Name(_ELEMENT, ast.Load()), loop.target)
            return [*first, ast.copy_location(ast.Assign([loop.target], element), loop.target), *without_lists(body, lists)]
        if not (isinstance(loop.test, ast.Constant) and loop.test.value):
            test = loop.test
            negated = ast.copy_location(ast.UnaryOp(ast.Not(), copy.deepcopy(test)), test)
            way = _Ends() if loop.orelse else ast.Break()
            body.insert(0, ast.copy_location(ast.If(negated, [ast.copy_location(way, test)], []), test))
        return [*first, *without_lists(body, lists)]

    def _read_after(self) -> set[str]:
        """The variables that the function may read after the loop: all that a loop around it reads, but not those that a later loop
        assigns to before its body reads them."""
        names: set[str] = set()
        is_after = False

        def visit(part: ast.AST, renewed: frozenset[str]) -> None:
            nonlocal is_after
            if part is self.loop:
                is_after = True
                for x in self.loop.orelse:
                    visit(x, renewed)
                return
            if isinstance(part, ast.For | ast.While) and any(x is self.loop for x in walk(part)):
                is_after = True
            if is_after and isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load | ast.Del) and part.id not in renewed:
                names.add(part.id)
            if (
                is_after
                and isinstance(part, ast.AugAssign)
                and isinstance(part.target, ast.Name)
                and part.target.id not in renewed
            ):
                names.add(part.target.id)
            if isinstance(part, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):  # its variables are its own
                visit(part.generators[0].iter, renewed)
                renewed = renewed | {x.id for y in part.generators for x in walk(y.target) if isinstance(x, ast.Name)}
            inside = renewed
            if isinstance(part, ast.For):
                inside = renewed | {x.id for x in walk(part.target) if isinstance(x, ast.Name)}
            for field, value in ast.iter_fields(part):
                for x in value if isinstance(value, list) else (value,):
                    if isinstance(x, ast.AST):
                        visit(x, inside if field == "body" else renewed)

        visit(self.node, frozenset())
        return names

    def _read_with_graph(self, bound: Collection[str]) -> set[str]:
        """The variables of which code besides the loop may read more than contents, or that functions in this one share.  bound: names
        that are none of builtins."""
        names = {*self.code.co_cellvars}

        def visit(part: ast.AST) -> None:
            if part is self.loop:
                return
            match part:
                case ast.Call(ast.Attribute(ast.Name(), attr), [], []) if attr in _CONTENTS:
                    return
                case ast.Call(ast.Name(function), [ast.Name()], []) if function in _TO_NUMBER and function not in bound:
                    return
                case ast.Name(ctx=ast.Load()):
                    names.add(part.id)
            for x in ast.iter_child_nodes(part):
                visit(x)

        visit(self.node)
        for x in getattr(self.loop, "orelse", ()):
            visit(x)
        return names

    def _parts(
        self, outliner: Outliner, body: Sequence[ast.stmt], left: Sequence[str], items: Sequence[str], given: set[str]
    ) -> tuple[StepPart, ...]:
        """The parts of the step; none if it branches once at most, or cannot be divided.  given, left: the live-in and the live-out
        variables of the step.  Raises NotConvertible."""
        if self.is_watched or self.stored:
            return ()
        begins = len(self.first) + isinstance(self.loop, ast.For)
        element = body[len(self.first) : begins]
        parts = with_element(divided(body[begins:], self.names), element)
        flows = [outliner.exposed_and_assigned(part) for part in parts]
        result: list[StepPart] = []
        for k, (part, (exposed, surely)) in enumerate(zip(parts, flows, strict=True)):
            read_later = {*left}.union(*[later for later, _ in flows[k + 1 :]])
            live_outs = sorted((names_stored_by(part) & read_later) - {*items})
            live_ins = sorted((exposed | ({*live_outs} - surely)) - {_ELEMENT, *items})
            unbound = [x for x in live_ins if x in self.unbound]  # what is passed is read where it has a value alone
            way = PROCEEDS if k < len(parts) - 1 else CONTINUES
            code = self._step([*self.first, *part], live_ins, live_outs, items, unbound, way)
            result.append(StepPart(code, tuple(live_ins), tuple(live_outs)))
        return tuple(result) if len(parts) > 1 else ()

    def _step(
        self,
        body: Sequence[ast.stmt],
        given: Sequence[str],
        left: Sequence[str],
        items: Sequence[str],
        unbound: Sequence[str],
        way: int = CONTINUES,
    ) -> CodeType:
        """The code of the step, or of a part of it that ends in this way if in no other.  unbound: those of `given` that may have no value.
        Raises NotConvertible."""
        loop = self.loop
        assert isinstance(self.node, ast.FunctionDef)
        own = {x.carried: x.items for x in self.stored}  # where the step ends in the middle, too
        values = ast.Tuple([own.get(x, ast.Name(x, ast.Load())) for x in (*left, *items)], ast.Load())
        rewriter = _StepRewriter(values, [_marked_unbound(x) for x in unbound if x in left], WAYS)
        ended: list[ast.stmt] = [*rewriter.body(copy.deepcopy([*body])), *rewriter.exit(way)]
        if self.is_watched:
            with_error = ast.Tuple([*values.elts, ast.Name(_ERROR, ast.Load())], ast.Load())
            raised = ExitRewriter(with_error, list(map(_marked_unbound, (*left, *items))), WAYS).exit(RAISES)
            ended = [ast.Try(ended, [ast.ExceptHandler(ast.Name("BaseException", ast.Load()), _ERROR, raised)], [], [])]
        ended = [*[_unbound_again(x) for x in unbound], *ended]
        taken = [*([_ELEMENT] if isinstance(loop, ast.For) else []), *given]
        arguments = ast.arguments([], [ast.arg(x) for x in taken], None, [], [], None, [])
        function = ast.FunctionDef(self.node.name, arguments, ended, [], None)
        set_location(function, body[0])
        located = Located(function, self.located.class_name, self.located.flags)
        code = compiled_as(self.code, copy.deepcopy(located))
        declare(code, located)
        _steps[code] = self.code
        return code

    def _raised_again(self, left: Sequence[str], lists: Sequence[GrownList]) -> list[ast.stmt]:
        """Statements that give variables what a step has left in them, put items into lists, and raise the error that it has raised."""
        items = [column for x in lists for column in x.columns]
        statements: list[ast.stmt] = [
            PlainIf(
                ast.Compare(_item_of_values(k), [ast.IsNot()], [ast.Constant(UNBOUND)]),
                [ast.Assign([ast.Name(x, ast.Store())], _item_of_values(k))],
                [],
            )
            for k, x in enumerate((*left, *items, _ERROR))
        ]
        statements += map(_extended, lists)
        unused = (_VALUES, *items, _ERROR)
        forgotten: list[ast.stmt] = [ast.Assign([ast.Name(x, ast.Store())], ast.Constant(None)) for x in unused]
        raised = PlainTry([ast.Raise(ast.Name(_ERROR, ast.Load()))], [], [], forgotten)
        return [*statements, *[_unbound_again(x) for x in self.unbound], raised]

    def _replace(
        self, number: int, given: Sequence[str], left: Sequence[str], lists: Sequence[GrownList], lost: Collection[str]
    ) -> None:
        """Replace the statement by a call of the entry point, and statements that store what it gives.  lists: those that steps append
        to.  lost: other variables that steps assign to; they stay variables of the function, where code before
        the loop names them."""
        loop = self.loop
        pattern, parts = (WHILE, []) if isinstance(loop, ast.While) else _pattern(loop.iter)
        header = ast.Tuple(parts, ast.Load())
        values = ast.Tuple([ast.Name(x, ast.Load()) for x in given], ast.Load())
        items = [column for x in lists for column in x.columns]
        names = ast.Tuple([ast.Constant(x) for x in items], ast.Load())
        arguments = [ast.Constant(number), ast.Constant(pattern), header, values, names]
        call = ast.Call(ast.Name(OUTLINED_LOOP, ast.Load()), arguments, [])
        pair = ast.Tuple([ast.Name(_WAY, ast.Store()), ast.Name(_VALUES, ast.Store())], ast.Store())
        statements: list[ast.stmt] = [*[_marked_unbound(x) for x in self.unbound], ast.Assign([pair], call)]

        def if_way(way: int, body: list[ast.stmt], equal: bool = True) -> ast.stmt:
            comparison = ast.Compare(ast.Name(_WAY, ast.Load()), [ast.Eq() if equal else ast.NotEq()], [ast.Constant(way)])
            return ast.If(comparison, body, [])

        leaves = any(isinstance(part, ast.Return) for statement in loop.body for part in own_statements(statement))
        if leaves:
            statements.append(if_way(RETURNS, [ast.Return(ast.Name(_VALUES, ast.Load()))]))
        if self.is_watched:
            statements.append(if_way(RAISES, self._raised_again(left, lists)))
        stores: list[ast.stmt] = []
        if left or items:
            targets: list[ast.expr] = [ast.Name(x, ast.Store()) for x in (*left, *items)]
            stores.append(ast.Assign([ast.Tuple(targets, ast.Store())], ast.Name(_VALUES, ast.Load())))
        stores += map(_extended, lists)
        if items:
            stores.append(ast.Assign([ast.Name(x, ast.Store()) for x in items], ast.Constant(None)))
        if stores:
            statements.append(if_way(NO_STEP, stores, equal=False))
        statements += [_unbound_again(x) for x in self.unbound]
        statements.append(ast.Assign([ast.Name(_VALUES, ast.Store())], ast.Constant(None)))  # so that it keeps nothing alive
        assigned: list[ast.stmt] = [ast.Assign([ast.Name(x, ast.Store())], ast.Constant(None)) for x in sorted(lost)]
        statements += [PlainIf(ast.Constant(False), assigned, [])] if assigned else []
        if loop.orelse:
            statements.append(if_way(BREAKS, loop.orelse, equal=False))
        for statement in statements:
            set_location(statement, loop)
        _replace_statement(self.node, loop, statements)


def _extended(grown: GrownList) -> ast.stmt:
    """A statement that puts what steps have appended to a list into it."""
    constants: Any = grown.constants if grown.is_of_tuples else None
    columns = ast.Tuple([ast.Name(x, ast.Load()) for x in grown.columns], ast.Load())
    arguments = [ast.Name(grown.name, ast.Load()), columns, ast.Constant(constants)]
    return ast.Expr(ast.Call(ast.Name(EXTENDED_LIST, ast.Load()), arguments, []))


def _assigned_by(parts: Sequence[ast.AST]) -> set[str]:
    """The names that statements bind otherwise than by `name += value` and the like."""
    return names_stored_by([_WithoutUpdates().visit(part) for part in copy.deepcopy(list(parts))])


class _WithoutUpdates(ast.NodeTransformer):
    """Leaves the value of an update, `name += value`, where that was."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        return ast.Expr(node.value) if isinstance(node.target, ast.Name) else node


def _item_of_values(k: int) -> ast.expr:
    return ast.Subscript(ast.Name(_VALUES, ast.Load()), ast.Constant(k), ast.Load())


class _Ends(ast.Break):
    """The end of a `while` loop whose condition does not hold, as a statement of its step."""


class _StepRewriter(ExitRewriter):
    """Replaces what ends a step, too, besides what ends a body."""

    def generic_visit(self, node: ast.AST) -> Any:
        return self.exit(ENDS, at=node) if isinstance(node, _Ends) else super().generic_visit(node)


def _pattern(header: ast.expr) -> tuple[Any, list[ast.expr]]:
    """(the pattern of a header, the expressions of its values): see capture/step_elements.py."""
    if not (isinstance(header, ast.Call) and isinstance(header.func, ast.Name)):
        return None, [header]
    name = header.func.id
    keywords = [(x.arg, getattr(x.value, "value", None)) for x in header.keywords]
    if keywords and (name != "zip" or keywords not in ([("strict", True)], [("strict", False)])):
        return None, [header]
    if len(header.args) not in _PATTERNS.get(name, ()) or any(isinstance(x, ast.Starred) for x in header.args):
        return None, [header]
    iterables = {"range": 0, "enumerate": 1}.get(name, len(header.args))  # arguments that are gone over
    parts = [_pattern(x) if k < iterables else (None, [x]) for k, x in enumerate(header.args)]
    name = STRICT_ZIP if ("strict", True) in keywords else name
    return (name, tuple([pattern for pattern, _ in parts])), [header.func, *[x for _, values in parts for x in values]]


def _marked_unbound(name: str) -> ast.stmt:
    """A statement that gives a variable the value UNBOUND if it has none."""
    mark = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(UNBOUND))
    handler = ast.ExceptHandler(ast.Name("UnboundLocalError", ast.Load()), None, [mark])
    return PlainTry([ast.Expr(ast.Name(name, ast.Load()))], [handler], [], [])


def _unbound_again(name: str) -> ast.stmt:
    """A statement that deletes a variable that has the value UNBOUND."""
    test = ast.Compare(ast.Name(name, ast.Load()), [ast.Is()], [ast.Constant(UNBOUND)])
    return PlainIf(test, [ast.Delete([ast.Name(name, ast.Del())])], [])


def _identity_test(node: ast.AST) -> bool | None:
    """Whether a node tests the identity of an item, `pair[0] is x`; False if that of something else; None if it tests none but that of
    constants."""
    if isinstance(node, ast.Compare):
        pairs = zip((node.left, *node.comparators), node.comparators, node.ops, strict=False)
        tested = [(x, y) for x, y, op in pairs if isinstance(op, ast.Is | ast.IsNot)]
        tested = [pair for pair in tested if not any(isinstance(x, ast.Constant) for x in pair)]
        return all(any(isinstance(x, ast.Subscript) for x in pair) for pair in tested) if tested else None
    return False if isinstance(node, ast.Name) and node.id == "id" else None


def _replace_statement(node: ast.AST, statement: ast.stmt, others: Sequence[ast.stmt]) -> None:
    """Put other statements in the place of one."""
    for part in walk(node):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(part, field, None)
            if isinstance(block, list) and any(x is statement for x in block):
                at = next(k for k, x in enumerate(block) if x is statement)
                block[at : at + 1] = others
                return
    raise AssertionError("the loop is not in its function")
