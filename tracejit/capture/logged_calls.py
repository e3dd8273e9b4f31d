"""Calls for output that the steps of a branching loop make: `print(loss.item())`, messages of loggers, progress bars, writes to files.

Such a call is deferred in any recording (handlers/printing.py): nothing depends on it, and each call of the entry makes it after the
program.  A step notes which call it makes, and the numbers that this one shows, as if it appended them to lists: the number of the call
to one list for all calls, each number to a list of its own.  So the node gives them as columns (path_tree.py), and the entry makes the
calls of all steps in their order.  In the recorded call, a step that runs in Python makes its calls itself; for one that follows a known
path they are made here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tracejit.capture.handlers.effects import FunctionCall
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import MethodOf, is_symbolic
from tracejit.capture.policies import IDENTITY_TYPES, bound_to, is_a
from tracejit.capture.step_paths import NUMBERS, Refused, number_tensor, tensor_aval
from tracejit.ops.movement.views import detach
from tracejit.replay.ir import Constant, Expr, Function, ListOf, Name, Return, names, renamed, tuple_of
from tracejit.replay.python import load
from tracejit.tensor import Tensor
from tracejit.tensor.base import wrap

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun

__all__ = ["LoggedCalls"]

_LOGGED: Final = object
"""What the lists hold that are for calls."""
_OBJECT, _NUMBER = "object", "number"
"""What the parameters of the function of a call begin with."""


class _Form(NamedTuple):
    """A call but for the numbers in it.  expression: with parameters for objects from outside, and for tensors of numbers.  objects: the
    ids of the former.  numbers: how many there are of the latter."""

    expression: Expr
    objects: tuple[int, ...]
    numbers: int


@dataclass(slots=True)
class _Call:
    """function: makes the call, with the objects, then the tensors.  lists: those that each number is appended to."""

    function: Callable[..., Any]
    objects: tuple[Any, ...]
    lists: list[int]


class LoggedCalls:
    """The calls of one run.  positions: among the effects, those of the calls of the step that has run last."""

    def __init__(self, run: LoopRun) -> None:
        self._run = run
        self._calls: list[_Call] = []
        self._known: dict[_Form, int] = {}
        self._which = -1  # the list of the numbers of the calls
        self._other_calls = 0
        self._begin = 0
        self.positions: set[int] = set()

    @property
    def are_any(self) -> bool:
        """Whether steps have made such calls."""
        return bool(self._calls)

    @property
    def has_output(self) -> bool:
        """Whether the step that runs has made a call that is deferred."""
        return len(self._run.recorder.effects.opaque_calls) > self._other_calls

    def begin_step(self) -> None:
        """Note where the effects of a step begin."""
        effects = self._run.recorder.effects
        self.positions, self._begin, self._other_calls = set(), len(effects.in_order), len(effects.opaque_calls)

    def of_step(self) -> dict[int, list[Tensor]]:
        """What a step appends to the lists that are for calls, if that is all that it has done outside.  Raises Refused."""
        effects, stores = self._run.recorder.effects, self._run.positions
        positions = [k for k in range(self._begin, len(effects.in_order)) if k not in stores]
        calls = [x for k in positions if type(x := effects.in_order[k]) is FunctionCall]
        if not calls or not len(calls) == len(positions) == len(effects.opaque_calls) - self._other_calls:
            return {}
        if self._which < 0:
            self._which = self._run.items.new_list()
        made: list[tuple[int, list[Tensor]]] = []
        for call in calls:
            reader = _Reader(self._run)
            form = reader.form(call)
            if form not in self._known:
                self._known[form] = len(self._calls)
                lists = [self._run.items.new_list() for _ in range(form.numbers)]
                function = self._run.recorder.unwatched(partial(_function, form, self._run.recorder.namespace))
                self._calls.append(_Call(function, tuple(reader.objects), lists))
            made.append((self._known[form], reader.numbers))
        if self._run.is_nested:
            raise Refused("a step of a loop in a loop makes output")
        self.positions = {*positions}
        found: dict[int, list[Tensor]] = {}
        for number, tensors in made:
            found.setdefault(self._which, []).append(number_tensor(self._run.interpreter, number, int))
            for k, x in zip(self._calls[number].lists, tensors, strict=True):
                found.setdefault(k, []).append(x)
        for k, column in found.items():
            for x in column:
                kind = tensor_aval(self._run.interpreter, x), _LOGGED
                if self._run.tree.item_kinds.setdefault(k, kind) != kind:
                    raise Refused("output of a step shows numbers of another kind than before")
        return found

    def make(self, items: Sequence[Sequence[tuple[np.ndarray[Any, Any], Any]]]) -> None:
        """Make the calls of a step that has appended these items to all lists."""
        lists = [k for k in self._lists() if k < len(items) and items[k]]
        if lists:
            columns = [[wrap(array) for array, _ in items[k]] for k in lists]
            log = self._log(lists)
            self._run.recorder.perform(lambda: log.make(columns, [x.objects for x in self._calls]))

    def emit(self, columns: dict[int, tuple[Tensor, Tensor | None]]) -> None:
        """Have the entry make the calls of all steps.  columns: by lists, the rows of the node, and which of them are items; None if all
        are."""
        lists = [k for k in self._lists() if k in columns]  # none of calls of steps outside of the node
        if not lists:
            return
        recorder = self._run.recorder
        given = [recorder.mark_created(columns[k]) for k in lists]
        objects = [recorder.mark_created(x.objects) for x in self._calls]
        arguments = recorder.mark_created(tuple(given)), recorder.mark_created(tuple(objects))
        recorder.effects.note_call(FunctionCall(recorder.mark_fixed(self._log(lists)), arguments, {}), "output of steps")

    def _lists(self) -> list[int]:
        """All lists that are for calls, first that of their numbers."""
        return [self._which, *[k for call in self._calls for k in call.lists]] if self._calls else []

    def _log(self, lists: Sequence[int]) -> _Log:
        """lists: those that there are."""
        at = {k: n for n, k in enumerate(lists)}
        return _Log([x.function for x in self._calls], [[at[k] for k in x.lists if k in at] for x in self._calls])


class _Log:
    """Makes the calls of steps.  functions, lists: those of each call; the first list has the numbers of the calls."""

    def __init__(self, functions: Sequence[Callable[..., Any]], lists: Sequence[Sequence[int]]) -> None:
        self._functions, self._lists = functions, lists

    def make(self, columns: Sequence[Sequence[Tensor]], objects: Sequence[Sequence[Any]]) -> None:
        """columns: the items of each list."""
        which, *_ = remaining = [*map(iter, columns)]
        for number in which:
            at = int(number._array)
            given = [next(remaining[k]) for k in self._lists[at]]
            self._functions[at](*objects[at], *given)

    def __call__(self, columns: Sequence[tuple[Tensor, Tensor | None]], objects: Sequence[Sequence[Any]]) -> None:
        """columns: the rows of each list, and which of these are items."""
        items = [rows._array if inside is None else rows._array[inside._array] for rows, inside in columns]
        self.make([[*map(wrap, x)] if x.ndim > 1 else [wrap(np.array(y)) for y in x] for x in items], objects)


class _Reader:
    """Reads a deferred call.  objects: those from outside; numbers: the tensors of the numbers that it shows."""

    def __init__(self, run: LoopRun) -> None:
        self._run, self._recorder = run, run.recorder
        self.objects: list[Any] = []
        self.numbers: list[Tensor] = []
        self._shown: list[Tensor] = []  # what the program shows, of which those are the contents
        self._of_numbers: dict[int, Expr] = {}  # by ids of numbers and texts

    def form(self, call: FunctionCall) -> _Form:
        """Raises Refused for a call that depends on something else than numbers of the program and objects from outside."""
        arguments = [self._expression(x) for x in call.arguments]
        keywords = {name: self._expression(x) for name, x in call.keywords.items()}
        if type(call.function) is MethodOf:
            raise _refused(call.function)
        expression = self._object(call.function).call(*arguments, **keywords)
        parameters = {*_parameters(_OBJECT, len(self.objects)), *_parameters(_NUMBER, len(self.numbers))}
        if not names(expression) <= {*parameters, *self._recorder.namespace}:
            raise _refused(call.function)
        return _Form(expression, tuple(map(id, self.objects)), len(self.numbers))

    def _expression(self, x: Any) -> Expr:
        if is_symbolic(x):
            return self._number(x)
        if type(x) in (bool, str, type(None)):
            return Constant(x)
        if type(x) in (int, float):
            return self._recorder.number_expression(x)
        if type(x) in (list, tuple) and self._recorder.is_created(x):
            parts = [*map(self._expression, x)]
            return ListOf(tuple(parts)) if type(x) is list else tuple_of(*parts)
        return self._object(x)

    def _object(self, x: Any) -> Expr:
        """The parameter for an object from outside."""
        known = self._recorder.sources
        if not (id(x) in known or id(bound_to(x)) in known or is_a(x, IDENTITY_TYPES)) or isinstance(x, Tensor | np.ndarray):
            raise _refused(x)
        at = next((k for k, y in enumerate(self.objects) if y is x), len(self.objects))
        if at == len(self.objects):
            self.objects.append(x)
        return Name(f"{_OBJECT}{at}")

    def _number(self, x: Any) -> Expr:
        """The expression of a number or text, of tensors that steps give."""
        if id(x) not in self._of_numbers:
            self._of_numbers[id(x)] = self._computed(x)
        return self._of_numbers[id(x)]

    def _computed(self, x: Any) -> Expr:
        value = x._post_program
        if not is_post_program(x) or value.is_in_prologue:
            if type(plain(x)) not in NUMBERS:
                raise _refused(x)
            return self._item_of(number_tensor(self._run.interpreter, x, type(plain(x))))
        if value.deferred or value.stop_reason or value.clock_after or value.is_outside_array or value.shares_source:
            raise _refused(x)
        if value.expression is None:
            if value.access is None or not isinstance(value.source, Tensor):
                raise _refused(x)
            return value.access(self._tensor(value.source))  # type: ignore[no-any-return]
        parts = {part._name.name: part for part in value.parts if is_symbolic(part)}
        found: Expr = renamed(value.expression, lambda name: self._number(parts[name.name]) if name.name in parts else name)
        return found

    def _item_of(self, tensor: Tensor) -> Expr:
        return self._tensor(tensor).get("_array").method("item")

    def _tensor(self, tensor: Tensor) -> Expr:
        """The parameter for a tensor that a step gives."""
        if self._run.interpreter.value_of(tensor) is None:
            raise _refused(tensor)
        at = next((k for k, y in enumerate(self._shown) if y is tensor), len(self.numbers))
        if at == len(self.numbers):
            self._shown.append(tensor)
            self.numbers.append(detach(tensor) if tensor.requires_grad else tensor)
        return Name(f"{_NUMBER}{at}")


def _refused(x: Any) -> Refused:
    return Refused(f"output of a step needs a {type(plain(x)).__name__} that is neither a number of the program nor from outside")


def _parameters(kind: str, count: int) -> list[str]:
    return [f"{kind}{k}" for k in range(count)]


def _function(form: _Form, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The function that makes a call.  namespace: objects of the recording, by their names."""
    parameters = (*_parameters(_OBJECT, len(form.objects)), *_parameters(_NUMBER, form.numbers))
    return load(Function(parameters, (), (Return(form.expression),), Constant(None)), "call", namespace, "output")
