"""Rewrites expressions: each load, call, operator, truth test and iteration becomes a call of a method of `__capture__`.

The order and the number of evaluations remain those of the source.  It works on syntax trees alone, and must not know running
code.
"""

from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Callable, Iterable
from inspect import CO_GENERATOR
from types import CodeType
from typing import Any, Final

from tracejit.capture.syntax.lists import separate_lists
from tracejit.capture.syntax.locate import FunctionNode, NotConvertible
from tracejit.capture.syntax.loop_targets import separate_targets
from tracejit.capture.syntax.loops import (
    EXTENDED_LIST,
    OUTLINED,
    OUTLINED_LOOP,
    ReadBeforeLoop,
    compared,
    integer,
    is_reversed_slice,
    joined_list,
    offset_names,
    positions,
    private_lists,
    reads_end,
    returned_lists,
    reversed_list_name,
    use_counts,
    without_ends,
)
from tracejit.capture.syntax.scopes import LOOKING_AT_VARIABLES, bound_names, declared_names, gathered_names
from tracejit.capture.syntax.tree_walk import children, walk

__all__ = ["CAPTURE", "SYMBOLS", "ExpressionRewriter", "target_pattern"]

CAPTURE = "__capture__"
"""The free variable of instrumented code that holds its CaptureFrame."""
SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.MatMult: "@",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.UAdd: "pos", ast.USub: "neg", ast.Invert: "invert",
}  # fmt: skip
_NAMES = (ast.Attribute, ast.Name)
_ASKS_AGAIN = sys.version_info >= (3, 12)
"""Whether `(a and b) or c` tests `a` twice if `a` is false: once for `and`, once for `or`.  Before 3.12, Python jumped to the
target of the second test directly."""
_FRAME_NAMES = LOOKING_AT_VARIABLES | {"globals", "__import__", "_getframe", "currentframe"}
"""Names (of builtins, or imported) of functions that read the frame of their caller, whose variables may hold stand-ins."""
_FRAME_ATTRIBUTES = frozenset({"_getframe", "_getframemodulename", "currentframe"})
"""Names of such functions as attributes of a module."""
_WITHOUT_NUMBERS: tuple[type[ast.AST], ...] = (
    ast.Constant, ast.JoinedStr, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Lambda, ast.List, ast.Tuple, ast.Dict, ast.Set,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""Expressions whose value is never a stand-in of a number once the recording has stopped."""


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is a literal number."""
    operand = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(operand, ast.Constant) and type(operand.value) in (int, float)


def _is_decided_by_parts(test: ast.expr) -> bool:
    """Whether Python tests or compares parts of a condition one after the other, with jumps, instead of testing one value."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    return isinstance(test, ast.BoolOp | ast.IfExp | ast.Compare)


_ALL_ELEMENTS: Final[Any] = ()
"""The pattern of `*a` in a call or display: it is unpacked, its elements are not."""


def target_pattern(target: ast.expr) -> Any:
    """The structure in which a target unpacks a value: None for a name, attribute or item; for a tuple of targets the tuple of
    their patterns, with `...` for a starred one.  `i, (a, *b)` has the pattern (None, (None, ...))."""
    if not isinstance(target, ast.Tuple | ast.List):
        return None
    return tuple([... if isinstance(part, ast.Starred) else target_pattern(part) for part in target.elts])


class ExpressionRewriter(ast.NodeTransformer):
    """Rewrites the expressions of one function."""

    def __init__(self, code: CodeType, class_name: str | None, node: FunctionNode) -> None:
        arguments = node.args.posonlyargs + node.args.args
        self.class_name = class_name
        named = {*code.co_varnames, *code.co_cellvars}  # Python 3.12 keeps names of comprehensions there, too
        separated = separate_lists(node) | separate_targets(node, (*code.co_cellvars, *code.co_freevars))
        bound = bound_names(node)
        outlined = {name for name in bound if name.startswith(OUTLINED)}
        self.local = named & set(map(self.mangle, bound)) | separated | outlined
        self.captured = frozenset(code.co_cellvars)
        self.is_generator = bool(code.co_flags & CO_GENERATOR)
        self.postpones_annotations = bool(code.co_flags & __future__.annotations.compiler_flag)
        self.free = set(code.co_freevars)
        self.first_argument = arguments[0].arg if arguments else None
        self.globals, self.nonlocals = declared_names(node)
        self.gathered = gathered_names(node)
        self.lists = frozenset([x for x in private_lists(node) if self.mangle(x) in self.local - self.captured])
        read = {reads_end(part) for part in walk(node) if not isinstance(part, ReadBeforeLoop)}
        self.joined_lists = self.lists - read  # private ones whose ends nothing reads
        # Variables of what steps of outlined loops append -> the lists that get it, whose names `separate_lists` may have changed.
        self.extended: dict[str, str] = {}
        for call in walk(node):
            match call:
                case ast.Call(ast.Name(function), [ast.Name(owner), ast.Tuple(parts), _]):
                    if function == EXTENDED_LIST:
                        columns = [x.id for x in parts if isinstance(x, ast.Name)]
                        self.extended.update(dict.fromkeys(columns, owner))
        returned = returned_lists(node, {x for x in self.extended.values() if self.mangle(x) in self.local - self.captured})
        self.returned_names = {*[x for uses in returned.values() for x in uses]}
        self.lists |= returned.keys()
        self.uses = use_counts(node)
        # "Recognised loops" have a LoopRecogniser in a variable of the instrumented code, "the variable of the loop" below.
        self.joining: set[ast.Call] = set()  # calls that join the list of a comprehension that has become a loop before them
        # `total + element` in the loop of a sum -> the variables of the loop and of the list of numbers still to be added.
        self.sums: dict[ast.expr, tuple[str, str]] = {}
        # Calls in the header of a recognised loop (`range(n)`, `x.unbind()`) -> the variable of the loop.
        self.headers: dict[ast.expr, str] = {}
        self.mappings = 0  # number of calls with `**mapping` so far
        self.comprehension_names: list[set[str]] = []
        self.temporaries = 0
        self.counters: dict[str, str | None] = {}  # counters of the loops around -> the variables of these loops
        # Uses of counters in arithmetic -> (variable of the loop, counter, steps that the step itself has already added to it).
        self.computed_with: dict[ast.expr, tuple[str, str, int]] = {}
        self.increments: dict[ast.stmt, str] = {}  # statements that add a number to a counter -> the variables of the loops
        self.ends: dict[ast.expr, str] = {}  # comparisons that are conditions of recognised `while` loops -> their variables

    # -- small builders
    def entry_point(self, name: str, *arguments: ast.expr) -> ast.Call:
        """A call of an entry point, a method of `__capture__`."""
        method = ast.Attribute(ast.Name(CAPTURE, ast.Load()), name, ast.Load())
        return ast.Call(method, list(arguments), [])

    def mangle(self, name: str) -> str:
        if self.class_name is not None and name.startswith("__") and not name.endswith("__"):
            stripped = self.class_name.lstrip("_")
            return f"_{stripped}{name}" if stripped else name
        return name

    def name_constant(self, name: str) -> ast.Constant:
        return ast.Constant(self.mangle(name))

    def temporary(self) -> str:
        self.temporaries += 1
        return f"__temporary_{self.temporaries}__"

    @staticmethod
    def located(new: Any, old: ast.AST) -> Any:
        """Give `new` and its parts that have no position the position of `old`.  Parts of a node with a position all have one."""
        ast.copy_location(new, old)
        unlocated = list(children(new))
        for child in unlocated:
            if "lineno" in child._attributes:
                if hasattr(child, "lineno"):
                    continue
                ast.copy_location(child, old)
                if isinstance(child, _NAMES):  # so that a call of several lines has its first line, not its last
                    child.end_lineno, child.end_col_offset = child.lineno, child.col_offset
            unlocated += children(child)
        return new

    def new_object(self, expression: ast.expr) -> ast.expr:
        """An expression that creates a new object (a display, comprehension, lambda), marked as created."""
        return self.located(self.entry_point("new_object", expression), expression)

    def statement(self, expression: ast.expr, node: ast.AST) -> ast.stmt:
        return self.located(ast.Expr(expression), node)

    # -- names
    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id == "__class__":
            return node
        name = self.mangle(node.id)
        if node in self.computed_with:
            loop, counter, ahead = self.computed_with[node]
            arguments = [ast.Name(loop, ast.Load()), ast.Constant(self.mangle(counter)), ast.Constant(ahead)]
            return self.located(self.entry_point("number_of_step", *arguments, node), node)
        if node in self.returned_names:
            return self.located(self.entry_point("returned_list", node), node)
        if name in self.local or any(name in names for names in self.comprehension_names):
            return self.located(self.entry_point("starred", node), node) if node.id in self.gathered else node
        if name in _FRAME_NAMES:
            raise NotConvertible("frame_access", name)
        return self.shared_name(node)

    def shared_name(self, node: ast.Name) -> ast.expr:
        """The value of a global or free variable."""
        name = self.mangle(node.id)
        return self.located(self.entry_point("load_free" if name in self.free else "load_global", ast.Constant(name)), node)

    # -- expressions
    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        of_builtins = isinstance(node.value, ast.Name) and node.value.id in ("builtins", "__builtins__")
        if node.attr in _FRAME_ATTRIBUTES or (of_builtins and node.attr in _FRAME_NAMES):
            raise NotConvertible("frame_access", node.attr)
        return self.located(self.entry_point("attribute", self.visit(node.value), self.name_constant(node.attr)), node)

    def loops_of(self, names: Iterable[str]) -> list[ast.expr]:
        """The variables of the loops whose counters are among `names`."""
        return [ast.Name(loop, ast.Load()) for name in sorted(names) if (loop := self.counters.get(name)) is not None]

    def loops_along(self, node: ast.Subscript) -> list[ast.expr]:
        """The variables of the loops with whose counters the key of a subscript moves."""
        return self.loops_of(set().union(*[offset_names(part, self.counters, scaled=True) for part in positions(node)]))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if reads_end(node) in self.lists:
            return self.located(self.entry_point("list_end", self.visit(node.value), self.visit(node.slice)), node)
        loops = self.loops_along(node)
        if loops:
            return self.located(self.entry_point("item_along", self.visit(node.value), self.visit(node.slice), *loops), node)
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape" and integer(node.slice) is not None:
            shape = self.visit(node.value)
            assert isinstance(shape, ast.Call)
            return self.located(self.entry_point("item_of_shape", shape.args[0], self.visit(node.slice)), node)
        return self.located(self.entry_point("item", self.visit(node.value), self.visit(node.slice)), node)

    visit_ReadBeforeLoop = visit_Subscript

    def items_of(self, node: ast.Subscript) -> ast.expr:
        """`x[::-1]` or `x[1:]` of a private list."""
        if is_reversed_slice(node):
            items = self.entry_point("reversed_items", self.visit(node.value))
        else:
            parts = self.visit(node.value), self.visit(node.slice)
            items = self.entry_point("without_ends", *parts, *map(ast.Constant, without_ends(node) or ()))
        return self.located(items, node)

    def visit_Slice(self, node: ast.Slice) -> ast.expr:
        bounds = [self.visit(b) if b else ast.Constant(None) for b in (node.lower, node.upper, node.step)]
        return self.located(self.entry_point("slice", *bounds), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if node in self.sums:
            variables = [ast.Name(name, ast.Load()) for name in self.sums[node]]
            return self.located(self.entry_point("add_to_sum", *variables, self.visit(node.left), self.visit(node.right)), node)
        symbol = ast.Constant(SYMBOLS[type(node.op)])
        loops = self.loops_of(offset_names(node, self.counters, scaled=True))
        if loops and self.computed_with.keys().isdisjoint(walk(node)):
            is_left = bool(offset_names(node.left, self.counters, scaled=True))
            how = ("scaled", ast.Constant(is_left)) if isinstance(node.op, ast.Mult) else ("offset", symbol)
            return self.located(self.entry_point(*how, self.visit(node.left), self.visit(node.right), *loops), node)
        return self.located(self.entry_point("binary", symbol, self.visit(node.left), self.visit(node.right)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return self.located(self.entry_point("negated", self.visit(node.operand)), node)
        if isinstance(node.operand, ast.Constant):
            return node
        return self.located(self.entry_point("unary", ast.Constant(SYMBOLS[type(node.op)]), self.visit(node.operand)), node)

    # -- truth: each operand is tested as often as by Python, since `__bool__` may be user code
    def condition(self, expression: ast.expr) -> ast.expr:
        """The truth of the value of an expression."""
        return self.located(self.entry_point("truth", self.visit(expression)), expression)

    def truth(self, expression: ast.expr) -> ast.expr:
        """The truth of an expression that is a condition (of `if`, `while` ...).  Python tests the operands of `and`, `or`,
        `not`, and jumps; it does not test the values of these operators."""
        result: ast.expr
        if isinstance(expression, ast.BoolOp):
            result = ast.BoolOp(expression.op, [self.truth(value) for value in expression.values])
        elif isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not):
            result = ast.UnaryOp(ast.Not(), self.truth(expression.operand))
        elif isinstance(expression, ast.IfExp):
            result = ast.IfExp(self.truth(expression.test), self.truth(expression.body), self.truth(expression.orelse))
        elif isinstance(expression, ast.Compare) and len(expression.ops) > 1:
            result = self.comparison_chain(expression, lambda last: self.entry_point("truth", last), "drop_kept")
        else:
            return self.condition(expression)
        return self.located(result, expression)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        # `a and b` becomes `b if holds_or_keep(a) else kept_operand()`, so that `a` is evaluated and tested once.
        *values, last = node.values
        of_and = isinstance(node.op, ast.And)
        decisions = [self.operand_condition(value, not of_and) for value in values]
        holds = ast.BoolOp(node.op, decisions) if len(values) > 1 else decisions[0]
        kept, rest = self.entry_point("kept_operand"), self.visit(last)
        return self.located(ast.IfExp(holds, rest, kept) if of_and else ast.IfExp(holds, kept, rest), node)

    def operand_condition(self, expression: ast.expr, keep: bool | None) -> ast.expr:
        """The truth of an operand of `and` or `or`.  keep: for which truth the operand's value is kept, as the value of the
        whole; None: for neither."""
        if not isinstance(expression, ast.BoolOp) or _ASKS_AGAIN:
            name = "truth" if keep is None else "holds_and_keep" if keep else "holds_or_keep"
            return self.located(self.entry_point(name, self.visit(expression)), expression)
        *values, last = expression.values
        earlier = keep if keep is isinstance(expression.op, ast.Or) else None  # operands before the last decide only in this way
        return ast.BoolOp(
            expression.op, [*(self.operand_condition(value, earlier) for value in values), self.operand_condition(last, keep)]
        )

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        left, right = compared(node, self.counters)
        loops = self.loops_of(left | right)
        if loops:
            # Comparisons of several counters may come out in any way from step to step: then `which` is None.
            of_one = len(left | right) == 1 and len(loops) == 1
            sides = self.visit(node.left), self.visit(node.comparators[0])
            symbol = ast.Constant(SYMBOLS[type(node.ops[0])])
            which = ast.Constant(bool(left) if of_one else None)
            if of_one and self.ends.get(node) == loops[0].id:  # type: ignore[attr-defined]
                (name,) = left | right
                return self.located(
                    self.entry_point("while_condition", self.name_constant(name), symbol, *sides, which, *loops), node
                )
            return self.located(self.entry_point("compare_along", symbol, *sides, which, *loops), node)
        return self.located(self.comparison_chain(node, lambda last: last, "kept_operand"), node)

    def comparison_chain(self, node: ast.Compare, end: Callable[[ast.expr], ast.expr], broken: str) -> ast.expr:
        """`a < b < c`.  end: makes the result of the last comparison.  broken: the handler that is called if an earlier one does
        not hold."""
        symbols = [ast.Constant(SYMBOLS[type(op)]) for op in node.ops]
        right = [self.visit(c) for c in node.comparators]
        left = self.visit(node.left)

        def link(i: int, operand: ast.expr) -> ast.expr:
            if i == len(symbols) - 1:
                return end(self.entry_point("compare", symbols[i], operand, right[i]))
            rest = link(i + 1, self.entry_point("kept_operand"))
            return ast.IfExp(self.entry_point("compare_link", symbols[i], operand, right[i]), rest, self.entry_point(broken))

        return link(0, left)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        if _is_number(node.body) and _is_number(node.orelse) and not _is_decided_by_parts(node.test):
            return self.located(self.entry_point("conditional", self.visit(node.test), node.body, node.orelse), node)
        return self.located(ast.IfExp(self.truth(node.test), self.visit(node.body), self.visit(node.orelse)), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func
        if isinstance(function, ast.Name) and function.id == "super" and not node.args and "super" not in self.local:
            if self.first_argument is None or "__class__" not in self.free:
                return node  # it raises
            names = [ast.Name("__class__", ast.Load()), ast.Name(self.first_argument, ast.Load())]
            return self.located(self.entry_point("zero_argument_super", *names), node)
        if isinstance(function, ast.Name) and function.id == OUTLINED_LOOP:
            *arguments, lists = node.args
            columns = [x.value for x in lists.elts]  # type: ignore[attr-defined]
            joined = tuple([self.extended[x] in self.joined_lists for x in columns])
            visited = [*map(self.visit, arguments), ast.Constant(joined)]  # type: ignore[arg-type]
            return self.located(self.entry_point("outlined_loop", *visited), node)
        if isinstance(function, ast.Name) and function.id == EXTENDED_LIST:
            is_private = ast.Constant(node.args[0].id in self.lists)  # type: ignore[attr-defined]
            owner, parts, constants = node.args
            return self.located(self.entry_point("extend_list", self.visit(owner), parts, constants, is_private), node)
        if reversed_list_name(node) in self.lists:
            return self.located(self.entry_point("reverse_items", self.visit(function.value)), node)  # type: ignore[attr-defined]
        joins = node in self.joining or joined_list(node) in self.lists
        arguments = [
            self.located(ast.Starred(self.entry_point("unpack", self.visit(a.value), ast.Constant(_ALL_ELEMENTS)), ast.Load()), a)
            if isinstance(a, ast.Starred)
            else self.argument(a)
            for a in node.args
        ]
        loop, site = self.headers.get(node), None
        if not (joins or loop) and any(k.arg is None for k in node.keywords):
            self.mappings += 1
            site = ast.Constant(self.mappings)
        passing = [] if site is None else [site]
        keywords = [
            ast.keyword(k.arg, self.argument(k.value) if k.arg else self.entry_point("mapping", self.visit(k.value), *passing))
            for k in node.keywords
        ]
        one = len(arguments) == 1 and not keywords and not isinstance(arguments[0], ast.Starred)
        if one and isinstance(function, ast.Name) and function.id == "vars" and "vars" not in self.local:  # it looks at no frame
            return self.located(self.entry_point("vars_of", self.shared_name(function), arguments[0]), node)
        if joins and isinstance(node.args[0], ast.Subscript):
            arguments[0] = self.items_of(node.args[0])
        if site is not None:
            callee = self.entry_point("callee_with_mapping", self.visit(function), site)
        elif loop is None:
            callee = self.entry_point("joining_callee" if joins else "callee", self.visit(function))
        elif isinstance(function, ast.Name):
            callee = self.entry_point("counting_callee", ast.Name(loop, ast.Load()), self.shared_name(function))
        else:
            owner, name = self.visit(function.value), self.name_constant(function.attr)  # type: ignore[attr-defined]
            callee = self.entry_point("unbind_callee", ast.Name(loop, ast.Load()), owner, name)
        callee = self.located(callee, function)
        return self.located(ast.Call(callee, arguments, keywords), node)

    def argument(self, expression: ast.expr) -> ast.expr:
        if isinstance(expression, ast.Name) and expression.id in self.gathered:
            return self.element(expression)
        visited = self.visit(expression)
        if isinstance(expression, _WITHOUT_NUMBERS):
            return visited
        return self.located(self.entry_point("argument", visited), expression)

    def element(self, expression: ast.expr) -> ast.expr:
        if isinstance(expression, ast.Constant | ast.Starred):
            return self.visit(expression)
        return self.located(self.entry_point("element", self.visit(expression)), expression)

    def concretise(self, expression: ast.expr) -> ast.expr:
        """An expression whose value only Python itself gets, without stand-ins: keys, members of sets, defaults, messages."""
        if isinstance(expression, ast.Constant | ast.Starred):
            return self.visit(expression)
        return self.located(self.entry_point("concretise", self.visit(expression)), expression)

    def display(self, node: Any) -> Any:
        if isinstance(getattr(node, "ctx", None), ast.Store):
            return node
        node.elts = [self.concretise(e) if isinstance(node, ast.Set) else self.element(e) for e in node.elts]
        return self.new_object(node)

    visit_List = visit_Tuple = visit_Set = display

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            return node
        return self.located(
            ast.Starred(self.entry_point("unpack", self.visit(node.value), ast.Constant(_ALL_ELEMENTS)), ast.Load()), node
        )

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        values = [
            self.element(value) if key else self.entry_point("mapping", self.visit(value))
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return self.new_object(self.located(ast.Dict([self.concretise(key) if key else None for key in node.keys], values), node))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        specification = self.visit(node.format_spec) if node.format_spec else ast.Constant("")
        text = self.entry_point("formatted", self.visit(node.value), ast.Constant(node.conversion), specification)
        return self.located(ast.FormattedValue(text, -1, None), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        if not any(isinstance(part, ast.FormattedValue) for part in node.values):
            return node
        parts = [self.visit(part).value if isinstance(part, ast.FormattedValue) else part for part in node.values]
        return self.located(self.entry_point("fstring", self.located(ast.Tuple(parts, ast.Load()), node)), node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        if node.target.id in self.globals | self.nonlocals:
            raise NotConvertible("unsupported_syntax", "an assignment expression to a global or nonlocal name")
        node.value = self.visit(node.value)
        return node

    def returned(self, node: ast.expr) -> ast.expr:
        """The value of a return statement.  In a generator it becomes an attribute of StopIteration."""
        return self.element(node) if self.is_generator else self.visit(node)

    def visit_Yield(self, node: ast.Yield) -> ast.expr:
        node.value = self.element(node.value) if node.value else None
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.expr:
        return self.located(ast.YieldFrom(self.entry_point("iterate", self.visit(node.value), ast.Constant(None))), node)

    def visit_Await(self, node: ast.Await) -> ast.expr:
        raise NotConvertible("unsupported_syntax", "await")

    # -- comprehensions
    def comprehension(self, node: Any) -> ast.expr:
        names: set[str] = set()
        generators = []
        for position, generator in enumerate(node.generators):
            if generator.is_async:
                raise NotConvertible("unsupported_syntax", "an asynchronous comprehension")
            target = generator.target
            if any(isinstance(part, ast.Attribute | ast.Subscript) for part in walk(target)):
                raise NotConvertible("unsupported_syntax", "an attribute or item as target of a comprehension")
            iterable = self.visit(generator.iter)  # the first one is evaluated outside of the comprehension's scope
            if position == 0:
                self.comprehension_names.append(names)
            names |= {part.id for part in walk(target) if isinstance(part, ast.Name)}
            iterable = self.entry_point("iterate", iterable, ast.Constant(target_pattern(target)))
            generators.append(ast.comprehension(target, iterable, [self.truth(c) for c in generator.ifs], 0))
        node.generators = generators
        if isinstance(node, ast.DictComp):
            node.key, node.value = self.concretise(node.key), self.element(node.value)
        else:
            node.elt = self.concretise(node.elt) if isinstance(node, ast.SetComp) else self.element(node.elt)
        self.comprehension_names.pop()
        return self.new_object(self.located(node, node))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    # -- definitions: bodies are not rewritten
    def visit_defaults(self, arguments: ast.arguments) -> ast.arguments:
        arguments.defaults = [self.concretise(d) for d in arguments.defaults]
        arguments.kw_defaults = [self.concretise(d) if d else None for d in arguments.kw_defaults]
        return arguments

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        node.args = self.visit_defaults(node.args)
        return self.new_object(node)
