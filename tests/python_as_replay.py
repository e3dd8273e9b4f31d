"""Python text as nodes of the language of replay, for tests of what is done with them."""

from __future__ import annotations

import ast
from typing import Any, Final

from tracejit.replay.ir import (
    And,
    Arithmetic,
    Attribute,
    Call,
    Compare,
    Conditional,
    Constant,
    Contains,
    Define,
    DeleteItem,
    Dictionary,
    Distinct,
    Evaluate,
    Expr,
    Identity,
    If,
    Increment,
    Is,
    Item,
    Length,
    ListOf,
    Miss,
    Name,
    Not,
    Or,
    Return,
    ReturnIf,
    SetAttribute,
    SetItem,
    SliceKey,
    Starred,
    Statement,
    TupleOf,
    TypeOf,
    Unary,
    Unpack,
)  # fmt: skip

__all__ = ["statements"]

_ARITHMETIC: Final = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.LShift: "<<",
    ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.MatMult: "@",
}  # fmt: skip
_UNARY: Final = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
_ORDER: Final = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.Gt: ">", ast.GtE: ">="}
_ASKING: Final = {"type": TypeOf, "len": Length, "id": Identity}


def statements(text: str, missed: str = "MISS") -> tuple[Statement, ...]:
    """missed: what a guard that fails returns."""
    return tuple([made for s in ast.parse(text).body for made in _statement(s, missed)])


def _expr(node: ast.expr) -> Expr:
    match node:
        case ast.Name(id=name):
            return Name(name)
        case ast.Constant(value=value):
            return Constant(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if type(value) is not bool:
            return Constant(-value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return Not(_expr(operand))
        case ast.UnaryOp(op=op, operand=operand):
            return Unary(_UNARY[type(op)], _expr(operand))
        case ast.Attribute(value=owner, attr=attr):
            return Attribute(_expr(owner), attr)
        case ast.Subscript(value=owner, slice=ast.Slice(lower=lower, upper=upper, step=None)):
            return Item(_expr(owner), SliceKey(*[None if end is None else _expr(end) for end in (lower, upper)]))
        case ast.Subscript(value=owner, slice=key):
            return Item(_expr(owner), _expr(key))
        case ast.BinOp(left=left, op=op, right=right):
            return Arithmetic(_ARITHMETIC[type(op)], _expr(left), _expr(right))
        case ast.Call(func=ast.Name(id=("type" | "len" | "id") as asked), args=[argument], keywords=[]):
            made: Expr = _ASKING[asked](_expr(argument))
            return made
        case ast.Call(func=function, args=arguments, keywords=keywords):
            named = tuple([(str(k.arg), _expr(k.value)) for k in keywords])
            return Call(_expr(function), tuple(map(_expr, arguments)), named)
        case ast.Tuple(elts=elements):
            found = tuple(map(_expr, elements))
            return TupleOf(found)
        case ast.List(elts=elements):
            return ListOf(tuple(map(_expr, elements)))
        case ast.Dict(keys=[]):
            return Dictionary()
        case ast.Starred(value=value):
            return Starred(_expr(value))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return Conditional(_expr(test), _expr(body), _expr(orelse))
        case ast.BoolOp(op=op, values=values):
            return (Or if isinstance(op, ast.Or) else And)(tuple(map(_expr, values)))
        case ast.Compare(left=left, ops=ops, comparators=rights):
            pairs = zip((left, *rights), ops, rights, strict=False)
            compared = tuple([_compared(a, relation, b) for a, relation, b in pairs])
            return compared[0] if len(compared) == 1 else And(compared)
    raise ValueError(f"the expression {ast.unparse(node)}")


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Expr:
    match left, op, right:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Set(elts=elements)]), ast.NotEq() | ast.Eq(), ast.Constant():
            found = Distinct(tuple([_expr(e.args[0]) for e in elements if isinstance(e, ast.Call)]))
            return found if isinstance(op, ast.Eq) else Not(found)
    a, b = _expr(left), _expr(right)
    if isinstance(op, (ast.Is, ast.IsNot)):
        return Is(a, b) if isinstance(op, ast.Is) else Not(Is(a, b))
    if isinstance(op, (ast.In, ast.NotIn)):
        return Contains(b, a) if isinstance(op, ast.In) else Not(Contains(b, a))
    return Compare(_ORDER[type(op)], a, b)


def _targets(target: Any) -> Any:
    return tuple([_targets(e) for e in target.elts]) if isinstance(target, ast.Tuple) else target.id


def _statement(statement: ast.stmt, missed: str) -> list[Statement]:
    match statement:
        case ast.If(test=test, body=[ast.Return(value=value)], orelse=[]) if value is not None:
            answer = _expr(value)
            return [Miss(_expr(test)) if str(answer) == missed else ReturnIf(_expr(test), answer)]
        case ast.If(test=test, body=body, orelse=[]):
            return [If(_expr(test), tuple([made for s in body for made in _statement(s, missed)]))]
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return [Define(name, _expr(value))]
        case ast.Assign(targets=[ast.Name(id=name), ast.Attribute(value=owner, attr=attr)], value=value):
            return [Define(name, _expr(value)), SetAttribute(_expr(owner), attr, Name(name))]
        case ast.Assign(targets=[ast.Attribute(value=owner, attr=attr)], value=value):
            return [SetAttribute(_expr(owner), attr, _expr(value))]
        case ast.Assign(targets=[ast.Subscript(value=owner, slice=key)], value=value):
            return [SetItem(_expr(owner), _expr(key), _expr(value))]
        case ast.Assign(targets=[ast.Tuple() as target], value=value):
            return [Unpack(_targets(target), _expr(value))]
        case ast.AugAssign(target=target, op=ast.Add(), value=ast.Constant(value=int() as amount)):
            location = _expr(target)
            if isinstance(location, Item):
                return [Increment(location, amount)]
        case ast.Return(value=value):
            return [Return(Constant(None) if value is None else _expr(value))]
        case ast.Delete(targets=[ast.Subscript(value=owner, slice=key)]):
            return [DeleteItem(_expr(owner), _expr(key))]
        case ast.Expr(value=value):
            return [Evaluate(_expr(value))]
        case ast.Pass():
            return []
    raise ValueError(f"the statement {ast.unparse(statement)}")
