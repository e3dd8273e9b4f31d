"""capture/nested_places.py: what is inside of tuples, containers and objects, by its places."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

import tracejit as tj
from tests.plain_objects import Bare, Ending, Kept, Pair, Slotted
from tracejit.capture.handlers.recorder import Recorder
from tracejit.capture.nested_places import (
    Attribute,
    children_of,
    is_tuple,
    items_of,
    paths_in,
    rebuilt_tuple,
    store_along,
    store_at,
)


def test_named_tuples_are_tuples_unless_they_have_more() -> None:
    kept = Kept(1, 2)
    assert is_tuple((1,)) and is_tuple(Pair(1, 2)) and is_tuple(kept) and not is_tuple([1])
    kept.c = 3
    assert not is_tuple(kept)


def test_what_is_remade_has_the_class() -> None:
    recorder, pair = Recorder(), Pair(1, 2)
    other = rebuilt_tuple(recorder, pair, [3, 4])
    assert type(other) is Pair and other == (3, 4) and items_of(recorder, other) == [3, 4]
    assert rebuilt_tuple(recorder, (1,), [5]) == (5,) and recorder.is_created(other)


def test_parts_are_found_by_their_places_and_put_there() -> None:
    recorder, slotted = Recorder(), Slotted(1)
    slotted.more = 2
    for container in ([1, 2], deque([1, 2]), {"a": 1, "b": 2}, slotted):
        places = children_of(recorder, container)
        assert places is not None and [part for _, part in places] == [1, 2]
        store_at(recorder, container, places[1][0], 7)
        assert [part for _, part in children_of(recorder, container) or ()] == [1, 7]
    assert slotted.more == 7


@pytest.mark.parametrize("value", [1, (1,), object(), iter([1]), Ending(1), tj.ones(2), tj.Generator(), Exception(1), {1}])
def test_others_have_no_parts(value: Any) -> None:
    assert children_of(Recorder(), value) is None


def test_modules_have_parts() -> None:
    names = [place.name for place, _ in children_of(Recorder(), tj.nn.Linear(2, 2)) or ()]
    assert {"weight", "bias", "in_features"} <= set(names)


def test_places_lead_inside_and_something_else_can_be_put_there() -> None:
    recorder, bare = Recorder(), Bare(Pair(1.0, [{"k": 2.0}]))
    variables = {"x": bare, "y": (3.0, 4)}
    numbers = {path: x for path, x in paths_in(recorder, variables, []) if type(x) in (int, float)}
    inside = ("x", Attribute("value", None), 1, 0, "k")
    assert numbers == {("x", Attribute("value", None), 0): 1.0, inside: 2.0, ("y", 0): 3.0, ("y", 1): 4}
    before = bare.value
    assert store_along(recorder, bare, inside[1:], 5.0) is bare and bare.value is before and before.b == [{"k": 5.0}]
    assert store_along(recorder, bare, (Attribute("value", None), 0), 6.0) is bare and bare.value == (6.0, [{"k": 5.0}])
    assert store_along(recorder, variables["y"], (1,), 7) == (3.0, 7) and store_along(recorder, 1, (), 8) == 8


def test_nobody_compares_keys_that_are_objects() -> None:
    class Key:
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = object.__hash__

    variables = {"x": {Key(): 1, "a": 2}}
    assert [path for path, _ in paths_in(Recorder(), variables, [])] == [("x", "a")]
    assert store_along(Recorder(), variables["x"], ("a",), 3) == variables["x"] and variables["x"]["a"] == 3


def test_a_container_that_holds_itself_is_gone_through_once() -> None:
    listed: list[Any] = [1]
    listed.append(listed)
    assert [path for path, _ in paths_in(Recorder(), {"x": listed}, [])] == [("x", 0), ("x", 1)]
