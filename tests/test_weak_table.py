"""core/weak_table.py: what is known of objects is forgotten when they die."""

from __future__ import annotations

import gc
import sys
from typing import Any

from tracejit.core.weak_table import WeakTable


class Sample:
    """An object that equals every other one."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("objects are compared")

    def __hash__(self) -> int:
        raise AssertionError("an object's hash is asked for")


def test_objects_are_told_apart_by_identity_without_asking_them() -> None:
    table: WeakTable[str] = WeakTable()
    a, b = Sample(), Sample()
    table[a] = "a"
    assert table.get(a) == "a" and table.get(b) is None and a in table and b not in table
    table[a] = "again"
    assert table.get(a) == "again" and len(table) == 1


def test_what_is_known_goes_with_the_object_and_no_python_code_runs() -> None:
    table: WeakTable[Any] = WeakTable()
    entered: list[str] = []
    some = [Sample() for _ in range(100)]
    for k, sample in enumerate(some):
        table[sample] = k
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
    del some[:50], sample
    sys.setprofile(None)
    assert len(table) == 50 and entered == []
    assert [table.get(sample) for sample in some] == list(range(50, 100))


def test_what_is_known_goes_with_an_object_that_the_collector_frees() -> None:
    table: WeakTable[int] = WeakTable()
    sample: Any = Sample()
    sample.own = sample
    table[sample] = 1
    del sample
    gc.collect()
    assert len(table) == 0


def test_an_object_at_the_address_of_a_dead_one_is_a_new_one() -> None:
    table: WeakTable[int] = WeakTable()
    for k in range(1000):
        sample = Sample()
        assert table.get(sample) is None
        table[sample] = k
        del sample
