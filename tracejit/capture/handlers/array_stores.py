"""Arrays of NumPy from outside that are read and written by their items.

What is in such an array is known to no guard: it is read, and written, when the program has run, in the order of the function, among
the late values.  So nothing that the program computes may lie in its memory; a guard sees to that in each call.  A store raises in no
call where it did not raise when it was recorded: shapes and dtypes are guarded, positions and integers are compared with what they must be
within.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.handlers.arrays import CALM_METHODS
from tracejit.capture.handlers.post_program import PostProgramValue, is_post_program
from tracejit.capture.handlers.prologue_arrays import PrologueArrayHandlers
from tracejit.capture.handlers.stand_ins import plain, plain_copy
from tracejit.capture.handlers.symbols import SymbolicNumber, concrete
from tracejit.capture.policies import is_a
from tracejit.core.dtypes import bool_
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["ArrayStoreHandlers"]


class ArrayStoreHandlers(PrologueArrayHandlers):
    """`array[key]`, `array[key] = value` and `array += value`."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.array_stores: list[SymbolicNumber] = journal.list()
        self._errors = np.geterr()  # around the call
        self.outside_arrays: list[np.ndarray[Any, Any]] = journal.list()
        self._whole: dict[int, np.ndarray[Any, Any]] = (
            journal.dictionary()
        )  # arrays from outside, by their ids and those of views of them

    def read_after_program(self, array: Any) -> bool:
        """From now on an array from outside is read when the program has run; False for one that cannot be."""
        recorder = self.recorder
        if recorder.stopped or type(array) is not np.ndarray or array.dtype.kind not in "biuf" or not array.dtype.isnative:
            return False
        if id(array) not in self._whole:
            self.is_read_later(array)
            source = recorder.sources[id(array)]
            recorder.miss_if(
                source.get("shape").differs(array.shape).otherwise(source.get("dtype").is_not(recorder.constant(array.dtype)))
            )
            self.left[id(array)] = recorder.extracted_numbers.define_post_program(
                PostProgramValue(source, outside=True, of_program=True), array
            )
            self._whole[id(array)] = array
            self.outside_arrays.append(array)
            recorder.keep.append(array)
        return True

    def reads_array(self, array: Any) -> bool:
        """Whether it is an array that the call has, or one from outside that is read when the program has run: once the call has
        written to such memory, all are."""
        if not self.is_array(array) or not self.recorder.is_outside(array):
            return self.is_array(array)
        return id(array) in self._whole or (bool(self.array_stores) and self.read_after_program(array))

    def has_tensor_index(self, array: Any, key: Any) -> bool:
        """Whether tensors tell at which element an array from outside is looked at: it is read when the program has run."""
        parts = key if type(key) is tuple else (key,)
        told = is_a(array, np.ndarray) and any(is_a(part, Tensor) and part.ndim == 0 for part in parts)
        return told and self.recorder.is_outside(array) and self.read_after_program(array)

    def takes_stores(self, array: Any) -> bool:
        """Whether a store to an array is one that is handled here."""
        return self.read_after_program(array) if self.recorder.is_outside(array) else self.is_array(array)

    def memory_is_written(self) -> bool:
        return bool(self.array_stores) or super().memory_is_written()

    def is_written(self, array: Any) -> bool:
        return any(np.may_share_memory(array, other) for other in self.outside_arrays) or super().is_written(array)

    def is_outside_array(self, value: Any) -> bool:
        return super().is_outside_array(value) and id(value) not in self._whole

    def asks_contents(self, array: Any, name: str) -> bool:
        """Whether a method of an array from outside looks at its contents, and it can be read."""
        return name in CALM_METHODS and self.reads_array(array)

    def is_written_to(self, array: Any) -> bool:
        """Whether a store to an array, or a change of it in place, is one to the memory of an array from outside."""
        return id(array) in self._whole or (self.recorder.is_outside(array) and self.read_after_program(array))

    def array_call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any] | None = None) -> Any:
        recorder = self.recorder
        for value in (*arguments, *(keywords or {}).values()):
            if is_a(value, np.ndarray):
                self.reads_array(value)
        if not recorder.stopped and recorder.unwatched(np.geterr) != self._errors:
            recorder.stop("impure_call", "what NumPy does about errors, set inside,")
        return super().array_call(function, arguments, keywords)

    def array_item(self, array: Any, key: Any) -> Any:
        """array[key], where a position may be another one in later calls."""
        if self.recorder.stopped:
            return array[key]
        found = self.array_call(operator.getitem, (array, self._position(plain(array), key)))
        if is_a(found, np.ndarray) and found.base is not None and id(array) in self._whole:
            self._whole[id(found)] = self._whole[id(array)]
        return found

    def set_array_item(self, array: Any, key: Any, value: Any) -> None:
        """array[key] = value.  Arrays that are not from outside are not written to."""
        recorder = self.recorder
        if recorder.stopped or id(array) not in self._whole:
            self.array_call(operator.setitem, (array, key, value))
            return
        whole = self._whole[id(array)]
        if not self._is_writeable(whole):
            operator.setitem(array, plain_copy(key), plain_copy(value))  # it raises what is to be raised
            return
        key, value = self._position(array, key), self._value(array, value)
        if not all(type(v) in _POSITIONS for v in (key if type(key) is tuple else (key,))):
            recorder.stop("container", "an item of an ndarray at other than numbers and slices")
        if recorder.effects.given_to_calls(whole):
            recorder.stop("read_after_change", "an ndarray that a call has been given")
        parts: list[Any] = []
        given = [self.argument_expression(v, parts) for v in (array, key, value)]
        now = plain_copy(key), plain_copy(value)
        self.numpy_computes(operator.setitem, (array, *now))
        if not recorder.stopped:
            late = PostProgramValue(
                recorder.constant(operator.setitem).call(*given), tuple(parts), position=len(recorder.program.nodes)
            )
            self.array_stores.append(recorder.extracted_numbers.define_post_program(late, None))

    def update_array(self, function: Any, in_place: Any, array: Any, other: Any) -> Any:
        """array <symbol>= other, for the memory of an array from outside."""
        if not self._is_writeable(self._whole[id(array)]):
            return in_place(array, plain(other))  # it raises what is to be raised
        result = self.array_call(function, (array, other))
        if not (is_a(result, np.ndarray) and result.shape == array.shape and self._casts(result.dtype, array.dtype, "same_kind")):
            self.recorder.stop("tensor_contents", f"NumPy's {in_place.__name__}() of an array from outside")
        if self.recorder.stopped:
            return in_place(array, plain(other))
        self.set_array_item(array, Ellipsis, result)
        return array

    def _is_writeable(self, whole: np.ndarray[Any, Any]) -> bool:
        """Whether an array from outside may be written to: guarded."""
        writeable = whole.flags.writeable
        self.recorder.miss_if(self.recorder.sources[id(whole)].get("flags").get("writeable").is_not(writeable))
        return writeable

    def _casts(self, given: Any, wanted: Any, casting: Any) -> bool:
        return bool(self.recorder.unwatched(lambda: np.can_cast(given, wanted, casting)))

    def _position(self, array: Any, key: Any) -> Any:
        """A key whose numbers are positions in each call."""
        items = list(self.recorder.contents.elements(key)) if type(key) is tuple else [key]
        for d, item in enumerate(items):
            whole = is_a(item, Tensor) and not item.dtype.is_floating_point and item.dtype is not bool_
            number = self.recorder.extracted_numbers.element(item) if whole else None
            item = items[d] = item if number is None else number
            if type(item) is SymbolicNumber:
                size = array.shape[d] if d < array.ndim else 0
                moves = type(item._value) is int and all(type(v) in (int, SymbolicNumber, slice) for v in items[:d])
                if not (moves and -size <= item < size):
                    items[d] = concrete(item)
            elif type(item) is slice:
                items[d] = slice(*map(concrete, (item.start, item.stop, item.step)))
        return tuple(items) if type(key) is tuple else items[0]

    def _value(self, array: Any, value: Any) -> Any:
        """A value that can be stored in each call."""
        if is_a(value, Tensor):
            if value.requires_grad:
                self.recorder.stop("tensor_contents", "a tensor that requires gradients is stored in an ndarray")
                return value
            value = value.numpy()
        if type(value) in (list, tuple):
            return type(value)([self._value(array, v) for v in self.recorder.contents.elements(value)])
        if type(value) is not SymbolicNumber:
            return value
        number, kind = value._value, array.dtype.kind
        if is_post_program(value) and any(reading.is_call_result for reading in value._late.readings):
            return concrete(value)  # what a call answers that comes after the stores
        if is_a(number, np.generic):
            safe = (number.dtype.kind == kind == "f") or self._casts(number.dtype, array.dtype, "safe")
            return value if safe else concrete(value)
        if type(number) is bool or (type(number) is float and kind == "f"):
            return value
        if type(number) is not int or kind == "b":
            return concrete(value)
        if kind == "f":
            return value if self.recorder.extracted_numbers.are_short([value]) else concrete(value)
        least, most = _WITHIN[array.dtype]
        known = is_post_program(value) and value._late.bits <= 63 and array.dtype.itemsize == 8 and kind == "i"
        return value if known or least <= value <= most else concrete(value)


_WITHIN = {np.dtype(code): (int(np.iinfo(code).min), int(np.iinfo(code).max)) for code in "bhilqBHILQ"}
_POSITIONS = (int, SymbolicNumber, slice, type(None), type(Ellipsis))
