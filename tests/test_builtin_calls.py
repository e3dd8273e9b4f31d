"""Functions of C, inside compiled functions and compiled by themselves: results, types, errors, and what becomes of their arguments."""

from __future__ import annotations

import collections
import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T

pytestmark = pytest.mark.filterwarnings("ignore::tracejit.compiler.PerformanceWarning")


def outcome_of(function: Any, arguments: tuple[Any, ...]) -> Any:
    """What a call gives, and what it has made of its arguments; of an iterator its type and what comes out of it."""
    try:
        result = function(*arguments)
    except Exception as error:
        return type(error)
    if hasattr(result, "__next__"):
        result = [str(item) for item in itertools.islice(result, 4)], type(result)
    return str(result), type(result), str(arguments)


OPERANDS: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "two tensors": lambda k: (T.tensor([1.0, 2.0, 3.0 + k]), T.tensor([1.0, k, 3.0])),
    "a tensor and a number": lambda k: (T.tensor([1.0, 2.0, 3.0 + k]), k),
    "two arrays": lambda k: (np.array([1.0, 2.0, k]), np.array([1.0, 2.0, 3.0])),
    "an array and a number": lambda k: (np.array([1.0, 2.0, k]), k),
    "a tensor and an array": lambda k: (T.tensor([1.0, 2.0, 3.0]), np.array([1.0, 2.0, k])),
    "a list with a tensor": lambda k: ([1.0, T.tensor(1.0 * k)], T.tensor(1.0)),
    "a tensor": lambda k: (T.tensor(k),),
    "an array": lambda k: (np.array([1.0, k]),),
    "a position and a value": lambda k: (T.arange(3.0), k % 3, 5.0),
    "a position of an array": lambda k: (np.arange(3.0), k % 3, 5.0),
}


@pytest.mark.parametrize("operands", OPERANDS)
def test_functions_of_operator_take_tensors_and_arrays_as_in_eager_calls(operands: str) -> None:
    for name in operator.__all__:
        function = getattr(operator, name)
        if isinstance(function, type):
            continue
        inside = T.compile(lambda *a, f=function: f(*a), backend="reference")
        itself = T.compile(function, backend="reference")
        for k in (1, 1, 2):
            wanted = outcome_of(function, OPERANDS[operands](k))
            for compiled in (inside, itself):
                found = outcome_of(compiled, OPERANDS[operands](k))
                assert found == wanted or (isinstance(wanted, type) and isinstance(found, type) and name[0] == "i"), (name, k)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (reversed, lambda x: ([1, 2],)), (reversed, lambda x: ((1, 2),)), (reversed, lambda x: (x,)), (reversed, lambda x: (range(3),)),
        (zip, lambda x: ([1, 2], (3, 4))), (zip, lambda x: (x, [1, 2, 3])), (map, lambda x: (abs, [1, -2])), (map, lambda x: (abs, x)),
        (map, lambda x: (operator.add, [1, 2], [x, x])), (enumerate, lambda x: ([x, 2], 5)), (filter, lambda x: (None, [0, 1])),
        (iter, lambda x: (x,)), (sum, lambda x: ([x, x],)), (sum, lambda x: (x,)), (max, lambda x: (x,)), (min, lambda x: ([3, 1],)),
        (functools.reduce, lambda x: (operator.add, [x, x])), (functools.reduce, lambda x: (operator.add, [])),
        (itertools.chain, lambda x: ([1], x)), (itertools.accumulate, lambda x: ([x, x],)), (itertools.islice, lambda x: ([1, 2, 3], 2)),
        (itertools.zip_longest, lambda x: ([1], [2, x])), (itertools.starmap, lambda x: (operator.add, [(1, x)])),
        (itertools.repeat, lambda x: (x, 2)), (sorted, lambda x: ([3, 1],)), (list, lambda x: (x,)), (divmod, lambda x: (x, 2)),
        (functools.partial(operator.mul, 2), lambda x: (x,)), (operator.itemgetter(1), lambda x: (x,)), (zip, lambda x: ()),
        (reversed, lambda x: ()),
    ],
)  # fmt: skip
def test_a_compiled_function_of_c_gives_what_it_gives_itself(function: Any, arguments: Callable[[Any], tuple[Any, ...]]) -> None:
    compiled = T.compile(function, backend="reference")
    for k in range(3):
        x = T.tensor([1.0, -2.0, 3.0 + k])
        assert outcome_of(compiled, arguments(x)) == outcome_of(function, arguments(x))


def test_what_is_repeated_is_not_iterated_over() -> None:
    held = {"tensor": T.tensor([1.0, 2.0]), "dict": {"a": 1}, "array": np.array([1.0, 2.0]), "list": [1, 2], "text": "ab"}

    def step(x: T.Tensor) -> Any:
        pairs = [(name, [item is value for item in itertools.repeat(value, 2)]) for name, value in held.items()]
        return x * 2, pairs, list(map(operator.mul, [1, 2], itertools.repeat(x))), list(itertools.islice(itertools.count(x), 2))

    compiled = T.compile(step, wait=True)
    for k in range(3):
        x = T.tensor([1.0, 3.0 + k])
        assert repr(compiled(x)) == repr(step(x))
    assert compiled.stats.compiled_calls == 2


FORMATS: dict[str, Any] = {
    "percent": lambda counts: "%(a)s" % counts,  # noqa: UP031
    "percent of bytes": lambda counts: b"%(a)d" % counts,
    "mod": lambda counts: operator.mod("%(a)s", counts),
    "__mod__": lambda counts: "%(a)s".__mod__(counts),
    "format_map": lambda counts: "{a}".format_map(counts),
    "translate": lambda counts: "a".translate(counts),
}


@pytest.mark.parametrize("name", FORMATS)
def test_c_code_that_adds_a_key_to_a_defaultdict_does_so_in_each_call(name: str) -> None:
    def play(compiler: Any) -> tuple[Any, Any]:
        counts: Any = collections.defaultdict(int)
        function = compiler(lambda x: (x * 2, FORMATS[name](counts)))
        outcomes = []
        for _ in range(3):
            counts.clear()
            outcomes.append((function(T.ones(2))[1], dict(counts)))
        return outcomes, function

    (outcomes, function), (expected, _) = play(T.compile), play(lambda function: function)
    assert outcomes == expected and all(counts for _, counts in expected)
    assert [reason.code for reason in function.reasons] == ["container"]


class WrongCount(list):
    def __getitem__(self, key: Any) -> Any:
        return list.__getitem__(self)  # type: ignore[call-arg]


def test_errors_of_python_are_the_programs_and_name_what_it_has_called() -> None:
    def function(x: Any, items: list[float]) -> Any:
        said = []
        actions = (
            lambda: max(items), lambda: min([], key=len), lambda: WrongCount()[0], lambda: [].index(1), lambda: sum(items, ""),
            lambda: sorted([1, "a"]), lambda: list.sort([1, "a"]), lambda: dict([1]),
            lambda: {}.popitem(), lambda: next(iter(items)), lambda: int("x"), lambda: {1: 2}["x"],
        )  # fmt: skip
        for action in actions:
            try:
                action()
            except Exception as error:
                said.append(f"{type(error).__name__}: {error}")
        return x * 2, said

    compiled = T.compile(function)
    for items in ([], [], [1.0], []):
        x = T.ones(2)
        (result, said), (expected, wanted) = compiled(x, items), function(x, items)
        assert (result.tolist(), said) == (expected.tolist(), wanted)
    assert compiled.stats.compiled_calls > 0 and not compiled.reasons, compiled.explain()
