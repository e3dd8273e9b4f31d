"""Says which guard of a recorded path failed for a call, with the expected and the actual value: for TRACEJIT_DEBUG.

An entry only knows that one of its guards has failed, since they are one statement of Python, or machine code.  Here they are
evaluated one by one, as Python expressions.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tracejit.capture.recording.entry import Recording, TensorInput
from tracejit.capture.recording.facts import parameters, shown
from tracejit.core.op import Kind
from tracejit.core.shapes import element_strides
from tracejit.lowering.exits import exit_codes, node_code
from tracejit.replay.ir import CAUGHT, Attribute, Compare, Constant, Define, Expr, Is, Item, Miss, Name, Not, Or, renamed
from tracejit.report.summary import line_named

__all__ = ["effect_texts", "exit_sides", "exit_text", "input_names", "miss_text"]

_ARGUMENT: Final = re.compile(r"\bargs\[(\d+)\]")
_NAMED: Final = re.compile(r"\b(?:kwargs|globals)\['(\w+)'\]")
_ATTRIBUTES: Final = re.compile(r"\.__dict__\['(\w+)'\]")
_LONGEST: Final = 160


def input_names(recording: Recording, function: Any) -> dict[int, str]:
    """The inputs of a recording's graph -> how the user reaches them: "x", "model.0.weight"."""
    reader = _Guards(recording, function, (), {})
    reader.define_all()
    inputs: list[tuple[int, Expr]] = [(facts.value, facts.expression) for facts in recording.tensor_inputs]
    inputs += [(facts.value, facts.expression) for facts in recording.scalar_inputs]
    return {value: _ATTRIBUTES.sub(r".\1", reader.text(expression)) for value, expression in inputs}


def exit_sides(graph: Any, number: int) -> tuple[str, str, str, str]:
    """(what decides at exit `number` of a program, the user's "file:line" or "", what was expected, what was found)."""
    numbers = exit_codes(graph)
    node = next((node for node in graph.nodes if numbers[id(node)] == node_code(number)), None)
    if node is None:
        return "a size inside the program", "", "the recorded one", "another one"
    if node.op.kind is not Kind.GUARD:
        return node.op.name, node.line, "what was recorded", "something else"
    expected = node.attrs["expected"].value
    actual = str(not expected) if type(expected) is bool else "another value"
    return "the value", node.line, repr(expected), actual


def exit_text(graph: Any, number: int) -> str:
    """A text for exit `number` of a program: its line, and the value that was expected there."""
    what, where, expected, actual = exit_sides(graph, number)
    at = f" at {line_named(where) or 'a line that is not known'}" if where or what == "the value" else ""
    return f"{what}{at}: expected {expected}, found {actual}"


def effect_texts(recording: Recording, function: Any) -> list[str]:
    """What an entry does besides its program, after it, in words of the user as far as there are any."""
    reader = _Guards(recording, function, (), {})
    reader.define_all()
    return [_ATTRIBUTES.sub(r".\1", reader.text(statement)) for statement in recording.epilogue]


def miss_text(recording: Recording, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A text for the first guard of a recording that does not hold for a call, with both values."""
    if recording.generators or recording.locks:
        return "a guard that is not asked again, since the guards draw random numbers or take locks"
    try:
        return _Guards(recording, function, args, kwargs).failed()
    except Exception as error:  # guards read objects of the user, and a report must not make a call fail
        return f"a guard that cannot be evaluated here ({type(error).__name__}: {error})"


class _Guards:
    """The guards of a recording, evaluated for one call."""

    def __init__(self, recording: Recording, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._recording, self._parameters = recording, parameters(function)
        self._objects = {**recording.namespace, "args": args, "kwargs": kwargs}
        self._objects.update({name: recording.namespace[name]() for name in recording.weak})
        self._definitions: dict[str, Expr] = {}

    def failed(self) -> str:
        """A text for the first guard that does not hold."""
        for guard in self._recording.guards:
            try:
                match guard:
                    case Miss(condition):
                        if self._value(condition):
                            return self._failure_text(condition)
                    case Define(name, value):
                        self._objects[name], self._definitions[name] = self._value(value), self._named_variable(value)
                    case _:
                        exec(str(guard), self._objects)
            except CAUGHT as error:
                return f"{self.text(guard)}: {type(error).__name__}: {error}"
        for tensor in self._recording.tensor_inputs:
            if text := self._other_array(tensor):
                return text
        return "the guards hold now; the call has changed what one of them looks at, or arrays share memory"

    def define_all(self) -> None:
        """Take note of what variables stand for, without evaluating anything."""
        for guard in self._recording.guards:
            if isinstance(guard, Define):
                self._definitions[guard.name] = self._named_variable(guard.value)

    def _named_variable(self, value: Expr) -> Expr:
        """For the contents of a cell of a function's closure: the name of the variable."""
        match value:
            case Attribute(Item(Attribute(Name(function), "__closure__"), Constant(k)), "cell_contents"):
                code = getattr(self._recording.namespace.get(function), "__code__", None)
                return value if code is None else Name(code.co_freevars[k])
        return value

    def _value(self, expression: Expr) -> Any:
        return eval(str(expression), self._objects)

    def _failure_text(self, condition: Expr) -> str:
        """A text for the condition of a Miss, which holds."""
        match condition:
            case Or(values):
                return self._failure_text(next(value for value in values if self._value(value)))
            case Compare("!=", left, right) | Not(Is(left, right)):
                return f"{self.text(left)}: expected {self._shown(right)}, found {self._shown(left)}"
            case Not(Compare(_, left, _) as value):
                return f"{self.text(value)}: expected True, found False, since {self.text(left)} is {self._shown(left)}"
            case Not(value):
                return f"{self.text(value)}: expected True, found False"
        return f"{self.text(condition)}: expected False, found True"

    def _other_array(self, fact: TensorInput) -> str:
        """A text for the first difference between the array of a tensor and the recorded metadata; "" if there is none."""
        tensor = self._value(fact.expression)
        array = tensor._array
        recorded = {"shape": list(fact.shape), "dtype": fact.dtype, "strides": list(fact.strides)}
        actual = {"shape": list(array.shape), "dtype": tensor.dtype, "strides": list(element_strides(array))}
        for what, expected in recorded.items():
            if actual[what] != expected:
                return f"the {what} of {self.text(fact.expression)}: expected {expected}, found {actual[what]}"
        return ""

    def _shown(self, expression: Expr) -> str:
        value = self._value(expression)
        if isinstance(value, type):
            return value.__qualname__
        return repr(value) if type(value) in (tuple, list) and len(repr(value)) < _LONGEST else shown(value)

    def text(self, node: Any) -> str:
        """The text of a node in words of the user: arguments by their names, variables by the expressions that define them."""
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

    def _argument(self, match: re.Match[str]) -> str:
        number = int(match[1])
        return self._parameters[number] if number < len(self._parameters) else match[0]
