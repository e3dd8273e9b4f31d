"""Numbers that a program computes of sizes (n // 4 + 1, n % 2) and gives to operations: equal ones of other sizes are no constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.nn import functional as F

SIZES = (5, 12, 7, 13, 4, 9, 8, 2, 12, 5)
NUMBERS: dict[str, Callable[[int], Any]] = {
    "n // 4": lambda n: n // 4,
    "n // 4 + 1": lambda n: n // 4 + 1,
    "n % 2": lambda n: n % 2,
    "n // 4 + 0.5": lambda n: n // 4 + 0.5,
    "1 / (n // 4 + 2)": lambda n: 1 / (n // 4 + 2),
}


def table() -> T.Tensor:
    return T.arange(48.0).reshape(6, 8) / 48


def written(write: Callable[[T.Tensor, Any], Any]) -> Callable[[T.Tensor, Any], T.Tensor]:
    """What a table is after a write."""

    def run(z: T.Tensor, k: Any) -> T.Tensor:
        z = z * 1
        write(z, k)
        return z

    return run


def set_columns(z: T.Tensor, k: Any) -> None:
    z[:, ::k] = 0


def add_to_columns(z: T.Tensor, k: Any) -> None:
    z[:, ::k] += 3


def set_a_column(z: T.Tensor, k: Any) -> None:
    z[:, k] = 5


def batch_statistics(z: T.Tensor, k: Any) -> T.Tensor:
    mean = T.zeros(8)
    F.batch_norm(z, mean, T.ones(8), training=True, momentum=k)
    return mean


EXPRESSIONS: dict[str, Callable[[T.Tensor, Any], Any]] = {
    # slices and positions
    "z[::k]": lambda z, k: z[::k],
    "z[:, ::k]": lambda z, k: z[:, ::k],
    "z[1::k]": lambda z, k: z[1::k].t(),
    "z[:, :k]": lambda z, k: z[:, :k],
    "slice_scatter": lambda z, k: T.slice_scatter(z, z[::k] * 2, 0, 0, 6, k),
    "z[:, ::k] = 0": written(set_columns),
    "z[:, ::k] += 3": written(add_to_columns),
    "z[:, k] = 5": written(set_a_column),
    "z[:, k]": lambda z, k: z[:, k],
    "z[..., k]": lambda z, k: z[..., k],
    "z[k % 2, k % 4]": lambda z, k: z[k % 2, k % 4],
    "view(-1)[k]": lambda z, k: z.view(-1)[k],
    # dimensions
    "unsqueeze": lambda z, k: z.unsqueeze(k),
    "transpose": lambda z, k: z.transpose(0, k),
    "swapaxes": lambda z, k: z.swapaxes(0, k),
    "repeat_interleave": lambda z, k: z.repeat_interleave(2, k),
    "stack": lambda z, k: T.stack([z, z], k),
    "cat": lambda z, k: T.cat([z, z], k),
    "permute": lambda z, k: z.permute(k, 1 - k),
    "movedim": lambda z, k: z.movedim(0, k),
    "flip": lambda z, k: z.flip(k),
    "roll": lambda z, k: z.roll(1, k),
    "sum": lambda z, k: z.sum(k),
    "sum of two": lambda z, k: z.sum(dim=(k, 1 - k)),
    "split": lambda z, k: z.split(2, k),
    "chunk": lambda z, k: z.chunk(2, k),
    "softmax": lambda z, k: z.softmax(k),
    "cumsum": lambda z, k: z.cumsum(k),
    "sort": lambda z, k: z.sort(k),
    "unbind": lambda z, k: z.unbind(k),
    "select": lambda z, k: z.select(k, 0),
    "diagonal": lambda z, k: z.diagonal(0, k, 1 - k),
    "rot90": lambda z, k: z.rot90(k, (0, 1)),
    "diff": lambda z, k: z.diff(k, 1),
    "diff along": lambda z, k: z.diff(1, k),
    "tensordot": lambda z, k: T.tensordot(z, z, ([k], [k])),
    "tensordot of so many": lambda z, k: T.tensordot(z, z.t(), k),
    "gumbel_softmax": lambda z, k: F.gumbel_softmax(z, 1, True, 1e-10, k),
    "size": lambda z, k: z.size(k),
    "stride": lambda z, k: z.stride(k),
    "shape": lambda z, k: z.shape[k],
    "a list of positions": lambda z, k: z[[k, 0]],
    "max_pool1d": lambda z, k: F.max_pool1d(z[None], 2, k, return_indices=True),
    "bins": lambda z, k: F.adaptive_max_pool1d(z[None, :, : k + 3], 3, return_indices=True),
    "borders": lambda z, k: F.pad(z[None, :, : k + 3], (2, 1), mode="reflect"),
    "attention": lambda z, k: F.scaled_dot_product_attention(z[None, :, : k + 3], z[None, :, : k + 3], z[None]),
    # numbers beside floats
    "lerp": lambda z, k: T.lerp(z, z * 2, k),
    "smooth_l1_loss": lambda z, k: F.smooth_l1_loss(z, z * 3, beta=k),
    "huber_loss": lambda z, k: F.huber_loss(z, z * 3, delta=k),
    "lp_pool1d": lambda z, k: F.lp_pool1d(z[None], k, 2),
    "norm": lambda z, k: z.norm(k + 2, 1),
    "rrelu": lambda z, k: F.rrelu(z - 0.5, 0.125, k),
    "rrelu in training": lambda z, k: F.rrelu(z - 0.5, k, 2.5, True),
    "dropout": lambda z, k: F.dropout(z, k),
    "alpha_dropout": lambda z, k: F.alpha_dropout(z, k, True),
    "momentum": batch_statistics,
    "label smoothing": lambda z, k: F.cross_entropy(z, T.arange(6), label_smoothing=k),
    "smoothed probabilities": lambda z, k: F.cross_entropy(z, z.softmax(1), label_smoothing=k),
    "round": lambda z, k: z.round(decimals=k),
    "logit": lambda z, k: z.logit(k),
    "interpolate": lambda z, k: F.interpolate(z[None], scale_factor=k, mode="linear"),
    "arange": lambda z, k: T.arange(k, 10.5),
    "arange from a float": lambda z, k: T.arange(0.5, k),
    "arange of a dtype": lambda z, k: T.arange(0, k, dtype=T.long),
    "linspace": lambda z, k: T.linspace(k, 10.5, 5),
    "add": lambda z, k: z.add(1.5, alpha=k),
    "sub": lambda z, k: z.sub(k, alpha=1.5),
    "fftfreq": lambda z, k: T.fft.fftfreq(4, k),
    # functions and ranges of numbers
    "geometric_": written(lambda z, k: z.geometric_(k)),
    "uniform_": written(lambda z, k: z.uniform_(k, 5.5)),
    "mvlgamma": lambda z, k: T.mvlgamma(z + 9, k),
    "combinations": lambda z, k: T.combinations(z[0, :5], k),
    "affine_grid": lambda z, k: F.affine_grid(T.ones(1, 2, 3), (1, 1, k + 2, 2)),
    # sizes
    "eye": lambda z, k: T.eye(k),
    "split into": lambda z, k: z.tensor_split(k),
    "pooled to": lambda z, k: F.adaptive_avg_pool1d(z[None], k),
    "matrix_power": lambda z, k: T.linalg.matrix_power(z[:, :6], k),
}  # fmt: skip


def outcome(function: Callable[..., Any], *given: Any) -> tuple[Any, bytes]:
    """What a call gives, or raises, and where it leaves the generator."""
    T.manual_seed(3)
    try:
        result = function(*given)
    except Exception as error:
        result = type(error), str(error)
    return result, T.get_rng_state().numpy().tobytes()


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, T.Tensor):
        assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-5, atol=1e-6)
    elif isinstance(expected, tuple):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)
    else:
        assert found == expected


def compiled_as_eager(function: Callable[..., Any], sizes: tuple[int, ...] = SIZES) -> None:
    compiled, answers = T.compile(function), []
    for n in sizes:
        x = T.arange(n * 4.0).view(n, 4)
        (expected, after), (found, after_too) = outcome(function, x), outcome(compiled, x)
        assert_same(found, expected)
        assert after_too == after
        answers.append(isinstance(expected[0], T.Tensor))
    assert compiled.stats.compiled_calls > 0 or sum(answers) < len(sizes) / 2, compiled.explain()


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_numbers_computed_of_sizes_are_those_of_each_size(name: str, number: str) -> None:
    expression, computed = EXPRESSIONS[name], NUMBERS[number]
    compiled_as_eager(lambda x: (x * 1, expression(table(), computed(x.shape[0]))))


@pytest.mark.parametrize("sizes", [(4, 5, 8, 12, 9, 16, 6), (8, 9, 10, 11, 4, 5, 20, 21), (6, 4, 8, 10, 5, 7, 9, 2)])
def test_numbers_are_the_same_in_whatever_order_sizes_come(sizes: tuple[int, ...]) -> None:
    for expression in ("z[::k]", "z[:, ::k]", "z[:, :k]", "unsqueeze", "lerp", "mvlgamma"):
        for computed in (NUMBERS["n // 4 + 1"], NUMBERS["n % 2"]):
            compiled_as_eager(lambda x: (x * 1, EXPRESSIONS[expression](table(), computed(x.shape[0]))), sizes * 2)


def test_steps_of_slices_of_arguments_are_followed() -> None:
    compiled_as_eager(lambda x: x[:: max(1, x.shape[0] // 4)] * 1)
    compiled_as_eager(lambda x: x[:: x.shape[0] // 4 + 1])


def test_steps_of_slices_are_computed_of_integers_among_the_arguments() -> None:
    def both(x: T.Tensor, n: int) -> tuple[T.Tensor, T.Tensor]:
        return T.zeros(n, 2), x[:: n // 4 + 1] * 1

    compiled, x = T.compile(both), T.arange(24.0).view(12, 2)
    for n in SIZES:
        assert_same(compiled(x, n), both(x, n))
    assert compiled.stats.compiled_calls > 0


def test_floats_in_slices_are_refused_with_the_words_of_python() -> None:
    functions: tuple[Callable[..., Any], ...] = (
        lambda x, s: (x * 1, x[::s]),
        lambda x, s: (x * 1, x[:s]),
        lambda x, s: (x * 1, x[s:]),
    )
    for function in functions:
        compiled = T.compile(function)
        for n, s in ((5, 2), (7, 2), (8, 2.5), (9, 3), (6, 0.5)):
            x = T.arange(n * 2.0).view(n, 2)
            assert_same(outcome(compiled, x, s)[0], outcome(function, x, s)[0])


def test_views_that_fill_their_memory_by_chance_have_their_own_strides_for_other_sizes() -> None:
    def views(x: T.Tensor) -> Any:
        z, k = table(), x.shape[0] // 4
        return x * 1, z[:, :k], z[:, :k].t(), z[::k].t(), z[::2][:k], z[:, :k].reshape(-1)

    compiled_as_eager(views, (5, 32, 7, 6, 9, 12, 13, 24, 8, 32, 5))


def test_sizes_are_repeated_as_often_as_a_number_says() -> None:
    compiled_as_eager(lambda x: (x * 1, T.ones(x[:, 0].shape[:1] + T.ones(2).shape * (x.shape[0] % 2))))
