"""Handlers of lists, tuples, dicts and sets: items, membership, length.

Of an outside container only what the run looks at is guarded: one item, the length, the presence of a key, or the whole content
with its order (contents.py).
"""

from __future__ import annotations

import array
import collections
import enum
import itertools
import math
import operator
import sys
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.call_sites import user_line
from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.contents import CONTAINERS, DICT_TYPES, builtin_item, item_of, length_of, membership
from tracejit.capture.handlers.effects import ItemStore, MethodCall
from tracejit.capture.handlers.post_program import is_deferred_call_result, is_post_program
from tracejit.capture.handlers.sequence_ends import SequenceEnds
from tracejit.capture.handlers.sequences import SEQUENCES
from tracejit.capture.handlers.special_method_stub import SpecialMethodStub
from tracejit.capture.handlers.stand_ins import plain, plain_value, without_stand_ins
from tracejit.capture.handlers.symbols import ObjectIdentity, SymbolicNumber, concretise, is_symbolic, is_symbolic_bool
from tracejit.capture.policies import (
    DICT_VIEWS,
    PRIMITIVE_TYPES,
    builtin_base,
    is_a,
    is_python_class,
    is_user_instance,
)
from tracejit.capture.recording.facts import shown
from tracejit.capture.value_kinds import Kind, by_kind, kind_of
from tracejit.capture.values import MODELS
from tracejit.core.dtypes import int64
from tracejit.core.interrupts import is_foreign
from tracejit.replay.ir import And, Constant, Contains, Expr, Not
from tracejit.tensor import Tensor
from tracejit.tensor.size import Size

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["ContainerHandlers"]

_SEQUENCES = frozenset((list, tuple, collections.deque))
_POSITIONED = _SEQUENCES | {str, bytes, range}
_FEW = 32
"""Most comparisons of a membership test that are guarded one by one."""
_ADDING = frozenset({"append", "appendleft", "extend", "extendleft", "insert", "add", "sort", "reverse", "rotate", "move_to_end"})
"""Methods that remove nothing, except from a full deque."""
_EXTENDING = frozenset({"extend", "extendleft", "__setitem__"})


def _dropped(owner: Any, name: str, arguments: tuple[Any, ...]) -> list[Any]:
    """What the method `name` may remove from `owner`, a list, set, dictionary or deque."""
    base = builtin_base(type(owner))
    if name in _ADDING:
        full = is_a(owner, collections.deque) and owner.maxlen == base.__len__(owner)
        return list(base.__iter__(owner)) if full else []
    if name in ("pop", "__delitem__") and is_a(owner, (list, collections.deque)):
        position = arguments[0] if arguments else -1
        if type(position) is int:
            length = base.__len__(owner)
            return [base.__getitem__(owner, position)] if -length <= position < length else []
    if name == "popleft":
        return [base.__getitem__(owner, 0)] if base.__len__(owner) else []
    if is_a(owner, dict):
        return [*dict.keys(owner), *dict.values(owner)]
    return list(base.__iter__(owner))


MOVING = frozenset(
    {
        "append", "appendleft", "extend", "extendleft", "pop", "popleft", "rotate", "reverse", "clear", "insert", "__delitem__",
        "__setitem__", "__imul__",
    }
)  # fmt: skip
"""Methods of a list or deque that only move, remove and insert items."""
_TRANSPARENT_TYPES: tuple[type, ...] = (*PRIMITIVE_TYPES, list, tuple, Tensor)
"""Types of values that hold no symbolic numbers, or whose symbolic numbers are their items."""
_NUMBERED: tuple[type, ...] = (list, tuple, dict, collections.deque)
"""Types of containers of `numbered_item`."""


def _is_data(value: Any) -> bool:
    """Whether `value` is a plain value, a tensor that does not require grad, an array, or a list, tuple or dictionary of such."""
    if type(value) in (list, tuple, dict):
        return all(map(_is_data, value.values() if type(value) is dict else value))
    if type(value) is Tensor:
        return not value.requires_grad
    return type(value) in PRIMITIVE_TYPES or type(value) is np.ndarray


def _have_literals(numbers: Any) -> bool:
    """Whether a set consists of a few plain numbers that have literals."""
    return len(numbers) <= _FEW and all(type(x) is int or (type(x) is float and math.isfinite(x)) for x in numbers)


class ContainerHandlers(Handlers):
    """Handlers of `c[k]`, `c[k] = v`, `del c[k]`, `x in c` and `len(c)`."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self._tables: dict[str, tuple[Any, ...]] = journal.dictionary()  # items of `_post_program_item`, by their repr

    # -- items
    def get_item(self, owner: Any, key: Any) -> Any:
        """owner[key]"""
        if type(key) in (str, int) and type(owner) in (dict, list, tuple):  # most common
            return self.base_item(owner, key)
        return _ITEMS[kind_of(owner)](self, owner, key)

    def _item_of_tensor(self, owner: Any, key: Any) -> Any:
        item = self.recorder.ragged.item(owner, key)
        return self.recorder.mark_created(self.item_of_tensor(owner, key)) if item is ABSENT else item

    def _item_of_array(self, owner: Any, key: Any) -> Any:
        """By NumPy, after the program if the array is read there."""
        arrays = self.recorder.arrays
        if arrays.reads_array(owner) or arrays.has_tensor_index(owner, key):
            return arrays.array_item(owner, key)
        if arrays.asks_array((owner,)):
            return arrays.array_call(operator.getitem, (owner, key))
        return self._item_of_instance(owner, key)

    def _item_of_stand_in(self, owner: Any, key: Any) -> Any:
        """A slice of a text may be a post-program text; all else needs the plain value."""
        key = self.position_in(owner, key)
        if type(plain(owner)) is str and type(key) is slice:
            text = self.recorder.texts.text_slice(owner, self.index(key))
            if text is not None:
                return text
        return self.get_item(concretise(owner), key)

    def _item_of_container(self, owner: Any, key: Any) -> Any:
        """The key may be a number that varies from call to call."""
        key = self.position_in(owner, key)
        item = self._post_program_item(owner, key) if is_post_program(key) and type(owner) in (list, tuple) else None
        if item is not None:
            return item
        item = self.numbered_item(owner, key)
        return self.base_item(owner, self.recorder.contents.as_key(key)) if item is ABSENT else item

    def _item_of_instance(self, owner: Any, key: Any) -> Any:
        """By `__getitem__` of the program; without one, as of what its class derives from."""
        method = self.recorder.attributes.method(owner, "__getitem__")
        if method is not None:
            return self.recorder.calls.call(method, (owner, key), {})
        return self.base_item(owner, self.recorder.contents.as_key(key))

    def _item_of_modelled(self, owner: Any, key: Any) -> Any:
        """By the method that its model names; else as of a container."""
        method = MODELS[type(owner)].item_method
        if not method:
            return self._item_of_container(owner, key)
        return self.recorder.calls.call(getattr(owner, method), (key,), {})

    def _item_of_class(self, owner: Any, key: Any) -> Any:
        """By the metaclass, then by `__class_getitem__`; a member of an enum by its name."""
        recorder = self.recorder
        method = recorder.attributes.method(owner, "__getitem__")
        if method is not None:
            return recorder.calls.call(method, (owner, key), {})
        key = recorder.contents.as_key(key)
        if isinstance(owner, enum.EnumMeta) and type(key) is str:
            return recorder.mark_fixed(owner[key])
        attribute, path = recorder.attributes.lookup(owner, "__class_getitem__")
        if type(attribute) is classmethod and type(attribute.__func__) is FunctionType:
            bound = recorder.attributes.bound_attribute(attribute, "__class_getitem__", path, None, owner)
            return recorder.calls.call(bound, (key,), {})
        recorder.stop("container", f"the class {owner.__name__}")
        return owner[key]

    def item_of_tensor(self, owner: Tensor, key: Any) -> Any:
        """tensor[key], by the `__getitem__` of its class."""
        recorder = self.recorder
        recorder.inspect(owner)
        return self.binary_native("__getitem__", owner, self._tensor_key(recorder.number_calls.index_of(key)))

    def position_in(self, owner: Any, key: Any) -> Any:
        """`key`, as a number if it is an array without dimensions that indexes a sequence."""
        is_position = type(key) is np.ndarray and not key.ndim and key.dtype.kind in "iu"
        return (
            self.recorder.arrays.array_call(np.ndarray.item, (key,)) if is_position and type(plain(owner)) in _POSITIONED else key
        )

    def _post_program_item(self, owner: Any, position: Any) -> Any:
        """An item of a list or tuple of texts or of numbers at a post-program position: `names[scores.argmax().item()]`.

        The whole content is guarded, and that the position is valid, with the sign that it has now.  None: make it concrete."""
        recorder = self.recorder
        kinds = set(map(type, owner))
        if (
            recorder.stopped
            or is_deferred_call_result(position)
            or type(plain(position)) is not int
            or kinds not in ({str}, {int}, {float})
        ):
            return None
        if not -len(owner) <= plain(position) < len(owner) or recorder.contents.has_varied(owner):
            return None
        recorder.contents.read_content(owner)
        negative = plain(position) < 0
        recorder.extracted_numbers.guard_comparison("<", position, 0 if negative else len(owner), True)
        recorder.extracted_numbers.guard_comparison(">=", position, -len(owner) if negative else 0, True)
        items = tuple(owner)
        return recorder.extracted_numbers.post_program_item(self._tables.setdefault(repr(items), items), position)

    def numbered_item(self, owner: Any, key: Any) -> Any:
        """An item of an unchanged outside container at a symbolic number, `weights[step]`: its key may vary from call to call,
        its type is guarded.  ABSENT if the container, the key or the item is of another kind."""
        recorder = self.recorder
        if not is_symbolic(key) or type(owner) not in _NUMBERED or recorder.stopped or not recorder.is_outside(owner):
            return ABSENT
        if id(owner) in recorder.effects.content_guarded or recorder.effects.changes(owner):
            return ABSENT
        if is_post_program(key):
            key = self._before_the_program(key)
        if not is_symbolic(key) or recorder.sizes.symbol(key) is not None:
            return ABSENT
        try:
            value = owner[plain(key)]
        except (LookupError, TypeError) as error:
            if is_foreign(error):
                raise
            return ABSENT
        if not _is_data(value):
            return ABSENT
        return recorder.read(
            value,
            recorder.sources[id(owner)].at(key._name),
            called=f"{recorder.facts.name(owner)}[...]",
            symbolic=True,
            truths=None if type(owner) is dict else True,
        )

    def _before_the_program(self, number: Any) -> Any:
        """A post-program number as one of the prologue; None if it depends on the program or a clock."""
        recorder = self.recorder
        if number._post_program.depends_on_tensors or number._post_program.deferred or number._post_program.source is not None:
            return None
        number = recorder.arrays.as_index(number)
        return recorder.extracted_numbers.in_prologue(number)

    def varying_slice(self, owner: Tensor, dim: int, start: Any, stop: Any, length: Any) -> tuple[Any, Any] | None:
        """(start, length) of a slice of fixed length whose start varies from call to call; None for other slices.

        See `Interpreter.varying_slice`.  The start is a number of the prologue or of the program.  The slice has to lie within
        the dimension: a guard, or an exit of the program, fails in calls where it does not."""
        recorder, size = self.recorder, owner._array.shape[dim]
        if recorder.stopped:
            return None
        start, stop = self._as_position(start), None if length is not None else self._as_position(stop)
        if start is None or (stop is None and length is None):
            return None
        count = plain(stop) - plain(start) if length is None else plain(length)
        from_end = plain(start) < 0 and (stop is None or plain(stop) < 0)
        if count < 1 or not 0 <= plain(start) + (size if from_end else 0) <= size - count or not self._moves(start, stop):
            return None
        if length is None:
            length = stop - start
            if is_post_program(length) and not recorder.in_program.is_position(length):
                return None
            length = concretise(length)
        bound = owner._sizes[dim]
        if from_end:
            is_negative = start < 0 and (stop is None or stop < 0)  # each comparison adds a guard
            start = self._as_position(start + bound) if is_negative else None
        return (start, length) if start is not None and 0 <= start <= bound - length else None

    def _as_position(self, number: Any) -> Any:
        """`number` as a position that may vary from call to call: an integer of the prologue or the program; else None."""
        recorder = self.recorder
        if is_a(number, Tensor) and number._array.size == 1 and number._array.dtype.kind in "iu":
            number = recorder.extracted_numbers.element(number)
        if is_post_program(number) and not number._post_program.depends_on_tensors:
            number = self._before_the_program(number)
        if not is_symbolic(number) or type(plain(number)) is not int or is_deferred_call_result(number):
            return None
        return None if is_post_program(number) and not recorder.in_program.is_position(number) else number

    def _moves(self, start: Any, stop: Any) -> bool:
        """Whether the start of a slice varies: the program computes it, or an earlier recording had another one.  If not, the
        numbers are noted as positions, so that a later recording can tell."""
        recorder = self.recorder
        if is_post_program(start) or is_post_program(stop):
            return True
        if recorder.sizes.symbol(start) is not None:
            return False
        recorder.positions.update([number._name for number in (start, stop) if number is not None])
        facts, line = recorder.facts, user_line()
        if facts.number_has_varied(start._name, plain(start), line):
            return True
        facts.note("value", facts.numbers.get(start._name, "a number"), shown(plain(start)), line)  # at each line that asks
        return False

    def position_in_program(self, position: Any) -> Tensor | None:
        """A position as an int64 tensor without dimensions, if it is a value of the program; else None."""
        if is_post_program(position):
            is_integer = (
                type(plain(position)) is int
                and position._post_program.depends_on_tensors
                and not is_deferred_call_result(position)
            )
            if not is_integer:
                return None
            position = position._post_program.program_tensor()
        if not is_a(position, Tensor) or position._array.size != 1 or position._array.dtype.kind not in "iu":
            return None
        return self.native(lambda: position.reshape(()).to(int64))

    def _tensor_key(self, key: Any) -> Any:
        """`key` as an index of a tensor.  Integers and bounds of slices that are positions stay symbolic; other symbolic numbers
        become plain ones, guarded by their values."""
        recorder = self.recorder
        key = recorder.sizes.for_library(key)
        if type(key) is tuple:
            key = tuple(map(recorder.arrays.as_index, recorder.contents.elements(key)))
        else:
            key = recorder.arrays.as_index(key)
        if is_symbolic(key):
            is_settled = is_symbolic_bool(key) or (
                is_post_program(key) and (is_deferred_call_result(key) or type(plain(key)) is not int)
            )
            return concretise(key) if is_settled else key
        if type(key) is slice:
            return self._slice_key(key)
        if type(key) is tuple and any(is_symbolic(k) or type(k) is slice for k in key):
            return tuple(map(self._tensor_key, key))
        return key if is_a(key, Tensor) else recorder.contents.as_key(key)

    def _slice_key(self, key: slice) -> slice:
        """`key` as a slice of a tensor.  If both bounds may vary from call to call they stay symbolic, and the operation asks
        `Interpreter.varying_slice`; else they become plain numbers."""
        ends = self._as_position(key.start), self._as_position(key.stop)
        step = self.recorder.contents.as_key(key.step)
        return self.recorder.contents.as_key(key) if None in ends else slice(*ends, step)  # type: ignore[no-any-return]

    def base_item(self, owner: Any, key: Any) -> Any:
        """owner[key] by the `__getitem__` of the builtin base, bypassing that of a subclass."""
        recorder = self.recorder
        base = builtin_base(type(owner))
        if not hasattr(base, "__getitem__"):
            return owner[key]  # which raises Python's error
        if is_a(owner, dict):
            key = recorder.real_object(key)
            missing = recorder.attributes.method(owner, "__missing__") if is_user_instance(owner) else None
            if missing is not None and not self.base_contains(key, owner):
                return recorder.calls.call(missing, (owner, key), {})
        elif is_user_instance(key) or type(key) is slice:
            key = self.index(key)
        if recorder.is_outside(owner):
            return self._outside_item(owner, key)
        if is_a(owner, dict) and (id(owner), key) in recorder.effects.stored:
            return recorder.effects.stored[id(owner), key]
        if base is collections.defaultdict and not self.base_contains(key, owner):
            return self._missing_item(owner, key)
        if is_a(owner, tuple) and recorder.effects.stored_by_container.get(id(owner)):
            if type(key) is slice:
                return recorder.mark_created(tuple(recorder.contents.elements(owner))[key])
            if type(key) is int and -len(owner) <= key < len(owner):
                return recorder.effects.stored.get((id(owner), key % len(owner)), tuple.__getitem__(owner, key))
        if not is_a(owner, (list, tuple, dict, str, range, bytes, collections.deque, np.generic)):
            recorder.stop("container", f"a {type(owner).__name__}")
        value = builtin_item(owner, key)
        return recorder.mark_created(value) if type(key) is slice else value

    def _absent_item(self, owner: Any, key: Any) -> Any:
        """owner[key] of a dictionary that does not have `key`."""
        if is_a(owner, collections.defaultdict):
            return self._missing_item(owner, key)
        return dict.__getitem__(owner, key)  # which raises Python's error

    def _missing_item(self, owner: collections.defaultdict[Any, Any], key: Any) -> Any:
        """defaultdict.__missing__: stores and returns the result of `default_factory`."""
        factory = self.recorder.attributes.get_attribute(owner, "default_factory")
        if factory is None:
            return dict.__getitem__(owner, key)  # which raises Python's error
        value = self.recorder.calls.call(factory, (), {})
        self.set_item(value, owner, key)  # as CPython does, by the `__setitem__` of a subclass
        return value

    def _outside_item(self, owner: Any, key: Any) -> Any:
        """owner[key] of an outside container, guarded."""
        recorder = self.recorder
        base = builtin_base(type(owner))
        if type(key) is ObjectIdentity:
            recorder.stop("object_identity", "an item at id()")
        if base in DICT_TYPES:
            key_expression = recorder.contents.key_expression(key)
            if key_expression is not None:
                return self._item_of_outside_dict(owner, key, key_expression)
            if base is collections.defaultdict and not dict.__contains__(owner, key):
                recorder.stop("container", f"a {type(owner).__name__} that gets an item of its own")
        elif base in SEQUENCES and type(key) in (int, slice):
            return self._item_of_outside_sequence(owner, key)
        elif base is tuple and type(key) is int and -tuple.__len__(owner) <= key < tuple.__len__(owner):
            return self._item_of_outside_tuple(owner, key)
        elif type(owner) is tuple and type(key) is slice:
            return recorder.mark_created(tuple(recorder.contents.elements(owner))[key])
        recorder.contents.read_content(owner)
        value = builtin_item(owner, key)
        return recorder.mark_created(value) if type(key) is slice else value

    def _item_of_outside_dict(self, owner: Any, key: Any, key_expression: Expr) -> Any:
        recorder, place = self.recorder, (id(owner), key)
        base, source = builtin_base(type(owner)), recorder.sources[id(owner)]
        if place in recorder.effects.stored:
            return recorder.effects.stored[place]
        has_key = dict.__contains__(owner, key)
        if place in recorder.effects.written:
            return base.__getitem__(owner, key) if has_key else self._absent_item(owner, key)
        if not has_key:
            self._guard_absence(owner, source, key_expression)
            return self._absent_item(owner, key)
        self._guard_presence(owner, source, key_expression)
        value, expression = base.__getitem__(owner, key), item_of(type(owner), source, key_expression)
        return recorder.read(value, expression, called=recorder.facts.item(owner, key), symbolic=True)

    def _item_of_outside_sequence(self, owner: Any, key: Any) -> Any:
        """Of a list, a deque or an array.  While only its ends are used, its content is not guarded (sequence_ends.py)."""
        recorder, base = self.recorder, builtin_base(type(owner))
        part = recorder.sequences.end_item(owner, key) if type(key) is int else recorder.sequences.end_slice(owner, key)
        if part is not ABSENT:
            return recorder.mark_created(part) if type(key) is slice else part
        recorder.contents.read_elements(owner)
        if type(key) is slice and base is list:
            return recorder.mark_created(list(recorder.contents.elements(owner))[key])
        if type(key) is slice:
            recorder.stop("container", f"a slice of a {type(owner).__name__}")
            return owner[key]
        value = base.__getitem__(owner, key)
        return recorder.effects.stored.get((id(owner), key % base.__len__(owner)), value)

    def _item_of_outside_tuple(self, owner: Any, key: int) -> Any:
        recorder, length = self.recorder, tuple.__len__(owner)
        cls, source = type(owner), recorder.sources[id(owner)]
        place, value = (id(owner), key % length), tuple.__getitem__(owner, key)
        if place in recorder.effects.stored:
            return recorder.effects.stored[place]
        if id(owner) in recorder.effects.content_guarded:
            return value
        if key < 0:
            recorder.miss_if(length_of(cls, source).differs(length))
        called = recorder.facts.item(owner, place[1])
        return recorder.read(value, item_of(cls, source, place[1]), called=called, symbolic=True, truths=True)

    def _guard_absence(self, owner: Any, source: Expr, key: Expr) -> None:
        """Guard that an outside dictionary or set does not have `key`, unless its whole content is guarded."""
        recorder = self.recorder
        if id(owner) not in recorder.effects.content_guarded and recorder.first_time("absent", source, key):
            recorder.miss_if(membership(type(owner), source, key))

    def _guard_presence(self, owner: Any, source: Expr, key: Expr) -> None:
        """Guard that an outside dictionary has `key`, if its class may have a `__missing__`; for others the read is the guard."""
        recorder = self.recorder
        may_create = is_python_class(type(owner)) or is_a(owner, collections.defaultdict)
        if may_create and id(owner) not in recorder.effects.content_guarded and recorder.first_time("present", source, key):
            recorder.miss_if(Not(membership(type(owner), source, key)))

    def set_item(self, value: Any, owner: Any, key: Any) -> None:
        """owner[key] = value"""
        recorder = self.recorder
        if is_a(owner, Tensor):
            store, _ = recorder.attributes.lookup(type(owner), "__setitem__")
            value = recorder.arrays.as_operand(value)
            key = self._tensor_key(recorder.number_calls.index_of(key))
            value = value if is_symbolic(value) or is_a(value, Tensor) else recorder.contents.as_key(value)
            if store is Tensor.__setitem__ and recorder.ragged.store(owner, key, value):
                return
            recorder.contents.read_content((key, value), deep=True)
            recorder.inspect_all((owner, key, value))
            self.native(lambda: store(owner, key, value))
            return
        if is_a(owner, np.ndarray) and recorder.arrays.takes_stores(owner):
            recorder.arrays.set_array_item(owner, key, value)
            return
        owner, key = concretise(owner), recorder.contents.as_key(key)
        if is_user_instance(owner):
            method = recorder.attributes.method(owner, "__setitem__")
            if method is not None:
                recorder.calls.call(method, (owner, key, value), {})
                return
        self.set_base_item(value, owner, key)

    def set_base_item(self, value: Any, owner: Any, key: Any) -> None:
        """owner[key] = value by the `__setitem__` of the builtin base, bypassing that of a subclass."""
        recorder = self.recorder
        cls: Any = type(owner)
        base = builtin_base(cls)
        if not is_a(owner, dict) and (is_user_instance(key) or type(key) is slice):
            key = self.index(key)
        if base is list and type(key) is slice:
            value = recorder.contents.value_to_store(value)
            if hasattr(type(value), "__iter__"):
                value = recorder.mark_created(list(recorder.iteration.iterate(value)))
        if not recorder.is_outside(owner):
            if base not in (list, collections.deque, *DICT_TYPES):
                recorder.stop("container", f"a {cls.__name__}")
                owner[key] = recorder.contents.concretise_contents(value)
            elif type(key) is slice:  # it may change the length, so it must not be done twice
                recorder.perform(lambda: base.__setitem__(owner, key, value))
            elif cls is base:
                if cls is dict:
                    recorder.effects.note_own(owner, owner, key, value)
                owner[key] = value
            else:
                base.__setitem__(owner, key, value)
            return
        if not hasattr(base, "__setitem__"):
            owner[key] = value  # which raises Python's error
        if base in DICT_TYPES and recorder.contents.key_expression(key) is not None:
            value = recorder.contents.value_to_store(value)
            recorder.effects.check_dropped(dict.get(owner, key))
            recorder.effects.note_change(owner)
            base.__setitem__(owner, key, plain_value(value))
            recorder.effects.note_store((id(owner), key), ItemStore(owner, key, value))
        elif base in SEQUENCES and type(key) is int and recorder.sequences.stores_as_it_is(owner, (value,)):
            value = recorder.contents.value_to_store(value)
            if not recorder.sequences.set_end_item(owner, key, value):
                recorder.contents.read_elements(owner)
                if -base.__len__(owner) <= key < base.__len__(owner):
                    key %= base.__len__(owner)
                    recorder.effects.check_dropped(base.__getitem__(owner, key))
                base.__setitem__(owner, key, plain_value(value))
                recorder.effects.note_store((id(owner), key), ItemStore(owner, key, value))
        elif base is list and type(key) is slice:
            recorder.contents.read_elements(owner)
            self.change(owner, "__setitem__", key, value)
        else:
            recorder.stop("container", f"a {cls.__name__}")
            owner[without_stand_ins(key)] = recorder.contents.concretise_contents(value)

    def delete_item(self, owner: Any, key: Any) -> None:
        """del owner[key]"""
        recorder = self.recorder
        owner, key = concretise(owner), recorder.contents.as_key(key)
        if is_user_instance(owner):
            method = recorder.attributes.method(owner, "__delitem__")
            if method is not None:
                recorder.calls.call(method, (owner, key), {})
                return
        self.delete_base_item(owner, key)

    def delete_base_item(self, owner: Any, key: Any) -> None:
        """del owner[key] by the `__delitem__` of the builtin base, bypassing that of a subclass."""
        recorder = self.recorder
        cls = type(owner)
        base = builtin_base(cls)
        if recorder.is_outside(owner):
            if base in DICT_TYPES and recorder.contents.key_expression(key) is not None:
                if self.base_contains(key, owner):
                    self.base_item(owner, key)
                recorder.effects.check_dropped(dict.get(owner, key))
                recorder.effects.note_change(owner)
                recorder.perform(lambda: base.__delitem__(owner, key))
                recorder.effects.note_store((id(owner), key), ItemStore(owner, key, ABSENT))
                return
            if base is list and type(key) in (int, slice):
                self.record_removal(owner, "__delitem__", key)
                return
        if not hasattr(base, "__delitem__"):
            del owner[key]  # which raises Python's error
        elif recorder.is_outside(owner) or base not in (list, collections.deque, *DICT_TYPES):
            recorder.stop("container", f"a {cls.__name__}")
            recorder.perform(lambda: operator.delitem(owner, key))
        else:
            recorder.perform(lambda: base.__delitem__(owner, key))

    # -- membership and length
    def contains(self, element: Any, container: Any) -> bool:
        """element in container"""
        recorder = self.recorder
        element = recorder.real_object(element)
        container = concretise(container)
        stored = recorder.effects.stored_by_container
        if type(container) is Size and stored.get(id(container)):  # `0 in x.shape` asks each of its sizes
            container = recorder.mark_created(tuple(recorder.contents.elements(container)))
        if (
            is_symbolic(element)
            and type(container) in (set, frozenset)
            and _have_literals(container)
            and not recorder.is_outside(container)
        ):
            container = tuple(container)
            if not is_post_program(element):
                result = plain(element) in container
                recorder.guard_outcome(Contains(Constant(container), element._name), result)
                return result
        if is_symbolic(element):
            element = element if self.can_guard_membership(container, element) else concretise(element)
        elif type(container) not in _SEQUENCES:
            element = recorder.contents.as_key(element)
        if is_a(container, Tensor):
            recorder.inspect(container)
            return element in container
        if isinstance(container, enum.EnumMeta):
            recorder.contents.read_content(element, deep=True)
            return self.native(lambda: element in container)
        if is_user_instance(container):
            method = recorder.attributes.method(container, "__contains__")
            if method is not None:
                return recorder.operators.truth(recorder.calls.call(method, (container, element), {}))
            if not is_a(container, CONTAINERS):  # Python iterates over it
                if not (hasattr(type(container), "__iter__") or hasattr(type(container), "__getitem__")):
                    return element in container  # which raises Python's error
                return any(self.equal(item, element) for item in recorder.iteration.iterate(container))
        return self.base_contains(element, container)

    def can_guard_membership(self, container: Any, number: SymbolicNumber) -> bool:
        """Whether `number in container` can be guarded as such, so that no guard on the value of `number` is needed."""
        recorder = self.recorder
        if type(container) in _SEQUENCES:
            return len(container) <= _FEW
        is_written = recorder.effects.stored_by_container.get(id(container)) or any(
            place[0] == id(container) for place in recorder.effects.written
        )
        is_hashed = is_a(container, (dict, set, frozenset)) and recorder.is_outside(container) and not is_post_program(number)
        return is_hashed and not is_written and id(container) not in recorder.effects.originals

    def base_contains(self, element: Any, container: Any) -> bool:
        """element in container, by the `__contains__` of the builtin base, bypassing that of a subclass."""
        recorder = self.recorder
        if is_symbolic(element) and type(container) not in _SEQUENCES:
            base, source = builtin_base(type(container)), recorder.sources[id(container)]
            result = bool(base.__contains__(container, plain(element)))
            recorder.guard_outcome(membership(type(container), source, element._name), result)
            return result
        if recorder.is_outside(container):
            base = builtin_base(type(container))
            key = recorder.contents.key_expression(element) if base in (set, frozenset, *DICT_TYPES) else None
            if key is not None:
                if (id(container), element) not in recorder.effects.written:
                    source = recorder.sources[id(container)]
                    if not base.__contains__(self._original(container, base), element):
                        self._guard_absence(container, source, key)
                    elif id(container) not in recorder.effects.content_guarded and recorder.first_time("present", source, key):
                        recorder.miss_if(Not(membership(type(container), source, key)))
                return bool(base.__contains__(container, element))
        elif not is_a(container, (*CONTAINERS, *DICT_VIEWS, str, bytes, range)):
            recorder.stop("container", f"a {type(container).__name__} (operator in)")
        if type(element) is ObjectIdentity and recorder.is_outside(container):
            recorder.stop("object_identity", "an id() among numbers from outside")
        if is_a(container, dict) and not recorder.is_outside(container):  # its values are not read
            for key in builtin_base(type(container)).__iter__(container):
                recorder.contents.read_content(key, deep=True)
        else:
            recorder.contents.read_content(container, deep=True)
        recorder.contents.read_content(element, deep=True)
        recorder.inspect_all((element,))
        if is_a(container, (list, tuple, collections.deque)) and self.has_objects(container, element):
            return self.position_of(container, element) is not None
        return self.native(lambda: element in container)

    def _original(self, container: Any, base: Any) -> Any:
        """A set as it was before this run changed it.  A dictionary is returned as it is: its changes are noted by places."""
        before = self.recorder.effects.originals.get(id(container)) if base is set else None
        return container if before is None else set(before)

    def native(self, action: Callable[[], Any], operands: tuple[Any, ...] = ()) -> Any:
        """The result of `action`, C code that may run Python code of the standard library or the eager library.

        operands: objects in which it may look up keys.  `"%(name)s" % counts` adds an item to a defaultdict: that stops the recording."""
        recorder = self.recorder
        lengths = operands and [(x, dict.__len__(x)) for x in operands if is_a(x, collections.defaultdict)]
        before, recorder.line = recorder.line, ""
        recorder.native_depth += 1
        try:
            result = recorder.perform(action, is_repeatable=True)
            result = recorder.sizes.from_library(result)
            recorder.identities.note_placeless(result if type(result) in (list, tuple) else (result,))
            return result
        finally:
            recorder.native_depth -= 1
            recorder.line = before
            if lengths and any(dict.__len__(x) != length for x, length in lengths):
                recorder.stop("container", "a defaultdict (C code looks up a key that is not in it)")

    def binary_native(self, method: str, left: Any, right: Any) -> Any:
        """left.method(right), for a special method of a tensor; `right` is an index or operand, possibly nested."""
        recorder = self.recorder
        function, _ = recorder.attributes.lookup(type(left), method)
        recorder.contents.read_content(right, deep=True)
        recorder.inspect_all((right,))
        return self.native(lambda: function(left, right))

    def length(self, value: Any) -> Any:
        """len(value)"""
        return _LENGTHS[kind_of(value)](self, value)

    def _length_of_tensor(self, value: Any) -> Any:
        recorder = self.recorder
        if (size := recorder.ragged.size(value, 0)) is not ABSENT:
            return size
        recorder.inspect(value)
        if recorder.sizes.are_noted and value._array.ndim:
            return self.native(lambda: value.shape[0])
        return len(value)

    def _length_of_array(self, value: Any) -> Any:
        if not self.recorder.is_outside(value):
            return len(plain(value))
        if value.ndim:
            return self.get_item(self.recorder.attributes.get_attribute(value, "shape"), 0)
        return self._length_of_instance(value)

    def _length_of_stand_in(self, value: Any) -> Any:
        return self.length(concretise(value))

    def _length_of_enum(self, value: Any) -> Any:
        return self.native(lambda: len(value))

    def _length_of_instance(self, value: Any) -> Any:
        """By `__len__` of the program; without one, as of what its class derives from."""
        method = self.recorder.attributes.method(value, "__len__")
        if method is not None:
            return self._length_result(self.recorder.calls.call(method, (value,), {}))
        return self._length_of_container(value)

    def _length_of_container(self, value: Any) -> Any:
        recorder = self.recorder
        if recorder.is_outside(value) and is_a(value, (list, dict, set, collections.deque, array.array)):
            return recorder.sequences.outside_length(value)
        if recorder.is_outside(value) or not is_a(value, CONTAINERS):
            recorder.contents.read_content(value)
        if not is_a(value, (*CONTAINERS, *DICT_VIEWS, str, bytes, range)) and hasattr(type(value), "__len__"):
            recorder.stop("container", f"a {type(value).__name__}")
        return builtin_base(type(value)).__len__(value) if is_a(value, CONTAINERS) else len(value)

    def _length_result(self, result: Any) -> Any:
        """What `len` gives for the result of a `__len__` of the program.  A symbolic number is kept, guarded to be in range."""
        recorder = self.recorder
        is_number = is_symbolic(result) and not is_post_program(result) and type(plain(result)) is int
        if not is_number or not 0 <= plain(result) <= sys.maxsize:
            return recorder.perform(lambda: len(SpecialMethodStub(result)))
        recorder.miss_if(Not(And((result._name.compared(">=", 0), result._name.compared("<=", sys.maxsize)))))
        return result

    def has_objects(self, *values: Any) -> bool:
        """Whether comparing `values`, or what is in them, may depend on methods of the program, symbolic numbers, or an environment."""
        return any(
            is_user_instance(v)
            or is_symbolic(v)
            or ((model := MODELS.get(type(v))) is not None and model.environment is not None)
            or (is_a(v, (list, tuple, dict)) and self.has_objects(*(v.values() if is_a(v, dict) else v)))
            for v in values
            if type(v) not in PRIMITIVE_TYPES and not is_a(v, Tensor)
        )

    def equal(self, left: Any, right: Any) -> bool:
        """Whether containers consider two objects equal: they are identical, or `left == right` is true."""
        left, right = self.recorder.real_object(left), self.recorder.real_object(right)
        return left is right or self.recorder.operators.truth(self.recorder.operators.binary("==", left, right))

    def position_of(self, container: Any, element: Any, start: int = 0, stop: int | None = None) -> int | None:
        """The first position in `container`, from `start` to `stop`, of an item equal to `element`; None if there is none."""
        items = list(builtin_base(type(container)).__iter__(container))
        return next((i for i in range(*slice(start, stop).indices(len(items))) if self.equal(items[i], element)), None)

    def index(self, key: Any) -> Any:
        """`key` as a plain integer, or a slice of such; the `__index__` of an object of the program is called."""
        recorder = self.recorder
        if type(key) is slice:
            return slice(*map(self.index, (key.start, key.stop, key.step)))
        key = concretise(self.position_in((), key))
        if is_a(key, np.ndarray):
            recorder.contents.read_content(key)
        method = recorder.attributes.method(key, "__index__") if is_user_instance(key) and not is_a(key, (int, Tensor)) else None
        if method is None:
            return key
        result: Any = SpecialMethodStub.of("__index__", recorder.calls.call(method, (key,), {}), key)
        return recorder.perform(lambda: operator.index(result))

    def _may_hold_numbers(self, owner: Any, arguments: tuple[Any, ...]) -> bool:
        """Whether there may be symbolic numbers in the container `owner`, or in the arguments of a method of it.  If not, later
        reads find all that the method moves in the container itself."""
        if self.recorder.effects.stored_by_container.get(id(owner)) or not all(type(x) in _TRANSPARENT_TYPES for x in arguments):
            return True
        items = itertools.chain.from_iterable(x for x in arguments if type(x) in (list, tuple))
        return any(plain_value(item) is not item for item in items)

    @staticmethod
    def _first_moved(owner: Any, name: str, arguments: tuple[Any, ...]) -> int:
        """The first position of a list or deque whose item the method `name` may move, remove or insert."""
        size = builtin_base(type(owner)).__len__(owner)
        if getattr(owner, "maxlen", None) is not None:  # a full deque drops items at its other end
            return 0
        return size if name in ("append", "extend") else max(size - 1, 0) if name == "pop" and not arguments else 0

    def _movable(self, owner: Any, name: str, first: int) -> Any:
        """A copy of the items of an outside list or deque from position `first` on, with symbolic numbers in their places, on
        which `change` repeats the method `name`.  None if the content is not guarded, or the method does more than move items."""
        recorder = self.recorder
        base = builtin_base(type(owner))
        if base not in SEQUENCES or id(owner) not in recorder.effects.content_guarded:
            return None
        if name not in MOVING:
            if base is collections.deque:
                recorder.contents.concretise_places(owner)
            return None
        rest = slice(first, None)
        plain_items = [*base.__iter__(owner)][rest] if base is collections.deque else base.__getitem__(owner, rest)
        items = [recorder.effects.stored.get((id(owner), i), item) for i, item in enumerate(plain_items, first)]
        return collections.deque(items, owner.maxlen) if base is collections.deque else items

    def record_removal(self, owner: Any, name: str, *arguments: Any) -> Any:
        """Do `pop`, `popleft`, `del l[...]` or `insert` on an outside list or deque, as an effect; returns the result."""
        recorder = self.recorder
        is_left_end = recorder.sequences.end_changed_by(owner, name, arguments)
        if name == "insert":
            # `insert` raises for a full deque.
            if is_left_end is None or recorder.sequences.is_written(owner) or getattr(owner, "maxlen", None) is not None:
                recorder.contents.read_elements(owner)
            return self.change(owner, name, *arguments)
        item = ABSENT if is_left_end is None else recorder.sequences.item_to_pop(owner, is_left_end)
        if item is ABSENT:
            recorder.contents.read_elements(owner, shortened=True)
        result = self.change(owner, name, *arguments)
        return result if item is ABSENT or name == "__delitem__" else item

    def change(self, owner: Any, name: str, *arguments: Any) -> Any:
        """Call a method of C code that changes an outside container, as an effect; returns the result."""
        recorder = self.recorder
        first = self._first_moved(owner, name, arguments) if name in MOVING else 0
        symbolic_items = self._movable(owner, name, first) if self._may_hold_numbers(owner, arguments) else None
        is_open = is_a(owner, SEQUENCES) and id(owner) not in recorder.effects.content_guarded
        ends = recorder.sequences.ends_of(owner) if is_open else None
        if is_open:
            recorder.effects.note_change(owner)
        if symbolic_items is None and ends is None:  # nothing below keeps track of symbolic numbers
            arguments = tuple(map(recorder.contents.concretise_contents, arguments))
        recorder.effects.check_dropped(*_dropped(owner, name, arguments))
        values = [list(map(plain_value, a)) if name in _EXTENDING and type(a) is list else plain_value(a) for a in arguments]
        result = recorder.perform(lambda: getattr(builtin_base(type(owner)), name)(owner, *values))
        recorder.effects.note_method(MethodCall(owner, name, arguments))
        if symbolic_items is not None:
            count = len(symbolic_items)
            result = getattr(symbolic_items, name)(*arguments)
            recorder.contents.remember_items(owner, symbolic_items, first, count)
        elif ends is not None:
            self._change_ends(owner, ends, name, arguments)
        return result

    def replace_items(self, owner: list[Any], items: list[Any]) -> None:
        """owner[:] = items, with all items of `items` known to the recording."""
        recorder = self.recorder
        if not recorder.is_outside(owner):
            owner[:] = items
            return
        recorder.effects.note_change(owner)
        owner[:] = map(plain_value, items)
        recorder.effects.note_method(MethodCall(owner, "__setitem__", (slice(None), items)))
        recorder.effects.content_guarded.add(id(owner))
        recorder.contents.ends.pop(id(owner), None)
        recorder.contents.remember_items(owner, items)

    def _change_ends(self, owner: Any, ends: SequenceEnds, name: str, arguments: tuple[Any, ...]) -> None:
        """Note in `ends` that the method `name` has changed a list or deque whose content is not guarded."""
        recorder = self.recorder
        if name == "clear":
            recorder.effects.content_guarded.add(id(owner))
            recorder.contents.remember_items(owner, ())
        elif name == "extend":
            ends.push(name, list(arguments[0]))
        elif name in ("append", "appendleft", "insert"):
            ends.push("append" if name == "append" else "appendleft", list(arguments[-1:]))
        else:
            ends.pop(bool(recorder.sequences.end_changed_by(owner, name, arguments)))


_ITEMS = by_kind(
    ContainerHandlers._item_of_container,
    {
        ContainerHandlers._item_of_stand_in: (Kind.SYMBOLIC, Kind.SYMBOLIC_OBJECT),
        ContainerHandlers._item_of_class: (Kind.CLASS, Kind.METACLASS_INSTANCE, Kind.ENUM_CLASS),
        ContainerHandlers._item_of_instance: (Kind.INSTANCE,),
        ContainerHandlers._item_of_array: (Kind.SYMBOLIC_SCALAR, Kind.ARRAY_SUBCLASS, Kind.ARRAY),
        ContainerHandlers._item_of_tensor: (Kind.TENSOR,),
        ContainerHandlers._item_of_modelled: (Kind.MODELLED,),
    },
)
_LENGTHS = by_kind(
    ContainerHandlers._length_of_container,
    {
        ContainerHandlers._length_of_stand_in: (Kind.SYMBOLIC, Kind.SYMBOLIC_OBJECT),
        ContainerHandlers._length_of_enum: (Kind.ENUM_CLASS,),
        ContainerHandlers._length_of_instance: (Kind.INSTANCE, Kind.METACLASS_INSTANCE),
        ContainerHandlers._length_of_array: (Kind.SYMBOLIC_SCALAR, Kind.ARRAY_SUBCLASS, Kind.ARRAY),
        ContainerHandlers._length_of_tensor: (Kind.TENSOR,),
    },
)
