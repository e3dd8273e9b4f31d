"""On which interpreters machine code handles objects, and what is said where it does not."""

from __future__ import annotations

import gc
import re
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracejit as T
from tracejit.config import override
from tracejit.cpython import c_api, layouts

RUN = Path(__file__).resolve().parent.parent / ".ci" / "run"


def forget() -> None:
    c_api.unsupported.cache_clear()


@pytest.fixture
def another_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(layouts, "LAYOUTS", {(2, 7): layouts.Layout()})
    forget()
    yield
    monkeypatch.undo()
    forget()


def test_this_interpreter_is_supported_if_its_version_is_and_it_is_no_special_build() -> None:
    special = hasattr(sys, "gettotalrefcount") or not getattr(sys, "_is_gil_enabled", lambda: True)()
    if special or sys.version_info[:2] in layouts.TESTED:
        assert c_api.supported() != special, c_api.unsupported()


@pytest.mark.skipif(not RUN.exists(), reason="not in a checkout")
def test_the_versions_that_are_tested_are_those_whose_tests_are_run() -> None:
    listed = re.search(r"^VERIFIED=\((.*)\)", RUN.read_text(), re.MULTILINE)
    assert listed is not None
    assert listed[1].split() == [f"{major}.{minor}" for major, minor in layouts.TESTED]


def test_where_nothing_was_verified_entries_stay_python_and_say_so(another_version: None) -> None:
    assert not c_api.supported() and "layout is known for CPython 2.7" in c_api.unsupported()
    with override(hot_calls=2):
        f = T.compile(lambda x: (x * 2).sum())
        for k in range(5):
            assert f(T.ones(k + 1, requires_grad=True)).item() == 2 * (k + 1)
            assert "calls: from Python, since what cannot be translated is objects of" in f.explain(verbose=True)
            assert "Calls take longer than on other Pythons: what is around programs stays Python, since objects" in " ".join(
                f.explain().split()
            )
        x = T.ones(2, requires_grad=True)
        for _ in range(5):
            f(x).backward()
    assert (
        x.grad is not None and x.grad.tolist() == [10.0, 10.0] and f._table.first is not None and f._table.first.machine is None
    )


def test_offsets_are_those_of_living_objects() -> None:
    class Slotted:
        __slots__ = ("__weakref__", "a", "b")

    one = Slotted()
    one.b = marker = object()  # type: ignore[attr-defined]
    offsets = c_api.slot_offsets(Slotted)
    assert c_api.word(id(one) + offsets["b"]) == id(marker) and c_api.word(id(one) + offsets["a"]) == 0
    reference = weakref.ref(one)
    assert c_api.word(id(reference) + c_api.REFERENT) == id(one)
    del one
    gc.collect()
    assert c_api.word(id(reference) + c_api.REFERENT) == id(None)
