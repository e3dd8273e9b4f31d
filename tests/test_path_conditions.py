"""passes/path_conditions.py: conditions mean what their terms say, and what nodes compute of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracejit.core.aval import Aval
from tracejit.core.dtypes import bool_
from tracejit.ir.interpreter import interpret
from tracejit.ir.tracer import trace
from tracejit.passes.path_conditions import ALWAYS, Condition, Conditions, are_disjoint

WIDTH = 4
TERMS = st.frozensets(st.tuples(st.integers(0, WIDTH - 1), st.booleans()), max_size=3)
CONDITIONS = st.frozensets(
    TERMS.filter(lambda term: not any((v, not outcome) in term for v, outcome in term)), min_size=1, max_size=5
)


def holds(condition: Condition, values: dict[int, bool]) -> bool:
    return any(all(values[v] is outcome for v, outcome in term) for term in condition)


def assignments() -> list[tuple[bool, ...]]:
    return [*product([False, True], repeat=WIDTH)]


def in_graph(build: Any) -> None:
    """Run `build(conditions, bools)` while a graph of four bools is traced; it gives (a condition, what it is to mean)."""
    found: list[Any] = []

    def function(*bools: Any) -> Any:
        logic = Conditions()
        condition, meaning = build(logic, bools)
        found[:] = [condition, meaning, {x.id: k for k, x in enumerate(bools)}]
        return bools[0] if condition == ALWAYS else logic.value(condition)

    graph = trace(function, [Aval((), bool_)] * WIDTH)
    condition, meaning, numbers = found
    for outcomes in assignments():
        expected = meaning(outcomes)
        assert holds(condition, {v: outcomes[k] for v, k in numbers.items()}) == expected
        if condition != ALWAYS:
            assert bool(interpret(graph, [np.array(x) for x in outcomes])[0]) == expected


def stepwise(logic: Conditions, bools: Any, condition: Condition) -> Condition:
    """The condition of these terms, whose literals are positions of bools, step by step."""
    total: Condition = frozenset()
    for term in condition:
        one = ALWAYS
        for k, outcome in sorted(term):
            one = logic.with_outcome(one, bools[k], outcome)
        total = logic.either(total, one)
    return total


@given(CONDITIONS)
def test_a_condition_and_its_value_hold_where_one_of_the_terms_does(condition: Condition) -> None:
    def build(logic: Conditions, bools: Any) -> Any:
        return stepwise(logic, bools, condition), lambda outcomes: holds(condition, dict(enumerate(outcomes)))

    in_graph(build)


@given(CONDITIONS, CONDITIONS)
def test_disjoint_conditions_never_hold_together(one: Condition, other: Condition) -> None:
    if are_disjoint(one, other):
        assert not any(holds(one, values) and holds(other, values) for values in map(dict, map(enumerate, assignments())))


def test_either_way_of_a_bool_is_no_condition() -> None:
    def build(logic: Conditions, bools: Any) -> Any:
        one = logic.with_outcome(ALWAYS, bools[0], True)
        inner = [logic.with_outcome(logic.with_outcome(ALWAYS, bools[0], False), bools[1], outcome) for outcome in (True, False)]
        assert logic.with_outcome(one, bools[0], False) == frozenset()
        both = logic.either(logic.either(one, inner[0]), inner[1])
        assert both == ALWAYS
        return both, lambda outcomes: True

    in_graph(build)
