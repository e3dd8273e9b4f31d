"""Handlers of NumPy arrays from outside whose items are stored: `array[i] = loss.item()`.

No guard looks at the contents of such an array.  It is read and written after the program, in the order of the function, between
the definitions of post-program values.  So no value that the program computes may share its memory: each call guards this.  A
store that did not raise in the recorded call raises in no later one: shapes and dtypes are guarded, and positions and integers
are compared with their bounds.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.handlers.array_likes import ArrayLikeHandlers
from tracejit.capture.handlers.arrays import CALM_METHODS
from tracejit.capture.handlers.post_program import PostProgramValue, is_post_program
from tracejit.capture.handlers.stand_ins import plain, plain_copy
from tracejit.capture.handlers.symbols import SymbolicNumber, concretise
from tracejit.capture.policies import is_a
from tracejit.core.dtypes import bool_
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["ArrayStoreHandlers"]


class ArrayStoreHandlers(ArrayLikeHandlers):
    """Handlers of `array[key]`, `array[key] = value` and `array += value`.

    array_stores: one post-program number for each store.  outside_arrays: arrays from outside that are read after the program."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.array_stores: list[SymbolicNumber] = journal.list()
        self._errors = np.geterr()  # NumPy's error handling around the call
        self.outside_arrays: list[np.ndarray[Any, Any]] = journal.list()
        # Arrays from outside, by their ids and the ids of views of them.
        self._bases: dict[int, np.ndarray[Any, Any]] = journal.dictionary()

    def read_after_program(self, array: Any) -> bool:
        """Have `array`, from outside, read after the program from now on.  False if its class or dtype does not allow that."""
        recorder = self.recorder
        if recorder.stopped or type(array) is not np.ndarray or array.dtype.kind not in "biuf" or not array.dtype.isnative:
            return False
        if id(array) not in self._bases:
            self.note_later_read(array)
            source = recorder.sources[id(array)]
            recorder.miss_if(
                source.get("shape").differs(array.shape).otherwise(source.get("dtype").is_not(recorder.constant(array.dtype)))
            )
            self.epilogue_arrays[id(array)] = recorder.extracted_numbers.define_post_program(
                PostProgramValue(source, is_outside_array=True, depends_on_tensors=True), array
            )
            self._bases[id(array)] = array
            self.outside_arrays.append(array)
            recorder.keep.append(array)
        return True

    def reads_array(self, array: Any) -> bool:
        """Whether `array` is one of this run, or one from outside that is read after the program.  Once the call has stored in an
        array from outside, all arrays from outside are read after the program."""
        if not self.is_array(array) or not self.recorder.is_outside(array):
            return self.is_array(array)
        return id(array) in self._bases or (bool(self.array_stores) and self.read_after_program(array))

    def has_tensor_index(self, array: Any, key: Any) -> bool:
        """Whether `key` indexes an array from outside by tensors, `array[t]`, so that it is read after the program."""
        parts = key if type(key) is tuple else (key,)
        has_tensor = is_a(array, np.ndarray) and any(is_a(part, Tensor) and part.ndim == 0 for part in parts)
        return has_tensor and self.recorder.is_outside(array) and self.read_after_program(array)

    def takes_stores(self, array: Any) -> bool:
        """Whether `set_array_item` handles stores in `array`."""
        return self.read_after_program(array) if self.recorder.is_outside(array) else self.is_array(array)

    def memory_is_written(self) -> bool:
        return bool(self.array_stores) or super().memory_is_written()

    def is_written(self, array: Any) -> bool:
        return any(np.may_share_memory(array, other) for other in self.outside_arrays) or super().is_written(array)

    def is_outside_array(self, value: Any) -> bool:
        return super().is_outside_array(value) and id(value) not in self._bases

    def asks_contents(self, array: Any, name: str) -> bool:
        """Whether method `name` reads the contents of `array`, which is read after the program."""
        return name in CALM_METHODS and self.reads_array(array)

    def is_written_to(self, array: Any) -> bool:
        """Whether a store in `array`, or an operator in place, changes the memory of an array from outside."""
        return id(array) in self._bases or (self.recorder.is_outside(array) and self.read_after_program(array))

    def array_call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any] | None = None) -> Any:
        recorder = self.recorder
        for value in (*arguments, *(keywords or {}).values()):
            if is_a(value, np.ndarray):
                self.reads_array(value)
        if not recorder.stopped and recorder.unwatched(np.geterr) != self._errors:
            recorder.stop("impure_call", "what NumPy does about errors, set inside,")
        return super().array_call(function, arguments, keywords)

    def array_item(self, array: Any, key: Any) -> Any:
        """array[key].  The position may vary from call to call."""
        if self.recorder.stopped:
            return array[key]
        item = self.array_call(operator.getitem, (array, self._position(plain(array), key)))
        if is_a(item, np.ndarray) and item.base is not None and id(array) in self._bases:
            self._bases[id(item)] = self._bases[id(array)]
        return item

    def set_array_item(self, array: Any, key: Any, value: Any) -> None:
        """array[key] = value.  For an array that is not from outside, `array_call` decides (it may stop the recording)."""
        recorder = self.recorder
        if recorder.stopped or id(array) not in self._bases:
            self.array_call(operator.setitem, (array, key, value))
            return
        base = self._bases[id(array)]  # the array from outside
        if not self._is_writeable(base):
            operator.setitem(array, plain_copy(key), plain_copy(value))  # which raises Python's error
            return
        key, value = self._position(array, key), self._value(array, value)
        if not all(type(v) in _POSITIONS for v in (key if type(key) is tuple else (key,))):
            recorder.stop("container", "an item of an ndarray at other than numbers and slices")
        if recorder.effects.reaches_deferred_call(base):
            recorder.stop("read_after_change", "an ndarray that a call has been given")
        parts: list[Any] = []
        expressions = [self.argument_expression(v, parts) for v in (array, key, value)]
        plain_values = plain_copy(key), plain_copy(value)
        self.numpy_computes(operator.setitem, (array, *plain_values))
        if not recorder.stopped:
            store = PostProgramValue(
                recorder.constant(operator.setitem).call(*expressions), tuple(parts), nodes_before=len(recorder.interpreter.nodes)
            )
            self.array_stores.append(recorder.extracted_numbers.define_post_program(store, None))

    def update_array(self, function: Any, in_place: Any, array: Any, other: Any) -> Any:
        """array <symbol>= other, where `is_written_to(array)` holds.  function: the operator; in_place: its form in place."""
        if not self._is_writeable(self._bases[id(array)]):
            return in_place(array, plain(other))  # which raises Python's error
        result = self.array_call(function, (array, other))
        if not (is_a(result, np.ndarray) and result.shape == array.shape and self._casts(result.dtype, array.dtype, "same_kind")):
            self.recorder.stop("tensor_contents", f"NumPy's {in_place.__name__}() of an array from outside")
        if self.recorder.stopped:
            return in_place(array, plain(other))
        self.set_array_item(array, Ellipsis, result)
        return array

    def _is_writeable(self, base: np.ndarray[Any, Any]) -> bool:
        """Whether an array from outside is writeable, with a guard on it."""
        writeable = base.flags.writeable
        self.recorder.miss_if(self.recorder.sources[id(base)].get("flags").get("writeable").is_not(writeable))
        return writeable

    def _casts(self, source: Any, target: Any, casting: Any) -> bool:
        """np.can_cast, not watched as a call of the program."""
        return bool(self.recorder.unwatched(lambda: np.can_cast(source, target, casting)))

    def _position(self, array: Any, key: Any) -> Any:
        """`key` with only such symbolic numbers as are valid positions in each call: guards compare them with the size.  Others
        become plain numbers, guarded by their values."""
        items = list(self.recorder.contents.elements(key)) if type(key) is tuple else [key]
        for d, item in enumerate(items):
            is_integer = is_a(item, Tensor) and not item.dtype.is_floating_point and item.dtype is not bool_
            number = self.recorder.extracted_numbers.element(item) if is_integer else None
            item = items[d] = item if number is None else number
            if type(item) is SymbolicNumber:
                size = array.shape[d] if d < array.ndim else 0
                may_vary = type(item._value) is int and all(type(v) in (int, SymbolicNumber, slice) for v in items[:d])
                if not (may_vary and -size <= item < size):
                    items[d] = concretise(item)
            elif type(item) is slice:
                items[d] = slice(*map(concretise, (item.start, item.stop, item.step)))
        return tuple(items) if type(key) is tuple else items[0]

    def _value(self, array: Any, value: Any) -> Any:
        """`value` with only such symbolic numbers as can be stored in `array` without an error in each call: guards compare
        integers with the range of the dtype.  Others become plain numbers, guarded by their values."""
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
        if is_post_program(value) and any(reading.is_call_result for reading in value._post_program.deferred):
            return concretise(value)  # the result of a deferred call, which is made after the stores
        if is_a(number, np.generic):
            safe = (number.dtype.kind == kind == "f") or self._casts(number.dtype, array.dtype, "safe")
            return value if safe else concretise(value)
        if type(number) is bool or (type(number) is float and kind == "f"):
            return value
        if type(number) is not int or kind == "b":
            return concretise(value)
        if kind == "f":
            return value if self.recorder.extracted_numbers.are_short([value]) else concretise(value)
        least, most = _WITHIN[array.dtype]
        always_fits = is_post_program(value) and value._post_program.max_bits <= 63 and array.dtype.itemsize == 8 and kind == "i"
        return value if always_fits or least <= value <= most else concretise(value)


_WITHIN = {np.dtype(code): (int(np.iinfo(code).min), int(np.iinfo(code).max)) for code in "bhilqBHILQ"}
_POSITIONS = (int, SymbolicNumber, slice, type(None), type(Ellipsis))
