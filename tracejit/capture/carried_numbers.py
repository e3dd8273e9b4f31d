"""Numbers that steps of a loop change, as tensors that the program has.

Floats in variables that a step assigns to (`time += dt`), and numbers inside of what variables lead to (`self.time += dt`,
`State(x, state.steps + 1)`), are made numbers of the program at the beginning of the second step, if the first one has changed them: steps
that follow compute with them as with any that are taken out of tensors (handlers/late.py), and the loop carries the tensors on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tracejit.capture.handlers.late import is_late
from tracejit.capture.handlers.symbols import is_symbolic, plain
from tracejit.capture.inside import places_in, put_along
from tracejit.core.dtypes import float64, int64
from tracejit.ops.creation import full
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["CarriedNumbers"]

Places = dict[tuple[Any, ...], Any]
"""By (variable, places that lead inside)."""


class CarriedNumbers:
    """Those of one loop."""

    def __init__(self, interpreter: RecordingInterpreter, names: Iterable[str]) -> None:
        """names: of variables that steps assign to and hand on."""
        self._interpreter = interpreter
        self._names = tuple(names)
        self._floats: Places = {}
        self._inside: Places = {}

    def begin(self, variables: Mapping[str, Any], looked_at: Mapping[str, Any]) -> None:
        """The first step begins.  looked_at: the variables that tell steps apart."""
        self._floats, self._inside = self._floats_in(variables), self._numbers_in(looked_at)

    def carry(self, variables: dict[str, Any], looked_at: Mapping[str, Any]) -> bool:
        """The second step begins.  Whether there are such numbers; then they are in their places."""
        inside = self._changed(self._numbers_in(looked_at), self._inside)
        floats = self._floats_in(variables)
        floats = {place: x for place, x in floats.items() if place in self._floats} if self._changed(floats, self._floats) else {}
        for (name, *path), x in (floats | inside).items():
            number = self._interpreter.take_number(full(x, shape=(), dtype=float64 if type(plain(x)) is float else int64))
            variables[name] = put_along(self._interpreter.recorder, variables[name], tuple(path), number)
        return bool(floats or inside)

    def tensors(self, variables: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors of floats in variables."""
        numbers: dict[str, Any] = {name: variables[name] for name in self._names if is_late(variables.get(name))}
        found = {name: x._late.in_program() for name, x in numbers.items() if type(x._value) is float}
        return {name: x for name, x in found.items() if x is not None}

    def _floats_in(self, variables: Mapping[str, Any]) -> Places:
        """Floats, and those that are computed of numbers from outside before the program runs."""
        numbers = {(name,): x for name in self._names if type(plain(x := variables.get(name))) is float}
        return {place: x for place, x in numbers.items() if not is_late(x)}

    def _numbers_in(self, looked_at: Mapping[str, Any]) -> Places:
        """The same inside of what variables lead to, and integers."""
        places = places_in(self._interpreter.recorder, looked_at)
        return {place: x for place, x in places if type(plain(x)) in (int, float) and not is_late(x)}

    @staticmethod
    def _changed(now: Places, before: Places) -> Places:
        return {place: x for place, x in now.items() if place in before and not _is_same(x, before[place])}


def _is_same(x: Any, y: Any) -> bool:
    """Whether two numbers are the same in each call."""
    if is_symbolic(x) and is_symbolic(y):
        return bool(x._name == y._name)
    return type(x) is type(y) and type(x) in (int, float) and bool(x == y)
