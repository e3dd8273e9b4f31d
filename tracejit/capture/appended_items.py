"""What the steps of a branching loop append to lists: columns of the node, and items of the lists after it.

A node keeps a row for each step that it has room for, and a bool where some steps append nothing (path_tree.py).  After the loop, the
items of a list are the rows whose bool holds, in order: some rows of a tensor (stacked_items.py).  How many there are is data, unless
each step appends the same number, or steps look at the length of the list: then each number is guarded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.stacked_items import StackedItems, unstack
from tracejit.core.dtypes import bool_
from tracejit.core.op import REGISTRY
from tracejit.ops.movement.copies import stack
from tracejit.ops.movement.views import reshape
from tracejit.tensor import Tensor
from tracejit.tensor.base import wrap

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun
    from tracejit.capture.path_tree import PathTree

__all__ = ["AppendedItems"]


class AppendedItems:
    """The items of one run, by lists.  before: those of steps that stay outside of the node.  steps: for each step of the node, the
    arrays of its items."""

    def __init__(self, run: LoopRun) -> None:
        self.before: list[list[Any]] = [[] for _ in range(run.loop.items)]
        self.steps: list[list[list[np.ndarray[Any, Any]]]] = []
        self._run = run
        self._columns: list[tuple[int, bool]] = []  # (list, whether each step has an item)

    def set_columns(self, tree: PathTree) -> None:
        """Note which columns the body of a tree gives."""
        self._columns = [(column[0], tree.is_full(column)) for column in tree.columns]

    def of_step(self, outputs: Sequence[Any]) -> list[list[Any]]:
        """The items of a step, for each list, of what the body gives for columns: arrays, or tensors."""
        found: list[list[Any]] = [[] for _ in self.before]
        for k, item, has in self._split(outputs):
            if has is None or bool(getattr(has, "_array", has)):
                found[k].append(item)
        return found

    def rows(self, tree: PathTree, room: int) -> list[Tensor]:
        """What a node with room for so many steps gives for columns."""
        result = []
        for (k, j), (_, is_full) in zip(tree.columns, self._columns, strict=True):
            aval, _ = tree.item_kinds[k]
            has = np.zeros(room, bool)
            items = np.zeros((room, *aval.shape), aval.dtype.numpy)
            for step, appended in enumerate(self.steps):
                if j < len(appended[k]):
                    has[step], items[step] = True, appended[k][j]
            result += [wrap(items)] if is_full else [wrap(items), wrap(has)]
        return result

    def lists(self, rows: Sequence[Tensor]) -> list[list[Any]]:
        """What is appended to each list.  rows: what the node gives for columns."""
        parts: list[list[tuple[Tensor, Tensor | None]]] = [[] for _ in self.before]
        for k, items, has in self._split(rows):
            parts[k].append((items, has))
        result = [[*before, *(self._stacked(k, parts[k]) if parts[k] else ())] for k, before in enumerate(self.before)]
        for items, (is_private, _) in zip(result, self._run.lists, strict=True):
            if not is_private:
                unstack(items, self._run.recorder)
        return result

    def plain(self) -> list[list[Any]]:
        """The items so far, where the recording has stopped."""
        run = self._run
        if any(any(x) for x in self.steps) and run.tree.has_gradients and run.body is not None and run.body[0].requires_grad:
            found: list[list[Any]] = run.tape.items()
        else:
            found = [[wrap(x) for step in self.steps for x in step[k]] for k in range(len(self.before))]
        kinds = {k: holds for k, (_, holds) in run.tree.item_kinds.items()} if self.steps else {}
        return [
            [*map(run.recorder.stands_for, map(plain, before)), *[x if kinds[k] is Tensor else kinds[k](x._array) for x in more]]
            for k, (before, more) in enumerate(zip(self.before, found, strict=True))
        ]

    def _split(self, outputs: Sequence[Any]) -> Iterator[tuple[int, Any, Any]]:
        """(list, what there is of a column, which steps have an item: None where all have) for each column."""
        remaining = iter(outputs)
        for k, is_full in self._columns:
            yield k, next(remaining), None if is_full else next(remaining)

    def _stacked(self, k: int, columns: Sequence[tuple[Tensor, Tensor | None]]) -> list[StackedItems]:
        """The items of a list, of its columns."""
        run, holds = self._run, self._run.tree.item_kinds[k][1]
        rows, inside = columns[0]
        if len(columns) > 1:
            shape, count = rows._array.shape, len(columns)
            every = REGISTRY["full"](True, shape=shape[:1], dtype=bool_)
            rows = reshape.of(stack.of(*[x for x, _ in columns], dim=1), shape=(shape[0] * count, *shape[1:]))
            if any(has is not None for _, has in columns):
                inside = stack.of(*[every if has is None else has for _, has in columns], dim=1)
                inside = reshape.of(inside, shape=(shape[0] * count,))
        if inside is None:
            return [StackedItems(rows, len(rows._array), holds)]
        if not run.take(REGISTRY["any"].of(inside, dims=(0,), keepdim=False)):
            return []
        selected = run.recorder.ragged.rows_where(rows, inside, is_fixed=k in run.loop.measured)
        return [StackedItems(selected, len(selected._array) if run.recorder.ragged.rows_of(selected) is None else None, holds)]
