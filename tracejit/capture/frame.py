"""The interface between instrumented code and the recorder.

Each instrumented function has a `CaptureFrame` in its free variable `__capture__`.  Its methods are the steps of instrumented
code (`__capture__.binary("+", a, b)`); they call the handlers of the thread's recorder.  If no recording is active, they do what
Python does.  That is so after a recording has stopped, and in code that outlives it, such as a generator.  Variables may still
hold stand-ins of numbers then; the methods replace these by plain numbers, so that no other code gets one.
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from types import BuiltinMethodType, CellType
from typing import Any

from tracejit.capture.branching_loops import run_outlined_loop
from tracejit.capture.call_sites import calling_frame
from tracejit.capture.defects import EAGER, isolate_entry_points, isolated_function
from tracejit.capture.handlers.base import ABSENT
from tracejit.capture.handlers.iteration import UnpackPattern
from tracejit.capture.handlers.keywords import as_texts
from tracejit.capture.handlers.patterns import (
    PYTHON,
    Operations,
    elements_of,
    has_length,
    item_of,
    matched_class,
    matched_mapping,
)
from tracejit.capture.handlers.stand_ins import may_hold_stand_ins, plain, plain_value, without_stand_ins
from tracejit.capture.handlers.symbols import SuperProxy, is_symbolic
from tracejit.capture.iteration_space import is_unbind_function
from tracejit.capture.loop_headers import materialised
from tracejit.capture.loop_recogniser import UNBOUND, LoopRecogniser
from tracejit.capture.policies import BINARY, C_CALLABLES, IN_PLACE, SWAPPED, UNARY, is_a, is_python_class, is_user_instance
from tracejit.capture.reached_lists import note_filled
from tracejit.capture.stacked_items import STACKED, StackedRecords, has_stacked, join_items, may_leave, reversed_items, unstack
from tracejit.capture.syntax.loops import LoopNames
from tracejit.capture.syntax.outlined_loops import OutlinedLoop
from tracejit.capture.tracebacks import without_handlers
from tracejit.tensor import Tensor

__all__ = ["CaptureFrame", "current"]


class _Current(threading.local):
    recorder: Any = None


current = _Current()
"""`current.recorder`: the recorder of this thread during a recorded call, None otherwise."""

_EMPTY = CellType()
_CONVERSIONS: dict[int, Any] = {-1: lambda value: value, ord("s"): str, ord("r"): repr, ord("a"): ascii}


def active() -> Any:
    """The recorder of this thread; None if there is none or it has stopped.  Called first by each entry (defects.py): it resets
    `Recorder.performed`."""
    recorder = current.recorder
    if recorder is None:
        return None
    if recorder.performed:
        recorder.performed = []
    if recorder.stopped:
        recorder.performed.append(EAGER)
        recorder.release_after_handler()
        return None
    if recorder.closing:
        recorder.stop("implicit_python", "the end of a generator that was not used up")
        return None
    return recorder


class CaptureFrame:
    """The steps of one instrumented function.  A method is named after the syntax that it replaces."""

    __slots__ = ("_cells", "_globals", "_kept", "_loops", "_taking_any")

    def __init__(self, names: dict[str, Any], cells: dict[str, Any], loops: Sequence[tuple[OutlinedLoop, Any, Any]] = ()) -> None:
        """names: the globals of the function.  cells: its free variables.  loops: its outlined loops, each with the functions
        of its step and of its parts."""
        self._loops = loops
        self._globals = names
        self._cells = cells
        self._kept: Any = None
        self._taking_any: dict[int, bool] = {}

    # -- names
    def load_global(self, name: str) -> Any:
        recorder, names = active(), self._globals
        if name in names:
            return (
                names[name]
                if recorder is None
                else recorder.require_known(recorder.effects.read_global(names, name, names[name]))
            )
        module = names.get("__builtins__", builtins)
        builtin_names = module if isinstance(module, dict) else vars(module)
        if name in builtin_names:
            value = builtin_names[name]
            return value if recorder is None else recorder.effects.read_builtin(names, name, value)
        if recorder is not None:  # user code may catch the error
            recorder.effects.read_missing_global(names, name)
        raise NameError(f"name {name!r} is not defined", name=name)

    def load_free(self, name: str) -> Any:
        recorder, cell = active(), self._cells[name]
        if cell != _EMPTY:
            value = cell.cell_contents
            return value if recorder is None else recorder.require_known(recorder.effects.read_cell(cell, value))
        if recorder is not None:  # user code may catch the error
            recorder.effects.read_empty_cell(cell)
        raise NameError(
            f"cannot access free variable {name!r} where it is not associated with a value in enclosing scope", name=name
        )

    def store_global(self, name: str, value: Any) -> Any:
        recorder = active()
        return _real_value(value) if recorder is None else recorder.effects.write_global(self._globals, name, value)

    def store_free(self, name: str, value: Any) -> Any:
        recorder = active()
        return _real_value(value) if recorder is None else recorder.effects.write_cell(self._cells[name], value)

    def importing(self, module: str, name: str | None = None) -> None:
        recorder = active()
        if recorder is not None:
            recorder.importing(module, name)

    def imported(self, module: str, name: str | None = None) -> None:
        recorder = active()
        if recorder is not None:
            recorder.imported(sys.modules[module], module, name)

    # -- attributes and items
    def attribute(self, owner: Any, name: str) -> Any:
        recorder = active()
        if recorder is not None:
            return recorder.require_known(recorder.attributes.get_attribute(owner, name))
        return getattr(super(owner.cls, owner.instance) if type(owner) is SuperProxy else plain_value(owner), name)

    def set_attribute(self, value: Any, owner: Any, name: str) -> None:
        recorder = active()
        if recorder is not None:
            recorder.attributes.set_attribute(value, owner, name)
        else:
            setattr(plain_value(owner), name, _real_value(value))

    def delete_attribute(self, owner: Any, name: str) -> None:
        recorder = active()
        if recorder is not None:
            recorder.attributes.delete_attribute(owner, name)
        else:
            delattr(plain_value(owner), name)

    def item(self, owner: Any, key: Any) -> Any:
        recorder = active()
        return (
            plain_value(owner)[plain_value(key)]
            if recorder is None
            else recorder.require_known(recorder.containers.get_item(owner, key))
        )

    def item_of_shape(self, owner: Any, key: int) -> Any:
        """`owner.shape[key]`, for a literal key.  If `owner` is a tensor with symbolic sizes, this reads `owner.size(key)`
        instead, so that no new `Size` is created: a loop that reads it in each step is still recognised as repeating the same
        of its step and of its parts."""
        recorder = active()
        if recorder is not None and (size := recorder.ragged.size(owner, key)) is not ABSENT:
            return size
        plain = recorder is not None and type(owner) is Tensor and recorder.sizes.are_noted and "size" not in vars(owner)
        if plain and -owner.ndim <= key < owner.ndim:
            return recorder.require_known(recorder.calls.call(recorder.attributes.get_attribute(owner, "size"), (key,), {}))
        return self.item(self.attribute(owner, "shape"), key)

    def set_item(self, value: Any, owner: Any, key: Any) -> None:
        recorder = active()
        if recorder is not None:
            recorder.containers.set_item(value, owner, key)
        else:
            plain_value(owner)[plain_value(key)] = _real_value(value)

    def delete_item(self, owner: Any, key: Any) -> None:
        recorder = active()
        if recorder is not None:
            recorder.containers.delete_item(owner, key)
        else:
            del plain_value(owner)[plain_value(key)]

    def slice(self, start: Any, stop: Any, step: Any) -> slice:
        return slice(start, stop, step)

    # -- augmented assignment (`a.b += c`).  A place is (store, owner, key, old value), so that `a` is evaluated once.
    def attribute_place(self, owner: Any, name: str) -> tuple[Any, ...]:
        return (CaptureFrame.set_attribute, owner, name, self.attribute(owner, name))

    def item_place(self, owner: Any, key: Any) -> tuple[Any, ...]:
        return (CaptureFrame.set_item, owner, key, self.item(owner, key))

    def update_place(self, place: tuple[Any, ...], symbol: str, value: Any) -> None:
        store, owner, key, old = place
        store(self, self.in_place(symbol, old, value), owner, key)

    # -- operators
    def binary(self, symbol: str, left: Any, right: Any) -> Any:
        recorder = active()
        if recorder is None:
            return BINARY[symbol](plain_value(left), plain_value(right))
        return recorder.require_known(recorder.operators.binary(symbol, left, right))

    def in_place(self, symbol: str, left: Any, right: Any) -> Any:
        recorder = active()
        if recorder is None:
            return IN_PLACE[symbol](plain_value(left), plain_value(right))
        return recorder.require_known(recorder.operators.binary(symbol, left, right, in_place=True))

    def unary(self, name: str, value: Any) -> Any:
        recorder = active()
        return (
            UNARY[name](plain_value(value)) if recorder is None else recorder.require_known(recorder.operators.unary(name, value))
        )

    def compare(self, symbol: str, left: Any, right: Any) -> Any:
        recorder = active()
        if recorder is not None:
            return recorder.require_known(recorder.operators.compare(symbol, left, right))
        if symbol == "in":
            return plain_value(left) in plain_value(right)
        if symbol == "not in":
            return plain_value(left) not in plain_value(right)
        convert = _real_value if symbol in ("is", "is not") else plain_value
        return BINARY[symbol](convert(left), convert(right))

    def truth(self, value: Any) -> bool:
        recorder = active()
        return bool(plain_value(value)) if recorder is None else recorder.operators.truth(value)

    def negated(self, value: Any) -> Any:
        """`not value`, where its result is used as a value and not as a condition."""
        recorder = active()
        return not plain_value(value) if recorder is None else recorder.operators.negated(value)

    def conditional(self, value: Any, yes: float, no: float) -> Any:
        """`yes if value else no`, where `yes` and `no` are literal numbers."""
        recorder = active()
        if recorder is not None:
            return recorder.operators.chosen(value, yes, no)
        return yes if plain_value(value) else no

    # -- short-circuit expressions (`a and b`): the operand that decides is kept in `_kept` until the next step reads it
    def holds_or_keep(self, value: Any) -> bool:
        if self.truth(value):
            return True
        self._kept = value
        return False

    def holds_and_keep(self, value: Any) -> bool:
        if self.truth(value):
            self._kept = value
            return True
        return False

    def compare_link(self, symbol: str, left: Any, right: Any) -> bool:
        result = self.compare(symbol, left, right)
        holds = self.truth(result)
        self._kept = right if holds else result
        return holds

    def kept_operand(self) -> Any:
        value, self._kept = self._kept, None
        return value

    def drop_kept(self) -> bool:
        self._kept = None
        return False

    # -- calls
    def callee(self, function: Any) -> Any:
        recorder = active()
        if recorder is not None:
            return recorder.calls.callee(function)
        if type(function) is BuiltinMethodType and type(function.__self__) in (list, dict, set) and _is_in_step():
            return lambda *given, **named: function(*map(_real_value, given), **named)  # it may keep, or look for, an object
        return function

    def callee_with_mapping(self, function: Any, site: int) -> Any:
        """`callee` for a call with `**mapping`.  site: the number of the call, by which `mapping` finds what is noted here:
        whether the function may take keywords that are no texts (handlers/keywords.py)."""
        recorder = active()
        if recorder is None:
            return function
        takes_any = is_a(function, C_CALLABLES) or (is_a(function, type) and not is_python_class(function))
        self._taking_any[site] = takes_any
        return recorder.calls.callee_of_any_keywords(function) if takes_any else recorder.calls.callee(function)

    def vars_of(self, function: Any, value: Any) -> Any:
        """`function(value)`, where user code calls `vars(value)`; `function` is what the name `vars` has there."""
        recorder = active()
        if recorder is None:
            return function(plain_value(value))
        return recorder.attributes.attributes_of(value) if function is vars else self.callee(function)(value)

    def argument(self, value: Any) -> Any:
        """`value`, where it is an argument of a call or is stored in a variable that nested functions read.  After the recording
        has stopped, code that is not instrumented may get it, so a stand-in is replaced."""
        return plain_value(value) if may_hold_stand_ins(value) and active() is None else value

    def zero_argument_super(self, cls: type, first: Any) -> Any:
        return super(cls, first) if active() is None else SuperProxy(cls, first)

    # -- iteration, displays, text
    def iterate(self, value: Any, pattern: UnpackPattern) -> Any:
        recorder = active()
        return plain_value(value) if recorder is None else recorder.iteration.iterate(value, pattern)

    # -- loops of which steps may be skipped (loop_recogniser.py)
    def loop(self, *names: Any) -> LoopRecogniser | None:
        """The recogniser of a `for` or `while` statement that is about to run; None outside of recordings.  names: the fields of
        its LoopNames."""
        recorder = active()
        return None if recorder is None else LoopRecogniser(recorder.interpreter, self._cells, LoopNames(*names))

    def is_loop_over(self, loop: LoopRecogniser | None, value: Any) -> bool:
        """Whether `loop` iterates over `value` itself, with a symbolic trip count."""
        return active() is not None and loop is not None and (value is loop or loop.is_over(value))

    def materialised(self, value: Any) -> Any:
        """The value of a loop's header, as Python's own object."""
        return materialised(value)

    def steps(self, loop: LoopRecogniser | None, value: Any, passing: str) -> Any:
        """The iterable that the `for` statement runs over in place of `value`.  passing: the name of the builtin called in the
        header (`enumerate`), if only the loop has its result; "" otherwise."""
        recorder = active()
        if self.is_loop_over(loop, value):
            return loop
        value = materialised(value)
        if recorder is None:
            return plain_value(value)
        elements = recorder.iteration.iterate(value)
        if loop is None:
            return elements
        fixed = recorder.iteration.fixed(value, elements, bool(passing) and passing not in self._globals)
        return elements if fixed is None else loop.iterate(fixed)

    def is_sum(self, function: Any) -> bool:
        return function is sum

    def add_to_sum(self, loop: LoopRecogniser | None, numbers: list[Any], total: Any, element: Any) -> Any:
        """One step of the loop that replaces `sum(... for ...)`: the new total.  numbers: plain numbers that are not yet added to
        `total`, which this method appends to.  Python's own `sum` adds them later in one call, since it rounds sums of floats in
        its own way."""
        if not isinstance(element, Tensor) and type(plain(element)) in (int, float, bool):
            _run_all((loop,))
            numbers.append(element)
            return total
        total = self.sum_of(numbers, total)
        numbers.clear()
        return self.binary("+", total, element)

    def sum_of(self, numbers: list[Any], total: Any) -> Any:
        return self.callee(sum)(self.new_object([*numbers]), total) if numbers else total

    def joining_callee(self, function: Any) -> Any:
        """The callee for `stack(items)`, `cat(items)`, `sum(items)` or `len(items)`, where `items` is a private list
        (stacked_items.py)."""
        recorder = active()
        program = None if recorder is None else recorder.interpreter
        return isolated_function(recorder, function, partial(join_items, program, function, self.callee(function)))

    def reversed_items(self, items: Any) -> Any:
        """`items[::-1]` of a private list."""
        if not has_stacked(items):
            return self.item(items, slice(None, None, -1))
        if active() is None:
            unstack(items, None)
            return items[::-1]
        return reversed_items(active(), items)

    def without_ends(self, items: Any, bounds: Any, first: int, last: int) -> Any:
        """`items[bounds]` of a private list, where `bounds` is a slice that leaves out the `first` first and the `last` last items:
        `items[1:-1]`."""
        if not has_stacked(items):
            return self.item(items, bounds)
        end = len(items) - last
        if active() is None or end <= first or any(type(x) in STACKED for x in (*items[:first], *items[end:])):
            unstack(items, active())
            return self.item(items, bounds)
        return items[first:end]

    def reverse_items(self, items: Any) -> Any:
        """`items.reverse()` of a private list."""
        if not has_stacked(items):
            return self.callee(self.attribute(items, "reverse"))()
        items[:] = self.reversed_items(items)
        return None

    def list_end(self, items: Any, key: Any) -> Any:
        """`items[0]`, `items[-1]` or another item near an end of a private list."""
        counted = items[: key + 1] if key >= 0 else items[key:]
        if has_stacked(items) and (active() is None or any(type(x) in STACKED for x in counted)):
            unstack(items, active())
        return self.item(items, key)

    def unbind_callee(self, loop: LoopRecogniser | None, owner: Any, name: str) -> Any:
        """The callee for `owner.unbind(...)`, `split` or `chunk` in the header of a loop."""
        function = self.attribute(owner, name)
        callee = self.callee(function)
        if loop is None or active() is None or not is_unbind_function(owner, name, function):
            return callee
        base = owner if type(owner) is Tensor else None
        return isolated_function(current.recorder, function, partial(loop.headers.unbind_slices, name, callee, base))

    def counting_callee(self, loop: LoopRecogniser | None, function: Any) -> Any:
        """The callee for `range(...)`, `enumerate`, `zip` or `reversed` in the header of a loop.  function: what the name has
        there, which may be another function."""
        callee = self.callee(function)
        if loop is None or active() is None:
            return callee
        if loop.headers.describes(function):
            return isolated_function(current.recorder, function, partial(loop.headers.builtin_call, function, callee))
        return lambda *arguments, **keywords: callee(*map(materialised, arguments), **keywords)

    def skips_steps(self, loop: LoopRecogniser | None) -> bool:
        """Asked at the beginning of each step: whether the variables of the function get new values (`loop_exit_values`), for
        example since all steps up to the last have been skipped."""
        if loop is None or not loop.is_watched():
            return False
        if active() is None:
            loop.run_remaining_steps()
            return False
        variables = calling_frame().f_locals
        try:
            return loop.skip_steps({**variables})
        finally:
            if type(variables) is dict:  # a copy that the frame would keep alive
                variables.clear()

    def loop_exit_values(self, loop: LoopRecogniser) -> tuple[Any, ...]:
        values, loop.exit_values = loop.exit_values, ()
        return values

    def is_unbound(self, value: Any) -> bool:
        """Whether a value of `loop_exit_values` says that its variable has to be deleted."""
        return value is UNBOUND

    def item_along(self, owner: Any, key: Any, *loops: LoopRecogniser | None) -> Any:
        """`owner[key]`, where `key` moves with the counters of `loops` (`xs[t]`).

        Of a tensor it is a slice.  Of a list or tuple of numbers it is a number that the program looks up.  Reads of other
        objects make steps differ, so all steps of the loops run."""
        if type(owner) is not Tensor:
            is_table = type(owner) in (list, tuple) and set(map(type, owner)) in ({float}, {int})
            loop = _single_recorded(loops) if is_table else None
            position = None if loop is None else loop.counters.place_in_program(key)
            if position is None:
                _run_all(loops)
            else:
                key = position
        return self.item(owner, key)

    def set_item_along(self, value: Any, owner: Any, key: Any, *loops: LoopRecogniser | None) -> None:
        """`owner[key] = value`, where `key` moves with the counters of `loops`."""
        if type(owner) is not Tensor:
            _run_all(loops)
        self.set_item(value, owner, key)

    def item_place_along(self, owner: Any, key: Any, *loops: LoopRecogniser | None) -> tuple[Any, ...]:
        """`item_place(owner, key)` for `owner[key] += ...`, where `key` moves with the counters of `loops`."""
        if type(owner) is not Tensor:
            _run_all(loops)
        return self.item_place(owner, key)

    def compare_along(self, symbol: str, left: Any, right: Any, is_left: bool | None, *loops: LoopRecogniser | None) -> Any:
        """A comparison that involves counters of `loops`.  is_left: whether the counter is on the left side (`t > 0`); None:
        there is more than one.  A counter is compared with a tensor by an operation of the program."""
        if is_left is not None and (loop := _single_recorded(loops)) is not None:
            tensor = loop.counters.as_tensor(*((left, right) if is_left else (right, left)))
            if tensor is not None:
                return self.compare(symbol, tensor, right) if is_left else self.compare(symbol, left, tensor)
        result = self.compare(symbol, left, right)
        for loop in filter(None, () if _has_tensor(left, right) else loops):
            counter, other = (left, right) if is_left else (right, left)
            if is_left is not None and type(plain(counter)) is float:  # a float is no counter
                continue
            relation = symbol if is_left else SWAPPED[symbol]
            if is_left is None or type(result) is not bool or not loop.counters.note_comparison(relation, counter, other, result):
                loop.run_remaining_steps()
        return result

    def number_of_step(self, loop: LoopRecogniser | None, name: str, ahead: int, counter: Any) -> Any:
        """The value of the loop's variable `name`, where arithmetic uses it (`t * dt`): if it is a counter, a number that the
        program computes.  ahead: how many steps of the counter are added to it."""
        return (
            counter
            if loop is None or active() is None or isinstance(counter, Tensor)
            else loop.counters.number_in_program(name, ahead, counter)
        )

    def increment_counter(self, symbol: str, left: Any, right: Any, in_place: bool, loop: LoopRecogniser | None) -> Any:
        """`left + right` or `left += right` for a variable to which each step of a loop adds a number once."""
        size = (
            loop.counters.offset(symbol, left, right) if loop is not None and is_symbolic(left) and active() is not None else None
        )
        if size is not None:
            return size
        return self.in_place(symbol, left, right) if in_place else self.binary(symbol, left, right)

    def while_steps(self, loop: LoopRecogniser | None) -> Iterator[Any]:
        """The iterable over which the steps of a `while` loop run; the loop's condition ends it."""
        return repeat(None) if loop is None else loop.while_steps()

    def while_condition(self, name: str, symbol: str, left: Any, right: Any, is_left: bool, loop: LoopRecogniser | None) -> Any:
        """The condition of a `while` loop, a comparison.  name: the variable that counts the steps.  is_left: whether it is on
        the left side."""
        if loop is not None and active() is not None:
            relation, *sides = (symbol, left, right) if is_left else (SWAPPED[symbol], right, left)
            loop.note_while_condition(name, relation, *sides)
        return self.compare_along(symbol, left, right, is_left, loop)

    def offset(self, symbol: str, left: Any, right: Any, *loops: LoopRecogniser | None) -> Any:
        """`left + right` or `left - right` in a key that moves with the counters of `loops` (`xs[t + 1]`)."""
        if not (type(left) is type(right) is int or _has_tensor(left, right)):
            if (loop := _single_recorded(loops)) is not None:
                left, right = loop.counters.concretise_integer(left), loop.counters.concretise_integer(right)
                size = loop.counters.offset(symbol, left, right)
                if size is not None:
                    return size
            _run_all(loops)
        return self.binary(symbol, left, right)

    def scaled(self, is_left: bool, left: Any, right: Any, *loops: LoopRecogniser | None) -> Any:
        """`left * right` in a key that moves with the counters of `loops` (`xs[2 * t]`).  is_left: whether the counter is on the
        left side."""
        counter, factor = (left, right) if is_left else (right, left)
        if type(plain(counter)) is type(plain(factor)) is int:
            if (loop := _single_recorded(loops)) is not None:
                factor = loop.counters.concretise_integer(factor)
                is_position, size = loop.counters.scaled(counter, factor)
                if not is_position:
                    loop.run_remaining_steps()
                return self.binary("*", counter, factor) if size is None else size
            _run_all(loops)
        elif not _has_tensor(left, right):
            _run_all(loops)
        return self.binary("*", left, right)

    # -- outlined loops (branching_loops.py)
    def outlined_loop(
        self, number: int, pattern: Any, header: tuple[Any, ...], values: tuple[Any, ...], joined: tuple[bool, ...]
    ) -> tuple[int, Any]:
        """Run the loop of this number.  The arguments and the result are those of `run_outlined_loop`."""
        recorder = active()
        loop, step, parts = self._loops[number]
        interpreter = None if recorder is None else recorder.interpreter
        result = run_outlined_loop(interpreter, loop, step, parts, pattern, header, values, joined)
        recorder = active()
        return result if recorder is None else recorder.mark_created(result)

    def extend_list(self, owner: list[Any], columns: tuple[list[Any], ...], constants: Any, is_private: bool) -> None:
        """Put what the steps of an outlined loop have appended into a list of the function.  columns, constants: see StackedRecords; the
        items themselves, and None, where these are no tuples.  is_private: whether the list is."""
        items: list[Any] = columns[0] if constants is None else [StackedRecords(columns, constants)]
        if not has_stacked(columns[0]):
            unstack(items, active())
        owner.extend(items)
        if not is_private:
            self.returned_list(owner)

    def returned_list(self, items: Any) -> Any:
        """A list that the function returns, or that anything else may look at from here on."""
        recorder = active()
        if has_stacked(items):
            if recorder is None or not may_leave(items):
                unstack(items, recorder)
            else:
                note_filled(recorder, items)
        return items

    def unpack(self, value: Any, pattern: UnpackPattern) -> Any:
        recorder = active()
        return plain_value(value) if recorder is None else recorder.iteration.unpack(value, pattern)

    def mapping(self, value: Any, site: int = 0) -> Any:
        """The mapping that Python gets for `**value`, in a call (see callee_with_mapping) or in a dictionary display."""
        recorder = active()
        if recorder is None:
            return plain_value(value)
        mapping = recorder.iteration.mapping(value)
        return as_texts(mapping) if is_a(mapping, dict) and self._taking_any.get(site) else mapping

    def new_object(self, value: Any) -> Any:
        """`value`, the result of a display, comprehension or definition, marked as created.  If evaluating one of its parts has
        stopped the recording, earlier parts may be stand-ins: these are replaced."""
        recorder = active()
        if recorder is not None:
            return recorder.mark_created(value)
        return without_stand_ins(value, nested=False)

    def starred(self, value: Any) -> Any:
        """`value`, the tuple, list or dictionary that Python creates for a starred name (`*args`), marked as created.  It may
        hold stand-ins; after the recording they are replaced."""
        recorder = active()
        return without_stand_ins(value) if recorder is None else recorder.mark_created(value)

    # -- class statements
    def class_body(self, name: str, hindrance: str, around: Any) -> None:
        """Called before a class body that cannot be instrumented, which stops the recording.  name: the class.  hindrance: what
        the body has, for the reason.  around: a function whose closure has the variables that the body may read."""
        recorder = active()
        if recorder is not None:
            recorder.stop("class_statement", f"{name}, with {hindrance},")
        without_stand_ins(around)

    def class_bases(self, name: str, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        """The bases of a class that is about to be created; some stop the recording."""
        recorder = active()
        return tuple(map(plain_value, bases)) if recorder is None else recorder.classes.check_bases(name, bases)

    def class_maker(self, name: str, metaclass: Any) -> Any:
        """The callable that creates a class when its body has run.  metaclass: the one that the class statement names, or
        None."""
        recorder = active()
        usual = type if metaclass is None else plain_value(metaclass)
        return usual if recorder is None else recorder.classes.class_maker(name, usual)

    def class_name(self, name: str) -> Any:
        """The value of `name` in a class body that binds it."""
        namespace = calling_frame().f_locals
        return self.element(namespace[name]) if name in namespace else self.load_global(name)

    def exception_to_raise(self, error: Any) -> Any:
        """The exception of a raise statement that is about to run."""
        recorder = active()
        return error if recorder is None else recorder.exception_to_raise(error)

    def caught(self) -> None:
        """Called at the beginning of an `except` block.  Removes tracejit's frames from the traceback of the error."""
        recorder, error = active(), sys.exception()
        if recorder is not None:
            recorder.note_caught(error)
        without_handlers(error)

    def concretise(self, value: Any) -> Any:
        """`value` without stand-ins, for syntax that Python evaluates itself."""
        recorder = active()
        return plain_value(value) if recorder is None else recorder.contents.concretise_contents(value)

    def element(self, value: Any) -> Any:
        """`value`, where it becomes an item of a list, tuple or dictionary, or is yielded by a generator.  It may be a stand-in
        only during a recording."""
        return plain_value(value) if active() is None else value

    def formatted(self, value: Any, conversion: int, specification: str) -> str:
        recorder = active()
        if recorder is None:
            return format(_CONVERSIONS[conversion](plain_value(value)), plain_value(specification))
        return recorder.operators.formatted(value, conversion, specification)

    def fstring(self, parts: tuple[Any, ...]) -> Any:
        """The text of an f-string with these parts."""
        recorder = active()
        return "".join(map(plain_value, parts)) if recorder is None else recorder.texts.joined(parts)

    def context(self, manager: Any) -> Any:
        recorder = active()
        return plain_value(manager) if recorder is None else recorder.iteration.context(manager)

    # -- patterns
    def match_class(self, subject: Any, cls: Any, positional: int, names: tuple[str, ...]) -> tuple[Any, ...] | None:
        return matched_class(*_reading(subject), cls, positional, names)

    def match_length(self, subject: Any, before: int, starred: bool, after: int) -> bool:
        return has_length(*_reading(subject), before, starred, after)

    def match_elements(self, subject: Any, before: int, starred: bool, after: int) -> tuple[Any, ...]:
        return elements_of(*_reading(subject), before, starred, after)

    def match_item(self, subject: Any, position: int) -> Any:
        return item_of(*_reading(subject), position)

    def match_mapping(self, subject: Any, keys: tuple[Any, ...], rest: bool) -> tuple[Any, ...] | None:
        return matched_mapping(*_reading(subject), keys, rest)


_NOT_ISOLATED = frozenset({
    # They only call other entry points.
    "attribute_place", "item_place", "update_place", "holds_or_keep", "holds_and_keep", "compare_link", "kept_operand", "drop_kept",
    "sum_of",
    # Its own errors are those of the steps that it calls (branching_loops.py).
    "outlined_loop",
    # They call no handlers.
    "slice", "materialised", "is_sum", "add_to_sum", "reverse_items", "loop_exit_values", "is_unbound", "extend_list",
})  # fmt: skip
_ENTRY_POINTS = frozenset(name for name, method in vars(CaptureFrame).items() if callable(method) and not name.startswith("_"))
assert _NOT_ISOLATED <= _ENTRY_POINTS, f"no entry points: {sorted(_NOT_ISOLATED - _ENTRY_POINTS)}"
isolate_entry_points(CaptureFrame, current, _ENTRY_POINTS - _NOT_ISOLATED)


def _is_in_step() -> bool:
    """Whether variables may hold stand-ins of steps of a loop."""
    return current.recorder is not None and bool(current.recorder.loop_stand_ins)


def _real_value(value: Any) -> Any:
    """`value` as a plain value, where it matters which object it is: the recording may have stopped in a step of a loop, whose variables
    still hold stand-ins."""
    value = plain_value(value)
    if not _is_in_step():
        return value
    real = current.recorder.stands_for(value)
    if type(real) is tuple:
        parts = tuple(map(_real_value, real))
        return parts if any(x is not y for x, y in zip(parts, real, strict=True)) else real
    return real


def _has_tensor(left: Any, right: Any) -> bool:
    """Whether one of two operands is a tensor: then the operation is no arithmetic of counters."""
    return isinstance(left, Tensor) or isinstance(right, Tensor)


def _single_recorded(loops: tuple[LoopRecogniser | None, ...]) -> LoopRecogniser | None:
    """The only loop of `loops`; None if there are more, or the recording has stopped."""
    return loops[0] if len(loops) == 1 and loops[0] is not None and active() is not None else None


def _run_all(loops: tuple[LoopRecogniser | None, ...]) -> None:
    for loop in filter(None, loops):
        loop.run_remaining_steps()


def _reading(subject: Any) -> tuple[Operations, Any]:
    """The operations by which the parts of the subject of a match statement are read, and the subject."""
    recorder = active()
    return (PYTHON, plain_value(subject)) if recorder is None else (RecordedPatterns(recorder), subject)


class RecordedPatterns:
    """The `Operations` (handlers/patterns.py) of a recording: each read of a part of the subject is recorded."""

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder

    def has_flag(self, value: Any, flag: int) -> bool:
        return self._recorder.builtin_calls.has_flag(value, flag)  # type: ignore[no-any-return]

    def is_instance(self, value: Any, cls: Any) -> bool:
        return bool(self._recorder.calls.call(isinstance, (value, cls), {}))

    def attribute(self, value: Any, name: str) -> Any:
        return self._recorder.require_known(self._recorder.attributes.get_attribute(value, name))

    def length(self, value: Any) -> Any:
        return self._recorder.containers.length(value)

    def holds(self, symbol: str, left: Any, right: Any) -> bool:
        return bool(self._recorder.operators.truth(self._recorder.operators.binary(symbol, left, right)))

    def elements(self, value: Any) -> Any:
        return self._recorder.iteration.iterate(value)

    def item(self, value: Any, index: Any) -> Any:
        return self._recorder.require_known(self._recorder.containers.get_item(value, index))

    def found(self, mapping: Any, key: Any, missing: Any) -> Any:
        recorder = self._recorder
        if is_a(mapping, dict) and not is_user_instance(mapping):
            return (
                recorder.require_known(recorder.containers.base_item(mapping, key))
                if recorder.containers.base_contains(key, mapping)
                else missing
            )
        return recorder.require_known(
            recorder.calls.call(recorder.attributes.get_attribute(mapping, "get"), (key, recorder.mark_created(missing)), {})
        )

    def mapping(self, value: Any) -> Any:
        return self._recorder.iteration.mapping(value)
