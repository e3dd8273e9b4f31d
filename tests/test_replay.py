"""replay/: what expressions print as, which functions are sound, and what they do as Python."""

from __future__ import annotations

import operator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tracejit.replay.ir import (
    And,
    Arithmetic,
    Compare,
    Conditional,
    Constant,
    Define,
    Distinct,
    Evaluate,
    Expr,
    Function,
    If,
    Miss,
    Name,
    Not,
    Notify,
    Or,
    Return,
    ReturnIf,
    SetAttribute,
    SetItem,
    Statement,
    TupleOf,
    Unary,
    Unpack,
    names,
    renamed,
    tuple_of,
)
from tracejit.replay.python import _compiled, load, render
from tracejit.replay.repeats import Repeat, repeats
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
            return {"+": operator.add, "-": operator.sub, "*": operator.mul, "**": operator.pow}[symbol](left, right)
        case Unary(_, value):
            return -meaning(value, x, y)
        case Compare(_, a, b):
            return meaning(a, x, y) < meaning(b, x, y)
        case Not(value):
            return not meaning(value, x, y)
        case Or((a, b)):
            return meaning(a, x, y) or meaning(b, x, y)
        case And((a, b)):
            return meaning(a, x, y) and meaning(b, x, y)
        case Conditional(condition, a, b):
            return meaning(a if meaning(condition, x, y) else b, x, y)
    raise NotImplementedError(expression)


def larger(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        st.builds(Arithmetic, st.sampled_from("+-*"), inner, inner),
        st.builds(Arithmetic, st.just("**"), st.builds(Constant, st.integers(-2, -1)), st.builds(Constant, st.integers(0, 3))),
        st.builds(Arithmetic, st.just("**"), inner, st.sampled_from([Constant(0), Constant(1), Constant(2)])),
        st.builds(Unary, st.just("-"), inner),
        st.builds(Compare, st.just("<"), inner, inner),
        st.builds(Not, inner),
        st.builds(Or, pairs),
        st.builds(And, pairs),
        st.builds(Conditional, inner, inner, inner),
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
    statement = If(X.is_same(None), (Define("x", X.get("a").call(Y, key=X.at(Y))), SetAttribute(X, "b", tuple_of(Y, 1))))
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


def parts(count: int, skipped: int = -1) -> tuple[Statement, ...]:
    """Guards that take the items of `x` apart, and compare each with one of `y`; one of them otherwise."""
    found: list[Statement] = []
    for k in range(count):
        found += [Define(f"v{k}", X.at(k)), Miss(Name(f"v{k}").compared("<" if k == skipped else ">", Y.at(count - 1 - k)))]
        found += [Define(f"w{k}", Name(f"v{k}").of("+", k)), Miss(Name(f"w{k}").is_same(None))]
    return tuple(found)


def test_functions_that_differ_in_numbers_of_variables_have_one_code_and_others_do_not() -> None:
    def answering(value: Any, key: Any = 0) -> Any:
        guards = (Define("v", Constant(value)), Miss(X.at(Constant(key)).is_same(None)))
        return load(Function(("x", "y"), guards, (Return(Name("v")),), Name("MISS")), "entry", {"MISS": MISSED}, "test")

    values = [3, 4, 5.0, -0.0, 0.0, True, "3"]
    found = [answering(value) for value in values]
    assert [repr(entry([1], None)) for entry in found] == list(map(repr, values))
    before = _compiled.cache_info()
    answering(17)([1], None)
    answering(18.5)([1], None)
    after = _compiled.cache_info()
    assert (after.hits - before.hits, after.misses) == (2, before.misses)
    assert answering(1, True)([0, 1], None) == 1 and _compiled.cache_info().misses == after.misses + 1  # 1 and True are two keys


def test_guards_that_repeat_themselves_are_a_loop_that_answers_what_they_answer() -> None:
    count = 40
    sums = Return(tuple_of(*[Name(f"{letter}{k}") for letter in "vw" for k in range(count)]))
    f = Function(("x", "y"), parts(count), (sums,), Name("MISS"))
    (loop,) = repeats(f.guards, True)
    assert isinstance(loop, Repeat) and len(loop.body) == 4 and len(loop.made) == count
    text = render(f, "entry")
    assert text.count("for ") == 1 and text.count("return MISS") == 3  # two guards, and the handler
    entry, x, y = load(f, "entry", {"MISS": MISSED}, "test"), [*range(count)], [100] * count
    assert entry(x, y) == (*x, *[2 * k for k in x])
    for k in range(count):
        assert entry(x, [*y[:k], -1, *y[k + 1 :]]) is MISSED
        assert entry(x[:k], y) is MISSED


@pytest.mark.parametrize("before", [(X,), (X, tuple_of(X, Y)), (X, Y.at(1))])
def test_elements_of_a_tuple_that_are_alike_are_made_in_a_loop_and_in_their_order(before: tuple[Expr, ...]) -> None:
    count = 30
    items = [tuple_of(X, None, None), *[tuple_of(X, k, X.at(k)) for k in range(count)], Y.at(2)]
    found = Define("found", tuple_of(*before, TupleOf(tuple(items)), tuple_of(*[Y.at(k) for k in range(count)])))
    f = Function(("x", "y"), (found,), (Return(Name("found")),), Name("MISS"))
    text = render(f, "entry")
    assert text.count("for ") == (0 if Y.at(1) in before else 2)
    x, y = [k + 100 for k in range(count)], [k + 200 for k in range(count)]
    entry = load(f, "entry", {"MISS": MISSED}, "test")
    *first, items_found, others = entry(x, y)
    assert items_found == ((x, None, None), *[(x, k, x[k]) for k in range(count)], y[2]) and others == tuple(y)
    assert first == list(eval(str(TupleOf(before)), {"x": x, "y": y}))
    assert entry(x[:-1], y) is MISSED and entry(x, y[:-1]) is MISSED


SEQUENCES = st.one_of(
    st.tuples(st.just("v"), st.integers(0, 59), st.integers(0, 60), st.integers(1, 5)),  # what one loop has made, or some of it
    st.tuples(st.just("ab"), st.integers(0, 29), st.integers(0, 30), st.just(1)),  # of each time of another one
    st.tuples(st.just("bc"), st.integers(0, 29), st.integers(0, 30), st.just(1)),
    st.tuples(st.just("cba"), st.integers(0, 29), st.integers(0, 30), st.just(1)),
    st.tuples(st.just("v"), st.integers(0, 59), st.just(0), st.integers(1, 20)),  # the same again and again
    st.tuples(st.just(""), st.integers(-3, 3), st.just(0), st.integers(1, 20)),  # numbers
)


def sequence(letters: str, first: int, last: int, step: int) -> list[Expr]:
    if not letters:
        return [Constant(k) for k in range(first, first + step)]
    if not last:
        return [Name(f"{letters[0]}{first}")] * step
    return [Name(f"{letter}{k}") for k in range(first, last, step) for letter in letters]


@given(st.lists(SEQUENCES, max_size=6), st.booleans())
def test_tuples_of_what_loops_have_made_are_what_they_were(drawn: list[tuple[str, int, int, int]], is_redefined: bool) -> None:
    guards: list[Statement] = []
    for k in range(60):
        guards += [Define(f"v{k}", X.at(k)), Miss(Name(f"v{k}").is_same(None))]
    for k in range(30):
        guards += [Define(f"{letter}{k}", Y.at(3 * k + position)) for position, letter in enumerate("abc")]
    if is_redefined:
        guards.append(If(X, (If(Y, (Define("v7", Constant("new")), Define("b9", Constant("new")))),)))
    elements = [element for one in drawn for element in sequence(*one)]
    others = elements[::-1]
    guards += [Define("found", tuple_of(TupleOf(tuple(elements)), X, *elements)), Define("again", TupleOf(tuple(others)))]
    f = Function(("x", "y"), tuple(guards), (Return(tuple_of(Name("found"), Name("again"))),), Name("MISS"))
    x, y = [f"x{k}" for k in range(60)], [f"y{k}" for k in range(90)]
    known = {f"v{k}": value for k, value in enumerate(x)} | {f"{'abc'[k % 3]}{k // 3}": value for k, value in enumerate(y)}
    if is_redefined:
        known |= {"v7": "new", "b9": "new"}
    one, two = (tuple([known[e.name] if isinstance(e, Name) else e.value for e in some]) for some in (elements, others))  # type: ignore[attr-defined]
    assert load(f, "entry", {"MISS": MISSED}, "test")(x, y) == ((one, x, *one), two)


def test_a_tuple_of_what_loops_have_made_names_none_of_it() -> None:
    guards = [statement for k in range(60) for statement in (Define(f"v{k}", X.at(k)), Define(f"w{k}", Y.at(k)))]
    everything = TupleOf(tuple([Name(f"{letter}{k}") for letter in "vw" for k in range(60)]))
    text = render(Function(("x", "y"), (*guards, Define("found", everything)), (Return(Name("found")),), Name("MISS")), "entry")
    assert text.count("w40") == 1  # where it gets its name
    distinct = Function(("x", "y"), (*guards, Miss(Not(Distinct(everything.elements)))), (Return(X),), Name("MISS"))
    assert render(distinct, "entry").count("w40") == 1
    entry, x, y = load(distinct, "entry", {"MISS": MISSED}, "test"), [[] for _ in range(60)], [[] for _ in range(60)]
    assert entry(x, y) is x and entry(x, [*y[:-1], x[3]]) is MISSED


@given(st.integers(0, 39))
def test_a_guard_among_those_that_repeat_themselves_which_is_another_one_stays(skipped: int) -> None:
    guards = parts(40, skipped)
    found = repeats(guards, True)
    assert len(found) < 40 and sum(len(r.body) * len(r.made) if isinstance(r, Repeat) else 1 for r in found) == len(guards)
    entry = load(Function(("x", "y"), guards, (Return(X),), Name("MISS")), "entry", {"MISS": MISSED}, "test")
    x, y = [*range(40)], [100] * 40
    assert entry(x, y) is MISSED
    y[39 - skipped] = -1
    assert entry(x, y) is x


def test_statements_that_repeat_themselves_with_the_same_names_and_constants_are_a_loop() -> None:
    guards = [Miss(X.at(0).is_same(None))] * 60
    made = [statement for k in range(30) for statement in (Define(f"v{k}", X.at(0)), Miss(Name(f"v{k}").is_same(None)))]
    sums = Return(tuple_of(*[Name(f"v{k}") for k in range(30)]))
    for statements, result in ((guards, Return(X)), (made, sums)):
        (loop,) = repeats(statements, True)
        assert isinstance(loop, Repeat) and loop.each == ()
        f = Function(("x", "y"), tuple(statements), (result,), Name("MISS"))
        entry = load(f, "entry", {"MISS": MISSED}, "test")
        assert entry([1, 2], [1, 2]) == ([1, 2] if statements is guards else (1,) * 30)
        assert entry([None, 2], [1, 2]) is MISSED


def test_statements_that_go_on_with_what_the_time_before_has_made_are_no_loop() -> None:
    chain = [Define("v0", X)]
    chain += [Define(f"v{k + 1}", Name(f"v{k}").at(0)) for k in range(3000)]
    assert repeats(chain, True) == chain


def test_effects_are_no_loop_but_for_those_on_what_it_makes() -> None:
    made = [
        statement
        for k in range(30)
        for statement in (Define(f"v{k}", Name("new").call()), SetAttribute(Name(f"v{k}"), "a", Constant(k)))
    ]
    given_away = [SetAttribute(X.at(k), "a", Name(f"v{k}")) for k in range(30)]
    renamed_first = [statement for k in range(30) for statement in (Define(f"w{k}", Name(f"v{k}")), SetItem(X, Constant(k), Y))]
    loop, *rest = repeats([*made, *given_away, *renamed_first], False)
    assert isinstance(loop, Repeat) and len(loop.made) == 30 and rest == [*given_away, *renamed_first]
    body = (*made, Return(tuple_of(*[Name(f"v{k}") for k in range(30)])))
    results = load(Function(("x", "y"), (), body, Name("MISS")), "entry", {"MISS": MISSED, "new": type("T", (), {})}, "test")(
        0, 0
    )
    assert [result.a for result in results] == list(range(30)) and len(set(map(id, results))) == 30


SOUND: list[Function] = [
    function(Define("v", X), ReturnIf(Name("v").is_same(None), Y), SetItem(X, Constant(0), Y)),
    function(guards=(Unpack(("a", ("b", "_")), X), If(Name("a").is_same(None), (Define("b", Y), Miss(Name("b").is_same(Y)))))),
    function(Notify(Name("given").call()), ReturnIf(X.is_same(None), Y)),
    function(guards=(Evaluate(Name("held").method("append", X)),), locks=True),
    Function(("x",), (Miss(Name("v")),), (Return(Name("v")),), Name("v"), first=(Define("v", X),)),
]


@pytest.mark.parametrize("sound", SOUND, ids=range(len(SOUND)))
def test_a_sound_function_passes(sound: Function) -> None:
    verify(sound, {"MISS", "given"})


UNSOUND: list[tuple[Function, str]] = [
    (function(Define("v", Name("w"))), "w is used and not defined: v = w"),
    (function(Define("v", X), Define("v", Y)), "v is defined twice: v = y"),
    (function(If(X, (Define("v", Y),))), "v is not defined outside the condition: v = y"),
    (function(SetAttribute(X, "a", Y), ReturnIf(X.is_same(Y), Y)), "if x is y: return y, past the effect x.a = y"),
    (function(If(X, (Evaluate(X.call()),)), If(Y, (Miss(Y),))), "past the effect if x: x()"),
    (function(guards=(SetAttribute(X, "a", Y),)), "a guard that is none: x.a = y"),
    (function(guards=(Evaluate(X.call()),)), r"a guard that is none: x\(\)"),
    (function(Return(X)), "return x, and then return x"),
    (function(first=(Evaluate(X.call()),)), r"before the guards: x\(\); expected what defines"),
    (Function(("x",), (), (Define("v", X),), Name("MISS")), "a body that ends in v = x"),
]


@pytest.mark.parametrize(("unsound", "why"), UNSOUND, ids=range(len(UNSOUND)))
def test_a_function_that_breaks_a_rule_is_refused_with_the_statement(unsound: Function, why: str) -> None:
    with pytest.raises(InvalidFunction, match=why):
        verify(unsound, {"MISS", "given"})
