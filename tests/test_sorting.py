"""Orders of elements: always the stable one, whichever way NumPy comes to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracejit as T
from tracejit.ops import sorting

KINDS = ("distinct", "some equal", "few values", "with nan", "zeros of both signs", "integers")


def vector(kind: str, size: int, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=size).astype(np.float32)
    if kind == "distinct":
        return generator.permutation(size).astype(np.float64)
    if kind == "some equal":
        return np.where(generator.random(size) < 0.05, x[:1], x)
    if kind == "few values":
        return generator.integers(0, 5, size).astype(np.float32)
    if kind == "with nan":
        return np.where(generator.random(size) < 0.01, np.float32(np.nan), x)
    if kind == "zeros of both signs":
        return np.where(generator.random(size) < 0.01, np.float32(-0.0) * np.sign(x), x)
    return generator.integers(-(2**62), 2**62, size)


def test_nan_is_last_in_bfloat16_too() -> None:
    x = T.tensor([3.0, float("nan"), 1.0, float("nan"), 2.0]).to(T.bfloat16)
    assert x.argsort().tolist() == [2, 4, 0, 1, 3]
    assert x.argsort(descending=True).tolist() == [1, 3, 0, 4, 2]
    assert x.topk(2, largest=False)[1].tolist() == [2, 4]
    assert T.unique(x)[:3].tolist() == [1.0, 2.0, 3.0]


def ranks(x: Any, descending: bool) -> Any:
    """The stable order by the definition: NaN is the largest, equal elements keep theirs."""
    keys = np.where(np.isnan(x), np.inf, x) if x.dtype.kind == "f" else x
    missing = np.isnan(x) if x.dtype.kind == "f" else np.zeros(len(x), bool)
    _, level = np.unique(keys, return_inverse=True)
    level = level + missing
    return np.array(sorted(range(len(x)), key=lambda i: (-level[i] if descending else level[i], i)), np.int64)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("size", [1, 2, 50, 1024, 3000])
@pytest.mark.parametrize("kind", KINDS)
def test_sorting_is_stable_and_puts_nan_last(kind: str, size: int, descending: bool) -> None:
    x = vector(kind, size)
    expected = ranks(x, descending)
    values, indices = T.sort(T.from_numpy(x), descending=descending)
    assert indices.tolist() == expected.tolist() == T.argsort(T.from_numpy(x), descending=descending).tolist()
    assert values.numpy().tobytes() == x[expected].tobytes()


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("size", [1, 300, 3000])
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_few_are_those_of_the_whole_order(kind: str, size: int, largest: bool) -> None:
    x = vector(kind, size)
    expected = ranks(x, largest)
    for k in {0, 1, min(5, size), size // 5, size // 2, size}:
        values, indices = T.topk(T.from_numpy(x), k, largest=largest)
        assert indices.tolist() == expected[:k].tolist(), k
        assert values.numpy().tobytes() == x[expected[:k]].tobytes()
    rows = T.from_numpy(np.stack([x, x[::-1]]).T.copy())
    assert T.topk(rows, min(5, size), dim=0, largest=largest).indices[:, 0].tolist() == expected[:5].tolist()


@pytest.mark.parametrize("dtype", [T.float16, T.bfloat16, T.float32, T.float64, T.int64, T.uint8, T.bool], ids=str)
def test_machine_code_orders_few_elements_as_numpy_does_along_any_dimension(dtype: T.dtype) -> None:
    numbers = np.random.default_rng(0).integers(0, 9, (5, 20, 3)).astype(np.float32)
    if dtype.is_floating_point:
        numbers[numbers == 3] = np.nan
        numbers[numbers == 4] = -0.0
        numbers[numbers == 5] = np.inf
    x = T.from_numpy(numbers).to(dtype)

    def orders(x: T.Tensor) -> list[T.Tensor]:
        found = [x.argsort(dim, descending) for dim in range(3) for descending in (False, True)]
        return [*found, *[x.topk(2, dim, largest)[1] for dim in range(3) for largest in (False, True)], x.sort(1)[0]]

    compiled = T.compile(orders)
    for given_ in (x, x, T.flip(x, (0, 1))):
        for found, expected in zip(compiled(given_), orders(given_), strict=True):
            assert T.allclose(found, expected, rtol=0.0, atol=0.0, equal_nan=True)
    assert compiled.stats.compiled_calls == 2
    assert "host step" not in compiled.explain(verbose=True)


@given(st.integers(0, 10**6), st.integers(0, 400), st.integers(1, 62))
def test_random_keys_are_ordered_as_argsort_orders_them(seed: int, size: int, bits: int) -> None:
    keys = np.random.default_rng(seed).integers(0, 1 << bits, size) << (62 - bits)
    assert sorting.order_of_keys.evaluate(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_distinct_elements_are_what_the_slow_way_finds(kind: str) -> None:
    x = T.from_numpy(vector(kind, 700))
    slow = T.unique(x, return_counts=True)[0].numpy()
    assert T.unique(x).numpy().tobytes() == slow.tobytes()
    assert T.unique(x.reshape(7, 100).T).shape == slow.shape
    assert T.compile(T.unique)(x).numpy().tobytes() == slow.tobytes()


def test_the_gradient_of_the_first_few_goes_to_where_they_were() -> None:
    x = T.from_numpy(vector("distinct", 500)).requires_grad_()
    values, indices = T.topk(x, 3)
    (values * T.tensor([1.0, 2.0, 3.0], dtype=T.float64)).sum().backward()
    assert values.grad_fn.name() == "TopkBackward0" and not indices.requires_grad
    assert x.grad is not None and x.grad[indices].tolist() == [1, 2, 3] and x.grad.sum().item() == 6
    assert T.sort(x)[0].requires_grad


def test_integers_and_bools_are_sorted_in_their_own_dtype() -> None:
    for dtype in (T.int64, T.int8, T.uint8, T.bool, T.float16):
        x = T.tensor([1, 0, 1, 1, 0]).to(dtype)
        values, indices = T.sort(x, descending=True)
        assert values.dtype is dtype and indices.tolist() == [0, 2, 3, 1, 4]
        assert T.topk(x, 2).values.dtype is dtype and T.unique(x).tolist() == [0, 1]


def test_a_gradient_of_values_in_order_depends_on_nothing() -> None:
    x = T.tensor([3.0, 1.0, 2.0]).requires_grad_()
    for values in (T.sort(x)[0], T.topk(x, 2)[0]):
        (gradient,) = T.autograd.grad(values.sum(), x, create_graph=True)
        assert not gradient.requires_grad


def test_nan_is_the_largest_among_many_that_are_equal() -> None:
    x = T.cat([T.ones(299), T.tensor([float("nan")])])
    values, indices = T.topk(x, 3)
    assert indices.tolist() == [299, 0, 1] and np.isnan(values[0].item())
