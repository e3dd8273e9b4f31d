"""Attention written by hand runs in blocks where it is long (passes/attention_formula.py), forward and backward, and gives the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_programs import names

import tracejit as T
from tracejit.core.attention_blocks import rows_of_block
from tracejit.ir.tracer import trace
from tracejit.nn.functional import softmax
from tracejit.passes import attention_formula as passes
from tracejit.passes.attention_formula import attention_formula

BATCH, HEADS, LENGTH, SOURCE, SIZE = 2, 3, 13, 11, 4


@pytest.fixture(autouse=True)
def short_ones_have_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "rows_of_block", lambda query, key, causal: 4)


def normal(*shape: int, seed: int = 0) -> T.Tensor:
    return T.tensor(np.random.default_rng(seed).standard_normal(shape))


def triangle() -> T.Tensor:
    return T.arange(LENGTH).reshape(LENGTH, 1) >= T.arange(SOURCE)


def padding() -> T.Tensor:
    return (T.arange(SOURCE) < T.tensor([[SOURCE], [SOURCE // 2]])).reshape(BATCH, 1, 1, SOURCE)


Formula = Callable[[Any, Any, Any], Any]
FORMULAS: dict[str, Formula] = {
    "scaled": lambda q, k, v: softmax(q @ k.transpose(-2, -1) * 0.5, -1) @ v,
    "divided": lambda q, k, v: softmax(q @ k.mT / SIZE**0.5, 3) @ v,
    "a number first": lambda q, k, v: (2.0 * (q @ k.mT) * 0.3).softmax(dim=-1) @ v,
    "not scaled": lambda q, k, v: softmax(q @ k.mT, -1).matmul(v),
    "queries scaled": lambda q, k, v: softmax((q * 0.5) @ k.mT, -1) @ v,
    "masked_fill": lambda q, k, v: softmax((q @ k.mT * 0.5).masked_fill(~triangle(), float("-inf")), -1) @ v,
    "where": lambda q, k, v: softmax(T.where(triangle(), q @ k.mT * 0.5, float("-inf")), -1) @ v,
    "padding": lambda q, k, v: softmax((q @ k.mT * 0.5).masked_fill(~padding(), float("-inf")), -1) @ v,
    "addends": lambda q, k, v: softmax(q @ k.mT * 0.5 + normal(LENGTH, SOURCE, seed=5), -1) @ v,
    "addends of each": lambda q, k, v: softmax(normal(BATCH, HEADS, LENGTH, SOURCE, seed=5) + q @ k.mT, -1) @ v,
    "addends of keys": lambda q, k, v: softmax(q @ k.mT + normal(SOURCE, seed=5), -1) @ v,
    "one head": lambda q, k, v: softmax(q[0, 0] @ k[0, 0].T * 0.5, -1) @ v[0, 0],
    "a row that sees nothing": lambda q, k, v: (
        softmax(T.where(T.arange(LENGTH).reshape(LENGTH, 1) != 3, q @ k.mT, float("-inf")), -1) @ v
    ),
}


def operands() -> list[T.Tensor]:
    shapes = [(BATCH, HEADS, n, SIZE) for n in (LENGTH, SOURCE, SOURCE)]
    return [normal(*shape, seed=k).requires_grad_() for k, shape in enumerate(shapes)]


def in_blocks(compiled: Any) -> bool:
    """Whether a program has attention in blocks: nothing of it has a value for each query and key."""
    (executable,) = compiled.stats.executables
    return "loop" in "".join(node.op.name for node in executable.graph.nodes) and not any(
        tuple(executable.graph.avals[v].shape[-2:]) == (LENGTH, SOURCE) and node.op.name in ("exp", "matmul")
        for node in executable.graph.nodes
        for v in node.outputs
    )


def compared(function: Callable[..., list[Any]], *given: Any) -> Any:
    """The compiled function, which gives what the eager one does."""
    compiled = T.compile(function)
    for _ in range(2):
        found = compiled(*given)
    assert compiled.stats.compiled_calls == 1, compiled.explain()
    for x, expected in zip(found, function(*given), strict=True):
        np.testing.assert_allclose(x.detach().numpy(), expected.detach().numpy(), rtol=1e-11, atol=1e-12)
    return compiled


@pytest.mark.parametrize("name", FORMULAS)
def test_a_step_of_attention_written_by_hand_is_in_blocks_and_equal(name: str) -> None:
    def step(*qkv: Any) -> list[Any]:
        out = FORMULAS[name](*qkv)
        return [out.detach(), *T.autograd.grad((out * out).sum(), qkv)]

    assert in_blocks(compared(step, *operands()))


@pytest.mark.parametrize("name", ["scaled", "masked_fill"])
def test_attention_without_gradients_is_in_blocks(name: str) -> None:
    with T.no_grad():
        assert in_blocks(compared(lambda *qkv: [FORMULAS[name](*qkv)], *operands()))


def test_gradients_of_some_operands_alone_are_in_blocks() -> None:
    q, k, v = operands()
    for wanted in ([q], [k], [v], [q, v], [k, q]):

        def step(q: Any, k: Any, v: Any, wanted: Any = wanted) -> list[Any]:
            return list(T.autograd.grad(FORMULAS["scaled"](q, k, v).square().sum(), wanted))

        others = [x if any(x is w for w in wanted) else x.detach() for x in (q, k, v)]
        assert in_blocks(compared(step, *others)), len(wanted)


def loss_and_gradients(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    def step(*qkv: Any) -> list[Any]:
        given = function(*qkv)
        return [*[x.detach() for x in given], *T.autograd.grad(given[0].square().sum(), qkv)]

    return step


def weights_too(q: Any, k: Any, v: Any) -> Any:
    weights = softmax(q @ k.mT * 0.5, -1)
    return weights @ v, weights


def scores_too(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT * 0.5
    return softmax(scores, -1) @ v, scores


def penalised(q: Any, k: Any, v: Any) -> Any:
    weights = softmax(q @ k.mT * 0.5, -1)
    return (weights @ v + weights.square().sum(),)


def dropped(q: Any, k: Any, v: Any) -> Any:
    T.manual_seed(0)
    return (T.nn.functional.dropout(softmax(q @ k.mT * 0.5, -1), 0.3) @ v,)


def of_columns(q: Any, k: Any, v: Any) -> Any:
    return (softmax(q @ k.mT * 0.5, -2) @ v,)


def scaled_after_the_mask(q: Any, k: Any, v: Any) -> Any:
    return (softmax((q @ k.mT + normal(LENGTH, SOURCE, seed=5)) * 0.5, -1) @ v,)


@pytest.mark.parametrize("function", [weights_too, scores_too, penalised, dropped, of_columns, scaled_after_the_mask])
def test_what_else_reads_scores_or_weights_keeps_them(function: Callable[..., Any]) -> None:
    assert not in_blocks(compared(loss_and_gradients(function), *operands()))


def test_a_mask_with_a_gradient_keeps_the_weights() -> None:
    mask = normal(LENGTH, SOURCE, seed=6).requires_grad_()

    def step(*given: Any) -> list[Any]:
        q, k, v, mask = given
        return list(T.autograd.grad((softmax(q @ k.mT + mask, -1) @ v).square().sum(), given))

    assert not in_blocks(compared(step, *operands(), mask))


def test_short_attention_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "rows_of_block", rows_of_block)
    with T.no_grad():
        assert not in_blocks(compared(lambda *qkv: [FORMULAS["scaled"](*qkv)], *operands()))


def test_the_formula_is_one_node_and_a_graph_without_it_the_same_graph() -> None:
    avals = [x.aval if hasattr(x, "aval") else T.core.aval.Aval(x.shape, x.dtype) for x in operands()]
    from_ops = T.core.op.REGISTRY

    def formula(q: Any, k: Any, v: Any) -> Any:
        scores = from_ops["matmul"].of(q, from_ops["permute"].of(k, dims=(0, 1, 3, 2)))
        return from_ops["matmul"].of(from_ops["softmax"].of(scores, dim=3), v)

    graph = trace(formula, avals)
    assert "attention_in_blocks" in names(attention_formula(graph)) and "softmax" not in names(attention_formula(graph))
    other = trace(lambda q, k, v: from_ops["softmax"].of(q, dim=3), avals)
    assert attention_formula(other) is other
