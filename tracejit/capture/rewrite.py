"""The rewriting of one function's body.

`Rewriter` turns every load of a global, cell, attribute or item, every store, call, operator, truth test and iteration into a call
of a method of `__capture__` (see `frame.Frame`).  The order of evaluation and the number of evaluations stay those of the
text.  Bodies of nested definitions are left alone.  Pure syntax: it knows nothing of code objects that run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from inspect import CO_GENERATOR
from types import CodeType
from typing import Any

from tracejit.capture.locate import FunctionNode, NotConvertible

__all__ = ["CAPTURE", "CELLS", "Rewriter"]

CAPTURE = "__capture__"
"""The free variable through which instrumented code reaches its handlers."""
CELLS = "__cells__"
"""The argument of functions that are never called, but have the cells around a class body in their closure."""
_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.MatMult: "@",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.UAdd: "pos", ast.USub: "neg", ast.Invert: "invert",
}  # fmt: skip


_WITHOUT_NUMBERS: tuple[type[ast.AST], ...] = (
    ast.Constant, ast.JoinedStr, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Lambda, ast.List, ast.Tuple, ast.Dict, ast.Set,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""Expressions that have no stand-in of a number as value once the recording has stopped."""


def _declared(node: FunctionNode) -> tuple[set[str], set[str]]:
    """Names that the function itself declares global and nonlocal."""
    names: tuple[set[str], set[str]] = (set(), set())

    def search(parent: ast.AST) -> None:
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.Global):
                names[0].update(child.names)
            elif isinstance(child, ast.Nonlocal):
                names[1].update(child.names)
            elif not isinstance(child, FunctionNode | ast.ClassDef):
                search(child)

    search(node)
    return names


def _bound(node: FunctionNode) -> set[str]:
    """Names that the function itself binds, its comprehensions' targets apart."""
    arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    names = {argument.arg for argument in (*arguments, node.args.vararg, node.args.kwarg) if argument}

    def search(part: ast.AST, inner: bool) -> None:
        """inner: in a comprehension, where only assignment expressions bind names of the function."""
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(part.name)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store | ast.Del) and not inner:
            names.add(part.id)
        elif isinstance(part, ast.NamedExpr):
            names.add(part.target.id)
        elif isinstance(part, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and part.name:
            names.add(part.name)
        elif isinstance(part, ast.MatchMapping) and part.rest:
            names.add(part.rest)
        elif isinstance(part, ast.alias):
            names.add((part.asname or part.name).partition(".")[0])
        nested = isinstance(part, FunctionNode | ast.ClassDef)
        inner = inner or isinstance(part, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
        for field, value in ast.iter_fields(part):
            if nested and field == "body":
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    search(child, inner)

    for statement in node.body if isinstance(node.body, list) else [node.body]:
        search(statement, False)
    return names


def _gathered(node: FunctionNode) -> set[str]:
    """Names for which Python makes a container: `*args`, `**kwargs`, starred targets, the rest in a pattern."""
    names = {argument.arg for argument in (node.args.vararg, node.args.kwarg) if argument}
    for part in ast.walk(node):
        if isinstance(part, ast.Starred) and isinstance(part.ctx, ast.Store) and isinstance(part.value, ast.Name):
            names.add(part.value.id)
        elif isinstance(part, ast.MatchStar) and part.name:
            names.add(part.name)
        elif isinstance(part, ast.MatchMapping) and part.rest:
            names.add(part.rest)
    return names


def _no_arguments() -> ast.arguments:
    """Of the function whose closure shows capture the variables that a class body reads."""
    return ast.arguments([], [ast.arg(CELLS)], None, [], [], None, [])


def _target_depth(target: ast.expr) -> int:
    """How many levels of unpacking a target asks for."""
    if isinstance(target, ast.Tuple | ast.List):
        return 1 + max((_target_depth(e) for e in target.elts), default=0)
    return _target_depth(target.value) if isinstance(target, ast.Starred) else 0


class Rewriter(ast.NodeTransformer):
    """Rewrites the body of one function."""

    def __init__(self, code: CodeType, class_name: str | None, node: FunctionNode) -> None:
        arguments = node.args.posonlyargs + node.args.args
        self.class_name = class_name
        named = {*code.co_varnames, *code.co_cellvars}  # Python 3.12 keeps names of comprehensions there, too
        self.local = named & set(map(self.mangle, _bound(node)))
        self.captured = frozenset(code.co_cellvars)
        self.is_generator = bool(code.co_flags & CO_GENERATOR)
        self.free = set(code.co_freevars)
        self.first_argument = arguments[0].arg if arguments else None
        self.globals, self.nonlocals = _declared(node)
        self.gathered = _gathered(node)
        self.comprehension_names: list[set[str]] = []
        self.temporaries = 0

    # -- small builders
    def handler(self, name: str, *arguments: ast.expr) -> ast.Call:
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
    def place(new: Any, old: ast.AST) -> Any:
        """Give `new` and its new parts the position of `old`."""
        ast.copy_location(new, old)
        for child in ast.walk(new):
            if not hasattr(child, "lineno") and "lineno" in child._attributes:
                ast.copy_location(child, old)
                if isinstance(child, ast.Attribute | ast.Name):  # else a call is attributed to the last line of its text
                    child.end_lineno, child.end_col_offset = child.lineno, child.col_offset
        return new

    def made(self, expression: ast.expr) -> ast.expr:
        """An expression whose value Python makes there."""
        return self.place(self.handler("made", expression), expression)

    def statement(self, expression: ast.expr, node: ast.AST) -> ast.stmt:
        return self.place(ast.Expr(expression), node)

    # -- names
    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id == "__class__":
            return node
        name = self.mangle(node.id)
        if name in self.local or any(name in names for names in self.comprehension_names):
            return self.place(self.handler("gathered", node), node) if node.id in self.gathered else node
        if name in self.free:
            return self.place(self.handler("load_free", ast.Constant(name)), node)
        return self.place(self.handler("load_global", ast.Constant(name)), node)

    # -- expressions
    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self.place(self.handler("attribute", self.visit(node.value), self.name_constant(node.attr)), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self.place(self.handler("item", self.visit(node.value), self.visit(node.slice)), node)

    def visit_Slice(self, node: ast.Slice) -> ast.expr:
        bounds = [self.visit(b) if b else ast.Constant(None) for b in (node.lower, node.upper, node.step)]
        return self.place(self.handler("slice", *bounds), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        symbol = ast.Constant(_SYMBOLS[type(node.op)])
        return self.place(self.handler("binary", symbol, self.visit(node.left), self.visit(node.right)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return self.place(ast.UnaryOp(ast.Not(), self.truth(node.operand)), node)
        if isinstance(node.operand, ast.Constant):
            return node
        return self.place(self.handler("unary", ast.Constant(_SYMBOLS[type(node.op)]), self.visit(node.operand)), node)

    def truth(self, expression: ast.expr) -> ast.expr:
        return self.place(self.handler("truth", self.visit(expression)), expression)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        # `a and b` becomes `b if holds(a) else kept()`: the operand is evaluated and tested once
        result = self.visit(node.values[-1])
        for value in reversed(node.values[:-1]):
            value = self.visit(value)
            if isinstance(node.op, ast.And):
                result = ast.IfExp(self.handler("holds_or_keep", value), result, self.handler("kept"))
            else:
                result = ast.IfExp(self.handler("holds_and_keep", value), self.handler("kept"), result)
            self.place(result, node)
        return result

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        symbols = [ast.Constant(_SYMBOLS[type(op)]) for op in node.ops]
        right = [self.visit(c) for c in node.comparators]
        left = self.visit(node.left)

        def link(i: int, operand: ast.expr) -> ast.expr:
            if i == len(symbols) - 1:
                return self.handler("compare", symbols[i], operand, right[i])
            rest = link(i + 1, self.handler("kept"))
            return ast.IfExp(self.handler("compare_link", symbols[i], operand, right[i]), rest, self.handler("kept"))

        return self.place(link(0, left), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return self.place(ast.IfExp(self.truth(node.test), self.visit(node.body), self.visit(node.orelse)), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func
        if isinstance(function, ast.Name) and function.id == "super" and not node.args and "super" not in self.local:
            if self.first_argument is None or "__class__" not in self.free:
                return node  # it raises
            names = [ast.Name("__class__", ast.Load()), ast.Name(self.first_argument, ast.Load())]
            return self.place(self.handler("zero_argument_super", *names), node)
        arguments = [
            self.place(ast.Starred(self.handler("unpack", self.visit(a.value), ast.Constant(1)), ast.Load()), a)
            if isinstance(a, ast.Starred)
            else self.argument(a)
            for a in node.args
        ]
        keywords = [
            ast.keyword(k.arg, self.argument(k.value) if k.arg else self.handler("mapping", self.visit(k.value)))
            for k in node.keywords
        ]
        callee = self.place(self.handler("callee", self.visit(function)), function)
        return self.place(ast.Call(callee, arguments, keywords), node)

    def argument(self, expression: ast.expr) -> ast.expr:
        if isinstance(expression, ast.Name) and expression.id in self.gathered:
            return self.element(expression)
        visited = self.visit(expression)
        if isinstance(expression, _WITHOUT_NUMBERS):
            return visited
        return self.place(self.handler("argument", visited), expression)

    def element(self, expression: ast.expr) -> ast.expr:
        if isinstance(expression, ast.Constant | ast.Starred):
            return self.visit(expression)
        return self.place(self.handler("element", self.visit(expression)), expression)

    def display(self, node: Any) -> Any:
        if isinstance(getattr(node, "ctx", None), ast.Store):
            return node
        node.elts = [self.element(e) for e in node.elts]
        return self.made(node)

    visit_List = visit_Tuple = visit_Set = display

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            return node
        return self.place(ast.Starred(self.handler("unpack", self.visit(node.value), ast.Constant(1)), ast.Load()), node)

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        values = [
            self.element(value) if key else self.handler("mapping", self.visit(value))
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return self.made(self.place(ast.Dict([self.element(key) if key else None for key in node.keys], values), node))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        specification = self.visit(node.format_spec) if node.format_spec else ast.Constant("")
        text = self.handler("formatted", self.visit(node.value), ast.Constant(node.conversion), specification)
        return self.place(ast.FormattedValue(text, -1, None), node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        if node.target.id in self.globals | self.nonlocals:
            raise NotConvertible("unsupported_syntax", "an assignment expression to a global or nonlocal name")
        node.value = self.visit(node.value)
        return node

    def visit_Yield(self, node: ast.Yield) -> ast.expr:
        node.value = self.element(node.value) if node.value else None
        return node

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        if node.value is not None:  # the result of a generator is an attribute of an exception
            node.value = self.element(node.value) if self.is_generator else self.visit(node.value)
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.expr:
        return self.place(ast.YieldFrom(self.handler("iterate", self.visit(node.value), ast.Constant(0))), node)

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
            if any(isinstance(part, ast.Attribute | ast.Subscript) for part in ast.walk(target)):
                raise NotConvertible("unsupported_syntax", "an attribute or item as target of a comprehension")
            iterable = self.visit(generator.iter)  # the first one is evaluated outside: before its names are local
            if position == 0:
                self.comprehension_names.append(names)
            names |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
            iterable = self.handler("iterate", iterable, ast.Constant(_target_depth(target)))
            generators.append(ast.comprehension(target, iterable, [self.truth(c) for c in generator.ifs], 0))
        node.generators = generators
        if isinstance(node, ast.DictComp):
            node.key, node.value = self.element(node.key), self.element(node.value)
        else:
            node.elt = self.element(node.elt)
        self.comprehension_names.pop()
        return self.made(self.place(node, node))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    # -- definitions: bodies stay as they are
    def visit_defaults(self, arguments: ast.arguments) -> ast.arguments:
        arguments.defaults = [self.element(d) for d in arguments.defaults]
        arguments.kw_defaults = [self.element(d) if d else None for d in arguments.kw_defaults]
        return arguments

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        node.args = self.visit_defaults(node.args)
        return self.made(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        self.refuse_shared_names([node.name], "a definition")
        node.args = self.visit_defaults(node.args)
        decorators = [self.visit(d) for d in node.decorator_list]
        made = self.place(ast.Attribute(ast.Name(CAPTURE, ast.Load()), "made", ast.Load()), node)
        node.decorator_list = [*(self.place(self.handler("callee", d), d) for d in decorators), made]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> list[ast.stmt]:
        self.refuse_shared_names([node.name], "a class statement")
        around = ast.Tuple([ast.Name(name, ast.Load()) for name in sorted(self.captured)], ast.Load())
        body = self.handler("class_body", ast.Constant(node.name), ast.Lambda(_no_arguments(), around))
        node.decorator_list = [self.place(self.handler("callee", self.visit(d)), d) for d in node.decorator_list]
        node.bases = [self.element(base) for base in node.bases]
        node.keywords = [ast.keyword(k.arg, self.element(k.value)) for k in node.keywords]
        return [self.statement(body, node), node]

    def refuse_shared_names(self, names: Iterable[str], what: str) -> None:
        if any(name in self.globals or name in self.nonlocals for name in names):
            raise NotConvertible("unsupported_syntax", f"{what} of a global or nonlocal name")

    # -- stores
    def store(self, target: ast.expr, value: ast.expr, node: ast.AST) -> list[ast.stmt]:
        """Statements that store `value` (visited already) in `target`."""
        if isinstance(target, ast.Attribute):
            return [
                self.statement(
                    self.handler("set_attribute", value, self.visit(target.value), self.name_constant(target.attr)), node
                )
            ]
        if isinstance(target, ast.Subscript):
            return [self.statement(self.handler("set_item", value, self.visit(target.value), self.visit(target.slice)), node)]
        if isinstance(target, ast.Name):
            for names, handler in ((self.globals, "store_global"), (self.nonlocals, "store_free")):
                if target.id in names:
                    value = self.handler(handler, self.name_constant(target.id), value)
            if self.mangle(target.id) in self.captured:  # nested functions read it
                value = self.handler("argument", value)
            return [self.place(ast.Assign([target], value), node)]
        simple, after = self.simplified(target, node)
        unpacked = self.handler("unpack", value, ast.Constant(_target_depth(target)))
        return [self.place(ast.Assign([simple], unpacked), node), *after]

    def simplified(self, target: ast.expr, node: ast.AST) -> tuple[ast.expr, list[ast.stmt]]:
        """The target with temporaries from the first part on that is no local name, and the stores that remain to be done: in order, since
        one may be what the next depends on (`items[i], i = ...`)."""
        after: list[ast.stmt] = []

        def visit(part: ast.expr, starred: bool = False) -> ast.expr:
            if isinstance(part, ast.Tuple | ast.List):
                part.elts = [visit(e) for e in part.elts]
                return part
            if isinstance(part, ast.Starred):
                part.value = visit(part.value, True)
                return part
            shared = part.id in self.globals | self.nonlocals if isinstance(part, ast.Name) else True
            if isinstance(part, ast.Name) and not (shared or after or (starred and self.mangle(part.id) in self.captured)):
                return part
            name = self.temporary()
            value: ast.expr = ast.Name(name, ast.Load())
            after.extend(self.store(part, self.handler("gathered", value) if starred else value, node))
            return self.place(ast.Name(name, ast.Store()), part)

        return visit(target), after

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        value = self.visit(node.value)
        if len(node.targets) == 1:
            return self.store(node.targets[0], value, node)
        name = self.temporary()
        statements: list[ast.stmt] = [self.place(ast.Assign([ast.Name(name, ast.Store())], value), node)]
        for target in node.targets:
            statements += self.store(target, ast.Name(name, ast.Load()), node)
        return statements

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | list[ast.stmt]:
        return self.store(node.target, self.visit(node.value), node) if node.value else node

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        symbol = ast.Constant(_SYMBOLS[type(node.op)])
        target = node.target
        if isinstance(target, ast.Name):
            load = self.visit(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            return self.store(target, self.handler("in_place", symbol, load, self.visit(node.value)), node)
        if isinstance(target, ast.Attribute):
            place = self.handler("attribute_place", self.visit(target.value), self.name_constant(target.attr))
        else:
            place = self.handler("item_place", self.visit(target.value), self.visit(target.slice))
        return [self.statement(self.handler("update_place", place, symbol, self.visit(node.value)), node)]

    def visit_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                call = self.handler("delete_attribute", self.visit(target.value), self.name_constant(target.attr))
            elif isinstance(target, ast.Subscript):
                call = self.handler("delete_item", self.visit(target.value), self.visit(target.slice))
            elif isinstance(target, ast.Name):
                self.refuse_shared_names([target.id], "deletion")
                statements.append(self.place(ast.Delete([target]), node))
                continue
            else:
                raise NotConvertible("unsupported_syntax", "del of a tuple of targets")
            statements.append(self.statement(call, node))
        return statements

    # -- statements
    def function_body(self, node: ast.FunctionDef) -> list[ast.stmt]:
        """The body of the function, after what makes known the containers of starred arguments that nested functions read."""
        names = [a.arg for a in (node.args.vararg, node.args.kwarg) if a and self.mangle(a.arg) in self.captured]
        first = node.body[0]
        known = [self.statement(self.handler("gathered", ast.Name(name, ast.Load())), first) for name in names]
        return [*known, *self.body(node.body)]

    def body(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in statements:
            visited = self.visit(statement)
            result.extend(visited if isinstance(visited, list) else [visited])
        return result

    def generic_visit(self, node: Any) -> Any:
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, field, self.body(value))
            elif isinstance(value, list):
                setattr(node, field, [self.visit(v) if isinstance(v, ast.AST) else v for v in value])
            elif isinstance(value, ast.AST):
                setattr(node, field, self.visit(value))
        return node

    def bound_target(self, target: ast.expr, node: ast.AST) -> tuple[ast.expr, list[ast.stmt]]:
        """A plain local name for the target of `for` or `with`, and the statements that fill the real target."""
        if isinstance(target, ast.Name) and target.id not in self.globals | self.nonlocals:
            return target, []
        name = self.temporary()
        return self.place(ast.Name(name, ast.Store()), target), self.store(target, ast.Name(name, ast.Load()), node)

    def visit_For(self, node: ast.For) -> ast.stmt:
        iterable = self.visit(node.iter)
        node.target, stores = self.bound_target(node.target, node)
        node.iter = self.handler("iterate", iterable, ast.Constant(0))
        node.body = stores + self.body(node.body)
        node.orelse = self.body(node.orelse)
        return self.place(node, node)

    def visit_While(self, node: Any) -> ast.stmt:
        node.test = self.truth(node.test)
        node.body = self.body(node.body)
        node.orelse = self.body(node.orelse)
        return node

    visit_If = visit_While

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        node.test = self.truth(node.test)
        node.msg = self.element(node.msg) if node.msg else None
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        if node.exc is not None:
            node.exc = self.place(self.handler("raised", self.visit(node.exc)), node.exc)
            node.cause = self.visit(node.cause) if node.cause else None
        return node

    def visit_With(self, node: ast.With) -> ast.stmt:
        stores: list[ast.stmt] = []
        for item in node.items:
            item.context_expr = self.place(self.handler("context", self.visit(item.context_expr)), item.context_expr)
            if item.optional_vars is not None:
                item.optional_vars, more = self.bound_target(item.optional_vars, node)
                if more and len(node.items) > 1:  # the store must come before the next manager is entered
                    raise NotConvertible("unsupported_syntax", "a with statement of several managers and a compound target")
                stores += more
        node.body = stores + self.body(node.body)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.refuse_shared_names([node.name] if node.name else [], "an exception handler")
        self.generic_visit(node)
        node.body.insert(0, self.statement(self.handler("caught"), node.body[0]))
        return node

    def visit_Try(self, node: Any) -> ast.stmt:
        leaves = any(isinstance(part, ast.Return | ast.Break | ast.Continue) for end in node.finalbody for part in ast.walk(end))
        self.generic_visit(node)
        if leaves:  # what is under way when it begins is handled by that
            node.finalbody.insert(0, self.statement(self.handler("caught"), node.finalbody[0]))
        return node

    visit_TryStar = visit_Try

    def visit_asynchronous(self, node: ast.AST) -> ast.AST:
        raise NotConvertible("unsupported_syntax", "an asynchronous statement")

    visit_AsyncWith = visit_AsyncFor = visit_asynchronous

    def visit_Match(self, node: ast.Match) -> ast.stmt:
        node.subject = self.place(self.handler("subject", self.visit(node.subject)), node.subject)
        for case in node.cases:
            if any(isinstance(part, ast.MatchClass | ast.Attribute) for part in ast.walk(case.pattern)):
                raise NotConvertible("unsupported_syntax", "a class or dotted name in a match pattern")
            case.guard = self.truth(case.guard) if case.guard else None
            case.body = self.body(case.body)
        return node

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        self.refuse_shared_names([(a.asname or a.name).split(".")[0] for a in node.names], "an import")
        statements: list[ast.stmt] = []
        for alias in node.names:
            name = ast.Constant(alias.name)
            statements += [
                self.statement(self.handler("importing", name), node),
                self.place(ast.Import([alias]), node),
                self.statement(self.handler("imported", name), node),
            ]
        return statements

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        if node.level or any(a.name == "*" for a in node.names):
            raise NotConvertible("unsupported_syntax", "a relative import inside a function")
        self.refuse_shared_names([a.asname or a.name for a in node.names], "an import")
        module, names = ast.Constant(node.module), [ast.Constant(a.name) for a in node.names]
        before = [self.statement(self.handler("importing", module, name), node) for name in names]
        return [*before, node, *(self.statement(self.handler("imported", module, name), node) for name in names)]

    def visit_Global(self, node: ast.stmt) -> ast.stmt:
        return node

    visit_Nonlocal = visit_Global
