"""Every program asks, before it computes anything, whether the arrays of a call are like those it was made for: whatever it holds, by
every backend, for every tensor that was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.graph_programs import f32, op, total
from tracejit.config import override
from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY
from tracejit.ir.builder import GraphBuilder, rebuild
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.tracer import trace
from tracejit.runtime.program import BACKENDS, build

SHAPE = (3, 3)
Function = Callable[..., Any]


def eye() -> np.ndarray[Any, Any]:
    return np.eye(3, dtype=np.float32) + np.arange(9, dtype=np.float32).reshape(SHAPE) / 16


def guarded(x: Any, y: Any) -> Any:
    op("guard", total(x) > 0.0, expected=Literal(True))
    return ()


def ones() -> Any:
    return op("full", 1.0, shape=(2,), dtype=dtypes.float32)


def squared(x: Any) -> Any:
    return x @ op("permute", x, dims=(1, 0)) + op("eye", rows=3, columns=3, dtype=dtypes.float32)


# What a program may hold; each is given two matrices, and reads both, one or none.
HOLDINGS: dict[str, Function] = {
    "nothing": lambda x, y: (),
    "an input": lambda x, y: y,
    "a number": lambda x, y: 2.5,
    "a constant": lambda x, y: ones(),
    "views": lambda x, y: (op("permute", x, dims=(1, 0)), op("slice", y, dim=0, start=1, stop=2, step=1)),
    "a guard": guarded,
    "a nest": lambda x, y: x * 2.0 + y,
    "a nest of one input": lambda x, y: op("exp", x),
    "a product": lambda x, y: x @ y,
    "a host step": lambda x, y: op("inv", x),
    "a host step that reads no input": lambda x, y: op("searchsorted", ones(), ones(), right=False),
    "host steps in a row": lambda x, y: op("det", op("inv", op("cholesky", squared(x)))),
    "nests around a host step": lambda x, y: op("exp", op("inv", x * 2.0)) + y,
    "a view of a host step's result": lambda x, y: op("permute", op("inv", y), dims=(1, 0)),
}


def with_dynamic_size() -> Graph:
    builder = GraphBuilder()
    x, _ = builder.input(f32(*SHAPE)), builder.input(f32(*SHAPE))
    (positions,) = builder.add(REGISTRY["nonzero"], (x,), {}, "", [Aval((9, 2), dtypes.int64)])
    return builder.build((positions,))


GRAPHS: dict[str, Callable[[], Graph]] = {
    **{name: (lambda f=f: trace(f, [f32(*SHAPE)] * 2)) for name, f in HOLDINGS.items()},
    "a size that depends on data": with_dynamic_size,
}


def misaligned(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    memory = np.empty(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)
    memory[...] = a
    return memory


def read_only(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    a = a.copy()
    a.flags.writeable = False
    return a


def spread(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    out = np.empty((a.shape[0], 2 * a.shape[1]), a.dtype)[:, ::2]
    out[...] = a
    return out


# Other arrays for a recorded one, none of which a program may take for it.
DEVIATIONS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "another dtype": lambda a: a.astype(np.float64),
    "another dtype of the same size": lambda a: a.view(np.int32),
    "the other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "a larger shape": lambda a: np.ones((4, 4), a.dtype),
    "a smaller shape": lambda a: a[:2].copy(),
    "no elements": lambda a: np.zeros((0, 3), a.dtype),
    "fewer dimensions": lambda a: a.reshape(9),
    "more dimensions": lambda a: a.reshape(1, 3, 3),
    "no dimensions": lambda a: a[:1, :1].reshape(()),
    "other strides": np.asfortranarray,
    "gaps": spread,
    "expanded": lambda a: np.lib.stride_tricks.as_strided(a, a.shape, (0, a.itemsize)),
    "reversed": lambda a: a[::-1],
    "misaligned": misaligned,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("holding", GRAPHS)
def test_a_program_refuses_arrays_of_other_metadata_whatever_it_holds(holding: str, backend: str) -> None:
    program = build(GRAPHS[holding](), {}, backend=backend)
    assert isinstance(program.run((eye(), eye()), ()), tuple)
    assert isinstance(program.run((read_only(eye()), read_only(eye())), ()), tuple)
    for name, deviate in DEVIATIONS.items():
        for position in range(2):
            arrays = [eye(), eye()]
            arrays[position] = deviate(arrays[position])
            assert program.run(tuple(arrays), ()) == 0, f"array {position}: {name}"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("holding", GRAPHS)
def test_a_program_that_writes_refuses_memory_that_it_may_not_write_to_whatever_else_it_holds(holding: str, backend: str) -> None:
    graph = GRAPHS[holding]()
    builder = GraphBuilder(max(graph.avals, default=0) + 1)
    builder.avals.update(graph.avals)
    (changed,) = builder.add(REGISTRY["add"], (graph.inputs[0], Literal(10.0)), {})
    graph = rebuild(graph, (*graph.nodes, *builder.nodes), avals=builder.avals, writes=((graph.inputs[0], changed),))
    program = build(graph, {}, backend=backend)
    memory = np.zeros(27, np.float32)
    for arrays in (
        (read_only(eye()), eye()),
        (memory[:9].reshape(SHAPE), memory[:9].reshape(SHAPE)),
        (memory[3:12].reshape(SHAPE), memory[:9].reshape(SHAPE)),
        (memory[:9].reshape(SHAPE), memory[8:17].reshape(SHAPE)),
    ):
        before = [a.copy() for a in arrays]
        assert program.run(arrays, ()) == 0
        for a, b in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(a, b)
    x, y = eye(), memory[9:18].reshape(SHAPE)
    y[...] = eye()
    assert isinstance(program.run((x, y), ()), tuple)
    np.testing.assert_array_equal(x, eye() + np.float32(10))
    assert isinstance(program.run((eye(), read_only(eye())), ()), tuple)


@pytest.mark.parametrize("backend", BACKENDS)
def test_strides_of_dimensions_of_one_and_of_empty_arrays_do_not_count(backend: str) -> None:
    program = build(trace(lambda x, y: op("inv", x), [f32(1, 1), f32(0, 3)]), {}, backend=backend)
    x, y = np.ones((1, 9), np.float32)[:, ::9], np.zeros((3, 0), np.float32).T
    assert isinstance(program.run((x, y), ()), tuple)


# --- the same through compile(): another call gives what the function gives

COMPILED: dict[str, Function] = {
    "returns its arguments": lambda x, y: (x, y),
    "returns a size": lambda x, y: (x.shape, y.ndim, T.linalg.det(x)),
    "returns a dtype": lambda x, y: (str(y.dtype), x.sum() * 1),
    "returns nothing": lambda x, y: (x + y, None)[1],
    "returns numbers": lambda x, y: (x.numel(), len(y)),
    "makes constants": lambda x, y: T.ones(x.shape[0]) * len(y),
    "makes views": lambda x, y: (x.t(), y[0], x.reshape(-1)),
    "drops what it computes": lambda x, y: (x.amin(1), T.sort(T.linspace(0, 1, 5))[0])[1],
    "reduces": lambda x, y: (x.sum(), y.amax()),
    "takes an inverse": lambda x, y: T.linalg.inv(x),
    "sorts": lambda x, y: T.sort(y)[0],
    "selects": lambda x, y: x[x > 0.5],
    "counts": lambda x, y: len((y > 0.5).nonzero()),
    "changes an argument": lambda x, y: (x.add_(1), T.linalg.pinv(y))[1],
    "changes an argument after a host step": lambda x, y: (i := T.linalg.pinv(y), x.copy_(i), x + y)[2],
}


def outcome(function: Function, arrays: list[np.ndarray[Any, Any]]) -> Any:
    """What a call comes to: its result or the type of its error, and what its arguments hold then."""
    tensors = [T.from_numpy(a) for a in arrays]
    try:
        result = function(*tensors)
    except Exception as error:
        result = type(error)
    return described(result), [a.tolist() for a in arrays]


def described(result: Any) -> Any:
    if isinstance(result, T.Tensor):
        values = [round(v, 4) for v in result.double().reshape(-1).tolist()]
        return tuple(result.shape), result.stride(), str(result.dtype), values
    return [described(r) for r in result] if isinstance(result, tuple | list) else result


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        (name, backend)
        for name in COMPILED
        for backend in BACKENDS
        if backend != "numba" or name in ("reduces", "returns nothing")
    ],
)  # Numba asks what "reference" asks, and compiles for each metadata
def test_a_compiled_function_gives_what_it_gives_for_arguments_of_other_metadata(name: str, backend: str) -> None:
    function = COMPILED[name]
    with override(backend=backend, max_entries=64):
        compiled = T.compile(function)
        assert outcome(compiled, [eye(), eye()]) == outcome(function, [eye(), eye()])
        assert outcome(compiled, [eye(), eye()]) == outcome(function, [eye(), eye()])
        assert compiled.stats.compiled_calls == 1, compiled.explain()
        for kind, deviate in DEVIATIONS.items():
            if kind == "the other byte order":
                continue  # no tensor can be made of such an array
            for position in range(2):
                calls = []
                for f in (function, compiled, compiled):
                    arrays = [eye(), eye()]
                    arrays[position] = deviate(arrays[position])
                    calls.append(outcome(f, arrays))
                assert calls[0] == calls[1] == calls[2], f"argument {position}: {kind}"
        shared = []
        for f in (function, compiled, compiled):
            memory = np.concatenate([eye().ravel(), eye().ravel()])
            shared.append([outcome(f, [memory[:9].reshape(SHAPE), memory[k : k + 9].reshape(SHAPE)]) for k in (0, 3)])
        assert shared[0] == shared[1] == shared[2]
