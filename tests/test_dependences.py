"""Which groups need which, against paths in a graph that is walked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracejit.lowering.dependences import Dependences

Edges = dict[int, set[int]]


def reachable(edges: Edges, start: int) -> set[int]:
    """All that `start` needs, by way of others too."""
    found: set[int] = set()
    stack = [start]
    while stack:
        for n in edges[stack.pop()]:
            if n not in found:
                found.add(n)
                stack.append(n)
    return found


def apart(edges: Edges, one: int, other: int) -> bool:
    """Whether a path between two leads through a third."""
    return any(b in reachable(edges, n) for a, b in ((one, other), (other, one)) for n in edges[a] if n != b)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30)), max_size=60))
def test_relations_are_those_of_the_graph_while_it_grows_and_shrinks(actions: list[tuple[int, int, int]]) -> None:
    known, edges = Dependences(), Edges()
    alive: list[int] = []
    for action, i, j in actions:
        if action == 0 or len(alive) < 2:
            number = known.new()
            sources = {alive[k % len(alive)] for k in (i, j)} if alive else set()
            known.add(number, sources)
            alive.append(number)
            edges[number] = set(sources)
            continue
        one, other = alive[i % len(alive)], alive[j % len(alive)]
        if one == other:
            continue
        if action == 1:
            assert known.needs([other], one) == (one in reachable(edges, other))
            if not known.needs([other], one):
                known.add(one, [other])
                edges[one].add(other)
        else:
            assert known.have_path_between(one, other) == known.have_path_between(other, one) == apart(edges, one, other)
            if not known.have_path_between(one, other):
                merged = known.merge(one, other)
                edges[merged] = (edges.pop(one) | edges.pop(other)) - {one, other}
                for sources in edges.values():
                    if sources & {one, other}:
                        sources -= {one, other}
                        sources.add(merged)
                alive = [n for n in alive if n not in (one, other)] + [merged]
        for n in alive:
            beyond = known.beyond(n)
            assert {m for m in alive if beyond >> m & 1} == {m for m in alive if any(m in reachable(edges, p) for p in edges[n])}
            assert {m for m in alive if m != n and known.needs([n], m)} == reachable(edges, n)
