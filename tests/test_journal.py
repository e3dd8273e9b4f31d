"""The journal: its tables are what plain ones are, and marks, changes and truncation do what they say, whatever was done."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit
from tracejit.capture.handlers.base import Handlers
from tracejit.capture.handlers.effects import AttributeStore
from tracejit.capture.recording.journal import Journal, Topic, Variable
from tracejit.capture.session import Session, record
from tracejit.core.garbage_collection import collection_paused
from tracejit.core.op import Kind

KEYS = st.integers(0, 5)
VALUES = st.sampled_from([None, 0, 1, True, 0.0, -0.0, "a", (), (1, 2)])
DICTIONARY = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.sampled_from(["del", "pop", "setdefault"]), KEYS, VALUES),
    st.just(("clear",)),
)
SET = st.one_of(st.tuples(st.sampled_from(["add", "discard"]), KEYS), st.just(("clear",)))
LIST = st.one_of(
    st.tuples(st.just("append"), VALUES),
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("+="), VALUES),
    st.just(("clear",)),
)


class Holder:
    value = Variable(0)
    read = Variable(0, Topic.READS)

    def __init__(self, journal: Journal) -> None:
        self.journal = journal


def do(table: Any, action: tuple[Any, ...]) -> None:
    """An action on a table, or on a plain container."""
    name, *given = action
    if isinstance(table, Holder):
        table.value = given[-1] if given else 0
    elif name == "clear":
        table.clear()
    elif isinstance(table, dict):
        if name == "put":
            table[given[0]] = given[1]
        elif name == "del":
            if given[0] in table:
                del table[given[0]]
        elif name == "pop":
            table.pop(given[0], None)
        else:
            table.setdefault(*given)
    elif isinstance(table, set):
        getattr(table, name)(given[0])
    elif name == "append":
        table.append(given[0])
    elif name == "+=":
        table += [given[0], None]
    elif given[0] < len(table):
        table[given[0]] = given[1]


def contents(table: Any) -> Any:
    """All that there is to know of a table, with 0.0 and -0.0 told apart."""
    if isinstance(table, Holder):
        return repr(table.value)
    if isinstance(table, dict):
        return {key: repr(value) for key, value in table.items()}
    return set(table) if isinstance(table, set) else list(map(repr, table))


ACTIONS = st.lists(st.one_of(st.tuples(st.just(0), DICTIONARY), st.tuples(st.just(1), SET), st.tuples(st.just(2), LIST),
                             st.tuples(st.just(3), st.tuples(st.just("put"), VALUES))), max_size=12)  # fmt: skip


def tables(journal: Journal, topic: Topic = Topic.EFFECTS) -> list[Any]:
    return [journal.dictionary(topic), journal.set(topic), journal.list(topic), Holder(journal)]


@given(ACTIONS)
@settings(deadline=None)
def test_tables_are_what_plain_containers_are(actions: list[Any]) -> None:
    journal = Journal()
    own, plain = tables(journal), [{}, set(), [], Holder(Journal())]
    for k, action in actions:
        do(own[k], action)
        do(plain[k], action)
        assert contents(own[k]) == contents(plain[k])
    assert list(own[0]) == list(plain[0])


@given(ACTIONS, ACTIONS)
@settings(deadline=None)
def test_changes_since_a_mark_are_what_differs_from_then(before: list[Any], after: list[Any]) -> None:
    journal = Journal()
    own = tables(journal)
    for k, action in before:
        do(own[k], action)
    mark = journal.mark()
    then = [contents(table) for table in own]
    for k, action in after:
        do(own[k], action)
    changed = {id(table) for table, _ in journal.changes(mark)}
    for k, table in enumerate(own):
        # An attribute is its own table: of the descriptor.
        found = id(type(table).__dict__["value"]) if isinstance(table, Holder) else id(table)
        assert (found in changed) is (contents(table) != then[k])


@given(ACTIONS, st.lists(st.tuples(st.booleans(), ACTIONS), max_size=4))
@settings(deadline=None)
def test_truncation_takes_back_all_since_a_mark_but_what_was_read(before: list[Any], after: list[tuple[bool, Any]]) -> None:
    journal = Journal()
    own, read, plain = tables(journal), tables(journal, Topic.READS)[:3], [{}, set(), []]
    for k, action in before:
        do(own[k], action)
    mark = journal.mark()
    journal.nodes.append(None)  # type: ignore[arg-type]
    then = [contents(table) for table in own]
    for is_read, actions in after:
        for k, action in actions:
            if not is_read:
                do(own[k], action)
            elif k < 3:
                do(read[k], action)
                do(plain[k], action)
    journal.truncate(mark)
    assert [contents(table) for table in own] == then
    assert list(map(contents, read)) == list(map(contents, plain))
    assert journal.mark().nodes == mark.nodes == 0
    journal.statements.append(None)
    journal.truncate(mark)
    assert journal.has_read(mark) and not journal.has_read(journal.mark())
    assert not list(journal.changes(mark, Topic.READS))
    assert {id(table) for table, _ in journal.changes(mark)} == {id(table) for table in read if table}


def test_a_table_that_is_what_it_was_has_not_changed() -> None:
    journal = Journal()
    table, members, items = journal.dictionary(), journal.set(), journal.list()
    table["a"] = 1.0
    mark = journal.mark()
    table["a"] = 2.0
    table["b"] = None
    members.add(3)
    items.append("x")
    assert len(list(journal.changes(mark))) == 4
    table["a"] = 1.0
    del table["b"]
    members.discard(3)
    items.clear()
    assert not list(journal.changes(mark))
    table["a"] = 1
    assert list(journal.changes(mark)) == [(table, "a")]


def test_what_is_in_no_table_has_changed_whatever_comes_after_it() -> None:
    journal = Journal()
    mark = journal.mark()
    journal.note(Topic.NUMBERS)
    assert not list(journal.changes(mark, Topic.NUMBERS))
    assert list(journal.changes(mark))
    journal.truncate(mark)
    assert not list(journal.changes(mark))


def test_a_store_in_the_place_of_one_that_does_the_same_is_no_change() -> None:
    journal = Journal()
    owner, array = object(), np.zeros(2)
    effects = journal.list()
    effects.append(AttributeStore(owner, "x", array))
    mark = journal.mark()
    effects[0] = AttributeStore(owner, "x", array)
    assert not list(journal.changes(mark))
    effects[0] = AttributeStore(owner, "x", np.zeros(2))
    assert list(journal.changes(mark))


def test_topics_that_are_ignored_and_indexes_are_no_changes() -> None:
    journal = Journal()
    read, index = journal.dictionary(Topic.READS), journal.dictionary(Topic.INDEX)
    mark = journal.mark()
    index[0] = read[0] = 1
    assert not list(journal.changes(mark, Topic.READS))
    assert list(journal.changes(mark, Topic.NUMBERS)) == [(read, 0)]
    journal.truncate(mark)
    assert (index, read) == ({}, {0: 1})


def test_a_method_that_would_leave_no_event_cannot_be_called() -> None:
    """Every method of the plain container that changes it is either an event or refused."""
    unchanging = {dict: types.MappingProxyType, set: frozenset, list: tuple}
    for table in tables(Journal())[:3]:
        plain = type(table).__mro__[1]
        others = {*dir(unchanging[plain]), "copy", "fromkeys", "__reversed__", "__class_getitem__"}
        for name in {*vars(plain)} - others:
            assert name in vars(type(table)), f"{type(table).__name__}.{name}"


def test_what_handlers_keep_stands_in_the_journal_or_follows_from_it() -> None:
    """An attribute of a handler that is none of its tables is set once, when the handler is made, or named here, with why."""
    session = Session(collection_paused())
    unlogged = {
        f"{type(owner).__name__}.{name}"
        for owner in (session, *[x for x in vars(session).values() if isinstance(x, Handlers)])
        for name, value in vars(owner).items()
        if type(value) in (dict, set, list)
    }
    assert unlogged == {
        # Objects and functions that the call has made, and what is known of these: snapshots look at them.
        "Session.created", "Session.keep", "Session._functions", "CallHandlers._followed", "CallHandlers._native",
        "CallHandlers._prepared", "EffectHandlers.holders_of_stored", "ContentHandlers.views",
        "IdentityHandlers.placeless_texts", "IterationHandlers.rows", "Session.loop_stand_ins", "Session.reached",
        "ContentHandlers._empty",
        # Given before the recording begins.
        "CallHandlers.branching_lines",
        # The journal's own, and what has been read and guarded already, which follows from it: it only spares saying so again.
        "Session.prologue", "Session.tensors", "Session.distinct_objects", "Session._constants", "Session._expressions", "Session._once",
        "Session._guarded",
        "Session._symbolic", "Session._variables_of", "Session.instance_reads", "Session.class_reads", "Session.class_misses",
        "Session.plain_classes", "AttributeHandlers._classes", "AttributeHandlers._usual",
        # What an entry, or a step of a loop, is in the middle of.
        "Session.performed", "Session.before_end",
        # Set before the function runs.
        "Session._integers_called", "SizeHandlers.inputs", "SizeHandlers.strides", "SizeHandlers._tensors", "ArrayStoreHandlers._errors",
        # Names of constants, which are in `_constants`, and which one of equal states of an environment is the constant.
        "Session.namespace", "PlainValueHandlers._states",
        # The interpreter's, which sets them.
        "Session.values", "Session.deferred",
    }  # fmt: skip


def test_a_loop_whose_steps_only_compute_is_one_node_and_others_are_not() -> None:
    total: list[int] = []

    def computes(h: Any, row: Any) -> Any:
        h = (h + row).tanh()
        return h, h

    def has_effects(h: Any, row: Any) -> Any:
        total.append(len(total))
        return computes(h, row)

    for step, loops in ((computes, 1), (has_effects, 0)):
        recording, _ = record(lambda h, x: tracejit.scan(step, h, x), (tracejit.zeros(3), tracejit.randn(20, 3)), {})
        assert recording.graph is not None
        assert sum(node.op.kind is Kind.LOOP for node in recording.graph.nodes) == loops
    assert total == list(range(20))
