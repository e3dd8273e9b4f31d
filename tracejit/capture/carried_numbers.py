"""Numbers that steps of a loop of any length change, carried by the loop in tensors.

These are floats in variables (`time += dt`), numbers inside of what variables lead to (`self.time += dt`, `State(x, state.steps +
1)`), and numbers that steps store outside.  Where the first step has changed one, it becomes a number of the program at the
beginning of the second step: later steps compute with it as with any number that is taken out of a tensor
(handlers/post_program.py), and the loop carries the tensor.  Where all steps run after all, the numbers inside and outside become
plain ones again, as far as they are the same in each call: else each decision by one would be asked of the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tracejit.capture.handlers.in_program import WORD
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import is_symbolic
from tracejit.capture.nested_places import Path, paths_in, store_along
from tracejit.core.dtypes import float64, int64
from tracejit.ops.creation import full
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["CarriedNumbers"]


class CarriedNumbers:
    """The carried numbers of one loop."""

    def __init__(self, interpreter: RecordingInterpreter, names: Iterable[str]) -> None:
        """names: of variables that steps assign to and hand on."""
        self._interpreter = interpreter
        self._names = tuple(names)
        self._floats: dict[Path, Any] = {}
        self._inside: dict[Path, Any] = {}
        self._outside: dict[int, Any] = {}  # by the positions of stores among the effects
        self._plain_before: dict[int, Any] = {}  # numbers inside, by id, that were plain ones

    def begin(self, variables: Mapping[str, Any], looked_at: Mapping[str, Any], others: Iterable[Any]) -> None:
        """The first step begins.  looked_at: the variables that tell steps apart.  others: what else the function finds."""
        self._floats, self._inside = self._floats_in(variables), self._numbers_in(looked_at, others)
        self._outside = self._numbers_outside()

    def carry(self, variables: dict[str, Any], looked_at: Mapping[str, Any], others: Iterable[Any]) -> bool:
        """The second step begins: numbers that the first one has changed become numbers of the program.  Whether variables got
        new values."""
        inside = self._changed(self._numbers_in(looked_at, others), self._inside)
        floats = self._floats_in(variables)
        floats = {path: x for path, x in floats.items() if path in self._floats} if self._changed(floats, self._floats) else {}
        for path, x in (floats | inside).items():
            number = self._in_program(x)
            self._move_to_tensors(variables, path, number)
            if path in inside and not is_symbolic(x):
                self._plain_before[id(number)] = number
        for position, x in self._numbers_outside().items():
            if position not in self._outside or not _is_same(x, self._outside[position]):
                number = self._in_program(x)
                self._interpreter.recorder.effects.store_again(position, number)
                if not is_symbolic(x):
                    self._plain_before[id(number)] = number
        return bool(floats or inside)

    def _in_program(self, x: Any) -> Any:
        return self._interpreter.take_number(full(x, shape=(), dtype=float64 if type(plain(x)) is float else int64))

    @property
    def is_pending(self) -> bool:
        """Whether `give_up` has numbers to make plain again."""
        return bool(self._plain_before)

    def give_up(self, variables: dict[str, Any], looked_at: Mapping[str, Any], others: Iterable[Any]) -> None:
        """All steps run: numbers that were computed of those which `carry` has put inside become plain again."""
        for path, x in paths_in(self._interpreter.recorder, looked_at, others):
            if is_post_program(x) and self._is_same_in_each_call(x):
                self._move_to_tensors(variables, path, plain(x))
        effects = self._interpreter.recorder.effects
        for position, effect in effects.stores().items():
            if is_post_program(effect.value) and self._is_same_in_each_call(effect.value):
                effects.store_again(position, plain(effect.value))
        self._plain_before.clear()

    def _move_to_tensors(self, variables: dict[str, Any], path: Path, number: Any) -> None:
        variables[path[0]] = store_along(self._interpreter.recorder, variables[path[0]], path[1:], number)

    def _is_same_in_each_call(self, x: Any) -> bool:
        """Whether a number is the same in each call: `carry` has made it of a plain one, or it was computed of such alone."""
        if not is_post_program(x):
            return type(x) in (int, float, bool)
        parts = x._post_program.parts
        return id(x) in self._plain_before or (
            x._post_program.expression is not None and bool(parts) and all(map(self._is_same_in_each_call, parts))
        )

    def tensors(self, variables: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors of carried floats in variables, by name."""
        numbers: dict[str, Any] = {name: variables[name] for name in self._names if is_post_program(variables.get(name))}
        found = {name: x._post_program.program_tensor() for name, x in numbers.items() if type(x._value) is float}
        return {name: x for name, x in found.items() if x is not None}

    def _floats_in(self, variables: Mapping[str, Any]) -> dict[Path, Any]:
        """Floats in variables that are computed before the program runs, of numbers from outside, too."""
        numbers: dict[Path, Any] = {(name,): x for name in self._names if type(plain(x := variables.get(name))) is float}
        return {path: x for path, x in numbers.items() if not is_post_program(x)}

    def _numbers_in(self, looked_at: Mapping[str, Any], others: Iterable[Any]) -> dict[Path, Any]:
        """The same inside of what variables lead to, and integers that fit a word of the program."""
        found = paths_in(self._interpreter.recorder, looked_at, others)
        return {path: x for path, x in found if _may_be_in_program(x)}

    def _numbers_outside(self) -> dict[int, Any]:
        """The same of numbers that the call has stored outside."""
        stores = self._interpreter.recorder.effects.stores()
        return {position: effect.value for position, effect in stores.items() if _may_be_in_program(effect.value)}

    @staticmethod
    def _changed(now: dict[Path, Any], before: dict[Path, Any]) -> dict[Path, Any]:
        return {path: x for path, x in now.items() if path in before and not _is_same(x, before[path])}


def _may_be_in_program(x: Any) -> bool:
    """Whether `x` is a float, or an integer that fits a word, and is computed before the program runs."""
    number = plain(x)
    return not is_post_program(x) and (type(number) is float or (type(number) is int and number.bit_length() <= WORD))


def _is_same(x: Any, y: Any) -> bool:
    """Whether two numbers are the same in each call."""
    if is_symbolic(x) and is_symbolic(y):
        return bool(x._name == y._name)
    return type(x) is type(y) and type(x) in (int, float) and bool(x == y)
