"""Says which guard of a recorded path failed for a call, with the expected and the actual value: for TRACEJIT_DEBUG.

An entry only knows that one of its guards has failed, since they are one statement of Python, or machine code.  Here they are
evaluated one by one, as Python expressions.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from tracejit.capture.recording.entry import Recording, TensorInput
from tracejit.capture.recording.facts import parameters, shown
from tracejit.core.op import Kind
from tracejit.core.shapes import element_strides
from tracejit.lowering.exits import exit_codes, node_code
from tracejit.replay.ir import (
    CAUGHT,
    Attribute,
    Compare,
    Constant,
    Contains,
    Define,
    Expr,
    Is,
    Item,
    Miss,
    Name,
    Not,
    Or,
    renamed,
)
from tracejit.report.phrases import line_named

__all__ = ["Failure", "effect_texts", "exit_failure", "input_names", "miss_failure"]

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


class Failure(NamedTuple):
    """Why a path does not serve a call.  what: the thing that is guarded, in words of the user.  where: the user's "file:line", or "".
    expected, found: its two values, as texts; "" for both where `what` says all.  note: more about what was found."""

    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    note: str = ""

    def text(self) -> str:
        """All of it, with the text of the line if that can be read."""
        at = f" at {line_named(self.where)}" if self.where else ""
        sides = f": expected {self.expected}, found {self.found}" if self.expected else ""
        return f"{self.what}{at}{sides}{self.note}"


def exit_failure(graph: Any, number: int) -> Failure:
    """What decides at exit `number` of a program."""
    numbers = exit_codes(graph)
    node = next((node for node in graph.nodes if numbers[id(node)] == node_code(number)), None)
    if node is None:
        return Failure("a size inside the program", "", "the recorded one", "another one")
    if node.op.kind is not Kind.GUARD:
        return Failure(node.op.name, node.line, "what was recorded", "something else")
    expected = node.attrs["expected"].value
    actual = str(not expected) if type(expected) is bool else "another value"
    return Failure("the value", node.line, repr(expected), actual)


def effect_texts(recording: Recording, function: Any) -> list[str]:
    """What an entry does besides its program, after it, in words of the user as far as there are any."""
    reader = _Guards(recording, function, (), {})
    reader.define_all()
    return [_ATTRIBUTES.sub(r".\1", reader.text(statement)) for statement in recording.epilogue]


def miss_failure(recording: Recording, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Failure:
    """The first guard of a recording that does not hold for a call."""
    if recording.generators or recording.locks:
        return Failure("a guard that is not asked again, since the guards draw random numbers or take locks")
    try:
        failure = _Guards(recording, function, args, kwargs).failed()
    except Exception as error:  # guards read objects of the user, and a report must not make a call fail
        return Failure(f"a guard that cannot be evaluated here ({type(error).__name__}: {error})")
    lines = [fact.where for fact in recording.facts if fact.name == failure.what and fact.where]
    return failure._replace(where=lines[0]) if lines else failure


class _Guards:
    """The guards of a recording, evaluated for one call."""

    def __init__(self, recording: Recording, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._recording, self._parameters = recording, parameters(function)
        self._objects = {**recording.namespace, "args": args, "kwargs": kwargs}
        self._objects.update({name: recording.namespace[name]() for name in recording.weak})
        self._definitions: dict[str, Expr] = {}

    def failed(self) -> Failure:
        """The first guard that does not hold."""
        for guard in self._recording.guards:
            try:
                match guard:
                    case Miss(condition):
                        if self._value(condition):
                            return self._failure(condition)
                    case Define(name, value):
                        self._objects[name], self._definitions[name] = self._value(value), self._named_variable(value)
                    case _:
                        exec(str(guard), self._objects)
            except CAUGHT as error:
                return Failure(f"{self.text(guard)}: {type(error).__name__}: {error}")
        for tensor in self._recording.tensor_inputs:
            if (failure := self._other_array(tensor)) is not None:
                return failure
        return Failure("the guards hold now; the call has changed what one of them looks at, or arrays share memory")

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

    def _failure(self, condition: Expr) -> Failure:
        """What the condition of a Miss, which holds, is about."""
        match condition:
            case Or(values):
                return self._failure(next(value for value in values if self._value(value)))
            case Compare("!=", left, right) | Not(Is(left, right)):
                return Failure(self.text(left), "", self._shown(right), self._shown(left))
            case Not(Compare(_, left, _) as value):
                return Failure(self.text(value), "", "True", "False", f", since {self.text(left)} is {self._shown(left)}")
            case Not(value):
                return Failure(self.text(value), "", "True", "False")
            case Contains(Attribute(owner, "__dict__"), Constant(str(name))):
                found = shown(self._value(owner).__dict__[name])
                return Failure(f"{self.text(owner)}.{name}", "", "no attribute of the object itself", found)
        return Failure(self.text(condition), "", "False", "True")

    def _other_array(self, fact: TensorInput) -> Failure | None:
        """The first difference between the array of a tensor and the recorded metadata; None if there is none."""
        tensor = self._value(fact.expression)
        array = tensor._array
        recorded = {"shape": list(fact.shape), "dtype": fact.dtype, "strides": list(fact.strides)}
        actual = {"shape": list(array.shape), "dtype": tensor.dtype, "strides": list(element_strides(array))}
        for what, expected in recorded.items():
            if actual[what] != expected:
                return Failure(f"the {what} of {self.text(fact.expression)}", "", str(expected), str(actual[what]))
        return None

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
