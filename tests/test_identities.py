"""`a is b` of texts, in compiled functions: whether equal ones are one object is asked anew in each call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import tracejit as T

PHRASE = "a text of words"  # which Python does not share by itself
ROUNDS = 3


def another(text):
    """An equal text that is another object."""
    return "".join(list(text))


def compared(function, *calls, recordings=None, reason=None):
    """Eager and compiled calls with the same objects, several times over, agree.  recordings: how many are made."""
    compiled, x = T.compile(function), T.ones(2)
    for given in calls * ROUNDS:
        found, expected = compiled(x, *given), function(x, *given)
        assert T.equal(found, expected), (given, compiled.explain())
    assert {r.code for r in compiled.reasons} == ({reason} if reason else set()), compiled.explain()
    if recordings is not None:
        assert compiled.stats.traces == recordings, compiled.explain()
        assert compiled.stats.compiled_calls == len(calls) * ROUNDS - recordings
    return compiled


def test_attributes_are_compared_by_which_objects_they_hold():
    def step(x, one, other):
        return x * (2 if one.activation is other.activation else 3)

    def module(text):
        return SimpleNamespace(activation=text)

    first, second = another("relu"), another("relu")
    shared = [(module("relu"), module("relu")), (module(first), module(first)), (module(second), module(second))]
    apart = [(module(first), module(second)), (module("relu"), module(first)), (module(second), module("relu"))]
    compared(step, *shared, *apart, (module("gelu"), module("tanh")), recordings=3)


@pytest.mark.parametrize("text", [PHRASE, "word", "λ", b"some bytes"], ids=repr)
def test_arguments_are_compared_by_which_objects_they_are(text):
    copies = [bytes(list(text)) if type(text) is bytes else another(text) for _ in range(2)]

    def step(x, one, other):
        return x * (2 if one is not other else 3)

    compared(step, (text, text), (copies[0], copies[1]), (copies[1], copies[1]), (text, copies[0]), recordings=2)


def test_texts_of_one_character_are_one_object():
    def step(x, one, other):
        return x * (2 if one is other else 3)

    compared(step, ("a", another("a")), ("", another("")), recordings=2)


def test_a_literal_is_the_object_in_the_code_of_the_program():
    def step(x, given):
        words = "a text of words"
        return x * (2 if given is words else 3)

    (literal,) = [constant for constant in step.__code__.co_consts if constant == PHRASE]
    compared(step, (literal,), (another(PHRASE),), ("other words",), recordings=3)


def test_literals_in_tuples_and_loops_are_compared_by_identity():
    def step(x, given):
        for known in ("relu", "a text of words"):
            if given is known:
                x = x * 2
        return x

    compared(step, ("relu",), (another("relu"),), (PHRASE,), (another(PHRASE),))


def test_globals_closures_defaults_and_items_are_compared_by_identity():
    def made(mark):
        def step(x, given, default=PHRASE):
            return (
                x * (2 if given[0] is mark else 3) + (1 if given[1]["key"] is default else 0) + (5 if given[0] is PHRASE else 0)
            )

        return step

    mark = another(PHRASE)
    calls = [([mark, {"key": PHRASE}],), ([PHRASE, {"key": another(PHRASE)}],), ([another(PHRASE), {"key": mark}],)]
    compared(made(mark), *calls, recordings=3)


def test_one_object_in_many_places_is_guarded_in_all_of_them():
    def step(x, one, two, three):
        return x * (2 if one is two else 3) * (5 if two is three else 7)

    first, second = another(PHRASE), another(PHRASE)
    compared(step, (first, first, first), (first, first, second), (second, first, first), (first, second, first), recordings=4)


def test_what_c_code_gives_stops_where_an_equal_text_is_compared():
    def stripped(x, given):
        return x * (2 if given.strip() is given else 3)

    def keys(x, table):
        for key in table:
            x = x * (2 if key is "mode" else 3)  # noqa: F632
        return x

    compared(stripped, (PHRASE,), (another(PHRASE),), reason="object_identity")
    compared(keys, ({"mode": 1},), ({another("mode"): 1},), reason="object_identity")


def test_names_of_keywords_are_not_taken_for_literals():
    def step(x, **named):
        for name in named:
            x = x * (2 if name is "mode" else 3)  # noqa: F632
        return x

    compiled, x = T.compile(step), T.ones(2)
    for named in [{"mode": 1}, {another("mode"): 1}] * ROUNDS:
        assert T.equal(compiled(x, **named), step(x, **named))


def test_texts_that_differ_need_no_guard_on_their_identity():
    def step(x, one, other):
        return x * (2 if one is other else 3)

    compared(step, ("one", "other"), (another("one"), another("other")), recordings=1)
