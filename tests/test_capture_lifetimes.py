"""Whether the program can tell when an object goes."""

from __future__ import annotations

import functools
import types
import weakref

import pytest

import tracejit as T
from tracejit.capture.handlers.lifetimes import deletion_is_visible, may_be_referred_to
from tracejit.core.weak_table import WeakTable


class Plain:
    """An object that anything may be put into."""

    def method(self):
        return self


class Ending(Plain):
    """An object with a finalizer."""

    def __del__(self):
        pass


def holding(value):
    made = Plain()
    made.inner = value
    return made


@pytest.mark.parametrize(
    "wrap",
    [
        lambda v: v,
        lambda v: [v],
        lambda v: (1, (v,)),
        lambda v: {"k": v},
        lambda v: {v: 1},
        lambda v: {v},
        holding,
        lambda v: v.method,
        lambda v: types.SimpleNamespace(o=[holding(v)]),
    ],
)
def test_the_end_of_an_object_with_a_finalizer_shows_wherever_it_is(wrap):
    assert deletion_is_visible(wrap(Ending()))
    assert not deletion_is_visible(wrap(Plain()))


def test_values_that_lead_to_themselves_are_looked_at_once():
    loop = []
    loop.append(loop)
    assert not deletion_is_visible(loop)


def test_callbacks_of_weak_references_show_the_end():
    seen = []
    for callback in (seen.append, lambda _: None, functools.partial(seen.insert, 0)):
        value = Plain()
        reference = weakref.ref(value, callback)
        assert reference() is value
        assert deletion_is_visible(value)


def test_references_without_callbacks_and_tables_of_the_library_do_not():
    value, table = Plain(), WeakTable()
    table[value] = 1
    reference = weakref.ref(value)
    assert reference() is value
    assert not deletion_is_visible(value)


def test_only_state_of_a_program_may_be_referred_to():
    assert may_be_referred_to(Plain())
    assert may_be_referred_to(T.ones(1))
    assert not any(map(may_be_referred_to, (1, "a", None, Plain, pytest, [], {}, len, Plain.method)))
