"""What an outlined loop goes over: integers, rows of tensors, items of lists and tuples, and `enumerate`, `zip` and `reversed` of
these.

The header of a loop comes in two parts: a *pattern*, which the syntax gives, and values.  The pattern of a call of one of the builtins
above, by its name, is (name, patterns of the arguments); its values are the callable, then those of the arguments.  The pattern of any
other expression is None; its value is that of the expression.  `for t, x in enumerate(xs)` has the pattern ("enumerate", (None,)) and
the values (enumerate, xs)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.call_sites import user_line
from tracejit.capture.gathered_items import GatheredItems, remaining_items
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import concretise, is_symbolic
from tracejit.capture.syntax.outlined_loops import STRICT_ZIP
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["Elements", "GivenElement", "Length", "header_value", "step_elements"]

_MOST: Final = 2**62
"""Integers that elements may come to, at most: numbers of programs have 64 bits."""


@dataclass(frozen=True, slots=True)
class Elements:
    """start, stop, step: the integers that tell one element from the next; the first two may be numbers of the program, or of the call.
    at: the element for such an integer, a number of the program.  remaining: what Python's iterator
    gives after so many elements, where nothing is recorded any more."""

    start: Any
    stop: Any
    step: int
    at: Callable[[Any], Any]
    remaining: Callable[[int], Iterator[Any]]

    def count(self, recorder: Recorder) -> Any:
        """How many there are, where no value and no number of the call decides that: a plain integer, or a symbolic one where sizes do.
        A symbolic one may be negative: then there are none."""
        start, stop = [recorder.sizes.symbol(x) if is_symbolic(x) else x for x in (self.start, self.stop)]
        if start is None or stop is None:
            return None
        if type(start) is type(stop) is int:
            return len(range(start, stop, self.step))
        distance, step = (stop - start, self.step) if self.step > 0 else (start - stop, -self.step)
        return distance if step == 1 else (distance + (step - 1)) // step

    def length(self, recorder: Recorder) -> Any:
        """The same as a number that the program may use; there are none if it is negative."""
        if not (is_symbolic(self.start) or is_symbolic(self.stop)):
            return len(range(self.start, self.stop, self.step))
        compute, step = recorder.operators.binary, abs(self.step)
        first, last = (self.start, self.stop) if self.step > 0 else (self.stop, self.start)
        distance = last if type(first) is int and not first else compute("-", last, first)
        return distance if step == 1 else compute("//", compute("+", distance, step - 1), step)


class GivenElement:
    """The element that a step is given: a tensor or a number, or a tuple of such."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._before = [(x, x._array, x._requires_grad, x._node) for x in _tensors_in(value)]

    @property
    def has_more_than_contents(self) -> bool:
        """Whether the step has left something in a tensor that another tensor of the same contents does not have."""
        return any(
            x._array is not array
            or x._requires_grad is not requires_grad
            or x._node is not node
            or vars(x)
            or x._grad is not None
            or x._hooks
            for x, array, requires_grad, node in self._before
        )


def _tensors_in(element: Any) -> list[Tensor]:
    if type(element) is tuple:
        return [x for part in element for x in _tensors_in(part)]
    return [element] if isinstance(element, Tensor) else []


def header_value(pattern: Any, values: Iterator[Any], call: Callable[[Any, list[Any], dict[str, Any]], Any]) -> Any:
    """The iterable that a header gives.  call: calls a function with arguments and keywords."""
    if pattern is None:
        return next(values)
    function = next(values)
    arguments = [header_value(part, values, call) for part in pattern[1]]
    return call(function, arguments, {"strict": True} if pattern[0] == STRICT_ZIP else {})


class Length(Enum):
    """Whether one recording serves any number of elements.  ANY: yes.  SIZES: yes, if a symbolic size decides it.  GUARDED: no.
    GUARDED_UNTIL_IT_VARIES: no, until an earlier recording had another number, since loops of a known length are faster; a symbolic
    size has varied before."""

    ANY = auto()
    SIZES = auto()
    GUARDED = auto()
    GUARDED_UNTIL_IT_VARIES = auto()


def step_elements(
    recorder: Recorder, pattern: Any, values: Iterator[Any], gathered: GatheredItems, length: Length = Length.ANY
) -> Elements | None:
    """The elements of a header; None where a program cannot make them.  gathered: gets what is made of lists.  length: of a `range` and
    of a tensor.  Raises Refused for a list whose items cannot be gathered."""
    if pattern is None:
        value = next(values)
        return _items(recorder, value, gathered) if type(value) in (list, tuple) else _rows(recorder, value, length)
    name, parts = pattern
    function = next(values)
    if name == "range":
        return _integers(recorder, function, [next(values) for _ in parts], length)
    if name == "reversed" and parts == (None,):  # a tensor is reversed by a copy
        value = next(values)
        if function is reversed and type(value) in (list, tuple):
            return _items(recorder, value, gathered, is_reversed=True)
        return _rows(recorder, recorder.calls.call(function, (value,), {}), length) if type(value) is Tensor else None
    length = Length.GUARDED if length is Length.GUARDED else Length.SIZES
    inner = [
        step_elements(recorder, part, values, gathered, length) if name != "enumerate" or k == 0 else next(values)
        for k, part in enumerate(parts)
    ]
    is_sequence = name != "reversed" or parts[0][0] == "range"
    is_known = is_sequence and all(x is not None and (type(x) is not Elements or x.count(recorder) is not None) for x in inner)
    return _MAKERS[name](recorder, function, inner) if is_known else None


def _rows(recorder: Recorder, value: Any, length: Length) -> Elements | None:
    if type(value) is not Tensor or not value.ndim or recorder.stopped:
        return None
    recorder.inspect(value)
    if length is Length.GUARDED:
        recorder.sizes.pin(value)
    count, at = recorder.containers.length(value), partial(recorder.containers.get_item, value)
    return Elements(0, count, 1, at, lambda done: map(at, range(done, plain(count))))


def _items(recorder: Recorder, value: Sequence[Any], gathered: GatheredItems, is_reversed: bool = False) -> Elements | None:
    if recorder.stopped:
        return None
    count, at = gathered.gather(value)
    if not is_reversed:
        return Elements(0, count, 1, at, lambda done: remaining_items(value, done))
    return Elements(count - 1, -1, -1, at, lambda done: remaining_items(value, done, backwards=count))


def _integers(recorder: Recorder, function: Any, arguments: list[Any], length: Length) -> Elements | None:
    def varies_by_call(x: Any) -> bool:
        """Whether it is a number of the program, or one of the call that is not guarded."""
        if not is_symbolic(x) or is_post_program(x):
            return is_symbolic(x)
        if recorder.sizes.symbol(x) is not None:
            return length is not Length.GUARDED
        if length is Length.GUARDED_UNTIL_IT_VARIES:
            return recorder.facts.number_has_varied(x._name, plain(x), user_line())
        return length is Length.ANY

    step = concretise(arguments[2]) if len(arguments) > 2 else 1
    bounds = [x if varies_by_call(x) else concretise(x) for x in arguments[:2]]
    if function is not range or any(type(plain(x)) is not int for x in (*bounds, step)):
        return None
    start, stop = bounds if len(bounds) > 1 else (0, *bounds)
    numbers = [abs(plain(x)) for x in (start, stop)]
    if not step or max(*numbers, abs(step)) >= _MOST:
        return None
    if any(is_post_program(x) and x._post_program.carried_tensor() is None for x in (start, stop)):
        return None
    return Elements(start, stop, step, lambda k: k, lambda done: iter(range(plain(start), plain(stop), step)[done:]))


def _counted(recorder: Recorder, function: Any, parts: list[Any]) -> Elements | None:
    inner, first = parts[0], concretise(parts[1]) if len(parts) > 1 else 0
    if function is not enumerate or type(first) is not int or abs(first) >= _MOST:
        return None
    add = recorder.operators.binary
    whole = _positions(recorder, inner)
    return Elements(
        0,
        inner.length(recorder),
        1,
        lambda k: recorder.mark_created((add("+", k, first) if first else k, whole(k))),
        lambda done: enumerate(inner.remaining(done), first + done),
    )


def _together(recorder: Recorder, function: Any, parts: list[Any], is_strict: bool = False) -> Elements | None:
    if function is not zip:
        return None
    wholes = [_positions(recorder, part) for part in parts]
    lengths, compare = [part.length(recorder) for part in parts], recorder.operators.binary
    least = min(lengths, key=plain)
    # Which of them ends the loop is the same in all calls.
    agree = [recorder.operators.truth(compare("==" if is_strict else "<=", least, length)) for length in lengths]
    if is_strict and not all(agree):
        return None
    return Elements(
        0,
        least,
        1,
        lambda k: recorder.mark_created(tuple([at(k) for at in wholes])),
        lambda done: zip(*[part.remaining(done) for part in parts], strict=is_strict),
    )


def _backwards(recorder: Recorder, function: Any, parts: list[Any]) -> Elements | None:
    (inner,) = parts
    if function is not reversed:
        return None
    count, whole, subtract = inner.length(recorder), _positions(recorder, inner), recorder.operators.binary
    last = subtract("-", count, 1)
    return Elements(
        0,
        count,
        1,
        lambda k: whole(subtract("-", last, k)),
        lambda done: islice(reversed([*inner.remaining(0)]), done, None),
    )


_MAKERS: Final[dict[Any, Callable[[Recorder, Any, list[Any]], Elements | None]]] = {
    "enumerate": _counted, "zip": _together, STRICT_ZIP: partial(_together, is_strict=True), "reversed": _backwards,
}  # fmt: skip


def _positions(recorder: Recorder, elements: Elements) -> Callable[[Any], Any]:
    """Gives the element at a position, which counts from 0."""
    compute = recorder.operators.binary

    def at(k: Any) -> Any:
        k = k if elements.step == 1 else compute("*", k, elements.step)
        return elements.at(compute("+", k, elements.start) if elements.start else k)

    return at
