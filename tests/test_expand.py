"""Composites: whole where gradients may be taken, expanded in programs, and one step of eager mode's tape under PyTorch's name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit.core.aval import Aval
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.ir.verifier import verify
from tracejit.passes.expand import expand
from tracejit.passes.pipeline import optimise, prepare

F = tracejit.nn.functional


def softmax_of(x: Any) -> Any:
    return REGISTRY["softmax"].of(x, dim=1) * 2.0


def test_a_program_holds_what_a_composite_stands_for() -> None:
    graph = prepare(trace(softmax_of, [Aval((2, 3), tracejit.float32)]))
    assert [node.op.name for node in graph.nodes] == ["softmax", "mul"]
    names = [node.op.name for node in optimise(graph, check=True).nodes]
    assert names == ["amax", "sub", "exp", "sum", "div", "mul"]


def test_a_graph_without_composites_is_itself() -> None:
    graph = trace(lambda x: x * 2.0, [Aval((2,), tracejit.float32)])
    assert expand(graph) is graph


def test_composites_that_are_alike_are_expanded_once_and_each_on_its_own_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def softmaxes(x: Any, y: Any) -> Any:
        softmax = REGISTRY["softmax"]
        first = softmax.of(x, dim=1)
        return softmax.of(first + y, dim=1), softmax.of(x * y, dim=0), softmax.of(y, dim=1)

    asked: list[int] = []
    expansion: Any = REGISTRY["softmax"].expansion

    def counted(x: Any, dim: int) -> Any:
        asked.append(dim)
        return expansion(x, dim=dim)

    graph = trace(softmaxes, [Aval((2, 3), tracejit.float32)] * 2)
    monkeypatch.setattr(REGISTRY["softmax"], "expansion", counted)
    expanded = verify(expand(graph))
    assert asked == [1, 0]
    assert [node.op.name for node in expanded.nodes].count("exp") == 4
    given = [np.random.default_rng(k).normal(size=(2, 3)).astype(np.float32) for k in range(2)]
    for found, expected in zip(interpret(expanded, given), interpret(graph, given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_composites_of_one_value_twice_are_not_like_those_of_two() -> None:
    def products(x: Any, y: Any) -> Any:
        addmm = REGISTRY["addmm"]
        return addmm.of(x, x, y), addmm.of(y, y, y), addmm.of(x, y, x)

    graph = trace(products, [Aval((3, 3), tracejit.float32)] * 2)
    given = [np.random.default_rng(k).normal(size=(3, 3)).astype(np.float32) for k in range(2)]
    expanded = verify(expand(graph))
    assert not any(node.op.kind is Kind.COMPOSITE for node in expanded.nodes)
    for found, expected in zip(interpret(expanded, given), interpret(graph, given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_an_expansion_that_disagrees_with_the_shape_rule_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = trace(softmax_of, [Aval((2, 3), tracejit.float32)])
    monkeypatch.setattr(REGISTRY["softmax"], "expansion", lambda x, dim: REGISTRY["sum"].of(x, dims=(dim,), keepdim=False))
    with pytest.raises(AssertionError, match="softmax: its expansion gives"):
        expand(graph)


def test_every_composite_has_an_expansion_and_no_other_primitive_has() -> None:
    for op in REGISTRY.values():
        assert (op.expansion is not None) == (op.kind is Kind.COMPOSITE), op.name


def names_of(x: Any) -> tuple[str, ...]:
    node = x.grad_fn
    assert node is not None and type(node).__name__ == node.name()
    return (node.name(), *["None" if n is None else n.name() for n, _ in node.next_functions])


EXPRESSIONS = [
    "x + y", "x - y", "2 - x", "x * y", "x / 2", "-x", "x ** 2", "x ** y", "x ** 0.5", "x @ y.T", "x.T @ x", "x.sum()",
    "x.sum(0)", "x.mean()", "x.mean(1)", "x.prod()", "x.max()", "x.amax(0)", "x.min()", "x.exp()", "x.log()", "x.log1p()",
    "x.sqrt()", "x.sin()", "x.tanh()", "x.sigmoid()", "x.relu()", "x.abs()", "x.t()", "b.transpose(0, 1)", "b.permute(2, 0, 1)",
    "x.view(4, 3)", "x.reshape(12)", "x.flatten()", "x.unsqueeze(0)", "x[None]", "x[0]", "x[:, 1:]", "x.expand(2, 3, 4)",
    "x.clone()", "x.double()", "x.softmax(1)", "x.log_softmax(1)", "x.cumsum(0)", "x.flip(0)", "F.linear(x, y)",
    "F.linear(x, y, v)", "F.linear(b, y, v)", "F.pad(x, (1, 1))", "F.layer_norm(x, (4,))",
    "F.batch_norm(x, None, None, training=True)", "F.conv2d(b[None], w)",
]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_nodes_have_the_names_that_pytorch_gives_them(expression: str) -> None:
    torch = pytest.importorskip("torch")

    def made(framework: Any) -> tuple[str, ...]:
        known: dict[str, Any] = {"F": framework.nn.functional}
        for name, shape in {"x": (3, 4), "y": (3, 4), "v": (3,), "b": (2, 3, 4), "w": (1, 2, 2, 2)}.items():
            known[name] = (framework.rand(shape) + 0.5).requires_grad_()
        return names_of(eval(expression, known))

    ours, theirs = made(tracejit), made(torch)
    assert ours[0] == theirs[0]


def test_the_graph_of_a_small_network_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")

    def chain(framework: Any) -> list[str]:
        nn = framework.nn
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        loss = nn.functional.cross_entropy(model(framework.ones(5, 3)), framework.tensor([0, 1, 0, 1, 1]))
        found, stack = [], [loss.grad_fn]
        while stack:
            node = stack.pop()
            if node is not None:
                found.append(type(node).__name__)
                stack += [n for n, _ in node.next_functions]
        return found

    theirs = [name for name in chain(torch) if name != "LogSoftmaxBackward0"]  # one step with the likelihood here
    assert sorted(chain(tracejit)) == sorted(theirs)


def test_looking_at_a_node_changes_nothing_but_its_class() -> None:
    x = tracejit.ones(3, requires_grad=True)
    y = x.exp().sum()
    assert y.grad_fn is y.grad_fn and y.grad_fn.next_functions[0][0].next_functions[0][0].name() == "AccumulateGrad"
    y.backward()
    assert x.grad.tolist() == x.exp().tolist()
