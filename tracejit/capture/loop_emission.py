"""The `loop` node (ir/loop.py) that stands for steps of a loop, and what a backward pass through it needs.

There are two kinds of loops that gradients go through:

* The steps of a `for` statement are to free and refuse what their operations would, one by one.  So the loop saves what these
  save (`Saved`), and what eager mode has as numbers.
* A step of `scan` and `map` is computed again by the backward pass, which has what each step was given (`recomputes`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from tracejit.autograd.tape import install_loops
from tracejit.capture.loop_expansion import expand
from tracejit.core.aval import Aval
from tracejit.core.interpreter import state
from tracejit.core.op import Effect, Kind, Op
from tracejit.ir.builder import producers
from tracejit.ir.graph import Body, Graph, Literal, Node
from tracejit.ir.loop import Saved, loop, results_made_of
from tracejit.ops.movement.views import detach
from tracejit.passes.backward import gradient_operands
from tracejit.passes.loop_gradient import differentiable_loop
from tracejit.passes.partition import extracted_numbers, read_values, saved_values
from tracejit.tensor import Tensor
from tracejit.tensor.base import wrap

__all__ = ["LoopResults", "SavingLoop", "emit_loop", "room_for", "saving_loop", "written_out"]


class LoopResults(NamedTuple):
    """What a loop gives.  ends: what is carried in the end.  collected: stacked along a new first dimension.  history: what was
    carried before each step, stacked, by its position among what is carried, as far as the loop keeps it.  order: see SavingLoop."""

    ends: list[Tensor]
    collected: list[Tensor]
    history: dict[int, Tensor]
    order: Sequence[int] = ()


def emit_loop(
    body: Graph,
    entered: Sequence[Tensor],
    sliced: Sequence[Tensor],
    shared: Sequence[Any],
    count: Any,
    reverse: bool,
    recomputes: bool = False,
    of_paths: bool = False,
    made_of: Iterable[tuple[int, int]] = (),
) -> LoopResults:
    """Append a loop of `count` steps that do what `body` says, and evaluate it.

    body: its inputs are as many carried values as `entered`, a slice of each of `sliced`, and `shared`; its outputs what is
    carried on, then what is collected.  Where it saves, a collected value that is carried as well is in the history alone.
    recomputes: see the module.  of_paths: whether its steps take different paths (path_tree.py).  made_of: see `Saved`."""
    carried = len(entered)
    has_tape = state.grad_enabled and any(isinstance(x, Tensor) and x.requires_grad for x in (*entered, *sliced, *shared))
    entering, order = body.inputs[:carried], list(range(carried))
    kept = 0
    if recomputes:
        has_tape = has_tape and not body.requires_grad.isdisjoint(body.outputs)  # type: ignore[arg-type]
        kept = carried if has_tape else 0
        op = differentiable_loop(kept) if has_tape else loop(0, None, of_paths)
        collected = body.outputs[carried:]
    else:
        op, body, order, kept, collected = saving_loop(body, carried, has_tape, of_paths, made_of)
    if not has_tape:
        body = replace(body, requires_grad=frozenset())
    marked = body.requires_grad
    operands = (*[entered[k] for k in order], *sliced, *shared)
    results = op.of(*operands, body=Body(body), carried=carried, sliced=len(sliced), count=count, reverse=reverse)
    history, ended, rows = results[:kept], results[kept : kept + carried], results[kept + carried :]
    by_place = [x for _, x in sorted(zip(order, ended, strict=True), key=itemgetter(0))]
    # What enters a loop of paths may not require grad where what its steps leave does.
    tracked = [v in marked for v in entering] if of_paths else [x.requires_grad for x in entered]
    return LoopResults(
        [y if y.requires_grad == is_tracked else detach(y) for is_tracked, y in zip(tracked, by_place, strict=True)],
        [y if v in marked or not y.requires_grad else detach(y) for v, y in zip(collected, rows, strict=False)],
        {k: y if entered[k].requires_grad or not y.requires_grad else detach(y) for k, y in zip(order, history, strict=False)},
        order,
    )


class SavingLoop(NamedTuple):
    """A loop that saves what its steps do.  body: the steps.  order: what is carried, by its positions among the inputs of the body that it
    was made of.  kept: how many of these it keeps.  collected: the values of the body that it collects for others."""

    op: Op
    body: Graph
    order: list[int]
    kept: int
    collected: tuple[Any, ...]


def saving_loop(body: Graph, carried: int, has_tape: bool, of_paths: bool, made_of: Iterable[tuple[int, int]] = ()) -> SavingLoop:
    """The loop whose steps do what `body` says (see `emit_loop`).  has_tape: whether gradients go through it."""
    ends, entering = body.outputs[:carried], body.inputs[:carried]
    values, numbers_alone = _values_read(body) if has_tape else ([], False)
    wanted = dict.fromkeys(values)
    read = {*wanted, *body.outputs[carried:]}
    before = [k for k in range(carried) if entering[k] in read or ends[k] in read]
    kept, order = len(before), [*before, *[k for k in range(carried) if k not in before]]
    inputs, outputs = [entering[k] for k in order], [ends[k] for k in order]
    collected = body.outputs[carried:]
    if not of_paths:
        collected = tuple([v for v in collected if v not in ends and v not in entering])
    residuals = [v for v in wanted if v not in body.inputs and v not in outputs]
    body = replace(body, inputs=(*inputs, *body.inputs[carried:]), outputs=(*outputs, *collected, *residuals))
    if not has_tape:
        return SavingLoop(loop(kept, None, of_paths), body, order, kept, collected)
    after = [k for k, v in enumerate(outputs) if v in wanted and v not in outputs[:k] and v not in inputs]
    saved = Saved(
        operands=tuple([k for k in range(carried, len(body.inputs)) if body.inputs[k] in wanted]),
        before=tuple([k for k in range(kept) if inputs[k] in wanted or k in after]),
        after=tuple(after),
        results=carried + len(collected),
        residuals=len(residuals),
        numbers_alone=numbers_alone,
        made_of=tuple(sorted([(order.index(i), order.index(k) if k < carried else k) for i, k in made_of])),
    )
    return SavingLoop(differentiable_loop(kept, saved, of_paths), body, order, kept, collected)


def written_out(body: Graph, given: Sequence[Any]) -> list[Any]:
    """What one step gives by operations of eager mode, whose nodes are on the tape: those of the path that the step takes."""
    values = dict(zip(body.inputs, given, strict=True))
    values.update({v: wrap(array) for v, array in body.constants.items()})
    grad_enabled = state.grad_enabled
    try:
        for node in body.nodes:
            operands = [values[x] if type(x) is int else x.value if isinstance(x, Literal) else None for x in node.operands]
            if node.op.kind is Kind.GUARD:
                continue
            if "merges paths" in node.op.traits:
                values[node.outputs[0]] = operands[1] if bool(operands[0]._array) else operands[2]  # type: ignore[union-attr]
                continue
            state.grad_enabled = not body.requires_grad.isdisjoint(node.outputs)
            made = node.op(*operands, **node.attrs)
            values.update(zip(node.outputs, made if node.op.multiple else (made,), strict=True))
    finally:
        state.grad_enabled = grad_enabled
    return [values[v] for v in body.outputs]  # type: ignore[index]


def room_for(steps: int) -> int:
    """The steps that a node has room for, where a recorded call has made so many: a quarter more, in 4 binary digits."""
    wanted = steps + steps // 4 + 1
    unit = max(4, 1 << max(0, wanted.bit_length() - 4))
    return -(-wanted // unit) * unit


def _values_read(body: Graph) -> tuple[list[int], bool]:
    """(the values of a step that the backward passes of its operations read, whether eager mode has all of them as numbers)."""
    marked, makers, numbers = body.requires_grad, producers(body), extracted_numbers(body)
    differentiable = [node for node in body.nodes if gradient_operands(node, marked) and not marked.isdisjoint(node.outputs)]
    read = [v for node in differentiable for v in read_values(body, node, marked, numbers)]
    # What says which paths steps have taken, which `phi` reads, is not on eager mode's tape.
    saving = [node for node in differentiable if "merges paths" not in node.op.traits]
    saves = any(saved_values(body, node, marked, numbers) for node in saving)
    return [x for v in read for x in _view_operands(body, makers, v)], bool(read) and not saves


def _view_operands(body: Graph, makers: Mapping[int, Node], v: int) -> list[int]:
    """The value whose memory `v` has, and those that say where `v` looks in it: the view is made again of these."""
    maker = makers.get(v)
    if maker is None or maker.op.effect is not Effect.VIEW:
        return [v]
    tensors = [x for x in maker.operands if type(x) is int and isinstance(body.avals[x], Aval)]
    return [y for x in tensors for y in _view_operands(body, makers, x)]


install_loops(results_made_of, expand)
