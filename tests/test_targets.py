"""Forced feature sets: programs for AVX-512, AVX2 and SSE2 widths have the same bits, and so has machine code that uses no more than
those instructions."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from nest_runner import NARROW, NARROWEST, TARGETS, WIDE, assert_same_bits

from tests.graph_programs import f32, f64, gelu_chain, i64, layer_norm, op, softmax, total
from tests.nest_programs import cross_entropy, inputs_for, value_and_gradients
from tests.random_graphs import random_graph
from tracejit.core import dtypes
from tracejit.ir.graph import Graph
from tracejit.ir.tracer import trace
from tracejit.llvm.driver import compile_program
from tracejit.llvm.host import host_target
from tracejit.llvm.reductions import Emitter
from tracejit.loops.expressions import Load
from tracejit.loops.language import Axis, Buffer, For, Index, Nest, Size, Store
from tracejit.loops.rewrites.pipeline import rewritten
from tracejit.loops.target import Target
from tracejit.runtime import program

MODELS = {
    "gelu chain": lambda: value_and_gradients(gelu_chain, [f32(1000)], [0]),
    "softmax of layer norm": lambda: value_and_gradients(
        lambda x, w: total(softmax(layer_norm(x)) * w), [f32(5, 301), f32(5, 301)], [0]
    ),
    "cross entropy": lambda: value_and_gradients(cross_entropy, [f32(33, 7), i64(33)], [0]),
    "functions in float64": lambda: trace(
        lambda x: (op("log", x), op("erf", x), op("sin", x), total(op("sigmoid", x)), op("tanh", x)), [f64(321)]
    ),
    "casts, masks and gathers": lambda: trace(
        lambda x, i: op(
            "where",
            op("lt", x, 1.0),
            op("index_select", op("cast", x, dtype=dtypes.int32), i, dim=0),
            op("cast", op("floor", x), dtype=dtypes.int32),
        ),
        [f32(37), i64(37)],
    ),
}
SSE2_FEATURES = frozenset({"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2"})


def has_avx2(feature: str) -> bool:
    """Whether a processor with AVX2 and without AVX-512 has a feature."""
    return not feature.startswith(("avx512", "amx", "avx10", "evex"))


PROCESSORS: dict[str, tuple[str, Callable[[str], bool], Target]] = {
    "AVX2": ("haswell", has_avx2, NARROW),
    "SSE2": ("x86-64", SSE2_FEATURES.__contains__, NARROWEST),
}


def run(graph: Graph, inputs: list[Any], target: Target) -> list[np.ndarray]:
    """Outputs, then written inputs, of a program for these widths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "compile_program", partial(compile_program, target=target))
        arrays = [x.copy(order="K") for x in inputs if isinstance(x, np.ndarray)]
        of_inputs = [v for v, x in zip(graph.inputs, inputs, strict=True) if isinstance(x, np.ndarray)]
        layouts = {v: tuple(s // x.itemsize for s in x.strides) for v, x in zip(of_inputs, arrays, strict=True)}
        built = program.build(graph, layouts)
        results = built.run(tuple(arrays), tuple(x for x in inputs if not isinstance(x, np.ndarray)))
    assert isinstance(results, tuple), f"exit {results}"
    return [np.asarray(x) for x in (*results, *arrays)]


def assert_all_same(actual: list[np.ndarray], expected: list[np.ndarray], what: str) -> None:
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        if a.dtype.kind in "fiub" and a.dtype != bool:
            assert_same_bits(np.ascontiguousarray(a).ravel(), np.ascontiguousarray(e).ravel(), what)
        else:
            np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize("model", MODELS)
def test_models_have_the_same_bits_for_every_width(model: str) -> None:
    graph = MODELS[model]()
    inputs = inputs_for(graph)
    expected = run(graph, inputs, WIDE)
    for target in TARGETS[1:]:
        assert_all_same(run(graph, inputs, target), expected, f"{model} on {target}")


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs_have_the_same_bits_for_every_width(seed: int) -> None:
    graph, inputs = random_graph(seed)
    expected = run(graph, inputs, WIDE)
    for target in TARGETS[1:]:
        assert_all_same(run(graph, inputs, target), expected, f"seed {seed} on {target}")


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="the feature sets are those of x86-64")
@pytest.mark.parametrize("processor", PROCESSORS)
def test_machine_code_for_other_processors_has_the_same_bits(processor: str, tmp_path: Path) -> None:
    if processor == "AVX2" and not llvm.get_host_cpu_features().get("avx2", False):
        pytest.skip("this processor cannot run AVX2 instructions")
    root = Path(__file__).parent.parent
    environment = {**os.environ, "TRACEJIT_CACHE": "0", "PYTHONPATH": os.pathsep.join([str(root), str(root / "tests")])}
    file = tmp_path / "results.npz"
    subprocess.run([sys.executable, __file__, processor, str(file)], env=environment, check=True, timeout=120)
    with np.load(file) as results:
        for model, make in MODELS.items():
            graph = make()
            expected = run(graph, inputs_for(graph), WIDE)
            assert_all_same([results[f"{model} {k}"] for k in range(len(expected))], expected, f"{model} on {processor}")


@pytest.mark.parametrize(("name", "gathers"), [("znver4", False), ("znver2", False), ("sapphirerapids", True), ("haswell", True)])
def test_elements_are_gathered_by_one_instruction_only_where_it_is_no_long_microprogram(
    name: str, gathers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: name)
    target = host_target.__wrapped__()
    assert target.gathers is gathers
    x, out, i, step = Buffer("x", dtypes.float32), Buffer("out", dtypes.float32), Axis("i"), Size("step")
    store = Store(out, Index(((i, 1),)), Load(x, Index(((i, step),))))
    nest = Nest("strided", (x, out), (step,), (), (For(i, target.lanes(4), (store,), vector=True),))
    assert ("@llvm.masked.gather" in Emitter(rewritten(nest, target), "nest", target).text()) is gathers


def _other_process(processor: str, file: str) -> None:
    """Evaluate the models as on another processor: LLVM is told of that one before anything is compiled."""
    name, has, target = PROCESSORS[processor]
    features = llvm.FeatureMap({f: enabled and has(f) for f, enabled in llvm.get_host_cpu_features().items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm, "get_host_cpu_name", lambda: name)
        patch.setattr(llvm, "get_host_cpu_features", lambda: features)
        assert host_target() == target, f"{processor}: {host_target()}"
        graphs = {model: make() for model, make in MODELS.items()}
        found = {f"{m} {k}": x for m, g in graphs.items() for k, x in enumerate(run(g, inputs_for(g), host_target()))}
    np.savez(file, **found)


if __name__ == "__main__":
    _other_process(*sys.argv[1:])
