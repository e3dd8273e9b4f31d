"""Abstract values that build graphs: `Tracer`, and the interpreter behind it.

Whatever is written with ops and Python operators (vjp rules, compositions) runs on tracers unchanged: `TracingInterpreter.bind`
appends a node instead of computing.  A number known only at run time is a `ScalarTracer`; Python's arithmetic on such numbers
is done in float64 (int64) on tensors without dimensions which stay *weak*: beside a tensor they take that tensor's dtype, as the number
would.  A tracer has no contents: asking for them is an error.  This module knows neither Tensors nor gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tracejit.core import dtypes
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.interpreter import Interpreter, pushed, state
from tracejit.core.op import REGISTRY, Kind, Op, Promotion
from tracejit.core.operators import AbstractOperand
from tracejit.core.promotion import common_dtype, promote
from tracejit.core.symbolic import python_type
from tracejit.ir.builder import GraphBuilder
from tracejit.ir.graph import Body, Graph, Literal, Operand
from tracejit.ir.loop import DIFFERENTIABLE, FEWEST

__all__ = ["ScalarTracer", "Tracer", "TracingInterpreter", "trace"]


class Tracer(AbstractOperand):
    """A value of a graph under construction, which `interpreter` builds.  `aval` is its shape and dtype, `id` its name in the graph;
    `weak`: it stands for a Python number, so it does not take part in promotion."""

    __slots__ = ("aval", "id", "weak")

    def __init__(self, interpreter: Interpreter, id: int, aval: Any, weak: bool = False) -> None:
        self.interpreter = interpreter
        self.id = id
        self.aval = aval
        self.weak = weak

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.aval.shape
        return shape

    @property
    def dtype(self) -> dtypes.DType:
        dtype: dtypes.DType = self.aval.dtype
        return dtype

    def __repr__(self) -> str:
        return f"<{type(self).__name__} v{self.id}: {self.aval}>"


class ScalarTracer(Tracer):
    """A Python number supplied at each call; `aval` is a ScalarAval."""

    __slots__ = ()

    @property
    def dtype(self) -> dtypes.DType:
        return _SCALAR_DTYPES[self.aval.python_type]


_SCALAR_DTYPES = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64}


class TracingInterpreter(Interpreter):
    """Gives operations the meaning "append a node to `builder`".  `line` is stamped on new nodes.  With `track`, outputs
    require grad where grad mode is on and an operand requires grad (views of a tensor do not hear of later writes to it)."""

    def __init__(self, builder: GraphBuilder, track: bool = False) -> None:
        self.builder = builder
        self.line = ""
        self.track = track

    def bind(self, op: Op, operands: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
        builder = self.builder
        weak = False
        reduced = op.reduced(operands) if op.computes else None
        if reduced is not None:
            return op.in_float32(operands, attributes, reduced)
        for x in operands:
            kind = type(x)
            if kind is ScalarTracer or (kind is Tracer and x.weak):
                operands, weak = self._settle(op, operands)
                break
            if isinstance(x, np.ndarray | np.generic):
                return self.bind(op, tuple(map(self._lift, operands)), attributes)
        else:
            if op.promotion is not Promotion.NONE:
                operands = promote(op, operands)
        ids = builder.add(op, tuple(map(_operand, operands)), attributes, self.line)
        avals = builder.avals
        if self.track and state.grad_enabled and op.is_differentiable:
            marked = builder.requires_grad
            if any(isinstance(x, Tracer) and x.id in marked for x in operands):
                marked.update(v for v in ids if _differentiable(avals[v]))
        if op.multiple:
            return tuple(Tracer(self, v, avals[v]) for v in ids)
        return Tracer(self, ids[0], avals[ids[0]], weak)

    def run_scan(
        self, step: Any, carried: list[Any], sliced: list[Any], count: int, reverse: bool, shared: list[Any] | None = None
    ) -> Any:
        """A loop of two steps or more, whose body is a step traced by itself: no step is written out before it, as in a recording."""
        if shared is None or count < FEWEST:
            return None
        first, last = len(carried), len(carried) + len(sliced)

        def body(*given: Any) -> tuple[Any, ...]:
            on, collected = step([*given[:first]], [*given[first:last]], [*given[last:]])
            return (*on, *collected)

        rows = [Aval(x.shape[1:], x.dtype) for x in sliced]
        graph = trace(body, [*[x.aval for x in carried], *rows, *[x.aval for x in shared]])
        operands = (*carried, *sliced, *shared)
        attributes = {"body": Body(graph), "carried": first, "sliced": len(sliced), "count": count, "reverse": reverse}
        found = self.bind(DIFFERENTIABLE[0](first), operands, attributes)[first:]
        return [*found[:first]], [*found[first:]]

    def _lift(self, x: Any) -> Any:
        """A bare array becomes a constant of the graph."""
        if isinstance(x, np.ndarray | np.generic):
            value = self.builder.constant(np.array(x))
            return Tracer(self, value, self.builder.avals[value])
        return x

    def _settle(self, op: Op, operands: tuple[Any, ...]) -> tuple[tuple[Any, ...], bool]:
        """Operands promoted where some of them are run-time numbers, and whether the result is such a number itself."""
        operands = tuple(map(self._lift, operands))
        if op.promotion is Promotion.NONE:
            return operands, op.kind is Kind.ELEMENTWISE and all(
                x is None or isinstance(x, _NUMBERS) or _is_weak(x) for x in operands
            )
        if any(isinstance(x, Tracer) and not _is_weak(x) for x in operands):
            likenesses = tuple(_likeness(x) for x in operands)
            promoted = promote(op, likenesses)
            first = 1 if "condition first" in op.traits else 0
            target = common_dtype(likenesses[first:], op.promotion)
            cast = REGISTRY["cast"]
            return tuple(
                y
                if not _is_weak(x)
                else x
                if type(x) is ScalarTracer or i < first or x.dtype is target
                else self.bind(cast, (x,), {"dtype": target})
                for i, (x, y) in enumerate(zip(operands, promoted, strict=True))
            ), False
        kinds = [x.dtype if isinstance(x, Tracer) else _SCALAR_DTYPES[python_type(x)] for x in operands if x is not None]
        target = max(kinds, key=_WEAK_ORDER.index)
        if op.promotion is Promotion.FLOAT:
            target = dtypes.float64
        cast = REGISTRY["cast"]
        return tuple(
            self.bind(cast, (x,), {"dtype": target})
            if isinstance(x, Tracer) and (type(x) is ScalarTracer or x.dtype is not target)
            else x
            for x in operands
        ), True


_NUMBERS = (bool, int, float)
_WEAK_ORDER = (dtypes.bool_, dtypes.int64, dtypes.float64)
_LIKENESS = {dtypes.bool_: False, dtypes.int64: 0, dtypes.float64: 0.0}


def _is_weak(x: Any) -> bool:
    return isinstance(x, Tracer) and (x.weak or type(x) is ScalarTracer)


def _likeness(x: Any) -> Any:
    """A Python number that promotes as the run-time number `x` does."""
    return _LIKENESS[x.dtype] if _is_weak(x) else x


def _differentiable(aval: Any) -> bool:
    return isinstance(aval, Aval) and aval.dtype.is_floating_point


def _operand(x: Any) -> Operand:
    """The graph's operand for a value at the door.  Raises TypeError for anything that is not of this graph."""
    if isinstance(x, Tracer):
        return x.id
    if x is None:
        return None
    if isinstance(x, _NUMBERS):
        return Literal(x)
    raise TypeError(
        f"a graph under construction cannot hold a {type(x).__name__}; expected a Tracer, array, bool, int, float or None"
    )


def trace(function: Callable[..., Any], avals: Iterable[Aval | ScalarAval], requires_grad: Sequence[bool] = ()) -> Graph:
    """The graph of `function` called with one tracer per aval.  It returns a tracer, number or None, or a tuple of them."""
    builder = GraphBuilder()
    interpreter = TracingInterpreter(builder, track=any(requires_grad))
    arguments = [
        (ScalarTracer if isinstance(aval, ScalarAval) else Tracer)(interpreter, builder.input(aval), aval) for aval in avals
    ]
    builder.requires_grad.update(x.id for x, needs in zip(arguments, requires_grad, strict=False) if needs)
    with pushed(interpreter):
        result = function(*arguments)
    results = result if isinstance(result, tuple) else (result,)
    return builder.build(map(_operand, results))
