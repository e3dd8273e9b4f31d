"""Items of private lists that nobody has made one by one.

A list that a function only appends to, and hands to `stack`, `cat`, `sum` and `len` (`private_lists` in syntax/loops.py), is seen by
nothing else.  So where a node of the graph stands for many steps of a loop (loop_nodes.py), what they append may stay in one piece,
`StackedItems`, in the list, and be joined to the other items as it is, however many there are; `sum` adds one after the other, in a loop of
its own.  For any other function of these names they become items like others: then their number is this one in all calls.  So they do where
the recording stops, since what runs then may look into frames.

Such a list begins as one that is written down, `outs = []`, `outs = [h0]`.  Items are what the step has computed, a view of that, what the
step before has left (`outs.append(x)` before `x = f(x)`), or a slice as it is; they come to the end (`append`, `outs += [h]`,
`outs = outs + [h]`) or to the front (`outs.insert(0, h)`).  Joined are all items, in this order or the other one (`outs[::-1]`,
`outs.reverse()`), or all but some at the ends (`outs[1:]`), also under the list's own name (`outs = stack(outs)`).  Steps may read the
last item, and any code may ask whether there is one (`if outs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracejit.capture.loop_nodes import loop_node
from tracejit.capture.loop_steps import StackedItems, StepItems
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

__all__ = ["concatenated_items", "has_stacked", "item_of", "join_items", "length_of", "reversed_items", "unstack"]


def join_items(
    interpreter: RecordingInterpreter | None, function: Any, callee: Any, items: Any, *arguments: Any, **keywords: Any
) -> Any:
    """function(items, ...).  callee: what to call for it."""
    if has_stacked(items):
        found = None
        if interpreter is not None and state.top is interpreter and not interpreter.recorder.stopped:
            if function is len and not (arguments or keywords):
                return interpreter.recorder.sizes.from_library(length_of(items))
            found = interpreter.recorder.containers.native(lambda: _joined(interpreter, function, items, *arguments, **keywords))
        if found is not None:
            return found
        unstack(items)
    return callee(items, *arguments, **keywords)


def has_stacked(items: Any) -> bool:
    """Whether a list holds some of its items in one piece."""
    return type(items) is list and any(type(x) is StackedItems for x in items)


def length_of(items: list[Any]) -> Any:
    """How many items a list has, as a size."""
    return sum([x.count if type(x) is StackedItems else 1 for x in items])


def reversed_items(items: list[Any]) -> list[Any]:
    """The items of a list in the other order.  They require grad as they did where they were appended, whatever the mode is now."""
    grad_enabled, state.grad_enabled = state.grad_enabled, True
    try:
        return [_reversed_piece(x) if type(x) is StackedItems else x for x in reversed(items)]
    finally:
        state.grad_enabled = grad_enabled


def _reversed_piece(piece: StackedItems) -> StackedItems:
    made = None if piece.made is None else StepItems(piece.made.items, not piece.made.is_turned)
    return StackedItems(flip.of(piece.rows, dims=(0,)), piece.count, made)


def unstack(items: list[Any]) -> None:
    """Have a list hold its items one by one.  They require grad as they did where they were appended, whatever the mode is now."""
    if not has_stacked(items):
        return
    for made in [x.made for x in items if type(x) is StackedItems and x.made is not None]:
        made.items()  # which stops the recording, and so takes apart this list, too
    grad_enabled, state.grad_enabled = state.grad_enabled, True
    try:
        items[:] = [x for item in [*items] for x in _items(item)]
    finally:
        state.grad_enabled = grad_enabled


def _items(item: Any) -> list[Any]:
    if type(item) is not StackedItems:
        return [item]
    found = None if item.made is None else item.made.in_order()
    return found if found is not None else [item_of(item.rows, k) for k in range(int(item.count))]


def _joined(
    interpreter: RecordingInterpreter, function: Any, items: list[Any], dim: Any = 0, *others: Any, **keywords: Any
) -> Tensor | None:
    """What `stack`, `cat` or `sum` makes of items; None where it takes the items themselves to say."""
    if function is sum:
        return None if others or keywords else _summed_items(interpreter, dim, items)
    is_new = function is FUNCTIONS["stack"]
    if not (is_new or function is FUNCTIONS["cat"]) or others or keywords or type(dim) is not int:
        return None
    found = concatenated_items(items, dim, is_new)
    return (
        clone.of(found) if any(type(x) is StackedItems and found is x.rows for x in items) else found
    )  # which the list goes on to hold


def item_of(rows: Tensor, place: Any) -> Tensor:
    """An item of a piece, with memory of its own, as the step had it that has made it: it may be written to, and so may others."""
    return clone.of(select.of(rows, place, dim=0))  # type: ignore[no-any-return]


def concatenated_items(items: list[Any], dim: int, is_new: bool = True) -> Tensor | None:
    """The items of a list, some of which are in one piece, along a dimension, which is a new one or one that they have; None where they
    have not all one shape and dtype."""
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
        (total,) = loop_node(body, [total], [x.rows], [], x.count, False).ends
    return total  # type: ignore[no-any-return]


def _along(item: Any, at: int, is_new: bool) -> Tensor:
    """An item, or several, along a dimension, which is a new one or one that items have."""
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
