"""Functions whose `finally` runs where an exception comes at their entry."""

from __future__ import annotations

import ctypes
import inspect
import os
import sys
import threading
import time
from functools import partial
from operator import call
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import tracejit
from tracejit.core import interrupts
from tracejit.cpython import exception_tables, layouts
from tracejit.cpython.exception_tables import cover_entry

known = pytest.mark.skipif(bool(exception_tables.unsupported()), reason="tables of exceptions of this Python are not known")


class Stop(Exception):
    pass


def at_entry(function: Any) -> Any:
    """The exception that comes out of a function, at whose entry one is raised; None if none does."""
    thread = ctypes.c_ulong(threading.get_ident())
    arm = partial(ctypes.pythonapi.PyThreadState_SetAsyncExc, thread, ctypes.py_object(Stop))
    try:
        list(map(call, [arm, function]))
    except Stop as error:
        return error
    return None


@pytest.fixture
def marked() -> Any:
    """A function that puts something back, and what it has put back."""
    done: list[str] = []

    def leave(before: str = "x") -> None:
        try:
            len(before)
        finally:
            done.append(before)

    return leave, done


@known
def test_an_interrupt_at_the_entry_runs_the_finally_of_a_changed_function_alone(marked: Any) -> None:
    leave, done = marked
    assert isinstance(at_entry(leave), Stop) and done == []
    assert isinstance(leave, FunctionType)
    assert cover_entry(leave)
    assert isinstance(at_entry(leave), Stop) and done == ["x"]
    leave("y")
    assert done == ["x", "y"]


@known
def test_a_function_whose_try_covers_nothing_stays_as_it_is() -> None:
    done: list[int] = []

    def empty() -> None:
        try:
            pass
        finally:
            done.append(1)

    def plain() -> None:
        done.append(2)

    for function in (empty, plain):
        assert isinstance(function, FunctionType)
        before = function.__code__
        assert not cover_entry(function) and function.__code__ is before
        assert isinstance(at_entry(function), Stop) and done == []


def is_marked(function: FunctionType) -> bool:
    return inspect.getsource(function).lstrip().startswith("@covers_its_entry")


@known
def test_functions_of_the_library_cover_their_entries_with_nothing_on_the_stack() -> None:
    assert not interrupts._marked
    marked = [
        function
        for name, module in sorted(sys.modules.items())
        if name.startswith("tracejit.") and "covers_its_entry" in vars(module)
        for holder in (module, *[value for value in vars(module).values() if isinstance(value, type)])
        for function in vars(holder).values()
        if isinstance(function, FunctionType) and function.__module__ == name and is_marked(function)
    ]
    names = {function.__qualname__ for function in marked}
    assert {"_live", "_switch", "CallWatch._end_profile", "_RecordingScope.__exit__", "autocast.__exit__"} <= names
    for function in marked:
        table = function.__code__.co_exceptiontable
        start, at = exception_tables._number(table, 0)
        for _ in range(2):
            _, at = exception_tables._number(table, at)
        assert (start, exception_tables._number(table, at)[0]) == (0, 0), function


def test_a_format_that_is_not_known_changes_nothing_and_is_named(monkeypatch: pytest.MonkeyPatch, marked: Any) -> None:
    leave, done = marked
    for change, sentence in (
        ({"_FIRST": 0x40}, "have another format"),
        ({"_MORE": 0x80}, "have another format"),
        ({}, "are not known"),
    ):
        for name, value in change.items():
            monkeypatch.setattr(exception_tables, name, value)
        if not change:
            monkeypatch.setattr(layouts, "LAYOUTS", {})
        exception_tables.unsupported.cache_clear()
        try:
            assert sentence in exception_tables.unsupported()
            exception_tables.install()
            assert interrupts._cover == [] and interrupts.covers_its_entry(leave) is leave and interrupts._marked.pop() is leave
            leave()
        finally:
            monkeypatch.undo()
            exception_tables.unsupported.cache_clear()
            exception_tables.install()
    assert done == ["x"] * 3 and len(interrupts._cover) == (not exception_tables.unsupported())


def test_an_exception_is_raised_in_another_thread() -> None:
    came: list[type] = []

    def wait() -> None:
        try:
            while True:
                time.sleep(0.001)
        except Stop:
            came.append(Stop)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert thread.ident is not None
    interrupts.raise_in_thread(thread.ident, Stop)
    thread.join(10)
    assert came == [Stop]


def test_a_call_in_a_with_in_a_try_is_made_where_the_try_handles_what_it_raises(tmp_path: Path) -> None:
    def function(x: tracejit.Tensor, path: str) -> tracejit.Tensor:
        try:
            with tracejit.no_grad():
                y = x * 2
                os.makedirs(path)
        except FileExistsError:
            y = x * 3
        return y

    compiled = tracejit.compile(function, wait=True)
    found = [compiled(tracejit.ones(2), str(tmp_path / str(k // 2))).tolist() for k in range(4)]
    assert found == [[2.0, 2.0], [3.0, 3.0]] * 2
