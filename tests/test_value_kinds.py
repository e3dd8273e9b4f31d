"""Kinds of values: one classification by type, and tables of methods by it."""

import abc
import collections
import datetime
import decimal
import enum
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.capture.handlers.symbols import ObjectIdentity, SymbolicNumber
from tracejit.capture.value_kinds import Kind, by_kind, kind_of


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Pair(collections.namedtuple("Pair", "a b")):
    pass


class Table(dict):
    pass


class Number(int):
    pass


class Points(np.ndarray):
    pass


class Scalar(np.float64):
    pass


class Weights(T.Tensor):
    pass


class Plain:
    pass


class Abstract(abc.ABC):  # noqa: B024
    pass


def symbolic(value: Any) -> SymbolicNumber:
    return SymbolicNumber(None, None, value)  # type: ignore[arg-type]


SAMPLES: dict[Kind, list[Any]] = {
    Kind.PLAIN: [1, True, 1.5, 1j, None, ..., NotImplemented],
    Kind.TEXT: ["a", b"a"],
    Kind.SYMBOLIC: [symbolic(1), symbolic(True), symbolic("a")],
    Kind.OPAQUE: [
        object(),
        len,
        kind_of,
        [].append,
        iter([]),
        collections,
        T.float32,
        bytearray(),
        slice(1),
        [].__class__.__call__,
    ],
    Kind.MODELLED: [decimal.Decimal(1), datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), range(3)],
    Kind.NUMPY_SCALAR: [np.float64(1), np.int8(1), np.str_("a"), Scalar(1)],
    Kind.ENUM: [Color.RED, Level.LOW],
    Kind.CLASS: [int, Plain, type],
    Kind.VIEW: [{}.keys(), {}.values(), collections.OrderedDict().items()],
    Kind.SET: [set(), frozenset()],
    Kind.MAPPING: [{}, collections.OrderedDict(), collections.defaultdict(int)],
    Kind.SEQUENCE: [[], (), collections.deque()],
    Kind.IDENTITY: [ObjectIdentity(len, None)],  # type: ignore[arg-type]
    Kind.INSTANCE: [Plain(), Pair(1, 2), Table(), Number(1), collections.Counter(), T.Size((1,))],
    Kind.METACLASS_INSTANCE: [Abstract, collections.abc.Sized],
    Kind.ENUM_CLASS: [Color, Level],
    Kind.SYMBOLIC_OBJECT: [symbolic(datetime.date(2020, 1, 1)), symbolic(Plain())],
    Kind.SYMBOLIC_SCALAR: [symbolic(np.float32(1))],
    Kind.ARRAY_SUBCLASS: [np.zeros(1).view(Points), np.ma.array([1])],
    Kind.ARRAY: [np.zeros(1)],
    Kind.TENSOR: [T.ones(1), T.nn.Parameter(T.ones(1)), T.ones(1).as_subclass(Weights)],
}


def test_there_are_samples_of_each_kind() -> None:
    assert SAMPLES.keys() == set(Kind)


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_value_has_the_kind_that_its_type_says(kind: Kind) -> None:
    assert [kind_of(value) for value in SAMPLES[kind]] == [kind] * len(SAMPLES[kind])


def test_asking_for_the_kind_runs_no_code_of_the_class() -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("code of the class was called")

    meta = type(
        "Meta", (type,), {"__hash__": refused, "__eq__": refused, "__instancecheck__": refused, "__subclasscheck__": refused}
    )
    cls = meta("Odd", (), {"__class__": property(refused), "__getattribute__": refused})
    assert (kind_of(cls()), kind_of(cls)) == (Kind.INSTANCE, Kind.METACLASS_INSTANCE)


def test_a_class_is_not_kept_alive_by_the_kind_of_its_instances() -> None:
    cls = type("Short", (), {})
    assert kind_of(cls()) is Kind.INSTANCE
    reference = weakref.ref(cls)
    del cls
    gc.collect()
    assert reference() is None


def test_a_table_has_a_method_for_each_kind() -> None:
    table = by_kind("other", {"number": (Kind.PLAIN, Kind.SYMBOLIC), "tensor": (Kind.TENSOR,)})
    assert table.keys() == set(Kind)
    assert {kind: method for kind, method in table.items() if method != "other"} == {
        Kind.PLAIN: "number", Kind.SYMBOLIC: "number", Kind.TENSOR: "tensor",
    }  # fmt: skip
