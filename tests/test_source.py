"""Tests of programs as modules: what `source()` prints runs without the library, in a process of its own, and computes the same."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.graph_programs import f32, f64, gelu_chain, i64, op
from tests.nest_programs import inputs_for, sgd_step, value_and_gradients
from tests.random_graphs import random_graph
from tracejit.core import dtypes
from tracejit.core.aval import Aval
from tracejit.ir.graph import Graph
from tracejit.ir.tracer import trace
from tracejit.loops.numba_library import memory
from tracejit.ops.creation import ArrayConstant
from tracejit.runtime.program import build

RUNNER = """
import pickle, sys
sys.modules["tracejit"] = None  # importing it is an error
import numpy as np
found = {}
with open(sys.argv[1], "rb") as file:
    calls = pickle.load(file)
for name, (source, function, packed) in calls.items():
    arguments = [np.ndarray(*x[0]) if isinstance(x, tuple) else x for x in packed]
    scope = {"__name__": name}
    exec(compile(source, name, "exec"), scope)
    try:
        with np.errstate(all="ignore"):
            found[name] = scope[function](*arguments), arguments
    except Exception as error:
        found[name] = repr(error), arguments
with open(sys.argv[1], "wb") as file:
    pickle.dump(found, file)
"""


def alone(calls: dict[str, tuple[str, str, list[Any]]], path: Path) -> dict[str, tuple[Any, list[Any]]]:
    """name -> (source, function, arguments) run where the library cannot be imported: (what came back, the arguments afterwards)."""
    packed = {name: (source, function, list(map(described, arguments))) for name, (source, function, arguments) in calls.items()}
    path.write_bytes(pickle.dumps(packed))
    done = subprocess.run([sys.executable, "-c", RUNNER, str(path)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[Any, list[Any]]] = pickle.loads(path.read_bytes())
    return found


def described(x: Any) -> Any:
    """What an array with these strides is made of."""
    if not isinstance(x, np.ndarray):
        return x
    start = -sum(min(s, 0) * (n - 1) for n, s in zip(x.shape, x.strides, strict=True)) if x.size else 0
    return ((x.shape, x.dtype, bytearray(memory(x).tobytes()), start, x.strides),)


def own(inputs: list[Any]) -> list[Any]:
    """Copies with the same strides."""
    copies = []
    for x in inputs:
        if isinstance(x, np.ndarray) and x.size:
            turned = (..., *(slice(None, None, -1) if s < 0 else slice(None) for s in x.strides))
            copies.append(x[turned].copy(order="K")[turned])
        else:
            copies.append(x.copy() if isinstance(x, np.ndarray) else x)
    return copies


def layouts_of(graph: Graph, inputs: list[Any]) -> dict[int, tuple[int, ...]]:
    given = zip(graph.inputs, inputs, strict=True)
    return {v: tuple(s // x.itemsize for s in x.strides) for v, x in given if isinstance(x, np.ndarray)}


def split(inputs: list[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(x for x in inputs if isinstance(x, np.ndarray)), tuple(x for x in inputs if not isinstance(x, np.ndarray))


def reduced(name: str) -> Graph:
    aval = Aval((5, 3), getattr(dtypes, name))
    return trace(lambda x: op("cast", op("cast", x, dtype=dtypes.float32) * 1.1, dtype=aval.dtype), [aval])


PROGRAMS: dict[str, Callable[[], Graph]] = {
    "training step": lambda: sgd_step(4, 7, 5, 3),  # products, numbers, writes
    "value and gradient": lambda: value_and_gradients(gelu_chain, [f32(40)], [0]),
    "float16": lambda: reduced("float16"),
    "bfloat16": lambda: reduced("bfloat16"),
    "sums of products": lambda: trace(lambda a, c: op("sum", a @ c, dims=(0,), keepdim=False), [f64(3, 4, 5), f64(3, 5, 2)]),
    "constant": lambda: trace(lambda x: x + op("constant", array=ArrayConstant(np.arange(3.0))), [f64(3)]),
    "draws": lambda: trace(lambda s: op("random_normal", s, shape=(9,), dtype=dtypes.float64), [i64(2)]),
    "scan, argmax and gather": lambda: trace(
        lambda x, k: (op("cumsum", x, dim=1), op("argmax", x, dim=1, keepdim=False), op("gather", x, k, dim=1)),
        [f64(3, 20), i64(3, 2)],
    ),
    "operation of the host that is NumPy's": lambda: trace(lambda x: op("logcumsumexp", x * 2.0, dim=0) + 1.0, [f64(3, 3)]),
    **{f"random graph {seed}": lambda seed=seed: random_graph(seed)[0] for seed in (1, 2, 6)},  # type: ignore[misc]
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """name -> (what the library's program gives, its arguments afterwards, the same of its source)."""
    calls, expected = {}, {}
    for name, make in PROGRAMS.items():
        graph = make()
        inputs = random_graph(int(name.split()[-1]))[1] if name.startswith("random") else inputs_for(graph)
        inputs = [np.asarray(x) if isinstance(x, np.generic) else x for x in inputs]
        program = build(graph, layouts_of(graph, inputs))
        calls[name] = (program.source(), "run", own(inputs))
        given = own(inputs)
        expected[name] = program.run(*split(given)), given
    found = alone(calls, tmp_path_factory.mktemp("source") / "calls")
    return {name: (*expected[name], *found[name]) for name in PROGRAMS}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_source_of_a_program_computes_the_same_without_the_library(name: str, results: dict[str, Any]) -> None:
    wanted, arguments, found, left = results[name]
    assert isinstance(wanted, tuple) and isinstance(found, tuple), found
    for a, e in zip((*found, *left), (*wanted, *arguments), strict=True):
        if isinstance(e, np.ndarray) and e.dtype.kind in "fV":
            assert a.dtype == e.dtype and a.shape == e.shape
            tolerance = (
                1e-5 if name in ("training step", "sums of products") else 0
            )  # which product runs is no part of the source
            np.testing.assert_allclose(a.astype(np.float64), e.astype(np.float64), rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(a, e)


def step(x: T.Tensor, w: T.Tensor, scale: float) -> tuple[T.Tensor, T.Tensor]:
    h = T.tanh(x @ w) * scale
    return h.softmax(-1), h.sum()


def test_the_source_of_a_function_holds_its_backward_programs_too(tmp_path: Path) -> None:
    compiled = T.compile(step)
    x, w = T.randn(4, 3), T.randn(3, 5, requires_grad=True)
    for _ in range(2):
        w.grad = None
        a, total = compiled(x, w, 0.5)
        (a.max() + total).backward()
    source = compiled.source()
    call = f"""{source}
def both(x, w, scale, g, h):
    *outputs, slab = run(x, w, scale)
    return *outputs, *backward0(x, g, h, slab, scale)
"""
    assert "tracejit" not in source and source.count("def run(") == source.count("def backward0(") == 1
    g = np.zeros((4, 5), np.float32)
    g.flat[int(a.argmax())] = 1.0
    arguments = [x.numpy(), w.detach().numpy(), 0.5, g, np.ones((), np.float32)]
    (found,) = alone({"step": (call, "both", arguments)}, tmp_path / "calls").values()
    first, summed, gradient = found[0]
    for actual, expected in ((first, a), (summed, total), (gradient, w.grad)):
        np.testing.assert_allclose(actual, expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_an_exit_an_unexpected_array_and_an_operation_of_the_library_are_told(tmp_path: Path) -> None:
    gather = trace(lambda x, k: op("gather", x, k, dim=0), [f64(5), i64(2)])
    minors = trace(lambda x: op("cofactor", x), [f64(2, 2)])
    k = np.array([0, 7])
    calls = {
        "exit": (build(gather, {}).source(), "run", [np.zeros(5), k]),
        "array": (build(gather, {}).source(), "run", [np.zeros(10)[::2], k]),
        "operation": (build(minors, {}).source(), "run", [np.eye(2)]),
    }
    found = {name: result for name, (result, _) in alone(calls, tmp_path / "calls").items()}
    assert found["exit"] == build(gather, {}).run((np.zeros(5), k), ())
    assert "expected an array of float64 of shape (5,) and strides (8,), got float64" in found["array"]
    assert "NotImplementedError" in found["operation"] and "cofactor is computed by" in found["operation"]
