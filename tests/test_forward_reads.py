"""passes/forward_reads.py: a read of a table that has been written to looks at the row that was written, or at what was there before."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracejit as T
from tracejit.core.aval import Aval
from tracejit.core.dtypes import float64, int64
from tracejit.core.op import REGISTRY
from tracejit.ir.builder import GraphBuilder
from tracejit.ir.graph import Literal
from tracejit.ir.interpreter import interpret
from tracejit.ir.verifier import verify
from tracejit.passes.forward_reads import MOST_WRITES, WORTH, forward_reads
from tracejit.passes.memory import verify_memory

ROWS, COUNT = 3 * WORTH, 4
SELECT, SCATTER = REGISTRY["select"], REGISTRY["select_scatter"]
KINDS = ("constant", "tensor")


def random_graph(steps: list[tuple[bool, str, int]], views: bool = False) -> tuple[Any, list[Any]]:
    """Writes of rows, and reads, at positions that are constants or tensors; the reads, or views of them, come out.  With arguments for
    it."""
    builder, random = GraphBuilder(), np.random.default_rng(len(steps))
    table = builder.input(Aval((ROWS, 2), float64))
    positions = [builder.input(Aval((), int64)) for _ in range(COUNT)]
    row = builder.input(Aval((2,), float64))
    found = []
    for writes, kind, k in steps:
        position = Literal(k) if kind == "constant" else positions[k]
        if writes:
            (row,) = builder.add(REGISTRY["add"], (row, Literal(1.0)), {})
            (table,) = builder.add(SCATTER, (table, row, position), {"dim": 0})
        else:
            (read,) = builder.add(SELECT, (table, position), {"dim": 0})
            double = REGISTRY["mul"], (read, Literal(2.0)), {}
            found += builder.add(REGISTRY["reshape"], (read,), {"shape": (1, 2)}) if views else builder.add(*double)
    numbers = [np.array(k) for k in random.integers(0, COUNT, COUNT)]
    return builder.build((*found, table)), [random.normal(size=(ROWS, 2)), *numbers, random.normal(size=2)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(KINDS), st.integers(0, COUNT - 1)), min_size=1, max_size=14), st.booleans()
)
def test_what_is_read_stays_what_it_is(steps: list[tuple[bool, str, int]], views: bool) -> None:
    graph, arguments = random_graph(steps, views)
    result = verify(forward_reads(graph), functional=True)
    verify_memory(graph, result)
    for a, b in zip(interpret(graph, arguments), interpret(result, arguments), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_no_read_looks_at_what_a_write_has_made(kind: str) -> None:
    graph, _ = random_graph([(True, kind, 0), (True, kind, 1), (False, kind, 2), (False, kind, 1)])
    result = forward_reads(graph)
    made = {v for node in result.nodes if node.op is SCATTER for v in node.outputs}
    assert not any(node.operands[0] in made for node in result.nodes if node.op is SELECT)


def test_a_read_looks_through_so_many_writes_and_no_further() -> None:
    graph, _ = random_graph([*[(True, "tensor", k % COUNT) for k in range(MOST_WRITES + 3)], (False, "constant", 0)])
    result = forward_reads(graph)
    assert sum(node.op.name == "where" for node in result.nodes) == MOST_WRITES


def test_a_graph_without_such_reads_and_small_tables_stay_as_they_are() -> None:
    graph, _ = random_graph([(False, "tensor", 0), (True, "tensor", 0)])
    assert forward_reads(graph) is graph


def test_a_table_from_outside_is_changed_where_it_lies() -> None:
    table = T.zeros(20_000, 4, dtype=T.float64)

    def learn(state: Any, action: Any, reward: float, following: Any) -> Any:
        target = reward + 0.9 * table[following].max()
        table[state, action] += 0.5 * (target - table[state, action])
        table[following] *= 0.75
        return table[following].argmax().item(), table[state] * 1

    compiled = T.compile(learn)
    random = np.random.default_rng(0)
    outcomes: list[list[Any]] = []
    for call in (learn, compiled):
        table.zero_()
        random = np.random.default_rng(0)
        seen: list[Any] = []
        for _ in range(30):
            state, following = (T.tensor(int(k)) for k in random.integers(0, 3, 2))
            best, row = call(state, T.tensor(int(random.integers(0, 4))), float(random.normal()), following)
            seen += [best, row.tolist(), table[:3].tolist()]
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]
    assert compiled.stats.traces == 1
    written = [int(number) for number in re.findall(r"^  .*writes (\d+)", compiled.explain(verbose=True), re.MULTILINE)]
    assert len(written) > 3 and sum(written) < table.numpy().nbytes // 100
