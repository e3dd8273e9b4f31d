"""Variables of a loop that count its steps: targets that go through integers, and variables to which each step adds a number.

A counter makes each step another one.  It does not where steps use it in three ways:

- As a position, `xs[t]`, `xs[:, t + 1]`, `xs[n - 1 - t]`, which moves by a fixed distance from step to step.  In a loop of any
  length the counter is a symbolic size there.
- In a comparison, `t > 0`: its result is noted, and has to be the same in all steps that do not run.
- In arithmetic, `t * dt`.  In a loop of any length all counts are a tensor of the program there, and the counter is an element of
  it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import concretise, is_symbolic
from tracejit.capture.iteration_space import MORE_THAN, FixedTripCount, InductionValues, IterationSpace, SymbolicTripCount
from tracejit.capture.loop_steps import CounterComparison, LoopStep
from tracejit.capture.policies import BINARY
from tracejit.core.dtypes import float32, float64, int32, int64
from tracejit.core.symbolic import without_symbols
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.loop_headers import LoopHeader
    from tracejit.capture.syntax.loops import LoopNames
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["LoopCounters"]

_HOLDING_COUNTERS: Final = frozenset({int32, int64, float32, float64})
"""Dtypes of tensors that compare with a counter as with a tensor of its kind: it has 31 bits at most."""


class LoopCounters:
    """The counters of one loop, and which of its steps runs.

    elements: of the loop; None before they are known, and where all steps run.  at: which of them the step that runs has.
    is_watched: whether steps that follow may be left out.  names: variables that count steps.  units: by how much places that
    counters are part of may move from step to step, whatever the direction."""

    def __init__(self, interpreter: RecordingInterpreter, headers: LoopHeader, names: LoopNames) -> None:
        self._interpreter, self._headers, self._names = interpreter, headers, names
        self.elements: FixedTripCount | SymbolicTripCount | None = None
        self.at = -1
        self.is_watched = False
        self.names = names.counters
        self.units: set[int] = set()
        self._targets: dict[str, InductionValues] = {}
        self._added_to: dict[str, InductionValues] = {}  # variables to which each step adds a number
        self._in_tensors: dict[str, InductionValues] = {}  # counters that steps compute with
        self._comparisons: list[tuple[str, Any, Any, bool]] = []

    @property
    def _symbolic(self) -> SymbolicTripCount | None:
        """The elements of a loop of any length; None of one of a fixed length."""
        return self.elements if isinstance(self.elements, SymbolicTripCount) else None

    @property
    def _watched(self) -> SymbolicTripCount | None:
        """The same, while its steps are watched."""
        return self._symbolic if self.is_watched else None

    # -- the loop begins
    def begin(self, targets: Mapping[str, InductionValues], count: Any) -> bool:
        """The loop goes through so many elements, in each of which these targets count.  False where a counter that steps compute
        with may be too long for a tensor."""
        self._targets = {**targets}
        self._in_tensors = {name: part for name, part in targets.items() if name in self._names.numbers}
        self.names = tuple({*self._names.counters, *targets})
        self.units = {1, *[abs(part.step) for part in targets.values()]}
        return all(part.become_tensor(count) for part in self._in_tensors.values())

    def note_variables(self, variables: Mapping[str, Any]) -> None:
        """The first step begins: variables to which steps add a number count them, if they are integers."""
        for name, step in self._names.kept:
            start = self._headers.size(variables.get(name))
            if start is not None:
                self._added_to[name] = InductionValues(self._interpreter.recorder, start, step)

    def begin_variables(self) -> None:
        """Such variables are numbers of the recording, as far as steps run that count from the end."""
        self.names = (*self.names, *self._added_to)
        self.units |= {abs(part.step) for part in self._added_to.values()}
        elements = self._symbolic
        if elements is None:
            return
        admit = self._interpreter.recorder.sizes.from_library
        for name, part in self._added_to.items():
            for distance in range(elements.first):
                admit(part.at(elements.count - distance))
                admit(part.at(distance))
            if name in self._names.numbers and part.become_tensor(elements.count + 1):
                self._in_tensors[name] = part

    def while_space(self, name: str, symbol: str, counter: Any, other: Any) -> IterationSpace | None:
        """The steps of a `while` loop for which a variable is compared in its first step; None where that does not say how many
        they are."""
        part, first, end = self._added_to.get(name), self._headers.size(counter), self._headers.size(other)
        if self.at or part is None or first is None:
            return None
        if end is None and _is_integer_from_outside(other):
            end = concretise(other)  # as the comparisons of all steps say, too; the next one is followed as a size is
        step = part.step
        if (
            end is None
            or symbol not in (("<", "<=", "!=") if step > 0 else (">", ">=", "!="))
            or (symbol == "!=" and abs(step) > 1)
        ):
            return None
        last = end if symbol in ("<", ">", "!=") else end + (1 if step > 0 else -1)
        return self._headers.count_range(first, last, step)

    # -- positions
    def concretise_integer(self, number: Any) -> Any:
        """An integer from outside by its value, which is guarded, where it is part of a place in a loop of any length; anything
        else as it is."""
        if self._watched is None or not _is_integer_from_outside(number):
            return number
        return concretise(number) if self._headers.size(number) is None else number

    def offset(self, symbol: str, left: Any, right: Any) -> Any:
        """The sum or difference of a counter and a number, as a size; None where one of them is no size."""
        a, b = self._headers.size(left), self._headers.size(right)
        if a is None or b is None or self._watched is None:
            return None
        return self._place_along(a + b if symbol == "+" else a - b, self._watched, self.units)

    def scaled(self, counter: Any, factor: Any) -> tuple[bool, Any]:
        """(whether the product of a counter and an integer is a place that moves with the steps, the product as a size, or None
        of a plain one)."""
        size = self._headers.size(counter)
        if not self.is_watched or self.elements is None or size is None or type(factor) is not int or not factor:
            return False, None
        counters = (*self._targets.values(), *self._added_to.values())
        steps = [abs(factor * unit) for unit in {1, *[abs(part.step) for part in counters]}]
        steps += [abs(factor * step) for step in self.elements.range_steps]
        self.units.update(steps)
        if type(size) is int or self._symbolic is None:
            return True, None
        return True, self._place_along(size * factor, self._symbolic, steps)

    def _place_along(self, place: Any, elements: SymbolicTripCount, units: Collection[int]) -> Any:
        """A place as the program gets it.  Those that other steps have, so many units from it, are numbers of the recording from
        now on: no step that follows has one more."""
        sizes = self._interpreter.recorder.sizes
        if not sizes.has_name(place):
            most = max(MORE_THAN, elements.first)
            for distance in range(-most, most + 1):
                for unit in units:
                    sizes.from_library(place + distance * unit)
        return sizes.from_library(place)

    # -- comparisons
    def note_comparison(self, symbol: str, counter: Any, other: Any, answer: bool) -> bool:
        """Note the result of a comparison of a counter; False where it is none of sizes alone."""
        if self.is_watched:
            a, b = self._headers.size(counter), self._headers.size(other)
            if a is None or b is None:
                return False
            self._comparisons.append((symbol, a, b, answer))  # a class with names would run code that the recording watches
        return True

    def take_comparisons(self) -> list[CounterComparison]:
        """The comparisons of the step that has run."""
        comparisons, self._comparisons = self._comparisons, []
        return [CounterComparison(*x) for x in comparisons]

    def agree(self, step: LoopStep, following: LoopStep) -> bool:
        """Whether all comparisons of counters have the same result in the steps after these two."""
        assert self.elements is not None
        steps_left = self.elements.count - 1 - self.at
        for one, other in zip(step.comparisons, following.comparisons, strict=True):
            distance = other.counter - one.counter
            if type(distance) is not int or abs(distance) not in self.units:
                return False
            ends = other.counter + distance, other.counter + distance * steps_left
            low, high = ends if distance > 0 else ends[::-1]
            if other.symbol in ("==", "!="):
                if not (other.other < low or other.other > high):
                    return False
            elif not all(BINARY[other.symbol](end, other.other) is other.answer for end in (low, high)):
                return False
        return True

    # -- arithmetic
    def number_in_program(self, name: str, ahead: int, counter: Any) -> Any:
        """A counter that steps compute with, as an element of the tensor of its counts.  ahead: how many steps it is further."""
        elements = self._watched
        if elements is None or name not in self._in_tensors:
            return counter
        return self._in_tensors[name].in_program(self.at, elements.place(self.at), ahead)

    def place_in_program(self, key: Any) -> Any:
        """A place that moves with a counter, as a number that the program computes; None where it does not move."""
        at, elements = self._headers.size(key), self._symbolic
        if at is None or elements is None:
            return None
        place = elements.place(self.at)
        for name, part in (*self._targets.items(), *self._added_to.items()):
            offset = at - part.at(place)
            if type(offset) is int and (name in self._in_tensors or part.become_tensor(elements.count + 1)):
                self._in_tensors[name] = part
                number = part.in_program(self.at, place)
                return number + offset if offset else number
        return None

    def as_tensor(self, counter: Any, other: Any) -> Tensor | None:
        """A counter as a tensor of the program, to be compared with another tensor as a number would be; None where dtypes would
        make a difference."""
        number = self.place_in_program(counter) if type(other) is Tensor and other.dtype in _HOLDING_COUNTERS else None
        return number._post_program.program_tensor() if is_post_program(number) else None  # type: ignore[union-attr]

    # -- variables
    def tensors(self) -> dict[str, Any]:
        """The tensors of counts, which have no variables, by names that no variable has."""
        return {f"numbers of {name}": part.tensor for name, part in self._in_tensors.items()}

    def are_as_counted(self, variables: Mapping[str, Any]) -> bool:
        """Whether variables to which steps add a number are what they are to be in the step that begins."""
        assert self.elements is not None
        place = without_symbols(self.elements.place(self.at))
        return all(
            type(x := plain(variables[name])) is int and x == without_symbols(part.at(place))
            for name, part in self._added_to.items()
        )

    def variables_now(self) -> dict[str, Any]:
        """Those variables, as the step that begins has them."""
        assert self.elements is not None
        admit, place = self._interpreter.recorder.sizes.from_library, self.elements.place(self.at)
        return {name: admit(part.at(place)) for name, part in self._added_to.items()}


def _is_integer_from_outside(x: Any) -> bool:
    """Whether this is an integer that each call is given anew."""
    return is_symbolic(x) and not is_post_program(x) and type(plain(x)) is int
