"""The watch of a recording: which frames it asks about, in machine code and as a profile function in Python."""

from __future__ import annotations

import contextlib
import functools
import gc
import operator
import os
import random
import sys
import threading
import weakref
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest

import tracejit
from tracejit.cpython import call_hook

WARM = 200  # calls after which CPython has specialised instructions for what it met


@pytest.fixture(params=["machine code", "Python"], autouse=True)
def rendering(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "Python":
        monkeypatch.setattr(call_hook, "_machine_code", lambda: None)
    elif call_hook.unsupported():
        pytest.skip("machine code may not look at the frames of this interpreter")
    yield request.param
    call_hook.forget()
    assert sys.getprofile() is None
    monkeypatch.undo()
    assert not call_hook.watched_threads()


def fresh(name: str) -> Any:
    """A function whose code nobody knows."""
    namespace: dict[str, Any] = {}
    exec(f"def {name}(*callees):\n    return sum([callee() or 1 for callee in callees])", namespace)
    return namespace[name]


@contextlib.contextmanager
def watched(check: Any) -> Iterator[call_hook.CallWatch]:
    watch = call_hook.CallWatch(check)
    watch.begin()
    try:
        yield watch
    finally:
        watch.end()


def asked_about(action: Any, closely: bool = False) -> list[str]:
    names: list[str] = []

    def check(code: CodeType, names_of: dict[str, Any]) -> bool:
        assert type(code) is CodeType and "__builtins__" in names_of
        names.append(code.co_name)
        return closely

    watch = call_hook.CallWatch(check)  # what leaves a `with` block would be asked about
    watch.begin()
    try:
        action()
    finally:
        watch.end()
    return [name for name in names if name != "<listcomp>"]


def test_each_call_of_unknown_code_is_asked_about_and_builtins_are_not() -> None:
    outer, inner = fresh("outer"), fresh("inner")
    assert asked_about(lambda: outer(inner, inner, int)) == ["<lambda>", "outer", "inner", "inner"]


def test_allowed_code_is_not_asked_about_but_what_it_calls_is() -> None:
    outer, inner = fresh("outer"), fresh("inner")
    call_hook.allow(outer.__code__, lasting=False)
    call_hook.allow(outer.__code__, lasting=False)
    assert asked_about(lambda: outer(inner)) == ["<lambda>", "inner"]
    assert outer.__code__ == fresh("outer").__code__
    assert asked_about(lambda: fresh("outer")())[-1] == "outer"  # equal code is not the same code


def test_what_is_allowed_for_a_while_is_asked_about_again_and_kept_alive_no_longer() -> None:
    outer, inner = fresh("outer"), fresh("inner")
    call_hook.allow(outer.__code__, lasting=False)
    call_hook.allow(inner.__code__, lasting=True)
    assert asked_about(lambda: outer(inner)) == ["<lambda>"]
    call_hook.forget()
    assert asked_about(lambda: outer(inner)) == ["<lambda>", "outer"]
    code = weakref.ref(outer.__code__)
    outer = None
    gc.collect()
    assert code() is None


def test_many_allowed_codes_are_told_apart() -> None:
    functions = [fresh(f"f{k}") for k in range(300)]
    for function in functions[::2]:
        call_hook.allow(function.__code__, lasting=False)
    assert asked_about(lambda: [f() for f in functions]) == ["<lambda>", *(f"f{k}" for k in range(1, 300, 2))]


def test_allowed_codes_that_the_table_has_no_room_for_are_told_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_hook, "_SIZE", 0)
    function, other = fresh("function"), fresh("other")
    call_hook.allow(function.__code__, lasting=False)
    assert call_hook.is_allowed(function.__code__) and not call_hook.is_allowed(other.__code__)
    call_hook.forget()
    assert not call_hook.is_allowed(function.__code__)


def test_recordings_of_a_long_process_have_the_reasons_of_a_short_one(monkeypatch: pytest.MonkeyPatch, rendering: str) -> None:
    """A process that has recorded thousands of functions of libraries has no room left for the code of another."""
    monkeypatch.setattr(call_hook, "_SIZE", 0)
    compiled = tracejit.compile(lambda x: x * x.numpy().mean())
    compiled(tracejit.ones(3))
    assert [reason.code for reason in compiled.reasons] == ["tensor_contents"]


class Written:
    """All that Python calls by itself."""

    def __init__(self) -> None:
        self.value = 1

    def __getitem__(self, key: Any) -> Any:
        return key

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __len__(self) -> int:
        return 3

    def __call__(self, x: Any, y: Any = 2) -> Any:
        return x

    def __add__(self, other: Any) -> Any:
        return other

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[int]:
        yield 1

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return name

    @property
    def half(self) -> int:
        return 1

    @staticmethod
    def still(x: Any) -> Any:
        return x

    @classmethod
    def made(cls) -> Any:
        return cls


def by_hand(w: Any) -> None:
    with w:
        pass


FORMS: dict[str, tuple[str, Any]] = {
    "a call": ("__call__", lambda w: w(1)),
    "a call with keywords": ("__call__", lambda w: w(1, y=3)),
    "a call of a tuple": ("__call__", lambda w: w(*(1, 2))),
    "a method": ("__len__", lambda w: w.__len__()),
    "a static method": ("still", lambda w: w.still(1)),
    "a class method": ("made", lambda w: w.made()),
    "a builtin": ("__len__", lambda w: len(w)),
    "an operator": ("__add__", lambda w: w + 1),
    "a comparison": ("__eq__", lambda w: w == 1),
    "a hash": ("__hash__", lambda w: {w: 1}),
    "an item by a function": ("__getitem__", lambda w: operator.getitem(w, 0)),
    "an item that is set": ("__setitem__", lambda w: operator.setitem(w, 0, 1)),
    "a missing attribute": ("__getattr__", lambda w: w.missing),
    "a property": ("half", lambda w: w.half),
    "a generator": ("__iter__", list),
    "a block": ("__exit__", by_hand),
    "a sort": ("__call__", lambda w: sorted([1, 2], key=w)),
}  # fmt: skip


HIDDEN: dict[str, tuple[str, Any]] = {
    "an item": ("__getitem__", lambda w: w[0]),
    "an instance": ("__init__", lambda w: Written()),
}
"""What CPython may hand to nobody, but in frames that are run closely."""


@pytest.mark.parametrize("form", [*FORMS, *HIDDEN])
def test_no_call_is_hidden_by_what_cpython_has_specialised(form: str) -> None:
    name, action = {**FORMS, **HIDDEN}[form]
    w = Written()
    for _ in range(WARM):
        action(w)
    assert name in asked_about(lambda: action(w), closely=form in HIDDEN), form
    assert sys.getprofile() is None


def test_a_profiler_that_a_frame_begins_is_left_alone(rendering: str) -> None:
    def profile(*_: object) -> None:
        pass

    def begins() -> None:
        sys.setprofile(profile)

    watch = call_hook.CallWatch(lambda code, names: code is begins.__code__)
    watch.begin()
    try:
        begins()
        assert watch.profiler() is (profile if rendering == "Python" else None) and sys.getprofile() is profile
    finally:
        sys.setprofile(None)
        watch.end()


def test_the_watch_may_end_while_it_asks() -> None:
    outer, inner = fresh("outer"), fresh("inner")
    names = []

    def check(code: CodeType, _: dict[str, Any]) -> bool:
        names.append(code.co_name)
        watch.end()
        return True

    watch = call_hook.CallWatch(check)
    watch.begin()
    outer(inner)
    assert names == ["outer"] and watch.profiler() is None


def test_what_the_check_raises_is_raised_where_the_call_was_made() -> None:
    def check(code: CodeType, _: dict[str, Any]) -> bool:
        raise LookupError(code.co_name)

    inner, after = fresh("inner"), fresh("after")
    watch = call_hook.CallWatch(check)
    watch.begin()
    found = None
    try:
        inner()
    except LookupError as error:
        found = error
    after()
    watch.end()
    assert sys.getprofile() is None and str(found) == "inner"


def test_a_generator_that_an_exception_is_thrown_into_is_asked_about_and_gets_it() -> None:
    def steps() -> Iterator[int]:
        try:
            yield 1
        except KeyError as error:
            yield len(error.args)

    running = steps()
    next(running)
    assert asked_about(lambda: running.throw(KeyError(1, 2)))[-1] == "steps"  # type: ignore[attr-defined]
    given = steps()
    next(given)
    with watched(lambda code, _: False):
        assert given.throw(KeyError(1, 2)) == 2  # type: ignore[attr-defined]


def test_errors_pass_through_watched_frames() -> None:
    def fails(depth: int) -> Any:
        return fails(depth - 1) if depth else {}[depth]

    with watched(lambda code, _: bool(random.getrandbits(1))), pytest.raises(KeyError) as caught:
        fails(20)
    assert [entry.name for entry in caught.traceback[-21:]] == ["fails"] * 21


def test_recursion_has_the_same_limit() -> None:
    def deeper(depth: int) -> int:
        return deeper(depth + 1)

    call_hook.allow(deeper.__code__, lasting=False)
    with watched(lambda code, _: False):
        for _ in range(2):
            with pytest.raises(RecursionError):
                deeper(0)


def test_other_threads_are_not_watched() -> None:
    inner, seen = fresh("inner"), []
    thread = threading.Thread(target=lambda: seen.append(inner()))

    def work() -> None:
        thread.start()
        thread.join()

    names = asked_about(work)
    assert seen == [0] and "inner" not in names


def test_threads_are_watched_each_by_its_own_check() -> None:
    functions = [fresh(f"f{k}") for k in range(8)]
    together, found = threading.Barrier(len(functions)), {}

    def work(k: int) -> None:
        names: set[str] = set()

        def check(code: CodeType, _: dict[str, Any]) -> bool:
            names.add(code.co_name)
            return False

        with watched(check):
            together.wait()
            for _ in range(300):
                functions[k]()
            together.wait()
        found[k] = names

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all({x for x in found[k] if x[0] == "f" and x[1:].isdigit()} == {f"f{k}"} for k in range(len(functions)))


def trace_function(told: Any) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(told)
    yield
    sys.settrace(before)


def profile_function(told: Any) -> Iterator[None]:
    sys.setprofile(told)
    yield
    sys.setprofile(None)


def monitoring(told: Any) -> Iterator[None]:
    tools: Any = sys.monitoring  # type: ignore[attr-defined]
    tools.use_tool_id(3, "test")
    tools.register_callback(3, tools.events.PY_START, functools.partial(told, None))
    tools.set_events(3, tools.events.PY_START)
    yield
    tools.set_events(3, 0)
    tools.free_tool_id(3)


@pytest.mark.parametrize("tool", [trace_function, profile_function, monitoring])
def test_frames_of_tools_are_not_asked_about_and_those_of_the_program_are(tool: Any, rendering: str) -> None:
    if tool is monitoring and sys.version_info < (3, 12):
        pytest.skip("there is no sys.monitoring")
    if rendering == "Python" and tool is not trace_function:
        pytest.skip("a thread has one profile function")

    def tool_callback(frame: Any, event: Any, argument: Any) -> Any:
        noted(event if frame is None else frame.f_code)
        return None

    def noted(code: CodeType) -> None:
        seen.append(code.co_name)

    def work() -> None:
        threads.append(call_hook.watched_threads())
        inner()

    inner, seen, threads = fresh("inner"), [], []
    context = contextlib.contextmanager(tool)
    with context(tool_callback):
        names = asked_about(work)
    assert "inner" in names and "inner" in seen and not {"tool_callback", "noted"} & {*names}
    assert threads == [int(rendering != "Python")] and call_hook.obstacle() is None


def test_a_profiler_stands_in_the_way_where_its_frames_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_hook, "_TOOL_OFFSET", None)
    assert call_hook.obstacle() is None
    told = lambda *_: None
    sys.setprofile(told)
    try:
        assert call_hook.obstacle() is told
    finally:
        sys.setprofile(None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_does_not_watch_for_threads_that_it_has_not_got(rendering: str) -> None:
    if rendering == "Python":
        pytest.skip("profile functions belong to their threads")
    begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        with watched(lambda code, _: False):
            begun.set()
            may_end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    try:
        assert call_hook.watched_threads() == 1
        child = os.fork()
        if not child:
            os._exit(call_hook.watched_threads())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        may_end.set()
        thread.join()
