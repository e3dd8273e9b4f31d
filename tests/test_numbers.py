"""core/numbers.py: numbers of any type, in any position, are the plain numbers that they stand for."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.config import override
from tracejit.core.numbers import plain_number, settled


class Member(enum.IntEnum):
    TWO = 2


class Flag(enum.IntFlag):
    TWO = 2


class Real(float):
    """A float that lies about itself."""

    def __float__(self) -> float:
        return 99.0


class Whole(int):
    def __int__(self) -> int:
        return 99

    __index__ = __int__


INTEGERS = [Member.TWO, Flag.TWO, Whole(2), np.int64(2), np.int32(2), np.uint8(2)]
REALS = [Real(2.0), np.float64(2.0), np.float32(2.0), np.float16(2.0), np.longdouble(2.0)]
TRUTHS = [np.bool_(True)]
STANDING_FOR = [*((v, 2) for v in INTEGERS), *((v, 2.0) for v in REALS), *((v, True) for v in TRUTHS)]


@pytest.mark.parametrize(("given", "number"), STANDING_FOR, ids=lambda v: f"{type(v).__name__}")
def test_a_number_becomes_the_plain_one_that_it_stands_for(given: Any, number: Any) -> None:
    found = plain_number(given)
    assert found == number and type(found) is type(number) and settled(given) == number


def test_what_is_no_number_is_left_alone() -> None:
    for other in (None, "2", [2], T.ones(1), np.ones(1), 2j, np.complex64(2), np.datetime64("2020-01-01"), object()):
        assert plain_number(other) is None and settled(other) is other


def x() -> T.Tensor:
    return T.tensor([[0.5, 1.5], [2.5, 0.25]], requires_grad=True)


def i() -> T.Tensor:
    return T.tensor([[1, 2], [3, 4]])


def written(target: T.Tensor, key: Any, value: Any) -> T.Tensor:
    target = target.detach().clone()
    target[key] = value
    return target


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "x * n": lambda n: x() * n,
    "n * x": lambda n: n * x(),
    "x + n": lambda n: x() + n,
    "n - x": lambda n: n - x(),
    "x / n": lambda n: x() / n,
    "n / x": lambda n: n / x(),
    "x ** n": lambda n: x() ** n,
    "n ** x": lambda n: n ** x(),
    "x % n": lambda n: x() % n,
    "x // n": lambda n: x() // n,
    "i * n": lambda n: i() * n,
    "i + n": lambda n: i() + n,
    "i / n": lambda n: i() / n,
    "i ** n": lambda n: i() ** n,
    "i > n": lambda n: i() > n,
    "maximum": lambda n: x().clamp(n),
    "clamp": lambda n: x().clamp(max=n),
    "clamp int": lambda n: i().clamp(n),
    "where": lambda n: T.where(x() > 1, x(), n),
    "where numbers": lambda n: T.where(x() > 1, n, n),
    "alpha": lambda n: x().add(x(), alpha=n),
    "lerp": lambda n: x().lerp(x() * 2, n),
    "div trunc": lambda n: T.div(x(), n, rounding_mode="trunc"),
    "full": lambda n: T.full((2,), n),
    "full_like": lambda n: T.full_like(x(), n),
    "masked_fill": lambda n: x().masked_fill(x() > 1, n),
    "fill": lambda n: written(x(), ..., n),
    "set": lambda n: written(x(), 0, n),
    "set mask": lambda n: written(x(), x() > 1, n),
    "hardshrink": lambda n: T.nn.functional.hardshrink(x(), n),
    "arange": lambda n: T.arange(0, n * 3, n),
    "linspace": lambda n: T.linspace(0, n, 3),
    "bucketize": lambda n: T.bucketize(n, T.tensor([0.0, 1.0, 3.0])),
    "scatter": lambda n: x().scatter(0, i() * 0, n),
    "norm": lambda n: x().norm(n),
    "pad": lambda n: T.nn.functional.pad(x(), (1, 1), value=n),
    "addcmul": lambda n: x().addcmul(x(), x(), value=n),
}
POSITIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda n: T.ones(2, 3, 4).sum(n),
    "mean": lambda n: T.ones(2, 3, 4).mean(n),
    "max": lambda n: T.ones(2, 3, 4).max(n),
    "std": lambda n: T.ones(2, 3, 4).std(n),
    "softmax": lambda n: T.ones(2, 3, 4).softmax(n),
    "cumsum": lambda n: T.ones(2, 3, 4).cumsum(n),
    "item": lambda n: T.arange(5)[n],
    "slice": lambda n: T.arange(5)[n:],
    "items": lambda n: T.ones(4, 4)[n, n],
    "reshape": lambda n: T.arange(4).reshape(n, -1),
    "zeros": lambda n: T.zeros(n, 3),
    "expand": lambda n: T.ones(1, 2).expand(n, 2),
    "split": lambda n: T.arange(4).split(n),
    "chunk": lambda n: T.arange(4).chunk(n),
    "roll": lambda n: T.arange(5).roll(n),
    "tril": lambda n: T.ones(4, 4).tril(n),
    "transpose": lambda n: T.ones(2, 3, 4).transpose(0, n),
    "squeeze": lambda n: T.ones(2, 3, 1).squeeze(n),
    "cat": lambda n: T.cat([T.ones(1, 2, 3)] * 2, n),
    "movedim": lambda n: T.ones(2, 3, 4).movedim(0, n),
    "repeat_interleave": lambda n: T.arange(3).repeat_interleave(n),
    "topk": lambda n: T.arange(4).topk(n),
    "avg_pool": lambda n: T.nn.functional.avg_pool1d(T.ones(1, 1, 8), n),
    "conv": lambda n: T.nn.functional.conv1d(T.ones(1, 1, 8), T.ones(1, 1, 2), stride=n),
    "diagonal": lambda n: T.ones(4, 4).diagonal(n),
    "eye": lambda n: T.eye(n),
    "unsqueeze": lambda n: T.ones(2, 3).unsqueeze(n),
    "tensor_split": lambda n: T.arange(5).tensor_split(n),
    "tensordot": lambda n: T.tensordot(T.ones(2, 3, 4), T.ones(3, 4, 5), n),
    "layer_norm": lambda n: T.nn.functional.layer_norm(T.ones(3, 2), n),
}


def outcome(function: Callable[[Any], Any], n: Any) -> Any:
    try:
        found = function(n)
    except (TypeError, RuntimeError, IndexError) as error:
        return type(error).__name__
    parts = found if isinstance(found, tuple | list) else (found,)
    return [(str(t.dtype), tuple(t.shape), t.tolist()) for t in parts]


@pytest.mark.parametrize("name", NUMBERS)
def test_operands_of_any_type_give_what_plain_numbers_give(name: str) -> None:
    for given, number in STANDING_FOR:
        assert outcome(NUMBERS[name], given) == outcome(NUMBERS[name], number), type(given)


@pytest.mark.parametrize("name", POSITIONS)
def test_sizes_and_positions_may_be_integers_of_any_type(name: str) -> None:
    expected = outcome(POSITIONS[name], 2)
    assert isinstance(expected, list)
    for given in INTEGERS:
        if type(given) is not Whole:  # which says that it is 99 where it is asked for an index
            assert outcome(POSITIONS[name], given) == expected, type(given)


GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "x * k": lambda x, k: x * k,
    "k * x": lambda x, k: k * x,
    "x / k": lambda x, k: x / k,
    "k / x": lambda x, k: k / x,
    "x ** k": lambda x, k: x**k,
    "k ** x": lambda x, k: k**x,
    "x - k": lambda x, k: x - k,
    "k - x": lambda x, k: k - x,
    "x.clamp(k)": lambda x, k: x.clamp(k),
    "where": lambda x, k: T.where(x > 1.0, x, k) * x,
    "chain": lambda x, k: ((x * k) ** k + k).sin() * k,
    "add alpha": lambda x, k: x.add(x, alpha=k),
    "in place": lambda x, k: (x * 1).mul_(k),
    "remainder": lambda x, k: x % k,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_of_the_tensors_dtype_eager_and_compiled(name: str) -> None:
    op = GRADIENTS[name]

    def run(call: Callable[..., Any], *args: Any) -> Any:
        x = T.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = call(x, *args)
        y.sum().backward()
        assert x.grad is not None and x.grad.dtype is T.float32 and y.dtype is T.float32
        return np.round(y.detach().numpy(), 4).tolist(), np.round(x.grad.numpy(), 4).tolist()

    with override(hot_calls=2):
        for k, number in itertools.islice(STANDING_FOR, 0, None, 2):
            expected = run(op, number)
            closed_over, argument = T.compile(lambda x: op(x, k)), T.compile(op)
            assert run(op, k) == expected
            for _ in range(4):
                assert run(closed_over) == expected and run(argument, k) == expected, type(k)


def test_an_array_is_no_number() -> None:
    for call in (lambda a: T.exp(a), lambda a: T.ones(2).mul(a), lambda a: T.maximum(T.ones(2), a), lambda a: T.pow(a, 2)):
        with pytest.raises(TypeError, match="from_numpy"):
            call(np.ones(2))


M = T.arange(9.0).reshape(3, 3)
INTEGER_ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda n: M.sum(n), "mean": lambda n: M.mean(n), "std": lambda n: M.std(n) if n is not True else M.sum(n),
    "amax": lambda n: M.amax(n), "all": lambda n: M.all(n), "logsumexp": lambda n: M.logsumexp(n),
    "norm": lambda n: M.norm(2, n), "count_nonzero": lambda n: M.count_nonzero(n), "softmax": lambda n: M.softmax(n),
    "narrow": lambda n: M.narrow(0, n, 1), "narrow_length": lambda n: M.narrow(0, 1, n), "select": lambda n: M.select(0, n),
    "split": lambda n: M.split(n), "split_sizes": lambda n: M.split([n, 2]), "chunk": lambda n: M.chunk(n),
    "diagonal": lambda n: M.diagonal(n), "rot90": lambda n: M.rot90(n), "repeat_interleave": lambda n: M.repeat_interleave(n),
    "reshape": lambda n: M.reshape(n, -1), "ones": lambda n: T.ones(n), "linspace": lambda n: T.linspace(0, 1, n),
    "randint": lambda n: T.randint(n, (2,)), "randperm": lambda n: T.randperm(n), "polygamma": lambda n: T.polygamma(n, M),
    "mvlgamma": lambda n: T.mvlgamma(M + 9, n), "cov": lambda n: T.cov(M, correction=n),
    "pad": lambda n: T.nn.functional.pad(M, (n, 1)), "layer_norm": lambda n: T.nn.functional.layer_norm(M, (n,)),
    "max_pool1d": lambda n: T.nn.functional.max_pool1d(M[None], n),
    "conv1d": lambda n: T.nn.functional.conv1d(M[None], M[:, :, None], None, n),
    "embedding": lambda n: T.nn.functional.embedding(T.tensor([0]), M, n),
    "cross_entropy": lambda n: T.nn.functional.cross_entropy(M, T.tensor([0, 1, 2]), ignore_index=n),
}  # fmt: skip


@pytest.mark.parametrize("number", [1.0, True, 1.5, np.float32(1.0), "1"], ids=repr)
@pytest.mark.parametrize("name", INTEGER_ARGUMENTS)
def test_what_is_no_integer_is_refused_where_one_is_asked_for(name: str, number: Any) -> None:
    with pytest.raises(TypeError, match="must be"):
        INTEGER_ARGUMENTS[name](number)


@pytest.mark.parametrize("number", [np.int64(1), np.uint8(1), Flag(1), T.tensor(1)], ids=["int64", "uint8", "enum", "tensor"])
@pytest.mark.parametrize("name", sorted(set(INTEGER_ARGUMENTS) - {"randint", "randperm", "embedding", "layer_norm"}))
def test_what_stands_for_an_integer_is_one(name: str, number: Any) -> None:
    out, expected = INTEGER_ARGUMENTS[name](number), INTEGER_ARGUMENTS[name](1)
    for a, b in zip(out, expected, strict=True) if type(out) is tuple else [(out, expected)]:
        np.testing.assert_array_equal(a.numpy(), b.numpy())
