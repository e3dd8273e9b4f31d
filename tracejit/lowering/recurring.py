"""Groups that recur are scheduled once.

Equal layers of a network, and their backward passes, have equal groups: the same operations, at the same places of the same spaces, on
values of the same sizes and layouts.  What differs is which nodes and values these are.  So `Schedules` describes a group by its form
(`fuse.Growth`) and by what else `schedule` reads of it, with numbers of nodes and of values replaced by their ranks among those that it
mentions; where a group has the description of an earlier one, the nest is that one's, on other memory.

A group that may leave by an exit is scheduled for itself: its nest names the exit.  Knows what `schedule` depends on; not how it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from tracejit.lowering.elements import Scratch
from tracejit.lowering.fuse import Group
from tracejit.lowering.schedule import Argument, Scheduled, schedule
from tracejit.lowering.values import Values

__all__ = ["Schedules"]


class Schedules:
    """The nests of the groups of one graph.  stored, inlined, exit_code: as `schedule` is given them."""

    def __init__(self, values: Values, stored: frozenset[int], inlined: frozenset[int], exit_code: Callable[[int], int]) -> None:
        self._values = values
        self._stored = stored
        self._inlined = inlined
        self._exit_code = exit_code
        self._known: dict[Hashable, tuple[Scheduled, Sequence[int]]] = {}

    def scheduled(self, group: Group, name: str) -> tuple[Scheduled, Scheduled]:
        """What `schedule` makes of a group, and what it made of the first one that this is like, itself or an earlier one: the nest has the
        name of that."""
        description, mentioned = self._described(group)
        found = self._known.get(description)
        if found is not None:
            first, before = found
            return _renamed(first, dict(zip(before, mentioned, strict=True))), first
        done = schedule(self._values, group, self._stored, self._inlined, self._exit_code, name)
        if not done.exits:
            self._known[description] = done, mentioned
        return done, done

    def _described(self, group: Group) -> tuple[Hashable, list[int]]:
        """All that the nest of a group depends on, and the values that it mentions, in order.

        Nodes are its members, and those by way of which they read members and inlined nodes: views, and inlined nodes themselves.  Of
        anything else only the layout counts."""
        values, members, inlined = self._values, group.members, self._inlined
        nodes, producer, strided = values.nodes, values.producer, values.strided
        numbers, met = list(members), set(members)
        mentioned: set[int] = set()
        for number in numbers:  # it grows
            node = nodes[number]
            mentioned.update(node.outputs)
            for o in node.operands:
                if type(o) is not int:
                    continue
                mentioned.add(o)
                layout = strided.get(o)
                if layout is None:  # a number
                    continue
                mentioned.add(layout.root)
                source = producer.get(layout.root, -1)
                if (source in members or source in inlined) and (read := producer[o]) not in met:
                    met.add(read)
                    numbers.append(read)
        order = sorted(mentioned)
        rank = {v: k for k, v in enumerate(order)}
        place = {number: k for k, number in enumerate(sorted(numbers))}
        computed = tuple(
            [
                (
                    place[number],
                    values.alike[number],
                    tuple([rank[o] for o in nodes[number].operands if type(o) is int]),
                    tuple([rank[v] for v in nodes[number].outputs]),
                    number in self._stored,
                    number in inlined,
                )
                for number in numbers
            ]
        )
        facts = tuple(
            [
                (
                    values.kinds[v],
                    None if (layout := strided.get(v)) is None else (rank[layout.root], layout.offset, layout.strides),
                )
                for v in order
            ]
        )
        return (group.form, computed, facts), order


def _renamed(done: Scheduled, other: Mapping[int, int]) -> Scheduled:
    """The same nest on other values, and on scratch memory of its own."""
    scratch = {a.root: Scratch(a.root.dtype, a.root.count) for a in done.buffers if isinstance(a.root, Scratch)}
    buffers = [Argument(scratch[a.root] if isinstance(a.root, Scratch) else other[a.root], a.offset) for a in done.buffers]
    return Scheduled(
        done.nest,
        tuple(buffers),
        done.sizes,
        tuple([other[v] for v in done.scalars]),
        frozenset([other[v] for v in done.reads]),
        frozenset([other[v] for v in done.writes]),
        done.exits,
        {other[v]: frozenset([other[w] for w in given]) for v, given in done.in_place.items()},
        done.late,
    )
