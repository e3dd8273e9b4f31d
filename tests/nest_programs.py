"""Graphs for the tests of fusion, schedules and programs: values with their gradients in one graph, and models in small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tracejit.ops  # noqa: F401  (fills the registry)
from tests.graph_programs import op
from tracejit.core import dtypes
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.interpreter import pushed
from tracejit.core.op import VjpContext
from tracejit.core.unbroadcast import sum_to
from tracejit.ir.builder import GraphBuilder, rebuild
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.tracer import ScalarTracer, Tracer, TracingInterpreter
from tracejit.passes.pipeline import optimise


def value_and_gradients(
    function: Callable[..., Any], avals: Sequence[Any], wanted: Sequence[int], after: Callable[..., Any] | None = None
) -> Graph:
    """One optimised graph: the scalar value of `function`, then its gradients for the arguments in `wanted` (or what `after`
    makes of value, gradients and arguments)."""
    builder = GraphBuilder()
    interpreter = TracingInterpreter(builder)
    arguments = [(ScalarTracer if isinstance(a, ScalarAval) else Tracer)(interpreter, builder.input(a), a) for a in avals]
    with pushed(interpreter):
        value = function(*arguments)
        nodes = list(builder.nodes)
        cotangents: dict[int, Any] = {value.id: op("full", 1.0, shape=value.shape, dtype=value.dtype)}
        needed = {arguments[k].id for k in wanted}
        for node in nodes:
            if any(isinstance(o, int) and o in needed for o in node.operands) and node.op.name != "detach":
                needed.update(node.outputs)
        for node in reversed(nodes):
            arriving = [cotangents.get(o) for o in node.outputs]
            if arriving[0] is None or node.op.name == "detach":
                continue
            needs = tuple(isinstance(o, int) and o in needed for o in node.operands)
            inputs = tuple(
                Tracer(interpreter, o, builder.avals[o]) if isinstance(o, int) else o.value if isinstance(o, Literal) else None
                for o in node.operands
            )
            outputs = tuple(Tracer(interpreter, o, builder.avals[o]) for o in node.outputs)
            avals_of = tuple(builder.avals[o] if isinstance(o, int) else None for o in node.operands)
            assert node.op.vjp_rule is not None, node.op.name
            found = node.op.vjp_rule(VjpContext(inputs, outputs, needs, avals_of, node.attrs), *arriving)
            for o, d, need in zip(node.operands, found if isinstance(found, tuple) else (found,), needs, strict=True):
                if need and d is not None:
                    d = sum_to(d, builder.avals[o].shape)
                    cotangents[o] = d if o not in cotangents else op("acc", cotangents[o], d)
        gradients = [cotangents[arguments[k].id] for k in wanted]
        results = (value, *gradients) if after is None else after(value, gradients, arguments)
    return optimise(builder.build([r.id for r in results]))


def log_softmax(x: Any) -> Any:
    dims = (x.ndim - 1,)
    shifted = x - op("detach", op("amax", x, dims=dims, keepdim=True))
    return shifted - op("log", op("sum", op("exp", shifted), dims=dims, keepdim=True))


def cross_entropy(logits: Any, target: Any) -> Any:
    rows = logits.shape[0]
    chosen = op("gather", log_softmax(logits), op("reshape", target, shape=(rows, 1)), dim=1)
    return -op("sum", chosen, dims=(0, 1), keepdim=False) / float(rows)


def linear(x: Any, w: Any, b: Any) -> Any:
    return x @ op("permute", w, dims=(1, 0)) + b


def mlp_loss(x: Any, target: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return cross_entropy(linear(op("relu", linear(x, w1, b1)), w2, b2), target)


def sgd_step(batch: int, inputs: int, hidden: int, classes: int) -> Graph:
    """A training step: value, and the new parameters (to be written)."""

    f = dtypes.float32
    avals = [
        Aval((batch, inputs), f),
        Aval((batch,), dtypes.int64),
        Aval((hidden, inputs), f),
        Aval((hidden,), f),
        Aval((classes, hidden), f),
        Aval((classes,), f),
        ScalarAval(float),
    ]

    def update(value: Any, gradients: Any, arguments: Any) -> Any:
        return (value, *(p - g * arguments[6] for p, g in zip(arguments[2:6], gradients, strict=True)))

    graph = value_and_gradients(lambda *a: mlp_loss(*a[:6]), avals, (2, 3, 4, 5), update)

    writes = tuple(zip(graph.inputs[2:6], graph.outputs[1:], strict=True))
    return rebuild(graph, graph.nodes, outputs=graph.outputs[:1], writes=writes)


def inputs_for(graph: Graph, seed: int = 0, classes: int = 3) -> list[Any]:
    """Arrays for the tensor inputs (integers below `classes`), 0.1 for floats."""
    generator = np.random.default_rng(seed)
    found: list[Any] = []
    for v in graph.inputs:
        aval = graph.avals[v]
        if isinstance(aval, ScalarAval):
            found.append(aval.python_type(0.1))
        elif aval.dtype.is_floating_point:
            found.append(generator.standard_normal(aval.shape).astype(aval.dtype.numpy))
        else:
            found.append(generator.integers(0, classes if aval.dtype.name != "bool" else 2, aval.shape).astype(aval.dtype.numpy))
    return found
