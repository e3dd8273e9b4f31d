"""compiled/path_table.py: the states of a function and what its slots have in each, and which paths are dropped."""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T
from tracejit.compiled.dispatch import FALLBACK, SERVE, nothing_recorded
from tracejit.compiled.path_table import FunctionState, PathTable
from tracejit.compiled.recorded_path import FIRST_WAIT, PathState, RecordedPath
from tracejit.compiler import PerformanceWarning
from tracejit.config import config, override
from tracejit.cpython.dispatcher import FRONT, SIZED


def table_of(function: Any) -> PathTable:
    table = function._table
    assert isinstance(table, PathTable)
    return table


def slots(function: Any) -> list[Any]:
    """What a call goes to: [from Python, machine code of the first path, table of machine code by sizes]."""
    found = table_of(function).slots
    return [found[SERVE], found[FRONT] and found[FRONT][1], found[SIZED]]


def hot(function: Any, *arguments: Any) -> None:
    for _ in range(config.hot_calls + 2):
        function(*arguments)


def either(x: T.Tensor) -> T.Tensor:
    return x * 2 if x.sum() > 0 else x - 1


@pytest.fixture(autouse=True)
def hot_soon() -> Any:
    with override(hot_calls=3, compile_wait=1e9):
        yield


def test_a_function_is_fresh_until_a_path_is_installed_and_again_after_clear() -> None:
    function = T.compile(lambda x: x * 2)
    table = table_of(function)
    assert table.state is FunctionState.FRESH and slots(function) == [nothing_recorded, None, None]
    function(T.ones(2))
    (path,) = table.paths
    assert table.state is FunctionState.SERVING and table.first is path and slots(function) == [path.run, None, None]
    hot(function, T.ones(2))
    assert slots(function) == [path.run, path.machine, None] and path.machine is not None
    function.clear()
    assert table.state is FunctionState.FRESH and slots(function) == [nothing_recorded, None, None]
    assert not table.paths and not table.by_sizes and table.first is None and path.state is PathState.DROPPED


def test_the_slots_of_a_function_of_several_sizes_have_the_table_of_sizes() -> None:
    function = T.compile(lambda x: x * 2)
    for n in (2, 3):
        hot(function, T.ones(n))
    table = table_of(function)
    assert table.first is not None
    assert table.state is FunctionState.SERVING and slots(function)[1:] == [table.first.machine, table.size_table.items]
    assert len(table.by_sizes) == 2 and all(len(paths) == 1 for paths in table.by_sizes.values())


def scaled(x: T.Tensor, word: str) -> T.Tensor:
    return x * len(word)


def test_machine_code_tries_the_other_paths_where_the_first_one_misses() -> None:
    function = T.compile(scaled)
    x, counts = T.ones(2), range(1, 7)
    for n in counts:
        hot(function, x, "a" * n)
    served = []
    table = table_of(function)
    table.slots[SERVE] = lambda args, kwargs: served.append(args)  # what Python would be asked
    table.slots[FALLBACK] = lambda args, kwargs, *_: served.append(args)
    for _ in range(3):
        for n in counts:
            assert function(x, "a" * n).tolist() == [n, n]
    assert not served
    function(x, "a" * 10)
    assert len(served) == 1


@pytest.mark.parametrize("hot_calls", [1000])
def test_paths_of_many_become_machine_code_after_fewer_calls_and_together(hot_calls: int) -> None:
    with override(hot_calls=hot_calls, compile_wait=1e9):
        function = T.compile(scaled)
        for k in range(hot_calls):
            function(T.ones(2), "a" * (k % 5))
        paths = table_of(function).paths
        assert [path.hot_calls for path in paths] == [1000, 500, 333, 250, 200]
        assert not any(path.machine for path in paths)
        for k in range(10):
            function(T.ones(2), "a" * (k % 5))
        assert all(path.machine for path in paths if path.uses >= 200)


def test_a_function_that_cannot_be_recorded_warns_and_rests_and_tries_again() -> None:
    function = T.compile(lambda x: iter([x]))
    table = table_of(function)
    with pytest.warns(PerformanceWarning) as warned:
        for _ in range(config.max_failures):
            function(T.ones(1))
        assert table.state is FunctionState.RESTING and slots(function)[1:] == [None, None]
        traces = function.stats.traces
        for _ in range(FIRST_WAIT):
            assert not function.stats.direct_calls or table.state is FunctionState.RESTING
            function(T.ones(1))
    assert len(warned) == 1 and function.stats.traces == traces and function.stats.direct_calls == FIRST_WAIT
    function(T.ones(1))
    assert function.stats.traces == traces + 1


def test_a_warning_that_is_due_is_given_before_the_call_is_served_and_once() -> None:
    function = T.compile(lambda x: x * 2)
    hot(function, T.ones(2))
    table = table_of(function)
    with pytest.warns(PerformanceWarning, match="is an example") as warned:
        function._policy.advise("is an example.")
        assert table.state is FunctionState.WARNING and slots(function)[1:] == [None, None] and not warned
        assert [function(T.ones(2)).tolist() for _ in range(2)] == [[2.0, 2.0]] * 2
    assert len(warned) == 1 and table.state is FunctionState.SERVING and slots(function)[1] is not None


def test_slots_that_do_not_have_the_machine_code_of_an_entry_are_filled_by_the_next_call() -> None:
    function = T.compile(lambda x: x * 2)
    function(T.ones(2))
    table = table_of(function)
    (path,) = table.paths
    assert path.begin_translation() and path.become(*path.translate())  # as a thread in the background does
    table.mark_stale()
    assert table.state is FunctionState.STALE and slots(function)[1] is None
    assert function(T.ones(2)).tolist() == [2.0, 2.0]
    assert table.state is FunctionState.SERVING and slots(function) == [path.run, path.machine, None]


def test_a_function_in_pieces_has_no_entries_and_is_fresh_when_it_is_redefined() -> None:
    def function(xs: list[T.Tensor]) -> T.Tensor:
        total = T.zeros(2)
        last = xs[0]
        for x in xs:
            total = total * 2 if x.sum() > 0 else total - last
            last = x  # an item of the list, which no node of the program carries on
        return total

    def call(k: int) -> None:
        rows = [T.ones(2) * (((k * 7 + i * k * k) % 5) - 2) for i in range(18)]
        assert compiled(rows).tolist() == function(rows).tolist()

    compiled = T.compile(function)
    for k in range(20):
        call(k)
    table = table_of(compiled)
    assert table.state is FunctionState.IN_PIECES and table.pieces is not None and slots(compiled)[1:] == [None, None]
    assert not table.paths and not table.by_sizes and table.first is None
    function.__code__ = (lambda xs: xs[0] * 3).__code__
    call(1)
    assert table.state is not FunctionState.IN_PIECES and table.pieces is None
    call(1)
    assert table.state is FunctionState.SERVING


def test_unused_entries_are_dropped_with_the_bridges_to_them() -> None:
    function = T.compile(either, dynamic=False)
    for n in (2, 3):
        for sign in (1.0, -1.0, 1.0, -1.0):
            function(T.ones(n) * sign)
    table = table_of(function)
    assert len(table.paths) == 4 and any(path.bridges for path in table.paths)
    table.drop_unused()  # all were used since they were recorded
    assert len(table.paths) == 4
    function(T.ones(3))
    (kept,) = [path for path in table.paths if path.uses != path.uses_seen]
    dropped = table.drop_unused()
    assert table.paths == (kept,) and len(dropped) == 3 and not kept.bridges
    assert all(path.state is PathState.DROPPED for path in dropped) and kept.state is not PathState.DROPPED
    assert list(table.by_sizes.values()) == [(kept,)]
    for sign in (1.0, -1.0):
        for n in (2, 3):
            assert function(T.ones(n) * sign).tolist() == either(T.ones(n) * sign).tolist()


@pytest.mark.parametrize(
    ("call", "expected"), [(lambda f, n: f(T.ones(2), "t" * n), [3]), (lambda f, n: f(T.ones(n + 2), "t"), [1, 1, 1])]
)
def test_there_are_never_more_paths_than_the_configuration_allows(call: Callable[[Any, int], Any], expected: list[int]) -> None:
    with override(max_entries=3, max_sizes=3):
        function = T.compile(lambda x, text: x * len(text), dynamic=False)
        table = table_of(function)
        for n in range(12):
            call(function, n)
        assert table.is_full() and len(table.paths) == 3 and function.stats.eager_calls == 12
        assert [len(paths) for paths in table.by_sizes.values()] == expected


def test_candidates_of_a_function_with_many_paths_are_those_of_the_sizes_of_the_call() -> None:
    function = T.compile(either, dynamic=False)
    for n in range(1, 13):
        function(T.ones(n))
    table = table_of(function)
    assert len(table.paths) == 12
    (path,) = table.by_sizes[table.symbolic.shapes((T.ones(5),), {})]
    assert table.candidates(table.sizes_of((T.ones(5),), {}))[0] is path
    for each in table.paths:
        each.is_sized = True
    assert table.candidates(table.sizes_of((T.ones(5),), {})) == (path,)
    assert table.candidates(table.sizes_of((T.ones(50),), {})) == ()


@pytest.mark.parametrize("method", [PathTable.set_first, PathTable.rest, PathTable._empty, RecordedPath.become])
def test_what_belongs_together_is_written_without_a_call_or_a_jump_in_between(method: Any) -> None:
    """A signal handler runs, and another thread, where a function is entered or left and where a loop begins again."""
    rows, left = 0, 0
    for instruction in dis.get_instructions(method):
        if instruction.opname == "UNPACK_SEQUENCE":
            rows, left = rows + 1, instruction.argval
        elif left:
            assert instruction.opname.startswith(("LOAD_", "STORE_", "COPY", "SWAP")), instruction
            left -= instruction.opname.startswith("STORE_")
    assert rows and not left


def test_rows_of_assignments_that_a_call_interrupts_are_seen() -> None:
    def interrupted(table: Any, make: Any) -> None:
        table.a, table.b, make().c, table.d = 1, 2, 3, 4

    with pytest.raises(AssertionError):
        test_what_belongs_together_is_written_without_a_call_or_a_jump_in_between(interrupted)
