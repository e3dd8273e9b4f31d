"""Sizes marked as dynamic or static: what is compiled, and that results do not depend on it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit import nn, optim
from tracejit.config import override
from tracejit.llvm import driver
from tracejit.tensor.marks import marks


@pytest.fixture(autouse=True)
def without_files() -> Iterator[None]:
    with override(cache=False):
        yield


Mark = Callable[[T.Tensor], None]


def trained(mark: Mark, sizes: Sequence[int]) -> tuple[list[int], list[np.ndarray[Any, Any]]]:
    """How many programs are compiled for each batch of an MLP's training, and what comes out."""
    T.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @T.compile
    def step(x: T.Tensor, y: T.Tensor) -> T.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    counts, results = [], []
    for n in sizes:
        x, y = T.randn(n, 6), T.arange(n) % 3
        mark(x)
        before = driver.compilations()
        results.append(step(x, y).numpy().copy())
        counts.append(driver.compilations() - before)
    assert step.stats.programs_compiled == len(set(sizes))
    return counts, results + [p.detach().numpy() for p in model.parameters()]


def assert_alike(marked: Sequence[np.ndarray[Any, Any]], unmarked: Sequence[np.ndarray[Any, Any]]) -> None:
    """Up to what eager and compiled calls differ in, since other ones of them are eager (docs/equality.md)."""
    for a, b in zip(marked, unmarked, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_a_dynamic_size_is_compiled_once_for_all_sizes() -> None:
    counts, marked = trained(lambda x: T.mark_dynamic(x, 0), [64, 40, 51, 33, 60, 64])
    assert counts == [1, 0, 0, 0, 0, 0]
    _, unmarked = trained(lambda x: None, [64, 40, 51, 33, 60, 64])
    assert_alike(marked, unmarked)


def test_a_static_size_has_machine_code_of_its_own() -> None:
    counts, marked = trained(lambda x: T.mark_static(x, 0), [62, 42, 52, 34, 62])
    assert counts == [1, 1, 1, 1, 0]
    _, unmarked = trained(lambda x: None, [62, 42, 52, 34, 62])
    assert_alike(marked, unmarked)


def test_dimensions_are_marked_by_their_numbers_from_either_end() -> None:
    x = T.zeros(2, 3, 4)
    T.mark_dynamic(x, -1)
    T.mark_dynamic(x, (0, 1))
    T.mark_static(x, [1])
    assert marks(x) == {0: True, 1: False, 2: True}
    T.mark_static(x)
    assert marks(x) == {0: False, 1: False, 2: False}


def test_copies_and_results_are_not_marked() -> None:
    x = T.zeros(2, 3)
    T.mark_dynamic(x, 0)
    assert marks(x + 1) == marks(x.clone()) == marks(x.detach()) == marks(copy.deepcopy(x)) == {}


@pytest.mark.parametrize("mark", [T.mark_dynamic, T.mark_static])
def test_what_cannot_be_marked_is_refused_and_nothing_is_marked(mark: Any) -> None:
    x = T.zeros(2, 3)
    with pytest.raises(TypeError, match="expected a Tensor, got ndarray"):
        mark(np.zeros(3), 0)
    with pytest.raises(IndexError, match=r"range of \[-2, 1\], but got 2"):
        mark(x, (0, 2))
    with pytest.raises(TypeError, match="must be an integer"):
        mark(x, (0, 1.0))
    assert marks(x) == {}
    with pytest.raises(TypeError):
        T.mark_dynamic(x, None)  # type: ignore[arg-type]


def test_a_function_may_mark_its_own_arguments() -> None:
    @T.compile
    def f(x: T.Tensor) -> T.Tensor:
        T.mark_dynamic(x, 0)
        return (x * 2).sum()

    before = driver.compilations()
    for n in (37, 41, 53):
        for _ in range(2):
            assert f(T.ones(n, 3)).item() == 6 * n
    # of the first call nothing was known before it; the second size is compiled for all that follow
    assert driver.compilations() - before == 2 and f.stats.compiled_calls == 4 and not f.reasons
