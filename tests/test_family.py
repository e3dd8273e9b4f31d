"""Programs that differ in sizes share machine code: what becomes data, what is compiled, and that results are those of exact sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as T
from tracejit import nn, optim
from tracejit.config import override
from tracejit.llvm import driver
from tracejit.llvm.family import Family, Member, NumberPattern


@pytest.fixture(autouse=True)
def without_files() -> Any:
    with override(cache=False):
        yield


def compiled_for(function: Callable[[int], Any], sizes: Sequence[int]) -> list[int]:
    """How many programs LLVM compiles for each size."""
    counts = []
    for n in sizes:
        before = driver.compilations()
        function(n)
        counts.append(driver.compilations() - before)
    return counts


def test_numbers_that_differ_become_data_and_all_offsets_with_them() -> None:
    pattern = NumberPattern()
    assert pattern.data((64, 10, 0, 256), {2, 3}) == frozenset()
    assert pattern.data((64, 10, 0, 256), {2, 3}) == frozenset()
    assert pattern.data((32, 10, 0, 256), {2, 3}) == {0, 2, 3}
    assert pattern.data((16, 10, 64, 128), {2, 3}) == {0, 2, 3}
    assert pattern.data((64, 12, 64, 128), {2, 3}) == {0, 1, 2, 3}
    assert pattern.data((32, 10, 0, 256), {2, 3}) == {0, 1, 2, 3}
    assert pattern.data((32, 10, 0), {2}) == frozenset()


def test_programs_of_one_graph_are_compared_where_their_texts_are_alike() -> None:
    family = Family()
    variant = family.variant("a graph")
    assert family.variant("a graph") is variant is not family.variant("another")
    assert variant.data("nest 64, 10", (64, 10), ()) == frozenset()
    assert variant.data("two nests 64, 10, 3", (64, 10, 3), ()) == frozenset()
    assert variant.data("nest 32, 10", (32, 10), ()) == {0}
    assert variant.data("two nests 32, 10, 4", (32, 10, 4), ()) == {0, 2}
    assert variant.data("other nests 16, 10", (16, 10), ()) == {0}


def test_programs_with_other_static_sizes_share_nothing() -> None:
    family = Family()
    variants = [Member(family, ((0, 0, size),)).size_variant("a graph") for size in (8, 16, 8)]
    assert variants[0] is variants[2] is not variants[1]
    assert Member(family).size_variant("a graph") not in variants


def test_batches_of_other_sizes_need_no_machine_code_of_their_own() -> None:
    T.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @T.compile
    def step(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def call(n: int) -> None:
        step(T.randn(n, 6), T.arange(n) % 3)

    assert compiled_for(call, [64, 40, 51, 33, 60, 47, 38]) == [1, 1, 0, 0, 0, 0, 0]
    assert compiled_for(call, [64, 33, 51]) == [0, 0, 0] and step.stats.programs_compiled == 7
    assert "machine code of other sizes" in step.explain(verbose=True)


def test_backward_programs_share_machine_code_too() -> None:
    w = T.linspace(-1, 1, 5).requires_grad_()
    f = T.compile(lambda x: ((x * w).tanh().exp() + x).sum())

    def call(n: int) -> None:
        w.grad = None
        for _ in range(2):
            f(T.ones(n, 5)).backward()

    assert compiled_for(call, [20, 31, 26, 40, 37]) == [2, 2, 0, 0, 0]


MODELS: dict[str, Callable[[T.Tensor], T.Tensor]] = {
    "mean": lambda x: (x * 3).mean(),
    "variance": lambda x: (x * 3).var(),
    "loss": lambda x: nn.functional.mse_loss(x * 2, x.exp()),
    "norm": lambda x: nn.functional.layer_norm(x * 2, (5,)).sum() / x.shape[0],
    "attention": lambda x: nn.functional.scaled_dot_product_attention(x[None] * 2, x[None], x[None]).sum(),
    "running sums": lambda x: (x * 2).cumsum(0).logsumexp(0).sum(),
    "sorted on the host": lambda x: (x.repeat(2, 1) * 2).sort(0)[0].tanh().sum(),
    "sorted in machine code": lambda x: (x[:20] * 2).sort(0)[0].tanh().sum() + x.sum(),
    "dropout": lambda x: nn.functional.dropout(x * 2, 0.25).sum(),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_computed_of_sizes_is_data_as_well(name: str) -> None:
    f = T.compile(MODELS[name])

    def call(n: int) -> None:
        for _ in range(2):
            f(T.linspace(-1, 1, 5 * n).reshape(n, 5).requires_grad_()).backward()

    counts = compiled_for(call, [24, 32, 40, 28, 52, 36])
    assert counts[0] >= 2 and counts[1] <= counts[0] and counts[2:] == [0, 0, 0, 0]
    assert f.stats.compiled_calls == 6 + f.stats.instances


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_renderings_of_other_sizes_have_their_numbers_as_well(backend: str) -> None:
    f = T.compile(lambda x: ((x * 3).mean() + x.shape[0]) * (float("inf") if x.shape[0] > 6 else 0.5), backend=backend)
    for n in (4, 6, 5, 7):
        x = T.arange(n) * 1.0
        for _ in range(2):
            assert f(x).item() == ((x * 3).mean() + n).item() * (float("inf") if n > 6 else 0.5)
    assert f.stats.compiled_calls == 4 + f.stats.instances
    scope: dict[str, Any] = {}
    exec(f.source(2), scope)
    assert scope["run"](np.arange(5, dtype=np.float32))[0] == 5.5


def test_functions_do_not_share_what_they_have_seen() -> None:
    def call(n: int) -> None:
        T.compile(lambda x: (x * 0.3751).cos() + 2)(T.ones(n))

    assert compiled_for(call, [20, 31, 26]) == [1, 1, 1]


def test_a_size_of_one_is_no_data_since_products_with_one_row_are_other_functions_of_the_blas() -> None:
    random = np.random.default_rng(0)
    w = T.tensor(random.standard_normal((40, 30)).astype(np.float32))
    f = T.compile(lambda x: x @ w)
    for n in (25, 31, 1, 27, 1):
        x = T.tensor(random.standard_normal((n, 40)).astype(np.float32))
        for _ in range(2):
            assert np.array_equal(f(x).numpy(), (x @ w).numpy())
    assert f.stats.traces == 3 and f.stats.instances == 1 and f.stats.compiled_calls == 7


def rows(x: T.Tensor, w: T.Tensor, i: T.Tensor) -> list[T.Tensor]:
    h = (x @ w).softmax(-1)
    return [
        h.sum(0),
        h.var(0) / 7,
        x.mean() * h.mean(0),
        (h * x.mean(-1, keepdim=True)).cumsum(0)[i],
        x.t()[1:, i] + h.shape[0],
        T.cat([x, x * 2], 0).max(),
    ]


@settings(max_examples=4, deadline=None)
@given(st.lists(st.integers(1, 70), min_size=3, max_size=5), st.integers(2, 6))
def test_results_are_bit_for_bit_those_of_a_program_of_the_exact_size(sizes: list[int], k: int) -> None:
    random = np.random.default_rng(k)
    w = T.tensor(random.standard_normal((k, k)).astype(np.float32)).requires_grad_()
    shared = T.compile(rows)
    for n in sizes:
        x = T.tensor(random.standard_normal((n, k)).astype(np.float32)).requires_grad_()
        i = T.tensor(random.integers(0, n, n))
        found = []
        for f in (shared, T.compile(rows)):
            f(x, w, i)
            results = f(x, w, i)
            gradients = T.autograd.grad(sum(r.sum() for r in results), (x, w))
            found.append([r.detach().numpy() for r in (*results, *gradients)])
            assert f.stats.compiled_calls
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*found, strict=True))


def test_chunks_for_threads_take_sizes_as_data() -> None:
    def work(x: T.Tensor) -> T.Tensor:
        return (x * 1.5 + 0.25) * x - x.abs()

    threads = T.get_num_threads()
    T.set_num_threads(2)
    try:
        f = T.compile(work)

        def call(n: int) -> None:
            x = T.linspace(-1, 1, n)
            f(x)
            assert np.array_equal(f(x).numpy(), work(x).numpy())

        counts = compiled_for(call, [400_000, 500_000, 450_000, 620_001])
        assert counts == [1, 1, 0, 0] and "chunks" in f.explain(verbose=True)
    finally:
        T.set_num_threads(threads)
