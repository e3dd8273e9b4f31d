"""capture/snapshots.py: what is alike at two points of a call, and what is not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import tracejit as tj
from tests.plain_objects import Bare, Ending, Pair, Slotted
from tracejit.capture.handlers.recorder import Recorder
from tracejit.capture.snapshots import IdentityKey, Snapshot, snapshot


def taken(apart: Any = (), around: Any = (), **variables: Any) -> Snapshot | str:
    return snapshot(Recorder(), (), variables, around, apart)


def hindrance(**variables: Any) -> str:
    found = taken(**variables)
    assert isinstance(found, str)
    return found


def tokens(**variables: Any) -> list[Any]:
    found = taken(**variables)
    assert isinstance(found, Snapshot)
    return found.tokens


def test_the_same_objects_and_equal_values_are_alike() -> None:
    a, b, listed, named, some = tj.ones(2), tj.zeros(2), [1, "x"], {"k": 2.0}, {1, 2}

    def function() -> None: ...

    def found() -> list[Any]:
        return tokens(a=a, b=b, listed=listed, named=named, number=1.5, pair=(a, b), function=function, some=some, none=None)

    assert found() == found()


def test_other_tensors_of_one_kind_are_alike() -> None:
    assert tokens(a=tj.ones(2), pair=(tj.zeros(3), 1)) == tokens(a=tj.zeros(2), pair=(tj.ones(3), 1))


@pytest.mark.parametrize(
    "other",
    [
        lambda: tj.ones(3), lambda: tj.ones(2, dtype=tj.float64), lambda: tj.ones(2, requires_grad=True), lambda: tj.ones(4)[::2],
        lambda: tj.ones(2, requires_grad=True) * 2, lambda: tj.nn.Parameter(tj.ones(2)), lambda: 1.0, lambda: [tj.ones(2)],
    ],
)  # fmt: skip
def test_tensors_of_other_kinds_differ(other: Callable[[], Any]) -> None:
    assert tokens(a=tj.ones(2)) != tokens(a=other())


def test_one_tensor_in_two_places_is_no_two_tensors() -> None:
    a, b = tj.ones(2), tj.ones(2)
    assert tokens(a=a, b=a) == tokens(a=b, b=b) != tokens(a=a, b=b)


def test_lists_of_other_lengths_differ() -> None:
    listed = [1]
    before = tokens(a=listed)
    listed.append(2)
    assert tokens(a=listed) != before


def test_named_tuples_and_instances_are_what_is_in_them() -> None:
    a, b, slotted = tj.ones(2), tj.zeros(2), Slotted(1)
    assert tokens(x=Pair(a)) == tokens(x=Pair(b)) != tokens(x=(a, 1))
    assert tokens(x=Bare(a)) == tokens(x=Bare(b)) != tokens(x=Bare([a]))
    before = tokens(x=slotted)
    slotted.more = 1
    assert tokens(x=slotted) != before != tokens(x=Bare(1))
    assert "'x' holds" in hindrance(x=Bare(iter([1]))) and "'x' holds" in hindrance(x=Pair(iter([1])))
    assert "'x' holds" in hindrance(x=Ending(a))


def test_containers_follow_where_they_are_the_same_or_were_made_since() -> None:
    def sees(*values: Any) -> Snapshot:
        found = taken(**{f"v{k}": x for k, x in enumerate(values)})
        assert isinstance(found, Snapshot)
        return found

    one, other, third = Bare(1), Bare(1), Bare(1)
    assert sees(one, other).follows(sees(one, other))
    assert sees(one, third).follows(sees(one, other))
    assert not sees(other, one).follows(sees(one, other))
    assert not sees(one, Bare(2)).follows(sees(one, other))


def test_what_was_new_in_a_place_may_be_handed_on_where_another_one_is_new_there() -> None:
    def sees(last: Any, state: Any) -> Snapshot:
        found = taken(last=last, state=state)
        assert isinstance(found, Snapshot)
        return found

    one, two, three, four = [1], [1], [1], [1]
    first, second, third = sees(one, two), sees(two, three), sees(three, four)
    assert not second.follows(first)  # nobody knows where that one comes from
    assert third.follows(second)
    assert not sees(four, three).follows(third)


def test_numbers_are_compared_by_type_and_sign() -> None:
    assert tokens(a=0.0) != tokens(a=-0.0)
    assert tokens(a=1) != tokens(a=1.0) != tokens(a=True)
    assert tokens(a=float("nan")) == tokens(a=float("nan"))


@pytest.mark.parametrize("value", [iter([1]), (k for k in ()), object(), deque([iter(())]), {tj.ones(1)}, map(str, ())])
def test_there_is_none_of_what_has_a_state_that_does_not_show(value: Any) -> None:
    assert "'a' holds" in hindrance(a=value)
    assert "'a' holds" in hindrance(a=[{"k": (value,)}])


def test_there_is_none_of_tensors_with_hooks_or_attributes_of_their_own() -> None:
    hooked, named = tj.ones(2, requires_grad=True), tj.ones(2)
    hooked.register_hook(lambda g: g)
    named.name_of_it = "a"
    assert "'a' holds" in hindrance(a=hooked)
    assert "'b' holds" in hindrance(a=1, b=named)


def test_what_functions_find_belongs_to_them() -> None:
    count = 0
    value = tj.ones(2)

    def function(default: Any = value) -> Any:
        return count

    found = taken(f=function)
    assert found is not None and found.tensors == [value] and found.fixed == {0}
    before = found.tokens
    count = 1
    assert tokens(f=function) != before


def test_a_list_apart_is_found_in_one_place_alone() -> None:
    apart = [iter(())]
    assert taken(apart=(apart,), a=apart) is not None
    assert "'b' holds" in hindrance(apart=(apart,), a=apart, b=apart)
    assert "outside" in hindrance(apart=(apart,), a=apart, around=[[apart]])
    assert "outside" in hindrance(apart=(apart,), around=[apart])


def test_a_container_that_holds_itself_is_gone_through_once() -> None:
    listed: list[Any] = [1]
    listed.append(listed)
    assert tokens(a=listed) == tokens(a=listed)


def test_objects_are_equal_to_themselves_alone() -> None:
    value = [1]
    assert IdentityKey(value) == IdentityKey(value) != IdentityKey([1])


def test_very_much_is_not_compared() -> None:
    assert "'a' holds" in hindrance(a=list(range(100_000)))
