"""cpython/size_table.py: what serves arguments of some sizes is found by machine code, and is no more than the one that is asked first."""

from __future__ import annotations

import collections
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as tj
from tracejit.config import override
from tracejit.cpython import c_api, size_table
from tracejit.cpython.builtin_functions import FASTCALL, builtin_function
from tracejit.cpython.c_api import ITEMS, slot_offsets
from tracejit.cpython.linking import link
from tracejit.cpython.reference_counts import counting
from tracejit.cpython.size_table import LONGEST, LOOK, SizeTable, look_text, sized_among

pytestmark = pytest.mark.skipif(not c_api.supported(), reason="entries are interpreted on this Python")

HOT = 3
SHAPES = st.lists(st.lists(st.integers(0, 2**14), max_size=4).map(tuple), max_size=3).map(tuple)


class Sized:
    __slots__ = ("_array",)

    def __init__(self, shape: tuple[int, ...] | None) -> None:
        if shape is not None:
            self._array = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), shape, (0,) * len(shape))


def looked_up(table: SizeTable, *arguments: Any) -> Any:
    """What machine code finds for these arguments, None if nothing."""
    text = f"""
declare void @_Py_Dealloc(ptr)
{counting()}
{look_text(slot_offsets(Sized)["_array"])}
define ptr @test_look_up(ptr %self, ptr %arguments, i64 %count) nounwind {{
  %table.at = getelementptr i8, ptr %self, i64 {ITEMS}
  %table = load ptr, ptr %table.at
  %class.at = getelementptr i8, ptr %self, i64 {ITEMS + 8}
  %class = load ptr, ptr %class.at
  %none.at = getelementptr i8, ptr %self, i64 {ITEMS + 16}
  %none = load ptr, ptr %none.at
  %found = call ptr @{LOOK}(ptr %table, ptr %class, ptr %arguments, i64 %count)
  %nothing = icmp eq ptr %found, null
  %answer = select i1 %nothing, ptr %none, ptr %found
  call void @incref(ptr %answer)
  ret ptr %answer
}}
"""
    address, owner = link(text, "test_look_up")
    return builtin_function("look_up", address, FASTCALL, (table.items, Sized, None, *owner))(*arguments)


@settings(max_examples=50, deadline=None)
@given(st.lists(SHAPES, min_size=1, max_size=40, unique=True), SHAPES)
def test_each_list_of_shapes_finds_what_was_put_there_last(known: list[Any], other: Any) -> None:
    table = SizeTable()
    for shapes in known:
        table.put(shapes, "before")
    for shapes in known:
        table.put(shapes, shapes)
    for shapes in known:
        assert looked_up(table, *map(Sized, shapes)) == shapes
    if other not in known:
        assert looked_up(table, *map(Sized, other)) is None


class Named(NamedTuple):
    first: Any
    second: Any


class Slots:
    __slots__ = ("content",)

    def __init__(self) -> None:
        self.content = Sized((2,))


class Held:
    """An object with attributes, whose class hides their dictionary."""

    __dict__ = property(lambda self: pytest.fail("the program's code runs"))  # type: ignore[assignment]

    def __init__(self, content: Any) -> None:
        self.content = content
        self.count = 1


class Called(Held):
    def __call__(self) -> None: ...


@dataclass
class Described:
    content: Any
    count: int


OBJECTS = ("object", "instance", "data")


def nested(shapes: list[Any], how: list[str]) -> list[Any]:
    """Objects of these shapes, packed in containers."""
    objects: list[Any] = list(map(Sized, shapes))
    for kind in how:
        packed = {
            "list": objects, "tuple": tuple(objects), "dict": {str(k): x for k, x in enumerate(objects)}, "named": Named(objects, 1),
            "ordered": collections.OrderedDict(enumerate(objects)), "pair": (1.5, (objects, None)),
            "object": SimpleNamespace(first=objects, second=1), "instance": Held(objects), "data": Described(objects, 1),
        }[kind]  # fmt: skip
        objects = [None, packed, Sized((2,))]
    return objects


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.lists(st.sampled_from(["list", "tuple", "dict", "named", "ordered", "pair", *OBJECTS]), max_size=6))
def test_shapes_in_containers_are_found_as_machine_code_finds_them(shapes: Any, how: list[str]) -> None:
    objects, table = nested(shapes, how), SizeTable()
    found = sized_among(objects, Sized)
    table.put(tuple([x._array.shape for x, _ in found]), "found")
    assert looked_up(table, *objects) == "found"
    for x, (at, *steps) in found:
        value = objects[at]
        for container, key in zip(steps[::2], steps[1::2], strict=True):
            assert value is container
            value = value[key] if isinstance(value, (list, tuple, dict)) else getattr(value, key)
        assert value is x
    assert len(found) == len(shapes) + len(how) if len(how) < 2 else len(found) <= len(shapes) + len(how)


@pytest.mark.parametrize("count", [LONGEST, LONGEST + 1])
def test_a_long_list_in_another_object_is_not_looked_into(count: int) -> None:
    log, table = [Sized((n,)) for n in range(count)], SizeTable()
    objects = [SimpleNamespace(log=log, last=Sized((3,))), {"log": log}, log, Sized((4,))]
    found = [x for x, _ in sized_among(objects, Sized)]
    assert len(found) == (3 * count if count == LONGEST else count) + 2
    table.put(tuple([x._array.shape for x in found]), "found")
    assert looked_up(table, *objects) == "found"


def test_some_hundred_objects_of_a_call_are_looked_at() -> None:
    objects = [[Sized((2,)) for _ in range(200)], {k: Sized((3,)) for k in range(200)}, Sized((4,))]
    found = [x._array.shape for x, _ in sized_among(objects, Sized)]
    assert found == [(2,)] * 200 + [(3,)] * 54
    table, loop = SizeTable(), []
    table.put(tuple(found), "found")
    assert looked_up(table, *objects) == "found"
    loop.append(loop)
    table.put(((7,),), "after a list in itself")
    assert looked_up(table, loop, Sized((7,))) == "after a list in itself" and len(sized_among([loop, Sized((7,))], Sized)) == 1


def test_a_large_object_hides_nothing_of_what_comes_after_it() -> None:
    large = Held({k: Sized((3,)) for k in range(400)})
    for objects in ([large, Sized((4,))], [[large, large], {"x": Sized((4,))}, Held(Sized((5,)))]):
        shapes = tuple([x._array.shape for x, _ in sized_among(objects, Sized)])
        assert shapes == ((3,),) * 255 + ((4,),)
        table = SizeTable()
        table.put(shapes, "found")
        assert looked_up(table, *objects) == "found"


def test_attributes_are_found_whatever_changes_in_them() -> None:
    held, table = Held(Sized((2,))), SizeTable()
    table.put(((2,),), "two")
    table.put(((3,), (2,)), "both")
    references = sys.getrefcount(held)
    assert looked_up(table, held) == "two"
    held.count = Sized((3,))
    held.content, held.count = held.count, held.content
    assert looked_up(table, held) == "both"
    del held.count
    held.content = Sized((2,))
    assert looked_up(table, held) == "two" and sys.getrefcount(held) == references


def test_what_can_be_called_is_not_looked_into_nor_are_slots() -> None:
    class Class:
        held = Sized((2,))

    def function() -> None: ...

    function.held = Sized((2,))  # type: ignore[attr-defined]
    assert not sized_among([Class, function, Called(Sized((2,))), Slots()], Sized)


def test_other_arguments_than_those_of_the_class_have_no_sizes() -> None:
    table = SizeTable()
    table.put(((2, 3),), "found")
    subclass = type("Subclass", (Sized,), {"__slots__": ()})
    assert looked_up(table, 1.5, Sized((2, 3)), [2], Sized(None), subclass((7,))) == "found"
    assert looked_up(table, subclass((2, 3))) is None and looked_up(table, Sized((2, 3)), Sized(())) is None


@pytest.fixture
def hot_soon() -> Any:
    with override(hot_calls=HOT):
        yield


def of_sizes(function: Any, *sizes: int) -> Any:
    """The function, compiled, served by machine code for vectors of these sizes."""
    f = tj.compile(function)
    for n in sizes:
        for _ in range(HOT + 2):
            f(tj.ones(n))
    assert len(f.paths()) == len(sizes) and all(path.machine for path in f.paths()), f.explain()
    return f


def refuse(args: tuple[Any, ...], kwargs: dict[str, Any], *_: Any) -> Any:
    raise AssertionError("served by Python")


def test_calls_of_all_sizes_stay_in_machine_code(hot_soon: Any) -> None:
    f = of_sizes(lambda x, k=2: x * k + x.sum(), 3, 5, 4)
    f._table.slots[:2] = refuse, refuse
    for n in (3, 4, 5, 5, 3):
        assert f(tj.ones(n)).tolist() == [2.0 + n] * n
    assert sorted(path.executable.counter[0] for path in f.paths()) == [HOT + 3] * 3  # of the third size the first call, too
    with pytest.raises(AssertionError, match="served by Python"):
        f(tj.ones(6))


def test_calls_with_batches_of_all_sizes_stay_in_machine_code(hot_soon: Any) -> None:
    f = tj.compile(lambda batch, k=2: batch["x"] * k + batch["y"][0].sum())
    for n in (3, 5, 4):
        for _ in range(HOT + 2):
            f({"x": tj.ones(n), "y": (tj.ones(n),)})
    f._table.slots[:2] = refuse, refuse
    for n in (3, 4, 5, 5, 3):
        assert f({"x": tj.ones(n), "y": (tj.ones(n),)}).tolist() == [2.0 + n] * n
    with pytest.raises(AssertionError, match="served by Python"):
        f({"x": tj.ones(3), "y": (tj.ones(4),)})


def test_a_call_that_the_path_of_its_sizes_does_not_serve_finds_another_and_is_served_by_that_from_then_on(hot_soon: Any) -> None:
    f = of_sizes(lambda x, k=2: x * k, 3, 4)
    for _ in range(2):
        f(tj.ones(3), True)
        assert f(tj.ones(3), 2).tolist() == [2.0] * 3 and f(tj.ones(4), 2).tolist() == [2.0] * 4
    assert f(tj.ones(3), True).tolist() == [1.0] * 3
    assert f.stats.traces + f.stats.instances == len(f.paths())


def test_an_exit_of_the_path_of_the_sizes_leads_on_from_that_path(hot_soon: Any) -> None:
    def function(x: Any) -> Any:
        return x * 2 if x[0] > 0 else x - 1

    f = of_sizes(function, 3, 4, 5)
    recorded = f.stats.traces
    for n in (3, 4, 5):
        for _ in range(3):
            assert f(-tj.ones(n)).tolist() == [-2.0] * n and f(tj.ones(n)).tolist() == [2.0] * n
    assert f.stats.traces == recorded + 1 and all(path.bridges.get(1) for (path, *_) in f._table.by_sizes.values())


def test_a_function_that_forgets_its_paths_forgets_their_sizes(hot_soon: Any) -> None:
    f = of_sizes(lambda x: x * 2, 3, 4)
    f.clear()
    assert f(tj.ones(4)).tolist() == [2.0] * 4 and f.stats.traces == 1
    assert f._table.size_table.items is None


def test_threads_may_put_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    table, hashed = SizeTable(), size_table._hash

    def interrupted(shapes: Any) -> int:
        monkeypatch.setattr(size_table, "_hash", hashed)
        table.put(((9,),), "of another thread")
        return hashed(shapes)

    table.put(((2,),), "two")
    monkeypatch.setattr(size_table, "_hash", interrupted)
    table.put(((3,),), "three")
    assert looked_up(table, Sized((2,))) == "two" and looked_up(table, Sized((3,))) == "three"
    assert looked_up(table, Sized((9,))) in ("of another thread", None)
