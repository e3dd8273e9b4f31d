"""Rewrites the statements of one function's body; expressions.py rewrites the expressions in them.

`Rewriter` turns loads and stores into calls of methods of `__capture__` (`frame.CaptureFrame`).  The order and the number of
evaluations remain those of the source.  Bodies of nested functions are not rewritten; bodies of classes are.  It works on syntax
trees alone, and must not know running code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import astuple
from typing import Any

from tracejit.capture.syntax.comprehensions import (
    CollectingComprehension,
    ExpressionLocation,
    expression_at,
    find_collecting_comprehension,
    replace_expression_at,
)
from tracejit.capture.syntax.expressions import CAPTURE, SYMBOLS, target_pattern
from tracejit.capture.syntax.locate import NotConvertible
from tracejit.capture.syntax.loops import (
    LoopNames,
    compared,
    is_unbind_call,
    kept_counter,
    list_growth,
    loop_names,
    name_uses,
    number_uses,
)
from tracejit.capture.syntax.matching import MatchRewriter
from tracejit.capture.syntax.scopes import declared_names, names_stored_by
from tracejit.capture.syntax.tree_walk import walk

__all__ = ["CELLS", "Rewriter"]

Making = tuple[list[ast.stmt], list[ast.stmt], Callable[[], ast.expr]]
"""(statements before the loop that replaces a comprehension, statements after it, makes the comprehension itself)."""
_PASSING = frozenset({"enumerate", "zip"})
"""Builtins whose result only the loop has, if a call of them is the header of the loop."""
CELLS = "__cells__"
"""The name of the argument of functions that are never called: their closures have the cells around a class body."""


def _no_arguments() -> ast.arguments:
    """The arguments of such a function."""
    return ast.arguments([], [ast.arg(CELLS)], None, [], [], None, [])


def _are_names(targets: Iterable[ast.expr]) -> bool:
    return all(isinstance(target, ast.Name) for target in targets)


class Rewriter(MatchRewriter, ast.NodeTransformer):
    """Rewrites the body of one function."""

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        if node.value is not None:
            node.value = self.returned(node.value)
        return node

    # -- definitions: bodies are not rewritten
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        self.refuse_shared_names([node.name], "a definition")
        node.args = self.visit_defaults(node.args)
        decorators = [self.visit(d) for d in node.decorator_list]
        new_object = self.located(ast.Attribute(ast.Name(CAPTURE, ast.Load()), "new_object", ast.Load()), node)
        node.decorator_list = [*(self.located(self.entry_point("callee", d), d) for d in decorators), new_object]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> list[ast.stmt]:
        self.refuse_shared_names([node.name], "a class statement")
        node.decorator_list = [self.located(self.entry_point("callee", self.visit(d)), d) for d in node.decorator_list]
        try:
            body = ClassBody(self, node).statements(node)
        except NotConvertible as error:
            return self.uninstrumented_class(node, error.detail)
        name, metaclass = ast.Constant(node.name), next((self.concretise(k.value) for k in node.keywords), ast.Constant(None))
        bases = ast.Tuple([self.concretise(base) for base in node.bases], ast.Load())
        node.bases = [self.located(ast.Starred(self.entry_point("class_bases", name, bases), ast.Load()), node)]
        node.keywords = [self.located(ast.keyword("metaclass", self.entry_point("class_maker", name, metaclass)), node)]
        node.body = body
        return [self.located(node, node)]

    def uninstrumented_class(self, node: ast.ClassDef, hindrance: str) -> list[ast.stmt]:
        """A class statement whose body cannot be rewritten: it stops the recording.  hindrance: why."""
        around = ast.Tuple([ast.Name(name, ast.Load()) for name in sorted(self.captured)], ast.Load())
        arguments = ast.Constant(node.name), ast.Constant(hindrance), ast.Lambda(_no_arguments(), around)
        body = self.entry_point("class_body", *arguments)
        node.bases = [self.concretise(base) for base in node.bases]
        node.keywords = [ast.keyword(k.arg, self.concretise(k.value)) for k in node.keywords]
        return [self.statement(body, node), node]

    def refuse_shared_names(self, names: Iterable[str], what: str) -> None:
        if any(name in self.globals or name in self.nonlocals for name in names):
            raise NotConvertible("unsupported_syntax", f"{what} of a global or nonlocal name")

    # -- stores
    def store(self, target: ast.expr, value: ast.expr, node: ast.AST) -> list[ast.stmt]:
        """Statements that store `value`, which is rewritten already, in `target`."""
        if isinstance(target, ast.Attribute):
            return [
                self.statement(
                    self.entry_point("set_attribute", value, self.visit(target.value), self.name_constant(target.attr)), node
                )
            ]
        if isinstance(target, ast.Subscript):
            loops = self.loops_along(target)
            target_parts = self.visit(target.value), self.visit(target.slice)
            name = "set_item_along" if loops else "set_item"
            return [self.statement(self.entry_point(name, value, *target_parts, *loops), node)]
        if isinstance(target, ast.Name):
            for names, handler in ((self.globals, "store_global"), (self.nonlocals, "store_free")):
                if target.id in names:
                    value = self.entry_point(handler, self.name_constant(target.id), value)
            if self.mangle(target.id) in self.captured:  # nested functions read it
                value = self.entry_point("argument", value)
            return [self.located(ast.Assign([target], value), node)]
        simple, after = self.simplified(target, node)
        unpacked = self.entry_point("unpack", value, ast.Constant(target_pattern(simple)))
        return [self.located(ast.Assign([simple], unpacked), node), *after]

    def simplified(self, target: ast.expr, node: ast.AST) -> tuple[ast.expr, list[ast.stmt]]:
        """A target in which all parts from the first one on that is no local name are replaced by temporaries; and the statements
        that store these in the parts, in order (in `items[i], i = ...` the first store uses the old `i`)."""
        after: list[ast.stmt] = []

        def visit(part: ast.expr, starred: bool = False) -> ast.expr:
            if isinstance(part, ast.Tuple | ast.List) and not after:
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
            after.extend(self.store(part, self.entry_point("starred", value) if starred else value, node))
            return self.located(ast.Name(name, ast.Store()), part)

        return visit(target), after

    def appending(self, node: ast.Assign | ast.AugAssign) -> list[ast.stmt] | None:
        """For a statement that adds an item to a private list (`outs += [h]`, `outs = outs + [h]`): the rewritten
        `outs.append(h)`; else None."""
        growth = list_growth(node)
        if growth is None or growth.name not in self.lists:
            return None
        append = ast.Attribute(ast.Name(growth.name, ast.Load()), "append", ast.Load())
        return [self.visit(self.located(ast.Expr(ast.Call(append, [growth.item], [])), node))]

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        if (appended := self.appending(node)) is not None:
            return appended
        if node in self.increments:
            value = self.counter_increment(node, node.value.left, node.value.right, node.value.op)  # type: ignore[attr-defined]
        else:
            value = self.visit(node.value)
        if len(node.targets) == 1:
            return self.store(node.targets[0], value, node)
        name = self.temporary()
        statements: list[ast.stmt] = [self.located(ast.Assign([ast.Name(name, ast.Store())], value), node)]
        for target in node.targets:
            statements += self.store(target, ast.Name(name, ast.Load()), node)
        return [*statements, self.cleared(name, node)]

    def cleared(self, name: str, node: ast.stmt) -> ast.stmt:
        """A statement that clears a temporary: user code may observe when its value dies."""
        return self.located(ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)), node)  # type: ignore[no-any-return]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | list[ast.stmt]:
        return self.store(node.target, self.visit(node.value), node) if node.value else node

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        if (appended := self.appending(node)) is not None:
            return appended
        symbol = ast.Constant(SYMBOLS[type(node.op)])
        target = node.target
        if isinstance(target, ast.Name):
            load = ast.copy_location(ast.Name(target.id, ast.Load()), target)
            if node in self.increments:
                return self.store(target, self.counter_increment(node, load, node.value, node.op), node)
            load = self.visit(load)
            return self.store(target, self.entry_point("in_place", symbol, load, self.visit(node.value)), node)
        if isinstance(target, ast.Attribute):
            place = self.entry_point("attribute_place", self.visit(target.value), self.name_constant(target.attr))
        else:
            loops = self.loops_along(target)
            name = "item_place_along" if loops else "item_place"
            place = self.entry_point(name, self.visit(target.value), self.visit(target.slice), *loops)
        return [self.statement(self.entry_point("update_place", place, symbol, self.visit(node.value)), node)]

    def counter_increment(self, node: ast.stmt, left: ast.expr, right: ast.expr, op: ast.operator) -> ast.expr:
        """The value that a statement of `self.increments` assigns: a counter and a number added up."""
        in_place, loop = ast.Constant(isinstance(node, ast.AugAssign)), ast.Name(self.increments[node], ast.Load())
        operands = ast.Constant(SYMBOLS[type(op)]), self.visit(left), self.visit(right)
        return self.located(self.entry_point("increment_counter", *operands, in_place, loop), node)

    def visit_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                call = self.entry_point("delete_attribute", self.visit(target.value), self.name_constant(target.attr))
            elif isinstance(target, ast.Subscript):
                call = self.entry_point("delete_item", self.visit(target.value), self.visit(target.slice))
            elif isinstance(target, ast.Name):
                self.refuse_shared_names([target.id], "deletion")
                statements.append(self.located(ast.Delete([target]), node))
                continue
            else:
                raise NotConvertible("unsupported_syntax", "del of a tuple of targets")
            statements.append(self.statement(call, node))
        return statements

    # -- statements
    def function_body(self, node: ast.FunctionDef) -> list[ast.stmt]:
        """The body of the function, after statements that mark the containers of `*args` and `**kwargs` as created, if nested
        functions read them."""
        names = [a.arg for a in (node.args.vararg, node.args.kwarg) if a and self.mangle(a.arg) in self.captured]
        first = node.body[0]
        marks = [self.statement(self.entry_point("starred", ast.Name(name, ast.Load())), first) for name in names]
        return [*marks, *self.body(node.body)]

    def body(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in statements:
            before, after = self.around_comprehension(statement)
            visited = self.visit(statement)
            result += [*before, *(visited if isinstance(visited, list) else [visited]), *after]
        return result

    def around_comprehension(self, node: ast.stmt) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Statements before and after one that has a collecting comprehension (comprehensions.py).

        The comprehension becomes a loop before the statement, which runs if the comprehension has a symbolic trip count:

            loop = __capture__.loop(...)
            value = ...                      # what the comprehension iterates over
            if __capture__.is_loop_over(loop, value):
                items = []
                for ... in loop: items.append(...)
            else:
                items = [... for ... in materialised(value)]
        """
        collecting = None if self.is_generator else find_collecting_comprehension(node, self.lists)
        if collecting is None or (isinstance(node, ast.AugAssign) and not self.is_private(expression_at(collecting.before[0]))):
            return [], []
        comprehension, (generator,) = collecting.comprehension, collecting.comprehension.generators
        items, value, loop = self.temporary() if collecting.added is None else self.sum_name(), self.temporary(), self.temporary()
        repeated = self.located(collecting.loop(items, self.temporary().rstrip("_")), comprehension)
        local = {items, value, *[part.id for part in walk(repeated.target) if isinstance(part, ast.Name)]}
        shared, lists = self.globals | self.nonlocals, self.lists | ({items} if collecting.added is None else set())
        names = loop_names(repeated, self.local | local, self.captured, shared, lists)
        if names is None or (collecting.added is None and names.appended != (items,)):
            return [], []
        self.local |= local
        self.lists = lists
        iterable, _ = self.header(repeated.iter, loop)
        earlier = [self.into_variable(location) for location in collecting.before if not self.is_private(expression_at(location))]
        makes = self.collected_by if collecting.added is None else self.added_up_by
        first, last, whole = makes(collecting, repeated, items, loop)
        create_loop, *looped = self.loop_over_steps(repeated, names, loop, ast.Name(loop, ast.Load()))
        generator.iter = ast.Name(value, ast.Load())
        materialised = self.assigned(value, self.entry_point("materialised", ast.Name(value, ast.Load())))
        condition: ast.expr = self.entry_point("is_loop_over", ast.Name(loop, ast.Load()), ast.Name(value, ast.Load()))
        if collecting.added is not None:
            condition = ast.BoolOp(ast.And(), [self.entry_point("is_sum", copy(collecting.added.func)), condition])
        choice = ast.If(condition, [*first, *looped, *last], [materialised, self.assigned(items, whole())])
        before = [*earlier, create_loop, self.assigned(value, iterable), choice]
        replace_expression_at(collecting.location, self.located(ast.Name(items, ast.Load()), comprehension))
        after = [] if isinstance(node, ast.Return) else [self._forgetting([items, value], comprehension)]
        return [self.located(statement, comprehension) for statement in before], after

    def collected_by(self, collecting: CollectingComprehension, _repeated: ast.For, items: str, _loop: str) -> Making:
        """See Making, for a comprehension that becomes a loop which appends to the list `items`."""
        if not isinstance(collecting.location[0], ast.stmt):
            self.joining.add(collecting.location[0])
        empty = self.new_object(self.located(ast.List([], ast.Load()), collecting.comprehension))
        return [self.assigned(items, empty)], [], lambda: self.comprehension(collecting.comprehension)

    def added_up_by(self, collecting: CollectingComprehension, repeated: ast.For, total: str, loop: str) -> Making:
        """See Making, for a generator in `sum(...)` that becomes a loop which adds to `total`."""
        assert collecting.added is not None
        call, numbers = collecting.added, self.temporary()
        self.local.add(numbers)
        self.sums[repeated.body[0].value] = loop, numbers  # type: ignore[attr-defined]
        begin = next(iter([*call.args[1:], *[part.value for part in call.keywords]]), ast.Constant(0))
        first = [self.assigned(total, copy(begin)), self.assigned(numbers, ast.List([], ast.Load()))]
        variables = [ast.Name(numbers, ast.Load()), ast.Name(total, ast.Load())]
        last = [self.assigned(total, self.entry_point("sum_of", *variables)), self._forgetting([numbers], call)]
        return first, last, lambda: self.visit(call)

    def sum_name(self) -> str:
        """A new variable for a sum, which is carried by the steps of a loop."""
        self.temporaries += 1
        return f"__sum_{self.temporaries}__"

    def is_private(self, node: ast.expr) -> bool:
        """Whether an expression is a literal, or a variable that only this function's own statements change."""
        return not isinstance(node, ast.Name | ast.Attribute) or (
            isinstance(node, ast.Name) and self.mangle(node.id) in self.local - self.captured - self.gathered
        )

    def into_variable(self, location: ExpressionLocation) -> ast.stmt:
        """Replace the expression at a location by a new variable; returns the statement that assigns the expression to it."""
        name, expression = self.temporary(), expression_at(location)
        statement = self.assigned(name, self.visit(expression))
        self.local.add(name)
        replace_expression_at(location, ast.copy_location(ast.Name(name, ast.Load()), expression))
        return statement

    @staticmethod
    def assigned(name: str, value: ast.expr) -> ast.stmt:
        return ast.Assign([ast.Name(name, ast.Store())], value)

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
        """A local name as the target of `for` or `with`, and the statements that store it in the real target."""
        if isinstance(target, ast.Name) and target.id not in self.globals | self.nonlocals:
            return target, []
        name = self.temporary()
        return self.located(ast.Name(name, ast.Store()), target), self.store(target, ast.Name(name, ast.Load()), node)

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        names = loop_names(node, self.local, self.captured, self.globals | self.nonlocals, self.lists, self.uses)
        if names is not None:
            return self.watched_loop(node, names)
        iterable = self.visit(node.iter)
        node.target, stores = self.bound_target(node.target, node)
        node.iter = self.entry_point("iterate", iterable, ast.Constant(None))
        node.body = stores + self.body(node.body)
        node.orelse = self.body(node.orelse)
        return self.located(node, node)

    def watched_loop(self, node: ast.For, names: LoopNames) -> list[ast.stmt]:
        """A `for` loop with a recogniser (loop_recogniser.py)."""
        loop, header = self.temporary(), node.iter
        iterable, passing = self.header(header, loop)
        steps = self.entry_point("steps", ast.Name(loop, ast.Load()), iterable, ast.Constant(passing))
        return self.loop_over_steps(node, names, loop, self.located(steps, header))

    def header(self, header: ast.expr, loop: str) -> tuple[ast.expr, str]:
        """The rewritten header of a recognised loop, and the `passing` argument of `CaptureFrame.steps`.  loop: the variable of
        the loop."""
        passing = ""
        if (
            isinstance(header, ast.Call)
            and isinstance(header.func, ast.Name)
            and header.func.id in _PASSING - self.local - self.free
        ):
            passing = header.func.id
        self.headers = dict.fromkeys(self.header_calls(header), loop)
        iterable = self.visit(header)
        self.headers = {}
        return iterable, passing

    def header_calls(self, header: ast.expr) -> Iterator[ast.Call]:
        """The calls in the header of a loop that an IterationSpace can describe: `range(n)`, and in `enumerate(zip(xs, ys))` the
        calls inside each other."""
        if self.is_counted(header):
            yield header  # type: ignore[misc]
            for argument in header.args:  # type: ignore[attr-defined]
                yield from self.header_calls(argument)
        elif is_unbind_call(header):
            yield header  # type: ignore[misc]

    def loop_over_steps(self, node: ast.For, names: LoopNames, loop: str, steps: ast.expr) -> list[ast.stmt]:
        """The statements of a recognised loop over `steps`.  At the beginning of each step the recogniser may skip the steps up
        to the last; then the variables get their values after these steps:

            loop = __capture__.loop(...)
            for x in steps:
                if __capture__.skips_steps(loop):
                    x, h, ... = __capture__.loop_exit_values(loop)
                ...
            loop = None
        """
        header = node.iter
        node.iter = steps
        node.target, stores = self.bound_target(node.target, node)
        create = ast.Assign(
            [ast.Name(loop, ast.Store())], self.entry_point("loop", *map(ast.Constant, self.mangled(astuple(names))))
        )
        targets = [copy(node.target), *[ast.Name(name, ast.Store()) for name in names.stored]]
        assign = ast.Assign([ast.Tuple(targets, ast.Store())], self.entry_point("loop_exit_values", ast.Name(loop, ast.Load())))
        delete = [self.unbound_again(name) for name in names.stored if name not in names.targets]
        skip = ast.If(self.entry_point("skips_steps", ast.Name(loop, ast.Load())), [assign, *delete], [])
        kept = {name: kept_counter(name, node.body) for name, _ in names.kept}
        counters = (*names.counters, *names.numbers, *kept)
        around, self.counters = self.counters, {**self.counters, **dict.fromkeys(names.targets), **dict.fromkeys(counters, loop)}
        increments = {id(counter.statement): name for name, counter in kept.items() if counter is not None}
        self.increments.update((counter.statement, loop) for counter in kept.values() if counter is not None)
        computed = {name: number_uses(name, node.body) or () for name in names.numbers}
        ahead: set[str] = set()  # counters that the step has incremented before the current statement
        for statement in node.body:
            for name, number_names in computed.items():
                uses = {id(x) for x in name_uses(name, statement)}
                self.computed_with.update((x, (loop, name, int(name in ahead))) for x in number_names if id(x) in uses)
            if id(statement) in increments:
                ahead.add(increments[id(statement)])
        body = self.body(node.body)
        self.counters = around
        node.body = [self.located(skip, header), *stores, *body]
        node.orelse = self.body(node.orelse)
        clear = ast.Assign([ast.Name(loop, ast.Store())], ast.Constant(None))
        return [self.located(create, header), self.located(node, node), self.located(clear, header)]

    def unbound_again(self, name: str) -> ast.stmt:
        """A statement that deletes a variable if `loop_exit_values` says that it has no value."""
        return ast.If(self.entry_point("is_unbound", ast.Name(name, ast.Load())), [ast.Delete([ast.Name(name, ast.Del())])], [])

    def mangled(self, names: Any) -> Any:
        """Nested tuples of names, with all names mangled."""
        return tuple(map(self.mangled, names)) if type(names) is tuple else self.mangle(names) if type(names) is str else names

    def is_counted(self, header: ast.expr) -> bool:
        """Whether an expression is a call of `range`, `enumerate`, `zip` or `reversed`, by its name."""
        if not isinstance(header, ast.Call) or any(isinstance(part, ast.Starred) for part in header.args):
            return False
        function, count = header.func, len(header.args)
        if not isinstance(function, ast.Name) or function.id in self.local | self.free:
            return False
        if any(function.id != "zip" or part.arg != "strict" for part in header.keywords):
            return False
        counts = {"range": (1, 2, 3), "enumerate": (1, 2), "zip": range(1, 9), "reversed": (1,)}
        return count in counts.get(function.id, ())

    def visit_While(self, node: ast.While) -> ast.stmt | list[ast.stmt]:
        counted = self.counted_while(node)
        return self.visit_If(node) if counted is None else counted

    def counted_while(self, node: ast.While) -> list[ast.stmt] | None:
        """For a `while` loop that compares a counter of its steps (`while i < n`): a `for` loop with a recogniser in its place;
        else None."""
        first = node.test.values[0] if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else node.test
        if node.orelse or not isinstance(first, ast.Compare):
            return None
        end = self.located(ast.If(node.test, [ast.Pass()], [ast.Break()]), node.test)
        target = self.located(ast.Name(self.temporary(), ast.Store()), node.test)
        repeated = self.located(ast.For(target, node.test, [end, *node.body], [], None), node)
        names = loop_names(
            repeated, self.local | {target.id}, self.captured, self.globals | self.nonlocals, self.lists, self.uses
        )
        if names is None or not any(compared(first, [name for name, _ in names.kept])):
            return None
        loop = self.temporary()
        self.ends[first] = loop
        return self.loop_over_steps(repeated, names, loop, self.entry_point("while_steps", ast.Name(loop, ast.Load())))

    def visit_If(self, node: Any) -> ast.stmt:
        node.test = self.truth(node.test)
        node.body = self.body(node.body)
        node.orelse = self.body(node.orelse)
        return node  # type: ignore[no-any-return]

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        node.test = self.truth(node.test)
        node.msg = self.concretise(node.msg) if node.msg else None
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        if node.exc is not None:
            node.exc = self.located(self.entry_point("exception_to_raise", self.visit(node.exc)), node.exc)
            node.cause = self.visit(node.cause) if node.cause else None
        return node

    def visit_With(self, node: ast.With) -> ast.stmt:
        stores: list[ast.stmt] = []
        for item in node.items:
            item.context_expr = self.located(self.entry_point("context", self.visit(item.context_expr)), item.context_expr)
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
        node.body.insert(0, self.statement(self.entry_point("caught"), node.body[0]))
        return node

    def visit_Try(self, node: Any) -> ast.stmt:
        leaves = any(isinstance(part, ast.Return | ast.Break | ast.Continue) for end in node.finalbody for part in walk(end))
        self.generic_visit(node)
        if leaves:  # `return`, `break` or `continue` in `finally` swallows an exception, like an `except` block
            node.finalbody.insert(0, self.statement(self.entry_point("caught"), node.finalbody[0]))
        return node

    visit_TryStar = visit_Try

    def visit_PlainIf(self, node: ast.If) -> ast.stmt:
        return node

    def visit_PlainTry(self, node: ast.Try) -> ast.stmt:
        return node

    def visit_asynchronous(self, node: ast.AST) -> ast.AST:
        raise NotConvertible("unsupported_syntax", "an asynchronous statement")

    visit_AsyncWith = visit_AsyncFor = visit_asynchronous

    def visit_Match(self, node: ast.Match) -> list[ast.stmt]:
        names = [getattr(part, "name", None) or getattr(part, "rest", None) for case in node.cases for part in walk(case.pattern)]
        self.refuse_shared_names(filter(None, names), "a pattern")
        value = self.visit(node.subject)
        subject, conditions = self.match_as_conditions(node)
        otherwise = [self._forgetting([subject], node)]
        for case, (condition, used) in reversed(list(zip(node.cases, conditions, strict=True))):
            body = [self._forgetting([subject, *used], case.pattern), *self.body(case.body)]
            otherwise = [self.located(ast.If(condition, body, otherwise), case.pattern)]
        return [self.located(ast.Assign([ast.Name(subject, ast.Store())], value), node), *otherwise]

    def _forgetting(self, names: list[str], node: ast.AST) -> ast.stmt:
        """A statement that clears temporaries, so that they keep nothing alive."""
        return self.located(ast.Assign([ast.Name(name, ast.Store()) for name in names], ast.Constant(None)), node)

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        self.refuse_shared_names([(a.asname or a.name).split(".")[0] for a in node.names], "an import")
        statements: list[ast.stmt] = []
        for alias in node.names:
            name = ast.Constant(alias.name)
            statements += [
                self.statement(self.entry_point("importing", name), node),
                self.located(ast.Import([alias]), node),
                self.statement(self.entry_point("imported", name), node),
            ]
        return statements

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        if node.level or any(a.name == "*" for a in node.names):
            raise NotConvertible("unsupported_syntax", "a relative import inside a function")
        self.refuse_shared_names([a.asname or a.name for a in node.names], "an import")
        module, names = ast.Constant(node.module), [ast.Constant(a.name) for a in node.names]
        before = [self.statement(self.entry_point("importing", module, name), node) for name in names]
        return [*before, node, *(self.statement(self.entry_point("imported", module, name), node) for name in names)]

    def visit_Global(self, node: ast.stmt) -> ast.stmt:
        return node

    visit_Nonlocal = visit_Global


class ClassBody(Rewriter):
    """Rewrites the body of a class statement in a function.

    Names that the body binds are looked up in the namespace of the class, then among the globals; all other names are those of
    the function around it.  Raises NotConvertible for statements that are rare in a class body."""

    def __init__(self, around: Rewriter, node: ast.ClassDef) -> None:
        vars(self).update(vars(around))
        self.class_name = node.name
        if any(declared_names(node)):
            raise NotConvertible("unsupported_syntax", "a global or nonlocal name")
        if getattr(node, "type_params", None):
            raise NotConvertible("unsupported_syntax", "type parameters")
        if any(k.arg != "metaclass" for k in node.keywords):  # Python passes them to user code (`__init_subclass__`)
            raise NotConvertible("unsupported_syntax", "keywords")
        names = {*names_stored_by(node.body), "__module__", "__qualname__"}
        self.bound = frozenset(map(self.mangle, names))
        self.around: frozenset[str] = around.around if isinstance(around, ClassBody) else frozenset(around.local)
        self.local = set(self.around - self.bound)
        self.gathered = self.gathered - names
        self.captured, self.lists, self.globals, self.nonlocals = frozenset(), frozenset(), set(), set()
        self.first_argument = None
        self.counters, self.comprehension_names = {}, []

    def statements(self, node: ast.ClassDef) -> list[ast.stmt]:
        """The rewritten statements of the body, and a statement that names `__capture__`, by which convert.py recognises its
        code."""
        mention = self.statement(ast.Name(CAPTURE, ast.Load()), node.body[-1])
        return [*self.body(deepcopy(node.body)), mention]

    def body(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        visited = [self.visit(statement) for statement in statements]
        return [part for result in visited for part in (result if isinstance(result, list) else [result])]

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.stmt) and not isinstance(node, _IN_CLASS_BODIES):
            raise NotConvertible("unsupported_syntax", f"a statement in its body ({type(node).__name__})")
        return super().visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = self.mangle(node.id)
        if not isinstance(node.ctx, ast.Load) or name not in self.bound or any(name in x for x in self.comprehension_names):
            return super().visit_Name(node)
        if self.comprehension_names:
            raise NotConvertible("unsupported_syntax", f"a comprehension in its body that uses {node.id}")
        return self.located(self.entry_point("class_name", ast.Constant(name)), node)

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple) and _are_names(node.targets[0].elts):
            return self.store(node.targets[0], self.visit(node.value), node)
        if not _are_names(node.targets):
            raise NotConvertible("unsupported_syntax", "an assignment in its body to more than names")
        return [self.located(ast.Assign(node.targets, self.element(node.value)), node)]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Name):
            raise NotConvertible("unsupported_syntax", "an assignment in its body to more than names")
        annotation = node.annotation if self.postpones_annotations else self.visit(node.annotation)
        value = self.element(node.value) if node.value else None
        return self.located(ast.AnnAssign(node.target, annotation, value, node.simple), node)  # type: ignore[no-any-return]


_IN_CLASS_BODIES: tuple[type[ast.stmt], ...] = (
    ast.AnnAssign, ast.Assign, ast.ClassDef, ast.Expr, ast.FunctionDef, ast.If, ast.Pass,
)  # fmt: skip
"""Statements that a class body may have to be rewritten."""
