"""Containers that the standard library has written in Python (UserDict, UserList, ChainMap), and those of C code, read by C code.

What it reads is guarded, so that a call after a change gives what eager mode gives.
"""

from __future__ import annotations

import array
import collections
import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T
from tracejit.config import override


class OwnDict(collections.UserDict):  # type: ignore[type-arg]
    pass


class OwnList(collections.UserList):  # type: ignore[type-arg]
    pass


class Mapping:
    def __init__(self, **data: Any) -> None:
        self.data = data

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def update(self, **data: Any) -> None:
        self.data.update(data)


def extended(target: list[Any], change: str, *arguments: Any) -> list[Any]:
    getattr(target, change)(*arguments)
    return target


def assigned(values: Any) -> list[Any]:
    target = [9]
    target[:0] = values
    return target


OF_MAPPINGS: dict[str, Callable[[Any], Any]] = {
    "%": lambda d: operator.mod("%(a)s", d),
    "an operator": lambda d: "%(a)s" % d,  # noqa: UP031
    "join": ",".join,
    "dict": lambda d: dict(d)["a"],
    "len": len,
    "in": lambda d: "b" in d,
    "sorted": sorted,
    "itemgetter": operator.itemgetter("a"),
    "values": lambda d: sum(d.values()),
    "map": lambda d: list(map(d.get, ["a", "b"])),
    "**": lambda d: {**d},
    "==": lambda d: d == {"a": 0},
    "reduce": lambda d: functools.reduce(operator.add, d.values()),
    "chain": lambda d: list(itertools.chain(d, d.values())),
    "text": str,
}
OF_SEQUENCES: dict[str, Callable[[Any], Any]] = {
    "fromkeys": lambda x: list(dict.fromkeys(x)),
    "slice": assigned,
    "__setitem__": lambda x: extended([9], "__setitem__", slice(0, 0), x),
    "extend": lambda x: extended([9], "extend", x),
    "+=": lambda x: operator.iadd([9], x),
    "join": lambda x: ",".join(map(str, x)),
    "sum": sum,
    "sorted": lambda x: sorted(x, reverse=True),
    "zip": lambda x: list(zip(x, x, strict=True)),
    "contains": lambda x: operator.contains(x, 5),
    "islice": lambda x: list(itertools.islice(x, 1)),
    "accumulate": lambda x: list(itertools.accumulate(x)),
    "%": lambda x: operator.mod("%s", (list(x),)),
}
MAPPINGS = (
    collections.UserDict,
    OwnDict,
    lambda **data: collections.ChainMap(data, {"c": 1}),
    collections.OrderedDict,
    collections.Counter,
)
SEQUENCES = (collections.UserList, OwnList, collections.deque, bytearray, functools.partial(array.array, "i"))


def check(read: Callable[[Any], Any], container: Any, change: Callable[[Any], Any]) -> Any:
    """Compare compiled calls with eager ones before and after a change."""

    def function(x: T.Tensor) -> Any:
        return read(container), x

    with override(backend="interpret"):
        compiled = T.compile(function, wait=True)
        for _ in range(3):
            assert compiled(T.ones(1))[0] == read(container)
        change(container)
        for _ in range(2):
            assert compiled(T.ones(1))[0] == read(container)
    return compiled


@pytest.mark.parametrize("make", MAPPINGS, ids=lambda m: getattr(m, "__name__", "ChainMap"))
@pytest.mark.parametrize("name", OF_MAPPINGS)
def test_what_c_code_reads_of_a_mapping_is_guarded(name: str, make: Any) -> None:
    check(OF_MAPPINGS[name], make(a=0), lambda d: d.update(a=5, b=1))


def change_list(values: Any) -> None:
    values[0] = 5
    values.append(2)


@pytest.mark.parametrize("make", SEQUENCES, ids=lambda m: getattr(m, "__name__", "array"))
@pytest.mark.parametrize("name", OF_SEQUENCES)
def test_what_c_code_reads_of_a_sequence_is_guarded(name: str, make: Any) -> None:
    check(OF_SEQUENCES[name], make([1, 2]), change_list)


@pytest.mark.parametrize("make", [OwnDict, Mapping])
def test_templates_with_names_stay_compiled(make: Any) -> None:
    compiled = check(lambda d: "%(a)s, %(a)05d" % d, make(a=0), lambda d: d.update(a=5))  # noqa: UP031
    assert compiled.stats.compiled_calls == 3 and not compiled.reasons
