"""Lists of a fixed length whose items the steps of an outlined loop (outlined_loops.py) store to, as tuples that they carry on.

    counts = [0, 0, 0]                        carried = (*counts,)
    for _ in range(n):                        step(carried):
        k = int(3 * rand(()))         ->          counts = [*carried]
        counts[k] += 1                            k = int(3 * rand(()))
                                                  counts[k] += 1
                                                  return (*counts,)
                                              counts[:] = carried

That is so for a list that the function has made before the loop, that nothing else can reach in the loop, and with which steps do
nothing but read and store items, go over them, and ask for its length, sum or largest item.  Each position that steps store to is a path
of its own: where that is the element of a loop, the list stays a variable that steps cannot carry on."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tracejit.capture.syntax.grown_lists import assigned, since_made
from tracejit.capture.syntax.locate import FunctionNode
from tracejit.capture.syntax.loops import OUTLINED, list_growth, name_uses, names_of_new_lists
from tracejit.capture.syntax.pieces import set_location
from tracejit.capture.syntax.scopes import names_stored_by
from tracejit.capture.syntax.tree_walk import walk

__all__ = ["LOOKING", "StoredList", "stored_lists"]


@dataclass(frozen=True, slots=True)
class StoredList:
    """A list whose items steps store to.  carried: the variable of the tuple."""

    name: str
    carried: str

    @property
    def items(self) -> ast.expr:
        """The tuple of what is in the list."""
        return ast.Tuple([ast.Starred(ast.Name(self.name, ast.Load()), ast.Load())], ast.Load())

    def read_before(self, loop: ast.stmt) -> ast.stmt:
        """What the loop begins with."""
        return assigned(self.carried, self.items, loop)

    def begin_step(self, like: ast.stmt) -> ast.stmt:
        """Have the step find a list."""
        items = ast.Starred(ast.Name(self.carried, ast.Load()), ast.Load())
        return assigned(self.name, ast.List([items], ast.Load()), like)

    def end_step(self, like: ast.stmt) -> ast.stmt:
        """What the next step begins with."""
        return assigned(self.carried, self.items, like)

    def stored_after(self, loop: ast.stmt) -> ast.stmt:
        """Put into the list what the loop ends with."""
        whole = ast.Subscript(ast.Name(self.name, ast.Load()), ast.Slice(), ast.Store())
        statement = ast.Assign([whole], ast.Name(self.carried, ast.Load()))
        set_location(statement, loop)
        return statement


_COPYING: Final = ("len", "max", "min", "any", "all", "sum", "sorted", "list", "tuple", "set")
"""Builtin functions that look at a list, their only argument, or at what a generator gives, and keep neither."""
_ITERATING: Final = ("zip", "enumerate", "reversed")
"""Builtin functions whose results keep a list while something goes over them."""
LOOKING: Final = (*_COPYING, *_ITERATING, "int")
"""The names by which lists are looked at, or made."""
_METHODS: Final = ("index", "count")


def stored_lists(node: FunctionNode, loop: ast.For | ast.While, bound: Collection[str]) -> list[StoredList]:
    """The lists whose items the steps of a loop store to.  node: the function.  bound: names that are no builtins in it."""
    looking = [name for name in LOOKING if name not in bound]
    parts: list[ast.AST] = [*loop.body, *([loop.test] if isinstance(loop, ast.While) else [])]
    stores = [x for part in parts for x in walk(part) if isinstance(x, ast.Subscript) and isinstance(x.ctx, ast.Store)]
    names = dict.fromkeys([x.value.id for x in stores if isinstance(x.value, ast.Name)])
    elements = {x.id for x in _targets(loop)}
    result: list[StoredList] = []
    for name in names:
        own = [x.slice for x in stores if isinstance(x.value, ast.Name) and x.value.id == name]
        by_element = any(isinstance(x, ast.Name) and x.id in elements for key in own for x in walk(key))
        if by_element or name in names_stored_by(loop.body) or any(name_uses(name, x) for x in loop.orelse):
            continue
        between = since_made(node, loop, name, lambda statement: _new_lists(node, statement, bound))
        if between and _only_looks(name, parts, looking) and _only_looks(name, between, looking, is_made=True):
            result.append(StoredList(name, f"{OUTLINED}stored_{loop.lineno}_{len(result)}__"))
    return result


def _only_looks(name: str, parts: Sequence[ast.AST], looking: Collection[str], is_made: bool = False) -> bool:
    """Whether parts of a function do nothing with a list but read and store items, and give it to functions that look at it.  is_made:
    whether the first one makes it; then it may get items, too."""
    known = int(is_made)
    for x in [x for part in parts for x in walk(part)]:
        match x:
            case ast.Subscript(ast.Name(found), key, ctx) if not isinstance(key, ast.Slice | ast.Tuple) and not isinstance(
                ctx, ast.Del
            ):
                known += found == name
            case ast.Call(ast.Name(function), [ast.Name(found)], []) if function in looking and function in _COPYING:
                known += found == name
            case ast.Call(ast.Name(function), [ast.GeneratorExp(_, generators)], _) if (
                function in looking and function in _COPYING
            ):
                known += sum(_times_gone_over(name, part.iter, looking) for part in generators)
            case ast.ListComp(_, generators) | ast.SetComp(_, generators) | ast.DictComp(_, _, generators):
                known += sum(_times_gone_over(name, part.iter, looking) for part in generators)
            case ast.For(_, iterable):
                known += _times_gone_over(name, iterable, looking)
            case ast.Call(ast.Attribute(ast.Name(found), method)) if method in _METHODS:
                known += found == name
        growth = list_growth(x) if is_made else None
        known += growth.uses if growth is not None and growth.name == name else 0
    return known == sum(len(name_uses(name, x)) for x in parts)


def _times_gone_over(name: str, iterable: ast.expr, looking: Collection[str]) -> int:
    """How often what a loop or comprehension goes over is a list of this name: `name`, `zip(name, others)`, `enumerate(name)`."""
    match iterable:
        case ast.Name(found):
            return int(found == name)
        case ast.Call(ast.Name(function), arguments) if function in looking and function in _ITERATING:
            return sum(_times_gone_over(name, x, looking) for x in arguments)
    return 0


def _new_lists(node: FunctionNode, statement: ast.AST, bound: Collection[str]) -> Iterator[str]:
    """The names to which a statement of a function assigns new lists.  bound: names that are no builtins in it."""
    yield from names_of_new_lists(statement)
    match statement:
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
            pairs = list(zip(targets, values, strict=True))
        case ast.Assign([target], value):
            pairs = [(target, value)]
        case _:
            pairs = []
    for target, value in pairs:
        match target, value:
            case ast.Name(name), ast.BinOp(ast.List(), ast.Mult(), times) if _is_integer(node, times, bound):
                yield name
            case ast.Name(name), ast.List([ast.Starred()]):  # in the step of a loop around this one
                yield name


def _is_integer(node: FunctionNode, x: ast.expr, bound: Collection[str]) -> bool:
    """Whether an expression of a function gives an integer, by its form: arrays and others make no list of `[0] * x`."""
    match x:
        case ast.Constant(int()):
            return True
        case ast.Call(ast.Name("len" | "int" as name), [_], []):
            return name not in bound
        case ast.Name(name) if not isinstance(node, ast.Lambda):
            stores = [
                part
                for part in walk(node)
                if isinstance(part, ast.Name) and part.id == name and not isinstance(part.ctx, ast.Load)
            ]
            values = [
                part.value for part in walk(node) if isinstance(part, ast.Assign) and any(y is part.targets[0] for y in stores)
            ]
            is_own = len(values) == len(stores) == 1 and name not in {
                arg.arg for arg in walk(node.args) if isinstance(arg, ast.arg)
            }
            return is_own and not isinstance(values[0], ast.Name) and _is_integer(node, values[0], bound)
    return False


def _targets(loop: ast.For | ast.While) -> Iterator[ast.Name]:
    """The variables of a loop, and of those in it, that hold elements."""
    for x in walk(loop):
        if isinstance(x, ast.For):
            yield from [part for part in walk(x.target) if isinstance(part, ast.Name)]
