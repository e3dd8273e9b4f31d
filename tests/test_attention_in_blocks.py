"""Attention in blocks of queries: what it gives, and its gradients, are those of all queries at once; memory grows with the length."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as T
from tracejit.core.attention_blocks import rows_of_block
from tracejit.nn.functional import dropout, scaled_dot_product_attention
from tracejit.ops.composites.attention import attention
from tracejit.ops.composites.attention_in_blocks import attention_in_blocks

LENGTH = 2048
PLAIN: dict[str, Any] = {"rate": 0.0, "strict": False}


def normal(*shape: int, seed: int = 0, dtype: Any = T.float64) -> T.Tensor:
    return T.tensor(np.random.default_rng(seed).standard_normal(shape), dtype=dtype)


def with_gradients(function: Callable[..., Any], *given: Any) -> list[T.Tensor]:
    """What a function gives, and the gradients of the tensors of floating point that it is given."""
    leaves = [x for x in given if isinstance(x, T.Tensor) and x.dtype.is_floating_point]
    out = function(*given)
    weights = normal(*out.shape, seed=9, dtype=out.dtype)
    return [out.detach(), *T.autograd.grad((out * weights).sum(), leaves)]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 13), st.integers(1, 13), st.integers(1, 5), st.booleans(),
    st.sampled_from(["none", "bools", "addends", "bools of each", "addends of each", "keys"]), st.integers(1, 3),
)  # fmt: skip
def test_blocks_give_what_all_queries_give_at_once(
    length: int, source: int, rows: int, causal: bool, kind: str, heads: int
) -> None:
    query, key, value = normal(heads, length, 3), normal(heads, source, 3, seed=1), normal(heads, source, 2, seed=2)
    lead = heads if kind.endswith("each") or kind == "keys" else 1
    numbers = normal(lead, 1 if kind == "keys" else length, source, seed=3)
    mask = None if kind == "none" else (numbers > 0) if kind.startswith("bools") else numbers
    if causal and mask is not None:
        hidden = T.arange(length).reshape(length, 1) < T.arange(source)
        seen_by_all = T.where(
            hidden,
            T.tensor(float("-inf"), dtype=T.float64),
            T.where(mask, 0.0, float("-inf")) if kind.startswith("bools") else mask,
        )
    else:
        seen_by_all = mask

    def at_once(query: Any, key: Any, value: Any) -> Any:
        return attention(query, key, value, seen_by_all, scale=0.6, causal=causal and mask is None)[0]

    def in_blocks(query: Any, key: Any, value: Any) -> Any:
        return attention_in_blocks(query, key, value, mask, None, scale=0.6, causal=causal, rows=min(rows, length), **PLAIN)[0]

    given_ = [x.requires_grad_() for x in (query, key, value)]
    for found, expected in zip(with_gradients(in_blocks, *given_), with_gradients(at_once, *given_), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-11, atol=1e-12)


MASKS: dict[str, Callable[[int], Any]] = {
    "none": lambda n: None,
    "padding": lambda n: T.arange(n) < n - 100,
    "padding of each": lambda n: (T.arange(n) < T.tensor([[n - 100], [n // 2]])).reshape(2, 1, 1, n),
    "bools": lambda n: (T.arange(n).reshape(n, 1) - T.arange(n)).abs() < 300,
    "addends": lambda n: -(T.arange(n).reshape(n, 1) - T.arange(n)).abs().float() * 0.01,
}


def step(query: Any, key: Any, value: Any, mask: Any, causal: bool) -> Any:
    return with_gradients(lambda *qkv: scaled_dot_product_attention(*qkv, mask, is_causal=causal), query, key, value)


def long_operands(heads: int = 1, dtype: Any = T.float32, length: int = LENGTH) -> list[T.Tensor]:
    return [normal(2, heads, length, 8, seed=k, dtype=dtype).requires_grad_() for k in range(3)]


@pytest.mark.parametrize(("mask", "causal"), [*[(mask, False) for mask in MASKS], ("none", True)])
def test_long_sequences_stay_compiled_and_equal_eager_ones(mask: str, causal: bool) -> None:
    compiled, operands = T.compile(step), [*long_operands(), MASKS[mask](LENGTH), causal]
    results = [compiled(*operands) for _ in range(3)]
    assert compiled.stats.compiled_calls == 2, compiled.explain()
    for found, expected in zip(results[-1], step(*operands), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def memory_needed(length: int, causal: bool) -> tuple[int, int]:
    """Bytes at the peak of an eager step, and of the temporary memory of a compiled one."""
    operands = [*long_operands(length=length), None, causal]
    tracemalloc.start()
    try:
        step(*operands)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    compiled = T.compile(step)
    compiled(*operands)
    (executable,) = compiled.stats.executables
    return peak, executable.program.lowered.arena_bytes


@pytest.mark.parametrize("causal", [False, True])
def test_memory_grows_with_the_length_and_not_with_its_square(causal: bool) -> None:
    for shorter, longer in zip(memory_needed(LENGTH, causal), memory_needed(2 * LENGTH, causal), strict=True):
        assert longer < 2.2 * shorter
        assert longer < 2 * (2 * LENGTH) ** 2 * 4 / 4  # a quarter of all scores of two heads


def test_a_mask_of_their_own_for_the_heads_that_other_ones_share_is_taken_at_once() -> None:
    query, key, value = (x.expand(2, 2, LENGTH, 8) for x in long_operands())
    mask = (T.arange(LENGTH) < T.tensor([[LENGTH - 100], [LENGTH // 2]])).reshape(2, 1, 1, LENGTH).expand(2, 1, LENGTH, LENGTH)
    np.testing.assert_allclose(
        scaled_dot_product_attention(query, key, value, mask).detach().numpy(),
        scaled_dot_product_attention(query, key, value, mask[:, :, :1]).detach().numpy(),
        rtol=1e-4, atol=1e-6,
    )  # fmt: skip


def test_a_query_that_sees_nothing_gives_zeros_and_has_no_gradient() -> None:
    query, key, value = long_operands()
    mask = T.ones(LENGTH, LENGTH, dtype=T.bool)
    mask[5] = False
    out, g_query, *others = step(query, key, value, mask, False)
    assert not out[:, :, 5].any() and not g_query[:, :, 5].any()
    assert all(bool(x.isfinite().all()) for x in (out, g_query, *others))


def test_a_gradient_of_the_mask_is_that_of_all_scores() -> None:
    query, key, value = (normal(1, 6, 2, seed=k) for k in range(3))
    mask = normal(6, 6, seed=4).requires_grad_()
    (found,) = T.autograd.grad(
        attention_in_blocks(query, key, value, mask.reshape(1, 6, 6), None, scale=1.0, causal=True, rows=2, **PLAIN)[0].sum(),
        mask,
    )
    hidden = T.where(T.arange(6).reshape(6, 1) < T.arange(6), T.tensor(float("-inf"), dtype=T.float64), mask)
    (expected,) = T.autograd.grad(attention(query, key, value, hidden, scale=1.0, causal=False)[0].sum(), mask)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-14)


@pytest.mark.parametrize("causal", [False, True])
def test_dropout_leaves_the_weights_that_it_leaves_without_blocks(causal: bool) -> None:
    def in_blocks(query: Any, key: Any, value: Any) -> Any:
        T.manual_seed(3)
        out = scaled_dot_product_attention(query, key, value, dropout_p=0.3, is_causal=causal)
        return [out.detach(), *T.autograd.grad((out * out).sum(), [query, key, value]), T.rand(2)]

    def at_once(query: Any, key: Any, value: Any) -> Any:
        T.manual_seed(3)
        out = dropout(attention(query, key, value, None, scale=8**-0.5, causal=causal)[1], 0.3) @ value
        return [out.detach(), *T.autograd.grad((out * out).sum(), [query, key, value]), T.rand(2)]

    operands = long_operands()
    compiled = T.compile(in_blocks)
    for _ in range(2):
        replayed = compiled(*operands)
    assert compiled.stats.compiled_calls == 1, compiled.explain()
    for found, own, expected in zip(replayed, in_blocks(*operands), at_once(*operands), strict=True):
        np.testing.assert_allclose(own.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.numpy(), own.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rate", [1.0, 1.5])
def test_dropout_of_everything_is_no_matter_of_blocks(rate: float) -> None:
    query, key, value = long_operands()
    if rate == 1.0:
        assert not scaled_dot_product_attention(query, key, value, dropout_p=rate).any()
    else:
        with pytest.raises(ValueError, match="between 0 and 1"):
            scaled_dot_product_attention(query, key, value, dropout_p=rate)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 9), st.integers(1, 9), st.booleans(), st.booleans())
def test_gradients_of_gradients_are_those_of_all_queries_at_once(length: int, source: int, causal: bool, drops: bool) -> None:
    query, key, value = (normal(2, n, 3, seed=k).requires_grad_() for k, n in enumerate((length, source, source)))
    kept = (normal(2, length, source, seed=5) > -0.5) if drops else None
    factor = 1.0 if kept is None else kept.double() * 2

    def at_once(query: Any, key: Any, value: Any) -> Any:
        return (attention(query, key, value, None, scale=0.6, causal=causal)[1] * factor) @ value

    def in_blocks(query: Any, key: Any, value: Any) -> Any:
        return attention_in_blocks(
            query, key, value, None, kept, scale=0.6, causal=causal, rows=2, rate=0.5 if drops else 0.0, strict=False
        )[0]

    def second(function: Any) -> list[Any]:
        out = function(query, key, value)
        first = T.autograd.grad((out * normal(*out.shape, seed=7)).sum(), [query, key, value], create_graph=True)
        return list(T.autograd.grad(sum((g * g).sum() for g in first), [query, key, value]))

    for found, expected in zip(second(in_blocks), second(at_once), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-9, atol=1e-10)


def test_short_sequences_have_no_blocks() -> None:
    assert rows_of_block(normal(1, 512, 4), normal(1, 512, 4), causal=False) == 0
    assert rows_of_block(normal(1, 2048, 4), normal(1, 2048, 4), causal=False) > 0
    assert rows_of_block(normal(1, 100, 4), normal(1, 100_000, 4), causal=False) == 0  # less than two blocks


def test_lengths_that_vary_are_compiled() -> None:
    compiled = T.compile(lambda query, key, value: scaled_dot_product_attention(query, key, value, is_causal=True))
    for length in (2048, 2048, 2049, 2049, 2100, 2100, 2300, 2300):
        query, key, value = (normal(1, length, 4, seed=k, dtype=T.float32) for k in range(3))
        expected = scaled_dot_product_attention(query, key, value, is_causal=True)
        np.testing.assert_allclose(compiled(query, key, value).numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)
    assert compiled.stats.compiled_calls >= 4, compiled.explain()


@pytest.mark.parametrize("causal", [False, True])
def test_long_sequences_agree_with_torch(causal: bool) -> None:
    torch = pytest.importorskip("torch")
    operands = long_operands(dtype=T.float64)
    others = [torch.tensor(x.detach().numpy(), requires_grad=True) for x in operands]
    out = torch.nn.functional.scaled_dot_product_attention(*others, is_causal=causal)
    weights = torch.tensor(normal(*out.shape, seed=9).numpy())
    expected = [out, *torch.autograd.grad((out * weights).sum(), others)]
    for found, wanted in zip(step(*operands, None, causal), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=1e-10, atol=1e-11)
