"""Items of lists that a `loop` node has collected: they stay the rows of one tensor.

Most such lists are private.  A private list is one that a function makes, appends to, and hands to `stack`, `cat`, `sum`, `tensor`
and `len` (`private_lists` in syntax/loops.py): nothing else sees its items.  So where a `loop` node stands for many steps, what these
append is one element of the list, `StackedItems`, which is joined to the others as it is, however many rows it has; `sum` adds them
in a loop of its own.  For any other function of these names the rows become items: then their number is this one in all calls.  So
they do where the recording stops, since what runs then may look into frames.  Lists that other code can reach are in
reached_lists.py.

A private list begins as one that is written down, `outs = []`, `outs = [h0]`.  Items are appended (`append`, `outs += [h]`, `outs =
outs + [h]`) or put in front (`outs.insert(0, h)`).  All of them are joined, in this order or the other one (`outs[::-1]`,
`outs.reverse()`), or all but some at the ends (`outs[1:]`), also under the list's own name (`outs = stack(outs)`).  Code may read
the first or the last item, and ask whether there is one (`if outs`)."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.handlers.base import ABSENT
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.loop_emission import emit_loop
from tracejit.capture.recording.selected_rows import numbered_tensors, records_of
from tracejit.core.aval import Aval
from tracejit.core.dtypes import FROM_NUMPY, bool_, default_dtype, float32, float64
from tracejit.core.interpreter import state
from tracejit.core.op import REGISTRY
from tracejit.core.symbolic import without_symbols
from tracejit.ir.graph import Graph, Node
from tracejit.ops.creation import full
from tracejit.ops.movement.copies import cat, clone, flip
from tracejit.ops.movement.views import expand, permute, reshape, select, slice_
from tracejit.ops.public.derive import FUNCTIONS
from tracejit.tensor import Tensor, tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = [
    "STACKED",
    "ItemObjects",
    "StackedItems",
    "StackedRecords",
    "has_stacked",
    "join_items",
    "joined_items",
    "may_leave",
    "plain_items",
    "reversed_items",
    "unstack",
]


@dataclass(frozen=True, slots=True, eq=False)
class StackedItems:
    """So many items of a list: the rows of a tensor.  count: an integer or a size; None of a ragged tensor (handlers/ragged.py), where
    data decides how many there are.  holds: the type of the items, Tensor, int, float or bool.  held: the tensors of this call that are
    items and that something else holds, too, each after its position.  first, last: the tensors that are the first and the last item in
    all calls, if something else holds these, too.  objects: which objects the items are, where several may be one."""

    rows: Tensor
    count: Any
    holds: type = Tensor
    held: tuple[tuple[int, Tensor], ...] = ()
    first: Tensor | None = None
    last: Tensor | None = None
    objects: ItemObjects | None = None

    def of_known_size(self) -> StackedItems:
        """The same items, where it is guarded how many there are."""
        return StackedItems(self.rows, len(self.rows._array), self.holds, self.held, self.first, self.last, self.objects)


@dataclass(frozen=True, slots=True, eq=False)
class ItemObjects:
    """Which objects the items of a list are.  numbers: for each item, the number of its object.  known: tensors that are there besides,
    each after its number, a plain one or a tensor.  made: stands for the objects that lists of one loop have got, by their numbers; those
    of this call are in `made_now`."""

    numbers: Tensor
    known: tuple[tuple[Any, Tensor], ...]
    made: dict[int, Tensor]
    made_now: dict[int, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class StackedRecords:
    """Items of a list that have parts, or are constants.  columns: the items that are their parts.  constants: for each column, the
    constants of which it has the numbers; None of one that has the parts themselves.  form: tuple; the keys of dictionaries; or None where
    the first part is the item itself."""

    columns: tuple[list[Any], ...]
    constants: tuple[tuple[Any, ...] | None, ...]
    form: Any = tuple

    def items(self, recorder: Recorder | None) -> list[Any]:
        """The items.  recorder: see `unstack`."""
        for column in self.columns:
            unstack(column, recorder)
        read = operator.getitem if recorder is None else recorder.containers.get_item
        made = records_of(self.form, self.constants, *self.columns, read=read)
        return made if recorder is None else [recorder.mark_created(x) for x in made]


STACKED: Final = (StackedItems, StackedRecords)


def join_items(
    interpreter: RecordingInterpreter | None, function: Any, callee: Any, items: Any, *arguments: Any, **keywords: Any
) -> Any:
    """function(items, ...).  callee: what to call for it."""
    if has_records(items):
        unstack(items, None if interpreter is None else interpreter.recorder)
    elif has_stacked(items):
        result = None if interpreter is None else joined_items(interpreter, function, items, *arguments, **keywords)
        if result is not None:
            return result
        if interpreter is not None and not _joins(function):
            interpreter.recorder.stop_for_aliases(None)
        unstack(items, None if interpreter is None else interpreter.recorder)
    return callee(items, *arguments, **keywords)


def joined_items(interpreter: RecordingInterpreter, function: Any, items: list[Any], *arguments: Any, **keywords: Any) -> Any:
    """function(items, ...) of a list with rows in it, if the function is one of those that join items; None where the items themselves are
    needed."""
    recorder = interpreter.recorder
    if state.top is not interpreter or recorder.stopped or not _joins(function) or not has_stacked(items) or has_records(items):
        return None
    if function is len and not (arguments or keywords):
        return _length_of(recorder, items)
    return recorder.containers.native(lambda: _joined(interpreter, function, items, *arguments, **keywords))


def _joins(function: Any) -> bool:
    """Whether a function reads items of a list, and does not show them."""
    return any(function is x for x in (len, sum, tensor, FUNCTIONS["stack"], FUNCTIONS["cat"]))


def has_stacked(items: Any) -> bool:
    """Whether some items of a list are rows of a tensor, or made of such."""
    return type(items) is list and any(type(x) in STACKED for x in items)


def has_records(items: Any) -> bool:
    """Whether some items of a list are made of several rows of tensors, or of constants."""
    return type(items) is list and any(type(x) is StackedRecords for x in items)


def _length_of(recorder: Recorder, items: list[Any]) -> Any:
    """The number of items of a list, as a size, or as a number of the program."""
    of_data = [x.rows for x in items if type(x) is StackedItems and x.count is None]
    known = sum([x.count if type(x) is StackedItems else 1 for x in items if getattr(x, "count", 1) is not None])
    result = recorder.sizes.from_library(known)
    for rows in of_data:
        if (size := recorder.ragged.size(rows, 0)) is ABSENT:  # the size has been guarded since
            size = recorder.sizes.from_library(rows.shape[0])
        result = recorder.operators.binary("+", size, result)
    return result


def _with_known_sizes(recorder: Recorder | None, items: list[Any]) -> list[Any]:
    """The items of a list, where it is guarded how many rows data has selected; counts that are sizes stay sizes."""
    result = []
    for x in items:
        if type(x) is StackedItems and x.count is None:
            if recorder is not None:
                recorder.ragged.fix_size(x.rows)
                if x.objects is not None:
                    recorder.ragged.fix_size(x.objects.numbers)
            x = x.of_known_size()
        result.append(x)
    return result


def reversed_items(recorder: Recorder | None, items: list[Any]) -> list[Any]:
    """The items of a list in the other order.  They require grad as they did where they were appended, whatever the mode is
    now."""
    if has_records(items):
        unstack(items, recorder)
        return items[::-1]
    items = _with_known_sizes(recorder, items)
    grad_enabled, state.grad_enabled = state.grad_enabled, True
    try:
        return [y for x in reversed(items) for y in (_reversed_rows(x) if type(x) is StackedItems else [x])]
    finally:
        state.grad_enabled = grad_enabled


def _reversed_rows(items: StackedItems) -> list[Any]:
    start, stop = int(items.first is not None), items.count - (items.last is not None)
    rows, count = items.rows, items.count
    if items.first is not None or items.last is not None:
        rows, count = slice_.of(rows, dim=0, start=start, stop=stop, step=1), stop - start
    length = without_symbols(stop)
    held = tuple([(length - 1 - at, x) for at, x in items.held if start <= at < length])
    objects = items.objects
    if objects is not None:
        objects = ItemObjects(flip.of(objects.numbers, dims=(0,)), objects.known, objects.made, objects.made_now)
    middle = [StackedItems(flip.of(rows, dims=(0,)), count, items.holds, held, objects=objects)] if start < stop else []
    return [*_ends(items.last), *middle, *_ends(items.first)]


def _ends(tensor: Tensor | None) -> list[Tensor]:
    return [] if tensor is None else [tensor]


def may_leave(items: list[Any]) -> bool:
    """Whether each call may make items of rows after the program: no gradient goes through them."""
    if any(type(x) is StackedRecords and not all(map(may_leave, x.columns)) for x in items):
        return False
    return not any(type(x) is StackedItems and x.rows.requires_grad for x in items)


def unstack(items: list[Any], recorder: Recorder | None) -> None:
    """Replace rows in a list by items.  recorder: None where nothing is recorded any more.

    Tensors require grad as they did where they were appended, whatever the mode is now.  Each has memory of its own, as the step had it
    that computed it: it may be written to."""
    if not has_stacked(items):
        return
    if recorder is not None and any(type(x) is StackedItems and x.objects is not None for x in items):
        recorder.stop("outlined_loop", "a loop: items are read one by one of a list in which several may be one object")
    recorder = None if recorder is None or recorder.stopped else recorder
    known = _with_known_sizes(recorder, items)
    grad_enabled, state.grad_enabled = state.grad_enabled, True
    try:
        made = [(_unstacked(x, recorder) if type(x) is StackedItems else [x]) for x in known]
        items[:] = [z for x in made for y in x for z in (y.items(recorder) if type(y) is StackedRecords else [y])]
    finally:
        state.grad_enabled = grad_enabled


def plain_items(items: list[Any]) -> list[Any]:
    """A copy of a list with items for rows, for code that is not recorded."""
    result = [
        StackedRecords(tuple([[*column] for column in x.columns]), x.constants, x.form) if type(x) is StackedRecords else x
        for x in items
    ]
    unstack(result, None)
    return result


def _unstacked(items: StackedItems, recorder: Recorder | None) -> list[Any]:
    """Rows as items: then their number is this one in all calls."""
    count = len(items.rows._array) if recorder is None else int(items.count)
    if items.holds is not Tensor and recorder is None:
        return items.rows._array.tolist()  # type: ignore[no-any-return]
    if items.holds in (int, float):
        return recorder.extracted_numbers.define_elements(items.rows)  # type: ignore[no-any-return, union-attr]
    if items.objects is not None and recorder is None:
        made = items.objects.made_now
        made.update({int(getattr(n, "_array", n)): x for n, x in items.objects.known})
        return numbered_tensors(items.rows._array, items.objects.numbers._array.tolist(), made)  # type: ignore[return-value]
    rows = [select.of(items.rows, k, dim=0) for k in range(count)]
    if items.first is not None or items.last is not None:
        start, stop = int(items.first is not None), len(rows) - (items.last is not None)
        return [*_ends(items.first), *map(clone.of, rows[start:stop]), *_ends(items.last)]
    if items.held and recorder is None:
        held = {at: x for at, x in items.held if x.requires_grad is items.rows.requires_grad}
        return [held[k] if k in held else clone.of(x) for k, x in enumerate(rows)]
    return [clone.of(x) for x in rows] if items.holds is Tensor else [recorder.interpreter.take(x) for x in rows]  # type: ignore[union-attr]


def _joined(
    interpreter: RecordingInterpreter, function: Any, items: list[Any], dim: Any = 0, *others: Any, **keywords: Any
) -> Tensor | None:
    """The result of `stack`, `cat`, `sum` or `tensor` of items; None where the items themselves are needed."""
    recorder = interpreter.recorder
    if function is tensor:
        return None if others or type(dim) is not int or dim else _tensor_of_numbers(recorder, items, **keywords)
    if function not in (sum, FUNCTIONS["stack"], FUNCTIONS["cat"]) or others or keywords or not all(map(_is_of_tensors, items)):
        return None
    if function is sum:
        return _summed_items(interpreter, dim, _with_known_sizes(recorder, items))
    if type(dim) is not int:
        return None
    is_new = function is FUNCTIONS["stack"]
    if not dim and any(type(x) is StackedItems and x.count is None for x in items):
        parts = _ragged_parts(recorder, items, is_new)
        return None if parts is None else recorder.ragged.joined(parts)
    items = _with_known_sizes(recorder, items)
    rows = _concatenated_items(items, dim, is_new)
    is_in_list = any(type(x) is StackedItems and rows is x.rows for x in items)
    return clone.of(rows) if is_in_list else rows


def _is_of_tensors(item: Any) -> bool:
    """Whether items are tensors."""
    return type(item) is not StackedItems or item.holds is Tensor


def _ragged_parts(recorder: Recorder, items: list[Any], is_new: bool) -> list[tuple[Tensor, Tensor]] | None:
    """Tensors whose rows are those that `stack` or `cat` gives, each with bools that say which of its rows are meant.  None where items
    differ in shape or dtype."""
    ragged = [recorder.ragged.rows_of(x.rows) if type(x) is StackedItems else None for x in items]
    if any(own is None and type(x) is StackedItems and x.count is None for x, own in zip(items, ragged, strict=True)):
        return None
    known = [x if own is None else StackedItems(own.values, None, x.holds) for x, own in zip(items, ragged, strict=True)]
    if _concatenated_items(known, 0, is_new) is None:
        return None
    return [(_along(x, 0, is_new), _rows_meant(x, own, is_new)) for x, own in zip(known, ragged, strict=True)]


def _rows_meant(item: Any, own: Any, is_new: bool) -> Tensor:
    """Which rows of an item, or of rows, along the first dimension are meant: all, or those that `own`, how rows of a ragged tensor were
    selected, says."""
    each = 1 if is_new else (item.rows.shape[1] if type(item) is StackedItems else item.shape[0])
    if own is None:
        return full(True, shape=(each * (item.rows.shape[0] if type(item) is StackedItems else 1),), dtype=bool_)  # type: ignore[no-any-return]
    count = own.inside.shape[0]
    return reshape.of(expand.of(reshape.of(own.inside, shape=(count, 1)), shape=(count, each)), shape=(count * each,))  # type: ignore[no-any-return]


def _tensor_of_numbers(recorder: Recorder, items: list[Any], dtype: Any = None) -> Tensor | None:
    """`tensor(items)` of numbers of one type."""
    kinds = {x.holds if type(x) is StackedItems else type(plain(x)) for x in items}
    if len(kinds) > 1 or Tensor in kinds or not (dtype is None or (kinds == {float} and dtype in (float32, float64))):
        return None
    own = FROM_NUMPY[next(x.rows._array.dtype for x in items if type(x) is StackedItems)]
    dtype = (default_dtype() if kinds == {float} else own) if dtype is None else dtype
    items = [x if type(x) is StackedItems else full(x, shape=(), dtype=own) for x in items]
    if any(type(x) is StackedItems and x.count is None for x in items):
        parts = _ragged_parts(recorder, items, True)
        return None if parts is None else recorder.ragged.joined([(x.to(dtype), inside) for x, inside in parts])
    rows = _concatenated_items(items, 0, True)
    return None if rows is None else rows.to(dtype, copy=True)


def _concatenated_items(items: list[Any], dim: int, is_new: bool) -> Tensor | None:
    """The items of a list along a dimension, which is a new one or one that they have; None where they differ in shape or
    dtype."""
    single = [x for x in items if type(x) is not StackedItems]
    like = next(x.rows for x in items if type(x) is StackedItems)
    shape, dtype = tuple(like.shape[1:]), like.dtype
    if not all(isinstance(x, Tensor) and x.dtype is dtype and tuple(x.shape) == shape for x in single):
        return None
    ndim = len(shape) + is_new
    if not -ndim <= dim < ndim:
        return None
    at = dim % ndim
    parts = [_along(x, at, is_new) for x in items]
    return cat.of(*parts, dim=at) if len(parts) > 1 or not is_new or at else parts[0]


def _along(item: Any, at: int, is_new: bool) -> Tensor:
    """An item, or rows, along a dimension, which is a new one or one that items have."""
    if type(item) is not StackedItems:
        if not is_new:
            return item  # type: ignore[no-any-return]
        shape = item.shape
        return reshape.of(item, shape=(*shape[:at], 1, *shape[at:]))  # type: ignore[no-any-return]
    rows = item.rows
    if at:
        rows = permute.of(rows, dims=(*range(1, at + 1), 0, *range(at + 1, rows.ndim))).contiguous()
    if is_new:
        return rows
    shape = rows.shape
    together = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    return reshape.of(rows, shape=together)  # type: ignore[no-any-return]


def _summed_items(interpreter: RecordingInterpreter, total: Any, items: list[Any]) -> Tensor | None:
    """The sum of items, which are added to `total` one by one."""
    if not all(isinstance(x, StackedItems | Tensor) for x in items) or not issubclass(type(total), int | float | Tensor):
        return None
    for x in items:
        if type(x) is not StackedItems:
            total = total + x
            continue
        count, added = x.count, x.rows
        if not isinstance(total, Tensor):
            total = total + select.of(added, 0, dim=0)
            if not count > 1:
                continue
            added, count = slice_.of(added, dim=0, start=1, stop=count, step=1), count - 1
        value = interpreter.value_of(total)
        aval = None if value is None else interpreter.avals[value]
        rows = interpreter.avals[interpreter.values[id(added)]]
        if not isinstance(aval, Aval) or not isinstance(rows, Aval) or (aval.dtype, aval.shape) != (rows.dtype, rows.shape[1:]):
            return None
        if total.requires_grad is not added.requires_grad or not total._array.flags.c_contiguous:
            return None
        node = Node(REGISTRY["add"], (0, 1), (), (2,))
        marked = frozenset((0, 1, 2) if total.requires_grad else ())
        body = Graph((0, 1), dict.fromkeys(range(3), aval), (node,), (2,), requires_grad=marked)
        (total,) = emit_loop(body, [total], [added], [], count, False).ends
    return total  # type: ignore[no-any-return]
