"""What patterns of match statements look into, eagerly and in recordings."""

from __future__ import annotations

import collections
import copy
import weakref

import pytest
from programs_matching import MATCHING, Point, Row

import tracejit as T
from tracejit.capture.handlers.patterns import PYTHON, elements_of, has_length, item_of, matched_class, matched_mapping
from tracejit.config import override

SUBJECTS = [(name, i) for name, (_, subjects) in MATCHING.items() for i in range(len(subjects))]


@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize(("name", "position"), SUBJECTS)
def test_a_match_statement_matches_what_it_matches_in_eager_calls(name, position, hot):
    decide, subjects = MATCHING[name]

    def f(x, subject):
        return x * 2, decide(subject)

    with override(hot_calls=hot):
        compiled = T.compile(f)
        for _ in range(3):
            expected, found = (
                f(T.ones(2), copy.deepcopy(subjects[position])),
                compiled(T.ones(2), copy.deepcopy(subjects[position])),
            )
            assert repr(found[1]) == repr(expected[1])
    assert not {r.code for r in compiled.reasons} & {"unsupported_syntax", "internal_error"}


def test_the_fields_of_a_subject_are_numbers_from_outside():
    def f(x, point):
        match point:
            case Point(x=int() | float() as k, y=0):
                return x * k
            case Point(k, n) if n > 1:
                return x + k * n
        return x

    compiled = T.compile(f)
    for n in range(12):
        point = Point(n * 0.5, n % 3)
        assert compiled(T.ones(2), point).tolist() == f(T.ones(2), point).tolist()
    assert compiled.stats.traces == 3, compiled.explain()


def test_a_number_of_another_call_may_match_another_pattern():
    def f(x, n):
        match n:
            case 0:
                return x
            case "text" | None:
                return -x
            case 1 | 2:
                return x * 2
            case int(k):
                return x * k

    compiled = T.compile(f)
    for n in (5, 6, 7, 0, 1, 2, 8, True, 0):
        assert compiled(T.ones(2), n).tolist() == f(T.ones(2), n).tolist()
    assert compiled.stats.traces <= 6, compiled.explain()


def test_the_length_of_a_list_that_grows_decides_and_is_not_guarded_by_value():
    log = []

    def f(x, n):
        log.append(n)
        match log:
            case [_]:
                return x
            case [first, *_, last]:
                return x * first + last

    compiled = T.compile(f)
    for n in range(8):
        log_before = list(log)
        found = compiled(T.ones(1), n)
        log[:] = log_before
        assert found.tolist() == f(T.ones(1), n).tolist()
    assert compiled.stats.traces == 2, compiled.explain()


def test_a_class_whose_match_args_change_is_asked_again():
    class Pair:
        __match_args__ = ("a", "b")
        a, b = 2.0, 3.0

    def f(x, pair):
        match pair:
            case Pair(k):
                return x * k

    compiled, pair = T.compile(f), Pair()
    for _ in range(3):
        assert compiled(T.ones(1), pair).tolist() == [2.0]
    Pair.__match_args__ = ("b", "a")
    assert compiled(T.ones(1), pair).tolist() == [3.0]
    del Pair.a
    Pair.__match_args__ = ("a",)
    assert compiled(T.ones(1), pair) is None


def test_a_pattern_keeps_nothing_alive_in_its_body():
    class Held:
        pass

    gone = []

    def f(x, make):
        match [make()]:
            case [Held()]:
                gone.append(referred[-1]() is None)
        return x

    referred = []

    def make():
        held = Held()
        referred.append(weakref.ref(held))
        return held

    f(T.ones(1), make)
    T.compile(f)(T.ones(1), make)
    assert gone == [True, True]


def test_a_match_statement_goes_on_where_the_recording_stops_in_its_middle():
    class Stopping:
        def __init__(self, n):
            self.n = n

        @property
        def value(self):
            import os

            os.getpid()
            return self.n

    def f(x, subject):
        n = x.sum().item()
        match (n, subject):
            case [float(k), Stopping(value=v)] if v:
                return [k, v, n]

    compiled = T.compile(f)
    for n in range(3):
        found = compiled(T.ones(2) * n, Stopping(n + 1))
        assert [type(v) for v in found] == [float, int, float] and found == [n * 2.0, n + 1, n * 2.0]


def test_patterns_of_global_names_are_eager():
    compiled = T.compile(binds_a_global)
    assert compiled(T.ones(1), (1, 2)).tolist() == [3.0]
    assert "unsupported_syntax" in {r.code for r in compiled.reasons} and bound == 2


def binds_a_global(x, pair):
    global bound
    match pair:
        case (a, bound):
            return x * (a + bound)


def test_parts_are_those_that_python_finds():
    assert matched_class(PYTHON, Point(1, 2), Point, 1, ("y",)) == (1, 2)
    assert matched_class(PYTHON, 1, Point, 0, ()) is None
    assert matched_class(PYTHON, 5, int, 1, ()) == (5,)
    assert elements_of(PYTHON, (1, 2, 3), 1, True, 1) == (1, [2], 3)
    assert item_of(PYTHON, Row(1, 2, 3), -1) == 3
    assert has_length(PYTHON, [1, 2], 1, True, 1) and not has_length(PYTHON, [1], 1, True, 1)
    assert has_length(PYTHON, [], 0, False, 0) and not has_length(PYTHON, "abc", 3, False, 0)
    assert matched_mapping(PYTHON, {"a": 1, "b": 2}, ("a",), True) == (1, {"b": 2})
    assert matched_mapping(PYTHON, collections.defaultdict(list), ("a",), False) is None
    with pytest.raises(ValueError, match="duplicate key"):
        matched_mapping(PYTHON, {"a": 1, "b": 2}, ("a", "a"), False)
