"""What the steps of a branching loop append to lists: columns of the node, and items of the lists after it.

A node keeps a row for each step that it has room for, and a bool where some steps append nothing (path_tree.py).  After the loop, the
items of a list are the rows whose bool holds, in order: some rows of a tensor (stacked_items.py).  How many there are is data, unless
each step appends the same number.  Where steps look at the length of the list, which may decide how many there are, and few steps append
to it, their number is guarded, so that what follows does not compute all rows.

Where several items may be one object, or one that a variable holds, the node also gives the numbers of the objects, and each call makes the
items after the program (selected_rows.py).  A list that anything but `stack` and the like may look at gets its items when it is looked at
(reached_lists.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.item_objects import (
    items_from_before,
    slot_of_first_item,
    slot_of_last_item,
    slots_with_copies,
    slots_with_items,
)
from tracejit.capture.loop_steps import LIVE_IN, SHARED
from tracejit.capture.path_tree import NUMBER, OF_SHARED, identity
from tracejit.capture.stacked_items import ItemObjects, StackedItems
from tracejit.core.dtypes import bool_
from tracejit.core.op import REGISTRY
from tracejit.core.symbolic import without_symbols
from tracejit.ops.movement.copies import stack
from tracejit.ops.movement.views import reshape
from tracejit.tensor import Tensor
from tracejit.tensor.base import wrap

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun
    from tracejit.capture.loop_steps import StepValue
    from tracejit.capture.path_tree import Column, PathTree

__all__ = ["AppendedItems"]

_SPARSE = 4
"""Few steps append: less than one of so many."""


class AppendedItems:
    """The items of one run, by lists: those of the program, by variables and then by objects (reached_lists.py), and others.

    numbers: of the program's lists.  before: the items of steps that stay outside of the node, by variables.  steps: for each step of the
    node, and each part of it, the items, each with the number of the object that it is (path_tree.py), or a tensor on its memory where it
    is a view of what is from before the loop; -1 of a number."""

    def __init__(self, run: LoopRun) -> None:
        self.before: list[list[Any]] = [[] for _ in range(run.loop.items)]
        self.numbers = [*range(run.loop.items)]
        self._number_lists: dict[int, int] = {}
        self._objects: tuple[Any, ...] = ()  # the last parts of ItemObjects
        self._count = run.loop.items
        self.steps: list[list[list[list[tuple[np.ndarray[Any, Any], Any]]]]] = []
        self._run = run
        self._columns: list[tuple[Column, bool]] = []  # each with whether each step has an item

    def new_list(self, is_of_program: bool = False) -> int:
        """The number of another list."""
        self._count += 1
        if is_of_program:
            self.numbers.append(self._count - 1)
        return self._count - 1

    def may_have_numbers(self, held: Sequence[int]) -> bool:
        """Whether items of these lists may be told apart by the numbers of their objects: not where one is on the memory of something from
        before."""
        run, tree = self._run, self._run.tree
        places = [x for end in tree.ends() for k in held if k < len(end.items) for x in end.items[k]]
        copies = slots_with_copies(tree)
        is_own = all(x[0] != LIVE_IN or (x[1] not in copies and tree.slots[x[1]].holds is Tensor) for x in places)
        return is_own and not (run.is_nested or tree.has_gradients)

    def number_lists(self, held: Sequence[int]) -> dict[int, int]:
        """For each of these lists, the one that gets the numbers of the objects that its items are."""
        for k in held:
            if k not in self._number_lists:
                self._number_lists[k] = self.new_list()
            self._run.tree.item_kinds[self._number_lists[k]] = NUMBER, int
        return {k: self._number_lists[k] for k in held}

    def set_columns(self, tree: PathTree) -> None:
        """Note which columns the body of a tree gives."""
        self._columns = [(column, tree.is_full(column)) for column in tree.columns]

    def note_step(self, items: Sequence[list[tuple[np.ndarray[Any, Any], Any]]]) -> None:
        """Note what a step has appended to the first lists, or its part; nothing to the others."""
        if not self._run.part:
            self.steps.append([])
        self.steps[-1].append([*items, *[[] for _ in self.before[len(items) :]]])

    def _of_list(self, k: int) -> list[tuple[np.ndarray[Any, Any], Any]]:
        """The items of all steps for a list."""
        return [item for step in self.steps for part in step if k < len(part) for item in part[k]]

    def of_step(self, outputs: Sequence[Tensor], parts: int) -> list[list[Tensor]]:
        """The items of the first parts of a step, for each list of the program, of what the body gives for columns as tensors."""
        found: list[list[Tensor]] = [[] for _ in self.before]
        for k, item, has in self._split(outputs, parts):
            if k < len(found) and (has is None or bool(has._array)):
                found[k].append(item)
        return found

    def rows(self, tree: PathTree, room: int) -> list[Tensor]:
        """What a node with room for so many steps gives for columns."""
        result = []
        for column, is_full in self._columns:
            aval, _ = tree.item_kinds[column[0]]
            k, part, j = tree.column_of_items(column)
            has = np.zeros(room, bool)
            items = np.zeros((room, *map(without_symbols, aval.shape)), aval.dtype.numpy)
            for step, parts in enumerate(self.steps):
                appended = parts[part] if part < len(parts) else []
                if k < len(appended) and j < len(appended[k]):
                    has[step], items[step] = True, appended[k][j][int(k != column[0])]
            result += [wrap(items)] if is_full else [wrap(items), wrap(has)]
        return result

    def lists(self, rows: Sequence[Tensor], held: Mapping[int, Tensor]) -> list[list[Any]]:
        """What is appended to each list.  rows: what the node gives for columns.  held: by their numbers, tensors that variables hold after
        the loop, and that may be items."""
        columns = self.columns(rows)
        result: list[list[Any]] = [[*before] for before in self.before]
        for k, items in enumerate(result):
            items += self.stacked(k, columns, held)
        self.watch(held)
        return result

    def columns(self, rows: Sequence[Tensor]) -> dict[int, tuple[Tensor, Tensor | None]]:
        """By lists that get items, the rows of all columns, in the order of the items, and which of these are items; None if all are.
        rows: see `lists`."""
        found: dict[int, list[tuple[Tensor, Tensor | None]]] = {}
        for k, items, has in self._split(rows, len(self._run.parts)):
            found.setdefault(k, []).append((items, has))
        return {k: of_list[0] if len(of_list) == 1 else _interleaved(of_list) for k, of_list in found.items()}

    def note_objects(self, at: Mapping[StepValue, Tensor], held: Mapping[int, Tensor]) -> None:
        """Note which tensors are there besides, and may be items.  at: what the loop carries in the end.  held: see `lists`."""
        run, tree = self._run, self._run.tree
        if not tree.number_lists:
            return
        places = self.from_before()
        shared = {tree.number_of(tree.shared[x[1]]) for x in places if x[0] == SHARED}
        known = {*run.begun, *range(OF_SHARED, OF_SHARED - len(tree.objects), -1)}
        given = known if any(x[0] == LIVE_IN for x in places) else set()
        before = [(number, run.object_from_before(number)) for number in sorted(shared | given)]
        slots = [k for k in slots_with_items(tree, self.numbers) if run.objects[k] in held]
        after = [(at[identity(k)], held[run.objects[k]]) for k in slots]
        self._objects = (*before, *after), run.recorder.mark_created({}), {}

    def _object(self, number: Any, held: Mapping[int, Tensor]) -> Tensor | None:
        """What else holds an item; None if nothing does."""
        if isinstance(number, Tensor):
            return number
        return held[number] if number in held else self._run.object_from_before(number) if number != -1 else None

    def watch(self, held: Mapping[int, Tensor]) -> None:
        """Have the recording stop where the call writes to what may be an item, since rows are copies."""
        run, defined = self._run, self._run.interpreter.defined
        places = self.from_before()
        shared = [defined[run.tree.shared[x[1]]] for x in places if x[0] == SHARED and run.tree.shared[x[1]] in defined]
        given = [*run.begun.values(), *[defined[v] for v in run.tree.objects]] if any(x[0] == LIVE_IN for x in places) else ()
        holding = slots_with_copies(run.tree)
        viewed = run.viewed if any(x[0] == LIVE_IN and x[1] in holding for x in places) else ()
        run.recorder.item_aliases += [(x, run.line) for x in (*held.values(), *shared, *given, *run.item_roots, *viewed)]

    def from_before(self) -> list[StepValue]:
        """The places of items that may be tensors from before the loop."""
        begun = [k for k, number in enumerate(self._run.begun_objects) if number >= 0]
        return items_from_before(self._run.tree, self.numbers, begun)

    def plain(self, known: dict[int, Tensor]) -> list[list[Any]]:
        """The items so far of lists in variables, where the recording has stopped.  known: see `plain_items`."""
        run = self._run
        if any(map(self._of_list, range(len(self.before)))) and run.tree.has_gradients and run.tape.is_needed:
            found = run.tape.items()
        else:
            found = [[wrap(x) for x, _ in self._of_list(k)] for k in range(len(self.before))]
        return [
            [*map(run.recorder.stands_for, map(plain, before)), *self._plain_items(k, more, known)]
            for k, (before, more) in enumerate(zip(self.before, found, strict=True))
        ]

    def plain_items(self, k: int, known: dict[int, Tensor]) -> list[Any]:
        """The items so far of a list whose items do not require grad.  known: objects, by their numbers, to which these are added."""
        return self._plain_items(k, [wrap(x) for x, _ in self._of_list(k)], known)

    def _plain_items(self, k: int, items: list[Tensor], known: dict[int, Tensor]) -> list[Any]:
        """items: as tensors of their own."""
        for at, (_, number) in enumerate(self._of_list(k)):
            if isinstance(number, Tensor):
                items[at] = items[at] if items[at].requires_grad else number
            elif number != -1:
                before = self._run.real_object(number)
                items[at] = known.setdefault(number, items[at]) if before is None else before
        holds = self._run.tree.item_kinds[k][1] if items else Tensor
        return [x if holds is Tensor else holds(x._array) for x in items]

    def _split(self, outputs: Sequence[Any], parts: int) -> Iterator[tuple[int, Any, Any]]:
        """(list, what there is of a column, which steps have an item: None where all have) for each column of the first parts."""
        remaining = iter(outputs)
        for (k, part, _), is_full in self._columns:
            if part >= parts:
                continue
            yield k, next(remaining), None if is_full else next(remaining)

    def stacked(
        self, k: int, columns: Mapping[int, tuple[Tensor, Tensor | None]], held: Mapping[int, Tensor], may_be_none: bool = False
    ) -> list[StackedItems]:
        """The items of a list.  columns: of all lists.  held: see `lists`.  may_be_none: whether it is not guarded that there are any."""
        if k not in columns:
            return []
        run, holds = self._run, self._run.tree.item_kinds[k][1]
        rows, inside = columns[k]
        numbers = columns[run.tree.number_lists[k]][0] if k in run.tree.number_lists else None
        others = [(at, self._object(number, held)) for at, (_, number) in enumerate(self._of_list(k))]
        known = tuple([(at, x) for at, x in others if x is not None])
        first = last = None
        if run.is_held(k) and numbers is None:
            if (slot := slot_of_first_item(run.tree, k)) is not None:
                first = run.object_from_before(run.begun_objects[slot])
            elif (slot := slot_of_last_item(run.tree, k)) is not None:
                last = held.get(run.objects[slot])
        count: Any = rows.shape[0]
        if inside is not None:
            ragged = run.recorder.ragged
            may_be_none = may_be_none and first is None and last is None
            if not may_be_none and not run.take(REGISTRY["any"].of(inside, dims=(0,), keepdim=False)):
                return []
            is_sparse = int(inside._array.sum()) * _SPARSE < len(inside._array)
            rows = ragged.rows_where(rows, inside, is_fixed=is_sparse and k in run.loop.measured)
            count = rows.shape[0] if ragged.rows_of(rows) is None else None
            if numbers is not None:
                numbers = ragged.rows_where(numbers, inside, is_fixed=count is not None)
        objects = None if numbers is None else ItemObjects(numbers, *self._objects)
        return [StackedItems(rows, count, holds, known, first, last, objects)]


def _interleaved(columns: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    """The rows of several columns, those of one step after those of the step before, and which of them are items."""
    rows, inside = columns[0]
    shape, count = rows.shape, len(columns)
    every = REGISTRY["full"](True, shape=shape[:1], dtype=bool_)
    rows = reshape.of(stack.of(*[x for x, _ in columns], dim=1), shape=(shape[0] * count, *shape[1:]))
    if any(has is not None for _, has in columns):
        inside = stack.of(*[every if has is None else has for _, has in columns], dim=1)
        inside = reshape.of(inside, shape=(shape[0] * count,))
    return rows, inside
