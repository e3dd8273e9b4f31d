"""Programs shared by the tests of graphs and passes: small functions over tracers, and random programs of views and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tracejit  # noqa: F401  (fills the registry)
from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.core.interpreter import Interpreter, pushed, state
from tracejit.core.op import REGISTRY, Effect
from tracejit.core.promotion import promote
from tracejit.ir.builder import GraphBuilder
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.tracer import trace
from tracejit.tensor import Tensor


def f32(*shape: int) -> Aval:
    return Aval(shape, dtypes.float32)


def f64(*shape: int) -> Aval:
    return Aval(shape, dtypes.float64)


def i64(*shape: int) -> Aval:
    return Aval(shape, dtypes.int64)


def op(name: str, *operands: Any, **attributes: Any) -> Any:
    """Apply the primitive called `name`."""
    return REGISTRY[name](*operands, **attributes)


def total(x: Any) -> Any:
    return op("sum", x, dims=tuple(range(x.ndim)), keepdim=False)


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def arrays_for(graph: Graph, seed: int = 0) -> list[Any]:
    """Inputs for a graph: arrays of small numbers, 1.5 for each Python float, 2 for each int."""
    generator = np.random.default_rng(seed)
    values: list[Any] = []
    for v in graph.inputs:
        aval = graph.avals[v]
        if not isinstance(aval, Aval):
            values.append(aval.python_type(1.5))
        elif aval.dtype.is_floating_point:
            values.append(generator.uniform(0.5, 2.0, aval.shape).astype(aval.dtype.numpy))
        else:
            values.append(generator.integers(0, 2, aval.shape).astype(aval.dtype.numpy))
    return values


def gelu_chain(x: Any) -> Any:
    y = 0.5 * x * (1.0 + op("tanh", 0.7978845608 * (x + 0.044715 * x**3)))
    return total(y * op("exp", -y * y))


def mean_last(x: Any) -> Any:
    return op("sum", x, dims=(x.ndim - 1,), keepdim=True) / x.shape[-1]


def softmax(x: Any) -> Any:
    e = op("exp", x - op("detach", op("amax", x, dims=(x.ndim - 1,), keepdim=True)))
    return e / op("sum", e, dims=(x.ndim - 1,), keepdim=True)


def layer_norm(x: Any) -> Any:
    centred = x - mean_last(x)
    return centred * op("rsqrt", mean_last(centred * centred) + 1e-5)


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    hidden = op("relu", x @ w1 + b1)
    out = hidden @ w2 + b2
    return total(out * out)


MLP_AVALS = (f64(4, 6), f64(6, 5), f64(5), f64(5, 3), f64(3))


class Recorder(Interpreter):
    """Runs operations eagerly and records the raw graph, with the marks that the eager tensors show."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        self.values: dict[int, int] = {}
        self.keep: list[Tensor] = []

    def define(self, tensor: Tensor, value: int) -> None:
        self.values[id(tensor)] = value
        self.keep.append(tensor)
        if tensor.requires_grad:
            self.builder.requires_grad.add(value)

    def bind(self, op: Any, operands: tuple[Any, ...], attributes: Any) -> Any:
        operands = promote(op, operands)
        recorded = tuple(self.values[id(x)] if isinstance(x, Tensor) else None if x is None else Literal(x) for x in operands)
        differentiable = state.grad_enabled and any(isinstance(x, Tensor) and x.requires_grad for x in operands)
        result = state.base.bind(op, operands, attributes)
        (value,) = self.builder.add(op, recorded, attributes)
        self.define(result, value)
        if op.effect is Effect.IN_PLACE and not differentiable:
            self.builder.requires_grad.discard(value)
        return result


def record(function: Any, arguments: Sequence[Tensor]) -> tuple[Graph, tuple[Tensor, ...]]:
    """The raw graph of an eager call, and what the call returned."""
    recorder = Recorder()
    for tensor in arguments:
        recorder.define(tensor, recorder.builder.input(Aval(tuple(tensor.shape), tensor.dtype)))
    with pushed(recorder):
        results = function(*arguments)
    return recorder.builder.build(recorder.values[id(t)] for t in results), results


WRITE_AVALS = (f64(3, 4), f64(2, 3))


@st.composite
def write_functions(draw: Any) -> Any:
    """Functions of two tensors, (3, 4) and (2, 3): views, pure operations, writes, under grad mode or not, in any order."""
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=14
        )
    )

    def program(x: Any, y: Any) -> tuple[Any, ...]:
        values = [x, y]
        for kind, a, b, c in steps:
            enabled, state.grad_enabled = state.grad_enabled, c % 5 > 0
            try:
                values.append(_apply_step(values, kind, a, b, c))
            finally:
                state.grad_enabled = enabled
        return tuple(values)

    return program


def write_programs() -> Any:
    """The raw graphs of `write_functions`."""
    return write_functions().map(lambda function: trace(function, WRITE_AVALS))


def _apply_step(values: list[Any], kind: int, a: int, b: int, c: int) -> Any:
    x = values[a % len(values)]
    dim = b % x.ndim if x.ndim else 0
    if kind <= 3 and x.ndim:
        size = x.shape[dim]
        if kind == 0 and size:
            return op("select", x, c % size, dim=dim)
        if kind == 1:
            start = c % (size + 1)
            return op("slice", x, dim=dim, start=start, stop=max(start, size - b % 2), step=1 + c % 2)
        if kind == 2:
            return op("permute", x, dims=tuple((i + b) % x.ndim for i in range(x.ndim)))
        if kind == 3 and x.ndim >= 2:
            return op("diagonal", x, offset=c % 3 - 1, dim1=0, dim2=1)
    if kind == 4:
        return op("reshape", x, shape=(1, *x.shape))  # aliases whatever the strides
    if kind == 5:
        return op("detach", x)
    if kind == 6:
        return op("clone", x)
    if kind == 7:
        return (lambda: x * 2.0 + 1.0, lambda: op("sin", x), lambda: op("tanh", x), lambda: x * x)[c % 4]()
    fitting = [v for v in values if v.shape == x.shape[x.ndim - v.ndim :]]
    value = fitting[c % len(fitting)]
    if kind == 8:
        value = op("add", value, 1.0)
    if b % 7 == 0:
        value = op("full", float(b), shape=(), dtype=x.dtype)
    return op("write", x, value if value.shape == x.shape else op("expand", value, shape=tuple(x.shape)))
