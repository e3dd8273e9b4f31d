"""Items of private lists that a `loop` node has collected: they stay the rows of one tensor.

A private list is one that a function makes, appends to, and hands to `stack`, `cat`, `sum` and `len` (`private_lists` in
syntax/loops.py): nothing else sees its items.  So where a `loop` node stands for many steps, what these append is one element of
the list, `StackedItems`, which is joined to the others as it is, however many rows it has; `sum` adds them in a loop of its own.
For any other function of these names the rows become items: then their number is this one in all calls.  So they do where the
recording stops, since what runs then may look into frames.

Such a list begins as one that is written down, `outs = []`, `outs = [h0]`.  Items are appended (`append`, `outs += [h]`, `outs =
outs + [h]`) or put in front (`outs.insert(0, h)`).  All of them are joined, in this order or the other one (`outs[::-1]`,
`outs.reverse()`), or all but some at the ends (`outs[1:]`), also under the list's own name (`outs = stack(outs)`).  Code may read
the first or the last item, and ask whether there is one (`if outs`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracejit.capture.loop_emission import emit_loop
from tracejit.core.aval import Aval
from tracejit.core.interpreter import state
from tracejit.core.op import REGISTRY
from tracejit.ir.graph import Graph, Node
from tracejit.ops.movement.copies import cat, clone, flip
from tracejit.ops.movement.views import permute, reshape, select
from tracejit.ops.public.derive import FUNCTIONS
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = ["StackedItems", "has_stacked", "join_items", "reversed_items", "unstack"]


@dataclass(frozen=True, slots=True, eq=False)
class StackedItems:
    """So many items of a list: the rows of a tensor."""

    rows: Tensor
    count: Any


def join_items(
    interpreter: RecordingInterpreter | None, function: Any, callee: Any, items: Any, *arguments: Any, **keywords: Any
) -> Any:
    """function(items, ...).  callee: what to call for it."""
    if has_stacked(items):
        result = None
        if interpreter is not None and state.top is interpreter and not interpreter.recorder.stopped:
            if function is len and not (arguments or keywords):
                return interpreter.recorder.sizes.from_library(_length_of(items))
            result = interpreter.recorder.containers.native(lambda: _joined(interpreter, function, items, *arguments, **keywords))
        if result is not None:
            return result
        unstack(items)
    return callee(items, *arguments, **keywords)


def has_stacked(items: Any) -> bool:
    """Whether some items of a list are rows of a tensor."""
    return type(items) is list and any(type(x) is StackedItems for x in items)


def _length_of(items: list[Any]) -> Any:
    """The number of items of a list, as a size."""
    return sum([x.count if type(x) is StackedItems else 1 for x in items])


def reversed_items(items: list[Any]) -> list[Any]:
    """The items of a list in the other order.  They require grad as they did where they were appended, whatever the mode is
    now."""
    grad_enabled, state.grad_enabled = state.grad_enabled, True
    try:
        return [StackedItems(flip.of(x.rows, dims=(0,)), x.count) if type(x) is StackedItems else x for x in reversed(items)]
    finally:
        state.grad_enabled = grad_enabled


def unstack(items: list[Any]) -> None:
    """Replace rows in a list by items.  These require grad as they did where they were appended, whatever the mode is now.  Each
    has memory of its own, as the step had it that computed it: it may be written to."""
    if not has_stacked(items):
        return
    grad_enabled, state.grad_enabled = state.grad_enabled, True
    try:
        items[:] = [
            x for item in [*items]
            for x in ([clone.of(select.of(item.rows, k, dim=0)) for k in range(int(item.count))] if type(item) is StackedItems else [item])
        ]  # fmt: skip
    finally:
        state.grad_enabled = grad_enabled


def _joined(
    interpreter: RecordingInterpreter, function: Any, items: list[Any], dim: Any = 0, *others: Any, **keywords: Any
) -> Tensor | None:
    """The result of `stack`, `cat` or `sum` of items; None where the items themselves are needed."""
    if function is sum:
        return None if others or keywords else _summed_items(interpreter, dim, items)
    is_new = function is FUNCTIONS["stack"]
    if not (is_new or function is FUNCTIONS["cat"]) or others or keywords or type(dim) is not int:
        return None
    rows = _concatenated_items(items, dim, is_new)
    is_in_list = any(type(x) is StackedItems and rows is x.rows for x in items)
    return clone.of(rows) if is_in_list else rows


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
        value = interpreter.value_of(total) if isinstance(total, Tensor) else None
        aval = None if value is None else interpreter.avals[value]
        rows = interpreter.avals[interpreter.values[id(x.rows)]]
        if not isinstance(aval, Aval) or not isinstance(rows, Aval) or (aval.dtype, aval.shape) != (rows.dtype, rows.shape[1:]):
            return None
        if total.requires_grad is not x.rows.requires_grad or not total._array.flags.c_contiguous:
            return None
        node = Node(REGISTRY["add"], (0, 1), (), (2,))
        marked = frozenset((0, 1, 2) if total.requires_grad else ())
        body = Graph((0, 1), dict.fromkeys(range(3), aval), (node,), (2,), requires_grad=marked)
        (total,) = emit_loop(body, [total], [x.rows], [], x.count, False).ends
    return total  # type: ignore[no-any-return]
