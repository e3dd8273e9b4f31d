"""Which guard of a recorded path failed for a call, with what was expected and what was found: for TRACEJIT_DEBUG.

The guards of an entry are one statement in Python, or machine code, and say no more than that one of them failed.  Here they are evaluated
one by one, as the Python that their text is.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tracejit.capture.recording.entry import Recording, TensorInput
from tracejit.capture.recording.facts import parameters, shown
from tracejit.core.op import Kind
from tracejit.core.shapes import element_strides
from tracejit.lowering.exits import exit_codes, node_code
from tracejit.replay.ir import CAUGHT, Compare, Define, Expr, Is, Miss, Name, Not, Or, renamed
from tracejit.report.summary import line_named

__all__ = ["exit_text", "miss_text"]

_ARGUMENT: Final = re.compile(r"\bargs\[(\d+)\]")
_NAMED: Final = re.compile(r"\b(?:kwargs|globals)\['(\w+)'\]")
_LONGEST: Final = 160


def exit_text(graph: Any, number: int) -> str:
    """Where a program was left at exit `number`, and what had to hold there."""
    numbers = exit_codes(graph)
    node = next((node for node in graph.nodes if numbers[id(node)] == node_code(number)), None)
    if node is None:
        return "a size inside the program is another one than was recorded"
    place = line_named(node.line) or "a line that is not known"
    if node.op.kind is not Kind.GUARD:
        return f"{node.op.name} at {place} found something else than was recorded"
    expected = node.attrs["expected"].value
    found = str(not expected) if type(expected) is bool else "another value"
    return f"the value at {place}: expected {expected!r}, found {found}"


def miss_text(recording: Recording, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The first guard of a recording that does not hold for a call, with both values."""
    if recording.generators or recording.locks:
        return "a guard that is not asked again, since the guards draw random numbers or take locks"
    try:
        return _Guards(recording, function, args, kwargs).failed()
    except Exception as error:  # what is looked at is the program's, and a report must not end a call
        return f"a guard that cannot be evaluated here ({type(error).__name__}: {error})"


class _Guards:
    """Those of a recording, for one call."""

    def __init__(self, recording: Recording, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._recording, self._parameters = recording, parameters(function)
        self._objects = {**recording.namespace, "args": args, "kwargs": kwargs}
        self._objects.update({name: recording.namespace[name]() for name in recording.weak})
        self._definitions: dict[str, Expr] = {}

    def failed(self) -> str:
        """The first that does not hold, in words."""
        for guard in self._recording.guards:
            try:
                match guard:
                    case Miss(condition):
                        if self._value(condition):
                            return self._failure_text(condition)
                    case Define(name, value):
                        self._objects[name], self._definitions[name] = self._value(value), value
                    case _:
                        exec(str(guard), self._objects)
            except CAUGHT as error:
                return f"{self._text(guard)}: {type(error).__name__}: {error}"
        for tensor in self._recording.tensor_inputs:
            if text := self._other_array(tensor):
                return text
        return "the guards hold now; the call has changed what one of them looks at, or arrays share memory"

    def _value(self, expression: Expr) -> Any:
        return eval(str(expression), self._objects)

    def _failure_text(self, condition: Expr) -> str:
        """A condition that should not hold."""
        match condition:
            case Or(values):
                return self._failure_text(next(value for value in values if self._value(value)))
            case Compare("!=", left, right) | Not(Is(left, right)):
                return f"{self._text(left)}: expected {self._shown(right)}, found {self._shown(left)}"
            case Not(Compare(_, left, _) as value):
                return f"{self._text(value)}: expected True, found False, since {self._text(left)} is {self._shown(left)}"
            case Not(value):
                return f"{self._text(value)}: expected True, found False"
        return f"{self._text(condition)}: expected False, found True"

    def _other_array(self, fact: TensorInput) -> str:
        """What is other than was recorded about the memory of a tensor; empty where nothing is."""
        tensor = self._value(fact.expression)
        array = tensor._array
        recorded = {"shape": list(fact.shape), "dtype": fact.dtype, "strides": list(fact.strides)}
        found = {"shape": list(array.shape), "dtype": tensor.dtype, "strides": list(element_strides(array))}
        for what, expected in recorded.items():
            if found[what] != expected:
                return f"the {what} of {self._text(fact.expression)}: expected {expected}, found {found[what]}"
        return ""

    def _shown(self, expression: Expr) -> str:
        value = self._value(expression)
        if isinstance(value, type):
            return value.__qualname__
        return repr(value) if type(value) in (tuple, list) and len(repr(value)) < _LONGEST else shown(value)

    def _text(self, node: Any) -> str:
        """What the program would call it: arguments by their names, variables by where they come from."""
        for _ in range(8):
            before, node = node, renamed(node, self._defined)
            if node == before:
                break
        text = _NAMED.sub(r"\1", _ARGUMENT.sub(self._argument, str(renamed(node, self._named))))
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."

    def _defined(self, name: Name) -> Expr:
        return self._definitions.get(name.name, name)

    def _named(self, name: Name) -> Expr:
        value = self._recording.namespace.get(name.name)
        if type(value) is dict and "__builtins__" in value:
            return Name("globals")
        return Name(getattr(value, "__qualname__", name.name))

    def _argument(self, found: re.Match[str]) -> str:
        number = int(found[1])
        return self._parameters[number] if number < len(self._parameters) else found[0]
