"""The profile function of a recording: which calls it asks about, in machine code and in Python."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tracejit.cpython import c_api, call_hook


@pytest.fixture(params=["machine code", "Python"], autouse=True)
def rendering(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "Python":
        monkeypatch.setattr(call_hook, "_installer", lambda: None)
    elif not c_api.supported():
        pytest.skip("machine code may not look at the objects of this interpreter")
    yield
    call_hook.forget()
    assert sys.getprofile() is None


def fresh(name: str) -> Any:
    """A function whose code nobody knows."""
    namespace: dict[str, Any] = {}
    exec(f"def {name}(*callees):\n    return sum([callee() or 1 for callee in callees])", namespace)
    return namespace[name]


def asked_about(action: Any) -> list[str]:
    names: list[str] = []
    call_hook.Watch(lambda frame: names.append(frame.f_code.co_name)).begin()
    try:
        action()
    finally:
        sys.setprofile(None)
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


def test_the_hook_may_go_while_it_is_asked() -> None:
    outer, inner = fresh("outer"), fresh("inner")
    names = []

    def check(frame: Any) -> None:
        names.append(frame.f_code.co_name)
        sys.setprofile(None)

    call_hook.Watch(check).begin()
    outer(inner)
    assert names == ["outer"]


def test_what_the_check_raises_is_raised_where_the_call_was_made() -> None:
    def check(frame: Any) -> None:
        raise LookupError(frame.f_code.co_name)

    inner = fresh("inner")
    call_hook.Watch(check).begin()
    try:
        inner()
    except LookupError as error:
        found = error
    assert sys.getprofile() is None and str(found) == "inner"


def test_other_threads_are_not_watched() -> None:
    inner, seen = fresh("inner"), []
    thread = threading.Thread(target=lambda: seen.append(inner()))

    def work() -> None:
        thread.start()
        thread.join()

    names = asked_about(work)
    assert seen == [0] and "inner" not in names
