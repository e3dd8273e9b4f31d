"""Views at positions that the program computes, `table[s, a]`: results of a call, what it stores, and what loops carry on."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.loop_programs import LENGTHS, agree, of_any_length, zeros

TABLE = tj.tensor(np.random.default_rng(0).integers(0, 9, (9, 3)))
ROWS = tj.tensor(np.random.default_rng(1).normal(size=(9, 4)))
WEIGHTS = tj.tensor(np.random.default_rng(2).normal(size=(9, 4)), requires_grad=True)


def element(s: Any, a: Any) -> Any:
    return TABLE[s, a]


def of_a_row(s: Any, a: Any) -> Any:
    return TABLE[s][a], ROWS[s, :2], ROWS[:, a]


def of_what_was_found(s: Any, a: Any) -> Any:
    return ROWS[TABLE[TABLE[s, a], a]]


def from_the_end(s: Any, a: Any) -> Any:
    return ROWS[s - 9], ROWS[-1 - a]


def before_the_position_was_changed(s: Any, a: Any) -> Any:
    found = ROWS[s]
    s.add_(1)
    return found, s


def with_a_gradient(s: Any, a: Any) -> Any:
    return WEIGHTS[s], WEIGHTS[s, a] * 2


def of_what_the_call_made(s: Any, a: Any) -> Any:
    made = WEIGHTS * 2
    return made, made[s]


def twice(s: Any, a: Any) -> Any:
    return ROWS[s], ROWS[s], ROWS[a]


RESULTS = (
    element, of_a_row, of_what_was_found, from_the_end, before_the_position_was_changed, with_a_gradient, of_what_the_call_made, twice,
)  # fmt: skip


@pytest.mark.parametrize("backend", ["llvm", "numba", "reference", "interpret"])
@pytest.mark.parametrize("function", RESULTS)
def test_results_are_views_of_the_same_memory_in_one_recording(function: Callable[..., Any], backend: str) -> None:
    def outcome(called: Callable[..., Any], k: int) -> list[Any]:
        s, a = tj.tensor(k * 7 % 9), tj.tensor(k % 3)
        found = called(s, a)
        seen = []
        for x in found if isinstance(found, tuple) else (found,):
            base = next((b for b in (TABLE, ROWS, WEIGHTS, s) if x._base is b), None)
            inside = None if base is None else x.data_ptr() - base.data_ptr()
            slopes = tj.autograd.grad((x * x).sum(), WEIGHTS, retain_graph=True)[0].tolist() if x.requires_grad else None
            seen.append((x.tolist(), x.stride(), x.requires_grad, inside, slopes))
        return [*seen, s.item()]

    with tj.config.override(backend=backend):
        compiled = tj.compile(function)
        for k in range(20):
            assert outcome(compiled, k) == outcome(function, k)
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == 19, compiled.explain()


def test_what_is_written_to_such_a_result_is_written_to_what_it_is_a_part_of() -> None:
    @tj.compile
    def row(memory: Any, s: Any) -> Any:
        return memory[s]

    for k in range(9):
        memory = tj.zeros(9, 2)
        row(memory, tj.tensor(k)).add_(1.0)
        assert memory.sum(1).tolist() == [float(j == k) * 2 for j in range(9)]
    assert row.stats.traces == 1


def test_such_views_may_be_stored() -> None:
    def step(state: Any, a: Any) -> Any:
        state.at = TABLE[state.at, a]
        state.seen["row"] = ROWS[state.at]
        return state.at

    compiled = tj.compile(step)
    mine, theirs = [SimpleNamespace(at=tj.tensor(1), seen={}) for _ in range(2)]
    for k in range(30):
        a = tj.tensor(k * k % 3)
        assert compiled(mine, a) is mine.at and step(theirs, a) is theirs.at
        assert mine.at.data_ptr() == theirs.at.data_ptr()
        assert mine.seen["row"].data_ptr() == theirs.seen["row"].data_ptr()
    assert compiled.stats.traces <= 2 and compiled.stats.compiled_calls >= 28, compiled.explain()


def test_positions_that_are_not_there_raise_what_they_raise_eagerly() -> None:
    compiled = tj.compile(element)
    for s, a in ((1, 2), (8, 0), (9, 1), (2, 3), (-9, 1), (-10, 1), (3, 1)):
        outcomes = []
        for called in (compiled, element):
            try:
                outcomes.append(called(tj.tensor(s), tj.tensor(a)).item())
            except IndexError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


# -- loops


def chain(xs: Any) -> Any:
    s = tj.tensor(2)
    for x in xs:
        s = TABLE[s, (x.detach().abs().sum() * 100).long() % 3]
    return s


def rewards(xs: Any) -> Any:
    s, total = tj.tensor(1), tj.zeros((), dtype=tj.float64)
    for x in xs:
        total = total * 0.9 + ROWS[s, 1] * x.detach().sum()
        s = TABLE[s][s % 3]
    return s, total


def row_of_the_step_before(xs: Any) -> Any:
    h, row = zeros(), ROWS[0]
    for x in xs:
        h = h * 0.5 + row
        row = ROWS[(x.detach().abs().sum() * 10).long() % 9]
    return h, row


def written_in_place(xs: Any) -> Any:
    table = TABLE.clone()
    s = table[2, 0]
    for _ in xs:
        s = table[s % 9, 1]
        s.mul_(1)
    return table, s


def table_that_steps_change(xs: Any) -> Any:
    table = TABLE[:, 0].clone()
    s = table[2]
    for x in xs:
        s = table[s]
        table[(x.detach().abs().sum() * 10).long() % 9] = 0
    return table, s


def two_steps_before(xs: Any) -> Any:
    s = p = q = TABLE[2, 0]
    total = tj.zeros((), dtype=tj.float64)
    for _ in xs:
        total = total + q
        q, p, s = p, s, TABLE[s, 1]
    return s, p, q, total


@pytest.mark.parametrize("function", [chain, rewards, row_of_the_step_before])
def test_loops_carry_parts_of_tables_on(function: Callable[..., Any]) -> None:
    assert of_any_length(function).stats.traces <= 4 + sum(length < 13 for length in LENGTHS)


@pytest.mark.parametrize("function", [written_in_place, table_that_steps_change, two_steps_before])
def test_steps_that_do_more_with_parts_of_tables_give_what_eager_calls_give(function: Callable[..., Any]) -> None:
    agree(tj.compile(function), function)
