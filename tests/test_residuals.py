"""What is kept for the backward is the cheapest choice there is, by the costs that the module states."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from typing import Any

import pytest

from tests.graph_programs import f32, op
from tracejit.core.aval import Aval
from tracejit.ir.builder import producers
from tracejit.ir.graph import Graph
from tracejit.ir.tracer import trace
from tracejit.passes.residuals import SAVE_ONCE, SAVE_PER_BYTE, _recompute_cost, choose_residuals, is_recomputable


def cost(graph: Graph, needed: Iterable[int], kept: frozenset[int], direct: frozenset[int]) -> float:
    """Keeping and computing again together; infinite where a value cannot be had."""
    makers, seen, stack = producers(graph), set(), [v for v in needed if v not in kept]
    avals = [aval for v in kept if isinstance(aval := graph.avals[v], Aval)]
    total = float(sum([SAVE_PER_BYTE * aval.nbytes + SAVE_ONCE for aval in avals]))
    while stack:
        v = stack.pop()
        if v in seen or v in direct:
            continue
        seen.add(v)
        maker, aval = makers.get(v), graph.avals[v]
        assert isinstance(aval, Aval)
        if maker is None or not is_recomputable(maker):
            return float("inf")
        total += _recompute_cost(maker, aval)
        stack += [x for x in maker.operands if isinstance(x, int) and x not in kept]
    return total


@pytest.mark.parametrize("seed", range(12))
def test_no_other_choice_costs_less(seed: int) -> None:
    choose = random.Random(seed)

    def function(x: Any, y: Any) -> Any:
        values = [x, y]
        for _ in range(8):
            kind, a, b = choose.randrange(5), choose.choice(values), choose.choice(values)
            made = (lambda a, b: a * b, lambda a, b: a + b, lambda a, b: op("exp", a), lambda a, b: op("sin", a) + b)
            values.append(op("sum", a, dims=(1,), keepdim=True) if kind == 4 else made[kind](a, b))
        return tuple(values[2:])

    graph = trace(function, [f32(4, 6), f32(4, 1)])
    computed = [v for node in graph.nodes for v in node.outputs]
    needed = choose.sample(computed, 3)
    direct = frozenset(graph.inputs[: seed % 3])
    chosen = cost(graph, needed, frozenset(choose_residuals(graph, needed, direct)), direct)
    candidates = [*computed, *(v for v in graph.inputs if v not in direct)]
    subsets = itertools.chain.from_iterable(itertools.combinations(candidates, n) for n in range(5))
    assert chosen == min(cost(graph, needed, frozenset(s), direct) for s in subsets) < float("inf")
