"""Loops: a graph as the body of a node, applied so many times.

`loop(*carried, *sliced, *shared; body, carried, sliced, count, reverse)` calls `body` for i = 0 .. count - 1, or from count - 1 down, with
what is carried, slice i of each of `sliced` along its first dimension, and what is shared.  The body's outputs are what is carried on,
then what is collected: all of that, in the order of i, is stacked along a new first dimension.  The node's outputs are what was carried
before each step, stacked (of the variants of the primitive that keep it), what is carried in the end, and what was collected.

A vjp needs the carried values of each step, so `loop(n)` is a primitive of its own for n of them, the first ones.  `loop(0)` keeps none.
What a vjp saves is part of the primitive, too: all that steps were given, to compute each of them again; or (`Saved`) what the
operations of the steps save, no more and no less: some operands, and the last ones of what is collected.  The gradient is a loop in the
other direction (passes/loop_gradient.py).

`while(go, *carried, *shared; body, carried)` calls `body` with these operands as long as `go`, a truth value, holds.  The body's outputs
are the next `go` and what is carried on, as many as `carried` says, `go` among them; so are the node's, in the end.  It may not end.  So
it is never dropped, even where nothing reads what it gives: eager mode would not come to what follows, either.

`loop_of_paths` and `while_of_paths` are the same for steps that take different paths (capture/path_tree.py).  What leaves them in one
step is what leaves them in another, a path that is not known: so such an exit has one number, whatever the step.

The interpreter runs the body step by step: that is what a loop means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import bool_
from tracejit.core.op import Kind, Op
from tracejit.ir.graph import Body
from tracejit.ir.interpreter import NodeFailed, StepFailed
from tracejit.ir.runner import Runner

__all__ = [
    "DIFFERENTIABLE", "EXITS_ALIKE", "FEWEST", "LOOP_OF_PATHS", "SAVED", "WHILE", "WHILE_OF_PATHS", "Saved", "leaves_by_step", "loop",
    "results_made_of",
]  # fmt: skip

FEWEST: Final = 2
"""Steps of a loop of the library that is written out: the first one stays as it is, and one more is no loop."""
EXITS_ALIKE: Final = "steps exit alike"
"""Trait of loops whose exits have the same number in all steps."""
SAVED: Final[dict[Op, tuple[int, Saved]]] = {}
"""Loops whose steps save what their operations do -> (how many carried values they keep, what is saved)."""
DIFFERENTIABLE: list[Callable[..., Op]] = []
"""`loop` with a vjp: put here once, by passes/loop_gradient.py."""


class Saved(NamedTuple):
    """What the vjp of a loop reads.  operands: positions of slices and of what is shared.  before: of which carried values that are kept
    it reads what was carried before each step; after: of which of those it reads what each step carries on, too.  residuals: how many of
    the tensors that are collected, the last ones, are for it alone; results: of how many outputs of the body they come after.
    numbers_alone: eager mode has all of it as numbers of Python, which its tape does not save.  made_of: pairs of positions of carried
    values, (i, k) where what is carried in the end at k may be made of that at i in the last step."""

    operands: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    results: int
    residuals: int
    numbers_alone: bool = False
    made_of: tuple[tuple[int, int], ...] = ()


def _rule(*avals: Any, body: Body, carried: int, sliced: int, count: int, reverse: bool) -> tuple[Aval, ...]:
    """The rule of a loop that keeps nothing.  Raises ValueError for operands that the body does not take."""
    graph = body.graph
    expected = [graph.avals[v] for v in graph.inputs]
    found = [Aval(aval.shape[1:], aval.dtype) if k in range(carried, carried + sliced) else aval for k, aval in enumerate(avals)]
    if found != expected or any(a.shape[0] != count for a in avals[carried : carried + sliced]):
        raise ValueError(f"loop: the body takes ({', '.join(map(str, expected))}), got ({', '.join(map(str, found))})")
    out = [graph.avals[v] for v in graph.outputs]  # type: ignore[index]
    if out[:carried] != expected[:carried] or any(isinstance(a, ScalarAval) for a in out):
        raise ValueError(f"loop: the body carries on ({', '.join(map(str, out[:carried]))}), other than it was given")
    return (*out[:carried], *[Aval((count, *a.shape), a.dtype) for a in out[carried:]])  # type: ignore[union-attr, arg-type]


def _evaluate(
    kept: int, operands: Sequence[Any], body: Body, carried: int, sliced: int, count: int, reverse: bool
) -> tuple[Any, ...]:
    state, slices, shared = operands[:carried], operands[carried : carried + sliced], operands[carried + sliced :]
    before: list[Sequence[Any]] = []
    collected: list[Sequence[Any]] = []
    run = _runner(body)
    for step, i in enumerate(range(count - 1, -1, -1) if reverse else range(count)):
        found = _step(run, step, (*state, *[x[i, ...] for x in slices], *shared))
        before.append(state[:kept])
        state = found[:carried]
        collected.append(found[carried:])
    if reverse:
        before.reverse()
        collected.reverse()
    stacked = [np.stack(column) for rows in (before, collected) for column in zip(*rows, strict=True)]
    return (*stacked[:kept], *[np.array(x) for x in state], *stacked[kept:])


@lru_cache(maxsize=32)
def _runner(body: Body) -> Runner:
    """A body made ready to be run; a loop in a loop is evaluated in each of its steps."""
    return Runner(body.graph)


def _step(run: Runner, step: int, operands: Sequence[Any]) -> tuple[Any, ...]:
    try:
        return run(operands)
    except NodeFailed as failure:
        cause = failure.__cause__
        raise cause if isinstance(cause, StepFailed) else StepFailed(step) from cause


def loop(kept: int, saved: Saved | None = None, exits_alike: bool = False) -> Op:
    """The primitive whose first `kept` outputs are what was carried before each step, of the first ones that are carried.  saved: None of
    one that computes steps again, or has no vjp.  exits_alike: whether its steps take different paths."""
    return _loop(kept, saved, exits_alike)


@cache
def _loop(kept: int, saved: Saved | None, exits_alike: bool) -> Op:

    def rule(*avals: Any, **attributes: Any) -> tuple[Aval, ...]:
        count = attributes["count"]
        return (*[Aval((count, *a.shape), a.dtype) for a in avals[:kept]], *_rule(*avals, **attributes))

    def evaluate(*operands: Any, **attributes: Any) -> tuple[Any, ...]:
        """A body that is applied so many times."""
        return _evaluate(kept, operands, **attributes)

    name = f"loop{kept}_of_paths" if exits_alike else f"loop{kept}"
    traits = {"accumulates"} if saved is None or not saved.numbers_alone else {"accumulates", "reads numbers alone"}
    if exits_alike:
        traits.add(EXITS_ALIKE)
    name = name if saved is None else f"{name}[{saved}]"
    op = Op(name, Kind.LOOP, evaluate, rule, multiple=True, traits=frozenset(traits))
    if saved is not None:
        SAVED[op] = kept, saved
    return op


@cache
def results_made_of(op: Op) -> dict[int, list[int]] | None:
    """The outputs of a loop of paths of which others may be made in its last step -> these.  What is kept of the steps may be made of any
    result: it holds what the last one has saved.  Only gradients of gradients arrive there.  None for any other primitive."""
    if op not in SAVED or leaves_by_step(op):
        return None
    kept, saved = SAVED[op]
    end = kept + saved.results
    found = {i: [*range(kept), *range(end, end + saved.residuals)] for i in range(kept, end)}
    for i, k in saved.made_of:
        found[kept + i].append(kept + k)
    return {i: others for i, others in found.items() if others}


def _while_rule(*avals: Any, body: Body, carried: int) -> tuple[Aval, ...]:
    """Raises ValueError for operands that the body does not take."""
    graph = body.graph
    expected, out = [graph.avals[v] for v in graph.inputs], [graph.avals[v] for v in graph.outputs]  # type: ignore[index]
    if list(avals) != expected:
        raise ValueError(f"while: the body takes ({', '.join(map(str, expected))}), got ({', '.join(map(str, avals))})")
    if out != expected[:carried] or out[0] != Aval((), bool_):
        raise ValueError(
            f"while: the body carries on ({', '.join(map(str, out))}), other than a truth value and what it was given"
        )
    return tuple(out)  # type: ignore[arg-type]


def _evaluate_while(*operands: Any, body: Body, carried: int) -> tuple[Any, ...]:
    """A body that is applied as long as a truth value holds."""
    run, state, shared, step = _runner(body), operands[:carried], operands[carried:], 0
    while state[0]:
        state, step = _step(run, step, (*state, *shared)), step + 1
    return tuple([np.array(x) for x in state])


WHILE: Final = Op("while", Kind.LOOP, _evaluate_while, _while_rule, multiple=True, traits=frozenset({"may not end"}))

LOOP_OF_PATHS: Final = loop(0, exits_alike=True)
WHILE_OF_PATHS: Final = Op(
    "while_of_paths", Kind.LOOP, _evaluate_while, _while_rule, multiple=True, traits=frozenset({"may not end", EXITS_ALIKE})
)


def leaves_by_step(op: Op) -> bool:
    """Whether an exit of a loop has a number of its own for each step."""
    return EXITS_ALIKE not in op.traits
