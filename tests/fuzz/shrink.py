"""Makes a failing program small: reductions of its syntax tree, each kept if the program still fails the same way.

Passes go from coarse to fine: calls, statements, what is around blocks, parameters, expressions, numbers.  Each pass walks over the
positions where it applies; after a success the same position is tried again, and passes repeat until none helps.  What a reduction makes
need not be a program: it is simply tried.
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.fuzz.values import array, literal

__all__ = ["shrink"]

Fails = Callable[[str], bool]
Reduction = Callable[[ast.Module], Iterator[Callable[[], None]]]
BLOCKS = ("body", "orelse", "finalbody")


def shrink(text: str, fails: Fails, seconds: float = 60.0) -> str:
    """The smallest program that was found in some time of this process, which fails as the given one."""
    end = time.process_time() + seconds
    best = ast.unparse(ast.parse(text))
    if not fails(best):
        return text
    before = ""
    while best != before and time.process_time() < end:
        before = best
        for reduction in (calls, statements, unwrapped, parameters, expressions, elements, numbers, keywords, names):
            best = _pass(best, reduction, fails, end)
    return _pass(best, literals, fails, end + 20)


def _pass(text: str, reduction: Reduction, fails: Fails, end: float) -> str:
    position = 0
    while time.process_time() < end:
        tree = ast.parse(text)
        changes = list(reduction(tree))
        if position >= len(changes):
            break
        try:
            changes[position]()
            candidate = ast.unparse(ast.fix_missing_locations(tree))
            ast.parse(candidate)
        except (SyntaxError, ValueError, AttributeError, TypeError, IndexError):
            position += 1
            continue
        if candidate != text and len(candidate) <= len(text) + 400 and fails(candidate):
            text = candidate
        else:
            position += 1
    return text


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in BLOCKS:
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield block


def calls(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """One call less."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "calls" and isinstance(node.value, ast.List):
            elements_ = node.value.elts
            if len(elements_) > 1:
                for i in range(len(elements_)):
                    yield lambda i=i, elements_=elements_: elements_.__delitem__(i)


def statements(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """One statement less, large ones first; of long blocks a half or a quarter at once."""
    for block in _blocks(tree):
        if len(block) > 3:
            for part in (len(block) // 2, len(block) // 4):
                for start in range(0, len(block), part) if part > 1 else ():
                    yield lambda block=block, start=start, part=part: _cut(block, start, start + part)
    for block in _blocks(tree):
        for i in reversed(range(len(block))):
            if not (len(block) == 1 and isinstance(block[0], ast.Pass)):
                yield lambda block=block, i=i: _cut(block, i, i + 1)


def _cut(block: list[ast.stmt], start: int, stop: int) -> None:
    block[start:stop] = []
    if not block:
        block.append(ast.Pass())


def unwrapped(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """What is in a compound statement instead of it."""
    for block in _blocks(tree):
        for i, statement in enumerate(block):
            if isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try):
                for name in BLOCKS:
                    inner = getattr(statement, name, None)
                    if inner:
                        yield lambda block=block, i=i, inner=inner: block.__setitem__(slice(i, i + 1), inner)
                        if name != "body":
                            yield lambda statement=statement, name=name: setattr(statement, name, [])
            if isinstance(statement, ast.Match):
                for case in statement.cases:
                    yield lambda block=block, i=i, case=case: block.__setitem__(slice(i, i + 1), case.body)
            if isinstance(statement, ast.ClassDef) and statement.bases:
                yield lambda statement=statement: setattr(statement, "bases", [])


def parameters(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """A parameter less, of a function and of the calls of it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("call_"):
            continue
        own = node.args
        offset = int(bool(own.args) and own.args[0].arg == "self")
        for i in range(offset, len(own.args)):
            yield lambda node=node, i=i, offset=offset: _without_parameter(tree, node, i, offset)
        for i in range(len(own.defaults)):
            yield lambda own=own, i=i: own.defaults.__delitem__(i)


def _without_parameter(tree: ast.Module, function: ast.FunctionDef, i: int, offset: int) -> None:
    own = function.args
    first_default = len(own.args) - len(own.defaults)
    if i >= first_default:
        del own.defaults[i - first_default]
    name = own.args.pop(i).arg
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("f", function.name, f"self.{function.name}"):
            if i - offset < len(node.args):
                del node.args[i - offset]
            node.keywords = [k for k in node.keywords if k.arg != name]


def _locations(tree: ast.AST) -> Iterator[tuple[Any, str, int | None, ast.expr]]:
    """(owner, field, index, expression) of all expressions."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                yield node, name, None, value
            elif isinstance(value, list):
                for i, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        yield node, name, i, item


def _put(owner: Any, name: str, index: int | None, value: ast.expr) -> None:
    if index is None:
        setattr(owner, name, value)
    else:
        getattr(owner, name)[index] = value


def expressions(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """A part of an expression instead of it."""
    for owner, name, index, value in _locations(tree):
        if isinstance(getattr(value, "ctx", None), ast.Store | ast.Del) or name in (
            "targets",
            "target",
            "returns",
            "decorator_list",
        ):
            continue
        for part in _parts(value):
            yield lambda owner=owner, name=name, index=index, part=part: _put(owner, name, index, part)


def _parts(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and ast.unparse(value.func.value) not in (
            "T",
            "F",
            "math",
            "T.autograd",
            "T.linalg",
            "T.nn",
        ):
            yield value.func.value
        yield from value.args
        yield from (k.value for k in value.keywords)
    elif isinstance(value, ast.BinOp):
        yield from (value.left, value.right)
    elif isinstance(value, ast.BoolOp):
        yield from value.values
    elif isinstance(value, ast.UnaryOp):
        yield value.operand
    elif isinstance(value, ast.Compare):
        yield value.left
        yield from value.comparators
        yield ast.Constant(True)
        yield ast.Constant(False)
    elif isinstance(value, ast.Subscript | ast.Attribute | ast.Starred | ast.NamedExpr):
        if ast.unparse(value.value) not in ("T", "F", "math"):
            yield value.value
            if isinstance(value, ast.Attribute):
                yield ast.Constant(1)
    elif isinstance(value, ast.IfExp):
        yield from (value.body, value.orelse)
    elif isinstance(value, ast.Tuple | ast.List) and value.elts:
        yield from value.elts
    elif isinstance(value, ast.Dict):
        yield from value.values
    elif isinstance(value, ast.Lambda):
        yield value.body
    elif isinstance(value, ast.Slice):
        yield from (part for part in (value.lower, value.upper) if part)


def elements(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """An element, an item, an argument or a slice's end less."""
    for node in ast.walk(tree):
        for name in ("elts", "args", "keywords", "comparators", "handlers", "cases", "ifs", "generators", "items"):
            items = getattr(node, name, None)
            if isinstance(items, list) and items and not isinstance(node, ast.arguments):
                for i in range(len(items)):
                    yield lambda items=items, i=i: items.__delitem__(i)
        if isinstance(node, ast.Dict):
            for i in range(len(node.keys)):
                yield lambda node=node, i=i: (node.keys.__delitem__(i), node.values.__delitem__(i))
        if isinstance(node, ast.Slice):
            for name in ("lower", "upper", "step"):
                if getattr(node, name):
                    yield lambda node=node, name=name: setattr(node, name, None)


def numbers(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """Smaller numbers; plain tensors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            simpler = [v for v in (0, 1, 2, 3) if isinstance(node.value, int) and node.value > v]
            if isinstance(node.value, int) and node.value > 8:
                simpler.append(node.value // 2)
            if isinstance(node.value, float):
                simpler = [v for v in (1.0, 2.0, 0.5) if v != node.value and len(repr(v)) < len(repr(node.value))]
            for value in simpler:
                yield lambda node=node, value=value: setattr(node, "value", value)
        if isinstance(node, ast.Constant) and node.value in (
            "float64",
            "float32",
            "int64",
            "uint8",
            "int8",
            "int16",
            "int32",
            "bool",
        ):
            for value in ("float32", "int64"):
                if value != node.value != "float32":
                    yield lambda node=node, value=value: setattr(node, "value", value)


def keywords(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """Assignments and augmented assignments as what they compute."""
    for block in _blocks(tree):
        for i, statement in enumerate(block):
            if isinstance(statement, ast.Assign | ast.AugAssign):
                yield lambda block=block, i=i, statement=statement: block.__setitem__(i, ast.Expr(statement.value))


def names(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """What a name was assigned instead of the name, where it is assigned once and used once."""
    for function in [tree, *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))]:
        for i, statement in enumerate(function.body):
            if (
                not isinstance(statement, ast.Assign)
                or not isinstance(statement.targets[0], ast.Name)
                or len(statement.targets) > 1
            ):
                continue
            name = statement.targets[0].id
            uses = [
                p
                for p in _locations(function)
                if isinstance(p[3], ast.Name) and p[3].id == name and isinstance(p[3].ctx, ast.Load)
            ]
            if len(uses) == 1 and name not in ("calls", "target"):
                yield lambda function=function, i=i, statement=statement, use=uses[0]: (
                    _put(*use[:3], copy.deepcopy(statement.value)),
                    function.body.__delitem__(i),
                )


def literals(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """Small tensors written out."""
    for owner, name, index, value in _locations(tree):
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "made":
            try:
                values: np.ndarray = array(*map(ast.literal_eval, value.args))
            except (ValueError, TypeError, OverflowError):
                continue
            if values.size <= 12:
                yield lambda owner=owner, name=name, index=index, values=values: _put(
                    owner, name, index, ast.parse(literal(values), mode="eval").body
                )
