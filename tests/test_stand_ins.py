"""Stand-ins in what outlives a call: all of them, and nothing else, are replaced."""

from __future__ import annotations

import collections
import functools
import itertools
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracejit as T
import tracejit.nn as nn
from tracejit.capture.handlers.recorder import Recorder
from tracejit.capture.handlers.stand_ins import stand_in_iterator, without_stand_ins
from tracejit.capture.handlers.symbols import RecordedCallback, SymbolicNumber
from tracejit.replay.ir import Name


class Slotted:
    __slots__ = ("value",)


def number(value=3):
    """What stands for a number."""
    recorder = Recorder()
    recorder.stopped = True
    return SymbolicNumber(recorder, Name("v"), value)


def inside(value):
    """Everything that a value leads to, as far as this test builds it."""
    if isinstance(value, dict):
        return [part for pair in value.items() for part in pair for part in inside(part)]
    if isinstance(value, (list, tuple, set, collections.deque)):
        return [part for item in value for part in inside(item)]
    return [value]


containers = st.recursive(
    st.just("number") | st.integers(0, 5),
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.lists(parts, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), parts, max_size=2)
        | st.lists(parts, max_size=2).map(collections.deque)
    ),
    max_leaves=8,
)


def filled(shape, stand_in):
    """A container with a stand-in wherever `shape` says "number"."""
    if isinstance(shape, dict):
        return {key: filled(value, stand_in) for key, value in shape.items()}
    if isinstance(shape, (list, tuple, collections.deque)):
        return type(shape)(filled(part, stand_in) for part in shape)
    return stand_in if shape == "number" else shape


@given(containers)
def test_containers_of_any_depth_hold_plain_values_and_stay_the_objects_that_they_are(shape):
    value = [filled(shape, number())]
    before = value[0]
    assert without_stand_ins(value, lambda x: False) is value
    assert value == [filled(shape, 3)]
    assert all(type(part) is not SymbolicNumber for part in inside(value))
    assert type(before) is SymbolicNumber or value[0] is before


def test_a_tuple_in_two_places_stays_one_tuple():
    pair = (number(), [number()])
    value = without_stand_ins({"a": pair, (number(), "k"): [pair]}, lambda x: False)
    assert value["a"] is value[(3, "k")][0]
    assert [type(part) for part in inside(value["a"])] == [int, int]


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda n: types.SimpleNamespace(a=[n], b=n), lambda o: [o.a[0], o.b]),
        (lambda n: functools.partial(max, n, key=[n]), lambda p: [*p.args, p.keywords["key"][0]]),
        (lambda n: itertools.product([n], [n]), lambda p: next(p)),
        (lambda n: itertools.cycle((n,)), lambda c: [next(c), next(c)]),
        (lambda n: iter({"k": [n]}.values()), lambda values: next(values)),
        (lambda n: lambda kept=n: [kept, n], lambda function: function()),
        (lambda n: ValueError(n, [n]), lambda error: [error.args[0], *error.args[1]]),
        (lambda n: (v for v in [n, n]), list),
        (lambda n: [n].append, lambda method: method.__self__),
        (lambda n: slice(n, [n]), lambda part: [part.start, *part.stop]),
    ],
    ids=["namespace", "partial", "product", "cycle", "values", "function", "error", "generator", "method", "slice"],
)
def test_objects_that_are_no_containers_hold_plain_values(make, read):
    value = make(number())
    assert without_stand_ins(value, lambda x: False) is value
    found = list(read(value))
    assert found
    assert all(type(part) is int for part in found)


def test_attributes_of_objects_and_modules_hold_plain_values():
    box, module = Slotted(), nn.Dropout(0.5)
    box.value = number()
    module.__dict__["k"] = [number()]
    without_stand_ins([box, module], lambda x: False)
    assert type(box.value) is int
    assert type(module.k[0]) is int


def test_what_stands_for_iterators_and_functions_is_replaced():
    items = iter([1, 2])
    steps = stand_in_iterator(items, (item for item in items))
    callback = RecordedCallback(number()._recorder, str, repr)
    mapped = map(callback, steps)
    value = without_stand_ins([steps, mapped], lambda x: False)
    assert value[0] is items
    assert list(mapped) == ["1", "2"]


def test_what_is_from_outside_is_not_looked_into():
    outside = [number()]
    without_stand_ins([outside], lambda x: x is outside)
    assert type(outside[0]) is SymbolicNumber


def test_an_object_at_the_place_of_one_that_a_stopped_recording_let_go_is_not_from_outside():
    recorder = Recorder()
    recorder.register(outside := [1], Name("v"))
    assert recorder.is_outside(outside)
    recorder.stopped = True
    recorder.release()
    assert not recorder.is_outside(outside)
    assert recorder.without_stand_ins([number()]) == [3]


def test_the_arguments_and_attributes_of_an_error_hold_plain_values():
    class Failure(Exception):
        def __init__(self, n):
            super().__init__((n, [n]))
            self.kept = [n]

    @T.compile
    def failing(x, n):
        raise Failure(n)

    for n in (3, 4):
        with pytest.raises(Failure) as raised:
            failing(T.ones(2), n)
        assert [type(part) for part in inside([raised.value.args, raised.value.kept])] == [int, int, int]


def test_objects_that_keep_a_stand_in_are_told_of():
    def values(held):
        yield held

    refused = []
    generator, pair = values(number()), (number(), 1)
    without_stand_ins([generator, pair], lambda x: False, refused.append)
    assert refused == [generator] and pair == (3, 1)


def test_what_cannot_be_replaced_stops_the_recording(monkeypatch):
    monkeypatch.setattr("tracejit.capture.handlers.stand_ins.replace_referent", lambda owner, old, new: False)
    box = types.SimpleNamespace(n=2)
    compiled = T.compile(lambda x: (x * 2, box.n), wait=True)
    for _ in range(3):
        x, _ = compiled(T.ones(2))
        assert x.tolist() == [2, 2]
    assert compiled.stats.compiled_calls == 0
    assert [str(reason.message) for reason in compiled.reasons] == ["a new tuple that keeps what is in it is returned or stored"]
