"""Minimum cut of a flow network, by Dinic's algorithm (E. A. Dinic, Soviet Math. Doklady 11, 1970).

Vertices are small integers; capacities are non-negative integers.  Knows nothing of graphs of operations.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cut", "Network"]


class Network:
    """A directed network.  `add_edge`s, then `source_side`."""

    __slots__ = ("capacity", "edges", "head")

    def __init__(self, vertices: int) -> None:
        self.head: list[int] = []  # edge -> vertex it leads to; edge ^ 1 is its reverse
        self.capacity: list[int] = []
        self.edges: list[list[int]] = [[] for _ in range(vertices)]  # vertex -> edges that leave it

    def add_edge(self, tail: int, head: int, capacity: int) -> None:
        self.edges[tail].append(len(self.head))
        self.edges[head].append(len(self.head) + 1)
        self.head += (head, tail)
        self.capacity += (capacity, 0)

    def source_side(self, source: int, sink: int) -> set[int]:
        """The vertices on the source's side of the minimum cut that is nearest to the source."""
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                return {vertex for vertex, distance in enumerate(level) if distance >= 0}
            position = [0] * len(self.edges)
            while self._augment(source, sink, level, position):
                pass

    def _levels(self, source: int) -> list[int]:
        """Distance from the source of every vertex that can still be reached, -1 of others."""
        edges, heads, capacity = self.edges, self.head, self.capacity
        level = [-1] * len(edges)
        level[source] = 0
        queue = [source]
        for vertex in queue:
            following = level[vertex] + 1
            for edge in edges[vertex]:
                head = heads[edge]
                if level[head] < 0 and capacity[edge]:
                    level[head] = following
                    queue.append(head)
        return level

    def _augment(self, source: int, sink: int, level: list[int], position: list[int]) -> bool:
        """Push flow along one shortest path; whether there was one.  `position`: edges before it are exhausted."""
        heads, capacity = self.head, self.capacity
        path: list[int] = []
        vertex = source
        while vertex != sink:
            edges, following = self.edges[vertex], level[vertex] + 1
            for at in range(position[vertex], len(edges)):
                edge = edges[at]
                if capacity[edge] and level[heads[edge]] == following:
                    position[vertex] = at
                    path.append(edge)
                    vertex = heads[edge]
                    break
            else:
                position[vertex] = len(edges)
                if not path:
                    return False
                vertex = heads[path.pop() ^ 1]
                position[vertex] += 1
        flow = min([capacity[edge] for edge in path])
        for edge in path:
            capacity[edge] -= flow
            capacity[edge ^ 1] += flow
        return True


@dataclass(frozen=True, slots=True)
class Cut:
    """The minimum cut of a network with these edges (tail, head), a function of their capacities."""

    vertices: int
    source: int
    sink: int
    edges: tuple[tuple[int, int], ...]

    def __call__(self, *capacities: int) -> list[bool]:
        """For each vertex, whether it is on the source's side, of the cut that is nearest to the source."""
        network = Network(self.vertices)
        for (tail, head), capacity in zip(self.edges, capacities, strict=True):
            network.add_edge(tail, head, capacity)
        side = network.source_side(self.source, self.sink)
        return [vertex in side for vertex in range(self.vertices)]
