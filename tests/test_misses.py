"""`tracejit.explain_misses()`: why calls were recorded again, for all functions of a process."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import tracejit as T
from tracejit.report.misses import Miss


def sides(misses: T.explain_misses) -> list[tuple[str, str, str]]:
    return [(miss.what, miss.expected, miss.found) for miss in misses.misses]


class Holder:
    def __init__(self) -> None:
        self.mode = "plain"


def function(x: T.Tensor, n: int, holder: Any) -> T.Tensor:
    if holder.mode == "plain":
        x = x * len("a" * n)
    return x if x.sum() > 0 else -x


CHANGES: dict[str, tuple[Any, ...]] = {
    "another number": (lambda x, n, h: (x, 3, h), "n", "2", "3"),
    "another size": (lambda x, n, h: (T.ones(5), n, h), "the shape of x", "[2]", "[5]"),
    "another dtype": (lambda x, n, h: (x.double(), n, h), "the dtype of x", "tracejit.float32", "tracejit.float64"),
    "another type": (lambda x, n, h: (x, 2.5, h), "type(n)", "int", "float"),
    "another branch": (lambda x, n, h: (-x, n, h), "the value", "True", "False"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_call_that_is_recorded_again_has_the_guard_that_failed_with_both_values(change: str) -> None:
    changed, what, expected, found = CHANGES[change]
    compiled, given = T.compile(function, dynamic=False), (T.ones(2), 2, Holder())
    for _ in range(2):
        compiled(*given)
    with T.explain_misses() as misses:
        compiled(*given)
        try:
            compiled(*changed(*given))
        except TypeError:
            assert change == "another type"  # of the function itself
    assert sides(misses) == [(what, expected, found)]
    assert misses.misses[0].function == "function"


def test_the_line_of_a_guard_is_told() -> None:
    compiled, holder = T.compile(function, dynamic=False), Holder()
    for _ in range(2):
        compiled(T.ones(2), 2, holder)
    with T.explain_misses() as misses:
        compiled(-T.ones(2), 2, holder)
        holder.mode = "other"
        compiled(T.ones(2), 2, holder)
    first = function.__code__.co_firstlineno
    assert [miss.where for miss in misses.misses] == [f"{__file__}:{first + 3}", f"{__file__}:{first + 1}"]
    assert sides(misses)[1] == ("holder.mode", "'plain'", "'other'")
    assert f"at line {first + 3} of test_misses.py, `return x if x.sum() > 0 else -x`" in str(misses)


def test_an_attribute_that_hides_one_of_the_class_is_told_in_words() -> None:
    class Plain:
        mode = "plain"

    compiled, holder = T.compile(function, dynamic=False), Plain()
    for _ in range(2):
        compiled(T.ones(2), 2, holder)
    holder.mode = "other"
    with T.explain_misses() as misses:
        compiled(T.ones(2), 2, holder)
    assert sides(misses) == [("holder.mode", "no attribute of the object itself", "'other'")]


def test_only_calls_of_the_block_count_and_only_those_that_were_recorded_again() -> None:
    compiled = T.compile(lambda x, n: x * len("a" * n), dynamic=False)
    compiled(T.ones(2), 1)
    compiled(T.ones(2), 2)
    with T.explain_misses() as outer:
        compiled(T.ones(2), 3)
        with T.explain_misses() as inner:
            compiled(T.ones(2), 4)
            T.compile(lambda x: x + 1)(T.ones(2))  # the first recording of a function
        compiled(T.ones(2), 5)
        compiled(T.ones(2), 3)
    assert [miss.found for miss in inner.misses] == ["4"] and [miss.found for miss in outer.misses] == ["3", "4", "5"]
    so_far = T.explain_misses()
    assert [miss for miss in so_far.misses if miss in outer.misses] == outer.misses and len(so_far.misses) > 3
    assert isinstance(so_far.misses[0], Miss)


def test_the_text_puts_calls_with_the_same_guard_together() -> None:
    compiled = T.compile(lambda x, n: x * len("a" * n), dynamic=False)
    with T.explain_misses() as misses:
        assert str(misses) == "no call was recorded again"
        for n in range(1, 8):
            compiled(T.ones(2), n)
    text = str(misses)
    assert text.startswith("6 calls recorded again:") and "6 times: n" in text and "... and 2 more" in text
    assert "expected 1, found 2" in text and repr(misses) == text


def test_calls_of_functions_that_cannot_be_recorded_are_no_misses() -> None:
    def eager(x: T.Tensor) -> T.Tensor:
        sys.getsizeof(print)
        return x

    compiled = T.compile(eager)
    with T.explain_misses() as misses:
        for _ in range(3):
            compiled(T.ones(2))
    assert misses.misses == []
