"""Python does with a stub what it does with an object whose special method has returned the same."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T
from tracejit.capture.handlers.special_method_stub import SpecialMethodStub

CONVERSIONS: list[tuple[str, Callable[[Any], Any]]] = [
    ("__len__", len),
    ("__hash__", hash),
    ("__str__", str),
    ("__repr__", repr),
    ("__float__", float),
    ("__int__", int),
    ("__complex__", complex),
    ("__bytes__", bytes),
    ("__index__", operator.index),
]


def outcome(convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize(("name", "convert"), CONVERSIONS)
@pytest.mark.parametrize("result", [3, -3, "text", 2.5, b"bytes", 1j, None], ids=repr)
def test_a_stub_is_converted_as_an_object_with_that_method(name: str, convert: Callable[[Any], Any], result: Any) -> None:
    cls: Any = type("Own", (), {name: lambda self: result})
    value = cls()
    assert outcome(convert, SpecialMethodStub.of(name, result, value)) == outcome(convert, value)


class Odd:
    def __float__(self) -> Any:
        return "text"


def test_the_error_of_a_conversion_in_a_recorded_call_names_the_class_of_the_program() -> None:
    odd = Odd()
    with pytest.raises(TypeError, match=r"^Odd\.__float__ returned non-float \(type str\)$"):
        T.compile(lambda x: x * float(odd))(T.ones(2))
