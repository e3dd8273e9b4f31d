"""replay/: what expressions print as, which functions are sound, and what they do as Python."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tracejit.replay.ir import (
    Arithmetic,
    Choice,
    Compare,
    Constant,
    Define,
    Either,
    Evaluate,
    Every,
    Expr,
    Function,
    Leave,
    Miss,
    Name,
    Not,
    Return,
    SetAttribute,
    SetItem,
    Statement,
    Tell,
    Unary,
    Unpack,
    When,
    names,
    renamed,
    tuple_of,
)
from tracejit.replay.python import load
from tracejit.replay.verify import InvalidFunction, verify

X, Y = Name("x"), Name("y")
MISSED = object()


def function(*body: Statement, guards: tuple[Statement, ...] = (), **options: Any) -> Function:
    return Function(("x", "y"), guards, (*body, Return(X)), Name("MISS"), **options)


def meaning(expression: Expr, x: Any, y: Any) -> Any:
    """What an expression is, by the meaning of its nodes."""
    match expression:
        case Name(name):
            return {"x": x, "y": y}[name]
        case Constant(value):
            return value
        case Arithmetic(symbol, a, b):
            left, right = meaning(a, x, y), meaning(b, x, y)
            return left + right if symbol == "+" else left - right if symbol == "-" else left * right
        case Unary(_, value):
            return -meaning(value, x, y)
        case Compare(_, a, b):
            return meaning(a, x, y) < meaning(b, x, y)
        case Not(value):
            return not meaning(value, x, y)
        case Either((a, b)):
            return meaning(a, x, y) or meaning(b, x, y)
        case Every((a, b)):
            return meaning(a, x, y) and meaning(b, x, y)
        case Choice(condition, a, b):
            return meaning(a if meaning(condition, x, y) else b, x, y)
    raise NotImplementedError(expression)


def larger(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        st.builds(Arithmetic, st.sampled_from("+-*"), inner, inner),
        st.builds(Unary, st.just("-"), inner),
        st.builds(Compare, st.just("<"), inner, inner),
        st.builds(Not, inner),
        st.builds(Either, pairs),
        st.builds(Every, pairs),
        st.builds(Choice, inner, inner, inner),
    )


@given(
    st.recursive(st.one_of(st.sampled_from([X, Y]), st.builds(Constant, st.integers(-3, 3))), larger),
    st.integers(-2, 2),
    st.integers(-2, 2),
)
def test_what_is_printed_means_what_the_nodes_mean(expression: Expr, x: int, y: int) -> None:
    assert eval(str(expression), {"x": x, "y": y}) == meaning(expression, x, y)


def test_constants_are_equal_where_type_and_bits_are() -> None:
    values: list[Any] = [0, 0.0, -0.0, False, "0", b"0", None, (0,), (False,)]
    assert len({Constant(value) for value in values}) == len(values)
    assert Constant(1.5) == Constant(3 / 2) and Constant((1, "a")) == Constant((1, "a"))


def test_names_are_found_and_replaced_everywhere_but_where_they_are_defined() -> None:
    statement = When(X.is_same(None), (Define("x", X.get("a").call(Y, key=X.at(Y))), SetAttribute(X, "b", tuple_of(Y, 1))))
    assert names(statement) == {"x", "y"}
    changed = renamed(statement, lambda name: name.call() if name == Y else name)
    assert str(changed) == "if x is None: x = x.a(y(), key=x[y()]); x.b = (y(), 1)"
    assert renamed(statement, lambda name: name) is statement


def test_an_error_in_a_guard_is_a_guard_that_fails_where_the_function_says_so() -> None:
    guards = (Define("v", X.at(0)), Miss(Name("v").is_same(None)))
    catching = load(function(guards=guards), "entry", {"MISS": MISSED}, "test")
    assert catching([1], 0) == [1] and catching([None], 0) is MISSED and catching([], 0) is MISSED
    with pytest.raises(IndexError):
        load(function(guards=guards, catches=False), "entry", {"MISS": MISSED}, "test")([], 0)


SOUND: list[Function] = [
    function(Define("v", X), Leave(Name("v").is_same(None), Y), SetItem(X, Constant(0), Y)),
    function(guards=(Unpack(("a", ("b", "_")), X), When(Name("a").is_same(None), (Define("b", Y), Miss(Name("b").is_same(Y)))))),
    function(Tell(Name("given").call()), Leave(X.is_same(None), Y)),
    function(guards=(Evaluate(Name("held").method("append", X)),), locks=True),
]


@pytest.mark.parametrize("sound", SOUND, ids=range(len(SOUND)))
def test_a_sound_function_passes(sound: Function) -> None:
    verify(sound, {"MISS", "given"})


UNSOUND: list[tuple[Function, str]] = [
    (function(Define("v", Name("w"))), "w is used and not defined: v = w"),
    (function(Define("v", X), Define("v", Y)), "v is defined twice: v = y"),
    (function(When(X, (Define("v", Y),))), "v is not defined outside the condition: v = y"),
    (function(SetAttribute(X, "a", Y), Leave(X.is_same(Y), Y)), "if x is y: return y, past the effect x.a = y"),
    (function(When(X, (Evaluate(X.call()),)), When(Y, (Miss(Y),))), "past the effect if x: x()"),
    (function(guards=(SetAttribute(X, "a", Y),)), "a guard that is none: x.a = y"),
    (function(guards=(Evaluate(X.call()),)), r"a guard that is none: x\(\)"),
    (function(Return(X)), "return x, and then return x"),
    (Function(("x",), (), (Define("v", X),), Name("MISS")), "a body that ends in v = x"),
]


@pytest.mark.parametrize(("unsound", "why"), UNSOUND, ids=range(len(UNSOUND)))
def test_a_function_that_breaks_a_rule_is_refused_with_the_statement(unsound: Function, why: str) -> None:
    with pytest.raises(InvalidFunction, match=why):
        verify(unsound, {"MISS", "given"})
