"""Reading and assigning by indices, masks and views: what is converted, what is broadcast, what is saved, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.config import override
from tracejit.runtime.program import BACKENDS

f = T.arange(6.0).reshape(2, 3)
i = T.ones(2, 3, dtype=T.int64)
b = T.tensor([True, False, True])


def assigned(x: Any, value: Any, *key: Any) -> Any:
    y = x.clone()
    y[key if len(key) > 1 else key[0]] = value
    return y


# What PyTorch gives: the call, its dtype and its elements.
CALLS: dict[str, tuple[Callable[[], Any], Any, list[Any]]] = {
    "a slice of integers into floats": (lambda: f.slice_scatter(i), T.float32, [1, 1, 1, 1, 1, 1]),
    "a slice of floats into integers": (lambda: i.slice_scatter(f + 0.5), T.int64, [0, 1, 2, 3, 4, 5]),
    "a slice beyond the end": (lambda: f.slice_scatter(f[:1], 0, 1, 5), T.float32, [0, 1, 2, 0, 1, 2]),
    "an empty slice": (lambda: f.slice_scatter(f[:0], 0, 5, 9), T.float32, [0, 1, 2, 3, 4, 5]),
    "a slice in steps": (lambda: f.slice_scatter(f[:, :2] + 9, 1, 0, 3, 2), T.float32, [9, 1, 10, 12, 4, 13]),
    "integers into bools": (lambda: b.select_scatter(b.select(0, 0) * 2, 0, 1), T.bool, [True, True, True]),
    "a row of floats into integers": (lambda: i.select_scatter(f[0] + 0.5, 0, 1), T.int64, [1, 1, 1, 0, 1, 2]),
    "a diagonal of integers into floats": (lambda: f.diagonal_scatter(i[0, :2]), T.float32, [1, 1, 2, 3, 1, 5]),
    "a number scattered at one position": (lambda: T.zeros(2).scatter(0, T.tensor([1]), T.tensor(3.0)), T.float32, [0, 3]),
    "a number added at one position": (lambda: T.ones(2).scatter_add(0, T.tensor(1), T.tensor(3.0)), T.float32, [1, 4]),
    "gathering at a number": (lambda: f[1].gather(0, T.tensor(2)), T.float32, [5]),
    "gathering at few positions": (lambda: f.gather(0, T.tensor([[1, 0]])), T.float32, [3, 1]),
    "scattering at few positions": (lambda: f.scatter(1, T.tensor([[2]]), f[1:] + 9), T.float32, [0, 1, 12, 3, 4, 5]),
    "a value of more dimensions": (lambda: assigned(T.ones(3, 2), T.zeros(1, 1, 1, 2), [0]), T.float32, [0, 0, 1, 1, 1, 1]),
    "a value of more dimensions than a row": (lambda: assigned(T.ones(3, 2), T.zeros(1, 1, 2), 0), T.float32, [0, 0, 1, 1, 1, 1]),
    "a value of more dimensions than a mask selects": (
        lambda: assigned(T.ones(3, 2), T.zeros(1, 3), T.tensor([[True, False]] * 3)), T.float32, [0, 1, 0, 1, 0, 1],
    ),
    "integers assigned to floats": (lambda: assigned(f, i[0], T.tensor([1])), T.float32, [0, 1, 2, 1, 1, 1]),
    "a row put back at a tensor": (lambda: f.select_scatter(f[0] + 9, 0, T.tensor(1)), T.float32, [0, 1, 2, 9, 10, 11]),
    "padding with a tensor": (lambda: T.nn.functional.pad(f[0], (1, 0), value=T.tensor(7.0)), T.float32, [7, 0, 1, 2]),
    "a tensor of a tensor's number": (lambda: T.full_like(f[0], T.tensor(2)), T.float32, [2, 2, 2]),
    "a new tensor of a tensor's number": (lambda: f.new_full((2,), T.tensor(3)), T.float32, [3, 3]),
    "the column at a tensor": (lambda: f.select(1, T.tensor([[2]])), T.float32, [2, 5]),
    "alpha of a number": (lambda: T.add(f, 2, alpha=0.5), T.float32, [1, 2, 3, 4, 5, 6]),
    "alpha of bools": (lambda: T.add(b, ~b, alpha=True), T.bool, [True, True, True]),
    "a logarithm of a number beside integers": (lambda: T.xlogy(i, 1), T.float32, [0] * 6),
    "a logarithm of False": (lambda: T.xlogy(f[0], False), T.float32, [0, -np.inf, -np.inf]),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CALLS)
def test_values_take_the_place_and_the_dtype_that_torch_gives_them(name: str, backend: str) -> None:
    call, dtype, elements = CALLS[name]
    with override(backend=backend):
        compiled = T.compile(call)
        for function in (call, compiled, compiled):
            found = function()
            assert (found.dtype, found.reshape(-1).tolist()) == (dtype, elements)
        assert compiled.stats.compiled_calls == 1, compiled.explain()


@pytest.mark.parametrize("step", [1, 2])
def test_a_slice_that_is_put_back_has_gradients_for_both(step: int) -> None:
    def function(x: Any, y: Any) -> Any:
        return (x.slice_scatter(y, 1, 0, 2 * step, step) ** 2).sum()

    compiled = T.compile(function)
    results = []
    for call in (function, compiled, compiled):
        x = T.arange(8.0).reshape(2, 4).requires_grad_()
        y = T.ones(2, 2, dtype=T.float64, requires_grad=True)
        call(x, y).backward()
        assert x.grad is not None
        assert y.grad is not None
        assert (x.grad.dtype, y.grad.dtype) == (T.float32, T.float64)
        results.append((x.grad.tolist(), y.grad.tolist()))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize(
    "shape", [(3, 3), (2, 5), (5, 2), (4, 3), (11, 3), (7, 1), (0, 3), (3, 0), (2, 2, 2), (3, 3, 3, 3), (1, 1)]
)
def test_a_filled_diagonal_is_that_of_pytorch(shape: tuple[int, ...], dtype: str, wrap: bool) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = (library.zeros(shape, dtype=getattr(library, dtype)) for library in (T, torch))
    assert ours.fill_diagonal_(3, wrap) is ours
    assert ours.tolist() == theirs.fill_diagonal_(3, wrap).tolist()


def test_a_diagonal_is_filled_in_the_memory_and_on_the_tape_of_the_tensor() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for library in (T, torch):
        w = library.tensor([[1.0, 2.0, 3.0]] * 5, requires_grad=True)
        x = w * w
        part = x.t()
        part.fill_diagonal_(fill_value=7)
        x[1:].fill_diagonal_(5.0, wrap=True)
        (x * w).sum().backward()
        found.append((x.tolist(), part.tolist(), w.grad.tolist()))
        with pytest.raises(RuntimeError, match="leaf"):
            w.fill_diagonal_(0)
        with pytest.raises(RuntimeError, match="dimensions must"):
            library.zeros(3).fill_diagonal_(0)
        with pytest.raises(RuntimeError, match="equal length"):
            library.zeros(3, 3, 2).fill_diagonal_(0)
    assert found[0] == found[1]


def test_a_diagonal_of_an_outside_matrix_is_filled_in_compiled_functions() -> None:
    matrix = T.ones(4, 4)
    compiled = T.compile(lambda x: (matrix.add_(x).fill_diagonal_(0), matrix.sum())[1])
    seen = [compiled(T.ones(4, 4)).item() for _ in range(3)]
    assert seen == [24.0, 36.0, 48.0] and matrix.diagonal().tolist() == [0.0] * 4 and compiled.stats.compiled_calls == 2
