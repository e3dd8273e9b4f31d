"""Programs shared by the tests of graphs and passes: small functions over tracers, and random programs of views and writes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import tracejit.ops  # noqa: F401  (fills the registry)
from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY
from tracejit.ir.graph import Graph
from tracejit.ir.tracer import trace


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


@st.composite
def write_programs(draw: Any) -> Graph:
    """Raw graphs of two inputs (3, 4) and (2, 3), views, pure operations and writes, in any order."""
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=14
        )
    )

    def program(x: Any, y: Any) -> tuple[Any, ...]:
        values = [x, y]
        for kind, a, b, c in steps:
            values.append(_apply_step(values, kind, a, b, c))
        return tuple(values)

    return trace(program, (f64(3, 4), f64(2, 3)))


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
        return op("add", op("mul", x, 2.0), 1.0)
    fitting = [v for v in values if v.shape == x.shape[x.ndim - v.ndim :]]
    value = fitting[c % len(fitting)]
    if kind == 8:
        value = op("add", value, 1.0)
    return op("write", x, float(b)) if b % 7 == 0 else op("write", x, value)
