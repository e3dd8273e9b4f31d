"""The gradient of a loop: a loop in the other direction.

A step of it has what its forward step was given (what was carried before it, its slices, what is shared) and the cotangents of what that
gave.  It computes the forward step again, where of a step nothing is kept but what is carried (Griewank and Walther, Algorithm 799:
Revolve, 2000), or has what the step has saved (`Saved`), pulls the cotangents back through it, carries those of what is carried on to the
step before, and collects those of slices.  What is shared has cotangents that steps add to: they are carried, too, and begin with what has
arrived before.

The order in which cotangents are added is that of the loop written out: what steps have added up so far comes before what a step adds,
and so does what has arrived of what enters the first step (`_beginning_with`).
A sum that nothing has arrived for begins with -0.0, to which any number can be added without changing it.

But where a step has no cotangent, zeros are none either: -0.0 times infinity is NaN, which the loop written out does not come to.  The last
steps may have cotangents of other values than those before them, fewer where nothing reads what is carried in the end.  So as long as the
step before it has others, the last one is pulled back by itself, before the loop (`_cotangent_pattern`); all steps of the loop have the
same ones. Where that never comes about (steps swap what they carry), or too few steps are left, the gradient is written out.  What is kept
of carried values is one tensor: gradients of gradients have zeros in rows of it that nothing arrived for.

Where steps take different paths (`phi`), it may depend on the paths whether there is a cotangent.  Then a bool beside it is carried, its
condition (`backward_graph`), and in the end there is a gradient if that holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from tracejit.core.array_constant import ArrayConstant
from tracejit.core.aval import Aval
from tracejit.core.dtypes import bool_
from tracejit.core.interpreter import Abstract
from tracejit.core.interpreter import state as interpreter_state
from tracejit.core.op import REGISTRY, Op
from tracejit.ir.graph import Body, Graph, Literal
from tracejit.ir.loop import DIFFERENTIABLE, FEWEST, Saved, loop
from tracejit.ir.tracer import trace
from tracejit.passes.backward import ConditionalCotangent, active_values, backward_graph

__all__ = ["differentiable_loop"]

Flags = tuple[bool, ...]


def differentiable_loop(kept: int, saved: Saved | None = None, exits_alike: bool = False) -> Op:
    """`loop` with a vjp.  kept: how many of the carried values it keeps; all of them where `saved` is None."""
    return _differentiable_loop(kept, saved, exits_alike)


@cache
def _differentiable_loop(kept: int, saved: Saved | None, exits_alike: bool) -> Op:
    op = loop(kept, saved, exits_alike)
    if saved is None:
        operands, outputs = [f"{kept}:"], [*range(kept)]
    else:
        operands = [*map(str, saved.operands)]
        outputs = [*saved.before, *[kept + k for k in saved.after]]
        outputs += range(kept + saved.results, kept + saved.results + saved.residuals)
    op.vjp(" ".join([*operands, *[f"out{k}" for k in outputs]]))(partial(_pulled_back, saved))
    return op


DIFFERENTIABLE[:] = [differentiable_loop]


def _pulled_back(saved: Saved | None, c: Any, *cotangents: Any) -> tuple[Any, ...]:
    gradient = _Gradient(saved, c, cotangents)
    pattern = gradient.pattern()
    if pattern.apart is None or (pattern.apart > 0 and not c.attributes["count"] - pattern.apart >= FEWEST):
        gradient.write_out()
    else:
        gradient.pull_back(pattern)
    return tuple([_with_condition(x, gradient.exists.get(k)) for k, x in enumerate(gradient.result)])


def _with_condition(x: Any, exists: Any) -> Any:
    return x if x is None or exists is None else ConditionalCotangent(x, exists)


class _Gradient:
    """What a backward pass through a loop has come to.  result: the cotangents of what the loop was given.  exists: the conditions of those
    that may not exist, which are -0.0 then."""

    def __init__(self, saved: Saved | None, c: Any, cotangents: Sequence[Any]) -> None:
        attributes = c.attributes
        self._body, self._carried, self._sliced = attributes["body"], attributes["carried"], attributes["sliced"]
        self._count, self._reverse = attributes["count"], attributes["reverse"]
        self._needs = c.needs
        graph, carried = self._body.graph, self._carried
        self._first_shared = shared = carried + self._sliced
        kept = len(cotangents) - len(graph.outputs)
        if saved is None and kept != carried:
            raise RuntimeError(
                "backward(): a loop that kept nothing has no derivative; this is a defect of tracejit, please report it"
            )
        exist = [x.exists if isinstance(x, ConditionalCotangent) else None for x in cotangents]
        cotangents = [x.value if isinstance(x, ConditionalCotangent) else x for x in cotangents]
        self._reference = next(x for x in cotangents if x is not None)
        arrived: Sequence[Any] = c.accumulated or [None] * len(graph.inputs)
        self.exists: dict[int, Any] = {k: x.exists for k, x in enumerate(arrived) if isinstance(x, ConditionalCotangent)}
        self.result: list[Any] = [x.value if k in self.exists else x for k, x in enumerate(arrived)]
        self._of_end, self._of_collected = cotangents[kept : kept + carried], cotangents[kept + carried :]
        self._of_history = [*cotangents[:kept], *[None] * (carried - kept)]
        # The conditions of these.
        self._ends_exist, self._collected_exist = exist[kept : kept + carried], exist[kept + carried :]
        self._history_exists = [*exist[:kept], *[None] * (carried - kept)]
        self._wanted = tuple([k for k in range(carried, len(graph.inputs)) if c.needs[k] and _is_float(self._aval(k))])
        before = range(kept) if saved is None else saved.before
        others = [k for k in range(carried, len(graph.inputs)) if c.inputs[k] is not None]
        self._at_hand = (*before, *others)
        self._slices = [c.outputs[k] if k < kept else c.inputs[k] for k in self._at_hand if k < shared]
        self._shared = [c.inputs[k] for k in self._at_hand if k >= shared]
        self._made: tuple[Any, ...] = ()
        self._on: list[tuple[Any, Any]] = []
        self._residuals: Sequence[Any] = ()
        if (
            saved is not None
        ):  # values of the steps, stacked; what these have carried on is what was carried before each, and in the end
            residuals = slice(saved.results, saved.results + saved.residuals)
            self._made = (*[graph.outputs[k] for k in saved.after], *graph.outputs[residuals])
            self._on = [(c.outputs[k], c.outputs[kept + k]) for k in saved.after]
            self._residuals = c.outputs[kept:][residuals]
        # The cotangents of slices, of steps that were pulled back by themselves, the last one first.
        self._rows: dict[int, list[Any]] = {k: [] for k in self._wanted if k < shared}

    def pattern(self) -> _Pattern:
        """Which values have cotangents."""
        present = [_present(x) for x in (self._of_history, self._of_end, self._of_collected)]
        partly = [_present(x) for x in (self._history_exists, self._ends_exist, self._collected_exist)]
        return _cotangent_pattern(self._body, self._carried, self._wanted, *present, *partly)

    def write_out(self) -> None:
        """Go back through one step after the other."""
        self._count = int(self._count)
        for n in range(self._count):
            self._pull_back_one(n, n + 1 == self._count)
        self._join({}, None)

    def pull_back(self, pattern: _Pattern) -> None:
        """Go back through the last steps one after the other, and through all others in a loop."""
        apart = pattern.apart
        assert apart is not None
        for n in range(apart):
            self._pull_back_one(n, False)
        found, conditions = self._of_loop(apart, pattern) if pattern.reached else ({}, {})
        for k, gradient in found.items():
            if k >= self._first_shared:
                self._set(k, gradient, conditions.get(k))
            elif k < self._carried and self._needs[k]:
                self._add(k, gradient, conditions.get(k))
        self._join(found, self._count - apart)

    def _set(self, k: int, x: Any, exists: Any = None) -> None:
        """Make `x` the cotangent of an input.  exists: its condition, if it has one."""
        if x is not self.result[k]:
            self.result[k] = x
            self.exists.pop(k, None)
            if exists is not None:
                self.exists[k] = exists

    def _add(self, k: int, x: Any, exists: Any) -> None:
        """Add to the cotangent of an input."""
        before, known = self.result[k], self.exists.get(k)
        if before is None:
            self._set(k, x, exists)
            return
        if exists is not None:
            x = REGISTRY["phi"].of(exists, x, -0.0)
        always = known is None or exists is None
        self._set(k, _sum(before, x), None if always else REGISTRY["logical_or"].of(known, exists))

    def _pull_back_one(self, n: int, is_first: bool) -> None:
        """Go back through the step that n others come after.  is_first: whether that is the first one, of which what is carried before it
        may have cotangents already."""
        carried, shared, result = self._carried, self._first_shared, self.result
        arrived = self._row_of_each(self._of_history, n)
        if is_first:
            arrived = [_sum(x, y) for x, y in zip(result, arrived, strict=False)]
        given = [*self._of_end, *self._row_of_each(self._of_collected, n), *arrived, *[None] * self._sliced, *result[shared:]]
        targets = (*[k for k in range(carried) if _is_float(self._aval(k))], *self._wanted)
        pull_back = _pull_back(self._body, targets, _present(given), self._at_hand, self._made)
        values = [end if n == 0 else self._row(rows, n - 1) for rows, end in self._on]
        values += self._row_of_each([*self._residuals, *self._slices], n)
        found = _applied(pull_back, [*values, *self._shared, *[x for x in given if x is not None]])
        of_inputs = dict(zip(targets, found, strict=True))
        self._of_end = [of_inputs.get(k) for k in range(carried)]
        for k in self._wanted:
            if k < shared:
                self._rows[k].append(of_inputs[k])
            else:
                self._set(k, of_inputs[k])
        if is_first:
            for k, (x, need) in enumerate(zip(self._of_end, self._needs, strict=False)):
                self._set(k, x if need else None)

    def _of_loop(self, n: int, pattern: _Pattern) -> tuple[dict[int, Any], dict[int, Any]]:
        """(the cotangents of inputs of all steps but the last n: of a shared one, of all steps; their conditions)."""
        body, carried, shared, result, count = self._body, self._carried, self._first_shared, self.result, self._count - n
        floats, reached, conditional = pattern.floats, pattern.reached, pattern.conditional
        of_history = [None if x is None else self._but_last(x, n) for x in self._of_history]
        exists: dict[int, Any] = {}  # of what was carried before each step, where a cotangent of that exists for some steps alone
        for k, arrived in enumerate(result[:carried]):
            known = self._history_exists[k]
            if known is not None:
                exists[k] = self._for_each(known, count)
            if arrived is not None and k in reached and _is_read_twice(body, k):
                rows = replace(aval := self._aval(k), shape=(count, *aval.shape))
                if conditional and (of_history[k] is None or known is not None):
                    first = self._has_arrived(k, arrived)
                    first = first if known is None else REGISTRY["logical_or"].of(first, known)
                    exists[k] = _shifted_rows(exists.get(k, self._truth(False, (count,))), first, self._reverse)
                of_history[k] = _beginning_with(arrived, of_history[k], rows, self._reverse)
                self._set(k, None)
        collected_exist = [None if x is None else self._for_each(x, count) for x in self._collected_exist]
        wanted = tuple([k for k in self._wanted if k in reached])
        summed = [k for k in wanted if k >= shared]
        step = _step(
            body,
            carried,
            pattern,
            wanted,
            _present(of_history),
            tuple([k in exists for k in range(carried)]),
            _present(self._of_collected),
            _present(collected_exist),
            shared,
            self._at_hand,
            self._made,
        )
        starts = {k: self._of_end[k] if k < carried else result[k] for k in (*floats, *summed)}
        state = [self._zeros(k) if x is None else x for k, x in starts.items()]
        state += [self._has_arrived(k, starts[k]) if k >= carried else self._of_end_exists(k) for k in starts if k in conditional]
        slices = [self._but_last(x, n) for x in self._slices]
        slices += [self._carried_on(rows, end, n) for rows, end in self._on]
        slices += [self._but_last(x, n) for x in self._residuals]
        of_collected = [self._but_last(x, n) for x in self._of_collected if x is not None]
        given = [*slices, *[x for x in of_history if x is not None], *exists.values(), *of_collected]
        given += [x for x in collected_exist if x is not None]
        # In a graph it may turn out later that gradients of it are wanted; what is kept for nobody is dropped (loops.py).
        needing = (*state, *given, *self._shared)
        wants_more = interpreter_state.grad_enabled and any(getattr(x, "requires_grad", False) for x in needing)
        tracked = isinstance(self._reference, Abstract) or wants_more
        op = differentiable_loop(len(state)) if tracked else loop(0)
        found = op.of(*needing, body=step, carried=len(state), sliced=len(given), count=count, reverse=not self._reverse)
        found = found[len(state) :] if tracked else found
        conditions = dict(zip([k for k in starts if k in conditional], found[len(starts) :], strict=False))
        rows = found[len(state) :]
        of_inputs = dict(zip((*starts, *[k for k in wanted if k < shared]), (*found[: len(starts)], *rows), strict=True))
        result_of: dict[int, Any] = {}
        for k, x in of_inputs.items():
            if k in conditions and k >= shared and starts[k] is not None and k not in self.exists:
                del conditions[k]  # what steps add to was there before
            if k in conditions and not isinstance(self._reference, Abstract) and not _holds(conditions.pop(k)):
                continue
            if k in reached:
                result_of[k] = x
        return result_of, conditions

    def _join(self, found: Mapping[int, Any], count: int | None) -> None:
        """Add the cotangents of slices, those that a loop has found for the first steps, so many, and those of the others, in one piece.
        Where there are none, these are zeros."""
        for k, others in self._rows.items():
            rows, aval = found.get(k), self._aval(k)
            if others and any(x is not None for x in (rows, *others)):
                zeros = partial(REGISTRY["full"].beside, self._reference, 0.0, dtype=aval.dtype)
                one = (1, *aval.shape)
                parts = [zeros(shape=one) if x is None else REGISTRY["reshape"].of(x, shape=one) for x in others]
                if count is not None:
                    parts.append(zeros(shape=(count, *aval.shape)) if rows is None else rows)
                rows = REGISTRY["cat"].of(*(parts if self._reverse else parts[::-1]), dim=0)
            self.result[k] = _sum(self.result[k], rows)

    def _aval(self, k: int) -> Any:
        graph = self._body.graph
        return graph.avals[graph.inputs[k]]

    def _zeros(self, k: int) -> Any:
        return _empty_sum(self._reference, self._aval(k))

    def _has_arrived(self, k: int, x: Any) -> Any:
        """Whether there is a cotangent `x` of an input."""
        return self.exists[k] if k in self.exists else self._truth(x is not None, ())

    def _of_end_exists(self, k: int) -> Any:
        """Whether there is a cotangent of what is carried in the end."""
        known = self._ends_exist[k]
        return self._truth(self._of_end[k] is not None, ()) if known is None else known

    @staticmethod
    def _for_each(condition: Any, count: Any) -> Any:
        """A condition as a row of each step."""
        return REGISTRY["expand"].of(condition, shape=(count,))

    def _truth(self, value: bool, shape: tuple[int, ...]) -> Any:
        return REGISTRY["full"].beside(self._reference, value, shape=shape, dtype=bool_)

    # -- rows of steps
    def _row(self, rows: Any, n: int) -> Any:
        """That of the step which n others come after."""
        return REGISTRY["select"].of(rows, n if self._reverse else self._count - 1 - n, dim=0)

    def _row_of_each(self, columns: Sequence[Any], n: int) -> list[Any]:
        return [None if x is None else self._row(x, n) for x in columns]

    def _but_last(self, rows: Any, n: int) -> Any:
        """Those of all steps but the last n."""
        return self._some(rows, 0, n) if n else rows

    def _carried_on(self, rows: Any, end: Any, n: int) -> Any:
        """What all steps but the last n carry on, where `rows` are what was carried before each, and `end` is what was in the end."""
        return self._some(rows, 1, n - 1) if n else _shifted_rows(rows, end, not self._reverse)

    def _some(self, rows: Any, first: int, last: int) -> Any:
        """All but so many of the first and last steps'."""
        start, stop = (last, self._count - first) if self._reverse else (first, self._count - last)
        return REGISTRY["slice"].of(rows, dim=0, start=start, stop=stop, step=1)


def _shifted_rows(rows: Any, row: Any, forward: bool) -> Any:
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
    return _sum(_shifted_rows(_empty_sum(arrived, rows), arrived, reverse), history)


def _sum(x: Any, y: Any) -> Any:
    """Of cotangents, of which one may not be there."""
    return y if x is None else x if y is None else REGISTRY["acc"].of(x, y)


def _present(cotangents: Sequence[Any]) -> Flags:
    return tuple([x is not None for x in cotangents])


def _empty_sum(reference: Any, aval: Any) -> Any:
    """What a sum begins with: -0.0."""
    return REGISTRY["full"].beside(reference, -0.0, shape=aval.shape, dtype=aval.dtype)


def _is_float(aval: Any) -> bool:
    return isinstance(aval, Aval) and aval.dtype.is_floating_point


def _holds(condition: Any) -> bool:
    """A truth value that decides which gradients there are."""
    return bool(condition.item() if isinstance(condition, np.ndarray | np.generic) else interpreter_state.top.take(condition))


class _Pattern(NamedTuple):
    """Which values have cotangents in a backward pass through a loop.

    apart: how many of the last steps have cotangents of other values than the steps before them; None: however many, no two in a row are
    alike.  floats: what is carried that has cotangents in all others.  reached: the inputs that these reach, among the carried ones and
    those that are wanted.  conditional: the inputs whose cotangents exist on some paths alone."""

    apart: int | None
    floats: tuple[int, ...] = ()
    reached: frozenset[int] = frozenset()
    conditional: frozenset[int] = frozenset()


@lru_cache(maxsize=256)
def _cotangent_pattern(
    body: Body,
    carried: int,
    wanted: tuple[int, ...],
    history: Flags,
    ends: Flags,
    collected: Flags,
    history_partly: Flags,
    ends_partly: Flags,
    collected_partly: Flags,
) -> _Pattern:
    """The pattern for a body; the flags say of which outputs of the loop there are cotangents, and which of these have a condition.
    Others have none in the loop written out either, rather than zeros."""
    graph = body.graph
    candidates = (*[k for k in range(carried) if _is_float(graph.avals[graph.inputs[k]])], *wanted)
    marked = frozenset(graph.requires_grad or _marked(graph, {graph.inputs[k] for k in candidates}))
    outputs = (*graph.outputs, *graph.inputs)
    graph = replace(graph, outputs=outputs, requires_grad=marked)
    values = sorted(active_values(graph, [graph.inputs[k] for k in candidates]))
    conditions: dict[Any, frozenset[int]] = {}  # what `reached` was asked for -> values that have cotangents on some paths alone

    @cache
    def reached(there: frozenset[int], some: frozenset[int] = frozenset()) -> frozenset[int]:
        """The values that have cotangents in a step after which these carried ones have.  some: inputs whose cotangents exist on some
        paths alone."""
        sums = [history[k] if k < carried else k in some for k in range(len(graph.inputs))]
        present = (*[k in there for k in range(carried)], *collected, *sums)
        partly = (
            *[k in some for k in range(carried)],
            *collected_partly,
            *[history_partly[k] if k < carried else k in some for k in range(len(sums))],
        )
        found = backward_graph(graph, (), graph.inputs, present, values, partly).outputs
        conditions[there, some] = frozenset([v for v, x in zip(values, found[len(values) :], strict=True) if x is not None])
        return frozenset([v for v, x in zip(values, found, strict=False) if x is not None])

    def inputs_of(there: frozenset[int], some: frozenset[int] = frozenset()) -> frozenset[int]:
        found = reached(there, some)
        return frozenset([k for k in candidates if graph.inputs[k] in found or (k < carried and history[k])])

    def conditional() -> _Pattern:
        """The pattern of all steps, where it depends on paths which cotangents there are."""
        there = after[0]
        while (more := there | {k for k in inputs_of(there) if k < carried}) != there:
            there = more
        some = (there - after[0]) | {k for k in there if ends_partly[k]}
        while True:
            found = inputs_of(there, some)
            partly = {k for k in found if graph.inputs[k] in conditions[there, some]}
            if some == (more := some | partly | (there - found)):
                return _Pattern(0, tuple(sorted(there)), found, some)
            some = more

    # What is carried that has cotangents after each step, the last one first.
    after = [frozenset([k for k in candidates if k < carried and ends[k]])]
    if any((*history_partly, *ends_partly, *collected_partly)):
        return conditional()
    while True:
        there = reached(after[-1])
        if conditions[after[-1], frozenset()]:
            return conditional()
        inputs = inputs_of(after[-1])
        before = frozenset([k for k in inputs if k < carried])
        if reached(before) == there and not conditions[before, frozenset()]:
            return _Pattern(len(after) - 1, tuple(sorted(after[-1] | before)), inputs)
        if before in after:
            return _Pattern(None)
        after.append(before)


@lru_cache(maxsize=256)
def _pull_back(
    body: Body,
    targets: tuple[int, ...],
    present: Flags,
    at_hand: tuple[int, ...],
    made: tuple[int, ...],
    conditional: Flags | None = None,
) -> Graph:
    """The graph from what was made in a step, what there is of its inputs, and cotangents, to those of the inputs that are targets.
    present: which cotangents there are of the outputs, then of the inputs, to which those of the step are added; conditional: which of
    them exist on some paths alone."""
    graph = body.graph
    marked = frozenset(graph.requires_grad or _marked(graph, {graph.inputs[k] for k in targets}))
    graph = replace(graph, outputs=(*graph.outputs, *graph.inputs), requires_grad=marked)
    inputs = body.graph.inputs
    return backward_graph(graph, made, [inputs[k] for k in at_hand], present, [inputs[k] for k in targets], conditional)


@lru_cache(maxsize=256)
def _step(
    body: Body,
    carried: int,
    pattern: _Pattern,
    wanted: tuple[int, ...],
    history: Flags,
    exists: Flags,
    collected: Flags,
    collected_exist: Flags,
    first_shared: int,
    at_hand: tuple[int, ...],
    made: tuple[int, ...],
) -> Body:
    """The body of the gradient.  wanted: inputs of `body` after what is carried whose cotangents are asked for.  history, collected: which
    cotangents there are of what was carried before each step, and of what it collected.  exists, collected_exist: which of these exist for
    some steps alone, or have a condition.  at_hand: what there is of what the forward step was given; made: values that it made and
    that there are, too.

    It carries the cotangents of what is carried, then those of wanted shared inputs, then the conditions of both; its slices are all that
    is at hand of the forward step but what is shared, then the cotangents that there are, each kind with the conditions of those that have
    one."""
    graph, floats, conditional = body.graph, pattern.floats, pattern.conditional
    summed = [k for k in wanted if k >= first_shared]
    targets = (*floats, *summed, *[k for k in wanted if k < first_shared])
    some = [k for k in (*floats, *summed) if k in conditional]
    # What has been added up so far is the cotangent of an output that is the input itself: it comes first.
    present = (
        *[k in floats for k in range(carried)],
        *collected,
        *[history[k] if k < carried else k in summed for k in range(len(graph.inputs))],
    )
    partly = (
        *[k in some for k in range(carried)],
        *collected_exist,
        *[exists[k] if k < carried else k in some for k in range(len(graph.inputs))],
    )
    backward = _pull_back(body, targets, present, at_hand, made, partly)
    values = [graph.inputs[k] for k in targets]
    sliced = len([k for k in at_hand if k < first_shared])

    def step(*operands: Any) -> tuple[Any, ...]:
        count = len(floats) + len(summed)
        state, conditions, rest = operands[:count], operands[count : count + len(some)], operands[count + len(some) :]
        slices, rest = rest[:sliced], rest[sliced:]
        kept, rest = rest[: len(made)], rest[len(made) :]
        of_history, rest = rest[: sum(history)], rest[sum(history) :]
        existing, rest = rest[: sum(exists)], rest[sum(exists) :]
        of_collected, rest = rest[: sum(collected)], rest[sum(collected) :]
        collected_there, shared = rest[: sum(collected_exist)], rest[sum(collected_exist) :]
        first = len([k for k in some if k < carried])
        arriving = [*state[: len(floats)], *of_collected, *of_history, *state[len(floats) :]]
        arriving += [*conditions[:first], *collected_there, *existing, *conditions[first:]]
        found = _applied(backward, [*kept, *slices, *shared, *arriving])
        cotangents, holding = (
            found[: len(values)],
            dict(zip(targets, zip(found, found[len(values) :], strict=False), strict=True)),
        )

        def condition(k: int) -> Any:
            cotangent, value = holding[k]
            return REGISTRY["full"].beside(operands[0], cotangent is not None, shape=(), dtype=bool_) if value is None else value

        result = [_empty_sum(operands[0], graph.avals[v]) if x is None else x for v, x in zip(values, cotangents, strict=True)]
        for n, k in enumerate(targets[count:], count):  # of slices that have none there are zeros
            if (holds := holding[k][1]) is not None:
                result[n] = REGISTRY["phi"].of(holds, result[n], 0.0)
        return (*result[:count], *map(condition, some), *result[count:])

    avals = [graph.avals[v] for v in values[: len(floats) + len(summed)]]
    avals += [Aval((), bool_)] * len(some)
    avals += [graph.avals[graph.inputs[k]] for k in at_hand if k < first_shared]
    avals += [graph.avals[v] for v in made]
    avals += [graph.avals[v] for v, there in zip(graph.inputs, history, strict=False) if there]
    avals += [Aval((), bool_)] * sum(exists)
    avals += [graph.avals[v] for v, there in zip(graph.outputs[carried:], collected, strict=True) if there]  # type: ignore[index]
    avals += [Aval((), bool_)] * sum(collected_exist)
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
