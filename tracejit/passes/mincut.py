"""Minimum cut of a flow network, by Dinic's algorithm (E. A. Dinic, Soviet Math. Doklady 11, 1970).

Vertices are small integers; capacities are non-negative integers.  Knows nothing of graphs of operations.
"""

from __future__ import annotations

__all__ = ["Network"]


class Network:
    """A directed network.  `add_edge`s, then `source_side`."""

    __slots__ = ("capacity", "edges", "head")

    def __init__(self) -> None:
        self.head: list[int] = []  # edge -> vertex it leads to; edge ^ 1 is its reverse
        self.capacity: list[int] = []
        self.edges: list[list[int]] = []  # vertex -> edges that leave it

    def add_vertex(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def add_edge(self, tail: int, head: int, capacity: int) -> None:
        self.edges[tail].append(len(self.head))
        self.edges[head].append(len(self.head) + 1)
        self.head += (head, tail)
        self.capacity += (capacity, 0)

    def source_side(self, source: int, sink: int) -> set[int]:
        """The vertices on the source's side of the minimum cut that is nearest to the source."""
        while True:
            level = self._levels(source)
            if sink not in level:
                return set(level)
            position = [0] * len(self.edges)
            while self._augment(source, sink, level, position):
                pass

    def _levels(self, source: int) -> dict[int, int]:
        """Distance from the source of every vertex that can still be reached."""
        level = {source: 0}
        queue = [source]
        for vertex in queue:
            for edge in self.edges[vertex]:
                head = self.head[edge]
                if self.capacity[edge] and head not in level:
                    level[head] = level[vertex] + 1
                    queue.append(head)
        return level

    def _augment(self, source: int, sink: int, level: dict[int, int], position: list[int]) -> bool:
        """Push flow along one shortest path; whether there was one.  `position`: edges before it are exhausted."""
        path: list[int] = []
        vertex = source
        while vertex != sink:
            edges = self.edges[vertex]
            while position[vertex] < len(edges):
                edge = edges[position[vertex]]
                if self.capacity[edge] and level.get(self.head[edge], -1) == level[vertex] + 1:
                    path.append(edge)
                    vertex = self.head[edge]
                    break
                position[vertex] += 1
            else:
                if not path:
                    return False
                edge = path.pop()
                vertex = self.head[edge ^ 1]
                position[vertex] += 1
        flow = min(self.capacity[edge] for edge in path)
        for edge in path:
            self.capacity[edge] -= flow
            self.capacity[edge ^ 1] += flow
        return True
