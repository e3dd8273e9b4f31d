"""Kinds of containers: listing the parts of one, and making one of other parts."""

from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, NoReturn

import pytest

from tracejit.capture.container_kinds import CONTAINER_KINDS, children, children_past_methods, rebuilt

SAMPLES: dict[type, Any] = {
    list: [1, [2]], tuple: (1, (2,)), set: {1, 2}, frozenset: frozenset({1, 2}), deque: deque([1, 2], 5), dict: {1: 2, "a": [3]},
    OrderedDict: OrderedDict([("b", 1), ("a", 2)]), defaultdict: defaultdict(list, {1: [2]}), slice: slice(1, 2, None),
}  # fmt: skip


def refused(*_: Any) -> NoReturn:
    raise AssertionError("a method of a class that derives from a container was called")


def test_there_is_a_sample_of_each_kind() -> None:
    assert SAMPLES.keys() == CONTAINER_KINDS.keys()


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_container_rebuilt_of_its_own_parts_is_itself_and_of_others_one_like_it(kind: type) -> None:
    value = SAMPLES[kind]
    assert rebuilt(value, list(children(value))) is value
    others = [part + 7 if type(part) is int else part for part in children(value)]
    made = rebuilt(value, others)
    assert type(made) is kind and made != value
    assert sorted(map(repr, children(made))) == sorted(map(repr, others))
    assert getattr(made, "maxlen", None) == getattr(value, "maxlen", None)
    assert getattr(made, "default_factory", None) is getattr(value, "default_factory", None)


@pytest.mark.parametrize("kind", [kind for kind in SAMPLES if kind is not slice])
def test_methods_of_derived_classes_are_not_called(kind: type) -> None:
    derived: Any = type("Derived", (kind,), {})
    value = derived(list, SAMPLES[kind]) if kind is defaultdict else derived(SAMPLES[kind])
    for name in ("__iter__", "items", "keys", "values", "__getitem__", "__len__"):
        setattr(derived, name, refused)
    assert list(children_past_methods(value)) == list(children(SAMPLES[kind]))
    assert list(children(value)) == []


def test_an_ordered_dictionary_has_its_own_order_and_other_objects_have_no_parts() -> None:
    ordered = OrderedDict([("a", 1), ("b", 2)])
    ordered.move_to_end("a")
    assert list(children(ordered)) == ["b", 2, "a", 1]
    assert list(children_past_methods(Counter("aab"))) == ["a", 2, "b", 1]
    assert list(children("ab")) == list(children(3)) == list(children_past_methods(object())) == []
