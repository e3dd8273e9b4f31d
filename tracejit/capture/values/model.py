"""The model of a kind of immutable value: the questions that handlers ask about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ALL_OPERATORS", "ValueModel"]

ALL_OPERATORS: frozenset[str] = frozenset(
    {"+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "&", "|", "^", "neg", "pos", "invert", "bool"}
)


@dataclass(frozen=True)
class ValueModel:
    """What a recording may rely on for the values whose type is exactly `type`.  None of these functions runs code of the program.

    key: a tuple that tells a value from others of its type, of None, exact numbers and texts, and objects that are compared by identity.
        A program cannot tell two values with equal keys apart, but by `is`.  It is None for a value that later calls must find as the
        same object; so are all values where there is no function.
    operators: the symbols of operators, `bool` for the truth, whose results depend on the operands and `environment` alone, and that
        change nothing else.  Operands of other types have to say so, too.
    impure_methods: the methods of which the same does not hold.
    is_pure_format: whether it holds of `format(value, specification)`, for a specification that is not empty.
    environment: what operators, methods and texts depend on besides, guarded to be as a computation leaves it: one that is done again
        has to give the same, and to leave it as it is.  It has the same kind of elements as a key.
    item_method: the method that gives `value[key]`, called with the key; "" of a type without such a method.
    is_constructed: whether calls may construct values: `type(...)` depends on the arguments and `environment` alone.
    """

    type: type
    key: Callable[[Any], tuple[Any, ...] | None] | None = None
    operators: frozenset[str] = frozenset()
    impure_methods: frozenset[str] = frozenset()
    is_pure_format: Callable[[str], bool] = lambda specification: True
    environment: Callable[[], tuple[Any, ...]] | None = None
    is_constructed: bool = False
    item_method: str = ""
