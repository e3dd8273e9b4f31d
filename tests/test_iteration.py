"""Iteration in recorded calls over arrays of NumPy, up to and above the number of elements that a recording takes one by one."""

# ruff: noqa: C416, C417, C420

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.capture.handlers import arrays, prologue_arrays

LIMIT = 8


def added(array: Any) -> Any:
    total = 0
    for value in array:
        total = total + value
    return total


def added_by_rows(array: Any) -> Any:
    total = 0
    for row in array:
        for value in row:
            total = total + value
    return total


def added_in_pairs(array: Any) -> Any:
    total = 0
    for x, y in np.stack([array, array], 1):
        total = total + x * y
    return total


def ends(array: Any) -> Any:
    first, *others, last = array
    return first, len(others), last


def two(array: Any) -> Any:
    x, y = array
    return x, y


def first_above(array: Any) -> Any:
    for value in array:
        if value > 3:
            break
    return value


def generated(array: Any) -> Any:
    yield from array


def arguments(*values: Any) -> Any:
    return values[-1], len(values)


USES: dict[str, Callable[[Any], Any]] = {
    "a loop": added,
    "a loop over rows": lambda a: added_by_rows(a.reshape(-1, 1)),
    "a loop over the elements of a row": lambda a: added_by_rows(a.reshape(1, -1)),
    "a loop that unpacks rows": added_in_pairs,
    "a loop that ends early": first_above,
    "a comprehension": lambda a: [v for v in a if v > 2],
    "a comprehension that unpacks rows": lambda a: [x + y for x, y in np.stack([a, a], 1)],
    "dict and set comprehensions": lambda a: (len({v for v in a}), len({v: 1 for v in a})),
    "a generator expression": lambda a: sum(v * 2 for v in a),
    "yield from": lambda a: list(generated(a)),
    "list": lambda a: list(a),
    "tuple": lambda a: tuple(a),
    "displays": lambda a: ([*a, 1], (*a, 1), len({*a})),
    "starred arguments": lambda a: arguments(*a),
    "two names": two,
    "starred names": ends,
    "zip": lambda a: [x * y for x, y in zip(a, a, strict=True)],
    "zip with something shorter": lambda a: [x * y for x, y in zip([1.0, 2.0], a, strict=False)],
    "enumerate": lambda a: sum(i * v for i, v in enumerate(a)),
    "map": lambda a: list(map(float, a)),
    "map of a function": lambda a: list(map(lambda v: v + 1, a)),
    "filter": lambda a: list(filter(lambda v: v > 3, a)),
    "sum": lambda a: sum(a),
    "max and min": lambda a: (max(a), min(a), max(a, key=lambda v: -v)),
    "sorted": lambda a: (sorted(a), sorted(a, key=lambda v: -v, reverse=True)),
    "any and all": lambda a: (any(a), all(a)),
    "in": lambda a: (3.0 in a, -3.0 in a),
    "next": lambda a: next(iter(a)),
    "reversed": lambda a: list(reversed(a)),
    "join": lambda a: ",".join(str(v) for v in a),
    "extend": lambda a: [].extend(a),
    "itertools": lambda a: (list(itertools.islice(a, 3)), list(itertools.chain(a, a)), list(itertools.accumulate(a))),
    "reduce": lambda a: functools.reduce(operator.add, a),
    "functions of math": lambda a: (math.fsum(a), math.prod(a)),
    "collections": lambda a: (len(deque(a)), len(Counter(a)), len(dict.fromkeys(a))),
    "tensors of them": lambda a: (T.tensor(list(a)), T.tensor([float(v) for v in a])),
    "arrays of them": lambda a: (np.array(list(a)), np.array([v for v in a])),
    "tolist": lambda a: a.tolist(),
}
"""What iterates over an array of one dimension."""
SOURCES: dict[str, Callable[[Any, Any], Any]] = {
    "of a tensor of the call": lambda x, array: (x * 1).numpy(),
    "of an argument": lambda x, array: x.numpy(),
    "from outside": lambda x, array: array,
    "computed from one from outside": lambda x, array: np.abs(array),
    "of constants": lambda x, array: np.arange(float(len(x)), dtype=np.float32),
}


def plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value).__name__, [plain(v) for v in value]
    if isinstance(value, np.ndarray | T.Tensor):
        return type(value).__name__, value.dtype, value.tolist()
    return type(value).__name__, repr(value)


def outcomes(fn: Callable[..., Any], size: int, calls: int = 3) -> list[Any]:
    found: list[Any] = []
    for i in range(calls):
        array = np.arange(i, i + size, dtype=np.float32)
        try:
            found.append(plain(fn(T.from_numpy(array.copy()), array)))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


@pytest.mark.parametrize("source", ["of a tensor of the call", "from outside", "of constants"])
@pytest.mark.parametrize("use", USES)
def test_an_array_of_whatever_size_is_iterated_over_as_in_eager_calls(monkeypatch: Any, use: str, source: str) -> None:
    for module in (arrays, prologue_arrays):
        monkeypatch.setattr(module, "MOST_ELEMENTS", LIMIT)
    made, used = SOURCES[source], USES[use]
    for size in (LIMIT - 1, LIMIT, LIMIT + 1):

        def fn(x: Any, array: Any) -> Any:
            return used(made(x, array))

        compiled = T.compile(fn)
        assert outcomes(compiled, size) == outcomes(fn, size)
        codes = [reason.code for reason in compiled.reasons]
        assert "raised" not in codes or use == "two names"  # which raises in eager mode
        assert {"internal_error", "recording_defect"}.isdisjoint(codes)


@pytest.mark.parametrize("source", SOURCES)
def test_an_array_that_is_too_long_is_told_and_its_calls_run_eagerly(monkeypatch: Any, source: str) -> None:
    made = SOURCES[source]

    def fn(x: Any, array: Any) -> Any:
        return [v for v in made(x, array)]

    size = arrays.MOST_ELEMENTS + 1
    compiled = T.compile(fn)
    assert outcomes(compiled, size) == outcomes(fn, size)
    assert compiled.stats.compiled_calls == 0
    (reason,) = compiled.reasons
    assert reason.code == "tensor_contents" and f"shape [{size}]" in str(reason), str(reason)
    monkeypatch.setattr(arrays, "MOST_ELEMENTS", LIMIT)
    compiled = T.compile(fn)
    assert outcomes(compiled, LIMIT) == outcomes(fn, LIMIT)
    assert compiled.stats.compiled_calls > 0, compiled.reasons
