"""Random pure graphs over most primitives, with strided inputs, for comparing programs with the oracle.

`random_graph(seed)` gives a graph and inputs for it; equal seeds give equal graphs.  Values stay small, sizes are those that loops get
wrong: 0, 1, 3, 17.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import tracejit.ops  # noqa: F401  (fills the registry)
from tests.graph_programs import op
from tracejit.core import dtypes
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.interpreter import pushed
from tracejit.ir.builder import GraphBuilder, rebuild
from tracejit.ir.graph import Graph
from tracejit.ir.tracer import ScalarTracer, Tracer, TracingInterpreter
from tracejit.ops.creation import ArrayConstant

DTYPES = (*[dtypes.float32] * 4, dtypes.float64, dtypes.int64, dtypes.int32, dtypes.bool_, dtypes.uint8)
UNARY = ("exp", "tanh", "relu", "sin", "abs", "sigmoid", "floor")
BINARY = ("add", "sub", "mul", "maximum", "minimum", "lt", "eq")
Step = Callable[["Maker", Any], Any]


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


class Maker:
    """A graph in the making: choices, and the values so far."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.builder = GraphBuilder()
        self.values: list[Any] = []
        self.number: Any = 1.5

    def pick(self, fits: Callable[[Any], bool] = lambda x: True) -> Any:
        found = [v for v in self.values if fits(v)]
        return self.choose.choice(found[-6:]) if found else None

    def dim(self, x: Any) -> int:
        return self.choose.randrange(x.ndim)

    def dims(self, x: Any) -> tuple[int, ...]:
        return tuple(sorted(self.choose.sample(range(x.ndim), self.choose.randint(1, x.ndim))))

    def index(self, shape: tuple[int, ...], size: int) -> Any:
        """A constant tensor of positions below `size`."""
        generator = np.random.default_rng(self.choose.randint(0, 1 << 30))
        dtype = self.choose.choice([np.int64, np.int32])
        return op("constant", array=ArrayConstant(generator.integers(0, size, shape).astype(dtype)))


def floating(x: Any) -> Any:
    return x if x.dtype.is_floating_point else op("cast", x, dtype=dtypes.float32)


def unary(m: Maker, x: Any) -> Any:
    return op(m.choose.choice(UNARY), op("minimum", floating(x), 3.0))


def binary(m: Maker, x: Any) -> Any:
    x = op("cast", x, dtype=dtypes.int32) if x.dtype is dtypes.bool_ else x
    other = (
        m.pick(lambda y: broadcasts(x.shape, y.shape)) if m.choose.random() < 0.8 else m.choose.choice([2.0, 0.5, 3, m.number])
    )
    return op(m.choose.choice(BINARY), x, other)


def choice(m: Maker, x: Any) -> Any:
    condition = m.pick(lambda y: y.dtype is dtypes.bool_ and broadcasts(x.shape, y.shape))
    return None if condition is None else op("where", condition, x, 1)


def reduction(m: Maker, x: Any) -> Any:
    name = m.choose.choice(["sum", "sum", "sum", "amax", "amin", "prod", "any", "all"])
    dims = m.dims(x)
    if name in ("amax", "amin") and any(x.shape[d] == 0 for d in dims):
        return None
    return op(name, op("minimum", floating(x), 1.1) if name == "prod" else x, dims=dims, keepdim=m.choose.random() < 0.5)


def position(m: Maker, x: Any) -> Any:
    dim = m.dim(x)
    return op(m.choose.choice(["argmax", "argmin"]), x, dim=dim, keepdim=m.choose.random() < 0.5) if x.shape[dim] else None


def permute(m: Maker, x: Any) -> Any:
    return op("permute", x, dims=tuple(m.choose.sample(range(x.ndim), x.ndim)))


def reshape(m: Maker, x: Any) -> Any:
    n = int(np.prod(x.shape))
    shapes = [(n,), *((n // q, q) for q in (2, 3, 5, 17) if n and n % q == 0), *((q, n // q) for q in (2, 3) if n and n % q == 0)]
    if x.ndim < 3:
        shapes.append((*x.shape[:1], 1, *x.shape[1:]))
    return op("reshape", x, shape=m.choose.choice(shapes))


def expand(m: Maker, x: Any) -> Any:
    shape = tuple(m.choose.choice([1, 3, 4]) if s == 1 else s for s in x.shape)
    return op("expand", x, shape=(m.choose.choice([1, 2, 4]), *shape) if x.ndim < 3 else shape)


def window(m: Maker, x: Any) -> dict[str, int]:
    dim = m.dim(x)
    start = m.choose.randint(0, x.shape[dim])
    return {"dim": dim, "start": start, "stop": m.choose.randint(start, x.shape[dim]), "step": m.choose.randint(1, 2)}


def slice_(m: Maker, x: Any) -> Any:
    return op("slice", x, **window(m, x))


def slice_scatter(m: Maker, x: Any) -> Any:
    where = window(m, x)
    return op("slice_scatter", x, op("slice", op("flip", x, dims=(where["dim"],)), **where), **where)


def moving_window(m: Maker, x: Any) -> dict[str, int]:
    dim = m.dim(x)
    return {"dim": dim, "length": m.choose.randint(1, x.shape[dim])} if x.shape[dim] else {}


def a_position(m: Maker, x: Any, dim: int, length: int) -> Any:
    """A number, or a tensor that the program computes."""
    k = m.choose.randint(0, x.shape[dim] - length)
    return k if m.choose.random() < 0.5 else op("full", k, shape=(), dtype=dtypes.int64)


def dynamic_slice(m: Maker, x: Any) -> Any:
    where = moving_window(m, x)
    return op("dynamic_slice", x, a_position(m, x, **where), **where) if where else None


def dynamic_slice_scatter(m: Maker, x: Any) -> Any:
    where = moving_window(m, x)
    if not where:
        return None
    part = op("dynamic_slice", op("flip", x, dims=(where["dim"],)), a_position(m, x, **where), **where)
    return op("dynamic_slice_scatter", x, part, a_position(m, x, **where), **where)


def select(m: Maker, x: Any) -> Any:
    dim = m.dim(x)
    return op("select", x, m.choose.randrange(x.shape[dim]), dim=dim) if x.shape[dim] else None


def select_scatter(m: Maker, x: Any) -> Any:
    dim = m.dim(x)
    if not x.shape[dim]:
        return None
    k = m.choose.randrange(x.shape[dim])
    return op("select_scatter", x, op("select", x, x.shape[dim] - 1 - k, dim=dim), k, dim=dim)


def diagonal(m: Maker, x: Any) -> Any:
    if x.ndim < 2:
        return None
    a, b = m.choose.sample(range(x.ndim), 2)
    if m.choose.random() < 0.5:
        return op("diagonal", x, offset=m.choose.randint(-1, 1) if min(x.shape[a], x.shape[b]) > 1 else 0, dim1=a, dim2=b)
    turned = op("diagonal", op("flip", x, dims=(a,)), offset=0, dim1=a, dim2=b)
    return op("diagonal_scatter", x, turned, offset=0, dim1=a, dim2=b)


def cat(m: Maker, x: Any) -> Any:
    dim = m.dim(x)

    def others(y: Any) -> tuple[int, ...]:
        return (*y.shape[:dim], *y.shape[dim + 1 :])

    other = m.pick(lambda y: y.dtype is x.dtype and y.ndim == x.ndim and others(y) == others(x))
    return op("cat", x, other, x, dim=dim)


def flip(m: Maker, x: Any) -> Any:
    return op("flip", x, dims=m.dims(x))


def pad(m: Maker, x: Any) -> Any:
    low, high = (tuple(m.choose.randint(0, 2) for _ in x.shape) for _ in range(2))
    return op("pad", x, 1, low=low, high=high)


def creation(m: Maker, x: Any) -> Any:
    if m.choose.random() < 0.5:
        return op("full", m.choose.choice([0.0, 2.5]), shape=x.shape, dtype=dtypes.float32)
    dtype = m.choose.choice([dtypes.float32, dtypes.int64])
    return op("arange", m.choose.choice([0, 1.5]), m.choose.choice([1, 2, 0.5]), length=m.choose.randint(0, 5), dtype=dtype)


def cumsum(m: Maker, x: Any) -> Any:
    return None if x.dtype is dtypes.bool_ else op("cumsum", x, dim=m.dim(x))


def gather(m: Maker, x: Any) -> Any:
    dim = m.dim(x)
    if not x.shape[dim]:
        return None
    index = m.index((*x.shape[:dim], m.choose.choice([1, 1, 2]), *x.shape[dim + 1 :]), x.shape[dim])
    chosen = op("gather", x, index, dim=dim)
    name = m.choose.choice(["gather", "scatter", "scatter_add"])
    return chosen if name == "gather" else op(name, x, index, chosen, dim=dim)


def index_select(m: Maker, x: Any) -> Any:
    dim = m.dim(x)
    if not x.shape[dim] or x.dtype is dtypes.bool_:
        return None
    index = m.index(m.choose.choice([(), (2,), (3, 2)]), x.shape[dim])
    chosen = op("index_select", x, index, dim=dim)
    return chosen if m.choose.random() < 0.5 else op("index_add", x, index, chosen, dim=dim)


def matmul(m: Maker, x: Any) -> Any:
    def fits(y: Any) -> bool:
        return bool(y.ndim >= 2 and y.shape[-2] == x.shape[-1] and broadcasts(x.shape[:-2], y.shape[:-2]))

    y = m.pick(fits) if x.ndim >= 2 else None
    if y is None:
        return None
    dtype = m.choose.choice([dtypes.float32, dtypes.float64, dtypes.int64])
    return op("matmul", op("cast", x, dtype=dtype), op("cast", y, dtype=dtype))


ANY_RANK: tuple[Step, ...] = (unary, unary, unary, binary, binary, binary, binary, choice, reshape, expand, creation)
WITH_DIMENSIONS: tuple[Step, ...] = (
    *(reduction, reduction, reduction, position, permute, permute, slice_, select, diagonal, slice_scatter, select_scatter),
    *(dynamic_slice, dynamic_slice_scatter, cat, flip, pad, cumsum, gather, gather, index_select, matmul, matmul),
)


def strided(m: Maker, x: Any) -> Any:
    """The same contents in another layout, sometimes."""
    if not x.ndim:
        return np.asarray(x)
    kind = m.choose.choice(["row-major", "row-major", "column-major", "every second", "backwards"])
    if kind == "column-major":
        return np.ascontiguousarray(x.T).T
    if kind == "every second":
        out = np.zeros(tuple(2 * s for s in x.shape), x.dtype)[tuple(slice(None, None, 2) for _ in x.shape)]
        out[...] = x
        return out
    if kind == "backwards":
        turn = tuple(slice(None, None, -1) for _ in x.shape)
        return x[turn].copy()[turn]
    return x


def random_graph(seed: int, steps: int = 12) -> tuple[Graph, list[Any]]:
    """A graph with a few outputs and writes, and inputs for it."""
    m = Maker(seed)
    sizes = [m.choose.choice([0, 1, 2, 3, 3, 4, 5, 17, 17]) for _ in range(3)]
    arguments: list[Any] = []
    interpreter = TracingInterpreter(m.builder)
    for _ in range(m.choose.randint(1, 4)):
        rank = m.choose.randint(0, 3)
        aval = Aval(tuple(m.choose.choice([s, s, s, 1]) for s in sizes[3 - rank :]) if rank else (), m.choose.choice(DTYPES))
        arguments.append(Tracer(interpreter, m.builder.input(aval), aval))
    m.values.extend(arguments)
    if m.choose.random() < 0.3:
        number = ScalarAval(m.choose.choice([float, int]))
        m.number = ScalarTracer(interpreter, m.builder.input(number), number)
    with pushed(interpreter):
        for _ in range(m.choose.randint(2, steps)):
            x = m.pick()
            made = m.choose.choice(ANY_RANK if not x.ndim or m.choose.random() < 0.4 else WITH_DIMENSIONS)(m, x)
            if made is not None and made.ndim <= 4 and made.aval.size <= 3000:
                m.values.append(made)
    outputs = {v.id: v for v in (*m.choose.sample(m.values, min(len(m.values), 2)), m.values[-1])}
    graph = m.builder.build(outputs)
    writes = []
    for a in arguments:
        same = [v for v in m.values if v.shape == a.shape and v.dtype is a.dtype and v is not a]
        if same and a.id not in outputs and m.choose.random() < 0.4:
            writes.append((a.id, m.choose.choice(same).id))
    graph = rebuild(graph, graph.nodes, writes=tuple(writes))
    generator = np.random.default_rng(seed)
    inputs: list[Any] = []
    for v in graph.inputs:
        aval = graph.avals[v]
        if isinstance(aval, ScalarAval):
            inputs.append(aval.python_type(1.5))
        elif aval.dtype.is_floating_point:
            inputs.append(strided(m, generator.standard_normal(aval.shape).astype(aval.dtype.numpy)))
        else:
            inputs.append(
                strided(m, generator.integers(0, 2 if aval.dtype is dtypes.bool_ else 5, aval.shape).astype(aval.dtype.numpy))
            )
    return graph, inputs
