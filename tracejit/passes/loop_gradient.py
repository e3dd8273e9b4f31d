"""The gradient of a loop: a loop in the other direction.

A step of it has what its forward step was given (what was carried before it, its slices, what is shared) and the cotangents of what that
gave.  It computes the forward step again, where of a step nothing is kept but what is carried (Griewank and Walther, Algorithm 799:
Revolve, 2000), or has what the step has saved (`Saved`), pulls the cotangents back through it, carries those of what is carried on to the
step before, and collects those of slices.  What is shared has cotangents that steps add to: they are carried, too, and begin with what has
arrived before.

The order in which cotangents are added is that of the loop written out: what steps have added up so far comes before what a step adds,
and so does what has arrived of what enters the first step (`_beginning_with`).
A sum that nothing has arrived for begins with -0.0, to which any number can be added without changing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any

from tracejit.core.array_constant import ArrayConstant
from tracejit.core.aval import Aval
from tracejit.core.interpreter import Abstract
from tracejit.core.interpreter import state as interpreter_state
from tracejit.core.op import REGISTRY, Op
from tracejit.ir.graph import Body, Graph, Literal
from tracejit.ir.loop import DIFFERENTIABLE, Saved, loop
from tracejit.ir.tracer import trace
from tracejit.passes.backward import backward_graph

__all__ = ["differentiable_loop"]

Flags = tuple[bool, ...]


@cache
def differentiable_loop(kept: int, saved: Saved | None = None) -> Op:
    """`loop` with a vjp.  kept: how many of the carried values it keeps; all of them where `saved` is None."""
    op = loop(kept) if saved is None else loop(kept, saved)
    outputs = [*range(kept)]
    if saved is None:
        operands = [f"{kept}:"]
    else:
        operands = [*map(str, saved.operands)]
        outputs += [kept + k for k in saved.after]
        outputs += range(kept + saved.results, kept + saved.results + saved.residuals)
    op.vjp(" ".join([*operands, *[f"out{k}" for k in outputs]]))(partial(_pulled_back, saved))
    return op


DIFFERENTIABLE[:] = [differentiable_loop]


def _pulled_back(saved: Saved | None, c: Any, *cotangents: Any) -> tuple[Any, ...]:
    attributes = c.attributes
    body, carried, sliced = attributes["body"], attributes["carried"], attributes["sliced"]
    graph = body.graph
    kept = len(cotangents) - len(graph.outputs)
    if saved is None and kept != carried:
        raise RuntimeError(
            "backward(): a loop that kept nothing has no derivative; this is a defect of tracejit, please report it"
        )
    of_end, of_collected = cotangents[kept : kept + carried], cotangents[kept + carried :]
    reference = next(x for x in cotangents if x is not None)
    result: list[Any] = [*(c.accumulated or [None] * len(graph.inputs))]
    of_history = [*cotangents[:kept], *[None] * (carried - kept)]
    for k, arrived in enumerate(result[:carried]):
        if arrived is not None and _is_read_twice(body, k):
            rows = replace(aval := graph.avals[graph.inputs[k]], shape=(attributes["count"], *aval.shape))
            of_history[k], result[k] = _beginning_with(arrived, of_history[k], rows, attributes["reverse"]), None
    wanted = tuple([k for k in range(carried, len(graph.inputs)) if c.needs[k] and _is_float(graph.avals[graph.inputs[k]])])
    seen = [tuple([g is not None for g in given]) for given in (of_history, of_end, of_collected)]
    floats, reached = _reached(body, carried, wanted, *seen)
    wanted = tuple([k for k in wanted if k in reached])
    summed = [k for k in wanted if k >= carried + sliced]
    at_hand = tuple([k for k in range(len(graph.inputs)) if k < kept or (k >= carried and c.inputs[k] is not None)])
    slices = [c.outputs[k] if k < kept else c.inputs[k] for k in at_hand if k < carried + sliced]
    made: tuple[Any, ...] = ()
    if saved is not None:  # values of the steps, stacked
        made = (*[graph.outputs[k] for k in saved.after], *graph.outputs[saved.results : saved.results + saved.residuals])
        # What steps have carried on is what was carried before each, and in the end.
        slices += [_moved(c.outputs[k], c.outputs[kept + k], not attributes["reverse"]) for k in saved.after]
        slices += c.outputs[kept + saved.results : kept + saved.results + saved.residuals]
    step = _step(body, carried, floats, wanted, seen[0], seen[2], carried + sliced, at_hand, made)
    shared = [c.inputs[k] for k in at_hand if k >= carried + sliced]

    def zeros(k: int) -> Any:
        return _nothing(reference, graph.avals[graph.inputs[k]])

    state = [zeros(k) if of_end[k] is None else of_end[k] for k in floats]
    state += [zeros(k) if result[k] is None else result[k] for k in summed]
    given = [*slices, *[g for g in (*of_history, *of_collected) if g is not None]]
    # In a graph it may turn out later that gradients of it are wanted; what is kept for nobody is dropped (loops.py).
    wants_more = interpreter_state.grad_enabled and any(getattr(x, "requires_grad", False) for x in (*state, *given, *shared))
    tracked = isinstance(reference, Abstract) or wants_more
    op = differentiable_loop(len(state)) if tracked else loop(0)
    found = op.of(
        *state,
        *given,
        *shared,
        body=step,
        carried=len(state),
        sliced=len(given),
        count=attributes["count"],
        reverse=not attributes["reverse"],
    )
    found = found[len(state) :] if tracked else found
    accumulate = REGISTRY["acc"].of
    for k, gradient in zip((*floats, *summed, *[k for k in wanted if k < carried + sliced]), found, strict=True):
        if c.needs[k] and k in reached:
            result[k] = gradient if k in summed or result[k] is None else accumulate(result[k], gradient)
    return tuple(result)


def _moved(rows: Any, row: Any, forward: bool) -> Any:
    """All `rows` but the first one, and then `row`; or `row`, and then all but the last, if not forward.  Nothing has one row less than
    `rows`: of two, that would be one, a size for which programs are others."""
    row = REGISTRY["reshape"].of(row, shape=(1, *row.shape))
    one_more = REGISTRY["cat"].of(*((rows, row) if forward else (row, rows)), dim=0)
    count = rows.shape[0]
    start, stop = (1, count + 1) if forward else (0, count)
    return REGISTRY["slice"].of(one_more, dim=0, start=start, stop=stop, step=1)


@lru_cache(maxsize=256)
def _is_read_twice(body: Body, k: int) -> bool:
    """Whether a step adds several cotangents for what is carried: then it matters what their sum begins with."""
    v = body.graph.inputs[k]
    readers = [
        node.op for node in body.graph.nodes for x in node.operands if type(x) is int and x == v and node.op.is_differentiable
    ]
    return len(readers) > 1 or any("accumulates" in op.traits for op in readers)


def _beginning_with(arrived: Any, history: Any, rows: Any, reverse: bool) -> Any:
    """The cotangents of what was carried before each step, where some have arrived of what was carried before the first one.  history:
    those that there are so far.  rows: the aval of what is returned."""
    found = _moved(_nothing(arrived, rows), arrived, reverse)
    return found if history is None else REGISTRY["acc"].of(found, history)


def _nothing(reference: Any, aval: Any) -> Any:
    """What a sum begins with: -0.0."""
    return REGISTRY["full"].beside(reference, -0.0, shape=aval.shape, dtype=aval.dtype)


def _is_float(aval: Any) -> bool:
    return isinstance(aval, Aval) and aval.dtype.is_floating_point


@lru_cache(maxsize=256)
def _reached(
    body: Body, carried: int, wanted: tuple[int, ...], history: Flags, ends: Flags, collected: Flags
) -> tuple[tuple[int, ...], frozenset[int]]:
    """(which of what is carried has cotangents, the inputs that these reach), among the carried ones and `wanted`; the flags say of which
    outputs of the loop there are cotangents.  Others have none in the loop written out either, rather than zeros."""
    graph = body.graph
    candidates = (*[k for k in range(carried) if _is_float(graph.avals[graph.inputs[k]])], *wanted)
    found = {k for k in candidates if k < carried and (history[k] or ends[k])}
    marked = frozenset(graph.requires_grad or _marked(graph, {graph.inputs[k] for k in candidates}))
    graph = replace(graph, requires_grad=marked)
    while True:
        present = (*[k in found for k in range(carried)], *collected)
        outputs = backward_graph(graph, (), graph.inputs, present, [graph.inputs[k] for k in candidates]).outputs
        reached = {k for k, x in zip(candidates, outputs, strict=True) if x is not None or (k < carried and history[k])}
        before = len(found)
        found |= {k for k in reached if k < carried}
        if len(found) == before:
            return tuple(sorted(found)), frozenset(reached)


@lru_cache(maxsize=256)
def _step(
    body: Body,
    carried: int,
    floats: tuple[int, ...],
    wanted: tuple[int, ...],
    history: Flags,
    collected: Flags,
    first_shared: int,
    at_hand: tuple[int, ...],
    made: tuple[int, ...],
) -> Body:
    """The body of the gradient.  floats: what is carried that has cotangents; wanted: inputs of `body` after what is carried whose
    cotangents are asked for.  history, collected: which cotangents there are of what was carried before each step, and of what it
    collected.  at_hand: what there is of what the forward step was given; made: values that it made and that there are, too.

    It carries the cotangents of what is carried, then those of wanted shared inputs; its slices are all that is at hand of the forward step
    but what is shared, then the cotangents that there are."""
    graph = body.graph
    summed = [k for k in wanted if k >= first_shared]
    marked = graph.requires_grad or _marked(graph, {graph.inputs[k] for k in (*floats, *wanted)})
    # What has been added up so far is the cotangent of an output that is the input itself: it comes first.
    earlier = [graph.inputs[k] for k in summed] + [v for v, there in zip(graph.inputs, history, strict=False) if there]
    outputs = (*[graph.outputs[k] for k in floats], *graph.outputs[carried:], *earlier)
    present = (*[True] * len(floats), *collected, *[True] * len(earlier))
    targets = [graph.inputs[k] for k in (*floats, *summed, *[k for k in wanted if k < first_shared])]
    backward = backward_graph(
        replace(graph, outputs=outputs, requires_grad=frozenset(marked)),
        made,
        [graph.inputs[k] for k in at_hand],
        present,
        targets,
    )
    sliced = len([k for k in at_hand if k < first_shared])

    def step(*operands: Any) -> tuple[Any, ...]:
        count = len(floats) + len(summed)
        state, rest = operands[:count], operands[count:]
        slices, rest = rest[:sliced], rest[sliced:]
        kept, rest = rest[: len(made)], rest[len(made) :]
        of_history, rest = rest[: sum(history)], rest[sum(history) :]
        of_collected, shared = rest[: sum(collected)], rest[sum(collected) :]
        arriving = [*state[: len(floats)], *of_collected, *state[len(floats) :], *of_history]
        found = _applied(backward, [*kept, *slices, *shared, *arriving])
        return tuple([_nothing(operands[0], graph.avals[v]) if x is None else x for v, x in zip(targets, found, strict=True)])

    avals = [graph.avals[v] for v in targets[: len(floats) + len(summed)]]
    avals += [graph.avals[graph.inputs[k]] for k in at_hand if k < first_shared]
    avals += [graph.avals[v] for v in made]
    avals += [graph.avals[v] for v, there in zip(graph.inputs, history, strict=False) if there]
    avals += [graph.avals[v] for v, there in zip(graph.outputs[carried:], collected, strict=True) if there]  # type: ignore[index]
    avals += [graph.avals[graph.inputs[k]] for k in at_hand if k >= first_shared]
    return Body(trace(step, avals))


def _marked(graph: Graph, marked: set[int]) -> set[int]:
    """The values that depend on these: of the gradient of a gradient, where nothing was recorded that did without."""
    for node in graph.nodes:
        if node.op.is_differentiable and any(type(x) is int and x in marked for x in node.operands):
            marked.update(v for v in node.outputs if _is_float(graph.avals[v]))
    return marked


def _applied(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a graph for values of any kind."""
    values: dict[int, Any] = dict(zip(graph.inputs, inputs, strict=True))
    reference = inputs[0]
    for v, array in graph.constants.items():
        values[v] = REGISTRY["constant"].beside(reference, array=ArrayConstant(array))
    for node in graph.nodes:
        operands = [values[x] if type(x) is int else x.value if isinstance(x, Literal) else None for x in node.operands]
        attributes: Mapping[str, Any] = node.attrs
        made = (
            node.op.of(*operands, **attributes)
            if any(type(x) is int for x in node.operands)
            else node.op.beside(reference, *operands, **attributes)
        )
        values.update(zip(node.outputs, made if node.op.multiple else (made,), strict=True))
    return [values[x] if type(x) is int else None if x is None else x for x in graph.outputs]
