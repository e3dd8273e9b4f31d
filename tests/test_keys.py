"""Lists and tuples of positions from outside as keys of tensors and arrays: other positions are data of the same recording, and what
they raise is what they raise eagerly."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.config import override

TABLE = T.arange(300.0).reshape(100, 3)
CALLS = 8


def sample(k: int, count: int = 4) -> list[int]:
    """Positions of call k, some of them from the end."""
    generator = random.Random(k)
    return [n - 100 * generator.randrange(2) for n in generator.sample(range(100), count)]


def rows(places: Any) -> Any:
    return TABLE[places] * 2


def with_other_parts(places: Any) -> Any:
    return TABLE[places, 1], TABLE[places, 1:], TABLE.t()[:, places], TABLE[None, places], TABLE.t()[..., places]


def several_lists(places: Any) -> Any:
    return TABLE[places, [n % 3 for n in places]]


def gradient(places: Any) -> Any:
    weight = TABLE.clone().requires_grad_()
    (weight[places] ** 2).sum().backward()
    return weight.grad


def written(places: Any) -> Any:
    x = TABLE.clone()
    x[places] = T.ones(len(places), 3)
    x[places, 1] += 2
    x[:, [places[0] % 3, 0]] *= 3
    return x


def looked_at_afterwards(places: Any) -> Any:
    return TABLE[places] * sum(places), len(places), places


def changed_between(places: Any) -> Any:
    before = TABLE[places] * 1
    places[0] = 7
    return before, TABLE[places], places


def of_a_tensor(places: Any) -> Any:
    return T.tensor(places).float() * 2, T.tensor([n / 7 for n in places])


def equal(function: Callable[..., Any], arguments: Callable[[int], tuple[Any, ...]], hot: int) -> Any:
    """Call it eagerly and compiled with arguments of their own; returns the compiled function."""
    with override(hot_calls=hot):
        compiled = T.compile(function)
        for k in range(CALLS):
            assert outcome(compiled, arguments(k)) == outcome(function, arguments(k)), k
    return compiled


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """What a call gives, or raises, and what it leaves in its arguments."""
    try:
        result = function(*arguments)
    except (IndexError, TypeError, RuntimeError, ValueError) as error:
        result = type(error), str(error)
    return repr((result, arguments))


@pytest.mark.parametrize("hot", [2, 1000])
@pytest.mark.parametrize(
    "function", [rows, with_other_parts, several_lists, gradient, written, looked_at_afterwards, changed_between, of_a_tensor]
)
def test_a_list_of_positions_is_data_once_another_one_has_come(function: Callable[..., Any], hot: int) -> None:
    assert equal(function, lambda k: (sample(k),), hot).stats.traces <= 2


@pytest.mark.parametrize("count", [12, 90])
@pytest.mark.parametrize("function", [rows, with_other_parts, gradient])
def test_longer_lists_are_data_then_as_well(function: Callable[..., Any], count: int) -> None:
    assert equal(function, lambda k: (sample(k, count),), 1000).stats.traces == 2


@pytest.mark.parametrize("count", [4, 12, 90])
def test_a_list_that_stays_the_same_is_a_constant(count: int) -> None:
    compiled = equal(rows, lambda k: (sample(0, count),), 2)
    assert compiled.stats.traces == 1
    assert "tensor_of_kind" not in str(compiled.explain(verbose=True))
    assert "cat" not in str(compiled.explain(verbose=True))


@pytest.mark.parametrize("function", [changed_between, looked_at_afterwards])
def test_a_long_list_that_is_looked_at_as_well_is_what_it_is(function: Callable[..., Any]) -> None:
    equal(function, lambda k: (sample(k, 90),), 1000)


def test_long_lists_of_floats_are_data() -> None:
    def total(numbers: Any) -> Any:
        leaf = T.tensor(numbers, dtype=T.float64, requires_grad=True)
        (leaf * leaf).sum().backward()
        return T.tensor(numbers) * 2, leaf.grad

    assert equal(total, lambda k: ([0.0, *(n / 7 for n in sample(k, 80))],), 1000).stats.traces == 1


def test_numbers_of_other_types_among_many_are_told_apart() -> None:
    def made(numbers: Any) -> Any:
        return T.tensor(numbers)

    others = [0.5, 1, True, 0.25, 2, False, 3.5, 1.0]
    compiled = equal(made, lambda k: ([*(n / 7 for n in sample(k, 80)), others[k]],), 1000)
    assert compiled.stats.compiled_calls >= 2


@pytest.mark.parametrize(
    "keys",
    [
        [[0, 1], [5, 100], [2, -100], [3, -101], [1, 2], [4, 4], [10**15, 0], [10**30, 0]],
        [[1, 2], [True, False], [0, 1], [1.0, 2], [], [None, 1], ["a", 0], [2, 2]],
        [[3], [3, 4], [5], [6, 7], [8], [9, 10], [11], [12, 99]],
        [(0, 1), (5, 2), (-1, -1), (5, 3), (True, 1), (1, 2, 3), (7,), (9, 0)],
        [((0, 1), 2), ((3, 4), 1), ((5, 6), 0), ((7, 8), 2), ((1, 2), (0, 1)), ((3, 4), (1, 2)), ([1, 2], 0), ([3, 4], 1)],
        [(slice(0, 2), 1), (slice(1, 3), 1), (slice(1, 3), 2), (None, 1), (..., 1), (..., 2), ([1], slice(2)), ([2], slice(2))],
    ],
)
@pytest.mark.parametrize("hot", [2, 1000])
def test_other_keys_give_or_raise_what_they_do_eagerly(keys: list[Any], hot: int) -> None:
    def written(key: Any) -> Any:
        x = TABLE.clone()
        x[key] = 5
        return x

    for function in (rows, written):
        equal(function, lambda k: (keys[k],), hot)


def test_a_tuple_from_outside_is_data() -> None:
    places = {"at": (0, 1)}

    def read_and_written(k: int) -> Any:
        places["at"] = (k, k % 3)
        return ()

    def at() -> Any:
        x = TABLE.clone()
        x[places["at"]] += 1
        return TABLE[places["at"]], x

    assert equal(at, read_and_written, 1000).stats.traces == 1


@pytest.mark.parametrize("hot", [2, 1000])
def test_tuples_and_lists_from_outside_are_looked_at_where_arrays_are_read_and_written(hot: int) -> None:
    array = np.zeros((10, 3))

    def stored(x: Any, place: Any, row: Any) -> Any:
        array[place] = 4.0
        array[0] = row
        return x * 1, array.copy()

    def read(x: Any, place: Any, row: Any) -> Any:
        return (x + 1).numpy()[place], array[place]

    def arguments(k: int) -> tuple[Any, ...]:
        array[:] = 0
        return TABLE, (k, k % 3), [k, 1, 2]

    assert equal(stored, arguments, hot).stats.traces == 1
    equal(read, arguments, hot)
