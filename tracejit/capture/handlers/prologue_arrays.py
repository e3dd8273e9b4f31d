"""Calls of NumPy on arrays and numbers from outside: `data[i : i + 8].astype("i8")`, `np.interp(n, xs, ys)`.

The prologue of each call makes them.  The result is from outside as well: an array, which tensors can be made of and whose shape
and dtype are guarded where something reads them, or a number of the prologue.  If such a call raises, the entry misses.

Invariant: the prologue reads an array only for a read that comes before all writes of the call to its memory, because later reads
see other contents.  A guard ensures that arrays from outside do not share memory that the call has written to.  Arrays that the
prologue creates have their own memory.
"""

from __future__ import annotations

import operator
from types import MethodDescriptorType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.handlers.arrays import (
    CALM,
    CALM_METHODS,
    KINDS,
    OF_SEVERAL,
    OPERATORS,
    ArrayHandlers,
    is_memory_of_tensor,
    writes_to_argument,
)
from tracejit.capture.handlers.attempts import FAILED, attempt, attempt_without_warnings
from tracejit.capture.handlers.post_program import MOST_ELEMENTS, PostProgramValue, is_post_program
from tracejit.capture.handlers.stand_ins import plain_copy
from tracejit.capture.handlers.symbols import SymbolicNumber, is_symbolic
from tracejit.capture.policies import PRIMITIVE_TYPES, is_a
from tracejit.capture.recording.journal import Variable
from tracejit.core.dtypes import as_dtype
from tracejit.core.op import REGISTRY
from tracejit.replay.ir import Expr, ListOf, Name, TupleOf
from tracejit.tensor import Tensor
from tracejit.tensor.construction import as_tensor, from_numpy, tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["PrologueArrayHandlers"]

_MOST = 64
"""Lists of at most so many numbers are built in the prologue, number by number."""
_ELEMENTS = frozenset((int, float, bool, list, tuple, *KINDS))
_METHODS = CALM_METHODS | {"searchsorted", "take", "nonzero", "compress"}
_FUNCTIONS: frozenset[Any] = CALM | OF_SEVERAL | OPERATORS | {
    operator.getitem, np.searchsorted, np.take, np.nonzero, np.unique, np.argwhere, np.bincount, np.digitize, np.flatnonzero,
}  # fmt: skip
"""Functions that change none of their arguments."""


class PrologueArrayHandlers(ArrayHandlers):
    """Moves calls of NumPy into the prologue.

    reads_after_program: whether NumPy also reads arrays from outside after the program.  read_after_writes: arrays from outside that are
    read after the call has written to memory; a guard requires that it is other memory."""

    reads_after_program = Variable(False)

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        # By the ids of the arrays that own the memory:
        self._own: set[int] = journal.set()  # arrays that the prologue has created
        self._drawn: set[int] = journal.set()  # of these, draws of generators, whose memory is new in each call
        self._read_later: set[int] = journal.set()  # arrays that are read after the prologue, by the program or by NumPy
        self.read_after_writes: list[np.ndarray[Any, Any]] = journal.list()

    def asks_array(self, arguments: tuple[Any, ...]) -> bool:
        """Whether the first argument is an array of this run, or one from outside."""
        return super().asks_array(arguments) or (bool(arguments) and self.is_outside_array(arguments[0]))

    def is_outside_array(self, value: Any) -> bool:
        return type(value) in KINDS and self.recorder.is_outside(value)

    def prologue_method(self, owner: Any, name: str) -> Any:
        """The bound method `name` of an array from outside, if the prologue can call it; else None."""
        if self.is_outside_array(owner) and name in _METHODS:
            return self.recorder.mark_created(MethodType(self.recorder.mark_fixed(getattr(np.ndarray, name)), owner))
        return None

    def array_call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any] | None = None) -> Any:
        recorder = self.recorder
        keywords = keywords or {}
        if not recorder.stopped and self._computes_in_prologue(function, arguments, keywords):
            arguments = tuple(map(self._with_numbers, arguments))
        values = (*arguments, *keywords.values())
        if (
            recorder.stopped
            or not self._computes_in_prologue(function, arguments, keywords)
            or not any(map(self._varies, values))
        ):
            return super().array_call(function, arguments, keywords)
        if any(map(_holds_tensors, values)):
            recorder.stop("tensor_contents", "a position in an array from outside that a tensor tells")
        elif not all(map(self._is_known_in_prologue, values)):
            return super().array_call(function, arguments, keywords)
        elif any(map(self._holds_changed, values)):
            recorder.stop("read_after_change", "the memory that an array has")
        if recorder.stopped:
            return function(*map(plain_copy, arguments), **{k: plain_copy(v) for k, v in keywords.items()})
        result = self._called_before(function, arguments, keywords)
        if result is FAILED:
            recorder.stop("container", "an array, of which NumPy warns, or raises what the program may handle,")
            plain_arguments = [plain_copy(v) for v in arguments], {k: plain_copy(v) for k, v in keywords.items()}
            return self.with_user_line(function)(*plain_arguments[0], **plain_arguments[1])
        return result

    def _called_before(
        self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], attempts: Any = attempt_without_warnings
    ) -> Any:
        """The result of `function`, which the prologue of each call calls as well; FAILED if it raises or would warn.

        attempts: the function of attempts.py that tells."""
        recorder = self.recorder
        called = [recorder.constant(function), *map(self._prologue_argument, arguments)]
        named = {k: self._prologue_argument(v) for k, v in keywords.items()}
        plain_arguments = [plain_copy(v) for v in arguments], {k: plain_copy(v) for k, v in keywords.items()}
        result = recorder.unwatched(lambda: attempts(function, *plain_arguments[0], **plain_arguments[1]))
        if result is FAILED:
            return result
        if self._is_new_memory(result, (*arguments, *keywords.values())):
            self.has_own_memory(result)
        return self._prologue_result(recorder.constant(attempts).call(*called, **named), result)

    def _is_new_memory(self, result: Any, values: tuple[Any, ...]) -> bool:
        """Whether `result`, which NumPy has given for `values`, is an array with memory of its own."""
        return type(result) is np.ndarray and result.base is None and not any(value is result for value in values)

    def has_own_memory(self, array: Any) -> None:
        """Note that the prologue has created the memory of an array."""
        self._own.add(id(_owner(array)))

    def is_drawn(self, array: Any) -> None:
        """Note that an array is a draw of a generator in the prologue."""
        self.has_own_memory(array)
        self._drawn.add(id(_owner(array)))

    def _with_numbers(self, value: Any) -> Any:
        """A list or tuple of arrays and numbers from outside, nested or not, with symbolic numbers; other values unchanged."""
        recorder = self.recorder
        if type(value) not in (list, tuple) or len(value) > _MOST:
            return value
        if recorder.is_outside(value) and not all(type(item) in _ELEMENTS for item in value):
            return value
        items = list(map(self._with_numbers, recorder.contents.elements(value)))
        return value if all(map(operator.is_, items, value)) else recorder.mark_created(type(value)(items))

    def note_later_read(self, array: Any) -> None:
        """Note that something reads the memory of an array after the prologue."""
        self._read_later.add(id(_owner(array)))

    def may_be_shuffled(self, array: Any) -> bool:
        """Whether an array is a draw of the prologue that nothing reads after the prologue.  Then it can be shuffled there: all
        reads of it are in the prologue, in the order of the run."""
        if not self.is_outside_array(array) or self.recorder.effects.reaches_deferred_call(array):
            return False
        return id(_owner(array)) in self._drawn - self._read_later

    def tensor_of_arrays(self, function: Any, data: Any, dtype: Any = None, requires_grad: Any = False) -> Any:
        """tensor(data), as_tensor(data) or from_numpy(data), for an array from outside, or nested lists and tuples with such
        arrays; None for other data."""
        if not self.is_outside_array(data):
            return self._tensor_of_list(data, dtype, requires_grad) if type(data) in (list, tuple) else None
        if is_memory_of_tensor(data, function is from_numpy):
            return self.tensor_of_array(function, data, dtype, requires_grad=requires_grad)
        if function is from_numpy or data.dtype.kind not in "biuf":
            return None
        if function is as_tensor:  # it would share the memory of a writeable array
            self.recorder.miss_if(self.recorder.sources[id(data)].get("flags").get("writeable"))
        return self._copied_before(data, dtype, requires_grad)

    def tensor_of_array(self, function: Any, array: Any, dtype: Any = None, *, requires_grad: Any = False) -> Any:
        if function is not tensor or not self.is_outside_array(array) or id(_owner(array)) not in self._own:
            self.note_later_read(array)
            return super().tensor_of_array(function, array, dtype, requires_grad=requires_grad)
        return self._copied_before(array, dtype, requires_grad)

    def _tensor_of_list(self, data: Any, dtype: Any, requires_grad: Any) -> Any:
        """tensor(data), for a list or tuple with arrays from outside; None for other data."""
        data = self._with_numbers(data)
        if self.recorder.stopped or not self._has_arrays(data) or not self._is_known_in_prologue(data):
            return None
        return self._copied_before(data, dtype, requires_grad)

    def _has_arrays(self, value: Any) -> bool:
        return any(map(self._has_arrays, value)) if type(value) in (list, tuple) else self.is_outside_array(value)

    def _copied_before(self, data: Any, dtype: Any, requires_grad: Any) -> Any:
        """A tensor of a copy that the prologue makes; None, with a reason, if the call has written to the memory."""
        recorder = self.recorder
        if self._holds_changed(data):
            recorder.stop("read_after_change", "the memory that an array has")
            return None
        kind = None if dtype is None else as_dtype(dtype, "tensor")
        result: Any = recorder.unwatched(lambda: attempt(tensor, plain_copy(data), dtype=kind))
        if result is FAILED:
            return None
        call = recorder.constant(attempt).call(
            recorder.constant(tensor), self._prologue_argument(data), dtype=recorder.constant(kind)
        )
        recorder.outside_tensor(result, call)
        return recorder.interpreter.bind(REGISTRY["clone"], (result,), {}).requires_grad_() if requires_grad else result

    def memory_is_written(self) -> bool:
        """Whether the call has written to memory from outside so far."""
        return self.recorder.interpreter.writes_outside()

    @staticmethod
    def _computes_in_prologue(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Whether the prologue can call `function`: it changes none of its arguments and depends on nothing else."""
        if writes_to_argument(function, arguments, keywords):
            return False
        if is_a(function, MethodDescriptorType):
            return function.__name__ in _METHODS and issubclass(function.__objclass__, np.ndarray)
        return (
            isinstance(function, np.ufunc) or function in _FUNCTIONS or (is_a(function, type) and issubclass(function, np.number))
        )

    def _varies(self, value: Any) -> bool:
        """Whether an argument is from outside, so that it may differ between calls, or contains such a value."""
        if type(value) in (tuple, list):
            return any(map(self._varies, value))
        return self.is_outside_array(value) or is_symbolic(value)

    def _holds_changed(self, value: Any) -> bool:
        """Whether `value` is or contains an array whose memory the call may have written to.  For an array from outside that is
        excluded by a guard."""
        if type(value) in (tuple, list):
            return any(map(self._holds_changed, value))
        if not self.is_outside_array(value) or not self.memory_is_written():
            return False
        owner, recorder = _owner(value), self.recorder
        if recorder.effects.reaches_deferred_call(value) or recorder.effects.reaches_deferred_call(owner):
            return True
        if recorder.unwatched(lambda: self.is_written(owner)):
            return True
        if id(owner) not in self._own and not any(array is value for array in self.read_after_writes):
            self.read_after_writes.append(value)
        return False

    def is_written(self, array: Any) -> bool:
        """Whether the call has written to the memory of an array."""
        return self.recorder.interpreter.writes_to(array)

    def _is_known_in_prologue(self, value: Any) -> bool:
        """Whether the prologue can have `value`, an argument."""
        if type(value) in (tuple, list):
            return all(map(self._is_known_in_prologue, value))
        if type(value) is slice:
            return all(map(self._is_known_in_prologue, (value.start, value.stop, value.step)))
        if is_post_program(value):
            return not value._post_program.depends_on_tensors and not value._post_program.deferred
        if type(value) in KINDS:
            return value.dtype.kind in "biuf" and (self.is_outside_array(value) or self.is_fixed(value))
        return is_symbolic(value) or type(value) in PRIMITIVE_TYPES or is_a(value, (np.generic, np.dtype, type))

    def _prologue_argument(self, value: Any) -> Expr:
        """The expression of an argument in the prologue."""
        recorder = self.recorder
        if type(value) in (tuple, list):
            elements = tuple(map(self._prologue_argument, recorder.contents.elements(value)))
            return TupleOf(elements) if type(value) is tuple else ListOf(elements)
        if type(value) is slice:
            return recorder.constant(slice).call(*map(self._prologue_argument, (value.start, value.stop, value.step)))
        if self.is_outside_array(value):
            source = recorder.sources[id(value)]
            recorder.miss_if(source.get("dtype").is_not(recorder.constant(value.dtype)))  # objects in an array may run any code
            return source
        return self.argument_expression(recorder.extracted_numbers.in_prologue(value) if is_post_program(value) else value, [])

    def argument_expression(self, value: Any, parts: list[Any]) -> Expr:
        """The expression of an argument of a call that NumPy makes after the program.  parts: as in arrays.py."""
        recorder = self.recorder
        if not self.is_outside_array(value) or value.dtype.kind not in "biuf":
            return super().argument_expression(value, parts)
        source = recorder.sources[id(value)]
        self.note_later_read(value)
        recorder.miss_if(
            source.get("shape").differs(value.shape).otherwise(source.get("dtype").is_not(recorder.constant(value.dtype)))
        )
        self.reads_after_program = True
        return source

    def prologue_scalar(self, variable: Name, value: Any) -> SymbolicNumber:
        """A symbolic number for a scalar of NumPy that the prologue has defined, its type guarded."""
        number = SymbolicNumber(self.recorder, variable, value, PostProgramValue(None, max_bits=63, is_in_prologue=True))
        self.recorder.extracted_numbers.post_program_numbers.append(number)
        return number

    def _prologue_result(self, expression: Expr, value: Any) -> Any:
        """`value`, the result of a call in the prologue, with its type guarded; numbers are symbolic, arrays are from outside."""
        recorder = self.recorder
        variable = recorder.define(expression)
        if type(value) in PRIMITIVE_TYPES and type(value) not in (int, float):
            recorder.guard_value(value, variable)
            return value
        recorder.miss_if(variable.type().is_not(recorder.constant(type(value))))
        if type(value) in (int, float):
            return SymbolicNumber(self.recorder, variable, value)
        if type(value) in KINDS:
            recorder.register(value, variable)
            return value
        if is_a(value, np.generic):
            return self.prologue_scalar(variable, value)
        if type(value) in (tuple, list) and len(value) <= MOST_ELEMENTS:
            recorder.miss_if(variable.length().differs(len(value)))
            return recorder.mark_created(type(value)([self._prologue_result(variable.at(i), v) for i, v in enumerate(value)]))
        recorder.stop("tensor_contents", f"a {type(value).__name__} made of an array from outside")
        return value


def _owner(array: Any) -> Any:
    """The array that owns the memory of `array`, as far as NumPy knows."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def _holds_tensors(value: Any) -> bool:
    if type(value) is slice:
        return any(map(_holds_tensors, (value.start, value.stop, value.step)))
    return any(map(_holds_tensors, value)) if type(value) in (tuple, list) else is_a(value, Tensor)
