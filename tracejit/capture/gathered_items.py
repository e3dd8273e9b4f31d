"""The items of lists and tuples that an outlined loop goes over: they become the rows of tensors, which are made before the loop.

    for x, y in data:    ->    xs, ys = stack([x for x, _ in data]), stack([y for _, y in data])
                               for k in range(len(data)):  # a step is given xs[k], ys[k]

Items are tensors of one shape and dtype that do not require grad, numbers of one type, or tuples of such.  Other items are refused.

A step that runs in Python is given *stand-ins* of tensors and tuples.  The stand-in of a tensor has the memory of the item itself.  So
the item is changed where such a step writes to it, and where the recording stops, the item takes the place of its stand-in.  A step of
the node may only read items: step_paths.py refuses one that leaves an item, writes to it, or changes the list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.step_paths import NUMBERS, Refused, check_tensor, number_tensor
from tracejit.core.array_constant import ArrayConstant
from tracejit.core.op import REGISTRY
from tracejit.tensor import Tensor
from tracejit.tensor.base import storage_of, wrap

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["GatheredItems", "remaining_items"]


class GatheredItems:
    """What a run of a loop has gathered.

    tensors: the items that are tensors.  stand_ins: those of the step that runs now, each with its item."""

    def __init__(self, interpreter: RecordingInterpreter) -> None:
        self.tensors: list[Tensor] = []
        self.stand_ins: list[tuple[Any, Any]] = []
        self._interpreter, self._recorder = interpreter, interpreter.recorder
        self._rows: list[Tensor] = []
        self._sequences: list[tuple[Sequence[Any], list[Any]]] = []  # each with the items that it had before the loop

    def gather(self, sequence: Any) -> tuple[int, Callable[[Any], Any]]:
        """(how many items a list or tuple has, the item at a position, a number of the program).  Raises Refused."""
        items = [*self._recorder.iteration.iterate(sequence)]
        self._sequences.append((sequence, [*sequence]))
        return len(items), self._column(items) if items else lambda k: None

    # -- what steps do with them
    def goes_over(self, value: Any) -> bool:
        """Whether the loop goes over this list."""
        return any(value is sequence for sequence, _ in self._sequences)

    def is_row(self, value: Any) -> bool:
        """Whether a tensor is one that items are rows of."""
        return any(value is x for x in self._rows)

    def holds_item(self, value: Any) -> bool:
        """Whether a value is a stand-in of an item, or a tuple, list or dictionary that leads to one."""
        waiting, seen = [value], {id(value)}
        while waiting and self.stand_ins:
            x = waiting.pop()
            if any(x is y for y, _ in self.stand_ins):
                return True
            parts = x if type(x) in (tuple, list) else x.values() if type(x) is dict else ()
            waiting += [y for y in parts if id(y) not in seen]
            seen.update(map(id, parts))
        return False

    def check_unchanged(self) -> None:
        """Raises Refused where a step has changed a list that the loop goes over, or an item in another way than its contents."""
        for sequence, items in self._sequences:
            if len(sequence) != len(items) or any(x is not y for x, y in zip(sequence, items, strict=True)):
                raise Refused("a step changes the list that it goes over")
        for x, item in self.stand_ins:
            if type(x) is Tensor and (x._grad is not None or x._hooks or vars(x) or self.is_moved(x, item)):
                raise Refused("a step changes an item of the list that it goes over")

    @staticmethod
    def is_moved(stand_in: Tensor, item: Tensor) -> bool:
        """Whether a step has given a stand-in another memory than its item's, or a place on the tape."""
        return stand_in._array is not item._array or stand_in._requires_grad or stand_in._node is not None

    # -- items of one kind
    def _column(self, items: list[Any]) -> Callable[[Any], Any]:
        """The item at a position.  Raises Refused."""
        kinds = {type(plain(x)) for x in items}
        if kinds == {Tensor}:
            return self._tensors_at(items)
        if kinds == {tuple} and len({len(x) for x in items}) == 1 and items[0]:
            return self._tuples_at(items)
        if len(kinds) == 1 and kinds <= NUMBERS.keys():
            return self._numbers_at(items, kinds.pop())
        found = " and ".join(sorted(x.__name__ for x in kinds))
        raise Refused(f"it goes over a list of {found}, not of tensors, of numbers of one type, or of tuples of such")

    def _tensors_at(self, items: list[Tensor]) -> Callable[[Any], Any]:
        interpreter, recorder = self._interpreter, self._recorder
        if len({(x._array.shape, x._array.dtype) for x in items}) > 1:
            raise Refused("it goes over a list of tensors of several shapes or dtypes")
        if any(x.requires_grad for x in items):
            raise Refused("it goes over a list of tensors that require grad: go over `stack` of it")
        for x in items:
            recorder.inspect(x)
            check_tensor(interpreter, x, "an item of the list that it goes over")
        rows = recorder.mark_created(interpreter.bind(REGISTRY["stack"], tuple(items), {"dim": 0}))
        self._rows.append(rows)
        self.tensors += items

        def at(k: Any) -> Any:
            row, item = recorder.containers.get_item(rows, k), items[plain(k)]
            stand_in, value = recorder.mark_created(wrap(item._array)), interpreter.values[id(row)]
            stand_in._storage = storage_of(item)
            interpreter.values[id(stand_in)], interpreter.defined[value] = value, stand_in
            recorder.keep += [row, stand_in]
            return self._standing_for(item, stand_in)

        return at

    def _numbers_at(self, items: list[Any], kind: type) -> Callable[[Any], Any]:
        interpreter, recorder = self._interpreter, self._recorder
        if all(type(x) is kind for x in items) and all(abs(x) < 2**63 for x in items if kind is int):
            constant = ArrayConstant(np.array(items, dtype=NUMBERS[kind].numpy))
            rows = interpreter.bind(REGISTRY["constant"], (), {"array": constant})
        else:
            rows = interpreter.bind(REGISTRY["stack"], tuple([number_tensor(interpreter, x, kind) for x in items]), {"dim": 0})
        recorder.mark_created(rows)

        def at(k: Any) -> Any:
            row = recorder.containers.get_item(rows, k)
            if kind is not bool:
                return interpreter.take_number(row)
            value = bool(row._array)
            interpreter.require(row, value)
            return value

        return at

    def _tuples_at(self, items: list[Any]) -> Callable[[Any], Any]:
        parts = [[*self._recorder.iteration.iterate(x)] for x in items]
        columns = [self._column([*column]) for column in zip(*parts, strict=True)]
        return lambda k: self._standing_for(
            items[plain(k)], self._recorder.mark_created(tuple([column(k) for column in columns]))
        )

    def _standing_for(self, item: Any, stand_in: Any) -> Any:
        """A stand-in, which is known as that of an item."""
        self._recorder.loop_stand_ins[id(stand_in)] = stand_in, self._recorder.stands_for(item)
        self.stand_ins.append((stand_in, item))
        return stand_in


def remaining_items(sequence: Any, done: int, backwards: int | None = None) -> Iterator[Any]:
    """What Python's iterator over a list or tuple gives after so many items.  backwards: the number of items when `reversed` was
    called; None of an iterator that goes forward."""
    if backwards is None:
        forward: Any = iter(sequence)
        forward.__setstate__(done)
        return forward  # type: ignore[no-any-return]
    last = backwards - 1 - done
    backward: Any = reversed(sequence)
    backward.__setstate__(last)
    return backward if last < len(sequence) else iter(())
